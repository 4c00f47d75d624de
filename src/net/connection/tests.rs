//! A connection against a peer of the test, on the simulated network.

use std::net::SocketAddr;

use bytes::{Buf, BufMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiKey, ApiVersionsResponse, HeartbeatRequest, HeartbeatResponse};
use kafka_protocol::protocol::Encodable;
use tokio::io::AsyncReadExt;

use super::*;
use crate::net::{Fault, establish};
use crate::seam::{Link, Listener, Simulation, SocketOptions};

/// A request as a peer reads it: API key, version, correlation id.
type Asked = (i16, i16, i32);

struct Peer {
    socket: Socket,
}

impl Peer {
    async fn next(&mut self) -> Asked {
        let size = self.socket.read_i32().await.unwrap();
        let mut frame = vec![0; size as usize];
        self.socket.read_exact(&mut frame).await.unwrap();
        let mut frame = Bytes::from(frame);
        (frame.get_i16(), frame.get_i16(), frame.get_i32())
    }

    async fn send(&mut self, frame: &[u8]) {
        self.socket.write_all(frame).await.unwrap();
    }

    /// Answers ApiVersions as a broker does that knows `version` at most.
    async fn versions(&mut self, version_max: i16) {
        loop {
            let (api, version, correlation_id) = self.next().await;
            assert_eq!(api, ApiKey::ApiVersions as i16);
            let range =
                |api: ApiKey, max| ApiVersion::default().with_api_key(api as i16).with_max_version(max);
            let keys = vec![range(ApiKey::ApiVersions, version_max), range(ApiKey::Heartbeat, 4)];
            let response = ApiVersionsResponse::default().with_api_keys(keys);
            if version <= version_max {
                self.send(&reply(correlation_id, &response, version)).await;
                return;
            }
            self.send(&reply(correlation_id, &response.with_error_code(35), 0)).await;
        }
    }
}

/// A reply of an API whose reply header is version 0.
fn reply<M: Encodable>(correlation_id: i32, response: &M, version: i16) -> Vec<u8> {
    let mut body = BytesMut::new();
    response.encode(&mut body, version).unwrap();
    let mut frame = Vec::new();
    frame.put_i32(body.len() as i32 + 4);
    frame.put_i32(correlation_id);
    frame.extend_from_slice(&body);
    frame
}

fn heartbeat(correlation_id: i32, code: i16) -> Vec<u8> {
    reply(correlation_id, &HeartbeatResponse::default().with_error_code(code), 1)
}

struct World {
    simulation: Simulation,
    seam: Seam,
    listener: Listener,
    address: SocketAddr,
}

async fn world() -> World {
    let simulation = Simulation::new(1);
    let seam = Seam::Simulated(simulation.clone());
    let listener = seam.listen("10.0.0.1:9092".parse().unwrap()).await.unwrap();
    let address = listener.local_address().unwrap();
    simulation.host("kafka", address.ip());
    World { simulation, seam, listener, address }
}

async fn connect(world: &mut World, settings: &Settings) -> (Connection, Peer) {
    let serve = async {
        let mut peer = Peer { socket: world.listener.accept().await.unwrap() };
        peer.versions(3).await;
        peer
    };
    let (established, peer) = tokio::join!(establish(&world.seam, settings, "kafka", 9092), serve);
    (Connection::start(&world.seam, settings, established.unwrap()), peer)
}

async fn beat(connection: &Connection) -> Result<i16, Error> {
    connection.call(&HeartbeatRequest::default(), 1).await.map(|response| response.error_code)
}

#[tokio::test(start_paused = true)]
async fn an_older_broker_is_reached_through_the_fallback() {
    for version_max in [0, 2, 3, 4] {
        let mut world = world().await;
        let serve = async {
            let mut peer = Peer { socket: world.listener.accept().await.unwrap() };
            peer.versions(version_max).await;
        };
        let settings = Settings::default();
        let (established, ()) = tokio::join!(establish(&world.seam, &settings, "kafka", 9092), serve);
        let established = established.unwrap();
        assert_eq!(established.versions.range(ApiKey::Heartbeat), Some((0, 4)));
        assert_eq!(established.next_correlation_id, if version_max == 4 { 1 } else { 2 });
        assert_eq!(established.peer.to_string(), "kafka:9092 (10.0.0.1)");
    }
}

#[tokio::test(start_paused = true)]
async fn several_requests_are_in_flight_and_answered_in_order() {
    let mut world = world().await;
    let (connection, mut peer) = connect(&mut world, &Settings::default()).await;
    let serve = async {
        let asked = [peer.next().await, peer.next().await, peer.next().await];
        assert_eq!(asked.map(|(_, _, id)| id), [2, 3, 4]);
        for (code, (_, _, id)) in asked.into_iter().enumerate() {
            peer.send(&heartbeat(id, code as i16)).await;
        }
    };
    let (a, b, c, ()) = tokio::join!(beat(&connection), beat(&connection), beat(&connection), serve);
    assert_eq!([a.unwrap(), b.unwrap(), c.unwrap()], [0, 1, 2]);
}

/// What a peer may do wrong, and what the caller is told.
#[tokio::test(start_paused = true)]
async fn a_peer_that_misbehaves_ends_the_connection_with_its_reason() {
    let huge = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 2];
    let short = [0, 0, 0, 3, 0, 0, 0];
    let truncated = &heartbeat(2, 0)[..7];
    for (sent, closes, text) in [
        (&heartbeat(9, 0)[..], false, "correlation id 9 where 2 was due, in the reply to Heartbeat v1"),
        (&huge, false, "a reply of 2147483647 bytes to Heartbeat v1"),
        (&short, false, "a reply of 3 bytes to Heartbeat v1"),
        (b"HTTP/1.1 400", false, "(the port speaks HTTP)"),
        (truncated, true, "the broker closed the connection at Heartbeat v1, the first request"),
        (&[], true, "the broker closed the connection at Heartbeat v1, the first request"),
        (&[0, 0, 0, 5, 0, 0, 0, 2, 7], false, "the reply to Heartbeat v1 cannot be decoded"),
    ] {
        let mut world = world().await;
        let (connection, mut peer) = connect(&mut world, &Settings::default()).await;
        let serve = async {
            peer.next().await;
            peer.send(sent).await;
            if closes {
                peer.socket.shutdown().await.unwrap();
            }
        };
        let (answer, ()) = tokio::join!(beat(&connection), serve);
        let error = answer.unwrap_err().chain();
        assert!(error.contains(text), "{error}, not {text}");
        assert!(error.starts_with("kafka:9092 (10.0.0.1): "), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_does_not_come_closes_the_connection_for_all() {
    let mut world = world().await;
    let (connection, mut peer) = connect(&mut world, &Settings::default()).await;
    let began = Instant::now();
    let request = HeartbeatRequest::default();
    let patient = connection.call_within(&request, 2, Duration::from_secs(300));
    let serve = async {
        peer.next().await;
        peer.next().await;
    };
    let (late, patient, ()) = tokio::join!(beat(&connection), patient, serve);
    assert_eq!(began.elapsed().as_secs(), 30);
    assert!(matches!(late, Err(Error::RequestTimeout { .. })), "{late:?}");
    assert!(
        matches!(&patient, Err(Error::Lost { step: Step::Request(ApiKey::Heartbeat, 2), .. })),
        "{patient:?}"
    );
    assert!(matches!(connection.ended(), Some(Error::RequestTimeout { .. })));
    assert!(matches!(beat(&connection).await, Err(Error::Lost { .. })));
}

/// Case 54.
#[tokio::test(start_paused = true)]
async fn a_connection_that_the_broker_closes_while_idle_is_closed_on_our_side_too() {
    let mut world = world().await;
    let (connection, peer) = connect(&mut world, &Settings::default()).await;
    drop(peer);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(matches!(connection.ended(), Some(Error::Closed { .. })), "{:?}", connection.ended());
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_and_says_so() {
    let mut world = world().await;
    let settings = Settings { connections_max_idle: Some(Duration::from_secs(5)), ..Settings::default() };
    let (connection, mut peer) = connect(&mut world, &settings).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let serve = async {
        let (_, _, id) = peer.next().await;
        peer.send(&heartbeat(id, 0)).await;
    };
    let (answer, ()) = tokio::join!(beat(&connection), serve);
    assert_eq!(answer.unwrap(), 0);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(connection.ended().is_none());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(matches!(connection.ended(), Some(Error::ClosedByUs { reason: CloseReason::Idle, .. })));
    assert_eq!(peer.socket.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_connection_sends_nothing_before_its_time() {
    let mut world = world().await;
    let (connection, mut peer) = connect(&mut world, &Settings::default()).await;
    let began = Instant::now();
    connection.throttle(Duration::from_secs(40));
    connection.throttle(Duration::from_secs(2));
    let serve = async {
        let (_, _, id) = peer.next().await;
        assert_eq!(began.elapsed().as_secs(), 40);
        peer.send(&heartbeat(id, 0)).await;
    };
    let (answer, ()) = tokio::join!(beat(&connection), serve);
    assert_eq!(answer.unwrap(), 0, "the pause is no part of the request's time");
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_dropped_closes_the_connection() {
    let mut world = world().await;
    let (connection, mut peer) = connect(&mut world, &Settings::default()).await;
    drop(connection);
    assert_eq!(peer.socket.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test(start_paused = true)]
async fn dialling_says_why_it_failed_and_takes_no_longer_than_allowed() {
    let world = world().await;
    let settings = Settings::default();
    let failure = |error: Error, text: &str| {
        assert_eq!(error.fault(), Fault::Lost);
        assert!(error.chain().contains(text), "{}, not {text}", error.chain());
    };
    failure(
        establish(&world.seam, &settings, "nowhere", 1).await.unwrap_err(),
        "nowhere:1: the name cannot be resolved",
    );
    world.simulation.set_link("default", world.address, Link::Refused);
    failure(
        establish(&world.seam, &settings, "kafka", 9092).await.unwrap_err(),
        "cannot connect: connection refused",
    );
    world.simulation.set_link("default", world.address, Link::Silent);
    let began = Instant::now();
    failure(establish(&world.seam, &settings, "kafka", 9092).await.unwrap_err(), "no connection within");
    assert!((8..=12).contains(&began.elapsed().as_secs()), "ten seconds with jitter: {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_answers_api_versions_times_out() {
    let mut world = world().await;
    let settings = Settings::default();
    let serve = async {
        let mut peer = Peer { socket: world.listener.accept().await.unwrap() };
        peer.next().await;
        peer
    };
    let (established, _peer) = tokio::join!(establish(&world.seam, &settings, "kafka", 9092), serve);
    assert!(matches!(established, Err(Error::RequestTimeout { step: Step::ApiVersions, .. })));
}

#[tokio::test]
async fn a_real_socket_does_the_same() {
    let seam = Seam::real();
    let mut listener = seam.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let port = listener.local_address().unwrap().port();
    let settings = Settings { socket: SocketOptions::default(), ..Settings::default() };
    let serve = async {
        let mut peer = Peer { socket: listener.accept().await.unwrap() };
        peer.versions(4).await;
        let (_, _, id) = peer.next().await;
        peer.send(&heartbeat(id, 27)).await;
    };
    let call = async {
        let established = establish(&seam, &settings, "127.0.0.1", port).await.unwrap();
        beat(&Connection::start(&seam, &settings, established)).await
    };
    let (answer, ()) = tokio::join!(call, serve);
    assert_eq!(answer.unwrap(), 27);
}

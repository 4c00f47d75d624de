//! A produce lane against a broker that the test plays by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{ProduceRequest as ProduceApi, ProduceResponse, RequestHeader};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Grantor, Permit, ProduceLane, spawn_produce_lane};
use crate::client::scripted::{Accepted, Broker, encode_reply};
use crate::client::{
    LaneId, ProduceBatch, ProduceCommand, ProduceEvent, ProduceRequest, ProduceSettings, TargetKey,
    TargetTopic,
};
use crate::net;
use crate::record::HEADER_BYTES;

struct Rig {
    broker: Broker,
    lane: ProduceLane,
    events: mpsc::UnboundedReceiver<(LaneId, ProduceEvent)>,
    /// How often the lane said that nothing comes.
    silences: u32,
}

impl Rig {
    async fn start(version_max: i16, settings: ProduceSettings) -> Rig {
        Rig::start_with(version_max, settings, Permit::always()).await
    }

    async fn start_with(version_max: i16, settings: ProduceSettings, permit: Permit) -> Rig {
        let broker = Broker::offering::<ProduceApi>(version_max).await;
        let (sender, events) = mpsc::unbounded_channel();
        let lane = spawn_produce_lane(
            broker.seam(),
            net::Settings::default(),
            broker.host_port(),
            settings,
            permit,
            LaneId(7),
            sender,
        );
        Rig { broker, lane, events, silences: 0 }
    }

    async fn event(&mut self) -> ProduceEvent {
        loop {
            let (lane, event) = self.events.recv().await.expect("the lane is alive");
            assert_eq!(lane, LaneId(7));
            match event {
                ProduceEvent::Silent => self.silences += 1,
                event => return event,
            }
        }
    }

    async fn connected(&mut self, number: u64) -> Accepted {
        let accepted = self.broker.accept().await;
        match self.event().await {
            ProduceEvent::Connected { connection } => assert_eq!(connection, number),
            other => panic!("{other:?}"),
        }
        accepted
    }

    fn send(&self, id: u64, connection: u64, batches: &[(i32, usize)]) {
        let request = request(id, connection, batches);
        self.lane.commands.send(ProduceCommand::Send(request)).unwrap();
    }

    async fn answered(&mut self, expected: u64) -> (Vec<(u32, i16, i64)>, Duration) {
        match self.event().await {
            ProduceEvent::Answered { id, answers, throttle } if id == expected => {
                (answers.iter().map(|a| (a.key.0, a.code, a.base_offset)).collect(), throttle)
            }
            other => panic!("{other:?}"),
        }
    }

    async fn lost(&mut self, expected: &[u64], why: &str) {
        match self.event().await {
            ProduceEvent::Disconnected { lost, reason } => {
                assert_eq!(lost, expected);
                assert!(reason.contains(why), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}

fn request(id: u64, connection: u64, batches: &[(i32, usize)]) -> ProduceRequest {
    let topic = Arc::new(TargetTopic { index: 0, name: Arc::from("t"), topic_id: uuid::Uuid::from_u128(5) });
    let batches: BTreeMap<_, _> = batches
        .iter()
        .map(|&(partition, body_bytes)| {
            let body = Bytes::from(vec![id as u8; body_bytes]);
            let (key, topic) = (TargetKey(partition as u32), topic.clone());
            ((0, partition), ProduceBatch { key, topic, header: [1; HEADER_BYTES], body })
        })
        .collect();
    ProduceRequest { id, connection, batches }
}

fn response(header: &RequestHeader, answers: &[(i32, i16, i64)], throttle_ms: i32) -> Bytes {
    let partitions = answers.iter().map(|&(partition, code, base_offset)| {
        PartitionProduceResponse::default()
            .with_index(partition)
            .with_error_code(code)
            .with_base_offset(base_offset)
    });
    let topic = TopicProduceResponse::default().with_partition_responses(partitions.collect());
    let topic = match header.request_api_version {
        13.. => topic.with_topic_id(uuid::Uuid::from_u128(5)),
        _ => topic.with_name(kafka_protocol::messages::TopicName("t".into())),
    };
    let response = ProduceResponse::default().with_responses(vec![topic]).with_throttle_time_ms(throttle_ms);
    encode_reply::<ProduceApi>(header, &response)
}

/// The next request's header, and its batches as (partition, bytes).
async fn next(accepted: &mut Accepted) -> (RequestHeader, Vec<(i32, Bytes)>) {
    let (header, request) = accepted.request::<ProduceApi>().await;
    let data = request.topic_data.into_iter().flat_map(|topic| topic.partition_data);
    (header, data.map(|data| (data.index, data.records.unwrap())).collect())
}

#[tokio::test(start_paused = true)]
async fn requests_are_pipelined_in_order_and_each_is_answered() {
    for version in [3, 8, 9, 12, 13, 99] {
        let mut rig = Rig::start(version, ProduceSettings::default()).await;
        let mut broker = rig.connected(1).await;
        rig.send(10, 1, &[(0, 100), (1, 600_000)]);
        rig.send(11, 1, &[(0, 5_000)]);
        let (first, batches) = next(&mut broker).await;
        assert_eq!(first.request_api_version, version.min(13));
        let sizes: Vec<_> = batches.iter().map(|(partition, records)| (*partition, records.len())).collect();
        assert_eq!(sizes, [(0, 161), (1, 600_061)]);
        assert!(batches[1].1[HEADER_BYTES..].iter().all(|&byte| byte == 10));
        let (second, _) = next(&mut broker).await;
        assert_eq!(second.correlation_id, first.correlation_id + 1);
        broker.write(&response(&first, &[(1, 0, 77), (0, 10, -1)], 0)).await;
        broker.write(&response(&second, &[(0, 45, -1)], 0)).await;
        assert_eq!(rig.answered(10).await.0, [(0, 10, -1), (1, 0, 77)]);
        assert_eq!(rig.answered(11).await.0, [(0, 45, -1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_than_allowed_are_in_flight() {
    let settings = ProduceSettings { max_in_flight_requests: 2, ..ProduceSettings::default() };
    let mut rig = Rig::start(13, settings).await;
    let mut broker = rig.connected(1).await;
    (1..=3).for_each(|id| rig.send(id, 1, &[(0, 10)]));
    let (first, _) = next(&mut broker).await;
    next(&mut broker).await;
    let third = tokio::time::timeout(Duration::from_secs(5), next(&mut broker)).await;
    assert!(third.is_err(), "a third request before the first answer");
    broker.write(&response(&first, &[(0, 0, 1)], 0)).await;
    rig.answered(1).await;
    let (_, batches) = next(&mut broker).await;
    assert!(batches[0].1[HEADER_BYTES..].iter().all(|&byte| byte == 3));
}

/// Case 53: a broker that dies with requests on it.
#[tokio::test(start_paused = true)]
async fn what_is_in_flight_when_the_connection_ends_is_lost_in_order_and_the_lane_dials_again() {
    let settings = ProduceSettings { max_in_flight_requests: 2, ..ProduceSettings::default() };
    let mut rig = Rig::start(13, settings).await;
    let mut broker = rig.connected(1).await;
    (1..=4).for_each(|id| rig.send(id, 1, &[(0, 10)]));
    let (first, _) = next(&mut broker).await;
    next(&mut broker).await;
    // The answer is cut in the middle of its frame.
    let answer = response(&first, &[(0, 0, 1)], 0);
    broker.write(&answer[..answer.len() - 3]).await;
    drop(broker);
    rig.lost(&[1, 2, 3, 4], "Produce v13").await;
    // A request that crossed the news is dropped, and the new connection begins with what is sent for it.
    rig.send(5, 1, &[(0, 10)]);
    let mut broker = rig.broker.accept().await;
    let (mut dropped, mut connected) = (false, false);
    while !(dropped && connected) {
        match rig.event().await {
            ProduceEvent::Dropped { id: 5 } => dropped = true,
            ProduceEvent::Connected { connection: 2 } => connected = true,
            other => panic!("{other:?}"),
        }
    }
    rig.send(1, 2, &[(0, 10)]);
    let (header, batches) = next(&mut broker).await;
    assert!(batches[0].1[HEADER_BYTES..].iter().all(|&byte| byte == 1));
    broker.write(&response(&header, &[(0, 0, 9)], 0)).await;
    assert_eq!(rig.answered(1).await.0, [(0, 0, 9)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_for_an_earlier_connection_is_dropped_also_when_the_lane_is_connected() {
    let mut rig = Rig::start(13, ProduceSettings::default()).await;
    drop(rig.connected(1).await);
    rig.lost(&[], "no request").await;
    let mut broker = rig.connected(2).await;
    rig.send(1, 1, &[(0, 10)]);
    rig.send(2, 2, &[(0, 10)]);
    assert!(matches!(rig.event().await, ProduceEvent::Dropped { id: 1 }));
    let (_, batches) = next(&mut broker).await;
    assert!(batches[0].1[HEADER_BYTES..].iter().all(|&byte| byte == 2));
}

/// Case 54: a connection that only seems to be open.
#[tokio::test(start_paused = true)]
async fn a_broker_that_does_not_answer_in_time_is_left() {
    let mut rig = Rig::start(13, ProduceSettings::default()).await;
    let mut broker = rig.connected(1).await;
    let start = Instant::now();
    rig.send(1, 1, &[(0, 10)]);
    rig.send(2, 1, &[(0, 10)]);
    let (first, _) = next(&mut broker).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    broker.write(&response(&first, &[(0, 0, 1)], 0)).await;
    rig.answered(1).await;
    // The second has its own minute, from when it became the oldest.
    rig.lost(&[2], "no reply to Produce v13 within 60000 ms").await;
    assert_eq!(start.elapsed().as_secs(), 110);
    // Every three seconds.
    assert!((33..=36).contains(&rig.silences), "{}", rig.silences);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_lane_holds_its_requests_back() {
    let mut rig = Rig::start(13, ProduceSettings::default()).await;
    let mut broker = rig.connected(1).await;
    rig.send(1, 1, &[(0, 10)]);
    let (first, _) = next(&mut broker).await;
    broker.write(&response(&first, &[(0, 0, 1)], 3_000)).await;
    assert_eq!(rig.answered(1).await.1, Duration::from_millis(3_000));
    let start = Instant::now();
    rig.send(2, 1, &[(0, 10)]);
    next(&mut broker).await;
    assert_eq!(start.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_in_after_the_permit_has_run_out_waits_for_the_next() {
    let grantor = Grantor::new();
    let until = |seconds| Some(Instant::now() + Duration::from_secs(seconds));
    grantor.grant(until(10));
    let mut rig = Rig::start_with(13, ProduceSettings::default(), grantor.permit()).await;
    let mut broker = rig.connected(1).await;
    rig.send(1, 1, &[(0, 10)]);
    let (first, _) = next(&mut broker).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    rig.send(2, 1, &[(0, 10)]);
    // An answer to what was written in time is heard all the same.
    broker.write(&response(&first, &[(0, 0, 1)], 0)).await;
    assert_eq!(rig.answered(1).await.0, [(0, 0, 1)]);
    let second = tokio::time::timeout(Duration::from_secs(5), next(&mut broker)).await;
    assert!(second.is_err(), "written without a permit");
    grantor.grant(until(10));
    let (_, batches) = next(&mut broker).await;
    assert!(batches[0].1[HEADER_BYTES..].iter().all(|&byte| byte == 2));
}

/// A process that stands still in the middle of a request, and goes on when another one has taken over.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_half_written_when_the_permit_runs_out_is_never_ended() {
    let grantor = Grantor::new();
    grantor.grant(Some(Instant::now() + Duration::from_secs(10)));
    let mut rig = Rig::start_with(13, ProduceSettings::default(), grantor.permit()).await;
    let mut broker = rig.connected(1).await;
    // More than the network takes before the broker reads.
    rig.send(1, 1, &[(0, 64 << 20)]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(broker.frame().await.is_none(), "the whole request was written");
    rig.lost(&[1], "the right to write has run out").await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_byte_by_byte_is_understood() {
    let mut rig = Rig::start(13, ProduceSettings::default()).await;
    let mut broker = rig.connected(1).await;
    rig.send(1, 1, &[(0, 10)]);
    let (first, _) = next(&mut broker).await;
    for byte in response(&first, &[(0, 0, 1)], 0) {
        broker.write(&[byte]).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(rig.answered(1).await.0, [(0, 0, 1)]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_right_ends_the_connection() {
    for broken in ["correlation", "size", "unasked", "cut"] {
        let mut rig = Rig::start(13, ProduceSettings::default()).await;
        let mut broker = rig.connected(1).await;
        let mut header = RequestHeader::default().with_request_api_version(13).with_correlation_id(1);
        if broken != "unasked" {
            rig.send(1, 1, &[(0, 10)]);
            header = next(&mut broker).await.0;
        }
        if broken == "correlation" {
            header.correlation_id += 1;
        }
        let mut bytes = response(&header, &[(0, 0, 1)], 0).to_vec();
        if broken == "size" {
            bytes[..4].copy_from_slice(&i32::MAX.to_be_bytes());
        }
        if broken == "cut" {
            bytes.truncate(30);
            bytes[..4].copy_from_slice(&26_i32.to_be_bytes());
        }
        broker.socket.write_all(&bytes).await.unwrap();
        let lost: &[u64] = if broken == "unasked" { &[] } else { &[1] };
        rig.lost(lost, "10.0.0.1").await;
        rig.connected(2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_without_a_common_version_is_named_and_tried_again() {
    let mut rig = Rig::start(2, ProduceSettings::default()).await;
    for _ in 0..2 {
        rig.broker.accept().await;
        rig.lost(&[], "Produce is needed in a version from 3 to 13, the broker speaks 0 to 2").await;
    }
}

#[tokio::test(start_paused = true)]
async fn reconnect_gives_everything_up_and_the_lane_ends_with_its_flow() {
    let mut rig = Rig::start(13, ProduceSettings::default()).await;
    let mut broker = rig.connected(1).await;
    rig.send(1, 1, &[(0, 10)]);
    next(&mut broker).await;
    rig.lane.commands.send(ProduceCommand::Reconnect).unwrap();
    rig.send(2, 1, &[(0, 10)]);
    rig.lost(&[1, 2], "asked to").await;
    let mut broker = rig.connected(2).await;
    drop(rig.lane.commands);
    rig.lane.task.await.unwrap();
    assert!(broker.frame().await.is_none(), "the connection is closed");
}

//! The server around the state: real sockets and the simulated network.

use std::net::SocketAddr;
use std::time::Duration;

use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::broker::log::Isolation;
use crate::broker::{Effect, EmbeddedCluster, FaultRule, When};
use crate::seam::{Seam, Simulation, Socket, SocketOptions};

struct Client {
    socket: Socket,
}

impl Client {
    async fn dial(seam: &Seam, address: SocketAddr) -> std::io::Result<Client> {
        Ok(Client { socket: seam.dial(address, SocketOptions::default()).await? })
    }

    async fn ask<R: Api>(&mut self, version: i16, body: &R) -> std::io::Result<R::Response> {
        self.send(version, body).await?;
        let length = self.socket.read_i32().await?;
        let mut bytes = vec![0; length as usize];
        self.socket.read_exact(&mut bytes).await?;
        let reply = crate::broker::wire::Reply { pieces: vec![Bytes::from(bytes)] };
        Ok(read::<R>(version, Outcome::Reply(reply)))
    }

    async fn send<R: Api>(&mut self, version: i16, body: &R) -> std::io::Result<()> {
        let frame = frame(version, body);
        self.socket.write_i32(frame.len() as i32).await?;
        self.socket.write_all(&frame).await
    }
}

fn values(cluster: &EmbeddedCluster, topic: &str) -> Vec<String> {
    let records = cluster.read_all(topic, 0, Isolation::ReadUncommitted).unwrap();
    records.iter().map(|one| String::from_utf8(one.record.value.clone().unwrap().to_vec()).unwrap()).collect()
}

async fn start(seam: &Seam, brokers: u32) -> EmbeddedCluster {
    let cluster =
        EmbeddedCluster::start(seam.clone(), Settings { brokers, ..Settings::default() }).await.unwrap();
    cluster.create_topic("t", 1, brokers as u16, &[]).unwrap();
    cluster
}

#[tokio::test]
async fn a_cluster_over_tcp_produces_waits_and_fetches() {
    let seam = Seam::real();
    let cluster = start(&seam, 1).await;
    assert_eq!(cluster.bootstrap(), cluster.address(1).unwrap().to_string());
    let address = cluster.address(1).unwrap();
    let mut reader = Client::dial(&seam, address).await.unwrap();
    let mut writer = Client::dial(&seam, address).await.unwrap();
    writer.ask(3, &ApiVersionsRequest::default().with_client_software_name(text("test"))).await.unwrap();
    reader.send(11, &fetch("t", &[(0, 0)]).with_min_bytes(1).with_max_wait_ms(60_000)).await.unwrap();
    let large = Bytes::from(vec![b'x'; 900_000]);
    let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
    let record = RecordData { timestamp: seam.now_ms(), value: Some(large.clone()), ..RecordData::default() };
    builder.push(&record).unwrap();
    let batch = builder.build().unwrap();
    let produced: ProduceResponse = writer.ask(9, &produce("t", &[(0, &batch)])).await.unwrap();
    assert_eq!(produced.responses[0].partition_responses[0].error_code, 0);
    // The fetch was sent before there was anything: it comes back with what was produced since.
    let length = reader.socket.read_i32().await.unwrap();
    assert!(length as usize > batch.len());
    assert_eq!(cluster.read_all("t", 0, Isolation::ReadUncommitted).unwrap()[0].record.value, Some(large));
    cluster.shutdown().await;
    assert!(Client::dial(&seam, address).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_crash_resets_connections_and_a_restart_serves_again() {
    let seam = Seam::Simulated(Simulation::new(1));
    let cluster = start(&seam, 2).await;
    let (first, second) = (cluster.address(1).unwrap(), cluster.address(2).unwrap());
    let mut client = Client::dial(&seam, first).await.unwrap();
    client.ask(9, &produce("t", &[(0, &batch(1, "a"))])).await.unwrap();
    cluster.stop_broker(1).await.unwrap();
    assert!(client.ask(9, &produce("t", &[(0, &batch(1, "b"))])).await.is_err());
    assert!(Client::dial(&seam, first).await.is_err());
    assert_eq!(cluster.leader("t", 0), Some((Some(2), 1)));
    let mut client = Client::dial(&seam, second).await.unwrap();
    client.ask(9, &produce("t", &[(0, &batch(1, "c"))])).await.unwrap();
    cluster.start_broker(1).await.unwrap();
    let mut client = Client::dial(&seam, first).await.unwrap();
    let metadata = client.ask(12, &MetadataRequest::default().with_topics(None)).await.unwrap();
    assert_eq!((metadata.brokers.len(), metadata.topics[0].partitions[0].leader_id.0), (2, 2));
    assert_eq!(values(&cluster, "t"), ["a0", "c0"]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed() {
    let seam = Seam::Simulated(Simulation::new(1));
    let cluster = start(&seam, 1).await;
    let mut client = Client::dial(&seam, cluster.address(1).unwrap()).await.unwrap();
    client.ask(12, &MetadataRequest::default().with_topics(None)).await.unwrap();
    let began = tokio::time::Instant::now();
    assert_eq!(client.socket.read(&mut [0; 1]).await.unwrap(), 0);
    assert_eq!(began.elapsed().as_secs_f64().round(), 600.0);
}

#[tokio::test(start_paused = true)]
async fn faults_hit_as_they_are_told_to() {
    let seam = Seam::Simulated(Simulation::new(1));
    let cluster = start(&seam, 1).await;
    let address = cluster.address(1).unwrap();
    let arm = |effect| {
        let key = Some(ApiKey::Produce);
        cluster.fault(FaultRule { key, broker: None, when: When::After(0), times: 1, effect });
    };
    let mut client = Client::dial(&seam, address).await.unwrap();
    let request = |what: &str| produce("t", &[(0, &batch(1, what))]);

    arm(Effect::Error(7));
    let reply = client.ask(9, &request("error")).await.unwrap();
    assert_eq!(reply.responses[0].partition_responses[0].error_code, 7);

    arm(Effect::Delay(Duration::from_secs(5)));
    let began = tokio::time::Instant::now();
    client.ask(9, &request("late")).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(5));

    arm(Effect::ReplyLostAfterEffect);
    assert!(client.ask(9, &request("unheard")).await.is_err());

    let mut client = Client::dial(&seam, address).await.unwrap();
    arm(Effect::Close);
    assert!(client.ask(9, &request("closed")).await.is_err());

    let mut client = Client::dial(&seam, address).await.unwrap();
    arm(Effect::Drop);
    let dropped = request("dropped");
    let never = tokio::time::timeout(Duration::from_secs(60), client.ask(9, &dropped)).await;
    assert!(never.is_err());
    assert_eq!(values(&cluster, "t"), ["late0", "unheard0"]);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_falls_silent_is_noticed_by_the_timers() {
    use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
    use kafka_protocol::messages::{DescribeGroupsRequest, GroupId, JoinGroupRequest};
    let seam = Seam::Simulated(Simulation::new(1));
    let cluster = start(&seam, 1).await;
    let mut client = Client::dial(&seam, cluster.address(1).unwrap()).await.unwrap();
    let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
    let join = JoinGroupRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_session_timeout_ms(6_000)
        .with_rebalance_timeout_ms(6_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol]);
    assert_eq!(client.ask(3, &join).await.unwrap().error_code, 0);
    let describe = DescribeGroupsRequest::default().with_groups(vec![GroupId(text("g"))]);
    let began = tokio::time::Instant::now();
    let mut states = Vec::new();
    // Time is simulated, so this looks at each step of it and does not wait.
    while states.last().is_none_or(|state| state != "Empty") && began.elapsed() < Duration::from_secs(60) {
        let state = client.ask(5, &describe).await.unwrap().groups[0].group_state.to_string();
        if states.last() != Some(&state) {
            states.push(state);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(states, ["CompletingRebalance", "Empty"]);
    assert!((6_000..6_500).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
}

/// The order of everything that is sent, under a seed.
async fn trace(seed: u64) -> Vec<String> {
    let seam = Seam::Simulated(Simulation::new(seed));
    let settings = Settings { brokers: 2, seed, ..Settings::default() };
    let cluster = EmbeddedCluster::start(seam.clone(), settings).await.unwrap();
    cluster.create_topic("t", 1, 2, &[]).unwrap();
    cluster.fault(FaultRule {
        key: Some(ApiKey::Produce),
        broker: None,
        when: When::Probability(0.3),
        times: u64::MAX,
        effect: Effect::ReplyLostAfterEffect,
    });
    let mut trace = vec![cluster.bootstrap()];
    let mut client = Client::dial(&seam, cluster.address(1).unwrap()).await.unwrap();
    for n in 0..20 {
        match client.ask(9, &produce("t", &[(0, &batch(1, &format!("{n}-")))])).await {
            Ok(reply) => trace.push(format!("{reply:?}")),
            Err(error) => {
                trace.push(error.to_string());
                client = Client::dial(&seam, cluster.address(1).unwrap()).await.unwrap();
            }
        }
    }
    let metadata = client.ask(12, &MetadataRequest::default().with_topics(None)).await.unwrap();
    trace.push(format!("{metadata:?}"));
    trace
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_trace() {
    let first = trace(5).await;
    assert_eq!(first, trace(5).await);
    assert_ne!(first, trace(6).await);
}

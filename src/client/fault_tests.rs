//! The control plane under faults drawn by a seed: whatever the network and the brokers do, each call ends with the
//! right answer, because it was repeated until then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{sleep, timeout};

use super::*;
use crate::broker::{self, Effect, EmbeddedCluster, FaultRule, When};
use crate::record::{BatchBuilder, BatchOptions, Codec, OpenBatch, RecordData};
use crate::seam::{Seam, Simulation};

const SEEDS: u64 = 30;

async fn start(seed: u64) -> (Seam, EmbeddedCluster, Cluster) {
    let seam = Seam::Simulated(Simulation::new(seed));
    let settings = broker::Settings {
        brokers: 3,
        seed,
        group_initial_rebalance_delay_ms: 0,
        ..broker::Settings::default()
    };
    let embedded = EmbeddedCluster::start(seam.clone(), settings).await.unwrap();
    let servers = embedded.bootstrap().split(',').map(|server| server.parse().unwrap()).collect();
    let settings =
        Settings { default_api_timeout: Duration::from_secs(3_600), ..Settings::new("A", servers) };
    let cluster = Cluster::new(seam.clone(), settings);
    (seam, embedded, cluster)
}

fn trouble(embedded: &EmbeddedCluster) {
    for effect in [
        Effect::Close,
        Effect::Drop,
        Effect::ReplyLostAfterEffect,
        Effect::Delay(Duration::from_millis(700)),
        Effect::Error(ErrorCode::NOT_LEADER_OR_FOLLOWER.0),
        Effect::Error(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS.0),
        Effect::Error(ErrorCode::NOT_CONTROLLER.0),
    ] {
        let when = When::Probability(0.03);
        embedded.fault(FaultRule { key: None, broker: None, when, times: u64::MAX, effect });
    }
}

fn batch(value: String) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
    let record = RecordData { timestamp: 1, value: Some(value.into()), ..RecordData::default() };
    builder.push(&record).unwrap();
    builder.build().unwrap()
}

fn values(log: &PartitionLog) -> Vec<String> {
    let opened = log.batches.iter().map(|batch| OpenBatch::open(batch, 1 << 20).unwrap());
    let value = |batch: OpenBatch| {
        String::from_utf8(batch.records().next().unwrap().unwrap().value.unwrap().to_vec()).unwrap()
    };
    opened.map(value).collect()
}

/// Brokers stop and come back, leaders move, while calls are made.
async fn unrest(seam: &Seam, embedded: &EmbeddedCluster) {
    loop {
        sleep(Duration::from_millis(seam.random() % 20_000)).await;
        let broker = (seam.random() % 3) as i32 + 1;
        if seam.random().is_multiple_of(2) {
            embedded.stop_broker(broker).await.unwrap();
            sleep(Duration::from_millis(seam.random() % 10_000)).await;
            embedded.start_broker(broker).await.unwrap();
        } else {
            // A broker that is down cannot lead.
            let _ = embedded.move_leader("t", (seam.random() % 3) as i32, broker);
        }
    }
}

/// A code of one topic is the caller's to judge, who looks again in its next round.
async fn create(cluster: &Cluster, name: &Arc<str>) {
    let configs = BTreeMap::new();
    let topic = NewTopic { name: name.clone(), partitions: 1, replication_factor: 1, configs };
    loop {
        match &cluster.create_topics(std::slice::from_ref(&topic)).await.unwrap()[name] {
            Ok(_) => return,
            Err(error) if error.code() == Some(ErrorCode::TOPIC_ALREADY_EXISTS) => return,
            Err(error) => assert!(error.is_retriable(), "{error}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn work(cluster: &Cluster) {
    let name: Arc<str> = "t".into();
    for round in 0..5 {
        for partition in 0..3 {
            let value = format!("{round}");
            cluster.produce(&name, partition, batch(value)).await.unwrap();
        }
        let keys: Vec<TopicPartition> = (0..3).map(|partition| (name.clone(), partition)).collect();
        let latest = keys.into_iter().map(|key| (key, OffsetSpec::Latest));
        for (key, listed) in cluster.list_offsets(latest, IsolationLevel::ReadUncommitted).await {
            let offset = listed.unwrap_or_else(|error| panic!("{key:?}: {}", error.chain())).offset;
            assert!(offset > round, "{key:?} ends at {offset} after round {round}");
        }
        let other: Arc<str> = format!("created-{round}").into();
        create(cluster, &other).await;
        cluster.wait_for_leaders(&BTreeMap::from([(other, 1)])).await.unwrap();
    }
    let logs = cluster.read_to_end(&name, IsolationLevel::ReadUncommitted, 1 << 20).await.unwrap();
    for (partition, log) in logs {
        let mut read = values(&log);
        assert!(read.is_sorted(), "{partition}: {read:?}");
        read.dedup();
        assert_eq!(read, ["0", "1", "2", "3", "4"], "{partition}");
    }
}

#[test]
fn every_call_ends_rightly_under_faults() {
    for seed in 0..SEEDS {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (seam, embedded, cluster) = start(seed).await;
            embedded.create_topic("t", 3, 3, &[]).unwrap();
            trouble(&embedded);
            let done = tokio::select! {
                biased;
                done = timeout(Duration::from_secs(7_200), work(&cluster)) => done,
                () = unrest(&seam, &embedded) => Ok(()),
            };
            assert!(done.is_ok(), "seed {seed} hangs");
        });
    }
}

/// What a member believes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Belief {
    generation: Option<i32>,
    assignment: Bytes,
}

async fn member(
    cluster: &Cluster,
    belief: &std::cell::RefCell<Belief>,
    leads: &std::cell::RefCell<Vec<i32>>,
) {
    let settings = GroupSettings {
        group_id: "g".into(),
        protocol_type: "kmirror".into(),
        group_instance_id: None,
        protocols: vec!["lease".into()],
        session_timeout: Duration::from_secs(10),
        rebalance_timeout: Duration::from_secs(10),
        heartbeat_interval: Duration::from_secs(3),
        rejoin: Rejoin::AtOnce,
    };
    let assign = |election: &Election<'_>| {
        let text = Bytes::from(format!("{}:{}", election.generation, election.members.len()));
        election.members.iter().map(|(id, _)| (id.clone(), text.clone())).collect()
    };
    let mut member = Membership::join(cluster, settings, vec![Bytes::new()], Box::new(assign));
    while let Some(event) = member.next().await {
        match event {
            GroupEvent::Joined { generation, role, assignment, .. } => {
                if role == Role::Leader {
                    assert!(!leads.borrow().contains(&generation), "two leaders of generation {generation}");
                    leads.borrow_mut().push(generation);
                }
                *belief.borrow_mut() = Belief { generation: Some(generation), assignment };
            }
            GroupEvent::Lost { .. } => *belief.borrow_mut() = Belief::default(),
            GroupEvent::Heard { .. } | GroupEvent::Rebalancing | GroupEvent::Trouble(_) => {}
        }
    }
}

/// Two members under faults: a generation has one leader, and once it is quiet both are in the same one.
#[test]
fn members_find_each_other_under_faults() {
    for seed in 0..SEEDS {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (seam, embedded, cluster) = start(seed).await;
            trouble(&embedded);
            let (one, other, leads) = Default::default();
            let unrest = async {
                let _ = timeout(Duration::from_secs(300), unrest(&seam, &embedded)).await;
                embedded.clear_faults();
                for broker in 1..=3 {
                    let _ = embedded.start_broker(broker).await;
                }
                sleep(Duration::from_secs(120)).await;
            };
            tokio::select! {
                biased;
                () = unrest => {}
                () = member(&cluster, &one, &leads) => panic!("a member ended"),
                () = member(&cluster, &other, &leads) => panic!("a member ended"),
            }
            let (one, other) = (one.into_inner(), other.into_inner());
            assert_eq!(one, other, "seed {seed}");
            let generation = one.generation.unwrap_or_else(|| panic!("seed {seed}: no member"));
            assert_eq!(one.assignment, format!("{generation}:2"), "seed {seed}");
        });
    }
}

/// What the known brokers of a cluster that has moved away still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// They say so.
    TellsSo,
    /// They are gone.
    Gone,
    /// They were never to be reached at the addresses in the metadata.
    Unreachable,
}

/// `metadata.recovery.strategy=rebootstrap`, Kafka's default since 4.0 (KIP-899, KIP-1102).
#[tokio::test(start_paused = true)]
async fn a_cluster_that_has_moved_is_found_by_its_bootstrap_servers() {
    for left in [Left::TellsSo, Left::Gone, Left::Unreachable] {
        let simulation = Simulation::new(1);
        let seam = Seam::Simulated(simulation.clone());
        let begin = async |host: &str, seed: u64, advertised_host: &str| {
            let settings = broker::Settings {
                brokers: 3,
                seed,
                address: host.parse().unwrap(),
                advertised_host: advertised_host.to_owned(),
                port: 9_092,
                ..broker::Settings::default()
            };
            EmbeddedCluster::start(seam.clone(), settings).await.unwrap()
        };
        let old = begin("10.0.0.1", 1, if left == Left::Unreachable { "10.9.9.9" } else { "" }).await;
        let new = begin("10.0.0.2", 2, "").await;
        new.create_topic("here", 1, 1, &[]).unwrap();
        simulation.host("kafka", "10.0.0.1".parse().unwrap());
        let cluster = Cluster::new(seam.clone(), Settings::new("A", vec!["kafka:9092".parse().unwrap()]));
        let before = cluster.refresh(Topics::All).await.unwrap();
        assert_eq!(before.topics().count(), 0, "{left:?}");
        simulation.host("kafka", "10.0.0.2".parse().unwrap());
        let effect = Effect::Error(ErrorCode::REBOOTSTRAP_REQUIRED.0);
        if left == Left::TellsSo {
            old.fault(FaultRule { key: None, broker: None, when: When::After(0), times: u64::MAX, effect });
        } else {
            old.shutdown().await;
        }
        let after = timeout(Duration::from_secs(30), cluster.refresh(Topics::All)).await.unwrap().unwrap();
        assert!(after.topic("here").is_some(), "{left:?}: {after:?}");
        assert_ne!(before.cluster_id, after.cluster_id, "{left:?}");
    }
}

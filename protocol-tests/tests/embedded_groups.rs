//! Offset syncs, checkpoints, group offsets and heartbeats between two embedded clusters.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use kmirror::broker::{self, Effect, EmbeddedCluster, FaultRule, When, log};
use kmirror::client::{Cluster, CommittedOffset, GroupOffsets, Settings};
use kmirror::config;
use kmirror::mirror::Replicator;
use kmirror::mirror::mm2::formats::{Checkpoint, Heartbeat, OffsetSync};
use kmirror::mirror::status::{GroupStatus, GroupSync, ReplicatorStatus};
use kmirror::record::{BatchBuilder, BatchOptions, Codec, OpenBatch, RecordData};
use kmirror::seam::{Seam, Simulation};
use protocol_tests::inside;
use tokio::time::sleep;

struct Stage {
    seam: Seam,
    a: EmbeddedCluster,
    b: EmbeddedCluster,
    source: Cluster,
    target: Cluster,
}

impl Stage {
    async fn new(seam: Seam, hosts: [&str; 2]) -> Stage {
        let (a, b) = (cluster(&seam, 1, hosts[0]).await, cluster(&seam, 2, hosts[1]).await);
        let client = |alias: &str, cluster: &EmbeddedCluster| {
            let servers = cluster.bootstrap().split(',').map(|server| server.parse().unwrap()).collect();
            Cluster::new(seam.clone(), Settings::new(alias, servers))
        };
        Stage { source: client("A", &a), target: client("B", &b), seam, a, b }
    }

    fn start(&self, more: &str) -> Replicator {
        let file = format!(
            "clusters = A, B\nA.bootstrap.servers = {}\nB.bootstrap.servers = {}\nA->B.enabled = true\n\
             refresh.topics.interval.seconds = 1\nrefresh.groups.interval.seconds = 1\n\
             emit.checkpoints.interval.seconds = 1\nsync.group.offsets.enabled = true\n\
             sync.group.offsets.interval.seconds = 1\nB.offset.flush.interval.ms = 500\n{more}\n",
            self.a.bootstrap(),
            self.b.bootstrap()
        );
        let report = config::load("test.properties", file.as_bytes(), &config::Options::default());
        let settings = report.settings.unwrap_or_else(|| panic!("{:?}", report.problems));
        Replicator::start(self.seam.clone(), settings.process)
    }

    async fn commit(&self, cluster: &Cluster, group: &str, topic: &str, offset: i64) {
        let committed = CommittedOffset { offset, metadata: Arc::from("m") };
        let offsets = GroupOffsets::from([((Arc::from(topic), 0), committed)]);
        for result in cluster.commit_group_offsets(&Arc::from(group), &offsets).await.unwrap().into_values() {
            result.unwrap();
        }
    }
}

async fn cluster(seam: &Seam, seed: u64, host: &str) -> EmbeddedCluster {
    let settings =
        broker::Settings { brokers: 3, seed, address: host.parse().unwrap(), ..broker::Settings::default() };
    EmbeddedCluster::start(seam.clone(), settings).await.unwrap()
}

/// Appends one batch of records.
fn append(cluster: &EmbeddedCluster, topic: &str, first: u32, count: u32) {
    let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
    for number in first..first + count {
        let record = RecordData {
            timestamp: i64::from(number),
            key: Some(Bytes::from(format!("{number}"))),
            value: Some(Bytes::from(format!("value {number}"))),
            headers: Vec::new(),
        };
        builder.push(&record).unwrap();
    }
    let origin = log::Origin::Client(log::Verification::Missing);
    let batch = builder.build().unwrap();
    cluster.log(topic, 0, |log| log.append(0, 0, &batch, origin).unwrap()).unwrap();
}

/// Keys and values of an internal topic.
fn records(cluster: &EmbeddedCluster, topic: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records = Vec::new();
    for batch in cluster.batches(topic, 0).unwrap_or_default() {
        for record in OpenBatch::open(&batch, 1 << 20).unwrap().records() {
            let record = record.unwrap();
            records.push((record.key.unwrap().to_vec(), record.value.unwrap().to_vec()));
        }
    }
    records
}

/// The checkpoints that stand: (group, topic) to (upstream, downstream, metadata).
fn checkpoints(cluster: &EmbeddedCluster) -> BTreeMap<(String, String), (i64, i64, String)> {
    let decoded = records(cluster, "A.checkpoints.internal").into_iter().map(|(key, value)| {
        let one = Checkpoint::decode(&key, &value).unwrap();
        let place = (one.group.to_string(), one.target.topic.to_string());
        (place, (one.upstream, one.downstream, one.metadata.to_string()))
    });
    decoded.collect()
}

async fn until(replicator: &Replicator, what: &str, condition: impl Fn(&ReplicatorStatus) -> bool) {
    inside::until(replicator, what, condition, |status| status.flows[0].translation.clone()).await;
}

fn group(status: &ReplicatorStatus, name: &str) -> GroupStatus {
    let groups = status.flows[0].translation.groups.clone().unwrap_or_default();
    groups.groups.get(name).cloned().unwrap_or_default()
}

fn sync(status: &ReplicatorStatus, name: &str) -> Option<GroupSync> {
    group(status, name).sync.map(|sync| sync.result)
}

fn committed(cluster: &EmbeddedCluster, group: &str) -> Vec<(String, i64, String)> {
    cluster
        .committed(group)
        .into_iter()
        .map(|(topic, _, offset, metadata)| (topic, offset, metadata))
        .collect()
}

/// Cases 35 (what was known before a restart is known after it) and 45 (the result is told for each group).
async fn moves_groups(seam: Seam, hosts: [&str; 2]) {
    let stage = Stage::new(seam, hosts).await;
    let (a, b) = (&stage.a, &stage.b);
    a.create_topic("t", 1, 1, &[]).unwrap();
    // Records before the copy, so that offsets differ on both sides.
    b.create_topic("A.t", 1, 1, &[]).unwrap();
    append(b, "A.t", 900, 7);
    (0..30).for_each(|batch| append(a, "t", batch * 10, 10));
    for (name, offset) in [("end", 300), ("middle", 123), ("start", 0), ("console-consumer-1", 5)] {
        stage.commit(&stage.source, name, "t", offset).await;
    }
    let replicator = stage.start("A->B.topics = t.*");
    until(&replicator, "all groups", |status| {
        ["end", "middle", "start"].iter().all(|name| sync(status, name) == Some(GroupSync::InSync))
    })
    .await;
    let at = |offset: i64| vec![("A.t".to_owned(), offset, "m".to_owned())];
    assert_eq!(committed(b, "end"), at(307));
    assert_eq!(committed(b, "middle"), at(130));
    assert_eq!(committed(b, "start"), at(7));
    assert!(committed(b, "console-consumer-1").is_empty());
    let place = |group: &str| (group.to_owned(), "A.t".to_owned());
    assert_eq!(checkpoints(b)[&place("middle")], (123, 130, "m".to_owned()));
    assert!(!checkpoints(b).contains_key(&place("console-consumer-1")));

    // Forward at the source: forward on the target. Set back at the source: back, because the offset there is ours.
    stage.commit(&stage.source, "middle", "t", 200).await;
    stage.commit(&stage.source, "end", "t", 20).await;
    until(&replicator, "both moves", |_| committed(b, "middle") == at(207) && committed(b, "end") == at(27))
        .await;

    // Further on the target by itself: left alone, and said so.
    stage.commit(&stage.target, "start", "A.t", 55).await;
    stage.commit(&stage.source, "start", "t", 1).await;
    until(&replicator, "ahead", |status| sync(status, "start") == Some(GroupSync::Ahead)).await;
    assert_eq!(committed(b, "start"), at(55));
    replicator.stop().await;

    // What this process knew is known to the next one, exactly.
    stage.commit(&stage.source, "late", "t", 77).await;
    append(a, "t", 300, 10);
    let replicator = stage.start("A->B.topics = t.*");
    until(&replicator, "late", |status| sync(status, "late") == Some(GroupSync::InSync)).await;
    assert_eq!(committed(b, "late"), at(84));
    assert_eq!(checkpoints(b)[&place("late")], (77, 84, "m".to_owned()));
    until(&replicator, "syncs", |status| status.flows[0].translation.offset_syncs.emitted > 0).await;
    replicator.stop().await;

    // Offset syncs are pairs of one record, and the newest stands last.
    let syncs: Vec<OffsetSync> = records(a, "mm2-offset-syncs.B.internal")
        .iter()
        .map(|(key, value)| OffsetSync::decode(key, value).unwrap())
        .filter(|sync| &*sync.source.topic == "t")
        .collect();
    assert!(syncs.iter().all(|sync| sync.downstream == sync.upstream + 7), "{syncs:?}");
    assert_eq!(syncs.last().map(|sync| sync.upstream), Some(309));
    assert!(a.violations().is_empty() && b.violations().is_empty());
}

#[tokio::test]
async fn groups_move_over_tcp() {
    moves_groups(Seam::real(), ["127.0.0.1", "127.0.0.1"]).await;
}

#[tokio::test(start_paused = true)]
async fn groups_move_in_the_simulated_network() {
    moves_groups(Seam::Simulated(Simulation::new(7)), ["10.0.0.1", "10.0.0.2"]).await;
}

#[tokio::test(start_paused = true)]
async fn groups_are_named_by_their_format() {
    let stage = Stage::new(Seam::Simulated(Simulation::new(3)), ["10.0.0.1", "10.0.0.2"]).await;
    stage.a.create_topic("t", 1, 1, &[]).unwrap();
    append(&stage.a, "t", 0, 10);
    stage.commit(&stage.source, "app", "t", 4).await;
    let replicator = stage.start("A->B.topics = t\nkmirror.group.format = {source}-{group}");
    until(&replicator, "A-app", |status| sync(status, "A-app") == Some(GroupSync::InSync)).await;
    replicator.stop().await;
    assert_eq!(committed(&stage.b, "A-app"), [("A.t".to_owned(), 4, "m".to_owned())]);
    assert!(committed(&stage.b, "app").is_empty());
    assert_eq!(checkpoints(&stage.b).keys().next().map(|(group, _)| group.as_str()), Some("A-app"));
}

/// Both ways as MirrorMaker: the pair whose flow is off has heartbeats, too, and these are what the flow copies.
#[tokio::test(start_paused = true)]
async fn heartbeats_are_written_and_copied() {
    let stage = Stage::new(Seam::Simulated(Simulation::new(9)), ["10.0.0.1", "10.0.0.2"]).await;
    let replicator = stage.start("offset-syncs.topic.location = target\nA->B.topics = none");
    until(&replicator, "a heartbeat", |status| {
        let link = status.flows[0].translation.heartbeats.get("heartbeats").cloned();
        link.is_some_and(|link| link.hops == 1 && link.newest_ms.is_some())
    })
    .await;
    until(&replicator, "syncs", |status| status.flows[0].translation.offset_syncs.emitted > 0).await;
    replicator.stop().await;
    let beats = |cluster: &EmbeddedCluster, topic: &str| -> Vec<(String, String)> {
        let decode = |(key, value): &(Vec<u8>, Vec<u8>)| {
            let beat = Heartbeat::decode(key, value).unwrap();
            (beat.source.to_string(), beat.target.to_string())
        };
        records(cluster, topic).iter().map(decode).collect()
    };
    let pair = |source: &str, target: &str| (source.to_owned(), target.to_owned());
    assert!(beats(&stage.a, "heartbeats").iter().all(|beat| *beat == pair("B", "A")));
    assert!(beats(&stage.b, "heartbeats").iter().all(|beat| *beat == pair("A", "B")));
    assert!(beats(&stage.b, "A.heartbeats").contains(&pair("B", "A")));
    assert!(stage.a.topics().iter().all(|(topic, _)| !topic.starts_with("mm2-offset-syncs")));
    assert!(!records(&stage.b, "mm2-offset-syncs.A.internal").is_empty());
}

/// Case 37: groups whose coordinator does not answer wait for it, and the others go on meanwhile.
#[tokio::test(start_paused = true)]
async fn a_coordinator_that_is_away_holds_up_its_own_groups_alone() {
    let stage = Stage::new(Seam::Simulated(Simulation::new(11)), ["10.0.0.1", "10.0.0.2"]).await;
    stage.a.create_topic("t", 1, 1, &[]).unwrap();
    append(&stage.a, "t", 0, 10);
    let groups: Vec<String> = (0..12).map(|number| format!("app{number}")).collect();
    let at = |name: &String, offset: i64| {
        committed(&stage.b, name) == [("A.t".to_owned(), offset, "m".to_owned())]
    };
    for name in &groups {
        stage.commit(&stage.source, name, "t", 5).await;
    }
    let replicator = stage.start("A->B.topics = t");
    until(&replicator, "all groups", |_| groups.iter().all(|name| at(name, 5))).await;
    let away = FaultRule {
        key: Some(ApiKey::OffsetFetch),
        broker: Some(2),
        when: When::After(0),
        times: u64::MAX,
        effect: Effect::Close,
    };
    stage.a.fault(away);
    for name in &groups {
        stage.commit(&stage.source, name, "t", 9).await;
    }
    until(&replicator, "the groups of the others", |status| {
        let waits = |name: &&String| group(status, name).error.is_some();
        let waiting: Vec<&String> = groups.iter().filter(waits).collect();
        !waiting.is_empty() && groups.iter().all(|name| at(name, if waiting.contains(&name) { 5 } else { 9 }))
    })
    .await;
    stage.a.clear_faults();
    until(&replicator, "all groups again", |_| groups.iter().all(|name| at(name, 9))).await;
    replicator.stop().await;
}

/// Case 36: syncs that the cluster refuses for a while in a burst come all the same, the newest of each partition.
#[tokio::test(start_paused = true)]
async fn offset_syncs_of_a_burst_are_not_lost() {
    const PARTITIONS: i32 = 30;
    let stage = Stage::new(Seam::Simulated(Simulation::new(12)), ["10.0.0.1", "10.0.0.2"]).await;
    stage.a.create_topic("t", PARTITIONS.cast_unsigned(), 1, &[]).unwrap();
    // The source is produced to by offset syncs alone.
    let refused = FaultRule {
        key: Some(ApiKey::Produce),
        broker: None,
        when: When::After(0),
        times: 15,
        effect: Effect::Error(7),
    };
    stage.a.fault(refused);
    for partition in 0..PARTITIONS {
        let batch = |number: i32| {
            let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
            let value = Some(Bytes::from(number.to_string()));
            builder.push(&RecordData { timestamp: 1, value, ..RecordData::default() }).unwrap();
            builder.build().unwrap()
        };
        for number in 0..250 {
            stage.a.append("t", partition, &batch(number)).unwrap();
        }
    }
    let replicator = stage.start("A->B.topics = t\nemit.heartbeats.enabled = false");
    let newest = || -> BTreeMap<i32, (i64, i64)> {
        records(&stage.a, "mm2-offset-syncs.B.internal")
            .iter()
            .map(|(key, value)| OffsetSync::decode(key, value).unwrap())
            .map(|sync| (sync.source.partition, (sync.upstream, sync.downstream)))
            .collect()
    };
    let all: BTreeMap<i32, (i64, i64)> = (0..PARTITIONS).map(|partition| (partition, (249, 249))).collect();
    until(&replicator, "the newest sync of each partition", |_| newest() == all).await;
    replicator.stop().await;
    assert_eq!(newest(), all);
}

/// Cases 41 and 42: hundreds of groups, some of which have no offset, or −1, for a partition.
#[tokio::test(start_paused = true)]
async fn many_groups_are_translated_and_what_is_no_offset_is_left_out() {
    const GROUPS: i64 = 400;
    let stage = Stage::new(Seam::Simulated(Simulation::new(13)), ["10.0.0.1", "10.0.0.2"]).await;
    stage.a.create_topic("t", 1, 1, &[]).unwrap();
    stage.a.create_topic("other", 1, 1, &[]).unwrap();
    append(&stage.a, "t", 0, 100);
    let name = |number: i64| format!("app{number}");
    for number in 0..GROUPS {
        stage.commit(&stage.source, &name(number), "t", number % 101).await;
    }
    stage.commit(&stage.source, "elsewhere", "other", 0).await;
    let replicator = stage.start("A->B.topics = t");
    until(&replicator, "all groups", |_| checkpoints(&stage.b).len() as i64 == GROUPS).await;
    until(&replicator, "their offsets", |_| {
        (0..GROUPS).all(|number| {
            committed(&stage.b, &name(number)) == [("A.t".to_owned(), number % 101, "m".to_owned())]
        })
    })
    .await;
    replicator.stop().await;
    assert!(committed(&stage.b, "elsewhere").is_empty());
}

/// Brokers that hear late of the topics that were created for the flow's memory hold its start up, and do not end it.
#[tokio::test(start_paused = true)]
async fn a_start_waits_for_brokers_whose_metadata_lag() {
    let stage = Stage::new(Seam::Simulated(Simulation::new(14)), ["10.0.0.1", "10.0.0.2"]).await;
    stage.a.create_topic("t", 1, 1, &[]).unwrap();
    append(&stage.a, "t", 0, 10);
    stage.commit(&stage.source, "app", "t", 4).await;
    (1..=3).for_each(|broker| stage.b.freeze_metadata(broker).unwrap());
    let replicator = stage.start("A->B.topics = t");
    until(&replicator, "the memory's topics", |_| {
        stage.b.topics().iter().any(|(topic, _)| topic == "mm2-kmirror.A.internal")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    (1..=3).for_each(|broker| stage.b.thaw_metadata(broker));
    until(&replicator, "app", |status| sync(status, "app") == Some(GroupSync::InSync)).await;
    replicator.stop().await;
    assert_eq!(committed(&stage.b, "app"), [("A.t".to_owned(), 4, "m".to_owned())]);
}

/// Case 40: a consumer that was forgotten at the source goes on committing after its group has moved. What it commits takes the
/// group nowhere back, and `/status` says why.
#[tokio::test(start_paused = true)]
async fn a_stale_commit_at_the_source_takes_no_group_back() {
    let stage = Stage::new(Seam::Simulated(Simulation::new(14)), ["10.0.0.1", "10.0.0.2"]).await;
    stage.a.create_topic("t", 1, 1, &[]).unwrap();
    append(&stage.a, "t", 0, 100);
    stage.commit(&stage.source, "app", "t", 50).await;
    let replicator = stage.start("A->B.topics = t");
    until(&replicator, "the move", |status| sync(status, "app") == Some(GroupSync::InSync)).await;
    stage.commit(&stage.target, "app", "A.t", 80).await;
    for stale in [60, 40, 79] {
        stage.commit(&stage.source, "app", "t", stale).await;
        until(&replicator, "the checkpoint", |status| {
            let at = checkpoints(&stage.b)[&("app".to_owned(), "A.t".to_owned())].0;
            at == stale && sync(status, "app") == Some(GroupSync::Ahead)
        })
        .await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(committed(&stage.b, "app"), [("A.t".to_owned(), 80, "m".to_owned())], "{stale}");
    }
    replicator.stop().await;
}

/// Case 44: where timestamps are equal, or go back, no offset is guessed by them.
#[tokio::test(start_paused = true)]
async fn offsets_are_translated_whatever_the_timestamps_are() {
    let stage = Stage::new(Seam::Simulated(Simulation::new(15)), ["10.0.0.1", "10.0.0.2"]).await;
    stage.a.create_topic("t", 1, 1, &[]).unwrap();
    stage.b.create_topic("A.t", 1, 1, &[]).unwrap();
    append(&stage.b, "A.t", 900, 7);
    for batch in 0..20_i64 {
        let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
        for number in 0..10 {
            // Equal ones for half of it, then ever older ones.
            let timestamp = if batch < 10 { 5_000 } else { 4_000 - 10 * batch - number };
            let value = Some(Bytes::from(format!("{batch}-{number}")));
            builder.push(&RecordData { timestamp, value, ..RecordData::default() }).unwrap();
        }
        stage.a.append("t", 0, &builder.build().unwrap()).unwrap();
    }
    let offsets = [0, 1, 55, 99, 100, 101, 155, 199, 200];
    for offset in offsets {
        stage.commit(&stage.source, &format!("app{offset}"), "t", offset).await;
    }
    let replicator = stage.start("A->B.topics = t");
    for offset in offsets {
        let name = format!("app{offset}");
        until(&replicator, &name, |status| sync(status, &name) == Some(GroupSync::InSync)).await;
        assert_eq!(committed(&stage.b, &name), [("A.t".to_owned(), offset + 7, "m".to_owned())]);
    }
    replicator.stop().await;
}

/// Ids are any text, and names as long as Kafka allows.
#[tokio::test(start_paused = true)]
async fn odd_group_ids_and_long_topic_names_are_translated_like_others() {
    let stage = Stage::new(Seam::Simulated(Simulation::new(16)), ["10.0.0.1", "10.0.0.2"]).await;
    let long = "x".repeat(249);
    let topics = ["a.b.c", "dots..here.", "B.mine", long.as_str()];
    for topic in topics {
        stage.a.create_topic(topic, 1, 1, &[]).unwrap();
        append(&stage.a, topic, 0, 10);
    }
    let long_id = "g".repeat(3_000);
    let ids = ["with space", "ümläut-組", "a \"quoted\"\nline", "C->D", "kmirror-A->B.x", long_id.as_str()];
    for id in ids {
        for (offset, topic) in topics.into_iter().enumerate() {
            stage.commit(&stage.source, id, topic, offset as i64 + 3).await;
        }
    }
    let identity = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy";
    let replicator = stage.start(&format!("A->B.topics = .*\n{identity}"));
    let mut wanted: Vec<(String, i64, String)> = topics
        .into_iter()
        .enumerate()
        .map(|(offset, topic)| (topic.to_owned(), offset as i64 + 3, "m".to_owned()))
        .collect();
    wanted.sort();
    for id in ids {
        until(&replicator, id, |status| sync(status, id) == Some(GroupSync::InSync)).await;
        let mut found = committed(&stage.b, id);
        found.sort();
        assert_eq!(found, wanted, "{id}");
    }
    replicator.stop().await;
}

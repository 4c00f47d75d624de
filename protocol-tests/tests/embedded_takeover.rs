//! What a MirrorMaker left behind on the target: open transactions, a paused connector, positions of a Connect cluster; and
//! positions that a person moves. Between embedded clusters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest, ProduceRequest, ProducerId, TopicName,
    TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use kmirror::broker::{self, EmbeddedCluster, log};
use kmirror::client::{Cluster, Settings};
use kmirror::config;
use kmirror::mirror::positions::{Change, execute, plan, positions};
use kmirror::mirror::state::TopicPartition;
use kmirror::mirror::state::mm2_offsets::{key, value};
use kmirror::mirror::status::{EventKind, FlowState, ReplicatorStatus};
use kmirror::mirror::{FlowSettings, PatternList, Replicator};
use kmirror::record::{
    Attributes, BatchBuilder, BatchOptions, Codec, ProducerIdentity, RecordData, partition_for_key,
};
use kmirror::seam::{Seam, Simulation};
use protocol_tests::inside;
use protocol_tests::raw::RawConnection;

const ZOMBIE: &str = "A-mm2-MirrorSourceConnector-0";

async fn cluster(seam: &Seam, seed: u64, host: &str) -> EmbeddedCluster {
    let settings = broker::Settings {
        brokers: 1,
        replication_factor: 1,
        cluster_id: format!("cluster-{seed}"),
        seed,
        address: host.parse().unwrap(),
        ..broker::Settings::default()
    };
    EmbeddedCluster::start(seam.clone(), settings).await.unwrap()
}

struct Stage {
    seam: Seam,
    a: EmbeddedCluster,
    b: EmbeddedCluster,
}

impl Stage {
    async fn new(seam: Seam, hosts: [&str; 2]) -> Stage {
        let (a, b) = (cluster(&seam, 1, hosts[0]).await, cluster(&seam, 2, hosts[1]).await);
        Stage { seam, a, b }
    }

    async fn simulated(seed: u64) -> Stage {
        Stage::new(Seam::Simulated(Simulation::new(seed)), ["10.0.0.1", "10.0.0.2"]).await
    }

    fn settings(&self, more: &str) -> config::Settings {
        let file = format!(
            "clusters = A, B\nA.bootstrap.servers = {}\nB.bootstrap.servers = {}\nA->B.enabled = true\nA->B.topics = t.*\n\
             B->A.emit.heartbeats.enabled = false\nemit.checkpoints.enabled = false\n\
             B.offset.storage.partitions = 3\nrefresh.topics.interval.seconds = 1\nB.offset.flush.interval.ms = 200\n{more}\n",
            self.a.bootstrap(),
            self.b.bootstrap()
        );
        let report = config::load("test.properties", file.as_bytes(), &config::Options::default());
        report.settings.unwrap_or_else(|| panic!("{:?}", report.problems))
    }

    fn start(&self, more: &str) -> Replicator {
        Replicator::start(self.seam.clone(), self.settings(more).process)
    }

    fn client(&self, alias: &str, cluster: &EmbeddedCluster) -> Cluster {
        let servers = cluster.bootstrap().split(',').map(|server| server.parse().unwrap()).collect();
        Cluster::new(self.seam.clone(), Settings::new(alias, servers))
    }

    fn flow(&self) -> Arc<FlowSettings> {
        Arc::new(self.settings("").process.flows.remove(0))
    }
}

fn record(key: Option<&[u8]>, value: &[u8]) -> RecordData {
    let bytes = |bytes: &[u8]| Some(Bytes::copy_from_slice(bytes));
    RecordData { timestamp: 1, key: key.and_then(bytes), value: bytes(value), headers: Vec::new() }
}

fn append(cluster: &EmbeddedCluster, topic: &str, partition: i32, records: &[RecordData]) {
    let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
    records.iter().for_each(|record| builder.push(record).unwrap());
    cluster.append(topic, partition, &builder.build().unwrap()).unwrap();
}

fn numbers(range: std::ops::Range<i32>) -> Vec<RecordData> {
    range.map(|number| record(None, number.to_string().as_bytes())).collect()
}

fn values(cluster: &EmbeddedCluster, topic: &str) -> Vec<i32> {
    let records = cluster.read_all(topic, 0, log::Isolation::ReadCommitted).unwrap_or_default();
    let text = |value: Option<Bytes>| String::from_utf8(value.unwrap().to_vec()).unwrap();
    records.into_iter().map(|logged| text(logged.record.value).parse().unwrap()).collect()
}

/// The newest value of each key of a topic, with its partition.
fn newest(cluster: &EmbeddedCluster, topic: &str, partitions: i32) -> BTreeMap<Bytes, (i32, Bytes)> {
    let all = (0..partitions).flat_map(|partition| {
        let records = cluster.read_all(topic, partition, log::Isolation::ReadCommitted).unwrap();
        records.into_iter().map(move |logged| {
            (logged.record.key.unwrap(), (partition, logged.record.value.unwrap_or_default()))
        })
    });
    all.collect()
}

async fn until(replicator: &Replicator, what: &str, condition: impl Fn(&ReplicatorStatus) -> bool) {
    inside::until(replicator, what, condition, ReplicatorStatus::clone).await;
}

async fn copied(replicator: &Replicator, position: i64) {
    until(replicator, "the position", |status| {
        let partition = status.flows[0].partitions.get(&(Arc::from("t"), 0));
        partition.is_some_and(|partition| partition.position == Some(position))
    })
    .await;
}

/// A task of MirrorMaker with exactly-once support, as far as the target sees it.
struct Task {
    connection: RawConnection,
    producer: (i64, i16),
    sequences: BTreeMap<(String, i32), i32>,
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

impl Task {
    fn start(bootstrap: &str) -> Task {
        let mut connection = RawConnection::open(bootstrap).unwrap();
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(text(ZOMBIE))))
            .with_transaction_timeout_ms(600_000);
        let reply = connection.call(4, &request).unwrap();
        assert_eq!(reply.error_code, 0);
        Task { connection, producer: (reply.producer_id.0, reply.producer_epoch), sequences: BTreeMap::new() }
    }

    fn send(&mut self, topic: &str, partition: i32, records: &[RecordData]) {
        let (id, epoch) = self.producer;
        let added = AddPartitionsToTxnTopic::default()
            .with_name(TopicName(text(topic)))
            .with_partitions(vec![partition]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(TransactionalId(text(ZOMBIE)))
            .with_v3_and_below_producer_id(ProducerId(id))
            .with_v3_and_below_producer_epoch(epoch)
            .with_v3_and_below_topics(vec![added]);
        let reply = self.connection.call(3, &request).unwrap();
        let code = reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code;
        assert_eq!(code, 0);
        let sequence = self.sequences.entry((topic.to_owned(), partition)).or_default();
        let identity = ProducerIdentity { producer_id: id, producer_epoch: epoch, base_sequence: *sequence };
        *sequence += records.len() as i32;
        let mut options = BatchOptions { identity, ..BatchOptions::new(Codec::None) };
        options.attributes.0 |= Attributes::TRANSACTIONAL;
        let mut builder = BatchBuilder::new(options);
        records.iter().for_each(|record| builder.push(record).unwrap());
        let data = PartitionProduceData::default()
            .with_index(partition)
            .with_records(Some(builder.build().unwrap()));
        let data =
            TopicProduceData::default().with_name(TopicName(text(topic))).with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_transactional_id(Some(TransactionalId(text(ZOMBIE))))
            .with_acks(-1)
            .with_timeout_ms(10_000)
            .with_topic_data(vec![data]);
        let reply = self.connection.call(9, &request).unwrap();
        assert_eq!(reply.responses[0].partition_responses[0].error_code, 0);
    }

    fn commit(&mut self) -> i16 {
        let request = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(text(ZOMBIE)))
            .with_producer_id(ProducerId(self.producer.0))
            .with_producer_epoch(self.producer.1)
            .with_committed(true);
        self.connection.call(3, &request).unwrap().error_code
    }
}

/// A task that was cut off from its group has copied ten records, and committed five of them with its position. The rest is
/// open: kmirror aborts it, goes on behind the five, and the task can commit nothing any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_task_left_open_is_aborted_and_the_task_is_shut_out() {
    let stage = Stage::new(Seam::real(), ["127.0.0.1", "127.0.0.1"]).await;
    stage.a.create_topic("t", 1, 1, &[]).unwrap();
    append(&stage.a, "t", 0, &numbers(0..10));
    stage.b.create_topic("A.t", 1, 1, &[]).unwrap();
    stage.b.create_topic("mm2-offsets.A.internal", 3, 1, &[("cleanup.policy", "compact")]).unwrap();
    let position_key = key("MirrorSourceConnector", "A", &TopicPartition::new("t", 0));
    let at = partition_for_key(&position_key, 3);
    let mut task = Task::start(&stage.b.bootstrap());
    task.send("A.t", 0, &numbers(0..5));
    task.send("mm2-offsets.A.internal", at, &[record(Some(&position_key), &value(4))]);
    assert_eq!(task.commit(), 0);
    task.send("A.t", 0, &numbers(5..10));
    task.send("mm2-offsets.A.internal", at, &[record(Some(&position_key), &value(9))]);

    let listing = stage.client("B", &stage.b);
    let (ids, errors) = listing.list_transactional_ids().await.unwrap();
    assert_eq!((ids.as_slice(), errors.len()), (&[Arc::from(ZOMBIE)][..], 0));
    let described = listing.describe_transaction(&Arc::from(ZOMBIE)).await.unwrap().unwrap();
    assert_eq!((described.state.as_str(), described.producer_id), ("Ongoing", task.producer.0));
    assert_eq!(described.partitions, [(Arc::from("A.t"), 0), (Arc::from("mm2-offsets.A.internal"), at)]);
    assert_eq!(listing.describe_transaction(&Arc::from("unknown")).await.unwrap(), None);

    let replicator = stage.start("");
    copied(&replicator, 10).await;
    // INVALID_PRODUCER_EPOCH, PRODUCER_FENCED.
    assert!([47, 90].contains(&task.commit()));
    replicator.stop().await;
    assert_eq!(values(&stage.b, "A.t"), (0..10).collect::<Vec<_>>());
    let described = listing.describe_transaction(&Arc::from(ZOMBIE)).await.unwrap().unwrap();
    assert!(described.producer_epoch > task.producer.1 && described.partitions.is_empty(), "{described:?}");
    assert!(stage.b.violations().is_empty(), "{:?}", stage.b.violations());
}

const STATE_KEY: &[u8] = b"target-state-MirrorSourceConnector";

fn target_state(stage: &Stage, state: &str, v2: &str) {
    let value = format!("{{\"state\":\"{state}\",\"state.v2\":\"{v2}\"}}");
    append(&stage.b, "mm2-configs.A.internal", 0, &[record(Some(STATE_KEY), value.as_bytes())]);
}

#[tokio::test(start_paused = true)]
async fn a_flow_whose_connector_is_paused_stands_still_until_it_is_resumed() {
    let stage = Stage::simulated(21).await;
    stage.a.create_topic("t", 1, 1, &[]).unwrap();
    append(&stage.a, "t", 0, &numbers(0..10));
    stage.b.create_topic("mm2-configs.A.internal", 1, 1, &[]).unwrap();
    for (state, v2) in [("PAUSED", "PAUSED"), ("PAUSED", "STOPPED")] {
        target_state(&stage, state, v2);
        let replicator = stage.start("");
        let paused = |wanted: &'static str| {
            move |status: &ReplicatorStatus| {
                matches!(&status.flows[0].state, FlowState::Paused { connector, target_state, topic }
                    if connector == "MirrorSourceConnector" && *target_state == wanted && topic == "mm2-configs.A.internal")
            }
        };
        until(&replicator, v2, paused(v2)).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        until(&replicator, v2, paused(v2)).await;
        assert_eq!(
            stage.b.topics(),
            [("mm2-configs.A.internal".to_owned(), 1)],
            "nothing is written while it stands still"
        );
        replicator.stop().await;
    }
    // Whoever knows better says so.
    let replicator = stage.start("kmirror.on.paused = ignore");
    copied(&replicator, 10).await;
    replicator.stop().await;

    let replicator = stage.start("");
    until(&replicator, "paused again", |status| matches!(status.flows[0].state, FlowState::Paused { .. }))
        .await;
    append(&stage.a, "t", 0, &numbers(10..20));
    target_state(&stage, "STARTED", "STARTED");
    copied(&replicator, 20).await;
    replicator.stop().await;
    assert_eq!(values(&stage.b, "A.t"), (0..20).collect::<Vec<_>>());
}

/// What is paused while it runs stands still within seconds, loses nothing and copies nothing twice.
#[tokio::test(start_paused = true)]
async fn a_flow_whose_connector_is_paused_while_it_runs_stands_still_from_then_on() {
    let stage = Stage::simulated(23).await;
    stage.a.create_topic("t", 1, 1, &[]).unwrap();
    append(&stage.a, "t", 0, &numbers(0..10));
    stage.b.create_topic("mm2-configs.A.internal", 1, 1, &[]).unwrap();
    let replicator = stage.start("");
    copied(&replicator, 10).await;
    for round in 1..4 {
        target_state(&stage, "PAUSED", if round == 2 { "STOPPED" } else { "PAUSED" });
        until(&replicator, "paused", |status| matches!(status.flows[0].state, FlowState::Paused { .. }))
            .await;
        append(&stage.a, "t", 0, &numbers(round * 10..(round + 1) * 10));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(values(&stage.b, "A.t"), (0..round * 10).collect::<Vec<_>>(), "round {round}");
        target_state(&stage, "STARTED", "STARTED");
        copied(&replicator, i64::from((round + 1) * 10)).await;
    }
    replicator.stop().await;
    assert_eq!(values(&stage.b, "A.t"), (0..40).collect::<Vec<_>>());

    // Whoever knows better says so.
    let replicator = stage.start("kmirror.on.paused = ignore");
    target_state(&stage, "PAUSED", "PAUSED");
    append(&stage.a, "t", 0, &numbers(40..50));
    copied(&replicator, 50).await;
    replicator.stop().await;
}

/// Connectors that ran inside a Connect cluster: their offsets lie in its topic, under the connector's own name, and go on
/// being written there, so that the connector finds them.
#[tokio::test(start_paused = true)]
async fn positions_of_a_connect_cluster_are_gone_on_from_and_written_back() {
    let stage = Stage::simulated(22).await;
    stage.a.create_topic("t", 1, 1, &[]).unwrap();
    append(&stage.a, "t", 0, &numbers(0..10));
    stage.b.create_topic("connect-offsets", 5, 1, &[("cleanup.policy", "compact")]).unwrap();
    let own = key("my mirror", "A", &TopicPartition::new("t", 0));
    let at = partition_for_key(&own, 5);
    let other = key("MirrorSourceConnector", "A", &TopicPartition::new("t", 0));
    append(&stage.b, "connect-offsets", at, &[record(Some(&own), &value(6))]);
    append(&stage.b, "connect-offsets", partition_for_key(&other, 5), &[record(Some(&other), &value(2))]);
    let replicator = stage.start(
        "kmirror.connect.offsets.topic = connect-offsets\nkmirror.connect.source.connector = my mirror\n",
    );
    copied(&replicator, 10).await;
    replicator.stop().await;
    assert_eq!(values(&stage.b, "A.t"), [7, 8, 9]);
    let offsets = newest(&stage.b, "connect-offsets", 5);
    assert_eq!(offsets[&own], (at, value(9)));
    assert_eq!(offsets[&other].1, value(2), "others keep theirs");
    assert!(!stage.b.topics().iter().any(|(topic, _)| topic == "mm2-offsets.A.internal"));
}

#[tokio::test(start_paused = true)]
async fn positions_are_shown_and_moved_while_the_flow_stands_still() {
    let stage = Stage::simulated(23).await;
    for topic in ["t", "t2"] {
        stage.a.create_topic(topic, 1, 1, &[]).unwrap();
        append(&stage.a, topic, 0, &numbers(0..10));
    }
    let (flow, source, target) = (stage.flow(), stage.client("A", &stage.a), stage.client("B", &stage.b));
    let at = |topic: &str| TopicPartition::new(topic, 0);

    // Before the first start nothing is stored, and looking creates nothing.
    let shown = positions(&flow, &source, &target, None).await.unwrap();
    assert_eq!(shown.alive, None);
    assert_eq!(shown.partitions.keys().cloned().collect::<Vec<_>>(), [at("t"), at("t2")]);
    assert_eq!((shown.partitions[&at("t")].next, shown.partitions[&at("t")].log_end), (None, Some(10)));
    assert!(stage.b.topics().is_empty());

    let replicator = stage.start("");
    copied(&replicator, 10).await;
    let shown = positions(&flow, &source, &target, None).await.unwrap();
    assert!(shown.alive.as_ref().is_some_and(|why| why.contains("kmirror-A->B")), "{:?}", shown.alive);
    let set = Change::Set([(at("t"), 4)].into());
    let moves = plan(&flow, &source, &shown, &set).await.unwrap();
    let refused = execute(&flow, &source, &target, &shown, &moves.moves).await.unwrap_err();
    assert!(refused.contains("writes the flow"), "{refused}");
    replicator.stop().await;

    let shown = positions(&flow, &source, &target, Some(&PatternList::new(&["t"]).unwrap())).await.unwrap();
    let one = shown.partitions[&at("t")];
    assert_eq!(
        (shown.partitions.len(), one.next, one.lag(), one.stored_by.name()),
        (1, Some(10), Some(0), "kmirror")
    );
    stage.a.create_topic("other", 1, 1, &[]).unwrap();
    let shown_again = positions(&flow, &source, &target, None).await.unwrap();
    let slips = [(at("t2"), 99), (at("gone"), 0), (at("other"), 0), (TopicPartition::new("t", 1), 0)];
    let everything = Change::Set(slips.iter().cloned().chain([(at("t"), 4)]).collect());
    let moves = plan(&flow, &source, &shown_again, &everything).await.unwrap();
    assert_eq!(moves.moves.keys().cloned().collect::<Vec<_>>(), [at("t")]);
    assert_eq!((moves.moves[&at("t")].to, moves.moves[&at("t")].note), (4, None));
    let mut refused: Vec<TopicPartition> = slips.iter().map(|(partition, _)| partition.clone()).collect();
    refused.sort();
    assert_eq!(moves.refused.keys().cloned().collect::<Vec<_>>(), refused, "{:?}", moves.refused);
    assert!(moves.refused[&at("other")].contains("topics does not name it"), "{:?}", moves.refused);
    let before = newest(&stage.b, "mm2-offsets.A.internal", 3);
    let shown_again = positions(&flow, &source, &target, None).await.unwrap();
    assert_eq!(shown_again.partitions[&at("t")].next, Some(10), "planning moves nothing");
    execute(&flow, &source, &target, &shown, &moves.moves).await.unwrap();

    // MirrorMaker's record and ours say the same.
    let own = key("MirrorSourceConnector", "A", &at("t"));
    let after = newest(&stage.b, "mm2-offsets.A.internal", 3);
    assert_eq!((before[&own].1.clone(), after[&own].clone()), (value(9), (before[&own].0, value(3))));
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    let shown = positions(&flow, &source, &target, None).await.unwrap();
    let one = shown.partitions[&at("t")];
    assert_eq!((one.next, one.lag(), one.stored_by.name()), (Some(4), Some(6), "kmirror"));
    assert_eq!(shown.alive, None, "the lease is given back");

    let replicator = stage.start("");
    copied(&replicator, 10).await;
    until(&replicator, "the copies", |_| values(&stage.b, "A.t").len() == 16).await;
    replicator.stop().await;
    assert_eq!(values(&stage.b, "A.t"), (0..10).chain(4..10).collect::<Vec<_>>());
    assert_eq!(values(&stage.b, "A.t2"), (0..10).collect::<Vec<_>>());

    for (change, to) in
        [(Change::Earliest, 0), (Change::Latest, 10), (Change::Timestamp(0), 0), (Change::Timestamp(2), 10)]
    {
        let shown = positions(&flow, &source, &target, None).await.unwrap();
        let moves = plan(&flow, &source, &shown, &change).await.unwrap();
        assert!(moves.refused.is_empty());
        assert!(
            moves.moves.len() == 2 && moves.moves.values().all(|one| one.to == to),
            "{change:?} {moves:?}"
        );
    }
    let shown = positions(&flow, &source, &target, None).await.unwrap();
    let moves = plan(&flow, &source, &shown, &Change::Earliest).await.unwrap();
    execute(&flow, &source, &target, &shown, &moves.moves).await.unwrap();
    let shown = positions(&flow, &source, &target, None).await.unwrap();
    assert!(shown.partitions.values().all(|one| one.next == Some(0) && one.stored_by.name() == "kmirror"));
}

/// kill -9 at any moment of a takeover: while MirrorMaker's group is looked at, positions are read, topics are made, the first
/// batches are on their way. Whoever comes next loses nothing, and repeats nothing of what MirrorMaker had stored.
#[tokio::test(start_paused = true)]
async fn a_takeover_that_is_killed_in_its_middle_is_done_by_the_next() {
    for (seed, killed_after_ms) in [0, 1, 2, 4, 8, 15, 30, 60, 120, 250, 500, 3_000].into_iter().enumerate() {
        let simulation = Simulation::new(40 + seed as u64);
        let seams = ["first", "second"].map(|name| Seam::Simulated(simulation.named(name)));
        let stage = Stage::new(Seam::Simulated(simulation.named("rest")), ["10.0.0.1", "10.0.0.2"]).await;
        stage.a.create_topic("t", 1, 1, &[]).unwrap();
        (0..10).for_each(|batch| append(&stage.a, "t", 0, &numbers(batch * 100..(batch + 1) * 100)));
        stage.b.create_topic("A.t", 1, 1, &[]).unwrap();
        append(&stage.b, "A.t", 0, &numbers(0..250));
        stage.b.create_topic("mm2-offsets.A.internal", 3, 1, &[("cleanup.policy", "compact")]).unwrap();
        let position_key = key("MirrorSourceConnector", "A", &TopicPartition::new("t", 0));
        let at = partition_for_key(&position_key, 3);
        append(&stage.b, "mm2-offsets.A.internal", at, &[record(Some(&position_key), &value(249))]);

        let settings = stage.settings("");
        let first = Replicator::start(seams[0].clone(), settings.process.clone());
        tokio::time::sleep(Duration::from_millis(killed_after_ms)).await;
        simulation.kill("first");
        drop(first);
        let second = Replicator::start(seams[1].clone(), settings.process);
        copied(&second, 1_000).await;
        second.stop().await;
        let found = values(&stage.b, "A.t");
        assert_eq!(found[..250], (0..250).collect::<Vec<_>>(), "{killed_after_ms} ms");
        let mut next = 250;
        for number in &found[250..] {
            assert!((250..=next).contains(number), "{killed_after_ms} ms: {number} where {next} was next");
            next = next.max(number + 1);
        }
        assert_eq!(next, 1_000, "{killed_after_ms} ms");
        assert!(stage.b.violations().is_empty(), "{:?}", stage.b.violations());
    }
}

/// Another policy gives every topic another name: as with MirrorMaker the flow goes on where it stood, and what the new topics
/// lack is on record.
#[tokio::test(start_paused = true)]
async fn a_policy_that_was_changed_between_two_runs_is_told_of_as_a_gap() {
    let stage = Stage::simulated(24).await;
    stage.a.create_topic("t", 1, 1, &[]).unwrap();
    append(&stage.a, "t", 0, &numbers(0..10));
    let replicator = stage.start("");
    copied(&replicator, 10).await;
    replicator.stop().await;
    append(&stage.a, "t", 0, &numbers(10..20));
    let identity = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy";
    let replicator = stage.start(identity);
    copied(&replicator, 20).await;
    let events = replicator.status().await.flows[0].events.clone();
    let gap = events.iter().find_map(|event| match &event.kind {
        EventKind::Gap { from, to, .. } => Some((&*event.topic, *from, *to)),
        _ => None,
    });
    assert_eq!(gap, Some(("t", 0, 10)), "{events:?}");
    replicator.stop().await;
    assert_eq!(values(&stage.b, "t"), (10..20).collect::<Vec<_>>());
}

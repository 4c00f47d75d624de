//! The control plane of a flow between two embedded clusters, on a simulated network with paused time: who may write,
//! what is remembered, which topics are replicated, where each partition starts.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use kmirror::broker::{Effect, EmbeddedCluster, FaultRule, Settings as BrokerSettings, When};
use kmirror::client::{
    Cluster, ConfigChange, GroupEvent, GroupSettings, HostPort, IsolationLevel, Membership, Settings,
};
use kmirror::mirror::control::{
    Control, ControlCommand, ControlEvent, Granted, PartitionStart, TopicReady, start_control,
};
use kmirror::mirror::state::TopicPartition;
use kmirror::mirror::state::records::{Position, StateRecord};
use kmirror::mirror::status::FlowState;
use kmirror::mirror::{FlowSettings, OffsetReset, OnSourceReset, PatternList, ReplicationFactor};
use kmirror::record::{BatchBuilder, BatchOptions, Codec, OpenBatch, RecordData};
use kmirror::seam::{Link, Seam, Simulation};
use tokio::time::{Instant, timeout};

/// Virtual time after which a test has failed.
const WAIT: Duration = Duration::from_secs(300);

/// Two clusters in one simulated world.
struct World {
    simulation: Simulation,
    source: EmbeddedCluster,
    target: EmbeddedCluster,
}

impl World {
    async fn new(seed: u64) -> World {
        let simulation = Simulation::new(seed);
        let cluster = |last: u8, id: &str| {
            let settings = BrokerSettings {
                cluster_id: id.to_owned(),
                brokers: 3,
                address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
                seed,
                group_initial_rebalance_delay_ms: 0,
                ..BrokerSettings::default()
            };
            EmbeddedCluster::start(Seam::Simulated(simulation.named(id)), settings)
        };
        let (source, target) = (cluster(1, "source").await.unwrap(), cluster(2, "target").await.unwrap());
        World { simulation, source, target }
    }

    fn client(&self, name: &str, cluster: &EmbeddedCluster, alias: &str) -> Cluster {
        let address = |id| cluster.address(id).unwrap();
        let servers = (1..=3).map(|id| HostPort::new(address(id).ip().to_string(), address(id).port()));
        Cluster::new(Seam::Simulated(self.simulation.named(name)), Settings::new(alias, servers.collect()))
    }

    /// A process called `name` that runs the flow.
    fn owner(&self, name: &str, settings: FlowSettings) -> Owner {
        let source = self.client(name, &self.source, &settings.source);
        let target = self.client(name, &self.target, &settings.target);
        let seam = Seam::Simulated(self.simulation.named(name));
        let control = start_control(&seam, Arc::new(settings), source, target, Duration::from_secs(60));
        Owner { control }
    }

    fn set_links(&self, name: &str, cluster: &EmbeddedCluster, link: Link) {
        for id in 1..=3 {
            self.simulation.set_link(name, cluster.address(id).unwrap(), link);
        }
    }

    /// Appends so many records to a source partition.
    async fn produce(&self, topic: &str, partition: i32, count: usize) {
        let mut batch = BatchBuilder::new(BatchOptions::new(Codec::None));
        for number in 0..count {
            let value = Some(Bytes::from(number.to_string()));
            batch.push(&RecordData { timestamp: 1, key: None, value, headers: Vec::new() }).unwrap();
        }
        let client = self.client("producer", &self.source, "A");
        client.produce(&Arc::from(topic), partition, batch.build().unwrap()).await.unwrap();
    }

    /// Key and value of every record of a target topic, by partition.
    async fn read(&self, topic: &str) -> Vec<(i32, String, String)> {
        let client = self.client("reader", &self.target, "B");
        let topic: Arc<str> = Arc::from(topic);
        let logs = client.read_to_end(&topic, IsolationLevel::ReadCommitted, usize::MAX).await.unwrap();
        let mut records = Vec::new();
        for (partition, log) in logs {
            for batch in &log.batches {
                let batch = OpenBatch::open(batch, usize::MAX).unwrap();
                for record in batch.records() {
                    let record = record.unwrap();
                    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap()).into_owned();
                    records.push((partition, text(record.key), text(record.value)));
                }
            }
        }
        records
    }
}

fn settings() -> FlowSettings {
    FlowSettings {
        topics: PatternList::new(&["t.*"]).unwrap(),
        refresh_topics_interval: Some(Duration::from_secs(10)),
        ..FlowSettings::new("A", "B")
    }
}

/// The flow's owner, as a test plays it.
struct Owner {
    control: Control,
}

impl Owner {
    async fn wait<T>(&mut self, what: &str, mut pick: impl FnMut(&ControlEvent) -> Option<T>) -> T {
        let mut seen = Vec::new();
        let wait = async {
            loop {
                let event = self.control.events.recv().await.expect("the control task lives");
                if let Some(picked) = pick(&event) {
                    return picked;
                }
                seen.push(event);
            }
        };
        let picked = timeout(WAIT, wait).await;
        picked.unwrap_or_else(|_| panic!("no {what} among {seen:#?}"))
    }

    async fn next(&mut self) -> Option<ControlEvent> {
        self.control.events.recv().await
    }

    async fn granted(&mut self) -> Granted {
        let mut granted = None;
        let wait = async {
            while granted.is_none() {
                if let ControlEvent::Granted(grant) = self.control.events.recv().await.expect("it lives") {
                    granted = Some(grant);
                }
            }
        };
        timeout(WAIT, wait).await.expect("a grant");
        granted.unwrap()
    }

    async fn ready(&mut self, topic: &str) -> TopicReady {
        self.wait("ready topic", |event| match event {
            ControlEvent::TopicReady(ready) if &*ready.source.name == topic => Some(ready.clone()),
            _ => None,
        })
        .await
    }

    async fn state(&mut self, is: impl Fn(&FlowState) -> bool) -> FlowState {
        self.wait("state", |event| match event {
            ControlEvent::State(state) if is(state) => Some(state.clone()),
            _ => None,
        })
        .await
    }

    /// What it says that it waits for, within seconds; its words hold all of `parts`.
    async fn waits_for(&mut self, parts: &[&str]) {
        let asked_at = Instant::now();
        self.wait(&format!("wait for {parts:?}"), |event| match event {
            ControlEvent::Waiting(Some(waiting)) => {
                parts.iter().all(|part| waiting.what.contains(part)).then_some(())
            }
            _ => None,
        })
        .await;
        assert!(asked_at.elapsed() < Duration::from_secs(5), "{parts:?}: {:?}", asked_at.elapsed());
    }

    async fn waits_no_longer(&mut self) {
        self.wait("end of the wait", |event| matches!(event, ControlEvent::Waiting(None)).then_some(()))
            .await;
    }

    async fn command(&self, command: ControlCommand) {
        self.control.orders.tell(command).await;
    }

    async fn stop(mut self) {
        self.command(ControlCommand::Stop).await;
        self.state(|state| *state == FlowState::Stopped).await;
    }
}

/// Where partitions start, or the word for why they do not.
fn starts(ready: &TopicReady) -> Vec<String> {
    let shown = |(partition, start): (&i32, &PartitionStart)| match start {
        PartitionStart::At(at) => match &at.gap {
            None => format!("{partition} at {}", at.offset),
            Some(gap) => format!("{partition} at {}, gap {}..{}", at.offset, gap.from, gap.to),
        },
        PartitionStart::Stopped(stopped) => format!("{partition} {}", stopped.reason),
    };
    ready.starts.iter().map(shown).collect()
}

fn position(ready: &TopicReady, upstream: i64, downstream: i64) -> Position {
    Position {
        source_topic_id: ready.source.id,
        target_topic_id: ready.remote.id,
        upstream,
        downstream,
        leader_epoch: 0,
        producer_id: -1,
        producer_epoch: -1,
        at_ms: 0,
    }
}

fn moved(ready: &TopicReady, partition: i32, upstream: i64, downstream: i64) -> StateRecord {
    let source = TopicPartition::new(ready.source.name.clone(), partition);
    StateRecord::Position(source, position(ready, upstream, downstream))
}

#[tokio::test(start_paused = true)]
async fn remote_topics_are_made_like_the_sources_and_followed() {
    let world = World::new(1).await;
    world
        .source
        .create_topic("t1", 2, 3, &[("cleanup.policy", "compact"), ("min.insync.replicas", "2")])
        .unwrap();
    world.source.create_topic("other", 1, 1, &[]).unwrap();
    let mut owner = world.owner("kmirror", settings());
    let granted = owner.granted().await;
    assert_eq!((granted.producer, granted.gaps.len()), (None, 0));
    let ready = owner.ready("t1").await;
    assert_eq!((&*ready.remote.name, ready.remote.partitions), ("A.t1", 2));
    assert_eq!(starts(&ready), ["0 at 0", "1 at 0"]);
    let client = world.client("reader", &world.target, "B");
    let configs = client.describe_topic_configs(&[Arc::from("A.t1")]).await.unwrap();
    let configs = configs[&Arc::from("A.t1")].as_ref().unwrap();
    let value = |name| configs.iter().find(|entry| entry.name == name).and_then(|entry| entry.value.clone());
    assert_eq!(value("cleanup.policy").as_deref(), Some("compact"));
    assert_eq!(value("min.insync.replicas").as_deref(), Some("1"), "case 27: left as the target has it");

    // Case 22: new topics and partitions, within the interval.
    world.source.create_topic("t2", 1, 1, &[]).unwrap();
    assert_eq!(starts(&owner.ready("t2").await), ["0 at 0"]);
    let grown = world.client("admin", &world.source, "A");
    grown.create_partitions(&BTreeMap::from([(Arc::from("t1"), 4)])).await.unwrap();
    let ready = owner.ready("t1").await;
    assert_eq!((ready.source.partitions, ready.remote.partitions), (4, 4));
    assert_eq!(starts(&ready), ["2 at 0", "3 at 0"]);

    // Deleted at the source: the remote topic stays.
    world.source.delete_topic("t2").unwrap();
    owner
        .wait("topic gone", |event| {
            matches!(event, ControlEvent::TopicGone { topic, .. } if &**topic == "t2").then_some(())
        })
        .await;
    let names: Vec<String> = world.target.topics().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["A.t1", "A.t2", "mm2-kmirror.A.internal", "mm2-offsets.A.internal"]);
    owner.stop().await;
}

/// Case 24: a creation that fails is tried again, and other topics go on meanwhile.
#[tokio::test(start_paused = true)]
async fn a_topic_that_cannot_be_created_stops_no_other() {
    let world = World::new(2).await;
    let named = FlowSettings { replication_factor: ReplicationFactor::Named(5), ..settings() };
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    world.source.create_topic("t2", 1, 1, &[]).unwrap();
    world.target.create_topic("A.t2", 1, 1, &[]).unwrap();
    let mut owner = world.owner("kmirror", named);
    let failed = |event: &ControlEvent| match event {
        ControlEvent::TopicFailed { topic, reason, retry_ms } if &**topic == "t1" => {
            assert!(retry_ms.is_some());
            Some(reason.clone())
        }
        _ => None,
    };
    assert_eq!(starts(&owner.ready("t2").await), ["0 at 0"]);
    let reason = owner.wait("failed topic", failed).await;
    assert!(reason.contains("INVALID_REPLICATION_FACTOR"), "{reason}");
    owner.wait("another failure", failed).await;
    world.target.create_topic("A.t1", 1, 1, &[]).unwrap();
    assert_eq!(starts(&owner.ready("t1").await), ["0 at 0"]);
    owner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn positions_outlive_the_process() {
    let world = World::new(3).await;
    world.source.create_topic("t1", 2, 1, &[]).unwrap();
    world.produce("t1", 0, 10).await;
    let latest = || FlowSettings { auto_offset_reset: OffsetReset::Latest, ..settings() };
    let mut owner = world.owner("kmirror", latest());
    let store = owner.granted().await.store;
    let ready = owner.ready("t1").await;
    assert_eq!(starts(&ready), ["0 at 10", "1 at 0"]);
    // A target that does not answer only delays a save.
    let lost = FaultRule {
        key: Some(ApiKey::Produce),
        broker: None,
        when: When::After(0),
        times: 3,
        effect: Effect::ReplyLostAfterEffect,
    };
    world.target.fault(lost);
    store.save(vec![moved(&ready, 1, 4, 3)]).await.unwrap();
    owner.stop().await;
    assert!(store.save(vec![moved(&ready, 1, 5, 4)]).await.is_err(), "given up, nothing is stored any more");

    let records = world.read("mm2-offsets.A.internal").await;
    let key = |partition| {
        format!(r#"["MirrorSourceConnector",{{"cluster":"A","partition":{partition},"topic":"t1"}}]"#)
    };
    let newest: BTreeMap<String, String> = records.into_iter().map(|(_, key, value)| (key, value)).collect();
    let expected = [(key(0), r#"{"offset":9}"#.to_owned()), (key(1), r#"{"offset":3}"#.to_owned())];
    assert_eq!(newest, BTreeMap::from(expected));

    world.produce("t1", 0, 5).await;
    world.produce("t1", 1, 10).await;
    let mut owner = world.owner("kmirror", latest());
    owner.granted().await;
    let ready = owner.ready("t1").await;
    // The target has no record of partition 1 though we said that three are there.
    assert_eq!(starts(&ready), ["0 at 10", "1 at 4, gap 1..4"]);
    owner.stop().await;
}

/// Cases 17 and 18.
#[tokio::test(start_paused = true)]
async fn losses_at_the_source_are_on_record() {
    let world = World::new(4).await;
    for topic in ["t-overtaken", "t-recreated", "t-truncated"] {
        world.source.create_topic(topic, 1, 1, &[]).unwrap();
        world.produce(topic, 0, 3).await;
        world.produce(topic, 0, 7).await;
    }
    let mut owner = world.owner("kmirror", settings());
    let store = owner.granted().await.store;
    for topic in ["t-overtaken", "t-recreated", "t-truncated"] {
        let ready = owner.ready(topic).await;
        store.save(vec![moved(&ready, 0, 6, -1)]).await.unwrap();
    }
    owner.stop().await;

    let admin = world.client("admin", &world.source, "A");
    let before = [((Arc::from("t-overtaken"), 0), 8)];
    assert!(admin.delete_records(before).await.values().all(Result::is_ok));
    world.source.recreate_topic("t-recreated").unwrap();
    world.produce("t-recreated", 0, 20).await;
    assert_eq!(world.source.truncate("t-truncated", 0, 3).unwrap(), 3);
    let check = async |rule, expected: [&str; 3]| {
        let mut owner = world.owner("kmirror", FlowSettings { on_source_reset: rule, ..settings() });
        owner.granted().await;
        for (topic, expected) in ["t-overtaken", "t-recreated", "t-truncated"].into_iter().zip(expected) {
            assert_eq!(starts(&owner.ready(topic).await), [expected], "{topic}");
        }
        owner.stop().await;
    };
    check(OnSourceReset::Stop, ["0 at 8, gap 6..8", "0 source_reset", "0 source_reset"]).await;
    // A gap is found once; a new log is appended from its start.
    check(OnSourceReset::Append, ["0 at 8", "0 at 0, gap 6..0", "0 at 3, gap 6..3"]).await;
    check(OnSourceReset::Stop, ["0 at 8", "0 at 0", "0 at 3"]).await;

    let mut owner = world.owner("kmirror", settings());
    let gaps = owner.granted().await.gaps;
    let shown: Vec<String> =
        gaps.iter().map(|(source, gap)| format!("{source} {}..{}", gap.from, gap.to)).collect();
    assert_eq!(shown, ["t-overtaken-0 6..8", "t-recreated-0 6..0", "t-truncated-0 6..3"]);
    owner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_is_decided_by_how_far_the_owner_is() {
    let world = World::new(5).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    world.produce("t1", 0, 10).await;
    let append = FlowSettings { on_source_reset: OnSourceReset::Append, ..settings() };
    let mut owner = world.owner("kmirror", append);
    owner.granted().await;
    let first = owner.ready("t1").await;
    assert_eq!(starts(&first), ["0 at 0"]);
    world.source.recreate_topic("t1").unwrap();
    world.produce("t1", 0, 3).await;
    // The control task finds the new topic, and the owner says how far the old one is.
    let anew = owner.ready("t1").await;
    assert_ne!(anew.source.id, first.source.id);
    assert!(anew.starts.is_empty());
    let partition = TopicPartition::new("t1", 0);
    let restart = |upstream| ControlCommand::Restart {
        partition: partition.clone(),
        position: Some(position(&first, upstream, -1)),
    };
    owner.command(restart(7)).await;
    assert_eq!(starts(&owner.ready("t1").await), ["0 at 0, gap 7..0"]);
    owner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_process_writes_and_stops_before_the_next_begins() {
    let world = World::new(6).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    let mut first = world.owner("first", settings());
    let store = first.granted().await.store;
    let ready = first.ready("t1").await;
    let mut second = world.owner("second", settings());
    second.state(|state| *state == FlowState::Standby).await;

    // The first is cut off from the target, and nobody tells it.
    world.set_links("first", &world.target, Link::Silent);
    let cut_at = Instant::now();
    let revoked = async {
        first
            .wait("revocation", |event| matches!(event, ControlEvent::Revoked { .. }).then(Instant::now))
            .await
    };
    let granted = async {
        second.granted().await;
        Instant::now()
    };
    let (revoked_at, granted_at) = tokio::join!(revoked, granted);
    assert!(revoked_at < granted_at, "revoked {:?}, granted {:?}", revoked_at - cut_at, granted_at - cut_at);
    assert!(granted_at - cut_at < Duration::from_secs(23), "{:?}", granted_at - cut_at);
    assert!(store.save(vec![moved(&ready, 0, 5, 4)]).await.is_err());

    // Back again, the first stands by; given back, it takes over at once.
    world.set_links("first", &world.target, Link::Up(Duration::from_millis(1)));
    first.state(|state| *state == FlowState::Standby).await;
    let stopped_at = Instant::now();
    second.stop().await;
    first.granted().await;
    assert!(stopped_at.elapsed() < Duration::from_secs(3), "{:?}", stopped_at.elapsed());
    first.stop().await;
}

/// One process per file, the flow's topics split between them.
#[tokio::test(start_paused = true)]
async fn processes_that_take_other_topics_write_beside_each_other() {
    let world = World::new(12).await;
    for topic in ["busy", "heartbeats", "t1", "t2"] {
        world.source.create_topic(topic, 1, 1, &[]).unwrap();
    }
    let of = |topics: &[&str], exclude: &[&str]| FlowSettings {
        topics: PatternList::new(topics).unwrap(),
        topics_exclude: PatternList::new(exclude).unwrap(),
        ..settings()
    };
    let topics = async |owner: &mut Owner| {
        let mut ready = Vec::new();
        let done = |event: &ControlEvent| match event {
            ControlEvent::TopicReady(topic) => {
                ready.push(topic.source.name.to_string());
                None
            }
            ControlEvent::Discovered { pending: 0, .. } => Some(()),
            _ => None,
        };
        owner.wait("round", done).await;
        ready
    };
    let mut rest = world.owner("rest", of(&["t.*", "busy"], &["busy"]));
    rest.granted().await;
    assert_eq!(topics(&mut rest).await, ["heartbeats", "t1", "t2"]);
    let mut busy = world.owner("busy", of(&["busy"], &[]));
    busy.granted().await;
    assert_eq!(topics(&mut busy).await, ["busy"], "heartbeats are the first's");

    // What it names is all written by others; it takes what they leave when they end.
    let mut all = world.owner("all", of(&["t.*", "busy"], &[]));
    all.granted().await;
    assert!(topics(&mut all).await.is_empty());
    rest.stop().await;
    for (owner, expected) in [(&mut busy, vec!["busy", "heartbeats"]), (&mut all, vec!["t1", "t2"])] {
        owner.wait("revocation", |event| matches!(event, ControlEvent::Revoked { .. }).then_some(())).await;
        owner.granted().await;
        assert_eq!(topics(owner).await, expected);
    }
    busy.stop().await;
    all.granted().await;
    assert_eq!(topics(&mut all).await, ["busy", "heartbeats", "t1", "t2"]);
    all.stop().await;
}

/// Promise F: a broker that is away holds up what it leads, and nothing else.
#[tokio::test(start_paused = true)]
async fn a_broker_that_does_not_answer_holds_up_only_what_it_leads() {
    let world = World::new(7).await;
    world.source.create_topic("t1", 3, 1, &[]).unwrap();
    // Nobody tells that it is gone: it still leads, and is silent.
    let Some((Some(away), _)) = world.source.leader("t1", 0) else { panic!("t1-0 has a leader") };
    world.simulation.set_link("kmirror", world.source.address(away).unwrap(), Link::Silent);
    let mut owner = world.owner("kmirror", settings());
    owner.granted().await;
    let asked_at = Instant::now();
    let first = starts(&owner.ready("t1").await);
    assert!(!first.is_empty() && first.len() < 3, "{first:?}");
    assert!(asked_at.elapsed() < Duration::from_secs(60), "{:?}", asked_at.elapsed());
    world.source.create_topic("t2", 3, 1, &[]).unwrap();
    let second = starts(&owner.ready("t2").await);
    assert_eq!(second.len(), first.len());
    world.simulation.set_link("kmirror", world.source.address(away).unwrap(), Link::Up(Duration::ZERO));
    let (mut topics, mut started) = (2, 0);
    while topics > 0 {
        let ready = owner
            .wait("ready topic", |event| match event {
                ControlEvent::TopicReady(ready) => Some(ready.clone()),
                _ => None,
            })
            .await;
        started += ready.starts.len();
        topics -= 1;
    }
    assert_eq!(started + first.len() + second.len(), 6);
    owner.stop().await;
}

/// Promise F: a broker of the target that hangs, whatever it coordinates or was asked, costs the flow no lease. It is missed
/// by its cluster after 9 s, as by a real one.
#[tokio::test(start_paused = true)]
async fn a_broker_that_hangs_costs_no_lease() {
    for hangs in 1..=3 {
        let world = World::new(20 + hangs as u64).await;
        world.source.create_topic("t1", 1, 1, &[]).unwrap();
        let mut owner = world.owner("kmirror", settings());
        owner.granted().await;
        owner.ready("t1").await;
        world.simulation.set_link("kmirror", world.target.address(hangs).unwrap(), Link::Silent);
        tokio::time::sleep(Duration::from_secs(9)).await;
        world.target.stop_broker(hangs).await.unwrap();
        let revoked = async {
            owner
                .wait("revocation", |event| matches!(event, ControlEvent::Revoked { .. }).then_some(()))
                .await;
        };
        let revoked = timeout(Duration::from_secs(60), revoked).await;
        assert!(revoked.is_err(), "broker {hangs} cost the lease");
        // It goes on with what needs the target, too.
        world.source.create_topic("t2", 1, 1, &[]).unwrap();
        assert_eq!(starts(&owner.ready("t2").await), ["0 at 0"]);
        owner.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn limits_that_change_are_told() {
    let world = World::new(8).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    let mut owner = world.owner("kmirror", settings());
    assert_eq!(owner.ready("t1").await.limits.max_message_bytes, 1_048_588);
    let admin = world.client("admin", &world.target, "B");
    let change = ConfigChange::Set("max.message.bytes".to_owned(), "2000".to_owned());
    let changed = admin.incremental_alter_configs(&BTreeMap::from([(Arc::from("A.t1"), vec![change])])).await;
    assert!(changed.unwrap().values().all(Result::is_ok));
    owner.command(ControlCommand::Discover).await;
    let ready = owner.ready("t1").await;
    assert_eq!((ready.limits.max_message_bytes, ready.starts.len()), (2_000, 0));
    owner.stop().await;
}

/// A load must not take what was deleted in its first moments for copied.
#[tokio::test(start_paused = true)]
async fn a_topic_that_goes_before_it_has_started_was_planned() {
    let world = World::new(12).await;
    for topic in ["t1", "t2"] {
        world.source.create_topic(topic, 3, 1, &[]).unwrap();
    }
    // What is there before the first round: the target takes its time to create it.
    world.target.fault(FaultRule {
        key: Some(ApiKey::CreateTopics),
        broker: None,
        when: When::After(0),
        times: 100,
        effect: Effect::Delay(Duration::from_secs(2)),
    });
    let mut owner = world.owner("kmirror", settings());
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.source.delete_topic("t1").unwrap();
    let gone = |topic: &'static str| {
        move |event: &ControlEvent| match event {
            ControlEvent::TopicGone { topic: gone, planned, .. } if &**gone == topic => Some(planned.clone()),
            _ => None,
        }
    };
    let mut started = Vec::new();
    while started.len() < 3 {
        started.extend(starts(&owner.ready("t2").await));
    }
    assert_eq!(started, ["0 at 0", "1 at 0", "2 at 0"]);
    let planned = owner.wait("t1 gone", gone("t1")).await.unwrap();
    assert_eq!((planned.source.partitions, &*planned.remote), (3, "A.t1"));
    owner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_refresh_the_topics_of_the_first_round_are_all() {
    let world = World::new(9).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    let mut owner = world.owner("kmirror", FlowSettings { refresh_topics_interval: None, ..settings() });
    owner.ready("t1").await;
    world.source.create_topic("t2", 1, 1, &[]).unwrap();
    owner.command(ControlCommand::Discover).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    owner.stop().await;
    assert!(world.target.topics().iter().all(|(name, _)| name != "A.t2"));
}

/// A member of MirrorMaker's own group.
fn mirror_maker(world: &World) -> Membership {
    let target = world.client("mirror-maker", &world.target, "B");
    let settings = GroupSettings {
        group_id: Arc::from("A-mm2"),
        protocol_type: Arc::from("connect"),
        protocol: Arc::from("sessioned"),
        session_timeout: Duration::from_secs(10),
        rebalance_timeout: Duration::from_secs(60),
        heartbeat_interval: Duration::from_secs(3),
    };
    Membership::join(&target, settings, Bytes::new(), Box::new(|_, _| Vec::new()))
}

async fn joined(member: &mut Membership) {
    while !matches!(member.next().await, Some(GroupEvent::Joined { .. })) {}
}

#[tokio::test(start_paused = true)]
async fn a_mirror_maker_that_is_killed_is_waited_for_and_one_that_appears_stops_the_flow() {
    let world = World::new(10).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    let mut member = mirror_maker(&world);
    joined(&mut member).await;
    let mut owner = world.owner("kmirror", settings());
    let waiting = owner.state(|state| *state != FlowState::Starting).await;
    assert_eq!(waiting, FlowState::WaitingForMirrorMaker { group: "A-mm2".to_owned(), members: 1 });
    let names = |world: &World| world.target.topics().len();
    assert_eq!(names(&world), 0, "nothing is written while it lives");
    // Killed, it stays a member until its session times out.
    let killed_at = Instant::now();
    drop(member);
    owner.granted().await;
    let waited = killed_at.elapsed();
    assert!((6..=12).contains(&waited.as_secs()), "{waited:?}");
    owner.ready("t1").await;

    let mut member = mirror_maker(&world);
    joined(&mut member).await;
    owner.wait("revocation", |event| matches!(event, ControlEvent::Revoked { .. }).then_some(())).await;
    let failed = owner.state(|state| matches!(state, FlowState::Failed(_))).await;
    assert!(matches!(&failed, FlowState::Failed(why) if why.contains("A-mm2")), "{failed:?}");
    // One that stays is waited for only so long.
    let mut owner = world.owner("kmirror", settings());
    let asked_at = Instant::now();
    owner.state(|state| matches!(state, FlowState::Failed(_))).await;
    assert!((60..65).contains(&asked_at.elapsed().as_secs()), "{:?}", asked_at.elapsed());
}

/// Whoever looks at a start that takes long is told why: cluster, addresses, last error.
#[tokio::test(start_paused = true)]
async fn a_start_says_what_it_waits_for() {
    let world = World::new(13).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    let addresses = |cluster: &EmbeddedCluster| cluster.bootstrap().replace(',', ", ");
    let (source, target) = (addresses(&world.source), addresses(&world.target));
    let (source, target) = (format!("cluster A ({source})"), format!("cluster B ({target})"));
    let up = Link::Up(Duration::from_micros(100));

    // The target first: MirrorMaker may be alive on it. One that is found is told of in the same way.
    let mut member = mirror_maker(&world);
    joined(&mut member).await;
    world.set_links("kmirror", &world.target, Link::Refused);
    let mut owner = world.owner("kmirror", settings());
    owner.waits_for(&[&target, "whether MirrorMaker is alive", "group A-mm2", "refused"]).await;
    world.set_links("kmirror", &world.target, up);
    owner.waits_for(&[&target, "MirrorMaker to leave", "group A-mm2", "1 member"]).await;
    member.leave().await;
    owner.granted().await;
    owner.stop().await;

    world.set_links("kmirror", &world.source, Link::Refused);
    let mut owner = world.owner("kmirror", settings());
    owner.waits_for(&[&source, "to answer", "refused"]).await;
    world.set_links("kmirror", &world.source, up);
    owner.waits_no_longer().await;
    owner.granted().await;
    owner.ready("t1").await;

    let mut second = world.owner("second", settings());
    second.waits_for(&["another kmirror", &target]).await;
    owner.stop().await;
    second.waits_no_longer().await;
    second.granted().await;

    // A target that is there, but cannot coordinate groups.
    second.stop().await;
    world.target.fault(FaultRule {
        key: Some(ApiKey::JoinGroup),
        broker: None,
        when: When::After(0),
        times: 1_000_000,
        effect: Effect::Error(15),
    });
    let mut owner = world.owner("kmirror", settings());
    owner.waits_for(&["the lease of this flow", &target, "COORDINATOR_NOT_AVAILABLE"]).await;
    world.target.clear_faults();
    owner.granted().await;
    owner.stop().await;
}

/// A holder that was cut off for a while, but not given up, gets its lease again.
#[tokio::test(start_paused = true)]
async fn a_holder_that_gave_up_too_early_is_granted_again() {
    let world = World::new(11).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    let mut owner = world.owner("kmirror", settings());
    owner.granted().await;
    owner.ready("t1").await;
    // The coordinator hears of it in time, but its answers come too late.
    world.set_links("kmirror", &world.target, Link::Up(Duration::from_millis(4_100)));
    owner.wait("revocation", |event| matches!(event, ControlEvent::Revoked { .. }).then_some(())).await;
    world.set_links("kmirror", &world.target, Link::Up(Duration::ZERO));
    owner.granted().await;
    owner.ready("t1").await;
    owner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn many_topics_are_created_a_part_at_a_time() {
    let world = World::new(12).await;
    for number in 0..250 {
        world.source.create_topic(&format!("t{number}"), 3, 1, &[]).unwrap();
    }
    world.source.create_topic("t-large", 2_500, 1, &[]).unwrap();
    let mut owner = world.owner("kmirror", settings());
    let (mut topics, mut started) = (0, 0);
    owner
        .wait("whole round", |event| {
            match event {
                ControlEvent::TopicReady(ready) => {
                    (topics, started) = (topics + 1, started + ready.starts.len())
                }
                ControlEvent::Discovered { topics: 251, partitions: 3_250, pending: 0 } => return Some(()),
                _ => {}
            }
            None
        })
        .await;
    assert_eq!((topics, started), (251, 3_250));
    owner.stop().await;
}

/// When a process held the lease, in virtual time.
#[derive(Debug)]
struct Tenure {
    name: &'static str,
    from: Duration,
    to: Duration,
}

/// Runs processes over a network that fails by a seed; answers with all tenures in the order of their beginnings.
async fn tenures(seed: u64) -> Vec<Tenure> {
    const NAMES: [&str; 3] = ["first", "second", "third"];
    let world = World::new(seed).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    let started = Instant::now();
    let mut watchers = Vec::new();
    for name in NAMES {
        let mut owner = world.owner(name, settings());
        watchers.push(tokio::spawn(async move {
            let (mut tenures, mut from) = (Vec::new(), None);
            let mut end = |from: &mut Option<Duration>| {
                tenures.extend(from.take().map(|from| Tenure { name, from, to: started.elapsed() }));
            };
            loop {
                let left = Duration::from_secs(400).saturating_sub(started.elapsed());
                match timeout(left, owner.next()).await {
                    Ok(Some(ControlEvent::Granted(_))) => from = Some(started.elapsed()),
                    Ok(Some(ControlEvent::Revoked { .. })) => end(&mut from),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => break,
                }
            }
            end(&mut from);
            tenures
        }));
    }
    let dice = Seam::Simulated(world.simulation.clone());
    while started.elapsed() < Duration::from_secs(300) {
        let name = NAMES[(dice.random() % 3) as usize];
        let broker = 1 + (dice.random() % 3) as i32;
        let link = match dice.random() % 5 {
            0 => Link::Silent,
            1 => Link::Refused,
            2 => Link::Up(Duration::from_millis(dice.random() % 6_000)),
            _ => Link::Up(Duration::from_millis(1)),
        };
        world.simulation.set_link(name, world.target.address(broker).unwrap(), link);
        if dice.random().is_multiple_of(8) {
            let _ = world.target.stop_broker(broker).await;
            tokio::time::sleep(Duration::from_millis(dice.random() % 5_000)).await;
            world.target.start_broker(broker).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(dice.random() % 5_000)).await;
    }
    NAMES.iter().for_each(|name| world.set_links(name, &world.target, Link::Up(Duration::from_millis(1))));
    let mut all = Vec::new();
    for watcher in watchers {
        all.extend(watcher.await.unwrap());
    }
    all.sort_by_key(|tenure| tenure.from);
    all
}

/// Case 49: two that write one flow would copy everything twice.
#[test]
fn no_two_processes_hold_a_flow_at_once_whatever_the_network_does() {
    let mut changes = 0;
    for seed in 0..12 {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let tenures = runtime.block_on(tenures(seed));
        for pair in tenures.windows(2) {
            assert!(
                pair[0].to <= pair[1].from,
                "seed {seed}: {} and {} at once: {tenures:#?}",
                pair[0].name,
                pair[1].name
            );
        }
        assert!(
            tenures.last().is_some_and(|last| last.to > Duration::from_secs(390)),
            "seed {seed}: {tenures:#?}"
        );
        changes += tenures.len();
    }
    assert!(changes > 24, "only {changes} tenures: the network hardly failed");
}

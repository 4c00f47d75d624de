//! The control plane of a flow on real clusters: who may write, which topics there are, where each partition starts, and
//! whether MirrorMaker 2 and kmirror find each other's positions.

use kmirror::client::{Cluster, HostPort, Settings};
use kmirror::mirror::control::{
    Control, ControlCommand, ControlEvent, Granted, PartitionStart, TopicReady, start_control,
};
use kmirror::mirror::state::TopicPartition;
use kmirror::mirror::state::records::{Position, StateRecord};
use kmirror::mirror::status::FlowState;
use kmirror::mirror::{FlowSettings, OffsetReset, PatternList};
use kmirror::seam::Seam;
use protocol_tests::Result;
use protocol_tests::kafka::{ClusterSpec, Isolation, MirrorMaker};
use protocol_tests::pair::{Pair, PairCell};
use protocol_tests::records::{ReadRecord, TestRecord};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

fn pair() -> Result<Option<&'static Pair>> {
    static PAIR: PairCell = PairCell::new();
    Pair::get(&PAIR, ClusterSpec::new("a"), ClusterSpec::new("b"))
}

/// A flow under an alias of the test's own, as the harness's files have it.
fn settings(alias: &str, topics: &[&str]) -> FlowSettings {
    FlowSettings {
        topics: PatternList::new(topics).unwrap(),
        refresh_topics_interval: Some(Duration::from_millis(500)),
        offset_storage_partitions: 2,
        ..FlowSettings::new(alias, "B")
    }
}

/// The flow's owner, as a test plays it.
struct Owner {
    control: Control,
}

impl Owner {
    fn start(pair: &Pair, settings: FlowSettings, takeover_timeout: Duration) -> Owner {
        let seam = Seam::real();
        let cluster = |alias: &str, bootstrap: String| {
            let (host, port) = bootstrap.split(',').next().and_then(|one| one.rsplit_once(':')).unwrap();
            Cluster::new(seam.clone(), Settings::new(alias, vec![HostPort::new(host, port.parse().unwrap())]))
        };
        let source = cluster(&settings.source, pair.a.bootstrap());
        let target = cluster(&settings.target, pair.b.bootstrap());
        let control = start_control(&seam, Arc::new(settings), source, target, takeover_timeout);
        Owner { control }
    }

    /// The first event that `pick` takes.
    async fn wait<T>(&mut self, what: &str, mut pick: impl FnMut(ControlEvent) -> Option<T>) -> T {
        let mut seen = Vec::new();
        let wait = async {
            loop {
                let event = self.control.events.recv().await.expect("the control task lives");
                seen.push(format!("{event:?}"));
                if let Some(picked) = pick(event) {
                    return picked;
                }
            }
        };
        let picked = tokio::time::timeout(WAIT, wait).await;
        picked.unwrap_or_else(|_| panic!("no {what} among {seen:#?}"))
    }

    async fn granted(&mut self) -> Granted {
        self.wait("grant", |event| match event {
            ControlEvent::Granted(granted) => Some(granted),
            _ => None,
        })
        .await
    }

    async fn ready(&mut self, topic: &str) -> TopicReady {
        self.wait("ready topic", |event| match event {
            ControlEvent::TopicReady(ready) if &*ready.source.name == topic => Some(ready),
            _ => None,
        })
        .await
    }

    async fn state(&mut self, is: impl Fn(&FlowState) -> bool) -> FlowState {
        self.wait("state", |event| match event {
            ControlEvent::State(state) if is(&state) => Some(state),
            _ => None,
        })
        .await
    }

    async fn stop(mut self) {
        self.control.orders.tell(ControlCommand::Stop).await;
        self.state(|state| *state == FlowState::Stopped).await;
    }
}

/// Offsets at which partitions start, or the word for why they do not.
fn offsets(ready: &TopicReady) -> BTreeMap<i32, String> {
    let shown = |start: &PartitionStart| match start {
        PartitionStart::At(at) => match &at.gap {
            None => at.offset.to_string(),
            Some(gap) => format!("{} after the gap {}..{}", at.offset, gap.from, gap.to),
        },
        PartitionStart::Stopped(stopped) => stopped.reason.to_owned(),
    };
    ready.starts.iter().map(|(&partition, start)| (partition, shown(start))).collect()
}

fn expect(offsets: &[(i32, &str)]) -> BTreeMap<i32, String> {
    offsets.iter().map(|&(partition, offset)| (partition, offset.to_owned())).collect()
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

fn numbered(partition: i32, numbers: std::ops::Range<i64>) -> Vec<TestRecord> {
    numbers.map(|number| TestRecord::new("k", number.to_string()).to_partition(partition)).collect()
}

/// Partition, key and value of the newest record of each key.
fn newest(records: Vec<ReadRecord>) -> BTreeMap<String, (i32, String)> {
    let key = |record: &ReadRecord| String::from_utf8(record.key.clone().unwrap_or_default()).unwrap();
    records.into_iter().map(|record| (key(&record), (record.partition, record.value_text()))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirror_maker_is_waited_for_taken_over_from_and_handed_back_to() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let (a, b) = (pair.a.bootstrap(), pair.b.bootstrap());
    pair.source().create_topic("handed", 2, &[])?;
    for partition in 0..2 {
        pair.java().produce(&a, "handed", &numbered(partition, 0..25))?;
    }
    let flow = pair.flow("H").topics("handed").single_replicas();
    let jvm = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
    let mirror = MirrorMaker::start(flow.text(), &jvm)?;
    assert_eq!(pair.wait_equal(&flow, "handed", Isolation::ReadUncommitted, Duration::from_secs(90))?, 50);

    // Alive, it is waited for, and then the flow is refused.
    let mut owner = Owner::start(pair, settings("H", &["handed"]), Duration::from_secs(2));
    let waiting = owner.state(|state| !matches!(state, FlowState::Starting)).await;
    assert_eq!(waiting, FlowState::WaitingForMirrorMaker { group: "H-mm2".to_owned(), members: 1 });
    let refused = owner.state(|state| matches!(state, FlowState::Failed(_))).await;
    assert!(matches!(&refused, FlowState::Failed(why) if why.contains("H-mm2")), "{refused:?}");
    mirror.stop()?;

    // Stopped, its positions are gone on from.
    let before = newest(pair.java().read(&b, "mm2-offsets.H.internal", Isolation::ReadCommitted)?);
    let mut owner = Owner::start(pair, settings("H", &["handed"]), WAIT);
    let store = owner.granted().await.store;
    let ready = owner.ready("handed").await;
    assert_eq!(offsets(&ready), expect(&[(0, "25"), (1, "25")]));
    assert_eq!(&*ready.remote.name, "H.handed");

    // What we store is found by MirrorMaker: it does not copy what we say is copied.
    for partition in 0..2 {
        pair.java().produce(&a, "handed", &numbered(partition, 25..35))?;
    }
    let moved = StateRecord::Position(TopicPartition::new("handed", 0), position(&ready, 30, 25));
    store.save(vec![moved]).await.unwrap();
    owner.stop().await;
    let after = newest(pair.java().read(&b, "mm2-offsets.H.internal", Isolation::ReadCommitted)?);
    let key = r#"["MirrorSourceConnector",{"cluster":"H","partition":0,"topic":"handed"}]"#;
    assert_eq!(before[key].1, r#"{"offset":24}"#);
    assert_eq!(after[key], (before[key].0, r#"{"offset":29}"#.to_owned()));
    let keys = |records: &BTreeMap<String, (i32, String)>| records.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&after), keys(&before), "no key of another spelling");

    let mirror = MirrorMaker::start(flow.text(), &jvm)?;
    let ends =
        || -> Result<(i64, i64)> { Ok((pair.target_end("H.handed", 0)?, pair.target_end("H.handed", 1)?)) };
    protocol_tests::wait::wait_until_equal("ends of H.handed", Duration::from_secs(90), &(30, 35), ends)?;
    mirror.stop()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_is_remembered_and_later_partitions_start_at_the_earliest() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let a = pair.a.bootstrap();
    pair.source().create_topic(
        "first",
        1,
        &[("max.message.bytes", "5000"), ("cleanup.policy", "compact")],
    )?;
    pair.java().produce(&a, "first", &numbered(0, 0..10))?;
    let latest = || FlowSettings { auto_offset_reset: OffsetReset::Latest, ..settings("F", &["first.*"]) };
    let mut owner = Owner::start(pair, latest(), WAIT);
    owner.granted().await;
    let ready = owner.ready("first").await;
    assert_eq!(offsets(&ready), expect(&[(0, "10")]));
    assert_eq!(ready.limits.max_message_bytes, 5_000);
    let configs = pair.target().topic_configs("F.first")?;
    assert_eq!(configs.get("cleanup.policy").map(String::as_str), Some("compact"));

    // Partitions and topics that appear later, while it runs.
    pair.source().create_partitions("first", 2)?;
    pair.java().produce(&a, "first", &numbered(1, 0..3))?;
    assert_eq!(offsets(&owner.ready("first").await), expect(&[(1, "0")]));
    pair.source().create_topic("first-later", 1, &[])?;
    pair.java().produce(&a, "first-later", &numbered(0, 0..3))?;
    assert_eq!(offsets(&owner.ready("first-later").await), expect(&[(0, "0")]));
    owner.stop().await;

    // Restarted before anything was copied: the beginnings stand, whatever came since.
    pair.java().produce(&a, "first", &numbered(0, 10..20))?;
    pair.source().delete_records("first-later", 0, 2)?;
    let mut owner = Owner::start(pair, latest(), WAIT);
    let store = owner.granted().await.store;
    let ready = owner.ready("first").await;
    assert_eq!(offsets(&ready), expect(&[(0, "10"), (1, "0")]));
    assert_eq!(offsets(&owner.ready("first-later").await), expect(&[(0, "2 after the gap 0..2")]));

    // A topic that was created anew is another one: its partitions stop until a person decides.
    store
        .save(vec![StateRecord::Position(TopicPartition::new("first", 0), position(&ready, 15, 5))])
        .await
        .unwrap();
    owner.stop().await;
    pair.source().delete_topic("first")?;
    pair.source().create_topic("first", 1, &[])?;
    pair.java().produce(&a, "first", &numbered(0, 0..20))?;
    let mut owner = Owner::start(pair, latest(), WAIT);
    let gaps = owner.granted().await.gaps;
    let shown: Vec<String> =
        gaps.iter().map(|(source, gap)| format!("{source} {}..{}", gap.from, gap.to)).collect();
    assert_eq!(shown, ["first-later-0 0..2"]);
    assert_eq!(offsets(&owner.ready("first").await), expect(&[(0, "source_reset")]));
    owner.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_writes_a_flow_and_the_next_takes_over() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    pair.source().create_topic("leased", 1, &[])?;
    let mut first = Owner::start(pair, settings("L", &["leased"]), WAIT);
    first.granted().await;
    let mut second = Owner::start(pair, settings("L", &["leased"]), WAIT);
    second.state(|state| *state == FlowState::Standby).await;
    first.stop().await;
    second.granted().await;
    second.ready("leased").await;

    // A third one stands by as well, and disturbs nobody.
    let mut third = Owner::start(pair, settings("L", &["leased"]), WAIT);
    third.state(|state| *state == FlowState::Standby).await;
    second.stop().await;
    third.granted().await;
    third.stop().await;
    Ok(())
}

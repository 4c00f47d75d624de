//! Files and flags of MirrorMaker 1, judged as a whole.

use std::fmt::Write as _;

use super::*;
use crate::mirror::member::Strategy;

/// Files of a test, removed with it.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Files {
        let folder = std::env::temp_dir().join(format!("kmirror-mm1-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Files(folder)
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const CONSUMER: &str = "bootstrap.servers=a:9092\ngroup.id=g\n";
const PRODUCER: &str = "bootstrap.servers=b:9092\n";

fn command(consumer: PathBuf, producer: PathBuf) -> MirrorMaker1 {
    MirrorMaker1 {
        consumer_configs: vec![consumer],
        producer_config: producer,
        include: Some(("--include", "orders, pay.*".to_owned())),
        exclude: None,
        offset_commit_interval: None,
        on_send_failure: OnSendFailure::Stop,
        rewrite_topics: Vec::new(),
    }
}

fn load(name: &str, consumer: &str, producer: &str, change: impl Fn(&mut MirrorMaker1)) -> Report {
    let files = Files::new(name);
    let mut command = command(files.put("c.properties", consumer), files.put("p.properties", producer));
    change(&mut command);
    load_mirror_maker_1(&command, Outside::real())
}

/// Severities and messages, with line and text of the place.
fn said(report: &Report) -> String {
    let mut text = String::new();
    for problem in &report.problems {
        let place = problem.span.map_or_else(String::new, |span| {
            let (line, _) = report.source.position(span.start);
            let (_, name, _) = report.source.file_at(span.start);
            format!("{}:{line}: ", name.rsplit('/').next().unwrap_or_default())
        });
        let _ = writeln!(text, "{place}{}: {}", problem.severity, problem.message);
    }
    text
}

fn settings(report: &Report) -> &FlowSettings {
    let settings = report.settings.as_ref().unwrap_or_else(|| panic!("{}", said(report)));
    &settings.process.flows[0]
}

#[test]
fn a_flow_of_mirror_maker_1_is_a_member_and_keeps_nothing_on_the_target() {
    let consumer = format!("{CONSUMER}session.timeout.ms=30000\nmax.poll.interval.ms=60000\n");
    let report = load("plain", &consumer, PRODUCER, |_| {});
    let flow = settings(&report);
    assert!(flow.topics.matches("orders") && flow.topics.matches("payments") && !flow.topics.matches("x"));
    assert_eq!(flow.policy.remote_topic("source", "orders"), "orders");
    assert_eq!(flow.auto_offset_reset, crate::mirror::OffsetReset::Latest, "as a consumer's default is");
    let group = flow.group.as_ref().unwrap();
    assert_eq!((&*group.group_id, group.session_timeout), ("g", Duration::from_secs(30)));
    assert_eq!(group.give_up_within(), Duration::from_secs(55));
    assert_eq!(group.strategies, [Strategy::Range, Strategy::CooperativeSticky]);
    assert!(flow.translation.offset_syncs.is_none() && flow.translation.emit_checkpoints_interval.is_none());
    let process = &report.settings.as_ref().unwrap().process;
    assert!(process.heartbeats.is_empty());
    assert_eq!(process.clusters["source"].net.client_id, "g-0");
    assert_eq!(said(&report), "");
}

#[test]
fn the_files_of_tutorials_work_with_the_warnings_that_they_deserve() {
    let text = |name: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli/testdata/");
        std::fs::read_to_string(format!("{folder}{name}")).unwrap()
    };
    let report =
        load("tutorial", &text("consumer-mirror.properties"), &text("producer-mirror.properties"), |_| {});
    let said = said(&report);
    assert_eq!(settings(&report).auto_offset_reset, crate::mirror::OffsetReset::Earliest);
    let gathering = settings(&report).gathering;
    assert_eq!((gathering.batch_bytes_max, gathering.linger.as_millis()), (16_384, 50));
    assert!(!said.contains("linger") && !said.contains("batch.size"), "{said}");
    for part in [
        "c.properties:5: warning: enable.auto.commit=true: offsets are committed all the same only when",
        "c.properties:6: info: auto.commit.interval.ms has no effect",
        "p.properties:3: warning: retries=3 bounds nothing",
    ] {
        assert!(said.contains(part), "{part:?} in\n{said}");
    }
    assert!(!said.contains("acks"), "{said}");
}

#[test]
fn old_keys_mean_what_they_meant() {
    let consumer = "zookeeper.connect=z:2181\nbootstrap.servers=a:9092\ngroup.id=g\nauto.offset.reset=smallest\n\
                    fetch.message.max.bytes=2000000\noffsets.storage=kafka\nkmirror.batching=verbatim\n";
    let producer = "metadata.broker.list=b:9092\nproducer.type=async\nrequest.required.acks=1\n\
                    compression.codec=2\nqueue.buffering.max.ms=100\n";
    let report = load("old", consumer, producer, |_| {});
    let flow = settings(&report);
    assert_eq!(flow.auto_offset_reset, crate::mirror::OffsetReset::Earliest);
    assert_eq!(flow.fetch.max_partition_fetch_bytes, 2_000_000);
    assert_eq!(flow.compression, Some(crate::record::Codec::Snappy));
    assert_eq!(flow.gathering.linger.as_millis(), 100, "queue.buffering.max.ms");
    assert_eq!(flow.batching, crate::mirror::Batching::Verbatim);
    let said = said(&report);
    for part in [
        "c.properties:1: info: zookeeper.connect has no effect",
        "c.properties:4: warning: auto.offset.reset=smallest is called earliest today",
        "p.properties:1: warning: metadata.broker.list is called bootstrap.servers today",
        "p.properties:3: warning: request.required.acks is called acks today",
        "acks=1 is raised to all",
    ] {
        assert!(said.contains(part), "{part:?} in\n{said}");
    }
}

#[test]
fn what_cannot_work_is_refused_with_all_that_is_wrong() {
    for (name, consumer, producer, wanted) in [
        ("zk", "zookeeper.connect=z\ngroup.id=g\n", PRODUCER, "bootstrap.servers is missing"),
        ("group", "bootstrap.servers=a:1\n", PRODUCER, "group.id is missing"),
        ("offsets", &format!("{CONSUMER}offsets.storage=zookeeper\n"), PRODUCER, "cannot be read here"),
        (
            "assignor",
            &format!("{CONSUMER}partition.assignment.strategy=com.example.Mine\n"),
            PRODUCER,
            "partition.assignment.strategy: the Java class com.example.Mine cannot run here",
        ),
        (
            "partitioner",
            CONSUMER,
            &format!("{PRODUCER}partitioner.class=com.example.P\n"),
            "partitioner.class: the Java class com.example.P cannot run here",
        ),
        (
            "reset",
            &format!("{CONSUMER}auto.offset.reset=now\n"),
            PRODUCER,
            "auto.offset.reset: \"now\" is not one of",
        ),
        (
            "connect",
            &format!("{CONSUMER}kmirror.connect.group.id=x\n"),
            PRODUCER,
            "kmirror.connect.group.id: it means",
        ),
        (
            "beat",
            &format!("{CONSUMER}session.timeout.ms=3000\nheartbeat.interval.ms=3000\n"),
            PRODUCER,
            "heartbeat.interval.ms must be less than session.timeout.ms",
        ),
    ] {
        let report = load(name, consumer, producer, |_| {});
        assert!(report.settings.is_none(), "{name}");
        assert!(said(&report).contains(wanted), "{name}: {}", said(&report));
    }
    for (name, change, wanted) in [
        (
            "none",
            (|command| command.include = None) as fn(&mut MirrorMaker1),
            "which topics are to be copied",
        ),
        ("empty", |command| command.include = Some(("--whitelist", " ".to_owned())), "--whitelist is empty"),
        ("regex", |command| command.include = Some(("--whitelist", "(".to_owned())), "--whitelist: ("),
        (
            "rewrite",
            |command| command.rewrite_topics = vec!["a".to_owned()],
            "--rewrite.topics: \"a\" is not FROM:TO",
        ),
        (
            "missing",
            |command| command.producer_config = PathBuf::from("/nonexistent"),
            "/nonexistent cannot be read",
        ),
    ] {
        let report = load(name, CONSUMER, PRODUCER, change);
        assert!(report.settings.is_none() && said(&report).contains(wanted), "{name}: {}", said(&report));
    }
}

#[test]
fn flags_reach_the_flow() {
    let report = load("flags", CONSUMER, PRODUCER, |command| {
        (command.include, command.exclude) = (None, Some("internal-.*".to_owned()));
        command.offset_commit_interval = Some(Duration::from_secs(60));
        command.on_send_failure = OnSendFailure::Skip;
        command.rewrite_topics = vec!["a:b".to_owned()];
    });
    let flow = settings(&report);
    assert!(flow.topics.matches("internal-x") && flow.topics_exclude.matches("internal-x"));
    assert_eq!(flow.offset_flush_interval, Duration::from_secs(60));
    assert_eq!((flow.on_oversize, flow.on_refused), (OnOversize::Skip, OnRefused::Skip));
    assert_eq!(flow.policy.remote_topic("source", "a"), "b");
}

#[test]
fn several_sources_have_a_flow_each() {
    let files = Files::new("several");
    let second = files.put("second.properties", "bootstrap.servers=c:9092\ngroup.id=h\n");
    let report = load("several", CONSUMER, PRODUCER, |command| command.consumer_configs.push(second.clone()));
    let settings = report.settings.as_ref().unwrap_or_else(|| panic!("{}", said(&report)));
    let flows: Vec<(String, String)> = settings
        .process
        .flows
        .iter()
        .map(|flow| (flow.source.to_string(), flow.group.as_ref().unwrap().group_id.to_string()))
        .collect();
    assert_eq!(flows, [("source-1".to_owned(), "g".to_owned()), ("source-2".to_owned(), "h".to_owned())]);
}

/// `Whitelist` of `TopicFilter.scala`.
#[test]
fn patterns_are_cleaned_as_mirror_maker_does() {
    for (written, meant) in [("a,b", "a|b"), (" 'a , b' ", "a|b"), ("\"x.*\"", "x.*")] {
        assert_eq!(cleaned(written), meant);
    }
}

#[test]
fn secrets_of_both_files_are_hidden() {
    let consumer = format!("{CONSUMER}ssl.truststore.password=hunter2\n");
    let producer = format!("{PRODUCER}sasl.jaas.config=hunter3\nnonsense=1\n");
    let report = load("secrets", &consumer, &producer, |_| {});
    let everything = format!("{:?}", report);
    assert!(!everything.contains("hunter"), "{}", said(&report));
    assert!(said(&report).contains("p.properties:3: warning: nonsense is not known"), "{}", said(&report));
}

#[test]
fn the_examples_load_without_a_word() {
    let file = |name: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/mirror-maker-1/");
        PathBuf::from(format!("{folder}{name}"))
    };
    let command = command(file("consumer.properties"), file("producer.properties"));
    let report = load_mirror_maker_1(&command, Outside::real());
    assert_eq!(said(&report), "");
    settings(&report);
}

//! Side by side: MirrorMaker 2 from A to B and kmirror from A to C, on the same file but for the target. Everything that
//! either leaves on its target and on the source is compared, and each difference must be one that README lists.

use kmirror::mirror::mm2::formats::{Checkpoint, Heartbeat, OffsetSync};
use protocol_tests::kafka::{
    Admin, Client, ClusterSpec, GroupRead, Isolation, Kafka, MirrorMaker, real_kafka,
};
use protocol_tests::mirror::Kmirror;
use protocol_tests::records::{ReadRecord, TestRecord};
use protocol_tests::wait::{Look, wait_for};
use protocol_tests::{Result, workspace};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(120);
const SMALL_JVM: [&str; 4] = ["-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// What differs, and how README's table of deliberate differences begins the row that says why.
const DELIBERATE: &[(&str, &str)] = &[
    ("checkpoint far-behind ", EXACT),
    ("checkpoint in-middle ", EXACT),
    ("translated far-behind ", EXACT),
    ("translated in-middle ", EXACT),
    ("group far-behind ", EXACT),
    ("group in-middle ", EXACT),
    ("target A.side.times message.timestamp.after.max.ms", "`config.properties.exclude`"),
    ("position [\"MirrorCheckpointConnector\"", CONNECT_RECORDS),
    ("target mm2-configs.A.internal", CONNECT_TOPICS),
    ("target mm2-status.A.internal", CONNECT_TOPICS),
    ("target mm2-kmirror.A.internal", CONNECT_TOPICS),
    ("source mm2-configs.TARGET.internal", CONNECT_TOPICS),
    ("source mm2-status.TARGET.internal", CONNECT_TOPICS),
    ("source mm2-offsets.TARGET.internal", CONNECT_TOPICS),
];
const EXACT: &str = "a group in the middle of a topic goes on";
const CONNECT_TOPICS: &str = "topics of Connect's own";
const CONNECT_RECORDS: &str = "`mm2-offsets.<source>.internal`";

/// The target of one mirror, and what it is called in its file. The source is A in both.
struct Side {
    kafka: Kafka,
    alias: &'static str,
}

impl Side {
    fn start(alias: &'static str) -> Result<Side> {
        Ok(Side { kafka: Kafka::start(spec(alias))?, alias })
    }

    fn admin(&self, java: &'static Client) -> Admin<'static> {
        java.admin(&self.kafka.bootstrap())
    }

    /// With the alias of this side replaced by that of all.
    fn neutral(&self, text: &str) -> String {
        text.replace(self.alias, "TARGET")
    }
}

fn spec(name: &str) -> ClusterSpec {
    ClusterSpec::new(name)
        .set("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
        .set("super.users", "User:ANONYMOUS")
        .jvm_options(&SMALL_JVM)
}

fn file(source: &str, side: &Side) -> String {
    let (target, bootstrap) = (side.alias, side.kafka.bootstrap());
    format!(
        "clusters = A, {target}
A.bootstrap.servers = {source}
{target}.bootstrap.servers = {bootstrap}
A->{target}.enabled = true
A->{target}.topics = side.*
replication.factor = 1
heartbeats.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
A.offset.storage.replication.factor = 1
A.config.storage.replication.factor = 1
A.status.storage.replication.factor = 1
{target}.offset.storage.replication.factor = 1
{target}.config.storage.replication.factor = 1
{target}.status.storage.replication.factor = 1
{target}.offset.flush.interval.ms = 1000
refresh.topics.interval.seconds = 1
refresh.groups.interval.seconds = 1
sync.topic.configs.interval.seconds = 1
sync.topic.acls.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
"
    )
}

fn numbered(partition: i32, range: std::ops::Range<u32>) -> Vec<TestRecord> {
    range.map(|number| TestRecord::new("k", number.to_string()).to_partition(partition)).collect()
}

const GROUPS: [(&str, Option<u64>); 4] =
    [("at-end", None), ("in-middle", Some(1_337)), ("at-start", Some(1)), ("far-behind", Some(200))];

/// Topics of many kinds, their ACLs, and groups that stand everywhere.
fn populate(java: &'static Client, source: &str) -> Result<()> {
    let admin = java.admin(source);
    type Topic<'a> = (&'a str, i32, &'a [(&'a str, &'a str)]);
    let topics: &[Topic<'_>] = &[
        ("side.plain", 1, &[]),
        ("side.kept", 3, &[("retention.ms", "123456789"), ("segment.bytes", "2000000")]),
        ("side.compacted", 1, &[("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.1")]),
        ("side.both", 1, &[("cleanup.policy", "compact,delete"), ("compression.type", "lz4")]),
        (
            "side.excluded",
            1,
            &[
                ("min.insync.replicas", "1"),
                ("unclean.leader.election.enable", "true"),
                ("message.timestamp.type", "LogAppendTime"),
                ("leader.replication.throttled.replicas", "*"),
                ("max.message.bytes", "900000"),
            ],
        ),
        ("side.times", 1, &[("message.timestamp.after.max.ms", "7200000")]),
        ("side.empty", 2, &[]),
        ("side.owned.internal", 1, &[]),
        ("side.x.replica", 1, &[]),
        ("side-heartbeats", 1, &[]),
        ("A.side.back", 1, &[]),
        ("other", 1, &[]),
    ];
    for (topic, partitions, configs) in topics {
        admin.create_topic(topic, *partitions, configs)?;
    }
    java.produce(source, "side.plain", &numbered(0, 0..3_000))?;
    for topic in ["side.compacted", "side.both", "side.excluded", "side.times", "side.owned.internal"] {
        java.produce(source, topic, &numbered(0, 0..50))?;
    }
    for partition in 0..3 {
        java.produce(source, "side.kept", &numbered(partition, 0..70))?;
    }
    for (pattern, topic, principal, operation, permission) in [
        ("literal", "side.plain", "User:reader", "read", "allow"),
        ("literal", "side.plain", "User:writer", "write", "allow"),
        ("literal", "side.plain", "User:denied", "write", "deny"),
        ("literal", "side.plain", "User:owner", "all", "allow"),
        ("literal", "side.kept", "User:looker", "describe", "allow"),
        ("literal", "side.x.replica", "User:reader", "read", "allow"),
        ("literal", "other", "User:reader", "read", "allow"),
        ("prefixed", "side", "User:reader", "read", "allow"),
    ] {
        admin.create_topic_acl(pattern, topic, principal, operation, permission)?;
    }
    for (group, records) in GROUPS {
        java.read_as_group(
            source,
            GroupRead {
                group,
                protocol: "consumer",
                topic: "side.plain",
                records,
                reset: "earliest",
                isolation: Isolation::ReadUncommitted,
            },
        )?;
    }
    admin.commit_group_offset("outside", "other", 0, 0)
}

/// What changes at the source while both run.
fn change(java: &'static Client, source: &str) -> Result<()> {
    let admin = java.admin(source);
    admin.create_partitions("side.plain", 2)?;
    admin.create_topic("side.late", 2, &[("retention.bytes", "77777777")])?;
    admin.alter_topic_configs(
        "side.kept",
        &[("retention.ms", None), ("max.message.bytes", Some("1234567"))],
    )?;
    admin.create_topic_acl("literal", "side.late", "User:late", "read", "allow")?;
    java.produce(source, "side.late", &numbered(1, 0..10))?;
    java.produce(source, "side.plain", &numbered(1, 0..10))?;
    Ok(())
}

/// A side that has followed all changes and all groups.
fn wait_followed(
    java: &'static Client,
    side: &Side,
    output: &mut dyn FnMut() -> Result<String>,
) -> Result<()> {
    let (admin, bootstrap) = (side.admin(java), side.kafka.bootstrap());
    wait_for(&format!("{} to follow", side.alias), TIMEOUT, || {
        let log = output()?;
        let pending = |what: String| Ok(Look::Pending(format!("{what}\n{log}")));
        let topics = admin.topics()?;
        for needed in ["A.side.late", "A.heartbeats", "A.checkpoints.internal"] {
            if !topics.iter().any(|topic| topic == needed) {
                return pending(format!("no {needed} in {topics:?}"));
            }
        }
        for (topic, partition, wanted) in
            [("A.side.late", 1, 10), ("A.side.plain", 0, 3_000), ("A.side.plain", 1, 10)]
        {
            let offsets = admin.offsets(topic, Isolation::ReadUncommitted)?;
            if offsets.get(&partition).is_none_or(|offsets| offsets.latest != wanted) {
                return pending(format!("{topic}: {offsets:?}"));
            }
        }
        if admin.topic_configs("A.side.kept")?.get("max.message.bytes").map(String::as_str) != Some("1234567")
        {
            return pending("configs of side.kept".to_owned());
        }
        let acls = admin.acls()?;
        if !acls.iter().any(|acl| acl.contains("User:late")) {
            return pending(format!("{acls:?}"));
        }
        let checkpoints = checkpoints(java, &bootstrap)?;
        let at_end = admin.group_offsets("at-end")?.get(&("A.side.plain".to_owned(), 0)).copied();
        if checkpoints.len() < GROUPS.len() || at_end != Some(3_000) {
            return pending(format!("{checkpoints:?}, at-end {at_end:?}"));
        }
        Ok(Look::Done(()))
    })
}

type Facts = BTreeMap<String, String>;

fn read(java: &Client, bootstrap: &str, topic: &str) -> Result<Vec<ReadRecord>> {
    java.read(bootstrap, topic, Isolation::ReadCommitted)
}

fn parts(record: ReadRecord) -> (Vec<u8>, Vec<u8>) {
    (record.key.unwrap_or_default(), record.value.unwrap_or_default())
}

/// The newest checkpoints: upstream and downstream by group, topic and partition.
fn checkpoints(java: &Client, bootstrap: &str) -> Result<BTreeMap<String, (i64, i64, String)>> {
    let records = read(java, bootstrap, "A.checkpoints.internal")?;
    let decoded = records.into_iter().map(parts).map(|(key, value)| {
        let found = Checkpoint::decode(&key, &value).unwrap();
        let place = format!("{} {} {}", found.group, found.target.topic, found.target.partition);
        (place, (found.upstream, found.downstream, found.metadata.to_string()))
    });
    Ok(decoded.collect())
}

/// Everything about one mirror, without what is the other's and without what must differ (times, the target's name).
fn facts(java: &'static Client, source: &str, side: &Side, other: &Side) -> Result<Facts> {
    let mut facts = Facts::new();
    let target = side.kafka.bootstrap();
    for (place, bootstrap) in [("target", target.as_str()), ("source", source)] {
        let admin = java.admin(bootstrap);
        for topic in admin.topics()? {
            let own = format!(".{}.internal", other.alias);
            if topic.contains(&own) || topic.starts_with("__") {
                continue;
            }
            let name = format!("{place} {}", side.neutral(&topic));
            let partitions = admin.describe_topic(&topic)?.unwrap_or_default();
            facts.insert(name.clone(), format!("{} partitions", partitions.len()));
            for (key, value) in admin.topic_configs(&topic)? {
                facts.insert(format!("{name} {key}"), value);
            }
        }
        for acl in admin.acls()? {
            facts.insert(format!("{place} acl {acl}"), String::new());
        }
    }
    for (place, bootstrap) in [("target", target.as_str()), ("source", source)] {
        for (key, value) in read(java, bootstrap, "heartbeats")?.into_iter().map(parts) {
            let beat = Heartbeat::decode(&key, &value).unwrap();
            let pair = format!("{}->{}", beat.source, beat.target);
            if !pair.contains(other.alias) {
                facts.insert(
                    format!("{place} heartbeat {}", side.neutral(&pair)),
                    format!("{} bytes", value.len()),
                );
            }
        }
    }
    for (place, (upstream, downstream, metadata)) in checkpoints(java, &target)? {
        facts.insert(format!("checkpoint {place}"), format!("{upstream} -> {downstream} {metadata:?}"));
    }
    for (group, _) in GROUPS.into_iter().chain([("outside", None)]) {
        for ((topic, partition), offset) in side.admin(java).group_offsets(group)? {
            facts.insert(format!("group {group} {topic} {partition}"), offset.to_string());
        }
        for ((topic, partition), offset) in java.translate_offsets(&target, "A", group)? {
            facts.insert(format!("translated {group} {topic} {partition}"), offset.to_string());
        }
    }
    for record in read(java, &target, "mm2-offsets.A.internal")? {
        let partition = record.partition;
        let (key, value) = parts(record);
        let (key, value) =
            (String::from_utf8_lossy(&key).into_owned(), String::from_utf8_lossy(&value).into_owned());
        // Heartbeats go on while this is read.
        if !key.contains("heartbeats") && !key.contains("Heartbeat") {
            facts.insert(format!("position {} in {partition}", side.neutral(&key)), value);
        }
    }
    let syncs = format!("mm2-offset-syncs.{}.internal", side.alias);
    let mut last = BTreeMap::new();
    for (key, value) in read(java, source, &syncs)?.into_iter().map(parts) {
        let sync = OffsetSync::decode(&key, &value).unwrap();
        last.insert(
            format!("{} {}", sync.source.topic, sync.source.partition),
            (sync.upstream, sync.downstream),
        );
    }
    for (place, sync) in last {
        if !place.contains("heartbeats") {
            facts.insert(format!("last offset sync {place}"), format!("{sync:?}"));
        }
    }
    let view = java.mirror_view(&target, "A")?;
    facts.insert("MirrorClient".to_owned(), format!("{view:?}"));
    Ok(facts)
}

#[test]
fn both_mirrors_leave_the_same_behind() -> Result<()> {
    let Some(real) = real_kafka()? else { return Ok(()) };
    let java: &'static Client = &real.java;
    let a = Kafka::start(spec("a"))?;
    let (theirs, ours) = (Side::start("MMMM")?, Side::start("KKKK")?);
    let source = a.bootstrap();
    populate(java, &source)?;
    let mirror_maker = MirrorMaker::start(&file(&source, &theirs), &SMALL_JVM)?;
    let mut kmirror = Kmirror::start(&["run"], &file(&source, &ours))?;
    for side in [&theirs, &ours] {
        let admin = side.admin(java);
        wait_for("the first topics", TIMEOUT, || {
            let topics = admin.topics()?;
            let done = topics.iter().any(|topic| topic == "A.side.plain");
            Ok(if done { Look::Done(()) } else { Look::Pending(format!("{topics:?}\n{}", kmirror.output())) })
        })?;
    }
    change(java, &source)?;
    wait_followed(java, &theirs, &mut || Ok(mirror_maker.output()))?;
    wait_followed(java, &ours, &mut || kmirror.expect_running().map(|()| kmirror.output()))?;
    // Every interval is a second: what is to come by itself has come after a few.
    std::thread::sleep(Duration::from_secs(4));
    let (left, right) = (facts(java, &source, &theirs, &ours)?, facts(java, &source, &ours, &theirs)?);
    mirror_maker.stop()?;
    assert_eq!(kmirror.stop(TIMEOUT)?, 0, "{}", kmirror.output());

    let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    let shown = |side: &Facts, name: &str| side.get(name).cloned().unwrap_or_else(|| "absent".to_owned());
    let different: BTreeMap<&str, String> = names
        .into_iter()
        .filter(|name| left.get(*name) != right.get(*name))
        .map(|name| {
            (name.as_str(), format!("MirrorMaker: {}, kmirror: {}", shown(&left, name), shown(&right, name)))
        })
        .collect();
    println!("{} facts, {} differences\n{different:#?}", left.len(), different.len());
    let readme = std::fs::read_to_string(workspace().join("README.md")).unwrap();
    let expected = |name: &str| DELIBERATE.iter().find(|(begins, _)| name.starts_with(begins));
    for (name, values) in &different {
        let (_, row) = expected(name).unwrap_or_else(|| panic!("{name} differs: {values}"));
        assert!(readme.contains(&format!("| {row} |")), "README has no row {row:?}");
    }
    for (begins, _) in DELIBERATE {
        assert!(different.keys().any(|name| name.starts_with(begins)), "{begins} does not differ any more");
    }
    Ok(())
}

//! Groups between two real clusters: where they go on, what MirrorMaker's own clients make of our topics, and what
//! MirrorMaker makes of our offset syncs when it takes over.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use kmirror::mirror::mm2::formats::Checkpoint;
use protocol_tests::Result;
use protocol_tests::flow::FlowFile;
use protocol_tests::kafka::{ClusterSpec, Codec, GroupRead, Isolation, MirrorMaker, ProducerKind, Step};
use protocol_tests::mirror::Kmirror;
use protocol_tests::pair::{Pair, PairCell};
use protocol_tests::records::TestRecord;
use protocol_tests::traffic::Traffic;
use protocol_tests::wait::{Look, wait_for};
use std::collections::BTreeMap;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(90);

fn pair() -> Result<Option<&'static Pair>> {
    static PAIR: PairCell = PairCell::new();
    Pair::get(&PAIR, ClusterSpec::new("a"), ClusterSpec::new("b"))
}

fn translating(pair: &Pair, alias: &str, topics: &str) -> FlowFile {
    let mut flow = pair.flow(alias).topics(topics);
    for (key, value) in [
        ("emit.checkpoints.enabled", "true"),
        ("emit.checkpoints.interval.seconds", "1"),
        ("refresh.groups.interval.seconds", "1"),
        ("sync.group.offsets.enabled", "true"),
        ("sync.group.offsets.interval.seconds", "1"),
    ] {
        flow = flow.set(key, value);
    }
    flow.set_for_source("consumer.isolation.level", "read_committed")
}

fn numbered(range: std::ops::Range<u32>) -> Vec<TestRecord> {
    range.map(|number| TestRecord::new("k", number.to_string())).collect()
}

/// Transactions of 25 records, every fourth of them aborted.
fn transactions(pair: &Pair, topic: &str, range: std::ops::Range<u32>) -> Result<()> {
    let kind = ProducerKind::Transactional(format!("of {topic}"));
    let producer = pair.java().producer(&pair.a.bootstrap(), &kind, Codec::None, &[])?;
    for transaction in range {
        let mut steps = vec![Step::Begin];
        let records = numbered(transaction * 25..transaction * 25 + 25);
        steps.extend(records.into_iter().map(|record| Step::Send(topic.to_owned(), record)));
        steps.push(if transaction % 4 == 3 { Step::Abort } else { Step::Commit });
        producer.run(&steps)?;
    }
    Ok(())
}

/// The newest checkpoint of each (group, topic on the target): upstream and downstream.
fn checkpoints(pair: &Pair, alias: &str) -> Result<BTreeMap<(String, String), (i64, i64)>> {
    let topic = format!("{alias}.checkpoints.internal");
    if pair.target().describe_topic(&topic)?.is_none() {
        return Ok(BTreeMap::new());
    }
    let records = pair.java().read(&pair.b.bootstrap(), &topic, Isolation::ReadCommitted)?;
    let decoded = records.into_iter().map(|record| {
        let checkpoint = Checkpoint::decode(&record.key.unwrap(), &record.value.unwrap()).unwrap();
        let place = (checkpoint.group.to_string(), checkpoint.target.topic.to_string());
        (place, (checkpoint.upstream, checkpoint.downstream))
    });
    Ok(decoded.collect())
}

/// Groups of both protocols stop anywhere at the source and go on on the target: no record is skipped, none is read twice,
/// while records keep coming; also among transactions, whose markers and aborted records are not on the target.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_goes_on_exactly_where_it_stood() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let (a, b) = (pair.a.bootstrap(), pair.b.bootstrap());
    let flow = translating(pair, "G", "moved-.*");
    let committed = Isolation::ReadCommitted;
    for topic in ["moved-plain", "moved-txn"] {
        pair.source().create_topic(topic, 1, &[])?;
    }
    pair.java().produce(&a, "moved-plain", &numbered(0..1_000))?;
    transactions(pair, "moved-txn", 0..40)?;
    let mut mirror = Kmirror::start(&["run"], flow.text())?;

    let read = |group, protocol, topic, records| GroupRead {
        group,
        protocol,
        topic,
        records,
        reset: "earliest",
        isolation: committed,
    };
    let groups = [
        read("plain-end", "classic", "moved-plain", None),
        read("plain-middle", "consumer", "moved-plain", Some(337)),
        read("plain-start", "classic", "moved-plain", Some(1)),
        read("txn-end", "consumer", "moved-txn", None),
        read("txn-middle", "classic", "moved-txn", Some(333)),
        read("txn-edge", "consumer", "moved-txn", Some(300)),
    ];
    let mut before = Vec::new();
    for group in groups {
        before.push(pair.java().read_as_group(&a, group)?);
    }
    pair.java().produce(&a, "moved-plain", &numbered(1_000..1_500))?;
    transactions(pair, "moved-txn", 40..50)?;
    pair.wait_mirrored(&mut mirror, &flow, "moved-plain", committed, TIMEOUT)?;
    pair.wait_mirrored(&mut mirror, &flow, "moved-txn", committed, TIMEOUT)?;

    for group in groups {
        let stood = pair.source().group_offsets(group.group)?[&(group.topic.to_owned(), 0)];
        let remote = (flow.remote(group.topic), 0);
        wait_for(&format!("the offset of {} on the target", group.group), TIMEOUT, || {
            mirror.expect_running()?;
            let checkpoint =
                checkpoints(pair, "G")?.get(&(group.group.to_owned(), remote.0.clone())).copied();
            let there = pair.target().group_offsets(group.group)?.get(&remote).copied();
            let translated = pair.java().translate_offsets(&b, "G", group.group)?.get(&remote).copied();
            let same = checkpoint.map(|(_, downstream)| downstream);
            let done = checkpoint.is_some_and(|(upstream, _)| upstream == stood)
                && there == same
                && translated == same;
            Ok(if done {
                Look::Done(())
            } else {
                Look::Pending(format!("{checkpoint:?}, {there:?}, {translated:?} for {stood}"))
            })
        })?;
    }
    assert_eq!(mirror.stop(TIMEOUT)?, 0);

    for (group, mut values) in groups.into_iter().zip(before) {
        let all = pair.java().read(&a, group.topic, committed)?;
        let all: Vec<String> = all.iter().map(|record| record.value_text()).collect();
        let remote = flow.remote(group.topic);
        // Without an offset the client fails: it must not begin anywhere by itself.
        let on = GroupRead { topic: &remote, records: None, reset: "none", ..group };
        values.extend(pair.java().read_as_group(&b, on)?);
        assert_eq!(values, all, "{group:?}");
    }
    Ok(())
}

/// Case 38: a group with members on the target is left alone, and one that is further there is not taken back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_live_on_the_target_are_left_alone() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let a = pair.a.bootstrap();
    pair.source().create_topic("lived", 1, &[])?;
    pair.java().produce(&a, "lived", &numbered(0..100))?;
    let flow = translating(pair, "L", "lived");
    let mut mirror = Kmirror::start(&["run"], flow.text())?;
    pair.wait_mirrored(&mut mirror, &flow, "lived", Isolation::ReadCommitted, TIMEOUT)?;
    let target = pair.target();
    let member = target.join_group("lives", "L.lived")?;
    target.commit_group_offset("ahead", "L.lived", 0, 90)?;
    for (group, offset) in [("lives", 40), ("ahead", 50), ("plain", 60)] {
        pair.source().commit_group_offset(group, "lived", 0, offset)?;
    }
    let place = ("L.lived".to_owned(), 0);
    let at = |group: &str| -> Result<Option<i64>> { Ok(target.group_offsets(group)?.get(&place).copied()) };
    // All three have their checkpoints; the one that may be written is.
    wait_for("the checkpoints and the offset of plain", TIMEOUT, || {
        let found = checkpoints(pair, "L")?;
        let done = found.len() == 3 && at("plain")? == Some(60);
        Ok(if done { Look::Done(()) } else { Look::Pending(format!("{found:?}")) })
    })?;
    assert_eq!(at("lives")?, None);
    assert_eq!(at("ahead")?, Some(90));
    // Once its members are gone it follows.
    drop(member);
    wait_for("the offset of lives", TIMEOUT, || {
        Ok(if at("lives")? == Some(40) { Look::Done(()) } else { Look::Pending(mirror.output()) })
    })?;
    assert_eq!(mirror.stop(TIMEOUT)?, 0);
    Ok(())
}

/// What `MirrorClient` finds on our target.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirror_makers_client_finds_its_way() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    pair.source().create_topic("found", 1, &[])?;
    pair.java().produce(&pair.a.bootstrap(), "found", &numbered(0..3))?;
    let flow = translating(pair, "M", "found")
        .set("emit.heartbeats.enabled", "true")
        .set("B->M.emit.heartbeats.enabled", "true");
    let mut mirror = Kmirror::start(&["run"], flow.text())?;
    // Heartbeats of the source are replicated once a round has found their topic.
    wait_for("what MirrorMaker's client looks for", TIMEOUT, || {
        mirror.expect_running()?;
        let view = pair.java().mirror_view(&pair.b.bootstrap(), "M")?;
        let has = |list: &[String], name: &str| list.iter().any(|found| found == name);
        let done = view.hops == 1
            && has(&view.heartbeat_topics, "heartbeats")
            && has(&view.heartbeat_topics, "M.heartbeats")
            && has(&view.checkpoint_topics, "M.checkpoints.internal")
            && has(&view.upstream_clusters, "M")
            && has(&view.remote_topics, "M.found");
        Ok(if done { Look::Done(()) } else { Look::Pending(format!("{view:?}")) })
    })?;
    assert_eq!(mirror.stop(TIMEOUT)?, 0);
    for topic in ["heartbeats", "M.checkpoints.internal"] {
        let configs = pair.target().topic_configs(topic)?;
        assert_eq!(configs.get("cleanup.policy").map(String::as_str), Some("compact"), "{topic}");
    }
    Ok(())
}

/// A MirrorMaker that takes over translates by the syncs that we left: close, and never too far.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirror_maker_translates_by_our_syncs() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    pair.source().create_topic("rolled", 1, &[])?;
    pair.java().produce(&pair.a.bootstrap(), "rolled", &numbered(0..5_000))?;
    let stood = [("rolled-end", 5_000), ("rolled-near", 4_700), ("rolled-far", 1_000)];
    for (group, offset) in stood {
        pair.source().commit_group_offset(group, "rolled", 0, offset)?;
    }
    let flow = pair.flow("R").topics("rolled").single_replicas();
    Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;

    let theirs = flow
        .clone()
        .set("emit.checkpoints.enabled", "true")
        .set("emit.checkpoints.interval.seconds", "1")
        .set("groups", "rolled-.*");
    let jvm = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
    let mirror = MirrorMaker::start(theirs.text(), &jvm)?;
    let found = wait_for("MirrorMaker's checkpoints", TIMEOUT, || {
        let found = checkpoints(pair, "R")?;
        Ok(if found.len() == 3 { Look::Done(found) } else { Look::Pending(format!("{found:?}")) })
    })?;
    mirror.stop()?;
    for (group, offset) in stood {
        let (upstream, downstream) = found[&(group.to_owned(), "R.rolled".to_owned())];
        assert_eq!(upstream, offset);
        let behind = 5_000 - offset;
        assert!(
            (offset - 2 * behind - 100..=offset).contains(&downstream),
            "{group}: {downstream} for {offset}"
        );
    }
    assert_eq!(pair.target_end("R.rolled", 0)?, 5_000, "nothing was copied twice");
    Ok(())
}

/// Overwrites keys until the cleaner has made holes, and turns it off; gives the offsets of the records that are left.
fn compacted(pair: &Pair, topic: &str) -> Result<Vec<i64>> {
    let eager =
        [("cleanup.policy", "compact"), ("segment.ms", "150"), ("min.cleanable.dirty.ratio", "0.001")];
    pair.source().create_topic(topic, 1, &eager)?;
    let offsets = || -> Result<Vec<i64>> {
        let records = pair.java().read(&pair.a.bootstrap(), topic, Isolation::ReadUncommitted)?;
        Ok(records.iter().map(|record| record.offset).collect())
    };
    // Every fourth record stays, the others are overwritten.
    let key = |number: usize| if number.is_multiple_of(4) { number.to_string() } else { "again".to_owned() };
    let mut written = 0;
    wait_for("the cleaner", TIMEOUT, || {
        let records: Vec<TestRecord> =
            (0..20).map(|number| TestRecord::new(key(written + number), "v")).collect();
        pair.java().produce(&pair.a.bootstrap(), topic, &records)?;
        written += records.len();
        let left = offsets()?.len();
        let done = written >= 100 && left + 40 < written;
        Ok(if done { Look::Done(()) } else { Look::Pending(format!("{left} of {written}")) })
    })?;
    let off = [("min.cleanable.dirty.ratio", Some("1.0")), ("segment.ms", Some("86400000"))];
    pair.source().alter_topic_configs(topic, &off)?;
    // Records that stay, so that groups can stand among them as well.
    let kept: Vec<TestRecord> =
        (0..100u32).map(|number| TestRecord::new(format!("kept {number}"), "v")).collect();
    pair.java().produce(&pair.a.bootstrap(), topic, &kept)?;
    let mut before = Vec::new();
    wait_for("the end of the cleaning", TIMEOUT, || {
        std::thread::sleep(Duration::from_secs(1));
        let left = offsets()?;
        let still = left == before;
        before.clone_from(&left);
        Ok(if still { Look::Done(left) } else { Look::Pending(format!("{} records", before.len())) })
    })
}

/// Cases 32 and 33. Streams groups (KIP-1071) and others stand at the start, far behind, in a hole, in the middle and at the
/// end of a compacted topic and of one with transactions: the offset on the target is that of the first record that the group
/// has not read, neither later nor earlier, and `RemoteClusterUtils` says the same.
#[test]
fn groups_on_compacted_and_transactional_topics_skip_and_repeat_nothing() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let (a, b) = (pair.a.bootstrap(), pair.b.bootstrap());
    let flow = translating(pair, "S", "kinds-.*");
    let left = compacted(pair, "kinds-compacted")?;
    pair.source().create_topic("kinds-txn", 1, &[])?;
    transactions(pair, "kinds-txn", 0..40)?;
    let mut stood: Vec<(String, &str, i64)> = Vec::new();
    for topic in ["kinds-compacted", "kinds-txn"] {
        let end = pair.source().offsets(topic, Isolation::ReadCommitted)?[&0].latest;
        let hole = left.windows(2).find(|pair| pair[1] > pair[0] + 1).expect("a hole")[0] + 1;
        for (place, offset) in [
            ("start", 0),
            ("behind", 7),
            ("hole", hole),
            ("middle", end / 2),
            ("near", end - 3),
            ("end", end),
        ] {
            for kind in ["classic", "streams"] {
                let group = format!("{topic}-{place}-{kind}");
                if kind == "streams" {
                    pair.source().make_streams_group(&group, topic)?;
                }
                pair.source().commit_group_offset(&group, topic, 0, offset)?;
                stood.push((group, topic, offset));
            }
        }
    }
    let mut mirror = Kmirror::start(&["run"], flow.text())?;
    for topic in ["kinds-compacted", "kinds-txn"] {
        pair.wait_mirrored(&mut mirror, &flow, topic, Isolation::ReadCommitted, TIMEOUT)?;
    }
    for (group, topic, offset) in &stood {
        let records = pair.java().read(&a, topic, Isolation::ReadCommitted)?;
        // The copy has no holes: its offsets count the records.
        let unread = records.iter().filter(|record| record.offset < *offset).count() as i64;
        let place = (flow.remote(topic), 0);
        wait_for(&format!("{group} at {unread}, which stood at {offset}"), TIMEOUT, || {
            mirror.expect_running()?;
            let checkpoint = checkpoints(pair, "S")?.get(&(group.clone(), place.0.clone())).copied();
            let translated = pair.java().translate_offsets(&b, "S", group)?.get(&place).copied();
            let there = pair.target().group_offsets(group)?.get(&place).copied();
            let done =
                checkpoint == Some((*offset, unread)) && translated == Some(unread) && there == translated;
            Ok(if done {
                Look::Done(())
            } else {
                Look::Pending(format!("{checkpoint:?}, {translated:?}, {there:?}"))
            })
        })?;
    }
    assert_eq!(mirror.stop(TIMEOUT)?, 0);
    Ok(())
}

/// Groups that are stopped in the middle of a batch, at a batch's edge and wherever the end happens to be, while records keep
/// coming, go on at the target with the next record.
#[test]
fn groups_move_under_load_without_a_repeat() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let (a, b) = (pair.a.bootstrap(), pair.b.bootstrap());
    let flow = translating(pair, "U", "loaded");
    pair.source().create_topic("loaded", 1, &[])?;
    let traffic = Traffic::start(pair.java(), &a, "loaded", 1, 5, Duration::from_millis(20));
    let mut mirror = Kmirror::start(&["run"], flow.text())?;
    let remote = (flow.remote("loaded"), 0);
    for (group, protocol, records) in [
        ("load-middle", "classic", Some(333)),
        ("load-edge", "consumer", Some(335)),
        ("load-end", "consumer", None),
        ("load-one", "classic", Some(1)),
    ] {
        let isolation = Isolation::ReadCommitted;
        let read = GroupRead { group, protocol, topic: "loaded", records, reset: "earliest", isolation };
        wait_for("enough records", TIMEOUT, || {
            let sent = traffic.sent();
            Ok(if sent > 340 { Look::Done(()) } else { Look::Pending(sent.to_string()) })
        })?;
        let mut values = pair.java().read_as_group(&a, read)?;
        let stood = pair.source().group_offsets(group)?[&("loaded".to_owned(), 0)];
        assert_eq!(stood, values.len() as i64);
        wait_for(&format!("{group} at {stood} on the target"), TIMEOUT, || {
            mirror.expect_running()?;
            let there = pair.target().group_offsets(group)?.get(&remote).copied();
            Ok(if there == Some(stood) {
                Look::Done(())
            } else {
                Look::Pending(format!("{there:?}\n{}", mirror.output()))
            })
        })?;
        let on = GroupRead { topic: &remote.0, records: None, reset: "none", ..read };
        values.extend(pair.java().read_as_group(&b, on)?);
        let wanted: Vec<String> = (0..values.len()).map(|number| format!("0:{number}")).collect();
        assert_eq!(values, wanted, "{group} skipped or repeated records");
        assert!(values.len() as i64 > stood, "{group} read on");
    }
    traffic.stop()?;
    assert_eq!(mirror.stop(TIMEOUT)?, 0);
    Ok(())
}

//! `kmirror mirror-maker` on real clusters: members of one consumer group that share a job, beside a Java consumer and a real
//! MirrorMaker 1.

use protocol_tests::Result;
use protocol_tests::kafka::{Client, ClusterSpec, Isolation, MirrorMaker1};
use protocol_tests::mirror::Kmirror;
use protocol_tests::pair::{Pair, PairCell};
use protocol_tests::process::{Signal, tail};
use protocol_tests::records::{ReadRecord, TestRecord};
use protocol_tests::traffic::{Traffic, all_runs, check_numbers, numbered};
use protocol_tests::wait::{Look, wait_for};
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(20);
const PARTITIONS: i32 = 6;

fn pair() -> Result<Option<&'static Pair>> {
    static PAIR: PairCell = PairCell::new();
    Pair::get(&PAIR, ClusterSpec::new("a"), ClusterSpec::new("b"))
}

fn consumer(pair: &Pair, group: &str, more: &str) -> String {
    format!(
        "bootstrap.servers={}\ngroup.id={group}\nauto.offset.reset=earliest\nsession.timeout.ms=6000\n\
         heartbeat.interval.ms=500\nkmirror.admin.listen=none\n{more}",
        pair.a.bootstrap()
    )
}

fn producer(pair: &Pair) -> String {
    format!("bootstrap.servers={}\nacks=all\n", pair.b.bootstrap())
}

/// One more process of a group.
fn mirror_maker(pair: &Pair, group: &str, more: &str, include: &str) -> Result<Kmirror> {
    let arguments = [
        "mirror-maker",
        "--consumer.config",
        "@consumer.properties",
        "--producer.config",
        "@producer.properties",
        "--include",
        include,
        "--offset.commit.interval.ms",
        "1000",
    ];
    let files =
        [("consumer.properties", consumer(pair, group, more)), ("producer.properties", producer(pair))];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    Kmirror::start_as("kmirror", &arguments, &files)
}

fn wait_members(pair: &Pair, group: &str, count: usize, mirrors: &[&Kmirror]) -> Result<()> {
    wait_for(&format!("{count} members of {group}"), TIMEOUT, || {
        let members = pair.source().group_members(group)?;
        let all_have = members.len() == count && members.iter().all(|member| member.partitions > 0);
        Ok(if all_have { Look::Done(()) } else { Look::Pending(format!("{members:?}\n{}", logs(mirrors))) })
    })
}

fn logs(mirrors: &[&Kmirror]) -> String {
    mirrors.iter().map(|mirror| tail(&mirror.output(), 40)).collect::<Vec<_>>().join("\n--\n")
}

fn read_target(pair: &Pair, client: &Client, topic: &str) -> Result<Vec<ReadRecord>> {
    if pair.target().describe_topic(topic)?.is_none() {
        return Ok(Vec::new());
    }
    client.read(&pair.b.bootstrap(), topic, Isolation::ReadUncommitted)
}

/// Waits until each number is at the target, in the order of its partition; gives how many came again.
fn wait_all(pair: &Pair, topic: &str, sent: i64, mirrors: &[&Kmirror]) -> Result<u64> {
    wait_for(&format!("all of {topic}"), TIMEOUT, || {
        let records = read_target(pair, pair.java(), topic)?;
        Ok(match check_numbers(&records, PARTITIONS, sent) {
            Ok(repeated) => Look::Done(repeated),
            Err(reason) => Look::Pending(format!("{reason}\n{}", logs(mirrors))),
        })
    })
}

/// The group's offsets are the ends of the topic.
fn wait_no_lag(pair: &Pair, group: &str, topic: &str) -> Result<()> {
    wait_for(&format!("{group} to have no lag"), TIMEOUT, || {
        let ends = pair.source().offsets(topic, Isolation::ReadUncommitted)?;
        let committed = pair.source().group_offsets(group)?;
        let lag: i64 = ends
            .iter()
            .map(|(&partition, ends)| {
                ends.latest - committed.get(&(topic.to_owned(), partition)).copied().unwrap_or(0)
            })
            .sum();
        Ok(if lag == 0 { Look::Done(()) } else { Look::Pending(format!("lag {lag}: {committed:?}")) })
    })
}

/// These numbers in each partition.
fn produce_numbers(pair: &Pair, topic: &str, numbers: Range<i64>) -> Result<()> {
    let of = |partition: i32| numbers.clone().map(move |number| numbered(partition, number));
    let records: Vec<TestRecord> = (0..PARTITIONS).flat_map(of).collect();
    pair.java().produce(&pair.a.bootstrap(), topic, &records).map(drop)
}

fn group_of(strategy: &str) -> (String, String, String) {
    let name = strategy.to_lowercase();
    let class = match strategy {
        "default" => String::new(),
        "consumer" => "group.protocol=consumer\n".to_owned(),
        class => format!("partition.assignment.strategy=org.apache.kafka.clients.consumer.{class}\n"),
    };
    (format!("job-{name}"), format!("shared-{name}"), class)
}

/// Processes join and leave in order, a Java consumer comes and goes: nothing is missing, nothing comes twice. One is killed:
/// nothing is missing, and what comes again is a run.
fn share(strategy: &str, with_java: bool) -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let (group, topic, more) = group_of(strategy);
    pair.source().create_topic(&topic, PARTITIONS, &[])?;
    let start = || mirror_maker(pair, &group, &more, &topic);
    let traffic = Traffic::start(pair.java(), &pair.a.bootstrap(), &topic, PARTITIONS, 10, PAUSE);
    let mut first = start()?;
    wait_members(pair, &group, 1, &[&first])?;
    let mut second = start()?;
    wait_members(pair, &group, 2, &[&first, &second])?;
    let mut third = start()?;
    wait_members(pair, &group, 3, &[&first, &second, &third])?;
    if with_java {
        // It commits nothing, so that what it was given comes back from where it was.
        let source = pair.source();
        let member = source.join_group(&group, &topic)?;
        wait_members(pair, &group, 4, &[&first, &second, &third])?;
        drop(member);
        wait_members(pair, &group, 3, &[&first, &second, &third])?;
    }
    assert_eq!(third.stop(TIMEOUT)?, 0, "{}", third.output());
    wait_members(pair, &group, 2, &[&first, &second])?;
    let sent = traffic.stop()?;
    let repeated = wait_all(pair, &topic, sent, &[&first, &second, &third])?;
    assert_eq!(
        repeated,
        0,
        "nothing comes twice in order\n{}\n{}",
        all_runs(&read_target(pair, pair.java(), &topic)?, PARTITIONS),
        logs(&[&first, &second, &third])
    );
    let rounds = 20;
    for round in 0..rounds {
        produce_numbers(pair, &topic, sent + round * 50..sent + (round + 1) * 50)?;
        if round == rounds / 3 {
            second.signal(Signal::Kill)?;
        }
    }
    second.wait(TIMEOUT)?;
    let repeated = wait_all(pair, &topic, sent + rounds * 50, &[&first])?;
    println!("{strategy}: {repeated} records came again after a kill");
    wait_no_lag(pair, &group, &topic)?;
    assert_eq!(first.stop(TIMEOUT)?, 0, "{}", first.output());
    let own: Vec<String> = pair.target().topics()?;
    assert!(own.iter().all(|topic| !topic.contains("mm2")), "no topics of MirrorMaker 2: {own:?}");
    Ok(())
}

#[test]
fn processes_and_a_java_consumer_share_a_group_under_range() -> Result<()> {
    share("default", true)
}

#[test]
fn processes_share_a_group_under_the_cooperative_assignor() -> Result<()> {
    share("CooperativeStickyAssignor", false)
}

#[test]
fn processes_share_a_group_under_round_robin_and_sticky() -> Result<()> {
    share("RoundRobinAssignor", false)?;
    share("StickyAssignor", false)
}

/// The coordinator deals partitions out (KIP-848); a Java consumer of the classic kind may be in the same group.
#[test]
fn processes_share_a_group_of_the_newer_protocol() -> Result<()> {
    share("consumer", false)
}

/// Two MirrorMakers of 3.9.1 are replaced one after the other, with traffic flowing. MirrorMaker 1 deals records out by key, so
/// that only the set of records can be compared: each is there, and none twice.
#[test]
fn a_real_mirror_maker_1_is_replaced_process_by_process() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let (group, topic) = ("replaced", "replaced");
    pair.source().create_topic(topic, PARTITIONS, &[])?;
    pair.target().create_topic(topic, PARTITIONS, &[])?;
    let consumer = format!(
        "bootstrap.servers={}\ngroup.id={group}\nauto.offset.reset=earliest\nsession.timeout.ms=6000\n",
        pair.a.bootstrap()
    );
    let old = || MirrorMaker1::start(&consumer, &producer(pair), &["--whitelist", topic]);
    let traffic = Traffic::start(pair.java(), &pair.a.bootstrap(), topic, PARTITIONS, 10, PAUSE);
    let (one, two) = (old()?, old()?);
    wait_members(pair, group, 2, &[])?;
    let mut first = mirror_maker(pair, group, "", topic)?;
    wait_members(pair, group, 3, &[&first])?;
    one.stop()?;
    wait_members(pair, group, 2, &[&first])?;
    let mut second = mirror_maker(pair, group, "", topic)?;
    wait_members(pair, group, 3, &[&first, &second])?;
    two.stop()?;
    wait_members(pair, group, 2, &[&first, &second])?;
    let sent = traffic.stop()?;
    let wanted: BTreeSet<String> =
        (0..PARTITIONS).flat_map(|partition| (0..sent).map(move |n| format!("{partition}:{n}"))).collect();
    let count = wait_for("each record", TIMEOUT, || {
        let values: Vec<String> =
            read_target(pair, pair.java(), topic)?.iter().map(ReadRecord::value_text).collect();
        let found: BTreeSet<String> = values.iter().cloned().collect();
        let missing = wanted.difference(&found).count();
        Ok(match missing {
            0 => Look::Done(values.len()),
            _ => Look::Pending(format!("{missing} are missing\n{}", tail(&first.output(), 30))),
        })
    })?;
    println!("{} records, {} of them again", wanted.len(), count - wanted.len());
    wait_no_lag(pair, group, topic)?;
    for mirror in [&mut first, &mut second] {
        assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
    }
    Ok(())
}

/// What a producer of Java's own makes of the same keys on the target is what is found there.
#[test]
fn records_are_dealt_out_as_javas_producer_does() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    pair.source().create_topic("dealt", 3, &[])?;
    for topic in ["dealt", "dealt-by-java"] {
        pair.target().create_topic(topic, 5, &[])?;
    }
    let records: Vec<TestRecord> =
        (0..1_000).map(|n| TestRecord::new(format!("key {}", n % 300), n.to_string())).collect();
    pair.java().produce(&pair.a.bootstrap(), "dealt", &records)?;
    pair.java().produce(&pair.b.bootstrap(), "dealt-by-java", &records)?;
    let by_partition = |topic: &str| -> Result<Vec<(i32, String)>> {
        let records = read_target(pair, pair.java(), topic)?;
        Ok(records.iter().map(|record| (record.partition, record.value_text())).collect())
    };
    let sorted = |mut records: Vec<(i32, String)>| {
        records.sort();
        records
    };
    let wanted = sorted(by_partition("dealt-by-java")?);
    let mut mirror = mirror_maker(pair, "dealer", "", "dealt")?;
    wait_for("the records of all partitions", TIMEOUT, || {
        mirror.expect_running()?;
        let found = sorted(by_partition("dealt")?);
        let seen = || format!("{} of {}\n{}", found.len(), wanted.len(), tail(&mirror.output(), 40));
        Ok(if found == wanted { Look::Done(()) } else { Look::Pending(seen()) })
    })?;
    // Of one key, in the order in which they were sent.
    let mut last = std::collections::BTreeMap::new();
    for (_, value) in by_partition("dealt")? {
        let number: u64 = value.parse().unwrap_or_default();
        let before = last.insert(number % 300, number);
        assert!(before.is_none_or(|before| before < number), "{number} after {before:?}");
    }
    wait_no_lag(pair, "dealer", "dealt")?;
    assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
    Ok(())
}

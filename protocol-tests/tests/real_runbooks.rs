//! The files and command lines that users have, step by step as their runbooks have it, with Kafka's own tools: records are
//! written on the source by the console producer and read on the target by the console consumer; topics, counts and lag are
//! looked at with `kafka-topics.sh` and `kafka-consumer-groups.sh`.

use protocol_tests::kafka::{ClusterSpec, Console};
use protocol_tests::mirror::Kmirror;
use protocol_tests::pair::{Pair, PairCell};
use protocol_tests::process::tail;
use protocol_tests::wait::{Look, wait_for};
use protocol_tests::{Result, workspace};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(120);
const PARTITIONS: i32 = 3;
const RECORDS: usize = 100;

/// One after the other: some of them take all topics.
#[test]
fn command_lines_of_runbooks_do_what_they_say() -> Result<()> {
    static PAIR: PairCell = PairCell::new();
    let Some(pair) = Pair::get(&PAIR, ClusterSpec::new("a"), ClusterSpec::new("b"))? else { return Ok(()) };
    mirror_maker_1(pair)?;
    mirror_maker_2(pair)
}

/// A file that users have, with addresses and a group of the test's own.
fn users_file(name: &str, addresses: &[(&str, &str)], more: &str) -> String {
    let path = workspace().join("src/cli/testdata").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let line = |line: &str| {
        let key = line.split('=').next().unwrap_or_default().trim();
        match addresses.iter().find(|(name, _)| *name == key) {
            Some((_, value)) => format!("{key} = {value}\n"),
            None => format!("{line}\n"),
        }
    };
    text.lines().map(line).collect::<String>() + "kmirror.admin.listen = none\n" + more
}

fn lines(topic: &str) -> Vec<String> {
    (0..RECORDS).map(|number| format!("k{number}:{topic}-{number}")).collect()
}

fn fill(pair: &Pair, source: &Console, topics: &[&str]) -> Result<()> {
    for topic in topics {
        pair.source().create_topic(topic, PARTITIONS, &[])?;
        source.produce(topic, &lines(topic))?;
    }
    Ok(())
}

/// The console consumer finds all records of `source` under `target`, and no more than these.
fn expect_copy(pair: &Pair, mirror: &mut Kmirror, source: &str, target: &str) -> Result<()> {
    wait_for(&format!("{source} as {target}"), TIMEOUT, || {
        mirror.expect_running()?;
        let has = pair.target().topics()?.iter().any(|topic| topic == target);
        let count = match has {
            true => {
                (0..PARTITIONS).map(|partition| pair.target_end(target, partition)).sum::<Result<i64>>()?
            }
            false => 0,
        };
        let seen = || format!("{count} of {RECORDS}\n{}", tail(&mirror.output(), 40));
        Ok(if count >= RECORDS as i64 { Look::Done(()) } else { Look::Pending(seen()) })
    })?;
    let mut found = Console::new(&pair.b.bootstrap())?.consume(target, RECORDS)?;
    let mut wanted = lines(source);
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted, "{source} as {target}");
    let count: i64 =
        (0..PARTITIONS).map(|partition| pair.target_end(target, partition)).sum::<Result<i64>>()?;
    assert_eq!(count, RECORDS as i64, "{target} has more");
    Ok(())
}

fn mirror_maker_1(pair: &Pair) -> Result<()> {
    let (source, target) = (Console::new(&pair.a.bootstrap())?, Console::new(&pair.b.bootstrap())?);
    fill(pair, &source, &["test-mirror", "source-topic", "internal-audit", "invoices"])?;
    let check = |group: &str, arguments: &[&str], copied: &[(&str, &str)], absent: &[&str]| -> Result<()> {
        let files =
            ["--consumer.config", "@consumer.properties", "--producer.config", "@producer.properties"];
        let (a, b) = (pair.a.bootstrap(), pair.b.bootstrap());
        let consumer = users_file(
            "consumer-mirror.properties",
            &[("bootstrap.servers", &a), ("group.id", group)],
            "heartbeat.interval.ms = 500\n",
        );
        let producer = users_file("producer-mirror.properties", &[("bootstrap.servers", &b)], "");
        let texts = [("consumer.properties", &*consumer), ("producer.properties", &*producer)];
        let line = [&files[..], arguments].concat();
        let mut mirror = Kmirror::start_as("kafka-mirror-maker.sh", &line, &texts)?;
        for (from, to) in copied {
            expect_copy(pair, &mut mirror, from, to)?;
            wait_for("no lag", TIMEOUT, || {
                let lag = source.lag(group)?;
                let of_topic = lag.iter().filter(|((topic, _), _)| topic == from);
                let lags: Vec<i64> = of_topic.map(|(_, &lag)| lag).collect();
                let done = lags == vec![0; PARTITIONS as usize];
                Ok(if done { Look::Done(()) } else { Look::Pending(format!("{lag:?}")) })
            })?;
        }
        assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
        let output = mirror.output();
        for warning in [
            "enable.auto.commit=true: offsets are committed all the same only when",
            "retries=3 bounds nothing",
        ] {
            assert!(output.contains(warning), "{output}");
        }
        let topics = target.topics()?;
        for topic in absent {
            assert!(!topics.iter().any(|there| there == topic), "{topic} in {topics:?}");
        }
        Ok(())
    };
    check(
        "one",
        &["--whitelist", "test-mirror", "--num.streams", "3"],
        &[("test-mirror", "test-mirror")],
        &["source-topic", "internal-audit", "invoices"],
    )?;
    check(
        "two",
        &["--whitelist", "source-topic", "--rewrite.topics", "source-topic:target-topic"],
        &[("source-topic", "target-topic")],
        &["source-topic", "internal-audit"],
    )?;
    check("three", &["--blacklist", "internal-.*"], &[("invoices", "invoices")], &["internal-audit"])
}

/// With a comment behind the alias, both ways, and keys that MirrorMaker does not have.
fn mirror_maker_2(pair: &Pair) -> Result<()> {
    let (source, target) = (Console::new(&pair.a.bootstrap())?, Console::new(&pair.b.bootstrap())?);
    fill(pair, &source, &["orders", "payments", "others"])?;
    let (a, b) = (pair.a.bootstrap(), pair.b.bootstrap());
    let single = "replication.factor = 1\n";
    let addresses = [("A.bootstrap.servers", &*a), ("B.bootstrap.servers", &*b)];
    let file = users_file("mm2-cluster.properties", &addresses, single);
    let mut mirror = Kmirror::start_as(
        "connect-mirror-maker.sh",
        &["@mm2-cluster.properties"],
        &[("mm2-cluster.properties", &file)],
    )?;
    for topic in ["orders", "payments"] {
        expect_copy(pair, &mut mirror, topic, &format!("A.{topic}"))?;
    }
    // The other way, and records that come later.
    pair.target().create_topic("returns", PARTITIONS, &[])?;
    target.produce("returns", &lines("returns"))?;
    source.produce("orders", &["late:one more".to_owned()])?;
    wait_for("the late record", TIMEOUT, || {
        let ends = (0..PARTITIONS).map(|partition| pair.target_end("A.orders", partition));
        let count: i64 = ends.sum::<Result<i64>>()?;
        Ok(if count == RECORDS as i64 + 1 { Look::Done(()) } else { Look::Pending(count.to_string()) })
    })?;
    let found = target.consume("A.orders", RECORDS + 1)?;
    assert_eq!(found.iter().filter(|line| *line == "late:one more").count(), 1, "{found:?}");
    let topics = target.topics()?;
    for (topic, is_there) in [("A.others", false), ("heartbeats", true), ("A.checkpoints.internal", true)] {
        assert_eq!(topics.iter().any(|there| there == topic), is_there, "{topic} in {topics:?}");
    }
    assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
    let output = mirror.output();
    assert!(output.contains("comment"), "the comments are warned of: {output}");
    Ok(())
}

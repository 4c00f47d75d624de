//! A flow over time: topics and partitions appear, transactions stay open, the process is ended, killed and replaced.

use crate::{TIMEOUT, pair};
use protocol_tests::Result;
use protocol_tests::flow::FlowFile;
use protocol_tests::kafka::{Codec, Isolation, ProducerKind, Step};
use protocol_tests::mirror::Kmirror;
use protocol_tests::pair::Pair;
use protocol_tests::process::Signal;
use protocol_tests::records::TestRecord;
use protocol_tests::traffic::{Traffic, check_numbers};
use protocol_tests::wait::{Look, wait_for};
use std::time::Duration;

fn run(flow: &FlowFile) -> Result<Kmirror> {
    Kmirror::start(&["run"], flow.text())
}

fn produce(pair: &Pair, topic: &str, partition: i32, values: std::ops::Range<i32>) -> Result<()> {
    let records: Vec<TestRecord> =
        values.map(|value| TestRecord::new("k", value.to_string()).to_partition(partition)).collect();
    pair.java().produce(&pair.a.bootstrap(), topic, &records).map(drop)
}

#[test]
fn new_topics_and_new_partitions_are_followed() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let flow = pair.flow("Grow").topics("grow[.].*");
    pair.source().create_topic("grow.first", 1, &[])?;
    produce(pair, "grow.first", 0, 0..10)?;
    let mut mirror = run(&flow)?;
    pair.wait_mirrored(&mut mirror, &flow, "grow.first", Isolation::ReadUncommitted, TIMEOUT)?;
    pair.source().create_topic("grow.second", 1, &[("retention.ms", "123456789")])?;
    produce(pair, "grow.second", 0, 0..10)?;
    pair.source().create_partitions("grow.first", 3)?;
    produce(pair, "grow.first", 2, 0..7)?;
    let second =
        pair.wait_mirrored(&mut mirror, &flow, "grow.second", Isolation::ReadUncommitted, TIMEOUT)?;
    let first = pair.wait_mirrored(&mut mirror, &flow, "grow.first", Isolation::ReadUncommitted, TIMEOUT)?;
    assert_eq!((first, second), (17, 10));
    let described = pair.target().describe_topic("Grow.grow.first")?.expect("the remote topic");
    assert_eq!(described.len(), 3);
    assert_eq!(pair.target().topic_configs("Grow.grow.second")?["retention.ms"], "123456789");
    assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
    Ok(())
}

/// Cases 63 and 64.
#[test]
fn an_open_transaction_is_waited_for_and_an_aborted_one_left_out() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    pair.source().create_topic("open", 1, &[])?;
    let flow = pair.flow("Open").topics("open").set_for_source("consumer.isolation.level", "read_committed");
    let send = |value: &str| Step::Send("open".to_owned(), TestRecord::new("k", value));
    let transactional = |id: &str| {
        let kind = ProducerKind::Transactional(id.to_owned());
        pair.java().producer(&pair.a.bootstrap(), &kind, Codec::None, &[])
    };
    let (aborting, committing) = (transactional("open-1")?, transactional("open-2")?);
    aborting.run(&[Step::Begin, send("aborted"), Step::Flush])?;
    committing.run(&[Step::Begin, send("committed"), Step::Flush])?;
    let mut mirror = run(&flow)?;
    produce(pair, "open", 0, 0..3)?;
    committing.run(&[Step::Commit])?;
    // The first transaction is open still: nothing after its first record may be seen.
    wait_for("the remote topic", TIMEOUT, || {
        mirror.expect_running()?;
        let there = pair.target().describe_topic("Open.open")?.is_some();
        Ok(if there { Look::Done(()) } else { Look::Pending(mirror.output()) })
    })?;
    assert_eq!(pair.target_end("Open.open", 0)?, 0);
    aborting.run(&[Step::Abort])?;
    assert_eq!(pair.wait_mirrored(&mut mirror, &flow, "open", Isolation::ReadCommitted, TIMEOUT)?, 4);
    assert_eq!(pair.target_end("Open.open", 0)?, 4, "control records have no place on the target");
    assert_eq!(mirror.stop(TIMEOUT)?, 0);
    Ok(())
}

#[test]
fn after_an_orderly_end_it_resumes_without_repetition() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    pair.source().create_topic("resumed", 2, &[])?;
    let flow = pair.flow("Resumed").topics("resumed");
    for round in 0..3 {
        produce(pair, "resumed", round % 2, round * 100..round * 100 + 100)?;
        let mut mirror = run(&flow)?;
        let count = pair.wait_mirrored(&mut mirror, &flow, "resumed", Isolation::ReadUncommitted, TIMEOUT)?;
        assert_eq!(count as i32, (round + 1) * 100);
        let signal = if round == 1 { Signal::Interrupt } else { Signal::Terminate };
        mirror.signal(signal)?;
        assert_eq!(mirror.wait(TIMEOUT)?, 0, "{}", mirror.output());
    }
    Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;
    assert_eq!(pair.compare(&flow, "resumed", Isolation::ReadUncommitted)?, 300);
    Ok(())
}

/// Under a quota the target answers late and then not at all for a while: a stop drops what was not sent, and the next
/// start reads it again.
#[test]
fn a_stop_under_a_quota_of_the_target_ends_in_order() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    pair.source().create_topic("throttled", 2, &[])?;
    let flow = pair.flow("Throttled").topics("throttled").set("B.client.id", "throttled-mirror");
    let large = "x".repeat(2_000);
    let records: Vec<TestRecord> = (0..3_000)
        .map(|number| TestRecord::new(number.to_string(), large.clone()).to_partition(number % 2))
        .collect();
    pair.java().produce(&pair.a.bootstrap(), "throttled", &records)?;
    let quota = |value| pair.target().alter_quota("throttled-mirror", "producer_byte_rate", value);
    quota(Some(100_000))?;
    let mut mirror = run(&flow)?;
    wait_for("a record under the quota", TIMEOUT, || {
        mirror.expect_running()?;
        let end = pair.target_end("Throttled.throttled", 0)?;
        Ok(if end > 0 { Look::Done(()) } else { Look::Pending(mirror.output()) })
    })?;
    assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
    let before = pair.target_end("Throttled.throttled", 0)?;
    assert!(before < 1_500, "the quota has held it up: {before}");
    quota(None)?;
    Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;
    assert_eq!(pair.compare(&flow, "throttled", Isolation::ReadUncommitted)?, 3_000);
    Ok(())
}

/// Case 47.
#[test]
fn a_killed_process_loses_nothing_and_repeats_a_little() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    const PARTITIONS: i32 = 3;
    pair.source().create_topic("killed", PARTITIONS, &[])?;
    let flow = pair.flow("Killed").topics("killed");
    let traffic =
        Traffic::start(pair.java(), &pair.a.bootstrap(), "killed", PARTITIONS, 20, Duration::from_millis(10));
    for _ in 0..3 {
        let mut mirror = run(&flow)?;
        let before = pair.target_end("Killed.killed", 0)?;
        wait_for("progress", TIMEOUT, || {
            mirror.expect_running()?;
            let end = pair.target_end("Killed.killed", 0)?;
            Ok(if end > before + 100 { Look::Done(()) } else { Look::Pending(mirror.output()) })
        })?;
        mirror.signal(Signal::Kill)?;
        mirror.wait(TIMEOUT)?;
    }
    let sent = traffic.stop()?;
    Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;
    let records = pair.java().read(&pair.b.bootstrap(), "Killed.killed", Isolation::ReadUncommitted)?;
    let repeated = check_numbers(&records, PARTITIONS, sent).expect("nothing lost, in order");
    println!("{} records after three kills, {repeated} of them repetitions", records.len());
    Ok(())
}

/// A process that stands still for longer than its lease (a stopped container, a machine that hangs) goes on when another
/// one has taken over: what it had been about to write stays unwritten.
#[test]
fn what_stood_still_while_another_took_over_writes_nothing_more() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let (topic, partitions) = ("stood-still", 3);
    pair.source().create_topic(topic, partitions, &[])?;
    let flow = pair.flow("Still").topics(topic);
    let (a, pause) = (pair.a.bootstrap(), Duration::from_millis(20));
    let traffic = Traffic::start(pair.java(), &a, topic, partitions, 2, pause);
    let mut first = run(&flow)?;
    let arrived = |least: i64| {
        if pair.target().describe_topic(&flow.remote(topic))?.is_none() {
            return Ok(Look::Pending("not created".to_owned()));
        }
        let ends = pair.target().offsets(&flow.remote(topic), Isolation::ReadUncommitted)?;
        let has = ends.len() == partitions as usize && ends.values().all(|ends| ends.latest > least);
        Ok(if has { Look::Done(()) } else { Look::Pending(format!("{ends:?}")) })
    };
    wait_for("the first to write", TIMEOUT, || arrived(100))?;
    let mut second = run(&flow)?;
    wait_for("the second to stand by", TIMEOUT, || {
        let output = second.output();
        let stands_by = output.contains("another kmirror that writes this flow");
        Ok(if stands_by { Look::Done(()) } else { Look::Pending(output) })
    })?;
    first.signal(Signal::Stop)?;
    wait_for("the second to write", TIMEOUT, || {
        let output = second.output();
        let writes = output.contains("writes this flow; positions read");
        Ok(if writes { Look::Done(()) } else { Look::Pending(output) })
    })?;
    wait_for("the second to catch up", TIMEOUT, || arrived(traffic.sent()))?;
    first.signal(Signal::Continue)?;
    wait_for("the first to give up", TIMEOUT, || {
        let output = first.output();
        let gave_up = output.contains("no longer writes this flow");
        Ok(if gave_up { Look::Done(()) } else { Look::Pending(output) })
    })?;
    let sent = traffic.stop()?;
    wait_for("all records", TIMEOUT, || arrived(sent - 1))?;
    let records = pair.java().read(&pair.b.bootstrap(), &flow.remote(topic), Isolation::ReadUncommitted)?;
    match check_numbers(&records, partitions, sent) {
        Ok(repeated) => println!("{repeated} records came again, after the last stored positions"),
        Err(reason) => panic!("{reason}\n{}\n--\n{}", first.output(), second.output()),
    }
    assert_eq!(first.stop(TIMEOUT)?, 0, "{}", first.output());
    assert_eq!(second.stop(TIMEOUT)?, 0, "{}", second.output());
    Ok(())
}

/// Case 51: within the session timeout of the lease, not minutes later.
#[test]
fn of_two_processes_one_writes_and_the_other_takes_over() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let b = pair.b.bootstrap();
    pair.source().create_topic("standby", 1, &[])?;
    let flow = pair.flow("Standby").topics("standby");
    produce(pair, "standby", 0, 0..10)?;
    let mut first = run(&flow)?;
    pair.wait_mirrored(&mut first, &flow, "standby", Isolation::ReadUncommitted, TIMEOUT)?;
    let mut second = run(&flow)?;
    produce(pair, "standby", 0, 10..50)?;
    pair.wait_mirrored(&mut first, &flow, "standby", Isolation::ReadUncommitted, TIMEOUT)?;
    // Once the last position is stored, nothing need be repeated.
    wait_for("the stored position", TIMEOUT, || {
        let stored = pair.java().read(&b, "mm2-offsets.Standby.internal", Isolation::ReadCommitted)?;
        let newest = stored.last().map(|record| record.value_text()).unwrap_or_default();
        Ok(if newest == r#"{"offset":49}"# { Look::Done(()) } else { Look::Pending(newest) })
    })?;
    first.signal(Signal::Kill)?;
    first.wait(TIMEOUT)?;
    produce(pair, "standby", 0, 50..90)?;
    assert_eq!(second.exit_code()?, None, "{}", second.output());
    assert_eq!(pair.wait_mirrored(&mut second, &flow, "standby", Isolation::ReadUncommitted, TIMEOUT)?, 90);
    assert_eq!(second.stop(TIMEOUT)?, 0);
    Ok(())
}

//! What cannot be seen in a bulk copy: the latency that a mirror adds, and what an idle one costs.

use crate::measure::{Bench, Copier, wait_first};
use crate::peer;
use protocol_tests::Result;
use protocol_tests::compare::Side;
use protocol_tests::flow::FlowFile;
use protocol_tests::kafka::{Isolation, MirrorMaker};
use protocol_tests::mirror::Kmirror;
use protocol_tests::records::TestRecord;
use protocol_tests::traffic::Traffic;
use protocol_tests::wait::{Look, wait_for};
use std::time::Duration;

const RECORDS: u32 = 2_000;
const RECORDS_PER_SECOND: u32 = 100;
const IDLE: Duration = Duration::from_secs(20);
const IDLE_TOPICS: usize = 10;
const MANY_TOPICS: usize = 1_000;
const MANY_PARTITIONS: i32 = 3;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Added latency at 100 records/s, of kmirror and of MirrorMaker 2.
pub(crate) fn print_latency(bench: &Bench) -> Result<()> {
    println!("\nadded latency at {RECORDS_PER_SECOND} records/s, ms");
    let flow = prepared(bench, "latency-kmirror")?;
    let mut kmirror = Kmirror::start(&["run"], flow.text())?;
    print_latency_of(bench, Copier::Kmirror, &flow, "latency-kmirror")?;
    kmirror.stop(TIMEOUT)?;
    let flow = prepared(bench, "latency-mm2")?;
    let mirror_maker = MirrorMaker::start(flow.text(), &["-Xmx1g"])?;
    print_latency_of(bench, Copier::MirrorMaker, &flow, "latency-mm2")?;
    mirror_maker.kill()
}

fn prepared(bench: &Bench, topic: &str) -> Result<FlowFile> {
    bench.pair.source().create_topic(topic, 1, &[])?;
    bench.pair.java().produce(&bench.pair.a.bootstrap(), topic, &[TestRecord::new("", "first")])?;
    Ok(bench.pair.flow(&topic.replace('-', "")).topics(topic).single_replicas())
}

fn print_latency_of(bench: &Bench, mirror: Copier, flow: &FlowFile, topic: &str) -> Result<()> {
    wait_first(bench.pair, flow, topic)?;
    let (from, to, remote) = (bench.pair.a.bootstrap(), bench.pair.b.bootstrap(), flow.remote(topic));
    let source = Side { bootstrap: &from, topic };
    let target = Side { bootstrap: &to, topic: &remote };
    // The first hundred warm the clients up.
    let latencies = bench.pair.java().latency(source, target, RECORDS, RECORDS_PER_SECOND)?.split_off(100);
    let mut bare: Vec<Duration> = latencies.iter().map(|pair| pair[0]).collect();
    let mut added: Vec<Duration> = latencies.iter().map(|pair| pair[1].saturating_sub(pair[0])).collect();
    bare.sort();
    added.sort();
    let at = |list: &[Duration], share: usize| list[list.len() * share / 100].as_secs_f64() * 1000.0;
    println!(
        "  {}: p50 {:.2}, p99 {:.2}; bare produce + fetch p50 {:.2}, p99 {:.2}; ratio of p50 {:.2}",
        mirror.name(),
        at(&added, 50),
        at(&added, 99),
        at(&bare, 50),
        at(&bare, 99),
        at(&added, 50) / at(&bare, 50)
    );
    Ok(())
}

/// Memory and processor time of a mirror of ten topics in which nothing happens, with MirrorMaker's heartbeats each second
/// or without them.
pub(crate) fn print_idle(bench: &Bench, alias: &str, with_heartbeats: bool) -> Result<()> {
    let name = alias.to_lowercase();
    // As a file that says nothing of all this.
    let heartbeats = with_heartbeats.to_string();
    let mut flow = bench.pair.flow(alias).topics(&format!("{name}.*")).single_replicas();
    for (key, value) in [
        ("emit.heartbeats.enabled", &*heartbeats),
        (&*format!("B->{alias}.emit.heartbeats.enabled"), &*heartbeats),
        ("emit.checkpoints.enabled", "true"),
        ("sync.topic.acls.enabled", "true"),
        ("refresh.topics.interval.seconds", "600"),
        ("B.offset.flush.interval.ms", "5000"),
    ] {
        flow = flow.set(key, value);
    }
    for number in 0..IDLE_TOPICS {
        let topic = format!("{name}{number}");
        bench.pair.source().create_topic(&topic, 1, &[])?;
        bench.pair.java().produce(&bench.pair.a.bootstrap(), &topic, &[TestRecord::new("", "first")])?;
    }
    let mut kmirror = Kmirror::start(&["run"], flow.text())?;
    for number in 0..IDLE_TOPICS {
        bench.pair.wait_equal(&flow, &format!("{name}{number}"), Isolation::ReadUncommitted, TIMEOUT)?;
    }
    // What the start has left to do is no part of it, nor is the time until the fetches wait longer for data.
    std::thread::sleep(IDLE * 2);
    let before = kmirror.usage()?;
    std::thread::sleep(IDLE);
    let after = kmirror.usage()?;
    let heartbeats = if with_heartbeats { "with heartbeats" } else { "without heartbeats" };
    let wakes = (after.wakes - before.wakes) as f64 / IDLE.as_secs_f64();
    let percent = (after.cpu - before.cpu).as_secs_f64() / IDLE.as_secs_f64() * 100.0;
    kmirror.stop(TIMEOUT)?;
    let peer = peer::share_of_a_core(wakes, IDLE)? * 100.0;
    println!(
        "\nidle with {IDLE_TOPICS} topics, {heartbeats}: {:.1} MB resident, {percent:.2} % of a core at {wakes:.1} wake-ups a \
         second; a peer that only wakes up as often {peer:.2} %, ratio {:.2}",
        after.resident_bytes as f64 / 1e6,
        percent / peer
    );
    Ok(())
}

/// A thousand topics in which nothing happens, and one that is busy.
pub(crate) fn print_many(bench: &Bench) -> Result<()> {
    let pair = bench.pair;
    for number in 0..MANY_TOPICS {
        pair.source().create_topic(&format!("many{number}"), MANY_PARTITIONS, &[])?;
    }
    pair.source().create_topic("many-busy", 1, &[])?;
    let flow = pair.flow("Many").topics("many.*");
    let mut kmirror = Kmirror::start(&["run"], flow.text())?;
    let traffic =
        Traffic::start(pair.java(), &pair.a.bootstrap(), "many-busy", 1, 100, Duration::from_millis(10));
    wait_for("the busy topic", TIMEOUT * 5, || {
        let end = pair.target_end("Many.many-busy", 0)?;
        Ok(if end > 1_000 { Look::Done(()) } else { Look::Pending(format!("{end}: {}", kmirror.output())) })
    })?;
    let (before, sent_before) = (kmirror.usage()?, traffic.sent());
    std::thread::sleep(IDLE);
    let (after, sent) = (kmirror.usage()?, traffic.sent());
    let lag = sent - pair.target_end("Many.many-busy", 0)?;
    println!(
        "\n{MANY_TOPICS} idle topics x {MANY_PARTITIONS} and one with {} records/s: {:.1} MB resident, \
         {:.2} % of a core, lag {} records",
        (sent - sent_before) / IDLE.as_secs() as i64,
        after.resident_bytes as f64 / 1e6,
        (after.cpu - before.cpu).as_secs_f64() / IDLE.as_secs_f64() * 100.0,
        lag.max(0)
    );
    traffic.stop()?;
    kmirror.stop(TIMEOUT).map(drop)
}

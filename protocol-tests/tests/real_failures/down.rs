//! One target broker of three is frozen: promises E and F.
//!
//! The traffic is modest and what arrived is compared with what was sent in the same time, so that it is the mirror that
//! is measured and not the machine. The frozen broker leads what it can, so that all that is not a partition of its own
//! must be found elsewhere: it coordinates the flow's lease and leads the topics of the positions.

use crate::{PARTITIONS, TIMEOUT, check_equal, ends, flow, pair, spread, wait_arrived};
use protocol_tests::Result;
use protocol_tests::flow::TARGET_ALIAS;
use protocol_tests::kafka::Admin;
use protocol_tests::mirror::Kmirror;
use protocol_tests::pair::Pair;
use protocol_tests::process::Signal;
use protocol_tests::traffic::Traffic;
use protocol_tests::wait::{Look, wait_for};
use std::time::{Duration, Instant};

/// Node 3 leads partitions 2 and 5.
const FROZEN: i32 = 3;
const LIVE: [i32; 4] = [0, 1, 3, 4];
/// `KMIRROR_LONG=1` keeps the broker down for a minute.
const DOWN_SHORT: Duration = Duration::from_secs(20);
const DOWN_LONG: Duration = Duration::from_secs(60);
/// What the partitions of the frozen broker may keep: what is in flight, and what each holds.
const MEMORY_MAX: u64 = 24 << 20;

/// The partition of `__consumer_offsets` whose leader coordinates a group: `Utils.abs(groupId.hashCode()) % partitions`.
fn coordinating_partition(group: &str, partitions: usize) -> i32 {
    let hash =
        group.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    (hash & i32::MAX) % partitions as i32
}

/// Gives the frozen broker everything that the flow has on the target.
fn lead_all(pair: &Pair, alias: &str) -> Result<()> {
    let order = [FROZEN, 1, 2];
    let target = pair.target();
    let groups = target.describe_topic("__consumer_offsets")?.expect("the lease has made it");
    let partition = coordinating_partition(&format!("kmirror-{alias}->{TARGET_ALIAS}"), groups.len());
    target.move_leader("__consumer_offsets", partition, &order)?;
    for topic in [format!("mm2-offsets.{alias}.internal"), format!("mm2-kmirror.{alias}.internal")] {
        let partitions = target.describe_topic(&topic)?.expect("a topic of the flow");
        for partition in 0..partitions.len() as i32 {
            target.move_leader(&topic, partition, &order)?;
        }
    }
    Ok(())
}

/// What the live partitions did while the broker was down.
#[derive(Debug)]
struct Watched {
    sent: i64,
    arrived: i64,
    longest_stall: Duration,
    resident_bytes: u64,
}

fn watch(
    reachable: &Admin,
    remote: &str,
    traffic: &Traffic,
    mirror: &mut Kmirror,
    down: Duration,
) -> Result<Watched> {
    let least = || Ok(ends(reachable, remote, &LIVE)?.into_iter().min().unwrap_or_default());
    let (sent_before, arrived_before, began) = (traffic.sent(), least()?, Instant::now());
    let (mut arrived, mut moved_at) = (arrived_before, began);
    let (mut longest_stall, mut resident_bytes) = (Duration::ZERO, 0);
    while began.elapsed() < down {
        mirror.expect_running()?;
        // Read before the ends: what is acknowledged only meanwhile does not count against the mirror.
        let sent = traffic.sent();
        let now = least()?;
        if now > arrived || now >= sent {
            moved_at = Instant::now();
        }
        arrived = now;
        longest_stall = longest_stall.max(moved_at.elapsed());
        resident_bytes = resident_bytes.max(mirror.usage()?.resident_bytes);
        std::thread::sleep(Duration::from_millis(200));
    }
    let (sent, arrived) = (traffic.sent() - sent_before, least()? - arrived_before);
    Ok(Watched { sent, arrived, longest_stall, resident_bytes })
}

#[test]
fn a_frozen_target_broker_holds_up_only_its_own_partitions() -> Result<()> {
    let Some((pair, _turn)) = pair()? else { return Ok(()) };
    let down = if std::env::var_os("KMIRROR_LONG").is_some() { DOWN_LONG } else { DOWN_SHORT };
    let (topic, flow) = ("frozen", flow(pair, "frozen"));
    pair.source().create_topic_on(topic, &spread(), &[])?;
    // One replica each: the partitions of the frozen broker have nowhere to go.
    let alone: Vec<Vec<i32>> = spread().iter().map(|replicas| vec![replicas[0]]).collect();
    let remote = flow.remote(topic);
    pair.target().create_topic_on(&remote, &alone, &[("min.insync.replicas", "1")])?;
    let (a, pause) = (pair.a.bootstrap(), Duration::from_millis(40));
    let traffic = Traffic::start_padded(pair.java(), &a, topic, PARTITIONS, 10, pause, 1_000);
    let mut mirror = Kmirror::start(&["run"], flow.text())?;
    let all: Vec<i32> = (0..PARTITIONS).collect();
    wait_for("the start", TIMEOUT, || {
        let ends = ends(&pair.target(), &remote, &all)?;
        let done = ends.iter().all(|end| *end > 200);
        Ok(if done { Look::Done(()) } else { Look::Pending(format!("{ends:?} {}", mirror.output())) })
    })?;
    lead_all(pair, flow.source())?;
    let bootstrap: Vec<String> = pair.b.bootstrap().split(',').take(2).map(str::to_owned).collect();
    let reachable = pair.java().admin(&bootstrap.join(","));
    let memory_before = mirror.usage()?.resident_bytes;
    pair.b.signal(FROZEN, Signal::Stop)?;
    let watched = watch(&reachable, &remote, &traffic, &mut mirror, down);
    pair.b.signal(FROZEN, Signal::Continue)?;
    let watched = watched?;
    println!("{watched:?}, {memory_before} bytes before");
    let output = mirror.output();
    assert!(watched.arrived * 10 >= watched.sent * 9, "{watched:?}\n{output}");
    assert!(watched.longest_stall < Duration::from_secs(5), "{watched:?}\n{output}");
    assert!(watched.resident_bytes < memory_before + MEMORY_MAX, "{memory_before} before, {watched:?}");
    assert!(!output.contains("no longer writes this flow"), "{output}");
    let sent = traffic.stop()?;
    wait_arrived(pair, &mut mirror, &remote, sent)?;
    check_equal(pair, topic, &remote, sent)?;
    assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
    Ok(())
}

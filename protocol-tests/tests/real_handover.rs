//! One flow handed from MirrorMaker 2 to kmirror and back while records keep coming, after stops in order and after kills.
//!
//! What may come twice is not guessed: whoever goes on starts from the offsets in `mm2-offsets.<source>.internal`, so what the
//! target holds beyond them when its writer is dead is what MirrorMaker itself would copy again, to the record.

use protocol_tests::Result;
use protocol_tests::flow::FlowFile;
use protocol_tests::kafka::{ClusterSpec, Isolation, MirrorMaker};
use protocol_tests::mirror::Kmirror;
use protocol_tests::pair::{Pair, PairCell};
use protocol_tests::process::Signal;
use protocol_tests::traffic::{Traffic, check_numbers};
use protocol_tests::wait::{Look, wait_for};
use std::collections::BTreeMap;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(120);
const PARTITIONS: i32 = 2;
const TOPIC: &str = "handed-over";
const SMALL_JVM: [&str; 3] = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

fn pair() -> Result<Option<&'static Pair>> {
    static PAIR: PairCell = PairCell::new();
    Pair::get(&PAIR, ClusterSpec::new("a"), ClusterSpec::new("b"))
}

/// How a writer ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    InOrder,
    Killed,
}

/// The flow, its traffic, and what may have come twice so far.
struct Handover {
    pair: &'static Pair,
    flow: FlowFile,
    traffic: Traffic,
    repeats: u64,
}

impl Handover {
    fn mirror_maker(&mut self, end: End) -> Result<()> {
        let mirror = MirrorMaker::start(self.flow.text(), &SMALL_JVM)?;
        self.wait_for_progress(|| Ok(mirror.output()))?;
        match end {
            End::InOrder => mirror.stop()?,
            End::Killed => mirror.kill()?,
        }
        self.count_repeats(&format!("MirrorMaker, {end:?}")).map(drop)
    }

    fn kmirror(&mut self, end: End) -> Result<()> {
        let mut mirror = Kmirror::start(&["run"], self.flow.text())?;
        self.wait_for_progress(|| mirror.expect_running().map(|()| mirror.output()))?;
        match end {
            End::InOrder => assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output()),
            End::Killed => {
                // What it copies in its first moments is a whole backlog; a crash later on costs a flush interval.
                self.wait_for_positions()?;
                self.wait_for_progress(|| mirror.expect_running().map(|()| mirror.output()))?;
                mirror.signal(Signal::Kill)?;
                mirror.wait(TIMEOUT)?;
            }
        }
        let repeats = self.count_repeats(&format!("kmirror, {end:?}"))?;
        if end == End::InOrder {
            assert_eq!(repeats, 0, "an orderly end stores all that was acknowledged");
        }
        Ok(())
    }

    /// Waits until the target holds what had been sent when the writer was ready, and a little of what came after.
    fn wait_for_progress(&self, mut output: impl FnMut() -> Result<String>) -> Result<()> {
        let wanted = self.traffic.sent() + 20;
        wait_for(&format!("number {wanted} of each partition"), TIMEOUT, || {
            let log = output()?;
            let ends = self.numbers()?;
            let done = ends.len() == PARTITIONS as usize && ends.values().all(|&end| end >= wanted);
            Ok(if done { Look::Done(()) } else { Look::Pending(format!("{ends:?}\n{log}")) })
        })
    }

    /// Waits until all that the target holds by now is stored as copied.
    fn wait_for_positions(&self) -> Result<()> {
        let held = self.numbers()?;
        wait_for(&format!("positions up to {held:?}"), TIMEOUT, || {
            let positions = self.positions()?;
            let done = held.iter().all(|(partition, end)| positions.get(partition) >= Some(end));
            Ok(if done { Look::Done(()) } else { Look::Pending(format!("{positions:?}")) })
        })
    }

    /// For each partition, the first number that the target does not hold.
    fn numbers(&self) -> Result<BTreeMap<i32, i64>> {
        let remote = self.flow.remote(TOPIC);
        let mut ends = BTreeMap::new();
        if self.pair.target().describe_topic(&remote)?.is_none() {
            return Ok(ends);
        }
        for record in self.pair.java().read(&self.pair.b.bootstrap(), &remote, Isolation::ReadUncommitted)? {
            let text = record.value_text();
            let number = text.split_once(':').and_then(|(_, number)| number.parse::<i64>().ok());
            let end = ends.entry(record.partition).or_insert(0);
            *end = number.map_or(*end, |number| (*end).max(number + 1));
        }
        Ok(ends)
    }

    /// For each partition, the source offset at which MirrorMaker goes on. A record's number is its offset at the source.
    fn positions(&self) -> Result<BTreeMap<i32, i64>> {
        let topic = format!("mm2-offsets.{}.internal", self.flow.source());
        let records = self.pair.java().read(&self.pair.b.bootstrap(), &topic, Isolation::ReadCommitted)?;
        let mut positions = BTreeMap::new();
        for record in records {
            let key: serde_json::Value = serde_json::from_slice(&record.key.unwrap_or_default()).unwrap();
            let value: serde_json::Value = serde_json::from_slice(&record.value.unwrap_or_default()).unwrap();
            if key[0] == "MirrorSourceConnector" && key[1]["topic"] == TOPIC {
                let partition =
                    key[1]["partition"].as_i64().and_then(|partition| i32::try_from(partition).ok());
                positions.insert(partition.unwrap(), value["offset"].as_i64().unwrap() + 1);
            }
        }
        Ok(positions)
    }

    /// Adds up what the next writer will copy again. The writer is dead; what it had sent may still reach the log.
    fn count_repeats(&mut self, ended: &str) -> Result<u64> {
        let mut before = BTreeMap::new();
        let ends = wait_for("a target that stands still", TIMEOUT, || {
            std::thread::sleep(Duration::from_millis(300));
            let ends = self.numbers()?;
            let still = ends == before;
            before.clone_from(&ends);
            Ok(if still { Look::Done(ends) } else { Look::Pending(format!("{before:?}")) })
        })?;
        let positions = self.positions()?;
        let mut repeats = 0;
        for partition in 0..PARTITIONS {
            let again = ends[&partition] - positions[&partition];
            assert!(again >= 0, "{ended}: {positions:?} would skip records behind {ends:?}");
            repeats += again.unsigned_abs();
        }
        println!("{ended}: positions {positions:?}, the target ends at {ends:?}, {repeats} come again");
        self.repeats += repeats;
        Ok(repeats)
    }
}

/// MirrorMaker, kmirror, MirrorMaker, kmirror, MirrorMaker, kmirror: three times each way, half of the ends by kill -9.
/// `KMIRROR_LONG=1` goes round four times.
#[test]
fn a_flow_is_handed_over_and_back_under_traffic() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let flow = pair.flow("H").topics(TOPIC).single_replicas();
    pair.source().create_topic(TOPIC, PARTITIONS, &[])?;
    let pause = Duration::from_millis(40);
    let traffic = Traffic::start(pair.java(), &pair.a.bootstrap(), TOPIC, PARTITIONS, 5, pause);
    let mut handover = Handover { pair, flow, traffic, repeats: 0 };
    let rounds = if std::env::var_os("KMIRROR_LONG").is_some() { 4 } else { 1 };
    for _ in 0..rounds {
        handover.mirror_maker(End::InOrder)?;
        handover.kmirror(End::InOrder)?;
        handover.mirror_maker(End::Killed)?;
        handover.kmirror(End::Killed)?;
    }
    handover.mirror_maker(End::InOrder)?;
    let Handover { flow, traffic, repeats, .. } = handover;
    let sent = traffic.stop()?;
    Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;
    let found = pair.java().read(&pair.b.bootstrap(), &flow.remote(TOPIC), Isolation::ReadUncommitted)?;
    assert_eq!(check_numbers(&found, PARTITIONS, sent), Ok(repeats), "as often as MirrorMaker would have");
    Ok(())
}

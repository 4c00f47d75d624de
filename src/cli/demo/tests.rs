//! The demo's traffic and its comparer against embedded clusters.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::compare::{Comparison, Reader, Rule, Side, compare_topic};
use super::plan::{Appears, COMPACTED, TOPICS};
use super::traffic::{Traffic, TrafficSettings};
use super::{Afterwards, Display, Options, Transport, Verdict, run};
use crate::broker::{EmbeddedCluster, Settings};
use crate::client::{self, Cluster};
use crate::net::HostPort;
use crate::seam::Seam;

async fn cluster(seed: u64) -> (Arc<EmbeddedCluster>, Cluster) {
    let settings = Settings { brokers: 3, seed, ..Settings::default() };
    let embedded = EmbeddedCluster::start(Seam::real(), settings).await.unwrap();
    let servers = (1..=3).map(|id| {
        let address = embedded.address(id).unwrap();
        HostPort { host: address.ip().to_string(), port: address.port() }
    });
    let cluster = Cluster::new(Seam::real(), client::Settings::new("A", servers.collect()));
    (Arc::new(embedded), cluster)
}

async fn compared(source: Reader<'_>, target: Reader<'_>, topic: &str, rule: Rule) -> Comparison {
    let side = |reader| Side { reader, topic: Arc::from(topic) };
    compare_topic(&side(source), &side(target), rule).await.unwrap()
}

/// Every topic has records and all its partitions, and a transaction was aborted.
fn everything_has_happened(embedded: &EmbeddedCluster, traffic: &Traffic) -> bool {
    let topics = embedded.topics();
    let is_whole = |name: &str, partitions| topics.contains(&(name.to_owned(), partitions));
    let written = traffic.written();
    let aborted: u64 = written.iter().map(|(_, written)| written.aborted()).sum();
    aborted > 0
        && written.iter().all(|(plan, written)| {
            written.records() > 0 && is_whole(plan.name, plan.grows_to.unwrap_or(plan.partitions))
        })
}

#[tokio::test]
async fn a_reader_finds_exactly_the_committed_records() {
    let (embedded, cluster) = cluster(1).await;
    let settings =
        TrafficSettings { rate: 3_000, half_way: Duration::from_millis(300), replication_factor: 3, seed: 1 };
    let prepared = Traffic::prepare(&cluster, &embedded, settings).await.unwrap();
    let mut traffic = prepared.start(&Seam::real(), &cluster, embedded.clone());
    while !everything_has_happened(&embedded, &traffic) {
        assert!(!traffic.has_ended());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    traffic.stop().await.unwrap();
    let mut aborted = 0;
    for (plan, written) in traffic.written() {
        let (wire, logs) = (Reader::Wire(cluster.clone()), Reader::Logs(&embedded));
        assert_eq!(
            wire.partitions(&Arc::from(plan.name)).await.unwrap(),
            plan.grows_to.unwrap_or(plan.partitions)
        );
        let comparison = compared(wire, logs, plan.name, Rule::Exact).await;
        assert_eq!(comparison.differences, Vec::<String>::new());
        assert!(comparison.records > 0, "{}", plan.name);
        if plan.name == COMPACTED {
            assert!(comparison.records < written.records());
        } else {
            assert_eq!(comparison.records, written.records(), "{}", plan.name);
        }
        aborted += written.aborted();
    }
    assert!(aborted > 0);
    assert_eq!(embedded.violations(), []);
    assert_eq!(TOPICS.iter().filter(|plan| plan.appears == Appears::HalfWay).count(), 1);
}

#[tokio::test]
async fn a_topic_that_lost_a_record_is_not_equal() {
    let (a, _) = cluster(1).await;
    let (b, _) = cluster(2).await;
    for (cluster, values) in [(&a, ["x", "y", "z"]), (&b, ["x", "z", "z"])] {
        cluster.create_topic("t", 2, 1, &[]).unwrap();
        for value in values {
            append(cluster, value);
        }
    }
    let comparison = compared(Reader::Logs(&a), Reader::Logs(&b), "t", Rule::Exact).await;
    assert_eq!(comparison.records, 1);
    let [difference] = &comparison.differences[..] else { panic!("{comparison:?}") };
    assert!(difference.starts_with("t-1: after 1 equal records the values differ"), "{difference}");
}

fn append(cluster: &EmbeddedCluster, value: &'static str) {
    use crate::broker::log::{Origin, Verification};
    use crate::record::{BatchBuilder, BatchOptions, Codec, RecordData};
    let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
    builder.push(&RecordData { timestamp: 1, value: Some(value.into()), ..RecordData::default() }).unwrap();
    let batch = builder.build().unwrap();
    let append = |log: &mut crate::broker::log::PartitionLog| {
        log.append(1, 0, &batch, Origin::Client(Verification::Missing)).unwrap();
    };
    cluster.log("t", 1, append).unwrap();
}

fn options(duration: Duration) -> Options {
    Options {
        duration,
        rate: 2_000,
        afterwards: Afterwards::End,
        seed: 7,
        transport: Transport::Plaintext,
        display: Display::Lines,
    }
}

#[tokio::test]
async fn both_sides_are_equal_at_the_end() {
    let (_interrupt, interrupted) = watch::channel(false);
    let mut out = Vec::new();
    let verdict = run(Seam::real(), options(Duration::from_secs(2)), interrupted, &mut out).await.unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(verdict.is_equal(), "{out}");
    let topics: Vec<&str> = verdict.topics.iter().map(|topic| &*topic.topic).collect();
    assert_eq!(topics, TOPICS.iter().map(|plan| plan.name).collect::<Vec<_>>());
    assert!(verdict.topics.iter().all(|topic| topic.comparison.records > 0), "{out}");
    assert!(out.contains("EQUAL: "), "{out}");
}

/// Output that interrupts the demo when it says something.
struct Interrupting {
    text: String,
    words: &'static str,
    interrupt: watch::Sender<bool>,
}

impl std::io::Write for Interrupting {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.text.push_str(std::str::from_utf8(bytes).unwrap());
        if self.text.contains(self.words) {
            self.interrupt.send_replace(true);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn interrupted_at(words: &'static str, options: Options) -> (Verdict, String) {
    let (interrupt, interrupted) = watch::channel(false);
    let mut out = Interrupting { text: String::new(), words, interrupt };
    let verdict = run(Seam::real(), options, interrupted, &mut out).await.unwrap();
    (verdict, out.text)
}

#[tokio::test]
async fn an_interrupt_ends_the_traffic_and_what_was_written_is_compared() {
    let hour = options(Duration::from_secs(3_600));
    let (verdict, out) = interrupted_at("of 3600 s: ", hour).await;
    assert!(verdict.is_equal(), "{out}");
    assert_eq!(out.matches("EQUAL: ").count(), 1);
    assert!(verdict.topics.iter().all(|topic| &*topic.topic != "returns"), "{out}");
}

#[tokio::test]
async fn kept_clusters_stay_until_an_interrupt_and_are_compared_again() {
    let short = Options { afterwards: Afterwards::Keep, ..options(Duration::from_millis(300)) };
    let (verdict, out) = interrupted_at("kcat -C -b 127.0.0.1:", short).await;
    assert!(verdict.is_equal(), "{out}");
    assert_eq!(out.matches("EQUAL: ").count(), 2, "{out}");
    assert_eq!(out.matches(" ms after the last.").count(), 1, "{out}");
    let (_, again) = out.split_once("Clusters and mirror stay up").unwrap();
    assert!(again.contains("Everything is copied now. Compared again"), "{out}");
}

/// However short it is: each topic that has come holds something that is compared.
#[tokio::test]
async fn a_demo_without_time_has_records_in_every_topic() {
    let (_interrupt, interrupted) = watch::channel(false);
    let mut out = Vec::new();
    let verdict = run(Seam::real(), options(Duration::from_millis(1)), interrupted, &mut out).await.unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(verdict.is_equal(), "{out}");
    let empty: Vec<_> = verdict.topics.iter().filter(|topic| topic.comparison.records == 0).collect();
    assert_eq!((verdict.topics.len(), empty), (TOPICS.len(), Vec::new()), "{out}");
}

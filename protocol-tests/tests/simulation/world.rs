//! One simulated world: two clusters, what was appended to the source, and how all of it stands.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use kmirror::broker::{self, EmbeddedCluster, log};
use kmirror::record::{BatchBuilder, BatchOptions, Codec, OpenBatch, RecordData};
use kmirror::seam::{Seam, Simulation};
use tokio::time::Instant;

use crate::broken::Variant;
use crate::processes::Process;

pub const BROKERS: i32 = 3;
pub const BUDGET_BYTES: u64 = 4 << 20;
/// The topic of which a batch can never be on the target.
pub const BAD_TOPIC: &str = "t-bad";

/// A source partition.
pub type Partition = (String, i32);

pub struct World {
    pub simulation: Simulation,
    pub a: EmbeddedCluster,
    pub b: EmbeddedCluster,
    pub variant: Variant,
    random: u64,
    /// Records appended so far to topics that can be copied.
    pub appended: BTreeMap<Partition, u32>,
    /// Brokers that are down.
    pub down: Vec<(char, i32)>,
    /// Processes alive, the oldest first.
    pub processes: Vec<Process>,
    pub processes_started: u32,
    /// Records that two processes may have written.
    pub shared: BTreeMap<Partition, Vec<Range<u32>>>,
    pub takeovers: usize,
    /// Why the bad topic stops, and how many records of it are copied before.
    pub bad: (&'static str, u32),
    trace: Vec<String>,
    started: Instant,
}

impl World {
    pub async fn new(seed: u64, variant: Variant) -> World {
        let simulation = Simulation::new(seed);
        let cluster = async |seed: u64, host: &str| {
            let settings = broker::Settings {
                brokers: BROKERS as u32,
                seed,
                address: host.parse().unwrap(),
                replication_factor: 3,
                ..broker::Settings::default()
            };
            EmbeddedCluster::start(Seam::Simulated(simulation.named("brokers")), settings).await.unwrap()
        };
        let a = cluster(seed ^ 1, "10.0.0.1").await;
        let b = cluster(seed ^ 2, "10.0.1.1").await;
        World {
            simulation,
            a,
            b,
            variant,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            appended: BTreeMap::new(),
            down: Vec::new(),
            processes: Vec::new(),
            processes_started: 0,
            shared: BTreeMap::new(),
            takeovers: 0,
            bad: ("", 0),
            trace: Vec::new(),
            started: Instant::now(),
        }
    }

    /// A number below `below`, by the seed.
    pub fn pick(&mut self, below: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    pub fn pick_partition(&mut self) -> Partition {
        let at = self.pick(self.appended.len() as u64) as usize;
        self.appended.keys().nth(at).unwrap().clone()
    }

    pub fn note(&mut self, what: impl std::fmt::Display) {
        self.trace.push(format!("{:?} {what}", self.started.elapsed()));
    }

    pub fn cluster(&self, side: char) -> &EmbeddedCluster {
        if side == 'A' { &self.a } else { &self.b }
    }

    pub fn create_topic(&mut self, number: u64) {
        let partitions = 1 + self.pick(3) as u32;
        self.create_topic_of(number, partitions);
    }

    pub fn create_topic_of(&mut self, number: u64, partitions: u32) {
        let name = format!("t{number}");
        if self.a.create_topic(&name, partitions, 3, &[]).is_ok() {
            self.appended.extend((0..partitions as i32).map(|partition| ((name.clone(), partition), 0)));
        }
    }

    /// A topic with a batch that the target never takes: too large for it, or damaged at the source.
    pub fn create_bad_topic(&mut self) {
        self.a.create_topic(BAD_TOPIC, 1, 3, &[]).unwrap();
        self.append_records(BAD_TOPIC, 0, 0..5, Codec::None);
        self.append_records(BAD_TOPIC, 0, 5..45, Codec::Lz4);
        if self.pick(2) == 0 {
            self.bad = ("damaged", 5);
            assert!(self.a.log(BAD_TOPIC, 0, |log| log.damage(5)).unwrap());
        } else {
            self.bad = ("oversize", 45);
            let value = Some(Bytes::from(vec![b'x'; 3_000]));
            self.append_batch(BAD_TOPIC, 0, [RecordData { value, ..record(BAD_TOPIC, 0, 45) }], Codec::None);
            self.b.create_topic(&format!("A.{BAD_TOPIC}"), 1, 3, &[("max.message.bytes", "2500")]).unwrap();
        }
    }

    /// Appends a batch to some partition of the source.
    pub fn append_somewhere(&mut self) {
        let (topic, partition) = self.pick_partition();
        self.append(&topic, partition);
    }

    /// Appends a batch to each partition of the source.
    pub fn append_everywhere(&mut self) {
        for (topic, partition) in self.appended.keys().cloned().collect::<Vec<_>>() {
            self.append(&topic, partition);
        }
    }

    /// Appends a batch to a partition of the source.
    pub fn append(&mut self, topic: &str, partition: i32) {
        let count = 1 + self.pick(30) as u32;
        let codec = [Codec::None, Codec::None, Codec::Lz4, Codec::Zstd][self.pick(4) as usize];
        let next = self.appended[&(topic.to_owned(), partition)];
        self.append_records(topic, partition, next..next + count, codec);
        self.appended.insert((topic.to_owned(), partition), next + count);
    }

    fn append_records(&self, topic: &str, partition: i32, numbers: Range<u32>, codec: Codec) {
        self.append_batch(topic, partition, numbers.map(|number| record(topic, partition, number)), codec);
    }

    fn append_batch(
        &self,
        topic: &str,
        partition: i32,
        records: impl IntoIterator<Item = RecordData>,
        codec: Codec,
    ) {
        let mut builder = BatchBuilder::new(BatchOptions::new(codec));
        records.into_iter().for_each(|record| builder.push(&record).unwrap());
        let batch = builder.build().unwrap();
        self.a.append(topic, partition, &batch).unwrap();
    }

    pub fn records(&self) -> usize {
        self.appended.values().map(|&count| count as usize).sum()
    }

    pub fn takeovers(&self) -> usize {
        self.takeovers
    }

    /// What happened, and what the target holds in the end.
    pub fn trace(&self) -> Vec<String> {
        let mut trace = self.trace.clone();
        for (topic, partitions) in self.b.topics() {
            for partition in 0..partitions {
                let batches = self.b.batches(&topic, partition).unwrap();
                let sums = batches.iter().map(|batch| kmirror::record::crc32c(batch));
                trace.push(format!(
                    "{topic}-{partition}: {} {:08x}",
                    batches.len(),
                    sums.fold(0, |a: u32, b| a.rotate_left(1) ^ b)
                ));
            }
        }
        trace
    }
}

/// The record with this number. Its header names it, whatever else it has.
pub fn record(topic: &str, partition: i32, number: u32) -> RecordData {
    let name = Bytes::from(format!("{topic}/{partition}/{number}"));
    // The records of even partitions are of this day of the simulation, the others are years old.
    let day_ms = if partition % 2 == 0 { 1_767_225_600_000 } else { 1_700_000_000_000 };
    RecordData {
        timestamp: day_ms + i64::from(number),
        key: (!number.is_multiple_of(3)).then(|| Bytes::from(format!("k{number}"))),
        value: (!number.is_multiple_of(7)).then(|| Bytes::from(format!("value {number}"))),
        headers: vec![(Bytes::from_static(b"n"), Some(name))],
    }
}

/// Which record of the source this is.
pub fn named(record: &RecordData) -> Option<(Partition, u32)> {
    let (key, value) = record.headers.first()?;
    let name = std::str::from_utf8(value.as_ref().filter(|_| &key[..] == b"n")?).ok()?;
    let mut parts = name.split('/');
    let (topic, partition, number) = (parts.next()?, parts.next()?, parts.next()?);
    Some(((topic.to_owned(), partition.parse().ok()?), number.parse().ok()?))
}

/// All records of a partition, in order.
pub fn records(cluster: &EmbeddedCluster, topic: &str, partition: i32) -> Vec<RecordData> {
    let read = |log: &mut log::PartitionLog| {
        let (mut offset, mut found) = (log.log_start_offset(), Vec::new());
        while offset < log.log_end_offset() {
            let read =
                log.read(offset, 1 << 20, log::Isolation::ReadUncommitted, log::FirstBatch::Whole).unwrap();
            for batch in &read.batches {
                let (next_offset, records) = opened(batch);
                offset = next_offset;
                found.extend(records);
            }
        }
        found
    };
    cluster.log(topic, partition, read).unwrap_or_default()
}

/// The records of a batch, and the offset behind it.
pub fn opened(batch: &Bytes) -> (i64, Vec<RecordData>) {
    let open = OpenBatch::open(batch, 1 << 20).unwrap();
    let records = open.records().map(|record| {
        let record = record.unwrap();
        RecordData::copied(open.timestamp(&record), &record)
    });
    (open.header.next_offset(), records.collect())
}

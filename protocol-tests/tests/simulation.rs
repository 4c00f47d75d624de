//! Replicator and both clusters in one process, on paused time and a network in memory, under faults drawn by a seed.
//!
//! After every run: each record of the source is on the target, once and in order (promises A and B), and the budget
//! was never overdrawn by more than what one read can bring (E). `SIMULATION_SEEDS=from..to` chooses other seeds.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use kmirror::broker::{self, Effect, EmbeddedCluster, FaultRule, When, log};
use kmirror::config;
use kmirror::mirror::Replicator;
use kmirror::mirror::status::ReplicatorStatus;
use kmirror::record::{BatchBuilder, BatchOptions, Codec, OpenBatch, RecordData};
use kmirror::seam::{Link, Seam, Simulation};
use tokio::time::{Instant, sleep};

const BROKERS: i32 = 3;
const BUDGET_BYTES: u64 = 4 << 20;
/// What may be read before the budget's fullness is seen: the events that wait for the flow.
const SLACK_BYTES: u64 = 16 << 20;

/// One simulated world.
struct World {
    simulation: Simulation,
    a: EmbeddedCluster,
    b: EmbeddedCluster,
    random: u64,
    /// Records appended so far, by (topic, partition).
    appended: BTreeMap<(String, i32), u32>,
    down: Vec<(char, i32)>,
    trace: Vec<String>,
    started: Instant,
}

impl World {
    async fn new(seed: u64) -> World {
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
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        World {
            simulation,
            a,
            b,
            random,
            appended: BTreeMap::new(),
            down: Vec::new(),
            trace: Vec::new(),
            started: Instant::now(),
        }
    }

    fn pick(&mut self, below: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    fn replicator(&self, name: &str) -> Replicator {
        let file = format!(
            "clusters = A, B\nA.bootstrap.servers = {}\nB.bootstrap.servers = {}\nA->B.enabled = true\n\
             B->A.emit.heartbeats.enabled = false\nA->B.topics = t.*\nrefresh.topics.interval.seconds = 1\n\
             kmirror.memory.budget = {BUDGET_BYTES}\n",
            self.a.bootstrap(),
            self.b.bootstrap()
        );
        let report = config::load("simulation.properties", file.as_bytes(), &config::Options::default());
        let settings = report.settings.unwrap_or_else(|| panic!("{:?}", report.problems));
        Replicator::start(Seam::Simulated(self.simulation.named(name)), settings.process)
    }

    fn create_topic(&mut self, number: u64) {
        let name = format!("t{number}");
        let partitions = 1 + self.pick(3) as u32;
        if self.a.create_topic(&name, partitions, 3, &[]).is_ok() {
            for partition in 0..partitions as i32 {
                self.appended.insert((name.clone(), partition), 0);
            }
        }
    }

    /// Appends a batch to some partition of the source.
    fn append(&mut self) {
        let at = self.pick(self.appended.len() as u64) as usize;
        let count = 1 + self.pick(30) as u32;
        let codec = [Codec::None, Codec::None, Codec::Lz4, Codec::Zstd][self.pick(4) as usize];
        let ((topic, partition), next) = self.appended.iter_mut().nth(at).unwrap();
        let mut builder = BatchBuilder::new(BatchOptions::new(codec));
        for number in *next..*next + count {
            builder.push(&record(topic, *partition, number)).unwrap();
        }
        let batch = builder.build().unwrap();
        let origin = log::Origin::Client(log::Verification::Missing);
        let epoch = self.a.leader(topic, *partition).map_or(0, |(_, epoch)| epoch);
        self.a
            .log(topic, *partition, |log| log.append(1_767_225_600_000, epoch, &batch, origin).unwrap())
            .unwrap();
        *next += count;
    }

    fn cluster(&self, side: char) -> &EmbeddedCluster {
        if side == 'A' { &self.a } else { &self.b }
    }

    fn address(&mut self) -> (char, i32, Option<SocketAddr>) {
        let side = if self.pick(2) == 0 { 'A' } else { 'B' };
        let broker = 1 + self.pick(BROKERS as u64) as i32;
        (side, broker, self.cluster(side).address(broker))
    }

    /// Something goes wrong, or well again.
    async fn trouble(&mut self, name: &str) {
        let (side, broker, address) = self.address();
        let kind = self.pick(9);
        self.trace.push(format!("{:?} {kind} {side}{broker}", self.started.elapsed()));
        match kind {
            0 => address.into_iter().for_each(|at| self.simulation.reset(name, at)),
            1 => address.into_iter().for_each(|at| self.simulation.set_link(name, at, Link::Refused)),
            2 => address.into_iter().for_each(|at| self.simulation.set_link(name, at, Link::Silent)),
            3 | 4 => self.heal_links(name),
            5 => {
                let effect =
                    [Effect::ReplyLostAfterEffect, Effect::Close, Effect::Error(6), Effect::Error(20)]
                        [self.pick(4) as usize];
                let times = 1 + self.pick(4);
                let rule = FaultRule {
                    key: Some(ApiKey::Produce),
                    broker: None,
                    when: When::Probability(0.5),
                    times,
                    effect,
                };
                self.b.fault(rule);
            }
            6 if self.down.is_empty() && self.cluster(side).stop_broker(broker).await.is_ok() => {
                self.down.push((side, broker));
            }
            7 => self.start_brokers().await,
            _ => self.move_leader(side),
        }
    }

    fn move_leader(&mut self, side: char) {
        let at = self.pick(self.appended.len() as u64) as usize;
        let to = 1 + self.pick(BROKERS as u64) as i32;
        let (topic, partition) = self.appended.keys().nth(at).unwrap();
        let topic = if side == 'A' { topic.clone() } else { format!("A.{topic}") };
        // A topic that is not there yet, or a broker that is down, cannot lead.
        let _ = self.cluster(side).move_leader(&topic, *partition, to);
    }

    fn heal_links(&mut self, name: &str) {
        for side in ['A', 'B'] {
            for broker in 1..=BROKERS {
                if let Some(address) = self.cluster(side).address(broker) {
                    self.simulation.set_link(name, address, Link::Up(Duration::from_micros(200)));
                }
            }
        }
    }

    async fn start_brokers(&mut self) {
        for (side, broker) in std::mem::take(&mut self.down) {
            self.cluster(side).start_broker(broker).await.unwrap();
        }
    }

    async fn check_budget(&self, replicator: &Replicator) {
        let status = replicator.status().await;
        assert!(
            status.budget_used_bytes <= BUDGET_BYTES + SLACK_BYTES,
            "{} bytes alive",
            status.budget_used_bytes
        );
    }

    /// Waits until the target has everything, without further faults.
    async fn settle(&mut self, replicator: &Replicator, name: &str, seed: u64) {
        self.b.clear_faults();
        self.heal_links(name);
        self.start_brokers().await;
        let started = Instant::now();
        loop {
            let status = replicator.status().await;
            if self.is_whole(&status) {
                return;
            }
            assert!(
                started.elapsed() < Duration::from_secs(900),
                "seed {seed}: stands still after {:?}\n{status:#?}\n{:#?}",
                self.appended,
                self.trace
            );
            sleep(Duration::from_millis(500)).await;
        }
    }

    fn is_whole(&self, status: &ReplicatorStatus) -> bool {
        let Some(flow) = status.flows.first() else { return false };
        self.appended.iter().all(|((topic, partition), &count)| {
            let key = (topic.as_str().into(), *partition);
            flow.partitions.get(&key).is_some_and(|status| status.position.unwrap_or(0) >= i64::from(count))
                || count == 0
        })
    }
}

fn record(topic: &str, partition: i32, number: u32) -> RecordData {
    RecordData {
        timestamp: 1_700_000_000_000 + i64::from(number),
        key: (!number.is_multiple_of(3)).then(|| Bytes::from(format!("k{number}"))),
        value: (!number.is_multiple_of(7)).then(|| Bytes::from(format!("{topic}/{partition}/{number}"))),
        headers: vec![(Bytes::from_static(b"n"), Some(Bytes::from(number.to_string())))],
    }
}

fn records(cluster: &EmbeddedCluster, topic: &str, partition: i32) -> Vec<RecordData> {
    let read = |log: &mut log::PartitionLog| {
        let (mut offset, mut records) = (log.log_start_offset(), Vec::new());
        while offset < log.log_end_offset() {
            let read =
                log.read(offset, 1 << 20, log::Isolation::ReadUncommitted, log::FirstBatch::Whole).unwrap();
            for open in read.batches.iter().map_while(|bytes| OpenBatch::open(bytes, 1 << 20).ok()) {
                offset = open.header.next_offset();
                records.extend(open.records().map(|record| {
                    let record = record.unwrap();
                    RecordData::copied(open.timestamp(&record), &record)
                }));
            }
        }
        records
    };
    cluster.log(topic, partition, read).unwrap_or_default()
}

fn paused(run: impl Future<Output = ()>) {
    let _ = tracing_subscriber::fmt().with_test_writer().try_init();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(run);
}

/// Runs one seed; the target's logs and the time that it took are its trace.
async fn faults(seed: u64) -> Vec<String> {
    let mut world = World::new(seed).await;
    world.create_topic(0);
    let replicator = world.replicator("kmirror");
    let steps = 10 + world.pick(40);
    for step in 0..steps {
        for _ in 0..world.pick(6) {
            world.append();
        }
        if world.pick(3) == 0 {
            world.trouble("kmirror").await;
        }
        if step == steps / 2 {
            world.create_topic(1);
        }
        let pause = [1, 20, 300, 2_000, 35_000][world.pick(5) as usize];
        sleep(Duration::from_millis(pause)).await;
        world.check_budget(&replicator).await;
    }
    world.settle(&replicator, "kmirror", seed).await;
    let mut trace = world.trace.clone();
    for ((topic, partition), &count) in &world.appended {
        let want: Vec<RecordData> = (0..count).map(|number| record(topic, *partition, number)).collect();
        let got = records(&world.b, &format!("A.{topic}"), *partition);
        if got != want {
            let at = got
                .iter()
                .zip(&want)
                .position(|(got, want)| got != want)
                .unwrap_or(got.len().min(want.len()));
            let status = replicator.status().await;
            panic!(
                "seed {seed}: {topic}-{partition} has {} of {} records, the first difference is {at}: {:?} for {:?}\n{:#?}\n{status:#?}",
                got.len(),
                want.len(),
                got.get(at),
                want.get(at),
                world.trace
            );
        }
        assert_eq!(got, want, "seed {seed}: {topic}-{partition}");
        trace.push(format!("{topic}-{partition}: {count}"));
    }
    assert!(world.b.violations().is_empty(), "seed {seed}: {:?}", world.b.violations());
    replicator.stop().await;
    trace
}

fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("SIMULATION_SEEDS") else { return default };
    let (from, to) = text.split_once("..").expect("SIMULATION_SEEDS=from..to");
    from.parse().unwrap()..to.parse().unwrap()
}

#[test]
fn every_record_arrives_once_and_in_order_whatever_fails() {
    for seed in seeds(0..60) {
        paused(async {
            faults(seed).await;
        });
    }
}

#[test]
fn the_same_seed_replays_the_same_trace() {
    for seed in [3, 17] {
        let mut traces = Vec::new();
        for _ in 0..2 {
            paused(async { traces.push(faults(seed).await) });
        }
        assert_eq!(traces[0], traces[1]);
    }
}

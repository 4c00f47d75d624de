//! One copy of one topic by one mirror, measured.

use protocol_tests::flow::FlowFile;
use protocol_tests::kafka::{ClusterSpec, Isolation, Load, MirrorMaker};
use protocol_tests::mirror::{Kmirror, kmirror_binary};
use protocol_tests::pair::{Pair, PairCell};
use protocol_tests::process::Usage;
use protocol_tests::{HarnessError, Result};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(600);
const BROKER_JVM: [&str; 3] = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC"];
const MIRROR_MAKER_JVM: [&str; 3] = ["-Xms256M", "-Xmx2G", "-XX:+UseG1GC"];

/// What copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copier {
    Kmirror,
    MirrorMaker,
    /// With the settings that its users recommend for throughput.
    TunedMirrorMaker,
}

impl Copier {
    pub(crate) const ALL: [Copier; 3] = [Copier::Kmirror, Copier::MirrorMaker, Copier::TunedMirrorMaker];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Copier::Kmirror => "kmirror",
            Copier::MirrorMaker => "MirrorMaker 2",
            Copier::TunedMirrorMaker => "MirrorMaker 2, tuned",
        }
    }
}

/// What one copy took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) megabytes: f64,
    /// From the first record on the target to the last.
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    pub(crate) source_cpu: Duration,
    pub(crate) target_cpu: Duration,
    pub(crate) resident_bytes_max: u64,
    /// From the start of the process to the first record on the target.
    pub(crate) first_record: Duration,
    pub(crate) first_record_cpu: Duration,
}

/// The brokers, and a number for aliases.
pub(crate) struct Bench {
    pub(crate) pair: &'static Pair,
    next: u32,
}

enum Running {
    Kmirror(Kmirror),
    MirrorMaker(MirrorMaker),
}

impl Running {
    fn start(mirror: Copier, flow: &FlowFile) -> Result<Running> {
        Ok(match mirror {
            Copier::Kmirror => Running::Kmirror(Kmirror::start(&["run"], flow.text())?),
            _ => Running::MirrorMaker(MirrorMaker::spawn(flow.text(), &MIRROR_MAKER_JVM)?),
        })
    }

    fn usage(&self) -> Result<Usage> {
        match self {
            Running::Kmirror(kmirror) => kmirror.usage(),
            Running::MirrorMaker(mirror_maker) => Usage::of(mirror_maker.pid()),
        }
    }

    fn output(&self) -> String {
        match self {
            Running::Kmirror(kmirror) => kmirror.output(),
            Running::MirrorMaker(mirror_maker) => mirror_maker.output(),
        }
    }

    fn stop(self) -> Result<()> {
        match self {
            Running::Kmirror(mut kmirror) => kmirror.stop(TIMEOUT).map(drop),
            Running::MirrorMaker(mirror_maker) => mirror_maker.kill(),
        }
    }
}

impl Bench {
    /// Starts the brokers; `None` where there is no real Kafka.
    pub(crate) fn start() -> Result<Option<Bench>> {
        static PAIR: PairCell = PairCell::new();
        // Not within the first measurement.
        kmirror_binary()?;
        let spec = |name| ClusterSpec::new(name).jvm_options(&BROKER_JVM);
        Ok(Pair::get(&PAIR, spec("a"), spec("b"))?.map(|pair| Bench { pair, next: 0 }))
    }

    /// Fills a topic and gives the bytes stored.
    pub(crate) fn fill(&self, load: &Load<'_>) -> Result<u64> {
        let topic = topic(load);
        self.pair.source().create_topic(&topic, load.partitions, &[])?;
        self.pair.java().load(&self.pair.a.bootstrap(), &topic, load)?;
        let files = self.files(load)?;
        let length =
            |path: &PathBuf| std::fs::metadata(path).map(|metadata| metadata.len()).unwrap_or_default();
        Ok(files.iter().map(length).sum())
    }

    /// The source's log files of a load.
    pub(crate) fn files(&self, load: &Load<'_>) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for partition in 0..load.partitions {
            let folder = self.pair.a.partition_folder(1, &topic(load), partition)?;
            let entries = std::fs::read_dir(&folder)
                .map_err(|source| HarnessError::Io { what: folder.display().to_string(), source })?;
            let logs = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
            files.extend(logs.filter(|path| path.extension().is_some_and(|extension| extension == "log")));
        }
        files.sort();
        Ok(files)
    }

    /// Deletes a load.
    pub(crate) fn drop_load(&self, load: &Load<'_>) -> Result<()> {
        self.pair.source().delete_topic(&topic(load))
    }

    /// A flow under an alias that was never used.
    pub(crate) fn flow(&mut self, mirror: Copier, topics: &str) -> FlowFile {
        self.next += 1;
        let flow = self.pair.flow(&format!("S{}", self.next)).topics(topics).single_replicas();
        if mirror != Copier::TunedMirrorMaker {
            return flow;
        }
        flow.set("tasks.max", "4")
            .set_for_source("consumer.max.poll.records", "10000")
            .set_for_source("consumer.fetch.min.bytes", "100000")
            .set_for_source("consumer.max.partition.fetch.bytes", "5242880")
            .set_for_target("producer.batch.size", "262144")
            .set_for_target("producer.linger.ms", "20")
            .set_for_target("producer.buffer.memory", "134217728")
    }

    /// Copies a load once and measures it.
    pub(crate) fn copy(&mut self, mirror: Copier, load: &Load<'_>, stored: u64) -> Result<Copy> {
        let topic = topic(load);
        let flow = self.flow(mirror, &topic);
        let remote = flow.remote(&topic);
        // There before, so that both start with a topic that they need not create.
        self.pair.target().create_topic(&remote, load.partitions, &[])?;
        let brokers = [self.broker_usage(Cluster::Source)?, self.broker_usage(Cluster::Target)?];
        let start = Instant::now();
        let running = Running::start(mirror, &flow)?;
        self.wait_end(&remote, load, 1, &running)?;
        let (first_record, at_first) = (start.elapsed(), running.usage()?);
        self.wait_end(&remote, load, load.records, &running)?;
        let (wall, usage) = (start.elapsed() - first_record, running.usage()?);
        let [source, target] = [self.broker_usage(Cluster::Source)?, self.broker_usage(Cluster::Target)?];
        running.stop()?;
        self.pair.target().delete_topic(&remote)?;
        Ok(Copy {
            megabytes: stored as f64 / 1e6,
            wall,
            cpu: if mirror == Copier::Kmirror { usage.cpu } else { usage.cpu - at_first.cpu },
            source_cpu: source.cpu - brokers[0].cpu,
            target_cpu: target.cpu - brokers[1].cpu,
            resident_bytes_max: usage.resident_bytes_max,
            first_record,
            first_record_cpu: at_first.cpu,
        })
    }

    fn wait_end(&self, remote: &str, load: &Load<'_>, records: u64, running: &Running) -> Result<()> {
        let partitions: Vec<i32> = (0..load.partitions).collect();
        let target = self.pair.target();
        let start = Instant::now();
        loop {
            let copied: i64 = target.end_offsets(remote, &partitions)?.values().sum();
            let elapsed = start.elapsed();
            if copied >= records as i64 {
                return Ok(());
            }
            if elapsed > TIMEOUT {
                let seen = format!("{copied}\n{}", running.output());
                return Err(HarnessError::Timeout { what: "the copy".to_owned(), seen });
            }
            // As exact for who is quick as for who is slow.
            std::thread::sleep((elapsed / 50).clamp(Duration::from_millis(2), Duration::from_millis(50)));
        }
    }

    fn broker_usage(&self, cluster: Cluster) -> Result<Usage> {
        let kafka = match cluster {
            Cluster::Source => &self.pair.a,
            Cluster::Target => &self.pair.b,
        };
        let down = || HarnessError::Process { what: "the broker is down".to_owned(), log: String::new() };
        Usage::of(kafka.pid(1)?.ok_or_else(down)?)
    }
}

#[derive(Clone, Copy)]
enum Cluster {
    Source,
    Target,
}

/// The topic of a load.
fn topic(load: &Load<'_>) -> String {
    load.name.replace([' ', ','], "-")
}

/// Waits until a flow has copied the only record of a topic that it follows.
pub(crate) fn wait_first(pair: &Pair, flow: &FlowFile, topic: &str) -> Result<()> {
    pair.wait_equal(flow, topic, Isolation::ReadUncommitted, TIMEOUT).map(drop)
}

//! The demo's traffic: one task for each writer, which keeps to its share of the rate until it is stopped.
//!
//! A writer ends between two rounds, so that no transaction stays open. What it counts is what a read_committed reader must
//! find: records of aborted transactions are counted apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::{CreatePartitionsRequest, CreateTopicsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::Error;
use super::content::{Dice, record};
use super::plan::{Appears, COMPACTED, ProducerKind, TOPICS, TopicPlan, WriterPlan};
use super::producer::{Ending, Kind, Load, Producer};
use crate::broker::EmbeddedCluster;
use crate::client::{Cluster, ErrorCode, Node, Topics};
use crate::seam::Seam;

/// Writers look this often whether records are due.
const TICK: Duration = Duration::from_millis(25);
/// How often the compacted topic is compacted.
const COMPACTION_INTERVAL: Duration = Duration::from_millis(700);
/// How long a new topic or partition may take until it has a leader.
const LEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Times in milliseconds of the calls that create topics and partitions.
const ADMIN_TIMEOUT_MS: i32 = 10_000;
/// Records of the compacted topic before the mirror starts: enough that compaction leaves holes.
const HISTORY_RECORDS: u64 = 1_500;

/// What the traffic is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrafficSettings {
    /// Records per second in all.
    pub(super) rate: u32,
    /// When topics appear and grow.
    pub(super) half_way: Duration,
    /// Replication factor of the topics.
    pub(super) replication_factor: i16,
    pub(super) seed: u64,
}

/// What was written to a topic so far.
#[derive(Debug, Default)]
pub(super) struct Written {
    records: AtomicU64,
    aborted: AtomicU64,
}

impl Written {
    /// Records that a read_committed reader must see.
    pub(super) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Records of aborted transactions.
    pub(super) fn aborted(&self) -> u64 {
        self.aborted.load(Ordering::Relaxed)
    }
}

/// Running traffic.
pub(super) struct Traffic {
    written: Vec<(&'static TopicPlan, Arc<Written>)>,
    writers: Vec<JoinHandle<Result<(), Error>>>,
    stop: watch::Sender<bool>,
}

impl Traffic {
    /// Creates the topics that are there from the start and writes a history into the compacted one.
    pub(super) async fn prepare(
        cluster: &Cluster,
        embedded: &EmbeddedCluster,
        settings: TrafficSettings,
    ) -> Result<Prepared, Error> {
        for plan in TOPICS.iter().filter(|plan| plan.appears == Appears::AtStart) {
            create_topic(cluster, plan, settings.replication_factor).await?;
        }
        let written = TOPICS.iter().map(|plan| (plan, Arc::new(Written::default()))).collect::<Vec<_>>();
        let mut prepared = Prepared { settings, written, history: Vec::new() };
        prepared.history = prepared.write_history(cluster).await?;
        embedded.compact(COMPACTED)?;
        Ok(prepared)
    }

    /// Whether a writer has failed or all have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.writers.iter().any(JoinHandle::is_finished)
    }

    /// What was written so far, by topic.
    pub(super) fn written(&self) -> &[(&'static TopicPlan, Arc<Written>)] {
        &self.written
    }

    /// Lets all writers end their round.
    ///
    /// # Errors
    /// What a writer failed with.
    pub(super) async fn stop(&mut self) -> Result<(), Error> {
        self.stop.send_replace(true);
        let mut result = Ok(());
        for writer in self.writers.drain(..) {
            if let Ok(ended) = writer.await {
                result = result.and(ended);
            }
        }
        result
    }
}

/// Topics that wait for their traffic.
pub(super) struct Prepared {
    settings: TrafficSettings,
    written: Vec<(&'static TopicPlan, Arc<Written>)>,
    /// The writers that wrote already.
    history: Vec<Writer>,
}

impl Prepared {
    /// Starts the traffic.
    pub(super) fn start(self, seam: &Seam, cluster: &Cluster, embedded: Arc<EmbeddedCluster>) -> Traffic {
        let (stop, stopped) = watch::channel(false);
        let mut writers = Vec::new();
        for writer in self.history {
            writers.push(seam.spawn(writer.run(stopped.clone())));
        }
        for (plan, written) in self.written.iter().filter(|(plan, _)| plan.name != COMPACTED) {
            let start =
                Start { cluster: cluster.clone(), plan, written: written.clone(), settings: self.settings };
            writers.push(seam.spawn(write_topic(start, stopped.clone())));
        }
        writers.push(seam.spawn(compact(embedded, stopped)));
        Traffic { written: self.written, writers, stop }
    }

    async fn write_history(&self, cluster: &Cluster) -> Result<Vec<Writer>, Error> {
        let mut writers = Vec::new();
        for (plan, written) in self.written.iter().filter(|(plan, _)| plan.name == COMPACTED) {
            let start =
                Start { cluster: cluster.clone(), plan, written: written.clone(), settings: self.settings };
            for nth in 0..plan.writers.len() {
                let mut writer = Writer::start(&start, nth).await?;
                while writer.written.records() < HISTORY_RECORDS {
                    writer.round(u64::MAX).await?;
                }
                writers.push(writer);
            }
        }
        Ok(writers)
    }
}

/// What the writers of a topic need.
#[derive(Clone)]
struct Start {
    cluster: Cluster,
    plan: &'static TopicPlan,
    written: Arc<Written>,
    settings: TrafficSettings,
}

async fn write_topic(start: Start, mut stopped: watch::Receiver<bool>) -> Result<(), Error> {
    if start.plan.appears == Appears::HalfWay {
        if pause(start.settings.half_way, &mut stopped).await == Pause::Stopped {
            return Ok(());
        }
        create_topic(&start.cluster, start.plan, start.settings.replication_factor).await?;
    }
    let mut writers = Vec::new();
    for nth in 0..start.plan.writers.len() {
        writers.push(Writer::start(&start, nth).await?);
    }
    // Few topics have more than one writer; the others run beside the last.
    let last = writers.pop();
    let beside: Vec<_> = writers.into_iter().map(|writer| start.spawn(writer.run(stopped.clone()))).collect();
    let mut result = match last {
        Some(writer) => writer.run(stopped).await,
        None => Ok(()),
    };
    for writer in beside {
        if let Ok(ended) = writer.await {
            result = result.and(ended);
        }
    }
    result
}

impl Start {
    fn spawn(
        &self,
        writer: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) -> JoinHandle<Result<(), Error>> {
        self.cluster.seam().spawn(writer)
    }
}

/// Compacts the compacted topic again and again, while it is written and copied.
async fn compact(embedded: Arc<EmbeddedCluster>, mut stopped: watch::Receiver<bool>) -> Result<(), Error> {
    while pause(COMPACTION_INTERVAL, &mut stopped).await == Pause::Over {
        embedded.compact(COMPACTED)?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    Over,
    Stopped,
}

/// Waits, but not past the stop. On a busy machine the stop may be seen only when the time is over as well: what was due
/// before it is done.
async fn pause(time: Duration, stopped: &mut watch::Receiver<bool>) -> Pause {
    tokio::select! {
        biased;
        () = sleep(time) => Pause::Over,
        _ = stopped.wait_for(|&stopped| stopped) => Pause::Stopped,
    }
}

/// One producer of one topic.
struct Writer {
    cluster: Cluster,
    topic: Arc<str>,
    plan: &'static TopicPlan,
    writer: &'static WriterPlan,
    producer: Producer,
    written: Arc<Written>,
    settings: TrafficSettings,
    partitions: i32,
    /// The next record's number in each partition; writers of one topic have ranges of their own.
    numbers: Vec<u64>,
    first_number: u64,
    rounds: usize,
    dice: Dice,
}

impl Writer {
    async fn start(start: &Start, nth: usize) -> Result<Writer, Error> {
        let Start { cluster, plan, written, settings } = start.clone();
        let writer = &plan.writers[nth];
        let kind = match writer.producer {
            ProducerKind::Plain => Kind::Plain,
            ProducerKind::Idempotent => Kind::Idempotent,
            ProducerKind::Transactional { .. } => {
                Kind::Transactional(Arc::from(format!("demo-{}-{nth}", plan.name)))
            }
        };
        let producer = Producer::start(cluster.clone(), kind).await?;
        let topic: Arc<str> = Arc::from(plan.name);
        wait_for_leaders(&cluster, &topic, plan.partitions).await?;
        let first_number = nth as u64 * 1_000_000_000;
        Ok(Writer {
            topic,
            plan,
            writer,
            producer,
            written,
            settings,
            partitions: plan.partitions,
            numbers: vec![first_number; plan.partitions as usize],
            first_number,
            rounds: 0,
            dice: Dice::new(settings.seed, &[nth as u64, plan.name.len() as u64]),
            cluster,
        })
    }

    async fn run(mut self, mut stopped: watch::Receiver<bool>) -> Result<(), Error> {
        let started = Instant::now();
        let mut done = 0;
        while pause(TICK, &mut stopped).await == Pause::Over {
            let elapsed = started.elapsed();
            if elapsed >= self.settings.half_way {
                self.grow().await?;
            }
            let due = due(self.settings.rate, self.writer.share, elapsed);
            while done < due && !*stopped.borrow() {
                done += self.round(due - done).await?;
            }
        }
        // However late its topic came: there is something to compare.
        while self.written.records() == 0 {
            self.round(u64::MAX).await?;
        }
        Ok(())
    }

    async fn grow(&mut self) -> Result<(), Error> {
        let Some(partitions) = self.plan.grows_to.filter(|&partitions| partitions > self.partitions) else {
            return Ok(());
        };
        create_partitions(&self.cluster, self.plan.name, partitions).await?;
        wait_for_leaders(&self.cluster, &self.topic, partitions).await?;
        self.partitions = partitions;
        self.numbers.resize(partitions as usize, self.first_number);
        Ok(())
    }

    /// Writes at most `records_max` records, but at least one: a batch to each of some partitions, in one transaction if
    /// the producer is transactional. Gives how many.
    async fn round(&mut self, records_max: u64) -> Result<u64, Error> {
        let loads = self.loads(records_max);
        let records: u64 = loads.iter().map(|load| load.records.len() as u64).sum();
        let partitions: Vec<i32> = loads.iter().map(|load| load.partition).collect();
        self.producer.begin(&self.topic, &partitions).await?;
        self.producer.send(&self.topic, &loads).await?;
        let ending = match self.writer.producer {
            ProducerKind::Transactional { aborted_one_in } if self.dice.one_in(aborted_one_in) => {
                Ending::Abort
            }
            _ => Ending::Commit,
        };
        self.producer.end(ending).await?;
        let count = match ending {
            Ending::Commit => &self.written.records,
            Ending::Abort => &self.written.aborted,
        };
        count.fetch_add(records, Ordering::Relaxed);
        Ok(records)
    }

    fn loads(&mut self, records_max: u64) -> Vec<Load> {
        let now_ms = self.cluster.seam().now_ms();
        let (least, most) = self.writer.batch_records;
        let mut left = usize::try_from(records_max).unwrap_or(usize::MAX).max(1);
        let first = self.dice.below(self.partitions as u64) as i32;
        let mut loads = Vec::new();
        for nth in 0..self.partitions {
            let records = self.dice.within(least..=most).min(left);
            if records == 0 {
                break;
            }
            left -= records;
            let partition = (first + nth) % self.partitions;
            let codec = self.writer.codecs[self.rounds % self.writer.codecs.len()];
            self.rounds += 1;
            loads.push(Load { partition, codec, records: self.records(partition, records, now_ms) });
        }
        loads
    }

    fn records(&mut self, partition: i32, count: usize, now_ms: i64) -> Vec<crate::record::RecordData> {
        let first = self.numbers[partition as usize];
        self.numbers[partition as usize] += count as u64;
        (first..first + count as u64)
            .map(|number| {
                // Some producers' clocks are late: timestamps need not rise.
                let late_ms = if self.dice.one_in(16) { self.dice.below(5_000) as i64 } else { 0 };
                let (shape, seed) = (&self.writer.shape, self.settings.seed);
                record(shape, seed, self.plan.name, partition, number, now_ms - late_ms)
            })
            .collect()
    }
}

/// How many records a writer should have written by now.
fn due(rate: u32, share: u32, elapsed: Duration) -> u64 {
    let micros = elapsed.as_micros() as u64;
    (u64::from(rate) * u64::from(share)).saturating_mul(micros) / 1_000_000_000
}

async fn create_topic(cluster: &Cluster, plan: &TopicPlan, replication_factor: i16) -> Result<(), Error> {
    let configs = plan.configs.iter().map(|&(key, value)| {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_static_str(key))
            .with_value(Some(StrBytes::from_static_str(value)))
    });
    let topic = CreatableTopic::default()
        .with_name(TopicName(StrBytes::from_static_str(plan.name)))
        .with_num_partitions(plan.partitions)
        .with_replication_factor(replication_factor)
        .with_configs(configs.collect());
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(ADMIN_TIMEOUT_MS);
    let answer = cluster.call(Node::Controller, &request).await?.response;
    let codes = answer.topics.iter().map(|topic| topic.error_code);
    judged(format!("creating the topic {}", plan.name), codes)
}

async fn create_partitions(cluster: &Cluster, topic: &'static str, partitions: i32) -> Result<(), Error> {
    let wanted = CreatePartitionsTopic::default()
        .with_name(TopicName(StrBytes::from_static_str(topic)))
        .with_count(partitions)
        .with_assignments(None);
    let request =
        CreatePartitionsRequest::default().with_topics(vec![wanted]).with_timeout_ms(ADMIN_TIMEOUT_MS);
    let answer = cluster.call(Node::Controller, &request).await?.response;
    judged(
        format!("giving the topic {topic} {partitions} partitions"),
        answer.results.iter().map(|topic| topic.error_code),
    )
}

fn judged(what: String, mut codes: impl Iterator<Item = i16>) -> Result<(), Error> {
    match codes.find(|&code| code != 0) {
        None => Ok(()),
        Some(code) => Err(Error::Command { what, code: ErrorCode(code) }),
    }
}

async fn wait_for_leaders(cluster: &Cluster, topic: &Arc<str>, partitions: i32) -> Result<(), Error> {
    let deadline = Instant::now() + LEADER_TIMEOUT;
    loop {
        let view = cluster.refresh(Topics::Named(vec![topic.clone()])).await?;
        let missing = (0..partitions).find(|&partition| view.leader(topic, partition).is_none());
        let Some(partition) = missing else { return Ok(()) };
        if Instant::now() >= deadline {
            let code = ErrorCode::LEADER_NOT_AVAILABLE;
            return Err(Error::Refused { topic: topic.clone(), partition, code });
        }
        sleep(TICK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_keep_to_their_share_of_the_rate() {
        for (rate, share, elapsed_ms, wanted) in [
            (4_000, 250, 1_000, 1_000),
            (4_000, 250, 500, 500),
            (10, 100, 999, 0),
            (10, 100, 1_000, 1),
            (0, 1_000, 9_000, 0),
        ] {
            assert_eq!(due(rate, share, Duration::from_millis(elapsed_ms)), wanted);
        }
    }
}

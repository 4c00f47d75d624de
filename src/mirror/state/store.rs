//! The acting side of a flow's memory: creates both topics, reads them to their ends, writes what is to be remembered.
//!
//! One task owns the topics and writes one save after the other, under a producer id of its own, so that an older position
//! never lands behind a newer one: a save that was repeated may still be under way for the first time, and arrive when
//! later ones have been acknowledged. [`PositionStore`] is a handle to it. A save is retried until it is acknowledged by
//! all in-sync replicas, or until the flow is given up: only what was acknowledged counts, and only that is remembered.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::batches::{Layout, batches, mm2_offset};
use super::log::for_each_committed;
use super::mm2_offsets::Mm2Offsets;
use super::records::{Gap, Position, ProducerRecord, Segment, StateRecord};
use super::{Remembered, RememberedPartition, Standing, TopicPartition, owner};
use crate::client::produce::Permit;
use crate::client::{Cluster, ClusterView, Error, ErrorCode, IsolationLevel, NewTopic, Topics};
use crate::mirror::producer_id::init_producer;
use crate::mirror::start::{OtherClusters, check_clusters};
use crate::mirror::topics::apply::warn_lowered;
use crate::mirror::topics::configs::replication_factor;
use crate::mirror::{FlowSettings, kmirror_topic};
use crate::record::{self, BatchHeader, HEADER_BYTES, ProducerIdentity};

/// How long opening waits for a producer id.
const PRODUCER_WITHIN: Duration = Duration::from_secs(1);
/// How long a topic may be unknown to the target before it counts as deleted.
const UNKNOWN_WITHIN: Duration = Duration::from_secs(30);
/// Saves that wait for the owner.
const INBOX_MAX: usize = 64;
/// Partitions of our own topic: all that a flow remembers is read at once, so more would gain nothing.
const STATE_PARTITIONS: i32 = 1;
/// What one of the topics may hold; compacted, a million partitions have less.
const TOPIC_BYTES_MAX: usize = 1 << 30;

/// A handle to the memory of a flow; cheap to clone.
#[derive(Clone)]
pub struct PositionStore {
    inbox: mpsc::Sender<Save>,
    memory: Memory,
}

/// Why something could not be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The right to write was lost, or the flow has ended.
    #[error("positions are no longer stored: the flow has been given up")]
    Closed,
    /// The target refuses, and will not change its mind by itself.
    #[error("positions cannot be stored: {reason}")]
    Refused {
        /// The whole story.
        reason: String,
    },
    /// Not now; a later save stores what is right by then.
    #[error("positions are not stored yet: {reason}")]
    Later {
        /// Why.
        reason: String,
    },
}

/// Why the memory of a flow could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A cluster did not do what it was asked for; the error says which.
    #[error("cannot open the memory of the flow: {}", .0.chain())]
    Client(Error),
    /// It belongs to other clusters.
    #[error(transparent)]
    OtherClusters(#[from] OtherClusters),
}

/// What is remembered, as far as it is acknowledged. Shared between the handles, which ask, and the owner, which adds;
/// nobody holds the lock across an await.
type Memory = Arc<Mutex<Remembered>>;

/// Partitions that a consumer group has given us, with the generation in which they came.
pub(in crate::mirror) type Held = Arc<BTreeMap<TopicPartition, i32>>;

/// Records to be stored, and who waits for it.
#[derive(Debug)]
pub(in crate::mirror) struct Save {
    pub(in crate::mirror) records: Vec<StateRecord>,
    /// Since when the partitions were ours that the records speak of; nobody gives them out where this is empty.
    pub(in crate::mirror) held: Held,
    pub(in crate::mirror) done: oneshot::Sender<Result<(), StoreError>>,
}

/// The task that owns both topics.
#[derive(Debug)]
pub struct StoreOwner {
    target: Cluster,
    layout: Layout,
    memory: Memory,
    in_mm2: BTreeSet<TopicPartition>,
    inbox: mpsc::Receiver<Save>,
    /// Producer id and epoch; none when there is none yet, and after a broker lost track of it.
    producer: Option<(i64, i16)>,
    /// The next sequence, by topic and partition.
    sequences: BTreeMap<(Arc<str>, i32), i32>,
    settings: FlowSettings,
}

impl fmt::Debug for PositionStore {
    /// Without the memory, which may be large.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PositionStore").finish_non_exhaustive()
    }
}

impl PositionStore {
    /// A store that somebody else than [`StoreOwner`] writes, with what is remembered; its saves come out of the receiver.
    pub(in crate::mirror) fn of(remembered: Remembered) -> (PositionStore, mpsc::Receiver<Save>) {
        let (inbox, saves) = mpsc::channel(INBOX_MAX);
        (PositionStore { inbox, memory: Arc::new(Mutex::new(remembered)) }, saves)
    }

    /// A record was stored by the owner of a store that was made by [`PositionStore::of`].
    pub(in crate::mirror) fn remember(&self, record: StateRecord) {
        lock(&self.memory).stored(record);
    }

    /// Somebody else may have moved a partition: what is known of it gives way unless it says the same.
    pub(in crate::mirror) fn recall(
        &self,
        source: &TopicPartition,
        upstream: Option<i64>,
        position: impl FnOnce(i64) -> Position,
    ) {
        let mut memory = lock(&self.memory);
        let of = memory.partitions.entry(source.clone()).or_default();
        of.baseline = None;
        let is_same = upstream.is_some() && of.position.map(|known| known.upstream) == upstream;
        if !is_same {
            of.position = upstream.map(position);
        }
    }

    /// Stores `records`, and returns when they are acknowledged. Saves of one caller, one after the other, are stored in
    /// that order; of several records for one key the last counts. Saving the same again does no harm.
    ///
    /// # Errors
    /// [`StoreError::Closed`] when the flow was given up; [`StoreError::Refused`] when the target says no for good.
    pub async fn save(&self, records: Vec<StateRecord>) -> Result<(), StoreError> {
        self.save_held(records, Held::default()).await
    }

    /// As [`PositionStore::save`], for partitions that a group has given us: what is stored for those that have been another
    /// member's meanwhile would take back what that one has stored, so it is left out. Saves are in the order of the calls,
    /// whenever they are awaited.
    pub(in crate::mirror) fn save_held(
        &self,
        records: Vec<StateRecord>,
        held: Held,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        let (done, answer) = oneshot::channel();
        let inbox = self.inbox.clone();
        let is_empty = records.is_empty();
        let sent = if is_empty { Ok(()) } else { inbox.try_send(Save { records, held, done }) };
        async move {
            match sent {
                Ok(()) if is_empty => return Ok(()),
                Ok(()) => {}
                Err(TrySendError::Full(save)) => inbox.send(save).await.map_err(|_| StoreError::Closed)?,
                Err(TrySendError::Closed(_)) => return Err(StoreError::Closed),
            }
            answer.await.map_err(|_| StoreError::Closed)?
        }
    }

    /// Where a partition stands by what is stored.
    pub fn standing(&self, source: &TopicPartition) -> Standing {
        lock(&self.memory).standing(source)
    }

    /// Partitions of which something is remembered.
    pub fn partitions(&self) -> usize {
        lock(&self.memory).partitions.len()
    }

    /// Whether the flow's beginning is on record.
    pub fn has_begun(&self) -> bool {
        lock(&self.memory).flow_start.is_some()
    }

    /// Whether nobody has replicated the flow before; see [`Remembered::is_first_start`].
    pub fn is_first_start(&self) -> bool {
        lock(&self.memory).is_first_start()
    }

    /// The producer that appended last.
    pub fn producer(&self) -> Option<ProducerRecord> {
        lock(&self.memory).producer
    }

    /// What is stored of a partition's offset map.
    pub fn segments(&self, source: &TopicPartition) -> Vec<Segment> {
        let memory = lock(&self.memory);
        memory.partitions.get(source).map(|of| of.segments.values().cloned().collect()).unwrap_or_default()
    }

    /// All gaps on record.
    pub fn gaps(&self) -> Vec<(TopicPartition, Gap)> {
        let memory = lock(&self.memory);
        let of = |(source, partition): (&TopicPartition, &RememberedPartition)| {
            partition.gaps.values().map(|gap| (source.clone(), gap.clone())).collect::<Vec<_>>()
        };
        memory.partitions.iter().flat_map(of).collect()
    }
}

impl StoreOwner {
    /// Creates what is missing of both topics and reads them to their ends. The flow must hold its lease: what another
    /// writer stores later is not seen.
    ///
    /// # Errors
    /// [`OpenError::Client`] is worth another try when the error in it is; [`OpenError::OtherClusters`] is for a person.
    pub async fn open(
        source: &Cluster,
        target: &Cluster,
        settings: &FlowSettings,
    ) -> Result<(PositionStore, StoreOwner), OpenError> {
        // The id is there by the first save; if not, that one asks again.
        let producer = timeout(PRODUCER_WITHIN, init_producer(target));
        let (opened, producer) = tokio::join!(open_topics(target, settings), producer);
        let (layout, written) = opened.map_err(OpenError::Client)?;
        let (remembered, ()) =
            tokio::join!(load(target, &layout, &written), warn_unless_compacted(target, &written));
        let remembered = remembered.map_err(OpenError::Client)?;
        if let Some(start) = &remembered.flow_start {
            let view = source.refresh(Topics::Named(Vec::new())).await.map_err(OpenError::Client)?;
            check_clusters(start, &layout, view.cluster_id.as_ref(), target.view().cluster_id.as_ref())?;
        }
        let in_mm2 =
            remembered.partitions.iter().filter(|(_, of)| of.mm2.is_some()).map(|(source, _)| source.clone());
        let in_mm2 = in_mm2.collect();
        let memory = Arc::new(Mutex::new(remembered));
        let (sender, inbox) = mpsc::channel(INBOX_MAX);
        let store = PositionStore { inbox: sender, memory: Arc::clone(&memory) };
        let producer = producer.ok().and_then(Result::ok);
        let sequences = BTreeMap::new();
        let (target, settings) = (target.clone(), settings.clone());
        Ok((store, StoreOwner { target, layout, memory, in_mm2, inbox, producer, sequences, settings }))
    }

    /// Stores what comes while `permit` holds, until the last handle is gone.
    pub async fn run(mut self, permit: Permit) {
        while let Some(Save { records, done, .. }) = self.inbox.recv().await {
            let outcome = self.save(&records, &permit).await;
            // Whoever gave up waiting has no use for the answer.
            let _ = done.send(outcome);
        }
    }

    async fn save(&mut self, records: &[StateRecord], permit: &Permit) -> Result<(), StoreError> {
        match self.write_both(records, permit).await {
            Ok(()) => {}
            Err(WriteError::Gone(topic)) => self.store_anew(&topic, records, permit).await?,
            Err(error) => return Err(error.into()),
        }
        let mut memory = lock(&self.memory);
        for record in records {
            if let Some((source, last_offset)) = mm2_offset(record, &self.in_mm2) {
                memory.stored_mm2(source, last_offset);
                self.in_mm2.insert(source.clone());
            }
            memory.stored(record.clone());
        }
        Ok(())
    }

    async fn write_both(&mut self, records: &[StateRecord], permit: &Permit) -> Result<(), WriteError> {
        let now_ms = self.target.seam().now_ms();
        let made = batches(&self.layout, records, &self.in_mm2, now_ms)
            .map_err(|error| StoreError::Refused { reason: error.to_string() })?;
        self.write(self.layout.offsets_topic.clone(), made.offsets, permit).await?;
        self.write(self.layout.state_topic.clone(), made.state, permit).await
    }

    /// Somebody has deleted one of the topics under us: it is made again, and all that is remembered goes into it. Of topics
    /// that the flow does not select another process may know more.
    async fn store_anew(
        &mut self,
        topic: &str,
        records: &[StateRecord],
        permit: &Permit,
    ) -> Result<(), StoreError> {
        tracing::warn!(
            target: "kmirror::state",
            "{topic} was deleted on the target: it is created again, and all that is remembered is stored anew"
        );
        let mut failures = 0;
        self.layout = loop {
            match open_topics(&self.target, &self.settings).await {
                Ok((layout, _)) => break layout,
                Err(error) if error.is_retriable() => self.back_off(&mut failures).await,
                Err(error) => return Err(StoreError::Refused { reason: error.chain() }),
            }
        };
        // What it has sent to the topic that is gone counts for nothing in the new one.
        self.producer = None;
        let mut all = lock(&self.memory).records(|topic| self.settings.topics.matches(topic));
        all.extend_from_slice(records);
        Ok(self.write_both(&all, permit).await?)
    }
}

impl StoreOwner {
    /// Writes batches to the partitions of a topic; all of them again under another producer id when a broker has lost
    /// track of this one, for written twice they say the same.
    async fn write(
        &mut self,
        topic: Arc<str>,
        batches: BTreeMap<i32, Vec<Bytes>>,
        permit: &Permit,
    ) -> Result<(), WriteError> {
        let mut failures = 0;
        loop {
            let producer = self.producer().await;
            let mut frozen = BTreeMap::new();
            for (&partition, batches) in &batches {
                let next = self.sequences.entry((topic.clone(), partition)).or_default();
                let batches = batches.iter().map(|batch| freeze(batch, producer, next));
                let batches = batches.collect::<Result<Vec<_>, _>>();
                let refused = |error: record::Error| StoreError::Refused { reason: error.to_string() };
                frozen.insert(partition, batches.map_err(refused)?);
            }
            match write(&self.target, &topic, frozen, permit).await {
                Ok(()) => return Ok(()),
                Err(WriteError::LostTrack) => self.producer = None,
                Err(error) => return Err(error),
            }
            self.back_off(&mut failures).await;
        }
    }

    async fn producer(&mut self) -> (i64, i16) {
        let mut failures = 0;
        loop {
            if let Some(producer) = self.producer {
                return producer;
            }
            match init_producer(&self.target).await {
                Ok(producer) => (self.producer, self.sequences) = (Some(producer), BTreeMap::new()),
                Err(reason) => {
                    tracing::warn!(target: "kmirror::state", "no producer id to store positions with yet: {reason}");
                    self.back_off(&mut failures).await;
                }
            }
        }
    }

    async fn back_off(&self, failures: &mut u32) {
        sleep(self.target.settings().retry_backoff.delay(*failures, self.target.seam().random())).await;
        *failures += 1;
    }
}

/// A batch under our producer id, from the next sequence on.
fn freeze(
    batch: &Bytes,
    (producer_id, producer_epoch): (i64, i16),
    next: &mut i32,
) -> Result<Bytes, record::Error> {
    let identity = ProducerIdentity { producer_id, producer_epoch, base_sequence: *next };
    let header = record::patch(batch, batch.len(), identity)?;
    // Past the last sequence the broker loses track, and another producer id begins.
    *next = next.saturating_add(BatchHeader::parse(&header)?.record_count);
    Ok(Bytes::from([&header[..], &batch[HEADER_BYTES..]].concat()))
}

/// Why a batch could not be written.
enum WriteError {
    Store(StoreError),
    /// Its partition expected another sequence.
    LostTrack,
    /// The target has not known this topic for [`UNKNOWN_WITHIN`].
    Gone(Arc<str>),
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> WriteError {
        WriteError::Store(error)
    }
}

impl From<WriteError> for StoreError {
    fn from(error: WriteError) -> StoreError {
        let reason = match error {
            WriteError::Store(error) => return error,
            WriteError::LostTrack => "the target has lost track of the producer".to_owned(),
            WriteError::Gone(topic) => format!("{topic} is not there"),
        };
        StoreError::Refused { reason }
    }
}

/// Creates what is missing of both topics; tells how they lie, and which of them may hold something: a topic that was
/// created here is empty, and its leaders need not be waited for.
async fn open_topics(target: &Cluster, settings: &FlowSettings) -> Result<(Layout, Vec<Arc<str>>), Error> {
    let offsets_topic: Arc<str> = Arc::from(settings.offset_storage_topic.as_str());
    let state_topic: Arc<str> = Arc::from(kmirror_topic(&settings.source));
    let names = [offsets_topic.clone(), state_topic.clone()];
    let mut view = target.refresh(Topics::Named(names.to_vec())).await?;
    let partitions = [settings.offset_storage_partitions, STATE_PARTITIONS];
    let missing: Vec<NewTopic> = names
        .iter()
        .zip(partitions)
        .filter(|(name, _)| partition_count(&view, name) == 0)
        .map(|(name, partitions)| NewTopic {
            name: name.clone(),
            partitions,
            replication_factor: replication_factor(
                settings.offset_storage_replication_factor,
                view.brokers.len(),
            ),
            configs: [("cleanup.policy".to_owned(), "compact".to_owned())].into(),
        })
        .collect();
    let mut created: BTreeMap<Arc<str>, i32> = BTreeMap::new();
    if !missing.is_empty() {
        let factor = settings.offset_storage_replication_factor;
        warn_lowered("offset.storage.replication.factor", factor, view.brokers.len());
        let mut awaited = BTreeMap::new();
        for (name, outcome) in target.create_topics(&missing).await? {
            let count = missing.iter().find(|topic| topic.name == name).map_or(1, |topic| topic.partitions);
            match outcome {
                Ok(_) => drop(created.insert(name, count)),
                Err(error) if error.code() == Some(ErrorCode::TOPIC_ALREADY_EXISTS) => {
                    awaited.insert(name, count);
                }
                Err(error) => return Err(error),
            }
        }
        if !awaited.is_empty() {
            view = target.wait_for_leaders(&awaited).await?;
        }
    }
    let count = |name| created.get(name).copied().unwrap_or_else(|| partition_count(&view, name).max(1));
    let [offsets_partitions, state_partitions] = [count(&offsets_topic), count(&state_topic)];
    let (source, owner) = (settings.source.clone(), owner(&settings.target));
    let connector = settings.connectors.source.clone();
    let layout =
        Layout { source, connector, owner, offsets_partitions, offsets_topic, state_partitions, state_topic };
    let written = names.into_iter().filter(|name| !created.contains_key(name)).collect();
    Ok((layout, written))
}

/// What a flow remembers, for people to look at: nothing is created, and a topic that is missing holds nothing.
///
/// # Errors
/// When a topic cannot be read whole.
pub async fn look(target: &Cluster, settings: &FlowSettings) -> Result<Remembered, Error> {
    let offsets_topic: Arc<str> = Arc::from(settings.offset_storage_topic.as_str());
    let state_topic: Arc<str> = Arc::from(kmirror_topic(&settings.source));
    let names = [offsets_topic.clone(), state_topic.clone()];
    let view = target.refresh(Topics::Named(names.to_vec())).await?;
    let layout = Layout {
        source: settings.source.clone(),
        connector: settings.connectors.source.clone(),
        owner: owner(&settings.target),
        offsets_partitions: partition_count(&view, &offsets_topic),
        offsets_topic,
        state_partitions: partition_count(&view, &state_topic),
        state_topic,
    };
    let written: Vec<Arc<str>> = names.into_iter().filter(|name| partition_count(&view, name) > 0).collect();
    load(target, &layout, &written).await
}

fn partition_count(view: &ClusterView, topic: &str) -> i32 {
    view.topic(topic).map_or(0, |topic| topic.partitions.len() as i32)
}

/// A topic that is not compacted alone forgets positions by time; Connect refuses such a topic
/// (`KafkaOffsetBackingStore`, KAFKA-10021), we say so.
async fn warn_unless_compacted(target: &Cluster, topics: &[Arc<str>]) {
    if topics.is_empty() {
        return;
    }
    let Ok(described) = target.describe_topic_configs(topics).await else { return };
    for (topic, entries) in described {
        let Ok(entries) = entries else { continue };
        let policy = entries.iter().find(|entry| entry.name == "cleanup.policy");
        if let Some(policy) = policy.and_then(|entry| entry.value.as_deref())
            && policy != "compact"
        {
            tracing::warn!(
                target: "kmirror::state",
                "cleanup.policy of {topic} is {policy}: stored positions will be lost; it must be compact"
            );
        }
    }
}

/// Reads those of both topics that are in `written`. MirrorMaker's may have been written within transactions.
async fn load(target: &Cluster, layout: &Layout, written: &[Arc<str>]) -> Result<Remembered, Error> {
    let mut remembered = Remembered::default();
    let mut offsets = Mm2Offsets::new(layout.connector.clone(), layout.source.clone());
    let committed = IsolationLevel::ReadCommitted;
    let read = async |topic: &Arc<str>| match written.contains(topic) {
        true => target.read_to_end(topic, committed, TOPIC_BYTES_MAX).await,
        false => Ok(BTreeMap::default()),
    };
    for (partition, log) in read(&layout.offsets_topic).await? {
        remembered.unreadable += for_each_committed(&log.batches, |timestamp, key, value| {
            offsets.apply(partition, timestamp, &key, value);
        });
    }
    remembered.apply_mm2(&offsets);
    for (_, log) in read(&layout.state_topic).await? {
        let unreadable = for_each_committed(&log.batches, |_, key, value| {
            remembered.apply_record(&layout.owner, &key, value);
        });
        remembered.unreadable += unreadable;
    }
    warn_of(&remembered, layout);
    Ok(remembered)
}

fn warn_of(remembered: &Remembered, layout: &Layout) {
    let Layout { offsets_topic, state_topic, .. } = layout;
    if remembered.unreadable > 0 {
        tracing::warn!(
            target: "kmirror::state",
            records = remembered.unreadable,
            "records of {offsets_topic} or {state_topic} cannot be read and are passed over"
        );
    }
    if !remembered.unknown.is_empty() {
        let what: Vec<&str> = remembered.unknown.iter().map(String::as_str).collect();
        tracing::warn!(
            target: "kmirror::state",
            "{state_topic} holds what a later kmirror has written; this one passes over {}",
            what.join(", ")
        );
    }
}

/// Writes batches to the partitions of a topic, all partitions at once and the batches of one after the other.
async fn write(
    target: &Cluster,
    topic: &Arc<str>,
    batches: BTreeMap<i32, Vec<Bytes>>,
    permit: &Permit,
) -> Result<(), WriteError> {
    let writes: Vec<_> = batches
        .into_iter()
        .map(|(partition, batches)| {
            let (target, topic, mut permit) = (target.clone(), topic.clone(), permit.clone());
            let seam = target.seam().clone();
            AbortOnDrop(seam.spawn(async move {
                for batch in batches {
                    write_batch(&target, &topic, partition, batch, &mut permit).await?;
                }
                Ok::<(), WriteError>(())
            }))
        })
        .collect();
    for mut write in writes {
        match (&mut write.0).await {
            Ok(outcome) => outcome?,
            // The runtime is shutting down.
            Err(_) => return Err(WriteError::Store(StoreError::Closed)),
        }
    }
    Ok(())
}

/// Repeats the same bytes until the batch is acknowledged. A topic that was created a moment ago is not yet in the metadata
/// of every broker: one that is unknown is tried again for a while.
async fn write_batch(
    target: &Cluster,
    topic: &Arc<str>,
    partition: i32,
    batch: Bytes,
    permit: &mut Permit,
) -> Result<(), WriteError> {
    let (mut failures, started) = (0, Instant::now());
    loop {
        permit.held().await;
        let error = match target.produce(topic, partition, batch.clone()).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let unheard = matches!(error, Error::Unknown { .. });
        match error.code() {
            // DUPLICATE_SEQUENCE_NUMBER: it is there.
            Some(ErrorCode(46)) => return Ok(()),
            // OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, UNKNOWN_PRODUCER_ID.
            Some(ErrorCode(45 | 47 | 49 | 59)) => return Err(WriteError::LostTrack),
            _ if error.is_retriable() => {}
            _ if unheard && started.elapsed() < UNKNOWN_WITHIN => {}
            _ if unheard => return Err(WriteError::Gone(topic.clone())),
            _ => return Err(WriteError::Store(StoreError::Refused { reason: error.chain() })),
        }
        if !unheard {
            tracing::warn!(target: "kmirror::state", %topic, partition, error = %error.chain(), "cannot store positions yet");
        }
        sleep(target.settings().retry_backoff.delay(failures, target.seam().random())).await;
        failures += 1;
    }
}

/// A task that ends with whoever waits for it: after a lost lease nothing may be written any more.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn lock(memory: &Memory) -> MutexGuard<'_, Remembered> {
    // A panic elsewhere leaves the memory as it was after the last whole change.
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Either cluster may be the one that fails.
    #[test]
    fn an_error_names_the_cluster_that_failed() {
        for cluster in ["A", "B"] {
            let error = OpenError::Client(Error::Closed { cluster: Arc::from(cluster) });
            let wanted =
                format!("cannot open the memory of the flow: cluster {cluster}: its connections are closed");
            assert_eq!(error.to_string(), wanted);
        }
    }
}

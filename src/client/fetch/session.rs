//! What a fetch lane asks for next, and what an answer means: the decisions, without socket and clock.
//!
//! An incremental fetch session (KIP-227) keeps the list of partitions at the broker: a request names only what changed
//! since, `epoch` counts the requests. The session is serial, so one fetch is in flight at a time. Rules
//! (`FetchSessionHandler.java`):
//!
//! ```text
//! (0, 0)   ── full fetch ──►  answer with id S: (S, 1)   with id 0: (0, 0), the broker keeps no session
//! (S, e)   ── incremental ─►  answer with id S: (S, e+1) with id 0: (0, 0), the broker ended the session
//! (S, e)   ── FETCH_SESSION_ID_NOT_FOUND ─► (0, 0)       other session errors, lost answers: (S, 0), a full fetch that replaces S
//! ```
//! Batches are read from leaders: `client.rack` is not sent, because a broker that would rather have another replica read
//! from (KIP-392) sends no records then.
//!
//! A partition's fetch offset follows the headers of the batches that came, so that data the flow was given is never
//! asked for again. What a response brings of a partition counts only if the partition was in a request since its `Add`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition as Asked, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::{FetchRequest, TopicName as EncodedName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::partitions::{Known, Partition, Partitions, Topic, TopicPlace};
use super::walker::{CutEntry, FetchHead, PartitionEnd, PartitionHead, TopicName};
use crate::client::{
    AbortedTransaction, FetchEvent, FetchPartition, FetchSettings, Fetched, FetchedBatch, IsolationLevel,
    PartitionKey,
};
use crate::record::{self, BatchHeader, Magic};

/// The first version with sessions.
const SESSIONS_SINCE: i16 = 7;
/// The first version that names the leader epoch (KIP-320).
const LEADER_EPOCHS_SINCE: i16 = 9;
/// The first version that names the epoch of the last batch that came (KIP-595).
const LAST_FETCHED_EPOCHS_SINCE: i16 = 12;
/// The last version that names topics.
const TOPIC_NAMES_UNTIL: i16 = 12;
/// Session errors in a row after which the broker is given time.
const SESSION_ERRORS_MAX: u32 = 3;

/// How a fetch waits for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// `fetch.max.wait.ms`.
    Full,
    /// Nothing has come for a while.
    Idle,
    /// No longer than this: a partition that is out of the session may soon be back, and cannot join a fetch that waits.
    AtMost(Duration),
}

/// What to do with the records of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// They are wanted.
    Keep,
    /// Nobody wants them.
    Skip,
}

/// What the head of a response means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadVerdict {
    /// Partitions follow, or a full fetch must be next.
    Proceed,
    /// The broker refuses to serve fetches now, with Kafka's error code.
    Refused(i16),
}

/// The fetch session of a lane, its partitions, and the response that is being read.
#[derive(Debug)]
pub struct FetchSession {
    settings: FetchSettings,
    partitions: Partitions,
    changed: Vec<PartitionKey>,
    forgotten: BTreeSet<(Arc<str>, Uuid, i32)>,
    session_id: i32,
    session_epoch: i32,
    topic_ids: bool,
    rotation: usize,
    in_flight: Option<Kind>,
    errors_in_a_row: u32,
    topic: Option<TopicPlace>,
    current: Option<Current>,
    no_aborted: Arc<[AbortedTransaction]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Full,
    Incremental,
}

/// The partition whose records are being read.
#[derive(Debug)]
struct Current {
    key: PartitionKey,
    watermarks: (i64, i64, i64),
    aborted: Arc<[AbortedTransaction]>,
    batches: Vec<FetchedBatch>,
    brought_batches: bool,
    damage: Option<record::Error>,
}

impl FetchSession {
    /// A lane without partitions.
    pub fn new(settings: FetchSettings) -> FetchSession {
        FetchSession {
            settings,
            partitions: Partitions::default(),
            changed: Vec::new(),
            forgotten: BTreeSet::new(),
            session_id: 0,
            session_epoch: 0,
            topic_ids: false,
            rotation: 0,
            in_flight: None,
            errors_in_a_row: 0,
            topic: None,
            current: None,
            no_aborted: Arc::from([]),
        }
    }

    /// Whether there is nothing to fetch.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Takes a partition in, in place of an earlier `Add` of the same key.
    pub fn add(&mut self, partition: FetchPartition) {
        self.remove(partition.key);
        // Named again, it must not be forgotten: a broker forgets after it has added.
        let at_broker =
            self.forgotten.remove(&(partition.topic.clone(), partition.topic_id, partition.partition));
        self.changed.push(partition.key);
        let max_bytes = usize::try_from(self.settings.max_partition_fetch_bytes).unwrap_or(0).max(1);
        let known = if at_broker { Known::AtBroker } else { Known::Here };
        self.partitions.insert(partition, max_bytes, known);
    }

    /// Lets a partition go; what comes of it is nobody's from now on.
    pub fn remove(&mut self, key: PartitionKey) {
        if self.current.as_ref().is_some_and(|current| current.key == key) {
            self.current = None;
        }
        if let Some((partition, name, id)) = self.partitions.remove(key)
            && partition.known != Known::Here
        {
            self.forgotten.insert((name, id, partition.added.partition));
        }
    }

    /// The next request and its version, at most `version_max`; `None` when there is nothing to fetch.
    pub fn request(&mut self, version_max: i16, patience: Patience) -> Option<(FetchRequest, i16)> {
        if self.partitions.is_empty() {
            return None;
        }
        let version =
            if self.partitions.have_ids() { version_max } else { version_max.min(TOPIC_NAMES_UNTIL) };
        let topic_ids = version > TOPIC_NAMES_UNTIL;
        if std::mem::replace(&mut self.topic_ids, topic_ids) != topic_ids {
            // A session names its topics in one way (FETCH_SESSION_TOPIC_ID_ERROR).
            self.session_epoch = 0;
        }
        let wait = match patience {
            Patience::Idle if self.settings.fetch_min_bytes <= 1 => self.settings.fetch_max_wait_idle,
            Patience::Full | Patience::Idle => self.settings.fetch_max_wait,
            Patience::AtMost(limit) => self.settings.fetch_max_wait.min(limit),
        };
        let mut request = FetchRequest::default()
            .with_max_wait_ms(i32::try_from(wait.as_millis()).unwrap_or(i32::MAX))
            .with_min_bytes(self.settings.fetch_min_bytes)
            .with_max_bytes(self.settings.fetch_max_bytes)
            .with_isolation_level(match self.settings.isolation_level {
                IsolationLevel::ReadUncommitted => 0,
                IsolationLevel::ReadCommitted => 1,
            });
        if version >= SESSIONS_SINCE {
            request = request.with_session_id(self.session_id).with_session_epoch(self.session_epoch);
        }
        let request = if version < SESSIONS_SINCE || self.session_epoch == 0 {
            self.in_flight = Some(Kind::Full);
            request.with_topics(self.all(version))
        } else {
            self.in_flight = Some(Kind::Incremental);
            request.with_topics(self.changed(version)).with_forgotten_topics_data(self.forgotten())
        };
        Some((request, version))
    }

    fn all(&mut self, version: i16) -> Vec<FetchTopic> {
        self.changed.clear();
        self.forgotten.clear();
        for partition in self.partitions.all_mut() {
            (partition.known, partition.changed) = (Known::Sent, false);
        }
        let topics = self.partitions.by_topic().map(|(topic, partitions)| {
            let mut asked: Vec<Asked> = partitions.map(|partition| ask(partition, version)).collect();
            rotate(&mut asked, self.rotation);
            name_topic(topic, self.topic_ids).with_partitions(asked)
        });
        let mut topics: Vec<FetchTopic> = topics.collect();
        rotate(&mut topics, self.rotation);
        // A broker fills its answer in the order that it is asked in. In a session it takes turns by itself.
        self.rotation = self.rotation.wrapping_add(1);
        topics
    }

    fn changed(&mut self, version: i16) -> Vec<FetchTopic> {
        let mut topics: BTreeMap<TopicPlace, Vec<Asked>> = BTreeMap::new();
        for key in std::mem::take(&mut self.changed) {
            if let Some(partition) = self.partitions.get_mut(key)
                && std::mem::take(&mut partition.changed)
            {
                partition.known = Known::Sent;
                topics.entry(partition.topic).or_default().push(ask(partition, version));
            }
        }
        let named = topics.into_iter().filter_map(|(place, asked)| {
            Some(name_topic(self.partitions.topic(place)?, self.topic_ids).with_partitions(asked))
        });
        named.collect()
    }

    fn forgotten(&mut self) -> Vec<ForgottenTopic> {
        let mut topics: Vec<ForgottenTopic> = Vec::new();
        for (name, id, partition) in std::mem::take(&mut self.forgotten) {
            // By name alone, a topic that was created anew is the same one, and is still wanted.
            let wanted = !self.topic_ids
                && self
                    .partitions
                    .find_topic(&TopicName::Name(name.to_string()))
                    .is_some_and(|topic| self.partitions.find(topic, partition).is_some());
            if wanted {
                continue;
            }
            let topic = match self.topic_ids {
                true => ForgottenTopic::default().with_topic_id(id),
                false => ForgottenTopic::default().with_topic(encoded_name(&name)),
            };
            match topics.last_mut() {
                Some(last) if last.topic == topic.topic && last.topic_id == topic.topic_id => {
                    last.partitions.push(partition);
                }
                _ => topics.push(topic.with_partitions(vec![partition])),
            }
        }
        topics
    }

    /// The head of the answer.
    pub fn head(&mut self, head: &FetchHead) -> HeadVerdict {
        let kind = self.in_flight.take();
        if head.error_code != 0 {
            return self.refused(head.error_code, kind);
        }
        self.errors_in_a_row = 0;
        match kind {
            Some(Kind::Incremental) if head.session_id == self.session_id => {
                self.session_epoch = self.session_epoch.checked_add(1).unwrap_or(1);
            }
            Some(Kind::Full) if head.session_id != 0 => {
                (self.session_id, self.session_epoch) = (head.session_id, 1);
            }
            _ => (self.session_id, self.session_epoch) = (0, 0),
        }
        HeadVerdict::Proceed
    }

    fn refused(&mut self, code: i16, kind: Option<Kind>) -> HeadVerdict {
        self.session_epoch = 0;
        let of_session = match ResponseError::try_from_code(code) {
            Some(ResponseError::FetchSessionIdNotFound) => {
                self.session_id = 0;
                true
            }
            Some(ResponseError::InvalidFetchSessionEpoch | ResponseError::FetchSessionTopicIdError) => true,
            _ => false,
        };
        self.errors_in_a_row += 1;
        if of_session && (kind == Some(Kind::Incremental) || self.errors_in_a_row < SESSION_ERRORS_MAX) {
            HeadVerdict::Proceed
        } else {
            HeadVerdict::Refused(code)
        }
    }

    /// The partitions that follow are of this topic.
    pub fn topic(&mut self, name: &TopicName) {
        self.topic = self.partitions.find_topic(name);
    }

    /// A partition of the answer begins.
    pub fn partition(&mut self, head: PartitionHead, events: &mut Vec<FetchEvent>) -> Records {
        self.current = None;
        let found = self.topic.and_then(|topic| self.partitions.find(topic, head.partition));
        let Some((key, partition)) = found.and_then(|key| {
            Some((key, self.partitions.get(key).filter(|partition| partition.known == Known::Sent)?))
        }) else {
            return Records::Skip;
        };
        if head.error_code != 0 {
            let generation = partition.added.generation;
            self.remove(key);
            events.push(FetchEvent::Failed { key, generation, code: head.error_code, diverging: None });
            return Records::Skip;
        }
        let aborted = if head.aborted.is_empty() { self.no_aborted.clone() } else { Arc::from(head.aborted) };
        self.current = Some(Current {
            key,
            watermarks: (head.high_watermark, head.last_stable_offset, head.log_start_offset),
            aborted,
            batches: Vec::new(),
            brought_batches: false,
            damage: None,
        });
        Records::Keep
    }

    /// A log entry of the partition.
    pub fn batch(&mut self, batch: FetchedBatch) -> Records {
        let Some(current) = &mut self.current else { return Records::Skip };
        let Some(partition) = self.partitions.get_mut(current.key) else { return Records::Skip };
        current.brought_batches = true;
        let raised = partition.saw_batch(batch.bytes.len());
        match place_in_log(&batch) {
            // The log's beginning of a message set may lie before the offset that was asked for.
            Ok((next_offset, _)) if next_offset <= partition.fetch_offset => {}
            Ok((next_offset, epoch)) => {
                partition.fetch_offset = next_offset;
                partition.last_fetched_epoch = epoch.unwrap_or(partition.last_fetched_epoch);
                mark_changed(partition, &mut self.changed);
                current.batches.push(batch);
            }
            Err(error) => {
                current.damage = Some(error);
                return Records::Skip;
            }
        }
        if raised {
            mark_changed(partition, &mut self.changed);
        }
        Records::Keep
    }

    /// Hands over what has come of the current partition, before the lane reads on.
    pub fn flush(&mut self, events: &mut Vec<FetchEvent>) {
        let Some(current) = &mut self.current else { return };
        let Some(partition) = self.partitions.get_mut(current.key) else { return };
        if current.batches.is_empty() {
            return;
        }
        partition.told = Some(current.watermarks);
        events.push(FetchEvent::Fetched(fetched(partition, current)));
    }

    /// The partition is over.
    pub fn partition_end(&mut self, end: PartitionEnd, events: &mut Vec<FetchEvent>) {
        self.flush(events);
        let Some(mut current) = self.current.take() else { return };
        let Some(partition) = self.partitions.get_mut(current.key) else { return };
        let (key, generation) = (current.key, partition.added.generation);
        if let Some(diverging) = end.diverging {
            self.remove(key);
            return events.push(FetchEvent::Failed { key, generation, code: 0, diverging: Some(diverging) });
        }
        if let Some(error) = current.damage.take().or(end.damage) {
            let offset = partition.fetch_offset;
            self.remove(key);
            return events.push(FetchEvent::Damaged { key, generation, offset, error });
        }
        let raised = match end.cut {
            Some(CutEntry { size_bytes: Some(size_bytes) }) => partition.saw_batch(size_bytes),
            Some(CutEntry { size_bytes: None }) if !current.brought_batches => partition.saw_too_little(),
            _ => false,
        };
        if raised {
            mark_changed(partition, &mut self.changed);
        }
        if partition.told != Some(current.watermarks) {
            partition.told = Some(current.watermarks);
            events.push(FetchEvent::Fetched(fetched(partition, &mut current)));
        }
    }

    /// The connection is gone. The broker may have counted a request whose answer was lost: the next one is full.
    pub fn disconnected(&mut self) {
        self.in_flight = None;
        self.current = None;
        self.session_epoch = 0;
        self.errors_in_a_row = 0;
    }
}

fn mark_changed(partition: &mut Partition, changed: &mut Vec<PartitionKey>) {
    if !std::mem::replace(&mut partition.changed, true) {
        changed.push(partition.added.key);
    }
}

fn fetched(partition: &Partition, current: &mut Current) -> Fetched {
    Fetched {
        key: current.key,
        generation: partition.added.generation,
        batches: std::mem::take(&mut current.batches),
        high_watermark: current.watermarks.0,
        last_stable_offset: current.watermarks.1,
        log_start_offset: current.watermarks.2,
        aborted: current.aborted.clone(),
    }
}

/// The offset behind an entry, and its leader epoch if it has one. The offset of a message of magic 0 or 1 is its last,
/// also when it wraps others.
fn place_in_log(batch: &FetchedBatch) -> Result<(i64, Option<i32>), record::Error> {
    if batch.magic == Magic::V2 {
        let header = BatchHeader::parse(&batch.bytes)?;
        let epoch = Some(header.partition_leader_epoch).filter(|&epoch| epoch >= 0);
        return Ok((header.next_offset(), epoch));
    }
    let offset = batch.bytes.first_chunk().map_or(-1, |bytes| i64::from_be_bytes(*bytes));
    match offset.checked_add(1) {
        Some(next_offset) if next_offset > 0 => Ok((next_offset, None)),
        _ => Err(record::Error::Invalid { what: "offset", value: offset, rule: "is no offset of a message" }),
    }
}

fn ask(partition: &Partition, version: i16) -> Asked {
    let mut asked = Asked::default()
        .with_partition(partition.added.partition)
        .with_fetch_offset(partition.fetch_offset)
        .with_partition_max_bytes(partition.max_bytes());
    if version >= LEADER_EPOCHS_SINCE {
        asked = asked.with_current_leader_epoch(partition.added.current_leader_epoch);
    }
    if version >= LAST_FETCHED_EPOCHS_SINCE {
        asked = asked.with_last_fetched_epoch(partition.last_fetched_epoch);
    }
    asked
}

fn name_topic(topic: &Topic, by_id: bool) -> FetchTopic {
    match by_id {
        true => FetchTopic::default().with_topic_id(topic.id),
        false => FetchTopic::default().with_topic(encoded_name(&topic.name)),
    }
}

fn encoded_name(name: &str) -> EncodedName {
    EncodedName(StrBytes::from_string(name.to_owned()))
}

fn rotate<T>(items: &mut [T], by: usize) {
    if !items.is_empty() {
        items.rotate_left(by % items.len());
    }
}

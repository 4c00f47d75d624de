//! Fetch: sessions, limits, waiting for data (`KafkaApis.handleFetchRequest`, `ReplicaManager.readFromLog`, `DelayedFetch`).

use std::ops::Range;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::FetchRequest;
use uuid::Uuid;

use super::fetch_reply::{FetchReply, PartitionReply, write};
use super::fetch_session::{Answered, FINAL_EPOCH, FetchFrom, FetchKey, INITIAL_EPOCH};
use super::topics::{Partition, TopicHandle};
use super::waits::Waiting;
use super::{ClusterState, Handled};
use crate::broker::log::{EpochEnd, FirstBatch, Isolation, Read};
use crate::broker::wire::{BrokerId, Outcome, Request, WaitId};

/// From this version on topics come by id (KIP-516).
const TOPIC_ID_VERSION: i16 = 13;
/// From this version on a consumer may fetch from a follower (KIP-392).
const FOLLOWER_VERSION: i16 = 11;

/// A Fetch in service.
#[derive(Debug)]
pub(super) struct FetchWait {
    request: Request,
    /// The reader's rack, or nothing.
    rack: String,
    plan: Plan,
    isolation: Isolation,
    bytes_min: usize,
    bytes_max: usize,
    deadline_ms: i64,
}

/// Where the partitions of a Fetch come from, and what is answered.
#[derive(Debug)]
enum Plan {
    /// Those of the request; all are answered. A session may be opened with them.
    Full { partitions: Vec<(FetchKey, FetchFrom)>, opens_session: bool },
    /// Those of the session; what is new is answered.
    Incremental { session_id: i32 },
}

/// What a look at all partitions gave.
#[derive(Default)]
struct Looked {
    partitions: Vec<PartitionReply>,
    bytes: usize,
    /// An error or a diverging epoch, which is told at once.
    is_urgent: bool,
}

/// Why a partition cannot be read here, with the leader's id and epoch where that helps.
type NotServed = (ResponseError, Option<(i32, i32)>);

impl FetchWait {
    fn is_about(&self, key: &FetchKey, sessions: &super::Sessions) -> bool {
        match &self.plan {
            Plan::Full { partitions, .. } => partitions.iter().any(|(of, _)| of == key),
            Plan::Incremental { session_id } => {
                sessions.get(self.request.broker, *session_id).is_some_and(|session| session.holds(key))
            }
        }
    }
}

impl ClusterState {
    pub(super) fn handle_fetch(&mut self, request: &Request, now_ms: i64) -> Handled {
        let body: FetchRequest = request.decode()?;
        let top_level = request.refuse_with.filter(|&code| request.version >= 7 && is_session_error(code));
        if let Some(code) = top_level {
            return Ok(self.refuse_fetch(request, code));
        }
        let plan = match self.plan_fetch(request, &body) {
            Ok(plan) => plan,
            Err(error) => return Ok(self.refuse_fetch(request, error.code())),
        };
        let fetch = FetchWait {
            request: request.clone(),
            rack: body.rack_id.to_string(),
            plan,
            isolation: isolation(body.isolation_level),
            bytes_min: usize::try_from(body.min_bytes).unwrap_or_default(),
            bytes_max: usize::try_from(body.max_bytes).unwrap_or_default(),
            deadline_ms: now_ms.saturating_add(i64::from(body.max_wait_ms)),
        };
        Ok(self.serve_fetch(Box::new(fetch), now_ms, None))
    }

    pub(super) fn resume_fetch(&mut self, id: WaitId, fetch: Box<FetchWait>, now_ms: i64) -> Outcome {
        self.serve_fetch(fetch, now_ms, Some(id))
    }

    /// Wakes the Fetches that wait for one of these partitions.
    pub(super) fn wake_fetches_of(&mut self, topic: &str, partitions: Range<i32>) {
        let topic_id = self.topics.get(topic).map_or(Uuid::nil(), |topic| topic.id);
        let (name, nameless): (Arc<str>, Arc<str>) = (Arc::from(topic), Arc::from(""));
        let sessions = &self.sessions;
        for partition in partitions {
            let by_name = FetchKey { topic: name.clone(), topic_id: Uuid::nil(), partition };
            let by_id = FetchKey { topic: nameless.clone(), topic_id, partition };
            self.waits
                .wake_fetches(|fetch| fetch.is_about(&by_name, sessions) || fetch.is_about(&by_id, sessions));
        }
    }

    /// Wakes every Fetch: what it asks for may have changed its leader.
    pub(super) fn wake_all_fetches(&mut self) {
        self.waits.wake_fetches(|_| true);
    }

    fn plan_fetch(&mut self, request: &Request, body: &FetchRequest) -> Result<Plan, ResponseError> {
        let (broker, uses_ids) = (request.broker, request.version >= TOPIC_ID_VERSION);
        let (id, epoch) = (body.session_id, body.session_epoch);
        if epoch == FINAL_EPOCH || epoch == INITIAL_EPOCH {
            self.sessions.close(broker, id);
            let partitions = asked(body, uses_ids);
            let opens_session = epoch == INITIAL_EPOCH && !partitions.is_empty();
            return Ok(Plan::Full { partitions, opens_session });
        }
        let forgotten = body.forgotten_topics_data.iter().flat_map(|topic| {
            let key = key(uses_ids, &topic.topic, topic.topic_id);
            topic.partitions.iter().map(move |&partition| FetchKey { partition, ..key.clone() })
        });
        let session = self.sessions.advance(broker, id, epoch, uses_ids, asked(body, uses_ids), forgotten)?;
        if session.is_empty() {
            self.sessions.close(broker, id);
            return Ok(Plan::Full { partitions: Vec::new(), opens_session: false });
        }
        Ok(Plan::Incremental { session_id: session.id })
    }

    /// Answers a Fetch if it can be answered now, else keeps it.
    fn serve_fetch(&mut self, fetch: Box<FetchWait>, now_ms: i64, waited_as: Option<WaitId>) -> Outcome {
        let looked = match &fetch.plan {
            Plan::Full { partitions, .. } => {
                self.look(&fetch, partitions.iter().map(|(key, from)| (key, *from)), |_, _| true)
            }
            Plan::Incremental { session_id } => match self.sessions.get(fetch.request.broker, *session_id) {
                Some(session) => {
                    self.look(&fetch, session.partitions(), |key, answer| session.is_news(key, answer))
                }
                None => {
                    return self.refuse_fetch(&fetch.request, ResponseError::FetchSessionIdNotFound.code());
                }
            },
        };
        let has_partitions = !matches!(&fetch.plan, Plan::Full { partitions, .. } if partitions.is_empty());
        let waits = has_partitions
            && !looked.is_urgent
            && looked.bytes < fetch.bytes_min
            && now_ms < fetch.deadline_ms;
        if waits {
            let deadline_ms = fetch.deadline_ms;
            let waiting = Waiting::Fetch(fetch);
            let id = match waited_as {
                Some(id) => {
                    self.waits.put_back(id, waiting);
                    id
                }
                None => self.waits.insert(waiting),
            };
            return Outcome::Wait { id, deadline_ms };
        }
        self.answer_fetch(&fetch, looked)
    }

    fn answer_fetch(&mut self, fetch: &FetchWait, looked: Looked) -> Outcome {
        let broker = fetch.request.broker;
        let session_id = match &fetch.plan {
            Plan::Incremental { session_id } => *session_id,
            Plan::Full { opens_session: false, .. } => 0,
            Plan::Full { partitions, opens_session: true } => {
                let id = self.random.positive();
                let uses_ids = fetch.request.version >= TOPIC_ID_VERSION;
                self.sessions.open(broker, id, uses_ids, partitions.iter().cloned());
                id
            }
        };
        if let Some(session) = self.sessions.get_mut(broker, session_id) {
            for partition in &looked.partitions {
                // The reply that opens a session leaves the order as it was asked for.
                let moves = partition.has_data() && matches!(fetch.plan, Plan::Incremental { .. });
                session.note(&partition.key, partition.answered(), moves);
            }
        }
        let reply = FetchReply {
            throttle_ms: self.settings.throttle_ms,
            error_code: 0,
            session_id,
            isolation: fetch.isolation,
            endpoints: self.leader_endpoints(&fetch.request, &looked.partitions),
            partitions: looked.partitions,
        };
        Outcome::Reply(write(&fetch.request, &reply))
    }

    fn refuse_fetch(&self, request: &Request, error_code: i16) -> Outcome {
        let reply = FetchReply {
            throttle_ms: self.settings.throttle_ms,
            error_code,
            session_id: 0,
            isolation: Isolation::ReadUncommitted,
            endpoints: Vec::new(),
            partitions: Vec::new(),
        };
        Outcome::Reply(write(request, &reply))
    }

    /// Reads every partition in turn until the limit of the request is used up; the first batch found is given whole even
    /// beyond the limits, so that a reader always gets on (KIP-74).
    fn look<'a>(
        &self,
        fetch: &FetchWait,
        partitions: impl Iterator<Item = (&'a FetchKey, FetchFrom)>,
        is_news: impl Fn(&FetchKey, Option<Answered>) -> bool,
    ) -> Looked {
        let mut looked = Looked::default();
        let mut left = fetch.bytes_max;
        for (key, from) in partitions {
            let limit = left.min(usize::try_from(from.bytes_max).unwrap_or_default());
            let first = if looked.bytes == 0 { FirstBatch::Whole } else { FirstBatch::WithinLimit };
            let reply = self.read(fetch, key, from, limit, first);
            let size = reply.size_bytes();
            left = left.saturating_sub(size);
            looked.bytes += size;
            let is_urgent = reply.error_code != 0 || reply.diverging.is_some() || reply.preferred.is_some();
            looked.is_urgent |= is_urgent;
            if size > 0 || is_urgent || is_news(key, reply.answered()) {
                looked.partitions.push(reply);
            }
        }
        // `KafkaApis.handleFetchRequest` puts what it could not ask for behind the rest.
        looked.partitions.sort_by_key(PartitionReply::is_unknown);
        looked
    }

    fn read(
        &self,
        fetch: &FetchWait,
        key: &FetchKey,
        from: FetchFrom,
        limit: usize,
        first: FirstBatch,
    ) -> PartitionReply {
        let reply = PartitionReply::new(key.clone());
        if let Some(code) = fetch.request.refuse_with {
            return PartitionReply { error_code: code, ..reply };
        }
        let partition = match self.readable(&fetch.request, key, from) {
            Ok(partition) => partition,
            Err((error, leader)) => return PartitionReply { error_code: error.code(), leader, ..reply },
        };
        let read = |offset, limit| partition.log.read(offset, limit, fetch.isolation, first);
        let nothing = || read(partition.log.log_end_offset(), 0).ok();
        match diverging(partition, from) {
            Err(error) => return PartitionReply { error_code: error.code(), ..reply },
            Ok(Some(end)) => return PartitionReply { diverging: Some(end), read: nothing(), ..reply },
            Ok(None) => {}
        }
        match read(from.fetch_offset, limit) {
            Err(out_of_range) => PartitionReply { error_code: out_of_range.code().code(), ..reply },
            Ok(read) => match self.preferred(fetch, partition) {
                None => PartitionReply { read: Some(read), ..reply },
                preferred => PartitionReply { preferred, read: nothing(), ..reply },
            },
        }
    }

    /// The replica in the reader's rack, where the leader is in another (`RackAwareReplicaSelector`).
    fn preferred(&self, fetch: &FetchWait, partition: &Partition) -> Option<i32> {
        let asked = fetch.request.broker.0;
        if fetch.rack.is_empty() || partition.leader != Some(asked) {
            return None;
        }
        let is_near = |id: i32| {
            self.brokers
                .get(&id)
                .is_some_and(|broker| broker.is_up && broker.rack.as_ref() == Some(&fetch.rack))
        };
        if is_near(asked) { None } else { partition.replicas.iter().copied().find(|&id| is_near(id)) }
    }

    /// The partition, if this broker may serve it to this request; else the error, and the leader where it helps.
    fn readable(&self, request: &Request, key: &FetchKey, from: FetchFrom) -> Result<&Partition, NotServed> {
        let handle =
            if key.topic_id.is_nil() { TopicHandle::Name(&key.topic) } else { TopicHandle::Id(key.topic_id) };
        let name = self.topics.resolve(handle).ok_or((ResponseError::UnknownTopicId, None))?;
        let partition = self
            .topics
            .partition(name, key.partition)
            .ok_or((ResponseError::UnknownTopicOrPartition, None))?;
        let leader = Some((partition.leader.unwrap_or(-1), partition.leader_epoch));
        let BrokerId(broker) = request.broker;
        let is_follower = request.version >= FOLLOWER_VERSION && partition.replicas.contains(&broker);
        if partition.leader != Some(broker) && !(is_follower && partition.leader.is_some()) {
            return Err((ResponseError::NotLeaderOrFollower, leader));
        }
        check_epoch(from.current_leader_epoch, partition).map_err(|error| (error, leader))?;
        Ok(partition)
    }

    fn leader_endpoints(&self, request: &Request, partitions: &[PartitionReply]) -> Vec<(i32, String, u16)> {
        if request.version < 16 {
            return Vec::new();
        }
        let leaders: std::collections::BTreeSet<i32> =
            partitions.iter().filter_map(|partition| partition.leader.map(|(id, _)| id)).collect();
        let endpoint = |id| self.brokers.get(&id).map(|broker| (id, broker.host.clone(), broker.port));
        leaders.into_iter().filter_map(endpoint).collect()
    }
}

/// Compares the leader epoch that a client knows with the partition's (KIP-320).
pub(super) fn check_epoch(known: i32, partition: &Partition) -> Result<(), ResponseError> {
    match known {
        -1 => Ok(()),
        known if known < partition.leader_epoch => Err(ResponseError::FencedLeaderEpoch),
        known if known > partition.leader_epoch => Err(ResponseError::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

/// Where the reader's log and this one part, if they do (KIP-595; `Partition.readRecords`).
fn diverging(partition: &Partition, from: FetchFrom) -> Result<Option<EpochEnd>, ResponseError> {
    if from.last_fetched_epoch < 0 {
        return Ok(None);
    }
    let end = partition.log.end_offset_for_epoch(from.last_fetched_epoch);
    if end == EpochEnd::UNDEFINED {
        return Err(ResponseError::OffsetOutOfRange);
    }
    let has_diverged = end.epoch < from.last_fetched_epoch || end.end_offset < from.fetch_offset;
    Ok(has_diverged.then_some(end))
}

fn is_session_error(code: i16) -> bool {
    [
        ResponseError::FetchSessionIdNotFound,
        ResponseError::InvalidFetchSessionEpoch,
        ResponseError::FetchSessionTopicIdError,
    ]
    .iter()
    .any(|error| error.code() == code)
}

pub(super) fn isolation(level: i8) -> Isolation {
    if level == 1 { Isolation::ReadCommitted } else { Isolation::ReadUncommitted }
}

fn asked(body: &FetchRequest, uses_ids: bool) -> Vec<(FetchKey, FetchFrom)> {
    let partitions = body.topics.iter().flat_map(|topic| {
        let key = key(uses_ids, &topic.topic, topic.topic_id);
        topic.partitions.iter().map(move |partition| {
            let from = FetchFrom {
                fetch_offset: partition.fetch_offset,
                current_leader_epoch: partition.current_leader_epoch,
                last_fetched_epoch: partition.last_fetched_epoch,
                bytes_max: partition.partition_max_bytes,
            };
            (FetchKey { partition: partition.partition, ..key.clone() }, from)
        })
    });
    partitions.collect()
}

/// The key of a topic's partition 0.
fn key(uses_ids: bool, name: &str, id: Uuid) -> FetchKey {
    if uses_ids {
        FetchKey { topic: Arc::from(""), topic_id: id, partition: 0 }
    } else {
        FetchKey { topic: Arc::from(name), topic_id: Uuid::nil(), partition: 0 }
    }
}

impl PartitionReply {
    /// What a session remembers of this answer; nothing of an error.
    fn answered(&self) -> Option<Answered> {
        let read: &Read = self.read.as_ref()?;
        Some(Answered { high_watermark: read.high_watermark, log_start_offset: read.log_start_offset })
    }
}

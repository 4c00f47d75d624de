//! What the engine says of itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::status::{BrokerStatus, Counters, Event, PartitionStatus, Stopped, TOPIC_GONE};
use super::deal::Family;
use super::{Engine, Source, SourceState, Watermarks};
use crate::client::{IsolationLevel, PartitionKey};
use crate::mirror::measure::TrafficStatus;
use crate::mirror::state::TopicPartition;
use uuid::Uuid;

/// How far one source partition is on the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Source topic.
    pub topic: Arc<str>,
    /// Its id.
    pub topic_id: Uuid,
    /// Partition.
    pub partition: i32,
    /// Topic on the target.
    pub remote_topic: Arc<str>,
    /// Its id.
    pub remote_topic_id: Uuid,
    /// The first upstream offset that is not known to be on the target.
    pub upstream: i64,
    /// The downstream offset that follows the last acknowledged record.
    pub downstream: Option<i64>,
    /// Leader epoch of the last batch that was fetched, -1 for none.
    pub leader_epoch: i32,
}

impl Position {
    /// The source partition.
    pub fn at(&self) -> TopicPartition {
        TopicPartition::new(self.topic.clone(), self.partition)
    }
}

/// The newest record of a topic that is on the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Newest {
    /// Its timestamp, in ms.
    pub timestamp_ms: Option<i64>,
    /// How old it was when it came there, in ms.
    pub latency_ms: Option<i64>,
}

impl Source {
    /// Whether it has started, and its position speaks of a log that is known. One that was stopped before its start has
    /// none: what is stored of it must stay.
    pub(super) fn has_position(&self) -> bool {
        let is_elsewhere = matches!(self.state, SourceState::Unlocated | SourceState::Released);
        self.window_generation > self.void_generation && !is_elsewhere
    }

    /// Whether another one fetches for it.
    pub(super) fn is_child(&self) -> bool {
        matches!(self.family, Family::Child { .. })
    }

    fn is_unwatched(&self) -> bool {
        if self.is_child() {
            return false;
        }
        match &self.state {
            SourceState::Fetching(_) | SourceState::Released => false,
            SourceState::Stopped(stopped) => stopped.reason != TOPIC_GONE,
            _ => true,
        }
    }

    pub(super) fn note(&mut self, watermarks: Watermarks, isolation: IsolationLevel, now_ms: i64) {
        // The last stable offset is the start of the oldest open transaction: where it moves, another one is the oldest.
        let before = self.watermarks.map(|watermarks| watermarks.last_stable);
        let since_ms = self.blocked_since_ms.filter(|_| before == Some(watermarks.last_stable));
        let is_blocked = isolation == IsolationLevel::ReadCommitted
            && (0..watermarks.high).contains(&watermarks.last_stable);
        self.blocked_since_ms = is_blocked.then(|| since_ms.unwrap_or(now_ms));
        // What is new now has waited since this moment at most.
        let had_nothing_left = |watermarks: Watermarks| watermarks.end(isolation) <= self.window.position();
        if self.watermarks.is_some_and(had_nothing_left) {
            self.caught_up_ms = Some(now_ms);
        }
        self.watermarks = Some(watermarks);
    }
}

impl Engine {
    /// Partitions of which no fetch tells where they end: key, source topic, partition. What is gone has no end.
    pub fn unwatched(&self) -> impl Iterator<Item = (PartitionKey, Arc<str>, i32)> + '_ {
        let keyed = (0..).map(PartitionKey).zip(&self.sources);
        keyed
            .filter(|(_, source)| source.is_unwatched())
            .map(|(key, source)| (key, source.topic.clone(), source.partition))
    }

    /// Where a partition ends, as its leader says when it is asked; a fetch that has come since knows better.
    pub fn note_ends(&mut self, key: PartitionKey, watermarks: Watermarks) {
        let (isolation, now_ms) = (self.settings.isolation_level, self.now_ms);
        if let Some(source) = self.sources.get_mut(key.0 as usize).filter(|source| source.is_unwatched()) {
            source.note(watermarks, isolation, now_ms);
        }
    }

    /// The positions of all partitions that have started.
    pub fn positions(&self) -> impl Iterator<Item = Position> + '_ {
        let is_one = |source: &&Source| source.has_position() && !source.is_child();
        self.sources.iter().filter(is_one).map(|source| self.position_of(source))
    }

    /// How far a partition is, also while its place in the source's log is looked for.
    pub fn position_at(&self, key: PartitionKey) -> Option<Position> {
        let source = self.sources.get(key.0 as usize)?;
        (source.window_generation > source.void_generation).then(|| self.position_of(source))
    }

    /// Batches that were sent and that the target may have, or may still get, without our knowing.
    pub fn batches_in_doubt(&self) -> usize {
        self.targets.iter().filter_map(|target| target.append.as_ref()).map(|append| append.in_doubt()).sum()
    }

    /// The producer under which everything is appended.
    pub fn producer(&self) -> Option<(i64, i16)> {
        self.producer
    }

    /// The position of the child that is behind, where there are any.
    fn position_in(&self, source: &Source) -> i64 {
        let Family::Parent { children, .. } = &source.family else { return source.window.position() };
        let positions = children.iter().map(|child| self.sources[child.0 as usize].window.position());
        positions.min().unwrap_or(source.window.position())
    }

    fn position_of(&self, source: &Source) -> Position {
        let target = &self.targets[source.target.0 as usize];
        let topic = &self.topics[target.topic];
        Position {
            topic: source.topic.clone(),
            topic_id: source.topic_id,
            partition: source.partition,
            remote_topic: topic.name.clone(),
            remote_topic_id: topic.topic_id,
            upstream: self.position_in(source),
            downstream: source.window.downstream(),
            leader_epoch: source.last_fetched_epoch,
        }
    }

    /// All partitions but those that somebody else copies, by (source topic, partition).
    pub fn partitions(&self) -> BTreeMap<(Arc<str>, i32), PartitionStatus> {
        let is_here = |source: &&Source| !matches!(source.state, SourceState::Released) && !source.is_child();
        let here = self.sources.iter().filter(is_here);
        here.map(|source| {
            let target = &self.targets[source.target.0 as usize];
            let started = source.has_position();
            let [queued, unacked, backlog_bytes] = self.waiting_of(source);
            let committed = self.settings.isolation_level == IsolationLevel::ReadCommitted;
            let status = PartitionStatus {
                remote_topic: self.topics[target.topic].name.clone(),
                phase: match source.state {
                    SourceState::Unlocated => "unlocated",
                    SourceState::Waiting => "waiting",
                    SourceState::Fetching(_) => "fetching",
                    SourceState::Held => "held",
                    SourceState::Stopped(_) => "stopped",
                    SourceState::Released => "released",
                },
                queued_batches: queued,
                unacknowledged_batches: unacked,
                stopped: self.stopped_of(source),
                position: started.then(|| self.position_in(source)),
                downstream: source.window.downstream(),
                end_at_start: source.end_at_start,
                high_watermark: source.watermarks.map(|watermarks| watermarks.high),
                last_stable_offset: source
                    .watermarks
                    .filter(|_| committed)
                    .map(|watermarks| watermarks.last_stable),
                log_start_offset: source.watermarks.map(|watermarks| watermarks.log_start),
                blocked_by_transaction_since_ms: source.blocked_since_ms,
                replicated_timestamp_ms: source.replicated_timestamp_ms,
                lag_ms: started
                    .then(|| {
                        source.lag_ms(self.position_in(source), self.settings.isolation_level, self.now_ms)
                    })
                    .flatten(),
                backlog_offsets: (source.window.next_offset() - self.position_in(source)).unsigned_abs(),
                backlog_bytes,
                traffic: source
                    .traffic
                    .as_ref()
                    .map_or(TrafficStatus::default(), |traffic| traffic.status(self.now_ms)),
                counters: self.counters_of(source),
            };
            ((source.topic.clone(), source.partition), status)
        })
        .collect()
    }

    /// It, or its children, which do the work.
    fn workers_of<'a>(&'a self, source: &'a Source) -> Vec<&'a Source> {
        match &source.family {
            Family::Parent { children, .. } => {
                children.iter().map(|child| &self.sources[child.0 as usize]).collect()
            }
            _ => vec![source],
        }
    }

    /// Why it does not go on: its own reason, or that of any partition that its records go to.
    fn stopped_of(&self, source: &Source) -> Option<Stopped> {
        let own = |source: &Source| match &source.state {
            SourceState::Stopped(stopped) => Some(stopped.clone()),
            _ => None,
        };
        let of =
            |worker: &&Source| own(worker).or_else(|| self.targets[worker.target.0 as usize].stopped.clone());
        own(source).or_else(|| self.workers_of(source).iter().find_map(of))
    }

    /// Batches that wait for its targets, those that are not acknowledged there, and the bytes of its own on their way.
    fn waiting_of(&self, source: &Source) -> [u64; 3] {
        self.workers_of(source).iter().fold([0; 3], |[queued, unacked, bytes], worker| {
            let target = &self.targets[worker.target.0 as usize];
            let of_target = target.append.as_ref().map_or(0, |append| append.unacked());
            [
                queued + target.queue.len() as u64,
                unacked + of_target as u64,
                bytes + worker.window.bytes() as u64,
            ]
        })
    }

    /// With those of its children, which do the work.
    fn counters_of(&self, source: &Source) -> Counters {
        let Family::Parent { children, .. } = &source.family else { return source.counters };
        let children = children.iter().map(|child| self.sources[child.0 as usize].counters);
        children.fold(source.counters, Counters::plus)
    }

    /// Of the source topics that `is_wanted`: the newest record timestamp that is on the target, and how old the last record
    /// was when it came there, in ms.
    pub fn newest(&self, is_wanted: impl Fn(&str) -> bool) -> BTreeMap<Arc<str>, Newest> {
        let mut newest: BTreeMap<Arc<str>, Newest> = BTreeMap::new();
        // Partitions of a topic follow each other for the most part; a name is judged when it changes.
        let mut judged: Option<(&Arc<str>, bool)> = None;
        for source in &self.sources {
            let wanted = match judged {
                Some((topic, wanted)) if *topic == source.topic => wanted,
                _ => is_wanted(&source.topic),
            };
            judged = Some((&source.topic, wanted));
            if wanted {
                let of = newest.entry(source.topic.clone()).or_default();
                if source.replicated_timestamp_ms > of.timestamp_ms {
                    of.timestamp_ms = source.replicated_timestamp_ms;
                    of.latency_ms = source.traffic.as_ref().map(|traffic| traffic.last_latency_ms());
                }
            }
        }
        newest
    }

    /// Connections by (cluster alias, broker id).
    pub fn brokers(&self) -> BTreeMap<(Arc<str>, i32), BrokerStatus> {
        let fetch = self.fetch_lanes.iter().map(|(&broker, lane)| {
            let status = BrokerStatus {
                connected: lane.connected,
                disconnects: lane.disconnects,
                last_error: lane.last_error.clone(),
                throttle_ms: lane.throttle.as_millis() as u64,
            };
            ((self.settings.source.clone(), broker), status)
        });
        let produce = self.produce_lanes.iter().map(|(&broker, lane)| {
            let status = BrokerStatus {
                connected: lane.connection.is_some(),
                disconnects: lane.disconnects,
                last_error: lane.last_error.clone(),
                throttle_ms: lane.throttle.as_millis() as u64,
            };
            ((self.settings.target.clone(), broker), status)
        });
        fetch.chain(produce).collect()
    }

    /// Gaps and skipped records, oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.events.iter().cloned().collect()
    }
}

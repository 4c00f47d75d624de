//! One flow's hot path as a plain machine: what was fetched goes in, what is to be fetched and sent comes out.
//!
//! The engine owns every partition of a flow: windows and fetch state of the source partitions, queues and append state
//! of the target partitions, and which broker leads which. It has no clock, socket or task: its owner
//! ([`super::flow`]) hands it events with the time since the flow's start, and carries out the [`Command`]s.
//!
//! - `intake`: fetched batches are planned and queued;
//! - `outlet`: queues are cut into requests, answers are applied;
//! - `mapping`: which target offsets the records got;
//! - `remedy`: what follows a failure, `inquiry`: what only the target's log can tell;
//! - `regulate`: back-pressure;
//! - `delivery`: which partitions keep records waiting for long;
//! - `starts`: where partitions start, and topics that are created anew;
//! - `deal`: records that are dealt out by key, `gather`: what of them becomes one batch;
//! - `release`: partitions that somebody else is to copy;
//! - `table`: the rows that all of these work on, `command`: the words between the engine and its owner.

mod backlog;
mod buffers;
mod command;
mod deal;
mod delivery;
mod gather;
mod inquiry;
mod intake;
mod join;
mod mapping;
mod outlet;
mod regulate;
mod release;
mod remedy;
mod report;
mod round_trip;
mod starts;
mod suspension;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::append::Append;
use super::budget::Budget;
use super::plan::{TakenCodecs, TargetLimits};
use super::status::{Counters, Event, EventKind};
use super::window::Window;
use crate::client::{FetchCommand, FetchPartition, PartitionKey, ProduceEvent, TargetKey, TargetTopic};
use table::{
    FetchLaneState, Item, Open, ProduceLaneState, Request, Share, Source, SourceState, Target, Timer,
    Working, WorkingKind,
};

pub use command::{Command, EngineSettings, NewPartition, Notice, RewriteJob, Work, Worked};
pub use delivery::Undelivered;
pub use report::{Newest, Position};
pub use table::Watermarks;

/// Gaps, skipped records and their like that are kept for `/status`.
const EVENTS_MAX: usize = 1_000;

/// See the module.
pub struct Engine {
    settings: EngineSettings,
    budget: Arc<Budget>,
    producer: Option<(i64, i16)>,
    sources: Vec<Source>,
    targets: Vec<Target>,
    topics: Vec<Arc<TargetTopic>>,
    fetch_lanes: BTreeMap<i32, FetchLaneState>,
    produce_lanes: BTreeMap<i32, ProduceLaneState>,
    requests: BTreeMap<u64, Request>,
    next_request: u64,
    round_trip: round_trip::RoundTrip,
    jobs: BTreeMap<u64, TargetKey>,
    next_job: u64,
    timers: BTreeSet<(Duration, Timer)>,
    commands: Vec<Command>,
    alive_bytes: usize,
    /// Of what waits without its compression, beyond the bytes that came.
    unpacked_bytes: usize,
    stuck: BTreeSet<TargetKey>,
    stuck_bytes: usize,
    renewing: BTreeSet<TargetKey>,
    paused_since: Option<Duration>,
    draining: bool,
    suspended: bool,
    said_transactional: bool,
    buffers: buffers::MergeBuffers,
    events: VecDeque<Event>,
    stopped_sources: BTreeMap<PartitionKey, Option<Duration>>,
    mapped: Vec<PartitionKey>,
    now_ms: i64,
}

impl Engine {
    /// An engine without partitions.
    pub fn new(settings: EngineSettings, budget: Arc<Budget>) -> Engine {
        Engine {
            settings,
            budget,
            producer: None,
            sources: Vec::new(),
            targets: Vec::new(),
            topics: Vec::new(),
            fetch_lanes: BTreeMap::new(),
            produce_lanes: BTreeMap::new(),
            requests: BTreeMap::new(),
            next_request: 1,
            round_trip: Default::default(),
            jobs: BTreeMap::new(),
            next_job: 1,
            timers: BTreeSet::new(),
            commands: Vec::new(),
            alive_bytes: 0,
            unpacked_bytes: 0,
            stuck: BTreeSet::new(),
            stuck_bytes: 0,
            renewing: BTreeSet::new(),
            paused_since: None,
            draining: false,
            suspended: false,
            said_transactional: false,
            buffers: buffers::MergeBuffers::default(),
            events: VecDeque::new(),
            stopped_sources: BTreeMap::new(),
            mapped: Vec::new(),
            now_ms: 0,
        }
    }

    /// The wall clock, for what people read; called with each event.
    pub fn set_wall_clock(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
    }

    /// What is to be done since the last call, in order.
    pub fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// When [`Engine::on_timer`] is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Takes a source partition on; it is fetched once [`Engine::start`] says from where.
    pub fn add(&mut self, new: &NewPartition) -> PartitionKey {
        let target = self.target_at(new, new.partition);
        let key = self.push_source(new, target);
        self.targets[target.0 as usize].sources.push(key);
        key
    }

    fn push_source(&mut self, new: &NewPartition, target: TargetKey) -> PartitionKey {
        let key = PartitionKey(self.sources.len() as u32);
        self.sources.push(Source {
            topic: new.topic.clone(),
            topic_id: new.topic_id,
            topic_id_now: new.topic_id,
            partition: new.partition,
            target,
            family: deal::Family::Alone,
            leader: None,
            fetch_generation: 0,
            window_generation: 0,
            void_generation: 0,
            window: Window::new(0, None),
            state: SourceState::Unlocated,
            filter: None,
            mapping: mapping::Mapping::default(),
            last_fetched_epoch: -1,
            watermarks: None,
            end_at_start: None,
            blocked_since_ms: None,
            replicated_timestamp_ms: None,
            caught_up_ms: None,
            traffic: None,
            counters: Counters::default(),
            failures: 0,
            refetches: 0,
            retry_at: None,
        });
        key
    }

    /// The fetch lane of a source broker was opened anew (its address has changed): its session is empty.
    pub fn reopened_fetch(&mut self, broker: i32) {
        for index in 0..self.sources.len() {
            if matches!(self.sources[index].state, SourceState::Fetching(lane) if lane == broker) {
                self.sources[index].state = SourceState::Waiting;
                self.fetch(PartitionKey(index as u32));
            }
        }
        if self.fetch_lanes.get(&broker).is_some_and(|lane| lane.paused) {
            self.commands.push(Command::Fetch(broker, FetchCommand::Pause));
        }
    }

    /// The produce lane of a target broker was opened anew: what was in flight on the old one is of unknown outcome.
    pub fn reopened_produce(&mut self, broker: i32, now: Duration) {
        let lost =
            self.requests.iter().filter(|(_, request)| request.broker == broker).map(|(&id, _)| id).collect();
        let reason = "the broker's address has changed".to_owned();
        self.on_produce(broker, ProduceEvent::Disconnected { lost, reason }, now);
    }

    /// The target's limits for a topic changed.
    pub fn set_limits(&mut self, remote_topic: &str, limits: TargetLimits) {
        let Some(topic) = self.topics.iter().position(|topic| &*topic.name == remote_topic) else { return };
        self.targets
            .iter_mut()
            .filter(|target| target.topic == topic)
            .for_each(|target| target.limits = limits);
    }

    /// Who leads a source partition, with the leader epoch; `None` while nobody does.
    pub fn set_source_leader(&mut self, key: PartitionKey, leader: Option<(i32, i32)>, now: Duration) {
        let Some(source) = self.sources.get_mut(key.0 as usize) else { return };
        if source.leader == leader {
            return;
        }
        source.leader = leader;
        if matches!(source.state, SourceState::Fetching(_)) {
            self.leave_session(key);
        }
        let retry = self.sources[key.0 as usize].retry_at.take();
        if let Some(at) = retry {
            self.timers.remove(&(at, Timer::RetrySource(key)));
        }
        self.fetch(key);
        self.regulate(now);
    }

    /// Who leads a target partition.
    pub fn set_target_leader(&mut self, key: TargetKey, leader: Option<i32>, now: Duration) {
        let Some(target) = self.targets.get_mut(key.0 as usize) else { return };
        if target.leader == leader {
            return;
        }
        let before = std::mem::replace(&mut target.leader, leader);
        target.scheduled = false;
        if let Some(lane) = before.and_then(|broker| self.produce_lanes.get_mut(&broker)) {
            lane.ready.retain(|&waiting| waiting != key);
        }
        if let Some(broker) = leader {
            self.open_produce(broker);
        }
        self.update_stuck(key);
        self.schedule(key);
        self.pump(now);
        self.regulate(now);
    }

    /// The target partition behind a source partition.
    pub fn target_of(&self, key: PartitionKey) -> Option<TargetKey> {
        self.sources.get(key.0 as usize).map(|source| source.target)
    }

    /// The next upstream offset of a partition, as far as the target is known to have it.
    pub fn position(&self, key: PartitionKey) -> Option<i64> {
        let source = self.sources.get(key.0 as usize)?;
        let position = self.family_position(key).unwrap_or(source.window.position());
        source.has_position().then_some(position)
    }

    /// Stops fetching, and drops what was not sent: a slow target would take long for it, and it is fetched again. What
    /// is in flight is brought to its end.
    pub fn drain(&mut self) {
        self.draining = true;
        for index in 0..self.sources.len() {
            let key = PartitionKey(index as u32);
            self.leave_session(key);
            self.drop_queued(key);
        }
    }

    /// Nothing is in flight, and nothing waits that could be sent now.
    pub fn is_drained(&self) -> bool {
        self.requests.is_empty()
            && self.targets.iter().enumerate().all(|(index, target)| {
                let idle = target.queue.is_empty()
                    && target.append.as_ref().is_none_or(|append| append.unacked() == 0);
                idle || self.stuck.contains(&TargetKey(index as u32))
            })
    }

    /// The producer under which everything is appended.
    pub fn on_producer(&mut self, producer_id: i64, producer_epoch: i16, now: Duration) {
        self.producer = Some((producer_id, producer_epoch));
        for index in 0..self.targets.len() {
            let key = TargetKey(index as u32);
            if self.targets[index].append.is_none() {
                self.targets[index].append = Some(Append::new(producer_id, producer_epoch));
                self.update_stuck(key);
            }
        }
        self.renewed(producer_id, producer_epoch);
        for index in 0..self.targets.len() {
            self.schedule(TargetKey(index as u32));
        }
        self.pump(now);
    }

    /// Something that was due is due.
    pub fn on_timer(&mut self, now: Duration) {
        while let Some(&(at, timer)) = self.timers.first() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            match timer {
                Timer::Resend(key) => {
                    self.targets[key.0 as usize].resend_at = None;
                    self.act(key, now);
                }
                Timer::RetryTarget(key) => self.retry_target(key, now),
                Timer::RetrySource(key) => self.retry_source(key),
                Timer::Throttled(_) => {}
                Timer::Linger(key) => self.schedule(key),
                Timer::Shed => self.shed(now),
            }
        }
        self.pump(now);
        self.regulate(now);
    }

    fn topic_index(&mut self, new: &NewPartition) -> usize {
        if let Some(index) = self.topics.iter().position(|topic| topic.name == new.remote_topic) {
            return index;
        }
        let index = self.topics.len() as u32;
        let (name, topic_id) = (new.remote_topic.clone(), new.remote_topic_id);
        self.topics.push(Arc::new(TargetTopic { index, name, topic_id }));
        self.topics.len() - 1
    }

    fn target_at(&mut self, new: &NewPartition, partition: i32) -> TargetKey {
        let topic = self.topic_index(new);
        let found =
            self.targets.iter().position(|target| target.topic == topic && target.partition == partition);
        let index = found.unwrap_or_else(|| {
            self.targets.push(Target {
                topic,
                partition,
                limits: new.limits,
                codecs: TakenCodecs::All,
                merged_bytes_max: join::MERGED_BYTES_MAX,
                leader: None,
                sent_to: None,
                append: self.producer.map(|(producer_id, epoch)| Append::new(producer_id, epoch)),
                queue: VecDeque::new(),
                queue_bytes: 0,
                scheduled: false,
                sources: Vec::new(),
                stopped: None,
                stops: 0,
                resend_at: None,
                waits_since: None,
                last_refusal: None,
            });
            self.targets.len() - 1
        });
        let key = TargetKey(index as u32);
        self.update_stuck(key);
        key
    }

    /// Puts a partition into the session of its leader's lane, if it is to be fetched at all.
    fn fetch(&mut self, key: PartitionKey) {
        if self.parent(key).is_some() {
            self.go_back_with(key);
            return;
        }
        let draining = self.draining || self.suspended || !self.family_takes(key);
        let Some(source) = self.sources.get_mut(key.0 as usize) else { return };
        let (SourceState::Waiting, Some((broker, epoch)), false) = (&source.state, source.leader, draining)
        else {
            return;
        };
        source.state = SourceState::Fetching(broker);
        source.fetch_generation += 1;
        let partition = FetchPartition {
            key,
            generation: source.fetch_generation,
            topic: source.topic.clone(),
            topic_id: source.topic_id,
            partition: source.partition,
            fetch_offset: source.window.next_offset(),
            current_leader_epoch: epoch,
            last_fetched_epoch: source.last_fetched_epoch,
        };
        self.fetch_lanes.entry(broker).or_default();
        self.commands.push(Command::Fetch(broker, FetchCommand::Add(partition)));
    }

    /// Takes a partition out of its session; it waits.
    fn leave_session(&mut self, key: PartitionKey) {
        let Some(source) = self.sources.get_mut(key.0 as usize) else { return };
        if let SourceState::Fetching(broker) = source.state {
            source.state = SourceState::Waiting;
            self.commands.push(Command::Fetch(broker, FetchCommand::Remove(key)));
        }
    }

    fn open_produce(&mut self, broker: i32) {
        if let std::collections::btree_map::Entry::Vacant(vacant) = self.produce_lanes.entry(broker) {
            vacant.insert(ProduceLaneState::default());
            self.commands.push(Command::OpenProduce(broker));
        }
    }

    fn push_event(&mut self, key: PartitionKey, kind: EventKind) {
        let source = &self.sources[key.0 as usize];
        let (topic, partition) = (source.topic.clone(), source.partition);
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(Event {
            at_ms: self.now_ms,
            topic: topic.clone(),
            partition,
            kind: kind.clone(),
        });
        let message = match kind {
            EventKind::Gap { from, to, reason } => {
                format!("source offsets {from} to {to} are missing: {reason}")
            }
            EventKind::Skipped { offset, reason } => {
                format!("the record at offset {offset} is left out: {reason}")
            }
        };
        self.commands.push(Command::Log(Notice { topic, partition, message }));
    }

    fn charge(&mut self, key: PartitionKey, bytes: usize) {
        if self.stuck.contains(&self.sources[key.0 as usize].target) {
            self.stuck_bytes += bytes;
        }
        self.alive_bytes += bytes;
        self.budget.charge(bytes);
    }

    fn hold_unpacked(&mut self, bytes: usize) {
        self.unpacked_bytes += bytes;
        self.budget.charge(bytes);
    }

    fn free_unpacked(&mut self, bytes: usize) {
        self.unpacked_bytes -= bytes;
        self.budget.release(bytes);
    }

    fn release(&mut self, key: PartitionKey, bytes: usize) {
        if self.stuck.contains(&self.sources[key.0 as usize].target) {
            self.stuck_bytes -= bytes;
        }
        self.alive_bytes -= bytes;
        self.budget.release(bytes);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.budget.release(self.alive_bytes + self.unpacked_bytes);
    }
}

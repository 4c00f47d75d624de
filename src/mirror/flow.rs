//! The owner of one flow: one task, one inbox, and the engine that decides.
//!
//! It carries what the lanes, the control task and the clusters' views say to the engine, and what the engine wants to
//! the lanes. Positions are stored on a timer from what is acknowledged at that moment, one save at a time.

mod ends;
mod readiness;
mod release;
mod report;
mod stop;
mod topics;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::append::Inquiry;
use super::budget::Budget;
use super::control::{Control, ControlEvent, Granted, TopicReady, start_control};
use super::engine::{Command, Engine, EngineSettings, Position, RewriteJob, Worked};
use super::evidence::{self, Evidence};
use super::groups::{Groups, TranslateRequest};
use super::member::MemberWatch;
use super::partitioning::Gathering;
use super::producer_id::ask_until_answered;
use super::settings::{Batching, FlowSettings};
use super::state::records::{Position as StoredPosition, StateRecord};
use super::state::{Held, PositionStore, StoreError, TopicPartition};
use super::status::{Event, EventKind, FlowState, FlowStatus, SyncStatus, Waiting};
use super::syncs::{self, Occasion, Syncs, Written};
use super::topics::sync::Followed;
use crate::client::fetch::{FetchLane, spawn_fetch_lane};
use crate::client::produce::{Permit, ProduceLane, spawn_produce_lane};
use crate::client::{
    Cluster, ClusterView, FetchCommand, FetchEvent, HostPort, LaneId, PartitionKey, ProduceCommand,
    ProduceEvent,
};
use crate::net::Backoff;
use crate::seam::Seam;

/// Fetch events that wait for the flow; each is at most one read of one partition.
const FETCH_EVENTS_MAX: usize = 4;
/// Bytes alive for each fetch lane before reading pauses; the engine lets it grow with the round trip.
const LANE_WINDOW_BYTES: usize = 3 * 1024 * 1024;
/// The most that a compressed batch may have when it is opened to be rewritten.
const DECOMPRESSED_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Batches that are rewritten at the same time.
const REWRITES_MAX: usize = 2;
/// A queue of this many batches for one partition is a backlog: a broker takes one batch per partition and request.
const BACKLOG_BATCHES: usize = 48;
/// How often it is looked whether records wait and brokers answer, where nothing has been copied since the last look.
const IDLE_TICK: Duration = Duration::from_secs(5);

/// A running flow.
#[derive(Debug)]
pub(super) struct Flow {
    inbox: mpsc::Sender<Request>,
    writes: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
enum Request {
    Status(oneshot::Sender<FlowStatus>),
    Stop,
}

impl Flow {
    /// Starts the flow.
    pub(super) fn start(
        seam: &Seam,
        settings: FlowSettings,
        source: Cluster,
        target: Cluster,
        budget: Arc<Budget>,
        takeover_timeout: Duration,
    ) -> Flow {
        let (inbox, requests) = mpsc::channel(16);
        let owner =
            Owner::new(seam.clone(), Arc::new(settings), source, target, budget, takeover_timeout, requests);
        let writes = owner.writes.subscribe();
        Flow { inbox, writes, task: seam.spawn(owner.run()) }
    }

    /// Whether this process writes the flow now.
    pub(super) fn writes(&self) -> watch::Receiver<bool> {
        self.writes.clone()
    }

    /// What it says of itself; `None` when it has ended.
    pub(super) async fn status(&self) -> Option<FlowStatus> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Request::Status(reply)).await.ok()?;
        answer.await.ok()
    }

    /// Tells it to drain, store and end.
    pub(super) async fn stop(&self) {
        // A flow that is gone has nothing left to stop.
        let _ = self.inbox.send(Request::Stop).await;
    }

    /// Waits until it has ended.
    pub(super) async fn ended(self) {
        let _ = self.task.await;
    }
}

struct Owner {
    seam: Seam,
    settings: Arc<FlowSettings>,
    source: Cluster,
    target: Cluster,
    requests: mpsc::Receiver<Request>,
    control: Control,
    control_ended: bool,
    engine: Engine,
    started: Instant,
    state: FlowState,
    readiness: readiness::Watch,
    waiting_for: Option<Waiting>,
    store: Option<PositionStore>,
    permit: Permit,
    keys: BTreeMap<(Arc<str>, i32), PartitionKey>,
    topics: BTreeMap<Arc<str>, TopicReady>,
    failed_topics: BTreeMap<Arc<str>, String>,
    followed: BTreeMap<Followed, SyncStatus>,
    discovered: bool,
    saved: BTreeMap<TopicPartition, i64>,
    /// Partitions that were copied when the right to write was lost, and have no start since.
    unsure: BTreeSet<TopicPartition>,
    /// Topics that were there when the right to write was lost, and that nothing has been said of since.
    unconfirmed: BTreeSet<Arc<str>>,
    saving: Option<JoinHandle<Saved>>,
    last_error: Option<String>,
    /// Why positions were not stored the last time.
    unsaved: Option<String>,
    lanes: Lanes,
    producers: mpsc::UnboundedReceiver<(i64, i16)>,
    producers_sender: mpsc::UnboundedSender<(i64, i16)>,
    rewritten: mpsc::UnboundedReceiver<(u64, Worked)>,
    rewritten_sender: mpsc::UnboundedSender<(u64, Worked)>,
    rewriters: Arc<Semaphore>,
    evidence: mpsc::UnboundedReceiver<(Inquiry, Evidence)>,
    evidence_sender: mpsc::UnboundedSender<(Inquiry, Evidence)>,
    stopping: Option<Instant>,
    releases: Vec<release::Release>,
    /// The last positions of what was given up, on their way.
    release_saves: Vec<JoinHandle<()>>,
    /// Our membership, where a group gives partitions out.
    member: Option<MemberWatch>,
    /// What it gave us and was started.
    held: Held,
    writes: watch::Sender<bool>,
    syncs: Syncs,
    ends: ends::Ends,
    groups: Option<Groups>,
    translations: mpsc::Receiver<TranslateRequest>,
    translator: mpsc::Sender<TranslateRequest>,
}

/// The partitions whose upstream positions a save has stored.
type Saved = Result<Vec<(TopicPartition, i64)>, StoreError>;

/// Lanes by broker, and what they say.
struct Lanes {
    fetch: BTreeMap<i32, (HostPort, FetchLane)>,
    produce: BTreeMap<i32, (HostPort, ProduceLane)>,
    /// For brokers whose address is not known yet.
    waiting: BTreeMap<i32, Vec<FetchCommand>>,
    wanted: Vec<i32>,
    fetch_events: mpsc::Receiver<(LaneId, FetchEvent)>,
    fetch_sender: mpsc::Sender<(LaneId, FetchEvent)>,
    produce_events: mpsc::UnboundedReceiver<(LaneId, ProduceEvent)>,
    produce_sender: mpsc::UnboundedSender<(LaneId, ProduceEvent)>,
}

impl Lanes {
    fn new() -> Lanes {
        let (fetch_sender, fetch_events) = mpsc::channel(FETCH_EVENTS_MAX);
        let (produce_sender, produce_events) = mpsc::unbounded_channel();
        Lanes {
            fetch: BTreeMap::new(),
            produce: BTreeMap::new(),
            waiting: BTreeMap::new(),
            wanted: Vec::new(),
            fetch_events,
            fetch_sender,
            produce_events,
            produce_sender,
        }
    }
}

/// What woke the owner.
enum Wake {
    Request(Option<Request>),
    Control(Option<ControlEvent>),
    Produce(LaneId, ProduceEvent),
    Rewritten(u64, Worked),
    Producer(i64, i16),
    Evidence(Inquiry, Evidence),
    View,
    Saved(Saved),
    Synced(Written),
    Translate(TranslateRequest),
    Look,
    Ends(ends::Look),
    Fetch(LaneId, FetchEvent),
    Flush,
    Timer,
    Room,
}

impl Owner {
    fn new(
        seam: Seam,
        settings: Arc<FlowSettings>,
        source: Cluster,
        target: Cluster,
        budget: Arc<Budget>,
        takeover_timeout: Duration,
        requests: mpsc::Receiver<Request>,
    ) -> Owner {
        let control =
            start_control(&seam, settings.clone(), source.clone(), target.clone(), takeover_timeout);
        let (producers_sender, producers) = mpsc::unbounded_channel();
        let (rewritten_sender, rewritten) = mpsc::unbounded_channel();
        let (translator, translations) = mpsc::channel(1);
        let (evidence_sender, evidence) = mpsc::unbounded_channel();
        Owner {
            syncs: Syncs::new(&seam, &settings, &source, &target),
            engine: Engine::new(engine_settings(&settings, target.settings().retry_backoff), budget.clone()),
            seam,
            settings,
            source,
            target,
            requests,
            control,
            control_ended: false,
            started: Instant::now(),
            state: FlowState::Starting,
            readiness: readiness::Watch::default(),
            waiting_for: None,
            store: None,
            permit: Permit::always(),
            keys: BTreeMap::new(),
            topics: BTreeMap::new(),
            failed_topics: BTreeMap::new(),
            followed: BTreeMap::new(),
            discovered: false,
            saved: BTreeMap::new(),
            unsure: BTreeSet::new(),
            unconfirmed: BTreeSet::new(),
            saving: None,
            last_error: None,
            unsaved: None,
            lanes: Lanes::new(),
            producers,
            producers_sender,
            rewritten,
            rewritten_sender,
            rewriters: Arc::new(Semaphore::new(REWRITES_MAX)),
            evidence,
            evidence_sender,
            stopping: None,
            releases: Vec::new(),
            release_saves: Vec::new(),
            member: None,
            held: Held::default(),
            writes: watch::Sender::new(false),
            ends: ends::Ends::new(),
            groups: None,
            translations,
            translator,
        }
    }

    async fn run(mut self) {
        let mut source_view = self.source.watch();
        let mut target_view = self.target.watch();
        let mut flush_at = Instant::now() + self.settings.offset_flush_interval;
        let (mut look_at, mut is_soon) = (Instant::now() + syncs::TICK, true);
        loop {
            if !is_soon && !self.syncs.is_idle(&self.engine) {
                (look_at, is_soon) = (Instant::now() + syncs::TICK, true);
            }
            let wake = self.wake(&mut source_view, &mut target_view, flush_at, look_at).await;
            self.engine.set_wall_clock(self.seam.now_ms());
            match wake {
                Wake::Request(Some(Request::Status(reply))) => {
                    self.look_at_readiness();
                    drop(reply.send(self.status()));
                }
                Wake::Request(_) if self.control_ended => return,
                Wake::Request(_) => self.begin_stop(),
                Wake::Control(Some(event)) => {
                    if self.on_control(event) {
                        return;
                    }
                }
                Wake::Control(None) => {
                    // A flow that failed is still there to say why, until it is told to stop.
                    if self.stopping.is_some() || !matches!(self.state, FlowState::Failed(_)) {
                        return;
                    }
                    self.control_ended = true;
                }
                Wake::Produce(lane, event) => self.engine.on_produce(lane.0, event, self.started.elapsed()),
                Wake::Fetch(lane, event) => self.engine.on_fetch(lane.0, event, self.started.elapsed()),
                Wake::Rewritten(id, worked) => self.engine.on_rewritten(id, worked, self.started.elapsed()),
                Wake::Producer(id, epoch) => self.engine.on_producer(id, epoch, self.started.elapsed()),
                Wake::Evidence(inquiry, evidence) => {
                    self.engine.on_evidence(inquiry.key, inquiry.id, evidence, self.started.elapsed());
                }
                Wake::View => self.follow_leaders(),
                Wake::Saved(result) => self.on_saved(result),
                Wake::Flush => {
                    flush_at = Instant::now() + self.settings.offset_flush_interval;
                    self.save(Occasion::Tick);
                    self.syncs.look(&mut self.engine, Occasion::Flush);
                }
                Wake::Look => {
                    (look_at, is_soon) = (Instant::now() + IDLE_TICK, false);
                    if self.store.is_some() {
                        self.syncs.look(&mut self.engine, Occasion::Tick);
                    }
                    self.engine.note_waiting(self.started.elapsed());
                    self.look_at_readiness();
                }
                Wake::Ends(look) => self.on_ends(look),
                Wake::Synced(written) => self.syncs.on_written(written),
                Wake::Translate(request) => self.translate(request),
                Wake::Timer => self.engine.on_timer(self.started.elapsed()),
                Wake::Room => self.control.orders.hand_on(),
            }
            self.go_on_releasing();
            self.carry_out();
            self.go_on_stopping().await;
        }
    }

    async fn wake(
        &mut self,
        source_view: &mut watch::Receiver<Arc<ClusterView>>,
        target_view: &mut watch::Receiver<Arc<ClusterView>>,
        flush_at: Instant,
        look_at: Instant,
    ) -> Wake {
        let deadline = self.engine.next_deadline().map(|at| self.started + at);
        let drain_by = self.stopping.map(|since| since + stop::DRAIN_MAX);
        let timer = [deadline, drain_by, self.release_by()].into_iter().flatten().min();
        tokio::select! {
            biased;
            request = self.requests.recv() => Wake::Request(request),
            event = self.control.events.recv(), if !self.control_ended => Wake::Control(event),
            Some((lane, event)) = self.lanes.produce_events.recv() => Wake::Produce(lane, event),
            Some((id, worked)) = self.rewritten.recv() => Wake::Rewritten(id, worked),
            Some((id, epoch)) = self.producers.recv() => Wake::Producer(id, epoch),
            Some((inquiry, evidence)) = self.evidence.recv() => Wake::Evidence(inquiry, evidence),
            Ok(()) = source_view.changed() => { source_view.mark_unchanged(); Wake::View }
            Ok(()) = target_view.changed() => { target_view.mark_unchanged(); Wake::View }
            result = saved(&mut self.saving) => Wake::Saved(result),
            () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => Wake::Timer,
            written = self.syncs.written() => Wake::Synced(written),
            Some(request) = self.translations.recv() => Wake::Translate(request),
            () = self.control.orders.room() => Wake::Room,
            () = sleep_until(flush_at) => Wake::Flush,
            () = sleep_until(look_at) => Wake::Look,
            look = self.ends.next() => Wake::Ends(look),
            Some((lane, event)) = self.lanes.fetch_events.recv() => Wake::Fetch(lane, event),
        }
    }

    /// Takes what the control task says; true when that was the last word.
    fn on_control(&mut self, event: ControlEvent) -> bool {
        match event {
            ControlEvent::State(state) => {
                if let FlowState::Failed(reason) = &state {
                    self.last_error = Some(reason.clone());
                    tracing::error!(source = %self.settings.source, target = %self.settings.target, "{reason}");
                }
                let over = state == FlowState::Stopped;
                if over || matches!(state, FlowState::Failed(_)) {
                    self.waiting_for = None;
                }
                self.state = state;
                return over;
            }
            ControlEvent::Waiting(waiting) => self.waiting_for = waiting,
            ControlEvent::Membership(watch) => self.member = Some(watch),
            ControlEvent::Granted(granted) => self.on_granted(granted),
            ControlEvent::Revoked { reason } => self.on_revoked(reason),
            ControlEvent::Release { partitions, within, done } => self.on_release(partitions, within, done),
            ControlEvent::TopicReady(topic) => self.on_topic(topic),
            ControlEvent::TopicFailed { topic, reason, .. } => {
                self.unconfirmed.remove(&topic);
                tracing::warn!(source = %self.settings.source, topic = %topic, "{reason}");
                self.failed_topics.insert(topic, reason);
            }
            ControlEvent::TopicGone { topic, planned, reason } => {
                self.on_topic_gone(&topic, planned.as_ref(), &reason);
            }
            ControlEvent::Discovered { pending, .. } => self.on_discovered(pending),
            ControlEvent::Followed { followed, status } => self.on_followed(followed, status),
        }
        false
    }

    /// What remote topics take may have changed with their settings: the control task looks at it.
    fn on_followed(&mut self, followed: Followed, status: SyncStatus) {
        if followed == Followed::Configs && status.changed > 0 {
            // A full mailbox has something newer in it.
            self.control.orders.discover();
        }
        self.followed.insert(followed, status);
    }

    fn on_granted(&mut self, granted: Granted) {
        self.state = FlowState::Running;
        (self.store, self.member, self.permit) = (Some(granted.store), granted.member, granted.permit);
        self.writes.send_replace(true);
        let translator = self.translator.clone();
        self.groups = Groups::start(&self.seam, &self.settings, &self.source, &self.target, translator);
        for (partition, gap) in granted.gaps {
            self.engine.recall(Event {
                at_ms: gap.at_ms,
                topic: partition.topic,
                partition: partition.partition,
                kind: EventKind::Gap { from: gap.from, to: gap.to, reason: gap.reason.to_string() },
            });
        }
        if self.engine.producer().is_none() {
            self.ask_for_producer();
        }
        self.engine.resume();
    }

    /// The right to write is gone: everything that could write is dropped at once. The engine is kept, so that batches of
    /// unknown outcome are sent again as they were should the right come back with nobody having written in between.
    fn on_revoked(&mut self, reason: String) {
        tracing::warn!(source = %self.settings.source, target = %self.settings.target, "no longer writes this flow: {reason}");
        self.last_error = Some(reason);
        self.state = FlowState::Starting;
        if self.settings.group.is_some() {
            self.engine.suspend(self.started.elapsed());
            self.release_all();
        }
        let copied = self.keys.iter().filter(|(_, key)| self.engine.position(**key).is_some());
        self.unconfirmed = self.topics.keys().cloned().collect();
        self.unsure.extend(copied.map(|((topic, index), _)| TopicPartition::new(topic.clone(), *index)));
        self.control.orders.forget();
        self.engine.suspend(self.started.elapsed());
        self.engine.take_commands();
        self.lanes = Lanes::new();
        self.saving = None;
        self.cease();
        self.discovered = false;
    }

    /// Tells the engine who leads what.
    fn follow_leaders(&mut self) {
        let now = self.started.elapsed();
        let (source, target) = (self.source.view(), self.target.view());
        self.lanes_follow(&source, &target);
        for ((topic, partition), &key) in &self.keys {
            self.engine.set_source_leader(key, source.leader(topic, *partition), now);
            let Some(ready) = self.topics.get(topic) else { continue };
            for (target_key, index) in self.engine.targets_of(key) {
                let leader = target.leader(&ready.remote.name, index).map(|(broker, _)| broker);
                self.engine.set_target_leader(target_key, leader, now);
            }
        }
    }

    /// Opens the lanes that waited for an address, and those of brokers that have another one now.
    fn lanes_follow(&mut self, source: &ClusterView, target: &ClusterView) {
        let moved = |view: &ClusterView, broker: i32, address: &HostPort| {
            view.brokers.get(&broker).is_some_and(|known| known.address != *address)
        };
        let fetch = self.lanes.fetch.iter().filter(|(broker, (at, _))| moved(source, **broker, at));
        for broker in fetch.map(|(&broker, _)| broker).collect::<Vec<_>>() {
            self.lanes.fetch.remove(&broker);
            self.engine.reopened_fetch(broker);
        }
        let produce = self.lanes.produce.iter().filter(|(broker, (at, _))| moved(target, **broker, at));
        for broker in produce.map(|(&broker, _)| broker).collect::<Vec<_>>() {
            self.lanes.produce.remove(&broker);
            self.engine.reopened_produce(broker, self.started.elapsed());
            self.open_produce(target, broker);
        }
        for (broker, commands) in std::mem::take(&mut self.lanes.waiting) {
            for command in commands {
                self.fetch_command(source, broker, command);
            }
        }
        for broker in std::mem::take(&mut self.lanes.wanted) {
            self.open_produce(target, broker);
        }
    }

    fn carry_out(&mut self) {
        for command in self.engine.take_commands() {
            match command {
                Command::Fetch(broker, command) => {
                    let view = self.source.view();
                    self.fetch_command(&view, broker, command);
                }
                Command::Produce(broker, command) => self.produce_command(broker, command),
                Command::OpenProduce(broker) => {
                    let view = self.target.view();
                    self.open_produce(&view, broker);
                }
                Command::RefreshSource => self.source.request_refresh(),
                Command::RefreshTarget => self.target.request_refresh(),
                Command::Rewrite(job) => self.rewrite(job),
                Command::Locate(key) => self.locate(key),
                Command::NewProducer => self.ask_for_producer(),
                Command::Inquire(inquiry) => self.inquire(inquiry),
                Command::Log(notice) => {
                    tracing::warn!(
                        source = %self.settings.source,
                        target = %self.settings.target,
                        topic = %notice.topic,
                        partition = notice.partition,
                        "{}", notice.message
                    );
                }
            }
        }
    }

    fn fetch_command(&mut self, view: &ClusterView, broker: i32, command: FetchCommand) {
        if let Some((_, lane)) = self.lanes.fetch.get(&broker) {
            // A lane ends only with its flow.
            let _ = lane.commands.send(command);
            return;
        }
        let Some(known) = view.brokers.get(&broker) else {
            self.lanes.waiting.entry(broker).or_default().push(command);
            self.source.request_refresh();
            return;
        };
        let lane = spawn_fetch_lane(
            self.seam.clone(),
            self.source.settings().net.clone(),
            known.address.clone(),
            self.settings.fetch.clone(),
            LaneId(broker),
            self.lanes.fetch_sender.clone(),
        );
        let _ = lane.commands.send(command);
        self.lanes.fetch.insert(broker, (known.address.clone(), lane));
    }

    fn open_produce(&mut self, view: &ClusterView, broker: i32) {
        if self.lanes.produce.contains_key(&broker) {
            return;
        }
        let Some(known) = view.brokers.get(&broker) else {
            self.lanes.wanted.push(broker);
            self.target.request_refresh();
            return;
        };
        let lane = spawn_produce_lane(
            self.seam.clone(),
            self.target.settings().net.clone(),
            known.address.clone(),
            self.settings.produce.clone(),
            self.permit.clone(),
            LaneId(broker),
            self.lanes.produce_sender.clone(),
        );
        self.lanes.produce.insert(broker, (known.address.clone(), lane));
    }

    fn produce_command(&mut self, broker: i32, command: ProduceCommand) {
        if let Some((_, lane)) = self.lanes.produce.get(&broker) {
            let _ = lane.commands.send(command);
        }
    }

    fn rewrite(&mut self, job: RewriteJob) {
        let (seam, done, permits) =
            (self.seam.clone(), self.rewritten_sender.clone(), self.rewriters.clone());
        self.seam.spawn(async move {
            let Ok(_permit) = permits.acquire().await else { return };
            let id = job.id;
            let worked = seam.blocking(move || job.work.perform()).await;
            let _ = done.send((id, worked));
        });
    }

    fn inquire(&self, inquiry: Inquiry) {
        let (target, done) = (self.target.clone(), self.evidence_sender.clone());
        self.seam.spawn(async move {
            let evidence = evidence::gather(&target, &inquiry).await;
            let _ = done.send((inquiry, evidence));
        });
    }

    fn ask_for_producer(&self) {
        let (target, done) = (self.target.clone(), self.producers_sender.clone());
        self.seam.spawn(async move { ask_until_answered(&target, &done).await });
    }

    fn locate(&mut self, key: PartitionKey) {
        let Some((topic, partition)) = self.keys.iter().find(|(_, k)| **k == key).map(|(at, _)| at.clone())
        else {
            return;
        };
        let partition = TopicPartition::new(topic, partition);
        let position = self.engine.position_at(key).map(|position| self.stored(&position));
        self.control.orders.restart(partition, position);
    }

    fn positions_of(&self, topic: &Arc<str>) -> Vec<(TopicPartition, StoredPosition)> {
        let of_topic = self.engine.positions().filter(|position| position.topic == *topic);
        of_topic.map(|position| (position.at(), self.stored(&position))).collect()
    }

    fn stored(&self, position: &Position) -> StoredPosition {
        let (producer_id, producer_epoch) = self.engine.producer().unwrap_or((-1, -1));
        StoredPosition {
            source_topic_id: position.topic_id,
            target_topic_id: position.remote_topic_id,
            upstream: position.upstream,
            downstream: position.downstream.unwrap_or(-1),
            leader_epoch: position.leader_epoch,
            producer_id,
            producer_epoch,
            at_ms: self.seam.now_ms(),
        }
    }

    /// Stores the positions that moved since they were stored last, and offset maps.
    fn save(&mut self, occasion: Occasion) {
        let (Some(store), None) = (&self.store, &self.saving) else { return };
        let mut records = Vec::new();
        let mut moved = Vec::new();
        for position in self.engine.positions() {
            let at = position.at();
            if self.saved.get(&at) != Some(&position.upstream) {
                records.push(StateRecord::Position(at.clone(), self.stored(&position)));
                moved.push((at, position.upstream));
            }
        }
        records.extend(self.syncs.memory.due(&self.engine, occasion, self.started.elapsed()));
        if records.is_empty() {
            return;
        }
        let saved = store.save_held(records, self.held.clone());
        self.saving = Some(self.seam.spawn(async move { saved.await.map(|()| moved) }));
    }

    fn on_saved(&mut self, result: Saved) {
        self.saving = None;
        match result {
            Ok(moved) => {
                self.unsaved = None;
                self.syncs.memory.stored();
                for (partition, upstream) in moved {
                    self.saved.insert(partition, upstream);
                }
            }
            Err(error) => {
                self.syncs.memory.failed();
                if let StoreError::Later { reason } = &error {
                    tracing::warn!(source = %self.settings.source, "offsets are not committed yet: {reason}");
                    return;
                }
                tracing::error!(source = %self.settings.source, target = %self.settings.target, "{error}");
                self.unsaved = Some(error.to_string());
            }
        }
    }
}

async fn saved(saving: &mut Option<JoinHandle<Saved>>) -> Saved {
    match saving {
        Some(task) => task.await.unwrap_or(Err(StoreError::Closed)),
        None => std::future::pending().await,
    }
}

/// Not below a second: each try may be a fetch and a request.
fn stopped_backoff(max: Duration) -> Backoff {
    let max = max.max(Duration::from_secs(1));
    Backoff { initial: max.min(Duration::from_secs(30)), max }
}

fn engine_settings(settings: &FlowSettings, retry_backoff: Backoff) -> EngineSettings {
    EngineSettings {
        source: settings.source.clone(),
        target: settings.target.clone(),
        isolation_level: settings.fetch.isolation_level,
        batching: settings.batching,
        batching_compressed: settings.batching_compressed,
        backlog_batches: BACKLOG_BATCHES,
        on_oversize: settings.on_oversize,
        on_refused: settings.on_refused,
        compression: settings.compression,
        gathering: match settings.batching {
            Batching::Adaptive => settings.gathering,
            Batching::Verbatim => Gathering { batch_bytes_max: 0, ..settings.gathering },
        },
        max_request_bytes: settings.produce.max_request_bytes,
        max_in_flight_requests: settings.produce.max_in_flight_requests,
        lane_window_bytes: LANE_WINDOW_BYTES,
        // A leader that is not ready right after CreateTopics is asked again within milliseconds.
        retry_backoff: Backoff {
            initial: retry_backoff.initial.min(Duration::from_millis(10)),
            max: retry_backoff.max,
        },
        stopped_backoff: stopped_backoff(settings.retry_delay_max),
        decompressed_bytes_max: DECOMPRESSED_BYTES_MAX,
    }
}

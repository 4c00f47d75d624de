//! What the control task does while it holds the lease: opens the memory, then goes round after round ([`super::round`]).
//!
//! A round starts with what both views say. A timer refreshes the views every `refresh.topics.interval`; a view that
//! changes for another reason (a lane met a new leader, a metadata age ran out) starts a round as well, which costs
//! nothing when it brings no news of topics. A stop is heard at any time, also in the middle of a round.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::hidden::Hidden;
use super::partitions::{Partitions, partitions_change};
use super::registry::Registry;
use super::round::{LookAhead, look_ahead};
use super::task::{End, Flow, Mailbox};
use super::waiting::{because, name, waiting};
use super::{ControlCommand, ControlEvent, Granted};
use crate::client::produce::Permit;
use crate::client::{Error, ErrorCode, Topics as Asked};
use crate::mirror::member::MemberWatch;
use crate::mirror::neighbours::look;
use crate::mirror::origins::Origins;
use crate::mirror::plan::TargetLimits;
use crate::mirror::start::Phase;
use crate::mirror::state::records::Position;
use crate::mirror::state::{OpenError, PositionStore, StoreOwner, TopicPartition};
use crate::mirror::takeover;
use crate::mirror::topics::diff::Selector;
use crate::mirror::topics::sync::TopicSync;
use crate::mirror::{FlowSettings, Onward};
use crate::net::Backoff;

/// Until partitions whose leaders could not be asked are tried again, and until a refresh that failed is repeated.
const AGAIN: Backoff = Backoff::millis(250, 5_000);

/// One reign.
#[derive(Debug)]
pub(super) struct Reign {
    pub(super) flow: Flow,
    /// Until when batches may be sent.
    permit: Permit,
    pub(super) started: Instant,
    pub(super) registry: Registry,
    pub(super) selector: Selector,
    pub(super) origins: Origins,
    /// Positions that the owner told us with a restart.
    pub(super) positions: BTreeMap<TopicPartition, Position>,
    pub(super) hidden: Hidden,
    pub(super) limits: BTreeMap<Arc<str>, TargetLimits>,
    /// When all limits are asked for anew; they can be changed at any time.
    pub(super) limits_at: Instant,
    pub(super) beginning: Option<Beginning>,
    /// With `refresh.topics.enabled=false`: the topics of the first round, and no others.
    pub(super) only: Option<BTreeSet<Arc<str>>>,
    pub(super) told: Option<(usize, usize, usize)>,
    pub(super) warned_of_factor: bool,
    /// Topics were created that do not show in the metadata yet.
    pub(super) unshown: bool,
    /// Whose member we are, where a group says which partitions are ours.
    pub(super) member: Option<Partitions>,
    /// Flows of other files on the way back; `None` where a group's members copy, of whom nobody knows one.
    neighbours: Option<Neighbours>,
    store_task: Option<JoinHandle<()>>,
    sync_task: Option<JoinHandle<()>>,
    /// Rounds in a row that left a partition without a start, or refreshes that failed.
    failures: u32,
}

/// The beginning of a flow, until it is on record. In a first start `auto.offset.reset` holds for the partitions that the
/// source has in the first round; where MirrorMaker was before, it holds for none. The record is written when all of them
/// that could be reached have their beginnings; topics that cannot be created do not hold it up.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) phase: Phase,
    pub(super) partitions: Option<BTreeSet<TopicPartition>>,
    pub(super) is_stored: bool,
}

/// Flows of other files that were there when this process began to rule, or came while it did not.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    known: Vec<Onward>,
    /// Those before this time have seen us, and leave to us what would go round.
    since_ms: i64,
}

impl Reign {
    pub(super) fn new(flow: Flow, permit: Permit) -> Reign {
        Reign {
            selector: Selector::new(Arc::clone(&flow.settings)),
            origins: Origins::default(),
            flow,
            permit,
            started: Instant::now(),
            registry: Registry::default(),
            positions: BTreeMap::new(),
            hidden: Hidden::default(),
            limits: BTreeMap::new(),
            limits_at: Instant::now(),
            beginning: None,
            only: None,
            told: None,
            warned_of_factor: false,
            unshown: false,
            member: None,
            neighbours: None,
            store_task: None,
            sync_task: None,
            failures: 0,
        }
    }

    /// Beside these flows, and those that are found.
    pub(super) fn among(mut self, neighbours: Neighbours) -> Reign {
        self.neighbours = Some(neighbours);
        self
    }

    /// What the next reign of this process is told of them, when this one ends. One that has not looked tells nothing.
    pub(super) fn neighbours(&mut self, now_ms: i64) -> Neighbours {
        let seen = self.neighbours.take();
        seen.map_or_else(Neighbours::default, |seen| Neighbours { since_ms: now_ms, ..seen })
    }

    /// Over those partitions alone that a group gives us, and with its offsets as the positions.
    pub(super) fn within(mut self, group: Arc<str>, watch: MemberWatch) -> Reign {
        self.member = Some(Partitions::new(group, watch));
        self
    }

    /// Stops storing. The handles that the owner has answer that the flow was given up.
    pub(super) fn over(&mut self) {
        for task in [self.store_task.take(), self.sync_task.take()].into_iter().flatten() {
            task.abort();
        }
    }

    /// Rules until it is told to stop or cannot go on.
    pub(super) async fn rule(&mut self, mailbox: &mut Mailbox) -> End {
        let flow = self.flow.clone();
        // Before anything is made there, if both have said by now who they are.
        if let Some(reason) = flow.same_cluster() {
            return End::Failed(reason);
        }
        // Remote topics need no memory: they are made while it is read.
        let trouble = watch::Sender::new(None);
        let mut origins = std::mem::take(&mut self.origins);
        let neighbours = self.neighbours.take();
        let begin =
            async { tokio::join!(self.open_store(&trouble), look_around(&flow, &mut origins, neighbours)) };
        let (source, target) = (name(&flow.source), name(&flow.target));
        let what = || {
            let why = because(trouble.borrow().clone(), &[&flow.source, &flow.target]);
            format!("the topics of {source} and of {target}, and the positions stored on the latter{why}")
        };
        let (opened, ahead) = tokio::select! {
            biased;
            () = mailbox.stop() => return End::Stopped,
            begun = waiting(&flow, what, begin) => begun,
        };
        let store = match opened {
            Ok(store) => store,
            Err(end) => return end,
        };
        self.origins = origins;
        let (ahead, onward) = ahead;
        self.take_onward(onward);
        self.take_names();
        self.registry.plan(&ahead.planned);
        let mut has_seen_all = ahead.is_whole;
        let mut source_views = self.flow.source.watch();
        let mut refresh_at = if has_seen_all { self.next_refresh(true) } else { Some(Instant::now()) };
        loop {
            let seen_before = has_seen_all;
            let what = || {
                let why = because(None, &[&flow.source, &flow.target]);
                format!("the topics of {source} and of {target}{why}")
            };
            let is_due = refresh_at.is_some_and(|at| at <= Instant::now());
            let work = async {
                if is_due {
                    let complete = refresh(&flow).await;
                    has_seen_all |= complete;
                    refresh_at = self.next_refresh(complete);
                }
                source_views.borrow_and_update();
                // Before the first whole answer nobody can tell which topics there are.
                if !has_seen_all {
                    return Ok(());
                }
                if let Some(reason) = flow.same_cluster() {
                    return Err(End::Failed(reason));
                }
                self.rounds(&store).await?;
                self.follow_topics();
                Ok(())
            };
            let done = tokio::select! {
                biased;
                () = mailbox.stop() => return End::Stopped,
                done = async { if seen_before { work.await } else { waiting(&flow, what, work).await } } => done,
            };
            if let Err(end) = done {
                return end;
            }
            if self.misses_a_topic() {
                flow.source.request_refresh();
            }
            let wake_at = [refresh_at, self.wake_at()].into_iter().flatten().min();
            tokio::select! {
                biased;
                command = mailbox.next() => match command {
                    ControlCommand::Stop | ControlCommand::StopInDoubt => return End::Stopped,
                    ControlCommand::Discover => (refresh_at, self.limits_at) = (Some(Instant::now()), Instant::now()),
                    ControlCommand::Restart { partition, position } => {
                        self.restart(partition, position);
                        for (partition, position) in mailbox.restarts() {
                            self.restart(partition, position);
                        }
                        // Its topic may have been created anew: a log is not judged by the id of another one.
                        refresh_at = Some(Instant::now());
                    }
                },
                changed = source_views.changed() => match changed {
                    Ok(()) => self.failures = 0,
                    Err(_) => return End::Stopped,
                },
                () = partitions_change(&mut self.member) => self.failures = 0,
                () = sleep_until_some(wake_at) => {}
            }
        }
    }

    /// Looks under which names others copy from the target to the source. Of a group's members nobody knows one, and all
    /// names stay (MirrorMaker 1).
    pub(super) async fn learn_origins(&mut self) {
        if self.member.is_none() && self.origins.learn(&self.flow.source, &self.flow.target).await {
            self.take_names();
        }
    }

    fn take_onward(&mut self, neighbours: Option<Neighbours>) {
        if let Some(neighbours) = neighbours.as_ref().filter(|neighbours| !neighbours.known.is_empty()) {
            self.flow.settings = neighbours.beside(&self.flow.settings);
            self.selector = Selector::new(Arc::clone(&self.flow.settings));
        }
        self.neighbours = neighbours;
    }

    fn take_names(&mut self) {
        let (flow, names) = (&mut self.flow, self.origins.names());
        if names == flow.settings.target_names {
            return;
        }
        let (source, target) = (&flow.settings.source, &flow.settings.target);
        let (calls, flow_name) = (names.join(", "), flow.name());
        tracing::info!(target: "kmirror::control", flow = %flow_name, "another file calls {target} {calls}: what its flow has copied to {source} is not copied back");
        if flow.settings.policy.hides_source(source) {
            tracing::warn!(target: "kmirror::control", flow = %flow_name, "this flow keeps the names of topics, and another file's flow copies from {target} to {source}: while it runs, a topic that both take is left to the one that began first; give each flow topics of its own");
        }
        flow.settings = Arc::new(FlowSettings { target_names: names, ..(*flow.settings).clone() });
        self.selector = Selector::new(Arc::clone(&flow.settings));
    }

    /// Whether a topic that waits for its start is said not to be there: only an answer about all topics tells for sure.
    fn misses_a_topic(&self) -> bool {
        let view = self.flow.source.view();
        self.registry.unstarted().any(|(source, ..)| {
            let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            view.topic(&source.name).is_some_and(|topic| topic.code == unknown)
        })
    }

    /// From the first round on, settings and ACLs of topics follow the source.
    fn follow_topics(&mut self) {
        if self.sync_task.is_none() {
            let flow = self.flow.clone();
            let seam = flow.seam.clone();
            self.sync_task = Some(seam.spawn(async move {
                let mut sync =
                    TopicSync::new(flow.settings.clone(), flow.source.clone(), flow.target.clone());
                loop {
                    let (followed, status) = sync.next(|| flow.seam.now_ms()).await;
                    flow.tell(ControlEvent::Followed { followed, status }).await;
                }
            }));
        }
    }

    /// Opens the memory, however long the target takes.
    async fn open_store(&mut self, trouble: &watch::Sender<Option<String>>) -> Result<PositionStore, End> {
        let flow = self.flow.clone();
        if let Some(member) = &mut self.member {
            let (store, owner) = member.open(&flow);
            let watch = Some(member.watch.clone());
            let permit = self.permit.clone();
            let granted =
                Granted { store: store.clone(), producer: None, gaps: Vec::new(), permit, member: watch };
            self.store_task = Some(flow.seam.spawn(owner.run()));
            flow.tell(ControlEvent::Granted(granted)).await;
            return Ok(store);
        }
        shut_out_mirror_maker(&flow).await?;
        let mut failures = 0;
        let (store, owner) = loop {
            match StoreOwner::open(&flow.source, &flow.target, &flow.settings).await {
                Ok(opened) => break opened,
                // INVALID_REPLICATION_FACTOR: fewer brokers live than replicas are asked for, which may pass.
                Err(OpenError::Client(error))
                    if error.is_retriable() || error.code() == Some(ErrorCode(38)) =>
                {
                    tracing::debug!(
                        target: "kmirror::control",
                        flow = %flow.name(),
                        error = %error.chain(),
                        "cannot read the stored positions yet"
                    );
                    trouble.send_replace(Some(error.chain()));
                }
                Err(error) => return Err(End::Failed(error.to_string())),
            }
            sleep(flow.target.settings().retry_backoff.delay(failures, flow.seam.random())).await;
            failures += 1;
        };
        if !store.has_begun() {
            let phase = if store.is_first_start() { Phase::FirstStart } else { Phase::Later };
            self.beginning = Some(Beginning { phase, partitions: None, is_stored: false });
        }
        tracing::info!(target: "kmirror::control", flow = %flow.name(), partitions = store.partitions(), "writes this flow; positions read");
        let (producer, gaps) = (store.producer(), store.gaps());
        let permit = self.permit.clone();
        self.store_task = Some(flow.seam.spawn(owner.run(permit.clone())));
        let granted = Granted { store: store.clone(), producer, gaps, permit, member: None };
        flow.tell(ControlEvent::Granted(granted)).await;
        Ok(store)
    }

    fn next_refresh(&mut self, complete: bool) -> Option<Instant> {
        let interval = if complete { self.flow.settings.refresh_topics_interval? } else { self.delay() };
        Some(Instant::now() + interval)
    }

    /// When something that failed is due again.
    fn wake_at(&mut self) -> Option<Instant> {
        let (_, _, pending) = self.registry.counts();
        let again = if pending > 0 || self.unshown { Some(Instant::now() + self.delay()) } else { None };
        let retry = self.registry.next_retry().map(|at| (self.started + at).max(Instant::now()));
        [again, retry, self.hidden.again_at()].into_iter().flatten().min()
    }

    fn delay(&mut self) -> Duration {
        let delay = AGAIN.delay(self.failures, self.flow.seam.random());
        self.failures = self.failures.saturating_add(1);
        delay
    }

    fn restart(&mut self, partition: TopicPartition, position: Option<Position>) {
        if !self.registry.restart(&partition) {
            return;
        }
        self.failures = 0;
        let is_ours = self.member.as_ref().is_none_or(|member| member.since(&partition).is_some());
        if let Some(position) = position.filter(|_| is_ours) {
            self.positions.insert(partition, position);
        }
    }
}

impl Neighbours {
    fn beside(&self, settings: &FlowSettings) -> Arc<FlowSettings> {
        let onward = settings.onward.iter().chain(&self.known).cloned().collect();
        Arc::new(FlowSettings { onward, ..settings.clone() })
    }
}

/// Sees who copies back before topics are made.
async fn look_around(
    flow: &Flow,
    origins: &mut Origins,
    neighbours: Option<Neighbours>,
) -> (LookAhead, Option<Neighbours>) {
    let Some(mut neighbours) = neighbours else { return (look_ahead(flow, origins).await, None) };
    if flow.target.view().cluster_id.is_none() {
        let _ = flow.target.refresh(Asked::Named(Vec::new())).await;
    }
    if let Some(target_id) = flow.target.view().cluster_id.as_deref() {
        let found = look(&flow.settings, &flow.source, target_id, neighbours.since_ms).await;
        found.iter().for_each(|onward| origins.heard(&onward.flow.source, &flow.target));
        neighbours.known.extend(found);
    }
    let flow = Flow { settings: neighbours.beside(&flow.settings), ..flow.clone() };
    (look_ahead(&flow, origins).await, Some(neighbours))
}

async fn fence_mirror_maker(flow: &Flow) -> Result<(), Error> {
    let config = takeover::read_worker_config(&flow.settings, &flow.target).await?;
    let ids = takeover::transactional_ids(&flow.settings, &flow.target, &config).await;
    takeover::fence(&flow.target, &ids).await
}

/// Fences MirrorMaker's transactional ids, however long the target takes: what they left open would hide positions, and a
/// worker that was cut off could append beside us.
async fn shut_out_mirror_maker(flow: &Flow) -> Result<(), End> {
    let (mut failures, mut said) = (0, None);
    loop {
        let alive = |members| takeover::while_running(&flow.settings.worker_group_id, members);
        let fenced = match flow.mirror_makers(&mut said).await.map(alive) {
            Ok(Some(reason)) => return Err(End::Failed(reason)),
            Ok(None) => fence_mirror_maker(flow).await,
            Err(error) => Err(error),
        };
        let Err(error) = fenced else { return Ok(()) };
        tracing::warn!(target: "kmirror::control", flow = %flow.name(), error = %error.chain(), "cannot fence MirrorMaker yet");
        // What may not be read tells nothing; the flow goes on, as when MirrorMaker's group may not be described.
        if !error.is_retriable() {
            return Ok(());
        }
        sleep(flow.target.settings().retry_backoff.delay(failures, flow.seam.random())).await;
        failures += 1;
    }
}

/// Both views anew; `false` when one of them could not be had.
pub(super) async fn refresh(flow: &Flow) -> bool {
    let (source, target) = tokio::join!(flow.source.refresh(Asked::All), flow.target.refresh(Asked::All));
    for error in [&source, &target].into_iter().filter_map(|view| view.as_ref().err()) {
        tracing::warn!(target: "kmirror::control", flow = %flow.name(), error = %error.chain(), "no metadata");
    }
    source.is_ok() && target.is_ok()
}

async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

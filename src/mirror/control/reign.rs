//! What the control task does while it holds the lease: memory, topics, starts, round after round.
//!
//! A round starts with what both views say. A timer refreshes the views every `refresh.topics.interval`; a view that
//! changes for another reason (a lane met a new leader, a metadata age ran out) starts a round as well, which costs
//! nothing when it brings no news of topics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::registry::Registry;
use super::resolve::{Resolved, resolve};
use super::task::{End, Flow, Mailbox};
use super::{ControlCommand, ControlEvent, Granted, PartitionStart, TopicReady, TopicRef};
use crate::client::{ClusterView, Topics as Asked};
use crate::mirror::plan::TargetLimits;
use crate::mirror::start::Phase;
use crate::mirror::state::records::{FlowStart, Position, StateRecord};
use crate::mirror::state::{OpenError, PositionStore, Standing, StoreError, StoreOwner, TopicPartition};
use crate::mirror::topics::apply::{create_topics, describe_limits, grow_topics};
use crate::mirror::topics::diff::{Diff, Selector, TopicView, Topics};

/// Until a partition whose leader could not be asked is tried again, and until a round is repeated that was cut short.
const AGAIN: Duration = Duration::from_millis(250);
/// How long a round waits for topics that it has created to show in the metadata; a later round finds them then.
const SHOWS_WITHIN: Duration = Duration::from_secs(1);

/// One reign.
#[derive(Debug)]
pub(super) struct Reign {
    flow: Flow,
    started: Instant,
    registry: Registry,
    selector: Selector,
    /// Positions that the owner told us with a restart.
    positions: BTreeMap<TopicPartition, Position>,
    limits: BTreeMap<Arc<str>, TargetLimits>,
    beginning: Option<Beginning>,
    store_task: Option<JoinHandle<()>>,
    discovered: Option<(usize, usize, usize)>,
}

/// The beginning of a flow, until it is on record. In a first start `auto.offset.reset` holds for the partitions that the
/// source has in the first round; where MirrorMaker was before, it holds for none. The record is written when all of them
/// that could be reached have their beginnings; topics that cannot be created do not hold it up.
#[derive(Debug)]
struct Beginning {
    phase: Phase,
    partitions: Option<BTreeSet<TopicPartition>>,
    is_stored: bool,
}

impl Reign {
    pub(super) fn new(flow: Flow) -> Reign {
        Reign {
            selector: Selector::new(Arc::clone(&flow.settings)),
            flow,
            started: Instant::now(),
            registry: Registry::default(),
            positions: BTreeMap::new(),
            limits: BTreeMap::new(),
            beginning: None,
            store_task: None,
            discovered: None,
        }
    }

    /// Stops storing. The handles that the owner has answer that the flow was given up.
    pub(super) fn over(&mut self) {
        if let Some(task) = self.store_task.take() {
            task.abort();
        }
    }

    /// Rules until it is told to stop or cannot go on.
    pub(super) async fn rule(&mut self, mailbox: &mut Mailbox) -> End {
        let opened = tokio::select! {
            biased;
            () = mailbox.stop() => return End::Stopped,
            opened = self.open_store() => opened,
        };
        let store = match opened {
            Ok(store) => store,
            Err(end) => return end,
        };
        let mut source_views = self.flow.source.watch();
        let mut refresh_at = Some(Instant::now());
        loop {
            let is_due = refresh_at.is_some_and(|at| at <= Instant::now());
            let round = async {
                if is_due {
                    refresh_at = self.next_refresh(self.refresh().await);
                }
                source_views.borrow_and_update();
                self.round(&store).await
            };
            let done = tokio::select! {
                biased;
                () = mailbox.stop() => return End::Stopped,
                done = round => done,
            };
            if let Err(end) = done {
                return end;
            }
            let wake_at = [refresh_at, self.wake_at()].into_iter().flatten().min();
            tokio::select! {
                biased;
                command = mailbox.next() => match command {
                    ControlCommand::Stop => return End::Stopped,
                    ControlCommand::Discover => refresh_at = Some(Instant::now()),
                    ControlCommand::Restart { partition, position } => self.restart(partition, position),
                },
                changed = source_views.changed() => if changed.is_err() { return End::Stopped },
                () = sleep_until_some(wake_at) => {}
            }
        }
    }

    /// Opens the memory, however long the target takes.
    async fn open_store(&mut self) -> Result<PositionStore, End> {
        let flow = self.flow.clone();
        let mut failures = 0;
        let (store, owner) = loop {
            match StoreOwner::open(&flow.source, &flow.target, &flow.settings).await {
                Ok(opened) => break opened,
                Err(OpenError::Client(error)) if error.is_retriable() => {
                    tracing::warn!(
                        target: "kmirror::control",
                        flow = %flow.name(),
                        error = %error.chain(),
                        "cannot read the stored positions yet"
                    );
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
        let granted = Granted { store: store.clone(), producer: store.producer(), gaps: store.gaps() };
        self.store_task = Some(flow.seam.spawn(owner.run()));
        flow.tell(ControlEvent::Granted(granted)).await;
        Ok(store)
    }

    /// Both views anew; `false` when one of them could not be had.
    async fn refresh(&self) -> bool {
        let Flow { source, target, .. } = &self.flow;
        let (source, target) = tokio::join!(source.refresh(Asked::All), target.refresh(Asked::All));
        for error in [&source, &target].into_iter().filter_map(|view| view.as_ref().err()) {
            tracing::warn!(target: "kmirror::control", flow = %self.flow.name(), error = %error.chain(), "no metadata");
        }
        source.is_ok() && target.is_ok()
    }

    fn next_refresh(&self, complete: bool) -> Option<Instant> {
        let interval = if complete { self.flow.settings.refresh_topics_interval? } else { AGAIN };
        Some(Instant::now() + interval)
    }

    /// When something that failed is due again.
    fn wake_at(&self) -> Option<Instant> {
        let (_, _, pending) = self.registry.counts();
        let again = (pending > 0).then(|| Instant::now() + AGAIN);
        let retry = self.registry.next_retry().map(|at| (self.started + at).max(Instant::now()));
        [again, retry].into_iter().flatten().min()
    }

    fn restart(&mut self, partition: TopicPartition, position: Option<Position>) {
        if self.registry.restart(&partition)
            && let Some(position) = position
        {
            self.positions.insert(partition, position);
        }
    }

    async fn round(&mut self, store: &PositionStore) -> Result<(), End> {
        let mut ready = self.create_and_grow().await;
        let mut news: BTreeSet<Arc<str>> = BTreeSet::new();
        ready.retain(|(source, remote)| {
            let is_news = self.registry.ready(source, remote);
            if is_news {
                news.insert(Arc::clone(&source.name));
            }
            is_news
        });
        self.learn_limits(&ready).await;
        let starts = self.find_starts(store).await?;
        let topics: BTreeSet<Arc<str>> = news.into_iter().chain(starts.keys().cloned()).collect();
        self.tell_ready(topics, starts).await;
        self.record_beginning(store).await?;
        let counts = self.registry.counts();
        if self.discovered != Some(counts) {
            self.discovered = Some(counts);
            let (topics, partitions, pending) = counts;
            self.flow.tell(ControlEvent::Discovered { topics, partitions, pending }).await;
        }
        Ok(())
    }

    /// Compares both views, does what is missing on the target, and answers with all topics that are ready.
    async fn create_and_grow(&mut self) -> Vec<(TopicRef, TopicRef)> {
        let flow = self.flow.clone();
        let diff = self.selector.diff(&topics(&flow.source.view()), &topics(&flow.target.view()));
        self.begin(&diff);
        let round = self.registry.observe(&diff, self.started.elapsed());
        for event in round.events {
            flow.tell(event).await;
        }
        if round.create.is_empty() && round.grow.is_empty() {
            return round.ready;
        }
        let mut failed = create_topics(&flow.source, &flow.target, &flow.settings, &round.create).await;
        failed.extend(grow_topics(&flow.target, &round.grow).await);
        for (topic, reason) in &failed {
            tracing::warn!(target: "kmirror::control", flow = %flow.name(), %topic, %reason, "topic not replicated");
            let (now, now_ms) = (self.started.elapsed(), flow.seam.now_ms());
            let event = self.registry.failed(topic, reason.clone(), now, now_ms, flow.seam.random());
            flow.tell(event).await;
        }
        let done = round.create.iter().chain(&round.grow).filter(|topic| !failed.contains_key(&topic.source));
        let awaited: BTreeMap<Arc<str>, i32> =
            done.map(|topic| (Arc::clone(&topic.remote), topic.view.partitions)).collect();
        if awaited.is_empty() {
            return round.ready;
        }
        // Metadata follows the controller by some milliseconds.
        let _ = timeout(SHOWS_WITHIN, flow.target.wait_for_leaders(&awaited)).await;
        let diff = self.selector.diff(&topics(&flow.source.view()), &topics(&flow.target.view()));
        self.registry.observe(&diff, self.started.elapsed()).ready
    }

    async fn learn_limits(&mut self, topics: &[(TopicRef, TopicRef)]) {
        let names: Vec<Arc<str>> = topics.iter().map(|(_, remote)| Arc::clone(&remote.name)).collect();
        if !names.is_empty() {
            self.limits.extend(describe_limits(&self.flow.target, &names).await);
        }
    }

    /// Decides the starts of all partitions that need one and can be asked, and stores what has to be stored first.
    async fn find_starts(
        &mut self,
        store: &PositionStore,
    ) -> Result<BTreeMap<Arc<str>, BTreeMap<i32, PartitionStart>>, End> {
        let wanted: Vec<(TopicPartition, TopicRef, TopicRef)> = self
            .registry
            .unstarted()
            .flat_map(|(source, remote, partitions)| {
                partitions.iter().map(move |&partition| {
                    let partition = TopicPartition::new(Arc::clone(&source.name), partition);
                    (partition, source.clone(), remote.clone())
                })
            })
            .collect();
        if wanted.is_empty() {
            return Ok(BTreeMap::new());
        }
        let wanted = wanted
            .into_iter()
            .map(|(partition, source, remote)| {
                let standing = match self.positions.get(&partition) {
                    Some(&position) => Standing::Pair(position),
                    None => store.standing(&partition),
                };
                let phase = self.phase(&partition);
                (partition, source, remote, standing, phase)
            })
            .collect();
        let Resolved { starts, records } = resolve(&self.flow, wanted).await;
        save(store, records).await?;
        let mut by_topic: BTreeMap<Arc<str>, BTreeMap<i32, PartitionStart>> = BTreeMap::new();
        for (partition, start) in starts {
            self.registry.started(&partition);
            self.positions.remove(&partition);
            by_topic.entry(partition.topic).or_default().insert(partition.partition, start);
        }
        Ok(by_topic)
    }

    fn phase(&self, partition: &TopicPartition) -> Phase {
        match &self.beginning {
            Some(Beginning { phase, partitions: Some(first), .. }) if first.contains(partition) => *phase,
            _ => Phase::Later,
        }
    }

    async fn tell_ready(
        &self,
        topics: BTreeSet<Arc<str>>,
        mut starts: BTreeMap<Arc<str>, BTreeMap<i32, PartitionStart>>,
    ) {
        for topic in topics {
            let Some((source, remote)) = self.registry.topic(&topic) else { continue };
            let ready = TopicReady {
                source: source.clone(),
                remote: remote.clone(),
                limits: self.limits.get(&remote.name).copied().unwrap_or_default(),
                starts: starts.remove(&topic).unwrap_or_default(),
            };
            self.flow.tell(ControlEvent::TopicReady(ready)).await;
        }
    }

    fn begin(&mut self, diff: &Diff) {
        if let Some(beginning) = &mut self.beginning
            && beginning.partitions.is_none()
            && self.flow.source.view().generation > 0
        {
            let partitions = diff.topics.iter().flat_map(|topic| {
                (0..topic.view.partitions).map(|index| TopicPartition::new(topic.source.clone(), index))
            });
            beginning.partitions = Some(partitions.collect());
        }
    }

    async fn record_beginning(&mut self, store: &PositionStore) -> Result<(), End> {
        let Some(Beginning { partitions: Some(first), is_stored: false, .. }) = &self.beginning else {
            return Ok(());
        };
        let is_open = self.registry.unstarted().any(|(source, _, partitions)| {
            partitions.iter().any(|&index| first.contains(&TopicPartition::new(source.name.clone(), index)))
        });
        if is_open {
            return Ok(());
        }
        let id = |view: Arc<ClusterView>| view.cluster_id.clone().unwrap_or_else(|| Arc::from(""));
        let start = FlowStart {
            at_ms: self.flow.seam.now_ms(),
            source_cluster_id: id(self.flow.source.view()),
            target_cluster_id: id(self.flow.target.view()),
        };
        save(store, vec![StateRecord::FlowStart(start)]).await?;
        if let Some(beginning) = &mut self.beginning {
            beginning.is_stored = true;
        }
        Ok(())
    }
}

async fn save(store: &PositionStore, records: Vec<StateRecord>) -> Result<(), End> {
    match store.save(records).await {
        Ok(()) => Ok(()),
        Err(StoreError::Closed) => Err(End::Stopped),
        Err(error @ StoreError::Refused { .. }) => Err(End::Failed(error.to_string())),
    }
}

/// The topics of a view, without those that it has no partitions of.
fn topics(view: &ClusterView) -> Topics {
    view.topics()
        .filter(|topic| !topic.partitions.is_empty())
        .map(|topic| {
            let view = TopicView { id: topic.id, partitions: topic.partitions.len() as i32 };
            (Arc::clone(&topic.name), view)
        })
        .collect()
}

async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

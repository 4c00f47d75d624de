//! One round of a reign: what both clusters' views say becomes topics that are ready, with the starts of their partitions.
//!
//! Topics that are there on both sides go first, so that neither a controller that is away nor a topic that cannot be
//! created holds up what can be copied; then what is missing on the target is created, and the round begins anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::partitions::Partitions;
use super::registry::Round;
use super::reign::{Beginning, Reign, refresh};
use super::resolve::{Resolved, Wanted, resolve};
use super::task::{End, Flow};
use super::{ControlEvent, PartitionStart, TopicReady, TopicRef};
use crate::client::{ClusterView, GroupOffsets};
use crate::mirror::origins::Origins;
use crate::mirror::start::Phase;
use crate::mirror::state::records::{FlowStart, StateRecord};
use crate::mirror::state::{PositionStore, Standing, StoreError, TopicPartition};
use crate::mirror::topics::apply::{Failures, create_topics, describe_limits, grow_topics, warn_lowered};
use crate::mirror::topics::diff::{Action, Diff, Selector, TopicDiff, topics_of};
use crate::mirror::{FlowSettings, Partitioning};

/// How long creating topics may take before the round goes on without them.
const CREATE_WITHIN: Duration = Duration::from_secs(20);
/// How long a round waits for topics that it has created to show in the metadata; a later round finds them then.
const SHOWS_WITHIN: Duration = Duration::from_secs(5);
/// What is created at once. The first topics of many are copied while the others are created, and a controller refuses
/// requests for more than 10,000 partitions (`ReplicationControlManager.java`).
const CREATE_TOPICS_MAX: usize = 100;
const CREATE_PARTITIONS_MAX: i32 = 2_000;

type Starts = BTreeMap<Arc<str>, BTreeMap<i32, PartitionStart>>;

impl Reign {
    /// Rounds, until nothing more can be done now.
    pub(super) async fn rounds(&mut self, store: &PositionStore) -> Result<(), End> {
        if let Some(member) = &mut self.member
            && !member.knows_partitionings(&self.flow).await?
        {
            return Ok(());
        }
        self.learn_origins().await;
        for event in self.learn_hidden().await {
            self.flow.tell(event).await;
        }
        loop {
            let round = self.observe().await;
            let mut news = self.take_in(&round.ready);
            news.extend(self.learn_limits().await);
            let starts = self.find_starts(store).await?;
            news.extend(starts.keys().cloned());
            self.tell_ready(news, starts).await;
            if !self.create_and_grow(round).await {
                break;
            }
        }
        self.record_beginning(store).await?;
        self.tell_discovered().await;
        Ok(())
    }

    /// Compares both views.
    async fn observe(&mut self) -> Round {
        let source = topics_of(&self.flow.source.view());
        let mut diff = self.selector.diff(&source, &topics_of(&self.flow.target.view()));
        if let Some(member) = &mut self.member {
            member.choose_partitionings(&mut diff, self.flow.settings.group.as_ref());
        }
        if self.flow.settings.refresh_topics_interval.is_none() {
            let first = || diff.topics.iter().map(|topic| topic.source.clone()).collect();
            let only = &*self.only.get_or_insert_with(first);
            diff.topics.retain(|topic| only.contains(&topic.source));
        }
        self.begin(&diff);
        let mut round = self.registry.observe(&diff, self.started.elapsed());
        for event in std::mem::take(&mut round.events) {
            self.flow.tell(event).await;
        }
        round
    }

    /// Notes the topics that are there on both sides; answers with those that are news.
    fn take_in(&mut self, ready: &[(TopicRef, TopicRef)]) -> BTreeSet<Arc<str>> {
        let news = ready.iter().filter(|(source, remote)| self.registry.ready(source, remote));
        news.map(|(source, _)| source.name.clone()).collect()
    }

    /// Asks what remote topics take: of new ones at once, of all every `metadata.max.age.ms`. Answers with the source
    /// topics whose limits are others than before.
    async fn learn_limits(&mut self) -> BTreeSet<Arc<str>> {
        let is_due = self.limits_at <= Instant::now();
        let sides = self.registry.topics();
        let wanted: BTreeMap<Arc<str>, Arc<str>> = sides
            .filter(|(_, remote)| is_due || !self.limits.contains_key(&remote.name))
            .map(|(source, remote)| (remote.name.clone(), source.name.clone()))
            .collect();
        if is_due {
            self.limits_at = Instant::now() + self.flow.target.settings().metadata_max_age;
        }
        if wanted.is_empty() {
            return BTreeSet::new();
        }
        let remotes: Vec<Arc<str>> = wanted.keys().cloned().collect();
        let found = timeout(CREATE_WITHIN, describe_limits(&self.flow.target, &remotes)).await;
        let mut changed = BTreeSet::new();
        for (remote, limits) in found.unwrap_or_default() {
            let before = self.limits.insert(remote.clone(), limits);
            if before.is_some_and(|before| before != limits) {
                changed.extend(wanted.get(&remote).cloned());
            }
        }
        changed
    }

    /// Decides the starts of all partitions that need one and can be asked, and stores what has to be stored first.
    async fn find_starts(&mut self, store: &PositionStore) -> Result<Starts, End> {
        if let Some(member) = &mut self.member {
            for at in member.mark(&mut self.registry) {
                self.positions.remove(&at);
            }
        }
        let Some(committed) = self.recall(store).await? else { return Ok(Starts::new()) };
        let wanted: Vec<Wanted> = self
            .registry
            .unstarted()
            .flat_map(|(source, remote, partitions)| {
                partitions.iter().map(move |&index| (index, source.clone(), remote.clone()))
            })
            .map(|(index, source, remote)| {
                let partition = TopicPartition::new(source.name.clone(), index);
                let standing = match self.positions.get(&partition) {
                    Some(&position) => Standing::Pair(position),
                    None => store.standing(&partition),
                };
                let phase = self.phase(&partition, &committed);
                (partition, source, remote, standing, phase)
            })
            .collect();
        let Resolved { starts, records } = resolve(&self.flow, wanted).await;
        let held = self.member.as_ref().map(|of| of.known.clone()).unwrap_or_default();
        match save(store.save_held(records, held)).await {
            Ok(()) => {}
            // The group rebalances: what is ours then is started then.
            Err(SaveError::Later) => return Ok(Starts::new()),
            Err(SaveError::End(end)) => return Err(end),
        }
        let mut by_topic = Starts::new();
        for (partition, start) in starts {
            self.registry.started(&partition);
            self.positions.remove(&partition);
            by_topic.entry(partition.topic).or_default().insert(partition.partition, start);
        }
        Ok(by_topic)
    }

    /// What the group has committed, taken into the store; `None` when it cannot be asked now.
    async fn recall(&self, store: &PositionStore) -> Result<Option<GroupOffsets>, End> {
        let Some(member) = &self.member else { return Ok(Some(GroupOffsets::new())) };
        let partitions: Vec<TopicPartition> = self
            .registry
            .unstarted()
            .flat_map(|(source, _, partitions)| {
                partitions.iter().map(|&index| TopicPartition::new(source.name.clone(), index))
            })
            .filter(|partition| !self.positions.contains_key(partition))
            .collect();
        if partitions.is_empty() {
            return Ok(Some(GroupOffsets::new()));
        }
        match member.recall(store, &partitions).await {
            Ok(committed) => Ok(Some(committed)),
            Err(error) if error.is_retriable() => {
                tracing::warn!(target: "kmirror::control", flow = %self.flow.name(), error = %error.chain(), "the group's offsets cannot be read yet");
                Ok(None)
            }
            Err(error) => Err(End::Failed(error.chain())),
        }
    }

    fn phase(&self, partition: &TopicPartition, committed: &GroupOffsets) -> Phase {
        if self.member.is_some() {
            return Partitions::phase(partition, committed);
        }
        match &self.beginning {
            Some(Beginning { phase, partitions: Some(first), .. }) if first.contains(partition) => *phase,
            _ => Phase::Later,
        }
    }

    async fn tell_ready(&self, topics: BTreeSet<Arc<str>>, mut starts: Starts) {
        for topic in topics {
            let Some((source, remote)) = self.registry.topic(&topic) else { continue };
            let mut starts = starts.remove(&topic).unwrap_or_default();
            let mut since = BTreeMap::new();
            if let Some(member) = &self.member {
                let still = |index| Some((index, member.since(&TopicPartition::new(topic.clone(), index))?));
                since = starts.keys().filter_map(|&index| still(index)).collect();
                starts.retain(|index, _| since.contains_key(index));
            }
            let ready = TopicReady {
                source: source.clone(),
                remote: remote.clone(),
                limits: self.limits.get(&remote.name).copied().unwrap_or_default(),
                partitioning: self
                    .member
                    .as_ref()
                    .map_or(Partitioning::Preserve, |of| of.partitioning(&topic)),
                starts,
                since,
            };
            self.flow.tell(ControlEvent::TopicReady(ready)).await;
        }
    }

    /// Does what is missing on the target, as much as goes at once; `true` when there is something to look at or to do.
    async fn create_and_grow(&mut self, mut round: Round) -> bool {
        self.unshown = false;
        let is_cut = cut(&mut round.create);
        if round.create.is_empty() && round.grow.is_empty() {
            return false;
        }
        self.warn_of_factor(&round);
        let flow = self.flow.clone();
        let work = async {
            let mut failures = create_topics(&flow.source, &flow.target, &flow.settings, &round.create).await;
            failures.extend(grow_topics(&flow.target, &round.grow).await);
            failures
        };
        let topics = || round.create.iter().chain(&round.grow);
        let failures = timeout(CREATE_WITHIN, work).await.unwrap_or_else(|_| {
            let reason = format!("the target did not answer within {} s", CREATE_WITHIN.as_secs());
            topics().map(|topic| (topic.source.clone(), reason.clone())).collect()
        });
        self.tell_failures(&failures).await;
        let done = topics().filter(|topic| !failures.contains_key(&topic.source));
        let awaited: BTreeMap<Arc<str>, i32> =
            done.map(|topic| (topic.remote.clone(), topic.view.partitions)).collect();
        if awaited.is_empty() {
            return is_cut;
        }
        // Metadata follows the controller by some milliseconds.
        let shown = timeout(SHOWS_WITHIN, flow.target.wait_for_leaders(&awaited)).await;
        if matches!(shown, Ok(Ok(_))) {
            return true;
        }
        flow.target.request_refresh();
        self.unshown = true;
        is_cut
    }

    async fn tell_failures(&mut self, failures: &Failures) {
        for (topic, reason) in failures {
            let flow = self.flow.clone();
            let (now, now_ms) = (self.started.elapsed(), flow.seam.now_ms());
            let event = self.registry.failed(topic, reason.clone(), now, now_ms, flow.seam.random());
            flow.tell(event).await;
        }
    }

    fn warn_of_factor(&mut self, round: &Round) {
        if !round.create.is_empty() && !self.warned_of_factor {
            let live_brokers = self.flow.target.view().brokers.len();
            warn_lowered("replication.factor", self.flow.settings.replication_factor, live_brokers);
            self.warned_of_factor = true;
        }
    }

    fn begin(&mut self, diff: &Diff) {
        if let Some(beginning) = &mut self.beginning
            && beginning.partitions.is_none()
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
        match save(store.save(vec![StateRecord::FlowStart(start)])).await {
            Ok(()) => {}
            Err(SaveError::Later) => return Ok(()),
            Err(SaveError::End(end)) => return Err(end),
        }
        if let Some(beginning) = &mut self.beginning {
            beginning.is_stored = true;
        }
        Ok(())
    }

    async fn tell_discovered(&mut self) {
        let counts = self.registry.counts();
        if self.told != Some(counts) {
            self.told = Some(counts);
            let (topics, partitions, pending) = counts;
            self.flow.tell(ControlEvent::Discovered { topics, partitions, pending }).await;
        }
    }
}

/// What was seen and done before the first round.
#[derive(Debug, Default)]
pub(super) struct LookAhead {
    /// Both views are whole and as new as what was made.
    pub(super) is_whole: bool,
    /// The topics that were selected then.
    pub(super) planned: Vec<TopicDiff>,
}

/// Makes remote topics that are missing before the first round, as many as go at once. What fails is for the round to say,
/// which tries it again.
pub(super) async fn look_ahead(flow: &Flow, origins: &mut Origins) -> LookAhead {
    if !refresh(flow).await {
        return LookAhead::default();
    }
    if flow.same_cluster().is_some() {
        return LookAhead { is_whole: true, planned: Vec::new() };
    }
    if flow.settings.group.is_none() {
        origins.learn(&flow.source, &flow.target).await;
    }
    let settings = FlowSettings { target_names: origins.names(), ..(*flow.settings).clone() };
    let mut selector = Selector::new(Arc::new(settings));
    let planned = selector.diff(&topics_of(&flow.source.view()), &topics_of(&flow.target.view())).topics;
    let create: Vec<TopicDiff> =
        planned.iter().filter(|topic| topic.action == Action::Create).cloned().collect();
    LookAhead { is_whole: create.is_empty() || create_ahead(flow, create).await, planned }
}

async fn create_ahead(flow: &Flow, mut create: Vec<TopicDiff>) -> bool {
    cut(&mut create);
    let awaited = create.iter().map(|topic| (topic.remote.clone(), topic.view.partitions)).collect();
    let work = async {
        let failures = create_topics(&flow.source, &flow.target, &flow.settings, &create).await;
        failures.is_empty() && flow.target.wait_for_leaders(&awaited).await.is_ok()
    };
    timeout(SHOWS_WITHIN, work).await.unwrap_or(false)
}

/// Keeps what is created at once; `true` when something is left for later.
fn cut(create: &mut Vec<TopicDiff>) -> bool {
    let mut partitions = 0_i32;
    let fits = |topic: &&TopicDiff| {
        partitions = partitions.saturating_add(topic.view.partitions);
        partitions <= CREATE_PARTITIONS_MAX
    };
    // One topic that is too large for itself is tried all the same.
    let count = create.iter().take_while(fits).count().clamp(1, CREATE_TOPICS_MAX);
    let is_cut = count < create.len();
    create.truncate(count);
    is_cut
}

/// Why something was not stored.
enum SaveError {
    /// It can be later.
    Later,
    /// It never can.
    End(End),
}

async fn save(saved: impl Future<Output = Result<(), StoreError>>) -> Result<(), SaveError> {
    match saved.await {
        Ok(()) => Ok(()),
        Err(StoreError::Later { .. }) => Err(SaveError::Later),
        Err(StoreError::Closed) => Err(SaveError::End(End::Stopped)),
        Err(error @ StoreError::Refused { .. }) => Err(SaveError::End(End::Failed(error.to_string()))),
    }
}

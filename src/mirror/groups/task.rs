//! The task of a flow's groups: loads what stands in the topics, then goes round on three timers.
//!
//! It lives while the flow may be written, and ends where it waits when that is over. Every round asks both clusters anew, so
//! that a failed one is repaired by the next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::book::Book;
use super::select::{selects_group, unlisted_groups};
use crate::client::{Cluster, Error, ListedGroup};
use crate::mirror::FlowSettings;
use crate::mirror::mm2::formats::{Checkpoint, OffsetSync};
use crate::mirror::mm2::sync_store::{History, SyncStore};
use crate::mirror::mm2::topic::InternalTopic;
use crate::mirror::offset_map::Translated;
use crate::mirror::state::TopicPartition;
use crate::mirror::status::GroupsStatus;
use crate::mirror::syncs::offset_syncs_topic;
use crate::net::Backoff;
use crate::seam::Seam;

/// Between attempts to load what stands in the topics.
const LOAD_BACKOFF: Backoff = Backoff::millis(500, 30_000);
/// The first round waits a moment for partitions to start, which a translation needs.
const FIRST_ROUND_AFTER: Duration = Duration::from_secs(2);

/// What is asked of the flow: source offsets to be translated.
#[derive(Debug)]
pub(in crate::mirror) struct TranslateRequest {
    /// Partitions of the source with the offset that a group reads next.
    pub(in crate::mirror) wanted: Vec<(TopicPartition, i64)>,
    /// One answer for each.
    pub(in crate::mirror) reply: oneshot::Sender<Vec<Option<Translated>>>,
}

/// The running task; it ends when this is dropped.
#[derive(Debug)]
pub(in crate::mirror) struct Groups {
    task: JoinHandle<()>,
    status: watch::Receiver<Arc<GroupsStatus>>,
}

impl Groups {
    /// Starts it; `None` when checkpoints are off.
    pub(in crate::mirror) fn start(
        seam: &Seam,
        settings: &Arc<FlowSettings>,
        source: &Cluster,
        target: &Cluster,
        translator: mpsc::Sender<TranslateRequest>,
    ) -> Option<Groups> {
        settings.translation.emit_checkpoints_interval?;
        let (status_sender, status) = watch::channel(Arc::new(GroupsStatus::default()));
        let checkpoints = InternalTopic::new(
            target.clone(),
            settings.policy.checkpoints_topic(&settings.source),
            settings.translation.checkpoints_replication_factor,
            "checkpoints.topic.replication.factor",
        );
        let work = Work {
            seam: seam.clone(),
            settings: settings.clone(),
            source: source.clone(),
            target: target.clone(),
            translator,
            checkpoints,
            syncs: SyncStore::default(),
            book: Book::default(),
            groups: BTreeMap::new(),
            ours: BTreeMap::new(),
            status: GroupsStatus::default(),
            publish: status_sender,
        };
        Some(Groups { task: seam.spawn(work.run()), status })
    }

    /// What it says of itself.
    pub(in crate::mirror) fn status(&self) -> Arc<GroupsStatus> {
        self.status.borrow().clone()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Everything that the rounds need.
pub(super) struct Work {
    pub(super) seam: Seam,
    pub(super) settings: Arc<FlowSettings>,
    pub(super) source: Cluster,
    pub(super) target: Cluster,
    translator: mpsc::Sender<TranslateRequest>,
    pub(super) checkpoints: InternalTopic,
    /// What MirrorMaker and earlier processes left.
    pub(super) syncs: SyncStore,
    pub(super) book: Book,
    /// The selected groups by their ids at the source, and what they are called on the target, by which everything else
    /// here goes.
    pub(super) groups: BTreeMap<Arc<str>, Arc<str>>,
    /// What we committed on the target last.
    pub(super) ours: BTreeMap<Arc<str>, BTreeMap<TopicPartition, i64>>,
    pub(super) status: GroupsStatus,
    publish: watch::Sender<Arc<GroupsStatus>>,
}

impl Work {
    async fn run(mut self) {
        self.load().await;
        sleep(FIRST_ROUND_AFTER).await;
        let translation = self.settings.translation.clone();
        let now = Instant::now();
        let (mut refresh_at, mut emit_at) = (Some(now), now);
        let mut sync_at = translation.sync_group_offsets_interval.map(|_| now);
        loop {
            if refresh_at.is_some_and(|at| at <= Instant::now()) {
                let done = self.refresh().await;
                let again = if done { translation.refresh_groups_interval } else { Some(LOAD_BACKOFF.max) };
                refresh_at = again.map(|interval| Instant::now() + interval);
            }
            if emit_at <= Instant::now() {
                self.emit().await;
                emit_at = Instant::now() + translation.emit_checkpoints_interval.unwrap_or(LOAD_BACKOFF.max);
            }
            if sync_at.is_some_and(|at| at <= Instant::now()) {
                self.sync().await;
                sync_at = translation.sync_group_offsets_interval.map(|interval| Instant::now() + interval);
            }
            self.publish();
            let next = [refresh_at, Some(emit_at), sync_at].into_iter().flatten().min();
            sleep_until(next.unwrap_or(emit_at)).await;
        }
    }

    pub(super) fn publish(&self) {
        self.publish.send_replace(Arc::new(self.status.clone()));
    }

    pub(super) fn complain(&mut self, what: &str, error: &Error) {
        let message = format!("{what}: {}", error.chain());
        if self.status.last_error.as_ref() != Some(&message) {
            let (source, target) = (&self.settings.source, &self.settings.target);
            tracing::warn!(target: "kmirror::groups", %source, flow_target = %target, "{message}");
        }
        self.status.last_error = Some(message);
    }

    /// Reads the checkpoints that stand, and the offset syncs that were left. A topic that may not be read counts as empty,
    /// and of the syncs only the last ones are used then.
    async fn load(&mut self) {
        let mut failures = 0;
        let history = loop {
            let read = match self.checkpoints.make().await {
                Ok(()) => self.checkpoints.read().await,
                Err(error) => Err(error),
            };
            match read {
                Ok(records) => {
                    for checkpoint in
                        records.iter().filter_map(|(key, value)| Checkpoint::decode(key, value).ok())
                    {
                        self.book.note(&checkpoint);
                    }
                    break History::Whole;
                }
                Err(error) => {
                    self.complain("cannot read the checkpoints that stand", &error);
                    if !error.is_retriable() {
                        break History::LastOnly;
                    }
                }
            }
            self.wait(&mut failures).await;
        };
        let topic = offset_syncs_topic(&self.settings, &self.source, &self.target);
        loop {
            match topic.read().await {
                Ok(records) => {
                    let syncs = records.iter().filter_map(|(key, value)| OffsetSync::decode(key, value).ok());
                    self.syncs = SyncStore::load(syncs, history);
                    self.status.last_error = None;
                    return;
                }
                Err(error) => {
                    self.complain("cannot read the offset syncs that were left", &error);
                    if !error.is_retriable() {
                        return;
                    }
                }
            }
            self.wait(&mut failures).await;
        }
    }

    async fn wait(&self, failures: &mut u32) {
        self.publish();
        sleep(LOAD_BACKOFF.delay(*failures, self.seam.random())).await;
        *failures = failures.saturating_add(1);
    }

    /// Finds the groups; `false` when not all brokers could be asked. Then no group is given up.
    async fn refresh(&mut self) -> bool {
        let (listed, errors) = match self.source.list_groups().await {
            Ok(listed) => listed,
            Err(error) => {
                self.complain("cannot list the groups of the source", &error);
                return false;
            }
        };
        let selected = listed.iter().filter(|group| selects_group(&self.settings, group));
        let named =
            |group: &ListedGroup| (group.id.clone(), Arc::from(self.settings.remote_group(&group.id)));
        let mut selected: BTreeMap<Arc<str>, Arc<str>> = selected.map(named).collect();
        // A source lists no group that we may not describe; asked by its name, it says so.
        for group in unlisted_groups(&self.settings, &listed) {
            selected.insert(group.clone(), Arc::from(self.settings.remote_group(&group)));
        }
        if let Some(error) = errors.first() {
            self.complain("cannot list all groups of the source", error);
            self.groups.extend(selected);
            return false;
        }
        let names: BTreeSet<Arc<str>> = selected.values().cloned().collect();
        self.book.keep(&names);
        self.ours.retain(|group, _| names.contains(group));
        self.status.groups.retain(|group, _| names.contains(group));
        self.groups = selected;
        true
    }

    /// Asks the flow; `None` for all when it is gone, which ends this task as well.
    pub(super) async fn translate(&self, wanted: Vec<(TopicPartition, i64)>) -> Vec<Option<Translated>> {
        let count = wanted.len();
        let (reply, answer) = oneshot::channel();
        let nothing = vec![None; count];
        if self.translator.send(TranslateRequest { wanted, reply }).await.is_err() {
            return nothing;
        }
        answer.await.ok().filter(|answer| answer.len() == count).unwrap_or(nothing)
    }
}

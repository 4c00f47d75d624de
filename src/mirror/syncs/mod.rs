//! Offset syncs for MirrorMaker's readers, and what kmirror remembers of its own offset maps.
//!
//! Both follow from the engine's maps, looked at every second: `plan` decides which syncs are due, `memory` which maps are
//! stored. One round of syncs is written at a time; what the topic does not take is due again, with whatever is newer by
//! then. A source that lets nobody write (a credential for reading only) costs a warning and a try now and then.

mod memory;
mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

pub use memory::{MapMemory, spans_of};
pub use plan::{Occasion, SyncPlan};

use super::engine::Engine;
use super::mm2::formats::OffsetSync;
use super::mm2::settings::OffsetSyncsLocation;
use super::mm2::topic::InternalTopic;
use super::settings::FlowSettings;
use super::status::SyncsStatus;
use crate::client::{Cluster, PartitionKey};
use crate::net::Backoff;
use crate::seam::Seam;

/// How often maps that have changed are looked at.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// Between tries of a topic that takes nothing.
const FAILED_BACKOFF: Backoff = Backoff::millis(2_000, 60_000);
/// How long a stop waits for the last round.
const FINISH_MAX: Duration = Duration::from_secs(5);

/// The offset syncs of a flow.
pub(super) struct Syncs {
    seam: Seam,
    plan: Option<SyncPlan>,
    topic: InternalTopic,
    changed: BTreeSet<PartitionKey>,
    /// The partitions of the round that is being written.
    under_way: Vec<PartitionKey>,
    writing: Option<JoinHandle<Written>>,
    failures: u32,
    not_before: Option<Instant>,
    status: SyncsStatus,
    pub(super) memory: MapMemory,
}

/// What came of a round.
pub(super) struct Written {
    round: Vec<OffsetSync>,
    refused: Option<String>,
}

/// The topic of a flow's offset syncs, and the cluster that it lies on.
pub(super) fn offset_syncs_topic(
    settings: &FlowSettings,
    source: &Cluster,
    target: &Cluster,
) -> InternalTopic {
    let translation = &settings.translation;
    let (cluster, other) = match translation.offset_syncs_location {
        OffsetSyncsLocation::Source => (source, &settings.target),
        OffsetSyncsLocation::Target => (target, &settings.source),
    };
    let factor = translation
        .offset_syncs
        .map_or(super::ReplicationFactor::Default(3), |syncs| syncs.replication_factor);
    let name = settings.policy.offset_syncs_topic(other);
    InternalTopic::new(cluster.clone(), name, factor, "offset-syncs.topic.replication.factor")
}

impl Syncs {
    pub(super) fn new(seam: &Seam, settings: &FlowSettings, source: &Cluster, target: &Cluster) -> Syncs {
        let plan = settings.translation.offset_syncs.map(|syncs| SyncPlan::new(syncs.offset_lag_max));
        let topic = offset_syncs_topic(settings, source, target);
        let status =
            SyncsStatus { topic: plan.is_some().then(|| topic.name().clone()), ..SyncsStatus::default() };
        Syncs {
            seam: seam.clone(),
            plan,
            topic,
            changed: BTreeSet::new(),
            under_way: Vec::new(),
            writing: None,
            failures: 0,
            not_before: None,
            status,
            memory: MapMemory::default(),
        }
    }

    /// The right to write was lost.
    pub(super) fn suspend(&mut self) {
        if let Some(writing) = self.writing.take() {
            writing.abort();
        }
        self.changed.extend(self.under_way.drain(..));
        self.memory.suspend();
    }

    /// Whether there is nothing to look at: no map has changed, and nothing is left of an earlier look.
    pub(super) fn is_idle(&self, engine: &Engine) -> bool {
        !engine.has_mapped() && self.changed.is_empty()
    }

    /// Looks at the maps that have changed, and writes what is due.
    pub(super) fn look(&mut self, engine: &mut Engine, occasion: Occasion) {
        for key in engine.take_mapped() {
            self.memory.note(key);
            if self.plan.is_some() {
                self.changed.insert(key);
            }
        }
        let Some(plan) = &self.plan else { return };
        if self.writing.is_some() || self.not_before.is_some_and(|at| at > Instant::now()) {
            return;
        }
        let mut round = Vec::new();
        let mut open = BTreeSet::new();
        for key in std::mem::take(&mut self.changed) {
            let (Some(source), Some(map)) = (engine.source_of(key), engine.offset_map(key)) else { continue };
            let before = round.len();
            if !plan.due(&source, map, occasion, &mut round) {
                open.insert(key);
            } else if round.len() > before {
                self.under_way.push(key);
            }
        }
        self.changed = open;
        if !round.is_empty() {
            self.write(round);
        }
    }

    fn write(&mut self, round: Vec<OffsetSync>) {
        let mut topic = self.topic.clone();
        self.writing = Some(self.seam.spawn(async move {
            let records = round.iter().map(|sync| (sync.key(), sync.value())).collect();
            let refused = topic.append(records).await.err().map(|error| error.to_string());
            Written { round, refused }
        }));
    }

    /// The outcome of the round that is being written; never when there is none.
    pub(super) async fn written(&mut self) -> Written {
        let outcome = match &mut self.writing {
            Some(writing) => writing.await,
            None => std::future::pending().await,
        };
        // The runtime is shutting down.
        outcome.unwrap_or_else(|_| Written { round: Vec::new(), refused: Some("it was given up".to_owned()) })
    }

    pub(super) fn on_written(&mut self, written: Written) {
        self.writing = None;
        let Some(reason) = written.refused else {
            if let Some(plan) = &mut self.plan {
                plan.acknowledged(&written.round);
            }
            self.status.emitted += written.round.len() as u64;
            self.status.last_error = None;
            (self.failures, self.not_before) = (0, None);
            self.under_way.clear();
            return;
        };
        if self.status.last_error.as_ref() != Some(&reason) {
            tracing::warn!(target: "kmirror::syncs", topic = %self.topic.name(), "cannot write offset syncs, they are kept: {reason}");
        }
        self.status.last_error = Some(reason);
        self.changed.extend(self.under_way.drain(..));
        self.not_before = Some(Instant::now() + FAILED_BACKOFF.delay(self.failures, self.seam.random()));
        self.failures = self.failures.saturating_add(1);
    }

    /// Writes what is left, as long as that takes no longer than a stop may wait.
    pub(super) async fn finish(&mut self, engine: &mut Engine) {
        let rounds = async {
            for _ in 0..2 {
                if self.writing.is_none() {
                    self.look(engine, Occasion::Flush);
                }
                if self.writing.is_none() {
                    return;
                }
                let written = self.written().await;
                self.on_written(written);
            }
        };
        // What is not written then is written by the next process, from the first record that it copies on.
        let _ = timeout(FINISH_MAX, rounds).await;
    }

    pub(super) fn status(&self) -> SyncsStatus {
        self.status.clone()
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        self.suspend();
    }
}

/// Where the syncs lie, for messages.
impl std::fmt::Debug for Syncs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let topic: &Arc<str> = self.topic.name();
        f.debug_struct("Syncs").field("topic", topic).finish_non_exhaustive()
    }
}

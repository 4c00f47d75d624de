//! Which partitions a reign is about, where a consumer group gives them out.
//!
//! A start is decided from what the group has committed by then, and counts only as long as the partition is ours since the
//! same generation: between the question and the answer another member may have had it.

use std::sync::Arc;

use super::registry::Registry;
use super::task::{End, Flow};
use crate::client::{Error, GroupOffsets};
use crate::mirror::Partitioning;
use crate::mirror::member::{GroupOffsetStore, GroupReader, MemberSettings, MemberWatch, Partitionings};
use crate::mirror::partitioning::choose_all;
use crate::mirror::start::Phase;
use crate::mirror::state::{Held, PositionStore, TopicPartition};
use crate::mirror::topics::diff::Diff;
use tokio::sync::watch;

/// Our partitions.
#[derive(Debug)]
pub(super) struct Partitions {
    pub(super) group: Arc<str>,
    pub(super) watch: MemberWatch,
    pub(super) reader: Option<GroupReader>,
    /// Those that the registry knows of, with the generation in which they came.
    pub(super) known: Held,
    /// How records of topics find their partitions, once it is known what the group says.
    partitionings: watch::Sender<Partitionings>,
    are_known: bool,
}

impl Partitions {
    pub(super) fn new(group: Arc<str>, watch: MemberWatch) -> Partitions {
        let partitionings = watch::Sender::new(Partitionings::new());
        Partitions { group, watch, reader: None, known: Arc::default(), partitionings, are_known: false }
    }

    /// Whether it is known what was chosen for topics; `false` when the group cannot be asked now.
    pub(super) async fn knows_partitionings(&mut self, flow: &Flow) -> Result<bool, End> {
        if let Some(reader) = self.reader.as_ref().filter(|_| !self.are_known) {
            match reader.partitionings().await {
                Ok(chosen) => drop(self.partitionings.send_replace(chosen)),
                Err(error) if error.is_retriable() => {
                    tracing::warn!(target: "kmirror::control", flow = %flow.name(), error = %error.chain(), "the group's offsets cannot be read yet");
                    return Ok(false);
                }
                Err(error) => return Err(End::Failed(error.chain())),
            }
            self.are_known = true;
        }
        Ok(true)
    }

    /// How the records of a topic find their partitions.
    pub(super) fn partitioning(&self, topic: &str) -> Partitioning {
        self.partitionings.borrow().get(topic).copied().unwrap_or(Partitioning::Preserve)
    }

    /// Chooses for topics that are new, and refuses those for which a choice cannot be kept.
    pub(super) fn choose_partitionings(&mut self, diff: &mut Diff, group: Option<&MemberSettings>) {
        let wanted = group.map(|group| group.partitioning).unwrap_or_default();
        let choices = choose_all(diff, wanted, &self.partitionings.borrow());
        for (topic, choice) in choices.into_iter().filter(|(_, choice)| !choice.is_kept) {
            tracing::info!(target: "kmirror::control", topic = &*topic, "{choice}");
            self.partitionings.send_modify(|known| known.extend([(topic, choice.partitioning)]));
        }
    }

    /// The group's offsets as the memory of the flow.
    pub(super) fn open(&mut self, flow: &Flow) -> (PositionStore, GroupOffsetStore) {
        let chosen = self.partitionings.subscribe();
        let (store, reader, owner) =
            GroupOffsetStore::new(&flow.source, &self.group, self.watch.clone(), chosen);
        self.reader = Some(reader);
        (store, owner)
    }

    /// Leaves in the registry what is ours: what came since the last time needs a start, what is not ours needs none.
    /// Answers with what came: all that was known of it may have been overtaken.
    pub(super) fn mark(&mut self, registry: &mut Registry) -> Vec<TopicPartition> {
        let owned = self.watch.look().owned;
        let is_new = |(at, since): &(&TopicPartition, &i32)| self.known.get(*at) != Some(*since);
        let came: Vec<_> = owned.iter().filter(is_new).map(|(at, _)| at.clone()).collect();
        for at in &came {
            registry.restart(at);
        }
        registry.keep_unstarted(|at| owned.contains_key(at));
        self.known = owned;
        came
    }

    /// Takes the group's offsets of partitions into the store.
    pub(super) async fn recall(
        &self,
        store: &PositionStore,
        partitions: &[TopicPartition],
    ) -> Result<GroupOffsets, Error> {
        match &self.reader {
            Some(reader) => reader.recall(store, partitions).await,
            None => Ok(GroupOffsets::new()),
        }
    }

    /// The generation in which a partition came, if it is ours as it was when [`Partitions::mark`] looked.
    pub(super) fn since(&self, at: &TopicPartition) -> Option<i32> {
        self.known.get(at).copied().filter(|&since| self.watch.owns(at, since))
    }

    /// Where a partition begins that the group has committed nothing for. In a topic of which it has, the partition is
    /// younger: as with MirrorMaker 2 its first records are not left out.
    pub(super) fn phase(at: &TopicPartition, committed: &GroupOffsets) -> Phase {
        match committed.keys().any(|(topic, _)| *topic == at.topic) {
            true => Phase::Later,
            false => Phase::FirstStart,
        }
    }
}

/// Ends when a group gives or takes partitions.
pub(super) async fn partitions_change(partitions: &mut Option<Partitions>) {
    match partitions {
        Some(partitions) => partitions.watch.changed().await,
        None => std::future::pending().await,
    }
}

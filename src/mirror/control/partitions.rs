//! Which partitions a reign is about, where a consumer group gives them out.
//!
//! A start is decided from what the group has committed by then, and is told only as long as the partition is ours since the
//! same generation: between the question and the answer another member may have had it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::registry::Registry;
use super::task::Flow;
use crate::client::{Error, GroupOffsets};
use crate::mirror::member::{GroupOffsetStore, GroupReader, MemberWatch};
use crate::mirror::start::Phase;
use crate::mirror::state::{PositionStore, TopicPartition};

/// Our partitions.
#[derive(Debug)]
pub(super) struct Partitions {
    pub(super) group: Arc<str>,
    pub(super) watch: MemberWatch,
    pub(super) reader: Option<GroupReader>,
    /// Those that the registry knows of, with the generation in which they came.
    pub(super) known: Arc<BTreeMap<TopicPartition, i32>>,
}

impl Partitions {
    /// The group's offsets as the memory of the flow.
    pub(super) fn open(&mut self, flow: &Flow) -> (PositionStore, GroupOffsetStore) {
        let (store, reader, owner) = GroupOffsetStore::new(&flow.source, &self.group, self.watch.clone());
        self.reader = Some(reader);
        (store, owner)
    }

    /// Leaves in the registry what is ours: what came since the last time needs a start, what is not ours needs none.
    pub(super) fn mark(&mut self, registry: &mut Registry) {
        let owned = self.watch.look().owned;
        for (at, since) in owned.iter() {
            if self.known.get(at) != Some(since) {
                registry.restart(at);
            }
        }
        registry.keep_unstarted(|at| owned.contains_key(at));
        self.known = owned;
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

    /// Whether a partition is ours as it was when [`Partitions::mark`] looked.
    pub(super) fn is_still(&self, at: &TopicPartition) -> bool {
        self.known.get(at).is_some_and(|&since| self.watch.owns(at, since))
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

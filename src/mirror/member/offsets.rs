//! The position store of a member: positions are the group's committed offsets, and nothing is written to the target.
//!
//! One task commits one save after the other, always as whoever we are in the group by then and only what we may commit by
//! then, for partitions that have been ours without a break since what is saved was true: a save that comes too late commits
//! nothing, or it could take an offset back that another member has moved on. What the group has no room for (gaps, offset maps) is remembered until the process ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::holder::MemberWatch;
use crate::client::{Cluster, CommittedOffset, Error, ErrorCode, GroupOffsets};
use crate::mirror::Partitioning;
use crate::mirror::state::records::{Position, StateRecord};
use crate::mirror::state::{Held, PositionStore, Remembered, Save, StoreError, TopicPartition};
use uuid::Uuid;

/// How often a commit is tried before it waits for the next save.
const TRIES_MAX: u32 = 10;

/// The offsets of a group, as a flow's memory.
#[derive(Debug)]
pub(in crate::mirror) struct GroupOffsetStore {
    source: Cluster,
    group: Arc<str>,
    member: MemberWatch,
    partitionings: watch::Receiver<Partitionings>,
    store: PositionStore,
    inbox: mpsc::Receiver<Save>,
}

/// What was chosen for topics.
pub(in crate::mirror) type Partitionings = BTreeMap<Arc<str>, Partitioning>;

/// What is known of the offsets of a group, for whoever decides where partitions start.
#[derive(Clone, Debug)]
pub(in crate::mirror) struct GroupReader {
    source: Cluster,
    group: Arc<str>,
}

impl GroupReader {
    /// Of this group.
    pub(in crate::mirror) fn new(source: &Cluster, group: &Arc<str>) -> GroupReader {
        GroupReader { source: source.clone(), group: group.clone() }
    }

    /// What was chosen for the topics that the group has offsets of.
    ///
    /// # Errors
    /// When the group's coordinator cannot be asked.
    pub(in crate::mirror) async fn partitionings(&self) -> Result<Partitionings, Error> {
        let group = self.group.clone();
        let mut answers = self.source.fetch_group_offsets(std::slice::from_ref(&group)).await;
        let offsets = answers.remove(&group).unwrap_or_else(|| Ok(GroupOffsets::new()))?;
        let chosen = offsets.into_iter().filter_map(|((topic, _), committed)| {
            Some((topic, Partitioning::from_metadata(&committed.metadata)?))
        });
        Ok(chosen.collect())
    }

    /// Takes what the group has committed for `partitions` into `store`; tells of which topics it has committed anything.
    ///
    /// # Errors
    /// When the group's coordinator cannot be asked.
    pub(in crate::mirror) async fn recall(
        &self,
        store: &PositionStore,
        partitions: &[TopicPartition],
    ) -> Result<GroupOffsets, Error> {
        let group = self.group.clone();
        let mut answers = self.source.fetch_group_offsets(std::slice::from_ref(&group)).await;
        let offsets = answers.remove(&group).unwrap_or_else(|| Ok(GroupOffsets::new()))?;
        for at in partitions {
            let committed = offsets.get(&(at.topic.clone(), at.partition));
            store.recall(at, committed.map(|committed| committed.offset), position);
        }
        Ok(offsets)
    }
}

/// A position of which only the source offset is known.
fn position(upstream: i64) -> Position {
    Position {
        source_topic_id: Uuid::nil(),
        target_topic_id: Uuid::nil(),
        upstream,
        downstream: -1,
        leader_epoch: -1,
        producer_id: -1,
        producer_epoch: -1,
        at_ms: 0,
    }
}

impl GroupOffsetStore {
    /// The store of a member, with nothing in it.
    pub(in crate::mirror) fn new(
        source: &Cluster,
        group: &Arc<str>,
        member: MemberWatch,
        partitionings: watch::Receiver<Partitionings>,
    ) -> (PositionStore, GroupReader, GroupOffsetStore) {
        let (store, inbox) = PositionStore::of(Remembered::default());
        let reader = GroupReader::new(source, group);
        let owner = GroupOffsetStore {
            source: source.clone(),
            group: group.clone(),
            member,
            partitionings,
            store: store.clone(),
            inbox,
        };
        (store, reader, owner)
    }

    /// Commits what comes, until it is dropped.
    pub(in crate::mirror) async fn run(mut self) {
        while let Some(Save { records, held, done }) = self.inbox.recv().await {
            let outcome = self.save(&records, &held).await;
            // Whoever gave up waiting has no use for the answer.
            let _ = done.send(outcome);
        }
    }

    async fn save(&self, records: &[StateRecord], held: &Held) -> Result<(), StoreError> {
        let mut wanted = BTreeMap::new();
        for record in records {
            match record {
                StateRecord::Position(at, position) => drop(wanted.insert(at.clone(), position.upstream)),
                StateRecord::Baseline(at, baseline) => drop(wanted.insert(at.clone(), baseline.upstream)),
                _ => {}
            }
        }
        self.commit(wanted, held).await?;
        records.iter().for_each(|record| self.store.remember(record.clone()));
        Ok(())
    }

    fn committed(&self, at: &TopicPartition, offset: i64) -> ((Arc<str>, i32), CommittedOffset) {
        let partitioning = self.partitionings.borrow().get(&at.topic).copied();
        let metadata = partitioning.map_or_else(String::new, Partitioning::to_metadata);
        ((at.topic.clone(), at.partition), CommittedOffset { offset, metadata: Arc::from(metadata) })
    }

    async fn commit(&self, wanted: BTreeMap<TopicPartition, i64>, held: &Held) -> Result<(), StoreError> {
        let mut last = "no member of the group now".to_owned();
        for tries in 0..TRIES_MAX {
            let state = self.member.state();
            let is_ours = |at| state.may_commit.get(at).is_some_and(|since| held.get(at) == Some(since));
            let mine = wanted.iter().filter(|(at, _)| is_ours(*at));
            let offsets: GroupOffsets = mine.map(|(at, &offset)| self.committed(at, offset)).collect();
            if offsets.is_empty() {
                return Ok(());
            }
            if let Some(identity) = &state.identity {
                match self.source.commit_as_member(&self.group, identity, &offsets).await {
                    Ok(each) => match each.into_values().find_map(|result| refusal(result.err()?)) {
                        None => return Ok(()),
                        Some(error) if passes(&error) => last = error.chain(),
                        Some(error) => return Err(StoreError::Refused { reason: error.chain() }),
                    },
                    Err(error) if error.is_retriable() => last = error.chain(),
                    Err(error) => return Err(StoreError::Refused { reason: error.chain() }),
                }
            }
            let backoff = self.source.settings().retry_backoff;
            sleep(backoff.delay(tries, self.source.seam().random())).await;
        }
        Err(StoreError::Later { reason: last })
    }
}

/// The offset of a topic that is gone has no place to go, and nobody misses it.
fn refusal(error: Error) -> Option<Error> {
    (error.code() != Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)).then_some(error)
}

/// Whether a later commit can do better: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS and FENCED_INSTANCE_ID
/// end with the rebalance.
fn passes(error: &Error) -> bool {
    let of_a_rebalance = [
        ErrorCode::STALE_MEMBER_EPOCH,
        ErrorCode::FENCED_MEMBER_EPOCH,
        ErrorCode::ILLEGAL_GENERATION,
        ErrorCode::UNKNOWN_MEMBER_ID,
        ErrorCode::REBALANCE_IN_PROGRESS,
        ErrorCode::FENCED_INSTANCE_ID,
    ];
    error.is_retriable() || error.code().is_some_and(|code| of_a_rebalance.contains(&code))
}

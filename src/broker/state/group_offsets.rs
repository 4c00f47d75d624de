//! Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    GroupId, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    OffsetFetchRequest, OffsetFetchResponse, TopicName, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::group::{Group, Phase};
use super::group_api::Groups;
use super::{ClusterState, Handled};
use crate::broker::log::TransactionResult;
use crate::broker::wire::Request;

/// `offset.metadata.max.bytes`.
const METADATA_BYTES_MAX: usize = 4_096;

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Committed {
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
    pub(super) metadata: StrBytes,
}

type ByPartition = BTreeMap<(String, i32), Committed>;

/// The offsets of one group.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    committed: ByPartition,
    /// Of open transactions, by producer id.
    pending: BTreeMap<i64, ByPartition>,
}

impl Offsets {
    fn is_unstable(&self, place: &(String, i32)) -> bool {
        self.pending.values().any(|pending| pending.contains_key(place))
    }

    fn forget_topic(&mut self, name: &str) {
        self.committed.retain(|(topic, _), _| topic != name);
        self.pending.values_mut().for_each(|pending| pending.retain(|(topic, _), _| topic != name));
    }
}

impl Groups {
    /// Forgets what was committed for a topic that is no more.
    pub(super) fn forget_topic(&mut self, name: &str) {
        self.iter_mut().for_each(|(_, group)| group.offsets.forget_topic(name));
    }

    /// Commits or drops the offsets that a transaction holds in a group.
    pub(super) fn end_transaction(&mut self, group: &str, producer_id: i64, result: TransactionResult) {
        let Some(group) = self.get_mut(group) else { return };
        let pending = group.offsets.pending.remove(&producer_id).unwrap_or_default();
        if result == TransactionResult::Commit {
            group.offsets.committed.extend(pending);
        }
    }
}

/// One partition's offset as a request brings it.
struct Commit<'a> {
    topic: &'a str,
    partition: i32,
    committed: Committed,
}

fn commit<'a>(
    topic: &'a str,
    partition: i32,
    offset: i64,
    epoch: i32,
    metadata: Option<&StrBytes>,
) -> Commit<'a> {
    let metadata = metadata.cloned().unwrap_or_default();
    Commit { topic, partition, committed: Committed { offset, leader_epoch: epoch, metadata } }
}

impl ClusterState {
    pub(super) fn handle_offset_commit(&mut self, request: &Request, now_ms: i64) -> Handled {
        let body: OffsetCommitRequest = request.decode()?;
        let checked = self.check_commit(request, &body, now_ms);
        let topics = body.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let epoch = asked.committed_leader_epoch;
                let metadata = asked.committed_metadata.as_ref();
                let commit =
                    commit(&topic.name, asked.partition_index, asked.committed_offset, epoch, metadata);
                let code = checked.map_or_else(|code| code, |()| self.commit(&body.group_id, None, commit));
                OffsetCommitResponsePartition::default()
                    .with_partition_index(asked.partition_index)
                    .with_error_code(code)
            });
            let partitions = partitions.collect();
            OffsetCommitResponseTopic::default().with_name(topic.name.clone()).with_partitions(partitions)
        });
        let reply = OffsetCommitResponse::default().with_topics(topics.collect());
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    fn check_commit(
        &mut self,
        request: &Request,
        body: &OffsetCommitRequest,
        now_ms: i64,
    ) -> Result<(), i16> {
        request.refuse_with.map_or(Ok(()), Err)?;
        self.check_coordinator(request, &body.group_id)?;
        let generation = body.generation_id_or_member_epoch;
        if self.groups.get(&body.group_id).is_none() && generation >= 0 {
            return Err(ResponseError::IllegalGeneration.code());
        }
        let group = self.groups.get_or_create(&body.group_id);
        let instance = body.group_instance_id.as_ref();
        check_generation(group, generation, &body.member_id, instance).map_err(|error| error.code())?;
        group.touch(&body.member_id, now_ms);
        match group.phase {
            Phase::Completing { .. } if generation >= 0 => Err(ResponseError::RebalanceInProgress.code()),
            _ => Ok(()),
        }
    }

    /// Keeps an offset: at once, or for the transaction of `producer_id`. Gives the error code of its partition.
    fn commit(&mut self, group: &str, producer_id: Option<i64>, commit: Commit<'_>) -> i16 {
        if self.topics.partition(commit.topic, commit.partition).is_none() {
            return ResponseError::UnknownTopicOrPartition.code();
        }
        if commit.committed.metadata.len() > METADATA_BYTES_MAX {
            return ResponseError::OffsetMetadataTooLarge.code();
        }
        let offsets = &mut self.groups.get_or_create(group).offsets;
        let place = (commit.topic.to_owned(), commit.partition);
        match producer_id {
            None => offsets.committed.insert(place, commit.committed),
            Some(id) => offsets.pending.entry(id).or_default().insert(place, commit.committed),
        };
        0
    }

    pub(super) fn handle_txn_offset_commit(&mut self, request: &Request, now_ms: i64) -> Handled {
        let body: TxnOffsetCommitRequest = request.decode()?;
        let checked = self.check_txn_commit(request, &body, now_ms);
        let topics = body.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let epoch = asked.committed_leader_epoch;
                let metadata = asked.committed_metadata.as_ref();
                let commit =
                    commit(&topic.name, asked.partition_index, asked.committed_offset, epoch, metadata);
                let code = checked.map_or_else(
                    |code| code,
                    |()| self.commit(&body.group_id, Some(body.producer_id.0), commit),
                );
                TxnOffsetCommitResponsePartition::default()
                    .with_partition_index(asked.partition_index)
                    .with_error_code(code)
            });
            let partitions = partitions.collect();
            TxnOffsetCommitResponseTopic::default().with_name(topic.name.clone()).with_partitions(partitions)
        });
        let reply = TxnOffsetCommitResponse::default().with_topics(topics.collect());
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    fn check_txn_commit(
        &mut self,
        request: &Request,
        body: &TxnOffsetCommitRequest,
        now_ms: i64,
    ) -> Result<(), i16> {
        request.refuse_with.map_or(Ok(()), Err)?;
        self.check_coordinator(request, &body.group_id)?;
        let producer = (body.producer_id.0, body.producer_epoch);
        if request.version >= 5 {
            // The offsets add their group to the transaction themselves (KIP-890).
            let added = self.transactions.add_group(&body.transactional_id, producer, &body.group_id, now_ms);
            added.map_err(|error| error.code())?;
        }
        let transaction = self.transactions.get(&body.transactional_id);
        let transaction = transaction.ok_or(ResponseError::InvalidProducerIdMapping.code())?;
        transaction.check(producer).map_err(|_| ResponseError::InvalidProducerEpoch.code())?;
        if !transaction.groups.contains(body.group_id.as_str()) {
            return Err(ResponseError::InvalidTxnState.code());
        }
        let group = self.groups.get_or_create(&body.group_id);
        if body.generation_id < 0 && body.member_id.is_empty() {
            return Ok(());
        }
        check_generation(group, body.generation_id, &body.member_id, body.group_instance_id.as_ref())
            .map_err(|error| error.code())
    }

    pub(super) fn handle_offset_fetch(&mut self, request: &Request) -> Handled {
        let body: OffsetFetchRequest = request.decode()?;
        let reply = OffsetFetchResponse::default().with_throttle_time_ms(self.settings.throttle_ms);
        if request.version >= 8 {
            let groups = body.groups.iter().map(|asked| {
                let topics = asked.topics.as_ref().map(|topics| {
                    topics.iter().map(|topic| (&topic.name, &topic.partition_indexes[..])).collect::<Vec<_>>()
                });
                let group = OffsetFetchResponseGroup::default().with_group_id(asked.group_id.clone());
                match self.fetch_offsets(request, &asked.group_id, topics, body.require_stable) {
                    Ok(topics) => group.with_topics(topics),
                    Err(code) => group.with_error_code(code),
                }
            });
            let groups = groups.collect();
            return Ok(request.reply(&reply.with_groups(groups)));
        }
        let topics = body.topics.as_ref().map(|topics| {
            topics.iter().map(|topic| (&topic.name, &topic.partition_indexes[..])).collect::<Vec<_>>()
        });
        let reply = match self.fetch_offsets(request, &body.group_id, topics, body.require_stable) {
            Ok(topics) => reply.with_topics(topics.into_iter().map(old_topic).collect()),
            Err(code) => reply.with_error_code(code),
        };
        Ok(request.reply(&reply))
    }

    fn fetch_offsets(
        &self,
        request: &Request,
        group: &str,
        topics: Option<Vec<(&TopicName, &[i32])>>,
        require_stable: bool,
    ) -> Result<Vec<OffsetFetchResponseTopics>, i16> {
        request.refuse_with.map_or(Ok(()), Err)?;
        self.check_coordinator(request, group)?;
        let offsets = self.groups.get(group).map(|group| &group.offsets);
        let all = || {
            let mut all: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
            for (topic, partition) in offsets.iter().flat_map(|offsets| offsets.committed.keys()) {
                all.entry(topic).or_default().push(*partition);
            }
            all.into_iter()
                .map(|(name, at)| (TopicName(StrBytes::from_string(name.to_owned())), at))
                .collect()
        };
        let asked: Vec<(TopicName, Vec<i32>)> = match topics {
            Some(topics) => topics.into_iter().map(|(name, at)| (name.clone(), at.to_vec())).collect(),
            None => all(),
        };
        let found = asked.into_iter().map(|(name, partitions)| {
            let partitions = partitions.iter().map(|&index| {
                let place = (name.to_string(), index);
                let found = offsets.and_then(|offsets| offsets.committed.get(&place));
                let unstable = require_stable && offsets.is_some_and(|offsets| offsets.is_unstable(&place));
                fetched(index, found, unstable)
            });
            OffsetFetchResponseTopics::default().with_partitions(partitions.collect()).with_name(name)
        });
        Ok(found.collect())
    }

    pub(super) fn handle_offset_delete(&mut self, request: &Request) -> Handled {
        let body: OffsetDeleteRequest = request.decode()?;
        let reply = OffsetDeleteResponse::default().with_throttle_time_ms(self.settings.throttle_ms);
        let checked = request.refuse_with.map_or(Ok(()), Err).and_then(|()| {
            self.check_coordinator(request, &body.group_id)?;
            self.groups.get_mut(&body.group_id).ok_or(ResponseError::GroupIdNotFound.code())
        });
        let group = match checked {
            Ok(group) => group,
            Err(code) => return Ok(request.reply(&reply.with_error_code(code))),
        };
        // Which topics the members read stands in metadata that only consumers understand: with members, none may go.
        let code = if group.members.is_empty() { 0 } else { ResponseError::GroupSubscribedToTopic.code() };
        let mut topics = Vec::with_capacity(body.topics.len());
        for topic in &body.topics {
            let delete = |index: i32| {
                if code == 0 {
                    group.offsets.committed.remove(&(topic.name.to_string(), index));
                }
                OffsetDeleteResponsePartition::default().with_partition_index(index).with_error_code(code)
            };
            let partitions = topic.partitions.iter().map(|asked| asked.partition_index).map(delete).collect();
            topics.push(
                OffsetDeleteResponseTopic::default()
                    .with_name(topic.name.clone())
                    .with_partitions(partitions),
            );
        }
        Ok(request.reply(&reply.with_topics(topics)))
    }

    /// What a group has committed: topic, partition, offset, metadata.
    pub fn committed(&self, group: &str) -> Vec<(String, i32, i64, String)> {
        let group = self.groups.get(group);
        let all = group.iter().flat_map(|group| &group.offsets.committed);
        all.map(|((topic, partition), at)| (topic.clone(), *partition, at.offset, at.metadata.to_string()))
            .collect()
    }
}

/// Whether a commit comes from the group as it is now (`validateOffsetCommit`).
fn check_generation(
    group: &Group,
    generation: i32,
    member_id: &StrBytes,
    instance: Option<&StrBytes>,
) -> Result<(), ResponseError> {
    if generation < 0 && group.members.is_empty() {
        return Ok(());
    }
    if generation >= 0 || !member_id.is_empty() || instance.is_some() {
        group.check_member(member_id, instance)?;
    } else {
        // Somebody without a group commits while the group has members.
        return Err(ResponseError::UnknownMemberId);
    }
    if generation == group.generation { Ok(()) } else { Err(ResponseError::IllegalGeneration) }
}

fn fetched(index: i32, found: Option<&Committed>, unstable: bool) -> OffsetFetchResponsePartitions {
    let partition = OffsetFetchResponsePartitions::default()
        .with_partition_index(index)
        .with_committed_offset(-1)
        .with_committed_leader_epoch(-1)
        .with_metadata(Some(StrBytes::default()));
    match found {
        _ if unstable => partition.with_error_code(ResponseError::UnstableOffsetCommit.code()),
        Some(found) => partition
            .with_committed_offset(found.offset)
            .with_committed_leader_epoch(found.leader_epoch)
            .with_metadata(Some(found.metadata.clone())),
        None => partition,
    }
}

fn old_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic {
    let old_partition = |partition: OffsetFetchResponsePartitions| {
        OffsetFetchResponsePartition::default()
            .with_partition_index(partition.partition_index)
            .with_committed_offset(partition.committed_offset)
            .with_committed_leader_epoch(partition.committed_leader_epoch)
            .with_metadata(partition.metadata)
            .with_error_code(partition.error_code)
    };
    OffsetFetchResponseTopic::default()
        .with_name(topic.name)
        .with_partitions(topic.partitions.into_iter().map(old_partition).collect())
}

/// The name of a group as the codecs write it.
pub(super) fn group_id(name: &str) -> GroupId {
    GroupId(StrBytes::from_string(name.to_owned()))
}

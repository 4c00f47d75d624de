//! Offsets that groups have committed: read for many groups at once, written for one.
//!
//! From version 8 on one OffsetFetch asks a coordinator for many groups (KIP-709); older brokers are asked group by group.
//! Version 10 speaks of topics by id and is not used. What a coordinator cannot answer now is asked again a few times; a
//! commit is tried once, because a repeated one could overwrite what has been committed in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::{
    ApiKey, FindCoordinatorRequest, GroupId, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest,
    OffsetFetchResponse,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::sleep;

use super::super::api::Api;
use super::super::cluster::{
    Cluster, CoordinatorKind, Node, coordinators, find_coordinator, string, topic_name,
};
use super::super::code::ErrorCode;
use super::super::error::{Error, Subject};
use super::{Each, TopicPartition};
use crate::net;

/// Groups in one request; each may have committed for thousands of partitions.
const GROUPS_MAX: usize = 25;
/// Keys in one lookup of coordinators.
const LOOKUPS_MAX: usize = 200;
/// How often groups are asked for whose coordinator cannot answer.
const TRIES_MAX: u32 = 4;

/// An offset that a group has committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset to read; never negative.
    pub offset: i64,
    /// What the group stored with it.
    pub metadata: Arc<str>,
}

/// Who commits: a member of a generation of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupIdentity {
    /// The generation, or the member's epoch.
    pub generation: i32,
    /// The member id.
    pub member_id: Arc<str>,
    /// `group.instance.id`.
    pub group_instance_id: Option<Arc<str>>,
}

/// Everything that a group has committed. A partition whose offset was taken back (-1) is not among it.
pub type GroupOffsets = BTreeMap<TopicPartition, CommittedOffset>;

impl Cluster {
    /// The coordinators of groups.
    pub async fn group_coordinators(&self, groups: &[Arc<str>]) -> Each<Arc<str>, i32> {
        let mut each = BTreeMap::new();
        for groups in groups.chunks(LOOKUPS_MAX) {
            each.extend(self.some_coordinators(groups).await);
        }
        each
    }

    async fn some_coordinators(&self, groups: &[Arc<str>]) -> Each<Arc<str>, i32> {
        let build = |version| find_coordinator(version, CoordinatorKind::Group, groups.iter().cloned());
        let subject = match groups {
            [one] => Subject::Group(one.clone()),
            _ => Subject::Cluster,
        };
        let answer = match self.call_with::<FindCoordinatorRequest>(Node::Any, subject, build).await {
            Ok(answer) => answer,
            Err(error) => return groups.iter().map(|group| (group.clone(), Err(error.clone()))).collect(),
        };
        let mut each = BTreeMap::new();
        if answer.version < 4 {
            for group in groups {
                each.insert(group.clone(), self.find_coordinator(CoordinatorKind::Group, group).await);
            }
            return each;
        }
        let found: BTreeMap<&str, (i32, ErrorCode)> =
            coordinators(&answer.response).map(|(key, id, code)| (key, (id, code))).collect();
        for group in groups {
            let subject = Subject::Group(group.clone());
            let broker = answer.broker.clone();
            let result = match found.get(&**group) {
                Some(&(id, ErrorCode::NONE)) if id >= 0 => Ok(id),
                Some(&(_, code)) if code != ErrorCode::NONE => {
                    Err(self.refused::<FindCoordinatorRequest>(broker, subject, code, None))
                }
                _ => Err(self.left_out(ApiKey::FindCoordinator, broker, subject)),
            };
            each.insert(group.clone(), result);
        }
        each
    }

    /// What groups have committed. A group that does not exist has committed nothing.
    pub async fn fetch_group_offsets(&self, groups: &[Arc<str>]) -> Each<Arc<str>, GroupOffsets> {
        let mut each = BTreeMap::new();
        let mut pending = groups.to_vec();
        for tries in 0..TRIES_MAX {
            let mut again = Vec::new();
            for (group, result) in self.fetch_once_each(&pending).await {
                if matches!(&result, Err(error) if error.is_retriable()) {
                    again.push(group.clone());
                }
                each.insert(group, result);
            }
            if again.is_empty() {
                break;
            }
            pending = again;
            if tries + 1 < TRIES_MAX {
                sleep(self.settings().retry_backoff.delay(tries, self.seam().random())).await;
            }
        }
        each
    }

    /// Asks all coordinators at once, each for its groups.
    async fn fetch_once_each(&self, groups: &[Arc<str>]) -> Each<Arc<str>, GroupOffsets> {
        let mut each = BTreeMap::new();
        let mut by_broker: BTreeMap<i32, Vec<Arc<str>>> = BTreeMap::new();
        for (group, coordinator) in self.group_coordinators(groups).await {
            match coordinator {
                Ok(broker) => by_broker.entry(broker).or_default().push(group),
                Err(error) => {
                    each.insert(group, Err(error));
                }
            }
        }
        let asked: Vec<_> = by_broker
            .into_iter()
            .map(|(broker, groups)| {
                let cluster = self.clone();
                let asked = groups.clone();
                (groups, self.seam().spawn(async move { cluster.fetch_at(broker, &asked).await }))
            })
            .collect();
        for (groups, answer) in asked {
            let closed = Error::Closed { cluster: self.alias().clone() };
            match answer.await.unwrap_or(Err(closed)) {
                Ok(found) => each.extend(found),
                Err(error) => each.extend(groups.into_iter().map(|group| (group, Err(error.clone())))),
            }
        }
        each
    }

    async fn fetch_at(
        &self,
        broker: i32,
        groups: &[Arc<str>],
    ) -> Result<Each<Arc<str>, GroupOffsets>, Error> {
        let connection = self.connection(&Node::Broker(broker)).await?;
        let version = net::negotiate::<OffsetFetchRequest>(connection.versions(), OffsetFetchRequest::OURS)
            .map_err(|source| self.connection_error(source))?;
        let mut each = BTreeMap::new();
        for groups in groups.chunks(if version >= 8 { GROUPS_MAX } else { 1 }) {
            let subject = match groups {
                [one] => Subject::Group(one.clone()),
                _ => Subject::Cluster,
            };
            let build = |version| fetch_request(version, groups);
            let answer = match self.ask::<OffsetFetchRequest>(&connection, &subject, &build).await {
                Ok(answer) => answer,
                Err(error) => {
                    each.extend(groups.iter().map(|group| (group.clone(), Err(error.clone()))));
                    continue;
                }
            };
            let found = if version >= 8 {
                fetched_groups(&answer.response)
            } else {
                groups.iter().map(|group| (&**group, fetched_one(&answer.response))).collect()
            };
            for group in groups {
                let subject = Subject::Group(group.clone());
                let broker = answer.broker.clone();
                let result = match found.get(&**group) {
                    Some(Ok(offsets)) => Ok(offsets.clone()),
                    Some(&Err(code)) => Err(self.refused::<OffsetFetchRequest>(broker, subject, code, None)),
                    None => Err(self.left_out(ApiKey::OffsetFetch, broker, subject)),
                };
                each.insert(group.clone(), result);
            }
        }
        Ok(each)
    }

    /// Commits offsets for a group without members, as an administrator does (no member, no generation), once and without
    /// leader epochs: those of another cluster mean nothing here. A group that does not exist is made.
    ///
    /// # Errors
    /// When the coordinator cannot be asked. What it refuses (UNKNOWN_MEMBER_ID for a group with members) is the result of
    /// each partition.
    pub async fn commit_group_offsets(
        &self,
        group: &Arc<str>,
        offsets: &GroupOffsets,
    ) -> Result<Each<TopicPartition, ()>, Error> {
        self.commit(group, None, offsets).await
    }

    /// Commits offsets as a member, once. What the coordinator refuses (ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS) is the
    /// result of each partition.
    ///
    /// # Errors
    /// When the coordinator cannot be asked.
    pub async fn commit_as_member(
        &self,
        group: &Arc<str>,
        member: &GroupIdentity,
        offsets: &GroupOffsets,
    ) -> Result<Each<TopicPartition, ()>, Error> {
        self.commit(group, Some(member), offsets).await
    }

    async fn commit(
        &self,
        group: &Arc<str>,
        member: Option<&GroupIdentity>,
        offsets: &GroupOffsets,
    ) -> Result<Each<TopicPartition, ()>, Error> {
        let node = Node::Coordinator(CoordinatorKind::Group, group.clone());
        let connection = self.connection(&node).await?;
        let subject = Subject::Group(group.clone());
        let build = |version| commit_request(version, group, member, offsets);
        let answer = self.ask::<OffsetCommitRequest>(&connection, &subject, &build).await?;
        let codes = committed(&answer.response);
        let result = |(topic, partition): &TopicPartition| {
            let subject = Subject::Partition(topic.clone(), *partition);
            match codes.get(&(&**topic, *partition)) {
                Some(&ErrorCode::NONE) => Ok(()),
                Some(&code) => {
                    Err(self.refused::<OffsetCommitRequest>(answer.broker.clone(), subject, code, None))
                }
                None => Err(self.left_out(ApiKey::OffsetCommit, answer.broker.clone(), subject)),
            }
        };
        Ok(offsets.keys().map(|key| (key.clone(), result(key))).collect())
    }

    fn left_out(&self, api: ApiKey, broker: net::BrokerAddress, subject: Subject) -> Error {
        Error::LeftOut { cluster: self.alias().clone(), broker: Box::new(broker), api, subject }
    }
}

fn fetch_request(version: i16, groups: &[Arc<str>]) -> OffsetFetchRequest {
    let request = OffsetFetchRequest::default();
    if version < 8 {
        let group = groups.first().map(|group| GroupId(string(group))).unwrap_or_default();
        return request.with_group_id(group).with_topics(None);
    }
    let asked = groups.iter().map(|group| {
        OffsetFetchRequestGroup::default()
            .with_group_id(GroupId(string(group)))
            .with_member_id(None)
            .with_member_epoch(-1)
            .with_topics(None)
    });
    request.with_groups(asked.collect())
}

type Fetched = Result<GroupOffsets, ErrorCode>;

fn fetched_groups(response: &OffsetFetchResponse) -> BTreeMap<&str, Fetched> {
    let of = |group: &kafka_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup| {
        let code = ErrorCode(group.error_code);
        if code != ErrorCode::NONE {
            return absent(code);
        }
        let mut offsets = GroupOffsets::new();
        for topic in &group.topics {
            let name: Arc<str> = Arc::from(topic.name.0.as_str());
            for part in &topic.partitions {
                note(
                    &mut offsets,
                    &name,
                    part.partition_index,
                    part.committed_offset,
                    part.metadata.as_ref(),
                );
            }
        }
        Ok(offsets)
    };
    response.groups.iter().map(|group| (group.group_id.0.as_str(), of(group))).collect()
}

fn fetched_one(response: &OffsetFetchResponse) -> Fetched {
    let code = ErrorCode(response.error_code);
    if code != ErrorCode::NONE {
        return absent(code);
    }
    let mut offsets = GroupOffsets::new();
    for topic in &response.topics {
        let name: Arc<str> = Arc::from(topic.name.0.as_str());
        for part in &topic.partitions {
            note(&mut offsets, &name, part.partition_index, part.committed_offset, part.metadata.as_ref());
        }
    }
    Ok(offsets)
}

fn absent(code: ErrorCode) -> Fetched {
    if code == ErrorCode::GROUP_ID_NOT_FOUND { Ok(GroupOffsets::new()) } else { Err(code) }
}

fn note(
    offsets: &mut GroupOffsets,
    topic: &Arc<str>,
    partition: i32,
    offset: i64,
    metadata: Option<&StrBytes>,
) {
    if offset >= 0 {
        let metadata = Arc::from(metadata.map_or("", |metadata| metadata.as_str()));
        offsets.insert((topic.clone(), partition), CommittedOffset { offset, metadata });
    }
}

fn commit_request(
    version: i16,
    group: &Arc<str>,
    member: Option<&GroupIdentity>,
    offsets: &GroupOffsets,
) -> OffsetCommitRequest {
    let mut topics: BTreeMap<&Arc<str>, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
    for ((topic, partition), committed) in offsets {
        let part = OffsetCommitRequestPartition::default()
            .with_partition_index(*partition)
            .with_committed_offset(committed.offset)
            .with_committed_metadata(Some(string(&committed.metadata)));
        let part = if version >= 6 { part.with_committed_leader_epoch(-1) } else { part };
        topics.entry(topic).or_default().push(part);
    }
    let topics = topics.into_iter().map(|(topic, partitions)| {
        OffsetCommitRequestTopic::default().with_name(topic_name(topic)).with_partitions(partitions)
    });
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(string(group)))
        .with_generation_id_or_member_epoch(member.map_or(-1, |member| member.generation))
        .with_topics(topics.collect());
    let Some(member) = member else { return request };
    let request = request.with_member_id(string(&member.member_id));
    match version {
        7.. => request.with_group_instance_id(member.group_instance_id.as_ref().map(string)),
        _ => request,
    }
}

fn committed(response: &OffsetCommitResponse) -> BTreeMap<(&str, i32), ErrorCode> {
    let parts = response.topics.iter().flat_map(|topic| {
        topic
            .partitions
            .iter()
            .map(|part| ((topic.name.0.as_str(), part.partition_index), ErrorCode(part.error_code)))
    });
    parts.collect()
}

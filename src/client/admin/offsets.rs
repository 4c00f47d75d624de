//! What the leaders know of offsets: earliest, latest, by time; ends of leader epochs; producers; deletion up to an offset.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::delete_records_response::DeleteRecordsTopicResult;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_producers_response::{
    ProducerState as WireProducerState, TopicResponse,
};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::ListOffsetsTopicResponse;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::OffsetForLeaderTopicResult;
use kafka_protocol::messages::{
    BrokerId, DeleteRecordsRequest, DeleteRecordsResponse, DescribeProducersRequest,
    DescribeProducersResponse, ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse, TopicName,
};

use super::super::api::words;
use super::super::cluster::{Cluster, topic_name};
use super::super::code::ErrorCode;
use super::super::settings::IsolationLevel;
use super::leaders::{Part, Wanted, by_topic};
use super::{Each, TopicPartition};

/// Which offset is asked for (`ListOffsetsRequest.java`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The first offset there is.
    Earliest,
    /// The end: the high watermark, or the last stable offset with read_committed.
    Latest,
    /// The first offset whose timestamp is at least this, in milliseconds since the epoch.
    Timestamp(i64),
}

impl OffsetSpec {
    fn timestamp(self) -> i64 {
        match self {
            OffsetSpec::Earliest => -2,
            OffsetSpec::Latest => -1,
            OffsetSpec::Timestamp(timestamp) => timestamp,
        }
    }
}

/// An answer to ListOffsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedOffset {
    /// The offset; -1 when no record is as new as the timestamp that was asked for.
    pub offset: i64,
    /// Its timestamp, -1 for earliest and latest.
    pub timestamp: i64,
    /// The leader epoch of that offset, -1 when unknown.
    pub leader_epoch: i32,
}

/// Where a leader epoch ends (KIP-320).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest epoch up to the one that was asked for that the leader knows, -1 for none.
    pub leader_epoch: i32,
    /// The first offset behind it, -1 for none.
    pub end_offset: i64,
}

/// What a leader remembers of a producer (DescribeProducers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// The producer's id.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i32,
    /// Its last sequence number; -1 after a marker of a newer epoch.
    pub last_sequence: i32,
    /// The timestamp of its last batch.
    pub last_timestamp: i64,
    /// First offset of its open transaction, -1 for none.
    pub transaction_start_offset: i64,
}

impl Cluster {
    /// Asks the leaders for offsets.
    ///
    /// With read_committed, the latest offset is the last stable one.
    pub async fn list_offsets(
        &self,
        wanted: impl IntoIterator<Item = (TopicPartition, OffsetSpec)>,
        isolation_level: IsolationLevel,
    ) -> Each<TopicPartition, ListedOffset> {
        self.list_offsets_within(wanted, isolation_level, self.settings().default_api_timeout).await
    }

    /// As [`Cluster::list_offsets`], tried for so long in all; what has been answered by then counts.
    pub async fn list_offsets_within(
        &self,
        wanted: impl IntoIterator<Item = (TopicPartition, OffsetSpec)>,
        isolation_level: IsolationLevel,
        limit: Duration,
    ) -> Each<TopicPartition, ListedOffset> {
        let build = move |version, wanted: &[Wanted<OffsetSpec>]| {
            list_offsets_request(version, wanted, isolation_level)
        };
        let wanted = wanted.into_iter().collect();
        self.ask_leaders_within::<ListOffsetsRequest, _, _>(wanted, build, listed, limit).await
    }

    /// Asks the leaders where leader epochs end.
    pub async fn offset_for_leader_epoch(
        &self,
        wanted: impl IntoIterator<Item = (TopicPartition, i32)>,
    ) -> Each<TopicPartition, EpochEnd> {
        let wanted: BTreeMap<TopicPartition, i32> = wanted.into_iter().collect();
        self.ask_leaders::<OffsetForLeaderEpochRequest, _, _>(wanted, epochs_request, epochs).await
    }

    /// Deletes the records before an offset (-1: up to the high watermark); gives the log start offsets then.
    pub async fn delete_records(
        &self,
        before: impl IntoIterator<Item = (TopicPartition, i64)>,
    ) -> Each<TopicPartition, i64> {
        let timeout_ms = self.request_timeout_ms();
        let build = move |_, wanted: &[Wanted<i64>]| {
            let topics = by_topic(wanted, |one| {
                DeleteRecordsPartition::default().with_partition_index(one.partition).with_offset(one.what)
            });
            let topics = topics.into_iter().map(|(name, partitions)| {
                DeleteRecordsTopic::default().with_name(topic_name(&name)).with_partitions(partitions)
            });
            DeleteRecordsRequest::default().with_topics(topics.collect()).with_timeout_ms(timeout_ms)
        };
        self.ask_leaders::<DeleteRecordsRequest, _, _>(before.into_iter().collect(), build, deleted).await
    }

    /// Asks the leaders what they remember of producers.
    pub async fn describe_producers(
        &self,
        partitions: impl IntoIterator<Item = TopicPartition>,
    ) -> Each<TopicPartition, Vec<ProducerState>> {
        let wanted: BTreeMap<TopicPartition, ()> = partitions.into_iter().map(|key| (key, ())).collect();
        let build = |_, wanted: &[Wanted<()>]| {
            let topics = by_topic(wanted, |one| one.partition).into_iter().map(|(name, indexes)| {
                TopicRequest::default().with_name(topic_name(&name)).with_partition_indexes(indexes)
            });
            DescribeProducersRequest::default().with_topics(topics.collect())
        };
        self.ask_leaders::<DescribeProducersRequest, _, _>(wanted, build, producers).await
    }

    /// `request.timeout.ms`, for requests that tell the broker how long it may take.
    pub(super) fn request_timeout_ms(&self) -> i32 {
        i32::try_from(self.settings().net.request_timeout.as_millis()).unwrap_or(i32::MAX)
    }
}

fn list_offsets_request(
    version: i16,
    wanted: &[Wanted<OffsetSpec>],
    isolation_level: IsolationLevel,
) -> ListOffsetsRequest {
    let topics = by_topic(wanted, |one| {
        let partition = ListOffsetsPartition::default().with_partition_index(one.partition);
        let partition = partition.with_timestamp(one.what.timestamp());
        if version >= 4 { partition.with_current_leader_epoch(one.leader_epoch) } else { partition }
    });
    let topics = topics.into_iter().map(|(name, partitions)| {
        ListOffsetsTopic::default().with_name(topic_name(&name)).with_partitions(partitions)
    });
    let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(topics.collect());
    match isolation_level {
        // Version 1 knows no isolation; brokers that old have no transactions either.
        IsolationLevel::ReadCommitted if version >= 2 => request.with_isolation_level(1),
        _ => request,
    }
}

fn listed(response: ListOffsetsResponse) -> Vec<Part<ListedOffset>> {
    let of_topic = |topic: ListOffsetsTopicResponse| {
        topic.partitions.into_iter().map(move |one| {
            let (offset, timestamp, leader_epoch) = (one.offset, one.timestamp, one.leader_epoch);
            let value = ListedOffset { offset, timestamp, leader_epoch };
            part(&topic.name, one.partition_index, one.error_code, value)
        })
    };
    response.topics.into_iter().flat_map(of_topic).collect()
}

fn epochs_request(version: i16, wanted: &[Wanted<i32>]) -> OffsetForLeaderEpochRequest {
    let topics = by_topic(wanted, |one| {
        OffsetForLeaderPartition::default()
            .with_partition(one.partition)
            .with_current_leader_epoch(one.leader_epoch)
            .with_leader_epoch(one.what)
    });
    let topics = topics.into_iter().map(|(name, partitions)| {
        OffsetForLeaderTopic::default().with_topic(topic_name(&name)).with_partitions(partitions)
    });
    let request = OffsetForLeaderEpochRequest::default().with_topics(topics.collect());
    if version >= 3 { request.with_replica_id(BrokerId(-1)) } else { request }
}

fn epochs(response: OffsetForLeaderEpochResponse) -> Vec<Part<EpochEnd>> {
    let of_topic = |topic: OffsetForLeaderTopicResult| {
        topic.partitions.into_iter().map(move |one| {
            let value = EpochEnd { leader_epoch: one.leader_epoch, end_offset: one.end_offset };
            part(&topic.topic, one.partition, one.error_code, value)
        })
    };
    response.topics.into_iter().flat_map(of_topic).collect()
}

fn deleted(response: DeleteRecordsResponse) -> Vec<Part<i64>> {
    let of_topic = |topic: DeleteRecordsTopicResult| {
        let partitions = topic.partitions.into_iter();
        partitions.map(move |one| part(&topic.name, one.partition_index, one.error_code, one.low_watermark))
    };
    response.topics.into_iter().flat_map(of_topic).collect()
}

fn producers(response: DescribeProducersResponse) -> Vec<Part<Vec<ProducerState>>> {
    let of_topic = |topic: TopicResponse| {
        topic.partitions.into_iter().map(move |one| {
            let value = one.active_producers.iter().map(producer_state).collect();
            let message = words(one.error_message.as_ref());
            Part { message, ..part(&topic.name, one.partition_index, one.error_code, value) }
        })
    };
    response.topics.into_iter().flat_map(of_topic).collect()
}

fn producer_state(state: &WireProducerState) -> ProducerState {
    ProducerState {
        producer_id: state.producer_id.0,
        producer_epoch: state.producer_epoch,
        last_sequence: state.last_sequence,
        last_timestamp: state.last_timestamp,
        transaction_start_offset: state.current_txn_start_offset,
    }
}

fn part<V>(topic: &TopicName, partition: i32, code: i16, value: V) -> Part<V> {
    Part { topic: topic.0.to_string(), partition, code: ErrorCode(code), message: None, value }
}

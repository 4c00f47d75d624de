//! Offsets of partitions: ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    DeleteRecordsRequest, DeleteRecordsResponse, DescribeProducersRequest, DescribeProducersResponse,
    ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    ProducerId,
};
use kafka_protocol::protocol::StrBytes;

use super::fetch::{check_epoch, isolation};
use super::topics::Partition;
use super::{ClusterState, Handled};
use crate::broker::log::{CleanupPolicy, Isolation, ListedOffset, OffsetSpec, ProducerInfo};
use crate::broker::wire::Request;

impl ClusterState {
    pub(super) fn handle_list_offsets(&mut self, request: &Request) -> Handled {
        let body: ListOffsetsRequest = request.decode()?;
        let isolation = isolation(body.isolation_level);
        let topics = body.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let response =
                    ListOffsetsPartitionResponse::default().with_partition_index(asked.partition_index);
                match self.list_offset(request, &topic.name, asked, isolation) {
                    Ok(found) => response
                        .with_offset(found.offset)
                        .with_timestamp(found.timestamp)
                        .with_leader_epoch(if request.version >= 4 { found.leader_epoch } else { -1 }),
                    Err(code) => response.with_error_code(code).with_offset(-1).with_timestamp(-1),
                }
            });
            ListOffsetsTopicResponse::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions.collect())
        });
        let topics = topics.collect();
        let reply = ListOffsetsResponse::default()
            .with_throttle_time_ms(self.settings.throttle_ms)
            .with_topics(topics);
        Ok(request.reply(&reply))
    }

    fn list_offset(
        &self,
        request: &Request,
        topic: &str,
        asked: &ListOffsetsPartition,
        isolation: Isolation,
    ) -> Result<ListedOffset, i16> {
        let partition = self.led(request, topic, asked.partition_index)?;
        check_epoch(asked.current_leader_epoch, partition).map_err(|error| error.code())?;
        // The offset behind what is in remote storage (KIP-1005): nothing is.
        if asked.timestamp == -5 && request.version >= 9 {
            return Ok(ListedOffset::NONE);
        }
        let oldest_known = match request.version {
            ..7 => -2,
            7 => -3,
            _ => -4,
        };
        let spec = OffsetSpec::from_timestamp(asked.timestamp).filter(|_| asked.timestamp >= oldest_known);
        let spec = spec.ok_or(ResponseError::UnsupportedVersion.code())?;
        Ok(partition.log.list_offset(spec, isolation))
    }

    pub(super) fn handle_offset_for_leader_epoch(&mut self, request: &Request) -> Handled {
        let body: OffsetForLeaderEpochRequest = request.decode()?;
        let topics = body.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let end = EpochEndOffset::default().with_partition(asked.partition);
                let led = self.led(request, &topic.topic, asked.partition).and_then(|partition| {
                    check_epoch(asked.current_leader_epoch, partition).map_err(|error| error.code())?;
                    Ok(partition)
                });
                match led {
                    Ok(partition) => {
                        let found = partition.log.end_offset_for_epoch(asked.leader_epoch);
                        end.with_leader_epoch(found.epoch).with_end_offset(found.end_offset)
                    }
                    Err(code) => end.with_error_code(code).with_leader_epoch(-1).with_end_offset(-1),
                }
            });
            OffsetForLeaderTopicResult::default()
                .with_topic(topic.topic.clone())
                .with_partitions(partitions.collect())
        });
        let reply = OffsetForLeaderEpochResponse::default().with_topics(topics.collect());
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    pub(super) fn handle_delete_records(&mut self, request: &Request) -> Handled {
        let body: DeleteRecordsRequest = request.decode()?;
        let mut topics = Vec::with_capacity(body.topics.len());
        for topic in &body.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for asked in &topic.partitions {
                let result =
                    DeleteRecordsPartitionResult::default().with_partition_index(asked.partition_index);
                partitions.push(
                    match self.delete_records(request, &topic.name, asked.partition_index, asked.offset) {
                        Ok(low_watermark) => result.with_low_watermark(low_watermark),
                        Err(code) => result.with_low_watermark(-1).with_error_code(code),
                    },
                );
            }
            topics.push(
                DeleteRecordsTopicResult::default().with_name(topic.name.clone()).with_partitions(partitions),
            );
        }
        let reply = DeleteRecordsResponse::default().with_topics(topics);
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    fn delete_records(
        &mut self,
        request: &Request,
        topic: &str,
        index: i32,
        offset: i64,
    ) -> Result<i64, i16> {
        self.led(request, topic, index)?;
        let partition = self.topics.partition_mut(topic, index);
        let log = &mut partition.ok_or(ResponseError::UnknownTopicOrPartition.code())?.log;
        if log.settings().cleanup_policy == CleanupPolicy::Compact {
            return Err(ResponseError::PolicyViolation.code());
        }
        let start = log.delete_records(offset).map_err(|out_of_range| out_of_range.code().code())?;
        self.wake_fetches_of(topic, index..index + 1);
        Ok(start)
    }

    pub(super) fn handle_describe_producers(&mut self, request: &Request) -> Handled {
        let body: DescribeProducersRequest = request.decode()?;
        let topics = body.topics.iter().map(|topic| {
            let partitions = topic.partition_indexes.iter().map(|&index| {
                let response = PartitionResponse::default().with_partition_index(index);
                match self.led(request, &topic.name, index) {
                    Ok(partition) => response.with_active_producers(
                        partition.log.producers().iter().map(producer_state).collect(),
                    ),
                    Err(code) => response.with_error_code(code).with_error_message(Some(
                        StrBytes::from_static_str("This broker does not lead the partition."),
                    )),
                }
            });
            TopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions.collect())
        });
        let reply = DescribeProducersResponse::default().with_topics(topics.collect());
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    /// The partition, if the broker that was asked leads it.
    pub(super) fn led(&self, request: &Request, topic: &str, index: i32) -> Result<&Partition, i16> {
        if let Some(code) = request.refuse_with {
            return Err(code);
        }
        let unknown = ResponseError::UnknownTopicOrPartition.code();
        let partition = self.topics.partition(topic, index).ok_or(unknown)?;
        if partition.leader == Some(request.broker.0) {
            Ok(partition)
        } else {
            Err(ResponseError::NotLeaderOrFollower.code())
        }
    }
}

fn producer_state(info: &ProducerInfo) -> ProducerState {
    ProducerState::default()
        .with_producer_id(ProducerId(info.producer_id))
        .with_producer_epoch(i32::from(info.producer_epoch))
        .with_last_sequence(info.last_sequence)
        .with_last_timestamp(info.last_timestamp)
        .with_coordinator_epoch(info.coordinator_epoch)
        .with_current_txn_start_offset(info.current_txn_start_offset)
}

//! Reading a whole topic as a read_committed reader sees it: over the wire, or straight from an embedded cluster's logs.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, FetchRequest, ListOffsetsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::super::Error;
use super::committed::{Aborted, SeenRecord, committed};
use crate::broker::EmbeddedCluster;
use crate::broker::log::{FirstBatch, Isolation};
use crate::client::{Cluster, ErrorCode, Node, Topics};

/// Bytes of one read, and of what is buffered for a partition.
const READ_BYTES: usize = 1024 * 1024;
/// `isolation_level` of a fetch.
const READ_COMMITTED: i8 = 1;
/// ListOffsets: the log start offset.
const EARLIEST: i64 = -2;

/// Where records are read from.
#[derive(Clone, Debug)]
pub enum Reader<'a> {
    /// A cluster, by Fetch.
    Wire(Cluster),
    /// The logs of an embedded cluster: takes no time, and cannot be disturbed by faults.
    Logs(&'a EmbeddedCluster),
}

impl Reader<'_> {
    /// How many partitions a topic has; 0 when it does not exist.
    ///
    /// # Errors
    /// When the cluster cannot be asked.
    pub async fn partitions(&self, topic: &Arc<str>) -> Result<i32, Error> {
        match self {
            Reader::Wire(cluster) => {
                let view = cluster.refresh(Topics::Named(vec![topic.clone()])).await?;
                Ok(view.topic(topic).map_or(0, |topic| topic.partitions.len() as i32))
            }
            Reader::Logs(cluster) => {
                let topics = cluster.topics();
                let found = topics.iter().find(|(name, _)| name.as_str() == &**topic);
                Ok(found.map_or(0, |&(_, partitions)| partitions))
            }
        }
    }

    async fn start(&self, topic: &Arc<str>, partition: i32) -> Result<i64, Error> {
        match self {
            Reader::Wire(cluster) => earliest(cluster, topic, partition).await,
            Reader::Logs(cluster) => Ok(cluster.log(topic, partition, |log| log.log_start_offset())?),
        }
    }

    async fn read(&self, topic: &Arc<str>, partition: i32, from: i64) -> Result<Chunk, Error> {
        match self {
            Reader::Wire(cluster) => fetch(cluster, topic, partition, from).await,
            Reader::Logs(cluster) => {
                let read = cluster.log(topic, partition, |log| {
                    log.read(from, READ_BYTES, Isolation::ReadCommitted, FirstBatch::Whole)
                })?;
                let read = read.map_err(|_| refused(topic, partition, ErrorCode::OFFSET_OUT_OF_RANGE))?;
                let aborted = read.aborted.iter().map(|aborted| Aborted {
                    producer_id: aborted.producer_id,
                    first_offset: aborted.first_offset,
                });
                Ok(Chunk {
                    aborted: aborted.collect(),
                    sections: read.batches,
                    last_stable_offset: read.last_stable_offset,
                })
            }
        }
    }
}

struct Chunk {
    sections: Vec<Bytes>,
    aborted: Vec<Aborted>,
    last_stable_offset: i64,
}

/// One partition, record by record, up to the last stable offset that it had when the reading began.
#[derive(Debug)]
pub struct PartitionReader<'a> {
    reader: Reader<'a>,
    topic: Arc<str>,
    partition: i32,
    next_offset: i64,
    end_offset: Option<i64>,
    records: VecDeque<SeenRecord>,
}

impl<'a> PartitionReader<'a> {
    /// From the log start on.
    ///
    /// # Errors
    /// When the cluster cannot be asked.
    pub async fn open(
        reader: &Reader<'a>,
        topic: &Arc<str>,
        partition: i32,
    ) -> Result<PartitionReader<'a>, Error> {
        let next_offset = reader.start(topic, partition).await?;
        Ok(PartitionReader {
            reader: reader.clone(),
            topic: topic.clone(),
            partition,
            next_offset,
            end_offset: None,
            records: VecDeque::new(),
        })
    }

    /// The record at the front; `None` at the end.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn front(&mut self) -> Result<Option<&SeenRecord>, Error> {
        while self.records.is_empty() && self.end_offset.is_none_or(|end| self.next_offset < end) {
            self.fill().await?;
        }
        Ok(self.records.front())
    }

    /// Goes on behind the record at the front.
    pub fn advance(&mut self) {
        self.records.pop_front();
    }

    async fn fill(&mut self) -> Result<(), Error> {
        let chunk = self.reader.read(&self.topic, self.partition, self.next_offset).await?;
        let end = *self.end_offset.get_or_insert(chunk.last_stable_offset);
        let found = committed(&chunk.sections, &chunk.aborted, self.next_offset)?;
        // A log may end in offsets without batches, after compaction.
        let stands_still = found.next_offset == self.next_offset;
        self.next_offset = if stands_still { end } else { found.next_offset };
        self.records = found.records;
        self.records.retain(|record| record.offset < end);
        Ok(())
    }
}

fn refused(topic: &Arc<str>, partition: i32, code: ErrorCode) -> Error {
    Error::Refused { topic: topic.clone(), partition, code }
}

fn name(topic: &Arc<str>) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_string()))
}

async fn earliest(cluster: &Cluster, topic: &Arc<str>, partition: i32) -> Result<i64, Error> {
    let wanted = ListOffsetsPartition::default().with_partition_index(partition).with_timestamp(EARLIEST);
    let wanted = ListOffsetsTopic::default().with_name(name(topic)).with_partitions(vec![wanted]);
    let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![wanted]);
    let answer = cluster.call(Node::Leader(topic.clone(), partition), &request).await?.response;
    let found = answer.topics.iter().flat_map(|topic| &topic.partitions).next();
    let found = found.ok_or_else(|| refused(topic, partition, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))?;
    match ErrorCode(found.error_code) {
        ErrorCode::NONE => Ok(found.offset),
        code => Err(refused(topic, partition, code)),
    }
}

async fn fetch(cluster: &Cluster, topic: &Arc<str>, partition: i32, from: i64) -> Result<Chunk, Error> {
    let wanted = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(from)
        .with_partition_max_bytes(READ_BYTES as i32);
    let wanted = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![wanted]);
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(0)
        .with_min_bytes(0)
        .with_max_bytes(READ_BYTES as i32)
        .with_isolation_level(READ_COMMITTED)
        .with_topics(vec![wanted]);
    let answer = cluster.call(Node::Leader(topic.clone(), partition), &request).await?.response;
    let found = answer.responses.into_iter().flat_map(|topic| topic.partitions).next();
    let found = found.ok_or_else(|| refused(topic, partition, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))?;
    match ErrorCode(found.error_code) {
        ErrorCode::NONE => Ok(chunk(found)),
        code => Err(refused(topic, partition, code)),
    }
}

fn chunk(data: PartitionData) -> Chunk {
    let aborted = data.aborted_transactions.unwrap_or_default();
    Chunk {
        sections: data.records.into_iter().collect(),
        aborted: aborted
            .iter()
            .map(|aborted| Aborted { producer_id: aborted.producer_id.0, first_offset: aborted.first_offset })
            .collect(),
        last_stable_offset: data.last_stable_offset,
    }
}

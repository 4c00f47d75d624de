//! Reading and writing internal topics, whole and simply. Data topics go through the lanes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    ApiKey, BrokerId, FetchRequest, FetchResponse, ProduceRequest, ProduceResponse,
};

use super::super::api::words;
use super::super::cluster::{Cluster, Node, topic_name};
use super::super::code::ErrorCode;
use super::super::error::{Error, Subject};
use super::super::metadata::Topics;
use super::super::settings::IsolationLevel;
use super::offsets::OffsetSpec;
use super::{Each, TopicPartition};
use crate::record::{BatchHeader, Entry, Magic, next_entry};

/// What one Fetch of an internal topic brings.
const FETCH_BYTES: i32 = 4 * 1024 * 1024;
/// How often a partition may begin anew because its log start overtook the reader.
const RESTARTS_MAX: u32 = 10;

/// A partition of an internal topic, read from its log start to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionLog {
    /// Whole log entries in offset order, prefix included; of the first, records may lie before the log start.
    pub batches: Vec<Bytes>,
    /// The log start when reading began.
    pub start_offset: i64,
    /// The end when reading began: every record before it is in `batches`.
    pub end_offset: i64,
}

impl Cluster {
    /// Reads every partition of a topic from its log start to the end that it has now, `bytes_max` in all.
    ///
    /// With read_committed the end is the last stable offset; aborted and control batches are among the batches all the same.
    ///
    /// # Errors
    /// As a whole: a state that is read in part is no state. [`Error::Unknown`] when there is no such topic,
    /// [`Error::TooMuch`] over the limit.
    pub async fn read_to_end(
        &self,
        topic: &Arc<str>,
        isolation_level: IsolationLevel,
        bytes_max: usize,
    ) -> Result<BTreeMap<i32, PartitionLog>, Error> {
        let view = self.refresh(Topics::Named(vec![topic.clone()])).await?;
        let found = view.topic(topic).filter(|found| found.code != ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        let Some(found) = found else {
            let (cluster, subject) = (self.alias().clone(), Subject::Topic(topic.clone()));
            let unseen = self.unseen(ApiKey::Fetch, topic).await;
            return Err(unseen.unwrap_or(Error::Unknown { cluster, subject }));
        };
        let keys: Vec<TopicPartition> =
            found.partitions.keys().map(|&index| (topic.clone(), index)).collect();
        let at = |spec| keys.iter().cloned().map(move |key| (key, spec));
        let (starts, ends) = tokio::join!(
            self.list_offsets(at(OffsetSpec::Earliest), isolation_level),
            self.list_offsets(at(OffsetSpec::Latest), isolation_level),
        );
        let (starts, ends) = (offsets(starts)?, offsets(ends)?);
        let mut logs = BTreeMap::new();
        let mut bytes_left = bytes_max;
        for (key, end_offset) in ends {
            let start_offset = starts.get(&key).copied().unwrap_or(0);
            let log = PartitionLog { batches: Vec::new(), start_offset, end_offset };
            let log = self.read_partition(&key, log, isolation_level, &mut bytes_left).await;
            let too_much = || Error::TooMuch {
                cluster: self.alias().clone(),
                subject: Subject::Topic(topic.clone()),
                bytes_max,
            };
            logs.insert(key.1, log?.ok_or_else(too_much)?);
        }
        Ok(logs)
    }

    /// Reads one partition from an offset, or from its log start when that is higher, to the end that it has now.
    ///
    /// # Errors
    /// [`Error::TooMuch`] over `bytes_max`, and as [`Cluster::call`].
    pub async fn read_tail(
        &self,
        key: &TopicPartition,
        from_offset: i64,
        isolation_level: IsolationLevel,
        bytes_max: usize,
    ) -> Result<PartitionLog, Error> {
        let at = |spec| [(key.clone(), spec)];
        let (start, end) = tokio::join!(
            self.list_offsets(at(OffsetSpec::Earliest), isolation_level),
            self.list_offsets(at(OffsetSpec::Latest), isolation_level),
        );
        let (start, end) = (offsets(start)?, offsets(end)?);
        let start_offset = start.get(key).copied().unwrap_or(0).max(from_offset);
        let end_offset = end.get(key).copied().unwrap_or(start_offset);
        let log = PartitionLog { batches: Vec::new(), start_offset, end_offset };
        let mut bytes_left = bytes_max;
        let log = self.read_partition(key, log, isolation_level, &mut bytes_left).await?;
        log.ok_or_else(|| Error::TooMuch {
            cluster: self.alias().clone(),
            subject: Subject::Partition(key.0.clone(), key.1),
            bytes_max,
        })
    }

    /// `None` when more than `bytes_left` came.
    async fn read_partition(
        &self,
        key: &TopicPartition,
        mut log: PartitionLog,
        isolation_level: IsolationLevel,
        bytes_left: &mut usize,
    ) -> Result<Option<PartitionLog>, Error> {
        let (mut offset, mut restarts) = (log.start_offset, 0);
        while offset < log.end_offset {
            let records = match self.fetch_once(key, offset, log.end_offset, isolation_level).await {
                Ok(records) => records,
                Err(error)
                    if error.code() == Some(ErrorCode::OFFSET_OUT_OF_RANGE) && restarts < RESTARTS_MAX =>
                {
                    restarts += 1;
                    let asked = [(key.clone(), OffsetSpec::Earliest)];
                    let start = offsets(self.list_offsets(asked, isolation_level).await)?;
                    offset = start.get(key).copied().unwrap_or(offset).max(offset);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some((batches, next)) = entries(&records) else { return Err(self.damaged(key)) };
            // A compacted log may end in a gap: then there is nothing up to the end, and no answer will ever hold more.
            if batches.is_empty() || next <= offset {
                break;
            }
            let size: usize = batches.iter().map(Bytes::len).sum();
            let Some(left) = bytes_left.checked_sub(size) else { return Ok(None) };
            *bytes_left = left;
            log.batches.extend(batches);
            offset = next;
        }
        Ok(Some(log))
    }

    async fn fetch_once(
        &self,
        key: &TopicPartition,
        offset: i64,
        end_offset: i64,
        isolation_level: IsolationLevel,
    ) -> Result<Bytes, Error> {
        let (topic, partition) = (key.0.clone(), key.1);
        let subject = Subject::Partition(topic.clone(), partition);
        let build = |version| fetch_request(version, key, offset, isolation_level);
        let answer = self
            .call_judged::<FetchRequest>(Node::Leader(topic, partition), subject, build, |response| {
                let code = fetched(response).map(|part| fetch_code(part, end_offset, isolation_level));
                (code.unwrap_or_default(), None)
            })
            .await?;
        Ok(fetched(&answer.response).and_then(|part| part.records.clone()).unwrap_or_default())
    }

    fn damaged(&self, key: &TopicPartition) -> Error {
        Error::Damaged { cluster: self.alias().clone(), subject: Subject::Partition(key.0.clone(), key.1) }
    }

    /// Appends one record batch to a partition of an internal topic with acks=all; gives its base offset.
    ///
    /// The leader is looked up and the request repeated until `default.api.timeout.ms`; a batch without a producer id may
    /// so be appended twice, or behind later ones.
    ///
    /// # Errors
    /// As [`Cluster::call`].
    pub async fn produce(&self, topic: &Arc<str>, partition: i32, batch: Bytes) -> Result<i64, Error> {
        let subject = Subject::Partition(topic.clone(), partition);
        let timeout_ms = self.request_timeout_ms();
        let build = |_| {
            let data =
                PartitionProduceData::default().with_index(partition).with_records(Some(batch.clone()));
            let topic =
                TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(vec![data]);
            ProduceRequest::default().with_acks(-1).with_timeout_ms(timeout_ms).with_topic_data(vec![topic])
        };
        let node = Node::Leader(topic.clone(), partition);
        let answer = self
            .call_judged::<ProduceRequest>(node, subject.clone(), build, |response| {
                produced(response).map_or((ErrorCode::NONE, None), |part| {
                    (ErrorCode(part.error_code), words(part.error_message.as_ref()))
                })
            })
            .await?;
        let broker = Box::new(answer.broker);
        let left_out =
            Error::LeftOut { cluster: self.alias().clone(), broker, api: ApiKey::Produce, subject };
        produced(&answer.response).map(|part| part.base_offset).ok_or(left_out)
    }
}

fn offsets(
    listed: Each<TopicPartition, super::ListedOffset>,
) -> Result<BTreeMap<TopicPartition, i64>, Error> {
    listed.into_iter().map(|(key, listed)| listed.map(|listed| (key, listed.offset))).collect()
}

fn fetch_request(
    version: i16,
    key: &TopicPartition,
    offset: i64,
    isolation_level: IsolationLevel,
) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(key.1)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(FETCH_BYTES);
    let topic = FetchTopic::default().with_topic(topic_name(&key.0)).with_partitions(vec![partition]);
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(0)
        .with_min_bytes(0)
        .with_max_bytes(FETCH_BYTES)
        .with_isolation_level(match isolation_level {
            IsolationLevel::ReadUncommitted => 0,
            IsolationLevel::ReadCommitted => 1,
        })
        .with_topics(vec![topic]);
    // Epoch -1 asks for no fetch session (KIP-227).
    if version >= 7 { request.with_session_epoch(-1) } else { request }
}

fn fetched(response: &FetchResponse) -> Option<&PartitionData> {
    response.responses.first().and_then(|topic| topic.partitions.first())
}

/// A new leader may lag behind the end that its predecessor told; nothing read from it then is no gap.
fn fetch_code(part: &PartitionData, end_offset: i64, isolation_level: IsolationLevel) -> ErrorCode {
    let readable = match isolation_level {
        IsolationLevel::ReadUncommitted => part.high_watermark,
        IsolationLevel::ReadCommitted => part.last_stable_offset,
    };
    let is_empty = part.records.as_ref().is_none_or(Bytes::is_empty);
    match ErrorCode(part.error_code) {
        ErrorCode::NONE if is_empty && readable < end_offset => ErrorCode::OFFSET_NOT_AVAILABLE,
        code => code,
    }
}

fn produced(response: &ProduceResponse) -> Option<&PartitionProduceResponse> {
    response.responses.first().and_then(|topic| topic.partition_responses.first())
}

/// The whole entries of a records section and the offset behind the last one; `None` when they are no entries.
fn entries(records: &Bytes) -> Option<(Vec<Bytes>, i64)> {
    let (mut batches, mut at, mut next) = (Vec::new(), 0, -1);
    while let Some(front) = records.get(at..) {
        let Entry::Batch { size_bytes, magic } = next_entry(front, front.len(), i32::MAX as usize).ok()?
        else {
            break;
        };
        let entry = records.slice(at..at + size_bytes);
        next = match magic {
            Magic::V2 => BatchHeader::parse(&entry).ok()?.next_offset(),
            // The offset of an old entry is that of its last message.
            Magic::V0 | Magic::V1 => i64::from_be_bytes(*entry.first_chunk::<8>()?).checked_add(1)?,
        };
        batches.push(entry);
        at += size_bytes;
    }
    // The first entry comes whole whatever its size (KIP-74).
    let is_cut_short = batches.is_empty() && !records.is_empty();
    (!is_cut_short).then_some((batches, next))
}

//! Produce: which partition takes what; whether a batch may be appended is the log's affair.

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_request::TopicProduceData;
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{BrokerId, ProduceRequest, ProduceResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::topics::TopicHandle;
use super::{ClusterState, Handled};
use crate::broker::log::{AppendError, Origin, Reach, Verification, check_first_entry};
use crate::broker::wire::{Outcome, Request};
use crate::record::{BatchHeader, Codec};

/// From this version on batches may be compressed with zstd (KIP-110).
const ZSTD_VERSION: i16 = 7;
/// From this version on topics come by id (KIP-516).
const TOPIC_ID_VERSION: i16 = 13;
/// From this version on a transactional Produce adds its partitions to the transaction itself (KIP-890).
const IMPLICIT_ADD_VERSION: i16 = 12;
/// From this version on a producer knows TRANSACTION_ABORTABLE.
const ABORTABLE_VERSION: i16 = 11;
/// `acks=all`.
const ACKS_ALL: i16 = -1;

/// What holds for every partition of a request.
#[derive(Clone, Copy)]
struct Terms<'a> {
    acks: i16,
    transactional_id: Option<&'a str>,
    /// Error code that the whole request gets.
    refuse_with: Option<i16>,
}

/// What one partition is to get, and under which request.
struct Append<'a> {
    request: &'a Request,
    terms: Terms<'a>,
    topic: &'a str,
    partition: i32,
    records: Option<Bytes>,
}

impl ClusterState {
    pub(super) fn handle_produce(&mut self, request: &Request, now_ms: i64) -> Handled {
        let body: ProduceRequest = request.decode()?;
        let acks = body.acks;
        let transactional_id = body.transactional_id.as_ref().map(|id| id.0.as_str());
        let refused_whole = refusal_of_all(&body);
        let terms = Terms { acks, transactional_id, refuse_with: request.refuse_with };
        let mut responses = Vec::with_capacity(body.topic_data.len());
        let mut has_failed = false;
        for topic in body.topic_data {
            let (name, topic_id) = (topic.name.clone(), topic.topic_id);
            let partitions = match &refused_whole {
                Some(error) => topic.partition_data.iter().map(|data| refused(data.index, error)).collect(),
                None => self.produce_topic(request, terms, topic, now_ms),
            };
            has_failed |= partitions.iter().any(|partition| partition.error_code != 0);
            responses.push(
                TopicProduceResponse::default()
                    .with_name(name)
                    .with_topic_id(topic_id)
                    .with_partition_responses(partitions),
            );
        }
        if acks == 0 {
            // Nothing tells a producer without acks of its failure but the end of its connection (`KafkaApis.handleProduceRequest`).
            return Ok(if has_failed { Outcome::Close } else { Outcome::Nothing });
        }
        let reply = ProduceResponse::default()
            .with_node_endpoints(self.endpoints_for(request, &responses))
            .with_responses(responses)
            .with_throttle_time_ms(self.settings.throttle_ms);
        Ok(request.reply(&reply))
    }

    fn produce_topic(
        &mut self,
        request: &Request,
        terms: Terms<'_>,
        topic: TopicProduceData,
        now_ms: i64,
    ) -> Vec<PartitionProduceResponse> {
        let name = match self.topics.resolve(handle(request, &topic.name, topic.topic_id)) {
            Some(name) => name.to_owned(),
            None => {
                let refuse = |data: &kafka_protocol::messages::produce_request::PartitionProduceData| {
                    refused(
                        data.index,
                        &refusal(ResponseError::UnknownTopicId, "This server does not host this topic ID."),
                    )
                };
                return topic.partition_data.iter().map(refuse).collect();
            }
        };
        let mut responses = Vec::with_capacity(topic.partition_data.len());
        let indexes: Vec<i32> = topic.partition_data.iter().map(|data| data.index).collect();
        for (at, data) in topic.partition_data.into_iter().enumerate() {
            // A real broker puts the entries into a map by partition: of two for one partition the later one wins, and the
            // first is gone without an error.
            if indexes[at + 1..].contains(&data.index) {
                self.violation(
                    &name,
                    data.index,
                    "the same partition twice in one Produce: the first entry is lost",
                );
                continue;
            }
            let append =
                Append { request, terms, topic: &name, partition: data.index, records: data.records };
            responses.push(self.append(append, now_ms));
        }
        responses
    }

    fn append(&mut self, append: Append<'_>, now_ms: i64) -> PartitionProduceResponse {
        if let Some(code) = append.terms.refuse_with {
            return PartitionProduceResponse::default()
                .with_index(append.partition)
                .with_error_code(code)
                .with_base_offset(-1);
        }
        if let Err(error) = self.check_append(&append) {
            return self.with_leader(&append, refused(append.partition, &error));
        }
        let verification = self.verification(&append, now_ms);
        let Append { topic, partition: index, records, .. } = append;
        let Some(partition) = self.topics.partition_mut(topic, index) else {
            return refused(index, &refusal(ResponseError::UnknownTopicOrPartition, ""));
        };
        let epoch = partition.leader_epoch;
        match partition.log.append(now_ms, epoch, &records.unwrap_or_default(), Origin::Client(verification))
        {
            Ok(appended) => {
                let response = PartitionProduceResponse::default()
                    .with_index(index)
                    .with_base_offset(appended.base_offset)
                    .with_log_append_time_ms(appended.log_append_time)
                    .with_log_start_offset(appended.log_start_offset);
                self.wake_fetches_of(topic, index..index + 1);
                response
            }
            Err(error) => refused(index, &error),
        }
    }

    fn check_append(&self, append: &Append<'_>) -> Result<(), AppendError> {
        if !(-1..=1).contains(&append.terms.acks) {
            return Err(refusal(ResponseError::InvalidRequiredAcks, "Invalid required acks"));
        }
        let Some(partition) = self.topics.partition(append.topic, append.partition) else {
            return Err(refusal(
                ResponseError::UnknownTopicOrPartition,
                "This server does not host this topic-partition.",
            ));
        };
        check_codec(append)?;
        if partition.leader != Some(append.request.broker.0) {
            return Err(refusal(
                ResponseError::NotLeaderOrFollower,
                "For requests intended only for the leader, this error indicates that the broker is not the current leader.",
            ));
        }
        if append.terms.acks != ACKS_ALL {
            return Ok(());
        }
        let in_sync = partition.isr(|id| self.is_up(crate::broker::wire::BrokerId(id))).len() as i64;
        let needed = self.topic_number(append.topic, "min.insync.replicas");
        if in_sync < needed {
            return Err(refusal(
                ResponseError::NotEnoughReplicas,
                &format!(
                    "The size of the current ISR is insufficient to satisfy the min.isr requirement of {needed}"
                ),
            ));
        }
        Ok(())
    }

    /// Whether the coordinator knows of an open transaction that holds this partition (KIP-890). What it says against
    /// it counts only if the log itself has no open transaction of this producer.
    fn verification(&mut self, append: &Append<'_>, now_ms: i64) -> Verification {
        let header = append.records.as_deref().map(BatchHeader::parse);
        let (Some(id), Some(Ok(header))) = (append.terms.transactional_id, header) else {
            return Verification::Missing;
        };
        if !header.attributes.is_transactional() {
            return Verification::Missing;
        }
        let producer = (header.producer_id, header.producer_epoch);
        let place = (append.topic, append.partition);
        let version = append.request.version;
        let verified = if version >= IMPLICIT_ADD_VERSION {
            self.timers_touched = true;
            let added = self.transactions.add_partition(id, producer, place, now_ms);
            added.map(|()| Verification::DoneV2)
        } else {
            self.transactions.verify(id, producer, place).map(|()| Verification::Done)
        };
        // The log does not need the answer while it holds the transaction open.
        verified.unwrap_or_else(|error| Verification::Refused(unverified(error, version)))
    }

    /// Names the leader to a client that asked another broker (KIP-951).
    fn with_leader(
        &self,
        append: &Append<'_>,
        response: PartitionProduceResponse,
    ) -> PartitionProduceResponse {
        if response.error_code != ResponseError::NotLeaderOrFollower.code() {
            return response;
        }
        let Some(partition) = self.topics.partition(append.topic, append.partition) else { return response };
        response.with_current_leader(
            LeaderIdAndEpoch::default()
                .with_leader_id(BrokerId(partition.leader.unwrap_or(-1)))
                .with_leader_epoch(partition.leader_epoch),
        )
    }

    fn endpoints_for(&self, request: &Request, responses: &[TopicProduceResponse]) -> Vec<NodeEndpoint> {
        if request.version < 10 {
            return Vec::new();
        }
        let leaders: std::collections::BTreeSet<i32> = responses
            .iter()
            .flat_map(|topic| &topic.partition_responses)
            .filter(|partition| partition.error_code == ResponseError::NotLeaderOrFollower.code())
            .map(|partition| partition.current_leader.leader_id.0)
            .collect();
        let endpoint = |id| {
            let broker = self.brokers.get(&id)?;
            let host = StrBytes::from_string(broker.host.clone());
            Some(
                NodeEndpoint::default()
                    .with_node_id(BrokerId(id))
                    .with_host(host)
                    .with_port(i32::from(broker.port)),
            )
        };
        leaders.into_iter().filter_map(endpoint).collect()
    }
}

/// What makes every partition of a request fail: an entry that cannot be read, or a transactional batch in a request without
/// a transactional id (`KafkaApis.handleProduceRequest`).
fn refusal_of_all(body: &ProduceRequest) -> Option<AppendError> {
    let mut transactional = false;
    let entries = body.topic_data.iter().flat_map(|topic| &topic.partition_data);
    for records in entries.filter_map(|data| data.records.as_ref()) {
        if let Err(error) = check_first_entry(records)
            && error.reach == Reach::Request
        {
            return Some(error);
        }
        transactional |= BatchHeader::parse(records).is_ok_and(|header| header.attributes.is_transactional());
    }
    let unauthorized = transactional && body.transactional_id.is_none();
    unauthorized.then(|| refusal(ResponseError::TransactionalIdAuthorizationFailed, ""))
}

/// Producers of older versions are told that zstd is not for them (`ProduceRequest.validateRecords`).
fn check_codec(append: &Append<'_>) -> Result<(), AppendError> {
    let header = append.records.as_deref().map(BatchHeader::parse);
    let is_zstd = matches!(header, Some(Ok(header)) if header.attributes.codec() == Ok(Codec::Zstd));
    if append.request.version < ZSTD_VERSION && is_zstd {
        return Err(refusal(
            ResponseError::UnsupportedCompressionType,
            &format!(
                "Produce requests with version {} are not allowed to use ZStandard compression",
                append.request.version
            ),
        ));
    }
    Ok(())
}

/// What a producer is told when its transaction is not confirmed, in the words that its version knows
/// (`AddPartitionsToTxnManager`, `ReplicaManager.appendRecords`).
fn unverified(error: ResponseError, version: i16) -> ResponseError {
    match error {
        ResponseError::ProducerFenced => ResponseError::InvalidProducerEpoch,
        ResponseError::ConcurrentTransactions if version < IMPLICIT_ADD_VERSION => {
            ResponseError::NotEnoughReplicas
        }
        ResponseError::InvalidTxnState if version >= ABORTABLE_VERSION => ResponseError::TransactionAbortable,
        error => error,
    }
}

fn handle<'a>(request: &Request, name: &'a TopicName, id: Uuid) -> TopicHandle<'a> {
    if request.version >= TOPIC_ID_VERSION { TopicHandle::Id(id) } else { TopicHandle::Name(name.0.as_str()) }
}

fn refusal(code: ResponseError, message: &str) -> AppendError {
    AppendError::new(code, message)
}

fn refused(index: i32, error: &AppendError) -> PartitionProduceResponse {
    let record_errors = error.record_errors.iter().map(|record| {
        BatchIndexAndErrorMessage::default()
            .with_batch_index(record.batch_index)
            .with_batch_index_error_message(Some(StrBytes::from_string(record.message.clone())))
    });
    PartitionProduceResponse::default()
        .with_index(index)
        .with_error_code(error.code.code())
        .with_base_offset(-1)
        .with_log_append_time_ms(-1)
        .with_log_start_offset(error.log_start_offset)
        .with_record_errors(record_errors.collect())
        .with_error_message(error.client_message().map(|words| StrBytes::from_string(words.to_owned())))
}

//! A small producer for the demo's own traffic: without idempotence, idempotent, or transactional (KIP-98).
//!
//! One request at a time for each leader, so that sequences need no window. What a broker refuses because it is not ready, or no longer the
//! leader, is sent again byte-identical.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, ApiKey, EndTxnRequest, EndTxnResponse,
    InitProducerIdRequest, ProduceRequest, ProducerId, TopicName, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;

use super::Error;
use crate::client::{Api, Class, Cluster, CoordinatorKind, ErrorCode, Node, Refresh, Topics};
use crate::record::{Attributes, BatchBuilder, BatchOptions, Codec, ProducerIdentity, RecordData};

/// `acks=all`.
const ACKS_ALL: i16 = -1;
/// `request.timeout.ms` and `transaction.timeout.ms` of the traffic.
const TIMEOUT_MS: i32 = 30_000;
/// Times that a request is sent again before the demo gives up.
const RETRIES_MAX: u32 = 50;
const RETRY_DELAY: Duration = Duration::from_millis(50);

impl Api for AddPartitionsToTxnRequest {
    const API: ApiKey = ApiKey::AddPartitionsToTxn;
    /// Version 4 is for brokers among themselves.
    const OURS: RangeInclusive<i16> = 0..=3;
    fn refusal(response: &AddPartitionsToTxnResponse) -> (ErrorCode, Option<String>) {
        let results = &response.results_by_topic_v3_and_below;
        let partitions = results.iter().flat_map(|topic| &topic.results_by_partition);
        let mut codes = partitions.map(|partition| ErrorCode(partition.partition_error_code));
        (codes.find(|&code| code != ErrorCode::NONE).unwrap_or(ErrorCode::NONE), None)
    }
}

impl Api for EndTxnRequest {
    const API: ApiKey = ApiKey::EndTxn;
    /// From version 5 on the epoch grows with each transaction (KIP-890).
    const OURS: RangeInclusive<i16> = 0..=4;
    fn refusal(response: &EndTxnResponse) -> (ErrorCode, Option<String>) {
        (ErrorCode(response.error_code), None)
    }
}

/// How a producer produces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `enable.idempotence=false`.
    Plain,
    /// `enable.idempotence=true`.
    Idempotent,
    /// With a `transactional.id`.
    Transactional(Arc<str>),
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Commit,
    Abort,
}

/// Records for one partition, as one batch.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) partition: i32,
    pub(super) codec: Codec,
    pub(super) records: Vec<RecordData>,
}

/// A producer of one cluster.
#[derive(Debug)]
pub(super) struct Producer {
    cluster: Cluster,
    kind: Kind,
    identity: ProducerIdentity,
    sequences: BTreeMap<(Arc<str>, i32), i32>,
}

impl Producer {
    /// Gets a producer id, if it needs one.
    pub(super) async fn start(cluster: Cluster, kind: Kind) -> Result<Producer, Error> {
        let mut identity = ProducerIdentity::NONE;
        if kind != Kind::Plain {
            let request = InitProducerIdRequest::default()
                .with_transactional_id(transactional_id(&kind))
                .with_transaction_timeout_ms(TIMEOUT_MS);
            let answer = cluster.call(coordinator(&kind), &request).await?.response;
            identity = ProducerIdentity {
                producer_id: answer.producer_id.0,
                producer_epoch: answer.producer_epoch,
                base_sequence: 0,
            };
        }
        Ok(Producer { cluster, kind, identity, sequences: BTreeMap::new() })
    }

    /// Opens a transaction on these partitions; does nothing for other producers.
    pub(super) async fn begin(&self, topic: &Arc<str>, partitions: &[i32]) -> Result<(), Error> {
        let Kind::Transactional(id) = &self.kind else { return Ok(()) };
        let topic = AddPartitionsToTxnTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(partitions.to_vec());
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(wire_id(id))
            .with_v3_and_below_producer_id(ProducerId(self.identity.producer_id))
            .with_v3_and_below_producer_epoch(self.identity.producer_epoch)
            .with_v3_and_below_topics(vec![topic]);
        self.cluster.call(coordinator(&self.kind), &request).await?;
        Ok(())
    }

    /// Ends the transaction; does nothing for other producers.
    pub(super) async fn end(&self, ending: Ending) -> Result<(), Error> {
        let Kind::Transactional(id) = &self.kind else { return Ok(()) };
        let request = EndTxnRequest::default()
            .with_transactional_id(wire_id(id))
            .with_producer_id(ProducerId(self.identity.producer_id))
            .with_producer_epoch(self.identity.producer_epoch)
            .with_committed(ending == Ending::Commit);
        self.cluster.call(coordinator(&self.kind), &request).await?;
        Ok(())
    }

    /// Appends one batch to each of these partitions and waits until all are acknowledged. Gives the bytes of the batches.
    pub(super) async fn send(&mut self, topic: &Arc<str>, loads: &[Load]) -> Result<u64, Error> {
        let mut waiting = BTreeMap::new();
        let mut bytes = 0;
        for load in loads.iter().filter(|load| !load.records.is_empty()) {
            let batch = self.batch(topic, load)?;
            bytes += batch.len() as u64;
            waiting.insert(load.partition, batch);
        }
        for _ in 0..RETRIES_MAX {
            let refused = self.send_once(topic, &mut waiting).await?;
            match refused {
                _ if waiting.is_empty() => return Ok(bytes),
                Some((partition, code)) if !matches!(code.class(), Class::Retriable(_)) => {
                    return Err(Error::Refused { topic: topic.clone(), partition, code });
                }
                Some((_, code)) if code.class() != Class::Retriable(Refresh::Metadata) => {}
                _ => drop(self.cluster.refresh(Topics::Named(vec![topic.clone()])).await?),
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
        let partition = waiting.keys().next().copied().unwrap_or(-1);
        Err(Error::Refused { topic: topic.clone(), partition, code: ErrorCode::LEADER_NOT_AVAILABLE })
    }

    /// Sends what waits, and takes out what is acknowledged. Gives the last refusal.
    async fn send_once(
        &self,
        topic: &Arc<str>,
        waiting: &mut BTreeMap<i32, Bytes>,
    ) -> Result<Option<(i32, ErrorCode)>, Error> {
        let mut answers = Vec::new();
        for (leader, partitions) in self.by_leader(topic, waiting.keys().copied()).await? {
            let (cluster, request) = (self.cluster.clone(), self.request(topic, &partitions, waiting));
            let call = async move { cluster.call(Node::Broker(leader), &request).await };
            answers.push(self.cluster.seam().spawn(call));
        }
        let mut refused = None;
        for answer in answers {
            // A call that was cut off leaves its partitions waiting.
            let Ok(answer) = answer.await else { continue };
            let answer = answer?.response;
            for partition in answer.responses.iter().flat_map(|topic| &topic.partition_responses) {
                match ErrorCode(partition.error_code) {
                    ErrorCode::NONE => {
                        waiting.remove(&partition.index);
                    }
                    code => refused = Some((partition.index, code)),
                }
            }
        }
        Ok(refused)
    }

    async fn by_leader(
        &self,
        topic: &Arc<str>,
        partitions: impl Iterator<Item = i32>,
    ) -> Result<BTreeMap<i32, Vec<i32>>, Error> {
        let mut leaders: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for partition in partitions {
            let (leader, _) = self.cluster.leader(topic, partition).await?;
            leaders.entry(leader).or_default().push(partition);
        }
        Ok(leaders)
    }

    fn request(
        &self,
        topic: &Arc<str>,
        partitions: &[i32],
        waiting: &BTreeMap<i32, Bytes>,
    ) -> ProduceRequest {
        let data = partitions
            .iter()
            .map(|partition| {
                PartitionProduceData::default()
                    .with_index(*partition)
                    .with_records(waiting.get(partition).cloned())
            })
            .collect();
        let data = TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(data);
        ProduceRequest::default()
            .with_transactional_id(transactional_id(&self.kind))
            .with_acks(ACKS_ALL)
            .with_timeout_ms(TIMEOUT_MS)
            .with_topic_data(vec![data])
    }

    fn batch(&mut self, topic: &Arc<str>, load: &Load) -> Result<Bytes, Error> {
        let mut options = BatchOptions::new(load.codec);
        if self.kind != Kind::Plain {
            let sequence = self.sequences.entry((topic.clone(), load.partition)).or_insert(0);
            options.identity = ProducerIdentity { base_sequence: *sequence, ..self.identity };
            *sequence = (*sequence).wrapping_add(load.records.len() as i32) & i32::MAX;
        }
        if matches!(self.kind, Kind::Transactional(_)) {
            options.attributes.0 |= Attributes::TRANSACTIONAL;
        }
        let mut builder = BatchBuilder::new(options);
        for record in &load.records {
            builder.push(record)?;
        }
        Ok(builder.build()?)
    }
}

fn coordinator(kind: &Kind) -> Node {
    match kind {
        Kind::Transactional(id) => Node::Coordinator(CoordinatorKind::Transaction, id.clone()),
        Kind::Plain | Kind::Idempotent => Node::Any,
    }
}

fn transactional_id(kind: &Kind) -> Option<TransactionalId> {
    match kind {
        Kind::Transactional(id) => Some(wire_id(id)),
        Kind::Plain | Kind::Idempotent => None,
    }
}

fn wire_id(id: &Arc<str>) -> TransactionalId {
    TransactionalId(StrBytes::from_string(id.to_string()))
}

fn topic_name(topic: &Arc<str>) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_string()))
}

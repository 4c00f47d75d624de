//! The transaction coordinator's APIs: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    EndTxnRequest, EndTxnResponse, InitProducerIdRequest, InitProducerIdResponse, ProducerId,
    WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};

use super::transaction::{Decided, EndMode, Init, Phase, Producer, Transaction};
use super::{ClusterState, Handled};
use crate::broker::log::{Marker, TransactionResult};
use crate::broker::wire::Request;

/// `transaction.max.timeout.ms`.
const TIMEOUT_MS_MAX: i32 = 900_000;
/// Between two tries to write the markers of a partition without a leader.
const MARKER_RETRY_MS: i64 = 100;
/// Epoch of the coordinator in markers: it never moves to another.
const COORDINATOR_EPOCH: i32 = 0;

/// All transactional ids, and the producer ids given out.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    by_id: BTreeMap<String, Transaction>,
    ids: ProducerIds,
}

/// Gives out producer ids.
#[derive(Debug, Default)]
struct ProducerIds {
    last: i64,
}

impl ProducerIds {
    fn next(&mut self) -> i64 {
        self.last += 1;
        self.last
    }
}

impl Transactions {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Transaction)> {
        self.by_id.iter().map(|(id, transaction)| (id.as_str(), transaction))
    }

    pub(super) fn get(&self, id: &str) -> Option<&Transaction> {
        self.by_id.get(id)
    }

    /// Whether this producer's open transaction holds the partition; else what speaks against it.
    pub(super) fn verify(
        &self,
        id: &str,
        producer: Producer,
        (topic, partition): (&str, i32),
    ) -> Result<(), ResponseError> {
        let transaction = self.by_id.get(id).ok_or(ResponseError::InvalidProducerIdMapping)?;
        transaction.check(producer)?;
        match transaction.phase {
            Phase::Prepare { .. } => Err(ResponseError::ConcurrentTransactions),
            Phase::Ongoing { .. } if transaction.partitions.contains(&(topic.to_owned(), partition)) => {
                Ok(())
            }
            Phase::Empty | Phase::Ongoing { .. } | Phase::Complete(_) => Err(ResponseError::InvalidTxnState),
        }
    }

    /// Adds a partition because a Produce of version 12 or later writes to it.
    pub(super) fn add_partition(
        &mut self,
        id: &str,
        producer: Producer,
        (topic, partition): (&str, i32),
        now_ms: i64,
    ) -> Result<(), ResponseError> {
        let transaction = self.by_id.get_mut(id).ok_or(ResponseError::InvalidProducerIdMapping)?;
        transaction.begin(producer, now_ms)?;
        transaction.partitions.insert((topic.to_owned(), partition));
        Ok(())
    }

    /// Adds a group to an open transaction, or begins one with it.
    pub(super) fn add_group(
        &mut self,
        id: &str,
        producer: Producer,
        group: &str,
        now_ms: i64,
    ) -> Result<(), ResponseError> {
        let transaction = self.by_id.get_mut(id).ok_or(ResponseError::InvalidProducerIdMapping)?;
        transaction.begin(producer, now_ms)?;
        transaction.groups.insert(group.to_owned());
        Ok(())
    }

    pub(super) fn remove(&mut self, id: &str) -> bool {
        self.by_id.remove(id).is_some()
    }

    pub(super) fn next_timer_ms(&self) -> Option<i64> {
        self.by_id.values().filter_map(Transaction::due_ms).min()
    }
}

impl ClusterState {
    pub(super) fn handle_init_producer_id(&mut self, request: &Request, now_ms: i64) -> Handled {
        let body: InitProducerIdRequest = request.decode()?;
        let reply = InitProducerIdResponse::default().with_throttle_time_ms(self.settings.throttle_ms);
        let reply = match self.init_producer_id(request, &body, now_ms) {
            Ok((id, epoch)) => reply.with_producer_id(ProducerId(id)).with_producer_epoch(epoch),
            Err(code) => reply.with_error_code(code).with_producer_id(ProducerId(-1)).with_producer_epoch(-1),
        };
        Ok(request.reply(&reply))
    }

    fn init_producer_id(
        &mut self,
        request: &Request,
        body: &InitProducerIdRequest,
        now_ms: i64,
    ) -> Result<Producer, i16> {
        if let Some(code) = request.refuse_with {
            return Err(code);
        }
        let Some(id) = &body.transactional_id else {
            return Ok((self.transactions.ids.next(), 0));
        };
        if id.is_empty() {
            return Err(ResponseError::InvalidRequest.code());
        }
        self.check_coordinator(request, id)?;
        if !(1..=TIMEOUT_MS_MAX).contains(&body.transaction_timeout_ms) {
            return Err(ResponseError::InvalidTransactionTimeout.code());
        }
        let timeout_ms = i64::from(body.transaction_timeout_ms);
        let expected = (body.producer_id.0 >= 0).then_some((body.producer_id.0, body.producer_epoch));
        let due_ms = now_ms + self.settings.marker_delay_ms;
        let Transactions { by_id, ids } = &mut self.transactions;
        let Some(transaction) = by_id.get_mut(id.as_str()) else {
            let new = Transaction::new(ids.next(), timeout_ms);
            let producer = (new.producer_id, new.epoch);
            by_id.insert(id.to_string(), new);
            return Ok(producer);
        };
        let init = transaction.init(expected, timeout_ms, || ids.next());
        if init == Ok(Init::AbortFirst) {
            transaction.fence(due_ms, || ids.next());
        }
        match init {
            Ok(Init::Ready(producer)) => Ok(producer),
            Ok(Init::AbortFirst) => {
                self.tick_transactions(now_ms);
                Err(ResponseError::ConcurrentTransactions.code())
            }
            Err(error) => Err(fenced_code(error, request.version >= 4)),
        }
    }

    pub(super) fn handle_add_partitions_to_txn(&mut self, request: &Request, now_ms: i64) -> Handled {
        let body: AddPartitionsToTxnRequest = request.decode()?;
        let reply = AddPartitionsToTxnResponse::default().with_throttle_time_ms(self.settings.throttle_ms);
        if request.version <= 3 {
            let producer = (body.v3_and_below_producer_id.0, body.v3_and_below_producer_epoch);
            let id = body.v3_and_below_transactional_id.to_string();
            let results =
                self.add_partitions_to_txn(request, &id, producer, &body.v3_and_below_topics, now_ms);
            return Ok(request.reply(&reply.with_results_by_topic_v3_and_below(results)));
        }
        let mut results = Vec::with_capacity(body.transactions.len());
        for asked in &body.transactions {
            let producer = (asked.producer_id.0, asked.producer_epoch);
            let topics = if asked.verify_only {
                self.verify_partitions(request.version, &asked.transactional_id, producer, &asked.topics)
            } else {
                self.add_partitions_to_txn(request, &asked.transactional_id, producer, &asked.topics, now_ms)
            };
            results.push(
                AddPartitionsToTxnResult::default()
                    .with_transactional_id(asked.transactional_id.clone())
                    .with_topic_results(topics),
            );
        }
        Ok(request.reply(&reply.with_results_by_transaction(results)))
    }

    fn add_partitions_to_txn(
        &mut self,
        request: &Request,
        id: &str,
        producer: Producer,
        topics: &[AddPartitionsToTxnTopic],
        now_ms: i64,
    ) -> Vec<AddPartitionsToTxnTopicResult> {
        let exists = |topic: &str, index| self.topics.partition(topic, index).is_some();
        let has_unknown =
            topics.iter().any(|topic| topic.partitions.iter().any(|&index| !exists(&topic.name, index)));
        if has_unknown {
            return results(topics, |topic, index| match exists(topic, index) {
                true => ResponseError::OperationNotAttempted.code(),
                false => ResponseError::UnknownTopicOrPartition.code(),
            });
        }
        let checked =
            request.refuse_with.map_or(Ok(()), Err).and_then(|()| self.check_coordinator(request, id));
        let code = checked.and_then(|()| {
            let unknown = ResponseError::InvalidProducerIdMapping.code();
            let transaction = self.transactions.by_id.get_mut(id).ok_or(unknown)?;
            transaction.begin(producer, now_ms).map_err(|error| fenced_code(error, request.version >= 2))?;
            for topic in topics {
                transaction
                    .partitions
                    .extend(topic.partitions.iter().map(|&index| (topic.name.to_string(), index)));
            }
            Ok(())
        });
        results(topics, |_, _| code.err().unwrap_or_default())
    }

    fn verify_partitions(
        &self,
        version: i16,
        id: &str,
        producer: Producer,
        topics: &[AddPartitionsToTxnTopic],
    ) -> Vec<AddPartitionsToTxnTopicResult> {
        results(topics, |topic, index| match self.transactions.verify(id, producer, (topic, index)) {
            Ok(()) => 0,
            Err(ResponseError::InvalidTxnState) if version >= 5 => ResponseError::TransactionAbortable.code(),
            Err(error) => error.code(),
        })
    }

    pub(super) fn handle_add_offsets_to_txn(&mut self, request: &Request, now_ms: i64) -> Handled {
        let body: AddOffsetsToTxnRequest = request.decode()?;
        let producer = (body.producer_id.0, body.producer_epoch);
        let checked = request.refuse_with.map_or(Ok(()), Err);
        let added =
            checked.and_then(|()| self.check_coordinator(request, &body.transactional_id)).and_then(|()| {
                self.transactions
                    .add_group(&body.transactional_id, producer, &body.group_id, now_ms)
                    .map_err(|error| fenced_code(error, request.version >= 2))
            });
        let reply = AddOffsetsToTxnResponse::default().with_error_code(added.err().unwrap_or_default());
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    pub(super) fn handle_end_txn(&mut self, request: &Request, now_ms: i64) -> Handled {
        let body: EndTxnRequest = request.decode()?;
        let reply = EndTxnResponse::default().with_throttle_time_ms(self.settings.throttle_ms);
        let reply = match self.end_txn(request, &body, now_ms) {
            Ok((id, epoch)) if request.version >= 5 => {
                reply.with_producer_id(ProducerId(id)).with_producer_epoch(epoch)
            }
            Ok(_) => reply,
            Err(code) => reply.with_error_code(code),
        };
        Ok(request.reply(&reply))
    }

    fn end_txn(&mut self, request: &Request, body: &EndTxnRequest, now_ms: i64) -> Result<Producer, i16> {
        request.refuse_with.map_or(Ok(()), Err)?;
        self.check_coordinator(request, &body.transactional_id)?;
        let result = if body.committed { TransactionResult::Commit } else { TransactionResult::Abort };
        let mode = if request.version >= 5 { EndMode::BumpEpoch } else { EndMode::KeepEpoch };
        let due_ms = now_ms + self.settings.marker_delay_ms;
        let Transactions { by_id, ids } = &mut self.transactions;
        let unknown = ResponseError::InvalidProducerIdMapping.code();
        let transaction = by_id.get_mut(body.transactional_id.as_str()).ok_or(unknown)?;
        let decided = transaction
            .end((body.producer_id.0, body.producer_epoch), result, mode, due_ms, || ids.next())
            .map_err(|error| fenced_code(error, request.version >= 2))?;
        let producer = (transaction.producer_id, transaction.epoch);
        if decided == Decided::Now {
            self.tick_transactions(now_ms);
        }
        Ok(producer)
    }

    /// Aborts transactions whose time is over, and writes the markers that are due.
    pub(super) fn tick_transactions(&mut self, now_ms: i64) {
        let is_due =
            |transaction: &&mut Transaction| transaction.due_ms().is_some_and(|due_ms| due_ms <= now_ms);
        let Transactions { by_id, ids } = &mut self.transactions;
        for transaction in by_id.values_mut().filter(is_due) {
            if transaction.is_ongoing() {
                transaction.fence(now_ms, || ids.next());
            }
        }
        let due: Vec<String> = self
            .transactions
            .by_id
            .iter()
            .filter(|(_, transaction)| matches!(transaction.phase, Phase::Prepare { due_ms, .. } if due_ms <= now_ms))
            .map(|(id, _)| id.clone())
            .collect();
        for id in due {
            self.write_markers(&id, now_ms);
        }
    }

    fn write_markers(&mut self, id: &str, now_ms: i64) {
        let Some(mut transaction) = self.transactions.by_id.remove(id) else { return };
        if let Phase::Prepare { result, .. } = transaction.phase {
            let (producer_id, producer_epoch) = transaction.marked;
            let marker = Marker { producer_id, producer_epoch, coordinator_epoch: COORDINATOR_EPOCH, result };
            for group in std::mem::take(&mut transaction.groups) {
                self.groups.end_transaction(&group, producer_id, result);
            }
            let partitions = std::mem::take(&mut transaction.partitions);
            transaction.partitions = partitions
                .into_iter()
                .filter(|(topic, index)| !self.mark(topic, *index, &marker, now_ms))
                .collect();
            transaction.phase = match transaction.partitions.is_empty() {
                true => Phase::Complete(result),
                false => Phase::Prepare { result, due_ms: now_ms + MARKER_RETRY_MS },
            };
        }
        self.transactions.by_id.insert(id.to_owned(), transaction);
    }

    /// Writes a marker; false while the partition has no leader to write it.
    fn mark(&mut self, topic: &str, index: i32, marker: &Marker, now_ms: i64) -> bool {
        let Some(partition) = self.topics.partition_mut(topic, index) else { return true };
        if partition.leader.is_none() {
            return false;
        }
        if let Err(error) = partition.log.write_marker(now_ms, partition.leader_epoch, marker) {
            tracing::debug!(topic, index, %error, "embedded broker refuses a transaction marker");
        }
        self.wake_fetches_of(topic, index..index + 1);
        true
    }

    pub(super) fn handle_write_txn_markers(&mut self, request: &Request, now_ms: i64) -> Handled {
        let body: WriteTxnMarkersRequest = request.decode()?;
        let mut markers = Vec::with_capacity(body.markers.len());
        for asked in &body.markers {
            let result =
                if asked.transaction_result { TransactionResult::Commit } else { TransactionResult::Abort };
            let marker = Marker {
                producer_id: asked.producer_id.0,
                producer_epoch: asked.producer_epoch,
                coordinator_epoch: asked.coordinator_epoch,
                result,
            };
            let mut topics = Vec::with_capacity(asked.topics.len());
            for topic in &asked.topics {
                let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
                for &index in &topic.partition_indexes {
                    let code = self.write_marker_asked(request, &topic.name, index, &marker, now_ms).err();
                    partitions.push(
                        WritableTxnMarkerPartitionResult::default()
                            .with_partition_index(index)
                            .with_error_code(code.unwrap_or_default()),
                    );
                }
                topics.push(
                    WritableTxnMarkerTopicResult::default()
                        .with_name(topic.name.clone())
                        .with_partitions(partitions),
                );
            }
            markers.push(
                WritableTxnMarkerResult::default().with_producer_id(asked.producer_id).with_topics(topics),
            );
        }
        Ok(request.reply(&WriteTxnMarkersResponse::default().with_markers(markers)))
    }

    fn write_marker_asked(
        &mut self,
        request: &Request,
        topic: &str,
        index: i32,
        marker: &Marker,
        now_ms: i64,
    ) -> Result<(), i16> {
        self.led(request, topic, index)?;
        let unknown = ResponseError::UnknownTopicOrPartition.code();
        let partition = self.topics.partition_mut(topic, index).ok_or(unknown)?;
        let epoch = partition.leader_epoch;
        partition.log.write_marker(now_ms, epoch, marker).map_err(|error| error.code.code())?;
        self.wake_fetches_of(topic, index..index + 1);
        Ok(())
    }

    /// Refuses what belongs to another broker's coordinator.
    pub(super) fn check_coordinator(&self, request: &Request, key: &str) -> Result<(), i16> {
        if self.coordinator(key) == Some(request.broker.0) {
            Ok(())
        } else {
            Err(ResponseError::NotCoordinator.code())
        }
    }
}

/// Clients of old versions know a fenced producer under another error.
fn fenced_code(error: ResponseError, knows_fenced: bool) -> i16 {
    match error {
        ResponseError::ProducerFenced if !knows_fenced => ResponseError::InvalidProducerEpoch.code(),
        error => error.code(),
    }
}

fn results(
    topics: &[AddPartitionsToTxnTopic],
    code: impl Fn(&str, i32) -> i16,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let result = |topic: &AddPartitionsToTxnTopic| {
        let partitions = topic.partitions.iter().map(|&index| {
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(index)
                .with_partition_error_code(code(&topic.name, index))
        });
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name.clone())
            .with_results_by_partition(partitions.collect())
    };
    topics.iter().map(result).collect()
}

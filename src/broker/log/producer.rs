//! What a partition remembers of its producers: the last five batches, the epoch, the open transaction (KIP-98, KIP-360;
//! `ProducerStateManager.java`, `ProducerAppendInfo.java`).
//!
//! Invariants: a producer holds at most five batches, all of its current epoch; a resend is known by its first and last
//! sequence alone, whatever it contains; sequences run from 0 to 2³¹−1 and start over at 0.

use std::collections::{BTreeMap, VecDeque};

use kafka_protocol::error::ResponseError;

use super::error::AppendError;
use super::validate::Verification;
use super::verification::Verifications;
use crate::record::{BatchHeader, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE};

/// Batches that are remembered per producer.
pub const BATCHES_REMEMBERED: usize = 5;

/// A producer as DescribeProducers shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerInfo {
    /// Its id.
    pub producer_id: i64,
    /// Its last epoch.
    pub producer_epoch: i16,
    /// The last sequence of that epoch, or −1.
    pub last_sequence: i32,
    /// The largest timestamp of its last batch.
    pub last_timestamp: i64,
    /// Epoch of the coordinator that wrote the last marker, or −1.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction, or −1.
    pub current_txn_start_offset: i64,
}

/// A batch that was appended before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remembered {
    pub(super) first_sequence: i32,
    pub(super) last_sequence: i32,
    pub(super) first_offset: i64,
    pub(super) timestamp: i64,
}

#[derive(Clone, Debug)]
struct Producer {
    epoch: i16,
    coordinator_epoch: i32,
    last_timestamp: i64,
    last_data_offset: Option<i64>,
    batches: VecDeque<Remembered>,
    txn_start_offset: Option<i64>,
}

impl Producer {
    fn new(epoch: i16) -> Producer {
        Producer {
            epoch,
            coordinator_epoch: -1,
            last_timestamp: -1,
            last_data_offset: None,
            batches: VecDeque::new(),
            txn_start_offset: None,
        }
    }

    fn last_sequence(&self) -> i32 {
        self.batches.back().map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }

    fn enter_epoch(&mut self, epoch: i16) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.batches.clear();
            self.last_data_offset = None;
        }
    }
}

/// The batch or marker that each producer's state rests on: compaction keeps it, if only as an empty batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastEntry {
    Data { last_offset: i64 },
    Marker { producer_epoch: i16 },
}

/// All producers of one partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Producers {
    producers: BTreeMap<i64, Producer>,
    verifications: Verifications,
}

impl Producers {
    /// Whether the coordinator must know of the transaction before this batch is appended (KIP-890). The question itself is
    /// remembered.
    pub(super) fn needs_verification(&mut self, header: &BatchHeader) -> bool {
        if header.producer_id == NO_PRODUCER_ID || !header.attributes.is_transactional() {
            return false;
        }
        let open = self.producers.get(&header.producer_id).is_some_and(|producer| {
            producer.txn_start_offset.is_some() && producer.epoch == header.producer_epoch
        });
        if !open {
            self.verifications.begin(header);
        }
        !open
    }

    /// The batch among the remembered ones that `header` repeats.
    pub(super) fn duplicate_of(&self, header: &BatchHeader) -> Option<Remembered> {
        let producer = self.producers.get(&header.producer_id)?;
        if producer.epoch != header.producer_epoch {
            return None;
        }
        let last_sequence = last_sequence(header);
        producer
            .batches
            .iter()
            .find(|batch| {
                batch.first_sequence == header.base_sequence && batch.last_sequence == last_sequence
            })
            .copied()
    }

    /// Whether a client may append this batch of a known or new producer.
    pub(super) fn check(
        &self,
        header: &BatchHeader,
        offset: i64,
        verification: Verification,
        partition: &str,
    ) -> Result<(), AppendError> {
        let producer = self.producers.get(&header.producer_id);
        self.check_epoch(header.producer_id, header.producer_epoch, offset, partition)?;
        self.check_pending(header, offset, partition)?;
        check_sequence(producer, header, offset, verification, partition)?;
        if !header.attributes.is_transactional()
            && producer.is_some_and(|producer| producer.txn_start_offset.is_some())
        {
            return Err(AppendError::new(
                ResponseError::InvalidTxnState,
                format!(
                    "Expected transactional write from producer {} at offset {offset} in partition {partition}",
                    header.producer_id
                ),
            ));
        }
        Ok(())
    }

    fn check_pending(&self, header: &BatchHeader, offset: i64, partition: &str) -> Result<(), AppendError> {
        match self.verifications.lowest_sequence(header.producer_id) {
            Some(lowest) if header.base_sequence > lowest => Err(AppendError::new(
                ResponseError::OutOfOrderSequenceNumber,
                format!(
                    "Out of order sequence number for producer {} at offset {offset} in partition {partition}: {} \
                     (incoming seq. number), {lowest} (earliest seen sequence)",
                    header.producer_id, header.base_sequence
                ),
            )),
            _ => Ok(()),
        }
    }

    fn check_epoch(
        &self,
        producer_id: i64,
        producer_epoch: i16,
        offset: i64,
        partition: &str,
    ) -> Result<(), AppendError> {
        match self.producers.get(&producer_id) {
            Some(producer) if producer_epoch < producer.epoch => Err(AppendError::new(
                ResponseError::InvalidProducerEpoch,
                format!(
                    "Epoch of producer {producer_id} at offset {offset} in {partition} is {producer_epoch}, \
                     which is smaller than the last seen epoch {}",
                    producer.epoch
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Whether a coordinator may end this producer's transaction.
    pub(super) fn check_marker(
        &self,
        producer_id: i64,
        producer_epoch: i16,
        coordinator_epoch: i32,
        offset: i64,
        partition: &str,
    ) -> Result<(), AppendError> {
        self.check_epoch(producer_id, producer_epoch, offset, partition)?;
        match self.producers.get(&producer_id) {
            Some(producer) if producer.coordinator_epoch > coordinator_epoch => Err(AppendError::new(
                ResponseError::TransactionCoordinatorFenced,
                format!(
                    "Invalid coordinator epoch for producerId {producer_id} at offset {offset} in partition \
                     {partition}: {coordinator_epoch} (zombie), {} (current)",
                    producer.coordinator_epoch
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Remembers an appended batch.
    pub(super) fn appended(&mut self, header: &BatchHeader) {
        if header.attributes.is_transactional() {
            self.verifications.end(header.producer_id);
        }
        let producer =
            self.producers.entry(header.producer_id).or_insert_with(|| Producer::new(header.producer_epoch));
        producer.enter_epoch(header.producer_epoch);
        if producer.batches.len() == BATCHES_REMEMBERED {
            producer.batches.pop_front();
        }
        producer.batches.push_back(Remembered {
            first_sequence: header.base_sequence,
            last_sequence: last_sequence(header),
            first_offset: header.base_offset,
            timestamp: header.max_timestamp,
        });
        producer.last_timestamp = header.max_timestamp;
        producer.last_data_offset = Some(header.last_offset());
        if header.attributes.is_transactional() && producer.txn_start_offset.is_none() {
            producer.txn_start_offset = Some(header.base_offset);
        }
    }

    /// Remembers a marker and gives the first offset of the transaction that it ends, if there was one.
    pub(super) fn ended(&mut self, header: &BatchHeader, coordinator_epoch: i32) -> Option<i64> {
        self.verifications.end(header.producer_id);
        let producer =
            self.producers.entry(header.producer_id).or_insert_with(|| Producer::new(header.producer_epoch));
        producer.enter_epoch(header.producer_epoch);
        producer.coordinator_epoch = coordinator_epoch;
        producer.last_timestamp = header.max_timestamp;
        producer.txn_start_offset.take()
    }

    /// First offset of the oldest open transaction.
    pub(super) fn first_open(&self) -> Option<i64> {
        self.producers.values().filter_map(|producer| producer.txn_start_offset).min()
    }

    /// The producer whose transaction holds the last stable offset back, and since when.
    pub(super) fn oldest_open(&self) -> Option<(i64, i64)> {
        self.producers
            .iter()
            .filter_map(|(&id, producer)| producer.txn_start_offset.map(|offset| (offset, id)))
            .min()
            .map(|(offset, id)| (id, offset))
    }

    /// Forgets producers that have been idle (`producer.id.expiration.ms`) and have no open transaction.
    pub(super) fn expire(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        let before = self.producers.len();
        self.producers.retain(|_, producer| {
            producer.txn_start_offset.is_some()
                || now_ms.saturating_sub(producer.last_timestamp) < expiration_ms
        });
        before - self.producers.len()
    }

    pub(super) fn clear(&mut self) {
        self.producers.clear();
        self.verifications.clear();
    }

    pub(super) fn last_entry(&self, producer_id: i64) -> Option<LastEntry> {
        let producer = self.producers.get(&producer_id)?;
        Some(match producer.last_data_offset {
            Some(last_offset) => LastEntry::Data { last_offset },
            None => LastEntry::Marker { producer_epoch: producer.epoch },
        })
    }

    pub(super) fn list(&self) -> Vec<ProducerInfo> {
        self.producers
            .iter()
            .map(|(&producer_id, producer)| ProducerInfo {
                producer_id,
                producer_epoch: producer.epoch,
                last_sequence: producer.last_sequence(),
                last_timestamp: producer.last_timestamp,
                coordinator_epoch: producer.coordinator_epoch,
                current_txn_start_offset: producer.txn_start_offset.unwrap_or(-1),
            })
            .collect()
    }
}

fn check_sequence(
    producer: Option<&Producer>,
    header: &BatchHeader,
    offset: i64,
    verification: Verification,
    partition: &str,
) -> Result<(), AppendError> {
    let out_of_order = |message| Err(AppendError::new(ResponseError::OutOfOrderSequenceNumber, message));
    let id = header.producer_id;
    let first = header.base_sequence;
    let known = producer.filter(|producer| producer.epoch != NO_PRODUCER_EPOCH);
    let Some(producer) = known else {
        // Transactions of version 2 begin every epoch at sequence 0 (KIP-890); else any first sequence is accepted.
        if verification == Verification::DoneV2 && first != 0 {
            return out_of_order(format!(
                "Invalid sequence number for producer {id} at offset {offset} in partition {partition}: \
                 {first} (incoming seq. number). Expected sequence 0 for transactions v2 idempotent producer \
                 with no existing state."
            ));
        }
        return Ok(());
    };
    if producer.epoch != header.producer_epoch {
        if first != 0 {
            return out_of_order(format!(
                "Invalid sequence number for new epoch of producer {id} at offset {offset} in partition {partition}: \
                 {} (request epoch), {first} (seq. number), {} (current producer epoch)",
                header.producer_epoch, producer.epoch
            ));
        }
        return Ok(());
    }
    let last = producer.last_sequence();
    if first != next_sequence(last) {
        return out_of_order(format!(
            "Out of order sequence number for producer {id} at offset {offset} in partition {partition}: \
             {first} (incoming seq. number), {last} (current end sequence number)"
        ));
    }
    Ok(())
}

/// The sequence that follows: 2³¹−1 is followed by 0 (`DefaultRecordBatch.incrementSequence`).
fn next_sequence(sequence: i32) -> i32 {
    sequence.checked_add(1).unwrap_or(0)
}

fn last_sequence(header: &BatchHeader) -> i32 {
    let last = i64::from(header.base_sequence) + i64::from(header.last_offset_delta);
    if last > i64::from(i32::MAX) { (last - i64::from(i32::MAX) - 1) as i32 } else { last as i32 }
}

//! Compaction on command, by the rules of Kafka's log cleaner (`Cleaner.java`, `MemoryRecords.filterTo`; KIP-534).
//!
//! Everything below the last stable offset is cleaned, as if the active segment had just been rolled. The last record of a
//! key stays. Tombstones, and markers of transactions that left no batch, get a delete horizon (now + `delete.retention.ms`,
//! in the base timestamp, attribute bit 0x40) at the first pass and go at a pass after it. A batch keeps base offset, last
//! offset, producer and sequence; when it loses all records it goes, unless its producer's state rests on it: then its
//! header stays. Batches are never merged. Entries of magic 0 and 1 and what cannot be read stay as they are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use super::PartitionLog;
use super::marker::{TransactionResult, read_marker};
use super::producer::LastEntry;
use super::store::Stored;
use crate::record::{
    Attributes, BatchBuilder, BatchHeader, BatchOptions, Codec, Error, NO_PRODUCER_ID, OpenBatch,
    ProducerIdentity, RecordData, TimestampType,
};

/// What a compaction removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Batches that are gone.
    pub batches_removed: usize,
    /// Batches of which only the header is left.
    pub batches_emptied: usize,
    /// Records that are gone.
    pub records_removed: usize,
}

impl PartitionLog {
    /// Compacts the log, if `cleanup.policy` compacts.
    pub fn compact(&mut self, now_ms: i64) -> Compacted {
        let mut done = Compacted::default();
        if !self.settings.cleanup_policy.compacts() {
            return done;
        }
        let end_offset = self.last_stable_offset();
        let latest = self.latest_offsets(end_offset);
        let store = std::mem::take(&mut self.store);
        let mut open = OpenTransactions::default();
        let mut kept = VecDeque::with_capacity(store.len());
        for stored in store.into_iter() {
            if stored.last_offset >= end_offset {
                kept.push_back(stored);
                continue;
            }
            kept.extend(self.clean(stored, &mut open, &latest, now_ms, &mut done));
        }
        self.store.replace(kept);
        done
    }

    /// The last offset of every key among the records that were not aborted.
    fn latest_offsets(&self, end_offset: i64) -> BTreeMap<Vec<u8>, i64> {
        let mut latest = BTreeMap::new();
        for stored in self.store.iter().take_while(|stored| stored.last_offset < end_offset) {
            let Some(batch) = self.open(&stored.bytes) else { continue };
            if batch.header.attributes.is_control() || self.is_aborted(&batch.header) {
                continue;
            }
            for record in batch.records().map_while(Result::ok) {
                if let Some(key) = record.key {
                    latest.insert(key.to_vec(), batch.offset(&record));
                }
            }
        }
        latest
    }

    fn open(&self, batch: &Bytes) -> Option<OpenBatch> {
        OpenBatch::open(batch, self.settings.decompressed_bytes_max).ok()
    }

    fn is_aborted(&self, header: &BatchHeader) -> bool {
        header.attributes.is_transactional()
            && self.transactions.is_aborted(header.producer_id, header.base_offset)
    }

    /// What is left of one batch.
    fn clean(
        &mut self,
        stored: Stored,
        open: &mut OpenTransactions,
        latest: &BTreeMap<Vec<u8>, i64>,
        now_ms: i64,
        done: &mut Compacted,
    ) -> Option<Stored> {
        let Some(batch) = self.open(&stored.bytes) else { return Some(stored) };
        let header = batch.header;
        let fate = self.fate(&header, &stored.bytes, open, now_ms);
        let records: Vec<_> = batch.records().map_while(Result::ok).collect();
        if records.len() != header.record_count as usize {
            return Some(stored);
        }
        let horizon = header.attributes.has_delete_horizon().then_some(header.base_timestamp);
        let tombstones_go = horizon.is_some_and(|horizon| now_ms >= horizon);
        let mut tombstones = false;
        let retained: Vec<(i32, RecordData)> = records
            .iter()
            .filter(|record| match fate {
                Fate::Discard => false,
                Fate::KeepMarker { .. } => true,
                Fate::ByKey => {
                    let stays = record
                        .key
                        .is_some_and(|key| latest.get(key).is_none_or(|&last| batch.offset(record) >= last))
                        && (record.value.is_some() || !tombstones_go);
                    tombstones |= stays && record.value.is_none();
                    stays
                }
            })
            .map(|record| (record.offset_delta, RecordData::copied(batch.timestamp(record), record)))
            .collect();
        done.records_removed += records.len() - retained.len();
        if retained.is_empty() {
            return self.emptied(stored, &header, done);
        }
        let needs_horizon = horizon.is_none()
            && (tombstones || matches!(fate, Fate::KeepMarker { of_empty_transaction: true }));
        if retained.len() == records.len() && !needs_horizon {
            return Some(stored);
        }
        let horizon = match needs_horizon {
            true => Some(now_ms.saturating_add(self.settings.delete_retention_ms)),
            false => horizon,
        };
        Some(match rebuilt(&header, horizon, &retained) {
            Ok(bytes) => with_bytes(stored, bytes),
            Err(_) => stored,
        })
    }

    fn fate(&self, header: &BatchHeader, bytes: &[u8], open: &mut OpenTransactions, now_ms: i64) -> Fate {
        if header.attributes.is_control() {
            let of_empty_transaction = open.end(header, bytes);
            let due = header.attributes.has_delete_horizon() && header.base_timestamp <= now_ms;
            return if of_empty_transaction && due {
                Fate::Discard
            } else {
                Fate::KeepMarker { of_empty_transaction }
            };
        }
        if !header.attributes.is_transactional() {
            return Fate::ByKey;
        }
        open.seen.insert(header.producer_id);
        if self.is_aborted(header) { Fate::Discard } else { Fate::ByKey }
    }

    /// A batch without records goes, unless its producer's state rests on it.
    fn emptied(&mut self, stored: Stored, header: &BatchHeader, done: &mut Compacted) -> Option<Stored> {
        let is_last = header.producer_id != NO_PRODUCER_ID
            && match self.producers.last_entry(header.producer_id) {
                Some(LastEntry::Data { last_offset }) => header.last_offset() == last_offset,
                Some(LastEntry::Marker { producer_epoch }) => {
                    header.attributes.is_control() && header.producer_epoch == producer_epoch
                }
                None => false,
            };
        if !is_last {
            done.batches_removed += 1;
            if header.attributes.is_control() {
                self.transactions.marker_removed(header.base_offset);
            }
            return None;
        }
        if header.record_count == 0 {
            return Some(stored);
        }
        match empty(header) {
            Ok(bytes) => {
                done.batches_emptied += 1;
                Some(with_bytes(stored, bytes))
            }
            Err(_) => Some(stored),
        }
    }
}

/// What happens to the records of a batch.
#[derive(Clone, Copy)]
enum Fate {
    /// Aborted, or a marker that nobody needs any more.
    Discard,
    KeepMarker {
        of_empty_transaction: bool,
    },
    ByKey,
}

/// Producers of which a transactional batch was seen since their last marker (`CleanedTransactionMetadata`).
#[derive(Default)]
struct OpenTransactions {
    seen: BTreeSet<i64>,
}

impl OpenTransactions {
    /// Whether the transaction that this marker ends has left no batch. An emptied marker counts as such.
    fn end(&mut self, header: &BatchHeader, bytes: &[u8]) -> bool {
        match read_marker(header, bytes) {
            Some((TransactionResult::Commit | TransactionResult::Abort, _)) => {
                !self.seen.remove(&header.producer_id)
            }
            None => header.record_count == 0,
        }
    }
}

fn rebuilt(
    header: &BatchHeader,
    horizon: Option<i64>,
    records: &[(i32, RecordData)],
) -> Result<Bytes, Error> {
    let mut attributes = header.attributes.0 & !Attributes::DELETE_HORIZON;
    if horizon.is_some() {
        attributes |= Attributes::DELETE_HORIZON;
    }
    let append_time = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
    let mut builder = BatchBuilder::new(BatchOptions {
        attributes: Attributes(attributes),
        base_timestamp: horizon,
        max_timestamp: append_time.then_some(header.max_timestamp),
        ..options_of(header)
    });
    for (offset_delta, record) in records {
        builder.push_at(*offset_delta, record)?;
    }
    builder.build()
}

fn empty(header: &BatchHeader) -> Result<Bytes, Error> {
    const KEPT: i16 = Attributes::LOG_APPEND_TIME | Attributes::TRANSACTIONAL | Attributes::CONTROL;
    let options = BatchOptions {
        attributes: Attributes(header.attributes.0 & KEPT),
        max_timestamp: Some(header.max_timestamp),
        ..options_of(header)
    };
    BatchBuilder::new(options).build()
}

fn options_of(header: &BatchHeader) -> BatchOptions {
    BatchOptions {
        base_offset: header.base_offset,
        partition_leader_epoch: header.partition_leader_epoch,
        identity: ProducerIdentity {
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
        },
        last_offset_delta: Some(header.last_offset_delta),
        ..BatchOptions::new(Codec::None)
    }
}

fn with_bytes(stored: Stored, bytes: Bytes) -> Stored {
    let max_timestamp =
        BatchHeader::parse(&bytes).map_or(stored.max_timestamp, |header| header.max_timestamp);
    Stored { bytes, max_timestamp, ..stored }
}

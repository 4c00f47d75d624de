//! One partition's log in memory, answering as a real broker's does.
//!
//! A [`PartitionLog`] is a plain struct: no clock, no lock, no I/O; time and the epoch of the leader are arguments. It can
//! be used by itself to learn what a broker would answer to a batch:
//!
//! ```
//! use bytes::Bytes;
//! use kmirror::broker::log::{LogSettings, Origin, PartitionLog, Verification};
//!
//! let mut log = PartitionLog::new("orders-0", LogSettings::default());
//! let refused = log.append(1_000, 0, &Bytes::from_static(b"no batch"), Origin::Client(Verification::Missing));
//! assert_eq!(refused.unwrap_err().code.code(), 87);
//! ```
//!
//! What is here: `frame`, `validate` and `scan` (what a broker checks of a batch), `violation` (what it does not), `producer` (idempotence),
//! `transactions` (last stable offset, aborted transactions), `epochs` (leader epochs), `read` (fetch and offset lookup),
//! `trim` (retention, DeleteRecords, truncation), `inject` (what a test puts in by hand).
//!
//! Invariants: `log start ≤ high watermark ≤ log end` and `last stable ≤ high watermark`; every offset is given out once, but for truncation;
//! stored bytes never change, but for compaction and [`PartitionLog::damage`].

mod compact;
#[cfg(test)]
mod compact_tests;
mod contents;
mod convert;
mod epochs;
mod error;
mod frame;
mod inject;
mod marker;
mod producer;
#[cfg(test)]
mod properties;
mod read;
mod scan;
mod settings;
mod store;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod transactions;
mod trim;
mod validate;
mod verification;
mod violation;

use bytes::{Bytes, BytesMut};
use kafka_protocol::error::ResponseError;

pub use compact::Compacted;
pub use epochs::{EpochEnd, EpochStart};
pub use error::{AppendError, OffsetOutOfRange, Reach, RecordError};
pub use frame::check_first_entry;
pub use marker::{Marker, TransactionResult};
pub use producer::{BATCHES_REMEMBERED, ProducerInfo};
pub use read::{FirstBatch, Isolation, ListedOffset, OffsetSpec, Read};
pub use settings::{CleanupPolicy, Compression, InvalidConfig, LogSettings, Strictness};
pub use transactions::AbortedTransaction;
pub use validate::{Origin, Verification};
pub use violation::{Violation, ViolationKind};

use crate::record::{Attributes, BatchHeader, NO_PRODUCER_ID, TimestampType, crc32c};
use epochs::EpochHistory;
use frame::the_batch;
use marker::{marker_batch, read_marker};
use producer::Producers;
use store::{Store, Stored};
use transactions::Transactions;
use validate::{Valid, validate};

/// `index.interval.bytes`.
const INDEX_INTERVAL_BYTES: usize = 4_096;
/// Violations that are kept; later ones are only counted.
const VIOLATIONS_MAX: usize = 1_000;

/// Whether a batch is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendKind {
    /// It was appended.
    New,
    /// It was there already; nothing was appended.
    Duplicate,
}

/// The answer to an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record; of the original batch for a duplicate.
    pub base_offset: i64,
    /// Time of the append in milliseconds with LogAppendTime, else −1. A duplicate gives its largest timestamp, as real
    /// brokers do.
    pub log_append_time: i64,
    /// First offset of the log.
    pub log_start_offset: i64,
    /// New or repeated.
    pub kind: AppendKind,
}

/// One partition's log.
#[derive(Clone, Debug)]
pub struct PartitionLog {
    partition: String,
    settings: LogSettings,
    store: Store,
    log_start_offset: i64,
    log_end_offset: i64,
    /// A high watermark that does not follow the log's end.
    held_high_watermark: Option<i64>,
    epochs: EpochHistory,
    producers: Producers,
    transactions: Transactions,
    violations: Vec<Violation>,
    violation_count: u64,
    /// Bytes behind the last batch that is in the offset index.
    unindexed_bytes: usize,
}

impl PartitionLog {
    /// An empty log. `partition` is its name in error messages, as `topic-0`.
    pub fn new(partition: impl Into<String>, settings: LogSettings) -> PartitionLog {
        PartitionLog {
            partition: partition.into(),
            settings,
            store: Store::default(),
            log_start_offset: 0,
            log_end_offset: 0,
            held_high_watermark: None,
            epochs: EpochHistory::default(),
            producers: Producers::default(),
            transactions: Transactions::default(),
            violations: Vec::new(),
            violation_count: 0,
            unindexed_bytes: 0,
        }
    }

    /// The settings that hold now.
    pub fn settings(&self) -> &LogSettings {
        &self.settings
    }

    /// Changes the settings; what is stored stays as it is.
    pub fn set_settings(&mut self, settings: LogSettings) {
        self.settings = settings;
    }

    /// Appends the one batch in a Produce request's records, or says what a broker would say against it. The bytes are
    /// copied.
    pub fn append(
        &mut self,
        now_ms: i64,
        leader_epoch: i32,
        batch: &Bytes,
        origin: Origin,
    ) -> Result<Appended, AppendError> {
        let batch = the_batch(batch)?;
        if let (Origin::Client(verification), Ok(header)) = (origin, BatchHeader::parse(&batch))
            && self.producers.needs_verification(&header)
        {
            match verification {
                Verification::Missing => {
                    return Err(AppendError::not_verified(ResponseError::InvalidTxnState));
                }
                Verification::Refused(code) => return Err(AppendError::not_verified(code)),
                Verification::Done | Verification::DoneV2 => {}
            }
        }
        let log_start_offset = self.log_start_offset;
        self.append_one(now_ms, leader_epoch, &batch, origin).map_err(|error| error.at_log(log_start_offset))
    }

    fn append_one(
        &mut self,
        now_ms: i64,
        leader_epoch: i32,
        batch: &Bytes,
        origin: Origin,
    ) -> Result<Appended, AppendError> {
        let Valid { header, max_timestamp, converted, violations } =
            validate(batch, origin, &self.settings, now_ms, &self.partition)?;
        self.check_room(header.size_bytes)?;
        if let Origin::Client(verification) = origin
            && header.producer_id != NO_PRODUCER_ID
        {
            if let Some(first) = self.producers.duplicate_of(&header) {
                return Ok(Appended {
                    base_offset: first.first_offset,
                    log_append_time: first.timestamp,
                    log_start_offset: self.log_start_offset,
                    kind: AppendKind::Duplicate,
                });
            }
            self.producers.check(&header, self.log_end_offset, verification, &self.partition)?;
        }
        let timestamp_type = self.settings.timestamp_type;
        let (max_timestamp, log_append_time) = match timestamp_type {
            TimestampType::CreateTime => (max_timestamp, -1),
            TimestampType::LogAppendTime => (now_ms, now_ms),
        };
        let base_offset = self.log_end_offset;
        let batch = converted.as_ref().unwrap_or(batch);
        let bytes = stored_bytes(batch, &header, base_offset, leader_epoch, timestamp_type, max_timestamp);
        self.note(base_offset, violations);
        self.push(bytes, BatchHeader { base_offset, max_timestamp, ..header }, leader_epoch);
        Ok(Appended {
            base_offset,
            log_append_time,
            log_start_offset: self.log_start_offset,
            kind: AppendKind::New,
        })
    }

    /// Ends a producer's transaction in this partition and gives the marker's offset. Without an open transaction the
    /// marker is written all the same, as real brokers do.
    pub fn write_marker(
        &mut self,
        now_ms: i64,
        leader_epoch: i32,
        marker: &Marker,
    ) -> Result<i64, AppendError> {
        let base_offset = self.log_end_offset;
        self.producers.check_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            base_offset,
            &self.partition,
        )?;
        let bytes = marker_batch(marker, base_offset, leader_epoch, self.settings.timestamp_type, now_ms);
        let header = BatchHeader::parse(&bytes).map_err(|error| AppendError::corrupt(error.to_string()))?;
        self.push(bytes, header, leader_epoch);
        Ok(base_offset)
    }

    /// This broker became leader with `leader_epoch`: its records begin at the log's end.
    pub fn start_epoch(&mut self, leader_epoch: i32) {
        self.epochs.assign(leader_epoch, self.log_end_offset);
    }

    /// The leader epochs that left records, and the newest.
    pub fn epochs(&self) -> &[EpochStart] {
        self.epochs.entries()
    }

    /// Where the records of `leader_epoch` end (OffsetForLeaderEpoch, KIP-320).
    pub fn end_offset_for_epoch(&self, leader_epoch: i32) -> EpochEnd {
        self.epochs.end_offset_for(leader_epoch, self.log_end_offset)
    }

    /// First offset that can be read.
    pub fn log_start_offset(&self) -> i64 {
        self.log_start_offset
    }

    /// Offset that the next record gets.
    pub fn log_end_offset(&self) -> i64 {
        self.log_end_offset
    }

    /// Offset up to which everything is replicated.
    pub fn high_watermark(&self) -> i64 {
        self.held_high_watermark
            .map_or(self.log_end_offset, |held| held.clamp(self.log_start_offset, self.log_end_offset))
    }

    /// Holds the high watermark at an offset, as if replicas lagged, or lets it follow the log's end again.
    pub fn hold_high_watermark(&mut self, held: Option<i64>) {
        self.held_high_watermark = held;
        self.transactions.replicated(self.high_watermark());
    }

    /// Offset up to which every transaction has ended. When a transaction that is open began below the log start, it is the
    /// base offset of the first batch, which may lie below the log start, too (`UnifiedLog.maybeIncrementFirstUnstableOffset`).
    pub fn last_stable_offset(&self) -> i64 {
        let high_watermark = self.high_watermark();
        let unstable = [self.producers.first_open(), self.transactions.first_unreplicated(high_watermark)];
        match unstable.into_iter().flatten().min() {
            None => high_watermark,
            Some(first) if first >= self.log_start_offset => first.min(high_watermark),
            Some(_) => {
                let front = self.store.front().map(|stored| stored.base_offset);
                front.unwrap_or(self.log_start_offset).min(high_watermark)
            }
        }
    }

    /// Producer and first offset of the oldest open transaction.
    pub fn oldest_open_transaction(&self) -> Option<(i64, i64)> {
        self.producers.oldest_open()
    }

    /// What is remembered of producers, by id.
    pub fn producers(&self) -> Vec<ProducerInfo> {
        self.producers.list()
    }

    /// Forgets producers that have been idle for `expiration_ms` and tells how many.
    pub fn expire_producers(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        self.producers.expire(now_ms, expiration_ms)
    }

    /// What brokers do not check and [`Strictness::Report`] found, oldest first, the first thousand.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// How many violations there were in all.
    pub fn violation_count(&self) -> u64 {
        self.violation_count
    }

    /// Bytes of the stored batches.
    pub fn size_bytes(&self) -> usize {
        self.store.size_bytes()
    }

    /// Number of stored batches.
    pub fn batch_count(&self) -> usize {
        self.store.len()
    }

    fn check_room(&self, batch_bytes: usize) -> Result<(), AppendError> {
        if batch_bytes > self.settings.segment_bytes {
            return Err(AppendError::new(
                ResponseError::RecordListTooLarge,
                format!(
                    "The record batch size in the append to {} is {batch_bytes} bytes which exceeds the maximum \
                     configured segment size of {}.",
                    self.partition, self.settings.segment_bytes
                ),
            ));
        }
        if self.store.size_bytes() + batch_bytes > self.settings.log_bytes_max {
            return Err(AppendError::new(
                ResponseError::KafkaStorageError,
                format!(
                    "{} is full: an embedded log holds at most {} bytes",
                    self.partition, self.settings.log_bytes_max
                ),
            ));
        }
        Ok(())
    }

    fn note(&mut self, base_offset: i64, violations: Vec<ViolationKind>) {
        self.violation_count += violations.len() as u64;
        let room = VIOLATIONS_MAX - self.violations.len();
        self.violations.extend(violations.into_iter().take(room).map(|kind| Violation { base_offset, kind }));
    }

    /// Stores a batch whose bytes are final and keeps everything that follows from it. `header` is what the bytes say.
    fn push(&mut self, bytes: Bytes, header: BatchHeader, leader_epoch: i32) {
        self.track(&header, &bytes);
        self.epochs.assign(leader_epoch, header.base_offset);
        self.log_end_offset = header.next_offset();
        // `LogSegment.append`: an index entry every `index.interval.bytes`.
        let is_indexed = self.unindexed_bytes > INDEX_INTERVAL_BYTES;
        self.unindexed_bytes = if is_indexed { bytes.len() } else { self.unindexed_bytes + bytes.len() };
        self.store.push(Stored {
            is_indexed,
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            max_timestamp: header.max_timestamp,
            leader_epoch,
            bytes,
        });
        self.transactions.replicated(self.high_watermark());
    }

    /// Producer and transaction state that follows from a stored batch.
    fn track(&mut self, header: &BatchHeader, bytes: &[u8]) {
        if header.producer_id == NO_PRODUCER_ID {
            return;
        }
        if !header.attributes.is_control() {
            self.producers.appended(header);
        } else if let Some((result, coordinator_epoch)) = read_marker(header, bytes)
            && let Some(first_offset) = self.producers.ended(header, coordinator_epoch)
        {
            match result {
                TransactionResult::Commit => {
                    self.transactions.committed(header.producer_id, first_offset, header.base_offset);
                }
                TransactionResult::Abort => {
                    self.transactions.aborted(header.producer_id, first_offset, header.base_offset);
                }
            }
        }
    }

    /// Producer and transaction state from the stored batches alone, as a broker rebuilds it without snapshots.
    fn rebuild(&mut self) {
        self.producers.clear();
        self.transactions.clear();
        let store = std::mem::take(&mut self.store);
        for stored in store.iter() {
            if let Ok(header) = BatchHeader::parse(&stored.bytes) {
                self.track(&header, &stored.bytes);
            }
        }
        self.store = store;
        self.transactions.replicated(self.high_watermark());
    }
}

/// The batch with its offset and leader epoch and, where they differ, timestamp type and largest timestamp, which lie
/// under the checksum (`DefaultRecordBatch.setMaxTimestamp`).
fn stored_bytes(
    batch: &[u8],
    header: &BatchHeader,
    base_offset: i64,
    leader_epoch: i32,
    timestamp_type: TimestampType,
    max_timestamp: i64,
) -> Bytes {
    let mut bytes = BytesMut::from(batch);
    bytes[0..8].copy_from_slice(&base_offset.to_be_bytes());
    bytes[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
    if header.attributes.timestamp_type() != timestamp_type || header.max_timestamp != max_timestamp {
        const KEPT: i16 = 0x77;
        let mut attributes = header.attributes.0 & KEPT;
        if timestamp_type == TimestampType::LogAppendTime {
            attributes |= Attributes::LOG_APPEND_TIME;
        }
        bytes[21..23].copy_from_slice(&attributes.to_be_bytes());
        bytes[35..43].copy_from_slice(&max_timestamp.to_be_bytes());
        let crc = crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    }
    bytes.freeze()
}

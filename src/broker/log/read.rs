//! Reading: whole batches from the one that holds an offset on, cut where the reader's limit is (`LogSegment.read`,
//! KIP-74), and offsets by name or time (ListOffsets).

use bytes::Bytes;

use super::contents::{Lengths, decompressed, for_each_record};
use super::error::OffsetOutOfRange;
use super::transactions::AbortedTransaction;
use super::{PartitionLog, Stored};
use crate::record::{BatchHeader, Codec, TimestampType};

/// Up to where a reader may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Up to the high watermark.
    ReadUncommitted,
    /// Up to the last stable offset, with the aborted transactions listed.
    ReadCommitted,
}

/// What happens when the first batch is larger than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstBatch {
    /// It is given whole, so that the reader gets on (KIP-74).
    Whole,
    /// Nothing is given.
    WithinLimit,
}

/// What a read gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Batches in offset order. The first may begin before the offset asked for; the last may be cut.
    pub batches: Vec<Bytes>,
    /// High watermark.
    pub high_watermark: i64,
    /// Last stable offset.
    pub last_stable_offset: i64,
    /// Log start offset.
    pub log_start_offset: i64,
    /// With read_committed, the aborted transactions among the batches, and maybe some behind them.
    pub aborted: Vec<AbortedTransaction>,
}

impl Read {
    /// Bytes of all batches.
    pub fn size_bytes(&self) -> usize {
        self.batches.iter().map(Bytes::len).sum()
    }
}

/// Which offset is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The log start offset.
    Earliest,
    /// The end that the isolation level allows.
    Latest,
    /// The record with the largest timestamp (KIP-734).
    MaxTimestamp,
    /// The first record of this time, in milliseconds, or a later one.
    Timestamp(i64),
}

impl OffsetSpec {
    /// From the number in a ListOffsets request; `None` for what this broker does not know.
    pub fn from_timestamp(timestamp: i64) -> Option<OffsetSpec> {
        match timestamp {
            -1 => Some(OffsetSpec::Latest),
            -2 | -4 => Some(OffsetSpec::Earliest),
            -3 => Some(OffsetSpec::MaxTimestamp),
            0.. => Some(OffsetSpec::Timestamp(timestamp)),
            _ => None,
        }
    }
}

/// An offset found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedOffset {
    /// The offset, or −1.
    pub offset: i64,
    /// Timestamp of its record where one was looked for, else −1.
    pub timestamp: i64,
    /// Leader epoch of its record, or −1.
    pub leader_epoch: i32,
}

impl ListedOffset {
    /// There is no such record.
    pub const NONE: ListedOffset = ListedOffset { offset: -1, timestamp: -1, leader_epoch: -1 };
}

impl PartitionLog {
    /// Reads at most `bytes_max` bytes from `offset` on. At or above the reader's end it gives no batches.
    pub fn read(
        &self,
        offset: i64,
        bytes_max: usize,
        isolation: Isolation,
        first: FirstBatch,
    ) -> Result<Read, OffsetOutOfRange> {
        self.check_offset(offset)?;
        let end_offset = self.visible_end(isolation);
        let (mut batches, mut left, mut next_offset) = (Vec::new(), bytes_max, offset);
        for stored in self.store.iter_from(offset).take_while(|stored| stored.base_offset < end_offset) {
            let bytes = if batches.is_empty() && left < stored.bytes.len() {
                match first {
                    FirstBatch::Whole => stored.bytes.clone(),
                    FirstBatch::WithinLimit => break,
                }
            } else {
                stored.bytes.slice(..stored.bytes.len().min(left))
            };
            left = left.saturating_sub(bytes.len());
            next_offset = stored.last_offset + 1;
            batches.push(bytes);
            if left == 0 {
                break;
            }
        }
        let aborted = match isolation {
            Isolation::ReadUncommitted => Vec::new(),
            Isolation::ReadCommitted if batches.is_empty() => Vec::new(),
            Isolation::ReadCommitted => {
                self.transactions.aborted_between(offset, self.indexed_offset_behind(next_offset))
            }
        };
        Ok(Read {
            batches,
            high_watermark: self.high_watermark(),
            last_stable_offset: self.last_stable_offset(),
            log_start_offset: self.log_start_offset(),
            aborted,
        })
    }

    /// Looks an offset up.
    pub fn list_offset(&self, spec: OffsetSpec, isolation: Isolation) -> ListedOffset {
        let named = |offset, leader_epoch| ListedOffset { offset, timestamp: -1, leader_epoch };
        let latest_epoch = self.epochs.latest().map_or(-1, |entry| entry.epoch);
        match spec {
            OffsetSpec::Earliest => {
                named(self.log_start_offset, self.epochs.epoch_at(self.log_start_offset).unwrap_or(-1))
            }
            OffsetSpec::Latest => named(self.visible_end(isolation), latest_epoch),
            OffsetSpec::MaxTimestamp => {
                let newest = self.store.iter().rev().max_by_key(|stored| stored.max_timestamp);
                newest.and_then(|stored| self.first_at_time(stored, stored.max_timestamp, isolation))
            }
            .unwrap_or(ListedOffset::NONE),
            OffsetSpec::Timestamp(timestamp) => self
                .store
                .iter()
                .filter(|stored| stored.max_timestamp >= timestamp)
                .find_map(|stored| self.first_at_time(stored, timestamp, isolation))
                .unwrap_or(ListedOffset::NONE),
        }
    }

    /// The end of what a reader may see.
    pub fn visible_end(&self, isolation: Isolation) -> i64 {
        match isolation {
            Isolation::ReadUncommitted => self.high_watermark(),
            Isolation::ReadCommitted => self.last_stable_offset(),
        }
    }

    /// The offset up to which aborted transactions are listed for a read that ends at `next_offset`: that of the next entry
    /// in the offset index (`LocalLog.addAbortedTransactions`). Readers must cope with more than they need.
    fn indexed_offset_behind(&self, next_offset: i64) -> i64 {
        let entry = self.store.iter_from(next_offset).find(|stored| stored.is_indexed);
        entry.map_or(self.log_end_offset, |stored| stored.last_offset)
    }

    pub(super) fn check_offset(&self, offset: i64) -> Result<(), OffsetOutOfRange> {
        let (log_start_offset, log_end_offset) = (self.log_start_offset, self.log_end_offset);
        if (log_start_offset..=log_end_offset).contains(&offset) {
            Ok(())
        } else {
            Err(OffsetOutOfRange { offset, log_start_offset, log_end_offset })
        }
    }

    fn first_at_time(&self, stored: &Stored, timestamp: i64, isolation: Isolation) -> Option<ListedOffset> {
        let (offset, timestamp) = self.record_at_time(stored, timestamp)?;
        let found = ListedOffset { offset, timestamp, leader_epoch: stored.leader_epoch };
        (offset < self.visible_end(isolation)).then_some(found)
    }

    /// The first record of the batch that has this time or a later one and is not below the log start.
    fn record_at_time(&self, stored: &Stored, timestamp: i64) -> Option<(i64, i64)> {
        let whole = (stored.base_offset.max(self.log_start_offset), stored.max_timestamp);
        let Ok(header) = BatchHeader::parse(&stored.bytes) else { return Some(whole) };
        if header.attributes.timestamp_type() == TimestampType::LogAppendTime {
            return Some(whole);
        }
        let codec = header.attributes.codec().ok()?;
        let records = decompressed(&stored.bytes, codec, self.settings.decompressed_bytes_max).ok()?;
        let lengths = if codec == Codec::None { Lengths::Checked } else { Lengths::Ignored };
        let mut found = None;
        let walked = for_each_record(&records, header.record_count, lengths, |record| {
            let offset = header.base_offset + i64::from(record.offset_delta);
            let time = header.base_timestamp.wrapping_add(record.timestamp_delta);
            if found.is_none() && time >= timestamp && offset >= self.log_start_offset {
                found = Some((offset, time));
            }
        });
        walked.ok().and(found)
    }
}

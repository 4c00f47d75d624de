//! What becomes of a fetched batch: forward it as it is, rewrite it, or leave it out.
//!
//! A pure table over the header, the position and the target's limits. What a broker accepts of a produced batch is
//! Kafka's `LogValidator`; which batches a read_committed reader skips is `CompletedFetch.java`.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::status::RewriteReason;
use crate::client::{AbortedTransaction, IsolationLevel};
use crate::record::{BatchHeader, Codec, TimestampType};

/// What becomes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The body goes as it is, under a header of ours.
    Forward,
    /// Decoded, renumbered, encoded.
    Rewrite(RewriteReason),
    /// Nothing of it goes to the target; the position moves over it.
    Skip(SkipReason),
}

/// Why a batch is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// Wholly below the position: it is on the target already.
    BelowPosition,
    /// A commit or abort marker: clients must not write those.
    Control,
    /// Part of an aborted transaction.
    Aborted,
    /// Compaction left no record of it.
    Empty,
}

/// What the target topic takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetLimits {
    /// `max.message.bytes` of the target topic: the whole batch, prefix included.
    pub max_message_bytes: usize,
}

impl Default for TargetLimits {
    /// Kafka's default for a topic (`LogConfig.java`).
    fn default() -> TargetLimits {
        TargetLimits { max_message_bytes: 1_048_588 }
    }
}

/// Which codecs a target takes, as far as it has said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenCodecs {
    /// None was refused yet.
    All,
    /// A broker that speaks Produce below version 7 has refused zstd (`ProduceRequest.validateRecords`).
    AllButZstd,
}

impl TakenCodecs {
    /// The codec that a v2 batch must have instead of its own; `named` is the target producer's `compression.type`.
    pub fn instead_of(self, named: Option<Codec>, batch: &[u8]) -> Option<Codec> {
        let codec = BatchHeader::parse(batch).ok()?.attributes.codec().ok()?;
        let wanted = self.taken(named.unwrap_or(codec));
        (wanted != codec).then_some(wanted)
    }

    /// The codec that stands for one that is wanted.
    pub fn taken(self, wanted: Codec) -> Codec {
        match wanted {
            Codec::Zstd if self == TakenCodecs::AllButZstd => Codec::Lz4,
            wanted => wanted,
        }
    }
}

/// Decides on a v2 batch of which everything from `position` on is still to be copied.
pub fn plan(header: &BatchHeader, verdict: Verdict, position: i64, limits: &TargetLimits) -> Plan {
    if header.last_offset() < position {
        return Plan::Skip(SkipReason::BelowPosition);
    }
    if header.attributes.is_control() {
        return Plan::Skip(SkipReason::Control);
    }
    if verdict == Verdict::Aborted {
        return Plan::Skip(SkipReason::Aborted);
    }
    if header.record_count == 0 {
        return Plan::Skip(SkipReason::Empty);
    }
    if header.base_offset < position {
        return Plan::Rewrite(RewriteReason::MidBatch);
    }
    if header.attributes.timestamp_type() == TimestampType::LogAppendTime {
        return Plan::Rewrite(RewriteReason::LogAppendTime);
    }
    if !header.is_dense() {
        return Plan::Rewrite(RewriteReason::Holes);
    }
    if header.size_bytes > limits.max_message_bytes {
        return Plan::Rewrite(RewriteReason::Oversize);
    }
    Plan::Forward
}

/// Whether a batch belongs to an aborted transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To be read.
    Visible,
    /// Not to be read under read_committed.
    Aborted,
}

/// Follows one Fetch answer of one partition and tells which of its batches were aborted.
///
/// A transaction of a producer is aborted from the first offset that the broker lists up to that producer's abort marker.
#[derive(Debug)]
pub struct AbortedFilter {
    list: Arc<[AbortedTransaction]>,
    ahead: VecDeque<AbortedTransaction>,
    aborting: BTreeSet<i64>,
}

impl AbortedFilter {
    /// For an answer with this list.
    pub fn new(list: Arc<[AbortedTransaction]>) -> AbortedFilter {
        let mut sorted = list.to_vec();
        sorted.sort_by_key(|transaction| transaction.first_offset);
        AbortedFilter { list, ahead: sorted.into(), aborting: BTreeSet::new() }
    }

    /// Whether `list` is the one that this filter follows, and not that of a later answer.
    pub fn follows(&self, list: &Arc<[AbortedTransaction]>) -> bool {
        Arc::ptr_eq(&self.list, list)
    }

    /// The verdict on the next batch; `batch` is its bytes, of which a marker's record is read.
    pub fn judge(&mut self, header: &BatchHeader, batch: &[u8], isolation: IsolationLevel) -> Verdict {
        if isolation == IsolationLevel::ReadUncommitted {
            return Verdict::Visible;
        }
        while self.ahead.front().is_some_and(|transaction| transaction.first_offset <= header.last_offset()) {
            self.aborting.extend(self.ahead.pop_front().map(|transaction| transaction.producer_id));
        }
        if header.attributes.is_control() {
            if is_abort_marker(batch) {
                self.aborting.remove(&header.producer_id);
            }
            return Verdict::Visible;
        }
        if header.attributes.is_transactional() && self.aborting.contains(&header.producer_id) {
            Verdict::Aborted
        } else {
            Verdict::Visible
        }
    }
}

/// Whether a control batch holds an abort marker (`ControlRecordType.java`: key = version i16, type i16, 0 is abort).
///
/// Reads the one record by hand: length, attributes, timestamp delta and offset delta, then a key of at least four bytes.
fn is_abort_marker(batch: &[u8]) -> bool {
    let mut rest = batch.get(crate::record::HEADER_BYTES..).unwrap_or_default();
    let skip_varint = |rest: &mut &[u8]| {
        let end = rest.iter().take(10).position(|byte| byte & 0x80 == 0).map_or(rest.len(), |at| at + 1);
        *rest = &rest[end..];
    };
    skip_varint(&mut rest);
    rest = rest.get(1..).unwrap_or_default();
    skip_varint(&mut rest);
    skip_varint(&mut rest);
    skip_varint(&mut rest);
    matches!(rest, [_, _, 0, 0, ..])
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::record::Attributes;

    pub(crate) fn header(
        base_offset: i64,
        last_offset_delta: i32,
        record_count: i32,
        attributes: i16,
    ) -> BatchHeader {
        BatchHeader {
            base_offset,
            size_bytes: 1_000,
            partition_leader_epoch: 0,
            crc: 0,
            attributes: Attributes(attributes),
            last_offset_delta,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id: 7,
            producer_epoch: 0,
            base_sequence: 0,
            record_count,
        }
    }

    fn check(header: BatchHeader, position: i64, want: Plan) {
        let limits = TargetLimits { max_message_bytes: 1_000 };
        assert_eq!(plan(&header, Verdict::Visible, position, &limits), want, "{header:?} at {position}");
    }

    /// Cases 1 and 2, and 11: what brokers refuse of a produced batch is rewritten or left out.
    #[test]
    fn each_kind_of_batch_has_its_plan() {
        check(header(10, 4, 5, 0), 10, Plan::Forward);
        check(header(10, 4, 5, 0x54), 3, Plan::Forward);
        check(header(10, 4, 5, 0), 15, Plan::Skip(SkipReason::BelowPosition));
        check(header(10, 0, 1, 0x30), 10, Plan::Skip(SkipReason::Control));
        check(header(10, 4, 0, 0), 10, Plan::Skip(SkipReason::Empty));
        check(header(10, 4, 5, 0), 11, Plan::Rewrite(RewriteReason::MidBatch));
        check(header(10, 4, 5, 0x08), 10, Plan::Rewrite(RewriteReason::LogAppendTime));
        check(header(10, 4, 3, 0), 10, Plan::Rewrite(RewriteReason::Holes));
        check(
            BatchHeader { size_bytes: 1_001, ..header(10, 4, 5, 0) },
            10,
            Plan::Rewrite(RewriteReason::Oversize),
        );
    }

    #[test]
    fn a_batch_is_recompressed_only_when_another_codec_is_named_or_its_own_is_refused() {
        let mut batch = vec![0; crate::record::HEADER_BYTES];
        batch[8..12].copy_from_slice(&49_i32.to_be_bytes());
        batch[16] = 2;
        for (codec, named, taken, instead) in [
            (Codec::Gzip, None, TakenCodecs::All, None),
            (Codec::Gzip, Some(Codec::Gzip), TakenCodecs::All, None),
            (Codec::Gzip, Some(Codec::Zstd), TakenCodecs::All, Some(Codec::Zstd)),
            (Codec::Gzip, Some(Codec::None), TakenCodecs::All, Some(Codec::None)),
            (Codec::None, Some(Codec::Zstd), TakenCodecs::AllButZstd, Some(Codec::Lz4)),
            (Codec::Zstd, None, TakenCodecs::AllButZstd, Some(Codec::Lz4)),
            (Codec::Lz4, Some(Codec::Zstd), TakenCodecs::AllButZstd, None),
        ] {
            batch[21..23].copy_from_slice(&codec.bits().to_be_bytes());
            assert_eq!(taken.instead_of(named, &batch), instead, "{codec:?} {named:?} {taken:?}");
        }
    }

    /// A marker as a broker writes it: key version 0 and type, value of version and coordinator epoch.
    fn marker(kind: u8) -> Vec<u8> {
        let mut bytes = vec![0; crate::record::HEADER_BYTES];
        bytes.extend([32, 0, 0, 0, 8, 0, 0, 0, kind, 12, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    /// Case 63.
    #[test]
    fn aborted_batches_are_those_between_the_listed_offset_and_the_abort_marker() {
        let list: Arc<[AbortedTransaction]> = Arc::from([
            AbortedTransaction { producer_id: 7, first_offset: 20 },
            AbortedTransaction { producer_id: 7, first_offset: 5 },
        ]);
        let mut filter = AbortedFilter::new(list.clone());
        assert!(filter.follows(&list) && !filter.follows(&Arc::from([])));
        let mut judge =
            |header: BatchHeader, bytes: &[u8]| filter.judge(&header, bytes, IsolationLevel::ReadCommitted);
        assert_eq!(judge(header(0, 3, 4, 0x10), &[]), Verdict::Visible, "an earlier, committed transaction");
        assert_eq!(judge(header(5, 3, 4, 0x10), &[]), Verdict::Aborted);
        assert_eq!(judge(header(9, 0, 1, 0), &[]), Verdict::Visible, "not transactional");
        assert_eq!(judge(BatchHeader { producer_id: 8, ..header(10, 0, 1, 0x10) }, &[]), Verdict::Visible);
        assert_eq!(judge(header(11, 0, 1, 0x30), &marker(0)), Verdict::Visible);
        assert_eq!(judge(header(12, 3, 4, 0x10), &[]), Verdict::Visible, "after the marker");
        assert_eq!(judge(header(16, 0, 1, 0x30), &marker(1)), Verdict::Visible);
        assert_eq!(judge(header(20, 3, 4, 0x10), &[]), Verdict::Aborted);
    }

    #[test]
    fn read_uncommitted_sees_everything_and_damaged_markers_are_no_abort() {
        let mut filter =
            AbortedFilter::new(Arc::from([AbortedTransaction { producer_id: 7, first_offset: 0 }]));
        assert_eq!(
            filter.judge(&header(0, 3, 4, 0x10), &[], IsolationLevel::ReadUncommitted),
            Verdict::Visible
        );
        for bytes in [&[][..], &[255; 70], &[0; 61], &[0; 63]] {
            assert!(!is_abort_marker(bytes));
        }
        assert!(is_abort_marker(&marker(0)) && !is_abort_marker(&marker(1)));
    }
}

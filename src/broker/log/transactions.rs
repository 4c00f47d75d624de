//! Which transactions hold the last stable offset back, and which were aborted (KIP-98; `ProducerStateManager`,
//! `TransactionIndex`).
//!
//! A transaction that has ended holds the last stable offset back until its marker lies below the high watermark.

use std::collections::VecDeque;

/// An aborted transaction, as Fetch replies list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose records are to be skipped.
    pub producer_id: i64,
    /// From this offset on, up to the producer's abort marker.
    pub first_offset: i64,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    producer_id: i64,
    first_offset: i64,
    marker_offset: i64,
}

/// The ended transactions of one partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Transactions {
    /// Markers not yet below the high watermark.
    unreplicated: VecDeque<Ended>,
    /// In the order of their markers.
    aborted: VecDeque<Ended>,
}

impl Transactions {
    pub(super) fn committed(&mut self, producer_id: i64, first_offset: i64, marker_offset: i64) {
        self.unreplicated.push_back(Ended { producer_id, first_offset, marker_offset });
    }

    pub(super) fn aborted(&mut self, producer_id: i64, first_offset: i64, marker_offset: i64) {
        let ended = Ended { producer_id, first_offset, marker_offset };
        self.unreplicated.push_back(ended);
        self.aborted.push_back(ended);
    }

    /// First offset of the transactions whose end is not replicated yet.
    pub(super) fn first_unreplicated(&self, high_watermark: i64) -> Option<i64> {
        self.unreplicated
            .iter()
            .filter(|ended| ended.marker_offset >= high_watermark)
            .map(|ended| ended.first_offset)
            .min()
    }

    /// Forgets what no longer holds the last stable offset back.
    pub(super) fn replicated(&mut self, high_watermark: i64) {
        self.unreplicated.retain(|ended| ended.marker_offset >= high_watermark);
    }

    /// Aborted transactions that touch `from..to`, in the order of their first offsets.
    pub(super) fn aborted_between(&self, from: i64, to: i64) -> Vec<AbortedTransaction> {
        let start = self.aborted.partition_point(|ended| ended.marker_offset < from);
        let mut found: Vec<AbortedTransaction> = self
            .aborted
            .range(start..)
            .filter(|ended| ended.first_offset < to)
            .map(|ended| AbortedTransaction {
                producer_id: ended.producer_id,
                first_offset: ended.first_offset,
            })
            .collect();
        found.sort_by_key(|aborted| (aborted.first_offset, aborted.producer_id));
        found
    }

    /// Whether the records of this producer at `offset` were aborted.
    pub(super) fn is_aborted(&self, producer_id: i64, offset: i64) -> bool {
        let start = self.aborted.partition_point(|ended| ended.marker_offset < offset);
        self.aborted
            .range(start..)
            .any(|ended| ended.producer_id == producer_id && ended.first_offset <= offset)
    }

    /// Compaction removed a marker, and before it every batch of its transaction.
    pub(super) fn marker_removed(&mut self, marker_offset: i64) {
        self.aborted.retain(|ended| ended.marker_offset != marker_offset);
    }

    pub(super) fn cut_front(&mut self, log_start_offset: i64) {
        while self.aborted.front().is_some_and(|ended| ended.marker_offset < log_start_offset) {
            self.aborted.pop_front();
        }
        self.unreplicated.retain(|ended| ended.marker_offset >= log_start_offset);
    }

    pub(super) fn clear(&mut self) {
        self.unreplicated.clear();
        self.aborted.clear();
    }
}

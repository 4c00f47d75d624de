//! Batches that would open a transaction, from the question to the coordinator until one is appended (KIP-890;
//! `VerificationStateEntry.java`).
//!
//! The lowest sequence that was tried is remembered: a batch that comes after a refused one must not take its place.

use std::collections::BTreeMap;

use crate::record::BatchHeader;

#[derive(Clone, Copy, Debug)]
struct Pending {
    producer_epoch: i16,
    lowest_sequence: i32,
}

/// What is pending, by producer.
#[derive(Clone, Debug, Default)]
pub(super) struct Verifications {
    pending: BTreeMap<i64, Pending>,
}

impl Verifications {
    /// A batch of a transaction that is not open in this partition.
    pub(super) fn begin(&mut self, header: &BatchHeader) {
        let (producer_epoch, sequence) = (header.producer_epoch, header.base_sequence);
        let pending = self
            .pending
            .entry(header.producer_id)
            .or_insert(Pending { producer_epoch, lowest_sequence: sequence });
        if producer_epoch > pending.producer_epoch {
            *pending = Pending { producer_epoch, lowest_sequence: sequence };
        } else if producer_epoch == pending.producer_epoch {
            pending.lowest_sequence = pending.lowest_sequence.min(sequence);
        }
    }

    /// A transactional batch or a marker of this producer was appended.
    pub(super) fn end(&mut self, producer_id: i64) {
        self.pending.remove(&producer_id);
    }

    pub(super) fn lowest_sequence(&self, producer_id: i64) -> Option<i32> {
        self.pending.get(&producer_id).map(|pending| pending.lowest_sequence)
    }

    pub(super) fn clear(&mut self) {
        self.pending.clear();
    }
}

//! The batches of a log in offset order, found by binary search.
//!
//! Invariant: neither base nor last offsets ever go back from batch to batch, and ranges do not overlap.

use std::collections::VecDeque;

use bytes::Bytes;

/// A stored entry, of any magic.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) base_offset: i64,
    pub(super) last_offset: i64,
    pub(super) max_timestamp: i64,
    pub(super) leader_epoch: i32,
    /// The offset index of its segment would have an entry for it.
    pub(super) is_indexed: bool,
    pub(super) bytes: Bytes,
}

/// All entries and how many bytes they take.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    batches: VecDeque<Stored>,
    size_bytes: usize,
}

impl Store {
    pub(super) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.batches.len()
    }

    pub(super) fn push(&mut self, stored: Stored) {
        self.size_bytes += stored.bytes.len();
        self.batches.push_back(stored);
    }

    pub(super) fn front(&self) -> Option<&Stored> {
        self.batches.front()
    }

    pub(super) fn pop_front(&mut self) -> Option<Stored> {
        let stored = self.batches.pop_front()?;
        self.size_bytes -= stored.bytes.len();
        Some(stored)
    }

    pub(super) fn back(&self) -> Option<&Stored> {
        self.batches.back()
    }

    pub(super) fn pop_back(&mut self) -> Option<Stored> {
        let stored = self.batches.pop_back()?;
        self.size_bytes -= stored.bytes.len();
        Some(stored)
    }

    /// Index of the first batch that ends at `offset` or behind it.
    pub(super) fn find(&self, offset: i64) -> usize {
        self.batches.partition_point(|stored| stored.last_offset < offset)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Stored> {
        self.batches.get_mut(at)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Stored> {
        self.batches.iter()
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = Stored> {
        self.batches.into_iter()
    }

    pub(super) fn iter_from(&self, offset: i64) -> impl Iterator<Item = &Stored> {
        self.batches.range(self.find(offset)..)
    }

    /// Puts other entries in place of all that are there.
    pub(super) fn replace(&mut self, batches: VecDeque<Stored>) {
        self.size_bytes = batches.iter().map(|stored| stored.bytes.len()).sum();
        self.batches = batches;
    }
}

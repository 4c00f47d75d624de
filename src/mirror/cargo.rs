//! What is on its way to a target partition: a batch, and which source offsets its records have.
//!
//! A cargo is made by the engine's intake, perhaps joined with others, and given to [`super::append`]; at its ack its parts
//! say what of the source is on the target. Invariant: parts are in the order of the records, and of one source partition.

use bytes::Bytes;

use super::window::EntryId;
use crate::client::PartitionKey;
use crate::record::HEADER_BYTES;

/// A batch that is to be appended, with the source offsets that its records come from.
#[derive(Clone, Debug)]
pub struct Cargo {
    /// The whole batch as it came, or as it was made; its header is patched when it is sent.
    pub batch: Bytes,
    /// Records in it.
    pub record_count: i32,
    /// Largest timestamp in it, in ms.
    pub max_timestamp: i64,
    /// How it came to be.
    pub origin: Origin,
    /// Where its records come from, in order.
    pub parts: Vec<Part>,
}

/// How a cargo came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A source batch.
    Verbatim,
    /// So many source batches in one.
    Merged(u32),
    /// Made anew; the source batch is counted already.
    Rewritten,
}

/// A run of records of a cargo that were neighbours at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The source partition.
    pub source: PartitionKey,
    /// The generation of that source partition's window.
    pub generation: u32,
    /// The entry of its window.
    pub entry: EntryId,
    /// Source offset of the first record.
    pub upstream: i64,
    /// Number of records.
    pub record_count: i32,
    /// What is acknowledged at the source when this part is.
    pub covers: Covers,
}

/// What of its entry a part completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covers {
    /// The last part of its entry.
    Entry,
    /// More of the entry follows; source offsets below this one are on the target.
    UpTo(i64),
}

impl Cargo {
    /// The source partition; a cargo has one.
    pub fn source(&self) -> Option<PartitionKey> {
        self.parts.first().map(|part| part.source)
    }

    /// What follows the header.
    pub fn body(&self) -> Bytes {
        self.batch.slice(HEADER_BYTES.min(self.batch.len())..)
    }
}

//! A record batch as bytes: header view, patch, merge, rewrite, conversion of old formats, compression codecs.
//!
//! Everything here is a plain function over bytes: no I/O, no async, no logging, no clock. Bytes come from peers, so
//! nothing here panics on them and nothing allocates by a count that they claim.
//!
//! The formats are those of Kafka's `DefaultRecordBatch` (magic 2, KIP-98) and `LegacyRecord` (magic 0 and 1).

mod builder;
mod clmul;
mod codec;
mod crc;
mod error;
mod header;
mod legacy;
mod merge;
mod patch;
mod records;
mod rewrite;
#[cfg(test)]
mod testing;
pub mod varint;
#[cfg(test)]
mod vectors;
mod walker;

pub use builder::{BatchBuilder, BatchOptions, RecordData};
pub use codec::{compress, decompress};
pub use crc::{Arithmetic, crc_change, crc32c};
pub use error::Error;
pub use header::{
    Attributes, BatchHeader, Codec, HEADER_BYTES, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE,
    PREFIX_BYTES, TimestampType,
};
pub use legacy::convert;
pub use merge::{MergeSize, Merged, can_merge, merge, merge_compressed};
pub use patch::{patch, patch_with, verify_crc};
pub use records::{Header, Headers, OpenBatch, Record, Records};
pub use rewrite::{Piece, RewriteSettings, Rewritten, Segment, rewrite};
pub use walker::{ENTRY_FRONT_BYTES, Entry, Magic, next_entry};

/// Who appends a batch, and where in that producer's sequence it stands (KIP-98).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdentity {
    /// The id that the target's coordinator gave out, or [`NO_PRODUCER_ID`].
    pub producer_id: i64,
    /// Its epoch, or [`NO_PRODUCER_EPOCH`].
    pub producer_epoch: i16,
    /// Sequence number of the first record, or [`NO_SEQUENCE`].
    pub base_sequence: i32,
}

impl ProducerIdentity {
    /// A batch without idempotence.
    pub const NONE: ProducerIdentity = ProducerIdentity {
        producer_id: NO_PRODUCER_ID,
        producer_epoch: NO_PRODUCER_EPOCH,
        base_sequence: NO_SEQUENCE,
    };
}

//! A record batch as bytes: header view, patch, merge, rewrite, conversion of old formats, compression codecs.
//!
//! Everything here is a plain function over bytes: no I/O, no async, no logging, no clock. Bytes come from peers, so
//! nothing here panics on them and nothing allocates by a count that they claim.
//!
//! The formats are those of Kafka's `DefaultRecordBatch` (magic 2, KIP-98) and `LegacyRecord` (magic 0 and 1).
//!
//! | to | use |
//! |---|---|
//! | find the entries in a Fetch response's bytes | [`next_entry`] |
//! | look at a batch without touching its records | [`BatchHeader::parse`] |
//! | append a batch elsewhere, its records untouched | [`patch`](patch()) |
//! | join small batches | [`MergeBuilder`], [`can_merge`], [`merge`](merge()), [`merge_compressed`] |
//! | renumber, split, recompress, keep LogAppendTime | [`rewrite`](rewrite()) |
//! | bring magic 0 and 1 to magic 2 | [`convert`] |
//! | deal records out by key, as Java's producer does | [`deal`](deal()), [`partition_for_key`] |
//! | read or make records | [`OpenBatch`], [`BatchBuilder`] |
//!
//! ```
//! use kmirror::record::{
//!     BatchBuilder, BatchOptions, Codec, Entry, HEADER_BYTES, OpenBatch, ProducerIdentity, RecordData, next_entry, patch,
//! };
//!
//! // A batch as a source broker might hold it.
//! let options = BatchOptions { base_offset: 4_000, partition_leader_epoch: 7, ..BatchOptions::new(Codec::Zstd) };
//! let mut builder = BatchBuilder::new(options);
//! builder.push(&RecordData { timestamp: 1_700_000_000_000, value: Some("hello".into()), ..RecordData::default() })?;
//! let batch = builder.build()?;
//!
//! // Found in the bytes of a Fetch response, and appended under our own producer: the records are never touched.
//! let Entry::Batch { size_bytes, .. } = next_entry(&batch, batch.len(), 1 << 20)? else { unreachable!() };
//! let identity = ProducerIdentity { producer_id: 17, producer_epoch: 0, base_sequence: 0 };
//! let header = patch(&batch, size_bytes, identity)?;
//!
//! // The target sees offset 0, our producer, and a checksum that holds.
//! let appended = [&header[..], &batch[HEADER_BYTES..]].concat().into();
//! let opened = OpenBatch::open(&appended, 1 << 20)?;
//! assert_eq!((opened.header.base_offset, opened.header.producer_id), (0, 17));
//! let record = opened.records().next().unwrap()?;
//! assert_eq!(record.value, Some(&b"hello"[..]));
//! # Ok::<(), kmirror::record::Error>(())
//! ```

mod builder;
mod clmul;
mod codec;
mod crc;
mod deal;
mod error;
mod header;
mod legacy;
mod merge;
mod partition;
mod patch;
mod records;
mod rewrite;
mod splice;
#[cfg(test)]
mod testing;
pub mod varint;
#[cfg(test)]
mod vectors;
mod walker;

pub use builder::{BatchBuilder, BatchOptions, RecordData};
pub use codec::{compress, decompress};
pub use crc::{Arithmetic, crc_change, crc32c};
pub use deal::{DealSettings, Dealt, Share, deal};
pub use error::Error;
pub use header::{
    Attributes, BatchHeader, Codec, HEADER_BYTES, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE,
    PREFIX_BYTES, TimestampType,
};
pub use legacy::convert;
pub use merge::{MergeBuilder, MergeSize, Merged, can_merge, merge, merge_compressed};
pub use partition::{KeyPartitioner, partition_for_key};
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

//! Small batches become one while they wait: uncompressed ones, and LZ4 batches of one record.
//!
//! A broker's work is per batch, so neighbours that wait for the same partition anyway are merged; nothing is delayed for
//! it. That is done as each comes in, not when its turn comes: its bytes are in the cache, and the slab that holds them is
//! free at once. What cannot be merged goes as it is, and the target's checks speak.

use bytes::Bytes;

use super::super::cargo::{Cargo, Origin, Part};
use super::{Engine, Item, Open};
use crate::client::{PartitionKey, TargetKey};
use crate::mirror::{Batching, CompressedBatching};
use crate::record::{BatchHeader, Codec, MergeBuilder, MergeSize};

/// A merged batch grows to this; beyond it the target broker gains nothing more.
pub(super) const MERGED_BYTES_MAX: usize = 256 * 1024;
/// A batch of this size goes verbatim: merging would copy much and save little.
const MERGE_BELOW_BYTES: usize = 128 * 1024;
/// A compressed one has to be looked through, not just copied.
const MERGE_COMPRESSED_BELOW_BYTES: usize = 16 * 1024;

impl Engine {
    /// Merges a batch into what waits last for the same target, if that is possible.
    pub(super) fn join(&mut self, key: TargetKey, header: &BatchHeader, batch: &Bytes, part: Part) -> bool {
        let compressed = self.settings.batching_compressed;
        if self.settings.batching == Batching::Verbatim || !is_small(header, compressed) {
            return false;
        }
        let target = &mut self.targets[key.0 as usize];
        let bytes_max = target.merged_bytes_max.min(target.limits.max_message_bytes);
        let Some(last) = target.queue.back_mut().filter(|last| last.source() == Some(part.source)) else {
            return false;
        };
        let buffers = &mut self.buffers;
        let opened = match last {
            Item::Ready(cargo) => Open::of(cargo, header, compressed, bytes_max, || buffers.take()),
            _ => None,
        };
        if let Some(opened) = opened {
            *last = Item::Open(opened);
        }
        let Item::Open(open) = last else { return false };
        let joined = open.builder.takes(header, bytes_max) && open.builder.push(header, batch).is_ok();
        if joined {
            open.parts.push(part);
            open.batches += 1;
            open.bytes += batch.len();
            target.queue_bytes += batch.len();
        }
        joined
    }
}

impl Open {
    /// Opens a cargo, if it is small and `next` may follow.
    fn of(
        cargo: &mut Cargo,
        next: &BatchHeader,
        compressed: CompressedBatching,
        bytes_max: usize,
        buffer: impl FnOnce() -> Vec<u8>,
    ) -> Option<Open> {
        let header = BatchHeader::parse(&cargo.batch).ok().filter(|header| is_small(header, compressed))?;
        MergeSize::of(&header).with(next).filter(|size| size.bytes_max() <= bytes_max)?;
        let builder = MergeBuilder::start(&header, &cargo.batch, buffer()).ok()?;
        let parts = std::mem::take(&mut cargo.parts);
        Some(Open { builder, parts, batches: cargo.origin.batches(), bytes: cargo.batch.len() })
    }

    /// The source partition; there is one.
    pub(super) fn source(&self) -> Option<PartitionKey> {
        self.parts.first().map(|part| part.source)
    }

    /// The merged batch.
    pub(super) fn close(self) -> Cargo {
        let merged = self.builder.finish();
        Cargo {
            batch: merged.batch,
            record_count: merged.record_count,
            max_timestamp: merged.max_timestamp,
            origin: Origin::Merged(self.batches),
            parts: self.parts,
        }
    }
}

impl Origin {
    fn batches(self) -> u32 {
        match self {
            Origin::Verbatim => 1,
            Origin::Merged(batches) => batches,
            Origin::Rewritten => 0,
        }
    }
}

fn is_small(header: &BatchHeader, compressed: CompressedBatching) -> bool {
    let bytes_max = match header.attributes.codec() {
        Ok(Codec::None) => MERGE_BELOW_BYTES,
        _ if compressed == CompressedBatching::Never => return false,
        _ => MERGE_COMPRESSED_BELOW_BYTES,
    };
    header.size_bytes < bytes_max && MergeBuilder::is_part(header)
}

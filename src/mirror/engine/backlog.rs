//! Small compressed batches are merged while their partition's backlog grows (`kmirror.batching.compressed`), unless
//! nothing is to be merged at all (`kmirror.batching=verbatim`).
//!
//! Merging them costs a round through the codec, so it is done on other threads, only for batches that wait far behind the
//! front of their queue, and only while more come than go. Their place in the queue is kept.

use super::super::cargo::{Cargo, Origin};
use super::{Engine, Item, Work, Working, WorkingKind};
use crate::client::TargetKey;
use crate::mirror::{Batching, CompressedBatching};
use crate::record::{BatchHeader, Codec, Piece};

/// Compressed batches above this size are left as they are: the round through the codec would cost more processor time
/// here than the target broker saves, which is some 20 µs for each batch.
const SMALL_BYTES: usize = 2 * 1024;
/// A merged batch is made of compressed ones of so many bytes.
const MERGED_BYTES: usize = 128 * 1024;
/// And of at least this many batches.
const MERGED_BATCHES_MIN: usize = 4;

impl Engine {
    /// Sends stretches of small compressed batches to be merged.
    pub(super) fn merge_backlog(&mut self, key: TargetKey) {
        let never = self.settings.batching_compressed == CompressedBatching::Never;
        if never || self.settings.batching == Batching::Verbatim {
            return;
        }
        while let Some((from, count)) = self.stretch(key) {
            let target = &mut self.targets[key.0 as usize];
            let mut cargos = Vec::with_capacity(count);
            let mut bytes = 0;
            for item in target.queue.drain(from..from + count) {
                if let Item::Ready(cargo) = item {
                    bytes += cargo.batch.len();
                    cargos.push(cargo);
                }
            }
            target.queue_bytes -= bytes;
            let Some(part) = cargos.first().and_then(|cargo| cargo.parts.first()).copied() else { return };
            let batches = cargos.iter().map(|cargo| cargo.batch.clone()).collect();
            let decompressed_bytes_max = self.settings.decompressed_bytes_max;
            let job = self.start_job(key, Work::Merge { batches, decompressed_bytes_max });
            let kind = WorkingKind::Merge(cargos);
            let working = Working { job, source: part.source, generation: part.generation, bytes, kind };
            self.put_back(key, from, Item::Working(working));
        }
    }

    /// A stretch of the queue that is worth merging: where it begins, and of how many batches.
    fn stretch(&self, key: TargetKey) -> Option<(usize, usize)> {
        let target = &self.targets[key.0 as usize];
        let (backlog, left_alone) = (self.settings.backlog_batches, self.settings.backlog_batches / 3);
        if target.queue.len() < backlog {
            return None;
        }
        let bytes_max = MERGED_BYTES.min(target.merged_bytes_max.min(target.limits.max_message_bytes) / 2);
        let small = |item: &Item| {
            let Item::Ready(cargo) = item else { return None };
            let fits = cargo.origin == Origin::Verbatim && cargo.batch.len() <= SMALL_BYTES;
            let header = BatchHeader::parse(&cargo.batch).ok().filter(|_| fits)?;
            let codec = header.attributes.codec().ok().filter(|&codec| codec != Codec::None)?;
            Some((codec, cargo.source(), cargo.batch.len()))
        };
        let (mut from, mut count, mut bytes, mut like) = (left_alone, 0, 0, None);
        for (index, item) in target.queue.iter().enumerate().skip(left_alone) {
            let found = small(item);
            let next = found.map(|(codec, source, _)| (codec, source));
            let size = found.map_or(0, |(_, _, size)| size);
            if next.is_some() && next == like && bytes + size <= bytes_max {
                (count, bytes) = (count + 1, bytes + size);
                continue;
            }
            if count >= MERGED_BATCHES_MIN {
                return Some((from, count));
            }
            (from, count, bytes, like) = (index, usize::from(next.is_some()), size, next);
        }
        // The last stretch may still grow; it is merged once something follows it or it is full.
        None
    }

    /// The merged batch takes the place of its parts, unless the target would not take it.
    pub(super) fn place_merged(
        &mut self,
        target: TargetKey,
        place: usize,
        working: Working,
        pieces: Vec<Piece>,
    ) {
        let limit = self.targets[target.0 as usize].limits.max_message_bytes;
        let merged = match pieces.into_iter().next() {
            Some(Piece::Batch(merged)) if merged.batch.len() <= limit => merged,
            _ => return self.unmerge(target, place, working),
        };
        let WorkingKind::Merge(cargos) = working.kind else { return };
        let cargo = Cargo {
            batch: merged.batch,
            record_count: merged.record_count,
            max_timestamp: merged.max_timestamp,
            origin: Origin::Merged(cargos.len() as u32),
            parts: cargos.into_iter().flat_map(|cargo| cargo.parts).collect(),
        };
        self.put_back(target, place, Item::Ready(cargo));
    }

    /// Batches that cannot be merged go as they are, and the target's checks speak.
    pub(super) fn unmerge(&mut self, target: TargetKey, place: usize, working: Working) {
        let WorkingKind::Merge(cargos) = working.kind else { return };
        for (index, cargo) in cargos.into_iter().enumerate() {
            self.put_back(target, place + index, Item::Ready(cargo));
        }
    }
}

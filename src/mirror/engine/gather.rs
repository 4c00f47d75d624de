//! What is dealt out by key becomes larger batches, as in the accumulator of Java's producer (`RecordAccumulator`).
//!
//! ```text
//!   Working(share) ──opened──► Dealt ──batch.size reached, or its turn has come──► joined ──► Ready
//!                                                                            └──a codec──► Working(compress) ──► Ready
//! ```
//! A target partition gets little of each batch, so what follows in its queue from the same source partition goes with it, up
//! to `batch.size`. When its turn comes, it waits for what was being opened before it was here itself, which takes a worker
//! no time to speak of, and until `linger.ms` is over. It is compressed once, as a whole.
//!
//! Invariant: what is joined is of one source partition and in its order, so that records of one key stay in order.

use std::time::Duration;

use super::super::cargo::{Cargo, Origin};
use super::{Engine, Item, Share, Timer, Work, Working, WorkingKind};
use crate::client::{PartitionKey, TargetKey};
use crate::record::{BatchHeader, Codec, Magic, MergeBuilder, MergeSize, RewriteSettings};

/// What belongs into one batch.
struct Stretch {
    /// Places in the queue, in order.
    places: Vec<usize>,
    reach: Reach,
}

/// What stands behind a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Nothing more fits.
    Full,
    /// More is being opened.
    Growing,
    /// Nothing that is known of.
    Open,
}

impl Engine {
    /// The turn of a target partition has come: what is first in its queue is made ready, unless it waits for more.
    pub(super) fn gather_first(&mut self, key: TargetKey, now: Duration) {
        let Some(Item::Dealt(first)) = self.targets[key.0 as usize].queue.front() else { return };
        let until = first.since + self.settings.gathering.linger;
        let stretch = self.stretch_from(key, 0);
        match stretch.reach {
            Reach::Growing => {}
            Reach::Open if now < until => {
                self.timers.insert((until, Timer::Linger(key)));
            }
            Reach::Open | Reach::Full => self.gather(key, &stretch.places),
        }
    }

    /// What is full already is made ready ahead of its turn, on other threads where it is to be compressed.
    pub(super) fn gather_full(&mut self, key: TargetKey, source: PartitionKey) {
        loop {
            let queue = &self.targets[key.0 as usize].queue;
            let is_first = |item: &Item| matches!(item, Item::Dealt(_)) && item.source() == Some(source);
            let Some(place) = queue.iter().position(is_first) else { return };
            let stretch = self.stretch_from(key, place);
            if stretch.reach != Reach::Full {
                return;
            }
            self.gather(key, &stretch.places);
        }
    }

    fn stretch_from(&self, key: TargetKey, place: usize) -> Stretch {
        let mut stretch = Stretch { places: vec![place], reach: Reach::Open };
        let queue = &self.targets[key.0 as usize].queue;
        let Some(Item::Dealt(first)) = queue.get(place) else { return stretch };
        let (source, bytes_max) = (first.cargo.source(), self.gathered_bytes_max(key, first));
        let size = BatchHeader::parse(&first.cargo.batch).ok().map(|header| MergeSize::of(&header));
        let Some(mut size) = size.filter(|size| size.bytes_max() < bytes_max) else {
            return Stretch { reach: Reach::Full, ..stretch };
        };
        let later = queue.iter().enumerate().skip(place + 1);
        for (index, item) in later.filter(|(_, item)| item.source() == source) {
            match item {
                Item::Dealt(next) if next.codec == first.codec => {
                    let header = BatchHeader::parse(&next.cargo.batch).ok();
                    let joined = header.and_then(|header| size.with(&header));
                    let Some(joined) = joined.filter(|size| size.bytes_max() <= bytes_max) else {
                        return Stretch { reach: Reach::Full, ..stretch };
                    };
                    size = joined;
                    stretch.places.push(index);
                }
                Item::Working(Working { job, kind: WorkingKind::Share { .. }, .. }) => {
                    let reach = if *job < first.jobs_before { Reach::Growing } else { Reach::Open };
                    return Stretch { reach, ..stretch };
                }
                _ => return Stretch { reach: Reach::Full, ..stretch },
            }
        }
        stretch
    }

    fn gathered_bytes_max(&self, key: TargetKey, share: &Share) -> usize {
        let target = &self.targets[key.0 as usize];
        let bytes_max = self.settings.gathering.batch_bytes_max;
        match share.codec {
            Codec::None => bytes_max.min(target.merged_bytes_max).min(target.limits.max_message_bytes),
            _ => bytes_max,
        }
    }

    /// Puts one batch in the place of several, or of one.
    fn gather(&mut self, key: TargetKey, places: &[usize]) {
        let mut shares: Vec<Share> = Vec::with_capacity(places.len());
        let queue = &mut self.targets[key.0 as usize].queue;
        for &place in places.iter().rev() {
            if let Some(Item::Dealt(share)) = queue.remove(place) {
                shares.push(share);
            }
        }
        shares.reverse();
        let bytes = shares.iter().map(|share| share.cargo.batch.len()).sum::<usize>();
        self.targets[key.0 as usize].queue_bytes -= bytes;
        self.free_unpacked(bytes);
        let (Some(&place), Some(codec)) = (places.first(), shares.first().map(|share| share.codec)) else {
            return;
        };
        let cargos = join(shares.into_iter().map(|share| share.cargo).collect());
        for (index, cargo) in cargos.into_iter().enumerate() {
            match codec {
                Codec::None => self.put_back(key, place + index, Item::Ready(cargo)),
                codec => self.compress(key, place + index, cargo, codec),
            }
        }
    }

    fn compress(&mut self, key: TargetKey, place: usize, cargo: Cargo, codec: Codec) {
        let Some(part) = cargo.parts.first().copied() else { return };
        let target = &self.targets[key.0 as usize];
        let settings = RewriteSettings {
            start_offset: 0,
            end_offset: i64::MAX,
            target_codec: Some(target.codecs.taken(codec)),
            batch_bytes_max: target.limits.max_message_bytes,
            decompressed_bytes_max: usize::MAX,
        };
        let work = Work::Rewrite { batch: cargo.batch.clone(), magic: Magic::V2, settings };
        let (job, bytes) = (self.start_job(key, work), cargo.batch.len());
        let kind = WorkingKind::Cargo(cargo);
        let working = Working { job, source: part.source, generation: part.generation, bytes, kind };
        self.put_back(key, place, Item::Working(working));
    }
}

/// One cargo of several; as they are, should that not be possible.
fn join(cargos: Vec<Cargo>) -> Vec<Cargo> {
    if cargos.len() < 2 {
        return cargos;
    }
    match merged(&cargos) {
        Some(cargo) => vec![cargo],
        None => cargos,
    }
}

fn merged(cargos: &[Cargo]) -> Option<Cargo> {
    let (first, others) = cargos.split_first()?;
    let mut builder =
        MergeBuilder::start(&BatchHeader::parse(&first.batch).ok()?, &first.batch, Vec::new()).ok()?;
    for cargo in others {
        builder.push(&BatchHeader::parse(&cargo.batch).ok()?, &cargo.batch).ok()?;
    }
    let merged = builder.finish();
    Some(Cargo {
        batch: merged.batch,
        record_count: merged.record_count,
        max_timestamp: merged.max_timestamp,
        origin: Origin::Rewritten,
        parts: cargos.iter().flat_map(|cargo| cargo.parts.iter().copied()).collect(),
    })
}

//! Records of a source partition that are dealt out by key over the partitions of their target.
//!
//! ```text
//!   source partition ──fetch──► parent ──each batch, opened once──► child: records for target partition 0 ──► its queue
//!                                                              └──► child: records for target partition 1 ──► its queue
//! ```
//! A child is a source partition of its own but for the fetch: it has a window, and a place in its target's queue for what it
//! gets of each batch, so that requests and failures know nothing of all this; [`super::gather`] makes larger batches of it
//! there. The parent fetches for its children while
//! each of them can take something, and its position is that of the child which is behind. A child that drops what it was
//! given takes the parent back; the others then pass over what they have. So records of one key stay in order, and none is
//! sent twice.

use std::time::Duration;

use super::super::status::RewriteReason;
use super::super::window::Window;
use super::{
    Command, Engine, Item, NewPartition, RewriteJob, Share, SourceState, Work, Working, WorkingKind,
};
use crate::client::{FetchedBatch, PartitionKey, TargetKey};
use crate::record::{self, DealSettings, Dealt, KeyPartitioner};

/// What a source partition is to others.
#[derive(Clone, Debug, Default)]
pub(super) enum Family {
    /// Its records go to one target partition.
    #[default]
    Alone,
    /// It fetches for these.
    Parent { children: Vec<PartitionKey>, partitioner: KeyPartitioner },
    /// It takes the records for its target partition of what its parent fetches.
    Child { parent: PartitionKey },
}

impl Engine {
    /// Takes a source partition on whose records are dealt out by key over so many target partitions.
    pub fn add_by_key(&mut self, new: &NewPartition, partitions: i32) -> PartitionKey {
        let partitions = partitions.max(1);
        let first = self.target_at(new, 0);
        let parent = self.push_source(new, first);
        let partitioner = KeyPartitioner { partitions, keyless: new.partition.rem_euclid(partitions) };
        let mut children = Vec::new();
        for partition in 0..partitions {
            let target = self.target_at(new, partition);
            let child = self.push_source(new, target);
            self.targets[target.0 as usize].sources.push(child);
            self.sources[child.0 as usize].family = Family::Child { parent };
            children.push(child);
        }
        self.sources[parent.0 as usize].family = Family::Parent { children, partitioner };
        parent
    }

    /// The target partitions behind a source partition, with their indexes.
    pub fn targets_of(&self, key: PartitionKey) -> Vec<(TargetKey, i32)> {
        let of = |key: PartitionKey| {
            let target = self.sources[key.0 as usize].target;
            (target, self.targets[target.0 as usize].partition)
        };
        match self.children(key) {
            [] => self.sources.get(key.0 as usize).map(|_| of(key)).into_iter().collect(),
            children => children.iter().map(|&child| of(child)).collect(),
        }
    }

    pub(super) fn children(&self, key: PartitionKey) -> &[PartitionKey] {
        match self.sources.get(key.0 as usize).map(|source| &source.family) {
            Some(Family::Parent { children, .. }) => children,
            _ => &[],
        }
    }

    pub(super) fn parent(&self, key: PartitionKey) -> Option<PartitionKey> {
        match self.sources.get(key.0 as usize).map(|source| &source.family) {
            Some(&Family::Child { parent }) => Some(parent),
            _ => None,
        }
    }

    /// Whether a partition that fetches for others can be fetched: each of them takes something.
    pub(super) fn family_takes(&self, key: PartitionKey) -> bool {
        let takes =
            |child: &PartitionKey| matches!(self.sources[child.0 as usize].state, SourceState::Waiting);
        self.children(key).iter().all(takes)
    }

    /// Children that can take nothing more for now leave with their parent; `true` when there are any.
    pub(super) fn family_must_hold(&mut self, key: PartitionKey) -> bool {
        let full: Vec<PartitionKey> =
            self.children(key).iter().copied().filter(|&child| self.must_hold(child)).collect();
        full.iter().for_each(|&child| self.hold(child));
        !full.is_empty() || !self.family_takes(key)
    }

    /// Gives a batch to the children, each of which takes what it does not have yet. It is opened once for them all.
    pub(super) fn deal(&mut self, key: PartitionKey, next_offset: i64, batch: FetchedBatch) {
        let Family::Parent { children, partitioner } = &self.sources[key.0 as usize].family else { return };
        let (children, partitioner) = (children.clone(), *partitioner);
        let wants = |child: &PartitionKey| self.sources[child.0 as usize].window.next_offset() < next_offset;
        let children: Vec<PartitionKey> = children.into_iter().filter(wants).collect();
        let bytes = (batch.bytes.len() / children.len().max(1)).max(1);
        let (id, mut shares) = (self.next_job, Vec::with_capacity(children.len()));
        for child in children {
            let target = self.sources[child.0 as usize].target;
            self.charge(child, bytes);
            let source = &mut self.sources[child.0 as usize];
            let start_offset = source.window.next_offset();
            let (entry, generation) = (source.window.push(next_offset, bytes), source.window_generation);
            let job = self.number_job(target);
            let kind = WorkingKind::Share { entry };
            self.enqueue(target, Item::Working(Working { job, source: child, generation, bytes, kind }));
            let target = &self.targets[target.0 as usize];
            let batch_bytes_max = target.limits.max_message_bytes;
            shares.push(record::Share { partition: target.partition, start_offset, batch_bytes_max });
        }
        self.sources[key.0 as usize].window.skip(next_offset);
        if shares.is_empty() {
            return;
        }
        self.sources[key.0 as usize].counters.batches_rewritten[RewriteReason::Partitioned as usize] += 1;
        let settings = DealSettings {
            partitioner,
            shares,
            target_codec: self.settings.compression,
            decompressed_bytes_max: self.settings.decompressed_bytes_max,
        };
        let work = Work::Deal { batch: batch.bytes, magic: batch.magic, settings };
        self.commands.push(Command::Rewrite(RewriteJob { id, work }));
    }

    /// What a batch became takes the places that were kept for it.
    pub(super) fn place_dealt(&mut self, job: u64, dealt: Dealt, now: Duration) {
        for (job, pieces) in (job..).zip(dealt.shares) {
            let Some((target, place, working)) = self.take_working(job) else { continue };
            let (source, codec, jobs_before) = (working.source, dealt.codec, self.next_job);
            let as_item = |cargo| Item::Dealt(Share { cargo, codec, since: now, jobs_before });
            self.place_pieces(target, place, working, pieces, as_item);
            self.gather_full(target, source);
            self.schedule(target);
        }
    }

    /// A batch cannot be opened: one of those that wait for it stops, and so all of them do.
    pub(super) fn refuse_dealt(&mut self, job: u64, places: usize, error: &record::Error) {
        let mut is_said = false;
        for job in (job..).take(places) {
            let Some((target, place, working)) = self.take_working(job) else { continue };
            let key = working.source;
            self.drop_working(target, place, working);
            if !std::mem::replace(&mut is_said, true) {
                self.stop_unreadable(key, error);
            }
            self.schedule(target);
        }
    }

    /// Nothing of these offsets goes to the target.
    pub(super) fn deal_nothing(&mut self, key: PartitionKey, next_offset: i64) {
        for child in self.children(key).to_vec() {
            self.sources[child.0 as usize].window.skip(next_offset);
        }
    }

    /// A child has dropped what it was given, or takes something again: its parent fetches from where the first of them is.
    pub(super) fn go_back_with(&mut self, child: PartitionKey) {
        let Some(parent) = self.parent(child) else { return };
        let children = self.children(parent);
        let next = children.iter().map(|child| self.sources[child.0 as usize].window.next_offset()).min();
        self.leave_session(parent);
        let source = &mut self.sources[parent.0 as usize];
        if let Some(next) = next.filter(|_| source.window_generation > source.void_generation) {
            source.window = Window::new(next, None);
            source.last_fetched_epoch = -1;
        }
        self.fetch(parent);
    }

    /// The first upstream offset that is not known to be on the target.
    pub(super) fn family_position(&self, key: PartitionKey) -> Option<i64> {
        self.children(key).iter().map(|child| self.sources[child.0 as usize].window.position()).min()
    }
}

//! What was fetched is planned, and queued for the target or left out.

use std::time::Duration;

use super::super::cargo::{Cargo, Covers, Origin, Part};
use super::super::plan::{AbortedFilter, Plan, SkipReason, plan};
use super::super::status::{EventKind, RewriteReason};
use super::super::window::EntryId;
use super::{
    Command, Engine, Item, Notice, RewriteJob, Share, SourceState, Watermarks, Work, Worked, Working,
    WorkingKind,
};
use crate::client::{FetchEvent, Fetched, FetchedBatch, IsolationLevel, PartitionKey, TargetKey};
use crate::mirror::OnOversize;
use crate::record::{self, BatchHeader, Codec, Magic, Piece, RewriteSettings};

impl Engine {
    /// A fetch lane has something to say.
    pub fn on_fetch(&mut self, broker: i32, event: FetchEvent, now: Duration) {
        match event {
            FetchEvent::Fetched(fetched) => self.on_fetched(fetched),
            FetchEvent::Failed { key, generation, code, diverging } => {
                if self.is_current(key, generation) {
                    self.on_fetch_failed(key, code, diverging, now);
                }
            }
            FetchEvent::Damaged { key, generation, offset, error } => {
                if self.is_current(key, generation) {
                    self.on_damaged(key, offset, &error, now);
                }
            }
            FetchEvent::Connected => self.fetch_lanes.entry(broker).or_default().connected = true,
            FetchEvent::Disconnected { reason } => {
                let lane = self.fetch_lanes.entry(broker).or_default();
                lane.connected = false;
                lane.disconnects += 1;
                lane.last_error = Some(reason);
                self.commands.push(Command::RefreshSource);
            }
            FetchEvent::Silent => self.commands.push(Command::RefreshSource),
            FetchEvent::Throttled(duration) => {
                self.fetch_lanes.entry(broker).or_default().throttle += duration
            }
        }
        self.pump(now);
        self.regulate(now);
    }

    fn is_current(&self, key: PartitionKey, generation: u32) -> bool {
        self.sources.get(key.0 as usize).is_some_and(|source| {
            source.fetch_generation == generation && matches!(source.state, SourceState::Fetching(_))
        })
    }

    fn on_fetched(&mut self, fetched: Fetched) {
        let key = fetched.key;
        if !self.is_current(key, fetched.generation) {
            return;
        }
        self.note_watermarks(&fetched);
        let source = &mut self.sources[key.0 as usize];
        if source.filter.as_ref().is_none_or(|filter| !filter.follows(&fetched.aborted)) {
            source.filter = Some(AbortedFilter::new(fetched.aborted));
        }
        let target = source.target;
        for batch in fetched.batches {
            if self.family_must_hold(key) {
                return;
            }
            if self.must_hold(key) {
                self.hold(key);
                return;
            }
            if let Err(error) = self.take(key, target, batch) {
                let offset = self.sources[key.0 as usize].window.next_offset();
                self.stop_source(
                    key,
                    "damaged",
                    format!("the batch at offset {offset} is damaged: {error}"),
                    None,
                );
                return;
            }
        }
        for (target, _) in self.targets_of(key) {
            self.merge_backlog(target);
            self.schedule(target);
        }
    }

    fn note_watermarks(&mut self, fetched: &Fetched) {
        let isolation = self.settings.isolation_level;
        let source = &mut self.sources[fetched.key.0 as usize];
        source.failures = 0;
        let watermarks = Watermarks {
            high: fetched.high_watermark,
            last_stable: fetched.last_stable_offset,
            log_start: fetched.log_start_offset,
        };
        source.end_at_start.get_or_insert(watermarks.end(isolation));
        source.note(watermarks, isolation, self.now_ms);
    }

    fn take(
        &mut self,
        key: PartitionKey,
        target: TargetKey,
        batch: FetchedBatch,
    ) -> Result<(), record::Error> {
        if batch.magic != Magic::V2 {
            return self.take_legacy(key, target, batch);
        }
        let header = BatchHeader::parse(&batch.bytes)?;
        if header.size_bytes != batch.bytes.len() {
            return Err(record::Error::Truncated {
                what: "batch",
                needed: header.size_bytes,
                available: batch.bytes.len(),
            });
        }
        let isolation = self.settings.isolation_level;
        let limits = self.targets[target.0 as usize].limits;
        let source = &mut self.sources[key.0 as usize];
        source.last_fetched_epoch = header.partition_leader_epoch;
        let position = source.window.next_offset();
        let filter = source.filter.as_mut().expect("on_fetched made a filter before it took the first batch");
        let verdict = filter.judge(&header, &batch.bytes, isolation);
        if header.attributes.is_transactional() {
            self.note_transactional(key);
        }
        let is_dealt = !self.children(key).is_empty();
        let (now_ms, source) = (self.now_ms, &mut self.sources[key.0 as usize]);
        let plan = plan(&header, verdict, position, &limits);
        if !matches!(plan, Plan::Skip(_)) {
            let records = u64::from(header.record_count.unsigned_abs());
            source.traffic().read(now_ms, header.max_timestamp, records);
        }
        match plan {
            Plan::Forward | Plan::Rewrite(_) if is_dealt => self.deal(key, header.next_offset(), batch),
            Plan::Skip(SkipReason::BelowPosition) => {}
            Plan::Skip(_) => {
                source.window.skip(header.next_offset());
                source.counters.batches_skipped += 1;
                self.deal_nothing(key, header.next_offset());
            }
            Plan::Forward if self.instead_of_its_codec(target, &batch).is_some() => {
                self.rewrite(key, target, header.next_offset(), RewriteReason::Codec, batch);
            }
            Plan::Forward => self.forward(key, target, &header, batch),
            Plan::Rewrite(reason) => self.rewrite(key, target, header.next_offset(), reason, batch),
        }
        Ok(())
    }

    /// Under read_uncommitted, aborted records are copied as if they were committed: said once.
    fn note_transactional(&mut self, key: PartitionKey) {
        if self.settings.isolation_level == IsolationLevel::ReadUncommitted && !self.said_transactional {
            self.said_transactional = true;
            let source = &self.sources[key.0 as usize];
            let message = format!(
                "holds transactions, and isolation.level is read_uncommitted: records of aborted transactions are copied \
                 like any others; set {}.consumer.isolation.level = read_committed to leave them out",
                self.settings.source
            );
            let notice = Notice { topic: source.topic.clone(), partition: source.partition, message };
            self.commands.push(Command::Log(notice));
        }
    }

    /// A message of magic 0 or 1: the offset in front of it is that of its last (or only) record.
    fn take_legacy(
        &mut self,
        key: PartitionKey,
        target: TargetKey,
        batch: FetchedBatch,
    ) -> Result<(), record::Error> {
        let Some(offset) = batch.bytes.first_chunk::<8>().map(|bytes| i64::from_be_bytes(*bytes)) else {
            return Err(record::Error::Truncated {
                what: "message",
                needed: 8,
                available: batch.bytes.len(),
            });
        };
        let next_offset = offset.saturating_add(1);
        let is_news = next_offset > self.sources[key.0 as usize].window.next_offset();
        if is_news && !self.children(key).is_empty() {
            self.deal(key, next_offset, batch);
        } else if is_news {
            self.rewrite(key, target, next_offset, RewriteReason::OldFormat, batch);
        }
        Ok(())
    }

    fn forward(&mut self, key: PartitionKey, target: TargetKey, header: &BatchHeader, batch: FetchedBatch) {
        let bytes = batch.bytes.len();
        self.charge(key, bytes);
        let source = &mut self.sources[key.0 as usize];
        let entry = source.window.push(header.next_offset(), bytes);
        let part = Part {
            source: key,
            generation: source.window_generation,
            entry,
            upstream: header.base_offset,
            record_count: header.record_count,
            covers: Covers::Entry,
        };
        if self.join(target, header, &batch.bytes, part) {
            return;
        }
        let cargo = Cargo {
            batch: batch.bytes,
            record_count: header.record_count,
            max_timestamp: header.max_timestamp,
            origin: Origin::Verbatim,
            parts: vec![part],
        };
        self.enqueue(target, Item::Ready(cargo));
    }

    pub(super) fn rewrite(
        &mut self,
        key: PartitionKey,
        target: TargetKey,
        next_offset: i64,
        reason: RewriteReason,
        batch: FetchedBatch,
    ) {
        let bytes = batch.bytes.len();
        self.charge(key, bytes);
        let batch_bytes_max = self.targets[target.0 as usize].limits.max_message_bytes;
        let target_codec = self.instead_of_its_codec(target, &batch);
        let source = &mut self.sources[key.0 as usize];
        let start_offset = source.window.next_offset();
        let entry = source.window.push(next_offset, bytes);
        let generation = source.window_generation;
        let settings = RewriteSettings {
            start_offset,
            end_offset: i64::MAX,
            target_codec,
            batch_bytes_max,
            decompressed_bytes_max: self.settings.decompressed_bytes_max,
        };
        let job = self.start_job(target, Work::Rewrite { batch: batch.bytes, magic: batch.magic, settings });
        let kind = WorkingKind::Batch { entry, reason };
        self.enqueue(target, Item::Working(Working { job, source: key, generation, bytes, kind }));
    }

    fn instead_of_its_codec(&self, target: TargetKey, batch: &FetchedBatch) -> Option<Codec> {
        match batch.magic {
            Magic::V2 => {
                self.targets[target.0 as usize].codecs.instead_of(self.settings.compression, &batch.bytes)
            }
            Magic::V0 | Magic::V1 => self.settings.compression,
        }
    }

    pub(super) fn start_job(&mut self, target: TargetKey, work: Work) -> u64 {
        let id = self.number_job(target);
        self.commands.push(Command::Rewrite(RewriteJob { id, work }));
        id
    }

    pub(super) fn number_job(&mut self, target: TargetKey) -> u64 {
        let id = self.next_job;
        self.next_job += 1;
        self.jobs.insert(id, target);
        id
    }

    pub(super) fn enqueue(&mut self, target: TargetKey, item: Item) {
        self.hold_unpacked(item.unpacked_bytes());
        let target = &mut self.targets[target.0 as usize];
        target.queue_bytes += item.bytes();
        target.queue.push_back(item);
    }

    /// A job is done: its batches take the places that were kept for them.
    pub fn on_rewritten(&mut self, job: u64, worked: Worked, now: Duration) {
        match worked {
            Worked::Pieces(result) => self.place_outcome(job, result),
            Worked::Dealt { dealt: Ok(dealt), .. } => self.place_dealt(job, dealt, now),
            Worked::Dealt { places, dealt: Err(error) } => self.refuse_dealt(job, places, &error),
        }
        self.pump(now);
        self.regulate(now);
    }

    /// The place in a queue that waits for a job, unless it was dropped meanwhile.
    pub(super) fn take_working(&mut self, job: u64) -> Option<(TargetKey, usize, Working)> {
        let key = self.jobs.remove(&job)?;
        let target = &mut self.targets[key.0 as usize];
        let is_it = |item: &Item| matches!(item, Item::Working(working) if working.job == job);
        let place = target.queue.iter().position(is_it)?;
        let item = target.queue.remove(place)?;
        target.queue_bytes -= item.bytes();
        self.free_unpacked(item.unpacked_bytes());
        let Item::Working(working) = item else { return None };
        Some((key, place, working))
    }

    fn place_outcome(&mut self, job: u64, result: Result<Vec<Piece>, record::Error>) {
        let Some((target, place, working)) = self.take_working(job) else { return };
        match result {
            Ok(pieces) => match working.kind {
                WorkingKind::Merge(_) => self.place_merged(target, place, working, pieces),
                _ => self.place_pieces(target, place, working, pieces, Item::Ready),
            },
            Err(_) if matches!(working.kind, WorkingKind::Merge(_)) => self.unmerge(target, place, working),
            Err(error) => {
                let key = working.source;
                self.drop_working(target, place, working);
                self.stop_unreadable(key, &error);
            }
        }
        self.schedule(target);
    }

    /// What waits for a job that failed is dropped with all that is behind it.
    pub(super) fn drop_working(&mut self, target: TargetKey, place: usize, working: Working) {
        let key = working.source;
        self.put_back(target, place, Item::Working(working));
        self.drop_queued_from(key, target, place);
    }

    pub(super) fn stop_unreadable(&mut self, key: PartitionKey, error: &record::Error) {
        let offset = self.sources[key.0 as usize].window.next_offset();
        let message = format!("the batch at offset {offset} cannot be read: {error}");
        self.stop_source(key, "damaged", message, None);
    }

    pub(super) fn put_back(&mut self, target: TargetKey, place: usize, item: Item) {
        self.hold_unpacked(item.unpacked_bytes());
        let target = &mut self.targets[target.0 as usize];
        target.queue_bytes += item.bytes();
        target.queue.insert(place, item);
    }

    /// Puts what came of a place there, as the items that `as_item` makes.
    pub(super) fn place_pieces(
        &mut self,
        target: TargetKey,
        place: usize,
        working: Working,
        pieces: Vec<Piece>,
        as_item: impl Fn(Cargo) -> Item,
    ) {
        let key = working.source;
        let (origin, completes) = match working.kind {
            WorkingKind::Batch { entry, reason } => {
                self.sources[key.0 as usize].counters.batches_rewritten[reason as usize] += 1;
                (PartsOrigin::Batch { source: key, generation: working.generation, entry }, Some(entry))
            }
            WorkingKind::Share { entry } => {
                (PartsOrigin::Batch { source: key, generation: working.generation, entry }, Some(entry))
            }
            WorkingKind::Cargo(cargo) => {
                let base_offset =
                    cargo.batch.first_chunk::<8>().map_or(0, |bytes| i64::from_be_bytes(*bytes));
                (PartsOrigin::Cargo { base_offset, parts: cargo.parts }, None)
            }
            WorkingKind::Merge(_) => return,
        };
        let mut cargos: Vec<Cargo> = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Batch(rewritten) => {
                    let segments = rewritten.segments.iter().map(|s| (s.upstream_offset, s.record_count));
                    cargos.push(Cargo {
                        batch: rewritten.batch,
                        record_count: rewritten.record_count,
                        max_timestamp: rewritten.max_timestamp,
                        origin: Origin::Rewritten,
                        parts: segments.flat_map(|(offset, count)| origin.parts(offset, count)).collect(),
                    });
                }
                Piece::Oversize { upstream_offset, size_bytes } => {
                    let Some(part) = origin.parts(upstream_offset, 1).pop() else { continue };
                    let message = self.oversize_message(target, part.upstream, size_bytes);
                    if self.settings.on_oversize == OnOversize::Stop {
                        self.stop_at(target, place, cargos, part, message, as_item);
                        return;
                    }
                    self.sources[key.0 as usize].counters.records_skipped += 1;
                    self.push_event(key, EventKind::Skipped { offset: part.upstream, reason: message });
                    cover_skipped(&mut cargos, part);
                }
            }
        }
        if let Some(entry) = completes {
            match cargos.last_mut().and_then(|cargo| cargo.parts.last_mut()) {
                Some(last) => last.covers = Covers::Entry,
                None => {
                    let freed = self.sources[key.0 as usize].window.done(entry, None);
                    self.release(key, freed);
                }
            }
        }
        self.place_items(target, place, cargos.into_iter().map(as_item));
    }

    pub(super) fn oversize_message(&self, target: TargetKey, offset: i64, size_bytes: usize) -> String {
        let target = &self.targets[target.0 as usize];
        format!(
            "the record at source offset {offset} makes a batch of {size_bytes} bytes, but {} topic {} takes {} \
             (max.message.bytes): raise it there, or set kmirror.on.oversize=skip",
            self.settings.target, self.topics[target.topic].name, target.limits.max_message_bytes
        )
    }

    fn place_items(&mut self, target: TargetKey, place: usize, items: impl Iterator<Item = Item>) {
        for (index, item) in items.enumerate() {
            self.put_back(target, place + index, item);
        }
    }

    /// Queues what comes before the record of `part`, gives up what comes behind it, and stops the source there.
    fn stop_at(
        &mut self,
        target: TargetKey,
        place: usize,
        mut cargos: Vec<Cargo>,
        part: Part,
        message: String,
        as_item: impl Fn(Cargo) -> Item,
    ) {
        let key = part.source;
        self.drop_queued_from(key, target, place);
        let window = &mut self.sources[key.0 as usize].window;
        let freed = match cargos.last_mut().and_then(|cargo| cargo.parts.last_mut()) {
            Some(last) => {
                last.covers = Covers::Entry;
                window.truncate(last.entry, part.upstream)
            }
            None => window.rewind_to(part.entry),
        };
        self.release(key, freed);
        self.place_items(target, place, cargos.into_iter().map(as_item));
        self.stop_source(key, "oversize", message, Some(self.settings.stopped_backoff.max));
    }
}

/// A record that is left out counts as done with the one before it.
fn cover_skipped(cargos: &mut [Cargo], skipped: Part) {
    if let Some(last) = cargos.last_mut().and_then(|cargo| cargo.parts.last_mut())
        && last.entry == skipped.entry
    {
        last.covers = skipped.covers;
    }
}

/// What the offsets of rewritten records are counted by.
enum PartsOrigin {
    /// A source batch: upstream offsets.
    Batch { source: PartitionKey, generation: u32, entry: EntryId },
    /// A cargo: its records counted densely from the base offset in its header.
    Cargo { base_offset: i64, parts: Vec<Part> },
}

impl PartsOrigin {
    fn parts(&self, offset: i64, record_count: i32) -> Vec<Part> {
        match self {
            PartsOrigin::Batch { source, generation, entry } => vec![Part {
                source: *source,
                generation: *generation,
                entry: *entry,
                upstream: offset,
                record_count,
                covers: Covers::UpTo(offset + i64::from(record_count)),
            }],
            PartsOrigin::Cargo { base_offset, parts } => {
                parts_within(parts, offset - base_offset, record_count)
            }
        }
    }
}

/// The parts of a cargo that lie within a run of its records, given by the index of the first.
fn parts_within(old: &[Part], first: i64, record_count: i32) -> Vec<Part> {
    let (mut at, end) = (0_i64, first + i64::from(record_count));
    let mut parts = Vec::new();
    for part in old {
        let part_end = at + i64::from(part.record_count);
        let (from, to) = (at.max(first), part_end.min(end));
        if from < to {
            let upstream = part.upstream + (from - at);
            let record_count = (to - from) as i32;
            let covers =
                if to == part_end { part.covers } else { Covers::UpTo(upstream + i64::from(record_count)) };
            parts.push(Part { upstream, record_count, covers, ..*part });
        }
        at = part_end;
    }
    parts
}

impl Item {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Item::Ready(cargo) | Item::Dealt(Share { cargo, .. }) => cargo.batch.len(),
            Item::Open(open) => open.bytes,
            Item::Working(working) => working.bytes,
        }
    }

    /// Bytes that it has beyond those of the source's batches.
    pub(super) fn unpacked_bytes(&self) -> usize {
        match self {
            Item::Dealt(share) => share.cargo.batch.len(),
            Item::Working(Working { kind: WorkingKind::Cargo(cargo), .. }) => cargo.batch.len(),
            _ => 0,
        }
    }

    pub(super) fn source(&self) -> Option<PartitionKey> {
        match self {
            Item::Ready(cargo) | Item::Dealt(Share { cargo, .. }) => cargo.source(),
            Item::Open(open) => open.source(),
            Item::Working(working) => Some(working.source),
        }
    }

    pub(super) fn first_entry(&self) -> Option<EntryId> {
        match self {
            Item::Ready(cargo) | Item::Dealt(Share { cargo, .. }) => {
                cargo.parts.first().map(|part| part.entry)
            }
            Item::Open(open) => open.parts.first().map(|part| part.entry),
            Item::Working(Working {
                kind: WorkingKind::Batch { entry, .. } | WorkingKind::Share { entry },
                ..
            }) => Some(*entry),
            Item::Working(Working { kind: WorkingKind::Merge(cargos), .. }) => {
                cargos.first().and_then(|cargo| cargo.parts.first()).map(|part| part.entry)
            }
            Item::Working(Working { kind: WorkingKind::Cargo(cargo), .. }) => {
                cargo.parts.first().map(|part| part.entry)
            }
        }
    }
}

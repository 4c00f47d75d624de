//! What follows a failure: sending again, cutting anew, stopping one partition with its reason.

use std::time::Duration;

use kafka_protocol::ResponseError;

use super::super::append::{Numbering, Remedy};
use super::super::cargo::Covers;
use super::super::plan::TakenCodecs;
use super::super::status::{EventKind, RewriteReason, Stopped, TOPIC_GONE, UNAVAILABLE};
use super::{Command, Engine, Item, Notice, SourceState, Timer, Work, Working, WorkingKind};
use crate::client::{Class, ErrorCode, PartitionKey, ProduceAnswer, Refresh, TargetKey};
use crate::mirror::{OnOversize, OnRefused};
use crate::record::{self, Magic, RewriteSettings};

/// Failures in a row after which a partition that answers UNKNOWN_SERVER_ERROR counts as stopped.
const FAILURES_MAX: u32 = 20;
/// A damaged batch is fetched again this often before its partition stops.
const REFETCHES_MAX: u32 = 3;

impl Engine {
    /// Once nothing of a failed target partition is in flight any more, does what its failure calls for: at once for a
    /// first failure that another cut mends, after a back-off otherwise.
    pub(super) fn settle(&mut self, key: TargetKey, now: Duration) {
        self.update_stuck(key);
        let Some(append) = self.targets[key.0 as usize].append.as_ref() else { return };
        let Some(remedy) = append.settled() else { return };
        let at_once = append.failures() <= 2 && append.first_is_not_appended();
        if at_once && !matches!(remedy, Remedy::Resend | Remedy::CheckCrc) {
            self.act(key, now);
            return;
        }
        let failures = append.failures().saturating_sub(1);
        if failures > 0 {
            self.commands.push(Command::RefreshTarget);
        }
        let target = &mut self.targets[key.0 as usize];
        if target.resend_at.is_none() {
            let delay = self.settings.retry_backoff.delay(failures, spread(key.0, failures));
            target.resend_at = Some(now + delay);
            self.timers.insert((now + delay, Timer::Resend(key)));
        }
    }

    /// Applies the remedy of a failed target partition of which nothing is in flight.
    pub(super) fn act(&mut self, key: TargetKey, now: Duration) {
        let target = &mut self.targets[key.0 as usize];
        let Some(append) = target.append.as_mut() else { return };
        let Some(remedy) = append.settled() else { return };
        let certain = append.first_is_not_appended();
        // Sent again, its records were refused: that says nothing about the first attempt.
        let is_unclear = matches!(remedy, Remedy::Narrow(_)) && !certain;
        if is_unclear || append.may_be_forgotten(now, self.now_ms) {
            self.inquire(key);
            return;
        }
        match remedy {
            Remedy::Stop(code) if certain => self.stop_by_code(key, code, now),
            Remedy::Resend if certain && append.failures() >= FAILURES_MAX && target.stopped.is_none() => {
                self.stop_unavailable(key, now);
            }
            Remedy::BumpEpoch if certain && append.has_epoch_left() => {
                self.requeue(key, Numbering::NextEpoch)
            }
            Remedy::BumpEpoch | Remedy::NewProducer if certain => self.renew_producer(key),
            Remedy::Split if certain => self.split(key, now),
            Remedy::Narrow(index) if certain => self.narrow(key, index, now),
            Remedy::CheckCrc if certain => self.check_crc(key),
            Remedy::Recode if certain => self.recode(key, now),
            _ => append.start_resending(),
        }
        self.update_stuck(key);
        self.schedule(key);
    }

    /// Takes what is not acknowledged back to the front of the queue.
    fn requeue(&mut self, key: TargetKey, numbering: Numbering) {
        let Some(append) = self.targets[key.0 as usize].append.as_mut() else { return };
        let cargos = append.requeue(numbering);
        for cargo in cargos.into_iter().rev() {
            self.put_back(key, 0, Item::Ready(cargo));
        }
    }

    /// Asks for a new producer id; [`Engine::on_producer`] goes on.
    fn renew_producer(&mut self, key: TargetKey) {
        if self.renewing.is_empty() {
            self.commands.push(Command::NewProducer);
        }
        self.renewing.insert(key);
    }

    pub(super) fn renewed(&mut self, producer_id: i64, producer_epoch: i16) {
        for key in std::mem::take(&mut self.renewing) {
            let append = self.targets[key.0 as usize].append.as_ref();
            if append.is_some_and(|append| append.settled().is_some() && append.first_is_not_appended()) {
                self.requeue(key, Numbering::Producer(producer_id, producer_epoch));
                self.update_stuck(key);
            }
        }
    }

    /// The target takes no batch of this size: the first one is cut smaller, off the lane.
    fn split(&mut self, key: TargetKey, now: Duration) {
        self.requeue(key, Numbering::GoOn);
        let target = &mut self.targets[key.0 as usize];
        let Some(Item::Ready(first)) = target.queue.front() else { return };
        let (size_bytes, count) = (first.batch.len(), first.record_count);
        if size_bytes > target.limits.max_message_bytes {
            let batch_bytes_max = target.limits.max_message_bytes;
            self.rewrite_first(key, 0, i64::MAX, batch_bytes_max);
            return;
        }
        // The limit is below the one that we know of: halves, until they fit, and nothing merged beyond them.
        target.merged_bytes_max = target.merged_bytes_max.min(size_bytes / 2);
        if count > 1 {
            self.cut_first_at(key, count / 2);
            return;
        }
        let Some(part) = first.parts.first().copied() else { return };
        let message = self.oversize_message(key, part.upstream, size_bytes);
        match self.settings.on_oversize {
            OnOversize::Stop => {
                self.stop_target(key, "oversize", message, Some(self.settings.stopped_backoff.max), now)
            }
            OnOversize::Skip => self.leave_out_first(key, message),
        }
    }

    /// The target does not take the codec of the first batch: zstd batches become another codec's, those that wait as
    /// well as those that will come.
    fn recode(&mut self, key: TargetKey, now: Duration) {
        self.requeue(key, Numbering::GoOn);
        let target = &mut self.targets[key.0 as usize];
        let first = std::mem::replace(&mut target.codecs, TakenCodecs::AllButZstd) == TakenCodecs::All;
        let recoded = |item: &Item| match item {
            Item::Ready(cargo) => TakenCodecs::AllButZstd.instead_of(None, &cargo.batch).is_some(),
            Item::Dealt(_) | Item::Open(_) | Item::Working(_) => false,
        };
        if !target.queue.front().is_some_and(recoded) {
            self.stop_by_code(key, ResponseError::UnsupportedCompressionType.code(), now);
            return;
        }
        let batch_bytes_max = target.limits.max_message_bytes;
        let places: Vec<usize> = (0..target.queue.len()).filter(|&at| recoded(&target.queue[at])).collect();
        for place in places {
            if let Some(source) = self.rewrite_at(key, place, 0, i64::MAX, batch_bytes_max) {
                let counters = &mut self.sources[source.0 as usize].counters;
                counters.batches_rewritten[RewriteReason::Codec as usize] += 1;
            }
        }
        if first {
            let message = format!(
                "{} does not take zstd: its batches are compressed anew, as lz4",
                self.settings.target
            );
            self.log_target(key, message);
        }
    }

    /// Leaves out the one record of the first cargo.
    fn leave_out_first(&mut self, key: TargetKey, reason: String) {
        let target = &mut self.targets[key.0 as usize];
        let Some(Item::Ready(cargo)) = target.queue.pop_front() else { return };
        target.queue_bytes -= cargo.batch.len();
        for part in cargo.parts {
            let source = &mut self.sources[part.source.0 as usize];
            source.counters.records_skipped += 1;
            let freed = match part.covers {
                Covers::Entry => source.window.done(part.entry, None),
                Covers::UpTo(upstream) => {
                    source.window.advance(part.entry, upstream, None);
                    0
                }
            };
            self.release(part.source, freed);
            self.push_event(
                part.source,
                EventKind::Skipped { offset: part.upstream, reason: reason.clone() },
            );
        }
    }

    /// A record is refused: what stands before it goes alone, until the refused one is alone. Its partition stops there, or
    /// the record is left out (`errors.tolerance`).
    fn narrow(&mut self, key: TargetKey, index: Option<usize>, now: Duration) {
        self.requeue(key, Numbering::GoOn);
        let Some(Item::Ready(first)) = self.targets[key.0 as usize].queue.front() else { return };
        let count = first.record_count;
        if count > 1 {
            let index = index.and_then(|index| i32::try_from(index).ok()).filter(|&index| index < count);
            self.cut_first_at(key, index.map_or(count / 2, |index| index.max(1)));
            return;
        }
        let offset = first.parts.first().map_or(0, |part| part.upstream);
        let refusal = self.targets[key.0 as usize].refusal();
        let refused =
            format!("{} refuses the record at source offset {offset}: {refusal}", self.settings.target);
        if self.settings.on_refused == OnRefused::Skip {
            self.leave_out_first(key, refused);
            return;
        }
        let message = format!(
            "{refused}; change the target topic's settings (message.timestamp.*, cleanup.policy), or leave such records \
             out with errors.tolerance=all"
        );
        self.stop_target(key, "refused", message, Some(self.settings.stopped_backoff.max), now);
    }

    /// Cuts the first cargo in two, before its record with this index.
    fn cut_first_at(&mut self, key: TargetKey, index: i32) {
        let Some(Item::Ready(cargo)) = self.targets[key.0 as usize].queue.front() else { return };
        let cargo = cargo.clone();
        let base_offset = cargo.batch.first_chunk::<8>().map_or(0, |bytes| i64::from_be_bytes(*bytes));
        let middle = base_offset + i64::from(index);
        self.rewrite_first(key, middle, i64::MAX, usize::MAX);
        self.put_back(key, 0, Item::Ready(cargo));
        self.rewrite_first(key, 0, middle, usize::MAX);
    }

    /// Sends the first cargo of the queue to be rewritten; its place is kept.
    fn rewrite_first(&mut self, key: TargetKey, start_offset: i64, end_offset: i64, batch_bytes_max: usize) {
        self.rewrite_at(key, 0, start_offset, end_offset, batch_bytes_max);
    }

    /// Sends the cargo at `place` of the queue to be rewritten, and names its source.
    fn rewrite_at(
        &mut self,
        key: TargetKey,
        place: usize,
        start_offset: i64,
        end_offset: i64,
        batch_bytes_max: usize,
    ) -> Option<PartitionKey> {
        let target = &mut self.targets[key.0 as usize];
        let (Some(Item::Ready(cargo)), codecs) = (target.queue.remove(place), target.codecs) else {
            return None;
        };
        target.queue_bytes -= cargo.batch.len();
        let part = cargo.parts.first().copied()?;
        let settings = RewriteSettings {
            start_offset,
            end_offset,
            target_codec: codecs.instead_of(None, &cargo.batch),
            batch_bytes_max,
            decompressed_bytes_max: self.settings.decompressed_bytes_max,
        };
        let batch = cargo.batch.clone();
        let bytes = batch.len();
        let job = self.start_job(key, Work::Rewrite { batch, magic: Magic::V2, settings });
        let (source, generation) = (part.source, part.generation);
        let kind = WorkingKind::Cargo(cargo);
        self.put_back(key, place, Item::Working(Working { job, source, generation, bytes, kind }));
        Some(source)
    }

    /// The target says that a checksum is wrong: if the bytes that we hold say so too, they are fetched again.
    fn check_crc(&mut self, key: TargetKey) {
        let Some(append) = self.targets[key.0 as usize].append.as_mut() else { return };
        let Some((source, upstream, error)) = append.first().and_then(|cargo| {
            let part = cargo.parts.first()?;
            Some((part.source, part.upstream, record::verify_crc(&cargo.batch).err()?))
        }) else {
            append.start_resending();
            return;
        };
        self.requeue(key, Numbering::GoOn);
        self.drop_queued(source);
        let state = &mut self.sources[source.0 as usize];
        state.refetches += 1;
        if state.refetches > REFETCHES_MAX {
            let message = format!(
                "the batch at source offset {upstream} is damaged at {}: {error}",
                self.settings.source
            );
            self.stop_source(source, "damaged", message, Some(self.settings.stopped_backoff.max));
        } else {
            self.leave_session(source);
            self.fetch(source);
        }
    }

    /// Remembers the target's words, for the message with which a partition may stop.
    pub(super) fn note_refusal(&mut self, key: TargetKey, answer: &ProduceAnswer) {
        if answer.code == 0 {
            return;
        }
        let words = answer
            .record_errors
            .first()
            .and_then(|error| error.message.clone())
            .or_else(|| answer.message.clone());
        let code = ErrorCode(answer.code);
        if let Some(target) = self.targets.get_mut(key.0 as usize) {
            target.last_refusal = Some(words.map_or(code.to_string(), |words| format!("{code}: {words}")));
        }
        if code.class() == Class::Retriable(Refresh::Metadata) {
            self.commands.push(Command::RefreshTarget);
        }
    }

    /// Whatever it is that should pass has not passed: others need not wait for its batches.
    fn stop_unavailable(&mut self, key: TargetKey, now: Duration) {
        let why = self.targets[key.0 as usize].refusal();
        let message = format!("{} could not take its batches at many tries: {why}", self.settings.target);
        self.stop_target(key, UNAVAILABLE, message, Some(self.settings.stopped_backoff.initial), now);
    }

    fn stop_by_code(&mut self, key: TargetKey, code: i16, now: Duration) {
        let reason = match ResponseError::try_from_code(code) {
            Some(
                ResponseError::TopicAuthorizationFailed
                | ResponseError::ClusterAuthorizationFailed
                | ResponseError::TransactionalIdAuthorizationFailed,
            ) => "not_authorized",
            Some(
                ResponseError::UnknownTopicOrPartition
                | ResponseError::InvalidTopicException
                | ResponseError::UnknownTopicId
                | ResponseError::InconsistentTopicId,
            ) => "topic_gone",
            _ => "refused",
        };
        let why = self.targets[key.0 as usize].refusal();
        let needs = match reason {
            "not_authorized" => "; WRITE on the topic is needed (kmirror acls prints all)",
            _ => "",
        };
        let message = format!("{} does not take its batches: {why}{needs}", self.settings.target);
        self.stop_target(key, reason, message, Some(self.settings.stopped_backoff.initial), now);
    }

    /// Stops a target partition and all that feeds it; nothing else.
    pub(super) fn stop_target(
        &mut self,
        key: TargetKey,
        reason: &'static str,
        message: String,
        retry: Option<Duration>,
        now: Duration,
    ) {
        let target = &mut self.targets[key.0 as usize];
        target.stops += 1;
        let longest = self.settings.stopped_backoff.max;
        let delay = retry.map(|delay| delay.saturating_mul(target.stops).min(longest));
        let retry_ms = delay.map(|delay| self.now_ms + delay.as_millis() as i64);
        let stopped = Stopped { reason, message: message.clone(), since_ms: self.now_ms, retry_ms };
        let first = target.stopped.replace(stopped).is_none();
        if target
            .append
            .as_ref()
            .is_some_and(|append| append.in_flight() == 0 && append.first_is_not_appended())
        {
            self.requeue(key, Numbering::GoOn);
        }
        for source in self.targets[key.0 as usize].sources.clone() {
            self.hold(source);
        }
        if let Some(delay) = delay {
            self.timers.insert((now + delay, Timer::RetryTarget(key)));
        }
        self.update_stuck(key);
        if first {
            self.log_target(key, message);
        }
    }

    pub(super) fn retry_target(&mut self, key: TargetKey, now: Duration) {
        let target = &mut self.targets[key.0 as usize];
        if target.stopped.take().is_none() {
            return;
        }
        self.update_stuck(key);
        self.commands.push(Command::RefreshTarget);
        if self.targets[key.0 as usize].append.as_ref().is_some_and(|append| append.settled().is_some()) {
            self.act(key, now);
        }
        self.unhold(key);
        self.schedule(key);
    }

    /// Stops one source partition with its reason; what is on its way is still delivered.
    pub(super) fn stop_source(
        &mut self,
        key: PartitionKey,
        reason: &'static str,
        message: String,
        retry: Option<Duration>,
    ) {
        self.leave_session(self.parent(key).unwrap_or(key));
        let retry_ms = retry.map(|delay| self.now_ms + delay.as_millis() as i64);
        let source = &mut self.sources[key.0 as usize];
        // What is left of it is no matter of ours any more.
        if matches!(source.state, SourceState::Released) {
            return;
        }
        source.state = SourceState::Stopped(Stopped {
            reason,
            message: message.clone(),
            since_ms: self.now_ms,
            retry_ms,
        });
        let notice = Notice { topic: source.topic.clone(), partition: source.partition, message };
        self.commands.push(Command::Log(notice));
        self.stopped_sources.insert(key, retry);
    }

    /// Stops a partition whose topic is gone: it has no end any more, and so no lag.
    pub fn stop_gone(&mut self, key: PartitionKey, message: String) {
        self.stop_source(key, TOPIC_GONE, message, None);
        let source = &mut self.sources[key.0 as usize];
        (source.watermarks, source.blocked_since_ms) = (None, None);
    }

    /// Stops a source partition for a reason that its owner found.
    pub fn stop(&mut self, key: PartitionKey, reason: &'static str, message: String) {
        let source = &mut self.sources[key.0 as usize];
        if matches!(source.state, SourceState::Released) {
            source.state = SourceState::Unlocated;
        }
        self.stop_source(key, reason, message, None);
    }

    fn retry_later(&mut self, key: PartitionKey, at: Duration) {
        if let Some(before) = self.sources[key.0 as usize].retry_at.replace(at) {
            self.timers.remove(&(before, Timer::RetrySource(key)));
        }
        self.timers.insert((at, Timer::RetrySource(key)));
    }

    pub(super) fn retry_source(&mut self, key: PartitionKey) {
        let source = &mut self.sources[key.0 as usize];
        source.retry_at = None;
        if let SourceState::Stopped(_) = source.state {
            source.state = SourceState::Waiting;
        }
        self.fetch(key);
    }

    /// A source broker refused a partition.
    pub(super) fn on_fetch_failed(
        &mut self,
        key: PartitionKey,
        code: i16,
        diverging: Option<(i32, i64)>,
        now: Duration,
    ) {
        let source = &mut self.sources[key.0 as usize];
        source.failures = source.failures.saturating_add(1);
        source.state = SourceState::Waiting;
        match ResponseError::try_from_code(code) {
            Some(
                ResponseError::OffsetOutOfRange
                | ResponseError::UnknownTopicId
                | ResponseError::InconsistentTopicId,
            ) => self.locate(key),
            // The logs diverge.
            None if diverging.is_some() => self.locate(key),
            Some(
                ResponseError::TopicAuthorizationFailed
                | ResponseError::GroupAuthorizationFailed
                | ResponseError::ClusterAuthorizationFailed,
            ) => {
                let message = format!(
                    "{} does not let us read the topic; READ on the topic is needed (kmirror acls prints all)",
                    self.settings.source
                );
                self.stop_source(key, "not_authorized", message, Some(self.settings.stopped_backoff.initial));
            }
            _ => {
                let failures = source.failures - 1;
                let delay = self.settings.retry_backoff.delay(failures, spread(key.0, failures));
                self.retry_later(key, now + delay);
                self.commands.push(Command::RefreshSource);
            }
        }
        self.arm_stopped(now);
    }

    fn locate(&mut self, key: PartitionKey) {
        self.sources[key.0 as usize].state = SourceState::Unlocated;
        self.commands.push(Command::Locate(key));
    }

    pub(super) fn on_damaged(
        &mut self,
        key: PartitionKey,
        offset: i64,
        error: &record::Error,
        now: Duration,
    ) {
        let source = &mut self.sources[key.0 as usize];
        source.refetches += 1;
        source.state = SourceState::Waiting;
        if source.refetches > REFETCHES_MAX {
            let message =
                format!("what {} sends at offset {offset} is no record batch: {error}", self.settings.source);
            self.stop_source(key, "damaged", message, Some(self.settings.stopped_backoff.max));
        } else {
            let delay = self.settings.retry_backoff.delay(source.refetches, spread(key.0, source.refetches));
            self.retry_later(key, now + delay);
        }
        self.arm_stopped(now);
    }

    /// Sets the timers of partitions that stopped since the last call.
    pub(super) fn arm_stopped(&mut self, now: Duration) {
        for (key, retry) in std::mem::take(&mut self.stopped_sources) {
            if let Some(delay) = retry {
                self.retry_later(key, now + delay);
            }
        }
    }

    fn log_target(&mut self, key: TargetKey, message: String) {
        let target = &self.targets[key.0 as usize];
        let notice =
            Notice { topic: self.topics[target.topic].name.clone(), partition: target.partition, message };
        self.commands.push(Command::Log(notice));
    }
}

impl super::Target {
    fn refusal(&self) -> String {
        self.last_refusal.clone().unwrap_or_else(|| "no reason given".to_owned())
    }
}

/// Bits that spread the back-offs of partitions which fail together, the same in every run.
fn spread(key: u32, failures: u32) -> u64 {
    (u64::from(key) << 32 | u64::from(failures)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

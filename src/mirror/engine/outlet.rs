//! Queues are cut into requests; answers become acknowledged positions.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use kafka_protocol::ResponseError;

use super::super::append::{Acked, Remedy, Verdict};
use super::super::cargo::{Cargo, Covers, Origin};
use super::{Command, Engine, Item, ProduceLaneState, Request};
use crate::client::{
    ErrorCode, ProduceAnswer, ProduceBatch, ProduceCommand, ProduceEvent, ProduceRequest, TargetKey,
};

/// The batches of a request, by (topic index, partition).
type Batches = BTreeMap<(u32, i32), ProduceBatch>;

impl Engine {
    /// A produce lane has something to say.
    pub fn on_produce(&mut self, broker: i32, event: ProduceEvent, now: Duration) {
        match event {
            ProduceEvent::Connected { connection } => self.on_produce_connected(broker, connection),
            ProduceEvent::Answered { id, answers, throttle } => self.on_answered(id, answers, throttle, now),
            ProduceEvent::Dropped { id } => self.on_lost(id, now),
            ProduceEvent::Silent => self.on_silent(broker),
            ProduceEvent::Disconnected { lost, reason } => {
                let lane = self.produce_lanes.entry(broker).or_default();
                (lane.connection, lane.silent) = (None, false);
                lane.disconnects += 1;
                lane.last_error = Some(reason);
                for id in lost {
                    self.on_lost(id, now);
                }
                self.update_stuck_of(broker);
                self.commands.push(Command::RefreshTarget);
            }
        }
        self.pump(now);
        self.regulate(now);
    }

    /// A leader that hangs is found out by the cluster and replaced. What is in flight to it is then given up, so that it
    /// can be sent to the new one, as it is: the old one, should it wake, is no leader any more.
    fn on_silent(&mut self, broker: i32) {
        self.commands.push(Command::RefreshTarget);
        let has_moved = self.targets.iter().any(|target| {
            let in_flight = target.append.as_ref().is_some_and(|append| append.in_flight() > 0);
            in_flight
                && target.sent_to == Some(broker)
                && target.leader.is_some_and(|leader| leader != broker)
        });
        if has_moved {
            self.commands.push(Command::Produce(broker, ProduceCommand::Reconnect));
        }
    }

    fn on_produce_connected(&mut self, broker: i32, connection: u64) {
        self.produce_lanes.entry(broker).or_default().connection = Some(connection);
        self.update_stuck_of(broker);
        for index in 0..self.targets.len() {
            if self.targets[index].leader == Some(broker) {
                self.schedule(TargetKey(index as u32));
            }
        }
    }

    /// Puts a target partition on its broker's list if it has something that can be sent.
    pub(super) fn schedule(&mut self, key: TargetKey) {
        let target = &mut self.targets[key.0 as usize];
        let waits =
            !target.queue.is_empty() || target.append.as_ref().is_some_and(|append| append.takes_resend());
        if target.scheduled || !waits || target.stopped.is_some() {
            return;
        }
        let Some(lane) = target.leader.and_then(|broker| self.produce_lanes.get_mut(&broker)) else { return };
        target.scheduled = true;
        lane.ready.push_back(key);
    }

    /// Sends what can be sent.
    pub(super) fn pump(&mut self, now: Duration) {
        let brokers: Vec<i32> = self.produce_lanes.keys().copied().collect();
        for broker in brokers {
            while self.has_room(broker, now) {
                let Some((connection, request)) = self.build(broker, now) else { break };
                self.send(broker, connection, request, now);
            }
        }
    }

    fn has_room(&self, broker: i32, now: Duration) -> bool {
        let lane = &self.produce_lanes[&broker];
        // What one broker holds leaves room for the others.
        let window = self.settings.max_request_bytes * self.settings.max_in_flight_requests;
        let bytes_max = window.min(self.budget.limit_bytes() / 4).max(1);
        lane.connection.is_some()
            && !lane.ready.is_empty()
            && lane.in_flight < self.settings.max_in_flight_requests
            && lane.in_flight_bytes < bytes_max
            && lane.throttled_until <= now
    }

    fn send(&mut self, broker: i32, connection: u64, batches: Batches, now: Duration) {
        let id = self.next_request;
        self.next_request += 1;
        let bytes = batches.values().map(ProduceBatch::size_bytes).sum();
        let keys = batches.values().map(|batch| batch.key).collect();
        self.requests.insert(id, Request { broker, keys, bytes, sent: now });
        let lane = self.produce_lanes.entry(broker).or_default();
        if lane.in_flight == 0 {
            lane.heard_at = now;
        }
        lane.in_flight += 1;
        lane.in_flight_bytes += bytes;
        let request = ProduceRequest { id, connection, batches };
        self.commands.push(Command::Produce(broker, ProduceCommand::Send(request)));
    }

    /// One batch each of the partitions that are ready, up to the size of a request.
    fn build(&mut self, broker: i32, now: Duration) -> Option<(u64, Batches)> {
        let ProduceLaneState { connection: Some(connection), ready, .. } =
            self.produce_lanes.get_mut(&broker)?
        else {
            return None;
        };
        let (connection, mut waiting) = (*connection, std::mem::take(ready));
        let mut again = VecDeque::new();
        let mut batches = BTreeMap::new();
        let mut bytes = 0;
        while bytes < self.settings.max_request_bytes
            && let Some(key) = waiting.pop_front()
        {
            self.targets[key.0 as usize].scheduled = false;
            if self.targets[key.0 as usize].leader != Some(broker) {
                continue;
            }
            let Some(batch) = self.next_batch(key, now) else { continue };
            bytes += batch.size_bytes();
            let target = &self.targets[key.0 as usize];
            batches.insert((target.topic as u32, target.partition), batch);
            if self.has_more(key, now) {
                self.targets[key.0 as usize].scheduled = true;
                again.push_back(key);
            }
        }
        waiting.append(&mut again);
        let lane = self.produce_lanes.entry(broker).or_default();
        lane.ready = waiting;
        (!batches.is_empty()).then_some((connection, batches))
    }

    fn has_more(&self, key: TargetKey, now: Duration) -> bool {
        let target = &self.targets[key.0 as usize];
        target.append.as_ref().is_some_and(|append| {
            append.takes_resend()
                || append.takes_new(now)
                    && matches!(target.queue.front(), Some(Item::Ready(_) | Item::Dealt(_) | Item::Open(_)))
        })
    }

    /// The batch that `key` sends next, frozen; `None` when it has nothing to send now.
    fn next_batch(&mut self, key: TargetKey, now: Duration) -> Option<ProduceBatch> {
        // The request gets its id in `send`, which follows at once.
        let request = self.next_request;
        let target = &mut self.targets[key.0 as usize];
        let append = target.append.as_mut()?;
        // What is in flight to an earlier leader has to be answered first, or order would be lost.
        if append.in_flight() > 0 && target.sent_to != target.leader {
            return None;
        }
        target.sent_to = target.leader;
        let topic = self.topics[target.topic].clone();
        if append.takes_resend() {
            let (header, body) = append.resend(request)?;
            if let Some(source) = target.sources.first() {
                self.sources[source.0 as usize].counters.resends += 1;
            }
            return Some(ProduceBatch { key, topic, header, body });
        }
        if !append.takes_new(now) || target.stopped.is_some() {
            return None;
        }
        let cargo = self.cut(key, now)?;
        let source = cargo.source();
        let append = self.targets[key.0 as usize].append.as_mut()?;
        match append.send(cargo, request, now) {
            Ok((header, body)) => Some(ProduceBatch { key, topic, header, body }),
            Err(error) => {
                // `take` parsed this header before; only damage in memory comes here.
                if let Some(source) = source {
                    self.stop_source(
                        source,
                        "damaged",
                        format!("a batch was damaged in memory: {error}"),
                        None,
                    );
                }
                None
            }
        }
    }

    /// Takes the next cargo from the queue.
    fn cut(&mut self, key: TargetKey, now: Duration) -> Option<Cargo> {
        self.gather_first(key, now);
        let target = &mut self.targets[key.0 as usize];
        let is_whole = |item: &mut Item| matches!(item, Item::Ready(_) | Item::Open(_));
        let item = target.queue.pop_front_if(is_whole)?;
        target.queue_bytes -= item.bytes();
        match item {
            Item::Ready(cargo) => Some(cargo),
            Item::Open(open) => {
                let cargo = open.close();
                self.buffers.watch(&cargo.batch);
                Some(cargo)
            }
            Item::Dealt(_) | Item::Working(_) => None,
        }
    }

    fn forget_request(&mut self, id: u64) -> Option<Request> {
        let request = self.requests.remove(&id)?;
        if let Some(lane) = self.produce_lanes.get_mut(&request.broker) {
            lane.in_flight -= 1;
            lane.in_flight_bytes -= request.bytes;
        }
        Some(request)
    }

    fn on_answered(&mut self, id: u64, answers: Vec<ProduceAnswer>, throttle: Duration, now: Duration) {
        let Some(request) = self.forget_request(id) else { return };
        self.heard(request.broker, now);
        self.round_trip.heard(now.saturating_sub(request.sent), now);
        if !throttle.is_zero() {
            let lane = self.produce_lanes.entry(request.broker).or_default();
            lane.throttle += throttle;
            lane.throttled_until = now + throttle;
            self.timers.insert((now + throttle, super::Timer::Throttled(request.broker)));
        }
        for answer in answers {
            self.on_answer(id, answer, now);
        }
        for key in request.keys {
            self.settle(key, now);
            self.schedule(key);
        }
    }

    fn on_answer(&mut self, id: u64, answer: ProduceAnswer, now: Duration) {
        let key = answer.key;
        let verdict = verdict(&answer);
        self.note_refusal(key, &answer);
        let Some(append) = self.targets.get_mut(key.0 as usize).and_then(|target| target.append.as_mut())
        else {
            return;
        };
        match append.answered(id, verdict, now) {
            Ok(acked) => acked.into_iter().for_each(|acked| self.apply(key, acked)),
            Err(error) => self.stop_target(key, "overtaken", error.to_string(), None, now),
        }
    }

    pub(super) fn on_lost(&mut self, id: u64, now: Duration) {
        let Some(request) = self.forget_request(id) else { return };
        for key in request.keys {
            if let Some(append) = self.targets[key.0 as usize].append.as_mut() {
                append.lost(id);
                if append.in_flight() == 0 {
                    append.compact();
                }
            }
            self.settle(key, now);
        }
    }

    /// A batch is on the target: windows, offset maps and counters follow.
    pub(super) fn apply(&mut self, key: TargetKey, acked: Acked) {
        let mut downstream = acked.base_offset;
        let (cargo, now_ms) = (acked.cargo, self.now_ms);
        for part in &cargo.parts {
            let source = &mut self.sources[part.source.0 as usize];
            let next = downstream.map(|offset| offset + i64::from(part.record_count));
            source.counters.records += u64::from(part.record_count.unsigned_abs());
            if part.generation == source.window_generation {
                let freed = match part.covers {
                    Covers::Entry => source.window.done(part.entry, next),
                    Covers::UpTo(upstream) => {
                        source.window.advance(part.entry, upstream, next);
                        0
                    }
                };
                source.counters.bytes += freed as u64;
                let fetched_by = self.parent(part.source).unwrap_or(part.source);
                self.sources[fetched_by.0 as usize].traffic().moved(now_ms, freed as u64);
                self.release(part.source, freed);
                if let Some(downstream) = downstream {
                    self.map(part.source, part.upstream, downstream, part.record_count);
                }
            }
            downstream = next;
        }
        if let Some(source) = cargo.source() {
            let fetched_by = self.parent(source).unwrap_or(source);
            let source = &mut self.sources[fetched_by.0 as usize];
            source.replicated_timestamp_ms = source.replicated_timestamp_ms.max(Some(cargo.max_timestamp));
            let records = u64::from(cargo.record_count.unsigned_abs());
            source.traffic().acknowledged(now_ms, cargo.max_timestamp, records);
            match cargo.origin {
                Origin::Verbatim => source.counters.batches_verbatim += 1,
                Origin::Merged(batches) => source.counters.batches_merged += u64::from(batches),
                Origin::Rewritten => {}
            }
        }
        let target = &mut self.targets[key.0 as usize];
        (target.stops, target.waits_since) = (0, None);
        if let Some(append) = target.append.as_mut() {
            append.acked_timestamp(cargo.max_timestamp, now_ms);
        }
        self.unhold(key);
    }
}

/// What Kafka's code means for the batch that it answers. Codes: `Errors.java`; which of them leave a batch in the log:
/// `ReplicaManager.appendRecords` waits for followers only after the append.
fn verdict(answer: &ProduceAnswer) -> Verdict {
    let Some(error) = answer.error() else {
        return Verdict::Appended(Some(answer.base_offset).filter(|&offset| offset >= 0));
    };
    match error {
        // In the log, older than what the broker remembers offsets of.
        ResponseError::DuplicateSequenceNumber => Verdict::Appended(None),
        ResponseError::UnknownServerError
        | ResponseError::RequestTimedOut
        | ResponseError::NetworkException
        | ResponseError::NotEnoughReplicasAfterAppend => Verdict::FailedUnknown(Remedy::Resend),
        ResponseError::OutOfOrderSequenceNumber | ResponseError::UnknownProducerId => Verdict::OutOfSequence,
        ResponseError::InvalidProducerEpoch | ResponseError::InvalidProducerIdMapping => {
            Verdict::Failed(Remedy::NewProducer)
        }
        ResponseError::MessageTooLarge | ResponseError::RecordListTooLarge => Verdict::Failed(Remedy::Split),
        ResponseError::InvalidTimestamp | ResponseError::InvalidRecord => {
            let index =
                answer.record_errors.first().and_then(|error| usize::try_from(error.batch_index).ok());
            Verdict::Failed(Remedy::Narrow(index))
        }
        ResponseError::CorruptMessage => Verdict::Failed(Remedy::CheckCrc),
        ResponseError::UnsupportedCompressionType => Verdict::Failed(Remedy::Recode),
        _ if ErrorCode(answer.code).is_retriable() => Verdict::Failed(Remedy::Resend),
        _ => Verdict::Failed(Remedy::Stop(answer.code)),
    }
}

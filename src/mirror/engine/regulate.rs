//! Back-pressure: what is alive stays bounded, and a partition that cannot go on stops no other.
//!
//! Reading pauses as a whole only while acknowledgements are on their way that will free the budget. What belongs to a
//! partition whose target takes nothing for now (`stuck`) is not waited for: beyond a little, its unsent batches are
//! dropped, its fetch position goes back and it leaves the session (`hold`), until its target takes batches again. A broker
//! that takes requests and answers none counts as one that takes nothing, once it keeps others waiting.

use std::time::Duration;

use super::super::window::EntryId;
use super::{Command, Engine, Item, SourceState, Timer, Working};
use crate::client::{FetchCommand, PartitionKey, TargetKey};

/// What a partition keeps while its target takes nothing.
pub(super) const HELD_BYTES: usize = 256 * 1024;
/// So long may one broker keep everybody waiting before its partitions leave the session.
const SHED_AFTER: Duration = Duration::from_millis(200);

impl Engine {
    /// Recomputes whether a target partition can take batches at all.
    pub(super) fn update_stuck(&mut self, key: TargetKey) {
        let target = &self.targets[key.0 as usize];
        let connected = target
            .leader
            .and_then(|broker| self.produce_lanes.get(&broker))
            .is_some_and(|lane| lane.connection.is_some() && !lane.silent);
        let draining = target.append.as_ref().is_none_or(|append| append.is_draining());
        if target.stopped.is_some() || draining || !connected {
            if self.stuck.insert(key) {
                self.stuck_bytes += self.bytes_of(key);
            }
        } else if self.stuck.remove(&key) {
            self.stuck_bytes -= self.bytes_of(key);
            self.unhold(key);
        }
    }

    pub(super) fn update_stuck_of(&mut self, broker: i32) {
        for index in 0..self.targets.len() {
            if self.targets[index].leader == Some(broker) {
                self.update_stuck(TargetKey(index as u32));
            }
        }
    }

    /// Whether a partition may take nothing more for now.
    pub(super) fn must_hold(&self, key: PartitionKey) -> bool {
        let source = &self.sources[key.0 as usize];
        // Many partitions that each keep a little must leave the others room, too.
        let crowded = self.budget.is_full() || self.stuck_bytes >= self.budget.limit_bytes() / 2;
        self.stuck.contains(&source.target) && (source.window.bytes() >= HELD_BYTES || crowded)
    }

    /// Takes a partition out of its session and drops what of it was not sent.
    pub(super) fn hold(&mut self, key: PartitionKey) {
        if !self.children(key).is_empty() {
            self.leave_session(key);
            return;
        }
        let source = &mut self.sources[key.0 as usize];
        if let SourceState::Fetching(broker) = source.state {
            self.commands.push(Command::Fetch(broker, FetchCommand::Remove(key)));
            source.state = SourceState::Held;
        } else if let SourceState::Waiting = source.state {
            source.state = SourceState::Held;
        }
        if let Some(parent) = self.parent(key) {
            self.leave_session(parent);
        }
        self.drop_queued(key);
    }

    /// Lets the sources of a target partition back into their sessions once it takes batches and has taken most.
    pub(super) fn unhold(&mut self, key: TargetKey) {
        if self.stuck.contains(&key) {
            return;
        }
        for index in 0..self.targets[key.0 as usize].sources.len() {
            let source_key = self.targets[key.0 as usize].sources[index];
            let source = &mut self.sources[source_key.0 as usize];
            if matches!(source.state, SourceState::Held) && source.window.bytes() <= HELD_BYTES / 2 {
                source.state = SourceState::Waiting;
                self.fetch(source_key);
            }
        }
    }

    /// Drops everything of a source partition that waits in its target's queue; it will be fetched again.
    pub(super) fn drop_queued(&mut self, key: PartitionKey) {
        let target = self.sources[key.0 as usize].target;
        self.drop_queued_from(key, target, 0);
    }

    /// [`Engine::drop_queued`] from a place in the queue on.
    pub(super) fn drop_queued_from(&mut self, key: PartitionKey, target: TargetKey, place: usize) {
        let queue = &mut self.targets[target.0 as usize].queue;
        let mut earliest: Option<EntryId> = None;
        let (mut dropped_bytes, mut unpacked_bytes) = (0, 0);
        let mut dropped_jobs = Vec::new();
        let mut index = 0;
        queue.retain(|item| {
            let drop = index >= place && item.source() == Some(key);
            index += 1;
            if drop {
                dropped_bytes += item.bytes();
                unpacked_bytes += item.unpacked_bytes();
                earliest = [earliest, item.first_entry()].into_iter().flatten().min();
                if let Item::Working(Working { job, .. }) = item {
                    dropped_jobs.push(*job);
                }
            }
            !drop
        });
        self.targets[target.0 as usize].queue_bytes -= dropped_bytes;
        self.free_unpacked(unpacked_bytes);
        for job in dropped_jobs {
            self.jobs.remove(&job);
        }
        if let Some(entry) = earliest {
            let freed = self.sources[key.0 as usize].window.rewind_to(entry);
            self.release(key, freed);
            self.go_back_with(key);
        }
    }

    /// Pauses or resumes reading.
    pub(super) fn regulate(&mut self, now: Duration) {
        self.arm_stopped(now);
        if self.requests.is_empty() {
            self.buffers.clear();
        }
        let flowing = self.alive_bytes.saturating_sub(self.stuck_bytes);
        let lanes = self.fetch_lanes.len().max(1);
        let near_bytes = self.settings.lane_window_bytes * lanes;
        let high = self.round_trip.window_bytes(near_bytes, self.budget.limit_bytes());
        let limit = if self.paused_since.is_some() { high / 4 * 3 } else { high };
        let freeing = !self.requests.is_empty() || !self.jobs.is_empty();
        let pause = freeing && (flowing >= limit || self.budget.is_full());
        match (pause, self.paused_since) {
            (true, None) => {
                self.paused_since = Some(now);
                self.timers.insert((now + SHED_AFTER, Timer::Shed));
            }
            (false, Some(since)) => {
                self.paused_since = None;
                self.timers.remove(&(since + SHED_AFTER, Timer::Shed));
            }
            _ => {}
        }
        for (&broker, lane) in &mut self.fetch_lanes {
            if lane.paused != pause {
                lane.paused = pause;
                let command = if pause { FetchCommand::Pause } else { FetchCommand::Resume };
                self.commands.push(Command::Fetch(broker, command));
            }
        }
    }

    fn bytes_of(&self, key: TargetKey) -> usize {
        let target = &self.targets[key.0 as usize];
        target.sources.iter().map(|source| self.sources[source.0 as usize].window.bytes()).sum()
    }

    /// What is on its way to a broker that has answered nothing all the time is not waited for any more.
    fn give_up_silent(&mut self, now: Duration) {
        let mut silent = Vec::new();
        for (&broker, lane) in &mut self.produce_lanes {
            if lane.in_flight > 0 && !lane.silent && lane.heard_at + SHED_AFTER <= now {
                lane.silent = true;
                silent.push(broker);
            }
        }
        silent.into_iter().for_each(|broker| self.update_stuck_of(broker));
    }

    /// A broker has answered.
    pub(super) fn heard(&mut self, broker: i32, now: Duration) {
        let Some(lane) = self.produce_lanes.get_mut(&broker) else { return };
        lane.heard_at = now;
        if std::mem::take(&mut lane.silent) {
            self.update_stuck_of(broker);
        }
    }

    /// Reading has been paused for long. If some brokers have nothing left to do, those that still have keep them
    /// waiting: their partitions leave the session, and reading goes on for the others.
    pub(super) fn shed(&mut self, now: Duration) {
        if self.paused_since.is_none() {
            return;
        }
        let idle = self
            .produce_lanes
            .values()
            .any(|lane| lane.connection.is_some() && lane.in_flight == 0 && lane.ready.is_empty());
        if idle {
            let slow: Vec<PartitionKey> = (0..self.sources.len() as u32)
                .map(PartitionKey)
                .filter(|key| {
                    let source = &self.sources[key.0 as usize];
                    matches!(source.state, SourceState::Fetching(_)) && source.window.bytes() > HELD_BYTES
                })
                .collect();
            slow.into_iter().for_each(|key| self.hold(key));
            self.give_up_silent(now);
        }
        self.paused_since = Some(now);
        self.timers.insert((now + SHED_AFTER, Timer::Shed));
    }
}

//! Which target partitions keep records waiting, for how long, and how often they failed: for `/readyz` and the log.
//!
//! Looked at once a second, so that the hot path has nothing to do with it but to say that something was acknowledged. Kafka's
//! producer gives a batch up when `delivery.timeout.ms` or `retries` are over; here delivery goes on, and this is what is left
//! of these keys. A partition that the target refuses for good is not waited for: it is stopped, with its reason.

use std::sync::Arc;
use std::time::Duration;

use super::{Engine, SourceState, Target};
use crate::mirror::status::UNAVAILABLE;

/// A target partition that takes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    /// Topic on the target.
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: i32,
    /// For how long nothing has been acknowledged although records wait.
    pub waited: Duration,
    /// Failures in a row of what is sent.
    pub failures: u32,
    /// What the target or the connection to its leader said last.
    pub reason: Option<String>,
}

impl Engine {
    /// Notes which partitions keep records waiting; called once a second.
    pub fn note_waiting(&mut self, now: Duration) {
        for index in 0..self.targets.len() {
            let waits = self.keeps_waiting(&self.targets[index]);
            let since = &mut self.targets[index].waits_since;
            *since = if waits { since.or(Some(now)) } else { None };
        }
    }

    /// The partitions of which nothing has been acknowledged for this long, or that failed more often than this in a row.
    pub fn undelivered(&self, now: Duration, timeout: Duration, retries: u32) -> Vec<Undelivered> {
        let late = |target: &Target| {
            let waited = now.saturating_sub(target.waits_since?);
            let failures = target.append.as_ref().map_or(0, |append| append.failures());
            (waited >= timeout || failures > retries).then(|| Undelivered {
                topic: self.topics[target.topic].name.clone(),
                partition: target.partition,
                waited,
                failures,
                reason: target.last_refusal.clone().or_else(|| self.lane_error(target)),
            })
        };
        self.targets.iter().filter_map(late).collect()
    }

    fn keeps_waiting(&self, target: &Target) -> bool {
        if target.stopped.as_ref().is_some_and(|stopped| stopped.reason != UNAVAILABLE) {
            return false;
        }
        let unacked = target.append.as_ref().is_some_and(|append| append.unacked() > 0);
        unacked || !target.queue.is_empty() || target.sources.iter().any(|key| self.is_held_back(key.0))
    }

    /// Its records wait at the source until the target takes some.
    fn is_held_back(&self, index: u32) -> bool {
        let source = &self.sources[index as usize];
        let end = source.watermarks.map(|watermarks| watermarks.end(self.settings.isolation_level));
        matches!(source.state, SourceState::Held) && end.is_some_and(|end| end > source.window.position())
    }

    fn lane_error(&self, target: &Target) -> Option<String> {
        let Some(leader) = target.leader else { return Some("it has no leader".to_owned()) };
        self.produce_lanes.get(&leader).and_then(|lane| lane.last_error.clone())
    }
}

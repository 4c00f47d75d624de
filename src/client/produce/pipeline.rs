//! Which requests of a produce lane wait, which are in flight, and when the broker has been silent too long.
//!
//! A broker serves one request of a connection at a time, in order, and each may take the whole ack timeout. So the
//! clock runs for the oldest request alone, from when it became the oldest.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::answer::Awaited;
use crate::client::ProduceRequest;
use crate::client::lane::SILENT_AFTER;

/// A request on the wire.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) id: u64,
    pub(super) version: i16,
    pub(super) correlation_id: i32,
    pub(super) awaited: Awaited,
}

/// The requests of one lane.
#[derive(Debug)]
pub(super) struct Pipeline {
    in_flight_max: usize,
    answer_timeout: Duration,
    connections: u64,
    waiting: VecDeque<ProduceRequest>,
    in_flight: VecDeque<InFlight>,
    oldest_since: Option<Instant>,
    /// When the silence was last spoken of.
    told_at: Option<Instant>,
    quiet_until: Option<Instant>,
}

impl Pipeline {
    /// At most `in_flight_max` requests on the wire; each is answered within `answer_timeout` of being the oldest.
    pub(super) fn new(in_flight_max: usize, answer_timeout: Duration) -> Pipeline {
        Pipeline {
            in_flight_max: in_flight_max.max(1),
            answer_timeout,
            connections: 0,
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            oldest_since: None,
            told_at: None,
            quiet_until: None,
        }
    }

    /// A new connection; gives its number.
    pub(super) fn connected(&mut self) -> u64 {
        self.quiet_until = None;
        self.connections += 1;
        self.connections
    }

    /// Takes a request in; gives it back when it is meant for another connection than this one.
    pub(super) fn accept(&mut self, request: ProduceRequest) -> Result<(), ProduceRequest> {
        if request.connection != self.connections {
            return Err(request);
        }
        self.waiting.push_back(request);
        Ok(())
    }

    /// The request to write now.
    pub(super) fn next_to_send(&mut self, now: Instant) -> Option<ProduceRequest> {
        let quiet = self.quiet_until.is_some_and(|until| now < until);
        if quiet || self.in_flight.len() >= self.in_flight_max {
            return None;
        }
        self.waiting.pop_front()
    }

    /// Requests wait.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Requests wait and none is in flight.
    pub(super) fn is_between_requests(&self) -> bool {
        !self.waiting.is_empty() && self.in_flight.is_empty()
    }

    /// A request was written, or is about to be.
    pub(super) fn sent(&mut self, request: InFlight, now: Instant) {
        if self.in_flight.is_empty() {
            self.oldest_since = Some(now);
        }
        self.in_flight.push_back(request);
    }

    /// An answer came: to the oldest, as the order of a connection has it.
    pub(super) fn answered(&mut self, now: Instant) -> Option<InFlight> {
        self.oldest_since = Some(now);
        self.in_flight.pop_front()
    }

    /// The broker wants to be left alone; what is in flight is held up too (KIP-219).
    pub(super) fn throttled(&mut self, throttle: Duration, now: Instant) {
        if throttle.is_zero() {
            return;
        }
        self.quiet_until = Some(now + throttle);
        self.oldest_since = Some(now + throttle);
    }

    /// When the lane must act even if nothing happens.
    pub(super) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let room = !self.waiting.is_empty() && self.in_flight.len() < self.in_flight_max;
        // What could be sent by now waits for something else.
        let quiet_until = self.quiet_until.filter(|&until| room && now < until);
        [self.deadline(), self.silent_at(), quiet_until].into_iter().flatten().min()
    }

    /// Whether it is time to tell (again) that nothing comes.
    pub(super) fn falls_silent(&mut self, now: Instant) -> bool {
        let is_silent = self.silent_at().is_some_and(|at| now >= at);
        if is_silent {
            self.told_at = Some(now);
        }
        is_silent
    }

    fn silent_at(&self) -> Option<Instant> {
        let since = self.oldest_since.filter(|_| !self.in_flight.is_empty())?;
        Some(self.told_at.map_or(since, |told| told.max(since)) + SILENT_AFTER)
    }

    /// Whether the broker has been silent too long.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| now >= deadline)
    }

    fn deadline(&self) -> Option<Instant> {
        self.oldest_since.filter(|_| !self.in_flight.is_empty()).map(|since| since + self.answer_timeout)
    }

    /// What the oldest request is.
    pub(super) fn oldest(&self) -> Option<&InFlight> {
        self.in_flight.front()
    }

    /// The connection is gone: everything that was taken in is lost, in order of sending. Requests for that connection
    /// that come later are refused by [`Pipeline::accept`].
    pub(super) fn disconnected(&mut self) -> Vec<u64> {
        self.oldest_since = None;
        self.quiet_until = None;
        let in_flight = self.in_flight.drain(..).map(|request| request.id);
        in_flight.chain(self.waiting.drain(..).map(|request| request.id)).collect()
    }
}

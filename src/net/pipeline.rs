//! Requests in flight on one connection, without the connection.
//!
//! A broker answers the requests of a connection in their order, so the oldest one in flight is the one whose reply is
//! due; any other correlation id means that the two sides have lost each other, and ends the connection. So does a reply
//! that does not come in time: whether the request was carried out is then unknown.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::address::BrokerAddress;
use super::error::{Error, Step};
use super::frame::peek_correlation_id;

/// Requests in flight; `T` is whoever waits for the reply.
#[derive(Debug)]
pub(super) struct Pipeline<T> {
    broker: BrokerAddress,
    next_correlation_id: i32,
    in_flight: VecDeque<InFlight<T>>,
}

#[derive(Debug)]
struct InFlight<T> {
    correlation_id: i32,
    step: Step,
    timeout: Duration,
    deadline: Instant,
    waiting: T,
}

impl<T> Pipeline<T> {
    pub(super) fn new(broker: BrokerAddress, next_correlation_id: i32) -> Pipeline<T> {
        Pipeline { broker, next_correlation_id, in_flight: VecDeque::new() }
    }

    pub(super) fn broker(&self) -> &BrokerAddress {
        &self.broker
    }

    pub(super) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// The first correlation id that is free.
    pub(super) fn next_correlation_id(&self) -> i32 {
        self.next_correlation_id
    }

    /// After requests that did not pass here.
    pub(super) fn set_next_correlation_id(&mut self, next: i32) {
        self.next_correlation_id = next;
    }

    /// What the connection waits for.
    pub(super) fn step(&self) -> Step {
        self.in_flight.front().map_or(Step::Idle, |request| request.step)
    }

    /// Takes a request in and gives it its correlation id.
    pub(super) fn push(&mut self, step: Step, timeout: Duration, now: Instant, waiting: T) -> i32 {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = correlation_id.checked_add(1).unwrap_or(0);
        let deadline = now + timeout;
        self.in_flight.push_back(InFlight { correlation_id, step, timeout, deadline, waiting });
        correlation_id
    }

    /// Whom a reply (without its size field) is for.
    pub(super) fn received(&mut self, reply: &[u8]) -> Result<(T, i32), Error> {
        let broker = self.broker.clone();
        let Some(got) = peek_correlation_id(reply) else {
            let reason = "it is too short".to_owned();
            return Err(Error::Undecodable { broker, step: self.step(), reason });
        };
        match self.in_flight.pop_front() {
            Some(request) if request.correlation_id == got => Ok((request.waiting, got)),
            Some(request) => {
                let (step, expected) = (request.step, request.correlation_id);
                self.in_flight.push_front(request);
                Err(Error::CorrelationId { broker, step, expected, got })
            }
            None => Err(Error::Unasked { broker, got }),
        }
    }

    /// When the first reply is overdue.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.in_flight.iter().map(|request| request.deadline).min()
    }

    /// The error of a reply that is overdue at `now`.
    pub(super) fn overdue(&self, now: Instant) -> Option<Error> {
        let late = self.in_flight.iter().find(|request| request.deadline <= now)?;
        Some(Error::RequestTimeout { broker: self.broker.clone(), step: late.step, after: late.timeout })
    }

    /// Ends every request: each gets the cause if it is its own, else the fact that the connection ended of it.
    pub(super) fn fail(self, cause: &Error) -> Vec<(T, Error)> {
        let broker = self.broker;
        let fail = |request: InFlight<T>| {
            let lost =
                Error::Lost { broker: broker.clone(), step: request.step, source: Box::new(cause.clone()) };
            (request.waiting, if cause.step() == Some(request.step) { cause.clone() } else { lost })
        };
        self.in_flight.into_iter().map(fail).collect()
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::ApiKey;

    use super::*;

    const METADATA: Step = Step::Request(ApiKey::Metadata, 12);
    const FETCH: Step = Step::Request(ApiKey::Fetch, 12);

    fn pipeline() -> Pipeline<&'static str> {
        let broker =
            BrokerAddress { host: "b".into(), port: 9092, address: "10.0.0.1:9092".parse().unwrap() };
        Pipeline::new(broker, i32::MAX)
    }

    #[tokio::test(start_paused = true)]
    async fn replies_go_to_the_oldest_request_and_ids_wrap() {
        let mut pipeline = pipeline();
        let now = Instant::now();
        assert_eq!(pipeline.push(METADATA, Duration::from_secs(1), now, "a"), i32::MAX);
        assert_eq!(pipeline.push(FETCH, Duration::from_secs(1), now, "b"), 0);
        assert_eq!(pipeline.received(&i32::MAX.to_be_bytes()).unwrap(), ("a", i32::MAX));
        assert_eq!(pipeline.received(&[0, 0, 0, 0, 9]).unwrap(), ("b", 0));
        assert!(matches!(pipeline.received(&[0, 0, 0, 1]), Err(Error::Unasked { got: 1, .. })));
        assert!(matches!(pipeline.received(&[0, 0]), Err(Error::Undecodable { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_out_of_order_ends_all_with_the_cause_for_its_own() {
        let mut pipeline = pipeline();
        let now = Instant::now();
        pipeline.push(METADATA, Duration::from_secs(1), now, "a");
        pipeline.push(FETCH, Duration::from_secs(1), now, "b");
        let cause = pipeline.received(&[0, 0, 0, 0]).unwrap_err();
        assert!(matches!(cause, Error::CorrelationId { expected: i32::MAX, got: 0, .. }));
        let failed = pipeline.fail(&cause);
        assert!(matches!(&failed[0], ("a", Error::CorrelationId { .. })));
        assert!(matches!(&failed[1], ("b", Error::Lost { step: FETCH, .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_deadline_counts_wherever_it_stands() {
        let mut pipeline = pipeline();
        let now = Instant::now();
        assert_eq!(pipeline.deadline(), None);
        pipeline.push(METADATA, Duration::from_secs(5), now, "a");
        pipeline.push(FETCH, Duration::from_secs(1), now, "b");
        assert_eq!(pipeline.deadline(), Some(now + Duration::from_secs(1)));
        assert!(pipeline.overdue(now).is_none());
        let late = pipeline.overdue(now + Duration::from_secs(1)).unwrap();
        assert!(matches!(late, Error::RequestTimeout { step: FETCH, .. }));
    }
}

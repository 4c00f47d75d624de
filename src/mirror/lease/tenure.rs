//! Whether this process may write now: the lease as its holder sees it.
//!
//! Pure; times are durations since any fixed start. The coordinator gives a member up when it has not heard of it for the
//! session timeout. The holder counts from the moment at which it *sent* the last request that was answered, and stops
//! writing [`Tenure::MARGIN`] earlier, so what it has on the wire arrives before a successor begins:
//!
//! ```text
//! holder       send ────────────────────────► stops writing
//! coordinator     └► hears ──────────────────────────────► gives the member up ─► successor
//!                    |◄────────── session timeout ───────►|
//! ```
//! A rebalance does not interrupt the holder: until it has joined again nobody else is assigned, or the coordinator has
//! given it up after the rebalance timeout, which is not shorter than the session timeout.

use std::time::Duration;

/// The tenure of one process.
#[derive(Clone, Copy, Debug)]
pub struct Tenure {
    session_timeout: Duration,
    heard: Duration,
    held_since: Option<i32>,
}

/// What a new assignment, or time itself, changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// As before.
    Nothing,
    /// This process writes from now on.
    Acquired,
    /// It must not write any more.
    Lost,
}

impl Tenure {
    /// How long before the coordinator could give the holder up it stops by itself, as a part of the session timeout.
    pub const MARGIN: u32 = 5;

    /// Nothing is held.
    pub fn new(session_timeout: Duration) -> Tenure {
        Tenure { session_timeout, heard: Duration::ZERO, held_since: None }
    }

    /// The generation since which the lease is held.
    pub fn held_since(&self) -> Option<i32> {
        self.held_since
    }

    /// A request that was sent at `sent` was answered as a member of the group.
    pub fn heard(&mut self, sent: Duration) {
        self.heard = self.heard.max(sent);
    }

    /// The group's leader says that `held_since` is this member's, or another's when `None`; the request that asked was
    /// sent at `sent`.
    pub fn assigned(&mut self, held_since: Option<i32>, sent: Duration) -> Change {
        self.heard(sent);
        let change = match (self.held_since, held_since) {
            (None, Some(_)) => Change::Acquired,
            (Some(_), None) => Change::Lost,
            // Somebody else held it in between.
            (Some(old), Some(new)) if old != new => Change::Lost,
            _ => Change::Nothing,
        };
        self.held_since = if change == Change::Lost { None } else { held_since };
        change
    }

    /// The coordinator has given this member up, or it has left.
    pub fn given_up(&mut self) -> Change {
        if self.held_since.take().is_some() { Change::Lost } else { Change::Nothing }
    }

    /// When the holder must stop unless it hears of the coordinator before; `None` when it holds nothing.
    pub fn deadline(&self) -> Option<Duration> {
        self.held_since?;
        Some(self.heard + self.session_timeout - self.session_timeout / Self::MARGIN)
    }

    /// Looks at the time.
    pub fn tick(&mut self, now: Duration) -> Change {
        match self.deadline() {
            Some(deadline) if now >= deadline => self.given_up(),
            _ => Change::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_holder_stops_before_the_coordinator_can_give_it_up() {
        let mut tenure = Tenure::new(at(10));
        assert_eq!(tenure.tick(at(1_000)), Change::Nothing, "nothing held, nothing to lose");
        assert_eq!(tenure.assigned(Some(3), at(100)), Change::Acquired);
        assert_eq!(tenure.deadline(), Some(at(108)));
        tenure.heard(at(105));
        // An answer that comes late counts by when it was asked for.
        tenure.heard(at(101));
        assert_eq!(tenure.tick(at(112)), Change::Nothing);
        assert_eq!(tenure.tick(at(113)), Change::Lost);
        assert_eq!(tenure.tick(at(114)), Change::Nothing);
        assert_eq!((tenure.held_since(), tenure.deadline()), (None, None));
    }

    #[test]
    fn a_rebalance_leaves_the_holder_in_place() {
        let mut tenure = Tenure::new(at(10));
        assert_eq!(tenure.assigned(None, at(1)), Change::Nothing);
        assert_eq!(tenure.assigned(Some(3), at(2)), Change::Acquired);
        assert_eq!(tenure.assigned(Some(3), at(4)), Change::Nothing);
        assert_eq!(tenure.assigned(Some(6), at(5)), Change::Lost, "it was another's in between");
        assert_eq!(tenure.assigned(Some(6), at(6)), Change::Acquired);
        assert_eq!(tenure.assigned(None, at(7)), Change::Lost);
        assert_eq!(tenure.assigned(Some(9), at(8)), Change::Acquired);
        assert_eq!(tenure.given_up(), Change::Lost);
        assert_eq!(tenure.given_up(), Change::Nothing);
    }
}

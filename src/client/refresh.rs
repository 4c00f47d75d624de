//! When metadata is asked for, without asking.
//!
//! One request is under way at a time. What is wanted meanwhile waits and is asked for together, because the one under way
//! may have been answered before the event that made somebody want it. Requests that errors ask for are spaced by the
//! retry back-off, which grows while they come one after the other; requests that somebody waits for are not delayed.

use std::time::Duration;

use tokio::time::Instant;

use super::metadata::Topics;
use crate::net::Backoff;

/// How soon a refresh is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// Spaced by the back-off.
    Spaced,
    /// At once.
    Now,
}

/// Decides when to refresh what.
#[derive(Debug)]
pub(super) struct Refresher {
    backoff: Backoff,
    max_age: Duration,
    is_running: bool,
    wanted: Option<(Topics, Instant)>,
    started: Option<Instant>,
    row: u32,
    all_due: Instant,
}

impl Refresher {
    /// All topics are due at once.
    pub(super) fn new(backoff: Backoff, max_age: Duration, now: Instant) -> Refresher {
        Refresher { backoff, max_age, is_running: false, wanted: None, started: None, row: 0, all_due: now }
    }

    /// Somebody wants these topics refreshed.
    pub(super) fn want(&mut self, topics: Topics, urgency: Urgency, now: Instant, random: u64) {
        let spaced = self.started.map(|started| started + self.backoff.delay(self.row, random));
        let at = match (urgency, spaced) {
            (Urgency::Spaced, Some(at)) => at.max(now),
            _ => now,
        };
        self.wanted = Some(match self.wanted.take() {
            Some((known, known_at)) => (known.union(topics), known_at.min(at)),
            None => (topics, at),
        });
    }

    /// Somebody wants all topics after `delay`.
    pub(super) fn want_all_after(&mut self, delay: Duration, now: Instant) {
        self.all_due = self.all_due.min(now + delay);
    }

    /// When [`Refresher::start`] has something to start; `None` while a refresh is under way.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.is_running {
            return None;
        }
        Some(self.wanted.as_ref().map_or(self.all_due, |&(_, at)| at.min(self.all_due)))
    }

    /// What is to be asked for now.
    pub(super) fn start(&mut self, now: Instant) -> Option<Topics> {
        if self.due().is_none_or(|due| due > now) {
            return None;
        }
        let wanted = self.wanted.take().map(|(topics, _)| topics);
        let topics = match wanted {
            Some(topics) if self.all_due > now => topics,
            _ => Topics::All,
        };
        if topics == Topics::All {
            self.all_due = now + self.max_age;
        }
        let quiet = self.started.is_none_or(|started| now - started > self.backoff.max * 2);
        self.row = if quiet { 0 } else { self.row.saturating_add(1) };
        self.started = Some(now);
        self.is_running = true;
        Some(topics)
    }

    /// The request has been answered, or has failed for good; then all topics are asked for again before long.
    pub(super) fn finished(&mut self, succeeded: bool, now: Instant) {
        self.is_running = false;
        if !succeeded {
            self.want_all_after(self.backoff.max, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Topics {
        Topics::Named(names.iter().map(|&name| name.into()).collect())
    }

    fn refresher(now: Instant) -> Refresher {
        let mut refresher = Refresher::new(Backoff::millis(100, 1_000), Duration::from_secs(300), now);
        assert_eq!(refresher.start(now), Some(Topics::All), "at once");
        refresher.finished(true, now);
        refresher
    }

    const MIDDLE: u64 = u64::MAX / 2;

    #[tokio::test(start_paused = true)]
    async fn all_topics_are_due_again_at_their_max_age() {
        let now = Instant::now();
        let mut refresher = refresher(now);
        assert_eq!(refresher.due(), Some(now + Duration::from_secs(300)));
        assert_eq!(refresher.start(now + Duration::from_secs(299)), None);
        assert_eq!(refresher.start(now + Duration::from_secs(300)), Some(Topics::All));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_wanted_while_one_is_under_way_is_asked_for_together_after_it() {
        let now = Instant::now();
        let mut refresher = refresher(now);
        refresher.want(named(&["a"]), Urgency::Now, now, MIDDLE);
        assert_eq!(refresher.start(now), Some(named(&["a"])));
        for name in ["c", "b", "c"] {
            refresher.want(named(&[name]), Urgency::Now, now, MIDDLE);
        }
        assert_eq!((refresher.due(), refresher.start(now)), (None, None));
        refresher.finished(true, now);
        assert_eq!(refresher.start(now), Some(named(&["b", "c"])));
    }

    #[tokio::test(start_paused = true)]
    async fn wishes_without_somebody_waiting_are_spaced_ever_wider() {
        let mut now = Instant::now();
        let mut refresher = refresher(now);
        for millis in [100_u128, 200, 400, 800, 1_000, 1_000] {
            refresher.want(Topics::All, Urgency::Spaced, now, MIDDLE);
            let due = refresher.due().unwrap();
            let wait = (due - now).as_millis();
            assert!((millis - 2..=millis + 2).contains(&wait), "{wait}, not {millis}");
            now = due;
            assert_eq!(refresher.start(now), Some(Topics::All));
            refresher.finished(true, now);
        }
        now += Duration::from_secs(5);
        refresher.want(Topics::All, Urgency::Spaced, now, MIDDLE);
        assert_eq!(refresher.due(), Some(now), "after a quiet time at once");
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_waiting_brings_a_spaced_wish_forward() {
        let now = Instant::now();
        let mut refresher = refresher(now);
        refresher.want(named(&["a"]), Urgency::Spaced, now, MIDDLE);
        refresher.want(named(&["b"]), Urgency::Now, now, MIDDLE);
        assert_eq!(refresher.start(now), Some(named(&["a", "b"])));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_tried_again_before_long() {
        let now = Instant::now();
        let mut refresher = refresher(now);
        refresher.want(named(&["a"]), Urgency::Now, now, MIDDLE);
        refresher.start(now);
        refresher.finished(false, now);
        assert_eq!(refresher.due(), Some(now + Duration::from_secs(1)));
    }
}

//! Who is connected to the admin listener, and who has to go.
//!
//! Pure: the server brings in what connections do and when, and closes those that are named. A guest that asks for nothing
//! may stay for a while, since whoever scrapes comes back over the same connection; one that is in the middle of asking or
//! of being answered has less time. When all places are taken, a new guest gets the place of another: first of one that asks
//! for nothing, the one that has done so for longest, so that connections that are only held open keep nobody out.

use std::collections::BTreeMap;
use std::time::Duration;

/// A place between two requests; longer than the usual minute between two scrapes.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// From the first byte of a request's head to its last.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// A place is not taken from who has just come: what it asks for may be on its way.
const GRACE: Duration = Duration::from_millis(50);
/// From a request's head to the last byte of its answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GuestId(u64);

/// What a connection does; who has to go first stands first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Nothing of a request has come yet.
    Idle,
    /// A part of a request's head has come.
    Asking,
    /// It gets its answer.
    Answered,
}

impl Phase {
    fn timeout(self) -> Duration {
        match self {
            Phase::Idle => IDLE_TIMEOUT,
            Phase::Asking => HEAD_TIMEOUT,
            Phase::Answered => ANSWER_TIMEOUT,
        }
    }
}

/// All connections. Times are durations since the server's start.
#[derive(Debug)]
pub(super) struct Guests {
    places: usize,
    guests: BTreeMap<GuestId, (Phase, Duration)>,
    next: u64,
}

impl Guests {
    pub(super) fn new(places: usize) -> Guests {
        Guests { places, guests: BTreeMap::new(), next: 0 }
    }

    /// When there is room for one more; `None` when there is now.
    pub(super) fn room_at(&self, now: Duration) -> Option<Duration> {
        self.next_to_leave().map(|(_, since)| since + GRACE).filter(|&at| at > now)
    }

    /// Takes a new one in, and says who has to go for it.
    pub(super) fn enter(&mut self, now: Duration) -> (GuestId, Option<GuestId>) {
        let leaves = self.next_to_leave().map(|(id, _)| id);
        if let Some(id) = leaves {
            self.guests.remove(&id);
        }
        let id = GuestId(self.next);
        self.next += 1;
        self.guests.insert(id, (Phase::Idle, now));
        (id, leaves)
    }

    /// Who has to go for a new one, and since when it does what it does.
    fn next_to_leave(&self) -> Option<(GuestId, Duration)> {
        let first = || self.guests.iter().min_by_key(|(_, standing)| **standing);
        let is_full = self.guests.len() >= self.places;
        is_full.then(first).flatten().map(|(&id, &(_, since))| (id, since))
    }

    /// Notes what one does now. More bytes of a head give it no more time.
    pub(super) fn turn(&mut self, id: GuestId, phase: Phase, now: Duration) {
        if let Some(standing) = self.guests.get_mut(&id) {
            let is_news =
                if phase == Phase::Asking { standing.0 == Phase::Idle } else { standing.0 != phase };
            if is_news {
                *standing = (phase, now);
            }
        }
    }

    /// One is gone.
    pub(super) fn leave(&mut self, id: GuestId) {
        self.guests.remove(&id);
    }

    /// When [`Guests::overdue`] has somebody to name.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.guests.values().map(|&(phase, since)| since + phase.timeout()).min()
    }

    /// Takes out those whose time is over.
    pub(super) fn overdue(&mut self, now: Duration) -> Vec<GuestId> {
        let is_over = |&(phase, since): &(Phase, Duration)| since + phase.timeout() <= now;
        self.guests.extract_if(.., |_, standing| is_over(standing)).map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_new_guest_gets_the_place_of_the_one_that_has_asked_for_nothing_for_longest() {
        use Phase::{Answered, Asking, Idle};
        for (phases, leaves) in [
            ([(Idle, 3), (Idle, 2), (Idle, 4)], 1),
            ([(Answered, 1), (Asking, 2), (Idle, 9)], 2),
            ([(Answered, 1), (Asking, 3), (Asking, 2)], 2),
            ([(Answered, 2), (Answered, 1), (Answered, 3)], 1),
        ] {
            let mut guests = Guests::new(3);
            let ids = phases.map(|_| guests.enter(Duration::ZERO));
            assert!(ids.iter().all(|(_, leaves)| leaves.is_none()));
            for ((id, _), (phase, since)) in ids.iter().zip(phases) {
                guests.turn(*id, Answered, SECOND * since);
                guests.turn(*id, Idle, SECOND * since);
                guests.turn(*id, phase, SECOND * since);
            }
            let since = SECOND * phases[leaves].1;
            assert_eq!(guests.room_at(since), Some(since + GRACE));
            assert_eq!(guests.room_at(since + GRACE), None);
            assert_eq!(guests.enter(SECOND * 10).1, Some(ids[leaves].0), "{phases:?}");
        }
    }

    #[test]
    fn each_phase_has_its_time_and_more_bytes_of_a_head_give_no_more() {
        let mut guests = Guests::new(4);
        assert_eq!(guests.next_deadline(), None);
        let (idle, _) = guests.enter(Duration::ZERO);
        let (asking, _) = guests.enter(Duration::ZERO);
        let (answered, _) = guests.enter(Duration::ZERO);
        guests.turn(asking, Phase::Asking, SECOND);
        guests.turn(asking, Phase::Asking, SECOND * 5);
        guests.turn(answered, Phase::Answered, SECOND * 2);
        guests.turn(answered, Phase::Asking, SECOND * 3);
        let mut gone = Vec::new();
        while let Some(at) = guests.next_deadline() {
            assert!(guests.overdue(at - Duration::from_nanos(1)).is_empty());
            gone.extend(guests.overdue(at).into_iter().map(|id| (id, at)));
        }
        let wanted =
            [(asking, SECOND + HEAD_TIMEOUT), (answered, SECOND * 2 + ANSWER_TIMEOUT), (idle, IDLE_TIMEOUT)];
        assert_eq!(gone, wanted);
    }

    #[test]
    fn who_has_left_is_not_named_again() {
        let mut guests = Guests::new(1);
        let (id, _) = guests.enter(Duration::ZERO);
        guests.leave(id);
        guests.turn(id, Phase::Idle, SECOND);
        assert_eq!((guests.next_deadline(), guests.enter(SECOND).1), (None, None));
    }
}

//! How long the target's acknowledgements take, and how much may be alive meanwhile.
//!
//! What was read stays alive until its acknowledgement is back, so that a link moves at most a window in each round trip.
//! The window of a near target is kept small, since it is memory and cache; a far one gets more, up to half the budget.
//! The shortest round trip of the last seconds counts: it grows with the distance, and least with what is queued.

use std::time::Duration;

/// How long a round trip counts.
const REMEMBERED: Duration = Duration::from_secs(10);
/// Up to this round trip a window is not grown: 3 MiB in 25 ms are more than 100 MB/s for each lane.
const NEAR: Duration = Duration::from_millis(25);

/// The shortest round trip of the last [`REMEMBERED`], give or take half of it.
#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    /// Of the half that is over, and of the one that has begun.
    shortest: [Option<Duration>; 2],
    began: Duration,
}

impl RoundTrip {
    /// A request was answered after `took`.
    pub(super) fn heard(&mut self, took: Duration, now: Duration) {
        let halves = (now.saturating_sub(self.began).as_millis() / (REMEMBERED / 2).as_millis()).min(2);
        for _ in 0..halves {
            self.shortest = [self.shortest[1], None];
            self.began = now;
        }
        self.shortest[1] = Some(self.shortest[1].map_or(took, |known| known.min(took)));
    }

    /// The window of all lanes, given what they have on a near link.
    pub(super) fn window_bytes(&self, near_bytes: usize, budget_bytes: usize) -> usize {
        let shortest = self.shortest.iter().flatten().min().copied().unwrap_or_default();
        let grown = near_bytes as u128 * shortest.max(NEAR).as_micros() / NEAR.as_micros();
        usize::try_from(grown).unwrap_or(usize::MAX).min((budget_bytes / 2).max(near_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_with_the_shortest_round_trip_up_to_half_the_budget() {
        let (near_bytes, budget_bytes) = (3_000, 100_000);
        let mut trip = RoundTrip::default();
        let mut check = |heard: &[(u64, u64)], window: usize| {
            for &(took_ms, at_s) in heard {
                trip.heard(Duration::from_millis(took_ms), Duration::from_secs(at_s));
            }
            assert_eq!(trip.window_bytes(near_bytes, budget_bytes), window, "{heard:?}");
        };
        check(&[], 3_000);
        check(&[(1, 0), (90, 1)], 3_000);
        // The quick answer is forgotten after two halves.
        check(&[(100, 6)], 3_000);
        check(&[(250, 11), (100, 12)], 12_000);
        check(&[(50, 13)], 6_000);
        check(&[(10_000, 60)], 50_000);
        check(&[(25, 61)], 3_000);
        assert_eq!(trip.window_bytes(3_000, 1_000), 3_000, "a lane's first batches pass whatever the budget");
    }
}

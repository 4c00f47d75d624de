//! Rates and spreads over the last half minute to a minute, counted as Kafka's own clients and MirrorMaker count theirs.
//!
//! Pure: the wall clock is an argument. Two windows of 30 s (`metrics.num.samples`, `metrics.sample.window.ms`): the one
//! that is filled and the one before it (`SampledStat.java`). A rate is divided by the time since the older window began,
//! but never by less than one window (`Rate.java`), so a first burst does not look like a flood. What is older than both
//! windows counts no more, and then there is no smallest, largest or average value either. Whoever adds to it does so once
//! for a batch, with the number of its records: nothing here is done for each record.

/// Length of one window, in ms.
const WINDOW_MS: i64 = 30_000;

/// A value with its spread over the windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The last value; 0 before the first.
    pub last: i64,
    /// Over the windows; `None` while nothing came in them.
    pub recent: Option<Recent>,
}

/// Smallest, largest and average value of the windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recent {
    /// Smallest.
    pub min: i64,
    /// Largest.
    pub max: i64,
    /// Average.
    pub avg: f64,
}

/// What moved through one partition lately, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrafficStatus {
    /// Records per second.
    pub record_rate: f64,
    /// Bytes per second.
    pub byte_rate: f64,
    /// Age of records when they were read, in ms.
    pub record_age_ms: Spread,
    /// Age of records when the target had acknowledged them, in ms.
    pub replication_latency_ms: Spread,
}

/// What moves through one partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    windows: Windows<Sample>,
    last_age_ms: i64,
    last_latency_ms: i64,
    last_timestamp_ms: Option<i64>,
}

/// One measure that comes now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    windows: Windows<Tally>,
    last_ms: i64,
}

impl Traffic {
    /// A batch of `records` records was read whose newest one carries `timestamp_ms` (negative for none).
    pub fn read(&mut self, now_ms: i64, timestamp_ms: i64, records: u64) {
        if timestamp_ms >= 0 {
            self.last_age_ms = now_ms.saturating_sub(timestamp_ms);
            self.windows.at(now_ms).age.add(self.last_age_ms, records);
        }
    }

    /// A batch of `records` records is on the target; its newest one carries `timestamp_ms` (negative for none).
    pub fn acknowledged(&mut self, now_ms: i64, timestamp_ms: i64, records: u64) {
        let sample = self.windows.at(now_ms);
        sample.records += records;
        if timestamp_ms >= 0 {
            self.last_latency_ms = now_ms.saturating_sub(timestamp_ms);
            self.last_timestamp_ms = Some(timestamp_ms);
            sample.latency.add(self.last_latency_ms, records);
        }
    }

    /// So many bytes of source batches are on the target.
    pub fn moved(&mut self, now_ms: i64, bytes: u64) {
        self.windows.at(now_ms).bytes += bytes;
    }

    /// The timestamp of the newest record of the batch that was acknowledged last.
    pub fn last_timestamp_ms(&self) -> Option<i64> {
        self.last_timestamp_ms
    }

    /// How old the newest record of that batch was when it was acknowledged, in ms.
    pub fn last_latency_ms(&self) -> i64 {
        self.last_latency_ms
    }

    /// What it says now.
    pub fn status(&self, now_ms: i64) -> TrafficStatus {
        let (mut age, mut latency) = (Tally::default(), Tally::default());
        let (mut records, mut bytes) = (0, 0);
        for sample in self.windows.live(now_ms) {
            records += sample.records;
            bytes += sample.bytes;
            age.merge(sample.age);
            latency.merge(sample.latency);
        }
        let seconds = self.windows.seconds(now_ms);
        TrafficStatus {
            record_rate: records as f64 / seconds,
            byte_rate: bytes as f64 / seconds,
            record_age_ms: Spread { last: self.last_age_ms, recent: age.recent() },
            replication_latency_ms: Spread { last: self.last_latency_ms, recent: latency.recent() },
        }
    }
}

impl Latency {
    /// Something took so long.
    pub fn took(&mut self, now_ms: i64, ms: i64) {
        self.last_ms = ms;
        self.windows.at(now_ms).add(ms, 1);
    }

    /// What it says now.
    pub fn spread(&self, now_ms: i64) -> Spread {
        let mut tally = Tally::default();
        self.windows.live(now_ms).for_each(|of| tally.merge(*of));
        Spread { last: self.last_ms, recent: tally.recent() }
    }
}

/// Of one window of a partition.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    records: u64,
    bytes: u64,
    age: Tally,
    latency: Tally,
}

/// Values of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    count: u64,
    sum: i64,
    min: i64,
    max: i64,
}

impl Tally {
    fn add(&mut self, value: i64, times: u64) {
        let sum = value.saturating_mul(i64::try_from(times).unwrap_or(i64::MAX));
        self.merge(Tally { count: times, sum, min: value, max: value });
    }

    fn merge(&mut self, other: Tally) {
        if self.count == 0 {
            *self = other;
        } else if other.count > 0 {
            self.count = self.count.saturating_add(other.count);
            self.sum = self.sum.saturating_add(other.sum);
            (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
        }
    }

    fn recent(self) -> Option<Recent> {
        let Tally { count, sum, min, max } = self;
        (count > 0).then(|| Recent { min, max, avg: sum as f64 / count as f64 })
    }
}

/// The window that is filled, and the one before it, each with its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Windows<T> {
    current: Option<(i64, T)>,
    before: Option<(i64, T)>,
}

impl<T: Copy + Default> Windows<T> {
    /// The window of this moment; also where the clock was set back.
    fn at(&mut self, now_ms: i64) -> &mut T {
        if self.current.is_some_and(|(began, _)| !(began..began.saturating_add(WINDOW_MS)).contains(&now_ms))
        {
            self.before = self.current.take();
        }
        &mut self.current.get_or_insert_with(|| (now_ms, T::default())).1
    }

    fn windows(&self, now_ms: i64) -> impl Iterator<Item = &(i64, T)> {
        let lives = move |window: &&(i64, T)| (0..2 * WINDOW_MS).contains(&now_ms.saturating_sub(window.0));
        self.before.iter().chain(&self.current).filter(lives)
    }

    fn live(&self, now_ms: i64) -> impl Iterator<Item = &T> {
        self.windows(now_ms).map(|(_, value)| value)
    }

    /// What a rate is divided by.
    fn seconds(&self, now_ms: i64) -> f64 {
        let began = self.windows(now_ms).map(|&(began, _)| began).min().unwrap_or(now_ms);
        let elapsed = now_ms - began;
        let divisor = if elapsed < WINDOW_MS { elapsed + WINDOW_MS } else { elapsed };
        divisor as f64 / 1_000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_kafkas_meter() {
        let mut traffic = Traffic::default();
        let rate = |traffic: &Traffic, now_ms| traffic.status(now_ms).record_rate;
        assert_eq!(rate(&traffic, 0), 0.0);
        traffic.acknowledged(1_000, 0, 300);
        assert_eq!(rate(&traffic, 1_000), 10.0, "never divided by less than a window");
        assert_eq!(rate(&traffic, 16_000), 300.0 / 45.0);
        traffic.acknowledged(31_000, 0, 300);
        assert_eq!(rate(&traffic, 31_000), 600.0 / 30.0);
        assert_eq!(rate(&traffic, 60_999), 600.0 / 59.999);
        assert_eq!(rate(&traffic, 61_000), 300.0 / 30.0, "the first window counts no more");
        assert_eq!(rate(&traffic, 91_000), 0.0);
        traffic.moved(91_000, 3_000);
        assert_eq!(traffic.status(91_000).byte_rate, 100.0);
    }

    #[test]
    fn ages_and_latencies_spread_over_two_windows() {
        let mut traffic = Traffic::default();
        traffic.read(10_000, 9_000, 3);
        traffic.acknowledged(10_500, 9_000, 3);
        traffic.read(11_000, 10_996, 1);
        traffic.read(11_000, -1, 7);
        let status = traffic.status(11_000);
        let age = Recent { min: 4, max: 1_000, avg: 3_004.0 / 4.0 };
        assert_eq!(status.record_age_ms, Spread { last: 4, recent: Some(age) });
        let latency = Recent { min: 1_500, max: 1_500, avg: 1_500.0 };
        assert_eq!(status.replication_latency_ms, Spread { last: 1_500, recent: Some(latency) });
        assert_eq!(traffic.last_timestamp_ms(), Some(9_000));
        assert_eq!(traffic.status(71_000).record_age_ms, Spread { last: 4, recent: None });
    }

    /// A clock that is set, forwards or backwards, costs a window and nothing else.
    #[test]
    fn a_clock_that_is_set_back_does_no_harm() {
        let mut latency = Latency::default();
        latency.took(100_000, 5);
        latency.took(40_000, 7);
        assert_eq!(
            latency.spread(40_000),
            Spread { last: 7, recent: Some(Recent { min: 7, max: 7, avg: 7.0 }) }
        );
        latency.took(i64::MAX, i64::MAX);
        latency.took(i64::MIN, i64::MIN);
        assert_eq!(latency.spread(i64::MIN).last, i64::MIN);
        let mut traffic = Traffic::default();
        traffic.read(i64::MIN, i64::MAX, u64::MAX);
        traffic.acknowledged(i64::MAX, 0, 1);
        assert!(traffic.status(0).record_rate >= 0.0);
    }
}

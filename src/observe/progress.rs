//! How far a replicator is, in one line: sums, rates over the last seconds, and the time that is left.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use super::units;
use crate::mirror::status::ReplicatorStatus;

/// Rates are those of the last ten seconds.
const WINDOW_MS: i64 = 10_000;
const SAMPLES_MAX: usize = 64;
const BAR_WIDTH: usize = 24;

/// Sums over all flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records acknowledged.
    pub records: u64,
    /// Bytes of batches acknowledged.
    pub bytes: u64,
    /// Source offsets still to be copied.
    pub lag: u64,
    /// Source offsets that are missing of what was there at the start.
    pub remaining: u64,
    /// Partitions that are replicated.
    pub partitions: usize,
    /// Partitions that are stopped.
    pub stopped: usize,
}

impl Totals {
    /// The sums of a state.
    pub fn of(status: &ReplicatorStatus) -> Totals {
        let mut totals = Totals::default();
        for partition in status.flows.iter().flat_map(|flow| flow.partitions.values()) {
            totals.records += partition.counters.records;
            totals.bytes += partition.counters.bytes;
            totals.lag += partition.lag().map_or(0, i64::unsigned_abs);
            let from = partition.position.or(partition.log_start_offset);
            if let (Some(from), Some(end)) = (from, partition.end_at_start) {
                totals.remaining += u64::try_from(end.saturating_sub(from)).unwrap_or(0);
            }
            totals.partitions += 1;
            totals.stopped += usize::from(partition.stopped.is_some());
        }
        totals
    }
}

/// Remembers enough of the past for rates.
#[derive(Debug, Default)]
pub struct Meter {
    samples: VecDeque<(i64, Totals)>,
    /// The most that ever remained, of which the bar shows the part that is done.
    whole: u64,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The sums.
    pub totals: Totals,
    /// Records a second.
    pub records_rate: f64,
    /// Bytes a second.
    pub bytes_rate: f64,
    /// Of what was there at the start, from 0 to 1.
    pub done: f64,
    /// Until all of that is copied, if it goes on like this.
    pub left: Option<Duration>,
}

impl Meter {
    /// Takes a state in.
    pub fn note(&mut self, status: &ReplicatorStatus) -> Progress {
        let totals = Totals::of(status);
        while self.samples.len() >= SAMPLES_MAX
            || self.samples.get(1).is_some_and(|(at, _)| status.now_ms - at >= WINDOW_MS)
        {
            self.samples.pop_front();
        }
        self.samples.push_back((status.now_ms, totals));
        self.whole = self.whole.max(totals.remaining);
        let (from_ms, from) = self.samples.front().copied().unwrap_or((status.now_ms, totals));
        let seconds = (status.now_ms - from_ms).max(0) as f64 / 1_000.0;
        let rate = |now: u64, before: u64| {
            if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
        };
        let offsets_rate = rate(from.remaining, totals.remaining);
        let left = (offsets_rate > 0.0).then(|| totals.remaining as f64 / offsets_rate);
        Progress {
            totals,
            records_rate: rate(totals.records, from.records),
            bytes_rate: rate(totals.bytes, from.bytes),
            done: if self.whole == 0 { 1.0 } else { 1.0 - totals.remaining as f64 / self.whole as f64 },
            left: left.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        }
    }
}

impl Progress {
    /// A plain line, for logs and pipes.
    pub fn line(&self) -> String {
        let totals = &self.totals;
        let mut line = format!(
            "{} records, {}, {}/s, {} records/s, lag {}",
            units::count(totals.records),
            units::bytes(totals.bytes),
            units::bytes(units::per_second(self.bytes_rate)),
            units::count(units::per_second(self.records_rate)),
            units::count(totals.lag),
        );
        if totals.stopped > 0 {
            let _ = write!(line, ", {} of {} partitions stopped", totals.stopped, totals.partitions);
        }
        line
    }

    /// A line with a bar, for a terminal.
    pub fn bar(&self) -> String {
        let full = ((self.done.clamp(0.0, 1.0) * BAR_WIDTH as f64) as usize).min(BAR_WIDTH);
        let percent = (self.done.clamp(0.0, 1.0) * 100.0).floor();
        let left = match self.left {
            _ if self.totals.remaining == 0 => String::new(),
            Some(left) => format!("  ETA {}", units::duration(left)),
            None => "  ETA unknown".to_owned(),
        };
        format!(
            "[{}{}] {percent:3.0} %  {}{left}",
            "#".repeat(full),
            "-".repeat(BAR_WIDTH - full),
            self.line()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn rates_and_the_time_left_come_from_the_last_seconds() {
        let mut status = example::status();
        let mut meter = Meter::default();
        let first = meter.note(&status);
        assert_eq!((first.totals.records, first.totals.lag, first.totals.remaining), (70, 10, 5));
        assert_eq!((first.records_rate, first.left, first.done), (0.0, None, 0.0));
        status.now_ms += 2_000;
        let partition = status.flows[0].partitions.values_mut().next().unwrap();
        partition.counters.records += 1_000;
        partition.counters.bytes += 5_000_000;
        partition.position = Some(94);
        let second = meter.note(&status);
        assert_eq!((second.records_rate, second.bytes_rate), (500.0, 2_500_000.0));
        assert_eq!((second.left, second.done), (Some(Duration::from_millis(500)), 0.8));
        assert_eq!(
            second.line(),
            "1,070 records, 5.0 MB, 2.5 MB/s, 500 records/s, lag 6, 1 of 2 partitions stopped"
        );
        assert!(
            second.bar().starts_with("[###################-----]  80 %  1,070 records"),
            "{}",
            second.bar()
        );
        assert!(second.bar().ends_with("  ETA 0 s"));
        status.now_ms += 60_000;
        let third = meter.note(&status);
        let later = {
            status.now_ms += 1_000;
            meter.note(&status)
        };
        assert!(third.records_rate < 500.0);
        assert_eq!((later.records_rate, later.left), (0.0, None));
    }

    #[test]
    fn nothing_to_do_is_all_done() {
        let progress = Meter::default().note(&ReplicatorStatus::default());
        assert_eq!((progress.done, progress.totals), (1.0, Totals::default()));
    }
}

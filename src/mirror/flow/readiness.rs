//! When a flow counts as ready, for `/readyz` and for whoever reads the log.
//!
//! A flow that was ready is not any more when one of its clusters has been out of reach, or its right to write gone, for
//! `errors.retry.timeout` (0 by default: at once), and when records of a partition have waited for `delivery.timeout.ms`, or
//! failed more than `retries` times in a row, without an acknowledgement. It is ready again as soon as that is over. A partition
//! that is stopped says nothing: it must not take the others out of service.

use std::time::Duration;

use super::Owner;
use crate::mirror::RetryLimits;
use crate::mirror::engine::Undelivered;
use crate::mirror::status::{FlowState, Readiness};

/// Partitions that are named.
const NAMED_MAX: usize = 3;

/// What is known of a flow's readiness.
#[derive(Debug, Default)]
pub(super) struct Watch {
    was_ready: bool,
    out_since: Option<Duration>,
    /// Why it is not ready, by what is wrong.
    out: Option<String>,
    late: Option<String>,
}

/// What a flow is like at a moment.
struct Seen<'a> {
    now: Duration,
    state: &'a FlowState,
    /// Why a cluster is out of reach.
    outage: Option<String>,
    /// What the target has not acknowledged for too long.
    undelivered: &'a [Undelivered],
    target: &'a str,
}

/// What the log is told.
#[derive(Debug, PartialEq, Eq)]
enum News {
    /// Not ready, or for one more reason.
    Trouble(String),
    /// Ready again.
    Over,
}

impl Watch {
    /// As it was looked at last, in this state.
    pub(super) fn now(&self, state: &FlowState) -> Readiness {
        let reason = self.out.as_ref().or(self.late.as_ref());
        match reason {
            None if self.was_ready && goes_on(state) => Readiness::Ready,
            // What keeps a start waiting is told by its state.
            reason => Readiness::NotReady(reason.filter(|_| self.was_ready).cloned()),
        }
    }

    fn look(&mut self, limits: &RetryLimits, seen: Seen<'_>) -> Option<News> {
        if !goes_on(seen.state) {
            *self = Watch::default();
            return None;
        }
        let is_interrupted = *seen.state == FlowState::Starting || seen.outage.is_some();
        if is_interrupted {
            self.out_since.get_or_insert(seen.now);
        } else {
            (self.was_ready, self.out_since) = (true, None);
        }
        if !self.was_ready {
            return None;
        }
        let over =
            |since: Duration| limits.outage_max.is_some_and(|max| seen.now.saturating_sub(since) >= max);
        let lost = || "it may not write now".to_owned();
        let out = self.out_since.filter(|&since| over(since)).map(|_| seen.outage.unwrap_or_else(lost));
        let writes = matches!(seen.state, FlowState::Starting | FlowState::Running);
        let late = describe(seen.undelivered, limits, seen.target).filter(|_| writes);
        let (was_out, was_late) = (self.out.is_some(), self.late.is_some());
        (self.out, self.late) = (out, late);
        match (&self.out, &self.late) {
            (Some(reason), _) if !was_out => Some(News::Trouble(reason.clone())),
            (_, Some(reason)) if !was_late => Some(News::Trouble(reason.clone())),
            (None, None) if was_out || was_late => Some(News::Over),
            _ => None,
        }
    }
}

fn goes_on(state: &FlowState) -> bool {
    use FlowState::{Paused, Running, Standby, Starting};
    matches!(state, Starting | Running | Standby | Paused { .. })
}

/// The partitions that wait longest first.
fn describe(undelivered: &[Undelivered], limits: &RetryLimits, target: &str) -> Option<String> {
    let longest = undelivered.iter().max_by_key(|partition| partition.waited)?;
    let mut sorted: Vec<&Undelivered> = undelivered.iter().collect();
    sorted.sort_by_key(|partition| std::cmp::Reverse(partition.waited));
    let named: Vec<String> = sorted
        .iter()
        .take(NAMED_MAX)
        .map(|partition| format!("{}-{}", partition.topic, partition.partition))
        .collect();
    let more = match undelivered.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = if longest.waited >= limits.delivery_timeout {
        format!("for {} s (delivery.timeout.ms)", longest.waited.as_secs())
    } else {
        format!("at {} tries in a row (retries)", longest.failures)
    };
    let why = longest.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
    Some(format!("{target} has acknowledged nothing of {}{more} {what}{why}", named.join(", ")))
}

impl Owner {
    /// Looks whether the flow is ready, and says so in the log when that has changed.
    pub(super) fn look_at_readiness(&mut self) {
        let (now, limits) = (self.started.elapsed(), &self.settings.retry_limits);
        let undelivered = self.engine.undelivered(now, limits.delivery_timeout, limits.retries);
        let outage = [&self.source, &self.target].into_iter().find(|cluster| cluster.is_out_of_reach());
        let seen = Seen {
            now,
            state: &self.state,
            outage: outage.map(|cluster| {
                let why = cluster.trouble().map_or(String::new(), |error| format!(": {}", error.chain()));
                format!("no broker of {} answers{why}", cluster.alias())
            }),
            undelivered: &undelivered,
            target: &self.settings.target,
        };
        let (source, target) = (&self.settings.source, &self.settings.target);
        match self.readiness.look(limits, seen) {
            Some(News::Trouble(reason)) => tracing::warn!(%source, %target, "not ready: {reason}"),
            Some(News::Over) => tracing::info!(%source, %target, "ready again"),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn undelivered(partition: i32, waited_s: u64, failures: u32) -> Undelivered {
        let reason = Some("NOT_ENOUGH_REPLICAS".to_owned());
        let waited = Duration::from_secs(waited_s);
        Undelivered { topic: Arc::from("A.t"), partition, waited, failures, reason }
    }

    struct Case {
        watch: Watch,
        limits: RetryLimits,
    }

    impl Case {
        fn new(outage_max: Option<u64>) -> Case {
            let outage_max = outage_max.map(Duration::from_secs);
            Case { watch: Watch::default(), limits: RetryLimits { outage_max, ..RetryLimits::default() } }
        }

        /// Whether it is ready, and the news.
        fn at(
            &mut self,
            now_s: u64,
            state: FlowState,
            outage: Option<&str>,
            undelivered: &[Undelivered],
        ) -> (bool, Option<News>) {
            let seen = Seen {
                now: Duration::from_secs(now_s),
                state: &state,
                outage: outage.map(str::to_owned),
                undelivered,
                target: "B",
            };
            let news = self.watch.look(&self.limits, seen);
            (self.watch.now(&state) == Readiness::Ready, news)
        }
    }

    fn trouble(reason: &str) -> Option<News> {
        Some(News::Trouble(reason.to_owned()))
    }

    #[test]
    fn an_outage_turns_it_at_once_and_its_end_turns_it_back() {
        let mut flow = Case::new(Some(0));
        assert_eq!(flow.at(0, FlowState::Starting, None, &[]), (false, None), "a start says nothing");
        assert_eq!(flow.at(1, FlowState::Starting, Some("no A"), &[]), (false, None));
        assert_eq!(flow.at(2, FlowState::Running, None, &[]), (true, None));
        assert_eq!(flow.at(3, FlowState::Running, Some("no B"), &[]), (false, trouble("no B")));
        assert_eq!(flow.watch.now(&FlowState::Running), Readiness::NotReady(Some("no B".to_owned())));
        assert_eq!(flow.at(4, FlowState::Starting, Some("no B"), &[]), (false, None), "told once");
        assert_eq!(flow.at(5, FlowState::Running, None, &[]), (true, Some(News::Over)));
        assert_eq!(flow.at(6, FlowState::Failed("x".to_owned()), None, &[]), (false, None));
    }

    #[test]
    fn errors_retry_timeout_bears_an_outage_for_so_long() {
        let mut flow = Case::new(Some(600));
        assert!(!flow.at(0, FlowState::Starting, None, &[]).0, "it does not hide a start");
        assert!(flow.at(1, FlowState::Running, None, &[]).0);
        assert!(flow.at(2, FlowState::Running, Some("no B"), &[]).0);
        assert!(flow.at(500, FlowState::Starting, Some("no B"), &[]).0);
        assert_eq!(flow.at(602, FlowState::Starting, None, &[]), (false, trouble("it may not write now")));
        assert!(flow.at(603, FlowState::Running, None, &[]).0);
        assert!(flow.at(604, FlowState::Running, Some("no B"), &[]).0, "the next outage has its own time");
        let mut flow = Case::new(None);
        flow.at(0, FlowState::Running, None, &[]);
        assert!(flow.at(1_000_000, FlowState::Starting, Some("no B"), &[]).0, "-1 is for ever");
    }

    #[test]
    fn partitions_that_wait_for_long_turn_it_by_name() {
        let mut flow = Case::new(None);
        flow.at(0, FlowState::Running, None, &[]);
        let one = [undelivered(3, 120, 7)];
        let reason =
            "B has acknowledged nothing of A.t-3 for 120 s (delivery.timeout.ms): NOT_ENOUGH_REPLICAS";
        assert_eq!(flow.at(1, FlowState::Running, None, &one), (false, trouble(reason)));
        let many: Vec<Undelivered> = (0..5).map(|index| undelivered(index, 130 - index as u64, 7)).collect();
        assert_eq!(flow.at(2, FlowState::Running, None, &many), (false, None), "told once");
        let reason = "B has acknowledged nothing of A.t-0, A.t-1, A.t-2 and 2 more for 130 s \
            (delivery.timeout.ms): NOT_ENOUGH_REPLICAS";
        assert_eq!(flow.watch.now(&FlowState::Running), Readiness::NotReady(Some(reason.to_owned())));
        assert_eq!(flow.at(3, FlowState::Standby, None, &many), (true, Some(News::Over)), "another's now");
        let often = [undelivered(0, 5, 11)];
        let reason =
            "B has acknowledged nothing of A.t-0 at 11 tries in a row (retries): NOT_ENOUGH_REPLICAS";
        assert_eq!(flow.at(4, FlowState::Running, None, &often), (false, trouble(reason)));
        assert_eq!(flow.at(5, FlowState::Running, None, &[]), (true, Some(News::Over)));
    }
}

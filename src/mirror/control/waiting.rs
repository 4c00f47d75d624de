//! What a flow waits for before it can copy, said in time and again.
//!
//! A start may wait for long: for a cluster that does not answer, for MirrorMaker to leave, for another process to give the
//! lease up. One that waits without a word looks as if it hung. So whatever waits does so within [`waiting`], which
//! tells the flow's owner (for `/status`) and the log what for: cluster, addresses, last error.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::ControlEvent;
use super::task::Flow;
use crate::client::Cluster;
use crate::mirror::status::Waiting;

/// A start that is done by then was no wait.
const FIRST_AFTER: Duration = Duration::from_secs(2);
/// How often the words are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Between two log lines; twice as long each time, since a standby may wait for months.
const AGAIN_MIN: Duration = Duration::from_secs(30);
const AGAIN_MAX: Duration = Duration::from_secs(600);

/// Does `work`, and says what is waited for (`what` completes "waits for …") while it takes long.
pub(super) async fn waiting<T>(flow: &Flow, what: impl Fn() -> String, work: impl Future<Output = T>) -> T {
    let (started, since_ms) = (Instant::now(), flow.seam.now_ms());
    let mut work = pin!(work);
    let mut reminder = Reminder::default();
    let mut shown = None;
    loop {
        let pause = if shown.is_none() { FIRST_AFTER } else { LOOK_INTERVAL };
        tokio::select! {
            biased;
            done = &mut work => {
                if shown.is_some() {
                    flow.tell(ControlEvent::Waiting(None)).await;
                }
                return done;
            }
            () = sleep(pause) => {}
        }
        let (what, waited) = (what(), started.elapsed());
        if reminder.is_due(waited) {
            let waited_s = waited.as_secs();
            tracing::info!(target: "kmirror::control", flow = %flow.name(), waited_s, "waits for {what}");
        }
        if shown.as_ref() != Some(&what) {
            flow.tell(ControlEvent::Waiting(Some(Waiting { what: what.clone(), since_ms }))).await;
            shown = Some(what);
        }
    }
}

/// A cluster with its addresses, for people.
pub(super) fn name(cluster: &Cluster) -> String {
    cluster.settings().title()
}

/// The last error of a wait, from whoever knows one, to be put behind what is waited for.
pub(super) fn because(own: Option<String>, clusters: &[&Cluster]) -> String {
    let trouble = || clusters.iter().find_map(|cluster| Some(cluster.trouble()?.chain()));
    own.or_else(trouble).map_or_else(String::new, |error| format!(": {error}"))
}

/// When the log is told again.
#[derive(Debug, Default)]
struct Reminder {
    told: Option<(Duration, Duration)>,
}

impl Reminder {
    fn is_due(&mut self, waited: Duration) -> bool {
        let interval = match self.told {
            None => AGAIN_MIN,
            Some((at, interval)) if waited >= at + interval => (interval * 2).min(AGAIN_MAX),
            Some(_) => return false,
        };
        self.told = Some((waited, interval));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_told_at_once_and_again_ever_less_often() {
        let mut reminder = Reminder::default();
        let told: Vec<u64> =
            (2..3_000).filter(|&second| reminder.is_due(Duration::from_secs(second))).collect();
        assert_eq!(told, [2, 32, 92, 212, 452, 932, 1_532, 2_132, 2_732]);
    }
}

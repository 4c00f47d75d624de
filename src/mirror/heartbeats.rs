//! Heartbeats: a record per pair of clusters and interval in `heartbeats` on the target, as MirrorMaker's heartbeat task
//! writes them (`MirrorHeartbeatTask.java`).
//!
//! Replicated, they show that a flow is alive while its topics are silent, and how many hops a cluster is away. They are
//! written only while this process writes the pair's flow; for a pair without a flow of its own, while it writes the one the
//! other way; and for a pair without any, always. One that cannot be written is left out, the next one says the same.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::mm2::formats::Heartbeat;
use super::mm2::settings::HeartbeatSettings;
use super::mm2::topic::InternalTopic;
use super::policy::ReplicationPolicy;
use super::status::HeartbeatStatus;
use crate::client::Cluster;
use crate::net::Backoff;
use crate::seam::Seam;

/// Between tries of a cluster that takes none.
const FAILED_BACKOFF: Backoff = Backoff::millis(5_000, 60_000);

/// The heartbeats of one pair; they end when this is dropped.
#[derive(Debug)]
pub(super) struct Heartbeats {
    task: JoinHandle<()>,
    status: watch::Receiver<HeartbeatStatus>,
}

impl Heartbeats {
    /// Starts them; `writes` says whether they are written now, `None` always.
    pub(super) fn start(
        seam: &Seam,
        settings: HeartbeatSettings,
        target: &Cluster,
        writes: Option<watch::Receiver<bool>>,
    ) -> Heartbeats {
        let topic = InternalTopic::new(
            target.clone(),
            ReplicationPolicy::default().heartbeats_topic(),
            settings.replication_factor,
            "heartbeats.topic.replication.factor",
        );
        let status = HeartbeatStatus {
            source: settings.source.clone(),
            target: settings.target.clone(),
            emitted: 0,
            emitted_ms: None,
            last_error: None,
        };
        let (publish, status) = watch::channel(status);
        let task = seam.spawn(beat(seam.clone(), settings, topic, writes, publish));
        Heartbeats { task, status }
    }

    pub(super) fn status(&self) -> HeartbeatStatus {
        self.status.borrow().clone()
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The next time after one that was due at `due`. A late one does not make the following ones come faster, and all keep in
/// step, so that a process that beats for several pairs wakes up for all of them at once.
fn after(due: Instant, interval: Duration, now: Instant) -> Instant {
    let next = due + interval;
    let missed = now.saturating_duration_since(next).as_nanos().div_ceil(interval.as_nanos().max(1));
    next + interval.saturating_mul(u32::try_from(missed).unwrap_or(u32::MAX))
}

async fn beat(
    seam: Seam,
    settings: HeartbeatSettings,
    mut topic: InternalTopic,
    mut writes: Option<watch::Receiver<bool>>,
    publish: watch::Sender<HeartbeatStatus>,
) {
    let interval = settings.interval.max(Duration::from_millis(1));
    let mut failures = 0;
    let mut next = Instant::now() + interval;
    loop {
        if let Some(writes) = &mut writes
            && writes.wait_for(|writes| *writes).await.is_err()
        {
            return;
        }
        sleep_until(next).await;
        next = after(next, interval, Instant::now());
        let heartbeat = Heartbeat {
            source: Arc::clone(&settings.source),
            target: Arc::clone(&settings.target),
            timestamp_ms: seam.now_ms(),
        };
        match topic.append(vec![(heartbeat.key(), heartbeat.value())]).await {
            Ok(()) => {
                failures = 0;
                publish.send_modify(|status| {
                    status.emitted += 1;
                    status.emitted_ms = Some(heartbeat.timestamp_ms);
                    status.last_error = None;
                });
            }
            Err(error) => {
                let reason = error.to_string();
                if publish.borrow().last_error.as_ref() != Some(&reason) {
                    tracing::warn!(
                        target: "kmirror::heartbeats",
                        source = %settings.source,
                        flow_target = %settings.target,
                        "cannot write heartbeats: {reason}"
                    );
                }
                publish.send_modify(|status| status.last_error = Some(reason));
                sleep(FAILED_BACKOFF.delay(failures, seam.random())).await;
                failures = failures.saturating_add(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn beats_keep_in_step_and_never_catch_up() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        for (due, now, next) in [
            (1_000, 1_000, 2_000),
            (1_000, 1_999, 2_000),
            (1_000, 2_000, 2_000),
            (1_000, 2_001, 3_000),
            (1_000, 9_500, 10_000),
        ] {
            assert_eq!(after(at(due), Duration::from_secs(1), at(now)), at(next), "{due} at {now}");
        }
        assert!(after(start, Duration::from_millis(1), at(1 << 40)) > start);
    }
}

//! An orderly stop: what is in flight is brought to its end, positions are stored, the flow is given back.
//!
//! Both have their time: a target that throttles or hangs must not keep a process that is to end. What it has not
//! acknowledged by then may be on it all the same, and is copied again at the next start: that is said.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::super::control::ControlCommand;
use super::super::state::StoreError;
use super::super::status::FlowState;
use super::{Occasion, Owner};

/// How long a stop waits for what is in flight.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(30);
/// And then for each write to the flow's memory.
const STORE_MAX: Duration = Duration::from_secs(10);

impl Owner {
    pub(super) fn begin_stop(&mut self) {
        if self.stopping.is_none() {
            self.stopping = Some(Instant::now());
            if self.state == FlowState::Running {
                self.state = FlowState::Stopping;
            }
            self.engine.drain();
        }
    }

    /// Once everything is acknowledged (or has had its time), stores the last positions and gives the flow back.
    pub(super) async fn go_on_stopping(&mut self) {
        let Some(since) = self.stopping else { return };
        let over_time = since.elapsed() >= DRAIN_MAX;
        if !self.engine.is_drained() && !over_time || self.control.orders.are_void() {
            return;
        }
        self.warn_of_unacknowledged(since.elapsed());
        self.end_save().await;
        if self.store.is_some() && timeout(STORE_MAX, self.syncs.finish(&mut self.engine)).await.is_err() {
            self.warn_of_slow_store("offset syncs");
        }
        self.save(Occasion::Flush);
        self.end_save().await;
        self.cease();
        self.stopping = Some(Instant::now() + DRAIN_MAX);
        self.control.orders.tell(ControlCommand::Stop).await;
    }

    async fn end_save(&mut self) {
        let Some(mut saving) = self.saving.take() else { return };
        match timeout(STORE_MAX, &mut saving).await {
            Ok(result) => self.on_saved(result.unwrap_or(Err(StoreError::Closed))),
            Err(_) => {
                saving.abort();
                self.warn_of_slow_store("positions");
            }
        }
    }

    fn warn_of_unacknowledged(&self, waited: Duration) {
        let batches = self.engine.unacknowledged_batches();
        if batches > 0 && self.store.is_some() {
            tracing::warn!(
                source = %self.settings.source,
                target = %self.settings.target,
                batches,
                waited_ms = waited.as_millis() as u64,
                "stops although batches that were sent are not acknowledged: they may be on the target already, and are copied \
                 again at the next start"
            );
        }
    }

    fn warn_of_slow_store(&self, what: &str) {
        tracing::warn!(
            source = %self.settings.source,
            target = %self.settings.target,
            "the last {what} could not be stored within {} s: the next start goes on at earlier ones",
            STORE_MAX.as_secs()
        );
    }
}

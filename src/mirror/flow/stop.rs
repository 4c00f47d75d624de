//! An orderly stop: what is in flight is brought to its end, positions are stored, the flow is given back.
//!
//! Both have their time: a target that throttles or hangs must not keep a process that is to end. What it has not
//! acknowledged by then may be on it all the same, and is copied again at the next start: that is said. It may also arrive
//! later: a broker goes on with what it has read, connection or not. So connections are closed first, and the lease is left to
//! run out, so that a successor writes only after that time.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::super::control::ControlCommand;
use super::super::lease::SESSION_TIMEOUT;
use super::super::state::StoreError;
use super::super::status::FlowState;
use super::{Lanes, Occasion, Owner};

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
        let command = if self.store.is_some() && self.engine.batches_in_doubt() > 0 {
            self.warn_of_doubt(since.elapsed());
            // What is not handed over yet never will be.
            self.lanes = Lanes::new();
            ControlCommand::StopInDoubt
        } else {
            ControlCommand::Stop
        };
        self.end_save().await;
        if self.store.is_some() && timeout(STORE_MAX, self.syncs.finish(&mut self.engine)).await.is_err() {
            self.warn_of_slow_store("offset syncs");
        }
        self.save(Occasion::Flush);
        self.end_save().await;
        if timeout(STORE_MAX, self.end_release_saves()).await.is_err() {
            self.warn_of_slow_store("positions");
        }
        self.cease();
        self.stopping = Some(Instant::now() + DRAIN_MAX);
        self.control.orders.tell(command).await;
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

    fn warn_of_doubt(&self, waited: Duration) {
        tracing::warn!(
            source = %self.settings.source,
            target = %self.settings.target,
            batches = self.engine.batches_in_doubt(),
            waited_ms = waited.as_millis() as u64,
            "stops although batches that were sent are not acknowledged: they may be on the target already, or still arrive, and \
             are copied again at the next start; the lease is not given back but runs out, {} s from now",
            SESSION_TIMEOUT.as_secs()
        );
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

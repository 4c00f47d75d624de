//! The right to write goes and comes back: what is kept meanwhile, and how it goes on.

use std::time::Duration;

use super::{Command, Engine, Timer};
use crate::client::{PartitionKey, TargetKey};

impl Engine {
    /// The right to write is gone: nothing more is sent or fetched. What is not acknowledged is kept, since it may be in
    /// the target's log; all else will be fetched again. The owner drops its lanes.
    pub fn suspend(&mut self, now: Duration) {
        self.suspended = true;
        for id in self.requests.keys().copied().collect::<Vec<_>>() {
            self.on_lost(id, now);
        }
        for lane in self.produce_lanes.values_mut() {
            (lane.connection, lane.silent) = (None, false);
        }
        self.fetch_lanes.clear();
        self.paused_since = None;
        self.drop_inquiries();
        for index in 0..self.targets.len() {
            self.update_stuck(TargetKey(index as u32));
        }
        for index in 0..self.sources.len() {
            self.hold(PartitionKey(index as u32));
        }
    }

    /// The right to write is back, and nobody else has written: goes on where it stood.
    pub fn resume(&mut self) {
        self.suspended = false;
        for &broker in self.produce_lanes.keys() {
            self.commands.push(Command::OpenProduce(broker));
        }
        for index in 0..self.sources.len() {
            self.fetch(PartitionKey(index as u32));
        }
        self.ask_again();
    }

    /// The right to write is gone, and with it what was asked.
    fn drop_inquiries(&mut self) {
        for append in self.targets.iter_mut().filter_map(|target| target.append.as_mut()) {
            append.give_up_inquiry(None);
        }
    }

    /// The right to write is back: what waits for nothing else is remedied now.
    fn ask_again(&mut self) {
        for (index, target) in self.targets.iter_mut().enumerate() {
            let is_settled = target.append.as_ref().is_some_and(|append| append.settled().is_some());
            if is_settled && target.resend_at.is_none() && target.stopped.is_none() {
                target.resend_at = Some(Duration::ZERO);
                self.timers.insert((Duration::ZERO, Timer::Resend(TargetKey(index as u32))));
            }
        }
    }
}

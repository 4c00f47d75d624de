//! Batches of unknown outcome that the target may have forgotten: its log is asked before they are sent again.

use std::time::Duration;

use super::super::append::Inquiry;
use super::super::evidence::Evidence;
use super::{Command, Engine};
use crate::client::TargetKey;

impl Engine {
    /// Asks the target's log which of the batches of unknown outcome it holds; [`Engine::on_evidence`] goes on.
    pub(super) fn inquire(&mut self, key: TargetKey) {
        // What this asks for would be dropped; [`Engine::resume`] asks again.
        if self.suspended {
            return;
        }
        let id = self.next_job;
        self.next_job += 1;
        let target = &mut self.targets[key.0 as usize];
        let known = target.sources.iter().map(|source| self.sources[source.0 as usize].window.downstream());
        let from_offset = known.map(|downstream| downstream.unwrap_or(0)).min().unwrap_or(0);
        let (topic, partition) = (self.topics[target.topic].name.clone(), target.partition);
        let Some(producer) = target.append.as_mut().and_then(|append| append.inquire(id)) else { return };
        self.commands.push(Command::Inquire(Inquiry { id, key, topic, partition, from_offset, producer }));
    }

    /// What the target's log has to say.
    pub fn on_evidence(&mut self, key: TargetKey, id: u64, evidence: Evidence, now: Duration) {
        let Some(append) = self.targets[key.0 as usize].append.as_mut() else { return };
        match evidence {
            Evidence::Read(batches) => match append.found(id, &batches) {
                Ok(acked) => {
                    acked.into_iter().for_each(|acked| self.apply(key, acked));
                    self.act(key, now);
                }
                Err(error) => self.stop_target(key, "overtaken", error.to_string(), None, now),
            },
            Evidence::NotNow(reason) => {
                if append.give_up_inquiry(Some(id)) {
                    self.targets[key.0 as usize].last_refusal = Some(reason);
                    self.settle(key, now);
                }
            }
            Evidence::Silent(reason) => {
                if append.give_up_inquiry(Some(id)) {
                    let message = format!(
                        "a batch was sent and never answered; {} may have forgotten our producer, so that sending it again \
                         could write it twice, and {reason}",
                        self.settings.target
                    );
                    self.stop_target(key, "unknown_outcome", message, None, now);
                }
            }
        }
        self.update_stuck(key);
        self.schedule(key);
        self.pump(now);
        self.regulate(now);
    }
}

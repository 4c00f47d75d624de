//! Partitions that somebody else is to copy: another member of the source's group gets them.
//!
//! ```text
//! any state ──let_go()──► Released ──nothing in flight, or its time is over──► give_up() ──start()──► Waiting
//! ```
//! What was not sent is dropped at once, since it will be fetched again by whoever comes next; what is in flight is brought to
//! its end as long as there is time. What is given up in flight may be on the target, and comes twice then: the next epoch
//! keeps it from landing behind what follows.

use super::super::append::Numbering;
use super::super::window::Window;
use super::{Engine, Item, SourceState, Timer};
use crate::client::PartitionKey;

impl Engine {
    /// Stops fetching a partition and drops what of it was not sent. `true` when it had started, so that it has a position
    /// to be stored.
    pub fn let_go(&mut self, key: PartitionKey) -> bool {
        let Some(source) = self.sources.get(key.0 as usize) else { return false };
        // Also one whose place is looked for, as long as it is in the same log.
        let is_looked_for = matches!(source.state, SourceState::Unlocated) && self.is_in_its_log(key);
        let has_position = source.has_position() || is_looked_for && self.position_at(key).is_some();
        self.leave_session(key);
        self.drop_queued(key);
        let source = &mut self.sources[key.0 as usize];
        source.state = SourceState::Released;
        if let Some(at) = source.retry_at.take() {
            self.timers.remove(&(at, Timer::RetrySource(key)));
        }
        self.stopped_sources.remove(&key);
        for child in self.children(key).to_vec() {
            self.let_go(child);
        }
        has_position
    }

    /// Whether nothing of a released partition is under way that could still be acknowledged.
    pub fn is_released(&self, key: PartitionKey) -> bool {
        if let children @ [_, ..] = self.children(key) {
            return children.iter().all(|&child| self.is_released(child));
        }
        self.sources.get(key.0 as usize).is_none_or(|source| {
            source.window.bytes() == 0 || self.targets[source.target.0 as usize].stopped.is_some()
        })
    }

    /// Forgets what of a released partition is not acknowledged, and that it had a position. Answers how many batches of
    /// it may be on the target.
    pub fn give_up(&mut self, key: PartitionKey) -> usize {
        self.drop_queued(key);
        let Some(target) = self.target_of(key) else { return 0 };
        let mut in_doubt = 0;
        for child in self.children(key).to_vec() {
            in_doubt += self.give_up(child);
        }
        if let Some(append) = self.targets[target.0 as usize].append.as_mut()
            && append.unacked_of(key) > 0
        {
            in_doubt += append.unacked_of(key);
            let kept = append.requeue(Numbering::NextEpoch).into_iter();
            let kept: Vec<_> = kept.filter(|cargo| cargo.source() != Some(key)).collect();
            for cargo in kept.into_iter().rev() {
                self.put_back(target, 0, Item::Ready(cargo));
            }
            self.update_stuck(target);
        }
        let source = &mut self.sources[key.0 as usize];
        let freed = source.window.bytes();
        source.window = Window::new(source.window.position(), None);
        source.window_generation += 1;
        source.void_generation = source.window_generation;
        self.release(key, freed);
        in_doubt
    }

    /// All partitions that are not released, but for those that another one fetches for.
    pub fn held(&self) -> Vec<PartitionKey> {
        let keyed = (0..).map(PartitionKey).zip(&self.sources);
        let is_held =
            |source: &super::Source| !matches!(source.state, SourceState::Released) && !source.is_child();
        keyed.filter(|(_, source)| is_held(source)).map(|(key, _)| key).collect()
    }
}

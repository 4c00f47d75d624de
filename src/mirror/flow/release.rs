//! Partitions that go to another member of the source's group: brought to their end, stored, and copied no more.
//!
//! What is in flight has its time (`MemberSettings::give_up_within`); what is not acknowledged by then may be on the target and
//! comes twice, since the next member starts at what was stored.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::control::Released;
use super::super::state::records::StateRecord;
use super::super::state::{Held, TopicPartition};
use super::Owner;
use crate::client::PartitionKey;

/// Partitions that are on their way out.
pub(super) struct Release {
    /// With whether they had a position.
    partitions: Vec<(TopicPartition, PartitionKey, bool)>,
    by: Instant,
    done: oneshot::Sender<Released>,
}

impl Owner {
    pub(super) fn on_release(
        &mut self,
        partitions: BTreeSet<TopicPartition>,
        within: Duration,
        done: oneshot::Sender<Released>,
    ) {
        let by = Instant::now() + within;
        let mut leaving = Vec::new();
        for at in partitions {
            if let Some(&key) = self.keys.get(&(at.topic.clone(), at.partition)) {
                let has_position = self.engine.let_go(key);
                leaving.push((at, key, has_position));
            }
        }
        self.releases.push(Release { partitions: leaving, by, done });
    }

    /// When the first of them has had its time.
    pub(super) fn release_by(&self) -> Option<Instant> {
        self.releases.iter().map(|release| release.by).min()
    }

    /// Ends those of which nothing is in flight any more, and those that have had their time.
    pub(super) fn go_on_releasing(&mut self) {
        let now = Instant::now();
        for release in std::mem::take(&mut self.releases) {
            let is_done = release.partitions.iter().all(|&(_, key, _)| self.engine.is_released(key));
            if is_done || release.by <= now {
                self.end_release(release);
            } else {
                self.releases.push(release);
            }
        }
    }

    fn end_release(&mut self, release: Release) {
        let mut released = Released::default();
        let (mut records, mut leaving) = (Vec::new(), BTreeSet::new());
        for (at, key, has_position) in release.partitions {
            let position = self.engine.position_at(key).filter(|_| has_position);
            released.in_doubt += self.engine.give_up(key);
            if let Some(position) = position {
                records.push(StateRecord::Position(at.clone(), self.stored(&position)));
            }
            self.saved.remove(&at);
            leaving.insert(at);
        }
        let held = self.held.clone();
        Arc::make_mut(&mut self.held).retain(|at, _| !leaving.contains(at));
        let Some(store) = self.store.clone().filter(|_| !records.is_empty()) else {
            // Whoever has lost everything meanwhile does not wait for it.
            let _ = release.done.send(released);
            return;
        };
        // After what is being saved, which is older.
        let saved = store.save_held(records, held);
        self.release_saves.retain(|save| !save.is_finished());
        self.release_saves.push(self.seam.spawn(async move {
            released.trouble = saved.await.err().map(|error| error.to_string());
            let _ = release.done.send(released);
        }));
    }

    /// Waits until what was given up is stored.
    pub(super) async fn end_release_saves(&mut self) {
        self.go_on_releasing();
        for save in std::mem::take(&mut self.release_saves) {
            let _ = save.await;
        }
    }

    /// Everything is somebody else's now, and nothing can be stored any more.
    pub(super) fn release_all(&mut self) {
        self.releases.clear();
        self.release_saves.clear();
        for key in self.engine.held() {
            self.engine.let_go(key);
            self.engine.give_up(key);
        }
        self.saved.clear();
        self.held = Held::default();
    }
}

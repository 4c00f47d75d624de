//! Where partitions start, and topics that are created anew on either side while they are copied.
//!
//! A position belongs to one log of the source. When the topic has another id, its partitions leave their session at once and
//! wait for a new start: the next fetch of an old offset would come out of the new log. On the target, everything that is
//! not acknowledged goes to the new topic, so a running partition needs no new start.

use std::time::Duration;

use uuid::Uuid;

use super::super::append::Numbering;
use super::super::status::{Event, EventKind};
use super::super::window::Window;
use super::{EVENTS_MAX, Engine, Item, SourceState, TargetTopic};
use crate::client::PartitionKey;

impl Engine {
    /// Starts (or starts anew) a partition at an upstream offset.
    pub fn start(&mut self, key: PartitionKey, offset: i64, downstream: Option<i64>, now: Duration) {
        for child in self.children(key).to_vec() {
            self.start(child, offset, None, now);
        }
        self.leave_session(key);
        self.drop_queued(key);
        self.drop_refused(key);
        let Some(source) = self.sources.get_mut(key.0 as usize) else { return };
        let freed = source.window.bytes();
        if source.topic_id != source.topic_id_now {
            source.mapping.begin_anew(offset);
            source.topic_id = source.topic_id_now;
        }
        source.window = Window::new(offset, downstream);
        source.window_generation += 1;
        source.last_fetched_epoch = -1;
        source.filter = None;
        source.state = SourceState::Waiting;
        self.begin_map(key, offset, downstream);
        self.release(key, freed);
        self.fetch(key);
        self.regulate(now);
    }

    /// As [`Engine::start`], after somebody else has written the flow: what we sent and never heard of is theirs to have
    /// copied. The next epoch keeps what may still be under way out of the log.
    pub fn start_after_other(
        &mut self,
        key: PartitionKey,
        offset: i64,
        downstream: Option<i64>,
        now: Duration,
    ) {
        for (target, _) in self.targets_of(key) {
            if let Some(append) = self.targets[target.0 as usize].append.as_mut() {
                let kept = append.requeue(Numbering::NextEpoch).into_iter().filter(|cargo| {
                    cargo.source().is_some_and(|source| source != key && self.parent(source) != Some(key))
                });
                for cargo in kept.collect::<Vec<_>>().into_iter().rev() {
                    self.put_back(target, 0, Item::Ready(cargo));
                }
                self.update_stuck(target);
            }
        }
        self.start(key, offset, downstream, now);
    }

    /// A start says nothing new of a partition: it goes on where it is, also when it was stopped.
    pub fn go_on(&mut self, key: PartitionKey, now: Duration) {
        let Some(source) = self.sources.get_mut(key.0 as usize) else { return };
        if matches!(source.state, SourceState::Stopped(_)) {
            source.state = SourceState::Waiting;
            self.fetch(key);
            self.regulate(now);
        }
    }

    /// Whether the log that a partition's position speaks of is the one that its topic has now.
    pub fn is_in_its_log(&self, key: PartitionKey) -> bool {
        self.sources.get(key.0 as usize).is_some_and(|source| source.topic_id == source.topic_id_now)
    }

    /// Whether a partition is copied, so that a start for it is old news.
    pub fn runs(&self, key: PartitionKey) -> bool {
        self.sources.get(key.0 as usize).is_some_and(|source| {
            let is_on =
                matches!(source.state, SourceState::Waiting | SourceState::Fetching(_) | SourceState::Held);
            is_on && self.targets[source.target.0 as usize].stopped.is_none()
        })
    }

    /// Notes a gap: these source offsets cannot be copied any more.
    pub fn record_gap(&mut self, key: PartitionKey, from: i64, to: i64, reason: String) {
        let kind = EventKind::Gap { from, to, reason };
        let source = &self.sources[key.0 as usize];
        let is_known = self.events.iter().any(|event| {
            event.kind == kind && event.topic == source.topic && event.partition == source.partition
        });
        if !is_known {
            self.push_event(key, kind);
        }
    }

    /// Shows a gap that was recorded by an earlier process.
    pub fn recall(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX && !self.events.contains(&event) {
            self.events.push_back(event);
        }
    }

    /// The id of a source topic is another one now: its partitions wait for [`Engine::start`].
    pub fn set_source_topic_id(&mut self, topic: &str, topic_id: Uuid) {
        for index in 0..self.sources.len() {
            let source = &mut self.sources[index];
            if &*source.topic != topic || source.topic_id_now == topic_id {
                continue;
            }
            source.topic_id_now = topic_id;
            if source.topic_id.is_nil() || topic_id.is_nil() {
                // A release that tells ids (or none) now; it is the same log.
                source.topic_id = topic_id;
                continue;
            }
            let key = PartitionKey(index as u32);
            self.leave_session(key);
            self.drop_queued(key);
            if !matches!(self.sources[index].state, SourceState::Stopped(_) | SourceState::Released) {
                self.sources[index].state = SourceState::Unlocated;
            }
        }
    }

    /// The id of a target topic is another one now: what waits goes to the new topic, which knows nothing of our producer
    /// and has none of the offsets that we know.
    pub fn set_target_topic_id(&mut self, remote_topic: &str, topic_id: Uuid) {
        for index in 0..self.topics.len() {
            let topic = &self.topics[index];
            if &*topic.name != remote_topic || topic.topic_id == topic_id {
                continue;
            }
            let is_new = !topic.topic_id.is_nil() && !topic_id.is_nil();
            self.topics[index] =
                std::sync::Arc::new(TargetTopic { index: topic.index, name: topic.name.clone(), topic_id });
            for target in self.targets.iter_mut().filter(|target| is_new && target.topic == index) {
                if let Some(append) = target.append.as_mut() {
                    append.forget();
                }
                for key in &target.sources {
                    let source = &mut self.sources[key.0 as usize];
                    source.window.forget_downstream();
                    source.mapping.begin_anew(source.window.position());
                }
            }
        }
    }

    /// Batches of a partition that the target refused and that nothing is in flight behind: they will be fetched again.
    fn drop_refused(&mut self, key: PartitionKey) {
        let Some(target) = self.target_of(key) else { return };
        let Some(append) = self.targets[target.0 as usize].append.as_mut() else { return };
        if append.in_flight() > 0 || !append.first_is_not_appended() {
            return;
        }
        let kept = append.requeue(Numbering::GoOn).into_iter().filter(|cargo| cargo.source() != Some(key));
        for cargo in kept.collect::<Vec<_>>().into_iter().rev() {
            self.put_back(target, 0, Item::Ready(cargo));
        }
        self.update_stuck(target);
    }
}

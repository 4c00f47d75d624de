//! Topics as the control task tells of them: where their partitions start, and what becomes of them when they are created
//! anew or gone.
//!
//! Apart from the flow's inbox, because it decides what a start means for a partition that has run before.

use std::sync::Arc;

use uuid::Uuid;

use super::super::Partitioning;
use super::super::control::{PartitionStart, Planned, TopicReady, TopicRef};
use super::super::engine::NewPartition;
use super::super::plan::TargetLimits;
use super::super::start::StartAt;
use super::super::state::TopicPartition;
use super::Owner;
use crate::client::{PartitionKey, Topics};

/// Whose position a start was decided from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nothing has been copied of this log, or the start is one that we have asked for.
    First,
    /// We are at least as far, and nobody is known to have copied more: the engine goes on.
    Ours,
    /// The right to write was lost, and somebody else has written since, or the logs are others now.
    Others,
}

impl Owner {
    pub(super) fn on_topic(&mut self, ready: TopicReady) {
        let now = self.started.elapsed();
        let topic = ready.source.name.clone();
        self.failed_topics.remove(&topic);
        self.unconfirmed.remove(&topic);
        let before = self.topics.insert(topic.clone(), ready.clone());
        match before {
            Some(before) => self.follow_ids(&before, &ready),
            // It may be back after it was gone: all its partitions have their starts with it.
            None => self.set_ids(&ready),
        }
        self.engine.set_limits(&ready.remote.name, ready.limits);
        for (&partition, start) in &ready.starts {
            if !self.takes_on(&topic, partition, &ready) {
                continue;
            }
            let key = self.key_of(&ready.source, &ready.remote, ready.limits, partition, ready.partitioning);
            match start {
                PartitionStart::At(at) => {
                    if let Some(gap) = &at.gap {
                        self.engine.record_gap(key, gap.from, gap.to, gap.reason.clone());
                    }
                    let downstream = Some(at.downstream).filter(|&offset| offset >= 0);
                    // What is stored now is what this start was decided from.
                    let at_source = TopicPartition::new(topic.clone(), partition);
                    self.saved.remove(&at_source);
                    match self.standing_of(&at_source, key, at) {
                        Standing::Ours => self.engine.go_on(key, now),
                        Standing::Others => self.engine.start_after_other(key, at.offset, downstream, now),
                        Standing::First => {
                            self.recall_map(key, &ready, partition);
                            self.engine.start(key, at.offset, downstream, now);
                        }
                    }
                }
                PartitionStart::Stopped(stopped) => {
                    self.engine.stop(key, stopped.reason, stopped.message.clone())
                }
            }
        }
        self.follow_leaders();
        self.source.request_refresh_of(Topics::Named(vec![topic]));
        self.target.request_refresh_of(Topics::Named(vec![ready.remote.name.clone()]));
    }

    /// Whether a start still counts. Where a group gives partitions out, it may have been overtaken by a release: then the
    /// state says so by now, and what it says later comes as a release after this.
    fn takes_on(&mut self, topic: &Arc<str>, partition: i32, ready: &TopicReady) -> bool {
        let Some(member) = &self.member else { return true };
        let at = TopicPartition::new(topic.clone(), partition);
        match ready.since.get(&partition) {
            Some(&since) if member.owns(&at, since) => {
                Arc::make_mut(&mut self.held).insert(at, since);
                true
            }
            _ => false,
        }
    }

    /// Who has written what a start was decided from.
    ///
    /// What is stored may be less than what this process has stored: a save that was repeated may be under way twice, and
    /// its first copy arrives after later saves. All that we know to be on the target is there all the same, also when the
    /// topic could not be seen for a while and gets new starts from what was stored last.
    fn standing_of(&mut self, partition: &TopicPartition, key: PartitionKey, at: &StartAt) -> Standing {
        let is_unsure = self.unsure.remove(partition);
        match self.engine.position(key) {
            Some(_) if !is_unsure && self.engine.runs(key) => Standing::Ours,
            Some(position) if at.gap.is_none() && at.offset <= position && self.engine.is_in_its_log(key) => {
                Standing::Ours
            }
            Some(_) if is_unsure => Standing::Others,
            _ => Standing::First,
        }
    }

    fn key_of(
        &mut self,
        source: &TopicRef,
        remote: &TopicRef,
        limits: TargetLimits,
        partition: i32,
        partitioning: Partitioning,
    ) -> PartitionKey {
        let topic = source.name.clone();
        if let Some(&key) = self.keys.get(&(topic.clone(), partition)) {
            return key;
        }
        let new = NewPartition {
            topic: topic.clone(),
            topic_id: source.id,
            partition,
            remote_topic: remote.name.clone(),
            remote_topic_id: remote.id,
            limits,
        };
        let key = match partitioning {
            Partitioning::Preserve => self.engine.add(&new),
            Partitioning::Key { partitions } => self.engine.add_by_key(&new, partitions),
        };
        self.keys.insert((topic, partition), key);
        key
    }

    /// A topic was created anew on either side: where its partitions go on is decided from how far they are.
    fn follow_ids(&mut self, before: &TopicReady, ready: &TopicReady) {
        if before.source.id == ready.source.id && before.remote.id == ready.remote.id {
            return;
        }
        let positions = self.positions_of(&ready.source.name);
        self.set_ids(ready);
        self.stop_what_is_not_in(&ready.source);
        let is_there = |at: &TopicPartition| at.partition < ready.source.partitions;
        for (partition, position) in positions {
            if is_there(&partition) && !ready.starts.contains_key(&partition.partition) {
                self.control.orders.restart(partition, Some(position));
            }
        }
    }

    /// A topic that was created anew may have fewer partitions: the others are gone, and nobody would give them a start.
    fn stop_what_is_not_in(&mut self, source: &TopicRef) {
        let held = self.engine.held();
        let beyond = (source.name.clone(), source.partitions)..=(source.name.clone(), i32::MAX);
        for (&(_, partition), &key) in self.keys.range(beyond).filter(|(_, key)| held.contains(key)) {
            let (name, count) = (&source.name, source.partitions);
            let reason = format!(
                "{name}-{partition} is gone: its topic was created anew at the source, with {count} partition(s)"
            );
            self.engine.stop_gone(key, reason);
        }
    }

    fn set_ids(&mut self, ready: &TopicReady) {
        if self.keys_of(&ready.source.name).next().is_some() {
            self.engine.set_source_topic_id(&ready.source.name, ready.source.id);
            self.engine.set_target_topic_id(&ready.remote.name, ready.remote.id);
        }
    }

    fn keys_of(&self, topic: &Arc<str>) -> impl Iterator<Item = PartitionKey> + use<'_> {
        self.keys.range((topic.clone(), 0)..=(topic.clone(), i32::MAX)).map(|(_, &key)| key)
    }

    /// Partitions that were to be copied are shown as stopped, also those that had not started: a load has not copied them.
    pub(super) fn on_topic_gone(&mut self, topic: &Arc<str>, planned: Option<&Planned>, reason: &str) {
        self.failed_topics.remove(topic);
        self.topics.remove(topic);
        self.unconfirmed.remove(topic);
        if let Some(Planned { source, remote }) = planned {
            let remote = TopicRef { name: remote.clone(), id: Uuid::nil(), partitions: source.partitions };
            // Where a group gives partitions out, those that never started may be anybody's.
            let planned = if self.settings.group.is_some() { 0 } else { source.partitions };
            for partition in 0..planned {
                self.key_of(source, &remote, TargetLimits::default(), partition, Partitioning::Preserve);
            }
        }
        let held = self.engine.held();
        for key in self.keys_of(topic).filter(|key| held.contains(key)).collect::<Vec<_>>() {
            self.engine.stop_gone(key, reason.to_owned());
        }
    }

    /// All selected topics have been spoken of, unless something is pending: the others went while nobody ruled.
    pub(super) fn on_discovered(&mut self, pending: usize) {
        self.discovered = pending == 0;
        if self.discovered {
            for topic in std::mem::take(&mut self.unconfirmed) {
                self.on_topic_gone(
                    &topic,
                    None,
                    "it was gone from the source when the flow was written again",
                );
            }
        }
    }
}

//! The checkpoints that stand in the topic, and which new ones are news. Pure.
//!
//! As MirrorMaker decides (`checkpointIsMoreRecent`): the first of a partition, one whose target offset advances, and one
//! whose source offset went back, because the group was set back. One thing more: a target offset that is known exactly and
//! lies before the one that stands there replaces it, because the target's log is another one than it was, and a group
//! that went on at the old offset would skip records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::mirror::mm2::formats::Checkpoint;
use crate::mirror::offset_map::Translated;
use crate::mirror::state::TopicPartition;

/// A group's place in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) upstream: i64,
    pub(super) downstream: i64,
    pub(super) metadata: Arc<str>,
}

/// By group and partition, by its name on the target.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    groups: BTreeMap<Arc<str>, BTreeMap<TopicPartition, Entry>>,
}

impl Book {
    /// A checkpoint is in the topic.
    pub(super) fn note(&mut self, checkpoint: &Checkpoint) {
        let entry = Entry {
            upstream: checkpoint.upstream,
            downstream: checkpoint.downstream,
            metadata: checkpoint.metadata.clone(),
        };
        let group = match self.groups.get_mut(&checkpoint.group) {
            Some(group) => group,
            None => self.groups.entry(checkpoint.group.clone()).or_default(),
        };
        group.insert(checkpoint.target.clone(), entry);
    }

    /// Whether a checkpoint with this translation is to be written.
    pub(super) fn is_news(
        &self,
        group: &Arc<str>,
        target: &TopicPartition,
        upstream: i64,
        translated: Translated,
    ) -> bool {
        let Some(last) = self.groups.get(group).and_then(|group| group.get(target)) else { return true };
        upstream < last.upstream
            || translated.offset() > last.downstream
            || matches!(translated, Translated::Exact(offset) if offset < last.downstream)
    }

    /// What stands for a group.
    pub(super) fn of(&self, group: &Arc<str>) -> Option<&BTreeMap<TopicPartition, Entry>> {
        self.groups.get(group)
    }

    /// Forgets groups that are no more, or no longer selected.
    pub(super) fn keep(&mut self, groups: &BTreeSet<Arc<str>>) {
        self.groups.retain(|group, _| groups.contains(group));
    }
}

#[cfg(test)]
mod tests {
    use super::Translated::{AtLeast, Exact};
    use super::*;

    #[test]
    fn what_is_news_follows_mirror_maker_and_the_targets_log() {
        let (group, target) = (Arc::from("g"), TopicPartition::new("A.t", 0));
        let mut book = Book::default();
        assert!(book.is_news(&group, &target, 0, AtLeast(0)));
        book.note(&Checkpoint {
            group: group.clone(),
            target: target.clone(),
            upstream: 100,
            downstream: 80,
            metadata: Arc::from(""),
        });
        for (upstream, translated, news) in [
            (100, Exact(80), false),
            (101, AtLeast(80), false),
            (101, AtLeast(81), true),
            (101, AtLeast(79), false),
            (101, Exact(79), true),
            (99, AtLeast(80), true),
            (99, AtLeast(10), true),
        ] {
            assert_eq!(
                book.is_news(&group, &target, upstream, translated),
                news,
                "{upstream} {translated:?}"
            );
        }
        assert!(book.is_news(&group, &TopicPartition::new("A.t", 1), 0, AtLeast(0)));
        assert!(book.is_news(&Arc::from("h"), &target, 0, AtLeast(0)));
        book.keep(&BTreeSet::from([Arc::from("h")]));
        assert!(book.of(&group).is_none());
    }
}

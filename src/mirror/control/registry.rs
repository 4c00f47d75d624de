//! What the control task has said of each topic, and what is still to be done for it.
//!
//! Pure: rounds bring in a [`Diff`] and the results of what was tried; out come the topics to work on, the partitions
//! that need a start, and the events that follow. A topic whose creation fails waits by itself, longer each time, and
//! holds up no other. Times are durations since the task's start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{ControlEvent, Planned, TopicRef};
use crate::mirror::state::TopicPartition;
use crate::mirror::topics::diff::{Action, Diff, TopicDiff};
use crate::net::Backoff;

/// Between attempts to create or grow a topic.
pub(super) const TOPIC_BACKOFF: Backoff = Backoff::millis(1_000, 60_000);

/// Why a topic is no longer replicated.
const GONE: &str = "it is no longer there at the source";

/// All selected topics.
#[derive(Debug, Default)]
pub(super) struct Registry {
    topics: BTreeMap<Arc<str>, Entry>,
}

/// One selected topic.
#[derive(Debug, Default)]
struct Entry {
    planned: Option<Planned>,
    ready: Option<(TopicRef, TopicRef)>,
    unstarted: BTreeSet<i32>,
    failures: u32,
    retry_at: Option<Duration>,
    refused: Option<String>,
}

impl Entry {
    fn plan(&mut self, topic: &TopicDiff) {
        let known = self.planned.as_ref().map_or(0, |planned| planned.source.partitions);
        let partitions = topic.view.partitions.max(known);
        let source = TopicRef { name: Arc::clone(&topic.source), id: topic.view.id, partitions };
        self.planned = Some(Planned { source, remote: Arc::clone(&topic.remote) });
    }

    /// What is awaited of this topic without having failed: its unstarted partitions, those that the target does not
    /// show yet, or the topic itself.
    fn pending(&self) -> usize {
        let has_failed = self.retry_at.is_some() || self.refused.is_some();
        match &self.ready {
            None => usize::from(!has_failed),
            Some(_) if has_failed => self.unstarted.len(),
            Some((source, remote)) => {
                self.unstarted.len() + (source.partitions - remote.partitions).max(0) as usize
            }
        }
    }
}

/// What a round has to do on the target.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Topics to create.
    pub(super) create: Vec<TopicDiff>,
    /// Topics to grow; they are ready with what they have.
    pub(super) grow: Vec<TopicDiff>,
    /// Topics that are there on both sides.
    pub(super) ready: Vec<(TopicRef, TopicRef)>,
    /// Events that need nothing done.
    pub(super) events: Vec<ControlEvent>,
}

impl Registry {
    /// Takes in what both clusters say.
    pub(super) fn observe(&mut self, diff: &Diff, now: Duration) -> Round {
        let mut round = Round::default();
        let selected: BTreeSet<&Arc<str>> = diff.topics.iter().map(|topic| &topic.source).collect();
        self.topics.retain(|topic, entry| {
            let stays = selected.contains(topic) || diff.refused.contains_key(topic);
            if !stays {
                let (topic, planned, reason) = (Arc::clone(topic), entry.planned.take(), GONE.to_owned());
                round.events.push(ControlEvent::TopicGone { topic, planned, reason });
            }
            stays
        });
        for (topic, reason) in &diff.refused {
            let entry = self.topics.entry(Arc::clone(topic)).or_default();
            if entry.refused.as_ref() != Some(reason) {
                entry.refused = Some(reason.clone());
                let reason = reason.clone();
                let topic = Arc::clone(topic);
                round.events.push(ControlEvent::TopicFailed { topic, reason, retry_ms: None });
            }
        }
        for topic in &diff.topics {
            self.observe_topic(topic, now, &mut round);
        }
        round
    }

    /// Notes what is selected before the first round: what is gone by then was to be copied all the same.
    pub(super) fn plan(&mut self, topics: &[TopicDiff]) {
        for topic in topics {
            self.topics.entry(Arc::clone(&topic.source)).or_default().plan(topic);
        }
    }

    /// These topics the source does not let us see, and `before` these; `why` says so of one. What was copied of them stands
    /// still until they are seen again.
    pub(super) fn hide(
        &mut self,
        before: &BTreeSet<Arc<str>>,
        hidden: &BTreeSet<Arc<str>>,
        why: impl Fn(&str) -> String,
    ) -> Vec<ControlEvent> {
        let mut events = Vec::new();
        for topic in hidden {
            let reason = why(topic);
            if let Some(entry) = self.topics.remove(topic) {
                let (topic, planned, reason) = (topic.clone(), entry.planned, reason.clone());
                events.push(ControlEvent::TopicGone { topic, planned, reason });
            }
            if !before.contains(topic) {
                events.push(ControlEvent::TopicFailed { topic: topic.clone(), reason, retry_ms: None });
            }
        }
        for topic in before.difference(hidden) {
            events.push(ControlEvent::TopicGone {
                topic: topic.clone(),
                planned: None,
                reason: GONE.to_owned(),
            });
        }
        events
    }

    /// All topics that were selected in the last round.
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.topics.keys()
    }

    fn observe_topic(&mut self, topic: &TopicDiff, now: Duration, round: &mut Round) {
        let entry = self.topics.entry(Arc::clone(&topic.source)).or_default();
        entry.plan(topic);
        entry.refused = None;
        let due = entry.retry_at.is_none_or(|at| at <= now);
        match topic.action {
            Action::Create if due => round.create.push(topic.clone()),
            Action::Create => {}
            Action::Grow { there } => {
                if due {
                    round.grow.push(topic.clone());
                }
                round.ready.push(topic.refs(there));
            }
            Action::Keep(there) => {
                (entry.failures, entry.retry_at) = (0, None);
                round.ready.push(topic.refs(there));
            }
        }
    }

    /// Creating or growing a topic failed. `random` are random bits for the back-off's jitter.
    pub(super) fn failed(
        &mut self,
        topic: &Arc<str>,
        reason: String,
        now: Duration,
        now_ms: i64,
        random: u64,
    ) -> ControlEvent {
        let entry = self.topics.entry(Arc::clone(topic)).or_default();
        let delay = TOPIC_BACKOFF.delay(entry.failures, random);
        entry.failures = entry.failures.saturating_add(1);
        entry.retry_at = Some(now + delay);
        let retry_ms = Some(now_ms + delay.as_millis() as i64);
        ControlEvent::TopicFailed { topic: Arc::clone(topic), reason, retry_ms }
    }

    /// A topic is there on both sides. Says whether that is news: a topic that was not ready before, has grown, or was
    /// created anew on either side.
    pub(super) fn ready(&mut self, source: &TopicRef, remote: &TopicRef) -> bool {
        let entry = self.topics.entry(Arc::clone(&source.name)).or_default();
        let before = entry.ready.as_ref();
        let known = before.map_or(0, |(source, remote)| source.partitions.min(remote.partitions));
        let now = source.partitions.min(remote.partitions);
        entry.unstarted.extend(known..now);
        let same_ids = before.is_some_and(|(old, there)| old.id == source.id && there.id == remote.id);
        let news = !same_ids || now > known;
        if news {
            entry.ready = Some((source.clone(), remote.clone()));
        }
        news
    }

    /// A partition needs a new start. `false` when its topic is not ready.
    pub(super) fn restart(&mut self, partition: &TopicPartition) -> bool {
        let Some(entry) = self.topics.get_mut(&partition.topic) else { return false };
        let Some((source, remote)) = &entry.ready else { return false };
        if !(0..source.partitions.min(remote.partitions)).contains(&partition.partition) {
            return false;
        }
        entry.unstarted.insert(partition.partition);
        true
    }

    /// Only these partitions are ours to start.
    pub(super) fn keep_unstarted(&mut self, is_ours: impl Fn(&TopicPartition) -> bool) {
        for (topic, entry) in &mut self.topics {
            entry.unstarted.retain(|&index| is_ours(&TopicPartition::new(topic.clone(), index)));
        }
    }

    /// A partition has its start.
    pub(super) fn started(&mut self, partition: &TopicPartition) {
        if let Some(entry) = self.topics.get_mut(&partition.topic) {
            entry.unstarted.remove(&partition.partition);
        }
    }

    /// Partitions that need a start, by topic.
    pub(super) fn unstarted(&self) -> impl Iterator<Item = (&TopicRef, &TopicRef, &BTreeSet<i32>)> {
        self.topics.values().filter(|entry| !entry.unstarted.is_empty()).filter_map(|entry| {
            let (source, remote) = entry.ready.as_ref()?;
            Some((source, remote, &entry.unstarted))
        })
    }

    /// Both sides of all topics that are ready.
    pub(super) fn topics(&self) -> impl Iterator<Item = &(TopicRef, TopicRef)> {
        self.topics.values().filter_map(|entry| entry.ready.as_ref())
    }

    /// The two sides of a topic that is ready.
    pub(super) fn topic(&self, topic: &str) -> Option<&(TopicRef, TopicRef)> {
        self.topics.get(topic)?.ready.as_ref()
    }

    /// Topics selected, their partitions, and how much has no start yet: partitions, and topics that were created but do
    /// not show on the target.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let ready = self.topics.values().filter_map(|entry| entry.ready.as_ref());
        let partitions = ready.map(|(source, _)| source.partitions.max(0) as usize).sum();
        let pending = self.topics.values().map(Entry::pending).sum();
        (self.topics.len(), partitions, pending)
    }

    /// When the first topic that failed is due again.
    pub(super) fn next_retry(&self) -> Option<Duration> {
        self.topics.values().filter_map(|entry| entry.retry_at).min()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::mirror::topics::diff::TopicView;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn view(id: u128, partitions: i32) -> TopicView {
        TopicView { id: Uuid::from_u128(id), partitions }
    }

    fn diff(topics: &[(&str, TopicView, Action)]) -> Diff {
        let topic = |&(name, view, action): &(&str, TopicView, Action)| TopicDiff {
            source: Arc::from(name),
            view,
            remote: Arc::from(format!("A.{name}")),
            action,
        };
        Diff { topics: topics.iter().map(topic).collect(), refused: BTreeMap::new() }
    }

    fn names(topics: &[TopicDiff]) -> Vec<&str> {
        topics.iter().map(|topic| &*topic.source).collect()
    }

    fn unstarted(registry: &Registry) -> Vec<(&str, Vec<i32>)> {
        registry
            .unstarted()
            .map(|(source, _, partitions)| (&*source.name, partitions.iter().copied().collect()))
            .collect()
    }

    /// Case 24: a creation that fails is tried again, later each time, and other topics go on.
    #[test]
    fn a_topic_that_fails_waits_alone() {
        let mut registry = Registry::default();
        let both = diff(&[("bad", view(1, 1), Action::Create), ("good", view(2, 1), Action::Create)]);
        assert_eq!(names(&registry.observe(&both, seconds(0)).create), ["bad", "good"]);
        let half = u64::MAX / 2;
        let event = registry.failed(&Arc::from("bad"), "policy".to_owned(), seconds(0), 5_000, half);
        assert!(matches!(event, ControlEvent::TopicFailed { retry_ms: Some(5_999..=6_001), .. }));
        assert_eq!(names(&registry.observe(&both, Duration::from_millis(900)).create), ["good"]);
        assert_eq!(names(&registry.observe(&both, Duration::from_millis(1_001)).create), ["bad", "good"]);
        registry.failed(&Arc::from("bad"), "policy".to_owned(), seconds(2), 0, half);
        assert_eq!(names(&registry.observe(&both, seconds(3)).create), ["good"]);
        assert_eq!(names(&registry.observe(&both, seconds(5)).create), ["bad", "good"]);
        // Created by somebody else in the meantime.
        let there = diff(&[("bad", view(1, 1), Action::Keep(view(3, 1)))]);
        let round = registry.observe(&there, seconds(6));
        assert_eq!((round.create.len(), round.ready.len()), (0, 1));
        assert_eq!(registry.next_retry(), None);
    }

    /// Case 22: partitions that are added get their start, on their own.
    #[test]
    fn new_partitions_need_a_start_and_old_ones_go_on() {
        let mut registry = Registry::default();
        let mut observe = |source: TopicView, action| {
            let round = registry.observe(&diff(&[("t", source, action)]), seconds(0));
            let (source, remote) = &round.ready[0];
            let news = registry.ready(source, remote);
            let open = unstarted(&registry).concat_partitions();
            for &partition in &open {
                registry.started(&TopicPartition::new("t", partition));
            }
            (news, open)
        };
        assert_eq!(observe(view(1, 2), Action::Keep(view(9, 2))), (true, vec![0, 1]));
        assert_eq!(observe(view(1, 2), Action::Keep(view(9, 2))), (false, vec![]));
        // The source has grown, the target not yet.
        assert_eq!(observe(view(1, 4), Action::Grow { there: view(9, 2) }), (false, vec![]));
        assert_eq!(observe(view(1, 4), Action::Keep(view(9, 4))), (true, vec![2, 3]));
        // An answer that leaves partitions out takes nothing back.
        assert_eq!(observe(view(1, 3), Action::Keep(view(9, 4))), (false, vec![]));
        // Created anew on either side: news, and for the owner to say how far each partition was.
        assert_eq!(observe(view(2, 4), Action::Keep(view(9, 4))), (true, vec![]));
        assert_eq!(observe(view(2, 4), Action::Keep(view(8, 4))), (true, vec![]));
    }

    #[test]
    fn what_may_not_be_seen_is_no_topic_that_is_gone() {
        let mut registry = Registry::default();
        let both = diff(&[("t", view(1, 2), Action::Keep(view(9, 2)))]);
        registry.observe(&both, seconds(0));
        let mut before = BTreeSet::new();
        let mut hide = |names: &[&str]| -> Vec<String> {
            let names: BTreeSet<Arc<str>> = names.iter().map(|&name| Arc::from(name)).collect();
            let shown = |event| match event {
                ControlEvent::TopicGone { topic, planned, reason } => {
                    format!(
                        "{topic} gone, {}: {reason}",
                        if planned.is_some() { "planned" } else { "unknown" }
                    )
                }
                ControlEvent::TopicFailed { topic, reason, .. } => format!("{topic} failed: {reason}"),
                other => panic!("{other:?}"),
            };
            let events = registry.hide(&before, &names, |topic| format!("READ on {topic}"));
            before = names;
            events.into_iter().map(shown).collect()
        };
        assert_eq!(
            hide(&["new", "t"]),
            ["new failed: READ on new", "t gone, planned: READ on t", "t failed: READ on t"]
        );
        assert_eq!(hide(&["new", "t"]), [""; 0], "told once");
        assert_eq!(hide(&["t"]), [format!("new gone, unknown: {GONE}")]);
        hide(&[]);
        let round = registry.observe(&both, seconds(1));
        assert_eq!((round.events.len(), round.ready.len()), (0, 1));
        assert!(registry.ready(&round.ready[0].0, &round.ready[0].1), "it starts anew");
    }

    trait Partitions {
        fn concat_partitions(self) -> Vec<i32>;
    }

    impl Partitions for Vec<(&str, Vec<i32>)> {
        fn concat_partitions(self) -> Vec<i32> {
            self.into_iter().flat_map(|(_, partitions)| partitions).collect()
        }
    }

    #[test]
    fn refusals_and_ends_are_said_once() {
        let mut registry = Registry::default();
        let mut refused = diff(&[("t", view(1, 1), Action::Keep(view(9, 1)))]);
        refused.refused.insert(Arc::from("long"), "too long".to_owned());
        let round = registry.observe(&refused, seconds(0));
        assert!(matches!(&round.events[..], [ControlEvent::TopicFailed { retry_ms: None, .. }]));
        assert!(registry.observe(&refused, seconds(1)).events.is_empty());
        let gone = |event: ControlEvent| match event {
            ControlEvent::TopicGone { topic, planned, .. } => {
                (topic.to_string(), planned.map(|planned| planned.source.partitions))
            }
            other => panic!("{other:?}"),
        };
        let events = registry.observe(&diff(&[]), seconds(2)).events;
        let wanted = [("long".to_owned(), None), ("t".to_owned(), Some(1))];
        assert_eq!(events.into_iter().map(gone).collect::<Vec<_>>(), wanted);
        assert!(registry.observe(&diff(&[]), seconds(3)).events.is_empty());
        // What is gone before the first round, or before the target has it, was planned all the same.
        registry.plan(&diff(&[("early", view(1, 3), Action::Create)]).topics);
        registry.observe(&diff(&[("early", view(1, 2), Action::Create)]), seconds(4));
        registry.plan(&diff(&[("earlier", view(2, 4), Action::Create)]).topics);
        let events = registry.observe(&diff(&[]), seconds(5)).events;
        let wanted = [("earlier".to_owned(), Some(4)), ("early".to_owned(), Some(3))];
        assert_eq!(events.into_iter().map(gone).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn what_was_created_but_does_not_show_yet_is_awaited() {
        let mut registry = Registry::default();
        let side = |name: &str, partitions| TopicRef { name: Arc::from(name), id: Uuid::nil(), partitions };
        registry.observe(&diff(&[("t", view(1, 2), Action::Create)]), seconds(0));
        assert_eq!(registry.counts(), (1, 0, 1));
        registry.ready(&side("t", 3), &side("A.t", 2));
        assert_eq!(registry.counts(), (1, 3, 3));
        registry.started(&TopicPartition::new("t", 0));
        registry.started(&TopicPartition::new("t", 1));
        assert_eq!(registry.counts(), (1, 3, 1));
        registry.failed(&Arc::from("t"), "denied".to_owned(), seconds(1), 0, 0);
        assert_eq!(registry.counts(), (1, 3, 0));
    }

    #[test]
    fn only_partitions_that_are_ready_can_be_started_anew() {
        let mut registry = Registry::default();
        let t = |partition| TopicPartition::new("t", partition);
        assert!(!registry.restart(&t(0)));
        registry.observe(&diff(&[("t", view(1, 2), Action::Create)]), seconds(0));
        assert!(!registry.restart(&t(0)));
        let side = |name: &str, partitions| TopicRef { name: Arc::from(name), id: Uuid::nil(), partitions };
        assert!(registry.ready(&side("t", 2), &side("A.t", 2)));
        assert_eq!(unstarted(&registry), [("t", vec![0, 1])]);
        registry.started(&t(0));
        registry.started(&t(1));
        assert!(registry.restart(&t(1)));
        assert!(!registry.restart(&t(2)));
        assert_eq!(unstarted(&registry), [("t", vec![1])]);
        assert_eq!(registry.counts(), (1, 2, 1));
    }
}

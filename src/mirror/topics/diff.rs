//! Which topics a flow replicates now, and what has to be done on the target for each.
//!
//! Pure, and level-triggered: both clusters' topics come in, one [`TopicDiff`] for each selected topic comes out. Nothing
//! is ever deleted or shrunk (`MirrorSourceConnector.computeAndCreateTopicPartitions`). A topic that cannot be replicated
//! is refused by itself, with its reason. The names of both clusters are seen in order, so the answer is the same in
//! every round and on every machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use crate::client::ClusterView;
use crate::mirror::control::TopicRef;
use crate::mirror::{FlowSettings, Selection, selects};

/// What a cluster's metadata says of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicView {
    /// Its id; nil when the cluster has none.
    pub id: Uuid,
    /// Number of its partitions.
    pub partitions: i32,
}

/// All topics of a cluster.
pub type Topics = BTreeMap<Arc<str>, TopicView>;

/// The topics of a view, without those that it has no partitions of.
pub fn topics_of(view: &ClusterView) -> Topics {
    view.topics()
        .filter(|topic| !topic.partitions.is_empty())
        .map(|topic| {
            let view = TopicView { id: topic.id, partitions: topic.partitions.len() as i32 };
            (topic.name.clone(), view)
        })
        .collect()
}

/// One selected topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDiff {
    /// The topic at the source.
    pub source: Arc<str>,
    /// What the source says of it.
    pub view: TopicView,
    /// Its name on the target.
    pub remote: Arc<str>,
    /// What has to be done there.
    pub action: Action,
}

/// What a topic needs on the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To be created, with as many partitions as the source has.
    Create,
    /// More partitions, up to the source's number.
    Grow {
        /// What is there.
        there: TopicView,
    },
    /// Nothing.
    Keep(TopicView),
}

/// What a round has to do and say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Topics to replicate, in the order of their names.
    pub topics: Vec<TopicDiff>,
    /// Topics that are selected but cannot be replicated, with the reason.
    pub refused: BTreeMap<Arc<str>, String>,
}

impl TopicDiff {
    /// Both sides, when this is there on the target.
    pub fn refs(&self, there: TopicView) -> (TopicRef, TopicRef) {
        let source =
            TopicRef { name: Arc::clone(&self.source), id: self.view.id, partitions: self.view.partitions };
        let remote = TopicRef { name: Arc::clone(&self.remote), id: there.id, partitions: there.partitions };
        (source, remote)
    }
}

/// Remembers which names are selected, so that patterns run once for each name.
#[derive(Debug)]
pub struct Selector {
    settings: Arc<FlowSettings>,
    decided: BTreeMap<Arc<str>, Selection>,
}

impl Selector {
    /// For one flow.
    pub fn new(settings: Arc<FlowSettings>) -> Selector {
        Selector { settings, decided: BTreeMap::new() }
    }

    /// Whether the flow takes a topic.
    pub fn select(&mut self, topic: &Arc<str>) -> &Selection {
        let settings = &self.settings;
        self.decided.entry(Arc::clone(topic)).or_insert_with(|| selects(settings, topic))
    }

    /// Compares both clusters.
    pub fn diff(&mut self, source: &Topics, target: &Topics) -> Diff {
        self.decided.retain(|topic, _| source.contains_key(topic));
        let taken_names = target.keys().map(|name| collision_name(name)).collect();
        let mut round =
            Round { target, taken_names, remotes: BTreeMap::new(), diff: Diff::default(), selector: self };
        for (topic, &view) in source {
            round.add(topic, view);
        }
        round.diff
    }
}

struct Round<'a> {
    selector: &'a mut Selector,
    target: &'a Topics,
    taken_names: BTreeSet<String>,
    remotes: BTreeMap<Arc<str>, Arc<str>>,
    diff: Diff,
}

impl Round<'_> {
    fn add(&mut self, topic: &Arc<str>, view: TopicView) {
        match self.selector.select(topic) {
            Selection::Replicated | Selection::Heartbeats => {}
            Selection::NameTooLong { remote_topic } => {
                // The topic itself stands beside its reason, and is long enough.
                let bytes = remote_topic.len();
                let reason = format!("its name on the target would have {bytes} bytes, Kafka allows 249");
                self.refuse(topic, reason);
                return;
            }
            Selection::MatchGivenUp => {
                let reason =
                    "a pattern of topics or topics.exclude takes too many steps on its name".to_owned();
                self.refuse(topic, reason);
                return;
            }
            Selection::ComesBack { by } => {
                let reason = format!(
                    "{by} would bring it back, and its records would go round without end: give each flow topics of its own"
                );
                self.refuse(topic, reason);
                return;
            }
            Selection::NotMatched
            | Selection::Excluded
            | Selection::Elsewhere { .. }
            | Selection::Internal
            | Selection::Cycle { .. } => return,
        }
        let settings = &self.selector.settings;
        let remote: Arc<str> = Arc::from(settings.policy.remote_topic(&settings.source, topic));
        let is_named = |topic: &Arc<str>| settings.policy.rewrites.names(topic);
        let shared = self.remotes.get(&remote).filter(|first| is_named(first) && is_named(topic)).is_some();
        if let Some(first) = self.remotes.get(&remote).filter(|_| !shared) {
            let reason = format!("its name on the target, {remote}, is that of topic {first} already");
            self.refuse(topic, reason);
            return;
        }
        let action = match self.target.get(&remote) {
            Some(&there) if there.partitions < view.partitions => Action::Grow { there },
            Some(&there) => Action::Keep(there),
            None if !shared && self.taken_names.contains(&collision_name(&remote)) => {
                let reason = format!(
                    "its name on the target, {remote}, differs from that of a topic there only in '.' and '_', \
                     which Kafka refuses"
                );
                self.refuse(topic, reason);
                return;
            }
            None => {
                self.taken_names.insert(collision_name(&remote));
                Action::Create
            }
        };
        self.remotes.entry(Arc::clone(&remote)).or_insert_with(|| Arc::clone(topic));
        self.diff.topics.push(TopicDiff { source: Arc::clone(topic), view, remote, action });
    }

    fn refuse(&mut self, topic: &Arc<str>, reason: String) {
        self.diff.refused.insert(Arc::clone(topic), reason);
    }
}

/// Names that are equal but for `.` and `_` collide (`Topic.hasCollision`): metrics could not tell them apart.
fn collision_name(name: &str) -> String {
    name.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::{PatternList, PolicyKind};

    fn flow_settings(topics: &[&str]) -> FlowSettings {
        FlowSettings { topics: PatternList::new(topics).unwrap(), ..FlowSettings::new("A", "B") }
    }

    fn topics(names: &[(&str, i32)]) -> Topics {
        let view = |n: usize, partitions| TopicView { id: Uuid::from_u128(n as u128 + 1), partitions };
        names.iter().enumerate().map(|(n, &(name, count))| (Arc::from(name), view(n, count))).collect()
    }

    fn shown(diff: &Diff) -> Vec<String> {
        let topics = diff.topics.iter().map(|topic| {
            let action = match topic.action {
                Action::Create => format!("create {}", topic.view.partitions),
                Action::Grow { there } => format!("grow {} to {}", there.partitions, topic.view.partitions),
                Action::Keep(there) => format!("keep {}", there.partitions),
            };
            format!("{} as {}: {action}", topic.source, topic.remote)
        });
        topics
            .chain(diff.refused.iter().map(|(topic, reason)| format!("{topic} refused: {reason}")))
            .collect()
    }

    #[track_caller]
    fn check(settings: FlowSettings, source: &[(&str, i32)], target: &[(&str, i32)], expected: &[&str]) {
        let mut selector = Selector::new(Arc::new(settings));
        let (source, target) = (topics(source), topics(target));
        let diff = selector.diff(&source, &target);
        assert_eq!(shown(&diff), expected);
        assert_eq!(selector.diff(&source, &target), diff, "the same in the next round");
    }

    #[test]
    fn topics_are_created_and_grown_and_never_shrunk() {
        check(
            flow_settings(&[".*"]),
            &[("grown", 4), ("new", 3), ("same", 2), ("smaller", 1)],
            &[("A.grown", 2), ("A.gone", 5), ("A.same", 2), ("A.smaller", 6), ("other", 1)],
            &[
                "grown as A.grown: grow 2 to 4",
                "new as A.new: create 3",
                "same as A.same: keep 2",
                "smaller as A.smaller: keep 6",
            ],
        );
    }

    /// Cases 29 and 58: internal topics and cycles stay away, a user's topic that looks like one is taken.
    #[test]
    fn internal_topics_cycles_and_excluded_ones_are_passed_over() {
        let settings = FlowSettings {
            topics_exclude: PatternList::new(&["secret.*"]).unwrap(),
            ..flow_settings(&["user.*", "secret.*", "B.*", "mm2.*", "__.*"])
        };
        check(
            settings,
            &[
                ("B.user", 1),
                ("C.heartbeats", 1),
                ("__consumer_offsets", 50),
                ("heartbeats", 1),
                ("mm2-offsets.C.internal", 25),
                ("secret", 1),
                ("user.internal", 1),
                ("users", 1),
                ("vendor", 1),
            ],
            &[],
            &[
                "C.heartbeats as A.C.heartbeats: create 1",
                "heartbeats as A.heartbeats: create 1",
                "user.internal as A.user.internal: create 1",
                "users as A.users: create 1",
            ],
        );
    }

    /// Case 30: names that cannot be, refused one by one.
    #[test]
    fn names_that_are_too_long_or_collide_are_refused_by_topic() {
        let long = "x".repeat(248);
        check(
            flow_settings(&[".*"]),
            &[("a.b", 1), ("a_b", 1), ("c.d", 1), (&long, 1), ("plain", 1)],
            &[("A_c.d", 1)],
            &[
                "a.b as A.a.b: create 1",
                "plain as A.plain: create 1",
                "a_b refused: its name on the target, A.a_b, differs from that of a topic there only in '.' and '_', \
                 which Kafka refuses",
                "c.d refused: its name on the target, A.c.d, differs from that of a topic there only in '.' and '_', \
                 which Kafka refuses",
                &format!("{long} refused: its name on the target would have 250 bytes, Kafka allows 249"),
            ],
        );
        // A topic that is there already is no collision.
        check(flow_settings(&[".*"]), &[("a.b", 1)], &[("A.a.b", 1)], &["a.b as A.a.b: keep 1"]);
    }

    #[test]
    fn two_topics_of_one_remote_name_are_not_mixed() {
        let mut settings = flow_settings(&[".*"]);
        settings.policy.kind = PolicyKind::Identity;
        check(
            settings,
            &[("A.heartbeats", 1), ("heartbeats", 1), ("t", 1)],
            &[],
            &[
                "A.heartbeats as A.A.heartbeats: create 1",
                "heartbeats as A.heartbeats: create 1",
                "t as t: create 1",
            ],
        );
    }
}

//! Who gets which partitions: the assignors of Kafka's consumer, for when this member leads its group.
//!
//! Pure. `range` and `roundrobin` give the same answer as Java's, since members of both kinds may lead in turn
//! (`RangeAssignor.java` without racks, `RoundRobinAssignor.java`). The sticky ones (`sticky`) keep the same promises: balanced first, then
//! as little moved as possible.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::protocol::Subscription;
use super::sticky;
use crate::mirror::state::TopicPartition;

/// `partition.assignment.strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strategy {
    /// `RangeAssignor`.
    Range,
    /// `RoundRobinAssignor`.
    RoundRobin,
    /// `StickyAssignor`.
    Sticky,
    /// `CooperativeStickyAssignor`.
    CooperativeSticky,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Strategy; 4] =
        [Strategy::Range, Strategy::RoundRobin, Strategy::Sticky, Strategy::CooperativeSticky];

    /// Its name in the group.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Range => "range",
            Strategy::RoundRobin => "roundrobin",
            Strategy::Sticky => "sticky",
            Strategy::CooperativeSticky => "cooperative-sticky",
        }
    }

    /// By the name that a group has chosen.
    pub fn named(name: &str) -> Option<Strategy> {
        Strategy::ALL.into_iter().find(|strategy| strategy.name() == name)
    }

    /// By the name of its class in Java.
    pub fn of_class(class: &str) -> Option<Strategy> {
        let class = class.strip_prefix("org.apache.kafka.clients.consumer.").unwrap_or(class);
        Some(match class {
            "RangeAssignor" | "range" => Strategy::Range,
            "RoundRobinAssignor" | "roundrobin" => Strategy::RoundRobin,
            "StickyAssignor" | "sticky" => Strategy::Sticky,
            "CooperativeStickyAssignor" | "cooperative-sticky" => Strategy::CooperativeSticky,
            _ => return None,
        })
    }
}

/// How many partitions topics have.
pub type Counts = BTreeMap<Arc<str>, i32>;
/// The members with what they say of themselves.
pub type Members = BTreeMap<Arc<str>, Subscription>;
/// What each member gets.
pub type Assignments = BTreeMap<Arc<str>, BTreeSet<TopicPartition>>;

/// The assignments under a strategy. A topic that is not in `counts` does not exist.
pub fn assign(strategy: Strategy, members: &Members, counts: &Counts) -> Assignments {
    match strategy {
        Strategy::Range => range(members, counts),
        Strategy::RoundRobin => round_robin(members, counts),
        Strategy::Sticky => sticky::assign(members, counts, sticky::Kind::Eager),
        Strategy::CooperativeSticky => {
            let wanted = sticky::assign(members, counts, sticky::Kind::Cooperative);
            sticky::without_moves(members, wanted)
        }
    }
}

/// The members of each topic, in the order of their ids.
pub(super) fn consumers_of(members: &Members) -> BTreeMap<&Arc<str>, Vec<&Arc<str>>> {
    let mut consumers: BTreeMap<&Arc<str>, Vec<&Arc<str>>> = BTreeMap::new();
    for (member, subscription) in members {
        for topic in subscription.topics.iter().collect::<BTreeSet<_>>() {
            consumers.entry(topic).or_default().push(member);
        }
    }
    consumers
}

pub(super) fn nothing_yet(members: &Members) -> Assignments {
    members.keys().map(|member| (member.clone(), BTreeSet::new())).collect()
}

/// Of each topic by itself, a run of partitions for each member; the first ones get one more.
fn range(members: &Members, counts: &Counts) -> Assignments {
    let mut assignments = nothing_yet(members);
    for (topic, consumers) in consumers_of(members) {
        let Some(&count) = counts.get(topic) else { continue };
        let (count, among) = (count.max(0) as usize, consumers.len());
        for (place, member) in consumers.into_iter().enumerate() {
            let start = count / among * place + place.min(count % among);
            let length = count / among + usize::from(place < count % among);
            if let Some(assigned) = assignments.get_mut(member) {
                assigned.extend(
                    (start..start + length).map(|index| TopicPartition::new(topic.clone(), index as i32)),
                );
            }
        }
    }
    assignments
}

/// All partitions of all topics one after the other, each to the next member that wants its topic.
fn round_robin(members: &Members, counts: &Counts) -> Assignments {
    let mut assignments = nothing_yet(members);
    let circle: Vec<&Arc<str>> = members.keys().collect();
    let mut place = 0;
    for topic in consumers_of(members).keys() {
        let Some(&count) = counts.get(*topic) else { continue };
        for index in 0..count {
            // Somebody wants it, or it would have no consumers.
            while !members.get(circle[place % circle.len()]).is_some_and(|of| of.topics.contains(*topic)) {
                place += 1;
            }
            let member = circle[place % circle.len()];
            place += 1;
            if let Some(assigned) = assignments.get_mut(member) {
                assigned.insert(TopicPartition::new((*topic).clone(), index));
            }
        }
    }
    assignments
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn members(all: &[(&str, &[&str])]) -> Members {
        let subscription = |topics: &[&str]| Subscription {
            topics: topics.iter().map(|&topic| Arc::from(topic)).collect(),
            generation: -1,
            ..Subscription::default()
        };
        all.iter().map(|&(member, topics)| (Arc::from(member), subscription(topics))).collect()
    }

    fn counts(all: &[(&str, i32)]) -> Counts {
        all.iter().map(|&(topic, count)| (Arc::from(topic), count)).collect()
    }

    fn shown(assignments: &Assignments) -> Vec<String> {
        let one = |(member, partitions): (&Arc<str>, &BTreeSet<TopicPartition>)| {
            let partitions: Vec<String> = partitions.iter().map(ToString::to_string).collect();
            format!("{member}: {}", partitions.join(" "))
        };
        assignments.iter().map(one).collect()
    }

    fn check(strategy: Strategy, all: &[(&str, &[&str])], topics: &[(&str, i32)], wanted: &[&str]) {
        assert_eq!(shown(&assign(strategy, &members(all), &counts(topics))), wanted, "{strategy:?}");
    }

    /// Cases of `RangeAssignorTest` and of the comment above `RangeAssignor`.
    #[test]
    fn range_gives_runs_of_each_topic() {
        let both: &[(&str, &[&str])] = &[("c0", &["t0", "t1"]), ("c1", &["t0", "t1"])];
        check(Strategy::Range, both, &[("t0", 3), ("t1", 3)], &["c0: t0-0 t0-1 t1-0 t1-1", "c1: t0-2 t1-2"]);
        check(Strategy::Range, both, &[("t0", 1)], &["c0: t0-0", "c1: "]);
        check(Strategy::Range, both, &[], &["c0: ", "c1: "]);
        check(
            Strategy::Range,
            &[("a", &["t"]), ("b", &["t", "u"]), ("c", &["u"])],
            &[("t", 5), ("u", 2), ("v", 9)],
            &["a: t-0 t-1 t-2", "b: t-3 t-4 u-0", "c: u-1"],
        );
    }

    /// Cases of the comment above `RoundRobinAssignor`.
    #[test]
    fn round_robin_deals_partitions_out() {
        check(
            Strategy::RoundRobin,
            &[("c0", &["t0", "t1"]), ("c1", &["t0", "t1"])],
            &[("t0", 3), ("t1", 3)],
            &["c0: t0-0 t0-2 t1-1", "c1: t0-1 t1-0 t1-2"],
        );
        check(
            Strategy::RoundRobin,
            &[("c0", &["t0"]), ("c1", &["t0", "t1"]), ("c2", &["t0", "t1", "t2"])],
            &[("t0", 1), ("t1", 2), ("t2", 3)],
            &["c0: t0-0", "c1: t1-0", "c2: t1-1 t2-0 t2-1 t2-2"],
        );
    }

    #[test]
    fn strategies_are_known_by_their_classes() {
        for strategy in Strategy::ALL {
            assert_eq!(Strategy::named(strategy.name()), Some(strategy));
            assert_eq!(Strategy::of_class(strategy.name()), Some(strategy), "as old consumers called it");
        }
        let class = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
        assert_eq!(Strategy::of_class(class), Some(Strategy::CooperativeSticky));
        assert_eq!(Strategy::of_class("com.example.Mine"), None);
    }
}

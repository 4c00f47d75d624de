//! The sticky assignors: balanced, and of what members have as little moved as possible.
//!
//! Pure. As `AbstractStickyAssignor.java` promises, not step by step as it goes: each member keeps what it had, as far as it still
//! wants it and nobody has had it since; what nobody has goes to whoever has least; then partitions move from who has more
//! to who has less by two or more, until none does. Each move makes the sum of squares smaller, so it ends.
//!
//! The cooperative one may give nothing to one member that another still has: that comes with the next generation
//! (`CooperativeStickyAssignor.adjustAssignment`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::assign::{Assignments, Counts, Members, consumers_of, nothing_yet};
use super::protocol::{Subscription, decode_cooperative, decode_sticky};
use crate::mirror::state::TopicPartition;

/// Where a member's earlier partitions are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// In the user data: all have been given up.
    Eager,
    /// In the subscription: they are still held.
    Cooperative,
}

/// What a member had, and in which generation it got it.
fn had(subscription: &Subscription, kind: Kind) -> (BTreeSet<TopicPartition>, i32) {
    let user_data = subscription.user_data.as_ref();
    match kind {
        Kind::Eager => user_data.and_then(|data| decode_sticky(data)).unwrap_or_default(),
        Kind::Cooperative => {
            let stated = user_data.map_or(-1, |data| decode_cooperative(data));
            (subscription.owned.clone(), subscription.generation.max(stated))
        }
    }
}

pub(super) fn assign(members: &Members, counts: &Counts, kind: Kind) -> Assignments {
    let consumers = consumers_of(members);
    let mut assignments = kept(members, counts, kind);
    let taken: BTreeSet<TopicPartition> = assignments.values().flatten().cloned().collect();
    for (topic, consumers) in &consumers {
        for index in 0..counts.get(*topic).copied().unwrap_or(0) {
            let at = TopicPartition::new((*topic).clone(), index);
            let least = consumers.iter().min_by_key(|member| load(&assignments, member));
            if let Some(assigned) = least.and_then(|member| assignments.get_mut(*member))
                && !taken.contains(&at)
            {
                assigned.insert(at);
            }
        }
    }
    balance(&consumers, &mut assignments);
    assignments
}

/// What members keep. Of two that claim the same, the newer generation is right; in one generation nobody is.
fn kept(members: &Members, counts: &Counts, kind: Kind) -> Assignments {
    let mut owners: BTreeMap<TopicPartition, (i32, Option<&Arc<str>>)> = BTreeMap::new();
    for (member, subscription) in members {
        let (partitions, generation) = had(subscription, kind);
        for at in partitions {
            let there = counts.get(&at.topic).is_some_and(|&count| (0..count).contains(&at.partition));
            if !there || !subscription.topics.contains(&at.topic) {
                continue;
            }
            let owner = owners.entry(at).or_insert((generation, Some(member)));
            match generation.cmp(&owner.0) {
                std::cmp::Ordering::Greater => *owner = (generation, Some(member)),
                std::cmp::Ordering::Equal if owner.1 != Some(member) => owner.1 = None,
                _ => {}
            }
        }
    }
    let mut assignments = nothing_yet(members);
    for (at, (_, owner)) in owners {
        if let Some(assigned) = owner.and_then(|owner| assignments.get_mut(owner)) {
            assigned.insert(at);
        }
    }
    assignments
}

fn load(assignments: &Assignments, member: &Arc<str>) -> usize {
    assignments.get(member).map_or(0, BTreeSet::len)
}

/// Moves partitions from members that have two or more than another that wants them.
fn balance(consumers: &BTreeMap<&Arc<str>, Vec<&Arc<str>>>, assignments: &mut Assignments) {
    loop {
        let mut by_load: Vec<Arc<str>> = assignments.keys().cloned().collect();
        by_load.sort_by_key(|member| std::cmp::Reverse(load(assignments, member)));
        let found = by_load.iter().find_map(|from| {
            let most = load(assignments, from);
            let to_whom = |at: &TopicPartition| {
                let wanted = consumers.get(&at.topic)?;
                let least = wanted.iter().min_by_key(|member| load(assignments, member))?;
                (load(assignments, least) + 2 <= most).then(|| (*least).clone())
            };
            assignments.get(from)?.iter().rev().find_map(|at| Some((from.clone(), at.clone(), to_whom(at)?)))
        });
        let Some((from, at, to)) = found else { return };
        if let Some(assigned) = assignments.get_mut(&from) {
            assigned.remove(&at);
        }
        if let Some(assigned) = assignments.get_mut(&to) {
            assigned.insert(at);
        }
    }
}

/// What is to move is given to nobody as long as another member holds it.
pub(super) fn without_moves(members: &Members, mut assignments: Assignments) -> Assignments {
    let mut holders: BTreeMap<&TopicPartition, &Arc<str>> = BTreeMap::new();
    for (member, subscription) in members {
        holders.extend(subscription.owned.iter().map(|at| (at, member)));
    }
    for (member, assigned) in &mut assignments {
        assigned.retain(|at| holders.get(at).is_none_or(|holder| *holder == member));
    }
    assignments
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::assign::{Strategy, assign};
    use super::super::protocol::{encode_cooperative, encode_sticky};
    use super::*;

    type Had = BTreeSet<TopicPartition>;

    fn member(strategy: Strategy, topics: &[&str], had: &Had, generation: i32) -> Subscription {
        let topics = topics.iter().map(|&topic| Arc::from(topic)).collect();
        match strategy {
            Strategy::Sticky => Subscription {
                topics,
                user_data: Some(encode_sticky(had, generation)),
                owned: BTreeSet::new(),
                generation: -1,
            },
            _ => Subscription {
                topics,
                user_data: Some(encode_cooperative(generation)),
                owned: had.clone(),
                generation,
            },
        }
    }

    fn partitions(topic: &str, range: std::ops::Range<i32>) -> Had {
        range.map(|index| TopicPartition::new(topic, index)).collect()
    }

    fn counts(all: &[(&str, i32)]) -> Counts {
        all.iter().map(|&(topic, count)| (Arc::from(topic), count)).collect()
    }

    #[test]
    fn a_newcomer_gets_its_share_and_nothing_else_moves() {
        let before = partitions("t", 0..6);
        let strategy = Strategy::Sticky;
        let members = Members::from([
            (Arc::from("a"), member(strategy, &["t"], &before, 4)),
            (Arc::from("b"), member(strategy, &["t"], &Had::new(), -1)),
        ]);
        let given = assign(strategy, &members, &counts(&[("t", 6)]));
        assert_eq!(given["a"].len(), 3);
        assert!(given["a"].is_subset(&before));
        assert_eq!(given["b"].len(), 3);
    }

    #[test]
    fn what_moves_is_given_up_first_when_cooperative() {
        let strategy = Strategy::CooperativeSticky;
        let before = partitions("t", 0..6);
        let mut members = Members::from([
            (Arc::from("a"), member(strategy, &["t"], &before, 4)),
            (Arc::from("b"), member(strategy, &["t"], &Had::new(), -1)),
        ]);
        let first = assign(strategy, &members, &counts(&[("t", 6)]));
        assert_eq!((first["a"].len(), first["b"].len()), (3, 0));
        members.insert(Arc::from("a"), member(strategy, &["t"], &first["a"], 5));
        members.insert(Arc::from("b"), member(strategy, &["t"], &Had::new(), 5));
        let second = assign(strategy, &members, &counts(&[("t", 6)]));
        assert_eq!(second["a"], first["a"]);
        assert_eq!(second["b"].len(), 3);
    }

    #[test]
    fn of_two_that_claim_the_same_the_newer_is_right() {
        let strategy = Strategy::Sticky;
        let claim = partitions("t", 0..2);
        let members = Members::from([
            (Arc::from("a"), member(strategy, &["t"], &claim, 3)),
            (Arc::from("b"), member(strategy, &["t"], &claim, 4)),
            (Arc::from("c"), member(strategy, &["u"], &partitions("t", 2..3), 4)),
        ]);
        let given = assign(strategy, &members, &counts(&[("t", 2), ("u", 1)]));
        assert_eq!(given["a"].len(), 1);
        assert_eq!(given["b"].len(), 1);
        assert_eq!(given["c"], partitions("u", 0..1));
    }

    proptest! {
        /// Every partition that somebody wants is given once, to somebody who wants it; nobody could get one from a member
        /// that has two more.
        #[test]
        fn assignments_are_whole_and_balanced(
            wants in prop::collection::vec(prop::collection::btree_set(0..4_usize, 1..4), 1..6),
            sizes in prop::collection::vec(0..7_i32, 4),
            had in prop::collection::vec((0..6_usize, 0..4_usize, 0..7_i32, -1..3_i32), 0..20),
            kind in 0..4_usize,
        ) {
            let strategy = Strategy::ALL[kind];
            let name = |topic: usize| format!("t{topic}");
            let counts: Counts = (0..4).map(|topic| (Arc::from(name(topic)), sizes[topic])).collect();
            let members: Members = wants.iter().enumerate().map(|(index, topics)| {
                let names: Vec<String> = topics.iter().map(|&topic| name(topic)).collect();
                let topics: Vec<&str> = names.iter().map(String::as_str).collect();
                let mine = had.iter().filter(|(of, ..)| *of == index);
                let owned = mine.clone().map(|(_, topic, at, _)| TopicPartition::new(name(*topic), *at)).collect();
                let generation = mine.clone().map(|one| one.3).max().unwrap_or(-1);
                (Arc::from(format!("m{index}")), member(strategy, &topics, &owned, generation))
            }).collect();
            let given = match strategy {
                Strategy::CooperativeSticky => super::assign(&members, &counts, Kind::Cooperative),
                _ => assign(strategy, &members, &counts),
            };
            let mut seen = BTreeSet::new();
            for (member, partitions) in &given {
                for at in partitions {
                    prop_assert!(seen.insert(at.clone()), "{at} twice");
                    prop_assert!(members[member].topics.contains(&at.topic));
                }
            }
            let wanted: usize = consumers_of(&members).keys().map(|topic| counts[*topic] as usize).sum();
            prop_assert_eq!(seen.len(), wanted);
            if matches!(strategy, Strategy::Sticky | Strategy::CooperativeSticky) {
                for (from, partitions) in &given {
                    for at in partitions {
                        for (to, others) in &given {
                            let could = members[to].topics.contains(&at.topic) && others.len() + 2 <= partitions.len();
                            prop_assert!(!could, "{at} of {from} could go to {to}");
                        }
                    }
                }
            }
        }
    }
}

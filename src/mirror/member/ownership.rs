//! Which partitions a member has, and what a rebalance asks of it.
//!
//! Pure.
//! ```text
//! eager         rebalance ──► give all up ──► join ──► get
//! cooperative   rebalance ──► join, and keep all ──► get less: give that up ──► join again
//! ```
//! As `ConsumerCoordinator.java`: what is to be given up is given up before the next join, for from then on the leader may give
//! it to others. Nothing is joined while something is being given up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::assign::Strategy;
use super::protocol::{Subscription, encode_cooperative, encode_sticky};
use crate::mirror::state::TopicPartition;

/// What the member does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing.
    Stay,
    /// Bring these to an end and commit them; then [`Ownership::given_up`].
    GiveUp(BTreeSet<TopicPartition>),
    /// Join the next generation.
    Rejoin,
}

/// What a member has.
#[derive(Debug)]
pub struct Ownership {
    is_cooperative: bool,
    /// Partitions with the generation in which they were given.
    owned: BTreeMap<TopicPartition, i32>,
    /// Those that are being given up; they are none of `owned`.
    leaving: BTreeMap<TopicPartition, i32>,
    /// The last assignment and its generation, which the sticky assignor goes on from.
    last: (BTreeSet<TopicPartition>, i32),
}

impl Ownership {
    /// Of a member that has nothing. Only when all its strategies are cooperative does it keep what it has.
    pub fn new(strategies: &[Strategy]) -> Ownership {
        let is_cooperative = strategies.iter().all(|&strategy| strategy == Strategy::CooperativeSticky);
        Ownership {
            is_cooperative,
            owned: BTreeMap::new(),
            leaving: BTreeMap::new(),
            last: (BTreeSet::new(), -1),
        }
    }

    /// What it has, and since which generation.
    pub fn owned(&self) -> &BTreeMap<TopicPartition, i32> {
        &self.owned
    }

    /// What it may commit, and since which generation: also what is being given up.
    pub fn may_commit(&self) -> BTreeMap<TopicPartition, i32> {
        self.owned.iter().chain(&self.leaving).map(|(at, &since)| (at.clone(), since)).collect()
    }

    /// A new generation is wanted, by the coordinator or by us.
    pub fn rebalance(&mut self) -> Next {
        if !self.leaving.is_empty() {
            return Next::Stay;
        }
        if self.is_cooperative || self.owned.is_empty() {
            return Next::Rejoin;
        }
        self.leave(self.owned.keys().cloned().collect())
    }

    /// A generation has begun, with these partitions for us.
    pub fn assigned(&mut self, generation: i32, partitions: BTreeSet<TopicPartition>) -> Next {
        let less: BTreeSet<_> = self.owned.keys().filter(|at| !partitions.contains(*at)).cloned().collect();
        for at in &partitions {
            self.owned.entry(at.clone()).or_insert(generation);
        }
        self.last = (partitions, generation);
        if less.is_empty() { Next::Stay } else { self.leave(less) }
    }

    /// What was to be given up is.
    pub fn given_up(&mut self) -> Next {
        self.leaving.clear();
        Next::Rejoin
    }

    /// Others may have been given everything.
    pub fn lost(&mut self) {
        self.owned.clear();
        self.leaving.clear();
    }

    /// What the member says of itself when it joins.
    pub fn subscription(&self, strategy: Strategy, topics: &[Arc<str>]) -> Subscription {
        let user_data: Option<Bytes> = match strategy {
            Strategy::Sticky => Some(encode_sticky(&self.last.0, self.last.1)),
            Strategy::CooperativeSticky => Some(encode_cooperative(self.last.1)),
            Strategy::Range | Strategy::RoundRobin => None,
        };
        Subscription {
            topics: topics.to_vec(),
            user_data,
            owned: self.owned.keys().cloned().collect(),
            generation: self.last.1,
        }
    }

    fn leave(&mut self, partitions: BTreeSet<TopicPartition>) -> Next {
        self.leaving = partitions.iter().filter_map(|at| self.owned.remove_entry(at)).collect();
        Next::GiveUp(partitions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partitions(indexes: &[i32]) -> BTreeSet<TopicPartition> {
        indexes.iter().map(|&index| TopicPartition::new("t", index)).collect()
    }

    fn owned(ownership: &Ownership) -> Vec<(i32, i32)> {
        ownership.owned().iter().map(|(at, &since)| (at.partition, since)).collect()
    }

    #[test]
    fn an_eager_member_gives_everything_up_before_it_joins() {
        let mut member = Ownership::new(&[Strategy::Range, Strategy::CooperativeSticky]);
        assert_eq!(member.rebalance(), Next::Rejoin, "it has nothing");
        assert_eq!(member.assigned(1, partitions(&[0, 1])), Next::Stay);
        assert_eq!(member.rebalance(), Next::GiveUp(partitions(&[0, 1])));
        assert_eq!(member.rebalance(), Next::Stay, "it is at it");
        assert!(member.owned().is_empty());
        let may_commit = member.may_commit();
        assert_eq!(may_commit, partitions(&[0, 1]).into_iter().map(|at| (at, 1)).collect());
        assert_eq!(member.given_up(), Next::Rejoin);
        assert!(member.may_commit().is_empty());
        assert_eq!(member.assigned(2, partitions(&[1])), Next::Stay);
        assert_eq!(owned(&member), [(1, 2)]);
        let words = member.subscription(Strategy::Sticky, &["t".into()]);
        assert_eq!(words.user_data, Some(encode_sticky(&partitions(&[1]), 2)));
    }

    #[test]
    fn a_cooperative_member_keeps_what_it_may() {
        let mut member = Ownership::new(&[Strategy::CooperativeSticky]);
        member.assigned(1, partitions(&[0, 1, 2]));
        assert_eq!(member.rebalance(), Next::Rejoin);
        assert_eq!(owned(&member).len(), 3);
        assert_eq!(member.subscription(Strategy::CooperativeSticky, &[]).owned, partitions(&[0, 1, 2]));
        assert_eq!(member.assigned(2, partitions(&[0, 3])), Next::GiveUp(partitions(&[1, 2])));
        assert_eq!(owned(&member), [(0, 1), (3, 2)], "what it kept is as old as it was");
        assert_eq!(member.rebalance(), Next::Stay);
        assert_eq!(member.given_up(), Next::Rejoin);
        assert_eq!(member.assigned(3, partitions(&[0, 3])), Next::Stay);
    }

    #[test]
    fn what_is_lost_cannot_be_committed() {
        let mut member = Ownership::new(&[Strategy::Range]);
        member.assigned(1, partitions(&[0]));
        member.rebalance();
        member.lost();
        assert!(member.may_commit().is_empty() && member.owned().is_empty());
        assert_eq!(member.assigned(4, partitions(&[0])), Next::Stay);
        assert_eq!(owned(&member), [(0, 4)]);
    }
}

//! Which offsets may be committed for a group on the target (`sync.group.offsets.enabled`). Pure.
//!
//! Only into groups that are empty or not there: in a group with members, these decide. An offset is committed where the
//! target has none, where it moves forward, and where the target still holds exactly what we committed last, so that a
//! group that is set back at the source is set back on the target. A position that the group made itself on the target is
//! never moved back. Whatever is doubtful waits for the next round.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::book::Entry;
use crate::client::{CommittedOffset, GroupOffsets, ListedGroup};
use crate::mirror::state::TopicPartition;

/// How a group stands on the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetGroup {
    /// Not listed by any broker.
    Absent,
    /// Without members.
    Empty,
    /// Its state is not told by this broker's ListGroups.
    Untold,
    /// With members, or about to have some; its state.
    Active(String),
    /// A group of another kind; in words.
    Other(String),
}

/// How a group stands, by what the brokers of the target list.
pub(super) fn target_group(listed: Option<&ListedGroup>) -> TargetGroup {
    let Some(listed) = listed else { return TargetGroup::Absent };
    match listed.group_type.to_ascii_lowercase().as_str() {
        "" | "classic" if !matches!(listed.protocol_type.as_str(), "" | "consumer") => {
            return TargetGroup::Other(format!("its protocol type is {}", listed.protocol_type));
        }
        "" | "classic" | "consumer" | "streams" => {}
        other => return TargetGroup::Other(format!("it is a {other} group")),
    }
    match listed.state.as_str() {
        "" => TargetGroup::Untold,
        "Empty" => TargetGroup::Empty,
        state => TargetGroup::Active(state.to_owned()),
    }
}

/// What is to be committed for one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) offsets: GroupOffsets,
    /// Partitions in which the group is further on the target than at the source.
    pub(super) ahead: usize,
}

/// Compares the checkpoints of a group with what the target holds; `ours` is what we committed last.
pub(super) fn commit(
    wanted: &BTreeMap<TopicPartition, Entry>,
    there: &GroupOffsets,
    ours: Option<&BTreeMap<TopicPartition, i64>>,
) -> Commit {
    let mut commit = Commit::default();
    for (partition, entry) in wanted {
        let key = (Arc::clone(&partition.topic), partition.partition);
        let may = match there.get(&key).map(|committed| committed.offset) {
            None => true,
            Some(offset) if offset == entry.downstream => false,
            Some(offset) if offset < entry.downstream => true,
            Some(offset) => ours.and_then(|ours| ours.get(partition)) == Some(&offset),
        };
        if may {
            let committed =
                CommittedOffset { offset: entry.downstream, metadata: Arc::clone(&entry.metadata) };
            commit.offsets.insert(key, committed);
        } else if there.get(&key).is_some_and(|committed| committed.offset > entry.downstream) {
            commit.ahead += 1;
        }
    }
    commit
}

/// Takes what the target's logs cannot hold out of a commit: an offset behind the end of its log would send the consumer to
/// wherever `auto.offset.reset` says. It is cut down to the end, and left out where that is no step forward; a partition
/// whose end is not known is left out.
pub(super) fn within(commit: &mut Commit, there: &GroupOffsets, ends: &BTreeMap<(Arc<str>, i32), i64>) {
    commit.offsets.retain(|key, committed| {
        let Some(&end) = ends.get(key) else { return false };
        if committed.offset <= end {
            return true;
        }
        committed.offset = end;
        there.get(key).is_none_or(|there| there.offset < end)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_without_members_are_written() {
        let check = |group_type: &str, protocol_type: &str, state: &str, expected: TargetGroup| {
            let listed = ListedGroup {
                id: Arc::from("g"),
                protocol_type: protocol_type.to_owned(),
                state: state.to_owned(),
                group_type: group_type.to_owned(),
            };
            assert_eq!(target_group(Some(&listed)), expected, "{listed:?}");
        };
        let active = |state: &str| TargetGroup::Active(state.to_owned());
        let other = |text: &str| TargetGroup::Other(text.to_owned());
        assert_eq!(target_group(None), TargetGroup::Absent);
        check("Classic", "consumer", "Empty", TargetGroup::Empty);
        check("classic", "", "Empty", TargetGroup::Empty);
        check("", "consumer", "", TargetGroup::Untold);
        check("Consumer", "consumer", "Empty", TargetGroup::Empty);
        check("Streams", "streams", "Empty", TargetGroup::Empty);
        check("Streams", "streams", "NotReady", active("NotReady"));
        check("Consumer", "consumer", "Reconciling", active("Reconciling"));
        check("Classic", "consumer", "PreparingRebalance", active("PreparingRebalance"));
        check("Classic", "consumer", "Dead", active("Dead"));
        check("Share", "share", "Empty", other("it is a share group"));
        check("Classic", "connect", "Empty", other("its protocol type is connect"));
    }

    fn partition(index: i32) -> TopicPartition {
        TopicPartition::new("A.t", index)
    }

    fn offsets(offsets: &[(i32, i64)]) -> GroupOffsets {
        let one = |&(index, offset): &(i32, i64)| {
            ((Arc::from("A.t"), index), CommittedOffset { offset, metadata: Arc::from("") })
        };
        offsets.iter().map(one).collect()
    }

    fn shown(commit: &Commit) -> Vec<(i32, i64)> {
        commit.offsets.iter().map(|((_, index), committed)| (*index, committed.offset)).collect()
    }

    #[test]
    fn an_offset_moves_forward_or_follows_what_was_ours() {
        let entry = |downstream| Entry { upstream: 0, downstream, metadata: Arc::from("") };
        let wanted = BTreeMap::from([
            (partition(0), entry(10)),
            (partition(1), entry(10)),
            (partition(2), entry(10)),
            (partition(3), entry(10)),
            (partition(4), entry(10)),
        ]);
        let there = offsets(&[(1, 5), (2, 10), (3, 15), (4, 15)]);
        let ours = BTreeMap::from([(partition(3), 14), (partition(4), 15)]);
        let mut decided = commit(&wanted, &there, Some(&ours));
        assert_eq!((shown(&decided), decided.ahead), (vec![(0, 10), (1, 10), (4, 10)], 1));
        // After a restart nothing is known to be ours.
        assert_eq!(shown(&commit(&wanted, &there, None)), [(0, 10), (1, 10)]);

        let end = |index, end| ((Arc::from("A.t"), index), end);
        within(&mut decided, &there, &BTreeMap::from([end(0, 7), end(1, 5), end(4, 10)]));
        assert_eq!(shown(&decided), [(0, 7), (4, 10)]);
        let mut unknown = commit(&wanted, &there, None);
        within(&mut unknown, &there, &BTreeMap::new());
        assert!(unknown.offsets.is_empty());
    }
}

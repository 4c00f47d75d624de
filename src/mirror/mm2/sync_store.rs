//! Offset translation by offset syncs alone, as MirrorMaker does it (`OffsetSyncStore.java` of 4.3).
//!
//! Of each source partition 64 syncs are kept, `s[0]` the newest, `s[63]` the oldest that may be used. For `i < j` with
//! distinct syncs:
//!
//! ```text
//! B   s[i].upstream <= s[j].upstream + 2^j - 2^i             no sync is older than its place allows
//! C   s[i].upstream >= s[j].upstream + 2^max(i - 2, 0)       and neighbours are far enough apart
//! ```
//! so that they thin out exponentially towards the past. A sync says that one source record is one target record; of what
//! follows nobody knows how much went to the target, so a later offset is translated to one past the sync and never more:
//! records may be read again, none is skipped.
//!
//! Here the store is only read from the topic's history: what is copied now is known exactly ([`super::super::offset_map`]).

use std::collections::BTreeMap;

use super::formats::OffsetSync;
use crate::mirror::state::TopicPartition;

/// Syncs kept of a partition, one for each bit of an offset.
const SYNCS_MAX: usize = 64;

/// (upstream, downstream)
type Sync = (i64, i64);

/// How much of the topic's history may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// All of it: checkpoints that were made before are known and keep translation from going back.
    Whole,
    /// Only the last sync of each partition (`initializationMustReadToEnd`).
    LastOnly,
}

/// The offset syncs of a flow.
#[derive(Clone, Debug, Default)]
pub struct SyncStore {
    /// Distinct syncs, newest first.
    partitions: BTreeMap<TopicPartition, Vec<Sync>>,
}

impl SyncStore {
    /// From all syncs of the topic, in the order of their offsets.
    pub fn load(syncs: impl IntoIterator<Item = OffsetSync>, history: History) -> SyncStore {
        let mut all: BTreeMap<TopicPartition, Vec<Sync>> = BTreeMap::new();
        for OffsetSync { source, upstream, downstream } in syncs {
            let of = all.entry(source).or_default();
            if history == History::LastOnly {
                of.clear();
            }
            of.push((upstream, downstream));
        }
        for syncs in all.values_mut() {
            *syncs = kept(syncs);
        }
        SyncStore { partitions: all }
    }

    /// Where a group goes on on the target that stands at source offset `upstream`; `None` where the syncs do not tell.
    pub fn translate(&self, source: &TopicPartition, upstream: i64) -> Option<i64> {
        let syncs = self.partitions.get(source)?;
        let &(at, downstream) = syncs.iter().find(|(at, _)| *at <= upstream)?;
        Some(if at == upstream { downstream } else { downstream + 1 })
    }

    /// Partitions of which there is a sync.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }
}

/// The distinct syncs that are kept of a partition, newest first.
fn kept(all: &[Sync]) -> Vec<Sync> {
    let Some((&first, rest)) = all.split_first() else { return Vec::new() };
    let mut syncs = [first; SYNCS_MAX];
    for &sync in rest {
        update(&mut syncs, sync);
    }
    let mut distinct = syncs.to_vec();
    distinct.dedup();
    distinct
}

/// `updateSyncArray`. Two syncs are the same when they are equal: the original compares objects, and the same pair twice in
/// a row makes no difference to it.
fn update(syncs: &mut [Sync; SYNCS_MAX], new: Sync) {
    // The source has gone back: everything from before is void.
    if new.0 < syncs[0].0 {
        *syncs = [new; SYNCS_MAX];
        return;
    }
    let original = *syncs;
    let mut replacement = new;
    let mut next_old = 0;
    syncs[0] = new;
    for current in 1..SYNCS_MAX {
        let previous = current - 1;
        loop {
            let old = original[next_old];
            let is_recent = invariant_b(syncs[previous], old, previous, current);
            let separated_from_previous = invariant_c(syncs[previous], old, previous);
            let next = current + 1;
            let separated_from_next = next >= SYNCS_MAX || invariant_c(old, syncs[next], current);
            let is_duplicate = original.get(next_old + 1) == Some(&old);
            let promoted = is_recent && separated_from_previous && separated_from_next;
            if promoted {
                replacement = old;
            }
            let skip = is_duplicate || !separated_from_previous;
            if promoted || skip {
                next_old += 1;
            }
            if next_old >= current || !skip {
                break;
            }
        }
        // When B holds here it holds for all that are older.
        if invariant_b(syncs[previous], syncs[current], previous, current) {
            break;
        }
        syncs[current] = replacement;
    }
}

fn invariant_b(newer: Sync, older: Sync, i: usize, j: usize) -> bool {
    let bound = older.0.wrapping_add(1_i64.wrapping_shl(j as u32)).wrapping_sub(1_i64.wrapping_shl(i as u32));
    newer == older || bound < 0 || newer.0 <= bound
}

fn invariant_c(newer: Sync, older: Sync, i: usize) -> bool {
    let bound = older.0.wrapping_add(1_i64.wrapping_shl(i.saturating_sub(2) as u32));
    newer == older || (bound >= 0 && newer.0 >= bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `protocol-tests/vectors/java/mm2_records.json` was recorded from connect-mirror 4.3.1 by `Mm2RecordVectors.java`
    /// beside it.
    #[test]
    fn translation_is_mirror_makers() {
        let vectors = include_str!("../../../protocol-tests/vectors/java/mm2_records.json");
        let vectors: serde_json::Value = serde_json::from_str(vectors).unwrap();
        let pairs = |value: &serde_json::Value| -> Vec<(i64, i64)> {
            let pair = |pair: &serde_json::Value| (pair[0].as_i64().unwrap(), pair[1].as_i64().unwrap());
            value.as_array().unwrap().iter().map(pair).collect()
        };
        let source = TopicPartition::new("t", 0);
        let mut checked = 0;
        for store in vectors["stores"].as_array().unwrap() {
            // The original goes on with all syncs once it has read to the end; ours ends there.
            if store["must_read_to_end"].as_bool().unwrap() {
                continue;
            }
            let syncs = pairs(&store["syncs"]).into_iter().map(|(upstream, downstream)| OffsetSync {
                source: source.clone(),
                upstream,
                downstream,
            });
            let ours = SyncStore::load(syncs, History::Whole);
            for (upstream, expected) in pairs(&store["translated"]) {
                let expected = (expected >= 0).then_some(expected);
                assert_eq!(ours.translate(&source, upstream), expected, "{upstream} in {store}");
                checked += 1;
            }
        }
        assert!(checked > 500);
    }

    #[test]
    fn only_the_last_sync_counts_when_checkpoints_are_unknown() {
        let sync =
            |upstream, downstream| OffsetSync { source: TopicPartition::new("t", 0), upstream, downstream };
        let syncs = [sync(10, 1), sync(500, 2)];
        let source = TopicPartition::new("t", 0);
        let whole = SyncStore::load(syncs.clone(), History::Whole);
        let last = SyncStore::load(syncs, History::LastOnly);
        for (upstream, of_whole, of_last) in [
            (9, None, None),
            (10, Some(1), None),
            (499, Some(2), None),
            (500, Some(2), Some(2)),
            (501, Some(3), Some(3)),
        ] {
            assert_eq!(whole.translate(&source, upstream), of_whole, "{upstream}");
            assert_eq!(last.translate(&source, upstream), of_last, "{upstream}");
        }
        assert_eq!(whole.translate(&TopicPartition::new("u", 0), 10), None);
    }
}

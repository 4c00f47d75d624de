//! Which offset syncs to emit. Pure.
//!
//! MirrorMaker's writer (`OffsetSyncWriter.java`) looks at every record: a sync is due with the first record, after a gap of
//! source offsets, when the target's log went back, and when the newest sync lies `offset.lag.max` behind; otherwise the
//! newest record waits for the next flush. Its readers keep 64 syncs that thin out exponentially towards the past
//! ([`super::super::mm2::sync_store`]), and translate to one past a sync at most.
//!
//! Here whole stretches of records are known at once, so a round emits what such a reader can keep: the newest record, the
//! records `offset.lag.max`, twice, four times … as far back, down to the last sync, and the last record before and the
//! first one behind each gap, as many as the reader gains from. A sync counts when it is acknowledged.

use std::collections::BTreeMap;

use crate::mirror::mm2::formats::OffsetSync;
use crate::mirror::offset_map::OffsetMap;
use crate::mirror::state::TopicPartition;

/// Gaps of one partition that a round marks, the newest ones.
const GAPS_MAX: usize = 16;
/// Syncs of one round; beyond it partitions get their newest record only.
const ROUND_SYNCS_MAX: usize = 20_000;

/// When a round may emit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// What lies too far behind.
    Tick,
    /// Everything that has changed.
    Flush,
}

/// What is known to be in the topic, by partition.
#[derive(Clone, Debug)]
pub struct SyncPlan {
    offset_lag_max: i64,
    acknowledged: BTreeMap<TopicPartition, (i64, i64)>,
}

impl SyncPlan {
    /// With nothing acknowledged yet; `offset_lag_max` in records.
    pub fn new(offset_lag_max: i64) -> SyncPlan {
        SyncPlan { offset_lag_max: offset_lag_max.max(1), acknowledged: BTreeMap::new() }
    }

    /// Adds the syncs that are due for a partition whose map has changed; `false` when it has to be looked at again, at the
    /// latest with the next flush.
    pub fn due(
        &self,
        source: &TopicPartition,
        map: &OffsetMap,
        occasion: Occasion,
        round: &mut Vec<OffsetSync>,
    ) -> bool {
        let Some(newest) = map.record_before(i64::MAX) else { return true };
        let last = self.acknowledged.get(source).copied().filter(|last| !is_replaced(*last, newest));
        if last == Some(newest) {
            return true;
        }
        let is_due = match last {
            None => true,
            Some((upstream, downstream)) => {
                newest.1 - (downstream + 1) >= self.offset_lag_max || has_gap(map, upstream)
            }
        };
        if !is_due && occasion == Occasion::Tick {
            return false;
        }
        let mut syncs = vec![newest];
        if round.len() < ROUND_SYNCS_MAX {
            syncs.extend(self.spaced(map, newest, last));
            syncs.extend(around_gaps(map, last));
        }
        syncs.sort_unstable();
        syncs.dedup();
        let source = |(upstream, downstream)| OffsetSync { source: source.clone(), upstream, downstream };
        round.extend(syncs.into_iter().map(source));
        true
    }

    /// A round is in the topic.
    pub fn acknowledged(&mut self, round: &[OffsetSync]) {
        for sync in round {
            self.acknowledged.insert(sync.source.clone(), (sync.upstream, sync.downstream));
        }
    }

    /// Records at growing distances behind the newest one, down to the last sync.
    fn spaced(&self, map: &OffsetMap, newest: (i64, i64), last: Option<(i64, i64)>) -> Vec<(i64, i64)> {
        let first = map.segments().next().map_or(newest.0, |segment| segment.upstream);
        let least = last.map_or(first, |(upstream, _)| upstream + 1);
        let mut distance = self.offset_lag_max;
        let mut syncs = Vec::new();
        while let Some(upstream) = newest.0.checked_sub(distance).filter(|upstream| *upstream >= least) {
            syncs.extend(map.record_before(upstream + 1).filter(|sync| sync.0 >= least));
            distance = distance.saturating_mul(2);
        }
        // Without a sync yet, nothing before the first one can ever be translated.
        syncs.extend(map.record_before(least + 1).filter(|_| last.is_none()));
        syncs
    }
}

/// The log that `last` speaks of is another one than now: a sync of an earlier source offset makes readers forget the rest.
fn is_replaced(last: (i64, i64), newest: (i64, i64)) -> bool {
    newest.0 < last.0 || newest.1 < last.1
}

fn has_gap(map: &OffsetMap, upstream: i64) -> bool {
    map.segments().next_back().is_some_and(|last| last.record_count > 0 && last.upstream > upstream + 1)
}

/// The edges of the gaps behind the last sync, the newest ones.
fn around_gaps(map: &OffsetMap, last: Option<(i64, i64)>) -> Vec<(i64, i64)> {
    let least = last.map_or(i64::MIN, |(upstream, _)| upstream + 1);
    let newer = map.segments().rev().take_while(|segment| segment.upstream + segment.record_count > least);
    let edges = newer.take(GAPS_MAX).filter(|segment| segment.record_count > 0).flat_map(|segment| {
        let end = segment.record_count - 1;
        [(segment.upstream, segment.downstream), (segment.upstream + end, segment.downstream + end)]
    });
    edges.filter(|(upstream, _)| *upstream >= least).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::mm2::sync_store::{History, SyncStore};
    use crate::mirror::offset_map::Segment;

    fn map(segments: &[(i64, i64, i64)]) -> OffsetMap {
        let mut map = OffsetMap::default();
        for &(upstream, downstream, record_count) in segments {
            map.push(Segment { upstream, downstream, record_count }, 256);
        }
        map
    }

    fn source() -> TopicPartition {
        TopicPartition::new("t", 0)
    }

    /// The syncs of one round, and whether the partition is done with.
    fn round(plan: &SyncPlan, map: &OffsetMap, occasion: Occasion) -> (Vec<(i64, i64)>, bool) {
        let mut syncs = Vec::new();
        let done = plan.due(&source(), map, occasion, &mut syncs);
        (syncs.iter().map(|sync| (sync.upstream, sync.downstream)).collect(), done)
    }

    fn acknowledge(plan: &mut SyncPlan, (upstream, downstream): (i64, i64)) {
        plan.acknowledged(&[OffsetSync { source: source(), upstream, downstream }]);
    }

    #[test]
    fn the_first_record_and_growing_distances_are_emitted() {
        let plan = SyncPlan::new(100);
        let (syncs, done) = round(&plan, &map(&[(10, 0, 1_000)]), Occasion::Tick);
        assert_eq!(syncs, [(10, 0), (209, 199), (609, 599), (809, 799), (909, 899), (1009, 999)]);
        assert!(done);
        assert_eq!(round(&plan, &map(&[(10, 0, 1)]), Occasion::Tick).0, [(10, 0)]);
        assert_eq!(round(&plan, &OffsetMap::default(), Occasion::Flush), (vec![], true));
    }

    /// KAFKA-14797, KAFKA-15906: too far behind at once, otherwise with the flush.
    #[test]
    fn a_small_advance_waits_for_the_flush() {
        let mut plan = SyncPlan::new(100);
        acknowledge(&mut plan, (9, 9));
        assert_eq!(round(&plan, &map(&[(0, 0, 10)]), Occasion::Flush), (vec![], true));
        assert_eq!(round(&plan, &map(&[(0, 0, 110)]), Occasion::Tick), (vec![], false));
        assert_eq!(round(&plan, &map(&[(0, 0, 110)]), Occasion::Flush), (vec![(109, 109)], true));
        assert_eq!(round(&plan, &map(&[(0, 0, 111)]), Occasion::Tick), (vec![(10, 10), (110, 110)], true));
        // A gap of source offsets is due at once.
        let gap = map(&[(0, 0, 10), (12, 10, 3)]);
        assert_eq!(round(&plan, &gap, Occasion::Tick), (vec![(12, 10), (14, 12)], true));
    }

    #[test]
    fn a_log_that_was_replaced_begins_anew() {
        let mut plan = SyncPlan::new(100);
        acknowledge(&mut plan, (500, 500));
        assert_eq!(round(&plan, &map(&[(0, 501, 4)]), Occasion::Tick), (vec![(0, 501), (3, 504)], true));
        assert_eq!(round(&plan, &map(&[(501, 0, 2)]), Occasion::Tick), (vec![(501, 0), (502, 1)], true));
    }

    /// What MirrorMaker's reader makes of ours after a roll-back is close near the end, and never too far.
    #[test]
    fn mirror_makers_reader_translates_well_by_ours() {
        let mut plan = SyncPlan::new(100);
        let (mut written, mut segments) = (Vec::new(), Vec::new());
        // A transaction of 49 records and its marker, over and over, looked at every 20 transactions.
        for n in 0..2_000_i64 {
            segments.push((n * 50, n * 49, 49));
            if n % 20 == 19 {
                let mut syncs = Vec::new();
                plan.due(&source(), &map(&segments), Occasion::Tick, &mut syncs);
                plan.acknowledged(&syncs);
                written.extend(syncs);
            }
        }
        let store = SyncStore::load(written, History::Whole);
        for behind in [0, 1, 10, 100, 1_000, 10_000, 50_000] {
            let asked = 100_000 - behind;
            let exact = (asked / 50) * 49 + (asked % 50).min(49);
            let theirs = store.translate(&source(), asked).unwrap();
            assert!(theirs <= exact, "{theirs} for {asked} skips records before {exact}");
            assert!(exact - theirs <= 2 * behind + 100, "{theirs} for {asked} is far before {exact}");
        }
    }
}

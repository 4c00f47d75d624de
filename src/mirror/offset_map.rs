//! Which target offsets the records of a source partition got.
//!
//! A list of segments, oldest first: source offsets `upstream..upstream + record_count` are target offsets
//! `downstream..downstream + record_count`. Both sides ascend. Source offsets between segments have no record on the target
//! (markers, compaction, records left out), or are no longer remembered. Neighbours that continue each other are one
//! segment, so an ordinary topic needs a single one.
//!
//! What is copied again (after a crash, or because somebody set the position back) counts as its newest copy: the older
//! part of the map that it covers is cut off, so that a reader who goes on there reads nothing twice and skips nothing.
//!
//! The list is bounded: when it is full every other one of its older segments is dropped. A reader whose offset lay in one
//! of them goes on behind the segment before, reads records again and skips none. The first segment is always kept.

use std::collections::VecDeque;

/// Source offsets and the target offsets of their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First source offset.
    pub upstream: i64,
    /// First target offset.
    pub downstream: i64,
    /// Records, each one offset on either side; 0 where only a position is known.
    pub record_count: i64,
}

/// Where a reader goes on on the target; beyond what is acknowledged there it never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Translated {
    /// Somewhere at or behind this offset: no record that is not read yet lies before it.
    AtLeast(i64),
    /// Exactly here.
    Exact(i64),
}

impl Translated {
    /// The offset.
    pub fn offset(self) -> i64 {
        match self {
            Translated::AtLeast(offset) | Translated::Exact(offset) => offset,
        }
    }
}

/// The offset map of one source partition.
#[derive(Clone, Debug, Default)]
pub struct OffsetMap {
    segments: VecDeque<Segment>,
    /// Every source record from here on is on the target, or will be, at or behind the first segment.
    complete_from: Option<i64>,
}

impl Segment {
    fn upstream_end(&self) -> i64 {
        self.upstream + self.record_count
    }

    fn downstream_end(&self) -> i64 {
        self.downstream + self.record_count
    }

    fn is_behind(&self, before: &Segment) -> bool {
        self.upstream >= before.upstream_end() && self.downstream >= before.downstream_end()
    }
}

impl OffsetMap {
    /// What was remembered in an earlier life, in any order; the copy with the greater target offset is the newer one.
    pub fn restore(mut segments: Vec<Segment>, segments_max: usize) -> OffsetMap {
        segments.sort_by_key(|segment| (segment.downstream, segment.upstream));
        let mut map = OffsetMap::default();
        for segment in segments {
            map.push(segment, segments_max);
        }
        map
    }

    /// Copying goes on at `upstream`; with `downstream` it is known that its record will lie there or behind.
    pub fn begin_at(&mut self, upstream: i64, downstream: Option<i64>, segments_max: usize) {
        if self.segments.is_empty() {
            self.complete_from = Some(upstream);
        }
        let Some(downstream) = downstream else { return };
        let position = Segment { upstream, downstream, record_count: 0 };
        if self.segments.back().is_none_or(|last| position.is_behind(last)) {
            self.push(position, segments_max);
        }
    }

    /// Adds records that the target acknowledged.
    pub fn push(&mut self, added: Segment, segments_max: usize) {
        while let Some(last) = self.segments.back_mut() {
            if added.upstream == last.upstream_end() && added.downstream == last.downstream_end() {
                last.record_count += added.record_count;
                return;
            }
            if added.is_behind(last) {
                break;
            }
            let kept = (added.upstream - last.upstream).min(added.downstream - last.downstream);
            if kept > 0 {
                last.record_count = last.record_count.min(kept);
            } else {
                self.segments.pop_back();
            }
        }
        if self.segments.len() >= segments_max.max(4) {
            self.thin();
        }
        self.segments.push_back(added);
    }

    /// Where a reader goes on that would read source offset `upstream` next; `None` where the map does not reach back.
    pub fn translate(&self, upstream: i64) -> Option<Translated> {
        let index = self.segments.partition_point(|segment| segment.upstream <= upstream);
        let Some(segment) = index.checked_sub(1).and_then(|index| self.segments.get(index)) else {
            let first = self.segments.front()?;
            let reaches_back = self.complete_from.is_some_and(|from| from <= upstream);
            return reaches_back.then_some(Translated::Exact(first.downstream));
        };
        let into = upstream - segment.upstream;
        Some(if into <= segment.record_count {
            Translated::Exact(segment.downstream + into)
        } else {
            Translated::AtLeast(segment.downstream_end())
        })
    }

    /// Source and target offset of the last record before source offset `upstream` that the map knows.
    pub fn record_before(&self, upstream: i64) -> Option<(i64, i64)> {
        let index = self.segments.partition_point(|segment| segment.upstream < upstream);
        let mut before = self.segments.range(..index).rev().filter(|segment| segment.record_count > 0);
        let segment = before.next()?;
        let into = (upstream - 1 - segment.upstream).min(segment.record_count - 1);
        Some((segment.upstream + into, segment.downstream + into))
    }

    /// The segments, oldest first.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &Segment> + ExactSizeIterator {
        self.segments.iter()
    }

    fn thin(&mut self) {
        let older = self.segments.len() - self.segments.len() / 4;
        let mut index = 0;
        self.segments.retain(|_| {
            let keep = index == 0 || index >= older || index % 2 == 0;
            index += 1;
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Translated::{AtLeast, Exact};
    use super::*;

    const MAX: usize = 8;

    fn segment((upstream, downstream, record_count): (i64, i64, i64)) -> Segment {
        Segment { upstream, downstream, record_count }
    }

    fn map(segments: &[(i64, i64, i64)]) -> OffsetMap {
        let mut map = OffsetMap::default();
        segments.iter().for_each(|&added| map.push(segment(added), MAX));
        map
    }

    #[test]
    fn neighbours_become_one_segment_and_gaps_two() {
        let map = map(&[(0, 100, 5), (5, 105, 5), (12, 110, 2)]);
        assert_eq!(map.segments().count(), 2);
        for (upstream, want) in [
            (0, Exact(100)),
            (7, Exact(107)),
            (10, Exact(110)),
            (11, AtLeast(110)),
            (12, Exact(110)),
            (13, Exact(111)),
            (14, Exact(112)),
            (99, AtLeast(112)),
        ] {
            assert_eq!(map.translate(upstream), Some(want), "{upstream}");
        }
    }

    #[test]
    fn what_lies_before_the_beginning_is_not_translated() {
        let mut map = OffsetMap::default();
        map.begin_at(5, None, MAX);
        assert_eq!((map.translate(4), map.translate(5)), (None, None));
        map.push(segment((7, 20, 3)), MAX);
        assert_eq!((map.translate(4), map.translate(5)), (None, Some(Exact(20))));

        let mut known = OffsetMap::default();
        known.begin_at(5, Some(40), MAX);
        assert_eq!((known.translate(4), known.translate(5)), (None, Some(Exact(40))));
        assert_eq!((known.translate(6), known.record_before(9)), (Some(AtLeast(40)), None));
        known.push(segment((5, 40, 2)), MAX);
        assert_eq!((known.translate(6), known.segments().count()), (Some(Exact(41)), 1));
    }

    /// After a crash the records from the stored position on are copied again.
    #[test]
    fn the_newest_copy_counts() {
        let map = map(&[(0, 0, 100), (80, 100, 5)]);
        for (upstream, want) in
            [(50, Exact(50)), (79, Exact(79)), (80, Exact(100)), (84, Exact(104)), (90, AtLeast(105))]
        {
            assert_eq!(map.translate(upstream), Some(want), "{upstream}");
        }
        // A target log that was cut short: what lay behind is not there any more.
        let map = super::tests::map(&[(0, 0, 100), (100, 60, 5)]);
        assert_eq!((map.translate(59), map.translate(70)), (Some(Exact(59)), Some(AtLeast(60))));
        assert_eq!(map.translate(101), Some(Exact(61)));
        let restored = OffsetMap::restore(vec![segment((0, 100, 5)), segment((0, 0, 80))], MAX);
        assert_eq!(restored.segments().copied().collect::<Vec<_>>(), [segment((0, 100, 5))]);
    }

    #[test]
    fn a_full_map_thins_out_and_stays_safe() {
        let segments: Vec<_> = (0..100).map(|n| (n * 10, n * 3, 3)).collect();
        let map = map(&segments);
        assert!(map.segments().count() <= MAX);
        assert_eq!(map.translate(1), Some(Exact(1)));
        assert_eq!(map.translate(992), Some(Exact(299)));
        for upstream in 0..1_000 {
            let exact = (upstream / 10) * 3 + (upstream % 10).min(3);
            let translated = map.translate(upstream).unwrap();
            assert!(translated.offset() <= exact, "{upstream}: {translated:?}, not {exact}");
            assert!(matches!(translated, AtLeast(_)) || translated.offset() == exact);
        }
    }

    #[test]
    fn the_record_before_an_offset_is_found_over_gaps() {
        let map = map(&[(0, 100, 5), (12, 105, 2)]);
        for (upstream, want) in [
            (0, None),
            (1, Some((0, 100))),
            (5, Some((4, 104))),
            (12, Some((4, 104))),
            (13, Some((12, 105))),
            (99, Some((13, 106))),
        ] {
            assert_eq!(map.record_before(upstream), want, "{upstream}");
        }
    }

    proptest! {
        /// Whatever is copied, skipped and copied again: a reader who goes on at the translated offset meets every record
        /// from its own offset on, at its newest copy or before.
        #[test]
        fn no_unread_record_lies_before_the_translation(
            steps in prop::collection::vec((0_i64..4, 1_i64..6, 0_i64..3, prop::option::weighted(0.1, 1_i64..20)), 1..60),
        ) {
            let mut map = OffsetMap::default();
            map.begin_at(0, Some(0), MAX);
            let (mut upstream, mut downstream) = (0, 0);
            let mut newest = std::collections::BTreeMap::new();
            for (skipped, count, foreign, back) in steps {
                if let Some(back) = back {
                    upstream = (upstream - back).max(0);
                }
                // What is left out now is no longer there at the source.
                newest.retain(|record, _| !(upstream..upstream + skipped).contains(record));
                upstream += skipped;
                downstream += foreign;
                map.push(segment((upstream, downstream, count)), MAX);
                for n in 0..count {
                    newest.insert(upstream + n, downstream + n);
                }
                upstream += count;
                downstream += count;
                for asked in 0..upstream {
                    let Some(translated) = map.translate(asked) else { continue };
                    prop_assert!(translated.offset() <= downstream);
                    if let Some((record, at)) = newest.range(asked..upstream).next() {
                        prop_assert!(translated.offset() <= *at, "{} for {}, {} is at {}", translated.offset(), asked, record, at);
                    }
                }
            }
        }
    }
}

//! Which target offsets the records of a source partition got.
//!
//! A list of segments, oldest first: source offsets `upstream..upstream + record_count` are target offsets
//! `downstream..downstream + record_count`. Offsets between segments have no record on the target (markers, compaction,
//! records left out). Neighbours that continue each other are one segment, so an ordinary topic needs a single one.
//! The list is bounded; what falls off its front is no longer known.

use std::collections::VecDeque;

/// Source offsets and the target offsets of their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First source offset.
    pub upstream: i64,
    /// First target offset.
    pub downstream: i64,
    /// Records, each one offset on either side.
    pub record_count: i64,
}

/// The offset map of one source partition.
#[derive(Clone, Debug)]
pub struct OffsetMap {
    segments: VecDeque<Segment>,
    segments_max: usize,
}

impl OffsetMap {
    /// An empty map of at most this many segments.
    pub fn new(segments_max: usize) -> OffsetMap {
        OffsetMap { segments: VecDeque::new(), segments_max: segments_max.max(1) }
    }

    /// Adds records that the target acknowledged. A step back on either side forgets everything: that log was replaced.
    pub fn push(&mut self, added: Segment) {
        if let Some(last) = self.segments.back_mut() {
            let upstream_end = last.upstream + last.record_count;
            let downstream_end = last.downstream + last.record_count;
            if added.upstream == upstream_end && added.downstream == downstream_end {
                last.record_count += added.record_count;
                return;
            }
            if added.upstream < upstream_end || added.downstream < downstream_end {
                self.segments.clear();
            }
        }
        if self.segments.len() == self.segments_max {
            self.segments.pop_front();
        }
        self.segments.push_back(added);
    }

    /// The target offset at which a reader goes on that would read source offset `upstream` next: exact for what the
    /// map remembers, `None` below it, and never beyond what is on the target.
    pub fn translate(&self, upstream: i64) -> Option<i64> {
        let index = self.segments.partition_point(|segment| segment.upstream <= upstream);
        let segment = self.segments.get(index.checked_sub(1)?)?;
        Some(segment.downstream + (upstream - segment.upstream).min(segment.record_count))
    }

    /// The segments, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(segments: &[(i64, i64, i64)]) -> OffsetMap {
        let mut map = OffsetMap::new(3);
        for &(upstream, downstream, record_count) in segments {
            map.push(Segment { upstream, downstream, record_count });
        }
        map
    }

    #[test]
    fn neighbours_become_one_segment_and_gaps_two() {
        let map = map(&[(0, 100, 5), (5, 105, 5), (12, 110, 2)]);
        assert_eq!(map.segments().count(), 2);
        for (upstream, want) in
            [(0, 100), (7, 107), (10, 110), (11, 110), (12, 110), (13, 111), (14, 112), (99, 112)]
        {
            assert_eq!(map.translate(upstream), Some(want), "{upstream}");
        }
    }

    #[test]
    fn what_is_forgotten_is_not_translated() {
        let map = map(&[(0, 0, 1), (10, 1, 1), (20, 2, 1), (30, 3, 1)]);
        assert_eq!((map.translate(9), map.translate(10)), (None, Some(1)));
        assert_eq!(OffsetMap::new(4).translate(0), None);
    }

    #[test]
    fn a_step_back_forgets_the_replaced_log() {
        let map = map(&[(0, 0, 10), (4, 10, 2)]);
        assert_eq!((map.translate(3), map.translate(5)), (None, Some(11)));
    }
}

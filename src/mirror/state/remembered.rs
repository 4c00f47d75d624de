//! What the records of both topics say together: where each partition stands, and how the flow began.
//!
//! Pure: `store` feeds it records as they come, in the order of their offsets within each partition of a topic.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::TopicPartition;
use super::mm2_offsets::{Mm2Offset, Mm2Offsets};
use super::records::{
    self, Baseline, Decoded, FlowStart, Gap, Owner, Position, ProducerRecord, Segment, StateKey, StateRecord,
};

/// Kinds and versions of later builds that one warning names at most.
const UNKNOWN_MAX: usize = 16;

/// All that a flow remembers.
#[derive(Clone, Debug, Default)]
pub struct Remembered {
    /// How the flow began; `None` until its first start is complete.
    pub flow_start: Option<FlowStart>,
    /// The producer of the shard.
    pub producer: Option<ProducerRecord>,
    /// By source partition.
    pub partitions: BTreeMap<TopicPartition, RememberedPartition>,
    /// Records that could not be read, in both topics.
    pub unreadable: u64,
    /// What a later version of kmirror has written and this one passes over.
    pub unknown: BTreeSet<String>,
}

/// What is remembered of a source partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RememberedPartition {
    /// MirrorMaker's word.
    pub mm2: Option<Mm2Offset>,
    /// Our own position.
    pub position: Option<Position>,
    /// Where it began.
    pub baseline: Option<Baseline>,
    /// Its gaps by their first offset.
    pub gaps: BTreeMap<i64, Gap>,
    /// Its offset map by the first source offset of each segment.
    pub segments: BTreeMap<i64, Segment>,
}

/// Where a partition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing is known of it.
    Unknown,
    /// Somebody took MirrorMaker's offset back: it begins as a partition of a flow's first start does.
    Reset,
    /// Its beginning is fixed, nothing has been copied yet.
    Baseline(Baseline),
    /// Only a source offset is known, the next one to copy: MirrorMaker wrote last.
    Offset(i64),
    /// Both offsets are known.
    Pair(Position),
}

impl RememberedPartition {
    /// Where it stands. MirrorMaker's offset wins where the two disagree, and our pair is then void.
    pub fn standing(&self) -> Standing {
        let Some(mm2) = self.mm2 else {
            return match (self.position, self.baseline) {
                (Some(pair), _) => Standing::Pair(pair),
                (None, Some(begin)) => Standing::Baseline(begin),
                (None, None) => Standing::Unknown,
            };
        };
        let Mm2Offset::Last(last) = mm2 else { return Standing::Reset };
        let next = last.saturating_add(1);
        match (self.position, self.baseline) {
            (Some(pair), _) if pair.upstream == next => Standing::Pair(pair),
            (_, Some(begin)) if begin.upstream == next => Standing::Baseline(begin),
            _ if last < 0 => Standing::Reset,
            _ => Standing::Offset(next),
        }
    }
}

impl Remembered {
    /// Whether nobody has replicated this flow before, or a first start was cut off before all its baselines were
    /// stored. A MirrorMaker that has stored offsets was here before.
    pub fn is_first_start(&self) -> bool {
        let by_mirror_maker = |partition: &RememberedPartition| {
            matches!(partition.standing(), Standing::Offset(_)) && partition.baseline.is_none()
        };
        self.flow_start.is_none() && !self.partitions.values().any(by_mirror_maker)
    }

    /// Where a partition stands.
    pub fn standing(&self, source: &TopicPartition) -> Standing {
        self.partitions.get(source).map_or(Standing::Unknown, RememberedPartition::standing)
    }

    /// Takes in what MirrorMaker's topic says.
    pub fn apply_mm2(&mut self, offsets: &Mm2Offsets) {
        for (source, offset) in offsets.newest() {
            self.partitions.entry(source.clone()).or_default().mm2 = Some(offset);
        }
        self.unreadable += offsets.unreadable();
    }

    /// Takes in a record of our own topic; those of other owners are passed over.
    pub fn apply_record(&mut self, owner: &Owner, key: &Bytes, value: Option<&[u8]>) {
        match records::decode(key, value) {
            Ok(Decoded::Known(of, record)) if of == *owner => self.remember(record),
            Ok(Decoded::Removed(of, key)) if of == *owner => self.forget(&key),
            Ok(Decoded::Known(..) | Decoded::Removed(..)) => {}
            Ok(Decoded::Unknown(what)) => {
                if self.unknown.len() < UNKNOWN_MAX {
                    self.unknown.insert(what);
                }
            }
            Err(_) => self.unreadable += 1,
        }
    }

    /// A record was stored.
    pub fn stored(&mut self, record: StateRecord) {
        self.remember(record);
    }

    /// All of it as records, as far as it is about topics that `selects` names; of several for one key the last counts. A
    /// pair that MirrorMaker's word has made void is left out.
    pub fn records(&self, selects: impl Fn(&str) -> bool) -> Vec<StateRecord> {
        let mut records = Vec::new();
        for (source, of) in self.partitions.iter().filter(|(source, _)| selects(&source.topic)) {
            let source = || source.clone();
            let standing = of.standing();
            if let (Some(baseline), Standing::Baseline(_) | Standing::Pair(_)) = (of.baseline, standing) {
                records.push(StateRecord::Baseline(source(), baseline));
            }
            if let Standing::Pair(position) = standing {
                records.push(StateRecord::Position(source(), position));
            }
            records.extend(of.gaps.values().map(|gap| StateRecord::Gap(source(), gap.clone())));
            records.extend(of.segments.values().map(|one| StateRecord::Segment(source(), one.clone())));
        }
        records.extend(self.producer.map(StateRecord::Producer));
        records.extend(self.flow_start.clone().map(StateRecord::FlowStart));
        records
    }

    /// An offset was stored in MirrorMaker's topic.
    pub fn stored_mm2(&mut self, source: &TopicPartition, last_offset: i64) {
        self.partition(source.clone()).mm2 = Some(Mm2Offset::Last(last_offset));
    }

    fn remember(&mut self, record: StateRecord) {
        match record {
            StateRecord::FlowStart(start) => self.flow_start = Some(start),
            StateRecord::Producer(producer) => self.producer = Some(producer),
            StateRecord::Position(source, position) => self.partition(source).position = Some(position),
            StateRecord::Baseline(source, baseline) => self.partition(source).baseline = Some(baseline),
            StateRecord::Gap(source, gap) => {
                self.partition(source).gaps.insert(gap.from, gap);
            }
            StateRecord::Segment(source, segment) => {
                if let Some(first) = segment.spans.first().map(|span| span.upstream) {
                    self.partition(source).segments.insert(first, segment);
                }
            }
        }
    }

    fn forget(&mut self, key: &StateKey) {
        match key {
            StateKey::FlowStart => self.flow_start = None,
            StateKey::Producer => self.producer = None,
            StateKey::Position(source) => self.partition(source.clone()).position = None,
            StateKey::Baseline(source) => self.partition(source.clone()).baseline = None,
            StateKey::Gap(source, from) => {
                self.partition(source.clone()).gaps.remove(from);
            }
            StateKey::Segment(source, upstream) => {
                self.partition(source.clone()).segments.remove(upstream);
            }
        }
    }

    fn partition(&mut self, source: TopicPartition) -> &mut RememberedPartition {
        self.partitions.entry(source).or_default()
    }
}

/// The owner of a flow's records while a flow has one shard.
pub fn owner(target: &Arc<str>) -> Owner {
    Owner { target: Arc::clone(target), shard: 0 }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn pair(upstream: i64) -> Position {
        Position {
            source_topic_id: Uuid::from_u128(1),
            target_topic_id: Uuid::from_u128(2),
            upstream,
            downstream: 7,
            leader_epoch: 0,
            producer_id: 1,
            producer_epoch: 0,
            at_ms: 0,
        }
    }

    fn baseline(upstream: i64) -> Baseline {
        Baseline { source_topic_id: Uuid::from_u128(1), upstream, at_ms: 0 }
    }

    #[test]
    fn mirror_makers_offset_wins_and_voids_our_pair() {
        let check = |mm2, position, baseline, expected| {
            let partition = RememberedPartition { mm2, position, baseline, ..Default::default() };
            assert_eq!(partition.standing(), expected, "{partition:?}");
        };
        let last = |offset| Some(Mm2Offset::Last(offset));
        check(None, None, None, Standing::Unknown);
        check(last(9), Some(pair(10)), Some(baseline(0)), Standing::Pair(pair(10)));
        check(last(12), Some(pair(10)), Some(baseline(0)), Standing::Offset(13));
        check(last(3), Some(pair(10)), None, Standing::Offset(4));
        check(last(9), None, None, Standing::Offset(10));
        check(last(9), None, Some(baseline(10)), Standing::Baseline(baseline(10)));
        check(None, None, Some(baseline(0)), Standing::Baseline(baseline(0)));
        check(None, Some(pair(10)), None, Standing::Pair(pair(10)));
        check(last(499), Some(pair(10)), Some(baseline(500)), Standing::Baseline(baseline(500)));
        check(last(-1), Some(pair(0)), None, Standing::Pair(pair(0)));
        check(last(-1), Some(pair(10)), Some(baseline(0)), Standing::Baseline(baseline(0)));
        check(last(-1), Some(pair(10)), Some(baseline(3)), Standing::Reset);
        check(Some(Mm2Offset::Reset), Some(pair(10)), Some(baseline(0)), Standing::Reset);
        check(last(i64::MAX), None, None, Standing::Offset(i64::MAX));
    }

    #[test]
    fn a_first_start_is_over_when_its_mark_is_stored_or_mirror_maker_was_here() {
        let t = |n| TopicPartition::new("t", n);
        let mut remembered = Remembered::default();
        assert!(remembered.is_first_start());
        // A first start that was cut off: a baseline in both topics, and no mark.
        remembered.partition(t(0)).baseline = Some(baseline(500));
        remembered.partition(t(0)).mm2 = Some(Mm2Offset::Last(499));
        assert!(remembered.is_first_start());
        remembered.partition(t(1)).mm2 = Some(Mm2Offset::Last(3));
        assert!(!remembered.is_first_start());
        remembered.partitions.clear();
        remembered.flow_start = Some(FlowStart {
            at_ms: 0,
            source_cluster_id: Arc::from("a"),
            target_cluster_id: Arc::from("b"),
        });
        assert!(!remembered.is_first_start());
    }

    #[test]
    fn records_replace_and_remove_one_another_for_their_owner_alone() {
        let own = owner(&Arc::from("B"));
        let other = owner(&Arc::from("C"));
        let t0 = TopicPartition::new("t", 0);
        let gap =
            Gap { source_topic_id: Uuid::nil(), from: 3, to: 9, at_ms: 1, reason: Arc::from("retention") };
        let mut remembered = Remembered::default();
        let mut apply = |owner: &Owner, record: &StateRecord, value: bool| {
            let bytes = record.encode_value();
            remembered.apply_record(&own, &record.key().encode(owner), value.then_some(&bytes));
            remembered.partitions.get(&t0).cloned().unwrap_or_default()
        };
        let position = |upstream| StateRecord::Position(t0.clone(), pair(upstream));
        assert_eq!(apply(&own, &position(5), true).position, Some(pair(5)));
        assert_eq!(apply(&other, &position(6), true).position, Some(pair(5)));
        assert_eq!(apply(&own, &position(7), true).position, Some(pair(7)));
        assert_eq!(apply(&own, &position(7), false).position, None);
        let gap_record = StateRecord::Gap(t0.clone(), gap.clone());
        assert_eq!(apply(&own, &gap_record, true).gaps, BTreeMap::from([(3, gap)]));
        assert!(apply(&own, &gap_record, false).gaps.is_empty());
        remembered.apply_record(&own, &Bytes::from_static(b"\0\x09later"), Some(b"x"));
        remembered.apply_record(&own, &Bytes::from_static(b"\0"), Some(b"x"));
        assert_eq!(remembered.unknown.iter().collect::<Vec<_>>(), ["a key of version 9"]);
        assert_eq!(remembered.unreadable, 1);
    }
}

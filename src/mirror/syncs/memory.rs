//! Which offset maps are stored in `mm2-kmirror.<S>.internal`, and as what.
//!
//! A partition's whole map is one record, keyed by its first source offset, and bounded as the map is. It is stored when it
//! is there for the first time, then with the positions whenever it has changed and [`STORE_INTERVAL`] has passed, and at
//! a stop. What a crash loses of it costs readers records that they read again, no more: of source offsets between the end
//! of a stored map and the stored position nothing is claimed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;

use crate::client::PartitionKey;
use crate::mirror::engine::Engine;
use crate::mirror::offset_map::{self, OffsetMap};
use crate::mirror::state::TopicPartition;
use crate::mirror::state::records::{SEGMENT_SPANS_MAX, Segment, Span, StateRecord};

use super::Occasion;

/// Until a map that goes on changing is stored again.
const STORE_INTERVAL: Duration = Duration::from_secs(30);

/// What is stored of which map.
#[derive(Debug, Default)]
pub struct MapMemory {
    changed: BTreeSet<PartitionKey>,
    /// When it was stored last, and under which first source offset.
    stored: BTreeMap<PartitionKey, (Duration, i64)>,
    under_way: BTreeMap<PartitionKey, (Duration, i64)>,
}

impl MapMemory {
    /// A map has changed.
    pub fn note(&mut self, key: PartitionKey) {
        self.changed.insert(key);
    }

    /// The records that are to be stored now; `now` is the time since the flow's start.
    pub fn due(&mut self, engine: &Engine, occasion: Occasion, now: Duration) -> Vec<StateRecord> {
        let mut records = Vec::new();
        let changed = std::mem::take(&mut self.changed);
        for key in changed {
            let stored = self.stored.get(&key).copied();
            let is_recent = stored.is_some_and(|(at, _)| now.saturating_sub(at) < STORE_INTERVAL);
            if is_recent && occasion == Occasion::Tick {
                self.changed.insert(key);
                continue;
            }
            let (Some(position), Some(map)) = (engine.position_at(key), engine.offset_map(key)) else {
                continue;
            };
            let ids = (position.topic_id, position.remote_topic_id);
            let Some(segment) = segment_of(map, ids) else { continue };
            let first = segment.spans.first().map_or(0, |span| span.upstream);
            if let Some((_, before)) = stored.filter(|(_, before)| *before != first) {
                records.push(StateRecord::Segment(position.at(), void(before)));
            }
            records.push(StateRecord::Segment(position.at(), segment));
            self.under_way.insert(key, (now, first));
        }
        records
    }

    /// What was due last is stored.
    pub fn stored(&mut self) {
        self.stored.append(&mut self.under_way);
    }

    /// What was due last is not known to be stored.
    pub fn failed(&mut self) {
        self.changed.extend(std::mem::take(&mut self.under_way).into_keys());
    }

    /// Somebody else may write from now on: all is to be stored again.
    pub fn suspend(&mut self) {
        self.failed();
        self.changed.extend(std::mem::take(&mut self.stored).into_keys());
    }
}

/// What was stored of a partition's map, for these very topics.
pub fn spans_of<'a>(
    segments: impl Iterator<Item = &'a Segment>,
    source_topic_id: Uuid,
    target_topic_id: Uuid,
) -> Vec<offset_map::Segment> {
    segments
        .filter(|of| of.source_topic_id == source_topic_id && of.target_topic_id == target_topic_id)
        .flat_map(|of| &of.spans)
        .filter(|span| span.count > 0 && span.upstream.checked_add(span.count.into()).is_some())
        .filter(|span| span.downstream.checked_add(span.count.into()).is_some())
        .map(|span| offset_map::Segment {
            upstream: span.upstream,
            downstream: span.downstream,
            record_count: span.count.into(),
        })
        .collect()
}

/// `None` for a map without a record.
fn segment_of(map: &OffsetMap, (source_topic_id, target_topic_id): (Uuid, Uuid)) -> Option<Segment> {
    let mut spans = Vec::with_capacity(map.segments().len());
    for segment in map.segments() {
        let mut done = 0;
        while done < segment.record_count {
            let count = i32::try_from(segment.record_count - done).unwrap_or(i32::MAX);
            spans.push(Span {
                upstream: segment.upstream + done,
                downstream: segment.downstream + done,
                count,
            });
            done += i64::from(count);
        }
    }
    // The oldest go first; a map is bounded to fewer, but for spans of more than two billion records.
    let surplus = spans.len().saturating_sub(SEGMENT_SPANS_MAX);
    spans.drain(..surplus);
    (!spans.is_empty()).then_some(Segment { source_topic_id, target_topic_id, spans })
}

/// Takes the place of a record whose map begins elsewhere now; it speaks of no topic and no record.
fn void(first: i64) -> Segment {
    let spans = vec![Span { upstream: first, downstream: 0, count: 0 }];
    Segment { source_topic_id: Uuid::nil(), target_topic_id: Uuid::nil(), spans }
}

/// Names a partition in messages and records.
impl Engine {
    /// The source partition of a key.
    pub fn source_of(&self, key: PartitionKey) -> Option<TopicPartition> {
        self.position_at(key).map(|position| position.at())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::state::records::decode;
    use crate::mirror::state::{TopicPartition, owner};

    #[test]
    fn a_map_is_found_again_for_its_own_topics_only() {
        let segment =
            |upstream, downstream, record_count| offset_map::Segment { upstream, downstream, record_count };
        let map = OffsetMap::restore(vec![segment(0, 5, 10), segment(12, 15, 3_000_000_000)], 8);
        let ids = (Uuid::from_u128(1), Uuid::from_u128(2));
        let stored = segment_of(&map, ids).unwrap();
        assert_eq!(stored.spans.len(), 3);
        let record = StateRecord::Segment(TopicPartition::new("t", 0), stored.clone());
        let owner = owner(&std::sync::Arc::from("B"));
        assert!(decode(&record.key().encode(&owner), Some(&record.encode_value())).is_ok());

        let again = OffsetMap::restore(spans_of([&stored, &void(7)].into_iter(), ids.0, ids.1), 8);
        assert_eq!(again.segments().collect::<Vec<_>>(), map.segments().collect::<Vec<_>>());
        assert!(spans_of([&stored].into_iter(), ids.1, ids.0).is_empty());
        assert!(spans_of([&void(7)].into_iter(), Uuid::nil(), Uuid::nil()).is_empty());
        assert_eq!(segment_of(&OffsetMap::default(), ids), None);
    }
}

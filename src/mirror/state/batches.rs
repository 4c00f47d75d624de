//! What a save writes: the record batches for each partition of the two topics.
//!
//! Pure. MirrorMaker's topic comes first: a process that dies between the two leaves an offset that is newer than our
//! pair, and the newer offset wins. The other way round a restart would copy again what the target has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::TopicPartition;
use super::mm2_offsets;
use super::records::{Owner, StateKey, StateRecord};
use crate::record::{self, BatchBuilder, BatchOptions, Codec, RecordData, partition_for_key};

/// A batch is closed when it holds this much, well below every broker's `message.max.bytes`.
const BATCH_BYTES_MAX: usize = 256 * 1024;

/// Where and under which names a flow's memory lies.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Alias of the source.
    pub source: Arc<str>,
    /// The connector whose offsets MirrorMaker's topic holds.
    pub connector: Arc<str>,
    /// Whose records these are.
    pub owner: Owner,
    /// MirrorMaker's topic, `mm2-offsets.<S>.internal`.
    pub offsets_topic: Arc<str>,
    /// Its partitions.
    pub offsets_partitions: i32,
    /// Our topic, `mm2-kmirror.<S>.internal`.
    pub state_topic: Arc<str>,
    /// Its partitions.
    pub state_partitions: i32,
}

/// The batches of one save, in the order in which they must be written within each partition.
#[derive(Debug, Default)]
pub(super) struct Batches {
    /// For MirrorMaker's topic, by partition; all are acknowledged before the others are sent.
    pub(super) offsets: BTreeMap<i32, Vec<Bytes>>,
    /// For our topic, by partition.
    pub(super) state: BTreeMap<i32, Vec<Bytes>>,
}

/// Makes the batches that say `records`; of several for one key the last counts. `in_mm2` are the partitions that
/// MirrorMaker's topic speaks of: a position of 0 must take back what it says there.
pub(super) fn batches(
    layout: &Layout,
    records: &[StateRecord],
    in_mm2: &BTreeSet<TopicPartition>,
    now_ms: i64,
) -> Result<Batches, record::Error> {
    let newest: BTreeMap<StateKey, &StateRecord> =
        records.iter().map(|record| (record.key(), record)).collect();
    let mut offsets = Writer::new(layout.offsets_partitions, now_ms);
    let mut state = Writer::new(layout.state_partitions, now_ms);
    // A baseline and a position have one key there.
    let last_offsets: BTreeMap<&TopicPartition, i64> =
        records.iter().filter_map(|record| mm2_offset(record, in_mm2)).collect();
    for (source, last_offset) in last_offsets {
        let key = mm2_offsets::key(&layout.connector, &layout.source, source);
        offsets.push(key, mm2_offsets::value(last_offset))?;
    }
    for (key, record) in newest {
        state.push(key.encode(&layout.owner), record.encode_value())?;
    }
    Ok(Batches { offsets: offsets.finish()?, state: state.finish()? })
}

/// What MirrorMaker's topic has to say of a record, if anything.
pub(super) fn mm2_offset<'a>(
    record: &'a StateRecord,
    in_mm2: &BTreeSet<TopicPartition>,
) -> Option<(&'a TopicPartition, i64)> {
    let (source, upstream) = match record {
        StateRecord::Position(source, position) => (source, position.upstream),
        StateRecord::Baseline(source, begin) => (source, begin.upstream),
        _ => return None,
    };
    // MirrorMaker knows no offset before the first record; it has to be told only where it believes another one.
    (upstream > 0 || in_mm2.contains(source)).then_some((source, upstream - 1))
}

/// Fills batches for the partitions of one topic.
struct Writer {
    partitions: i32,
    now_ms: i64,
    open: BTreeMap<i32, BatchBuilder>,
    closed: BTreeMap<i32, Vec<Bytes>>,
}

impl Writer {
    fn new(partitions: i32, now_ms: i64) -> Writer {
        Writer { partitions, now_ms, open: BTreeMap::new(), closed: BTreeMap::new() }
    }

    fn push(&mut self, key: Bytes, value: Bytes) -> Result<(), record::Error> {
        let partition = partition_for_key(&key, self.partitions);
        let record =
            RecordData { timestamp: self.now_ms, key: Some(key), value: Some(value), headers: Vec::new() };
        let batch =
            self.open.entry(partition).or_insert_with(|| BatchBuilder::new(BatchOptions::new(Codec::None)));
        batch.push(&record)?;
        if batch.uncompressed_bytes() >= BATCH_BYTES_MAX
            && let Some(full) = self.open.remove(&partition)
        {
            self.closed.entry(partition).or_default().push(full.build()?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<BTreeMap<i32, Vec<Bytes>>, record::Error> {
        for (partition, batch) in self.open {
            self.closed.entry(partition).or_default().push(batch.build()?);
        }
        Ok(self.closed)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::mm2_offsets::Mm2Offsets;
    use super::super::records::{Baseline, Position};
    use super::super::{Remembered, Standing, owner};
    use super::*;
    use crate::record::{BatchHeader, OpenBatch};

    fn layout() -> Layout {
        Layout {
            source: Arc::from("A"),
            connector: Arc::from(mm2_offsets::SOURCE_CONNECTOR),
            owner: owner(&Arc::from("B")),
            offsets_topic: Arc::from("mm2-offsets.A.internal"),
            offsets_partitions: 25,
            state_topic: Arc::from("mm2-kmirror.A.internal"),
            state_partitions: 1,
        }
    }

    fn position(topic: &str, partition: i32, upstream: i64) -> StateRecord {
        StateRecord::Position(
            TopicPartition::new(topic, partition),
            Position {
                source_topic_id: Uuid::from_u128(1),
                target_topic_id: Uuid::from_u128(2),
                upstream,
                downstream: 3,
                leader_epoch: 4,
                producer_id: 5,
                producer_epoch: 6,
                at_ms: 7,
            },
        )
    }

    fn baseline(topic: &str, upstream: i64) -> StateRecord {
        let begin = Baseline { source_topic_id: Uuid::from_u128(1), upstream, at_ms: 7 };
        StateRecord::Baseline(TopicPartition::new(topic, 0), begin)
    }

    /// (partition, batch, key, value) of each record in order.
    fn records(batches: &BTreeMap<i32, Vec<Bytes>>) -> Vec<(i32, usize, Bytes, Bytes)> {
        let mut all = Vec::new();
        for (&partition, batches) in batches {
            for (n, batch) in batches.iter().enumerate() {
                assert!(BatchHeader::parse(batch).unwrap().is_dense());
                let open = OpenBatch::open(batch, 1 << 20).unwrap();
                for record in open.records() {
                    let record = record.unwrap();
                    let bytes = |field: Option<&[u8]>| Bytes::copy_from_slice(field.unwrap());
                    all.push((partition, n, bytes(record.key), bytes(record.value)));
                }
            }
        }
        all
    }

    #[test]
    fn a_position_goes_to_both_topics_and_only_its_newest_value() {
        let saved = [position("foo", 0, 10), position("foo", 2, 5), position("foo", 0, 12)];
        let batches = batches(&layout(), &saved, &BTreeSet::new(), 99).unwrap();
        let shown: Vec<String> = records(&batches.offsets)
            .into_iter()
            .map(|(partition, batch, key, value)| {
                let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
                format!("{partition}/{batch} {} {}", text(&key), text(&value))
            })
            .collect();
        // Keys and partitions as MirrorMaker 4.3.1 wrote them for these very topics.
        assert_eq!(
            shown,
            [
                r#"16/0 ["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"foo"}] {"offset":11}"#,
                r#"19/0 ["MirrorSourceConnector",{"cluster":"A","partition":2,"topic":"foo"}] {"offset":4}"#,
            ]
        );
        let state = records(&batches.state);
        assert_eq!(state.len(), 2);
        assert_eq!(state[0].2, saved[2].key().encode(&layout().owner));
        assert_eq!(state[0].3, saved[2].encode_value());
    }

    /// What a flow stores is what it finds again, whatever MirrorMaker's topic said before.
    #[test]
    fn what_is_saved_is_remembered() {
        let check = |before: Option<(&str, Option<&str>)>, saved: StateRecord, expected: &str| {
            let source = TopicPartition::new("foo", 0);
            let in_mm2 = before.iter().map(|_| source.clone()).collect();
            let batches = batches(&layout(), &[saved], &in_mm2, 99).unwrap();
            let mut mm2 = Mm2Offsets::new(layout().connector, Arc::from("A"));
            if let Some((key, value)) = before {
                mm2.apply(16, 50, &Bytes::from(key.to_owned()), value.map(str::as_bytes));
            }
            for (partition, _, key, value) in records(&batches.offsets) {
                mm2.apply(partition, 99, &key, Some(&value));
            }
            let mut remembered = Remembered::default();
            remembered.apply_mm2(&mm2);
            for (_, _, key, value) in records(&batches.state) {
                remembered.apply_record(&layout().owner, &key, Some(&value));
            }
            let shown = match remembered.standing(&source) {
                Standing::Pair(pair) => format!("pair {}", pair.upstream),
                Standing::Baseline(begin) => format!("baseline {}", begin.upstream),
                other => format!("{other:?}"),
            };
            assert_eq!(shown, expected, "{before:?}");
        };
        let key = r#"["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"foo"}]"#;
        for before in [None, Some((key, Some(r#"{"offset":700}"#))), Some((key, None))] {
            check(before, position("foo", 0, 10), "pair 10");
            check(before, position("foo", 0, 0), "pair 0");
            check(before, baseline("foo", 0), "baseline 0");
            check(before, baseline("foo", 500), "baseline 500");
        }
    }

    #[test]
    fn a_position_of_zero_is_no_news_to_mirror_maker() {
        let saved = [baseline("foo", 0), position("foo", 0, 0)];
        let batches = batches(&layout(), &saved, &BTreeSet::new(), 99).unwrap();
        assert!(batches.offsets.is_empty());
        assert_eq!(records(&batches.state).len(), 2);
    }

    #[test]
    fn large_saves_are_split() {
        let saved: Vec<StateRecord> = (0..4_000).map(|partition| position("foo", partition, 9)).collect();
        let batches = batches(&layout(), &saved, &BTreeSet::new(), 99).unwrap();
        let state = &batches.state[&0];
        assert!(state.len() > 1);
        assert!(state.iter().all(|batch| batch.len() < BATCH_BYTES_MAX + 1_000));
        assert_eq!(records(&batches.state).len(), 4_000);
        assert_eq!(records(&batches.offsets).len(), 4_000);
    }
}

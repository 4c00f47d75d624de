//! Our own records: what a flow must remember and MirrorMaker has no place for, in `mm2-kmirror.<S>.internal`.
//!
//! The topic is compacted, so a record replaces the earlier one of its key and a record without a value removes it. Keys
//! and values begin with a version (INT16, now 0) and are written in Kafka's primitive types, big-endian:
//!
//! ```text
//! key    version INT16 | target alias STRING | shard INT32 | kind INT8 | topic STRING | partition INT32 | index INT64
//! value  version INT16 | fields of the kind
//! ```
//! `topic` is the source's name; it is empty and `partition` -1 where a kind speaks of the shard or the whole flow.
//! `index` is 0 but for kinds of which a partition has many. A record of a version or kind that this build does not know
//! was written by a later one: it is never overwritten, and passed over. Bytes after the known fields are passed over too,
//! so that fields can be added at the end. Nothing here allocates by a count that a record claims.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use uuid::Uuid;

use super::TopicPartition;
use crate::mirror::fields::{
    FieldError, get_i8, get_i16, get_i32, get_i64, get_offset, get_string, get_uuid, put_string,
};

/// The version of keys and values that this build writes.
pub const VERSION: i16 = 0;
/// The most spans that one segment of an offset map holds.
pub const SEGMENT_SPANS_MAX: usize = 4_096;

/// Whose records these are: one shard of one flow. The topic itself stands for the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Alias of the flow's target.
    pub target: Arc<str>,
    /// The shard, a set of target partitions that changes hands as one; 0 where a flow has only one.
    pub shard: i32,
}

/// One thing that is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateRecord {
    /// The flow has begun, and the baselines of all partitions that it began with are stored.
    FlowStart(FlowStart),
    /// The producer that appends for the shard.
    Producer(ProducerRecord),
    /// How far a partition is.
    Position(TopicPartition, Position),
    /// Where a partition began.
    Baseline(TopicPartition, Baseline),
    /// Source offsets of a partition that are not on the target.
    Gap(TopicPartition, Gap),
    /// A stretch of a partition's offset map.
    Segment(TopicPartition, Segment),
}

/// The beginning of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStart {
    /// When, in ms since the epoch.
    pub at_ms: i64,
    /// Cluster id of the source; empty when the cluster gives none.
    pub source_cluster_id: Arc<str>,
    /// Cluster id of the target; empty when the cluster gives none.
    pub target_cluster_id: Arc<str>,
}

/// A producer id of the target's, with its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerRecord {
    /// The id.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// When it was given out, in ms since the epoch.
    pub at_ms: i64,
}

/// A position: all source records before `upstream` are on the target, before `downstream`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The source topic's id; nil when the cluster has none.
    pub source_topic_id: Uuid,
    /// The target topic's id; nil when the cluster has none.
    pub target_topic_id: Uuid,
    /// Source offset of the next record to copy.
    pub upstream: i64,
    /// Target offset that follows the last record copied; -1 while none was.
    pub downstream: i64,
    /// Leader epoch of the last source batch copied, -1 for none.
    pub leader_epoch: i32,
    /// The producer that appended the last batch, -1 for none.
    pub producer_id: i64,
    /// Its epoch, -1 for none.
    pub producer_epoch: i16,
    /// When it was written, in ms since the epoch.
    pub at_ms: i64,
}

/// Where a partition began, decided once and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// The source topic's id; nil when the cluster has none.
    pub source_topic_id: Uuid,
    /// Source offset of the first record to copy.
    pub upstream: i64,
    /// When, in ms since the epoch.
    pub at_ms: i64,
}

/// Source offsets `from..to` that are not on the target, and never will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The source topic's id; nil when the cluster has none.
    pub source_topic_id: Uuid,
    /// First offset that is missing.
    pub from: i64,
    /// First offset that is there again.
    pub to: i64,
    /// When it was found, in ms since the epoch.
    pub at_ms: i64,
    /// Why, in words.
    pub reason: Arc<str>,
}

/// Part of an offset map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The source topic's id; nil when the cluster has none.
    pub source_topic_id: Uuid,
    /// The target topic's id; nil when the cluster has none.
    pub target_topic_id: Uuid,
    /// Its spans, ascending; at least one and at most [`SEGMENT_SPANS_MAX`].
    pub spans: Vec<Span>,
}

/// `count` source records from `upstream` are the target's records from `downstream`, one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First source offset.
    pub upstream: i64,
    /// First target offset.
    pub downstream: i64,
    /// Number of offsets.
    pub count: i32,
}

/// What a record of the topic is to this build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A record that it knows.
    Known(Owner, StateRecord),
    /// A record without a value: what had this key is forgotten.
    Removed(Owner, StateKey),
    /// Written by a later version: `what` in words, for one warning.
    Unknown(String),
}

/// What a record is about: two records of the same key replace one another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateKey {
    /// See [`StateRecord::FlowStart`].
    FlowStart,
    /// See [`StateRecord::Producer`].
    Producer,
    /// See [`StateRecord::Position`].
    Position(TopicPartition),
    /// See [`StateRecord::Baseline`].
    Baseline(TopicPartition),
    /// See [`StateRecord::Gap`]; with its first offset.
    Gap(TopicPartition, i64),
    /// See [`StateRecord::Segment`]; with its first source offset.
    Segment(TopicPartition, i64),
}

const KIND_FLOW_START: i8 = 1;
const KIND_PRODUCER: i8 = 2;
const KIND_POSITION: i8 = 3;
const KIND_BASELINE: i8 = 4;
const KIND_GAP: i8 = 5;
const KIND_SEGMENT: i8 = 6;
const SPAN_BYTES: usize = 20;

impl StateRecord {
    /// What it is about.
    pub fn key(&self) -> StateKey {
        match self {
            StateRecord::FlowStart(_) => StateKey::FlowStart,
            StateRecord::Producer(_) => StateKey::Producer,
            StateRecord::Position(source, _) => StateKey::Position(source.clone()),
            StateRecord::Baseline(source, _) => StateKey::Baseline(source.clone()),
            StateRecord::Gap(source, gap) => StateKey::Gap(source.clone(), gap.from),
            StateRecord::Segment(source, segment) => {
                StateKey::Segment(source.clone(), segment.spans.first().map_or(0, |span| span.upstream))
            }
        }
    }

    /// The bytes of its value.
    pub fn encode_value(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(96);
        out.put_i16(VERSION);
        match self {
            StateRecord::FlowStart(start) => {
                out.put_i64(start.at_ms);
                put_string(&mut out, &start.source_cluster_id);
                put_string(&mut out, &start.target_cluster_id);
            }
            StateRecord::Producer(producer) => {
                out.put_i64(producer.producer_id);
                out.put_i16(producer.producer_epoch);
                out.put_i64(producer.at_ms);
            }
            StateRecord::Position(_, position) => put_position(&mut out, position),
            StateRecord::Baseline(_, baseline) => {
                out.put_slice(baseline.source_topic_id.as_bytes());
                out.put_i64(baseline.upstream);
                out.put_i64(baseline.at_ms);
            }
            StateRecord::Gap(_, gap) => {
                out.put_slice(gap.source_topic_id.as_bytes());
                out.put_i64(gap.to);
                out.put_i64(gap.at_ms);
                put_string(&mut out, &gap.reason);
            }
            StateRecord::Segment(_, segment) => put_segment(&mut out, segment),
        }
        out.freeze()
    }
}

impl StateKey {
    /// The bytes of the key.
    pub fn encode(&self, owner: &Owner) -> Bytes {
        let (kind, source, index) = match self {
            StateKey::FlowStart => (KIND_FLOW_START, None, 0),
            StateKey::Producer => (KIND_PRODUCER, None, 0),
            StateKey::Position(source) => (KIND_POSITION, Some(source), 0),
            StateKey::Baseline(source) => (KIND_BASELINE, Some(source), 0),
            StateKey::Gap(source, from) => (KIND_GAP, Some(source), *from),
            StateKey::Segment(source, upstream) => (KIND_SEGMENT, Some(source), *upstream),
        };
        let topic = source.map_or("", |source| &source.topic);
        let mut out = BytesMut::with_capacity(32 + owner.target.len() + topic.len());
        out.put_i16(VERSION);
        put_string(&mut out, &owner.target);
        out.put_i32(owner.shard);
        out.put_i8(kind);
        put_string(&mut out, topic);
        out.put_i32(source.map_or(-1, |source| source.partition));
        out.put_i64(index);
        out.freeze()
    }
}

/// Reads a record of the topic.
pub fn decode(mut key: &[u8], value: Option<&[u8]>) -> Result<Decoded, FieldError> {
    let version = get_i16(&mut key, "version")?;
    if version != VERSION {
        return Ok(Decoded::Unknown(format!("a key of version {version}")));
    }
    let target = get_string(&mut key, "target alias")?;
    let owner = Owner { target, shard: get_i32(&mut key, "shard")? };
    let kind = get_i8(&mut key, "kind")?;
    let topic = get_string(&mut key, "topic")?;
    let source = TopicPartition { topic, partition: get_i32(&mut key, "partition")? };
    let index = get_i64(&mut key, "index")?;
    let state_key = match kind {
        KIND_FLOW_START => StateKey::FlowStart,
        KIND_PRODUCER => StateKey::Producer,
        KIND_POSITION => StateKey::Position(source.clone()),
        KIND_BASELINE => StateKey::Baseline(source.clone()),
        KIND_GAP => StateKey::Gap(source.clone(), index),
        KIND_SEGMENT => StateKey::Segment(source.clone(), index),
        other => return Ok(Decoded::Unknown(format!("kind {other}"))),
    };
    let Some(mut value) = value else { return Ok(Decoded::Removed(owner, state_key)) };
    let version = get_i16(&mut value, "version")?;
    if version != VERSION {
        return Ok(Decoded::Unknown(format!("a value of version {version} for kind {kind}")));
    }
    let record = match state_key {
        StateKey::FlowStart => StateRecord::FlowStart(get_flow_start(&mut value)?),
        StateKey::Producer => StateRecord::Producer(get_producer(&mut value)?),
        StateKey::Position(_) => StateRecord::Position(source, get_position(&mut value)?),
        StateKey::Baseline(_) => StateRecord::Baseline(source, get_baseline(&mut value)?),
        StateKey::Gap(..) => StateRecord::Gap(source, get_gap(&mut value, index)?),
        StateKey::Segment(..) => StateRecord::Segment(source, get_segment(&mut value)?),
    };
    Ok(Decoded::Known(owner, record))
}

fn put_position(out: &mut BytesMut, position: &Position) {
    out.put_slice(position.source_topic_id.as_bytes());
    out.put_slice(position.target_topic_id.as_bytes());
    out.put_i64(position.upstream);
    out.put_i64(position.downstream);
    out.put_i32(position.leader_epoch);
    out.put_i64(position.producer_id);
    out.put_i16(position.producer_epoch);
    out.put_i64(position.at_ms);
}

fn put_segment(out: &mut BytesMut, segment: &Segment) {
    let spans = &segment.spans[..segment.spans.len().min(SEGMENT_SPANS_MAX)];
    out.put_slice(segment.source_topic_id.as_bytes());
    out.put_slice(segment.target_topic_id.as_bytes());
    out.put_i32(spans.len() as i32);
    for span in spans {
        out.put_i64(span.upstream);
        out.put_i64(span.downstream);
        out.put_i32(span.count);
    }
}

fn get_flow_start(bytes: &mut &[u8]) -> Result<FlowStart, FieldError> {
    Ok(FlowStart {
        at_ms: get_i64(bytes, "time")?,
        source_cluster_id: get_string(bytes, "source cluster id")?,
        target_cluster_id: get_string(bytes, "target cluster id")?,
    })
}

fn get_producer(bytes: &mut &[u8]) -> Result<ProducerRecord, FieldError> {
    Ok(ProducerRecord {
        producer_id: get_i64(bytes, "producer id")?,
        producer_epoch: get_i16(bytes, "producer epoch")?,
        at_ms: get_i64(bytes, "time")?,
    })
}

fn get_position(bytes: &mut &[u8]) -> Result<Position, FieldError> {
    Ok(Position {
        source_topic_id: get_uuid(bytes, "source topic id")?,
        target_topic_id: get_uuid(bytes, "target topic id")?,
        upstream: get_offset(bytes, "upstream offset")?,
        downstream: get_i64(bytes, "downstream offset")?,
        leader_epoch: get_i32(bytes, "leader epoch")?,
        producer_id: get_i64(bytes, "producer id")?,
        producer_epoch: get_i16(bytes, "producer epoch")?,
        at_ms: get_i64(bytes, "time")?,
    })
}

fn get_baseline(bytes: &mut &[u8]) -> Result<Baseline, FieldError> {
    Ok(Baseline {
        source_topic_id: get_uuid(bytes, "source topic id")?,
        upstream: get_offset(bytes, "upstream offset")?,
        at_ms: get_i64(bytes, "time")?,
    })
}

fn get_gap(bytes: &mut &[u8], from: i64) -> Result<Gap, FieldError> {
    Ok(Gap {
        source_topic_id: get_uuid(bytes, "source topic id")?,
        from,
        to: get_offset(bytes, "end")?,
        at_ms: get_i64(bytes, "time")?,
        reason: get_string(bytes, "reason")?,
    })
}

fn get_segment(bytes: &mut &[u8]) -> Result<Segment, FieldError> {
    let source_topic_id = get_uuid(bytes, "source topic id")?;
    let target_topic_id = get_uuid(bytes, "target topic id")?;
    let count = usize::try_from(get_i32(bytes, "number of spans")?)
        .ok()
        .filter(|count| (1..=SEGMENT_SPANS_MAX).contains(count))
        .ok_or(FieldError::Invalid("number of spans"))?;
    if bytes.remaining() < count * SPAN_BYTES {
        return Err(FieldError::Truncated("spans"));
    }
    let mut spans = Vec::with_capacity(count);
    for _ in 0..count {
        spans.push(Span {
            upstream: get_offset(bytes, "upstream offset")?,
            downstream: get_offset(bytes, "downstream offset")?,
            count: get_i32(bytes, "number of offsets")?,
        });
    }
    Ok(Segment { source_topic_id, target_topic_id, spans })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owner() -> Owner {
        Owner { target: Arc::from("B"), shard: 0 }
    }

    fn id(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    #[test]
    fn the_bytes_of_a_position_are_fixed() {
        let record = StateRecord::Position(
            TopicPartition::new("t", 5),
            Position {
                source_topic_id: id(1),
                target_topic_id: id(2),
                upstream: 0x0102,
                downstream: 0x0304,
                leader_epoch: 7,
                producer_id: 4000,
                producer_epoch: 3,
                at_ms: 0x1122,
            },
        );
        let mut key = vec![0, 0, 0, 1, b'B', 0, 0, 0, 0, 3, 0, 1, b't', 0, 0, 0, 5];
        key.extend([0; 8]);
        assert_eq!(record.key().encode(&owner()), key);
        let mut value = vec![0, 0];
        value.extend(1_u128.to_be_bytes());
        value.extend(2_u128.to_be_bytes());
        value.extend(0x0102_i64.to_be_bytes());
        value.extend(0x0304_i64.to_be_bytes());
        value.extend(7_i32.to_be_bytes());
        value.extend(4000_i64.to_be_bytes());
        value.extend(3_i16.to_be_bytes());
        value.extend(0x1122_i64.to_be_bytes());
        assert_eq!(record.encode_value(), value);
    }

    #[test]
    fn what_a_later_version_wrote_is_passed_over() {
        let record = StateRecord::Producer(ProducerRecord { producer_id: 1, producer_epoch: 2, at_ms: 3 });
        let key = record.key().encode(&owner());
        let value = record.encode_value();
        let unknown = |what: &str| Ok(Decoded::Unknown(what.to_owned()));

        let mut later = value.to_vec();
        later[1] = 1;
        assert_eq!(decode(&key, Some(&later)), unknown("a value of version 1 for kind 2"));
        let mut later = key.to_vec();
        later[1] = 1;
        assert_eq!(decode(&later, Some(&value)), unknown("a key of version 1"));
        let mut later = key.to_vec();
        later[9] = 99;
        assert_eq!(decode(&later, Some(&value)), unknown("kind 99"));
        // Fields that were added at the end do no harm.
        let mut longer = value.to_vec();
        longer.push(1);
        assert_eq!(decode(&key, Some(&longer)), Ok(Decoded::Known(owner(), record.clone())));
        assert_eq!(decode(&key, None), Ok(Decoded::Removed(owner(), StateKey::Producer)));
    }

    fn source() -> impl Strategy<Value = TopicPartition> {
        ("[a-zA-Z0-9._-]{1,60}", 0..=i32::MAX).prop_map(|(topic, index)| TopicPartition::new(topic, index))
    }

    fn uuid() -> impl Strategy<Value = Uuid> {
        any::<u128>().prop_map(Uuid::from_u128)
    }

    fn flow_record() -> impl Strategy<Value = StateRecord> {
        let start = (any::<i64>(), ".{0,40}", ".{0,40}").prop_map(|(at_ms, source, target)| {
            StateRecord::FlowStart(FlowStart {
                at_ms,
                source_cluster_id: Arc::from(source),
                target_cluster_id: Arc::from(target),
            })
        });
        let producer = any::<(i64, i16, i64)>().prop_map(|(producer_id, producer_epoch, at_ms)| {
            StateRecord::Producer(ProducerRecord { producer_id, producer_epoch, at_ms })
        });
        prop_oneof![start, producer]
    }

    fn partition_record() -> impl Strategy<Value = StateRecord> {
        let offset = || 0..=i64::MAX;
        let position =
            (source(), uuid(), uuid(), offset(), any::<(i64, i32, i64, i16, i64)>()).prop_map(|parts| {
                let (source, source_topic_id, target_topic_id, upstream, rest) = parts;
                let (downstream, leader_epoch, producer_id, producer_epoch, at_ms) = rest;
                StateRecord::Position(
                    source,
                    Position {
                        source_topic_id,
                        target_topic_id,
                        upstream,
                        downstream,
                        leader_epoch,
                        producer_id,
                        producer_epoch,
                        at_ms,
                    },
                )
            });
        let baseline =
            (source(), uuid(), offset(), any::<i64>()).prop_map(|(source, id, upstream, at_ms)| {
                StateRecord::Baseline(source, Baseline { source_topic_id: id, upstream, at_ms })
            });
        let gap = (source(), uuid(), any::<(i64, i64)>(), offset(), ".{0,80}").prop_map(
            |(source, id, (from, at_ms), to, reason)| {
                let reason = Arc::from(reason);
                StateRecord::Gap(source, Gap { source_topic_id: id, from, to, at_ms, reason })
            },
        );
        let span = (offset(), offset(), any::<i32>()).prop_map(|(upstream, downstream, count)| Span {
            upstream,
            downstream,
            count,
        });
        let segment = (source(), uuid(), uuid(), prop::collection::vec(span, 1..20)).prop_map(
            |(source, source_topic_id, target_topic_id, spans)| {
                StateRecord::Segment(source, Segment { source_topic_id, target_topic_id, spans })
            },
        );
        prop_oneof![position, baseline, gap, segment]
    }

    proptest! {
        #[test]
        fn every_record_is_read_back(record in prop_oneof![flow_record(), partition_record()], shard: i32) {
            let owner = Owner { target: Arc::from("us-west"), shard };
            let key = record.key().encode(&owner);
            let value = record.encode_value();
            prop_assert_eq!(decode(&key, Some(&value)), Ok(Decoded::Known(owner.clone(), record.clone())));
            prop_assert_eq!(decode(&key, None), Ok(Decoded::Removed(owner, record.key())));
            for cut in 0..key.len() {
                prop_assert!(decode(&key[..cut], Some(&value)).is_err());
            }
            for cut in 0..value.len() {
                prop_assert!(decode(&key, Some(&value[..cut])).is_err());
            }
        }

        #[test]
        fn damaged_records_do_no_harm(
            record in prop_oneof![flow_record(), partition_record()],
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut: prop::sample::Index,
        ) {
            let mut key = record.key().encode(&owner()).to_vec();
            let mut value = record.encode_value().to_vec();
            for (at, byte) in changes {
                let at = at.index(key.len() + value.len());
                match at.checked_sub(key.len()) {
                    None => key[at] = byte,
                    Some(at) => value[at] = byte,
                }
            }
            value.truncate(cut.index(value.len() + 1));
            if let Ok(Decoded::Known(owner, record)) = decode(&key, Some(&value)) {
                // What is read is a record like any other: written again, it reads the same.
                let again = decode(&record.key().encode(&owner), Some(&record.encode_value()));
                prop_assert_eq!(again.map(|decoded| matches!(decoded, Decoded::Known(..))), Ok(true));
            }
        }
    }
}

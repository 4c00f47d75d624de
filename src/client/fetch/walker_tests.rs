//! The walker against an encoder that is not ours: what is walked in pieces is what was encoded whole.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction as EncodedAborted, EpochEndOffset, FetchResponse, FetchableTopicResponse,
    LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use kafka_protocol::messages::{BrokerId, ProducerId, ResponseHeader, TopicName as EncodedName};
use kafka_protocol::protocol::{Encodable, HeaderVersion, StrBytes};
use proptest::prelude::*;
use uuid::Uuid;

use super::walker::*;
use crate::client::AbortedTransaction;
use crate::record;

const LIMITS: WalkLimits = WalkLimits { batch_bytes_max: 10_000, aborted_transactions_max: 1_000 };

/// A log entry whose bytes are right as far as the walker looks.
fn entry(size_bytes: usize, magic: u8) -> Vec<u8> {
    let size_bytes = size_bytes.max([26, 34, 61][usize::from(magic)]);
    let mut bytes: Vec<u8> = (0..size_bytes).map(|at| at as u8).collect();
    bytes[8..12].copy_from_slice(&(size_bytes as i32 - 12).to_be_bytes());
    bytes[16] = magic;
    bytes
}

#[derive(Clone, Debug)]
struct Topic {
    id: u8,
    partitions: Vec<Partition>,
}

#[derive(Clone, Debug)]
struct Partition {
    index: i32,
    error_code: i16,
    watermarks: (i64, i64, i64),
    aborted: Option<Vec<(i64, i64)>>,
    entries: Vec<(usize, u8)>,
    /// Bytes that are missing at the end of the records.
    cut: usize,
    preferred: i32,
    diverging: Option<(i32, i64)>,
    leader: Option<(i32, i32)>,
    unknown_tag: Option<Vec<u8>>,
}

fn partition() -> impl Strategy<Value = Partition> {
    let numbers = (any::<i32>(), any::<i16>(), any::<(i64, i64, i64)>(), -1..3_i32);
    let records = (prop::collection::vec((61..400_usize, 0..3_u8), 0..4), 0..90_usize);
    let tags = (
        prop::option::of((0..9_i32, any::<i64>())),
        prop::option::of((0..9_i32, 0..9_i32)),
        prop::option::of(prop::collection::vec(any::<u8>(), 0..200)),
    );
    let aborted = prop::option::of(prop::collection::vec(any::<(i64, i64)>(), 0..4));
    (numbers, records, tags, aborted).prop_map(|(numbers, records, tags, aborted)| Partition {
        index: numbers.0,
        error_code: numbers.1,
        watermarks: numbers.2,
        aborted,
        entries: records.0,
        cut: records.1,
        preferred: numbers.3,
        diverging: tags.0,
        leader: tags.1,
        unknown_tag: tags.2,
    })
}

fn topics() -> impl Strategy<Value = Vec<Topic>> {
    let topic = (any::<u8>(), prop::collection::vec(partition(), 0..4))
        .prop_map(|(id, partitions)| Topic { id, partitions });
    prop::collection::vec(topic, 0..4)
}

fn tags(bytes: &Option<Vec<u8>>, version: i16) -> BTreeMap<i32, Bytes> {
    let bytes = bytes.iter().filter(|_| version >= 12);
    bytes.map(|bytes| (77, Bytes::copy_from_slice(bytes))).collect()
}

impl Partition {
    fn records(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.entries.iter().flat_map(|&(size, magic)| entry(size, magic)).collect();
        bytes.truncate(bytes.len().saturating_sub(self.cut));
        bytes
    }

    fn encoded(&self, version: i16) -> PartitionData {
        let aborted = self.aborted.as_ref().map(|aborted| {
            let encoded = aborted.iter().map(|&(producer, offset)| {
                EncodedAborted::default()
                    .with_producer_id(ProducerId(producer))
                    .with_first_offset(offset)
                    .with_unknown_tagged_fields(tags(&self.unknown_tag, version))
            });
            encoded.collect()
        });
        let mut data = PartitionData::default()
            .with_partition_index(self.index)
            .with_error_code(self.error_code)
            .with_high_watermark(self.watermarks.0)
            .with_last_stable_offset(self.watermarks.1)
            .with_log_start_offset(self.watermarks.2)
            .with_aborted_transactions(aborted)
            .with_records(Some(self.records().into()))
            .with_unknown_tagged_fields(tags(&self.unknown_tag, version));
        if version >= 11 {
            data = data.with_preferred_read_replica(BrokerId(self.preferred));
        }
        if version >= 12 {
            let (epoch, end) = self.diverging.unwrap_or((-1, -1));
            data =
                data.with_diverging_epoch(EpochEndOffset::default().with_epoch(epoch).with_end_offset(end));
            let (leader, epoch) = self.leader.unwrap_or((-1, -1));
            data = data.with_current_leader(
                LeaderIdAndEpoch::default().with_leader_id(BrokerId(leader)).with_leader_epoch(epoch),
            );
        }
        data
    }
}

impl Topic {
    fn uuid(&self) -> Uuid {
        Uuid::from_bytes([self.id; 16])
    }

    fn name(&self) -> String {
        "t".repeat(usize::from(self.id))
    }

    fn encoded(&self, version: i16) -> FetchableTopicResponse {
        let partitions = self.partitions.iter().map(|partition| partition.encoded(version)).collect();
        let topic = FetchableTopicResponse::default().with_partitions(partitions);
        if version >= 13 {
            topic.with_topic_id(self.uuid())
        } else {
            topic.with_topic(EncodedName(StrBytes::from_string(self.name())))
        }
    }
}

/// A frame without its size field.
fn frame(topics: &[Topic], version: i16) -> Vec<u8> {
    let mut response = FetchResponse::default()
        .with_throttle_time_ms(250)
        .with_responses(topics.iter().map(|topic| topic.encoded(version)).collect());
    if version >= 7 {
        response = response.with_session_id(-5).with_error_code(71);
    }
    if version >= 16 {
        let node = NodeEndpoint::default().with_host(StrBytes::from_static_str("elsewhere"));
        response = response.with_node_endpoints(vec![node]);
    }
    let mut frame = BytesMut::new();
    let header = ResponseHeader::default().with_correlation_id(-9);
    let header_version = FetchResponse::header_version(version);
    let header = if header_version > 0 {
        header.with_unknown_tagged_fields(tags(&Some(vec![1, 2, 3]), version))
    } else {
        header
    };
    header.encode(&mut frame, header_version).unwrap();
    response.encode(&mut frame, version).unwrap();
    frame.to_vec()
}

/// What a walk told, as comparable values.
#[derive(Debug, PartialEq)]
enum Told {
    Head(FetchHead),
    Topic(TopicName),
    Partition(PartitionHead),
    Batch(Vec<u8>, record::Magic),
    PartitionEnd(PartitionEnd),
}

/// Walks `bytes`, giving `chunk` bytes at a time; `skip` says of which partitions (by their place) the records are passed over.
fn walk(
    bytes: &[u8],
    version: i16,
    frame_bytes: usize,
    chunk: usize,
    skip: impl Fn(usize) -> bool,
) -> Result<(Vec<Told>, BytesMut), FrameError> {
    let mut walker = FetchWalker::new(version, frame_bytes, LIMITS);
    let mut front = BytesMut::new();
    let mut given = 0;
    let mut told = Vec::new();
    let mut partitions = 0;
    loop {
        match walker.step(&mut front)? {
            Step::Need(needed) => {
                assert!(needed > front.len(), "{needed} bytes are there already");
                assert!(needed <= walker.frame_bytes_left() && needed <= 2 * i16::MAX as usize);
                if given == bytes.len() {
                    return Ok((told, front));
                }
                let end = bytes.len().min(given + chunk.max(1));
                front.put_slice(&bytes[given..end]);
                given = end;
            }
            Step::Head(head) => told.push(Told::Head(head)),
            Step::Topic(name) => told.push(Told::Topic(name)),
            Step::Partition(head) => {
                told.push(Told::Partition(head));
                if skip(partitions) {
                    walker.skip_records();
                }
                partitions += 1;
            }
            Step::Batch(batch) => told.push(Told::Batch(batch.bytes.to_vec(), batch.magic)),
            Step::PartitionEnd(end) => told.push(Told::PartitionEnd(end)),
            Step::End => {
                front.put_slice(&bytes[given..]);
                return Ok((told, front));
            }
        }
    }
}

fn expected(topics: &[Topic], version: i16, skip: impl Fn(usize) -> bool) -> Vec<Told> {
    let (error_code, session_id) = if version >= 7 { (71, -5) } else { (0, 0) };
    let mut told = vec![Told::Head(FetchHead {
        correlation_id: -9,
        throttle: std::time::Duration::from_millis(250),
        error_code,
        session_id,
    })];
    let mut place = 0;
    for topic in topics {
        told.push(Told::Topic(if version >= 13 {
            TopicName::Id(topic.uuid())
        } else {
            TopicName::Name(topic.name())
        }));
        for partition in &topic.partitions {
            partition.expect(version, skip(place), &mut told);
            place += 1;
        }
    }
    told
}

impl Partition {
    fn expect(&self, version: i16, skipped: bool, told: &mut Vec<Told>) {
        let records = self.records();
        let aborted = self.aborted.iter().flatten();
        told.push(Told::Partition(PartitionHead {
            partition: self.index,
            error_code: self.error_code,
            high_watermark: self.watermarks.0,
            last_stable_offset: self.watermarks.1,
            log_start_offset: if version >= 5 { self.watermarks.2 } else { -1 },
            aborted: aborted
                .map(|&(producer_id, first_offset)| AbortedTransaction { producer_id, first_offset })
                .collect(),
            preferred_read_replica: if version >= 11 { self.preferred } else { -1 },
            records_bytes: records.len(),
        }));
        let mut end = PartitionEnd::default();
        let mut rest = &records[..];
        for &(size, magic) in self.entries.iter().filter(|_| !skipped) {
            let whole = entry(size, magic);
            if rest.len() < whole.len() {
                let size_bytes = (rest.len() >= 12).then_some(whole.len());
                end.cut = (!rest.is_empty()).then_some(CutEntry { size_bytes });
                break;
            }
            let (batch, behind) = rest.split_at(whole.len());
            let magic = [record::Magic::V0, record::Magic::V1, record::Magic::V2][usize::from(magic)];
            told.push(Told::Batch(batch.to_vec(), magic));
            rest = behind;
        }
        if version >= 12 {
            end.diverging = self.diverging;
            end.current_leader = self.leader;
        }
        told.push(Told::PartitionEnd(end));
    }
}

proptest! {
    #[test]
    fn walking_in_pieces_tells_what_was_encoded(
        topics in topics(),
        version in FETCH_VERSION_MIN..=FETCH_VERSION_MAX,
        chunk in 1_usize..700,
        skip_mask: u8,
    ) {
        let skip = |place: usize| skip_mask >> (place % 8) & 1 == 1;
        let mut bytes = frame(&topics, version);
        let frame_bytes = bytes.len();
        bytes.extend_from_slice(b"the next frame");
        let (told, rest) = walk(&bytes, version, frame_bytes, chunk, skip).unwrap();
        prop_assert_eq!(told, expected(&topics, version, skip));
        prop_assert_eq!(&rest[..], b"the next frame", "a byte behind the frame was touched");
    }

    #[test]
    fn a_mutated_frame_never_panics(
        topics in topics(),
        version in FETCH_VERSION_MIN..=FETCH_VERSION_MAX,
        chunk in 1_usize..700,
        mutations in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = frame(&topics, version);
        for (at, value) in mutations {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok((told, _)) = walk(&bytes, version, bytes.len(), chunk, |_| false) {
            let batch_bytes: usize = told.iter().map(|told| match told {
                Told::Batch(batch, _) => batch.len(),
                _ => 0,
            }).sum();
            prop_assert!(batch_bytes <= bytes.len());
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>, version in FETCH_VERSION_MIN..=FETCH_VERSION_MAX, frame_bytes in 0_usize..300) {
        let _ = walk(&bytes, version, frame_bytes, 7, |_| false);
    }
}

fn one_partition(entries: Vec<(usize, u8)>, cut: usize) -> Vec<Topic> {
    let partition = Partition {
        index: 3,
        error_code: 0,
        watermarks: (10, 9, 1),
        aborted: Some(vec![(7, 2)]),
        entries,
        cut,
        preferred: -1,
        diverging: Some((1, 5)),
        leader: Some((2, 3)),
        unknown_tag: None,
    };
    vec![Topic { id: 4, partitions: vec![partition] }]
}

#[test]
fn a_frame_that_ends_early_is_an_error_at_every_byte() {
    for version in FETCH_VERSION_MIN..=FETCH_VERSION_MAX {
        let bytes = frame(&one_partition(vec![(61, 2), (70, 1)], 5), version);
        for length in 0..bytes.len() {
            let claimed_short = walk(&bytes, version, length, 50, |_| false);
            assert!(claimed_short.is_err(), "version {version} cut to {length} of {}", bytes.len());
            // Bytes that have not come yet are no error.
            let (_, rest) = walk(&bytes[..length], version, bytes.len(), 50, |_| false).unwrap();
            assert!(rest.len() <= length);
        }
    }
}

#[test]
fn bytes_behind_the_last_field_are_an_error() {
    let mut bytes = frame(&one_partition(vec![(61, 2)], 0), 12);
    bytes.push(0);
    let error = walk(&bytes, 12, bytes.len(), 1_000, |_| false).unwrap_err();
    assert_eq!(error, FrameError::Trailing { bytes: 1 });
}

#[test]
fn damage_in_one_partition_leaves_the_others() {
    let mut topics = one_partition(vec![(80, 2), (80, 2)], 0);
    topics.extend(one_partition(vec![(90, 2)], 0));
    let mut bytes = frame(&topics, 17);
    let second = bytes.windows(16).position(|window| window == &entry(80, 2)[..16]).unwrap() + 80;
    bytes[second + 16] = 9;
    let (told, _) = walk(&bytes, 17, bytes.len(), 64, |_| false).unwrap();
    let ends: Vec<_> = told
        .iter()
        .filter_map(|told| match told {
            Told::PartitionEnd(end) => Some(end.damage.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [Some(record::Error::Magic(9)), None]);
    let batches = told.iter().filter(|told| matches!(told, Told::Batch(..))).count();
    assert_eq!(batches, 2, "the batch before the damage and the one of the other partition");
}

#[test]
fn an_entry_over_the_limit_is_damage_before_anyone_waits_for_it() {
    let bytes = frame(&one_partition(vec![(10_001, 2)], 0), 17);
    let (told, _) = walk(&bytes, 17, bytes.len(), 64, |_| false).unwrap();
    let Some(Told::PartitionEnd(end)) = told.last() else { panic!("{told:?}") };
    assert!(matches!(end.damage, Some(record::Error::OverLimit { size_bytes: 10_001, .. })));
}

#[test]
fn counts_that_the_frame_cannot_hold_are_refused() {
    let mut head = vec![0; 4 + 4];
    head.extend_from_slice(&i32::MAX.to_be_bytes());
    let error = walk(&head, 4, head.len(), 64, |_| false).unwrap_err();
    assert!(matches!(error, FrameError::Invalid { what: "topic count", .. }), "{error}");
}

#[test]
fn a_batch_is_a_slice_of_what_was_read() {
    let bytes = frame(&one_partition(vec![(500, 2)], 0), 13);
    let mut walker = FetchWalker::new(13, bytes.len(), LIMITS);
    let mut front = BytesMut::from(&bytes[..]);
    let range = front.as_ptr_range();
    loop {
        match walker.step(&mut front).unwrap() {
            Step::Batch(batch) => return assert!(range.contains(&batch.bytes.as_ptr())),
            Step::End | Step::Need(_) => panic!("no batch"),
            _ => {}
        }
    }
}

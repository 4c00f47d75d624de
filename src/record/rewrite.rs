//! Batches that cannot be appended as they are, made anew: holes after compaction, a start in mid-batch, LogAppendTime
//! that must survive, another codec, a smaller limit.
//!
//! Brokers demand that a produced batch has a record for every offset of its range (`LogValidator`), so the records are
//! numbered again from 0; which source offsets they had is told in segments. Key, value and headers are copied byte for
//! byte. The source's checksum is verified first, because the new one would hide damage.
//!
//! A batch over the size limit is split. A record that is over it alone comes back as such in its place, so that the
//! caller can stop there or leave out just this one.

use bytes::Bytes;

use super::builder::{BatchBuilder, BatchOptions};
use super::records::OpenBatch;
use super::{Codec, Error};

/// How a batch is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RewriteSettings {
    /// Records below this upstream offset are left out.
    pub start_offset: i64,
    /// Records at or above this upstream offset are left out.
    pub end_offset: i64,
    /// Codec of the new batches; `None` keeps the source's.
    pub target_codec: Option<Codec>,
    /// Largest batch in bytes, header included, that the target takes.
    pub batch_bytes_max: usize,
    /// Most bytes of the records when decompressed.
    pub decompressed_bytes_max: usize,
}

impl RewriteSettings {
    /// Whether a record is taken.
    pub(super) fn takes(&self, upstream_offset: i64) -> bool {
        (self.start_offset..self.end_offset).contains(&upstream_offset)
    }
}

/// Neighbouring records of a new batch whose upstream offsets follow on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Upstream offset of the first.
    pub upstream_offset: i64,
    /// How many there are.
    pub record_count: i32,
}

/// A batch made anew: base offset 0, dense, no producer, CreateTime, checksum right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// The whole batch.
    pub batch: Bytes,
    /// Its records, at least one.
    pub record_count: i32,
    /// Upstream offset of its first record.
    pub first_upstream_offset: i64,
    /// Upstream offset of its last record.
    pub last_upstream_offset: i64,
    /// Where its records were, in order; the counts add up to the record count.
    pub segments: Vec<Segment>,
    /// Largest timestamp in milliseconds.
    pub max_timestamp: i64,
}

/// One part of what a source batch became, in offset order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A batch to append.
    Batch(Rewritten),
    /// A record that no batch within the limit can hold.
    Oversize {
        /// Its upstream offset.
        upstream_offset: i64,
        /// Bytes of a batch that holds it alone.
        size_bytes: usize,
    },
}

/// Rewrites one whole v2 batch. A batch of which no record is left gives no piece.
pub fn rewrite(batch: &Bytes, settings: &RewriteSettings) -> Result<Vec<Piece>, Error> {
    let batch = OpenBatch::open(batch, settings.decompressed_bytes_max)?;
    let mut records = records_of(&batch)?;
    records.retain(|record| settings.takes(record.upstream_offset));
    let codec = match settings.target_codec {
        Some(codec) => codec,
        None => batch.header.attributes.codec()?,
    };
    pack(&records, codec, settings.batch_bytes_max)
}

/// The records of a batch that holds some to copy.
pub(super) fn records_of(batch: &OpenBatch) -> Result<Vec<SourceRecord<'_>>, Error> {
    if batch.header.attributes.is_control() {
        return Err(Error::Invalid {
            what: "attributes",
            value: i64::from(batch.header.attributes.0),
            rule: "is a control batch's, which has no records to copy",
        });
    }
    let mut records = Vec::new();
    for record in batch.records() {
        let record = record?;
        records.push(SourceRecord {
            upstream_offset: batch.offset(&record),
            timestamp: batch.timestamp(&record),
            attributes: record.attributes,
            body: record.body,
        });
    }
    Ok(records)
}

/// A record on its way into a new batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceRecord<'a> {
    pub(super) upstream_offset: i64,
    pub(super) timestamp: i64,
    pub(super) attributes: i8,
    /// Key, value and headers as a v2 record stores them.
    pub(super) body: &'a [u8],
}

/// Packs records, in order, into as few batches as the limit allows.
pub(super) fn pack(
    records: &[SourceRecord<'_>],
    codec: Codec,
    batch_bytes_max: usize,
) -> Result<Vec<Piece>, Error> {
    let mut pieces = Vec::new();
    if codec == Codec::None {
        pack_uncompressed(records, batch_bytes_max, &mut pieces)?;
    } else {
        pack_compressed(records, codec, batch_bytes_max, &mut pieces)?;
    }
    Ok(pieces)
}

fn pack_uncompressed(
    mut records: &[SourceRecord<'_>],
    batch_bytes_max: usize,
    pieces: &mut Vec<Piece>,
) -> Result<(), Error> {
    while let Some(first) = records.first() {
        let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
        let alone = builder.uncompressed_bytes_with(first.timestamp, first.body.len());
        if alone > batch_bytes_max {
            pieces.push(Piece::Oversize { upstream_offset: first.upstream_offset, size_bytes: alone });
            records = &records[1..];
            continue;
        }
        let mut taken = 0;
        for record in records {
            if builder.uncompressed_bytes_with(record.timestamp, record.body.len()) > batch_bytes_max {
                break;
            }
            builder.push_body(record.timestamp, record.attributes, record.body)?;
            taken += 1;
        }
        let (now, later) = records.split_at(taken);
        pieces.push(Piece::Batch(finish(builder, first, now)?));
        records = later;
    }
    Ok(())
}

/// How small records become is known only after compression: what is too large is halved by bytes, and again.
fn pack_compressed(
    records: &[SourceRecord<'_>],
    codec: Codec,
    batch_bytes_max: usize,
    pieces: &mut Vec<Piece>,
) -> Result<(), Error> {
    let Some(first) = records.first() else { return Ok(()) };
    let mut builder = BatchBuilder::new(BatchOptions::new(codec));
    builder.reserve(records.iter().map(|record| record.body.len() + 16).sum());
    for record in records {
        builder.push_body(record.timestamp, record.attributes, record.body)?;
    }
    let rewritten = finish(builder, first, records)?;
    let size_bytes = rewritten.batch.len();
    if size_bytes <= batch_bytes_max {
        pieces.push(Piece::Batch(rewritten));
    } else if records.len() == 1 {
        pieces.push(Piece::Oversize { upstream_offset: first.upstream_offset, size_bytes });
    } else {
        let (front, back) = records.split_at(middle(records));
        pack_compressed(front, codec, batch_bytes_max, pieces)?;
        pack_compressed(back, codec, batch_bytes_max, pieces)?;
    }
    Ok(())
}

/// The index, neither 0 nor the end, that halves the bytes best from below.
fn middle(records: &[SourceRecord<'_>]) -> usize {
    let total: usize = records.iter().map(|record| record.body.len() + 1).sum();
    let mut front = 0;
    let at = records.iter().position(|record| {
        front += record.body.len() + 1;
        front > total / 2
    });
    at.unwrap_or(0).clamp(1, records.len() - 1)
}

/// Completes the batch of `records`, of which `first` is the first.
fn finish(
    builder: BatchBuilder,
    first: &SourceRecord<'_>,
    records: &[SourceRecord<'_>],
) -> Result<Rewritten, Error> {
    let (record_count, max_timestamp) = (builder.record_count(), builder.max_timestamp());
    Ok(Rewritten {
        batch: builder.build()?,
        record_count,
        first_upstream_offset: first.upstream_offset,
        last_upstream_offset: records.last().unwrap_or(first).upstream_offset,
        segments: segments_of(records),
        max_timestamp,
    })
}

fn segments_of(records: &[SourceRecord<'_>]) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for record in records {
        match segments.last_mut() {
            Some(last) if last.upstream_offset + i64::from(last.record_count) == record.upstream_offset => {
                last.record_count += 1;
            }
            _ => segments.push(Segment { upstream_offset: record.upstream_offset, record_count: 1 }),
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::super::testing::records_of as data_of;
    use super::super::testing::{KEEP, any_records, open};
    use super::super::{Attributes, ProducerIdentity, RecordData};
    use super::*;
    use proptest::prelude::*;

    fn source(options: BatchOptions, records: &[(i32, RecordData)]) -> Bytes {
        let mut builder = BatchBuilder::new(options);
        for (offset_delta, record) in records {
            builder.push_at(*offset_delta, record).unwrap();
        }
        builder.build().unwrap()
    }

    fn value(timestamp: i64, bytes: usize) -> RecordData {
        let value = (0..bytes).map(|at| (at * 7919 % 251) as u8).collect::<Vec<u8>>();
        RecordData { timestamp, value: Some(value.into()), ..RecordData::default() }
    }

    fn batches(pieces: &[Piece]) -> Vec<&Rewritten> {
        pieces
            .iter()
            .map(|piece| match piece {
                Piece::Batch(batch) => batch,
                Piece::Oversize { .. } => panic!("{piece:?}"),
            })
            .collect()
    }

    /// Case 1: a compacted batch has fewer records than offsets.
    #[test]
    fn holes_are_closed_and_told() {
        let options =
            BatchOptions { base_offset: 100, last_offset_delta: Some(9), ..BatchOptions::new(Codec::Zstd) };
        let records = [(1, value(10, 5)), (2, value(30, 5)), (7, value(20, 5))];
        let pieces = rewrite(&source(options, &records), &KEEP).unwrap();
        let [batch] = batches(&pieces)[..] else { panic!("{pieces:?}") };
        assert_eq!((batch.first_upstream_offset, batch.last_upstream_offset), (101, 107));
        let segment = |upstream_offset, record_count| Segment { upstream_offset, record_count };
        assert_eq!(batch.segments, [segment(101, 2), segment(107, 1)]);
        let opened = open(&batch.batch);
        assert!(opened.header.is_dense());
        assert_eq!(
            (opened.header.base_offset, opened.header.max_timestamp, batch.max_timestamp),
            (0, 30, 30)
        );
        assert_eq!(data_of(&opened), records.map(|(_, record)| record));
    }

    #[test]
    fn a_start_in_mid_batch_leaves_out_what_is_below() {
        let options = BatchOptions { base_offset: 50, ..BatchOptions::new(Codec::None) };
        let batch = source(options, &[(0, value(1, 1)), (1, value(2, 2)), (2, value(3, 3))]);
        let left = |start_offset| {
            let pieces = rewrite(&batch, &RewriteSettings { start_offset, ..KEEP }).unwrap();
            batches(&pieces).iter().flat_map(|piece| data_of(&open(&piece.batch))).count()
        };
        assert_eq!([0, 50, 51, 52, 53].map(left), [3, 3, 2, 1, 0]);
    }

    #[test]
    fn an_end_in_mid_batch_leaves_out_what_is_above() {
        let options = BatchOptions { base_offset: 50, ..BatchOptions::new(Codec::None) };
        let batch = source(options, &[(0, value(1, 1)), (1, value(2, 2)), (2, value(3, 3))]);
        let pieces = rewrite(&batch, &RewriteSettings { start_offset: 51, end_offset: 52, ..KEEP }).unwrap();
        let [only] = batches(&pieces)[..] else { panic!("{pieces:?}") };
        assert_eq!((only.first_upstream_offset, only.last_upstream_offset), (51, 51));
    }

    #[test]
    fn log_append_time_becomes_the_records_own() {
        let mut options = BatchOptions { max_timestamp: Some(9_000), ..BatchOptions::new(Codec::None) };
        options.attributes.0 |= Attributes::LOG_APPEND_TIME;
        let batch = source(options, &[(0, value(-1, 4)), (1, value(7, 4))]);
        let pieces = rewrite(&batch, &KEEP).unwrap();
        let opened = open(&batches(&pieces)[0].batch);
        assert_eq!(opened.header.attributes.0, 0);
        assert_eq!((opened.header.base_timestamp, opened.header.max_timestamp), (9_000, 9_000));
        assert_eq!(data_of(&opened), [value(9_000, 4), value(9_000, 4)]);
    }

    /// Case 11: under the delete horizon bit the base timestamp is not a record's, yet deltas add to it.
    #[test]
    fn a_delete_horizon_goes_and_timestamps_stay() {
        let mut options = BatchOptions { base_timestamp: Some(500_000), ..BatchOptions::new(Codec::None) };
        options.attributes.0 |= Attributes::DELETE_HORIZON | Attributes::TRANSACTIONAL;
        options.last_offset_delta = Some(3);
        let tombstone = RecordData { timestamp: 1_000, key: Some("k".into()), ..RecordData::default() };
        let pieces = rewrite(&source(options, &[(3, tombstone.clone())]), &KEEP).unwrap();
        let opened = open(&batches(&pieces)[0].batch);
        assert_eq!((opened.header.attributes.0, opened.header.base_timestamp), (0, 1_000));
        assert_eq!(data_of(&opened), [tombstone]);
    }

    /// Case 12: what is over the target's limit is split; a record that cannot fit is named, the others pass.
    #[test]
    fn a_record_over_the_limit_is_named_in_its_place() {
        for codec in [Codec::None, Codec::Lz4] {
            let options = BatchOptions { base_offset: 10, ..BatchOptions::new(codec) };
            let batch = source(options, &[(0, value(1, 300)), (1, value(2, 5_000)), (2, value(3, 300))]);
            let pieces = rewrite(
                &batch,
                &RewriteSettings { batch_bytes_max: 450, target_codec: Some(Codec::None), ..KEEP },
            )
            .unwrap();
            let [
                Piece::Batch(front),
                Piece::Oversize { upstream_offset: 11, size_bytes },
                Piece::Batch(back),
            ] = &pieces[..]
            else {
                panic!("{pieces:?}")
            };
            assert!(*size_bytes > 5_000);
            assert_eq!((front.last_upstream_offset, back.first_upstream_offset), (10, 12));
        }
    }

    #[test]
    fn a_control_batch_is_refused() {
        let mut options = BatchOptions::new(Codec::None);
        options.attributes.0 |= Attributes::CONTROL;
        assert!(rewrite(&source(options, &[(0, value(1, 6))]), &KEEP).is_err());
    }

    #[test]
    fn damage_is_found_before_it_is_sealed_again() {
        let mut batch = source(BatchOptions::new(Codec::None), &[(0, value(1, 60))]).to_vec();
        batch[100] ^= 1;
        assert!(matches!(rewrite(&batch.into(), &KEEP), Err(Error::Crc { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn records_and_offsets_are_kept(
            records in any_records(20),
            steps in prop::collection::vec(1_i32..4, 20),
            tail in 0_i32..3,
            base_offset in 0_i64..1_000_000,
            start in 0_i64..30,
            codecs in (0_i16..5, prop::option::of(0_i16..5)),
            limit in prop_oneof![200_usize..900, Just(1 << 20)],
            log_append_time: bool,
        ) {
            let mut at = -1;
            let records: Vec<(i32, RecordData)> =
                records.into_iter().zip(steps).map(|(record, step)| { at += step; (at, record) }).collect();
            let mut options = BatchOptions {
                base_offset,
                identity: ProducerIdentity { producer_id: 5, producer_epoch: 0, base_sequence: 3 },
                last_offset_delta: Some(at + tail),
                ..BatchOptions::new(Codec::from_bits(codecs.0).unwrap())
            };
            if log_append_time {
                options.attributes.0 |= Attributes::LOG_APPEND_TIME;
                options.max_timestamp = Some(77);
            }
            let settings = RewriteSettings {
                start_offset: base_offset + start, end_offset: i64::MAX,
                target_codec: codecs.1.and_then(Codec::from_bits),
                batch_bytes_max: limit,
                ..KEEP
            };
            let codec = Codec::from_bits(codecs.1.unwrap_or(codecs.0)).unwrap();
            let mut expected: Vec<(i64, RecordData)> = records
                .iter()
                .map(|(delta, record)| (base_offset + i64::from(*delta), record.clone()))
                .filter(|(offset, _)| *offset >= settings.start_offset)
                .collect();
            if log_append_time {
                expected.iter_mut().for_each(|(_, record)| record.timestamp = 77);
            }
            let mut seen = Vec::new();
            for piece in rewrite(&source(options, &records), &settings).unwrap() {
                let batch = match piece {
                    Piece::Batch(batch) => batch,
                    Piece::Oversize { upstream_offset, size_bytes } => {
                        prop_assert!(size_bytes > limit);
                        expected.retain(|(offset, _)| *offset != upstream_offset);
                        continue;
                    }
                };
                prop_assert!(batch.batch.len() <= limit);
                let opened = open(&batch.batch);
                prop_assert!(opened.header.is_dense() && opened.header.base_offset == 0);
                prop_assert_eq!(opened.header.attributes.0, codec.bits());
                prop_assert_eq!((opened.header.producer_id, opened.header.base_sequence), (-1, -1));
                prop_assert_eq!(opened.header.record_count, batch.record_count);
                let offsets: Vec<i64> = batch
                    .segments
                    .iter()
                    .flat_map(|s| s.upstream_offset..s.upstream_offset + i64::from(s.record_count))
                    .collect();
                prop_assert_eq!(offsets.first(), Some(&batch.first_upstream_offset));
                prop_assert_eq!(offsets.last(), Some(&batch.last_upstream_offset));
                let records = data_of(&opened);
                prop_assert_eq!(records.iter().map(|r| r.timestamp).max(), Some(batch.max_timestamp));
                prop_assert_eq!(offsets.len(), records.len());
                seen.extend(offsets.into_iter().zip(records));
            }
            prop_assert_eq!(seen, expected);
        }

        #[test]
        fn mutations_never_panic(records in any_records(4), at: prop::sample::Index, byte: u8, codec in 0_i16..5) {
            let records: Vec<(i32, RecordData)> = records.into_iter().enumerate().map(|(i, r)| (i as i32, r)).collect();
            let mut batch = source(BatchOptions::new(Codec::from_bits(codec).unwrap()), &records).to_vec();
            let at = at.index(batch.len());
            batch[at] = byte;
            if batch[16] == 2 {
                super::super::patch::seal(&mut batch);
            }
            let _ = rewrite(&batch.into(), &KEEP);
        }
    }
}

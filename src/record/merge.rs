//! One batch out of several that wait for the same partition anyway.
//!
//! A broker's work is per batch, and a produce request takes one batch per partition (KIP-98): small neighbours cost
//! the target most of all. Uncompressed ones are merged by copying the bodies of their records and writing three
//! numbers of each anew: length, timestamp delta (the base timestamp is the first batch's) and offset delta. Compressed
//! ones have these numbers inside the compressed stream and cost a round through the codec, but for LZ4 batches of one
//! record ([`splice`](super::splice)).
//!
//! Attributes are treated as in a patch: the codec stays, all else goes. The checksums of the parts are verified while
//! they are at hand, because the new one would hide damage; offset deltas must count up from 0, because brokers do not
//! check them and would lose records.

use bytes::Bytes;

use super::builder::{BatchBuilder, BatchOptions};
use super::crc::crc32c;
use super::patch::verify_crc;
use super::records::{OpenBatch, check_no_rest, take_framed};
use super::splice::Splice;
use super::varint::{
    VARINT_BYTES_MAX, VARLONG_BYTES_MAX, take_varint, take_varlong, varint_bytes, varint_word, varlong_bytes,
    varlong_word,
};
use super::{BatchHeader, Codec, Error, HEADER_BYTES};

/// A record of one byte for each field.
const RECORD_BYTES_MIN: usize = 7;
/// What a front of a record is written in: both deltas always fit, length and attributes usually too.
const WORD_BYTES: usize = 16;
const _: () = assert!(VARINT_BYTES_MAX + VARLONG_BYTES_MAX <= WORD_BYTES);

/// Several batches as one: base offset 0, dense, no producer, CreateTime, checksum right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The whole batch.
    pub batch: Bytes,
    /// Its records: those of the parts, in order.
    pub record_count: i32,
    /// Largest timestamp in milliseconds.
    pub max_timestamp: i64,
}

/// Whether two batches may stand in one: same codec and timestamp type, all records there, no markers.
pub fn can_merge(a: &BatchHeader, b: &BatchHeader) -> bool {
    is_mergeable(a)
        && is_mergeable(b)
        && a.attributes.codec().is_ok_and(|codec| Ok(codec) == b.attributes.codec())
        && a.attributes.timestamp_type() == b.attributes.timestamp_type()
}

fn is_mergeable(header: &BatchHeader) -> bool {
    // Room is reserved by the count, so the count must be one that the bytes can hold.
    let holds_count = header.attributes.codec() != Ok(Codec::None)
        || header.record_count as usize <= (header.size_bytes - HEADER_BYTES) / RECORD_BYTES_MIN;
    header.is_dense() && !header.attributes.is_control() && holds_count
}

/// What a batch merged of some headers' batches takes at most, before anything is copied.
#[derive(Clone, Copy, Debug)]
pub struct MergeSize {
    first: BatchHeader,
    record_count: i32,
    bytes: usize,
}

impl MergeSize {
    /// Starts with one batch.
    pub fn of(first: &BatchHeader) -> MergeSize {
        MergeSize { first: *first, record_count: first.record_count, bytes: first.size_bytes }
    }

    /// With one more batch, or `None` where the two may not be merged or offsets and lengths would overflow.
    pub fn with(mut self, next: &BatchHeader) -> Option<MergeSize> {
        if !can_merge(&self.first, next) {
            return None;
        }
        self.record_count = self.record_count.checked_add(next.record_count)?;
        let shift = next.base_timestamp.wrapping_sub(self.first.base_timestamp);
        // A sum takes at most one group of bits more than its larger term, and a length at most one more than before.
        let timestamp_growth = if shift == 0 { 0 } else { varlong_bytes(shift) };
        let growth = timestamp_growth + varint_bytes(self.record_count);
        self.bytes += next.size_bytes - HEADER_BYTES + next.record_count as usize * growth;
        i32::try_from(self.bytes).ok().map(|_| self)
    }

    /// Bytes of the merged batch at most; before compression, if the parts are not compressed.
    pub fn bytes_max(&self) -> usize {
        self.bytes
    }

    /// Records in all.
    pub fn record_count(&self) -> i32 {
        self.record_count
    }
}

/// Merges uncompressed batches, each whole, patched or as the source stored it.
pub fn merge(batches: &[Bytes]) -> Result<Merged, Error> {
    let headers = headers_of(batches)?;
    let size = size_of(&headers)?;
    // Before room is made: what compressed batches claim, nothing holds.
    check_uncompressed(&size.first)?;
    merge_parts(&headers, batches, 0, Vec::with_capacity(size.bytes_max() + WORD_BYTES))
}

/// Batches that become one while they come in: uncompressed ones, or LZ4 batches of one record each.
///
/// Each part is taken as soon as it is there: its bytes are still in the cache then, and their buffer is free again.
#[derive(Debug)]
pub struct MergeBuilder {
    size: MergeSize,
    parts: Parts,
    /// Checksum of the records so far.
    records_crc: u32,
}

#[derive(Debug)]
enum Parts {
    Plain(Merger),
    Lz4(Splice),
}

/// Records of an LZ4 batch that is merged block by block take at most this when decompressed: consumers hold them.
const SPLICED_BYTES_MAX: usize = 4 << 20;

impl MergeBuilder {
    /// Whether a batch can be a part.
    pub fn is_part(header: &BatchHeader) -> bool {
        match header.attributes.codec() {
            Ok(Codec::None) => true,
            Ok(Codec::Lz4) => header.record_count == 1,
            _ => false,
        }
    }

    /// Starts with a whole batch, in a buffer that was perhaps used before: fresh large ones cost more than the copy.
    ///
    /// # Errors
    /// Those of [`MergeBuilder::push`], or [`Error::Invalid`] for a batch that is no part.
    pub fn start(first: &BatchHeader, batch: &Bytes, buffer: Vec<u8>) -> Result<MergeBuilder, Error> {
        MergeBuilder::start_within(first, batch, buffer, SPLICED_BYTES_MAX)
    }

    fn start_within(
        first: &BatchHeader,
        batch: &Bytes,
        buffer: Vec<u8>,
        spliced_bytes_max: usize,
    ) -> Result<MergeBuilder, Error> {
        let size = MergeSize::of(first);
        let parts = match first.attributes.codec() {
            Ok(Codec::Lz4) => Parts::Lz4(Splice::start(first.base_timestamp, spliced_bytes_max, buffer)),
            _ => {
                check_uncompressed(first)?;
                Parts::Plain(Merger::new(&size, size.bytes_max(), buffer))
            }
        };
        let mut builder = MergeBuilder { size, parts, records_crc: crc32c(&[]) };
        builder.append(first, batch, HEADER_BYTES)?;
        Ok(builder)
    }

    /// Whether one more batch can be taken without the merged one growing beyond `bytes_max`.
    pub fn takes(&self, next: &BatchHeader, bytes_max: usize) -> bool {
        MergeBuilder::is_part(next) && self.size.with(next).is_some_and(|size| size.bytes_max() <= bytes_max)
    }

    /// Appends the records of a whole batch. When that fails, the builder is as before.
    ///
    /// # Errors
    /// [`Error::Crc`] for a damaged batch, [`Error::Invalid`] for one whose offset deltas do not count up or that
    /// cannot stand with those before it.
    pub fn push(&mut self, next: &BatchHeader, batch: &Bytes) -> Result<(), Error> {
        let size = self.size.with(next).ok_or_else(|| unfit(next))?;
        self.append(next, batch, self.parts.bytes().len())?;
        self.size = size;
        Ok(())
    }

    fn append(&mut self, header: &BatchHeader, batch: &Bytes, from: usize) -> Result<(), Error> {
        verify_crc(batch)?;
        match &mut self.parts {
            Parts::Plain(merger) => merger.append(header, &batch[HEADER_BYTES..])?,
            Parts::Lz4(splice) => {
                if !splice.push(header, batch)? {
                    return Err(unfit(header));
                }
            }
        }
        self.records_crc = crc32c::crc32c_append(self.records_crc, &self.parts.bytes()[from..]);
        Ok(())
    }

    /// The merged batch.
    #[expect(clippy::expect_used, reason = "the bytes were counted part by part")]
    pub fn finish(self) -> Merged {
        let known = self.parts.bytes().len();
        let (codec, encoded) = match self.parts {
            Parts::Plain(merger) => (Codec::None, merger.encoded()),
            Parts::Lz4(splice) => (Codec::Lz4, splice.finish()),
        };
        let records_crc = crc32c::crc32c_append(self.records_crc, &encoded.bytes[known..]);
        let merged = encoded.build(codec, |builder| builder.build_with(records_crc));
        merged.expect("MergeSize keeps the batch within 31 bits")
    }
}

impl Parts {
    fn bytes(&self) -> &[u8] {
        match self {
            Parts::Plain(merger) => &merger.bytes,
            Parts::Lz4(splice) => splice.bytes(),
        }
    }
}

/// Merges batches of one codec, most of them by decompressing and compressing their records: for worker threads.
/// Records of more than `decompressed_bytes_max` in all are an error.
pub fn merge_compressed(batches: &[Bytes], decompressed_bytes_max: usize) -> Result<Merged, Error> {
    let headers = headers_of(batches)?;
    let size = size_of(&headers)?;
    if headers.iter().all(|header| header.attributes.codec() == Ok(Codec::Lz4) && header.record_count == 1)
        && let Ok(merged) = merge_parts(&headers, batches, decompressed_bytes_max, Vec::new())
    {
        return Ok(merged);
    }
    let compressed_bytes: usize = batches.iter().map(Bytes::len).sum();
    let mut merger =
        Merger::new(&size, compressed_bytes.saturating_mul(3).min(decompressed_bytes_max), Vec::new());
    let mut bytes_left = decompressed_bytes_max;
    for batch in batches {
        let batch = OpenBatch::open(batch, bytes_left)?;
        bytes_left -= batch.records.len();
        merger.append(&batch.header, &batch.records)?;
    }
    merger.encoded().build(size.first.attributes.codec()?, BatchBuilder::build)
}

fn merge_parts(
    headers: &[BatchHeader],
    batches: &[Bytes],
    spliced_bytes_max: usize,
    buffer: Vec<u8>,
) -> Result<Merged, Error> {
    let mut parts = headers.iter().zip(batches);
    let (header, batch) = parts.next().ok_or_else(nothing_to_merge)?;
    let mut builder = MergeBuilder::start_within(header, batch, buffer, spliced_bytes_max)?;
    for (header, batch) in parts {
        builder.push(header, batch)?;
    }
    Ok(builder.finish())
}

fn headers_of(batches: &[Bytes]) -> Result<Vec<BatchHeader>, Error> {
    batches.iter().map(|batch| BatchHeader::parse(batch)).collect()
}

fn size_of(headers: &[BatchHeader]) -> Result<MergeSize, Error> {
    let (first, others) = headers.split_first().ok_or_else(nothing_to_merge)?;
    if !can_merge(first, first) {
        return Err(unfit(first));
    }
    others.iter().try_fold(MergeSize::of(first), |size, next| size.with(next)).ok_or_else(|| unfit(first))
}

fn check_uncompressed(header: &BatchHeader) -> Result<(), Error> {
    match header.attributes.codec()? {
        Codec::None => Ok(()),
        codec => Err(Error::Invalid {
            what: "compression codec",
            value: i64::from(codec.bits()),
            rule: "is not none, which merging by copying needs",
        }),
    }
}

#[cold]
fn nothing_to_merge() -> Error {
    Error::Invalid { what: "number of batches to merge", value: 0, rule: "is less than 1" }
}

#[cold]
fn unfit(header: &BatchHeader) -> Error {
    Error::Invalid {
        what: "batch to merge",
        value: header.base_offset,
        rule: "has holes, markers, or another codec or timestamp type than its neighbours, or is too large",
    }
}

/// A merged batch under construction.
#[derive(Debug)]
struct Merger {
    /// Room for the header, then records.
    bytes: Vec<u8>,
    base_timestamp: i64,
    max_timestamp: i64,
    record_count: i32,
}

impl Merger {
    fn new(size: &MergeSize, capacity: usize, mut bytes: Vec<u8>) -> Merger {
        bytes.clear();
        bytes.reserve(capacity + WORD_BYTES);
        bytes.resize(HEADER_BYTES, 0);
        Merger { bytes, base_timestamp: size.first.base_timestamp, max_timestamp: i64::MIN, record_count: 0 }
    }

    /// Copies the records of one part, or of none.
    fn append(&mut self, header: &BatchHeader, records: &[u8]) -> Result<(), Error> {
        let (bytes, max_timestamp) = (self.bytes.len(), self.max_timestamp);
        self.bytes.reserve(records.len() + WORD_BYTES);
        let copied = self.copy(header, records);
        match copied {
            Ok(()) => self.record_count += header.record_count,
            Err(_) => {
                self.bytes.truncate(bytes);
                self.max_timestamp = max_timestamp;
            }
        }
        copied
    }

    /// This is the loop that must be fast.
    fn copy(&mut self, header: &BatchHeader, mut records: &[u8]) -> Result<(), Error> {
        let first = self.record_count;
        for expected in 0..header.record_count {
            let mut record = take_framed(&mut records, "record")?;
            let Some((&attributes, rest)) = record.split_first() else {
                return Err(Error::Truncated { what: "record attributes", needed: 1, available: 0 });
            };
            record = rest;
            let delta = take_varlong(&mut record, "timestamp delta")?;
            let offset_delta = take_varint(&mut record, "offset delta")?;
            if offset_delta != expected {
                return Err(out_of_order(offset_delta));
            }
            let timestamp = header.base_timestamp.wrapping_add(delta);
            self.max_timestamp = self.max_timestamp.max(timestamp);
            let delta = timestamp.wrapping_sub(self.base_timestamp);
            self.put(attributes, delta, first + expected, record);
        }
        check_no_rest(records)
    }

    #[inline]
    fn put(&mut self, attributes: u8, timestamp_delta: i64, offset_delta: i32, body: &[u8]) {
        let (timestamp_word, timestamp_bytes) = varlong_word(timestamp_delta);
        let (offset_word, offset_bytes) = varint_word(offset_delta);
        let deltas = timestamp_word | u128::from(offset_word) << (8 * timestamp_bytes);
        let delta_bytes = timestamp_bytes + offset_bytes;
        // Bounded by the batch's size, which `MergeSize` holds within 31 bits.
        let (length_word, length_bytes) = varint_word((1 + delta_bytes + body.len()) as i32);
        let front = u128::from(length_word | u64::from(attributes) << (8 * length_bytes));
        let front_bytes = length_bytes + 1;
        if front_bytes + delta_bytes <= WORD_BYTES {
            self.put_word(front | deltas << (8 * front_bytes), front_bytes + delta_bytes);
        } else {
            self.put_word(front, front_bytes);
            self.put_word(deltas, delta_bytes);
        }
        self.bytes.extend_from_slice(body);
    }

    /// Appends the lower bytes of `word`. A copy of fixed size is two moves, one of `used` bytes a call; and bytes that
    /// go through memory one by one cannot be read back as words without a stall.
    #[inline]
    fn put_word(&mut self, word: u128, used: usize) {
        let end = self.bytes.len() + used;
        self.bytes.extend_from_slice(&word.to_le_bytes());
        self.bytes.truncate(end);
    }

    fn encoded(self) -> Encoded {
        let Merger { bytes, base_timestamp, max_timestamp, record_count } = self;
        Encoded { bytes, base_timestamp, max_timestamp, record_count }
    }
}

/// Records of several batches, encoded.
pub(super) struct Encoded {
    /// Room for the header, then the records.
    pub(super) bytes: Vec<u8>,
    pub(super) base_timestamp: i64,
    pub(super) max_timestamp: i64,
    pub(super) record_count: i32,
}

impl Encoded {
    fn build(
        self,
        codec: Codec,
        build: impl FnOnce(BatchBuilder) -> Result<Bytes, Error>,
    ) -> Result<Merged, Error> {
        let Encoded { bytes, base_timestamp, max_timestamp, record_count } = self;
        let options = BatchOptions {
            base_timestamp: Some(base_timestamp),
            max_timestamp: Some(max_timestamp),
            ..BatchOptions::new(codec)
        };
        let batch = build(BatchBuilder::of_encoded(options, bytes, record_count))?;
        Ok(Merged { batch, record_count, max_timestamp })
    }
}

#[cold]
fn out_of_order(offset_delta: i32) -> Error {
    Error::Invalid {
        what: "offset delta",
        value: i64::from(offset_delta),
        rule: "does not count up from 0 record by record",
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{any_records, open, records_of};
    use super::super::{Attributes, ProducerIdentity, RecordData, patch};
    use super::*;
    use proptest::prelude::*;

    fn batch(options: BatchOptions, records: &[RecordData]) -> Bytes {
        let mut builder = BatchBuilder::new(options);
        for record in records {
            builder.push(record).unwrap();
        }
        builder.build().unwrap()
    }

    fn header(batch: &Bytes) -> BatchHeader {
        BatchHeader::parse(batch).unwrap()
    }

    fn at(timestamp: i64) -> RecordData {
        RecordData {
            timestamp,
            key: Some("key".into()),
            value: Some("value".into()),
            ..RecordData::default()
        }
    }

    #[test]
    fn the_first_batchs_base_timestamp_is_everyones() {
        let parts = [&[at(1_000), at(900)][..], &[at(5_000)], &[at(-1), at(1_790_000_000_000)]]
            .map(|records| batch(BatchOptions::new(Codec::None), records));
        let merged = merge(&parts).unwrap();
        assert_eq!((merged.record_count, merged.max_timestamp), (5, 1_790_000_000_000));
        let opened = open(&merged.batch);
        assert!(opened.header.is_dense());
        assert_eq!((opened.header.base_timestamp, opened.header.max_timestamp), (1_000, 1_790_000_000_000));
        assert_eq!(
            (opened.header.base_offset, opened.header.producer_id, opened.header.attributes.0),
            (0, -1, 0)
        );
        let expected: Vec<RecordData> = parts.iter().flat_map(|part| records_of(&open(part))).collect();
        assert_eq!(records_of(&opened), expected);
    }

    #[test]
    fn only_whole_batches_of_one_kind_can_be_merged() {
        let plain = header(&batch(BatchOptions::new(Codec::None), &[at(1), at(2)]));
        let with = |attributes: i16| BatchHeader { attributes: Attributes(attributes), ..plain };
        assert!(can_merge(&plain, &plain));
        assert!(can_merge(&plain, &with(Attributes::TRANSACTIONAL | Attributes::DELETE_HORIZON)));
        assert!(can_merge(&with(3), &with(3)));
        for other in [
            with(3),
            with(7),
            with(Attributes::CONTROL),
            with(Attributes::LOG_APPEND_TIME),
            BatchHeader { last_offset_delta: 2, ..plain },
            BatchHeader { record_count: 0, last_offset_delta: 0, ..plain },
            BatchHeader { record_count: 1 << 30, last_offset_delta: (1 << 30) - 1, ..plain },
        ] {
            assert!(!can_merge(&plain, &other) && !can_merge(&other, &plain), "{other:?}");
        }
        assert!(!can_merge(&with(7), &with(7)));
    }

    /// Brokers take wrong inner deltas of an uncompressed batch: the records would be lost.
    #[test]
    fn inner_offset_deltas_that_do_not_count_up_are_refused() {
        let mut builder =
            BatchBuilder::new(BatchOptions { last_offset_delta: Some(2), ..BatchOptions::new(Codec::None) });
        for delta in [0, 2] {
            builder.push_at(delta, &at(1)).unwrap();
        }
        let mut wrong = builder.build().unwrap().to_vec();
        wrong[23..27].copy_from_slice(&1_i32.to_be_bytes());
        super::super::patch::seal(&mut wrong);
        let error = merge(&[wrong.into()]).unwrap_err();
        assert!(matches!(error, Error::Invalid { what: "offset delta", value: 2, .. }), "{error}");
    }

    #[test]
    fn a_part_that_is_refused_leaves_no_trace() {
        let parts = [&[at(1_000), at(900)][..], &[at(5_000)]]
            .map(|records| batch(BatchOptions::new(Codec::None), records));
        let mut late = batch(BatchOptions::new(Codec::None), &[at(9_000), at(9_001)]).to_vec();
        late.pop();
        let length = late.len() as i32 - 12;
        late[8..12].copy_from_slice(&length.to_be_bytes());
        super::super::patch::seal(&mut late);
        let late = Bytes::from(late);
        let mut builder = MergeBuilder::start(&header(&parts[0]), &parts[0], Vec::new()).unwrap();
        assert!(builder.push(&header(&late), &late).is_err(), "its last record is cut off");
        builder.push(&header(&parts[1]), &parts[1]).unwrap();
        assert_eq!(builder.finish(), merge(&parts).unwrap());
    }

    #[test]
    fn a_count_that_is_not_the_records_is_refused() {
        for count in [1_i32, 3] {
            let mut wrong = batch(BatchOptions::new(Codec::None), &[at(1), at(2)]).to_vec();
            wrong[57..61].copy_from_slice(&count.to_be_bytes());
            wrong[23..27].copy_from_slice(&(count - 1).to_be_bytes());
            super::super::patch::seal(&mut wrong);
            assert!(merge(&[wrong.into()]).is_err(), "{count}");
        }
    }

    #[test]
    fn damage_is_found_before_it_is_sealed_again() {
        let part = batch(BatchOptions::new(Codec::None), &[at(1)]);
        let mut damaged = part.to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(matches!(merge(&[part, damaged.into()]), Err(Error::Crc { .. })));
    }

    #[test]
    fn compressed_parts_need_the_other_way_and_stay_within_its_cap() {
        let part = batch(BatchOptions::new(Codec::Lz4), &[at(1), at(2)]);
        let bytes = open(&part).records.len();
        assert!(merge(std::slice::from_ref(&part)).is_err());
        assert!(merge(&[]).is_err());
        assert!(merge_compressed(&[part.clone(), part.clone()], 2 * bytes).is_ok());
        assert!(merge_compressed(&[part.clone(), part], 2 * bytes - 1).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn a_merged_batch_has_all_records_in_order(
            parts in prop::collection::vec(any_records(6), 1..6),
            codec in 0_i16..5,
            base_offset in 0_i64..1_000,
            patched: bool,
        ) {
            let codec = Codec::from_bits(codec).unwrap();
            let identity = ProducerIdentity { producer_id: 5, producer_epoch: 0, base_sequence: 3 };
            let options = BatchOptions { base_offset, identity, ..BatchOptions::new(codec) };
            let mut batches: Vec<Bytes> = parts.iter().map(|records| batch(options, records)).collect();
            if patched {
                for batch in &mut batches {
                    let header = patch(batch, batch.len(), ProducerIdentity::NONE).unwrap();
                    *batch = [&header[..], &batch[HEADER_BYTES..]].concat().into();
                }
            }
            let size = batches[1..]
                .iter()
                .try_fold(MergeSize::of(&header(&batches[0])), |size, batch| size.with(&header(batch)))
                .unwrap();
            let merged = merge_compressed(&batches, 1 << 20).unwrap();
            if codec == Codec::None {
                prop_assert_eq!(&merge(&batches).unwrap(), &merged);
                prop_assert!(merged.batch.len() <= size.bytes_max());
            }
            let opened = open(&merged.batch);
            let expected: Vec<RecordData> = parts.concat();
            prop_assert!(opened.header.is_dense());
            prop_assert_eq!(opened.header.attributes.0, codec.bits());
            prop_assert_eq!(opened.header.record_count, size.record_count());
            prop_assert_eq!(expected.iter().map(|r| r.timestamp).max(), Some(opened.header.max_timestamp));
            prop_assert_eq!(records_of(&opened), expected);
        }

        #[test]
        fn mutations_never_panic(records in any_records(4), at: prop::sample::Index, byte: u8) {
            let part = batch(BatchOptions::new(Codec::None), &records);
            let mut mutated = part.to_vec();
            let at = at.index(part.len());
            mutated[at] = byte;
            super::super::patch::seal(&mut mutated);
            let mutated = Bytes::from(mutated);
            if let Ok(merged) = merge(&[part.clone(), mutated.clone()]) {
                prop_assert_eq!(merged.record_count, 2 * records.len() as i32);
            }
            let _ = merge_compressed(&[part, mutated], 1 << 20);
        }
    }
}

//! LZ4 batches of one record each put together without a round through the codec.
//!
//! What a merge changes of a record is its front: length, timestamp delta, offset delta. A block of LZ4 opens with bytes
//! that it carries as they are (literals), because there is nothing yet to copy from; so the front of the only record
//! of a block stands in it readable, and can be replaced there. All copies in a block are by distance back, so they hold
//! as long as none of them reaches into the front, which is looked up copy by copy. Each block becomes one of the merged
//! frame: a frame of independent blocks, as Kafka's clients write it, whose blocks may be of any length up to 64 KiB.
//!
//! A record whose front is copied from is compressed anew, alone. Where that is no way either (a record of more than
//! 64 KiB), the caller takes the long one. The formats are those of lz4_Block_format.md and lz4_Frame_format.md.

use bytes::Bytes;

use super::codec::{LZ4_BLOCK_BYTES, LZ4_FRAME_END, LZ4_FRAME_START};
use super::merge::Encoded;
use super::varint::{
    VARINT_BYTES_MAX, VARLONG_BYTES_MAX, put_varint, put_varlong, take_varint, take_varlong, varint_bytes,
    varlong_bytes,
};
use super::{BatchHeader, Error, HEADER_BYTES, OpenBatch};

/// In a frame's flags: version 1, the only one.
const VERSION: u8 = 0b0100_0000;
const VERSION_MASK: u8 = 0b1100_0000;
const BLOCK_CHECKSUMS: u8 = 0b0001_0000;
const CONTENT_SIZE: u8 = 0b0000_1000;
const CONTENT_CHECKSUM: u8 = 0b0000_0100;
/// A bit that must be 0, and the id of a dictionary, which Kafka has none of.
const UNKNOWN: u8 = 0b0000_0011;
/// In a block's length: its bytes are not compressed.
const PLAIN_BLOCK: u32 = 1 << 31;
/// A copy is at least this long.
const COPY_BYTES_MIN: usize = 4;
/// A length of this and more goes on in the bytes behind its token.
const LENGTH_GOES_ON: usize = 15;
/// Length, attributes and both deltas, each as long as can be.
const FRONT_BYTES_MAX: usize = 2 * VARINT_BYTES_MAX + VARLONG_BYTES_MAX + 1;

/// A frame under construction.
#[derive(Debug)]
pub(super) struct Splice {
    /// Room for the batch's header, then the frame.
    bytes: Vec<u8>,
    base_timestamp: i64,
    max_timestamp: i64,
    record_count: i32,
    decompressed_bytes_left: usize,
}

/// The single record of a batch, as its block holds it.
struct Single<'a> {
    /// The block behind its length field.
    block: Block<'a>,
    attributes: u8,
    timestamp_delta: i64,
    /// Bytes of the front that is to be replaced.
    front_bytes: usize,
    /// Bytes of the record behind it.
    body_bytes: usize,
}

#[derive(Clone, Copy)]
enum Block<'a> {
    Plain(&'a [u8]),
    /// The literals that open it, the length of the first copy as its token has it, and all that follows the literals.
    Compressed {
        literals: &'a [u8],
        copy: u8,
        rest: &'a [u8],
    },
}

impl Splice {
    /// Starts a frame in a buffer that was perhaps used before. Its records take `decompressed_bytes_max` at most.
    pub(super) fn start(base_timestamp: i64, decompressed_bytes_max: usize, mut bytes: Vec<u8>) -> Splice {
        bytes.clear();
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend_from_slice(&LZ4_FRAME_START);
        Splice {
            bytes,
            base_timestamp,
            max_timestamp: i64::MIN,
            record_count: 0,
            decompressed_bytes_left: decompressed_bytes_max,
        }
    }

    /// What there is of the batch.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends a batch's only record. `false`, and nothing is appended, where it cannot stand in the frame.
    pub(super) fn push(&mut self, header: &BatchHeader, batch: &Bytes) -> Result<bool, Error> {
        if header.record_count != 1 {
            return Ok(false);
        }
        if let Some(single) = batch.get(HEADER_BYTES..).and_then(Single::find) {
            let put = |splice: &mut Splice, front: &[u8]| splice.put_block(&single, front);
            return Ok(self.put(header, &single, put).is_some());
        }
        let record = OpenBatch::open(batch, LZ4_BLOCK_BYTES)?.records;
        let Some(single) = Single::read(Block::Plain(&record), &record, |_| Some(record.len())) else {
            return Ok(false);
        };
        // The caller has counted with no more than the batch has now.
        let room = batch.len() - HEADER_BYTES;
        let put =
            |splice: &mut Splice, front: &[u8]| splice.put_anew(front, &record[single.front_bytes..], room);
        Ok(self.put(header, &single, put).is_some())
    }

    /// Ends the frame.
    pub(super) fn finish(mut self) -> Encoded {
        self.bytes.extend_from_slice(&LZ4_FRAME_END);
        let Splice { bytes, base_timestamp, max_timestamp, record_count, .. } = self;
        Encoded { bytes, base_timestamp, max_timestamp, record_count }
    }

    fn put(
        &mut self,
        header: &BatchHeader,
        single: &Single<'_>,
        put: impl FnOnce(&mut Splice, &[u8]) -> Option<()>,
    ) -> Option<()> {
        let timestamp = header.base_timestamp.wrapping_add(single.timestamp_delta);
        let timestamp_delta = timestamp.wrapping_sub(self.base_timestamp);
        let deltas_bytes = varlong_bytes(timestamp_delta) + varint_bytes(self.record_count);
        let record_bytes = i32::try_from(1 + deltas_bytes + single.body_bytes).ok()?;
        let decompressed_bytes = varint_bytes(record_bytes) + record_bytes as usize;
        if decompressed_bytes > LZ4_BLOCK_BYTES.min(self.decompressed_bytes_left) {
            return None;
        }
        let mut front = Vec::with_capacity(FRONT_BYTES_MAX);
        put_varint(&mut front, record_bytes);
        front.push(single.attributes);
        put_varlong(&mut front, timestamp_delta);
        put_varint(&mut front, self.record_count);
        put(self, &front)?;
        self.decompressed_bytes_left -= decompressed_bytes;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.record_count += 1;
        Some(())
    }

    fn put_block(&mut self, single: &Single<'_>, front: &[u8]) -> Option<()> {
        match single.block {
            Block::Plain(bytes) => self.put_bytes(true, &[front, &bytes[single.front_bytes..]]),
            Block::Compressed { literals, copy, rest } => {
                let literals = &literals[single.front_bytes..];
                let mut token = Vec::with_capacity(FRONT_BYTES_MAX);
                put_token(&mut token, front.len() + literals.len(), copy);
                self.put_bytes(false, &[&token, front, literals, rest]);
            }
        }
        Some(())
    }

    fn put_anew(&mut self, front: &[u8], body: &[u8], room: usize) -> Option<()> {
        let record = [front, body].concat();
        let compressed = lz4_flex::block::compress(&record);
        let is_plain = compressed.len() >= record.len();
        let block = if is_plain { record } else { compressed };
        (4 + block.len() <= room).then(|| self.put_bytes(is_plain, &[&block]))
    }

    fn put_bytes(&mut self, is_plain: bool, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        // Little more than a batch's, which has 31 bits.
        let length = bytes as u32 | if is_plain { PLAIN_BLOCK } else { 0 };
        self.bytes.extend_from_slice(&length.to_le_bytes());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
    }
}

fn put_token(out: &mut Vec<u8>, literals: usize, copy: u8) {
    out.push((literals.min(LENGTH_GOES_ON) as u8) << 4 | copy);
    if let Some(mut more) = literals.checked_sub(LENGTH_GOES_ON) {
        while more >= 255 {
            out.push(255);
            more -= 255;
        }
        out.push(more as u8);
    }
}

impl<'a> Single<'a> {
    /// Looks into the records section of a batch of one record.
    fn find(frame: &'a [u8]) -> Option<Single<'a>> {
        let (is_plain, bytes) = only_block(frame)?;
        let (block, readable) = if is_plain {
            (Block::Plain(bytes), bytes)
        } else {
            let mut rest = bytes;
            let (literals, copy) = take_literals(&mut rest)?;
            (Block::Compressed { literals, copy, rest }, literals)
        };
        Single::read(block, readable, |front_bytes| {
            if is_plain { Some(bytes.len()) } else { decompressed_bytes(bytes, front_bytes) }
        })
    }

    /// Reads the front of the record out of `readable`; `bytes` tells, by the length of the front, how long it all is.
    fn read(
        block: Block<'a>,
        readable: &[u8],
        bytes: impl FnOnce(usize) -> Option<usize>,
    ) -> Option<Single<'a>> {
        let mut front = readable;
        let record_bytes = usize::try_from(take_varint(&mut front, "record").ok()?).ok()?;
        let length_bytes = readable.len() - front.len();
        let (&attributes, behind) = front.split_first()?;
        front = behind;
        let timestamp_delta = take_varlong(&mut front, "timestamp delta").ok()?;
        let offset_delta = take_varint(&mut front, "offset delta").ok()?;
        let front_bytes = readable.len() - front.len();
        let bytes = bytes(front_bytes)?;
        let is_whole = bytes == length_bytes.checked_add(record_bytes)? && offset_delta == 0;
        let body_bytes = bytes.checked_sub(front_bytes)?;
        is_whole.then_some(Single { block, attributes, timestamp_delta, front_bytes, body_bytes })
    }
}

/// The only block of a frame, and whether it is not compressed.
fn only_block(frame: &[u8]) -> Option<(bool, &[u8])> {
    let behind_magic = frame.strip_prefix(&LZ4_FRAME_START[..4])?;
    let (&flags, _) = behind_magic.split_first()?;
    if flags & VERSION_MASK != VERSION || flags & UNKNOWN != 0 {
        return None;
    }
    // Flags, block size and header checksum.
    let descriptor_bytes = 3 + if flags & CONTENT_SIZE == 0 { 0 } else { 8 };
    let (length, rest) = behind_magic.get(descriptor_bytes..)?.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length);
    let (block, rest) = rest.split_at_checked((length & !PLAIN_BLOCK) as usize)?;
    let checksum_bytes = if flags & BLOCK_CHECKSUMS == 0 { 0 } else { 4 };
    let (end, rest) = rest.get(checksum_bytes..)?.split_first_chunk::<4>()?;
    let behind_end = if flags & CONTENT_CHECKSUM == 0 { 0 } else { 4 };
    (*end == LZ4_FRAME_END && rest.len() == behind_end).then_some((length & PLAIN_BLOCK != 0, block))
}

/// Takes a token and its literals off the front of `block`; gives them and the token's length of the copy.
#[inline]
fn take_literals<'a>(block: &mut &'a [u8]) -> Option<(&'a [u8], u8)> {
    let (&token, rest) = block.split_first()?;
    *block = rest;
    let length = take_length(block, usize::from(token >> 4))?;
    let (literals, rest) = block.split_at_checked(length)?;
    *block = rest;
    Some((literals, token & 15))
}

#[inline]
fn take_length(block: &mut &[u8], mut length: usize) -> Option<usize> {
    if length == LENGTH_GOES_ON {
        loop {
            let (&more, rest) = block.split_first()?;
            *block = rest;
            length += usize::from(more);
            if more < 255 {
                break;
            }
        }
    }
    Some(length)
}

/// Bytes that a block holds, if it is whole and copies nothing of its first `front_bytes`.
fn decompressed_bytes(mut block: &[u8], front_bytes: usize) -> Option<usize> {
    let mut at = 0;
    loop {
        let (literals, copy) = take_literals(&mut block)?;
        at += literals.len();
        if block.is_empty() {
            return Some(at);
        }
        let (distance, rest) = block.split_first_chunk::<2>()?;
        block = rest;
        let distance = usize::from(u16::from_le_bytes(*distance));
        let from = at.checked_sub(distance)?;
        if distance == 0 || from < front_bytes {
            return None;
        }
        at += take_length(&mut block, usize::from(copy))? + COPY_BYTES_MIN;
        if at > LZ4_BLOCK_BYTES {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{any_records, open, records_of};
    use super::super::{BatchBuilder, BatchOptions, Codec, RecordData, merge_compressed};
    use super::*;
    use proptest::prelude::*;

    const BYTES_MAX: usize = 1 << 24;

    fn batch(record: &RecordData) -> Bytes {
        let mut builder = BatchBuilder::new(BatchOptions::new(Codec::Lz4));
        builder.push(record).unwrap();
        builder.build().unwrap()
    }

    fn record(timestamp: i64, value: Vec<u8>) -> RecordData {
        RecordData { timestamp, key: Some("key".into()), value: Some(value.into()), ..RecordData::default() }
    }

    fn text(bytes: usize, seed: usize) -> Vec<u8> {
        (0..bytes).map(|at| b"abcdefgh-0123456789 "[(at * (at + seed) / 7 + at / 100) % 20]).collect()
    }

    /// The indexes of the batches whose blocks are kept.
    fn spliced(batches: &[Bytes]) -> Vec<usize> {
        (0..batches.len()).filter(|&index| Single::find(&batches[index][HEADER_BYTES..]).is_some()).collect()
    }

    #[test]
    fn blocks_are_kept_but_for_the_front_of_the_record() {
        let records =
            [record(1_000, text(900, 3)), record(900, text(700, 5)), record(9_000_000_000, text(3, 1))];
        let parts = records.each_ref().map(batch);
        assert_eq!(spliced(&parts), [0, 1, 2]);
        let merged = merge_compressed(&parts, BYTES_MAX).unwrap();
        assert_eq!((merged.record_count, merged.max_timestamp), (3, 9_000_000_000));
        assert_eq!(records_of(&open(&merged.batch)), records);
        for part in &parts {
            let end_of_block = &part[part.len() - 12..part.len() - 4];
            assert!(merged.batch.windows(8).any(|window| window == end_of_block));
        }
    }

    /// Zeros and the like are copied from the front of the record itself.
    #[test]
    fn a_record_whose_front_is_copied_is_compressed_anew() {
        // Attributes, both deltas, a null key and the value's length, once more at the beginning of the value.
        let value = [&[0, 0, 0, 1, 0x9c, 0x03][..], &text(200, 1)].concat();
        let copied = RecordData { timestamp: 7, value: Some(value.into()), ..RecordData::default() };
        let records = [record(5, text(500, 2)), copied, record(6, text(500, 4))];
        let parts = records.each_ref().map(batch);
        assert_eq!(spliced(&parts), [0, 2]);
        assert_eq!(records_of(&open(&merge_compressed(&parts, BYTES_MAX).unwrap().batch)), records);
    }

    #[test]
    fn what_does_not_compress_stands_plain_and_is_spliced() {
        let mut state = 9_u64;
        let noise = (0..600).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        let records = [record(1, noise.collect()), record(2, text(600, 1))];
        let parts = records.each_ref().map(batch);
        assert_eq!(spliced(&parts), [0, 1]);
        assert_eq!(records_of(&open(&merge_compressed(&parts, BYTES_MAX).unwrap().batch)), records);
    }

    #[test]
    fn frames_with_checksums_sizes_and_other_block_sizes_are_spliced() {
        use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
        use std::io::Write;
        let wanted = record(1, text(900, 1));
        let plain = open(&batch(&wanted)).records;
        let mut parts = Vec::new();
        for (mode, checksums) in [(BlockMode::Linked, true), (BlockMode::Independent, false)] {
            let info = FrameInfo::new()
                .block_mode(mode)
                .block_size(BlockSize::Max4MB)
                .block_checksums(checksums)
                .content_checksum(checksums)
                .content_size(Some(plain.len() as u64));
            let mut encoder = FrameEncoder::with_frame_info(info, vec![0; HEADER_BYTES]);
            encoder.write_all(&plain).unwrap();
            let mut bytes = encoder.finish().unwrap();
            bytes[..HEADER_BYTES].copy_from_slice(&batch(&wanted)[..HEADER_BYTES]);
            let length = (bytes.len() - 12) as i32;
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
            super::super::patch::seal(&mut bytes);
            parts.push(Bytes::from(bytes));
        }
        assert_eq!(spliced(&parts), [0, 1]);
        let merged = merge_compressed(&parts, BYTES_MAX).unwrap();
        assert_eq!(records_of(&open(&merged.batch)), [wanted.clone(), wanted]);
    }

    #[test]
    fn several_records_blocks_too_long_and_broken_frames_go_the_long_way() {
        let mut two = BatchBuilder::new(BatchOptions::new(Codec::Lz4));
        two.push(&record(1, text(10, 1))).unwrap();
        two.push(&record(2, text(10, 2))).unwrap();
        let long = batch(&record(1, vec![b'a'; LZ4_BLOCK_BYTES]));
        assert_eq!(spliced(&[two.build().unwrap(), long]), Vec::<usize>::new());
        let whole = batch(&record(1, text(300, 1)));
        for cut in HEADER_BYTES..whole.len() {
            assert!(Single::find(&whole[HEADER_BYTES..cut]).is_none(), "{cut}");
        }
        assert!(Single::find(&[&whole[HEADER_BYTES..], &[0]].concat()).is_none());
    }

    #[test]
    fn the_cap_counts_what_is_decompressed() {
        let parts = [batch(&record(1, text(900, 1))), batch(&record(2, text(900, 2)))];
        let bytes: usize = records_of(&open(&merge_compressed(&parts, BYTES_MAX).unwrap().batch)).len();
        assert_eq!(bytes, 2);
        assert!(merge_compressed(&parts, 1_000).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn records_come_through_whichever_way_they_go(records in any_records(40)) {
            let parts: Vec<Bytes> = records.iter().map(batch).collect();
            let merged = merge_compressed(&parts, BYTES_MAX).unwrap();
            prop_assert_eq!(records_of(&open(&merged.batch)), records);
        }

        #[test]
        fn mutations_never_panic_and_stay_bounded(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = batch(&record(1, text(400, 3))).to_vec();
            for (at, byte) in &flips {
                let at = HEADER_BYTES + at.index(bytes.len() - HEADER_BYTES);
                bytes[at] = *byte;
            }
            if let Some(single) = Single::find(&bytes[HEADER_BYTES..]) {
                prop_assert!(single.front_bytes + single.body_bytes <= LZ4_BLOCK_BYTES.max(bytes.len()));
            }
        }
    }
}

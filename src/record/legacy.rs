//! Messages of magic 0 and 1, made into v2 batches: what a log that is older than Kafka 0.11 may still hold, and what no
//! broker takes in a produce request today (`LegacyRecord.java`, `AbstractLegacyRecordBatch.java`, KIP-31, KIP-32).
//!
//! ```text
//! 0 offset i64 | 8 length i32 | 12 crc u32 | 16 magic i8 | 17 attributes i8 | (magic 1: 18 timestamp i64)
//! | key length i32, key | value length i32, value
//! ```
//! An entry is one message, or a wrapper: a compressed message whose value is a message set. The rules for wrappers:
//! - Magic 0 gives inner messages their own offsets. Magic 1 numbers them from 0 (holes stay), and the wrapper has the
//!   offset of the last; a wrapper at 0 was written by a librdkafka that did not know this, and counts as base 0.
//! - With LogAppendTime the wrapper's timestamp is that of all inner messages.
//! - LZ4 under magic 0 has a wrong header checksum, which Kafka 0.8's clients wrote: it is not checked.
//! - Wrappers do not nest. Zstandard came with v2.
//!
//! The CRC is zlib's, of everything behind it, and each message has its own.

use std::ops::Range;

use bytes::Bytes;

use super::codec::decompress;
use super::records::check_no_rest;
use super::rewrite::{SourceRecord, pack};
use super::varint::put_varint;
use super::{Attributes, Codec, Error, PREFIX_BYTES, Piece, RewriteSettings, TimestampType};

/// No timestamp: all that a message of magic 0 can say.
const NO_TIMESTAMP: i64 = -1;

/// Converts one whole entry of magic 0 or 1. An entry of which no record is left gives no piece.
///
/// Without a target codec the wrapper's stays. Timestamps become the records' own (CreateTime).
pub fn convert(entry: &Bytes, settings: &RewriteSettings) -> Result<Vec<Piece>, Error> {
    with_records(entry, settings.decompressed_bytes_max, |mut records, codec| {
        records.retain(|record| settings.takes(record.upstream_offset));
        pack(&records, settings.target_codec.unwrap_or(codec), settings.batch_bytes_max)
    })
}

/// Hands over the records of an entry, with the codec that it has.
pub(super) fn with_records<T>(
    entry: &Bytes,
    decompressed_bytes_max: usize,
    make: impl FnOnce(Vec<SourceRecord<'_>>, Codec) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut rest = entry.clone();
    let outer = Message::take(&mut rest)?;
    check_no_rest(&rest)?;
    let codec = outer.codec()?;
    let messages =
        if codec == Codec::None { vec![outer] } else { unwrap(&outer, codec, decompressed_bytes_max)? };
    let mut bodies = Vec::with_capacity(entry.len());
    let mut kept = Vec::new();
    let mut offset_min = 0;
    for message in messages {
        check_rises(message.offset, offset_min)?;
        offset_min = message.offset.saturating_add(1);
        let body = message.put_body(&mut bodies);
        kept.push((message, body));
    }
    let records = kept.iter().map(|(message, body)| SourceRecord {
        upstream_offset: message.offset,
        timestamp: message.timestamp,
        attributes: 0,
        body: &bodies[body.clone()],
    });
    make(records.collect(), codec)
}

/// A message as it stands in a set.
#[derive(Clone, Debug)]
struct Message {
    offset: i64,
    magic: i8,
    attributes: i8,
    timestamp: i64,
    key: Option<Bytes>,
    value: Option<Bytes>,
}

impl Message {
    /// Takes the entry at the front of `set`, its checksum verified.
    fn take(set: &mut Bytes) -> Result<Message, Error> {
        let mut prefix = take(set, PREFIX_BYTES, "message offset and length")?;
        let offset = i64::from_be_bytes(take_array(&mut prefix, "message offset")?);
        let length = i32::from_be_bytes(take_array(&mut prefix, "message length")?);
        let mut rest = take_length(set, length, "message")?;
        let stored = u32::from_be_bytes(take_array(&mut rest, "message checksum")?);
        let mut crc = flate2::Crc::new();
        crc.update(&rest);
        if crc.sum() != stored {
            return Err(Error::Crc { stored, computed: crc.sum() });
        }
        let [magic, attributes] = take_array(&mut rest, "magic and attributes")?.map(|byte: u8| byte as i8);
        let timestamp = match magic {
            0 => NO_TIMESTAMP,
            1 => i64::from_be_bytes(take_array(&mut rest, "message timestamp")?),
            other => return Err(Error::Magic(other)),
        };
        let key = take_nullable(&mut rest, "message key")?;
        let value = take_nullable(&mut rest, "message value")?;
        check_no_rest(&rest)?;
        Ok(Message { offset, magic, attributes, timestamp, key, value })
    }

    fn codec(&self) -> Result<Codec, Error> {
        match Attributes(i16::from(self.attributes)).codec()? {
            Codec::Zstd => Err(Error::Invalid {
                what: "compression codec",
                value: i64::from(Codec::Zstd.bits()),
                rule: "is zstd, which messages before magic 2 do not have",
            }),
            codec => Ok(codec),
        }
    }

    fn timestamp_type(&self) -> TimestampType {
        match self.magic {
            0 => TimestampType::CreateTime,
            _ => Attributes(i16::from(self.attributes)).timestamp_type(),
        }
    }

    /// Appends key, value and no headers as a v2 record stores them; where they are comes back.
    fn put_body(&self, out: &mut Vec<u8>) -> Range<usize> {
        let start = out.len();
        for bytes in [&self.key, &self.value] {
            match bytes {
                None => put_varint(out, -1),
                Some(bytes) => {
                    // Read behind a length of 31 bits.
                    put_varint(out, bytes.len() as i32);
                    out.extend_from_slice(bytes);
                }
            }
        }
        put_varint(out, 0);
        start..out.len()
    }
}

/// The messages in a wrapper, with absolute offsets and final timestamps.
fn unwrap(wrapper: &Message, codec: Codec, decompressed_bytes_max: usize) -> Result<Vec<Message>, Error> {
    let Some(compressed) = &wrapper.value else {
        return Err(Error::Invalid { what: "value of a compressed message", value: -1, rule: "is null" });
    };
    let mut set = if (wrapper.magic, codec) == (0, Codec::Lz4) {
        decompress(codec, &with_lz4_header_checksum(compressed), decompressed_bytes_max)?
    } else {
        decompress(codec, compressed, decompressed_bytes_max)?
    };
    let mut messages = Vec::new();
    while !set.is_empty() {
        let message = Message::take(&mut set)?;
        if message.codec()? != Codec::None {
            return Err(Error::Invalid {
                what: "compression codec of an inner message",
                value: i64::from(message.attributes),
                rule: "is not none",
            });
        }
        messages.push(message);
    }
    let Some(last) = messages.last() else {
        return Err(Error::Invalid { what: "number of inner messages", value: 0, rule: "is less than 1" });
    };
    let base_offset =
        if wrapper.magic == 0 || wrapper.offset == 0 { 0 } else { wrapper.offset - last.offset };
    if base_offset < 0 {
        return Err(Error::Invalid {
            what: "offset of a wrapper",
            value: wrapper.offset,
            rule: "is below the relative offset of its last message",
        });
    }
    for message in &mut messages {
        message.offset = message.offset.saturating_add(base_offset);
        if wrapper.timestamp_type() == TimestampType::LogAppendTime {
            message.timestamp = wrapper.timestamp;
        }
    }
    Ok(messages)
}

/// A frame whose header checksum is what the format wants: over the descriptor without the magic, which Kafka 0.8's
/// clients wrongly put under it.
fn with_lz4_header_checksum(frame: &[u8]) -> Bytes {
    const MAGIC_BYTES: usize = 4;
    const CONTENT_SIZE: u8 = 0x08;
    let mut frame = frame.to_vec();
    let flags = frame.get(MAGIC_BYTES).copied().unwrap_or(0);
    let checksum_at = MAGIC_BYTES + 2 + if flags & CONTENT_SIZE == 0 { 0 } else { 8 };
    if frame.len() > checksum_at {
        frame[checksum_at] = (xxh32_of_few(&frame[MAGIC_BYTES..checksum_at]) >> 8) as u8;
    }
    Bytes::from(frame)
}

/// xxHash32 with seed 0 of fewer than 16 bytes.
fn xxh32_of_few(bytes: &[u8]) -> u32 {
    const PRIMES: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];
    debug_assert!(bytes.len() < 16);
    let mut hash = PRIMES[4].wrapping_add(bytes.len() as u32);
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        hash = hash.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(PRIMES[2]));
        hash = hash.rotate_left(17).wrapping_mul(PRIMES[3]);
    }
    for &byte in tail {
        hash = hash.wrapping_add(u32::from(byte).wrapping_mul(PRIMES[4]));
        hash = hash.rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(PRIMES[1]);
    hash = (hash ^ (hash >> 13)).wrapping_mul(PRIMES[2]);
    hash ^ (hash >> 16)
}

fn check_rises(offset: i64, offset_min: i64) -> Result<(), Error> {
    if offset < offset_min || offset == i64::MAX {
        return Err(Error::Invalid {
            what: "message offset",
            value: offset,
            rule: "does not rise in its set",
        });
    }
    Ok(())
}

fn take(bytes: &mut Bytes, needed: usize, what: &'static str) -> Result<Bytes, Error> {
    if bytes.len() < needed {
        return Err(Error::Truncated { what, needed, available: bytes.len() });
    }
    Ok(bytes.split_to(needed))
}

fn take_array<const N: usize>(bytes: &mut Bytes, what: &'static str) -> Result<[u8; N], Error> {
    let taken = take(bytes, N, what)?;
    let mut array = [0; N];
    array.copy_from_slice(&taken);
    Ok(array)
}

fn take_length(bytes: &mut Bytes, length: i32, what: &'static str) -> Result<Bytes, Error> {
    let needed = usize::try_from(length).map_err(|_| Error::Invalid {
        what,
        value: i64::from(length),
        rule: "is a negative length",
    })?;
    take(bytes, needed, what)
}

fn take_nullable(bytes: &mut Bytes, what: &'static str) -> Result<Option<Bytes>, Error> {
    match i32::from_be_bytes(take_array(bytes, what)?) {
        -1 => Ok(None),
        length => take_length(bytes, length, what).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::super::compress;
    use super::super::testing::{KEEP, open, records_of};
    use super::*;
    use proptest::prelude::*;

    const LOG_APPEND_TIME: u8 = 8;

    /// An encoder of its own for what is tested.
    fn message(
        offset: i64,
        magic: u8,
        attributes: u8,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Vec<u8> {
        let mut body = vec![magic, attributes];
        if magic == 1 {
            body.extend(timestamp.to_be_bytes());
        }
        for field in [key, value] {
            body.extend(field.map_or(-1, |field| field.len() as i32).to_be_bytes());
            body.extend(field.unwrap_or_default());
        }
        let mut crc = flate2::Crc::new();
        crc.update(&body);
        let mut out = offset.to_be_bytes().to_vec();
        out.extend((body.len() as i32 + 4).to_be_bytes());
        out.extend(crc.sum().to_be_bytes());
        out.extend(body);
        out
    }

    fn wrapper(
        offset: i64,
        magic: u8,
        attributes: u8,
        timestamp: i64,
        codec: Codec,
        inner: &[Vec<u8>],
    ) -> Bytes {
        let mut value = Vec::new();
        compress(codec, &inner.concat(), &mut value).unwrap();
        message(offset, magic, attributes | codec.bits() as u8, timestamp, None, Some(&value)).into()
    }

    /// Offset, timestamp, key and value of each record.
    type Seen = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

    fn converted(entry: &Bytes, settings: &RewriteSettings) -> Result<Vec<Seen>, Error> {
        let mut seen = Vec::new();
        for piece in convert(entry, settings)? {
            let Piece::Batch(batch) = piece else { panic!("{piece:?}") };
            let opened = open(&batch.batch);
            assert!(opened.header.is_dense());
            let offsets =
                batch.segments.iter().flat_map(|s| (s.upstream_offset..).take(s.record_count as usize));
            for (offset, record) in offsets.zip(records_of(&opened)) {
                assert!(record.headers.is_empty());
                seen.push((
                    offset,
                    record.timestamp,
                    record.key.map(Into::into),
                    record.value.map(Into::into),
                ));
            }
        }
        Ok(seen)
    }

    #[test]
    fn a_message_becomes_a_batch_of_one() {
        let v0 = message(7, 0, 0, 0, Some(b"k"), None).into();
        assert_eq!(converted(&v0, &KEEP).unwrap(), [(7, -1, Some(b"k".to_vec()), None)]);
        let v1 = message(7, 1, 0, 55, None, Some(b"")).into();
        assert_eq!(converted(&v1, &KEEP).unwrap(), [(7, 55, None, Some(Vec::new()))]);
        assert_eq!(converted(&v1, &RewriteSettings { start_offset: 8, ..KEEP }).unwrap(), []);
        assert_eq!(converted(&v1, &RewriteSettings { end_offset: 7, ..KEEP }).unwrap(), []);
    }

    #[test]
    fn a_wrapper_gives_offsets_and_timestamps_by_its_magic() {
        let offsets = |entry: Bytes| -> Vec<(i64, i64)> {
            converted(&entry, &KEEP)
                .unwrap()
                .into_iter()
                .map(|(offset, timestamp, ..)| (offset, timestamp))
                .collect()
        };
        let inner = |magic, numbers: &[i64]| -> Vec<Vec<u8>> {
            numbers.iter().map(|&at| message(at, magic, 0, 1_000 + at, None, Some(b"v"))).collect()
        };
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4] {
            let v0 = wrapper(31, 0, 0, 0, codec, &inner(0, &[28, 30, 31]));
            assert_eq!(offsets(v0), [(28, -1), (30, -1), (31, -1)]);
            let v1 = wrapper(31, 1, 0, 9, codec, &inner(1, &[0, 1, 4]));
            assert_eq!(offsets(v1), [(27, 1_000), (28, 1_001), (31, 1_004)]);
            let appended = wrapper(31, 1, LOG_APPEND_TIME, 9, codec, &inner(1, &[0, 1]));
            assert_eq!(offsets(appended), [(30, 9), (31, 9)]);
            let librdkafka = wrapper(0, 1, 0, 9, codec, &inner(1, &[0, 1]));
            assert_eq!(offsets(librdkafka), [(0, 1_000), (1, 1_001)]);
        }
    }

    #[test]
    fn lz4_of_magic_0_may_have_any_header_checksum() {
        let mut value = Vec::new();
        compress(Codec::Lz4, &message(3, 0, 0, 0, None, Some(b"v")), &mut value).unwrap();
        value[6] ^= 0x5a;
        let entry = |magic| Bytes::from(message(3, magic, 3, 0, None, Some(&value)));
        assert_eq!(converted(&entry(0), &KEEP).unwrap().len(), 1);
        assert!(matches!(converted(&entry(1), &KEEP), Err(Error::Decompress { .. })));
    }

    #[test]
    fn sets_that_no_broker_keeps_are_refused() {
        let plain = message(0, 1, 0, 5, None, Some(b"v"));
        let nested = wrapper(0, 1, 0, 5, Codec::Gzip, std::slice::from_ref(&plain)).to_vec();
        let mut damaged = plain.clone();
        *damaged.last_mut().unwrap() ^= 1;
        let refused = [
            ("zstd", message(0, 1, 4, 5, None, Some(b"v")).into()),
            ("null value", message(0, 1, 1, 5, None, None).into()),
            ("empty set", wrapper(5, 1, 0, 5, Codec::Gzip, &[])),
            ("nested", wrapper(5, 1, 0, 5, Codec::Gzip, &[nested])),
            ("damaged inner", wrapper(5, 1, 0, 5, Codec::Gzip, std::slice::from_ref(&damaged))),
            ("damaged", damaged.into()),
            ("same offset twice", wrapper(5, 1, 0, 5, Codec::Gzip, &[plain.clone(), plain.clone()])),
            ("wrapper below its last", wrapper(1, 1, 0, 5, Codec::Gzip, &[message(2, 1, 0, 5, None, None)])),
            ("cut inner", wrapper(5, 1, 0, 5, Codec::Gzip, &[plain[..20].to_vec()])),
            ("magic", message(0, 2, 0, 5, None, None).into()),
            ("negative offset", message(-1, 1, 0, 5, None, None).into()),
            ("bytes behind", [&plain[..], &[0]].concat().into()),
        ];
        for (what, entry) in refused {
            assert!(convert(&entry, &KEEP).is_err(), "{what}");
        }
    }

    #[test]
    fn decompression_is_capped() {
        let large = message(0, 1, 0, 5, None, Some(&[0; 100_000]));
        let entry = wrapper(0, 1, 0, 5, Codec::Gzip, &[large]);
        let settings = RewriteSettings { decompressed_bytes_max: 50_000, ..KEEP };
        assert!(matches!(convert(&entry, &settings), Err(Error::TooLarge { .. })));
    }

    #[test]
    fn header_checksum_is_xxhash() {
        assert_eq!(xxh32_of_few(b""), 0x02cc_5d05);
        assert_eq!(xxh32_of_few(b"abc"), 0x32d1_53ff);
        assert_eq!(xxh32_of_few(&[0x60, 0x40]) >> 8 & 0xff, 0x82);
    }

    proptest! {
        #[test]
        fn truncations_and_mutations_never_panic(
            magic in 0_u8..2, codec in 0_i16..4, value: Vec<u8>, cut: prop::sample::Index,
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let inner = message(0, magic, 0, 5, Some(b"key"), Some(&value));
            let codec = Codec::from_bits(codec).unwrap();
            let whole = if codec == Codec::None { inner.into() } else { wrapper(9, magic, 0, 5, codec, &[inner]) };
            prop_assert!(convert(&whole, &KEEP).is_ok());
            prop_assert!(convert(&whole.slice(..cut.index(whole.len())), &KEEP).is_err());
            let mut mutated = whole.to_vec();
            for (at, byte) in &flips {
                let at = at.index(mutated.len());
                mutated[at] = *byte;
            }
            let _ = convert(&Bytes::from(mutated.clone()), &KEEP);
            // And past the outer checksum.
            let mut crc = flate2::Crc::new();
            crc.update(&mutated[16..]);
            mutated[12..16].copy_from_slice(&crc.sum().to_be_bytes());
            let _ = convert(&Bytes::from(mutated), &KEEP);
        }
    }
}

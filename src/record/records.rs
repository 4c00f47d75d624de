//! The records of a v2 batch, read without copying (`DefaultRecord.java`).
//!
//! ```text
//! length varint | attributes i8 | timestamp delta varlong | offset delta varint | key length varint, key
//! | value length varint, value | header count varint | (key length varint, key, value length varint, value)*
//! ```
//! A length of -1 is null, which is not the same as empty. Header keys are bytes here: Kafka's are UTF-8 by convention
//! only, may repeat, and keep their order.
//!
//! Offset deltas are checked to rise within the batch's last offset delta: brokers do not do so for uncompressed
//! batches, and a wrong one loses records silently.

use bytes::Bytes;

use super::codec::decompress;
use super::patch::verify_crc;
use super::varint::{take_varint, take_varlong};
use super::{BatchHeader, Error, HEADER_BYTES, TimestampType};

/// One record, borrowed from its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Without meaning today; kept.
    pub attributes: i8,
    /// Milliseconds since the batch's base timestamp.
    pub timestamp_delta: i64,
    /// Offset less the batch's base offset.
    pub offset_delta: i32,
    /// The key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is null, a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: Headers<'a>,
    /// Key, value and headers as they are stored: what a rewrite copies.
    pub body: &'a [u8],
}

/// A header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Any bytes.
    pub key: &'a [u8],
    /// The value; `None` is null.
    pub value: Option<&'a [u8]>,
}

/// The headers of a record, in order. They were checked when the record was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    rest: &'a [u8],
    remaining: usize,
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        take_header(&mut self.rest).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// The records of a batch, in order. It ends after the first error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    remaining: i32,
    offset_delta_min: i32,
    offset_delta_max: i32,
}

impl<'a> Records<'a> {
    /// The records that `bytes` hold: everything behind the header of `header`'s batch, decompressed.
    pub fn new(header: &BatchHeader, bytes: &'a [u8]) -> Records<'a> {
        Records {
            rest: bytes,
            remaining: header.record_count,
            offset_delta_min: 0,
            offset_delta_max: header.last_offset_delta,
        }
    }

    fn read(&mut self) -> Result<Record<'a>, Error> {
        let record = take_record(&mut self.rest)?;
        if record.offset_delta < self.offset_delta_min || record.offset_delta > self.offset_delta_max {
            return Err(Error::Invalid {
                what: "offset delta",
                value: i64::from(record.offset_delta),
                rule: "does not rise within the batch",
            });
        }
        self.offset_delta_min = record.offset_delta.saturating_add(1);
        self.remaining -= 1;
        if self.remaining == 0 {
            check_no_rest(self.rest)?;
        }
        Ok(record)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Error>;

    fn next(&mut self) -> Option<Result<Record<'a>, Error>> {
        if self.remaining <= 0 {
            return None;
        }
        let record = self.read();
        if record.is_err() {
            self.remaining = 0;
        }
        Some(record)
    }
}

/// A v2 batch whose checksum was verified and whose records were decompressed.
#[derive(Clone, Debug)]
pub struct OpenBatch {
    /// The header as the batch carries it.
    pub header: BatchHeader,
    /// The records section, decompressed.
    pub records: Bytes,
}

impl OpenBatch {
    /// Opens `batch`, which is exactly one v2 batch. Records that take more than `decompressed_bytes_max` are an error.
    pub fn open(batch: &Bytes, decompressed_bytes_max: usize) -> Result<OpenBatch, Error> {
        verify_crc(batch)?;
        let header = BatchHeader::parse(batch)?;
        let codec = header.attributes.codec()?;
        let records = decompress(codec, &batch.slice(HEADER_BYTES..), decompressed_bytes_max)?;
        if header.record_count == 0 {
            check_no_rest(&records)?;
        }
        Ok(OpenBatch { header, records })
    }

    /// The records.
    pub fn records(&self) -> Records<'_> {
        Records::new(&self.header, &self.records)
    }

    /// A record's timestamp in milliseconds. Under LogAppendTime it is the batch's max timestamp, whatever the record
    /// says.
    pub fn timestamp(&self, record: &Record<'_>) -> i64 {
        match self.header.attributes.timestamp_type() {
            TimestampType::CreateTime => self.header.base_timestamp.wrapping_add(record.timestamp_delta),
            TimestampType::LogAppendTime => self.header.max_timestamp,
        }
    }

    /// A record's offset.
    pub fn offset(&self, record: &Record<'_>) -> i64 {
        self.header.base_offset + i64::from(record.offset_delta)
    }
}

/// Takes `length` and as many bytes off the front.
#[inline]
pub(super) fn take_framed<'a>(bytes: &mut &'a [u8], what: &'static str) -> Result<&'a [u8], Error> {
    let length = take_varint(bytes, what)?;
    take_bytes(bytes, length, what)
}

fn take_record<'a>(bytes: &mut &'a [u8]) -> Result<Record<'a>, Error> {
    let mut rest = take_framed(bytes, "record")?;
    let attributes = take_bytes(&mut rest, 1, "record attributes")?[0] as i8;
    let timestamp_delta = take_varlong(&mut rest, "timestamp delta")?;
    let offset_delta = take_varint(&mut rest, "offset delta")?;
    let body = rest;
    let key = take_nullable(&mut rest, "key")?;
    let value = take_nullable(&mut rest, "value")?;
    let headers = take_headers(rest)?;
    Ok(Record { attributes, timestamp_delta, offset_delta, key, value, headers, body })
}

/// Reads all headers once, so that a record that was given out is whole.
fn take_headers(mut rest: &[u8]) -> Result<Headers<'_>, Error> {
    let count = take_varint(&mut rest, "header count")?;
    let remaining = usize::try_from(count).map_err(|_| Error::Invalid {
        what: "header count",
        value: i64::from(count),
        rule: "is negative",
    })?;
    let headers = Headers { rest, remaining };
    for _ in 0..remaining {
        take_header(&mut rest)?;
    }
    check_no_rest(rest)?;
    Ok(headers)
}

fn take_header<'a>(rest: &mut &'a [u8]) -> Result<Header<'a>, Error> {
    let key = take_framed(rest, "header key")?;
    let value = take_nullable(rest, "header value")?;
    Ok(Header { key, value })
}

fn take_nullable<'a>(bytes: &mut &'a [u8], what: &'static str) -> Result<Option<&'a [u8]>, Error> {
    match take_varint(bytes, what)? {
        -1 => Ok(None),
        length => take_bytes(bytes, length, what).map(Some),
    }
}

#[inline]
fn take_bytes<'a>(bytes: &mut &'a [u8], length: i32, what: &'static str) -> Result<&'a [u8], Error> {
    let needed = usize::try_from(length).map_err(|_| Error::Invalid {
        what,
        value: i64::from(length),
        rule: "is a negative length",
    })?;
    let (taken, rest) =
        bytes.split_at_checked(needed).ok_or(Error::Truncated { what, needed, available: bytes.len() })?;
    *bytes = rest;
    Ok(taken)
}

pub(super) fn check_no_rest(rest: &[u8]) -> Result<(), Error> {
    if rest.is_empty() {
        return Ok(());
    }
    Err(Error::Invalid { what: "bytes behind the last field", value: rest.len() as i64, rule: "is not 0" })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{any_records, header_of, open, records_of};
    use super::super::{BatchBuilder, BatchOptions, Codec, RecordData};
    use super::*;
    use proptest::prelude::*;

    fn header(record_count: i32, last_offset_delta: i32) -> BatchHeader {
        BatchHeader { record_count, last_offset_delta, ..header_of(Codec::None) }
    }

    fn read(bytes: &[u8], record_count: i32, last_offset_delta: i32) -> Result<Vec<Record<'_>>, Error> {
        Records::new(&header(record_count, last_offset_delta), bytes).collect()
    }

    /// Attributes 0, timestamp delta 5, offset delta 0, key null, value empty, headers k→null, k→"v".
    const RECORD: &[u8] = &[26, 0, 10, 0, 1, 0, 4, 2, b'k', 1, 2, b'k', 2, b'v'];

    /// Case 8: null and empty are not the same.
    #[test]
    fn fields_are_at_kafkas_places() {
        let records = read(RECORD, 1, 0).unwrap();
        let [record] = &records[..] else { panic!("one record") };
        assert_eq!((record.attributes, record.timestamp_delta, record.offset_delta), (0, 5, 0));
        assert_eq!((record.key, record.value), (None, Some(&[][..])));
        let headers: Vec<Header<'_>> = record.headers.collect();
        assert_eq!(headers, [Header { key: b"k", value: None }, Header { key: b"k", value: Some(b"v") }]);
        assert_eq!(record.body, &RECORD[4..]);
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        for cut in 0..RECORD.len() {
            assert!(matches!(read(&RECORD[..cut], 1, 0), Err(Error::Truncated { .. })), "cut at {cut}");
        }
        let invalid = |bytes: &[u8]| read(bytes, 1, 0).unwrap_err();
        assert_eq!(
            invalid(&[RECORD, &[0]].concat()),
            Error::Invalid { what: "bytes behind the last field", value: 1, rule: "is not 0" }
        );
        // Record, key, value, header key and header value lengths below -1, a negative count.
        for bytes in [
            &[1_u8][..],
            &[12, 0, 0, 0, 3, 1, 0],
            &[12, 0, 0, 0, 1, 3, 0],
            &[16, 0, 0, 0, 1, 1, 2, 1, 1],
            &[16, 0, 0, 0, 1, 1, 2, 0, 3],
            &[12, 0, 0, 0, 1, 1, 1],
        ] {
            assert!(matches!(invalid(bytes), Error::Invalid { .. }), "{bytes:?}");
        }
        // A header fewer than counted, and one more.
        assert!(matches!(invalid(&[12, 0, 0, 0, 1, 1, 2]), Error::Truncated { .. }));
        assert!(matches!(invalid(&[16, 0, 0, 0, 1, 1, 0, 0, 1]), Error::Invalid { .. }));
    }

    #[test]
    fn offset_deltas_rise_within_the_batch() {
        let record = |delta: u8| [12, 0, 0, delta << 1, 1, 1, 0];
        let deltas = |deltas: &[u8], last: i32| {
            let bytes: Vec<u8> = deltas.iter().flat_map(|&delta| record(delta)).collect();
            let read: Result<Vec<i32>, Error> = Records::new(&header(deltas.len() as i32, last), &bytes)
                .map(|r| r.map(|r| r.offset_delta))
                .collect();
            read.ok()
        };
        assert_eq!(deltas(&[0, 1, 2], 2), Some(vec![0, 1, 2]));
        assert_eq!(deltas(&[1, 5], 9), Some(vec![1, 5]));
        assert_eq!(deltas(&[0, 0], 5), None);
        assert_eq!(deltas(&[1, 0], 5), None);
        assert_eq!(deltas(&[0, 6], 5), None);
        assert_eq!(read(&[12, 0, 0, 1, 1, 1, 0], 1, 5).ok(), None);
    }

    #[test]
    fn a_claimed_count_ends_with_the_bytes() {
        assert!(matches!(read(&[], i32::MAX, i32::MAX - 1), Err(Error::Truncated { .. })));
        let many_headers = [&[20_u8, 0, 0, 0, 1, 1][..], &[0xfe, 0xff, 0xff, 0xff, 0x0f]].concat();
        assert!(read(&many_headers, 1, 0).is_err());
    }

    proptest! {
        #[test]
        fn records_come_back(records in any_records(12), codec_bits in 0_i16..5) {
            let codec = Codec::from_bits(codec_bits).unwrap();
            let mut builder = BatchBuilder::new(BatchOptions::new(codec));
            for record in &records {
                builder.push(record).unwrap();
            }
            let batch = builder.build().unwrap();
            prop_assert_eq!(records_of(&open(&batch)), records);
        }

        #[test]
        fn truncations_and_mutations_never_panic(
            records in any_records(5), cut: prop::sample::Index, at: prop::sample::Index, byte: u8,
        ) {
            let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
            for record in &records {
                builder.push(record).unwrap();
            }
            let batch = builder.build().unwrap();
            prop_assert!(OpenBatch::open(&batch.slice(..cut.index(batch.len())), 1 << 20).is_err());
            let mut mutated = batch.to_vec();
            let at = at.index(batch.len());
            mutated[at] = byte;
            let _ = Records::new(&header_of(Codec::None), &mutated[HEADER_BYTES..]).count();
            if at >= 17 && mutated != batch {
                prop_assert!(OpenBatch::open(&Bytes::from(mutated), 1 << 20).is_err());
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>, count in 0_i32..1_000) {
            let _ = read(&bytes, count, count);
        }
    }

    #[test]
    fn log_append_time_is_the_batchs_for_every_record() {
        let mut options = BatchOptions::new(Codec::None);
        options.attributes.0 |= super::super::Attributes::LOG_APPEND_TIME;
        options.max_timestamp = Some(9_000);
        let mut builder = BatchBuilder::new(options);
        for timestamp in [5, 6] {
            builder.push(&RecordData { timestamp, ..RecordData::default() }).unwrap();
        }
        let batch = open(&builder.build().unwrap());
        let timestamps: Vec<i64> = batch.records().map(|record| batch.timestamp(&record.unwrap())).collect();
        assert_eq!(timestamps, [9_000, 9_000]);
    }
}

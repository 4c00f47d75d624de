//! Making v2 batches of records: what rewrites, conversions, merges and the embedded broker put out.
//!
//! Records are encoded as they come; the base timestamp is the first record's, as in Kafka's `MemoryRecordsBuilder`.
//! Compression and checksum come at the end. Timestamps and their deltas wrap, as Java's do, so that any 64-bit
//! timestamp comes back.

use bytes::Bytes;

use super::codec::compress;
use super::patch::{put_identity, seal, seal_with};
use super::records::Record;
use super::varint::{put_varint, put_varlong, varint_bytes, varlong_bytes};
use super::{Attributes, Codec, Error, HEADER_BYTES, PREFIX_BYTES, ProducerIdentity};

/// A record that owns its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordData {
    /// Milliseconds since 1970, or -1 for none.
    pub timestamp: i64,
    /// The key; `None` is null.
    pub key: Option<Bytes>,
    /// The value; `None` is null.
    pub value: Option<Bytes>,
    /// The headers in order: any bytes, repeats allowed, `None` is a null value.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
}

impl RecordData {
    /// Copies a record out of its batch.
    pub fn copied(timestamp: i64, record: &Record<'_>) -> RecordData {
        RecordData {
            timestamp,
            key: record.key.map(Bytes::copy_from_slice),
            value: record.value.map(Bytes::copy_from_slice),
            headers: record
                .headers
                .map(|header| (Bytes::copy_from_slice(header.key), header.value.map(Bytes::copy_from_slice)))
                .collect(),
        }
    }

    /// Appends key, value and headers as a record stores them.
    fn put_body(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        put_nullable(out, self.key.as_deref(), "key")?;
        put_nullable(out, self.value.as_deref(), "value")?;
        put_varint(out, length(self.headers.len(), "header count")?);
        for (key, value) in &self.headers {
            put_nullable(out, Some(key), "header key")?;
            put_nullable(out, value.as_deref(), "header value")?;
        }
        Ok(())
    }
}

/// What a batch says about itself besides its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// Offset of the first record; 0 in a batch that is to be produced.
    pub base_offset: i64,
    /// Leader epoch; -1 in a batch that is to be produced.
    pub partition_leader_epoch: i32,
    /// Codec, timestamp type, transactional, control, delete horizon.
    pub attributes: Attributes,
    /// Who appends it.
    pub identity: ProducerIdentity,
    /// `None`: the first record's timestamp. The delete horizon otherwise (KIP-534).
    pub base_timestamp: Option<i64>,
    /// `None`: the largest of the records. The time of append otherwise.
    pub max_timestamp: Option<i64>,
    /// `None`: the last record's. Larger where compaction took the last records.
    pub last_offset_delta: Option<i32>,
}

impl BatchOptions {
    /// A batch as a producer without idempotence sends it.
    pub fn new(codec: Codec) -> BatchOptions {
        BatchOptions {
            base_offset: 0,
            partition_leader_epoch: -1,
            attributes: Attributes(codec.bits()),
            identity: ProducerIdentity::NONE,
            base_timestamp: None,
            max_timestamp: None,
            last_offset_delta: None,
        }
    }
}

/// A batch under construction.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    options: BatchOptions,
    /// Room for the header, then the records uncompressed.
    bytes: Vec<u8>,
    scratch: Vec<u8>,
    record_count: i32,
    next_offset_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl BatchBuilder {
    /// An empty batch.
    pub fn new(options: BatchOptions) -> BatchBuilder {
        BatchBuilder {
            options,
            bytes: vec![0; HEADER_BYTES],
            scratch: Vec::new(),
            record_count: 0,
            next_offset_delta: 0,
            base_timestamp: options.base_timestamp.unwrap_or(-1),
            max_timestamp: -1,
        }
    }

    /// A batch of `record_count` records that stand encoded, at dense offsets, in `bytes` behind room for the header.
    /// The options name both timestamps.
    pub(super) fn of_encoded(options: BatchOptions, bytes: Vec<u8>, record_count: i32) -> BatchBuilder {
        BatchBuilder { bytes, record_count, next_offset_delta: record_count, ..BatchBuilder::new(options) }
    }

    /// Makes room for records of `bytes` in all.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Appends a record under the next offset.
    pub fn push(&mut self, record: &RecordData) -> Result<(), Error> {
        self.push_at(self.next_offset_delta, record)
    }

    /// Appends a record under `offset_delta`, which is above those before it.
    pub fn push_at(&mut self, offset_delta: i32, record: &RecordData) -> Result<(), Error> {
        let mut body = std::mem::take(&mut self.scratch);
        body.clear();
        let pushed = record
            .put_body(&mut body)
            .and_then(|()| self.push_body_at(offset_delta, record.timestamp, 0, &body));
        self.scratch = body;
        pushed
    }

    /// Appends a record under the next offset whose key, value and headers are `body`, as stored.
    pub fn push_body(&mut self, timestamp: i64, attributes: i8, body: &[u8]) -> Result<(), Error> {
        self.push_body_at(self.next_offset_delta, timestamp, attributes, body)
    }

    fn push_body_at(
        &mut self,
        offset_delta: i32,
        timestamp: i64,
        attributes: i8,
        body: &[u8],
    ) -> Result<(), Error> {
        let next_offset_delta = offset_delta
            .checked_add(1)
            .filter(|_| offset_delta >= self.next_offset_delta)
            .ok_or(Error::Invalid {
                what: "offset delta",
                value: i64::from(offset_delta),
                rule: "does not rise within the batch",
            })?;
        if self.record_count == 0 {
            self.base_timestamp = self.options.base_timestamp.unwrap_or(timestamp);
            self.max_timestamp = timestamp;
        }
        let timestamp_delta = timestamp.wrapping_sub(self.base_timestamp);
        let bytes = length(inner_bytes(timestamp_delta, offset_delta, body.len()), "record")?;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        put_varint(&mut self.bytes, bytes);
        self.bytes.push(attributes as u8);
        put_varlong(&mut self.bytes, timestamp_delta);
        put_varint(&mut self.bytes, offset_delta);
        self.bytes.extend_from_slice(body);
        self.record_count += 1;
        self.next_offset_delta = next_offset_delta;
        Ok(())
    }

    /// Records so far.
    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// The largest timestamp so far; -1 without records.
    pub fn max_timestamp(&self) -> i64 {
        self.options.max_timestamp.unwrap_or(self.max_timestamp)
    }

    /// Bytes of the batch so far, before compression.
    pub fn uncompressed_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of the batch before compression if one more record came under the next offset.
    pub fn uncompressed_bytes_with(&self, timestamp: i64, body_bytes: usize) -> usize {
        let base = if self.record_count == 0 { timestamp } else { self.base_timestamp };
        let base = self.options.base_timestamp.unwrap_or(base);
        let inner = inner_bytes(timestamp.wrapping_sub(base), self.next_offset_delta, body_bytes);
        let length = i32::try_from(inner).map_or(varint_bytes(i32::MAX), varint_bytes);
        self.bytes.len() + length + inner
    }

    /// Compresses the records and completes the header.
    pub fn build(mut self) -> Result<Bytes, Error> {
        let codec = self.options.attributes.codec()?;
        let mut batch = if codec == Codec::None {
            std::mem::take(&mut self.bytes)
        } else {
            let mut batch = Vec::with_capacity(HEADER_BYTES + self.bytes.len() / 2);
            batch.resize(HEADER_BYTES, 0);
            compress(codec, &self.bytes[HEADER_BYTES..], &mut batch)?;
            batch
        };
        let header = self.header(batch.len())?;
        batch[..HEADER_BYTES].copy_from_slice(&header);
        seal(&mut batch);
        Ok(Bytes::from(batch))
    }

    /// Completes the header of a batch whose records stand as they are to be sent, and have the checksum `records_crc`.
    pub(super) fn build_with(self, records_crc: u32) -> Result<Bytes, Error> {
        let header = self.header(self.bytes.len())?;
        let mut batch = self.bytes;
        batch[..HEADER_BYTES].copy_from_slice(&header);
        seal_with(&mut batch, records_crc);
        Ok(Bytes::from(batch))
    }

    fn header(&self, size_bytes: usize) -> Result<[u8; HEADER_BYTES], Error> {
        let options = &self.options;
        let last_offset_delta = options.last_offset_delta.unwrap_or((self.next_offset_delta - 1).max(0));
        if last_offset_delta < self.next_offset_delta - 1 {
            return Err(Error::Invalid {
                what: "last offset delta",
                value: i64::from(last_offset_delta),
                rule: "is below the last record's",
            });
        }
        let mut header = [0; HEADER_BYTES];
        header[0..8].copy_from_slice(&options.base_offset.to_be_bytes());
        header[8..12].copy_from_slice(&length(size_bytes - PREFIX_BYTES, "batch")?.to_be_bytes());
        header[12..16].copy_from_slice(&options.partition_leader_epoch.to_be_bytes());
        header[16] = 2;
        header[21..23].copy_from_slice(&options.attributes.0.to_be_bytes());
        header[23..27].copy_from_slice(&last_offset_delta.to_be_bytes());
        header[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        header[35..43].copy_from_slice(&self.max_timestamp().to_be_bytes());
        put_identity(&mut header, options.identity);
        header[57..61].copy_from_slice(&self.record_count.to_be_bytes());
        Ok(header)
    }
}

/// Bytes of a record behind its length field.
fn inner_bytes(timestamp_delta: i64, offset_delta: i32, body_bytes: usize) -> usize {
    1 + varlong_bytes(timestamp_delta) + varint_bytes(offset_delta) + body_bytes
}

fn length(bytes: usize, what: &'static str) -> Result<i32, Error> {
    i32::try_from(bytes).map_err(|_| Error::OverLimit {
        what,
        size_bytes: bytes,
        limit_bytes: i32::MAX as usize,
    })
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>, what: &'static str) -> Result<(), Error> {
    match bytes {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, length(bytes.len(), what)?);
            out.extend_from_slice(bytes);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::open;
    use super::super::{BatchHeader, verify_crc};
    use super::*;

    fn record(timestamp: i64) -> RecordData {
        RecordData { timestamp, value: Some(Bytes::from_static(b"v")), ..RecordData::default() }
    }

    #[test]
    fn header_tells_what_was_pushed() {
        let identity = ProducerIdentity { producer_id: 9, producer_epoch: 2, base_sequence: 70 };
        let mut options = BatchOptions { base_offset: 1_000, identity, ..BatchOptions::new(Codec::Lz4) };
        options.attributes.0 |= Attributes::TRANSACTIONAL;
        let mut builder = BatchBuilder::new(options);
        for timestamp in [500, 300, 900] {
            builder.push(&record(timestamp)).unwrap();
        }
        assert_eq!((builder.record_count(), builder.max_timestamp()), (3, 900));
        let batch = builder.build().unwrap();
        assert_eq!(verify_crc(&batch), Ok(()));
        let header = BatchHeader::parse(&batch).unwrap();
        assert_eq!((header.base_offset, header.last_offset(), header.record_count), (1_000, 1_002, 3));
        assert_eq!((header.base_timestamp, header.max_timestamp), (500, 900));
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (9, 2, 70));
        assert_eq!(header.attributes.0, 0x13);
        assert!(header.is_dense());
    }

    #[test]
    fn a_compacted_batch_keeps_its_range_and_its_delete_horizon() {
        let mut options = BatchOptions::new(Codec::None);
        options.base_timestamp = Some(77_000);
        options.last_offset_delta = Some(9);
        options.attributes.0 |= Attributes::DELETE_HORIZON;
        let mut builder = BatchBuilder::new(options);
        builder.push_at(2, &record(100)).unwrap();
        builder.push_at(7, &record(200)).unwrap();
        assert!(builder.push_at(7, &record(300)).is_err());
        let batch = open(&builder.build().unwrap());
        assert_eq!((batch.header.last_offset_delta, batch.header.record_count), (9, 2));
        assert_eq!((batch.header.base_timestamp, batch.header.max_timestamp), (77_000, 200));
        let seen: Vec<(i64, i64)> =
            batch.records().map(|r| r.unwrap()).map(|r| (batch.offset(&r), batch.timestamp(&r))).collect();
        assert_eq!(seen, [(2, 100), (7, 200)]);
    }

    #[test]
    fn the_size_with_one_more_record_is_known_before() {
        let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
        for (timestamp, bytes) in [(10, 1), (i64::MIN, 100), (70_000, 5_000), (i64::MAX, 0)] {
            let mut body = vec![0; bytes];
            body.extend([1, 1, 0]);
            let expected = builder.uncompressed_bytes_with(timestamp, body.len());
            builder.push_body(timestamp, 0, &body).unwrap();
            assert_eq!(builder.uncompressed_bytes(), expected);
        }
    }

    #[test]
    fn a_last_offset_below_the_records_is_refused() {
        let mut builder =
            BatchBuilder::new(BatchOptions { last_offset_delta: Some(3), ..BatchOptions::new(Codec::None) });
        builder.push_at(4, &record(0)).unwrap();
        assert!(builder.build().is_err());
    }

    #[test]
    fn a_batch_of_no_records_is_what_compaction_leaves() {
        let options = BatchOptions { last_offset_delta: Some(4), ..BatchOptions::new(Codec::None) };
        let batch = open(&BatchBuilder::new(options).build().unwrap());
        assert_eq!((batch.header.record_count, batch.header.last_offset_delta), (0, 4));
        assert_eq!(batch.records().count(), 0);
    }
}

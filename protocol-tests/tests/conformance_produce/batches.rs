//! Hand-made batches. Every field can lie; the checksum is right unless a case breaks it.

use bytes::Bytes;
use kmirror::record::{Codec, HEADER_BYTES, compress, crc32c, varint};

/// A batch to be written.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) base_offset: i64,
    pub(crate) leader_epoch: i32,
    pub(crate) attributes: i16,
    pub(crate) codec: Codec,
    pub(crate) base_timestamp: i64,
    pub(crate) max_timestamp: Option<i64>,
    pub(crate) identity: (i64, i16, i32),
    pub(crate) last_offset_delta: Option<i32>,
    pub(crate) record_count: Option<i32>,
    pub(crate) records: Vec<Record>,
    /// Behind the records, before compression.
    pub(crate) record_trailer: Vec<u8>,
    /// In place of the records section.
    pub(crate) section: Option<Vec<u8>>,
}

/// A record to be written.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) attributes: u8,
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i32,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    /// Added to the length field.
    pub(crate) length_lie: i32,
    /// In place of a null's length −1.
    pub(crate) null_length: i32,
    /// Behind the value, in place of no headers.
    pub(crate) headers: Vec<u8>,
}

impl Batch {
    /// `count` records with keys, timestamps from `base_timestamp` on, a millisecond apart.
    pub(crate) fn of(count: i32, base_timestamp: i64) -> Batch {
        let records = (0..count)
            .map(|n| Record {
                attributes: 0,
                timestamp_delta: i64::from(n),
                offset_delta: n,
                key: Some(format!("key-{n}").into_bytes()),
                value: Some(format!("value-{n}").into_bytes()),
                length_lie: 0,
                null_length: -1,
                headers: vec![0],
            })
            .collect();
        Batch {
            base_offset: 0,
            leader_epoch: -1,
            attributes: 0,
            codec: Codec::None,
            base_timestamp,
            max_timestamp: None,
            identity: (-1, -1, -1),
            last_offset_delta: None,
            record_count: None,
            records,
            record_trailer: Vec::new(),
            section: None,
        }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Batch)) -> Batch {
        change(&mut self);
        self
    }

    pub(crate) fn by(self, producer_id: i64, producer_epoch: i16, base_sequence: i32) -> Batch {
        self.with(|batch| batch.identity = (producer_id, producer_epoch, base_sequence))
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let mut records = Vec::new();
        for record in &self.records {
            put_record(&mut records, record);
        }
        records.extend_from_slice(&self.record_trailer);
        let mut batch = vec![0; HEADER_BYTES];
        match &self.section {
            Some(section) => batch.extend_from_slice(section),
            None => compress(self.codec, &records, &mut batch).expect("bytes can be compressed"),
        }
        let count = self.records.len() as i32;
        let latest = self.records.iter().map(|record| record.timestamp_delta).max().unwrap_or(0);
        let max_timestamp = self.max_timestamp.unwrap_or(self.base_timestamp.wrapping_add(latest));
        let length = batch.len() as i32 - 12;
        let attributes = self.attributes | self.codec.bits();
        put(&mut batch, 0, &self.base_offset.to_be_bytes());
        put(&mut batch, 8, &length.to_be_bytes());
        put(&mut batch, 12, &self.leader_epoch.to_be_bytes());
        put(&mut batch, 16, &[2]);
        put(&mut batch, 21, &attributes.to_be_bytes());
        put(&mut batch, 23, &self.last_offset_delta.unwrap_or(count - 1).to_be_bytes());
        put(&mut batch, 27, &self.base_timestamp.to_be_bytes());
        put(&mut batch, 35, &max_timestamp.to_be_bytes());
        put(&mut batch, 43, &self.identity.0.to_be_bytes());
        put(&mut batch, 51, &self.identity.1.to_be_bytes());
        put(&mut batch, 53, &self.identity.2.to_be_bytes());
        put(&mut batch, 57, &self.record_count.unwrap_or(count).to_be_bytes());
        let crc = crc32c(&batch[21..]);
        put(&mut batch, 17, &crc.to_be_bytes());
        Bytes::from(batch)
    }

    /// The bytes with some overwritten, the checksum left as it was.
    pub(crate) fn bytes_with(&self, at: usize, new: &[u8]) -> Bytes {
        let mut bytes = self.bytes().to_vec();
        put(&mut bytes, at, new);
        Bytes::from(bytes)
    }
}

fn put(batch: &mut [u8], at: usize, bytes: &[u8]) {
    batch[at..at + bytes.len()].copy_from_slice(bytes);
}

fn put_record(out: &mut Vec<u8>, record: &Record) {
    let mut bytes = vec![record.attributes];
    varint::put_varlong(&mut bytes, record.timestamp_delta);
    varint::put_varint(&mut bytes, record.offset_delta);
    for part in [&record.key, &record.value] {
        match part {
            None => varint::put_varint(&mut bytes, record.null_length),
            Some(part) => {
                varint::put_varint(&mut bytes, part.len() as i32);
                bytes.extend_from_slice(part);
            }
        }
    }
    bytes.extend_from_slice(&record.headers);
    varint::put_varint(out, bytes.len() as i32 + record.length_lie);
    out.extend_from_slice(&bytes);
}

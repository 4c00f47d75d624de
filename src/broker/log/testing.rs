//! Batches made by hand, for the tests of this folder.

use bytes::Bytes;

use crate::record::{Attributes, HEADER_BYTES, crc32c, varint};

/// A batch to be written; every field can lie.
#[derive(Clone)]
pub(super) struct BatchSpec {
    pub(super) base_offset: i64,
    pub(super) attributes: i16,
    pub(super) base_timestamp: i64,
    pub(super) identity: (i64, i16, i32),
    pub(super) records: Vec<RecordSpec>,
    pub(super) last_offset_delta: Option<i32>,
    pub(super) record_count: Option<i32>,
    pub(super) trailer: Vec<u8>,
}

/// A record to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordSpec {
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i32,
}

/// Records with keys `k0`… and values `v0`….
pub(super) fn records(count: i32) -> Vec<RecordSpec> {
    (0..count)
        .map(|n| RecordSpec {
            key: Some(format!("k{n}").into_bytes()),
            value: Some(format!("v{n}").into_bytes()),
            timestamp_delta: i64::from(n),
            offset_delta: n,
        })
        .collect()
}

impl BatchSpec {
    pub(super) fn of(count: i32) -> BatchSpec {
        BatchSpec {
            base_offset: 0,
            attributes: 0,
            base_timestamp: 1_000,
            identity: (-1, -1, -1),
            records: records(count),
            last_offset_delta: None,
            record_count: None,
            trailer: Vec::new(),
        }
    }

    pub(super) fn by(mut self, producer_id: i64, producer_epoch: i16, base_sequence: i32) -> BatchSpec {
        self.identity = (producer_id, producer_epoch, base_sequence);
        self
    }

    pub(super) fn transactional(mut self) -> BatchSpec {
        self.attributes |= Attributes::TRANSACTIONAL;
        self
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut BatchSpec)) -> BatchSpec {
        change(&mut self);
        self
    }

    pub(super) fn bytes(&self) -> Bytes {
        let mut batch = vec![0; HEADER_BYTES];
        for record in &self.records {
            let bytes = record_bytes(record);
            varint::put_varint(&mut batch, bytes.len() as i32);
            batch.extend_from_slice(&bytes);
        }
        batch.extend_from_slice(&self.trailer);
        let count = self.records.len() as i32;
        let latest = self.records.iter().map(|record| record.timestamp_delta).max().unwrap_or(0);
        let length = batch.len() as i32 - 12;
        let mut put = |at: usize, bytes: &[u8]| batch[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.base_offset.to_be_bytes());
        put(8, &length.to_be_bytes());
        put(12, &(-1_i32).to_be_bytes());
        put(16, &[2]);
        put(21, &self.attributes.to_be_bytes());
        put(23, &self.last_offset_delta.unwrap_or(count - 1).to_be_bytes());
        put(27, &self.base_timestamp.to_be_bytes());
        put(35, &(self.base_timestamp + latest).to_be_bytes());
        put(43, &self.identity.0.to_be_bytes());
        put(51, &self.identity.1.to_be_bytes());
        put(53, &self.identity.2.to_be_bytes());
        put(57, &self.record_count.unwrap_or(count).to_be_bytes());
        seal(&mut batch);
        Bytes::from(batch)
    }
}

/// Makes the checksum right.
pub(super) fn seal(batch: &mut [u8]) {
    let crc = crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

fn record_bytes(record: &RecordSpec) -> Vec<u8> {
    let mut bytes = vec![0];
    varint::put_varlong(&mut bytes, record.timestamp_delta);
    varint::put_varint(&mut bytes, record.offset_delta);
    for part in [&record.key, &record.value] {
        match part {
            None => varint::put_varint(&mut bytes, -1),
            Some(part) => {
                varint::put_varint(&mut bytes, part.len() as i32);
                bytes.extend_from_slice(part);
            }
        }
    }
    varint::put_varint(&mut bytes, 0);
    bytes
}

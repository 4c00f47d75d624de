//! Record batches made by hand, right or wrong in any field, to see what a broker says to them.

use bytes::Bytes;

/// A v2 batch of uncompressed records (key `k`, value `v`, no headers), each field open to a lie.
#[derive(Clone, Debug)]
pub struct CraftedBatch {
    pub base_offset: i64,
    pub leader_epoch: i32,
    pub magic: i8,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
    /// Offset delta and key of every record really there.
    pub records: Vec<(i32, Option<Vec<u8>>)>,
    pub value: Vec<u8>,
    /// Bytes after the last record, inside the batch.
    pub trailing: Vec<u8>,
    /// Added to the right checksum.
    pub crc_error: u32,
}

impl CraftedBatch {
    /// A batch of `count` records that every broker takes, stamped `timestamp`.
    pub fn new(count: i32, timestamp: i64) -> CraftedBatch {
        CraftedBatch {
            base_offset: 0,
            leader_epoch: -1,
            magic: 2,
            attributes: 0,
            last_offset_delta: count - 1,
            base_timestamp: timestamp,
            max_timestamp: timestamp,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: count,
            records: (0..count).map(|delta| (delta, Some(b"k".to_vec()))).collect(),
            value: b"v".to_vec(),
            trailing: Vec::new(),
            crc_error: 0,
        }
    }

    /// The same with a producer's numbers.
    pub fn by(mut self, producer_id: i64, epoch: i16, sequence: i32) -> CraftedBatch {
        (self.producer_id, self.producer_epoch, self.base_sequence) = (producer_id, epoch, sequence);
        self
    }

    /// Its bytes.
    pub fn bytes(&self) -> Bytes {
        let mut body = Vec::new();
        body.extend(self.attributes.to_be_bytes());
        body.extend(self.last_offset_delta.to_be_bytes());
        body.extend(self.base_timestamp.to_be_bytes());
        body.extend(self.max_timestamp.to_be_bytes());
        body.extend(self.producer_id.to_be_bytes());
        body.extend(self.producer_epoch.to_be_bytes());
        body.extend(self.base_sequence.to_be_bytes());
        body.extend(self.record_count.to_be_bytes());
        self.records
            .iter()
            .for_each(|(delta, key)| push_record(&mut body, *delta, key.as_deref(), &self.value));
        body.extend(&self.trailing);
        let mut batch = Vec::new();
        batch.extend(self.base_offset.to_be_bytes());
        batch.extend((body.len() as i32 + 9).to_be_bytes());
        batch.extend(self.leader_epoch.to_be_bytes());
        batch.extend(self.magic.to_be_bytes());
        batch.extend(crc32c(&body).wrapping_add(self.crc_error).to_be_bytes());
        batch.extend(body);
        batch.into()
    }
}

fn push_record(body: &mut Vec<u8>, delta: i32, key: Option<&[u8]>, value: &[u8]) {
    let mut record = vec![0]; // Attributes.
    varint(&mut record, 0); // The timestamp's delta.
    varint(&mut record, i64::from(delta));
    match key {
        None => varint(&mut record, -1),
        Some(key) => {
            varint(&mut record, key.len() as i64);
            record.extend(key);
        }
    }
    varint(&mut record, value.len() as i64);
    record.extend(value);
    varint(&mut record, 0); // Headers.
    varint(body, record.len() as i64);
    body.extend(record);
}

/// Zigzag, seven bits a byte, the lowest first.
fn varint(out: &mut Vec<u8>, value: i64) {
    let mut bits = ((value << 1) ^ (value >> 63)) as u64;
    while bits >= 0x80 {
        out.push(bits as u8 | 0x80);
        bits >>= 7;
    }
    out.push(bits as u8);
}

/// Castagnoli's polynomial, bit by bit: slow, and shares nothing with kmirror's.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}

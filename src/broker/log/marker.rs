//! The control batch that ends a transaction in a partition (KIP-98; `EndTransactionMarker.java`).

use bytes::Bytes;

use crate::record::{Attributes, BatchHeader, HEADER_BYTES, NO_SEQUENCE, TimestampType, crc32c, varint};

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionResult {
    /// Its records are visible.
    Commit,
    /// Its records are to be skipped by read_committed readers.
    Abort,
}

impl TransactionResult {
    fn control_type(self) -> i16 {
        match self {
            TransactionResult::Abort => 0,
            TransactionResult::Commit => 1,
        }
    }
}

/// Whose transaction ends, who says so, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The transactional producer.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// Epoch of the transaction coordinator; a lower one than before is fenced.
    pub coordinator_epoch: i32,
    /// Commit or abort.
    pub result: TransactionResult,
}

/// The bytes of the control batch.
pub(super) fn marker_batch(
    marker: &Marker,
    base_offset: i64,
    leader_epoch: i32,
    timestamp_type: TimestampType,
    now_ms: i64,
) -> Bytes {
    let mut record = vec![0_u8]; // attributes
    varint::put_varlong(&mut record, 0);
    varint::put_varint(&mut record, 0);
    varint::put_varint(&mut record, 4);
    record.extend_from_slice(&0_i16.to_be_bytes());
    record.extend_from_slice(&marker.result.control_type().to_be_bytes());
    varint::put_varint(&mut record, 6);
    record.extend_from_slice(&0_i16.to_be_bytes());
    record.extend_from_slice(&marker.coordinator_epoch.to_be_bytes());
    varint::put_varint(&mut record, 0);

    let mut batch = vec![0; HEADER_BYTES];
    varint::put_varint(&mut batch, record.len() as i32);
    batch.extend_from_slice(&record);
    let length = batch.len() as i32 - 12;
    let mut attributes = Attributes::TRANSACTIONAL | Attributes::CONTROL;
    if timestamp_type == TimestampType::LogAppendTime {
        attributes |= Attributes::LOG_APPEND_TIME;
    }
    batch[0..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
    batch[16] = 2;
    batch[21..23].copy_from_slice(&attributes.to_be_bytes());
    batch[27..35].copy_from_slice(&now_ms.to_be_bytes());
    batch[35..43].copy_from_slice(&now_ms.to_be_bytes());
    batch[43..51].copy_from_slice(&marker.producer_id.to_be_bytes());
    batch[51..53].copy_from_slice(&marker.producer_epoch.to_be_bytes());
    batch[53..57].copy_from_slice(&NO_SEQUENCE.to_be_bytes());
    batch[57..61].copy_from_slice(&1_i32.to_be_bytes());
    let crc = crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    Bytes::from(batch)
}

/// Result and coordinator epoch of a marker; `None` for an emptied control batch and for other control records.
pub(super) fn read_marker(header: &BatchHeader, batch: &[u8]) -> Option<(TransactionResult, i32)> {
    if !header.attributes.is_control() || header.record_count == 0 {
        return None;
    }
    let mut record = batch.get(HEADER_BYTES..)?;
    varint::take_varint(&mut record, "record length").ok()?;
    let (_, rest) = record.split_first()?;
    let mut record = rest;
    varint::take_varlong(&mut record, "timestamp delta").ok()?;
    varint::take_varint(&mut record, "offset delta").ok()?;
    let key = take_bytes(&mut record)?;
    let value = take_bytes(&mut record)?;
    let result = match i16::from_be_bytes(*key.get(2..)?.first_chunk()?) {
        0 => TransactionResult::Abort,
        1 => TransactionResult::Commit,
        _ => return None,
    };
    Some((result, i32::from_be_bytes(*value.get(2..)?.first_chunk()?)))
}

fn take_bytes<'a>(record: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = varint::take_varint(record, "length").ok()?;
    let (bytes, rest) = record.split_at_checked(usize::try_from(length).ok()?)?;
    *record = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_back() {
        for result in [TransactionResult::Commit, TransactionResult::Abort] {
            let marker = Marker { producer_id: 7, producer_epoch: 3, coordinator_epoch: 12, result };
            let batch = marker_batch(&marker, 40, 5, TimestampType::CreateTime, 1_000);
            let header = BatchHeader::parse(&batch).unwrap();
            assert_eq!(crate::record::verify_crc(&batch), Ok(()));
            assert_eq!(header.size_bytes, 78);
            assert!(header.attributes.is_control() && header.attributes.is_transactional());
            assert_eq!((header.base_offset, header.next_offset(), header.record_count), (40, 41, 1));
            assert_eq!(read_marker(&header, &batch), Some((result, 12)));
            for end in HEADER_BYTES..batch.len() {
                let _ = read_marker(&header, &batch[..end]);
            }
        }
    }
}

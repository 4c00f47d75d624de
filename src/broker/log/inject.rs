//! What no client can bring about: damage, entries of old formats, empty batches. For tests of those who read the log.

use bytes::{Bytes, BytesMut};

use super::error::AppendError;
use super::{PartitionLog, Stored};
use crate::record::BatchHeader;

impl PartitionLog {
    /// Flips a bit in the last byte of the batch that holds `offset`, under its checksum. False if there is none.
    pub fn damage(&mut self, offset: i64) -> bool {
        let at = self.store.find(offset);
        let Some(stored) = self.store.get_mut(at).filter(|stored| stored.base_offset <= offset) else {
            return false;
        };
        let mut bytes = BytesMut::from(&stored.bytes[..]);
        if let Some(last) = bytes.last_mut() {
            *last ^= 0x10;
        }
        stored.bytes = bytes.freeze();
        true
    }

    /// Stores a v2 batch as it is, with base offset and leader epoch set: holes, empty batches, control bits, the delete
    /// horizon, whatever its header says. Gives its base offset.
    pub fn inject_batch(&mut self, leader_epoch: i32, batch: &Bytes) -> Result<i64, AppendError> {
        let header = BatchHeader::parse(batch).map_err(|error| AppendError::corrupt(error.to_string()))?;
        let base_offset = self.log_end_offset;
        let mut bytes = BytesMut::from(&batch[..]);
        bytes[0..8].copy_from_slice(&base_offset.to_be_bytes());
        bytes[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
        self.push(bytes.freeze(), BatchHeader { base_offset, ..header }, leader_epoch);
        Ok(base_offset)
    }

    /// Stores an entry of magic 0 or 1 that takes `offset_count` offsets; its offset field, which names the last of
    /// them, is set. Gives the first offset.
    pub fn inject_legacy(
        &mut self,
        leader_epoch: i32,
        entry: &Bytes,
        offset_count: u32,
        max_timestamp: i64,
    ) -> Result<i64, AppendError> {
        if entry.len() < 26 || !matches!(entry[16], 0 | 1) || offset_count == 0 {
            return Err(AppendError::corrupt("no entry of magic 0 or 1"));
        }
        let base_offset = self.log_end_offset;
        let last_offset = base_offset + i64::from(offset_count) - 1;
        let mut bytes = BytesMut::from(&entry[..]);
        bytes[0..8].copy_from_slice(&last_offset.to_be_bytes());
        self.epochs.assign(leader_epoch, base_offset);
        self.log_end_offset = last_offset + 1;
        let bytes = bytes.freeze();
        let is_indexed = false;
        self.store.push(Stored { is_indexed, base_offset, last_offset, max_timestamp, leader_epoch, bytes });
        Ok(base_offset)
    }

    /// Gives offsets out without records, as a removed batch leaves them.
    pub fn inject_gap(&mut self, offset_count: u32) {
        self.log_end_offset += i64::from(offset_count);
    }
}

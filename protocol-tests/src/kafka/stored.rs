//! Batches as a broker stored them, read from its log files: the bytes that a mirror must not have changed.
//!
//! The few header fields are cut out here anew, so that a fault in kmirror's own view cannot hide itself.

use super::cluster::Kafka;
use crate::{HarnessError, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

/// Length of a v2 header (KIP-98): base offset 8, length 4, leader epoch 4, magic 1, CRC 4, attributes 2,
/// last offset delta 4, two timestamps 8 + 8, producer id 8, epoch 2, base sequence 4, record count 4.
const HEADER_BYTES: usize = 61;
const LOG_OVERHEAD_BYTES: usize = 12;

/// One v2 record batch with its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredBatch {
    pub bytes: Vec<u8>,
}

impl StoredBatch {
    /// Offset of the first record.
    pub fn base_offset(&self) -> i64 {
        i64::from_be_bytes(self.field(0..8))
    }

    /// Codec, timestamp type, transactional, control and delete horizon bits.
    pub fn attributes(&self) -> i16 {
        i16::from_be_bytes(self.field(21..23))
    }

    /// Last offset minus base offset.
    pub fn last_offset_delta(&self) -> i32 {
        i32::from_be_bytes(self.field(23..27))
    }

    /// −1 when the producer was not idempotent.
    pub fn producer_id(&self) -> i64 {
        i64::from_be_bytes(self.field(43..51))
    }

    /// Number of records.
    pub fn record_count(&self) -> i32 {
        i32::from_be_bytes(self.field(57..61))
    }

    /// Whether it carries a transaction's end.
    pub fn is_control(&self) -> bool {
        self.attributes() & 0x20 != 0
    }

    /// Whether it belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes() & 0x10 != 0
    }

    /// Whether this is the abort marker of a transaction. The key of the only record of a control batch is a version
    /// and a type (0 abort, 1 commit), two bytes each; before it stand a length, attributes, two deltas and the key's
    /// length, one byte each.
    pub fn is_abort_marker(&self) -> bool {
        self.is_control() && self.bytes.get(HEADER_BYTES + 5..HEADER_BYTES + 9) == Some(&[0, 0, 0, 0])
    }

    /// The codec's number.
    pub fn codec(&self) -> i16 {
        self.attributes() & 7
    }

    /// The bytes that a verbatim mirror keeps: all but base offset, leader epoch, CRC, the attributes beside codec and
    /// timestamp type, and the producer's three fields.
    pub fn kept_bytes(&self) -> Vec<u8> {
        let mut kept = self.bytes.clone();
        let mut attributes = self.attributes();
        attributes &= 0x0f;
        kept[21..23].copy_from_slice(&attributes.to_be_bytes());
        for range in [0..8, 12..16, 17..21, 43..57] {
            kept[range].fill(0);
        }
        kept
    }

    fn field<const N: usize>(&self, range: Range<usize>) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[range]);
        field
    }
}

impl std::fmt::Debug for StoredBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "batch at {} ({} records to +{}, attributes {:#x}, producer {}, {} bytes)",
            self.base_offset(),
            self.record_count(),
            self.last_offset_delta(),
            self.attributes(),
            self.producer_id(),
            self.bytes.len()
        )
    }
}

/// The batches that a reader of committed data gets records from: no control batches, none of an aborted or open
/// transaction.
pub fn committed_batches(batches: &[StoredBatch]) -> Vec<StoredBatch> {
    let mut kept: Vec<Option<&StoredBatch>> = Vec::new();
    let mut open: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for batch in batches {
        if batch.is_control() {
            let members = open.remove(&batch.producer_id()).unwrap_or_default();
            if batch.is_abort_marker() {
                members.into_iter().for_each(|index| kept[index] = None);
            }
            continue;
        }
        if batch.is_transactional() {
            open.entry(batch.producer_id()).or_default().push(kept.len());
        }
        kept.push(Some(batch));
    }
    open.into_values().flatten().for_each(|index| kept[index] = None);
    kept.into_iter().flatten().cloned().collect()
}

impl Kafka {
    /// All batches of a partition as `node` stores them, control batches too. Brokers write through to the files, so
    /// everything acknowledged is there; a part of a batch at the end is left out.
    pub fn stored_batches(&self, node: i32, topic: &str, partition: i32) -> Result<Vec<StoredBatch>> {
        let folder = self.partition_folder(node, topic, partition)?;
        let entries =
            std::fs::read_dir(&folder).map_err(|error| HarnessError::path("list", &folder, error))?;
        let mut segments: Vec<PathBuf> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
            .collect();
        segments.sort();
        let mut batches = Vec::new();
        for segment in segments {
            let bytes =
                std::fs::read(&segment).map_err(|error| HarnessError::path("read", &segment, error))?;
            batches.extend(split(&bytes)?);
        }
        Ok(batches)
    }
}

fn split(mut rest: &[u8]) -> Result<Vec<StoredBatch>> {
    let mut batches = Vec::new();
    while let Some((head, _)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let (length, magic) = (i32::from_be_bytes([head[8], head[9], head[10], head[11]]), head[16]);
        if length == 0 {
            break; // A preallocated rest of the file.
        }
        let size = usize::try_from(length).unwrap_or_default() + LOG_OVERHEAD_BYTES;
        if magic != 2 || size < HEADER_BYTES {
            let detail = format!("magic {magic}, length {length}");
            return Err(HarnessError::Malformed { what: "a stored batch".to_owned(), detail });
        }
        let Some((batch, after)) = rest.split_at_checked(size) else { break };
        batches.push(StoredBatch { bytes: batch.to_vec() });
        rest = after;
    }
    Ok(batches)
}

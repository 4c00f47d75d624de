//! What stands in a log, record by record: for the checks of a test.
//!
//! Apart from the log because the log itself never looks into stored batches to serve them.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::log::{AbortedTransaction, FirstBatch, Isolation, PartitionLog};
use crate::record::{BatchHeader, Error, OpenBatch, RecordData};

/// Decompressed bytes of one batch at most.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// A record and the batch that it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRecord {
    /// Its offset.
    pub offset: i64,
    /// Timestamp, key, value, headers.
    pub record: RecordData,
    /// The header of its batch.
    pub batch: BatchHeader,
}

/// All batches that a reader may see, from the log start on, byte for byte.
pub(super) fn batches(log: &PartitionLog, isolation: Isolation) -> (Vec<Bytes>, Vec<AbortedTransaction>) {
    match log.read(log.log_start_offset(), usize::MAX, isolation, FirstBatch::Whole) {
        Ok(read) => (read.batches, read.aborted),
        Err(_) => (Vec::new(), Vec::new()),
    }
}

/// All data records that a reader sees: no markers, and with read_committed nothing of aborted transactions.
pub(super) fn records(log: &PartitionLog, isolation: Isolation) -> Result<Vec<LoggedRecord>, Error> {
    let (batches, mut aborted) = batches(log, isolation);
    aborted.sort_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
    let mut aborting = BTreeSet::new();
    let mut records = Vec::new();
    for bytes in &batches {
        let header = BatchHeader::parse(bytes)?;
        while let Some(next) = aborted.pop_if(|next| next.first_offset <= header.last_offset()) {
            aborting.insert(next.producer_id);
        }
        if header.attributes.is_control() {
            aborting.remove(&header.producer_id);
        } else if !(header.attributes.is_transactional() && aborting.contains(&header.producer_id)) {
            collect(bytes, header, log.log_start_offset(), &mut records)?;
        }
    }
    Ok(records)
}

fn collect(
    bytes: &Bytes,
    header: BatchHeader,
    start_offset: i64,
    into: &mut Vec<LoggedRecord>,
) -> Result<(), Error> {
    let batch = OpenBatch::open(bytes, BATCH_BYTES_MAX)?;
    for record in batch.records() {
        let record = record?;
        let offset = batch.offset(&record);
        if offset >= start_offset {
            let record = RecordData::copied(batch.timestamp(&record), &record);
            into.push(LoggedRecord { offset, record, batch: header });
        }
    }
    Ok(())
}

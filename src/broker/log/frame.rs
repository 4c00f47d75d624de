//! What a broker looks at before it reads a batch: `ProduceRequest.validateRecords` with the iterator under it
//! (`ByteBufferLogInputStream`), then base offset, size and checksum (`UnifiedLog.analyzeAndValidateRecords`).

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

use super::error::AppendError;
use super::settings::LogSettings;
use crate::record::{HEADER_BYTES, PREFIX_BYTES, crc32c};

const MAGIC_AT: usize = 16;
/// Least length that any entry has (`LegacyRecord.RECORD_OVERHEAD_V0`).
const LENGTH_MIN: i32 = 14;

/// What makes a whole Produce request fail, whatever its other partitions hold: a broker looks at the first entry of every
/// partition for transactional batches (`RequestUtils.hasTransactionalRecords`), which an unreadable one ends.
pub fn check_first_entry(records: &Bytes) -> Result<(), AppendError> {
    first_entry(records).map(drop)
}

fn first_entry(records: &[u8]) -> Result<Option<usize>, AppendError> {
    next_entry(records).map_err(|error| match error.code {
        ResponseError::CorruptMessage => error.of_request(),
        _ => error,
    })
}

/// The one batch of magic 2 in a Produce request's records. What follows it and is no whole entry is dropped, as brokers
/// do.
pub(super) fn the_batch(records: &Bytes) -> Result<Bytes, AppendError> {
    let Some(size_bytes) = first_entry(records)? else {
        return Err(AppendError::invalid_record(
            "Produce requests with version 3 or higher must have at least one record batch per partition",
        ));
    };
    if records[MAGIC_AT] != 2 {
        return Err(AppendError::invalid_record(
            "Produce requests with version 3 or higher are only allowed to contain record batches with magic version 2",
        ));
    }
    if next_entry(&records[size_bytes..])?.is_some() {
        return Err(AppendError::invalid_record(
            "Produce requests with version 3 or higher are only allowed to contain exactly one record batch per partition",
        ));
    }
    Ok(records.slice(..size_bytes))
}

/// Bytes of the entry at the front, if it is there whole.
fn next_entry(bytes: &[u8]) -> Result<Option<usize>, AppendError> {
    let Some(prefix) = bytes.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    let [.., a, b, c, d] = *prefix;
    let length = i32::from_be_bytes([a, b, c, d]);
    if length < LENGTH_MIN {
        return Err(AppendError::corrupt(format!(
            "Record size {length} is less than the minimum record overhead ({LENGTH_MIN})"
        )));
    }
    match bytes.get(MAGIC_AT) {
        None => return Ok(None),
        Some(0..=2) => {}
        Some(&magic) => {
            return Err(AppendError::corrupt(format!("Invalid magic found in record: {}", magic as i8)));
        }
    }
    // Java's sum is negative here, and the buffer's limit does not like that.
    let Some(size) = length.checked_add(PREFIX_BYTES as i32) else {
        return Err(AppendError::new(ResponseError::UnknownServerError, "the batch length overflows"));
    };
    Ok(Some(size as usize).filter(|&size| size <= bytes.len()))
}

/// Base offset, size and checksum: what the log looks at first.
pub(super) fn check_envelope(
    batch: &[u8],
    settings: &LogSettings,
    partition: &str,
) -> Result<(), AppendError> {
    let base_offset = batch.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes));
    if base_offset != 0 {
        return Err(AppendError::invalid_record(format!(
            "The baseOffset of the record batch in the append to {partition} should be 0, but it is {base_offset}"
        )));
    }
    check_size(batch.len(), settings, partition)?;
    let Some(header) = batch.first_chunk::<HEADER_BYTES>() else {
        return Err(AppendError::corrupt(format!("Record is corrupt in topic partition {partition}.")));
    };
    let stored = u32::from_be_bytes([header[17], header[18], header[19], header[20]]);
    if crc32c(&batch[21..]) != stored {
        return Err(AppendError::corrupt(format!(
            "Record is corrupt (stored crc = {stored}) in topic partition {partition}."
        )));
    }
    Ok(())
}

/// `max.message.bytes`, which counts the whole batch.
pub(super) fn check_size(
    batch_bytes: usize,
    settings: &LogSettings,
    partition: &str,
) -> Result<(), AppendError> {
    if batch_bytes <= settings.message_bytes_max {
        return Ok(());
    }
    Err(AppendError::new(
        ResponseError::MessageTooLarge,
        format!(
            "The record batch size in the append to {partition} is {batch_bytes} bytes which exceeds the maximum \
             configured value of {}.",
            settings.message_bytes_max
        ),
    ))
}

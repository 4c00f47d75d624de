//! Whether a produced batch may be appended, before any state is looked at: `UnifiedLog.analyzeAndValidateRecords` and
//! `LogValidator`, in that order, with their codes and words.
//!
//! What a broker checks of the content: structure, keys and timestamps of every record; offset deltas only of compressed
//! batches, and of those no record lengths. What it lets pass all the same is listed as `Violation`.

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

use super::contents::{Lengths, decompressed, for_each_record};
use super::convert::convert;
use super::error::AppendError;
use super::frame::{check_envelope, check_size};
use super::scan::{Scan, Scanned};
use super::settings::{Compression, LogSettings};
use super::violation::ViolationKind;
use crate::record::{BatchHeader, Codec, NO_PRODUCER_ID};

/// Whether the caller made sure that a transaction is open on this partition (KIP-890; a coordinator's knowledge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Not asked, or not open: transactional batches are refused unless the log itself knows of an open transaction.
    Missing,
    /// Asked, and refused with this code.
    Refused(ResponseError),
    /// The transaction is open and holds this partition.
    Done,
    /// The same for a client that speaks transactions of version 2: a new producer must begin at sequence 0.
    DoneV2,
}

/// Who appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A producer: everything is checked.
    Client(Verification),
    /// A coordinator of this broker, into its own topic: counts, deltas and sequences are taken as they are.
    Coordinator,
}

/// A batch that passed.
pub(super) struct Valid {
    pub(super) header: BatchHeader,
    /// Largest timestamp of its records.
    pub(super) max_timestamp: i64,
    /// The batch in the topic's codec, if that is another one; `header` is then its header.
    pub(super) converted: Option<Bytes>,
    pub(super) violations: Vec<ViolationKind>,
}

/// Checks a batch, whole and alone, against everything but the producer's state.
pub(super) fn validate(
    batch: &Bytes,
    origin: Origin,
    settings: &LogSettings,
    now_ms: i64,
    partition: &str,
) -> Result<Valid, AppendError> {
    check_envelope(batch, settings, partition)?;
    let header = check_header(batch, origin)?;
    check_contents(batch, header, settings, now_ms, partition)
}

/// Offsets, count, bits and sequence of the header (`LogValidator.validateBatch`).
fn check_header(batch: &[u8], origin: Origin) -> Result<BatchHeader, AppendError> {
    let field = |at: usize| i32::from_be_bytes([batch[at], batch[at + 1], batch[at + 2], batch[at + 3]]);
    let (last_offset_delta, record_count) = (field(23), field(57));
    if last_offset_delta < 0 {
        return Err(AppendError::invalid_record(format!(
            "Batch has an invalid offset range: [0, {last_offset_delta}]"
        )));
    }
    if record_count < 0 || (record_count == 0 && origin != Origin::Coordinator) {
        return Err(AppendError::invalid_record(format!(
            "Invalid reported count for record batch: {record_count}"
        )));
    }
    let header = BatchHeader::parse(batch).map_err(|error| AppendError::invalid_record(error.to_string()))?;
    if header.attributes.codec().is_err() {
        let codec = header.attributes.0 & 7;
        return Err(AppendError::new(
            ResponseError::UnknownServerError,
            format!("Unknown compression type id: {codec}"),
        ));
    }
    if origin == Origin::Coordinator {
        return Ok(header);
    }
    if i64::from(last_offset_delta) + 1 != i64::from(record_count) {
        return Err(AppendError::invalid_record(format!(
            "Inconsistent batch offset range [0, {last_offset_delta}] and count of records {record_count}"
        )));
    }
    if header.attributes.is_control() {
        return Err(AppendError::invalid_record("Clients are not allowed to write control records"));
    }
    if header.producer_id > NO_PRODUCER_ID && header.base_sequence < 0 {
        return Err(AppendError::invalid_record(format!(
            "Invalid sequence number {} in record batch with producerId {}",
            header.base_sequence, header.producer_id
        )));
    }
    Ok(header)
}

fn check_contents(
    batch: &Bytes,
    header: BatchHeader,
    settings: &LogSettings,
    now_ms: i64,
    partition: &str,
) -> Result<Valid, AppendError> {
    let codec = header.attributes.codec().unwrap_or(Codec::None);
    let target = match settings.compression {
        Compression::Producer => codec,
        Compression::Topic(target) => target,
    };
    let skips_keys = codec != Codec::None && target == codec;
    let records = decompressed(batch, codec, settings.decompressed_bytes_max)?;
    let lengths = if skips_keys { Lengths::Ignored } else { Lengths::Checked };
    let mut scan = Scan::new(header, settings, now_ms, partition);
    for_each_record(&records, header.record_count, lengths, |record| scan.record(record))?;
    let Scanned { odd_delta, max_timestamp, violations } = scan.finish()?;
    if odd_delta && skips_keys {
        // A broker sets out to number the records anew, but has skipped keys and values, and stumbles over that.
        return Err(AppendError::new(
            ResponseError::UnknownServerError,
            "offset deltas in a compressed batch do not count up from 0",
        ));
    }
    if target == codec {
        return Ok(Valid { header, max_timestamp, converted: None, violations });
    }
    let converted = convert(&header, &records, target)?;
    check_size(converted.len(), settings, partition)?;
    let header = BatchHeader::parse(&converted).map_err(|error| AppendError::corrupt(error.to_string()))?;
    Ok(Valid { header, max_timestamp, converted: Some(converted), violations })
}

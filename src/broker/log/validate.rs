//! Whether a produced batch may be appended, before any state is looked at: `ProduceRequest.validateRecords`,
//! `UnifiedLog.analyzeAndValidateRecords` and `LogValidator`, in that order, with their codes and words.
//!
//! What a broker checks of the content: structure, keys and timestamps of every record; offset deltas only of compressed
//! batches. What it lets pass although no reader can be happy with it is listed as [`Violation`].

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

use super::contents::{RecordView, for_each_record};
use super::error::{AppendError, RecordError};
use super::settings::{LogSettings, Strictness};
use crate::record::{BatchHeader, Codec, HEADER_BYTES, NO_PRODUCER_ID, TimestampType, crc32c};

/// Whether the caller made sure that a transaction is open on this partition (KIP-890; a coordinator's knowledge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Not asked, or not open: transactional batches are refused unless the log itself knows of an open transaction.
    Missing,
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

/// A rule that brokers do not check and that the batch breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where the batch was stored.
    pub base_offset: i64,
    /// What is wrong.
    pub kind: ViolationKind,
}

/// The rules of [`Violation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// A record's offset delta is not its index: offsets overlap or leave holes.
    OffsetDelta {
        /// Index of the record.
        index: i32,
        /// Its delta.
        delta: i32,
    },
    /// Transactional without a producer id: no marker can ever end it.
    TransactionalWithoutProducer,
    /// An attribute bit of the batch that a producer must not set.
    AttributeBits(i16),
    /// An attribute of a record is not 0.
    RecordAttributes {
        /// Index of the record.
        index: i32,
        /// Its attributes.
        attributes: u8,
    },
    /// A null that is not written as length −1.
    NullLength {
        /// Index of the record.
        index: i32,
    },
    /// The header's largest timestamp is not that of the records.
    MaxTimestamp {
        /// In the header.
        stored: i64,
        /// Of the records.
        actual: i64,
    },
    /// Producer epoch or sequence without a producer id.
    IdentityWithoutProducer,
}

/// A batch that passed.
pub(super) struct Valid {
    pub(super) header: BatchHeader,
    /// Largest timestamp of its records.
    pub(super) max_timestamp: i64,
    pub(super) violations: Vec<ViolationKind>,
}

/// Checks a produced batch against everything but the producer's state.
pub(super) fn validate(
    batch: &Bytes,
    origin: Origin,
    settings: &LogSettings,
    now_ms: i64,
    partition: &str,
) -> Result<Valid, AppendError> {
    check_frame(batch)?;
    check_envelope(batch, settings, partition)?;
    let header = check_header(batch, origin)?;
    check_contents(batch, header, settings, now_ms, partition)
}

/// One entry of magic 2 that fills the bytes.
fn check_frame(batch: &[u8]) -> Result<(), AppendError> {
    const MAGIC_AT: usize = 16;
    let Some(length) =
        batch.get(8..12).and_then(|bytes| bytes.first_chunk()).copied().map(i32::from_be_bytes)
    else {
        return Err(AppendError::invalid_record(
            "Produce requests with version 3 or higher must have at least one record batch per partition",
        ));
    };
    if length < 14 {
        return Err(AppendError::corrupt(format!(
            "Record size {length} is less than the minimum record overhead (14)"
        )));
    }
    let size_bytes = length as usize + 12;
    match batch.get(MAGIC_AT) {
        Some(2) if batch.len() >= size_bytes => {}
        Some(0 | 1) if batch.len() >= size_bytes => {
            return Err(AppendError::invalid_record(
                "Produce requests with version 3 or higher are only allowed to contain record batches with magic version 2",
            ));
        }
        Some(&magic) if magic > 2 => {
            return Err(AppendError::corrupt(format!("Invalid magic found in record: {}", magic as i8)));
        }
        _ => {
            return Err(AppendError::invalid_record(
                "Produce requests with version 3 or higher must have at least one record batch per partition",
            ));
        }
    }
    if batch.len() > size_bytes {
        return Err(AppendError::invalid_record(
            "Produce requests with version 3 or higher are only allowed to contain exactly one record batch per partition",
        ));
    }
    Ok(())
}

/// Base offset, size and checksum: what the log looks at first.
fn check_envelope(batch: &[u8], settings: &LogSettings, partition: &str) -> Result<(), AppendError> {
    let Some(header) = batch.first_chunk::<HEADER_BYTES>() else {
        return Err(AppendError::corrupt(format!("Record is corrupt in topic partition {partition}.")));
    };
    let [a, b, c, d, e, f, g, h, ..] = *header;
    let base_offset = i64::from_be_bytes([a, b, c, d, e, f, g, h]);
    if base_offset != 0 {
        return Err(AppendError::invalid_record(format!(
            "The baseOffset of the record batch in the append to {partition} should be 0, but it is {base_offset}"
        )));
    }
    if batch.len() > settings.message_bytes_max {
        return Err(AppendError::new(
            ResponseError::MessageTooLarge,
            format!(
                "The record batch size in the append to {partition} is {} bytes which exceeds the maximum \
                 configured value of {}.",
                batch.len(),
                settings.message_bytes_max
            ),
        ));
    }
    let stored = u32::from_be_bytes([header[17], header[18], header[19], header[20]]);
    if crc32c(&batch[21..]) != stored {
        return Err(AppendError::corrupt(format!(
            "Record is corrupt (stored crc = {stored}) in topic partition {partition}."
        )));
    }
    Ok(())
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
    let mut scan = Scan::new(header, settings, now_ms, partition);
    if codec == Codec::None {
        for_each_record(&batch[HEADER_BYTES..], header.record_count, |record| scan.record(record))?;
    } else {
        scan.max_timestamp = header.max_timestamp;
    }
    scan.finish()
}

/// What is found while the records go by.
struct Scan<'a> {
    header: BatchHeader,
    settings: &'a LogSettings,
    partition: &'a str,
    now_ms: i64,
    index: i32,
    max_timestamp: i64,
    timestamp_errors: bool,
    errors: Vec<RecordError>,
    violations: Vec<ViolationKind>,
}

impl<'a> Scan<'a> {
    fn new(header: BatchHeader, settings: &'a LogSettings, now_ms: i64, partition: &'a str) -> Scan<'a> {
        let (timestamp_errors, errors, violations) = (false, Vec::new(), Vec::new());
        let (index, max_timestamp) = (0, -1);
        Scan {
            header,
            settings,
            partition,
            now_ms,
            index,
            max_timestamp,
            timestamp_errors,
            errors,
            violations,
        }
    }

    fn record(&mut self, record: RecordView<'_>) {
        let timestamp = match self.header.attributes.timestamp_type() {
            TimestampType::CreateTime => self.header.base_timestamp.wrapping_add(record.timestamp_delta),
            TimestampType::LogAppendTime => self.header.max_timestamp,
        };
        if self.settings.cleanup_policy.compacts() && record.key.is_none() {
            self.error(format!(
                "Compacted topic cannot accept message without key in topic partition {}.",
                self.partition
            ));
        } else {
            self.check_timestamp(timestamp);
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        if self.settings.strictness == Strictness::Report {
            self.note(record);
        }
        self.index += 1;
    }

    fn check_timestamp(&mut self, timestamp: i64) {
        let (now_ms, settings) = (self.now_ms, self.settings);
        if settings.timestamp_type == TimestampType::LogAppendTime {
            if self.header.attributes.timestamp_type() == TimestampType::LogAppendTime {
                self.timestamp_errors = true;
                self.error(
                    "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."
                        .to_string(),
                );
            }
            return;
        }
        let age_ms = now_ms.wrapping_sub(timestamp);
        if timestamp != -1
            && (age_ms > settings.timestamp_before_ms_max
                || age_ms.wrapping_neg() > settings.timestamp_after_ms_max)
        {
            self.timestamp_errors = true;
            self.error(format!(
                "Timestamp {timestamp} of message with offset {} is out of range. The timestamp should be within [{}, {}]",
                self.index,
                now_ms.wrapping_sub(settings.timestamp_before_ms_max),
                now_ms.wrapping_add(settings.timestamp_after_ms_max)
            ));
        }
    }

    fn error(&mut self, message: String) {
        self.errors.push(RecordError { batch_index: self.index, message });
    }

    fn note(&mut self, record: RecordView<'_>) {
        let index = self.index;
        if record.offset_delta != index {
            self.violations.push(ViolationKind::OffsetDelta { index, delta: record.offset_delta });
        }
        if record.attributes != 0 {
            self.violations.push(ViolationKind::RecordAttributes { index, attributes: record.attributes });
        }
        if record.odd_null {
            self.violations.push(ViolationKind::NullLength { index });
        }
    }

    fn note_header(&mut self) {
        const PRODUCED: i16 = 0x17;
        let header = self.header;
        if header.attributes.0 & !PRODUCED != 0 {
            self.violations.push(ViolationKind::AttributeBits(header.attributes.0 & !PRODUCED));
        }
        if header.max_timestamp != self.max_timestamp {
            let (stored, actual) = (header.max_timestamp, self.max_timestamp);
            self.violations.push(ViolationKind::MaxTimestamp { stored, actual });
        }
        if header.producer_id != NO_PRODUCER_ID {
            return;
        }
        if header.attributes.is_transactional() {
            self.violations.push(ViolationKind::TransactionalWithoutProducer);
        }
        if header.producer_epoch != -1 || header.base_sequence != -1 {
            self.violations.push(ViolationKind::IdentityWithoutProducer);
        }
    }

    fn finish(mut self) -> Result<Valid, AppendError> {
        if !self.errors.is_empty() {
            return Err(self.refusal());
        }
        if self.settings.strictness == Strictness::Report {
            self.note_header();
        }
        Ok(Valid { header: self.header, max_timestamp: self.max_timestamp, violations: self.violations })
    }

    fn refusal(self) -> AppendError {
        let (code, message) = if self.timestamp_errors {
            (
                ResponseError::InvalidTimestamp,
                "One or more records have been rejected due to invalid timestamp".to_string(),
            )
        } else {
            let first: Vec<&str> = self.errors.iter().take(3).map(|error| error.message.as_str()).collect();
            (
                ResponseError::InvalidRecord,
                format!(
                    "One or more records have been rejected due to {} record errors in total, and only showing the \
                     first three errors at most: [{}]",
                    self.errors.len(),
                    first.join(", ")
                ),
            )
        };
        AppendError { code, message, record_errors: self.errors }
    }
}

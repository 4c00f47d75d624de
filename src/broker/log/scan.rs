//! The rules for records while they go by (`LogValidator.validateRecord`): keys, timestamps; and what nobody checks.

use kafka_protocol::error::ResponseError;

use super::contents::RecordView;
use super::error::{AppendError, RecordError};
use super::settings::{LogSettings, Strictness};
use super::violation::ViolationKind;
use crate::record::{BatchHeader, NO_PRODUCER_ID, TimestampType};

/// What is found while the records go by.
pub(super) struct Scan<'a> {
    header: BatchHeader,
    settings: &'a LogSettings,
    partition: &'a str,
    now_ms: i64,
    index: i32,
    /// An offset delta was not its record's index.
    odd_delta: bool,
    max_timestamp: i64,
    timestamp_errors: bool,
    errors: Vec<RecordError>,
    violations: Vec<ViolationKind>,
}

/// What the records are like, if nothing speaks against them.
pub(super) struct Scanned {
    pub(super) odd_delta: bool,
    pub(super) max_timestamp: i64,
    pub(super) violations: Vec<ViolationKind>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        header: BatchHeader,
        settings: &'a LogSettings,
        now_ms: i64,
        partition: &'a str,
    ) -> Scan<'a> {
        let (timestamp_errors, errors, violations) = (false, Vec::new(), Vec::new());
        let (index, odd_delta, max_timestamp) = (0, false, -1);
        Scan {
            header,
            settings,
            partition,
            now_ms,
            index,
            odd_delta,
            max_timestamp,
            timestamp_errors,
            errors,
            violations,
        }
    }

    pub(super) fn record(&mut self, record: RecordView<'_>) {
        let timestamp = match self.header.attributes.timestamp_type() {
            TimestampType::CreateTime => self.header.base_timestamp.wrapping_add(record.timestamp_delta),
            TimestampType::LogAppendTime => self.header.max_timestamp,
        };
        if self.settings.cleanup_policy.compacts() && record.key.is_none() {
            self.error(format!(
                "Compacted topic cannot accept message without key in topic partition {}",
                self.partition
            ));
        } else {
            self.check_timestamp(timestamp);
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.odd_delta |= record.offset_delta != self.index;
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
        if record.odd_length {
            self.violations.push(ViolationKind::RecordLength { index });
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

    pub(super) fn finish(mut self) -> Result<Scanned, AppendError> {
        if !self.errors.is_empty() {
            return Err(self.refusal());
        }
        if self.settings.strictness == Strictness::Report {
            self.note_header();
        }
        let Scan { odd_delta, max_timestamp, violations, .. } = self;
        Ok(Scanned { odd_delta, max_timestamp, violations })
    }

    fn refusal(self) -> AppendError {
        let (code, message) = if self.timestamp_errors {
            (
                ResponseError::InvalidTimestamp,
                "One or more records have been rejected due to invalid timestamp".to_string(),
            )
        } else {
            let first: Vec<String> = self
                .errors
                .iter()
                .take(3)
                .map(|RecordError { batch_index, message }| {
                    format!("RecordError(batchIndex={batch_index}, message='{message}')")
                })
                .collect();
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
        AppendError { record_errors: self.errors, ..AppendError::new(code, message) }
    }
}

//! What a log refuses, with the code that a client gets.

use kafka_protocol::error::ResponseError;

/// One record that made a batch fail (`RecordError` of a Produce reply).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError {
    /// Index of the record in its batch.
    pub batch_index: i32,
    /// The broker's words.
    pub message: String,
}

/// A batch that was not appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AppendError {
    /// The error code of the Produce reply.
    pub code: ResponseError,
    /// Its text.
    pub message: String,
    /// The records at fault, when single ones are.
    pub record_errors: Vec<RecordError>,
    /// First offset of the log as the Produce reply has it: −1 if the batch was refused before the log saw it.
    pub log_start_offset: i64,
}

impl AppendError {
    pub(super) fn new(code: ResponseError, message: impl Into<String>) -> AppendError {
        AppendError { code, message: message.into(), record_errors: Vec::new(), log_start_offset: -1 }
    }

    /// The text of the Produce reply: brokers send one only when they name records.
    pub fn client_message(&self) -> Option<&str> {
        if self.record_errors.is_empty() { None } else { Some(&self.message) }
    }

    pub(super) fn invalid_record(message: impl Into<String>) -> AppendError {
        AppendError::new(ResponseError::InvalidRecord, message)
    }

    pub(super) fn corrupt(message: impl Into<String>) -> AppendError {
        AppendError::new(ResponseError::CorruptMessage, message)
    }
}

/// A read or a cut outside the log (`OFFSET_OUT_OF_RANGE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset} lies outside the log, which holds {log_start_offset} to {log_end_offset}")]
pub struct OffsetOutOfRange {
    /// What was asked for.
    pub offset: i64,
    /// The first offset of the log.
    pub log_start_offset: i64,
    /// The offset that the next record gets.
    pub log_end_offset: i64,
}

impl OffsetOutOfRange {
    /// The error code of the reply.
    pub fn code(&self) -> ResponseError {
        ResponseError::OffsetOutOfRange
    }
}

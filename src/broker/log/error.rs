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

/// How much of a Produce request an error makes fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Its partition.
    Partition,
    /// Every partition, with the same code and text: the bytes could not even be counted.
    Request,
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
    /// First offset of the log as the Produce reply has it, or −1.
    pub log_start_offset: i64,
    /// What else fails with it.
    pub reach: Reach,
    /// Whether the client gets the text, although no record is named.
    pub(super) is_told: bool,
}

impl AppendError {
    /// A refusal of one partition's batch.
    pub fn new(code: ResponseError, message: impl Into<String>) -> AppendError {
        AppendError {
            code,
            message: message.into(),
            record_errors: Vec::new(),
            log_start_offset: -1,
            reach: Reach::Partition,
            is_told: false,
        }
    }

    /// The error as a Produce reply has it once the log has seen the batch: most name the log start offset
    /// (`ReplicaManager.appendToLocalLog`).
    pub(super) fn at_log(self, log_start_offset: i64) -> AppendError {
        match self.code {
            ResponseError::MessageTooLarge
            | ResponseError::RecordListTooLarge
            | ResponseError::CorruptMessage
            | ResponseError::KafkaStorageError => self,
            _ => AppendError { log_start_offset, ..self },
        }
    }

    /// The coordinator does not confirm the transaction (`ReplicaManager.handleProduceAppend`).
    pub(super) fn not_verified(code: ResponseError) -> AppendError {
        let message = match code {
            ResponseError::InvalidTxnState => "Partition was not added to the transaction".to_owned(),
            _ => format!(
                "Unable to verify the partition has been added to the transaction. Underlying error: {code:?}"
            ),
        };
        let is_told = matches!(code, ResponseError::InvalidTxnState | ResponseError::NotEnoughReplicas);
        AppendError { is_told, ..AppendError::new(code, message) }
    }

    /// The bytes could not be counted: the whole request fails.
    pub(super) fn of_request(self) -> AppendError {
        AppendError { reach: Reach::Request, is_told: true, ..self }
    }

    /// The text of the Produce reply: brokers send one only when they name records, refuse the whole request, or have asked
    /// the coordinator.
    pub fn client_message(&self) -> Option<&str> {
        let is_told = self.is_told || !self.record_errors.is_empty();
        is_told.then_some(self.message.as_str())
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

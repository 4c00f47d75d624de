//! A produced batch in another codec, because the topic's `compression.type` says so
//! (`LogValidator.buildRecordsAndAssignOffsets`): records are numbered anew, unknown attribute bits are lost.

use bytes::Bytes;

use super::contents::{Lengths, for_each_record};
use super::error::AppendError;
use crate::record::{
    Attributes, BatchBuilder, BatchHeader, BatchOptions, Codec, Error, ProducerIdentity, TimestampType,
};

/// The batch in `codec`; `records` is what follows its header, decompressed. Its base offset is 0.
pub(super) fn convert(header: &BatchHeader, records: &[u8], codec: Codec) -> Result<Bytes, AppendError> {
    let mut builder = BatchBuilder::new(BatchOptions {
        attributes: Attributes(header.attributes.0 & Attributes::TRANSACTIONAL | codec.bits()),
        identity: ProducerIdentity {
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
        },
        ..BatchOptions::new(codec)
    });
    builder.reserve(records.len());
    let mut failed: Option<Error> = None;
    for_each_record(records, header.record_count, Lengths::Checked, |record| {
        let timestamp = match header.attributes.timestamp_type() {
            TimestampType::CreateTime => header.base_timestamp.wrapping_add(record.timestamp_delta),
            TimestampType::LogAppendTime => header.max_timestamp,
        };
        if failed.is_none() {
            failed = builder.push_body(timestamp, 0, record.body).err();
        }
    })?;
    match failed {
        None => builder.build().map_err(internal),
        Some(error) => Err(internal(error)),
    }
}

fn internal(error: Error) -> AppendError {
    AppendError::new(kafka_protocol::error::ResponseError::UnknownServerError, error.to_string())
}

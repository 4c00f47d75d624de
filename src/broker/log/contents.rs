//! The records inside a batch as a broker reads them when it validates: structure, not rules.
//!
//! Apart from the record room's codec because it must refuse exactly what a broker refuses and pass what one passes: a
//! length below −1 counts as null, offset deltas may be anything, and the records of a compressed batch are read without
//! a look at their lengths (`DefaultRecord.readFrom`, `readPartiallyFrom`).

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

use super::error::AppendError;
use crate::record::{Codec, Error, HEADER_BYTES, decompress, varint};

/// Whether a record's length field matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lengths {
    /// A record ends where its length says, and its fields must, too.
    Checked,
    /// A record ends where its fields do.
    Ignored,
}

/// One record, its bytes borrowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordView<'a> {
    pub(super) attributes: u8,
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i32,
    pub(super) key: Option<&'a [u8]>,
    /// Key, value and headers, as they are encoded.
    pub(super) body: &'a [u8],
    /// A length that should be −1 for null is below that.
    pub(super) odd_null: bool,
    /// The record's length is not that of its fields.
    pub(super) odd_length: bool,
}

/// The records section of a batch, decompressed.
pub(super) fn decompressed(batch: &Bytes, codec: Codec, bytes_max: usize) -> Result<Bytes, AppendError> {
    let section = batch.slice(HEADER_BYTES..);
    let unreadable = |message: String| AppendError::new(ResponseError::UnknownServerError, message);
    match codec {
        // Java's stream takes nothing for an empty stream.
        Codec::Zstd if section.is_empty() => return Ok(section),
        Codec::Lz4 if !lz4_frame_is_whole(&section) => {
            return Err(unreadable("the LZ4 frame has no end mark".to_string()));
        }
        _ => {}
    }
    decompress(codec, &section, bytes_max).map_err(|error| match error {
        Error::TooLarge { .. } => AppendError::new(ResponseError::MessageTooLarge, error.to_string()),
        _ => unreadable(error.to_string()),
    })
}

/// Whether blocks and end mark of an LZ4 frame are all there: Kafka's reader demands it.
fn lz4_frame_is_whole(frame: &[u8]) -> bool {
    const BLOCK_CHECKSUM: u8 = 0x10;
    const CONTENT_SIZE: u8 = 0x08;
    const UNCOMPRESSED: u32 = 1 << 31;
    let Some(&flags) = frame.get(4) else { return false };
    let mut at = if flags & CONTENT_SIZE == 0 { 7 } else { 15 };
    let checksum_bytes = if flags & BLOCK_CHECKSUM == 0 { 0 } else { 4 };
    while let Some(size) = frame.get(at..).and_then(|rest| rest.first_chunk()) {
        match u32::from_le_bytes(*size) & !UNCOMPRESSED {
            0 => return true,
            block_bytes => at += 4 + block_bytes as usize + checksum_bytes,
        }
    }
    false
}

/// Shows every record to `visit`, in order. `body` is what follows the batch header, decompressed.
pub(super) fn for_each_record<'a>(
    mut body: &'a [u8],
    record_count: i32,
    lengths: Lengths,
    mut visit: impl FnMut(RecordView<'a>),
) -> Result<(), AppendError> {
    for _ in 0..record_count {
        let length = varint::take_varint(&mut body, "record length").map_err(length_error)?;
        visit(match lengths {
            Lengths::Checked => framed(&mut body, length)?,
            Lengths::Ignored => {
                let before = body.len();
                let record = fields(&mut body)?;
                let odd_length = before - body.len() != usize::try_from(length).unwrap_or(usize::MAX);
                RecordView { odd_length, ..record }
            }
        });
    }
    if body.is_empty() {
        Ok(())
    } else {
        Err(AppendError::invalid_record("Incorrect declared batch size, records still remaining in file"))
    }
}

fn framed<'a>(body: &mut &'a [u8], length: i32) -> Result<RecordView<'a>, AppendError> {
    let Some((mut rest, after)) = usize::try_from(length).ok().and_then(|at| body.split_at_checked(at))
    else {
        return Err(premature());
    };
    *body = after;
    let record = fields(&mut rest)?;
    if rest.is_empty() {
        return Ok(record);
    }
    let read = length as usize - rest.len();
    Err(AppendError::invalid_record(format!(
        "Invalid record size: expected to read {length} bytes in record payload, but instead read {read}"
    )))
}

fn premature() -> AppendError {
    AppendError::invalid_record("Incorrect declared batch size, premature EOF reached")
}

/// Java reads a record's length outside of what it catches.
fn length_error(error: Error) -> AppendError {
    match error {
        Error::Truncated { .. } => premature(),
        _ => AppendError::new(ResponseError::UnknownServerError, error.to_string()),
    }
}

fn structure() -> AppendError {
    AppendError::invalid_record("Found invalid record structure")
}

fn fields<'a>(rest: &mut &'a [u8]) -> Result<RecordView<'a>, AppendError> {
    let (&attributes, after) = rest.split_first().ok_or_else(structure)?;
    *rest = after;
    let timestamp_delta = varint::take_varlong(rest, "timestamp delta").map_err(|_| structure())?;
    let offset_delta = varint::take_varint(rest, "offset delta").map_err(|_| structure())?;
    let body = *rest;
    let (key, odd_key) = nullable(rest)?;
    let (_, odd_value) = nullable(rest)?;
    let odd_header = headers(rest)?;
    let body = &body[..body.len() - rest.len()];
    let odd_null = odd_key || odd_value || odd_header;
    Ok(RecordView { attributes, timestamp_delta, offset_delta, key, body, odd_null, odd_length: false })
}

fn headers(rest: &mut &[u8]) -> Result<bool, AppendError> {
    let count = varint::take_varint(rest, "header count").map_err(|_| structure())?;
    if count < 0 {
        return Err(AppendError::invalid_record(format!("Found invalid number of record headers {count}")));
    }
    let mut odd = false;
    for _ in 0..count {
        let (name, _) = nullable(rest)?;
        if name.is_none() {
            return Err(AppendError::invalid_record("Invalid negative header key size"));
        }
        odd |= nullable(rest)?.1;
    }
    Ok(odd)
}

/// Bytes behind their length, `None` for a negative one, and whether that one is not −1.
fn nullable<'a>(rest: &mut &'a [u8]) -> Result<(Option<&'a [u8]>, bool), AppendError> {
    let length = varint::take_varint(rest, "length").map_err(|_| structure())?;
    let Ok(length_bytes) = usize::try_from(length) else { return Ok((None, length < -1)) };
    let (bytes, after) = rest.split_at_checked(length_bytes).ok_or_else(structure)?;
    *rest = after;
    Ok((Some(bytes), false))
}

//! The records inside a batch as a broker reads them when it validates (`DefaultRecord.readFrom`): structure, not rules.
//!
//! Apart from the record room's codec because it must refuse exactly what a broker refuses and pass what one passes:
//! a length below −1 counts as null, offset deltas may be anything.

use super::error::AppendError;
use crate::record::varint;

/// One record, its bytes borrowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordView<'a> {
    pub(super) attributes: u8,
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i32,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    /// The headers with their count, as they are encoded.
    pub(super) headers: &'a [u8],
    /// A length that should be −1 for null is below that.
    pub(super) odd_null: bool,
}

/// Shows every record to `visit`, in order. `body` is what follows the batch header, decompressed.
pub(super) fn for_each_record<'a>(
    mut body: &'a [u8],
    record_count: i32,
    mut visit: impl FnMut(RecordView<'a>),
) -> Result<(), AppendError> {
    for _ in 0..record_count {
        let length = varint::take_varint(&mut body, "record length").map_err(|_| premature())?;
        let Some((record, rest)) = usize::try_from(length).ok().and_then(|at| body.split_at_checked(at))
        else {
            return Err(premature());
        };
        body = rest;
        visit(read_record(record)?);
    }
    if body.is_empty() {
        Ok(())
    } else {
        Err(AppendError::invalid_record("Incorrect declared batch size, records still remaining in file"))
    }
}

fn premature() -> AppendError {
    AppendError::invalid_record("Incorrect declared batch size, premature EOF reached")
}

fn structure() -> AppendError {
    AppendError::invalid_record("Found invalid record structure")
}

fn read_record(record: &[u8]) -> Result<RecordView<'_>, AppendError> {
    let (&attributes, mut rest) = record.split_first().ok_or_else(structure)?;
    let timestamp_delta = varint::take_varlong(&mut rest, "timestamp delta").map_err(|_| structure())?;
    let offset_delta = varint::take_varint(&mut rest, "offset delta").map_err(|_| structure())?;
    let (key, odd_key) = nullable(&mut rest)?;
    let (value, odd_value) = nullable(&mut rest)?;
    let headers = rest;
    let count = varint::take_varint(&mut rest, "header count").map_err(|_| structure())?;
    if count < 0 {
        return Err(AppendError::invalid_record(format!("Found invalid number of record headers {count}")));
    }
    let mut odd_header = false;
    for _ in 0..count {
        let (name, _) = nullable(&mut rest)?;
        if name.is_none() {
            return Err(AppendError::invalid_record("Invalid negative header key size"));
        }
        odd_header |= nullable(&mut rest)?.1;
    }
    if !rest.is_empty() {
        let read = record.len() - rest.len();
        return Err(AppendError::invalid_record(format!(
            "Invalid record size: expected to read {} bytes in record payload, but instead read {read}",
            record.len()
        )));
    }
    let odd_null = odd_key || odd_value || odd_header;
    Ok(RecordView { attributes, timestamp_delta, offset_delta, key, value, headers, odd_null })
}

/// Bytes behind their length, `None` for a negative one, and whether that one is not −1.
fn nullable<'a>(rest: &mut &'a [u8]) -> Result<(Option<&'a [u8]>, bool), AppendError> {
    let length = varint::take_varint(rest, "length").map_err(|_| structure())?;
    let Ok(length_bytes) = usize::try_from(length) else { return Ok((None, length < -1)) };
    let (bytes, after) = rest.split_at_checked(length_bytes).ok_or_else(structure)?;
    *rest = after;
    Ok((Some(bytes), false))
}

//! Fields of the records that are kept in Kafka: numbers in network order, texts behind their length.
//!
//! MirrorMaker's records and our own are made of the same fields (`Struct` of Kafka's protocol types); here each is read with
//! a bound and written once.

use std::sync::Arc;

use bytes::{Buf, BufMut, BytesMut};
use uuid::Uuid;

/// Bytes that are no such field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// It ends too early.
    #[error("it ends before its {0}")]
    Truncated(&'static str),
    /// A field holds what it cannot hold.
    #[error("its {0} is no valid value")]
    Invalid(&'static str),
}

/// Aliases, topics, groups and reasons are far shorter than a STRING can be; what is longer all the same is cut at a
/// character.
pub(super) fn put_string(out: &mut BytesMut, text: &str) {
    let mut end = text.len().min(i16::MAX as usize);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.put_i16(end as i16);
    out.put_slice(&text.as_bytes()[..end]);
}

pub(super) fn get_i8(bytes: &mut &[u8], field: &'static str) -> Result<i8, FieldError> {
    bytes.try_get_i8().map_err(|_| FieldError::Truncated(field))
}

pub(super) fn get_i16(bytes: &mut &[u8], field: &'static str) -> Result<i16, FieldError> {
    bytes.try_get_i16().map_err(|_| FieldError::Truncated(field))
}

pub(super) fn get_i32(bytes: &mut &[u8], field: &'static str) -> Result<i32, FieldError> {
    bytes.try_get_i32().map_err(|_| FieldError::Truncated(field))
}

pub(super) fn get_i64(bytes: &mut &[u8], field: &'static str) -> Result<i64, FieldError> {
    bytes.try_get_i64().map_err(|_| FieldError::Truncated(field))
}

pub(super) fn get_offset(bytes: &mut &[u8], field: &'static str) -> Result<i64, FieldError> {
    let offset = get_i64(bytes, field)?;
    if offset < 0 { Err(FieldError::Invalid(field)) } else { Ok(offset) }
}

pub(super) fn get_uuid(bytes: &mut &[u8], field: &'static str) -> Result<Uuid, FieldError> {
    bytes.try_get_u128().map(Uuid::from_u128).map_err(|_| FieldError::Truncated(field))
}

pub(super) fn get_string(bytes: &mut &[u8], field: &'static str) -> Result<Arc<str>, FieldError> {
    let length = usize::try_from(get_i16(bytes, field)?).map_err(|_| FieldError::Invalid(field))?;
    let (text, rest) = bytes.split_at_checked(length).ok_or(FieldError::Truncated(field))?;
    *bytes = rest;
    std::str::from_utf8(text).map(Arc::from).map_err(|_| FieldError::Invalid(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_a_character_and_read_back() {
        for (text, length) in [("", 0), ("caf\u{e9}", 5), (&*"\u{e9}".repeat(20_000), 32_766)] {
            let mut out = BytesMut::new();
            put_string(&mut out, text);
            let read = get_string(&mut &out[..], "text").unwrap();
            assert_eq!((read.len(), text.starts_with(&*read)), (length, true));
        }
        for (bytes, error) in [
            (&[0][..], FieldError::Truncated("text")),
            (&[0, 2, b'a'], FieldError::Truncated("text")),
            (&[0xff, 0xff], FieldError::Invalid("text")),
            (&[0, 1, 0xff], FieldError::Invalid("text")),
        ] {
            assert_eq!(get_string(&mut &bytes[..], "text"), Err(error), "{bytes:?}");
        }
    }
}

//! Records as tests write them and as stock clients give them back.

use crate::{HarnessError, Result};
use serde_json::{Value, json};

/// A header of a record. Stock clients take only text as key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub key: String,
    pub value: Option<Vec<u8>>,
}

/// A record to be produced. What is `None` is null, or left to the client for `partition` and `timestamp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestRecord {
    pub partition: Option<i32>,
    /// Milliseconds since 1970.
    pub timestamp: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<Header>,
}

impl TestRecord {
    /// A record with a key and a value.
    pub fn new(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> TestRecord {
        TestRecord {
            key: Some(key.as_ref().to_vec()),
            value: Some(value.as_ref().to_vec()),
            ..TestRecord::default()
        }
    }

    /// A record with a null value.
    pub fn tombstone(key: impl AsRef<[u8]>) -> TestRecord {
        TestRecord { key: Some(key.as_ref().to_vec()), ..TestRecord::default() }
    }

    /// Sets the partition.
    pub fn to_partition(mut self, partition: i32) -> TestRecord {
        self.partition = Some(partition);
        self
    }

    /// Sets the timestamp, milliseconds since 1970.
    pub fn at(mut self, timestamp: i64) -> TestRecord {
        self.timestamp = Some(timestamp);
        self
    }

    /// Adds a header.
    pub fn header(mut self, key: &str, value: Option<&[u8]>) -> TestRecord {
        self.headers.push(Header { key: key.to_owned(), value: value.map(<[u8]>::to_vec) });
        self
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "partition": self.partition,
            "timestamp": self.timestamp,
            "key": self.key.as_deref().map(hex),
            "value": self.value.as_deref().map(hex),
            "headers": headers_to_json(&self.headers),
        })
    }
}

/// What the timestamp of a stored record means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
    /// Magic 0 has none.
    NoTimestampType,
}

/// A record as a stock consumer gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRecord {
    pub partition: i32,
    pub offset: i64,
    pub timestamp: i64,
    pub timestamp_type: TimestampType,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<Header>,
}

impl ReadRecord {
    /// The value as text, for messages and for records that tests number by their value.
    pub fn value_text(&self) -> String {
        self.value.as_deref().map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
    }

    pub(crate) fn from_json(value: &Value) -> Result<ReadRecord> {
        let timestamp_type = match value["timestamp_type"].as_str() {
            Some("CreateTime") => TimestampType::CreateTime,
            Some("LogAppendTime") => TimestampType::LogAppendTime,
            Some("NoTimestampType") => TimestampType::NoTimestampType,
            _ => return Err(malformed("the timestamp type of a record", value)),
        };
        let number = |name: &str| value[name].as_i64().ok_or_else(|| malformed(name, value));
        Ok(ReadRecord {
            partition: number("partition")? as i32,
            offset: number("offset")?,
            timestamp: number("timestamp")?,
            timestamp_type,
            key: bytes_from_json(&value["key"])?,
            value: bytes_from_json(&value["value"])?,
            headers: headers_from_json(&value["headers"])?,
        })
    }
}

pub(crate) fn headers_to_json(headers: &[Header]) -> Value {
    headers.iter().map(|header| json!([header.key, header.value.as_deref().map(hex)])).collect()
}

fn headers_from_json(value: &Value) -> Result<Vec<Header>> {
    let list = value.as_array().ok_or_else(|| malformed("headers", value))?;
    list.iter()
        .map(|pair| {
            let key = pair[0].as_str().ok_or_else(|| malformed("a header", pair))?.to_owned();
            Ok(Header { key, value: bytes_from_json(&pair[1])? })
        })
        .collect()
}

pub(crate) fn bytes_from_json(value: &Value) -> Result<Option<Vec<u8>>> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => unhex(text).map(Some).ok_or_else(|| malformed("bytes in hexadecimal", value)),
        _ => Err(malformed("bytes in hexadecimal", value)),
    }
}

pub(crate) fn malformed(what: &str, value: &Value) -> HarnessError {
    let text: String = value.to_string().chars().take(300).collect();
    HarnessError::Malformed { what: what.to_owned(), detail: text }
}

/// Bytes in hexadecimal, the form in which they travel to and from client processes.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_the_way_through_hexadecimal() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&bytes)).unwrap(), bytes);
        assert_eq!(unhex("abc"), None);
        assert_eq!(unhex("zz"), None);
        assert_eq!(bytes_from_json(&json!(null)).unwrap(), None);
        assert_eq!(bytes_from_json(&json!("")).unwrap(), Some(vec![]));
    }
}

//! The records of MirrorMaker's offset syncs, checkpoints and heartbeats, byte for byte.
//!
//! They are written in Kafka's primitive types, big-endian (`OffsetSync.java`, `Checkpoint.java`, `Heartbeat.java`):
//!
//! ```text
//! offset sync  key    topic STRING (source name) | partition INT32
//!              value  upstream INT64 | downstream INT64                                    (no version)
//! checkpoint   key    group STRING | topic STRING (name on the target) | partition INT32
//!              value  version INT16 = 0 | upstream INT64 | downstream INT64 | metadata STRING
//! heartbeat    key    source alias STRING | target alias STRING
//!              value  version INT16 = 0 | timestamp INT64 (ms)
//! ```
//! Readers of 4.4 and later fail for good on any other version, so none is ever written. All of them go to partition 0.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::mirror::fields::{FieldError, get_i16, get_i32, get_i64, get_string, put_string};
use crate::mirror::state::TopicPartition;

/// The version of checkpoints and heartbeats.
const VERSION: i16 = 0;

/// Source record `upstream` is target record `downstream`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetSync {
    /// The source partition.
    pub source: TopicPartition,
    /// Source offset.
    pub upstream: i64,
    /// Target offset.
    pub downstream: i64,
}

/// Where a group stands in one partition, on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The group.
    pub group: Arc<str>,
    /// The partition by its name on the target.
    pub target: TopicPartition,
    /// Its committed offset at the source.
    pub upstream: i64,
    /// Where it goes on on the target.
    pub downstream: i64,
    /// What the group stored with its offset.
    pub metadata: Arc<str>,
}

/// A sign of life of a pair of clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Alias of the source.
    pub source: Arc<str>,
    /// Alias of the target, where it is written.
    pub target: Arc<str>,
    /// When, in ms since the epoch.
    pub timestamp_ms: i64,
}

/// Bytes that are no such record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A field is none.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Of a version that nobody has defined yet.
    #[error("it has version {0}")]
    Version(i16),
}

impl OffsetSync {
    /// The bytes of its key.
    pub fn key(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(6 + self.source.topic.len());
        put_string(&mut out, &self.source.topic);
        out.put_i32(self.source.partition);
        out.freeze()
    }

    /// The bytes of its value.
    pub fn value(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(16);
        out.put_i64(self.upstream);
        out.put_i64(self.downstream);
        out.freeze()
    }

    /// Reads a record of the topic.
    ///
    /// # Errors
    /// When the bytes are no offset sync.
    pub fn decode(mut key: &[u8], mut value: &[u8]) -> Result<OffsetSync, FormatError> {
        let source = get_partition(&mut key)?;
        let upstream = get_i64(&mut value, "upstream offset")?;
        let downstream = get_i64(&mut value, "downstream offset")?;
        Ok(OffsetSync { source, upstream, downstream })
    }
}

impl Checkpoint {
    /// The bytes of its key.
    pub fn key(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(8 + self.group.len() + self.target.topic.len());
        put_string(&mut out, &self.group);
        put_string(&mut out, &self.target.topic);
        out.put_i32(self.target.partition);
        out.freeze()
    }

    /// The bytes of its value.
    pub fn value(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(20 + self.metadata.len());
        out.put_i16(VERSION);
        out.put_i64(self.upstream);
        out.put_i64(self.downstream);
        put_string(&mut out, &self.metadata);
        out.freeze()
    }

    /// Reads a record of the topic.
    ///
    /// # Errors
    /// When the bytes are no checkpoint of version 0.
    pub fn decode(mut key: &[u8], mut value: &[u8]) -> Result<Checkpoint, FormatError> {
        get_version(&mut value)?;
        let group = get_string(&mut key, "group")?;
        let target = get_partition(&mut key)?;
        let upstream = get_i64(&mut value, "upstream offset")?;
        let downstream = get_i64(&mut value, "downstream offset")?;
        let metadata = get_string(&mut value, "metadata")?;
        Ok(Checkpoint { group, target, upstream, downstream, metadata })
    }
}

impl Heartbeat {
    /// The bytes of its key.
    pub fn key(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(4 + self.source.len() + self.target.len());
        put_string(&mut out, &self.source);
        put_string(&mut out, &self.target);
        out.freeze()
    }

    /// The bytes of its value.
    pub fn value(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(10);
        out.put_i16(VERSION);
        out.put_i64(self.timestamp_ms);
        out.freeze()
    }

    /// Reads a record of the topic.
    ///
    /// # Errors
    /// When the bytes are no heartbeat of version 0.
    pub fn decode(mut key: &[u8], mut value: &[u8]) -> Result<Heartbeat, FormatError> {
        get_version(&mut value)?;
        let timestamp_ms = get_i64(&mut value, "timestamp")?;
        let source = get_string(&mut key, "source alias")?;
        Ok(Heartbeat { source, target: get_string(&mut key, "target alias")?, timestamp_ms })
    }
}

fn get_version(bytes: &mut &[u8]) -> Result<(), FormatError> {
    match get_i16(bytes, "version")? {
        VERSION => Ok(()),
        version => Err(FormatError::Version(version)),
    }
}

fn get_partition(bytes: &mut &[u8]) -> Result<TopicPartition, FieldError> {
    let topic = get_string(bytes, "topic")?;
    let partition = get_i32(bytes, "partition")?;
    Ok(TopicPartition { topic, partition })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn hex(value: &Value) -> Vec<u8> {
        let text = value.as_str().unwrap().as_bytes();
        text.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    }

    fn text(value: &Value) -> Arc<str> {
        Arc::from(value.as_str().unwrap())
    }

    fn number(value: &Value) -> i64 {
        value.as_i64().unwrap()
    }

    /// `protocol-tests/vectors/java/mm2_records.json` was recorded from connect-mirror 4.3.1 by `Mm2RecordVectors.java`
    /// beside it.
    #[test]
    fn the_bytes_are_mirror_makers() {
        let vectors = include_str!("../../../protocol-tests/vectors/java/mm2_records.json");
        let vectors: Value = serde_json::from_str(vectors).unwrap();
        for row in vectors["syncs"].as_array().unwrap() {
            let source = TopicPartition::new(text(&row[0]), number(&row[1]) as i32);
            let sync = OffsetSync { source, upstream: number(&row[2]), downstream: number(&row[3]) };
            assert_eq!(
                (sync.key().to_vec(), sync.value().to_vec()),
                (hex(&row[4]), hex(&row[5])),
                "{sync:?}"
            );
            assert_eq!(OffsetSync::decode(&sync.key(), &sync.value()), Ok(sync));
        }
        for row in vectors["checkpoints"].as_array().unwrap() {
            let checkpoint = Checkpoint {
                group: text(&row[0]),
                target: TopicPartition::new(text(&row[1]), number(&row[2]) as i32),
                upstream: number(&row[3]),
                downstream: number(&row[4]),
                metadata: text(&row[5]),
            };
            let bytes = (checkpoint.key().to_vec(), checkpoint.value().to_vec());
            assert_eq!(bytes, (hex(&row[6]), hex(&row[7])), "{checkpoint:?}");
            assert_eq!(Checkpoint::decode(&checkpoint.key(), &checkpoint.value()), Ok(checkpoint));
        }
        for row in vectors["heartbeats"].as_array().unwrap() {
            let beat =
                Heartbeat { source: text(&row[0]), target: text(&row[1]), timestamp_ms: number(&row[2]) };
            assert_eq!((beat.key().to_vec(), beat.value().to_vec()), (hex(&row[3]), hex(&row[4])));
            assert_eq!(Heartbeat::decode(&beat.key(), &beat.value()), Ok(beat));
        }
    }

    #[test]
    fn other_versions_are_not_read() {
        let key = b"\0\x01g\0\x01t\0\0\0\0";
        assert_eq!(Checkpoint::decode(key, &[0, 1]), Err(FormatError::Version(1)));
        assert_eq!(Heartbeat::decode(key, &[0, 2, 0]), Err(FormatError::Version(2)));
        assert_eq!(Checkpoint::decode(key, &[0]), Err(FieldError::Truncated("version").into()));
        assert_eq!(OffsetSync::decode(&[0xff, 0xff], &[]), Err(FieldError::Invalid("topic").into()));
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(key: Vec<u8>, value: Vec<u8>) {
            let _ = OffsetSync::decode(&key, &value);
            let _ = Heartbeat::decode(&key, &value);
            if let Ok(checkpoint) = Checkpoint::decode(&key, &value) {
                prop_assert_eq!(Checkpoint::decode(&checkpoint.key(), &checkpoint.value()), Ok(checkpoint));
            }
        }
    }
}

//! What a topic's configuration means to its log. Names and defaults are Kafka's (`LogConfig.java`); only what this log
//! acts on is kept. Unknown keys belong to whoever serves DescribeConfigs.

use crate::record::{Codec, TimestampType};

/// `cleanup.policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanupPolicy {
    /// Old records go by age and size.
    Delete,
    /// The last record per key stays.
    Compact,
    /// Both.
    CompactDelete,
}

impl CleanupPolicy {
    /// Whether keys are demanded and compaction works.
    pub fn compacts(self) -> bool {
        self != CleanupPolicy::Delete
    }

    /// Whether retention by age and size works.
    pub fn deletes(self) -> bool {
        self != CleanupPolicy::Compact
    }
}

/// `compression.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As the producer sent it.
    Producer,
    /// One codec for the whole topic; `uncompressed` is [`Codec::None`].
    Topic(Codec),
}

/// Whether rules that real brokers do not check are watched, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// As a real broker.
    AsBroker,
    /// What a real broker lets pass is accepted and kept for `PartitionLog::violations`.
    Report,
}

/// The settings of one partition's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// `cleanup.policy`.
    pub cleanup_policy: CleanupPolicy,
    /// `max.message.bytes`: of a whole batch as it is stored, its 12-byte prefix included.
    pub message_bytes_max: usize,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`: how far a timestamp may lie in the past.
    pub timestamp_before_ms_max: i64,
    /// `message.timestamp.after.max.ms`: how far a timestamp may lie in the future.
    pub timestamp_after_ms_max: i64,
    /// `compression.type`.
    pub compression: Compression,
    /// `retention.ms`; −1 keeps for ever.
    pub retention_ms: i64,
    /// `retention.bytes`; −1 keeps everything.
    pub retention_bytes: i64,
    /// `delete.retention.ms`: how long a compacted log keeps tombstones and markers.
    pub delete_retention_ms: i64,
    /// `segment.bytes`: no batch may be larger.
    pub segment_bytes: usize,
    /// Ours: bytes of batches that the log may hold; beyond it appends fail, so that nobody's memory fills up.
    pub log_bytes_max: usize,
    /// Ours: decompressed bytes of one batch at most.
    pub decompressed_bytes_max: usize,
    /// Ours: whether to watch what brokers do not.
    pub strictness: Strictness,
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        LogSettings {
            cleanup_policy: CleanupPolicy::Delete,
            message_bytes_max: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_ms_max: i64::MAX,
            timestamp_after_ms_max: 3_600_000,
            compression: Compression::Producer,
            retention_ms: 604_800_000,
            retention_bytes: -1,
            delete_retention_ms: 86_400_000,
            segment_bytes: 1_073_741_824,
            log_bytes_max: 1_073_741_824,
            decompressed_bytes_max: 134_217_728,
            strictness: Strictness::AsBroker,
        }
    }
}

/// A value that its key does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Invalid value {value} for configuration {key}: {rule}")]
pub struct InvalidConfig {
    /// The topic configuration's name.
    pub key: String,
    /// What was given.
    pub value: String,
    /// What it breaks.
    pub rule: &'static str,
}

impl LogSettings {
    /// The settings that a topic's configuration gives over these. Keys that the log does not act on are passed over.
    pub fn with_configs<'a>(
        mut self,
        configs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<LogSettings, InvalidConfig> {
        for (key, value) in configs {
            self.set(key, value.trim())?;
        }
        Ok(self)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), InvalidConfig> {
        let invalid = |rule| InvalidConfig { key: key.to_string(), value: value.to_string(), rule };
        let number = |least: i64| {
            let number = value.parse::<i64>().map_err(|_| invalid("Not a number"))?;
            if number < least { Err(invalid("Value must be at least its minimum")) } else { Ok(number) }
        };
        let bytes = |least: i64| number(least).map(|bytes| bytes as usize);
        match key {
            "cleanup.policy" => {
                self.cleanup_policy =
                    cleanup_policy(value).ok_or_else(|| invalid("is none of compact, delete"))?;
            }
            "message.timestamp.type" => {
                self.timestamp_type = match value {
                    "CreateTime" => TimestampType::CreateTime,
                    "LogAppendTime" => TimestampType::LogAppendTime,
                    _ => return Err(invalid("is none of CreateTime, LogAppendTime")),
                };
            }
            "compression.type" => {
                self.compression = compression(value)
                    .ok_or_else(|| invalid("is none of uncompressed, zstd, lz4, snappy, gzip, producer"))?;
            }
            "max.message.bytes" => self.message_bytes_max = bytes(0)?,
            "message.timestamp.before.max.ms" => self.timestamp_before_ms_max = number(0)?,
            "message.timestamp.after.max.ms" => self.timestamp_after_ms_max = number(0)?,
            "retention.ms" => self.retention_ms = number(-1)?,
            "retention.bytes" => self.retention_bytes = number(-1)?,
            "delete.retention.ms" => self.delete_retention_ms = number(0)?,
            "segment.bytes" => self.segment_bytes = bytes(14)?,
            _ => {}
        }
        Ok(())
    }
}

fn cleanup_policy(value: &str) -> Option<CleanupPolicy> {
    let (mut compact, mut delete) = (false, false);
    for policy in value.split(',').map(str::trim) {
        match policy {
            "compact" => compact = true,
            "delete" => delete = true,
            _ => return None,
        }
    }
    Some(match (compact, delete) {
        (true, true) => CleanupPolicy::CompactDelete,
        (true, false) => CleanupPolicy::Compact,
        _ => CleanupPolicy::Delete,
    })
}

fn compression(value: &str) -> Option<Compression> {
    match value {
        "producer" => Some(Compression::Producer),
        "uncompressed" => Some(Compression::Topic(Codec::None)),
        name => [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd]
            .into_iter()
            .find(|codec| codec.name() == name)
            .map(Compression::Topic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_configs_become_settings() {
        let settings = LogSettings::default()
            .with_configs([
                ("cleanup.policy", "compact, delete"),
                ("max.message.bytes", "2000"),
                ("message.timestamp.type", "LogAppendTime"),
                ("compression.type", "uncompressed"),
                ("retention.ms", "-1"),
                ("min.insync.replicas", "2"),
            ])
            .unwrap();
        assert_eq!(settings.cleanup_policy, CleanupPolicy::CompactDelete);
        assert_eq!((settings.message_bytes_max, settings.retention_ms), (2000, -1));
        assert_eq!(settings.timestamp_type, TimestampType::LogAppendTime);
        assert_eq!(settings.compression, Compression::Topic(Codec::None));
    }

    #[test]
    fn wrong_values_name_their_key() {
        for (key, value) in [
            ("cleanup.policy", "shred"),
            ("max.message.bytes", "-1"),
            ("retention.ms", "soon"),
            ("compression.type", "none"),
        ] {
            let error = LogSettings::default().with_configs([(key, value)]).unwrap_err();
            assert_eq!((error.key.as_str(), error.value.as_str()), (key, value));
        }
    }
}

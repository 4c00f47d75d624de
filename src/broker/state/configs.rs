//! The configs of topics: keys, types, defaults, what a value may be.
//!
//! Keys and defaults are those of `TopicConfig`/`LogConfig` of Kafka 4.3. Where a broker's own config is the default of
//! a topic's, its name is kept for the synonyms of DescribeConfigs.

use std::collections::BTreeMap;

use super::ClusterState;
use crate::broker::log::{LogSettings, Strictness};

/// `ConfigType` of DescribeConfigs, by its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Boolean = 1,
    String = 2,
    Int = 3,
    Long = 5,
    Double = 6,
    List = 7,
}

/// `ConfigSource` of DescribeConfigs, by its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Topic = 1,
    DynamicBroker = 2,
    StaticBroker = 4,
    Default = 5,
}

/// Which values a key takes.
#[derive(Clone, Copy, Debug)]
enum Domain {
    Any,
    Boolean,
    /// A whole number not below this.
    AtLeast(i64),
    /// A fraction from 0 to 1.
    Ratio,
    OneOf(&'static [&'static str]),
    ListOf(&'static [&'static str]),
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Type,
    pub(crate) default: &'static str,
    /// The broker's config that topics take their default from.
    pub(crate) broker_name: &'static str,
    domain: Domain,
}

const fn key(
    name: &'static str,
    kind: Type,
    default: &'static str,
    broker_name: &'static str,
    domain: Domain,
) -> Key {
    Key { name, kind, default, broker_name, domain }
}

use Domain::{Any, AtLeast, ListOf, OneOf, Ratio};
use Type::{Boolean, Double, Int, List, Long, String as Text};

const LONG_MAX: &str = "9223372036854775807";
const CODECS: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];

pub(crate) const KEYS: &[Key] = &[
    key("cleanup.policy", List, "delete", "log.cleanup.policy", ListOf(&["compact", "delete"])),
    key("compression.gzip.level", Int, "-1", "compression.gzip.level", AtLeast(-1)),
    key("compression.lz4.level", Int, "9", "compression.lz4.level", AtLeast(1)),
    key("compression.type", Text, "producer", "compression.type", OneOf(CODECS)),
    key("compression.zstd.level", Int, "3", "compression.zstd.level", AtLeast(-131_072)),
    key("delete.retention.ms", Long, "86400000", "log.cleaner.delete.retention.ms", AtLeast(0)),
    key("file.delete.delay.ms", Long, "60000", "log.segment.delete.delay.ms", AtLeast(0)),
    key("flush.messages", Long, LONG_MAX, "log.flush.interval.messages", AtLeast(1)),
    key("flush.ms", Long, LONG_MAX, "log.flush.interval.ms", AtLeast(0)),
    key("follower.replication.throttled.replicas", List, "", "", Any),
    key("index.interval.bytes", Int, "4096", "log.index.interval.bytes", AtLeast(0)),
    key("leader.replication.throttled.replicas", List, "", "", Any),
    key("local.retention.bytes", Long, "-2", "log.local.retention.bytes", AtLeast(-2)),
    key("local.retention.ms", Long, "-2", "log.local.retention.ms", AtLeast(-2)),
    key("max.compaction.lag.ms", Long, LONG_MAX, "log.cleaner.max.compaction.lag.ms", AtLeast(1)),
    key("max.message.bytes", Int, "1048588", "message.max.bytes", AtLeast(0)),
    key("message.timestamp.after.max.ms", Long, "3600000", "log.message.timestamp.after.max.ms", AtLeast(0)),
    key("message.timestamp.before.max.ms", Long, LONG_MAX, "log.message.timestamp.before.max.ms", AtLeast(0)),
    key(
        "message.timestamp.type",
        Text,
        "CreateTime",
        "log.message.timestamp.type",
        OneOf(&["CreateTime", "LogAppendTime"]),
    ),
    key("min.cleanable.dirty.ratio", Double, "0.5", "log.cleaner.min.cleanable.ratio", Ratio),
    key("min.compaction.lag.ms", Long, "0", "log.cleaner.min.compaction.lag.ms", AtLeast(0)),
    key("min.insync.replicas", Int, "1", "min.insync.replicas", AtLeast(1)),
    key("preallocate", Boolean, "false", "log.preallocate", Domain::Boolean),
    key("remote.log.copy.disable", Boolean, "false", "", Domain::Boolean),
    key("remote.log.delete.on.disable", Boolean, "false", "", Domain::Boolean),
    key("remote.storage.enable", Boolean, "false", "", Domain::Boolean),
    key("retention.bytes", Long, "-1", "log.retention.bytes", AtLeast(i64::MIN)),
    key("retention.ms", Long, "604800000", "log.retention.ms", AtLeast(-1)),
    key("segment.bytes", Int, "1073741824", "log.segment.bytes", AtLeast(14)),
    key("segment.index.bytes", Int, "10485760", "log.index.size.max.bytes", AtLeast(4)),
    key("segment.jitter.ms", Long, "0", "log.roll.jitter.ms", AtLeast(0)),
    key("segment.ms", Long, "604800000", "log.roll.ms", AtLeast(1)),
    key(
        "unclean.leader.election.enable",
        Boolean,
        "false",
        "unclean.leader.election.enable",
        Domain::Boolean,
    ),
];

/// Finds a key by its topic name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Says why a config is refused, in the broker's manner.
pub(crate) fn check(name: &str, value: &str) -> Result<(), String> {
    let key = find(name).ok_or_else(|| format!("Unknown topic config name: {name}"))?;
    if key.accepts(value) { Ok(()) } else { Err(format!("Invalid value {value} for configuration {name}")) }
}

impl Key {
    fn accepts(&self, value: &str) -> bool {
        let value = value.trim();
        let is_whole = match self.kind {
            Type::Int => value.parse::<i32>().is_ok(),
            Type::Long => value.parse::<i64>().is_ok(),
            _ => true,
        };
        is_whole
            && match self.domain {
                Domain::Any => true,
                Domain::Boolean => ["true", "false"].iter().any(|word| value.eq_ignore_ascii_case(word)),
                Domain::AtLeast(least) => value.parse::<i64>().is_ok_and(|number| number >= least),
                Domain::Ratio => value.parse::<f64>().is_ok_and(|ratio| (0.0..=1.0).contains(&ratio)),
                Domain::OneOf(words) => words.contains(&value),
                Domain::ListOf(words) => value.split(',').all(|word| words.contains(&word.trim())),
            }
    }
}

/// What was set for one topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopicConfigs {
    pub(crate) set: BTreeMap<String, String>,
}

impl ClusterState {
    /// The value in force: set for the topic, for the broker, or Kafka's default.
    pub(super) fn topic_value(&self, set: &BTreeMap<String, String>, key: &Key) -> (String, Source) {
        if let Some(value) = set.get(key.name) {
            return (value.clone(), Source::Topic);
        }
        if let Some(value) = self.broker_configs.get(key.broker_name) {
            return (value.clone(), Source::DynamicBroker);
        }
        match self.settings.topic_defaults.get(key.name) {
            Some(value) => (value.clone(), Source::StaticBroker),
            None => (key.default.to_owned(), Source::Default),
        }
    }

    /// A whole number of a topic; the default where the value is none.
    pub(super) fn topic_number(&self, topic: &str, name: &str) -> i64 {
        let (Some(topic), Some(key)) = (self.topics.get(topic), find(name)) else { return 0 };
        let (value, _) = self.topic_value(&topic.configs.set, key);
        value.trim().parse().or_else(|_| key.default.parse()).unwrap_or_default()
    }

    /// What a topic's configs mean to its logs.
    pub(super) fn log_settings(&self, topic: &str) -> LogSettings {
        let Some(topic) = self.topics.get(topic) else { return LogSettings::default() };
        let values: Vec<_> =
            KEYS.iter().map(|key| (key.name, self.topic_value(&topic.configs.set, key).0)).collect();
        let pairs = values.iter().map(|(name, value)| (*name, value.as_str()));
        // Values were checked when they were set; defaults of the cluster's owner may be wrong and then count for nothing.
        LogSettings { strictness: Strictness::Report, ..LogSettings::default() }
            .with_configs(pairs)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_that_its_key_takes() {
        for key in KEYS.iter().filter(|key| !key.default.is_empty()) {
            assert!(key.accepts(key.default), "{}", key.name);
        }
    }

    #[test]
    fn wrong_names_and_values_are_refused() {
        for (name, value) in [
            ("retention.time", "1"),
            ("retention.ms", "soon"),
            ("max.message.bytes", "3000000000"),
            ("cleanup.policy", "compact,keep"),
            ("min.cleanable.dirty.ratio", "1.5"),
            ("message.timestamp.type", "createtime"),
        ] {
            assert!(check(name, value).is_err(), "{name}={value}");
        }
        assert_eq!(check("cleanup.policy", "compact, delete"), Ok(()));
    }
}

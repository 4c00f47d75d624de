//! Which settings a remote topic is created with, and how they follow the source later
//! (`MirrorSourceConnector.targetConfig`, KIP-894).
//!
//! The source's settings that are not default, can be set, are no secret, are no static setting of its brokers, and that
//! `config.properties.exclude` does not name. With `use.defaults.from=source` its defaults are set as well.

use std::collections::BTreeMap;

use crate::client::{ConfigChange, ConfigEntry, ConfigSource};
use crate::mirror::plan::TargetLimits;
use crate::mirror::{DefaultsFrom, FlowSettings, ReplicationFactor};

/// The settings that a remote topic gets at its creation.
pub fn remote_configs(settings: &FlowSettings, entries: &[ConfigEntry]) -> BTreeMap<String, String> {
    entries
        .iter()
        .filter(|entry| is_copied(settings, entry))
        .filter_map(|entry| Some((entry.name.clone(), entry.value.clone()?)))
        .collect()
}

fn is_copied(settings: &FlowSettings, entry: &ConfigEntry) -> bool {
    let default = entry.source == ConfigSource::Default;
    !entry.read_only
        && !entry.sensitive
        && entry.source != ConfigSource::StaticBroker
        && (!default || settings.use_defaults_from == DefaultsFrom::Source)
        && !settings.config_properties_exclude.matches(&entry.name)
}

/// What has to change on a remote topic so that it follows its source (`MirrorSourceConnector.incrementalAlterConfigs`): a
/// setting that is default at the source is taken away, unless `use.defaults.from=source`; every other is set. What
/// `config.properties.exclude` names is left alone, and so is what the source's brokers have in their files.
pub fn config_changes(
    settings: &FlowSettings,
    source: &[ConfigEntry],
    target: &[ConfigEntry],
) -> Vec<ConfigChange> {
    let there: BTreeMap<&str, &ConfigEntry> =
        target.iter().map(|entry| (entry.name.as_str(), entry)).collect();
    let mut changes = Vec::new();
    for entry in source {
        let follows = !entry.read_only
            && !entry.sensitive
            && entry.source != ConfigSource::StaticBroker
            && !settings.config_properties_exclude.matches(&entry.name);
        if !follows {
            continue;
        }
        let set_there = there.get(entry.name.as_str()).filter(|there| there.source == ConfigSource::Topic);
        let stays_default =
            entry.source == ConfigSource::Default && settings.use_defaults_from == DefaultsFrom::Target;
        match (&entry.value, set_there) {
            _ if stays_default => {
                changes.extend(set_there.map(|_| ConfigChange::Delete(entry.name.clone())));
            }
            (Some(value), Some(there)) if there.value.as_ref() == Some(value) => {}
            (Some(value), _) => changes.push(ConfigChange::Set(entry.name.clone(), value.clone())),
            (None, _) => {}
        }
    }
    changes
}

/// What a remote topic takes, by its settings.
pub fn target_limits(entries: &[ConfigEntry]) -> TargetLimits {
    let value = |name| entries.iter().find(|entry| entry.name == name)?.value.as_deref();
    let mut limits = TargetLimits::default();
    if let Some(bytes) = value("max.message.bytes").and_then(|text| text.parse().ok()) {
        limits.max_message_bytes = bytes;
    }
    limits
}

/// The replication factor of a topic that is created on a cluster with so many live brokers. One that the user named is
/// used as it is; a default is lowered to what can be had.
pub fn replication_factor(wanted: ReplicationFactor, live_brokers: usize) -> i16 {
    match wanted {
        ReplicationFactor::Named(factor) => factor,
        ReplicationFactor::Default(factor) => {
            factor.min(i16::try_from(live_brokers).unwrap_or(i16::MAX)).max(1)
        }
    }
}

/// The setting that a target refuses, by its words: other releases and managed clusters do not know or allow them all,
/// and one of them must not keep a topic from being created. `None` when the words name none of `configs`.
pub fn refused_config(configs: &BTreeMap<String, String>, message: &str) -> Option<String> {
    // The longest, because one name can be part of another.
    let named = configs.keys().filter(|name| contains_word(message, name));
    named.max_by_key(|name| name.len()).cloned()
}

fn contains_word(text: &str, word: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_' || c == '-';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].trim_end_matches('.').chars().next();
        !before.is_some_and(inside) && !after.is_some_and(inside)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::PatternList;

    fn entry(name: &str, value: &str, source: ConfigSource) -> ConfigEntry {
        ConfigEntry {
            name: name.to_owned(),
            value: Some(value.to_owned()),
            source,
            read_only: false,
            sensitive: false,
        }
    }

    /// Case 27: `min.insync.replicas` and what else the list names stays as the target has it.
    #[test]
    fn what_the_source_has_set_is_copied() {
        let entries = [
            entry("cleanup.policy", "compact", ConfigSource::Topic),
            entry("retention.ms", "5", ConfigSource::DynamicBroker),
            entry("segment.bytes", "7", ConfigSource::DynamicDefaultBroker),
            entry("max.message.bytes", "9", ConfigSource::StaticBroker),
            entry("compression.type", "producer", ConfigSource::Default),
            entry("min.insync.replicas", "2", ConfigSource::Topic),
            entry("follower.replication.throttled.replicas", "*", ConfigSource::Topic),
            ConfigEntry { read_only: true, ..entry("read.only", "1", ConfigSource::Topic) },
            ConfigEntry { sensitive: true, value: None, ..entry("secret", "", ConfigSource::Topic) },
            ConfigEntry { value: None, ..entry("unset", "", ConfigSource::Topic) },
        ];
        let mut settings = FlowSettings::new("A", "B");
        settings.config_properties_exclude =
            PatternList::new(&["min\\.insync\\.replicas", ".*\\.throttled\\.replicas"]).unwrap();
        let shown = |settings: &FlowSettings| {
            let configs = remote_configs(settings, &entries);
            configs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(&settings), "cleanup.policy=compact retention.ms=5 segment.bytes=7");
        settings.use_defaults_from = DefaultsFrom::Source;
        assert_eq!(
            shown(&settings),
            "cleanup.policy=compact compression.type=producer retention.ms=5 segment.bytes=7"
        );
    }

    /// Case 27, and the rule of MirrorMaker that a target's own setting goes when the source has its default.
    #[test]
    fn a_remote_topic_follows_its_source() {
        let source = [
            entry("cleanup.policy", "compact", ConfigSource::Topic),
            entry("retention.ms", "5", ConfigSource::DynamicBroker),
            entry("segment.bytes", "7", ConfigSource::Default),
            entry("max.message.bytes", "9", ConfigSource::StaticBroker),
            entry("flush.ms", "1", ConfigSource::Default),
            entry("min.insync.replicas", "2", ConfigSource::Topic),
            entry("compression.type", "zstd", ConfigSource::Topic),
            entry("new.in.this.release", "x", ConfigSource::Topic),
        ];
        let target = [
            entry("cleanup.policy", "delete", ConfigSource::Default),
            entry("retention.ms", "5", ConfigSource::StaticBroker),
            entry("segment.bytes", "8", ConfigSource::Topic),
            entry("max.message.bytes", "1", ConfigSource::Topic),
            entry("flush.ms", "2", ConfigSource::StaticBroker),
            entry("min.insync.replicas", "1", ConfigSource::Topic),
            entry("compression.type", "zstd", ConfigSource::Topic),
            entry("only.there", "1", ConfigSource::Topic),
        ];
        let mut settings = FlowSettings::new("A", "B");
        let shown = |settings: &FlowSettings| {
            let changes = config_changes(settings, &source, &target);
            changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            shown(&settings),
            "cleanup.policy=compact retention.ms=5 -segment.bytes new.in.this.release=x"
        );
        settings.use_defaults_from = DefaultsFrom::Source;
        assert_eq!(
            shown(&settings),
            "cleanup.policy=compact retention.ms=5 segment.bytes=7 flush.ms=1 new.in.this.release=x"
        );
    }

    #[test]
    fn a_default_replication_factor_is_lowered_and_a_named_one_is_not() {
        for (wanted, live, expected) in [
            (ReplicationFactor::Default(3), 1, 1),
            (ReplicationFactor::Default(3), 0, 1),
            (ReplicationFactor::Default(2), 3, 2),
            (ReplicationFactor::Named(3), 1, 3),
            (ReplicationFactor::Named(-1), 3, -1),
        ] {
            assert_eq!(replication_factor(wanted, live), expected, "{wanted:?} on {live}");
        }
    }

    #[test]
    fn limits_are_those_of_the_remote_topic() {
        assert_eq!(
            target_limits(&[entry("max.message.bytes", "2000", ConfigSource::Topic)]).max_message_bytes,
            2_000
        );
        let default = TargetLimits::default().max_message_bytes;
        assert_eq!(
            target_limits(&[entry("max.message.bytes", "-", ConfigSource::Topic)]).max_message_bytes,
            default
        );
        assert_eq!(target_limits(&[]).max_message_bytes, default);
    }

    /// Case 28: the target rejects one key.
    #[test]
    fn a_refused_setting_is_found_by_the_targets_words() {
        let configs = ["retention.ms", "local.retention.ms", "remote.storage.enable"];
        let configs = configs.map(|name| (name.to_owned(), "1".to_owned())).into();
        for (message, expected) in [
            ("Unknown topic config name: local.retention.ms", Some("local.retention.ms")),
            ("Invalid value 1 for configuration retention.ms: must be at least 2", Some("retention.ms")),
            (
                "Null value not supported for topic configs: remote.storage.enable",
                Some("remote.storage.enable"),
            ),
            ("Not allowed: remote.storage.enable.", Some("remote.storage.enable")),
            ("Topic policy violated: xretention.ms", None),
            ("", None),
        ] {
            assert_eq!(refused_config(&configs, message).as_deref(), expected, "{message}");
        }
    }
}

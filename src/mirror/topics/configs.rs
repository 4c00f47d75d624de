//! Which settings a remote topic is created with (`MirrorSourceConnector.targetConfig`, KIP-894).
//!
//! The source's settings that are not default, can be set, are no secret, are no static setting of its brokers, and that
//! `config.properties.exclude` does not name. With `use.defaults.from=source` its defaults are set as well.

use std::collections::BTreeMap;

use crate::mirror::{DefaultsFrom, FlowSettings};

/// A topic's setting, as DescribeConfigs tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// Its name.
    pub name: String,
    /// Its value; `None` for a secret.
    pub value: Option<String>,
    /// Where it comes from, by Kafka's number (`DescribeConfigsResponse.ConfigSource`).
    pub source: i8,
    /// It cannot be changed.
    pub read_only: bool,
    /// It is a secret.
    pub sensitive: bool,
}

/// `ConfigSource.STATIC_BROKER_CONFIG`.
const STATIC_BROKER_CONFIG: i8 = 4;
/// `ConfigSource.DEFAULT_CONFIG`.
const DEFAULT_CONFIG: i8 = 5;

/// The settings that a remote topic gets at its creation.
pub fn remote_configs(settings: &FlowSettings, entries: &[ConfigEntry]) -> BTreeMap<String, String> {
    entries
        .iter()
        .filter(|entry| is_copied(settings, entry))
        .filter_map(|entry| Some((entry.name.clone(), entry.value.clone()?)))
        .collect()
}

fn is_copied(settings: &FlowSettings, entry: &ConfigEntry) -> bool {
    let default = entry.source == DEFAULT_CONFIG;
    !entry.read_only
        && !entry.sensitive
        && entry.source != STATIC_BROKER_CONFIG
        && (!default || settings.use_defaults_from == DefaultsFrom::Source)
        && !settings.config_properties_exclude.matches(&entry.name)
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

    fn entry(name: &str, value: &str, source: i8) -> ConfigEntry {
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
            entry("cleanup.policy", "compact", 1),
            entry("retention.ms", "5", 2),
            entry("segment.bytes", "7", 3),
            entry("max.message.bytes", "9", STATIC_BROKER_CONFIG),
            entry("compression.type", "producer", DEFAULT_CONFIG),
            entry("min.insync.replicas", "2", 1),
            entry("follower.replication.throttled.replicas", "*", 1),
            ConfigEntry { read_only: true, ..entry("read.only", "1", 1) },
            ConfigEntry { sensitive: true, value: None, ..entry("secret", "", 1) },
            ConfigEntry { value: None, ..entry("unset", "", 1) },
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

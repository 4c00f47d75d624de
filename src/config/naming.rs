//! Names on the target: the replication policy of a flow, its format and renames, and what groups and principals are called.
//!
//! Java classes cannot run here. Those of Kafka are known; for others that go round, the error says which format or transform
//! names the same.

use super::flow::is_topic_character;
use super::reader::{Fallback, Reader};
use super::scoping::Setting;
use super::transforms;
use crate::mirror::{Compat, FlowSettings, NameFormat, PolicyKind, PrincipalMap};

const DEFAULT_POLICY: &str = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy";
const IDENTITY_POLICY: &str = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy";

const KEEPS: &str = "it keeps the names: write \
    replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy";
const MAPS: &str = "it maps names: write a RegexRouter for them, as A->B.transforms = names, \
    A->B.transforms.names.type = org.apache.kafka.connect.transforms.RegexRouter, and its regex and replacement";
const SUFFIXES: &str =
    "it puts the source behind the name: write kmirror.replication.policy.format = {topic}.{source}";
const ANY: &str = "write how it names topics, as in kmirror.replication.policy.format = {source}_prod_v2.{topic}; a class that \
    keeps the names is org.apache.kafka.connect.mirror.IdentityReplicationPolicy";

/// Policies of other hands, by a part of the class's own name.
const CLASSES: [(&str, &str); 12] = [
    ("Identity", KEEPS),
    ("Prefixless", KEEPS),
    ("NoPrefix", KEEPS),
    ("NoAlias", KEEPS),
    ("SameName", KEEPS),
    ("Legacy", KEEPS),
    ("CustomMM2", KEEPS),
    ("Regex", MAPS),
    ("Map", MAPS),
    ("Rename", MAPS),
    ("Remapping", MAPS),
    ("Suffix", SUFFIXES),
];

/// Reads how a flow names things.
pub(super) fn read(reader: &mut Reader<'_>, flow: &mut FlowSettings, clusters: &[String]) {
    let compats = [("3.9", Compat::V3_9), ("4.3", Compat::V4_3), ("4.4", Compat::V4_4)];
    flow.policy.compat = reader.choice("kmirror.compat", &compats, "4.3").unwrap_or_default();
    read_format(reader, flow, clusters);
    read_kind(reader, flow);
    flow.policy.renames = transforms::read(reader);
    read_separators(reader, flow);
    if let Some(setting) = noted(reader, "kmirror.group.format") {
        flow.group_format = format(reader, &setting, "kmirror.group.format", "group", flow, clusters);
    }
    if let Some(setting) = noted(reader, "kmirror.acl.principal.map") {
        match PrincipalMap::new(&setting.value) {
            Ok(map) => flow.principal_map = map,
            Err(reason) => reader.error(&setting, format!("kmirror.acl.principal.map: {reason}"), None),
        }
    }
}

/// Whether topics can be named after a cluster: the longest is `mm2-offset-syncs.<alias>.internal`, and Kafka allows 249 bytes.
pub(super) fn alias(alias: &str) -> Result<(), String> {
    const BYTES_MAX: usize = 249 - "mm2-offset-syncs.".len() - ".internal".len();
    if let Some(character) = alias.chars().find(|&character| !is_topic_character(character)) {
        return Err(format!("has {character:?}, which cannot stand in a topic's name"));
    }
    let is_too_long = alias.len() > BYTES_MAX;
    if is_too_long { Err(format!("has {} bytes, {BYTES_MAX} are allowed", alias.len())) } else { Ok(()) }
}

/// What only some files have is noted only then.
fn noted(reader: &mut Reader<'_>, key: &str) -> Option<Setting> {
    if reader.scope.contains_key(key) { reader.get(key, Fallback::Theirs("")) } else { None }
}

fn format(
    reader: &mut Reader<'_>,
    setting: &Setting,
    key: &str,
    subject: &str,
    flow: &FlowSettings,
    clusters: &[String],
) -> Option<NameFormat> {
    let aliases: Vec<&str> = clusters.iter().map(String::as_str).collect();
    match NameFormat::new(setting.value.trim(), subject, &flow.target, &aliases) {
        Ok(format) => Some(format),
        Err(reason) => {
            let help = format!("as in {key} = {{source}}_prod.{{{subject}}}");
            reader.error(setting, format!("{key}: {reason}"), Some(&help));
            None
        }
    }
}

fn read_format(reader: &mut Reader<'_>, flow: &mut FlowSettings, clusters: &[String]) {
    let key = "kmirror.replication.policy.format";
    let Some(setting) = noted(reader, key) else { return };
    let text = |c: char| is_topic_character(c) || matches!(c, '{' | '}');
    if let Some(c) = setting.value.trim().chars().find(|&c| !text(c)) {
        reader.error(&setting, format!("{key}: {c:?} cannot stand in a topic's name"), None);
        return;
    }
    flow.policy.kind = PolicyKind::Format;
    flow.policy.format = format(reader, &setting, key, "topic", flow, clusters);
}

fn read_kind(reader: &mut Reader<'_>, flow: &mut FlowSettings) {
    let key = "replication.policy.class";
    let Some(setting) = reader.get(key, Fallback::Theirs(DEFAULT_POLICY)) else { return };
    if flow.policy.kind == PolicyKind::Format {
        return;
    }
    match setting.value.trim() {
        DEFAULT_POLICY => {}
        // Strimzi shipped the same policy before MirrorMaker had one.
        IDENTITY_POLICY | "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy" => {
            flow.policy.kind = PolicyKind::Identity;
        }
        other => {
            let name = other.rsplit('.').next().unwrap_or(other);
            let known = CLASSES.iter().find(|(part, _)| name.contains(part));
            let help = known.map_or(ANY, |(_, help)| *help);
            let message = format!("{key}: {other} is a Java class that is not known here");
            reader.error(&setting, message, Some(help));
        }
    }
}

fn read_separators(reader: &mut Reader<'_>, flow: &mut FlowSettings) {
    let separator = |value: &str| match value {
        "" => Err("it is empty".to_owned()),
        _ if !value.chars().all(is_topic_character) => {
            Err(format!("{value:?} cannot stand in a topic's name"))
        }
        _ => Ok(value.to_owned()),
    };
    let default = flow.policy.separator.clone();
    let key = "replication.policy.separator";
    flow.policy.separator = reader.parse(key, Fallback::Theirs("."), default, separator);
    // DefaultReplicationPolicy.configure reads this one only when the separator is named.
    let internal = reader.boolean("replication.policy.internal.topic.separator.enabled", true);
    if internal {
        flow.policy.internal_separator.clone_from(&flow.policy.separator);
    }
}

//! Offset syncs, groups and heartbeats in `/status`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::mirror::status::{GroupStatus, GroupsStatus, HeartbeatStatus, LinkStatus, SyncsStatus};

/// The offset syncs of a flow; null while they are off.
pub(super) fn offset_syncs(syncs: &SyncsStatus) -> Value {
    let of = |topic: &Arc<str>| json!({ "topic": &**topic, "emitted": syncs.emitted, "last_error": syncs.last_error });
    syncs.topic.as_ref().map_or(Value::Null, of)
}

/// The groups of a flow.
pub(super) fn groups(groups: &GroupsStatus) -> Value {
    let each: Map<String, Value> =
        groups.groups.iter().map(|(name, of)| (name.to_string(), group(of))).collect();
    json!({
        "checkpoints": groups.checkpoints,
        "round_ms": groups.round_ms,
        "last_error": groups.last_error,
        "groups": each,
    })
}

fn group(group: &GroupStatus) -> Value {
    let sync = group.sync.as_ref().map(|sync| {
        json!({
            "result": sync.result.name(),
            "detail": sync.detail,
            "committed": sync.committed,
            "at_ms": sync.at_ms,
        })
    });
    json!({
        "translated_partitions": group.translated,
        "untranslated_partitions": group.untranslated,
        "checkpoint_ms": group.checkpoint_ms,
        "error": group.error,
        "sync": sync,
    })
}

/// The heartbeats that come over a flow, by source topic.
pub(super) fn links(links: &BTreeMap<Arc<str>, LinkStatus>) -> Value {
    let link = |(topic, link): (&Arc<str>, &LinkStatus)| {
        (
            topic.to_string(),
            json!({ "hops": link.hops, "newest_ms": link.newest_ms, "latency_ms": link.latency_ms }),
        )
    };
    Value::Object(links.iter().map(link).collect())
}

/// The heartbeats that the process writes for one pair.
pub(super) fn heartbeats(pair: &HeartbeatStatus) -> Value {
    json!({
        "source": &*pair.source,
        "target": &*pair.target,
        "emitted": pair.emitted,
        "emitted_ms": pair.emitted_ms,
        "last_error": pair.last_error,
    })
}

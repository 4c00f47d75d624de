//! Offset syncs, groups and heartbeats in `/status`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::mirror::status::{
    FlowState, FlowStatus, GroupStatus, GroupsStatus, HeartbeatStatus, LinkStatus, SyncsStatus,
};

/// The offset syncs of a flow; null while they are off.
pub(super) fn offset_syncs(syncs: &SyncsStatus) -> Value {
    let of = |topic: &Arc<str>| json!({ "topic": &**topic, "emitted": syncs.emitted, "last_error": syncs.last_error });
    syncs.topic.as_ref().map_or(Value::Null, of)
}

/// The groups of a flow, or why this process says nothing of them; `detail` is of the flow's state.
pub(super) fn groups_of(flow: &FlowStatus, detail: Option<String>) -> Value {
    let idle = |state: &str, reason: String| json!({ "state": state, "reason": reason });
    if flow.translation.are_groups_off {
        return idle("off", "emit.checkpoints.enabled is false".to_owned());
    }
    if let Some(status) = &flow.translation.groups {
        return groups(status);
    }
    let waits = || flow.waiting_for.as_ref().map(|waiting| format!("it waits for {}", waiting.what));
    let why =
        |fallback: &str| waits().or_else(|| flow.last_error.clone()).unwrap_or_else(|| fallback.to_owned());
    match &flow.state {
        FlowState::Standby => idle("standby", why("another kmirror writes this flow")),
        FlowState::Paused { .. } => idle("paused", detail.unwrap_or_default()),
        FlowState::Stopping | FlowState::Stopped => idle("stopped", "the flow was stopped".to_owned()),
        FlowState::Failed(reason) => idle("unknown", reason.clone()),
        FlowState::Starting | FlowState::WaitingForMirrorMaker { .. } | FlowState::Running => {
            idle("unknown", detail.unwrap_or_else(|| why("this process does not write the flow yet")))
        }
    }
}

fn groups(groups: &GroupsStatus) -> Value {
    let each: Map<String, Value> =
        groups.groups.iter().map(|(name, of)| (name.to_string(), group(of))).collect();
    json!({
        "state": "running",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::status::Waiting;
    use crate::observe::example;

    #[test]
    fn groups_that_nothing_is_known_of_say_why() {
        let check = |change: &dyn Fn(&mut FlowStatus), state: &str, reason: &str| {
            let mut flow = example::status().flows.remove(0);
            (flow.translation.groups, flow.waiting_for, flow.last_error) = (None, None, None);
            change(&mut flow);
            let shown = groups_of(&flow, None);
            assert_eq!((&shown["state"], &shown["reason"]), (&json!(state), &json!(reason)));
        };
        check(&|flow| flow.translation.are_groups_off = true, "off", "emit.checkpoints.enabled is false");
        let waiting = |what: &str| Some(Waiting { what: what.to_owned(), since_ms: 0 });
        let standby = |flow: &mut FlowStatus| {
            flow.state = FlowState::Standby;
            flow.waiting_for = waiting("kmirror-2, another kmirror that writes this flow, to end");
        };
        check(&standby, "standby", "it waits for kmirror-2, another kmirror that writes this flow, to end");
        let lost = |flow: &mut FlowStatus| {
            flow.state = FlowState::Starting;
            flow.last_error = Some("the lease is another's".to_owned());
        };
        check(&lost, "unknown", "the lease is another's");
        check(
            &|flow| flow.state = FlowState::Starting,
            "unknown",
            "this process does not write the flow yet",
        );
        check(&|flow| flow.state = FlowState::Failed("why".to_owned()), "unknown", "why");
        check(&|flow| flow.state = FlowState::Stopped, "stopped", "the flow was stopped");
        let flow = example::status().flows.remove(0);
        assert_eq!(groups_of(&flow, None)["state"], "running");
    }
}

//! `/status`: the whole state as JSON, and `/readyz` in one word per flow.

use serde_json::{Map, Value, json};

use super::metrics::state_word;
use super::translation;
use crate::mirror::status::{
    BrokerStatus, CertificateStatus, Event, EventKind, FlowState, FlowStatus, MembershipStatus,
    PartitionStatus, Readiness, ReplicatorStatus, RewriteReason, SyncStatus, TlsStatus,
};

/// The document at `/status`. Offsets are numbers, times are milliseconds since the epoch; what is not known is null.
pub fn status(status: &ReplicatorStatus) -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now_ms": status.now_ms,
        "memory": { "budget_bytes": status.budget_bytes, "used_bytes": status.budget_used_bytes },
        "tls": status.tls.iter().map(tls).collect::<Vec<Value>>(),
        "flows": status.flows.iter().map(flow).collect::<Vec<Value>>(),
        "heartbeats": status.heartbeats.iter().map(translation::heartbeats).collect::<Vec<Value>>(),
    })
}

/// Why the process is not ready, one line for each flow that is not; empty when it is. A stopped partition or a failed
/// topic is for `/status` and metrics: it must not take the others out of service.
pub fn unready(status: &ReplicatorStatus) -> String {
    let mut lines = String::new();
    if status.flows.is_empty() {
        lines.push_str("no flow runs in this process any more\n");
    }
    for flow in &status.flows {
        if let Readiness::NotReady(because) = &flow.readiness {
            let waits = || flow.waiting_for.as_ref().map(|waiting| format!("waits for {}", waiting.what));
            let why = because
                .clone()
                .or_else(|| detail(&flow.state))
                .or_else(waits)
                .or_else(|| flow.last_error.clone());
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            lines.push_str(&format!(
                "{}->{} is {}{why}\n",
                flow.source,
                flow.target,
                state_word(&flow.state)
            ));
        }
    }
    lines
}

fn detail(state: &FlowState) -> Option<String> {
    match state {
        FlowState::WaitingForMirrorMaker { group, members } => {
            Some(format!("MirrorMaker's group {group} has {members} members"))
        }
        FlowState::Paused { connector, target_state, topic } => Some(format!(
            "MirrorMaker's {connector} is {target_state} ({topic}): resume it there, or set kmirror.on.paused = ignore"
        )),
        FlowState::Failed(reason) => Some(reason.clone()),
        _ => None,
    }
}

fn flow(flow: &FlowStatus) -> Value {
    let mut topics: Map<String, Value> = Map::new();
    for ((topic, number), partition) in &flow.partitions {
        let entry = topics
            .entry(topic.to_string())
            .or_insert_with(|| json!({ "remote_topic": &*partition.remote_topic, "partitions": {} }));
        entry["partitions"][number.to_string()] = self::partition(partition);
    }
    let failed: Map<String, Value> =
        flow.failed_topics.iter().map(|(topic, reason)| (topic.to_string(), json!(reason))).collect();
    json!({
        "source": &*flow.source,
        "target": &*flow.target,
        "state": state_word(&flow.state),
        "ready": flow.readiness == Readiness::Ready,
        "detail": detail(&flow.state),
        "waiting_for": flow.waiting_for.as_ref().map(|waiting| {
            json!({ "what": waiting.what, "since_ms": waiting.since_ms })
        }),
        "discovered": flow.discovered,
        "last_error": flow.last_error,
        "lag_offsets": flow.partitions.values().filter_map(PartitionStatus::lag).sum::<i64>(),
        "topics": topics,
        "failed_topics": failed,
        "topic_configs": flow.topic_configs.as_ref().map(followed),
        "topic_acls": flow.topic_acls.as_ref().map(followed),
        "offset_syncs": translation::offset_syncs(&flow.translation.offset_syncs),
        "groups": translation::groups_of(flow, detail(&flow.state)),
        "heartbeats": translation::links(&flow.translation.heartbeats),
        "membership": flow.membership.as_ref().map(membership),
        "events": flow.events.iter().map(event).collect::<Vec<Value>>(),
        "brokers": flow.brokers.iter().map(|((cluster, id), state)| broker(cluster, *id, state)).collect::<Vec<Value>>(),
    })
}

fn membership(status: &MembershipStatus) -> Value {
    json!({
        "group": &*status.group,
        "protocol": status.protocol,
        "instance": status.instance.as_deref(),
        "state": status.state,
        "member_id": status.member_id.as_deref(),
        "generation": status.generation,
        "assigned": status.assigned.iter().map(|(topic, at)| (topic.to_string(), json!(at))).collect::<Map<String, Value>>(),
        "losses": status.losses,
        "last_error": status.last_error,
        "partitioning": status.partitioning.iter().map(|(topic, how)| (topic.to_string(), json!(how))).collect::<Map<String, Value>>(),
    })
}

fn tls(status: &TlsStatus) -> Value {
    let certificate = |certificate: &CertificateStatus| {
        json!({
            "store": certificate.store,
            "subject": certificate.subject,
            "not_after_ms": certificate.not_after_s.saturating_mul(1_000),
        })
    };
    json!({
        "cluster": &*status.cluster,
        "certificates": status.certificates.iter().map(certificate).collect::<Vec<Value>>(),
        "trouble": status.trouble,
    })
}

fn followed(status: &SyncStatus) -> Value {
    json!({
        "at_ms": status.at_ms,
        "changed": status.changed,
        "refused": status.refused,
        "error": status.error,
    })
}

fn partition(partition: &PartitionStatus) -> Value {
    let counters = &partition.counters;
    let rewritten: Map<String, Value> = RewriteReason::ALL
        .iter()
        .zip(counters.batches_rewritten)
        .filter(|&(_, count)| count > 0)
        .map(|(reason, count)| (reason.name().to_owned(), json!(count)))
        .collect();
    let stopped = partition.stopped.as_ref().map(|stopped| {
        json!({
            "reason": stopped.reason,
            "message": stopped.message,
            "since_ms": stopped.since_ms,
            "retry_ms": stopped.retry_ms,
        })
    });
    json!({
        "position": partition.position,
        "downstream": partition.downstream,
        "lag_offsets": partition.lag(),
        "end_at_start": partition.end_at_start,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset,
        "log_start_offset": partition.log_start_offset,
        "blocked_by_transaction_since_ms": partition.blocked_by_transaction_since_ms,
        "replicated_timestamp_ms": partition.replicated_timestamp_ms,
        "stopped": stopped,
        "records": counters.records,
        "bytes": counters.bytes,
        "batches": {
            "verbatim": counters.batches_verbatim,
            "merged": counters.batches_merged,
            "rewritten": rewritten,
            "skipped": counters.batches_skipped,
        },
        "records_skipped": counters.records_skipped,
        "resends": counters.resends,
    })
}

fn event(event: &Event) -> Value {
    let place = json!({ "at_ms": event.at_ms, "topic": &*event.topic, "partition": event.partition });
    let what = match &event.kind {
        EventKind::Gap { from, to, reason } => {
            json!({ "kind": "gap", "from": from, "to": to, "reason": reason })
        }
        EventKind::Skipped { offset, reason } => {
            json!({ "kind": "skipped", "offset": offset, "reason": reason })
        }
    };
    match (place, what) {
        (Value::Object(mut place), Value::Object(what)) => {
            place.extend(what);
            Value::Object(place)
        }
        (place, _) => place,
    }
}

fn broker(cluster: &str, id: i32, broker: &BrokerStatus) -> Value {
    json!({
        "cluster": cluster,
        "broker": id,
        "connected": broker.connected,
        "disconnects": broker.disconnects,
        "throttle_ms": broker.throttle_ms,
        "last_error": broker.last_error,
    })
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;
    use crate::mirror::status::Waiting;

    #[test]
    fn the_document_of_an_example() {
        let text = serde_json::to_string_pretty(&status(&example::status())).unwrap() + "\n";
        let wanted = include_str!("testdata/status.json").replace("$VERSION", env!("CARGO_PKG_VERSION"));
        assert_eq!(text, wanted, "if the change is meant, replace testdata/status.json");
    }

    #[test]
    fn readiness_is_a_matter_of_flows() {
        let mut status = example::status();
        let wanted = "B->A is waiting_for_mirrormaker: MirrorMaker's group B-mm2 has 2 members\n";
        assert_eq!(unready(&status), wanted);
        let not_ready = || Readiness::NotReady(None);
        let late = Readiness::NotReady(Some("A takes nothing".to_owned()));
        for (state, readiness, line) in [
            (FlowState::Running, Readiness::Ready, ""),
            (FlowState::Standby, Readiness::Ready, ""),
            (FlowState::Starting, not_ready(), "B->A is starting: cluster A: no broker answers\n"),
            (FlowState::Failed("x".to_owned()), not_ready(), "B->A is failed: x\n"),
            (FlowState::Running, late, "B->A is running: A takes nothing\n"),
        ] {
            (status.flows[1].state, status.flows[1].readiness) = (state, readiness);
            status.flows[1].waiting_for = None;
            assert_eq!(unready(&status), line);
        }
        let what = "cluster A (a:9092) to answer: refused".to_owned();
        (status.flows[1].state, status.flows[1].readiness) = (FlowState::Starting, not_ready());
        status.flows[1].waiting_for = Some(Waiting { what, since_ms: 1 });
        let wanted = "B->A is starting: waits for cluster A (a:9092) to answer: refused\n";
        assert_eq!(unready(&status), wanted);
    }
}

//! The metrics under kmirror's own names.

use std::collections::BTreeMap;

use super::{Family, Line, Of, STATES, seconds, state_word};
use crate::mirror::status::{
    EventKind, FlowStatus, GroupStatus, LinkStatus, MembershipStatus, PartitionStatus, Readiness,
    RewriteReason,
};

type WriteFlow = fn(&mut Line<'_>, &FlowStatus, i64);
type WritePartition = fn(&mut Line<'_>, &PartitionStatus, i64);
type WriteGroup = fn(&mut Line<'_>, &GroupStatus, i64);

const fn of_process(name: &'static str, kind: &'static str, help: &'static str, of: Of) -> Family {
    Family { name, kind, help, of }
}

const fn of_flow(name: &'static str, kind: &'static str, help: &'static str, write: WriteFlow) -> Family {
    Family { name, kind, help, of: Of::Flow(write) }
}

const fn of_group(name: &'static str, kind: &'static str, help: &'static str, write: WriteGroup) -> Family {
    Family { name, kind, help, of: Of::Group(write) }
}

const fn counter(name: &'static str, help: &'static str, write: WritePartition) -> Family {
    Family { name, kind: "counter", help, of: Of::Partition(write) }
}

const fn gauge(name: &'static str, help: &'static str, write: WritePartition) -> Family {
    Family { name, kind: "gauge", help, of: Of::Partition(write) }
}

/// A line for each cluster whose heartbeats come over the flow.
pub(super) fn links(line: &mut Line<'_>, flow: &FlowStatus, value: impl Fn(&LinkStatus) -> Option<f64>) {
    for (topic, link) in &flow.translation.heartbeats {
        if let Some(value) = value(link) {
            line.value_with(&[("topic", topic), ("hops", &link.hops.to_string())], value);
        }
    }
}

/// A line for the source's group, if the flow is a member of it.
fn members(line: &mut Line<'_>, flow: &FlowStatus, value: impl Fn(&MembershipStatus) -> Option<u64>) {
    if let Some(membership) = &flow.membership
        && let Some(value) = value(membership)
    {
        line.value_with(&[("group", &membership.group)], value);
    }
}

/// How old a moment is, in seconds.
pub(super) fn age(then_ms: Option<i64>, now_ms: i64) -> Option<f64> {
    then_ms.map(|then_ms| seconds(now_ms.saturating_sub(then_ms).max(0)))
}

/// In the order in which they are shown.
pub(super) const FAMILIES: &[Family] = &[
    of_process(
        "kmirror_build_info",
        "gauge",
        "The version that runs.",
        Of::Process(|line, _| line.value_with(&[("version", env!("CARGO_PKG_VERSION"))], 1)),
    ),
    of_process(
        "kmirror_memory_budget_bytes",
        "gauge",
        "Ceiling of the bytes of batches that are held at once.",
        Of::Process(|line, status| line.value(status.budget_bytes)),
    ),
    of_process(
        "kmirror_memory_budget_used_bytes",
        "gauge",
        "Bytes of batches that are held now.",
        Of::Process(|line, status| line.value(status.budget_used_bytes)),
    ),
    of_process(
        "kmirror_tls_certificate_expiry_seconds",
        "gauge",
        "How long a certificate of a trust or key store is still valid; negative when it no longer is.",
        Of::Process(|line, status| {
            for tls in &status.tls {
                for certificate in &tls.certificates {
                    let left_s = certificate.not_after_s - status.now_ms / 1_000;
                    let labels = [
                        ("cluster", &*tls.cluster),
                        ("store", certificate.store),
                        ("subject", &certificate.subject),
                    ];
                    line.value_with(&labels, left_s);
                }
            }
        }),
    ),
    of_process(
        "kmirror_tls_stores_unusable",
        "gauge",
        "1 while the newest files of a cluster's stores cannot be used, and the last good ones are in use.",
        Of::Process(|line, status| {
            for tls in &status.tls {
                line.value_with(&[("cluster", &tls.cluster)], u8::from(tls.trouble.is_some()));
            }
        }),
    ),
    of_flow(
        "kmirror_flow_state",
        "gauge",
        "1 for the state in which a flow is, 0 for the others.",
        |line, flow, _| {
            for state in STATES {
                line.value_with(&[("state", state)], u8::from(state == state_word(&flow.state)));
            }
        },
    ),
    of_flow(
        "kmirror_flow_ready",
        "gauge",
        "1 while /readyz counts the flow as ready: its clusters answer and its partitions are acknowledged in time.",
        |line, flow, _| line.value(u8::from(flow.readiness == Readiness::Ready)),
    ),
    of_flow(
        "kmirror_partitions",
        "gauge",
        "Source partitions that the flow has taken on.",
        |line, flow, _| line.value(flow.partitions.len()),
    ),
    of_flow(
        "kmirror_stopped_partitions",
        "gauge",
        "Partitions that are not replicated now, by reason.",
        |line, flow, _| {
            let mut reasons: BTreeMap<&'static str, u64> = BTreeMap::new();
            for stopped in flow.partitions.values().filter_map(|partition| partition.stopped.as_ref()) {
                *reasons.entry(stopped.reason).or_default() += 1;
            }
            for (reason, count) in reasons {
                line.value_with(&[("reason", reason)], count);
            }
        },
    ),
    of_flow("kmirror_failed_topics", "gauge", "Topics that cannot be replicated now.", |line, flow, _| {
        line.value(flow.failed_topics.len());
    }),
    of_flow(
        "kmirror_recorded_events",
        "gauge",
        "Gaps and skipped records that are still listed in /status.",
        |line, flow, _| {
            let gaps = flow.events.iter().filter(|event| matches!(event.kind, EventKind::Gap { .. })).count();
            line.value_with(&[("kind", "gap")], gaps);
            line.value_with(&[("kind", "skipped")], flow.events.len() - gaps);
        },
    ),
    of_flow(
        "kmirror_member_joined",
        "gauge",
        "1 while this process is a member of the source's group.",
        |line, flow, _| members(line, flow, |member| Some(u64::from(member.generation.is_some()))),
    ),
    of_flow(
        "kmirror_member_generation",
        "gauge",
        "Generation of the source's group, or the member epoch.",
        |line, flow, _| members(line, flow, |member| u64::try_from(member.generation?).ok()),
    ),
    of_flow(
        "kmirror_member_assigned_partitions",
        "gauge",
        "Partitions that the source's group has given this process.",
        |line, flow, _| {
            members(line, flow, |member| Some(member.assigned.values().map(|at| at.len() as u64).sum()));
        },
    ),
    of_flow(
        "kmirror_member_losses_total",
        "counter",
        "Times that all partitions were lost at once, by the group's word or because nothing was heard of it.",
        |line, flow, _| members(line, flow, |member| Some(member.losses)),
    ),
    of_process(
        "kmirror_broker_connected",
        "gauge",
        "1 while there is a connection to the broker.",
        Of::Broker(|broker| f64::from(u8::from(broker.connected))),
    ),
    of_process(
        "kmirror_broker_disconnects_total",
        "counter",
        "Times that the connection to the broker was lost; it was dialled again.",
        Of::Broker(|broker| broker.disconnects as f64),
    ),
    of_process(
        "kmirror_broker_throttle_seconds_total",
        "counter",
        "Time for which the broker asked to wait.",
        Of::Broker(|broker| broker.throttle_ms as f64 / 1_000.0),
    ),
    of_flow("kmirror_offset_syncs_total", "counter", "Offset syncs acknowledged.", |line, flow, _| {
        line.value(flow.translation.offset_syncs.emitted);
    }),
    of_flow(
        "kmirror_checkpoints_total",
        "counter",
        "Checkpoints acknowledged since the flow is written by this process.",
        |line, flow, _| line.maybe(flow.translation.groups.as_ref().map(|of| of.checkpoints)),
    ),
    of_flow(
        "kmirror_checkpoint_lag_seconds",
        "gauge",
        "Time since the last round of checkpoints ended.",
        |line, flow, now_ms| {
            let round_ms = flow.translation.groups.as_ref().and_then(|groups| groups.round_ms);
            line.maybe(age(round_ms, now_ms));
        },
    ),
    of_group(
        "kmirror_group_untranslated_partitions",
        "gauge",
        "Partitions in which a group stands before everything whose place on the target is known.",
        |line, group, _| line.value(group.untranslated),
    ),
    of_group(
        "kmirror_group_checkpoint_timestamp_seconds",
        "gauge",
        "When a group's last checkpoint was written, since the epoch.",
        |line, group, _| line.maybe(group.checkpoint_ms.map(seconds)),
    ),
    of_group(
        "kmirror_group_sync",
        "gauge",
        "1 with what came of a group's offsets on the target in the last round.",
        |line, group, _| {
            if let Some(sync) = &group.sync {
                line.value_with(&[("result", sync.result.name())], 1);
            }
        },
    ),
    of_group(
        "kmirror_group_offsets_committed_total",
        "counter",
        "Offsets committed for a group on the target.",
        |line, group, _| line.maybe(group.sync.as_ref().map(|sync| sync.committed)),
    ),
    of_flow(
        "kmirror_heartbeat_timestamp_seconds",
        "gauge",
        "When the newest heartbeat was written that has come over the flow, since the epoch.",
        |line, flow, _| links(line, flow, |link| link.newest_ms.map(seconds)),
    ),
    of_flow(
        "kmirror_heartbeat_lag_seconds",
        "gauge",
        "Age of the newest heartbeat that has come over the flow.",
        |line, flow, now_ms| links(line, flow, |link| age(link.newest_ms, now_ms)),
    ),
    of_flow(
        "kmirror_heartbeat_latency_seconds",
        "gauge",
        "Time from the writing of the last heartbeat to its acknowledgement by the target.",
        |line, flow, _| links(line, flow, |link| link.latency_ms.map(seconds)),
    ),
    of_process(
        "kmirror_heartbeats_emitted_total",
        "counter",
        "Heartbeats written by this process, by pair of clusters.",
        Of::Process(|line, status| {
            for pair in &status.heartbeats {
                line.value_with(&[("source", &pair.source), ("target", &pair.target)], pair.emitted);
            }
        }),
    ),
    counter("kmirror_records_total", "Records acknowledged by the target.", |line, partition, _| {
        line.value(partition.counters.records);
    }),
    counter(
        "kmirror_bytes_total",
        "Bytes of source batches acknowledged by the target.",
        |line, partition, _| line.value(partition.counters.bytes),
    ),
    counter("kmirror_batches_total", "Source batches by how they went.", |line, partition, _| {
        let counters = &partition.counters;
        line.value_with(&[("way", "verbatim")], counters.batches_verbatim);
        line.value_with(&[("way", "merged")], counters.batches_merged);
        line.value_with(&[("way", "rewritten")], counters.batches_rewritten.iter().sum::<u64>());
        line.value_with(&[("way", "skipped")], counters.batches_skipped);
    }),
    counter(
        "kmirror_batches_rewritten_total",
        "Source batches that were rewritten, by reason.",
        |line, partition, _| {
            for (reason, &count) in RewriteReason::ALL.iter().zip(&partition.counters.batches_rewritten) {
                if count > 0 {
                    line.value_with(&[("reason", reason.name())], count);
                }
            }
        },
    ),
    counter("kmirror_records_skipped_total", "Records left out by policy.", |line, partition, _| {
        line.value(partition.counters.records_skipped);
    }),
    counter("kmirror_resends_total", "Produce requests that had to be sent again.", |line, partition, _| {
        line.value(partition.counters.resends);
    }),
    gauge(
        "kmirror_lag_records",
        "Source records still to be copied, counted by their offsets.",
        |line, partition, _| line.maybe(partition.lag()),
    ),
    gauge(
        "kmirror_lag_seconds",
        "For how long the oldest record has waited that is not on the target; 0 when none waits.",
        |line, partition, _| line.maybe(partition.lag_ms.map(seconds)),
    ),
    gauge(
        "kmirror_backlog_records",
        "Source records that are read and not acknowledged by the target, counted by their offsets.",
        |line, partition, _| line.value(partition.backlog_offsets),
    ),
    gauge(
        "kmirror_backlog_bytes",
        "Bytes of source batches that are read and not acknowledged by the target.",
        |line, partition, _| line.value(partition.backlog_bytes),
    ),
    gauge(
        "kmirror_position_offset",
        "Source offset behind the last record on the target.",
        |line, partition, _| line.maybe(partition.position),
    ),
    gauge(
        "kmirror_downstream_offset",
        "Target offset behind the last record there.",
        |line, partition, _| line.maybe(partition.downstream),
    ),
    gauge("kmirror_source_high_watermark_offset", "High watermark of the source.", |line, partition, _| {
        line.maybe(partition.high_watermark);
    }),
    gauge("kmirror_source_last_stable_offset", "Last stable offset of the source.", |line, partition, _| {
        line.maybe(partition.last_stable_offset);
    }),
    gauge("kmirror_source_log_start_offset", "Log start offset of the source.", |line, partition, _| {
        line.maybe(partition.log_start_offset);
    }),
    gauge(
        "kmirror_replicated_timestamp_seconds",
        "Largest record timestamp that is on the target, since the epoch.",
        |line, partition, _| line.maybe(partition.replicated_timestamp_ms.map(seconds)),
    ),
    gauge(
        "kmirror_blocked_by_transaction_seconds",
        "For how long an open transaction has held the last stable offset back.",
        |line, partition, now_ms| {
            line.value(age(partition.blocked_by_transaction_since_ms, now_ms).unwrap_or(0.0));
        },
    ),
    gauge(
        "kmirror_partition_stopped",
        "1 for a partition that is not replicated now.",
        |line, partition, _| {
            if let Some(stopped) = &partition.stopped {
                line.value_with(&[("reason", stopped.reason)], 1);
            }
        },
    ),
];

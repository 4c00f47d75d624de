//! Prometheus text (exposition format 0.0.4) of a replicator's state.
//!
//! Made piece by piece, since a flow of a hundred thousand partitions fills tens of megabytes: a piece holds whole lines,
//! and no more than about [`PIECE_BYTES`]. Names begin with `kmirror_`, carry base units and end in `_total` when they
//! only grow.

use std::fmt::Write as _;
use std::ops::Bound;
use std::sync::Arc;

use crate::mirror::status::{
    BrokerStatus, EventKind, FlowState, FlowStatus, GroupStatus, PartitionStatus, ReplicatorStatus,
    RewriteReason,
};

/// Size at which a piece ends.
pub const PIECE_BYTES: usize = 16 * 1024;

/// The pieces of one answer.
#[derive(Debug)]
pub struct Metrics {
    status: Arc<ReplicatorStatus>,
    family: usize,
    flow: usize,
    /// The last partition that was written of this flow and family.
    partition: Option<(Arc<str>, i32)>,
}

/// One metric.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    of: Of,
}

/// What a metric is about.
enum Of {
    Process(fn(&mut Line<'_>, &ReplicatorStatus)),
    Flow(fn(&mut Line<'_>, &FlowStatus)),
    Broker(fn(&BrokerStatus) -> f64),
    Partition(fn(&mut Line<'_>, &PartitionStatus, i64)),
}

impl Metrics {
    /// The text of a state.
    pub fn new(status: Arc<ReplicatorStatus>) -> Metrics {
        Metrics { status, family: 0, flow: 0, partition: None }
    }

    fn fill(&mut self, piece: &mut String) {
        let status = Arc::clone(&self.status);
        while let Some(family) = FAMILIES.get(self.family).filter(|_| piece.len() < PIECE_BYTES) {
            if self.flow == 0 && self.partition.is_none() {
                let _ = writeln!(
                    piece,
                    "# HELP {} {}\n# TYPE {} {}",
                    family.name, family.help, family.name, family.kind
                );
            }
            match &family.of {
                Of::Process(write) => {
                    write(&mut Line { out: piece, name: family.name, labels: String::new() }, &status)
                }
                Of::Flow(write) => {
                    status.flows.iter().for_each(|flow| write(&mut line(piece, family, flow), flow))
                }
                Of::Broker(value) => {
                    status.flows.iter().for_each(|flow| brokers(piece, family, flow, *value))
                }
                Of::Partition(write) => {
                    if self.partitions(piece, family, *write) == Progress::PieceIsFull {
                        return;
                    }
                }
            }
            (self.family, self.flow, self.partition) = (self.family + 1, 0, None);
        }
    }

    fn partitions(
        &mut self,
        piece: &mut String,
        family: &Family,
        write: fn(&mut Line<'_>, &PartitionStatus, i64),
    ) -> Progress {
        let status = Arc::clone(&self.status);
        while let Some(flow) = status.flows.get(self.flow) {
            let from = self.partition.take().map_or(Bound::Unbounded, Bound::Excluded);
            for (key, partition) in flow.partitions.range((from, Bound::Unbounded)) {
                let mut line = line(piece, family, flow);
                line.label("topic", &key.0);
                line.label("partition", &key.1.to_string());
                write(&mut line, partition, status.now_ms);
                if piece.len() >= PIECE_BYTES {
                    self.partition = Some(key.clone());
                    return Progress::PieceIsFull;
                }
            }
            self.flow += 1;
        }
        Progress::FamilyIsDone
    }
}

#[derive(PartialEq)]
enum Progress {
    PieceIsFull,
    FamilyIsDone,
}

impl Iterator for Metrics {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut piece = String::new();
        // A family may have no lines where it is taken up again.
        while piece.is_empty() && self.family < FAMILIES.len() {
            self.fill(&mut piece);
        }
        (!piece.is_empty()).then_some(piece)
    }
}

/// A line in the making: its name and its labels so far.
struct Line<'a> {
    out: &'a mut String,
    name: &'static str,
    labels: String,
}

fn line<'a>(out: &'a mut String, family: &Family, flow: &FlowStatus) -> Line<'a> {
    let mut line = Line { out, name: family.name, labels: String::new() };
    line.label("source", &flow.source);
    line.label("target", &flow.target);
    line
}

impl Line<'_> {
    fn label(&mut self, name: &str, value: &str) {
        append_label(&mut self.labels, name, value);
    }

    fn value(&mut self, value: impl std::fmt::Display) {
        let labels = &self.labels;
        let _ = match labels.is_empty() {
            true => writeln!(self.out, "{} {value}", self.name),
            false => writeln!(self.out, "{}{{{labels}}} {value}", self.name),
        };
    }

    fn value_with(&mut self, label: &str, word: &str, value: impl std::fmt::Display) {
        let before = self.labels.len();
        self.label(label, word);
        self.value(value);
        self.labels.truncate(before);
    }

    fn maybe(&mut self, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.value(value);
        }
    }
}

/// Backslash, quote and line feed are escaped; nothing else may be.
fn append_label(labels: &mut String, name: &str, value: &str) {
    if !labels.is_empty() {
        labels.push(',');
    }
    labels.push_str(name);
    labels.push_str("=\"");
    for c in value.chars() {
        match c {
            '\\' => labels.push_str("\\\\"),
            '"' => labels.push_str("\\\""),
            '\n' => labels.push_str("\\n"),
            other => labels.push(other),
        }
    }
    labels.push('"');
}

fn brokers(out: &mut String, family: &Family, flow: &FlowStatus, value: fn(&BrokerStatus) -> f64) {
    for ((cluster, id), broker) in &flow.brokers {
        let mut line = line(out, family, flow);
        line.label("cluster", cluster);
        line.label("broker", &id.to_string());
        line.value(value(broker));
    }
}

/// A line for each group, labelled with it.
fn groups(line: &mut Line<'_>, flow: &FlowStatus, write: fn(&mut Line<'_>, &GroupStatus)) {
    let Some(groups) = &flow.translation.groups else { return };
    for (name, group) in &groups.groups {
        let before = line.labels.len();
        line.label("group", name);
        write(line, group);
        line.labels.truncate(before);
    }
}

/// The word of a state for metrics and JSON.
pub(super) fn state_word(state: &FlowState) -> &'static str {
    match state {
        FlowState::Starting => "starting",
        FlowState::WaitingForMirrorMaker { .. } => "waiting_for_mirrormaker",
        FlowState::Standby => "standby",
        FlowState::Running => "running",
        FlowState::Stopping => "stopping",
        FlowState::Stopped => "stopped",
        FlowState::Failed(_) => "failed",
    }
}

const STATES: [&str; 7] =
    ["starting", "waiting_for_mirrormaker", "standby", "running", "stopping", "stopped", "failed"];

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}

const fn counter(
    name: &'static str,
    help: &'static str,
    write: fn(&mut Line<'_>, &PartitionStatus, i64),
) -> Family {
    Family { name, kind: "counter", help, of: Of::Partition(write) }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    write: fn(&mut Line<'_>, &PartitionStatus, i64),
) -> Family {
    Family { name, kind: "gauge", help, of: Of::Partition(write) }
}

const FAMILIES: &[Family] = &[
    Family {
        name: "kmirror_build_info",
        kind: "gauge",
        help: "The version that runs.",
        of: Of::Process(|line, _| line.value_with("version", env!("CARGO_PKG_VERSION"), 1)),
    },
    Family {
        name: "kmirror_memory_budget_bytes",
        kind: "gauge",
        help: "Ceiling of the bytes of batches that are held at once.",
        of: Of::Process(|line, status| line.value(status.budget_bytes)),
    },
    Family {
        name: "kmirror_memory_budget_used_bytes",
        kind: "gauge",
        help: "Bytes of batches that are held now.",
        of: Of::Process(|line, status| line.value(status.budget_used_bytes)),
    },
    Family {
        name: "kmirror_flow_state",
        kind: "gauge",
        help: "1 for the state in which a flow is, 0 for the others.",
        of: Of::Flow(|line, flow| {
            for state in STATES {
                line.value_with("state", state, u8::from(state == state_word(&flow.state)));
            }
        }),
    },
    Family {
        name: "kmirror_failed_topics",
        kind: "gauge",
        help: "Topics that cannot be replicated now.",
        of: Of::Flow(|line, flow| line.value(flow.failed_topics.len())),
    },
    Family {
        name: "kmirror_recorded_events",
        kind: "gauge",
        help: "Gaps and skipped records that are still listed in /status.",
        of: Of::Flow(|line, flow| {
            let gaps = flow.events.iter().filter(|event| matches!(event.kind, EventKind::Gap { .. })).count();
            line.value_with("kind", "gap", gaps);
            line.value_with("kind", "skipped", flow.events.len() - gaps);
        }),
    },
    Family {
        name: "kmirror_broker_connected",
        kind: "gauge",
        help: "1 while there is a connection to the broker.",
        of: Of::Broker(|broker| f64::from(u8::from(broker.connected))),
    },
    Family {
        name: "kmirror_broker_disconnects_total",
        kind: "counter",
        help: "Times that the connection to the broker was lost.",
        of: Of::Broker(|broker| broker.disconnects as f64),
    },
    Family {
        name: "kmirror_broker_throttle_seconds_total",
        kind: "counter",
        help: "Time for which the broker asked to wait.",
        of: Of::Broker(|broker| broker.throttle_ms as f64 / 1_000.0),
    },
    Family {
        name: "kmirror_offset_syncs_total",
        kind: "counter",
        help: "Offset syncs acknowledged.",
        of: Of::Flow(|line, flow| line.value(flow.translation.offset_syncs.emitted)),
    },
    Family {
        name: "kmirror_checkpoints_total",
        kind: "counter",
        help: "Checkpoints acknowledged since the flow is written by this process.",
        of: Of::Flow(|line, flow| line.maybe(flow.translation.groups.as_ref().map(|of| of.checkpoints))),
    },
    Family {
        name: "kmirror_group_untranslated_partitions",
        kind: "gauge",
        help: "Partitions in which a group stands before everything whose place on the target is known.",
        of: Of::Flow(|line, flow| groups(line, flow, |line, group| line.value(group.untranslated))),
    },
    Family {
        name: "kmirror_group_checkpoint_timestamp_seconds",
        kind: "gauge",
        help: "When a group's last checkpoint was written, since the epoch.",
        of: Of::Flow(|line, flow| {
            groups(line, flow, |line, group| line.maybe(group.checkpoint_ms.map(seconds)))
        }),
    },
    Family {
        name: "kmirror_group_sync",
        kind: "gauge",
        help: "1 with what came of a group's offsets on the target in the last round.",
        of: Of::Flow(|line, flow| {
            groups(line, flow, |line, group| {
                if let Some(sync) = &group.sync {
                    line.value_with("result", sync.result.name(), 1);
                }
            });
        }),
    },
    Family {
        name: "kmirror_group_offsets_committed_total",
        kind: "counter",
        help: "Offsets committed for a group on the target.",
        of: Of::Flow(|line, flow| {
            groups(line, flow, |line, group| line.maybe(group.sync.as_ref().map(|sync| sync.committed)));
        }),
    },
    Family {
        name: "kmirror_heartbeat_timestamp_seconds",
        kind: "gauge",
        help: "When the newest heartbeat was written that has come over the flow, since the epoch.",
        of: Of::Flow(|line, flow| {
            for (topic, link) in &flow.translation.heartbeats {
                let before = line.labels.len();
                line.label("topic", topic);
                line.label("hops", &link.hops.to_string());
                line.maybe(link.newest_ms.map(seconds));
                line.labels.truncate(before);
            }
        }),
    },
    Family {
        name: "kmirror_heartbeats_emitted_total",
        kind: "counter",
        help: "Heartbeats written by this process, by pair of clusters.",
        of: Of::Process(|line, status| {
            for pair in &status.heartbeats {
                line.labels.clear();
                line.label("source", &pair.source);
                line.label("target", &pair.target);
                line.value(pair.emitted);
            }
        }),
    },
    counter("kmirror_records_total", "Records acknowledged by the target.", |line, partition, _| {
        line.value(partition.counters.records);
    }),
    counter(
        "kmirror_bytes_total",
        "Bytes of source batches acknowledged by the target.",
        |line, partition, _| {
            line.value(partition.counters.bytes);
        },
    ),
    counter("kmirror_batches_total", "Source batches by how they went.", |line, partition, _| {
        let counters = &partition.counters;
        line.value_with("way", "verbatim", counters.batches_verbatim);
        line.value_with("way", "merged", counters.batches_merged);
        line.value_with("way", "rewritten", counters.batches_rewritten.iter().sum::<u64>());
        line.value_with("way", "skipped", counters.batches_skipped);
    }),
    counter(
        "kmirror_batches_rewritten_total",
        "Source batches that were rewritten, by reason.",
        |line, partition, _| {
            for (reason, &count) in RewriteReason::ALL.iter().zip(&partition.counters.batches_rewritten) {
                if count > 0 {
                    line.value_with("reason", reason.name(), count);
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
    gauge("kmirror_lag_offsets", "Source offsets still to be copied.", |line, partition, _| {
        line.maybe(partition.lag());
    }),
    gauge(
        "kmirror_position_offset",
        "Source offset behind the last record on the target.",
        |line, partition, _| {
            line.maybe(partition.position);
        },
    ),
    gauge(
        "kmirror_downstream_offset",
        "Target offset behind the last record there.",
        |line, partition, _| {
            line.maybe(partition.downstream);
        },
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
            let since = partition.blocked_by_transaction_since_ms;
            line.value(since.map_or(0.0, |since| seconds((now_ms - since).max(0))));
        },
    ),
    gauge(
        "kmirror_partition_stopped",
        "1 for a partition that is not replicated now.",
        |line, partition, _| {
            if let Some(stopped) = &partition.stopped {
                line.value_with("reason", stopped.reason, 1);
            }
        },
    ),
];

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn the_text_of_an_example() {
        let text: String = Metrics::new(Arc::new(example::status())).collect();
        let wanted = include_str!("testdata/metrics.txt").replace("$VERSION", env!("CARGO_PKG_VERSION"));
        assert_eq!(text, wanted, "if the change is meant, replace testdata/metrics.txt");
    }

    #[test]
    fn label_values_are_escaped() {
        let mut labels = String::new();
        append_label(&mut labels, "a", "x\\y\"z\nw\u{e9}");
        append_label(&mut labels, "b", "");
        assert_eq!(labels, "a=\"x\\\\y\\\"z\\nw\u{e9}\",b=\"\"");
    }

    #[test]
    fn pieces_are_bounded_and_lose_nothing() {
        let mut status = example::status();
        let flow = &mut status.flows[0];
        let one = flow.partitions.values().next().unwrap().clone();
        for partition in 0..2_000 {
            flow.partitions.insert((Arc::from("many"), partition), one.clone());
        }
        let count = flow.partitions.len();
        let pieces: Vec<String> = Metrics::new(Arc::new(status)).collect();
        assert!(pieces.iter().all(|piece| piece.len() < PIECE_BYTES + 4096 && piece.ends_with('\n')));
        let text = pieces.concat();
        let lines =
            text.lines().filter(|line| line.starts_with("kmirror_records_total{source=\"A\"")).count();
        assert_eq!(lines, count);
        assert_eq!(text.lines().filter(|line| line.starts_with("# TYPE")).count(), FAMILIES.len());
    }
}

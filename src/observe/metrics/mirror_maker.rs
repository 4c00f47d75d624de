//! MirrorMaker's metrics, by the names and labels under which the JMX exporter shows them in Prometheus.
//!
//! MirrorMaker registers `kafka.connect.mirror:type=MirrorSourceConnector,source=,target=,topic=,partition=` with the
//! topic's name on the target (`MirrorSourceMetrics.java`, `MirrorCheckpointMetrics.java`); the exporter's default format,
//! which Strimzi's rules spell out, makes `kafka_connect_mirror_mirrorsourceconnector_<attribute>` of it, all gauges.
//! [`RENAMED`] are the names that rules of older tutorials made, which called the target's label `destination`, too.
//!
//! Two things differ on purpose: bytes are those of stored batches, where MirrorMaker counts values alone, and ages are
//! those of the newest record of each batch. Beside them stand what Strimzi's dashboard asks for and what has a meaning
//! here: the lag of the source consumer, and how many connectors and tasks MirrorMaker would run.

use super::ours::{age, links};
use super::{Family, Labels, Line, Of};
use crate::mirror::measure::{Recent, Spread};
use crate::mirror::status::{FlowState, FlowStatus, GroupStatus, PartitionStatus, ReplicatorStatus};

type Write = fn(&mut Line<'_>, &PartitionStatus);

const fn partition(name: &'static str, (help, write): (&'static str, Write)) -> Family {
    Family { name, kind: "gauge", help, of: Of::RemotePartition(write, Labels::Plain) }
}

const fn renamed(name: &'static str, (help, write): (&'static str, Write)) -> Family {
    Family { name, kind: "gauge", help, of: Of::RemotePartition(write, Labels::Destination) }
}

const fn latency(
    name: &'static str,
    help: &'static str,
    write: fn(&mut Line<'_>, &GroupStatus, i64),
) -> Family {
    Family { name, kind: "gauge", help, of: Of::Group(write) }
}

fn min(spread: Spread) -> Option<f64> {
    spread.recent.map(|Recent { min, .. }| min as f64)
}

fn max(spread: Spread) -> Option<f64> {
    spread.recent.map(|Recent { max, .. }| max as f64)
}

fn avg(spread: Spread) -> Option<f64> {
    spread.recent.map(|Recent { avg, .. }| avg)
}

const RECORD_COUNT: (&str, Write) =
    ("Records replicated to the target cluster.", |line, of| line.value(of.counters.records));
const RECORD_RATE: (&str, Write) =
    ("Records replicated per second.", |line, of| line.value(of.traffic.record_rate));
const RECORD_AGE: (&str, Write) =
    ("Age of records when they were read.", |line, of| line.value(of.traffic.record_age_ms.last));
const RECORD_AGE_MAX: (&str, Write) =
    ("Largest age of records when they were read.", |line, of| line.maybe(max(of.traffic.record_age_ms)));
const RECORD_AGE_MIN: (&str, Write) =
    ("Smallest age of records when they were read.", |line, of| line.maybe(min(of.traffic.record_age_ms)));
const RECORD_AGE_AVG: (&str, Write) =
    ("Average age of records when they were read.", |line, of| line.maybe(avg(of.traffic.record_age_ms)));
const BYTE_COUNT: (&str, Write) =
    ("Bytes of batches replicated to the target cluster.", |line, of| line.value(of.counters.bytes));
const BYTE_RATE: (&str, Write) =
    ("Bytes of batches replicated per second.", |line, of| line.value(of.traffic.byte_rate));
const LATENCY: (&str, Write) = ("Age of records when the target had acknowledged them.", |line, of| {
    line.value(of.traffic.replication_latency_ms.last);
});
const LATENCY_MAX: (&str, Write) =
    ("Largest age of records when the target had acknowledged them.", |line, of| {
        line.maybe(max(of.traffic.replication_latency_ms));
    });
const LATENCY_MIN: (&str, Write) =
    ("Smallest age of records when the target had acknowledged them.", |line, of| {
        line.maybe(min(of.traffic.replication_latency_ms));
    });
const LATENCY_AVG: (&str, Write) =
    ("Average age of records when the target had acknowledged them.", |line, of| {
        line.maybe(avg(of.traffic.replication_latency_ms));
    });

/// A line for each partition that had a checkpoint of the group.
fn checkpoints(line: &mut Line<'_>, group: &GroupStatus, value: Option<f64>) {
    let Some(value) = value else { return };
    for target in group.checkpointed.iter() {
        line.value_with(&[("topic", &target.topic), ("partition", &target.partition.to_string())], value);
    }
}

/// Running flows with the connectors that MirrorMaker would have for each: the source connector, and the checkpoint
/// connector where checkpoints are on. Heartbeats have one for each pair.
fn connectors(status: &ReplicatorStatus) -> usize {
    let of = |flow: &FlowStatus| 1 + usize::from(flow.translation.groups.is_some());
    let running = status.flows.iter().filter(|flow| flow.state == FlowState::Running);
    running.map(of).sum::<usize>() + status.heartbeats.len()
}

/// In the order in which they are shown.
pub(super) const FAMILIES: &[Family] = &[
    partition("kafka_connect_mirror_mirrorsourceconnector_record_count", RECORD_COUNT),
    partition("kafka_connect_mirror_mirrorsourceconnector_record_rate", RECORD_RATE),
    partition("kafka_connect_mirror_mirrorsourceconnector_record_age_ms", RECORD_AGE),
    partition("kafka_connect_mirror_mirrorsourceconnector_record_age_ms_max", RECORD_AGE_MAX),
    partition("kafka_connect_mirror_mirrorsourceconnector_record_age_ms_min", RECORD_AGE_MIN),
    partition("kafka_connect_mirror_mirrorsourceconnector_record_age_ms_avg", RECORD_AGE_AVG),
    partition("kafka_connect_mirror_mirrorsourceconnector_byte_count", BYTE_COUNT),
    partition("kafka_connect_mirror_mirrorsourceconnector_byte_rate", BYTE_RATE),
    partition("kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms", LATENCY),
    partition("kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms_max", LATENCY_MAX),
    partition("kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms_min", LATENCY_MIN),
    partition("kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms_avg", LATENCY_AVG),
    latency(
        "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms",
        "Time from the making of the last checkpoint to its acknowledgement.",
        |line, group, now_ms| {
            checkpoints(line, group, Some(group.checkpoint_latency.spread(now_ms).last as f64))
        },
    ),
    latency(
        "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms_max",
        "Largest time from the making of a checkpoint to its acknowledgement.",
        |line, group, now_ms| checkpoints(line, group, max(group.checkpoint_latency.spread(now_ms))),
    ),
    latency(
        "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms_min",
        "Smallest time from the making of a checkpoint to its acknowledgement.",
        |line, group, now_ms| checkpoints(line, group, min(group.checkpoint_latency.spread(now_ms))),
    ),
    latency(
        "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms_avg",
        "Average time from the making of a checkpoint to its acknowledgement.",
        |line, group, now_ms| checkpoints(line, group, avg(group.checkpoint_latency.spread(now_ms))),
    ),
    Family {
        name: "kafka_consumer_fetch_manager_records_lag",
        kind: "gauge",
        help: "Source records still to be copied, by the client id of MirrorMaker's consumer.",
        of: Of::Consumer(|line, of| line.maybe(of.lag())),
    },
    Family {
        name: "kafka_connect_worker_connector_count",
        kind: "gauge",
        help: "Connectors that MirrorMaker would run for what this process does.",
        of: Of::Process(|line, status| line.value(connectors(status))),
    },
    Family {
        name: "kafka_connect_worker_task_count",
        kind: "gauge",
        help: "Tasks that MirrorMaker would run for what this process does, with tasks.max=1.",
        of: Of::Process(|line, status| line.value(connectors(status))),
    },
    Family {
        name: "kafka_mirrormaker2_heartbeat_lag",
        kind: "gauge",
        help: "Age in seconds of the newest heartbeat that has come over the flow; the same as kmirror_heartbeat_lag_seconds.",
        of: Of::Flow(|line, flow, now_ms| links(line, flow, |link| age(link.newest_ms, now_ms))),
    },
];

/// Names that rules of older tutorials made.
pub(super) const RENAMED: &[Family] = &[
    renamed("kafka_connect_mirror_source_connector_record_count", RECORD_COUNT),
    renamed("kafka_connect_mirror_source_connector_record_rate", RECORD_RATE),
    renamed("kafka_connect_mirror_source_connector_record_age_ms", RECORD_AGE),
    renamed("kafka_connect_mirror_source_connector_record_age_ms_max", RECORD_AGE_MAX),
    renamed("kafka_connect_mirror_source_connector_record_age_ms_min", RECORD_AGE_MIN),
    renamed("kafka_connect_mirror_source_connector_record_age_ms_avg", RECORD_AGE_AVG),
    renamed("kafka_connect_mirror_source_connector_byte_count", BYTE_COUNT),
    renamed("kafka_connect_mirror_source_connector_byte_rate", BYTE_RATE),
    renamed("kafka_connect_mirror_source_connector_replication_latency_ms", LATENCY),
    renamed("kafka_connect_mirror_source_connector_replication_latency_ms_max", LATENCY_MAX),
    renamed("kafka_connect_mirror_source_connector_replication_latency_ms_min", LATENCY_MIN),
    renamed("kafka_connect_mirror_source_connector_replication_latency_ms_avg", LATENCY_AVG),
];

//! What a flow needs to know. Built by `config`, with MirrorMaker's defaults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{PatternList, ReplicationPolicy};
use crate::client::{self, FetchSettings, ProduceSettings};

/// Everything that `kmirror run` does.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// `kmirror.memory.budget`: a ceiling over all flows, in bytes of batches alive.
    pub memory_budget_bytes: usize,
    /// The clusters by alias.
    pub clusters: BTreeMap<Arc<str>, client::Settings>,
    /// The flows that are enabled.
    pub flows: Vec<FlowSettings>,
    /// `--takeover-timeout`: how long a MirrorMaker that is still alive is waited for.
    pub takeover_timeout: Duration,
}

/// One flow `source->target`.
#[derive(Clone, Debug)]
pub struct FlowSettings {
    /// Alias of the source.
    pub source: Arc<str>,
    /// Alias of the target.
    pub target: Arc<str>,
    /// `topics`.
    pub topics: PatternList,
    /// `topics.exclude`.
    pub topics_exclude: PatternList,
    /// `replication.policy.*`.
    pub policy: ReplicationPolicy,
    /// `heartbeats.replication.enabled` (KIP-1089).
    pub heartbeats_replication: bool,
    /// `auto.offset.reset` of the source consumer: at a flow's first start only.
    pub auto_offset_reset: OffsetReset,
    /// `replication.factor` of remote topics.
    pub replication_factor: ReplicationFactor,
    /// `offset.storage.replication.factor` of `mm2-offsets.<S>.internal` and `mm2-kmirror.<S>.internal`.
    pub offset_storage_replication_factor: ReplicationFactor,
    /// `offset.storage.partitions`.
    pub offset_storage_partitions: i32,
    /// `offset.storage.topic`, `mm2-offsets.<S>.internal`.
    pub offset_storage_topic: String,
    /// `group.id` of MirrorMaker's worker on the target, `<S>-mm2`.
    pub worker_group_id: String,
    /// `refresh.topics.interval.seconds`; `None` when `refresh.topics.enabled=false`.
    pub refresh_topics_interval: Option<Duration>,
    /// `config.properties.exclude`.
    pub config_properties_exclude: PatternList,
    /// `use.defaults.from` (KIP-894).
    pub use_defaults_from: DefaultsFrom,
    /// `offset.flush.interval.ms`.
    pub offset_flush_interval: Duration,
    /// `kmirror.on.source.reset`.
    pub on_source_reset: OnSourceReset,
    /// `kmirror.on.oversize`.
    pub on_oversize: OnOversize,
    /// `kmirror.batching`.
    pub batching: Batching,
    /// `kmirror.batching.compressed`.
    pub batching_compressed: CompressedBatching,
    /// The source consumer.
    pub fetch: FetchSettings,
    /// The target producer.
    pub produce: ProduceSettings,
}

/// `auto.offset.reset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetReset {
    /// From the log start.
    Earliest,
    /// From the end.
    Latest,
    /// Stop the partition.
    None,
}

/// A replication factor, and whether the user named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationFactor {
    /// From the file: used as it is, or a clear error.
    Named(i16),
    /// MirrorMaker's default: lowered to the live brokers, with a warning.
    Default(i16),
}

/// `use.defaults.from` (KIP-894).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultsFrom {
    /// Settings that are default at the source stay default at the target.
    Target,
    /// They are set explicitly to the source's value.
    Source,
}

/// `kmirror.on.source.reset`: what a new topic id, an end before our position or a diverged epoch leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSourceReset {
    /// The partition stops with its reason.
    Stop,
    /// The new log is appended from its start; the gap is recorded.
    Append,
}

/// `kmirror.on.oversize`: a single record that the target's limit cannot take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOversize {
    /// The partition stops with its reason.
    Stop,
    /// The record is left out, counted and recorded with its offset.
    Skip,
}

/// `kmirror.batching`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// Small uncompressed neighbours that wait anyway are merged.
    Adaptive,
    /// Never merge.
    Verbatim,
}

/// `kmirror.batching.compressed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressedBatching {
    /// Small compressed neighbours are merged while their partition's backlog grows.
    Backlog,
    /// Never.
    Never,
}

//! What a flow needs to know. Built by `config`, with MirrorMaker's defaults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::member::MemberSettings;
use super::mm2::settings::{HeartbeatSettings, TranslationSettings};
use super::takeover::{Connectors, Workers};
use super::{
    Compat, Gathering, NameFormat, Onward, OtherShare, PatternList, PrincipalMap, ReplicationPolicy,
    configs_topic, offsets_topic,
};
use crate::client::{self, FetchSettings, ProduceSettings};
use crate::record::Codec;

/// Everything that `kmirror run` does.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// `kmirror.memory.budget`: a ceiling over all flows, in bytes of batches alive.
    pub memory_budget_bytes: usize,
    /// The clusters by alias.
    pub clusters: BTreeMap<Arc<str>, client::Settings>,
    /// The flows that are enabled.
    pub flows: Vec<FlowSettings>,
    /// Heartbeats, one for each pair of clusters that has them.
    pub heartbeats: Vec<HeartbeatSettings>,
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
    /// Topics of the flow that other processes take; none but while the flow is written.
    pub others: Arc<[OtherShare]>,
    /// What other files call the target, as far as their flows to the source tell: nothing of these names is copied back.
    pub target_names: Arc<[Arc<str>]>,
    /// Other flows by which what this one writes may come back to its source.
    pub onward: Arc<[Onward]>,
    /// `replication.policy.*`.
    pub policy: ReplicationPolicy,
    /// `kmirror.group.format`: what groups are called on the target; `None` keeps their ids.
    pub group_format: Option<NameFormat>,
    /// `kmirror.acl.principal.map`: what principals are called on the target.
    pub principal_map: PrincipalMap,
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
    /// `offset.storage.topic`, `mm2-offsets.<S>.internal`, or `kmirror.connect.offsets.topic`.
    pub offset_storage_topic: String,
    /// `group.id` of MirrorMaker's worker on the target, `<S>-mm2`, or `kmirror.connect.group.id`.
    pub worker_group_id: String,
    /// Whose group that is.
    pub workers: Workers,
    /// `config.storage.topic` of MirrorMaker's worker, `mm2-configs.<S>.internal`, or `kmirror.connect.config.topic`.
    pub config_storage_topic: String,
    /// What MirrorMaker's connectors are called: `kmirror.connect.source.connector` and its like.
    pub connectors: Connectors,
    /// `kmirror.on.paused`.
    pub on_paused: OnPaused,
    /// `refresh.topics.interval.seconds`; `None` when `refresh.topics.enabled=false`. MirrorMaker's default is ten minutes,
    /// ours ten seconds: a round without news costs one Metadata request on either side.
    pub refresh_topics_interval: Option<Duration>,
    /// `config.properties.exclude`.
    pub config_properties_exclude: PatternList,
    /// `sync.topic.configs.interval.seconds`; `None` when `sync.topic.configs.enabled=false`.
    pub sync_topic_configs_interval: Option<Duration>,
    /// `sync.topic.acls.interval.seconds`; `None` when `sync.topic.acls.enabled=false`.
    pub sync_topic_acls_interval: Option<Duration>,
    /// `use.defaults.from` (KIP-894).
    pub use_defaults_from: DefaultsFrom,
    /// `offset.flush.interval.ms`.
    pub offset_flush_interval: Duration,
    /// `kmirror.on.source.reset`.
    pub on_source_reset: OnSourceReset,
    /// `kmirror.on.oversize`, or else `errors.tolerance`.
    pub on_oversize: OnOversize,
    /// `errors.tolerance`.
    pub on_refused: OnRefused,
    /// When retries that go on count as trouble.
    pub retry_limits: RetryLimits,
    /// `errors.retry.delay.max.ms`: the longest pause before a stopped partition that may heal is tried again.
    pub retry_delay_max: Duration,
    /// `compression.type` of the target producer; `None` keeps the source's codec.
    pub compression: Option<Codec>,
    /// `batch.size` and `linger.ms` of the target producer, for what is dealt out by key.
    pub gathering: Gathering,
    /// `kmirror.batching`.
    pub batching: Batching,
    /// `kmirror.batching.compressed`.
    pub batching_compressed: CompressedBatching,
    /// Offset syncs, checkpoints and group offsets.
    pub translation: TranslationSettings,
    /// The source's consumer group, whose member the flow is as MirrorMaker 1; `None` for flows of MirrorMaker 2.
    pub group: Option<MemberSettings>,
    /// The source consumer.
    pub fetch: FetchSettings,
    /// The target producer.
    pub produce: ProduceSettings,
}

/// `topics.exclude` where the file names none.
pub fn topics_exclude_default(compat: Compat) -> &'static [&'static str] {
    match compat {
        Compat::V3_9 => &[".*[\\-\\.]internal", ".*\\.replica", "__.*"],
        Compat::V4_3 | Compat::V4_4 => &["mm2.*\\.internal", ".*\\.replica", "__.*"],
    }
}

/// `config.properties.exclude` where the file names none. MirrorMaker 4.3 means to exclude both timestamp limits, but
/// names the broker's keys, which no topic has (KAFKA-20163); their topic keys are listed here as well.
pub const CONFIG_PROPERTIES_EXCLUDE_DEFAULT: [&str; 10] = [
    "follower\\.replication\\.throttled\\.replicas",
    "leader\\.replication\\.throttled\\.replicas",
    "message\\.timestamp\\.difference\\.max\\.ms",
    "log\\.message\\.timestamp\\.before\\.max\\.ms",
    "log\\.message\\.timestamp\\.after\\.max\\.ms",
    "message\\.timestamp\\.before\\.max\\.ms",
    "message\\.timestamp\\.after\\.max\\.ms",
    "message\\.timestamp\\.type",
    "unclean\\.leader\\.election\\.enable",
    "min\\.insync\\.replicas",
];

/// `config.properties.exclude` of a release: before 4.3 the timestamp limits were copied.
pub fn config_properties_exclude_default(compat: Compat) -> Vec<&'static str> {
    let of_4_3 = |name: &&str| name.contains("before") || name.contains("after");
    let all = CONFIG_PROPERTIES_EXCLUDE_DEFAULT.into_iter();
    all.filter(|name| compat != Compat::V3_9 || !of_4_3(name)).collect()
}

impl FlowSettings {
    /// MirrorMaker's defaults for a flow, but for three that are shorter here: `offset.flush.interval.ms` with 5 s,
    /// `refresh.topics.interval.seconds` with 10 s and `refresh.groups.interval.seconds` with 60 s.
    pub fn new(source: &str, target: &str) -> FlowSettings {
        let list = |patterns: &[&str]| PatternList::new(patterns).expect("the defaults are valid patterns");
        FlowSettings {
            source: Arc::from(source),
            target: Arc::from(target),
            topics: list(&[".*"]),
            topics_exclude: list(topics_exclude_default(Compat::default())),
            others: Arc::default(),
            target_names: Arc::default(),
            onward: Arc::default(),
            policy: ReplicationPolicy::default(),
            group_format: None,
            principal_map: PrincipalMap::default(),
            heartbeats_replication: true,
            auto_offset_reset: OffsetReset::Earliest,
            replication_factor: ReplicationFactor::Default(2),
            offset_storage_replication_factor: ReplicationFactor::Default(3),
            offset_storage_partitions: 25,
            offset_storage_topic: offsets_topic(source),
            worker_group_id: format!("{source}-mm2"),
            workers: Workers::Dedicated,
            config_storage_topic: configs_topic(source),
            connectors: Connectors::default(),
            on_paused: OnPaused::Honour,
            refresh_topics_interval: Some(Duration::from_secs(10)),
            config_properties_exclude: list(&CONFIG_PROPERTIES_EXCLUDE_DEFAULT),
            sync_topic_configs_interval: Some(Duration::from_secs(600)),
            sync_topic_acls_interval: Some(Duration::from_secs(600)),
            use_defaults_from: DefaultsFrom::Target,
            offset_flush_interval: Duration::from_secs(5),
            on_source_reset: OnSourceReset::Stop,
            on_oversize: OnOversize::Stop,
            on_refused: OnRefused::Stop,
            retry_limits: RetryLimits::default(),
            retry_delay_max: Duration::from_secs(300),
            compression: None,
            gathering: Gathering::default(),
            batching: Batching::Adaptive,
            batching_compressed: CompressedBatching::Backlog,
            translation: TranslationSettings::default(),
            group: None,
            fetch: FetchSettings::default(),
            produce: ProduceSettings::default(),
        }
    }

    /// What a group of the source is called on the target.
    pub fn remote_group(&self, group: &str) -> String {
        self.group_format
            .as_ref()
            .map_or_else(|| group.to_owned(), |format| format.format(&self.source, group))
    }

    /// What a principal of the source is called on the target.
    pub fn remote_principal(&self, principal: &str) -> String {
        self.principal_map.map(principal, &self.source, &self.target)
    }
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

/// `errors.tolerance`: a record whose content the target refuses (INVALID_TIMESTAMP, INVALID_RECORD). Nothing else is ever
/// left out: authorisation, topics and connections are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRefused {
    /// `none`: the partition stops with its reason.
    Stop,
    /// `all`: the record is left out, counted and recorded with its offset.
    Skip,
}

/// What ends delivery in Kafka's producer and in Connect, and here only says when `/readyz` turns: delivery goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// `errors.retry.timeout`: how long a flow that was ready may be without one of its clusters; `None` (-1) for ever.
    pub outage_max: Option<Duration>,
    /// `delivery.timeout.ms` of the target producer: how long records of a partition may wait without any being acknowledged.
    pub delivery_timeout: Duration,
    /// `retries` of the target producer: how often in a row a partition's batch may fail and be sent again.
    pub retries: u32,
}

impl Default for RetryLimits {
    fn default() -> RetryLimits {
        RetryLimits {
            outage_max: Some(Duration::ZERO),
            delivery_timeout: Duration::from_secs(120),
            retries: i32::MAX.unsigned_abs(),
        }
    }
}

/// `kmirror.on.paused`: a source connector of MirrorMaker that somebody has paused or stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPaused {
    /// The flow stands still until the connector is resumed.
    Honour,
    /// The flow runs.
    Ignore,
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

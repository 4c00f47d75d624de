//! What MirrorMaker's connectors do beside copying records: offset syncs, checkpoints, group offsets, heartbeats.

use std::sync::Arc;
use std::time::Duration;

use crate::mirror::{PatternList, ReplicationFactor};

/// `groups.exclude` where the file names none.
pub const GROUPS_EXCLUDE_DEFAULT: [&str; 3] = ["console-consumer-.*", "connect-.*", "__.*"];

/// Offset syncs, checkpoints and group offsets of one flow.
#[derive(Clone, Debug)]
pub struct TranslationSettings {
    /// `emit.offset-syncs.enabled` (KIP-1031) and how; `None` when they are off.
    pub offset_syncs: Option<OffsetSyncSettings>,
    /// `offset-syncs.topic.location`; the syncs that a MirrorMaker left are read there in any case.
    pub offset_syncs_location: OffsetSyncsLocation,
    /// `groups`.
    pub groups: PatternList,
    /// `groups.exclude`.
    pub groups_exclude: PatternList,
    /// `refresh.groups.interval.seconds`; `None` when `refresh.groups.enabled=false`: the groups of the first round stay.
    /// MirrorMaker's default is ten minutes, ours one.
    pub refresh_groups_interval: Option<Duration>,
    /// `emit.checkpoints.interval.seconds`; `None` when `emit.checkpoints.enabled=false`, which ends group offsets, too.
    pub emit_checkpoints_interval: Option<Duration>,
    /// `checkpoints.topic.replication.factor`.
    pub checkpoints_replication_factor: ReplicationFactor,
    /// `sync.group.offsets.interval.seconds`; `None` unless `sync.group.offsets.enabled=true`.
    pub sync_group_offsets_interval: Option<Duration>,
}

/// How offset syncs are emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetSyncSettings {
    /// `offset.lag.max`: how far, in records, the newest sync may lie behind before one is emitted at once.
    pub offset_lag_max: i64,
    /// `offset-syncs.topic.replication.factor`.
    pub replication_factor: ReplicationFactor,
}

/// `offset-syncs.topic.location` (KIP-716).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSyncsLocation {
    /// `mm2-offset-syncs.<T>.internal` on the source.
    Source,
    /// `mm2-offset-syncs.<S>.internal` on the target.
    Target,
}

/// Heartbeats of one pair of clusters. They are emitted for a pair whose flow is off as well, so that the flow the other way
/// has something to copy while its topics are silent (`MirrorMakerConfig.clusterPairs`).
#[derive(Clone, Debug)]
pub struct HeartbeatSettings {
    /// Alias of the source.
    pub source: Arc<str>,
    /// Alias of the target, where they are written.
    pub target: Arc<str>,
    /// `emit.heartbeats.interval.seconds`.
    pub interval: Duration,
    /// `heartbeats.topic.replication.factor`.
    pub replication_factor: ReplicationFactor,
}

impl Default for TranslationSettings {
    /// MirrorMaker's defaults, but for `refresh.groups.interval.seconds`.
    fn default() -> TranslationSettings {
        let list = |patterns: &[&str]| PatternList::new(patterns).expect("the defaults are valid patterns");
        let factor = ReplicationFactor::Default(3);
        TranslationSettings {
            offset_syncs: Some(OffsetSyncSettings { offset_lag_max: 100, replication_factor: factor }),
            offset_syncs_location: OffsetSyncsLocation::Source,
            groups: list(&[".*"]),
            groups_exclude: list(&GROUPS_EXCLUDE_DEFAULT),
            refresh_groups_interval: Some(Duration::from_secs(60)),
            emit_checkpoints_interval: Some(Duration::from_secs(60)),
            checkpoints_replication_factor: factor,
            sync_group_offsets_interval: None,
        }
    }
}

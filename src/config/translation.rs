//! The keys of offset syncs, checkpoints, group offsets and heartbeats.
//!
//! `MirrorCheckpointConfig.validate` and `MirrorSourceConnector.validate` refuse combinations that cannot work; so does
//! this.

use std::sync::Arc;
use std::time::Duration;

use super::flow::{factor, patterns};
use super::reader::{Fallback, Reader};
use super::values;
use crate::mirror::mm2::settings::{
    GROUPS_EXCLUDE_DEFAULT, HeartbeatSettings, OffsetSyncSettings, OffsetSyncsLocation, TranslationSettings,
};

/// What a flow translates, from the scope of its connectors.
pub(super) fn read(reader: &mut Reader<'_>) -> TranslationSettings {
    let ours = TranslationSettings::default();
    let locations = [("source", OffsetSyncsLocation::Source), ("target", OffsetSyncsLocation::Target)];
    let location = reader.choice("offset-syncs.topic.location", &locations, "source");
    let syncs = OffsetSyncSettings {
        offset_lag_max: reader.integer("offset.lag.max", 100, 0, i64::MAX),
        replication_factor: factor(reader, "offset-syncs.topic.replication.factor", 3),
    };
    let emits_syncs = reader.boolean("emit.offset-syncs.enabled", true);
    refuse_syncs_that_are_off(reader, emits_syncs);
    let emits_checkpoints = reader.boolean("emit.checkpoints.enabled", true);
    let checkpoints_every = seconds(reader, "emit.checkpoints.interval.seconds", Fallback::Theirs("60"), 60);
    let syncs_groups = reader.boolean("sync.group.offsets.enabled", false);
    let groups_every = seconds(reader, "sync.group.offsets.interval.seconds", Fallback::Theirs("60"), 60);
    if syncs_groups
        && !emits_checkpoints
        && let Some(setting) = reader.scope.get("sync.group.offsets.enabled")
    {
        let message = "sync.group.offsets.enabled has no effect without emit.checkpoints.enabled";
        reader.warning(setting, message.to_owned());
    }
    let refreshes = reader.boolean("refresh.groups.enabled", true);
    let refresh_every = seconds(reader, "refresh.groups.interval.seconds", Fallback::Ours("60"), 60);
    TranslationSettings {
        offset_syncs: emits_syncs.then_some(syncs),
        offset_syncs_location: location.unwrap_or(ours.offset_syncs_location),
        groups: patterns(reader, "groups", None, &[".*"]),
        groups_exclude: patterns(reader, "groups.exclude", Some("groups.blacklist"), &GROUPS_EXCLUDE_DEFAULT),
        refresh_groups_interval: refreshes.then_some(refresh_every),
        emit_checkpoints_interval: emits_checkpoints.then_some(checkpoints_every),
        checkpoints_replication_factor: factor(reader, "checkpoints.topic.replication.factor", 3),
        sync_group_offsets_interval: (syncs_groups && emits_checkpoints).then_some(groups_every),
    }
}

/// The heartbeats of a pair; `None` when they are off.
pub(super) fn read_heartbeats(
    reader: &mut Reader<'_>,
    source: &str,
    target: &str,
) -> Option<HeartbeatSettings> {
    let emits = reader.boolean("emit.heartbeats.enabled", true);
    let interval = seconds(reader, "emit.heartbeats.interval.seconds", Fallback::Theirs("1"), 1);
    let replication_factor = factor(reader, "heartbeats.topic.replication.factor", 3);
    emits.then(|| HeartbeatSettings {
        source: Arc::from(source),
        target: Arc::from(target),
        interval,
        replication_factor,
    })
}

/// `MirrorSourceConnector.validate`: with syncs off, a key that is about their topic is an error. Without syncs MirrorMaker
/// makes no checkpoints; here they come from what is copied now and needs no syncs.
fn refuse_syncs_that_are_off(reader: &mut Reader<'_>, emits_syncs: bool) {
    if emits_syncs {
        return;
    }
    for key in ["offset-syncs.topic.location", "offset-syncs.topic.replication.factor"] {
        if let Some(setting) = reader.scope.get(key) {
            let message = format!("{key} is set, but emit.offset-syncs.enabled is false");
            reader.error(setting, message, Some("leave one of the two out"));
        }
    }
}

fn seconds(reader: &mut Reader<'_>, key: &str, shown: Fallback<'_>, default: u64) -> Duration {
    let read =
        |value: &str| Ok(Duration::from_secs(values::integer(value, 1, i64::MAX / 1000)?.unsigned_abs()));
    reader.parse(key, shown, Duration::from_secs(default), read)
}

//! Keys that MirrorMaker does not have, but that tutorials and answers on the web write: each has one clear meaning, and is
//! honoured with a warning.

/// What is written, and the key that is meant.
const MISNAMED: &[(&str, &str)] = &[
    ("enable", "enabled"),
    // The words without the last one, as the documentation of geo-replication has `emit.heartbeats`.
    ("emit.checkpoints", "emit.checkpoints.enabled"),
    ("emit.checkpoints.interval", "emit.checkpoints.interval.seconds"),
    ("emit.heartbeats", "emit.heartbeats.enabled"),
    ("emit.heartbeats.interval", "emit.heartbeats.interval.seconds"),
    ("emit.offset-syncs", "emit.offset-syncs.enabled"),
    ("heartbeats.replication", "heartbeats.replication.enabled"),
    ("refresh.groups", "refresh.groups.enabled"),
    ("refresh.groups.interval", "refresh.groups.interval.seconds"),
    ("refresh.topics", "refresh.topics.enabled"),
    ("refresh.topics.interval", "refresh.topics.interval.seconds"),
    ("sync.group.offsets", "sync.group.offsets.enabled"),
    ("sync.group.offsets.interval", "sync.group.offsets.interval.seconds"),
    ("sync.topic.acls", "sync.topic.acls.enabled"),
    ("sync.topic.acls.interval", "sync.topic.acls.interval.seconds"),
    ("sync.topic.configs", "sync.topic.configs.enabled"),
    ("sync.topic.configs.interval", "sync.topic.configs.interval.seconds"),
    // A word more or less, or another one.
    ("checkpoint.topic.replication.factor", "checkpoints.topic.replication.factor"),
    ("checkpoints.enabled", "emit.checkpoints.enabled"),
    ("emit.checkpoint.enabled", "emit.checkpoints.enabled"),
    ("emit.heartbeat.enabled", "emit.heartbeats.enabled"),
    ("heartbeat.topic.replication.factor", "heartbeats.topic.replication.factor"),
    ("heartbeats.enabled", "emit.heartbeats.enabled"),
    ("offset.syncs.topic.location", "offset-syncs.topic.location"),
    ("offset.syncs.topic.replication.factor", "offset-syncs.topic.replication.factor"),
    ("sync.group.offset.enabled", "sync.group.offsets.enabled"),
    ("sync.topic.acl.enabled", "sync.topic.acls.enabled"),
    ("sync.topic.config.enabled", "sync.topic.configs.enabled"),
    // MirrorMaker 1's words, and those of the lists before 2.7.
    ("blacklist", "topics.exclude"),
    ("exclude", "topics.exclude"),
    ("group.blacklist", "groups.exclude"),
    ("group.whitelist", "groups"),
    ("groups.include", "groups"),
    ("groups.whitelist", "groups"),
    ("include", "topics"),
    ("topic", "topics"),
    ("topic.blacklist", "topics.exclude"),
    ("topic.exclude", "topics.exclude"),
    ("topic.whitelist", "topics"),
    ("topics.excludes", "topics.exclude"),
    ("topics.include", "topics"),
    ("topics.whitelist", "topics"),
    ("whitelist", "topics"),
];

/// What tutorials call MirrorMaker's own topics.
const TOPICS: &[(&str, &str)] = &[
    ("__checkpoint", "<source>.checkpoints.internal, which is never replicated"),
    ("__checkpoints", "<source>.checkpoints.internal, which is never replicated"),
    ("__heartbeat", "heartbeats"),
    ("__heartbeats", "heartbeats"),
];

/// The key that is meant by one that nobody knows, both without a prefix.
pub(super) fn meant(key: &str) -> Option<&'static str> {
    MISNAMED.iter().find(|(written, _)| *written == key).map(|&(_, meant)| meant)
}

/// The name of MirrorMaker's topic that is meant by an item of a list of topics.
pub(super) fn topic_meant(item: &str) -> Option<&'static str> {
    TOPICS.iter().find(|(written, _)| *written == item).map(|&(_, meant)| meant)
}

#[cfg(test)]
mod tests {
    use super::super::keys;
    use super::*;

    #[test]
    fn what_is_written_is_no_key_and_what_is_meant_is_one() {
        for (written, meant) in MISNAMED {
            assert!(keys::find(written).is_none(), "{written}");
            assert!(keys::find(meant).is_some(), "{meant}");
            assert!(MISNAMED.iter().filter(|(other, _)| other == written).count() == 1, "{written}");
        }
    }
}

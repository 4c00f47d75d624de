//! Which groups a flow translates, and by which name a topic goes in their checkpoints. Pure.
//!
//! MirrorMaker takes classic and consumer groups whose protocol type is `consumer`, or empty where offsets were only
//! committed (`MirrorCheckpointConnector`, `ListGroupsOptions.forConsumerGroups`), and leaves streams groups (KIP-1071)
//! out; their offsets are offsets like any other, so they are taken here. Share groups and Connect's own have none to
//! translate.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::client::ListedGroup;
use crate::mirror::FlowSettings;
use crate::mirror::rights::literals;

/// Groups that are asked for without being listed.
const UNLISTED_MAX: usize = 1_000;

/// Whether the offsets of a listed group are translated.
pub(in crate::mirror) fn selects_group(settings: &FlowSettings, group: &ListedGroup) -> bool {
    let has_offsets = match group.group_type.to_ascii_lowercase().as_str() {
        // Brokers before 3.9 do not tell the type.
        "" | "classic" => matches!(group.protocol_type.as_str(), "" | "consumer"),
        "consumer" | "streams" => true,
        _ => false,
    };
    let translation = &settings.translation;
    has_offsets && translation.groups.matches(&group.id) && !translation.groups_exclude.matches(&group.id)
}

/// The groups that the settings call by name and the source does not list: they are not there, or we may not see them.
pub(super) fn unlisted_groups(settings: &FlowSettings, listed: &[ListedGroup]) -> Vec<Arc<str>> {
    let listed: BTreeSet<&str> = listed.iter().map(|group| &*group.id).collect();
    let translation = &settings.translation;
    let named = literals(&translation.groups).into_iter();
    let unlisted =
        named.filter(|group| !listed.contains(group.as_str()) && !translation.groups_exclude.matches(group));
    unlisted.take(UNLISTED_MAX).map(Arc::from).collect()
}

/// Whether offsets of a source topic are translated (`shouldCheckpointTopic`).
pub(super) fn selects_topic(settings: &FlowSettings, topic: &str) -> bool {
    settings.topics.matches(topic) && !settings.topics_exclude.matches(topic)
}

/// A source topic's name on the target (`renameTopicPartition`).
pub(super) fn name_on_target(settings: &FlowSettings, topic: &str) -> Arc<str> {
    let policy = &settings.policy;
    if policy.topic_source(&settings.source, topic) == Some(&settings.target) {
        Arc::from(policy.original_topic(topic))
    } else {
        Arc::from(policy.remote_topic(&settings.source, topic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::PatternList;

    #[test]
    fn groups_are_selected_by_their_kind_and_name() {
        let mut settings = FlowSettings::new("A", "B");
        settings.translation.groups = PatternList::new(&["[a-z]+", "connect-x"]).unwrap();
        for (id, group_type, protocol_type, selected) in [
            ("app", "Classic", "consumer", true),
            ("app", "", "consumer", true),
            ("app", "classic", "", true),
            ("app", "Consumer", "consumer", true),
            ("app", "Streams", "streams", true),
            ("app", "Share", "share", false),
            ("app", "classic", "connect", false),
            ("app", "classic", "kmirror", false),
            ("app2", "classic", "consumer", false),
            ("connect-x", "classic", "consumer", false),
        ] {
            let group = ListedGroup {
                id: Arc::from(id),
                protocol_type: protocol_type.to_owned(),
                state: "Empty".to_owned(),
                group_type: group_type.to_owned(),
            };
            assert_eq!(selects_group(&settings, &group), selected, "{group:?}");
        }
    }

    #[test]
    fn a_topic_that_came_from_the_target_gets_its_name_back() {
        let settings = FlowSettings::new("A", "B");
        for (topic, name) in [("t", "A.t"), ("B.t", "t"), ("C.t", "A.C.t"), ("B.C.t", "t")] {
            assert_eq!(&*name_on_target(&settings, topic), name);
        }
        assert!(selects_topic(&settings, "t") && !selects_topic(&settings, "__t"));
    }
}

//! Replication policies: how a topic is called on the target, what a name says of its origin, and which topics a flow
//! takes.
//!
//! The rules are `DefaultReplicationPolicy`, `IdentityReplicationPolicy`, `ReplicationPolicy` and
//! `MirrorSourceConnector.shouldReplicateTopic` of MirrorMaker 4.3; where 3.9 or 4.4 decide otherwise, [`Compat`] says so.
//! Names alone decide: nothing here knows whether a topic exists.

use std::sync::Arc;

use super::{FlowSettings, NameFormat, Rename, TopicRewrites};

const HEARTBEATS_TOPIC: &str = "heartbeats";
/// Separator in the names of the internal topics when `replication.policy.internal.topic.separator.enabled=false`.
const DEFAULT_SEPARATOR: &str = ".";
/// What `exclude.internal.topics` leaves out (`Topic.INTERNAL_TOPICS`), and the log of a KRaft cluster.
const KAFKAS_TOPICS: [&str; 4] =
    ["__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"];
/// Kafka's limit (`Topic.MAX_NAME_LENGTH`).
const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Which policy names the topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// `DefaultReplicationPolicy`: source alias, separator, topic.
    Default,
    /// `IdentityReplicationPolicy`: the name stays, except for heartbeats.
    Identity,
    /// `kmirror.replication.policy.format`.
    Format,
    /// As MirrorMaker 1: every name stays, unless it is rewritten, and nothing but Kafka's own topics is internal.
    Same,
}

/// Whose rules decide about internal topics and cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compat {
    /// Up to 3.9: whatever ends in `.internal` or `-internal` is internal.
    V3_9,
    /// 4.0 to 4.3: only MirrorMaker's own topics are (KIP-1074).
    #[default]
    V4_3,
    /// From 4.4 a name that carries the source's own alias is a cycle, too (KAFKA-9914).
    V4_4,
}

/// A replication policy with its separators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationPolicy {
    /// Which one.
    pub kind: PolicyKind,
    /// `replication.policy.separator`; never empty.
    pub separator: String,
    /// The separator in the names of internal topics (KIP-949).
    pub internal_separator: String,
    /// Whose rules: `kmirror.compat`.
    pub compat: Compat,
    /// The format of names, for [`PolicyKind::Format`].
    pub format: Option<NameFormat>,
    /// A chain of `RegexRouter`s: what a remote topic is renamed to, one after the other.
    pub renames: Vec<Rename>,
    /// `--rewrite.topics` of MirrorMaker 1, for [`PolicyKind::Same`].
    pub rewrites: TopicRewrites,
}

impl Default for ReplicationPolicy {
    fn default() -> ReplicationPolicy {
        ReplicationPolicy {
            kind: PolicyKind::Default,
            separator: DEFAULT_SEPARATOR.to_owned(),
            internal_separator: DEFAULT_SEPARATOR.to_owned(),
            compat: Compat::default(),
            format: None,
            renames: Vec::new(),
            rewrites: TopicRewrites::default(),
        }
    }
}

/// Whether a flow takes a topic, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// By `topics`.
    Replicated,
    /// A heartbeats topic, by `heartbeats.replication.enabled`.
    Heartbeats,
    /// `topics` does not name it.
    NotMatched,
    /// `topics.exclude` names it.
    Excluded,
    /// Another process takes it.
    Elsewhere {
        /// Which.
        holder: Arc<str>,
    },
    /// A topic of Kafka's, MirrorMaker's or kmirror's own.
    Internal,
    /// It came from this cluster, or would go round.
    Cycle {
        /// The alias in its name that says so.
        alias: String,
    },
    /// Another flow would bring it back, and it would be taken again.
    ComesBack {
        /// Which.
        by: Arc<str>,
    },
    /// Its name on the target would be longer than Kafka allows.
    NameTooLong {
        /// That name.
        remote_topic: String,
    },
    /// A pattern took too many steps on this name.
    MatchGivenUp,
}

impl Selection {
    /// Whether the topic is taken.
    pub fn is_replicated(&self) -> bool {
        matches!(self, Selection::Replicated | Selection::Heartbeats)
    }
}

/// Decides whether a flow takes a topic of its source, wherever it goes from there.
pub(super) fn selects_alone(settings: &FlowSettings, topic: &str) -> Selection {
    let policy = &settings.policy;
    if policy.is_internal_topic(topic) {
        return Selection::Internal;
    }
    let heartbeats = settings.heartbeats_replication && policy.is_heartbeats_topic(topic);
    let selection = match (settings.topics.try_matches(topic), settings.topics_exclude.try_matches(topic)) {
        (Ok(true), Ok(false)) => Selection::Replicated,
        _ if heartbeats => Selection::Heartbeats,
        (Ok(false), _) => return Selection::NotMatched,
        (_, Ok(true)) => return Selection::Excluded,
        (Err(_), _) | (_, Err(_)) => return Selection::MatchGivenUp,
    };
    let mut names = std::iter::once(&settings.target).chain(settings.target_names.iter());
    if let Some(alias) = names.find_map(|name| policy.cycle(&settings.source, name, topic)) {
        return Selection::Cycle { alias: alias.to_owned() };
    }
    // Heartbeats are everybody's, so the first takes them.
    if let Some(other) = settings.others.iter().find(|other| heartbeats || other.takes(topic)) {
        return Selection::Elsewhere { holder: Arc::clone(&other.holder) };
    }
    let remote_topic = policy.remote_topic(&settings.source, topic);
    if remote_topic.len() > TOPIC_NAME_BYTES_MAX {
        return Selection::NameTooLong { remote_topic };
    }
    selection
}

impl ReplicationPolicy {
    /// What `topic` of `source` is called on the target (`formatRemoteTopic`).
    pub fn remote_topic(&self, source: &str, topic: &str) -> String {
        let named = match self.rule(topic) {
            Rule::Keep if self.kind == PolicyKind::Same => self.rewrites.apply(topic),
            Rule::Keep => topic.to_owned(),
            Rule::Alias => format!("{source}{}{topic}", self.separator),
            Rule::Format(format) => format.format(source, topic),
        };
        self.renames.iter().fold(named, |name, rename| rename.apply(&name).into_owned())
    }

    /// Whether the names that it gives do not tell the cluster that a topic came from: nothing then keeps a topic from
    /// going round between flows.
    pub fn hides_source(&self, source: &str) -> bool {
        const PROBE: &str = "topic";
        let remote = self.remote_topic(source, PROBE);
        let names_no_source = match self.rule(PROBE) {
            Rule::Keep => true,
            Rule::Alias => false,
            Rule::Format(format) => !format.has_source(),
        };
        names_no_source
            || self.topic_source(source, &remote) != Some(source)
            || self.upstream_topic(&remote) != Some(PROBE)
    }

    /// The alias of the cluster that `topic` came from; `source` is the flow's source, which the identity policy
    /// answers for every name.
    pub fn topic_source<'a>(&self, source: &'a str, topic: &'a str) -> Option<&'a str> {
        match self.rule(topic) {
            Rule::Keep => Some(source),
            Rule::Alias => self.split(topic).map(|(alias, _)| alias),
            Rule::Format(format) => format.parse(topic).map(|parsed| parsed.source.unwrap_or(source)),
        }
    }

    /// What `topic` is called on the cluster that it came from.
    pub fn upstream_topic<'a>(&self, topic: &'a str) -> Option<&'a str> {
        match self.rule(topic) {
            Rule::Keep => Some(topic),
            Rule::Alias => self.split(topic).map(|(_, upstream)| upstream),
            Rule::Format(format) => format.parse(topic).map(|parsed| parsed.name),
        }
    }

    /// What `topic` is called on the cluster where it was created first.
    pub fn original_topic<'a>(&self, topic: &'a str) -> &'a str {
        let mut name = topic;
        while let Some(upstream) = self.upstream_topic(name).filter(|&upstream| upstream != name) {
            name = upstream;
        }
        name
    }

    /// Whether `topic` holds heartbeats, over any number of hops.
    pub fn is_heartbeats_topic(&self, topic: &str) -> bool {
        self.kind != PolicyKind::Same && self.original_topic(topic) == HEARTBEATS_TOPIC
    }

    /// Whether `topic` is one that nobody replicates.
    pub fn is_internal_topic(&self, topic: &str) -> bool {
        if self.kind == PolicyKind::Same {
            return KAFKAS_TOPICS.contains(&topic);
        }
        if topic.starts_with("__") || topic.starts_with('.') || is_kmirror_topic(topic) {
            return true;
        }
        let suffix = format!("{}internal", self.internal_separator);
        if self.compat == Compat::V3_9 {
            return topic.ends_with(&suffix) || topic.ends_with("-internal") || topic.ends_with(".internal");
        }
        let checkpoints = format!("{}checkpoints{suffix}", self.internal_separator);
        (topic.starts_with("mm2") && topic.ends_with(&suffix)) || topic.ends_with(&checkpoints)
    }

    /// The alias in the name of `topic` for which the flow `source->target` must not take it.
    pub fn cycle<'a>(&self, source: &'a str, target: &str, topic: &'a str) -> Option<&'a str> {
        let mut name = topic;
        loop {
            let alias = self.topic_source(source, name)?;
            let home = self.compat == Compat::V4_4 && self.kind == PolicyKind::Default && alias == source;
            if alias == target || home {
                return Some(alias);
            }
            // The identity policy names no other upstream, so it offers no protection beyond this.
            name = self.upstream_topic(name).filter(|&upstream| upstream != name)?;
        }
    }

    /// The topic of offset syncs of a flow, named after the cluster on its other side: on the source after the target,
    /// or on the target after the source (`offset-syncs.topic.location`).
    pub fn offset_syncs_topic(&self, other: &str) -> String {
        let separator = &self.internal_separator;
        format!("mm2-offset-syncs{separator}{other}{separator}internal")
    }

    /// The topic of checkpoints on the target.
    pub fn checkpoints_topic(&self, source: &str) -> String {
        let separator = &self.internal_separator;
        format!("{source}{separator}checkpoints{separator}internal")
    }

    /// The topic of heartbeats.
    pub fn heartbeats_topic(&self) -> &'static str {
        HEARTBEATS_TOPIC
    }

    /// The identity policy treats every name that ends like the heartbeats topic by the default rules, and so does a
    /// format that names no source: heartbeats of several clusters would else be one topic.
    fn rule(&self, topic: &str) -> Rule<'_> {
        match (self.kind, &self.format) {
            (PolicyKind::Same, _) => Rule::Keep,
            (PolicyKind::Identity, _) if !topic.ends_with(HEARTBEATS_TOPIC) => Rule::Keep,
            (PolicyKind::Format, Some(format))
                if format.has_source() || !topic.ends_with(HEARTBEATS_TOPIC) =>
            {
                Rule::Format(format)
            }
            _ => Rule::Alias,
        }
    }

    /// Alias and upstream name. Java's `split` drops empty strings at the end, so that a name with nothing but separators
    /// behind its first part has no source.
    fn split<'a>(&self, topic: &'a str) -> Option<(&'a str, &'a str)> {
        let separator = self.separator.as_str();
        let (alias, upstream) = topic.split_once(separator).filter(|_| !separator.is_empty())?;
        upstream.split(separator).any(|part| !part.is_empty()).then_some((alias, upstream))
    }
}

/// How a name is made.
enum Rule<'a> {
    Keep,
    /// Alias, separator, name.
    Alias,
    Format(&'a NameFormat),
}

/// Connect's topic of source offsets on the target, MirrorMaker's default name; the separator is always a dot.
pub fn offsets_topic(source: &str) -> String {
    format!("mm2-offsets.{source}.internal")
}

/// Connect's topic of connectors and their target states on the target, MirrorMaker's default name.
pub fn configs_topic(source: &str) -> String {
    format!("mm2-configs.{source}.internal")
}

/// How the names of such topics of ours begin.
pub const KMIRROR_TOPICS: &str = "mm2-kmirror.";

/// The topic on the target in which kmirror keeps what MirrorMaker's own topics have no room for.
pub fn kmirror_topic(source: &str) -> String {
    format!("{KMIRROR_TOPICS}{source}.internal")
}

/// Whatever separator is configured, our own topic is never replicated.
fn is_kmirror_topic(topic: &str) -> bool {
    topic.starts_with(KMIRROR_TOPICS) && topic.ends_with(".internal")
}

#[cfg(test)]
mod tests {
    use super::super::PatternList;
    use super::*;

    fn policy(kind: PolicyKind, separator: &str, compat: Compat) -> ReplicationPolicy {
        let internal_separator = separator.to_owned();
        ReplicationPolicy {
            kind,
            separator: separator.to_owned(),
            internal_separator,
            compat,
            format: None,
            renames: Vec::new(),
            rewrites: TopicRewrites::default(),
        }
    }

    fn default_policy() -> ReplicationPolicy {
        ReplicationPolicy::default()
    }

    #[test]
    fn names_are_formed_and_taken_apart() {
        let identity = policy(PolicyKind::Identity, ".", Compat::V4_3);
        let underscore = policy(PolicyKind::Default, "_", Compat::V4_3);
        for (policy, topic, remote, source, upstream, original) in [
            (default_policy(), "t", "A.t", None, None, "t"),
            (default_policy(), "B.t", "A.B.t", Some("B"), Some("t"), "t"),
            (default_policy(), "C.B.t", "A.C.B.t", Some("C"), Some("B.t"), "t"),
            (default_policy(), "t.", "A.t.", None, None, "t."),
            (default_policy(), "t..", "A.t..", None, None, "t.."),
            (default_policy(), "t..u", "A.t..u", Some("t"), Some(".u"), "u"),
            (default_policy(), ".t", "A..t", Some(""), Some("t"), "t"),
            (underscore.clone(), "B.x_t", "A_B.x_t", Some("B.x"), Some("t"), "t"),
            (identity.clone(), "B.t", "B.t", Some("A"), Some("B.t"), "B.t"),
            (identity.clone(), "heartbeats", "A.heartbeats", None, None, "heartbeats"),
            (identity.clone(), "my-heartbeats", "A.my-heartbeats", None, None, "my-heartbeats"),
            (identity, "B.heartbeats", "A.B.heartbeats", Some("B"), Some("heartbeats"), "heartbeats"),
        ] {
            assert_eq!(policy.remote_topic("A", topic), remote);
            assert_eq!(policy.topic_source("A", topic), source, "{topic}");
            assert_eq!(policy.upstream_topic(topic), upstream, "{topic}");
            assert_eq!(policy.original_topic(topic), original, "{topic}");
        }
    }

    /// Case 29.
    #[test]
    fn internal_topics_follow_the_release() {
        let underscore = |compat| policy(PolicyKind::Default, "_", compat);
        let dot = |compat| policy(PolicyKind::Default, ".", compat);
        for (policy, internal, others) in [
            (
                dot(Compat::V4_3),
                &[
                    "__consumer_offsets",
                    ".x",
                    "mm2-offsets.A.internal",
                    "A.checkpoints.internal",
                    "mm2.internal",
                ][..],
                &["foo.internal", "foo-internal", "heartbeats", "_x", "mm2-x", "checkpoints.internal"][..],
            ),
            (
                dot(Compat::V3_9),
                &["__x", ".x", "foo.internal", "foo-internal", "mm2-configs.A.internal"],
                &["internal", "fooXinternal", "heartbeats"],
            ),
            (
                underscore(Compat::V4_4),
                &["mm2-offset-syncs_B_internal", "A_checkpoints_internal", "mm2-kmirror.A.internal"],
                &["mm2-offsets.A.internal", "foo_internal"],
            ),
            (underscore(Compat::V3_9), &["foo_internal", "foo.internal"], &["internal"]),
        ] {
            for topic in internal {
                assert!(policy.is_internal_topic(topic), "{topic} {policy:?}");
            }
            for topic in others {
                assert!(!policy.is_internal_topic(topic), "{topic} {policy:?}");
            }
        }
    }

    #[test]
    fn cycles_follow_the_release_and_the_policy() {
        let default = |compat| policy(PolicyKind::Default, ".", compat);
        let identity = policy(PolicyKind::Identity, ".", Compat::V4_4);
        for (policy, topic, cycle) in [
            (default(Compat::V4_3), "t", None),
            (default(Compat::V4_3), "B.t", Some("B")),
            (default(Compat::V4_3), "C.B.t", Some("B")),
            (default(Compat::V4_3), "C.t", None),
            (default(Compat::V4_3), "A.t", None),
            (default(Compat::V4_4), "A.t", Some("A")),
            (default(Compat::V4_4), "C.A.t", Some("A")),
            (identity.clone(), "B.t", None),
            (identity.clone(), "B.heartbeats", Some("B")),
            (identity, "A.heartbeats", None),
        ] {
            assert_eq!(policy.cycle("A", "B", topic), cycle, "{topic} {policy:?}");
        }
    }

    #[test]
    fn a_flow_says_why_it_leaves_a_topic_out() {
        let mut flow = FlowSettings::new("A", "B");
        flow.topics = PatternList::new(&["orders.*", "B\\..*", "x+", "(?:(a+)+)\\1b", "__.*"]).unwrap();
        flow.topics_exclude = PatternList::new(&["orders-tmp"]).unwrap();
        let long = "x".repeat(248);
        for (topic, selection) in [
            ("orders", Selection::Replicated),
            ("orders-tmp", Selection::Excluded),
            ("payments", Selection::NotMatched),
            ("__orders", Selection::Internal),
            ("mm2-kmirror.C.internal", Selection::Internal),
            ("B.orders", Selection::Cycle { alias: "B".to_owned() }),
            ("heartbeats", Selection::Heartbeats),
            ("C.heartbeats", Selection::Heartbeats),
            ("B.heartbeats", Selection::Cycle { alias: "B".to_owned() }),
            (&long, Selection::NameTooLong { remote_topic: format!("A.{long}") }),
            (&"a".repeat(60), Selection::MatchGivenUp),
        ] {
            assert_eq!(selects_alone(&flow, topic), selection, "{topic}");
            let taken = matches!(selection, Selection::Replicated | Selection::Heartbeats);
            assert_eq!(selection.is_replicated(), taken);
        }
        flow.heartbeats_replication = false;
        assert_eq!(selects_alone(&flow, "heartbeats"), Selection::NotMatched);
    }

    /// A ring of three, and what each hop takes of it; under a format without the source nothing protects.
    #[test]
    fn formats_are_read_back_and_protect_from_cycles() {
        let format = |text: &str| {
            let format = NameFormat::new(text, "topic", "B", &["A", "B", "C"]).unwrap();
            ReplicationPolicy { kind: PolicyKind::Format, format: Some(format), ..default_policy() }
        };
        let suffix = format("{topic}.from-{source}");
        assert_eq!(suffix.remote_topic("A", "orders"), "orders.from-A");
        assert_eq!(suffix.topic_source("A", "orders.from-C"), Some("C"));
        assert_eq!(suffix.original_topic("orders.from-C.from-A"), "orders");
        assert_eq!(suffix.cycle("A", "B", "orders.from-B.from-C"), Some("B"));
        assert_eq!(suffix.cycle("A", "B", "orders.from-C"), None);
        assert_eq!(suffix.remote_topic("A", "heartbeats"), "heartbeats.from-A");
        assert!(suffix.is_heartbeats_topic("heartbeats.from-C.from-A"));
        assert!(!suffix.hides_source("A"));
        let plain = format("dr-{topic}");
        assert!(plain.hides_source("A"));
        assert_eq!((plain.topic_source("A", "dr-t"), plain.upstream_topic("dr-t")), (Some("A"), Some("t")));
        assert_eq!((plain.topic_source("A", "t"), plain.upstream_topic("t")), (None, None));
        assert_eq!(plain.remote_topic("A", "heartbeats"), "A.heartbeats");
    }

    #[test]
    fn internal_topics_are_named_as_mirrormaker_names_them() {
        assert_eq!(offsets_topic("A"), "mm2-offsets.A.internal");
        assert_eq!(kmirror_topic("A"), "mm2-kmirror.A.internal");
        let underscore = policy(PolicyKind::Default, "_", Compat::V4_3);
        assert_eq!(default_policy().checkpoints_topic("A"), "A.checkpoints.internal");
        assert_eq!(underscore.checkpoints_topic("A"), "A_checkpoints_internal");
        assert_eq!(default_policy().offset_syncs_topic("B"), "mm2-offset-syncs.B.internal");
        assert_eq!(underscore.offset_syncs_topic("B"), "mm2-offset-syncs_B_internal");
        assert_eq!(underscore.heartbeats_topic(), "heartbeats");
    }
}

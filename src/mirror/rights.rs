//! The least rights that a flow needs, on both clusters, as an authorizer of Kafka knows them.
//!
//! Pure. What each request asks for is written in `KafkaApis.scala`; what implies what in `StandardAuthorizerData.java`: reading,
//! writing and altering imply describing, altering configs implies describing them. A right that is implied is not listed.
//!
//! ACLs know names, prefixes and everything, where `topics` and `groups` hold regular expressions: an expression gets the
//! narrowest of these that covers what it is commonly written for. A point is taken for a point.

use std::collections::BTreeMap;

use super::lease::{GROUP_PREFIX, group_id};
use super::mm2::settings::{HeartbeatSettings, OffsetSyncsLocation};
use super::{FlowSettings, KMIRROR_TOPICS, PatternList, ReplicationPolicy, kmirror_topic};

/// On which cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The flow's source.
    Source,
    /// The flow's target.
    Target,
}

/// On what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// The cluster itself.
    Cluster,
    /// Topics.
    Topic(Name),
    /// Groups.
    Group(Name),
    /// Transactional ids.
    TransactionalId(Name),
}

/// Which of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// The one of this name.
    Literal(String),
    /// Those whose names begin so.
    Prefixed(String),
    /// All.
    All,
}

/// What may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// `READ`.
    Read,
    /// `WRITE`.
    Write,
    /// `CREATE`.
    Create,
    /// `ALTER`.
    Alter,
    /// `DESCRIBE`.
    Describe,
    /// `ALTER_CONFIGS`.
    AlterConfigs,
    /// `DESCRIBE_CONFIGS`.
    DescribeConfigs,
}

impl Operation {
    /// As `kafka-acls --operation` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "Read",
            Operation::Write => "Write",
            Operation::Create => "Create",
            Operation::Alter => "Alter",
            Operation::Describe => "Describe",
            Operation::AlterConfigs => "AlterConfigs",
            Operation::DescribeConfigs => "DescribeConfigs",
        }
    }
}

/// Rights on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// On which cluster.
    pub side: Side,
    /// On what.
    pub resource: Resource,
    /// What may be done, in their order.
    pub operations: Vec<Operation>,
    /// What for, in a few words.
    pub why: &'static str,
}

/// Everything that a flow needs; `heartbeats` says where those of its pair are written, if they are.
pub fn rights_of(settings: &FlowSettings, heartbeats: &[HeartbeatSettings]) -> Vec<Rights> {
    let mut rights = List::default();
    rights.of_source(settings);
    rights.of_target(settings);
    rights.of_groups(settings);
    rights.of_heartbeats(settings, heartbeats);
    rights.0
}

#[derive(Default)]
struct List(Vec<Rights>);

impl List {
    fn add(&mut self, side: Side, resource: Resource, operations: &[Operation], why: &'static str) {
        let same = self.0.iter_mut().find(|known| known.side == side && known.resource == resource);
        match same {
            Some(known) => {
                known.operations.extend(operations);
                known.operations.sort_unstable();
                known.operations.dedup();
            }
            None => self.0.push(Rights { side, resource, operations: operations.to_vec(), why }),
        }
    }

    fn of_source(&mut self, settings: &FlowSettings) {
        use Operation::{Describe, DescribeConfigs, Read};
        for name in names(&settings.topics) {
            let resource = Resource::Topic(name);
            self.add(Side::Source, resource, &[Read, DescribeConfigs], "the topics that are copied");
        }
        if settings.sync_topic_acls_interval.is_some() {
            self.add(Side::Source, Resource::Cluster, &[Describe], "ACLs of topics are followed");
        }
        if settings.heartbeats_replication {
            let resource = Resource::Topic(Name::Literal(heartbeats_topic()));
            self.add(Side::Source, resource, &[Read, DescribeConfigs], "heartbeats are copied");
        }
        // What other kmirrors leave on the cluster that they write to (`mirror::origins`).
        let resource = Resource::Topic(Name::Prefixed(KMIRROR_TOPICS.to_owned()));
        let why = "optional: loops over files that name the clusters differently are seen";
        self.add(Side::Source, resource, &[Read], why);
        // And those of them that run (`mirror::neighbours`).
        let resource = Resource::Group(Name::Prefixed(GROUP_PREFIX.to_owned()));
        self.add(Side::Source, resource, &[Describe], why);
    }

    fn of_target(&mut self, settings: &FlowSettings) {
        use Operation::{Alter, AlterConfigs, Create, Describe, Read, Write};
        let copied = [Read, Write, Create, Alter, AlterConfigs];
        let sources = names(&settings.topics).into_iter();
        let heartbeats = settings.heartbeats_replication.then(|| Name::Literal(heartbeats_topic()));
        for name in sources.chain(heartbeats) {
            let remote = remote(&settings.policy, &settings.source, &name);
            self.add(Side::Target, Resource::Topic(remote), &copied, "the copies");
        }
        if settings.sync_topic_acls_interval.is_some() {
            self.add(Side::Target, Resource::Cluster, &[Alter], "ACLs of topics are followed");
        }
        let own = [Read, Write, Create];
        for topic in [settings.offset_storage_topic.clone(), kmirror_topic(&settings.source)] {
            self.add(Side::Target, topic_of(topic), &own, "positions");
        }
        let topic = topic_of(settings.config_storage_topic.clone());
        self.add(Side::Target, topic, &[Read], "whether MirrorMaker's connector is paused");
        let lease = Resource::Group(Name::Literal(group_id(&settings.source, &settings.target)));
        self.add(Side::Target, lease, &[Read], "one process writes the flow");
        let workers = Resource::Group(Name::Literal(settings.worker_group_id.clone()));
        self.add(Side::Target, workers, &[Describe], "whether a MirrorMaker is alive");
        let ids = Resource::TransactionalId(Name::Prefixed(format!("{}-", settings.worker_group_id)));
        self.add(
            Side::Target,
            ids,
            &[Write],
            "what a MirrorMaker with exactly-once support left open is ended",
        );
    }

    fn of_groups(&mut self, settings: &FlowSettings) {
        use Operation::{Create, Describe, Read, Write};
        let translation = &settings.translation;
        let policy = &settings.policy;
        let syncs = match translation.offset_syncs_location {
            OffsetSyncsLocation::Source => (Side::Source, policy.offset_syncs_topic(&settings.target)),
            OffsetSyncsLocation::Target => (Side::Target, policy.offset_syncs_topic(&settings.source)),
        };
        if translation.offset_syncs.is_some() {
            self.add(syncs.0, topic_of(syncs.1.clone()), &[Write, Create], "offset syncs");
        }
        if translation.emit_checkpoints_interval.is_none() {
            return;
        }
        self.add(syncs.0, topic_of(syncs.1), &[Read], "offset syncs");
        let checkpoints = topic_of(policy.checkpoints_topic(&settings.source));
        self.add(Side::Target, checkpoints, &[Read, Write, Create], "checkpoints");
        for name in names(&translation.groups) {
            self.add(Side::Source, Resource::Group(name.clone()), &[Describe], "groups that are translated");
            if translation.sync_group_offsets_interval.is_some() {
                let remote = mapped(&name, |group| settings.remote_group(group));
                self.add(Side::Target, Resource::Group(remote), &[Read], "offsets of groups are committed");
            }
        }
    }

    fn of_heartbeats(&mut self, settings: &FlowSettings, heartbeats: &[HeartbeatSettings]) {
        let is_of =
            |pair: &&HeartbeatSettings| pair.source == settings.source && pair.target == settings.target;
        if heartbeats.iter().any(|pair| is_of(&pair)) {
            let operations = [Operation::Write, Operation::Create];
            self.add(Side::Target, topic_of(heartbeats_topic()), &operations, "heartbeats");
        }
    }
}

fn topic_of(name: String) -> Resource {
    Resource::Topic(Name::Literal(name))
}

fn heartbeats_topic() -> String {
    ReplicationPolicy::default().heartbeats_topic().to_owned()
}

/// What covers a list of expressions; everything covers all others.
fn names(patterns: &PatternList) -> Vec<Name> {
    let alternatives = patterns.patterns().iter().flat_map(|pattern| alternatives(pattern));
    let mut names: Vec<Name> = alternatives.map(covering).collect();
    if names.contains(&Name::All) {
        return vec![Name::All];
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// The names that a list spells out.
pub(in crate::mirror) fn literals(patterns: &PatternList) -> Vec<String> {
    let literal = |name| match name {
        Name::Literal(name) => Some(name),
        Name::Prefixed(_) | Name::All => None,
    };
    names(patterns).into_iter().filter_map(literal).collect()
}

/// Splits at each `|` outside of brackets.
fn alternatives(pattern: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0_i32, 0);
    for (at, c) in pattern.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '|' if depth == 0 => {
                parts.push(&pattern[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&pattern[from..]);
    parts
}

/// The narrowest name that covers an expression.
fn covering(pattern: &str) -> Name {
    let mut known = String::new();
    let mut characters = pattern.chars().peekable();
    while let Some(c) = characters.next() {
        let literal = match c {
            '\\' => match characters.next() {
                Some(escaped) if !escaped.is_ascii_alphanumeric() => escaped,
                _ => return prefixed(known),
            },
            '.' if !matches!(characters.peek(), Some('*' | '+' | '?' | '{')) => '.',
            // A class of one character is that character, as in [.].
            '[' => match class_of_one(&mut characters) {
                Some(one) => one,
                None => return prefixed(known),
            },
            '.' | '*' | '+' | '?' | '(' | ')' | ']' | '{' | '}' | '^' | '$' => return prefixed(known),
            other => other,
        };
        // A character that may be missing, or come again, is no longer sure.
        if matches!(characters.peek(), Some('*' | '?' | '{')) {
            return prefixed(known);
        }
        known.push(literal);
    }
    Name::Literal(known)
}

fn class_of_one(characters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<char> {
    let one = characters.next().filter(|c| !matches!(c, '^' | '\\' | '[' | ']'))?;
    (characters.next() == Some(']')).then_some(one)
}

fn prefixed(prefix: String) -> Name {
    if prefix.is_empty() { Name::All } else { Name::Prefixed(prefix) }
}

fn remote(policy: &ReplicationPolicy, source: &str, name: &Name) -> Name {
    mapped(name, |topic| policy.remote_topic(source, topic))
}

/// What names become under a rule. A prefix stays one if what is added behind it before is behind it afterwards.
fn mapped(name: &Name, rule: impl Fn(&str) -> String) -> Name {
    let prefix = match name {
        Name::Literal(name) => return Name::Literal(rule(name)),
        Name::Prefixed(prefix) => prefix.as_str(),
        Name::All => "",
    };
    let (mapped, tails) = (rule(prefix), ["x", "y.z"]);
    let keeps = tails.iter().all(|tail| rule(&format!("{prefix}{tail}")) == format!("{mapped}{tail}"));
    if keeps { prefixed(mapped) } else { Name::All }
}

/// Those of several flows together, in the order of cluster and resource.
pub fn joined(all: impl IntoIterator<Item = (String, Rights)>) -> BTreeMap<(String, Resource), Rights> {
    let mut joined: BTreeMap<(String, Resource), Rights> = BTreeMap::new();
    for (cluster, rights) in all {
        let at = joined.entry((cluster, rights.resource.clone())).or_insert_with(|| rights.clone());
        at.operations.extend(rights.operations);
        at.operations.sort_unstable();
        at.operations.dedup();
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(name: &str) -> Name {
        Name::Literal(name.to_owned())
    }

    fn prefix(name: &str) -> Name {
        Name::Prefixed(name.to_owned())
    }

    #[test]
    fn expressions_become_the_narrowest_names() {
        for (pattern, wanted) in [
            ("orders", vec![literal("orders")]),
            ("payments.eu", vec![literal("payments.eu")]),
            ("payments\\.eu", vec![literal("payments.eu")]),
            ("payments.*", vec![prefix("payments")]),
            ("payments[.].*", vec![prefix("payments.")]),
            ("payments\\..*", vec![prefix("payments.")]),
            ("a|b.*", vec![literal("a"), prefix("b")]),
            ("(a|b)c", vec![Name::All]),
            ("ab?c", vec![prefix("a")]),
            ("ab*", vec![prefix("a")]),
            ("ab+", vec![prefix("ab")]),
            ("a[0-9]", vec![prefix("a")]),
            ("a\\d", vec![prefix("a")]),
            (".*", vec![Name::All]),
            ("x|.*", vec![Name::All]),
        ] {
            assert_eq!(names(&PatternList::new(&[pattern]).unwrap()), wanted, "{pattern}");
        }
    }

    fn shown(settings: &FlowSettings) -> Vec<String> {
        let rights = rights_of(settings, &[]);
        let name = |name: &Name| match name {
            Name::Literal(name) => name.clone(),
            Name::Prefixed(name) => format!("{name}…"),
            Name::All => "*".to_owned(),
        };
        let line = |rights: &Rights| {
            let resource = match &rights.resource {
                Resource::Cluster => "cluster".to_owned(),
                Resource::Topic(topic) => format!("topic {}", name(topic)),
                Resource::Group(group) => format!("group {}", name(group)),
                Resource::TransactionalId(id) => format!("id {}", name(id)),
            };
            let operations = rights.operations.iter().map(|operation| operation.name()).collect::<Vec<_>>();
            format!("{:?} {resource}: {}", rights.side, operations.join(" "))
        };
        rights.iter().map(line).collect()
    }

    #[test]
    fn a_small_flow_needs_little() {
        let mut settings = FlowSettings::new("A", "B");
        settings.topics = PatternList::new(&["orders", "pay.*"]).unwrap();
        settings.sync_topic_acls_interval = None;
        settings.heartbeats_replication = false;
        settings.translation.offset_syncs = None;
        settings.translation.emit_checkpoints_interval = None;
        assert_eq!(
            shown(&settings),
            [
                "Source topic orders: Read DescribeConfigs",
                "Source topic pay…: Read DescribeConfigs",
                "Source topic mm2-kmirror.…: Read",
                "Source group kmirror-…: Describe",
                "Target topic A.orders: Read Write Create Alter AlterConfigs",
                "Target topic A.pay…: Read Write Create Alter AlterConfigs",
                "Target topic mm2-offsets.A.internal: Read Write Create",
                "Target topic mm2-kmirror.A.internal: Read Write Create",
                "Target topic mm2-configs.A.internal: Read",
                "Target group kmirror-A->B: Read",
                "Target group A-mm2: Describe",
                "Target id A-mm2-…: Write",
            ]
        );
    }

    #[test]
    fn everything_else_asks_for_more() {
        let mut settings = FlowSettings::new("A", "B");
        settings.translation.sync_group_offsets_interval = Some(std::time::Duration::from_secs(60));
        let shown = shown(&settings);
        for line in [
            "Source topic *: Read DescribeConfigs",
            "Source cluster: Describe",
            "Source topic mm2-offset-syncs.B.internal: Read Write Create",
            "Source group *: Describe",
            "Target topic A.…: Read Write Create Alter AlterConfigs",
            "Target cluster: Alter",
            "Target topic A.checkpoints.internal: Read Write Create",
            "Target group *: Read",
        ] {
            assert!(shown.iter().any(|found| found == line), "{line} in {shown:#?}");
        }
    }
}

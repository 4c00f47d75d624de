//! The settings of one flow.

use std::time::Duration;

use super::problem::Problem;
use super::reader::{Fallback, Problems, Reader};
use super::scoping::{self, Client, Scope, Setting, Side};
use super::values;
use crate::client::{FetchSettings, IsolationLevel, ProduceSettings};
use crate::mirror::{
    Batching, CONFIG_PROPERTIES_EXCLUDE_DEFAULT, Compat, CompressedBatching, DefaultsFrom, FlowSettings,
    OffsetReset, OnOversize, OnSourceReset, PatternList, PolicyKind, ReplicationFactor,
    topics_exclude_default,
};

const BYTE_ARRAY_CONVERTER: &str = "org.apache.kafka.connect.converters.ByteArrayConverter";
const DEFAULT_POLICY: &str = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy";
const IDENTITY_POLICY: &str = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy";

/// Classes that stand for what kmirror does anyway; any other would do something else.
const CLASSES: [(&str, &str); 3] = [
    ("topic.filter.class", "org.apache.kafka.connect.mirror.DefaultTopicFilter"),
    ("config.property.filter.class", "org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter"),
    ("forwarding.admin.class", "org.apache.kafka.clients.admin.ForwardingAdmin"),
];

/// Everything that holds for a flow.
pub(super) struct Scopes {
    pub(super) connector: Scope,
    worker: Scope,
    consumer: Scope,
    producer: Scope,
    admins: [Scope; 2],
}

impl Scopes {
    pub(super) fn new(raw: &Scope, source: &str, target: &str) -> Scopes {
        let connector = scoping::connector(raw, source, target);
        let worker = scoping::worker(raw, target);
        Scopes {
            consumer: scoping::client(&connector, Side::Source, Client::Consumer),
            producer: scoping::data_producer(&worker, &connector),
            admins: [Side::Source, Side::Target].map(|side| scoping::client(&connector, side, Client::Admin)),
            connector,
            worker,
        }
    }
}

/// Reads a flow; the reader stands on the connector's scope.
pub(super) fn read(reader: &mut Reader<'_>, scopes: &Scopes, source: &str, target: &str) -> FlowSettings {
    let mut flow = FlowSettings::new(source, target);
    refuse_what_changes_records(reader, scopes);
    read_policy(reader, &mut flow);
    read_patterns(reader, &mut flow);
    flow.heartbeats_replication = reader.boolean("heartbeats.replication.enabled", true);
    flow.replication_factor = factor(reader, "replication.factor", 2);
    flow.refresh_topics_interval = refresh_interval(reader, flow.refresh_topics_interval.unwrap_or_default());
    let defaults = [("target", DefaultsFrom::Target), ("source", DefaultsFrom::Source)];
    flow.use_defaults_from =
        reader.choice("use.defaults.from", &defaults, "target").unwrap_or(flow.use_defaults_from);
    read_own(reader, &mut flow);
    with_scope(reader, &scopes.worker, "", |reader| read_worker(reader, &mut flow, source));
    with_scope(reader, &scopes.consumer, "source.consumer.", |reader| {
        read_consumer(reader, &mut flow, source)
    });
    with_scope(reader, &scopes.producer, "producer.", |reader| read_producer(reader, &mut flow, target));
    for (admin, alias) in scopes.admins.iter().zip([source, target]) {
        refuse_security_in(reader, admin, alias);
    }
    flow
}

fn with_scope<T>(
    reader: &mut Reader<'_>,
    scope: &Scope,
    prefix: &'static str,
    read: impl FnOnce(&mut Reader<'_>) -> T,
) -> T {
    read(&mut Reader {
        entries: reader.entries,
        source: reader.source,
        problems: reader.problems,
        section: reader.section,
        scope,
        prefix,
    })
}

/// Transforms, converters and filters of the user's own would change or drop records, which a verbatim copy cannot do.
fn refuse_what_changes_records(reader: &mut Reader<'_>, scopes: &Scopes) {
    if let Some(setting) = reader.scope.get("transforms").filter(|setting| !setting.value.trim().is_empty()) {
        let help = "run such a flow with MirrorMaker, or transform where the records are read";
        reader.error(
            setting,
            "transforms cannot run: record batches are copied as they are".to_owned(),
            Some(help),
        );
    }
    for key in ["key.converter", "value.converter", "header.converter"] {
        let setting = scopes.connector.get(key).or_else(|| scopes.worker.get(key));
        if let Some(setting) = setting.filter(|setting| setting.value.trim() != BYTE_ARRAY_CONVERTER) {
            let message =
                format!("the {key} {} cannot run: record batches are copied as they are", setting.shown);
            reader.error(setting, message, Some("leave it out"));
        }
    }
    for (key, class) in CLASSES {
        if let Some(setting) = reader.scope.get(key).filter(|setting| setting.value.trim() != class) {
            let message = format!("the {key} {} is Java, which cannot run here", setting.shown);
            reader.error(setting, message, Some("leave it out"));
        }
    }
    if let Some(setting) = reader.scope.get("errors.tolerance")
        && setting.value.trim().eq_ignore_ascii_case("all")
    {
        let message =
            "errors.tolerance=all has no effect: a record that the target refuses is never dropped silently";
        reader.warning(setting, message.to_owned());
    }
}

fn read_policy(reader: &mut Reader<'_>, flow: &mut FlowSettings) {
    let compats = [("3.9", Compat::V3_9), ("4.3", Compat::V4_3), ("4.4", Compat::V4_4)];
    flow.policy.compat = reader.choice("kmirror.compat", &compats, "4.3").unwrap_or_default();
    let kind = |value: &str| match value.trim() {
        DEFAULT_POLICY => Ok(PolicyKind::Default),
        // Strimzi shipped the same policy before MirrorMaker had one.
        IDENTITY_POLICY | "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy" => {
            Ok(PolicyKind::Identity)
        }
        other => Err(format!("{other} is not known here; {DEFAULT_POLICY} and {IDENTITY_POLICY} are")),
    };
    let fallback = Fallback::Theirs(DEFAULT_POLICY);
    flow.policy.kind = reader.parse("replication.policy.class", fallback, PolicyKind::Default, kind);
    let separator = |value: &str| match value {
        "" => Err("it is empty".to_owned()),
        _ if !value.chars().all(is_topic_character) => {
            Err(format!("{value:?} cannot stand in a topic's name"))
        }
        _ => Ok(value.to_owned()),
    };
    let default = flow.policy.separator.clone();
    let key = "replication.policy.separator";
    flow.policy.separator = reader.parse(key, Fallback::Theirs("."), default, separator);
    // DefaultReplicationPolicy.configure reads this one only when the separator is named.
    let internal = reader.boolean("replication.policy.internal.topic.separator.enabled", true);
    if internal {
        flow.policy.internal_separator.clone_from(&flow.policy.separator);
    }
}

fn read_patterns(reader: &mut Reader<'_>, flow: &mut FlowSettings) {
    flow.topics = patterns(reader, "topics", None, &[".*"]);
    let exclude = topics_exclude_default(flow.policy.compat);
    flow.topics_exclude = patterns(reader, "topics.exclude", Some("topics.blacklist"), exclude);
    let key = "config.properties.exclude";
    flow.config_properties_exclude =
        patterns(reader, key, Some("config.properties.blacklist"), &CONFIG_PROPERTIES_EXCLUDE_DEFAULT);
}

/// A list of patterns; `removed` is what the key was called before 2.7, which releases since 4.0 ignore.
fn patterns(reader: &mut Reader<'_>, key: &str, removed: Option<&str>, default: &[&str]) -> PatternList {
    let old = removed.and_then(|removed| reader.scope.get(removed));
    let key = match (removed, old) {
        (Some(removed), Some(setting)) if !reader.scope.contains_key(key) => {
            reader
                .warning(setting, format!("{removed} was removed in MirrorMaker 4.0; it is taken for {key}"));
            removed
        }
        _ => key,
    };
    let setting = reader.get(key, Fallback::Theirs(&default.join(", ")));
    let items = setting.as_ref().map_or_else(|| default.to_vec(), |setting| values::list(&setting.value));
    if let Some(setting) = setting.as_ref().filter(|_| items.is_empty()) {
        reader.warning(setting, format!("{key} is empty, which matches nothing"));
    }
    match (PatternList::new(&items), &setting) {
        (Ok(list), _) => list,
        (Err(error), Some(setting)) => {
            let span = reader.span_of_item(setting, &error.pattern);
            let problem = Problem::error(format!("{key}: {error}")).at(span);
            let split = items.iter().any(|item| item.contains('{') && !item.contains('}'));
            let help = "a comma always splits the list, within a pattern too";
            reader.problems.push(if split { problem.help(help) } else { problem });
            PatternList::default()
        }
        (Err(_), None) => PatternList::default(),
    }
}

/// `-1` leaves the factor to the cluster; a factor that is named is never lowered.
fn factor(reader: &mut Reader<'_>, key: &str, default: i16) -> ReplicationFactor {
    let named = |value: &str| {
        let factor = values::integer(value, -1, i16::MAX.into())?;
        let factor = i16::try_from(factor).ok().filter(|&factor| factor != 0).ok_or("0 is not possible")?;
        Ok(ReplicationFactor::Named(factor))
    };
    let shown = default.to_string();
    reader.parse(key, Fallback::Theirs(&shown), ReplicationFactor::Default(default), named)
}

fn refresh_interval(reader: &mut Reader<'_>, default: Duration) -> Option<Duration> {
    let enabled = reader.boolean("refresh.topics.enabled", true);
    let seconds =
        |value: &str| Ok(Duration::from_secs(values::integer(value, 1, i64::MAX / 1000)?.unsigned_abs()));
    let shown = default.as_secs().to_string();
    let interval = reader.parse("refresh.topics.interval.seconds", Fallback::Ours(&shown), default, seconds);
    enabled.then_some(interval)
}

fn read_own(reader: &mut Reader<'_>, flow: &mut FlowSettings) {
    let batching = [("adaptive", Batching::Adaptive), ("verbatim", Batching::Verbatim)];
    flow.batching = reader.choice("kmirror.batching", &batching, "adaptive").unwrap_or(flow.batching);
    let compressed = [("backlog", CompressedBatching::Backlog), ("never", CompressedBatching::Never)];
    let compressed = reader.choice("kmirror.batching.compressed", &compressed, "backlog");
    flow.batching_compressed = compressed.unwrap_or(flow.batching_compressed);
    let resets = [("stop", OnSourceReset::Stop), ("append", OnSourceReset::Append)];
    flow.on_source_reset =
        reader.choice("kmirror.on.source.reset", &resets, "stop").unwrap_or(flow.on_source_reset);
    let oversize = [("stop", OnOversize::Stop), ("skip", OnOversize::Skip)];
    flow.on_oversize = reader.choice("kmirror.on.oversize", &oversize, "stop").unwrap_or(flow.on_oversize);
}

fn read_worker(reader: &mut Reader<'_>, flow: &mut FlowSettings, source: &str) {
    flow.worker_group_id = reader.text("group.id", &format!("{source}-mm2"));
    let topic = |value: &str| match value.trim() {
        name if name.is_empty() || name.len() > 249 || !name.chars().all(is_topic_character) => {
            Err(format!("{value:?} is no topic's name"))
        }
        name => Ok(name.to_owned()),
    };
    let default = flow.offset_storage_topic.clone();
    flow.offset_storage_topic =
        reader.parse("offset.storage.topic", Fallback::Theirs(&default.clone()), default, topic);
    flow.offset_storage_partitions = reader.int("offset.storage.partitions", 25, -1);
    flow.offset_storage_replication_factor = factor(reader, "offset.storage.replication.factor", 3);
    let interval =
        |value: &str| Ok(Duration::from_millis(values::integer(value, 1, i64::MAX)?.unsigned_abs()));
    let (key, default) = ("offset.flush.interval.ms", flow.offset_flush_interval);
    flow.offset_flush_interval = reader.parse(key, Fallback::Ours("5000"), default, interval);
}

fn is_topic_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

fn read_consumer(reader: &mut Reader<'_>, flow: &mut FlowSettings, source: &str) {
    let resets =
        [("earliest", OffsetReset::Earliest), ("latest", OffsetReset::Latest), ("none", OffsetReset::None)];
    let reset = reader.choice("auto.offset.reset", &resets, "earliest");
    flow.auto_offset_reset = reset.unwrap_or(flow.auto_offset_reset);
    let levels = [
        ("read_uncommitted", IsolationLevel::ReadUncommitted),
        ("read_committed", IsolationLevel::ReadCommitted),
    ];
    let level = reader.choice("isolation.level", &levels, "read_uncommitted");
    let ours = FetchSettings::default();
    let bytes = |reader: &mut Reader<'_>, key: &str, default: i32| {
        let shown = default.to_string();
        let read = |value: &str| Ok(values::integer(value, 1, i32::MAX.into())? as i32);
        reader.parse(key, Fallback::Ours(&shown), default, read)
    };
    flow.fetch = FetchSettings {
        isolation_level: level.unwrap_or(ours.isolation_level),
        fetch_min_bytes: reader.int("fetch.min.bytes", ours.fetch_min_bytes, 0),
        fetch_max_wait: reader.millis("fetch.max.wait.ms", ours.fetch_max_wait),
        fetch_max_bytes: bytes(reader, "fetch.max.bytes", ours.fetch_max_bytes),
        max_partition_fetch_bytes: bytes(reader, "max.partition.fetch.bytes", ours.max_partition_fetch_bytes),
        batch_bytes_max: ours.batch_bytes_max,
    };
    refuse_security_in(reader, reader.scope, source);
}

fn read_producer(reader: &mut Reader<'_>, flow: &mut FlowSettings, target: &str) {
    let acks = reader.get("acks", Fallback::Theirs("all"));
    if let Some(acks) = acks.filter(|acks| !matches!(acks.value.trim(), "all" | "-1")) {
        reader.warning(
            &acks,
            format!("acks={} is raised to all: nothing counts as copied before all have it", acks.shown),
        );
    }
    let default = ProduceSettings::default();
    let bytes = i64::try_from(default.max_request_bytes).unwrap_or(i64::MAX);
    let max_request_bytes = reader.integer("max.request.size", bytes, 1, i32::MAX.into());
    let in_flight = |value: &str| Ok(values::integer(value, 1, i32::MAX.into())? as usize);
    let (key, shown) = ("max.in.flight.requests.per.connection", default.max_in_flight_requests.to_string());
    flow.produce = ProduceSettings {
        ack_timeout: reader.millis("request.timeout.ms", default.ack_timeout),
        max_request_bytes: usize::try_from(max_request_bytes).unwrap_or(default.max_request_bytes),
        max_in_flight_requests: reader.parse(
            key,
            Fallback::Ours(&shown),
            default.max_in_flight_requests,
            in_flight,
        ),
    };
    refuse_security_in(reader, reader.scope, target);
}

fn refuse_security_in(reader: &mut Reader<'_>, scope: &Scope, alias: &str) {
    let security = scope.get("security.protocol");
    if let Some(security) = security.filter(|setting| !setting.value.trim().eq_ignore_ascii_case("PLAINTEXT"))
    {
        refuse_security(reader, security, alias);
    }
}

/// What asks for TLS or SASL is never dialled without.
pub(super) fn refuse_security(reader: &mut Reader<'_>, security: &Setting, alias: &str) {
    let message =
        format!("the cluster {alias} asks for {}, which kmirror does not speak yet", security.shown.trim());
    reader.error(
        security,
        message,
        Some("only PLAINTEXT is there; nothing is dialled without what the file asks for"),
    );
}

/// Under the identity policy nothing in a name tells where a record came from: two flows that take the same topics both
/// ways would copy each record round and round.
pub(super) fn check_circles(flows: &[FlowSettings], problems: &mut Problems) {
    let identity = |flow: &&FlowSettings| flow.policy.kind == PolicyKind::Identity;
    for (index, there) in flows.iter().enumerate().filter(|(_, flow)| identity(flow)) {
        let back = flows[index + 1..].iter().filter(identity);
        let Some(back) = back.into_iter().find(|b| b.source == there.target && b.target == there.source)
        else {
            continue;
        };
        let (a, b) = (&there.source, &there.target);
        let (one, other) = (there.topics.patterns(), back.topics.patterns());
        let everything = |patterns: &[String]| patterns.iter().any(|pattern| pattern == ".*");
        if one == other || everything(one) || everything(other) {
            let message = format!(
                "{a}->{b} and {b}->{a} keep the names of their topics and take the same ones: a circle"
            );
            let help = "give each flow topics of its own, or leave the names to DefaultReplicationPolicy";
            problems.push(Problem::error(message).help(help));
        } else {
            let message =
                format!("{a}->{b} and {b}->{a} keep the names of their topics: none may be in both");
            problems.push(Problem::warning(message));
        }
    }
}

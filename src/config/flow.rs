//! The settings of one flow.

use std::sync::Arc;
use std::time::Duration;

use super::problem::Problem;
use super::reader::{Fallback, Reader};
use super::scoping::{self, Client, Scope, Setting, Side};
use super::{build, misnamed, naming, security, translation, values};
use crate::client::{FetchSettings, IsolationLevel, ProduceSettings};
use crate::mirror::takeover::{Connectors, Workers};
use crate::mirror::{
    Batching, CompressedBatching, DefaultsFrom, FlowSettings, OffsetReset, OnOversize, OnPaused, OnRefused,
    OnSourceReset, PatternList, ReplicationFactor, config_properties_exclude_default, topics_exclude_default,
};
use crate::record::Codec;

const BYTE_ARRAY_CONVERTER: &str = "org.apache.kafka.connect.converters.ByteArrayConverter";
/// Classes that stand for what kmirror does anyway; any other would do something else.
const CLASSES: [(&str, &str); 4] = [
    ("group.filter.class", "org.apache.kafka.connect.mirror.DefaultGroupFilter"),
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
    /// `security.protocol` of the connections to the source and to the target.
    security: [Option<Setting>; 2],
}

impl Scopes {
    pub(super) fn new(raw: &Scope, source: &str, target: &str) -> Scopes {
        let connector = scoping::connector(raw, source, target);
        let worker = scoping::worker(raw, target);
        Scopes {
            consumer: scoping::client(&connector, Side::Source, Client::Consumer),
            producer: scoping::data_producer(&worker, &connector),
            admins: [Side::Source, Side::Target].map(|side| scoping::client(&connector, side, Client::Admin)),
            security: [(source, true), (target, false)].map(|(alias, is_source)| {
                let scope = build::connection_scope(&scoping::cluster(raw, alias), is_source);
                scope.get("security.protocol").cloned()
            }),
            connector,
            worker,
        }
    }
}

/// Reads a flow; the reader stands on the connector's scope.
pub(super) fn read(
    reader: &mut Reader<'_>,
    scopes: &Scopes,
    source: &str,
    target: &str,
    clusters: &[String],
) -> FlowSettings {
    let mut flow = FlowSettings::new(source, target);
    refuse_what_changes_records(reader, scopes);
    naming::read(reader, &mut flow, clusters);
    read_patterns(reader, &mut flow);
    flow.heartbeats_replication = reader.boolean("heartbeats.replication.enabled", true);
    flow.replication_factor = factor(reader, "replication.factor", 2);
    let ours = flow.refresh_topics_interval.unwrap_or_default();
    flow.refresh_topics_interval =
        interval(reader, "refresh.topics", Fallback::Ours(&ours.as_secs().to_string()), ours);
    let theirs = Duration::from_secs(600);
    flow.sync_topic_configs_interval =
        interval(reader, "sync.topic.configs", Fallback::Theirs("600"), theirs);
    flow.sync_topic_acls_interval = interval(reader, "sync.topic.acls", Fallback::Theirs("600"), theirs);
    let defaults = [("target", DefaultsFrom::Target), ("source", DefaultsFrom::Source)];
    flow.use_defaults_from =
        reader.choice("use.defaults.from", &defaults, "target").unwrap_or(flow.use_defaults_from);
    flow.translation = translation::read(reader);
    read_own(reader, &mut flow);
    read_worker(&mut reader.on(&scopes.worker, ""), &mut flow, source);
    read_connect(reader, &mut flow);
    read_consumer(&mut reader.on(&scopes.consumer, "source.consumer."), &mut flow);
    read_producer(&mut reader.on(&scopes.producer, "producer."), &mut flow);
    for (scope, alias, cluster) in [
        (&scopes.consumer, source, &scopes.security[0]),
        (&scopes.admins[0], source, &scopes.security[0]),
        (&scopes.producer, target, &scopes.security[1]),
        (&scopes.admins[1], target, &scopes.security[1]),
    ] {
        security::refuse_other(reader, scope.get("security.protocol"), cluster.as_ref(), alias);
    }
    flow
}

/// Converters and filters of the user's own would change or drop records, which a verbatim copy cannot do.
fn refuse_what_changes_records(reader: &mut Reader<'_>, scopes: &Scopes) {
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
}

fn read_patterns(reader: &mut Reader<'_>, flow: &mut FlowSettings) {
    flow.topics = patterns(reader, "topics", None, &[".*"]);
    let exclude = topics_exclude_default(flow.policy.compat);
    flow.topics_exclude = patterns(reader, "topics.exclude", Some("topics.blacklist"), exclude);
    let key = "config.properties.exclude";
    flow.config_properties_exclude = patterns(
        reader,
        key,
        Some("config.properties.blacklist"),
        &config_properties_exclude_default(flow.policy.compat),
    );
}

/// A list of patterns; `removed` is what the key was called before 2.7, which releases since 4.0 ignore.
pub(super) fn patterns(
    reader: &mut Reader<'_>,
    key: &str,
    removed: Option<&str>,
    default: &[&str],
) -> PatternList {
    let old = removed.and_then(|removed| reader.scope.get(removed));
    let key = match (removed, old) {
        (Some(removed), Some(setting)) if !reader.scope.contains_key(key) => {
            let message = format!("{removed} was removed in MirrorMaker 4.0; it is taken for {key}");
            reader.differs(setting, message, format!("4 ignores {removed}, and {key} keeps its default"));
            removed
        }
        _ => key,
    };
    let setting = reader.get(key, Fallback::Theirs(&default.join(", ")));
    let mut items = setting.as_ref().map_or_else(|| default.to_vec(), |setting| values::list(&setting.value));
    if let Some(setting) = &setting {
        read_topics_of_tutorials(reader, setting, key, &mut items);
    }
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

/// Tutorials call MirrorMaker's own topics by names that they never had.
fn read_topics_of_tutorials(reader: &mut Reader<'_>, setting: &Setting, key: &str, items: &mut [&str]) {
    for item in items.iter_mut() {
        let Some(meant) = misnamed::topic_meant(item).filter(|_| key.starts_with("topics")) else { continue };
        let message = format!("{item} in {key}: MirrorMaker's topic is called {meant}");
        reader.differs(setting, message, format!("knows no topic {item}"));
        if meant == "heartbeats" {
            *item = meant;
        }
    }
}

/// `-1` leaves the factor to the cluster; a factor that is named is never lowered.
pub(super) fn factor(reader: &mut Reader<'_>, key: &str, default: i16) -> ReplicationFactor {
    let named = |value: &str| {
        let factor = values::integer(value, -1, i16::MAX.into())?;
        let factor = i16::try_from(factor).ok().filter(|&factor| factor != 0).ok_or("0 is not possible")?;
        Ok(ReplicationFactor::Named(factor))
    };
    let shown = default.to_string();
    reader.parse(key, Fallback::Theirs(&shown), ReplicationFactor::Default(default), named)
}

/// `KEY.enabled` and `KEY.interval.seconds`.
fn interval(
    reader: &mut Reader<'_>,
    key: &str,
    fallback: Fallback<'_>,
    default: Duration,
) -> Option<Duration> {
    let enabled = reader.boolean(&format!("{key}.enabled"), true);
    let seconds =
        |value: &str| Ok(Duration::from_secs(values::integer(value, 1, i64::MAX / 1000)?.unsigned_abs()));
    let interval = reader.parse(&format!("{key}.interval.seconds"), fallback, default, seconds);
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
    let paused = [("honour", OnPaused::Honour), ("ignore", OnPaused::Ignore)];
    flow.on_paused = reader.choice("kmirror.on.paused", &paused, "honour").unwrap_or(flow.on_paused);
    let tolerance = [("none", OnRefused::Stop), ("all", OnRefused::Skip)];
    flow.on_refused = reader.choice("errors.tolerance", &tolerance, "none").unwrap_or(flow.on_refused);
    let delay = flow.retry_delay_max.as_millis().to_string();
    flow.retry_delay_max =
        reader.parse("errors.retry.delay.max.ms", Fallback::Ours(&delay), flow.retry_delay_max, millis);
    let outage = reader.integer("errors.retry.timeout", 0, i64::MIN, i64::MAX);
    flow.retry_limits.outage_max = u64::try_from(outage).ok().map(Duration::from_millis);
    say_it_only_reports(reader, &["errors.retry.timeout"]);
    let oversize = [("stop", OnOversize::Stop), ("skip", OnOversize::Skip)];
    let default = if flow.on_refused == OnRefused::Skip { "skip" } else { "stop" };
    flow.on_oversize = reader.choice("kmirror.on.oversize", &oversize, default).unwrap_or(flow.on_oversize);
}

/// Whoever knows what a key ends in Kafka or Connect is told what it does here.
fn say_it_only_reports(reader: &mut Reader<'_>, keys: &[&str]) {
    for key in keys {
        let Some(setting) = reader.scope.get(*key) else { continue };
        let name = &reader.entries[setting.entry].key;
        let message =
            format!("{name} says when /readyz turns and the log warns; delivery goes on until it succeeds");
        reader.problems.push(Problem::info(message).at(reader.span(setting)));
    }
}

fn millis(value: &str) -> Result<Duration, String> {
    Ok(Duration::from_millis(values::integer(value, 0, i64::MAX)?.unsigned_abs()))
}

fn read_worker(reader: &mut Reader<'_>, flow: &mut FlowSettings, source: &str) {
    flow.worker_group_id = reader.text("group.id", &format!("{source}-mm2"));
    flow.offset_storage_topic = topic(reader, "offset.storage.topic", flow.offset_storage_topic.clone());
    flow.config_storage_topic = topic(reader, "config.storage.topic", flow.config_storage_topic.clone());
    flow.offset_storage_partitions = reader.int("offset.storage.partitions", 25, -1);
    flow.offset_storage_replication_factor = factor(reader, "offset.storage.replication.factor", 3);
    let interval =
        |value: &str| Ok(Duration::from_millis(values::integer(value, 1, i64::MAX)?.unsigned_abs()));
    let (key, default) = ("offset.flush.interval.ms", flow.offset_flush_interval);
    flow.offset_flush_interval = reader.parse(key, Fallback::Ours("5000"), default, interval);
}

fn topic(reader: &mut Reader<'_>, key: &str, default: String) -> String {
    let named = |value: &str| match value.trim() {
        name if name.is_empty() || name.len() > 249 || !name.chars().all(is_topic_character) => {
            Err(format!("{value:?} is no topic's name"))
        }
        name => Ok(name.to_owned()),
    };
    reader.parse(key, Fallback::Theirs(&default.clone()), default, named)
}

/// Where MirrorMaker's connectors ran inside a Connect cluster: what is called otherwise there.
fn read_connect(reader: &mut Reader<'_>, flow: &mut FlowSettings) {
    let named = |reader: &mut Reader<'_>, key: &str, default: &str| {
        // Shown only where it is used.
        if reader.scope.contains_key(key) { reader.text(key, default) } else { default.to_owned() }
    };
    for (key, name) in [
        ("kmirror.connect.offsets.topic", &mut flow.offset_storage_topic),
        ("kmirror.connect.config.topic", &mut flow.config_storage_topic),
    ] {
        if reader.scope.contains_key(key) {
            *name = topic(reader, key, name.clone());
        }
    }
    if reader.scope.contains_key("kmirror.connect.group.id") {
        flow.worker_group_id = reader.text("kmirror.connect.group.id", &flow.worker_group_id);
        flow.workers = Workers::ConnectCluster;
    }
    let Connectors { source, checkpoint, heartbeat } = &mut flow.connectors;
    for (key, name) in [
        ("kmirror.connect.source.connector", source),
        ("kmirror.connect.checkpoint.connector", checkpoint),
        ("kmirror.connect.heartbeat.connector", heartbeat),
    ] {
        *name = Arc::from(named(reader, key, name).trim());
    }
}

pub(super) fn is_topic_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

fn read_consumer(reader: &mut Reader<'_>, flow: &mut FlowSettings) {
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
    // Whoever names a wait means all of them.
    let is_named = reader.names("fetch.max.wait.ms");
    let max_wait = reader.millis("fetch.max.wait.ms", ours.fetch_max_wait);
    flow.fetch = FetchSettings {
        isolation_level: level.unwrap_or(ours.isolation_level),
        fetch_min_bytes: reader.int("fetch.min.bytes", ours.fetch_min_bytes, 0),
        fetch_max_wait: max_wait,
        fetch_max_wait_idle: if is_named { max_wait } else { ours.fetch_max_wait_idle },
        fetch_max_bytes: bytes(reader, "fetch.max.bytes", ours.fetch_max_bytes),
        max_partition_fetch_bytes: bytes(reader, "max.partition.fetch.bytes", ours.max_partition_fetch_bytes),
        batch_bytes_max: ours.batch_bytes_max,
    };
}

fn read_producer(reader: &mut Reader<'_>, flow: &mut FlowSettings) {
    let acks = reader.get("acks", Fallback::Theirs("all"));
    if let Some(acks) = acks.filter(|acks| !matches!(acks.value.trim(), "all" | "-1")) {
        reader.warning(
            &acks,
            format!("acks={} is raised to all: nothing counts as copied before all have it", acks.shown),
        );
    }
    let limits = &mut flow.retry_limits;
    let timeout = limits.delivery_timeout.as_millis().to_string();
    limits.delivery_timeout =
        reader.parse("delivery.timeout.ms", Fallback::Ours(&timeout), limits.delivery_timeout, millis);
    limits.retries = reader.int("retries", i32::MAX, 0).unsigned_abs();
    say_it_only_reports(reader, &["delivery.timeout.ms", "retries"]);
    let codecs = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd].map(|c| (c.name(), c));
    let names = codecs.map(|(name, _)| name);
    let codec = |value: &str| {
        let word = values::choice(value, &names)?;
        Ok(codecs.iter().find(|(name, _)| *name == word).map(|&(_, codec)| codec))
    };
    flow.compression = reader.parse("compression.type", Fallback::Ours("the source's"), None, codec);
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
}

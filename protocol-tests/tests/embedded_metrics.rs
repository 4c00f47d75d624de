//! `/metrics` of a flow that runs between two embedded clusters: its format, what it says, and that the alert rules and
//! the dashboard of `configs/` ask for nothing that is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kmirror::broker::{self, EmbeddedCluster};
use kmirror::client::{Cluster, CommittedOffset, GroupOffsets};
use kmirror::config;
use kmirror::mirror::Replicator;
use kmirror::mirror::status::ReplicatorStatus;
use kmirror::net::Secret;
use kmirror::net::tls::{Place, Store, StoreKind, server_config};
use kmirror::observe::{Metrics, Names};
use kmirror::record::{BatchBuilder, BatchOptions, Codec, RecordData};
use kmirror::seam::{Seam, Simulation};
use serde_json::Value;

/// A family: its kind, and its series with their labels.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    series: Vec<(BTreeMap<String, String>, f64)>,
}

type Families = BTreeMap<String, Family>;

/// Parses the exposition format, and holds to its rules: HELP and TYPE once and before all series, a family together, no
/// series twice, values that are numbers.
fn parse(text: &str) -> Families {
    let mut families = Families::new();
    let mut current = String::new();
    let mut helped = BTreeSet::new();
    let mut seen = BTreeSet::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let name = help.split(' ').next().unwrap();
            assert!(help.len() > name.len() + 1, "no help: {line}");
            assert!(helped.insert(name.to_owned()), "HELP twice: {line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(helped.contains(name) && ["counter", "gauge"].contains(&kind), "{line}");
            let family = Family { kind: kind.to_owned(), series: Vec::new() };
            assert!(families.insert(name.to_owned(), family).is_none(), "TYPE twice: {line}");
            current = name.to_owned();
        } else {
            let (labels, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = labels.split_once('{').unwrap_or((labels, "}"));
            assert_eq!(name, current, "outside of its family: {line}");
            assert!(seen.insert(line.rsplit_once(' ').unwrap().0.to_owned()), "twice: {line}");
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
            families.get_mut(name).unwrap().series.push((parse_labels(labels, line), value));
        }
    }
    families
}

fn parse_labels(text: &str, line: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while let Some((name, value)) = rest.split_once("=\"") {
        let name = name.trim_start_matches(',');
        let plain = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(!name.is_empty() && name.chars().all(plain), "label {name:?}: {line}");
        let (mut out, mut chars) = (String::new(), value.char_indices());
        let end = loop {
            match chars.next().unwrap_or_else(|| panic!("an open label: {line}")) {
                (at, '"') => break at,
                (_, '\\') => match chars.next() {
                    Some((_, 'n')) => out.push('\n'),
                    Some((_, c @ ('\\' | '"'))) => out.push(c),
                    other => panic!("escape {other:?}: {line}"),
                },
                (_, c) => out.push(c),
            }
        };
        assert!(labels.insert(name.to_owned(), out).is_none(), "label {name} twice: {line}");
        rest = &value[end + 1..];
    }
    assert_eq!(rest, "}", "{line}");
    labels
}

/// What a PromQL expression asks for: metrics with the labels that select, and labels that it groups by.
#[derive(Debug, Default)]
struct Asked {
    metrics: BTreeMap<String, BTreeSet<String>>,
    grouped: BTreeSet<String>,
}

fn asked(expression: &str) -> Asked {
    const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
    const WORDS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];
    let mut asked = Asked::default();
    let mut rest = expression;
    // `max (…)`, and `max by (…) (…)`.
    let is_called = |rest: &str| ["(", "by (", "without ("].iter().any(|next| rest.starts_with(next));
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    while let Some(c) = rest.chars().next() {
        if c == '[' {
            rest = rest.split_once(']').unwrap().1;
        } else if c == '"' {
            rest = rest[1..].split_once('"').unwrap().1;
        } else if c.is_ascii_digit() {
            rest = rest.trim_start_matches(|c: char| is_name(c) || c == '.');
        } else if is_name(c) {
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after.trim_start();
            if GROUPING.contains(&word) {
                let (labels, after) = rest.strip_prefix('(').unwrap().split_once(')').unwrap();
                asked.grouped.extend(labels.split(',').map(|label| label.trim().to_owned()));
                rest = after;
            } else if word == "label_values" {
                let (arguments, after) = rest.strip_prefix('(').unwrap().split_once(')').unwrap();
                let (metric, label) = arguments.split_once(',').unwrap();
                asked.metrics.entry(metric.to_owned()).or_default().insert(label.trim().to_owned());
                rest = after;
            } else if !is_called(rest) && !WORDS.contains(&word) {
                let labels = asked.metrics.entry(word.to_owned()).or_default();
                if let Some(selectors) = rest.strip_prefix('{') {
                    let (selectors, after) = selectors.split_once('}').unwrap();
                    for selector in selectors.split("\",").filter(|selector| !selector.is_empty()) {
                        let label = selector.split(['=', '!']).next().unwrap().trim();
                        labels.insert(label.to_owned());
                    }
                    rest = after;
                }
            }
        } else {
            rest = &rest[c.len_utf8()..];
        }
    }
    asked
}

/// `{{topic}}` and `{{ $labels.topic }}`.
fn shown(text: &str) -> BTreeSet<String> {
    let braces = text.split("{{").skip(1).filter_map(|part| part.split_once("}}"));
    let names = braces.map(|(inner, _)| inner.trim().trim_start_matches("$labels."));
    names.filter(|name| !name.starts_with('$')).map(str::to_owned).collect()
}

fn check(families: &Families, place: &str, expression: &str, texts: &[&str]) {
    let asked = asked(expression);
    assert!(!asked.metrics.is_empty(), "{place}: {expression} asks for nothing");
    let mut known = asked.grouped.clone();
    let mut all = BTreeSet::new();
    for (metric, selecting) in &asked.metrics {
        let family = families.get(metric).unwrap_or_else(|| panic!("{place}: there is no {metric}"));
        let labels: BTreeSet<&String> = family.series.iter().flat_map(|(labels, _)| labels.keys()).collect();
        assert!(!family.series.is_empty(), "{place}: {metric} has no series in this flow");
        for label in selecting {
            assert!(labels.contains(label), "{place}: {metric} has no label {label}");
        }
        all.extend(labels.into_iter().cloned());
    }
    for label in &asked.grouped {
        assert!(all.contains(label), "{place}: nothing in {expression} has the label {label}");
    }
    if asked.grouped.is_empty() {
        known = all;
    }
    for label in texts.iter().flat_map(|text| shown(text)) {
        assert!(known.contains(&label), "{place}: {expression} has no label {label} left");
    }
}

fn config_file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("configs");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// The rules of `alerts.yml`, which keeps to one line for each value: (name, expression, summary).
fn alerts() -> Vec<(String, String, String)> {
    let text = config_file("alerts.yml");
    let rules = text.split("\n      - alert: ").skip(1);
    let of = |rule: &str, key: &str| {
        let line = rule.lines().find_map(|line| line.trim().strip_prefix(key));
        line.unwrap_or_else(|| panic!("no {key} in {rule}")).trim().to_owned()
    };
    rules
        .map(|rule| (rule.lines().next().unwrap().to_owned(), of(rule, "expr:"), of(rule, "summary:")))
        .collect()
}

type ServerTls = Arc<rustls::ServerConfig>;

async fn cluster(seam: &Seam, seed: u64, host: &str, tls: Option<ServerTls>) -> EmbeddedCluster {
    let address = host.parse().unwrap();
    let settings = broker::Settings { brokers: 1, seed, address, tls, ..broker::Settings::default() };
    EmbeddedCluster::start(seam.clone(), settings).await.unwrap()
}

/// A certificate for a broker, and the line that believes it.
fn certificate(host: &str) -> (ServerTls, String) {
    let made = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
    let pem = format!("{}{}", made.signing_key.serialize_pem(), made.cert.pem());
    let place = Place::Inline(Secret::new(pem.as_str()));
    let store = Store { kind: StoreKind::Pem, place, password: None };
    let trusted = made.cert.pem().lines().collect::<Vec<_>>().join(" ");
    (server_config(&store, None, pem.as_bytes()).unwrap(), trusted)
}

fn append(cluster: &EmbeddedCluster, topic: &str, timestamp: i64, count: usize, value_bytes: usize) -> usize {
    let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
    for _ in 0..count {
        // No codec makes it smaller.
        let mut noise = 0x9e37_79b9_u32;
        let value = (0..value_bytes).map(|_| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        });
        let value = Some(Bytes::from(value.collect::<Vec<u8>>()));
        builder.push(&RecordData { timestamp, key: None, value, headers: Vec::new() }).unwrap();
    }
    let batch = builder.build().unwrap();
    cluster.append(topic, 0, &batch).unwrap();
    batch.len()
}

async fn until(
    replicator: &Replicator,
    what: &str,
    condition: impl Fn(&ReplicatorStatus) -> bool,
) -> Families {
    let started = tokio::time::Instant::now();
    loop {
        let status = replicator.status().await;
        if condition(&status) {
            return parse(&Metrics::new(Arc::new(status), Names::AlsoSourceConnector).collect::<String>());
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{what}: {status:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A flow with something of everything: copied, recompressed and refused records, a group, heartbeats.
async fn running() -> (Replicator, Families, [EmbeddedCluster; 2], usize) {
    let seam = Seam::Simulated(Simulation::new(3));
    let (tls, trusted) = certificate("10.0.0.1");
    let (a, b) = (cluster(&seam, 1, "10.0.0.1", Some(tls)).await, cluster(&seam, 2, "10.0.0.2", None).await);
    for topic in ["orders", "big"] {
        a.create_topic(topic, 1, 1, &[]).unwrap();
    }
    b.create_topic("A.big", 1, 1, &[("max.message.bytes", "200")]).unwrap();
    let made_ms = seam.now_ms() - 5_000;
    let bytes = append(&a, "orders", made_ms, 40, 100);
    append(&a, "big", made_ms, 1, 1_000);
    let file = format!(
        "clusters = A, B\nA.bootstrap.servers = {}\nB.bootstrap.servers = {}\nA->B.enabled = true\n\
         refresh.topics.interval.seconds = 1\nrefresh.groups.interval.seconds = 1\nsync.topic.configs.enabled = false\n\
         emit.checkpoints.interval.seconds = 1\nsync.group.offsets.enabled = true\n\
         sync.group.offsets.interval.seconds = 1\nB.producer.compression.type = lz4\n\
         A.security.protocol = SSL\nA.ssl.truststore.type = PEM\nA.ssl.truststore.certificates = {trusted}\n",
        a.bootstrap(),
        b.bootstrap()
    );
    let report = config::load("test.properties", file.as_bytes(), &config::Options::default());
    let settings = report.settings.unwrap_or_else(|| panic!("{:?}", report.problems));
    let source = Cluster::new(seam.clone(), settings.process.clusters["A"].clone());
    let committed = CommittedOffset { offset: 40, metadata: Arc::from("") };
    let offsets = GroupOffsets::from([((Arc::from("orders"), 0), committed)]);
    source.commit_group_offsets(&Arc::from("app"), &offsets).await.unwrap();
    let replicator = Replicator::start(seam.clone(), settings.process);
    let families = until(&replicator, "something of everything", |status| {
        let flow = &status.flows[0];
        let at = |topic: &str| flow.partitions.get(&(Arc::from(topic), 0));
        let groups = flow.translation.groups.clone().unwrap_or_default();
        at("orders").is_some_and(|orders| orders.position == Some(40))
            && at("big").is_some_and(|big| big.stopped.is_some())
            && groups.groups.values().any(|group| group.sync.is_some() && group.checkpoint_ms.is_some())
            && flow.translation.heartbeats.values().any(|link| link.latency_ms.is_some())
    })
    .await;
    (replicator, families, [a, b], bytes)
}

fn value(families: &Families, name: &str, wanted: &[(&str, &str)]) -> f64 {
    let family = families.get(name).unwrap_or_else(|| panic!("there is no {name}"));
    let found = family.series.iter().filter(|(labels, _)| {
        wanted.iter().all(|(label, value)| labels.get(*label).is_some_and(|found| found == value))
    });
    let found: Vec<f64> = found.map(|(_, value)| *value).collect();
    assert_eq!(found.len(), 1, "{name} {wanted:?}: {family:#?}");
    found[0]
}

#[tokio::test(start_paused = true)]
async fn alerts_and_the_dashboard_ask_only_for_what_is_there() {
    let (replicator, families, _clusters, _) = running().await;
    let alerts = alerts();
    assert!(alerts.len() >= 10);
    for (name, expression, summary) in &alerts {
        check(&families, name, expression, &[summary]);
    }
    let dashboard: Value = serde_json::from_str(&config_file("dashboard.json")).unwrap();
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["query"]["query"].as_str() {
            check(&families, "a variable of the dashboard", query, &[]);
        }
    }
    let mut count = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let text = |key: &str| target[key].as_str().unwrap();
            check(&families, panel["title"].as_str().unwrap(), text("expr"), &[text("legendFormat")]);
            count += 1;
        }
    }
    assert!(count >= 20);
    replicator.stop().await;
}

/// MirrorMaker's names and labels as its dashboards have them, with what they say of forty records that were five seconds
/// old when they were written.
#[tokio::test(start_paused = true)]
async fn mirror_makers_metrics_are_served_with_its_labels() {
    let (replicator, families, _clusters, bytes) = running().await;
    let of = |attribute: &str, prefix: &str, more: &[(&str, &str)]| {
        let labels =
            [&[("source", "A"), ("target", "B"), ("topic", "A.orders"), ("partition", "0")], more].concat();
        let name = format!("{prefix}_{attribute}");
        assert_eq!(families[&name].kind, "gauge");
        value(&families, &name, &labels)
    };
    for (prefix, more) in [
        ("kafka_connect_mirror_mirrorsourceconnector", &[][..]),
        ("kafka_connect_mirror_source_connector", &[("destination", "B")][..]),
    ] {
        assert_eq!(of("record_count", prefix, more), 40.0);
        assert_eq!(of("byte_count", prefix, more), bytes as f64);
        for rate in ["record_rate", "byte_rate"] {
            assert!(of(rate, prefix, more) > 0.0);
        }
        for what in ["record_age_ms", "replication_latency_ms"] {
            for suffix in ["", "_min", "_max", "_avg"] {
                let ms = of(&format!("{what}{suffix}"), prefix, more);
                assert!((5_000.0..20_000.0).contains(&ms), "{what}{suffix} {ms}");
            }
        }
    }
    for suffix in ["", "_min", "_max", "_avg"] {
        let attribute = format!("checkpoint_latency_ms{suffix}");
        let ms = of(&attribute, "kafka_connect_mirror_mirrorcheckpointconnector", &[("group", "app")]);
        assert!((0.0..1_000.0).contains(&ms), "{suffix} {ms}");
    }
    let client = [("clientid", "\"A->B|MirrorSourceConnector-0|replication-consumer\"")];
    let lag = |topic| {
        let labels = [&client[..], &[("topic", topic), ("partition", "0")]].concat();
        value(&families, "kafka_consumer_fetch_manager_records_lag", &labels)
    };
    assert_eq!((lag("orders"), lag("big")), (0.0, 1.0));
    assert_eq!(value(&families, "kafka_connect_worker_connector_count", &[]), 4.0);
    let link = [("source", "A"), ("target", "B"), ("topic", "heartbeats")];
    let lag = value(&families, "kafka_mirrormaker2_heartbeat_lag", &link);
    assert!((0.0..5.0).contains(&lag), "{lag}");
    assert_eq!(lag, value(&families, "kmirror_heartbeat_lag_seconds", &link));
    replicator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lag_says_how_long_the_oldest_record_has_waited() {
    let (replicator, families, [a, _b], _) = running().await;
    let of = |families: &Families, name: &str, topic: &str| {
        value(families, name, &[("topic", topic), ("source", "A")])
    };
    assert_eq!(of(&families, "kmirror_lag_records", "orders"), 0.0);
    assert_eq!(of(&families, "kmirror_lag_seconds", "orders"), 0.0);
    assert_eq!(of(&families, "kmirror_lag_records", "big"), 1.0);
    assert_eq!(value(&families, "kmirror_stopped_partitions", &[("reason", "oversize")]), 1.0);
    assert_eq!(
        value(&families, "kmirror_batches_rewritten_total", &[("reason", "codec"), ("topic", "orders")]),
        1.0
    );
    // Ten minutes of silence is no lag, and what comes then has waited from then on, whatever its timestamp says.
    tokio::time::sleep(Duration::from_secs(600)).await;
    append(&a, "orders", 1, 10, 100);
    let families = until(&replicator, "the rest", |status| {
        status.flows[0].partitions[&(Arc::from("orders"), 0)].position == Some(50)
    })
    .await;
    assert_eq!(of(&families, "kmirror_lag_seconds", "orders"), 0.0);
    assert_eq!(of(&families, "kmirror_backlog_records", "orders"), 0.0);
    assert_eq!(of(&families, "kmirror_backlog_bytes", "orders"), 0.0);
    replicator.stop().await;
}

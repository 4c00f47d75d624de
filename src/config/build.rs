//! From scopes to the settings that the rooms below take. Every value is read once, with MirrorMaker's default, and noted
//! with its origin; whatever cannot be honoured is refused by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::lint::Linted;
use super::problem::{Problem, SourceText};
use super::providers::Outside;
use super::reader::{Fallback, Problems, Reader, Section};
use super::scoping::{self, Scope};
use super::security;
use super::translation;
use super::values;
use super::{Options, admin, circles, flow, naming};
use crate::client::{self, HostPort, IsolationLevel};
use crate::mirror::mm2::settings::HeartbeatSettings;
use crate::mirror::{FlowSettings, ProcessSettings};
use crate::net::{Backoff, DnsLookup};
use crate::observe;

const MEMORY_BUDGET_BYTES: usize = 128 * 1024 * 1024;
/// Less would not hold one fetch of a busy partition.
const MEMORY_BUDGET_BYTES_MIN: usize = 4 * 1024 * 1024;

/// Everything that is read from a file.
pub(super) struct Built {
    pub(super) process: ProcessSettings,
    pub(super) observe: observe::Settings,
    pub(super) sections: Vec<Section>,
}

/// Builds all settings.
pub(super) fn build(
    linted: &Linted,
    source: &SourceText,
    options: &Options<'_>,
    problems: &mut Problems,
) -> Built {
    let (targets, takeover_timeout) = (options.clusters, options.takeover_timeout);
    let mut builder = Builder { linted, source, options, problems, sections: Vec::new() };
    let (memory_budget_bytes, observe) = builder.process();
    let pairs = builder.pairs(targets);
    let sources: BTreeSet<&str> = pairs.iter().map(|(source, _)| source.as_str()).collect();
    let used: BTreeSet<&str> =
        pairs.iter().flat_map(|(source, target)| [source.as_str(), target.as_str()]).collect();
    let clusters: BTreeMap<Arc<str>, client::Settings> = used
        .iter()
        .map(|&alias| (Arc::from(alias), builder.cluster(alias, sources.contains(alias))))
        .collect();
    let mut heartbeats = Vec::new();
    let flows: Vec<FlowSettings> =
        pairs.iter().map(|(source, target)| builder.flow(source, target, &mut heartbeats)).collect();
    heartbeats.extend(builder.heartbeats(&pairs, &used, targets));
    let elsewhere = builder.flows_elsewhere(&pairs);
    let all = [flows.as_slice(), &elsewhere].concat();
    circles::check(&all, flows.len(), builder.problems);
    let flows = circles::tell_onward(&all, flows.len());
    circles::check_aliases(&flows, &clusters, builder.problems);
    let sections = builder.sections;
    Built {
        process: ProcessSettings { memory_budget_bytes, clusters, flows, heartbeats, takeover_timeout },
        observe,
        sections,
    }
}

struct Builder<'a> {
    linted: &'a Linted,
    source: &'a SourceText,
    options: &'a Options<'a>,
    problems: &'a mut Problems,
    sections: Vec<Section>,
}

impl Builder<'_> {
    fn read<T>(
        &mut self,
        section: &mut Section,
        scope: &Scope,
        read: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> T {
        let (entries, source) = (&self.linted.entries, self.source);
        read(&mut Reader { entries, source, problems: self.problems, section, scope, prefix: "" })
    }

    fn process(&mut self) -> (usize, observe::Settings) {
        let mut section = Section { title: "process".to_owned(), settings: Vec::new() };
        let outside = &self.options.outside;
        let settings = self.read(&mut section, &self.linted.raw, |reader| {
            let budget = |value: &str| {
                let bytes = values::size(value)?;
                let enough = bytes >= MEMORY_BUDGET_BYTES_MIN;
                enough
                    .then_some(bytes)
                    .ok_or_else(|| format!("{bytes} is less than {MEMORY_BUDGET_BYTES_MIN} bytes"))
            };
            let shown = Fallback::Theirs("128MiB");
            let budget = reader.parse("kmirror.memory.budget", shown, MEMORY_BUDGET_BYTES, budget);
            (budget, admin::read(reader, outside))
        });
        self.sections.push(section);
        settings
    }

    /// The flows that run: enabled, and into one of `targets`.
    fn pairs(&mut self, targets: &[String]) -> Vec<(String, String)> {
        let clusters = &self.linted.clusters;
        for target in targets.iter().filter(|target| !clusters.contains(target)) {
            let problem = Problem::error(format!("--clusters names {target}, which is not in clusters"));
            self.problems.push(problem.help(format!("clusters are: {}", clusters.join(", "))));
        }
        let ordered = clusters.iter().flat_map(|source| clusters.iter().map(move |target| (source, target)));
        let enabled: Vec<(String, String)> = ordered
            .filter(|(source, target)| source != target && self.is_enabled(source, target))
            .map(|(source, target)| (source.clone(), target.clone()))
            .collect();
        let kept: Vec<(String, String)> = enabled
            .iter()
            .filter(|(_, target)| targets.is_empty() || targets.contains(target))
            .cloned()
            .collect();
        if kept.is_empty() && clusters.len() < 2 {
            self.problems.push(Problem::error("a flow needs two clusters").help("clusters = A, B"));
        } else if kept.is_empty() && !enabled.is_empty() {
            self.say_where_flows_go(targets, &enabled);
        } else if kept.is_empty() {
            let help = format!("write {}->{}.enabled = true", clusters[0], clusters[1]);
            self.problems.push(Problem::error("no source->target replication flow is enabled").help(help));
        }
        kept
    }

    /// Flows that are enabled and that `--clusters` leaves to other processes: together with ours they may form a circle.
    /// What else is wrong with them is for these processes to say.
    fn flows_elsewhere(&self, pairs: &[(String, String)]) -> Vec<FlowSettings> {
        let (clusters, raw) = (&self.linted.clusters, &self.linted.raw);
        let mut problems = Problems::default();
        let mut section = Section { title: String::new(), settings: Vec::new() };
        let all = clusters.iter().flat_map(|source| clusters.iter().map(move |target| (source, target)));
        let is_ours =
            |source: &str, target: &str| pairs.iter().any(|pair| pair.0 == source && pair.1 == target);
        all.filter(|(source, target)| source != target && !is_ours(source, target))
            .filter(|(source, target)| self.is_enabled(source, target))
            .map(|(source, target)| {
                let scopes = flow::Scopes::new(raw, source, target);
                let mut reader = Reader {
                    entries: &self.linted.entries,
                    source: self.source,
                    problems: &mut problems,
                    section: &mut section,
                    scope: &scopes.connector,
                    prefix: "",
                };
                flow::read(&mut reader, &scopes, source, target, clusters)
            })
            .collect()
    }

    /// A name that no cluster has is reported for itself.
    fn say_where_flows_go(&mut self, targets: &[String], enabled: &[(String, String)]) {
        if targets.iter().all(|target| self.linted.clusters.contains(target)) {
            let into: BTreeSet<&str> = enabled.iter().map(|(_, target)| target.as_str()).collect();
            let into = into.into_iter().collect::<Vec<_>>().join(", ");
            let problem = Problem::error("no flow that is enabled goes into the clusters of --clusters");
            self.problems.push(problem.help(format!("--clusters names targets; flows go into: {into}")));
        }
    }

    /// `MirrorMakerConfig.clusterPairs`: a top-level `enabled` reaches a connector only where its herder runs for the
    /// sake of heartbeats.
    fn is_enabled(&self, source: &str, target: &str) -> bool {
        let raw = &self.linted.raw;
        let value = |key: &str| raw.get(key).and_then(|setting| values::boolean(&setting.value).ok());
        let of_flow = |key: &str| value(&format!("{source}->{target}.{key}"));
        let heartbeats =
            of_flow("emit.heartbeats.enabled").or_else(|| value("emit.heartbeats.enabled")).unwrap_or(true);
        of_flow("enabled").unwrap_or_else(|| heartbeats && value("enabled").unwrap_or(false))
    }

    fn cluster(&mut self, alias: &str, is_source: bool) -> client::Settings {
        let scope = connection_scope(&scoping::cluster(&self.linted.raw, alias), is_source);
        let mut section = Section { title: format!("cluster {alias}"), settings: Vec::new() };
        let missing = !scope.contains_key("bootstrap.servers");
        let outside = &self.options.outside;
        let settings = self.read(&mut section, &scope, |reader| {
            let servers =
                reader.parse("bootstrap.servers", Fallback::Theirs(""), Vec::new(), values::host_ports);
            connection_settings(reader, alias, servers, outside)
        });
        let cluster = scoping::cluster(&self.linted.raw, alias);
        for client in scoping::Client::ALL {
            let asked = cluster.get(&format!("{}.security.protocol", client.name()));
            let has = scope.get("security.protocol");
            self.read(&mut section, &scope, |reader| security::refuse_other(reader, asked, has, alias));
        }
        if let Err(reason) = naming::alias(alias) {
            let help = "topics of the flow's own carry it, as mm2-offsets.<alias>.internal; MirrorMaker fails at its start";
            self.problems.push(Problem::error(format!("the alias {alias:?} {reason}")).help(help));
        }
        if missing {
            let help = format!("write {alias}.bootstrap.servers = host:9092");
            self.problems.push(Problem::error(format!("{alias}.bootstrap.servers is missing")).help(help));
        }
        self.sections.push(section);
        settings
    }

    /// Heartbeats of the pairs without a flow of their own, between the clusters that are used (`clusterPairs`).
    fn heartbeats(
        &mut self,
        flows: &[(String, String)],
        used: &BTreeSet<&str>,
        targets: &[String],
    ) -> Vec<HeartbeatSettings> {
        let pairs = used.iter().flat_map(|source| used.iter().map(move |target| (*source, *target)));
        let others: Vec<(&str, &str)> = pairs
            .filter(|(source, target)| source != target)
            .filter(|(_, target)| targets.is_empty() || targets.iter().any(|named| named == target))
            .filter(|pair| !flows.iter().any(|flow| (flow.0.as_str(), flow.1.as_str()) == *pair))
            .collect();
        let mut heartbeats = Vec::new();
        for (source, target) in others {
            let scope = scoping::connector(&self.linted.raw, source, target);
            let mut section =
                Section { title: format!("heartbeats {source}->{target}"), settings: Vec::new() };
            let read = |reader: &mut Reader<'_>| translation::read_heartbeats(reader, source, target);
            if let Some(pair) = self.read(&mut section, &scope, read) {
                heartbeats.push(pair);
                self.sections.push(section);
            }
        }
        heartbeats
    }

    fn flow(&mut self, source: &str, target: &str, heartbeats: &mut Vec<HeartbeatSettings>) -> FlowSettings {
        let scopes = flow::Scopes::new(&self.linted.raw, source, target);
        let mut section = Section { title: format!("flow {source}->{target}"), settings: Vec::new() };
        let (entries, text) = (&self.linted.entries, self.source);
        let mut reader = Reader {
            entries,
            source: text,
            problems: self.problems,
            section: &mut section,
            scope: &scopes.connector,
            prefix: "",
        };
        let settings = flow::read(&mut reader, &scopes, source, target, &self.linted.clusters);
        heartbeats.extend(translation::read_heartbeats(&mut reader, source, target));
        if settings.fetch.isolation_level == IsolationLevel::ReadUncommitted {
            let message =
                format!("{source}->{target} reads uncommitted: what transactions abort is copied, too");
            let help = format!("write {source}.consumer.isolation.level = read_committed");
            self.problems.push(Problem::info(message).help(help));
        }
        self.sections.push(section);
        settings
    }
}

/// What holds for all connections to a cluster: bare keys, then those of its admin client, then those of the client that
/// carries the data.
pub(super) fn connection_scope(cluster: &Scope, is_source: bool) -> Scope {
    let data = if is_source { "consumer." } else { "producer." };
    let mut scope = cluster.clone();
    for prefix in ["admin.", data] {
        for (key, setting) in
            cluster.iter().filter_map(|(key, setting)| Some((key.strip_prefix(prefix)?, setting)))
        {
            if key != "bootstrap.servers" {
                scope.insert(key.to_owned(), setting.clone());
            }
        }
    }
    scope
}

fn connection_settings(
    reader: &mut Reader<'_>,
    alias: &str,
    servers: Vec<HostPort>,
    outside: &Outside<'_>,
) -> client::Settings {
    let mut settings = client::Settings::new(alias, servers);
    settings.net.security = security::read(reader, alias, outside);
    let net = &mut settings.net;
    net.client_id = reader.text("client.id", &net.client_id);
    let lookups = [
        ("use_all_dns_ips", DnsLookup::UseAllDnsIps),
        ("resolve_canonical_bootstrap_servers_only", DnsLookup::ResolveCanonicalBootstrapServersOnly),
    ];
    let lookup = reader.choice("client.dns.lookup", &lookups, "use_all_dns_ips");
    net.dns_lookup = lookup.unwrap_or(net.dns_lookup);
    let timeout = net.connection_setup_timeout;
    net.connection_setup_timeout = Backoff {
        initial: reader.millis("socket.connection.setup.timeout.ms", timeout.initial),
        max: reader.millis("socket.connection.setup.timeout.max.ms", timeout.max),
    };
    net.request_timeout = reader.millis("request.timeout.ms", net.request_timeout);
    net.reconnect_backoff = Backoff {
        initial: reader.millis("reconnect.backoff.ms", net.reconnect_backoff.initial),
        max: reader.millis("reconnect.backoff.max.ms", net.reconnect_backoff.max),
    };
    let idle = reader.integer("connections.max.idle.ms", 540_000, i64::MIN, i64::MAX);
    net.connections_max_idle = u64::try_from(idle).ok().map(Duration::from_millis);
    net.socket.send_buffer_bytes = buffer(reader, "send.buffer.bytes");
    net.socket.receive_buffer_bytes = buffer(reader, "receive.buffer.bytes");
    settings.metadata_max_age = reader.millis("metadata.max.age.ms", settings.metadata_max_age);
    settings.retry_backoff = Backoff {
        initial: reader.millis("retry.backoff.ms", settings.retry_backoff.initial),
        max: reader.millis("retry.backoff.max.ms", settings.retry_backoff.max),
    };
    settings.default_api_timeout = reader.millis("default.api.timeout.ms", settings.default_api_timeout);
    settings
}

/// A buffer of a socket; the system's default, unless the file sets one.
fn buffer(reader: &mut Reader<'_>, key: &str) -> Option<usize> {
    let read = |value: &str| Ok(usize::try_from(values::integer(value, -1, i32::MAX.into())?).ok());
    reader.parse(key, Fallback::Ours("the system's"), None, read)
}

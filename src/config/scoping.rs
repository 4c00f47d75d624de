//! Which key of a file reaches what: MirrorMaker's scoping, exactly (`MirrorMakerConfig.java`,
//! `MirrorConnectorConfig.java`, `MirrorClientConfig.java`, `Worker.java`).
//!
//! Pure map work over the values of a file; each value keeps the place it came from. Surprises that users rely on, or
//! stumble over:
//! - only `bootstrap.servers`, `security.protocol`, `ssl.*` and `sasl.*` hold for all clusters from the top level;
//! - `A->B.consumer.x` is weaker than `A.consumer.x`, since the latter becomes `source.consumer.x`;
//! - `A->B.*` never reaches the worker: its keys, and the producer of the data, are `B.*` and `B.producer.*`.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::keys;

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// The value that is used.
    pub(super) value: Rc<str>,
    /// The value that may be shown.
    pub(super) shown: Rc<str>,
    /// The entry of the file.
    pub(super) entry: usize,
}

/// Keys and values of one scope.
pub(super) type Scope = BTreeMap<String, Setting>;

/// A side of a flow, as the connector's configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Target,
}

/// A client that a connector makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    Consumer,
    Producer,
    Admin,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Source => "source",
            Side::Target => "target",
        }
    }
}

impl Client {
    pub(super) const ALL: [Client; 3] = [Client::Consumer, Client::Producer, Client::Admin];

    /// The word that stands before its keys.
    pub(super) fn name(self) -> &'static str {
        match self {
            Client::Consumer => "consumer",
            Client::Producer => "producer",
            Client::Admin => "admin",
        }
    }
}

/// `MirrorMakerConfig.clusterProps`.
pub(super) fn cluster(raw: &Scope, alias: &str) -> Scope {
    let mut scope = with_prefix(raw, &format!("{alias}."));
    let own = scope.clone();
    for (key, setting) in own.iter().filter(|(key, _)| keys::is_cluster_wide(key)) {
        put_for_clients(&mut scope, key, setting);
    }
    for (key, setting) in raw.iter().filter(|(key, _)| keys::is_cluster_wide(key)) {
        put_for_clients(&mut scope, key, setting);
        scope.entry(key.clone()).or_insert_with(|| setting.clone());
    }
    scope
}

fn put_for_clients(scope: &mut Scope, key: &str, setting: &Setting) {
    for client in Client::ALL {
        scope.entry(format!("{}.{key}", client.name())).or_insert_with(|| setting.clone());
    }
}

/// `MirrorMakerConfig.workerConfig` of the herder that writes into `target`.
pub(super) fn worker(raw: &Scope, target: &str) -> Scope {
    let mut scope = cluster(raw, target);
    for (key, setting) in raw.iter().filter(|(key, _)| keys::reaches_worker(key)) {
        scope.insert(key.clone(), setting.clone());
    }
    scope
}

/// `MirrorMakerConfig.connectorBaseConfig` of the flow `source->target`.
pub(super) fn connector(raw: &Scope, source: &str, target: &str) -> Scope {
    let mut scope: Scope = raw
        .iter()
        .filter(|(key, _)| keys::reaches_connector(key))
        .map(|(key, setting)| (key.clone(), setting.clone()))
        .collect();
    for (alias, side) in [(source, Side::Source), (target, Side::Target)] {
        for (key, setting) in cluster(raw, alias) {
            let for_client = Client::ALL.iter().any(|client| key.starts_with(client.name()));
            let name = side.name();
            scope.insert(
                if for_client { format!("{name}.{key}") } else { format!("{name}.cluster.{key}") },
                setting,
            );
        }
    }
    scope.extend(with_prefix(raw, &format!("{source}->{target}.")));
    scope
}

/// `MirrorConnectorConfig.sourceConsumerConfig` and its like.
pub(super) fn client(connector: &Scope, side: Side, client: Client) -> Scope {
    let (side, client) = (side.name(), client.name());
    let mut scope = with_prefix(connector, &format!("{side}.cluster."));
    scope.retain(|key, _| keys::is_cluster_wide(key));
    scope.extend(with_prefix(connector, &format!("{client}.")));
    scope.extend(with_prefix(connector, &format!("{side}.{client}.")));
    scope
}

/// The producer of the data: Connect's own, not the connector's (`Worker.baseProducerConfigs`).
pub(super) fn data_producer(worker: &Scope, connector: &Scope) -> Scope {
    let mut scope = with_prefix(worker, "producer.");
    scope.extend(with_prefix(connector, "producer.override."));
    scope
}

fn with_prefix(scope: &Scope, prefix: &str) -> Scope {
    let within = scope.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
    within.map(|(key, setting)| (key[prefix.len()..].to_owned(), setting.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Scope {
        let entries = super::super::properties::parse(text.as_bytes()).entries;
        let setting = |(entry, value): (usize, String)| {
            let value: Rc<str> = Rc::from(value);
            Setting { value: value.clone(), shown: value, entry }
        };
        entries.into_iter().enumerate().map(|(i, entry)| (entry.key, setting((i, entry.value)))).collect()
    }

    fn check(scope: &Scope, key: &str, value: Option<&str>) {
        assert_eq!(scope.get(key).map(|setting| &*setting.value), value, "{key} in {:?}", scope.keys());
    }

    #[test]
    fn the_top_level_is_a_default_for_connections_only() {
        let raw = raw("security.protocol=SSL\nssl.truststore.location=/t\nB.security.protocol=PLAINTEXT\n\
            consumer.fetch.min.bytes=7\nproducer.linger.ms=9\nA.consumer.fetch.min.bytes=5\nA.ssl.truststore.location=/a");
        let a = cluster(&raw, "A");
        check(&a, "security.protocol", Some("SSL"));
        check(&a, "consumer.security.protocol", Some("SSL"));
        check(&a, "admin.ssl.truststore.location", Some("/a"));
        check(&a, "consumer.fetch.min.bytes", Some("5"));
        check(&a, "producer.linger.ms", None);
        let b = cluster(&raw, "B");
        check(&b, "producer.security.protocol", Some("PLAINTEXT"));
        check(&b, "ssl.truststore.location", Some("/t"));
    }

    #[test]
    fn a_flow_overrides_the_top_level_and_not_the_worker() {
        let raw = raw("topics=a\nA->B.topics=b\ntasks.max=3\noffset.storage.replication.factor=1\n\
            B.offset.flush.interval.ms=1\nA->B.offset.flush.interval.ms=2\nuse.defaults.from=source\n\
            A->B.use.defaults.from=target\nnonsense=1\nA.offset.flush.interval.ms=3\nkmirror.batching=verbatim");
        let connector = connector(&raw, "A", "B");
        check(&connector, "topics", Some("b"));
        check(&connector, "tasks.max", Some("3"));
        check(&connector, "nonsense", None);
        check(&connector, "use.defaults.from", Some("target"));
        check(&connector, "kmirror.batching", Some("verbatim"));
        check(&super::connector(&raw, "B", "A"), "use.defaults.from", None);
        let worker = worker(&raw, "B");
        check(&worker, "offset.flush.interval.ms", Some("1"));
        check(&worker, "offset.storage.replication.factor", Some("1"));
        check(&worker, "topics", None);
    }

    #[test]
    fn the_clusters_consumer_is_stronger_than_the_flows() {
        let raw = raw(
            "A.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nA.consumer.x=cluster\nA->B.consumer.x=flow\n\
            A->B.consumer.y=flow\nA->B.source.consumer.z=exact\nA.consumer.z=cluster\nA.fetch.min.bytes=1",
        );
        let connector = connector(&raw, "A", "B");
        let source = client(&connector, Side::Source, Client::Consumer);
        check(&source, "x", Some("cluster"));
        check(&source, "y", Some("flow"));
        check(&source, "z", Some("exact"));
        check(&source, "bootstrap.servers", Some("a:1"));
        check(&source, "fetch.min.bytes", None);
        let target = client(&connector, Side::Target, Client::Consumer);
        check(&target, "x", Some("flow"));
        check(&target, "bootstrap.servers", Some("b:1"));
    }

    #[test]
    fn the_data_goes_by_connects_own_producer() {
        let raw = raw("B.producer.max.request.size=1\nA->B.producer.max.request.size=2\n\
            A->B.producer.override.linger.ms=3\nB.producer.linger.ms=4\nA.producer.acks=1");
        let producer = data_producer(&worker(&raw, "B"), &connector(&raw, "A", "B"));
        check(&producer, "max.request.size", Some("1"));
        check(&producer, "linger.ms", Some("3"));
        check(&producer, "acks", None);
    }
}

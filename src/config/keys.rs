//! The keys that MirrorMaker, Connect and Kafka's clients know, what kind of value each takes, and what it does here.
//!
//! Tables only; which of them hold where is `classify`'s matter. Names and kinds are those of `MirrorMakerConfig`,
//! `MirrorSourceConfig`, `MirrorCheckpointConfig`, `MirrorHeartbeatConfig`, `DistributedConfig`, `ConsumerConfig`,
//! `ProducerConfig` and `AdminClientConfig` of Kafka 4.3, and of the releases before it that users still have files for.

/// What a value must look like. It also decides where a comment behind it is cut off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// `true` or `false`.
    Boolean,
    /// A whole number within limits, both included.
    Integer(i64, i64),
    /// A number with a fraction.
    Float,
    /// Items between commas.
    List,
    /// Cluster aliases between commas.
    Aliases,
    /// `host:port` between commas.
    HostPorts,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// The name of a Java class.
    Class,
    /// An address to listen on, or `none`.
    Address,
    /// A number of bytes, perhaps with a unit.
    Size,
    /// Free text.
    Text,
    /// Free text that is never shown.
    Secret,
}

/// What a key does here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Effect {
    /// It is used.
    Used,
    /// It has none, for this reason.
    Nothing(&'static str),
    /// What it asks for is not there yet.
    NotYet(&'static str),
}

/// Where a key belongs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Home {
    /// The top level alone.
    Top,
    /// A connector: the top level, or `A->B.`.
    Connector,
    /// `A->B.` alone.
    Flow,
    /// The worker: `B.`.
    Worker,
}

/// A key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) home: Home,
    pub(super) kind: Kind,
    pub(super) effect: Effect,
}

const fn key(name: &'static str, home: Home, kind: Kind, effect: Effect) -> Key {
    Key { name, home, kind, effect }
}

use Effect::{NotYet, Nothing, Used};
use Home::{Connector, Flow, Top, Worker};
use Kind::{Address, Aliases, Boolean, Choice, Class, Float, HostPorts, Integer, List, Secret, Size, Text};

/// A count or a size that Kafka holds in an `int`.
const INT: Kind = Integer(0, i32::MAX as i64);
const POSITIVE: Kind = Integer(1, i32::MAX as i64);
const ANY_INT: Kind = Integer(i32::MIN as i64, i32::MAX as i64);
const LONG: Kind = Integer(0, i64::MAX);
const ANY_LONG: Kind = Integer(i64::MIN, i64::MAX);
/// A buffer size; -1 leaves it to the system.
const BUFFER: Kind = Integer(-1, i32::MAX as i64);
/// A replication factor; -1 leaves it to the cluster.
const FACTOR: Kind = Integer(-1, i16::MAX as i64);

const NO_CONNECT: Effect = Nothing("there is no Connect worker here");
const VERBATIM: Effect = Nothing("record batches are copied as they are");
const RETRIED: Effect = Nothing("calls are tried until they succeed, with back-off; no key gives them up");
const NO_GROUP: Effect = Nothing("partitions are fetched without a consumer group");
const METRICS: Effect = Nothing("metrics are served in Prometheus' format on kmirror.admin.listen");
const NO_JAVA_TLS: Effect = Nothing("TLS is not Java's here: it has no providers to choose from");
const NO_KERBEROS: Effect = Nothing("GSSAPI is not spoken here");
const NO_LOGIN: Effect = Nothing("a token endpoint is asked again with the back-off of refused connections");
const OF_BROKERS: Effect = Nothing("tokens are checked by brokers, not by clients");
const DOWN_TO_BYTES: Effect = Nothing("batches are bounded by kmirror.memory.budget instead");
const LEVEL: Effect = Nothing("what is recompressed gets its codec's default level");
const NO_SIGNING: Effect = Nothing(
    "assertions are not signed here; sasl.oauthbearer.assertion.file takes one that others have signed",
);
const LATER: Effect = NotYet("kmirror does not do this yet");

/// MirrorMaker's own keys, Connect's and kmirror's.
pub(super) const KEYS: &[Key] = &[
    key("clusters", Top, Aliases, Used),
    key("config.providers", Top, List, Used),
    key("dedicated.mode.enable.internal.rest", Top, Boolean, NO_CONNECT),
    key("kmirror.admin.anonymous", Top, Boolean, Used),
    key("kmirror.admin.basic.users.file", Top, Text, Used),
    key("kmirror.admin.bearer.token.file", Top, Text, Used),
    key("kmirror.admin.listen", Top, Address, Used),
    key("kmirror.admin.ssl.key.password", Top, Secret, Used),
    key("kmirror.admin.ssl.keystore.location", Top, Text, Used),
    key("kmirror.admin.ssl.keystore.password", Top, Secret, Used),
    key("kmirror.admin.ssl.keystore.type", Top, Text, Used),
    key("kmirror.memory.budget", Top, Size, Used),
    // Connector keys of kmirror.
    key("kmirror.acl.principal.map", Connector, Text, Used),
    key("kmirror.batching", Connector, Choice(&["adaptive", "verbatim"]), Used),
    key("kmirror.batching.compressed", Connector, Choice(&["backlog", "never"]), Used),
    key("kmirror.compat", Connector, Choice(&["3.9", "4.3", "4.4"]), Used),
    key("kmirror.connect.checkpoint.connector", Connector, Text, Used),
    key("kmirror.connect.config.topic", Connector, Text, Used),
    key("kmirror.connect.group.id", Connector, Text, Used),
    key("kmirror.connect.heartbeat.connector", Connector, Text, Used),
    key("kmirror.connect.offsets.topic", Connector, Text, Used),
    key("kmirror.connect.source.connector", Connector, Text, Used),
    key("kmirror.group.format", Connector, Text, Used),
    key("kmirror.on.oversize", Connector, Choice(&["stop", "skip"]), Used),
    key("kmirror.on.paused", Connector, Choice(&["honour", "ignore"]), Used),
    key("kmirror.on.source.reset", Connector, Choice(&["stop", "append"]), Used),
    key("kmirror.replication.policy.format", Connector, Text, Used),
    // MirrorConnectorConfig.
    key("enabled", Connector, Boolean, Used),
    key("source.cluster.alias", Connector, Text, Nothing("the flow names its clusters")),
    key("target.cluster.alias", Connector, Text, Nothing("the flow names its clusters")),
    key("admin.timeout.ms", Connector, LONG, Nothing("the steps at start are tried until they succeed")),
    key("replication.policy.class", Connector, Class, Used),
    key("replication.policy.separator", Connector, Text, Used),
    key("replication.policy.internal.topic.separator.enabled", Connector, Boolean, Used),
    key("forwarding.admin.class", Connector, Class, Used),
    key("metric.reporters", Connector, List, METRICS),
    key("metric.names.formats", Connector, List, METRICS),
    key("add.source.alias.to.metrics", Connector, Boolean, METRICS),
    key("auto.include.jmx.reporter", Connector, Boolean, METRICS),
    // MirrorSourceConfig.
    key("topics", Connector, List, Used),
    key("topics.exclude", Connector, List, Used),
    key("topics.blacklist", Connector, List, Used),
    key("config.properties.exclude", Connector, List, Used),
    key("config.properties.blacklist", Connector, List, Used),
    key("use.defaults.from", Flow, Choice(&["target", "source"]), Used),
    key("topic.filter.class", Connector, Class, Used),
    key("config.property.filter.class", Connector, Class, Used),
    key("consumer.poll.timeout.ms", Connector, LONG, Nothing("fetches are answered as data comes")),
    key("refresh.topics.enabled", Connector, Boolean, Used),
    key("refresh.topics.interval.seconds", Connector, Integer(1, i64::MAX / 1000), Used),
    key("sync.topic.configs.enabled", Connector, Boolean, Used),
    key("sync.topic.configs.interval.seconds", Connector, Integer(1, i64::MAX / 1000), Used),
    key("sync.topic.acls.enabled", Connector, Boolean, Used),
    key("sync.topic.acls.interval.seconds", Connector, Integer(1, i64::MAX / 1000), Used),
    key("replication.factor", Connector, FACTOR, Used),
    key("offset-syncs.topic.replication.factor", Connector, FACTOR, Used),
    key("offset-syncs.topic.location", Connector, Choice(&["source", "target"]), Used),
    key("offset.lag.max", Connector, LONG, Used),
    key("emit.offset-syncs.enabled", Connector, Boolean, Used),
    key("heartbeats.replication.enabled", Connector, Boolean, Used),
    key(
        "use.incremental.alter.configs",
        Connector,
        Choice(&["requested", "required", "never"]),
        Nothing("settings are always changed one by one (IncrementalAlterConfigs)"),
    ),
    // MirrorCheckpointConfig and MirrorHeartbeatConfig.
    key("groups", Connector, List, Used),
    key("groups.exclude", Connector, List, Used),
    key("groups.blacklist", Connector, List, Used),
    key("group.filter.class", Connector, Class, Used),
    key("refresh.groups.enabled", Connector, Boolean, Used),
    key("refresh.groups.interval.seconds", Connector, Integer(1, i64::MAX / 1000), Used),
    key("emit.checkpoints.enabled", Connector, Boolean, Used),
    key("emit.checkpoints.interval.seconds", Connector, Integer(1, i64::MAX / 1000), Used),
    key("sync.group.offsets.enabled", Connector, Boolean, Used),
    key("sync.group.offsets.interval.seconds", Connector, Integer(1, i64::MAX / 1000), Used),
    key("checkpoints.topic.replication.factor", Connector, FACTOR, Used),
    key("emit.heartbeats.enabled", Connector, Boolean, Used),
    key("emit.heartbeats.interval.seconds", Connector, Integer(1, i64::MAX / 1000), Used),
    key("heartbeats.topic.replication.factor", Connector, FACTOR, Used),
    // Connect's keys of every connector.
    key("name", Connector, Text, NO_CONNECT),
    key("connector.class", Connector, Class, NO_CONNECT),
    key("connector.plugin.version", Connector, Text, NO_CONNECT),
    key("tasks.max", Connector, POSITIVE, Nothing("there are no tasks: each broker has a lane")),
    key("tasks.max.enforce", Connector, Boolean, NO_CONNECT),
    key("key.converter", Connector, Class, Used),
    key("value.converter", Connector, Class, Used),
    key("header.converter", Connector, Class, Used),
    key("key.converter.plugin.version", Connector, Text, NO_CONNECT),
    key("value.converter.plugin.version", Connector, Text, NO_CONNECT),
    key("header.converter.plugin.version", Connector, Text, NO_CONNECT),
    key("transforms", Connector, List, Used),
    key("predicates", Connector, List, Used),
    key("config.action.reload", Connector, Choice(&["none", "restart"]), NO_CONNECT),
    key("errors.retry.timeout", Connector, ANY_LONG, Used),
    key("errors.retry.delay.max.ms", Connector, LONG, Used),
    key("errors.tolerance", Connector, Choice(&["none", "all"]), Used),
    key("errors.log.enable", Connector, Boolean, NO_CONNECT),
    key("errors.log.include.messages", Connector, Boolean, NO_CONNECT),
    key("exactly.once.support", Connector, Choice(&["requested", "required"]), LATER),
    key("transaction.boundary", Connector, Choice(&["poll", "interval", "connector"]), LATER),
    key("transaction.boundary.interval.ms", Connector, LONG, LATER),
    key("offsets.storage.topic", Connector, Text, NO_CONNECT),
    // DistributedConfig.
    key("group.id", Worker, Text, Used),
    key("offset.flush.interval.ms", Worker, POSITIVE, Used),
    key("offset.flush.timeout.ms", Worker, LONG, RETRIED),
    key("offset.storage.topic", Worker, Text, Used),
    key("offset.storage.partitions", Worker, Integer(-1, i32::MAX as i64), Used),
    key("offset.storage.replication.factor", Worker, FACTOR, Used),
    key("config.storage.topic", Worker, Text, Used),
    key("config.storage.replication.factor", Worker, FACTOR, NO_CONNECT),
    key("status.storage.topic", Worker, Text, NO_CONNECT),
    key("status.storage.partitions", Worker, Integer(-1, i32::MAX as i64), NO_CONNECT),
    key("status.storage.replication.factor", Worker, FACTOR, NO_CONNECT),
    key("exactly.once.source.support", Worker, Choice(&["disabled", "preparing", "enabled"]), LATER),
    key("scheduled.rebalance.max.delay.ms", Worker, INT, NO_CONNECT),
    key("rebalance.timeout.ms", Worker, INT, NO_CONNECT),
    key("session.timeout.ms", Worker, INT, NO_CONNECT),
    key("heartbeat.interval.ms", Worker, INT, NO_CONNECT),
    key("worker.sync.timeout.ms", Worker, INT, NO_CONNECT),
    key("worker.unsync.backoff.ms", Worker, INT, NO_CONNECT),
    key("task.shutdown.graceful.timeout.ms", Worker, LONG, NO_CONNECT),
    key("connect.protocol", Worker, Choice(&["eager", "compatible", "sessioned"]), NO_CONNECT),
    key("connector.client.config.override.policy", Worker, Text, NO_CONNECT),
    key("topic.creation.enable", Worker, Boolean, NO_CONNECT),
    key("topic.tracking.enable", Worker, Boolean, NO_CONNECT),
    key("topic.tracking.allow.reset", Worker, Boolean, NO_CONNECT),
    key("internal.topics.automatic.creation.enable", Worker, Boolean, NO_CONNECT),
    key("plugin.path", Worker, Text, NO_CONNECT),
    key("plugin.discovery", Worker, Text, NO_CONNECT),
    key("listeners", Worker, List, NO_CONNECT),
    key("admin.listeners", Worker, List, NO_CONNECT),
    key("rest.advertised.host.name", Worker, Text, NO_CONNECT),
    key("rest.advertised.port", Worker, INT, NO_CONNECT),
    key("rest.advertised.listener", Worker, Text, NO_CONNECT),
    key("rest.extension.classes", Worker, List, NO_CONNECT),
    key("access.control.allow.origin", Worker, Text, NO_CONNECT),
    key("access.control.allow.methods", Worker, Text, NO_CONNECT),
    key("response.http.headers.config", Worker, Text, NO_CONNECT),
];

/// Families of keys that Connect and the REST server know without naming each.
pub(super) const FAMILIES: &[(&str, Home, Effect)] = &[
    ("config.providers.", Top, Used),
    ("transforms.", Connector, Used),
    ("predicates.", Connector, Used),
    ("key.converter.", Connector, NO_CONNECT),
    ("value.converter.", Connector, NO_CONNECT),
    ("header.converter.", Connector, NO_CONNECT),
    ("errors.deadletterqueue.", Connector, NO_CONNECT),
    ("topic.creation.", Connector, NO_CONNECT),
    (
        "offset.storage.",
        Worker,
        Nothing("the topic is created compacted, and otherwise as the cluster's defaults say"),
    ),
    ("config.storage.", Worker, NO_CONNECT),
    ("status.storage.", Worker, NO_CONNECT),
    ("listeners.https.", Worker, NO_CONNECT),
    ("admin.listeners.https.", Worker, NO_CONNECT),
    ("inter.worker.", Worker, NO_CONNECT),
    ("metrics.context.", Worker, METRICS),
];

/// Which clients know a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ClientKey {
    pub(super) name: &'static str,
    /// Letters of [`super::scoping::Client`]: `c`onsumer, `p`roducer, `a`dmin.
    clients: &'static str,
    pub(super) kind: Kind,
    pub(super) effect: Effect,
    /// Whether it concerns the connections to a cluster, which all of kmirror's clients share.
    pub(super) connection: bool,
}

const fn client(name: &'static str, clients: &'static str, kind: Kind, effect: Effect) -> ClientKey {
    ClientKey { name, clients, kind, effect, connection: false }
}

const fn connection(name: &'static str, clients: &'static str, kind: Kind) -> ClientKey {
    ClientKey { name, clients, kind, effect: Used, connection: true }
}

/// Keys of Kafka's clients.
pub(super) const CLIENT_KEYS: &[ClientKey] = &[
    connection("bootstrap.servers", "cpa", HostPorts),
    connection(
        "client.dns.lookup",
        "cpa",
        Choice(&["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]),
    ),
    connection("client.id", "cpa", Text),
    connection("connections.max.idle.ms", "cpa", ANY_LONG),
    connection("default.api.timeout.ms", "ca", INT),
    connection("metadata.max.age.ms", "cpa", LONG),
    connection("receive.buffer.bytes", "cpa", BUFFER),
    connection("reconnect.backoff.max.ms", "cpa", LONG),
    connection("reconnect.backoff.ms", "cpa", LONG),
    connection("request.timeout.ms", "cpa", POSITIVE),
    connection("retry.backoff.max.ms", "cpa", LONG),
    connection("retry.backoff.ms", "cpa", LONG),
    connection("send.buffer.bytes", "cpa", BUFFER),
    connection("socket.connection.setup.timeout.max.ms", "cpa", POSITIVE),
    connection("socket.connection.setup.timeout.ms", "cpa", POSITIVE),
    connection("security.protocol", "cpa", Choice(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])),
    client("security.providers", "cpa", Text, NO_JAVA_TLS),
    client(
        "metadata.recovery.strategy",
        "cpa",
        Choice(&["none", "rebootstrap"]),
        Nothing(
            "bootstrap servers are asked again whenever no broker answers, or one says REBOOTSTRAP_REQUIRED",
        ),
    ),
    client(
        "metadata.recovery.rebootstrap.trigger.ms",
        "cpa",
        LONG,
        Nothing("bootstrap servers are asked again whenever no broker answers"),
    ),
    client("metrics.sample.window.ms", "cpa", LONG, METRICS),
    client("metrics.num.samples", "cpa", INT, METRICS),
    client("metrics.recording.level", "cpa", Text, METRICS),
    client("metric.reporters", "cpa", List, METRICS),
    client("enable.metrics.push", "cpa", Boolean, METRICS),
    client("auto.include.jmx.reporter", "cpa", Boolean, METRICS),
    client("interceptor.classes", "cp", List, VERBATIM),
    client("retries", "pa", INT, Used),
    client("zookeeper.connect", "cpa", Text, Nothing("no ZooKeeper is asked")),
    client("bootstrap.controllers", "a", HostPorts, Nothing("brokers are asked")),
    // The consumer.
    client("auto.offset.reset", "c", Choice(&["earliest", "latest", "none"]), Used),
    client("client.rack", "c", Text, Nothing("batches are read from leaders")),
    client("fetch.max.bytes", "c", INT, Used),
    client("fetch.max.wait.ms", "c", INT, Used),
    client("fetch.min.bytes", "c", INT, Used),
    client("isolation.level", "c", Choice(&["read_uncommitted", "read_committed"]), Used),
    client("max.partition.fetch.bytes", "c", INT, Used),
    client("allow.auto.create.topics", "c", Boolean, Nothing("topics are created by kmirror itself")),
    client("auto.commit.interval.ms", "c", LONG, NO_GROUP),
    client("check.crcs", "c", Boolean, Nothing("the target's brokers check every batch")),
    client("enable.auto.commit", "c", Boolean, NO_GROUP),
    client("exclude.internal.topics", "c", Boolean, Nothing("the replication policy says what is internal")),
    client("group.id", "c", Text, NO_GROUP),
    client("group.instance.id", "c", Text, NO_GROUP),
    client("group.protocol", "c", Choice(&["classic", "consumer"]), NO_GROUP),
    client("group.remote.assignor", "c", Text, NO_GROUP),
    client("heartbeat.interval.ms", "c", INT, NO_GROUP),
    client("key.deserializer", "c", Class, VERBATIM),
    client("max.poll.interval.ms", "c", INT, NO_GROUP),
    client("max.poll.records", "c", INT, VERBATIM),
    client("partition.assignment.strategy", "c", List, NO_GROUP),
    client("session.timeout.ms", "c", INT, NO_GROUP),
    client("share.acknowledgement.mode", "c", Text, NO_GROUP),
    client("value.deserializer", "c", Class, VERBATIM),
    // The producer.
    client("acks", "p", Choice(&["all", "-1", "0", "1"]), Used),
    client("max.in.flight.requests.per.connection", "p", POSITIVE, Used),
    client("max.request.size", "p", POSITIVE, Used),
    client("batch.size", "p", INT, VERBATIM),
    client("buffer.memory", "p", LONG, DOWN_TO_BYTES),
    client("compression.gzip.level", "p", ANY_INT, LEVEL),
    client("compression.lz4.level", "p", ANY_INT, LEVEL),
    client("compression.type", "p", Choice(&["none", "gzip", "snappy", "lz4", "zstd"]), Used),
    client("compression.zstd.level", "p", ANY_INT, LEVEL),
    client("delivery.timeout.ms", "p", INT, Used),
    client("enable.idempotence", "p", Boolean, Nothing("batches are always produced idempotently")),
    client("key.serializer", "p", Class, VERBATIM),
    client("linger.ms", "p", LONG, Nothing("nothing is delayed to make batches larger")),
    client("max.block.ms", "p", LONG, RETRIED),
    client("metadata.max.idle.ms", "p", LONG, Nothing("topics are watched as long as they are replicated")),
    client("partitioner.adaptive.partitioning.enable", "p", Boolean, VERBATIM),
    client("partitioner.availability.timeout.ms", "p", LONG, VERBATIM),
    client("partitioner.class", "p", Class, VERBATIM),
    client("partitioner.ignore.keys", "p", Boolean, VERBATIM),
    client("transaction.timeout.ms", "p", INT, LATER),
    client("transaction.two.phase.commit.enable", "p", Boolean, LATER),
    client("transactional.id", "p", Text, LATER),
    client("value.serializer", "p", Class, VERBATIM),
    // TLS.
    connection("ssl.cipher.suites", "cpa", List),
    connection("ssl.enabled.protocols", "cpa", List),
    connection("ssl.endpoint.identification.algorithm", "cpa", Text),
    connection("ssl.engine.factory.class", "cpa", Class),
    connection("ssl.key.password", "cpa", Secret),
    client("ssl.keymanager.algorithm", "cpa", Text, NO_JAVA_TLS),
    connection("ssl.keystore.certificate.chain", "cpa", Secret),
    connection("ssl.keystore.key", "cpa", Secret),
    connection("ssl.keystore.location", "cpa", Text),
    connection("ssl.keystore.password", "cpa", Secret),
    connection("ssl.keystore.type", "cpa", Text),
    client("ssl.protocol", "cpa", Text, Nothing("ssl.enabled.protocols says which versions are spoken")),
    client("ssl.provider", "cpa", Text, NO_JAVA_TLS),
    client("ssl.secure.random.implementation", "cpa", Text, NO_JAVA_TLS),
    client("ssl.trustmanager.algorithm", "cpa", Text, NO_JAVA_TLS),
    connection("ssl.truststore.certificates", "cpa", Secret),
    connection("ssl.truststore.location", "cpa", Text),
    connection("ssl.truststore.password", "cpa", Secret),
    connection("ssl.truststore.type", "cpa", Text),
    // SASL.
    connection("sasl.client.callback.handler.class", "cpa", Class),
    connection("sasl.jaas.config", "cpa", Secret),
    client("sasl.kerberos.kinit.cmd", "cpa", Text, NO_KERBEROS),
    client("sasl.kerberos.min.time.before.relogin", "cpa", LONG, NO_KERBEROS),
    client("sasl.kerberos.service.name", "cpa", Text, NO_KERBEROS),
    client("sasl.kerberos.ticket.renew.jitter", "cpa", Float, NO_KERBEROS),
    client("sasl.kerberos.ticket.renew.window.factor", "cpa", Float, NO_KERBEROS),
    connection("sasl.login.callback.handler.class", "cpa", Class),
    connection("sasl.login.class", "cpa", Class),
    connection("sasl.login.connect.timeout.ms", "cpa", INT),
    connection("sasl.login.read.timeout.ms", "cpa", INT),
    connection("sasl.login.refresh.buffer.seconds", "cpa", INT),
    connection("sasl.login.refresh.min.period.seconds", "cpa", INT),
    connection("sasl.login.refresh.window.factor", "cpa", Float),
    connection("sasl.login.refresh.window.jitter", "cpa", Float),
    client("sasl.login.retry.backoff.max.ms", "cpa", LONG, NO_LOGIN),
    client("sasl.login.retry.backoff.ms", "cpa", LONG, NO_LOGIN),
    connection("sasl.mechanism", "cpa", Text),
    connection("sasl.oauthbearer.assertion.file", "cpa", Text),
    connection("sasl.oauthbearer.client.credentials.client.id", "cpa", Text),
    connection("sasl.oauthbearer.client.credentials.client.secret", "cpa", Secret),
    connection("sasl.oauthbearer.header.urlencode", "cpa", Boolean),
    connection("sasl.oauthbearer.jwt.retriever.class", "cpa", Class),
    connection("sasl.oauthbearer.scope", "cpa", Text),
    connection("sasl.oauthbearer.token.endpoint.url", "cpa", Text),
    // As librdkafka calls them.
    connection("sasl.password", "cpa", Secret),
    connection("sasl.username", "cpa", Text),
];

/// Any key of these is known to the clients, whatever follows: there are many and they grow.
pub(super) const CLIENT_FAMILIES: &[(&str, Effect)] =
    &[("sasl.oauthbearer.assertion.", NO_SIGNING), ("sasl.oauthbearer.", OF_BROKERS)];

impl ClientKey {
    /// Whether the client with this name knows the key.
    pub(super) fn is_of(&self, client: &str) -> bool {
        client.chars().next().is_some_and(|letter| self.clients.contains(letter))
    }

    /// What it does for one of the clients that know it.
    pub(super) fn effect_of(&self, client: &str) -> Effect {
        if self.name == "retries" && client == "admin" { RETRIED } else { self.effect }
    }
}

/// A key by its name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// A client's key by its name.
pub(super) fn find_client(name: &str) -> Option<&'static ClientKey> {
    CLIENT_KEYS.iter().find(|key| key.name == name)
}

/// The family that a key belongs to.
pub(super) fn family(name: &str) -> Option<(Home, Effect)> {
    FAMILIES.iter().find(|(prefix, ..)| name.starts_with(prefix)).map(|&(_, home, effect)| (home, effect))
}

/// `MirrorClientConfig.CLIENT_CONFIG_DEF`: what holds for all clusters from the top level.
pub(super) fn is_cluster_wide(name: &str) -> bool {
    matches!(name, "bootstrap.servers" | "security.protocol")
        || name.starts_with("ssl.")
        || name.starts_with("sasl.")
}

/// The top-level keys that `MirrorMakerConfig.workerConfig` passes on.
pub(super) fn reaches_worker(name: &str) -> bool {
    const PREFIXES: [&str; 9] = [
        "offset.storage",
        "config.storage",
        "status.storage",
        "key.converter",
        "value.converter",
        "header.converter",
        "task",
        "worker",
        "replication.policy",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The top-level keys that `MirrorMakerConfig.connectorBaseConfig` passes on, and ours.
pub(super) fn reaches_connector(name: &str) -> bool {
    find(name).is_some_and(|key| key.home == Connector)
        || name.starts_with("config.providers")
        || name.starts_with("replication.policy")
        || (is_cluster_wide(name) && name != "bootstrap.servers")
}

/// Whether the value of a key must never be shown; `name` may carry any prefix.
pub(super) fn is_secret(name: &str) -> bool {
    // Also as people misspell them: an unknown key is reported with its line.
    const WORDS: [&str; 8] = ["pass", "pasw", "pwd", "user.info", "jaas", "secret", "credential", "token"];
    let name = name.to_ascii_lowercase();
    let last = |end: &str| name == end || name.ends_with(&format!(".{end}"));
    // A path and a name, whatever stands beside them.
    if last("bearer.token.file") || last("client.credentials.client.id") {
        return false;
    }
    WORDS.iter().any(|word| name.contains(word))
        || ["keystore.key", "keystore.certificate.chain", "truststore.certificates", "api.key", "private.key"]
            .iter()
            .any(|end| last(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_stands_in_a_table_twice() {
        let mut names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
        let mut client_names: Vec<&str> = CLIENT_KEYS.iter().map(|key| key.name).collect();
        for names in [&mut names, &mut client_names] {
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        }
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        for name in [
            "A.sasl.jaas.config",
            "ssl.key.password",
            "A->B.source.consumer.ssl.keystore.key",
            "sasl.oauthbearer.client.credentials.client.secret",
            "X.Password",
            "A.ssl.keystore.pasword",
            "ssl.key.passwrd",
            "A.producer.schema.registry.basic.auth.user.info",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "kmirror.admin.bearer.token.file",
            "A.sasl.oauthbearer.client.credentials.client.id",
            "topics",
            "key.converter",
            "ssl.keystore.location",
            "A.sasl.mechanism",
        ] {
            assert!(!is_secret(name), "{name}");
        }
        for key in CLIENT_KEYS.iter().filter(|key| key.kind == Secret) {
            assert!(is_secret(key.name), "{}", key.name);
        }
    }
}

//! What an embedded cluster is made of: brokers, addresses, the release it speaks like, defaults of topics, its seed.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The Apache Kafka release whose API versions a cluster advertises and accepts.
///
/// Only the version ranges follow it; what an API does is what the newest release does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum KafkaVersion {
    /// 2.1, the oldest release that current clients speak to (KIP-896).
    V2_1,
    /// 2.4: IncrementalAlterConfigs, Fetch from followers.
    V2_4,
    /// 2.8: topic ids in Metadata, flexible versions.
    V2_8,
    /// 3.3.
    V3_3,
    /// 3.6.
    V3_6,
    /// 3.9: the last with ZooKeeper.
    V3_9,
    /// 4.0: drops what is older than 2.1.
    V4_0,
    /// 4.1: topic ids in Produce.
    V4_1,
    /// 4.3.
    #[default]
    V4_3,
}

/// Whether a Metadata or Produce for an unknown topic creates it (`auto.create.topics.enable`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoCreate {
    /// Unknown topics are refused.
    #[default]
    Off,
    /// Unknown topics are created when a client's Metadata asks for it.
    On,
}

/// `transaction.version` as the cluster's finalized feature: what transactional clients do (KIP-890).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionVersion {
    /// Clients add partitions to their transaction, and keep their epoch.
    V1,
    /// Producing adds partitions, and every transaction takes an epoch. Only from release 4.0 on.
    #[default]
    V2,
}

/// `authorizer.class.name`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authorizer {
    /// None: requests about ACLs are SECURITY_DISABLED.
    #[default]
    None,
    /// ACLs are kept and told; nothing is enforced.
    Kept,
}

/// A mechanism of SASL that the brokers speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslMechanism {
    /// `PLAIN`.
    Plain,
    /// `SCRAM-SHA-256`.
    ScramSha256,
    /// `SCRAM-SHA-512`.
    ScramSha512,
}

impl SaslMechanism {
    /// All of them.
    pub const ALL: [SaslMechanism; 3] =
        [SaslMechanism::Plain, SaslMechanism::ScramSha256, SaslMechanism::ScramSha512];

    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// Who may come in. What they may do is not asked: see [`Authorizer`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sasl {
    /// `sasl.enabled.mechanisms`.
    pub mechanisms: Vec<SaslMechanism>,
    /// Users and their passwords.
    pub users: BTreeMap<String, String>,
    /// `connections.max.reauth.ms`: how long a session lasts, in milliseconds; `None` for ever.
    pub session_ms_max: Option<i64>,
}

/// Settings of an [`EmbeddedCluster`](super::EmbeddedCluster).
#[derive(Clone, Debug)]
pub struct Settings {
    /// `cluster.id`; an empty one is made from the seed.
    pub cluster_id: String,
    /// Brokers, with the ids 1 to this.
    pub brokers: u32,
    /// Address that the brokers listen on.
    pub address: IpAddr,
    /// Host that they advertise; empty means [`address`](Settings::address).
    pub advertised_host: String,
    /// Port of the first broker, the others follow; 0 takes free ones.
    pub port: u16,
    /// Seed of ids and of faults by probability.
    pub seed: u64,
    /// Release whose API versions are spoken.
    pub version: KafkaVersion,
    /// Topic configs that differ from Kafka's defaults, as a broker's `server.properties` would set them.
    pub topic_defaults: BTreeMap<String, String>,
    /// `num.partitions` of topics that are created without a count.
    pub partitions: u32,
    /// `default.replication.factor`.
    pub replication_factor: u16,
    /// `auto.create.topics.enable`.
    pub auto_create: AutoCreate,
    /// `authorizer.class.name`.
    pub authorizer: Authorizer,
    /// `transaction.version`.
    pub transaction_version: TransactionVersion,
    /// `broker.rack` per broker, the first one's first; a consumer that names its rack is sent to a replica there
    /// (`RackAwareReplicaSelector`, KIP-392). Brokers beyond the list have none.
    pub racks: Vec<String>,
    /// `throttle_time_ms` in every reply that has one.
    pub throttle_ms: i32,
    /// Milliseconds between the reply to EndTxn and the markers in the partitions, as the coordinator of a real cluster
    /// writes them later.
    pub marker_delay_ms: i64,
    /// `group.initial.rebalance.delay.ms`: how long the first JoinGroup of an empty group waits for others.
    pub group_initial_rebalance_delay_ms: i64,
    /// `group.min.session.timeout.ms`: JoinGroups with less are refused.
    pub group_min_session_timeout_ms: i32,
    /// `connections.max.idle.ms`: a connection without a request for so long is closed.
    pub connections_idle_ms_max: u64,
    /// `socket.request.max.bytes`: a longer request closes its connection.
    pub request_bytes_max: usize,
    /// Every listener speaks TLS with it; PLAINTEXT without.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Every listener wants to know by SASL who comes; nobody is asked without.
    pub sasl: Option<Sasl>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            cluster_id: String::new(),
            brokers: 1,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            advertised_host: String::new(),
            port: 0,
            seed: 0,
            version: KafkaVersion::default(),
            topic_defaults: BTreeMap::new(),
            partitions: 1,
            replication_factor: 1,
            auto_create: AutoCreate::Off,
            authorizer: Authorizer::default(),
            transaction_version: TransactionVersion::default(),
            racks: Vec::new(),
            throttle_ms: 0,
            marker_delay_ms: 0,
            group_initial_rebalance_delay_ms: 0,
            group_min_session_timeout_ms: 6_000,
            connections_idle_ms_max: 600_000,
            request_bytes_max: 104_857_600,
            tls: None,
            sasl: None,
        }
    }
}

//! What can go wrong at one cluster. Every message names the cluster, and the broker and API where there is one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::ApiKey;

use super::code::ErrorCode;
use crate::net;

/// An error of something that was asked of a cluster.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The connection failed, or the peer broke the protocol, or there is no common version.
    #[error("cluster {cluster}")]
    Connection {
        /// The cluster's alias.
        cluster: Arc<str>,
        /// What happened, with broker and step.
        source: Box<net::Error>,
    },
    /// A broker answered with an error code.
    #[error("cluster {cluster}, broker {broker}: {api:?} for {subject} answered {code}{}{}", words(message.as_deref()), right(*api, *code))]
    Refused {
        /// The cluster's alias.
        cluster: Arc<str>,
        /// The broker.
        broker: Box<net::BrokerAddress>,
        /// The API.
        api: ApiKey,
        /// What it was about.
        subject: Subject,
        /// The code.
        code: ErrorCode,
        /// The broker's words.
        message: Option<String>,
    },
    /// The answer leaves out what was asked for.
    #[error("cluster {cluster}, broker {broker}: the answer to {api:?} leaves out {subject}")]
    LeftOut {
        /// The cluster's alias.
        cluster: Arc<str>,
        /// The broker.
        broker: Box<net::BrokerAddress>,
        /// The API.
        api: ApiKey,
        /// What is missing.
        subject: Subject,
    },
    /// The cluster does not know the topic or partition.
    #[error("cluster {cluster}: {subject} does not exist")]
    Unknown {
        /// The cluster's alias.
        cluster: Arc<str>,
        /// What is unknown.
        subject: Subject,
    },
    /// The partition has no leader.
    #[error("cluster {cluster}: {subject} has no leader")]
    NoLeader {
        /// The cluster's alias.
        cluster: Arc<str>,
        /// The partition.
        subject: Subject,
    },
    /// The metadata has no broker of this id.
    #[error("cluster {cluster}: there is no broker {broker_id}")]
    NoBroker {
        /// The cluster's alias.
        cluster: Arc<str>,
        /// The id.
        broker_id: i32,
    },
    /// Tried for `default.api.timeout.ms`, in vain.
    #[error("cluster {cluster}: {api:?} did not succeed within {} ms", after.as_millis())]
    TimedOut {
        /// The cluster's alias.
        cluster: Arc<str>,
        /// The API.
        api: ApiKey,
        /// How long it was tried.
        after: Duration,
        /// What the last try brought, if one ended.
        source: Option<Box<Error>>,
    },
    /// More than the caller's limit would have had to be read.
    #[error("cluster {cluster}: {subject} holds more than {bytes_max} bytes")]
    TooMuch {
        /// The cluster's alias.
        cluster: Arc<str>,
        /// What was read.
        subject: Subject,
        /// The limit.
        bytes_max: usize,
    },
    /// What should be record batches is something else.
    #[error("cluster {cluster}: {subject} holds something that is no record batch")]
    Damaged {
        /// The cluster's alias.
        cluster: Arc<str>,
        /// The partition.
        subject: Subject,
    },
    /// The owner of the cluster's connections has ended.
    #[error("cluster {cluster}: its connections are closed")]
    Closed {
        /// The cluster's alias.
        cluster: Arc<str>,
    },
}

/// What a request was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The cluster as a whole.
    Cluster,
    /// A topic.
    Topic(Arc<str>),
    /// A partition.
    Partition(Arc<str>, i32),
    /// A group.
    Group(Arc<str>),
    /// A transactional id.
    TransactionalId(Arc<str>),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Cluster => f.write_str("the cluster"),
            Subject::Topic(topic) => write!(f, "topic {topic}"),
            Subject::Partition(topic, partition) => write!(f, "partition {topic}-{partition}"),
            Subject::Group(group) => write!(f, "group {group}"),
            Subject::TransactionalId(id) => write!(f, "transactional id {id}"),
        }
    }
}

impl Error {
    /// Kafka's error code, if a broker gave one; of a timed-out call, the code of its last try.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Error::Refused { code, .. } => Some(*code),
            Error::TimedOut { source, .. } => source.as_ref().and_then(|source| source.code()),
            _ => None,
        }
    }

    /// Whether the same may succeed when it is tried again.
    pub fn is_retriable(&self) -> bool {
        match self {
            Error::Connection { source, .. } => match **source {
                net::Error::Refused { code, .. } => ErrorCode(code).is_retriable(),
                _ => matches!(source.fault(), net::Fault::Lost | net::Fault::Peer | net::Fault::Security),
            },
            Error::Refused { code, .. } => code.is_retriable(),
            Error::NoLeader { .. } | Error::NoBroker { .. } | Error::TimedOut { .. } => true,
            Error::Unknown { .. }
            | Error::LeftOut { .. }
            | Error::TooMuch { .. }
            | Error::Damaged { .. }
            | Error::Closed { .. } => false,
        }
    }

    /// The message with the messages of all its causes.
    pub fn chain(&self) -> String {
        net::chain(self)
    }
}

/// The right that is missing, as an authorizer calls it (`KafkaApis.scala`).
fn right(api: ApiKey, code: ErrorCode) -> String {
    const TOPIC: i16 = 29;
    const GROUP: i16 = 30;
    const CLUSTER: i16 = 31;
    const TRANSACTIONAL_ID: i16 = 53;
    let (operation, resource) = match (code.0, api) {
        (TOPIC, ApiKey::Fetch | ApiKey::DescribeProducers | ApiKey::OffsetCommit) => ("READ", "the topic"),
        (TOPIC, ApiKey::Produce) => ("WRITE", "the topic"),
        (TOPIC, ApiKey::CreateTopics) => ("CREATE", "the topic, or on the cluster,"),
        (TOPIC, ApiKey::CreatePartitions) => ("ALTER", "the topic"),
        (TOPIC, ApiKey::DescribeConfigs) => ("DESCRIBE_CONFIGS", "the topic"),
        (TOPIC, ApiKey::IncrementalAlterConfigs) => ("ALTER_CONFIGS", "the topic"),
        (TOPIC, _) => ("DESCRIBE", "the topic"),
        // Whoever joins asks for this first, and whoever looks asks for nothing more.
        (GROUP, ApiKey::FindCoordinator) => ("READ (to look at it, DESCRIBE)", "the group"),
        (GROUP, ApiKey::DescribeGroups | ApiKey::ListGroups | ApiKey::OffsetFetch) => {
            ("DESCRIBE", "the group")
        }
        (GROUP, _) => ("READ", "the group"),
        (CLUSTER, ApiKey::CreateTopics) => ("CREATE", "the topic, or on the cluster,"),
        (CLUSTER, ApiKey::CreateAcls) => ("ALTER", "the cluster"),
        (CLUSTER, ApiKey::InitProducerId) => ("WRITE", "a topic"),
        (CLUSTER, _) => ("DESCRIBE", "the cluster"),
        (TRANSACTIONAL_ID, ApiKey::InitProducerId) => ("WRITE", "the transactional id"),
        (TRANSACTIONAL_ID, _) => ("DESCRIBE", "the transactional id"),
        _ => return String::new(),
    };
    format!("; {operation} on {resource} is needed (kmirror acls prints all)")
}

fn words(message: Option<&str>) -> String {
    match message {
        Some(message) if !message.is_empty() => format!(": {message}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_cluster_broker_api_subject_and_code() {
        let broker = net::BrokerAddress {
            host: "10.0.0.1".into(),
            port: 9092,
            address: "10.0.0.1:9092".parse().unwrap(),
        };
        let refused = Error::Refused {
            cluster: "A".into(),
            broker: Box::new(broker),
            api: ApiKey::CreateTopics,
            subject: Subject::Topic("t".into()),
            code: ErrorCode::INVALID_REPLICATION_FACTOR,
            message: Some("only one broker".into()),
        };
        let timed_out = Error::TimedOut {
            cluster: "A".into(),
            api: ApiKey::CreateTopics,
            after: Duration::from_secs(60),
            source: Some(Box::new(refused)),
        };
        assert_eq!(
            timed_out.chain(),
            "cluster A: CreateTopics did not succeed within 60000 ms: cluster A, broker 10.0.0.1:9092: CreateTopics for \
             topic t answered INVALID_REPLICATION_FACTOR (38): only one broker"
        );
        assert_eq!(timed_out.code(), Some(ErrorCode::INVALID_REPLICATION_FACTOR));
    }
}

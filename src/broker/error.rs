//! What can go wrong with an embedded cluster as its owner sees it. What clients get wrong is answered to them with
//! Kafka's error codes and never ends up here.

use std::net::SocketAddr;

/// A command that an [`EmbeddedCluster`](super::EmbeddedCluster) could not carry out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A broker's port cannot be opened.
    #[error("broker {broker} cannot listen on {address}")]
    Listen {
        /// Its id.
        broker: i32,
        /// The address that was asked for.
        address: SocketAddr,
        /// The system's words.
        source: std::io::Error,
    },
    /// No broker of this cluster has that id.
    #[error("the cluster has no broker {0}")]
    UnknownBroker(i32),
    /// The broker is not running.
    #[error("broker {0} is down")]
    BrokerDown(i32),
    /// No such topic.
    #[error("the cluster has no topic {0}")]
    UnknownTopic(String),
    /// No such partition.
    #[error("topic {topic} has no partition {partition}")]
    UnknownPartition {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// The broker holds no replica of that partition.
    #[error("broker {broker} is no replica of {topic}-{partition}")]
    NoReplica {
        /// The broker.
        broker: i32,
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// The cluster refused it as it would refuse a client.
    #[error("{what}: {code:?} {message}")]
    Refused {
        /// What was asked for.
        what: String,
        /// Kafka's error.
        code: kafka_protocol::ResponseError,
        /// The broker's words.
        message: String,
    },
    /// A stored batch cannot be read.
    #[error("{topic}-{partition} holds a batch that cannot be read")]
    Unreadable {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// What is wrong with it.
        source: crate::record::Error,
    },
    /// A batch was not appended.
    #[error("{topic}-{partition} refuses the batch")]
    Append {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// What a client would be told.
        source: super::log::AppendError,
    },
}

//! What one Kafka cluster looks like from outside: metadata, leaders, fetch and produce lanes, groups, admin.
//!
//! This room does not know that there are two clusters, and owns no producer epoch or sequence.

mod code;
mod dial;
mod error;
pub mod fetch;
mod lane;
mod metadata;
pub mod produce;
#[cfg(test)]
mod scripted;
mod settings;
mod slab;

pub use crate::net::HostPort;
pub use code::{Class, ErrorCode, Refresh, Scope};
pub use error::{Error, Subject};
pub use lane::{
    AbortedTransaction, FetchCommand, FetchEvent, FetchPartition, Fetched, FetchedBatch, LaneId,
    PartitionKey, ProduceAnswer, ProduceBatch, ProduceCommand, ProduceEvent, ProduceRequest, RecordError,
    TargetKey, TargetTopic,
};
pub use metadata::{Broker, ClusterView, Partition, Topic, Topics};
pub use settings::{FetchSettings, IsolationLevel, ProduceSettings, Settings};
pub use slab::Slabs;

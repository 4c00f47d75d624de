//! What one Kafka cluster looks like from outside: metadata, leaders, fetch and produce lanes, groups, admin.
//!
//! This room does not know that there are two clusters, and owns no producer epoch or sequence.

mod admin;
mod api;
mod cluster;
mod code;
mod dial;
#[cfg(test)]
mod embedded_tests;
mod error;
#[cfg(test)]
mod fault_tests;
pub mod fetch;
pub mod group;
mod lane;
mod metadata;
mod owner;
mod pool;
pub mod produce;
mod refresh;
#[cfg(test)]
mod scripted;
mod settings;
mod slab;
#[cfg(test)]
mod test_cluster;

pub use crate::net::HostPort;
pub use admin::{
    ClusterDescription, ConfigChange, ConfigEntry, ConfigSource, CreatedTopic, Each, EpochEnd,
    GroupDescription, GroupMember, ListedGroup, ListedOffset, NewTopic, OffsetSpec, PartitionLog,
    ProducerState, TopicPartition,
};
pub use api::Api;
pub use cluster::{Answer, Cluster, CoordinatorKind, Node};
pub use code::{Class, ErrorCode, Refresh, Scope};
pub use error::{Error, Subject};
pub use group::{Assign, GroupEvent, GroupSettings, LostReason, Membership, Role};
pub use lane::{
    AbortedTransaction, FetchCommand, FetchEvent, FetchPartition, Fetched, FetchedBatch, LaneId,
    PartitionKey, ProduceAnswer, ProduceBatch, ProduceCommand, ProduceEvent, ProduceRequest, RecordError,
    TargetKey, TargetTopic,
};
pub use metadata::{Broker, ClusterView, Partition, Topic, Topics};
pub use settings::{FetchSettings, IsolationLevel, ProduceSettings, Settings};
pub use slab::Slabs;

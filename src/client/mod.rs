//! What one Kafka cluster looks like from outside: metadata, leaders, fetch and produce lanes, groups, admin.
//!
//! This room does not know that there are two clusters, and owns no producer epoch or sequence.
//!
//! | to | use |
//! |---|---|
//! | know a cluster: brokers, topics, leaders, by generation | [`Cluster::view`], [`Cluster::watch`], [`Cluster::refresh`] |
//! | create and configure topics, ask for offsets, groups, producer ids | the methods of [`Cluster`] |
//! | read or write a small topic whole | [`Cluster::read_to_end`], [`Cluster::produce`] |
//! | call any other API at the right broker | [`Cluster::call`] with a [`Node`] |
//! | be a member of a group | [`Membership`] |
//! | move data | the lanes in [`fetch`] and [`produce`] |
//! | judge an error code | [`ErrorCode::class`] |
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use std::collections::BTreeMap;
//! use std::sync::Arc;
//!
//! use kmirror::client::{Cluster, IsolationLevel, NewTopic, OffsetSpec, Settings};
//! use kmirror::seam::Seam;
//!
//! # let broker = kmirror::broker::EmbeddedCluster::start(Seam::real(), Default::default()).await?;
//! # let bootstrap = broker.bootstrap();
//! let servers = bootstrap.split(',').map(str::parse).collect::<Result<_, _>>()?;
//! let cluster = Cluster::new(Seam::real(), Settings::new("A", servers));
//!
//! let orders: Arc<str> = "orders".into();
//! let topic = NewTopic { name: orders.clone(), partitions: 3, replication_factor: -1, configs: BTreeMap::new() };
//! for (name, created) in cluster.create_topics(&[topic]).await? {
//!     println!("{name}: {:?}", created?.id);
//! }
//! let view = cluster.wait_for_leaders(&BTreeMap::from([(orders.clone(), 3)])).await?;
//! println!("partition 0 is led by broker {:?}", view.leader("orders", 0));
//!
//! let ends = (0..3).map(|partition| ((orders.clone(), partition), OffsetSpec::Latest));
//! for (_, end) in cluster.list_offsets(ends, IsolationLevel::ReadCommitted).await {
//!     assert_eq!(end?.offset, 0);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
    AclOperation, AclPattern, AclPermission, ClusterDescription, CommittedOffset, ConfigChange, ConfigEntry,
    ConfigSource, CreatedTopic, Each, EpochEnd, GroupDescription, GroupIdentity, GroupMember, GroupOffsets,
    ListedGroup, ListedOffset, NewTopic, OffsetSpec, PartitionLog, ProducerState, TopicAcl, TopicPartition,
    TransactionDescription,
};
pub use api::Api;
pub use cluster::{Answer, Cluster, CoordinatorKind, Node};
pub use code::{Class, ErrorCode, Refresh, Scope};
pub use error::{Error, Subject};
pub use group::{
    Assign, ByTopicId, ConsumerEvent, ConsumerMembership, ConsumerReport, ConsumerSettings, Election,
    GroupEvent, GroupSettings, LostReason, Membership, Rejoin, Role,
};
pub use lane::{
    AbortedTransaction, FetchCommand, FetchEvent, FetchPartition, Fetched, FetchedBatch, LaneId,
    PartitionKey, ProduceAnswer, ProduceBatch, ProduceCommand, ProduceEvent, ProduceRequest, RecordError,
    TargetKey, TargetTopic,
};
pub use metadata::{Broker, ClusterView, Partition, Topic, Topics};
pub use settings::{FetchSettings, IsolationLevel, ProduceSettings, Settings};
pub use slab::Slabs;

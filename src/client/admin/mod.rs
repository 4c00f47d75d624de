//! What the control plane does at a cluster, one file per kind of thing.
//!
//! Calls about many things give one result for each: a topic, partition or group that fails stops no other. All are safe
//! to repeat, and are repeated: a call whose reply was lost may find its own effect (TOPIC_ALREADY_EXISTS).

mod acls;
mod group_offsets;
mod groups;
mod leaders;
mod log;
mod offsets;
mod topics;
mod transactions;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use acls::{AclOperation, AclPattern, AclPermission, TopicAcl};
pub use group_offsets::{CommittedOffset, GroupIdentity, GroupOffsets};
pub use groups::{GroupDescription, GroupMember, ListedGroup};
pub use log::PartitionLog;
pub use offsets::{EpochEnd, ListedOffset, OffsetSpec, ProducerState};
pub use topics::{ClusterDescription, ConfigChange, ConfigEntry, ConfigSource, CreatedTopic, NewTopic};
pub use transactions::TransactionDescription;

use super::error::Error;

#[cfg(test)]
mod tests;

/// A topic's name and a partition's index.
pub type TopicPartition = (Arc<str>, i32);

/// A result for each thing that was asked about.
pub type Each<K, V> = BTreeMap<K, Result<V, Error>>;

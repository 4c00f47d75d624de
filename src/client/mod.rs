//! What one Kafka cluster looks like from outside: metadata, leaders, fetch and produce lanes, groups, admin.
//!
//! This room does not know that there are two clusters, and owns no producer epoch or sequence.

pub mod fetch;
mod lane;
pub mod produce;
mod settings;
mod slab;

pub use crate::net::HostPort;
pub use lane::{
    AbortedTransaction, FetchCommand, FetchEvent, FetchPartition, Fetched, FetchedBatch, PartitionKey,
    ProduceAnswer, ProduceBatch, ProduceCommand, ProduceEvent, ProduceRequest, RecordError, TargetKey,
    TargetTopic,
};
pub use settings::{FetchSettings, IsolationLevel, ProduceSettings, Settings};
pub use slab::Slabs;

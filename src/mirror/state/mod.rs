//! What a flow remembers between two lives of the process, and where it keeps it: on the target, never on a local disk.
//!
//! Two compacted topics. `mm2-offsets.<S>.internal` is MirrorMaker's own, byte for byte, so that either can take over
//! from the other. `mm2-kmirror.<S>.internal` holds what MirrorMaker has no place for. Where the two disagree,
//! MirrorMaker's offset wins and our pair is void: somebody else has moved the position since.
//!
//! `mm2_offsets` and `records` know the bytes, `remembered` what they say together, `batches` what a save writes,
//! `log` which records of a topic count; `store` reads and writes the topics.

mod batches;
mod log;
pub mod mm2_offsets;
pub mod records;
mod remembered;
mod store;

use std::fmt;
use std::sync::Arc;

pub use batches::Layout;
pub(in crate::mirror) use log::for_each_committed;
pub use remembered::{Remembered, RememberedPartition, Standing, owner};
pub(in crate::mirror) use store::{Held, Save};
pub use store::{OpenError, PositionStore, StoreError, StoreOwner, look};

/// A partition of a topic, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition's index.
    pub partition: i32,
}

impl TopicPartition {
    /// From its parts.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

//! What is replicated, and the promises about it.
//!
//! Opens no socket and parses no file: it is given settings and clients of both clusters.

mod filter;
mod policy;
mod settings;
pub mod status;

pub use filter::{PatternError, PatternList};
pub use policy::{PolicyKind, ReplicationPolicy};
pub use settings::{
    Batching, CompressedBatching, DefaultsFrom, FlowSettings, OffsetReset, OnOversize, OnSourceReset,
    ProcessSettings, ReplicationFactor,
};

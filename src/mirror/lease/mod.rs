//! One writer for each topic of a flow: the lease that a process must hold before its first write to the target.
//!
//! `protocol` has the words of the group that carries it, `tenure` the holder's own clock; `holder` is the task
//! that brings them together with a membership of the group.

mod holder;
pub mod protocol;
pub mod tenure;

pub use holder::{Grant, Lease, LeaseState, LeaseWatch, SESSION_TIMEOUT};
pub use protocol::{GROUP_PREFIX, group_id};

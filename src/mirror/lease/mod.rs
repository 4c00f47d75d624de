//! One writer per flow: the lease that a process must hold before its first write to the target.
//!
//! `protocol` has the words of the group that carries it, `tenure` the holder's own clock, `membership` the calls to the
//! coordinator; `holder` is the task that brings them together.

mod holder;
mod membership;
pub mod protocol;
pub mod tenure;

pub use holder::{Lease, LeaseState, SESSION_TIMEOUT};

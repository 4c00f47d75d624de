//! One writer per flow: the lease that a process must hold before its first write to the target.
//!
//! `protocol` has the words of the group that carries it, `tenure` the holder's own clock.

pub mod protocol;
pub mod tenure;

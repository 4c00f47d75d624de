//! Topics of a flow: observe both clusters, compare, create and grow what is missing on the target.
//!
//! [`diff`] compares and decides, [`configs`] says which settings a remote topic gets; both are pure. [`apply`] acts.

pub mod apply;
pub mod configs;
pub mod diff;

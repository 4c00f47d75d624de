//! Topics of a flow: observe both clusters, compare, create and grow what is missing on the target.
//!
//! [`diff`] compares and decides, [`configs`] and [`acls`] say which settings and ACLs a remote topic gets; they are pure.
//! [`apply`] creates and grows, [`sync`] follows settings and ACLs.

pub mod acls;
pub mod apply;
pub mod configs;
pub mod diff;
pub mod sync;

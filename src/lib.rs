//! kmirror copies Kafka record batches from one cluster to another, verbatim.
//!
//! The rooms and the arrows between them are described in ARCHITECTURE.md. `record`, `client` and `broker` can be used
//! as a library.

pub mod broker;
pub mod cli;
pub mod client;
pub mod config;
pub mod mirror;
pub mod net;
pub mod observe;
pub mod record;
pub mod seam;

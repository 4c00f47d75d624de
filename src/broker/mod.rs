//! The embedded Kafka-compatible broker: a whole cluster in memory, for the demo, tests, benches and the simulation.
//!
//! [`EmbeddedCluster`] serves Kafka's protocol over a [`Seam`](crate::seam::Seam): TCP, so that any Kafka client can use it,
//! or the simulated network. It answers as Apache Kafka does, also where it refuses: a Produce is checked by the same rules
//! ([`log`]), and what real brokers let pass is let pass, but reported by [`EmbeddedCluster::violations`].
//!
//! Nothing is kept on disk, replicas share one log, and nobody's rights are checked; who comes is, with [`Sasl`]. Under a seed, a simulated network and a
//! current-thread runtime a run can be repeated exactly.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use kmirror::broker::{EmbeddedCluster, Settings};
//! use kmirror::seam::Seam;
//!
//! let cluster = EmbeddedCluster::start(Seam::real(), Settings { brokers: 3, ..Settings::default() }).await?;
//! cluster.create_topic("orders", 6, 3, &[("cleanup.policy", "compact")])?;
//! println!("bootstrap.servers={}", cluster.bootstrap());
//! cluster.stop_broker(1).await?;
//! assert_ne!(cluster.leader("orders", 0), Some((Some(1), 0)));
//! cluster.shutdown().await;
//! # Ok::<(), kmirror::broker::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Inside: [`ClusterState`] decides everything, without clock, socket or lock; `server` reads frames and writes replies.

pub mod log;

mod cluster;
mod contents;
mod error;
mod fault;
mod sasl;
mod server;
mod settings;
mod state;
pub mod versions;
pub mod wire;

pub use cluster::EmbeddedCluster;
pub use contents::LoggedRecord;
pub use error::Error;
pub use fault::{Effect, FaultRule, When};
pub use sasl::Logins;
pub use settings::{Authorizer, AutoCreate, KafkaVersion, Sasl, SaslMechanism, Settings, TransactionVersion};
pub use state::{ClusterState, Violation};

#[cfg(test)]
mod tests;

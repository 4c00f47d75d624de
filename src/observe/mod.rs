//! Counters and state to text: `/metrics`, `/status`, `/healthz`, `/readyz`, progress lines. Decides nothing.

#[cfg(test)]
mod example;
pub mod json;
mod metrics;
mod server;
mod settings;

pub use metrics::Metrics;
pub use server::{ListenError, listen, serve};
pub use settings::{AdminListen, Settings};

//! Counters and state to text: `/metrics`, `/status`, `/healthz`, `/readyz`, progress lines. Decides nothing.

mod access;
#[cfg(test)]
mod example;
mod guests;
pub mod json;
mod metrics;
mod progress;
mod server;
mod settings;
mod table;
mod translation;
pub mod units;

pub use metrics::{Metrics, Names};
pub use progress::{Meter, Progress, Totals};
pub use server::{AdminListener, ListenError, listen, serve};
pub use settings::{Access, AdminListen, Settings};
pub use table::{Screen, Table};

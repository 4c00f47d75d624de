//! Counters and state to text: `/metrics`, `/status`, `/healthz`, `/readyz`, progress lines. Decides nothing.

mod settings;

pub use settings::{AdminListen, Settings};

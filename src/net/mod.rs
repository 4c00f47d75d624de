//! One connection to a broker: dialling, version negotiation, authentication, framing, correlation.
//!
//! The connection is a state machine, Dialing → ApiVersions → Authenticating → Ready ⇄ Reauthenticating. This room does
//! not know what a topic is: it moves frames and hands out the version ranges that the broker offered.

mod settings;

pub use settings::{Backoff, DnsLookup, Security, Settings};

//! One connection to a broker: dialling, TLS, version negotiation, authentication, framing, correlation.
//!
//! The connection is a state machine, Dialing → ApiVersions → Authenticating → Ready ⇄ Reauthenticating. This room does
//! not know what a topic is: it moves frames and hands out the version ranges that the broker offered.

mod address;
mod connection;
mod error;
mod establish;
mod frame;
pub mod http;
mod machine;
mod pipeline;
pub mod sasl;
mod secret;
mod settings;
pub mod tls;
mod versions;

pub use address::{BrokerAddress, HostPort, HostPortError};
pub use connection::Connection;
pub use error::{CloseReason, Error, Fault, Step, chain};
pub use establish::{Established, Renewed, canonical_bootstrap, establish, establish_after, renew};
pub use frame::{
    FrameReader, ReadError, SIZE_BYTES, SizeOutside, decode_response, encode_request, peek_correlation_id,
};
pub use machine::{Authenticating, Dialing, Machine, Negotiating, Purpose, Ready};
pub use secret::Secret;
pub use settings::{Backoff, DnsLookup, Security, Settings};
pub use versions::{ApiVersions, negotiate};

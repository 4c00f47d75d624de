//! One connection to a broker: dialling, version negotiation, authentication, framing, correlation.
//!
//! The connection is a state machine, Dialing → ApiVersions → Authenticating → Ready ⇄ Reauthenticating. This room does
//! not know what a topic is: it moves frames and hands out the version ranges that the broker offered.

mod address;
mod connection;
mod error;
mod establish;
mod frame;
mod machine;
mod pipeline;
mod settings;
mod versions;

pub use address::{BrokerAddress, HostPort, HostPortError};
pub use connection::Connection;
pub use error::{CloseReason, Error, Fault, Step, chain};
pub use establish::{Established, canonical_bootstrap, establish, establish_after};
pub use frame::{
    FrameReader, ReadError, SIZE_BYTES, SizeOutside, decode_response, encode_request, peek_correlation_id,
};
pub use machine::{Authenticating, Dialing, Machine, Negotiating, Purpose, Ready};
pub use settings::{Backoff, DnsLookup, Security, Settings};
pub use versions::{ApiVersions, negotiate};

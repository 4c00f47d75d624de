//! What can go wrong on one connection, split by whose fault it is.
//!
//! Every message names the broker and the step. Errors are cheap to clone, because the end of a connection ends every
//! request in flight.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::ApiKey;

use super::address::{BrokerAddress, HostPort};
use super::sasl::SaslFailure;
use super::settings::Settings;
use super::tls::TlsFailure;

/// Where on a connection something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Asking for the versions that the broker speaks.
    ApiVersions,
    /// Authenticating.
    Authenticating,
    /// A request of this API and version.
    Request(ApiKey, i16),
    /// Nothing was asked.
    Idle,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::ApiVersions => f.write_str("ApiVersions"),
            Step::Authenticating => f.write_str("authentication"),
            Step::Request(api, version) => write!(f, "{api:?} v{version}"),
            Step::Idle => f.write_str("no request"),
        }
    }
}

/// Whose fault an [`Error`] is, which decides what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is gone or never was: another broker, or the same one later, may do.
    Lost,
    /// The peer broke the protocol.
    Peer,
    /// Both sides are right and have no version in common.
    Incompatible,
    /// The broker refused, with a code.
    Refused,
    /// The request cannot be expressed in that version.
    Ours,
    /// One side does not believe the other: nothing changes until somebody changes a setting, a certificate or a password.
    Security,
}

/// An error of one connection.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The name has no address.
    #[error("{broker}: the name cannot be resolved")]
    Resolve {
        /// The broker's name.
        broker: HostPort,
        /// What the resolver said.
        source: Arc<io::Error>,
    },
    /// The resolver answered with an empty list.
    #[error("{broker}: the name has no address")]
    NoAddress {
        /// The broker's name.
        broker: HostPort,
    },
    /// Nobody accepts connections there.
    #[error("{broker}: cannot connect")]
    Dial {
        /// The broker.
        broker: BrokerAddress,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// No connection within `socket.connection.setup.timeout.ms`.
    #[error("{broker}: no connection within {} ms", after.as_millis())]
    DialTimeout {
        /// The broker.
        broker: BrokerAddress,
        /// How long it was tried.
        after: Duration,
    },
    /// No reply within the request's timeout; the connection was closed.
    #[error("{broker}: no reply to {step} within {} ms", after.as_millis())]
    RequestTimeout {
        /// The broker.
        broker: BrokerAddress,
        /// What was asked.
        step: Step,
        /// How long was waited.
        after: Duration,
    },
    /// The broker closed the connection.
    #[error("{broker}: the broker closed the connection during {step}")]
    Closed {
        /// The broker.
        broker: BrokerAddress,
        /// What was asked.
        step: Step,
    },
    /// The connection broke.
    #[error("{broker}: the connection broke during {step}")]
    Broken {
        /// The broker.
        broker: BrokerAddress,
        /// What was asked.
        step: Step,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The broker closed the connection at its first word, as listeners do that speak another security protocol.
    #[error("{broker}: the broker closed the connection at {step}, the first {}", first(*step))]
    ClosedAtFirst {
        /// The broker.
        broker: BrokerAddress,
        /// What was asked.
        step: Step,
    },
    /// There is no TLS session.
    #[error("{broker}: TLS: {failure}")]
    Tls {
        /// The broker.
        broker: BrokerAddress,
        /// Why.
        failure: Box<TlsFailure>,
    },
    /// The broker does not take us for who we are.
    #[error("{broker}: SASL: {failure}")]
    Authentication {
        /// The broker.
        broker: BrokerAddress,
        /// Why.
        failure: Box<SaslFailure>,
    },
    /// The connection ended for a reason that another request gave; this one's outcome is unknown.
    #[error("{broker}: the connection ended during {step}")]
    Lost {
        /// The broker.
        broker: BrokerAddress,
        /// What was asked.
        step: Step,
        /// Why the connection ended.
        source: Box<Error>,
    },
    /// We closed the connection: it was idle for `connections.max.idle.ms`, or nobody needs it.
    #[error("{broker}: the connection is closed ({reason})")]
    ClosedByUs {
        /// The broker.
        broker: BrokerAddress,
        /// Why.
        reason: CloseReason,
    },
    /// A frame that is no reply, or larger than we read whole.
    #[error("{broker}: a reply of {bytes} bytes to {step}, where 4 to {bytes_max} are allowed{}", other_protocol(*bytes))]
    FrameSize {
        /// The broker.
        broker: BrokerAddress,
        /// What was asked.
        step: Step,
        /// The size that the peer claims.
        bytes: i32,
        /// The largest size that we read.
        bytes_max: usize,
    },
    /// A reply to something that was not asked next.
    #[error("{broker}: correlation id {got} where {expected} was due, in the reply to {step}")]
    CorrelationId {
        /// The broker.
        broker: BrokerAddress,
        /// What was asked.
        step: Step,
        /// The id of the oldest request in flight.
        expected: i32,
        /// The id that came.
        got: i32,
    },
    /// A reply though nothing was asked.
    #[error("{broker}: a reply with correlation id {got} though nothing was asked")]
    Unasked {
        /// The broker.
        broker: BrokerAddress,
        /// The id that came.
        got: i32,
    },
    /// A reply that is no reply of that API and version.
    #[error("{broker}: the reply to {step} cannot be decoded: {reason}")]
    Undecodable {
        /// The broker.
        broker: BrokerAddress,
        /// What was asked.
        step: Step,
        /// The decoder's words.
        reason: String,
    },
    /// No version in common.
    #[error("{broker}: {api:?} is needed in a version from {} to {}, {}", ours.start(), ours.end(), offered(*theirs))]
    Incompatible {
        /// The broker.
        broker: BrokerAddress,
        /// The API.
        api: ApiKey,
        /// The versions that we speak.
        ours: RangeInclusive<i16>,
        /// The versions that the broker speaks; `None` when it does not know the API.
        theirs: Option<(i16, i16)>,
    },
    /// The broker refused the step.
    #[error("{broker}: {step} was refused with error code {code}")]
    Refused {
        /// The broker.
        broker: BrokerAddress,
        /// Which step.
        step: Step,
        /// Kafka's error code.
        code: i16,
    },
    /// A request that its version cannot express.
    #[error("{api:?} v{version} cannot be encoded: {reason}")]
    Unencodable {
        /// The API.
        api: ApiKey,
        /// The version.
        version: i16,
        /// The encoder's words.
        reason: String,
    },
}

/// Why we closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// `connections.max.idle.ms` passed.
    Idle,
    /// Nobody holds it any more, or its owner ended.
    Dropped,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CloseReason::Idle => "idle for connections.max.idle.ms",
            CloseReason::Dropped => "no longer needed",
        })
    }
}

impl Error {
    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Error::Resolve { .. }
            | Error::NoAddress { .. }
            | Error::Dial { .. }
            | Error::DialTimeout { .. }
            | Error::RequestTimeout { .. }
            | Error::Closed { .. }
            | Error::Broken { .. }
            | Error::ClosedAtFirst { .. }
            | Error::Lost { .. }
            | Error::ClosedByUs { .. } => Fault::Lost,
            Error::FrameSize { .. }
            | Error::CorrelationId { .. }
            | Error::Unasked { .. }
            | Error::Undecodable { .. } => Fault::Peer,
            Error::Incompatible { .. } => Fault::Incompatible,
            Error::Refused { .. } => Fault::Refused,
            Error::Unencodable { .. } => Fault::Ours,
            Error::Tls { .. } | Error::Authentication { .. } => Fault::Security,
        }
    }

    /// The step at which it happened, where there is one.
    pub fn step(&self) -> Option<Step> {
        match self {
            Error::RequestTimeout { step, .. }
            | Error::Closed { step, .. }
            | Error::ClosedAtFirst { step, .. }
            | Error::Broken { step, .. }
            | Error::Lost { step, .. }
            | Error::FrameSize { step, .. }
            | Error::CorrelationId { step, .. }
            | Error::Undecodable { step, .. }
            | Error::Refused { step, .. } => Some(*step),
            _ => None,
        }
    }

    /// The message with the messages of all its causes, for a log line or a status text.
    pub fn chain(&self) -> String {
        chain(self)
    }

    /// From what the system said of a read or a write.
    pub fn broken(broker: &BrokerAddress, step: Step, source: io::Error) -> Error {
        let broker = broker.clone();
        if let Some(failure) = TlsFailure::of_io(&source) {
            return Error::Tls { broker, failure: Box::new(failure) };
        }
        match source.kind() {
            io::ErrorKind::UnexpectedEof => Error::Closed { broker, step },
            _ => Error::Broken { broker, step, source: Arc::new(source) },
        }
    }
}

/// What a listener may want of a client that it drops without a word.
fn first(step: Step) -> &'static str {
    match step {
        Step::ApiVersions => {
            "request of all: a listener with TLS does that to a client without it; look at security.protocol and the port"
        }
        _ => {
            "request after ApiVersions: a listener with SASL does that to a client without it; look at security.protocol and the port"
        }
    }
}

/// The message of an error with the messages of all its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn offered(theirs: Option<(i16, i16)>) -> String {
    match theirs {
        Some((min, max)) => format!("the broker speaks {min} to {max}"),
        None => "the broker does not know it".to_owned(),
    }
}

/// The first four bytes of a TLS record or an HTTP reply, read as a size, tell what the port really speaks.
fn other_protocol(bytes: i32) -> &'static str {
    match bytes.to_be_bytes() {
        [0x14..=0x17, 3, _, _] => " (the port speaks TLS; security.protocol must be SSL or SASL_SSL)",
        [b'H', b'T', b'T', b'P'] => " (the port speaks HTTP)",
        _ => "",
    }
}

/// The largest reply that is read whole.
pub(super) fn reply_bytes_max(settings: &Settings) -> usize {
    settings.reply_bytes_max.min(i32::MAX as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker() -> BrokerAddress {
        BrokerAddress { host: "b".to_owned(), port: 9092, address: "10.0.0.1:9092".parse().unwrap() }
    }

    #[test]
    fn messages_name_the_broker_the_step_and_what_the_port_speaks() {
        let step = Step::Request(ApiKey::Metadata, 12);
        for (error, text) in [
            (
                Error::Closed { broker: broker(), step },
                "b:9092 (10.0.0.1): the broker closed the connection during Metadata v12",
            ),
            (
                Error::FrameSize { broker: broker(), step, bytes: 0x1503_0300, bytes_max: 9 },
                "b:9092 (10.0.0.1): a reply of 352518912 bytes to Metadata v12, where 4 to 9 are allowed (the port speaks TLS; security.protocol must be SSL or SASL_SSL)",
            ),
            (
                Error::Incompatible {
                    broker: broker(),
                    api: ApiKey::Fetch,
                    ours: 4..=12,
                    theirs: Some((0, 3)),
                },
                "b:9092 (10.0.0.1): Fetch is needed in a version from 4 to 12, the broker speaks 0 to 3",
            ),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn a_chain_holds_the_cause() {
        let source = Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused));
        let error = Error::Dial { broker: broker(), source };
        assert_eq!(error.chain(), "b:9092 (10.0.0.1): cannot connect: connection refused");
        assert_eq!(error.fault(), Fault::Lost);
    }
}

//! The states of a connection before it is ready, without a socket or a clock.
//!
//! ```text
//!            dial failed, addresses left
//!                 ┌────┐
//!                 ▼    │
//!   start ──► Dialing ─┴─connected──► ApiVersions ──versions──► Authenticating ──done──► Ready
//!                 ▲                    │    ▲ │                      │                    ⇅
//!                 └─ lost, addresses ──┴────│─│──────────────────────┘              Reauthenticating
//!                                           └─┘ UNSUPPORTED_VERSION: again, older
//! ```
//! A state owns its data, the opaque connection `S` included, and a transition consumes it; so a socket without a state,
//! or two of them, cannot be expressed. TLS belongs to dialling. Authenticating passes through without SASL; Reauthenticating
//! is the same [`Login`] once more, by whoever owns the ready connection (`establish::renew`).
//!
//! ApiVersions: the newest version that we know is asked first. A broker that does not know it answers
//! UNSUPPORTED_VERSION in the format of version 0, with its own range of ApiVersions if it is kind (KIP-511); then the
//! newest common one is asked, version 0 for want of better. Each further try is older, so it ends.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf, Bytes};
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::{Decodable, StrBytes};

use super::address::{BrokerAddress, HostPort};
use super::error::{Error, Fault, Step};
use super::frame::{encode_request, peek_correlation_id};
use super::sasl::{Identity, Login, Progress};
use super::versions::ApiVersions;

/// The newest ApiVersions that we ask with.
const API_VERSIONS_VERSION: i16 = 4;
const UNSUPPORTED_VERSION: i16 = 35;

/// A connection on its way to being ready.
#[derive(Debug)]
pub enum Machine<S> {
    /// An address is to be dialled.
    Dialing(Dialing),
    /// Connected; the broker is asked for its versions.
    ApiVersions(Negotiating<S>),
    /// The broker is to be convinced of who we are.
    Authenticating(Authenticating<S>),
    /// Requests may be sent.
    Ready(Ready<S>),
}

/// What a connection is to be.
#[derive(Clone, Debug)]
pub struct Purpose {
    /// The broker's name and port.
    pub broker: HostPort,
    /// `client.id`.
    pub client_id: String,
    /// Who we are, where the broker asks for it.
    pub identity: Option<Identity>,
    /// Bits that nobody can guess, for the login.
    pub random: [u8; 24],
}

/// An address is to be dialled.
#[derive(Debug)]
pub struct Dialing {
    purpose: Purpose,
    address: SocketAddr,
    rest: VecDeque<SocketAddr>,
}

impl Dialing {
    /// Begins with the addresses of the broker's name, to be tried in this order.
    pub fn start(
        purpose: Purpose,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Dialing, Error> {
        let mut rest: VecDeque<SocketAddr> = addresses.into_iter().collect();
        match rest.pop_front() {
            Some(address) => Ok(Dialing { purpose, address, rest }),
            None => Err(Error::NoAddress { broker: purpose.broker }),
        }
    }

    /// The broker at the address to be dialled.
    pub fn broker(&self) -> BrokerAddress {
        BrokerAddress {
            host: self.purpose.broker.host.clone(),
            port: self.purpose.broker.port,
            address: self.address,
        }
    }

    /// The connection stands.
    pub fn connected<S>(self, connection: S) -> Negotiating<S> {
        Negotiating {
            broker: self.broker(),
            dialled: self,
            connection,
            version: API_VERSIONS_VERSION,
            correlation_id: 0,
        }
    }

    /// The address did not do: the next one, or the error when there is none or when no address would help.
    pub fn failed(mut self, error: Error) -> Result<Dialing, Error> {
        if !matches!(error.fault(), Fault::Lost | Fault::Peer) {
            return Err(error);
        }
        match self.rest.pop_front() {
            Some(address) => Ok(Dialing { address, ..self }),
            None => Err(error),
        }
    }
}

/// The broker is asked for its versions.
#[derive(Debug)]
pub struct Negotiating<S> {
    dialled: Dialing,
    broker: BrokerAddress,
    connection: S,
    version: i16,
    correlation_id: i32,
}

impl<S> Negotiating<S> {
    /// The request to send now.
    pub fn request(&self) -> Result<Bytes, Error> {
        let request = match self.version {
            3.. => ApiVersionsRequest::default()
                .with_client_software_name(StrBytes::from_static_str("kmirror"))
                .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION"))),
            _ => ApiVersionsRequest::default(),
        };
        encode_request(&request, self.version, self.correlation_id, &self.dialled.purpose.client_id)
    }

    /// The connection, to exchange the request for its reply.
    pub fn connection(&mut self) -> &mut S {
        &mut self.connection
    }

    /// The broker.
    pub fn broker(&self) -> &BrokerAddress {
        &self.broker
    }

    /// The connection is lost: the next address.
    pub fn failed(self, error: Error) -> Result<Machine<S>, Error> {
        self.dialled.failed(error).map(Machine::Dialing)
    }

    /// The reply to [`Negotiating::request`], without its size field.
    pub fn received(self, reply: Bytes) -> Result<Machine<S>, Error> {
        match self.decode(reply) {
            Ok((UNSUPPORTED_VERSION, versions)) => self.older(&versions),
            Ok((0, versions)) => Ok(Machine::Authenticating(self.authenticating(versions))),
            Ok((code, _)) => Err(Error::Refused { broker: self.broker, step: Step::ApiVersions, code }),
            Err(error) => self.failed(error),
        }
    }

    fn authenticating(self, versions: ApiVersions) -> Authenticating<S> {
        let next_correlation_id = self.correlation_id.wrapping_add(1);
        let Purpose { client_id, identity, random, .. } = &self.dialled.purpose;
        let login = identity
            .as_ref()
            .map(|who| Box::new(Login::new(who, &versions, client_id, next_correlation_id, *random)));
        Authenticating {
            connection: self.connection,
            dialled: self.dialled,
            versions,
            next_correlation_id,
            login,
        }
    }

    fn older(self, offered: &ApiVersions) -> Result<Machine<S>, Error> {
        let version = match offered.range(ApiKey::ApiVersions) {
            Some((_, max)) if max < self.version => max,
            _ => 0,
        };
        if self.version == 0 {
            let code = UNSUPPORTED_VERSION;
            return Err(Error::Refused { broker: self.broker, step: Step::ApiVersions, code });
        }
        let correlation_id = self.correlation_id.wrapping_add(1);
        Ok(Machine::ApiVersions(Negotiating { version, correlation_id, ..self }))
    }

    fn decode(&self, mut reply: Bytes) -> Result<(i16, ApiVersions), Error> {
        let (broker, step) = (self.broker.clone(), Step::ApiVersions);
        match peek_correlation_id(&reply) {
            Some(got) if got != self.correlation_id => {
                return Err(Error::CorrelationId { broker, step, expected: self.correlation_id, got });
            }
            Some(_) => reply.advance(4),
            None => {
                return Err(Error::Undecodable { broker, step, reason: "it is too short".to_owned() });
            }
        }
        let refused = reply.as_ref().try_get_i16() == Ok(UNSUPPORTED_VERSION);
        let version = if refused { 0 } else { self.version };
        let response = ApiVersionsResponse::decode(&mut reply, version).map_err(|error| {
            Error::Undecodable { broker: broker.clone(), step, reason: error.to_string() }
        })?;
        let ranges = response.api_keys.iter().map(|api| (api.api_key, api.min_version, api.max_version));
        Ok((response.error_code, ApiVersions::new(broker, ranges)))
    }
}

/// The broker is to be convinced of who we are.
#[derive(Debug)]
pub struct Authenticating<S> {
    dialled: Dialing,
    connection: S,
    versions: ApiVersions,
    next_correlation_id: i32,
    /// `None` when nothing is to be said.
    login: Option<Box<Login>>,
}

impl<S> Authenticating<S> {
    /// The request to send now; `None` when nothing is to be said, and [`Authenticating::advance`] is next.
    pub fn request(&self) -> Result<Option<Bytes>, Error> {
        self.login.as_ref().map(|login| login.request()).transpose()
    }

    /// The connection, to exchange the request for its reply.
    pub fn connection(&mut self) -> &mut S {
        &mut self.connection
    }

    /// The broker.
    pub fn broker(&self) -> &BrokerAddress {
        self.versions.broker()
    }

    /// The connection is lost: the next address.
    pub fn failed(self, error: Error) -> Result<Machine<S>, Error> {
        self.dialled.failed(error).map(Machine::Dialing)
    }

    /// The reply to [`Authenticating::request`], without its size field.
    pub fn received(mut self, reply: Bytes) -> Result<Machine<S>, Error> {
        let Some(login) = &mut self.login else { return Ok(self.advance()) };
        match login.received(reply)? {
            Progress::GoesOn => Ok(Machine::Authenticating(self)),
            Progress::Done(lifetime) => {
                self.next_correlation_id = login.next_correlation_id();
                Ok(self.ready(lifetime))
            }
        }
    }

    /// The next state when nothing is to be said.
    pub fn advance(self) -> Machine<S> {
        self.ready(None)
    }

    fn ready(self, session_lifetime: Option<Duration>) -> Machine<S> {
        Machine::Ready(Ready {
            connection: self.connection,
            versions: self.versions,
            next_correlation_id: self.next_correlation_id,
            session_lifetime,
        })
    }
}

/// Requests may be sent.
#[derive(Debug)]
pub struct Ready<S> {
    /// The connection.
    pub connection: S,
    /// What the broker speaks.
    pub versions: ApiVersions,
    /// The first correlation id that is free.
    pub next_correlation_id: i32,
    /// How long the broker lets us in before we must say again who we are.
    pub session_lifetime: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use kafka_protocol::messages::api_versions_response::ApiVersion;
    use kafka_protocol::protocol::Encodable;
    use proptest::prelude::*;

    use super::*;

    fn purpose() -> Purpose {
        Purpose {
            broker: HostPort::new("kafka", 9092),
            client_id: "me".to_owned(),
            identity: None,
            random: [0; 24],
        }
    }

    fn addresses(count: u8) -> Vec<SocketAddr> {
        (1..=count).map(|last| SocketAddr::from(([10, 0, 0, last], 9092))).collect()
    }

    fn negotiating(count: u8) -> Negotiating<&'static str> {
        Dialing::start(purpose(), addresses(count)).unwrap().connected("connection")
    }

    fn reply(correlation_id: i32, version: i16, code: i16, ranges: &[(ApiKey, i16, i16)]) -> Bytes {
        let api_keys = ranges.iter().map(|&(api, min, max)| {
            ApiVersion::default().with_api_key(api as i16).with_min_version(min).with_max_version(max)
        });
        let response = ApiVersionsResponse::default().with_error_code(code).with_api_keys(api_keys.collect());
        let mut frame = BytesMut::new();
        frame.put_i32(correlation_id);
        response.encode(&mut frame, version).unwrap();
        frame.freeze()
    }

    fn asked(negotiating: &Negotiating<&'static str>) -> (i16, i32) {
        let request = negotiating.request().unwrap();
        (request.slice(6..8).get_i16(), request.slice(8..12).get_i32())
    }

    #[test]
    fn a_new_broker_is_asked_once() {
        let negotiating = negotiating(1);
        assert_eq!(asked(&negotiating), (4, 0));
        let machine = negotiating.received(reply(0, 4, 0, &[(ApiKey::Metadata, 0, 13)])).unwrap();
        let Machine::Authenticating(authenticating) = machine else { panic!("{machine:?}") };
        let Machine::Ready(ready) = authenticating.advance() else { panic!("not ready") };
        assert_eq!(ready.connection, "connection");
        assert_eq!(ready.next_correlation_id, 1);
        assert_eq!(ready.versions.range(ApiKey::Metadata), Some((0, 13)));
        assert_eq!(ready.versions.range(ApiKey::Fetch), None);
    }

    #[test]
    fn an_older_broker_is_asked_again_with_what_it_offers_or_version_0() {
        for (ranges, version) in [
            (&[(ApiKey::ApiVersions, 0, 3)][..], 3),
            (&[(ApiKey::ApiVersions, 0, 2)], 2),
            (&[(ApiKey::ApiVersions, 0, 9)], 0),
            (&[], 0),
        ] {
            let machine = negotiating(1).received(reply(0, 0, UNSUPPORTED_VERSION, ranges)).unwrap();
            let Machine::ApiVersions(again) = machine else { panic!("{machine:?}") };
            assert_eq!(asked(&again), (version, 1), "{ranges:?}");
            let machine = again.received(reply(1, version, 0, &[(ApiKey::Fetch, 4, 11)])).unwrap();
            let Machine::Authenticating(authenticating) = machine else { panic!("{machine:?}") };
            assert_eq!(authenticating.versions.range(ApiKey::Fetch), Some((4, 11)));
        }
    }

    #[test]
    fn a_broker_that_refuses_every_version_is_refused() {
        let refusal = |id| reply(id, 0, UNSUPPORTED_VERSION, &[]);
        let Machine::ApiVersions(again) = negotiating(2).received(refusal(0)).unwrap() else { panic!() };
        assert!(matches!(again.received(refusal(1)), Err(Error::Refused { code: UNSUPPORTED_VERSION, .. })));
    }

    #[test]
    fn a_lost_address_leads_to_the_next_and_the_last_one_to_its_error() {
        let lost = |broker: &BrokerAddress| Error::Closed { broker: broker.clone(), step: Step::ApiVersions };
        let first = negotiating(2);
        let error = lost(first.broker());
        let Machine::Dialing(second) = first.failed(error).unwrap() else { panic!() };
        assert_eq!(second.broker().address, addresses(2)[1]);
        let second = second.connected("other");
        let error = lost(second.broker());
        assert!(
            matches!(second.failed(error), Err(Error::Closed { broker, .. }) if broker.address == addresses(2)[1])
        );
    }

    #[test]
    fn a_name_without_addresses_is_an_error() {
        assert!(matches!(Dialing::start(purpose(), []), Err(Error::NoAddress { .. })));
    }

    proptest! {
        #[test]
        fn damaged_replies_never_panic(at in 0_usize..60, value: u8, cut in 0_usize..60, code in prop_oneof![Just(0_i16), Just(35)]) {
            let version = if code == 35 { 0 } else { 4 };
            let mut bytes = reply(0, version, code, &[(ApiKey::Fetch, 4, 11), (ApiKey::ApiVersions, 0, 3)]).to_vec();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            let _ = negotiating(2).received(bytes.into());
        }
    }
}

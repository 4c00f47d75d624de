//! The requests of an authentication: SaslHandshake, then SaslAuthenticate until both sides are content (KIP-152).
//!
//! The same for the first time and for every later one (KIP-368): a broker may say how long it lets us in, and closes the
//! connection at the first request after that.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::StrBytes;
use zeroize::Zeroizing;

use super::{Exchange, Identity, Mechanism, Next, SaslFailure};
use crate::net::error::Error;
use crate::net::frame::{decode_response, encode_request};
use crate::net::versions::{ApiVersions, negotiate};

const UNSUPPORTED_SASL_MECHANISM: i16 = 33;
const ILLEGAL_SASL_STATE: i16 = 34;
const SASL_AUTHENTICATION_FAILED: i16 = 58;
/// More messages than any mechanism has.
const ROUNDS_MAX: u32 = 8;

/// An authentication.
#[derive(Debug)]
pub struct Login {
    versions: ApiVersions,
    client_id: String,
    mechanism: Mechanism,
    username: String,
    exchange: Exchange,
    stage: Stage,
    correlation_id: i32,
    rounds: u32,
}

#[derive(Debug)]
enum Stage {
    Mechanism,
    /// What is to be sent; `None` while it is on its way.
    Message(Zeroizing<Vec<u8>>),
}

/// Where an authentication stands after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Another request follows.
    GoesOn,
    /// We are let in, for so long if the broker says so.
    Done(Option<Duration>),
}

impl Login {
    /// Begins; `correlation_id` is the first that is free, `random` are bits that nobody can guess.
    pub fn new(
        identity: &Identity,
        versions: &ApiVersions,
        client_id: &str,
        correlation_id: i32,
        random: [u8; 24],
    ) -> Login {
        Login {
            versions: versions.clone(),
            client_id: client_id.to_owned(),
            mechanism: identity.mechanism(),
            username: identity.name().to_owned(),
            exchange: Exchange::new(identity, random),
            stage: Stage::Mechanism,
            correlation_id,
            rounds: 0,
        }
    }

    /// The first correlation id that is free afterwards.
    pub fn next_correlation_id(&self) -> i32 {
        self.correlation_id
    }

    /// The request to send now.
    ///
    /// # Errors
    /// [`Error::Incompatible`] with brokers before 1.0.
    pub fn request(&self) -> Result<Bytes, Error> {
        match &self.stage {
            Stage::Mechanism => {
                let version = negotiate::<SaslHandshakeRequest>(&self.versions, 1..=1)?;
                let mechanism = StrBytes::from_static_str(self.mechanism.name());
                let request = SaslHandshakeRequest::default().with_mechanism(mechanism);
                encode_request(&request, version, self.correlation_id, &self.client_id)
            }
            Stage::Message(message) => {
                let version = self.authenticate_version()?;
                let request =
                    SaslAuthenticateRequest::default().with_auth_bytes(Bytes::copy_from_slice(message));
                encode_request(&request, version, self.correlation_id, &self.client_id)
            }
        }
    }

    /// The reply to [`Login::request`], without its size field.
    ///
    /// # Errors
    /// [`Error::Authentication`], or that the reply is none.
    pub fn received(&mut self, reply: Bytes) -> Result<Progress, Error> {
        let correlation_id = self.correlation_id;
        self.correlation_id = correlation_id.wrapping_add(1);
        self.rounds += 1;
        match self.stage {
            Stage::Mechanism => self.mechanism_answered(reply, correlation_id),
            Stage::Message(_) => self.message_answered(reply, correlation_id),
        }
    }

    fn authenticate_version(&self) -> Result<i16, Error> {
        negotiate::<SaslAuthenticateRequest>(&self.versions, 0..=2)
    }

    fn mechanism_answered(&mut self, reply: Bytes, correlation_id: i32) -> Result<Progress, Error> {
        let broker = self.versions.broker();
        let response = decode_response::<SaslHandshakeRequest>(broker, reply, 1, correlation_id)?;
        let mechanism = self.mechanism;
        match response.error_code {
            0 => {
                self.stage = Stage::Message(Zeroizing::new(self.exchange.first()));
                Ok(Progress::GoesOn)
            }
            UNSUPPORTED_SASL_MECHANISM => Err(self.failed(SaslFailure::MechanismNotEnabled {
                mechanism,
                enabled: response.mechanisms.iter().map(ToString::to_string).collect(),
            })),
            ILLEGAL_SASL_STATE => Err(self.failed(SaslFailure::NotAsked)),
            code => Err(self.failed(SaslFailure::Code { mechanism, code, message: String::new() })),
        }
    }

    fn message_answered(&mut self, reply: Bytes, correlation_id: i32) -> Result<Progress, Error> {
        let version = self.authenticate_version()?;
        let broker = self.versions.broker();
        let response = decode_response::<SaslAuthenticateRequest>(broker, reply, version, correlation_id)?;
        let mechanism = self.mechanism;
        let message = response.error_message.map(|message| message.to_string()).unwrap_or_default();
        match response.error_code {
            0 => {}
            SASL_AUTHENTICATION_FAILED => {
                let username = self.username.clone();
                let message = match self.exchange.refusal() {
                    Some(refusal) => format!("{message} ({refusal})"),
                    None => message,
                };
                return Err(self.failed(SaslFailure::Refused { mechanism, username, message }));
            }
            code => return Err(self.failed(SaslFailure::Code { mechanism, code, message })),
        }
        let next = self.exchange.challenge(&response.auth_bytes);
        let next = next.map_err(|reason| self.failed(SaslFailure::Broken { mechanism, reason }))?;
        match next {
            Next::Send(_) if self.rounds > ROUNDS_MAX => {
                let reason = "it never comes to an end".to_owned();
                Err(self.failed(SaslFailure::Broken { mechanism, reason }))
            }
            Next::Send(message) => {
                self.stage = Stage::Message(Zeroizing::new(message));
                Ok(Progress::GoesOn)
            }
            Next::Done => {
                let lifetime = u64::try_from(response.session_lifetime_ms).ok().filter(|&ms| ms > 0);
                Ok(Progress::Done(lifetime.map(Duration::from_millis)))
            }
        }
    }

    fn failed(&self, failure: SaslFailure) -> Error {
        Error::Authentication { broker: self.versions.broker().clone(), failure: Box::new(failure) }
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use kafka_protocol::messages::{ApiKey, SaslAuthenticateResponse, SaslHandshakeResponse};
    use kafka_protocol::protocol::{Encodable, HeaderVersion};

    use super::super::{Password, PasswordKind, Proof, Token};
    use super::*;
    use crate::net::{BrokerAddress, Secret};

    fn login(mechanism: Mechanism) -> Login {
        let credentials = Password {
            username: "alice".to_owned(),
            password: Secret::new("alice-secret"),
            kind: PasswordKind::User,
        };
        identified(mechanism, Proof::Password(credentials))
    }

    fn identified(mechanism: Mechanism, proof: Proof) -> Login {
        let broker =
            BrokerAddress { host: "b".into(), port: 9093, address: "10.0.0.1:9093".parse().unwrap() };
        let ranges = [(ApiKey::SaslHandshake as i16, 0, 1), (ApiKey::SaslAuthenticate as i16, 0, 2)];
        Login::new(&Identity { mechanism, proof }, &ApiVersions::new(broker, ranges), "me", 1, [7; 24])
    }

    fn reply<R: Encodable + HeaderVersion>(response: &R, version: i16, correlation_id: i32) -> Bytes {
        let mut frame = BytesMut::new();
        frame.put_i32(correlation_id);
        if R::header_version(version) > 0 {
            frame.put_u8(0);
        }
        response.encode(&mut frame, version).unwrap();
        frame.freeze()
    }

    fn handshake(code: i16) -> Bytes {
        let enabled = vec![StrBytes::from_static_str("GSSAPI"), StrBytes::from_static_str("PLAIN")];
        reply(&SaslHandshakeResponse::default().with_error_code(code).with_mechanisms(enabled), 1, 1)
    }

    #[test]
    fn plain_says_who_we_are_in_one_message() {
        let mut login = login(Mechanism::Plain);
        assert!(login.request().unwrap().ends_with(b"PLAIN"));
        assert_eq!(login.received(handshake(0)).unwrap(), Progress::GoesOn);
        let request = login.request().unwrap();
        assert!(request.windows(19).any(|window| window == b"\0alice\0alice-secret"));
        let response = SaslAuthenticateResponse::default().with_session_lifetime_ms(9_000);
        let done = login.received(reply(&response, 2, 2)).unwrap();
        assert_eq!(done, Progress::Done(Some(Duration::from_secs(9))));
        assert_eq!(login.next_correlation_id(), 3);
    }

    #[test]
    fn a_refused_token_is_told_with_all_that_the_broker_says() {
        let token = Token::unsecured(&[("sub".to_owned(), "app".into())], 0, 1);
        let mut login =
            identified(Mechanism::OauthBearer, Proof::Token { token, extensions: Default::default() });
        login.received(handshake(0)).unwrap();
        let why =
            SaslAuthenticateResponse::default().with_auth_bytes("{\"status\":\"invalid_token\"}".into());
        assert_eq!(login.received(reply(&why, 2, 2)).unwrap(), Progress::GoesOn);
        assert!(login.request().unwrap().ends_with(&[1, 0]), "{:?}", login.request());
        let refused = SaslAuthenticateResponse::default()
            .with_error_code(SASL_AUTHENTICATION_FAILED)
            .with_error_message(Some(StrBytes::from_static_str("no")));
        let error = login.received(reply(&refused, 2, 3)).unwrap_err().to_string();
        assert!(
            error.contains("refuses the token of \"app\" with OAUTHBEARER: no (status \"invalid_token\"); look at who issues"),
            "{error}"
        );
    }

    #[test]
    fn refusals_say_what_the_broker_offers_and_hold_no_password() {
        let refused = SaslAuthenticateResponse::default()
            .with_error_code(SASL_AUTHENTICATION_FAILED)
            .with_error_message(Some(StrBytes::from_static_str("Invalid credentials")));
        for (replies, words) in [
            (vec![handshake(UNSUPPORTED_SASL_MECHANISM)], "does not take SCRAM-SHA-512 but GSSAPI, PLAIN"),
            (vec![handshake(ILLEGAL_SASL_STATE)], "the listener does not ask for SASL"),
            (
                vec![handshake(0), reply(&refused, 2, 2)],
                "refuses the user \"alice\" with SCRAM-SHA-512: Invalid credentials",
            ),
            (vec![handshake(0), reply(&SaslAuthenticateResponse::default(), 2, 2)], "no nonce"),
        ] {
            let mut login = login(Mechanism::ScramSha512);
            let mut error = None;
            for reply in replies {
                login.request().unwrap();
                error = login.received(reply).err();
            }
            let text = format!("{} {:?}", error.unwrap(), login);
            assert!(text.contains(words), "{text}");
            assert!(!text.contains("alice-secret"), "{text}");
        }
    }

    #[test]
    fn a_broker_without_sasl_is_incompatible() {
        let mut login = login(Mechanism::Plain);
        login.versions = ApiVersions::new(login.versions.broker().clone(), []);
        assert!(matches!(login.request(), Err(Error::Incompatible { api: ApiKey::SaslHandshake, .. })));
    }
}

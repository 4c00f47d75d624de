//! The door of a listener with SASL: PLAIN and SCRAM from the broker's side, session times (KIP-368), and who came in.
//!
//! It shares no code with the client's side (`net::sasl`), so that tests of one by the other prove something. Pure: the time
//! and random bits are arguments. Rules and words as in `SaslServerAuthenticator.java`.

mod scram;

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    ApiKey, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::settings::{Sasl, SaslMechanism};
use super::wire::{Malformed, Outcome, Request};
use scram::Scram;

/// What a listener knows of those who may come in, and counts of those who came.
#[derive(Debug)]
pub(super) struct Door {
    settings: Sasl,
    logins: Logins,
}

/// How many authentications a cluster has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logins {
    /// First ones of a connection that succeeded.
    pub accepted: u64,
    /// Later ones that succeeded.
    pub renewed: u64,
    /// Those that were refused.
    pub refused: u64,
    /// Connections that were closed at a request after the end of their session.
    pub expired: u64,
}

/// One connection at the door.
///
/// ```text
///   Outside ──SaslHandshake──► Shaken ──SaslAuthenticate──► (Scram ──SaslAuthenticate──►) Inside
///                                 ▲──────────────SaslHandshake──────────────────────────────┘
/// ```
#[derive(Debug)]
pub(super) struct Visitor {
    stage: Stage,
    /// Who it is, from its first authentication on: it cannot become somebody else.
    user: Option<String>,
    /// When its session ends.
    ends_ms: Option<i64>,
}

#[derive(Debug)]
enum Stage {
    Outside,
    Shaken(SaslMechanism),
    Scram(Scram),
    Inside,
}

/// What is to be done about a request.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It is the cluster's.
    Pass,
    /// This is the answer.
    Answer(Outcome),
    /// This is the answer, then the connection is closed.
    AnswerAndClose(Outcome),
    /// The connection is closed.
    Close,
}

impl Door {
    pub(super) fn new(settings: Sasl) -> Door {
        Door { settings, logins: Logins::default() }
    }

    pub(super) fn logins(&self) -> Logins {
        self.logins
    }

    pub(super) fn settings_mut(&mut self) -> &mut Sasl {
        &mut self.settings
    }

    /// Judges a request of a connection; `random` are bits that nobody can guess.
    pub(super) fn judge(
        &mut self,
        visitor: &mut Visitor,
        request: &Request,
        now_ms: i64,
        random: [u8; 24],
    ) -> Verdict {
        let verdict = match (request.key, &visitor.stage) {
            (ApiKey::ApiVersions, _) => Ok(Verdict::Pass),
            (ApiKey::SaslHandshake, Stage::Outside | Stage::Inside) => self.handshake(visitor, request),
            (ApiKey::SaslAuthenticate, Stage::Shaken(_) | Stage::Scram(_)) => {
                self.authenticate(visitor, request, now_ms, random)
            }
            (_, Stage::Inside) if visitor.ends_ms.is_some_and(|ends| ends < now_ms) => {
                self.logins.expired += 1;
                Ok(Verdict::Close)
            }
            (_, Stage::Inside) => Ok(Verdict::Pass),
            _ => Ok(Verdict::Close),
        };
        verdict.unwrap_or_else(|malformed| {
            tracing::debug!(%malformed, "embedded broker closes a connection");
            Verdict::Close
        })
    }

    fn handshake(&self, visitor: &mut Visitor, request: &Request) -> Result<Verdict, Malformed> {
        let body: SaslHandshakeRequest = request.decode()?;
        let enabled = self.settings.mechanisms.iter();
        let names = enabled.clone().map(|mechanism| StrBytes::from_static_str(mechanism.name())).collect();
        let response = SaslHandshakeResponse::default().with_mechanisms(names);
        match enabled.copied().find(|mechanism| mechanism.name() == body.mechanism.as_str()) {
            Some(mechanism) => {
                visitor.stage = Stage::Shaken(mechanism);
                Ok(Verdict::Answer(request.reply(&response)))
            }
            None => {
                let code = ResponseError::UnsupportedSaslMechanism.code();
                Ok(Verdict::AnswerAndClose(request.reply(&response.with_error_code(code))))
            }
        }
    }

    fn authenticate(
        &mut self,
        visitor: &mut Visitor,
        request: &Request,
        now_ms: i64,
        random: [u8; 24],
    ) -> Result<Verdict, Malformed> {
        let body: SaslAuthenticateRequest = request.decode()?;
        let stage = std::mem::replace(&mut visitor.stage, Stage::Outside);
        let (mechanism, step) = match stage {
            Stage::Shaken(SaslMechanism::Plain) => {
                (SaslMechanism::Plain, plain(&self.settings.users, &body.auth_bytes))
            }
            Stage::Shaken(mechanism) => {
                (mechanism, Scram::begin(mechanism, &self.settings.users, &body.auth_bytes, random))
            }
            Stage::Scram(scram) => (scram.mechanism(), scram.finish(&body.auth_bytes)),
            Stage::Outside | Stage::Inside => return Ok(Verdict::Close),
        };
        let response = SaslAuthenticateResponse::default();
        match step {
            Step::GoesOn(scram, challenge) => {
                visitor.stage = Stage::Scram(scram);
                Ok(Verdict::Answer(request.reply(&response.with_auth_bytes(challenge.into()))))
            }
            Step::Done(user, last) if visitor.user.as_ref().is_none_or(|before| *before == user) => {
                let lifetime_ms = self.enter(visitor, user, now_ms);
                let response = response.with_auth_bytes(last.into()).with_session_lifetime_ms(lifetime_ms);
                Ok(Verdict::Answer(request.reply(&response)))
            }
            Step::Done(..) | Step::Refused => {
                self.logins.refused += 1;
                let message = refusal(mechanism);
                let response = response
                    .with_error_code(ResponseError::SaslAuthenticationFailed.code())
                    .with_error_message(Some(StrBytes::from_string(message)));
                Ok(Verdict::AnswerAndClose(request.reply(&response)))
            }
        }
    }

    /// Lets somebody in; gives how long, 0 for no limit.
    fn enter(&mut self, visitor: &mut Visitor, user: String, now_ms: i64) -> i64 {
        match visitor.user {
            None => self.logins.accepted += 1,
            Some(_) => self.logins.renewed += 1,
        }
        visitor.user = Some(user);
        visitor.stage = Stage::Inside;
        let lifetime_ms = self.settings.session_ms_max;
        visitor.ends_ms = lifetime_ms.map(|lifetime_ms| now_ms.saturating_add(lifetime_ms));
        lifetime_ms.unwrap_or(0)
    }
}

impl Visitor {
    pub(super) fn new() -> Visitor {
        Visitor { stage: Stage::Outside, user: None, ends_ms: None }
    }
}

/// What comes of a message of a client.
#[derive(Debug)]
enum Step {
    /// Another message is due, after this one of ours.
    GoesOn(Scram, Vec<u8>),
    /// It is this user; our last message.
    Done(String, Vec<u8>),
    /// It is nobody that we know.
    Refused,
}

/// RFC 4616; an authorization id other than the user's own is refused, as Kafka does.
fn plain(users: &BTreeMap<String, String>, message: &[u8]) -> Step {
    let mut fields = message.split(|&byte| byte == 0).map(|field| str::from_utf8(field).unwrap_or_default());
    let (Some(authorization), Some(user), Some(password), None) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Step::Refused;
    };
    let is_right = users.get(user).is_some_and(|expected| expected == password);
    if is_right && (authorization.is_empty() || authorization == user) {
        Step::Done(user.to_owned(), Vec::new())
    } else {
        Step::Refused
    }
}

fn refusal(mechanism: SaslMechanism) -> String {
    match mechanism {
        SaslMechanism::Plain => "Authentication failed: Invalid username or password".to_owned(),
        other => format!(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism {}",
            other.name()
        ),
    }
}

/// What a listener without SASL says to a client with it.
pub(super) fn not_asked(request: &Request) -> Result<Outcome, Malformed> {
    let code = ResponseError::IllegalSaslState.code();
    match request.key {
        ApiKey::SaslHandshake => {
            request.decode::<SaslHandshakeRequest>()?;
            Ok(request.reply(&SaslHandshakeResponse::default().with_error_code(code)))
        }
        _ => {
            request.decode::<SaslAuthenticateRequest>()?;
            let message = StrBytes::from_static_str(
                "SaslAuthenticate request received after successful authentication",
            );
            let response = SaslAuthenticateResponse::default().with_error_code(code);
            Ok(request.reply(&response.with_error_message(Some(message))))
        }
    }
}

//! SASL: who we are, said over the connection (KIP-12, KIP-43, KIP-84, KIP-152, KIP-368).
//!
//! Pure: [`Login`] makes requests and takes replies, for the first authentication of a connection and for each later one.
//! Random bits are an argument. Secrets stay in [`Secret`] up to the request that carries them.

mod failure;
mod jaas;
mod login;
mod scram;

use std::fmt;

pub use failure::SaslFailure;
pub use jaas::{JaasEntry, JaasError, parse_jaas};
pub use login::{Login, Progress};
pub use scram::{ITERATIONS_MAX, ITERATIONS_MIN};

use super::Secret;
use scram::Scram;

/// `sasl.*` of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaslSettings {
    /// `sasl.mechanism`.
    pub mechanism: Mechanism,
    /// Who we are.
    pub credentials: Password,
}

/// `sasl.mechanism`: only what this build really speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// `PLAIN`: the password crosses the connection.
    Plain,
    /// `SCRAM-SHA-256`.
    ScramSha256,
    /// `SCRAM-SHA-512`.
    ScramSha512,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Mechanism; 3] = [Mechanism::Plain, Mechanism::ScramSha256, Mechanism::ScramSha512];

    /// Its name in the IANA registry, which is Kafka's too.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A user with a password, or a delegation token (KIP-48).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Password {
    /// Name of the user, or id of the token.
    pub username: String,
    /// Its password, or the token's HMAC.
    pub password: Secret,
    /// Whether it is a delegation token, which SCRAM says with `tokenauth=true`.
    pub kind: PasswordKind,
}

/// What a password belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordKind {
    /// A user.
    User,
    /// A delegation token.
    DelegationToken,
}

/// The client's side of a mechanism.
#[derive(Debug)]
enum Exchange {
    Plain(Password),
    Scram(Scram),
    /// All has been said.
    Done,
}

/// What follows a message of the broker.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Send(Vec<u8>),
    Done,
}

impl Exchange {
    /// Starts with `random` bits that nobody can guess.
    fn new(settings: &SaslSettings, random: [u8; 24]) -> Exchange {
        let password = settings.credentials.clone();
        match settings.mechanism {
            Mechanism::Plain => Exchange::Plain(password),
            Mechanism::ScramSha256 => Exchange::Scram(Scram::new(scram::Hash::Sha256, password, random)),
            Mechanism::ScramSha512 => Exchange::Scram(Scram::new(scram::Hash::Sha512, password, random)),
        }
    }

    /// The first message.
    fn first(&self) -> Vec<u8> {
        match self {
            // RFC 4616, without an authorization id.
            Exchange::Plain(Password { username, password, .. }) => {
                [b"\0", username.as_bytes(), b"\0", password.reveal()].concat()
            }
            Exchange::Scram(scram) => scram.first().into_bytes(),
            Exchange::Done => Vec::new(),
        }
    }

    /// What follows a message of the broker; the error says what is wrong with it.
    fn challenge(&mut self, message: &[u8]) -> Result<Next, String> {
        let next = match self {
            Exchange::Plain(_) | Exchange::Done => Next::Done,
            Exchange::Scram(scram) => scram.challenge(message)?,
        };
        if next == Next::Done {
            *self = Exchange::Done;
        }
        Ok(next)
    }
}

//! SASL: who we are, said over the connection (KIP-12, KIP-43, KIP-84, KIP-152, KIP-255, KIP-368).
//!
//! [`SaslSettings::identity`] says who we are just then: tokens and keys of AWS come from a source that is asked at each
//! authentication. The rest is pure: [`Login`] makes requests and takes replies, for the first authentication of a connection
//! and for each later one. Random bits are an argument. Secrets stay in [`Secret`] up to the request that carries them.

pub mod aws;
mod bearer;
mod failure;
mod jaas;
mod login;
mod password;
mod scram;
mod source;
mod token;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use bearer::is_extension;
pub use failure::SaslFailure;
pub use jaas::{JaasEntry, JaasError, parse_jaas};
pub use login::{Login, Progress};
pub use password::{PasswordSource, ReadPassword};
pub use scram::{ITERATIONS_MAX, ITERATIONS_MIN};
pub use source::{
    ClientProof, Endpoint, HeaderEncoding, TokenFailure, TokenOrigin, TokenSettings, TokenSource,
};
pub use token::{Refresh, Token, TokenError};

use super::Secret;
use crate::seam::Seam;
use aws::{AwsFailure, AwsSource};
use bearer::Bearer;
use scram::Scram;

/// `sasl.*` of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaslSettings {
    /// `sasl.mechanism`.
    pub mechanism: Mechanism,
    /// Who we are.
    pub credentials: Credentials,
}

/// Who we are, or whom to ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// PLAIN and SCRAM.
    Password(Password),
    /// The same, from a config provider.
    Provided(Arc<PasswordSource>),
    /// OAUTHBEARER; the connections of a cluster share it.
    Token(Arc<TokenSource>),
    /// AWS_MSK_IAM; the connections of a cluster share it.
    Aws(Arc<AwsSource>),
}

impl SaslSettings {
    /// Who we are just now, for the broker `host`.
    ///
    /// # Errors
    /// [`SaslFailure::Token`] and [`SaslFailure::Aws`] when that cannot be found out.
    pub async fn identity(&self, seam: &Seam, host: &str) -> Result<Identity, SaslFailure> {
        Ok(match &self.credentials {
            Credentials::Password(password) => Identity::of_password(self.mechanism, password.clone()),
            Credentials::Provided(source) => {
                let source = source.clone();
                Identity::of_password(self.mechanism, seam.blocking(move || source.read()).await)
            }
            Credentials::Token(source) => {
                Identity::of_token(source.token(seam).await?, source.settings().extensions.clone())
            }
            Credentials::Aws(source) => {
                let (payload, access_key_id) = source.payload(seam, host).await?;
                Identity { mechanism: self.mechanism, proof: Proof::Aws { payload, access_key_id } }
            }
        })
    }

    /// The broker refused it: what was obtained for it is not shown again.
    pub async fn refused(&self) {
        match &self.credentials {
            Credentials::Password(_) | Credentials::Provided(_) => {}
            Credentials::Token(source) => source.refused().await,
            Credentials::Aws(source) => source.refused().await,
        }
    }
}

/// Who we are in one authentication.
#[derive(Clone, Debug)]
pub struct Identity {
    mechanism: Mechanism,
    proof: Proof,
}

#[derive(Clone, Debug)]
enum Proof {
    Password(Password),
    Token { token: Token, extensions: BTreeMap<String, String> },
    Aws { payload: Secret, access_key_id: String },
}

impl Identity {
    /// A user, or a delegation token, with a mechanism of passwords.
    pub fn of_password(mechanism: Mechanism, password: Password) -> Identity {
        Identity { mechanism, proof: Proof::Password(password) }
    }

    /// Whoever a token names.
    pub fn of_token(token: Token, extensions: BTreeMap<String, String>) -> Identity {
        Identity { mechanism: Mechanism::OauthBearer, proof: Proof::Token { token, extensions } }
    }

    /// The mechanism.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Whose it is, for messages: a user, a token's subject, or the public half of a key.
    pub fn name(&self) -> &str {
        match &self.proof {
            Proof::Password(password) => &password.username,
            Proof::Token { token, .. } => &token.subject,
            Proof::Aws { access_key_id, .. } => access_key_id,
        }
    }
}

impl From<TokenFailure> for SaslFailure {
    fn from(failure: TokenFailure) -> SaslFailure {
        SaslFailure::Token(Box::new(failure))
    }
}

impl From<AwsFailure> for SaslFailure {
    fn from(failure: AwsFailure) -> SaslFailure {
        SaslFailure::Aws(Box::new(failure))
    }
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
    /// `OAUTHBEARER`: a token of somebody whom the broker believes.
    OauthBearer,
    /// `AWS_MSK_IAM`: a signature by keys of AWS.
    AwsMskIam,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Mechanism; 5] = [
        Mechanism::Plain,
        Mechanism::ScramSha256,
        Mechanism::ScramSha512,
        Mechanism::OauthBearer,
        Mechanism::AwsMskIam,
    ];

    /// Its name in the IANA registry, which is Kafka's too.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
            Mechanism::OauthBearer => "OAUTHBEARER",
            Mechanism::AwsMskIam => "AWS_MSK_IAM",
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
    Bearer(Bearer),
    Aws(Secret),
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
    fn new(identity: &Identity, random: [u8; 24]) -> Exchange {
        match identity.proof.clone() {
            Proof::Password(password) => match identity.mechanism {
                Mechanism::ScramSha256 => Exchange::Scram(Scram::new(scram::Hash::Sha256, password, random)),
                Mechanism::ScramSha512 => Exchange::Scram(Scram::new(scram::Hash::Sha512, password, random)),
                _ => Exchange::Plain(password),
            },
            Proof::Token { token, extensions } => Exchange::Bearer(Bearer::new(token.text, extensions)),
            Proof::Aws { payload, .. } => Exchange::Aws(payload),
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
            Exchange::Bearer(bearer) => bearer.first(),
            Exchange::Aws(payload) => payload.reveal().to_vec(),
            Exchange::Done => Vec::new(),
        }
    }

    /// What follows a message of the broker; the error says what is wrong with it.
    fn challenge(&mut self, message: &[u8]) -> Result<Next, String> {
        let next = match self {
            Exchange::Plain(_) | Exchange::Done => Next::Done,
            Exchange::Scram(scram) => scram.challenge(message)?,
            Exchange::Bearer(bearer) => bearer.challenge(message),
            // What a broker of MSK says when it lets somebody in is for its own logs.
            Exchange::Aws(_) if message.is_empty() => return Err("it lets us in without a word".to_owned()),
            Exchange::Aws(_) => Next::Done,
        };
        if next == Next::Done {
            *self = Exchange::Done;
        }
        Ok(next)
    }

    /// What the broker said before it refused, where the mechanism has place for that.
    fn refusal(&self) -> Option<&str> {
        match self {
            Exchange::Bearer(bearer) => bearer.refusal(),
            _ => None,
        }
    }
}

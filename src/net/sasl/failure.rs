//! Why a broker does not take us for who we are, in the words of whoever must change something.

use super::aws::AwsFailure;
use super::{Mechanism, TokenFailure};

/// Why authentication failed. Nothing here holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaslFailure {
    /// The listener has other mechanisms.
    #[error("the broker does not take {mechanism} but {}; set sasl.mechanism", list(enabled))]
    MechanismNotEnabled {
        /// What we asked for.
        mechanism: Mechanism,
        /// What the listener has.
        enabled: Vec<String>,
    },
    /// The listener does not ask for SASL.
    #[error("the listener does not ask for SASL; look at security.protocol and the port")]
    NotAsked,
    /// The broker refuses the credentials.
    #[error("the broker refuses {} with {mechanism}: {message}; {}", whose(*mechanism, username), advice(*mechanism))]
    Refused {
        /// The mechanism.
        mechanism: Mechanism,
        /// Who we said we are.
        username: String,
        /// The broker's words.
        message: String,
    },
    /// There is no token to show.
    #[error("{0}")]
    Token(Box<TokenFailure>),
    /// There are no keys to sign with.
    #[error("{0}")]
    Aws(Box<AwsFailure>),
    /// The broker answered with another code.
    #[error("the broker refuses {mechanism} with error code {code}: {message}")]
    Code {
        /// The mechanism.
        mechanism: Mechanism,
        /// Kafka's error code.
        code: i16,
        /// The broker's words.
        message: String,
    },
    /// The broker does not keep to the mechanism, or does not know the password itself.
    #[error("the broker does not keep to {mechanism}: {reason}")]
    Broken {
        /// The mechanism.
        mechanism: Mechanism,
        /// What is wrong.
        reason: String,
    },
}

fn whose(mechanism: Mechanism, name: &str) -> String {
    match mechanism {
        Mechanism::OauthBearer if name.is_empty() => "the token".to_owned(),
        Mechanism::OauthBearer => format!("the token of {name:?}"),
        Mechanism::AwsMskIam => format!("the access key {name}"),
        _ => format!("the user {name:?}"),
    }
}

fn advice(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::OauthBearer => {
            "look at who issues the token, for whom, and until when, and at the clocks of both sides"
        }
        Mechanism::AwsMskIam => {
            "look at the policy of its owner (kafka-cluster:Connect), the region, and the clock of this machine"
        }
        _ => "look at the name and the password in sasl.jaas.config",
    }
}

fn list(enabled: &[String]) -> String {
    if enabled.is_empty() { "nothing that it names".to_owned() } else { enabled.join(", ") }
}

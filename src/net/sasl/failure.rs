//! Why a broker does not take us for who we are, in the words of whoever must change something.

use super::Mechanism;

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
    #[error(
        "the broker refuses the user {username:?} with {mechanism}: {message}; look at the name and the password in sasl.jaas.config"
    )]
    Refused {
        /// The mechanism.
        mechanism: Mechanism,
        /// Who we said we are.
        username: String,
        /// The broker's words.
        message: String,
    },
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

fn list(enabled: &[String]) -> String {
    if enabled.is_empty() { "nothing that it names".to_owned() } else { enabled.join(", ") }
}

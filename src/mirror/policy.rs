//! Replication policies: how a topic is called on the target, and what a name says of its origin.

/// Which policy names the topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// `DefaultReplicationPolicy`: source alias, separator, topic.
    Default,
    /// `IdentityReplicationPolicy`: the name stays.
    Identity,
}

/// A replication policy with its separators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationPolicy {
    /// Which one.
    pub kind: PolicyKind,
    /// `replication.policy.separator`.
    pub separator: String,
    /// The separator in the names of internal topics (KIP-949).
    pub internal_separator: String,
}

impl Default for ReplicationPolicy {
    fn default() -> ReplicationPolicy {
        ReplicationPolicy {
            kind: PolicyKind::Default,
            separator: ".".to_owned(),
            internal_separator: ".".to_owned(),
        }
    }
}

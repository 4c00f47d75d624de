//! Kafka's error codes, each classified once.
//!
//! The names and what is retriable are those of `Errors.java`; the scope, which tells how much an error stops, is ours:
//! promise "one bad topic, partition, group or broker never stops another" hangs on it. A code that the table does not
//! know is kept by its number, and stops only the request that it answered.
//!
//! Where the table differs from `Errors.java` on purpose: BROKER_NOT_AVAILABLE, STALE_CONTROLLER_EPOCH,
//! CONCURRENT_TRANSACTIONS, OPERATION_NOT_ATTEMPTED and REBOOTSTRAP_REQUIRED heal by asking again and are retriable here.

use std::fmt;

/// An error code as it came from a broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i16);

/// What an error code means for whoever gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// No error.
    Success,
    /// May be asked again, after this was refreshed.
    Retriable(Refresh),
    /// Asking the same again gives the same; this much is stopped by it.
    Fatal(Scope),
}

/// What is to be looked up anew before a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refresh {
    /// Nothing.
    Nothing,
    /// The metadata: leaders, topic ids, brokers.
    Metadata,
    /// The coordinator of the group or transactional id.
    Coordinator,
    /// The controller.
    Controller,
}

/// How much an error stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The request that it answered, and nothing else.
    Request,
    /// One partition.
    Partition,
    /// One topic.
    Topic,
    /// One group or its member.
    Group,
    /// One producer id or transactional id.
    Producer,
    /// Everything that is done at the cluster.
    Cluster,
}

impl ErrorCode {
    /// No error.
    pub const NONE: ErrorCode = ErrorCode(0);
    /// The broker does not say what.
    pub const UNKNOWN_SERVER_ERROR: ErrorCode = ErrorCode(-1);
    /// The offset is below the log start or above the log end.
    pub const OFFSET_OUT_OF_RANGE: ErrorCode = ErrorCode(1);
    /// The broker does not know the topic or partition.
    pub const UNKNOWN_TOPIC_OR_PARTITION: ErrorCode = ErrorCode(3);
    /// An election is under way.
    pub const LEADER_NOT_AVAILABLE: ErrorCode = ErrorCode(5);
    /// The broker does not lead the partition.
    pub const NOT_LEADER_OR_FOLLOWER: ErrorCode = ErrorCode(6);
    /// The coordinator reads its state.
    pub const COORDINATOR_LOAD_IN_PROGRESS: ErrorCode = ErrorCode(14);
    /// There is no coordinator yet.
    pub const COORDINATOR_NOT_AVAILABLE: ErrorCode = ErrorCode(15);
    /// Another broker is the coordinator.
    pub const NOT_COORDINATOR: ErrorCode = ErrorCode(16);
    /// The member belongs to an older generation.
    pub const ILLEGAL_GENERATION: ErrorCode = ErrorCode(22);
    /// The group's members speak another protocol type.
    pub const INCONSISTENT_GROUP_PROTOCOL: ErrorCode = ErrorCode(23);
    /// The coordinator does not know the member.
    pub const UNKNOWN_MEMBER_ID: ErrorCode = ErrorCode(25);
    /// The group wants its members to join again.
    pub const REBALANCE_IN_PROGRESS: ErrorCode = ErrorCode(27);
    /// The version of the request is unknown.
    pub const UNSUPPORTED_VERSION: ErrorCode = ErrorCode(35);
    /// There is a topic of that name.
    pub const TOPIC_ALREADY_EXISTS: ErrorCode = ErrorCode(36);
    /// More replicas than brokers.
    pub const INVALID_REPLICATION_FACTOR: ErrorCode = ErrorCode(38);
    /// Another broker is the controller.
    pub const NOT_CONTROLLER: ErrorCode = ErrorCode(41);
    /// There is no such group (DescribeGroups from version 6).
    pub const GROUP_ID_NOT_FOUND: ErrorCode = ErrorCode(69);
    /// The cluster has no authorizer.
    pub const SECURITY_DISABLED: ErrorCode = ErrorCode(54);
    /// The leader epoch of the request is too old.
    pub const FENCED_LEADER_EPOCH: ErrorCode = ErrorCode(74);
    /// The topic may not be used, or seen, by us.
    pub const TOPIC_AUTHORIZATION_FAILED: ErrorCode = ErrorCode(29);
    /// The leader does not know yet how far it may be read.
    pub const OFFSET_NOT_AVAILABLE: ErrorCode = ErrorCode(78);
    /// Join again with the member id of the answer (KIP-394).
    pub const MEMBER_ID_REQUIRED: ErrorCode = ErrorCode(79);
    /// Another member took over the static member id.
    pub const FENCED_INSTANCE_ID: ErrorCode = ErrorCode(82);
    /// The member belongs to an older epoch (KIP-848).
    pub const FENCED_MEMBER_EPOCH: ErrorCode = ErrorCode(110);
    /// Another member holds the static member id still (KIP-848).
    pub const UNRELEASED_INSTANCE_ID: ErrorCode = ErrorCode(111);
    /// The member's epoch has changed; the newer one is in its next heartbeat (KIP-848).
    pub const STALE_MEMBER_EPOCH: ErrorCode = ErrorCode(113);
    /// The coordinator does not know the transactional id.
    pub const TRANSACTIONAL_ID_NOT_FOUND: ErrorCode = ErrorCode(105);
    /// The broker does not know the topic id.
    pub const UNKNOWN_TOPIC_ID: ErrorCode = ErrorCode(100);
    /// All that is known of the cluster is stale: begin at the bootstrap servers (KIP-1102).
    pub const REBOOTSTRAP_REQUIRED: ErrorCode = ErrorCode(129);

    /// Kafka's name for it; `None` for a code that this build does not know.
    pub fn name(self) -> Option<&'static str> {
        self.row().map(|&(_, name, _)| name)
    }

    /// What it means.
    pub fn class(self) -> Class {
        match self.row() {
            Some(&(_, _, class)) => class,
            None => Class::Fatal(Scope::Request),
        }
    }

    /// Whether the same request may succeed later.
    pub fn is_retriable(self) -> bool {
        matches!(self.class(), Class::Retriable(_))
    }

    /// Success, or the code as an error.
    pub fn ok(self) -> Result<(), ErrorCode> {
        if self == ErrorCode::NONE { Ok(()) } else { Err(self) }
    }

    fn row(self) -> Option<&'static (i16, &'static str, Class)> {
        TABLE.binary_search_by_key(&self.0, |&(code, _, _)| code).ok().and_then(|at| TABLE.get(at))
    }
}

impl From<i16> for ErrorCode {
    fn from(code: i16) -> ErrorCode {
        ErrorCode(code)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "error code {}", self.0),
        }
    }
}

/// Ordered by code.
#[rustfmt::skip]
const TABLE: &[(i16, &str, Class)] = &[
    (-1, "UNKNOWN_SERVER_ERROR", Class::Fatal(Scope::Partition)),
    (0, "NONE", Class::Success),
    (1, "OFFSET_OUT_OF_RANGE", Class::Fatal(Scope::Partition)),
    (2, "CORRUPT_MESSAGE", Class::Retriable(Refresh::Nothing)),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", Class::Retriable(Refresh::Metadata)),
    (4, "INVALID_FETCH_SIZE", Class::Fatal(Scope::Partition)),
    (5, "LEADER_NOT_AVAILABLE", Class::Retriable(Refresh::Metadata)),
    (6, "NOT_LEADER_OR_FOLLOWER", Class::Retriable(Refresh::Metadata)),
    (7, "REQUEST_TIMED_OUT", Class::Retriable(Refresh::Nothing)),
    (8, "BROKER_NOT_AVAILABLE", Class::Retriable(Refresh::Metadata)),
    (9, "REPLICA_NOT_AVAILABLE", Class::Retriable(Refresh::Metadata)),
    (10, "MESSAGE_TOO_LARGE", Class::Fatal(Scope::Partition)),
    (11, "STALE_CONTROLLER_EPOCH", Class::Retriable(Refresh::Controller)),
    (12, "OFFSET_METADATA_TOO_LARGE", Class::Fatal(Scope::Group)),
    (13, "NETWORK_EXCEPTION", Class::Retriable(Refresh::Metadata)),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", Class::Retriable(Refresh::Coordinator)),
    (15, "COORDINATOR_NOT_AVAILABLE", Class::Retriable(Refresh::Coordinator)),
    (16, "NOT_COORDINATOR", Class::Retriable(Refresh::Coordinator)),
    (17, "INVALID_TOPIC_EXCEPTION", Class::Fatal(Scope::Topic)),
    (18, "RECORD_LIST_TOO_LARGE", Class::Fatal(Scope::Partition)),
    (19, "NOT_ENOUGH_REPLICAS", Class::Retriable(Refresh::Nothing)),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", Class::Retriable(Refresh::Nothing)),
    (21, "INVALID_REQUIRED_ACKS", Class::Fatal(Scope::Request)),
    (22, "ILLEGAL_GENERATION", Class::Fatal(Scope::Group)),
    (23, "INCONSISTENT_GROUP_PROTOCOL", Class::Fatal(Scope::Group)),
    (24, "INVALID_GROUP_ID", Class::Fatal(Scope::Group)),
    (25, "UNKNOWN_MEMBER_ID", Class::Fatal(Scope::Group)),
    (26, "INVALID_SESSION_TIMEOUT", Class::Fatal(Scope::Group)),
    (27, "REBALANCE_IN_PROGRESS", Class::Fatal(Scope::Group)),
    (28, "INVALID_COMMIT_OFFSET_SIZE", Class::Fatal(Scope::Group)),
    (29, "TOPIC_AUTHORIZATION_FAILED", Class::Fatal(Scope::Topic)),
    (30, "GROUP_AUTHORIZATION_FAILED", Class::Fatal(Scope::Group)),
    (31, "CLUSTER_AUTHORIZATION_FAILED", Class::Fatal(Scope::Cluster)),
    (32, "INVALID_TIMESTAMP", Class::Fatal(Scope::Partition)),
    (33, "UNSUPPORTED_SASL_MECHANISM", Class::Fatal(Scope::Cluster)),
    (34, "ILLEGAL_SASL_STATE", Class::Fatal(Scope::Cluster)),
    (35, "UNSUPPORTED_VERSION", Class::Fatal(Scope::Cluster)),
    (36, "TOPIC_ALREADY_EXISTS", Class::Fatal(Scope::Topic)),
    (37, "INVALID_PARTITIONS", Class::Fatal(Scope::Topic)),
    (38, "INVALID_REPLICATION_FACTOR", Class::Fatal(Scope::Topic)),
    (39, "INVALID_REPLICA_ASSIGNMENT", Class::Fatal(Scope::Topic)),
    (40, "INVALID_CONFIG", Class::Fatal(Scope::Topic)),
    (41, "NOT_CONTROLLER", Class::Retriable(Refresh::Controller)),
    (42, "INVALID_REQUEST", Class::Fatal(Scope::Request)),
    (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", Class::Fatal(Scope::Partition)),
    (44, "POLICY_VIOLATION", Class::Fatal(Scope::Topic)),
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", Class::Fatal(Scope::Producer)),
    (46, "DUPLICATE_SEQUENCE_NUMBER", Class::Fatal(Scope::Producer)),
    (47, "INVALID_PRODUCER_EPOCH", Class::Fatal(Scope::Producer)),
    (48, "INVALID_TXN_STATE", Class::Fatal(Scope::Producer)),
    (49, "INVALID_PRODUCER_ID_MAPPING", Class::Fatal(Scope::Producer)),
    (50, "INVALID_TRANSACTION_TIMEOUT", Class::Fatal(Scope::Producer)),
    (51, "CONCURRENT_TRANSACTIONS", Class::Retriable(Refresh::Nothing)),
    (52, "TRANSACTION_COORDINATOR_FENCED", Class::Fatal(Scope::Producer)),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", Class::Fatal(Scope::Producer)),
    (54, "SECURITY_DISABLED", Class::Fatal(Scope::Request)),
    (55, "OPERATION_NOT_ATTEMPTED", Class::Retriable(Refresh::Nothing)),
    (56, "KAFKA_STORAGE_ERROR", Class::Retriable(Refresh::Metadata)),
    (57, "LOG_DIR_NOT_FOUND", Class::Fatal(Scope::Request)),
    (58, "SASL_AUTHENTICATION_FAILED", Class::Fatal(Scope::Cluster)),
    (59, "UNKNOWN_PRODUCER_ID", Class::Fatal(Scope::Producer)),
    (60, "REASSIGNMENT_IN_PROGRESS", Class::Fatal(Scope::Topic)),
    (61, "DELEGATION_TOKEN_AUTH_DISABLED", Class::Fatal(Scope::Cluster)),
    (62, "DELEGATION_TOKEN_NOT_FOUND", Class::Fatal(Scope::Cluster)),
    (63, "DELEGATION_TOKEN_OWNER_MISMATCH", Class::Fatal(Scope::Cluster)),
    (64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", Class::Fatal(Scope::Cluster)),
    (65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", Class::Fatal(Scope::Cluster)),
    (66, "DELEGATION_TOKEN_EXPIRED", Class::Fatal(Scope::Cluster)),
    (67, "INVALID_PRINCIPAL_TYPE", Class::Fatal(Scope::Cluster)),
    (68, "NON_EMPTY_GROUP", Class::Fatal(Scope::Group)),
    (69, "GROUP_ID_NOT_FOUND", Class::Fatal(Scope::Group)),
    (70, "FETCH_SESSION_ID_NOT_FOUND", Class::Retriable(Refresh::Nothing)),
    (71, "INVALID_FETCH_SESSION_EPOCH", Class::Retriable(Refresh::Nothing)),
    (72, "LISTENER_NOT_FOUND", Class::Retriable(Refresh::Metadata)),
    (73, "TOPIC_DELETION_DISABLED", Class::Fatal(Scope::Topic)),
    (74, "FENCED_LEADER_EPOCH", Class::Retriable(Refresh::Metadata)),
    (75, "UNKNOWN_LEADER_EPOCH", Class::Retriable(Refresh::Metadata)),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", Class::Fatal(Scope::Partition)),
    (77, "STALE_BROKER_EPOCH", Class::Fatal(Scope::Request)),
    (78, "OFFSET_NOT_AVAILABLE", Class::Retriable(Refresh::Nothing)),
    (79, "MEMBER_ID_REQUIRED", Class::Fatal(Scope::Group)),
    (80, "PREFERRED_LEADER_NOT_AVAILABLE", Class::Retriable(Refresh::Metadata)),
    (81, "GROUP_MAX_SIZE_REACHED", Class::Fatal(Scope::Group)),
    (82, "FENCED_INSTANCE_ID", Class::Fatal(Scope::Group)),
    (83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", Class::Retriable(Refresh::Metadata)),
    (84, "ELECTION_NOT_NEEDED", Class::Retriable(Refresh::Metadata)),
    (85, "NO_REASSIGNMENT_IN_PROGRESS", Class::Fatal(Scope::Request)),
    (86, "GROUP_SUBSCRIBED_TO_TOPIC", Class::Fatal(Scope::Group)),
    (87, "INVALID_RECORD", Class::Fatal(Scope::Partition)),
    (88, "UNSTABLE_OFFSET_COMMIT", Class::Retriable(Refresh::Nothing)),
    (89, "THROTTLING_QUOTA_EXCEEDED", Class::Retriable(Refresh::Nothing)),
    (90, "PRODUCER_FENCED", Class::Fatal(Scope::Producer)),
    (91, "RESOURCE_NOT_FOUND", Class::Fatal(Scope::Request)),
    (92, "DUPLICATE_RESOURCE", Class::Fatal(Scope::Request)),
    (93, "UNACCEPTABLE_CREDENTIAL", Class::Fatal(Scope::Request)),
    (94, "INCONSISTENT_VOTER_SET", Class::Fatal(Scope::Request)),
    (95, "INVALID_UPDATE_VERSION", Class::Fatal(Scope::Request)),
    (96, "FEATURE_UPDATE_FAILED", Class::Fatal(Scope::Request)),
    (97, "PRINCIPAL_DESERIALIZATION_FAILURE", Class::Fatal(Scope::Cluster)),
    (98, "SNAPSHOT_NOT_FOUND", Class::Fatal(Scope::Request)),
    (99, "POSITION_OUT_OF_RANGE", Class::Fatal(Scope::Partition)),
    (100, "UNKNOWN_TOPIC_ID", Class::Retriable(Refresh::Metadata)),
    (101, "DUPLICATE_BROKER_REGISTRATION", Class::Fatal(Scope::Request)),
    (102, "BROKER_ID_NOT_REGISTERED", Class::Fatal(Scope::Request)),
    (103, "INCONSISTENT_TOPIC_ID", Class::Retriable(Refresh::Metadata)),
    (104, "INCONSISTENT_CLUSTER_ID", Class::Fatal(Scope::Cluster)),
    (105, "TRANSACTIONAL_ID_NOT_FOUND", Class::Fatal(Scope::Producer)),
    (106, "FETCH_SESSION_TOPIC_ID_ERROR", Class::Retriable(Refresh::Nothing)),
    (107, "INELIGIBLE_REPLICA", Class::Fatal(Scope::Partition)),
    (108, "NEW_LEADER_ELECTED", Class::Fatal(Scope::Partition)),
    (109, "OFFSET_MOVED_TO_TIERED_STORAGE", Class::Fatal(Scope::Partition)),
    (110, "FENCED_MEMBER_EPOCH", Class::Fatal(Scope::Group)),
    (111, "UNRELEASED_INSTANCE_ID", Class::Fatal(Scope::Group)),
    (112, "UNSUPPORTED_ASSIGNOR", Class::Fatal(Scope::Group)),
    (113, "STALE_MEMBER_EPOCH", Class::Fatal(Scope::Group)),
    (114, "MISMATCHED_ENDPOINT_TYPE", Class::Fatal(Scope::Request)),
    (115, "UNSUPPORTED_ENDPOINT_TYPE", Class::Fatal(Scope::Request)),
    (116, "UNKNOWN_CONTROLLER_ID", Class::Fatal(Scope::Request)),
    (117, "UNKNOWN_SUBSCRIPTION_ID", Class::Fatal(Scope::Request)),
    (118, "TELEMETRY_TOO_LARGE", Class::Fatal(Scope::Request)),
    (119, "INVALID_REGISTRATION", Class::Fatal(Scope::Request)),
    (120, "TRANSACTION_ABORTABLE", Class::Fatal(Scope::Producer)),
    (121, "INVALID_RECORD_STATE", Class::Fatal(Scope::Group)),
    (122, "SHARE_SESSION_NOT_FOUND", Class::Retriable(Refresh::Nothing)),
    (123, "INVALID_SHARE_SESSION_EPOCH", Class::Retriable(Refresh::Nothing)),
    (124, "FENCED_STATE_EPOCH", Class::Fatal(Scope::Group)),
    (125, "INVALID_VOTER_KEY", Class::Fatal(Scope::Request)),
    (126, "DUPLICATE_VOTER", Class::Fatal(Scope::Request)),
    (127, "VOTER_NOT_FOUND", Class::Fatal(Scope::Request)),
    (128, "INVALID_REGULAR_EXPRESSION", Class::Fatal(Scope::Group)),
    (129, "REBOOTSTRAP_REQUIRED", Class::Retriable(Refresh::Metadata)),
    (130, "STREAMS_INVALID_TOPOLOGY", Class::Fatal(Scope::Group)),
    (131, "STREAMS_INVALID_TOPOLOGY_EPOCH", Class::Fatal(Scope::Group)),
    (132, "STREAMS_TOPOLOGY_FENCED", Class::Fatal(Scope::Group)),
    (133, "SHARE_SESSION_LIMIT_REACHED", Class::Retriable(Refresh::Nothing)),];

#[cfg(test)]
mod tests {
    use kafka_protocol::ResponseError;

    use super::*;

    #[test]
    fn the_table_is_ordered_and_knows_every_code_of_the_codec() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for code in -1..=200_i16 {
            let known = !matches!(ResponseError::try_from_code(code), Some(ResponseError::Unknown(_)));
            assert_eq!(ErrorCode(code).name().is_some(), known, "{code}");
        }
    }

    #[test]
    fn what_is_retriable_is_what_kafka_says_but_for_the_named_ones() {
        let differ: Vec<_> = TABLE
            .iter()
            .filter(|&&(code, _, class)| {
                let kafka = ResponseError::try_from_code(code).is_some_and(|error| error.is_retriable());
                kafka != matches!(class, Class::Retriable(_))
            })
            .map(|&(_, name, _)| name)
            .collect();
        let named = [
            "BROKER_NOT_AVAILABLE",
            "STALE_CONTROLLER_EPOCH",
            "CONCURRENT_TRANSACTIONS",
            "OPERATION_NOT_ATTEMPTED",
            "REBOOTSTRAP_REQUIRED",
        ];
        assert_eq!(differ, named);
    }

    #[test]
    fn constants_carry_the_names_of_the_table() {
        for (code, name) in [
            (ErrorCode::NONE, "NONE"),
            (ErrorCode::UNKNOWN_SERVER_ERROR, "UNKNOWN_SERVER_ERROR"),
            (ErrorCode::OFFSET_OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE"),
            (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "UNKNOWN_TOPIC_OR_PARTITION"),
            (ErrorCode::LEADER_NOT_AVAILABLE, "LEADER_NOT_AVAILABLE"),
            (ErrorCode::NOT_LEADER_OR_FOLLOWER, "NOT_LEADER_OR_FOLLOWER"),
            (ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, "COORDINATOR_LOAD_IN_PROGRESS"),
            (ErrorCode::COORDINATOR_NOT_AVAILABLE, "COORDINATOR_NOT_AVAILABLE"),
            (ErrorCode::NOT_COORDINATOR, "NOT_COORDINATOR"),
            (ErrorCode::ILLEGAL_GENERATION, "ILLEGAL_GENERATION"),
            (ErrorCode::INCONSISTENT_GROUP_PROTOCOL, "INCONSISTENT_GROUP_PROTOCOL"),
            (ErrorCode::UNKNOWN_MEMBER_ID, "UNKNOWN_MEMBER_ID"),
            (ErrorCode::REBALANCE_IN_PROGRESS, "REBALANCE_IN_PROGRESS"),
            (ErrorCode::UNSUPPORTED_VERSION, "UNSUPPORTED_VERSION"),
            (ErrorCode::TOPIC_ALREADY_EXISTS, "TOPIC_ALREADY_EXISTS"),
            (ErrorCode::INVALID_REPLICATION_FACTOR, "INVALID_REPLICATION_FACTOR"),
            (ErrorCode::NOT_CONTROLLER, "NOT_CONTROLLER"),
            (ErrorCode::GROUP_ID_NOT_FOUND, "GROUP_ID_NOT_FOUND"),
            (ErrorCode::FENCED_LEADER_EPOCH, "FENCED_LEADER_EPOCH"),
            (ErrorCode::OFFSET_NOT_AVAILABLE, "OFFSET_NOT_AVAILABLE"),
            (ErrorCode::MEMBER_ID_REQUIRED, "MEMBER_ID_REQUIRED"),
            (ErrorCode::FENCED_INSTANCE_ID, "FENCED_INSTANCE_ID"),
            (ErrorCode::TRANSACTIONAL_ID_NOT_FOUND, "TRANSACTIONAL_ID_NOT_FOUND"),
            (ErrorCode::UNKNOWN_TOPIC_ID, "UNKNOWN_TOPIC_ID"),
            (ErrorCode::REBOOTSTRAP_REQUIRED, "REBOOTSTRAP_REQUIRED"),
        ] {
            assert_eq!(code.name(), Some(name));
        }
    }

    #[test]
    fn an_unknown_code_keeps_its_number_and_stops_only_its_request() {
        for code in [-2, 999, i16::MIN, i16::MAX] {
            assert_eq!(ErrorCode(code).class(), Class::Fatal(Scope::Request));
            assert_eq!(ErrorCode(code).to_string(), format!("error code {code}"));
        }
        assert_eq!(ErrorCode::NOT_CONTROLLER.to_string(), "NOT_CONTROLLER (41)");
    }
}

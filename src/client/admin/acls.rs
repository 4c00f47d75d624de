//! ACLs of topics.

use std::sync::Arc;

use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::{ApiKey, CreateAclsRequest, DescribeAclsRequest};
use kafka_protocol::protocol::StrBytes;

use super::super::api::words;
use super::super::cluster::{Cluster, Node};
use super::super::code::ErrorCode;
use super::super::error::{Error, Subject};

/// `ResourceType.TOPIC`.
const TOPIC_RESOURCE: i8 = 2;
/// `PatternType.ANY`, `AclOperation.ANY`, `AclPermissionType.ANY`.
const ANY: i8 = 1;
/// The most ACLs in one request.
const CREATIONS_MAX: usize = 500;

/// An ACL of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopicAcl {
    /// The topic, or what its name begins with.
    pub topic: Arc<str>,
    /// What the name is.
    pub pattern: AclPattern,
    /// Whom it is about, as `User:alice`.
    pub principal: String,
    /// From where; `*` for anywhere.
    pub host: String,
    /// What is done.
    pub operation: AclOperation,
    /// Whether that is allowed.
    pub permission: AclPermission,
}

/// `PatternType` (KIP-290).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AclPattern {
    /// One topic, or all by `*`.
    Literal,
    /// Every topic whose name begins so.
    Prefixed,
    /// Something that this build does not know.
    Other(i8),
}

/// `AclPermissionType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AclPermission {
    /// It is not.
    Deny,
    /// It is.
    Allow,
    /// Something that this build does not know.
    Other(i8),
}

/// `AclOperation`, by its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AclOperation(pub i8);

impl AclOperation {
    /// Everything.
    pub const ALL: AclOperation = AclOperation(2);
    /// Reading.
    pub const READ: AclOperation = AclOperation(3);
    /// Writing.
    pub const WRITE: AclOperation = AclOperation(4);

    /// Kafka's word for it.
    pub fn name(self) -> String {
        const NAMES: [&str; 16] = [
            "UNKNOWN",
            "ANY",
            "ALL",
            "READ",
            "WRITE",
            "CREATE",
            "DELETE",
            "ALTER",
            "DESCRIBE",
            "CLUSTER_ACTION",
            "DESCRIBE_CONFIGS",
            "ALTER_CONFIGS",
            "IDEMPOTENT_WRITE",
            "CREATE_TOKENS",
            "DESCRIBE_TOKENS",
            "TWO_PHASE_COMMIT",
        ];
        let name = usize::try_from(self.0).ok().and_then(|code| NAMES.get(code));
        name.map_or_else(|| format!("operation {}", self.0), |name| (*name).to_owned())
    }
}

impl AclPermission {
    /// Kafka's word for it.
    pub fn name(self) -> &'static str {
        match self {
            AclPermission::Deny => "DENY",
            AclPermission::Allow => "ALLOW",
            AclPermission::Other(_) => "UNKNOWN",
        }
    }
}

impl Cluster {
    /// All ACLs of topics, in order; `None` when the cluster has no authorizer.
    ///
    /// # Errors
    /// As [`Cluster::call`]; DESCRIBE on the cluster is needed.
    pub async fn describe_topic_acls(&self) -> Result<Option<Vec<TopicAcl>>, Error> {
        let request = DescribeAclsRequest::default()
            .with_resource_type_filter(TOPIC_RESOURCE)
            .with_resource_name_filter(None)
            .with_pattern_type_filter(ANY)
            .with_principal_filter(None)
            .with_host_filter(None)
            .with_operation(ANY)
            .with_permission_type(ANY);
        let answer = match self.call(Node::Any, &request).await {
            Ok(answer) => answer.response,
            Err(error) if error.code() == Some(ErrorCode::SECURITY_DISABLED) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut acls = Vec::new();
        for resource in answer.resources.iter().filter(|resource| resource.resource_type == TOPIC_RESOURCE) {
            let topic: Arc<str> = Arc::from(resource.resource_name.as_str());
            acls.extend(resource.acls.iter().map(|acl| TopicAcl {
                topic: topic.clone(),
                pattern: AclPattern::from(resource.pattern_type),
                principal: acl.principal.to_string(),
                host: acl.host.to_string(),
                operation: AclOperation(acl.operation),
                permission: AclPermission::from(acl.permission_type),
            }));
        }
        acls.sort();
        Ok(Some(acls))
    }

    /// Creates ACLs; one that is there already is as good as created. Answers with those that were refused.
    ///
    /// # Errors
    /// As a whole, when no broker answered; ALTER on the cluster is needed.
    pub async fn create_topic_acls(&self, acls: &[TopicAcl]) -> Result<Vec<(TopicAcl, Error)>, Error> {
        let mut refused = Vec::new();
        for acls in acls.chunks(CREATIONS_MAX) {
            let request = CreateAclsRequest::default().with_creations(acls.iter().map(creation).collect());
            let answer = self.call(Node::Any, &request).await?;
            let mut results = answer.response.results.iter();
            for acl in acls {
                let subject = Subject::Topic(acl.topic.clone());
                let error = match results.next().map(|result| (ErrorCode(result.error_code), result)) {
                    Some((ErrorCode::NONE, _)) => continue,
                    Some((code, result)) => {
                        let words = words(result.error_message.as_ref());
                        self.refused::<CreateAclsRequest>(answer.broker.clone(), subject, code, words)
                    }
                    None => Error::LeftOut {
                        cluster: self.alias().clone(),
                        broker: Box::new(answer.broker.clone()),
                        api: ApiKey::CreateAcls,
                        subject,
                    },
                };
                refused.push((acl.clone(), error));
            }
        }
        Ok(refused)
    }
}

fn creation(acl: &TopicAcl) -> AclCreation {
    let string = |text: &str| StrBytes::from_string(text.to_owned());
    AclCreation::default()
        .with_resource_type(TOPIC_RESOURCE)
        .with_resource_name(string(&acl.topic))
        .with_resource_pattern_type(acl.pattern.code())
        .with_principal(string(&acl.principal))
        .with_host(string(&acl.host))
        .with_operation(acl.operation.0)
        .with_permission_type(acl.permission.code())
}

impl From<i8> for AclPattern {
    fn from(code: i8) -> AclPattern {
        match code {
            3 => AclPattern::Literal,
            4 => AclPattern::Prefixed,
            other => AclPattern::Other(other),
        }
    }
}

impl AclPattern {
    fn code(self) -> i8 {
        match self {
            AclPattern::Literal => 3,
            AclPattern::Prefixed => 4,
            AclPattern::Other(code) => code,
        }
    }
}

impl From<i8> for AclPermission {
    fn from(code: i8) -> AclPermission {
        match code {
            2 => AclPermission::Deny,
            3 => AclPermission::Allow,
            other => AclPermission::Other(other),
        }
    }
}

impl AclPermission {
    fn code(self) -> i8 {
        match self {
            AclPermission::Deny => 2,
            AclPermission::Allow => 3,
            AclPermission::Other(code) => code,
        }
    }
}

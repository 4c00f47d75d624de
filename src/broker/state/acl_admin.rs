//! DescribeAcls, CreateAcls and DeleteAcls (`AclCommand`, `StandardAuthorizer`): kept and told, and never enforced.
//!
//! A cluster without an authorizer answers SECURITY_DISABLED (`KafkaApis`).

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::delete_acls_response::{DeleteAclsFilterResult, DeleteAclsMatchingAcl};
use kafka_protocol::messages::describe_acls_response::{AclDescription, DescribeAclsResource};
use kafka_protocol::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse, DescribeAclsRequest,
    DescribeAclsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::{ClusterState, Handled};
use crate::broker::Authorizer;
use crate::broker::wire::Request;

const WORDS: &str = "No Authorizer is configured.";
/// The most ACLs that are kept.
const ACLS_MAX: usize = 100_000;

const ANY: i8 = 1;
const PATTERN_MATCH: i8 = 2;
const PATTERN_LITERAL: i8 = 3;
const PATTERN_PREFIXED: i8 = 4;

/// What an ACL is about: resource type, pattern type, name.
type Resource = (i8, i8, String);

/// An ACL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Acl {
    resource: Resource,
    principal: String,
    host: String,
    operation: i8,
    permission: i8,
}

/// Which ACLs are meant; `None` and `ANY` mean all.
struct Filter<'a> {
    resource_type: i8,
    pattern_type: i8,
    name: Option<&'a str>,
    principal: Option<&'a str>,
    host: Option<&'a str>,
    operation: i8,
    permission: i8,
}

impl Filter<'_> {
    fn takes(&self, acl: &Acl) -> bool {
        let (resource_type, pattern_type, name) = &acl.resource;
        let code = |wanted: i8, there: i8| wanted == ANY || wanted == there;
        let text = |wanted: Option<&str>, there: &str| wanted.is_none_or(|wanted| wanted == there);
        let resource = match self.pattern_type {
            PATTERN_MATCH => self.name.is_none_or(|wanted| match *pattern_type {
                PATTERN_LITERAL => name == wanted || name == "*",
                PATTERN_PREFIXED => wanted.starts_with(name.as_str()),
                _ => false,
            }),
            wanted => code(wanted, *pattern_type) && text(self.name, name),
        };
        resource
            && code(self.resource_type, *resource_type)
            && text(self.principal, &acl.principal)
            && text(self.host, &acl.host)
            && code(self.operation, acl.operation)
            && code(self.permission, acl.permission)
    }
}

impl ClusterState {
    pub(super) fn handle_describe_acls(&mut self, request: &Request) -> Handled {
        let body: DescribeAclsRequest = request.decode()?;
        let reply = DescribeAclsResponse::default().with_throttle_time_ms(self.settings.throttle_ms);
        if let Some((code, words)) = self.without_authorizer(request) {
            return Ok(request.reply(&reply.with_error_code(code).with_error_message(Some(words))));
        }
        let filter = Filter {
            resource_type: body.resource_type_filter,
            pattern_type: body.pattern_type_filter,
            name: body.resource_name_filter.as_deref(),
            principal: body.principal_filter.as_deref(),
            host: body.host_filter.as_deref(),
            operation: body.operation,
            permission: body.permission_type,
        };
        let mut found: BTreeMap<&Resource, Vec<AclDescription>> = BTreeMap::new();
        for acl in self.acls.iter().filter(|acl| filter.takes(acl)) {
            found.entry(&acl.resource).or_default().push(
                AclDescription::default()
                    .with_principal(string(&acl.principal))
                    .with_host(string(&acl.host))
                    .with_operation(acl.operation)
                    .with_permission_type(acl.permission),
            );
        }
        let resources = found.into_iter().map(|((resource_type, pattern_type, name), acls)| {
            DescribeAclsResource::default()
                .with_resource_type(*resource_type)
                .with_pattern_type(*pattern_type)
                .with_resource_name(string(name))
                .with_acls(acls)
        });
        Ok(request.reply(&reply.with_resources(resources.collect())))
    }

    pub(super) fn handle_create_acls(&mut self, request: &Request) -> Handled {
        let body: CreateAclsRequest = request.decode()?;
        let refused = self.without_authorizer(request);
        let results = body.creations.iter().map(|creation| {
            let result = AclCreationResult::default();
            if let Some((code, words)) = &refused {
                return result.with_error_code(*code).with_error_message(Some(words.clone()));
            }
            if !creation.principal.contains(':') || self.acls.len() >= ACLS_MAX {
                let words = StrBytes::from_static_str("Could not parse principal");
                let code = ResponseError::InvalidRequest.code();
                return result.with_error_code(code).with_error_message(Some(words));
            }
            self.acls.insert(Acl {
                resource: (
                    creation.resource_type,
                    creation.resource_pattern_type,
                    creation.resource_name.to_string(),
                ),
                principal: creation.principal.to_string(),
                host: creation.host.to_string(),
                operation: creation.operation,
                permission: creation.permission_type,
            });
            result
        });
        let reply = CreateAclsResponse::default().with_results(results.collect());
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    pub(super) fn handle_delete_acls(&mut self, request: &Request) -> Handled {
        let body: DeleteAclsRequest = request.decode()?;
        let refused = self.without_authorizer(request);
        let results = body.filters.iter().map(|filter| match &refused {
            Some((code, words)) => DeleteAclsFilterResult::default()
                .with_error_code(*code)
                .with_error_message(Some(words.clone())),
            None => DeleteAclsFilterResult::default().with_matching_acls(self.delete_acls(filter)),
        });
        let reply = DeleteAclsResponse::default().with_filter_results(results.collect());
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    fn delete_acls(&mut self, filter: &DeleteAclsFilter) -> Vec<DeleteAclsMatchingAcl> {
        let filter = Filter {
            resource_type: filter.resource_type_filter,
            pattern_type: filter.pattern_type_filter,
            name: filter.resource_name_filter.as_deref(),
            principal: filter.principal_filter.as_deref(),
            host: filter.host_filter.as_deref(),
            operation: filter.operation,
            permission: filter.permission_type,
        };
        let all = std::mem::take(&mut self.acls);
        let (gone, kept): (BTreeSet<Acl>, BTreeSet<Acl>) = all.into_iter().partition(|acl| filter.takes(acl));
        self.acls = kept;
        gone.iter()
            .map(|acl| {
                DeleteAclsMatchingAcl::default()
                    .with_resource_type(acl.resource.0)
                    .with_pattern_type(acl.resource.1)
                    .with_resource_name(string(&acl.resource.2))
                    .with_principal(string(&acl.principal))
                    .with_host(string(&acl.host))
                    .with_operation(acl.operation)
                    .with_permission_type(acl.permission)
            })
            .collect()
    }

    fn without_authorizer(&self, request: &Request) -> Option<(i16, StrBytes)> {
        let disabled = self.settings.authorizer == Authorizer::None;
        let code = request.refuse_with.or(disabled.then(|| ResponseError::SecurityDisabled.code()))?;
        Some((code, StrBytes::from_static_str(WORDS)))
    }
}

fn string(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

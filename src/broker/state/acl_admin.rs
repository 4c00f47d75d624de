//! DescribeAcls, CreateAcls and DeleteAcls of a cluster without an authorizer (`KafkaApis`: SECURITY_DISABLED).

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::delete_acls_response::DeleteAclsFilterResult;
use kafka_protocol::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse, DescribeAclsRequest,
    DescribeAclsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::{ClusterState, Handled};
use crate::broker::wire::Request;

const WORDS: &str = "No Authorizer is configured.";

impl ClusterState {
    pub(super) fn handle_describe_acls(&mut self, request: &Request) -> Handled {
        request.decode::<DescribeAclsRequest>()?;
        let reply = DescribeAclsResponse::default()
            .with_throttle_time_ms(self.settings.throttle_ms)
            .with_error_code(code(request))
            .with_error_message(Some(StrBytes::from_static_str(WORDS)));
        Ok(request.reply(&reply))
    }

    pub(super) fn handle_create_acls(&mut self, request: &Request) -> Handled {
        let body: CreateAclsRequest = request.decode()?;
        let result = AclCreationResult::default()
            .with_error_code(code(request))
            .with_error_message(Some(StrBytes::from_static_str(WORDS)));
        let reply = CreateAclsResponse::default().with_results(vec![result; body.creations.len()]);
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    pub(super) fn handle_delete_acls(&mut self, request: &Request) -> Handled {
        let body: DeleteAclsRequest = request.decode()?;
        let result = DeleteAclsFilterResult::default()
            .with_error_code(code(request))
            .with_error_message(Some(StrBytes::from_static_str(WORDS)));
        let reply = DeleteAclsResponse::default().with_filter_results(vec![result; body.filters.len()]);
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }
}

fn code(request: &Request) -> i16 {
    request.refuse_with.unwrap_or(ResponseError::SecurityDisabled.code())
}

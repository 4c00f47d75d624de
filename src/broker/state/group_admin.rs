//! What an admin client asks about groups: ListGroups, DescribeGroups, DeleteGroups.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse, GroupId,
    ListGroupsRequest, ListGroupsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::group::Group;
use super::group_offsets::group_id;
use super::{ClusterState, Handled};
use crate::broker::wire::Request;

const GROUP_TYPE: &str = "classic";

impl ClusterState {
    pub(super) fn handle_list_groups(&mut self, request: &Request) -> Handled {
        let body: ListGroupsRequest = request.decode()?;
        let passes = |filter: &[StrBytes], value: &str| {
            filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(value))
        };
        let listed = self.groups.iter().filter(|(id, group)| {
            self.coordinator(id) == Some(request.broker.0)
                && passes(&body.states_filter, group.phase.name())
                && passes(&body.types_filter, GROUP_TYPE)
        });
        let groups = listed.map(|(id, group)| {
            ListedGroup::default()
                .with_group_id(group_id(id))
                .with_protocol_type(group.protocol_type.clone().unwrap_or_default())
                .with_group_state(StrBytes::from_static_str(group.phase.name()))
                .with_group_type(StrBytes::from_static_str(GROUP_TYPE))
        });
        let reply = ListGroupsResponse::default()
            .with_throttle_time_ms(self.settings.throttle_ms)
            .with_error_code(request.refuse_with.unwrap_or_default())
            .with_groups(groups.collect());
        Ok(request.reply(&reply))
    }

    pub(super) fn handle_describe_groups(&mut self, request: &Request) -> Handled {
        let body: DescribeGroupsRequest = request.decode()?;
        let groups = body.groups.iter().map(|id| self.describe_group(request, id)).collect();
        let reply = DescribeGroupsResponse::default().with_groups(groups);
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    fn describe_group(&self, request: &Request, id: &GroupId) -> DescribedGroup {
        let described = DescribedGroup::default().with_group_id(id.clone());
        let checked =
            request.refuse_with.map_or(Ok(()), Err).and_then(|()| self.check_coordinator(request, id));
        if let Err(code) = checked {
            return described.with_error_code(code);
        }
        match self.groups.get(id) {
            Some(group) => describe(described, group),
            // Until version 5 a group that nobody knows is dead, and that is no error (KIP-1043).
            None if request.version < 6 => described.with_group_state(StrBytes::from_static_str("Dead")),
            None => described
                .with_error_code(ResponseError::GroupIdNotFound.code())
                .with_error_message(Some(StrBytes::from_string(format!("Group {} not found.", id.as_str()))))
                .with_group_state(StrBytes::from_static_str("Dead")),
        }
    }

    pub(super) fn handle_delete_groups(&mut self, request: &Request) -> Handled {
        let body: DeleteGroupsRequest = request.decode()?;
        let mut results = Vec::with_capacity(body.groups_names.len());
        for id in &body.groups_names {
            let code = self.delete_group(request, id).err().unwrap_or_default();
            results.push(DeletableGroupResult::default().with_group_id(id.clone()).with_error_code(code));
        }
        let reply = DeleteGroupsResponse::default().with_results(results);
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    fn delete_group(&mut self, request: &Request, id: &str) -> Result<(), i16> {
        request.refuse_with.map_or(Ok(()), Err)?;
        self.check_coordinator(request, id)?;
        let group = self.groups.get(id).ok_or(ResponseError::GroupIdNotFound.code())?;
        if !group.members.is_empty() {
            return Err(ResponseError::NonEmptyGroup.code());
        }
        self.groups.remove(id);
        Ok(())
    }
}

fn describe(described: DescribedGroup, group: &Group) -> DescribedGroup {
    let members = group.members.iter().map(|(id, member)| {
        DescribedGroupMember::default()
            .with_member_id(id.clone())
            .with_group_instance_id(member.instance_id.clone())
            .with_client_id(member.client_id.clone())
            .with_client_host(StrBytes::from_static_str("/127.0.0.1"))
            .with_member_metadata(member.metadata(group.protocol.as_ref()))
            .with_member_assignment(member.assignment.clone())
    });
    described
        .with_group_state(StrBytes::from_static_str(group.phase.name()))
        .with_protocol_type(group.protocol_type.clone().unwrap_or_default())
        .with_protocol_data(group.protocol.clone().unwrap_or_default())
        .with_members(members.collect())
}

//! The group coordinator's APIs of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

use std::collections::BTreeMap;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, SyncGroupRequest,
};
use kafka_protocol::protocol::StrBytes;

use super::group::{Due, Group, Join, join_error, sync_error};
use super::waits::Waiting;
use super::{ClusterState, Handled};
use crate::broker::wire::{Outcome, Request, WaitId};

/// `group.max.session.timeout.ms`.
const SESSION_TIMEOUT_MS_MAX: i32 = 1_800_000;
/// From this version on a new member first gets an id and joins again with it (KIP-394).
const MEMBER_ID_REQUIRED_VERSION: i16 = 4;

/// All groups of a cluster.
#[derive(Debug, Default)]
pub(super) struct Groups {
    by_id: BTreeMap<String, Group>,
}

impl Groups {
    pub(super) fn get(&self, id: &str) -> Option<&Group> {
        self.by_id.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut Group> {
        self.by_id.get_mut(id)
    }

    pub(super) fn get_or_create(&mut self, id: &str) -> &mut Group {
        self.by_id.entry(id.to_owned()).or_default()
    }

    pub(super) fn remove(&mut self, id: &str) {
        self.by_id.remove(id);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.by_id.iter().map(|(id, group)| (id.as_str(), group))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Group)> {
        self.by_id.iter_mut().map(|(id, group)| (id.as_str(), group))
    }

    pub(super) fn next_timer_ms(&self) -> Option<i64> {
        self.by_id.values().filter_map(Group::due_ms).min()
    }
}

impl ClusterState {
    pub(super) fn tick_groups(&mut self, now_ms: i64) {
        let mut due = Vec::new();
        for (_, group) in self.groups.iter_mut() {
            if group.due_ms().is_some_and(|due_ms| due_ms <= now_ms) {
                group.tick(now_ms);
                due.extend(group.take_due());
            }
        }
        self.send(due);
    }

    pub(super) fn handle_join_group(&mut self, request: &Request, now_ms: i64) -> Handled {
        let body: JoinGroupRequest = request.decode()?;
        if let Err(code) = self.check_join(request, &body) {
            let reply =
                JoinGroupResponse::default().with_generation_id(-1).with_member_id(body.member_id.clone());
            return Ok(self.reply_join(request, reply.with_error_code(code)));
        }
        let (id, group_id) = (self.wait_for_group(request), body.group_id.clone());
        if let Err((error, member_id)) = self.join(request, body, id, now_ms) {
            self.waits.remove(id);
            return Ok(self.reply_join(request, join_error(error).with_member_id(member_id)));
        }
        Ok(self.settle(&group_id, id))
    }

    fn check_join(&self, request: &Request, body: &JoinGroupRequest) -> Result<(), i16> {
        request.refuse_with.map_or(Ok(()), Err)?;
        if body.group_id.is_empty() {
            return Err(ResponseError::InvalidGroupId.code());
        }
        self.check_coordinator(request, &body.group_id)?;
        let range = self.settings.group_min_session_timeout_ms..=SESSION_TIMEOUT_MS_MAX;
        if !range.contains(&body.session_timeout_ms) {
            return Err(ResponseError::InvalidSessionTimeout.code());
        }
        Ok(())
    }

    /// Lets a member join; an immediate refusal comes back, with the member id that it names.
    fn join(
        &mut self,
        request: &Request,
        body: JoinGroupRequest,
        wait: WaitId,
        now_ms: i64,
    ) -> Result<(), (ResponseError, StrBytes)> {
        let new_id = self.new_member_id(request, body.group_instance_id.as_ref());
        let initial_delay_ms = self.settings.group_initial_rebalance_delay_ms;
        let is_new = body.member_id.is_empty();
        let refuse = |error| Err((error, body.member_id.clone()));
        if self.groups.get(&body.group_id).is_none() && !is_new {
            return refuse(ResponseError::UnknownMemberId);
        }
        let group = self.groups.get_or_create(&body.group_id);
        let join = read_join(request, &body, &new_id);
        if !group.accepts(&join.protocol_type, &join.protocols) {
            return refuse(ResponseError::InconsistentGroupProtocol);
        }
        if is_new {
            if let Some(old) =
                join.instance_id.as_ref().and_then(|instance| group.static_member(instance)).cloned()
            {
                group.join_as_static(join, &old, wait, now_ms);
            } else if join.instance_id.is_none() && request.version >= MEMBER_ID_REQUIRED_VERSION {
                group.expect(new_id.clone(), now_ms + join.session_timeout_ms);
                return Err((ResponseError::MemberIdRequired, new_id));
            } else {
                group.join_new(join, wait, initial_delay_ms, now_ms);
            }
            return Ok(());
        }
        if group.is_expected(&join.member_id) {
            group.join_new(join, wait, initial_delay_ms, now_ms);
            return Ok(());
        }
        if let Err(error) = group.check_member(&join.member_id, join.instance_id.as_ref()) {
            return refuse(error);
        }
        group.join_again(join, wait, now_ms);
        Ok(())
    }

    fn new_member_id(&mut self, request: &Request, instance: Option<&StrBytes>) -> StrBytes {
        let prefix = instance.unwrap_or(&request.client_id);
        StrBytes::from_string(format!("{}-{}", prefix.as_str(), self.random.uuid()))
    }

    pub(super) fn handle_sync_group(&mut self, request: &Request, now_ms: i64) -> Handled {
        let body: SyncGroupRequest = request.decode()?;
        if let Err(code) = self.check_sync(request, &body) {
            return Ok(self.reply_due(
                request,
                Due::Sync(sync_error(ResponseError::UnknownServerError).with_error_code(code)),
            ));
        }
        let id = self.wait_for_group(request);
        if let Some(group) = self.groups.get_mut(&body.group_id) {
            let assignments =
                body.assignments.iter().map(|one| (one.member_id.clone(), one.assignment.clone()));
            group.sync(&body.member_id, assignments, id, now_ms);
        }
        Ok(self.settle(&body.group_id, id))
    }

    fn check_sync(&self, request: &Request, body: &SyncGroupRequest) -> Result<(), i16> {
        let group = self.check_member(
            request,
            &body.group_id,
            &body.member_id,
            body.group_instance_id.as_ref(),
            body.generation_id,
        )?;
        let differs = |asked: &Option<StrBytes>, there: &Option<StrBytes>| asked.is_some() && asked != there;
        if differs(&body.protocol_type, &group.protocol_type) || differs(&body.protocol_name, &group.protocol)
        {
            return Err(ResponseError::InconsistentGroupProtocol.code());
        }
        Ok(())
    }

    pub(super) fn handle_heartbeat(&mut self, request: &Request, now_ms: i64) -> Handled {
        let body: HeartbeatRequest = request.decode()?;
        let (instance, generation) = (body.group_instance_id.as_ref(), body.generation_id);
        let checked =
            self.check_member(request, &body.group_id, &body.member_id, instance, generation).map(|_| ());
        let beaten = checked.and_then(|()| match self.groups.get_mut(&body.group_id) {
            Some(group) => group.heartbeat(&body.member_id, now_ms).map_err(|error| error.code()),
            None => Err(ResponseError::UnknownMemberId.code()),
        });
        let reply = HeartbeatResponse::default().with_error_code(beaten.err().unwrap_or_default());
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    /// The group, if this broker coordinates it and the member belongs to its present generation.
    fn check_member(
        &self,
        request: &Request,
        group_id: &str,
        member_id: &StrBytes,
        instance: Option<&StrBytes>,
        generation: i32,
    ) -> Result<&Group, i16> {
        request.refuse_with.map_or(Ok(()), Err)?;
        self.check_coordinator(request, group_id)?;
        let group = self.groups.get(group_id).ok_or(ResponseError::UnknownMemberId.code())?;
        group.check_member(member_id, instance).map_err(|error| error.code())?;
        if generation == group.generation { Ok(group) } else { Err(ResponseError::IllegalGeneration.code()) }
    }

    pub(super) fn handle_leave_group(&mut self, request: &Request, now_ms: i64) -> Handled {
        let body: LeaveGroupRequest = request.decode()?;
        let reply = LeaveGroupResponse::default().with_throttle_time_ms(self.settings.throttle_ms);
        let checked = request.refuse_with.map_or(Ok(()), Err);
        if let Err(code) = checked.and_then(|()| self.check_coordinator(request, &body.group_id)) {
            return Ok(request.reply(&reply.with_error_code(code)));
        }
        if request.version <= 2 {
            let code = self.leave(&body.group_id, &body.member_id, None, now_ms).err().unwrap_or_default();
            return Ok(request.reply(&reply.with_error_code(code)));
        }
        let mut members = Vec::with_capacity(body.members.len());
        for leaving in &body.members {
            let (id, instance) = (&leaving.member_id, leaving.group_instance_id.as_ref());
            let code = self.leave(&body.group_id, id, instance, now_ms).err().unwrap_or_default();
            members.push(
                MemberResponse::default()
                    .with_member_id(id.clone())
                    .with_group_instance_id(instance.cloned())
                    .with_error_code(code),
            );
        }
        Ok(request.reply(&reply.with_members(members)))
    }

    fn leave(
        &mut self,
        group: &str,
        id: &StrBytes,
        instance: Option<&StrBytes>,
        now_ms: i64,
    ) -> Result<(), i16> {
        let unknown = ResponseError::UnknownMemberId.code();
        let group = self.groups.get_mut(group).ok_or(unknown)?;
        let id = match instance {
            Some(instance) => {
                let owner = group.static_member(instance).ok_or(unknown)?;
                if !id.is_empty() && owner != id {
                    return Err(ResponseError::FencedInstanceId.code());
                }
                owner.clone()
            }
            None => id.clone(),
        };
        let known = group.leave(&id, now_ms);
        let due = group.take_due();
        self.send(due);
        if known { Ok(()) } else { Err(unknown) }
    }

    fn wait_for_group(&mut self, request: &Request) -> WaitId {
        self.waits.insert(Waiting::Group { request: request.clone(), outcome: None })
    }

    /// Sends what became due in a group; the outcome of this wait, if that was among it.
    fn settle(&mut self, group: &str, id: WaitId) -> Outcome {
        let due = self.groups.get_mut(group).map(Group::take_due).unwrap_or_default();
        self.send(due);
        self.resume_wait(id, 0)
    }

    fn send(&mut self, due: Vec<(WaitId, Due)>) {
        for (id, due) in due {
            let throttle_ms = self.settings.throttle_ms;
            self.waits.answer(id, |request| encode(request, due, throttle_ms));
        }
    }

    fn reply_join(&self, request: &Request, reply: JoinGroupResponse) -> Outcome {
        self.reply_due(request, Due::Join(reply))
    }

    fn reply_due(&self, request: &Request, due: Due) -> Outcome {
        encode(request, due, self.settings.throttle_ms)
    }
}

fn encode(request: &Request, due: Due, throttle_ms: i32) -> Outcome {
    match due {
        Due::Join(mut reply) => {
            // Up to version 6 "no protocol" is the empty string; only the newest version can skip the assignment.
            if request.version <= 6 {
                reply.protocol_name = Some(reply.protocol_name.unwrap_or_default());
            }
            reply.skip_assignment &= request.version >= 9;
            request.reply(&reply.with_throttle_time_ms(throttle_ms))
        }
        Due::Sync(reply) => request.reply(&reply.with_throttle_time_ms(throttle_ms)),
    }
}

fn read_join(request: &Request, body: &JoinGroupRequest, new_id: &StrBytes) -> Join {
    let protocols: Vec<(StrBytes, Bytes)> =
        body.protocols.iter().map(|protocol| (protocol.name.clone(), protocol.metadata.clone())).collect();
    let session_timeout_ms = i64::from(body.session_timeout_ms);
    Join {
        member_id: if body.member_id.is_empty() { new_id.clone() } else { body.member_id.clone() },
        instance_id: body.group_instance_id.clone(),
        client_id: request.client_id.clone(),
        session_timeout_ms,
        rebalance_timeout_ms: match body.rebalance_timeout_ms {
            ..0 => session_timeout_ms,
            timeout_ms => i64::from(timeout_ms),
        },
        protocol_type: body.protocol_type.clone(),
        protocols,
    }
}

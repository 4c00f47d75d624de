//! This process as a member of the lease's group: joins, syncs, keeps itself alive, leaves.
//!
//! The classic group protocol (KIP-62, KIP-394) over a connection of its own, because the coordinator holds JoinGroup
//! back until all members are there. One call at a time; what came of it is the answer, nothing is retried here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    GroupId, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::StrBytes;

use super::protocol::{PROTOCOL, PROTOCOL_TYPE};
use crate::client::{Api, Cluster, CoordinatorKind, Error, ErrorCode};
use crate::net::{self, Connection};

/// What stands between a member and its group.
#[derive(Debug)]
pub(super) enum Trouble {
    /// A rebalance: join again.
    Rejoin,
    /// The coordinator does not know this member any more.
    GivenUp(String),
    /// The coordinator cannot be reached, or is another one now: try again.
    Lost(String),
    /// The group will not have this member.
    Refused(String),
}

/// A generation of the group.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) generation: i32,
    /// All members with what they say of themselves, when this one is the group's leader.
    pub(super) members: Option<Vec<(Arc<str>, Bytes)>>,
}

/// The member.
#[derive(Debug)]
pub(super) struct Membership {
    cluster: Cluster,
    group: Arc<str>,
    session_timeout: Duration,
    connection: Option<Connection>,
    member_id: Arc<str>,
    generation: i32,
}

impl Membership {
    pub(super) fn new(cluster: Cluster, group: Arc<str>, session_timeout: Duration) -> Membership {
        let member_id = Arc::from("");
        Membership { cluster, group, session_timeout, connection: None, member_id, generation: -1 }
    }

    /// The id that the coordinator gave this member.
    pub(super) fn member_id(&self) -> &Arc<str> {
        &self.member_id
    }

    /// Joins; returns when the generation is complete.
    pub(super) async fn join(&mut self, metadata: Bytes) -> Result<Joined, Trouble> {
        let timeout_ms = self.session_timeout.as_millis() as i32;
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(StrBytes::from_static_str(PROTOCOL))
            .with_metadata(metadata);
        let request = JoinGroupRequest::default()
            .with_group_id(self.group_id())
            .with_session_timeout_ms(timeout_ms)
            .with_rebalance_timeout_ms(timeout_ms)
            .with_protocol_type(StrBytes::from_static_str(PROTOCOL_TYPE))
            .with_protocols(vec![protocol]);
        for _ in 0..2 {
            let request = request.clone().with_member_id(text(&self.member_id));
            // The coordinator may wait for the others as long as a rebalance may take.
            let reply = self.call(&request, self.session_timeout * 2).await?;
            match ErrorCode(reply.error_code) {
                ErrorCode::NONE => {
                    self.member_id = Arc::from(reply.member_id.as_str());
                    self.generation = reply.generation_id;
                    let leads = reply.leader == reply.member_id;
                    let members = reply.members.into_iter();
                    let members =
                        members.map(|member| (Arc::from(member.member_id.as_str()), member.metadata));
                    let members = leads.then(|| members.collect());
                    return Ok(Joined { generation: reply.generation_id, members });
                }
                // KIP-394: the first answer gives the id to join with.
                ErrorCode::MEMBER_ID_REQUIRED => self.member_id = Arc::from(reply.member_id.as_str()),
                code => return Err(self.trouble(code)),
            }
        }
        Err(Trouble::Lost("the coordinator asks for its own member id again and again".to_owned()))
    }

    /// Gives every member what the leader decided, if this is the leader, and returns what this member was given.
    pub(super) async fn sync(&mut self, assignments: Vec<(Arc<str>, Bytes)>) -> Result<Bytes, Trouble> {
        let assignments = assignments.into_iter().map(|(member, assignment)| {
            SyncGroupRequestAssignment::default().with_member_id(text(&member)).with_assignment(assignment)
        });
        let request = SyncGroupRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id(self.generation)
            .with_member_id(text(&self.member_id))
            .with_protocol_type(Some(StrBytes::from_static_str(PROTOCOL_TYPE)))
            .with_protocol_name(Some(StrBytes::from_static_str(PROTOCOL)))
            .with_assignments(assignments.collect());
        let reply = self.call(&request, self.session_timeout * 2).await?;
        match ErrorCode(reply.error_code) {
            ErrorCode::NONE => Ok(reply.assignment),
            code => Err(self.trouble(code)),
        }
    }

    /// Says that this member is alive.
    pub(super) async fn heartbeat(&mut self) -> Result<(), Trouble> {
        let request = HeartbeatRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id(self.generation)
            .with_member_id(text(&self.member_id));
        let reply = self.call(&request, self.session_timeout).await?;
        match ErrorCode(reply.error_code) {
            ErrorCode::NONE => Ok(()),
            code => Err(self.trouble(code)),
        }
    }

    /// Leaves the group, if it is a member.
    pub(super) async fn leave(&mut self) {
        if self.member_id.is_empty() {
            return;
        }
        let member = MemberIdentity::default().with_member_id(text(&self.member_id));
        let request = LeaveGroupRequest::default().with_group_id(self.group_id());
        let Ok(connection) = self.connect().await else { return };
        let Ok(version) = version::<LeaveGroupRequest>(&connection) else { return };
        let request = match version {
            3.. => request.with_members(vec![member]),
            _ => request.with_member_id(text(&self.member_id)),
        };
        // Whether it succeeds or not, the session timeout ends the membership.
        let _ = connection.call(&request, version).await;
        self.member_id = Arc::from("");
    }

    fn trouble(&mut self, code: ErrorCode) -> Trouble {
        let what = format!("group {} at cluster {}: {code}", self.group, self.cluster.alias());
        match code {
            ErrorCode::REBALANCE_IN_PROGRESS => Trouble::Rejoin,
            ErrorCode::UNKNOWN_MEMBER_ID => {
                self.member_id = Arc::from("");
                Trouble::GivenUp(what)
            }
            ErrorCode::ILLEGAL_GENERATION => Trouble::GivenUp(what),
            code if code.is_retriable() => {
                self.connection = None;
                Trouble::Lost(what)
            }
            _ => Trouble::Refused(what),
        }
    }

    async fn call<R: Api>(&mut self, request: &R, within: Duration) -> Result<R::Response, Trouble> {
        let connection = self.connect().await.map_err(|error| Trouble::Lost(error.chain()))?;
        let version = version::<R>(&connection).map_err(|error| Trouble::Refused(error.to_string()))?;
        match connection.call_within(request, version, within).await {
            Ok(reply) => Ok(reply),
            Err(error) => {
                self.connection = None;
                Err(Trouble::Lost(error.to_string()))
            }
        }
    }

    async fn connect(&mut self) -> Result<Connection, Error> {
        if let Some(connection) = &self.connection
            && connection.ended().is_none()
        {
            return Ok(connection.clone());
        }
        let broker = self.cluster.coordinator(CoordinatorKind::Group, &self.group).await?;
        let connection = self.cluster.dial(broker).await?;
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    fn group_id(&self) -> GroupId {
        GroupId(text(&self.group))
    }
}

fn version<R: Api>(connection: &Connection) -> Result<i16, net::Error> {
    net::negotiate::<R>(connection.versions(), R::OURS)
}

fn text(text: &Arc<str>) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

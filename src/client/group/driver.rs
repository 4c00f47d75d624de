//! Drives a member: one request at a time, on a connection to the coordinator of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::StrBytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::api::Api;
use super::super::cluster::{Cluster, CoordinatorKind, Node, string};
use super::super::code::ErrorCode;
use super::super::error::{Error, Subject};
use super::machine::{Change, JoinReply, Machine, State, Then};
use super::stay::{Handle, Member, Ties, connect, live, ties};
use super::{Assign, Election, GroupEvent, GroupSettings};
use crate::net::{self, Connection};

/// What the coordinator may need beyond the rebalance timeout to answer a JoinGroup (`JoinGroupRequest.java`).
const JOIN_EXTRA: Duration = Duration::from_secs(5);
/// How long leaving may take; the session timeout does it otherwise.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// Tries in a row that may fail before it is told.
const QUIET_TRIES: u32 = 3;

/// A membership. Dropping it leaves the group without a word, after the session timeout; [`Membership::leave`] says so.
#[derive(Debug)]
pub struct Membership {
    handle: Handle<GroupEvent>,
    offer: watch::Sender<Offer>,
}

/// What the member says of itself, and how often it was told to join again.
#[derive(Clone, Debug)]
struct Offer {
    rejoins: u64,
    metadata: Vec<Bytes>,
}

impl Membership {
    /// Joins a group, and stays in it over whatever happens until it is left or dropped.
    ///
    /// `metadata` is what the member says of itself under each protocol, in their order; `assign` is called when it is the
    /// leader.
    pub fn join(
        cluster: &Cluster,
        settings: GroupSettings,
        metadata: Vec<Bytes>,
        assign: Assign,
    ) -> Membership {
        let (handle, Ties { events, left }) = ties();
        let (offer, current) = watch::channel(Offer { rejoins: 0, metadata });
        let driver = Driver {
            machine: Machine::new(settings.heartbeat_interval, settings.rejoin),
            cluster: cluster.clone(),
            settings,
            offer: current,
            rejoins: 0,
            assign,
            report: events,
            connection: None,
            failures: 0,
        };
        cluster.seam().spawn(live(driver, left));
        Membership { handle, offer }
    }

    /// The next thing that happens. Safe to drop and call again.
    pub async fn next(&mut self) -> Option<GroupEvent> {
        self.handle.next().await
    }

    /// What the member says of itself from its next join on.
    pub fn set_metadata(&self, metadata: Vec<Bytes>) {
        self.offer.send_modify(|offer| offer.metadata = metadata);
    }

    /// Joins the next generation with new words, whether the coordinator has asked for it or not.
    pub fn rejoin(&self, metadata: Vec<Bytes>) {
        self.offer.send_modify(|offer| *offer = Offer { rejoins: offer.rejoins + 1, metadata });
    }

    /// Leaves the group, so that the others need not wait for the session timeout.
    pub async fn leave(self) {
        self.handle.leave().await;
    }
}

struct Driver {
    machine: Machine,
    cluster: Cluster,
    settings: GroupSettings,
    offer: watch::Receiver<Offer>,
    /// How many of the owner's wishes to join again are done.
    rejoins: u64,
    assign: Assign,
    report: mpsc::Sender<GroupEvent>,
    connection: Option<Connection>,
    failures: u32,
}

impl Member for Driver {
    async fn stay(&mut self) {
        while !self.report.is_closed() {
            let (event, then) = match self.step().await {
                Ok((event, then)) => (event, then),
                Err(error) => {
                    self.connection = None;
                    (Some(GroupEvent::Trouble(error)), self.machine.disconnected())
                }
            };
            if let Some(event) = event.filter(|event| self.is_worth_telling(event))
                && self.report.send(event).await.is_err()
            {
                return;
            }
            match then {
                Then::Go => self.failures = 0,
                Then::Backoff => self.back_off().await,
                Then::FindCoordinator => {
                    self.connection = None;
                    self.back_off().await;
                }
            }
        }
    }

    async fn leave(&mut self) {
        let member_id = self.machine.member_id().clone();
        self.connection = None;
        // A static member keeps its place for whoever comes back under its name.
        if member_id.is_empty() || self.settings.group_instance_id.is_some() {
            return;
        }
        let group = self.settings.group_id.clone();
        let build = |version| {
            let request = LeaveGroupRequest::default().with_group_id(GroupId(string(&group)));
            match version {
                3.. => {
                    request.with_members(vec![MemberIdentity::default().with_member_id(string(&member_id))])
                }
                _ => request.with_member_id(string(&member_id)),
            }
        };
        let node = Node::Coordinator(CoordinatorKind::Group, group.clone());
        // Whether it worked or not, there is nothing left to do.
        let _ = timeout(
            LEAVE_MAX,
            self.cluster.call_with::<LeaveGroupRequest>(node, Subject::Group(group.clone()), build),
        )
        .await;
    }
}

impl Driver {
    /// A coordinator that moves or loads is no news before it has taken a few tries.
    fn is_worth_telling(&self, event: &GroupEvent) -> bool {
        match event {
            GroupEvent::Trouble(error) => self.failures >= QUIET_TRIES || !error.is_retriable(),
            _ => true,
        }
    }

    async fn back_off(&mut self) {
        let backoff = self.cluster.settings().retry_backoff;
        sleep(backoff.delay(self.failures, self.cluster.seam().random())).await;
        self.failures = self.failures.saturating_add(1);
    }

    async fn step(&mut self) -> Result<(Option<GroupEvent>, Then), Error> {
        match self.machine.state.clone() {
            State::Outside { member_id } => self.join(&member_id).await,
            State::Syncing { generation, member_id, protocol, members } => {
                self.sync(generation, member_id, protocol, members).await
            }
            State::Stable { generation, member_id, heartbeat_at, .. } => {
                let done = self.rejoins;
                let told = async { self.offer.wait_for(|offer| offer.rejoins > done).await.is_ok() };
                tokio::select! {
                    biased;
                    true = told => {
                        self.machine.rejoin();
                        Ok((None, Then::Go))
                    }
                    () = sleep_until(heartbeat_at) => self.beat(generation, &member_id).await,
                }
            }
        }
    }

    async fn join(&mut self, member_id: &Arc<str>) -> Result<(Option<GroupEvent>, Then), Error> {
        let Offer { rejoins, metadata } = self.offer.borrow_and_update().clone();
        self.rejoins = rejoins;
        let protocols = self.settings.protocols.iter().zip(metadata).map(|(name, metadata)| {
            JoinGroupRequestProtocol::default().with_name(string(name)).with_metadata(metadata)
        });
        let request = JoinGroupRequest::default()
            .with_group_id(self.group_id())
            .with_session_timeout_ms(millis(self.settings.session_timeout))
            .with_rebalance_timeout_ms(millis(self.settings.rebalance_timeout))
            .with_member_id(string(member_id))
            .with_protocol_type(string(&self.settings.protocol_type))
            .with_protocols(protocols.collect());
        let instance = self.instance();
        let build = |request: &JoinGroupRequest, version| match version {
            5.. => request.clone().with_group_instance_id(instance.clone()),
            _ => request.clone(),
        };
        let limit = self.settings.rebalance_timeout.max(self.settings.session_timeout) + JOIN_EXTRA;
        let (response, _) = self.ask(&request, build, limit).await?;
        let (change, then) = self.machine.joined(join_reply(&response));
        Ok((self.event::<JoinGroupRequest>(change), then))
    }

    async fn sync(
        &mut self,
        generation: i32,
        member_id: Arc<str>,
        protocol: Arc<str>,
        members: Option<Vec<(Arc<str>, Bytes)>>,
    ) -> Result<(Option<GroupEvent>, Then), Error> {
        let sent = Instant::now();
        let assignments = members
            .map(|members| (self.assign)(&Election { generation, protocol: &protocol, members: &members }));
        let assignments = assignments.unwrap_or_default();
        let assignments = assignments.into_iter().map(|(member, assignment)| {
            SyncGroupRequestAssignment::default().with_member_id(string(&member)).with_assignment(assignment)
        });
        let request = SyncGroupRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id(generation)
            .with_member_id(string(&member_id))
            .with_assignments(assignments.collect());
        let protocol_type = string(&self.settings.protocol_type);
        let (protocol_name, instance) = (string(&protocol), self.instance());
        let limit = self.settings.rebalance_timeout.max(self.settings.session_timeout) + JOIN_EXTRA;
        let build = |request: &SyncGroupRequest, version| {
            let request = request.clone();
            let request =
                if version >= 3 { request.with_group_instance_id(instance.clone()) } else { request };
            match version {
                5.. => request
                    .with_protocol_type(Some(protocol_type.clone()))
                    .with_protocol_name(Some(protocol_name.clone())),
                _ => request,
            }
        };
        let (response, _) = self.ask(&request, build, limit).await?;
        let code = ErrorCode(response.error_code);
        let (change, then) = self.machine.synced(code, sent);
        let event = match change {
            Change::Joined(role) => {
                let assignment = response.assignment;
                Some(GroupEvent::Joined { generation, member_id, protocol, role, assignment, sent })
            }
            change => self.event::<SyncGroupRequest>(change),
        };
        Ok((event, then))
    }

    async fn beat(
        &mut self,
        generation: i32,
        member_id: &Arc<str>,
    ) -> Result<(Option<GroupEvent>, Then), Error> {
        let request = HeartbeatRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id(generation)
            .with_member_id(string(member_id));
        let (sent, instance) = (Instant::now(), self.instance());
        let build = |request: &HeartbeatRequest, version| match version {
            3.. => request.clone().with_group_instance_id(instance.clone()),
            _ => request.clone(),
        };
        let limit = self.patience();
        let (response, _) = self.ask(&request, build, limit).await?;
        let (change, then) = self.machine.heartbeat(ErrorCode(response.error_code), sent);
        let event = match change {
            Change::Heard => Some(GroupEvent::Heard { sent }),
            change => self.event::<HeartbeatRequest>(change),
        };
        Ok((event, then))
    }

    /// One request to the coordinator, connecting to it first when needed.
    async fn ask<R: Api>(
        &mut self,
        request: &R,
        build: impl Fn(&R, i16) -> R,
        limit: Duration,
    ) -> Result<(R::Response, i16), Error> {
        let connection = match &self.connection {
            Some(connection) => connection.clone(),
            None => self.connect().await?,
        };
        let failed = |source| self.cluster.connection_error(source);
        let version = net::negotiate::<R>(connection.versions(), R::OURS).map_err(failed)?;
        let response = connection.call_within(&build(request, version), version, limit).await;
        Ok((response.map_err(failed)?, version))
    }

    /// A coordinator that is silent for a quarter of a session is left for its successor while there is time.
    fn patience(&self) -> Duration {
        (self.settings.session_timeout / 4).min(self.cluster.settings().net.request_timeout)
    }

    async fn connect(&mut self) -> Result<Connection, Error> {
        let connection = connect(&self.cluster, &self.settings.group_id, self.patience()).await?;
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    fn event<R: Api>(&self, change: Change) -> Option<GroupEvent> {
        match change {
            Change::Nothing | Change::Joined(_) | Change::Heard => None,
            Change::Rebalancing => Some(GroupEvent::Rebalancing),
            Change::Lost(reason) => Some(GroupEvent::Lost { reason }),
            Change::Refused(code) => {
                let broker = self.connection.as_ref()?.versions().broker().clone();
                let subject = Subject::Group(self.settings.group_id.clone());
                Some(GroupEvent::Trouble(self.cluster.refused::<R>(broker, subject, code, None)))
            }
        }
    }

    fn instance(&self) -> Option<StrBytes> {
        self.settings.group_instance_id.as_ref().map(string)
    }

    fn group_id(&self) -> GroupId {
        GroupId(string(&self.settings.group_id))
    }
}

fn join_reply(response: &JoinGroupResponse) -> JoinReply {
    let text = |text: &StrBytes| Arc::<str>::from(text.as_str());
    let members = response.members.iter();
    // A static leader that came back is to leave the assignment as it is (KIP-814).
    let leader = if response.skip_assignment { Arc::from("") } else { text(&response.leader) };
    JoinReply {
        code: ErrorCode(response.error_code),
        generation: response.generation_id,
        member_id: text(&response.member_id),
        leader,
        protocol: response.protocol_name.as_ref().map_or_else(|| Arc::from(""), text),
        members: members.map(|member| (text(&member.member_id), member.metadata.clone())).collect(),
    }
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

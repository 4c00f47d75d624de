//! One group under the classic protocol (`ClassicGroup`, KIP-62, KIP-345, KIP-394), as a pure machine.
//!
//! ```text
//! Empty ──join──► PreparingRebalance ──all joined, or time is over──► CompletingRebalance ──leader's sync──► Stable
//!   ▲                     ▲    └── nobody joined ──► Empty                        │                            │
//!   └── last one leaves   └──────────── a member joins, changes, leaves or fails ─┴────────────────────────────┘
//! ```
//! Replies that become due are left in `out` under the id of their wait; whoever drives the machine sends them.

use std::collections::BTreeMap;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{JoinGroupResponse, SyncGroupResponse};
use kafka_protocol::protocol::StrBytes;

use super::group_offsets::Offsets;
use crate::broker::wire::WaitId;

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No members; perhaps offsets.
    Empty,
    /// Waits for its members to join, until `deadline_ms`; `is_first` while a new group waits for company.
    Preparing { deadline_ms: i64, is_first: bool },
    /// Waits for the leader's assignment, until `deadline_ms`.
    Completing { deadline_ms: i64 },
    /// Everyone has an assignment.
    Stable,
}

impl Phase {
    /// The name that clients see.
    pub(super) fn name(self) -> &'static str {
        match self {
            Phase::Empty => "Empty",
            Phase::Preparing { .. } => "PreparingRebalance",
            Phase::Completing { .. } => "CompletingRebalance",
            Phase::Stable => "Stable",
        }
    }
}

/// A reply that is due.
#[derive(Clone, Debug)]
pub(super) enum Due {
    Join(JoinGroupResponse),
    Sync(SyncGroupResponse),
}

/// A member.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) instance_id: Option<StrBytes>,
    pub(super) client_id: StrBytes,
    pub(super) session_timeout_ms: i64,
    pub(super) rebalance_timeout_ms: i64,
    pub(super) protocols: Vec<(StrBytes, Bytes)>,
    pub(super) assignment: Bytes,
    session_deadline_ms: i64,
    joins: Option<WaitId>,
    syncs: Option<WaitId>,
}

/// What a JoinGroup asks, its member id settled.
#[derive(Clone, Debug)]
pub(super) struct Join {
    pub(super) member_id: StrBytes,
    pub(super) instance_id: Option<StrBytes>,
    pub(super) client_id: StrBytes,
    pub(super) session_timeout_ms: i64,
    pub(super) rebalance_timeout_ms: i64,
    pub(super) protocol_type: StrBytes,
    pub(super) protocols: Vec<(StrBytes, Bytes)>,
}

/// A group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) phase: Phase,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<StrBytes>,
    pub(super) protocol: Option<StrBytes>,
    pub(super) leader: Option<StrBytes>,
    pub(super) members: BTreeMap<StrBytes, Member>,
    pub(super) offsets: Offsets,
    /// Ids that were given out and not yet used to join, with the end of their time (KIP-394).
    pending: BTreeMap<StrBytes, i64>,
    /// Member ids of static members (KIP-345).
    instances: BTreeMap<StrBytes, StrBytes>,
    out: Vec<(WaitId, Due)>,
}

impl Default for Group {
    fn default() -> Group {
        Group {
            phase: Phase::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            offsets: Offsets::default(),
            pending: BTreeMap::new(),
            instances: BTreeMap::new(),
            out: Vec::new(),
        }
    }
}

impl Group {
    /// Replies that have become due.
    pub(super) fn take_due(&mut self) -> Vec<(WaitId, Due)> {
        std::mem::take(&mut self.out)
    }

    /// Whether a member with these protocols fits to the others.
    pub(super) fn accepts(&self, protocol_type: &StrBytes, protocols: &[(StrBytes, Bytes)]) -> bool {
        if protocol_type.is_empty() || protocols.is_empty() {
            return false;
        }
        self.members.is_empty()
            || self.protocol_type.as_ref() == Some(protocol_type)
                && protocols.iter().any(|(name, _)| self.members.values().all(|member| member.supports(name)))
    }

    /// Keeps an id that was given out, until its owner joins with it.
    pub(super) fn expect(&mut self, member_id: StrBytes, deadline_ms: i64) {
        self.pending.insert(member_id, deadline_ms);
    }

    /// Whether this id was given out and not used yet.
    pub(super) fn is_expected(&self, member_id: &StrBytes) -> bool {
        self.pending.contains_key(member_id)
    }

    /// The id of a static member.
    pub(super) fn static_member(&self, instance_id: &StrBytes) -> Option<&StrBytes> {
        self.instances.get(instance_id)
    }

    /// Whether this id may act: known, and not replaced by a newer owner of its instance id.
    pub(super) fn check_member(
        &self,
        id: &StrBytes,
        instance: Option<&StrBytes>,
    ) -> Result<(), ResponseError> {
        if let Some(instance) = instance {
            return match self.instances.get(instance) {
                None => Err(ResponseError::UnknownMemberId),
                Some(owner) if owner != id => Err(ResponseError::FencedInstanceId),
                Some(_) => Ok(()),
            };
        }
        if self.members.contains_key(id) { Ok(()) } else { Err(ResponseError::UnknownMemberId) }
    }

    /// A member joins for the first time, or under a pending id. The reply comes under `wait`.
    pub(super) fn join_new(&mut self, join: Join, wait: WaitId, initial_delay_ms: i64, now_ms: i64) {
        self.pending.remove(&join.member_id);
        if self.members.is_empty() {
            self.protocol_type = Some(join.protocol_type.clone());
        }
        if let Some(instance) = &join.instance_id {
            self.instances.insert(instance.clone(), join.member_id.clone());
        }
        let id = join.member_id.clone();
        self.members.insert(id.clone(), Member::new(join, wait, now_ms));
        self.leader.get_or_insert(id);
        self.rebalance(initial_delay_ms, now_ms);
        self.complete_join_if_all_joined(now_ms);
    }

    /// A member that is known joins again.
    pub(super) fn join_again(&mut self, join: Join, wait: WaitId, now_ms: i64) {
        let is_leader = self.leader.as_ref() == Some(&join.member_id);
        let Some(member) = self.members.get_mut(&join.member_id) else { return };
        let same = member.protocols == join.protocols;
        let settled = match self.phase {
            Phase::Completing { .. } => same,
            Phase::Stable => same && !is_leader,
            Phase::Empty | Phase::Preparing { .. } => false,
        };
        member.session_deadline_ms = now_ms + member.session_timeout_ms;
        if settled {
            let reply = self.join_reply(&join.member_id);
            self.out.push((wait, Due::Join(reply)));
            return;
        }
        if let Some(stale) = member.update(join, wait) {
            self.out.push((stale, Due::Join(join_error(ResponseError::RebalanceInProgress))));
        }
        self.rebalance(0, now_ms);
        self.complete_join_if_all_joined(now_ms);
    }

    /// A static member comes back under a new id: the old one is fenced, its assignment stays with the instance.
    pub(super) fn join_as_static(&mut self, join: Join, old: &StrBytes, wait: WaitId, now_ms: i64) {
        let Some(mut member) = self.members.remove(old) else { return };
        let fenced = [
            member.joins.take().map(|wait| (wait, Due::Join(join_error(ResponseError::FencedInstanceId)))),
            member.syncs.take().map(|wait| (wait, Due::Sync(sync_error(ResponseError::FencedInstanceId)))),
        ];
        self.out.extend(fenced.into_iter().flatten());
        let id = join.member_id.clone();
        if let Some(instance) = &join.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        if self.leader.as_ref() == Some(old) {
            self.leader = Some(id.clone());
        }
        let mut replaced = Member::new(join, wait, now_ms);
        replaced.assignment = std::mem::take(&mut member.assignment);
        self.members.insert(id.clone(), replaced);
        // `GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin`: whatever else it says of itself.
        if self.phase == Phase::Stable && self.select_protocol() == self.protocol {
            if let Some(member) = self.members.get_mut(&id) {
                member.joins = None;
            }
            let mut reply = self.join_reply(&id);
            reply.skip_assignment = self.leader.as_ref() == Some(&id);
            self.out.push((wait, Due::Join(reply)));
            return;
        }
        self.rebalance(0, now_ms);
        self.complete_join_if_all_joined(now_ms);
    }

    /// SyncGroup of a member that was checked. The reply comes under `wait`.
    pub(super) fn sync(
        &mut self,
        member_id: &StrBytes,
        assignments: impl IntoIterator<Item = (StrBytes, Bytes)>,
        wait: WaitId,
        now_ms: i64,
    ) {
        let is_leader = self.leader.as_ref() == Some(member_id);
        self.touch(member_id, now_ms);
        match self.phase {
            Phase::Empty => self.out.push((wait, Due::Sync(sync_error(ResponseError::UnknownMemberId)))),
            Phase::Preparing { .. } => {
                self.out.push((wait, Due::Sync(sync_error(ResponseError::RebalanceInProgress))));
            }
            Phase::Stable => {
                let reply = self.sync_reply(member_id);
                self.out.push((wait, Due::Sync(reply)));
            }
            Phase::Completing { .. } => {
                if let Some(member) = self.members.get_mut(member_id) {
                    member.syncs = Some(wait);
                }
                if is_leader {
                    self.assign(assignments.into_iter().collect(), now_ms);
                }
            }
        }
    }

    /// Heartbeat of a member that was checked.
    pub(super) fn heartbeat(&mut self, member_id: &StrBytes, now_ms: i64) -> Result<(), ResponseError> {
        self.touch(member_id, now_ms);
        match self.phase {
            Phase::Empty => Err(ResponseError::UnknownMemberId),
            Phase::Preparing { .. } => Err(ResponseError::RebalanceInProgress),
            Phase::Completing { .. } | Phase::Stable => Ok(()),
        }
    }

    /// A member leaves; whether it was known.
    pub(super) fn leave(&mut self, member_id: &StrBytes, now_ms: i64) -> bool {
        if self.pending.remove(member_id).is_some() {
            self.complete_join_if_all_joined(now_ms);
            return true;
        }
        let known = self.remove(member_id);
        if known {
            self.after_removal(now_ms);
        }
        known
    }

    /// Renews a member's session.
    pub(super) fn touch(&mut self, member_id: &StrBytes, now_ms: i64) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.session_deadline_ms = now_ms + member.session_timeout_ms;
        }
    }

    /// When [`tick`](Group::tick) has something to do next.
    pub(super) fn due_ms(&self) -> Option<i64> {
        let phase = match self.phase {
            Phase::Preparing { deadline_ms, .. } | Phase::Completing { deadline_ms } => Some(deadline_ms),
            Phase::Empty | Phase::Stable => None,
        };
        let sessions =
            self.members.values().filter(|member| !member.is_waiting()).map(|m| m.session_deadline_ms);
        sessions.chain(self.pending.values().copied()).chain(phase).min()
    }

    /// Ends what has run out of time.
    pub(super) fn tick(&mut self, now_ms: i64) {
        self.pending.retain(|_, deadline_ms| *deadline_ms > now_ms);
        let is_over = |member: &Member| !member.is_waiting() && member.session_deadline_ms <= now_ms;
        let failed: Vec<StrBytes> =
            self.members.iter().filter(|(_, member)| is_over(member)).map(|(id, _)| id.clone()).collect();
        let any_failed = failed.iter().filter(|id| self.remove(id)).count() > 0;
        if any_failed {
            self.after_removal(now_ms);
        }
        match self.phase {
            Phase::Preparing { deadline_ms, .. } if deadline_ms <= now_ms => self.complete_join(now_ms),
            Phase::Completing { deadline_ms } if deadline_ms <= now_ms => {
                let late: Vec<StrBytes> = self
                    .members
                    .iter()
                    .filter(|(_, member)| member.syncs.is_none())
                    .map(|(id, _)| id.clone())
                    .collect();
                late.iter().for_each(|id| {
                    self.remove(id);
                });
                self.after_removal(now_ms);
            }
            _ => self.complete_join_if_all_joined(now_ms),
        }
    }

    fn remove(&mut self, member_id: &StrBytes) -> bool {
        let Some(member) = self.members.remove(member_id) else { return false };
        if let Some(instance) = &member.instance_id
            && self.instances.get(instance) == Some(member_id)
        {
            self.instances.remove(instance);
        }
        if self.leader.as_ref() == Some(member_id) {
            self.leader = self.members.keys().next().cloned();
        }
        let unknown = [
            member.joins.map(|wait| (wait, Due::Join(join_error(ResponseError::UnknownMemberId)))),
            member.syncs.map(|wait| (wait, Due::Sync(sync_error(ResponseError::UnknownMemberId)))),
        ];
        self.out.extend(unknown.into_iter().flatten());
        true
    }

    fn after_removal(&mut self, now_ms: i64) {
        match self.phase {
            Phase::Stable | Phase::Completing { .. } => self.rebalance(0, now_ms),
            Phase::Empty | Phase::Preparing { .. } => {}
        }
        self.complete_join_if_all_joined(now_ms);
    }

    /// Begins a rebalance, unless one is being prepared.
    fn rebalance(&mut self, initial_delay_ms: i64, now_ms: i64) {
        let longest_ms =
            self.members.values().map(|member| member.rebalance_timeout_ms).max().unwrap_or_default();
        match self.phase {
            Phase::Preparing { .. } => return,
            Phase::Empty => {
                let delay_ms = initial_delay_ms.min(longest_ms);
                self.phase = Phase::Preparing { deadline_ms: now_ms + delay_ms, is_first: delay_ms > 0 };
                return;
            }
            Phase::Completing { .. } => {
                let syncing = self.members.values_mut().filter_map(|member| member.syncs.take());
                let refused =
                    syncing.map(|wait| (wait, Due::Sync(sync_error(ResponseError::RebalanceInProgress))));
                self.out.extend(refused.collect::<Vec<_>>());
                self.members.values_mut().for_each(|member| member.assignment = Bytes::new());
            }
            Phase::Stable => {}
        }
        self.phase = Phase::Preparing { deadline_ms: now_ms + longest_ms, is_first: false };
    }

    fn complete_join_if_all_joined(&mut self, now_ms: i64) {
        let all_joined =
            self.pending.is_empty() && self.members.values().all(|member| member.joins.is_some());
        if matches!(self.phase, Phase::Preparing { is_first: false, .. }) && all_joined {
            self.complete_join(now_ms);
        }
    }

    /// The time to join is over: those who joined are the next generation. Static members stay, joined or not.
    fn complete_join(&mut self, now_ms: i64) {
        let is_late = |member: &Member| member.joins.is_none() && member.instance_id.is_none();
        let late: Vec<StrBytes> =
            self.members.iter().filter(|(_, member)| is_late(member)).map(|(id, _)| id.clone()).collect();
        late.iter().for_each(|id| {
            self.remove(id);
        });
        self.generation += 1;
        if self.members.is_empty() {
            self.phase = Phase::Empty;
            (self.protocol, self.leader) = (None, None);
            return;
        }
        self.protocol = self.select_protocol();
        let longest_ms =
            self.members.values().map(|member| member.rebalance_timeout_ms).max().unwrap_or_default();
        self.phase = Phase::Completing { deadline_ms: now_ms + longest_ms };
        let joined: Vec<StrBytes> = self.members.keys().cloned().collect();
        for id in joined {
            let reply = self.join_reply(&id);
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.session_deadline_ms = now_ms + member.session_timeout_ms;
            if let Some(wait) = member.joins.take() {
                self.out.push((wait, Due::Join(reply)));
            }
        }
    }

    /// Each member votes for the first of its protocols that all know; most votes win, then the name.
    fn select_protocol(&self) -> Option<StrBytes> {
        let is_common = |name: &StrBytes| self.members.values().all(|member| member.supports(name));
        let mut votes: BTreeMap<&StrBytes, usize> = BTreeMap::new();
        for member in self.members.values() {
            if let Some((name, _)) = member.protocols.iter().find(|(name, _)| is_common(name)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name.clone())
    }

    fn assign(&mut self, mut assignments: BTreeMap<StrBytes, Bytes>, now_ms: i64) {
        self.phase = Phase::Stable;
        let ids: Vec<StrBytes> = self.members.keys().cloned().collect();
        for id in ids {
            let assignment = assignments.remove(&id).unwrap_or_default();
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.assignment = assignment;
            if let Some(wait) = member.syncs.take() {
                member.session_deadline_ms = now_ms + member.session_timeout_ms;
                let reply = self.sync_reply(&id);
                self.out.push((wait, Due::Sync(reply)));
            }
        }
    }

    fn join_reply(&self, member_id: &StrBytes) -> JoinGroupResponse {
        let leader = self.leader.clone().unwrap_or_default();
        let members = if leader == *member_id { self.metadata() } else { Vec::new() };
        JoinGroupResponse::default()
            .with_generation_id(self.generation)
            .with_protocol_type(self.protocol_type.clone())
            .with_protocol_name(Some(self.protocol.clone().unwrap_or_default()))
            .with_leader(leader)
            .with_member_id(member_id.clone())
            .with_members(members)
    }

    fn metadata(&self) -> Vec<JoinGroupResponseMember> {
        let described = self.members.iter().map(|(id, member)| {
            JoinGroupResponseMember::default()
                .with_member_id(id.clone())
                .with_group_instance_id(member.instance_id.clone())
                .with_metadata(member.metadata(self.protocol.as_ref()))
        });
        described.collect()
    }

    fn sync_reply(&self, member_id: &StrBytes) -> SyncGroupResponse {
        let assignment = self.members.get(member_id).map(|member| member.assignment.clone());
        SyncGroupResponse::default()
            .with_protocol_type(self.protocol_type.clone())
            .with_protocol_name(self.protocol.clone())
            .with_assignment(assignment.unwrap_or_default())
    }
}

impl Member {
    fn new(join: Join, wait: WaitId, now_ms: i64) -> Member {
        Member {
            instance_id: join.instance_id,
            client_id: join.client_id,
            session_timeout_ms: join.session_timeout_ms,
            rebalance_timeout_ms: join.rebalance_timeout_ms,
            protocols: join.protocols,
            assignment: Bytes::new(),
            session_deadline_ms: now_ms + join.session_timeout_ms,
            joins: Some(wait),
            syncs: None,
        }
    }

    /// Takes a new join over; gives the wait of an earlier one that was still open.
    fn update(&mut self, join: Join, wait: WaitId) -> Option<WaitId> {
        self.session_timeout_ms = join.session_timeout_ms;
        self.rebalance_timeout_ms = join.rebalance_timeout_ms;
        self.protocols = join.protocols;
        self.joins.replace(wait)
    }

    fn supports(&self, name: &StrBytes) -> bool {
        self.protocols.iter().any(|(known, _)| known == name)
    }

    fn is_waiting(&self) -> bool {
        self.joins.is_some() || self.syncs.is_some()
    }

    /// What it told about itself under the chosen protocol.
    pub(super) fn metadata(&self, protocol: Option<&StrBytes>) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| Some(name) == protocol);
        found.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
    }
}

pub(super) fn join_error(error: ResponseError) -> JoinGroupResponse {
    JoinGroupResponse::default()
        .with_error_code(error.code())
        .with_generation_id(-1)
        .with_protocol_name(Some(StrBytes::default()))
}

pub(super) fn sync_error(error: ResponseError) -> SyncGroupResponse {
    SyncGroupResponse::default().with_error_code(error.code())
}

//! The states of a member, without a connection.
//!
//! ```text
//!   Outside ──JoinGroup──► Syncing ──SyncGroup──► Stable ──Heartbeat──┐
//!      ▲ ▲                    │                     │  ▲               │
//!      │ └── rebalance: ──────┴─────────────────────┘  └───── heard ───┘
//!      │     same member id
//!      └──── UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID: without an id; ILLEGAL_GENERATION: with it. Either is a loss
//! ```
//! A member that joins again only when it is told stays Stable through REBALANCE_IN_PROGRESS and goes on beating: the
//! coordinator counts it as alive until the rebalance timeout.
//!
//! The codes are those of `AbstractCoordinator.java`. A coordinator that moved, loads, or cannot be reached changes no
//! state: it keeps the members of its group in its log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::super::code::ErrorCode;
use super::Rejoin;

/// Why we are no member any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// The coordinator gave us up: it had not heard of us for the session timeout.
    GivenUp,
    /// A newer generation began without us.
    Overtaken,
    /// Another member took our place.
    Fenced,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LostReason::GivenUp => "the coordinator has given this member up",
            LostReason::Overtaken => "a newer generation began without this member",
            LostReason::Fenced => "another member took this one's place",
        })
    }
}

/// What we are in a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The leader, who assigns.
    Leader,
    /// Everybody else.
    Follower,
}

/// A member.
#[derive(Debug)]
pub(super) struct Machine {
    heartbeat_interval: Duration,
    rejoin: Rejoin,
    pub(super) state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not in a generation; the member id is empty until the coordinator gave one.
    Outside { member_id: Arc<str> },
    /// In a generation whose leader has not spoken. The leader knows the members.
    Syncing {
        generation: i32,
        member_id: Arc<str>,
        protocol: Arc<str>,
        members: Option<Vec<(Arc<str>, Bytes)>>,
    },
    /// In a generation; `asked` when the coordinator wants it to join the next one.
    Stable { generation: i32, member_id: Arc<str>, heartbeat_at: Instant, asked: bool },
}

/// A reply to JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JoinReply {
    pub(super) code: ErrorCode,
    pub(super) generation: i32,
    pub(super) member_id: Arc<str>,
    pub(super) leader: Arc<str>,
    pub(super) protocol: Arc<str>,
    pub(super) members: Vec<(Arc<str>, Bytes)>,
}

/// What a reply changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    Joined(Role),
    Heard,
    Rebalancing,
    Lost(LostReason),
    /// To be told, and tried again.
    Refused(ErrorCode),
}

/// When and where the next request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// As the state says.
    Go,
    /// After the back-off.
    Backoff,
    /// After the back-off, to whoever is the coordinator then.
    FindCoordinator,
}

impl Machine {
    pub(super) fn new(heartbeat_interval: Duration, rejoin: Rejoin) -> Machine {
        Machine { heartbeat_interval, rejoin, state: State::Outside { member_id: Arc::from("") } }
    }

    /// The owner has given up what it had to: a member of a generation joins the next one.
    pub(super) fn rejoin(&mut self) {
        if let State::Stable { member_id, .. } = &self.state {
            self.state = State::Outside { member_id: member_id.clone() };
        }
    }

    pub(super) fn member_id(&self) -> &Arc<str> {
        match &self.state {
            State::Outside { member_id }
            | State::Syncing { member_id, .. }
            | State::Stable { member_id, .. } => member_id,
        }
    }

    /// The reply to JoinGroup.
    pub(super) fn joined(&mut self, reply: JoinReply) -> (Change, Then) {
        match reply.code {
            ErrorCode::NONE => {
                let is_leader = reply.leader == reply.member_id;
                self.state = State::Syncing {
                    generation: reply.generation,
                    member_id: reply.member_id,
                    protocol: reply.protocol,
                    members: is_leader.then_some(reply.members),
                };
                (Change::Nothing, Then::Go)
            }
            ErrorCode::MEMBER_ID_REQUIRED if self.member_id().is_empty() => {
                self.state = State::Outside { member_id: reply.member_id };
                (Change::Nothing, Then::Go)
            }
            code => self.refused(code),
        }
    }

    /// The reply to SyncGroup.
    pub(super) fn synced(&mut self, code: ErrorCode, now: Instant) -> (Change, Then) {
        let State::Syncing { generation, member_id, members, .. } = &self.state else {
            return (Change::Nothing, Then::Go);
        };
        if code != ErrorCode::NONE {
            return self.refused(code);
        }
        let role = if members.is_some() { Role::Leader } else { Role::Follower };
        let heartbeat_at = now + self.heartbeat_interval;
        let (generation, member_id) = (*generation, member_id.clone());
        self.state = State::Stable { generation, member_id, heartbeat_at, asked: false };
        (Change::Joined(role), Then::Go)
    }

    /// The reply to a Heartbeat that was sent at `sent`.
    pub(super) fn heartbeat(&mut self, code: ErrorCode, sent: Instant) -> (Change, Then) {
        let interval = self.heartbeat_interval;
        if let State::Stable { heartbeat_at, .. } = &mut self.state {
            *heartbeat_at = sent + interval;
        }
        if code == ErrorCode::NONE { (Change::Heard, Then::Go) } else { self.refused(code) }
    }

    /// The connection to the coordinator failed.
    pub(super) fn disconnected(&mut self) -> Then {
        // Whether a SyncGroup arrived is unknown; joining again asks for what it would have brought.
        if let State::Syncing { member_id, .. } = &self.state {
            self.state = State::Outside { member_id: member_id.clone() };
        }
        Then::FindCoordinator
    }

    fn refused(&mut self, code: ErrorCode) -> (Change, Then) {
        let was_member = !matches!(self.state, State::Outside { .. });
        match code {
            ErrorCode::REBALANCE_IN_PROGRESS if self.rejoin == Rejoin::WhenTold => self.asked_to_rejoin(),
            ErrorCode::REBALANCE_IN_PROGRESS => {
                self.leave_for(self.member_id().clone());
                let change = if was_member { Change::Rebalancing } else { Change::Nothing };
                (change, if was_member { Then::Go } else { Then::Backoff })
            }
            ErrorCode::ILLEGAL_GENERATION => {
                self.leave_for(self.member_id().clone());
                (Change::Lost(LostReason::Overtaken), if was_member { Then::Go } else { Then::Backoff })
            }
            ErrorCode::UNKNOWN_MEMBER_ID => self.lost(LostReason::GivenUp),
            // Whoever hears of it has a moment to let go: another join would take the place back.
            ErrorCode::FENCED_INSTANCE_ID => (self.lost(LostReason::Fenced).0, Then::Backoff),
            ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE => {
                (Change::Refused(code), self.disconnected())
            }
            code => (Change::Refused(code), Then::Backoff),
        }
    }

    /// A generation that has not begun is joined anew at once; in one that has, the owner says when.
    fn asked_to_rejoin(&mut self) -> (Change, Then) {
        match &mut self.state {
            State::Stable { asked, .. } => {
                let is_news = !std::mem::replace(asked, true);
                (if is_news { Change::Rebalancing } else { Change::Heard }, Then::Go)
            }
            State::Syncing { member_id, .. } => {
                self.state = State::Outside { member_id: member_id.clone() };
                (Change::Nothing, Then::Go)
            }
            State::Outside { .. } => (Change::Nothing, Then::Backoff),
        }
    }

    fn lost(&mut self, reason: LostReason) -> (Change, Then) {
        let had_id = !self.member_id().is_empty();
        self.leave_for(Arc::from(""));
        // Without an id, we were nobody whom the coordinator could give up.
        if had_id { (Change::Lost(reason), Then::Go) } else { (Change::Nothing, Then::Backoff) }
    }

    fn leave_for(&mut self, member_id: Arc<str>) {
        self.state = State::Outside { member_id };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(3);

    fn outside(member_id: &str) -> State {
        State::Outside { member_id: member_id.into() }
    }

    fn reply(code: ErrorCode, member_id: &str) -> JoinReply {
        let members = vec![("m".into(), Bytes::from_static(b"x"))];
        JoinReply {
            code,
            generation: 7,
            member_id: member_id.into(),
            leader: "m".into(),
            protocol: "p".into(),
            members,
        }
    }

    fn stable(now: Instant) -> Machine {
        let mut machine = Machine::new(INTERVAL, Rejoin::AtOnce);
        assert_eq!(machine.joined(reply(ErrorCode::MEMBER_ID_REQUIRED, "m")), (Change::Nothing, Then::Go));
        assert_eq!(machine.state, outside("m"));
        assert_eq!(machine.joined(reply(ErrorCode::NONE, "m")), (Change::Nothing, Then::Go));
        assert_eq!(machine.synced(ErrorCode::NONE, now), (Change::Joined(Role::Leader), Then::Go));
        machine
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_joins_syncs_and_beats() {
        let now = Instant::now();
        let mut machine = stable(now);
        let at =
            |heartbeat_at| State::Stable { generation: 7, member_id: "m".into(), heartbeat_at, asked: false };
        assert_eq!(machine.state, at(now + INTERVAL));
        let sent = now + INTERVAL;
        assert_eq!(machine.heartbeat(ErrorCode::NONE, sent), (Change::Heard, Then::Go));
        assert_eq!(machine.state, at(sent + INTERVAL));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_not_the_leader_follows_and_knows_no_members() {
        let mut machine = Machine::new(INTERVAL, Rejoin::AtOnce);
        machine.joined(reply(ErrorCode::NONE, "n"));
        assert!(matches!(&machine.state, State::Syncing { members: None, .. }));
        assert_eq!(machine.synced(ErrorCode::NONE, Instant::now()).0, Change::Joined(Role::Follower));
    }

    #[tokio::test(start_paused = true)]
    async fn each_code_of_a_heartbeat_leads_where_kafka_says() {
        let now = Instant::now();
        for (code, change, then, state) in [
            (27, Change::Rebalancing, Then::Go, Some(outside("m"))),
            (22, Change::Lost(LostReason::Overtaken), Then::Go, Some(outside("m"))),
            (25, Change::Lost(LostReason::GivenUp), Then::Go, Some(outside(""))),
            (82, Change::Lost(LostReason::Fenced), Then::Backoff, Some(outside(""))),
            (14, Change::Refused(ErrorCode(14)), Then::Backoff, None),
            (15, Change::Refused(ErrorCode(15)), Then::FindCoordinator, None),
            (16, Change::Refused(ErrorCode(16)), Then::FindCoordinator, None),
            (30, Change::Refused(ErrorCode(30)), Then::Backoff, None),
        ] {
            let mut machine = stable(now);
            let before = machine.state.clone();
            assert_eq!(machine.heartbeat(ErrorCode(code), now), (change, then), "{code}");
            assert_eq!(machine.state, state.unwrap_or(before), "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_code_of_a_join_leads_where_kafka_says() {
        for (id, code, change, then, after) in [
            ("", 25, Change::Nothing, Then::Backoff, ""),
            ("m", 25, Change::Lost(LostReason::GivenUp), Then::Go, ""),
            ("m", 79, Change::Refused(ErrorCode(79)), Then::Backoff, "m"),
            ("m", 27, Change::Nothing, Then::Backoff, "m"),
            ("", 23, Change::Refused(ErrorCode(23)), Then::Backoff, ""),
            ("", 16, Change::Refused(ErrorCode(16)), Then::FindCoordinator, ""),
            ("", 999, Change::Refused(ErrorCode(999)), Then::Backoff, ""),
        ] {
            let mut machine =
                Machine { heartbeat_interval: INTERVAL, rejoin: Rejoin::AtOnce, state: outside(id) };
            assert_eq!(machine.joined(reply(ErrorCode(code), "new")), (change, then), "{id} {code}");
            assert_eq!(machine.state, outside(after), "{id} {code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_joins_when_told_beats_through_a_rebalance() {
        let now = Instant::now();
        let mut machine = stable(now);
        machine.rejoin = Rejoin::WhenTold;
        let rebalance = ErrorCode::REBALANCE_IN_PROGRESS;
        assert_eq!(machine.heartbeat(rebalance, now), (Change::Rebalancing, Then::Go));
        assert_eq!(machine.heartbeat(rebalance, now), (Change::Heard, Then::Go), "told once");
        assert!(matches!(machine.state, State::Stable { asked: true, .. }));
        machine.rejoin();
        assert_eq!(machine.state, outside("m"));
        machine.joined(reply(ErrorCode::NONE, "m"));
        assert_eq!(machine.synced(rebalance, now), (Change::Nothing, Then::Go), "nothing was given yet");
        assert_eq!(machine.state, outside("m"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sync_that_is_refused_or_lost_joins_again() {
        for code in [27, 22] {
            let mut machine = Machine::new(INTERVAL, Rejoin::AtOnce);
            machine.joined(reply(ErrorCode::NONE, "m"));
            machine.synced(ErrorCode(code), Instant::now());
            assert_eq!(machine.state, outside("m"));
        }
        let mut machine = Machine::new(INTERVAL, Rejoin::AtOnce);
        machine.joined(reply(ErrorCode::NONE, "m"));
        assert_eq!(machine.disconnected(), Then::FindCoordinator);
        assert_eq!(machine.state, outside("m"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_connection_keeps_a_stable_member() {
        let mut machine = stable(Instant::now());
        let before = machine.state.clone();
        assert_eq!(machine.disconnected(), Then::FindCoordinator);
        assert_eq!(machine.state, before);
    }
}

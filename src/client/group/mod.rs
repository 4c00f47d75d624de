//! A member of a classic group (KIP-62, KIP-394), for whatever its caller uses the group for; `consumer` is a member of the newer
//! kind (KIP-848), whose coordinator deals partitions out by itself.
//!
//! The machine decides what comes next from what the coordinator answers; the driver sends one request at a time on a
//! connection of its own, because the coordinator holds JoinGroup and SyncGroup until all members have come. What the
//! member says of itself and what a leader gives the members are bytes of the caller.
//!
//! Times are told as the moments at which requests were sent: the coordinator cannot have given the member up before the
//! session timeout has passed since then.

mod consumer;
mod driver;
mod machine;
mod stay;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

pub use consumer::{ByTopicId, ConsumerEvent, ConsumerMembership, ConsumerReport, ConsumerSettings};
pub use driver::Membership;
pub use machine::{LostReason, Role};

use super::error::Error;

/// How to be a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// The group.
    pub group_id: Arc<str>,
    /// The protocol type; members of another one keep us out.
    pub protocol_type: Arc<str>,
    /// `group.instance.id`: a member that comes back under it takes its place again (KIP-345).
    pub group_instance_id: Option<Arc<str>>,
    /// The protocols that we offer, the best first; all members must have one in common.
    pub protocols: Vec<Arc<str>>,
    /// `session.timeout.ms`: silence after which the coordinator gives the member up.
    pub session_timeout: Duration,
    /// `max.poll.interval.ms`: how long the coordinator waits for members to join again.
    pub rebalance_timeout: Duration,
    /// `heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// When it joins again after the coordinator has asked for it.
    pub rejoin: Rejoin,
}

/// When a member joins a rebalance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejoin {
    /// At once.
    AtOnce,
    /// When its owner says so ([`Membership::rejoin`]), who has to give something up first. It beats meanwhile.
    WhenTold,
}

/// What a group's leader is told when it has to assign.
#[derive(Clone, Copy, Debug)]
pub struct Election<'a> {
    /// The generation.
    pub generation: i32,
    /// The protocol that the group has chosen.
    pub protocol: &'a Arc<str>,
    /// The members with what they say of themselves under that protocol.
    pub members: &'a [(Arc<str>, Bytes)],
}

/// What a group's leader does: an assignment for each member.
pub type Assign = Box<dyn FnMut(&Election<'_>) -> Vec<(Arc<str>, Bytes)> + Send>;

/// What happens to a member.
#[derive(Clone, Debug)]
pub enum GroupEvent {
    /// A new generation has begun, and the leader has spoken.
    Joined {
        /// The generation.
        generation: i32,
        /// Our member id.
        member_id: Arc<str>,
        /// The protocol that the group has chosen; empty where the coordinator does not tell.
        protocol: Arc<str>,
        /// Whether we are its leader.
        role: Role,
        /// What the leader gave us; empty for nothing.
        assignment: Bytes,
        /// When the request was sent that brought it.
        sent: Instant,
    },
    /// The coordinator has answered a heartbeat: we are a member still.
    Heard {
        /// When the heartbeat was sent.
        sent: Instant,
    },
    /// Members come or go: we join again, at once or when told ([`Rejoin`]), and keep what we have until the next `Joined`.
    Rebalancing,
    /// We are no member any more, and join anew; others may have been given what we had.
    Lost {
        /// Why.
        reason: LostReason,
    },
    /// A request failed and will be repeated.
    Trouble(Error),
}

//! A member of a classic group (KIP-62, KIP-394), for whatever its caller uses the group for.
//!
//! The machine decides what comes next from what the coordinator answers; the driver sends one request at a time on a
//! connection of its own, because the coordinator holds JoinGroup and SyncGroup until all members have come. What the
//! member says of itself and what a leader gives the members are bytes of the caller.
//!
//! Times are told as the moments at which requests were sent: the coordinator cannot have given the member up before the
//! session timeout has passed since then.

mod driver;
mod machine;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

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
    /// The only protocol that we offer.
    pub protocol: Arc<str>,
    /// `session.timeout.ms`: silence after which the coordinator gives the member up.
    pub session_timeout: Duration,
    /// `max.poll.interval.ms`: how long the coordinator waits for members to join again.
    pub rebalance_timeout: Duration,
    /// `heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
}

/// What a group's leader does: from the generation and the members with their metadata, an assignment for each.
pub type Assign = Box<dyn FnMut(i32, &[(Arc<str>, Bytes)]) -> Vec<(Arc<str>, Bytes)> + Send>;

/// What happens to a member.
#[derive(Clone, Debug)]
pub enum GroupEvent {
    /// A new generation has begun, and the leader has spoken.
    Joined {
        /// The generation.
        generation: i32,
        /// Our member id.
        member_id: Arc<str>,
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
    /// Members come or go: we join again, and keep what we have until the next `Joined`.
    Rebalancing,
    /// We are no member any more, and join anew; others may have been given what we had.
    Lost {
        /// Why.
        reason: LostReason,
    },
    /// A request failed and will be repeated.
    Trouble(Error),
}

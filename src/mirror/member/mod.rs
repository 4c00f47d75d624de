//! A real member of the source's consumer group, as MirrorMaker 1 is one: the group says which partitions this process copies,
//! and holds their positions as its committed offsets.
//!
//! It stands where a flow of MirrorMaker 2 has its lease and its memory on the target: `holder` keeps the membership and says
//! what is ours, `offsets` is the position store whose records are commits. What decides is pure: `protocol` has the words,
//! `assign` and `sticky` deal partitions out when we lead, `ownership` says what a rebalance asks of us.
//!
//! Order of events, for a partition that goes to another member: the holder says so (`ControlEvent::Release`) ─► the flow's
//! owner stops fetching it, drops what was not sent and waits for what is in flight ─► its position is committed ─► the
//! holder joins the next generation. A partition that comes starts at what the group has committed, asked for after it came.

pub mod assign;
mod holder;
mod offsets;
mod ownership;
mod protocol;
mod sticky;

use std::sync::Arc;
use std::time::Duration;

use super::WantedPartitioning;
pub use assign::Strategy;
pub(super) use holder::{Member, MemberWatch};
pub(super) use offsets::{GroupOffsetStore, GroupReader, Partitionings};

/// How to be a member of the source's group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSettings {
    /// `group.id`.
    pub group_id: Arc<str>,
    /// `group.instance.id`.
    pub group_instance_id: Option<Arc<str>>,
    /// `partition.assignment.strategy`, the best first.
    pub strategies: Vec<Strategy>,
    /// `session.timeout.ms`.
    pub session_timeout: Duration,
    /// `max.poll.interval.ms`, which is the rebalance timeout.
    pub rebalance_timeout: Duration,
    /// `heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// `kmirror.partitioning`.
    pub partitioning: WantedPartitioning,
    /// `group.protocol`.
    pub protocol: GroupProtocol,
}

/// `group.protocol`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GroupProtocol {
    /// The members deal partitions out.
    #[default]
    Classic,
    /// The coordinator does (KIP-848).
    Consumer {
        /// `group.remote.assignor`.
        remote_assignor: Option<Arc<str>>,
    },
}

impl MemberSettings {
    /// Kafka's defaults for a group.
    pub fn new(group_id: &str) -> MemberSettings {
        MemberSettings {
            group_id: Arc::from(group_id),
            group_instance_id: None,
            strategies: vec![Strategy::Range, Strategy::CooperativeSticky],
            session_timeout: Duration::from_secs(45),
            rebalance_timeout: Duration::from_secs(300),
            heartbeat_interval: Duration::from_secs(3),
            partitioning: WantedPartitioning::default(),
            protocol: GroupProtocol::default(),
        }
    }

    /// How long partitions that go to another member may take to be brought to their end: the coordinator must hear of us
    /// before the rebalance timeout.
    pub fn give_up_within(&self) -> Duration {
        const SPARED: Duration = Duration::from_secs(5);
        self.rebalance_timeout.saturating_sub(SPARED).max(self.rebalance_timeout / 2)
    }
}

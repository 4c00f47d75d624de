//! The control plane of one flow: who may write it, which topics it has, where each partition starts.
//!
//! One task per flow owns all of this; the flow's owner, which moves the records, hears of it through one channel of
//! [`ControlEvent`]s and answers through one of [`ControlCommand`]s. The order of events is the order of the facts:
//!
//! ```text
//! State(Starting) ─► State(WaitingForMirrorMaker)* ─► State(Paused)* ─► State(Standby)* ─► Granted
//!     ─► (TopicReady | TopicFailed | TopicGone | Discovered)*  ─► Revoked ─► State(Standby) ─► Granted ─► …
//! State(Failed) and State(Stopped) are the last event.
//! ```
//! `Waiting` stands between any two of them, and `Release` wherever the source's group says so (`mirror::member`): there the
//! partitions of this process are those that the group has given it, and only these get starts.
//! Nothing may be written to the target before `Granted` nor after `Revoked`, but for what is on the wire already.
//! Everything that a `TopicReady` said is void after `Revoked`; the next `Granted` says it all again.
//! Rounds are level-triggered: each compares what both clusters say, and the next one repairs what one could not do.

mod hidden;
mod membership;
mod orders;
mod partitions;
mod pause;
mod registry;
mod reign;
mod resolve;
mod round;
mod starts;
mod task;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::Partitioning;
use super::member::MemberWatch;
use super::plan::TargetLimits;
use super::start::StartAt;
use super::state::records::{Gap, Position, ProducerRecord};
use super::state::{PositionStore, TopicPartition};
use super::status::{FlowState, Stopped, SyncStatus, Waiting};
use super::topics::sync::Followed;
use crate::client::produce::Permit;

pub use orders::Orders;
pub use task::{Control, start_control};

/// What the owner of a flow hears from its control task.
#[derive(Debug)]
pub enum ControlEvent {
    /// Where the flow stands. `Running` and `Stopping` are for the owner itself to say.
    State(FlowState),
    /// What is waited for before anything can be copied; `None` when that is over.
    Waiting(Option<Waiting>),
    /// How to look at the membership in the source's group.
    Membership(MemberWatch),
    /// This process writes the flow from now on.
    Granted(Granted),
    /// It no longer does. Stop writing at once, forget all partitions, store nothing more.
    Revoked {
        /// Why.
        reason: String,
    },
    /// These partitions go to another member of the source's group: bring what is in flight to its end, store how far they
    /// are, and copy no more of them until they get a new start.
    Release {
        /// Which, at the source.
        partitions: BTreeSet<TopicPartition>,
        /// How long that may take.
        within: Duration,
        /// To be told when it is done.
        done: oneshot::Sender<Released>,
    },
    /// A topic can be replicated, or something about it has changed.
    TopicReady(TopicReady),
    /// A topic cannot be replicated now; it is tried again. What it said before stands until `TopicGone`.
    TopicFailed {
        /// Source topic.
        topic: Arc<str>,
        /// The whole story.
        reason: String,
        /// When it is tried again, in ms since the epoch; `None` needs a person.
        retry_ms: Option<i64>,
    },
    /// A topic is no longer to be replicated.
    TopicGone {
        /// Source topic.
        topic: Arc<str>,
        /// What was to be copied of it; `None` when it was refused from the first.
        planned: Option<Planned>,
        /// Why: deleted at the source, or no longer selected.
        reason: String,
    },
    /// Settings or ACLs of topics were compared.
    Followed {
        /// Which.
        followed: Followed,
        /// What came of it.
        status: SyncStatus,
    },
    /// A round over all topics is complete: each selected topic has been reported as ready or failed, and each of its
    /// partitions that could be reached has its start.
    Discovered {
        /// Topics selected.
        topics: usize,
        /// Their partitions.
        partitions: usize,
        /// Partitions that have no start yet, because their leader could not be asked.
        pending: usize,
    },
}

/// Partitions were given up.
#[derive(Debug, Default)]
pub struct Released {
    /// Batches of them that may be on the target and are not acknowledged.
    pub in_doubt: usize,
    /// Why their positions could not be stored.
    pub trouble: Option<String>,
}

/// The right to write, with what is remembered.
#[derive(Debug)]
pub struct Granted {
    /// Where to store positions; shared with the control task.
    pub store: PositionStore,
    /// The producer that appended for the flow before, if it is known.
    pub producer: Option<ProducerRecord>,
    /// Gaps on record, for the status.
    pub gaps: Vec<(TopicPartition, Gap)>,
    /// Until when batches may be sent.
    pub permit: Permit,
    /// Our membership, where a group gives partitions out.
    pub(in crate::mirror) member: Option<MemberWatch>,
}

/// A topic that can be replicated. Sent again when partitions are added or get a new start, and when the topic was created
/// anew on either side; it then replaces what was said of the topic before. Where an id has changed, the owner asks for a
/// [`ControlCommand::Restart`] of each partition that it has started, because only it knows how far they are.
#[derive(Clone, Debug)]
pub struct TopicReady {
    /// The topic at the source.
    pub source: TopicRef,
    /// The topic on the target; it has at least as many partitions.
    pub remote: TopicRef,
    /// What the target takes, by the remote topic's settings.
    pub limits: TargetLimits,
    /// Which partitions its records go to.
    pub partitioning: Partitioning,
    /// Partitions whose start was decided just now, by partition. A partition that is not among them goes on as it is,
    /// or waits for a later `TopicReady` when it has no start yet.
    pub starts: BTreeMap<i32, PartitionStart>,
    /// Where a group gives partitions out: the generation in which each of `starts` came.
    pub since: BTreeMap<i32, i32>,
}

/// What was to be copied of a topic, as far as it was ever known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The topic at the source, with the most partitions that it had.
    pub source: TopicRef,
    /// Its name on the target.
    pub remote: Arc<str>,
}

/// A topic of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRef {
    /// Its name.
    pub name: Arc<str>,
    /// Its id; nil when the cluster has none.
    pub id: Uuid,
    /// Number of its partitions.
    pub partitions: i32,
}

/// How one partition starts. Whatever had to be stored first is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionStart {
    /// Fetch from here; a gap is on record already.
    At(StartAt),
    /// Not replicated, with the reason.
    Stopped(Stopped),
}

/// What the owner of a flow tells its control task.
#[derive(Debug)]
pub enum ControlCommand {
    /// Decide anew where a partition starts: its offset is out of range, its log has diverged, or a topic was created
    /// anew. Answered by a `TopicReady` that holds its start, at once or when its leader can be asked.
    Restart {
        /// Which partition, at the source.
        partition: TopicPartition,
        /// How far it is; `None` when that is as it was stored.
        position: Option<Position>,
    },
    /// Look at the topics now: a refresh of the metadata has shown something new.
    Discover,
    /// Everything is drained and stored: give the flow back and end.
    Stop,
    /// End, but brokers may still take what was sent to them: the lease is left to run out, so that nobody else writes
    /// before that.
    StopInDoubt,
}

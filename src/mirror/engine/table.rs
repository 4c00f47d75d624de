//! The rows of the engine's tables: source partitions, target partitions, lanes, and what waits or is on its way.
//!
//! What they hold belongs together by what happens to it, and that is the business of [`super::Engine`] alone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::deal::Family;
use super::mapping::Mapping;
use crate::client::{IsolationLevel, PartitionKey, TargetKey};
use crate::mirror::append::Append;
use crate::mirror::cargo::{Cargo, Part};
use crate::mirror::measure::Traffic;
use crate::mirror::plan::{AbortedFilter, TakenCodecs, TargetLimits};
use crate::mirror::status::{Counters, RewriteReason, Stopped};
use crate::mirror::window::{EntryId, Window};
use crate::record::{Codec, MergeBuilder};

/// A source partition.
pub(super) struct Source {
    pub(super) topic: Arc<str>,
    pub(super) topic_id: Uuid,
    /// The topic's id now; another one when it was created anew and the new log has no start yet.
    pub(super) topic_id_now: Uuid,
    pub(super) partition: i32,
    pub(super) target: TargetKey,
    pub(super) family: Family,
    pub(super) leader: Option<(i32, i32)>,
    pub(super) fetch_generation: u32,
    pub(super) window_generation: u32,
    /// Windows up to this one say nothing of where the partition stands: somebody else has copied it since.
    pub(super) void_generation: u32,
    pub(super) window: Window,
    pub(super) state: SourceState,
    pub(super) filter: Option<AbortedFilter>,
    pub(super) mapping: Mapping,
    pub(super) last_fetched_epoch: i32,
    pub(super) watermarks: Option<Watermarks>,
    pub(super) end_at_start: Option<i64>,
    pub(super) blocked_since_ms: Option<i64>,
    pub(super) replicated_timestamp_ms: Option<i64>,
    /// When it was last seen to have nothing left to copy.
    pub(super) caught_up_ms: Option<i64>,
    /// From its first batch on.
    pub(super) traffic: Option<Box<Traffic>>,
    pub(super) counters: Counters,
    pub(super) failures: u32,
    pub(super) refetches: u32,
    pub(super) retry_at: Option<Duration>,
}

/// Where the log of a source partition begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// High watermark.
    pub high: i64,
    /// Last stable offset; -1 where the broker does not tell.
    pub last_stable: i64,
    /// Log start offset.
    pub log_start: i64,
}

impl Watermarks {
    /// Where what can be read ends.
    pub(super) fn end(self, isolation: IsolationLevel) -> i64 {
        match isolation {
            IsolationLevel::ReadCommitted => self.last_stable,
            IsolationLevel::ReadUncommitted => self.high,
        }
    }
}

impl Source {
    pub(super) fn traffic(&mut self) -> &mut Traffic {
        self.traffic.get_or_insert_default()
    }

    /// For how long the oldest record has waited that is not on the target. Records beyond the position are no older than
    /// the last one copied, and have come since nothing was left, whichever is later.
    pub(super) fn lag_ms(&self, position: i64, isolation: IsolationLevel, now_ms: i64) -> Option<i64> {
        if self.watermarks?.end(isolation) <= position {
            return Some(0);
        }
        let copied_ms = self.traffic.as_ref().and_then(|traffic| traffic.last_timestamp_ms());
        copied_ms.max(self.caught_up_ms).map(|since| now_ms.saturating_sub(since).max(0))
    }
}

/// Where a source partition stands.
///
/// ```text
/// Unlocated ──start()──► Waiting ──leader known──► Fetching ──over its cap──► Held ──drained──► Waiting
///     ▲                     ▲  └────── failure, leader moved ──┘  │
///     └── offset not in the log ──────────────────────────────────┤
///                           └──── retry ──── Stopped ◄────────────┘
/// ```
#[derive(Debug)]
pub(super) enum SourceState {
    /// Where to start is not known yet.
    Unlocated,
    /// For a leader, or for a back-off.
    Waiting,
    /// In the session of this broker's lane.
    Fetching(i32),
    /// Left the session because its target cannot take more for now.
    Held,
    /// Will not go on by itself, or not soon.
    Stopped(Stopped),
    /// Somebody else copies it: see [`super::release`].
    Released,
}

/// A target partition.
pub(super) struct Target {
    pub(super) topic: usize,
    pub(super) partition: i32,
    pub(super) limits: TargetLimits,
    /// Which codecs it takes, as far as it has said so.
    pub(super) codecs: TakenCodecs,
    /// A merged batch grows to this; less once the target refused a smaller one than we thought that it takes.
    pub(super) merged_bytes_max: usize,
    pub(super) leader: Option<i32>,
    /// The broker that the batches in flight were sent to.
    pub(super) sent_to: Option<i32>,
    pub(super) append: Option<Append>,
    pub(super) queue: VecDeque<Item>,
    pub(super) queue_bytes: usize,
    pub(super) scheduled: bool,
    pub(super) sources: Vec<PartitionKey>,
    pub(super) stopped: Option<Stopped>,
    pub(super) stops: u32,
    pub(super) resend_at: Option<Duration>,
    /// Since when records wait for it and none is acknowledged, seen once a second: see [`super::delivery`].
    pub(super) waits_since: Option<Duration>,
    pub(super) last_refusal: Option<String>,
}

/// Something that waits to be appended.
pub(super) enum Item {
    Ready(Cargo),
    /// What was dealt out by key, on its way into a larger batch.
    Dealt(Share),
    /// Small batches that become one while they wait.
    Open(Open),
    /// A batch that another thread rewrites; its place is kept.
    Working(Working),
}

pub(super) struct Open {
    pub(super) builder: MergeBuilder,
    pub(super) parts: Vec<Part>,
    pub(super) batches: u32,
    /// Of the batches as they came.
    pub(super) bytes: usize,
}

pub(super) struct Share {
    /// Not compressed.
    pub(super) cargo: Cargo,
    /// The codec that its records are to have.
    pub(super) codec: Codec,
    pub(super) since: Duration,
    /// Jobs below this number had begun before it was here: what comes of them may join it.
    pub(super) jobs_before: u64,
}

pub(super) struct Working {
    pub(super) job: u64,
    pub(super) source: PartitionKey,
    pub(super) generation: u32,
    pub(super) bytes: usize,
    pub(super) kind: WorkingKind,
}

pub(super) enum WorkingKind {
    /// A source batch.
    Batch { entry: EntryId, reason: RewriteReason },
    /// What a target partition gets of a source batch that is dealt out by key.
    Share { entry: EntryId },
    /// A cargo that is not sent as it is: the target refused it as a whole, or it is to be compressed.
    Cargo(Cargo),
    /// Small compressed cargos on their way into one.
    Merge(Vec<Cargo>),
}

#[derive(Default)]
pub(super) struct FetchLaneState {
    pub(super) connected: bool,
    pub(super) paused: bool,
    pub(super) disconnects: u64,
    pub(super) last_error: Option<String>,
    pub(super) throttle: Duration,
}

#[derive(Default)]
pub(super) struct ProduceLaneState {
    pub(super) connection: Option<u64>,
    pub(super) in_flight: usize,
    pub(super) in_flight_bytes: usize,
    /// The last answer, or the first request since there was nothing to answer.
    pub(super) heard_at: Duration,
    /// It keeps others waiting: see [`super::regulate`].
    pub(super) silent: bool,
    pub(super) ready: VecDeque<TargetKey>,
    pub(super) throttled_until: Duration,
    pub(super) disconnects: u64,
    pub(super) last_error: Option<String>,
    pub(super) throttle: Duration,
}

pub(super) struct Request {
    pub(super) broker: i32,
    pub(super) keys: Vec<TargetKey>,
    pub(super) bytes: usize,
    pub(super) sent: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Resend(TargetKey),
    RetryTarget(TargetKey),
    RetrySource(PartitionKey),
    Throttled(i32),
    Linger(TargetKey),
    Shed,
}

//! The words between a flow and its lanes.
//!
//! A fetch lane owns one connection to a source broker, a produce lane one to a target broker. A lane reconnects by
//! itself; a flow tells it what to fetch or send and hears what came of it. Nothing here decides anything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use uuid::Uuid;

use crate::record::{HEADER_BYTES, Magic};

/// A lane, by its owner's number; the id of its broker will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub i32);

/// A source partition in its flow's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey(pub u32);

/// A target partition in its flow's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetKey(pub u32);

/// A partition that a fetch lane is asked to fetch.
#[derive(Clone, Debug)]
pub struct FetchPartition {
    /// Whose events these will be.
    pub key: PartitionKey,
    /// Echoed in each event, so that what an earlier `Add` still brings can be told apart.
    pub generation: u32,
    /// Topic name.
    pub topic: Arc<str>,
    /// Topic id; nil when the cluster has none.
    pub topic_id: Uuid,
    /// Partition index.
    pub partition: i32,
    /// The first offset wanted.
    pub fetch_offset: i64,
    /// Leader epoch of the metadata in use (KIP-320), -1 for none.
    pub current_leader_epoch: i32,
    /// Leader epoch of the last batch that was fetched, -1 for none (KIP-595 divergence check).
    pub last_fetched_epoch: i32,
}

/// What a flow tells a fetch lane.
#[derive(Debug)]
pub enum FetchCommand {
    /// Fetch this partition; replaces an earlier `Add` of the same key.
    Add(FetchPartition),
    /// Stop fetching it; what is on the wire is discarded.
    Remove(PartitionKey),
    /// Read on.
    Resume,
    /// Stop reading from the socket: what is alive already fills the budget.
    Pause,
}

/// What a flow hears from a fetch lane.
#[derive(Debug)]
pub enum FetchEvent {
    /// Connected and negotiated.
    Connected,
    /// Whole batches of one partition, in offset order.
    Fetched(Fetched),
    /// The broker answered this partition with an error; the lane has removed it.
    Failed {
        /// Which partition.
        key: PartitionKey,
        /// Of which `Add`.
        generation: u32,
        /// Kafka's error code.
        code: i16,
        /// Where the logs diverge (epoch, end offset), when the broker says so.
        diverging: Option<(i32, i64)>,
    },
    /// The bytes of a partition are no record batches; the lane has removed it.
    Damaged {
        /// Which partition.
        key: PartitionKey,
        /// Of which `Add`.
        generation: u32,
        /// The offset wanted.
        offset: i64,
        /// What is wrong.
        error: crate::record::Error,
    },
    /// The connection is gone; the lane dials again and keeps its partitions.
    Disconnected {
        /// Why, with broker and step.
        reason: String,
    },
    /// The broker asks to slow down.
    Throttled(Duration),
    /// An answer is due and nothing comes; said again and again. Others may know more of this broker.
    Silent,
}

/// Part of a partition's answer: batches as they came, with the watermarks of the answer.
#[derive(Debug)]
pub struct Fetched {
    /// Which partition.
    pub key: PartitionKey,
    /// Of which `Add`.
    pub generation: u32,
    /// Whole log entries in offset order; may be empty when only the watermarks moved.
    pub batches: Vec<FetchedBatch>,
    /// High watermark of the partition.
    pub high_watermark: i64,
    /// Last stable offset of the partition.
    pub last_stable_offset: i64,
    /// Log start offset of the partition.
    pub log_start_offset: i64,
    /// Aborted transactions that touch this answer (read_committed only), as the broker sent them.
    pub aborted: Arc<[AbortedTransaction]>,
}

/// One whole log entry, prefix included: a v2 batch, or a message (set) of magic 0 or 1.
#[derive(Clone, Debug)]
pub struct FetchedBatch {
    /// Its bytes, a slice of the slab that they were read into.
    pub bytes: Bytes,
    /// Its message format.
    pub magic: Magic,
}

/// A transaction that was aborted: its producer's batches from `first_offset` up to its abort marker are not to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer_id: i64,
    /// First offset of the transaction in this partition.
    pub first_offset: i64,
}

/// A topic of the target, as a request needs it.
#[derive(Debug, PartialEq, Eq)]
pub struct TargetTopic {
    /// Place in the flow's table; groups the partitions of a request.
    pub index: u32,
    /// Topic name.
    pub name: Arc<str>,
    /// Topic id; nil when the cluster has none.
    pub topic_id: Uuid,
}

/// A frozen batch: 61 bytes of our own and the body that it came with. A resend is byte-identical.
#[derive(Clone, Debug)]
pub struct ProduceBatch {
    /// Where it goes.
    pub key: TargetKey,
    /// The topic.
    pub topic: Arc<TargetTopic>,
    /// The patched header.
    pub header: [u8; HEADER_BYTES],
    /// Everything behind the header.
    pub body: Bytes,
}

impl ProduceBatch {
    /// Bytes of the whole batch.
    pub fn size_bytes(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }
}

/// One Produce request: a map by (topic index, partition), so that a second batch for a partition cannot be expressed.
#[derive(Debug)]
pub struct ProduceRequest {
    /// The flow's number for it.
    pub id: u64,
    /// The connection that it is meant for, as the last [`ProduceEvent::Connected`] numbered it. Without this, a request
    /// sent before the flow hears of a disconnect could overtake the resends of what was lost: a target without
    /// producer state takes any first sequence, and would then refuse the earlier ones for good.
    pub connection: u64,
    /// The batches.
    pub batches: BTreeMap<(u32, i32), ProduceBatch>,
}

/// What a flow tells a produce lane.
#[derive(Debug)]
pub enum ProduceCommand {
    /// Send it after all earlier ones.
    Send(ProduceRequest),
    /// Close the connection and dial again; every request in flight is lost.
    Reconnect,
}

/// What a flow hears from a produce lane. Each `Send` is heard of exactly once: `Answered`, in `Disconnected`, or `Dropped`.
#[derive(Debug)]
pub enum ProduceEvent {
    /// Connected and negotiated; nothing is in flight.
    Connected {
        /// Number of this connection of the lane, counted up from 1; each request names it.
        connection: u64,
    },
    /// The answer to a request; a partition that the broker left out is answered as UNKNOWN_SERVER_ERROR.
    Answered {
        /// Which request.
        id: u64,
        /// One answer for each batch of the request.
        answers: Vec<ProduceAnswer>,
        /// How long the broker wants us to wait.
        throttle: Duration,
    },
    /// The connection is gone, the outcome of these requests is unknown (in order of sending); the lane dials again.
    Disconnected {
        /// Requests in flight or not yet written.
        lost: Vec<u64>,
        /// Why, with broker and step.
        reason: String,
    },
    /// The request was meant for an earlier connection (it crossed the news of its end); it was not sent.
    Dropped {
        /// Which request.
        id: u64,
    },
    /// Requests are in flight and nothing comes; said again and again. Others may know more of this broker.
    Silent,
}

/// How long a lane waits for something due before it says [`FetchEvent::Silent`] or [`ProduceEvent::Silent`]. A broker that
/// hangs is missed by its cluster after some seconds, and its connections only by `request.timeout.ms`.
pub(super) const SILENT_AFTER: Duration = Duration::from_secs(3);

/// What the broker said of one batch.
#[derive(Debug)]
pub struct ProduceAnswer {
    /// Which partition.
    pub key: TargetKey,
    /// Kafka's error code, 0 for none.
    pub code: i16,
    /// Offset of the first record, -1 when unknown.
    pub base_offset: i64,
    /// Records that the broker refused, when it says which (KIP-467).
    pub record_errors: Vec<RecordError>,
    /// The broker's words.
    pub message: Option<String>,
}

impl ProduceAnswer {
    /// The error, if the code is known.
    pub fn error(&self) -> Option<ResponseError> {
        ResponseError::try_from_code(self.code)
    }
}

/// A record that the broker refused.
#[derive(Debug, PartialEq, Eq)]
pub struct RecordError {
    /// Index of the record in its batch.
    pub batch_index: i32,
    /// The broker's words.
    pub message: Option<String>,
}

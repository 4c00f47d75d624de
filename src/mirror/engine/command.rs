//! What the engine is told at its birth, and what it wants done: the words between it and its owner ([`super::super::flow`]).

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use crate::client::{FetchCommand, IsolationLevel, PartitionKey, ProduceCommand};
use crate::mirror::append::Inquiry;
use crate::mirror::plan::TargetLimits;
use crate::mirror::{Batching, CompressedBatching, Gathering, OnOversize, OnRefused};
use crate::net::Backoff;
use crate::record::{self, Codec, DealSettings, Dealt, Magic, Piece, RewriteSettings, Rewritten, Segment};

/// What the engine needs to know of its flow.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Names for messages.
    pub source: Arc<str>,
    /// Names for messages.
    pub target: Arc<str>,
    /// What the fetch lanes ask for.
    pub isolation_level: IsolationLevel,
    /// `kmirror.batching`.
    pub batching: Batching,
    /// `kmirror.batching.compressed`.
    pub batching_compressed: CompressedBatching,
    /// A queue of this many batches is a backlog. The first third of it is sent before a worker could be done.
    pub backlog_batches: usize,
    /// `kmirror.on.oversize`.
    pub on_oversize: OnOversize,
    /// `errors.tolerance`.
    pub on_refused: OnRefused,
    /// `compression.type` of the target producer; `None` keeps the source's.
    pub compression: Option<Codec>,
    /// `batch.size` and `linger.ms` of the target producer, for what is dealt out by key.
    pub gathering: Gathering,
    /// `max.request.size` of the target producer.
    pub max_request_bytes: usize,
    /// Requests in flight on one connection.
    pub max_in_flight_requests: usize,
    /// Bytes alive for each fetch lane before reading pauses, where the target is near.
    pub lane_window_bytes: usize,
    /// Between attempts for a partition that failed.
    pub retry_backoff: Backoff,
    /// Until a stopped partition that may heal is tried again; its longest pause is `errors.retry.delay.max.ms`.
    pub stopped_backoff: Backoff,
    /// Most bytes that a compressed batch may have when it is opened to be rewritten.
    pub decompressed_bytes_max: usize,
}

/// What the engine wants done.
#[derive(Debug)]
pub enum Command {
    /// For the fetch lane of this source broker; the lane is opened with the first one.
    Fetch(i32, FetchCommand),
    /// For the produce lane of this target broker; the lane is opened with the first one.
    Produce(i32, ProduceCommand),
    /// A produce lane to this broker will be needed.
    OpenProduce(i32),
    /// Metadata of the source is out of date.
    RefreshSource,
    /// Metadata of the target is out of date.
    RefreshTarget,
    /// Work for another thread; its outcome comes back through [`super::Engine::on_rewritten`].
    Rewrite(RewriteJob),
    /// The offset wanted is not in the source partition's log (or its log is another one): find out where to go on.
    Locate(PartitionKey),
    /// A new producer id is needed; comes back through [`super::Engine::on_producer`].
    NewProducer,
    /// The target's log is to be read; what it tells comes back through [`super::Engine::on_evidence`].
    Inquire(Inquiry),
    /// Something for the log.
    Log(Notice),
}

/// A line for the log, with its place.
#[derive(Debug)]
pub struct Notice {
    /// Source topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// What happened.
    pub message: String,
}

/// Work for another thread.
#[derive(Debug)]
pub struct RewriteJob {
    /// The engine's number for it; the shares of a batch that is dealt out have this one and those that follow.
    pub id: u64,
    /// What is to be done.
    pub work: Work,
}

/// What is done on another thread.
#[derive(Debug)]
pub enum Work {
    /// A batch is made anew.
    Rewrite {
        /// The batch.
        batch: Bytes,
        /// Its message format.
        magic: Magic,
        /// How.
        settings: RewriteSettings,
    },
    /// A batch is dealt out over several partitions.
    Deal {
        /// The batch.
        batch: Bytes,
        /// Its message format.
        magic: Magic,
        /// How.
        settings: DealSettings,
    },
    /// Small compressed neighbours become one batch.
    Merge {
        /// The batches, of one codec.
        batches: Vec<Bytes>,
        /// Most bytes of their records when decompressed.
        decompressed_bytes_max: usize,
    },
}

/// What came of it.
#[derive(Debug)]
pub enum Worked {
    /// What a place in a queue gets.
    Pieces(Result<Vec<Piece>, record::Error>),
    /// What several get.
    Dealt {
        /// So many.
        places: usize,
        /// It.
        dealt: Result<Dealt, record::Error>,
    },
}

impl Work {
    /// Does it.
    pub fn perform(&self) -> Worked {
        match self {
            Work::Deal { batch, magic, settings } => {
                let (places, dealt) = (settings.shares.len(), record::deal(batch, *magic, settings));
                Worked::Dealt { places, dealt }
            }
            Work::Rewrite { batch, magic: Magic::V2, settings } => {
                Worked::Pieces(record::rewrite(batch, settings))
            }
            Work::Rewrite { batch, settings, .. } => Worked::Pieces(record::convert(batch, settings)),
            Work::Merge { batches, decompressed_bytes_max } => {
                Worked::Pieces(merge(batches, *decompressed_bytes_max))
            }
        }
    }
}

fn merge(batches: &[Bytes], decompressed_bytes_max: usize) -> Result<Vec<Piece>, record::Error> {
    let merged = record::merge_compressed(batches, decompressed_bytes_max)?;
    let record_count = merged.record_count;
    Ok(vec![Piece::Batch(Rewritten {
        batch: merged.batch,
        record_count,
        first_upstream_offset: 0,
        last_upstream_offset: i64::from(record_count) - 1,
        segments: vec![Segment { upstream_offset: 0, record_count }],
        max_timestamp: merged.max_timestamp,
    })])
}

/// A source partition that a flow takes on.
#[derive(Clone, Debug)]
pub struct NewPartition {
    /// Source topic.
    pub topic: Arc<str>,
    /// Its id; nil when unknown.
    pub topic_id: Uuid,
    /// Partition on both sides.
    pub partition: i32,
    /// The target topic.
    pub remote_topic: Arc<str>,
    /// Its id; nil when unknown.
    pub remote_topic_id: Uuid,
    /// What it takes.
    pub limits: TargetLimits,
}

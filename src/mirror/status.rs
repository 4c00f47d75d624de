//! What a replicator says of itself: plain values, made on demand by the flows' owners and rendered by `observe`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::measure::{Latency, TrafficStatus};
use super::start::SOURCE_RESET;
use super::state::TopicPartition;
use crate::net::tls::{Role, StoreError, StoredCertificate};

/// Everything at one moment.
#[derive(Clone, Debug, Default)]
pub struct ReplicatorStatus {
    /// Milliseconds since the Unix epoch.
    pub now_ms: i64,
    /// `kmirror.memory.budget` and what of it is in use, in bytes.
    pub budget_bytes: u64,
    /// Bytes of batches alive.
    pub budget_used_bytes: u64,
    /// One for each cluster whose connections have TLS.
    pub tls: Vec<TlsStatus>,
    /// One for each flow.
    pub flows: Vec<FlowStatus>,
    /// Heartbeats that this process writes, one for each pair of clusters.
    pub heartbeats: Vec<HeartbeatStatus>,
}

/// TLS to one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsStatus {
    /// Its alias; `kmirror.admin` for the admin listener.
    pub cluster: Arc<str>,
    /// The certificates of its stores, as they are in use.
    pub certificates: Vec<CertificateStatus>,
    /// Why the newest files are not in use, if they are not.
    pub trouble: Option<String>,
}

impl TlsStatus {
    /// Of these certificates.
    pub fn new(
        cluster: &str,
        certificates: Vec<StoredCertificate>,
        trouble: Option<StoreError>,
    ) -> TlsStatus {
        let certificates = certificates.into_iter().map(|stored| CertificateStatus {
            store: match stored.role {
                Role::Trust => "truststore",
                Role::Identity => "keystore",
            },
            subject: stored.text.subject,
            not_after_s: stored.text.not_after,
        });
        TlsStatus {
            cluster: Arc::from(cluster),
            certificates: certificates.collect(),
            trouble: trouble.map(|error| error.to_string()),
        }
    }
}

/// A certificate of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateStatus {
    /// `truststore` or `keystore`.
    pub store: &'static str,
    /// Its subject.
    pub subject: String,
    /// Until when it is valid, in seconds since the epoch.
    pub not_after_s: i64,
}

/// One flow.
#[derive(Clone, Debug)]
pub struct FlowStatus {
    /// Alias of the source.
    pub source: Arc<str>,
    /// Alias of the target.
    pub target: Arc<str>,
    /// Where it stands.
    pub state: FlowState,
    /// Whether `/readyz` counts it as ready.
    pub readiness: Readiness,
    /// What it waits for before it can copy; `None` when it does not, or not for long yet.
    pub waiting_for: Option<Waiting>,
    /// All selected topics have been looked at, and each of their partitions has its start.
    pub discovered: bool,
    /// Partitions by (source topic, partition).
    pub partitions: BTreeMap<(Arc<str>, i32), PartitionStatus>,
    /// Topics that cannot be replicated now, with the reason.
    pub failed_topics: BTreeMap<Arc<str>, String>,
    /// How settings of topics follow the source; `None` before the first comparison.
    pub topic_configs: Option<SyncStatus>,
    /// How ACLs of topics follow the source; `None` before the first comparison.
    pub topic_acls: Option<SyncStatus>,
    /// Records refused, gaps and other events worth keeping, newest last; bounded.
    pub events: Vec<Event>,
    /// Connections to brokers, by (cluster alias, broker id).
    pub brokers: BTreeMap<(Arc<str>, i32), BrokerStatus>,
    /// The last error of the flow as a whole.
    pub last_error: Option<String>,
    /// Offset syncs, groups and heartbeats.
    pub translation: TranslationStatus,
    /// The source's group, where this process is a member of it.
    pub membership: Option<MembershipStatus>,
}

/// How it stands with the membership in the source's group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipStatus {
    /// `group.id`.
    pub group: Arc<str>,
    /// `group.protocol`.
    pub protocol: &'static str,
    /// `group.instance.id`.
    pub instance: Option<Arc<str>>,
    /// `joining`, `stable`, `revoking` while partitions that go to others are brought to their end, or `refused`.
    pub state: &'static str,
    /// As whom the group knows us, while it does.
    pub member_id: Option<Arc<str>>,
    /// The generation, or the member epoch.
    pub generation: Option<i32>,
    /// Its partitions for this process, at the source.
    pub assigned: BTreeMap<Arc<str>, BTreeSet<i32>>,
    /// How often everything was lost at once.
    pub losses: u64,
    /// Why that was the last time, or what keeps us from being a member.
    pub last_error: Option<String>,
    /// `kmirror.partitioning` as it was chosen for topics: `preserve`, or `key/` and how many partitions.
    pub partitioning: BTreeMap<Arc<str>, String>,
}

/// What a flow says of offset syncs, groups and heartbeats.
#[derive(Clone, Debug, Default)]
pub struct TranslationStatus {
    /// Offset syncs.
    pub offset_syncs: SyncsStatus,
    /// Groups; `None` while checkpoints are off or the flow is not written by this process.
    pub groups: Option<Arc<GroupsStatus>>,
    /// Whether `emit.checkpoints.enabled` is false, so that there never are any.
    pub are_groups_off: bool,
    /// Heartbeats that come over this flow, by source topic.
    pub heartbeats: BTreeMap<Arc<str>, LinkStatus>,
}

/// Offset syncs of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncsStatus {
    /// Their topic; `None` when they are off.
    pub topic: Option<Arc<str>>,
    /// Syncs acknowledged since the start of the process.
    pub emitted: u64,
    /// Why the last round was not taken.
    pub last_error: Option<String>,
}

/// The groups of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupsStatus {
    /// Selected groups.
    pub groups: BTreeMap<Arc<str>, GroupStatus>,
    /// Checkpoints acknowledged since the flow is written.
    pub checkpoints: u64,
    /// When the last round of checkpoints ended, in ms since the epoch.
    pub round_ms: Option<i64>,
    /// What the last round could not do.
    pub last_error: Option<String>,
}

/// One group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStatus {
    /// Partitions whose committed offset is translated.
    pub translated: u64,
    /// Partitions whose committed offset lies before everything that is known.
    pub untranslated: u64,
    /// When the last checkpoint was written, in ms since the epoch.
    pub checkpoint_ms: Option<i64>,
    /// How long its checkpoints took from being made to being acknowledged.
    pub checkpoint_latency: Latency,
    /// Partitions of the target that have had a checkpoint from this process.
    pub checkpointed: Arc<BTreeSet<TopicPartition>>,
    /// Why its offsets could not be fetched in the last round.
    pub error: Option<String>,
    /// `sync.group.offsets`; `None` when it is off or has not been tried yet.
    pub sync: Option<GroupSyncStatus>,
}

/// What came of a group's offsets on the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSyncStatus {
    /// In one word.
    pub result: GroupSync,
    /// The whole story, where there is one.
    pub detail: Option<String>,
    /// Offsets committed since the flow is written.
    pub committed: u64,
    /// When, in ms since the epoch.
    pub at_ms: i64,
}

/// What came of a group's offsets on the target, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupSync {
    /// The target holds what it should.
    InSync,
    /// Offsets were committed.
    Committed,
    /// The group has members on the target, which decide.
    Active,
    /// The group is further on the target by itself.
    Ahead,
    /// Something was doubtful; tried again in the next round.
    Skipped,
}

impl GroupSync {
    /// The word for metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            GroupSync::InSync => "in_sync",
            GroupSync::Committed => "committed",
            GroupSync::Active => "active",
            GroupSync::Ahead => "ahead",
            GroupSync::Skipped => "skipped",
        }
    }
}

/// Heartbeats of one cluster, as they come over a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// Flows that they have come over, this one included.
    pub hops: u32,
    /// When the newest one that is on the target was written, in ms since the epoch.
    pub newest_ms: Option<i64>,
    /// How old the last one was when the target had acknowledged it, in ms.
    pub latency_ms: Option<i64>,
}

/// Heartbeats that this process writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatStatus {
    /// Alias of the source.
    pub source: Arc<str>,
    /// Alias of the target, where they are written.
    pub target: Arc<str>,
    /// Heartbeats acknowledged since the start of the process.
    pub emitted: u64,
    /// The newest of them, in ms since the epoch.
    pub emitted_ms: Option<i64>,
    /// Why the last one was not taken.
    pub last_error: Option<String>,
}

/// What came of a comparison of topics' settings or ACLs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncStatus {
    /// When, in ms since the epoch.
    pub at_ms: i64,
    /// Settings changed, or ACLs created.
    pub changed: usize,
    /// What the target refused, with its reason; bounded.
    pub refused: BTreeMap<String, String>,
    /// Why nothing could be compared.
    pub error: Option<String>,
}

/// Where a flow stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// Reading metadata and positions.
    Starting,
    /// MirrorMaker's own group has members; nothing is written.
    WaitingForMirrorMaker {
        /// The group.
        group: String,
        /// Its members.
        members: usize,
    },
    /// Somebody has paused or stopped MirrorMaker's source connector; nothing is copied.
    Paused {
        /// The connector's name.
        connector: String,
        /// What was wanted of it: `PAUSED` or `STOPPED`.
        target_state: &'static str,
        /// The workers' config topic, which says so.
        topic: String,
    },
    /// Another kmirror writes this flow; this one takes over when it is gone.
    Standby,
    /// Replicating.
    Running,
    /// Draining what is in flight.
    Stopping,
    /// Ended in order.
    Stopped,
    /// Cannot go on, with the reason.
    Failed(String),
}

/// Whether a flow is ready, for whoever watches over the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// It copies, or would if there were something to copy, or stands by in order.
    #[default]
    Ready,
    /// It does not, with the reason where the flow's state does not tell.
    NotReady(Option<String>),
}

/// What a flow waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// For people: cluster, addresses, last error. It completes "waits for …".
    pub what: String,
    /// Since when, in ms since the epoch.
    pub since_ms: i64,
}

/// One source partition.
#[derive(Clone, Debug, Default)]
pub struct PartitionStatus {
    /// Topic on the target.
    pub remote_topic: Arc<str>,
    /// Where its reading stands: `unlocated`, `waiting`, `fetching`, `held` or `stopped`.
    pub phase: &'static str,
    /// Batches that wait to be sent.
    pub queued_batches: u64,
    /// Batches that are sent and not acknowledged.
    pub unacknowledged_batches: u64,
    /// `None` while it is replicated, else why it is not.
    pub stopped: Option<Stopped>,
    /// Source offset that follows the last record known to be on the target; `None` before the first.
    pub position: Option<i64>,
    /// Target offset that follows it.
    pub downstream: Option<i64>,
    /// Where the source partition ended when it was first looked at: last stable offset or high watermark.
    pub end_at_start: Option<i64>,
    /// Of the source partition.
    pub high_watermark: Option<i64>,
    /// Of the source partition.
    pub last_stable_offset: Option<i64>,
    /// Of the source partition.
    pub log_start_offset: Option<i64>,
    /// Since when the last stable offset stands before the high watermark, in ms since the epoch (read_committed).
    pub blocked_by_transaction_since_ms: Option<i64>,
    /// Largest record timestamp that is on the target, in ms.
    pub replicated_timestamp_ms: Option<i64>,
    /// For how long the oldest record waits that is not on the target, in ms, as far as headers of batches tell: 0 when
    /// nothing waits; `None` when nothing has been copied yet.
    pub lag_ms: Option<i64>,
    /// Source offsets that are read and not acknowledged.
    pub backlog_offsets: u64,
    /// Bytes of the batches that are read and not acknowledged.
    pub backlog_bytes: u64,
    /// What moved lately.
    pub traffic: TrafficStatus,
    /// Counters since the start of the process.
    pub counters: Counters,
}

impl PartitionStatus {
    /// Whether everything is on the target that the source partition held when it was first looked at.
    pub fn has_reached_end(&self) -> bool {
        matches!((self.position, self.end_at_start), (Some(position), Some(end)) if position >= end)
    }

    /// Source offsets still to be copied: up to the last stable offset when that is what is read. Of a partition that is
    /// stopped because its log is another one than the position speaks of, or before it had a position: the whole log.
    pub fn lag(&self) -> Option<i64> {
        let end = self.last_stable_offset.or(self.high_watermark)?;
        let copied = match &self.stopped {
            Some(stopped) if stopped.reason == SOURCE_RESET => None,
            _ => self.position,
        };
        let from = copied.or(self.log_start_offset.filter(|_| self.stopped.is_some()))?;
        Some((end - from).max(0))
    }
}

/// [`Stopped::reason`] of a partition whose topic was deleted at the source.
pub const TOPIC_GONE: &str = "topic_gone";

/// [`Stopped::reason`] of a partition that the target could not take, at many tries, for reasons that pass.
pub const UNAVAILABLE: &str = "unavailable";

/// Why a partition is not replicated now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// A short fixed word for metrics, such as `oversize` or `source_reset`.
    pub reason: &'static str,
    /// The whole story: cluster, topic, partition, offset, what was expected, what to do.
    pub message: String,
    /// Since when, in ms since the epoch.
    pub since_ms: i64,
    /// When it is tried again; `None` needs a person.
    pub retry_ms: Option<i64>,
}

/// What was done, by partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records acknowledged by the target.
    pub records: u64,
    /// Bytes of source batches acknowledged.
    pub bytes: u64,
    /// Source batches that went verbatim.
    pub batches_verbatim: u64,
    /// Source batches that were merged with neighbours.
    pub batches_merged: u64,
    /// Source batches that were rewritten, by reason: see [`RewriteReason`].
    pub batches_rewritten: [u64; RewriteReason::ALL.len()],
    /// Control and aborted batches left out.
    pub batches_skipped: u64,
    /// Records left out by policy.
    pub records_skipped: u64,
    /// Produce requests that had to be sent again for this partition.
    pub resends: u64,
}

impl Counters {
    /// Both together.
    pub fn plus(mut self, other: Counters) -> Counters {
        self.records += other.records;
        self.bytes += other.bytes;
        self.batches_verbatim += other.batches_verbatim;
        self.batches_merged += other.batches_merged;
        self.batches_skipped += other.batches_skipped;
        self.records_skipped += other.records_skipped;
        self.resends += other.resends;
        for (sum, more) in self.batches_rewritten.iter_mut().zip(other.batches_rewritten) {
            *sum += more;
        }
        self
    }
}

/// Why a batch cannot go verbatim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RewriteReason {
    /// Offsets without records, after compaction.
    Holes,
    /// The position lies inside the batch.
    MidBatch,
    /// Magic 0 or 1.
    OldFormat,
    /// Records carry the time of their append at the source.
    LogAppendTime,
    /// Larger than the target takes.
    Oversize,
    /// Another codec is asked for.
    Codec,
    /// Its records are dealt out by key, as MirrorMaker 1 does.
    Partitioned,
}

impl RewriteReason {
    /// All of them, in the order of [`Counters::batches_rewritten`].
    pub const ALL: [RewriteReason; 7] = [
        RewriteReason::Holes,
        RewriteReason::MidBatch,
        RewriteReason::OldFormat,
        RewriteReason::LogAppendTime,
        RewriteReason::Oversize,
        RewriteReason::Codec,
        RewriteReason::Partitioned,
    ];

    /// The word for metrics.
    pub fn name(self) -> &'static str {
        match self {
            RewriteReason::Holes => "holes",
            RewriteReason::MidBatch => "mid_batch",
            RewriteReason::OldFormat => "old_format",
            RewriteReason::LogAppendTime => "log_append_time",
            RewriteReason::Oversize => "oversize",
            RewriteReason::Codec => "codec",
            RewriteReason::Partitioned => "partitioned",
        }
    }
}

/// Something that a person may have to know later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in ms since the epoch.
    pub at_ms: i64,
    /// Source topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// What.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Source offsets `from..to` were gone before they could be read, or lie in a log that was replaced.
    Gap {
        /// First offset that is missing.
        from: i64,
        /// First offset that is there again.
        to: i64,
        /// Why.
        reason: String,
    },
    /// A record was left out by policy.
    Skipped {
        /// Its source offset.
        offset: i64,
        /// Why.
        reason: String,
    },
}

/// A connection to a broker.
#[derive(Clone, Debug, Default)]
pub struct BrokerStatus {
    /// Connected now.
    pub connected: bool,
    /// Times the connection was lost.
    pub disconnects: u64,
    /// The last reason.
    pub last_error: Option<String>,
    /// Time that the broker asked us to wait, in ms.
    pub throttle_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_counted_from_what_is_copied_of_this_log() {
        let stopped = |reason| Stopped { reason, message: String::new(), since_ms: 0, retry_ms: None };
        for (reason, position, ends, lag) in [
            (None, Some(7), Some((5, 20)), Some(13)),
            (None, Some(25), Some((5, 20)), Some(0)),
            (None, None, Some((5, 20)), None),
            (None, Some(7), None, None),
            (Some("oversize"), Some(7), Some((5, 20)), Some(13)),
            (Some("oversize"), Some(7), None, None),
            (Some(SOURCE_RESET), Some(400), Some((5, 20)), Some(15)),
            (Some(SOURCE_RESET), None, Some((5, 20)), Some(15)),
            (Some("no_position"), None, Some((5, 20)), Some(15)),
            (Some(TOPIC_GONE), Some(7), None, None),
        ] {
            let partition = PartitionStatus {
                stopped: reason.map(stopped),
                position,
                log_start_offset: ends.map(|(start, _)| start),
                high_watermark: ends.map(|(_, end)| end),
                ..PartitionStatus::default()
            };
            assert_eq!(partition.lag(), lag, "{reason:?} {position:?} {ends:?}");
        }
    }
}

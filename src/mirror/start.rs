//! Where a partition starts, and when it must not start at all.
//!
//! Pure: what is remembered and what both clusters say are arguments, the answer is a [`Start`]. The rules:
//!
//! ```text
//! known position, source topic has another id       source reset
//! known position < log start                        gap recorded, go on at the log start (never at the end)
//! known position > end, or its epoch ended earlier  source reset
//! known position, target topic has another id       go on at the position, gap recorded
//! known position                                    go on there
//! nothing known, or the position was taken back     first start: by `auto.offset.reset`; later: at the log start.
//!                                                   The result is stored before the first fetch
//! ```
//! A source reset stops the partition (`kmirror.on.source.reset=stop`), or appends the new log with a gap on record.
//! Divergence is KIP-320's: the source's end offset for the leader epoch of the last batch copied lies before our position.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use super::state::records::{Baseline, FlowStart, Gap, Position};
use super::state::{Layout, Standing, TopicPartition};
use super::{OffsetReset, OnSourceReset};

/// The word of [`Start::Stop`] when the source's log is another one than the position speaks of.
pub const SOURCE_RESET: &str = "source_reset";
/// The word of [`Start::Stop`] when nothing is known and `auto.offset.reset=none`.
pub const NO_POSITION: &str = "no_position";

/// Whether a flow starts for the first time ([`super::state::Remembered::is_first_start`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Partitions without a position follow `auto.offset.reset`.
    FirstStart,
    /// They appeared later, and start at the earliest.
    Later,
}

/// What the flow's settings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `auto.offset.reset`.
    pub auto_offset_reset: OffsetReset,
    /// `kmirror.on.source.reset`.
    pub on_source_reset: OnSourceReset,
}

/// The source partition now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLog {
    /// The topic's id; nil when the cluster has none.
    pub topic_id: Uuid,
    /// The first offset there is.
    pub log_start_offset: i64,
    /// The offset after the last one that may be read: high watermark or last stable offset.
    pub end_offset: i64,
    /// The high watermark: a position between the two ends is no reset.
    pub high_watermark: i64,
    /// Where the leader epoch of the last batch copied ends, as OffsetForLeaderEpoch answers; `None` when it cannot tell
    /// or was not asked.
    pub epoch_end: Option<EpochEnd>,
}

/// The answer to OffsetForLeaderEpoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest epoch up to the one asked for.
    pub leader_epoch: i32,
    /// The offset after that epoch's last record.
    pub end_offset: i64,
}

/// The target partition now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetLog {
    /// The topic's id; nil when the cluster has none.
    pub topic_id: Uuid,
    /// The offset after its last record.
    pub end_offset: i64,
}

/// How a partition starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Fetch from here.
    At(StartAt),
    /// As [`Start::At`], but this beginning must be stored before the first fetch.
    StoreBaselineFirst {
        /// The first offset to fetch.
        offset: i64,
    },
    /// Do not replicate the partition.
    Stop {
        /// A fixed word: [`SOURCE_RESET`] or [`NO_POSITION`].
        reason: &'static str,
        /// The whole story.
        message: String,
    },
}

/// A known place to start at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartAt {
    /// The first offset to fetch.
    pub offset: i64,
    /// Target offset that follows the last record copied, -1 when it is not known.
    pub downstream: i64,
    /// Leader epoch of the last batch copied, -1 when it is not known or no longer holds.
    pub leader_epoch: i32,
    /// Source offsets that are lost on the way.
    pub gap: Option<Lost>,
}

/// Source offsets `from..to` that are not on the target, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// First offset that is missing.
    pub from: i64,
    /// First offset that is there again; smaller than `from` when the new log is shorter than the old one was.
    pub to: i64,
    /// Why.
    pub reason: String,
}

impl Lost {
    /// As it is recorded.
    pub fn to_record(&self, source_topic_id: Uuid, now_ms: i64) -> Gap {
        Gap {
            source_topic_id,
            from: self.from,
            to: self.to,
            at_ms: now_ms,
            reason: Arc::from(self.reason.as_str()),
        }
    }
}

impl StartAt {
    /// A position that says the same, to be stored when the start differs from what is remembered.
    pub fn to_position(&self, source_topic_id: Uuid, target_topic_id: Uuid, now_ms: i64) -> Position {
        Position {
            source_topic_id,
            target_topic_id,
            upstream: self.offset,
            downstream: self.downstream,
            leader_epoch: self.leader_epoch,
            producer_id: -1,
            producer_epoch: -1,
            at_ms: now_ms,
        }
    }
}

/// Decides where `partition` starts.
pub fn start(
    partition: &TopicPartition,
    standing: &Standing,
    phase: Phase,
    rules: Rules,
    source: &SourceLog,
    target: &TargetLog,
) -> Start {
    match known(standing) {
        Some(known) => Case { partition, rules, source, target }.resume(&known),
        None => begin(partition, standing, phase, rules, source),
    }
}

fn begin(
    partition: &TopicPartition,
    standing: &Standing,
    phase: Phase,
    rules: Rules,
    source: &SourceLog,
) -> Start {
    let as_first = phase == Phase::FirstStart || *standing == Standing::Reset;
    match rules.auto_offset_reset {
        OffsetReset::Latest if as_first => Start::StoreBaselineFirst { offset: source.end_offset },
        OffsetReset::None if as_first => Start::Stop {
            reason: NO_POSITION,
            message: format!(
                "{partition} has no stored position and auto.offset.reset=none; set it to earliest or latest for the \
                 flow's first start"
            ),
        },
        _ => Start::StoreBaselineFirst { offset: source.log_start_offset },
    }
}

/// A remembered place in the source's log, and what is known about it.
#[derive(Clone, Copy)]
struct Known {
    next: i64,
    downstream: i64,
    leader_epoch: i32,
    source_topic_id: Uuid,
    target_topic_id: Uuid,
}

fn known(standing: &Standing) -> Option<Known> {
    let only = |next| Known {
        next,
        downstream: -1,
        leader_epoch: -1,
        source_topic_id: Uuid::nil(),
        target_topic_id: Uuid::nil(),
    };
    match *standing {
        Standing::Unknown | Standing::Reset => None,
        Standing::Offset(next) => Some(only(next)),
        Standing::Baseline(Baseline { source_topic_id, upstream, .. }) => {
            Some(Known { source_topic_id, ..only(upstream) })
        }
        Standing::Pair(pair) => Some(Known {
            next: pair.upstream,
            downstream: pair.downstream,
            leader_epoch: pair.leader_epoch,
            source_topic_id: pair.source_topic_id,
            target_topic_id: pair.target_topic_id,
        }),
    }
}

/// Why the source's log is not the one that was copied.
enum Reset {
    OtherTopic { was: Uuid },
    BeyondEnd,
    Diverged { leader_epoch: i32, end: EpochEnd },
}

struct Case<'a> {
    partition: &'a TopicPartition,
    rules: Rules,
    source: &'a SourceLog,
    target: &'a TargetLog,
}

impl Case<'_> {
    fn resume(&self, known: &Known) -> Start {
        if let Some(reset) = self.reset(known) {
            return self.on_reset(known, &reset);
        }
        if known.next < self.source.log_start_offset {
            return self.overtaken(known);
        }
        let (downstream, gap) = self.on_target(known);
        let leader_epoch = known.leader_epoch;
        Start::At(StartAt { offset: known.next, downstream, leader_epoch, gap })
    }

    fn reset(&self, known: &Known) -> Option<Reset> {
        if differ(known.source_topic_id, self.source.topic_id) {
            return Some(Reset::OtherTopic { was: known.source_topic_id });
        }
        if known.next < self.source.log_start_offset {
            return None;
        }
        if let (Some(end), true) = (self.source.epoch_end, known.leader_epoch >= 0)
            && end.end_offset < known.next
        {
            return Some(Reset::Diverged { leader_epoch: known.leader_epoch, end });
        }
        (known.next > self.source.high_watermark.max(self.source.end_offset)).then_some(Reset::BeyondEnd)
    }

    fn on_reset(&self, known: &Known, reset: &Reset) -> Start {
        let message = self.tell(known, reset);
        if self.rules.on_source_reset == OnSourceReset::Stop {
            return Start::Stop { reason: SOURCE_RESET, message };
        }
        let offset = match reset {
            // Up to where the logs part both hold the same records; what follows there is new.
            Reset::Diverged { end, .. } => end.end_offset.max(self.source.log_start_offset),
            Reset::OtherTopic { .. } | Reset::BeyondEnd => self.source.log_start_offset,
        };
        let gap = Some(Lost { from: known.next, to: offset, reason: message });
        Start::At(StartAt { offset, downstream: known.downstream, leader_epoch: -1, gap })
    }

    fn tell(&self, known: &Known, reset: &Reset) -> String {
        let Case { partition, source, .. } = self;
        let next = known.next;
        let fix = "kmirror.on.source.reset=append copies the new log behind the old one";
        match reset {
            Reset::OtherTopic { was } => format!(
                "{partition} was created anew at the source: its topic id was {was} and is {}; copied up to offset \
                 {next} of the old one; {fix}",
                source.topic_id
            ),
            Reset::BeyondEnd => format!(
                "{partition} ends at offset {} at the source, but was copied up to {next}: the source has lost records \
                 or the topic was created anew; {fix}",
                source.high_watermark
            ),
            Reset::Diverged { leader_epoch, end } => format!(
                "{partition} was truncated at the source: leader epoch {leader_epoch} of the last batch copied ends \
                 before our offset {next}, the logs part at {} (epoch {}); {fix}",
                end.end_offset, end.leader_epoch
            ),
        }
    }

    fn overtaken(&self, known: &Known) -> Start {
        let to = self.source.log_start_offset;
        let reason = format!(
            "the source's log starts at {to} now: retention or DeleteRecords removed {} offsets before they were copied",
            to - known.next
        );
        let gap = Some(Lost { from: known.next, to, reason });
        let (downstream, _) = self.on_target(known);
        Start::At(StartAt { offset: to, downstream, leader_epoch: known.leader_epoch, gap })
    }

    /// The target offset that still holds, and what the target has lost of what was copied.
    fn on_target(&self, known: &Known) -> (i64, Option<Lost>) {
        let Case { partition, target, .. } = self;
        let next = known.next;
        if differ(known.target_topic_id, target.topic_id) {
            let reason = format!(
                "{partition} was created anew on the target (topic id {} before, {} now): what was copied before \
                 offset {next} is gone there",
                known.target_topic_id, target.topic_id
            );
            return (-1, (next > 0).then_some(Lost { from: 0, to: next, reason }));
        }
        if known.downstream > target.end_offset {
            let lost = known.downstream - target.end_offset;
            let reason = format!(
                "the target's log of {partition} ends at {} and had {}: it has lost {lost} offsets of what was copied",
                target.end_offset, known.downstream
            );
            return (-1, Some(Lost { from: (next - lost).max(0), to: next, reason }));
        }
        (known.downstream, None)
    }
}

fn differ(a: Uuid, b: Uuid) -> bool {
    !a.is_nil() && !b.is_nil() && a != b
}

/// The memory of this flow belongs to other clusters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct OtherClusters {
    /// Which side.
    pub side: &'static str,
    /// Its alias.
    pub alias: Arc<str>,
    /// The cluster id that is remembered.
    pub remembered: Arc<str>,
    /// The cluster id that it has.
    pub found: Arc<str>,
    /// The topics that hold the memory.
    pub topics: [String; 2],
}

impl fmt::Display for OtherClusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OtherClusters { side, alias, remembered, found, topics: [offsets, state] } = self;
        write!(
            f,
            "the stored positions belong to another {side} cluster: {alias} was {remembered} and is {found}; give the \
             new cluster an alias of its own, or delete {offsets} and {state} on the target to start from nothing"
        )
    }
}

/// Whether the memory of a flow belongs to these clusters (case 59). An id that is not known, then or now, proves nothing.
pub fn check_clusters(
    start: &FlowStart,
    layout: &Layout,
    source_id: Option<&Arc<str>>,
    target_id: Option<&Arc<str>>,
) -> Result<(), OtherClusters> {
    let check = |side, alias: &Arc<str>, remembered: &Arc<str>, found: Option<&Arc<str>>| match found {
        Some(found) if !remembered.is_empty() && !found.is_empty() && found != remembered => {
            Err(OtherClusters {
                side,
                alias: alias.clone(),
                remembered: remembered.clone(),
                found: found.clone(),
                topics: [layout.offsets_topic.to_string(), layout.state_topic.to_string()],
            })
        }
        _ => Ok(()),
    };
    check("source", &layout.source, &start.source_cluster_id, source_id)?;
    check("target", &layout.owner.target, &start.target_cluster_id, target_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Uuid = Uuid::from_u128(1);
    const NEW: Uuid = Uuid::from_u128(2);
    const REMOTE: Uuid = Uuid::from_u128(3);

    fn source() -> SourceLog {
        SourceLog {
            topic_id: OLD,
            log_start_offset: 100,
            end_offset: 900,
            high_watermark: 1_000,
            epoch_end: None,
        }
    }

    fn target() -> TargetLog {
        TargetLog { topic_id: REMOTE, end_offset: 500 }
    }

    fn pair(upstream: i64) -> Standing {
        Standing::Pair(Position {
            source_topic_id: OLD,
            target_topic_id: REMOTE,
            upstream,
            downstream: 500,
            leader_epoch: 4,
            producer_id: 9,
            producer_epoch: 0,
            at_ms: 0,
        })
    }

    fn baseline(upstream: i64) -> Standing {
        Standing::Baseline(Baseline { source_topic_id: OLD, upstream, at_ms: 0 })
    }

    fn ends(leader_epoch: i32, end_offset: i64) -> Option<EpochEnd> {
        Some(EpochEnd { leader_epoch, end_offset })
    }

    #[track_caller]
    fn check(
        standing: Standing,
        phase: Phase,
        rules: (OffsetReset, OnSourceReset),
        source: SourceLog,
        target: TargetLog,
        expected: &str,
    ) {
        let rules = Rules { auto_offset_reset: rules.0, on_source_reset: rules.1 };
        let start = start(&TopicPartition::new("t", 0), &standing, phase, rules, &source, &target);
        let short = match start {
            Start::At(StartAt { offset, downstream, leader_epoch, gap: None }) => {
                format!("at {offset}, downstream {downstream}, epoch {leader_epoch}")
            }
            Start::At(StartAt { offset, downstream, leader_epoch, gap: Some(gap) }) => format!(
                "at {offset}, downstream {downstream}, epoch {leader_epoch}, gap {}..{}",
                gap.from, gap.to
            ),
            Start::StoreBaselineFirst { offset } => format!("store {offset}"),
            Start::Stop { reason, .. } => format!("stop: {reason}"),
        };
        assert_eq!(short, expected, "{standing:?} {source:?} {target:?}");
    }

    #[test]
    fn nothing_known_follows_the_reset_rule_at_the_first_start_alone() {
        use OffsetReset::{Earliest, Latest, None};
        use Phase::{FirstStart, Later};
        for (standing, phase, reset, expected) in [
            (Standing::Unknown, FirstStart, Earliest, "store 100"),
            (Standing::Unknown, FirstStart, Latest, "store 900"),
            (Standing::Unknown, FirstStart, None, "stop: no_position"),
            (Standing::Unknown, Later, Earliest, "store 100"),
            (Standing::Unknown, Later, Latest, "store 100"),
            (Standing::Unknown, Later, None, "store 100"),
            (Standing::Reset, Later, Earliest, "store 100"),
            (Standing::Reset, Later, Latest, "store 900"),
            (Standing::Reset, Later, None, "stop: no_position"),
        ] {
            check(standing, phase, (reset, OnSourceReset::Stop), source(), target(), expected);
        }
    }

    /// A known position, under both rules for a reset of the source.
    #[track_caller]
    fn resume(standing: Standing, source: SourceLog, target: TargetLog, stop: &str, append: &str) {
        for phase in [Phase::FirstStart, Phase::Later] {
            let latest = OffsetReset::Latest;
            check(standing, phase, (latest, OnSourceReset::Stop), source, target, stop);
            check(standing, phase, (latest, OnSourceReset::Append), source, target, append);
        }
    }

    #[test]
    fn a_known_position_is_gone_on_from() {
        let same = |standing, expected| resume(standing, source(), target(), expected, expected);
        same(pair(700), "at 700, downstream 500, epoch 4");
        same(pair(100), "at 100, downstream 500, epoch 4");
        same(pair(1_000), "at 1000, downstream 500, epoch 4");
        same(Standing::Offset(700), "at 700, downstream -1, epoch -1");
        same(baseline(700), "at 700, downstream -1, epoch -1");
        let epoch = SourceLog { epoch_end: ends(4, 700), ..source() };
        resume(
            pair(700),
            epoch,
            target(),
            "at 700, downstream 500, epoch 4",
            "at 700, downstream 500, epoch 4",
        );
    }

    /// Case 17: retention overtook us; never silent, never at the end.
    #[test]
    fn a_position_below_the_log_start_leaves_a_gap() {
        for (standing, expected) in [
            (pair(40), "at 100, downstream 500, epoch 4, gap 40..100"),
            (Standing::Offset(99), "at 100, downstream -1, epoch -1, gap 99..100"),
            (baseline(0), "at 100, downstream -1, epoch -1, gap 0..100"),
        ] {
            resume(standing, source(), target(), expected, expected);
        }
        // The whole log is gone, and old epochs with it.
        let empty =
            SourceLog { log_start_offset: 1_000, end_offset: 1_000, epoch_end: ends(4, 1_000), ..source() };
        let expected = "at 1000, downstream 500, epoch 4, gap 700..1000";
        resume(pair(700), empty, target(), expected, expected);
    }

    /// Case 18: the topic was deleted and created anew, or the source lost its tail.
    #[test]
    fn a_reset_of_the_source_stops_or_appends() {
        let stop = "stop: source_reset";
        let anew = SourceLog { topic_id: NEW, log_start_offset: 0, ..source() };
        resume(pair(700), anew, target(), stop, "at 0, downstream 500, epoch -1, gap 700..0");
        resume(baseline(700), anew, target(), stop, "at 0, downstream -1, epoch -1, gap 700..0");
        // Without an id to compare with, only the end can tell.
        let no_id = SourceLog { topic_id: Uuid::nil(), ..anew };
        resume(
            pair(700),
            no_id,
            target(),
            "at 700, downstream 500, epoch 4",
            "at 700, downstream 500, epoch 4",
        );
        resume(
            Standing::Offset(1_001),
            source(),
            target(),
            stop,
            "at 100, downstream -1, epoch -1, gap 1001..100",
        );
        let truncated = SourceLog { epoch_end: ends(3, 650), ..source() };
        resume(pair(700), truncated, target(), stop, "at 650, downstream 500, epoch -1, gap 700..650");
        let truncated =
            SourceLog { end_offset: 600, high_watermark: 600, epoch_end: ends(4, 600), ..source() };
        resume(pair(700), truncated, target(), stop, "at 600, downstream 500, epoch -1, gap 700..600");
    }

    #[test]
    fn a_target_that_was_created_anew_or_cut_leaves_a_gap() {
        let anew = TargetLog { topic_id: NEW, end_offset: 0 };
        let expected = "at 700, downstream -1, epoch 4, gap 0..700";
        resume(pair(700), source(), anew, expected, expected);
        // Nothing was copied, so nothing is gone.
        let whole = SourceLog { log_start_offset: 0, ..source() };
        let expected = "at 0, downstream -1, epoch 4";
        resume(pair(0), whole, anew, expected, expected);
        let cut = TargetLog { end_offset: 490, ..target() };
        let expected = "at 700, downstream -1, epoch 4, gap 690..700";
        resume(pair(700), source(), cut, expected, expected);
        // What others appended does no harm.
        let longer = TargetLog { end_offset: 510, ..target() };
        let expected = "at 700, downstream 500, epoch 4";
        resume(pair(700), source(), longer, expected, expected);
    }

    /// Case 59: memory of a cluster that was rebuilt, or of another one, is no memory.
    #[test]
    fn memory_belongs_to_the_clusters_that_it_was_made_for() {
        let layout = Layout {
            connector: Arc::from("MirrorSourceConnector"),
            source: Arc::from("A"),
            owner: crate::mirror::state::owner(&Arc::from("B")),
            offsets_topic: Arc::from("mm2-offsets.A.internal"),
            offsets_partitions: 25,
            state_topic: Arc::from("mm2-kmirror.A.internal"),
            state_partitions: 1,
        };
        let check = |remembered: [&str; 2], found: [Option<&str>; 2], other: Option<&str>| {
            let [source_cluster_id, target_cluster_id] = remembered.map(Arc::from);
            let start = FlowStart { at_ms: 0, source_cluster_id, target_cluster_id };
            let [source, target] = found.map(|id| id.map(Arc::from));
            let checked = check_clusters(&start, &layout, source.as_ref(), target.as_ref());
            let shown = checked.map_err(|error| error.to_string());
            assert_eq!(shown.is_err(), other.is_some(), "{shown:?}");
            if let (Err(shown), Some(other)) = (shown, other) {
                assert!(shown.contains(other) && shown.contains("mm2-offsets.A.internal"), "{shown}");
            }
        };
        check(["x", "y"], [Some("x"), Some("y")], None);
        check(["x", "y"], [None, None], None);
        check(["", ""], [Some("x"), Some("y")], None);
        check(["x", "y"], [Some("z"), Some("y")], Some("another source cluster: A was x and is z"));
        check(["x", "y"], [Some("x"), Some("z")], Some("another target cluster: B was y and is z"));
    }
}

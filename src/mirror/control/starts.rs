//! From a decided start to what must be stored and what the flow's owner hears. Pure.

use super::PartitionStart;
use crate::mirror::start::{Phase, Rules, SourceLog, Start, StartAt, TargetLog, start};
use crate::mirror::state::records::{Baseline, StateRecord};
use crate::mirror::state::{Standing, TopicPartition};
use crate::mirror::status::Stopped;

/// A start, and what must be stored before it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decided {
    /// What the owner hears.
    pub(super) start: PartitionStart,
    /// What is stored before.
    pub(super) records: Vec<StateRecord>,
}

/// Decides how a partition starts. A start that leaves a gap is stored with its new position at once, so that the gap is
/// found only once.
pub(super) fn decide(
    partition: &TopicPartition,
    standing: &Standing,
    phase: Phase,
    rules: Rules,
    source: &SourceLog,
    target: &TargetLog,
    now_ms: i64,
) -> Decided {
    match start(partition, standing, phase, rules, source, target) {
        Start::At(at) => {
            let records = match &at.gap {
                None => Vec::new(),
                Some(gap) => vec![
                    StateRecord::Gap(partition.clone(), gap.to_record(source.topic_id, now_ms)),
                    StateRecord::Position(
                        partition.clone(),
                        at.to_position(source.topic_id, target.topic_id, now_ms),
                    ),
                ],
            };
            Decided { start: PartitionStart::At(at), records }
        }
        Start::StoreBaselineFirst { offset } => {
            let baseline = Baseline { source_topic_id: source.topic_id, upstream: offset, at_ms: now_ms };
            let at = StartAt { offset, downstream: -1, leader_epoch: -1, gap: None };
            Decided {
                start: PartitionStart::At(at),
                records: vec![StateRecord::Baseline(partition.clone(), baseline)],
            }
        }
        Start::Stop { reason, message } => {
            let stopped = Stopped { reason, message, since_ms: now_ms, retry_ms: None };
            Decided { start: PartitionStart::Stopped(stopped), records: Vec::new() }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::mirror::state::records::Position;
    use crate::mirror::{OffsetReset, OnSourceReset};

    #[test]
    fn beginnings_and_gaps_are_stored_and_plain_starts_are_not() {
        let source = SourceLog {
            topic_id: Uuid::from_u128(1),
            log_start_offset: 50,
            end_offset: 90,
            high_watermark: 90,
            epoch_end: None,
        };
        let target = TargetLog { topic_id: Uuid::from_u128(2), end_offset: 30 };
        let rules = Rules { auto_offset_reset: OffsetReset::Latest, on_source_reset: OnSourceReset::Stop };
        let pair = |upstream| {
            Standing::Pair(Position {
                source_topic_id: source.topic_id,
                target_topic_id: target.topic_id,
                upstream,
                downstream: 30,
                leader_epoch: 1,
                producer_id: 3,
                producer_epoch: 0,
                at_ms: 0,
            })
        };
        let check = |standing, start: &str, stored: &[&str]| {
            let partition = TopicPartition::new("t", 0);
            let decided = decide(&partition, &standing, Phase::FirstStart, rules, &source, &target, 7);
            let shown = match decided.start {
                PartitionStart::At(at) => format!("at {}", at.offset),
                PartitionStart::Stopped(stopped) => format!("stopped {}", stopped.reason),
            };
            assert_eq!(shown, start);
            let records = decided.records.iter().map(|record| match record {
                StateRecord::Baseline(_, begin) => format!("baseline {}", begin.upstream),
                StateRecord::Gap(_, gap) => format!("gap {}..{} at {}", gap.from, gap.to, gap.at_ms),
                StateRecord::Position(_, position) => format!("position {}", position.upstream),
                other => format!("{other:?}"),
            });
            assert_eq!(records.collect::<Vec<_>>(), stored);
        };
        check(Standing::Unknown, "at 90", &["baseline 90"]);
        check(pair(70), "at 70", &[]);
        check(Standing::Offset(70), "at 70", &[]);
        check(pair(20), "at 50", &["gap 20..50 at 7", "position 50"]);
        check(pair(91), "stopped source_reset", &[]);
    }
}

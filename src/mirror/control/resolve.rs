//! Asks both clusters what decides the starts of partitions. A partition whose leader cannot be asked is left for later.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::PartitionStart;
use super::TopicRef;
use super::starts::decide;
use super::task::Flow;
use crate::client::{Cluster, Each, IsolationLevel, OffsetSpec};
use crate::mirror::OffsetReset;
use crate::mirror::start::{EpochEnd, Phase, Rules, SourceLog, TargetLog};
use crate::mirror::state::records::StateRecord;
use crate::mirror::state::{Standing, TopicPartition};

/// A partition that needs a start: itself, both sides of its topic, where it stands, and in which phase its flow is.
pub(super) type Wanted = (TopicPartition, TopicRef, TopicRef, Standing, Phase);

/// The starts that could be decided, and what must be stored before they are told.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub(super) starts: Vec<(TopicPartition, PartitionStart)>,
    pub(super) records: Vec<StateRecord>,
}

/// Decides as many of the starts as can be.
pub(super) async fn resolve(flow: &Flow, wanted: Vec<Wanted>) -> Resolved {
    let Flow { source, target, settings, .. } = flow;
    let rules =
        Rules { auto_offset_reset: settings.auto_offset_reset, on_source_reset: settings.on_source_reset };
    let partitions: Vec<TopicPartition> = wanted.iter().map(|(partition, ..)| partition.clone()).collect();
    let remotes: Vec<TopicPartition> = wanted
        .iter()
        .filter(|(_, _, _, standing, _)| matches!(standing, Standing::Pair(_)))
        .map(|(partition, _, remote, ..)| TopicPartition::new(Arc::clone(&remote.name), partition.partition))
        .collect();
    let stable = settings.fetch.isolation_level == IsolationLevel::ReadCommitted
        && settings.auto_offset_reset == OffsetReset::Latest;
    let (starts, ends, stable_ends, remote_ends, epochs) = tokio::join!(
        offsets(source, &partitions, OffsetSpec::Earliest, IsolationLevel::ReadUncommitted),
        offsets(source, &partitions, OffsetSpec::Latest, IsolationLevel::ReadUncommitted),
        async {
            let of: &[TopicPartition] = if stable { &partitions } else { &[] };
            offsets(source, of, OffsetSpec::Latest, IsolationLevel::ReadCommitted).await
        },
        offsets(target, &remotes, OffsetSpec::Latest, IsolationLevel::ReadUncommitted),
        epoch_ends(source, &wanted),
    );
    let mut resolved = Resolved::default();
    for (partition, source_topic, remote_topic, standing, phase) in wanted {
        let (Some(&log_start_offset), Some(&high_watermark)) = (starts.get(&partition), ends.get(&partition))
        else {
            continue;
        };
        let end_offset = if stable { stable_ends.get(&partition).copied() } else { Some(high_watermark) };
        let remote = TopicPartition::new(Arc::clone(&remote_topic.name), partition.partition);
        let needs_remote = matches!(standing, Standing::Pair(_));
        let remote_end = if needs_remote { remote_ends.get(&remote).copied() } else { Some(0) };
        let (Some(end_offset), Some(remote_end)) = (end_offset, remote_end) else { continue };
        let source = SourceLog {
            topic_id: source_topic.id,
            log_start_offset,
            end_offset,
            high_watermark,
            epoch_end: epochs.get(&partition).copied(),
        };
        let target = TargetLog { topic_id: remote_topic.id, end_offset: remote_end };
        let now_ms = flow.seam.now_ms();
        let decided = decide(&partition, &standing, phase, rules, &source, &target, now_ms);
        resolved.records.extend(decided.records);
        resolved.starts.push((partition, decided.start));
    }
    resolved
}

/// The offsets of those partitions that could be asked.
async fn offsets(
    cluster: &Cluster,
    partitions: &[TopicPartition],
    spec: OffsetSpec,
    isolation_level: IsolationLevel,
) -> BTreeMap<TopicPartition, i64> {
    let wanted = partitions.iter().map(|partition| ((partition.topic.clone(), partition.partition), spec));
    let listed = cluster.list_offsets(wanted, isolation_level).await;
    known(cluster, listed).map(|(partition, listed)| (partition, listed.offset)).collect()
}

/// Where the leader epochs of the last batches copied end. A source that cannot tell is believed by its log's end alone.
async fn epoch_ends(source: &Cluster, wanted: &[Wanted]) -> BTreeMap<TopicPartition, EpochEnd> {
    let epochs = wanted.iter().filter_map(|(partition, _, _, standing, _)| match standing {
        Standing::Pair(pair) if pair.leader_epoch >= 0 => {
            Some(((partition.topic.clone(), partition.partition), pair.leader_epoch))
        }
        _ => None,
    });
    let ends = source.offset_for_leader_epoch(epochs).await;
    known(source, ends)
        .filter(|(_, end)| end.end_offset >= 0)
        .map(|(partition, end)| {
            (partition, EpochEnd { leader_epoch: end.leader_epoch, end_offset: end.end_offset })
        })
        .collect()
}

fn known<V>(
    cluster: &Cluster,
    answers: Each<(Arc<str>, i32), V>,
) -> impl Iterator<Item = (TopicPartition, V)> {
    answers.into_iter().filter_map(|((topic, partition), answer)| match answer {
        Ok(value) => Some((TopicPartition::new(topic, partition), value)),
        Err(error) => {
            tracing::debug!(
                target: "kmirror::control",
                cluster = %cluster.alias(),
                %topic,
                partition,
                error = %error.chain(),
                "cannot be asked yet"
            );
            None
        }
    })
}

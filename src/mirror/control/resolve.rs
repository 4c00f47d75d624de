//! Asks both clusters what decides the starts of partitions. A partition whose leader cannot be asked is left for later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::PartitionStart;
use super::TopicRef;
use super::starts::decide;
use super::task::Flow;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::client::{Cluster, Each, IsolationLevel, OffsetSpec};
use crate::mirror::OffsetReset;
use crate::mirror::start::{EpochEnd, Phase, Rules, SourceLog, TargetLog};
use crate::mirror::state::records::StateRecord;
use crate::mirror::state::{Standing, TopicPartition};

/// How long the leaders of a group may take; what is not known then is asked again later.
const RESOLVE_WITHIN: Duration = Duration::from_secs(3);

/// A partition that needs a start: itself, both sides of its topic, where it stands, and in which phase its flow is.
pub(super) type Wanted = (TopicPartition, TopicRef, TopicRef, Standing, Phase);

/// The starts that could be decided, and what must be stored before they are told.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub(super) starts: Vec<(TopicPartition, PartitionStart)>,
    pub(super) records: Vec<StateRecord>,
}

/// Decides as many of the starts as can be. Partitions are asked for by their leaders on both sides, each group for itself,
/// so that a broker that does not answer holds up nothing but what it leads.
pub(super) async fn resolve(flow: &Flow, wanted: Vec<Wanted>) -> Resolved {
    let (source, target) = (flow.source.view(), flow.target.view());
    let mut groups: BTreeMap<(i32, i32), Vec<Wanted>> = BTreeMap::new();
    for one in wanted {
        let (partition, _, remote, ..) = &one;
        let here = source.leader(&partition.topic, partition.partition);
        // Where records are dealt out by key, a source partition may have no counterpart.
        let any = || flow.settings.group.as_ref().and_then(|_| target.leader(&remote.name, 0));
        let there = target.leader(&remote.name, partition.partition).or_else(any);
        if let (Some((here, _)), Some((there, _))) = (here, there) {
            groups.entry((here, there)).or_default().push(one);
        }
    }
    let tasks: Vec<_> = groups
        .into_values()
        .map(|group| {
            let asked = flow.clone();
            let work = async move { timeout(RESOLVE_WITHIN, resolve_group(&asked, group)).await };
            AbortOnDrop(flow.seam.spawn(work))
        })
        .collect();
    let mut resolved = Resolved::default();
    for mut task in tasks {
        if let Ok(Ok(group)) = (&mut task.0).await {
            resolved.starts.extend(group.starts);
            resolved.records.extend(group.records);
        }
    }
    resolved
}

async fn resolve_group(flow: &Flow, wanted: Vec<Wanted>) -> Resolved {
    let Flow { source, target, settings, .. } = flow;
    let partitions: Vec<TopicPartition> = wanted.iter().map(|(partition, ..)| partition.clone()).collect();
    let remotes: Vec<TopicPartition> = wanted
        .iter()
        .filter(|(_, _, _, standing, _)| matches!(standing, Standing::Pair(pair) if pair.downstream >= 0))
        .map(|(partition, _, remote, ..)| TopicPartition::new(remote.name.clone(), partition.partition))
        .collect();
    let stable = settings.fetch.isolation_level == IsolationLevel::ReadCommitted
        && settings.auto_offset_reset == OffsetReset::Latest;
    let of_stable: &[TopicPartition] = if stable { &partitions } else { &[] };
    let uncommitted = IsolationLevel::ReadUncommitted;
    let (starts, ends, stable_ends, remote_ends, epochs) = tokio::join!(
        offsets(source, &partitions, OffsetSpec::Earliest, uncommitted),
        offsets(source, &partitions, OffsetSpec::Latest, uncommitted),
        offsets(source, of_stable, OffsetSpec::Latest, IsolationLevel::ReadCommitted),
        offsets(target, &remotes, OffsetSpec::Latest, uncommitted),
        epoch_ends(source, &wanted),
    );
    let said = Said { starts, ends, stable_ends: stable.then_some(stable_ends), remote_ends, epochs };
    said.decide(flow, wanted)
}

/// What the leaders said.
struct Said {
    starts: BTreeMap<TopicPartition, i64>,
    ends: BTreeMap<TopicPartition, i64>,
    /// Only where it makes a difference.
    stable_ends: Option<BTreeMap<TopicPartition, i64>>,
    remote_ends: BTreeMap<TopicPartition, i64>,
    epochs: BTreeMap<TopicPartition, EpochEnd>,
}

impl Said {
    fn decide(&self, flow: &Flow, wanted: Vec<Wanted>) -> Resolved {
        let rules = Rules {
            auto_offset_reset: flow.settings.auto_offset_reset,
            on_source_reset: flow.settings.on_source_reset,
        };
        let now_ms = flow.seam.now_ms();
        let mut resolved = Resolved::default();
        for (partition, source_topic, remote_topic, standing, phase) in wanted {
            let Some(source) = self.source_log(&partition, &source_topic) else { continue };
            let Some(target) = self.target_log(&partition, &remote_topic, &standing) else { continue };
            let decided = decide(&partition, &standing, phase, rules, &source, &target, now_ms);
            resolved.records.extend(decided.records);
            resolved.starts.push((partition, decided.start));
        }
        resolved
    }

    fn source_log(&self, partition: &TopicPartition, topic: &TopicRef) -> Option<SourceLog> {
        let high_watermark = *self.ends.get(partition)?;
        let end_offset = match &self.stable_ends {
            Some(ends) => *ends.get(partition)?,
            None => high_watermark,
        };
        Some(SourceLog {
            topic_id: topic.id,
            log_start_offset: *self.starts.get(partition)?,
            end_offset,
            high_watermark,
            epoch_end: self.epochs.get(partition).copied(),
        })
    }

    fn target_log(
        &self,
        partition: &TopicPartition,
        topic: &TopicRef,
        standing: &Standing,
    ) -> Option<TargetLog> {
        // Only a pair has a downstream offset to compare with.
        let end_offset = match standing {
            Standing::Pair(pair) if pair.downstream >= 0 => {
                *self.remote_ends.get(&TopicPartition::new(topic.name.clone(), partition.partition))?
            }
            _ => 0,
        };
        Some(TargetLog { topic_id: topic.id, end_offset })
    }
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

/// A task that ends with whoever waits for it.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

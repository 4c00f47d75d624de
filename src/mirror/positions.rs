//! Positions of flows for people: how far each partition is, and moving those of a flow that stands still.
//!
//! Nothing is decided here about a flow that runs: whoever writes it holds its lease, and a move is refused then, and
//! while MirrorMaker's group has members. A move takes the lease itself, so that no process starts in the middle of it,
//! shuts a MirrorMaker out that may still be alive, and stores what a running flow would store: MirrorMaker's own record
//! and ours. What a move leaves between both positions is not recorded as a gap: a person wanted it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use uuid::Uuid;

use super::dry_run;
use super::lease::{Grant, Lease, LeaseState, group_id};
use super::state::records::{Position, StateRecord};
use super::state::{OpenError, Remembered, Standing, StoreOwner, TopicPartition, look};
use super::takeover;
use super::topics::diff::{Selector, Topics, topics_of};
use super::{FlowSettings, PatternList, kmirror_topic};
use crate::client::produce::Permit;
use crate::client::{Cluster, Each, Error, ListedOffset, OffsetSpec, Topics as Asked};

/// How long the lease is waited for: longer than a coordinator waits for more members of an empty group.
const LEASE_WITHIN: Duration = Duration::from_secs(15);

/// How far a flow is.
#[derive(Clone, Debug)]
pub struct FlowPositions {
    /// Alias of the source.
    pub source: Arc<str>,
    /// Alias of the target.
    pub target: Arc<str>,
    /// MirrorMaker's topic on the target.
    pub offsets_topic: String,
    /// Ours.
    pub state_topic: String,
    /// Who runs the flow now; `None` when it stands still.
    pub alive: Option<String>,
    /// Its partitions, in order; also those of topics that it copied once.
    pub partitions: BTreeMap<TopicPartition, PartitionPosition>,
    /// Topics among them that the flow does not copy now, with the reason.
    pub left_out: BTreeMap<Arc<str>, String>,
    topics: Topics,
    remotes: Topics,
}

/// How far a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionPosition {
    /// The next source offset to copy; `None` when nothing is stored.
    pub next: Option<i64>,
    /// The target offset behind the last record copied, where it is known.
    pub downstream: Option<i64>,
    /// Who stored it.
    pub stored_by: StoredBy,
    /// Log start of the source partition; `None` when it is not there or cannot be asked.
    pub log_start: Option<i64>,
    /// Its end: the last stable offset with read_committed.
    pub log_end: Option<i64>,
}

/// Who stored a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredBy {
    /// Nobody: the flow decides at its start.
    Nobody,
    /// A kmirror.
    Kmirror,
    /// A kmirror, before the first record was copied.
    KmirrorAtItsBeginning,
    /// A MirrorMaker, which knows no target offset.
    MirrorMaker,
}

impl StoredBy {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            StoredBy::Nobody => "nobody",
            StoredBy::Kmirror => "kmirror",
            StoredBy::KmirrorAtItsBeginning => "beginning",
            StoredBy::MirrorMaker => "mirrormaker",
        }
    }
}

impl PartitionPosition {
    /// Source offsets still to be copied.
    pub fn lag(&self) -> Option<i64> {
        Some((self.log_end? - self.next?.max(self.log_start?)).max(0))
    }
}

/// Where positions are to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// These partitions, to these source offsets.
    Set(BTreeMap<TopicPartition, i64>),
    /// To the log start.
    Earliest,
    /// To the end.
    Latest,
    /// To the first record that is as new as this, in ms since the epoch; to the end where there is none.
    Timestamp(i64),
}

/// The move of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The next source offset to copy.
    pub to: i64,
    /// Why it is not the offset that was asked for.
    pub note: Option<&'static str>,
}

/// What is to be moved, and what cannot be, with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// By partition.
    pub moves: BTreeMap<TopicPartition, Move>,
    /// By partition.
    pub refused: BTreeMap<TopicPartition, String>,
    /// Partitions that a change of the whole flow does not mean, since the flow does not copy them now, with the reason.
    pub skipped: BTreeMap<TopicPartition, String>,
}

/// Reads how far a flow is; of the topics that match, if any are named. Nothing is created.
///
/// # Errors
/// In words, when a cluster does not answer.
pub async fn positions(
    settings: &Arc<FlowSettings>,
    source: &Cluster,
    target: &Cluster,
    topics: Option<&PatternList>,
) -> Result<FlowPositions, String> {
    let (there, here) = tokio::join!(source.refresh(Asked::All), target.refresh(Asked::All));
    let (there, here) = (there.map_err(words)?, here.map_err(words)?);
    let alive = alive(settings, target).await?;
    let remembered = look(target, settings).await.map_err(words)?;
    let (there, here) = (topics_of(&there), topics_of(&here));
    let wanted = |topic: &str| topics.is_none_or(|topics| topics.matches(topic));
    let mut selector = Selector::new(Arc::clone(settings));
    let mut partitions: BTreeSet<TopicPartition> = remembered.partitions.keys().cloned().collect();
    for (topic, view) in there.iter().filter(|(topic, _)| selector.select(topic).is_replicated()) {
        partitions.extend((0..view.partitions).map(|index| TopicPartition::new(topic.clone(), index)));
    }
    partitions.retain(|partition| wanted(&partition.topic));
    let names: BTreeSet<&Arc<str>> = partitions.iter().map(|partition| &partition.topic).collect();
    let left_out = names.into_iter().filter_map(|topic| {
        let reason = not_copied(settings, &mut selector, &there, topic)?;
        Some((topic.clone(), reason))
    });
    let left_out = left_out.collect();
    let known = |partition: &&TopicPartition| is_there(&there, partition);
    let known: Vec<TopicPartition> = partitions.iter().filter(known).cloned().collect();
    let (starts, ends) = tokio::join!(
        offsets(settings, source, &known, OffsetSpec::Earliest),
        offsets(settings, source, &known, OffsetSpec::Latest),
    );
    let of = |offsets: &BTreeMap<TopicPartition, Result<i64, String>>, partition: &TopicPartition| {
        offsets.get(partition).and_then(|offset| offset.as_ref().ok().copied())
    };
    let partitions = partitions.into_iter().map(|partition| {
        let logs = (of(&starts, &partition), of(&ends, &partition));
        let position = position(&remembered, &partition, logs);
        (partition, position)
    });
    Ok(FlowPositions {
        source: settings.source.clone(),
        target: settings.target.clone(),
        offsets_topic: settings.offset_storage_topic.clone(),
        state_topic: kmirror_topic(&settings.source),
        alive,
        partitions: partitions.collect(),
        left_out,
        topics: there,
        remotes: here,
    })
}

fn position(
    remembered: &Remembered,
    partition: &TopicPartition,
    (log_start, log_end): (Option<i64>, Option<i64>),
) -> PartitionPosition {
    let (next, downstream, stored_by) = match remembered.standing(partition) {
        Standing::Unknown | Standing::Reset => (None, None, StoredBy::Nobody),
        Standing::Baseline(begin) => (Some(begin.upstream), None, StoredBy::KmirrorAtItsBeginning),
        Standing::Offset(next) => (Some(next), None, StoredBy::MirrorMaker),
        Standing::Pair(pair) => {
            (Some(pair.upstream), Some(pair.downstream).filter(|&offset| offset >= 0), StoredBy::Kmirror)
        }
    };
    PartitionPosition { next, downstream, stored_by, log_start, log_end }
}

fn is_there(topics: &Topics, partition: &TopicPartition) -> bool {
    topics.get(&partition.topic).is_some_and(|view| (0..view.partitions).contains(&partition.partition))
}

/// Why the flow does not copy a topic now.
fn not_copied(
    settings: &FlowSettings,
    selector: &mut Selector,
    there: &Topics,
    topic: &Arc<str>,
) -> Option<String> {
    if !there.contains_key(topic) {
        return Some(format!("{} has no such topic", settings.source));
    }
    let selection = selector.select(topic);
    if selection.is_replicated() {
        return None;
    }
    let rule = dry_run::rule(selection, settings);
    let rule = rule.unwrap_or_else(|| "it cannot be replicated (kmirror plan says why)".to_owned());
    Some(format!("the flow leaves the topic out: {rule}"))
}

/// Who runs the flow now.
async fn alive(settings: &FlowSettings, target: &Cluster) -> Result<Option<String>, String> {
    let lease = group_id(&settings.source, &settings.target);
    let described = target.describe_group(&Arc::from(lease.as_str())).await.map_err(words)?;
    let ours = described.members.len();
    if ours > 0 {
        return Ok(Some(format!("{ours} kmirror process(es) run it or stand by: group {lease}")));
    }
    let group = &settings.worker_group_id;
    // Without the right to describe MirrorMaker's group nobody can tell; a running flow goes on then, too.
    let theirs = takeover::live_workers(settings, target).await.unwrap_or_default();
    Ok((theirs > 0).then(|| format!("{theirs} worker(s) of MirrorMaker run it: group {group}")))
}

/// Decides where each partition goes. What is named goes exactly where it was sent, or is refused: an offset outside the
/// log, or a topic that the flow does not copy, is a slip. A change of the whole flow means what the flow copies.
///
/// # Errors
/// In words, when the source cannot be asked at all.
pub async fn plan(
    settings: &Arc<FlowSettings>,
    source: &Cluster,
    positions: &FlowPositions,
    change: &Change,
) -> Result<Moves, String> {
    let (mut moves, there) = meant(settings, positions, change);
    let by_time = match change {
        Change::Timestamp(timestamp) => {
            offsets(settings, source, &there, OffsetSpec::Timestamp(*timestamp)).await
        }
        Change::Set(_) | Change::Earliest | Change::Latest => BTreeMap::new(),
    };
    let (starts, ends) = tokio::join!(
        offsets(settings, source, &there, OffsetSpec::Earliest),
        offsets(settings, source, &there, OffsetSpec::Latest),
    );
    for partition in there {
        let of = |offsets: &BTreeMap<TopicPartition, Result<i64, String>>| {
            offsets.get(&partition).cloned().unwrap_or_else(|| Err("its leader did not answer".to_owned()))
        };
        let decided = (|| {
            let (start, end) = (of(&starts)?, of(&ends)?);
            match change {
                Change::Set(offsets) => exactly(offsets[&partition], start, end),
                Change::Earliest => Ok(within(start, start, end)),
                Change::Latest => Ok(within(end, start, end)),
                Change::Timestamp(_) => Ok(within(of(&by_time)?, start, end)),
            }
        })();
        match decided {
            Ok(decided) => drop(moves.moves.insert(partition, decided)),
            Err(reason) => drop(moves.refused.insert(partition, reason)),
        }
    }
    Ok(moves)
}

/// The partitions that a change means and that can be asked for; what cannot stands in the moves already.
fn meant(
    settings: &Arc<FlowSettings>,
    positions: &FlowPositions,
    change: &Change,
) -> (Moves, Vec<TopicPartition>) {
    let mut moves = Moves::default();
    let mut selector = Selector::new(Arc::clone(settings));
    let named: Vec<TopicPartition> = match change {
        Change::Set(offsets) => offsets.keys().cloned().collect(),
        Change::Earliest | Change::Latest | Change::Timestamp(_) => {
            positions.partitions.keys().cloned().collect()
        }
    };
    let mut there = Vec::new();
    for partition in named {
        let not_copied = not_copied(settings, &mut selector, &positions.topics, &partition.topic);
        let missing = || format!("{} has no such partition", settings.source);
        let gone = (!is_there(&positions.topics, &partition)).then(missing);
        match (not_copied.or(gone), change) {
            (None, _) => there.push(partition),
            (Some(reason), Change::Set(_)) => drop(moves.refused.insert(partition, reason)),
            (Some(reason), _) => drop(moves.skipped.insert(partition, reason)),
        }
    }
    (moves, there)
}

/// An offset that somebody wrote.
fn exactly(wanted: i64, start: i64, end: i64) -> Result<Move, String> {
    if wanted > end {
        return Err(format!("offset {wanted} is beyond the end of the partition, which is {end}"));
    }
    if wanted < start {
        return Err(format!("offset {wanted} is before the log start, which is {start}"));
    }
    Ok(Move { to: wanted, note: None })
}

/// The source answers -1 when no record is as new as the time that was asked for.
fn within(wanted: i64, start: i64, end: i64) -> Move {
    match wanted {
        -1 => Move { to: end, note: Some("no record is as new: the end") },
        wanted if wanted < start => Move { to: start, note: Some("before the log start: the log start") },
        wanted if wanted > end => Move { to: end, note: Some("beyond the end: the end") },
        to => Move { to, note: None },
    }
}

async fn offsets(
    settings: &FlowSettings,
    source: &Cluster,
    partitions: &[TopicPartition],
    spec: OffsetSpec,
) -> BTreeMap<TopicPartition, Result<i64, String>> {
    let wanted = partitions.iter().map(|partition| ((partition.topic.clone(), partition.partition), spec));
    let listed: Each<_, ListedOffset> = source.list_offsets(wanted, settings.fetch.isolation_level).await;
    let one = |((topic, partition), listed): ((Arc<str>, i32), Result<ListedOffset, Error>)| {
        (TopicPartition::new(topic, partition), listed.map(|listed| listed.offset).map_err(words))
    };
    listed.into_iter().map(one).collect()
}

/// Moves positions: MirrorMaker's records and ours are stored and acknowledged when this returns.
///
/// # Errors
/// In words, when the flow is alive, or the target does not take them; nothing is moved then.
pub async fn execute(
    settings: &FlowSettings,
    source: &Cluster,
    target: &Cluster,
    positions: &FlowPositions,
    moves: &BTreeMap<TopicPartition, Move>,
) -> Result<(), String> {
    let mut lease = Lease::seek(target.seam(), settings, None, target);
    let held = timeout(LEASE_WITHIN, held(&mut lease)).await;
    let done = match held {
        Ok(Ok(grant)) => {
            let permit = lease.permit();
            tokio::select! {
                biased;
                reason = lease.lost(&grant) => Err(reason),
                done = store(settings, source, target, positions, moves, permit) => done,
            }
        }
        Ok(Err(reason)) => Err(reason),
        Err(_) => Err(format!("the lease of the flow could not be had within {} s", LEASE_WITHIN.as_secs())),
    };
    lease.leave().await;
    done
}

async fn held(lease: &mut Lease) -> Result<Grant, String> {
    loop {
        match lease.state() {
            LeaseState::Held(grant) => return Ok(grant),
            LeaseState::Refused(reason) => return Err(reason),
            LeaseState::Standby { holder } => return Err(format!("{holder} writes the flow")),
            LeaseState::Seeking(_) => {}
        }
        lease.changed().await;
    }
}

async fn store(
    settings: &FlowSettings,
    source: &Cluster,
    target: &Cluster,
    positions: &FlowPositions,
    moves: &BTreeMap<TopicPartition, Move>,
    permit: Permit,
) -> Result<(), String> {
    takeover::shut_out(settings, target).await?;
    let (store, owner) = StoreOwner::open(source, target, settings).await.map_err(|error| match error {
        OpenError::Client(error) => words(error),
        error @ OpenError::OtherClusters(_) => error.to_string(),
    })?;
    let now_ms = target.seam().now_ms();
    let records = moves.iter().map(|(partition, to)| {
        let remote = settings.policy.remote_topic(&settings.source, &partition.topic);
        let id = |topics: &Topics, topic: &str| topics.get(topic).map_or(Uuid::nil(), |view| view.id);
        let position = Position {
            source_topic_id: id(&positions.topics, &partition.topic),
            target_topic_id: id(&positions.remotes, &remote),
            upstream: to.to,
            downstream: -1,
            leader_epoch: -1,
            producer_id: -1,
            producer_epoch: -1,
            at_ms: now_ms,
        };
        StateRecord::Position(partition.clone(), position)
    });
    let records = records.collect();
    let work = async {
        tokio::select! {
            biased;
            saved = store.save(records) => saved.map_err(|error| error.to_string()),
            () = owner.run(permit) => Err("the target's topics were given up".to_owned()),
        }
    };
    timeout(target.settings().default_api_timeout, work)
        .await
        .unwrap_or_else(|_| Err("the target did not take the positions in time".to_owned()))
}

fn words(error: Error) -> String {
    error.chain()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_stays_within_the_log() {
        for (wanted, is_taken) in [(10, true), (20, true), (15, true), (9, false), (21, false), (0, false)] {
            assert_eq!(exactly(wanted, 10, 20).is_ok_and(|moved| moved.to == wanted), is_taken, "{wanted}");
        }
        for (wanted, to, is_noted) in
            [(10, 10, false), (20, 20, false), (15, 15, false), (9, 10, true), (21, 20, true), (-1, 20, true)]
        {
            let moved = within(wanted, 10, 20);
            assert_eq!((moved.to, moved.note.is_some()), (to, is_noted), "{wanted}");
        }
    }
}

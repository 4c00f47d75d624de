//! Where partitions end that are not fetched now: stopped ones, and those that wait.
//!
//! What is fetched tells its ends with each answer. What is not would show the lag of the moment in which it stopped, and
//! nobody would see that it grows. So the leaders are asked for it every [`LOOK_INTERVAL`], each for all of its partitions at
//! once and for no longer than [`ASK_WITHIN`]; one that does not answer holds up nothing but what it leads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::super::engine::Watermarks;
use super::Owner;
use crate::client::{Cluster, IsolationLevel, OffsetSpec, PartitionKey};

/// How old the lag of a partition that is not fetched may be.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// How long a leader may take.
const ASK_WITHIN: Duration = Duration::from_secs(5);

/// A source partition by key, topic and number.
type Wanted = (PartitionKey, Arc<str>, i32);
type Known = Vec<(PartitionKey, Watermarks)>;

/// When the ends are looked at next, or who is asked now.
pub(super) struct Ends {
    due: Instant,
    asking: Option<JoinHandle<Known>>,
}

/// What is to be done.
pub(super) enum Look {
    /// Ask.
    Due,
    /// It was asked.
    Known(Known),
}

impl Ends {
    pub(super) fn new() -> Ends {
        Ends { due: Instant::now() + LOOK_INTERVAL, asking: None }
    }

    /// Waits until there is something to do. Nothing is lost when it is dropped and called again.
    pub(super) async fn next(&mut self) -> Look {
        let Some(task) = &mut self.asking else {
            sleep_until(self.due).await;
            return Look::Due;
        };
        // A task that was ended by the runtime has nothing to tell.
        let known = task.await.unwrap_or_default();
        self.asking = None;
        Look::Known(known)
    }
}

impl Owner {
    pub(super) fn on_ends(&mut self, look: Look) {
        match look {
            Look::Due => {
                self.ends.due = Instant::now() + LOOK_INTERVAL;
                let wanted: Vec<Wanted> = self.engine.unwatched().collect();
                if !wanted.is_empty() && self.store.is_some() {
                    let asked = ask(self.source.clone(), self.settings.fetch.isolation_level, wanted);
                    self.ends.asking = Some(self.seam.spawn(asked));
                }
            }
            Look::Known(known) => {
                known.into_iter().for_each(|(key, watermarks)| self.engine.note_ends(key, watermarks));
            }
        }
    }
}

/// The ends of those partitions whose leaders answer.
async fn ask(source: Cluster, isolation_level: IsolationLevel, wanted: Vec<Wanted>) -> Known {
    let view = source.view();
    let mut by_leader: BTreeMap<i32, Vec<Wanted>> = BTreeMap::new();
    for one in wanted {
        if let Some((leader, _)) = view.leader(&one.1, one.2) {
            by_leader.entry(leader).or_default().push(one);
        }
    }
    let asked = by_leader.into_values().map(|of_leader| {
        let asked = source.clone();
        source.seam().spawn(async move { ask_leader(&asked, isolation_level, of_leader).await })
    });
    let mut known = Known::new();
    for task in asked.collect::<Vec<_>>() {
        known.extend(task.await.unwrap_or_default());
    }
    known
}

async fn ask_leader(source: &Cluster, isolation_level: IsolationLevel, wanted: Vec<Wanted>) -> Known {
    let all: &[Wanted] = &wanted;
    let of_stable = if isolation_level == IsolationLevel::ReadCommitted { all } else { &[] };
    let uncommitted = IsolationLevel::ReadUncommitted;
    let (first, last, stable) = tokio::join!(
        offsets(source, all, OffsetSpec::Earliest, uncommitted),
        offsets(source, all, OffsetSpec::Latest, uncommitted),
        offsets(source, of_stable, OffsetSpec::Latest, IsolationLevel::ReadCommitted),
    );
    let watermarks = |(key, topic, partition): &Wanted| {
        let at = (topic.clone(), *partition);
        let high = *last.get(&at)?;
        let last_stable = if of_stable.is_empty() { high } else { *stable.get(&at)? };
        Some((*key, Watermarks { high, last_stable, log_start: *first.get(&at)? }))
    };
    wanted.iter().filter_map(watermarks).collect()
}

async fn offsets(
    source: &Cluster,
    wanted: &[Wanted],
    spec: OffsetSpec,
    isolation_level: IsolationLevel,
) -> BTreeMap<(Arc<str>, i32), i64> {
    let wanted = wanted.iter().map(|(_, topic, partition)| ((topic.clone(), *partition), spec));
    let listed = source.list_offsets_within(wanted, isolation_level, ASK_WITHIN).await;
    listed.into_iter().filter_map(|(at, listed)| Some((at, listed.ok()?.offset))).collect()
}

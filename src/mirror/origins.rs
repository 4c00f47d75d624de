//! Under which other names the target writes to the source: a loop over two files that name the clusters differently.
//!
//! Names alone keep topics from going round, and each file has names of its own: what `A->B` of one file has copied is
//! `A.orders` to `Y->X` of another, and nothing in it says that `A` is `X`. MirrorMaker copies it back as `Y.A.orders`, that as
//! `A.Y.A.orders`, until a name is too long (`MirrorSourceConnector.isCycle` knows aliases only). A kmirror leaves on the
//! cluster that it writes to which cluster it reads, by id (`FlowStart` in `mm2-kmirror.<alias>.internal`), so whoever reads
//! that cluster can tell. A topic that was copied before that record stands may get one copy too many, and no second.
//!
//! What may not be read tells nothing, and the flow goes on by names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::KMIRROR_TOPICS;
use super::state::for_each_committed;
use super::state::records::{Decoded, FlowStart, StateRecord, decode};
use crate::client::{Cluster, Error, IsolationLevel};

/// What is read of one such topic; it is compacted, and one of ten thousand partitions has less.
const TOPIC_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Rounds do not wait longer for a topic whose leader is away,
const READ_WITHIN: Duration = Duration::from_secs(3);
/// and do not try again at once.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What is known of the flows that write to the source.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// Topics that could not be read, and when they are tried again.
    later: BTreeMap<Arc<str>, Instant>,
    /// Topics that have told, or that cannot.
    known: BTreeSet<Arc<str>>,
    /// Aliases in them that are the target.
    names: BTreeSet<Arc<str>>,
}

impl Origins {
    /// Looks at topics that have not told yet. `true` when there are more names than before.
    pub(super) async fn learn(&mut self, source: &Cluster, target: &Cluster) -> bool {
        let (here, there) = (source.view(), target.view());
        let (Some(source_id), Some(target_id)) = (&here.cluster_id, &there.cluster_id) else { return false };
        let before = self.names.len();
        let topics = here.topics().map(|topic| topic.name.clone());
        let now = Instant::now();
        let is_due = |topic: &Arc<str>| self.later.get(topic).is_none_or(|&at| at <= now);
        let news: Vec<(Arc<str>, Arc<str>)> = topics
            .filter(|topic| !self.known.contains(topic) && is_due(topic))
            .filter_map(|topic| alias_in(&topic).map(|alias| (topic.clone(), Arc::<str>::from(alias))))
            // What we call it as well is a cycle by its name.
            .filter(|(_, alias)| alias != target.alias())
            .collect();
        for (topic, alias) in news {
            match timeout(READ_WITHIN, starts(source, &topic)).await {
                // Its flow has not begun yet.
                Ok(Ok(starts)) if starts.is_empty() => {}
                Ok(Ok(starts)) => {
                    self.known.insert(topic);
                    if starts.iter().any(|start| is_back(start, source_id, target_id)) {
                        self.names.insert(alias);
                    }
                }
                Ok(Err(error)) if !error.is_retriable() => {
                    tracing::debug!(target: "kmirror::control", %topic, error = %error.chain(), "cannot see who writes to the source");
                    self.known.insert(topic);
                }
                Ok(Err(_)) | Err(_) => drop(self.later.insert(topic, now + AGAIN_AFTER)),
            }
        }
        self.names.len() > before
    }

    /// A flow that runs now, from the target to the source, calls the target so.
    pub(super) fn heard(&mut self, alias: &Arc<str>, target: &Cluster) {
        if alias != target.alias() {
            self.names.insert(alias.clone());
        }
    }

    /// The aliases under which other files' flows copy from the target to the source.
    pub(super) fn names(&self) -> Arc<[Arc<str>]> {
        self.names.iter().cloned().collect()
    }
}

/// The alias in the name of a state topic.
fn alias_in(topic: &str) -> Option<&str> {
    topic.strip_prefix(KMIRROR_TOPICS)?.strip_suffix(".internal").filter(|alias| !alias.is_empty())
}

/// Whether a flow that writes to our source copies from our target.
fn is_back(start: &FlowStart, source_id: &Arc<str>, target_id: &Arc<str>) -> bool {
    let is_told = !source_id.is_empty() && !target_id.is_empty();
    is_told && start.source_cluster_id == *target_id && start.target_cluster_id == *source_id
}

async fn starts(source: &Cluster, topic: &Arc<str>) -> Result<Vec<FlowStart>, Error> {
    let logs = source.read_to_end(topic, IsolationLevel::ReadCommitted, TOPIC_BYTES_MAX).await?;
    let mut starts = Vec::new();
    for log in logs.values() {
        for_each_committed(&log.batches, |_, key, value| {
            if let Ok(Decoded::Known(_, StateRecord::FlowStart(start))) = decode(&key, value) {
                starts.push(start);
            }
        });
    }
    Ok(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_flow_from_the_target_to_the_source_is_the_way_back() {
        let start = |source: &str, target: &str| FlowStart {
            at_ms: 0,
            source_cluster_id: Arc::from(source),
            target_cluster_id: Arc::from(target),
        };
        let check =
            |source: &str, target: &str| is_back(&start(source, target), &Arc::from("s"), &Arc::from("t"));
        assert!(check("t", "s"));
        for (source, target) in [("s", "t"), ("t", "x"), ("x", "s"), ("", "s"), ("t", "")] {
            assert!(!check(source, target), "{source} {target}");
        }
        assert!(!is_back(&start("", ""), &Arc::from(""), &Arc::from("")), "ids that are not told");
    }

    #[test]
    fn state_topics_name_an_alias() {
        for (topic, alias) in [
            ("mm2-kmirror.A.internal", Some("A")),
            ("mm2-kmirror.a.b.internal", Some("a.b")),
            ("mm2-kmirror..internal", None),
            ("mm2-offsets.A.internal", None),
            ("orders", None),
        ] {
            assert_eq!(alias_in(topic), alias);
        }
    }
}

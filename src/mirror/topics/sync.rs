//! Topics' settings and ACLs, followed from the source to the target at MirrorMaker's intervals: observe, compare, apply.
//!
//! Nothing is remembered between rounds but what was said to the log, so that the next round repairs what one could not
//! do. Where a target refuses the settings of a topic as a whole they are tried one by one: the rest is applied, and what
//! was refused is reported (`/status`, and once in the log).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::{Duration, Instant, sleep_until};

use super::acls::{missing_acls, wanted_acls};
use super::configs::config_changes;
use super::diff::{Action, Selector, topics_of};
use crate::client::{Cluster, ConfigChange, Error, ErrorCode, TopicAcl};
use crate::mirror::FlowSettings;
use crate::mirror::status::SyncStatus;

/// The most topics whose settings are changed by one request.
const TOPICS_MAX: usize = 200;
/// The most refusals that a status keeps.
const REFUSALS_MAX: usize = 100;

/// What one round found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// Settings changed, or ACLs created.
    pub changed: usize,
    /// What was refused, by remote topic and, after a blank, the setting or the ACL.
    pub refused: BTreeMap<String, String>,
}

/// Which of the two is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Followed {
    /// `sync.topic.configs.*`.
    Configs,
    /// `sync.topic.acls.*`.
    Acls,
}

/// Follows both for one flow, until it is dropped.
#[derive(Debug)]
pub struct TopicSync {
    settings: Arc<FlowSettings>,
    source: Cluster,
    target: Cluster,
    selector: Selector,
    said: BTreeSet<String>,
    due: BTreeMap<Followed, Instant>,
}

impl TopicSync {
    /// For a flow; both are due at once.
    pub fn new(settings: Arc<FlowSettings>, source: Cluster, target: Cluster) -> TopicSync {
        let now = Instant::now();
        let due = [Followed::Acls, Followed::Configs]
            .into_iter()
            .filter(|&followed| interval(&settings, followed).is_some())
            .map(|followed| (followed, now))
            .collect();
        TopicSync {
            selector: Selector::new(settings.clone()),
            settings,
            source,
            target,
            said: BTreeSet::new(),
            due,
        }
    }

    /// Waits until a round is due and does it; never ends when nothing is to be followed.
    pub async fn next(&mut self, now_ms: impl Fn() -> i64) -> (Followed, SyncStatus) {
        let Some((&followed, &at)) = self.due.iter().min_by_key(|(followed, at)| (**at, **followed)) else {
            return std::future::pending().await;
        };
        sleep_until(at).await;
        let synced = match followed {
            Followed::Configs => self.configs().await,
            Followed::Acls => self.acls().await,
        };
        if let Some(interval) = interval(&self.settings, followed) {
            self.due.insert(followed, Instant::now() + interval);
        }
        let (synced, error) = match synced {
            Ok(synced) => (synced, None),
            Err(error) => (Synced::default(), Some(error)),
        };
        self.say(followed, &synced, error.as_deref());
        let refused = synced.refused.into_iter().take(REFUSALS_MAX).collect();
        (followed, SyncStatus { at_ms: now_ms(), changed: synced.changed, refused, error })
    }

    async fn configs(&mut self) -> Result<Synced, String> {
        let diff = self.selector.diff(&topics_of(&self.source.view()), &topics_of(&self.target.view()));
        let there = diff.topics.iter().filter(|topic| topic.action != Action::Create);
        let remotes: BTreeMap<Arc<str>, Arc<str>> =
            there.map(|topic| (topic.source.clone(), topic.remote.clone())).collect();
        let compared = compare_configs(&self.settings, &self.source, &self.target, &remotes).await?;
        let mut synced = apply(&self.target, compared.changes).await?;
        synced.refused.extend(compared.untold);
        Ok(synced)
    }

    async fn acls(&mut self) -> Result<Synced, String> {
        let missing = missing(&self.settings, &self.source, &self.target).await?;
        let refused = self.target.create_topic_acls(&missing).await.map_err(|error| error.chain())?;
        let changed = missing.len() - refused.len();
        let named = |acl: &TopicAcl| {
            format!("{} {} {} {}", acl.topic, acl.principal, acl.permission.name(), acl.operation.name())
        };
        let refused = refused.iter().map(|(acl, error)| (named(acl), error.chain())).collect();
        Ok(Synced { changed, refused })
    }

    /// Says what has changed, and each refusal and error once.
    fn say(&mut self, followed: Followed, synced: &Synced, error: Option<&str>) {
        let flow = format!("{}->{}", self.settings.source, self.settings.target);
        let what = match followed {
            Followed::Configs => "topic settings",
            Followed::Acls => "topic ACLs",
        };
        if synced.changed > 0 {
            tracing::info!(target: "kmirror::topics", flow, changed = synced.changed, "{what} follow the source");
        }
        for (name, reason) in &synced.refused {
            if self.said.len() < REFUSALS_MAX && self.said.insert(format!("{name}: {reason}")) {
                tracing::warn!(target: "kmirror::topics", flow, "{what} do not follow for {name}: {reason}");
            }
        }
        if let Some(error) = error
            && self.said.insert(format!("{what}: {error}"))
        {
            tracing::warn!(target: "kmirror::topics", flow, "{what} cannot be compared: {error}");
        }
    }
}

fn interval(settings: &FlowSettings, followed: Followed) -> Option<Duration> {
    match followed {
        Followed::Configs => settings.sync_topic_configs_interval,
        Followed::Acls => settings.sync_topic_acls_interval,
    }
}

/// What came of comparing the settings of topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// The changes that remote topics need.
    pub changes: BTreeMap<Arc<str>, Vec<ConfigChange>>,
    /// Remote topics whose settings one of the clusters does not tell, and why.
    pub untold: BTreeMap<String, String>,
}

/// Compares the settings of topics; `topics` are remote topics by source topic.
///
/// # Errors
/// In words, when one of the clusters does not answer at all.
pub async fn compare_configs(
    settings: &FlowSettings,
    source: &Cluster,
    target: &Cluster,
    topics: &BTreeMap<Arc<str>, Arc<str>>,
) -> Result<Compared, String> {
    let (sources, remotes): (Vec<_>, Vec<_>) = topics.iter().map(|(s, r)| (s.clone(), r.clone())).unzip();
    let (wanted, there) =
        tokio::join!(source.describe_topic_configs(&sources), target.describe_topic_configs(&remotes));
    let (wanted, there) = (wanted.map_err(|e| e.chain())?, there.map_err(|e| e.chain())?);
    let mut compared = Compared::default();
    for (source, remote) in topics {
        match (wanted.get(source), there.get(remote)) {
            (Some(Ok(wanted)), Some(Ok(there))) => {
                let changes = config_changes(settings, wanted, there);
                if !changes.is_empty() {
                    compared.changes.insert(remote.clone(), changes);
                }
            }
            (Some(Err(error)), _) | (_, Some(Err(error))) if !is_gone(error) => {
                compared.untold.insert(remote.to_string(), error.chain());
            }
            _ => {}
        }
    }
    Ok(compared)
}

/// A topic that is gone in this moment is the next round's matter.
fn is_gone(error: &Error) -> bool {
    error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
}

/// The ACLs that are missing on the target; none when one of the clusters has no authorizer.
///
/// # Errors
/// In words, when one of the clusters does not tell.
pub async fn missing(
    settings: &FlowSettings,
    source: &Cluster,
    target: &Cluster,
) -> Result<Vec<TopicAcl>, String> {
    let (wanted, there) = tokio::join!(source.describe_topic_acls(), target.describe_topic_acls());
    let (wanted, there) = (wanted.map_err(|e| e.chain())?, there.map_err(|e| e.chain())?);
    let (Some(wanted), Some(there)) = (wanted, there) else { return Ok(Vec::new()) };
    Ok(missing_acls(wanted_acls(settings, &wanted), &there))
}

/// Applies changes: of each topic together, or one by one where that is refused.
async fn apply(target: &Cluster, changes: BTreeMap<Arc<str>, Vec<ConfigChange>>) -> Result<Synced, String> {
    let mut synced = Synced::default();
    let mut alone: Vec<(Arc<str>, Vec<ConfigChange>)> = Vec::new();
    let all: Vec<(Arc<str>, Vec<ConfigChange>)> = changes.into_iter().collect();
    for part in all.chunks(TOPICS_MAX) {
        let request: BTreeMap<Arc<str>, Vec<ConfigChange>> = part.iter().cloned().collect();
        let answers = target.incremental_alter_configs(&request).await.map_err(|error| error.chain())?;
        for (topic, changes) in request {
            match answers.get(&topic) {
                Some(Ok(())) => synced.changed += changes.len(),
                Some(Err(error)) if changes.len() == 1 || error.is_retriable() => {
                    let name = changes.first().map_or("", ConfigChange::name);
                    synced.refused.insert(format!("{topic} {name}"), error.chain());
                }
                _ => alone.push((topic, changes)),
            }
        }
    }
    for (topic, changes) in alone {
        for change in changes {
            let name = format!("{topic} {}", change.name());
            let request = BTreeMap::from([(topic.clone(), vec![change])]);
            let answers = target.incremental_alter_configs(&request).await.map_err(|error| error.chain())?;
            match answers.get(&topic) {
                Some(Ok(())) => synced.changed += 1,
                Some(Err(error)) => drop(synced.refused.insert(name, error.chain())),
                None => {}
            }
        }
    }
    Ok(synced)
}

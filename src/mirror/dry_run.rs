//! What a flow would do to its target now: the same comparisons as a running flow makes, and nothing is applied.
//!
//! Both clusters are only asked. What cannot be asked (ACLs without the right to describe them) is a note and no failure,
//! as it is none for a running flow.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::groups::select::selects_group;
use super::member::GroupReader;
use super::mm2::settings::{HeartbeatSettings, OffsetSyncsLocation};
use super::origins::Origins;
use super::partitioning::{Choice, choose_all};
use super::takeover::{self, TargetState};
use super::topics::configs::{remote_configs, replication_factor};
use super::topics::diff::{Action, Selector, Topics, topics_of};
use super::topics::sync;
use super::{FlowSettings, OnPaused, PolicyKind, ReplicationPolicy, Selection, kmirror_topic};
use crate::client::{Cluster, ConfigChange, TopicAcl, Topics as Asked};

/// Everything that a flow would do, and what it would leave alone.
#[derive(Debug, Default)]
pub struct FlowPlan {
    /// Alias of the source.
    pub source: Arc<str>,
    /// Alias of the target.
    pub target: Arc<str>,
    /// The topics that are replicated, in the order of their names.
    pub topics: Vec<TopicPlan>,
    /// Topics that are left out, with the rule that says so.
    pub left_out: BTreeMap<Arc<str>, String>,
    /// Topics that are selected but cannot be replicated, with the reason.
    pub refused: BTreeMap<Arc<str>, String>,
    /// ACLs to be created.
    pub acls: Vec<TopicAcl>,
    /// Topics of MirrorMaker's and our own.
    pub internal_topics: Vec<InternalTopic>,
    /// Groups whose offsets are translated, and what they are called on the target.
    pub groups: BTreeMap<Arc<str>, String>,
    /// How many groups of the source are not.
    pub groups_left_out: usize,
    /// What could not be looked at.
    pub notes: Vec<String>,
}

/// A topic that is replicated.
#[derive(Debug)]
pub struct TopicPlan {
    /// At the source.
    pub source: Arc<str>,
    /// On the target.
    pub remote: Arc<str>,
    /// Partitions at the source.
    pub partitions: i32,
    /// What happens to it.
    pub change: TopicChange,
    /// How its settings change, when it is there.
    pub configs: Vec<ConfigChange>,
    /// Which partitions its records go to, and why, where MirrorMaker 1 copies.
    pub partitioning: Option<Choice>,
}

/// What happens to a topic on the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicChange {
    /// It is created.
    Create {
        /// With so many replicas.
        replication_factor: i16,
        /// And these settings.
        configs: BTreeMap<String, String>,
    },
    /// It gets more partitions.
    Grow {
        /// What it has.
        from: i32,
    },
    /// It stays.
    Keep,
}

/// A topic that the flow keeps for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalTopic {
    /// Alias of the cluster that it is on.
    pub cluster: Arc<str>,
    /// Its name.
    pub name: String,
    /// Whether it is there.
    pub is_there: bool,
}

impl FlowPlan {
    /// Whether the flow would change anything on the target.
    pub fn has_changes(&self) -> bool {
        self.topics.iter().any(TopicPlan::is_changed)
            || !self.acls.is_empty()
            || self.internal_topics.iter().any(|topic| !topic.is_there)
    }
}

impl TopicPlan {
    /// Whether anything about it changes.
    pub fn is_changed(&self) -> bool {
        self.change != TopicChange::Keep || !self.configs.is_empty()
    }
}

/// Compares both clusters of a flow. `heartbeats` are those of the whole process: what is written on the source by another
/// flow's pair is copied like any other topic.
///
/// # Errors
/// In words, when a cluster does not answer.
pub async fn plan_flow(
    settings: &Arc<FlowSettings>,
    heartbeats: &[HeartbeatSettings],
    source: &Cluster,
    target: &Cluster,
) -> Result<FlowPlan, String> {
    let (there, here) = tokio::join!(source.refresh(Asked::All), target.refresh(Asked::All));
    let (there, here) = (there.map_err(|error| error.chain())?, here.map_err(|error| error.chain())?);
    if let Some(reason) = same_cluster(settings, there.cluster_id.as_deref(), here.cluster_id.as_deref()) {
        return Err(reason);
    }
    let (topics, remotes) = (topics_of(&there), topics_of(&here));
    let mut origins = Origins::default();
    if settings.group.is_none() {
        origins.learn(source, target).await;
    }
    let settings = &Arc::new(FlowSettings { target_names: origins.names(), ..(**settings).clone() });
    let mut selector = Selector::new(settings.clone());
    let mut diff = selector.diff(&topics, &remotes);
    let choices = match &settings.group {
        Some(group) => {
            let kept = GroupReader::new(source, &group.group_id).partitionings().await;
            let kept = kept.map_err(|error| error.chain())?;
            choose_all(&mut diff, group.partitioning, &kept)
        }
        None => BTreeMap::new(),
    };
    let left_out = topics.keys().filter_map(|topic| {
        let rule = rule(selector.select(topic), settings)?;
        Some((topic.clone(), rule))
    });
    let mut plan = FlowPlan {
        source: settings.source.clone(),
        target: settings.target.clone(),
        left_out: left_out.collect(),
        refused: diff.refused.clone(),
        internal_topics: internal_topics(settings, heartbeats, &mut selector, &topics, &remotes),
        ..FlowPlan::default()
    };
    plan_topics(&mut plan, settings, source, target, &diff.topics, here.brokers.len()).await?;
    for topic in &mut plan.topics {
        topic.partitioning = choices.get(&topic.source).copied();
    }
    if settings.translation.emit_checkpoints_interval.is_some() {
        plan_groups(&mut plan, settings, source).await;
    }
    plan.notes.extend(stands_still(settings, target).await);
    if settings.sync_topic_acls_interval.is_some() {
        match sync::missing(settings, source, target).await {
            Ok(acls) => plan.acls = acls,
            Err(error) => plan.notes.push(format!("ACLs cannot be compared: {error}")),
        }
    }
    Ok(plan)
}

async fn plan_topics(
    plan: &mut FlowPlan,
    settings: &FlowSettings,
    source: &Cluster,
    target: &Cluster,
    topics: &[super::topics::diff::TopicDiff],
    live_brokers: usize,
) -> Result<(), String> {
    let created: Vec<Arc<str>> = topics
        .iter()
        .filter(|topic| topic.action == Action::Create)
        .map(|topic| topic.source.clone())
        .collect();
    let configs = source.describe_topic_configs(&created).await.map_err(|error| error.chain())?;
    let followed: BTreeMap<Arc<str>, Arc<str>> = topics
        .iter()
        .filter(|topic| topic.action != Action::Create && settings.sync_topic_configs_interval.is_some())
        .map(|topic| (topic.source.clone(), topic.remote.clone()))
        .collect();
    let mut changes = sync::compare_configs(settings, source, target, &followed).await?.changes;
    for topic in topics {
        let change = match topic.action {
            Action::Create => TopicChange::Create {
                replication_factor: replication_factor(settings.replication_factor, live_brokers),
                configs: match configs.get(&topic.source) {
                    Some(Ok(entries)) => remote_configs(settings, entries),
                    _ => BTreeMap::new(),
                },
            },
            Action::Grow { there } => TopicChange::Grow { from: there.partitions },
            Action::Keep(_) => TopicChange::Keep,
        };
        plan.topics.push(TopicPlan {
            source: topic.source.clone(),
            remote: topic.remote.clone(),
            partitions: topic.view.partitions,
            change,
            configs: changes.remove(&topic.remote).unwrap_or_default(),
            partitioning: None,
        });
    }
    Ok(())
}

/// A connector of MirrorMaker that is paused or stopped, which the flow would honour.
async fn stands_still(settings: &FlowSettings, target: &Cluster) -> Option<String> {
    let (connector, topic) = (&settings.connectors.source, &settings.config_storage_topic);
    if settings.on_paused == OnPaused::Ignore {
        return None;
    }
    match takeover::read_worker_config(settings, target).await.map(|config| config.target_state(connector)) {
        Ok(TargetState::Started) => None,
        Ok(state) => Some(format!(
            "the flow would stand still: MirrorMaker's {connector} is {} ({topic}); kmirror.on.paused = ignore runs it",
            state.name()
        )),
        Err(error) => Some(format!("whether MirrorMaker is paused cannot be seen: {}", error.chain())),
    }
}

async fn plan_groups(plan: &mut FlowPlan, settings: &FlowSettings, source: &Cluster) {
    let (listed, errors) = match source.list_groups().await {
        Ok(listed) => listed,
        Err(error) => {
            plan.notes.push(format!("groups cannot be listed: {}", error.chain()));
            return;
        }
    };
    plan.notes.extend(errors.iter().map(|error| format!("not all groups are known: {}", error.chain())));
    for group in &listed {
        if selects_group(settings, group) {
            plan.groups.insert(group.id.clone(), settings.remote_group(&group.id));
        } else {
            plan.groups_left_out += 1;
        }
    }
}

/// The topics that a flow keeps for itself, and `heartbeats` with what becomes of them: they may be there on neither side yet.
fn internal_topics(
    settings: &FlowSettings,
    heartbeats: &[HeartbeatSettings],
    selector: &mut Selector,
    topics: &Topics,
    remotes: &Topics,
) -> Vec<InternalTopic> {
    let (source, target) = (&settings.source, &settings.target);
    let translation = &settings.translation;
    let mut names = match settings.group {
        // Positions are the source group's offsets.
        Some(_) => Vec::new(),
        None => vec![(target, settings.offset_storage_topic.clone()), (target, kmirror_topic(source))],
    };
    if translation.emit_checkpoints_interval.is_some() {
        names.push((target, settings.policy.checkpoints_topic(source)));
    }
    if translation.offset_syncs.is_some() {
        names.push(match translation.offset_syncs_location {
            OffsetSyncsLocation::Source => (source, settings.policy.offset_syncs_topic(target)),
            OffsetSyncsLocation::Target => (target, settings.policy.offset_syncs_topic(source)),
        });
    }
    let name = ReplicationPolicy::default().heartbeats_topic();
    if heartbeats.iter().any(|pair| pair.source == *source && pair.target == *target) {
        names.push((target, name.to_owned()));
    }
    let comes_to_be = heartbeats.iter().any(|pair| pair.target == *source) && !topics.contains_key(name);
    if comes_to_be && selector.select(&Arc::from(name)).is_replicated() {
        names.push((target, settings.policy.remote_topic(source, name)));
    }
    let there = |cluster: &Arc<str>, name: &str| {
        if cluster == source { topics.contains_key(name) } else { remotes.contains_key(name) }
    };
    names
        .into_iter()
        .map(|(cluster, name)| InternalTopic {
            cluster: cluster.clone(),
            is_there: there(cluster, &name),
            name,
        })
        .collect()
}

/// The heartbeats of a pair whose flow is off: MirrorMaker writes them all the same, and so does a run.
///
/// # Errors
/// In words, when the cluster does not answer.
pub async fn plan_heartbeats(pair: &HeartbeatSettings, target: &Cluster) -> Result<FlowPlan, String> {
    let here = topics_of(&*target.refresh(Asked::All).await.map_err(|error| error.chain())?);
    let name = ReplicationPolicy::default().heartbeats_topic();
    let topic = InternalTopic {
        cluster: pair.target.clone(),
        is_there: here.contains_key(name),
        name: name.to_owned(),
    };
    let (source, target) = (pair.source.clone(), pair.target.clone());
    Ok(FlowPlan { source, target, internal_topics: vec![topic], ..FlowPlan::default() })
}

/// Why a topic is left out; `None` when it is replicated, or refused with a reason of its own.
pub(super) fn rule(selection: &Selection, settings: &FlowSettings) -> Option<String> {
    match selection {
        Selection::Replicated | Selection::Heartbeats => None,
        Selection::NameTooLong { .. } | Selection::MatchGivenUp | Selection::ComesBack { .. } => None,
        Selection::NotMatched => Some("topics does not name it".to_owned()),
        Selection::Excluded => Some("topics.exclude names it".to_owned()),
        Selection::Internal => Some("it is internal".to_owned()),
        Selection::Elsewhere { holder } => Some(format!("{holder} takes it")),
        Selection::Cycle { alias } if *alias == *settings.target => {
            Some(format!("a cycle: it came from {alias}"))
        }
        Selection::Cycle { alias } if settings.target_names.iter().any(|name| **name == **alias) => {
            Some(format!("a cycle: it came from {}, which another file calls {alias}", settings.target))
        }
        Selection::Cycle { alias } => Some(format!("a cycle: its name carries {alias}")),
    }
}

/// Two aliases of one cluster: a flow between them would read again what it writes.
pub fn same_cluster(settings: &FlowSettings, source: Option<&str>, target: Option<&str>) -> Option<String> {
    let id = source.filter(|id| !id.is_empty() && Some(*id) == target)?;
    let what = if matches!(settings.policy.kind, PolicyKind::Identity | PolicyKind::Same) {
        "it would write each record behind itself"
    } else {
        "what it writes there it would read again"
    };
    Some(format!(
        "{} and {} are two names of one cluster ({id}): {what}; look at their bootstrap.servers",
        settings.source, settings.target
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cluster_under_two_names_is_refused() {
        let settings = FlowSettings::new("A", "B");
        for (source, target, refused) in [
            (Some("x"), Some("x"), true),
            (Some("x"), Some("y"), false),
            (Some(""), Some(""), false),
            (None, None, false),
            (Some("x"), None, false),
        ] {
            assert_eq!(same_cluster(&settings, source, target).is_some(), refused, "{source:?} {target:?}");
        }
    }
}

//! Creates and grows remote topics, and asks what they take.
//!
//! Each answers by topic: what fails for one topic fails for it alone. A topic that is there already is as good as
//! created. A setting that the target refuses is left out with a warning, because other releases and managed clusters do
//! not know or allow them all; the topic is worth more than the setting.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::configs::{refused_config, remote_configs, replication_factor, target_limits};
use super::diff::TopicDiff;
use crate::client::{Cluster, Error, ErrorCode, NewTopic};
use crate::mirror::plan::TargetLimits;
use crate::mirror::{FlowSettings, ReplicationFactor};

/// Settings that are left out for one topic before its creation is given up.
const REFUSED_CONFIGS_MAX: usize = 32;

/// INVALID_CONFIG, INVALID_REQUEST and POLICY_VIOLATION: how releases and managed clusters say that a setting is the fault.
const CONFIG_REFUSALS: [ErrorCode; 3] = [ErrorCode(40), ErrorCode(42), ErrorCode(44)];

/// Reasons by source topic.
pub type Failures = BTreeMap<Arc<str>, String>;

/// Creates remote topics; answers with those that could not be created.
pub async fn create_topics(
    source: &Cluster,
    target: &Cluster,
    settings: &FlowSettings,
    topics: &[TopicDiff],
) -> Failures {
    let mut failures = Failures::new();
    if topics.is_empty() {
        return failures;
    }
    let live_brokers = target.view().brokers.len();
    let names: Vec<Arc<str>> = topics.iter().map(|topic| topic.source.clone()).collect();
    let configs = match source.describe_topic_configs(&names).await {
        Ok(configs) => configs,
        Err(error) => return topics.iter().map(|topic| (topic.source.clone(), error.chain())).collect(),
    };
    let mut wanted: BTreeMap<Arc<str>, (Arc<str>, NewTopic)> = BTreeMap::new();
    for topic in topics {
        match configs.get(&topic.source) {
            Some(Ok(entries)) => {
                let configs = remote_configs(settings, entries);
                let mut new = new_topic(settings, live_brokers, topic, configs);
                // Where two topics go into one, it is as large as the larger.
                if let Some((_, other)) = wanted.get(&topic.remote) {
                    new.partitions = new.partitions.max(other.partitions);
                }
                wanted.insert(topic.remote.clone(), (topic.source.clone(), new));
            }
            Some(Err(error)) => {
                failures.insert(topic.source.clone(), error.chain());
            }
            None => {
                let reason = "the source does not tell its settings".to_owned();
                failures.insert(topic.source.clone(), reason);
            }
        }
    }
    for _ in 0..=REFUSED_CONFIGS_MAX {
        if wanted.is_empty() {
            return failures;
        }
        wanted = create_once(target, wanted, &mut failures).await;
    }
    for (source, _) in wanted.into_values() {
        failures.insert(source, "the target refuses too many of its settings".to_owned());
    }
    failures
}

/// Adds partitions to remote topics; answers with those that could not be grown.
pub async fn grow_topics(target: &Cluster, topics: &[TopicDiff]) -> Failures {
    let mut failures = Failures::new();
    if topics.is_empty() {
        return failures;
    }
    let wanted: BTreeMap<Arc<str>, i32> =
        topics.iter().map(|topic| (topic.remote.clone(), topic.view.partitions)).collect();
    let answers = match target.create_partitions(&wanted).await {
        Ok(answers) => answers,
        Err(error) => return topics.iter().map(|topic| (topic.source.clone(), error.chain())).collect(),
    };
    for topic in topics {
        match answers.get(&topic.remote) {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                failures.insert(topic.source.clone(), error.chain());
            }
            None => {
                failures.insert(topic.source.clone(), left_out(&topic.remote));
            }
        }
    }
    failures
}

/// What remote topics take. One that cannot be asked is not among them.
pub async fn describe_limits(target: &Cluster, remotes: &[Arc<str>]) -> BTreeMap<Arc<str>, TargetLimits> {
    match target.describe_topic_configs(remotes).await {
        Ok(answers) => answers
            .into_iter()
            .filter_map(|(topic, entries)| Some((topic, target_limits(&entries.ok()?))))
            .collect(),
        Err(error) => {
            tracing::warn!(
                target: "kmirror::topics",
                cluster = %target.alias(),
                error = %error.chain(),
                "cannot see what the remote topics take; Kafka's defaults are assumed"
            );
            BTreeMap::new()
        }
    }
}

fn new_topic(
    settings: &FlowSettings,
    live_brokers: usize,
    topic: &TopicDiff,
    configs: BTreeMap<String, String>,
) -> NewTopic {
    NewTopic {
        name: topic.remote.clone(),
        partitions: topic.view.partitions,
        replication_factor: replication_factor(settings.replication_factor, live_brokers),
        configs,
    }
}

/// Warns once where a default replication factor was lowered.
pub fn warn_lowered(key: &str, wanted: ReplicationFactor, live_brokers: usize) {
    if let ReplicationFactor::Default(factor) = wanted
        && replication_factor(wanted, live_brokers) < factor
    {
        tracing::warn!(
            target: "kmirror::topics",
            "{key} is {factor} by default, but the target has {live_brokers} live broker(s): lowered to that"
        );
    }
}

/// One try; answers with the topics to try once more, without the setting that was refused.
async fn create_once(
    target: &Cluster,
    wanted: BTreeMap<Arc<str>, (Arc<str>, NewTopic)>,
    failures: &mut Failures,
) -> BTreeMap<Arc<str>, (Arc<str>, NewTopic)> {
    let topics: Vec<NewTopic> = wanted.values().map(|(_, topic)| topic.clone()).collect();
    let answers = match target.create_topics(&topics).await {
        Ok(answers) => answers,
        Err(error) => {
            failures.extend(wanted.into_values().map(|(source, _)| (source, error.chain())));
            return BTreeMap::new();
        }
    };
    let mut again = BTreeMap::new();
    for (remote, (source, mut topic)) in wanted {
        let error = match answers.get(&remote) {
            Some(Ok(_)) => continue,
            Some(Err(error)) => error,
            None => {
                failures.insert(source, left_out(&remote));
                continue;
            }
        };
        if error.code() == Some(ErrorCode::TOPIC_ALREADY_EXISTS) {
            continue;
        }
        match refused(error, &topic.configs) {
            Some(name) => {
                tracing::warn!(
                    target: "kmirror::topics",
                    topic = %remote,
                    setting = %name,
                    error = %error.chain(),
                    "the target refuses a setting of the source; the topic is created without it"
                );
                topic.configs.remove(&name);
                again.insert(remote, (source, topic));
            }
            None => {
                failures.insert(source, error.chain());
            }
        }
    }
    again
}

fn refused(error: &Error, configs: &BTreeMap<String, String>) -> Option<String> {
    error.code().filter(|code| CONFIG_REFUSALS.contains(code))?;
    refused_config(configs, &error.to_string())
}

fn left_out(remote: &str) -> String {
    format!("the target's answer leaves out {remote}")
}

//! Asks the target about MirrorMaker's workers, and shuts out what may still be alive of them.
//!
//! A worker that was cut off from its group goes on appending under its tasks' transactional ids until somebody takes
//! the next epoch of each (KIP-618), and a transaction that it left open holds back every reader of the topics in it, also
//! of its positions. So each id is fenced before they are read, which aborts what is open; and never while the group has
//! members, for it would kill a MirrorMaker that is well.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::transactions::of_flow;
use super::worker_config::WorkerConfig;
use crate::client::{Cluster, Error, IsolationLevel};
use crate::mirror::FlowSettings;
use crate::mirror::state::for_each_committed;

/// What the config topic of workers may hold; compacted, one of a thousand connectors has less.
const TOPIC_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What the workers' config topic says; nothing when there is no such topic.
///
/// # Errors
/// When it cannot be read whole.
pub async fn read_worker_config(settings: &FlowSettings, target: &Cluster) -> Result<WorkerConfig, Error> {
    let topic: Arc<str> = Arc::from(settings.config_storage_topic.as_str());
    let mut config = WorkerConfig::default();
    let logs = match target.read_to_end(&topic, IsolationLevel::ReadCommitted, TOPIC_BYTES_MAX).await {
        Ok(logs) => logs,
        Err(Error::Unknown { .. }) => return Ok(config),
        Err(error) => return Err(error),
    };
    for log in logs.values() {
        for_each_committed(&log.batches, |_, key, value| config.apply(&key, value));
    }
    Ok(config)
}

/// How many workers copy the flow, or may at any moment.
///
/// # Errors
/// When their group cannot be described.
pub async fn live_workers(settings: &FlowSettings, target: &Cluster) -> Result<usize, Error> {
    let described = target.describe_group(&Arc::from(settings.worker_group_id.as_str())).await?;
    Ok(settings.workers.alive(&described.members, &settings.connectors.source))
}

/// The transactional ids of MirrorMaker's workers and tasks: those that the target lists, and those that its workers have
/// noted, since a target does not list what we may not describe, and none before 3.0 does.
pub async fn transactional_ids(
    settings: &FlowSettings,
    target: &Cluster,
    config: &WorkerConfig,
) -> BTreeSet<Arc<str>> {
    let (group, connectors) = (&settings.worker_group_id, &settings.connectors);
    let noted = config.task_transactional_ids(group, connectors);
    let mut ids: BTreeSet<Arc<str>> = noted.into_iter().map(Arc::from).collect();
    match target.list_transactional_ids().await {
        Ok((listed, errors)) => {
            ids.extend(of_flow(&listed, group, connectors));
            for error in errors {
                tracing::debug!(target: "kmirror::takeover", error = %error.chain(), "a broker does not list transactional ids");
            }
        }
        Err(error) => {
            tracing::debug!(target: "kmirror::takeover", error = %error.chain(), "transactional ids cannot be listed");
        }
    }
    ids
}

/// How MirrorMaker's transactions stand, in words for the log; nothing when there are none.
pub async fn describe(settings: &FlowSettings, target: &Cluster) -> Vec<String> {
    let config = read_worker_config(settings, target).await.unwrap_or_default();
    let mut words = Vec::new();
    for id in transactional_ids(settings, target, &config).await {
        match target.describe_transaction(&id).await {
            Ok(Some(one)) => words.push(format!("{id} is {} (epoch {})", one.state, one.producer_epoch)),
            Ok(None) => {}
            Err(error) => words.push(format!("{id}: {}", error.chain())),
        }
    }
    words
}

/// Takes the next epoch of each id; what they left open is aborted when this returns. An id that we may not write is named
/// in the log, and left as it is.
///
/// # Errors
/// What may pass, and has not within `default.api.timeout.ms`.
pub async fn fence(target: &Cluster, ids: &BTreeSet<Arc<str>>) -> Result<(), Error> {
    for id in ids {
        match target.init_producer_id(Some(id)).await {
            Ok((producer_id, producer_epoch)) => {
                tracing::info!(target: "kmirror::takeover", %id, producer_id, producer_epoch, "fenced a transactional id of MirrorMaker");
            }
            Err(error) if error.is_retriable() => return Err(error),
            Err(error) => {
                tracing::warn!(
                    target: "kmirror::takeover",
                    %id,
                    error = %error.chain(),
                    "cannot fence a transactional id of MirrorMaker: should a worker of it still be alive, cut off from its \
                     group, it could append as well"
                );
            }
        }
    }
    Ok(())
}

/// Finds MirrorMaker's transactional ids and fences them, unless its group has members. For a single turn: whoever goes on
/// trying does so by parts.
///
/// # Errors
/// In words.
pub async fn shut_out(settings: &FlowSettings, target: &Cluster) -> Result<(), String> {
    let members = live_workers(settings, target).await.unwrap_or_default();
    if let Some(reason) = super::while_running(&settings.worker_group_id, members) {
        return Err(reason);
    }
    let config = read_worker_config(settings, target).await.map_err(|error| error.chain())?;
    let ids = transactional_ids(settings, target, &config).await;
    fence(target, &ids).await.map_err(|error| error.chain())
}

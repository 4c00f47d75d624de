//! A connector that somebody has paused or stopped in MirrorMaker's config topic: its flow stands still, from the start on
//! or from then on, until it is resumed there.
//!
//! While the flow runs only the topic's end is asked for; the topic is read when it has moved. What may not be read tells
//! nothing, as at the start.

use std::sync::Arc;

use tokio::time::sleep;

use super::task::{End, Flow, Mailbox};
use crate::client::{IsolationLevel, OffsetSpec, TopicPartition};
use crate::mirror::OnPaused;
use crate::mirror::takeover::{self, PAUSED_INTERVAL, TargetState};

/// A connector of MirrorMaker that somebody has paused or stopped was not to copy anything, and neither is its successor.
pub(super) async fn stand_while_paused(flow: &Flow, mailbox: &mut Mailbox) -> Option<End> {
    if flow.settings.on_paused == OnPaused::Ignore {
        return None;
    }
    let (connector, topic) = (&flow.settings.connectors.source, &flow.settings.config_storage_topic);
    let resumed = async {
        let mut has_said = false;
        let mut failures = 0;
        loop {
            let config = match takeover::read_worker_config(&flow.settings, &flow.target).await {
                Ok(config) => config,
                Err(error) if error.is_retriable() => {
                    tracing::warn!(target: "kmirror::control", flow = %flow.name(), topic, error = %error.chain(), "cannot see yet whether MirrorMaker is paused");
                    sleep(flow.target.settings().retry_backoff.delay(failures, flow.seam.random())).await;
                    failures += 1;
                    continue;
                }
                Err(error) => {
                    tracing::warn!(target: "kmirror::control", flow = %flow.name(), topic, error = %error.chain(), "cannot see whether MirrorMaker is paused");
                    return;
                }
            };
            let Some(state) = takeover::paused(connector, topic, config.target_state(connector)) else {
                return;
            };
            if !has_said {
                tracing::warn!(
                    target: "kmirror::control",
                    flow = %flow.name(),
                    "MirrorMaker's {connector} is {} ({topic}), so this flow stands still; resume it there, or set \
                     kmirror.on.paused = ignore",
                    config.target_state(connector).name()
                );
                has_said = true;
            }
            flow.state(state).await;
            sleep(PAUSED_INTERVAL).await;
        }
    };
    tokio::select! {
        biased;
        () = mailbox.stop() => Some(End::Stopped),
        () = resumed => None,
    }
}

/// Ends when the connector is paused while the flow runs, with the reason.
pub(super) async fn paused_meanwhile(flow: &Flow) -> String {
    if flow.settings.on_paused == OnPaused::Ignore {
        return std::future::pending().await;
    }
    let connector = &flow.settings.connectors.source;
    let mut seen = None;
    loop {
        let end = end_of_config(flow).await;
        if end.is_some() && end != seen {
            match takeover::read_worker_config(&flow.settings, &flow.target).await {
                Ok(config) if config.target_state(connector) != TargetState::Started => {
                    let state = config.target_state(connector).name();
                    return format!("MirrorMaker's {connector} is {state}");
                }
                Ok(_) => seen = end,
                Err(error) => {
                    tracing::debug!(target: "kmirror::control", flow = %flow.name(), error = %error.chain(), "cannot see whether MirrorMaker is paused");
                }
            }
        }
        sleep(PAUSED_INTERVAL).await;
    }
}

/// Where the workers' config topic ends, if there is one; it has one partition (`KafkaConfigBackingStore.java`).
async fn end_of_config(flow: &Flow) -> Option<i64> {
    let topic: Arc<str> = Arc::from(flow.settings.config_storage_topic.as_str());
    flow.target.view().topic(&topic)?;
    let at: TopicPartition = (topic, 0);
    let listed =
        flow.target.list_offsets([(at.clone(), OffsetSpec::Latest)], IsolationLevel::ReadUncommitted);
    listed.await.remove(&at)?.ok().map(|listed| listed.offset)
}

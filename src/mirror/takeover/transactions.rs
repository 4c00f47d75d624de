//! Transactional ids of MirrorMaker's workers and tasks, and which of them are to be fenced.
//!
//! Pure. With `exactly.once.source.support` each task of a connector appends under `<group>-<connector>-<task>`
//! (`Worker.taskTransactionalId`), and the leader of the workers writes their config topic under `connect-cluster-<group>`
//! (`DistributedConfig.transactionalProducerId`).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::mirror::state::mm2_offsets::SOURCE_CONNECTOR;

/// What MirrorMaker's connectors are called where they ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connectors {
    /// The one that copies records.
    pub source: Arc<str>,
    /// The one that translates offsets of groups.
    pub checkpoint: Arc<str>,
    /// The one that writes heartbeats.
    pub heartbeat: Arc<str>,
}

impl Default for Connectors {
    /// In a MirrorMaker of its own each is called as its class (`MirrorMaker.CONNECTOR_CLASSES`).
    fn default() -> Connectors {
        Connectors {
            source: Arc::from(SOURCE_CONNECTOR),
            checkpoint: Arc::from("MirrorCheckpointConnector"),
            heartbeat: Arc::from("MirrorHeartbeatConnector"),
        }
    }
}

impl Connectors {
    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [&*self.source, &*self.checkpoint, &*self.heartbeat].into_iter()
    }
}

/// Which of the transactional ids of a cluster are MirrorMaker's for one flow.
pub fn of_flow<'a>(
    listed: impl IntoIterator<Item = &'a Arc<str>>,
    group: &str,
    connectors: &Connectors,
) -> BTreeSet<Arc<str>> {
    let leader = format!("connect-cluster-{group}");
    let is_task = |id: &str| {
        connectors.names().any(|connector| {
            let task = id.strip_prefix(group).and_then(|rest| rest.strip_prefix('-'));
            let task =
                task.and_then(|rest| rest.strip_prefix(connector)).and_then(|rest| rest.strip_prefix('-'));
            task.is_some_and(|task| !task.is_empty() && task.bytes().all(|byte| byte.is_ascii_digit()))
        })
    };
    listed.into_iter().filter(|id| ***id == *leader || is_task(id)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_of_the_flows_workers_are_its() {
        let listed: Vec<Arc<str>> = [
            "A-mm2-MirrorSourceConnector-0",
            "A-mm2-MirrorSourceConnector-17",
            "A-mm2-MirrorCheckpointConnector-0",
            "A-mm2-MirrorHeartbeatConnector-0",
            "connect-cluster-A-mm2",
            "A-mm2-MirrorSourceConnector-",
            "A-mm2-MirrorSourceConnector-0x",
            "A-mm2-MirrorSourceConnector",
            "A-mm2-other-0",
            "C-mm2-MirrorSourceConnector-0",
            "connect-cluster-C-mm2",
            "AA-mm2-MirrorSourceConnector-0",
            "an-application",
        ]
        .map(Arc::from)
        .to_vec();
        let found: Vec<_> = of_flow(&listed, "A-mm2", &Connectors::default()).into_iter().collect();
        let mut expected = listed[..5].to_vec();
        expected.sort();
        assert_eq!(found, expected);
        let own = Connectors { source: Arc::from("other"), ..Connectors::default() };
        assert!(of_flow(&listed, "A-mm2", &own).contains("A-mm2-other-0"));
    }
}

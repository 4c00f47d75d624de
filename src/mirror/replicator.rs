//! All flows of a process, and the clusters that they share.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::budget::Budget;
use super::flow::Flow;
use super::heartbeats::Heartbeats;
use super::settings::ProcessSettings;
use super::status::{ReplicatorStatus, TlsStatus};
use crate::client::Cluster;
use crate::net::tls::Tls;
use crate::seam::Seam;

/// A running replicator.
pub struct Replicator {
    seam: Seam,
    budget: Arc<Budget>,
    flows: Vec<Flow>,
    heartbeats: Vec<Heartbeats>,
    tls: BTreeMap<Arc<str>, Arc<Tls>>,
}

impl Replicator {
    /// Starts every flow of `settings`.
    pub fn start(seam: Seam, settings: ProcessSettings) -> Replicator {
        let budget = Arc::new(Budget::new(settings.memory_budget_bytes));
        let tls = settings.clusters.iter();
        let tls =
            tls.filter_map(|(alias, settings)| Some((alias.clone(), settings.net.security.tls.clone()?)));
        let tls = tls.collect();
        let clusters: BTreeMap<Arc<str>, Cluster> = settings
            .clusters
            .into_iter()
            .map(|(alias, settings)| (alias, Cluster::new(seam.clone(), settings)))
            .collect();
        let mut flows = Vec::new();
        let mut writes = BTreeMap::new();
        for flow in settings.flows {
            let (Some(source), Some(target)) = (clusters.get(&flow.source), clusters.get(&flow.target))
            else {
                tracing::error!(source = %flow.source, target = %flow.target, "a flow names a cluster without settings");
                continue;
            };
            let (source, target, budget) = (source.clone(), target.clone(), budget.clone());
            let pair = (flow.source.clone(), flow.target.clone());
            let flow = Flow::start(&seam, flow, source, target, budget, settings.takeover_timeout);
            writes.insert(pair, flow.writes());
            flows.push(flow);
        }
        let heartbeats = settings.heartbeats.into_iter().filter_map(|pair| {
            let there = writes.get(&(pair.source.clone(), pair.target.clone()));
            let back = || writes.get(&(pair.target.clone(), pair.source.clone()));
            let writes = there.or_else(back).cloned();
            let target = clusters.get(&pair.target)?;
            Some(Heartbeats::start(&seam, pair, target, writes))
        });
        let heartbeats = heartbeats.collect();
        Replicator { seam, budget, flows, heartbeats, tls }
    }

    /// Everything at this moment.
    pub async fn status(&self) -> ReplicatorStatus {
        let mut status = ReplicatorStatus {
            now_ms: self.seam.now_ms(),
            budget_bytes: self.budget.limit_bytes() as u64,
            budget_used_bytes: self.budget.used_bytes() as u64,
            tls: self
                .tls
                .iter()
                .map(|(alias, tls)| TlsStatus::new(alias, tls.certificates(), tls.trouble()))
                .collect(),
            flows: Vec::new(),
            heartbeats: self.heartbeats.iter().map(Heartbeats::status).collect(),
        };
        for flow in &self.flows {
            status.flows.extend(flow.status().await);
        }
        status
    }

    /// Stops in order: no more fetches, what is in flight is acknowledged, positions are stored.
    pub async fn stop(self) {
        drop(self.heartbeats);
        for flow in &self.flows {
            flow.stop().await;
        }
        for flow in self.flows {
            flow.ended().await;
        }
    }
}

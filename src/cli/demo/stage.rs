//! What the demo plays on: two embedded clusters, clients of both, and the file of the mirror between them.

use std::sync::Arc;

use super::certificate::BrokerCertificate;
use super::compare::{Comparison, Reader, Rule, Side, compare_topic};
use super::{Error, Transport};
use crate::broker::log::Isolation;
use crate::broker::{AutoCreate, EmbeddedCluster, Settings};
use crate::client::{self, Cluster};
use crate::config;
use crate::mirror::status::{FlowStatus, ReplicatorStatus};
use crate::mirror::{FlowSettings, ProcessSettings, selects};
use crate::net::HostPort;
use crate::seam::Seam;

/// Brokers of each cluster.
pub(super) const BROKERS: u32 = 3;

/// Both clusters and the mirror's settings.
pub(super) struct Stage {
    pub(super) source: Arc<EmbeddedCluster>,
    pub(super) target: Arc<EmbeddedCluster>,
    /// The demo's own client of the source, for its traffic and for reading back.
    pub(super) source_client: Cluster,
    target_client: Cluster,
    /// The mirror's file.
    pub(super) file: String,
    flow: FlowSettings,
}

impl Stage {
    /// Starts both clusters and reads the file of the mirror between them.
    pub(super) async fn start(
        seam: &Seam,
        seed: u64,
        transport: Transport,
    ) -> Result<(Stage, ProcessSettings), Error> {
        let certificate = match transport {
            Transport::Plaintext => None,
            Transport::Tls => Some(BrokerCertificate::make()?),
        };
        // Ids are told apart by all that remembers clusters; two demos are four clusters.
        let run = seam.random() as u32;
        // As a broker's defaults are; only kcat, and the like, of a user ask for it.
        let cluster = |id: &str, seed| Settings {
            cluster_id: format!("kmirror-demo-{id}-{run:08x}"),
            brokers: BROKERS,
            replication_factor: BROKERS as u16,
            partitions: 3,
            auto_create: AutoCreate::On,
            seed,
            tls: certificate.as_ref().map(|made| made.server.clone()),
            ..Settings::default()
        };
        let source = EmbeddedCluster::start(seam.clone(), cluster("A", seed)).await?;
        let target = EmbeddedCluster::start(seam.clone(), cluster("B", seed.wrapping_add(1))).await?;
        let mut file = file(&source.bootstrap(), &target.bootstrap());
        if let Some(made) = &certificate {
            file.push_str("security.protocol = SSL\nssl.truststore.type = PEM\n");
            file.push_str(&format!("ssl.truststore.certificates = {}\n", made.trusted));
        }
        let settings = settings(&file)?;
        let flow = settings.flows.first().cloned();
        let flow = flow.ok_or_else(|| Error::File("it has no flow".to_owned()))?;
        let stage = Stage {
            source_client: Cluster::new(seam.clone(), client_of(&settings, "A", &source)),
            target_client: Cluster::new(seam.clone(), client_of(&settings, "B", &target)),
            source: Arc::new(source),
            target: Arc::new(target),
            file,
            flow,
        };
        Ok((stage, settings))
    }

    /// The topics that the mirror copies, with their partitions.
    fn topics(&self) -> Vec<(Arc<str>, i32)> {
        let topics = self.source.topics().into_iter();
        let taken = topics.filter(|(topic, _)| selects(&self.flow, topic).is_replicated());
        taken.map(|(topic, partitions)| (Arc::from(topic), partitions)).collect()
    }

    /// What the mirror has not copied yet, in words; empty when it is done. The source's own logs are asked.
    pub(super) fn behind(&self, status: &ReplicatorStatus) -> Result<Vec<String>, Error> {
        let Some(flow) = status.flows.first() else { return Ok(vec!["the flow A->B has ended".to_owned()]) };
        let mut behind = Vec::new();
        for (topic, partitions) in self.topics() {
            behind.extend(flow.failed_topics.get(&topic).map(|reason| format!("{topic}: {reason}")));
            for partition in 0..partitions {
                let end = self.source.log(&topic, partition, |log| {
                    (log.log_start_offset(), log.visible_end(Isolation::ReadCommitted))
                })?;
                behind.extend(partition_behind(flow, (&topic, partition), end));
            }
        }
        Ok(behind)
    }

    /// Compares every topic with its mirror, over the wire.
    pub(super) async fn compare(&self) -> Result<Vec<(Arc<str>, Rule, Comparison)>, Error> {
        let mut compared = Vec::new();
        for (topic, _) in self.topics() {
            let compacts = self.source.log(&topic, 0, |log| log.settings().cleanup_policy.compacts())?;
            let rule = if compacts { Rule::Compacted } else { Rule::Exact };
            let remote = self.flow.policy.remote_topic(&self.flow.source, &topic);
            let source = Side { reader: Reader::Wire(self.source_client.clone()), topic: topic.clone() };
            let target = Side { reader: Reader::Wire(self.target_client.clone()), topic: Arc::from(remote) };
            compared.push((topic, rule, compare_topic(&source, &target, rule).await?));
        }
        Ok(compared)
    }
}

fn partition_behind(
    flow: &FlowStatus,
    (topic, partition): (&Arc<str>, i32),
    (start, end): (i64, i64),
) -> Option<String> {
    let Some(status) = flow.partitions.get(&(topic.clone(), partition)) else {
        return Some(format!("{topic}-{partition} is not found yet"));
    };
    let position = status.position.unwrap_or(start);
    if position >= end {
        return None;
    }
    let why = status.stopped.as_ref().map_or(String::new(), |stopped| format!(": {}", stopped.message));
    Some(format!("{topic}-{partition} is copied up to offset {position} of {end}{why}"))
}

/// The demo's own client of a cluster, with the mirror's security and nothing else of its settings.
fn client_of(settings: &ProcessSettings, alias: &str, cluster: &EmbeddedCluster) -> client::Settings {
    let mut client = client::Settings::new(alias, servers(cluster));
    if let Some(mirror) = settings.clusters.get(alias) {
        client.net.security = mirror.net.security.clone();
    }
    client
}

fn servers(cluster: &EmbeddedCluster) -> Vec<HostPort> {
    let addresses = (1..=BROKERS as i32).filter_map(|id| cluster.address(id));
    addresses.map(|address| HostPort { host: address.ip().to_string(), port: address.port() }).collect()
}

/// A MirrorMaker file, as a user would write it.
fn file(source: &str, target: &str) -> String {
    format!(
        "clusters = A, B\n\
         A.bootstrap.servers = {source}\n\
         B.bootstrap.servers = {target}\n\
         \n\
         A->B.enabled = true\n\
         A->B.topics = .*\n\
         B->A.emit.heartbeats.enabled = false\n\
         A.consumer.isolation.level = read_committed\n\
         refresh.topics.interval.seconds = 1\n\
         replication.factor = {BROKERS}\n\
         kmirror.admin.listen = none\n"
    )
}

fn settings(file: &str) -> Result<ProcessSettings, Error> {
    let report = config::load("demo.properties", file.as_bytes(), &config::Options::default());
    match report.settings {
        Some(settings) => Ok(settings.process),
        None => {
            let problems = report.problems.iter().map(|problem| problem.message.clone());
            Err(Error::File(problems.collect::<Vec<_>>().join("; ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::IsolationLevel;
    use std::time::Duration;

    #[test]
    fn the_file_is_one_that_a_user_could_write() {
        let report = config::load("demo", file("a:1,a:2", "b:1").as_bytes(), &config::Options::default());
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let flow = report.settings.unwrap().process.flows.remove(0);
        assert_eq!((&*flow.source, &*flow.target), ("A", "B"));
        assert_eq!(flow.fetch.isolation_level, IsolationLevel::ReadCommitted);
        assert_eq!(flow.refresh_topics_interval, Some(Duration::from_secs(1)));
        assert!(selects(&flow, "orders").is_replicated());
    }
}

//! The control plane of a flow between two embedded clusters, on a simulated network with paused time: who may write,
//! what is remembered, which topics are replicated, where each partition starts.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]

mod lease;
mod positions;
mod topics;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use kmirror::broker::{Effect, EmbeddedCluster, FaultRule, Settings as BrokerSettings, When};
use kmirror::client::{
    Cluster, ConfigChange, GroupEvent, GroupSettings, HostPort, IsolationLevel, Membership, Rejoin, Settings,
};
use kmirror::mirror::control::{
    Control, ControlCommand, ControlEvent, Granted, PartitionStart, TopicReady, start_control,
};
use kmirror::mirror::state::TopicPartition;
use kmirror::mirror::state::records::{Position, StateRecord};
use kmirror::mirror::status::FlowState;
use kmirror::mirror::{FlowSettings, OffsetReset, OnSourceReset, PatternList, ReplicationFactor};
use kmirror::record::{BatchBuilder, BatchOptions, Codec, OpenBatch, RecordData};
use kmirror::seam::{Link, Seam, Simulation};
use tokio::time::{Instant, timeout};

/// Virtual time after which a test has failed.
const WAIT: Duration = Duration::from_secs(300);

/// Two clusters in one simulated world.
struct World {
    simulation: Simulation,
    source: EmbeddedCluster,
    target: EmbeddedCluster,
}

impl World {
    async fn new(seed: u64) -> World {
        let simulation = Simulation::new(seed);
        let cluster = |last: u8, id: &str| {
            let settings = BrokerSettings {
                cluster_id: id.to_owned(),
                brokers: 3,
                address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
                seed,
                group_initial_rebalance_delay_ms: 0,
                ..BrokerSettings::default()
            };
            EmbeddedCluster::start(Seam::Simulated(simulation.named(id)), settings)
        };
        let (source, target) = (cluster(1, "source").await.unwrap(), cluster(2, "target").await.unwrap());
        World { simulation, source, target }
    }

    fn client(&self, name: &str, cluster: &EmbeddedCluster, alias: &str) -> Cluster {
        let address = |id| cluster.address(id).unwrap();
        let servers = (1..=3).map(|id| HostPort::new(address(id).ip().to_string(), address(id).port()));
        Cluster::new(Seam::Simulated(self.simulation.named(name)), Settings::new(alias, servers.collect()))
    }

    /// A process called `name` that runs the flow.
    fn owner(&self, name: &str, settings: FlowSettings) -> Owner {
        let source = self.client(name, &self.source, &settings.source);
        let target = self.client(name, &self.target, &settings.target);
        let seam = Seam::Simulated(self.simulation.named(name));
        let control = start_control(&seam, Arc::new(settings), source, target, Duration::from_secs(60));
        Owner { control }
    }

    fn set_links(&self, name: &str, cluster: &EmbeddedCluster, link: Link) {
        for id in 1..=3 {
            self.simulation.set_link(name, cluster.address(id).unwrap(), link);
        }
    }

    /// Appends so many records to a source partition.
    async fn produce(&self, topic: &str, partition: i32, count: usize) {
        let mut batch = BatchBuilder::new(BatchOptions::new(Codec::None));
        for number in 0..count {
            let value = Some(Bytes::from(number.to_string()));
            batch.push(&RecordData { timestamp: 1, key: None, value, headers: Vec::new() }).unwrap();
        }
        let client = self.client("producer", &self.source, "A");
        client.produce(&Arc::from(topic), partition, batch.build().unwrap()).await.unwrap();
    }

    /// Key and value of every record of a target topic, by partition.
    async fn read(&self, topic: &str) -> Vec<(i32, String, String)> {
        let client = self.client("reader", &self.target, "B");
        let topic: Arc<str> = Arc::from(topic);
        let logs = client.read_to_end(&topic, IsolationLevel::ReadCommitted, usize::MAX).await.unwrap();
        let mut records = Vec::new();
        for (partition, log) in logs {
            for batch in &log.batches {
                let batch = OpenBatch::open(batch, usize::MAX).unwrap();
                for record in batch.records() {
                    let record = record.unwrap();
                    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap()).into_owned();
                    records.push((partition, text(record.key), text(record.value)));
                }
            }
        }
        records
    }
}

fn settings() -> FlowSettings {
    FlowSettings {
        topics: PatternList::new(&["t.*"]).unwrap(),
        refresh_topics_interval: Some(Duration::from_secs(10)),
        ..FlowSettings::new("A", "B")
    }
}

/// The flow's owner, as a test plays it.
struct Owner {
    control: Control,
}

impl Owner {
    async fn wait<T>(&mut self, what: &str, mut pick: impl FnMut(&ControlEvent) -> Option<T>) -> T {
        let mut seen = Vec::new();
        let wait = async {
            loop {
                let event = self.control.events.recv().await.expect("the control task lives");
                if let Some(picked) = pick(&event) {
                    return picked;
                }
                seen.push(event);
            }
        };
        let picked = timeout(WAIT, wait).await;
        picked.unwrap_or_else(|_| panic!("no {what} among {seen:#?}"))
    }

    async fn next(&mut self) -> Option<ControlEvent> {
        self.control.events.recv().await
    }

    async fn granted(&mut self) -> Granted {
        let mut granted = None;
        let wait = async {
            while granted.is_none() {
                if let ControlEvent::Granted(grant) = self.control.events.recv().await.expect("it lives") {
                    granted = Some(grant);
                }
            }
        };
        timeout(WAIT, wait).await.expect("a grant");
        granted.unwrap()
    }

    async fn ready(&mut self, topic: &str) -> TopicReady {
        self.wait("ready topic", |event| match event {
            ControlEvent::TopicReady(ready) if &*ready.source.name == topic => Some(ready.clone()),
            _ => None,
        })
        .await
    }

    async fn state(&mut self, is: impl Fn(&FlowState) -> bool) -> FlowState {
        self.wait("state", |event| match event {
            ControlEvent::State(state) if is(state) => Some(state.clone()),
            _ => None,
        })
        .await
    }

    /// What it says that it waits for, within seconds; its words hold all of `parts`.
    async fn waits_for(&mut self, parts: &[&str]) {
        let asked_at = Instant::now();
        self.wait(&format!("wait for {parts:?}"), |event| match event {
            ControlEvent::Waiting(Some(waiting)) => {
                parts.iter().all(|part| waiting.what.contains(part)).then_some(())
            }
            _ => None,
        })
        .await;
        assert!(asked_at.elapsed() < Duration::from_secs(5), "{parts:?}: {:?}", asked_at.elapsed());
    }

    async fn waits_no_longer(&mut self) {
        self.wait("end of the wait", |event| matches!(event, ControlEvent::Waiting(None)).then_some(()))
            .await;
    }

    async fn command(&self, command: ControlCommand) {
        self.control.orders.tell(command).await;
    }

    async fn stop(mut self) {
        self.command(ControlCommand::Stop).await;
        self.state(|state| *state == FlowState::Stopped).await;
    }
}

/// Where partitions start, or the word for why they do not.
fn starts(ready: &TopicReady) -> Vec<String> {
    let shown = |(partition, start): (&i32, &PartitionStart)| match start {
        PartitionStart::At(at) => match &at.gap {
            None => format!("{partition} at {}", at.offset),
            Some(gap) => format!("{partition} at {}, gap {}..{}", at.offset, gap.from, gap.to),
        },
        PartitionStart::Stopped(stopped) => format!("{partition} {}", stopped.reason),
    };
    ready.starts.iter().map(shown).collect()
}

fn position(ready: &TopicReady, upstream: i64, downstream: i64) -> Position {
    Position {
        source_topic_id: ready.source.id,
        target_topic_id: ready.remote.id,
        upstream,
        downstream,
        leader_epoch: 0,
        producer_id: -1,
        producer_epoch: -1,
        at_ms: 0,
    }
}

fn moved(ready: &TopicReady, partition: i32, upstream: i64, downstream: i64) -> StateRecord {
    let source = TopicPartition::new(ready.source.name.clone(), partition);
    StateRecord::Position(source, position(ready, upstream, downstream))
}

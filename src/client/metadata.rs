//! What is known of a cluster: brokers, controller, topics, leaders. A pure cache, handed out as snapshots.
//!
//! Each answer to a Metadata request makes a new [`ClusterView`] out of the one before. Brokers answer from caches of
//! their own that lag behind each other, so:
//! - a partition's leader epoch never goes back (`Metadata.java`, `updateLatestMetadata`; KIP-320);
//! - a topic's partitions never become fewer while its id stays: topics cannot shrink, only answers can;
//! - a topic is gone when two answers in a row that list all topics leave it out; one may come from a broker that has not
//!   heard of the topic yet. An answer about named topics never removes any;
//! - a new topic id means that the topic was deleted and created anew: nothing of the old one stays, and an answer that
//!   still speaks of the old id is ignored.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::messages::MetadataResponse;
use kafka_protocol::messages::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use uuid::Uuid;

use super::code::ErrorCode;
use crate::net::HostPort;

/// How many former ids of a topic are remembered.
const FORMER_IDS_MAX: usize = 8;
/// Answers in a row that list all topics and leave one out, before it is gone.
const OMISSIONS_MAX: u8 = 2;
/// The highest partition index that is believed; a broker cannot hold as many.
const PARTITION_INDEX_MAX: i32 = 1_000_000;

/// A snapshot of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Grows by one with each answer; 0 before the first.
    pub generation: u64,
    /// The cluster's id.
    pub cluster_id: Option<Arc<str>>,
    /// The broker that takes controller requests.
    pub controller_id: Option<i32>,
    /// The live brokers.
    pub brokers: BTreeMap<i32, Broker>,
    topics: BTreeMap<Arc<str>, Arc<Topic>>,
    names: BTreeMap<Uuid, Arc<str>>,
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its id.
    pub id: i32,
    /// Where clients reach it.
    pub address: HostPort,
    /// `broker.rack`.
    pub rack: Option<Arc<str>>,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: Arc<str>,
    /// Its id; nil when the cluster has none.
    pub id: Uuid,
    /// Whether the broker calls it internal (`__consumer_offsets`).
    pub internal: bool,
    /// What the last answer said of the topic as a whole; its partitions are then those of an earlier answer.
    pub code: ErrorCode,
    /// Its partitions by index.
    pub partitions: BTreeMap<i32, Partition>,
    former_ids: Vec<Uuid>,
    omissions: u8,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its index.
    pub index: i32,
    /// Its leader, if it has one.
    pub leader: Option<i32>,
    /// The leader's epoch, -1 when the cluster does not tell.
    pub leader_epoch: i32,
    /// Brokers that hold it.
    pub replicas: Vec<i32>,
    /// Brokers that are in sync.
    pub in_sync: Vec<i32>,
    /// Brokers that hold it and are down.
    pub offline: Vec<i32>,
}

/// Which topics an answer is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topics {
    /// All there are.
    All,
    /// These.
    Named(Vec<Arc<str>>),
}

impl Topics {
    /// Both together.
    pub fn union(self, other: Topics) -> Topics {
        match (self, other) {
            (Topics::Named(mut names), Topics::Named(more)) => {
                names.extend(more);
                names.sort();
                names.dedup();
                Topics::Named(names)
            }
            _ => Topics::All,
        }
    }
}

impl ClusterView {
    /// A topic by name.
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    /// A topic by id.
    pub fn topic_by_id(&self, id: Uuid) -> Option<&Arc<Topic>> {
        self.names.get(&id).and_then(|name| self.topics.get(name))
    }

    /// All topics, by name.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.topics.values()
    }

    /// A partition.
    pub fn partition(&self, topic: &str, partition: i32) -> Option<&Partition> {
        self.topics.get(topic).and_then(|topic| topic.partitions.get(&partition))
    }

    /// A partition's leader and its epoch.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<(i32, i32)> {
        let partition = self.partition(topic, partition)?;
        partition.leader.map(|leader| (leader, partition.leader_epoch))
    }

    /// Whether a topic was left out by the last answer and another one is needed to tell whether it is gone.
    pub fn is_doubtful(&self) -> bool {
        self.topics.values().any(|topic| topic.omissions > 0)
    }

    /// The view after an answer to a request for `asked`.
    ///
    /// Another cluster id than before means that the addresses lead to another cluster now: nothing is kept.
    pub fn apply(&self, answer: &MetadataResponse, asked: &Topics) -> ClusterView {
        let cluster_id = answer.cluster_id.as_ref().map(|id| Arc::from(id.as_str()));
        let moved = matches!((&self.cluster_id, &cluster_id), (Some(old), Some(new)) if old != new);
        let mut view = if moved { ClusterView::default() } else { self.clone() };
        view.generation = self.generation.wrapping_add(1);
        view.cluster_id = cluster_id.or_else(|| view.cluster_id.take());
        if !answer.brokers.is_empty() {
            view.brokers = brokers(answer);
            view.controller_id = Some(answer.controller_id.0).filter(|id| view.brokers.contains_key(id));
        }
        let mut seen = Vec::new();
        for topic in &answer.topics {
            if let Some(name) = view.apply_topic(topic) {
                seen.push(name);
            }
        }
        if *asked == Topics::All && answer.error_code == 0 {
            seen.sort();
            view.omit_all_but(&seen);
        }
        let ids = view.topics.values().filter(|topic| !topic.id.is_nil());
        view.names = ids.map(|topic| (topic.id, topic.name.clone())).collect();
        view
    }

    fn apply_topic(&mut self, answer: &MetadataResponseTopic) -> Option<Arc<str>> {
        let name = answer.name.as_ref()?.0.as_str();
        let known = self.topics.get(name);
        let code = ErrorCode(answer.error_code);
        if known.is_none() && code != ErrorCode::NONE && answer.partitions.is_empty() {
            return None;
        }
        let topic = match known {
            Some(known) => known.after(answer, code),
            None => Topic::new(Arc::from(name), answer, Vec::new()),
        };
        let name = topic.name.clone();
        // A topic that did not change keeps its snapshot, so that who holds it can compare by pointer.
        if known.is_none_or(|known| **known != topic) {
            self.topics.insert(name.clone(), Arc::new(topic));
        }
        Some(name)
    }

    fn omit_all_but(&mut self, seen: &[Arc<str>]) {
        let omitted: Vec<Arc<str>> =
            self.topics.keys().filter(|&name| seen.binary_search(name).is_err()).cloned().collect();
        for name in omitted {
            let Some(topic) = self.topics.get_mut(&name) else { continue };
            let omissions = topic.omissions.saturating_add(1);
            if omissions >= OMISSIONS_MAX {
                self.topics.remove(&name);
            } else {
                Arc::make_mut(topic).omissions = omissions;
            }
        }
    }
}

impl Topic {
    fn new(name: Arc<str>, answer: &MetadataResponseTopic, former_ids: Vec<Uuid>) -> Topic {
        let mut topic = Topic {
            name,
            id: answer.topic_id,
            internal: answer.is_internal,
            code: ErrorCode(answer.error_code),
            partitions: BTreeMap::new(),
            former_ids,
            omissions: 0,
        };
        topic.merge(&answer.partitions);
        topic
    }

    fn after(&self, answer: &MetadataResponseTopic, code: ErrorCode) -> Topic {
        if self.former_ids.contains(&answer.topic_id) {
            return self.clone();
        }
        // UNKNOWN_TOPIC_OR_PARTITION is an omission in other words; every other answer proves that the topic is there.
        let omissions = if code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION { self.omissions } else { 0 };
        if code != ErrorCode::NONE && answer.partitions.is_empty() {
            return Topic { code, omissions, ..self.clone() };
        }
        let recreated = !self.id.is_nil() && !answer.topic_id.is_nil() && self.id != answer.topic_id;
        if recreated {
            let mut former_ids = self.former_ids.clone();
            former_ids.push(self.id);
            let excess = former_ids.len().saturating_sub(FORMER_IDS_MAX);
            former_ids.drain(..excess);
            return Topic::new(self.name.clone(), answer, former_ids);
        }
        let id = if answer.topic_id.is_nil() { self.id } else { answer.topic_id };
        let mut topic = Topic { id, internal: answer.is_internal, code, omissions, ..self.clone() };
        topic.merge(&answer.partitions);
        topic
    }

    fn merge(&mut self, answers: &[MetadataResponsePartition]) {
        for answer in
            answers.iter().filter(|answer| (0..PARTITION_INDEX_MAX).contains(&answer.partition_index))
        {
            let known = self.partitions.get(&answer.partition_index);
            let older = known.is_some_and(|known| answer.leader_epoch < known.leader_epoch);
            if !older {
                self.partitions.insert(answer.partition_index, Partition::new(answer));
            }
        }
    }
}

impl Partition {
    fn new(answer: &MetadataResponsePartition) -> Partition {
        let ids = |nodes: &[kafka_protocol::messages::BrokerId]| nodes.iter().map(|id| id.0).collect();
        Partition {
            index: answer.partition_index,
            leader: Some(answer.leader_id.0).filter(|&id| id >= 0),
            leader_epoch: answer.leader_epoch,
            replicas: ids(&answer.replica_nodes),
            in_sync: ids(&answer.isr_nodes),
            offline: ids(&answer.offline_replicas),
        }
    }
}

fn brokers(answer: &MetadataResponse) -> BTreeMap<i32, Broker> {
    let broker = |broker: &kafka_protocol::messages::metadata_response::MetadataResponseBroker| {
        // A port that is no port is as good as no broker.
        let port = u16::try_from(broker.port).ok()?;
        let rack = broker.rack.as_ref().map(|rack| Arc::from(rack.as_str()));
        let address = HostPort::new(broker.host.as_str(), port);
        Some((broker.node_id.0, Broker { id: broker.node_id.0, address, rack }))
    };
    answer.brokers.iter().filter_map(broker).collect()
}

#[cfg(test)]
#[path = "metadata_tests.rs"]
mod tests;

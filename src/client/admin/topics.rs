//! Topics and their configs, and the cluster as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::{
    ApiKey, CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeClusterRequest,
    DescribeConfigsRequest, IncrementalAlterConfigsRequest,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::super::api::{Api, words};
use super::super::cluster::{Answer, Cluster, Node, string, topic_name};
use super::super::code::ErrorCode;
use super::super::error::{Error, Subject};
use super::super::metadata::{Broker, ClusterView, Topics};
use super::Each;
use crate::net::{Fault, HostPort};

/// `ConfigResource.Type.TOPIC`.
const TOPIC_RESOURCE: i8 = 2;
/// The most topics in one DescribeConfigs; their configs come in one reply.
const DESCRIBE_CONFIGS_TOPICS_MAX: usize = 200;

/// A topic to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: Arc<str>,
    /// How many partitions; -1 for the cluster's default (KIP-464).
    pub partitions: i32,
    /// How many replicas of each; -1 for the cluster's default.
    pub replication_factor: i16,
    /// Its configs, where not the cluster's.
    pub configs: BTreeMap<String, String>,
}

/// A topic that was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    /// Its id; nil when the cluster does not tell.
    pub id: Uuid,
}

/// A config of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// Its name.
    pub name: String,
    /// Its value; `None` when it is sensitive.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// Whether it can be changed.
    pub read_only: bool,
    /// Whether it is a secret.
    pub sensitive: bool,
}

/// Where a config's value comes from (`DescribeConfigsResponse.ConfigSource`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// Set for the topic.
    Topic,
    /// Set for one broker at run time.
    DynamicBroker,
    /// Set for all brokers at run time.
    DynamicDefaultBroker,
    /// The broker's properties file.
    StaticBroker,
    /// Kafka's default.
    Default,
    /// Something that this build does not know.
    Other(i8),
}

impl From<i8> for ConfigSource {
    fn from(source: i8) -> ConfigSource {
        match source {
            1 => ConfigSource::Topic,
            2 => ConfigSource::DynamicBroker,
            3 => ConfigSource::DynamicDefaultBroker,
            4 => ConfigSource::StaticBroker,
            5 => ConfigSource::Default,
            other => ConfigSource::Other(other),
        }
    }
}

/// A change of one config of a topic (KIP-339).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    /// Set it to a value.
    Set(String, String),
    /// Back to the default.
    Delete(String),
}

impl ConfigChange {
    /// The config that it is about.
    pub fn name(&self) -> &str {
        match self {
            ConfigChange::Set(name, _) | ConfigChange::Delete(name) => name,
        }
    }
}

impl fmt::Display for ConfigChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigChange::Set(name, value) => write!(f, "{name}={value}"),
            ConfigChange::Delete(name) => write!(f, "-{name}"),
        }
    }
}

/// The cluster as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDescription {
    /// Its id.
    pub cluster_id: Option<Arc<str>>,
    /// The broker that takes controller requests.
    pub controller_id: Option<i32>,
    /// Its live brokers.
    pub brokers: Vec<Broker>,
}

impl Cluster {
    /// Creates topics. A topic that is there already, perhaps by an earlier try, is TOPIC_ALREADY_EXISTS.
    ///
    /// # Errors
    /// As a whole, when no controller answered.
    pub async fn create_topics(&self, topics: &[NewTopic]) -> Result<Each<Arc<str>, CreatedTopic>, Error> {
        let request = CreateTopicsRequest::default()
            .with_topics(topics.iter().map(creatable).collect())
            .with_timeout_ms(self.request_timeout_ms());
        let answer = self.call(Node::Controller, &request).await?;
        let parts = answer.response.topics.iter().map(|topic| {
            let words = words(topic.error_message.as_ref());
            let created = CreatedTopic { id: topic.topic_id };
            (topic.name.0.to_string(), ErrorCode(topic.error_code), words, created)
        });
        let names: Vec<Arc<str>> = topics.iter().map(|topic| topic.name.clone()).collect();
        self.request_refresh_of(Topics::Named(names.clone()));
        Ok(self.each::<CreateTopicsRequest, _>(names, &answer, parts))
    }

    /// Raises partition counts to these.
    ///
    /// # Errors
    /// As a whole, when no controller answered.
    pub async fn create_partitions(
        &self,
        counts: &BTreeMap<Arc<str>, i32>,
    ) -> Result<Each<Arc<str>, ()>, Error> {
        let topics = counts.iter().map(|(name, &count)| {
            CreatePartitionsTopic::default()
                .with_name(topic_name(name))
                .with_count(count)
                .with_assignments(None)
        });
        let request = CreatePartitionsRequest::default()
            .with_topics(topics.collect())
            .with_timeout_ms(self.request_timeout_ms());
        let answer = self.call(Node::Controller, &request).await?;
        let parts = answer.response.results.iter().map(|topic| {
            let words = words(topic.error_message.as_ref());
            (topic.name.0.to_string(), ErrorCode(topic.error_code), words, ())
        });
        let names: Vec<Arc<str>> = counts.keys().cloned().collect();
        self.request_refresh_of(Topics::Named(names.clone()));
        Ok(self.each::<CreatePartitionsRequest, _>(names, &answer, parts))
    }

    /// Deletes topics.
    ///
    /// # Errors
    /// As a whole, when no controller answered.
    pub async fn delete_topics(&self, names: &[Arc<str>]) -> Result<Each<Arc<str>, ()>, Error> {
        let request = DeleteTopicsRequest::default()
            .with_topic_names(names.iter().map(topic_name).collect())
            .with_timeout_ms(self.request_timeout_ms());
        let answer = self.call(Node::Controller, &request).await?;
        let parts = answer.response.responses.iter().filter_map(|topic| {
            let words = words(topic.error_message.as_ref());
            Some((topic.name.as_ref()?.0.to_string(), ErrorCode(topic.error_code), words, ()))
        });
        let each = self.each::<DeleteTopicsRequest, _>(names.to_vec(), &answer, parts);
        self.request_refresh();
        Ok(each)
    }

    /// Which of these topics the cluster does not let us see, whether they are there or not.
    ///
    /// # Errors
    /// As a whole, when no broker answered.
    pub async fn hidden_topics(&self, names: &[Arc<str>]) -> Result<BTreeSet<Arc<str>>, Error> {
        if names.is_empty() {
            return Ok(BTreeSet::new());
        }
        let answer = self.ask_metadata(&Topics::Named(names.to_vec())).await?;
        let hidden = answer
            .topics
            .iter()
            .filter(|topic| ErrorCode(topic.error_code) == ErrorCode::TOPIC_AUTHORIZATION_FAILED);
        Ok(hidden.filter_map(|topic| Some(Arc::from(topic.name.as_ref()?.0.as_str()))).collect())
    }

    /// All configs of topics, defaults included.
    ///
    /// # Errors
    /// As a whole, when no broker answered.
    pub async fn describe_topic_configs(
        &self,
        names: &[Arc<str>],
    ) -> Result<Each<Arc<str>, Vec<ConfigEntry>>, Error> {
        let mut each = BTreeMap::new();
        for names in names.chunks(DESCRIBE_CONFIGS_TOPICS_MAX) {
            let resources = names.iter().map(|name| {
                DescribeConfigsResource::default()
                    .with_resource_type(TOPIC_RESOURCE)
                    .with_resource_name(string(name))
                    .with_configuration_keys(None)
            });
            let request = DescribeConfigsRequest::default().with_resources(resources.collect());
            let answer = self.call(Node::Any, &request).await?;
            let parts = answer.response.results.iter().map(|result| {
                let configs = result.configs.iter().map(config_entry).collect();
                let words = words(result.error_message.as_ref());
                (result.resource_name.to_string(), ErrorCode(result.error_code), words, configs)
            });
            each.extend(self.each::<DescribeConfigsRequest, _>(names.to_vec(), &answer, parts));
        }
        Ok(each)
    }

    /// Changes configs of topics; of one topic, all or none.
    ///
    /// # Errors
    /// As a whole, when no controller answered, or [`Fault::Incompatible`] with brokers before 2.3.
    pub async fn incremental_alter_configs(
        &self,
        changes: &BTreeMap<Arc<str>, Vec<ConfigChange>>,
    ) -> Result<Each<Arc<str>, ()>, Error> {
        let resources = changes.iter().map(|(name, changes)| {
            AlterConfigsResource::default()
                .with_resource_type(TOPIC_RESOURCE)
                .with_resource_name(string(name))
                .with_configs(changes.iter().map(alterable).collect())
        });
        let request = IncrementalAlterConfigsRequest::default().with_resources(resources.collect());
        let answer = self.call(Node::Controller, &request).await?;
        let parts = answer.response.responses.iter().map(|result| {
            let words = words(result.error_message.as_ref());
            (result.resource_name.to_string(), ErrorCode(result.error_code), words, ())
        });
        Ok(self.each::<IncrementalAlterConfigsRequest, _>(changes.keys().cloned().collect(), &answer, parts))
    }

    /// The cluster's id, controller and live brokers; from metadata where the broker is too old for DescribeCluster.
    ///
    /// # Errors
    /// When no broker answered.
    pub async fn describe_cluster(&self) -> Result<ClusterDescription, Error> {
        let answer = match self.call(Node::Any, &DescribeClusterRequest::default()).await {
            Ok(answer) => answer.response,
            Err(Error::Connection { source, .. }) if source.fault() == Fault::Incompatible => {
                return self.refresh(Topics::Named(Vec::new())).await.map(|view| description(&view));
            }
            Err(error) => return Err(error),
        };
        let brokers = answer.brokers.iter().filter_map(|broker| {
            let address = HostPort::new(broker.host.as_str(), u16::try_from(broker.port).ok()?);
            let rack = broker.rack.as_ref().map(|rack| Arc::from(rack.as_str()));
            Some(Broker { id: broker.broker_id.0, address, rack })
        });
        Ok(ClusterDescription {
            cluster_id: Some(Arc::from(answer.cluster_id.as_str())),
            controller_id: Some(answer.controller_id.0).filter(|&id| id >= 0),
            brokers: brokers.collect(),
        })
    }

    /// Waits until each of these topics has this many partitions, all with a leader.
    ///
    /// # Errors
    /// [`Error::TimedOut`] with the first partition that is not ready, and that a topic may not be seen.
    pub async fn wait_for_leaders(
        &self,
        topics: &BTreeMap<Arc<str>, i32>,
    ) -> Result<Arc<ClusterView>, Error> {
        let names = Topics::Named(topics.keys().cloned().collect());
        let mut retry = self.retry(ApiKey::Metadata);
        let mut has_asked = false;
        loop {
            let view = retry.within(self.refresh(names.clone())).await??;
            let mut wanted =
                topics.iter().flat_map(|(name, &count)| (0..count).map(move |index| (name, index)));
            let Some((name, index)) = wanted.find(|&(name, index)| view.leader(name, index).is_none()) else {
                return Ok(view);
            };
            if view.topic(name).is_none()
                && !std::mem::replace(&mut has_asked, true)
                && let Some(error) = retry.within(self.unseen(ApiKey::Produce, name)).await?
            {
                return Err(error);
            }
            let subject = Subject::Partition(name.clone(), index);
            retry
                .after(Error::NoLeader { cluster: self.alias().clone(), subject }, &Node::Controller)
                .await?;
        }
    }

    /// One result for each name: what the reply says, or that it leaves it out.
    fn each<R: Api, V>(
        &self,
        names: Vec<Arc<str>>,
        answer: &Answer<R::Response>,
        parts: impl Iterator<Item = (String, ErrorCode, Option<String>, V)>,
    ) -> Each<Arc<str>, V> {
        let mut open: BTreeSet<Arc<str>> = names.into_iter().collect();
        let mut each = BTreeMap::new();
        for (name, code, words, value) in parts {
            let Some(name) = open.take(name.as_str()) else { continue };
            let result = match code {
                ErrorCode::NONE => Ok(value),
                code => {
                    let subject = Subject::Topic(name.clone());
                    Err(self.refused::<R>(answer.broker.clone(), subject, code, words))
                }
            };
            each.insert(name, result);
        }
        for name in open {
            let error = Error::LeftOut {
                cluster: self.alias().clone(),
                broker: Box::new(answer.broker.clone()),
                api: R::API,
                subject: Subject::Topic(name.clone()),
            };
            each.insert(name, Err(error));
        }
        each
    }
}

fn creatable(topic: &NewTopic) -> CreatableTopic {
    let configs = topic.configs.iter().map(|(name, value)| {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_string(name.clone()))
            .with_value(Some(StrBytes::from_string(value.clone())))
    });
    CreatableTopic::default()
        .with_name(topic_name(&topic.name))
        .with_num_partitions(topic.partitions)
        .with_replication_factor(topic.replication_factor)
        .with_configs(configs.collect())
}

fn alterable(change: &ConfigChange) -> AlterableConfig {
    // `AlterConfigOp.OpType`: 0 sets, 1 deletes.
    let (name, operation, value) = match change {
        ConfigChange::Set(name, value) => (name, 0, Some(StrBytes::from_string(value.clone()))),
        ConfigChange::Delete(name) => (name, 1, None),
    };
    AlterableConfig::default()
        .with_name(StrBytes::from_string(name.clone()))
        .with_config_operation(operation)
        .with_value(value)
}

fn config_entry(config: &DescribeConfigsResourceResult) -> ConfigEntry {
    ConfigEntry {
        name: config.name.to_string(),
        value: config.value.as_ref().map(|value| value.to_string()),
        source: ConfigSource::from(config.config_source),
        read_only: config.read_only,
        sensitive: config.is_sensitive,
    }
}

fn description(view: &ClusterView) -> ClusterDescription {
    ClusterDescription {
        cluster_id: view.cluster_id.clone(),
        controller_id: view.controller_id,
        brokers: view.brokers.values().cloned().collect(),
    }
}

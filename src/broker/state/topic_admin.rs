//! CreateTopics, CreatePartitions, DeleteTopics, and the same on command of a test.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::topics::{NewTopic, Refusal, TopicHandle};
use super::{ClusterState, Handled, configs};
use crate::broker::wire::Request;

impl ClusterState {
    pub(super) fn handle_create_topics(&mut self, request: &Request) -> Handled {
        let body: CreateTopicsRequest = request.decode()?;
        let mut topics = Vec::with_capacity(body.topics.len());
        for topic in &body.topics {
            let twice = body.topics.iter().filter(|other| other.name == topic.name).count() > 1;
            let result = match (request.refuse_with, twice) {
                (Some(code), _) => Err((code, String::new())),
                (None, true) => {
                    Err((ResponseError::InvalidRequest.code(), "Duplicate topic name.".to_owned()))
                }
                (None, false) => self
                    .create_topic(topic, body.validate_only)
                    .map_err(|(error, words)| (error.code(), words)),
            };
            topics.push(result.unwrap_or_else(|(code, words)| {
                CreatableTopicResult::default()
                    .with_name(topic.name.clone())
                    .with_error_code(code)
                    .with_error_message(Some(StrBytes::from_string(words)))
                    .with_num_partitions(-1)
                    .with_replication_factor(-1)
            }));
        }
        let reply = CreateTopicsResponse::default().with_topics(topics);
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    fn create_topic(
        &mut self,
        topic: &CreatableTopic,
        validate_only: bool,
    ) -> Result<CreatableTopicResult, Refusal> {
        let new = NewTopic {
            name: &topic.name,
            partitions: topic.num_partitions,
            replication_factor: topic.replication_factor,
            assignments: topic
                .assignments
                .iter()
                .map(|assigned| {
                    (assigned.partition_index, assigned.broker_ids.iter().map(|id| id.0).collect())
                })
                .collect(),
            configs: topic
                .configs
                .iter()
                .map(|config| {
                    (config.name.to_string(), config.value.as_deref().unwrap_or_default().to_owned())
                })
                .collect(),
        };
        let placement = self.plan_topic(&new)?;
        let (partitions, factor) = (placement.len() as i32, placement.first().map_or(0, Vec::len) as i16);
        let id = if validate_only { Uuid::nil() } else { self.make_topic(&new, placement) };
        Ok(CreatableTopicResult::default()
            .with_name(topic.name.clone())
            .with_topic_id(id)
            .with_num_partitions(partitions)
            .with_replication_factor(factor)
            .with_configs(Some(self.created_configs(&new.configs))))
    }

    fn created_configs(&self, set: &BTreeMap<String, String>) -> Vec<CreatableTopicConfigs> {
        let value = |key: &configs::Key| {
            let (value, source) = match (set.get(key.name), self.settings.topic_defaults.get(key.name)) {
                (Some(value), _) => (value.as_str(), configs::Source::Topic),
                (None, Some(value)) => (value.as_str(), configs::Source::StaticBroker),
                (None, None) => (key.default, configs::Source::Default),
            };
            CreatableTopicConfigs::default()
                .with_name(StrBytes::from_static_str(key.name))
                .with_value(Some(StrBytes::from_string(value.to_owned())))
                .with_config_source(source as i8)
        };
        configs::KEYS.iter().map(value).collect()
    }

    pub(super) fn handle_create_partitions(&mut self, request: &Request) -> Handled {
        let body: CreatePartitionsRequest = request.decode()?;
        let mut results = Vec::with_capacity(body.topics.len());
        for topic in &body.topics {
            let result = CreatePartitionsTopicResult::default().with_name(topic.name.clone());
            let added = match request.refuse_with {
                Some(code) => Err((code, String::new())),
                None => self
                    .create_partitions(topic, body.validate_only)
                    .map_err(|(error, words)| (error.code(), words)),
            };
            results.push(match added {
                Ok(()) => result,
                Err((code, words)) => {
                    result.with_error_code(code).with_error_message(Some(StrBytes::from_string(words)))
                }
            });
        }
        let reply = CreatePartitionsResponse::default().with_results(results);
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    fn create_partitions(
        &mut self,
        asked: &CreatePartitionsTopic,
        validate_only: bool,
    ) -> Result<(), Refusal> {
        let Some(topic) = self.topics.get(&asked.name) else {
            return Err((
                ResponseError::UnknownTopicOrPartition,
                "This server does not host this topic-partition.".to_owned(),
            ));
        };
        let there = topic.partitions.len();
        let more = asked.count - there as i32;
        if more <= 0 {
            return Err((
                ResponseError::InvalidPartitions,
                format!(
                    "Topic currently has {there} partitions, which is not less than the requested {}.",
                    asked.count
                ),
            ));
        }
        let factor = topic.partitions.first().map_or(1, |partition| partition.replicas.len()) as i16;
        let placement = match &asked.assignments {
            None => self.place(there, more, factor)?,
            Some(assigned) if assigned.len() == more as usize => {
                assigned.iter().map(|one| one.broker_ids.iter().map(|id| id.0).collect()).collect()
            }
            Some(assigned) => {
                return Err((
                    ResponseError::InvalidReplicaAssignment,
                    format!(
                        "Attempted to add {more} additional partition(s), but only {} assignment(s) were specified.",
                        assigned.len()
                    ),
                ));
            }
        };
        if !validate_only {
            self.add_partitions(&asked.name, placement);
        }
        Ok(())
    }

    pub(super) fn handle_delete_topics(&mut self, request: &Request) -> Handled {
        let body: DeleteTopicsRequest = request.decode()?;
        let by_state = body.topics.iter().map(|topic| (topic.name.clone(), topic.topic_id));
        let by_name = body.topic_names.iter().map(|name| (Some(name.clone()), Uuid::nil()));
        let asked: Vec<_> = if request.version >= 6 { by_state.collect() } else { by_name.collect() };
        let mut responses = Vec::with_capacity(asked.len());
        for (name, id) in asked {
            responses.push(self.delete_topic(request, name, id));
        }
        let reply = DeleteTopicsResponse::default().with_responses(responses);
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    fn delete_topic(&mut self, request: &Request, name: Option<TopicName>, id: Uuid) -> DeletableTopicResult {
        let result = DeletableTopicResult::default().with_name(name.clone()).with_topic_id(id);
        if let Some(code) = request.refuse_with {
            return result.with_error_code(code);
        }
        let handle = name.as_ref().map_or(TopicHandle::Id(id), |name| TopicHandle::Name(&name.0));
        let unknown = match handle {
            TopicHandle::Id(_) => ResponseError::UnknownTopicId,
            TopicHandle::Name(_) => ResponseError::UnknownTopicOrPartition,
        };
        let found = self.topics.resolve(handle).map(str::to_owned);
        let found = found.and_then(|name| self.topics.get(&name).map(|topic| (name.clone(), topic.id)));
        match found {
            Some((name, id)) => {
                self.remove_topic(&name);
                result.with_name(Some(TopicName(StrBytes::from_string(name)))).with_topic_id(id)
            }
            None => result.with_error_code(unknown.code()),
        }
    }
}

//! DescribeConfigs and IncrementalAlterConfigs, of topics and of brokers.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{
    DescribeConfigsRequest, DescribeConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::configs::{KEYS, Key, Source, Type, check, find};
use super::topics::Refusal;
use super::{ClusterState, Handled};
use crate::broker::wire::Request;

const RESOURCE_TOPIC: i8 = 2;
const RESOURCE_BROKER: i8 = 4;

const OPERATION_SET: i8 = 0;
const OPERATION_DELETE: i8 = 1;
const OPERATION_APPEND: i8 = 2;
const OPERATION_SUBTRACT: i8 = 3;

/// Configs of a broker that are no topic's default, with Kafka's own defaults.
const BROKER_KEYS: &[(&str, Type, &str)] = &[
    ("auto.create.topics.enable", Type::Boolean, "true"),
    ("default.replication.factor", Type::Int, "1"),
    ("group.initial.rebalance.delay.ms", Type::Int, "3000"),
    ("group.max.session.timeout.ms", Type::Int, "1800000"),
    ("group.min.session.timeout.ms", Type::Int, "6000"),
    ("num.partitions", Type::Int, "1"),
    ("offsets.retention.minutes", Type::Int, "10080"),
    ("producer.id.expiration.ms", Type::Int, "86400000"),
    ("socket.request.max.bytes", Type::Int, "104857600"),
    ("transaction.max.timeout.ms", Type::Int, "900000"),
    ("transactional.id.expiration.ms", Type::Int, "604800000"),
];

impl ClusterState {
    pub(super) fn handle_describe_configs(&mut self, request: &Request) -> Handled {
        let body: DescribeConfigsRequest = request.decode()?;
        let results = body.resources.iter().map(|resource| {
            let result = DescribeConfigsResult::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone());
            let described = match request.refuse_with {
                Some(code) => Err((code, String::new())),
                None => {
                    self.describe_configs(resource, &body).map_err(|(error, words)| (error.code(), words))
                }
            };
            match described {
                Ok(configs) => result.with_configs(configs),
                Err((code, words)) => {
                    result.with_error_code(code).with_error_message(Some(StrBytes::from_string(words)))
                }
            }
        });
        let reply = DescribeConfigsResponse::default().with_results(results.collect());
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    fn describe_configs(
        &self,
        resource: &DescribeConfigsResource,
        body: &DescribeConfigsRequest,
    ) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
        let is_asked = |name: &str| {
            resource
                .configuration_keys
                .as_ref()
                .is_none_or(|keys| keys.iter().any(|key| key.as_str() == name))
        };
        match resource.resource_type {
            RESOURCE_TOPIC => {
                let topic = self.topics.get(&resource.resource_name).ok_or_else(unknown_topic)?;
                let asked = KEYS.iter().filter(|key| is_asked(key.name));
                Ok(asked
                    .map(|key| self.topic_config(&topic.configs.set, key, body.include_synonyms))
                    .collect())
            }
            RESOURCE_BROKER => {
                self.check_broker(&resource.resource_name)?;
                Ok(self.broker_configs(is_asked))
            }
            _ => Err((ResponseError::InvalidRequest, "Unsupported resource type".to_owned())),
        }
    }

    fn topic_config(
        &self,
        set: &BTreeMap<String, String>,
        key: &Key,
        include_synonyms: bool,
    ) -> DescribeConfigsResourceResult {
        let (value, source) = self.topic_value(set, key);
        let synonyms = if include_synonyms { self.synonyms(set, key) } else { Vec::new() };
        described(key.name, value, source, key.kind).with_synonyms(synonyms)
    }

    /// All places where a value could come from, the one in force first.
    fn synonyms(&self, set: &BTreeMap<String, String>, key: &Key) -> Vec<DescribeConfigsSynonym> {
        let synonym = |name: &'static str, value: &str, source: Source| {
            DescribeConfigsSynonym::default()
                .with_name(StrBytes::from_static_str(name))
                .with_value(Some(StrBytes::from_string(value.to_owned())))
                .with_source(source as i8)
        };
        let topic = set.get(key.name).map(|value| synonym(key.name, value, Source::Topic));
        let broker = self
            .broker_configs
            .get(key.broker_name)
            .map(|value| synonym(key.broker_name, value, Source::DynamicBroker));
        let fixed = self.settings.topic_defaults.get(key.name);
        let fixed = fixed.map(|value| synonym(key.broker_name, value, Source::StaticBroker));
        let default = has_broker_default(key).then(|| synonym(key.broker_name, key.default, Source::Default));
        [topic, broker, fixed, default].into_iter().flatten().collect()
    }

    fn broker_configs(&self, is_asked: impl Fn(&str) -> bool) -> Vec<DescribeConfigsResourceResult> {
        let own = BROKER_KEYS.iter().map(|&(name, kind, default)| match self.broker_configs.get(name) {
            Some(value) => described(name, value.clone(), Source::DynamicBroker, kind),
            None => described(name, self.broker_value(name, default), Source::StaticBroker, kind),
        });
        let no_topic = BTreeMap::new();
        let of_topics = KEYS.iter().filter(|key| !key.broker_name.is_empty()).map(|key| {
            let (value, source) = self.topic_value(&no_topic, key);
            described(key.broker_name, value, source, key.kind)
        });
        own.chain(of_topics).filter(|config| is_asked(&config.name)).collect()
    }

    fn broker_value(&self, name: &str, default: &str) -> String {
        let settings = &self.settings;
        match name {
            "auto.create.topics.enable" => {
                (settings.auto_create == crate::broker::AutoCreate::On).to_string()
            }
            "default.replication.factor" => settings.replication_factor.to_string(),
            "group.initial.rebalance.delay.ms" => settings.group_initial_rebalance_delay_ms.to_string(),
            "group.min.session.timeout.ms" => settings.group_min_session_timeout_ms.to_string(),
            "num.partitions" => settings.partitions.to_string(),
            "socket.request.max.bytes" => settings.request_bytes_max.to_string(),
            _ => default.to_owned(),
        }
    }

    pub(super) fn handle_incremental_alter_configs(&mut self, request: &Request) -> Handled {
        let body: IncrementalAlterConfigsRequest = request.decode()?;
        let mut responses = Vec::with_capacity(body.resources.len());
        for resource in &body.resources {
            let response = AlterConfigsResourceResponse::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone());
            let altered = match request.refuse_with {
                Some(code) => Err((code, String::new())),
                None => self
                    .alter_configs(resource, body.validate_only)
                    .map_err(|(error, words)| (error.code(), words)),
            };
            responses.push(match altered {
                Ok(()) => response,
                Err((code, words)) => {
                    response.with_error_code(code).with_error_message(Some(StrBytes::from_string(words)))
                }
            });
        }
        let reply = IncrementalAlterConfigsResponse::default().with_responses(responses);
        Ok(request.reply(&reply.with_throttle_time_ms(self.settings.throttle_ms)))
    }

    fn alter_configs(&mut self, resource: &AlterConfigsResource, validate_only: bool) -> Result<(), Refusal> {
        match resource.resource_type {
            RESOURCE_TOPIC => self.alter_topic(resource, validate_only),
            RESOURCE_BROKER => self.alter_brokers(resource, validate_only),
            _ => Err((ResponseError::InvalidRequest, "Unsupported resource type".to_owned())),
        }
    }

    fn alter_topic(&mut self, resource: &AlterConfigsResource, validate_only: bool) -> Result<(), Refusal> {
        let name = resource.resource_name.as_str();
        let mut set = self.topics.get(name).ok_or_else(unknown_topic)?.configs.set.clone();
        for config in &resource.configs {
            let key = find(&config.name)
                .ok_or_else(|| invalid(format!("Unknown topic config name: {}", &*config.name)))?;
            let now = self.topic_value(&set, key).0;
            match altered(config, &now, key.kind)? {
                Some(value) => {
                    check(key.name, &value).map_err(invalid)?;
                    set.insert(key.name.to_owned(), value);
                }
                None => {
                    set.remove(key.name);
                }
            }
        }
        if validate_only {
            return Ok(());
        }
        if let Some(topic) = self.topics.get_mut(name) {
            topic.configs.set = set;
        }
        self.apply_configs(name);
        Ok(())
    }

    /// A broker's config holds for the whole cluster here: there is no difference between its brokers.
    fn alter_brokers(&mut self, resource: &AlterConfigsResource, validate_only: bool) -> Result<(), Refusal> {
        self.check_broker(&resource.resource_name)?;
        let mut set = self.broker_configs.clone();
        for config in &resource.configs {
            let kind = KEYS
                .iter()
                .find(|key| key.broker_name == config.name.as_str())
                .map_or(Type::String, |key| key.kind);
            let now = set.get(config.name.as_str()).cloned().unwrap_or_default();
            match altered(config, &now, kind)? {
                Some(value) => set.insert(config.name.to_string(), value),
                None => set.remove(config.name.as_str()),
            };
        }
        if !validate_only {
            self.broker_configs = set;
            let names: Vec<String> = self.topics.iter().map(|(name, _)| name.to_owned()).collect();
            names.iter().for_each(|name| self.apply_configs(name));
        }
        Ok(())
    }

    fn apply_configs(&mut self, topic: &str) {
        let settings = self.log_settings(topic);
        if let Some(topic) = self.topics.get_mut(topic) {
            topic.partitions.iter_mut().for_each(|partition| partition.log.set_settings(settings.clone()));
        }
    }

    /// The empty name stands for the defaults of all brokers.
    fn check_broker(&self, name: &str) -> Result<(), Refusal> {
        let known = name.is_empty() || name.parse().is_ok_and(|id: i32| self.brokers.contains_key(&id));
        if known {
            Ok(())
        } else {
            Err((ResponseError::InvalidRequest, format!("Unexpected broker id {name}")))
        }
    }
}

/// Whether a broker has a default of its own for this key. For times it has one in hours or none at all, so that Kafka's
/// own default shows no synonym.
fn has_broker_default(key: &Key) -> bool {
    !key.broker_name.is_empty()
        && !["flush.ms", "retention.ms", "segment.jitter.ms", "segment.ms"].contains(&key.name)
}

/// The value after an operation; `None` takes it away.
fn altered(config: &AlterableConfig, now: &str, kind: Type) -> Result<Option<String>, Refusal> {
    let value = config.value.as_deref().map(str::to_owned);
    let given =
        || value.clone().ok_or_else(|| invalid(format!("Null value not supported for {}", &*config.name)));
    let words = |list: &str| {
        let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let is_list = kind == Type::List;
    match config.config_operation {
        OPERATION_SET => given().map(Some),
        OPERATION_DELETE => Ok(None),
        OPERATION_APPEND if is_list => {
            let mut list = words(now);
            let more: Vec<_> = words(&given()?).into_iter().filter(|word| !list.contains(word)).collect();
            list.extend(more);
            Ok(Some(list.join(",")))
        }
        OPERATION_SUBTRACT if is_list => {
            let less = words(&given()?);
            Ok(Some(words(now).into_iter().filter(|word| !less.contains(word)).collect::<Vec<_>>().join(",")))
        }
        OPERATION_APPEND | OPERATION_SUBTRACT => Err(invalid(format!(
            "Can't APPEND or SUBTRACT to key {} because its type is not LIST.",
            &*config.name
        ))),
        other => Err((ResponseError::InvalidRequest, format!("Unknown operation type {other}"))),
    }
}

fn described(name: &'static str, value: String, source: Source, kind: Type) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_static_str(name))
        .with_value(Some(StrBytes::from_string(value)))
        .with_config_source(source as i8)
        .with_config_type(kind as i8)
}

fn invalid(words: String) -> Refusal {
    (ResponseError::InvalidConfig, words)
}

fn unknown_topic() -> Refusal {
    (ResponseError::UnknownTopicOrPartition, "This server does not host this topic-partition.".to_owned())
}

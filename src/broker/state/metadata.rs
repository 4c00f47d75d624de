//! What the cluster looks like: ApiVersions, Metadata, DescribeCluster, FindCoordinator.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, BrokerId, DescribeClusterRequest, DescribeClusterResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::topics::{NewTopic, Partition, Topic, TopicHandle, check_name};
use super::{ClusterState, Handled};
use crate::broker::settings::{AutoCreate, KafkaVersion, TransactionVersion};
use crate::broker::versions;
use crate::broker::wire::Request;

/// The partitions of `__consumer_offsets` and `__transaction_state` by default: a key belongs to the coordinator that
/// leads partition `hash(key) % 50`.
const COORDINATOR_PARTITIONS: i32 = 50;

/// From this version on a reply has a code for itself (KIP-1102).
const REBOOTSTRAP_VERSION: i16 = 13;

impl ClusterState {
    pub(super) fn handle_api_versions(&mut self, request: &Request) -> Handled {
        // The body must be readable, its content is of no use here.
        request.decode::<ApiVersionsRequest>()?;
        Ok(request.reply(&self.api_versions(request.refuse_with.unwrap_or_default())))
    }

    pub(super) fn api_versions(&self, error_code: i16) -> ApiVersionsResponse {
        let keys = versions::served(self.settings.version).into_iter().map(|(key, range)| {
            ApiVersion::default()
                .with_api_key(key as i16)
                .with_min_version(versions::advertised_min(key, range))
                .with_max_version(range.max)
        });
        let reply = ApiVersionsResponse::default()
            .with_error_code(error_code)
            .with_api_keys(keys.collect())
            .with_throttle_time_ms(self.settings.throttle_ms);
        let finalized = match (self.settings.version >= KafkaVersion::V4_0, self.settings.transaction_version)
        {
            (false, _) => return reply,
            (true, TransactionVersion::V1) => 1,
            (true, TransactionVersion::V2) => 2,
        };
        let name = StrBytes::from_static_str("transaction.version");
        let supported = SupportedFeatureKey::default().with_name(name.clone()).with_max_version(2);
        let finalized = FinalizedFeatureKey::default()
            .with_name(name)
            .with_max_version_level(finalized)
            .with_min_version_level(finalized);
        reply
            .with_supported_features(vec![supported])
            .with_finalized_features_epoch(1)
            .with_finalized_features(vec![finalized])
    }

    pub(super) fn handle_metadata(&mut self, request: &Request, _now_ms: i64) -> Handled {
        let body: MetadataRequest = request.decode()?;
        let rebootstrap = ResponseError::RebootstrapRequired.code();
        if request.refuse_with == Some(rebootstrap) && request.version >= REBOOTSTRAP_VERSION {
            return Ok(request.reply(&MetadataResponse::default().with_error_code(rebootstrap)));
        }
        let asks_all = match &body.topics {
            None => true,
            Some(topics) => topics.is_empty() && request.version == 0,
        };
        let topics = if let Some(frozen) = self.frozen.get(&request.broker.0) {
            let asked = body.topics.as_deref().filter(|_| !asks_all);
            asked_of_frozen(frozen, asked)
        } else if asks_all {
            self.topics
                .iter()
                .map(|(name, topic)| self.describe_topic(request.refuse_with, name, topic))
                .collect()
        } else {
            let create = body.allow_auto_topic_creation || request.version < 4;
            let asked = body.topics.unwrap_or_default();
            asked
                .iter()
                .map(|topic| self.asked_topic(request, topic.name.as_ref(), topic.topic_id, create))
                .collect()
        };
        let brokers = self.brokers.iter().filter(|(_, broker)| broker.is_up).map(|(&id, broker)| {
            MetadataResponseBroker::default()
                .with_node_id(BrokerId(id))
                .with_host(StrBytes::from_string(broker.host.clone()))
                .with_port(i32::from(broker.port))
                .with_rack(broker.rack.clone().map(StrBytes::from_string))
        });
        let reply = MetadataResponse::default()
            .with_throttle_time_ms(self.settings.throttle_ms)
            .with_brokers(brokers.collect())
            .with_cluster_id(Some(StrBytes::from_string(self.cluster_id.clone())))
            .with_controller_id(BrokerId(self.controller()))
            .with_topics(topics);
        Ok(request.reply(&reply))
    }

    fn asked_topic(
        &mut self,
        request: &Request,
        name: Option<&TopicName>,
        id: Uuid,
        create: bool,
    ) -> MetadataResponseTopic {
        let handle = match name {
            Some(name) => TopicHandle::Name(name.0.as_str()),
            None => TopicHandle::Id(id),
        };
        let Some(resolved) = self.topics.resolve(handle).map(str::to_owned) else {
            let code = ResponseError::UnknownTopicId.code();
            return MetadataResponseTopic::default().with_error_code(code).with_topic_id(id);
        };
        if self.topics.get(&resolved).is_none() && create && self.settings.auto_create == AutoCreate::On {
            self.auto_create(&resolved);
        }
        match self.topics.get(&resolved) {
            Some(topic) => self.describe_topic(request.refuse_with, &resolved, topic),
            None => {
                let error = match check_name(&resolved) {
                    Ok(()) => ResponseError::UnknownTopicOrPartition,
                    Err((error, _)) => error,
                };
                MetadataResponseTopic::default()
                    .with_error_code(error.code())
                    .with_name(Some(TopicName(StrBytes::from_string(resolved))))
            }
        }
    }

    fn auto_create(&mut self, name: &str) {
        let new = NewTopic { name, partitions: -1, replication_factor: -1, ..NewTopic::default() };
        if let Ok(placement) = self.plan_topic(&new) {
            self.make_topic(&new, placement);
        }
    }

    /// From now on this broker answers Metadata as the topics are now, as one does that lags behind its controller.
    pub(super) fn freeze(&mut self, broker: i32) {
        let topics = self.topics.iter().map(|(name, topic)| self.describe_topic(None, name, topic)).collect();
        self.frozen.insert(broker, topics);
    }

    fn describe_topic(&self, refuse_with: Option<i16>, name: &str, topic: &Topic) -> MetadataResponseTopic {
        let partitions =
            (0..).zip(&topic.partitions).map(|(index, partition)| self.describe_partition(index, partition));
        MetadataResponseTopic::default()
            .with_error_code(refuse_with.unwrap_or_default())
            .with_name(Some(TopicName(StrBytes::from_string(name.to_owned()))))
            .with_topic_id(topic.id)
            .with_partitions(partitions.collect())
    }

    fn describe_partition(&self, index: i32, partition: &Partition) -> MetadataResponsePartition {
        let is_up = |id: i32| self.brokers.get(&id).is_some_and(|broker| broker.is_up);
        let ids = |ids: Vec<i32>| ids.into_iter().map(BrokerId).collect::<Vec<_>>();
        let offline = partition.replicas.iter().copied().filter(|&id| !is_up(id)).collect();
        let error = if partition.leader.is_some() { 0 } else { ResponseError::LeaderNotAvailable.code() };
        MetadataResponsePartition::default()
            .with_error_code(error)
            .with_partition_index(index)
            .with_leader_id(BrokerId(partition.leader.unwrap_or(-1)))
            .with_leader_epoch(partition.leader_epoch)
            .with_replica_nodes(ids(partition.replicas.clone()))
            .with_isr_nodes(ids(partition.isr(is_up)))
            .with_offline_replicas(ids(offline))
    }

    pub(super) fn handle_describe_cluster(&mut self, request: &Request) -> Handled {
        let body: DescribeClusterRequest = request.decode()?;
        let brokers = self.brokers.iter().filter(|(_, broker)| broker.is_up).map(|(&id, broker)| {
            DescribeClusterBroker::default()
                .with_broker_id(BrokerId(id))
                .with_host(StrBytes::from_string(broker.host.clone()))
                .with_port(i32::from(broker.port))
                .with_rack(broker.rack.clone().map(StrBytes::from_string))
        });
        let reply = DescribeClusterResponse::default()
            .with_throttle_time_ms(self.settings.throttle_ms)
            .with_error_code(request.refuse_with.unwrap_or_default())
            .with_endpoint_type(if request.version >= 1 { body.endpoint_type } else { 1 })
            .with_cluster_id(StrBytes::from_string(self.cluster_id.clone()))
            .with_controller_id(BrokerId(self.controller()))
            .with_brokers(brokers.collect());
        Ok(request.reply(&reply))
    }

    pub(super) fn handle_find_coordinator(&mut self, request: &Request) -> Handled {
        let body: FindCoordinatorRequest = request.decode()?;
        let refuse = request.refuse_with;
        let reply = FindCoordinatorResponse::default().with_throttle_time_ms(self.settings.throttle_ms);
        if request.version >= 4 {
            let found =
                body.coordinator_keys.iter().map(|key| self.find_coordinator(key, body.key_type, refuse));
            return Ok(request.reply(&reply.with_coordinators(found.collect())));
        }
        let found = self.find_coordinator(&body.key, body.key_type, refuse);
        let reply = reply
            .with_error_code(found.error_code)
            .with_error_message(found.error_message)
            .with_node_id(found.node_id)
            .with_host(found.host)
            .with_port(found.port);
        Ok(request.reply(&reply))
    }

    fn find_coordinator(&self, key: &StrBytes, key_type: i8, refuse: Option<i16>) -> Coordinator {
        let found = Coordinator::default().with_key(key.clone()).with_node_id(BrokerId(-1)).with_port(-1);
        if let Some(code) = refuse {
            return found.with_error_code(code);
        }
        if !(0..=1).contains(&key_type) {
            return found.with_error_code(ResponseError::InvalidRequest.code());
        }
        match self.coordinator(key).and_then(|id| self.brokers.get(&id).map(|broker| (id, broker))) {
            Some((id, broker)) => found
                .with_node_id(BrokerId(id))
                .with_host(StrBytes::from_string(broker.host.clone()))
                .with_port(i32::from(broker.port)),
            None => found.with_error_code(ResponseError::CoordinatorNotAvailable.code()),
        }
    }

    /// The broker that coordinates a group or a transactional id: by its hash, as if the 50 partitions of the internal topic
    /// were spread over the brokers and moved to the next one while theirs is down.
    pub(super) fn coordinator(&self, key: &str) -> Option<i32> {
        let count = i32::try_from(self.brokers.len()).ok().filter(|&count| count > 0)?;
        let partition = (java_hash(key) & 0x7fff_ffff) % COORDINATOR_PARTITIONS;
        (0..count)
            .map(|step| (partition + step) % count + 1)
            .find(|id| self.brokers.get(id).is_some_and(|b| b.is_up))
    }

    /// The lowest broker that is up stands in for the controller, as a KRaft broker answers with any live one.
    fn controller(&self) -> i32 {
        self.brokers.iter().find(|(_, broker)| broker.is_up).map_or(-1, |(&id, _)| id)
    }
}

fn asked_of_frozen(
    frozen: &[MetadataResponseTopic],
    asked: Option<&[MetadataRequestTopic]>,
) -> Vec<MetadataResponseTopic> {
    let Some(asked) = asked else { return frozen.to_vec() };
    let find = |topic: &MetadataRequestTopic| {
        let found = match &topic.name {
            Some(name) => frozen.iter().find(|one| one.name.as_ref() == Some(name)),
            None => frozen.iter().find(|one| one.topic_id == topic.topic_id),
        };
        let error = match &topic.name {
            Some(_) => ResponseError::UnknownTopicOrPartition,
            None => ResponseError::UnknownTopicId,
        };
        found.cloned().unwrap_or_else(|| {
            MetadataResponseTopic::default()
                .with_error_code(error.code())
                .with_name(topic.name.clone())
                .with_topic_id(topic.topic_id)
        })
    };
    asked.iter().map(find).collect()
}

/// `String.hashCode`.
fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn hashes_are_javas() {
        assert_eq!(super::java_hash("console-consumer-1"), java("console-consumer-1"));
        assert_eq!(super::java_hash(""), 0);
        assert_eq!(super::java_hash("hello"), 99_162_322);
    }

    fn java(text: &str) -> i32 {
        let mut hash = 0_i64;
        for byte in text.bytes() {
            hash = (hash * 31 + i64::from(byte)) & 0xffff_ffff;
        }
        hash as i32
    }
}

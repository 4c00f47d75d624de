//! CreateTopics, CreatePartitions, Metadata, configs, DeleteRecords, DescribeCluster.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DescribeClusterRequest,
    DescribeConfigsRequest, IncrementalAlterConfigsRequest, MetadataRequest,
};

use super::*;
use crate::broker::AutoCreate;

fn topic(topic: &str, partitions: i32, factor: i16, configs: &[(&str, &str)]) -> CreateTopicsRequest {
    let configs = configs.iter().map(|(key, value)| {
        CreatableTopicConfig::default().with_name(text(key)).with_value(Some(text(value)))
    });
    let topic = CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(factor)
        .with_configs(configs.collect());
    CreateTopicsRequest::default().with_topics(vec![topic])
}

#[test]
fn topics_are_created_or_refused_as_the_controller_does() {
    let mut bench = Bench::with_topic(2, 1, 1, &[]);
    let mut check = |request: &CreateTopicsRequest, code: i16| {
        let reply = bench.ask(1, 7, request);
        assert_eq!(reply.topics[0].error_code, code, "{:?}", reply.topics[0].error_message);
        reply.topics[0].clone()
    };
    let made = check(&topic("a.b", -1, -1, &[("retention.ms", "5")]), 0);
    assert_eq!((made.num_partitions, made.replication_factor), (1, 1));
    let configs = made.configs.unwrap();
    let retention = configs.iter().find(|config| config.name.as_str() == "retention.ms").unwrap();
    assert_eq!((retention.value.as_deref(), retention.config_source), (Some("5"), 1));
    check(&topic("t", 1, 1, &[]), ResponseError::TopicAlreadyExists.code());
    check(&topic("a_b", 1, 1, &[]), ResponseError::InvalidTopicException.code());
    check(&topic("a b", 1, 1, &[]), ResponseError::InvalidTopicException.code());
    check(&topic("n", 0, 1, &[]), ResponseError::InvalidPartitions.code());
    check(&topic("n", 1, 3, &[]), ResponseError::InvalidReplicationFactor.code());
    check(&topic("n", 1, 0, &[]), ResponseError::InvalidReplicationFactor.code());
    check(&topic("n", 1, 1, &[("nonsense", "1")]), ResponseError::InvalidConfig.code());
    check(&topic("n", 1, 1, &[]).with_validate_only(true), 0);
    assert_eq!(bench.state.leader("n", 0), None);
}

#[test]
fn partitions_only_grow() {
    let mut bench = Bench::with_topic(2, 2, 2, &[]);
    let mut grow = |count| {
        let topic =
            CreatePartitionsTopic::default().with_name(name("t")).with_count(count).with_assignments(None);
        bench.ask(1, 3, &CreatePartitionsRequest::default().with_topics(vec![topic])).results[0].error_code
    };
    assert_eq!(grow(5), 0);
    assert_eq!(grow(5), ResponseError::InvalidPartitions.code());
    assert_eq!(bench.state.topic_names(), [("t".to_owned(), 5)]);
}

#[test]
fn unknown_topics_are_named_and_created_only_if_asked() {
    let ask = |auto_create, allow| {
        let mut bench = Bench::new(Settings { auto_create, ..Settings::default() });
        let topic = MetadataRequestTopic::default().with_name(Some(name("new")));
        let request =
            MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(allow);
        bench.ask(1, 12, &request).topics[0].error_code
    };
    let unknown = ResponseError::UnknownTopicOrPartition.code();
    assert_eq!(ask(AutoCreate::Off, true), unknown);
    assert_eq!(ask(AutoCreate::On, false), unknown);
    assert_eq!(ask(AutoCreate::On, true), 0);
}

#[test]
fn configs_are_described_with_their_sources_and_changed_step_by_step() {
    let mut bench = Bench::new(Settings {
        topic_defaults: [("retention.ms".to_owned(), "77".to_owned())].into(),
        ..Settings::default()
    });
    bench.state.create_topic_named("t", 1, 1, &[("max.message.bytes", "500")]).unwrap();
    let describe = |bench: &mut Bench, key: &str| {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("t"))
            .with_configuration_keys(Some(vec![text(key)]));
        let reply = bench.ask(1, 4, &DescribeConfigsRequest::default().with_resources(vec![resource]));
        let config = &reply.results[0].configs[0];
        (config.value.as_ref().unwrap().to_string(), config.config_source)
    };
    assert_eq!(describe(&mut bench, "max.message.bytes"), ("500".to_owned(), 1));
    assert_eq!(describe(&mut bench, "retention.ms"), ("77".to_owned(), 4));
    assert_eq!(describe(&mut bench, "segment.bytes"), ("1073741824".to_owned(), 5));
    let synonyms = |bench: &mut Bench, key: &str| {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("t"))
            .with_configuration_keys(Some(vec![text(key)]));
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        let reply = bench.ask(1, 4, &request.with_include_synonyms(true));
        let synonyms = reply.results[0].configs[0].synonyms.iter();
        synonyms
            .map(|one| format!("{}={} from {}", &*one.name, one.value.as_deref().unwrap(), one.source))
            .collect::<Vec<_>>()
    };
    let expected: Vec<String> =
        vec!["max.message.bytes=500 from 1".to_owned(), "message.max.bytes=1048588 from 5".to_owned()];
    assert_eq!(synonyms(&mut bench, "max.message.bytes"), expected);
    assert_eq!(synonyms(&mut bench, "segment.ms"), Vec::<String>::new());
    let alter = |bench: &mut Bench, key: &str, operation, value: Option<&str>| {
        let config = AlterableConfig::default()
            .with_name(text(key))
            .with_config_operation(operation)
            .with_value(value.map(text));
        let resource = AlterConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("t"))
            .with_configs(vec![config]);
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        bench.ask(1, 1, &request).responses[0].error_code
    };
    assert_eq!(alter(&mut bench, "cleanup.policy", 2, Some("compact")), 0);
    assert_eq!(describe(&mut bench, "cleanup.policy").0, "delete,compact");
    assert_eq!(alter(&mut bench, "cleanup.policy", 3, Some("delete")), 0);
    assert_eq!(describe(&mut bench, "cleanup.policy").0, "compact");
    let invalid = ResponseError::InvalidConfig.code();
    assert_eq!(alter(&mut bench, "cleanup.policy", 0, Some("keep")), invalid);
    assert_eq!(alter(&mut bench, "retention.ms", 2, Some("1")), invalid);
    assert_eq!(alter(&mut bench, "retention.time", 0, Some("1")), invalid);
    // What is set holds for the next Produce: a compacted topic takes no record without a key.
    assert_eq!(bench.produce(&batch(1, "x")).error_code, ResponseError::InvalidRecord.code());
    assert_eq!(alter(&mut bench, "cleanup.policy", 1, None), 0);
    assert_eq!(bench.produce(&batch(1, "x")).error_code, 0);
    assert_eq!(bench.produce(&batch(90, "x")).error_code, ResponseError::MessageTooLarge.code());
}

#[test]
fn deleted_records_raise_the_log_start() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    bench.produce(&batch(5, "x"));
    let mut delete = |offset| {
        let partition = DeleteRecordsPartition::default().with_offset(offset);
        let topic = DeleteRecordsTopic::default().with_name(name("t")).with_partitions(vec![partition]);
        let reply = bench.ask(1, 2, &DeleteRecordsRequest::default().with_topics(vec![topic]));
        let result = &reply.topics[0].partitions[0];
        (result.error_code, result.low_watermark)
    };
    assert_eq!(delete(3), (0, 3));
    assert_eq!(delete(9), (ResponseError::OffsetOutOfRange.code(), -1));
    assert_eq!(delete(-1), (0, 5));
    assert_eq!(bench.fetch(1, 0, 0).error_code, ResponseError::OffsetOutOfRange.code());
}

#[test]
fn the_cluster_names_the_brokers_that_are_up() {
    let mut bench = Bench::with_topic(3, 1, 1, &[]);
    bench.state.broker_down(1).unwrap();
    let reply = bench.ask(2, 1, &DescribeClusterRequest::default().with_endpoint_type(1));
    let brokers: Vec<_> = reply.brokers.iter().map(|broker| (broker.broker_id.0, broker.port)).collect();
    assert_eq!(brokers, [(2, 9_001), (3, 9_002)]);
    assert_eq!(reply.cluster_id.len(), 22);
}

#[test]
fn stale_metadata_stays_until_it_is_thawed() {
    let mut bench = Bench::with_topic(2, 1, 2, &[]);
    bench.state.freeze_metadata(1).unwrap();
    bench.state.create_topic_named("new", 1, 1, &[]).unwrap();
    bench.state.move_leader("t", 0, 2).unwrap();
    let seen = |bench: &mut Bench, broker| {
        let topic = |topic: &str| MetadataRequestTopic::default().with_name(Some(name(topic)));
        let request = MetadataRequest::default().with_topics(Some(vec![topic("t"), topic("new")]));
        let reply = bench.ask(broker, 12, &request);
        (reply.topics[0].partitions[0].leader_id.0, reply.topics[1].error_code)
    };
    assert_eq!(seen(&mut bench, 1), (1, ResponseError::UnknownTopicOrPartition.code()));
    assert_eq!(seen(&mut bench, 2), (2, 0));
    bench.state.thaw_metadata(1);
    assert_eq!(seen(&mut bench, 1), (2, 0));
}

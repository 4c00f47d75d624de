//! Produce, as the other parts use it, and what a broker refuses before it looks at a log. Which batches a log takes is
//! the table of `conformance_produce`.

use crate::{assert_observed, on_both};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{CreateTopicsRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use protocol_tests::Result;
use protocol_tests::batch::CraftedBatch;
use protocol_tests::embedded::TestCluster;
use protocol_tests::raw::RawConnection;
use std::time::{SystemTime, UNIX_EPOCH};

on_both!(places_and_codecs, super::check_places);

pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

fn create_topic(
    connection: &mut RawConnection,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> Result<i16> {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let configs = configs.iter().map(|(key, value)| {
        CreatableTopicConfig::default().with_name(text(key)).with_value(Some(text(value)))
    });
    let topic = CreatableTopic::default()
        .with_name(TopicName(text(name)))
        .with_num_partitions(partitions)
        .with_replication_factor(1)
        .with_configs(configs.collect());
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(20_000);
    let reply = connection.call(5, &request)?;
    Ok(reply.topics.first().map_or(-1, |topic| topic.error_code))
}

/// Error code and base offset that one partition got.
pub(crate) fn produce(
    connection: &mut RawConnection,
    topic: &str,
    partition: i32,
    records: &[u8],
) -> Result<(i16, i64)> {
    produce_in(9, connection, topic, partition, records)
}

fn produce_in(
    version: i16,
    connection: &mut RawConnection,
    topic: &str,
    partition: i32,
    records: &[u8],
) -> Result<(i16, i64)> {
    let data = PartitionProduceData::default()
        .with_index(partition)
        .with_records(Some(bytes::Bytes::copy_from_slice(records)));
    let topic = TopicProduceData::default()
        .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
        .with_partition_data(vec![data]);
    let request =
        ProduceRequest::default().with_acks(-1).with_timeout_ms(20_000).with_topic_data(vec![topic]);
    let reply = connection.call(version, &request)?;
    let partition = reply.responses.first().and_then(|topic| topic.partition_responses.first());
    Ok(partition.map_or((i16::MIN, -1), |reply| (reply.error_code, reply.base_offset)))
}

/// Real brokers need a moment between the reply to CreateTopics and the first Produce.
pub(crate) fn ready_topic(
    connection: &mut RawConnection,
    name: &str,
    configs: &[(&str, &str)],
) -> Result<()> {
    assert_eq!(create_topic(connection, name, 1, configs)?, 0, "{name}");
    protocol_tests::wait::wait_until_equal("the leader", std::time::Duration::from_secs(10), &0, || {
        let plain = CraftedBatch::new(1, now_ms()).bytes();
        produce(connection, name, 0, &plain).map(|(code, _)| code)
    })
}

fn check_places(cluster: &TestCluster) -> Result<()> {
    let connection = &mut RawConnection::open(&cluster.bootstrap())?;
    ready_topic(connection, "places", &[])?;
    let plain = CraftedBatch::new(3, now_ms()).bytes();
    let mut zstd = CraftedBatch::new(3, now_ms());
    zstd.attributes = 4;
    let steps = [
        ("a missing topic", 9, "missing", 0, &plain),
        ("a missing partition", 9, "places", 9, &plain),
        ("no zstd before version 7", 6, "places", 0, &zstd.bytes()),
        ("zstd that is none", 7, "places", 0, &zstd.bytes()),
    ];
    let mut observed = Vec::new();
    for (name, version, topic, partition, records) in steps {
        let (code, _) = produce_in(version, connection, topic, partition, records)?;
        observed.push(format!("{name}: {code}"));
    }
    assert_observed(cluster, &observed, EXPECTED_PLACES);
    Ok(())
}

const EXPECTED_PLACES: &str = "
a missing topic: 3
a missing partition: 3
no zstd before version 7: 76
zstd that is none: -1
";

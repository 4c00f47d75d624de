//! Produce: which batches a broker takes, and the error codes of those that it refuses.

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

on_both!(single_batches, super::check_single_batches);
on_both!(sequences, super::check_sequences);

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
    let data = PartitionProduceData::default()
        .with_index(partition)
        .with_records(Some(bytes::Bytes::copy_from_slice(records)));
    let topic = TopicProduceData::default()
        .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
        .with_partition_data(vec![data]);
    let request =
        ProduceRequest::default().with_acks(-1).with_timeout_ms(20_000).with_topic_data(vec![topic]);
    let reply = connection.call(9, &request)?;
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

fn check_single_batches(cluster: &TestCluster) -> Result<()> {
    let connection = &mut RawConnection::open(&cluster.bootstrap())?;
    ready_topic(connection, "plain", &[])?;
    ready_topic(connection, "small", &[("max.message.bytes", "200")])?;
    ready_topic(connection, "compacted", &[("cleanup.policy", "compact")])?;
    ready_topic(connection, "stamped", &[("message.timestamp.type", "LogAppendTime")])?;
    let now = now_ms();
    let hour = 3_600_000;
    let with = |change: fn(&mut CraftedBatch)| {
        let mut batch = CraftedBatch::new(3, now);
        change(&mut batch);
        batch.bytes().to_vec()
    };
    let at = |timestamp| CraftedBatch::new(3, timestamp).bytes().to_vec();
    let cases: Vec<(&str, &str, Vec<u8>)> = vec![
        ("plain", "right", with(|_| {})),
        ("plain", "base offset 5", with(|batch| batch.base_offset = 5)),
        ("plain", "leader epoch 7", with(|batch| batch.leader_epoch = 7)),
        ("plain", "count 0", with(|batch| batch.record_count = 0)),
        ("plain", "count -1", with(|batch| batch.record_count = -1)),
        ("plain", "count below the last offset delta", with(|batch| batch.record_count = 2)),
        (
            "plain",
            "count above the records",
            with(|batch| {
                (batch.record_count, batch.last_offset_delta) = (4, 3);
            }),
        ),
        (
            "plain",
            "count below the records",
            with(|batch| {
                (batch.record_count, batch.last_offset_delta) = (2, 1);
            }),
        ),
        ("plain", "inner deltas 0 5 9", with(|batch| (batch.records[1].0, batch.records[2].0) = (5, 9))),
        ("plain", "control bit", with(|batch| batch.attributes = 0x20)),
        ("plain", "transactional bit without producer", with(|batch| batch.attributes = 0x10)),
        ("plain", "log append time bit", with(|batch| batch.attributes = 0x08)),
        ("plain", "delete horizon bit", with(|batch| batch.attributes = 0x40)),
        ("plain", "unused bit", with(|batch| batch.attributes = 0x80)),
        ("plain", "codec 5", with(|batch| batch.attributes = 5)),
        ("plain", "gzip that is none", with(|batch| batch.attributes = 1)),
        ("plain", "wrong checksum", with(|batch| batch.crc_error = 1)),
        ("plain", "magic 1", with(|batch| batch.magic = 1)),
        ("plain", "magic 3", with(|batch| batch.magic = 3)),
        ("plain", "trailing bytes", with(|batch| batch.trailing = vec![0; 5])),
        ("plain", "two batches", [with(|_| {}), with(|_| {})].concat()),
        ("plain", "cut off", with(|_| {})[..70].to_vec()),
        ("plain", "nothing", Vec::new()),
        ("plain", "producer without sequence", with(|batch| batch.producer_id = 777)),
        ("plain", "max timestamp too high", with(|batch| batch.max_timestamp += 1000)),
        ("plain", "two hours ahead", at(now + 2 * hour)),
        ("plain", "ten years old", at(now - 10 * 365 * 24 * hour)),
        ("plain", "timestamp 0", at(0)),
        ("plain", "timestamp -1", at(-1)),
        ("small", "at the limit", with(|batch| batch.value = vec![b'x'; 38])),
        ("small", "over the limit", with(|batch| batch.value = vec![b'x'; 39])),
        ("compacted", "a null key", with(|batch| batch.records[1].1 = None)),
        ("stamped", "two hours ahead", at(now + 2 * hour)),
        ("stamped", "log append time bit", with(|batch| batch.attributes = 0x08)),
        ("missing", "right", with(|_| {})),
    ];
    let mut observed = Vec::new();
    for (topic, name, records) in cases {
        let (code, _) = produce(connection, topic, 0, &records)?;
        observed.push(format!("{topic}, {name}: {code}"));
    }
    let (code, _) = produce(connection, "plain", 9, &with(|_| {}))?;
    observed.push(format!("plain, partition 9: {code}"));
    assert_observed(cluster, &observed, EXPECTED_SINGLE);
    Ok(())
}

const EXPECTED_SINGLE: &str = "
plain, right: 0
plain, base offset 5: 87
plain, leader epoch 7: 0
plain, count 0: 87
plain, count -1: 87
plain, count below the last offset delta: 87
plain, count above the records: 87
plain, count below the records: 87
plain, inner deltas 0 5 9: 0
plain, control bit: 87
plain, transactional bit without producer: 53
plain, log append time bit: 0
plain, delete horizon bit: 0
plain, unused bit: 0
plain, codec 5: -1
plain, gzip that is none: -1
plain, wrong checksum: 2
plain, magic 1: 87
plain, magic 3: 2
plain, trailing bytes: 87
plain, two batches: 87
plain, cut off: 87
plain, nothing: 87
plain, producer without sequence: 87
plain, max timestamp too high: 0
plain, two hours ahead: 32
plain, ten years old: 0
plain, timestamp 0: 0
plain, timestamp -1: 0
small, at the limit: 0
small, over the limit: 10
compacted, a null key: 87
stamped, two hours ahead: 0
stamped, log append time bit: 32
missing, right: 3
plain, partition 9: 3
";

fn check_sequences(cluster: &TestCluster) -> Result<()> {
    let connection = &mut RawConnection::open(&cluster.bootstrap())?;
    ready_topic(connection, "sequences", &[])?;
    let now = now_ms();
    let mut observed = Vec::new();
    let steps: [(&str, i32, i16, i32); 17] = [
        ("first at 5", 2, 0, 5),
        ("next", 3, 0, 7),
        ("again", 3, 0, 7),
        ("the one before again", 2, 0, 5),
        ("same first, other count", 2, 0, 7),
        ("a gap", 1, 0, 12),
        ("an overlap", 3, 0, 9),
        ("batch 3", 1, 0, 10),
        ("batch 4", 1, 0, 11),
        ("batch 5", 1, 0, 12),
        ("batch 6", 1, 0, 13),
        ("the sixth before again", 2, 0, 5),
        ("the fifth before again", 3, 0, 7),
        ("next epoch, sequence 3", 1, 1, 3),
        ("next epoch, sequence 0", 1, 1, 0),
        ("the older epoch", 1, 0, 14),
        ("next", 1, 1, 1),
    ];
    for (name, count, epoch, sequence) in steps {
        let batch = CraftedBatch::new(count, now).by(4_000, epoch, sequence);
        let (code, base) = produce(connection, "sequences", 0, &batch.bytes())?;
        observed.push(format!("{name}: {code} at {base}"));
    }
    let wrapping = [(i32::MAX - 1, 4), (2, 1), (i32::MAX, 1)];
    for (sequence, count) in wrapping {
        let batch = CraftedBatch::new(count, now).by(4_001, 0, sequence);
        let (code, base) = produce(connection, "sequences", 0, &batch.bytes())?;
        observed.push(format!("wrap, {count} from {sequence}: {code} at {base}"));
    }
    assert_observed(cluster, &observed, EXPECTED_SEQUENCES);
    Ok(())
}

const EXPECTED_SEQUENCES: &str = "
first at 5: 0 at 1
next: 0 at 3
again: 0 at 3
the one before again: 0 at 1
same first, other count: 45 at -1
a gap: 45 at -1
an overlap: 45 at -1
batch 3: 0 at 6
batch 4: 0 at 7
batch 5: 0 at 8
batch 6: 0 at 9
the sixth before again: 45 at -1
the fifth before again: 0 at 3
next epoch, sequence 3: 45 at -1
next epoch, sequence 0: 0 at 10
the older epoch: 47 at -1
next: 0 at 11
wrap, 4 from 2147483646: 0 at 12
wrap, 1 from 2: 0 at 16
wrap, 1 from 2147483647: 45 at -1
";

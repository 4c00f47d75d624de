//! What is needed to put a hand-made batch on the wire and to look at what became of it. Nothing of kmirror's own client
//! is used, because it could not send what is wrong.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_producers_response::ProducerState;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, BrokerId, CreateTopicsRequest, DeleteRecordsRequest, DescribeProducersRequest,
    EndTxnRequest, FetchRequest, FindCoordinatorRequest, InitProducerIdRequest, ListOffsetsRequest,
    OffsetForLeaderEpochRequest, ProduceRequest, ProducerId, TopicName, TransactionalId,
};
use kafka_protocol::protocol::{Request, StrBytes};
use kmirror::record::BatchHeader;
use protocol_tests::raw::RawConnection;
use protocol_tests::wait::{Look, wait_for};
use uuid::Uuid;

const TIMEOUT: Duration = Duration::from_secs(30);
const CONCURRENT_TRANSACTIONS: i16 = 51;

/// What a broker said to one Produce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: i16,
    pub(crate) base_offset: i64,
    pub(crate) has_append_time: bool,
    pub(crate) log_start_offset: i64,
    pub(crate) bad_records: Vec<i32>,
    pub(crate) message: Option<String>,
}

impl Answer {
    /// The answer as it would be for another topic, whose name stands in the message.
    pub(crate) fn of_topic(self, topic: &str) -> Answer {
        Answer {
            message: self.message.map(|text| text.replace("conformance-0", &format!("{topic}-0"))),
            ..self
        }
    }
}

/// A connection to the only broker of a cluster.
pub(crate) struct Connection(RawConnection);

impl Connection {
    pub(crate) fn open(bootstrap: &str) -> Connection {
        Connection(RawConnection::open(bootstrap).expect("the broker listens"))
    }

    pub(crate) fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.0.call(version, request).expect("the broker answers")
    }

    /// Creates a topic of one partition and waits until its leader takes requests.
    pub(crate) fn create_topic(&mut self, topic: &str, configs: &[(&str, &str)]) {
        self.create_topic_of(topic, 1, configs);
    }

    /// Creates a topic, waits until its leaders take requests, and gives its id.
    pub(crate) fn create_topic_of(&mut self, topic: &str, partitions: i32, configs: &[(&str, &str)]) -> Uuid {
        let configs = configs
            .iter()
            .map(|(key, value)| {
                CreatableTopicConfig::default().with_name(text(key)).with_value(Some(text(value)))
            })
            .collect();
        let topic_spec = CreatableTopic::default()
            .with_name(name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(1)
            .with_configs(configs);
        let request = CreateTopicsRequest::default().with_topics(vec![topic_spec]).with_timeout_ms(30_000);
        let response = self.call(7, &request);
        let created = &response.topics[0];
        assert_eq!(created.error_code, 0, "{topic}: {:?}", created.error_message);
        for partition in 0..partitions {
            retry(|| self.fetch_of(topic, partition, 0, 1, 0).error_code == 0);
        }
        created.topic_id
    }

    /// Sends one batch with acks=all. From version 12 on a transactional Produce needs no AddPartitionsToTxn.
    pub(crate) fn produce(&mut self, topic: &str, transactional_id: Option<&str>, records: &Bytes) -> Answer {
        self.produce_version(9, topic, transactional_id, records)
    }

    pub(crate) fn produce_version(
        &mut self,
        version: i16,
        topic: &str,
        transactional_id: Option<&str>,
        records: &Bytes,
    ) -> Answer {
        self.produce_request(version, (topic, 0), transactional_id, records)
    }

    /// Sends one batch to any partition.
    pub(crate) fn produce_to(&mut self, topic: &str, partition: i32, records: &Bytes) -> Answer {
        self.produce_request(9, (topic, partition), None, records)
    }

    fn produce_request(
        &mut self,
        version: i16,
        (topic, partition): (&str, i32),
        transactional_id: Option<&str>,
        records: &Bytes,
    ) -> Answer {
        let data = PartitionProduceData::default().with_index(partition).with_records(Some(records.clone()));
        let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_transactional_id(transactional_id.map(|id| TransactionalId(text(id))))
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![topic]);
        let response = self.call(version, &request);
        let answer = &response.responses[0].partition_responses[0];
        Answer {
            code: answer.error_code,
            base_offset: answer.base_offset,
            has_append_time: answer.log_append_time_ms != -1,
            log_start_offset: answer.log_start_offset,
            bad_records: answer.record_errors.iter().map(|error| error.batch_index).collect(),
            message: answer.error_message.as_ref().map(|message| message.to_string()),
        }
    }

    /// Everything that the topic's partition holds, as stored.
    pub(crate) fn read_all(&mut self, topic: &str) -> Bytes {
        let (mut all, mut next_offset) = (BytesMut::new(), 0);
        // A reply ends with its segment at the latest.
        loop {
            let (code, records) = self.fetch_once(topic, next_offset);
            assert_eq!(code, 0, "fetch from {topic}");
            if records.is_empty() {
                return all.freeze();
            }
            let mut rest = &records[..];
            while let Ok(header) = BatchHeader::parse(rest) {
                next_offset = header.next_offset();
                rest = &rest[header.size_bytes..];
            }
            all.extend_from_slice(&records);
        }
    }

    fn fetch_once(&mut self, topic: &str, offset: i64) -> (i16, Bytes) {
        let partition = self.fetch(topic, offset, 50_000_000, 0);
        (partition.error_code, partition.records.unwrap_or_default())
    }

    /// What one Fetch gives, at once.
    pub(crate) fn fetch(&mut self, topic: &str, offset: i64, bytes_max: i32, isolation: i8) -> PartitionData {
        self.fetch_of(topic, 0, offset, bytes_max, isolation)
    }

    fn fetch_of(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
        bytes_max: i32,
        isolation: i8,
    ) -> PartitionData {
        let partition = FetchPartition::default()
            .with_partition(partition)
            .with_current_leader_epoch(-1)
            .with_fetch_offset(offset)
            .with_partition_max_bytes(bytes_max);
        let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
        let request = FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(0)
            .with_max_bytes(50_000_000)
            .with_isolation_level(isolation)
            .with_session_epoch(-1)
            .with_topics(vec![topic]);
        let mut response = self.call(11, &request);
        response.responses.swap_remove(0).partitions.swap_remove(0)
    }

    /// Error code, timestamp, offset and leader epoch.
    pub(crate) fn list_offset(&mut self, topic: &str, timestamp: i64, isolation: i8) -> (i16, i64, i64, i32) {
        let partition = ListOffsetsPartition::default()
            .with_partition_index(0)
            .with_current_leader_epoch(-1)
            .with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_isolation_level(isolation)
            .with_topics(vec![topic]);
        let response = self.call(7, &request);
        let found = &response.topics[0].partitions[0];
        (found.error_code, found.timestamp, found.offset, found.leader_epoch)
    }

    /// Error code, epoch and end offset.
    pub(crate) fn end_offset_for_epoch(&mut self, topic: &str, leader_epoch: i32) -> (i16, i32, i64) {
        let partition = OffsetForLeaderPartition::default()
            .with_partition(0)
            .with_current_leader_epoch(-1)
            .with_leader_epoch(leader_epoch);
        let topic = OffsetForLeaderTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
        let request =
            OffsetForLeaderEpochRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
        let response = self.call(4, &request);
        let found = &response.topics[0].partitions[0];
        (found.error_code, found.leader_epoch, found.end_offset)
    }

    /// Error code and new log start offset.
    pub(crate) fn delete_records(&mut self, topic: &str, before_offset: i64) -> (i16, i64) {
        self.delete_records_of(topic, 0, before_offset)
    }

    pub(crate) fn delete_records_of(
        &mut self,
        topic: &str,
        partition: i32,
        before_offset: i64,
    ) -> (i16, i64) {
        let partition =
            DeleteRecordsPartition::default().with_partition_index(partition).with_offset(before_offset);
        let topic = DeleteRecordsTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
        let request = DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
        let response = self.call(2, &request);
        let result = &response.topics[0].partitions[0];
        (result.error_code, result.low_watermark)
    }

    /// The producers that the partition remembers, by id.
    pub(crate) fn producers(&mut self, topic: &str) -> Vec<ProducerState> {
        let topic = TopicRequest::default().with_name(name(topic)).with_partition_indexes(vec![0]);
        let mut response = self.call(0, &DescribeProducersRequest::default().with_topics(vec![topic]));
        let mut producers = response.topics.swap_remove(0).partitions.swap_remove(0).active_producers;
        producers.sort_by_key(|producer| producer.producer_id.0);
        producers
    }

    /// A fresh producer id and epoch for a transactional id.
    pub(crate) fn init_producer_id(&mut self, transactional_id: &str) -> (i64, i16) {
        let find = FindCoordinatorRequest::default().with_key(text(transactional_id)).with_key_type(1);
        retry(|| self.call(3, &find).error_code == 0);
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(text(transactional_id))))
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let mut identity = (-1, -1);
        retry(|| {
            let response = self.call(4, &request);
            identity = (response.producer_id.0, response.producer_epoch);
            response.error_code == 0
        });
        identity
    }

    /// Puts the topic's partition into the transaction and gives the error code.
    pub(crate) fn add_partition(&mut self, transactional_id: &str, identity: (i64, i16), topic: &str) -> i16 {
        let topic = AddPartitionsToTxnTopic::default().with_name(name(topic)).with_partitions(vec![0]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(TransactionalId(text(transactional_id)))
            .with_v3_and_below_producer_id(ProducerId(identity.0))
            .with_v3_and_below_producer_epoch(identity.1)
            .with_v3_and_below_topics(vec![topic]);
        let mut code = 0;
        retry(|| {
            let response = self.call(3, &request);
            code = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code;
            code != CONCURRENT_TRANSACTIONS
        });
        code
    }

    /// Ends the transaction, waits until its markers are written, and gives error code and the epoch to go on with.
    pub(crate) fn end_transaction(
        &mut self,
        version: i16,
        transactional_id: &str,
        identity: (i64, i16),
        committed: bool,
    ) -> (i16, i16) {
        let request = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(text(transactional_id)))
            .with_producer_id(ProducerId(identity.0))
            .with_producer_epoch(identity.1)
            .with_committed(committed);
        let mut answer = (0, 0);
        // The second success says that the first one's markers are all there.
        for _ in 0..2 {
            retry(|| {
                let response = self.call(version, &request);
                answer = (response.error_code, response.producer_epoch);
                answer.0 != CONCURRENT_TRANSACTIONS
            });
        }
        if version < 5 { (answer.0, identity.1) } else { answer }
    }
}

/// Asks until the answer is yes.
fn retry(mut done: impl FnMut() -> bool) {
    let ready = || Ok(if done() { Look::Done(()) } else { Look::Pending(String::new()) });
    wait_for("the broker to get ready", TIMEOUT, ready).expect("the broker gets ready");
}

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

pub(crate) fn name(topic: &str) -> TopicName {
    TopicName(text(topic))
}

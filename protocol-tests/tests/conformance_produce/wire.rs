//! A blocking connection to a broker: what is needed to put a hand-made batch on the wire and to look at the answer.
//! Nothing of kmirror's own client is used, because it could not send what is wrong.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, BrokerId, CreateTopicsRequest, EndTxnRequest, FetchRequest,
    FindCoordinatorRequest, InitProducerIdRequest, ProduceRequest, ProducerId, RequestHeader, TopicName,
    TransactionalId,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use kmirror::record::BatchHeader;

const TIMEOUT: Duration = Duration::from_secs(30);
const RETRY_PAUSE: Duration = Duration::from_millis(20);

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

pub(crate) struct Connection {
    stream: TcpStream,
    correlation_id: i32,
}

impl Connection {
    pub(crate) fn open(address: &str) -> Connection {
        let stream = TcpStream::connect(address).expect("the broker listens");
        stream.set_nodelay(true).expect("an option of every socket");
        stream.set_read_timeout(Some(TIMEOUT)).expect("not zero");
        Connection { stream, correlation_id: 0 }
    }

    pub(crate) fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.correlation_id += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation_id)
            .with_client_id(Some(StrBytes::from_static_str("conformance")));
        let mut body = BytesMut::new();
        header.encode(&mut body, R::header_version(version)).expect("a valid header");
        request.encode(&mut body, version).expect("a valid request");
        let mut frame = BytesMut::with_capacity(body.len() + 4);
        frame.put_i32(body.len() as i32);
        frame.extend_from_slice(&body);
        self.stream.write_all(&frame).expect("the broker reads");
        let mut size = [0; 4];
        self.stream.read_exact(&mut size).expect("the broker answers");
        let mut reply = vec![0; u32::from_be_bytes(size) as usize];
        self.stream.read_exact(&mut reply).expect("the broker answers whole");
        let mut reply = Bytes::from(reply);
        let response_header = R::Response::header_version(version);
        let header = kafka_protocol::messages::ResponseHeader::decode(&mut reply, response_header)
            .expect("a response header");
        assert_eq!(header.correlation_id, self.correlation_id);
        R::Response::decode(&mut reply, version).expect("a response")
    }

    /// Creates a topic of one partition and waits until its leader takes requests.
    pub(crate) fn create_topic(&mut self, topic: &str, configs: &[(&str, &str)]) {
        let configs = configs
            .iter()
            .map(|(key, value)| {
                CreatableTopicConfig::default().with_name(text(key)).with_value(Some(text(value)))
            })
            .collect();
        let topic_spec = CreatableTopic::default()
            .with_name(name(topic))
            .with_num_partitions(1)
            .with_replication_factor(1)
            .with_configs(configs);
        let request = CreateTopicsRequest::default().with_topics(vec![topic_spec]).with_timeout_ms(30_000);
        let response = self.call(5, &request);
        let created = &response.topics[0];
        assert_eq!(created.error_code, 0, "{topic}: {:?}", created.error_message);
        retry(|| self.fetch_once(topic, 0).0 == 0);
    }

    /// Sends one batch with acks=all.
    pub(crate) fn produce(&mut self, topic: &str, transactional_id: Option<&str>, records: &Bytes) -> Answer {
        let data = PartitionProduceData::default().with_index(0).with_records(Some(records.clone()));
        let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_transactional_id(transactional_id.map(|id| TransactionalId(text(id))))
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![topic]);
        let response = self.call(9, &request);
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
        const BYTES_MAX: i32 = 50_000_000;
        let partition = FetchPartition::default()
            .with_partition(0)
            .with_current_leader_epoch(-1)
            .with_fetch_offset(offset)
            .with_partition_max_bytes(BYTES_MAX);
        let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
        let request = FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(0)
            .with_max_bytes(BYTES_MAX)
            .with_session_epoch(-1)
            .with_topics(vec![topic]);
        let response = self.call(11, &request);
        let partition = &response.responses[0].partitions[0];
        (partition.error_code, partition.records.clone().unwrap_or_default())
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

    /// Puts the topic's partition into the transaction.
    pub(crate) fn add_partition(&mut self, transactional_id: &str, identity: (i64, i16), topic: &str) {
        let topic = AddPartitionsToTxnTopic::default().with_name(name(topic)).with_partitions(vec![0]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(TransactionalId(text(transactional_id)))
            .with_v3_and_below_producer_id(ProducerId(identity.0))
            .with_v3_and_below_producer_epoch(identity.1)
            .with_v3_and_below_topics(vec![topic]);
        retry(|| {
            let response = self.call(3, &request);
            response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        });
    }

    /// Ends the transaction and waits until its markers are written.
    pub(crate) fn end_transaction(&mut self, transactional_id: &str, identity: (i64, i16), committed: bool) {
        let request = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(text(transactional_id)))
            .with_producer_id(ProducerId(identity.0))
            .with_producer_epoch(identity.1)
            .with_committed(committed);
        // The second success says that the first one's markers are all there.
        for _ in 0..2 {
            retry(|| self.call(4, &request).error_code == 0);
        }
    }
}

fn retry(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < end, "the broker did not get ready");
        std::thread::sleep(RETRY_PAUSE);
    }
}

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

fn name(topic: &str) -> TopicName {
    TopicName(text(topic))
}

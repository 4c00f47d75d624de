//! Whole clusters, asked as clients ask: by frames to the state machine, over TCP, over the simulated network.

mod admin;
mod consume;
mod groups;
mod live;
mod produce;
mod sessions;
mod transactions;
mod versions;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    ApiKey, FetchRequest, FetchResponse, ProduceRequest, ProduceResponse, RequestHeader, ResponseHeader,
    TopicName, TransactionalId,
};
use kafka_protocol::protocol::{Decodable, Encodable, Request as Api, StrBytes};

use super::wire::{BrokerId, ConnectionId, Outcome, Request, WaitId};
use super::{ClusterState, Settings};
use crate::record::{Attributes, BatchBuilder, BatchOptions, Codec, ProducerIdentity, RecordData};

const START_MS: i64 = 1_700_000_000_000;

/// A state machine, its clock, and the reply or wait of the last request.
struct Bench {
    state: ClusterState,
    now_ms: i64,
}

impl Bench {
    fn new(settings: Settings) -> Bench {
        let ports: Vec<u16> = (0..settings.brokers as u16).map(|nth| 9_000 + nth).collect();
        Bench { state: ClusterState::new(settings, &ports), now_ms: START_MS }
    }

    /// A cluster of `brokers` with topic `t`.
    fn with_topic(brokers: u32, partitions: u32, replicas: u16, configs: &[(&str, &str)]) -> Bench {
        let mut bench = Bench::new(Settings { brokers, ..Settings::default() });
        bench.state.create_topic_named("t", partitions, replicas, configs).unwrap();
        bench
    }

    fn send<R: Api>(&mut self, broker: i32, version: i16, body: &R) -> Outcome {
        let request = Request::parse(BrokerId(broker), ConnectionId(0), frame(version, body)).unwrap();
        self.state.handle(&request, self.now_ms)
    }

    /// The reply, which must come at once.
    fn ask<R: Api>(&mut self, broker: i32, version: i16, body: &R) -> R::Response {
        read::<R>(version, self.send(broker, version, body))
    }

    /// The wait that a request ends in.
    fn wait<R: Api>(&mut self, broker: i32, version: i16, body: &R) -> WaitId {
        match self.send(broker, version, body) {
            Outcome::Wait { id, .. } => id,
            other => panic!("{other:?}"),
        }
    }

    /// The reply of a wait.
    fn resumed<R: Api>(&mut self, version: i16, id: WaitId) -> R::Response {
        read::<R>(version, self.state.resume(id, self.now_ms))
    }

    fn topic_id(&mut self, name: &str) -> uuid::Uuid {
        use kafka_protocol::messages::MetadataRequest;
        let all = self.ask(1, 12, &MetadataRequest::default().with_topics(None));
        let topic =
            all.topics.iter().find(|topic| topic.name.as_deref().is_some_and(|is| is.as_str() == name));
        topic.unwrap().topic_id
    }

    /// Produces to partition 0 of `t` at broker 1.
    fn produce(&mut self, batch: &Bytes) -> PartitionProduceResponse {
        let reply: ProduceResponse = self.ask(1, 9, &produce("t", &[(0, batch)]));
        reply.responses[0].partition_responses[0].clone()
    }

    /// Fetches from one partition of `t` without a session and without waiting.
    fn fetch(&mut self, broker: i32, partition: i32, offset: i64) -> PartitionData {
        let reply: FetchResponse = self.ask(broker, 11, &fetch("t", &[(partition, offset)]));
        reply.responses[0].partitions[0].clone()
    }
}

fn frame<R: Api>(version: i16, body: &R) -> Bytes {
    let key = ApiKey::try_from(R::KEY).unwrap();
    let mut frame = BytesMut::new();
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(7)
        .with_client_id(Some(StrBytes::from_static_str("test")));
    header.encode(&mut frame, key.request_header_version(version)).unwrap();
    body.encode(&mut frame, version).unwrap();
    frame.freeze()
}

fn read<R: Api>(version: i16, outcome: Outcome) -> R::Response {
    let Outcome::Reply(reply) = outcome else { panic!("{} v{version}: {outcome:?}", R::KEY) };
    let mut bytes = Bytes::from(reply.pieces.concat());
    let key = ApiKey::try_from(R::KEY).unwrap();
    let header = ResponseHeader::decode(&mut bytes, key.response_header_version(version)).unwrap();
    assert_eq!(header.correlation_id, 7);
    let body = R::Response::decode(&mut bytes, version).unwrap();
    assert!(bytes.is_empty(), "{key:?} v{version}: {} bytes too many", bytes.len());
    body
}

fn name(topic: &str) -> TopicName {
    TopicName(text(topic))
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// A batch of `count` records with values `prefix0`….
fn batch(count: usize, prefix: &str) -> Bytes {
    batch_by(count, prefix, ProducerIdentity::NONE, 0)
}

fn batch_by(count: usize, prefix: &str, identity: ProducerIdentity, attributes: i16) -> Bytes {
    let options =
        BatchOptions { identity, attributes: Attributes(attributes), ..BatchOptions::new(Codec::None) };
    let mut builder = BatchBuilder::new(options);
    for n in 0..count {
        let value = Some(Bytes::from(format!("{prefix}{n}")));
        builder.push(&RecordData { timestamp: START_MS, value, ..RecordData::default() }).unwrap();
    }
    builder.build().unwrap()
}

fn by(producer_id: i64, producer_epoch: i16, base_sequence: i32) -> ProducerIdentity {
    ProducerIdentity { producer_id, producer_epoch, base_sequence }
}

fn produce(topic: &str, batches: &[(i32, &Bytes)]) -> ProduceRequest {
    let partitions = batches
        .iter()
        .map(|(index, batch)| {
            PartitionProduceData::default().with_index(*index).with_records(Some((*batch).clone()))
        })
        .collect();
    let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(partitions);
    ProduceRequest::default().with_acks(-1).with_timeout_ms(1_000).with_topic_data(vec![topic])
}

fn transactional(request: ProduceRequest, id: &str) -> ProduceRequest {
    request.with_transactional_id(Some(TransactionalId(text(id))))
}

fn fetch_partition(index: i32, offset: i64) -> FetchPartition {
    FetchPartition::default()
        .with_partition(index)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20)
}

fn fetch(topic: &str, offsets: &[(i32, i64)]) -> FetchRequest {
    let partitions = offsets.iter().map(|(index, offset)| fetch_partition(*index, *offset)).collect();
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(partitions);
    FetchRequest::default().with_max_bytes(50 << 20).with_session_epoch(-1).with_topics(vec![topic])
}

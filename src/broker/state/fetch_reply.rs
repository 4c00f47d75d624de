//! The bytes of a Fetch reply, versions 4 to 18, as pieces: what stands around the batches is written here, the batches
//! are the log's own (`FetchResponse.json`).
//!
//! By hand because the codecs copy every payload into one buffer.

use bytes::{BufMut, Bytes, BytesMut};

use super::fetch_session::FetchKey;
use crate::broker::log::{EpochEnd, Isolation, Read};
use crate::broker::wire::{Reply, Request};
use kafka_protocol::ResponseError;

/// From this version on lengths are varints and tagged fields follow every structure.
const FLEXIBLE_VERSION: i16 = 12;
const TOPIC_ID_VERSION: i16 = 13;
/// From this version on a wrong broker names the leader (KIP-951).
const LEADER_VERSION: i16 = 16;

/// A whole reply.
#[derive(Debug)]
pub(super) struct FetchReply {
    pub(super) throttle_ms: i32,
    pub(super) error_code: i16,
    pub(super) session_id: i32,
    pub(super) isolation: Isolation,
    /// Id, host and port of the leaders that are named.
    pub(super) endpoints: Vec<(i32, String, u16)>,
    pub(super) partitions: Vec<PartitionReply>,
}

/// The answer for one partition.
#[derive(Debug)]
pub(super) struct PartitionReply {
    pub(super) key: FetchKey,
    pub(super) error_code: i16,
    pub(super) read: Option<Read>,
    pub(super) diverging: Option<EpochEnd>,
    /// Id and epoch of the leader, for those who asked the wrong broker or know an old epoch.
    pub(super) leader: Option<(i32, i32)>,
    /// The replica that the reader should ask instead (KIP-392).
    pub(super) preferred: Option<i32>,
}

impl PartitionReply {
    pub(super) fn new(key: FetchKey) -> PartitionReply {
        PartitionReply { key, error_code: 0, read: None, diverging: None, leader: None, preferred: None }
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.read.as_ref().map_or(0, Read::size_bytes)
    }

    /// Whether no replica manager was asked: the cluster does not know the partition.
    pub(super) fn is_unknown(&self) -> bool {
        [ResponseError::UnknownTopicOrPartition, ResponseError::UnknownTopicId]
            .iter()
            .any(|error| error.code() == self.error_code)
    }

    pub(super) fn has_data(&self) -> bool {
        self.size_bytes() > 0
    }
}

/// Writes a reply in the version of its request.
pub(super) fn write(request: &Request, reply: &FetchReply) -> Reply {
    let mut writer =
        Writer { pieces: Vec::new(), buffer: BytesMut::with_capacity(256), version: request.version };
    request.put_header(&mut writer.buffer, request.version);
    writer.reply(reply);
    writer.finish()
}

struct Writer {
    pieces: Vec<Bytes>,
    buffer: BytesMut,
    version: i16,
}

impl Writer {
    fn is_flexible(&self) -> bool {
        self.version >= FLEXIBLE_VERSION
    }

    fn finish(mut self) -> Reply {
        self.cut();
        Reply { pieces: self.pieces }
    }

    fn cut(&mut self) {
        if !self.buffer.is_empty() {
            self.pieces.push(self.buffer.split().freeze());
        }
    }

    fn reply(&mut self, reply: &FetchReply) {
        self.buffer.put_i32(reply.throttle_ms);
        if self.version >= 7 {
            self.buffer.put_i16(reply.error_code);
            self.buffer.put_i32(reply.session_id);
        }
        let same_topic = |a: &PartitionReply, b: &PartitionReply| {
            a.key.topic == b.key.topic && a.key.topic_id == b.key.topic_id
        };
        self.length(reply.partitions.chunk_by(same_topic).count());
        for topic in reply.partitions.chunk_by(same_topic) {
            self.topic(&topic[0].key);
            self.length(topic.len());
            for partition in topic {
                self.partition(partition, reply.isolation);
            }
            self.no_tags();
        }
        if self.is_flexible() {
            self.endpoints(&reply.endpoints);
        }
    }

    fn topic(&mut self, key: &FetchKey) {
        if self.version >= TOPIC_ID_VERSION {
            self.buffer.put_slice(key.topic_id.as_bytes());
        } else if self.is_flexible() {
            put_compact_string(&mut self.buffer, &key.topic);
        } else {
            self.buffer.put_i16(key.topic.len() as i16);
            self.buffer.put_slice(key.topic.as_bytes());
        }
    }

    fn partition(&mut self, partition: &PartitionReply, isolation: Isolation) {
        let read = partition.read.as_ref();
        let offset = |of: fn(&Read) -> i64| read.map_or(-1, of);
        self.buffer.put_i32(partition.key.partition);
        self.buffer.put_i16(partition.error_code);
        self.buffer.put_i64(offset(|read| read.high_watermark));
        self.buffer.put_i64(offset(|read| read.last_stable_offset));
        if self.version >= 5 {
            self.buffer.put_i64(offset(|read| read.log_start_offset));
        }
        self.aborted(partition, isolation);
        if self.version >= 11 {
            self.buffer.put_i32(partition.preferred.unwrap_or(-1));
        }
        self.records(read);
        if self.is_flexible() {
            self.partition_tags(partition);
        }
    }

    fn aborted(&mut self, partition: &PartitionReply, isolation: Isolation) {
        let read = partition.read.as_ref().filter(|_| isolation == Isolation::ReadCommitted);
        let Some(read) = read else {
            if partition.is_unknown() {
                return self.length(0);
            }
            // No list, which is not the same as an empty one.
            if self.is_flexible() {
                self.buffer.put_u8(0)
            } else {
                self.buffer.put_i32(-1)
            }
            return;
        };
        self.length(read.aborted.len());
        for aborted in &read.aborted {
            self.buffer.put_i64(aborted.producer_id);
            self.buffer.put_i64(aborted.first_offset);
            self.no_tags();
        }
    }

    fn records(&mut self, read: Option<&Read>) {
        self.length(read.map_or(0, Read::size_bytes));
        let batches = read.map_or(&[][..], |read| &read.batches);
        if !batches.is_empty() {
            self.cut();
            self.pieces.extend(batches.iter().cloned());
        }
    }

    fn partition_tags(&mut self, partition: &PartitionReply) {
        let leader = partition.leader.filter(|_| self.version >= LEADER_VERSION);
        self.buffer.put_u8(u8::from(partition.diverging.is_some()) + u8::from(leader.is_some()));
        if let Some(end) = partition.diverging {
            self.buffer.put_slice(&[0, 13]);
            self.buffer.put_i32(end.epoch);
            self.buffer.put_i64(end.end_offset);
            self.buffer.put_u8(0);
        }
        if let Some((id, epoch)) = leader {
            self.buffer.put_slice(&[1, 9]);
            self.buffer.put_i32(id);
            self.buffer.put_i32(epoch);
            self.buffer.put_u8(0);
        }
    }

    fn endpoints(&mut self, endpoints: &[(i32, String, u16)]) {
        if endpoints.is_empty() || self.version < LEADER_VERSION {
            return self.buffer.put_u8(0);
        }
        let mut list = BytesMut::new();
        put_varint(&mut list, endpoints.len() + 1);
        for (id, host, port) in endpoints {
            list.put_i32(*id);
            put_compact_string(&mut list, host);
            list.put_i32(i32::from(*port));
            // No rack, no tags.
            list.put_slice(&[0, 0]);
        }
        self.buffer.put_slice(&[1, 0]);
        put_varint(&mut self.buffer, list.len());
        self.buffer.put_slice(&list);
    }

    /// The length of an array or of bytes.
    fn length(&mut self, length: usize) {
        if self.is_flexible() {
            put_varint(&mut self.buffer, length + 1);
        } else {
            self.buffer.put_i32(length as i32);
        }
    }

    fn no_tags(&mut self) {
        if self.is_flexible() {
            self.buffer.put_u8(0);
        }
    }
}

fn put_compact_string(buffer: &mut BytesMut, text: &str) {
    put_varint(buffer, text.len() + 1);
    buffer.put_slice(text.as_bytes());
}

fn put_varint(buffer: &mut BytesMut, mut value: usize) {
    while value >= 0x80 {
        buffer.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.put_u8(value as u8);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kafka_protocol::messages::{ApiKey, FetchResponse, ResponseHeader};
    use kafka_protocol::protocol::Decodable;
    use uuid::Uuid;

    use super::*;
    use crate::broker::log::AbortedTransaction;
    use crate::broker::wire::{BrokerId, ConnectionId};

    fn partition(version: i16, index: i32, read: Option<Read>) -> PartitionReply {
        let (topic, topic_id) = if version >= 13 {
            (Arc::from(""), Uuid::from_u128(7))
        } else {
            (Arc::from("topic"), Uuid::nil())
        };
        PartitionReply { read, ..PartitionReply::new(FetchKey { topic, topic_id, partition: index }) }
    }

    #[test]
    fn the_codecs_read_what_is_written_in_every_version() {
        for version in 4..=18 {
            let request = Request {
                broker: BrokerId(1),
                connection: ConnectionId(1),
                key: ApiKey::Fetch,
                version,
                correlation_id: 99,
                client_id: Default::default(),
                body: Bytes::new(),
                refuse_with: None,
            };
            let read = Read {
                batches: vec![Bytes::from_static(b"first"), Bytes::from(vec![1; 300])],
                high_watermark: 10,
                last_stable_offset: 9,
                log_start_offset: 3,
                aborted: vec![AbortedTransaction { producer_id: 5, first_offset: 4 }],
            };
            let lost = PartitionReply {
                error_code: 6,
                leader: Some((2, 8)),
                diverging: Some(EpochEnd { epoch: 1, end_offset: 2 }),
                ..partition(version, 1, None)
            };
            let reply = FetchReply {
                throttle_ms: 1,
                error_code: 0,
                session_id: 77,
                isolation: Isolation::ReadCommitted,
                endpoints: vec![(2, "host".to_owned(), 9092)],
                partitions: vec![partition(version, 0, Some(read)), lost],
            };
            let mut bytes = Bytes::from(write(&request, &reply).pieces.concat());
            let header =
                ResponseHeader::decode(&mut bytes, ApiKey::Fetch.response_header_version(version)).unwrap();
            assert_eq!(header.correlation_id, 99);
            let read = FetchResponse::decode(&mut bytes, version).unwrap();
            assert!(bytes.is_empty(), "v{version}");
            assert_eq!(read.session_id, if version >= 7 { 77 } else { 0 });
            let partitions = &read.responses[0].partitions;
            assert_eq!(partitions.len(), 2);
            let records = partitions[0].records.as_ref().unwrap();
            assert_eq!((records.len(), &records[..5]), (305, &b"first"[..]), "v{version}");
            assert_eq!((partitions[0].high_watermark, partitions[0].last_stable_offset), (10, 9));
            assert_eq!(partitions[0].aborted_transactions.as_ref().unwrap()[0].first_offset, 4);
            assert_eq!(partitions[1].error_code, 6);
            if version >= 12 {
                assert_eq!(partitions[1].diverging_epoch.end_offset, 2);
            }
            if version >= 16 {
                assert_eq!(partitions[1].current_leader.leader_epoch, 8);
                assert_eq!(read.node_endpoints[0].port, 9092);
            }
        }
    }
}

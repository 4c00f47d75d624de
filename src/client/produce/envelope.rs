//! A Produce request as a list of byte slices around frozen batches.
//!
//! Everything but the bodies of larger batches is written into one buffer, which is cut where a body goes: the socket
//! gathers `[size, header, topic, partition, batch header | body | partition, batch header | body | …]`. The crate that
//! encodes all other requests copies the batches, which costs more than everything else here.
//!
//! Layout: `ProduceRequest.json`, versions 3 to 13; flexible from 9 (KIP-482), topic ids from 13 (KIP-516). A map by
//! (topic, partition) comes in, so that a partition cannot stand twice: of two batches for one partition a broker drops
//! the first without an error.

use bytes::{BufMut, Bytes, BytesMut};

use crate::client::{ProduceBatch, ProduceRequest, TargetTopic};
use crate::record::HEADER_BYTES;

/// The lowest version that is written.
pub const PRODUCE_VERSION_MIN: i16 = 3;
/// The highest version that is written.
pub const PRODUCE_VERSION_MAX: i16 = 13;
/// Bodies up to this size are copied into the envelope: a slice of its own costs more.
pub const BODY_COPY_BYTES_MAX: usize = 4 * 1024;

const API_KEY: i16 = 0;
const ACKS_ALL: i16 = -1;
const FLEXIBLE_SINCE: i16 = 9;
const TOPIC_IDS_SINCE: i16 = 13;
/// What a partition takes beside its batch, and a topic beside its name, at most.
const OVERHEAD_BYTES: usize = 32;

/// What stands in front of the batches.
#[derive(Clone, Copy, Debug)]
pub struct ProduceHead<'a> {
    /// API version, see [`produce_version`].
    pub version: i16,
    /// Correlation id.
    pub correlation_id: i32,
    /// `client.id`.
    pub client_id: &'a str,
    /// How long the broker may wait for its followers, in milliseconds.
    pub ack_timeout_ms: i32,
}

/// A whole request, its size field included.
#[derive(Debug)]
pub struct Envelope {
    /// The slices to write, in order.
    pub pieces: Vec<Bytes>,
    /// Their bytes.
    pub size_bytes: usize,
}

/// A request that the protocol cannot express.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// The size field has 31 bits.
    #[error("Produce request of {size_bytes} bytes is too large for a frame")]
    TooLarge {
        /// Bytes of the request.
        size_bytes: usize,
    },
    /// Lengths of names have 15 bits.
    #[error("name of {size_bytes} bytes is too long for a Produce request")]
    NameTooLong {
        /// Bytes of the name.
        size_bytes: usize,
    },
}

/// The version for a request: the broker's highest that we write, without topic ids when a topic has none.
pub fn produce_version(broker_version_max: i16, request: &ProduceRequest) -> i16 {
    let ids = request.batches.values().all(|batch| !batch.topic.topic_id.is_nil());
    broker_version_max.min(if ids { PRODUCE_VERSION_MAX } else { TOPIC_IDS_SINCE - 1 })
}

/// Writes the envelope of a request with `acks=all`; bodies over [`BODY_COPY_BYTES_MAX`] are referred to, not copied.
/// `arena` is what earlier envelopes were written into: once they are gone, their memory is used again.
///
/// # Errors
/// [`EnvelopeError`] when the request is too large for a frame or a name too long for its field.
pub fn encode_produce(
    head: &ProduceHead<'_>,
    request: &ProduceRequest,
    arena: &mut BytesMut,
) -> Result<Envelope, EnvelopeError> {
    let mut writer = Writer::new(head.version, request, arena);
    writer.head(head)?;
    let batches: Vec<Placed<'_>> = request.batches.iter().collect();
    let same_topic = |a: &Placed<'_>, b: &Placed<'_>| a.0.0 == b.0.0;
    writer.count(batches.chunk_by(same_topic).count());
    for partitions in batches.chunk_by(same_topic) {
        if let Some((_, first)) = partitions.first() {
            writer.topic(&first.topic)?;
        }
        writer.count(partitions.len());
        for &(&(_, partition), batch) in partitions {
            writer.partition(partition, batch)?;
        }
        writer.no_tags();
    }
    writer.no_tags();
    writer.finish()
}

/// A batch with its (topic index, partition).
type Placed<'a> = (&'a (u32, i32), &'a ProduceBatch);

/// The envelope so far, and the bodies that go between its bytes.
struct Writer<'a> {
    flexible: bool,
    topic_ids: bool,
    bytes: &'a mut BytesMut,
    bodies: Vec<(usize, &'a Bytes)>,
}

impl<'a> Writer<'a> {
    fn new(version: i16, request: &ProduceRequest, arena: &'a mut BytesMut) -> Writer<'a> {
        let batch_bytes: usize = request
            .batches
            .values()
            .map(|batch| {
                let copied = if batch.body.len() <= BODY_COPY_BYTES_MAX { batch.body.len() } else { 0 };
                HEADER_BYTES + copied + OVERHEAD_BYTES
            })
            .sum();
        arena.clear();
        arena.reserve(256 + batch_bytes);
        Writer {
            flexible: version >= FLEXIBLE_SINCE,
            topic_ids: version >= TOPIC_IDS_SINCE,
            bytes: arena,
            bodies: Vec::with_capacity(request.batches.len()),
        }
    }

    fn head(&mut self, head: &ProduceHead<'_>) -> Result<(), EnvelopeError> {
        self.bytes.put_i32(0); // The size, which finish() knows.
        self.bytes.put_i16(API_KEY);
        self.bytes.put_i16(head.version);
        self.bytes.put_i32(head.correlation_id);
        self.bytes.put_i16(name_length(head.client_id)?);
        self.bytes.put_slice(head.client_id.as_bytes());
        self.no_tags();
        match self.flexible {
            true => self.bytes.put_u8(0), // No transactional id.
            false => self.bytes.put_i16(-1),
        }
        self.bytes.put_i16(ACKS_ALL);
        self.bytes.put_i32(head.ack_timeout_ms);
        Ok(())
    }

    fn topic(&mut self, topic: &TargetTopic) -> Result<(), EnvelopeError> {
        let length = name_length(&topic.name)?;
        if self.topic_ids {
            self.bytes.put_slice(topic.topic_id.as_bytes());
            return Ok(());
        }
        match self.flexible {
            true => self.put_unsigned(topic.name.len() + 1),
            false => self.bytes.put_i16(length),
        }
        self.bytes.put_slice(topic.name.as_bytes());
        Ok(())
    }

    fn partition(&mut self, partition: i32, batch: &'a ProduceBatch) -> Result<(), EnvelopeError> {
        self.bytes.put_i32(partition);
        match self.flexible {
            true => self.put_unsigned(batch.size_bytes() + 1),
            false => self.bytes.put_i32(frame_length(batch.size_bytes())?),
        }
        self.bytes.put_slice(&batch.header);
        if batch.body.len() <= BODY_COPY_BYTES_MAX {
            self.bytes.put_slice(&batch.body);
        } else {
            self.bodies.push((self.bytes.len(), &batch.body));
        }
        self.no_tags();
        Ok(())
    }

    fn count(&mut self, count: usize) {
        match self.flexible {
            true => self.put_unsigned(count + 1),
            false => self.bytes.put_i32(count as i32),
        }
    }

    fn no_tags(&mut self) {
        if self.flexible {
            self.bytes.put_u8(0);
        }
    }

    fn put_unsigned(&mut self, mut value: usize) {
        while value >= 0x80 {
            self.bytes.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.put_u8(value as u8);
    }

    fn finish(self) -> Result<Envelope, EnvelopeError> {
        let referred: usize = self.bodies.iter().map(|(_, body)| body.len()).sum();
        let size_bytes = self.bytes.len() + referred;
        let size = frame_length(size_bytes - 4)?;
        self.bytes[..4].copy_from_slice(&size.to_be_bytes());
        let mut rest = self.bytes.split().freeze();
        let mut pieces = Vec::with_capacity(2 * self.bodies.len() + 1);
        let mut written = 0;
        for (at, body) in self.bodies {
            pieces.push(rest.split_to(at - written));
            pieces.push(body.clone());
            written = at;
        }
        if !rest.is_empty() {
            pieces.push(rest);
        }
        Ok(Envelope { pieces, size_bytes })
    }
}

fn name_length(name: &str) -> Result<i16, EnvelopeError> {
    i16::try_from(name.len()).map_err(|_| EnvelopeError::NameTooLong { size_bytes: name.len() })
}

fn frame_length(size_bytes: usize) -> Result<i32, EnvelopeError> {
    i32::try_from(size_bytes).map_err(|_| EnvelopeError::TooLarge { size_bytes })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use bytes::Buf;
    use kafka_protocol::messages::ProduceRequest as Decoded;
    use kafka_protocol::protocol::{Decodable, decode_request_header_from_buffer};
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::client::TargetKey;

    fn request(topics: &[(u8, Vec<(i32, usize)>)]) -> ProduceRequest {
        let mut batches = BTreeMap::new();
        for (index, (id, partitions)) in topics.iter().enumerate() {
            let topic = Arc::new(TargetTopic {
                index: index as u32,
                name: Arc::from(format!("topic-{index}-{}", "x".repeat(usize::from(*id)))),
                topic_id: Uuid::from_bytes([*id; 16]),
            });
            for &(partition, body_bytes) in partitions {
                let batch = ProduceBatch {
                    key: TargetKey(0),
                    topic: topic.clone(),
                    header: [partition as u8; HEADER_BYTES],
                    body: (0..body_bytes).map(|at| at as u8).collect(),
                };
                batches.insert((index as u32, partition), batch);
            }
        }
        ProduceRequest { id: 1, connection: 1, batches }
    }

    fn check(request: &ProduceRequest, version: i16) {
        let head = ProduceHead { version, correlation_id: -7, client_id: "me", ack_timeout_ms: 30_000 };
        let envelope = encode_produce(&head, request, &mut BytesMut::new()).unwrap();
        let mut frame = Bytes::from(envelope.pieces.concat());
        assert_eq!(envelope.size_bytes, frame.len());
        assert_eq!(frame.get_i32() as usize, frame.len());
        let header = decode_request_header_from_buffer(&mut frame).unwrap();
        assert_eq!((header.request_api_key, header.request_api_version), (0, version));
        assert_eq!((header.correlation_id, header.client_id.as_deref()), (-7, Some("me")));
        let decoded = Decoded::decode(&mut frame, version).unwrap();
        assert!(frame.is_empty(), "bytes behind the request");
        assert_eq!((decoded.acks, decoded.timeout_ms, decoded.transactional_id), (-1, 30_000, None));
        let mut expected = request.batches.iter();
        for topic in &decoded.topic_data {
            for data in &topic.partition_data {
                let (&(_, partition), batch) = expected.next().unwrap();
                assert_eq!(data.index, partition);
                let records = data.records.as_ref().unwrap();
                assert_eq!(records[..HEADER_BYTES], batch.header);
                assert_eq!(records[HEADER_BYTES..], batch.body);
                match version {
                    13.. => assert_eq!(topic.topic_id, batch.topic.topic_id),
                    _ => assert_eq!(topic.name.0.as_str(), &*batch.topic.name),
                }
            }
        }
        assert!(expected.next().is_none());
    }

    proptest! {
        #[test]
        fn every_version_decodes_to_the_same_batches(
            topics in prop::collection::vec((1_u8..200, prop::collection::vec((0..50_i32, 0..9_000_usize), 1..5)), 0..5)
        ) {
            let request = request(&topics);
            for version in PRODUCE_VERSION_MIN..=PRODUCE_VERSION_MAX {
                check(&request, version);
            }
        }
    }

    #[test]
    fn small_bodies_are_copied_and_large_ones_are_the_same_bytes() {
        let request = request(&[(1, vec![(0, 4_096), (1, 4_097), (2, 100), (3, 70_000)])]);
        let head = ProduceHead { version: 9, correlation_id: 0, client_id: "", ack_timeout_ms: 0 };
        let envelope = encode_produce(&head, &request, &mut BytesMut::new()).unwrap();
        let large: Vec<_> =
            [1, 3].iter().map(|&partition| request.batches[&(0, partition)].body.as_ptr()).collect();
        assert_eq!(envelope.pieces.len(), 5);
        assert_eq!([envelope.pieces[1].as_ptr(), envelope.pieces[3].as_ptr()], large[..]);
        assert_eq!(envelope.pieces[4].len(), 3, "the tagged fields of partition, topic and request");
    }

    #[test]
    fn the_memory_of_an_envelope_is_used_again_once_it_is_gone() {
        let request = request(&[(1, vec![(0, 4_000), (1, 100_000)])]);
        let head = ProduceHead { version: 9, correlation_id: 0, client_id: "", ack_timeout_ms: 0 };
        let mut arena = BytesMut::new();
        let mut encode = || encode_produce(&head, &request, &mut arena).unwrap();
        let first = encode();
        let second = encode();
        assert_eq!(
            first.pieces.concat(),
            second.pieces.concat(),
            "an envelope that is alive is not written over"
        );
        let place = second.pieces[0].as_ptr();
        drop((first, second));
        assert_eq!(encode().pieces[0].as_ptr(), place);
    }

    #[test]
    fn topic_ids_are_used_only_when_every_topic_has_one() {
        for (ids, broker_max, expected) in
            [([1, 2], 13, 13), ([1, 2], 99, 13), ([1, 0], 13, 12), ([1, 0], 8, 8), ([1, 2], 3, 3)]
        {
            let request = request(&[(ids[0], vec![(0, 1)]), (ids[1], vec![(0, 1)])]);
            assert_eq!(produce_version(broker_max, &request), expected);
        }
    }
}

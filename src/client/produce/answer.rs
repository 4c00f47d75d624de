//! What a Produce response says of each batch of its request.
//!
//! The response is the peer's: it may leave partitions out, name strange ones, or come in any order. So the request
//! leads: each of its batches gets one answer, UNKNOWN_SERVER_ERROR when the broker said nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ProduceResponse;
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use uuid::Uuid;

use crate::client::{ProduceAnswer, ProduceRequest, RecordError, TargetKey, TargetTopic};

/// What is kept of a request while it is in flight; the batches themselves are its sender's.
#[derive(Debug)]
pub struct Awaited {
    topics: Vec<Arc<TargetTopic>>,
    partitions: Vec<((u32, i32), TargetKey)>,
}

impl Awaited {
    /// The partitions of a request.
    pub fn of(request: &ProduceRequest) -> Awaited {
        let mut topics: Vec<Arc<TargetTopic>> = Vec::new();
        for batch in request.batches.values() {
            if topics.last().is_none_or(|last| last.index != batch.topic.index) {
                topics.push(batch.topic.clone());
            }
        }
        let partitions = request.batches.iter().map(|(&place, batch)| (place, batch.key)).collect();
        Awaited { topics, partitions }
    }

    /// One answer for each batch, in the order of the request.
    pub fn answers(&self, response: ProduceResponse) -> Vec<ProduceAnswer> {
        let mut answers: Vec<ProduceAnswer> =
            self.partitions.iter().map(|&(_, key)| refused(key, ResponseError::UnknownServerError)).collect();
        let by_name: BTreeMap<&str, u32> =
            self.topics.iter().map(|topic| (&*topic.name, topic.index)).collect();
        let by_id: BTreeMap<Uuid, u32> =
            self.topics.iter().map(|topic| (topic.topic_id, topic.index)).collect();
        for topic in response.responses {
            let index =
                if topic.topic_id.is_nil() { by_name.get(&**topic.name) } else { by_id.get(&topic.topic_id) };
            let Some(&index) = index else { continue };
            for partition in topic.partition_responses {
                let place =
                    self.partitions.binary_search_by_key(&(index, partition.index), |&(place, _)| place);
                if let Ok(place) = place {
                    answers[place] = answer(self.partitions[place].1, partition);
                }
            }
        }
        answers
    }

    /// The same error for every batch.
    pub fn all_refused(&self, error: ResponseError) -> Vec<ProduceAnswer> {
        self.partitions.iter().map(|&(_, key)| refused(key, error)).collect()
    }
}

fn refused(key: TargetKey, error: ResponseError) -> ProduceAnswer {
    ProduceAnswer { key, code: error.code(), base_offset: -1, record_errors: Vec::new(), message: None }
}

fn answer(key: TargetKey, partition: PartitionProduceResponse) -> ProduceAnswer {
    let record_errors = partition.record_errors.into_iter().map(|error| RecordError {
        batch_index: error.batch_index,
        message: error.batch_index_error_message.map(|message| message.to_string()),
    });
    ProduceAnswer {
        key,
        code: partition.error_code,
        base_offset: partition.base_offset,
        record_errors: record_errors.collect(),
        message: partition.error_message.map(|message| message.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use kafka_protocol::messages::TopicName;
    use kafka_protocol::messages::produce_response::{BatchIndexAndErrorMessage, TopicProduceResponse};
    use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

    use super::*;
    use crate::client::ProduceBatch;
    use crate::record::HEADER_BYTES;

    /// Topics `a` (index 4) and `b` (index 7) with two partitions each.
    fn awaited() -> Awaited {
        let mut batches = BTreeMap::new();
        for (index, name) in [(4, "a"), (7, "b")] {
            let topic = Arc::new(TargetTopic {
                index,
                name: Arc::from(name),
                topic_id: Uuid::from_bytes([index as u8; 16]),
            });
            for partition in [0, 5] {
                let key = TargetKey(index * 10 + partition as u32);
                let (topic, body) = (topic.clone(), Bytes::new());
                batches
                    .insert((index, partition), ProduceBatch { key, topic, header: [0; HEADER_BYTES], body });
            }
        }
        Awaited::of(&ProduceRequest { id: 1, connection: 1, batches })
    }

    fn topic(
        version: i16,
        name: &'static str,
        index: u8,
        partitions: &[(i32, i16, i64)],
    ) -> TopicProduceResponse {
        let partitions = partitions.iter().map(|&(partition, code, base_offset)| {
            let answer = PartitionProduceResponse::default().with_index(partition).with_error_code(code);
            let error = BatchIndexAndErrorMessage::default()
                .with_batch_index(3)
                .with_batch_index_error_message(Some("why".into()));
            let errors = if version >= 8 && code != 0 { vec![error] } else { Vec::new() };
            answer.with_base_offset(base_offset).with_record_errors(errors)
        });
        let topic = TopicProduceResponse::default().with_partition_responses(partitions.collect());
        match version {
            13.. => topic.with_topic_id(Uuid::from_bytes([index; 16])),
            _ => topic.with_name(TopicName(StrBytes::from_static_str(name))),
        }
    }

    fn decoded(version: i16, topics: Vec<TopicProduceResponse>) -> ProduceResponse {
        let mut bytes = BytesMut::new();
        ProduceResponse::default().with_responses(topics).encode(&mut bytes, version).unwrap();
        ProduceResponse::decode(&mut bytes.freeze(), version).unwrap()
    }

    fn check(version: i16, topics: Vec<TopicProduceResponse>, expected: [(u32, i16, i64); 4]) {
        let answers = awaited().answers(decoded(version, topics));
        let got: Vec<_> =
            answers.iter().map(|answer| (answer.key.0, answer.code, answer.base_offset)).collect();
        assert_eq!(got, expected, "version {version}");
        for answer in answers.iter().filter(|answer| answer.code > 0 && version >= 8) {
            let error = RecordError { batch_index: 3, message: Some("why".to_owned()) };
            assert_eq!(answer.record_errors, [error]);
        }
    }

    #[test]
    fn answers_find_their_batches_in_any_order() {
        for version in 3..=13 {
            let topics = vec![
                topic(version, "b", 7, &[(5, 10, -1), (0, 0, 300)]),
                topic(version, "a", 4, &[(0, 0, 100), (5, 45, -1)]),
            ];
            check(version, topics, [(40, 0, 100), (45, 45, -1), (70, 0, 300), (75, 10, -1)]);
        }
    }

    #[test]
    fn a_partition_that_is_left_out_is_an_unknown_server_error_and_a_strange_one_is_nobodys() {
        for version in 3..=13 {
            let topics =
                vec![topic(version, "a", 4, &[(5, 0, 9), (6, 0, 1)]), topic(version, "c", 9, &[(0, 0, 2)])];
            check(version, topics, [(40, -1, -1), (45, 0, 9), (70, -1, -1), (75, -1, -1)]);
        }
    }
}

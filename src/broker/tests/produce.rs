//! Produce: what is stored, what is refused, what is lost without a word.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ProduceRequest;

use super::*;

#[test]
fn a_batch_is_stored_and_fetched_byte_for_byte() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    assert_eq!(bench.produce(&batch(3, "a")).base_offset, 0);
    assert_eq!(bench.produce(&batch(2, "b")).base_offset, 3);
    let fetched = bench.fetch(1, 0, 0);
    let records = fetched.records.unwrap();
    assert_eq!(records.len(), batch(3, "a").len() + batch(2, "b").len());
    // All that a broker changes lies in front of the checksum: base offset and leader epoch.
    assert_eq!(records[17..batch(3, "a").len()], batch(3, "a")[17..]);
    assert_eq!(fetched.high_watermark, 5);
}

#[test]
fn refusals_name_their_partition() {
    let mut bench = Bench::with_topic(3, 3, 2, &[("min.insync.replicas", "2")]);
    bench.state.broker_down(3).unwrap();
    let good = batch(1, "x");
    let mut check = |broker, acks, topic, partition, expected: ResponseError| {
        let request = produce(topic, &[(partition, &good)]).with_acks(acks);
        let reply = bench.ask(broker, 11, &request);
        let partition = &reply.responses[0].partition_responses[0];
        assert_eq!((partition.error_code, partition.base_offset), (expected.code(), -1), "{expected:?}");
        reply
    };
    check(1, -1, "none", 0, ResponseError::UnknownTopicOrPartition);
    check(1, -1, "t", 9, ResponseError::UnknownTopicOrPartition);
    check(1, 2, "t", 0, ResponseError::InvalidRequiredAcks);
    // Partition 1 lives on brokers 2 and 3, of which one is left.
    check(2, -1, "t", 1, ResponseError::NotEnoughReplicas);
    let lost = check(2, 1, "t", 0, ResponseError::NotLeaderOrFollower);
    assert_eq!(lost.responses[0].partition_responses[0].current_leader.leader_id.0, 1);
    assert_eq!(lost.node_endpoints[0].port, 9_000);
}

#[test]
fn of_two_entries_for_a_partition_only_the_later_is_stored() {
    let mut bench = Bench::with_topic(1, 2, 1, &[]);
    let request = produce("t", &[(0, &batch(1, "lost")), (1, &batch(1, "x")), (0, &batch(2, "kept"))]);
    let reply = bench.ask(1, 9, &request);
    let answered: Vec<_> =
        reply.responses[0].partition_responses.iter().map(|one| (one.index, one.error_code)).collect();
    assert_eq!(answered, [(1, 0), (0, 0)]);
    assert_eq!(bench.fetch(1, 0, 0).high_watermark, 2);
    assert_eq!(bench.state.violations().len(), 1);
}

#[test]
fn topics_go_by_id_from_version_13_on() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let id = bench.topic_id("t");
    let mut ask = |id| {
        let mut request = produce("", &[(0, &batch(1, "x"))]);
        request.topic_data[0].topic_id = id;
        let reply: ProduceResponse = bench.ask(1, 13, &request);
        (reply.responses[0].topic_id, reply.responses[0].partition_responses[0].error_code)
    };
    assert_eq!(ask(id), (id, 0));
    let unknown = uuid::Uuid::from_u128(5);
    assert_eq!(ask(unknown), (unknown, ResponseError::UnknownTopicId.code()));
}

#[test]
fn without_acks_there_is_no_reply_and_a_failure_closes() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let good: ProduceRequest = produce("t", &[(0, &batch(1, "x"))]).with_acks(0);
    assert_eq!(bench.send(1, 9, &good), Outcome::Nothing);
    let bad: ProduceRequest = produce("none", &[(0, &batch(1, "x"))]).with_acks(0);
    assert_eq!(bench.send(1, 9, &bad), Outcome::Close);
    assert_eq!(bench.fetch(1, 0, 0).high_watermark, 1);
}

#[test]
fn a_resend_is_answered_with_its_first_offset() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let first = batch_by(2, "a", by(9, 0, 0), 0);
    assert_eq!(bench.produce(&first).base_offset, 0);
    assert_eq!(bench.produce(&batch_by(1, "b", by(9, 0, 2), 0)).base_offset, 2);
    let again = bench.produce(&first);
    assert_eq!((again.error_code, again.base_offset), (0, 0));
    let gap = bench.produce(&batch_by(1, "c", by(9, 0, 9), 0));
    assert_eq!(gap.error_code, ResponseError::OutOfOrderSequenceNumber.code());
    assert_eq!(bench.fetch(1, 0, 0).high_watermark, 3);
}

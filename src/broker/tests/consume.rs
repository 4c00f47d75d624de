//! Fetch without sessions, leaders that move, ListOffsets, OffsetForLeaderEpoch.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{ListOffsetsRequest, OffsetForLeaderEpochRequest};

use super::*;

#[test]
fn a_fetch_waits_for_data_and_is_woken_by_it() {
    let mut bench = Bench::with_topic(1, 2, 1, &[]);
    let request = fetch("t", &[(0, 0)]).with_min_bytes(1).with_max_wait_ms(500);
    let id = bench.wait(1, 11, &request);
    bench.state.take_woken();
    bench.ask(1, 9, &produce("t", &[(1, &batch(1, "other partition"))]));
    assert_eq!(bench.state.take_woken(), []);
    bench.produce(&batch(1, "x"));
    assert_eq!(bench.state.take_woken(), [id]);
    let reply = bench.resumed::<FetchRequest>(11, id);
    assert_eq!(reply.responses[0].partitions[0].records.as_ref().unwrap().len(), batch(1, "x").len());
}

#[test]
fn a_fetch_that_waited_long_enough_is_answered_empty() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let request = fetch("t", &[(0, 0)]).with_min_bytes(1).with_max_wait_ms(500);
    let id = bench.wait(1, 11, &request);
    bench.now_ms += 499;
    assert_eq!(bench.state.resume(id, bench.now_ms), Outcome::Wait { id, deadline_ms: START_MS + 500 });
    bench.now_ms += 1;
    let reply = bench.resumed::<FetchRequest>(11, id);
    assert_eq!(reply.responses[0].partitions[0].records.as_ref().map(Bytes::len), Some(0));
}

#[test]
fn errors_are_told_at_once() {
    let mut bench = Bench::with_topic(2, 2, 1, &[]);
    let mut check = |broker, partition, offset, epoch, expected: ResponseError| {
        let mut request = fetch("t", &[(partition, offset)]).with_min_bytes(1).with_max_wait_ms(500);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        let reply = bench.ask(broker, 11, &request);
        assert_eq!(reply.responses[0].partitions[0].error_code, expected.code(), "{expected:?}");
    };
    check(1, 9, 0, -1, ResponseError::UnknownTopicOrPartition);
    check(1, 1, 0, -1, ResponseError::NotLeaderOrFollower);
    check(1, 0, 5, -1, ResponseError::OffsetOutOfRange);
    check(1, 0, 0, 3, ResponseError::UnknownLeaderEpoch);
}

#[test]
fn the_limits_hold_but_the_first_batch_is_whole() {
    let mut bench = Bench::with_topic(1, 2, 1, &[]);
    let big = batch(100, "a record of some length");
    for partition in [0, 1] {
        bench.ask(1, 9, &produce("t", &[(partition, &big)]));
        bench.ask(1, 9, &produce("t", &[(partition, &big)]));
    }
    let mut sizes = |bytes_max, partition_bytes_max| {
        let mut request = fetch("t", &[(0, 0), (1, 0)]).with_max_bytes(bytes_max);
        request.topics[0].partitions.iter_mut().for_each(|one| one.partition_max_bytes = partition_bytes_max);
        let reply: FetchResponse = bench.ask(1, 11, &request);
        let sizes =
            reply.responses[0].partitions.iter().map(|one| one.records.as_ref().map_or(0, Bytes::len));
        sizes.collect::<Vec<_>>()
    };
    let whole = big.len();
    assert_eq!(sizes(1 << 20, 1 << 20), [2 * whole, 2 * whole]);
    assert_eq!(sizes(1, 1 << 20), [whole, 0]);
    // A later batch may be cut, the first of a partition not.
    assert_eq!(sizes(1 << 20, whole as i32 + 50), [whole + 50, whole + 50]);
    assert_eq!(sizes(whole as i32 + 50, 1 << 20), [whole + 50, 0]);
}

#[test]
fn a_moved_leader_fences_old_epochs_and_shows_where_logs_part() {
    let mut bench = Bench::with_topic(2, 1, 2, &[]);
    bench.produce(&batch(2, "a"));
    bench.state.move_leader("t", 0, 2).unwrap();
    let moved = bench.ask(2, 9, &produce("t", &[(0, &batch(3, "b"))]));
    assert_eq!(moved.responses[0].partition_responses[0].base_offset, 2);
    let mut request = fetch("t", &[(0, 4)]);
    request.topics[0].partitions[0].current_leader_epoch = 0;
    let fenced: FetchResponse = bench.ask(2, 12, &request);
    assert_eq!(fenced.responses[0].partitions[0].error_code, ResponseError::FencedLeaderEpoch.code());
    request.topics[0].partitions[0].current_leader_epoch = 1;
    request.topics[0].partitions[0].last_fetched_epoch = 0;
    let parted: FetchResponse = bench.ask(2, 12, &request);
    let end = &parted.responses[0].partitions[0].diverging_epoch;
    assert_eq!((end.epoch, end.end_offset), (0, 2));
}

#[test]
fn a_truncation_begins_an_epoch_and_shows_where_logs_part() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    bench.produce(&batch(3, "a"));
    bench.produce(&batch(3, "b"));
    assert_eq!(bench.state.truncate("t", 0, 4).unwrap(), 3);
    assert_eq!(bench.state.leader("t", 0), Some((Some(1), 1)));
    bench.produce(&batch(9, "c"));
    let mut request = fetch("t", &[(0, 6)]);
    request.topics[0].partitions[0].last_fetched_epoch = 0;
    let parted: FetchResponse = bench.ask(1, 12, &request);
    assert_eq!(parted.responses[0].partitions[0].diverging_epoch.end_offset, 3);
}

#[test]
fn offsets_are_listed_by_name_time_and_epoch() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    bench.produce(&batch(3, "a"));
    let mut list = |timestamp, version| {
        let partition =
            ListOffsetsPartition::default().with_timestamp(timestamp).with_current_leader_epoch(-1);
        let topic = ListOffsetsTopic::default().with_name(name("t")).with_partitions(vec![partition]);
        let reply = bench.ask(1, version, &ListOffsetsRequest::default().with_topics(vec![topic]));
        let found = &reply.topics[0].partitions[0];
        (found.error_code, found.offset)
    };
    assert_eq!(list(-1, 1), (0, 3));
    assert_eq!(list(-2, 5), (0, 0));
    assert_eq!(list(START_MS, 5), (0, 0));
    assert_eq!(list(START_MS + 1, 5), (0, -1));
    assert_eq!(list(-3, 7), (0, 0));
    assert_eq!(list(-3, 6), (ResponseError::UnsupportedVersion.code(), -1));

    let partition = OffsetForLeaderPartition::default().with_leader_epoch(0).with_current_leader_epoch(-1);
    let topic = OffsetForLeaderTopic::default().with_topic(name("t")).with_partitions(vec![partition]);
    let reply = bench.ask(1, 4, &OffsetForLeaderEpochRequest::default().with_topics(vec![topic]));
    assert_eq!(reply.topics[0].partitions[0].end_offset, 3);
}

#[test]
fn a_crash_moves_leaders_where_there_is_a_replica() {
    let mut bench = Bench::with_topic(2, 2, 1, &[]);
    bench.state.create_topic_named("u", 1, 2, &[]).unwrap();
    bench.state.broker_down(1).unwrap();
    assert_eq!(bench.state.leader("t", 0), Some((None, 1)));
    assert_eq!(bench.state.leader("t", 1), Some((Some(2), 0)));
    assert_eq!(bench.state.leader("u", 0), Some((Some(2), 1)));
    assert_eq!(bench.send(1, 11, &fetch("t", &[(0, 0)])), Outcome::Close);
    bench.state.broker_up(1, 9_500).unwrap();
    assert_eq!(bench.state.leader("t", 0), Some((Some(1), 2)));
}

#[test]
fn a_reader_is_sent_to_the_replica_in_its_rack() {
    let racks = vec!["a".to_owned(), "b".to_owned()];
    let mut bench = Bench::new(Settings { brokers: 2, racks, ..Settings::default() });
    bench.state.create_topic_named("t", 1, 2, &[]).unwrap();
    bench.produce(&batch(1, "x"));
    let mut ask = |broker, rack: &str| {
        let request = fetch("t", &[(0, 0)]).with_rack_id(text(rack)).with_min_bytes(1).with_max_wait_ms(500);
        let reply: FetchResponse = bench.ask(broker, 11, &request);
        let found = &reply.responses[0].partitions[0];
        (found.preferred_read_replica.0, found.records.as_ref().map_or(0, Bytes::len))
    };
    let whole = batch(1, "x").len();
    assert_eq!(ask(1, ""), (-1, whole));
    assert_eq!(ask(1, "a"), (-1, whole));
    assert_eq!(ask(1, "b"), (2, 0));
    assert_eq!(ask(2, "b"), (-1, whole));
    assert_eq!(ask(1, "elsewhere"), (-1, whole));
}

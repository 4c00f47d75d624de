//! Transactions of both versions, their fences and their offsets.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DescribeProducersRequest, EndTxnRequest, GroupId,
    InitProducerIdRequest, ProducerId, TxnOffsetCommitRequest,
};

use super::*;
use crate::record::BatchHeader;

const ID: &str = "tx";

fn init(bench: &mut Bench) -> (i16, i64, i16) {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(TransactionalId(text(ID))))
        .with_transaction_timeout_ms(60_000)
        .with_producer_id(ProducerId(-1))
        .with_producer_epoch(-1);
    let reply = bench.ask(1, 4, &request);
    (reply.error_code, reply.producer_id.0, reply.producer_epoch)
}

fn add(bench: &mut Bench, id: i64, epoch: i16) -> i16 {
    let topic = AddPartitionsToTxnTopic::default().with_name(name("t")).with_partitions(vec![0]);
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(TransactionalId(text(ID)))
        .with_v3_and_below_producer_id(ProducerId(id))
        .with_v3_and_below_producer_epoch(epoch)
        .with_v3_and_below_topics(vec![topic]);
    bench.ask(1, 3, &request).results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
}

fn end(bench: &mut Bench, version: i16, id: i64, epoch: i16, committed: bool) -> (i16, i16) {
    let request = EndTxnRequest::default()
        .with_transactional_id(TransactionalId(text(ID)))
        .with_producer_id(ProducerId(id))
        .with_producer_epoch(epoch)
        .with_committed(committed);
    let reply = bench.ask(1, version, &request);
    (reply.error_code, reply.producer_epoch)
}

fn write(bench: &mut Bench, version: i16, id: i64, epoch: i16, sequence: i32) -> i16 {
    let batch = batch_by(1, "x", by(id, epoch, sequence), Attributes::TRANSACTIONAL);
    let reply: ProduceResponse = bench.ask(1, version, &transactional(produce("t", &[(0, &batch)]), ID));
    reply.responses[0].partition_responses[0].error_code
}

/// High watermark, last stable offset and the aborted transactions that read_committed sees.
fn committed(bench: &mut Bench) -> (i64, i64, Vec<(i64, i64)>) {
    let reply: FetchResponse = bench.ask(1, 11, &fetch("t", &[(0, 0)]).with_isolation_level(1));
    let found = &reply.responses[0].partitions[0];
    let aborted =
        found.aborted_transactions.iter().flatten().map(|one| (one.producer_id.0, one.first_offset));
    (found.high_watermark, found.last_stable_offset, aborted.collect())
}

#[test]
fn a_commit_shows_records_and_an_abort_lists_them() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let (_, id, epoch) = init(&mut bench);
    assert_eq!(write(&mut bench, 9, id, epoch, 0), ResponseError::InvalidTxnState.code());
    assert_eq!(add(&mut bench, id, epoch), 0);
    assert_eq!(write(&mut bench, 9, id, epoch, 0), 0);
    assert_eq!(committed(&mut bench), (1, 0, vec![]));
    assert_eq!(end(&mut bench, 4, id, epoch, true).0, 0);
    assert_eq!(committed(&mut bench), (2, 2, vec![]));
    add(&mut bench, id, epoch);
    assert_eq!(write(&mut bench, 9, id, epoch, 1), 0);
    assert_eq!(end(&mut bench, 4, id, epoch, false).0, 0);
    assert_eq!(committed(&mut bench), (4, 4, vec![(id, 2)]));
}

#[test]
fn the_fence_stands_when_the_marker_is_written() {
    let mut bench = Bench::new(Settings { marker_delay_ms: 50, ..Settings::default() });
    bench.state.create_topic_named("t", 1, 1, &[]).unwrap();
    let (_, id, epoch) = init(&mut bench);
    add(&mut bench, id, epoch);
    write(&mut bench, 9, id, epoch, 0);
    assert_eq!(init(&mut bench).0, ResponseError::ConcurrentTransactions.code());
    assert_eq!(init(&mut bench).0, ResponseError::ConcurrentTransactions.code());
    bench.now_ms += 50;
    bench.state.tick(bench.now_ms);
    assert_eq!(init(&mut bench), (0, id, epoch + 2));
    assert_eq!(write(&mut bench, 9, id, epoch, 1), ResponseError::InvalidProducerEpoch.code());
    assert_eq!(add(&mut bench, id, epoch), ResponseError::ProducerFenced.code());
}

#[test]
fn an_end_is_repeated_until_its_markers_are_written() {
    let mut bench = Bench::new(Settings { marker_delay_ms: 50, ..Settings::default() });
    bench.state.create_topic_named("t", 1, 1, &[]).unwrap();
    let (_, id, epoch) = init(&mut bench);
    add(&mut bench, id, epoch);
    assert_eq!(end(&mut bench, 4, id, epoch, false).0, 0);
    assert_eq!(end(&mut bench, 4, id, epoch, false).0, ResponseError::ConcurrentTransactions.code());
    assert_eq!(bench.state.next_timer_ms(), Some(START_MS + 50));
    bench.now_ms += 50;
    bench.state.tick(bench.now_ms);
    assert_eq!(end(&mut bench, 4, id, epoch, false).0, 0);
    // One marker, however often it is asked for.
    assert_eq!(committed(&mut bench).0, 1);
}

#[test]
fn version_2_transactions_add_partitions_themselves_and_take_an_epoch_each() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let (_, id, epoch) = init(&mut bench);
    assert_eq!(write(&mut bench, 12, id, epoch, 0), 0);
    assert_eq!(end(&mut bench, 5, id, epoch, true), (0, epoch + 1));
    assert_eq!(end(&mut bench, 5, id, epoch, true), (0, epoch + 1));
    let marker = bench.fetch(1, 0, 1).records.unwrap();
    assert_eq!(BatchHeader::parse(&marker).unwrap().producer_epoch, epoch + 1);
    assert_eq!(write(&mut bench, 12, id, epoch, 1), ResponseError::InvalidProducerEpoch.code());
    assert_eq!(write(&mut bench, 12, id, epoch + 1, 0), 0);
}

#[test]
fn a_transaction_that_takes_too_long_is_aborted() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let (_, id, epoch) = init(&mut bench);
    add(&mut bench, id, epoch);
    write(&mut bench, 9, id, epoch, 0);
    assert_eq!(bench.state.next_timer_ms(), Some(START_MS + 60_000));
    bench.now_ms += 60_000;
    bench.state.tick(bench.now_ms);
    assert_eq!(committed(&mut bench), (2, 2, vec![(id, 0)]));
    assert_eq!(end(&mut bench, 4, id, epoch, true).0, ResponseError::ProducerFenced.code());
}

#[test]
fn offsets_of_a_transaction_count_when_it_commits() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let (_, id, epoch) = init(&mut bench);
    let group = || GroupId(text("g"));
    let commit = |bench: &mut Bench, offset| {
        let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(offset);
        let topic =
            TxnOffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![partition]);
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(TransactionalId(text(ID)))
            .with_group_id(group())
            .with_producer_id(ProducerId(id))
            .with_producer_epoch(epoch)
            .with_generation_id(-1)
            .with_topics(vec![topic]);
        bench.ask(1, 3, &request).topics[0].partitions[0].error_code
    };
    assert_eq!(commit(&mut bench, 5), ResponseError::InvalidTxnState.code());
    let add = AddOffsetsToTxnRequest::default()
        .with_transactional_id(TransactionalId(text(ID)))
        .with_producer_id(ProducerId(id))
        .with_producer_epoch(epoch)
        .with_group_id(group());
    let offsets = |bench: &Bench| bench.state.committed("g").iter().map(|one| one.2).collect::<Vec<_>>();
    for (offset, committed, expected) in [(5, true, 5), (9, false, 5)] {
        assert_eq!(bench.ask(1, 3, &add).error_code, 0);
        assert_eq!(commit(&mut bench, offset), 0);
        end(&mut bench, 4, id, epoch, committed);
        assert_eq!(offsets(&bench), [expected]);
    }
}

#[test]
fn producers_are_described_with_their_last_sequence() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    bench.produce(&batch_by(3, "x", by(77, 4, 0), 0));
    let topic = TopicRequest::default().with_name(name("t")).with_partition_indexes(vec![0]);
    let reply = bench.ask(1, 0, &DescribeProducersRequest::default().with_topics(vec![topic]));
    let producer = &reply.topics[0].partitions[0].active_producers[0];
    assert_eq!((producer.producer_id.0, producer.producer_epoch, producer.last_sequence), (77, 4, 2));
}

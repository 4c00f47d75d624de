//! What a log answers, row by row: the facts of a real broker 4.3.1.

use bytes::Bytes;
use kafka_protocol::error::ResponseError::{self, *};

use super::testing::{BatchSpec, records, seal};
use super::*;
use crate::record::verify_crc;

const CLIENT: Origin = Origin::Client(Verification::Missing);
const VERIFIED: Origin = Origin::Client(Verification::Done);
const NOW: i64 = 10_000_000;

fn log() -> PartitionLog {
    PartitionLog::new("t-0", LogSettings { strictness: Strictness::Report, ..LogSettings::default() })
}

fn log_with(configs: &[(&str, &str)]) -> PartitionLog {
    PartitionLog::new("t-0", LogSettings::default().with_configs(configs.iter().copied()).unwrap())
}

fn append(log: &mut PartitionLog, spec: &BatchSpec) -> Result<i64, ResponseError> {
    let origin = if spec.attributes & 0x10 == 0 { CLIENT } else { VERIFIED };
    log.append(NOW, 0, &spec.bytes(), origin).map(|done| done.base_offset).map_err(|error| error.code)
}

#[track_caller]
fn refuses(batch: &Bytes, code: ResponseError) {
    let mut log = log();
    let error = log.append(NOW, 0, batch, CLIENT).unwrap_err();
    assert_eq!(error.code, code, "{error}");
    assert_eq!((log.log_end_offset(), log.batch_count(), log.producers().len()), (0, 0, 0));
}

#[test]
fn a_batch_is_stored_as_it_came_but_for_offset_and_epoch() {
    let mut log = log();
    let batch = BatchSpec::of(3).bytes();
    for n in 0..2 {
        let done = log.append(NOW, 7, &batch, CLIENT).unwrap();
        assert_eq!((done.base_offset, done.log_append_time, done.kind), (3 * n, -1, AppendKind::New));
    }
    let read = log.read(3, 1 << 20, Isolation::ReadUncommitted, FirstBatch::Whole).unwrap();
    let mut expected = batch.to_vec();
    expected[..8].copy_from_slice(&3_i64.to_be_bytes());
    expected[12..16].copy_from_slice(&7_i32.to_be_bytes());
    assert_eq!(read.batches, [Bytes::from(expected)]);
    assert_eq!(log.violation_count(), 0);
}

#[test]
fn batches_that_a_broker_refuses() {
    refuses(&BatchSpec::of(3).with(|batch| batch.base_offset = 5).bytes(), InvalidRecord);
    refuses(&BatchSpec::of(0).with(|batch| batch.last_offset_delta = Some(0)).bytes(), InvalidRecord);
    refuses(&BatchSpec::of(3).with(|batch| batch.record_count = Some(-1)).bytes(), InvalidRecord);
    refuses(&BatchSpec::of(3).with(|batch| batch.last_offset_delta = Some(9)).bytes(), InvalidRecord);
    refuses(&BatchSpec::of(3).with(|batch| batch.last_offset_delta = Some(-2)).bytes(), InvalidRecord);
    let lying = |count| {
        BatchSpec::of(3).with(|batch| {
            batch.record_count = Some(count);
            batch.last_offset_delta = Some(count - 1);
        })
    };
    refuses(&lying(4).bytes(), InvalidRecord);
    refuses(&lying(2).bytes(), InvalidRecord);
    refuses(&BatchSpec::of(3).with(|batch| batch.attributes = 0x20).bytes(), InvalidRecord);
    refuses(&BatchSpec::of(3).with(|batch| batch.trailer = vec![0]).bytes(), InvalidRecord);
    refuses(&BatchSpec::of(3).by(7, 0, -1).bytes(), InvalidRecord);
    refuses(&BatchSpec::of(3).with(|batch| batch.attributes = 5).bytes(), UnknownServerError);
    let two = [BatchSpec::of(1).bytes(), BatchSpec::of(1).bytes()].concat();
    refuses(&Bytes::from(two), InvalidRecord);
    let zeros = [&BatchSpec::of(1).bytes()[..], &[0; 12]].concat();
    refuses(&Bytes::from(zeros), CorruptMessage);
    refuses(&Bytes::new(), InvalidRecord);
}

#[test]
fn bytes_behind_the_batch_that_are_no_whole_entry_are_dropped() {
    let batch = BatchSpec::of(1).bytes();
    for tail in [&[0; 11][..], &batch[..batch.len() - 1]] {
        let mut log = log();
        let records = Bytes::from([&batch[..], tail].concat());
        assert_eq!(log.append(NOW, 0, &records, CLIENT).map(|done| done.base_offset), Ok(0));
        assert_eq!(log.size_bytes(), batch.len());
    }
}

#[test]
fn damage_and_old_formats_are_refused() {
    let good = BatchSpec::of(3).bytes();
    let mut damaged = good.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    refuses(&Bytes::from(damaged), CorruptMessage);
    for (magic, code) in [(0, InvalidRecord), (1, InvalidRecord), (3, CorruptMessage)] {
        let mut other = good.to_vec();
        other[16] = magic;
        refuses(&Bytes::from(other), code);
    }
    for cut in 1..good.len() {
        assert!(log().append(NOW, 0, &good.slice(..cut), CLIENT).is_err(), "cut at {cut}");
    }
}

#[test]
fn the_size_limit_counts_the_whole_batch() {
    let batch = BatchSpec::of(3).bytes();
    let size_bytes = batch.len();
    for (limit, expected) in [(size_bytes, Ok(0)), (size_bytes - 1, Err(MessageTooLarge))] {
        let mut log = log_with(&[("max.message.bytes", &limit.to_string())]);
        assert_eq!(append(&mut log, &BatchSpec::of(3)), expected);
    }
    let mut log = log_with(&[("segment.bytes", "50")]);
    assert_eq!(append(&mut log, &BatchSpec::of(3)), Err(RecordListTooLarge));
}

#[test]
fn a_full_log_refuses_what_does_not_fit() {
    let size_bytes = BatchSpec::of(3).bytes().len();
    let settings = LogSettings { log_bytes_max: 2 * size_bytes, ..LogSettings::default() };
    let mut log = PartitionLog::new("t-0", settings);
    assert_eq!(append(&mut log, &BatchSpec::of(3)), Ok(0));
    assert_eq!(append(&mut log, &BatchSpec::of(3)), Ok(3));
    assert_eq!(append(&mut log, &BatchSpec::of(3)), Err(KafkaStorageError));
    log.delete_records(3).unwrap();
    assert_eq!(append(&mut log, &BatchSpec::of(3)), Ok(6));
}

#[test]
fn timestamps_out_of_range_name_their_records() {
    let mut log = log();
    let late = BatchSpec::of(2).with(|batch| {
        batch.base_timestamp = NOW;
        batch.records[1].timestamp_delta = 7_200_000;
    });
    let error = log.append(NOW, 0, &late.bytes(), CLIENT).unwrap_err();
    assert_eq!(error.code, InvalidTimestamp);
    assert_eq!(error.record_errors.iter().map(|error| error.batch_index).collect::<Vec<_>>(), [1]);
    for old in [-1, 0, 1] {
        let batch = BatchSpec::of(1).with(|batch| batch.base_timestamp = old);
        assert!(append(&mut log, &batch).is_ok(), "timestamp {old}");
    }
    let mut strict = log_with(&[("message.timestamp.before.max.ms", "1000")]);
    assert_eq!(append(&mut strict, &BatchSpec::of(1)), Err(InvalidTimestamp));
}

#[test]
fn compacted_topics_demand_keys() {
    let mut log = log_with(&[("cleanup.policy", "compact")]);
    let batch = BatchSpec::of(3).with(|batch| batch.records[2].key = None);
    let error = log.append(NOW, 0, &batch.bytes(), CLIENT).unwrap_err();
    assert_eq!((error.code, error.record_errors.len()), (InvalidRecord, 1));
    assert_eq!(error.record_errors[0].batch_index, 2);
    assert_eq!(append(&mut log, &BatchSpec::of(3)), Ok(0));
}

#[test]
fn log_append_time_is_written_under_the_checksum() {
    let mut log = log_with(&[("message.timestamp.type", "LogAppendTime")]);
    let done = log.append(NOW, 0, &BatchSpec::of(3).bytes(), CLIENT).unwrap();
    assert_eq!(done.log_append_time, NOW);
    let read = log.read(0, 1 << 20, Isolation::ReadUncommitted, FirstBatch::Whole).unwrap();
    assert_eq!(verify_crc(&read.batches[0]), Ok(()));
    let header = BatchHeader::parse(&read.batches[0]).unwrap();
    assert_eq!((header.attributes.0, header.max_timestamp), (0x08, NOW));
    let marked = BatchSpec::of(1).with(|batch| batch.attributes = 0x08);
    assert_eq!(append(&mut log, &marked), Err(InvalidTimestamp));
}

#[test]
fn a_wrong_largest_timestamp_is_put_right() {
    let mut batch = BatchSpec::of(3).bytes().to_vec();
    batch[35..43].copy_from_slice(&9_999_i64.to_be_bytes());
    seal(&mut batch);
    let mut log = log();
    log.append(NOW, 0, &Bytes::from(batch), CLIENT).unwrap();
    let read = log.read(0, 1 << 20, Isolation::ReadUncommitted, FirstBatch::Whole).unwrap();
    assert_eq!(BatchHeader::parse(&read.batches[0]).unwrap().max_timestamp, 1_002);
    assert_eq!(verify_crc(&read.batches[0]), Ok(()));
}

#[test]
fn what_brokers_let_pass_is_reported() {
    let check = |batch: BatchSpec, expected: ViolationKind| {
        let mut log = log();
        assert_eq!(append(&mut log, &batch), Ok(0), "{expected:?}");
        assert_eq!(log.violations(), [Violation { base_offset: 0, kind: expected }]);
    };
    let holes = BatchSpec::of(3).with(|batch| batch.records[1].offset_delta = 5);
    check(holes, ViolationKind::OffsetDelta { index: 1, delta: 5 });
    check(BatchSpec::of(1).transactional(), ViolationKind::TransactionalWithoutProducer);
    for bits in [0x08, 0x40, 0x80] {
        check(BatchSpec::of(1).with(|batch| batch.attributes = bits), ViolationKind::AttributeBits(bits));
    }
    check(BatchSpec::of(1).by(-1, 0, 0), ViolationKind::IdentityWithoutProducer);
}

#[test]
fn the_last_five_batches_are_answered_with_their_first_offset() {
    let mut log = log();
    let batch = |sequence| BatchSpec::of(2).by(7, 0, sequence);
    for n in 0..6 {
        assert_eq!(append(&mut log, &batch(2 * n)), Ok(i64::from(2 * n)));
    }
    for n in 1..6 {
        assert_eq!(append(&mut log, &batch(2 * n)), Ok(i64::from(2 * n)), "resend {n}");
    }
    assert_eq!(log.log_end_offset(), 12);
    assert_eq!(append(&mut log, &batch(0)), Err(OutOfOrderSequenceNumber));
    // Other content under the same sequences is a duplicate, too; another count is not.
    let other = batch(10).with(|batch| batch.records[0].value = Some(b"other".to_vec()));
    assert_eq!(append(&mut log, &other), Ok(10));
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(7, 0, 10)), Err(OutOfOrderSequenceNumber));
    assert_eq!(append(&mut log, &batch(11)), Err(OutOfOrderSequenceNumber));
    assert_eq!(append(&mut log, &batch(13)), Err(OutOfOrderSequenceNumber));
    assert_eq!(log.log_end_offset(), 12);
}

#[test]
fn sequences_wrap_also_inside_a_batch() {
    let mut log = log();
    assert_eq!(append(&mut log, &BatchSpec::of(3).by(7, 0, i32::MAX - 1)), Ok(0));
    assert_eq!(log.producers()[0].last_sequence, 0);
    assert_eq!(append(&mut log, &BatchSpec::of(3).by(7, 0, i32::MAX - 1)), Ok(0));
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(7, 0, 1)), Ok(3));
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(8, 0, i32::MAX)), Ok(4));
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(8, 0, 0)), Ok(5));
}

#[test]
fn epochs_only_grow_and_begin_at_sequence_0() {
    let mut log = log();
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(7, 3, 55)), Ok(0));
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(7, 2, 56)), Err(InvalidProducerEpoch));
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(7, 4, 56)), Err(OutOfOrderSequenceNumber));
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(7, 4, 0)), Ok(1));
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(7, 3, 56)), Err(InvalidProducerEpoch));
    let producers = log.producers();
    assert_eq!((producers[0].producer_epoch, producers[0].last_sequence), (4, 0));
}

#[test]
fn forgotten_producers_may_begin_anywhere() {
    let mut log = log();
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(7, 0, 0)), Ok(0));
    assert_eq!(log.expire_producers(1_000 + 86_399_999, 86_400_000), 0);
    assert_eq!(log.expire_producers(1_000 + 86_400_000, 86_400_000), 1);
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(7, 0, 0)), Ok(1));
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(8, 0, 4711)), Ok(2));
}

fn marker(producer_id: i64, producer_epoch: i16, result: TransactionResult) -> Marker {
    Marker { producer_id, producer_epoch, coordinator_epoch: 0, result }
}

#[test]
fn transactions_hold_the_last_stable_offset_back() {
    let mut log = log();
    append(&mut log, &BatchSpec::of(2)).unwrap();
    append(&mut log, &BatchSpec::of(2).by(7, 0, 0).transactional()).unwrap();
    append(&mut log, &BatchSpec::of(2).by(8, 0, 0).transactional()).unwrap();
    assert_eq!((log.last_stable_offset(), log.oldest_open_transaction()), (2, Some((7, 2))));
    assert_eq!(log.write_marker(NOW, 0, &marker(7, 0, TransactionResult::Abort)), Ok(6));
    assert_eq!((log.last_stable_offset(), log.oldest_open_transaction()), (4, Some((8, 4))));
    assert_eq!(log.write_marker(NOW, 0, &marker(8, 0, TransactionResult::Commit)), Ok(7));
    assert_eq!((log.last_stable_offset(), log.high_watermark()), (8, 8));
    let read = |offset, isolation| log.read(offset, 1 << 20, isolation, FirstBatch::Whole).unwrap();
    let aborted = AbortedTransaction { producer_id: 7, first_offset: 2 };
    assert_eq!(read(0, Isolation::ReadCommitted).aborted, [aborted]);
    assert_eq!(read(5, Isolation::ReadCommitted).aborted, [aborted]);
    assert_eq!(read(7, Isolation::ReadCommitted).aborted, []);
    assert_eq!(read(0, Isolation::ReadUncommitted).aborted, []);
    assert_eq!(read(0, Isolation::ReadCommitted).batches.len(), 5);
}

#[test]
fn transactional_batches_need_an_open_transaction() {
    let mut log = log();
    let batch = |sequence| BatchSpec::of(1).by(7, 0, sequence).transactional().bytes();
    let error = log.append(NOW, 0, &batch(0), CLIENT).unwrap_err();
    assert_eq!(error.code, InvalidTxnState);
    assert_eq!(error.client_message(), Some("Partition was not added to the transaction"));
    log.append(NOW, 0, &batch(0), VERIFIED).unwrap();
    log.append(NOW, 0, &batch(1), CLIENT).unwrap();
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(7, 0, 2)), Err(InvalidTxnState));
    // The sequence that was refused first stays the one to begin with.
    log.write_marker(NOW, 0, &marker(7, 0, TransactionResult::Commit)).unwrap();
    for sequence in [1, 2] {
        let error = log.append(NOW, 0, &batch(sequence), VERIFIED);
        let expected = if sequence == 1 { Ok(AppendKind::Duplicate) } else { Err(OutOfOrderSequenceNumber) };
        assert_eq!(error.map(|done| done.kind).map_err(|error| error.code), expected);
    }
    log.write_marker(NOW, 0, &marker(7, 0, TransactionResult::Abort)).unwrap();
    log.append(NOW, 0, &batch(2), VERIFIED).unwrap();
    let second = Origin::Client(Verification::DoneV2);
    let unknown = BatchSpec::of(1).by(9, 0, 5).transactional().bytes();
    assert_eq!(log.append(NOW, 0, &unknown, second).unwrap_err().code, OutOfOrderSequenceNumber);
}

#[test]
fn a_marker_fences_older_epochs() {
    let mut log = log();
    append(&mut log, &BatchSpec::of(1).by(7, 0, 0)).unwrap();
    log.write_marker(NOW, 0, &marker(7, 1, TransactionResult::Abort)).unwrap();
    assert_eq!(log.producers()[0].last_sequence, -1);
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(7, 0, 1)), Err(InvalidProducerEpoch));
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(7, 1, 1)), Err(OutOfOrderSequenceNumber));
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(7, 1, 0)), Ok(2));
    let stale = log.write_marker(NOW, 0, &marker(7, 0, TransactionResult::Abort)).unwrap_err();
    assert_eq!(stale.code, InvalidProducerEpoch);
    let current = Marker { coordinator_epoch: 5, ..marker(7, 1, TransactionResult::Commit) };
    log.write_marker(NOW, 0, &current).unwrap();
    let zombie = log.write_marker(NOW, 0, &Marker { coordinator_epoch: 4, ..current }).unwrap_err();
    assert_eq!(zombie.code, TransactionCoordinatorFenced);
}

#[test]
fn a_held_high_watermark_hides_the_rest() {
    let mut log = log();
    for _ in 0..3 {
        append(&mut log, &BatchSpec::of(2)).unwrap();
    }
    append(&mut log, &BatchSpec::of(1).by(7, 0, 0).transactional()).unwrap();
    log.hold_high_watermark(Some(7));
    log.write_marker(NOW, 0, &marker(7, 0, TransactionResult::Commit)).unwrap();
    assert_eq!((log.high_watermark(), log.last_stable_offset(), log.log_end_offset()), (7, 6, 8));
    log.hold_high_watermark(Some(4));
    let read = log.read(0, 1 << 20, Isolation::ReadUncommitted, FirstBatch::Whole).unwrap();
    assert_eq!((read.batches.len(), read.high_watermark, read.last_stable_offset), (2, 4, 4));
    assert_eq!(log.list_offset(OffsetSpec::Latest, Isolation::ReadCommitted).offset, 4);
    log.hold_high_watermark(None);
    assert_eq!((log.high_watermark(), log.last_stable_offset()), (8, 8));
}

#[test]
fn reads_are_cut_at_their_limit() {
    let mut log = log();
    for _ in 0..3 {
        append(&mut log, &BatchSpec::of(4)).unwrap();
    }
    let size_bytes = BatchSpec::of(4).bytes().len();
    let sizes = |offset, bytes_max, first| {
        let read = log.read(offset, bytes_max, Isolation::ReadUncommitted, first).unwrap();
        read.batches.iter().map(Bytes::len).collect::<Vec<_>>()
    };
    assert_eq!(sizes(5, 1 << 20, FirstBatch::WithinLimit), [size_bytes, size_bytes]);
    assert_eq!(sizes(0, size_bytes + 20, FirstBatch::WithinLimit), [size_bytes, 20]);
    assert_eq!(sizes(0, 1, FirstBatch::Whole), [size_bytes]);
    assert_eq!(sizes(0, 0, FirstBatch::Whole), [size_bytes]);
    assert_eq!(sizes(0, size_bytes - 1, FirstBatch::WithinLimit), [] as [usize; 0]);
    assert_eq!(sizes(12, 1 << 20, FirstBatch::Whole), [] as [usize; 0]);
    for offset in [-1, 13] {
        let error = log.read(offset, 9, Isolation::ReadUncommitted, FirstBatch::Whole).unwrap_err();
        assert_eq!((error.offset, error.log_start_offset, error.log_end_offset), (offset, 0, 12));
    }
}

#[test]
fn offsets_are_found_by_name_and_time() {
    let mut log = log();
    for base_timestamp in [1_000, 5_000, 3_000] {
        append(&mut log, &BatchSpec::of(3).with(|batch| batch.base_timestamp = base_timestamp)).unwrap();
    }
    let find = |spec| {
        let found = log.list_offset(spec, Isolation::ReadUncommitted);
        (found.offset, found.timestamp, found.leader_epoch)
    };
    assert_eq!(find(OffsetSpec::Earliest), (0, -1, 0));
    assert_eq!(find(OffsetSpec::Latest), (9, -1, 0));
    assert_eq!(find(OffsetSpec::MaxTimestamp), (5, 5_002, 0));
    assert_eq!(find(OffsetSpec::Timestamp(0)), (0, 1_000, 0));
    assert_eq!(find(OffsetSpec::Timestamp(1_002)), (2, 1_002, 0));
    assert_eq!(find(OffsetSpec::Timestamp(1_003)), (3, 5_000, 0));
    assert_eq!(find(OffsetSpec::Timestamp(5_003)), (-1, -1, -1));
}

#[test]
fn delete_records_in_mid_batch_keeps_the_batch() {
    let mut log = log();
    for _ in 0..3 {
        append(&mut log, &BatchSpec::of(4)).unwrap();
    }
    assert_eq!(log.delete_records(6), Ok(6));
    assert_eq!((log.batch_count(), log.log_start_offset()), (2, 6));
    assert!(log.read(5, 9, Isolation::ReadUncommitted, FirstBatch::Whole).is_err());
    let read = log.read(6, 9, Isolation::ReadUncommitted, FirstBatch::Whole).unwrap();
    assert_eq!(BatchHeader::parse(&read.batches[0]).unwrap().base_offset, 4);
    assert_eq!(log.list_offset(OffsetSpec::Timestamp(0), Isolation::ReadUncommitted).offset, 6);
    assert_eq!(log.delete_records(3), Ok(6));
    assert!(log.delete_records(13).is_err());
    assert_eq!(log.delete_records(-1), Ok(12));
    assert_eq!((log.batch_count(), log.size_bytes(), log.log_end_offset()), (0, 0, 12));
}

/// Seen at 4.3.1: the last stable offset can lie below the log start.
#[test]
fn delete_records_in_an_open_transaction_leaves_the_stable_offset_at_a_batch() {
    let mut log = log();
    append(&mut log, &BatchSpec::of(4).by(7, 0, 0).transactional()).unwrap();
    append(&mut log, &BatchSpec::of(4)).unwrap();
    append(&mut log, &BatchSpec::of(4)).unwrap();
    for (before, stable) in [(1, 0), (4, 4), (6, 4), (8, 8), (12, 12)] {
        assert_eq!(log.delete_records(before), Ok(before));
        assert_eq!(log.last_stable_offset(), stable, "log start {before}");
    }
}

#[test]
fn retention_drops_the_oldest_batches() {
    let size_bytes = BatchSpec::of(2).bytes().len();
    let mut log = log_with(&[("retention.ms", "5000"), ("retention.bytes", &(2 * size_bytes).to_string())]);
    for _ in 0..4 {
        append(&mut log, &BatchSpec::of(2)).unwrap();
    }
    assert_eq!(log.expire_by_retention(2_000), 2);
    assert_eq!((log.log_start_offset(), log.size_bytes()), (4, 2 * size_bytes));
    assert_eq!(log.expire_by_retention(6_001), 0);
    assert_eq!(log.expire_by_retention(6_002), 2);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (8, 8));
}

#[test]
fn truncation_takes_producer_state_with_it() {
    let mut log = log();
    for (epoch, n) in [(0, 0), (0, 1), (1, 2)] {
        log.append(NOW, epoch, &BatchSpec::of(2).by(7, 0, 2 * n).bytes(), CLIENT).unwrap();
    }
    let open = BatchSpec::of(2).by(8, 0, 0).transactional().bytes();
    log.append(NOW, 1, &open, VERIFIED).unwrap();
    assert_eq!(log.end_offset_for_epoch(0), EpochEnd { epoch: 0, end_offset: 4 });
    assert_eq!(log.truncate_to(3), 2);
    assert_eq!((log.log_end_offset(), log.last_stable_offset(), log.batch_count()), (2, 2, 1));
    assert_eq!(log.end_offset_for_epoch(0), EpochEnd { epoch: 0, end_offset: 2 });
    assert_eq!(append(&mut log, &BatchSpec::of(2).by(7, 0, 2)), Ok(2));
}

#[test]
fn entries_are_put_in_by_hand() {
    let mut log = log();
    append(&mut log, &BatchSpec::of(2)).unwrap();
    let empty = BatchSpec::of(0).by(7, 0, 0).with(|batch| batch.last_offset_delta = Some(9)).bytes();
    assert_eq!(log.inject_batch(0, &empty), Ok(2));
    let mut legacy = vec![0; 40];
    legacy[11] = 28;
    legacy[16] = 1;
    assert_eq!(log.inject_legacy(0, &Bytes::from(legacy), 3, 1_000), Ok(12));
    log.inject_gap(5);
    assert_eq!(append(&mut log, &BatchSpec::of(1)), Ok(20));
    let read = log.read(13, 1 << 20, Isolation::ReadUncommitted, FirstBatch::Whole).unwrap();
    assert_eq!((read.batches.len(), &read.batches[0][..8]), (2, &14_i64.to_be_bytes()[..]));
    assert_eq!(append(&mut log, &BatchSpec::of(1).by(7, 0, 10)), Ok(21));
    assert!(log.damage(1) && !log.damage(16));
    let read = log.read(0, 1 << 20, Isolation::ReadUncommitted, FirstBatch::Whole).unwrap();
    assert!(verify_crc(&read.batches[0]).is_err());
}

#[test]
fn coordinators_append_what_they_like() {
    let mut log = log_with(&[("cleanup.policy", "compact")]);
    let batch = BatchSpec::of(2).by(7, 0, 900).with(|batch| batch.records = records(2)).bytes();
    for n in 0..2 {
        let done = log.append(NOW, 0, &batch, Origin::Coordinator).unwrap();
        assert_eq!((done.base_offset, done.kind), (2 * n, AppendKind::New));
    }
}

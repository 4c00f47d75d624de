//! Compaction, as Kafka's cleaner does it.

use bytes::Bytes;

use super::testing::{BatchSpec, RecordSpec};
use super::*;
use crate::record::{OpenBatch, verify_crc};

const VERIFIED: Origin = Origin::Client(Verification::Done);
const NOW: i64 = 10_000_000;
const DELETE_RETENTION_MS: i64 = 86_400_000;

fn compacted_log() -> PartitionLog {
    let settings = LogSettings { cleanup_policy: CleanupPolicy::Compact, ..LogSettings::default() };
    PartitionLog::new("t-0", settings)
}

/// A batch with these keys and values, `None` being a tombstone.
fn batch(records: &[(&str, Option<&str>)]) -> BatchSpec {
    BatchSpec::of(0).with(|batch| {
        batch.records = (0..)
            .zip(records)
            .map(|(n, (key, value))| RecordSpec {
                key: Some(key.as_bytes().to_vec()),
                value: value.map(|value| value.as_bytes().to_vec()),
                timestamp_delta: i64::from(n),
                offset_delta: n,
            })
            .collect();
    })
}

fn append(log: &mut PartitionLog, spec: &BatchSpec) -> i64 {
    log.append(NOW, 4, &spec.bytes(), VERIFIED).unwrap().base_offset
}

fn stored(log: &PartitionLog) -> Vec<Bytes> {
    log.read(log.log_start_offset(), usize::MAX, Isolation::ReadUncommitted, FirstBatch::Whole)
        .unwrap()
        .batches
}

fn headers(log: &PartitionLog) -> Vec<BatchHeader> {
    stored(log)
        .iter()
        .map(|batch| {
            assert_eq!(verify_crc(batch), Ok(()));
            BatchHeader::parse(batch).unwrap()
        })
        .collect()
}

/// Offset, key, whether there is a value, and timestamp of every record.
fn records(log: &PartitionLog) -> Vec<(i64, String, bool, i64)> {
    let mut found = Vec::new();
    for bytes in stored(log) {
        let open = OpenBatch::open(&bytes, 1 << 20).unwrap();
        for record in open.records() {
            let record = record.unwrap();
            let key = String::from_utf8_lossy(record.key.unwrap_or_default()).into_owned();
            found.push((open.offset(&record), key, record.value.is_some(), open.timestamp(&record)));
        }
    }
    found
}

fn marker(producer_id: i64, producer_epoch: i16, result: TransactionResult) -> Marker {
    Marker { producer_id, producer_epoch, coordinator_epoch: 0, result }
}

#[test]
fn the_last_record_of_a_key_stays_where_it_was() {
    let mut log = compacted_log();
    append(&mut log, &batch(&[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))]));
    append(&mut log, &batch(&[("a", Some("2")), ("a", Some("3"))]));
    append(&mut log, &batch(&[("a", Some("4")), ("c", Some("2"))]));
    let untouched = stored(&log)[2].clone();
    let done = log.compact(NOW);
    assert_eq!(done, Compacted { batches_removed: 1, batches_emptied: 0, records_removed: 4 });
    let kept =
        [(1, "b".to_string(), true, 1_001), (5, "a".into(), true, 1_000), (6, "c".into(), true, 1_001)];
    assert_eq!(records(&log), kept);
    let headers = headers(&log);
    assert_eq!((headers[0].base_offset, headers[0].last_offset(), headers[0].record_count), (0, 2, 1));
    assert_eq!((headers[0].base_timestamp, headers[0].partition_leader_epoch), (1_001, 4));
    assert_eq!(stored(&log)[1], untouched);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (0, 7));
    assert_eq!(log.compact(NOW), Compacted::default());
    let read = log.read(3, 1, Isolation::ReadUncommitted, FirstBatch::Whole).unwrap();
    assert_eq!(BatchHeader::parse(&read.batches[0]).unwrap().base_offset, 5);
}

#[test]
fn a_log_that_only_deletes_is_left_alone() {
    let mut log = PartitionLog::new("t-0", LogSettings::default());
    append(&mut log, &batch(&[("a", Some("1")), ("a", Some("2"))]));
    assert_eq!(log.compact(NOW), Compacted::default());
    assert_eq!(records(&log).len(), 2);
}

#[test]
fn tombstones_get_a_horizon_and_go_when_it_is_reached() {
    let mut log = compacted_log();
    append(&mut log, &batch(&[("a", Some("1")), ("b", None), ("c", Some("1"))]));
    log.compact(NOW);
    let horizon = NOW + DELETE_RETENTION_MS;
    let header = headers(&log)[0];
    assert!(header.attributes.has_delete_horizon());
    assert_eq!((header.base_timestamp, header.max_timestamp), (horizon, 1_002));
    let kept = records(&log);
    assert_eq!(kept.iter().map(|record| record.3).collect::<Vec<_>>(), [1_000, 1_001, 1_002]);
    assert_eq!(log.compact(horizon - 1), Compacted::default());
    assert_eq!(headers(&log)[0], header);
    assert_eq!(log.compact(horizon).records_removed, 1);
    assert_eq!(records(&log).iter().map(|record| record.0).collect::<Vec<_>>(), [0, 2]);
    assert!(headers(&log)[0].attributes.has_delete_horizon());
}

#[test]
fn the_batch_that_a_producers_state_rests_on_keeps_its_header() {
    let mut log = compacted_log();
    append(&mut log, &batch(&[("a", Some("1"))]).by(7, 2, 0));
    append(&mut log, &batch(&[("a", Some("2")), ("a", Some("3"))]).by(7, 2, 1));
    append(&mut log, &batch(&[("a", Some("4"))]).by(8, 0, 0));
    let done = log.compact(NOW);
    assert_eq!(done, Compacted { batches_removed: 1, batches_emptied: 1, records_removed: 3 });
    let empty = headers(&log)[0];
    assert_eq!((empty.base_offset, empty.last_offset(), empty.record_count, empty.size_bytes), (1, 2, 0, 61));
    assert_eq!((empty.producer_id, empty.producer_epoch, empty.base_sequence), (7, 2, 1));
    assert_eq!((empty.base_timestamp, empty.max_timestamp), (-1, 1_001));
    assert_eq!(log.compact(NOW), Compacted::default());
    // The next batch makes the empty one superfluous.
    append(&mut log, &batch(&[("z", Some("1"))]).by(7, 2, 3));
    assert_eq!(log.compact(NOW), Compacted { batches_removed: 1, ..Compacted::default() });
}

#[test]
fn aborted_records_go_and_their_marker_after_them() {
    let mut log = compacted_log();
    append(&mut log, &batch(&[("a", Some("1"))]));
    append(&mut log, &batch(&[("a", Some("aborted"))]).by(7, 0, 0).transactional());
    log.write_marker(NOW, 4, &marker(7, 0, TransactionResult::Abort)).unwrap();
    append(&mut log, &batch(&[("b", Some("1"))]).by(7, 0, 1).transactional());
    log.write_marker(NOW, 4, &marker(7, 0, TransactionResult::Commit)).unwrap();
    assert_eq!(log.compact(NOW).records_removed, 1);
    let offsets =
        |log: &PartitionLog| headers(log).iter().map(|header| header.base_offset).collect::<Vec<_>>();
    // The marker stays: batches of its transaction were there at this pass.
    assert_eq!(offsets(&log), [0, 2, 3, 4]);
    let aborted = |log: &PartitionLog| {
        log.read(0, 1 << 20, Isolation::ReadCommitted, FirstBatch::Whole).unwrap().aborted.len()
    };
    assert_eq!(aborted(&log), 1);
    // Next pass: nothing of the transaction is left, the marker gets its horizon.
    log.compact(NOW);
    let header = headers(&log)[1];
    assert!(header.attributes.has_delete_horizon());
    assert_eq!(header.base_timestamp, NOW + DELETE_RETENTION_MS);
    log.compact(NOW + DELETE_RETENTION_MS);
    assert_eq!((offsets(&log), aborted(&log)), (vec![0, 3, 4], 0));
    // The commit marker stays while its transaction's batch is there.
    assert!(!headers(&log)[2].attributes.has_delete_horizon());
}

#[test]
fn what_is_not_stable_is_not_touched() {
    let mut log = compacted_log();
    append(&mut log, &batch(&[("a", Some("1"))]));
    append(&mut log, &batch(&[("b", Some("open"))]).by(7, 0, 0).transactional());
    append(&mut log, &batch(&[("a", Some("2"))]));
    assert_eq!(log.compact(NOW), Compacted::default());
    log.write_marker(NOW, 4, &marker(7, 0, TransactionResult::Commit)).unwrap();
    assert_eq!(log.compact(NOW).records_removed, 1);
}

#[test]
fn compressed_and_append_time_batches_keep_codec_and_times() {
    let settings = LogSettings {
        cleanup_policy: CleanupPolicy::Compact,
        compression: Compression::Topic(crate::record::Codec::Zstd),
        timestamp_type: TimestampType::LogAppendTime,
        ..LogSettings::default()
    };
    let mut log = PartitionLog::new("t-0", settings);
    append(&mut log, &batch(&[("a", Some("1")), ("b", Some("1")), ("a", Some("2"))]));
    assert_eq!(log.compact(NOW + 5).records_removed, 1);
    let header = headers(&log)[0];
    assert_eq!((header.attributes.0, header.max_timestamp), (0x0c, NOW));
    assert_eq!((header.base_timestamp, header.record_count, header.last_offset()), (NOW, 2, 2));
}

#[test]
fn damaged_batches_stay_as_they_are() {
    let mut log = compacted_log();
    append(&mut log, &batch(&[("a", Some("1"))]));
    append(&mut log, &batch(&[("a", Some("2"))]));
    log.damage(0);
    assert_eq!(log.compact(NOW), Compacted::default());
    assert_eq!(stored(&log).len(), 2);
}

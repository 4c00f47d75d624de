//! The same batches compacted by a real broker's cleaner and by the embedded log.

use std::time::Duration;

use bytes::Bytes;
use kmirror::broker::log::{LogSettings, Marker, Origin, PartitionLog, TransactionResult, Verification};
use kmirror::record::{BatchHeader, Codec, OpenBatch, TimestampType};

use protocol_tests::wait::{Look, wait_for};

use crate::batches::{Batch, Record};
use crate::wire::Connection;

/// Roll a segment at every batch, clean whatever is dirty.
const CONFIGS: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("segment.ms", "1"),
    ("min.cleanable.dirty.ratio", "0.0"),
    ("min.compaction.lag.ms", "0"),
];
const CLEAN_TIMEOUT: Duration = Duration::from_secs(5);
const ROUNDS_MAX: usize = 4;

enum Step {
    Append(Batch),
    Transactional(Batch),
    Commit,
    Abort,
}

use Step::{Abort, Append, Commit, Transactional};

struct Subject<'a> {
    connection: &'a mut Connection,
    topic: String,
    identity: (i64, i16),
    log: PartitionLog,
}

fn keyed(records: &[(&str, Option<&str>)]) -> Batch {
    let mut batch = Batch::of(records.len() as i32, 0);
    for (record, (key, value)) in batch.records.iter_mut().zip(records) {
        let (key, value) = (Some(key.as_bytes().to_vec()), value.map(|value| value.as_bytes().to_vec()));
        *record = Record { key, value, ..record.clone() };
    }
    batch
}

impl Subject<'_> {
    fn run(&mut self, step: Step) {
        // The clock must move on for a segment to roll.
        let before = crate::now_ms();
        while crate::now_ms() <= before + 1 {
            std::thread::yield_now();
        }
        let result = match step {
            Append(batch) => return self.append(batch, None),
            Transactional(batch) => {
                let id = self.topic.clone();
                assert_eq!(self.connection.add_partition(&id, self.identity, &id), 0);
                return self.append(batch.with(|batch| batch.attributes |= 0x10), Some(&id));
            }
            Commit => TransactionResult::Commit,
            Abort => TransactionResult::Abort,
        };
        let committed = result == TransactionResult::Commit;
        let (code, _) = self.connection.end_transaction(4, &self.topic, self.identity, committed);
        assert_eq!(code, 0);
        let (producer_id, producer_epoch) = self.identity;
        let marker = Marker { producer_id, producer_epoch, coordinator_epoch: 0, result };
        self.log.write_marker(crate::now_ms(), 0, &marker).expect("a current epoch");
    }

    /// Appends a batch, which becomes the active segment that no cleaner touches, and waits until both sides are equal.
    fn round(&mut self, round: usize) -> protocol_tests::Result<()> {
        self.run(Append(keyed(&[(&format!("roll-{round}"), Some("1"))])));
        // How often the cleaner comes by is its own affair: passes are repeated until nothing changes any more.
        for pass in 0..4 {
            self.log.compact(crate::now_ms() + pass * 1_000);
        }
        let ours = shape(crate::read_log(&self.log));
        wait_for(&format!("the cleaner to clean {}", self.topic), CLEAN_TIMEOUT, || {
            let real = shape(self.connection.read_all(&self.topic));
            let extra = real.iter().filter(|line| !ours.contains(line));
            let missing = ours.iter().filter(|line| !real.contains(line));
            let seen =
                format!("extra {:#?}, missing {:#?}", extra.collect::<Vec<_>>(), missing.collect::<Vec<_>>());
            Ok(if real == ours { Look::Done(()) } else { Look::Pending(seen) })
        })
    }

    fn append(&mut self, batch: Batch, transactional_id: Option<&str>) {
        // Segments roll by the times of records and markers, so these must rise.
        let bytes = batch.with(|batch| batch.base_timestamp = crate::now_ms()).bytes();
        let answer = self.connection.produce(&self.topic, transactional_id, &bytes);
        let ours = self
            .log
            .append(crate::now_ms(), 0, &bytes, Origin::Client(Verification::Done))
            .expect("a valid batch");
        assert_eq!((answer.code, answer.base_offset), (0, ours.base_offset));
    }
}

/// What both sides must agree about: all but the times of markers and horizons.
fn shape(records: Bytes) -> Vec<String> {
    let (mut rest, mut shapes) = (records, Vec::new());
    while let Ok(header) = BatchHeader::parse(&rest) {
        let batch = rest.split_to(header.size_bytes);
        let marker = header.attributes.is_control();
        let append_time = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
        let times = match (marker || append_time, header.attributes.has_delete_horizon()) {
            (true, _) => String::new(),
            (false, true) => format!("max {}", header.max_timestamp),
            (false, false) => format!("base {} max {}", header.base_timestamp, header.max_timestamp),
        };
        let open = OpenBatch::open(&batch, 1 << 20).expect("a whole batch");
        let records: Vec<String> = open
            .records()
            .map(|record| {
                let record = record.expect("a whole record");
                let time = if marker || append_time { 0 } else { open.timestamp(&record) };
                format!("{}:{:?}:{:?}@{time}", record.offset_delta, record.key, record.value)
            })
            .collect();
        shapes.push(format!(
            "{}..={} attributes {:#x} producer {} {} {} count {} {times} {records:?}",
            header.base_offset,
            header.last_offset(),
            header.attributes.0,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
        ));
    }
    shapes
}

fn steps((id, epoch): (i64, i16)) -> Vec<Step> {
    vec![
        Append(keyed(&[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))])),
        Append(keyed(&[("a", Some("2")), ("d", None)]).with(|batch| batch.codec = Codec::Gzip)),
        Append(keyed(&[("gone", Some("1"))])),
        // A producer whose last batch loses all its records, one that loses an earlier batch.
        Append(keyed(&[("gone", Some("2"))]).by(90_000, 3, 0)),
        Append(keyed(&[("x", Some("1")), ("gone", Some("3"))]).by(90_000, 3, 1)),
        Append(keyed(&[("y", Some("1")), ("y", Some("2"))]).by(90_001, 0, 0)),
        Append(keyed(&[("y", Some("3"))])),
        Transactional(keyed(&[("t", Some("1")), ("a", Some("3"))]).by(id, epoch, 0)),
        Commit,
        Transactional(keyed(&[("t", Some("aborted")), ("u", Some("aborted"))]).by(id, epoch, 2)),
        Abort,
        Transactional(keyed(&[("v", Some("1")), ("v", Some("2"))]).by(id, epoch, 4)),
        Commit,
        Append(keyed(&[("gone", None), ("x", Some("2"))]).with(|batch| batch.codec = Codec::Zstd)),
        Append(keyed(&[("v", None)])),
    ]
}

/// Runs the same steps through a broker and the log and waits until the cleaner has brought the broker's partition to
/// what the log makes of its own.
pub(crate) fn check(connection: &mut Connection, topic: &str, more: &[(&'static str, &'static str)]) {
    let mut configs = CONFIGS.to_vec();
    configs.extend(more);
    connection.create_topic(topic, &configs);
    let identity = connection.init_producer_id(topic);
    let settings = LogSettings::default().with_configs(configs.iter().copied()).expect("configs of a topic");
    let log = PartitionLog::new("t-0", settings);
    let mut subject = Subject { connection, topic: topic.to_owned(), identity, log };
    for step in steps(identity) {
        subject.run(step);
    }
    // What has a horizon goes at a later pass, and a cleaner comes by only if there is something new.
    for round in 0.. {
        match subject.round(round) {
            Ok(()) => return,
            Err(error) => assert!(round < ROUNDS_MAX, "{error}"),
        }
    }
}

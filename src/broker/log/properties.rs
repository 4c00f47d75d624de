//! Random producers, resends, transactions, compaction and deletion against a list of records.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::testing::{BatchSpec, RecordSpec};
use super::*;
use crate::record::OpenBatch;

const NOW: i64 = 10_000_000;
const KEYS: u8 = 6;

#[derive(Clone, Debug)]
enum Step {
    /// A batch of a producer (0: none, 1 to 2: idempotent, 3 to 4: transactional) of so many records.
    Append {
        producer: u8,
        count: u8,
        first_key: u8,
    },
    /// The producer's batch so many before its last one, once more.
    Resend {
        producer: u8,
        back: u8,
    },
    /// End of a transactional producer's transaction.
    End {
        producer: u8,
        result: TransactionResult,
    },
    Compact,
    DeleteRecords(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let result = prop_oneof![Just(TransactionResult::Commit), Just(TransactionResult::Abort)];
    let step = prop_oneof![
        8 => (0_u8..5, 1_u8..5, 0..KEYS)
            .prop_map(|(producer, count, first_key)| Step::Append { producer, count, first_key }),
        2 => (1_u8..5, 0_u8..7).prop_map(|(producer, back)| Step::Resend { producer, back }),
        4 => (3_u8..5, result).prop_map(|(producer, result)| Step::End { producer, result }),
        1 => Just(Step::Compact),
        1 => any::<prop::sample::Index>().prop_map(Step::DeleteRecords),
    ];
    prop::collection::vec(step, 1..60)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open(u8),
    Committed,
    Aborted,
}

/// Offset, key and value: what a reader sees of a record.
type Seen = (i64, Vec<u8>, Option<Vec<u8>>);

#[derive(Default)]
struct Model {
    records: Vec<(Seen, Fate)>,
    next_sequence: BTreeMap<u8, i32>,
    sent: BTreeMap<u8, Vec<(BatchSpec, i64)>>,
    start_offset: i64,
    compacted: bool,
    serial: u32,
}

impl Model {
    /// What a read_committed reader may see below the first open transaction.
    fn committed(&self) -> Vec<Seen> {
        let open = self.records.iter().find(|(_, fate)| matches!(fate, Fate::Open(_)));
        let end_offset = open.map_or(i64::MAX, |(seen, _)| seen.0);
        self.records
            .iter()
            .filter(|(seen, fate)| {
                *fate == Fate::Committed && (self.start_offset..end_offset).contains(&seen.0)
            })
            .map(|(seen, _)| seen.clone())
            .collect()
    }

    fn batch(&mut self, producer: u8, count: u8, first_key: u8) -> BatchSpec {
        let records: Vec<RecordSpec> = (0..count)
            .map(|n| {
                self.serial += 1;
                let value = self.serial.to_be_bytes().to_vec();
                RecordSpec {
                    key: Some(vec![(first_key + n) % KEYS]),
                    value: (!self.serial.is_multiple_of(5)).then_some(value),
                    timestamp_delta: i64::from(n),
                    offset_delta: i32::from(n),
                }
            })
            .collect();
        let batch = BatchSpec::of(0).with(|batch| batch.records = records);
        let batch = if producer > 2 { batch.transactional() } else { batch };
        if producer == 0 {
            return batch;
        }
        let sequence = self.next_sequence.entry(producer).or_default();
        let batch = batch.by(i64::from(producer), 0, *sequence);
        *sequence += i32::from(count);
        batch
    }
}

fn append(log: &mut PartitionLog, spec: &BatchSpec) -> Result<Appended, AppendError> {
    log.append(NOW, 0, &spec.bytes(), Origin::Client(Verification::Done))
}

fn apply(log: &mut PartitionLog, model: &mut Model, step: Step) -> Result<(), TestCaseError> {
    match step {
        Step::Append { producer, count, first_key } => {
            let spec = model.batch(producer, count, first_key);
            let done = append(log, &spec).unwrap();
            prop_assert_eq!(done.kind, AppendKind::New);
            let fate = if producer > 2 { Fate::Open(producer) } else { Fate::Committed };
            for (offset, record) in (done.base_offset..).zip(&spec.records) {
                let key = record.key.clone().unwrap_or_default();
                model.records.push(((offset, key, record.value.clone()), fate));
            }
            model.sent.entry(producer).or_default().push((spec, done.base_offset));
        }
        Step::Resend { producer, back } => {
            let is_open = model.records.iter().any(|(_, fate)| *fate == Fate::Open(producer));
            if producer > 2 && !is_open {
                // It would be taken for the first batch of a transaction, and later ones would have to wait for it.
                return Ok(());
            }
            let sent = model.sent.entry(producer).or_default();
            let Some(at) = sent.len().checked_sub(1 + usize::from(back)) else { return Ok(()) };
            let (spec, offset) = &sent[at];
            let answer = append(log, spec).map(|done| (done.kind, done.base_offset));
            if usize::from(back) < BATCHES_REMEMBERED {
                prop_assert_eq!(answer, Ok((AppendKind::Duplicate, *offset)));
            } else {
                let code = answer.map_err(|error| error.code);
                prop_assert_eq!(code, Err(ResponseError::OutOfOrderSequenceNumber));
            }
        }
        Step::End { producer, result } => {
            let marker =
                Marker { producer_id: i64::from(producer), producer_epoch: 0, coordinator_epoch: 0, result };
            log.write_marker(NOW, 0, &marker).unwrap();
            let end = if result == TransactionResult::Commit { Fate::Committed } else { Fate::Aborted };
            for (_, fate) in model.records.iter_mut().filter(|(_, fate)| *fate == Fate::Open(producer)) {
                *fate = end;
            }
        }
        Step::Compact => {
            log.compact(NOW);
            model.compacted = true;
        }
        Step::DeleteRecords(index) => {
            // Up to a third of the log, and never into an open transaction, whose first offset the model needs.
            let range = (log.last_stable_offset() - log.log_start_offset()).max(0);
            let before = log.log_start_offset() + index.index(range as usize / 3 + 1) as i64;
            model.start_offset = log.delete_records(before).unwrap();
        }
    }
    Ok(())
}

/// Reads in pieces of `bytes_max` and skips aborted records, as a consumer does.
fn consume(log: &PartitionLog, bytes_max: usize) -> Vec<Seen> {
    let (mut seen, mut offset) = (Vec::new(), log.log_start_offset());
    loop {
        let read = log.read(offset, bytes_max, Isolation::ReadCommitted, FirstBatch::Whole).unwrap();
        let (mut aborted, mut pending) = (BTreeSet::new(), read.aborted.iter().peekable());
        let before = offset;
        for bytes in &read.batches {
            let Ok(batch) = OpenBatch::open(bytes, 1 << 20) else { break };
            let header = batch.header;
            while let Some(next) = pending.next_if(|next| next.first_offset <= header.last_offset()) {
                aborted.insert(next.producer_id);
            }
            if header.attributes.is_control() {
                aborted.remove(&header.producer_id);
            } else if !header.attributes.is_transactional() || !aborted.contains(&header.producer_id) {
                for record in batch.records() {
                    let record = record.unwrap();
                    let found = batch.offset(&record);
                    if found >= offset {
                        let key = record.key.unwrap_or_default().to_vec();
                        seen.push((found, key, record.value.map(<[u8]>::to_vec)));
                    }
                }
            }
            offset = header.next_offset();
        }
        if offset == before {
            return seen;
        }
    }
}

fn last_values(seen: &[Seen]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut last = BTreeMap::new();
    for (_, key, value) in seen {
        match value {
            Some(value) => last.insert(key.clone(), value.clone()),
            None => last.remove(key),
        };
    }
    last
}

/// What must survive without snapshots. Timestamps may fall when compaction takes a batch's latest record.
fn known(log: &PartitionLog) -> (Vec<ProducerInfo>, i64, Vec<Seen>) {
    let producers =
        log.producers().into_iter().map(|producer| ProducerInfo { last_timestamp: 0, ..producer }).collect();
    (producers, log.last_stable_offset(), consume(log, usize::MAX))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_reader_sees_what_was_committed(steps in steps(), bytes_max in 1_usize..400) {
        let settings =
            LogSettings { cleanup_policy: CleanupPolicy::CompactDelete, ..LogSettings::default() };
        let (mut log, mut model) = (PartitionLog::new("t-0", settings), Model::default());
        for step in steps {
            apply(&mut log, &mut model, step)?;
            prop_assert!(log.log_start_offset() <= log.high_watermark());
            prop_assert!(log.last_stable_offset() <= log.high_watermark());
        }
        let (seen, expected) = (consume(&log, usize::MAX), model.committed());
        prop_assert_eq!(&consume(&log, bytes_max), &seen, "read in pieces of {} bytes", bytes_max);
        if model.compacted {
            prop_assert!(seen.iter().all(|record| expected.contains(record)));
            prop_assert_eq!(last_values(&seen), last_values(&expected));
        } else {
            prop_assert_eq!(&seen, &expected);
        }
    }

    #[test]
    fn what_is_rebuilt_from_the_batches_is_what_was_known(steps in steps()) {
        let settings = LogSettings { cleanup_policy: CleanupPolicy::Compact, ..LogSettings::default() };
        let (mut log, mut model) = (PartitionLog::new("t-0", settings), Model::default());
        for step in steps {
            if !matches!(step, Step::DeleteRecords(_)) {
                apply(&mut log, &mut model, step)?;
            }
        }
        let before = known(&log);
        log.rebuild();
        prop_assert_eq!(known(&log), before);
    }

    #[test]
    fn damaged_batches_never_panic(count in 0_i32..5, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), sealed: bool) {
        let mut bytes = BatchSpec::of(count).by(3, 0, 0).bytes().to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if sealed {
            super::testing::seal(&mut bytes);
        }
        let mut log = PartitionLog::new("t-0", LogSettings { strictness: Strictness::Report, ..LogSettings::default() });
        let bytes = Bytes::from(bytes);
        let _ = log.append(NOW, 0, &bytes, Origin::Client(Verification::Missing));
        let _ = log.append(NOW, 0, &bytes, Origin::Coordinator);
        let _ = log.inject_batch(0, &bytes);
        let _ = log.compact(NOW);
        let _ = log.list_offset(OffsetSpec::Timestamp(5), Isolation::ReadUncommitted);
    }
}

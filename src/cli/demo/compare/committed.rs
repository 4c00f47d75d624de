//! What a read_committed reader makes of the batches that a fetch gave (KIP-98; `CompletedFetch.nextFetchedRecord`).
//!
//! A plain function. Markers are never records; a transactional batch is left out while its producer stands in the list of
//! aborted transactions, from the transaction's first offset up to its abort marker.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use super::super::Error;
use crate::record::{BatchHeader, Entry, Magic, OpenBatch, RecordData, next_entry};

/// No batch that a comparison meets may be larger than this, compressed or not.
const BATCH_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Type of an abort marker, behind the version in a control record's key.
const ABORT: [u8; 2] = [0, 0];

/// A record with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRecord {
    /// Its offset.
    pub offset: i64,
    /// Timestamp, key, value and headers.
    pub data: RecordData,
}

/// An aborted transaction as a fetch lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted {
    /// Whose records are left out.
    pub producer_id: i64,
    /// From this offset on.
    pub first_offset: i64,
}

/// Committed records, and where to read on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// In the order of their offsets.
    pub records: VecDeque<SeenRecord>,
    /// Offset behind the last whole batch.
    pub next_offset: i64,
}

/// Takes the committed records from `from` on out of the bytes of one fetch, each section a run of batches of which the
/// last may be cut.
///
/// # Errors
/// [`Error::Batch`] when bytes are not what a log holds.
pub fn committed(sections: &[Bytes], aborted: &[Aborted], from: i64) -> Result<Committed, Error> {
    let mut filter = Filter::new(aborted);
    let mut found = Committed { records: VecDeque::new(), next_offset: from };
    for section in sections {
        let mut rest = section.clone();
        loop {
            let entry = next_entry(&rest, rest.len(), BATCH_BYTES_MAX).map_err(|error| at(&found, error))?;
            let Entry::Batch { size_bytes, magic } = entry else { break };
            if magic != Magic::V2 {
                return Err(Error::OldFormat { offset: found.next_offset });
            }
            let batch = rest.split_to(size_bytes);
            take(&batch, &mut filter, from, &mut found).map_err(|error| at(&found, error))?;
        }
    }
    Ok(found)
}

fn at(found: &Committed, source: crate::record::Error) -> Error {
    Error::Batch { offset: found.next_offset, source }
}

fn take(
    batch: &Bytes,
    filter: &mut Filter,
    from: i64,
    found: &mut Committed,
) -> Result<(), crate::record::Error> {
    let opened = OpenBatch::open(batch, BATCH_BYTES_MAX)?;
    if filter.lets_through(&opened)? {
        for record in opened.records() {
            let record = record?;
            let offset = opened.offset(&record);
            if offset >= from {
                let data = RecordData::copied(opened.timestamp(&record), &record);
                found.records.push_back(SeenRecord { offset, data });
            }
        }
    }
    found.next_offset = found.next_offset.max(opened.header.next_offset());
    Ok(())
}

/// Which producers' transactional batches are left out where the reader stands.
struct Filter {
    /// Still ahead, by first offset.
    ahead: VecDeque<Aborted>,
    producers: BTreeSet<i64>,
}

impl Filter {
    fn new(aborted: &[Aborted]) -> Filter {
        let mut ahead = aborted.to_vec();
        ahead.sort_by_key(|aborted| aborted.first_offset);
        Filter { ahead: ahead.into(), producers: BTreeSet::new() }
    }

    fn lets_through(&mut self, batch: &OpenBatch) -> Result<bool, crate::record::Error> {
        let header: &BatchHeader = &batch.header;
        while let Some(next) = self.ahead.front().filter(|next| next.first_offset <= header.last_offset()) {
            self.producers.insert(next.producer_id);
            self.ahead.pop_front();
        }
        if header.attributes.is_control() {
            if is_abort_marker(batch)? {
                self.producers.remove(&header.producer_id);
            }
            return Ok(false);
        }
        Ok(!(header.attributes.is_transactional() && self.producers.contains(&header.producer_id)))
    }
}

fn is_abort_marker(batch: &OpenBatch) -> Result<bool, crate::record::Error> {
    let Some(record) = batch.records().next().transpose()? else { return Ok(false) };
    Ok(record.key.and_then(|key| key.get(2..4)) == Some(&ABORT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::log::{
        FirstBatch, Isolation, LogSettings, Marker, Origin, PartitionLog, TransactionResult, Verification,
    };
    use crate::record::{Attributes, BatchBuilder, BatchOptions, Codec, ProducerIdentity};

    fn batch(values: &[&str], producer_id: i64, base_sequence: i32, transactional: i16) -> Bytes {
        let mut options = BatchOptions::new(Codec::Lz4);
        options.attributes.0 |= transactional;
        if producer_id >= 0 {
            options.identity = ProducerIdentity { producer_id, producer_epoch: 0, base_sequence };
        }
        let mut builder = BatchBuilder::new(options);
        for value in values {
            let data = RecordData { value: Some(Bytes::copy_from_slice(value.as_bytes())), ..data() };
            builder.push(&data).unwrap();
        }
        builder.build().unwrap()
    }

    fn data() -> RecordData {
        RecordData { timestamp: 5, ..RecordData::default() }
    }

    /// Two producers' transactions across each other, one aborted, plain records between, one aborted twice.
    fn log() -> PartitionLog {
        let mut log = PartitionLog::new("t-0", LogSettings::default());
        let transactional = Attributes::TRANSACTIONAL;
        let append = |log: &mut PartitionLog, batch: &Bytes| {
            log.append(1, 0, batch, Origin::Client(Verification::Done)).unwrap();
        };
        let end = |log: &mut PartitionLog, producer_id: i64, result: TransactionResult| {
            let marker = Marker { producer_id, producer_epoch: 0, coordinator_epoch: 0, result };
            log.write_marker(2, 0, &marker).unwrap();
        };
        append(&mut log, &batch(&["a0", "a1"], 7, 0, transactional));
        append(&mut log, &batch(&["b0"], 8, 0, transactional));
        append(&mut log, &batch(&["plain"], -1, 0, 0));
        end(&mut log, 7, TransactionResult::Abort);
        append(&mut log, &batch(&["a2"], 7, 2, transactional));
        end(&mut log, 8, TransactionResult::Commit);
        end(&mut log, 7, TransactionResult::Commit);
        append(&mut log, &batch(&["a3"], 7, 3, transactional));
        end(&mut log, 7, TransactionResult::Abort);
        append(&mut log, &batch(&["last"], -1, 0, 0));
        log
    }

    fn seen(log: &PartitionLog, from: i64, bytes_max: usize) -> (Vec<(i64, String)>, i64) {
        let read = log.read(from, bytes_max, Isolation::ReadCommitted, FirstBatch::Whole).unwrap();
        let aborted = read
            .aborted
            .iter()
            .map(|aborted| Aborted { producer_id: aborted.producer_id, first_offset: aborted.first_offset });
        let found = committed(&read.batches, &aborted.collect::<Vec<_>>(), from).unwrap();
        let text =
            |record: &SeenRecord| String::from_utf8(record.data.value.clone().unwrap().into()).unwrap();
        (found.records.iter().map(|record| (record.offset, text(record))).collect(), found.next_offset)
    }

    #[test]
    fn aborted_records_and_markers_are_left_out() {
        let wanted =
            [(2, "b0"), (3, "plain"), (5, "a2"), (10, "last")].map(|(at, text)| (at, text.to_owned()));
        assert_eq!(seen(&log(), 0, 1 << 20), (wanted.to_vec(), 11));
        assert_eq!(seen(&log(), 3, 1 << 20), (wanted[1..].to_vec(), 11));
    }

    #[test]
    fn small_fetches_give_the_same_records() {
        let log = log();
        let (mut from, mut all) = (0, Vec::new());
        while from < log.log_end_offset() {
            let (records, next) = seen(&log, from, 150);
            assert!(next > from);
            all.extend(records);
            from = next;
        }
        assert_eq!(all, seen(&log, 0, 1 << 20).0);
    }

    #[test]
    fn damage_is_an_error_with_its_offset() {
        let mut bytes = batch(&["x"], -1, 0, 0).to_vec();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let damaged = committed(&[Bytes::from(bytes)], &[], 4).unwrap_err();
        assert!(matches!(damaged, Error::Batch { offset: 4, .. }), "{damaged}");
    }
}

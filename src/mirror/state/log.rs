//! The records of a state topic as a read_committed reader sees them, from the batches of one partition.
//!
//! Pure. A MirrorMaker with exactly-once support writes its offsets within transactions (KIP-618), so those of an aborted
//! transaction must not count. The whole log up to the last stable offset is at hand, with its markers, so they tell:
//! batches of a producer are aborted when that producer's next marker is an abort. Where compaction has removed a marker
//! it has removed the aborted records first.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::record::{BatchHeader, Error, OpenBatch};

/// A batch of state records decompressed; keys and values are small.
const DECOMPRESSED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Calls `each` with timestamp, key and value of every committed record that has a key, in the order of the offsets.
/// Answers how many batches could not be read and were passed over.
pub(in crate::mirror) fn for_each_committed(
    batches: &[Bytes],
    mut each: impl FnMut(i64, Bytes, Option<&[u8]>),
) -> u64 {
    let mut unreadable = 0;
    let mut open = Vec::with_capacity(batches.len());
    for batch in batches {
        match OpenBatch::open(batch, DECOMPRESSED_BYTES_MAX) {
            Ok(batch) => open.push(batch),
            Err(_) => unreadable += 1,
        }
    }
    let aborted = aborted(&open);
    for (batch, aborted) in open.iter().zip(aborted) {
        if aborted || batch.header.attributes.is_control() {
            continue;
        }
        if each_record(batch, &mut each).is_err() {
            unreadable += 1;
        }
    }
    unreadable
}

fn each_record(batch: &OpenBatch, each: &mut impl FnMut(i64, Bytes, Option<&[u8]>)) -> Result<(), Error> {
    for record in batch.records() {
        let record = record?;
        if let Some(key) = record.key {
            each(batch.timestamp(&record), Bytes::copy_from_slice(key), record.value);
        }
    }
    Ok(())
}

/// Which of the batches belong to aborted transactions.
fn aborted(batches: &[OpenBatch]) -> Vec<bool> {
    let mut aborted = vec![false; batches.len()];
    let mut pending: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (index, batch) in batches.iter().enumerate() {
        let BatchHeader { attributes, producer_id, .. } = batch.header;
        if attributes.is_control() {
            let own = pending.remove(&producer_id).unwrap_or_default();
            if is_abort(batch) {
                own.into_iter().for_each(|index| aborted[index] = true);
            }
        } else if attributes.is_transactional() {
            pending.entry(producer_id).or_default().push(index);
        }
    }
    aborted
}

/// The key of a marker is version INT16 and type INT16, 0 for an abort (`ControlRecordType.java`).
fn is_abort(batch: &OpenBatch) -> bool {
    matches!(batch.records().next(), Some(Ok(record)) if matches!(record.key, Some([_, _, 0, 0, ..])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Attributes, BatchBuilder, BatchOptions, Codec, ProducerIdentity, RecordData};

    fn batch(offset: i64, producer_id: i64, attributes: i16, key: &'static [u8], codec: Codec) -> Bytes {
        let identity = ProducerIdentity { producer_id, producer_epoch: 0, base_sequence: -1 };
        let mut options = BatchOptions { base_offset: offset, identity, ..BatchOptions::new(codec) };
        options.attributes.0 |= attributes;
        let mut builder = BatchBuilder::new(options);
        let record = RecordData {
            timestamp: 100 + offset,
            key: Some(Bytes::from_static(key)),
            value: Some(Bytes::from_static(b"v")),
            headers: Vec::new(),
        };
        builder.push(&record).unwrap();
        builder.build().unwrap()
    }

    fn data(offset: i64, producer_id: i64, key: &'static [u8]) -> Bytes {
        let transactional = if producer_id < 0 { 0 } else { Attributes::TRANSACTIONAL };
        batch(offset, producer_id, transactional, key, Codec::Zstd)
    }

    fn marker(offset: i64, producer_id: i64, key: &'static [u8]) -> Bytes {
        batch(offset, producer_id, Attributes::TRANSACTIONAL | Attributes::CONTROL, key, Codec::None)
    }

    const ABORT: &[u8] = &[0, 0, 0, 0];
    const COMMIT: &[u8] = &[0, 0, 0, 1];

    #[test]
    fn aborted_records_and_markers_are_not_seen() {
        let mut damaged = data(9, -1, b"damaged").to_vec();
        damaged[30] ^= 1;
        let log = [
            data(0, -1, b"plain"),
            data(1, 7, b"committed"),
            data(2, 8, b"aborted"),
            data(3, 7, b"committed too"),
            marker(4, 8, ABORT),
            marker(5, 7, COMMIT),
            data(6, 8, b"after the abort"),
            marker(7, 8, COMMIT),
            data(8, 9, b"its marker is compacted away"),
            Bytes::from(damaged),
        ];
        let mut seen = Vec::new();
        let unreadable = for_each_committed(&log, |timestamp, key, value| {
            assert_eq!(value, Some(&b"v"[..]));
            seen.push((timestamp, String::from_utf8(key.to_vec()).unwrap()));
        });
        let expected = [
            (100, "plain"),
            (101, "committed"),
            (103, "committed too"),
            (106, "after the abort"),
            (108, "its marker is compacted away"),
        ];
        assert_eq!(seen, expected.map(|(timestamp, key)| (timestamp, key.to_owned())));
        assert_eq!(unreadable, 1);
    }
}

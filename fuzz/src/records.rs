//! Record batches: whatever can be opened can be patched, rewritten, merged and appended, and stays what it was.

use bytes::Bytes;
use kmirror::broker::log::{FirstBatch, Isolation, LogSettings, Origin, PartitionLog, Verification};
use kmirror::record::{
    BatchHeader, Entry, HEADER_BYTES, Magic, OpenBatch, Piece, ProducerIdentity, RecordData, RewriteSettings,
    can_merge, convert, crc32c, merge, merge_compressed, next_entry, patch, rewrite, verify_crc,
};

const BATCH_BYTES_MAX: usize = 1 << 20;
const DECOMPRESSED_BYTES_MAX: usize = 1 << 20;
const IDENTITY: ProducerIdentity = ProducerIdentity { producer_id: 7, producer_epoch: 1, base_sequence: 9 };

/// The records section of a Fetch response. Checksums are made right first: a fuzzer would not find them.
pub fn record_entries(data: &[u8]) {
    let section = with_checksums(data);
    let mut rest = section.clone();
    let mut opened: Vec<Bytes> = Vec::new();
    while let Ok(Entry::Batch { size_bytes, magic }) = next_entry(&rest, rest.len(), BATCH_BYTES_MAX) {
        assert!(size_bytes > 0 && size_bytes <= rest.len());
        let entry = rest.split_to(size_bytes);
        match magic {
            Magic::V2 => opened.extend(check_batch(&entry)),
            Magic::V0 | Magic::V1 => {
                if let Ok(pieces) = convert(&entry, &settings(BATCH_BYTES_MAX)) {
                    check_pieces(&pieces);
                }
            }
        }
    }
    for pair in opened.windows(2) {
        check_merge(pair);
    }
}

/// A Produce of arbitrary bytes to the embedded broker: refused, or readable as it was sent.
pub fn broker_append(data: &[u8]) {
    let batch = with_checksums(data);
    let mut log = PartitionLog::new("fuzz-0", LogSettings::default());
    let appended = log.append(1_000, 0, &batch, Origin::Client(Verification::Done));
    let read = log.read(0, usize::MAX, Isolation::ReadUncommitted, FirstBatch::Whole);
    let read = read.expect("offset 0 is in the log");
    assert_eq!(read.batches.len(), usize::from(appended.is_ok()));
    for batch in &read.batches {
        verify_crc(batch).expect("a broker stores batches whole");
    }
    log.compact(2_000);
}

fn settings(batch_bytes_max: usize) -> RewriteSettings {
    RewriteSettings {
        start_offset: i64::MIN,
        end_offset: i64::MAX,
        target_codec: None,
        batch_bytes_max,
        decompressed_bytes_max: DECOMPRESSED_BYTES_MAX,
    }
}

fn with_checksums(data: &[u8]) -> Bytes {
    let mut bytes = data.to_vec();
    let mut at = 0;
    while let Ok(Entry::Batch { size_bytes, magic }) =
        next_entry(&bytes[at..], bytes.len() - at, BATCH_BYTES_MAX)
    {
        if magic == Magic::V2 {
            let crc = crc32c(&bytes[at + 21..at + size_bytes]);
            bytes[at + 17..at + 21].copy_from_slice(&crc.to_be_bytes());
        }
        at += size_bytes;
    }
    Bytes::from(bytes)
}

/// Gives the batch when all of it can be read.
fn check_batch(batch: &Bytes) -> Option<Bytes> {
    let header = BatchHeader::parse(batch).ok()?;
    if let Ok(patched) = patch(batch, batch.len(), IDENTITY) {
        verify_crc(&[&patched[..], &batch[HEADER_BYTES..]].concat())
            .expect("the linear checksum is the full one");
    }
    let records = records(batch)?;
    for batch_bytes_max in [200, BATCH_BYTES_MAX] {
        let Ok(pieces) = rewrite(batch, &settings(batch_bytes_max)) else { continue };
        let rewritten = check_pieces(&pieces);
        let oversized = pieces.iter().filter(|piece| matches!(piece, Piece::Oversize { .. })).count();
        if !header.attributes.is_control() {
            assert_eq!(rewritten.len() + oversized, records.len());
            let mut left = records.iter();
            assert!(rewritten.iter().all(|record| left.any(|other| other == record)), "order and content");
        }
    }
    Some(batch.clone())
}

fn records(batch: &Bytes) -> Option<Vec<RecordData>> {
    let open = OpenBatch::open(batch, DECOMPRESSED_BYTES_MAX).ok()?;
    let read: Result<Vec<_>, _> = open.records().collect();
    Some(read.ok()?.iter().map(|record| RecordData::copied(open.timestamp(record), record)).collect())
}

/// New batches are dense, whole, and at most what they say.
fn check_pieces(pieces: &[Piece]) -> Vec<RecordData> {
    let mut all = Vec::new();
    for piece in pieces {
        let Piece::Batch(rewritten) = piece else { continue };
        let header = BatchHeader::parse(&rewritten.batch).expect("a batch of ours");
        assert!(header.is_dense());
        assert_eq!((header.base_offset, header.record_count), (0, rewritten.record_count));
        assert_eq!(
            rewritten.segments.iter().map(|segment| segment.record_count).sum::<i32>(),
            header.record_count
        );
        let found = records(&rewritten.batch).expect("a batch of ours");
        assert_eq!(found.len(), rewritten.record_count as usize);
        all.extend(found);
    }
    all
}

fn check_merge(pair: &[Bytes]) {
    let [Ok(first), Ok(second)] = [&pair[0], &pair[1]].map(|batch| BatchHeader::parse(batch)) else { return };
    if !can_merge(&first, &second) {
        return;
    }
    let wanted: Vec<RecordData> = pair.iter().flat_map(|batch| records(batch).unwrap_or_default()).collect();
    for merged in [merge(pair), merge_compressed(pair, DECOMPRESSED_BYTES_MAX)].into_iter().flatten() {
        assert_eq!(records(&merged.batch).expect("a batch of ours"), wanted);
    }
}

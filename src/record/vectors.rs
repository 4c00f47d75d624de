//! Batches and message sets that Kafka's own Java library wrote, read by ours. `vectors/Vectors.java` says how they
//! were made.

use bytes::Bytes;

use super::testing::KEEP;
use super::testing::{open, records_of};
use super::{Entry, HEADER_BYTES, Magic, Piece, RecordData, convert, decompress, next_entry, rewrite};

struct Vector {
    name: &'static str,
    magic: Magic,
    codec: &'static str,
    timestamp_type: &'static str,
    bytes: Bytes,
}

fn vectors() -> Vec<Vector> {
    let lines = include_str!("vectors/vectors.txt").lines();
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let [magic, codec, timestamp_type, hex] = fields[..] else { panic!("four fields") };
            let bytes: Vec<u8> = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect();
            let magic = match magic {
                "v0" => Magic::V0,
                "v1" => Magic::V1,
                _ => Magic::V2,
            };
            Vector { name: &line[..30.min(line.len())], magic, codec, timestamp_type, bytes: bytes.into() }
        })
        .collect()
}

/// The records and upstream offsets that `Vectors.java` appends.
fn expected(vector: &Vector) -> Vec<(i64, RecordData)> {
    let some = |bytes: &'static [u8]| Some(Bytes::from_static(bytes));
    let headers = vec![
        (Bytes::from_static(b"h"), None),
        (Bytes::from_static(b"h"), some(b"x")),
        (Bytes::new(), some(b"")),
        // Java writes what is not UTF-8 as U+FFFD.
        (Bytes::from_static(b"\xef\xbf\xbd("), some(b"y")),
    ];
    let headers = if vector.magic == Magic::V2 { headers } else { Vec::new() };
    let large: Vec<u8> = (0..70_000).map(|at| (at / 1000) as u8).collect();
    let record = |timestamp, key, value| RecordData { timestamp, key, value, headers: Vec::new() };
    let mut records = vec![
        (100, record(1_700_000_000_000, some(b"key-0"), some(b"value-0"))),
        (101, RecordData { headers, ..record(0, None, some(b"")) }),
        (103, record(1_700_000_000_001, some(b""), None)),
    ];
    if vector.codec != "none" {
        records.push((104, record(5, some(b"large"), Some(large.into()))));
    }
    for (_, record) in &mut records {
        record.timestamp = match (vector.magic, vector.timestamp_type) {
            (Magic::V0, _) => -1,
            (_, "LogAppendTime") => 9_999,
            _ => record.timestamp,
        };
    }
    records
}

fn entries(vector: &Vector) -> Vec<Bytes> {
    let mut rest = vector.bytes.clone();
    let mut entries = Vec::new();
    loop {
        match next_entry(&rest, rest.len(), 1 << 20).unwrap() {
            Entry::Batch { size_bytes, magic } => {
                assert_eq!(magic, vector.magic);
                entries.push(rest.split_to(size_bytes));
            }
            Entry::End => return entries,
            other => panic!("{other:?}"),
        }
    }
}

fn records_and_offsets(pieces: Vec<Piece>) -> Vec<(i64, RecordData)> {
    let mut seen = Vec::new();
    for piece in pieces {
        let Piece::Batch(batch) = piece else { panic!("{piece:?}") };
        let offsets = batch.segments.iter().flat_map(|s| (s.upstream_offset..).take(s.record_count as usize));
        seen.extend(offsets.zip(records_of(&open(&batch.batch))));
    }
    seen
}

/// Case 15: old formats in a long-lived topic, each codec, both timestamp types.
#[test]
fn javas_batches_and_message_sets_are_read() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 22);
    for vector in &vectors {
        let mut seen = Vec::new();
        for entry in entries(vector) {
            let pieces = match vector.magic {
                Magic::V2 => rewrite(&entry, &KEEP),
                _ => convert(&entry, &KEEP),
            };
            let pieces = pieces.unwrap_or_else(|error| panic!("{}: {error}", vector.name));
            for piece in &pieces {
                let Piece::Batch(batch) = piece else { panic!("{piece:?}") };
                assert_eq!(open(&batch.batch).header.attributes.codec().unwrap().name(), vector.codec);
            }
            seen.extend(records_and_offsets(pieces));
        }
        assert!(seen == expected(vector), "{}", vector.name);
    }
}

/// Uncompressed, our batch has the very bytes of Java's: the encodings are the same, not just readable.
#[test]
fn our_records_have_javas_bytes() {
    for vector in vectors().iter().filter(|vector| vector.magic == Magic::V2) {
        let theirs = open(&vector.bytes);
        let mut options = super::BatchOptions::new(theirs.header.attributes.codec().unwrap());
        options.base_offset = theirs.header.base_offset;
        options.attributes = theirs.header.attributes;
        options.max_timestamp = Some(theirs.header.max_timestamp);
        let mut builder = super::BatchBuilder::new(options);
        for record in theirs.records() {
            let record = record.unwrap();
            let timestamp = theirs.header.base_timestamp + record.timestamp_delta;
            builder.push_at(record.offset_delta, &RecordData::copied(timestamp, &record)).unwrap();
        }
        let ours = builder.build().unwrap();
        assert!(open(&ours).records == theirs.records, "{}", vector.name);
        if vector.codec == "none" {
            assert!(ours == vector.bytes, "{}", vector.name);
        } else {
            let codec = theirs.header.attributes.codec().unwrap();
            let bytes = decompress(codec, &ours.slice(HEADER_BYTES..), 1 << 20).unwrap();
            assert!(bytes == theirs.records, "{}", vector.name);
        }
    }
}

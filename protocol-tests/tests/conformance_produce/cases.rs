//! The table: batches and what a broker answers. Seen at Apache Kafka 4.3.1 and 3.9.1.

use bytes::Bytes;
use kmirror::record::Codec;

use crate::batches::Batch;

/// One expected answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Stored, or known as a duplicate, at this offset.
    At(i64),
    /// Refused with this error code.
    Code(i16),
    /// Refused with this error code because of these records.
    Records(i16, Vec<i32>),
}

use Expected::{At, Code, Records};

/// How the stored bytes of both sides are compared afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Byte by byte.
    Equal,
    /// Not at all: times of append or other compressors differ.
    Free,
}

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A broker, and the log alone.
    All,
    /// A broker only: it answers before it looks at the log.
    Broker,
}

/// Batches that go into one fresh topic, one after the other.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) scope: Scope,
    pub(crate) configs: &'static [(&'static str, &'static str)],
    pub(crate) steps: Vec<(Bytes, Expected)>,
    pub(crate) stored: Stored,
}

const INVALID_RECORD: i16 = 87;
const CORRUPT: i16 = 2;
const TOO_LARGE: i16 = 10;
const LIST_TOO_LARGE: i16 = 18;
const INVALID_TIMESTAMP: i16 = 32;
const OUT_OF_ORDER: i16 = 45;
const INVALID_EPOCH: i16 = 47;
const TRANSACTIONAL_ID_AUTHORIZATION_FAILED: i16 = 53;
const UNKNOWN: i16 = -1;

const COMPRESSED: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

/// All cases; `now_ms` is the time by which timestamps are judged.
pub(crate) fn all(now_ms: i64) -> Vec<Case> {
    [
        frames(now_ms),
        headers(now_ms),
        records(now_ms),
        codecs(now_ms),
        timestamps(now_ms),
        configs(now_ms),
        sequences(now_ms),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn case(name: &'static str, steps: Vec<(Bytes, Expected)>) -> Case {
    Case { name, scope: Scope::All, configs: &[], steps, stored: Stored::Equal }
}

fn one(name: &'static str, bytes: Bytes, expected: Expected) -> Case {
    case(name, vec![(bytes, expected)])
}

fn followed(batch: &Batch, tail: &[u8]) -> Bytes {
    Bytes::from([&batch.bytes()[..], tail].concat())
}

fn frames(now_ms: i64) -> Vec<Case> {
    let batch = Batch::of(3, now_ms);
    let bytes = batch.bytes();
    let size = bytes.len();
    let length = |length: i32| batch.bytes_with(8, &length.to_be_bytes());
    vec![
        one("a plain batch", bytes.clone(), At(0)),
        case("two plain batches", vec![(bytes.clone(), At(0)), (bytes.clone(), At(3))]),
        one("no bytes", Bytes::new(), Code(INVALID_RECORD)),
        one("one byte behind", followed(&batch, &[0]), At(0)),
        one("eleven bytes behind", followed(&batch, &[0; 11]), At(0)),
        one("twelve zeros behind", followed(&batch, &[0; 12]), Code(CORRUPT)),
        one("forty zeros behind", followed(&batch, &[0; 40]), Code(CORRUPT)),
        one("forty ones behind", followed(&batch, &[255; 40]), Code(CORRUPT)),
        one("a second batch behind", followed(&batch, &bytes), Code(INVALID_RECORD)),
        one("half a second batch behind", followed(&batch, &bytes[..size / 2]), At(0)),
        one("eight bytes", bytes.slice(..8), Code(INVALID_RECORD)),
        one("sixteen bytes", bytes.slice(..16), Code(INVALID_RECORD)),
        one("seventeen bytes", bytes.slice(..17), Code(INVALID_RECORD)),
        one("sixty bytes", bytes.slice(..60), Code(INVALID_RECORD)),
        one("a byte short", bytes.slice(..size - 1), Code(INVALID_RECORD)),
        one("length 13", length(13), Code(CORRUPT)),
        one("length 14", length(14), Code(CORRUPT)),
        one("length 48", length(48), Code(CORRUPT)),
        one("length 49", length(49), Code(CORRUPT)),
        one("length a byte less", length(size as i32 - 13), Code(CORRUPT)),
        one("length a byte more", length(size as i32 - 11), Code(INVALID_RECORD)),
        one("length negative", length(-1), Code(CORRUPT)),
        one("length huge", length(i32::MAX), Code(UNKNOWN)),
        one("magic 0", batch.bytes_with(16, &[0]), Code(INVALID_RECORD)),
        one("magic 1", batch.bytes_with(16, &[1]), Code(INVALID_RECORD)),
        one("magic 3", batch.bytes_with(16, &[3]), Code(CORRUPT)),
        one("magic -1", batch.bytes_with(16, &[255]), Code(CORRUPT)),
        one(
            "header alone",
            Batch::of(0, now_ms).with(|batch| batch.last_offset_delta = Some(0)).bytes(),
            Code(INVALID_RECORD),
        ),
        one("wrong checksum", batch.bytes_with(17, &[1, 2, 3, 4]), Code(CORRUPT)),
        one("damaged body", batch.bytes_with(size - 1, &[9]), Code(CORRUPT)),
    ]
}

fn headers(now_ms: i64) -> Vec<Case> {
    let with = |change: fn(&mut Batch)| Batch::of(3, now_ms).with(change).bytes();
    vec![
        one("base offset 5", with(|b| b.base_offset = 5), Code(INVALID_RECORD)),
        one("base offset -1", with(|b| b.base_offset = -1), Code(INVALID_RECORD)),
        one("leader epoch 77", with(|b| b.leader_epoch = 77), At(0)),
        one("count 0", with(|b| b.record_count = Some(0)), Code(INVALID_RECORD)),
        one("count -1", with(|b| b.record_count = Some(-1)), Code(INVALID_RECORD)),
        one("holes by the header", with(|b| b.last_offset_delta = Some(9)), Code(INVALID_RECORD)),
        one("last offset delta -1", with(|b| b.last_offset_delta = Some(-1)), Code(INVALID_RECORD)),
        one("last offset delta -2", with(|b| b.last_offset_delta = Some(-2)), Code(INVALID_RECORD)),
        one(
            "one record more by the header",
            with(|b| (b.record_count, b.last_offset_delta) = (Some(4), Some(3))),
            Code(INVALID_RECORD),
        ),
        one(
            "one record less by the header",
            with(|b| (b.record_count, b.last_offset_delta) = (Some(2), Some(1))),
            Code(INVALID_RECORD),
        ),
        one(
            "a huge count",
            with(|b| (b.record_count, b.last_offset_delta) = (Some(i32::MAX), Some(i32::MAX - 1))),
            Code(INVALID_RECORD),
        ),
        one("control bit", with(|b| b.attributes = 0x20), Code(INVALID_RECORD)),
        Case {
            scope: Scope::Broker,
            ..one(
                "transactional bit without a producer",
                with(|b| b.attributes = 0x10),
                Code(TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            )
        },
        one("append time bit", with(|b| b.attributes = 0x08), At(0)),
        one("delete horizon bit", with(|b| b.attributes = 0x40), At(0)),
        one("attribute bit 0x80", with(|b| b.attributes = 0x80), At(0)),
        one("attribute bit 0x4000", with(|b| b.attributes = 0x4000), At(0)),
        one("codec 5", with(|b| b.attributes = 5), Code(UNKNOWN)),
        one("codec 7", with(|b| b.attributes = 7), Code(UNKNOWN)),
        one(
            "codec 5 and a hole",
            with(|b| (b.attributes, b.last_offset_delta) = (5, Some(9))),
            Code(UNKNOWN),
        ),
        one("max timestamp too high", with(|b| b.max_timestamp = Some(b.base_timestamp + 999)), At(0)),
        one("max timestamp too low", with(|b| b.max_timestamp = Some(1)), At(0)),
        one(
            "max timestamp wrong and attribute bit 0x80",
            with(|b| (b.max_timestamp, b.attributes) = (Some(1), 0x80)),
            At(0),
        ),
        one("producer without sequence", with(|b| b.identity = (70_001, 0, -1)), Code(INVALID_RECORD)),
        one("producer without epoch", with(|b| b.identity = (70_002, -1, 0)), At(0)),
        one("producer id -2", with(|b| b.identity = (-2, 0, 0)), At(0)),
        one("sequence without a producer", with(|b| b.identity = (-1, 3, 9)), At(0)),
    ]
}

fn records(now_ms: i64) -> Vec<Case> {
    let with = |change: fn(&mut Batch)| Batch::of(3, now_ms).with(change).bytes();
    vec![
        one(
            "offset deltas 0 5 9",
            with(|b| (b.records[1].offset_delta, b.records[2].offset_delta) = (5, 9)),
            At(0),
        ),
        one("offset deltas fall", with(|b| b.records[2].offset_delta = 0), At(0)),
        one("a negative offset delta", with(|b| b.records[0].offset_delta = -4), At(0)),
        one("record attributes", with(|b| b.records[1].attributes = 1), At(0)),
        one("null key and value", with(|b| (b.records[1].key, b.records[1].value) = (None, None)), At(0)),
        one(
            "a null of length -2",
            with(|b| (b.records[1].key, b.records[1].null_length) = (None, -2)),
            At(0),
        ),
        one("negative header count", with(|b| b.records[1].headers = vec![1]), Code(INVALID_RECORD)),
        one("more headers than bytes", with(|b| b.records[1].headers = vec![20]), Code(INVALID_RECORD)),
        one("a header", with(|b| b.records[1].headers = vec![2, 2, b'h', 1]), At(0)),
        one("a header with a null key", with(|b| b.records[1].headers = vec![2, 1, 1]), Code(INVALID_RECORD)),
        one("a header key that is no text", with(|b| b.records[1].headers = vec![2, 2, 0xff, 2, 0]), At(0)),
        one("a header value of length -2", with(|b| b.records[1].headers = vec![2, 2, b'h', 3]), At(0)),
        one("a byte behind the headers", with(|b| b.records[1].headers = vec![0, 0]), Code(INVALID_RECORD)),
        one("a length one more", with(|b| b.records[1].length_lie = 1), Code(INVALID_RECORD)),
        one("a length one less", with(|b| b.records[1].length_lie = -1), Code(INVALID_RECORD)),
        one("the last length one more", with(|b| b.records[2].length_lie = 1), Code(INVALID_RECORD)),
        one("a length negative", with(|b| b.records[1].length_lie = -500), Code(INVALID_RECORD)),
        one("a length huge", with(|b| b.records[1].length_lie = 1 << 30), Code(INVALID_RECORD)),
        one("a byte behind the records", with(|b| b.record_trailer = vec![0]), Code(INVALID_RECORD)),
        one("no records section", with(|b| b.section = Some(Vec::new())), Code(INVALID_RECORD)),
        one("endless number", with(|b| b.section = Some(vec![0xff; 30])), Code(UNKNOWN)),
    ]
}

fn codecs(now_ms: i64) -> Vec<Case> {
    let mut cases = Vec::new();
    for codec in COMPRESSED {
        let with = |change: fn(&mut Batch)| {
            let mut batch = Batch::of(3, now_ms).with(change);
            batch.codec = codec;
            batch.bytes()
        };
        let name = |what: &'static str| -> &'static str {
            Box::leak(format!("{}: {what}", codec.name()).into_boxed_str())
        };
        cases.extend([
            one(name("a plain batch"), with(|_| {}), At(0)),
            one(
                name("offset deltas 0 5 9"),
                with(|b| (b.records[1].offset_delta, b.records[2].offset_delta) = (5, 9)),
                Code(UNKNOWN),
            ),
            one(
                name("a byte behind the records"),
                with(|b| b.record_trailer = vec![0]),
                Code(INVALID_RECORD),
            ),
            one(
                name("one record more"),
                with(|b| (b.record_count, b.last_offset_delta) = (Some(4), Some(3))),
                Code(INVALID_RECORD),
            ),
            one(
                name("one record less"),
                with(|b| (b.record_count, b.last_offset_delta) = (Some(2), Some(1))),
                Code(INVALID_RECORD),
            ),
            one(name("garbage"), with(|b| b.section = Some(vec![0x5a; 40])), Code(UNKNOWN)),
            one(
                name("nothing compressed"),
                with(|b| b.section = Some(Vec::new())),
                Code(if codec == Codec::Zstd { INVALID_RECORD } else { UNKNOWN }),
            ),
            one(name("max timestamp too low"), with(|b| b.max_timestamp = Some(1)), At(0)),
            one(
                name("a null of length -2"),
                with(|b| (b.records[1].key, b.records[1].null_length) = (None, -2)),
                At(0),
            ),
            one(
                name("negative header count"),
                with(|b| b.records[1].headers = vec![1]),
                Code(INVALID_RECORD),
            ),
            one(
                name("a header with a null key"),
                with(|b| b.records[1].headers = vec![2, 1, 1]),
                Code(INVALID_RECORD),
            ),
            one(
                name("a byte behind the headers"),
                with(|b| b.records[1].headers = vec![0, 0]),
                Code(INVALID_RECORD),
            ),
            one(name("a length one more"), with(|b| b.records[1].length_lie = 1), At(0)),
            one(name("a length negative"), with(|b| b.records[1].length_lie = -500), At(0)),
            one(name("the last length one more"), with(|b| b.records[2].length_lie = 1), At(0)),
        ]);
        let mut cut = with(|_| {}).to_vec();
        cut.truncate(cut.len() - 3);
        let length = cut.len() as i32 - 12;
        cut[8..12].copy_from_slice(&length.to_be_bytes());
        let crc = kmirror::record::crc32c(&cut[21..]);
        cut[17..21].copy_from_slice(&crc.to_be_bytes());
        cases.push(one(name("cut"), Bytes::from(cut), Code(UNKNOWN)));
    }
    cases
}

fn timestamps(now_ms: i64) -> Vec<Case> {
    let at = |timestamp: i64| Batch::of(1, timestamp).bytes();
    const HOUR_MS: i64 = 3_600_000;
    let late = Batch::of(3, now_ms).with(|b| b.records[1].timestamp_delta = 2 * HOUR_MS);
    let mut cases = vec![
        one("two hours ahead", at(now_ms + 2 * HOUR_MS), Records(INVALID_TIMESTAMP, vec![0])),
        one("one record two hours ahead", late.bytes(), Records(INVALID_TIMESTAMP, vec![1])),
        one("half an hour ahead", at(now_ms + HOUR_MS / 2), At(0)),
        one("ten years old", at(now_ms - 87_600 * HOUR_MS), At(0)),
        one("timestamp 0", at(0), At(0)),
        one("timestamp -1", at(-1), At(0)),
        one("timestamp -2", at(-2), At(0)),
        one("timestamp least", at(i64::MIN), Records(INVALID_TIMESTAMP, vec![0])),
        one("timestamp greatest", at(i64::MAX), Records(INVALID_TIMESTAMP, vec![0])),
        one(
            "append time bit, far ahead",
            Batch::of(2, now_ms)
                .with(|b| (b.attributes, b.max_timestamp) = (8, Some(now_ms + 2 * HOUR_MS)))
                .bytes(),
            Records(INVALID_TIMESTAMP, vec![0, 1]),
        ),
    ];
    let before: &[(&str, &str)] = &[("message.timestamp.before.max.ms", "60000")];
    let mixed = Batch::of(2, now_ms).with(|b| b.records[1].timestamp_delta = -2 * HOUR_MS);
    cases.push(Case {
        name: "older than message.timestamp.before.max.ms",
        scope: Scope::All,
        configs: before,
        steps: vec![
            (mixed.bytes(), Records(INVALID_TIMESTAMP, vec![1])),
            (at(-1), At(0)),
            (at(0), Records(INVALID_TIMESTAMP, vec![0])),
        ],
        stored: Stored::Equal,
    });
    cases.push(Case {
        name: "topic with LogAppendTime",
        scope: Scope::All,
        configs: &[("message.timestamp.type", "LogAppendTime")],
        steps: vec![
            (at(now_ms), At(0)),
            (at(now_ms + 2 * HOUR_MS), At(1)),
            (Batch::of(2, now_ms).with(|b| b.attributes = 8).bytes(), Records(INVALID_TIMESTAMP, vec![0, 1])),
            (Batch::of(2, now_ms).with(|b| b.codec = Codec::Gzip).bytes(), At(2)),
            (Batch::of(2, now_ms).by(71_000, 0, 0).bytes(), At(4)),
            (Batch::of(2, now_ms).by(71_000, 0, 0).bytes(), At(4)),
        ],
        stored: Stored::Free,
    });
    cases
}

fn configs(now_ms: i64) -> Vec<Case> {
    let keyless =
        |change: fn(&mut Batch)| Batch::of(3, now_ms).with(|b| b.records[1].key = None).with(change).bytes();
    let plain = |codec| Batch::of(3, now_ms).with(|b| b.codec = codec).bytes();
    let large = |bytes: usize| {
        let overhead =
            Batch::of(1, now_ms).with(|b| b.records[0].value = Some(vec![7; 100_000])).bytes().len()
                - 100_000;
        Batch::of(1, now_ms).with(|b| b.records[0].value = Some(vec![7; bytes - overhead])).bytes()
    };
    assert_eq!(large(200_000).len(), 200_000);
    vec![
        Case {
            name: "compacted topic",
            scope: Scope::All,
            configs: &[("cleanup.policy", "compact")],
            steps: vec![
                (keyless(|_| {}), Records(INVALID_RECORD, vec![1])),
                (keyless(|b| b.codec = Codec::Zstd), Records(INVALID_RECORD, vec![1])),
                (keyless(|b| b.records[2].key = None), Records(INVALID_RECORD, vec![1, 2])),
                (
                    keyless(|b| b.records[2].timestamp_delta = 7_200_000),
                    Records(INVALID_TIMESTAMP, vec![1, 2]),
                ),
                (keyless(|b| b.records[1].timestamp_delta = 7_200_000), Records(INVALID_RECORD, vec![1])),
                (keyless(|b| b.records[1].key = Some(Vec::new())), At(0)),
            ],
            stored: Stored::Equal,
        },
        Case {
            name: "max.message.bytes",
            scope: Scope::All,
            configs: &[("max.message.bytes", "200000")],
            steps: vec![
                (large(200_000), At(0)),
                (large(200_001), Code(TOO_LARGE)),
                (
                    Batch::of(1, now_ms)
                        .with(|b| (b.codec, b.records[0].value) = (Codec::Gzip, Some(vec![7; 400_000])))
                        .bytes(),
                    At(1),
                ),
            ],
            stored: Stored::Equal,
        },
        Case {
            name: "default max.message.bytes",
            scope: Scope::All,
            configs: &[],
            steps: vec![(large(1_048_588), At(0)), (large(1_048_589), Code(TOO_LARGE))],
            stored: Stored::Equal,
        },
        Case {
            name: "segment.bytes",
            scope: Scope::All,
            configs: &[("segment.bytes", "1048576"), ("max.message.bytes", "3000000")],
            steps: vec![
                (large(1_048_576), At(0)),
                (large(1_048_577), Code(LIST_TOO_LARGE)),
                (plain(Codec::None), At(1)),
            ],
            stored: Stored::Free,
        },
        Case {
            name: "size before checksum, base offset before size",
            scope: Scope::All,
            configs: &[("max.message.bytes", "100")],
            steps: vec![
                (Batch::of(9, now_ms).bytes_with(17, &[0; 4]), Code(TOO_LARGE)),
                (
                    Batch::of(9, now_ms).with(|b| b.base_offset = 1).bytes_with(17, &[0; 4]),
                    Code(INVALID_RECORD),
                ),
                (
                    Batch::of(1, now_ms).with(|b| b.record_count = Some(0)).bytes_with(17, &[0; 4]),
                    Code(CORRUPT),
                ),
            ],
            stored: Stored::Equal,
        },
        Case {
            name: "compression.type gzip",
            scope: Scope::All,
            configs: &[("compression.type", "gzip")],
            steps: vec![
                (plain(Codec::None), At(0)),
                (plain(Codec::Gzip), At(3)),
                (plain(Codec::Zstd), At(6)),
                (Batch::of(3, now_ms).with(|b| b.records[1].offset_delta = 7).bytes(), At(9)),
                (
                    Batch::of(3, now_ms)
                        .with(|b| (b.codec, b.records[1].offset_delta) = (Codec::Lz4, 7))
                        .bytes(),
                    At(12),
                ),
                (
                    Batch::of(3, now_ms)
                        .with(|b| (b.codec, b.records[1].offset_delta) = (Codec::Gzip, 7))
                        .bytes(),
                    Code(UNKNOWN),
                ),
            ],
            stored: Stored::Free,
        },
        Case {
            name: "compression.type uncompressed",
            scope: Scope::All,
            configs: &[("compression.type", "uncompressed")],
            steps: vec![
                (plain(Codec::None), At(0)),
                (plain(Codec::Gzip), At(3)),
                (Batch::of(3, now_ms).by(72_000, 3, 8).with(|b| b.codec = Codec::Zstd).bytes(), At(6)),
                (Batch::of(3, now_ms).by(72_000, 3, 8).with(|b| b.codec = Codec::Zstd).bytes(), At(6)),
                (
                    Batch::of(3, now_ms)
                        .with(|b| {
                            (b.codec, b.records[1].offset_delta, b.records[1].attributes) =
                                (Codec::Gzip, 7, 1)
                        })
                        .bytes(),
                    At(9),
                ),
                (
                    Batch::of(3, now_ms)
                        .with(|b| (b.codec, b.attributes, b.max_timestamp) = (Codec::Gzip, 0xc8, Some(5)))
                        .bytes(),
                    At(12),
                ),
            ],
            stored: Stored::Equal,
        },
    ]
}

fn sequences(now_ms: i64) -> Vec<Case> {
    let of = |count: i32, identity: (i64, i16, i32)| {
        Batch::of(count, now_ms).by(identity.0, identity.1, identity.2)
    };
    let seq = |id: i64, count: i32, first: i32| of(count, (id, 0, first)).bytes();
    let other = |id: i64, first: i32| {
        of(2, (id, 0, first)).with(|b| b.records[0].value = Some(b"other".to_vec())).bytes()
    };
    let mut five: Vec<(Bytes, Expected)> =
        (0..6).map(|n| (seq(80_001, 2, 2 * n), At(i64::from(2 * n)))).collect();
    five.extend((1..6).map(|n| (seq(80_001, 2, 2 * n), At(i64::from(2 * n)))));
    five.extend([
        (seq(80_001, 2, 0), Code(OUT_OF_ORDER)),
        (other(80_001, 10), At(10)),
        (seq(80_001, 1, 10), Code(OUT_OF_ORDER)),
        (seq(80_001, 3, 10), Code(OUT_OF_ORDER)),
        (seq(80_001, 2, 11), Code(OUT_OF_ORDER)),
        (seq(80_001, 2, 13), Code(OUT_OF_ORDER)),
        (seq(80_001, 4, 8), Code(OUT_OF_ORDER)),
        (seq(80_001, 2, 12), At(12)),
    ]);
    let max = i32::MAX;
    vec![
        case("the last five batches are remembered", five),
        case(
            "any first sequence",
            vec![(seq(80_002, 2, 4711), At(0)), (seq(80_002, 2, 4711), At(0)), (seq(80_002, 2, 4713), At(2))],
        ),
        case(
            "the sequence wraps between batches",
            vec![
                (seq(80_003, 1, max), At(0)),
                (seq(80_003, 1, 1), Code(OUT_OF_ORDER)),
                (seq(80_003, 2, 0), At(1)),
                (seq(80_003, 1, max), At(0)),
            ],
        ),
        case(
            "the sequence wraps inside a batch",
            vec![
                (seq(80_004, 4, max - 1), At(0)),
                (seq(80_004, 4, max - 1), At(0)),
                (seq(80_004, 2, 0), Code(OUT_OF_ORDER)),
                (seq(80_004, 2, 2), At(4)),
            ],
        ),
        case(
            "epochs",
            vec![
                (of(1, (80_005, 3, 55)).bytes(), At(0)),
                (of(1, (80_005, 2, 56)).bytes(), Code(INVALID_EPOCH)),
                (of(1, (80_005, 4, 56)).bytes(), Code(OUT_OF_ORDER)),
                (of(1, (80_005, 4, 0)).bytes(), At(1)),
                (of(1, (80_005, 3, 55)).bytes(), Code(INVALID_EPOCH)),
                (of(1, (80_005, 4, 0)).bytes(), At(1)),
                (of(1, (80_005, 4, 1)).bytes(), At(2)),
                (of(1, (80_005, max as i16, 0)).bytes(), Code(INVALID_EPOCH)),
                (of(1, (80_005, i16::MAX, 0)).bytes(), At(3)),
            ],
        ),
        case(
            "a duplicate is validated before it is known",
            vec![
                (of(1, (80_006, 0, 0)).bytes(), At(0)),
                (of(1, (80_006, 0, 0)).with(|b| b.attributes = 0x20).bytes(), Code(INVALID_RECORD)),
                (of(1, (80_006, 0, 0)).with(|b| b.base_offset = 9).bytes(), Code(INVALID_RECORD)),
                (
                    Batch::of(1, now_ms + 7_200_000).by(80_006, 0, 0).bytes(),
                    Records(INVALID_TIMESTAMP, vec![0]),
                ),
            ],
        ),
        case(
            "a producer without epoch",
            vec![
                (of(1, (80_007, -1, 5)).bytes(), At(0)),
                (of(1, (80_007, -1, 5)).bytes(), At(0)),
                (of(1, (80_007, -1, 77)).bytes(), At(1)),
                (of(1, (80_007, 0, 9)).bytes(), At(2)),
            ],
        ),
    ]
}

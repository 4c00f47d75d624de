//! Costs of the record path beside a copy and a full checksum of the same bytes, as ratios of one run.
//!
//! `cargo bench --bench micro` prints, for each load, the median of several interleaved runs: nanoseconds per batch,
//! GB/s (10^9 bytes of source batches per second) and the share of a memcpy's and a full CRC-32C's speed. Batches lie
//! one behind another in a buffer that fits the caches, as they do in a slab that was just read.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kmirror::record::{
    BatchBuilder, BatchHeader, BatchOptions, Codec, Entry, ProducerIdentity, RecordData, RewriteSettings,
    crc32c, merge, next_entry, patch, rewrite,
};

const RUNS: usize = 9;
/// About how long one run of one measurement takes.
const RUN: Duration = Duration::from_millis(20);
/// Bytes of batches in one buffer: what a merged batch holds.
const BUFFER_BYTES: usize = 256 * 1024;

const IDENTITY: ProducerIdentity =
    ProducerIdentity { producer_id: 4711, producer_epoch: 1, base_sequence: 1_000 };
const REWRITE: RewriteSettings = RewriteSettings {
    start_offset: 0,
    end_offset: i64::MAX,
    target_codec: None,
    batch_bytes_max: 8 << 20,
    decompressed_bytes_max: 64 << 20,
};

/// Batches of one shape.
struct Load {
    name: &'static str,
    codec: Codec,
    record_bytes: usize,
    batch_records: usize,
}

const LOADS: [Load; 6] = [
    Load {
        name: "1 KB records, 256 KB batches",
        codec: Codec::None,
        record_bytes: 1_000,
        batch_records: 256,
    },
    Load { name: "1 KB records, 16 KB batches", codec: Codec::None, record_bytes: 1_000, batch_records: 16 },
    Load { name: "100 B records, 16 KB batches", codec: Codec::None, record_bytes: 100, batch_records: 150 },
    Load { name: "1 KB records, one per batch", codec: Codec::None, record_bytes: 1_000, batch_records: 1 },
    Load {
        name: "1 KB records, 16 KB before lz4",
        codec: Codec::Lz4,
        record_bytes: 1_000,
        batch_records: 16,
    },
    Load {
        name: "1 KB records, 16 KB before zstd",
        codec: Codec::Zstd,
        record_bytes: 1_000,
        batch_records: 16,
    },
];

struct Prepared {
    /// All batches, one behind another.
    section: Bytes,
    /// The same, each alone.
    batches: Vec<Bytes>,
    target: Vec<u8>,
}

type Measurement = (&'static str, fn(&mut Prepared));

const MEASUREMENTS: [Measurement; 6] = [
    ("memcpy", |load| {
        load.target.copy_from_slice(black_box(&load.section));
        black_box(&load.target);
    }),
    ("full CRC", |load| {
        for batch in &load.batches {
            black_box(crc32c(black_box(&batch[21..])));
        }
    }),
    ("header walk", |load| {
        walk(&load.section, |batch| {
            black_box(BatchHeader::parse(batch).expect("a valid batch"));
        });
    }),
    ("walk and patch", |load| {
        walk(&load.section, |batch| {
            black_box(patch(batch, batch.len(), black_box(IDENTITY)).expect("a valid batch"));
        });
    }),
    ("merge to one", |load| {
        if BatchHeader::parse(&load.batches[0]).is_ok_and(|h| h.attributes.codec() == Ok(Codec::None)) {
            black_box(merge(black_box(&load.batches)).expect("valid batches"));
        }
    }),
    ("rewrite each", |load| {
        for batch in &load.batches {
            black_box(rewrite(black_box(batch), &REWRITE).expect("a valid batch"));
        }
    }),
];

fn walk(section: &[u8], mut each: impl FnMut(&[u8])) {
    let mut rest = black_box(section);
    while let Ok(Entry::Batch { size_bytes, .. }) = next_entry(rest, rest.len(), 8 << 20) {
        let (batch, behind) = rest.split_at(size_bytes);
        each(batch);
        rest = behind;
    }
}

fn prepare(load: &Load) -> Prepared {
    let mut batches = Vec::new();
    let mut total = 0;
    let mut seed = 1_u64;
    while total < BUFFER_BYTES {
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset: batches.len() as i64 * load.batch_records as i64,
            ..BatchOptions::new(load.codec)
        });
        for at in 0..load.batch_records {
            let timestamp = 1_700_000_000_000 + (batches.len() * load.batch_records + at) as i64;
            builder.push(&record(timestamp, load.record_bytes, &mut seed)).expect("a small record");
        }
        let batch = builder.build().expect("a small batch");
        total += batch.len();
        batches.push(batch);
    }
    Prepared { section: Bytes::from(batches.concat()), batches, target: vec![0; total] }
}

/// Text that compresses about as event data does.
fn record(timestamp: i64, bytes: usize, seed: &mut u64) -> RecordData {
    let mut value = String::with_capacity(bytes + 40);
    while value.len() < bytes {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value.push_str(&format!("{{\"id\":{},\"state\":\"open\"}},", *seed >> 40));
    }
    value.truncate(bytes);
    let key = Some(Bytes::from(format!("{:08}", *seed >> 44)));
    RecordData { timestamp, key, value: Some(value.into()), headers: Vec::new() }
}

/// Seconds of one pass over the buffer, for each measurement the median of its runs.
fn measure(load: &mut Prepared) -> Vec<f64> {
    let repeats: Vec<u32> = MEASUREMENTS
        .iter()
        .map(|(_, run)| {
            run(load);
            let start = Instant::now();
            run(load);
            (RUN.as_nanos() / start.elapsed().as_nanos().max(1)).clamp(1, 1_000_000) as u32
        })
        .collect();
    let mut seconds = vec![Vec::new(); MEASUREMENTS.len()];
    for _ in 0..RUNS {
        for (at, (_, run)) in MEASUREMENTS.iter().enumerate() {
            let start = Instant::now();
            for _ in 0..repeats[at] {
                run(load);
            }
            seconds[at].push(start.elapsed().as_secs_f64() / f64::from(repeats[at]));
        }
    }
    seconds
        .into_iter()
        .map(|mut runs| {
            runs.sort_by(f64::total_cmp);
            runs[RUNS / 2]
        })
        .collect()
}

fn main() {
    // Only `cargo bench` passes this; `cargo test --benches` just wants to see that it runs.
    let quick = !std::env::args().any(|argument| argument == "--bench");
    for load in &LOADS {
        let mut prepared = prepare(load);
        if quick {
            MEASUREMENTS.iter().for_each(|(_, run)| run(&mut prepared));
            continue;
        }
        let count = prepared.batches.len();
        let bytes = prepared.section.len() as f64;
        println!("{} ({count} batches of {:.0} bytes)", load.name, bytes / count as f64);
        println!("  {:<16}{:>12}{:>10}{:>12}{:>10}", "", "ns/batch", "GB/s", "x memcpy", "x CRC");
        let seconds = measure(&mut prepared);
        let (memcpy, crc) = (seconds[0], seconds[1]);
        for ((name, _), &seconds) in MEASUREMENTS.iter().zip(&seconds) {
            if *name == "merge to one" && load.codec != Codec::None {
                continue;
            }
            println!(
                "  {name:<16}{:>12.1}{:>10.1}{:>12.2}{:>10.2}",
                seconds * 1e9 / count as f64,
                bytes / seconds / 1e9,
                memcpy / seconds,
                crc / seconds,
            );
        }
    }
}

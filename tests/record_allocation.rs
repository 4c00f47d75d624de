//! No claim of a peer is allocated: whatever bytes the parsers of `record` read, what they hold at once stays within a
//! small multiple of those bytes and of the caller's limits.
//!
//! A test of its own binary, because it counts what the whole process allocates.

#![expect(unsafe_code, reason = "only an allocator can count allocations")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use kmirror::record::{
    BatchBuilder, BatchOptions, Codec, OpenBatch, RecordData, RewriteSettings, compress, convert, crc32c,
    decompress, merge, merge_compressed, rewrite,
};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(now, Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What the callers of `record` allow in these tests.
const DECOMPRESSED_BYTES_MAX: usize = 256 * 1024;
/// Libraries' own buffers: two blocks of 4 MiB and a window for LZ4's largest frames, which their format allows.
const LIBRARY_BYTES: usize = 9 << 20;

const SETTINGS: RewriteSettings = RewriteSettings {
    start_offset: 0,
    end_offset: i64::MAX,
    target_codec: Some(Codec::None),
    batch_bytes_max: 1 << 20,
    decompressed_bytes_max: DECOMPRESSED_BYTES_MAX,
};

/// Runs `parse` and asserts what it held at most.
fn check(what: &str, input: &[u8], parse: impl FnOnce(Bytes)) {
    let input_bytes = input.len();
    let input = Bytes::copy_from_slice(input);
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    parse(input);
    let held = PEAK.load(Relaxed) - before;
    let allowed = 16 * input_bytes + 8 * DECOMPRESSED_BYTES_MAX + LIBRARY_BYTES;
    assert!(held <= allowed, "{what}: {held} bytes held for {input_bytes} of input");
}

fn check_batch(what: &str, batch: &[u8]) {
    check(what, batch, |batch| {
        if let Ok(opened) = OpenBatch::open(&batch, DECOMPRESSED_BYTES_MAX) {
            let _ = opened.records().count();
        }
    });
    check(what, batch, |batch| drop(rewrite(&batch, &SETTINGS)));
    check(what, batch, |batch| drop(merge(&[batch.clone(), batch])));
    check(what, batch, |batch| drop(merge_compressed(&[batch.clone(), batch], DECOMPRESSED_BYTES_MAX)));
}

fn batch(codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::new(codec));
    for timestamp in 0..20 {
        let value = Some(Bytes::from(vec![timestamp as u8; 50]));
        let headers = vec![(Bytes::from_static(b"h"), None)];
        builder.push(&RecordData { timestamp, key: None, value, headers }).expect("a small record");
    }
    builder.build().expect("a small batch").to_vec()
}

fn sealed(mut batch: Vec<u8>) -> Vec<u8> {
    let crc = crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

fn random(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize
}

/// One test, because the counters are the process's.
#[test]
fn claims_are_never_allocated() {
    claimed_counts();
    claimed_sizes_of_compressed_data();
    mutations();
}

/// Case 7: a record count, a length or a header count of two thousand millions.
fn claimed_counts() {
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        for count in [21, 1 << 10, 1 << 24, i32::MAX] {
            let mut claiming = batch(codec);
            claiming[23..27].copy_from_slice(&(count - 1).to_be_bytes());
            claiming[57..61].copy_from_slice(&count.to_be_bytes());
            check_batch("record count", &sealed(claiming));
        }
    }
    let many = [0xfe, 0xff, 0xff, 0xff, 0x0f];
    for front in [&[][..], &[40, 0, 0, 0], &[40, 0, 0, 0, 1], &[40, 0, 0, 0, 1, 1], &[40, 0, 0, 0, 1, 1, 2]] {
        let mut claiming = batch(Codec::None);
        claiming[61..61 + front.len()].copy_from_slice(front);
        claiming[61 + front.len()..][..5].copy_from_slice(&many);
        check_batch("length or header count", &sealed(claiming));
    }
}

/// Bombs, and headers that promise what does not follow.
fn claimed_sizes_of_compressed_data() {
    let zeros = vec![0; 32 << 20];
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut bomb = Vec::new();
        compress(codec, &zeros, &mut bomb).expect("zeros compress");
        check("bomb", &bomb, |bomb| assert!(decompress(codec, &bomb, DECOMPRESSED_BYTES_MAX).is_err()));
    }
    let claims: [(Codec, &[u8]); 4] = [
        (Codec::Snappy, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0]),
        (Codec::Snappy, &[0xff, 0xff, 0x0f, 0]),
        (Codec::Lz4, &[0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73, 0xff, 0xff, 0x3f, 0x00]),
        (Codec::Zstd, &[0x28, 0xb5, 0x2f, 0xfd, 0xe4, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 1, 0, 0]),
    ];
    for (codec, claim) in claims {
        check("claimed size", claim, |claim| drop(decompress(codec, &claim, DECOMPRESSED_BYTES_MAX)));
    }
}

fn mutations() {
    let mut seed = 1;
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        for _ in 0..300 {
            let mut mutated = batch(codec);
            for _ in 0..=random(&mut seed) % 4 {
                let at = 21 + random(&mut seed) % (mutated.len() - 21);
                mutated[at] = random(&mut seed) as u8;
            }
            let mutated = sealed(mutated);
            check_batch("mutation", &mutated);
            check("mutation as a message set", &mutated, |entry| drop(convert(&entry, &SETTINGS)));
        }
    }
}

//! Compression codecs of Kafka's batches, as its clients write and read them.
//!
//! Every decompression has a cap that is enforced while bytes come out: what a peer claims about sizes is never
//! allocated. (LZ4 and Zstandard keep a window of their own, at most 12 and 128 MiB by their formats, of which only what
//! the data really reaches is touched.)
//!
//! Snappy comes in two forms: raw, as librdkafka and others write it, and in Xerial's framing, as Java's snappy library
//! writes it. Both are read; the framing is written, in blocks of 32 KiB as Java does. LZ4 is written as Kafka's
//! `Lz4BlockOutputStream` writes it: a frame of independent blocks of 64 KiB without content checksum.

use std::io::{Read, Write};

use bytes::Bytes;

use super::{Codec, Error};

const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Version 1, compatible with version 1.
const XERIAL_VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;
/// A snappy element of three bytes copies at most 64.
const SNAPPY_RATIO_MAX: usize = 22;
/// The frame of Kafka's `Lz4BlockOutputStream` opens so: magic, version 1 with independent blocks, blocks of 64 KiB, the
/// checksum of these two bytes.
pub(super) const LZ4_FRAME_START: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
/// And ends so: a block of no bytes.
pub(super) const LZ4_FRAME_END: [u8; 4] = [0; 4];
/// A block of such a frame holds at most this many bytes.
pub(super) const LZ4_BLOCK_BYTES: usize = 64 * 1024;
/// `compression.zstd.level` of Kafka's producers.
const ZSTD_LEVEL: i32 = 3;

/// Appends `data`, compressed with `codec`, to `out`.
pub fn compress(codec: Codec, data: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    match codec {
        Codec::None => out.extend_from_slice(data),
        Codec::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::default());
            written(codec, encoder.write_all(data).and_then(|()| encoder.finish().map(drop)))?;
        }
        Codec::Snappy => compress_xerial(data, out)?,
        Codec::Lz4 => {
            let frame = lz4_flex::frame::FrameInfo::new()
                .block_size(lz4_flex::frame::BlockSize::Max64KB)
                .block_mode(lz4_flex::frame::BlockMode::Independent);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(frame, out);
            written(codec, encoder.write_all(data).and_then(|()| Ok(encoder.finish().map(drop)?)))?;
        }
        Codec::Zstd => {
            let compressed = written(codec, zstd::bulk::compress(data, ZSTD_LEVEL))?;
            out.extend_from_slice(&compressed);
        }
    }
    Ok(())
}

/// Decompresses `data`; more than `bytes_max` bytes are an error. Uncompressed data is handed on without a copy.
pub fn decompress(codec: Codec, data: &Bytes, bytes_max: usize) -> Result<Bytes, Error> {
    let limit = Limit { codec, bytes_max };
    let out = match codec {
        Codec::None => {
            limit.check(data.len())?;
            return Ok(data.clone());
        }
        Codec::Gzip => limit.read(flate2::bufread::MultiGzDecoder::new(&data[..]), data.len())?,
        Codec::Snappy => decompress_snappy(data, limit)?,
        Codec::Lz4 => limit.read(lz4_flex::frame::FrameDecoder::new(&data[..]), data.len())?,
        Codec::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(&data[..])
                .map_err(|error| limit.corrupt(error.to_string()))?;
            limit.read(decoder, data.len())?
        }
    };
    Ok(Bytes::from(out))
}

fn written<T>(codec: Codec, result: std::io::Result<T>) -> Result<T, Error> {
    result.map_err(|error| Error::Compress { codec: codec.name(), reason: error.to_string() })
}

/// The cap of one decompression.
#[derive(Clone, Copy)]
struct Limit {
    codec: Codec,
    bytes_max: usize,
}

impl Limit {
    fn corrupt(self, reason: impl Into<String>) -> Error {
        Error::Decompress { codec: self.codec.name(), reason: reason.into() }
    }

    fn check(self, bytes: usize) -> Result<(), Error> {
        if bytes > self.bytes_max {
            return Err(Error::TooLarge { codec: self.codec.name(), limit: self.bytes_max });
        }
        Ok(())
    }

    /// Reads all, but no more than one byte over the cap.
    fn read(self, decoder: impl Read, compressed_bytes: usize) -> Result<Vec<u8>, Error> {
        let mut out = Vec::with_capacity(compressed_bytes.saturating_mul(3).min(self.bytes_max));
        decoder
            .take((self.bytes_max as u64).saturating_add(1))
            .read_to_end(&mut out)
            .map_err(|error| self.corrupt(error.to_string()))?;
        self.check(out.len())?;
        Ok(out)
    }
}

fn compress_xerial(data: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    out.extend_from_slice(&XERIAL_MAGIC);
    out.extend_from_slice(&XERIAL_VERSIONS);
    let mut encoder = snap::raw::Encoder::new();
    for block in data.chunks(XERIAL_BLOCK_BYTES) {
        let start = out.len();
        out.resize(start + 4 + snap::raw::max_compress_len(block.len()), 0);
        let bytes = encoder
            .compress(block, &mut out[start + 4..])
            .map_err(|error| Error::Compress { codec: Codec::Snappy.name(), reason: error.to_string() })?;
        out[start..start + 4].copy_from_slice(&(bytes as u32).to_be_bytes());
        out.truncate(start + 4 + bytes);
    }
    Ok(())
}

fn decompress_snappy(data: &[u8], limit: Limit) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let Some(mut rest) = data.strip_prefix(&XERIAL_MAGIC) else {
        append_snappy_block(data, &mut out, limit)?;
        return Ok(out);
    };
    rest = rest.get(XERIAL_VERSIONS.len()..).ok_or_else(|| limit.corrupt("the Xerial header is cut"))?;
    while !rest.is_empty() {
        // Streams put one behind another are one stream, as in `SnappyInputStream`.
        if let Some(next) = rest.strip_prefix(&XERIAL_MAGIC) {
            rest =
                next.get(XERIAL_VERSIONS.len()..).ok_or_else(|| limit.corrupt("a Xerial header is cut"))?;
            continue;
        }
        let (length, behind) =
            rest.split_first_chunk::<4>().ok_or_else(|| limit.corrupt("a block's length is cut"))?;
        let length = u32::from_be_bytes(*length) as usize;
        let block = behind.get(..length).ok_or_else(|| limit.corrupt("a block is cut"))?;
        append_snappy_block(block, &mut out, limit)?;
        rest = &behind[length..];
    }
    Ok(out)
}

fn append_snappy_block(block: &[u8], out: &mut Vec<u8>, limit: Limit) -> Result<(), Error> {
    let corrupt = |error: snap::Error| limit.corrupt(error.to_string());
    let claimed = snap::raw::decompress_len(block).map_err(corrupt)?;
    limit.check(out.len().saturating_add(claimed))?;
    if claimed > block.len().saturating_mul(SNAPPY_RATIO_MAX) {
        return Err(limit.corrupt("it claims more bytes than snappy can make of so few"));
    }
    let start = out.len();
    out.resize(start + claimed, 0);
    let bytes = snap::raw::Decoder::new().decompress(block, &mut out[start..]).map_err(corrupt)?;
    out.truncate(start + bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    fn compressed(codec: Codec, data: &[u8]) -> Bytes {
        let mut out = Vec::new();
        compress(codec, data, &mut out).unwrap();
        Bytes::from(out)
    }

    fn text(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| b"abcdefgh-0123456789 "[(at * at / 7 + at / 100) % 20]).collect()
    }

    #[test]
    fn each_codec_gives_back_what_it_got() {
        for codec in CODECS {
            for size in [0, 1, 100, 32_768, 32_769, 65_536, 65_537, 300_000] {
                let data = text(size);
                assert_eq!(
                    decompress(codec, &compressed(codec, &data), size).unwrap(),
                    data,
                    "{codec:?} {size}"
                );
            }
        }
    }

    #[test]
    fn the_cap_holds_exactly() {
        for codec in CODECS {
            let data = compressed(codec, &vec![7; 1_000_000]);
            assert!(decompress(codec, &data, 1_000_000).is_ok(), "{codec:?}");
            let error = decompress(codec, &data, 999_999).unwrap_err();
            assert_eq!(error, Error::TooLarge { codec: codec.name(), limit: 999_999 });
        }
    }

    /// Case 6: both framings of snappy, also one shorter than Xerial's header.
    #[test]
    fn snappy_is_read_raw_and_framed() {
        for data in [&b"a"[..], b"a raw block", &text(100_000)] {
            let raw = Bytes::from(snap::raw::Encoder::new().compress_vec(data).unwrap());
            assert_eq!(decompress(Codec::Snappy, &raw, 100_000).unwrap(), data);
            let framed = compressed(Codec::Snappy, data);
            assert_eq!(framed[..16], [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1]);
            assert_eq!(decompress(Codec::Snappy, &framed, 100_000).unwrap(), data);
        }
    }

    #[test]
    fn streams_put_together_are_one() {
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Zstd] {
            let both = [&compressed(codec, b"one ")[..], &compressed(codec, b"two")].concat();
            assert_eq!(decompress(codec, &Bytes::from(both), 100).unwrap(), &b"one two"[..], "{codec:?}");
        }
    }

    /// Case 7: a length that a peer claims.
    #[test]
    fn a_claimed_snappy_length_is_not_allocated() {
        let claim = |bytes: &[u8]| decompress(Codec::Snappy, &Bytes::copy_from_slice(bytes), 1 << 30);
        assert!(matches!(claim(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0]), Err(Error::TooLarge { .. })));
        assert!(matches!(claim(&[0xff, 0xff, 0xff, 0xff, 0x01, 0]), Err(Error::Decompress { .. })));
    }

    #[test]
    fn lz4_frames_are_as_javas() {
        let frame = compressed(Codec::Lz4, &text(70_000));
        assert_eq!(frame[..7], LZ4_FRAME_START);
        assert_eq!(frame[frame.len() - 4..], LZ4_FRAME_END);
    }

    #[test]
    fn lz4_frames_with_linked_blocks_and_checksums_are_read() {
        use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
        for (mode, size) in
            [(BlockMode::Linked, BlockSize::Max64KB), (BlockMode::Independent, BlockSize::Max4MB)]
        {
            let info = FrameInfo::new()
                .block_mode(mode)
                .block_size(size)
                .block_checksums(true)
                .content_checksum(true);
            let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(&text(200_000)).unwrap();
            let frame = Bytes::from(encoder.finish().unwrap());
            assert_eq!(decompress(Codec::Lz4, &frame, 200_000).unwrap(), text(200_000));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn random_data_comes_back(data: Vec<u8>, repeat in 1_usize..50) {
            let data = data.repeat(repeat);
            for codec in CODECS {
                prop_assert_eq!(&decompress(codec, &compressed(codec, &data), data.len()).unwrap()[..], &data[..]);
            }
        }

        #[test]
        fn a_truncation_never_gives_the_whole(size in 1_usize..5_000, cut: prop::sample::Index) {
            let data = text(size);
            for codec in CODECS {
                let whole = compressed(codec, &data);
                let cut = whole.slice(..cut.index(whole.len()));
                // The end mark of an lz4 frame carries no data.
                if let Ok(out) = decompress(codec, &cut, 10_000) {
                    prop_assert!(out.len() < size || codec == Codec::Lz4, "{codec:?}");
                    prop_assert!(data.starts_with(&out), "{codec:?}");
                }
            }
        }

        #[test]
        fn mutations_stay_bounded(
            size in 1_usize..3_000,
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            for codec in CODECS {
                let mut data = compressed(codec, &text(size)).to_vec();
                for (at, byte) in &flips {
                    let at = at.index(data.len());
                    data[at] = *byte;
                }
                if let Ok(out) = decompress(codec, &Bytes::from(data), 4_000) {
                    prop_assert!(out.len() <= 4_000);
                }
            }
        }

        #[test]
        fn random_bytes_never_panic(data: Vec<u8>) {
            for codec in CODECS {
                let _ = decompress(codec, &Bytes::copy_from_slice(&data), 10_000);
                let framed = [&XERIAL_MAGIC[..], &data].concat();
                let _ = decompress(codec, &Bytes::from(framed), 10_000);
            }
        }
    }
}

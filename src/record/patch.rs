//! The header with which a batch is appended to another cluster: offsets, producer and attributes become ours, the
//! records stay as they are, and the checksum follows by linearity, so that the body is never read.
//!
//! Because the checksum is derived and not computed anew, a batch that was damaged on its way stays damaged: the target
//! broker refuses it (CORRUPT_MESSAGE), also when the damage lies in the fields that change.
//!
//! Kept: codec, last offset delta, timestamps, record count. Base offset becomes 0 and leader epoch -1, as a producer
//! sends them. All other attribute bits go (`LogValidator` refuses control batches; a transactional bit without a
//! transaction of ours blocks the last stable offset; the delete horizon is the source's, KIP-534, and the records'
//! deltas add to the base timestamp with or without it).

use super::crc::{Arithmetic, crc_change, crc_join, crc32c};
use super::{Attributes, BatchHeader, Error, HEADER_BYTES, ProducerIdentity};

/// First byte under the checksum.
const CHECKED_FROM: usize = 21;

/// The header for `batch_header`'s batch of `size_bytes` as `identity` appends it.
///
/// `batch_header` holds at least the [`HEADER_BYTES`] of a v2 batch as the source stored it. To append again under
/// another identity, patch the source's header again.
pub fn patch(
    batch_header: &[u8],
    size_bytes: usize,
    identity: ProducerIdentity,
) -> Result<[u8; HEADER_BYTES], Error> {
    patch_with(batch_header, size_bytes, identity, Arithmetic::Detected)
}

/// [`patch`] with the given arithmetic.
pub fn patch_with(
    batch_header: &[u8],
    size_bytes: usize,
    identity: ProducerIdentity,
    arithmetic: Arithmetic,
) -> Result<[u8; HEADER_BYTES], Error> {
    let header = BatchHeader::parse(batch_header)?;
    if header.size_bytes != size_bytes {
        return Err(Error::Invalid {
            what: "batch length",
            value: header.size_bytes as i64,
            rule: "is not the size of the batch",
        });
    }
    let mut old = [0; HEADER_BYTES];
    old.copy_from_slice(&batch_header[..HEADER_BYTES]);
    let mut new = old;
    new[0..8].copy_from_slice(&0_i64.to_be_bytes());
    new[12..16].copy_from_slice(&(-1_i32).to_be_bytes());
    let attributes = header.attributes.0 & Attributes::CODEC_MASK;
    new[21..23].copy_from_slice(&attributes.to_be_bytes());
    put_identity(&mut new, identity);
    let mut difference = [0; HEADER_BYTES - CHECKED_FROM];
    for (to, (a, b)) in difference.iter_mut().zip(old[CHECKED_FROM..].iter().zip(&new[CHECKED_FROM..])) {
        *to = a ^ b;
    }
    // A length field of 31 bits keeps every size below 2^32.
    let tail_bytes = (size_bytes - HEADER_BYTES) as u32;
    let crc = header.crc ^ crc_change(&difference, tail_bytes, arithmetic);
    new[17..21].copy_from_slice(&crc.to_be_bytes());
    Ok(new)
}

/// Whether the checksum of a whole v2 batch matches its bytes. Bytes behind the batch are an error.
pub fn verify_crc(batch: &[u8]) -> Result<(), Error> {
    let header = BatchHeader::parse(batch)?;
    check_size(&header, batch)?;
    let computed = crc32c(&batch[CHECKED_FROM..]);
    if computed == header.crc { Ok(()) } else { Err(Error::Crc { stored: header.crc, computed }) }
}

/// Whether `batch` is exactly as long as its header says.
pub(super) fn check_size(header: &BatchHeader, batch: &[u8]) -> Result<(), Error> {
    if batch.len() < header.size_bytes {
        return Err(Error::Truncated { what: "batch", needed: header.size_bytes, available: batch.len() });
    }
    if batch.len() > header.size_bytes {
        return Err(Error::Invalid {
            what: "bytes behind the batch",
            value: (batch.len() - header.size_bytes) as i64,
            rule: "is not 0",
        });
    }
    Ok(())
}

/// Writes the producer's fields.
pub(super) fn put_identity(header: &mut [u8; HEADER_BYTES], identity: ProducerIdentity) {
    header[43..51].copy_from_slice(&identity.producer_id.to_be_bytes());
    header[51..53].copy_from_slice(&identity.producer_epoch.to_be_bytes());
    header[53..57].copy_from_slice(&identity.base_sequence.to_be_bytes());
}

/// Writes the checksum of a whole batch whose bytes behind the header have the checksum `records_crc`.
pub(super) fn seal_with(batch: &mut [u8], records_crc: u32) {
    let records_bytes = (batch.len() - HEADER_BYTES) as u32;
    let crc = crc_join(crc32c(&batch[CHECKED_FROM..HEADER_BYTES]), records_crc, records_bytes);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// Writes the checksum that the bytes of a whole batch give.
pub(super) fn seal(batch: &mut [u8]) {
    let crc = crc32c(&batch[CHECKED_FROM..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OURS: ProducerIdentity =
        ProducerIdentity { producer_id: 4711, producer_epoch: 3, base_sequence: 90_000 };

    fn batch_of(size_bytes: usize, seed: u64) -> Vec<u8> {
        let mut state = seed | 1;
        let mut batch: Vec<u8> = (0..size_bytes)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
        batch[0] &= 0x3f; // base offset
        batch[8..12].copy_from_slice(&(size_bytes as i32 - 12).to_be_bytes());
        batch[16] = 2;
        batch[23] &= 0x7f; // last offset delta
        batch[57] &= 0x7f; // record count
        seal(&mut batch);
        batch
    }

    fn recomputed(batch: &[u8], identity: ProducerIdentity) -> Vec<u8> {
        let mut batch = batch.to_vec();
        batch[..8].fill(0);
        batch[12..16].fill(0xff);
        batch[21] = 0;
        batch[22] &= 7;
        batch[43..51].copy_from_slice(&identity.producer_id.to_be_bytes());
        batch[51..53].copy_from_slice(&identity.producer_epoch.to_be_bytes());
        batch[53..57].copy_from_slice(&identity.base_sequence.to_be_bytes());
        seal(&mut batch);
        batch
    }

    fn patched(batch: &[u8], identity: ProducerIdentity, arithmetic: Arithmetic) -> Vec<u8> {
        let header = patch_with(&batch[..HEADER_BYTES], batch.len(), identity, arithmetic).unwrap();
        [&header[..], &batch[HEADER_BYTES..]].concat()
    }

    /// Case 3: the source's producer, sequence and transactional bit mean nothing to the target.
    #[test]
    fn only_the_fields_that_are_ours_change() {
        let source = batch_of(500, 9);
        let patched = patched(&source, OURS, Arithmetic::Detected);
        let changed: Vec<usize> = (0..source.len()).filter(|&at| source[at] != patched[at]).collect();
        let ours = |at: &usize| matches!(at, 0..=7 | 12..=15 | 17..=22 | 43..=56);
        assert!(changed.iter().all(ours), "{changed:?}");
        let header = BatchHeader::parse(&patched).unwrap();
        assert_eq!((header.base_offset, header.partition_leader_epoch), (0, -1));
        assert_eq!(header.attributes.0, BatchHeader::parse(&source).unwrap().attributes.0 & 7);
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (4711, 3, 90_000));
        assert_eq!(verify_crc(&patched), Ok(()));
    }

    #[test]
    fn a_size_that_is_not_the_batchs_is_refused() {
        let batch = batch_of(100, 1);
        assert!(matches!(patch(&batch, 99, OURS), Err(Error::Invalid { what: "batch length", .. })));
        assert!(matches!(patch(&batch[..60], 100, OURS), Err(Error::Truncated { .. })));
        assert!(matches!(verify_crc(&batch[..99]), Err(Error::Truncated { .. })));
        assert!(matches!(verify_crc(&[&batch[..], &[0]].concat()), Err(Error::Invalid { .. })));
    }

    #[test]
    fn an_empty_body_can_be_patched() {
        let batch = batch_of(HEADER_BYTES, 5);
        assert_eq!(patched(&batch, OURS, Arithmetic::Detected), recomputed(&batch, OURS));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn equals_a_full_recompute(
            size_bytes in prop_oneof![61_usize..2_000, 2_000_usize..70_000, 70_000_usize..1_000_000],
            seed: u64, producer_id: i64, producer_epoch: i16, base_sequence: i32,
        ) {
            let identity = ProducerIdentity { producer_id, producer_epoch, base_sequence };
            let batch = batch_of(size_bytes, seed);
            let expected = recomputed(&batch, identity);
            for arithmetic in [Arithmetic::Detected, Arithmetic::Portable] {
                prop_assert!(patched(&batch, identity, arithmetic) == expected, "{arithmetic:?}");
            }
        }

        #[test]
        fn damage_stays_detectable(size_bytes in 61_usize..3_000, seed: u64, at: prop::sample::Index, flip in 1_u8..) {
            let mut batch = batch_of(size_bytes, seed);
            let at = at.index(size_bytes - 17) + 17;
            batch[at] ^= flip;
            for arithmetic in [Arithmetic::Detected, Arithmetic::Portable] {
                if let Ok(header) = patch_with(&batch, batch.len(), OURS, arithmetic) {
                    let patched = [&header[..], &batch[HEADER_BYTES..]].concat();
                    prop_assert!(verify_crc(&patched).is_err(), "byte {at}");
                }
            }
        }

        #[test]
        fn patched_again_equals_patched_once(seed: u64, base_sequence: i32) {
            let batch = batch_of(900, seed);
            let again = ProducerIdentity { base_sequence, ..OURS };
            let once = patched(&batch, OURS, Arithmetic::Detected);
            prop_assert_eq!(
                patched(&once, again, Arithmetic::Detected),
                patched(&batch, again, Arithmetic::Detected)
            );
        }
    }
}

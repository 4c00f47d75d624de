//! Which partition a record goes to by its key, as Java's producer decides (`BuiltInPartitioner.partitionForKey`,
//! `Utils.murmur2`).

use super::Error;
use super::varint::take_varint;

/// Where records go, where they are dealt out by their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPartitioner {
    /// How many partitions the target has.
    pub partitions: i32,
    /// The one that records without a key go to.
    pub keyless: i32,
}

impl KeyPartitioner {
    /// The partition of a record; `body` is its key, value and headers as a v2 record stores them.
    ///
    /// # Errors
    /// When the key is longer than the record.
    pub(super) fn partition_of(&self, mut body: &[u8]) -> Result<i32, Error> {
        let length = take_varint(&mut body, "key length")?;
        let Ok(length) = usize::try_from(length) else { return Ok(self.keyless) };
        let key = body.get(..length).ok_or(Error::Truncated {
            what: "key",
            needed: length,
            available: body.len(),
        })?;
        Ok(partition_for_key(key, self.partitions))
    }
}

/// The partition of a key, of so many.
pub fn partition_for_key(key: &[u8], partitions: i32) -> i32 {
    // `Utils.toPositive` keeps the lower 31 bits.
    (murmur2(key) & 0x7fff_ffff) % partitions.max(1)
}

/// `Utils.murmur2`.
fn murmur2(data: &[u8]) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    let mut hash = SEED ^ data.len() as u32;
    let (blocks, rest) = data.as_chunks::<4>();
    for block in blocks {
        let mut k = u32::from_le_bytes(*block).wrapping_mul(M);
        k ^= k >> R;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (place, &byte) in rest.iter().enumerate() {
            hash ^= u32::from(byte) << (8 * place);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ (hash >> 15)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of `UtilsTest.testMurmur2`.
    #[test]
    fn hashes_are_javas() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        }
    }

    #[test]
    fn a_record_goes_where_its_key_says() {
        let partitioner = KeyPartitioner { partitions: 5, keyless: 3 };
        let partition = |body: &[u8]| partitioner.partition_of(body).ok();
        assert_eq!(partition(b"\x01\x02x\0"), Some(3), "no key");
        assert_eq!(partition(b"\x06abc\x02x\0"), Some(479_470_107 % 5));
        assert_eq!(partition(b"\0\x02x\0"), Some(partition_for_key(b"", 5)), "an empty key is a key");
        assert_eq!(partition(b"\x06a"), None);
    }
}

//! Kafka's variable-length numbers: zigzag, seven bits a byte, least significant group first (`ByteUtils.java`).
//!
//! A record's lengths, counts and offset delta are 32 bits wide, its timestamp delta 64: a batch whose records lie more
//! than 24 days apart needs all of them. Longer forms than the least one are read, as Kafka reads them; what does not
//! fit the width is an error.

use super::Error;

/// Most bytes of a 32-bit number.
pub const VARINT_BYTES_MAX: usize = 5;
/// Most bytes of a 64-bit number.
pub const VARLONG_BYTES_MAX: usize = 10;

/// Takes a 32-bit number off the front of `bytes`. `what` names it in the error.
#[inline]
pub fn take_varint(bytes: &mut &[u8], what: &'static str) -> Result<i32, Error> {
    let raw = take(bytes, what, VARINT_BYTES_MAX)?;
    let raw = u32::try_from(raw).map_err(|_| too_wide(what, raw, "does not fit 32 bits"))?;
    Ok((raw >> 1) as i32 ^ -((raw & 1) as i32))
}

/// Takes a 64-bit number off the front of `bytes`. `what` names it in the error.
#[inline]
pub fn take_varlong(bytes: &mut &[u8], what: &'static str) -> Result<i64, Error> {
    let raw = take(bytes, what, VARLONG_BYTES_MAX)?;
    Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

/// Writes `value` to the front of `out` and returns the bytes used, at most [`VARINT_BYTES_MAX`].
#[inline]
pub fn write_varint(value: i32, out: &mut [u8]) -> usize {
    write(u64::from(zigzag32(value)), out)
}

/// Writes `value` to the front of `out` and returns the bytes used, at most [`VARLONG_BYTES_MAX`].
#[inline]
pub fn write_varlong(value: i64, out: &mut [u8]) -> usize {
    write(zigzag64(value), out)
}

/// Appends `value` to `out`.
pub fn put_varint(out: &mut Vec<u8>, value: i32) {
    let mut bytes = [0; VARINT_BYTES_MAX];
    let used = write_varint(value, &mut bytes);
    out.extend_from_slice(&bytes[..used]);
}

/// Appends `value` to `out`.
pub fn put_varlong(out: &mut Vec<u8>, value: i64) {
    let mut bytes = [0; VARLONG_BYTES_MAX];
    let used = write_varlong(value, &mut bytes);
    out.extend_from_slice(&bytes[..used]);
}

/// The bytes of `value`, the first in the lowest place, and how many there are: for writers that keep them in registers.
#[inline]
pub(super) fn varint_word(value: i32) -> (u64, usize) {
    let raw = u64::from(zigzag32(value));
    if raw < 0x80 { (raw, 1) } else { word(raw) }
}

/// The bytes of `value`, the first in the lowest place, and how many there are.
#[inline]
pub(super) fn varlong_word(value: i64) -> (u128, usize) {
    /// What eight groups of seven bits hold.
    const WORD_MAX: u64 = (1 << 56) - 1;
    let raw = zigzag64(value);
    if raw <= WORD_MAX {
        let (word, count) = word(raw);
        return (u128::from(word), count);
    }
    let mut bytes = [0; 16];
    let count = write(raw, &mut bytes);
    (u128::from_le_bytes(bytes), count)
}

#[inline]
fn word(mut raw: u64) -> (u64, usize) {
    let (mut word, mut shift) = (0, 0);
    while raw >= 0x80 {
        word |= (raw & 0x7f | 0x80) << shift;
        raw >>= 7;
        shift += 8;
    }
    (word | raw << shift, shift / 8 + 1)
}

/// Bytes that `value` takes as a 32-bit number.
#[inline]
pub fn varint_bytes(value: i32) -> usize {
    encoded_bytes(u64::from(zigzag32(value)))
}

/// Bytes that `value` takes as a 64-bit number.
#[inline]
pub fn varlong_bytes(value: i64) -> usize {
    encoded_bytes(zigzag64(value))
}

fn zigzag32(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

fn zigzag64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn encoded_bytes(raw: u64) -> usize {
    let bits = 64 - (raw | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[inline]
fn write(mut raw: u64, out: &mut [u8]) -> usize {
    let mut at = 0;
    while raw >= 0x80 {
        out[at] = raw as u8 | 0x80;
        raw >>= 7;
        at += 1;
    }
    out[at] = raw as u8;
    at + 1
}

#[inline]
fn take(bytes: &mut &[u8], what: &'static str, bytes_max: usize) -> Result<u64, Error> {
    // Most numbers of a record are one byte long.
    if let Some((&first, rest)) = bytes.split_first()
        && first < 0x80
    {
        *bytes = rest;
        return Ok(u64::from(first));
    }
    take_long(bytes, what, bytes_max)
}

fn take_long(bytes: &mut &[u8], what: &'static str, bytes_max: usize) -> Result<u64, Error> {
    let mut raw = 0_u64;
    for (at, &byte) in bytes.iter().take(bytes_max).enumerate() {
        let group = u64::from(byte & 0x7f);
        if at == VARLONG_BYTES_MAX - 1 && group > 1 {
            return Err(too_wide(what, raw, "does not fit 64 bits"));
        }
        raw |= group << (7 * at);
        if byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return Ok(raw);
        }
    }
    if bytes.len() < bytes_max {
        return Err(Error::Truncated { what, needed: bytes.len() + 1, available: bytes.len() });
    }
    Err(too_wide(what, raw, "has no last byte where its width ends"))
}

#[cold]
fn too_wide(what: &'static str, raw: u64, rule: &'static str) -> Error {
    Error::Invalid { what, value: raw as i64, rule }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(value: i64, bytes: &[u8]) {
        let mut out = Vec::new();
        put_varlong(&mut out, value);
        assert_eq!(out, bytes, "{value}");
        assert_eq!(varlong_bytes(value), bytes.len());
        assert_eq!(take_varlong(&mut &bytes[..], "number"), Ok(value));
        if let Ok(value) = i32::try_from(value) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, bytes, "{value}");
            assert_eq!(varint_bytes(value), bytes.len());
            assert_eq!(take_varint(&mut &bytes[..], "number"), Ok(value));
        }
    }

    #[test]
    fn numbers_have_kafkas_bytes() {
        check(0, &[0]);
        check(-1, &[1]);
        check(1, &[2]);
        check(63, &[0x7e]);
        check(-64, &[0x7f]);
        check(64, &[0x80, 0x01]);
        check(8191, &[0xfe, 0x7f]);
        check(8192, &[0x80, 0x80, 0x01]);
        check(i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]);
        check(i64::from(i32::MIN), &[0xff, 0xff, 0xff, 0xff, 0x0f]);
        check(i64::MAX, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        check(i64::MIN, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    }

    /// Case 5: `timestampDelta` read as 32 bits makes the next field a nonsense length.
    #[test]
    fn a_delta_of_more_than_24_days_needs_64_bits() {
        let delta = 1_790_000_000_000;
        let mut bytes = Vec::new();
        put_varlong(&mut bytes, delta);
        assert_eq!(take_varlong(&mut &bytes[..], "timestamp delta"), Ok(delta));
        assert!(take_varint(&mut &bytes[..], "timestamp delta").is_err());
    }

    #[test]
    fn what_does_not_fit_the_width_is_refused() {
        for bytes in [&[0x80; 5][..], &[0xff, 0xff, 0xff, 0xff, 0x10], &[0xff; 6]] {
            assert!(matches!(take_varint(&mut &bytes[..], "n"), Err(Error::Invalid { .. })), "{bytes:?}");
        }
        for bytes in [&[0x80; 10][..], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]] {
            assert!(matches!(take_varlong(&mut &bytes[..], "n"), Err(Error::Invalid { .. })), "{bytes:?}");
        }
        for bytes in [&[][..], &[0x80], &[0xff, 0xff, 0xff, 0xff]] {
            let error = Error::Truncated { what: "n", needed: bytes.len() + 1, available: bytes.len() };
            assert_eq!(take_varint(&mut &bytes[..], "n"), Err(error.clone()));
            assert_eq!(take_varlong(&mut &bytes[..], "n"), Err(error));
        }
    }

    #[test]
    fn a_longer_form_than_needed_is_read_as_kafka_reads_it() {
        let mut bytes = &[0x82, 0x00, 7][..];
        assert_eq!(take_varint(&mut bytes, "n"), Ok(1));
        assert_eq!(bytes, [7]);
    }

    proptest! {
        #[test]
        fn words_hold_the_same_bytes(value: i64, shift in 0_u32..64) {
            let value = value >> shift;
            let mut bytes = [0; 16];
            let count = write_varlong(value, &mut bytes);
            prop_assert_eq!(varlong_word(value), (u128::from_le_bytes(bytes), count));
            let mut bytes = [0; 8];
            let count = write_varint(value as i32, &mut bytes);
            prop_assert_eq!(varint_word(value as i32), (u64::from_le_bytes(bytes), count));
        }

        #[test]
        fn every_number_comes_back(value: i64, tail: Vec<u8>) {
            let mut bytes = Vec::new();
            put_varlong(&mut bytes, value);
            prop_assert_eq!(bytes.len(), varlong_bytes(value));
            put_varint(&mut bytes, value as i32);
            bytes.extend_from_slice(&tail);
            let mut rest = &bytes[..];
            prop_assert_eq!(take_varlong(&mut rest, "n"), Ok(value));
            prop_assert_eq!(take_varint(&mut rest, "n"), Ok(value as i32));
            prop_assert_eq!(rest, &tail[..]);
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            while take_varint(&mut rest, "n").is_ok() {}
            let mut rest = &bytes[..];
            while take_varlong(&mut rest, "n").is_ok() {}
        }
    }
}

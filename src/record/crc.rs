//! CRC-32C of batches: whole, and moved along by linearity.
//!
//! A CRC without its inversions is linear over GF(2). When some bytes change and `n` bytes follow them, the checksum
//! changes by `crc(old XOR new) · x^(8n) mod P`: the cost does not depend on `n`, and the bytes behind are never read.
//! `x^(8n)` is the product of four table entries, one for each byte of `n`.
//!
//! Numbers are polynomials with the coefficient of x⁰ in the highest bit, as in every reflected CRC.

use super::clmul;

/// Castagnoli's polynomial, reflected, without x³².
const POLYNOMIAL: u32 = 0x82f6_3b78;
const ONE: u32 = 1 << 31;

/// `POWERS[k][b]` is x^(8 · b · 256^k) mod P.
static POWERS: [[u32; 256]; 4] = powers();

/// Which instructions multiply polynomials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// The processor's carry-less multiplication where it has one, else as [`Arithmetic::Portable`].
    Detected,
    /// Shifts and XORs alone: what processors without such an instruction run, to be forced in tests.
    Portable,
}

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// What to XOR to a checksum over `…, old, tail of tail_bytes` when `old` becomes `new`, given `old XOR new`.
#[inline]
pub fn crc_change(difference: &[u8], tail_bytes: u32, arithmetic: Arithmetic) -> u32 {
    // Inverted at both ends once more, so that no inversion is left.
    let raw = !crc32c::crc32c_append(!0, difference);
    shift(raw, tail_bytes, arithmetic)
}

/// The checksum of some bytes followed by `tail_bytes` more, given the checksums of both.
#[inline]
pub fn crc_join(front: u32, tail: u32, tail_bytes: u32) -> u32 {
    shift(front, tail_bytes, Arithmetic::Detected) ^ tail
}

#[inline]
fn shift(crc: u32, bytes: u32, arithmetic: Arithmetic) -> u32 {
    let [first, second, third, fourth] = bytes.to_le_bytes();
    let factors = [
        POWERS[0][usize::from(first)],
        POWERS[1][usize::from(second)],
        POWERS[2][usize::from(third)],
        POWERS[3][usize::from(fourth)],
    ];
    if arithmetic == Arithmetic::Detected
        && let Some(product) = clmul::multiply_all(crc, &factors)
    {
        return product;
    }
    factors.into_iter().filter(|&factor| factor != ONE).fold(crc, multiply)
}

/// `a · b mod P`.
const fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut b, mut bit) = (0, b, ONE);
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = if b & 1 == 0 { b >> 1 } else { (b >> 1) ^ POLYNOMIAL };
        bit >>= 1;
    }
    product
}

const fn powers() -> [[u32; 256]; 4] {
    let mut tables = [[ONE; 256]; 4];
    let mut base = ONE >> 8;
    let mut k = 0;
    while k < 4 {
        let mut b = 1;
        while b < 256 {
            tables[k][b] = multiply(tables[k][b - 1], base);
            b += 1;
        }
        base = multiply(tables[k][255], base);
        k += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn powers_follow_from_each_other() {
        for table in &POWERS {
            assert_eq!(table[0], ONE);
            assert_eq!(table[7], multiply(table[3], table[4]));
        }
        for tables in POWERS.windows(2) {
            assert_eq!(tables[1][1], multiply(tables[0][128], tables[0][128]));
        }
    }

    proptest! {
        #[test]
        fn both_arithmetics_shift_alike(crc: u32, bytes: u32) {
            prop_assert_eq!(shift(crc, bytes, Arithmetic::Detected), shift(crc, bytes, Arithmetic::Portable));
        }

        #[test]
        fn joined_is_the_checksum_of_both(front: Vec<u8>, tail: Vec<u8>) {
            let whole = crc32c(&[&front[..], &tail[..]].concat());
            prop_assert_eq!(crc_join(crc32c(&front), crc32c(&tail), tail.len() as u32), whole);
        }

        #[test]
        fn zeros_behind_shift(front: Vec<u8>, tail_bytes in 0_u32..70_000) {
            let mut zeros = front.clone();
            zeros.resize(front.len() + tail_bytes as usize, 0);
            let whole = !crc32c::crc32c_append(!0, &zeros);
            prop_assert_eq!(crc_change(&front, tail_bytes, Arithmetic::Portable), whole);
            prop_assert_eq!(crc_change(&front, tail_bytes, Arithmetic::Detected), whole);
        }
    }
}

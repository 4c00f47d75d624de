//! How often a store would have its password hashed before it opens: a number that the file names, so it is looked at first.
//!
//! In PKCS5 and PKCS12 the parameters of each such derivation begin with a salt and a count (RFC 8018 A.2, RFC 7292 B and 4):
//! an OCTET STRING and an INTEGER beside each other. All that are in the open are added up; within what is encrypted, the
//! library that opens it bounds each by itself.

use pkcs8::pkcs5::EncryptionScheme;
use pkcs8::pkcs5::pbes2::Kdf;

use super::der::element;
use super::store::StoreProblem;

/// Some seconds on a slow machine; keytool and openssl write between 2,048 and 600,000.
pub(super) const ITERATIONS_MAX: u64 = 10_000_000;
/// What scrypt may take of memory: openssl asks for 16 MiB.
const SCRYPT_BYTES_MAX: u128 = 256 * 1024 * 1024;
const SCRYPT_LANES_MAX: u16 = 16;
/// Deeper than any store.
const DEPTH_MAX: u32 = 32;
/// No count that is read has more digits.
const COUNT_BYTES_MAX: usize = 5;

/// Refuses a PKCS12 store that takes too long to open.
pub(super) fn check_pkcs12(der: &[u8]) -> Result<(), StoreProblem> {
    check(iterations(der, 0))
}

/// Refuses an encrypted key that takes too long, or too much memory, to open.
pub(super) fn check_key(scheme: &EncryptionScheme) -> Result<(), StoreProblem> {
    match scheme.pbes2().map(|parameters| &parameters.kdf) {
        Some(Kdf::Pbkdf2(parameters)) => check(u64::from(parameters.iteration_count)),
        Some(Kdf::Scrypt(parameters)) => {
            let bytes = 128 * u128::from(parameters.cost_parameter) * u128::from(parameters.block_size);
            if bytes <= SCRYPT_BYTES_MAX && parameters.parallelization <= SCRYPT_LANES_MAX {
                return Ok(());
            }
            Err(StoreProblem::Broken(format!(
                "its key is encrypted with scrypt that takes {bytes} bytes of memory, and at most {SCRYPT_BYTES_MAX} are given; \
                 openssl pkcs8 -topk8 -v2 aes-256-cbc makes one that can be read"
            )))
        }
        _ => Ok(()),
    }
}

fn check(iterations: u64) -> Result<(), StoreProblem> {
    if iterations <= ITERATIONS_MAX {
        return Ok(());
    }
    Err(StoreProblem::Broken(format!(
        "its password would be hashed {iterations} times before it opens, and at most {ITERATIONS_MAX} are done; make it anew with \
         fewer iterations"
    )))
}

/// The sum of all counts in the elements of `der`, as far as it is DER.
fn iterations(mut der: &[u8], depth: u32) -> u64 {
    let (mut sum, mut is_behind_salt) = (0_u64, false);
    while let Some((tag, content, rest)) = element(der) {
        match tag {
            0x02 if is_behind_salt && content.len() <= COUNT_BYTES_MAX => {
                sum = sum.saturating_add(content.iter().fold(0, |count, &byte| count << 8 | u64::from(byte)));
            }
            // A constructed element, or a string that may hold some.
            0x04 | 0x24 | 0x30 | 0x31 | 0xa0..=0xaf if depth < DEPTH_MAX => {
                sum = sum.saturating_add(iterations(content, depth + 1));
            }
            _ => {}
        }
        is_behind_salt = tag == 0x04;
        der = rest;
    }
    sum
}

#[cfg(test)]
mod tests {
    use pkcs8::pkcs5::pbes2;
    use proptest::prelude::*;

    use super::*;

    fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, 0x82][..], &(content.len() as u16).to_be_bytes(), content].concat()
    }

    /// Salt and count, as they stand in parameters.
    fn parameters(count: &[u8]) -> Vec<u8> {
        wrap(0x30, &[wrap(0x04, b"saltsalt"), wrap(0x02, count)].concat())
    }

    #[test]
    fn counts_are_found_wherever_they_stand_and_added_up() {
        let bag = |count: &[u8]| wrap(0x30, &[wrap(0x06, b"oid"), parameters(count)].concat());
        let safe = wrap(0x04, &wrap(0x30, &[bag(&[1, 0]), bag(&[0, 0x80, 0, 0, 0])].concat()));
        let mac = [wrap(0x30, b""), wrap(0x04, b"salt"), wrap(0x02, &[5])].concat();
        let store = wrap(0x30, &[wrap(0x02, &[3]), wrap(0xa0, &safe), wrap(0x30, &mac)].concat());
        assert_eq!(iterations(&store, 0), 256 + 0x8000_0000 + 5);
        let problem = check_pkcs12(&store).unwrap_err().to_string();
        assert!(problem.contains("2147483909 times") && problem.contains("fewer iterations"), "{problem}");
        assert!(check_pkcs12(&wrap(0x30, &bag(&[0x09, 0x27, 0xc0]))).is_ok(), "600,000");
        // The order of an elliptic curve stands behind a string, too.
        assert_eq!(iterations(&parameters(&[0x7f; 33]), 0), 0);
    }

    #[test]
    fn a_key_that_takes_too_long_is_refused() {
        for (count, is_taken) in [(600_000, true), (ITERATIONS_MAX as u32 + 1, false)] {
            let parameters =
                pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(count, b"saltsalt", [0; 16]).unwrap();
            assert_eq!(check_key(&EncryptionScheme::Pbes2(parameters)).is_ok(), is_taken, "{count}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = check_pkcs12(&bytes);
        }
    }
}

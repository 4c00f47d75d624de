//! PEM: blocks of base64 between `-----BEGIN` and `-----END`.
//!
//! As Kafka's reader (`DefaultSslEngineFactory.PemParser`), it does not mind text between the blocks, headers in them, nor a
//! whole store on one line, as it stands in a `.properties` file.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

/// A block.
#[derive(Debug)]
pub(super) struct Block {
    /// What follows `BEGIN`.
    pub(super) label: String,
    /// What the base64 holds.
    pub(super) der: Zeroizing<Vec<u8>>,
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// A block has no end.
    #[error("the block {0} has no end")]
    NoEnd(String),
    /// A block holds something else than base64.
    #[error("the block {0} is no base64")]
    NoBase64(String),
}

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// All blocks of a text, in order.
pub(super) fn blocks(text: &str) -> Result<Vec<Block>, PemError> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once("-----BEGIN ") {
        let (label, behind) = behind.split_once("-----").ok_or_else(|| PemError::NoEnd(shown(behind)))?;
        let label = label.trim().to_owned();
        let (body, behind) = behind.split_once("-----END").ok_or_else(|| PemError::NoEnd(label.clone()))?;
        let digits: Zeroizing<String> = Zeroizing::new(
            body.lines().filter(|line| !line.contains(':')).flat_map(str::split_whitespace).collect(),
        );
        let der = LENIENT.decode(digits.as_bytes()).map_err(|_| PemError::NoBase64(label.clone()))?;
        blocks.push(Block { label, der: Zeroizing::new(der) });
        rest = behind;
    }
    Ok(blocks)
}

fn shown(text: &str) -> String {
    text.chars().take(20).filter(|c| c.is_ascii_uppercase() || *c == ' ').collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Vec<(String, Vec<u8>)>, PemError> {
        Ok(blocks(text)?.into_iter().map(|block| (block.label, block.der.to_vec())).collect())
    }

    #[test]
    fn blocks_are_read_whatever_stands_around_them() {
        for text in [
            "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nBA==\n-----END PRIVATE KEY-----\n",
            "Bag Attributes\n x: y\r\n-----BEGIN CERTIFICATE-----\r\nAQ\r\nID\r\n-----END CERTIFICATE-----\r\nx-----BEGIN PRIVATE KEY-----\nProc-Type: 4\n\nBA\n-----END PRIVATE KEY-----",
            "-----BEGIN CERTIFICATE----- AQID -----END CERTIFICATE----- -----BEGIN PRIVATE KEY----- B A = = -----END PRIVATE KEY-----",
        ] {
            let expected =
                vec![("CERTIFICATE".to_owned(), vec![1, 2, 3]), ("PRIVATE KEY".to_owned(), vec![4])];
            assert_eq!(read(text), Ok(expected), "{text}");
        }
        assert_eq!(read("nothing"), Ok(vec![]));
    }

    #[test]
    fn what_is_broken_is_named_without_its_content() {
        for (text, error) in [
            ("-----BEGIN X-----\nAQID", PemError::NoEnd("X".to_owned())),
            ("-----BEGIN X", PemError::NoEnd("X".to_owned())),
            ("-----BEGIN X-----\n!!\n-----END X-----", PemError::NoBase64("X".to_owned())),
        ] {
            assert_eq!(read(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(-----BEGIN |-----END |X-----|[A-Z]{0,3}|\n|=|é){0,12}") {
            let _ = blocks(&text);
        }
    }
}

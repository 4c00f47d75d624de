//! ASN.1 as far as key stores need it: DER, an element at a time, within the bytes that are there.
//!
//! Tags of one byte and lengths that are told and not longer than four bytes, which is what keytool and openssl write.

/// The first element: its tag, its content, and what follows.
pub(super) fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (digits.iter().fold(0_usize, |length, &digit| length << 8 | usize::from(digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The content of the first element if it has this tag, and what follows it.
pub(super) fn tagged(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    element(der).filter(|&(first, ..)| first == tag).map(|(_, content, rest)| (content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_one_by_one_and_never_beyond_the_end() {
        let of = |der: &'static [u8]| element(der);
        assert_eq!(of(&[0x04, 2, 7, 8, 9]), Some((0x04, &[7, 8][..], &[9][..])));
        assert_eq!(of(&[0x30, 0x81, 1, 7]), Some((0x30, &[7][..], &[][..])));
        assert_eq!(of(&[0x30, 0x82, 0, 1, 7, 5]), Some((0x30, &[7][..], &[5][..])));
        for cut in [&[][..], &[0x30], &[0x30, 3, 1, 2], &[0x30, 0x82, 1], &[0x30, 0x84, 255, 255, 255, 255]] {
            assert_eq!(element(cut), None, "{cut:?}");
        }
        assert_eq!(of(&[0x30, 0x80, 0, 0]), None, "a length that is not told");
        assert_eq!(tagged(&[0x04, 1, 7], 0x04), Some((&[7][..], &[][..])));
        assert_eq!(tagged(&[0x04, 1, 7], 0x30), None);
    }
}

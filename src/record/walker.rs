//! Where the entries of a records section begin and end, while its bytes still arrive.
//!
//! A Fetch response may end a partition's records in the middle of an entry: that one waits for the next fetch
//! (`FetchResponse`, KIP-74). All message formats share offset, length and the place of the magic byte, so that one walk
//! serves them. Lengths are the peer's: every one is held against what the section and the limit allow before anyone
//! waits for it.

use super::header::size_of_entry;
use super::{Error, HEADER_BYTES, PREFIX_BYTES};

/// Bytes up to the magic byte and with it: what must be there before an entry is understood.
pub const ENTRY_FRONT_BYTES: usize = 17;
/// Least length of an entry behind its prefix: a message of magic 0 without key and value (`LegacyRecord`).
const LENGTH_MIN: usize = 14;
/// Magic 1 adds a timestamp.
const LENGTH_MIN_MAGIC_1: usize = 22;

/// The message format of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Magic {
    /// A message without timestamp, or a compressed wrapper (Kafka 0.8).
    V0,
    /// A message with timestamp, or a compressed wrapper (Kafka 0.10, KIP-32).
    V1,
    /// A record batch (Kafka 0.11, KIP-98).
    V2,
}

/// What stands at the front of the rest of a records section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An entry with all its bytes.
    Batch {
        /// Bytes of the entry, prefix included.
        size_bytes: usize,
        /// Its format.
        magic: Magic,
    },
    /// That many bytes, counted from the front, are needed before more can be said; the section holds them.
    Need(usize),
    /// The section ends before the entry does.
    Partial {
        /// Bytes of the whole entry, if its length field is there.
        size_bytes: Option<usize>,
    },
    /// The section ends here.
    End,
}

/// Looks at the next entry. `front` holds what has arrived of the section's rest, `section_bytes` counts that rest
/// whole, arrived or not. An entry over `batch_bytes_max` is an error, also when the section would cut it.
pub fn next_entry(front: &[u8], section_bytes: usize, batch_bytes_max: usize) -> Result<Entry, Error> {
    let front = &front[..front.len().min(section_bytes)];
    if section_bytes == 0 {
        return Ok(Entry::End);
    }
    let Some(prefix) = front.first_chunk::<PREFIX_BYTES>() else {
        return Ok(if section_bytes < PREFIX_BYTES {
            Entry::Partial { size_bytes: None }
        } else {
            Entry::Need(section_bytes.min(ENTRY_FRONT_BYTES))
        });
    };
    let size_bytes = entry_size(prefix, batch_bytes_max)?;
    // The magic first, whatever has arrived: what an entry is must not depend on how its bytes come.
    let Some(&magic) = front.get(ENTRY_FRONT_BYTES - 1) else {
        return Ok(if section_bytes < ENTRY_FRONT_BYTES {
            Entry::Partial { size_bytes: Some(size_bytes) }
        } else {
            Entry::Need(ENTRY_FRONT_BYTES)
        });
    };
    let magic = magic_of(magic as i8, size_bytes)?;
    Ok(if section_bytes < size_bytes {
        Entry::Partial { size_bytes: Some(size_bytes) }
    } else if front.len() < size_bytes {
        Entry::Need(size_bytes)
    } else {
        Entry::Batch { size_bytes, magic }
    })
}

fn entry_size(prefix: &[u8; PREFIX_BYTES], batch_bytes_max: usize) -> Result<usize, Error> {
    let [.., a, b, c, d] = *prefix;
    let size_bytes = size_of_entry(i32::from_be_bytes([a, b, c, d]))?;
    if size_bytes > batch_bytes_max {
        return Err(Error::OverLimit { what: "batch", size_bytes, limit_bytes: batch_bytes_max });
    }
    check_length(size_bytes, PREFIX_BYTES + LENGTH_MIN, "is less than any entry has")?;
    Ok(size_bytes)
}

fn magic_of(magic: i8, size_bytes: usize) -> Result<Magic, Error> {
    match magic {
        0 => Ok(Magic::V0),
        1 => check_length(
            size_bytes,
            PREFIX_BYTES + LENGTH_MIN_MAGIC_1,
            "is less than a message of magic 1 has",
        )
        .map(|()| Magic::V1),
        2 => check_length(size_bytes, HEADER_BYTES, "is less than a batch header").map(|()| Magic::V2),
        other => Err(Error::Magic(other)),
    }
}

fn check_length(size_bytes: usize, size_bytes_min: usize, rule: &'static str) -> Result<(), Error> {
    if size_bytes < size_bytes_min {
        return Err(Error::Invalid { what: "batch length", value: (size_bytes - PREFIX_BYTES) as i64, rule });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: usize = 1_000;

    fn entry(size_bytes: usize, magic: u8) -> Vec<u8> {
        let mut bytes = vec![0xaa; size_bytes.max(ENTRY_FRONT_BYTES)];
        bytes[8..12].copy_from_slice(&(size_bytes as i32 - 12).to_be_bytes());
        bytes[16] = magic;
        bytes
    }

    #[track_caller]
    fn check(front: &[u8], section_bytes: usize, expected: Result<Entry, Error>) {
        assert_eq!(next_entry(front, section_bytes, LIMIT), expected);
    }

    #[test]
    fn says_what_it_waits_for() {
        let batch = entry(200, 2);
        check(&[], 0, Ok(Entry::End));
        check(&[], 300, Ok(Entry::Need(17)));
        check(&batch[..11], 300, Ok(Entry::Need(17)));
        check(&batch[..12], 300, Ok(Entry::Need(17)));
        check(&batch[..17], 300, Ok(Entry::Need(200)));
        check(&batch[..199], 200, Ok(Entry::Need(200)));
        check(&batch, 200, Ok(Entry::Batch { size_bytes: 200, magic: Magic::V2 }));
        check(
            &[&batch[..], b"the next entry"].concat(),
            214,
            Ok(Entry::Batch { size_bytes: 200, magic: Magic::V2 }),
        );
    }

    #[test]
    fn a_cut_entry_is_known_as_early_as_its_magic() {
        let batch = entry(200, 2);
        check(&[], 11, Ok(Entry::Partial { size_bytes: None }));
        check(&batch[..5], 12, Ok(Entry::Need(12)));
        check(&batch[..12], 12, Ok(Entry::Partial { size_bytes: Some(200) }));
        check(&batch[..12], 199, Ok(Entry::Need(17)));
        check(&batch[..17], 199, Ok(Entry::Partial { size_bytes: Some(200) }));
        check(&batch[..199], 199, Ok(Entry::Partial { size_bytes: Some(200) }));
        // Bytes behind the section belong to the next partition.
        check(&batch, 199, Ok(Entry::Partial { size_bytes: Some(200) }));
    }

    #[test]
    fn older_formats_share_the_prefix() {
        check(&entry(26, 0), 26, Ok(Entry::Batch { size_bytes: 26, magic: Magic::V0 }));
        check(&entry(34, 1), 34, Ok(Entry::Batch { size_bytes: 34, magic: Magic::V1 }));
    }

    #[test]
    fn lengths_that_no_broker_writes_are_refused() {
        for (size_bytes, magic) in [(25, 0), (33, 1), (60, 2), (12, 2), (0, 2)] {
            let error = next_entry(&entry(size_bytes, magic), 100, LIMIT).unwrap_err();
            assert!(matches!(error, Error::Invalid { what: "batch length", .. }), "{size_bytes} {magic}");
        }
        check(&entry(200, 3), 200, Err(Error::Magic(3)));
        check(
            &entry(1_001, 2)[..12],
            20,
            Err(Error::OverLimit { what: "batch", size_bytes: 1_001, limit_bytes: LIMIT }),
        );
    }

    proptest! {
        #[test]
        fn random_bytes_give_a_bounded_answer(front: Vec<u8>, section_bytes in 0_usize..5_000) {
            match next_entry(&front, section_bytes, LIMIT) {
                Ok(Entry::Batch { size_bytes, .. }) => {
                    prop_assert!(size_bytes <= front.len() && size_bytes <= section_bytes && size_bytes <= LIMIT);
                }
                Ok(Entry::Need(bytes)) => {
                    prop_assert!(bytes > front.len() && bytes <= section_bytes && bytes <= LIMIT.max(17));
                }
                Ok(Entry::Partial { size_bytes }) => {
                    prop_assert!(size_bytes.is_none_or(|size| size > section_bytes && size <= LIMIT));
                }
                Ok(Entry::End) => prop_assert_eq!(section_bytes, 0),
                Err(_) => {}
            }
        }

        #[test]
        fn more_bytes_never_change_the_answer(size_bytes in 61_usize..400, arrived in 0_usize..400, section_bytes in 1_usize..500, magic in 0_u8..5) {
            let batch = entry(size_bytes, magic);
            let whole = next_entry(&batch, section_bytes, LIMIT);
            match next_entry(&batch[..arrived.min(size_bytes)], section_bytes, LIMIT) {
                Ok(Entry::Need(bytes)) => prop_assert!(bytes <= size_bytes),
                Ok(Entry::Partial { size_bytes: None }) => {
                    let partial = matches!(whole, Ok(Entry::Partial { .. }));
                    prop_assert!(partial);
                }
                known => prop_assert_eq!(known, whole),
            }
        }
    }
}

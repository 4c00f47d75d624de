//! Which topics of a flow a process takes, so that processes whose files name others run beside each other.
//!
//! Pure. A share is a file's `topics` and `topics.exclude`. Members of the lease's group ([`super::lease`]) tell theirs to
//! each other; who comes later leaves the topics that those before it name to them, and takes them when they have ended: each
//! topic is written by the first of those whose files name it.

use std::sync::Arc;

use bytes::{Buf, BufMut, BytesMut};

use super::filter::PatternList;
use super::settings::FlowSettings;

/// A share larger than this is not told; whoever has it writes alone.
const TOLD_BYTES_MAX: usize = 256 * 1024;

/// What a process takes of a flow's topics. Order and repetition of patterns mean nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Share {
    /// What these patterns select.
    Of {
        /// `topics`.
        topics: Vec<String>,
        /// `topics.exclude`.
        exclude: Vec<String>,
    },
    /// Not told, so it may be everything.
    Unknown,
}

/// A share of another process, ready to be matched.
#[derive(Clone, Debug)]
pub struct OtherShare {
    /// Who has it: its client id and a number of its own.
    pub holder: Arc<str>,
    /// Its patterns; `None` when they are not known or cannot be read here.
    patterns: Option<(PatternList, PatternList)>,
}

impl Share {
    /// What a flow's file says.
    pub fn of(settings: &FlowSettings) -> Share {
        let sorted = |list: &PatternList| {
            let mut patterns = list.patterns().to_vec();
            patterns.sort();
            patterns.dedup();
            patterns
        };
        let (topics, exclude) = (sorted(&settings.topics), sorted(&settings.topics_exclude));
        let bytes: usize = topics.iter().chain(&exclude).map(|pattern| 4 + pattern.len()).sum();
        if bytes > TOLD_BYTES_MAX { Share::Unknown } else { Share::Of { topics, exclude } }
    }

    /// Appends it to a member's metadata or assignment.
    pub fn put(&self, out: &mut BytesMut) {
        let Share::Of { topics, exclude } = self else { return out.put_i32(-1) };
        for patterns in [topics, exclude] {
            out.put_i32(patterns.len() as i32);
            for pattern in patterns {
                out.put_i32(pattern.len() as i32);
                out.put_slice(pattern.as_bytes());
            }
        }
    }

    /// Reads it; `None` when it is damaged.
    pub fn get(bytes: &mut &[u8]) -> Option<Share> {
        let Some(topics) = get_patterns(bytes)? else { return Some(Share::Unknown) };
        Some(Share::Of { topics, exclude: get_patterns(bytes)?? })
    }
}

impl OtherShare {
    /// The share of another process.
    pub fn new(share: &Share, holder: Arc<str>) -> OtherShare {
        let compile = |patterns: &[String]| {
            PatternList::new(&patterns.iter().map(String::as_str).collect::<Vec<_>>()).ok()
        };
        let patterns = match share {
            Share::Of { topics, exclude } => compile(topics).zip(compile(exclude)),
            Share::Unknown => None,
        };
        OtherShare { holder, patterns }
    }

    /// Whether a topic may be in it: in doubt it is.
    pub fn takes(&self, topic: &str) -> bool {
        self.patterns.as_ref().is_none_or(|(topics, exclude)| {
            topics.try_matches(topic).unwrap_or(true) && !exclude.try_matches(topic).unwrap_or(false)
        })
    }
}

/// `Some(None)` for a list that is not told.
fn get_patterns(bytes: &mut &[u8]) -> Option<Option<Vec<String>>> {
    let count = bytes.try_get_i32().ok()?;
    if count < 0 {
        return Some(None);
    }
    let mut patterns = Vec::new();
    for _ in 0..count {
        let length = usize::try_from(bytes.try_get_i32().ok()?).ok()?;
        let (pattern, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        patterns.push(String::from_utf8(pattern.to_vec()).ok()?);
    }
    Some(Some(patterns))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings(topics: &[&str], exclude: &[&str]) -> FlowSettings {
        FlowSettings {
            topics: PatternList::new(topics).unwrap(),
            topics_exclude: PatternList::new(exclude).unwrap(),
            ..FlowSettings::new("A", "B")
        }
    }

    #[test]
    fn the_same_patterns_are_the_same_share() {
        let share = |topics: &[&str], exclude: &[&str]| Share::of(&settings(topics, exclude));
        assert_eq!(share(&["a", "b"], &["x"]), share(&["b", "a", "b"], &["x"]));
        assert_ne!(share(&["a", "b"], &["x"]), share(&["a", "b"], &[]));
        // Too much to be told, and not too much to be compiled.
        let many: Vec<String> = (0..33_000).map(|number| format!("{number:04x}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let (topics, exclude) = many.split_at(many.len() / 2);
        assert_eq!(share(topics, exclude), Share::Unknown);
        assert!(matches!(share(topics, &[]), Share::Of { .. }));
    }

    #[test]
    fn a_share_takes_what_its_patterns_select_and_in_doubt_everything() {
        let other = |share: &Share| OtherShare::new(share, Arc::from("other"));
        let of = |topics: &str, exclude: &str| {
            other(&Share::Of { topics: vec![topics.to_owned()], exclude: vec![exclude.to_owned()] })
        };
        assert!(of("orders.*", "orders-tmp").takes("orders"));
        assert!(!of("orders.*", "orders-tmp").takes("orders-tmp"));
        assert!(!of("orders.*", "orders-tmp").takes("payments"));
        assert!(of("(", "x").takes("payments"), "cannot be read here");
        assert!(other(&Share::Unknown).takes("payments"));
    }

    proptest! {
        #[test]
        fn a_share_is_read_back(topics in prop::collection::vec(".{0,9}", 0..5), exclude in prop::collection::vec(".{0,9}", 0..5)) {
            for share in [Share::Of { topics, exclude }, Share::Unknown] {
                let mut out = BytesMut::new();
                share.put(&mut out);
                let mut bytes = &out[..];
                prop_assert_eq!(Share::get(&mut bytes), Some(share));
                prop_assert!(bytes.is_empty());
            }
        }

        #[test]
        fn a_damaged_share_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Share::get(&mut &bytes[..]);
        }
    }
}

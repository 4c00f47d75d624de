//! Patterns that are little more than a name, matched without an automaton: a list of thousands of topics would need
//! megabytes of it.
//!
//! Plain is what has ASCII letters, digits, `-`, `_`, a `.` (any character), an escaped sign (`\.`), and perhaps `.*` at its
//! end. Such patterns stand sorted, and a name walks down the list as down a tree: every step narrows the range of patterns
//! that begin as the name does, by its character and by `.`. No range is entered twice, so a match costs no more than the
//! list has bytes, and mostly as much as the name has.

/// Stands for a `.`; no ASCII character.
const ANY: u8 = 0xff;

/// A set of plain patterns.
#[derive(Debug, Default)]
pub(super) struct PlainPatterns {
    /// Those that are whole names, sorted.
    whole: Vec<Box<[u8]>>,
    /// Those with `.*` at their end, without it, sorted.
    beginnings: Vec<Box<[u8]>>,
}

impl PlainPatterns {
    /// The plain ones of a list, and what is left of it, in order.
    pub(super) fn split<'p>(patterns: &[&'p str]) -> (PlainPatterns, Vec<&'p str>) {
        let (mut plain, mut rest) = (PlainPatterns::default(), Vec::new());
        for &pattern in patterns {
            match parse(pattern) {
                Some((letters, End::Here)) => plain.whole.push(letters),
                Some((letters, End::Anything)) => plain.beginnings.push(letters),
                None => rest.push(pattern),
            }
        }
        for sorted in [&mut plain.whole, &mut plain.beginnings] {
            sorted.sort_unstable();
            sorted.dedup();
        }
        (plain, rest)
    }

    /// Whether one of them matches the whole of `name`.
    pub(super) fn matches(&self, name: &str) -> bool {
        find(&self.whole, name, str::is_empty)
            || find(&self.beginnings, name, |rest| !rest.contains(is_line_terminator))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Here,
    Anything,
}

/// The letters of a plain pattern; `None` for any other.
fn parse(pattern: &str) -> Option<(Box<[u8]>, End)> {
    let (pattern, end) = match pattern.strip_suffix(".*") {
        // In `\.*` the dot is a sign that is repeated; a backslash that is escaped itself is in no name.
        Some(front) if !front.ends_with('\\') => (front, End::Anything),
        _ => (pattern, End::Here),
    };
    let mut letters = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.bytes();
    while let Some(byte) = bytes.next() {
        letters.push(match byte {
            b'.' => ANY,
            b'\\' => bytes.next().filter(u8::is_ascii_punctuation)?,
            b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => byte,
            _ => return None,
        });
    }
    Some((letters.into(), end))
}

/// Whether some pattern matches the beginning of a name, with a rest that is accepted.
fn find(patterns: &[Box<[u8]>], name: &str, accepts: fn(&str) -> bool) -> bool {
    // Patterns that begin as the name does, so many characters of it, and its rest.
    let mut ranges = vec![(patterns, 0, name)];
    while let Some((patterns, depth, rest)) = ranges.pop() {
        // The shortest stands first.
        if patterns.first().is_some_and(|pattern| pattern.len() == depth) && accepts(rest) {
            return true;
        }
        let mut letters = rest.chars();
        let Some(letter) = letters.next() else { continue };
        let itself = u8::try_from(letter).ok().filter(u8::is_ascii);
        let any = (!is_line_terminator(letter)).then_some(ANY);
        for wanted in [itself, any].into_iter().flatten() {
            let narrowed = narrowed(patterns, depth, wanted);
            if !narrowed.is_empty() {
                ranges.push((narrowed, depth + 1, letters.as_str()));
            }
        }
    }
    false
}

/// Those of the sorted patterns that have this letter next; what has ended stands before all that goes on.
fn narrowed(patterns: &[Box<[u8]>], depth: usize, letter: u8) -> &[Box<[u8]>] {
    let from = patterns.partition_point(|pattern| pattern.get(depth) < Some(&letter));
    let to = patterns.partition_point(|pattern| pattern.get(depth) <= Some(&letter));
    &patterns[from..to]
}

/// What a dot does not match (`java.util.regex.Pattern`, line terminators).
fn is_line_terminator(letter: char) -> bool {
    matches!(letter, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(patterns: &[&str], matching: &[&str], others: &[&str]) {
        let (plain, rest) = PlainPatterns::split(patterns);
        assert_eq!(rest, [""; 0]);
        for name in matching {
            assert!(plain.matches(name), "{patterns:?} must match {name}");
        }
        for name in others {
            assert!(!plain.matches(name), "{patterns:?} must not match {name}");
        }
    }

    #[test]
    fn names_and_beginnings_match_as_in_java() {
        check(&[], &[], &["", "a"]);
        check(&["", "orders"], &["", "orders"], &["o", "orders2", "Orders"]);
        check(&["a.b", "axc"], &["a.b", "a-b", "a\u{e9}b", "axb", "axc"], &["ab", "a\nb", "axd", "a.bc"]);
        check(&["a\\.b", "a\\-\\_"], &["a.b", "a-_"], &["axb"]);
        check(&["pay.*", "b\\..*"], &["pay", "payments", "b.", "b.x"], &["pa", "b", "bx", "pay\n"]);
        check(&[".."], &["ab", "\u{e9}\u{e9}"], &["a", "abc"]);
    }

    #[test]
    fn what_is_more_than_a_name_is_left() {
        let patterns =
            ["a*", "a|b", "\\d", "(a)", "a\\.*", ".*a", "^a", "a$", "\\", "\u{e9}", "[a]", "a{2}", "a+.*"];
        let (_, rest) = PlainPatterns::split(&patterns);
        assert_eq!(rest, patterns);
    }

    proptest! {
        #[test]
        fn they_match_what_an_automaton_matches(
            patterns in prop::collection::vec("[ab.]{0,4}(\\.\\*)?", 0..6), names in prop::collection::vec("[ab.\u{e9}\n]{0,5}", 0..20)
        ) {
            let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
            let (plain, _) = PlainPatterns::split(&patterns);
            for name in &names {
                let is_match = |pattern: &&str| regex::Regex::new(&format!(r"\A(?:{pattern})\z")).unwrap().is_match(name);
                prop_assert_eq!(plain.matches(name), patterns.iter().any(is_match), "{:?} {}", patterns, name);
            }
        }
    }
}

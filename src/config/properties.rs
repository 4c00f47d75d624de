//! Java `.properties` text, read exactly as `java.util.Properties.load(InputStream)` reads it, with the place of
//! everything.
//!
//! Bytes are ISO-8859-1; a comment is one only at the start of a line; a backslash at the end of a line continues it;
//! `=`, `:` or white space end a key. Files that a config provider names are UTF-8 (`Properties.load(Reader)`). Invariant:
//! memory is bounded by the file, and nothing in it can panic. `protocol-tests/vectors/java/properties.json` holds what Java answers.

use super::problem::{Problem, Span};

/// The largest file that is read, in bytes.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;

const SPACE: u16 = b' ' as u16;
const TAB: u16 = b'\t' as u16;
const FORM_FEED: u16 = 0x0c;
const LF: u16 = b'\n' as u16;
const CR: u16 = b'\r' as u16;
const BACKSLASH: u16 = b'\\' as u16;
const HASH: u16 = b'#' as u16;
const BANG: u16 = b'!' as u16;
const EQUALS: u16 = b'=' as u16;
const COLON: u16 = b':' as u16;

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key, unescaped.
    pub key: String,
    /// The value, unescaped.
    pub value: String,
    /// Where the key stands.
    pub key_span: Span,
    /// Where the value stands.
    pub value_span: Span,
    /// Offset in the file of each byte of `value`, and of its end.
    offsets: Vec<usize>,
}

impl Entry {
    /// The place of a part of the value, given in bytes of `value`.
    pub fn part(&self, start: usize, end: usize) -> Span {
        let offset = |at: usize| self.offsets.get(at).copied().unwrap_or(self.value_span.end);
        Span { start: offset(start), end: offset(end).max(offset(start)) }
    }

    /// The same place with another key and value.
    pub(super) fn rewritten(&self, key: String, value: String) -> Entry {
        let offsets = vec![self.value_span.start; value.len() + 1];
        Entry { key, value, key_span: self.key_span, value_span: self.value_span, offsets }
    }

    /// The same entry of a file that begins further behind.
    pub(super) fn shifted(mut self, by: usize) -> Entry {
        let shift = |span: Span| Span { start: span.start + by, end: span.end + by };
        (self.key_span, self.value_span) = (shift(self.key_span), shift(self.value_span));
        self.offsets.iter_mut().for_each(|offset| *offset += by);
        self
    }

    /// The whole entry.
    pub fn span(&self) -> Span {
        Span { start: self.key_span.start, end: self.value_span.end }
    }
}

/// Everything in a file, in its order, duplicates too, and what is malformed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// The entries.
    pub entries: Vec<Entry>,
    /// What cannot be read.
    pub problems: Vec<Problem>,
}

/// A character of a logical line and its place.
#[derive(Clone, Copy)]
struct Placed {
    unit: u16,
    at: usize,
}

/// Reads a file.
pub fn parse(bytes: &[u8]) -> Properties {
    parse_behind(bytes, 0)
}

/// Reads a file but for its first bytes.
pub fn parse_behind(bytes: &[u8], skipped: usize) -> Properties {
    let units = bytes.iter().enumerate().skip(skipped);
    parse_units(units.map(|(at, &byte)| Placed { unit: u16::from(byte), at }).collect())
}

/// Reads text that was decoded already.
pub fn parse_text(text: &str) -> Properties {
    let mut buffer = [0; 2];
    let units = text.char_indices().flat_map(|(at, c)| {
        c.encode_utf16(&mut buffer).iter().map(|&unit| Placed { unit, at }).collect::<Vec<_>>()
    });
    parse_units(units.collect())
}

fn parse_units(units: Vec<Placed>) -> Properties {
    let mut properties = Properties::default();
    let mut lines = Lines { units: &units, at: 0 };
    let mut line = Vec::new();
    while lines.read(&mut line) {
        let (key, value) = split(&line);
        let end = line.last().map_or(0, |last| last.at + 1);
        let key_start = line.first().map_or(0, |first| first.at);
        let key_end = key.last().map_or(key_start, |last| last.at + 1);
        let value_start = value.first().map_or(end, |first| first.at);
        match (convert(key), convert(value)) {
            (Ok((key, _)), Ok((value, mut offsets))) => {
                offsets.push(end);
                properties.entries.push(Entry {
                    key,
                    value,
                    key_span: (key_start..key_end).into(),
                    value_span: (value_start..end).into(),
                    offsets,
                });
            }
            (key, value) => {
                let malformed = [key.err(), value.err()].into_iter().flatten();
                properties.problems.extend(malformed.map(|span| {
                    Problem::error("a \\u is not followed by four hexadecimal digits")
                        .at(span)
                        .help("write \\\\ for a backslash")
                }));
            }
        }
    }
    properties
}

struct Lines<'a> {
    units: &'a [Placed],
    at: usize,
}

impl Lines<'_> {
    fn next(&mut self) -> Option<Placed> {
        let next = *self.units.get(self.at)?;
        self.at += 1;
        Some(next)
    }

    /// The next logical line, its continuations joined; false at the end of the file.
    fn read(&mut self, line: &mut Vec<Placed>) -> bool {
        line.clear();
        let (mut skipping, mut continued, mut backslash) = (true, false, false);
        while let Some(next) = self.next() {
            let ends = matches!(next.unit, LF | CR);
            if skipping {
                if is_blank(next.unit) || (!continued && ends) {
                    continue;
                }
                (skipping, continued) = (false, false);
            }
            if line.is_empty() && matches!(next.unit, HASH | BANG) {
                self.skip_line();
                skipping = true;
            } else if !ends {
                line.push(next);
                backslash = next.unit == BACKSLASH && !backslash;
            } else if line.is_empty() {
                skipping = true;
            } else if backslash {
                line.pop();
                (skipping, continued, backslash) = (true, true, false);
                if next.unit == CR && self.units.get(self.at).is_some_and(|next| next.unit == LF) {
                    self.at += 1;
                }
            } else {
                return true;
            }
        }
        if backslash {
            line.pop();
            // Java returns the line even when nothing is left of it.
            return true;
        }
        !line.is_empty()
    }

    fn skip_line(&mut self) {
        while self.next().is_some_and(|next| !matches!(next.unit, LF | CR)) {}
    }
}

fn is_blank(unit: u16) -> bool {
    matches!(unit, SPACE | TAB | FORM_FEED)
}

fn split(line: &[Placed]) -> (&[Placed], &[Placed]) {
    let mut backslash = false;
    let key_end = line.iter().position(|next| {
        let ends = !backslash && (is_blank(next.unit) || matches!(next.unit, EQUALS | COLON));
        backslash = next.unit == BACKSLASH && !backslash;
        ends
    });
    let Some(key_end) = key_end else { return (line, &[]) };
    let (key, rest) = line.split_at(key_end);
    let mut separated = false;
    let value_start = rest.iter().position(|next| {
        let separates = !separated && matches!(next.unit, EQUALS | COLON);
        separated |= separates;
        !separates && !is_blank(next.unit)
    });
    (key, &rest[value_start.unwrap_or(rest.len())..])
}

/// Unescapes, and gives the place of each byte of the result; the error is the place of a malformed `\u`.
fn convert(line: &[Placed]) -> Result<(String, Vec<usize>), Span> {
    let mut units = Vec::with_capacity(line.len());
    let mut rest = line.iter();
    while let Some(next) = rest.next() {
        let unit = match (next.unit, rest.as_slice().first()) {
            (BACKSLASH, Some(escaped)) => {
                rest.next();
                match u8::try_from(escaped.unit) {
                    Ok(b'u') => unicode(&mut rest).ok_or(Span { start: next.at, end: escaped.at + 1 })?,
                    Ok(b't') => TAB,
                    Ok(b'r') => CR,
                    Ok(b'n') => LF,
                    Ok(b'f') => FORM_FEED,
                    _ => escaped.unit,
                }
            }
            (unit, _) => unit,
        };
        units.push((unit, next.at));
    }
    Ok(decode(&units))
}

fn unicode(rest: &mut std::slice::Iter<'_, Placed>) -> Option<u16> {
    let mut unit = 0;
    for _ in 0..4 {
        let digit = char::from_u32(rest.next()?.unit.into())?.to_digit(16)?;
        unit = unit * 16 + digit as u16;
    }
    Some(unit)
}

/// Java's strings are UTF-16; a surrogate without its other half becomes U+FFFD.
fn decode(units: &[(u16, usize)]) -> (String, Vec<usize>) {
    let mut text = String::with_capacity(units.len());
    let mut offsets = Vec::with_capacity(units.len());
    let mut index = 0;
    for decoded in char::decode_utf16(units.iter().map(|&(unit, _)| unit)) {
        let place = units[index].1;
        index += decoded.as_ref().map_or(1, |c| c.len_utf16());
        text.push(decoded.unwrap_or(char::REPLACEMENT_CHARACTER));
        offsets.resize(text.len(), place);
    }
    (text, offsets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(bytes: &[u8]) -> Vec<(String, String)> {
        parse(bytes).entries.into_iter().map(|entry| (entry.key, entry.value)).collect()
    }

    /// The vectors were recorded from Java 17 by `PropertiesVectors.java` beside them; each holds the bytes of a file and the
    /// entries in Java's order of reading, or null where Java throws.
    #[test]
    fn files_are_read_as_java_reads_them() {
        let vectors = include_str!("../../protocol-tests/vectors/java/properties.json");
        let vectors: serde_json::Value = serde_json::from_str(vectors).unwrap();
        for vector in vectors.as_array().unwrap() {
            let file = vector["file"].as_str().unwrap();
            let bytes: Vec<u8> = file.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
            let parsed = parse(&bytes);
            let Some(entries) = vector["entries"].as_array() else {
                assert!(!parsed.problems.is_empty(), "{file:?} is refused by Java");
                continue;
            };
            let wanted: Vec<(String, String)> = entries
                .iter()
                .map(|pair| (pair[0].as_str().unwrap().to_owned(), pair[1].as_str().unwrap().to_owned()))
                .collect();
            assert_eq!(pairs(&bytes), wanted, "{file:?}");
            assert_eq!(parsed.problems, [], "{file:?}");
        }
    }

    #[test]
    fn everything_knows_its_place() {
        let file = b"# c\n a.b = x,\\\n   y # z\nk\\u0041:v\\u00e9w\n";
        let parsed = parse(file);
        let text = |span: Span| std::str::from_utf8(&file[span.start..span.end]).unwrap();
        let first = &parsed.entries[0];
        assert_eq!((text(first.key_span), text(first.value_span)), ("a.b", "x,\\\n   y # z"));
        let hash = first.value.find('#').unwrap();
        assert_eq!(text(first.part(hash, first.value.len())), "# z");
        assert_eq!(text(first.part(2, 3)), "y");
        let second = &parsed.entries[1];
        assert_eq!((second.key.as_str(), second.value.as_str()), ("kA", "v\u{e9}w"));
        assert_eq!(text(second.part(3, 4)), "w");
        assert_eq!(text(second.part(1, 3)), "\\u00e9");
    }

    #[test]
    fn decoded_text_keeps_its_characters() {
        let parsed = parse_text("k\u{e9}=\\\u{e9}\u{1f600}x\nb=\u{20ac}");
        let pairs: Vec<(&str, &str)> =
            parsed.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str())).collect();
        assert_eq!(pairs, [("k\u{e9}", "\u{e9}\u{1f600}x"), ("b", "\u{20ac}")]);
    }

    #[test]
    fn a_malformed_escape_is_a_problem_with_its_place_and_hides_nothing_else() {
        let parsed = parse(b"a=1\nb=\\u12x4\nc\\uzz=2\nd=3");
        let places: Vec<Span> = parsed.problems.iter().filter_map(|problem| problem.span).collect();
        assert_eq!(places, [Span { start: 6, end: 8 }, Span { start: 14, end: 16 }]);
        assert_eq!(pairs(b"a=1\nb=\\u12x4\nc\\uzz=2\nd=3").len(), 2);
    }

    proptest! {
        #[test]
        fn no_file_panics_and_all_places_lie_inside(bytes in proptest::collection::vec(
            prop_oneof![Just(b'\\'), Just(b'u'), Just(b'\n'), Just(b'\r'), Just(b' '), Just(b'='), Just(b'#'),
                Just(b'd'), Just(b'8'), any::<u8>()], 0..200)) {
            let parsed = parse(&bytes);
            for entry in &parsed.entries {
                prop_assert!(entry.key_span.start <= entry.key_span.end && entry.key_span.end <= bytes.len());
                prop_assert!(entry.value_span.start <= entry.value_span.end && entry.value_span.end <= bytes.len());
                for at in 0..=entry.value.len() {
                    prop_assert!(entry.part(at, entry.value.len()).end <= bytes.len());
                }
            }
        }
    }
}

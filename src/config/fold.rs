//! Characters of full width and other look-alikes that editors and web pages put in the place of ASCII: `，` `＝` `：` `＃` `→`
//! `–>`, spaces that do not break, a byte order mark.
//!
//! Java reads a file as ISO-8859-1, so that each of them comes as two or three characters that mean nothing. They are read
//! as what they look like, in keys and in values that cannot hold them; free text and secrets are left as they are.

use super::keys;
use super::problem::{Problem, SourceText};
use super::properties::Entry;

/// The text with look-alikes as ASCII; `None` when it has none.
pub(super) fn fold(text: &str) -> Option<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut folded = String::with_capacity(text.len());
    let (mut at, mut changed) = (0, false);
    while let Some(&c) = chars.get(at) {
        match look_alike(&chars[at..]) {
            Some((length, ascii)) => {
                folded.push_str(&ascii);
                at += length;
                changed = true;
            }
            None => {
                folded.push(c);
                at += 1;
            }
        }
    }
    changed.then_some(folded)
}

/// A look-alike in UTF-8, a character for each byte: how many characters, and what it stands for.
fn look_alike(chars: &[char]) -> Option<(usize, String)> {
    let code = |at: usize| chars.get(at).map(|&c| u32::from(c));
    let (first, second, third) = (code(0)?, code(1), code(2));
    let ascii = |code: u32| char::from_u32(code).map(String::from);
    let found = match (first, second?, third) {
        (0xc2, 0xa0, _) => return Some((2, " ".to_owned())),
        // U+FF01 to U+FF5E are ASCII's characters from ! on, in full width.
        (0xef, 0xbc, Some(last @ 0x81..=0xbf)) => ascii(last - 0x81 + 0x21)?,
        (0xef, 0xbd, Some(last @ 0x80..=0x9e)) => ascii(last - 0x80 + 0x60)?,
        (0xe3, 0x80, Some(0x80)) => " ".to_owned(),
        (0xe3, 0x80, Some(0x81)) => ",".to_owned(),
        (0xe2, 0x86, Some(0x92)) => "->".to_owned(),
        (0xe2, 0x80, Some(0x93 | 0x94)) if code(3) == Some(u32::from('>')) => "-".to_owned(),
        (0xe2, 0x80, Some(0x8b)) | (0xef, 0xbb, Some(0xbf)) => String::new(),
        _ => return None,
    };
    Some((3, found))
}

/// Folds the keys of a file; secrets that stood in a key are blanked out in `source`.
pub(super) fn keys(entries: &mut Vec<Entry>, source: &mut SourceText, problems: &mut Vec<Problem>) {
    entries.retain_mut(|entry| {
        let separated = separator(&entry.value).map(|behind| entry.value[behind..].trim_start().to_owned());
        let folded = fold(&entry.key);
        if folded.is_none() && separated.is_none() {
            return true;
        }
        let key = folded.unwrap_or_else(|| entry.key.clone()).trim().to_owned();
        let (key, value) = match key.split_once(['=', ':']) {
            // The separator was none for Java, so that the key went on up to the next space.
            Some((key, start)) => {
                let between = source.text.get(entry.key_span.end..entry.value_span.start).unwrap_or_default();
                let separator = if entry.value.is_empty() { "" } else { between.trim() };
                let space = if separator.is_empty() { " " } else { separator };
                (key.trim_end().to_owned(), format!("{start}{space}{}", entry.value).trim().to_owned())
            }
            None => (key, separated.unwrap_or_else(|| entry.value.clone())),
        };
        if keys::is_secret(&key) {
            source.mask(entry.span());
        }
        let is_comment = key.starts_with(['#', '!']);
        let message = if is_comment {
            "what follows a # of full width is taken for a comment".to_owned()
        } else {
            format!("{key} is written with look-alikes of ASCII characters, and read as ASCII")
        };
        let problem = Problem::warning(message).at(entry.key_span).help("write it in ASCII");
        let theirs = if keys::is_secret(&key) {
            "reads another key, which it does not know".to_owned()
        } else {
            format!("reads the key {:?}, which it does not know", entry.key)
        };
        problems.push(problem.mirror_maker(theirs));
        *entry = entry.rewritten(key, value);
        !is_comment
    });
}

/// `A -> B.topics = x`: for Java the blank ends the key, and the rest is its value.
pub(super) fn arrows(entries: &mut [Entry], source: &SourceText, problems: &mut Vec<Problem>) {
    for entry in entries {
        let Some(rest) = entry.value.strip_prefix("->").filter(|_| !entry.key.contains(['.', '>'])) else {
            continue;
        };
        let Some(end) = rest.trim_start().find(|c: char| c == '=' || c == ':' || c.is_whitespace()) else {
            continue;
        };
        let rest = rest.trim_start();
        let value = rest[end..].trim_start();
        let value = value.strip_prefix(['=', ':']).unwrap_or(value).trim_start().to_owned();
        let key = format!("{}->{}", entry.key, &rest[..end]);
        let (line, _) = source.position(entry.key_span.start);
        let problem = Problem::warning(format!("the key in line {line} is read as {key}, without blanks"));
        let theirs = format!("reads the key {:?}, which it does not know", entry.key);
        problems.push(problem.at(entry.key_span).help(format!("write {key}")).mirror_maker(theirs));
        *entry = entry.rewritten(key, value);
    }
}

/// Behind a `＝` or `：` at the start of a value, which Java took for a part of it.
fn separator(value: &str) -> Option<usize> {
    ["\u{ef}\u{bc}\u{9d}", "\u{ef}\u{bc}\u{9a}"]
        .iter()
        .find_map(|separator| value.starts_with(separator).then_some(separator.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latin(text: &str) -> String {
        text.bytes().map(char::from).collect()
    }

    #[test]
    fn look_alikes_become_ascii_and_nothing_else_does() {
        for (text, folded) in [
            ("A，B", Some("A,B")),
            ("A－>B．enabled＝ｔｒｕｅ", Some("A->B.enabled=true")),
            ("A→B", Some("A->B")),
            ("A–>B", Some("A->B")),
            ("\u{feff}clusters", Some("clusters")),
            ("a\u{3000}b\u{a0}c\u{200b}d", Some("a b cd")),
            ("ａｂ～", Some("ab~")),
            ("A, B", None),
            ("caf\u{e9} – x", None),
            ("日本", None),
        ] {
            assert_eq!(fold(&latin(text)).as_deref(), folded, "{text}");
        }
    }
}

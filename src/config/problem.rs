//! What is wrong with a file: all of it at once, each with its place.

use std::fmt;
use std::ops::Range;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing can run.
    Error,
    /// It runs, but perhaps not as the user believes.
    Warning,
    /// Good to know.
    Info,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "info",
        })
    }
}

/// Bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset behind the last byte.
    pub end: usize,
}

impl Span {
    /// Whether both have a byte in common.
    pub fn overlaps(self, other: Span) -> bool {
        self.start < other.end && other.start < self.end
    }
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Span {
        Span { start: range.start, end: range.end }
    }
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, without secrets.
    pub message: String,
    /// Where; `None` when it is not in the file.
    pub span: Option<Span>,
    /// What to do.
    pub help: Option<String>,
    /// What MirrorMaker itself does with it, where that is something else.
    pub mirror_maker: Option<String>,
}

impl Problem {
    /// A problem that keeps everything from running.
    pub fn error(message: impl Into<String>) -> Problem {
        Problem::new(Severity::Error, message.into())
    }

    /// A problem that the user should know of.
    pub fn warning(message: impl Into<String>) -> Problem {
        Problem::new(Severity::Warning, message.into())
    }

    /// A remark.
    pub fn info(message: impl Into<String>) -> Problem {
        Problem::new(Severity::Info, message.into())
    }

    fn new(severity: Severity, message: String) -> Problem {
        Problem { severity, message, span: None, help: None, mirror_maker: None }
    }

    /// The same problem at a place.
    pub fn at(mut self, span: Span) -> Problem {
        self.span = Some(span);
        self
    }

    /// The same problem with advice.
    pub fn help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(help.into());
        self
    }

    /// The same problem with what MirrorMaker does: a sentence without its subject.
    pub fn mirror_maker(mut self, does: impl Into<String>) -> Problem {
        self.mirror_maker = Some(does.into());
        self
    }

    /// The same problem where its file begins further behind.
    pub fn shifted(mut self, by: usize) -> Problem {
        self.span = self.span.map(|span| Span { start: span.start + by, end: span.end + by });
        self
    }

    /// The same problem with its place counted from the beginning of its file.
    pub fn within(mut self, start: usize) -> Problem {
        let back = |at: usize| at.saturating_sub(start);
        self.span = self.span.map(|span| Span { start: back(span.start), end: back(span.end) });
        self
    }

    /// Two problems of one line as one: what is worse stands first, and at its place.
    pub(super) fn and(self, other: Problem) -> Problem {
        let (first, second) = if other.severity < self.severity { (other, self) } else { (self, other) };
        let both = |first: Option<String>, second: Option<String>| match (first, second) {
            (Some(first), Some(second)) if first.contains(&second) => Some(first),
            (Some(first), Some(second)) => Some(format!("{first}; {second}")),
            (first, second) => first.or(second),
        };
        Problem {
            severity: first.severity,
            message: format!("{}; {}", first.message, second.message),
            span: first.span.or(second.span),
            help: both(first.help, second.help),
            mirror_maker: both(first.mirror_maker, second.mirror_maker),
        }
    }

    pub(super) fn printable(self) -> Problem {
        let help = self.help.map(|help| help.lines().map(printable).collect::<Vec<_>>().join("\n"));
        Problem { message: printable(&self.message), help, ..self }
    }
}

/// A text of one line without what a terminal would obey.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// The text of a file for messages: its bytes without secrets, under the same offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceText {
    /// How the user called it.
    pub name: String,
    /// The text.
    pub text: String,
    /// Where lines begin behind the first.
    line_starts: Vec<usize>,
    /// Where there are several files in it, one behind the other: where each begins, and how it is called.
    parts: Vec<(usize, String)>,
}

impl SourceText {
    /// Takes the bytes of a file; what is no UTF-8, and what a terminal would obey, becomes `?`, byte by byte.
    pub fn new(name: &str, bytes: &[u8]) -> SourceText {
        let mut text = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter.is_control() && !matches!(letter, '\n' | '\r' | '\t') {
                    true => text.extend(std::iter::repeat_n('?', letter.len_utf8())),
                    false => text.push(letter),
                }
            }
            text.extend(chunk.invalid().iter().map(|_| '?'));
        }
        let line_starts = line_starts(&text);
        SourceText { name: name.to_owned(), text, line_starts, parts: Vec::new() }
    }

    /// Puts another file behind; answers where it begins.
    pub(super) fn append(&mut self, name: &str, bytes: &[u8]) -> usize {
        let start = self.text.len();
        self.text.push_str(&SourceText::new(name, bytes).text);
        self.text.push('\n');
        self.line_starts = line_starts(&self.text);
        self.parts.push((start, name.to_owned()));
        start
    }

    /// The file that an offset lies in: where it begins, its name, and its text.
    pub fn file_at(&self, offset: usize) -> (usize, &str, &str) {
        let next = self.parts.partition_point(|(start, _)| *start <= offset);
        let end = self.parts.get(next).map_or(self.text.len(), |(start, _)| *start);
        let (start, name) = match next.checked_sub(1).and_then(|index| self.parts.get(index)) {
            Some((start, name)) => (*start, name.as_str()),
            None => (0, self.name.as_str()),
        };
        (start, name, self.text.get(start..end).unwrap_or_default())
    }

    /// Blanks a part out, but keeps its lines.
    pub fn mask(&mut self, span: Span) {
        let Some(secret) = self.text.get(span.start..span.end) else { return };
        let masked: String = secret
            .bytes()
            .map(|byte| if matches!(byte, b'\n' | b'\r') { char::from(byte) } else { '*' })
            .collect();
        self.text.replace_range(span.start..span.end, &masked);
    }

    /// Line and column of an offset within its file, both from one; columns count characters.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let offset = if self.text.is_char_boundary(offset) { offset } else { self.text.len() };
        let (start, ..) = self.file_at(offset);
        let lines_before = |at: usize| self.line_starts.partition_point(|&line| line <= at);
        let (line, first) = (lines_before(offset), lines_before(start));
        let line_start = line.checked_sub(1).map_or(0, |index| self.line_starts[index]);
        (line - first + 1, self.text[line_start..offset].chars().count() + 1)
    }

    /// The line in which an offset is, without its end.
    pub fn line(&self, offset: usize) -> &str {
        let line = self.line_starts.partition_point(|&start| start <= offset);
        let start = line.checked_sub(1).map_or(0, |index| self.line_starts[index]);
        let end = self.line_starts.get(line).map_or(self.text.len(), |&next| next);
        self.text[start..end].trim_end_matches(['\n', '\r'])
    }
}

/// Lines end at CR, LF or both.
fn line_starts(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let ends = |at: usize| match bytes[at] {
        b'\n' => true,
        b'\r' => bytes.get(at + 1) != Some(&b'\n'),
        _ => false,
    };
    (0..bytes.len()).filter(|&at| ends(at)).map(|at| at + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_of_all_three_kinds() {
        let source = SourceText::new("f", b"a\r\nb\rc\n\xffd\xc3\xa4e");
        for (offset, position) in
            [(0, (1, 1)), (3, (2, 1)), (5, (3, 1)), (7, (4, 1)), (11, (4, 4)), (99, (4, 5))]
        {
            assert_eq!(source.position(offset), position, "{offset}");
        }
    }

    #[test]
    fn a_terminal_obeys_nothing_of_a_file() {
        let source = SourceText::new("f", "a\u{1b}[2J\tb\u{9b}c".as_bytes());
        assert_eq!(source.text, "a?[2J\tb??c");
        let problem = Problem::error("key \u{1b}]0;x\u{7} is not known".to_owned()).printable();
        assert_eq!(problem.message, "key \u{fffd}]0;x\u{fffd} is not known");
    }

    #[test]
    fn two_problems_of_one_line_are_one() {
        let info = Problem::info("a has no effect").at((0..1).into()).help("leave it out");
        let warning = Problem::warning("a: 1 is too small").at((4..5).into()).mirror_maker("refuses 1");
        for joined in [info.clone().and(warning.clone()), warning.and(info)] {
            let wanted = Problem::warning("a: 1 is too small; a has no effect").at((4..5).into());
            assert_eq!(joined, wanted.help("leave it out").mirror_maker("refuses 1"));
        }
        let twice = Problem::info("x").help("write b").and(Problem::info("y").help("write b"));
        assert_eq!((twice.message.as_str(), twice.help.as_deref()), ("x; y", Some("write b")));
    }

    #[test]
    fn a_mask_keeps_offsets_and_lines() {
        let mut source = SourceText::new("f", "p=s\u{e4}c\\\nret\nx".as_bytes());
        source.mask(Span { start: 2, end: 11 });
        assert_eq!(source.text, "p=*****\n***\nx");
    }
}

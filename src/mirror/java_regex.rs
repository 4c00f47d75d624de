//! Translates `java.util.regex` syntax into that of the `regex` and `fancy-regex` crates.
//!
//! Users write their topic lists for Java. Most of it means the same here, but some of it is read differently without a
//! word (`a*+` is possessive in Java and a nested repetition here, `[[:x:]]`, `--` and `~~` in classes, `\v`, `(?U)`), so
//! that every construct is parsed and written anew, never passed through. What has no counterpart is an error.
//!
//! Invariant: the output is balanced, so it can be wrapped in a group; anything that only a backtracking engine can do
//! (look-around, atomic groups, back references) sets [`Translation::backtracks`].
//! The rules are those of `java.util.regex.Pattern` without flags: `\d`, `\w`, `\s` are ASCII.

use std::fmt::Write as _;

/// Nesting deeper than this is refused, so that no recursion depends on a file.
const NESTING_MAX: usize = 100;

/// A pattern in the syntax of `regex` and `fancy-regex`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Translation {
    /// The pattern.
    pub(super) pattern: String,
    /// Whether it needs `fancy-regex`.
    pub(super) backtracks: bool,
}

/// Translates a whole pattern; the error says what is wrong, in words for people.
pub(super) fn translate(pattern: &str) -> Result<Translation, String> {
    let mut translator = Translator {
        input: unquoted(pattern),
        at: 0,
        out: String::with_capacity(pattern.len() + 16),
        backtracks: false,
        comments: false,
        groups: Vec::new(),
        atom: None,
    };
    while let Some(next) = translator.next() {
        translator.step(next)?;
    }
    if !translator.groups.is_empty() {
        return Err("a group is not closed".to_owned());
    }
    Ok(Translation { pattern: translator.out, backtracks: translator.backtracks })
}

struct Translator {
    input: Vec<char>,
    at: usize,
    out: String,
    backtracks: bool,
    /// The `x` flag: white space and comments are dropped here and the flag is never written.
    comments: bool,
    groups: Vec<Group>,
    /// Where in `out` the thing starts that a quantifier would repeat.
    atom: Option<usize>,
}

struct Group {
    start: usize,
    comments: bool,
}

impl Translator {
    fn peek(&self) -> Option<char> {
        self.input.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += 1;
        Some(next)
    }

    fn eat(&mut self, wanted: char) -> bool {
        let hit = self.peek() == Some(wanted);
        self.at += usize::from(hit);
        hit
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(index, wanted)| self.input.get(self.at + index) == Some(&wanted))
    }

    fn step(&mut self, next: char) -> Result<(), String> {
        if self.comments && self.skip_comment(next) {
            return Ok(());
        }
        let start = self.out.len();
        match next {
            '(' => return self.open_group(),
            ')' => return self.close_group(),
            '|' => {
                self.out.push('|');
                self.atom = None;
                return Ok(());
            }
            '*' | '+' | '?' => return self.quantifier(&next.to_string()),
            '{' => return self.counted(),
            '[' => self.class(0)?,
            '\\' => self.escape_outside()?,
            '^' | '$' | '.' => self.out.push(next),
            _ => push_literal(&mut self.out, next),
        }
        self.atom = Some(start);
        Ok(())
    }

    fn skip_comment(&mut self, next: char) -> bool {
        if next == '#' {
            while self.next().is_some_and(|next| next != '\n') {}
        }
        next == '#' || next.is_ascii_whitespace() || next == '\x0b'
    }

    fn open_group(&mut self) -> Result<(), String> {
        if self.groups.len() >= NESTING_MAX {
            return Err(format!("groups are nested deeper than {NESTING_MAX}"));
        }
        let group = Group { start: self.out.len(), comments: self.comments };
        self.atom = None;
        if !self.eat('?') {
            self.out.push('(');
        } else if let Some(opening) =
            ["?<=", "?<!", "?=", "?!", "?>"].iter().find(|o| self.starts_with(&o[1..]))
        {
            self.at += opening.len() - 1;
            self.backtracks = true;
            write!(self.out, "({opening}").unwrap_or_default();
        } else if self.eat('<') {
            let name = self.until('>', "a group's name")?;
            if !name.starts_with(|c: char| c.is_ascii_alphabetic())
                || !name.chars().all(|c| c.is_ascii_alphanumeric())
            {
                return Err(format!("{name:?} is no name for a group"));
            }
            write!(self.out, "(?P<{name}>").unwrap_or_default();
        } else if !self.flags()? {
            return Ok(());
        }
        self.groups.push(group);
        Ok(())
    }

    /// `(?i)` and `(?i:`; true when a group was opened.
    fn flags(&mut self) -> Result<bool, String> {
        let (mut on, mut off, mut negated) = (String::new(), String::new(), false);
        let opens = loop {
            match self.next() {
                Some('-') if !negated => negated = true,
                Some('x') => self.comments = !negated,
                Some(flag @ ('i' | 'm' | 's')) => if negated { &mut off } else { &mut on }.push(flag),
                // Unix lines and Unicode case change nothing for names.
                Some('d' | 'u') => {}
                Some(':') => break true,
                Some(')') => break false,
                Some(other) => return Err(format!("(?{other} is not known")),
                None => return Err("a group is not closed".to_owned()),
            }
        };
        let separator = if off.is_empty() { "" } else { "-" };
        if opens {
            write!(self.out, "(?{on}{separator}{off}:").unwrap_or_default();
        } else if !on.is_empty() || !off.is_empty() {
            write!(self.out, "(?{on}{separator}{off})").unwrap_or_default();
        }
        Ok(opens)
    }

    fn close_group(&mut self) -> Result<(), String> {
        let group = self.groups.pop().ok_or("a ) closes nothing")?;
        self.out.push(')');
        self.comments = group.comments;
        self.atom = Some(group.start);
        Ok(())
    }

    fn quantifier(&mut self, quantifier: &str) -> Result<(), String> {
        let Some(start) = self.atom.take() else {
            return Err(format!("{quantifier} repeats nothing"));
        };
        self.out.push_str(quantifier);
        if self.eat('+') {
            self.backtracks = true;
            self.out.insert_str(start, "(?>");
            self.out.push(')');
        } else if self.eat('?') {
            self.out.push('?');
        }
        Ok(())
    }

    fn counted(&mut self) -> Result<(), String> {
        let text = self.until('}', "a repetition")?;
        let (low, high) = text.split_once(',').unwrap_or((&text, ""));
        let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{{{text}}} is no repetition"));
        let least = number(low)?;
        if !high.is_empty() && number(high)? < least {
            return Err(format!("{{{text}}} has its limits in the wrong order"));
        }
        if self.atom.is_none() {
            // Java reads an empty string before it.
            return Ok(());
        }
        self.quantifier(&format!("{{{text}}}"))
    }

    fn until(&mut self, end: char, what: &str) -> Result<String, String> {
        let mut text = String::new();
        loop {
            match self.next() {
                Some(next) if next == end => return Ok(text),
                Some(next) => text.push(next),
                None => return Err(format!("{what} is not closed")),
            }
        }
    }

    fn escape_outside(&mut self) -> Result<(), String> {
        match self.peek() {
            Some(boundary @ ('b' | 'B')) => {
                self.at += 1;
                write!(self.out, "\\{boundary}").unwrap_or_default();
            }
            Some('A' | 'G') => self.replace("\\A"),
            Some('z' | 'Z') => self.replace("\\z"),
            Some('R') => self.replace("(?:\\r\\n|[\\n\\x0B\\f\\r\\x{85}\\x{2028}\\x{2029}])"),
            Some('k') => {
                self.at += 1;
                if !self.eat('<') {
                    return Err("\\k is not followed by a group's name".to_owned());
                }
                let name = self.until('>', "a group's name")?;
                self.backtracks = true;
                write!(self.out, "(?P={name})").unwrap_or_default();
            }
            Some(digit @ '1'..='9') => {
                self.at += 1;
                self.backtracks = true;
                write!(self.out, "(?:\\{digit})").unwrap_or_default();
            }
            _ => {
                let item = self.escape()?;
                item.write(&mut self.out);
            }
        }
        Ok(())
    }

    fn replace(&mut self, text: &str) {
        self.at += 1;
        self.out.push_str(text);
    }

    /// A character class, after its `[`.
    fn class(&mut self, depth: usize) -> Result<(), String> {
        if depth >= NESTING_MAX {
            return Err(format!("classes are nested deeper than {NESTING_MAX}"));
        }
        self.out.push('[');
        if self.eat('^') {
            self.out.push('^');
        }
        let mut empty = true;
        loop {
            let next = self.next().ok_or("a character class is not closed")?;
            match next {
                ']' if !empty => break,
                '[' => self.class(depth + 1)?,
                '&' if self.eat('&') => {
                    self.intersection(empty)?;
                    continue;
                }
                _ if self.comments && self.skip_comment(next) => {}
                _ => self.class_item(next)?,
            }
            empty = false;
        }
        self.out.push(']');
        Ok(())
    }

    /// `&&` in a class; without one of its sides it means nothing.
    fn intersection(&mut self, empty: bool) -> Result<(), String> {
        match self.peek() {
            Some('&') => return Err("&&& has no clear meaning in a character class".to_owned()),
            Some(']') | None => {}
            Some(_) if empty => {}
            Some(_) => self.out.push_str("&&"),
        }
        Ok(())
    }

    fn class_item(&mut self, next: char) -> Result<(), String> {
        let first = if next == '\\' { self.escape()? } else { Item::Literal(next) };
        first.write(&mut self.out);
        let Item::Literal(low) = first else { return Ok(()) };
        let ends_range = |after: Option<&char>| after.is_some_and(|&after| after != ']' && after != '[');
        if self.peek() != Some('-') || !ends_range(self.input.get(self.at + 1)) {
            return Ok(());
        }
        self.at += 1;
        let last = match self.next() {
            Some('\\') => self.escape()?,
            Some(other) => Item::Literal(other),
            None => return Err("a character class is not closed".to_owned()),
        };
        match last {
            Item::Literal(high) if high >= low => {
                self.out.push('-');
                push_literal(&mut self.out, high);
                Ok(())
            }
            _ => Err(format!("the range from {low:?} has no valid end")),
        }
    }

    /// An escape that stands for a character or a set of them, after its backslash.
    fn escape(&mut self) -> Result<Item, String> {
        let next = self.next().ok_or("a \\ ends the pattern")?;
        let set = |text: &str| Ok(Item::Set(text.to_owned()));
        match next {
            'd' => set("[0-9]"),
            'D' => set("[^0-9]"),
            'w' => set("[0-9A-Za-z_]"),
            'W' => set("[^0-9A-Za-z_]"),
            's' => set("[ \\t\\n\\x0B\\f\\r]"),
            'S' => set("[^ \\t\\n\\x0B\\f\\r]"),
            'h' => set("[ \\t\\x{A0}\\x{1680}\\x{180e}\\x{2000}-\\x{200a}\\x{202f}\\x{205f}\\x{3000}]"),
            'H' => set("[^ \\t\\x{A0}\\x{1680}\\x{180e}\\x{2000}-\\x{200a}\\x{202f}\\x{205f}\\x{3000}]"),
            'v' => set("[\\n\\x0B\\f\\r\\x{85}\\x{2028}\\x{2029}]"),
            'V' => set("[^\\n\\x0B\\f\\r\\x{85}\\x{2028}\\x{2029}]"),
            'p' | 'P' => self.property(next),
            't' => Ok(Item::Literal('\t')),
            'n' => Ok(Item::Literal('\n')),
            'r' => Ok(Item::Literal('\r')),
            'f' => Ok(Item::Literal('\x0c')),
            'a' => Ok(Item::Literal('\x07')),
            'e' => Ok(Item::Literal('\x1b')),
            'x' if self.eat('{') => {
                let digits = self.until('}', "\\x{")?;
                code_point(&digits, 16)
            }
            'x' => self.digits(2, 16),
            'u' => self.digits(4, 16),
            '0' => {
                let octal = |at: usize| self.input.get(at).is_some_and(|digit| digit.is_digit(8));
                let mut count = (0..3).take_while(|&index| octal(self.at + index)).count();
                if count == 3 && self.input[self.at] > '3' {
                    count = 2;
                }
                self.digits(count, 8)
            }
            'c' => match self.next() {
                Some(control) if control.is_ascii() => Ok(Item::Literal(char::from(control as u8 ^ 64))),
                _ => Err("\\c is not followed by a control character".to_owned()),
            },
            _ if next.is_ascii_alphanumeric() => Err(format!("\\{next} is not known")),
            _ => Ok(Item::Literal(next)),
        }
    }

    fn digits(&mut self, count: usize, radix: u32) -> Result<Item, String> {
        let end = (self.at + count).min(self.input.len());
        let digits: String = self.input[self.at..end].iter().collect();
        self.at = end;
        if digits.len() < count {
            return Err("a character's number is too short".to_owned());
        }
        code_point(&digits, radix)
    }

    fn property(&mut self, kind: char) -> Result<Item, String> {
        let name = match self.next() {
            Some('{') => self.until('}', "\\p{")?,
            Some(letter) => letter.to_string(),
            None => return Err("\\p names no property".to_owned()),
        };
        let ascii = match name.as_str() {
            "Lower" => "a-z",
            "Upper" => "A-Z",
            "ASCII" => "\\x00-\\x7F",
            "Alpha" => "A-Za-z",
            "Digit" => "0-9",
            "Alnum" => "0-9A-Za-z",
            "Punct" => "!-/:-@\\[-`{-~",
            "Graph" => "!-~",
            "Print" => " -~",
            "Blank" => " \\t",
            "Cntrl" => "\\x00-\\x1F\\x7F",
            "XDigit" => "0-9A-Fa-f",
            "Space" | "javaWhitespace" => " \\t\\n\\x0B\\f\\r",
            _ => "",
        };
        let negation = if kind == 'P' { "^" } else { "" };
        if !ascii.is_empty() {
            return Ok(Item::Set(format!("[{negation}{ascii}]")));
        }
        let name = match name.as_str() {
            "javaLowerCase" => "Lowercase",
            "javaUpperCase" => "Uppercase",
            other => other.strip_prefix("Is").unwrap_or(other),
        };
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '=' | ' ' | '-'));
        if name.is_empty() || !plain || regex::Regex::new(&format!("\\p{{{name}}}")).is_err() {
            return Err(format!("the property \\{kind}{{{name}}} is not known"));
        }
        Ok(Item::Set(format!("\\{kind}{{{name}}}")))
    }
}

/// What an escape stands for.
enum Item {
    Literal(char),
    /// In a form that can stand inside and outside of a class.
    Set(String),
}

impl Item {
    fn write(&self, out: &mut String) {
        match self {
            Item::Literal(literal) => push_literal(out, *literal),
            Item::Set(set) => out.push_str(set),
        }
    }
}

/// Writes `\Q…\E` out as escaped characters, as Java does before it reads anything else.
fn unquoted(pattern: &str) -> Vec<char> {
    let mut out = Vec::with_capacity(pattern.len());
    let mut rest = pattern.chars().peekable();
    while let Some(next) = rest.next() {
        match (next, rest.peek()) {
            ('\\', Some('Q')) => {
                rest.next();
                quoted(&mut rest, &mut out);
            }
            ('\\', Some(&escaped)) => {
                rest.next();
                out.extend([next, escaped]);
            }
            _ => out.push(next),
        }
    }
    out
}

fn quoted(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut Vec<char>) {
    while let Some(next) = rest.next() {
        if next == '\\' && rest.peek() == Some(&'E') {
            rest.next();
            return;
        }
        if next.is_ascii_digit() {
            // A digit could go on with a back reference that stands before the quotation.
            out.extend(format!("\\x{:02X}", u32::from(next)).chars());
        } else if next.is_ascii() && !next.is_ascii_alphabetic() {
            out.extend(['\\', next]);
        } else {
            out.push(next);
        }
    }
}

fn code_point(digits: &str, radix: u32) -> Result<Item, String> {
    let code = u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
    code.map(Item::Literal).ok_or_else(|| format!("{digits:?} is no character's number"))
}

/// Writes a character so that no engine reads it as syntax, in a class or outside.
fn push_literal(out: &mut String, literal: char) {
    if literal.is_ascii_control() || literal == ' ' {
        write!(out, "\\x{:02X}", u32::from(literal)).unwrap_or_default();
        return;
    }
    // Angle brackets are the one punctuation whose escapes mean something else.
    if literal.is_ascii_punctuation() && !matches!(literal, '_' | '<' | '>') {
        out.push('\\');
    }
    out.push(literal);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(java: &str, pattern: &str, backtracks: bool) {
        let wanted = Translation { pattern: pattern.to_owned(), backtracks };
        assert_eq!(translate(java), Ok(wanted), "{java}");
    }

    #[test]
    fn constructs_are_written_anew() {
        for (java, pattern, backtracks) in [
            ("orders", "orders", false),
            ("a.b-c", "a.b\\-c", false),
            (r"\Qa.b*\E.*", r"a\.b\*.*", false),
            (r"\Qa.b", r"a\.b", false),
            (r"\d\w+", "[0-9][0-9A-Za-z_]+", false),
            (r"[\d[:x:]]", r"[[0-9][\:x\:]]", false),
            (r"[+--]", r"[\+-\-]", false),
            (r"a\Q\E*[a-\Qz\E]", "a*[a-z]", false),
            ("[a-c&&[^b]]", "[a-c&&[^b]]", false),
            ("[a&b]", r"[a\&b]", false),
            ("[]a]", r"[\]a]", false),
            ("(?d)a", "a", false),
            ("(?iu)a", "(?i)a", false),
            ("(?i-s:a)", "(?i-s:a)", false),
            ("(?x) a b # c", "ab", false),
            ("(?<name>a)", "(?P<name>a)", false),
            ("a*+b", "(?>a*)b", true),
            ("(ab){1,2}+", "(?>(ab){1,2})", true),
            ("a{2}?", "a{2}?", false),
            ("^(?!x).*$", "^(?!x).*$", true),
            ("(?>a|b)", "(?>a|b)", true),
            (r"(a)\1", r"(a)(?:\1)", true),
            (r"\x41\u0042\0103", "ABC", false),
            (r"\p{Alpha}\pL\P{IsDigit}", r"[A-Za-z]\p{L}\P{Digit}", false),
            ("a|", "a|", false),
            ("}]", r"\}\]", false),
        ] {
            check(java, pattern, backtracks);
        }
    }

    #[test]
    fn what_java_refuses_is_refused() {
        for java in [
            "*",
            "a**",
            "a|+",
            "(a",
            "a)",
            "[a",
            "a{",
            "a{x}",
            "a{,3}",
            "a{3,2}",
            r"\y",
            r"\p{Nonsense}",
            r"\k1",
            "(?<1a>b)",
            "(?Z)",
            "(?U)a",
            "[a&&&b]",
            r"[\w-",
            "[b-a]",
            "[a--]",
            r"\x4",
            r"\u12",
            "\\",
        ] {
            assert!(translate(java).is_err(), "{java}");
        }
    }

    proptest! {
        #[test]
        fn no_pattern_panics_and_what_is_accepted_is_balanced(java in r"[\\\[\](){}?*+|^$.&QExpuab<>:!=0-9 #-]{0,24}") {
            if let Ok(translation) = translate(&java) {
                let wrapped = format!(r"\A(?:{})\z", translation.pattern);
                if !translation.backtracks {
                    let compiled = regex::Regex::new(&wrapped);
                    prop_assert!(compiled.is_ok(), "{java} became {wrapped}: {compiled:?}");
                }
            }
        }
    }
}

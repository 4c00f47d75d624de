//! `sasl.jaas.config` in Java's syntax: `Module flag (option=value)* ;`, read as `JaasConfig.java` reads it with
//! `java.io.StreamTokenizer`.
//!
//! Where quotes are wrong, a part of a password is taken for the name of an option. So no error shows a word of the text: it
//! says at which character it stopped, and names an option only if it is one that is known.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

use crate::net::Secret;

/// A login module with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JaasEntry {
    /// The class of the module.
    pub module: String,
    /// Its options; each may be a secret.
    pub options: BTreeMap<String, Secret>,
}

/// What is wrong with a text; `at` counts characters from one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JaasError {
    /// There is no module.
    #[error("it is empty; write Module required option=\"value\";")]
    Empty,
    /// Something else stands where a module should.
    #[error("a class of a login module is missing at character {at}")]
    ModuleMissing {
        /// Where.
        at: usize,
    },
    /// No control flag follows the module.
    #[error("required is missing behind the login module, at character {at}")]
    FlagMissing {
        /// Where.
        at: usize,
    },
    /// An option has no value that Java would take.
    #[error("a value is missing for {} at character {at}; write it in double quotes, as in password=\"secret\";", option(key.as_deref()))]
    ValueMissing {
        /// The option, if it is a known one.
        key: Option<String>,
        /// Where.
        at: usize,
    },
    /// The text ends too early.
    #[error("the ; at its end is missing (or a quote is not closed)")]
    NotTerminated,
}

/// Options that may be named in messages.
const KNOWN: [&str; 12] = [
    "username",
    "password",
    "tokenauth",
    "serviceName",
    "clientId",
    "clientSecret",
    "scope",
    "keyTab",
    "principal",
    "useKeyTab",
    "awsRoleArn",
    "awsProfileName",
];

fn option(key: Option<&str>) -> String {
    key.map_or_else(|| "an option".to_owned(), |key| format!("the option {key}"))
}

/// Reads all entries of a text.
///
/// # Errors
/// Where Kafka's own reader would throw.
pub fn parse_jaas(text: &str) -> Result<Vec<JaasEntry>, JaasError> {
    let mut tokens = Tokens { chars: text.chars().peekable(), read: 0 };
    let mut entries = Vec::new();
    loop {
        match tokens.next() {
            Token::End if entries.is_empty() => return Err(JaasError::Empty),
            Token::End => return Ok(entries),
            Token::Text(module) => entries.push(entry(module, &mut tokens)?),
            _ => return Err(JaasError::ModuleMissing { at: tokens.read }),
        }
    }
}

fn entry(module: String, tokens: &mut Tokens<'_>) -> Result<JaasEntry, JaasError> {
    const FLAGS: [&str; 4] = ["required", "requisite", "sufficient", "optional"];
    match tokens.next() {
        Token::Text(flag) if FLAGS.iter().any(|known| flag.eq_ignore_ascii_case(known)) => {}
        _ => return Err(JaasError::FlagMissing { at: tokens.read }),
    }
    let mut options = BTreeMap::new();
    loop {
        let key = match tokens.next() {
            Token::Symbol(';') => return Ok(JaasEntry { module, options }),
            Token::End => return Err(JaasError::NotTerminated),
            Token::Text(key) => Some(key),
            Token::Number | Token::Symbol(_) => None,
        };
        // What follows an option without `=` is no value, whatever it is.
        let value = if tokens.next() == Token::Symbol('=') { tokens.next() } else { Token::End };
        match (key, value) {
            (Some(key), Token::Text(value)) => drop(options.insert(key, Secret::new(value))),
            (key, _) => {
                let key = key.filter(|key| KNOWN.contains(&key.as_str()));
                return Err(JaasError::ValueMissing { key, at: tokens.read });
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    /// A word, or what stands in quotes.
    Text(String),
    /// A number, which has no text for Java.
    Number,
    Symbol(char),
    End,
}

/// `StreamTokenizer` with the comments of `//` and `/* */`, and `-`, `_` and `$` in words.
struct Tokens<'a> {
    chars: Peekable<Chars<'a>>,
    read: usize,
}

impl Tokens<'_> {
    fn take(&mut self) -> Option<char> {
        let c = self.chars.next();
        self.read += usize::from(c.is_some());
        c
    }

    fn next(&mut self) -> Token {
        loop {
            let Some(c) = self.take() else { return Token::End };
            match c {
                '\0'..=' ' => {}
                '/' => self.comment(),
                '"' | '\'' => return self.quoted(c),
                '0'..='9' | '.' => return self.number(),
                '-' if self.chars.peek().is_some_and(|&c| c == '.' || c.is_ascii_digit()) => {
                    return self.number();
                }
                // A sign that begins no number is a symbol.
                '-' => return Token::Symbol('-'),
                c if is_word(c) => return self.word(c),
                c => return Token::Symbol(c),
            }
        }
    }

    /// A slash alone begins a comment, too.
    fn comment(&mut self) {
        if self.chars.peek() == Some(&'*') {
            self.take();
            let mut last = ' ';
            while let Some(c) = self.take() {
                if last == '*' && c == '/' {
                    return;
                }
                last = c;
            }
            return;
        }
        while self.chars.peek().is_some_and(|&c| c != '\n' && c != '\r') {
            self.take();
        }
    }

    fn word(&mut self, first: char) -> Token {
        let mut word = String::from(first);
        while let Some(&c) = self.chars.peek().filter(|&&c| is_word(c) || c.is_ascii_digit() || c == '.') {
            word.push(c);
            self.take();
        }
        Token::Text(word)
    }

    fn number(&mut self) -> Token {
        while self.chars.peek().is_some_and(|&c| c.is_ascii_digit() || c == '.') {
            self.take();
        }
        Token::Number
    }

    /// Up to the same quote, or to the end of the line.
    fn quoted(&mut self, quote: char) -> Token {
        let mut text = String::new();
        while let Some(&c) = self.chars.peek() {
            if c == '\n' || c == '\r' {
                break;
            }
            self.take();
            match c {
                c if c == quote => break,
                '\\' => text.extend(self.escaped()),
                c => text.push(c),
            }
        }
        Token::Text(text)
    }

    fn escaped(&mut self) -> Option<char> {
        let c = self.take()?;
        Some(match c {
            '0'..='7' => return self.octal(c),
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            c => c,
        })
    }

    /// Up to `\377`.
    fn octal(&mut self, first: char) -> Option<char> {
        let mut value = first.to_digit(8)?;
        let digits_max = if first <= '3' { 3 } else { 2 };
        for _ in 1..digits_max {
            let Some(digit) = self.chars.peek().and_then(|c| c.to_digit(8)) else { break };
            value = value * 8 + digit;
            self.take();
        }
        char::from_u32(value)
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '-' | '_' | '$') || u32::from(c) >= 160
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule";

    fn check(text: &str, options: &[(&str, &str)]) {
        let entries = parse_jaas(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found: Vec<(String, String)> = entries[0]
            .options
            .iter()
            .map(|(key, value)| (key.clone(), value.reveal_text().to_string()))
            .collect();
        let options: Vec<(String, String)> =
            options.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        assert_eq!((entries.len(), found), (1, options), "{text}");
    }

    #[test]
    fn texts_are_read_as_java_reads_them() {
        for (rest, options) in [
            ("required;", &[][..]),
            ("REQUIRED username=\"a\" password='b';", &[("password", "b"), ("username", "a")]),
            (
                "required\n  username = alice // me\n  /* x */ password=\"p;=\\\"q\\\\\";",
                &[("password", "p;=\"q\\"), ("username", "alice")],
            ),
            ("required username=a1.b-c$_ü;", &[("username", "a1.b-c$_ü")]),
            ("required a=\"\\t\\101\\0477x\";", &[("a", "\tA'7x")]),
            ("required a=\"x\" a=\"y\";", &[("a", "y")]),
            ("optional a=\"\";", &[("a", "")]),
            ("sufficient a=\"\u{1F511}\";", &[("a", "\u{1F511}")]),
        ] {
            check(&format!("{PLAIN} {rest}"), options);
        }
        assert_eq!(parse_jaas("a required; b required;").unwrap().len(), 2);
    }

    #[test]
    fn errors_say_where_and_show_no_secret() {
        for (text, error) in [
            ("", JaasError::Empty),
            ("// nothing", JaasError::Empty),
            ("; x", JaasError::ModuleMissing { at: 1 }),
            ("M", JaasError::FlagMissing { at: 1 }),
            ("M username=\"a\";", JaasError::FlagMissing { at: 10 }),
            ("M required", JaasError::NotTerminated),
            ("M required password=\"s3cret", JaasError::NotTerminated),
            ("M required password=\"a\"s3cret;", JaasError::ValueMissing { key: None, at: 30 }),
            (
                "M required password=12345;",
                JaasError::ValueMissing { key: Some("password".to_owned()), at: 25 },
            ),
            ("M required username;", JaasError::ValueMissing { key: Some("username".to_owned()), at: 20 }),
            (
                "M required password=/s3cret;",
                JaasError::ValueMissing { key: Some("password".to_owned()), at: 28 },
            ),
        ] {
            let found = parse_jaas(text).unwrap_err();
            assert_eq!(found, error, "{text}");
            assert!(!found.to_string().contains("s3cret"));
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([a-z;=\"'/*\\\\ 0-9.$\n-]|é){0,40}") {
            let _ = parse_jaas(&text);
        }

        /// Whatever stands in quotes comes out again.
        #[test]
        fn quoted_values_come_back(value in "[ -~]{0,30}") {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            let entries = parse_jaas(&format!("M required password=\"{quoted}\";")).unwrap();
            prop_assert_eq!(entries[0].options["password"].reveal(), value.as_bytes());
        }
    }
}

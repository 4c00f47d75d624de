//! A chain of `RegexRouter` transforms, honoured as what it does to topics: it renames them.
//!
//! `RegexRouter.apply` asks whether the pattern matches the whole name and then replaces its first match, which need not
//! be the whole (`a|ab` on `ab`). The replacement is Java's (`Matcher.replaceFirst`): `$1`, `${name}`, and a backslash
//! before what stands for itself. In Connect the transforms run behind the replication policy, so it is the remote
//! topic's name that they get.

use std::borrow::Cow;
use std::sync::Arc;

use super::PatternError;
use super::java_regex;

/// Steps back that one match may take.
const BACKTRACKS_MAX: usize = 100_000;

/// One `RegexRouter`.
#[derive(Clone, Debug)]
pub struct Rename {
    regex: Arc<str>,
    replacement: Arc<str>,
    whole: Arc<fancy_regex::Regex>,
    first: Arc<fancy_regex::Regex>,
    parts: Arc<[Part]>,
}

/// A piece of a replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Group(usize),
    Named(String),
}

impl PartialEq for Rename {
    fn eq(&self, other: &Rename) -> bool {
        (&self.regex, &self.replacement) == (&other.regex, &other.replacement)
    }
}

impl Eq for Rename {}

impl Rename {
    /// For `transforms.X.regex` and `transforms.X.replacement`.
    ///
    /// # Errors
    /// The pattern or the replacement is one that Java would refuse, or that cannot be read here.
    pub fn new(regex: &str, replacement: &str) -> Result<Rename, PatternError> {
        let at_fault = |pattern: &str, reason: String| PatternError { pattern: pattern.to_owned(), reason };
        let translated = java_regex::translate(regex).map_err(|reason| at_fault(regex, reason))?.pattern;
        let build = |pattern: &str| {
            let built = fancy_regex::RegexBuilder::new(pattern).backtrack_limit(BACKTRACKS_MAX).build();
            built.map(Arc::new).map_err(|error| at_fault(regex, error.to_string()))
        };
        let first = build(&translated)?;
        let parts = parse(replacement, &first).map_err(|reason| at_fault(replacement, reason))?;
        Ok(Rename {
            regex: Arc::from(regex),
            replacement: Arc::from(replacement),
            whole: build(&format!(r"\A(?:{translated})\z"))?,
            first,
            parts: Arc::from(parts),
        })
    }

    /// Whether it renames a topic; one on which matching takes too many steps keeps its name.
    pub fn matches(&self, topic: &str) -> bool {
        self.whole.is_match(topic).unwrap_or(false)
    }

    /// The new name; the old one where the pattern does not match, or takes too many steps.
    pub fn apply<'a>(&self, topic: &'a str) -> Cow<'a, str> {
        let found = match self.whole.is_match(topic) {
            Ok(true) => self.first.captures(topic).ok().flatten(),
            Ok(false) | Err(_) => None,
        };
        let Some(found) = found else { return Cow::Borrowed(topic) };
        let Some(range) = found.get(0).map(|whole| whole.range()) else { return Cow::Borrowed(topic) };
        let mut name = topic[..range.start].to_owned();
        for part in self.parts.iter() {
            name.push_str(match part {
                Part::Text(text) => text,
                Part::Group(group) => found.get(*group).map_or("", |group| group.as_str()),
                Part::Named(group) => found.name(group).map_or("", |group| group.as_str()),
            });
        }
        name.push_str(&topic[range.end..]);
        Cow::Owned(name)
    }
}

/// Reads a replacement as `Matcher.appendExpandedReplacement` does: `$12` is group 12 only if there are so many.
fn parse(replacement: &str, regex: &fancy_regex::Regex) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut chars = replacement.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => text.push(chars.next().ok_or("a character is missing behind \\")?),
            '$' => {
                let part = match chars.next() {
                    Some('{') => {
                        let name: String = chars.by_ref().take_while(|&c| c != '}').collect();
                        if !regex.capture_names().flatten().any(|known| known == name) {
                            return Err(format!("there is no group {name}"));
                        }
                        Part::Named(name)
                    }
                    Some(digit) if digit.is_ascii_digit() => {
                        let mut group = digit as usize - '0' as usize;
                        while let Some(digit) = chars.peek().and_then(|digit| digit.to_digit(10)) {
                            let longer = group.saturating_mul(10).saturating_add(digit as usize);
                            if longer >= regex.captures_len() {
                                break;
                            }
                            (group, _) = (longer, chars.next());
                        }
                        if group >= regex.captures_len() {
                            return Err(format!("there is no group {group}"));
                        }
                        Part::Group(group)
                    }
                    _ => return Err("$ is followed by no group".to_owned()),
                };
                if !text.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut text)));
                }
                parts.push(part);
            }
            c => text.push(c),
        }
    }
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(regex: &str, replacement: &str, topic: &str, expected: &str) {
        let rename = Rename::new(regex, replacement).unwrap();
        assert_eq!(rename.apply(topic), expected, "{regex} to {replacement} on {topic}");
    }

    #[test]
    fn names_are_replaced_as_regex_router_replaces_them() {
        check(r"A\.(.*)", "$1", "A.orders", "orders");
        check(r"A\.(.*)", "$1", "B.orders", "B.orders");
        check(r"(\w+)\.(\w+)", "$2-$1", "A.orders", "orders-A");
        check(r"(?<source>\w+)\.(?<topic>.*)", "${topic}.${source}", "A.orders", "orders.A");
        check("(a)(b)?", "$1$2x", "a", "ax");
        check("(.*)", r"dr-$1\$\\", "t", r"dr-t$\");
        // One group only, so that 0 stands for itself.
        check("(.*)", "$10", "t", "t0");
        // It matches the whole name, but `replaceFirst` finds a shorter match first.
        check("a|ab", "x", "ab", "xb");
        check("orders", "x", "orders2", "orders2");
    }

    #[test]
    fn what_java_refuses_is_refused() {
        for (regex, replacement) in
            [("*", "x"), ("a", "$1"), ("(a)", "${b}"), ("a", "$"), ("a", "\\"), ("a", "$x")]
        {
            assert!(Rename::new(regex, replacement).is_err(), "{regex} {replacement}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_replacement_panics(replacement in "[$\\\\{}a-c0-9]{0,8}", topic in ".{0,8}") {
            if let Ok(rename) = Rename::new("(?<a>.)(.*)", &replacement) {
                let _ = rename.apply(&topic);
            }
        }
    }
}

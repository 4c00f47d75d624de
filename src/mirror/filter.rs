//! Lists of Java regular expressions, as `topics`, `topics.exclude` and their like hold them.
//!
//! As in MirrorMaker (`MirrorUtils.compilePatternList`) the items are joined with `|` to one pattern that must match a
//! whole name; an empty list matches nothing. Mere names, of which there may be thousands, are matched apart
//! ([`super::plain_patterns`]); other patterns run in linear time, and what needs backtracking is bounded: a name on which
//! the bound is hit is neither matched nor unmatched, see [`PatternList::try_matches`].

use std::sync::Arc;

use super::java_regex;
use super::plain_patterns::PlainPatterns;

/// The most bytes that a compiled pattern may take.
const COMPILED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Cache of one pattern's lazily built automaton: names are short and rarely asked for.
const AUTOMATON_BYTES_MAX: usize = 128 * 1024;
/// Steps back that one match may take.
const BACKTRACKS_MAX: usize = 100_000;

/// A list of patterns joined with `|`, matched against whole names; an empty list matches nothing.
#[derive(Clone, Debug, Default)]
pub struct PatternList {
    source: Vec<String>,
    plain: Arc<PlainPatterns>,
    engine: Engine,
}

#[derive(Clone, Debug, Default)]
enum Engine {
    #[default]
    Nothing,
    Everything,
    Linear(regex::Regex),
    Backtracking(Arc<fancy_regex::Regex>),
}

/// A pattern that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is no valid regular expression: {reason}", shortened(pattern))]
pub struct PatternError {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it.
    pub reason: String,
}

/// A match was given up because it took too many steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("matching was given up after {BACKTRACKS_MAX} steps back")]
pub struct MatchGivenUp;

impl PatternList {
    /// Compiles a list. The error names the item that is at fault, or the joined list when only the whole is.
    pub fn new(patterns: &[&str]) -> Result<PatternList, PatternError> {
        let source: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        let (plain, rest) = apart(patterns);
        let engine = match rest[..] {
            [] => Engine::Nothing,
            [".*"] => Engine::Everything,
            _ => compile(&rest.join("|")).map_err(|whole| first_at_fault(&rest).unwrap_or(whole))?,
        };
        Ok(PatternList { source, plain: Arc::new(plain), engine })
    }

    /// Whether the whole of `name` matches one of the patterns; false when matching was given up.
    pub fn matches(&self, name: &str) -> bool {
        self.try_matches(name).unwrap_or(false)
    }

    /// Whether the whole of `name` matches one of the patterns.
    pub fn try_matches(&self, name: &str) -> Result<bool, MatchGivenUp> {
        match &self.engine {
            _ if self.plain.matches(name) => Ok(true),
            Engine::Nothing => Ok(false),
            Engine::Everything => Ok(true),
            Engine::Linear(regex) => Ok(regex.is_match(name)),
            Engine::Backtracking(regex) => regex.is_match(name).map_err(|_| MatchGivenUp),
        }
    }

    /// The patterns as they were written.
    pub fn patterns(&self) -> &[String] {
        &self.source
    }
}

/// A joined list may have megabytes.
fn shortened(pattern: &str) -> String {
    const SHOWN_MAX: usize = 200;
    match pattern.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &pattern[..end]),
        None => pattern.to_owned(),
    }
}

/// Mere names, and what is left to be joined. A name means the same behind the other items only when each of them is whole
/// by itself: of `(?i)a, b` the flag reaches `b`, and of `a(b, x, c)` the group does.
fn apart<'p>(patterns: &[&'p str]) -> (PlainPatterns, Vec<&'p str>) {
    let (plain, rest) = PlainPatterns::split(patterns);
    let is_whole = |pattern: &&str| {
        !pattern.contains("(?") && !pattern.contains("\\Q") && java_regex::translate(pattern).is_ok()
    };
    match patterns {
        [".*"] => (PlainPatterns::default(), patterns.to_vec()),
        _ if rest.iter().all(is_whole) => (plain, rest),
        _ => (PlainPatterns::default(), patterns.to_vec()),
    }
}

fn first_at_fault(patterns: &[&str]) -> Option<PatternError> {
    patterns.iter().find_map(|pattern| compile(pattern).err())
}

fn compile(pattern: &str) -> Result<Engine, PatternError> {
    let at_fault = |reason: String| PatternError { pattern: pattern.to_owned(), reason };
    let translation = java_regex::translate(pattern).map_err(at_fault)?;
    let whole = format!(r"\A(?:{})\z", translation.pattern);
    if translation.backtracks {
        let built = fancy_regex::RegexBuilder::new(&whole)
            .backtrack_limit(BACKTRACKS_MAX)
            .delegate_size_limit(COMPILED_BYTES_MAX)
            .delegate_dfa_size_limit(AUTOMATON_BYTES_MAX)
            .build();
        return built.map(|regex| Engine::Backtracking(Arc::new(regex))).map_err(|e| at_fault(e.to_string()));
    }
    let built = regex::RegexBuilder::new(&whole)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(AUTOMATON_BYTES_MAX)
        .build();
    built.map(Engine::Linear).map_err(|error| at_fault(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(patterns: &[&str], matching: &[&str], others: &[&str]) {
        let list = PatternList::new(patterns).unwrap();
        for name in matching {
            assert!(list.matches(name), "{patterns:?} must match {name}");
        }
        for name in others {
            assert!(!list.matches(name), "{patterns:?} must not match {name}");
        }
    }

    #[test]
    fn a_list_matches_whole_names_as_java_does() {
        check(&[], &[], &["", "a"]);
        check(&[".*"], &["", "a", "a.b"], &[]);
        check(&["orders", "pay.*"], &["orders", "pay", "payments"], &["orders2", "xorders", "a.payments"]);
        check(
            &["mm2.*\\.internal", ".*\\.replica", "__.*"],
            &["mm2-x.internal", "__x"],
            &["mm2-x-internal", "_x"],
        );
        check(&["^(?!internal-).*$"], &["orders", "internal"], &["internal-a"]);
        check(&["(?i)Orders", "b"], &["ORDERS", "B"], &["c"]);
        check(&["\\Qa.b\\E|c"], &["a.b", "c"], &["axb"]);
        check(&["a*+a"], &[], &["a", "aaa"]);
        check(&["[a-z&&[^b]]+"], &["acd"], &["abc"]);
        check(&["(a|b)\\1"], &["aa", "bb"], &["ab"]);
        check(&["topic-\\d{2}"], &["topic-12"], &["topic-1", "topic-123", "topic-\u{661}\u{662}"]);
        check(&["a(b", "c)d"], &["abd", "acd"], &["ab", "a(b"]);
    }

    #[test]
    fn thousands_of_names_take_no_automaton() {
        let names: Vec<String> =
            (0..20_000).map(|number| format!("team{}.topic-{number}_v1", number % 7)).collect();
        let mut items: Vec<&str> = names.iter().map(String::as_str).collect();
        items.push("orders-[0-9]+");
        let list = PatternList::new(&items).unwrap();
        assert!(names.iter().all(|name| list.matches(name)) && list.matches("orders-7"));
        assert!(!list.matches("team0.topic-1_v1") && !list.matches("orders-"));
        assert_eq!(list.patterns().len(), 20_001);
    }

    #[test]
    fn what_reaches_over_a_comma_reaches_names_too() {
        check(&["(?i)x+", "b"], &["XX", "B"], &["c"]);
        check(&["b", "(?i)x+"], &["X", "b"], &["B"]);
        check(&["\\Qa.", "b"], &["a.|b"], &["b", "ab"]);
        check(&["x(a", "b", "c)"], &["xa", "xb", "xc"], &["b", "xab"]);
        check(&["a\\", "b"], &["a|b"], &["a", "b"]);
        assert!(PatternList::new(&["a", "[b", "c"]).is_err());
    }

    /// What Java accepts and is refused here: better than to read it differently.
    const REFUSED: [&str; 7] =
        ["\\1\\Q2\\E", "(?U)\\w+", "[a&&&b]+", "\\X", "\\N{LATIN SMALL LETTER A}", "\\8", "\\p{InGreek}"];
    /// Letters beyond ASCII ignore case here without the `u` flag, too.
    const DIFFERENT: [&str; 1] = ["(?i)\u{c9}"];

    /// `protocol-tests/vectors/java/regex.json` was recorded from `java.util.regex` of Java 17 by `RegexVectors.java` beside it.
    #[test]
    fn patterns_match_what_java_matches() {
        let vectors = include_str!("../../protocol-tests/vectors/java/regex.json");
        let vectors: serde_json::Value = serde_json::from_str(vectors).unwrap();
        let strings = |value: &serde_json::Value| -> Vec<String> {
            value.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
        };
        // A dot does not match Java's line terminators, which no name in Kafka holds.
        let names: Vec<String> =
            strings(&vectors["names"]).into_iter().filter(|name| !name.contains(['\n', '\r'])).collect();
        let mut different = Vec::new();
        for pair in vectors["patterns"].as_array().unwrap() {
            let pattern = pair[0].as_str().unwrap();
            let ours = PatternList::new(&[pattern]);
            let matching =
                |list: &PatternList| names.iter().filter(|name| list.matches(name)).cloned().collect();
            let java = pair[1].as_array().map(|_| {
                strings(&pair[1]).into_iter().filter(|name| names.contains(name)).collect::<Vec<String>>()
            });
            let ours_matching: Option<Vec<String>> = ours.as_ref().ok().map(matching);
            if REFUSED.contains(&pattern) {
                assert!(java.is_some() && ours.is_err(), "{pattern} need not be refused");
            } else if ours_matching != java && !DIFFERENT.contains(&pattern) {
                different.push(format!("{pattern}: Java {java:?}, here {ours_matching:?} {:?}", ours.err()));
            }
        }
        assert!(different.is_empty(), "{}", different.join("\n"));
    }

    #[test]
    fn the_item_at_fault_is_named() {
        let error = PatternList::new(&["fine", "*bad"]).unwrap_err();
        assert_eq!(error.to_string(), "*bad is no valid regular expression: * repeats nothing");
        let error = PatternList::new(&["a", "x{1", "2}"]).unwrap_err();
        assert_eq!(error.pattern, "x{1");
        let long = format!("({}", "\u{e9}".repeat(999));
        let error = PatternList::new(&[&long]).unwrap_err();
        assert_eq!((error.pattern.as_str(), error.to_string().chars().count()), (long.as_str(), 255));
    }

    #[test]
    fn matching_is_given_up_in_time() {
        let list = PatternList::new(&["(?:(a+)+)\\1b"]).unwrap();
        assert_eq!(list.try_matches(&"a".repeat(60)), Err(MatchGivenUp));
        assert!(!list.matches(&"a".repeat(60)));
    }
}

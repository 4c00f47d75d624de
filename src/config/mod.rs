//! What the user wrote, as typed settings: `.properties` text, config providers, MirrorMaker's scoping, and all problems of
//! a file in one report.
//!
//! The way of a file: `properties` reads it with all places, `lint` looks at every entry alone (references of `providers`,
//! keys by `classify`, kinds of `values`), `scoping` says which of them reach a cluster, a worker, a connector or a client,
//! and `build` with `flow` reads from those scopes what the rooms below need. Nothing below imports this room. Invariant: a
//! report with an error has no settings, and no text of it holds a secret.

mod admin;
mod build;
mod circles;
mod classify;
mod files;
mod flow;
mod fold;
mod keys;
mod lint;
mod mirror_maker_1;
mod misnamed;
mod naming;
mod problem;
pub mod properties;
mod providers;
mod reader;
mod sasl;
mod scoping;
mod security;
mod transforms;
mod translation;
mod values;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

pub use mirror_maker_1::{MirrorMaker1, OnSendFailure, load_mirror_maker_1};
pub use problem::{Problem, Severity, SourceText, Span, printable};
pub use providers::Outside;
pub use reader::{Origin, Resolved, Section};

use crate::mirror::ProcessSettings;
use crate::observe;

/// What the command line says about a file.
pub struct Options<'a> {
    /// `--clusters`: only flows into these; empty for all.
    pub clusters: &'a [String],
    /// `--takeover-timeout`.
    pub takeover_timeout: Duration,
    /// What config providers may look at.
    pub outside: Outside<'a>,
}

impl Default for Options<'static> {
    fn default() -> Options<'static> {
        Options { clusters: &[], takeover_timeout: Duration::from_secs(60), outside: Outside::real() }
    }
}

/// Settings of all rooms.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is replicated.
    pub process: ProcessSettings,
    /// What is served about it.
    pub observe: observe::Settings,
}

/// Everything there is to say about a file.
#[derive(Clone, Debug)]
pub struct Report {
    /// The settings; `None` when there is an error.
    pub settings: Option<Settings>,
    /// All problems: errors first, each kind in the order of the file.
    pub problems: Vec<Problem>,
    /// The resolved settings of the process, of each cluster and of each flow, with where each came from.
    pub resolved: Vec<Section>,
    /// The text for messages, without secrets.
    pub source: SourceText,
}

impl Report {
    /// How many problems of this kind there are.
    pub fn count(&self, severity: Severity) -> usize {
        self.problems.iter().filter(|problem| problem.severity == severity).count()
    }

    /// The same report with every warning as an error, and with what MirrorMaker itself does.
    #[must_use]
    pub fn strict(mut self) -> Report {
        for problem in self.problems.iter_mut().filter(|problem| problem.severity == Severity::Warning) {
            problem.severity = Severity::Error;
            if let Some(does) = problem.mirror_maker.take() {
                let help = problem.help.take().map_or_else(String::new, |help| format!("; {help}"));
                problem.help = Some(format!("MirrorMaker {does}{help}"));
            }
        }
        self.problems
            .sort_by_key(|problem| (problem.severity, problem.span.map_or(usize::MAX, |span| span.start)));
        if self.count(Severity::Error) > 0 {
            self.settings = None;
        }
        self
    }
}

/// Reads a file, or standard input when it is called `-`; one that cannot be read is a problem like others.
pub fn load_file(path: &Path, options: &Options<'_>) -> Report {
    let is_stdin = path == Path::new("-");
    let name = if is_stdin { "stdin".to_owned() } else { path.display().to_string() };
    let read = if is_stdin { files::read_stdin() } else { files::read_file(path) };
    match read {
        Ok(bytes) => load(&name, &bytes, options),
        Err(error) => failed(&name, format!("{name} cannot be read: {error}")),
    }
}

/// Reads the bytes of a file that the user calls `name`.
pub fn load(name: &str, bytes: &[u8], options: &Options<'_>) -> Report {
    if bytes.len() > properties::FILE_BYTES_MAX {
        return failed(name, format!("{name} is larger than {} bytes", properties::FILE_BYTES_MAX));
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return failed(
            name,
            format!("{name} is UTF-16 text: save it as ASCII, or as UTF-8 without a byte order mark"),
        );
    }
    if let Some(at) = bytes.iter().position(|&byte| byte == 0) {
        let line = 1 + bytes[..at].iter().filter(|&&byte| byte == b'\n').count();
        return failed(name, format!("{name} is no text: there is a zero byte in line {line}"));
    }
    let mut source = SourceText::new(name, bytes);
    let mut linted = lint::lint(bytes, &mut source, &options.outside);
    let mut problems = reader::Problems::default();
    std::mem::take(&mut linted.problems).into_iter().for_each(|problem| problems.push(problem));
    let built = if linted.clusters.is_empty() {
        None
    } else {
        Some(build::build(&linted, &source, options, &mut problems))
    };
    let problems = by_place(problems.into_list(), &linted.entries);
    let mut problems: Vec<Problem> = problems.into_iter().map(Problem::printable).collect();
    problems.sort_by_key(|problem| (problem.severity, problem.span.map_or(usize::MAX, |span| span.start)));
    let failed = problems.iter().any(|problem| problem.severity == Severity::Error);
    let (settings, resolved) = match built {
        Some(mut built) => {
            sasl::renew(&linted, &mut built.process.clusters, name, bytes);
            (Some(Settings { process: built.process, observe: built.observe }), built.sections)
        }
        None => (None, Vec::new()),
    };
    Report { settings: settings.filter(|_| !failed), problems, resolved, source }
}

/// Problems of one line as one: a value that is wrong, of a key that has no effect, is one line to look at, whoever found
/// out about it. Two items of a value that are wrong are two.
fn by_place(problems: Vec<Problem>, entries: &[properties::Entry]) -> Vec<Problem> {
    // Entries stand in the order of the file.
    let entry_of = |span: Span| {
        let index = entries.partition_point(|entry| entry.span().start <= span.start).checked_sub(1)?;
        (span.start < entries[index].span().end.max(entries[index].span().start + 1)).then_some(index)
    };
    let mut of_entry: BTreeMap<usize, Vec<Problem>> = BTreeMap::new();
    let mut others = Vec::new();
    for problem in problems {
        match problem.span.and_then(entry_of) {
            Some(entry) => {
                join(of_entry.entry(entry).or_default(), problem, entries[entry].span().start);
            }
            None => others.push(problem),
        }
    }
    of_entry.into_values().flatten().chain(others).collect()
}

fn join(known: &mut Vec<Problem>, problem: Problem, key_start: usize) {
    let belongs = |other: &Problem| match (other.span, problem.span) {
        (Some(one), Some(two)) => [one.start, two.start].contains(&key_start) || one.overlaps(two),
        _ => false,
    };
    match known.iter().position(belongs) {
        Some(index) => {
            let joined = known.remove(index).and(problem);
            join(known, joined, key_start);
        }
        None => known.push(problem),
    }
}

fn failed(name: &str, message: String) -> Report {
    let source = SourceText::new(name, b"");
    Report { settings: None, problems: vec![Problem::error(message)], resolved: Vec::new(), source }
}

#[cfg(test)]
mod security_tests;
#[cfg(test)]
mod shapes_tests;
#[cfg(test)]
mod tests;

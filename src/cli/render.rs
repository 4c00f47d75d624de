//! Reports of `config` as text: drawn by miette on a terminal, one line after the other elsewhere.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write as _};
use std::sync::Arc;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, Severity as MietteSeverity,
    SourceCode, ThemeCharacters, ThemeStyles,
};

use crate::config::{Origin, Problem, Report, Severity, SourceText, printable};

/// How text is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// With colours and the lines of the file.
    Drawn,
    /// For files, pipes and tests.
    Plain,
}

impl Style {
    /// The style that fits an output.
    pub(crate) fn of(output: &impl IsTerminal) -> Style {
        if output.is_terminal() { Style::Drawn } else { Style::Plain }
    }
}

/// The problems of a report that are at least as bad as `least`, with a summary in the end.
pub(crate) fn problems(report: &Report, style: Style, least: Severity) -> String {
    let mut text = String::new();
    let shared: Arc<str> = Arc::from(report.source.text.as_str());
    for problem in report.problems.iter().filter(|problem| problem.severity <= least) {
        match style {
            Style::Plain => plain(&mut text, problem, &report.source),
            Style::Drawn => drawn(&mut text, problem, &report.source, &shared),
        }
    }
    let _ = writeln!(text, "{}: {}", report.source.name, summary(report));
    text
}

/// Says on stderr why a file cannot be used.
pub(crate) fn say_why_not(report: &Report) {
    let stderr = io::stderr();
    let text = problems(report, Style::of(&stderr), Severity::Warning);
    // Without a reader the exit code still tells.
    let _ = stderr.lock().write_all(text.as_bytes());
}

/// How many problems of each kind there are.
pub(crate) fn summary(report: &Report) -> String {
    let count = |severity, one: &str, many: &str| match report.count(severity) {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    format!(
        "{}, {}, {}",
        count(Severity::Error, "error", "errors"),
        count(Severity::Warning, "warning", "warnings"),
        count(Severity::Info, "remark", "remarks"),
    )
}

/// Where a problem is: `file:line:column`, or the file alone.
pub(crate) fn place(problem: &Problem, source: &SourceText) -> String {
    match problem.span {
        Some(span) => {
            let (line, column) = source.position(span.start);
            let (_, name, _) = source.file_at(span.start);
            format!("{name}:{line}:{column}")
        }
        None => source.name.clone(),
    }
}

fn plain(text: &mut String, problem: &Problem, source: &SourceText) {
    let _ = writeln!(text, "{}: {}: {}", place(problem, source), problem.severity, problem.message);
    if let Some(span) = problem.span {
        let (_, column) = source.position(span.start);
        let _ = writeln!(text, "    {}", excerpt(source.line(span.start).trim_end(), column));
    }
    if let Some(help) = &problem.help {
        let _ = writeln!(text, "    help: {help}");
    }
}

/// A line around a column; one of thousands of topics says nothing as a whole.
fn excerpt(line: &str, column: usize) -> String {
    const BEFORE: usize = 80;
    const SHOWN_MAX: usize = 400;
    let letters = line.chars().count();
    if letters <= SHOWN_MAX {
        return line.to_owned();
    }
    let from = column.saturating_sub(BEFORE).min(letters - SHOWN_MAX);
    let shown: String = line.chars().skip(from).take(SHOWN_MAX).collect();
    let dots = |is_cut: bool| if is_cut { "…" } else { "" };
    format!("{}{shown}{}", dots(from > 0), dots(from + SHOWN_MAX < letters))
}

fn drawn(text: &mut String, problem: &Problem, source: &SourceText, shared: &Arc<str>) {
    let theme = GraphicalTheme { characters: ThemeCharacters::unicode(), styles: ThemeStyles::ansi() };
    // Only the lines at fault: their neighbours are nobody's business.
    let handler = GraphicalReportHandler::new_themed(theme).with_context_lines(0).with_links(false);
    let (start, name, file) = source.file_at(problem.span.map_or(0, |span| span.start));
    let code = if file.len() == shared.len() { shared.clone() } else { Arc::from(file) };
    let moved = problem.clone().within(start);
    let source_code = NamedSource::new(name, code);
    if handler.render_report(text, &Drawn { problem: &moved, source_code }).is_err() {
        plain(text, problem, source);
    }
}

#[derive(Debug)]
struct Drawn<'a> {
    problem: &'a Problem,
    source_code: NamedSource<Arc<str>>,
}

impl fmt::Display for Drawn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem.message)
    }
}

impl std::error::Error for Drawn<'_> {}

impl Diagnostic for Drawn<'_> {
    fn severity(&self) -> Option<MietteSeverity> {
        Some(match self.problem.severity {
            Severity::Error => MietteSeverity::Error,
            Severity::Warning => MietteSeverity::Warning,
            Severity::Info => MietteSeverity::Advice,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let help = self.problem.help.as_ref()?;
        Some(Box::new(help))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.problem.span.map(|_| &self.source_code as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.problem.span?;
        Some(Box::new(std::iter::once(LabeledSpan::new(None, span.start, span.end - span.start))))
    }
}

/// The resolved settings, a section for each cluster and each flow.
pub(crate) fn settings(report: &Report) -> String {
    let mut text = String::new();
    for section in &report.resolved {
        let _ = writeln!(text, "\n{}", section.title);
        let keys = section.settings.iter().map(|setting| setting.key.chars().count()).max().unwrap_or(0);
        let values = section.settings.iter().map(|setting| setting.value.chars().count());
        let values = values.filter(|&width| width <= VALUE_WIDTH).max().unwrap_or(0);
        for setting in &section.settings {
            let origin = match &setting.origin {
                Origin::File { key, line } => format!("line {line}: {key}"),
                Origin::Default => "default".to_owned(),
                Origin::KmirrorDefault => "default of kmirror".to_owned(),
            };
            let (key, value) = (&setting.key, printable(&setting.value));
            let _ = writeln!(text, "  {key:keys$} = {value:values$}  ({origin})");
        }
    }
    text
}

/// Longer values push their origin to the right instead of widening the column.
const VALUE_WIDTH: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Options, load};

    /// The shape in which such files are passed around in tutorials: comments behind values, keys that do not exist, keys
    /// at the top level that MirrorMaker does not read there.
    const TUTORIAL: &str = include_str!("testdata/tutorial.properties");

    /// Compares a text with what is kept of it. `KMIRROR_WRITE_TESTDATA=src/cli/testdata` writes it down instead: look at
    /// the difference before it is committed.
    #[track_caller]
    fn check(name: &str, text: &str, kept: &str) {
        if let Some(folder) = std::env::var_os("KMIRROR_WRITE_TESTDATA") {
            std::fs::write(std::path::Path::new(&folder).join(name), text).unwrap();
            return;
        }
        assert_eq!(text, kept, "if meant, replace {name}");
    }

    #[test]
    fn a_tutorials_file_runs_and_hears_what_is_wrong_with_it() {
        let report = load("tutorial.properties", TUTORIAL.as_bytes(), &Options::default());
        let process = &report.settings.as_ref().expect("no error").process;
        let flows: Vec<String> = process
            .flows
            .iter()
            .map(|flow| format!("{}->{} {:?}", flow.source, flow.target, flow.topics.patterns()))
            .collect();
        assert_eq!(flows, ["east->west [\"invoices\", \"shipments\"]", "west->east [\".*\"]"]);
        assert_eq!(process.clusters["west"].bootstrap_servers.len(), 2);
        let text = problems(&report, Style::Plain, Severity::Info);
        check("tutorial.problems.txt", &text, include_str!("testdata/tutorial.problems.txt"));
        let text = settings(&report);
        check("tutorial.settings.txt", &text, include_str!("testdata/tutorial.settings.txt"));
    }

    /// Files as users have them: what `check` and `check --strict` say to each.
    #[test]
    fn files_of_users_hear_what_they_deserve() {
        for (name, file, said) in [
            (
                "mm2-cluster.properties",
                include_str!("testdata/mm2-cluster.properties"),
                include_str!("testdata/mm2-cluster.problems.txt"),
            ),
            (
                "consumer-mirror.properties",
                include_str!("testdata/consumer-mirror.properties"),
                include_str!("testdata/consumer-mirror.problems.txt"),
            ),
            (
                "producer-mirror.properties",
                include_str!("testdata/producer-mirror.properties"),
                include_str!("testdata/producer-mirror.problems.txt"),
            ),
        ] {
            let report = load(name, file.as_bytes(), &Options::default());
            let text = problems(&report, Style::Plain, Severity::Warning);
            let strict = problems(&report.strict(), Style::Plain, Severity::Error);
            check(&name.replace("properties", "problems.txt"), &format!("{text}\n--strict\n{strict}"), said);
        }
    }

    #[test]
    fn a_broken_file_is_told_everything_at_once() {
        let file = include_str!("testdata/broken.properties");
        let report = load("broken.properties", file.as_bytes(), &Options::default());
        assert!(report.settings.is_none());
        let text = problems(&report, Style::Plain, Severity::Info);
        check("broken.problems.txt", &text, include_str!("testdata/broken.problems.txt"));
        let drawn = problems(&report, Style::Drawn, Severity::Info);
        for text in [&text, &drawn, &settings(&report), &format!("{report:?}")] {
            for secret in ["hunter2", "open-sesame"] {
                assert!(!text.contains(secret), "{text}");
            }
        }
        assert!(drawn.contains("broken.properties:"), "{drawn}");
    }
}

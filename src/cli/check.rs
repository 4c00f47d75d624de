//! `kmirror check`: what is wrong with a file, and what it resolves to.

use std::io;
use std::time::Duration;

use super::arguments::{Check, Logging};
use super::exit::Exit;
use super::output;
use super::render::{self, Style};
use crate::config::{self, Options, Outside, Severity};

pub(crate) fn main(arguments: &Check, logging: &Logging) -> Exit {
    let options =
        Options { clusters: &arguments.clusters, takeover_timeout: Duration::ZERO, outside: Outside::real() };
    let report = config::load_file(&arguments.file, &options);
    let report = if arguments.strict { report.strict() } else { report };
    let least = if logging.quiet { Severity::Warning } else { Severity::Info };
    let mut text = render::problems(&report, Style::of(&io::stdout()), least);
    if !logging.quiet {
        text.push_str(&render::settings(&report));
    }
    match output::print(&text) {
        Err(exit) => exit,
        Ok(()) if report.settings.is_some() => Exit::Done,
        Ok(()) => Exit::Usage,
    }
}

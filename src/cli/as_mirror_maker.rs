//! The command line of `connect-mirror-maker.sh`, for whoever calls the binary by that name.
//!
//! As the script and `MirrorMaker.java` read it: `[-daemon] mm2.properties [--clusters ALIAS …]`. `-daemon` counts as the first
//! argument only, and sends the output to `$LOG_DIR/mirrorMaker.out`. Exit codes are kmirror's.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Parser;

use super::arguments::{LogFormat, Logging, Run};
use super::exit::{self, Exit};
use super::{logging, output, run};

const NAMES: [&str; 2] = ["connect-mirror-maker", "connect-mirror-maker.sh"];
const DAEMON: &str = "-daemon";

/// Replicates as a MirrorMaker 2 file says. `-daemon` as the first argument does it in the background.
#[derive(Debug, Parser)]
#[command(name = "connect-mirror-maker", version, after_help = exit::HELP)]
struct Arguments {
    /// MM2 configuration file.
    #[arg(value_name = "mm2.properties")]
    config: PathBuf,
    /// Target cluster to use for this node.
    #[arg(long, num_args = 1.., value_name = "CLUSTER")]
    clusters: Vec<String>,
}

/// Whether the process was called by MirrorMaker's name.
pub(crate) fn is_meant(program: &OsStr) -> bool {
    file_name_is(program, &NAMES)
}

/// Whether a program is called by one of these names.
pub(super) fn file_name_is(program: &OsStr, names: &[&str]) -> bool {
    Path::new(program).file_name().is_some_and(|name| names.iter().any(|known| name == *known))
}

/// Runs the command line.
pub(crate) fn main(arguments: &[OsString]) -> Exit {
    let (is_daemon, plain) = without_daemon(arguments);
    let parsed = match Arguments::try_parse_from(&plain) {
        Ok(parsed) => parsed,
        Err(error) => return output::print_clap(&error),
    };
    let logging = Logging { quiet: false, verbose: 0, log_format: LogFormat::Text };
    logging::start(&logging);
    if is_daemon {
        return match detach(&plain) {
            Ok(()) => Exit::Done,
            Err(error) => run::failed(&format!("cannot go on in the background: {error}")),
        };
    }
    let run = Run {
        file: parsed.config,
        clusters: parsed.clusters,
        until_caught_up: false,
        give_up_after: Duration::from_secs(30),
        takeover_timeout: Duration::from_secs(60),
    };
    run::main(&run, &logging)
}

pub(super) fn without_daemon(arguments: &[OsString]) -> (bool, Vec<OsString>) {
    let is_daemon = arguments.get(1).is_some_and(|first| first == DAEMON);
    let skipped = |index: usize| is_daemon && index == 1;
    let kept = arguments.iter().enumerate().filter(|(index, _)| !skipped(*index));
    (is_daemon, kept.map(|(_, argument)| argument.clone()).collect())
}

/// Starts the same in a process group of its own, so that no terminal ends it.
pub(super) fn detach(arguments: &[OsString]) -> io::Result<()> {
    let folder = PathBuf::from(std::env::var_os("LOG_DIR").unwrap_or_else(|| OsString::from("logs")));
    fs::create_dir_all(&folder)?;
    let out = fs::File::create(folder.join("mirrorMaker.out"))?;
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(name) = arguments.first() {
        command.arg0(name);
    }
    command.args(arguments.iter().skip(1)).process_group(0);
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).spawn().map(drop)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn arguments(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_name_decides() {
        Arguments::command().debug_assert();
        for (name, meant) in [
            ("connect-mirror-maker", true),
            ("/opt/kafka/bin/connect-mirror-maker.sh", true),
            ("kmirror", false),
            ("connect-mirror-maker.sh/kmirror", false),
            ("", false),
        ] {
            assert_eq!(is_meant(OsStr::new(name)), meant, "{name}");
        }
    }

    #[test]
    fn arguments_are_those_of_the_script() {
        let line =
            arguments(&["connect-mirror-maker.sh", "-daemon", "mm2.properties", "--clusters", "B", "C"]);
        let (is_daemon, plain) = without_daemon(&line);
        assert!(is_daemon);
        let parsed = Arguments::try_parse_from(&plain).unwrap();
        assert_eq!(
            (parsed.config, parsed.clusters),
            (PathBuf::from("mm2.properties"), vec!["B".to_owned(), "C".to_owned()])
        );
        assert!(!without_daemon(&arguments(&["x", "f", "-daemon"])).0);
        for wrong in [&["x"][..], &["x", "a", "b"], &["x", "f", "--clusters"], &["x", "run", "f"]] {
            assert!(Arguments::try_parse_from(arguments(wrong)).is_err(), "{wrong:?}");
        }
    }
}

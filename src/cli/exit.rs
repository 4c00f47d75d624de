//! Exit codes. They are part of the interface: `--help` and the README list them.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked for is done.
    Done,
    /// It ended in order, but not everything is copied, or both sides differ.
    Incomplete,
    /// The command line or the file is at fault; nothing was done.
    Usage,
    /// It could not start or go on.
    Failed,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Done => 0,
            Exit::Incomplete => 1,
            Exit::Usage => 2,
            Exit::Failed => 3,
        })
    }
}

/// The codes in words, for `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0    done: stopped in order, or everything is copied
  1    not everything is copied (--until-caught-up), or both sides differ or were not compared (demo)
  2    the command line or the file is at fault; nothing was done
  3    it could not start or go on, such as a port that is taken, a flow that must not run or an output that is full
  129, 130, 143  a second SIGHUP, SIGINT or SIGTERM ended it at once";

//! What can go wrong in the harness itself, apart from what a test asserts.

use std::path::PathBuf;
use std::{fmt, io};

/// Result of every fallible harness call; tests return it, so that `?` ends them with the message.
pub type Result<T> = std::result::Result<T, HarnessError>;

/// Why the harness could not do what a test asked.
pub enum HarnessError {
    /// A tool, a jar or a package that the machine does not have and that could not be fetched.
    Missing { what: String, detail: String },
    /// A file or a process could not be handled by the operating system.
    Io { what: String, source: io::Error },
    /// A child process ended although it should run, or did not do its work; `log` is the end of its output.
    Process { what: String, log: String },
    /// A condition did not come true in time.
    Timeout { what: String, seen: String },
    /// A stock client answered with an error.
    Client { op: String, detail: String },
    /// A reply or a stored file that the harness does not understand.
    Malformed { what: String, detail: String },
    /// Two sides that should be equal are not.
    Difference(String),
}

impl HarnessError {
    pub(crate) fn io(what: impl fmt::Display, source: io::Error) -> Self {
        HarnessError::Io { what: what.to_string(), source }
    }

    pub(crate) fn path(verb: &str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        HarnessError::Io { what: format!("{verb} {}", path.into().display()), source }
    }
}

impl fmt::Display for HarnessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HarnessError::Missing { what, detail } => write!(f, "{what} is missing: {detail}"),
            HarnessError::Io { what, source } => write!(f, "{what}: {source}"),
            HarnessError::Process { what, log } => write!(f, "{what}; the end of its output:\n{log}"),
            HarnessError::Timeout { what, seen } => {
                write!(f, "timed out waiting for {what}; last seen: {seen}")
            }
            HarnessError::Client { op, detail } => write!(f, "{op}: {detail}"),
            HarnessError::Malformed { what, detail } => write!(f, "cannot understand {what}: {detail}"),
            HarnessError::Difference(text) => f.write_str(text),
        }
    }
}

/// Tests that return an error print it with `Debug`: keep it readable.
impl fmt::Debug for HarnessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for HarnessError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            HarnessError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

//! Log lines on stderr, as text or JSON.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::arguments::{LogFormat, Logging};

/// Whether a progress bar stands in the last line of the terminal, which a log line must remove first.
static BAR: AtomicBool = AtomicBool::new(false);

/// Says whether a progress bar stands in the last line.
pub(crate) fn set_bar(shown: bool) {
    BAR.store(shown, Ordering::Relaxed);
}

/// Starts logging. `KMIRROR_LOG` may hold a filter of its own, as `kmirror::net=trace`.
pub(crate) fn start(logging: &Logging) {
    let level = match (logging.quiet, logging.verbose) {
        (true, _) => "warn",
        (false, 0) => "info",
        (false, 1) => "debug",
        (false, _) => "trace",
    };
    let filter = EnvFilter::try_from_env("KMIRROR_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(logging.verbose > 0);
    // Only a second call can fail, and it would change nothing.
    let _ = match logging.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Stderr, one write for each line. Whoever read it may go away, as a log collector does that is replaced: replication goes
/// on without, and an error that was told here would be printed on stderr again, which ends the process.
struct Stderr;

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = Stderr;

    fn make_writer(&'a self) -> Stderr {
        Stderr
    }
}

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        if BAR.swap(false, Ordering::Relaxed) {
            let _ = stderr.write_all(b"\r\x1b[K");
        }
        let _ = stderr.write_all(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().flush();
        Ok(())
    }
}

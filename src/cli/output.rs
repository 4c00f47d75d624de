//! Standard output of commands that answer once. What cannot be written is no success; a reader that has seen enough, as
//! `head` does, is no failure.

use std::io::{self, Write};

use super::exit::Exit;

/// Writes a text whole.
///
/// # Errors
/// What it was not written for; it is said on standard error.
pub(crate) fn print(text: &str) -> Result<(), Exit> {
    let mut out = io::stdout().lock();
    judged(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Prints what clap has to say: help and version, or what is wrong with the command line.
pub(crate) fn print_clap(error: &clap::Error) -> Exit {
    let written = error.print().and_then(|()| io::stdout().flush());
    if error.use_stderr() {
        // What cannot be printed has no reader; the exit code still tells.
        return Exit::Usage;
    }
    judged(written).err().unwrap_or(Exit::Done)
}

fn judged(written: io::Result<()>) -> Result<(), Exit> {
    match written {
        Err(error) if !nobody_reads(&error) => {
            // Without a reader the exit code still tells.
            let _ = writeln!(io::stderr(), "kmirror: standard output cannot be written: {error}");
            Err(Exit::Failed)
        }
        _ => Ok(()),
    }
}

/// The reader has gone away.
pub(crate) fn nobody_reads(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

//! Files as they come: whatever kind one is, no more of it is read than a file may have, and a wait for it is said.
//!
//! A pipe is as good as a file, since that is what the shell's `<(…)` and `| kmirror check -` give. One that nobody writes
//! to keeps its reader for ever; whoever waits for it is told so.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::properties::FILE_BYTES_MAX;

/// A pipe that is written to is read to its end by then.
const REMIND_AFTER: Duration = Duration::from_secs(2);

/// The bytes of a file; of a larger one, a byte more than it may have.
pub(super) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    let _reminder = (!metadata.is_file()).then(|| Reminder::start(path.display().to_string()));
    read_bounded(File::open(path)?)
}

/// The same of standard input.
pub(super) fn read_stdin() -> io::Result<Vec<u8>> {
    let _reminder = Reminder::start("standard input".to_owned());
    read_bounded(io::stdin().lock())
}

fn read_bounded(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Says what is waited for, unless it is dropped in time.
struct Reminder {
    _over: mpsc::Sender<()>,
}

impl Reminder {
    fn start(name: String) -> Reminder {
        let (over, heard) = mpsc::channel();
        std::thread::spawn(move || {
            if heard.recv_timeout(REMIND_AFTER) == Err(RecvTimeoutError::Timeout) {
                tracing::warn!("waits for {name} to be written and closed: it is no ordinary file");
            }
        });
        Reminder { _over: over }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_a_file_may_have() {
        let bytes = read_file(Path::new("/dev/zero")).unwrap();
        assert_eq!(bytes.len(), FILE_BYTES_MAX + 1);
        let error = read_file(Path::new("/")).unwrap_err();
        assert_eq!(error.to_string(), "it is a directory");
    }
}

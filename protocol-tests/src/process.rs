//! Child processes that cannot outlive the test process, and their folders.
//!
//! A killed test process runs no destructor, so each child hangs on a pipe instead: a small `sh` wrapper starts the
//! program, prints its process id, obeys signal names that it reads from its standard input, and kills the program when
//! that pipe closes, which the kernel does for us at any end of the test process. Folders that must vanish hang on
//! such a pipe too.

use crate::wait::{Look, wait_for};
use crate::{HarnessError, Result};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// `$1` is the log, the rest the program. The watcher is a subshell, so that `wait` gives the program's own status.
const WRAPPER: &str = r#"
exec 3<&0
log=$1; shift
"$@" </dev/null >>"$log" 2>&1 3<&- &
pid=$!
echo "$pid"
exec >/dev/null
( while read -r signal <&3; do kill -"$signal" "$pid" 2>/dev/null; done; kill -KILL "$pid" 2>/dev/null ) &
watcher=$!
wait "$pid" 2>/dev/null; status=$?
kill -KILL "$watcher" 2>/dev/null
exit "$status"
"#;

/// Waits for the pipe to close, then removes the folder; a dying broker may still write into it for a moment.
const JANITOR: &str = r#"
read -r _
for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$1" 2>/dev/null && exit 0; sleep 0.3; done
"#;

/// A signal that a test sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ask to end.
    Terminate,
    /// As Ctrl-C.
    Interrupt,
    /// End at once, as in a crash.
    Kill,
    /// Freeze, as a machine that hangs.
    Stop,
    /// Thaw.
    Continue,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Signal::Terminate => "TERM",
            Signal::Interrupt => "INT",
            Signal::Kill => "KILL",
            Signal::Stop => "STOP",
            Signal::Continue => "CONT",
        }
    }
}

/// A running program with its output in a log file.
pub struct Supervised {
    what: String,
    wrapper: Child,
    /// Taken on drop: its closing kills the program.
    signals: Option<ChildStdin>,
    pid: u32,
    log: PathBuf,
}

impl Supervised {
    /// Starts `program`; its output is appended to `log`.
    pub fn start(what: &str, program: Program, log: &Path) -> Result<Supervised> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(WRAPPER).arg("sh").arg(log).arg(&program.path).args(&program.args);
        for (name, value) in &program.env {
            command.env(name, value);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut wrapper = command.spawn().map_err(|error| HarnessError::io(what, error))?;
        let signals = wrapper.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = wrapper.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(|error| HarnessError::io(what, error))?;
        }
        let pid = line.trim().parse().map_err(|_| HarnessError::Process {
            what: format!("{what} did not start"),
            log: line.clone(),
        })?;
        Ok(Supervised { what: what.to_owned(), wrapper, signals, pid, log: log.to_path_buf() })
    }

    /// The program's process id (not the wrapper's).
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal; a program that has ended ignores it.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        let Some(pipe) = self.signals.as_mut() else { return Ok(()) };
        match writeln!(pipe, "{}", signal.name()).and_then(|()| pipe.flush()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(HarnessError::io(&self.what, error))
            }
            _ => Ok(()),
        }
    }

    /// The exit status when the program has ended; killed by a signal reads 128 + its number.
    pub fn exit_code(&mut self) -> Result<Option<i32>> {
        let status = self.wrapper.try_wait().map_err(|error| HarnessError::io(&self.what, error))?;
        Ok(status.map(|status| status.code().unwrap_or(-1)))
    }

    /// Waits for the program to end and gives its exit status.
    pub fn wait(&mut self, timeout: Duration) -> Result<i32> {
        let what = format!("the end of {}", self.what);
        wait_for(&what, timeout, || {
            Ok(self.exit_code()?.map_or_else(|| Look::Pending("it runs".to_owned()), Look::Done))
        })
        .map_err(|error| self.with_log(error))
    }

    /// Waits until `ready` holds; fails at once, with the end of the log, when the program ends before.
    pub fn wait_ready(&mut self, timeout: Duration, mut ready: impl FnMut(&str) -> bool) -> Result<()> {
        let what = format!("{} to be ready", self.what);
        wait_for(&what, timeout, || {
            if ready(&self.output()) {
                return Ok(Look::Done(()));
            }
            match self.exit_code()? {
                Some(code) => Err(HarnessError::Process {
                    what: format!("{} exited with {code}", self.what),
                    log: tail(&self.output(), 40),
                }),
                None => Ok(Look::Pending(tail(&self.output(), 20))),
            }
        })
    }

    /// What the program has written so far.
    pub fn output(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    fn with_log(&self, error: HarnessError) -> HarnessError {
        HarnessError::Process { what: error.to_string(), log: tail(&self.output(), 40) }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        drop(self.signals.take());
        let _ = self.wrapper.wait();
    }
}

/// A program, its arguments and additions to its environment.
pub struct Program {
    path: OsString,
    args: Vec<OsString>,
    env: Vec<(String, OsString)>,
}

impl Program {
    /// A program without arguments.
    pub fn new(path: impl Into<OsString>) -> Program {
        Program { path: path.into(), args: Vec::new(), env: Vec::new() }
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Program {
        self.args.push(arg.into());
        self
    }

    /// Adds several arguments.
    pub fn args<T: Into<OsString>>(mut self, args: impl IntoIterator<Item = T>) -> Program {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets one environment variable.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Program {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// As a command of the standard library, for a child that is not supervised.
    pub fn into_command(self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs to the end; an exit status other than 0 is an error that carries the output.
    pub fn run(self, what: &str) -> Result<String> {
        let output = self
            .into_command()
            .stdin(Stdio::null())
            .output()
            .map_err(|error| HarnessError::io(what, error))?;
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.success() {
            return Ok(text);
        }
        Err(HarnessError::Process {
            what: format!("{what} ended with {}", output.status),
            log: tail(&text, 40),
        })
    }
}

/// What a process has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of all its threads, ended ones too.
    pub cpu: Duration,
    /// How often its first thread has gone to sleep by itself.
    pub wakes: u64,
    /// Memory resident now, in bytes.
    pub resident_bytes: u64,
    /// The most that was ever resident, in bytes.
    pub resident_bytes_max: u64,
}

impl Usage {
    /// Reads it from `/proc`. The processor time of a process comes in clock ticks of 10 ms, that of its threads in
    /// nanoseconds: where none has ended, theirs is exact.
    pub fn of(pid: u32) -> Result<Usage> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            std::fs::read_to_string(&path).map_err(|error| HarnessError::path("read", path, error))
        };
        let (stat, status) = (read("stat")?, read("status")?);
        let malformed = || HarnessError::Malformed { what: format!("/proc/{pid}"), detail: stat.clone() };
        // The name, in brackets, may hold anything; user and system time are fields 14 and 15.
        let after_name = stat.rsplit_once(')').ok_or_else(malformed)?.1;
        let ticks = after_name.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let ticks = ticks.sum::<std::result::Result<u64, _>>().map_err(|_| malformed())?;
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(malformed)?;
            let number = line.trim().trim_end_matches(" kB").trim();
            number.parse::<u64>().map(|number| number * 1024).map_err(|_| malformed())
        };
        let wakes = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let wakes = wakes.and_then(|count| count.trim().parse().ok()).ok_or_else(malformed)?;
        Ok(Usage {
            wakes,
            cpu: Duration::from_millis(ticks * 10).max(threads_cpu(pid)),
            resident_bytes: kilobytes("VmRSS:")?,
            resident_bytes_max: kilobytes("VmHWM:")?,
        })
    }
}

/// Processor time of the threads that run now; zero where the kernel does not tell.
fn threads_cpu(pid: u32) -> Duration {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let nanoseconds = tasks.flatten().filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// A temporary folder that is removed at the end of the test process, however that ends.
/// `KMIRROR_KEEP=1` keeps it for a look at the logs.
pub struct ScratchFolder {
    path: PathBuf,
    janitor: Option<Child>,
}

impl ScratchFolder {
    /// Makes an empty folder whose name begins with `prefix`.
    pub fn new(prefix: &str) -> Result<ScratchFolder> {
        let path = tempfile::Builder::new()
            .prefix(&format!("kmirror-{prefix}-"))
            .tempdir()
            .map_err(|error| HarnessError::io("a temporary folder", error))?
            .keep();
        let janitor = if std::env::var_os("KMIRROR_KEEP").is_some() {
            None
        } else {
            let mut command = Command::new("sh");
            command.arg("-c").arg(JANITOR).arg("sh").arg(&path).stdin(Stdio::piped());
            Some(command.spawn().map_err(|error| HarnessError::io("a janitor", error))?)
        };
        Ok(ScratchFolder { path, janitor })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if let Some(janitor) = self.janitor.as_mut() {
            drop(janitor.stdin.take());
            let _ = janitor.wait();
        }
    }
}

/// The last `lines` lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(log: &Path) -> Supervised {
        Supervised::start("sleep", Program::new("sleep").arg("600"), log).unwrap()
    }

    fn runs(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn dropping_the_handle_kills_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let child = sleeper(&folder.path().join("log"));
        let pid = child.pid();
        assert!(runs(pid));
        drop(child);
        assert!(!runs(pid));
    }

    #[test]
    fn a_signal_reaches_the_program_and_its_status_is_given() {
        let folder = tempfile::tempdir().unwrap();
        for (signal, status) in [(Signal::Kill, 137), (Signal::Terminate, 143)] {
            let mut child = sleeper(&folder.path().join("log"));
            assert_eq!(child.exit_code().unwrap(), None);
            child.signal(signal).unwrap();
            assert_eq!(child.wait(Duration::from_secs(5)).unwrap(), status);
        }
    }

    #[test]
    fn a_program_that_ends_too_early_is_reported_with_its_output() {
        let folder = tempfile::tempdir().unwrap();
        let program = Program::new("sh").args(["-c", "echo no such port; exit 3"]);
        let mut child = Supervised::start("broker", program, &folder.path().join("log")).unwrap();
        let error = child.wait_ready(Duration::from_secs(5), |_| false).unwrap_err().to_string();
        assert!(error.contains("exited with 3") && error.contains("no such port"), "{error}");
    }

    #[test]
    fn usage_is_read_of_this_process() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(
            usage.resident_bytes > 1 << 20 && usage.resident_bytes_max >= usage.resident_bytes,
            "{usage:?}"
        );
    }

    #[test]
    fn a_scratch_folder_vanishes_with_its_content() {
        let folder = ScratchFolder::new("test").unwrap();
        let path = folder.path().to_path_buf();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(folder);
        assert_eq!(path.exists(), std::env::var_os("KMIRROR_KEEP").is_some());
    }
}

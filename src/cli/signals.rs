//! SIGINT, SIGTERM and SIGHUP: the first asks for an orderly stop, the second ends the process at once.
//!
//! A terminal that goes away says so by SIGHUP, which stops a Java process in order as well. Under `nohup` it is ignored from the
//! start, and stays so.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Waits for signals.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` where it is ignored.
    hangup: Option<Signal>,
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Interrupt,
    Terminate,
    Hangup,
}

impl Received {
    /// The exit code of a process that the signal ends, as shells give it.
    pub(crate) fn exit_code(self) -> i32 {
        match self {
            Received::Interrupt => 130,
            Received::Terminate => 143,
            Received::Hangup => 129,
        }
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Received::Interrupt => "SIGINT",
            Received::Terminate => "SIGTERM",
            Received::Hangup => "SIGHUP",
        }
    }
}

impl Signals {
    /// From now on signals are waited for instead of ending the process.
    pub(crate) fn new() -> io::Result<Signals> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = SignalKind::hangup();
        let hangup = if is_ignored(&status, hangup) { None } else { Some(signal(hangup)?) };
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Signals { interrupt, terminate: signal(SignalKind::terminate())?, hangup })
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) -> Received {
        tokio::select! {
            biased;
            Some(()) = self.interrupt.recv() => Received::Interrupt,
            Some(()) = self.terminate.recv() => Received::Terminate,
            Some(()) = heard(&mut self.hangup) => Received::Hangup,
            else => std::future::pending().await,
        }
    }

    /// The next signal after some time; what arrives before is part of the one before it, as `timeout` and terminals
    /// send one to the process and one to its group.
    pub(crate) async fn next_after(&mut self, pause: Duration) -> Received {
        let started = Instant::now();
        loop {
            let received = self.next().await;
            if started.elapsed() >= pause {
                return received;
            }
        }
    }
}

async fn heard(signal: &mut Option<Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether whoever started us has a signal ignored: the mask `SigIgn` of `/proc/self/status`, a bit for each signal. Where that
/// cannot be read, a hangup is left to what it does by itself.
fn is_ignored(status: &str, signal: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask >> (signal.as_raw_value() - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nohup_is_seen() {
        for (status, ignored) in [
            ("Name:\tkmirror\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000000000\n", true),
            ("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n", false),
            ("SigIgn:\tzz\n", true),
            ("", true),
        ] {
            assert_eq!(is_ignored(status, SignalKind::hangup()), ignored, "{status}");
        }
    }
}

//! SIGINT and SIGTERM: the first asks for an orderly stop, the second ends the process at once.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Waits for signals.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Interrupt,
    Terminate,
}

impl Received {
    /// The exit code of a process that the signal ends, as shells give it.
    pub(crate) fn exit_code(self) -> i32 {
        match self {
            Received::Interrupt => 130,
            Received::Terminate => 143,
        }
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Received::Interrupt => "SIGINT",
            Received::Terminate => "SIGTERM",
        }
    }
}

impl Signals {
    /// From now on signals are waited for instead of ending the process.
    pub(crate) fn new() -> io::Result<Signals> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Signals { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) -> Received {
        tokio::select! {
            biased;
            Some(()) = self.interrupt.recv() => Received::Interrupt,
            Some(()) = self.terminate.recv() => Received::Terminate,
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

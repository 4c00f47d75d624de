//! How a lane gets its connection, and how it waits while its inbox is served.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::net::{self, Established, Fault, HostPort, Security, establish_after};
use crate::seam::Seam;

/// A lane's way to its broker.
#[derive(Debug)]
pub(super) struct Dialler {
    pub(super) seam: Seam,
    pub(super) net: net::Settings,
    pub(super) broker: HostPort,
    failures: u32,
}

impl Dialler {
    pub(super) fn new(seam: Seam, net: net::Settings, broker: HostPort) -> Dialler {
        Dialler { seam, net, broker, failures: 0 }
    }

    /// One attempt.
    pub(super) async fn dial(&self) -> Result<Established, net::Error> {
        establish_after(&self.seam, &self.net, &self.broker.host, self.broker.port, self.failures).await
    }

    /// How long to wait after an attempt, or a connection, that failed (`reconnect.backoff.ms`, longer when we were refused).
    pub(super) fn failed(&mut self, fault: Fault) -> Duration {
        let backoff = match fault {
            Fault::Security => Security::REFUSED_BACKOFF,
            _ => self.net.reconnect_backoff,
        };
        let delay = backoff.delay(self.failures, self.seam.random());
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// A request was answered: the next failure is the first again.
    pub(super) fn worked(&mut self) {
        self.failures = 0;
    }
}

/// Does `work` while `serve` gets what comes into the inbox; `None` when the inbox's owner is gone.
pub(super) async fn while_serving<C, T>(
    inbox: &mut UnboundedReceiver<C>,
    mut serve: impl FnMut(C),
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            command = inbox.recv() => serve(command?),
            output = &mut work => return Some(output),
        }
    }
}

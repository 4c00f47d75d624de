//! Until when a lane may write: a right that runs out by itself.
//!
//! Who loses the right by a message is stopped by that message. A process that stood still (a frozen machine, a stopped
//! process, a starved one) reads it only after it has gone on, and what it had been about to send would come after what its
//! successor has sent. So whoever writes looks at the clock before each write, and nothing has to be heard first.

use tokio::sync::watch;
use tokio::time::Instant;

/// The right to write, as the one who uses it sees it.
#[derive(Clone, Debug)]
pub struct Permit(Option<watch::Receiver<Option<Instant>>>);

/// The same, as the one who gives it does.
#[derive(Debug)]
pub struct Grantor(watch::Sender<Option<Instant>>);

impl Permit {
    /// One that never runs out.
    pub fn always() -> Permit {
        Permit(None)
    }

    /// Whether it still holds.
    pub fn holds(&self, now: Instant) -> bool {
        match &self.0 {
            None => true,
            Some(until) => until.borrow().is_some_and(|until| now < until),
        }
    }

    /// Waits until it holds. One whose giver is gone never does again.
    pub async fn held(&mut self) {
        while !self.holds(Instant::now()) {
            let Some(until) = &mut self.0 else { return };
            if until.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Grantor {
    /// Nothing is granted yet.
    pub fn new() -> Grantor {
        Grantor(watch::Sender::new(None))
    }

    /// What it grants.
    pub fn permit(&self) -> Permit {
        Permit(Some(self.0.subscribe()))
    }

    /// Until when it holds from now on; `None` when it does not.
    pub fn grant(&self, until: Option<Instant>) {
        self.0.send_if_modified(|old| std::mem::replace(old, until) != until);
    }
}

impl Default for Grantor {
    fn default() -> Grantor {
        Grantor::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_runs_out_by_itself_and_can_be_renewed() {
        let grantor = Grantor::new();
        let mut permit = grantor.permit();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(!permit.holds(start), "nothing granted");
        grantor.grant(Some(after(10)));
        assert!(permit.holds(after(9)) && !permit.holds(after(10)));
        permit.held().await;
        assert_eq!(Instant::now(), start);
        tokio::time::sleep(Duration::from_secs(12)).await;
        let waits = tokio::spawn(async move {
            permit.held().await;
            (permit, Instant::now())
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        grantor.grant(Some(after(11)));
        tokio::time::sleep(Duration::from_secs(1)).await;
        grantor.grant(Some(after(30)));
        let (permit, when) = waits.await.unwrap();
        assert_eq!(when, after(14), "an old one does not count");
        grantor.grant(None);
        assert!(!permit.holds(after(15)));
        assert!(Permit::always().holds(after(1_000)));
    }
}

//! Requests that wait for something, and which of them are to be looked at again.

use std::collections::BTreeMap;

use super::ClusterState;
use super::fetch::FetchWait;
use crate::broker::wire::{Outcome, Request, WaitId};

/// A request that waits.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A Fetch, for data.
    Fetch(Box<FetchWait>),
    /// A JoinGroup or SyncGroup, for the rest of its group; the outcome stands here once it is known.
    Group { request: Request, outcome: Option<Outcome> },
}

/// All waits of a cluster.
#[derive(Debug, Default)]
pub(super) struct Waits {
    next: u64,
    waiting: BTreeMap<WaitId, Waiting>,
    woken: Vec<WaitId>,
}

impl Waits {
    pub(super) fn insert(&mut self, waiting: Waiting) -> WaitId {
        self.next += 1;
        let id = WaitId(self.next);
        self.waiting.insert(id, waiting);
        id
    }

    pub(super) fn remove(&mut self, id: WaitId) -> Option<Waiting> {
        self.waiting.remove(&id)
    }

    pub(super) fn put_back(&mut self, id: WaitId, waiting: Waiting) {
        self.waiting.insert(id, waiting);
    }

    pub(super) fn take_woken(&mut self) -> Vec<WaitId> {
        std::mem::take(&mut self.woken)
    }

    /// Wakes the Fetches for which `meets` holds.
    pub(super) fn wake_fetches(&mut self, meets: impl Fn(&FetchWait) -> bool) {
        for (&id, waiting) in &self.waiting {
            if matches!(waiting, Waiting::Fetch(fetch) if meets(fetch)) {
                self.woken.push(id);
            }
        }
    }

    /// Ends the wait of a group member with its reply.
    pub(super) fn answer(&mut self, id: WaitId, make: impl FnOnce(&Request) -> Outcome) {
        if let Some(Waiting::Group { request, outcome }) = self.waiting.get_mut(&id) {
            *outcome = Some(make(request));
            self.woken.push(id);
        }
    }
}

impl ClusterState {
    pub(super) fn resume_wait(&mut self, id: WaitId, now_ms: i64) -> Outcome {
        match self.waits.remove(id) {
            Some(Waiting::Fetch(fetch)) => self.resume_fetch(id, fetch, now_ms),
            Some(Waiting::Group { outcome: Some(outcome), .. }) => outcome,
            Some(waiting) => {
                self.waits.put_back(id, waiting);
                Outcome::Wait { id, deadline_ms: i64::MAX }
            }
            None => Outcome::Close,
        }
    }
}

//! The task that keeps this process a member of the lease's group, and tells whether it holds the lease.
//!
//! ```text
//! Seeking ──join, sync──► Standby ──rebalance, chosen──► Held
//!    ▲                       │                            │
//!    └── given up by the coordinator, or not heard of it ─┘
//! ```
//! A broken connection or a coordinator that moved is no loss by itself: the member comes back under its member id within
//! the session timeout. Only the tenure's own clock ends a holder that cannot come back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::membership::{Joined, Membership, Trouble};
use super::protocol::{Assignment, Claim, choose, group_id};
use super::tenure::{Change, Tenure};
use crate::client::Cluster;
use crate::mirror::FlowSettings;
use crate::net::Backoff;
use crate::seam::Seam;

/// Silence after which the coordinator gives a member up, and so the time within which another process takes over. Kafka's
/// brokers allow 6 s and more (`group.min.session.timeout.ms`).
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Between heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Between attempts to reach the coordinator.
const BACKOFF: Backoff = Backoff::millis(50, 1_000);
/// How long leaving the group may take at the end.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The lease of a flow, as the flow sees it.
#[derive(Debug)]
pub struct Lease {
    state: watch::Receiver<LeaseState>,
    leave: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

/// How it stands with the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Not a member of the group now; why, when it was one before.
    Seeking(Option<String>),
    /// Another process holds it.
    Standby {
        /// The holder's client id and a number of its own.
        holder: Arc<str>,
    },
    /// This process holds it, since this generation of the group.
    Held(i32),
    /// The target does not let this process into the group.
    Refused(String),
}

impl Lease {
    /// Starts to seek the lease of a flow.
    pub fn seek(seam: &Seam, settings: &FlowSettings, target: &Cluster) -> Lease {
        let (state_sender, state) = watch::channel(LeaseState::Seeking(None));
        let (leave, left) = oneshot::channel();
        let group: Arc<str> = Arc::from(group_id(&settings.source, &settings.target));
        let name = format!("{}-{:08x}", target.settings().net.client_id, seam.random() as u32);
        let holder = Holder {
            seam: seam.clone(),
            since_ms: seam.now_ms(),
            name: Arc::from(name),
            member: Membership::new(target.clone(), group, SESSION_TIMEOUT),
            tenure: TenureWatch {
                started: Instant::now(),
                tenure: Tenure::new(SESSION_TIMEOUT),
                state: state_sender,
            },
        };
        let task = seam.spawn(holder.run(left));
        Lease { state, leave: Some(leave), task }
    }

    /// How it stands now.
    pub fn state(&self) -> LeaseState {
        self.state.borrow().clone()
    }

    /// Waits until it stands differently.
    pub async fn changed(&mut self) {
        if self.state.changed().await.is_err() {
            // The task has ended, which it does only when it is told to.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the lease that is held since generation `held_since` no longer is; answers why.
    pub async fn lost(&mut self, held_since: i32) -> String {
        loop {
            match self.state() {
                LeaseState::Held(since) if since == held_since => {}
                LeaseState::Held(_) => return "another process held the lease in between".to_owned(),
                LeaseState::Standby { holder } => return format!("{holder} holds the lease now"),
                LeaseState::Seeking(reason) => {
                    return reason.unwrap_or_else(|| "the lease is gone".to_owned());
                }
                LeaseState::Refused(reason) => return reason,
            }
            self.changed().await;
        }
    }

    /// Gives the lease back, so that another process need not wait for the session timeout.
    pub async fn leave(mut self) {
        if let Some(leave) = self.leave.take() {
            let _ = leave.send(());
        }
        let _ = (&mut self.task).await;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The tenure with its clock, and where its changes are told.
struct TenureWatch {
    started: Instant,
    tenure: Tenure,
    state: watch::Sender<LeaseState>,
}

struct Holder {
    seam: Seam,
    since_ms: i64,
    name: Arc<str>,
    member: Membership,
    tenure: TenureWatch,
}

impl Holder {
    async fn run(mut self, left: oneshot::Receiver<()>) {
        tokio::select! {
            biased;
            _ = left => {}
            () = self.hold() => {}
        }
        // Nobody else holds the lease before this member has left, so the state is told first.
        self.tenure.given_up("it was given back".to_owned());
        let _ = timeout(LEAVE_TIMEOUT, self.member.leave()).await;
    }

    async fn hold(&mut self) {
        let mut failures = 0;
        loop {
            let trouble = match self.join().await {
                Ok(()) => {
                    failures = 0;
                    self.stay().await
                }
                Err(trouble) => trouble,
            };
            match trouble {
                Trouble::Rejoin => {}
                Trouble::GivenUp(reason) => self.tenure.given_up(reason),
                Trouble::Lost(reason) => {
                    tracing::debug!(target: "kmirror::lease", reason, "the coordinator cannot be reached");
                    let delay = BACKOFF.delay(failures, self.seam.random());
                    failures = failures.saturating_add(1);
                    self.tenure.guard(sleep(delay)).await;
                }
                Trouble::Refused(reason) => {
                    self.tenure.refused(reason);
                    return std::future::pending().await;
                }
            }
        }
    }

    /// Takes part in a generation of the group.
    async fn join(&mut self) -> Result<(), Trouble> {
        let claim = Claim {
            held_since: self.tenure.tenure.held_since().unwrap_or(-1),
            since_ms: self.since_ms,
            name: self.name.clone(),
        };
        let joined = self.tenure.guard(self.member.join(claim.encode())).await?;
        let sent = self.tenure.now();
        let assignments = assignments(joined);
        let assignment = self.tenure.guard(self.member.sync(assignments)).await?;
        let Some(assignment) = Assignment::decode(&assignment) else {
            return Err(Trouble::Refused("the group's leader speaks another language".to_owned()));
        };
        self.tenure.assigned(&assignment, self.member.member_id(), sent);
        Ok(())
    }

    /// Stays a member until something comes between. A holder that gave the lease up by its own clock, while the coordinator
    /// still counts it as the holder, asks for a new decision.
    async fn stay(&mut self) -> Trouble {
        let was_held = self.tenure.tenure.held_since().is_some();
        loop {
            self.tenure.guard(sleep(HEARTBEAT_INTERVAL)).await;
            let sent = self.tenure.now();
            match self.tenure.guard(self.member.heartbeat()).await {
                Ok(()) if was_held && self.tenure.tenure.held_since().is_none() => return Trouble::Rejoin,
                Ok(()) => self.tenure.tenure.heard(sent),
                Err(trouble) => return trouble,
            }
        }
    }
}

/// What the leader sends: its decision, to every member. Others send nothing.
fn assignments(joined: Joined) -> Vec<(Arc<str>, Bytes)> {
    let Some(members) = joined.members else { return Vec::new() };
    let claims: Vec<(Arc<str>, Claim)> =
        members.into_iter().map(|(id, metadata)| (id, Claim::decode(&metadata))).collect();
    let Some(assignment) = choose(joined.generation, &claims) else { return Vec::new() };
    let bytes = assignment.encode();
    claims.into_iter().map(|(id, _)| (id, bytes.clone())).collect()
}

impl TenureWatch {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits for `work`, and gives the lease up when its time is over before.
    async fn guard<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            let Some(deadline) = self.tenure.deadline() else { return work.await };
            tokio::select! {
                biased;
                outcome = &mut work => return outcome,
                () = sleep_until(self.started + deadline) => {
                    if self.tenure.tick(self.now()) == Change::Lost {
                        self.tell_lost("nothing was heard of the lease's coordinator in time".to_owned());
                    }
                }
            }
        }
    }

    fn assigned(&mut self, assignment: &Assignment, member_id: &Arc<str>, sent: Duration) {
        let held_since = (assignment.holder == *member_id).then_some(assignment.held_since);
        if self.tenure.assigned(held_since, sent) == Change::Lost && held_since.is_some() {
            // Somebody else held it in between: that is a new tenure.
            self.tenure.assigned(held_since, sent);
        }
        let state = match held_since {
            Some(since) => LeaseState::Held(since),
            None => LeaseState::Standby { holder: assignment.holder_name.clone() },
        };
        self.tell(state);
    }

    fn given_up(&mut self, reason: String) {
        self.tenure.given_up();
        self.tell_lost(reason);
    }

    fn refused(&mut self, reason: String) {
        self.tenure.given_up();
        self.tell(LeaseState::Refused(reason));
    }

    fn tell_lost(&self, reason: String) {
        self.tell(LeaseState::Seeking(Some(reason)));
    }

    fn tell(&self, state: LeaseState) {
        self.state.send_if_modified(|old| {
            let is_new = *old != state;
            *old = state;
            is_new
        });
    }
}

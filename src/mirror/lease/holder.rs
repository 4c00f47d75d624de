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
use tokio::time::{Instant, sleep_until};

use super::protocol::{Assignment, Claim, PROTOCOL, PROTOCOL_TYPE, choose, group_id};
use super::tenure::{Change, Tenure};
use crate::client::produce::{Grantor, Permit};
use crate::client::{Cluster, Election, GroupEvent, GroupSettings, Membership, Rejoin};
use crate::mirror::{FlowSettings, Naming, Share};
use crate::seam::Seam;

/// Silence after which the coordinator gives a member up, and so the time within which another process takes over. A broker
/// that dies without a word is missed by its cluster after 9 s (`broker.session.timeout.ms`) and only then another one
/// coordinates its groups: less time than that, and each such death would stop flows that could go on.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(20);
/// Between heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);

/// The lease of a flow, as the flow sees it.
#[derive(Debug)]
pub struct Lease {
    watch: LeaseWatch,
    permit: Permit,
    leave: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

/// A look at the lease beside whoever waits for it.
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    state: watch::Receiver<LeaseState>,
    trouble: watch::Receiver<Option<String>>,
}

impl LeaseWatch {
    /// How it stands now.
    pub fn state(&self) -> LeaseState {
        self.state.borrow().clone()
    }

    /// What last kept this process from being a member of the group.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }
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
    /// This process holds it.
    Held(Grant),
    /// The target does not let this process into the group.
    Refused(String),
}

/// What is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Since which generation of the group.
    pub since: i32,
    /// Shares of the flow's topics that others have held for longer, with their names.
    pub before: Arc<[(Share, Arc<str>)]>,
}

impl Lease {
    /// Starts to seek the lease of a flow.
    pub fn seek(seam: &Seam, settings: &FlowSettings, naming: Option<Naming>, target: &Cluster) -> Lease {
        let (state_sender, state) = watch::channel(LeaseState::Seeking(None));
        let (trouble_sender, trouble) = watch::channel(None);
        let (leave, left) = oneshot::channel();
        let grantor = Grantor::new();
        let permit = grantor.permit();
        let name = format!("{}-{:08x}", target.settings().net.client_id, seam.random() as u32);
        let holder = Holder {
            target: target.clone(),
            settings: GroupSettings {
                group_id: Arc::from(group_id(&settings.source, &settings.target)),
                protocol_type: Arc::from(PROTOCOL_TYPE),
                group_instance_id: None,
                protocols: vec![Arc::from(PROTOCOL)],
                session_timeout: SESSION_TIMEOUT,
                // Not shorter, or the coordinator could give a silent holder up before it stops by itself.
                rebalance_timeout: SESSION_TIMEOUT,
                heartbeat_interval: HEARTBEAT_INTERVAL,
                rejoin: Rejoin::AtOnce,
            },
            claim: Claim {
                held_since: -1,
                since_ms: seam.now_ms(),
                name: Arc::from(name),
                share: Share::of(settings),
                naming,
            },
            started: Instant::now(),
            tenure: Tenure::new(SESSION_TIMEOUT),
            grantor,
            state: state_sender,
            trouble: trouble_sender,
        };
        let task = seam.spawn(holder.run(left));
        Lease { watch: LeaseWatch { state, trouble }, permit, leave: Some(leave), task }
    }

    /// How it stands now.
    pub fn state(&self) -> LeaseState {
        self.watch.state()
    }

    /// The right to write while it is held, for those who must not wait to hear of its loss.
    pub fn permit(&self) -> Permit {
        self.permit.clone()
    }

    /// A look at it for somebody else.
    pub fn watch(&self) -> LeaseWatch {
        self.watch.clone()
    }

    /// Waits until it stands differently.
    pub async fn changed(&mut self) {
        if self.watch.state.changed().await.is_err() {
            // The task has ended, which it does only when it is told to.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until what is held is no longer that; answers why.
    pub async fn lost(&mut self, held: &Grant) -> String {
        loop {
            match self.state() {
                LeaseState::Held(grant) if grant == *held => {}
                LeaseState::Held(grant) if grant.since == held.since => {
                    return "other processes take other topics of the flow now".to_owned();
                }
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

struct Holder {
    target: Cluster,
    settings: GroupSettings,
    claim: Claim,
    started: Instant,
    tenure: Tenure,
    grantor: Grantor,
    state: watch::Sender<LeaseState>,
    trouble: watch::Sender<Option<String>>,
}

/// What is to become of a membership.
enum Next {
    Stay,
    /// The group counts us as the holder, and we have given the lease up: only a new member can get a new decision.
    Anew,
    /// The group will not have us.
    Refused(String),
}

impl Holder {
    async fn run(mut self, mut left: oneshot::Receiver<()>) {
        loop {
            let mut member = self.join();
            let next = tokio::select! {
                biased;
                _ = &mut left => None,
                next = self.stay(&mut member) => Some(next),
            };
            let is_anew = matches!(next, Some(Next::Anew));
            // Nobody else holds the lease before this member has left, so that is told first.
            match next {
                None => self.given_up("it was given back".to_owned()),
                Some(Next::Refused(reason)) => {
                    self.tenure.given_up();
                    self.tell(LeaseState::Refused(reason));
                }
                Some(Next::Anew | Next::Stay) => {}
            }
            member.leave().await;
            if !is_anew {
                return;
            }
        }
    }

    fn join(&self) -> Membership {
        let assign = |election: &Election<'_>| assignments(election.generation, election.members);
        let words = vec![self.claim.encode()];
        Membership::join(&self.target, self.settings.clone(), words, Box::new(assign))
    }

    /// Takes part in the group, and watches the tenure's clock beside it.
    async fn stay(&mut self, member: &mut Membership) -> Next {
        loop {
            let deadline = self.tenure.deadline().map(|at| self.started + at);
            self.grant();
            let next = tokio::select! {
                biased;
                event = member.next() => match event {
                    Some(event) => self.on_event(event),
                    None => Next::Anew,
                },
                () = sleep_until(deadline.unwrap_or(self.started)), if deadline.is_some() => {
                    if self.tenure.tick(self.started.elapsed()) == Change::Lost {
                        self.tell_lost("nothing was heard of the lease's coordinator in time".to_owned());
                    }
                    Next::Stay
                }
            };
            if !matches!(next, Next::Stay) {
                return next;
            }
            let held_since = self.tenure.held_since().unwrap_or(-1);
            if held_since != self.claim.held_since {
                self.claim.held_since = held_since;
                member.set_metadata(vec![self.claim.encode()]);
            }
        }
    }

    fn on_event(&mut self, event: GroupEvent) -> Next {
        match event {
            GroupEvent::Joined { member_id, assignment, sent, .. } => {
                let Some(assignment) = Assignment::decode(&assignment) else {
                    return Next::Refused(
                        "the leader of the lease's group speaks another language".to_owned(),
                    );
                };
                self.assigned(&assignment, &member_id, sent.duration_since(self.started));
            }
            GroupEvent::Heard { sent } => {
                let is_counted = matches!(&*self.state.borrow(), LeaseState::Seeking(Some(_)));
                if is_counted && self.tenure.held_since().is_none() {
                    return Next::Anew;
                }
                self.tenure.heard(sent.duration_since(self.started));
            }
            GroupEvent::Rebalancing => {}
            GroupEvent::Lost { reason } => self.given_up(reason.to_string()),
            GroupEvent::Trouble(error) if error.is_retriable() => {
                tracing::debug!(target: "kmirror::lease", error = %error.chain(), "the lease's group");
                self.trouble.send_replace(Some(error.chain()));
            }
            GroupEvent::Trouble(error) => return Next::Refused(error.chain()),
        }
        Next::Stay
    }

    fn assigned(&mut self, assignment: &Assignment, member_id: &Arc<str>, sent: Duration) {
        let held_since = (assignment.holder == *member_id).then_some(assignment.held_since);
        if self.tenure.assigned(held_since, sent) == Change::Lost && held_since.is_some() {
            // Somebody else held it in between: that is a new tenure.
            self.tenure.assigned(held_since, sent);
        }
        self.trouble.send_replace(None);
        self.tell(match held_since {
            Some(since) => LeaseState::Held(Grant { since, before: assignment.before.as_slice().into() }),
            None => LeaseState::Standby { holder: assignment.holder_name.clone() },
        });
    }

    fn given_up(&mut self, reason: String) {
        self.tenure.given_up();
        self.tell_lost(reason);
    }

    fn grant(&self) {
        self.grantor.grant(self.tenure.deadline().map(|at| self.started + at));
    }

    fn tell_lost(&self, reason: String) {
        self.tell(LeaseState::Seeking(Some(reason)));
    }

    fn tell(&self, state: LeaseState) {
        self.grant();
        self.state.send_if_modified(|old| {
            let is_new = *old != state;
            *old = state;
            is_new
        });
    }
}

/// What the leader sends: its decision, to every member.
fn assignments(generation: i32, members: &[(Arc<str>, Bytes)]) -> Vec<(Arc<str>, Bytes)> {
    let claims: Vec<(Arc<str>, Claim)> =
        members.iter().map(|(id, metadata)| (id.clone(), Claim::decode(metadata))).collect();
    choose(generation, &claims).into_iter().map(|(id, assignment)| (id, assignment.encode())).collect()
}

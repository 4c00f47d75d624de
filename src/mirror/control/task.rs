//! The life of a flow's control task: wait for MirrorMaker to be gone, hold the lease, rule while it lasts.
//!
//! Four things can end a reign at any moment, so they stand beside it in one `select!`, the most urgent first: the lease
//! is lost, a MirrorMaker appears, its connector is paused, the owner says stop. Whatever the reign is doing then is dropped
//! where it waits; both clusters are asked again before anything else is done, so nothing is lost by that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::membership::join_and_reign;
use super::pause::{paused_meanwhile, stand_while_paused};
use super::reign::{Neighbours, Reign};
use super::waiting::{because, name, waiting};
use super::{ControlCommand, ControlEvent, Orders};
use crate::client::{Cluster, Error, Topics};
use crate::mirror::dry_run::same_cluster;
use crate::mirror::lease::protocol::group_id;
use crate::mirror::lease::{Grant, Lease, LeaseState};
use crate::mirror::state::TopicPartition;
use crate::mirror::state::records::Position;
use crate::mirror::status::FlowState;
use crate::mirror::takeover::{self, Step, WAIT_INTERVAL, WATCH_INTERVAL};
use crate::mirror::{FlowSettings, Naming, OtherShare, Share};
use crate::seam::Seam;

/// Events that wait for the flow's owner.
const EVENTS_MAX: usize = 1_024;
/// Commands that wait for the control task; what more there is waits with [`Orders`].
const COMMANDS_MAX: usize = 256;

/// The flow's side of its control task.
#[derive(Debug)]
pub struct Control {
    /// What it says.
    pub events: mpsc::Receiver<ControlEvent>,
    /// What it is told; when this is dropped it ends as if told to stop.
    pub orders: Orders,
}

/// Starts the control task of a flow.
pub fn start_control(
    seam: &Seam,
    settings: Arc<FlowSettings>,
    source: Cluster,
    target: Cluster,
    takeover_timeout: Duration,
) -> Control {
    let (events_sender, events) = mpsc::channel(EVENTS_MAX);
    let (commands, commands_receiver) = mpsc::channel(COMMANDS_MAX);
    let flow = Flow { seam: seam.clone(), settings, source, target, events: events_sender };
    let mailbox = Mailbox::new(commands_receiver);
    seam.spawn(live(flow, mailbox, takeover_timeout));
    Control { events, orders: Orders::new(commands) }
}

/// What all parts of the control task share.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) seam: Seam,
    pub(super) settings: Arc<FlowSettings>,
    pub(super) source: Cluster,
    pub(super) target: Cluster,
    pub(super) events: mpsc::Sender<ControlEvent>,
}

/// The owner's commands, so that a stop is heard whatever else goes on.
///
/// Restarts of one partition are one, so that what waits is bounded by the number of partitions.
#[derive(Debug)]
pub(super) struct Mailbox {
    commands: mpsc::Receiver<ControlCommand>,
    restarts: BTreeMap<TopicPartition, Option<Position>>,
    discover: bool,
    /// It was told to stop, and that what was sent may still arrive.
    is_in_doubt: bool,
}

impl Mailbox {
    fn new(commands: mpsc::Receiver<ControlCommand>) -> Mailbox {
        Mailbox { commands, restarts: BTreeMap::new(), discover: false, is_in_doubt: false }
    }

    /// The next command; a stop when the owner is gone.
    pub(super) async fn next(&mut self) -> ControlCommand {
        if let Some((partition, position)) = self.restarts.pop_first() {
            return ControlCommand::Restart { partition, position };
        }
        if std::mem::take(&mut self.discover) {
            return ControlCommand::Discover;
        }
        let command = self.commands.recv().await.unwrap_or(ControlCommand::Stop);
        self.is_in_doubt |= matches!(command, ControlCommand::StopInDoubt);
        command
    }

    /// All restarts that wait.
    pub(super) fn restarts(&mut self) -> BTreeMap<TopicPartition, Option<Position>> {
        std::mem::take(&mut self.restarts)
    }

    /// Ends when the owner says stop or is gone; what else it says waits for [`Mailbox::next`].
    pub(super) async fn stop(&mut self) {
        while let Some(command) = self.commands.recv().await {
            match command {
                ControlCommand::Stop => return,
                ControlCommand::StopInDoubt => {
                    self.is_in_doubt = true;
                    return;
                }
                ControlCommand::Discover => self.discover = true,
                ControlCommand::Restart { partition, position } => {
                    self.restarts.insert(partition, position);
                }
            }
        }
    }

    /// Whether it was told to stop, and that what was sent may still arrive.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// Forgets what was said before: it belongs to an earlier reign.
    pub(super) fn forget(&mut self) {
        (self.restarts, self.discover) = (BTreeMap::new(), false);
    }
}

/// How a part of the life ends.
#[derive(Debug)]
pub(super) enum End {
    /// The owner said so, or is gone.
    Stopped,
    /// The flow cannot go on.
    Failed(String),
}

impl Flow {
    /// Says something to the owner; an owner that is gone is noticed by its commands.
    pub(super) async fn tell(&self, event: ControlEvent) {
        let _ = self.events.send(event).await;
    }

    pub(super) async fn state(&self, state: FlowState) {
        self.tell(ControlEvent::State(state)).await;
    }

    /// Says that a reign is over, but for a stop, which the owner knows of; how the life ends if it ends with it.
    pub(super) async fn after(&self, outcome: Outcome) -> Option<End> {
        let (reason, end) = match outcome {
            Outcome::Lost(reason) => (reason, None),
            Outcome::Ended(End::Failed(reason)) => (reason.clone(), Some(End::Failed(reason))),
            Outcome::Ended(End::Stopped) => return Some(End::Stopped),
        };
        self.tell(ControlEvent::Revoked { reason }).await;
        end
    }

    /// The flow without the topics that others have taken before.
    fn beside(&self, grant: &Grant) -> Flow {
        if grant.before.is_empty() {
            return self.clone();
        }
        let other = |(share, holder): &(Share, Arc<str>)| OtherShare::new(share, holder.clone());
        let others: Arc<[OtherShare]> = grant.before.iter().map(other).collect();
        for other in others.iter() {
            tracing::info!(target: "kmirror::control", flow = %self.name(), holder = %other.holder, "another kmirror writes this flow too: the topics that its file names are left to it");
        }
        let settings = FlowSettings { others, ..(*self.settings).clone() };
        Flow { settings: Arc::new(settings), ..self.clone() }
    }

    /// Members of MirrorMaker's group; none when the target does not want to tell. `said` is what the log knows of that.
    ///
    /// # Errors
    /// When the target cannot tell now.
    pub(super) async fn mirror_makers(&self, said: &mut Option<String>) -> Result<usize, Error> {
        let group = &self.settings.worker_group_id;
        let error = match takeover::live_workers(&self.settings, &self.target).await {
            Ok(members) => {
                *said = None;
                return Ok(members);
            }
            Err(error) if error.is_retriable() => return Err(error),
            Err(error) => error.chain(),
        };
        if said.as_ref() != Some(&error) {
            tracing::warn!(target: "kmirror::control", flow = %self.name(), group, error, "cannot see whether MirrorMaker is alive");
            *said = Some(error);
        }
        Ok(0)
    }

    /// Why both aliases are one cluster, if both views say so.
    pub(super) fn same_cluster(&self) -> Option<String> {
        let (source, target) = (self.source.view(), self.target.view());
        same_cluster(&self.settings, source.cluster_id.as_deref(), target.cluster_id.as_deref())
    }

    pub(super) fn name(&self) -> String {
        format!("{}->{}", self.settings.source, self.settings.target)
    }
}

async fn live(flow: Flow, mut mailbox: Mailbox, takeover_timeout: Duration) {
    flow.state(FlowState::Starting).await;
    // It is dialled while the target is asked.
    flow.source.request_refresh_of(Topics::Named(Vec::new()));
    let end = match flow.settings.group.clone() {
        Some(group) => match wait_for_source(&flow, &mut mailbox).await {
            Some(end) => end,
            None => join_and_reign(&flow, &group, &mut mailbox).await,
        },
        None => succeed(&flow, &mut mailbox, takeover_timeout).await,
    };
    flow.state(match end {
        End::Stopped => FlowState::Stopped,
        End::Failed(reason) => FlowState::Failed(reason),
    })
    .await;
}

/// What MirrorMaker 2 did goes on here, once it is gone.
async fn succeed(flow: &Flow, mailbox: &mut Mailbox, takeover_timeout: Duration) -> End {
    if let Some(end) = wait_for_mirror_maker(flow, mailbox, takeover_timeout).await {
        return end;
    }
    if let Some(end) = wait_for_source(flow, mailbox).await {
        return end;
    }
    if let Some(end) = stand_while_paused(flow, mailbox).await {
        return end;
    }
    seek_and_reign(flow, mailbox).await
}

async fn wait_for_mirror_maker(
    flow: &Flow,
    mailbox: &mut Mailbox,
    takeover_timeout: Duration,
) -> Option<End> {
    let group = &flow.settings.worker_group_id;
    let target = name(&flow.target);
    let seen = watch::Sender::new(None);
    let gone = async {
        let (mut since, mut has_described, mut said) = (None, false, None);
        loop {
            match flow.mirror_makers(&mut said).await {
                Ok(members) => {
                    seen.send_replace(Some(members));
                    // The time begins with the first answer: a target that was away cannot have been left.
                    let waited = since.get_or_insert_with(Instant::now).elapsed();
                    match takeover::before_start(group, members, waited, takeover_timeout) {
                        Step::Clear => return None,
                        Step::Refuse(reason) => return Some(End::Failed(reason)),
                        Step::Wait(state) => {
                            if !std::mem::replace(&mut has_described, true) {
                                tell_of_transactions(flow).await;
                            }
                            flow.state(state).await;
                        }
                    }
                }
                Err(error) => {
                    tracing::debug!(target: "kmirror::control", flow = %flow.name(), group, error = %error.chain(), "the target cannot tell of MirrorMaker's group");
                    seen.send_replace(None);
                }
            }
            sleep(WAIT_INTERVAL).await;
        }
    };
    let what = || match *seen.borrow() {
        Some(members) => {
            format!("MirrorMaker to leave: its group {group} on {target} has {members} member(s)")
        }
        None => {
            let why = because(None, &[&flow.target]);
            format!("{target} to say whether MirrorMaker is alive (group {group}){why}")
        }
    };
    tokio::select! {
        biased;
        () = mailbox.stop() => Some(End::Stopped),
        end = waiting(flow, what, gone) => end,
    }
}

async fn tell_of_transactions(flow: &Flow) {
    for transaction in takeover::describe(&flow.settings, &flow.target).await {
        tracing::info!(target: "kmirror::control", flow = %flow.name(), "MirrorMaker's transactional id {transaction}; left alone while its group has members");
    }
}

/// A process that cannot read has no use for the lease: another one may be able to.
async fn wait_for_source(flow: &Flow, mailbox: &mut Mailbox) -> Option<End> {
    let answered = async {
        let mut failures = 0;
        while flow.source.view().generation == 0 {
            match flow.source.refresh(Topics::Named(Vec::new())).await {
                Ok(_) => break,
                Err(error) if error.is_retriable() => {
                    tracing::debug!(target: "kmirror::control", flow = %flow.name(), error = %error.chain(), "the source does not answer");
                }
                Err(error) => return Some(End::Failed(error.chain())),
            }
            sleep(flow.source.settings().retry_backoff.delay(failures, flow.seam.random())).await;
            failures += 1;
        }
        None
    };
    let source = name(&flow.source);
    let what = || {
        let why = because(None, &[&flow.source]);
        format!("{source} to answer (the lease of the flow is left to others meanwhile){why}")
    };
    tokio::select! {
        biased;
        () = mailbox.stop() => Some(End::Stopped),
        end = waiting(flow, what, answered) => end,
    }
}

async fn seek_and_reign(flow: &Flow, mailbox: &mut Mailbox) -> End {
    let naming = Naming::of(&flow.settings, flow.source.view().cluster_id.as_deref().unwrap_or_default());
    let mut lease = Lease::seek(&flow.seam, &flow.settings, naming, &flow.target);
    let mut neighbours = Neighbours::default();
    let end = loop {
        let grant = match stand_by(flow, &mut lease, mailbox).await {
            Ok(grant) => grant,
            Err(end) => break end,
        };
        // It may have been paused while this process stood by, or while it ruled.
        if let Some(end) = stand_while_paused(flow, mailbox).await {
            break end;
        }
        mailbox.forget();
        let mut reign =
            Reign::new(flow.beside(&grant), lease.permit()).among(std::mem::take(&mut neighbours));
        let outcome = tokio::select! {
            biased;
            reason = lease.lost(&grant) => Outcome::Lost(reason),
            reason = mirror_maker_appears(flow) => Outcome::Ended(End::Failed(reason)),
            reason = paused_meanwhile(flow) => Outcome::Lost(reason),
            end = reign.rule(mailbox) => Outcome::Ended(end),
        };
        reign.over();
        neighbours = reign.neighbours(flow.seam.now_ms());
        if let Some(end) = flow.after(outcome).await {
            break end;
        }
    };
    // One that is not left runs out: see `StopInDoubt`.
    if !mailbox.is_in_doubt {
        lease.leave().await;
    }
    end
}

/// What ends a reign.
pub(super) enum Outcome {
    /// Somebody else has the right to write now, or nobody has.
    Lost(String),
    /// It did by itself.
    Ended(End),
}

/// Waits until the lease is held; answers with which of the flow's topics.
async fn stand_by(flow: &Flow, lease: &mut Lease, mailbox: &mut Mailbox) -> Result<Grant, End> {
    let watch = lease.watch();
    let held = async {
        loop {
            match lease.state() {
                LeaseState::Held(grant) => return Ok(grant),
                LeaseState::Refused(reason) => return Err(End::Failed(reason)),
                LeaseState::Seeking(_) => {}
                LeaseState::Standby { .. } => flow.state(FlowState::Standby).await,
            }
            lease.changed().await;
        }
    };
    let group = group_id(&flow.settings.source, &flow.settings.target);
    let target = name(&flow.target);
    let what = || {
        if let LeaseState::Standby { holder } = watch.state() {
            return format!(
                "{holder}, another kmirror that writes this flow, to end (group {group} on {target})"
            );
        }
        let lost = match watch.state() {
            LeaseState::Seeking(lost) => lost,
            _ => None,
        };
        let why = because(watch.trouble().or(lost), &[&flow.target]);
        format!("the lease of this flow (group {group} on {target}){why}")
    };
    tokio::select! {
        biased;
        () = mailbox.stop() => Err(End::Stopped),
        held = waiting(flow, what, held) => held,
    }
}

/// Ends when MirrorMaker's group has members, with the reason.
async fn mirror_maker_appears(flow: &Flow) -> String {
    let mut said = None;
    loop {
        sleep(WATCH_INTERVAL).await;
        let Ok(members) = flow.mirror_makers(&mut said).await else { continue };
        if let Some(reason) = takeover::while_running(&flow.settings.worker_group_id, members) {
            return reason;
        }
    }
}

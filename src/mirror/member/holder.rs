//! The task that keeps this process a member of the source's group, and tells which partitions are its own.
//!
//! ```text
//! outside ──join, sync──► member ──rebalance──► what goes is given up ──► joins again
//!    ▲                      │
//!    └── given up by the coordinator, or not heard of it for a session: all is lost at once
//! ```
//! What is told first counts: the state is changed before the flow's owner hears of a release. So when the owner is told of a
//! start and then sees in the state that the partition is still ours, a release can only come later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::assign::{Counts, Members, Strategy, assign};
use super::ownership::{Next, Ownership};
use super::protocol::{PROTOCOL_TYPE, Subscription, decode_assignment, encode_assignment};
use super::{GroupProtocol, MemberSettings};
use crate::client::{
    ByTopicId, Cluster, ClusterView, ConsumerEvent, ConsumerMembership, ConsumerReport, ConsumerSettings,
    Election, Error, GroupEvent, GroupIdentity, GroupSettings, LostReason, Membership, Rejoin, Role,
};
use crate::mirror::FlowSettings;
use crate::mirror::control::{ControlEvent, Released};
use crate::mirror::state::{Held, TopicPartition};
use crate::mirror::topics::diff::Selector;
use crate::seam::Seam;

/// Our membership, as the flow's control task sees it.
#[derive(Debug)]
pub(in crate::mirror) struct Member {
    watch: MemberWatch,
    leave: Option<oneshot::Sender<Leave>>,
    task: tokio::task::JoinHandle<()>,
}

/// How a membership ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    /// With a word, so that the others need not wait.
    Now,
    /// By silence: what was sent may still arrive.
    ByTimeout,
}

/// A look at the membership beside whoever waits for it.
#[derive(Clone, Debug)]
pub struct MemberWatch(watch::Receiver<MemberState>);

/// How it stands with the membership.
#[derive(Clone, Debug, Default)]
pub(in crate::mirror) struct MemberState {
    /// How often everything was lost; what was said before means nothing.
    pub(in crate::mirror) losses: u64,
    /// As whom offsets are committed; none while we are no member.
    pub(in crate::mirror) identity: Option<GroupIdentity>,
    /// Our partitions, with the generation in which they came.
    pub(in crate::mirror) owned: Held,
    /// Those whose offsets we may commit, with the generation in which they came.
    pub(in crate::mirror) may_commit: Held,
    /// Why everything was lost last.
    pub(in crate::mirror) lost: Option<String>,
    /// What last kept us from being a member.
    pub(in crate::mirror) trouble: Option<String>,
    /// The group will not have us.
    pub(in crate::mirror) refused: Option<String>,
}

impl MemberWatch {
    /// How it stands now.
    pub(in crate::mirror) fn state(&self) -> MemberState {
        self.0.borrow().clone()
    }

    /// As [`MemberWatch::state`], and what comes later is a change.
    pub(in crate::mirror) fn look(&mut self) -> MemberState {
        self.0.borrow_and_update().clone()
    }

    /// Waits until it stands differently.
    pub(in crate::mirror) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The task has ended, which it does only when it is told to.
            std::future::pending::<()>().await;
        }
    }

    /// Whether a partition is ours since this generation.
    pub(in crate::mirror) fn owns(&self, at: &TopicPartition, since: i32) -> bool {
        self.0.borrow().owned.get(at) == Some(&since)
    }
}

impl Member {
    /// Joins the group of a flow.
    pub(in crate::mirror) fn join(
        seam: &Seam,
        settings: &Arc<FlowSettings>,
        member: &MemberSettings,
        source: &Cluster,
        events: mpsc::Sender<ControlEvent>,
    ) -> Member {
        let (state, watched) = watch::channel(MemberState::default());
        let (leave, left) = oneshot::channel();
        let holder = Holder {
            source: source.clone(),
            member: member.clone(),
            selector: Selector::new(settings.clone()),
            topics: Vec::new(),
            ownership: Ownership::new(&member.strategies),
            generation: -1,
            role: Role::Follower,
            counts: watch::Sender::new(Counts::new()),
            heard: Instant::now(),
            is_member: false,
            is_fenced: false,
            giving_up: None,
            assignment: Vec::new(),
            identity: None,
            events,
            state,
        };
        let task = seam.spawn(holder.run(left));
        Member { watch: MemberWatch(watched), leave: Some(leave), task }
    }

    /// A look at it.
    pub(in crate::mirror) fn watch(&self) -> MemberWatch {
        self.watch.clone()
    }

    /// Waits until everything is lost that was ours after `losses` of them; answers why.
    pub(in crate::mirror) async fn lost(&mut self, losses: u64) -> String {
        loop {
            let state = self.watch.look();
            if let Some(reason) = state.refused {
                return reason;
            }
            if state.losses != losses {
                return state.lost.unwrap_or_else(|| "the membership is gone".to_owned());
            }
            self.watch.changed().await;
        }
    }

    /// Leaves the group at once, so that others need not wait for the session timeout.
    pub(in crate::mirror) async fn leave(self) {
        self.end(Leave::Now).await;
    }

    /// Leaves the group by silence, so that others have our partitions only when the session is over.
    pub(in crate::mirror) async fn leave_by_timeout(self) {
        self.end(Leave::ByTimeout).await;
    }

    async fn end(mut self, how: Leave) {
        if let Some(leave) = self.leave.take() {
            let _ = leave.send(how);
        }
        let _ = (&mut self.task).await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Holder {
    source: Cluster,
    member: MemberSettings,
    selector: Selector,
    topics: Vec<Arc<str>>,
    ownership: Ownership,
    generation: i32,
    role: Role,
    /// What topics had when we dealt their partitions out last.
    counts: watch::Sender<Counts>,
    /// When the coordinator's last answer was asked for.
    heard: Instant,
    is_member: bool,
    /// Somebody else has our instance id.
    is_fenced: bool,
    giving_up: Option<oneshot::Receiver<Released>>,
    /// What the coordinator says that we are to own, where it deals partitions out.
    assignment: ByTopicId,
    identity: Option<GroupIdentity>,
    events: mpsc::Sender<ControlEvent>,
    state: watch::Sender<MemberState>,
}

/// The membership, of either kind.
enum Link {
    Classic(Membership),
    Consumer(ConsumerMembership),
}

enum LinkEvent {
    Classic(GroupEvent),
    Consumer(ConsumerEvent),
}

/// Whether the members' epoch is another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Anew,
    Before,
}

impl Link {
    async fn next(&mut self) -> Option<LinkEvent> {
        match self {
            Link::Classic(member) => member.next().await.map(LinkEvent::Classic),
            Link::Consumer(member) => member.next().await.map(LinkEvent::Consumer),
        }
    }

    /// What counts from the next join or heartbeat on.
    fn say(&self, words: Vec<Bytes>, report: impl FnOnce() -> ConsumerReport) {
        match self {
            Link::Classic(member) => member.set_metadata(words),
            Link::Consumer(member) => member.report(report()),
        }
    }

    /// What counts from now on.
    fn rejoin(&self, words: Vec<Bytes>, report: impl FnOnce() -> ConsumerReport) {
        match self {
            Link::Classic(member) => member.rejoin(words),
            Link::Consumer(member) => member.report(report()),
        }
    }

    async fn leave(self) {
        match self {
            Link::Classic(member) => member.leave().await,
            Link::Consumer(member) => member.leave().await,
        }
    }
}

enum Wake {
    Event(Option<LinkEvent>),
    GivenUp(Option<Released>),
    View,
    Silence,
}

impl Holder {
    async fn run(mut self, mut left: oneshot::Receiver<Leave>) {
        let mut views = self.source.watch();
        self.topics = self.wanted(&views.borrow_and_update().clone());
        let mut link = self.join();
        let how = loop {
            let silence = self.heard + self.member.session_timeout;
            let wake = tokio::select! {
                biased;
                how = &mut left => break how.unwrap_or(Leave::ByTimeout),
                event = link.next() => Wake::Event(event),
                released = given_up(&mut self.giving_up) => Wake::GivenUp(released),
                Ok(()) = views.changed() => Wake::View,
                () = sleep_until(silence), if self.is_member => Wake::Silence,
            };
            let next = match wake {
                Wake::Event(Some(LinkEvent::Classic(event))) => self.on_event(event, &link),
                Wake::Event(Some(LinkEvent::Consumer(event))) => self.on_consumer_event(event, &link),
                // The driver ends only when nobody listens.
                Wake::Event(None) => break Leave::ByTimeout,
                Wake::GivenUp(released) => self.on_given_up(released),
                Wake::View => self.on_view(&views.borrow_and_update().clone(), &link),
                Wake::Silence => {
                    self.lose("nothing was heard of the group's coordinator for a session".to_owned());
                    Next::Stay
                }
            };
            if self.is_fenced {
                break Leave::ByTimeout;
            }
            self.carry_out(next, &link).await;
        };
        match how {
            Leave::Now => link.leave().await,
            Leave::ByTimeout => drop(link),
        }
    }

    fn join(&self) -> Link {
        if let GroupProtocol::Consumer { remote_assignor } = &self.member.protocol {
            let settings = ConsumerSettings {
                group_id: self.member.group_id.clone(),
                group_instance_id: self.member.group_instance_id.clone(),
                rebalance_timeout: self.member.rebalance_timeout,
                remote_assignor: remote_assignor.clone(),
            };
            return Link::Consumer(ConsumerMembership::join(&self.source, settings, self.topics.clone()));
        }
        let settings = GroupSettings {
            group_id: self.member.group_id.clone(),
            protocol_type: Arc::from(PROTOCOL_TYPE),
            group_instance_id: self.member.group_instance_id.clone(),
            protocols: self.member.strategies.iter().map(|strategy| Arc::from(strategy.name())).collect(),
            session_timeout: self.member.session_timeout,
            rebalance_timeout: self.member.rebalance_timeout,
            heartbeat_interval: self.member.heartbeat_interval,
            rejoin: Rejoin::WhenTold,
        };
        let (source, counts) = (self.source.clone(), self.counts.clone());
        let assign = move |election: &Election<'_>| deal_out(&source, &counts, election);
        Link::Classic(Membership::join(&self.source, settings, self.words(), Box::new(assign)))
    }

    /// What we own, by the ids of the topics.
    fn report(&self) -> ConsumerReport {
        let view = self.source.view();
        let mut owned: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
        for at in self.ownership.may_commit().keys() {
            if let Some(topic) = view.topic(&at.topic) {
                owned.entry(topic.id).or_default().push(at.partition);
            }
        }
        ConsumerReport { topics: self.topics.clone(), owned: owned.into_iter().collect() }
    }

    /// What we say of ourselves under each strategy.
    fn words(&self) -> Vec<Bytes> {
        let strategies = self.member.strategies.iter();
        strategies.map(|&strategy| self.ownership.subscription(strategy, &self.topics).encode()).collect()
    }

    fn on_consumer_event(&mut self, event: ConsumerEvent, link: &Link) -> Next {
        match event {
            ConsumerEvent::Heard { epoch, member_id, assignment, sent } => {
                (self.heard, self.is_member) = (self.heard.max(sent), true);
                if let Some(assignment) = assignment {
                    self.assignment = assignment;
                }
                let is_new = self.generation != epoch;
                self.generation = epoch;
                let group_instance_id = self.member.group_instance_id.clone();
                self.identity = Some(GroupIdentity { generation: epoch, member_id, group_instance_id });
                self.reconcile(if is_new { Told::Anew } else { Told::Before })
            }
            ConsumerEvent::Lost { reason } => {
                self.assignment = Vec::new();
                self.lose(reason.to_string());
                link.say(self.words(), || self.report());
                Next::Stay
            }
            ConsumerEvent::Trouble(error) => self.on_trouble(error),
        }
    }

    /// From the assignment of a coordinator that deals out by itself: it may name topics that we do not see yet.
    fn reconcile(&mut self, told: Told) -> Next {
        let Some(identity) = self.identity.clone().filter(|_| self.is_member) else { return Next::Stay };
        if self.giving_up.is_some() {
            self.tell(Some(identity));
            return Next::Stay;
        }
        let view = self.source.view();
        let mut partitions = BTreeSet::new();
        for (topic, indexes) in &self.assignment {
            match view.topic_by_id(*topic) {
                Some(topic) => {
                    partitions.extend(indexes.iter().map(|&at| TopicPartition::new(topic.name.clone(), at)));
                }
                None => self.source.request_refresh(),
            }
        }
        let before: Vec<TopicPartition> = self.ownership.owned().keys().cloned().collect();
        let next = self.ownership.assigned(self.generation, partitions);
        let is_same = next == Next::Stay && self.ownership.owned().keys().eq(&before);
        if told == Told::Anew || !is_same {
            self.tell(Some(identity));
        }
        // What was taken on is owned from now on, and the coordinator is told.
        if next == Next::Stay && !is_same { Next::Rejoin } else { next }
    }

    fn on_trouble(&mut self, error: Error) -> Next {
        if error.is_retriable() {
            tracing::debug!(target: "kmirror::member", error = %error.chain(), "the group");
            self.state.send_modify(|state| state.trouble = Some(error.chain()));
        } else {
            self.refuse(error.chain());
        }
        Next::Stay
    }

    fn on_event(&mut self, event: GroupEvent, link: &Link) -> Next {
        match event {
            GroupEvent::Joined { generation, member_id, assignment, role, sent, .. } => {
                let Some(partitions) = decode_assignment(&assignment) else {
                    self.refuse(
                        "the group's leader has sent an assignment that no consumer understands".to_owned(),
                    );
                    return Next::Stay;
                };
                (self.heard, self.is_member, self.generation, self.role) = (sent, true, generation, role);
                let group_instance_id = self.member.group_instance_id.clone();
                let identity = GroupIdentity { generation, member_id, group_instance_id };
                tracing::info!(
                    target: "kmirror::member",
                    group = %self.member.group_id,
                    generation,
                    partitions = partitions.len(),
                    "a generation of the group has begun"
                );
                let next = self.ownership.assigned(generation, partitions);
                self.tell(Some(identity));
                next
            }
            GroupEvent::Heard { sent } => {
                self.heard = self.heard.max(sent);
                // The group still counts on us for what we have given up as lost.
                if self.is_member { Next::Stay } else { Next::Rejoin }
            }
            GroupEvent::Rebalancing => self.ownership.rebalance(),
            GroupEvent::Lost { reason } => {
                self.lose(reason.to_string());
                if let (LostReason::Fenced, Some(id)) = (reason, &self.member.group_instance_id) {
                    // As in Java: whoever came later has the id, and two that take it from each other copy nothing.
                    self.is_fenced = true;
                    self.refuse(format!(
                        "another member of group {} has group.instance.id = {id} now: give each process one of its own, or leave \
                         it out",
                        self.member.group_id
                    ));
                }
                link.say(self.words(), || self.report());
                Next::Stay
            }
            GroupEvent::Trouble(error) => self.on_trouble(error),
        }
    }

    fn on_given_up(&mut self, released: Option<Released>) -> Next {
        self.giving_up = None;
        if let Some(Released { in_doubt, trouble }) = released {
            if in_doubt > 0 {
                tracing::warn!(
                    target: "kmirror::member",
                    batches = in_doubt,
                    "partitions are given to other members although batches of them are not acknowledged: these may come twice"
                );
            }
            if let Some(trouble) = trouble {
                tracing::warn!(target: "kmirror::member", "the last offsets of partitions that go to other members: {trouble}");
            }
        }
        self.ownership.given_up()
    }

    /// Topics come and go; who leads also sees when they grow.
    fn on_view(&mut self, view: &Arc<ClusterView>, link: &Link) -> Next {
        let topics = self.wanted(view);
        let has_grown = self.role == Role::Leader
            && self.counts.borrow().iter().any(|(topic, &count)| count_of(view, topic) != Some(count));
        let is_new = topics != self.topics;
        self.topics = topics;
        if matches!(link, Link::Consumer(_)) {
            return match self.reconcile(Told::Before) {
                Next::Stay if is_new => Next::Rejoin,
                next => next,
            };
        }
        if self.is_member && (is_new || has_grown) {
            return self.ownership.rebalance();
        }
        if is_new {
            link.say(self.words(), || self.report());
        }
        Next::Stay
    }

    fn wanted(&mut self, view: &ClusterView) -> Vec<Arc<str>> {
        let there = view.topics().filter(|topic| !topic.partitions.is_empty());
        there
            .map(|topic| topic.name.clone())
            .filter(|topic| self.selector.select(topic).is_replicated())
            .collect()
    }

    async fn carry_out(&mut self, next: Next, link: &Link) {
        match next {
            Next::Stay => {}
            Next::Rejoin => {
                self.tell_owned();
                link.rejoin(self.words(), || self.report());
            }
            Next::GiveUp(partitions) => {
                self.tell_owned();
                let (done, released) = oneshot::channel();
                self.giving_up = Some(released);
                let within = self.member.give_up_within();
                // An owner that is gone drops the answer, which ends the wait.
                let _ = self.events.send(ControlEvent::Release { partitions, within, done }).await;
            }
        }
    }

    fn lose(&mut self, reason: String) {
        self.ownership.lost();
        (self.is_member, self.giving_up) = (false, None);
        self.state.send_modify(|state| {
            state.losses += 1;
            state.identity = None;
            (state.owned, state.may_commit) = (Arc::default(), Arc::default());
            state.lost = Some(reason);
        });
    }

    fn refuse(&self, reason: String) {
        self.state.send_modify(|state| state.refused = Some(reason));
    }

    fn tell(&self, identity: Option<GroupIdentity>) {
        self.state.send_modify(|state| {
            (state.identity, state.trouble) = (identity, None);
            state.owned = Arc::new(self.ownership.owned().clone());
            state.may_commit = Arc::new(self.ownership.may_commit());
        });
    }

    fn tell_owned(&self) {
        self.state.send_modify(|state| {
            state.owned = Arc::new(self.ownership.owned().clone());
            state.may_commit = Arc::new(self.ownership.may_commit());
        });
    }
}

async fn given_up(giving_up: &mut Option<oneshot::Receiver<Released>>) -> Option<Released> {
    match giving_up {
        Some(released) => released.await.ok(),
        None => std::future::pending().await,
    }
}

fn count_of(view: &ClusterView, topic: &str) -> Option<i32> {
    let count = view.topic(topic).map(|topic| topic.partitions.len() as i32);
    count.filter(|&count| count > 0)
}

/// What we do as the leader.
fn deal_out(
    source: &Cluster,
    counts: &watch::Sender<Counts>,
    election: &Election<'_>,
) -> Vec<(Arc<str>, Bytes)> {
    // A group chooses among what all its members offer, so it is one that we know.
    let strategy = Strategy::named(election.protocol).unwrap_or(Strategy::Range);
    let member = |(id, words): &(Arc<str>, Bytes)| {
        let subscription = Subscription::decode(words).unwrap_or_else(|| {
            tracing::warn!(target: "kmirror::member", member = %id, "a member's subscription cannot be read: it gets nothing");
            Subscription::default()
        });
        (id.clone(), subscription)
    };
    let members: Members = election.members.iter().map(member).collect();
    let view = source.view();
    let topics: BTreeSet<&Arc<str>> = members.values().flat_map(|of| &of.topics).collect();
    let known: Counts =
        topics.into_iter().filter_map(|topic| Some((topic.clone(), count_of(&view, topic)?))).collect();
    counts.send_replace(known.clone());
    let assignments = assign(strategy, &members, &known);
    assignments.into_iter().map(|(member, partitions)| (member, encode_assignment(&partitions))).collect()
}

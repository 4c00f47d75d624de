//! A member of a consumer group whose coordinator deals the partitions out (KIP-848).
//!
//! ```text
//!   epoch 0 ──heartbeat──► epoch n, assignment ──heartbeats──► epoch n + 1, another assignment ──► …
//!      ▲                                                             │
//!      └──── UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH: a loss ─────────┘
//! ```
//! Everything is said with each heartbeat: what is subscribed, and what is owned (`GroupMetadataManager.consumerGroupHeartbeat`
//! answers such a full one with the assignment). The coordinator gives a partition to another member only when its owner has
//! said that it no longer owns it.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, GroupId};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uuid::Uuid;

use super::super::api::Api;
use super::super::cluster::{Cluster, CoordinatorKind, Node, string, topic_name};
use super::super::code::ErrorCode;
use super::super::error::{Error, Subject};
use super::LostReason;
use super::stay::{Handle, Member, Ties, connect, live, ties};
use crate::net::{self, Connection};

/// How long leaving may take; the session timeout does it otherwise.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// Between the first heartbeats, until the coordinator says how often it wants them.
const FIRST_INTERVAL: Duration = Duration::from_secs(3);
/// A coordinator that does not answer in this time is looked up anew.
const PATIENCE: Duration = Duration::from_secs(10);
/// Tries in a row that may fail before it is told.
const QUIET_TRIES: u32 = 3;
/// The epoch with which a member leaves, and a static one so that it may come back.
const LEAVES: i32 = -1;
const LEAVES_FOR_NOW: i32 = -2;

/// Partitions of topics, by the topics' ids.
pub type ByTopicId = Vec<(Uuid, Vec<i32>)>;

/// How to be such a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerSettings {
    /// The group.
    pub group_id: Arc<str>,
    /// `group.instance.id`.
    pub group_instance_id: Option<Arc<str>>,
    /// `max.poll.interval.ms`: how long it may own what it was told to give up.
    pub rebalance_timeout: Duration,
    /// `group.remote.assignor`; the coordinator's choice for `None`.
    pub remote_assignor: Option<Arc<str>>,
}

/// What a member says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerReport {
    /// The topics that it wants.
    pub topics: Vec<Arc<str>>,
    /// What it owns.
    pub owned: ByTopicId,
}

/// What happens to a member.
#[derive(Clone, Debug)]
pub enum ConsumerEvent {
    /// The coordinator has answered a heartbeat.
    Heard {
        /// The member's epoch.
        epoch: i32,
        /// Its id.
        member_id: Arc<str>,
        /// What it is to own; `None` when that has not changed.
        assignment: Option<ByTopicId>,
        /// When the heartbeat was sent.
        sent: Instant,
    },
    /// It is no member any more and joins anew.
    Lost {
        /// Why.
        reason: LostReason,
    },
    /// A request failed and will be repeated.
    Trouble(Error),
}

/// A membership. Dropping it leaves the group by its session timeout; [`ConsumerMembership::leave`] says so.
#[derive(Debug)]
pub struct ConsumerMembership {
    handle: Handle<ConsumerEvent>,
    report: watch::Sender<ConsumerReport>,
}

impl ConsumerMembership {
    /// Joins a group, and stays in it over whatever happens until it is left or dropped.
    pub fn join(cluster: &Cluster, settings: ConsumerSettings, topics: Vec<Arc<str>>) -> ConsumerMembership {
        let (handle, Ties { events, left }) = ties();
        let (report, current) = watch::channel(ConsumerReport { topics, owned: Vec::new() });
        let random = || u128::from(cluster.seam().random());
        let id = uuid::Builder::from_random_bytes((random() << 64 | random()).to_be_bytes()).into_uuid();
        let driver = Driver {
            cluster: cluster.clone(),
            settings,
            member_id: Arc::from(id.to_string()),
            epoch: 0,
            interval: FIRST_INTERVAL,
            report: current,
            events,
            connection: None,
            failures: 0,
        };
        cluster.seam().spawn(live(driver, left));
        ConsumerMembership { handle, report }
    }

    /// The next thing that happens. Safe to drop and call again.
    pub async fn next(&mut self) -> Option<ConsumerEvent> {
        self.handle.next().await
    }

    /// Says something new; the coordinator hears it at once.
    pub fn report(&self, report: ConsumerReport) {
        self.report.send_if_modified(|old| {
            let is_new = *old != report;
            *old = report;
            is_new
        });
    }

    /// Leaves the group, so that the others need not wait for the session timeout.
    pub async fn leave(self) {
        self.handle.leave().await;
    }
}

struct Driver {
    cluster: Cluster,
    settings: ConsumerSettings,
    member_id: Arc<str>,
    epoch: i32,
    interval: Duration,
    report: watch::Receiver<ConsumerReport>,
    events: mpsc::Sender<ConsumerEvent>,
    connection: Option<Connection>,
    failures: u32,
}

impl Member for Driver {
    async fn stay(&mut self) {
        while !self.events.is_closed() {
            let sent = Instant::now();
            let event = match self.beat().await {
                Ok(response) => self.on_answer(&response, sent),
                Err(error) => {
                    self.connection = None;
                    self.failures = self.failures.saturating_add(1);
                    let is_news = self.failures > QUIET_TRIES || !error.is_retriable();
                    is_news.then_some(ConsumerEvent::Trouble(error))
                }
            };
            if let Some(event) = event
                && self.events.send(event).await.is_err()
            {
                return;
            }
            self.pause(sent).await;
        }
    }

    async fn leave(&mut self) {
        if self.epoch == 0 {
            return;
        }
        let epoch = if self.settings.group_instance_id.is_some() { LEAVES_FOR_NOW } else { LEAVES };
        let request = self.request(epoch, &ConsumerReport::default());
        let node = Node::Coordinator(CoordinatorKind::Group, self.settings.group_id.clone());
        // Whether it worked or not, there is nothing left to do.
        let _ = timeout(LEAVE_MAX, self.cluster.call(node, &request)).await;
    }
}

impl Driver {
    /// Until the next heartbeat: at once after news, after a back-off when the last one failed.
    async fn pause(&mut self, sent: Instant) {
        if self.failures > 0 {
            let backoff = self.cluster.settings().retry_backoff;
            sleep(backoff.delay(self.failures - 1, self.cluster.seam().random())).await;
            return;
        }
        if self.epoch == 0 {
            return;
        }
        tokio::select! {
            biased;
            changed = self.report.changed() => {
                if changed.is_err() {
                    // Dropped without a word; `stay` sees it.
                    sleep_until(sent + self.interval).await;
                }
            }
            () = sleep_until(sent + self.interval) => {}
        }
    }

    fn on_answer(
        &mut self,
        response: &ConsumerGroupHeartbeatResponse,
        sent: Instant,
    ) -> Option<ConsumerEvent> {
        match ErrorCode(response.error_code) {
            ErrorCode::NONE => {
                self.failures = 0;
                self.epoch = response.member_epoch;
                if let Ok(interval @ 1..) = u64::try_from(response.heartbeat_interval_ms) {
                    self.interval = Duration::from_millis(interval);
                }
                let by_topic =
                    |assignment: &kafka_protocol::messages::consumer_group_heartbeat_response::Assignment| {
                        let topics = assignment.topic_partitions.iter();
                        topics.map(|topic| (topic.topic_id, topic.partitions.clone())).collect()
                    };
                Some(ConsumerEvent::Heard {
                    epoch: self.epoch,
                    member_id: self.member_id.clone(),
                    assignment: response.assignment.as_ref().map(by_topic),
                    sent,
                })
            }
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_MEMBER_EPOCH if self.epoch != 0 => {
                self.epoch = 0;
                Some(ConsumerEvent::Lost { reason: LostReason::GivenUp })
            }
            code => {
                self.failures = self.failures.saturating_add(1);
                if matches!(code, ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE) {
                    self.connection = None;
                }
                // A static member's place is free again when its session is over.
                let passes = code.is_retriable() || code == ErrorCode::UNRELEASED_INSTANCE_ID;
                let is_news = self.failures > QUIET_TRIES || !passes;
                let broker = self.connection.as_ref()?.versions().broker().clone();
                let subject = Subject::Group(self.settings.group_id.clone());
                let words = response.error_message.as_ref().map(|words| words.as_str().to_owned());
                let refused =
                    self.cluster.refused::<ConsumerGroupHeartbeatRequest>(broker, subject, code, words);
                is_news.then_some(ConsumerEvent::Trouble(refused))
            }
        }
    }

    async fn beat(&mut self) -> Result<ConsumerGroupHeartbeatResponse, Error> {
        let report = self.report.borrow_and_update().clone();
        let request = self.request(self.epoch, &report);
        let connection = match &self.connection {
            Some(connection) => connection.clone(),
            None => self.connect().await?,
        };
        let failed = |source| self.cluster.connection_error(source);
        let ours = ConsumerGroupHeartbeatRequest::OURS;
        let version =
            net::negotiate::<ConsumerGroupHeartbeatRequest>(connection.versions(), ours).map_err(failed)?;
        connection.call_within(&request, version, PATIENCE).await.map_err(failed)
    }

    fn request(&self, epoch: i32, report: &ConsumerReport) -> ConsumerGroupHeartbeatRequest {
        // Who joins owns nothing: the group may have given everything to others.
        let owned = if epoch == 0 { &[][..] } else { &report.owned[..] };
        let owned = owned.iter().map(|(topic, partitions)| {
            TopicPartitions::default().with_topic_id(*topic).with_partitions(partitions.clone())
        });
        let rebalance_timeout =
            i32::try_from(self.settings.rebalance_timeout.as_millis()).unwrap_or(i32::MAX);
        ConsumerGroupHeartbeatRequest::default()
            .with_group_id(GroupId(string(&self.settings.group_id)))
            .with_member_id(string(&self.member_id))
            .with_member_epoch(epoch)
            .with_instance_id(self.settings.group_instance_id.as_ref().map(string))
            .with_rebalance_timeout_ms(rebalance_timeout)
            .with_subscribed_topic_names(Some(report.topics.iter().map(topic_name).collect()))
            .with_server_assignor(self.settings.remote_assignor.as_ref().map(string))
            .with_topic_partitions(Some(owned.collect()))
    }

    async fn connect(&mut self) -> Result<Connection, Error> {
        let connection = connect(&self.cluster, &self.settings.group_id, PATIENCE).await?;
        self.connection = Some(connection.clone());
        Ok(connection)
    }
}

//! A handle to one cluster: its view, and calls to whichever broker must answer them.
//!
//! A call is tried until `default.api.timeout.ms` has passed: over lost connections, over brokers that are not (or no
//! longer) the leader, controller or coordinator, and over every code that the table calls retriable. What is stale is
//! looked up anew before the next try. An error names the cluster, the broker and the API.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiKey, FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::api::Api;
use super::code::{Class, ErrorCode, Refresh};
use super::error::{Error, Subject};
use super::metadata::{ClusterView, Topics};
use super::owner::{Command, Owner, Route};
use super::settings::Settings;
use crate::net::{self, BrokerAddress, Connection, Fault};
use crate::seam::Seam;

/// The most commands that wait for the owner.
const INBOX_MAX: usize = 256;
/// What is not ready right after it was created is asked again this soon, before the ordinary back-off (milliseconds). A
/// broker needs some hundred milliseconds for a topic of many partitions.
const NOT_READY_DELAYS_MS: [u64; 14] = [5, 10, 20, 20, 20, 20, 20, 20, 20, 20, 50, 50, 50, 50];

/// When any broker may answer, another one is asked as well after this time.
const ASK_ANOTHER_AFTER: Duration = Duration::from_secs(1);
/// So many others.
const OTHERS_MAX: u32 = 2;

type Asking<'a, T> = Pin<Box<dyn Future<Output = Result<Answer<T>, Error>> + Send + 'a>>;

/// A cluster; cheap to clone. Its connections close when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Cluster {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    seam: Seam,
    settings: Settings,
    inbox: mpsc::Sender<Command>,
    view: watch::Receiver<Arc<ClusterView>>,
    trouble: watch::Receiver<Option<Arc<Error>>>,
    out_of_reach: watch::Receiver<bool>,
}

/// Which broker is to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Any.
    Any,
    /// The controller.
    Controller,
    /// This one.
    Broker(i32),
    /// The leader of a partition.
    Leader(Arc<str>, i32),
    /// The coordinator of a group or transactional id.
    Coordinator(CoordinatorKind, Arc<str>),
}

/// What a coordinator coordinates (`key_type` of FindCoordinator).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CoordinatorKind {
    /// A group.
    Group,
    /// A transactional id.
    Transaction,
}

/// A reply, with the version that it came in and who gave it.
#[derive(Debug)]
pub struct Answer<T> {
    /// The reply.
    pub response: T,
    /// Its version.
    pub version: i16,
    /// The broker.
    pub broker: BrokerAddress,
}

impl Cluster {
    /// Opens a cluster: its metadata is asked for at once, in the background.
    pub fn new(seam: Seam, settings: Settings) -> Cluster {
        let (inbox, commands) = mpsc::channel(INBOX_MAX);
        let (view_sender, view) = watch::channel(Arc::new(ClusterView::default()));
        let (trouble_sender, trouble) = watch::channel(None);
        let (out_of_reach_sender, out_of_reach) = watch::channel(false);
        let (kept_seam, kept) = (seam.clone(), settings.clone());
        let shared = Arc::new(Shared { seam: kept_seam, settings: kept, inbox, view, trouble, out_of_reach });
        let owner = Owner::new(
            seam.clone(),
            settings,
            Arc::downgrade(&shared),
            commands,
            view_sender,
            trouble_sender,
            out_of_reach_sender,
        );
        seam.spawn(owner.run());
        Cluster { shared }
    }

    pub(super) fn from_shared(shared: Arc<Shared>) -> Cluster {
        Cluster { shared }
    }

    /// The cluster's alias.
    pub fn alias(&self) -> &Arc<str> {
        &self.shared.settings.alias
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// The outside.
    pub fn seam(&self) -> &Seam {
        &self.shared.seam
    }

    /// What is known now; of generation 0 before the first answer.
    pub fn view(&self) -> Arc<ClusterView> {
        self.shared.view.borrow().clone()
    }

    /// Tells of each new view.
    pub fn watch(&self) -> watch::Receiver<Arc<ClusterView>> {
        self.shared.view.clone()
    }

    /// The last error of connecting or asking for metadata; `None` once metadata has come again.
    pub fn trouble(&self) -> Option<Arc<Error>> {
        self.shared.trouble.borrow().clone()
    }

    /// Whether no broker of it answers, as far as the last tries tell: one that does makes it false.
    pub fn is_out_of_reach(&self) -> bool {
        *self.shared.out_of_reach.borrow()
    }

    /// Asks for metadata and waits for the view that holds the answer. `Topics::Named` with no name asks for the brokers.
    ///
    /// # Errors
    /// When no broker answered within `default.api.timeout.ms`.
    pub async fn refresh(&self, topics: Topics) -> Result<Arc<ClusterView>, Error> {
        let (reply, answer) = oneshot::channel();
        self.command(Command::Refresh { topics, reply: Some(reply) }).await?;
        answer.await.unwrap_or_else(|_| Err(self.closed()))
    }

    /// Asks for the metadata of all topics soon; many requests become one, spaced by the retry back-off.
    pub fn request_refresh(&self) {
        self.request_refresh_of(Topics::All);
    }

    /// As [`Cluster::request_refresh`], for these topics.
    pub fn request_refresh_of(&self, topics: Topics) {
        // A full inbox means that the owner has enough wishes already.
        let _ = self.shared.inbox.try_send(Command::Refresh { topics, reply: None });
    }

    /// Calls an API at `node`, in the newest common version.
    ///
    /// # Errors
    /// What cannot be retried, at once; [`Error::TimedOut`] with the last error otherwise.
    pub async fn call<R: Api + Clone>(&self, node: Node, request: &R) -> Result<Answer<R::Response>, Error> {
        let subject = node.subject();
        self.call_with(node, subject, |_| request.clone()).await
    }

    /// As [`Cluster::call`], for requests that look different from version to version; `subject` is for messages.
    ///
    /// # Errors
    /// As [`Cluster::call`].
    pub async fn call_with<R: Api>(
        &self,
        node: Node,
        subject: Subject,
        build: impl Fn(i16) -> R + Sync,
    ) -> Result<Answer<R::Response>, Error> {
        self.call_judged(node, subject, build, R::refusal).await
    }

    /// As [`Cluster::call_with`], for requests about one thing whose code stands deep in the reply.
    pub(super) async fn call_judged<R: Api>(
        &self,
        node: Node,
        subject: Subject,
        build: impl Fn(i16) -> R + Sync,
        judge: impl Fn(&R::Response) -> (ErrorCode, Option<String>),
    ) -> Result<Answer<R::Response>, Error> {
        let mut retry = self.retry(R::API);
        loop {
            let attempt = self.attempt(&node, &subject, &build);
            let error = match retry.within(attempt).await? {
                Ok(answer) => match judge(&answer.response) {
                    (ErrorCode::NONE, _) => return Ok(answer),
                    (code, words) => self.refused::<R>(answer.broker, subject.clone(), code, words),
                },
                Err(error) => error,
            };
            let stale = stale(&node, &error);
            retry.after(error, &node).await?;
            if let Some(topics) = stale {
                // The next try tells whether it helped.
                let _ = retry.within(self.refresh(topics)).await?;
            }
        }
    }

    /// A connection of the pool to `node`, for callers that do their own calls.
    ///
    /// # Errors
    /// Of looking up and dialling; nothing is retried.
    pub async fn connection(&self, node: &Node) -> Result<Connection, Error> {
        match node {
            Node::Any => self.connect(Route::Any).await,
            Node::Broker(id) => self.connect(Route::Broker(*id)).await,
            Node::Controller => {
                self.first_view().await?;
                // Without a controller, any broker can tell who it is by its refusal.
                let route = self.view().controller_id.map_or(Route::Any, Route::Broker);
                self.connect(route).await
            }
            Node::Leader(topic, partition) => {
                let (leader, _) = self.leader(topic, *partition).await?;
                self.connect(Route::Broker(leader)).await
            }
            Node::Coordinator(kind, key) => {
                let id = self.coordinator(*kind, key).await?;
                self.connect(Route::Broker(id)).await
            }
        }
    }

    /// A connection of its own to a broker, outside the pool: for members of a group, whose requests the broker may hold.
    ///
    /// # Errors
    /// Of dialling; nothing is retried.
    pub async fn dial(&self, broker_id: i32) -> Result<Connection, Error> {
        let address = self.view().brokers.get(&broker_id).map(|broker| broker.address.clone());
        let address = address.ok_or_else(|| Error::NoBroker { cluster: self.alias().clone(), broker_id })?;
        let settings = &self.shared.settings.net;
        let established = net::establish(self.seam(), settings, &address.host, address.port).await;
        let established = established.map_err(|source| self.connection_error(source))?;
        Ok(Connection::start(self.seam(), settings, established))
    }

    /// A partition's leader and leader epoch, from the view or, failing that, asked for once.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NoLeader`], or those of [`Cluster::refresh`].
    pub async fn leader(&self, topic: &Arc<str>, partition: i32) -> Result<(i32, i32), Error> {
        if let Some(leader) = self.view().leader(topic, partition) {
            return Ok(leader);
        }
        let view = self.refresh(Topics::Named(vec![topic.clone()])).await?;
        let (cluster, subject) = (self.alias().clone(), Subject::Partition(topic.clone(), partition));
        match view.partition(topic, partition) {
            None => Err(Error::Unknown { cluster, subject }),
            Some(found) => found
                .leader
                .map(|leader| (leader, found.leader_epoch))
                .ok_or(Error::NoLeader { cluster, subject }),
        }
    }

    /// The broker that coordinates a group or transactional id; asked for each time.
    ///
    /// # Errors
    /// What the lookup was refused with; nothing is retried.
    pub async fn coordinator(&self, kind: CoordinatorKind, key: &Arc<str>) -> Result<i32, Error> {
        let node = Node::Coordinator(kind, key.clone());
        let lookup = |version| find_coordinator(version, kind, [key.clone()]);
        let answer = self.ask_any(&node.subject(), &lookup, OTHERS_MAX).await?;
        let id = coordinators(&answer.response).next().map(|(_, id, _)| id);
        id.filter(|&id| id >= 0).ok_or_else(|| Error::LeftOut {
            cluster: self.alias().clone(),
            broker: Box::new(answer.broker),
            api: ApiKey::FindCoordinator,
            subject: node.subject(),
        })
    }

    pub(super) async fn ask_metadata(&self, topics: &Topics) -> Result<MetadataResponse, Error> {
        let build = |_| metadata_request(topics);
        let mut retry = self.retry(ApiKey::Metadata);
        loop {
            let attempt = self.ask_any(&Subject::Cluster, &build, OTHERS_MAX);
            match retry.within(attempt).await? {
                Ok(answer) => return Ok(answer.response),
                Err(error) => {
                    if error.code() == Some(ErrorCode::REBOOTSTRAP_REQUIRED) {
                        self.command(Command::Rebootstrap).await?;
                    }
                    retry.after(error, &Node::Any).await?;
                }
            }
        }
    }

    async fn first_view(&self) -> Result<Arc<ClusterView>, Error> {
        let view = self.view();
        if view.generation > 0 { Ok(view) } else { self.refresh(Topics::Named(Vec::new())).await }
    }

    async fn attempt<R: Api>(
        &self,
        node: &Node,
        subject: &Subject,
        build: &(impl Fn(i16) -> R + Sync),
    ) -> Result<Answer<R::Response>, Error> {
        if *node == Node::Any {
            return self.ask_any(subject, build, OTHERS_MAX).await;
        }
        let connection = match (self.connection(node).await, node) {
            (Ok(connection), _) => connection,
            (Err(error @ Error::Unknown { .. }), Node::Leader(topic, _)) => {
                return Err(self.unseen(R::API, topic).await.unwrap_or(error));
            }
            (Err(error), _) => return Err(error),
        };
        self.ask(&connection, subject, build).await
    }

    /// What `api` would be refused with for a topic that the cluster does not let us see; `None` for one that is not there.
    /// In an answer about all topics the two look alike, and in one about this topic they do not (`KafkaApis.scala`).
    pub(super) async fn unseen(&self, api: ApiKey, topic: &Arc<str>) -> Option<Error> {
        let build = |_| metadata_request(&Topics::Named(vec![topic.clone()]));
        let answer = self.ask_any(&Subject::Cluster, &build, OTHERS_MAX).await.ok()?;
        let code = ErrorCode(answer.response.topics.first()?.error_code);
        (code == ErrorCode::TOPIC_AUTHORIZATION_FAILED).then(|| Error::Refused {
            cluster: self.alias().clone(),
            broker: Box::new(answer.broker),
            api,
            subject: Subject::Topic(topic.clone()),
            code,
            message: None,
        })
    }

    /// Asks any broker; when it takes long, another one as well, because a broker that hangs is found out only by its
    /// silence, and everything else must not wait for that. The first answer counts.
    fn ask_any<'a, R: Api>(
        &'a self,
        subject: &'a Subject,
        build: &'a (impl Fn(i16) -> R + Sync),
        others: u32,
    ) -> Asking<'a, R::Response> {
        Box::pin(async move {
            let mut first = pin!(async {
                let connection = self.connect(Route::Any).await?;
                self.ask(&connection, subject, build).await
            });
            if others == 0 {
                return first.await;
            }
            if let Ok(outcome) = timeout(ASK_ANOTHER_AFTER, &mut first).await {
                return outcome;
            }
            let mut second = self.ask_any(subject, build, others - 1);
            let (is_first, outcome) = tokio::select! {
                biased;
                outcome = &mut first => (true, outcome),
                outcome = &mut second => (false, outcome),
            };
            match outcome {
                Ok(answer) => return Ok(answer),
                Err(error) => drop(error),
            }
            if is_first { second.await } else { first.await }
        })
    }

    /// One request on one connection; a code that stands for the whole reply is an error.
    pub(super) async fn ask<R: Api>(
        &self,
        connection: &Connection,
        subject: &Subject,
        build: &(impl Fn(i16) -> R + Sync),
    ) -> Result<Answer<R::Response>, Error> {
        let version = net::negotiate::<R>(connection.versions(), R::OURS)
            .map_err(|source| self.connection_error(source))?;
        let response = connection.call(&build(version), version).await;
        let response = response.map_err(|source| self.connection_error(source))?;
        let throttle_time_ms = u64::try_from(R::throttle_time_ms(&response)).unwrap_or(0);
        if throttle_time_ms > 0 {
            connection.throttle(Duration::from_millis(throttle_time_ms));
        }
        let broker = connection.versions().broker().clone();
        let (code, message) = R::refusal(&response);
        match code {
            ErrorCode::NONE => Ok(Answer { response, version, broker }),
            code => Err(self.refused::<R>(broker, subject.clone(), code, message)),
        }
    }

    async fn connect(&self, route: Route) -> Result<Connection, Error> {
        let (reply, answer) = oneshot::channel();
        self.command(Command::Connect { route, reply }).await?;
        answer.await.unwrap_or_else(|_| Err(self.closed()))
    }

    async fn command(&self, command: Command) -> Result<(), Error> {
        self.shared.inbox.send(command).await.map_err(|_| self.closed())
    }

    pub(super) fn retry(&self, api: ApiKey) -> Retry<'_> {
        self.retry_for(api, self.shared.settings.default_api_timeout)
    }

    pub(super) fn retry_for(&self, api: ApiKey, limit: Duration) -> Retry<'_> {
        let started = Instant::now();
        Retry { cluster: self, api, started, deadline: started + limit, tries: 0, last: None }
    }

    pub(super) fn refused<R: Api>(
        &self,
        broker: BrokerAddress,
        subject: Subject,
        code: ErrorCode,
        message: Option<String>,
    ) -> Error {
        let broker = Box::new(broker);
        Error::Refused { cluster: self.alias().clone(), broker, api: R::API, subject, code, message }
    }

    pub(super) fn connection_error(&self, source: net::Error) -> Error {
        Error::Connection { cluster: self.alias().clone(), source: Box::new(source) }
    }

    fn closed(&self) -> Error {
        Error::Closed { cluster: self.alias().clone() }
    }
}

impl Node {
    fn subject(&self) -> Subject {
        match self {
            Node::Any | Node::Controller | Node::Broker(_) => Subject::Cluster,
            Node::Leader(topic, partition) => Subject::Partition(topic.clone(), *partition),
            Node::Coordinator(CoordinatorKind::Group, key) => Subject::Group(key.clone()),
            Node::Coordinator(CoordinatorKind::Transaction, key) => Subject::TransactionalId(key.clone()),
        }
    }

    fn topics(&self) -> Topics {
        match self {
            Node::Leader(topic, _) => Topics::Named(vec![topic.clone()]),
            _ => Topics::Named(Vec::new()),
        }
    }
}

/// What is to be asked for anew after an error, before the next try.
fn stale(node: &Node, error: &Error) -> Option<Topics> {
    let is_stale = match error {
        Error::Refused { code, .. } => {
            matches!(code.class(), Class::Retriable(Refresh::Metadata | Refresh::Controller))
        }
        Error::Connection { source, .. } => source.fault() == Fault::Lost && *node != Node::Any,
        Error::NoBroker { .. } | Error::NoLeader { .. } => true,
        _ => false,
    };
    is_stale.then(|| node.topics())
}

/// The tries of one call.
pub(super) struct Retry<'a> {
    cluster: &'a Cluster,
    api: ApiKey,
    started: Instant,
    deadline: Instant,
    tries: u32,
    last: Option<Box<Error>>,
}

impl Retry<'_> {
    /// Runs one try, at most until the call's time is up.
    pub(super) async fn within<T>(&mut self, attempt: impl Future<Output = T>) -> Result<T, Error> {
        match timeout_at(self.deadline, attempt).await {
            Ok(outcome) => Ok(outcome),
            Err(_) => Err(self.timed_out()),
        }
    }

    /// Waits for the next try after an error; gives the error back when there is none.
    pub(super) async fn after(&mut self, error: Error, node: &Node) -> Result<(), Error> {
        if !error.is_retriable() {
            return Err(error);
        }
        let delay = self.delay(&error, node);
        self.tries = self.tries.saturating_add(1);
        self.last = Some(Box::new(error));
        if Instant::now() + delay >= self.deadline {
            return Err(self.timed_out());
        }
        sleep(delay).await;
        Ok(())
    }

    fn timed_out(&mut self) -> Error {
        Error::TimedOut {
            cluster: self.cluster.alias().clone(),
            api: self.api,
            after: self.started.elapsed(),
            source: self.last.take(),
        }
    }

    fn delay(&self, error: &Error, node: &Node) -> Duration {
        let is_lost = matches!(error, Error::Connection { source, .. } if source.fault() == Fault::Lost);
        if is_lost && *node == Node::Any {
            // The pool goes to another node, or makes us wait until one may be dialled again.
            return Duration::ZERO;
        }
        if matches!(error, Error::NoBroker { .. }) && self.tries == 0 {
            // The view is older than what named this broker: it is asked for anew, which takes its own time.
            return Duration::ZERO;
        }
        let backoff = self.cluster.settings().retry_backoff;
        let random = self.cluster.seam().random();
        if !is_not_ready(error) {
            return backoff.delay(self.tries, random);
        }
        match NOT_READY_DELAYS_MS.get(self.tries as usize) {
            Some(&millis) => Duration::from_millis(millis),
            // The quick tries were no failures that the back-off has to grow with.
            None => backoff.delay(self.tries - NOT_READY_DELAYS_MS.len() as u32, random),
        }
    }
}

fn is_not_ready(error: &Error) -> bool {
    match error {
        Error::NoLeader { .. } => true,
        Error::Refused { code, .. } => matches!(
            *code,
            ErrorCode::LEADER_NOT_AVAILABLE
                | ErrorCode::NOT_LEADER_OR_FOLLOWER
                | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                | ErrorCode::NOT_CONTROLLER
                | ErrorCode::NOT_COORDINATOR
        ),
        _ => false,
    }
}

fn metadata_request(topics: &Topics) -> MetadataRequest {
    let topics = match topics {
        Topics::All => None,
        Topics::Named(names) => {
            let topic = |name: &Arc<str>| MetadataRequestTopic::default().with_name(Some(topic_name(name)));
            Some(names.iter().map(topic).collect())
        }
    };
    MetadataRequest::default().with_topics(topics).with_allow_auto_topic_creation(false)
}

pub(super) fn find_coordinator(
    version: i16,
    kind: CoordinatorKind,
    keys: impl IntoIterator<Item = Arc<str>>,
) -> FindCoordinatorRequest {
    let mut keys = keys.into_iter().map(|key| string(&key));
    let key_type = match kind {
        CoordinatorKind::Group => 0,
        CoordinatorKind::Transaction => 1,
    };
    let request = FindCoordinatorRequest::default().with_key_type(key_type);
    match version {
        4.. => request.with_coordinator_keys(keys.collect()),
        _ => request.with_key(keys.next().unwrap_or_default()),
    }
}

/// Key (empty before version 4), broker and code of each coordinator in a reply.
pub(super) fn coordinators(
    response: &FindCoordinatorResponse,
) -> impl Iterator<Item = (&str, i32, ErrorCode)> {
    let many = response.coordinators.iter();
    let many = many.map(|one| (one.key.as_str(), one.node_id.0, ErrorCode(one.error_code)));
    let single = response.coordinators.is_empty();
    let single = single.then_some(("", response.node_id.0, ErrorCode(response.error_code)));
    many.chain(single)
}

pub(super) fn topic_name(name: &Arc<str>) -> TopicName {
    TopicName(string(name))
}

pub(super) fn string(text: &Arc<str>) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;

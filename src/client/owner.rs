//! The owner of a cluster's control-plane connections and of its view: one task, one inbox.
//!
//! It decides with [`Pool`] and [`Refresher`] and waits for nothing itself: dialling and asking run beside it and report
//! back. It ends when the last [`Cluster`] handle is gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kafka_protocol::messages::MetadataResponse;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::cluster::{Cluster, Shared};
use super::error::Error;
use super::metadata::{ClusterView, Topics};
use super::pool::{NodeKey, Pool, State};
use super::refresh::{Refresher, Urgency};
use super::settings::Settings;
use crate::net::{self, CloseReason, Connection, HostPort};
use crate::seam::Seam;

/// Between two log lines about a cluster that cannot be reached.
const TROUBLE_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// What the owner is asked for.
pub(super) enum Command {
    Connect {
        route: Route,
        reply: oneshot::Sender<Result<Connection, Error>>,
    },
    Refresh {
        topics: Topics,
        reply: Option<oneshot::Sender<Result<Arc<ClusterView>, Error>>>,
    },
    /// What is known of the cluster leads nowhere: begin at the bootstrap servers.
    Rebootstrap,
}

/// Whom to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Any,
    Broker(i32),
}

/// What comes of the work beside the owner.
enum Event {
    Bootstrap(Vec<HostPort>),
    Dialled { key: NodeKey, address: HostPort, result: Result<Connection, net::Error> },
    Refreshed { topics: Topics, result: Result<MetadataResponse, Error> },
}

type Waiting<T> = Vec<oneshot::Sender<Result<T, Error>>>;

pub(super) struct Owner {
    seam: Seam,
    settings: Settings,
    shared: Weak<Shared>,
    inbox: mpsc::Receiver<Command>,
    events: mpsc::UnboundedReceiver<Event>,
    report: mpsc::UnboundedSender<Event>,
    view: watch::Sender<Arc<ClusterView>>,
    trouble: watch::Sender<Option<Arc<Error>>>,
    out_of_reach: watch::Sender<bool>,
    /// When trouble was last logged.
    told: Option<Instant>,
    pool: Pool<Connection>,
    connecting: BTreeMap<NodeKey, Waiting<Connection>>,
    refresher: Refresher,
    asked: Waiting<Arc<ClusterView>>,
    wanted: Waiting<Arc<ClusterView>>,
}

impl Owner {
    pub(super) fn new(
        seam: Seam,
        settings: Settings,
        shared: Weak<Shared>,
        inbox: mpsc::Receiver<Command>,
        view: watch::Sender<Arc<ClusterView>>,
        trouble: watch::Sender<Option<Arc<Error>>>,
        out_of_reach: watch::Sender<bool>,
    ) -> Owner {
        let (report, events) = mpsc::unbounded_channel();
        let pool = Pool::new(&settings.bootstrap_servers, settings.net.reconnect_backoff);
        let refresher = Refresher::new(settings.retry_backoff, settings.metadata_max_age, Instant::now());
        Owner {
            seam,
            settings,
            shared,
            inbox,
            events,
            report,
            view,
            trouble,
            out_of_reach,
            told: None,
            pool,
            connecting: BTreeMap::new(),
            refresher,
            asked: Vec::new(),
            wanted: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) {
        self.resolve_bootstrap();
        loop {
            let due = self.refresher.due();
            tokio::select! {
                biased;
                command = self.inbox.recv() => match command {
                    Some(command) => self.command(command),
                    None => return,
                },
                // The owner holds a sender itself, so there is always a next event.
                Some(event) = self.events.recv() => self.event(event),
                () = sleep_or_never(due) => self.refresh(),
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Connect { route, reply } => self.connect(route, reply),
            Command::Refresh { topics, reply } => {
                let urgency = if reply.is_some() { Urgency::Now } else { Urgency::Spaced };
                self.wanted.extend(reply);
                self.refresher.want(topics, urgency, Instant::now(), self.seam.random());
            }
            Command::Rebootstrap => {
                tracing::warn!(
                    target: "kmirror::client",
                    cluster = %self.settings.alias,
                    "a broker says that what is known of the cluster is stale; beginning again at bootstrap.servers"
                );
                self.pool = Pool::new(&self.settings.bootstrap_servers, self.settings.net.reconnect_backoff);
                self.resolve_bootstrap();
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Bootstrap(addresses) => self.pool.set_bootstrap(&addresses),
            Event::Dialled { key, address, result } => self.dialled(key, address, result),
            Event::Refreshed { topics, result } => self.refreshed(&topics, result),
        }
    }

    /// `client.dns.lookup=resolve_canonical_bootstrap_servers_only`: the names are replaced before the first dial is
    /// answered; a dial that is faster uses the names as they are written, which lead to the same brokers.
    fn resolve_bootstrap(&self) {
        if self.settings.net.dns_lookup == net::DnsLookup::UseAllDnsIps {
            return;
        }
        let (seam, report) = (self.seam.clone(), self.report.clone());
        let servers = self.settings.bootstrap_servers.clone();
        self.seam.spawn(async move {
            let _ = report.send(Event::Bootstrap(net::canonical_bootstrap(&seam, &servers).await));
        });
    }

    fn connect(&mut self, route: Route, reply: oneshot::Sender<Result<Connection, Error>>) {
        self.notice_ended();
        let key = match route {
            Route::Broker(id) => Some(NodeKey::Broker(id)),
            Route::Any => self.pool.any(Instant::now(), self.seam.random()),
        };
        let cluster = self.settings.alias.clone();
        let not_before = key.and_then(|key| self.pool.not_before(key));
        let Some((key, node)) = key.and_then(|key| Some((key, self.pool.get(key)?))) else {
            let broker_id = if let Route::Broker(id) = route { id } else { -1 };
            let _ = reply.send(Err(Error::NoBroker { cluster, broker_id }));
            return;
        };
        match &node.state {
            State::Up(connection) => {
                let _ = reply.send(Ok(connection.clone()));
            }
            State::Dialing(_) => self.connecting.entry(key).or_default().push(reply),
            State::Down => {
                node.state = State::Dialing(Instant::now());
                let address = node.address.clone();
                self.connecting.entry(key).or_default().push(reply);
                self.dial(key, address, not_before);
            }
        }
    }

    /// Connections end by themselves; whoever next asks for one finds out, and so whether anybody is left.
    fn notice_ended(&mut self) {
        let now = Instant::now();
        for key in self.pool.keys() {
            let Some(node) = self.pool.get(key) else { continue };
            let State::Up(connection) = &node.state else { continue };
            match connection.ended() {
                None => {}
                Some(net::Error::ClosedByUs { reason: CloseReason::Idle, .. }) => node.state = State::Down,
                Some(source @ net::Error::ClosedAtFirst { .. }) => {
                    self.pool.refused(key, now, self.seam.random());
                    let cluster = self.settings.alias.clone();
                    self.note_trouble(&Error::Connection { cluster, source: Box::new(source) });
                }
                Some(_) => self.pool.failed(key, now, self.seam.random()),
            }
        }
        self.out_of_reach.send_replace(self.pool.is_out_of_reach());
    }

    fn dial(&self, key: NodeKey, address: HostPort, not_before: Option<Instant>) {
        let (seam, settings, report) = (self.seam.clone(), self.settings.net.clone(), self.report.clone());
        let failures = self.pool.failures(key);
        self.seam.spawn(async move {
            if let Some(at) = not_before {
                sleep_until(at).await;
            }
            let established =
                net::establish_after(&seam, &settings, &address.host, address.port, failures).await;
            let result = established.map(|established| Connection::start(&seam, &settings, established));
            let _ = report.send(Event::Dialled { key, address, result });
        });
    }

    fn dialled(&mut self, key: NodeKey, address: HostPort, result: Result<Connection, net::Error>) {
        let waiting = self.connecting.remove(&key).unwrap_or_default();
        let (now, random) = (Instant::now(), self.seam.random());
        let is_current = self.pool.get(key).is_some_and(|node| node.address == address);
        let answer = match result {
            Ok(connection) => {
                if is_current {
                    self.pool.connected(key, connection.clone(), now, random);
                }
                Ok(connection)
            }
            Err(source) => {
                if is_current && source.fault() == net::Fault::Security {
                    self.pool.refused(key, now, random);
                } else if is_current {
                    self.pool.failed(key, now, random);
                }
                let error =
                    Error::Connection { cluster: self.settings.alias.clone(), source: Box::new(source) };
                self.note_trouble(&error);
                Err(error)
            }
        };
        self.notice_ended();
        for reply in waiting {
            let _ = reply.send(answer.clone());
        }
    }

    /// Whoever waits for this cluster may wait long: that is said at once, and again as long as it lasts.
    fn note_trouble(&mut self, error: &Error) {
        let now = Instant::now();
        self.trouble.send_replace(Some(Arc::new(error.clone())));
        if self.told.is_none_or(|told| now - told >= TROUBLE_LOG_INTERVAL) {
            self.told = Some(now);
            tracing::warn!("{}", error.chain());
        }
    }

    fn refresh(&mut self) {
        let Some(topics) = self.refresher.start(Instant::now()) else { return };
        let Some(shared) = self.shared.upgrade() else { return };
        self.asked.append(&mut self.wanted);
        let (cluster, report) = (Cluster::from_shared(shared), self.report.clone());
        self.seam.spawn(async move {
            let result = cluster.ask_metadata(&topics).await;
            let _ = report.send(Event::Refreshed { topics, result });
        });
    }

    fn refreshed(&mut self, topics: &Topics, result: Result<MetadataResponse, Error>) {
        let now = Instant::now();
        self.refresher.finished(result.is_ok(), now);
        let answer = match result {
            Ok(response) => {
                let view = Arc::new(self.view.borrow().apply(&response, topics));
                self.pool.update(&view);
                if view.is_doubtful() {
                    self.refresher.want_all_after(self.settings.retry_backoff.max, now);
                }
                self.view.send_replace(view.clone());
                self.trouble.send_replace(None);
                self.out_of_reach.send_replace(false);
                Ok(view)
            }
            Err(error) => {
                self.notice_ended();
                self.note_trouble(&error);
                Err(error)
            }
        };
        for reply in self.asked.drain(..) {
            let _ = reply.send(answer.clone());
        }
    }
}

async fn sleep_or_never(due: Option<Instant>) {
    match due {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

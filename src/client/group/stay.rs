//! How a membership lives: its driver stays in the group until the handle is left, or dropped without a word.
//!
//! The same for both protocols ([`super::driver`], [`super::consumer`]), which say what staying and leaving are.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::super::cluster::{Cluster, CoordinatorKind};
use super::super::error::Error;
use super::super::metadata::Topics;
use crate::net::Connection;

/// Events that wait for the caller; more make the member wait, and with it its heartbeats.
const EVENTS_MAX: usize = 64;

/// The owner's side: what happens, and the word to leave.
#[derive(Debug)]
pub(super) struct Handle<E> {
    events: mpsc::Receiver<E>,
    leave: oneshot::Sender<oneshot::Sender<()>>,
}

/// The driver's side.
pub(super) struct Ties<E> {
    pub(super) events: mpsc::Sender<E>,
    pub(super) left: Left,
}

/// Tells when the owner wants to leave; closed when it was dropped.
pub(super) type Left = oneshot::Receiver<oneshot::Sender<()>>;

/// Both sides of a new membership.
pub(super) fn ties<E>() -> (Handle<E>, Ties<E>) {
    let (sender, events) = mpsc::channel(EVENTS_MAX);
    let (leave, left) = oneshot::channel();
    (Handle { events, leave }, Ties { events: sender, left })
}

impl<E> Handle<E> {
    pub(super) async fn next(&mut self) -> Option<E> {
        self.events.recv().await
    }

    /// Leaves, and waits until that is done.
    pub(super) async fn leave(mut self) {
        let (done, left) = oneshot::channel();
        if self.leave.send(done).is_ok() {
            self.events.close();
            let _ = left.await;
        }
    }
}

/// A member of a group.
pub(super) trait Member {
    /// Stays in the group; ends only when nobody listens any more.
    async fn stay(&mut self);
    /// Says that it leaves.
    async fn leave(&mut self);
}

/// Stays until it is told to leave. One that was dropped leaves without a word: the session timeout gives its place away.
pub(super) async fn live(mut member: impl Member, left: Left) {
    let leave = tokio::select! {
        biased;
        leave = left => leave.ok(),
        () = member.stay() => None,
    };
    if let Some(done) = leave {
        member.leave().await;
        let _ = done.send(());
    }
}

/// A connection of its own to the group's coordinator, which is looked up anew.
pub(super) async fn connect(
    cluster: &Cluster,
    group_id: &Arc<str>,
    within: Duration,
) -> Result<Connection, Error> {
    let connect = async {
        let id = cluster.coordinator(CoordinatorKind::Group, group_id).await?;
        if !cluster.view().brokers.contains_key(&id) {
            cluster.refresh(Topics::Named(Vec::new())).await?;
        }
        cluster.dial(id).await
    };
    let late = || {
        let cluster = cluster.alias().clone();
        Error::TimedOut { cluster, api: ApiKey::FindCoordinator, after: within, source: None }
    };
    timeout(within, connect).await.unwrap_or_else(|_| Err(late()))
}

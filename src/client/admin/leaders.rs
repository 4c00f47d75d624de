//! Requests about many partitions: one to each leader, all leaders at once, until each partition has its result.
//!
//! A partition whose leader moved, vanished or is not elected is asked for again with fresh metadata; the others do not
//! wait for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::super::api::Api;
use super::super::cluster::{Answer, Cluster, Node};
use super::super::code::ErrorCode;
use super::super::error::{Error, Subject};
use super::super::metadata::{ClusterView, Topics};
use super::{Each, TopicPartition};

/// A partition in a request: what is wanted of it, and the leader epoch of the metadata that it goes by.
#[derive(Clone, Debug)]
pub(super) struct Wanted<T> {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) leader_epoch: i32,
    pub(super) what: T,
}

/// A partition in a reply.
#[derive(Debug)]
pub(super) struct Part<V> {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) code: ErrorCode,
    pub(super) message: Option<String>,
    pub(super) value: V,
}

/// One leader's share of a round.
struct Share<R: Api, T> {
    wanted: Vec<Wanted<T>>,
    answer: JoinHandle<Result<Answer<R::Response>, Error>>,
}

impl Cluster {
    pub(super) async fn ask_leaders<R, T, V>(
        &self,
        wanted: BTreeMap<TopicPartition, T>,
        build: impl Fn(i16, &[Wanted<T>]) -> R + Clone + Send + Sync + 'static,
        parts: impl Fn(R::Response) -> Vec<Part<V>>,
    ) -> Each<TopicPartition, V>
    where
        R: Api,
        R::Response: Send,
        T: Clone + Send + Sync + 'static,
    {
        self.ask_leaders_within::<R, T, V>(wanted, build, parts, self.settings().default_api_timeout).await
    }

    pub(super) async fn ask_leaders_within<R, T, V>(
        &self,
        wanted: BTreeMap<TopicPartition, T>,
        build: impl Fn(i16, &[Wanted<T>]) -> R + Clone + Send + Sync + 'static,
        parts: impl Fn(R::Response) -> Vec<Part<V>>,
        limit: Duration,
    ) -> Each<TopicPartition, V>
    where
        R: Api,
        R::Response: Send,
        T: Clone + Send + Sync + 'static,
    {
        let mut round =
            Round { cluster: self, pending: wanted, done: BTreeMap::new(), last: BTreeMap::new() };
        let mut retry = self.retry_for(R::API, limit);
        while !round.pending.is_empty() {
            let error = match retry.within(round.turn(&build, &parts)).await {
                Ok(Some(error)) => error,
                Ok(None) => break,
                Err(error) => return round.give_up(&error),
            };
            if let Err(error) = retry.after(error, &Node::Controller).await {
                return round.give_up(&error);
            }
            if let Err(error) = retry.within(self.refresh(round.topics())).await {
                return round.give_up(&error);
            }
        }
        round.done
    }
}

struct Round<'a, T, V> {
    cluster: &'a Cluster,
    pending: BTreeMap<TopicPartition, T>,
    done: Each<TopicPartition, V>,
    last: BTreeMap<TopicPartition, Error>,
}

impl<T: Clone + Send + Sync + 'static, V> Round<'_, T, V> {
    /// Asks every leader once; a retriable error if something is left to ask again.
    async fn turn<R>(
        &mut self,
        build: &(impl Fn(i16, &[Wanted<T>]) -> R + Clone + Send + Sync + 'static),
        parts: &impl Fn(R::Response) -> Vec<Part<V>>,
    ) -> Option<Error>
    where
        R: Api,
        R::Response: Send,
    {
        let view = match self.known_view().await {
            Ok(view) => view,
            Err(error) => {
                self.settle_all(&error);
                return None;
            }
        };
        let shares: Vec<Share<R, T>> = self
            .by_leader(&view)
            .into_iter()
            .map(|(leader, wanted)| self.send(leader, wanted, build.clone()))
            .collect();
        for share in shares {
            match share.answer.await {
                Ok(Ok(answer)) => self.answered::<R>(share.wanted, answer, parts),
                Ok(Err(error)) => self.failed(share.wanted, &error),
                // The runtime is shutting down.
                Err(_) => self.failed(share.wanted, &Error::Closed { cluster: self.cluster.alias().clone() }),
            }
        }
        self.pending.keys().find_map(|key| self.last.get(key).cloned())
    }

    /// The view, refreshed once when it lacks something that is wanted.
    async fn known_view(&self) -> Result<Arc<ClusterView>, Error> {
        let view = self.cluster.view();
        let lacking = self.pending.keys().any(|(topic, partition)| view.leader(topic, *partition).is_none());
        if lacking { self.cluster.refresh(self.topics()).await } else { Ok(view) }
    }

    fn topics(&self) -> Topics {
        let mut topics: Vec<Arc<str>> = self.pending.keys().map(|(topic, _)| topic.clone()).collect();
        topics.dedup();
        Topics::Named(topics)
    }

    fn by_leader(&mut self, view: &ClusterView) -> BTreeMap<i32, Vec<Wanted<T>>> {
        let mut shares: BTreeMap<i32, Vec<Wanted<T>>> = BTreeMap::new();
        let pending: Vec<(TopicPartition, T)> =
            self.pending.iter().map(|(key, what)| (key.clone(), what.clone())).collect();
        for (key, what) in pending {
            let (topic, partition) = key.clone();
            let cluster = self.cluster.alias().clone();
            let subject = Subject::Partition(topic.clone(), partition);
            match view.partition(&topic, partition) {
                None => self.settle(key, Err(Error::Unknown { cluster, subject })),
                Some(found) => match found.leader {
                    None => {
                        self.last.insert(key, Error::NoLeader { cluster, subject });
                    }
                    Some(leader) => {
                        let leader_epoch = found.leader_epoch;
                        shares.entry(leader).or_default().push(Wanted {
                            topic,
                            partition,
                            leader_epoch,
                            what,
                        });
                    }
                },
            }
        }
        shares
    }

    fn send<R>(
        &self,
        leader: i32,
        wanted: Vec<Wanted<T>>,
        build: impl Fn(i16, &[Wanted<T>]) -> R + Send + Sync + 'static,
    ) -> Share<R, T>
    where
        R: Api,
        R::Response: Send,
    {
        let (cluster, asked) = (self.cluster.clone(), wanted.clone());
        let subject = match wanted.as_slice() {
            [one] => Subject::Partition(one.topic.clone(), one.partition),
            _ => Subject::Cluster,
        };
        let answer = self.cluster.seam().spawn(async move {
            let connection = cluster.connection(&Node::Broker(leader)).await?;
            cluster.ask(&connection, &subject, &|version| build(version, &asked)).await
        });
        Share { wanted, answer }
    }

    fn answered<R: Api>(
        &mut self,
        wanted: Vec<Wanted<T>>,
        answer: Answer<R::Response>,
        parts: &impl Fn(R::Response) -> Vec<Part<V>>,
    ) {
        let broker = answer.broker;
        let mut open: BTreeMap<TopicPartition, ()> =
            wanted.into_iter().map(|one| ((one.topic, one.partition), ())).collect();
        for part in parts(answer.response) {
            let key: TopicPartition = (Arc::from(part.topic), part.partition);
            if open.remove(&key).is_none() {
                continue;
            }
            if part.code == ErrorCode::NONE {
                self.settle(key, Ok(part.value));
                continue;
            }
            let subject = Subject::Partition(key.0.clone(), key.1);
            let error = self.cluster.refused::<R>(broker.clone(), subject, part.code, part.message);
            self.note(key, error);
        }
        for (topic, partition) in open.into_keys() {
            let error = Error::LeftOut {
                cluster: self.cluster.alias().clone(),
                broker: Box::new(broker.clone()),
                api: R::API,
                subject: Subject::Partition(topic.clone(), partition),
            };
            self.settle((topic, partition), Err(error));
        }
    }

    fn failed(&mut self, wanted: Vec<Wanted<T>>, error: &Error) {
        for one in wanted {
            self.note((one.topic, one.partition), error.clone());
        }
    }

    /// An error of one partition: kept for the next round if it may heal, else its result.
    fn note(&mut self, key: TopicPartition, error: Error) {
        if error.is_retriable() {
            self.last.insert(key, error);
        } else {
            self.settle(key, Err(error));
        }
    }

    fn settle(&mut self, key: TopicPartition, result: Result<V, Error>) {
        self.pending.remove(&key);
        self.last.remove(&key);
        self.done.insert(key, result);
    }

    fn settle_all(&mut self, error: &Error) {
        for key in std::mem::take(&mut self.pending).into_keys() {
            self.done.insert(key, Err(error.clone()));
        }
    }

    /// The time is up: what is left gets its own last error, or the call's.
    fn give_up(mut self, error: &Error) -> Each<TopicPartition, V> {
        for key in std::mem::take(&mut self.pending).into_keys() {
            let own = self.last.remove(&key);
            self.done.insert(key, Err(own.unwrap_or_else(|| error.clone())));
        }
        self.done
    }
}

/// Groups partitions by topic, in order, as every request of this kind has them.
pub(super) fn by_topic<T, P>(
    wanted: &[Wanted<T>],
    partition: impl Fn(&Wanted<T>) -> P,
) -> BTreeMap<Arc<str>, Vec<P>> {
    let mut topics: BTreeMap<Arc<str>, Vec<P>> = BTreeMap::new();
    for one in wanted {
        topics.entry(one.topic.clone()).or_default().push(partition(one));
    }
    topics
}

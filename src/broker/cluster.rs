//! An embedded cluster as its owner holds it: start, stop, and everything a test does to it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::contents::{self, LoggedRecord};
use super::error::Error;
use super::fault::FaultRule;
use super::log::{Isolation, Origin, PartitionLog, Verification};
use super::sasl::{Door, Logins};
use super::server::{Limits, Shared, listen, run_broker, run_timers};
use super::settings::Settings;
use super::state::{ClusterState, Violation};
use super::wire::BrokerId;
use crate::seam::Seam;

/// A running cluster. Dropping it stops its brokers.
#[derive(Debug)]
pub struct EmbeddedCluster {
    shared: Arc<Shared>,
    host: String,
    addresses: BTreeMap<i32, SocketAddr>,
    running: Mutex<BTreeMap<i32, Running>>,
    stop_timers: watch::Sender<bool>,
}

/// A broker that listens.
#[derive(Debug)]
struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl EmbeddedCluster {
    /// Opens the ports of all brokers and serves.
    pub async fn start(seam: Seam, settings: Settings) -> Result<EmbeddedCluster, Error> {
        let mut listeners = Vec::new();
        for (id, port) in (1..).zip(ports(&settings)) {
            let address = SocketAddr::new(settings.address, port);
            let opened = listen(&seam, address).await;
            let (listener, address) =
                opened.map_err(|source| Error::Listen { broker: id, address, source })?;
            listeners.push((id, listener, address));
        }
        let taken: Vec<u16> = listeners.iter().map(|(_, _, address)| address.port()).collect();
        let host = match settings.advertised_host.as_str() {
            "" => settings.address.to_string(),
            host => host.to_owned(),
        };
        let limits = Limits {
            request_bytes_max: settings.request_bytes_max,
            idle: Duration::from_millis(settings.connections_idle_ms_max),
        };
        let (tls, door) = (settings.tls.clone(), settings.sasl.clone().map(Door::new));
        let shared = Shared::new(ClusterState::new(settings, &taken), seam, limits, tls, door);
        let (stop_timers, stopped) = watch::channel(false);
        shared.seam.spawn(run_timers(shared.clone(), stopped));
        let cluster = EmbeddedCluster {
            shared,
            host,
            addresses: listeners.iter().map(|(id, _, address)| (*id, *address)).collect(),
            running: Mutex::new(BTreeMap::new()),
            stop_timers,
        };
        for (id, listener, _) in listeners {
            cluster.run(id, listener);
        }
        Ok(cluster)
    }

    /// `bootstrap.servers`: all brokers, also those that are down.
    pub fn bootstrap(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let brokers = self.addresses.values().map(|address| format!("{host}:{}", address.port()));
        brokers.collect::<Vec<_>>().join(",")
    }

    /// Where a broker listens.
    pub fn address(&self, broker: i32) -> Option<SocketAddr> {
        self.addresses.get(&broker).copied()
    }

    /// Crashes a broker: its connections are reset, its partitions get another leader or none.
    pub async fn stop_broker(&self, id: i32) -> Result<(), Error> {
        self.shared.with(|state, _| state.broker_down(id))?;
        let running = lock(&self.running).remove(&id);
        if let Some(running) = running {
            running.stop.send_replace(true);
            // Ends at once; the port is free for the next start when it has ended.
            let _ = running.task.await;
        }
        Ok(())
    }

    /// Brings a broker back on its old port.
    pub async fn start_broker(&self, id: i32) -> Result<(), Error> {
        let address = self.address(id).ok_or(Error::UnknownBroker(id))?;
        if lock(&self.running).contains_key(&id) {
            return Ok(());
        }
        let opened = listen(&self.shared.seam, address).await;
        let (listener, address) = opened.map_err(|source| Error::Listen { broker: id, address, source })?;
        self.shared.with(|state, _| state.broker_up(id, address.port()))?;
        self.run(id, listener);
        Ok(())
    }

    /// Stops all brokers.
    pub async fn shutdown(self) {
        let ids: Vec<i32> = self.addresses.keys().copied().collect();
        for id in ids {
            let _ = self.stop_broker(id).await;
        }
    }

    /// Creates a topic; `u32::MAX` and `u16::MAX` mean the cluster's defaults.
    pub fn create_topic(
        &self,
        name: &str,
        partitions: u32,
        replication_factor: u16,
        configs: &[(&str, &str)],
    ) -> Result<(), Error> {
        self.shared.with(|state, _| state.create_topic_named(name, partitions, replication_factor, configs))
    }

    /// Deletes a topic.
    pub fn delete_topic(&self, name: &str) -> Result<(), Error> {
        self.shared.with(|state, _| state.delete_topic_named(name))
    }

    /// Deletes a topic and creates it again, empty and under a new id.
    pub fn recreate_topic(&self, name: &str) -> Result<(), Error> {
        self.shared.with(|state, _| state.recreate_topic(name))
    }

    /// Makes another replica leader of a partition.
    pub fn move_leader(&self, topic: &str, partition: i32, to: i32) -> Result<(), Error> {
        self.shared.with(|state, _| state.move_leader(topic, partition, to))
    }

    /// Leader (none while all replicas are down) and leader epoch of a partition.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<(Option<i32>, i32)> {
        self.shared.with(|state, _| state.leader(topic, partition))
    }

    /// All topics with their number of partitions.
    pub fn topics(&self) -> Vec<(String, i32)> {
        self.shared.with(|state, _| state.topic_names())
    }

    /// Applies `retention.ms` and `retention.bytes` of a topic now.
    pub fn expire(&self, topic: &str) -> Result<(), Error> {
        self.shared.with(|state, now_ms| {
            state.with_logs(topic, |log| {
                log.expire_by_retention(now_ms);
            })
        })
    }

    /// Compacts a topic now, if its `cleanup.policy` says so.
    pub fn compact(&self, topic: &str) -> Result<(), Error> {
        self.shared.with(|state, now_ms| {
            state.with_logs(topic, |log| {
                log.compact(now_ms);
            })
        })
    }

    /// Cuts a partition at `offset` under a new leader epoch, as an unclean election does. Gives the new end, which may
    /// be lower: batches are cut whole.
    pub fn truncate(&self, topic: &str, partition: i32, offset: i64) -> Result<i64, Error> {
        self.shared.with(|state, _| state.truncate(topic, partition, offset))
    }

    /// A broker goes on answering Metadata with the topics and leaders of this moment, as one does that lags behind.
    pub fn freeze_metadata(&self, broker: i32) -> Result<(), Error> {
        self.shared.with(|state, _| state.freeze_metadata(broker))
    }

    /// Ends [`freeze_metadata`](EmbeddedCluster::freeze_metadata).
    pub fn thaw_metadata(&self, broker: i32) {
        self.shared.with(|state, _| state.thaw_metadata(broker));
    }

    /// Forgets a transactional id, as its coordinator does after `transactional.id.expiration.ms`.
    pub fn expire_transactional_id(&self, id: &str) -> bool {
        self.shared.with(|state, _| state.expire_transactional_id(id))
    }

    /// Forgets producers that have been idle for `idle_ms` milliseconds or longer (`producer.id.expiration.ms`).
    pub fn expire_producers(&self, idle_ms: i64) {
        self.shared.with(|state, now_ms| {
            state.with_all_logs(|log| {
                log.expire_producers(now_ms, idle_ms);
            });
        });
    }

    /// Looks at, or works on, the log of a partition.
    pub fn log<T>(
        &self,
        topic: &str,
        partition: i32,
        work: impl FnOnce(&mut PartitionLog) -> T,
    ) -> Result<T, Error> {
        self.shared.with(|state, _| state.with_log(topic, partition, work))
    }

    /// All data records of a partition, in order: no markers, and with read_committed nothing of aborted transactions.
    pub fn read_all(
        &self,
        topic: &str,
        partition: i32,
        isolation: Isolation,
    ) -> Result<Vec<LoggedRecord>, Error> {
        let read = self.log(topic, partition, |log| contents::records(log, isolation))?;
        read.map_err(|source| Error::Unreadable { topic: topic.to_owned(), partition, source })
    }

    /// All batches of a partition as they are stored, markers included.
    pub fn batches(&self, topic: &str, partition: i32) -> Result<Vec<Bytes>, Error> {
        self.log(topic, partition, |log| contents::batches(log, Isolation::ReadUncommitted).0)
    }

    /// Appends a batch as a producer without transactions would; gives its base offset.
    pub fn append(&self, topic: &str, partition: i32, batch: &Bytes) -> Result<i64, Error> {
        let appended = self.shared.with(|state, now_ms| {
            let epoch = state.leader(topic, partition).map_or(0, |(_, epoch)| epoch);
            let origin = Origin::Client(Verification::Missing);
            state.with_log(topic, partition, |log| log.append(now_ms, epoch, batch, origin))
        })?;
        let appended =
            appended.map_err(|source| Error::Append { topic: topic.to_owned(), partition, source })?;
        Ok(appended.base_offset)
    }

    /// What a group has committed: topic, partition, offset, metadata.
    pub fn committed(&self, group: &str) -> Vec<(String, i32, i64, String)> {
        self.shared.with(|state, _| state.committed(group))
    }

    /// How many authentications there were; none without SASL.
    pub fn logins(&self) -> Logins {
        self.shared.at_door(|door| door.logins()).unwrap_or_default()
    }

    /// Gives a user a password, or another one. Who is inside stays there until the session ends.
    pub fn set_password(&self, user: &str, password: &str) {
        self.shared.at_door(|door| {
            door.settings_mut().users.insert(user.to_owned(), password.to_owned());
        });
    }

    /// Arms a fault.
    pub fn fault(&self, rule: FaultRule) {
        self.shared.with(|state, _| state.arm(rule));
    }

    /// Disarms all faults.
    pub fn clear_faults(&self) {
        self.shared.with(|state, _| state.disarm());
    }

    /// `throttle_time_ms` of every later reply.
    pub fn set_throttle_ms(&self, throttle_ms: i32) {
        self.shared.with(|state, _| state.set_throttle_ms(throttle_ms));
    }

    /// What clients did that real brokers let pass and a careful client never does.
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.with(|state, _| state.violations())
    }

    fn run(&self, id: i32, listener: crate::seam::Listener) {
        let (stop, stopped) = watch::channel(false);
        let task = self.shared.seam.spawn(run_broker(self.shared.clone(), BrokerId(id), listener, stopped));
        lock(&self.running).insert(id, Running { stop, task });
    }
}

impl Drop for EmbeddedCluster {
    fn drop(&mut self) {
        self.stop_timers.send_replace(true);
        for running in lock(&self.running).values() {
            running.stop.send_replace(true);
        }
    }
}

fn ports(settings: &Settings) -> impl Iterator<Item = u16> {
    let (first, count) = (settings.port, settings.brokers.clamp(1, 1_000) as u16);
    (0..count).map(move |nth| if first == 0 { 0 } else { first.saturating_add(nth) })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

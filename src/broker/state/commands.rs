//! What a test does to a cluster from outside: brokers that crash and come back, leaders that move, logs that are cut.

use super::topics::{NewTopic, Partition, Topics};
use super::{Broker, ClusterState};
use crate::broker::error::Error;
use crate::broker::log::PartitionLog;
use crate::broker::wire::BrokerId;

impl ClusterState {
    /// A broker crashes: its sessions end, what it led moves to another replica, or nowhere.
    pub fn broker_down(&mut self, id: i32) -> Result<(), Error> {
        self.broker_mut(id)?.is_up = false;
        self.sessions.close_all(BrokerId(id));
        let brokers = &self.brokers;
        for (_, topic) in self.topics.iter_mut() {
            for partition in topic.partitions.iter_mut().filter(|partition| partition.leader == Some(id)) {
                let up = |id: &&i32| brokers.get(id).is_some_and(|broker| broker.is_up);
                let next = partition.replicas.iter().find(up).copied();
                partition.elect(next);
            }
        }
        self.wake_all_fetches();
        Ok(())
    }

    /// A broker is back on this port: it leads what nobody leads.
    pub fn broker_up(&mut self, id: i32, port: u16) -> Result<(), Error> {
        let broker = self.broker_mut(id)?;
        (broker.is_up, broker.port) = (true, port);
        self.frozen.remove(&id);
        for (_, topic) in self.topics.iter_mut() {
            for partition in &mut topic.partitions {
                if partition.leader.is_none() && partition.replicas.contains(&id) {
                    partition.elect(Some(id));
                }
            }
        }
        self.wake_all_fetches();
        Ok(())
    }

    /// Makes another replica leader.
    pub fn move_leader(&mut self, topic: &str, partition: i32, to: i32) -> Result<(), Error> {
        if !self.broker_mut(to)?.is_up {
            return Err(Error::BrokerDown(to));
        }
        let found = find(&mut self.topics, topic, partition)?;
        if !found.replicas.contains(&to) {
            return Err(Error::NoReplica { broker: to, topic: topic.to_owned(), partition });
        }
        found.elect(Some(to));
        self.wake_fetches_of(topic, partition..partition + 1);
        Ok(())
    }

    /// Cuts a partition at `offset` under a new leader epoch, as an unclean election does. Gives the new end.
    pub fn truncate(&mut self, topic: &str, partition: i32, offset: i64) -> Result<i64, Error> {
        let found = find(&mut self.topics, topic, partition)?;
        let end_offset = found.log.truncate_to(offset);
        found.elect(found.leader);
        self.wake_fetches_of(topic, partition..partition + 1);
        Ok(end_offset)
    }

    /// A broker goes on answering Metadata with the topics and leaders of this moment, until it is thawed or restarted.
    pub fn freeze_metadata(&mut self, broker: i32) -> Result<(), Error> {
        self.broker_mut(broker)?;
        self.freeze(broker);
        Ok(())
    }

    /// A broker's Metadata is up to date again.
    pub fn thaw_metadata(&mut self, broker: i32) {
        self.frozen.remove(&broker);
    }

    /// Forgets a transactional id (`transactional.id.expiration.ms`); whether it was known.
    pub fn expire_transactional_id(&mut self, id: &str) -> bool {
        self.transactions.remove(id)
    }

    /// Makes a topic as an admin client would.
    pub fn create_topic_named(
        &mut self,
        name: &str,
        partitions: u32,
        replication_factor: u16,
        configs: &[(&str, &str)],
    ) -> Result<(), Error> {
        let new = NewTopic {
            name,
            partitions: partitions as i32,
            replication_factor: replication_factor as i16,
            configs: configs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..NewTopic::default()
        };
        let refused =
            |(code, message)| Error::Refused { what: format!("create topic {name}"), code, message };
        let placement = self.plan_topic(&new).map_err(refused)?;
        self.make_topic(&new, placement);
        Ok(())
    }

    /// Deletes a topic and makes it again under a new id, with the same partitions and configs.
    pub fn recreate_topic(&mut self, name: &str) -> Result<(), Error> {
        let Some(old) = self.topics.get(name) else { return Err(Error::UnknownTopic(name.to_owned())) };
        let placement = old.partitions.iter().map(|partition| partition.replicas.clone()).collect();
        let new = NewTopic { name, configs: old.configs.set.clone(), ..NewTopic::default() };
        self.remove_topic(name);
        self.make_topic(&new, placement);
        Ok(())
    }

    /// Deletes a topic.
    pub fn delete_topic_named(&mut self, name: &str) -> Result<(), Error> {
        if self.remove_topic(name) { Ok(()) } else { Err(Error::UnknownTopic(name.to_owned())) }
    }

    /// Works on the log of one partition; its readers are woken.
    pub fn with_log<T>(
        &mut self,
        topic: &str,
        partition: i32,
        work: impl FnOnce(&mut PartitionLog) -> T,
    ) -> Result<T, Error> {
        let result = work(&mut find(&mut self.topics, topic, partition)?.log);
        self.wake_fetches_of(topic, partition..partition + 1);
        Ok(result)
    }

    /// Works on the logs of all partitions of a topic.
    pub fn with_logs(&mut self, topic: &str, mut work: impl FnMut(&mut PartitionLog)) -> Result<(), Error> {
        let found = self.topics.get_mut(topic).ok_or_else(|| Error::UnknownTopic(topic.to_owned()))?;
        found.partitions.iter_mut().for_each(|partition| work(&mut partition.log));
        let count = found.partitions.len() as i32;
        self.wake_fetches_of(topic, 0..count);
        Ok(())
    }

    /// Works on every log of the cluster.
    pub fn with_all_logs(&mut self, mut work: impl FnMut(&mut PartitionLog)) {
        self.topics
            .iter_mut()
            .flat_map(|(_, topic)| &mut topic.partitions)
            .for_each(|one| work(&mut one.log));
        self.wake_all_fetches();
    }

    /// Names of all topics with their number of partitions.
    pub fn topic_names(&self) -> Vec<(String, i32)> {
        self.topics.iter().map(|(name, topic)| (name.to_owned(), topic.partitions.len() as i32)).collect()
    }

    /// The leader and the leader epoch of a partition.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<(Option<i32>, i32)> {
        self.topics.partition(topic, partition).map(|found| (found.leader, found.leader_epoch))
    }

    /// `throttle_time_ms` of every later reply.
    pub fn set_throttle_ms(&mut self, throttle_ms: i32) {
        self.settings.throttle_ms = throttle_ms;
    }

    fn broker_mut(&mut self, id: i32) -> Result<&mut Broker, Error> {
        self.brokers.get_mut(&id).ok_or(Error::UnknownBroker(id))
    }
}

impl Partition {
    /// A new leader, or none, begins a new epoch.
    fn elect(&mut self, leader: Option<i32>) {
        self.leader = leader;
        self.leader_epoch += 1;
        if leader.is_some() {
            self.log.start_epoch(self.leader_epoch);
        }
    }
}

fn find<'a>(topics: &'a mut Topics, topic: &str, partition: i32) -> Result<&'a mut Partition, Error> {
    if topics.get(topic).is_none() {
        return Err(Error::UnknownTopic(topic.to_owned()));
    }
    topics
        .partition_mut(topic, partition)
        .ok_or_else(|| Error::UnknownPartition { topic: topic.to_owned(), partition })
}

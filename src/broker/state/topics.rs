//! Topics and their partitions: names, ids, replicas, leaders, epochs.
//!
//! Invariants: names and ids map one to one; a leader is an up replica, or there is none; an epoch rises with every
//! change of leader, also to none (as KRaft's partition registrations do).

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use uuid::Uuid;

use super::ClusterState;
use super::configs::TopicConfigs;
use crate::broker::log::PartitionLog;

/// Longest name of a topic (`Topic.java`).
const NAME_BYTES_MAX: usize = 249;
/// Most partitions that one request may make: everything is kept in memory.
const PARTITIONS_MAX: i32 = 200_000;

/// A topic.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) id: Uuid,
    pub(crate) configs: TopicConfigs,
    pub(crate) partitions: Vec<Partition>,
}

/// A partition and where it lives.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) log: PartitionLog,
    pub(crate) replicas: Vec<i32>,
    pub(crate) leader: Option<i32>,
    pub(crate) leader_epoch: i32,
}

/// A topic by whichever handle a request uses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TopicHandle<'a> {
    Name(&'a str),
    Id(Uuid),
}

/// All topics of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    by_name: BTreeMap<String, Topic>,
    by_id: BTreeMap<Uuid, String>,
}

/// A refusal: Kafka's error and the broker's words.
pub(crate) type Refusal = (ResponseError, String);

impl Topics {
    pub(crate) fn get(&self, name: &str) -> Option<&Topic> {
        self.by_name.get(name)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Topic> {
        self.by_name.get_mut(name)
    }

    pub(crate) fn name_of(&self, id: Uuid) -> Option<&str> {
        self.by_id.get(&id).map(String::as_str)
    }

    /// The name behind a handle, whether or not a topic of that name exists.
    pub(crate) fn resolve<'a>(&'a self, handle: TopicHandle<'a>) -> Option<&'a str> {
        match handle {
            TopicHandle::Name(name) => Some(name),
            TopicHandle::Id(id) => self.name_of(id),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Topic)> {
        self.by_name.iter().map(|(name, topic)| (name.as_str(), topic))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Topic)> {
        self.by_name.iter_mut().map(|(name, topic)| (name.as_str(), topic))
    }

    pub(crate) fn partition(&self, name: &str, index: i32) -> Option<&Partition> {
        self.get(name)?.partitions.get(usize::try_from(index).ok()?)
    }

    pub(crate) fn partition_mut(&mut self, name: &str, index: i32) -> Option<&mut Partition> {
        self.get_mut(name)?.partitions.get_mut(usize::try_from(index).ok()?)
    }

    fn insert(&mut self, name: &str, topic: Topic) {
        self.by_id.insert(topic.id, name.to_owned());
        self.by_name.insert(name.to_owned(), topic);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Topic> {
        let topic = self.by_name.remove(name)?;
        self.by_id.remove(&topic.id);
        Some(topic)
    }
}

impl Partition {
    pub(crate) fn isr(&self, is_up: impl Fn(i32) -> bool) -> Vec<i32> {
        self.replicas.iter().copied().filter(|&replica| is_up(replica)).collect()
    }
}

/// What a new topic is to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewTopic<'a> {
    pub(crate) name: &'a str,
    /// −1 takes the broker's default.
    pub(crate) partitions: i32,
    /// −1 takes the broker's default.
    pub(crate) replication_factor: i16,
    /// Replicas per partition; empty lets the cluster place them.
    pub(crate) assignments: BTreeMap<i32, Vec<i32>>,
    pub(crate) configs: BTreeMap<String, String>,
}

impl ClusterState {
    /// Checks a new topic as the controller does and gives its replicas per partition.
    pub(super) fn plan_topic(&mut self, new: &NewTopic<'_>) -> Result<Vec<Vec<i32>>, Refusal> {
        check_name(new.name)?;
        if self.topics.get(new.name).is_some() {
            return Err((ResponseError::TopicAlreadyExists, format!("Topic '{}' already exists.", new.name)));
        }
        if let Some((other, _)) = self.topics.iter().find(|(other, _)| collides(other, new.name)) {
            return Err((
                ResponseError::InvalidTopicException,
                format!("Topic '{}' collides with existing topic: {other}", new.name),
            ));
        }
        for (key, value) in &new.configs {
            super::configs::check(key, value).map_err(|words| (ResponseError::InvalidConfig, words))?;
        }
        if !new.assignments.is_empty() {
            return self.check_assignments(new);
        }
        let partitions = match new.partitions {
            -1 => i32::try_from(self.settings.partitions).unwrap_or(PARTITIONS_MAX),
            count => count,
        };
        if !(1..=PARTITIONS_MAX).contains(&partitions) {
            return Err((
                ResponseError::InvalidPartitions,
                "Number of partitions was set to an invalid non-positive value.".to_owned(),
            ));
        }
        let factor = match new.replication_factor {
            -1 => self.settings.replication_factor as i16,
            factor => factor,
        };
        self.place(0, partitions, factor)
    }

    fn check_assignments(&self, new: &NewTopic<'_>) -> Result<Vec<Vec<i32>>, Refusal> {
        let refuse = |words: &str| Err((ResponseError::InvalidReplicaAssignment, words.to_owned()));
        if new.partitions != -1 || new.replication_factor != -1 {
            return Err((
                ResponseError::InvalidRequest,
                "A manual partition assignment was specified, but numPartitions or replicationFactor was not set to -1."
                    .to_owned(),
            ));
        }
        if !new.assignments.keys().copied().eq(0..new.assignments.len() as i32) {
            return refuse("partitions should be a consecutive 0-based integer sequence");
        }
        for replicas in new.assignments.values() {
            let mut sorted = replicas.clone();
            sorted.sort_unstable();
            sorted.dedup();
            if replicas.is_empty() || sorted.len() != replicas.len() {
                return refuse(
                    "The manual partition assignment includes an empty or duplicate replica list.",
                );
            }
            if !sorted.iter().all(|id| self.brokers.contains_key(id)) {
                return refuse("The manual partition assignment includes a broker that is not registered.");
            }
        }
        Ok(new.assignments.values().cloned().collect())
    }

    /// Replicas for `count` partitions from index `first` on: round robin over the brokers that are up.
    pub(super) fn place(&self, first: usize, count: i32, factor: i16) -> Result<Vec<Vec<i32>>, Refusal> {
        let up: Vec<i32> =
            self.brokers.iter().filter(|(_, broker)| broker.is_up).map(|(&id, _)| id).collect();
        let factor = usize::try_from(factor).unwrap_or_default();
        if factor == 0 {
            return Err((
                ResponseError::InvalidReplicationFactor,
                "Replication factor must be larger than 0.".to_owned(),
            ));
        }
        if factor > up.len() {
            return Err((
                ResponseError::InvalidReplicationFactor,
                format!(
                    "Unable to replicate the partition {factor} time(s): The target replication factor of {factor} \
                     cannot be reached because only {} broker(s) are registered.",
                    up.len()
                ),
            ));
        }
        let count = usize::try_from(count).unwrap_or_default();
        let replicas = |at: usize| (0..factor).map(|nth| up[(at + nth) % up.len()]).collect();
        Ok((first..first + count).map(replicas).collect())
    }

    /// Makes a topic that was planned; gives its id.
    pub(super) fn make_topic(&mut self, new: &NewTopic<'_>, placement: Vec<Vec<i32>>) -> Uuid {
        let id = self.random.uuid();
        let topic = Topic { id, configs: TopicConfigs { set: new.configs.clone() }, partitions: Vec::new() };
        self.topics.insert(new.name, topic);
        self.add_partitions(new.name, placement);
        id
    }

    /// Adds partitions with these replicas to a topic.
    pub(super) fn add_partitions(&mut self, name: &str, placement: Vec<Vec<i32>>) {
        let settings = self.log_settings(name);
        let brokers = &self.brokers;
        let Some(topic) = self.topics.get_mut(name) else { return };
        for replicas in placement {
            let index = topic.partitions.len();
            let up = |id: &&i32| brokers.get(id).is_some_and(|broker| broker.is_up);
            let mut log = PartitionLog::new(format!("{name}-{index}"), settings.clone());
            log.start_epoch(0);
            topic.partitions.push(Partition {
                log,
                leader: replicas.iter().find(up).copied(),
                leader_epoch: 0,
                replicas,
            });
        }
    }

    /// Deletes a topic with its records; committed offsets of it go, too.
    pub(super) fn remove_topic(&mut self, name: &str) -> bool {
        let Some(topic) = self.topics.remove(name) else { return false };
        self.groups.forget_topic(name);
        self.wake_fetches_of(name, 0..topic.partitions.len() as i32);
        true
    }
}

/// `Topic.validate`.
pub(super) fn check_name(name: &str) -> Result<(), Refusal> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let words = if name.is_empty() {
        "the empty string is not allowed".to_owned()
    } else if name == "." || name == ".." {
        "'.' or '..' is not allowed".to_owned()
    } else if name.len() > NAME_BYTES_MAX {
        format!("the length of '{name}' is longer than the max allowed length {NAME_BYTES_MAX}")
    } else if !name.bytes().all(is_legal) {
        format!("'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")
    } else {
        return Ok(());
    };
    Err((ResponseError::InvalidTopicException, format!("Topic name is invalid: {words}")))
}

/// Names that differ only in `.` and `_` share their metrics, so the controller refuses the second (`Topic.hasCollision`).
fn collides(a: &str, b: &str) -> bool {
    a.len() == b.len()
        && a.bytes()
            .zip(b.bytes())
            .all(|(a, b)| a == b || (matches!(a, b'.' | b'_') && matches!(b, b'.' | b'_')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_as_kafka_does() {
        for name in ["", ".", "..", "a b", "ä", &"x".repeat(250)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in ["a", "a.b", "A_-9", &"x".repeat(249)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        assert!(collides("a.b_c", "a_b.c") && !collides("a.b", "a-b"));
    }
}

//! The partitions that a fetch lane has been given, found by their key, or by topic and index as a response names them.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::walker::TopicName;
use crate::client::{FetchPartition, PartitionKey};

/// `max.partition.fetch.bytes` in units of the largest batch: below, much of the wire is cut batches that come again.
const LARGEST_BATCHES: usize = 8;
/// The most that is asked of one partition.
const PARTITION_BYTES_MAX: usize = 1 << 30;

/// A partition in a lane's table.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) added: FetchPartition,
    /// Place of its topic.
    pub(super) topic: TopicPlace,
    /// The next offset wanted.
    pub(super) fetch_offset: i64,
    /// Leader epoch of the last batch that came, -1 for none.
    pub(super) last_fetched_epoch: i32,
    /// Who knows of it.
    pub(super) known: Known,
    /// Differs from what the broker's session knows.
    pub(super) changed: bool,
    /// High watermark, last stable offset and log start offset that the flow was told last.
    pub(super) told: Option<(i64, i64, i64)>,
    largest_batch_bytes: usize,
    max_bytes: usize,
}

impl Partition {
    /// What the next request asks of it.
    pub(super) fn max_bytes(&self) -> i32 {
        self.max_bytes.min(PARTITION_BYTES_MAX) as i32
    }

    /// A batch of this size was seen, whole or cut. Tells whether more must be asked for from now on.
    pub(super) fn saw_batch(&mut self, size_bytes: usize) -> bool {
        if size_bytes <= self.largest_batch_bytes {
            return false;
        }
        self.largest_batch_bytes = size_bytes;
        let wanted = size_bytes.saturating_mul(LARGEST_BATCHES);
        let before = self.max_bytes();
        self.max_bytes = self.max_bytes.max(wanted);
        self.max_bytes() > before
    }

    /// Only a part of a batch came, of which not even the size is known. Tells as [`Partition::saw_batch`] does.
    pub(super) fn saw_too_little(&mut self) -> bool {
        let before = self.max_bytes();
        self.max_bytes = self.max_bytes.saturating_mul(2);
        self.max_bytes() > before
    }
}

/// Who knows of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Only this table.
    Here,
    /// The broker's session still has an earlier `Add` of it: what comes is not of this one.
    AtBroker,
    /// It was in a request since it was added.
    Sent,
}

/// A topic's place in the table; never used again for another topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TopicPlace(u64);

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    pub(super) id: Uuid,
    partitions: BTreeMap<i32, PartitionKey>,
}

/// All partitions of a lane.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    by_key: BTreeMap<PartitionKey, Partition>,
    topics: BTreeMap<TopicPlace, Topic>,
    by_id: BTreeMap<Uuid, TopicPlace>,
    by_name: BTreeMap<Arc<str>, TopicPlace>,
    places: u64,
    without_id: usize,
}

impl Partitions {
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Whether every topic can be named by its id.
    pub(super) fn have_ids(&self) -> bool {
        self.without_id == 0
    }

    /// Takes a partition in; an earlier one of the same key must have been removed.
    pub(super) fn insert(&mut self, added: FetchPartition, max_bytes: usize, known: Known) {
        let place = self.place_of(&added);
        self.without_id += usize::from(added.topic_id.is_nil());
        if let Some(topic) = self.topics.get_mut(&place) {
            topic.partitions.insert(added.partition, added.key);
        }
        let partition = Partition {
            topic: place,
            fetch_offset: added.fetch_offset,
            last_fetched_epoch: added.last_fetched_epoch,
            known,
            changed: true,
            told: None,
            largest_batch_bytes: 0,
            max_bytes,
            added,
        };
        self.by_key.insert(partition.added.key, partition);
    }

    fn place_of(&mut self, added: &FetchPartition) -> TopicPlace {
        let known = match added.topic_id.is_nil() {
            true => self.by_name.get(&added.topic),
            false => self.by_id.get(&added.topic_id),
        };
        let same = |place: &TopicPlace| {
            self.topics
                .get(place)
                .is_some_and(|topic| topic.id == added.topic_id && topic.name == added.topic)
        };
        if let Some(&place) = known.filter(|place| same(place)) {
            return place;
        }
        let place = TopicPlace(self.places);
        self.places += 1;
        let topic = Topic { name: added.topic.clone(), id: added.topic_id, partitions: BTreeMap::new() };
        self.topics.insert(place, topic);
        // A topic that was created anew takes its name over.
        self.by_name.insert(added.topic.clone(), place);
        if !added.topic_id.is_nil() {
            self.by_id.insert(added.topic_id, place);
        }
        place
    }

    pub(super) fn remove(&mut self, key: PartitionKey) -> Option<(Partition, Arc<str>, Uuid)> {
        let partition = self.by_key.remove(&key)?;
        self.without_id -= usize::from(partition.added.topic_id.is_nil());
        let (name, id) = (partition.added.topic.clone(), partition.added.topic_id);
        if let Some(topic) = self.topics.get_mut(&partition.topic) {
            if topic.partitions.get(&partition.added.partition) == Some(&key) {
                topic.partitions.remove(&partition.added.partition);
            }
            if topic.partitions.is_empty() {
                self.topics.remove(&partition.topic);
                forget_place(&mut self.by_name, &name, partition.topic);
                forget_place(&mut self.by_id, &id, partition.topic);
            }
        }
        Some((partition, name, id))
    }

    pub(super) fn get_mut(&mut self, key: PartitionKey) -> Option<&mut Partition> {
        self.by_key.get_mut(&key)
    }

    pub(super) fn get(&self, key: PartitionKey) -> Option<&Partition> {
        self.by_key.get(&key)
    }

    /// All of them, by topic and index.
    pub(super) fn by_topic(&self) -> impl Iterator<Item = (&Topic, impl Iterator<Item = &Partition>)> {
        self.topics
            .values()
            .map(|topic| (topic, topic.partitions.values().filter_map(|key| self.by_key.get(key))))
    }

    pub(super) fn topic(&self, place: TopicPlace) -> Option<&Topic> {
        self.topics.get(&place)
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.by_key.values_mut()
    }

    /// The topic that a response names.
    pub(super) fn find_topic(&self, name: &TopicName) -> Option<TopicPlace> {
        match name {
            TopicName::Name(name) => self.by_name.get(name.as_str()).copied(),
            TopicName::Id(id) => self.by_id.get(id).copied(),
        }
    }

    /// The partition that a response names.
    pub(super) fn find(&self, topic: TopicPlace, partition: i32) -> Option<PartitionKey> {
        self.topics.get(&topic)?.partitions.get(&partition).copied()
    }
}

fn forget_place<K: Ord + ?Sized, Q>(places: &mut BTreeMap<Q, TopicPlace>, name: &K, place: TopicPlace)
where
    Q: Ord + std::borrow::Borrow<K>,
{
    if places.get(name) == Some(&place) {
        places.remove(name);
    }
}

//! The session against a model of the broker's side: after each request, what the broker would fetch is what the lane wants.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::messages::FetchRequest;
use proptest::prelude::*;
use uuid::Uuid;

use super::session::*;
use super::walker::{FetchHead, PartitionEnd, PartitionHead, TopicName};
use crate::client::{FetchEvent, FetchPartition, FetchSettings, FetchedBatch, PartitionKey};
use crate::record::Magic;

/// `FetchSession.scala`, as far as a request changes it.
#[derive(Debug, Default)]
struct ModelBroker {
    sessions_made: i32,
    id: i32,
    epoch: i32,
    /// (topic, partition) → fetch offset.
    partitions: BTreeMap<(TopicRef, i32), i64>,
    keeps_sessions: bool,
}

type TopicRef = (Uuid, String);

impl ModelBroker {
    /// Serves a request; gives the session id of the answer, or the error code.
    fn serve(&mut self, request: &FetchRequest, version: i16) -> Result<i32, i16> {
        let topics = request.topics.iter().flat_map(|topic| {
            let name = (topic.topic_id, topic.topic.to_string());
            topic.partitions.iter().map(move |p| ((name.clone(), p.partition), p.fetch_offset))
        });
        if version < 7 || request.session_epoch <= 0 {
            self.partitions = topics.collect();
            assert!(request.forgotten_topics_data.is_empty());
            if version < 7 || !self.keeps_sessions {
                return Ok(0);
            }
            self.sessions_made += 1;
            (self.id, self.epoch) = (self.sessions_made, 1);
            return Ok(self.id);
        }
        if request.session_id != self.id {
            return Err(70);
        }
        if request.session_epoch != self.epoch {
            return Err(71);
        }
        self.epoch += 1;
        self.partitions.extend(topics);
        for topic in &request.forgotten_topics_data {
            for &partition in &topic.partitions {
                self.partitions.remove(&((topic.topic_id, topic.topic.to_string()), partition));
            }
        }
        Ok(self.id)
    }
}

#[derive(Clone, Debug)]
enum Action {
    Add {
        key: u32,
        partition: i32,
        offset: i64,
    },
    Remove(u32),
    /// A fetch whose answer brings one batch for each partition whose key has its bit set.
    Fetch {
        brings: u8,
        fails: u8,
    },
    /// A fetch whose answer is lost after the broker counted it.
    Lost,
    /// The broker forgets the session.
    Evicted,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..6_u32, 0..6_i32, 0..1_000_i64).prop_map(|(key, partition, offset)| Action::Add { key, partition, offset }),
        2 => (0..6_u32).prop_map(Action::Remove),
        6 => (any::<u8>(), any::<u8>()).prop_map(|(brings, fails)| Action::Fetch { brings, fails: fails & brings }),
        1 => Just(Action::Lost),
        1 => Just(Action::Evicted),
    ]
}

/// The world of a test: the session, the model, and what the lane must want.
struct World {
    session: FetchSession,
    broker: ModelBroker,
    version: i16,
    with_ids: bool,
    /// key → (partition, offset).
    wanted: BTreeMap<u32, (i32, i64)>,
}

impl World {
    fn name(&self, partition: i32) -> (Arc<str>, Uuid) {
        let topic = partition % 2;
        let id = if self.with_ids { Uuid::from_u128(topic as u128 + 1) } else { Uuid::nil() };
        (Arc::from(format!("topic-{topic}")), id)
    }

    fn act(&mut self, action: &Action) {
        match *action {
            Action::Add { key, partition, offset } => {
                // Two keys for one partition is nothing that a flow does.
                if self.wanted.iter().any(|(&other, &(taken, _))| taken == partition && other != key) {
                    return;
                }
                self.wanted.insert(key, (partition, offset));
                let (topic, topic_id) = self.name(partition);
                self.session.add(FetchPartition {
                    key: PartitionKey(key),
                    generation: 0,
                    topic,
                    topic_id,
                    partition,
                    fetch_offset: offset,
                    current_leader_epoch: -1,
                    last_fetched_epoch: -1,
                });
            }
            Action::Remove(key) => {
                self.wanted.remove(&key);
                self.session.remove(PartitionKey(key));
            }
            Action::Fetch { brings, fails } => self.fetch(brings, fails),
            Action::Lost => {
                if let Some((request, version)) = self.session.request(self.version, Patience::Full) {
                    let _ = self.broker.serve(&request, version);
                }
                self.session.disconnected();
            }
            Action::Evicted => self.broker.id = -1,
        }
    }

    fn fetch(&mut self, brings: u8, fails: u8) {
        let Some((request, version)) = self.session.request(self.version, Patience::Full) else {
            return assert!(self.wanted.is_empty());
        };
        let answer = self.broker.serve(&request, version);
        let head = FetchHead {
            correlation_id: 0,
            throttle: std::time::Duration::ZERO,
            error_code: answer.err().unwrap_or(0),
            session_id: answer.unwrap_or(0),
        };
        let verdict = self.session.head(&head);
        if answer.is_err() {
            assert_eq!(verdict, HeadVerdict::Proceed);
            // The next fetch is full and repairs it.
            return self.fetch(brings, fails);
        }
        self.check();
        self.answer(version, brings, fails);
    }

    fn check(&self) {
        let have: BTreeMap<i32, i64> =
            self.broker.partitions.iter().map(|((_, partition), &offset)| (*partition, offset)).collect();
        assert_eq!(have.len(), self.broker.partitions.len(), "{:?}", self.broker.partitions);
        assert_eq!(have, self.wanted.values().copied().collect());
    }

    fn answer(&mut self, version: i16, brings: u8, fails: u8) {
        let mut events = Vec::new();
        let wanted: Vec<_> = self.wanted.iter().map(|(&key, &place)| (key, place)).collect();
        for (key, (partition, offset)) in wanted {
            let bit = |mask: u8| mask >> key & 1 == 1;
            if !bit(brings) {
                continue;
            }
            let (name, id) = self.name(partition);
            self.session.topic(&match version {
                13.. => TopicName::Id(id),
                _ => TopicName::Name(name.to_string()),
            });
            let error_code = if bit(fails) { 6 } else { 0 };
            let head =
                PartitionHead { partition, error_code, high_watermark: offset, ..PartitionHead::default() };
            let records = self.session.partition(head, &mut events);
            if bit(fails) {
                assert_eq!(records, Records::Skip);
                self.wanted.remove(&key);
            } else {
                let mut bytes = vec![0; 61];
                bytes[..8].copy_from_slice(&offset.to_be_bytes());
                bytes[8..12].copy_from_slice(&49_i32.to_be_bytes());
                bytes[16] = 2;
                assert_eq!(
                    self.session.batch(FetchedBatch { bytes: bytes.into(), magic: Magic::V2 }),
                    Records::Keep
                );
                self.wanted.insert(key, (partition, offset + 1));
            }
            self.session.partition_end(PartitionEnd::default(), &mut events);
            match events.pop() {
                Some(FetchEvent::Fetched(fetched)) => assert_eq!(fetched.key, PartitionKey(key)),
                Some(FetchEvent::Failed { key: failed, .. }) => assert_eq!(failed, PartitionKey(key)),
                other => panic!("{other:?}"),
            }
        }
    }
}

proptest! {
    #[test]
    fn the_broker_always_fetches_what_is_wanted(
        actions in prop::collection::vec(action(), 1..60),
        version in 4_i16..=17,
        with_ids: bool,
        keeps_sessions: bool,
    ) {
        let mut world = World {
            session: FetchSession::new(FetchSettings::default()),
            broker: ModelBroker { keeps_sessions, ..ModelBroker::default() },
            version,
            with_ids,
            wanted: BTreeMap::new(),
        };
        for action in &actions {
            world.act(action);
        }
        world.fetch(0, 0);
    }
}

fn batch(magic: Magic, offset: i64) -> FetchedBatch {
    let mut bytes = vec![0; 61];
    bytes[..8].copy_from_slice(&offset.to_be_bytes());
    bytes[8..12].copy_from_slice(&49_i32.to_be_bytes());
    bytes[16] = if magic == Magic::V2 { 2 } else { 1 };
    FetchedBatch { bytes: bytes.into(), magic }
}

/// A session that is reading partition 0, which wants offset 10.
fn reading() -> (FetchSession, Vec<FetchEvent>) {
    let mut session = FetchSession::new(FetchSettings::default());
    session.add(FetchPartition {
        key: PartitionKey(0),
        generation: 0,
        topic: Arc::from("t"),
        topic_id: Uuid::nil(),
        partition: 0,
        fetch_offset: 10,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
    });
    session.request(17, Patience::Full).unwrap();
    session.topic(&TopicName::Name("t".to_owned()));
    let mut events = Vec::new();
    assert_eq!(session.partition(PartitionHead::default(), &mut events), Records::Keep);
    (session, events)
}

fn next_offset(session: &mut FetchSession) -> i64 {
    session.disconnected();
    session.request(17, Patience::Full).unwrap().0.topics[0].partitions[0].fetch_offset
}

/// Case 21: a broker that knows a rack sends the reader elsewhere, with no records.
#[test]
fn only_leaders_are_read_from() {
    let mut session = reading().0;
    for version in [11, 12, 17] {
        session.disconnected();
        let (request, _) = session.request(version, Patience::Full).unwrap();
        assert_eq!((request.rack_id.as_str(), request.replica_id.0), ("", -1));
    }
}

#[test]
fn entries_before_the_wanted_offset_are_left_out() {
    for magic in [Magic::V0, Magic::V1, Magic::V2] {
        let (mut session, mut events) = reading();
        for offset in [8, 9, 10, 10, 14] {
            assert_eq!(session.batch(batch(magic, offset)), Records::Keep);
        }
        session.partition_end(PartitionEnd::default(), &mut events);
        match &events[..] {
            [FetchEvent::Fetched(fetched)] => assert_eq!(fetched.batches.len(), 2),
            other => panic!("{other:?}"),
        }
        assert_eq!(next_offset(&mut session), 15);
    }
}

#[test]
fn offsets_that_no_log_has_are_damage() {
    for (magic, offset) in [(Magic::V1, -1), (Magic::V1, i64::MAX), (Magic::V2, -5), (Magic::V2, i64::MAX)] {
        let (mut session, mut events) = reading();
        assert_eq!(session.batch(batch(magic, 10)), Records::Keep);
        assert_eq!(session.batch(batch(magic, offset)), Records::Skip);
        session.partition_end(PartitionEnd::default(), &mut events);
        match &events[..] {
            [FetchEvent::Fetched(fetched), FetchEvent::Damaged { offset: 11, .. }] => {
                assert_eq!(fetched.batches.len(), 1);
            }
            other => panic!("{other:?}"),
        }
        assert!(session.is_empty());
    }
}

#[test]
fn watermarks_are_told_when_they_move() {
    let (mut session, mut events) = reading();
    session.partition_end(PartitionEnd::default(), &mut events);
    assert_eq!(events.len(), 1, "the first ones");
    for (high_watermark, told) in [(0, false), (5, true), (5, false)] {
        events.clear();
        let head = PartitionHead { high_watermark, ..PartitionHead::default() };
        session.partition(head, &mut events);
        session.partition_end(PartitionEnd::default(), &mut events);
        assert_eq!(!events.is_empty(), told, "{high_watermark}");
    }
}

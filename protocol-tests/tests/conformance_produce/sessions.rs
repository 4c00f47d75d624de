//! Random Fetches of several partitions, in and out of sessions (KIP-227), to a real broker and to the embedded one: the same
//! partitions must be answered, in the same order, with the same bytes.

use std::fmt::Write;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::{BrokerId, FetchRequest, FetchResponse};
use kmirror::record::BatchHeader;
use uuid::Uuid;

use crate::batches::Batch;
use crate::random::Random;
use crate::wire::{Connection, name};

const STEPS: usize = 80;
const TOPICS: usize = 3;
const PARTITIONS: usize = 2;
/// From this version on topics come by id.
const TOPIC_ID_VERSION: i16 = 13;

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const UNKNOWN_TOPIC_ID: i16 = 100;

type Place = (usize, i32);

/// A request, the same for both sides; sessions by what they are to each side.
#[derive(Clone, Debug)]
enum Step {
    Produce(Place, Box<Batch>),
    DeleteRecords(Place, i64),
    Fetch {
        session: Session,
        version: i16,
        bytes_max: i32,
        asked: Vec<(Place, i64, i32)>,
        forgotten: Vec<Place>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    None,
    Open,
    Next,
    WrongEpoch,
    Unknown,
    Close,
}

struct Side {
    connection: Connection,
    topics: Vec<(String, Uuid)>,
    session: (i32, i32),
}

impl Side {
    fn open(bootstrap: &str, prefix: &str) -> Side {
        let mut connection = Connection::open(bootstrap);
        let topics = (0..TOPICS).map(|n| {
            let topic = format!("{prefix}-{n}");
            let id = connection.create_topic_of(&topic, PARTITIONS as i32, &[]);
            (topic, id)
        });
        Side { topics: topics.collect(), connection, session: (0, 0) }
    }

    /// The topic of this number; those that nobody created have a name and an id all the same.
    fn topic(&self, number: usize) -> (String, Uuid) {
        self.topics.get(number).cloned().unwrap_or_else(|| ("unknown".to_owned(), Uuid::from_u128(77)))
    }

    fn run(&mut self, step: &Step) -> String {
        match step {
            Step::Produce(place, batch) => {
                let (topic, _) = self.topic(place.0);
                format!("{:?}", self.connection.produce_to(&topic, place.1, &batch.bytes()))
            }
            Step::DeleteRecords(place, before) => {
                let (topic, _) = self.topic(place.0);
                format!("{:?}", self.connection.delete_records_of(&topic, place.1, *before))
            }
            Step::Fetch { session, version, bytes_max, asked, forgotten } => {
                let (id, epoch) = match session {
                    Session::None => (0, -1),
                    Session::Open => (self.session.0, 0),
                    Session::Next => self.session,
                    Session::WrongEpoch => (self.session.0, self.session.1 + 3),
                    Session::Unknown => (12_345, 1),
                    Session::Close => (self.session.0, -1),
                };
                let mut request = FetchRequest::default()
                    .with_replica_id(BrokerId(-1))
                    .with_max_wait_ms(0)
                    .with_max_bytes(*bytes_max)
                    .with_session_id(id)
                    .with_session_epoch(epoch);
                request.topics = asked.iter().map(|ask| self.asked(*version, ask)).collect();
                request.forgotten_topics_data =
                    forgotten.iter().map(|place| self.forgotten(*version, *place)).collect();
                let reply = self.connection.call(*version, &request);
                self.remember(*session, &reply);
                self.shape(*version, &reply)
            }
        }
    }

    fn asked(
        &self,
        version: i16,
        &((number, partition), offset, bytes_max): &(Place, i64, i32),
    ) -> FetchTopic {
        let partition = FetchPartition::default()
            .with_partition(partition)
            .with_current_leader_epoch(-1)
            .with_fetch_offset(offset)
            .with_partition_max_bytes(bytes_max);
        let (topic, id) = self.topic(number);
        let asked = FetchTopic::default().with_partitions(vec![partition]);
        if version >= TOPIC_ID_VERSION { asked.with_topic_id(id) } else { asked.with_topic(name(&topic)) }
    }

    fn forgotten(&self, version: i16, (number, partition): Place) -> ForgottenTopic {
        let (topic, id) = self.topic(number);
        let forgotten = ForgottenTopic::default().with_partitions(vec![partition]);
        if version >= TOPIC_ID_VERSION {
            forgotten.with_topic_id(id)
        } else {
            forgotten.with_topic(name(&topic))
        }
    }

    fn remember(&mut self, session: Session, reply: &FetchResponse) {
        match session {
            Session::Open if reply.error_code == 0 => self.session = (reply.session_id, 1),
            Session::Next if reply.error_code == 0 => self.session.1 += 1,
            Session::Close => self.session = (0, 0),
            _ => {}
        }
    }

    fn shape(&self, version: i16, reply: &FetchResponse) -> String {
        let session = if reply.session_id == 0 { "none" } else { "some" };
        let mut text = format!("code {} session {session}", reply.error_code);
        let mut unknown = Vec::new();
        for topic in &reply.responses {
            let known = self.topics.iter().position(|(name, id)| match version {
                TOPIC_ID_VERSION.. => *id == topic.topic_id,
                _ => *name == topic.topic.0.as_str(),
            });
            for partition in &topic.partitions {
                let line = format!(
                    "\n  {known:?}-{} code {} high watermark {} stable {} start {} aborted {:?} {}",
                    partition.partition_index,
                    partition.error_code,
                    partition.high_watermark,
                    partition.last_stable_offset,
                    partition.log_start_offset,
                    partition.aborted_transactions,
                    sizes(partition.records.clone()),
                );
                match partition.error_code {
                    UNKNOWN_TOPIC_OR_PARTITION | UNKNOWN_TOPIC_ID => unknown.push(line),
                    _ if unknown.is_empty() => text.push_str(&line),
                    _ => text.push_str("\n  behind an unknown one"),
                }
            }
        }
        // Their order among themselves is that of a hash table.
        unknown.sort();
        text.extend(unknown);
        text
    }
}

/// Base offset and size of every batch, the last one maybe cut.
fn sizes(records: Option<Bytes>) -> String {
    let Some(mut rest) = records else { return "null".to_owned() };
    let mut text = String::new();
    while let Ok(header) = BatchHeader::parse(&rest) {
        if header.size_bytes > rest.len() {
            break;
        }
        let _ = write!(text, "[{} {}]", header.base_offset, header.size_bytes);
        let _ = rest.split_to(header.size_bytes);
    }
    format!("{text} {} bytes more", rest.len())
}

struct Script {
    random: Random,
    now_ms: i64,
    ends: Vec<i64>,
    in_session: Option<i16>,
}

impl Script {
    fn place(&mut self) -> Place {
        (self.random.below(TOPICS as u64) as usize, self.random.below(PARTITIONS as u64) as i32)
    }

    fn end(&mut self, place: Place) -> &mut i64 {
        &mut self.ends[place.0 * PARTITIONS + place.1 as usize]
    }

    fn next(&mut self) -> Step {
        let place = self.place();
        match self.random.below(20) {
            0..=5 => {
                let count = 1 + self.random.below(6) as i32;
                *self.end(place) += i64::from(count);
                Step::Produce(place, Box::new(Batch::of(count, self.now_ms)))
            }
            6 => {
                let end = *self.end(place) as u64;
                let before = self.random.below(end + 1) as i64;
                Step::DeleteRecords(place, before)
            }
            _ => self.fetch(),
        }
    }

    fn fetch(&mut self) -> Step {
        let session = match self.in_session {
            None => self.random.pick(&[Session::None, Session::Open, Session::Open, Session::Unknown]),
            Some(_) => match self.random.below(24) {
                0 => Session::None,
                1 => Session::Open,
                2 => Session::WrongEpoch,
                3 => Session::Unknown,
                4 => Session::Close,
                _ => Session::Next,
            },
        };
        let some = self.random.pick(&[5, 11, 12, 13, 15, 16, 17]);
        let some = if session == Session::None { some } else { some.max(11) };
        let version = match (session, self.in_session) {
            (Session::Next | Session::WrongEpoch | Session::Close, Some(version)) => version,
            _ => some,
        };
        let count = match session {
            Session::Next => self.random.below(3),
            _ => 1 + self.random.below(5),
        };
        let mut asked: Vec<(Place, i64, i32)> = Vec::new();
        for _ in 0..count {
            let place = if self.random.below(15) == 0 {
                (self.random.pick(&[0, TOPICS]), self.random.pick(&[0, 9]))
            } else {
                self.place()
            };
            if asked.iter().any(|ask| ask.0 == place) {
                continue;
            }
            let end = if place.0 < TOPICS && place.1 < 2 { *self.end(place) } else { 0 };
            let offset = self.random.pick(&[0, end, end / 2, end, (end - 1).max(0), end + 1]);
            asked.push((place, offset, self.random.pick(&[1, 150, 1_000, 1_000_000])));
        }
        let forgets = session == Session::Next && self.random.below(6) == 0;
        let forgotten = if forgets { vec![self.place()] } else { Vec::new() };
        let forgotten =
            forgotten.into_iter().filter(|place| asked.iter().all(|ask| ask.0 != *place)).collect();
        let bytes_max = self.random.pick(&[1, 200, 600, 1_000_000, 1_000_000]);
        Step::Fetch { session, version, bytes_max, asked, forgotten }
    }

    fn learn(&mut self, step: &Step, answer: &str) {
        if let Step::Fetch { session, version, .. } = step {
            match session {
                Session::Open if answer.starts_with("code 0 session some") => {
                    self.in_session = Some(*version)
                }
                Session::Open | Session::Close => self.in_session = None,
                Session::Next if answer.starts_with("code 0 session none") => self.in_session = None,
                _ => {}
            }
        }
    }
}

/// Runs one seed against both; the message of a difference holds the way to it.
pub(crate) fn check(real: &str, embedded: &str, seed: u64, now_ms: i64) -> Result<(), String> {
    let prefix = format!("sessions-{seed}-{now_ms}");
    let (mut real, mut embedded) = (Side::open(real, &prefix), Side::open(embedded, &prefix));
    let ends = vec![0; TOPICS * PARTITIONS];
    let mut script = Script { random: Random::new(seed), now_ms, ends, in_session: None };
    let mut way = Vec::new();
    for _ in 0..STEPS {
        let step = script.next();
        let (wanted, answer) = (real.run(&step), embedded.run(&step));
        let brief = match &step {
            Step::Produce(place, batch) => format!("Produce {place:?} {} records", batch.records.len()),
            other => format!("{other:?}"),
        };
        way.push(format!("{brief}\n    -> {wanted}"));
        if wanted != answer {
            let way = way.iter().rev().take(12).rev().cloned().collect::<Vec<_>>().join("\n");
            return Err(format!("seed {seed}:\n{way}\nreal {wanted}\nembedded {answer}"));
        }
        script.learn(&step, &answer);
    }
    Ok(())
}

//! The same random requests to a real broker and to the embedded one: every answer must be the same. What is fetched, listed
//! and described depends on all that was written before, so a difference anywhere shows soon.

use bytes::Bytes;
use kmirror::record::{BatchHeader, Codec, crc32c};

use crate::batches::Batch;
use crate::wire::Connection;

const STEPS: usize = 120;
/// Data lies well before the times of markers, which are each broker's own.
const DATA_AGE_MS: i64 = 3_600_000;

/// Small and repeatable (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A request, the same for both sides.
#[derive(Clone, Debug)]
enum Step {
    Produce(Box<Batch>),
    /// A batch of a transactional producer, with its epoch and this first sequence.
    Transactional {
        producer: usize,
        batch: Box<Batch>,
        adds: bool,
        transactional: bool,
    },
    End {
        producer: usize,
        committed: bool,
    },
    Fetch {
        offset: i64,
        bytes_max: i32,
        isolation: i8,
    },
    ListOffset {
        timestamp: i64,
        isolation: i8,
    },
    EndOffsetForEpoch(i32),
    DeleteRecords(i64),
    Producers,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let brief =
            |batch: &Batch| format!("{} records {:?} {:?}", batch.records.len(), batch.codec, batch.identity);
        match self {
            Step::Produce(batch) => write!(f, "Produce {}", brief(batch)),
            Step::Transactional { producer, batch, adds, transactional } => {
                let batch = brief(batch);
                write!(f, "Transactional T{producer} {batch}, adds {adds}, transactional {transactional}")
            }
            other => write!(f, "{other:?}"),
        }
    }
}

/// Producers 0 and 1 speak transactions of version 1, the last one of version 2.
const TRANSACTIONAL: usize = 3;

fn speaks_v2(producer: usize) -> bool {
    producer + 1 == TRANSACTIONAL
}

struct Side {
    connection: Connection,
    topic: String,
    identities: Vec<(i64, i16)>,
    now_ms: i64,
}

impl Side {
    fn open(bootstrap: &str, topic: &str, now_ms: i64) -> Side {
        let mut connection = Connection::open(bootstrap);
        connection.create_topic(topic, &[]);
        let ids = (0..TRANSACTIONAL).map(|n| format!("{topic}-{n}"));
        let identities = ids.map(|id| connection.init_producer_id(&id)).collect();
        Side { connection, topic: topic.to_owned(), identities, now_ms }
    }

    /// A producer's name that is the same on both sides.
    fn known(&self, producer_id: i64) -> String {
        match self.identities.iter().position(|identity| identity.0 == producer_id) {
            Some(at) => format!("T{at}"),
            None => producer_id.to_string(),
        }
    }

    fn time(&self, timestamp: i64) -> String {
        if timestamp > self.now_ms - DATA_AGE_MS / 2 { "marker".to_owned() } else { timestamp.to_string() }
    }

    fn run(&mut self, step: &Step) -> String {
        let topic = self.topic.clone();
        match step {
            Step::Produce(batch) => format!("{:?}", self.connection.produce(&topic, None, &batch.bytes())),
            Step::Transactional { producer, batch, adds, transactional } => {
                self.transactional(*producer, batch, *adds, *transactional)
            }
            Step::End { producer, committed } => {
                let version = if speaks_v2(*producer) { 5 } else { 4 };
                let (id, identity) = (format!("{topic}-{producer}"), self.identities[*producer]);
                let (code, epoch) = self.connection.end_transaction(version, &id, identity, *committed);
                if code == 0 {
                    self.identities[*producer].1 = epoch;
                }
                format!("{code} epoch {epoch}")
            }
            Step::Fetch { offset, bytes_max, isolation } => self.fetch(*offset, *bytes_max, *isolation),
            Step::ListOffset { timestamp, isolation } => {
                let (code, time, offset, epoch) = self.connection.list_offset(&topic, *timestamp, *isolation);
                format!("{code} offset {offset} at {} epoch {epoch}", self.time(time))
            }
            Step::EndOffsetForEpoch(epoch) => {
                format!("{:?}", self.connection.end_offset_for_epoch(&topic, *epoch))
            }
            Step::DeleteRecords(before) => format!("{:?}", self.connection.delete_records(&topic, *before)),
            Step::Producers => {
                let producers = self.connection.producers(&topic);
                let shown = producers.iter().map(|producer| {
                    format!(
                        "{} epoch {} sequence {} time {} coordinator {} start {}",
                        self.known(producer.producer_id.0),
                        producer.producer_epoch,
                        producer.last_sequence,
                        self.time(producer.last_timestamp),
                        producer.coordinator_epoch,
                        producer.current_txn_start_offset,
                    )
                });
                let mut shown: Vec<String> = shown.collect();
                shown.sort();
                format!("{shown:#?}")
            }
        }
    }

    fn transactional(&mut self, producer: usize, batch: &Batch, adds: bool, transactional: bool) -> String {
        let (topic, (id, epoch)) = (self.topic.clone(), self.identities[producer]);
        let transactional_id = format!("{topic}-{producer}");
        let added = if adds && !speaks_v2(producer) {
            self.connection.add_partition(&transactional_id, (id, epoch), &topic)
        } else {
            0
        };
        let sequence = batch.identity.2;
        let mut batch = batch.clone().by(id, epoch, sequence);
        if transactional {
            batch.attributes |= 0x10;
        }
        let version = [9, 11, 12][producer];
        let with_id = transactional.then_some(transactional_id.as_str());
        let answer = self.connection.produce_version(version, &topic, with_id, &batch.bytes());
        format!("added {added}, {answer:?}")
    }

    fn fetch(&mut self, offset: i64, bytes_max: i32, isolation: i8) -> String {
        let topic = self.topic.clone();
        let found = self.connection.fetch(&topic, offset, bytes_max, isolation);
        let aborted = found.aborted_transactions.unwrap_or_default();
        let mut aborted: Vec<(i64, String)> =
            aborted.iter().map(|aborted| (aborted.first_offset, self.known(aborted.producer_id.0))).collect();
        aborted.sort();
        format!(
            "{} high watermark {} stable {} start {} aborted {aborted:?} {:#?}",
            found.error_code,
            found.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            self.shape(found.records.unwrap_or_default()),
        )
    }

    /// Whole batches, without what each broker chooses itself, and the bytes of a cut one.
    fn shape(&self, records: Bytes) -> Vec<String> {
        let (mut rest, mut shapes) = (records, Vec::new());
        while let Ok(header) = BatchHeader::parse(&rest) {
            if header.size_bytes > rest.len() {
                break;
            }
            let batch = rest.split_to(header.size_bytes);
            let producer = self.known(header.producer_id);
            let body = if producer.starts_with('T') { &batch[61..] } else { &batch[12..] };
            let body = crc32c(body);
            shapes.push(format!(
                "{}..={} {} {} {} attributes {:#x} max {} body {body:x}",
                header.base_offset,
                header.last_offset(),
                producer,
                header.producer_epoch,
                header.base_sequence,
                header.attributes.0,
                self.time(header.max_timestamp),
            ));
        }
        shapes.push(format!("{} bytes more", rest.len()));
        shapes
    }
}

/// What the script must know to send sense as well as nonsense.
struct Script {
    random: Random,
    time: i64,
    /// Next sequences of the idempotent producers and of the transactional ones.
    sequences: Vec<i32>,
    end: i64,
    has_marker: bool,
}

const IDEMPOTENT: usize = 2;

impl Script {
    fn batch(&mut self) -> Batch {
        self.time += self.random.pick(&[1, 10, 100, -50]);
        let count = 1 + self.random.below(5) as i32;
        let mut batch = Batch::of(count, self.time);
        batch.codec = self.random.pick(&[
            Codec::None,
            Codec::None,
            Codec::Gzip,
            Codec::Snappy,
            Codec::Lz4,
            Codec::Zstd,
        ]);
        batch
    }

    /// A first sequence: mostly the next one, sometimes one that was before or will be later.
    fn sequence(&mut self, producer: usize) -> i32 {
        let next = self.sequences[producer];
        match self.random.below(10) {
            0 => (next - 1 - self.random.below(8) as i32).max(0),
            1 => next + 1 + self.random.below(3) as i32,
            _ => next,
        }
    }

    fn next(&mut self) -> Step {
        match self.random.below(24) {
            0..=2 => Step::Produce(Box::new(self.batch())),
            3..=6 => {
                let producer = self.random.below(IDEMPOTENT as u64) as usize;
                let epoch = if self.random.below(12) == 0 { 1 } else { 0 };
                let (sequence, batch) = (self.sequence(producer), self.batch());
                Step::Produce(Box::new(batch.by(90_000 + producer as i64, epoch, sequence)))
            }
            7..=11 => {
                let producer = self.random.below(TRANSACTIONAL as u64) as usize;
                let (sequence, batch) = (self.sequence(IDEMPOTENT + producer), self.batch());
                let batch = Box::new(batch.by(-1, -1, sequence));
                let adds = self.random.below(8) > 0;
                let transactional = self.random.below(10) > 0;
                Step::Transactional { producer, batch, adds, transactional }
            }
            12..=14 => {
                let producer = self.random.below(TRANSACTIONAL as u64) as usize;
                Step::End { producer, committed: self.random.below(2) == 0 }
            }
            15..=18 => Step::Fetch {
                offset: self.random.below(self.end as u64 + 3) as i64 - 1,
                bytes_max: self.random.pick(&[0, 1, 80, 150, 400, 1_000, 1_000_000]),
                isolation: self.random.below(2) as i8,
            },
            19..=20 => {
                let named: &[i64] = if self.has_marker { &[-1, -2, -4] } else { &[-1, -2, -3, -4] };
                let timed = self.time - self.random.below(400) as i64 + 100;
                let timestamp = if self.random.below(2) == 0 { self.random.pick(named) } else { timed };
                Step::ListOffset { timestamp, isolation: self.random.below(2) as i8 }
            }
            21 => Step::EndOffsetForEpoch(self.random.below(3) as i32 - 1),
            22 => match self.random.below(3) {
                0 => Step::DeleteRecords(self.random.below(self.end as u64 + 2) as i64 - 1),
                _ => Step::Producers,
            },
            _ => Step::Producers,
        }
    }

    /// Learns from the answer, which was the same on both sides.
    fn learn(&mut self, step: &Step, answer: &str) {
        let new_offset = answer
            .contains("code: 0,")
            .then(|| answer.split("base_offset: ").nth(1)?.split(',').next()?.parse::<i64>().ok())
            .flatten()
            .filter(|&offset| offset >= self.end);
        match (step, new_offset) {
            (Step::Produce(batch), Some(offset)) => {
                self.end = offset + batch.records.len() as i64;
                if batch.identity.0 >= 90_000 {
                    let producer = (batch.identity.0 - 90_000) as usize;
                    self.sequences[producer] = batch.identity.2 + batch.records.len() as i32;
                }
            }
            (Step::Transactional { producer, batch, .. }, Some(offset)) => {
                self.end = offset + batch.records.len() as i64;
                self.sequences[IDEMPOTENT + producer] = batch.identity.2 + batch.records.len() as i32;
            }
            (Step::End { producer, .. }, _) if answer.starts_with("0 ") => {
                self.has_marker = true;
                self.end += 1;
                if speaks_v2(*producer) {
                    self.sequences[IDEMPOTENT + producer] = 0;
                }
            }
            _ => {}
        }
    }
}

/// Runs one seed against both; the message of a difference holds the way to it.
pub(crate) fn check(real: &str, embedded: &str, seed: u64, now_ms: i64) -> Result<(), String> {
    let topic = format!("random-{seed}-{now_ms}");
    let (mut real, mut embedded) = (Side::open(real, &topic, now_ms), Side::open(embedded, &topic, now_ms));
    let mut script = Script {
        random: Random(seed),
        time: now_ms - DATA_AGE_MS,
        sequences: vec![0; IDEMPOTENT + TRANSACTIONAL],
        end: 0,
        has_marker: false,
    };
    let mut way = Vec::new();
    for _ in 0..STEPS {
        let step = script.next();
        let (wanted, answer) = (real.run(&step), embedded.run(&step));
        way.push(format!("{step}\n    -> {}", wanted.replace('\n', " ")));
        if wanted != answer {
            let way = way.iter().rev().take(12).rev().cloned().collect::<Vec<_>>().join("\n");
            return Err(format!("seed {seed}:\n{way}\nreal {wanted}\nembedded {answer}"));
        }
        script.learn(&step, &answer);
    }
    Ok(())
}

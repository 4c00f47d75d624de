//! The engine against two logs of the embedded broker, under failures drawn by a seed: retriable errors, answers lost
//! with and without effect, lost connections, moved leaders. Afterwards everything must be there once and in order.

mod deal;

use bytes::Bytes;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::broker::log::{
    FirstBatch, Isolation, LogSettings, Origin as LogOrigin, PartitionLog, Verification,
};
use crate::client::{
    FetchEvent, Fetched, FetchedBatch, IsolationLevel, ProduceAnswer, ProduceCommand, ProduceEvent,
    ProduceRequest,
};
use crate::mirror::append::Inquiry;
use crate::mirror::evidence::{self, Evidence};
use crate::mirror::status::RewriteReason;
use crate::mirror::{Batching, CompressedBatching, Gathering, OnOversize, OnRefused};
use crate::net::Backoff;
use crate::record::{self, BatchBuilder, BatchHeader, BatchOptions, Codec, Magic, OpenBatch, RecordData};

const BROKERS: i32 = 2;
const TARGET_PRODUCER: i64 = 77;

/// Both clusters, the engine between them, and the wires.
struct World {
    engine: Engine,
    keys: Vec<PartitionKey>,
    sources: Vec<PartitionLog>,
    targets: Vec<PartitionLog>,
    fetching: BTreeMap<PartitionKey, FetchPartition>,
    wires: BTreeMap<i32, VecDeque<ProduceRequest>>,
    connections: BTreeMap<i32, u64>,
    rewrites: VecDeque<RewriteJob>,
    /// A target broker from before Produce version 7.
    refused_codec: Option<Codec>,
    requests_served: usize,
    paused: bool,
    forgetful: bool,
    inquiries: usize,
    now: Duration,
    random: u64,
    log: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    partitions: usize,
    batching: Batching,
    /// What the target takes, and what the engine believes that it takes.
    limits: (usize, usize),
}

fn settings(shape: Shape) -> EngineSettings {
    EngineSettings {
        source: Arc::from("A"),
        target: Arc::from("B"),
        isolation_level: IsolationLevel::ReadCommitted,
        batching: shape.batching,
        batching_compressed: CompressedBatching::Backlog,
        backlog_batches: 7,
        on_oversize: OnOversize::Stop,
        on_refused: OnRefused::Stop,
        compression: None,
        gathering: Gathering { batch_bytes_max: 2_000, linger: Duration::ZERO },
        max_request_bytes: 4_000,
        max_in_flight_requests: 5,
        lane_window_bytes: 20_000,
        retry_backoff: Backoff::millis(10, 1_000),
        stopped_backoff: Backoff::millis(5_000, 60_000),
        decompressed_bytes_max: 1 << 20,
    }
}

fn batch(first: i64, count: i64, codec: Codec, value_bytes: usize) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions::new(codec));
    for number in first..first + count {
        let value = Bytes::from(format!("{number:0>value_bytes$}"));
        builder.push(&RecordData { timestamp: number, value: Some(value), ..RecordData::default() }).unwrap();
    }
    builder.build().unwrap()
}

impl World {
    fn new(shape: Shape, seed: u64) -> World {
        World::with(shape, shape.partitions, Engine::add, seed)
    }

    fn with(
        shape: Shape,
        targets: usize,
        add: impl Fn(&mut Engine, &NewPartition) -> PartitionKey,
        seed: u64,
    ) -> World {
        let mut engine = Engine::new(settings(shape), Arc::new(Budget::new(1 << 20)));
        let limits = TargetLimits { max_message_bytes: shape.limits.1 };
        let mut world_keys = Vec::new();
        for partition in 0..shape.partitions as i32 {
            let new = NewPartition {
                topic: Arc::from("t"),
                topic_id: Uuid::nil(),
                partition,
                remote_topic: Arc::from("A.t"),
                remote_topic_id: Uuid::nil(),
                limits,
            };
            world_keys.push(add(&mut engine, &new));
        }
        let log = |cluster: &str, partition: usize, limit: usize| {
            let settings = LogSettings { message_bytes_max: limit, ..LogSettings::default() };
            PartitionLog::new(format!("{cluster}/{partition}"), settings)
        };
        let mut world = World {
            engine,
            keys: world_keys,
            sources: (0..shape.partitions).map(|partition| log("A", partition, 1 << 20)).collect(),
            targets: (0..targets).map(|partition| log("B", partition, shape.limits.0)).collect(),
            fetching: BTreeMap::new(),
            wires: BTreeMap::new(),
            connections: BTreeMap::new(),
            rewrites: VecDeque::new(),
            refused_codec: None,
            requests_served: 0,
            paused: false,
            forgetful: false,
            inquiries: 0,
            now: Duration::ZERO,
            random: seed,
            log: Vec::new(),
        };
        world.engine.on_producer(TARGET_PRODUCER, 0, Duration::ZERO);
        for (index, key) in world.keys.clone().into_iter().enumerate() {
            world.engine.set_source_leader(key, Some((1, 0)), world.now);
            for (place, (target, _)) in world.engine.targets_of(key).into_iter().enumerate() {
                world.engine.set_target_leader(target, Some((index + place) as i32 % BROKERS), world.now);
            }
            world.engine.start(key, 0, None, world.now);
        }
        world.carry_out();
        world
    }

    fn pick(&mut self, below: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    /// Also what an answer within it calls for: a flow leaves nothing for its next event.
    fn carry_out(&mut self) {
        loop {
            let commands = self.engine.take_commands();
            if commands.is_empty() {
                return;
            }
            commands.into_iter().for_each(|command| self.carry_out_one(command));
        }
    }

    fn carry_out_one(&mut self, command: Command) {
        match command {
            Command::Fetch(_, FetchCommand::Add(partition)) => {
                drop(self.fetching.insert(partition.key, partition))
            }
            Command::Fetch(_, FetchCommand::Remove(key)) => drop(self.fetching.remove(&key)),
            Command::Fetch(_, FetchCommand::Pause) => self.paused = true,
            Command::Fetch(_, FetchCommand::Resume) => self.paused = false,
            Command::Produce(broker, ProduceCommand::Send(request)) => {
                assert_eq!(
                    Some(&request.connection),
                    self.connections.get(&broker),
                    "sent on its connection"
                );
                self.wires.entry(broker).or_default().push_back(request);
            }
            Command::OpenProduce(broker) => self.connect(broker),
            Command::Rewrite(job) => self.rewrites.push_back(job),
            Command::Log(notice) => self.log.push(notice.message),
            Command::NewProducer => self.engine.on_producer(TARGET_PRODUCER + 1, 0, self.now),
            Command::Inquire(inquiry) => self.answer_inquiry(&inquiry),
            Command::Produce(..) | Command::RefreshSource | Command::RefreshTarget | Command::Locate(_) => {}
        }
    }

    fn connect(&mut self, broker: i32) {
        let connection = self.connections.entry(broker).or_default();
        *connection += 1;
        let connected = ProduceEvent::Connected { connection: *connection };
        self.engine.on_produce(broker, connected, self.now);
        self.carry_out();
    }

    /// One thing happens, as the seed says.
    fn step(&mut self, faults: bool) {
        let elapsed = Duration::from_millis(self.pick(4));
        self.now += elapsed;
        match self.pick(if faults { 15 } else { 8 }) {
            0..=2 => self.deliver_fetch(),
            3..=5 => self.deliver_request(Fault::None),
            6 => self.deliver_rewrite(),
            7 => self.advance(),
            8 => {
                let code = [5, 6, 7, 20][self.pick(4) as usize];
                self.deliver_request(Fault::Refused(code));
            }
            9 => self.cut(Fault::AnswerLost),
            10 => self.cut(Fault::RequestLost),
            11 => self.engine.reopened_fetch(1),
            12 => self.reopen_produce(),
            13 if self.forgetful => self.forget(),
            _ => self.move_leader(),
        }
        self.carry_out();
    }

    fn deliver_fetch(&mut self) {
        let index = self.pick(self.keys.len() as u64) as usize;
        self.deliver_fetch_of(index);
    }

    fn deliver_fetch_of(&mut self, index: usize) {
        let Some(partition) = self.fetching.get(&self.keys[index]).cloned() else { return };
        let log = &self.sources[index];
        let read =
            log.read(partition.fetch_offset, 3_000, Isolation::ReadCommitted, FirstBatch::Whole).unwrap();
        let mut next = partition.fetch_offset;
        let whole =
            |bytes: &Bytes| BatchHeader::parse(bytes).is_ok_and(|header| header.size_bytes == bytes.len());
        let batches: Vec<FetchedBatch> = read
            .batches
            .iter()
            .filter(|bytes| bytes.len() > 61 && whole(bytes))
            .map(|bytes| FetchedBatch { bytes: bytes.clone(), magic: Magic::V2 })
            .collect();
        for batch in &batches {
            next = BatchHeader::parse(&batch.bytes).unwrap().next_offset();
        }
        self.fetching.get_mut(&partition.key).unwrap().fetch_offset = next;
        let fetched = Fetched {
            key: partition.key,
            generation: partition.generation,
            batches,
            high_watermark: log.high_watermark(),
            last_stable_offset: log.last_stable_offset(),
            log_start_offset: log.log_start_offset(),
            aborted: Arc::from([]),
        };
        self.engine.on_fetch(1, FetchEvent::Fetched(fetched), self.now);
    }

    fn deliver_request(&mut self, fault: Fault) {
        let broker = self.pick(BROKERS as u64) as i32;
        self.deliver_request_of(broker, fault);
    }

    fn deliver_request_of(&mut self, broker: i32, fault: Fault) {
        let Some(request) = self.wires.entry(broker).or_default().pop_front() else { return };
        let answers = self.serve(&request, fault);
        let event = ProduceEvent::Answered { id: request.id, answers, throttle: Duration::ZERO };
        self.engine.on_produce(broker, event, self.now);
    }

    fn serve(&mut self, request: &ProduceRequest, fault: Fault) -> Vec<ProduceAnswer> {
        self.requests_served += 1;
        let mut answers = Vec::new();
        for (&(_, partition), batch) in &request.batches {
            let bytes = Bytes::from([&batch.header[..], &batch.body].concat());
            record::verify_crc(&bytes).unwrap();
            let mut answer = ProduceAnswer {
                key: batch.key,
                code: 0,
                base_offset: -1,
                record_errors: vec![],
                message: None,
            };
            // REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND speak of a batch that was appended.
            let codec = BatchHeader::parse(&bytes).unwrap().attributes.codec().unwrap();
            let appends = !matches!(fault, Fault::Refused(5 | 6));
            if self.refused_codec == Some(codec) {
                answer.code = 76;
            } else if appends {
                let origin = LogOrigin::Client(Verification::Missing);
                match self.targets[partition as usize].append(0, 0, &bytes, origin) {
                    Ok(appended) => answer.base_offset = appended.base_offset,
                    Err(error) => answer.code = error.code.code(),
                }
            }
            if let (Fault::Refused(code), 0) = (fault, answer.code) {
                answer.code = code;
            }
            answers.push(answer);
        }
        answers
    }

    /// The connection to a broker is lost with everything on it.
    fn cut(&mut self, fault: Fault) {
        let broker = self.pick(BROKERS as u64) as i32;
        let requests: Vec<ProduceRequest> = self.wires.entry(broker).or_default().drain(..).collect();
        let served = if let Fault::AnswerLost = fault { self.pick(requests.len() as u64 + 1) } else { 0 };
        for request in requests.iter().take(served as usize) {
            self.serve(request, Fault::None);
        }
        let lost = requests.iter().map(|request| request.id).collect();
        let event = ProduceEvent::Disconnected { lost, reason: "cut".to_owned() };
        self.engine.on_produce(broker, event, self.now);
        self.carry_out();
        self.connect(broker);
    }

    /// A broker has another address: nothing on the old connection is heard of.
    fn reopen_produce(&mut self) {
        let broker = self.pick(BROKERS as u64) as i32;
        self.wires.entry(broker).or_default().clear();
        self.engine.reopened_produce(broker, self.now);
        self.carry_out();
        self.connect(broker);
    }

    fn move_leader(&mut self) {
        let index = self.pick(self.keys.len() as u64) as usize;
        let targets = self.engine.targets_of(self.keys[index]);
        let (target, _) = targets[self.pick(targets.len() as u64) as usize];
        let to = self.pick(BROKERS as u64) as i32;
        self.engine.set_target_leader(target, Some(to), self.now);
    }

    /// The records are old, so the brokers forget who wrote them.
    fn forget(&mut self) {
        self.now += Duration::from_secs(2);
        for (target, log) in self.engine.targets.iter().zip(&mut self.targets) {
            if target.append.as_ref().is_some_and(|append| append.in_flight() == 0) {
                log.expire_producers(i64::MAX, 0);
            }
        }
    }

    fn answer_inquiry(&mut self, inquiry: &Inquiry) {
        let log = &self.targets[inquiry.partition as usize];
        let read =
            log.read(inquiry.from_offset, 1 << 20, Isolation::ReadUncommitted, FirstBatch::Whole).unwrap();
        let (from_offset, end_offset) = (inquiry.from_offset, log.log_end_offset());
        let tail = evidence::Tail { from_offset, end_offset, batches: read.batches };
        let not_now = Evidence::NotNow("the leader is away".to_owned());
        let evidence = if self.pick(3) == 0 { not_now } else { evidence::judge(inquiry, &tail) };
        self.inquiries += 1;
        self.engine.on_evidence(inquiry.key, inquiry.id, evidence, self.now);
    }

    fn deliver_rewrite(&mut self) {
        let Some(job) = self.rewrites.pop_front() else { return };
        self.engine.on_rewritten(job.id, job.work.perform(), self.now);
    }

    fn advance(&mut self) {
        if let Some(deadline) = self.engine.next_deadline() {
            self.now = self.now.max(deadline);
            self.engine.on_timer(self.now);
        }
    }

    /// Runs without faults until everything is on the target, or too many steps have passed.
    fn settle(&mut self) {
        for _ in 0..20_000 {
            let done = self
                .keys
                .iter()
                .zip(&self.sources)
                .all(|(&key, log)| self.engine.position(key) == Some(log.log_end_offset()));
            if done {
                return;
            }
            self.step(false);
        }
        let positions: Vec<_> = self.keys.iter().map(|&key| self.engine.position(key)).collect();
        let targets: Vec<_> = self
            .engine
            .targets
            .iter()
            .map(|target| {
                (
                    target.leader,
                    target.scheduled,
                    target.queue.len(),
                    target.append.as_ref().map(Append::sketch),
                    target.sent_to,
                )
            })
            .collect();
        panic!(
            "stands still at {positions:?}: {targets:?}, {:?}, {} requests, {} rewrites, wires {:?}",
            self.engine.timers,
            self.engine.requests.len(),
            self.rewrites.len(),
            self.wires.values().map(VecDeque::len).collect::<Vec<_>>(),
        );
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    Refused(i16),
    AnswerLost,
    RequestLost,
}

fn values(log: &PartitionLog) -> Vec<Bytes> {
    let mut values = Vec::new();
    let mut offset = log.log_start_offset();
    while offset < log.log_end_offset() {
        let read = log.read(offset, 1 << 20, Isolation::ReadUncommitted, FirstBatch::Whole).unwrap();
        for bytes in &read.batches {
            let open = OpenBatch::open(bytes, 1 << 20).unwrap();
            offset = open.header.next_offset();
            values
                .extend(open.records().map(|record| Bytes::copy_from_slice(record.unwrap().value.unwrap())));
        }
    }
    values
}

/// What brokers keep of producers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Lasting,
    /// All records are old, so it is lost every few minutes.
    Short,
}

fn check(shape: Shape, seed: u64, memory: Memory, batches: &[(u8, u8, u8)], steps: usize) {
    let mut world = World::new(shape, seed);
    if memory == Memory::Short {
        world.forgetful = true;
        world.engine.set_wall_clock(1_767_225_600_000);
    }
    let mut number = 0;
    for &(partition, count, codec) in batches {
        let log = &mut world.sources[partition as usize % shape.partitions];
        let codec = [Codec::None, Codec::Gzip, Codec::Lz4][usize::from(codec % 3)];
        // LZ4 batches of one record have a way of their own.
        let count = if codec == Codec::Lz4 { i64::from(count % 2) + 1 } else { i64::from(count % 20) + 1 };
        let bytes = batch(number, count, codec, 10);
        number += count;
        if codec == Codec::None && count % 5 == 0 {
            log.inject_gap(2);
        }
        log.append(0, 0, &bytes, LogOrigin::Client(Verification::Missing)).unwrap();
    }
    for _ in 0..steps {
        world.step(true);
    }
    world.settle();
    for (source, target) in world.sources.iter().zip(&world.targets) {
        assert_eq!(values(source), values(target), "every record once and in order");
        assert_eq!(target.violation_count(), 0, "{:?}", target.violations());
    }
    for (key, log) in world.keys.iter().zip(&world.sources) {
        assert_eq!(world.engine.position(*key), Some(log.log_end_offset()));
    }
    assert_eq!(world.engine.alive_bytes, 0);
}

impl World {
    /// Appends a batch for each `codecs` to the first source log, `count` records each.
    fn append_source(&mut self, codecs: &[Codec], count: i64) {
        for (number, &codec) in codecs.iter().enumerate() {
            let bytes = batch(number as i64 * count, count, codec, 10);
            self.sources[0].append(0, 0, &bytes, LogOrigin::Client(Verification::Missing)).unwrap();
        }
    }

    fn target_codecs(&self) -> Vec<Codec> {
        let read = self.targets[0].read(0, 1 << 20, Isolation::ReadUncommitted, FirstBatch::Whole).unwrap();
        let codec = |bytes| BatchHeader::parse(bytes).unwrap().attributes.codec().unwrap();
        read.batches.iter().map(|bytes| codec(bytes)).collect()
    }
}

const ONE_PARTITION: Shape = Shape { partitions: 1, batching: Batching::Adaptive, limits: (10_000, 10_000) };

/// Case 4: a partition takes one batch in a request, so single-record batches must not cost a round trip each.
#[test]
fn tiny_batches_share_requests() {
    for (codec, compressed, requests_max) in [
        (Codec::None, CompressedBatching::Never, 60),
        (Codec::Lz4, CompressedBatching::Backlog, 60),
        (Codec::Lz4, CompressedBatching::Never, 300),
    ] {
        let mut world = World::new(ONE_PARTITION, 4);
        world.engine.settings.batching_compressed = compressed;
        world.append_source(&[codec; 300], 1);
        world.settle();
        assert_eq!(values(&world.sources[0]), values(&world.targets[0]));
        let requests = world.requests_served;
        assert!(requests <= requests_max, "{codec:?} {compressed:?}: {requests} requests for 300 batches");
        assert!(requests_max == 60 || requests == 300, "each went as it was: {requests}");
    }
}

/// Case 16: an old target takes no zstd; only zstd batches are compressed anew, whatever fails meanwhile.
#[test]
fn a_target_that_refuses_zstd_gets_another_codec() {
    for seed in 0..50 {
        let mut world = World::new(ONE_PARTITION, seed);
        world.refused_codec = Some(Codec::Zstd);
        world.append_source(&[Codec::Zstd, Codec::Gzip, Codec::Zstd].repeat(8), 5);
        (0..200).for_each(|_| world.step(seed % 2 == 1));
        world.settle();
        assert_eq!(values(&world.sources[0]), values(&world.targets[0]), "seed {seed}");
        let codecs = world.target_codecs();
        assert!(
            codecs.iter().all(|codec| matches!(codec, Codec::Lz4 | Codec::Gzip)),
            "seed {seed}: {codecs:?}"
        );
        let rewritten = world.engine.sources[0].counters.batches_rewritten[RewriteReason::Codec as usize];
        assert!(seed % 2 == 1 || rewritten == 16, "seed {seed}: {rewritten} of 16 counted");
        let said = world.log.iter().filter(|line| line.contains("does not take zstd")).count();
        assert_eq!(said, 1, "seed {seed}: {:?}", world.log);
    }
}

/// What is new has waited since nothing was left at most, however old the record before it is.
#[test]
fn lag_counts_from_when_nothing_was_left() {
    let look = |world: &mut World, now_ms, end| {
        world.engine.set_wall_clock(now_ms);
        let partition = &world.fetching[&world.keys[0]];
        let fetched = Fetched {
            key: partition.key,
            generation: partition.generation,
            batches: Vec::new(),
            high_watermark: end,
            last_stable_offset: end,
            log_start_offset: 0,
            aborted: Arc::from([]),
        };
        world.engine.on_fetch(1, FetchEvent::Fetched(fetched), world.now);
    };
    let lag_ms = |world: &mut World, now_ms| {
        world.engine.set_wall_clock(now_ms);
        world.engine.partitions().values().next().unwrap().lag_ms
    };
    let mut world = World::new(ONE_PARTITION, 1);
    look(&mut world, 1_000, 0);
    assert_eq!(lag_ms(&mut world, 4_000), Some(0));
    look(&mut world, 5_000, 10);
    assert_eq!(lag_ms(&mut world, 8_000), Some(3_000));
    look(&mut world, 9_000, 20);
    assert_eq!(lag_ms(&mut world, 9_500), Some(4_500), "the older ones wait still");
    assert_eq!(lag_ms(&mut world, 0), Some(0), "a clock that was set back");
    let mut world = World::new(ONE_PARTITION, 1);
    look(&mut world, 1_000, 10);
    assert_eq!(lag_ms(&mut world, 2_000), None, "nothing tells how old they are");
}

/// Case 64: who is blocked is told since when, and traffic of many short transactions is no blockade.
#[test]
fn an_open_transaction_is_shown_with_its_age() {
    let mut world = World::new(ONE_PARTITION, 1);
    let mut look = |now_ms, high_watermark, last_stable_offset| {
        world.engine.set_wall_clock(now_ms);
        let partition = &world.fetching[&world.keys[0]];
        let fetched = Fetched {
            key: partition.key,
            generation: partition.generation,
            batches: Vec::new(),
            high_watermark,
            last_stable_offset,
            log_start_offset: 0,
            aborted: Arc::from([]),
        };
        world.engine.on_fetch(1, FetchEvent::Fetched(fetched), world.now);
        world.engine.sources[0].blocked_since_ms
    };
    assert_eq!(look(1, 10, 10), None);
    assert_eq!(look(2, 20, 15), Some(2));
    assert_eq!(look(3, 30, 15), Some(2), "still the same transaction");
    assert_eq!(look(4, 40, 25), Some(4), "another one");
    assert_eq!(look(5, 40, 40), None);
    assert_eq!(look(6, 40, -1), None, "not told");
}

/// Case 16, the other way round: a codec that is refused and is not zstd stops the partition with its reason.
#[test]
fn another_codec_that_is_refused_stops_its_partition() {
    let mut world = World::new(ONE_PARTITION, 1);
    world.refused_codec = Some(Codec::Snappy);
    world.append_source(&[Codec::Snappy], 5);
    (0..200).for_each(|_| world.step(false));
    assert!(
        world.log.iter().any(|line| line.contains("UNSUPPORTED_COMPRESSION_TYPE (76)")),
        "{:?}",
        world.log
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Case 50: after all of it every partition goes on by itself.
    #[test]
    fn every_record_arrives_once_and_in_order_whatever_fails(
        seed in any::<u64>(),
        partitions in 1..4_usize,
        verbatim in any::<bool>(),
        limits in prop::sample::select(vec![(10_000, 10_000), (200, 200), (200, 10_000)]),
        batches in prop::collection::vec(any::<(u8, u8, u8)>(), 1..60),
        steps in 0..400_usize,
        memory in prop::sample::select(vec![Memory::Lasting, Memory::Short]),
    ) {
        let batching = if verbatim { Batching::Verbatim } else { Batching::Adaptive };
        check(Shape { partitions, batching, limits }, seed, memory, &batches, steps);
    }
}

/// Promise F: a broker that takes requests and answers none fills what may be alive, and stops nobody else.
#[test]
fn a_broker_that_falls_silent_holds_up_only_its_own_partitions() {
    let shape = Shape { partitions: 8, batching: Batching::Verbatim, limits: (10_000, 10_000) };
    let mut world = World::new(shape, 1);
    let append = |world: &mut World, from: i64, count: i64| {
        for log in &mut world.sources {
            for number in from..from + count {
                let bytes = batch(number, 1, Codec::None, 1_500);
                log.append(0, 0, &bytes, LogOrigin::Client(Verification::Missing)).unwrap();
            }
        }
    };
    append(&mut world, 0, 3);
    world.settle();
    append(&mut world, 3, 40);
    let in_flight_max = world.engine.settings.max_request_bytes * 6;
    for round in 0.. {
        let positions: Vec<_> = world.keys.iter().map(|&key| world.engine.position(key).unwrap()).collect();
        // Partitions of broker 1, the silent one, are the odd ones.
        if positions.iter().step_by(2).all(|&position| position == 43) {
            break;
        }
        assert!(round < 500, "{positions:?} after {:?}, paused: {}", world.now, world.paused);
        for index in 0..world.keys.len() {
            if !world.paused {
                world.deliver_fetch_of(index);
                world.carry_out();
            }
        }
        world.deliver_request_of(0, Fault::None);
        world.now += Duration::from_millis(10);
        world.engine.on_timer(world.now);
        world.carry_out();
        let on_the_way: usize = world.engine.produce_lanes.values().map(|lane| lane.in_flight_bytes).sum();
        assert!(on_the_way <= 2 * in_flight_max, "{on_the_way}");
    }
    assert!(world.engine.produce_lanes[&1].silent, "what was in flight has filled the window");
    world.settle();
    assert!(!world.engine.produce_lanes[&1].silent);
    for (source, target) in world.sources.iter().zip(&world.targets) {
        assert_eq!(values(source), values(target));
    }
    assert_eq!((world.engine.alive_bytes, world.engine.stuck_bytes), (0, 0));
}

/// A far target is given as much as its round trip needs, a near one is not.
#[test]
fn the_window_grows_with_the_round_trip() {
    let peak = |round_trip: Duration| {
        let mut world = World::new(Shape { batching: Batching::Verbatim, ..ONE_PARTITION }, 1);
        for number in 0..400 {
            let bytes = batch(number, 1, Codec::None, 1_400);
            world.sources[0].append(0, 0, &bytes, LogOrigin::Client(Verification::Missing)).unwrap();
        }
        let (mut sent, mut peak) = (VecDeque::new(), 0);
        for _ in 0..200_000 {
            if world.engine.position(world.keys[0]) == Some(400) {
                return peak;
            }
            if !world.paused {
                world.deliver_fetch_of(0);
                world.carry_out();
            }
            peak = peak.max(world.engine.alive_bytes);
            let on_the_way = world.wires.values().map(VecDeque::len).sum();
            sent.resize(on_the_way, world.now);
            if sent.front().is_some_and(|&at| world.now - at >= round_trip) {
                sent.pop_front();
                world.deliver_request_of(0, Fault::None);
                world.carry_out();
            }
            world.now += Duration::from_millis(1);
            world.engine.on_timer(world.now);
            world.carry_out();
        }
        panic!("stands still at {:?}", world.engine.position(world.keys[0]));
    };
    let (near, far) = (peak(Duration::from_millis(2)), peak(Duration::from_millis(100)));
    let window = settings(ONE_PARTITION).lane_window_bytes;
    assert!(near <= window + 4_000, "{near}");
    assert!(far > 3 * window && far <= 4 * window + 4_000, "{far}");
}

/// What a stop waits for is what brokers may have: the rest is read again.
#[test]
fn a_stop_brings_to_its_end_what_is_in_flight_and_drops_what_is_not() {
    let mut world = World::new(Shape { batching: Batching::Verbatim, ..ONE_PARTITION }, 1);
    for number in 0..40 {
        let bytes = batch(number, 1, Codec::None, 100);
        world.sources[0].append(0, 0, &bytes, LogOrigin::Client(Verification::Missing)).unwrap();
    }
    for _ in 0..10 {
        world.deliver_fetch_of(0);
        world.carry_out();
    }
    world.engine.drain();
    world.carry_out();
    assert!(!world.engine.is_drained(), "the first batch is on its way");
    assert!(world.fetching.is_empty());
    world.deliver_request_of(0, Fault::None);
    world.carry_out();
    assert!(world.engine.is_drained());
    assert_eq!((world.requests_served, world.targets[0].log_end_offset()), (1, 1));
    assert_eq!(world.engine.position(world.keys[0]), Some(1));
    assert_eq!((world.engine.alive_bytes, world.engine.stuck_bytes), (0, 0));
}

/// What is stored of a partition that does not start must stay as it is.
#[test]
fn a_partition_that_was_stopped_before_its_start_has_no_position() {
    let mut engine = Engine::new(settings(ONE_PARTITION), Arc::new(Budget::new(1 << 20)));
    let key = engine.add(&NewPartition {
        topic: Arc::from("t"),
        topic_id: Uuid::from_u128(1),
        partition: 0,
        remote_topic: Arc::from("A.t"),
        remote_topic_id: Uuid::nil(),
        limits: TargetLimits::default(),
    });
    let stands = |engine: &Engine| (engine.position(key), engine.positions().count());
    engine.stop(key, "source_reset", "another log".to_owned());
    assert_eq!(stands(&engine), (None, 0));
    let shown = engine.partitions().into_values().next().unwrap();
    assert_eq!((shown.position, shown.stopped.map(|stopped| stopped.reason)), (None, Some("source_reset")));
    engine.start(key, 7, None, Duration::ZERO);
    assert_eq!(stands(&engine), (Some(7), 1));
    engine.stop(key, "topic_gone", "deleted".to_owned());
    assert_eq!(stands(&engine), (Some(7), 1));
}

/// A topic that could not be seen for a while: what was acknowledged and not stored yet is not copied again.
#[test]
fn a_partition_goes_on_where_it_is_and_not_where_it_was_stored() {
    let mut world = World::new(ONE_PARTITION, 1);
    world.append_source(&[Codec::None], 5);
    world.settle();
    let key = world.keys[0];
    let position = world.engine.position(key);
    world.engine.stop(key, "topic_gone", "not seen".to_owned());
    world.carry_out();
    assert!(world.fetching.is_empty());
    assert!(!world.engine.runs(key) && world.engine.is_in_its_log(key));
    world.engine.go_on(key, world.now);
    world.carry_out();
    assert_eq!(Some(world.fetching[&key].fetch_offset), position);
    world.append_source(&[Codec::None], 3);
    world.settle();
    assert_eq!(values(&world.sources[0]), values(&world.targets[0]));
    world.engine.set_source_topic_id("t", Uuid::from_u128(1));
    world.engine.set_source_topic_id("t", Uuid::from_u128(2));
    assert!(!world.engine.is_in_its_log(key));
}

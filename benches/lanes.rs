//! Costs of the lanes: the walk and the envelope per partition, and a relay of both lanes beside a plain one.
//!
//! `cargo bench --bench lanes`. The relay runs on one thread between two played brokers on loopback: a fetch lane, a flow
//! of a few lines that gives each batch our header, a produce lane. It is held against a thread that reads and writes
//! 1 MB at a time between the same two ends, once in the clear and once with TLS on both sides: there the plain relay is
//! rustls alone. What counts is bytes per CPU-second of the relaying thread
//! (`/proc/thread-self/schedstat`, so Linux only); the played brokers share the machine's cores. MB are 10^6 bytes.
//! Last, what a connection costs in memory, in the clear and with TLS: by a process of its own that holds many.

use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{ApiVersionsResponse, FetchResponse, ResponseHeader, TopicName};
use kafka_protocol::protocol::{Encodable, HeaderVersion, StrBytes};
use kmirror::client::fetch::{FetchWalker, Step, WalkLimits, spawn_fetch_lane};
use kmirror::client::produce::{Permit, ProduceHead, encode_produce, spawn_produce_lane};
use kmirror::client::{
    FetchCommand, FetchEvent, FetchPartition, FetchSettings, HostPort, LaneId, PartitionKey, ProduceBatch,
    ProduceCommand, ProduceEvent, ProduceRequest, ProduceSettings, TargetKey, TargetTopic,
};
use kmirror::net::tls::{Place, Store, StoreKind, Tls, TlsSettings};
use kmirror::record::{HEADER_BYTES, ProducerIdentity, patch};
use kmirror::{net, seam::Seam};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::sync::mpsc;

const FETCH_VERSION: i16 = 12;
const RUNS: usize = 5;
const RELAY_BYTES: u64 = 1_500_000_000;
/// About the size of a Fetch response.
const FRAME_BYTES: usize = 16 << 20;
const ALIVE_BYTES_MAX: usize = 4 << 20;
const IN_FLIGHT_MAX: usize = 5;
/// The argument that makes this program one that holds connections.
const HOLD: &str = "--hold";
const HELD: usize = 500;

fn main() {
    let mut arguments = std::env::args().skip(1).skip_while(|argument| argument != HOLD);
    if arguments.next().is_some() {
        return hold(arguments);
    }
    walk();
    envelope();
    let keys = Keys::make();
    for (over, keys) in [("relay", None), ("relay over TLS on both sides", Some(&keys))] {
        println!("\n{over}, MB per CPU-second of its thread (wall MB/s), median of {RUNS}");
        relays(keys);
    }
    memory(&keys);
}

fn relays(keys: Option<&Keys>) {
    for (name, partitions, batch_bytes) in
        [("256 KB batches", 12, 256 << 10), ("16 KB batches", 64, 16 << 10), ("1 KB batches", 1_000, 1 << 10)]
    {
        let frame = fetch_frame(partitions, FRAME_BYTES / (partitions * batch_bytes), batch_bytes);
        let mut results = [Vec::new(), Vec::new()];
        for _ in 0..RUNS {
            results[0]
                .push(relay(&frame, Peers::Plain, keys, |source, sink| plain_relay(source, sink, keys)));
            let lanes = |source, sink| lane_relay(source, sink, partitions, keys);
            results[1].push(relay(&frame, Peers::Kafka, keys, lanes));
        }
        let [plain, lanes] = results.map(median);
        let ratio = lanes.0 / plain.0;
        println!(
            "{name:>16}: plain {:>5.0} ({:>5.0}), lanes {:>5.0} ({:>5.0}), {ratio:.2} of plain",
            plain.0, plain.1, lanes.0, lanes.1
        );
    }
}

fn median(mut results: Vec<(f64, f64)>) -> (f64, f64) {
    results.sort_by(|a, b| a.0.total_cmp(&b.0));
    results[results.len() / 2]
}

/// A batch as far as a lane looks; its checksum is wrong, which nobody here checks.
fn batch(size_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![7; size_bytes];
    bytes[..8].copy_from_slice(&0_i64.to_be_bytes());
    bytes[8..12].copy_from_slice(&(size_bytes as i32 - 12).to_be_bytes());
    bytes[16] = 2;
    bytes[21..27].copy_from_slice(&[0; 6]);
    bytes[57..61].copy_from_slice(&1_i32.to_be_bytes());
    bytes
}

/// A Fetch response with its size field, and where the base offsets of its batches are.
struct Frame {
    bytes: Vec<u8>,
    offsets_at: Vec<(usize, i64)>,
    batches_per_partition: usize,
}

fn fetch_frame(partitions: usize, batches: usize, batch_bytes: usize) -> Frame {
    let records: Bytes = batch(batch_bytes).repeat(batches).into();
    let data = (0..partitions).map(|index| {
        PartitionData::default()
            .with_partition_index(index as i32)
            .with_high_watermark(i64::MAX)
            .with_last_stable_offset(i64::MAX)
            .with_log_start_offset(0)
            .with_records(Some(records.clone()))
    });
    let topic = FetchableTopicResponse::default()
        .with_topic(TopicName(StrBytes::from_static_str("topic")))
        .with_partitions(data.collect());
    let response = FetchResponse::default().with_session_id(1).with_responses(vec![topic]);
    let mut bytes = reply(&response, FETCH_VERSION, 0).to_vec();
    let front = batch(batch_bytes)[8..57].to_vec();
    let mut offsets_at = Vec::new();
    let mut at = 0;
    let mut nth = 0;
    while let Some(found) = bytes[at..].windows(front.len()).position(|window| window == front) {
        offsets_at.push((at + found - 8, (nth % batches) as i64));
        nth += 1;
        at += found + batch_bytes - 100;
    }
    assert_eq!(offsets_at.len(), partitions * batches);
    bytes.shrink_to_fit();
    Frame { bytes, offsets_at, batches_per_partition: batches }
}

fn reply<R: Encodable + HeaderVersion>(response: &R, version: i16, correlation_id: i32) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    let header = ResponseHeader::default().with_correlation_id(correlation_id);
    header.encode(&mut frame, R::header_version(version)).expect("it is encodable");
    response.encode(&mut frame, version).expect("it is encodable");
    let size = frame.len() as i32 - 4;
    frame[..4].copy_from_slice(&size.to_be_bytes());
    frame.freeze()
}

fn nanoseconds(times: u32, mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..7 {
        let start = Instant::now();
        (0..times).for_each(|_| work());
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(times));
    }
    best
}

fn walk() {
    println!("walk of a Fetch response v{FETCH_VERSION}, ns");
    let limits = WalkLimits { batch_bytes_max: 64 << 20, aborted_transactions_max: 1_000 };
    for (name, partitions, batches, batch_bytes) in [
        ("1 partition, 1 MB", 1, 1, 1 << 20),
        ("100 partitions, 16 KB each", 100, 1, 16 << 10),
        ("1,000 partitions, 1 KB each", 1_000, 1, 1 << 10),
        ("1 partition, 1,000 batches of 1 KB", 1, 1_000, 1 << 10),
    ] {
        let frame = fetch_frame(partitions, batches, batch_bytes);
        let section = Bytes::from(frame.bytes);
        // Copying the response into its buffer is not the walk's: it is measured alone and taken off.
        let mut front = BytesMut::with_capacity(section.len());
        let mut copy_and = |walk: bool| {
            nanoseconds(20, || {
                front.clear();
                let _ = front.try_reclaim(section.len());
                front.put_slice(&section);
                front.advance(4);
                let mut walker = FetchWalker::new(FETCH_VERSION, front.len(), limits);
                while walk && !matches!(walker.step(&mut front), Ok(Step::End)) {}
                black_box(&walker);
            })
        };
        let (copy, both) = (copy_and(false), copy_and(true));
        let each = (both - copy).max(0.0) / (partitions * batches) as f64;
        println!("{name:>36}: {each:>6.1} per batch");
    }
}

fn produce_request(partitions: usize, body: &Bytes) -> ProduceRequest {
    let topic = target_topic();
    let batches = (0..partitions as i32).map(|partition| {
        let key = TargetKey(partition as u32);
        (
            (0, partition),
            ProduceBatch { key, topic: topic.clone(), header: [0; HEADER_BYTES], body: body.clone() },
        )
    });
    ProduceRequest { id: 0, connection: 1, batches: batches.collect() }
}

fn target_topic() -> Arc<TargetTopic> {
    Arc::new(TargetTopic { index: 0, name: Arc::from("topic"), topic_id: uuid::Uuid::nil() })
}

fn envelope() {
    println!("envelope of a Produce request v12, ns");
    for (partitions, body_bytes) in [(1, 1 << 20), (100, 16 << 10), (1_000, 1 << 10)] {
        let request = produce_request(partitions, &vec![0; body_bytes].into());
        let head =
            ProduceHead { version: 12, correlation_id: 1, client_id: "kmirror", ack_timeout_ms: 30_000 };
        let mut arena = BytesMut::new();
        let all = nanoseconds(200, || {
            black_box(encode_produce(&head, &request, &mut arena).expect("it is small enough"));
        });
        let name = format!("{partitions} partitions, {} KB each", body_bytes >> 10);
        println!("{name:>36}: {:>6.1} per partition", all / partitions as f64);
    }
}

/// The certificate of both ends, and who believes it.
struct Keys {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    trusted: String,
}

impl Keys {
    fn make() -> Keys {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("names are valid");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = || Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has suites")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("the key belongs to the certificate");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a certificate");
        let client = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has suites")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Keys { server: Arc::new(server), client: Arc::new(client), trusted: made.cert.pem() }
    }

    fn security(&self) -> net::Security {
        trusting(&self.trusted)
    }
}

/// As `ssl.*` keys would say it.
fn trusting(pem: &str) -> net::Security {
    let place = Place::Inline(net::Secret::new(pem));
    let trust = Some(Store { kind: StoreKind::Pem, place, password: None });
    let tls = Tls::new(TlsSettings { trust, ..TlsSettings::default() });
    net::Security { tls: Some(Arc::new(tls)), sasl: None }
}

/// One end of a connection.
trait End: Read + Write + Send {}

impl<T: Read + Write + Send> End for T {}

fn accepted(listener: &TcpListener, server: Option<Arc<ServerConfig>>) -> Box<dyn End> {
    let (stream, _) = listener.accept().expect("a relay dials");
    match server {
        None => Box::new(stream),
        Some(config) => {
            let session = rustls::ServerConnection::new(config).expect("a session");
            Box::new(rustls::StreamOwned::new(session, stream))
        }
    }
}

fn dialled(address: SocketAddr, keys: Option<&Keys>) -> Box<dyn End> {
    let stream = TcpStream::connect(address).expect("it listens");
    match keys {
        None => Box::new(stream),
        Some(keys) => {
            let name = address.ip().into();
            let session = rustls::ClientConnection::new(keys.client.clone(), name).expect("a session");
            Box::new(rustls::StreamOwned::new(session, stream))
        }
    }
}

/// Reads one request; gives its key, version and correlation id.
fn read_request(stream: &mut dyn End, scratch: &mut [u8]) -> Option<(i16, i16, i32)> {
    let mut head = [0; 12];
    stream.read_exact(&mut head).ok()?;
    let mut fields = &head[..];
    let mut rest = fields.get_i32() as usize - 8;
    while rest > 0 {
        let part = rest.min(scratch.len());
        rest -= stream.read(&mut scratch[..part]).ok().filter(|&count| count > 0)?;
    }
    Some((fields.get_i16(), fields.get_i16(), fields.get_i32()))
}

fn versions(correlation_id: i32, version: i16) -> Bytes {
    let keys = [(0, 3, 12), (1, 4, FETCH_VERSION), (18, 0, 3)].map(|(key, min, max)| {
        ApiVersion::default().with_api_key(key).with_min_version(min).with_max_version(max)
    });
    let response = ApiVersionsResponse::default().with_api_keys(keys.to_vec());
    reply(&response, version, correlation_id)
}

/// What the two ends of a relay speak.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peers {
    /// Bytes without meaning.
    Plain,
    /// Requests and answers.
    Kafka,
}

/// A source: answers each fetch with the frame, at offsets that go on; or, to a plain relay, just sends it.
fn source(frame: &Frame, peers: Peers, server: Option<Arc<ServerConfig>>) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let mut bytes = frame.bytes.clone();
    let offsets_at = frame.offsets_at.clone();
    let step = frame.batches_per_partition as i64;
    let task = std::thread::spawn(move || {
        let mut stream = accepted(&listener, server);
        let mut scratch = vec![0; 1 << 16];
        let mut base = 0;
        loop {
            if peers == Peers::Kafka {
                match read_request(&mut *stream, &mut scratch) {
                    None => return,
                    Some((18, version, correlation_id)) => {
                        stream.write_all(&versions(correlation_id, version)).expect("the relay reads");
                        stream.flush().expect("the relay reads");
                        continue;
                    }
                    Some((_, _, correlation_id)) => {
                        bytes[4..8].copy_from_slice(&correlation_id.to_be_bytes())
                    }
                }
                for &(at, nth) in &offsets_at {
                    bytes[at..at + 8].copy_from_slice(&(base + nth).to_be_bytes());
                }
                base += step;
            }
            if stream.write_all(&bytes).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    });
    (address, task)
}

/// A sink: takes requests and answers them; or, from a plain relay, just reads.
fn sink(peers: Peers, server: Option<Arc<ServerConfig>>) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let task = std::thread::spawn(move || {
        let mut stream = accepted(&listener, server);
        let mut scratch = vec![0; 1 << 20];
        if peers == Peers::Plain {
            while stream.read(&mut scratch).is_ok_and(|count| count > 0) {}
            return;
        }
        while let Some((key, version, correlation_id)) = read_request(&mut *stream, &mut scratch) {
            let answer = match key {
                18 => versions(correlation_id, version),
                _ => reply(&kafka_protocol::messages::ProduceResponse::default(), version, correlation_id),
            };
            if stream.write_all(&answer).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    });
    (address, task)
}

/// CPU time of this thread in seconds.
fn thread_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds: u64 = text.split(' ').next().and_then(|field| field.parse().ok()).expect("a number");
    nanoseconds as f64 / 1e9
}

/// Runs a relay between two ends on a thread of its own; gives (MB per CPU-second, MB per second).
fn relay(
    frame: &Frame,
    peers: Peers,
    keys: Option<&Keys>,
    work: impl FnOnce(SocketAddr, SocketAddr) -> (u64, f64, f64) + Send,
) -> (f64, f64) {
    let server = || keys.map(|keys| keys.server.clone());
    let ((source, a), (sink, b)) = (source(frame, peers, server()), sink(peers, server()));
    let (bytes, cpu, wall) =
        std::thread::scope(|scope| scope.spawn(|| work(source, sink)).join().expect("the relay ends"));
    a.join().and(b.join()).expect("both ends end");
    (bytes as f64 / 1e6 / cpu, bytes as f64 / 1e6 / wall)
}

fn plain_relay(source: SocketAddr, sink: SocketAddr, keys: Option<&Keys>) -> (u64, f64, f64) {
    let (mut from, mut to) = (dialled(source, keys), dialled(sink, keys));
    // A TLS session begins with its first bytes; the source waits for none.
    from.flush().and_then(|()| to.flush()).expect("both ends are there");
    let mut buffer = vec![0; 1 << 20];
    let (cpu, wall) = (thread_seconds(), Instant::now());
    let mut bytes = 0;
    while bytes < RELAY_BYTES {
        let count = from.read(&mut buffer).expect("the source sends");
        to.write_all(&buffer[..count]).expect("the sink reads");
        bytes += count as u64;
    }
    (bytes, thread_seconds() - cpu, wall.elapsed().as_secs_f64())
}

fn lane_relay(
    source: SocketAddr,
    sink: SocketAddr,
    partitions: usize,
    keys: Option<&Keys>,
) -> (u64, f64, f64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut flow = Flow::start(source, sink, partitions, keys).await;
        let (cpu, wall) = (thread_seconds(), Instant::now());
        flow.run().await;
        (flow.relayed_bytes, thread_seconds() - cpu, wall.elapsed().as_secs_f64())
    })
}

/// A flow without promises: what it takes to keep both lanes busy.
struct Flow {
    fetch: mpsc::UnboundedSender<FetchCommand>,
    fetched: mpsc::Receiver<(LaneId, FetchEvent)>,
    produce: mpsc::UnboundedSender<ProduceCommand>,
    produced: mpsc::UnboundedReceiver<(LaneId, ProduceEvent)>,
    topic: Arc<TargetTopic>,
    queues: Vec<VecDeque<ProduceBatch>>,
    in_flight: VecDeque<usize>,
    waiting_bytes: usize,
    alive_bytes: usize,
    paused: bool,
    relayed_bytes: u64,
    next_id: u64,
}

impl Flow {
    async fn start(source: SocketAddr, sink: SocketAddr, partitions: usize, keys: Option<&Keys>) -> Flow {
        let security = keys.map_or(net::Security::PLAINTEXT, Keys::security);
        let (seam, net) = (Seam::real(), net::Settings { security, ..net::Settings::default() });
        let place = |address: SocketAddr| HostPort::new(address.ip().to_string(), address.port());
        let (events, fetched) = mpsc::channel(16);
        let fetch = spawn_fetch_lane(
            seam.clone(),
            net.clone(),
            place(source),
            FetchSettings::default(),
            LaneId(1),
            events,
        );
        let (events, mut produced) = mpsc::unbounded_channel();
        let produce = spawn_produce_lane(
            seam,
            net,
            place(sink),
            ProduceSettings::default(),
            Permit::always(),
            LaneId(2),
            events,
        );
        let connected = produced.recv().await;
        assert!(matches!(connected, Some((_, ProduceEvent::Connected { connection: 1 }))), "{connected:?}");
        for index in 0..partitions {
            let partition = FetchPartition {
                key: PartitionKey(index as u32),
                generation: 0,
                topic: Arc::from("topic"),
                topic_id: uuid::Uuid::nil(),
                partition: index as i32,
                fetch_offset: 0,
                current_leader_epoch: -1,
                last_fetched_epoch: -1,
            };
            let _ = fetch.commands.send(FetchCommand::Add(partition));
        }
        Flow {
            fetch: fetch.commands,
            fetched,
            produce: produce.commands,
            produced,
            topic: target_topic(),
            queues: (0..partitions).map(|_| VecDeque::new()).collect(),
            in_flight: VecDeque::new(),
            waiting_bytes: 0,
            alive_bytes: 0,
            paused: false,
            relayed_bytes: 0,
            next_id: 0,
        }
    }

    async fn run(&mut self) {
        while self.relayed_bytes < RELAY_BYTES {
            tokio::select! {
                biased;
                Some((_, event)) = self.produced.recv() => match event {
                    ProduceEvent::Answered { .. } => {
                        let bytes = self.in_flight.pop_front().expect("it was sent");
                        self.alive_bytes -= bytes;
                        self.relayed_bytes += bytes as u64;
                    }
                    other => unreachable!("{other:?}"),
                },
                Some((_, event)) = self.fetched.recv() => match event {
                    FetchEvent::Fetched(fetched) => {
                        self.take(fetched.key, fetched.batches.into_iter().map(|batch| batch.bytes));
                    }
                    FetchEvent::Connected => {}
                    other => unreachable!("{other:?}"),
                },
            }
            self.send();
            self.pace();
        }
    }

    fn take(&mut self, key: PartitionKey, batches: impl Iterator<Item = Bytes>) {
        for bytes in batches {
            self.alive_bytes += bytes.len();
            self.waiting_bytes += bytes.len();
            let identity = ProducerIdentity { producer_id: 1, producer_epoch: 0, base_sequence: 0 };
            let header = patch(&bytes, bytes.len(), identity).expect("it is a batch");
            let (key, topic) = (TargetKey(key.0), self.topic.clone());
            let body = bytes.slice(HEADER_BYTES..);
            self.queues[key.0 as usize].push_back(ProduceBatch { key, topic, header, body });
        }
    }

    /// A request takes the head of each queue; small ones wait while others are under way.
    fn send(&mut self) {
        while self.waiting_bytes > 0
            && self.in_flight.len() < IN_FLIGHT_MAX
            && (self.in_flight.is_empty() || self.waiting_bytes > 512 << 10)
        {
            let mut batches = BTreeMap::new();
            let mut bytes = 0;
            for (index, queue) in self.queues.iter_mut().enumerate() {
                if let Some(batch) = queue.pop_front() {
                    bytes += batch.size_bytes();
                    batches.insert((0, index as i32), batch);
                }
            }
            self.waiting_bytes -= bytes;
            self.in_flight.push_back(bytes);
            let request = ProduceRequest { id: self.next_id, connection: 1, batches };
            self.next_id += 1;
            let _ = self.produce.send(ProduceCommand::Send(request));
        }
    }

    fn pace(&mut self) {
        let pause = match self.paused {
            true => self.alive_bytes > ALIVE_BYTES_MAX / 2,
            false => self.alive_bytes > ALIVE_BYTES_MAX,
        };
        if std::mem::replace(&mut self.paused, pause) != pause {
            let _ = self.fetch.send(if pause { FetchCommand::Pause } else { FetchCommand::Resume });
        }
    }
}

/// Prints what one more idle connection takes.
fn memory(keys: &Keys) {
    println!("\nresident memory of {HELD} idle connections, KB each");
    for (over, keys) in [("in the clear", None), ("TLS", Some(keys))] {
        let [none, all] = [0, HELD].map(|count| resident_bytes(count, keys));
        println!("{over:>16}: {:>5.1}", all.saturating_sub(none) as f64 / 1e3 / HELD as f64);
    }
}

/// Of a process that holds so many, once it has them.
fn resident_bytes(count: usize, keys: Option<&Keys>) -> u64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens").to_string();
    let trusted = keys.map_or("", |keys| keys.trusted.as_str());
    let mut holder = std::process::Command::new(std::env::current_exe().expect("a path"))
        .args([HOLD, &address, &count.to_string(), trusted])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it is this program");
    let mut held = Vec::new();
    for _ in 0..count {
        let mut stream = accepted(&listener, keys.map(|keys| keys.server.clone()));
        let request = read_request(&mut *stream, &mut [0; 1024]);
        let Some((18, version, correlation_id)) = request else { unreachable!("{request:?}") };
        stream.write_all(&versions(correlation_id, version)).expect("the holder reads");
        stream.flush().expect("the holder reads");
        held.push(stream);
    }
    let mut ready = [0];
    holder.stdout.as_mut().expect("it is piped").read_exact(&mut ready).expect("it has them all");
    let status = std::fs::read_to_string(format!("/proc/{}/status", holder.id())).expect("Linux");
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Dials, says when all are connected, and holds them until its input ends.
fn hold(mut arguments: impl Iterator<Item = String>) {
    let mut next = || arguments.next().unwrap_or_default();
    let address: SocketAddr = next().parse().expect("an address");
    let (count, trusted): (usize, String) = (next().parse().expect("a number"), next());
    let security = if trusted.is_empty() { net::Security::PLAINTEXT } else { trusting(&trusted) };
    let net = net::Settings { security, ..net::Settings::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut lanes = Vec::new();
        for _ in 0..count {
            let (events, mut said) = mpsc::unbounded_channel();
            let place = HostPort::new(address.ip().to_string(), address.port());
            let settings = ProduceSettings::default();
            let lane = spawn_produce_lane(
                Seam::real(),
                net.clone(),
                place,
                settings,
                Permit::always(),
                LaneId(1),
                events,
            );
            let event = said.recv().await;
            assert!(matches!(event, Some((_, ProduceEvent::Connected { .. }))), "{event:?}");
            lanes.push((lane, said));
        }
        std::io::stdout().write_all(b"!").and_then(|()| std::io::stdout().flush()).expect("it is piped");
        let _ = std::io::stdin().read(&mut [0]);
    });
}

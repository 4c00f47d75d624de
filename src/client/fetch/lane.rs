//! A fetch lane: the owner of one connection to a broker that is read from.
//!
//! One fetch is in flight at a time; the next leaves when the last byte of its answer is there. What to ask for and what
//! an answer means is the session's; what the bytes are is the walker's; the lane reads, waits and dials again.
//!
//! Batches are handed over after each read, before their answer is complete. While paused nothing is read, so that the
//! broker's data waits in the kernel and at the broker; commands are served all the same.

use std::io;
use std::time::Duration;

use bytes::Buf;
use kafka_protocol::messages::{ApiKey, FetchRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::session::{FetchSession, HeadVerdict, Patience, Records};
use super::walker::{FETCH_VERSION_MAX, FETCH_VERSION_MIN, FetchWalker, Step, WalkLimits};
use crate::client::dial::{Dialler, while_serving};
use crate::client::lane::SILENT_AFTER;
use crate::client::slab::Slabs;
use crate::client::{FetchCommand, FetchEvent, FetchSettings, FetchedBatch, LaneId};
use crate::net::{
    self, ApiVersions, BrokerAddress, Established, Fault, HostPort, SIZE_BYTES, encode_request, negotiate,
};
use crate::seam::{Seam, Socket};

/// A fetch that brings all of `fetch.max.bytes` has fewer transactions than this.
const ABORTED_TRANSACTIONS_MAX: usize = 250_000;
/// A partition that leaves the session because it is over its cap is back within moments, and a fetch that waits for
/// data of the others would make it wait too.
const IMPATIENT_FOR: Duration = Duration::from_secs(1);
const IMPATIENT_WAIT: Duration = Duration::from_millis(10);
/// Answers without data in a row after which buffers are given back.
const EMPTY_ANSWERS: u32 = 2;
/// Answers in a row, without data or only after a while, after which the broker may wait longer for some.
const IDLE_ANSWERS: u32 = 20;
/// An answer that comes so late was waiting for data: a heartbeat each second is no reason to ask twice as often.
const LATE_AFTER: Duration = Duration::from_millis(250);

/// A running fetch lane. It ends when `commands` is dropped.
#[derive(Debug)]
pub struct FetchLane {
    /// The lane's inbox.
    pub commands: mpsc::UnboundedSender<FetchCommand>,
    /// The lane's task.
    pub task: JoinHandle<()>,
}

/// Starts a lane to the broker at `broker`; it dials at once. `events` bounds how far it reads ahead of its flow: each
/// event holds at most one read of one partition.
pub fn spawn_fetch_lane(
    seam: Seam,
    net: net::Settings,
    broker: HostPort,
    settings: FetchSettings,
    id: LaneId,
    events: mpsc::Sender<(LaneId, FetchEvent)>,
) -> FetchLane {
    let (commands, inbox) = mpsc::unbounded_channel();
    let limits = WalkLimits {
        batch_bytes_max: settings.batch_bytes_max,
        aborted_transactions_max: ABORTED_TRANSACTIONS_MAX,
    };
    let desk = Desk { session: FetchSession::new(settings), reading: Reading::On, impatient_until: None };
    let dialler = Dialler::new(seam.clone(), net, broker);
    let slabs = Slabs::new();
    let lane = Lane { dialler, inbox, desk, slabs, limits, id, events };
    FetchLane { commands, task: seam.spawn(lane.run()) }
}

struct Lane {
    dialler: Dialler,
    inbox: mpsc::UnboundedReceiver<FetchCommand>,
    desk: Desk,
    slabs: Slabs,
    limits: WalkLimits,
    id: LaneId,
    events: mpsc::Sender<(LaneId, FetchEvent)>,
}

/// What commands change.
struct Desk {
    session: FetchSession,
    reading: Reading,
    impatient_until: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    On,
    Paused,
}

impl Desk {
    fn apply(&mut self, command: FetchCommand) {
        match command {
            FetchCommand::Add(partition) => self.session.add(partition),
            FetchCommand::Remove(key) => {
                self.session.remove(key);
                self.impatient_until = Some(Instant::now() + IMPATIENT_FOR);
            }
            FetchCommand::Resume => self.reading = Reading::On,
            FetchCommand::Pause => self.reading = Reading::Paused,
        }
    }

    fn patience(&self, now: Instant, idle_answers: u32) -> Patience {
        match self.impatient_until {
            Some(until) if now < until => Patience::AtMost(IMPATIENT_WAIT),
            _ if idle_answers >= IDLE_ANSWERS => Patience::Idle,
            _ => Patience::Full,
        }
    }
}

/// Why a connection ended.
enum Ended {
    /// The flow is gone.
    Closed,
    /// Nothing is to be fetched.
    Idle,
    /// What the flow is told.
    Lost(String, Fault),
}

impl From<net::Error> for Ended {
    fn from(error: net::Error) -> Ended {
        Ended::Lost(error.chain(), error.fault())
    }
}

/// One connection.
struct Connection {
    socket: Socket,
    peer: BrokerAddress,
    versions: ApiVersions,
    /// When the broker's session ends.
    renew_at: Option<Instant>,
    version_max: i16,
    /// Of the fetch in flight.
    version: i16,
    correlation_id: i32,
    /// How long the broker may wait with its answer.
    wait: Duration,
    answer: Answer,
    /// Bytes that must stand at the front before the walk goes on.
    needed: usize,
    last_byte_at: Instant,
    /// When its silence was last spoken of.
    told_at: Instant,
    quiet_until: Option<Instant>,
    empty_answers: u32,
    idle_answers: u32,
    asked_at: Instant,
    is_late: bool,
}

/// What has come of the answer to the fetch in flight.
#[expect(clippy::large_enum_variant, reason = "there is one per connection, and it stays where it is")]
enum Answer {
    /// No fetch is in flight.
    None,
    /// Not even its size.
    Nothing,
    /// Some of it.
    Some(FetchWalker),
}

impl Lane {
    async fn run(mut self) {
        let mut dial_anyway = true;
        loop {
            if !std::mem::take(&mut dial_anyway) && self.desk.session.is_empty() {
                match self.inbox.recv().await {
                    Some(command) => self.desk.apply(command),
                    None => return,
                }
                continue;
            }
            let Lane { inbox, desk, dialler, .. } = &mut self;
            let dialled = while_serving(inbox, |command| desk.apply(command), dialler.dial()).await;
            let ended = match dialled {
                None => return,
                Some(Ok(established)) => self.serve(established).await,
                Some(Err(error)) => error.into(),
            };
            self.desk.session.disconnected();
            self.slabs.clear();
            let (reason, fault) = match ended {
                Ended::Closed => return,
                Ended::Idle => continue,
                Ended::Lost(reason, fault) => (reason, fault),
            };
            if self.say([FetchEvent::Disconnected { reason }]).await.is_err() {
                return;
            }
            let Lane { inbox, desk, dialler, .. } = &mut self;
            let pause = tokio::time::sleep(dialler.failed(fault));
            if while_serving(inbox, |command| desk.apply(command), pause).await.is_none() {
                return;
            }
        }
    }

    async fn say(&self, events: impl IntoIterator<Item = FetchEvent>) -> Result<(), Ended> {
        for event in events {
            self.events.send((self.id, event)).await.map_err(|_| Ended::Closed)?;
        }
        Ok(())
    }

    async fn serve(&mut self, established: Established) -> Ended {
        match self.exchange(established).await {
            Ok(ended) | Err(ended) => ended,
        }
    }

    /// Fetches until something ends the connection.
    async fn exchange(&mut self, established: Established) -> Result<Ended, Ended> {
        let Established { socket, versions, peer, next_correlation_id, renew_at } = established;
        let version_max = negotiate::<FetchRequest>(&versions, FETCH_VERSION_MIN..=FETCH_VERSION_MAX)?;
        let mut connection = Connection {
            socket,
            peer,
            renew_at,
            versions,
            version_max,
            version: version_max,
            correlation_id: next_correlation_id.wrapping_sub(1),
            wait: Duration::ZERO,
            answer: Answer::None,
            needed: 1,
            last_byte_at: Instant::now(),
            told_at: Instant::now(),
            quiet_until: None,
            empty_answers: 0,
            idle_answers: 0,
            asked_at: Instant::now(),
            is_late: false,
        };
        self.say([FetchEvent::Connected]).await?;
        let mut events = Vec::new();
        loop {
            // All that is known by now goes into the next fetch.
            while let Ok(command) = self.inbox.try_recv() {
                self.desk.apply(command);
            }
            self.ask(&mut connection).await?;
            let (deadline, listens) = self.waits(&connection);
            let (socket, needed) = (&mut connection.socket, connection.needed);
            tokio::select! {
                biased;
                command = self.inbox.recv() => match command {
                    None => return Ok(Ended::Closed),
                    Some(command) => self.desk.apply(command),
                },
                read = read(socket, &mut self.slabs, needed), if listens => {
                    let count = read.and_then(|count| match count {
                        0 => Err(io::ErrorKind::UnexpectedEof.into()),
                        count => Ok(count),
                    });
                    if let Err(error) = count {
                        return Err(self.ended_by(&connection, error));
                    }
                    self.walk(&mut connection, &mut events)?;
                    self.say(events.drain(..)).await?;
                    connection.last_byte_at = Instant::now();
                }
                () = sleep_until(deadline.unwrap_or(connection.last_byte_at)), if deadline.is_some() => {
                    if self.falls_silent(&mut connection)? {
                        self.say([FetchEvent::Silent]).await?;
                    }
                }
            }
        }
    }

    /// Sends the next fetch, if it is time.
    async fn ask(&mut self, connection: &mut Connection) -> Result<(), Ended> {
        let now = Instant::now();
        let quiet = connection.quiet_until.is_some_and(|until| now < until);
        let free = matches!(connection.answer, Answer::None) && self.desk.reading == Reading::On && !quiet;
        let patience = self.desk.patience(now, connection.idle_answers);
        let Some((request, version)) =
            free.then(|| self.desk.session.request(connection.version_max, patience)).flatten()
        else {
            return Ok(());
        };
        if connection.renew_at.is_some_and(|at| at <= now) {
            self.renew(connection).await?;
        }
        connection.wait = Duration::from_millis(request.max_wait_ms.unsigned_abs().into());
        connection.version = version;
        connection.correlation_id = connection.correlation_id.wrapping_add(1);
        let client_id = &self.dialler.net.client_id;
        let frame = encode_request(&request, version, connection.correlation_id, client_id)?;
        connection.answer = Answer::Nothing;
        connection.asked_at = now;
        connection.needed = SIZE_BYTES;
        let limit = self.dialler.net.request_timeout;
        match timeout(limit, connection.socket.write_all(&frame)).await {
            Ok(Ok(())) => connection.last_byte_at = Instant::now(),
            Ok(Err(error)) => {
                return Err(net::Error::broken(&connection.peer, connection.step(), error).into());
            }
            Err(_) => return Err(connection.timed_out(limit).into()),
        }
        Ok(())
    }

    /// Says again who we are, between two fetches (KIP-368).
    async fn renew(&self, connection: &mut Connection) -> Result<(), Ended> {
        let Dialler { seam, net, .. } = &self.dialler;
        let next = connection.correlation_id.wrapping_add(1);
        let renewed = net::renew(seam, net, &mut connection.socket, &connection.versions, next).await?;
        connection.correlation_id = renewed.next_correlation_id.wrapping_sub(1);
        connection.renew_at = renewed.renew_at;
        Ok(())
    }

    /// When to look up even if nothing comes, and whether the socket is listened to.
    fn waits(&self, connection: &Connection) -> (Option<Instant>, bool) {
        if matches!(connection.answer, Answer::None) {
            let idle_max = self.dialler.net.connections_max_idle.filter(|_| self.desk.session.is_empty());
            let idle_until = idle_max.map(|idle_max| connection.last_byte_at + idle_max);
            let quiet_until = connection.quiet_until.filter(|&until| Instant::now() < until);
            return (quiet_until.or(idle_until), true);
        }
        match self.desk.reading {
            Reading::Paused => (None, false),
            Reading::On => {
                let ends_at = connection.last_byte_at + self.silence_max(connection);
                (Some(ends_at.min(self.silent_at(connection))), true)
            }
        }
    }

    fn silent_at(&self, connection: &Connection) -> Instant {
        connection.told_at.max(connection.last_byte_at) + connection.wait + SILENT_AFTER
    }

    fn silence_max(&self, connection: &Connection) -> Duration {
        connection.wait + self.dialler.net.request_timeout
    }

    /// Ends a connection that has been idle or silent too long; whether it is time to tell (again) that nothing comes.
    fn falls_silent(&self, connection: &mut Connection) -> Result<bool, Ended> {
        let elapsed = connection.last_byte_at.elapsed();
        match connection.answer {
            Answer::None if !self.desk.session.is_empty() => Ok(false),
            Answer::None => match self.dialler.net.connections_max_idle {
                Some(idle_max) if elapsed >= idle_max => Err(Ended::Idle),
                _ => Ok(false),
            },
            _ if elapsed >= self.silence_max(connection) => {
                Err(connection.timed_out(self.silence_max(connection)).into())
            }
            _ => {
                let now = Instant::now();
                let is_silent = now >= self.silent_at(connection);
                if is_silent {
                    connection.told_at = now;
                }
                Ok(is_silent)
            }
        }
    }

    /// The end of a connection that nobody needs is no news.
    fn ended_by(&self, connection: &Connection, error: io::Error) -> Ended {
        let unneeded = matches!(connection.answer, Answer::None) && self.desk.session.is_empty();
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset if unneeded => Ended::Idle,
            _ => net::Error::broken(&connection.peer, connection.step(), error).into(),
        }
    }

    /// Walks what has arrived.
    fn walk(&mut self, connection: &mut Connection, events: &mut Vec<FetchEvent>) -> Result<(), Ended> {
        loop {
            let front = self.slabs.front();
            match &mut connection.answer {
                Answer::None if front.is_empty() => return Ok(()),
                Answer::None => {
                    let got = net::peek_correlation_id(front.get(SIZE_BYTES..).unwrap_or(&[])).unwrap_or(0);
                    return Err(net::Error::Unasked { broker: connection.peer.clone(), got }.into());
                }
                Answer::Nothing => {
                    if front.len() < SIZE_BYTES {
                        return Ok(());
                    }
                    let claimed = front.get_i32();
                    let frame_bytes = connection.frame_bytes(claimed)?;
                    let walker = FetchWalker::new(connection.version, frame_bytes, self.limits);
                    connection.answer = Answer::Some(walker);
                }
                Answer::Some(walker) => {
                    let step = walker.step(front);
                    let step = step.map_err(|error| connection.undecodable(error.to_string()))?;
                    if self.take_step(connection, step, events)? == Walk::NeedsMore {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn take_step(
        &mut self,
        connection: &mut Connection,
        step: Step,
        events: &mut Vec<FetchEvent>,
    ) -> Result<Walk, Ended> {
        let session = &mut self.desk.session;
        let mut records = Records::Keep;
        match step {
            Step::Need(needed) => {
                connection.needed = needed;
                session.flush(events);
                return Ok(Walk::NeedsMore);
            }
            Step::Head(head) => {
                connection.check_correlation_id(head.correlation_id)?;
                if !head.throttle.is_zero() {
                    connection.quiet_until = Some(Instant::now() + head.throttle);
                    events.push(FetchEvent::Throttled(head.throttle));
                }
                connection.empty_answers = connection.empty_answers.saturating_add(1);
                connection.idle_answers = connection.idle_answers.saturating_add(1);
                connection.is_late = connection.asked_at.elapsed() >= LATE_AFTER;
                match session.head(&head) {
                    HeadVerdict::Proceed => self.dialler.worked(),
                    HeadVerdict::Refused(code) => return Err(connection.refused(code)),
                }
            }
            Step::Topic(name) => session.topic(&name),
            Step::Partition(head) => records = session.partition(head, events),
            Step::Batch(FetchedBatch { bytes, magic }) => {
                connection.empty_answers = 0;
                if !connection.is_late {
                    connection.idle_answers = 0;
                }
                let bytes = self.slabs.hand_over(bytes);
                records = session.batch(FetchedBatch { bytes, magic });
            }
            Step::PartitionEnd(end) => session.partition_end(end, events),
            Step::End => {
                connection.answer = Answer::None;
                connection.needed = 1;
                if connection.empty_answers >= EMPTY_ANSWERS {
                    self.slabs.trim();
                }
            }
        }
        if let (Records::Skip, Answer::Some(walker)) = (records, &mut connection.answer) {
            walker.skip_records();
        }
        Ok(Walk::GoesOn)
    }
}

#[derive(PartialEq, Eq)]
enum Walk {
    GoesOn,
    NeedsMore,
}

impl Connection {
    fn step(&self) -> net::Step {
        match self.answer {
            Answer::None => net::Step::Idle,
            _ => net::Step::Request(ApiKey::Fetch, self.version),
        }
    }

    fn frame_bytes(&self, claimed: i32) -> Result<usize, net::Error> {
        let (broker, step) = (self.peer.clone(), self.step());
        match usize::try_from(claimed) {
            Ok(bytes) if bytes >= SIZE_BYTES => Ok(bytes),
            _ => Err(net::Error::FrameSize { broker, step, bytes: claimed, bytes_max: i32::MAX as usize }),
        }
    }

    fn check_correlation_id(&self, got: i32) -> Result<(), net::Error> {
        if got == self.correlation_id {
            return Ok(());
        }
        let (broker, step) = (self.peer.clone(), self.step());
        Err(net::Error::CorrelationId { broker, step, expected: self.correlation_id, got })
    }

    fn undecodable(&self, reason: String) -> net::Error {
        net::Error::Undecodable { broker: self.peer.clone(), step: self.step(), reason }
    }

    fn refused(&self, code: i16) -> Ended {
        net::Error::Refused { broker: self.peer.clone(), step: self.step(), code }.into()
    }

    fn timed_out(&self, after: Duration) -> net::Error {
        net::Error::RequestTimeout { broker: self.peer.clone(), step: self.step(), after }
    }
}

/// One read into the slabs; dropped before it is done, it has read nothing.
async fn read(socket: &mut Socket, slabs: &mut Slabs, needed: usize) -> io::Result<usize> {
    let front = slabs.prepare(needed);
    let room = front.capacity() - front.len();
    let count = socket.read_buf(front).await?;
    slabs.filled(count, room);
    Ok(count)
}

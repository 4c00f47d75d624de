//! One listener per broker and one task per connection: reads a frame, asks the state, writes the reply.
//!
//! As in a real broker one request of a connection is in service at a time, and replies come in the order of requests.
//! Nothing is decided here. The state is behind one lock, which is never held across an await.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, watch};

use super::fault::Effect;
use super::sasl::{Door, Verdict, Visitor};
use super::state::ClusterState;
use super::wire::{BrokerId, ConnectionId, Outcome, Reply, Request, WaitId};
use crate::seam::{Listener, Seam, Socket};

/// Pieces that one write hands to the kernel (`IOV_MAX` is 1024).
const PIECES_MAX: usize = 512;
/// A peer that takes longer for its part of TLS is gone.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// A frame buffer grows by this much ahead of the bytes, whatever length the peer claims.
const READ_AHEAD_BYTES: usize = 1 << 20;

/// What all tasks of a cluster share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<ClusterState>,
    waiters: Mutex<BTreeMap<WaitId, Arc<Notify>>>,
    timers_changed: Notify,
    connections: AtomicU64,
    pub(super) seam: Seam,
    limits: Limits,
    tls: Option<Arc<rustls::ServerConfig>>,
    door: Option<Mutex<Door>>,
}

/// What a connection may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) request_bytes_max: usize,
    pub(super) idle: Duration,
}

/// How a connection ends when its broker stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The peer is gone, or misbehaved.
    Closed,
    /// A crash or a fault: the peer sees a reset.
    Reset,
}

impl Shared {
    pub(super) fn new(
        state: ClusterState,
        seam: Seam,
        limits: Limits,
        tls: Option<Arc<rustls::ServerConfig>>,
        door: Option<Door>,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            state: Mutex::new(state),
            waiters: Mutex::new(BTreeMap::new()),
            timers_changed: Notify::new(),
            connections: AtomicU64::new(0),
            seam,
            limits,
            tls,
            door: door.map(Mutex::new),
        })
    }

    /// Runs `work` on the state, then wakes whom it woke.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut ClusterState, i64) -> T) -> T {
        let now_ms = self.seam.now_ms();
        let (result, woken, timer) = {
            let mut state = lock(&self.state);
            let result = work(&mut state, now_ms);
            (result, state.take_woken(), state.take_timers_touched())
        };
        if !woken.is_empty() {
            let waiters = lock(&self.waiters);
            woken.iter().filter_map(|id| waiters.get(id)).for_each(|waiter| waiter.notify_one());
        }
        if timer {
            self.timers_changed.notify_one();
        }
        result
    }

    /// Runs `work` on the door; `None` when there is none.
    pub(super) fn at_door<T>(&self, work: impl FnOnce(&mut Door) -> T) -> Option<T> {
        self.door.as_ref().map(|door| work(&mut lock(door)))
    }

    fn judge(&self, visitor: &mut Visitor, request: &Request) -> Verdict {
        let mut random = [0; 24];
        if request.key == ApiKey::SaslAuthenticate {
            self.seam.random_secret(&mut random);
        }
        let now_ms = self.seam.now_ms();
        self.at_door(|door| door.judge(visitor, request, now_ms, random)).unwrap_or(Verdict::Pass)
    }

    /// The fault that hits a request and, unless it comes before any effect, the outcome.
    fn begin(&self, request: &mut Request) -> (Option<Effect>, Option<Outcome>) {
        self.with(|state, now_ms| {
            let effect = state.fault(request);
            match effect {
                Some(Effect::Drop | Effect::Delay(_) | Effect::Close) => return (effect, None),
                Some(Effect::Error(code)) => request.refuse_with = Some(code),
                Some(Effect::ReplyLostAfterEffect) | None => {}
            }
            (effect, Some(self.expect_wait(state.handle(request, now_ms))))
        })
    }

    fn handle(&self, request: Request) -> Outcome {
        self.with(|state, now_ms| self.expect_wait(state.handle(&request, now_ms)))
    }

    /// Makes a wait known before the lock is released, so that no wake is lost.
    fn expect_wait(&self, outcome: Outcome) -> Outcome {
        if let Outcome::Wait { id, .. } = outcome {
            self.wait_on(id);
        }
        outcome
    }

    fn wait_on(&self, id: WaitId) -> Arc<Notify> {
        lock(&self.waiters).entry(id).or_default().clone()
    }

    fn forget(&self, id: WaitId) {
        lock(&self.waiters).remove(&id);
    }
}

/// Lets time pass for groups and transactions, until the cluster stops.
pub(super) async fn run_timers(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    loop {
        let due_ms = shared.with(|state, now_ms| state.next_timer_ms().map(|at| at.saturating_sub(now_ms)));
        let sleep = async {
            match due_ms {
                Some(ms) => tokio::time::sleep(Duration::from_millis(ms.max(1) as u64)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|stopped| *stopped) => return,
            () = shared.timers_changed.notified() => {}
            () = sleep => shared.with(|state, now_ms| state.tick(now_ms)),
        }
    }
}

/// Accepts connections of one broker until it is stopped.
pub(super) async fn run_broker(
    shared: Arc<Shared>,
    broker: BrokerId,
    mut listener: Listener,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stopped| *stopped) => return,
            accepted = listener.accept() => accepted,
        };
        let socket = match accepted {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(broker = broker.0, %error, "embedded broker cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let id = ConnectionId(shared.connections.fetch_add(1, Ordering::Relaxed));
        let seam = shared.seam.clone();
        seam.spawn(serve(shared.clone(), broker, id, socket, stop.clone()));
    }
}

async fn serve(
    shared: Arc<Shared>,
    broker: BrokerId,
    id: ConnectionId,
    socket: Socket,
    mut stop: watch::Receiver<bool>,
) {
    let secured = tokio::select! {
        biased;
        _ = stop.wait_for(|stopped| *stopped) => return,
        secured = secured(&shared, socket) => secured,
    };
    let Some(mut socket) = secured else { return };
    let visitor = Visitor::new();
    let mut connection = Connection { shared, broker, id, visitor, waiting: None };
    let end = tokio::select! {
        biased;
        _ = stop.wait_for(|stopped| *stopped) => End::Reset,
        end = connection.run(&mut socket) => end,
    };
    if end == End::Reset
        && let Socket::Tcp(stream) = &socket
    {
        // A close with zero linger sends a reset, as a killed process's kernel would.
        let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
    }
    if let Some(wait) = connection.waiting.take() {
        connection.shared.forget(wait);
        connection.shared.with(|state, _| state.abandon(wait));
    }
}

/// The connection, with TLS when the cluster has it; `None` for a peer that does not manage it in time.
async fn secured(shared: &Shared, socket: Socket) -> Option<Socket> {
    let Some(config) = &shared.tls else { return Some(socket) };
    let session = rustls::ServerConnection::new(config.clone()).ok()?;
    let secured = shared.seam.secure(socket, session.into());
    match tokio::time::timeout(HANDSHAKE_WITHIN, secured).await {
        Ok(Ok(socket)) => Some(socket),
        Ok(Err(error)) => {
            tracing::debug!(?error, "embedded broker closes a connection without TLS");
            None
        }
        Err(_) => None,
    }
}

struct Connection {
    shared: Arc<Shared>,
    broker: BrokerId,
    id: ConnectionId,
    visitor: Visitor,
    /// The wait of the request in service, so that it is not left behind.
    waiting: Option<WaitId>,
}

impl Connection {
    async fn run(&mut self, socket: &mut Socket) -> End {
        loop {
            let Limits { request_bytes_max, idle } = self.shared.limits;
            let read = tokio::time::timeout(idle, read_frame(socket, request_bytes_max)).await;
            let Ok(Ok(Some(frame))) = read else { return End::Closed };
            let request = match Request::parse(self.broker, self.id, frame) {
                Ok(request) => request,
                Err(malformed) => {
                    tracing::debug!(broker = self.broker.0, %malformed, "embedded broker closes a connection");
                    return End::Closed;
                }
            };
            let done = match self.shared.judge(&mut self.visitor, &request) {
                Verdict::Pass => self.answer(socket, request).await,
                Verdict::Answer(outcome) => send(socket, outcome).await,
                Verdict::AnswerAndClose(outcome) => {
                    let _ = send(socket, outcome).await;
                    Err(End::Closed)
                }
                Verdict::Close => Err(End::Closed),
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    async fn answer(&mut self, socket: &mut Socket, mut request: Request) -> Result<(), End> {
        let (effect, outcome) = self.shared.begin(&mut request);
        let mut outcome = match (outcome, effect) {
            (Some(outcome), _) => outcome,
            (None, Some(Effect::Drop)) => return drain(socket).await,
            (None, Some(Effect::Delay(delay))) => {
                tokio::time::sleep(delay).await;
                self.shared.handle(request)
            }
            (None, _) => return Err(End::Reset),
        };
        loop {
            match outcome {
                Outcome::Wait { id, deadline_ms } => outcome = self.wait(id, deadline_ms).await,
                _ if effect == Some(Effect::ReplyLostAfterEffect) => return Err(End::Reset),
                Outcome::Reply(reply) => return write_reply(socket, reply).await.map_err(|_| End::Closed),
                Outcome::Nothing => return Ok(()),
                Outcome::Close => return Err(End::Closed),
            }
        }
    }

    async fn wait(&mut self, id: WaitId, deadline_ms: i64) -> Outcome {
        self.waiting = Some(id);
        let waiter = self.shared.wait_on(id);
        let left_ms = deadline_ms.saturating_sub(self.shared.seam.now_ms()).max(0) as u64;
        // Nobody waits for more than a day.
        let sleep = tokio::time::sleep(Duration::from_millis(left_ms.min(86_400_000)));
        tokio::select! {
            biased;
            () = waiter.notified() => {}
            () = sleep => {}
        }
        let outcome = self.shared.with(|state, now_ms| state.resume(id, now_ms));
        if !matches!(outcome, Outcome::Wait { .. }) {
            self.shared.forget(id);
            self.waiting = None;
        }
        outcome
    }
}

/// Sends what the door says.
async fn send(socket: &mut Socket, outcome: Outcome) -> Result<(), End> {
    match outcome {
        Outcome::Reply(reply) => write_reply(socket, reply).await.map_err(|_| End::Closed),
        Outcome::Nothing => Ok(()),
        Outcome::Wait { .. } | Outcome::Close => Err(End::Closed),
    }
}

/// Reads and ignores until the peer gives up.
async fn drain(socket: &mut Socket) -> Result<(), End> {
    let mut sink = [0; 4096];
    loop {
        match socket.read(&mut sink).await {
            Ok(0) | Err(_) => return Err(End::Closed),
            Ok(_) => {}
        }
    }
}

/// One frame without its length; `None` at the end of the stream between frames.
async fn read_frame(socket: &mut Socket, bytes_max: usize) -> io::Result<Option<Bytes>> {
    let mut prefix = [0; 4];
    match socket.read_exact(&mut prefix).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = usize::try_from(i32::from_be_bytes(prefix)).map_err(|_| io::ErrorKind::InvalidData)?;
    if length > bytes_max {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut frame = BytesMut::with_capacity(length.min(READ_AHEAD_BYTES));
    while frame.len() < length {
        let left = length - frame.len();
        if frame.len() == frame.capacity() {
            frame.reserve(left.min(frame.len()));
        }
        let mut limited = (&mut *socket).take(left as u64);
        if limited.read_buf(&mut frame).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some(frame.freeze()))
}

async fn write_reply(socket: &mut Socket, reply: Reply) -> io::Result<()> {
    let prefix = reply.prefix();
    let mut pieces: std::collections::VecDeque<Bytes> = reply.pieces.into();
    pieces.push_front(prefix);
    while !pieces.is_empty() {
        let mut written = {
            let slices: Vec<IoSlice<'_>> =
                pieces.iter().take(PIECES_MAX).map(|piece| IoSlice::new(piece)).collect();
            socket.write_vectored(&slices).await?
        };
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(front) = pieces.front_mut() {
            if front.len() > written {
                front.advance(written);
                break;
            }
            written -= front.len();
            pieces.pop_front();
        }
    }
    socket.flush().await
}

/// Opens the port of a broker.
pub(super) async fn listen(seam: &Seam, address: SocketAddr) -> io::Result<(Listener, SocketAddr)> {
    let listener = seam.listen(address).await?;
    let address = listener.local_address()?;
    Ok((listener, address))
}

/// A panic while the lock was held leaves the state as it was at that point; tests want to go on and see it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The simulated side of the seam: a network in memory, with links that a test cuts, heals and delays.
//!
//! Runs on a current-thread tokio runtime with paused time. Bytes of one direction arrive in order, each chunk after the
//! link's latency. Every dialler has a name ([`Simulation::named`]), so that a link is (dialler, listening address).

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use super::real::{GOLDEN, mix};

/// What one direction holds before its writer waits.
const PIPE_BYTES_MAX: usize = 256 * 1024;
/// The wall clock at the start of every simulation: 2026-01-01T00:00:00Z.
const EPOCH_MS: i64 = 1_767_225_600_000;
const FIRST_FREE_PORT: u16 = 20_000;

/// A simulated world; clones share it.
#[derive(Clone, Debug)]
pub struct Simulation {
    world: Arc<Mutex<World>>,
    name: Arc<str>,
    started: Instant,
}

/// What the network does between a dialler and an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Works, with this one-way latency.
    Up(Duration),
    /// Connections are refused at once.
    Refused,
    /// Nothing gets through and nobody is told: dials and reads wait until the link heals.
    Silent,
}

#[derive(Debug)]
struct World {
    random: u64,
    next_port: u16,
    hosts: BTreeMap<String, std::net::IpAddr>,
    listeners: BTreeMap<SocketAddr, mpsc::UnboundedSender<SimulatedStream>>,
    links: BTreeMap<(Arc<str>, SocketAddr), Link>,
    connections: Vec<Connection>,
    waiting: Vec<Waker>,
}

/// An open connection, as the world sees it: who dialled whom, and both directions.
#[derive(Debug)]
struct Connection {
    dialler: Arc<str>,
    address: SocketAddr,
    pipes: [Arc<Mutex<Pipe>>; 2],
}

#[derive(Debug)]
struct Pipe {
    chunks: VecDeque<(Instant, VecDeque<u8>)>,
    bytes: usize,
    link: Link,
    end: Option<End>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// How a direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    Reset,
}

impl Simulation {
    /// A world under a seed; call inside the paused runtime.
    pub fn new(seed: u64) -> Simulation {
        let world = World {
            random: seed,
            next_port: FIRST_FREE_PORT,
            hosts: BTreeMap::new(),
            listeners: BTreeMap::new(),
            links: BTreeMap::new(),
            connections: Vec::new(),
            waiting: Vec::new(),
        };
        Simulation { world: Arc::new(Mutex::new(world)), name: Arc::from("default"), started: Instant::now() }
    }

    /// The same world, dialled from under another name.
    pub fn named(&self, name: &str) -> Simulation {
        Simulation { name: Arc::from(name), ..self.clone() }
    }

    /// Gives a host name an address.
    pub fn host(&self, name: &str, address: std::net::IpAddr) {
        lock(&self.world).hosts.insert(name.to_owned(), address);
    }

    /// Changes the link between a dialler and a listening address, for open connections too.
    pub fn set_link(&self, dialler: &str, address: SocketAddr, link: Link) {
        let mut world = lock(&self.world);
        world.links.insert((Arc::from(dialler), address), link);
        for connection in &world.connections {
            if &*connection.dialler == dialler && connection.address == address {
                for pipe in &connection.pipes {
                    lock(pipe).set_link(link);
                }
            }
        }
        world.waiting.drain(..).for_each(Waker::wake);
    }

    /// Resets every open connection from `dialler` to `address`.
    pub fn reset(&self, dialler: &str, address: SocketAddr) {
        let mut world = lock(&self.world);
        world.connections.retain(|connection| {
            let hit = &*connection.dialler == dialler && connection.address == address;
            if hit {
                connection.pipes.iter().for_each(|pipe| lock(pipe).finish(End::Reset));
            }
            !hit
        });
    }

    pub(super) fn now_ms(&self) -> i64 {
        EPOCH_MS + i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX - EPOCH_MS)
    }

    pub(super) fn random(&self) -> u64 {
        let mut world = lock(&self.world);
        world.random = world.random.wrapping_add(GOLDEN);
        mix(world.random)
    }

    pub(super) fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        match lock(&self.world).hosts.get(host) {
            Some(&address) => Ok(vec![SocketAddr::new(address, port)]),
            None => Err(io::Error::new(io::ErrorKind::NotFound, format!("no simulated host {host}"))),
        }
    }

    pub(super) fn canonical_name(&self, address: std::net::IpAddr) -> io::Result<String> {
        let world = lock(&self.world);
        let found = world.hosts.iter().find(|&(_, &known)| known == address);
        found.map(|(name, _)| name.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn listen(&self, mut address: SocketAddr) -> io::Result<SimulatedListener> {
        let mut world = lock(&self.world);
        if address.port() == 0 {
            address.set_port(world.next_port);
            world.next_port += 1;
        }
        if world.listeners.get(&address).is_some_and(|sender| !sender.is_closed()) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        world.listeners.insert(address, sender);
        Ok(SimulatedListener { address, receiver })
    }

    pub(super) async fn dial(&self, address: SocketAddr) -> io::Result<SimulatedStream> {
        let latency = std::future::poll_fn(|cx| self.poll_link(cx, address)).await?;
        tokio::time::sleep(latency * 2).await;
        self.connect(address, Link::Up(latency))
    }

    fn poll_link(&self, cx: &mut Context<'_>, address: SocketAddr) -> Poll<io::Result<Duration>> {
        let mut world = lock(&self.world);
        match world.link(&self.name, address) {
            Link::Up(latency) => Poll::Ready(Ok(latency)),
            Link::Refused => Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())),
            Link::Silent => {
                world.waiting.push(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn connect(&self, address: SocketAddr, link: Link) -> io::Result<SimulatedStream> {
        let mut world = lock(&self.world);
        let pipes = [Pipe::new(link), Pipe::new(link)];
        let dialled = SimulatedStream::new(pipes[0].clone(), pipes[1].clone());
        let accepted = SimulatedStream::new(pipes[1].clone(), pipes[0].clone());
        let Some(listener) = world.listeners.get(&address) else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        if listener.send(accepted).is_err() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        world.connections.retain(|connection| lock(&connection.pipes[0]).end.is_none());
        world.connections.push(Connection { dialler: self.name.clone(), address, pipes });
        Ok(dialled)
    }
}

impl World {
    fn link(&self, dialler: &Arc<str>, address: SocketAddr) -> Link {
        self.links.get(&(dialler.clone(), address)).copied().unwrap_or(Link::Up(Duration::from_micros(100)))
    }
}

impl Pipe {
    fn new(link: Link) -> Arc<Mutex<Pipe>> {
        Arc::new(Mutex::new(Pipe {
            chunks: VecDeque::new(),
            bytes: 0,
            link,
            end: None,
            reader: None,
            writer: None,
        }))
    }

    fn set_link(&mut self, link: Link) {
        self.link = link;
        if link == Link::Refused {
            self.finish(End::Reset);
        }
        self.wake();
    }

    fn finish(&mut self, end: End) {
        if self.end.is_none() || end == End::Reset {
            self.end = Some(end);
        }
        if end == End::Reset {
            self.chunks.clear();
            self.bytes = 0;
        }
        self.wake();
    }

    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

/// A listening port of the simulated network; dropping it closes the port.
#[derive(Debug)]
pub struct SimulatedListener {
    address: SocketAddr,
    receiver: mpsc::UnboundedReceiver<SimulatedStream>,
}

impl SimulatedListener {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) async fn accept(&mut self) -> io::Result<SimulatedStream> {
        self.receiver.recv().await.ok_or_else(|| io::ErrorKind::ConnectionAborted.into())
    }
}

/// One end of a simulated connection.
#[derive(Debug)]
pub struct SimulatedStream {
    incoming: Arc<Mutex<Pipe>>,
    outgoing: Arc<Mutex<Pipe>>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl SimulatedStream {
    fn new(incoming: Arc<Mutex<Pipe>>, outgoing: Arc<Mutex<Pipe>>) -> SimulatedStream {
        SimulatedStream { incoming, outgoing, timer: None }
    }
}

impl Drop for SimulatedStream {
    fn drop(&mut self) {
        lock(&self.outgoing).finish(End::Closed);
        lock(&self.incoming).finish(End::Reset);
    }
}

impl AsyncRead for SimulatedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let incoming = self.incoming.clone();
        let mut pipe = lock(&incoming);
        if pipe.end == Some(End::Reset) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        pipe.reader = Some(cx.waker().clone());
        if pipe.link == Link::Silent {
            return Poll::Pending;
        }
        let Some((at, _)) = pipe.chunks.front() else {
            return if pipe.end.is_some() { Poll::Ready(Ok(())) } else { Poll::Pending };
        };
        if *at > Instant::now() {
            let mut timer = Box::pin(tokio::time::sleep_until(*at));
            let ready = timer.as_mut().poll(cx).is_ready();
            self.timer = Some(timer);
            if !ready {
                return Poll::Pending;
            }
        }
        pipe.read_into(buf);
        Poll::Ready(Ok(()))
    }
}

impl Pipe {
    fn read_into(&mut self, buf: &mut ReadBuf<'_>) {
        if let Some((_, chunk)) = self.chunks.front_mut() {
            let count = chunk.len().min(buf.remaining());
            let (head, tail) = chunk.as_slices();
            let from_head = head.len().min(count);
            buf.put_slice(&head[..from_head]);
            buf.put_slice(&tail[..count - from_head]);
            chunk.drain(..count);
            self.bytes -= count;
            if chunk.is_empty() {
                self.chunks.pop_front();
            }
        }
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }
}

impl AsyncWrite for SimulatedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut pipe = lock(&self.outgoing);
        if pipe.end.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = PIPE_BYTES_MAX.saturating_sub(pipe.bytes);
        if room == 0 {
            pipe.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = room.min(buf.len());
        let latency = if let Link::Up(latency) = pipe.link { latency } else { Duration::ZERO };
        pipe.chunks.push_back((Instant::now() + latency, buf[..count].iter().copied().collect()));
        pipe.bytes += count;
        if let Some(reader) = pipe.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.outgoing).finish(End::Closed);
        Poll::Ready(Ok(()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::seam::{Seam, SocketOptions};

    async fn pair(simulation: &Simulation) -> (crate::seam::Socket, crate::seam::Socket, SocketAddr) {
        let seam = Seam::Simulated(simulation.clone());
        let mut listener = seam.listen("10.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_address().unwrap();
        let dialled = seam.dial(address, SocketOptions::default()).await.unwrap();
        (dialled, listener.accept().await.unwrap(), address)
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_arrive_in_order_after_the_latency() {
        let simulation = Simulation::new(1);
        let (mut here, mut there, _) = pair(&simulation).await;
        let before = Instant::now();
        here.write_all(b"abc").await.unwrap();
        here.write_all(b"def").await.unwrap();
        let mut got = [0; 6];
        there.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"abcdef");
        assert!(before.elapsed() >= Duration::from_micros(100));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reset_is_seen_by_both_ends_and_a_close_as_end_of_stream() {
        let simulation = Simulation::new(1);
        let (mut here, mut there, address) = pair(&simulation).await;
        simulation.reset("default", address);
        assert_eq!(here.read(&mut [0; 1]).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(there.read(&mut [0; 1]).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        let (here, mut there, _) = pair(&simulation).await;
        drop(here);
        assert_eq!(there.read(&mut [0; 1]).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_link_delivers_after_it_heals() {
        let simulation = Simulation::new(1);
        let (mut here, mut there, address) = pair(&simulation).await;
        simulation.set_link("default", address, Link::Silent);
        here.write_all(b"x").await.unwrap();
        let mut byte = [0; 1];
        assert!(tokio::time::timeout(Duration::from_secs(5), there.read_exact(&mut byte)).await.is_err());
        simulation.set_link("default", address, Link::Up(Duration::ZERO));
        there.read_exact(&mut byte).await.unwrap();
        assert_eq!(&byte, b"x");
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_seed_gives_the_same_numbers() {
        let numbers = |seed| {
            let simulation = Simulation::new(seed);
            (0..4).map(|_| simulation.random()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }
}

//! The simulated side of the seam: a network in memory, with links that a test cuts, heals and delays.
//!
//! Runs on a current-thread tokio runtime with paused time. Bytes of one direction arrive in order, each chunk after the
//! link's latency ([`pipe`]). Every process has a name ([`Simulation::named`]): a link is (name, listening address), and a
//! process is killed by its name. Broken variants of a program are made here, by what becomes of the bytes that it writes
//! ([`Simulation::tamper`]), so that no program holds code to break it.

mod pipe;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use self::pipe::{End, Pipe};
pub use self::pipe::{SimulatedStream, Tamper};
use super::real::{GOLDEN, mix};

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
    tasks: BTreeMap<Arc<str>, Vec<AbortHandle>>,
    tampers: BTreeMap<Arc<str>, Tampers>,
}

/// Makes the [`Tamper`] of a new connection to an address.
#[derive(Clone)]
struct Tampers(Arc<dyn Fn(SocketAddr) -> Tamper + Send + Sync>);

impl fmt::Debug for Tampers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tampers")
    }
}

/// An open connection, as the world sees it: who dialled whom, and both directions.
#[derive(Debug)]
struct Connection {
    dialler: Arc<str>,
    address: SocketAddr,
    /// To the dialler, and from it.
    pipes: [Arc<Mutex<Pipe>>; 2],
}

impl Connection {
    /// It is open, or what its dialler wrote before it closed is still under way.
    fn matters(&self) -> bool {
        lock(&self.pipes[0]).is_open() || !lock(&self.pipes[1]).is_empty()
    }
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
            tasks: BTreeMap::new(),
            tampers: BTreeMap::new(),
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

    /// Ends a process without a word: none of its tasks runs again, and its connections close. What it has written is
    /// still delivered, as links allow.
    pub fn kill(&self, name: &str) {
        let tasks = lock(&self.world).tasks.remove(name);
        tasks.into_iter().flatten().for_each(|task| task.abort());
    }

    /// Lets a process's writes be changed from now on: `make` is asked for each new connection.
    pub fn tamper(&self, name: &str, make: impl Fn(SocketAddr) -> Tamper + Send + Sync + 'static) {
        lock(&self.world).tampers.insert(Arc::from(name), Tampers(Arc::new(make)));
    }

    /// Notes a task of this process.
    pub(super) fn spawned(&self, task: AbortHandle) {
        let mut world = lock(&self.world);
        let tasks = world.tasks.entry(self.name.clone()).or_default();
        if tasks.len() == tasks.capacity() {
            tasks.retain(|task| !task.is_finished());
        }
        tasks.push(task);
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
        // The link may be another by now.
        let latency = std::future::poll_fn(|cx| self.poll_link(cx, address)).await?;
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
        let make = lock(&self.world).tampers.get(&self.name).cloned();
        let tamper = make.map(|make| (make.0)(address));
        let mut world = lock(&self.world);
        let pipes = [Pipe::new(link, None), Pipe::new(link, tamper)];
        let dialled = SimulatedStream::new(pipes[0].clone(), pipes[1].clone());
        let accepted = SimulatedStream::new(pipes[1].clone(), pipes[0].clone());
        let Some(listener) = world.listeners.get(&address) else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        if listener.send(accepted).is_err() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        world.connections.retain(Connection::matters);
        world.connections.push(Connection { dialler: self.name.clone(), address, pipes });
        Ok(dialled)
    }
}

impl World {
    fn link(&self, dialler: &Arc<str>, address: SocketAddr) -> Link {
        self.links.get(&(dialler.clone(), address)).copied().unwrap_or(Link::Up(Duration::from_micros(100)))
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::seam::{Seam, SocketOptions};

    /// What came before the stream ended.
    async fn until_end(socket: &mut crate::seam::Socket) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _ = socket.read_to_end(&mut bytes).await;
        bytes
    }

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
    async fn a_killed_process_runs_no_more_and_what_it_wrote_arrives() {
        let simulation = Simulation::new(1);
        let (mut here, mut there, address) = pair(&simulation).await;
        let seam = Seam::Simulated(simulation.clone());
        let task = seam.spawn(async move {
            here.write_all(b"last words").await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            here.write_all(b"never").await.unwrap();
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        simulation.set_link("default", address, Link::Silent);
        Simulation::kill(&simulation, "default");
        assert!(task.await.unwrap_err().is_cancelled());
        // Other connections come and go; the one that is closed still has something to deliver.
        drop(seam.dial("10.0.0.2:1".parse().unwrap(), SocketOptions::default()).await);
        simulation.set_link("default", address, Link::Up(Duration::ZERO));
        assert_eq!(until_end(&mut there).await, b"last words");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_process_writes_can_be_changed() {
        let simulation = Simulation::new(1);
        simulation.tamper("default", |_| {
            Box::new(|bytes| bytes.iter().filter(|byte| **byte != b'-').map(u8::to_ascii_uppercase).collect())
        });
        let (mut here, mut there, _) = pair(&simulation).await;
        here.write_all(b"a-b--c").await.unwrap();
        drop(here);
        assert_eq!(until_end(&mut there).await, b"ABC");
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

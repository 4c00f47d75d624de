//! The one seam to the outside: dialling, listening, names, clock, spawning, blocking work, randomness.
//!
//! Everything that kmirror does to the world goes through a [`Seam`]. It is either real (TCP, the system's clock, worker
//! threads) or simulated: a network in memory, tokio's paused clock and a seeded generator on one current-thread runtime,
//! so that a seed replays a run to the same trace. Product code never asks which one it has.
//!
//! Durations and deadlines are `tokio::time`, which a paused runtime makes virtual; only the wall clock stands here.

mod real;
mod simulated;
mod tls;

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

pub use real::Real;
pub use simulated::{Link, SimulatedStream, Simulation, Tamper};
pub use tls::{HandshakeError, TlsSocket};

/// A handle to the outside; cheap to clone.
#[derive(Clone, Debug)]
pub enum Seam {
    /// Sockets and the clock of this machine.
    Real(Arc<Real>),
    /// A network in memory under a seed.
    Simulated(Simulation),
}

/// How a new connection is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// `send.buffer.bytes`; `None` leaves the system's default.
    pub send_buffer_bytes: Option<usize>,
    /// `receive.buffer.bytes`; `None` leaves the system's default.
    pub receive_buffer_bytes: Option<usize>,
}

impl Seam {
    /// The machine's own network, clock and threads.
    pub fn real() -> Seam {
        Seam::Real(Arc::new(Real::new()))
    }

    /// Opens a connection; the caller bounds the time.
    pub async fn dial(&self, address: SocketAddr, options: SocketOptions) -> io::Result<Socket> {
        match self {
            Seam::Real(_) => real::dial(address, options).await.map(Socket::Tcp),
            Seam::Simulated(simulation) => simulation.dial(address).await.map(Socket::Simulated),
        }
    }

    /// Agrees on a TLS session over a connection, as the client or as the server that `session` is; the caller bounds the
    /// time.
    pub async fn secure(
        &self,
        socket: Socket,
        session: rustls::Connection,
    ) -> Result<Socket, HandshakeError> {
        tls::secure(socket, session).await.map(|tls| Socket::Tls(Box::new(tls)))
    }

    /// The bytes of a small file (certificates, keys, tokens), at most `bytes_max` of them. A simulated machine has no files.
    pub async fn read_file(&self, path: PathBuf, bytes_max: u64) -> io::Result<Vec<u8>> {
        match self {
            Seam::Real(_) => self.blocking(move || real::read_file(&path, bytes_max)).await,
            Seam::Simulated(_) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Listens on `address`; port 0 takes a free one.
    pub async fn listen(&self, address: SocketAddr) -> io::Result<Listener> {
        match self {
            Seam::Real(_) => tokio::net::TcpListener::bind(address).await.map(Listener::Tcp),
            Seam::Simulated(simulation) => simulation.listen(address).map(Listener::Simulated),
        }
    }

    /// All addresses of a host, in the resolver's order.
    pub async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        match self {
            Seam::Real(_) => Ok(tokio::net::lookup_host((host, port)).await?.collect()),
            Seam::Simulated(simulation) => simulation.resolve(host, port),
        }
    }

    /// The canonical name of an address: what a reverse lookup gives.
    pub async fn canonical_name(&self, address: IpAddr) -> io::Result<String> {
        match self {
            Seam::Real(_) => self.blocking(move || dns_lookup::lookup_addr(&address)).await,
            Seam::Simulated(simulation) => simulation.canonical_name(address),
        }
    }

    /// Milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> i64 {
        match self {
            Seam::Real(_) => real::now_ms(),
            Seam::Simulated(simulation) => simulation.now_ms(),
        }
    }

    /// Sixty-four random bits: jitter, ids. Never for secrets.
    pub fn random(&self) -> u64 {
        match self {
            Seam::Real(real) => real.random(),
            Seam::Simulated(simulation) => simulation.random(),
        }
    }

    /// Random bytes that nobody can guess; the seed's when simulated.
    pub fn random_secret(&self, bytes: &mut [u8]) {
        match self {
            // The generator of AWS-LC does not fail once the process runs; with zeros a login fails, and nothing worse.
            Seam::Real(_) => drop(aws_lc_rs::rand::fill(bytes)),
            Seam::Simulated(simulation) => {
                for chunk in bytes.chunks_mut(8) {
                    chunk.copy_from_slice(&simulation.random().to_be_bytes()[..chunk.len()]);
                }
            }
        }
    }

    /// Starts a task beside the caller.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let task = tokio::spawn(task);
        if let Seam::Simulated(simulation) = self {
            simulation.spawned(task.abort_handle());
        }
        task
    }

    /// Runs CPU-heavy work off the lanes; in place when simulated, so that the order of events stays the seed's.
    pub async fn blocking<F, T>(&self, work: F) -> T
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        match self {
            Seam::Real(_) => match tokio::task::spawn_blocking(work).await {
                Ok(value) => value,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
            Seam::Simulated(_) => work(),
        }
    }
}

/// One connection.
#[derive(Debug)]
pub enum Socket {
    /// A TCP connection.
    Tcp(TcpStream),
    /// A connection of the simulated network.
    Simulated(SimulatedStream),
    /// Either of them with a TLS session on it.
    Tls(Box<TlsSocket>),
}

/// A listening port.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(tokio::net::TcpListener),
    /// A port of the simulated network.
    Simulated(simulated::SimulatedListener),
}

impl Listener {
    /// The next connection.
    pub async fn accept(&mut self) -> io::Result<Socket> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
            Listener::Simulated(listener) => listener.accept().await.map(Socket::Simulated),
        }
    }

    /// Where it listens.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr(),
            Listener::Simulated(listener) => Ok(listener.address()),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Simulated(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Simulated(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Socket::Simulated(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Socket::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Simulated(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Simulated(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}

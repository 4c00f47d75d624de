//! Bytes on their way: both directions of one simulated connection, and its ends.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::{Link, lock};

/// What one direction holds before its writer waits.
const PIPE_BYTES_MAX: usize = 256 * 1024;

/// Changes what is written on one connection: takes bytes as they are written, gives those that go out now.
pub type Tamper = Box<dyn FnMut(&[u8]) -> Vec<u8> + Send>;

/// One direction.
pub(super) struct Pipe {
    chunks: VecDeque<(Instant, VecDeque<u8>)>,
    bytes: usize,
    link: Link,
    end: Option<End>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    tamper: Option<Tamper>,
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe")
            .field("bytes", &self.bytes)
            .field("link", &self.link)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

/// How a direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// After what is on its way.
    Closed,
    /// At once.
    Reset,
}

/// One end of a simulated connection.
#[derive(Debug)]
pub struct SimulatedStream {
    incoming: Arc<Mutex<Pipe>>,
    outgoing: Arc<Mutex<Pipe>>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl SimulatedStream {
    pub(super) fn new(incoming: Arc<Mutex<Pipe>>, outgoing: Arc<Mutex<Pipe>>) -> SimulatedStream {
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
        pipe.reader = Some(cx.waker().clone());
        // A reset does not get through either.
        if pipe.link == Link::Silent {
            return Poll::Pending;
        }
        if pipe.end == Some(End::Reset) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
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
        let bytes = match pipe.tamper.as_mut() {
            Some(tamper) => tamper(&buf[..count]),
            None => buf[..count].to_vec(),
        };
        if bytes.is_empty() {
            return Poll::Ready(Ok(count));
        }
        pipe.bytes += bytes.len();
        pipe.chunks.push_back((Instant::now() + latency, bytes.into()));
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

impl Pipe {
    pub(super) fn new(link: Link, tamper: Option<Tamper>) -> Arc<Mutex<Pipe>> {
        Arc::new(Mutex::new(Pipe {
            chunks: VecDeque::new(),
            bytes: 0,
            link,
            end: None,
            reader: None,
            writer: None,
            tamper,
        }))
    }

    pub(super) fn is_open(&self) -> bool {
        self.end.is_none()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn set_link(&mut self, link: Link) {
        self.link = link;
        if link == Link::Refused {
            self.finish(End::Reset);
        }
        self.wake();
    }

    pub(super) fn finish(&mut self, end: End) {
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

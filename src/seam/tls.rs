//! A TLS session over a socket: what is read and written is plaintext, what crosses the socket is not.
//!
//! Stands in the seam because clients and the embedded cluster use it alike. It decides nothing: who is trusted is in the
//! session that it is given.
//!
//! Bytes come in large pieces: the ciphertext is read ahead into a buffer that grows with the traffic, and one read goes on
//! from record to record until the caller's buffer is full or the socket has nothing more. Rustls alone would read, and hand
//! over, 16 KB at a time. What the socket does not take of a write waits in the session, at most [`UNSENT_BYTES_MAX`], and
//! goes out with the next read, write or flush, so whoever writes must also read or flush.

use std::io::{self, BufRead, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Socket;

/// Ciphertext that waits for the socket.
const UNSENT_BYTES_MAX: usize = 256 * 1024;
/// Ciphertext that is read at once while traffic is light; one record.
const AHEAD_BYTES_MIN: usize = 17 * 1024;
/// The same under load.
const AHEAD_BYTES_MAX: usize = 256 * 1024;

/// A socket with a TLS session on it.
pub struct TlsSocket {
    socket: Socket,
    session: Connection,
    ahead: Vec<u8>,
    /// What of `ahead` was read and not yet given to the session.
    unread: std::ops::Range<usize>,
}

impl std::fmt::Debug for TlsSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSocket").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Why a TLS session could not be agreed on.
#[derive(Debug)]
pub enum HandshakeError {
    /// The socket failed; the end of the stream is `UnexpectedEof`.
    Io(io::Error),
    /// The session failed: ours or the peer's refusal.
    Tls(rustls::Error),
}

/// Agrees on a TLS session over `socket`; the caller bounds the time.
pub(super) async fn secure(socket: Socket, session: Connection) -> Result<TlsSocket, HandshakeError> {
    let mut tls = TlsSocket { socket, session, ahead: vec![0; AHEAD_BYTES_MIN], unread: 0..0 };
    tls.session.set_buffer_limit(Some(UNSENT_BYTES_MAX));
    std::future::poll_fn(|cx| tls.poll_handshake(cx)).await?;
    Ok(tls)
}

impl TlsSocket {
    /// The session, for what was agreed on.
    pub fn session(&self) -> &Connection {
        &self.session
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HandshakeError>> {
        loop {
            ready!(self.poll_drain(cx)).map_err(HandshakeError::Io)?;
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if self.unread.is_empty() && ready!(self.poll_fill(cx)).map_err(HandshakeError::Io)? == 0 {
                return Poll::Ready(Err(HandshakeError::Io(io::ErrorKind::UnexpectedEof.into())));
            }
            if let Err(error) = self.feed() {
                // The peer is told why, if the socket takes it at once.
                let _ = self.poll_drain(cx);
                return Poll::Ready(Err(match error.downcast::<rustls::Error>() {
                    Ok(error) => HandshakeError::Tls(error),
                    Err(error) => HandshakeError::Io(error),
                }));
            }
        }
    }

    /// Sends what waits.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Outgoing { socket: &mut self.socket, cx }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads ciphertext ahead; 0 at the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(&mut self.ahead);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer))?;
        let count = buffer.filled().len();
        self.unread = 0..count;
        Poll::Ready(Ok(count))
    }

    /// Gives the session some of what was read ahead.
    fn feed(&mut self) -> io::Result<()> {
        let mut rest = &self.ahead[self.unread.clone()];
        let count = self.session.read_tls(&mut rest)?;
        self.unread.start += count;
        if self.unread.is_empty() && self.unread.end == self.ahead.len() && count > 0 {
            let bytes = (self.ahead.len() * 2).min(AHEAD_BYTES_MAX);
            self.ahead.resize(bytes, 0);
            self.unread = 0..0;
        }
        self.session
            .process_new_packets()
            .map(drop)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Moves plaintext out of the session; whether the peer has closed it.
    fn take_plaintext(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<bool> {
        while buf.remaining() > 0 {
            let mut reader = self.session.reader();
            let count = match reader.fill_buf() {
                Ok([]) => return Ok(true),
                Ok(chunk) => {
                    let count = chunk.len().min(buf.remaining());
                    buf.put_slice(&chunk[..count]);
                    count
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            };
            reader.consume(count);
        }
        Ok(false)
    }

    fn poll_plaintext(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(Err(error)) = self.poll_drain(cx) {
            return Poll::Ready(Err(error));
        }
        let before = buf.filled().len();
        loop {
            let closed = self.take_plaintext(buf)?;
            if closed || buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if self.unread.is_empty() {
                match self.poll_fill(cx) {
                    Poll::Ready(Ok(0)) if buf.filled().len() == before => {
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                    Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) if buf.filled().len() == before => {
                        return Poll::Ready(Err(error));
                    }
                    Poll::Pending if buf.filled().len() == before => return Poll::Pending,
                    // What has come is handed over; what is wrong shows with the next read.
                    Poll::Ready(Err(_)) | Poll::Pending => return Poll::Ready(Ok(())),
                }
            }
            if let Err(error) = self.feed() {
                let _ = self.poll_drain(cx);
                return Poll::Ready(Err(error));
            }
        }
    }
}

impl AsyncRead for TlsSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_plaintext(cx, buf)
    }
}

impl AsyncWrite for TlsSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        let count = this.session.writer().write_vectored(bufs)?;
        match this.poll_drain(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(count)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.session.send_close_notify();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.socket).poll_shutdown(cx)
    }
}

/// The socket as rustls wants to write to it.
struct Outgoing<'a, 'b> {
    socket: &'a mut Socket,
    cx: &'a mut Context<'b>,
}

impl Outgoing<'_, '_> {
    fn blocking(poll: Poll<io::Result<usize>>) -> io::Result<usize> {
        match poll {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Outgoing<'_, '_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Outgoing::blocking(Pin::new(&mut *self.socket).poll_write(self.cx, buf))
    }

    fn write_vectored(&mut self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
        Outgoing::blocking(Pin::new(&mut *self.socket).poll_write_vectored(self.cx, bufs))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

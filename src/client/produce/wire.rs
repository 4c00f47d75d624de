//! The two directions of a produce connection, driven by one owner: requests gather out, replies come whole.
//!
//! Tokio's own vectored write takes 64 slices at a time; requests of many small batches have more.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

use super::envelope::Envelope;
use crate::net::{FrameReader, ReadError};
use crate::seam::Socket;

/// The most slices that one system call takes (`IOV_MAX` of Linux).
const SLICES_MAX: usize = 1024;

/// A socket with what is still to be written to it.
#[derive(Debug)]
pub(super) struct Wire {
    socket: Socket,
    reader: FrameReader,
    outgoing: VecDeque<Bytes>,
}

impl Wire {
    pub(super) fn new(socket: Socket, reply_bytes_max: usize) -> Wire {
        Wire { socket, reader: FrameReader::new(reply_bytes_max), outgoing: VecDeque::new() }
    }

    /// The socket, while nothing is on its way.
    pub(super) fn socket(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// Takes a request to be written after the earlier ones.
    pub(super) fn push(&mut self, envelope: Envelope) {
        self.outgoing.extend(envelope.pieces);
    }

    /// Whether something is still to be written.
    pub(super) fn is_writing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Writes what the socket takes and gives the next reply.
    pub(super) fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, ReadError>> {
        if let Poll::Ready(Err(error)) = self.poll_write(cx) {
            return Poll::Ready(Err(ReadError::Io(error)));
        }
        // The reader keeps what it has, so a future of one poll loses nothing.
        pin!(self.reader.read(&mut self.socket)).poll(cx)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let slices: Vec<_> =
                self.outgoing.iter().take(SLICES_MAX).map(|piece| io::IoSlice::new(piece)).collect();
            let written = std::task::ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, &slices))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(piece) = self.outgoing.front_mut() {
            if written < piece.len() {
                return piece.advance(written);
            }
            written -= piece.len();
            self.outgoing.pop_front();
        }
    }
}

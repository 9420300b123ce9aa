//! What a connection has yet to send: headers and data in order, sent many at once from where
//! they lie.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::link::Transport;
use crate::piece::Piece;

/// Most parts of one vectored write. A quarter of what Linux takes: 128 answers with data.
const SLICES: usize = 256;

/// Longest header: a chunk's, with the offset of its data.
const HEAD: usize = 28;

/// Headers lie in the queue itself: a reference count each would cost more than the copy.
enum Part {
    Head { bytes: [u8; HEAD], from: u8, to: u8 },
    Data(Piece),
}

impl Part {
    fn rest(&self) -> &[u8] {
        match self {
            Part::Head { bytes, from, to } => &bytes[usize::from(*from)..usize::from(*to)],
            Part::Data(data) => data.as_ref(),
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Part::Head { from, .. } => *from += count as u8,
            Part::Data(data) => data.advance(count),
        }
    }
}

/// The queue.
#[derive(Default)]
pub(crate) struct Outbox {
    parts: VecDeque<Part>,
    bytes: u64,
    /// Something was written that a layer below (TLS) may hold back.
    unflushed: bool,
}

impl Outbox {
    /// Appends a header of at most 28 bytes.
    pub(crate) fn head(&mut self, head: &[u8]) {
        let mut bytes = [0; HEAD];
        bytes[..head.len()].copy_from_slice(head);
        self.bytes += head.len() as u64;
        self.parts.push_back(Part::Head { bytes, from: 0, to: head.len() as u8 });
    }

    /// Appends data.
    pub(crate) fn data(&mut self, data: Piece) {
        if !data.is_empty() {
            self.bytes += data.len() as u64;
            self.parts.push_back(Part::Data(data));
        }
    }

    /// Bytes not yet sent.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sends as much as goes; ready when nothing is left.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut (impl Transport + ?Sized),
    ) -> Poll<io::Result<()>> {
        let mut transport = Pin::new(transport);
        while !self.parts.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for (slice, part) in slices.iter_mut().zip(&self.parts) {
                *slice = IoSlice::new(part.rest());
                count += 1;
            }
            let sent = ready!(transport.as_mut().poll_write_vectored(cx, &slices[..count]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unflushed = true;
            self.forget(sent);
        }
        if self.unflushed {
            ready!(transport.poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Drops what was sent.
    fn forget(&mut self, mut sent: usize) {
        self.bytes -= sent as u64;
        while sent > 0 {
            let front = self.parts.front_mut().expect("no more was sent than was there");
            let length = front.rest().len();
            if sent < length {
                front.advance(sent);
                return;
            }
            sent -= length;
            self.parts.pop_front();
        }
    }
}

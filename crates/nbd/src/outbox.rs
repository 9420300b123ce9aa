//! The send queue of a connection: headers and data in order, many of them sent in one write
//! without copying.
//!
//! A frame with unsent data cannot be used for other blocks. Data that a client is slow to take are
//! therefore copied ([`Outbox::settle`]).

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::link::Transport;
use crate::piece::Piece;

/// Most slices of one vectored write: a quarter of Linux's limit, enough for 128 answers with data.
const SLICES: usize = 256;

/// Bytes of the longest header: that of a chunk, with the offset of its data.
const HEAD: usize = 28;

/// A header and the data behind it; either may be empty. Headers are stored in the queue itself,
/// because a reference count for each would cost more than the copy.
struct Part {
    head: [u8; HEAD],
    /// Length of the header.
    end: u8,
    /// Bytes of the header already sent.
    sent: u8,
    /// The charge of its answer, if this is the answer's last part.
    charge: u64,
    data: Piece,
}

impl Part {
    fn head(&self) -> &[u8] {
        &self.head[usize::from(self.sent)..usize::from(self.end)]
    }

    /// Drops the first bytes, fewer than all.
    fn advance(&mut self, count: usize) {
        let of_head = count.min(self.head().len());
        self.sent += of_head as u8;
        self.data.advance(count - of_head);
    }
}

/// The send queue.
#[derive(Default)]
pub(crate) struct Outbox {
    parts: VecDeque<Part>,
    /// Number of parts at the front that were queued before the last `settle`.
    old: usize,
    /// Whether a layer below (TLS) may still hold written bytes.
    unflushed: bool,
}

/// What was sent at once.
#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) bytes: u64,
    /// Charges of the answers that were sent to their ends.
    pub(crate) charge: u64,
    /// Whether nothing is left.
    pub(crate) is_all: bool,
}

impl Outbox {
    /// Appends a header of at most 28 bytes.
    pub(crate) fn head(&mut self, head: &[u8]) {
        self.part(head, Piece::default());
    }

    /// Appends data.
    pub(crate) fn data(&mut self, data: Piece) {
        if !data.is_empty() {
            self.part(&[], data);
        }
    }

    /// Appends a header of at most 28 bytes, and the data behind it.
    #[inline]
    pub(crate) fn part(&mut self, head: &[u8], data: Piece) {
        let mut bytes = [0; HEAD];
        bytes[..head.len()].copy_from_slice(head);
        self.parts.push_back(Part { head: bytes, end: head.len() as u8, sent: 0, charge: 0, data });
    }

    /// Ends an answer: its charge is released when it has been sent.
    #[inline]
    pub(crate) fn charge(&mut self, charge: u64) {
        self.parts.back_mut().expect("an answer has a header").charge = charge;
    }

    /// Copies data in frames that have been waiting since the last call.
    pub(crate) fn settle(&mut self) {
        self.parts.iter_mut().take(self.old).for_each(|part| part.data.leave_frame());
        self.old = self.parts.len();
    }

    /// Frees memory that only a long queue needs.
    pub(crate) fn shrink(&mut self, to: usize) {
        self.parts.shrink_to(to);
    }

    /// Whether all was sent, as far as known here.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Sends as much as possible. If something is left, the task is woken when more can be sent.
    pub(crate) fn send(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut (impl Transport + ?Sized),
    ) -> io::Result<Sent> {
        let (mut transport, mut sent) = (Pin::new(transport), Sent::default());
        while !self.parts.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for part in self.parts.iter().take(SLICES / 2) {
                for bytes in [part.head(), part.data.as_ref()] {
                    slices[count] = IoSlice::new(bytes);
                    count += usize::from(!bytes.is_empty());
                }
            }
            match transport.as_mut().poll_write_vectored(cx, &slices[..count])? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(bytes) => self.forget(bytes, &mut sent),
                Poll::Pending => return Ok(sent),
            }
        }
        if self.unflushed {
            self.unflushed = transport.poll_flush(cx)?.is_pending();
        }
        sent.is_all = !self.unflushed;
        Ok(sent)
    }

    /// Removes what was sent, and counts it.
    fn forget(&mut self, mut bytes: usize, sent: &mut Sent) {
        self.unflushed = true;
        sent.bytes += bytes as u64;
        let mut whole = 0;
        for part in &mut self.parts {
            let length = part.head().len() + part.data.len();
            if bytes < length {
                part.advance(bytes);
                break;
            }
            bytes -= length;
            whole += 1;
            sent.charge += part.charge;
        }
        self.old = self.old.saturating_sub(whole);
        self.parts.drain(..whole);
    }
}

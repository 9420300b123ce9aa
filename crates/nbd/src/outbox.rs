//! The send queue of a connection: headers and data in order, many of them sent in one write
//! without copying.
//!
//! A frame with unsent data cannot be used for other blocks. Data that a client is slow to take are
//! therefore copied ([`Outbox::settle`]).

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

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

    fn len(&self) -> usize {
        self.head().len() + self.data.len()
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
    bytes: u64,
    /// Number of parts at the front that were queued before the last `settle`.
    old: usize,
    /// Charges of answers that have been sent.
    freed: u64,
    /// Whether a layer below (TLS) may still hold written bytes.
    unflushed: bool,
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
        self.bytes += (head.len() + data.len()) as u64;
        self.parts.push_back(Part { head: bytes, end: head.len() as u8, sent: 0, charge: 0, data });
    }

    /// Ends an answer: its charge is released when it has been sent.
    #[inline]
    pub(crate) fn charge(&mut self, charge: u64) {
        match self.parts.back_mut() {
            Some(last) => last.charge += charge,
            None => self.freed += charge,
        }
    }

    /// Charges of the answers sent since the last call.
    pub(crate) fn freed(&mut self) -> u64 {
        std::mem::take(&mut self.freed)
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

    /// Bytes not yet sent.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sends as much as possible; ready when nothing is left.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut (impl Transport + ?Sized),
    ) -> Poll<io::Result<()>> {
        let mut transport = Pin::new(transport);
        while !self.parts.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for part in self.parts.iter().take(SLICES / 2) {
                for bytes in [part.head(), part.data.as_ref()] {
                    slices[count] = IoSlice::new(bytes);
                    count += usize::from(!bytes.is_empty());
                }
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

    /// Removes what was sent.
    fn forget(&mut self, mut sent: usize) {
        self.bytes -= sent as u64;
        let mut whole = 0;
        for part in &mut self.parts {
            let length = part.len();
            if sent < length {
                part.advance(sent);
                break;
            }
            sent -= length;
            whole += 1;
            self.freed += part.charge;
        }
        self.old = self.old.saturating_sub(whole);
        self.parts.drain(..whole);
    }
}

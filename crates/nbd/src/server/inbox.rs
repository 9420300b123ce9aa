//! Splits what a client sends in transmission into requests.
//!
//! Each thread has one large buffer, which is lent to the connection being served. Between turns a
//! connection keeps only its unprocessed bytes. Data of writes are copied to memory of their own,
//! because a slice of the buffer would keep all of it alive. That memory is allocated only as data
//! arrive.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::AsyncReadExt;

use super::offer::{Checked, Misfit, Offer, REQUEST_BYTES};
use crate::link::Transport;
use crate::wire::{CMD_DISC, Malformed, RequestHeader};

/// Bytes read at once: 32 writes of 4 KiB, or 4,600 reads.
const READ: usize = 128 << 10;
/// Bytes read at once while all connections together have more than [`ASIDE_MAX`] unprocessed
/// bytes.
const READ_LITTLE: usize = 4 << 10;
/// The limit for that.
const ASIDE_MAX: usize = 16 << 20;
/// If more than this is missing of a write's data, they are read directly into their own memory.
const SMALL: usize = 32 << 10;
/// Memory for data is allocated in pieces of this size.
const PIECE: usize = 256 << 10;

thread_local! {
    static BUFFER: Cell<Option<BytesMut>> = const { Cell::new(None) };
}

/// The next event from a client.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A request to start.
    Request(RequestHeader, Checked),
    /// A request to refuse.
    Refused(RequestHeader, Misfit),
    /// The client disconnects.
    Disconnect,
}

/// What the next bytes belong to.
enum Expected {
    Header,
    /// A request whose header was read and which has not been admitted.
    Admission(RequestHeader, Checked),
    Data(Payload),
    /// The data of a refused write.
    Skipped {
        header: RequestHeader,
        misfit: Misfit,
        left: u64,
    },
}

/// The data of a write that is arriving.
struct Payload {
    header: RequestHeader,
    checked: Checked,
    /// Complete pieces.
    pieces: Vec<Bytes>,
    /// The piece being filled; its memory is allocated once.
    last: BytesMut,
    missing: usize,
}

/// The receive buffer of a connection.
pub(crate) struct Inbox {
    buffer: BytesMut,
    /// Whether it is the thread's buffer.
    is_lent: bool,
    /// Unprocessed bytes of all connections of the server after their last turns, and those of
    /// this one among them.
    aside: Arc<AtomicUsize>,
    own_aside: usize,
    expected: Expected,
    /// Whether the last write was large; the data of the next one should not be read into the
    /// buffer.
    comes_large: bool,
}

impl Inbox {
    /// Starts with the bytes already read. `aside`: the server's count of unprocessed bytes.
    pub(crate) fn new(buffer: BytesMut, aside: Arc<AtomicUsize>) -> Inbox {
        let (is_lent, expected, comes_large) = (false, Expected::Header, false);
        Inbox { buffer, is_lent, aside, own_aside: 0, expected, comes_large }
    }

    /// Whether the data of a request have arrived in part.
    pub(crate) fn is_amid_data(&self) -> bool {
        matches!(self.expected, Expected::Data(_))
    }

    /// Whether as many bytes wait here as are read at once.
    pub(crate) fn is_laden(&self) -> bool {
        self.buffer.len() >= READ
    }

    /// Reads once. Ready with the number of bytes; 0 at the end of the stream.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut (impl Transport + ?Sized),
    ) -> Poll<io::Result<usize>> {
        use std::future::Future;
        if let Expected::Data(payload) = &mut self.expected {
            if payload.missing > SMALL {
                let room = payload.room();
                let mut room = (&mut payload.last).limit(room);
                let count = ready!(pin!(transport.read_buf(&mut room)).poll(cx))?;
                payload.missing -= count;
                return Poll::Ready(Ok(count));
            }
        }
        self.borrow_buffer();
        let little = self.comes_large || self.aside.load(Ordering::Relaxed) > ASIDE_MAX;
        let mut room = (&mut self.buffer).limit(if little { READ_LITTLE } else { READ });
        pin!(transport.read_buf(&mut room)).poll(cx)
    }

    /// Moves the unprocessed bytes to the thread's buffer, which has more room.
    fn borrow_buffer(&mut self) {
        if !self.is_lent {
            let mut buffer = BUFFER.take().unwrap_or_default();
            buffer.reserve(READ + self.buffer.len());
            buffer.extend_from_slice(&self.buffer);
            self.buffer = buffer;
            self.is_lent = true;
        } else {
            self.buffer.reserve(READ);
        }
    }

    /// Ends the connection's turn: returns the thread's buffer, and counts the bytes that are left.
    pub(crate) fn end_turn(&mut self) {
        if self.is_lent {
            let rest = match self.buffer.len() {
                0 => BytesMut::new(),
                _ => BytesMut::from(&self.buffer[..]),
            };
            let mut buffer = std::mem::replace(&mut self.buffer, rest);
            self.is_lent = false;
            buffer.clear();
            BUFFER.set(Some(buffer));
        }
        let left = self.buffer.len();
        if left != self.own_aside {
            self.aside.fetch_add(left, Ordering::Relaxed);
            self.aside.fetch_sub(self.own_aside, Ordering::Relaxed);
            self.own_aside = left;
        }
    }

    /// The next completely buffered request, or refusal. `admit` charges it if there is room,
    /// before any memory is allocated; if not, it is asked again at the next call.
    ///
    /// # Errors
    /// The stream is out of step.
    #[inline]
    pub(crate) fn next(
        &mut self,
        offer: &Offer,
        mut admit: impl FnMut(u64) -> bool,
    ) -> Result<Option<Incoming>, Malformed> {
        if let Expected::Header = self.expected {
            let Some(bytes) = self.buffer.first_chunk() else { return Ok(None) };
            let header = RequestHeader::parse(bytes)?;
            self.buffer.advance(RequestHeader::SIZE);
            if header.command == CMD_DISC {
                return Ok(Some(Incoming::Disconnect));
            }
            let left = header.payload_length;
            match offer.check(&header) {
                Ok(checked) if left == 0 && admit(checked.charge) => {
                    return Ok(Some(Incoming::Request(header, checked)));
                }
                Ok(checked) => self.expected = Expected::Admission(header, checked),
                Err(misfit) => self.expected = Expected::Skipped { header, misfit, left },
            }
        }
        Ok(self.proceed(admit))
    }

    /// Goes on with a request whose header was read.
    fn proceed(&mut self, mut admit: impl FnMut(u64) -> bool) -> Option<Incoming> {
        match std::mem::replace(&mut self.expected, Expected::Header) {
            Expected::Header => None,
            Expected::Admission(header, checked) if !admit(checked.charge) => {
                self.expected = Expected::Admission(header, checked);
                None
            }
            Expected::Admission(header, checked) if header.payload_length == 0 => {
                Some(Incoming::Request(header, checked))
            }
            Expected::Admission(header, checked) => {
                let missing = usize::try_from(header.payload_length);
                let missing = missing.expect("within the largest payload");
                self.comes_large = missing > SMALL;
                let (pieces, last) = (Vec::new(), BytesMut::new());
                self.take_data(Payload { header, checked, pieces, last, missing })
            }
            Expected::Data(payload) => self.take_data(payload),
            Expected::Skipped { header, misfit, left } => {
                let now = left.min(self.buffer.len() as u64);
                self.buffer.advance(now as usize);
                if now == left && admit(REQUEST_BYTES) {
                    return Some(Incoming::Refused(header, misfit));
                }
                self.expected = Expected::Skipped { header, misfit, left: left - now };
                None
            }
        }
    }

    /// Takes what has arrived of a write's data. Returns the write if that is all of it.
    fn take_data(&mut self, mut payload: Payload) -> Option<Incoming> {
        payload.fill(&mut self.buffer);
        if payload.missing == 0 {
            return Some(payload.complete());
        }
        self.expected = Expected::Data(payload);
        None
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.aside.fetch_sub(self.own_aside, Ordering::Relaxed);
    }
}

impl Payload {
    /// Makes sure that there is memory for the next data; returns how much.
    fn room(&mut self) -> usize {
        if self.last.len() == self.last.capacity() {
            let next = BytesMut::with_capacity(self.missing.min(PIECE));
            let full = std::mem::replace(&mut self.last, next);
            if !full.is_empty() {
                self.pieces.push(full.freeze());
            }
        }
        (self.last.capacity() - self.last.len()).min(self.missing)
    }

    /// Takes data from a buffer.
    fn fill(&mut self, buffer: &mut BytesMut) {
        while self.missing > 0 && !buffer.is_empty() {
            let count = self.room().min(buffer.len());
            self.last.put_slice(&buffer[..count]);
            buffer.advance(count);
            self.missing -= count;
        }
    }

    fn complete(mut self) -> Incoming {
        self.pieces.push(self.last.freeze());
        self.checked.command.fill(self.pieces);
        Incoming::Request(self.header, self.checked)
    }
}

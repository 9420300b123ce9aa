//! Splits what a client sends in transmission into requests.
//!
//! Each thread has one large buffer, which is lent to the connection being served. Between turns a
//! connection keeps only its unprocessed bytes. Data of writes are copied to memory of their own,
//! because a slice of the buffer would keep all of it alive. That memory is allocated only as data
//! arrive.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::AsyncReadExt;

use super::offer::{Checked, Misfit, Offer};
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
    expected: Expected,
    /// Whether the last write was large; the data of the next one should not be read into the
    /// buffer.
    comes_large: bool,
}

impl Inbox {
    /// Starts with the bytes already read.
    pub(crate) fn new(buffer: BytesMut) -> Inbox {
        Inbox { buffer, is_lent: false, expected: Expected::Header, comes_large: false }
    }

    /// Number of bytes read and not processed.
    pub(crate) fn unseen(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the data of a request have arrived in part.
    pub(crate) fn is_amid_data(&self) -> bool {
        matches!(self.expected, Expected::Data(_))
    }

    /// Reads once. Ready with the number of bytes; 0 at the end of the stream. `aside`: unprocessed
    /// bytes of all connections.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut (impl Transport + ?Sized),
        aside: usize,
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
        let little = self.comes_large || aside > ASIDE_MAX;
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

    /// Returns the thread's buffer at the end of the connection's turn.
    pub(crate) fn give_buffer_back(&mut self) {
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
    }

    /// The next completely buffered request. `admit` tells whether there is room for it, before any
    /// memory is allocated; if not, it is asked again at the next call.
    ///
    /// # Errors
    /// The stream is out of step.
    #[inline]
    pub(crate) fn next(
        &mut self,
        offer: &Offer,
        mut admit: impl FnMut(&Checked) -> bool,
    ) -> Result<Option<Incoming>, Malformed> {
        loop {
            if let Expected::Header = self.expected {
                let Some(bytes) = self.buffer.first_chunk() else { return Ok(None) };
                let header = RequestHeader::parse(bytes)?;
                self.buffer.advance(RequestHeader::SIZE);
                if header.command == CMD_DISC {
                    return Ok(Some(Incoming::Disconnect));
                }
                match (offer.check(&header), header.payload_length) {
                    (Ok(checked), 0) if admit(&checked) => {
                        return Ok(Some(Incoming::Request(header, checked)));
                    }
                    (Ok(checked), 0) => {
                        self.expected = Expected::Admission(header, checked);
                        return Ok(None);
                    }
                    (Ok(checked), _) => self.expected = Expected::Admission(header, checked),
                    (Err(misfit), 0) => return Ok(Some(Incoming::Refused(header, misfit))),
                    (Err(misfit), left) => {
                        self.expected = Expected::Skipped { header, misfit, left };
                    }
                }
            }
            match std::mem::replace(&mut self.expected, Expected::Header) {
                Expected::Header => {}
                Expected::Admission(header, checked) => {
                    if !admit(&checked) {
                        self.expected = Expected::Admission(header, checked);
                        return Ok(None);
                    }
                    if header.payload_length == 0 {
                        return Ok(Some(Incoming::Request(header, checked)));
                    }
                    let missing = usize::try_from(header.payload_length);
                    let missing = missing.expect("within the largest payload");
                    self.comes_large = missing > SMALL;
                    let (pieces, last) = (Vec::new(), BytesMut::new());
                    let payload = Payload { header, checked, pieces, last, missing };
                    self.expected = Expected::Data(payload);
                }
                Expected::Data(mut payload) => {
                    payload.fill(&mut self.buffer);
                    if payload.missing == 0 {
                        return Ok(Some(payload.complete()));
                    }
                    self.expected = Expected::Data(payload);
                    return Ok(None);
                }
                Expected::Skipped { header, misfit, left } => {
                    let now = left.min(self.buffer.len() as u64);
                    self.buffer.advance(now as usize);
                    if now == left {
                        return Ok(Some(Incoming::Refused(header, misfit)));
                    }
                    self.expected = Expected::Skipped { header, misfit, left: left - now };
                    return Ok(None);
                }
            }
        }
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

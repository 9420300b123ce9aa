//! What a client sends in transmission, cut into requests.
//!
//! A thread has one large buffer, which the connection that it serves just now reads into. Between
//! turns a connection keeps what it has not looked at, and no more. Data of writes gets memory of
//! its own: a part of a buffer would keep all of it alive. That memory grows only as data comes.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::AsyncReadExt;

use super::offer::{Checked, Misfit, Offer};
use crate::link::Transport;
use crate::wire::{CMD_DISC, Malformed, RequestHeader};

/// Bytes that are read at once: 32 writes of 4 KiB, or 4,600 reads.
const READ: usize = 128 << 10;
/// Bytes that are read at once while the connections together have much that they have not looked
/// at.
const READ_LITTLE: usize = 4 << 10;
/// How much that is.
const ASIDE_MAX: usize = 16 << 20;
/// Data of which more than this is missing is read straight to its own memory.
const SMALL: usize = 32 << 10;
/// Memory for data is taken in pieces of this size.
const PIECE: usize = 256 << 10;

thread_local! {
    static BUFFER: Cell<Option<BytesMut>> = const { Cell::new(None) };
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A request to begin.
    Request(RequestHeader, Checked),
    /// A request to refuse.
    Refused(RequestHeader, Misfit),
    /// The client says good-bye.
    Disconnect,
}

/// What the next bytes belong to.
enum Expected {
    Header,
    /// A request that was announced and is not yet let in.
    Admission(RequestHeader, Checked),
    Data(Payload),
    /// Data of a refused write.
    Skipped {
        header: RequestHeader,
        misfit: Misfit,
        left: u64,
    },
}

/// Data of a write, while it comes.
struct Payload {
    header: RequestHeader,
    checked: Checked,
    /// Those that are whole.
    pieces: Vec<Bytes>,
    /// The one that is being filled; its memory is taken once.
    last: BytesMut,
    missing: usize,
}

/// The buffer of one connection.
pub(crate) struct Inbox {
    buffer: BytesMut,
    /// Whether that is the thread's.
    is_lent: bool,
    expected: Expected,
    /// The last write was a large one: what follows its header had better not go to the buffer.
    comes_large: bool,
}

impl Inbox {
    /// Begins with what was read ahead.
    pub(crate) fn new(buffer: BytesMut) -> Inbox {
        Inbox { buffer, is_lent: false, expected: Expected::Header, comes_large: false }
    }

    /// Bytes that were read and not looked at.
    pub(crate) fn unseen(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the data of a request has come in part.
    pub(crate) fn is_amid_data(&self) -> bool {
        matches!(self.expected, Expected::Data(_))
    }

    /// Reads once; ready with the number of bytes, 0 at the end of the stream. `aside`: what all
    /// connections together have not looked at.
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

    /// What was not looked at goes to the thread's buffer, which has room for more.
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

    /// The connection's turn is over, and another one needs the buffer.
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

    /// The next request that is buffered as a whole. `admit` says whether there is room for it,
    /// before any memory is taken; if there is not, it is asked again the next time.
    ///
    /// # Errors
    /// When the stream is out of step.
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
    /// Sees to it that there is memory for what comes next, and says how much.
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

    /// Takes what there is of it in a buffer.
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

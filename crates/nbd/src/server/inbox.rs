//! What a client sends in transmission, cut into requests. Data of writes stays where it was
//! read to, and large data is read straight to its own memory.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::AsyncReadExt;

use super::offer::{Checked, Misfit, Offer};
use crate::link::Transport;
use crate::service::Command;
use crate::wire::{CMD_DISC, Malformed, RequestHeader};

/// Room that a read is given: 32 writes of 4 KiB, or 4,600 reads.
const READ: usize = 128 << 10;
/// With less room than this left, the buffer is renewed.
const ROOM: usize = 16 << 10;
/// Data up to this size waits in the buffer until it is complete; longer data gets memory of its
/// own.
const SMALL: usize = 32 << 10;
/// Data below this size is copied out of the buffer: a slice would keep all of it alive, and a
/// client could hold a lot of memory with a few bytes.
const COPIED: usize = 4096;

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
    /// Data that lay in the buffer already.
    first: Bytes,
    /// The rest, once there is memory for it.
    own: Option<BytesMut>,
    missing: usize,
}

/// The buffer of one connection.
pub(crate) struct Inbox {
    buffer: BytesMut,
    expected: Expected,
}

impl Inbox {
    /// Begins with what was read ahead.
    pub(crate) fn new(buffer: BytesMut) -> Inbox {
        Inbox { buffer, expected: Expected::Header }
    }

    /// Reads once; ready with the number of bytes, 0 at the end of the stream.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut (impl Transport + ?Sized),
    ) -> Poll<io::Result<usize>> {
        use std::future::Future;
        if let Expected::Data(payload) = &mut self.expected {
            if let Some(own) = &mut payload.own {
                let mut room = own.limit(payload.missing);
                let count = ready!(pin!(transport.read_buf(&mut room)).poll(cx))?;
                payload.missing -= count;
                return Poll::Ready(Ok(count));
            }
        }
        if self.buffer.capacity() - self.buffer.len() < ROOM {
            self.buffer.reserve(READ);
        }
        pin!(transport.read_buf(&mut self.buffer)).poll(cx)
    }

    /// The next complete request that is buffered.
    ///
    /// # Errors
    /// When the stream is out of step.
    #[inline]
    pub(crate) fn next(&mut self, offer: &Offer) -> Result<Option<Incoming>, Malformed> {
        loop {
            if let Expected::Header = self.expected {
                let Some(bytes) = self.buffer.first_chunk() else { return Ok(None) };
                let header = RequestHeader::parse(bytes)?;
                self.buffer.advance(RequestHeader::SIZE);
                if let Some(incoming) = self.begin(header, offer) {
                    return Ok(Some(incoming));
                }
            }
            match std::mem::replace(&mut self.expected, Expected::Header) {
                Expected::Header => {}
                Expected::Data(payload) => return Ok(self.collect(payload)),
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

    /// What a header leads to; nothing yet if data belongs to it.
    #[inline]
    fn begin(&mut self, header: RequestHeader, offer: &Offer) -> Option<Incoming> {
        if header.command == CMD_DISC {
            return Some(Incoming::Disconnect);
        }
        match (offer.check(&header), header.payload_length) {
            (Ok(checked), 0) => return Some(Incoming::Request(header, checked)),
            (Err(misfit), 0) => return Some(Incoming::Refused(header, misfit)),
            (Ok(checked), length) => {
                let missing = usize::try_from(length).expect("within the largest payload");
                let first = Bytes::new();
                self.expected =
                    Expected::Data(Payload { header, checked, first, own: None, missing });
            }
            (Err(misfit), left) => self.expected = Expected::Skipped { header, misfit, left },
        }
        None
    }

    /// Takes what is there of a write's data; the request, once that is all.
    fn collect(&mut self, mut payload: Payload) -> Option<Incoming> {
        if payload.own.is_none() && self.buffer.len() >= payload.missing {
            let data = if payload.missing < COPIED {
                let data = Bytes::copy_from_slice(&self.buffer[..payload.missing]);
                self.buffer.advance(payload.missing);
                data
            } else {
                self.buffer.split_to(payload.missing).freeze()
            };
            return Some(complete(payload.header, payload.checked, vec![data]));
        }
        if payload.own.is_none() && payload.missing <= SMALL {
            self.buffer.reserve((payload.missing - self.buffer.len()).max(ROOM));
        } else if payload.own.is_none() {
            let there = self.buffer.split();
            payload.missing -= there.len();
            let copied = there.len() < COPIED;
            let mut own =
                BytesMut::with_capacity(payload.missing + if copied { there.len() } else { 0 });
            if copied {
                own.put_slice(&there);
            } else {
                payload.first = there.freeze();
            }
            payload.own = Some(own);
        }
        if payload.missing > 0 {
            self.expected = Expected::Data(payload);
            return None;
        }
        let own = payload.own.map(BytesMut::freeze);
        let data = [Some(payload.first), own].into_iter().flatten();
        let data = data.filter(|piece| !piece.is_empty()).collect();
        Some(complete(payload.header, payload.checked, data))
    }
}

fn complete(header: RequestHeader, mut checked: Checked, pieces: Vec<Bytes>) -> Incoming {
    checked.command = Command::Write { data: pieces };
    Incoming::Request(header, checked)
}

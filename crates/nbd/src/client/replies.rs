//! Decodes what a server sends in transmission, and checks it against the requests. A hostile
//! server can fill only memory that callers gave, and only the parts that were requested.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, ReadBuf};

use super::connection::Waiter;
use super::{Buffer, ClientError};
use crate::link::Transport;
use crate::service::Failure;
use crate::wire::*;

/// Bytes of the read buffer: room for 32 answers of 4 KiB.
const READ: usize = 128 << 10;
/// The buffer is renewed when it has less room than this.
const ROOM: usize = 16 << 10;
/// If at least this much of the caller's memory is contiguous, data are read into it directly.
const DIRECT: usize = 32 << 10;

/// A request in flight.
struct Open {
    offset: u64,
    length: u64,
    /// Bytes of data received.
    received: u64,
    /// The first error received.
    error: Option<ClientError>,
    waiter: Waiter,
}

/// All requests in flight. The low half of a cookie is the request's index, the high half counts
/// the uses of that index, so that a repeated answer matches no request.
#[derive(Default)]
pub(super) struct InFlight {
    places: Vec<(u32, Option<Open>)>,
    free: Vec<u32>,
    /// Whether the server has said that it is shutting down.
    pub(super) is_shutting_down: bool,
}

impl InFlight {
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a request; returns its cookie.
    pub(super) fn add(&mut self, offset: u64, length: u64, waiter: Waiter) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let (uses, open) = &mut self.places[place as usize];
        *uses = uses.wrapping_add(1);
        *open = Some(Open { offset, length, received: 0, error: None, waiter });
        u64::from(*uses) << 32 | u64::from(place)
    }

    fn get(&mut self, cookie: u64) -> Result<&mut Open, Malformed> {
        let (uses, place) = ((cookie >> 32) as u32, cookie as u32 as usize);
        match self.places.get_mut(place) {
            Some((now, Some(open))) if *now == uses => Ok(open),
            _ => Err(Malformed::new("an answer that nothing was asked for")),
        }
    }

    /// Completes the answer of a request.
    fn finish(&mut self, cookie: u64) -> Result<(), Malformed> {
        self.get(cookie)?;
        let open = self.places[cookie as u32 as usize].1.take();
        self.free.push(cookie as u32);
        let Some(Open { length, received, error, waiter, .. }) = open else { return Ok(()) };
        let short = match &waiter {
            Waiter::Done(_) => false,
            Waiter::Read { .. } => received < length,
            Waiter::Extents { found, .. } => found.is_empty(),
        };
        match error {
            Some(error) => {
                let failure = Failure::ShuttingDown;
                self.is_shutting_down |=
                    matches!(error, ClientError::Server { failure: told, .. } if told == failure);
                waiter.fail(error);
            }
            None if short => {
                waiter.fail(server_error(Failure::Io, "a part is missing"));
            }
            None => waiter.finish(Ok(())),
        }
        Ok(())
    }

    /// Removes all requests.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        self.free.clear();
        std::mem::take(&mut self.places).into_iter().filter_map(|(_, open)| Some(open?.waiter))
    }
}

/// Data that are being received into a caller's memory.
#[derive(Clone, Copy)]
struct Data {
    cookie: u64,
    /// Position of the next byte: index of the buffer, and offset in it.
    buffer: usize,
    within: usize,
    left: usize,
    /// Whether these data complete the answer.
    last: bool,
}

/// What the next received bytes are.
enum Expected {
    Header,
    Data(Data),
    /// The payload of a chunk other than data.
    Payload(Chunk, ChunkHeader),
}

/// The receive buffer of a connection.
pub(super) struct Replies {
    buffer: BytesMut,
    expected: Expected,
    structured: bool,
    contexts: Vec<u32>,
}

impl Replies {
    /// Starts with the bytes already read.
    pub(super) fn new(buffer: BytesMut, structured: bool, contexts: Vec<u32>) -> Replies {
        Replies { buffer, expected: Expected::Header, structured, contexts }
    }

    /// Reads once, and passes on all answers that are complete then.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut (impl Transport + ?Sized),
        in_flight: &mut InFlight,
    ) -> Poll<Result<(), ClientError>> {
        while self.step(in_flight)? {}
        let count = match self.poll_direct(cx, transport, in_flight)? {
            Some(direct) => ready!(direct)?,
            None => {
                let wanted = match &self.expected {
                    Expected::Payload(_, header) => header.length as usize,
                    _ => ROOM,
                };
                if self.buffer.capacity() - self.buffer.len() < ROOM {
                    self.buffer.reserve(READ.max(wanted));
                }
                ready!(pin!(transport.read_buf(&mut self.buffer)).poll(cx))?
            }
        };
        if count == 0 {
            return Poll::Ready(Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()));
        }
        while self.step(in_flight)? {}
        Poll::Ready(Ok(()))
    }

    /// Reads directly into the caller's memory, if enough of the next bytes belong there.
    fn poll_direct(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut (impl Transport + ?Sized),
        in_flight: &mut InFlight,
    ) -> Result<Option<Poll<io::Result<usize>>>, ClientError> {
        let Expected::Data(mut data) = self.expected else { return Ok(None) };
        let open = in_flight.get(data.cookie)?;
        let room = room(open, &data);
        if room.len() < DIRECT || !self.buffer.is_empty() {
            return Ok(None);
        }
        let mut room = ReadBuf::new(room);
        let poll = Pin::new(transport).poll_read(cx, &mut room);
        let count = room.filled().len();
        if let Poll::Ready(Ok(())) = poll {
            advance(open, &mut data, count);
        }
        self.expected = Expected::Data(data);
        Ok(Some(poll.map(|result| result.map(|()| count))))
    }

    /// Processes one message or a part of its data; returns false if more bytes are needed.
    fn step(&mut self, in_flight: &mut InFlight) -> Result<bool, ClientError> {
        match self.expected {
            Expected::Header => {
                let Some((header, size)) = ReplyHeader::parse(&self.buffer)? else {
                    return Ok(false);
                };
                match header {
                    ReplyHeader::Simple { error, cookie } => {
                        self.buffer.advance(size);
                        self.simple(error, cookie, in_flight)?;
                    }
                    ReplyHeader::Chunk(header) => return self.chunk(header, in_flight),
                }
                Ok(true)
            }
            Expected::Data(mut data) => {
                let open = in_flight.get(data.cookie)?;
                while data.left > 0 && !self.buffer.is_empty() {
                    let room = room(open, &data);
                    let count = room.len().min(self.buffer.len());
                    room[..count].copy_from_slice(&self.buffer[..count]);
                    self.buffer.advance(count);
                    advance(open, &mut data, count);
                }
                self.expected = Expected::Data(data);
                if data.left > 0 {
                    return Ok(false);
                }
                self.expected = Expected::Header;
                if data.last {
                    in_flight.finish(data.cookie)?;
                }
                Ok(true)
            }
            Expected::Payload(kind, header) => {
                if self.buffer.len() < header.length as usize {
                    return Ok(false);
                }
                let payload = self.buffer.split_to(header.length as usize);
                self.expected = Expected::Header;
                self.payload(kind, header, &payload, in_flight)?;
                if header.flags & CHUNK_DONE != 0 {
                    in_flight.finish(header.cookie)?;
                }
                Ok(true)
            }
        }
    }

    fn simple(
        &mut self,
        error: u32,
        cookie: u64,
        in_flight: &mut InFlight,
    ) -> Result<(), ClientError> {
        let open = in_flight.get(cookie)?;
        let plain = matches!(open.waiter, Waiter::Done(_));
        if self.structured && !plain {
            return Err(Malformed::new("a simple reply where only chunks may be").into());
        }
        if open.received > 0 || open.error.is_some() {
            return Err(Malformed::new("a simple reply after chunks").into());
        }
        if error != 0 {
            open.error = Some(server_error(Failure::from_number(error), ""));
        } else if !plain {
            self.expected =
                Expected::Data(begin_data(cookie, open, open.offset, open.length, true)?);
            return Ok(());
        }
        Ok(in_flight.finish(cookie)?)
    }

    /// Starts a chunk whose header is at the front of the buffer; returns false if more bytes are
    /// needed.
    fn chunk(
        &mut self,
        header: ChunkHeader,
        in_flight: &mut InFlight,
    ) -> Result<bool, ClientError> {
        if !self.structured {
            return Err(Malformed::new("a chunk that was not agreed on").into());
        }
        let kind = header.check()?;
        let open = in_flight.get(header.cookie)?;
        let last = header.flags & CHUNK_DONE != 0;
        let fits = match kind {
            Chunk::None => last,
            Chunk::Data | Chunk::Hole => matches!(open.waiter, Waiter::Read { .. }),
            Chunk::Extents => matches!(open.waiter, Waiter::Extents { .. }),
            Chunk::Error => true,
        };
        if !fits {
            return Err(Malformed::new("a chunk that does not fit its request").into());
        }
        if kind != Chunk::Data {
            self.buffer.advance(ReplyHeader::CHUNK_SIZE);
            self.expected = Expected::Payload(kind, header);
            return Ok(true);
        }
        let Some(offset) = self.buffer[ReplyHeader::CHUNK_SIZE..].first_chunk() else {
            return Ok(false);
        };
        let offset = u64::from_be_bytes(*offset);
        let length = u64::from(header.length) - 8;
        self.expected = Expected::Data(begin_data(header.cookie, open, offset, length, last)?);
        self.buffer.advance(ReplyHeader::CHUNK_SIZE + 8);
        Ok(true)
    }

    /// Handles a complete chunk other than data.
    fn payload(
        &self,
        kind: Chunk,
        header: ChunkHeader,
        payload: &[u8],
        in_flight: &mut InFlight,
    ) -> Result<(), Malformed> {
        let open = in_flight.get(header.cookie)?;
        match (kind, &mut open.waiter) {
            (Chunk::Hole, Waiter::Read { .. }) => {
                let mut fields = Fields::new(payload);
                let (offset, length) = (fields.u64()?, u64::from(fields.u32()?));
                let mut data = begin_data(header.cookie, open, offset, length, false)?;
                while data.left > 0 {
                    let room = room(open, &data);
                    room.fill(0);
                    let count = room.len();
                    advance(open, &mut data, count);
                }
            }
            (Chunk::Extents, Waiter::Extents { found, .. }) => {
                let (context, extents) = parse_extents(payload)?;
                let known = self.contexts.contains(&context);
                if !known || found.iter().any(|(other, _)| *other == context) {
                    return Err(Malformed::new("extents of a context not asked for, or twice"));
                }
                found.push((context, extents));
            }
            (Chunk::Error, _) => {
                let (error, text) = parse_error_chunk(header.kind, payload)?;
                if error == 0 {
                    return Err(Malformed::new("an error chunk without an error"));
                }
                open.error.get_or_insert(server_error(Failure::from_number(error), &text));
            }
            _ => {}
        }
        Ok(())
    }
}

fn server_error(failure: Failure, text: &str) -> ClientError {
    ClientError::Server { failure, text: text.to_owned() }
}

/// Checks that data lie within their request, and are not more than requested.
fn begin_data(
    cookie: u64,
    open: &mut Open,
    offset: u64,
    length: u64,
    last: bool,
) -> Result<Data, Malformed> {
    let at = offset.checked_sub(open.offset);
    let at = at.filter(|at| at.checked_add(length).is_some_and(|end| end <= open.length));
    let Some(at) = at.filter(|_| length > 0 && open.received + length <= open.length) else {
        return Err(Malformed::new("data that was not asked for"));
    };
    open.received += length;
    let mut data = Data { cookie, buffer: 0, within: at as usize, left: length as usize, last };
    skip_full(buffers(open), &mut data);
    Ok(data)
}

fn buffers(open: &mut Open) -> &mut [Buffer] {
    match &mut open.waiter {
        Waiter::Read { into, .. } => into,
        _ => &mut [],
    }
}

/// Advances the position to a buffer with room for the next byte.
fn skip_full(buffers: &mut [Buffer], data: &mut Data) {
    while let Some(buffer) = buffers.get_mut(data.buffer) {
        let length = (**buffer).as_mut().len();
        if data.within < length {
            return;
        }
        data.within -= length;
        data.buffer += 1;
    }
}

/// Contiguous memory for the next bytes; empty only if nothing is left.
fn room<'a>(open: &'a mut Open, data: &Data) -> &'a mut [u8] {
    let buffer = (*buffers(open)[data.buffer]).as_mut();
    let end = buffer.len().min(data.within.saturating_add(data.left));
    &mut buffer[data.within..end]
}

fn advance(open: &mut Open, data: &mut Data, count: usize) {
    data.within += count;
    data.left -= count;
    if data.left > 0 {
        skip_full(buffers(open), data);
    }
}

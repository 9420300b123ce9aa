//! Encodes answers: as simple replies, or as chunks of structured ones.

use bytes::{BufMut, Bytes, BytesMut};

use super::offer::Offer;
use crate::command::AnswerKind;
use crate::generation;
use crate::outbox::Outbox;
use crate::piece::Pieces;
use crate::reply::{Answer, Ticket};
use crate::service::{Extent, Failure};
use crate::wire::*;

/// Most bytes of an error text.
const MAX_TEXT: usize = 1024;

/// Most extents of a context in one answer; the charge of a request includes them.
const EXTENTS_TOLD: usize = 2048;

/// Largest extent with a 32-bit length, in whole blocks of any size.
const MAX_EXTENT: u64 = (1 << 32) - (1 << 16);

/// Appends the answer to a request, and its charge; an answer that does not fit the request becomes
/// EIO.
#[inline]
pub(crate) fn put_answer(out: &mut Outbox, offer: &Offer, ticket: &Ticket, answer: Answer) {
    match (answer, ticket.wants) {
        (Answer::Failed(failure, text), _) => {
            put_failure(out, offer, ticket.cookie, failure, &text)
        }
        (Answer::Done, AnswerKind::Done) => out.head(&ReplyHeader::simple(0, ticket.cookie)),
        (Answer::Data(pieces), AnswerKind::Data) => put_data(out, offer, ticket, pieces),
        (Answer::Start(pieces), AnswerKind::Data) => put_start(out, offer, ticket, pieces),
        (Answer::Extents(contexts), AnswerKind::Extents) => {
            match status_chunks(offer, ticket, &contexts) {
                Ok(chunks) => put_status(out, ticket.cookie, chunks),
                Err(text) => put_failure(out, offer, ticket.cookie, Failure::Io, text),
            }
        }
        _ => {
            let text = "the export gave an answer of the wrong kind";
            put_failure(out, offer, ticket.cookie, Failure::Io, text);
        }
    }
    out.charge(ticket.charge);
}

/// Appends an error. Clients with structured replies receive the text.
pub(crate) fn put_failure(
    out: &mut Outbox,
    offer: &Offer,
    cookie: u64,
    failure: Failure,
    text: &str,
) {
    if !offer.structured {
        out.head(&ReplyHeader::simple(failure.number(), cookie));
        return;
    }
    let text = cut(text, MAX_TEXT);
    let length = 6 + text.len() as u32;
    let header = ChunkHeader { flags: CHUNK_DONE, kind: CHUNK_ERROR, cookie, length };
    let mut head = [0; ReplyHeader::CHUNK_SIZE + 6];
    head[..20].copy_from_slice(&header.bytes());
    head[20..24].copy_from_slice(&failure.number().to_be_bytes());
    head[24..].copy_from_slice(&(text.len() as u16).to_be_bytes());
    out.head(&head);
    out.data(Bytes::copy_from_slice(text.as_bytes()).into());
}

fn put_data(out: &mut Outbox, offer: &Offer, ticket: &Ticket, pieces: Pieces) {
    let length = pieces.len();
    if length != ticket.length {
        let text = format!("the export gave {length} of {} bytes", ticket.length);
        put_failure(out, offer, ticket.cookie, Failure::Io, &text);
        return;
    }
    if offer.structured {
        put_chunk(out, CHUNK_DONE, ticket, pieces);
    } else {
        put_pieces(out, &ReplyHeader::simple(0, ticket.cookie), pieces);
    }
}

/// Appends data as one chunk.
fn put_chunk(out: &mut Outbox, flags: u16, ticket: &Ticket, pieces: Pieces) {
    let (kind, length) = (CHUNK_DATA, 8 + pieces.len() as u32);
    let header = ChunkHeader { flags, kind, cookie: ticket.cookie, length };
    let mut head = [0; ReplyHeader::CHUNK_SIZE + 8];
    head[..20].copy_from_slice(&header.bytes());
    head[20..].copy_from_slice(&ticket.offset.to_be_bytes());
    put_pieces(out, &head, pieces);
}

/// Appends a header and pieces; the first piece shares the header's part.
#[inline]
fn put_pieces(out: &mut Outbox, head: &[u8], pieces: Pieces) {
    match pieces {
        Pieces::One(piece) => out.part(head, piece),
        Pieces::Several(pieces) => {
            out.head(head);
            pieces.into_iter().for_each(|piece| out.data(piece));
        }
    }
}

/// Appends the given data as one chunk, and the zeroes behind them as a hole.
fn put_start(out: &mut Outbox, offer: &Offer, ticket: &Ticket, mut pieces: Pieces) {
    let length = pieces.len();
    let rest = ticket.length.saturating_sub(length);
    if !offer.structured || rest == 0 {
        if rest > 0 {
            pieces.push(Bytes::from(vec![0; rest as usize]).into());
        }
        return put_data(out, offer, ticket, pieces);
    }
    if length > 0 {
        put_chunk(out, 0, ticket, pieces);
    }
    let (flags, kind) = (CHUNK_DONE, CHUNK_HOLE);
    let header = ChunkHeader { flags, kind, cookie: ticket.cookie, length: 12 };
    out.head(&header.bytes());
    let mut hole = BytesMut::with_capacity(12);
    hole.put_u64(ticket.offset + length);
    hole.put_u32(rest as u32);
    out.data(hole.freeze().into());
}

/// The payloads of the chunks, one for each selected context.
fn status_chunks(
    offer: &Offer,
    ticket: &Ticket,
    contexts: &[(u32, Vec<Extent>)],
) -> Result<Vec<Bytes>, &'static str> {
    let mut chunks = Vec::with_capacity(offer.contexts.len());
    for (id, key) in (1u32..).zip(&offer.contexts) {
        // The context of connection series has no status for blocks.
        let nothing = [Extent { length: ticket.length, status: 0 }];
        let found = contexts.iter().find(|(given, _)| given == key);
        let extents = match found {
            Some((_, extents)) => extents,
            None if *key == generation::KEY => &nothing[..],
            None => return Err("the export left out a context"),
        };
        let mut chunk = BytesMut::with_capacity(4 + 8 * extents.len().min(EXTENTS_TOLD));
        chunk.put_u32(id);
        put_extents(&mut chunk, offer, ticket, extents)?;
        chunks.push(chunk.freeze());
    }
    Ok(chunks)
}

/// Appends extents up to the end of the request. The last one may continue to the end of the
/// export, unless the client wants one extent only.
fn put_extents(
    chunk: &mut BytesMut,
    offer: &Offer,
    ticket: &Ticket,
    extents: &[Extent],
) -> Result<(), &'static str> {
    let end = ticket.offset + ticket.length;
    let (limit, most) = if ticket.one_extent { (end, 1) } else { (offer.size, EXTENTS_TOLD) };
    let mut at = ticket.offset;
    for extent in extents.iter().take(most) {
        if at >= end {
            break;
        }
        if extent.length == 0 {
            return Err("the export gave an empty extent");
        }
        let length = extent.length.min(limit - at);
        let told = length.min(MAX_EXTENT);
        chunk.put_u32(told as u32);
        chunk.put_u32(extent.status);
        at += told;
        if told < length {
            break;
        }
    }
    if at == ticket.offset { Err("the export gave no extent") } else { Ok(()) }
}

fn put_status(out: &mut Outbox, cookie: u64, chunks: Vec<Bytes>) {
    let last = chunks.len() - 1;
    for (index, chunk) in chunks.into_iter().enumerate() {
        let flags = if index == last { CHUNK_DONE } else { 0 };
        let length = chunk.len() as u32;
        let header = ChunkHeader { flags, kind: CHUNK_BLOCK_STATUS, cookie, length };
        out.head(&header.bytes());
        out.data(chunk.into());
    }
}

/// Cuts a text to at most `most` bytes, at a character boundary. (`floor_char_boundary` needs a
/// newer Rust than the oldest supported one.)
fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

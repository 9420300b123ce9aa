//! The messages of the transmission phase: the headers of requests and replies, and the payloads of
//! chunks that are not data.

use bytes::Buf;

use super::{
    CHUNK_BLOCK_STATUS, CHUNK_DATA, CHUNK_ERROR_OFFSET, CHUNK_HOLE, CHUNK_IS_ERROR, CHUNK_MAGIC,
    CHUNK_NONE, Fields, MAX_EXTENTS, MAX_STRING, Malformed, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC,
};
use crate::command::CommandInfo;
use crate::service::Extent;

/// The fields of a request's header, not yet checked against any export.
///
/// The lengths of the affected range and of the payload are separate 64-bit fields, as in the
/// protocol's extended headers; compact headers have one 32-bit length for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// `CMD_FLAG_*`.
    pub flags: u16,
    /// `CMD_*`.
    pub command: u16,
    /// The number by which the client identifies the request.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Length of the affected range in bytes.
    pub length: u64,
    /// Length of the payload in bytes.
    pub payload_length: u64,
}

impl RequestHeader {
    /// Bytes of a compact header.
    pub const SIZE: usize = 28;

    /// Parses a compact header.
    ///
    /// # Errors
    /// It does not begin with the magic number: the stream is out of step.
    #[inline]
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Result<RequestHeader, Malformed> {
        let mut fields = &bytes[..];
        let magic = fields.get_u32();
        if magic != REQUEST_MAGIC {
            return Err(Malformed::new(format!(
                "a request begins with {magic:#010x} instead of {REQUEST_MAGIC:#010x}"
            )));
        }
        let (flags, command) = (fields.get_u16(), fields.get_u16());
        let (cookie, offset) = (fields.get_u64(), fields.get_u64());
        let length = u64::from(fields.get_u32());
        let has_payload = CommandInfo::of(command).is_some_and(|info| info.has_payload);
        let payload_length = if has_payload { length } else { 0 };
        Ok(RequestHeader { flags, command, cookie, offset, length, payload_length })
    }

    /// Encodes a compact header. The length must fit 32 bits.
    pub fn bytes(&self) -> [u8; Self::SIZE] {
        debug_assert!(self.length <= u64::from(u32::MAX));
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&(self.length as u32).to_be_bytes());
        bytes
    }
}

/// The header of a reply of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHeader {
    /// A simple reply; the data of a successful read follows.
    Simple {
        /// 0 for success.
        error: u32,
        /// The cookie of the request.
        cookie: u64,
    },
    /// A chunk of a structured reply; `length` bytes follow.
    Chunk(ChunkHeader),
}

/// The header of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// `CHUNK_DONE` or nothing.
    pub flags: u16,
    /// `CHUNK_*`.
    pub kind: u16,
    /// The cookie of the request.
    pub cookie: u64,
    /// Length of the payload in bytes.
    pub length: u32,
}

impl ReplyHeader {
    /// Bytes of a simple reply's header.
    pub const SIMPLE_SIZE: usize = 16;
    /// Bytes of a chunk's header.
    pub const CHUNK_SIZE: usize = 20;

    /// Parses the header at the front of `bytes`, and returns it with its length; `None` if bytes
    /// are missing.
    ///
    /// # Errors
    /// The bytes begin with neither magic number: the stream is out of step.
    pub fn parse(bytes: &[u8]) -> Result<Option<(ReplyHeader, usize)>, Malformed> {
        if bytes.len() < Self::SIMPLE_SIZE {
            return Ok(None);
        }
        let mut fields = Fields::new(bytes);
        match fields.u32()? {
            SIMPLE_REPLY_MAGIC => {
                let (error, cookie) = (fields.u32()?, fields.u64()?);
                Ok(Some((ReplyHeader::Simple { error, cookie }, Self::SIMPLE_SIZE)))
            }
            CHUNK_MAGIC if bytes.len() < Self::CHUNK_SIZE => Ok(None),
            CHUNK_MAGIC => {
                let (flags, kind) = (fields.u16()?, fields.u16()?);
                let (cookie, length) = (fields.u64()?, fields.u32()?);
                let header = ChunkHeader { flags, kind, cookie, length };
                Ok(Some((ReplyHeader::Chunk(header), Self::CHUNK_SIZE)))
            }
            magic => Err(Malformed::new(format!("a reply begins with {magic:#010x}"))),
        }
    }

    /// Encodes the header of a simple reply.
    pub fn simple(error: u32, cookie: u64) -> [u8; Self::SIMPLE_SIZE] {
        let mut bytes = [0; Self::SIMPLE_SIZE];
        bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&error.to_be_bytes());
        bytes[8..].copy_from_slice(&cookie.to_be_bytes());
        bytes
    }
}

impl ChunkHeader {
    /// Encodes the header.
    pub fn bytes(&self) -> [u8; ReplyHeader::CHUNK_SIZE] {
        let mut bytes = [0; ReplyHeader::CHUNK_SIZE];
        bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// The chunk's kind, with its length checked.
    ///
    /// # Errors
    /// The length is impossible for the kind, or the kind is unknown and not an error.
    pub fn check(&self) -> Result<Chunk, Malformed> {
        let length = self.length as usize;
        let (kind, fits) = match self.kind {
            CHUNK_NONE => (Chunk::None, length == 0),
            CHUNK_DATA => (Chunk::Data, length > 8),
            CHUNK_HOLE => (Chunk::Hole, length == 12),
            CHUNK_BLOCK_STATUS => {
                (Chunk::Extents, length % 8 == 4 && (12..=4 + 8 * MAX_EXTENTS).contains(&length))
            }
            // An unknown kind of error may have further fields behind its text, which are ignored.
            kind if kind & CHUNK_IS_ERROR != 0 => {
                (Chunk::Error, (6..=6 + MAX_STRING + 64).contains(&length))
            }
            kind => return Err(Malformed::new(format!("a chunk of the unknown kind {kind}"))),
        };
        if fits {
            Ok(kind)
        } else {
            Err(Malformed::new(format!("a chunk of kind {} cannot have {length} bytes", self.kind)))
        }
    }
}

/// The kinds of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// No payload.
    None,
    /// u64 offset, then at least one byte of data.
    Data,
    /// u64 offset, u32 length of zeroes.
    Hole,
    /// u32 context, then extents.
    Extents,
    /// u32 error, text, and possibly more.
    Error,
}

/// Parses the payload of an error chunk: the error's number, and its text.
///
/// # Errors
/// The lengths in it do not fit.
pub fn parse_error_chunk(kind: u16, payload: &[u8]) -> Result<(u32, String), Malformed> {
    let mut fields = Fields::new(payload);
    let error = fields.u32()?;
    let length = usize::from(fields.u16()?);
    let message = String::from_utf8_lossy(fields.take(length)?).into_owned();
    if kind == CHUNK_ERROR_OFFSET {
        fields.u64()?;
    }
    Ok((error, message))
}

/// Parses the payload of a block status chunk: the context's id, and its extents.
///
/// # Errors
/// An extent is empty, or the length does not fit.
pub fn parse_extents(payload: &[u8]) -> Result<(u32, Vec<Extent>), Malformed> {
    let mut fields = Fields::new(payload);
    let context = fields.u32()?;
    let mut extents = Vec::with_capacity(payload.len() / 8);
    for pair in fields.rest().chunks(8) {
        let mut pair = Fields::new(pair);
        let extent = Extent { length: u64::from(pair.u32()?), status: pair.u32()? };
        if extent.length == 0 {
            return Err(Malformed::new("an empty extent"));
        }
        extents.push(extent);
    }
    Ok((context, extents))
}

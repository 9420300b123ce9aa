//! The encoding of the protocol: its numbers, and conversion between bytes and checked types.
//!
//! Not here: sockets, the order of messages, what a server offers. No received length is trusted:
//! parsers get the bytes that are present, and report what is wrong with them.

mod message;
mod numbers;
mod option;

use std::io;

pub use message::{
    Chunk, ChunkHeader, ReplyHeader, RequestHeader, parse_error_chunk, parse_extents,
};
pub use numbers::*;
pub use option::{
    ContextQuery, Greeting, InfoReply, InfoRequest, OptionHeader, OptionReplyHeader, put_option,
    put_option_reply, put_string,
};

/// The error of bytes that violate the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Malformed {
    what: String,
}

impl Malformed {
    pub(crate) fn new(what: impl Into<String>) -> Malformed {
        Malformed { what: what.into() }
    }

    /// A description of what is wrong.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl From<Malformed> for io::Error {
    fn from(malformed: Malformed) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, malformed)
    }
}

/// Reads big-endian numbers and strings from the front of a message, never beyond its end.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { rest: bytes }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| {
            let there = self.rest.len();
            Malformed::new(format!("a message ends too soon: {there} bytes where {count} belong"))
        })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// A string with its 32-bit length in front.
    pub(crate) fn string(&mut self) -> Result<String, Malformed> {
        let length = self.u32()? as usize;
        text(self.take(length)?)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn end(&self) -> Result<(), Malformed> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(Malformed::new(format!("{more} bytes too many in a message"))),
        }
    }
}

/// The protocol's strings: UTF-8, at most 4096 bytes, no NUL.
pub(crate) fn text(bytes: &[u8]) -> Result<String, Malformed> {
    if bytes.len() > MAX_STRING {
        let length = bytes.len();
        return Err(Malformed::new(format!("a string of {length} bytes; {MAX_STRING} at most")));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
        Ok(_) => Err(Malformed::new("a string holds a NUL")),
        Err(_) => Err(Malformed::new("a string is not UTF-8")),
    }
}

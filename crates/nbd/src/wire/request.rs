//! The header of a request.

use super::{Fields, Malformed, REQUEST_MAGIC};
use crate::command::CommandInfo;

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
        let mut fields = Fields::new(bytes);
        let magic = fields.u32()?;
        if magic != REQUEST_MAGIC {
            return Err(Malformed::new(format!(
                "a request begins with {magic:#010x} instead of {REQUEST_MAGIC:#010x}"
            )));
        }
        let (flags, command) = (fields.u16()?, fields.u16()?);
        let (cookie, offset) = (fields.u64()?, fields.u64()?);
        let length = u64::from(fields.u32()?);
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

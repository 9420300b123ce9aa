//! The arithmetic of splitting: which blocks a request touches, and where in the client's memory
//! each of them lies. Nothing here knows of chunks, samples or dense numbers.

use super::{BlockOptions, MIN_BLOCK_BYTES, Origin};
use crate::Error;
use crate::record::{Meta, Record, Unit};
use crate::renumber::MAX_BLOCKS;

/// The blocks that a request touches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) first: u64,
    pub(super) blocks: u64,
    /// Bytes by which the request begins inside its first block.
    skip: u32,
}

/// The arithmetic of splitting, with everything that depends on the trace and the options only.
#[derive(Debug)]
pub(super) struct Splitter {
    block_bytes: u32,
    /// Bytes that one step of an address means; none if one number is one block.
    unit_bytes: Option<u32>,
    /// log2 of `block_bytes` where that is a whole number: shifts are cheaper than divisions.
    shift: Option<u32>,
}

impl Splitter {
    pub(super) fn new(meta: &Meta, options: &BlockOptions) -> Result<Self, Error> {
        let BlockOptions { block_bytes, unit_bytes, .. } = *options;
        if block_bytes < MIN_BLOCK_BYTES {
            return Err(Error::Format(format!(
                "block size {block_bytes} bytes: expected at least {MIN_BLOCK_BYTES}"
            )));
        }
        let unit_bytes = match (meta.unit, unit_bytes) {
            (_, Some(0)) => {
                return Err(Error::Format("unit 0 bytes: expected at least 1".into()));
            }
            (Unit::Bytes, Some(_)) => {
                return Err(Error::Format(format!(
                    "format {} gives addresses in bytes already: no unit can be set",
                    meta.format
                )));
            }
            (Unit::Bytes, None) => Some(1),
            (Unit::Blocks, unit) => unit,
        };
        let shift = block_bytes.is_power_of_two().then(|| block_bytes.trailing_zeros());
        Ok(Self { block_bytes, unit_bytes, shift })
    }

    /// The blocks that a request touches; none if they are none or cannot be numbered.
    #[inline]
    pub(super) fn split(&self, record: &Record) -> Option<Span> {
        let &Record { address, length, .. } = record;
        let last = address.checked_add(length.checked_sub(1)?)?;
        let (first_block, last_block, skip) = match self.unit_bytes {
            None => (address, last, 0),
            Some(unit) => {
                let first_byte = address.checked_mul(u64::from(unit))?;
                let last_byte =
                    last.checked_mul(u64::from(unit))?.checked_add(u64::from(unit - 1))?;
                let first_block = self.block_of_byte(first_byte);
                let last_block = self.block_of_byte(last_byte);
                let skip = first_byte - first_block * u64::from(self.block_bytes);
                (first_block, last_block, skip as u32)
            }
        };
        let more = last_block - first_block;
        let span = Span { first: first_block, blocks: more.wrapping_add(1), skip };
        (more < u64::from(MAX_BLOCKS)).then_some(span)
    }

    /// Block of an address that [`Splitter::split`] did not refuse.
    #[inline]
    pub(super) fn block(&self, address: u64) -> u64 {
        match self.unit_bytes {
            None => address,
            Some(unit) => self.block_of_byte(address * u64::from(unit)),
        }
    }

    #[inline]
    fn block_of_byte(&self, byte: u64) -> u64 {
        match self.shift {
            Some(shift) => byte >> shift,
            None => byte / u64::from(self.block_bytes),
        }
    }

    /// Origin of the i-th block of a span, which is the `position`-th reference of the trace.
    pub(super) fn origin(&self, record: &Record, span: &Span, i: u64, position: u64) -> Origin {
        let offset = match i {
            0 => 0,
            _ => i * u64::from(self.block_bytes) - u64::from(span.skip),
        };
        // An address near the top of memory is the recorder's business: never panic over it.
        Origin {
            space: record.space,
            time_ns: record.time_ns,
            buffer: record.buffer.map(|at| at.wrapping_add(offset)),
            client: record.client,
            position,
        }
    }
}

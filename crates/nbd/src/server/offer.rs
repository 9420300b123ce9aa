//! What a session was offered, and the check of requests against that.

use crate::command::{AnswerKind, Command, CommandInfo, Cost, Length};
use crate::service::{ExportInfo, Failure};
use crate::wire::{CMD_FLAG_REQ_ONE, READ_ONLY, RequestHeader};

/// What is fixed for a session since its handshake.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) size: u64,
    /// The transmission flags that the client was told.
    pub(crate) flags: u16,
    pub(crate) min_block: u64,
    pub(crate) max_payload: u64,
    /// Binary logarithm of the preferred block size.
    block_bits: u32,
    pub(crate) structured: bool,
    /// Keys of the selected contexts; a context's id on the wire is its index here plus 1.
    pub(crate) contexts: Vec<u32>,
}

/// A valid request; a write's data are still to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) command: Command,
    pub(crate) wants: AnswerKind,
    /// See [`Command::BlockStatus`].
    pub(crate) one_extent: bool,
    /// Bytes of memory that it may hold until its answer has been sent.
    pub(crate) charge: u64,
    /// Its weight in the limit of requests in flight.
    pub(crate) weight: usize,
    /// Number of blocks that it reads or writes, at least 1: its cost in a turn.
    pub(crate) work: u64,
}

/// Memory that any request needs besides its data, in the protocol, the volume, the store and the
/// runtime.
pub(crate) const REQUEST_BYTES: u64 = 4096;

/// Memory for the answer to a BLOCK_STATUS, per context.
const STATUS_BYTES: u64 = 64 << 10;

/// Weight of a TRIM or WRITE_ZEROES: other requests of the volume must check whether they lie in
/// its range.
const RANGE_WEIGHT: usize = 64;

/// Weight of a BLOCK_STATUS, which may cost the store much work.
const STATUS_WEIGHT: usize = 16;

/// Why a request is invalid.
pub(crate) type Misfit = (Failure, &'static str);

/// Largest minimum block size that the protocol allows.
const MAX_MIN_BLOCK: u32 = 64 << 10;

impl Offer {
    /// The offer for an export.
    ///
    /// # Errors
    /// The export's sizes violate the protocol.
    pub(crate) fn new(
        info: &ExportInfo,
        structured: bool,
        contexts: Vec<u32>,
    ) -> Result<Offer, String> {
        let (min, preferred, max) = (info.min_block, info.preferred_block, info.max_block);
        if !min.is_power_of_two() || min > MAX_MIN_BLOCK {
            return Err(format!("min_block {min}: must be a power of two up to {MAX_MIN_BLOCK}"));
        }
        if !preferred.is_power_of_two() || preferred < min {
            return Err(format!("preferred_block {preferred}: must be a power of two >= {min}"));
        }
        if max < preferred || max % min != 0 {
            return Err(format!("max_block {max}: must be a multiple of {min} >= {preferred}"));
        }
        if info.size % u64::from(min) != 0 || i64::try_from(info.size).is_err() {
            let size = info.size;
            return Err(format!("size {size}: must be a multiple of {min} below 2^63"));
        }
        let flags = info.flags.to_wire(structured);
        let (size, min_block, max_payload) = (info.size, u64::from(min), u64::from(max));
        let block_bits = preferred.trailing_zeros();
        Ok(Offer { size, flags, min_block, max_payload, block_bits, structured, contexts })
    }

    /// Checks a request against the offer.
    ///
    /// # Errors
    /// The error that the protocol demands.
    #[inline]
    pub(crate) fn check(&self, header: &RequestHeader) -> Result<Checked, Misfit> {
        let unknown = (Failure::Invalid, "unknown command");
        let info = CommandInfo::of(header.command).ok_or(unknown)?;
        self.check_command(info)?;
        if header.flags & !info.allowed_flags(self.flags) != 0 {
            return Err((Failure::Invalid, "a flag that was not offered for this command"));
        }
        self.check_range(info, header)?;
        let command = (info.from_flags)(header.flags);
        let (wants, one_extent) = (info.answer, header.flags & CMD_FLAG_REQ_ONE != 0);
        let (charge, weight, work) = self.costs(info.cost, header);
        Ok(Checked { command, wants, one_extent, charge, weight, work })
    }

    /// Charge, weight and work of a request. Data are charged in whole blocks, because the server
    /// keeps whole blocks for them.
    #[inline]
    fn costs(&self, cost: Cost, header: &RequestHeader) -> (u64, usize, u64) {
        match cost {
            Cost::Request => (REQUEST_BYTES, 1, 1),
            Cost::Blocks => {
                let first = header.offset >> self.block_bits;
                let last = (header.offset + header.length - 1) >> self.block_bits;
                let blocks = last - first + 1;
                (REQUEST_BYTES + (blocks << self.block_bits), 1, blocks)
            }
            Cost::Range => (REQUEST_BYTES, RANGE_WEIGHT, 1),
            Cost::RangeWithEnds => {
                let block_bytes = 1 << self.block_bits;
                (REQUEST_BYTES + 2 * block_bytes, RANGE_WEIGHT, 1)
            }
            Cost::Contexts => {
                let contexts = self.contexts.len() as u64;
                (REQUEST_BYTES + contexts * STATUS_BYTES, STATUS_WEIGHT, 1)
            }
        }
    }

    fn offers(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    fn check_command(&self, info: &CommandInfo) -> Result<(), Misfit> {
        if info.answer == AnswerKind::Extents && self.contexts.is_empty() {
            return Err((Failure::Invalid, "no metadata context was selected"));
        }
        if info.changes && self.offers(READ_ONLY) {
            return Err((Failure::NotPermitted, "the export is read-only"));
        }
        let is_offered = info.offered_by == 0 || self.offers(info.offered_by);
        if is_offered { Ok(()) } else { Err((Failure::Invalid, "the command was not offered")) }
    }

    #[inline]
    fn check_range(&self, info: &CommandInfo, header: &RequestHeader) -> Result<(), Misfit> {
        let (offset, length) = (header.offset, header.length);
        if info.length == Length::None {
            let whole = offset == 0 && length == 0;
            return if whole { Ok(()) } else { Err((Failure::Invalid, "a flush has no range")) };
        }
        if length == 0 {
            return Err((Failure::Invalid, "an empty range"));
        }
        if info.length == Length::Payload && length > self.max_payload {
            return Err((Failure::Invalid, "longer than the largest payload"));
        }
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            let failure = if info.needs_space { Failure::NoSpace } else { Failure::Invalid };
            return Err((failure, "the range passes the end of the export"));
        }
        if (offset | length) & (self.min_block - 1) != 0 {
            return Err((Failure::Invalid, "the range does not keep to the smallest block"));
        }
        Ok(())
    }
}

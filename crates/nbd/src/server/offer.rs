//! What a session was offered, and which requests fit it.

use crate::reply::Wants;
use crate::service::{Command, ExportInfo, Failure};
use crate::wire::*;

/// What holds for one session from its handshake on.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) size: u64,
    /// The transmission flags that the client was told.
    pub(crate) flags: u16,
    pub(crate) min_block: u64,
    pub(crate) max_payload: u64,
    /// Bits of an offset within a block of the preferred size.
    block_bits: u32,
    pub(crate) structured: bool,
    /// Keys of the selected contexts; on the wire a context's id is its place here, from 1.
    pub(crate) contexts: Vec<u32>,
}

/// A request that fits; a write's data is still to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) command: Command,
    pub(crate) wants: Wants,
    /// Bytes of memory that it may pin until its answer was sent.
    pub(crate) charge: u64,
    /// Requests that it counts for, of those that may be in flight.
    pub(crate) weight: usize,
    /// Blocks that it moves, at least 1: what it costs to serve.
    pub(crate) work: u64,
}

/// Memory that any request takes besides its data: what the protocol, the volume, the store and the
/// runtime remember of it.
pub(crate) const REQUEST_BYTES: u64 = 4096;

/// Memory that the answer to a BLOCK_STATUS takes for each context.
const STATUS_BYTES: u64 = 64 << 10;

/// Requests that a TRIM or WRITE_ZEROES counts for: others of the volume have to look whether they
/// lie in its range.
const RANGE_WEIGHT: usize = 64;

/// Requests that a BLOCK_STATUS counts for, since the store may have to look at much.
const STATUS_WEIGHT: usize = 16;

/// Why a request does not fit.
pub(crate) type Misfit = (Failure, &'static str);

/// Largest smallest-unit that the protocol allows.
const MAX_MIN_BLOCK: u32 = 64 << 10;

impl Offer {
    /// What to offer of an export.
    ///
    /// # Errors
    /// When the export says of itself what the protocol does not allow.
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
        let flags = transmission_flags(info, structured);
        let (size, min_block, max_payload) = (info.size, u64::from(min), u64::from(max));
        let block_bits = preferred.trailing_zeros();
        Ok(Offer { size, flags, min_block, max_payload, block_bits, structured, contexts })
    }

    /// Checks a request against what was offered.
    ///
    /// # Errors
    /// The answer that the protocol wants instead.
    #[inline]
    pub(crate) fn check(&self, header: &RequestHeader) -> Result<Checked, Misfit> {
        self.check_command(header.command)?;
        self.check_flags(header)?;
        self.check_range(header)?;
        let (command, wants) = match header.command {
            CMD_READ => (Command::Read { one_chunk: header.flags & CMD_FLAG_DF != 0 }, Wants::Data),
            CMD_WRITE => (Command::Write { data: Vec::new() }, Wants::Nothing),
            CMD_FLUSH => (Command::Flush, Wants::Nothing),
            CMD_TRIM => (Command::Trim, Wants::Nothing),
            CMD_CACHE => (Command::Cache, Wants::Nothing),
            CMD_WRITE_ZEROES => {
                let keep_allocated = header.flags & CMD_FLAG_NO_HOLE != 0;
                let fast = header.flags & CMD_FLAG_FAST_ZERO != 0;
                (Command::WriteZeroes { keep_allocated, fast }, Wants::Nothing)
            }
            _ => {
                let one = header.flags & CMD_FLAG_REQ_ONE != 0;
                (Command::BlockStatus { one_extent: one }, Wants::Extents { one })
            }
        };
        let (charge, weight, work) = self.costs(header);
        Ok(Checked { command, wants, charge, weight, work })
    }

    /// What a request is charged, counts for, and costs. What it reads or writes is charged in
    /// whole blocks, since these are what is kept for it.
    #[inline]
    fn costs(&self, header: &RequestHeader) -> (u64, usize, u64) {
        let block_bytes = 1 << self.block_bits;
        match header.command {
            CMD_READ | CMD_WRITE => {
                let first = header.offset >> self.block_bits;
                let last = (header.offset + header.length - 1) >> self.block_bits;
                let blocks = last - first + 1;
                (REQUEST_BYTES + (blocks << self.block_bits), 1, blocks)
            }
            // Its ends may lie within blocks.
            CMD_WRITE_ZEROES => (REQUEST_BYTES + 2 * block_bytes, RANGE_WEIGHT, 1),
            CMD_TRIM => (REQUEST_BYTES, RANGE_WEIGHT, 1),
            CMD_BLOCK_STATUS => {
                let contexts = self.contexts.len() as u64;
                (REQUEST_BYTES + contexts * STATUS_BYTES, STATUS_WEIGHT, 1)
            }
            _ => (REQUEST_BYTES, 1, 1),
        }
    }

    fn offers(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    fn check_command(&self, command: u16) -> Result<(), Misfit> {
        let offered = match command {
            CMD_READ | CMD_WRITE | CMD_FLUSH => true,
            CMD_TRIM => self.offers(SEND_TRIM),
            CMD_WRITE_ZEROES => self.offers(SEND_WRITE_ZEROES),
            CMD_CACHE => self.offers(SEND_CACHE),
            CMD_BLOCK_STATUS if self.contexts.is_empty() => {
                return Err((Failure::Invalid, "no metadata context was selected"));
            }
            CMD_BLOCK_STATUS => true,
            _ => return Err((Failure::Invalid, "unknown command")),
        };
        let changes = matches!(command, CMD_WRITE | CMD_TRIM | CMD_WRITE_ZEROES);
        if changes && self.offers(READ_ONLY) {
            return Err((Failure::NotPermitted, "the export is read-only"));
        }
        if offered { Ok(()) } else { Err((Failure::Invalid, "the command was not offered")) }
    }

    /// FUA is allowed on every command once offered.
    #[inline]
    fn check_flags(&self, header: &RequestHeader) -> Result<(), Misfit> {
        let allowed = match header.command {
            CMD_READ if self.offers(SEND_DF) => CMD_FLAG_DF,
            CMD_WRITE_ZEROES if self.offers(SEND_FAST_ZERO) => {
                CMD_FLAG_NO_HOLE | CMD_FLAG_FAST_ZERO
            }
            CMD_WRITE_ZEROES => CMD_FLAG_NO_HOLE,
            CMD_BLOCK_STATUS => CMD_FLAG_REQ_ONE,
            _ => 0,
        };
        if header.flags & !(allowed | CMD_FLAG_FUA) != 0 {
            return Err((Failure::Invalid, "a flag that was not offered for this command"));
        }
        Ok(())
    }

    #[inline]
    fn check_range(&self, header: &RequestHeader) -> Result<(), Misfit> {
        let (offset, length) = (header.offset, header.length);
        if header.command == CMD_FLUSH {
            let whole = offset == 0 && length == 0;
            return if whole { Ok(()) } else { Err((Failure::Invalid, "a flush has no range")) };
        }
        if length == 0 {
            return Err((Failure::Invalid, "an empty range"));
        }
        if matches!(header.command, CMD_READ | CMD_WRITE) && length > self.max_payload {
            return Err((Failure::Invalid, "longer than the largest payload"));
        }
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            let adds = matches!(header.command, CMD_WRITE | CMD_WRITE_ZEROES);
            let failure = if adds { Failure::NoSpace } else { Failure::Invalid };
            return Err((failure, "the range passes the end of the export"));
        }
        if (offset | length) & (self.min_block - 1) != 0 {
            return Err((Failure::Invalid, "the range does not keep to the smallest block"));
        }
        Ok(())
    }
}

fn transmission_flags(info: &ExportInfo, structured: bool) -> u16 {
    let can = info.flags;
    let changes = !can.read_only;
    let flag = |on: bool, flag: u16| if on { flag } else { 0 };
    HAS_FLAGS
        | SEND_FLUSH
        | SEND_FUA
        | flag(structured, SEND_DF)
        | flag(can.read_only, READ_ONLY)
        | flag(can.rotational, ROTATIONAL)
        | flag(can.trim && changes, SEND_TRIM)
        | flag(can.write_zeroes && changes, SEND_WRITE_ZEROES)
        | flag(can.write_zeroes && can.fast_zero && changes, SEND_FAST_ZERO)
        | flag(can.multi_conn, CAN_MULTI_CONN)
        | flag(can.cache, SEND_CACHE)
}

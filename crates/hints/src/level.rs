//! What levels of a movement scheme tell each other about single blocks: with a request, with a
//! block that moves down, and in an answer. The numbers are as received; the level itself must
//! reject impossible values.
//!
//! Not here: the types [`Bid`], [`Load`] and [`Pass`] of `undercroft_cache::movement`. The records
//! here carry them and convert back to them.

use bytes::{BufMut, BytesMut};
use undercroft_cache::movement::{Bid, Load, Pass};

use crate::parse::{Malformed, Reader};
use crate::record::BLOCKS_MAX;

/// What a level tells about its next request for a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The block, below 2^48.
    pub block: u64,
    /// References made by clients since the last record with such a count, up to and including the
    /// reference that causes this request.
    pub references: u32,
    /// Life of the asking cache in references (PROMOTE), 0 if it has none yet.
    pub life: u32,
    /// Total capacity, in blocks, of all caches from the client down to and including the asking
    /// one.
    pub above_blocks: u32,
    /// Number of these caches.
    pub above_levels: u8,
    /// Activity of the least active block that could make room (Hint-K), if there is one.
    pub least: Option<u16>,
    /// Whether the asking cache has a free place, so that no block must leave.
    pub has_room: bool,
    /// A cache above keeps the block: the request moves nothing.
    pub is_held: bool,
}

const HAS_ROOM: u8 = 1;
const HAS_LEAST: u8 = 1 << 1;
const IS_HELD: u8 = 1 << 2;

impl Asked {
    /// A request of a level with its bid; numbers that are too large are clamped. `above`: total
    /// blocks, and number, of all caches from the client down to and including the asking one.
    pub fn new(block: u64, bid: Bid, above: (u32, u8), is_held: bool) -> Asked {
        Asked {
            block,
            references: 0,
            life: u32::try_from(bid.life).unwrap_or(u32::MAX),
            above_blocks: above.0,
            above_levels: above.1,
            least: bid.least.map(|least| u16::try_from(least).unwrap_or(u16::MAX)),
            has_room: bid.has_room,
            is_held,
        }
    }

    /// The bid of the asking level.
    pub fn bid(&self) -> Bid {
        let Asked { has_room, least, life, .. } = *self;
        Bid { has_room, least: least.map(u32::from), life: life.into() }
    }

    pub(crate) fn put(&self, out: &mut BytesMut) {
        debug_assert!(self.block < BLOCKS_MAX);
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        out.put_u64(self.block);
        out.put_u32(self.references);
        out.put_u32(self.life);
        out.put_u32(self.above_blocks);
        out.put_u16(self.least.unwrap_or(0));
        out.put_u8(self.above_levels);
        let least = bit(self.least.is_some(), HAS_LEAST);
        out.put_u8(bit(self.has_room, HAS_ROOM) | least | bit(self.is_held, IS_HELD));
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Asked, Malformed> {
        let (block, references, life) = (reader.block()?, reader.u32()?, reader.u32()?);
        let (above_blocks, least) = (reader.u32()?, reader.u16()?);
        let [above_levels, bits] = reader.array()?;
        reader.done()?;
        Ok(Asked {
            block,
            references,
            life,
            above_blocks,
            above_levels,
            least: (bits & HAS_LEAST != 0).then_some(least),
            has_room: bits & HAS_ROOM != 0,
            is_held: bits & IS_HELD != 0,
        })
    }
}

/// The movement state that goes down with a block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moves {
    /// Hint frequency: F of HFA.
    pub frequency: f64,
    /// References made by clients since the last record with such a count ([`Asked`] or this one).
    pub references: u32,
    /// The last moves of the block as Hint-K remembers them.
    pub history: u8,
    /// Whether blocks may come up in exchange.
    pub exchanges: bool,
}

/// Bytes that a level appends to a FREQ record.
pub(crate) const MOVES_BYTES: usize = 16;

impl Moves {
    /// The record for a block that moves down with this load; `references` is 0.
    pub fn new(load: Load, exchanges: bool) -> Moves {
        let Load { frequency, history } = load;
        Moves { frequency, references: 0, history, exchanges }
    }

    /// The load of the block that moves down.
    pub fn load(&self) -> Load {
        Load { frequency: self.frequency, history: self.history }
    }

    pub(crate) fn put(&self, out: &mut BytesMut) {
        out.put_f64(self.frequency);
        out.put_u32(self.references);
        out.put_u8(self.history);
        out.put_u8(u8::from(self.exchanges));
        out.put_u16(0);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Moves, Malformed> {
        let (frequency, references) = (f64::from_bits(reader.u64()?), reader.u32()?);
        let [history, exchanges] = reader.array()?;
        reader.u16()?;
        Ok(Moves { frequency, references, history, exchanges: exchanges & 1 != 0 })
    }
}

/// The state of a block on its way up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It comes from the disk, or was written, and no cache keeps it yet.
    #[default]
    Fresh,
    /// A cache below gave it up.
    Moved,
    /// A cache below keeps it.
    Kept,
    /// It was not requested: it comes up in exchange, and its data must be read next.
    Exchanged,
}

/// A block on its way up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passed {
    /// The block, below 2^48.
    pub block: u64,
    /// Its state.
    pub verdict: Verdict,
    /// Hint frequency that goes with the block.
    pub frequency: f64,
    /// Hint frequency of the block at the level that answers.
    pub nearest: f64,
    /// The last moves of the block as Hint-K remembers them.
    pub history: u8,
}

impl Passed {
    /// The record for an answer about `block`.
    pub fn new(block: u64, pass: Pass) -> Passed {
        let none = Passed { block, ..Passed::default() };
        match pass {
            Pass::Fresh { nearest } => Passed { verdict: Verdict::Fresh, nearest, ..none },
            Pass::Moved { load: Load { frequency, history }, nearest } => {
                Passed { verdict: Verdict::Moved, frequency, nearest, history, ..none }
            }
            Pass::Kept => Passed { verdict: Verdict::Kept, ..none },
        }
    }

    /// The answer as the asking level takes it.
    pub fn pass(&self) -> Pass {
        let nearest = self.nearest;
        match self.verdict {
            Verdict::Fresh => Pass::Fresh { nearest },
            Verdict::Moved => Pass::Moved { load: self.load(), nearest },
            Verdict::Kept | Verdict::Exchanged => Pass::Kept,
        }
    }

    /// The load that goes with the block.
    pub fn load(&self) -> Load {
        Load { frequency: self.frequency, history: self.history }
    }

    /// Bytes of the record, including its head.
    pub const BYTES: usize = 40;

    const VERDICTS: [Verdict; 4] =
        [Verdict::Fresh, Verdict::Moved, Verdict::Kept, Verdict::Exchanged];

    pub(crate) fn put(&self, out: &mut BytesMut) {
        debug_assert!(self.block < BLOCKS_MAX);
        out.put_u64(self.block);
        out.put_f64(self.frequency);
        out.put_f64(self.nearest);
        out.put_u8(self.verdict as u8);
        out.put_u8(self.history);
        out.put_bytes(0, 6);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Passed, Malformed> {
        let block = reader.block()?;
        let (frequency, nearest) = (reader.u64()?, reader.u64()?);
        let (byte, [verdict, history]) = (reader.at, reader.array()?);
        reader.array::<6>()?;
        reader.done()?;
        let what = "a verdict on a block that is none of those known";
        let verdict = *Self::VERDICTS.get(usize::from(verdict)).ok_or(Malformed { byte, what })?;
        let (frequency, nearest) = (f64::from_bits(frequency), f64::from_bits(nearest));
        Ok(Passed { block, verdict, frequency, nearest, history })
    }
}

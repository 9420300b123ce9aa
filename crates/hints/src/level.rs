//! What levels of a scheme of movement say to each other of single blocks: with a request, with a
//! block that goes down, and in answer. Numbers here are as they were sent; what cannot be true is
//! for the level to judge.
//!
//! Not here: what a level says and takes ([`Bid`], [`Load`] and [`Pass`] of
//! `undercroft_cache::movement`). These records carry it, and give it back.

use bytes::{BufMut, BytesMut};
use undercroft_cache::movement::{Bid, Load, Pass};

use crate::parse::{Malformed, Reader};
use crate::record::BLOCKS_MAX;

/// What is said of the request for a block that follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The block, below 2^48.
    pub block: u64,
    /// References that clients have made since this was said last, the one that this belongs to
    /// included.
    pub references: u32,
    /// Life of the asking cache in references (PROMOTE), 0 if it has none yet.
    pub life: u32,
    /// Blocks of all caches on the way from the client down to the asking one, and its own.
    pub above_blocks: u32,
    /// Number of these caches.
    pub above_levels: u8,
    /// Activity of the least active block that could make room (Hint-K), if there is one.
    pub least: Option<u16>,
    /// Whether the asking cache has a place that nobody would have to leave.
    pub has_room: bool,
    /// The block is kept above: nothing is to be moved for the request.
    pub is_held: bool,
}

const HAS_ROOM: u8 = 1;
const HAS_LEAST: u8 = 1 << 1;
const IS_HELD: u8 = 1 << 2;

impl Asked {
    /// A request of a level, with what it bids; numbers that are too large are clamped. `above`:
    /// blocks of all caches from the client down to the asking one, and how many these are.
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

    /// What the asking level bids.
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

/// How a block that goes down has moved so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moves {
    /// Hint frequency: F of HFA.
    pub frequency: f64,
    /// References of clients since this or an [`Asked`] was said last.
    pub references: u32,
    /// The last moves of the block as Hint-K remembers them.
    pub history: u8,
    /// Whether blocks may come up in exchange.
    pub exchanges: bool,
}

/// Bytes that a level appends to FREQ.
pub(crate) const MOVES_BYTES: usize = 16;

impl Moves {
    /// What goes down with a block.
    pub fn new(load: Load, exchanges: bool) -> Moves {
        let Load { frequency, history } = load;
        Moves { frequency, references: 0, history, exchanges }
    }

    /// What came down with a block.
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

/// What is said of a block on its way up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It comes from the disk, or was written, and nobody keeps it yet.
    #[default]
    Fresh,
    /// A cache below gave it up.
    Moved,
    /// A cache below keeps it.
    Kept,
    /// Nobody asked: it comes up in exchange, and its data is to be read next.
    Exchanged,
}

/// A block on its way up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passed {
    /// The block, below 2^48.
    pub block: u64,
    /// What becomes of it.
    pub verdict: Verdict,
    /// Hint frequency that goes with it.
    pub frequency: f64,
    /// Hint frequency of the block at the answering level.
    pub nearest: f64,
    /// The last moves of the block as Hint-K remembers them.
    pub history: u8,
}

impl Passed {
    /// What an answer says of a block.
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

    /// What a level takes the answer to its request for.
    pub fn pass(&self) -> Pass {
        let nearest = self.nearest;
        match self.verdict {
            Verdict::Fresh => Pass::Fresh { nearest },
            Verdict::Moved => Pass::Moved { load: self.load(), nearest },
            Verdict::Kept | Verdict::Exchanged => Pass::Kept,
        }
    }

    /// What goes with the block.
    pub fn load(&self) -> Load {
        Load { frequency: self.frequency, history: self.history }
    }

    /// Bytes of the record with its head.
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

//! One level of a scheme, and what it and its neighbours say to each other. A level knows nothing
//! else of them: it is asked for a block, lets an answer pass, takes in what comes down, and says
//! what leaves it.
//!
//! A simulation stacks such levels up in one process (`stack.rs`). A server or a client runs one of
//! them behind an index (`remote.rs`), and messages carry to other processes what is said here.
//!
//! Not here: what a level decides by (`hfa/`, `hint_k.rs`), and the data of the blocks.

use super::Gauges;
use crate::Entry;

/// What a level tells the one below it with a request that it cannot serve.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bid {
    /// Whether it has a place that nobody would have to leave.
    pub has_room: bool,
    /// Activity of the least active block that could make room (Hint-K), if there is one.
    pub least: Option<u32>,
    /// Its life (PROMOTE): references between the last uses of its newest and its oldest block; 0
    /// while it is not full.
    pub life: u64,
}

/// The level above that asks for a block. A client asks without one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Upper {
    /// Which of the levels above, where there are several.
    pub(super) number: u16,
    /// What it says with the request.
    pub(super) bid: Bid,
}

/// What is known of a block where it comes from, and goes with it to another level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Hint frequency: F of HFA.
    pub frequency: f64,
    /// The last moves of the block as Hint-K remembers them, 0 of none.
    pub history: u8,
}

/// A reference to a block that the levels below have answered, on the block's way up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passing {
    /// The block.
    pub(super) entry: Entry,
    /// Whether it is written, and not read.
    pub(super) is_write: bool,
    /// The level above that asks for it; none: a client does.
    pub(super) upper: Option<u16>,
    /// Whose it is: the number of the client, as far as that is known.
    pub(super) owner: u16,
}

/// What an answer says of its block on the way up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pass {
    /// It comes from the disk, or was written, and nobody keeps it yet.
    Fresh {
        /// F of the block at the nearest level below: whether a block may come up in exchange for
        /// this one later.
        nearest: f64,
    },
    /// A cache below gave it up.
    Moved {
        /// What goes with it.
        load: Load,
        /// F of the block at the nearest level below.
        nearest: f64,
    },
    /// A cache below keeps it.
    Kept,
}

/// A block that left a level, not upwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Evicted {
    /// The block.
    pub(super) entry: Entry,
    /// Whose it is.
    pub(super) owner: u16,
    /// What goes with it one level down; none: it is gone.
    pub(super) load: Option<Load>,
    /// Whether the levels below may send blocks up for what comes down.
    pub(super) exchanges: bool,
    /// Whether it may come to that at the next level.
    pub(super) awaits: bool,
}

/// A block that goes one level up, unasked for, in exchange for one that came down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Promoted {
    /// The block.
    pub(super) entry: Entry,
    /// Whose it is: it goes up the way to there.
    pub(super) owner: u16,
    /// What goes with it.
    pub(super) load: Load,
}

/// A block that comes down from a level above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Demoted {
    /// The block.
    pub(super) entry: Entry,
    /// Whose it is.
    pub(super) owner: u16,
    /// What came with it.
    pub(super) load: Load,
    /// Whether a block may go up for it.
    pub(super) exchanges: bool,
}

/// What a level is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct LevelConfig<'a> {
    /// Blocks that it may hold.
    pub(super) capacity: u32,
    /// Bytes of a block.
    pub(super) block_bytes: u32,
    /// Whether there may be levels above it.
    pub(super) has_upper: bool,
    /// Whether a level is below, and not the disk.
    pub(super) has_lower: bool,
    /// Blocks of all levels on the longest way of a client through it.
    pub(super) way_blocks: u64,
    /// Start of its random numbers.
    pub(super) seed: u64,
    /// Numbers to be drawn before random ones.
    pub(super) draws: &'a [f64],
}

/// One level of a scheme. It knows blocks by entries, of which it is given no more than it and its
/// neighbours hold and remember.
///
/// Contract, checked by the tests of this crate: a block that the level is told to take is here
/// afterwards; at most one block leaves at a call. Time is references of clients, wherever they are
/// served.
pub(super) trait SchemeLevel: Send {
    /// Makes entries below `entries` valid.
    fn grow(&mut self, entries: u32);

    /// References begin, all of which but the last are over at once.
    fn begin_references(&mut self, references: u64) {
        let _ = references;
    }

    /// The last reference is over, if that was not known yet.
    fn end_reference(&mut self) {}

    /// What it says to the level below with a request.
    fn bid(&self) -> Bid;

    /// A level above asks for a block, which may be here or not.
    fn hear(&mut self, upper: Upper) {
        let _ = upper;
    }

    /// Who stands above: blocks of all caches on the way of the level of that number, its own
    /// included, and how many caches these are.
    fn introduce(&mut self, upper: u16, blocks: u64, levels: u16) {
        let _ = (upper, blocks, levels);
    }

    /// Blocks of all levels on the way through this one; heard only before the first reference.
    fn measure_way(&mut self, blocks: u64) {
        let _ = blocks;
    }

    /// A reference to a block that is here, by a client or through a level above.
    fn serve(
        &mut self,
        entry: Entry,
        is_write: bool,
        upper: Option<Upper>,
    ) -> (Pass, Option<Evicted>);

    /// The block of a reference that was not served here comes up. If it stays, `Kept` is said
    /// further up.
    fn pass(&mut self, passing: Passing, pass: Pass) -> (Pass, Option<Evicted>);

    /// A block comes down from a level above. If a hotness is answered,
    /// [`exchange`](Self::exchange) is to be called with it when the evicted block has been dealt
    /// with.
    fn demoted(&mut self, demoted: Demoted) -> (Option<f64>, Option<Evicted>);

    /// The block that goes up for one that came down as hot as that, if `rises` says that the level
    /// of its owner is above.
    fn exchange(
        &mut self,
        entry: Entry,
        hotness: f64,
        rises: &dyn Fn(u16) -> bool,
    ) -> Option<Promoted> {
        let _ = (entry, hotness, rises);
        None
    }

    /// A block comes up from below that nobody here has asked for.
    fn exchanged(&mut self, promoted: Promoted) -> Option<Evicted>;

    /// Forgets that a block is here: nobody has its content any more.
    fn discard(&mut self, entry: Entry);

    /// Whether a block is here.
    fn holds(&self, entry: Entry) -> bool;

    /// Whether anything is remembered of a block that is not here.
    fn remembers(&self, entry: Entry) -> bool {
        let _ = entry;
        false
    }

    /// Most blocks of which something is remembered that are not here.
    fn remembered_max(&self) -> u32 {
        0
    }

    /// Number of blocks that are here.
    fn len(&self) -> u32;

    /// Its parts, where it has such.
    fn gauges(&self) -> Option<Gauges> {
        None
    }

    /// As [`Scheme::overhead_bytes`](super::Scheme::overhead_bytes).
    fn overhead_bytes(&self) -> u64;

    /// The moves that were counted here, where they are kept: (block, slot).
    fn take_log(&mut self) -> Option<Vec<(Entry, u64)>> {
        None
    }

    /// As [`Scheme::describe`](super::Scheme::describe), with the blocks that `block` names.
    fn describe(&self, block: &dyn Fn(Entry) -> u32) -> Vec<(&'static str, String)>;

    /// Recounts everything.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    fn validate(&self) -> Result<(), String>;
}

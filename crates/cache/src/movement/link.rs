//! What crosses the link between two levels, and a level as a type that knows nothing else of its
//! neighbours: it is asked for a block, lets an answer pass, takes in what comes down, and says
//! what leaves it. In a simulation the levels of a hierarchy are composed in one process
//! (`stack.rs`); a server and a client run one each (`linked.rs`), and the rest goes over a wire.
//! Records of blocks and the clock belong to the process and are handed in (`shared.rs`).
//!
//! Not here: what a level decides by (`hfa/`, `hint_k.rs`), what data goes where.

use super::Gauges;
use super::shared::{AtHand, Shared};
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

/// Who asks a level for a block: the level above it of that number. It has nothing to do with who
/// the client is; a client asks without one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Upper {
    /// Which of the levels above, where there are several.
    pub(super) number: u16,
    /// What it said.
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

/// A block that passes a level on its way up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passing {
    /// The block.
    pub(super) entry: Entry,
    /// Whether it is written, and not read.
    pub(super) is_write: bool,
    /// The level above that asks for it; none: a client does.
    pub(super) upper: Option<u16>,
    /// Whose it is.
    pub(super) owner: u16,
    /// Whether F at the nearest level below is said further up: where an exchange comes by a
    /// message of its own, and must be waited for.
    pub(super) is_told: bool,
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
        /// As above.
        nearest: f64,
    },
    /// A cache below keeps it.
    Kept,
}

/// A block that has left a level, not upwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Left {
    /// The block.
    pub(super) entry: Entry,
    /// What goes with it one level down; none: it is gone.
    pub(super) load: Option<Load>,
    /// Whether the levels below may send blocks up for what comes down.
    pub(super) exchanges: bool,
    /// Whether the next level may remember so many moves of it that it would be hot there.
    pub(super) may_be_hot_below: bool,
    /// Whose it is.
    pub(super) owner: u16,
}

/// A block that goes one level up, unasked for, in exchange for one that came down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Risen {
    /// The block.
    pub(super) entry: Entry,
    /// Whose it is: it goes up the way to there.
    pub(super) owner: u16,
    /// What goes with it.
    pub(super) load: Load,
}

/// Where a level stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// Which level of its process it is, from 0.
    pub(super) number: u8,
    /// Blocks that it may hold.
    pub(super) capacity: u32,
    /// Bytes of a block.
    pub(super) block_bytes: u32,
    /// Whether there may be levels above it, and is one below.
    pub(super) has_upper: bool,
    pub(super) has_lower: bool,
    /// Blocks of all levels on the longest way of a client through it.
    pub(super) way_blocks: u64,
    /// Start of its random numbers.
    pub(super) seed: u64,
}

/// One level of a scheme.
///
/// Contract: a block that is told to be taken is here afterwards; at most one block leaves at a
/// call; a level changes the records of its own blocks only, and of one that is told to be taken,
/// but for the bit that says whether it remembers a block.
/// Time is references of clients, wherever they are served, and comes in slots.
pub(super) trait LinkedLevel: Send {
    /// Lists that it keeps blocks in: as many for every level of the scheme, so that its first one
    /// follows from its number.
    fn lists(&self) -> u32;

    /// References in a slot; as many as there are where nothing happens by itself.
    fn period(&self) -> u64 {
        u64::MAX
    }

    /// Makes entries below `entries` valid.
    fn grow(&mut self, entries: u32);

    /// The first reference of a slot begins, other than the first slot.
    fn begin_slot(&mut self, shared: &mut AtHand<'_>) {
        let _ = shared;
    }

    /// The last reference of a slot is over.
    fn end_slot(&mut self, shared: &mut AtHand<'_>) {
        let _ = shared;
    }

    /// What goes along with a request to the level below, but for its life.
    fn bid(&self) -> Bid;

    /// Its life as PROMOTE has it, 0 while it is not full or where nobody wants to know.
    fn life(&self, shared: &Shared) -> u64 {
        let _ = shared;
        0
    }

    /// Whether lives mean anything to it.
    fn hears_lives(&self) -> bool {
        false
    }

    /// Whether it would make any difference to say the life of a level above now.
    fn awaits_life(&self, shared: &Shared, upper: u16) -> bool {
        let _ = (shared, upper);
        false
    }

    /// A level above says its life, with its request for the block of the reference at work.
    fn hear_life(&mut self, shared: &Shared, upper: u16, life: u64) {
        let _ = (shared, upper, life);
    }

    /// Who stands above: blocks of all caches on the way of a level above, its own included, and
    /// their number.
    fn introduce(&mut self, upper: u16, blocks: u64, levels: u16) {
        let _ = (upper, blocks, levels);
    }

    /// Blocks of all levels on the way through this one; heard only before the first reference, and
    /// may change the period.
    fn measure_way(&mut self, blocks: u64) {
        let _ = blocks;
    }

    /// A reference to a block that is here, by a client or through a level above. What left is
    /// put into `left`.
    fn serve(
        &mut self,
        shared: &mut AtHand<'_>,
        entry: Entry,
        is_write: bool,
        upper: Option<Upper>,
        left: &mut Option<Left>,
    ) -> Pass;

    /// The block of a reference that was not served here comes up, unless it is kept below: what is
    /// said further up, and whether it stays here. What left is put into `left`.
    fn pass(
        &mut self,
        shared: &mut AtHand<'_>,
        passing: Passing,
        pass: Pass,
        left: &mut Option<Left>,
    ) -> (Pass, bool);

    /// A block comes down from a level above. When what leaves for it has been dealt with,
    /// [`exchange`](Self::exchange) is to be called if this gives the hotness to call it with.
    fn demoted(
        &mut self,
        shared: &mut AtHand<'_>,
        entry: Entry,
        owner: u16,
        load: Load,
        exchanges: bool,
        left: &mut Option<Left>,
    ) -> Option<f64>;

    /// What goes up for a block that came down as hot as that, if `rises` says that its owner is
    /// above.
    fn exchange(
        &mut self,
        shared: &mut AtHand<'_>,
        entry: Entry,
        heat: f64,
        rises: &dyn Fn(u16) -> bool,
    ) -> Option<Risen> {
        let _ = (shared, entry, heat, rises);
        None
    }

    /// Whether it may come to an exchange for a block that has left: where that comes by a message
    /// of its own, it is to be waited for.
    fn awaits_exchange(&self, left: &Left) -> bool {
        let _ = left;
        false
    }

    /// A block comes up from below that nobody here has asked for.
    fn exchanged(&mut self, shared: &mut AtHand<'_>, risen: Risen, left: &mut Option<Left>);

    /// A block that is here is gone: nobody has its content any more.
    fn forget(&mut self, shared: &mut AtHand<'_>, entry: Entry);

    /// Whether anything is remembered of a block that is not here.
    fn remembers(&self, shared: &Shared, entry: Entry) -> bool {
        let _ = (shared, entry);
        false
    }

    /// Number of blocks that are here.
    fn len(&self) -> u32;

    /// Most blocks of which something is remembered that are not here.
    fn remembered_max(&self) -> u32 {
        0
    }

    /// All blocks that are here.
    fn residents(&self, shared: &Shared) -> Vec<Entry>;

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

    /// As [`Scheme::describe`](super::Scheme::describe).
    fn describe(&self, shared: &Shared) -> Vec<(&'static str, String)>;

    /// Recounts everything.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    fn validate(&self, shared: &Shared) -> Result<(), String>;
}

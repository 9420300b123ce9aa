//! One level of a scheme, and its messages to and from its neighbours. A level receives requests,
//! answers on their way up, and blocks from above or below; it reports the blocks that leave it. It
//! knows nothing else of its neighbours.
//!
//! `stack.rs` puts such levels one below the other.
//!
//! Not here: how a level decides (`hfa/`, `hint_k.rs`), and the data of the blocks.

use super::Gauges;
use undercroft_policy::Entry;

/// What a level tells the level below with a request that it cannot serve itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Bid {
    /// Whether it can take a block without an eviction.
    pub has_room: bool,
    /// Activity of the least active block that could be evicted (Hint-K), if there is one.
    pub least: Option<u32>,
    /// Its life (PROMOTE): references between the last uses of its newest and its oldest block; 0
    /// while it is not full.
    pub life: u64,
}

/// The level above that asks for a block. A client's own request has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Upper {
    /// Number of that level among the levels directly above.
    pub(super) number: u16,
    /// What that level says with the request.
    pub(super) bid: Bid,
}

/// What goes with a block when it moves to another level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Load {
    /// Hint frequency: F of HFA.
    pub frequency: f64,
    /// The last moves of the block as Hint-K remembers them; 0 without any.
    pub history: u8,
}

/// A reference that a level below or the disk has served; its block is on the way up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passing {
    /// The block.
    pub(super) entry: Entry,
    /// Whether the reference is a write.
    pub(super) is_write: bool,
    /// The level above that asks for the block; `None`: a client.
    pub(super) upper: Option<u16>,
    /// The number of the client that owns the block, as far as known.
    pub(super) owner: u16,
}

/// What an answer says of its block on the way up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pass {
    /// The block comes from the disk or was written; no cache keeps it yet.
    Fresh {
        /// F of the block at the nearest level below: it says whether a block may come up later in
        /// exchange for this one.
        nearest: f64,
    },
    /// A cache below gave the block up.
    Moved {
        /// What goes with it.
        load: Load,
        /// F of the block at the nearest level below.
        nearest: f64,
    },
    /// A cache below keeps the block.
    Kept,
}

/// A block that left a level, but not upwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Evicted {
    /// The block.
    pub(super) entry: Entry,
    /// Number of the client that owns the block.
    pub(super) owner: u16,
    /// What goes with the block one level down; `None`: it is dropped.
    pub(super) load: Option<Load>,
    /// Whether the levels below may send a block up in exchange.
    pub(super) exchanges: bool,
    /// Whether such an exchange may happen at the next level.
    pub(super) awaits: bool,
}

/// A block that goes one level up, unrequested, in exchange for one that came down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Promoted {
    /// The block.
    pub(super) entry: Entry,
    /// Number of the client that owns the block. The block goes up on that client's way.
    pub(super) owner: u16,
    /// What goes with the block.
    pub(super) load: Load,
}

/// A block that comes down from a level above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Demoted {
    /// The block.
    pub(super) entry: Entry,
    /// Number of the client that owns the block.
    pub(super) owner: u16,
    /// What came with the block.
    pub(super) load: Load,
    /// Whether a block may go up in exchange.
    pub(super) exchanges: bool,
}

/// The arguments from which a level is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct LevelConfig<'a> {
    /// Capacity in blocks.
    pub(super) capacity: u32,
    /// Bytes of a block.
    pub(super) block_bytes: u32,
    /// Whether there may be levels above it.
    pub(super) has_upper: bool,
    /// Whether a level is below; if not, the disk is.
    pub(super) has_lower: bool,
    /// Blocks of all levels on the longest way of a client through this one.
    pub(super) way_blocks: u64,
    /// Seed of its random numbers.
    pub(super) seed: u64,
    /// Numbers to use before random ones.
    pub(super) draws: &'a [f64],
}

/// One level of a scheme. Blocks are named by entries. Their number is bounded by what the level
/// and its neighbours hold and remember.
///
/// Contract, checked by the tests of this crate: a block that the level is told to take is resident
/// afterwards; at most one block leaves in a call. Time counts the references of clients, wherever
/// they are served.
pub(super) trait SchemeLevel: Send {
    /// Makes entries below `entries` valid.
    fn grow(&mut self, entries: u32);

    /// Begins `references` references. All but the last are over at once.
    fn begin_references(&mut self, references: u64) {
        let _ = references;
    }

    /// Ends the last reference, unless that was done already.
    fn end_reference(&mut self) {}

    /// What the level says to the level below with a request.
    fn bid(&self) -> Bid;

    /// A level above asks for a block, which may be resident here or not.
    fn hear(&mut self, upper: Upper) {
        let _ = upper;
    }

    /// Introduces the level above with the number `upper`. `blocks`: of all caches on its way, its
    /// own included.
    fn introduce(&mut self, upper: u16, blocks: u64) {
        let _ = (upper, blocks);
    }

    /// Serves a reference to a resident block, by a client or through a level above.
    fn serve(
        &mut self,
        entry: Entry,
        is_write: bool,
        upper: Option<Upper>,
    ) -> (Pass, Option<Evicted>);

    /// The block of a reference that was not served here comes up. Returns the answer for the
    /// level above; that is `Kept` if the block stays here.
    fn pass(&mut self, passing: Passing, pass: Pass) -> (Pass, Option<Evicted>);

    /// A block comes down from a level above. If a hotness is returned, call
    /// [`exchange`](Self::exchange) with it after the evicted block has been dealt with.
    fn demoted(&mut self, demoted: Demoted) -> (Option<f64>, Option<Evicted>);

    /// Returns the block that goes up in exchange for `entry`, which came down with this `hotness`.
    /// `rises` says whether a level above is on the way of an owner.
    fn exchange(
        &mut self,
        entry: Entry,
        hotness: f64,
        rises: &dyn Fn(u16) -> bool,
    ) -> Option<Promoted> {
        let _ = (entry, hotness, rises);
        None
    }

    /// A block comes up from below that no level here asked for.
    fn exchanged(&mut self, promoted: Promoted) -> Option<Evicted>;

    /// Removes a block whose content is no longer valid anywhere.
    fn discard(&mut self, entry: Entry);

    /// Whether a block is resident.
    fn holds(&self, entry: Entry) -> bool;

    /// Whether anything is remembered of a block that is not resident.
    fn remembers(&self, entry: Entry) -> bool {
        let _ = entry;
        false
    }

    /// Most non-resident blocks that are remembered.
    fn remembered_max(&self) -> u32 {
        0
    }

    /// Number of resident blocks.
    fn len(&self) -> u32;

    /// Its parts, if the scheme has such.
    fn gauges(&self) -> Option<Gauges> {
        None
    }

    /// See [`Scheme::overhead_bytes`](super::Scheme::overhead_bytes).
    fn overhead_bytes(&self) -> u64;

    /// The logged moves as (block, slot), if they are logged.
    fn take_log(&mut self) -> Option<Vec<(Entry, u64)>> {
        None
    }

    /// See [`Scheme::describe`](super::Scheme::describe); `block` maps an entry to its block.
    fn describe(&self, block: &dyn Fn(Entry) -> u32) -> Vec<(&'static str, String)>;

    /// Recounts everything and checks the invariants.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    fn validate(&self) -> Result<(), String>;
}

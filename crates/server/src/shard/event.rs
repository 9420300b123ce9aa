//! What happens in a shard to a block, to its slot, or to the shard as a whole.
//!
//! Not here: who hears of it (`watchers.rs`).

use std::ops::RangeInclusive;

use undercroft_level::{Frame, Referred, Request};

use crate::job::Job;
use crate::shard::content::{Content, Origin};

/// Something that happens to a block, to its slot, or to the shard.
pub(crate) enum Event<'a> {
    /// A block has a slot now, which is empty.
    Entered { block: u64, slot: Frame },
    /// A block has entered that nobody asked for: a client evicted it, or it was prefetched.
    Placed { block: u64, slot: Frame },
    /// A block is neither here nor in a client's cache.
    Gone { block: u64 },
    /// A write, and not a read from the store, has made a block resident.
    Returned { block: u64 },
    /// A block has lost its slot, to another one if it `is_evicted`. `content`: what was in the
    /// slot. `is_covered`: a range that is being changed has the block.
    Left {
        block: u64,
        slot: Frame,
        how: Leaving,
        content: &'a Content,
        is_evicted: bool,
        is_covered: bool,
    },
    /// The first operation on a block begins. Its state is about to move out of its slot, if it has
    /// one.
    Activated { block: u64, slot: Option<Frame> },
    /// A client reads a block, and the level has decided. If the read hits, `origin` is why the
    /// block was resident.
    Reads { request: &'a Request, referred: Referred, origin: Origin },
    /// A client writes a block, or zeroes a part of it, and the level has decided; the write takes
    /// effect later. In a plain volume the asker has no time and no client.
    Writes { request: &'a Request, referred: Referred },
    /// A request at the store begins, or a range ends, after which a block with operations has
    /// another content, or is newly in memory.
    Changes { block: u64 },
    /// A change of a block has taken effect in memory; `content` is the result. Not told of writes
    /// of a plain volume that only change the copy in a slot.
    Changed { block: u64, job: &'a Job, content: &'a Content },
    /// A write-out of a block begins.
    WritesOut { block: u64 },
    /// A write for a client has ended at the store. `content` is what is in memory.
    Written { block: u64, job: Option<&'a Job>, is_ok: bool, content: &'a Content },
    /// It is not known any more what the store has of a block.
    Unknown { block: u64 },
    /// No operation on a block is left, and its content goes where `to` says.
    Idle { block: u64, content: &'a Content, to: Goes, is_dirty: bool, is_covered: bool },
    /// A slot has other content, or none, without an operation on its block. `digest`: that of the
    /// content, or 0 if it is not known.
    Filled { block: u64, slot: Frame, content: &'a Content, digest: u64 },
    /// A range is about to change, or everything that is derived from its blocks is void.
    RangeBegins { blocks: &'a RangeInclusive<u64> },
    /// A range has changed, or has failed to change, the block of a slot.
    Replaces { slot: Frame },
    /// The store has changed a range, or may have; `is_durable`: it has, and has made that durable.
    RangeEnds { blocks: &'a RangeInclusive<u64>, shard: usize, is_durable: bool },
    /// Of no block is it known any more what the store has, or what clients were given.
    ContentsUnknown,
    /// There are so many slots now, not fewer than before.
    Slots(usize),
    /// Policy or placement are others; the handles of blocks are, too.
    Replaced,
}

/// What becomes of a block that loses its slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Its state is with its operations; it may be dirty, or being written out.
    Busy { is_dirty: bool },
    /// It stays in memory until it is written out.
    Dirty,
    /// The store has its content, a client has it, or it has none.
    Clean,
}

/// Where the content of a block goes that has no operation any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goes {
    /// To its slot; without content if that is still to be read after a restart.
    ToSlot(Frame),
    /// It stays in memory until it is written out.
    Stays,
    Nowhere,
}

//! What happens in a shard, told to the features that a plain cache does without. Each feature has
//! its state in a file of its own, and matches all events, so that none can be overlooked.
//!
//! Events are told under the shard's lock, at the moment at which they happen. A watcher decides
//! nothing about operations in progress; it may tell the level what is known of a block.
//!
//! Not every volume tells all events: some are told only if a watcher needs them, see [`Event`]. So
//! a plain volume does not tell that a client reads or writes a block. Events have no time. How to
//! add a watcher: docs/developer/add-a-layer.md.
//!
//! The watchers: placement of blocks that clients evict (`eviction_placement.rs`), digests of
//! content that clients may hand over (`digests.rs`), the log of blocks that entered and left
//! (`content_log.rs`), what the store may still lose (`unflushed.rs`), and what a server below is
//! told (`below.rs`).

use std::ops::RangeInclusive;

use undercroft_cache::{Asker, Frame, Level};
use undercroft_frames::Pools;

use crate::geometry::Geometry;
use crate::job::Job;
use crate::shard::below::Below;
use crate::shard::content::{Content, Origin};
use crate::shard::content_log::ContentLog;
use crate::shard::digests::Digests;
use crate::shard::eviction_placement::EvictionPlacement;
use crate::shard::unflushed::Unflushed;

/// Something that happens to a block, to its slot, or to the shard.
pub(crate) enum Event<'a> {
    /// A block has a slot now, which is empty.
    Entered { block: u64, slot: Frame },
    /// Replacement evicts a block, which is about to lose its slot; told only if a server below is
    /// told what leaves. `content` is what the slot has.
    /// `pending`: set if it is dirty or has operations, and then whether it is dirty or being
    /// written out.
    Evicted { block: u64, content: &'a Content, pending: Option<bool>, is_covered: bool },
    /// A block is neither here nor in a client's cache.
    Gone { block: u64 },
    /// A write, and not a read from the store, has made a block resident.
    Returned { block: u64 },
    /// A block loses its slot. `is_covered`: a range that is being changed has the block.
    Left { block: u64, slot: Frame, how: Leaving, is_covered: bool },
    /// The first operation on a block begins. Its state is about to move out of its slot, if it has
    /// one.
    Activated { block: u64, slot: Option<Frame> },
    /// A client reads a block. If the read hits, `origin` is why the block was resident. Told only
    /// with placement at eviction.
    Reads { block: u64, origin: Origin },
    /// A client writes a block, or zeroes a part of it; this takes effect later. Told only with
    /// placement at eviction.
    Writes { block: u64, asker: Asker },
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
    Idle { block: u64, content: &'a Content, to: Goes, is_covered: bool },
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
    /// Its state is with its operations.
    Busy,
    /// It stays in memory until it is written out.
    Dirty,
    /// The store has its content: it was evicted, or a client has it.
    Clean,
    /// It has no content.
    Discarded,
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

/// The watchers of a shard. A plain volume has none.
#[derive(Default)]
pub(crate) struct Watchers {
    /// Present unless placement is at the access.
    pub(crate) placement: Option<Box<EvictionPlacement>>,
    /// Present if clients may hand data over.
    pub(crate) digests: Option<Digests>,
    /// Present while somebody follows the content.
    pub(crate) content_log: Option<ContentLog>,
    /// Present if the store can lose what it has answered.
    pub(crate) unflushed: Option<Unflushed>,
    /// Present if a server below is told what leaves.
    pub(crate) below: Option<Below>,
}

impl Watchers {
    /// Tells all watchers; they may tell the level what they know of a block.
    #[inline]
    pub(crate) fn tell(
        &mut self,
        event: &Event<'_>,
        level: &mut Level,
        pool: &Pools,
        geometry: &Geometry,
    ) {
        if let Some(placement) = &mut self.placement {
            placement.watch(event, level, pool, geometry);
        }
        if let Some(digests) = &mut self.digests {
            digests.watch(event, level, geometry);
        }
        if let Some(log) = &mut self.content_log {
            log.watch(event);
        }
        if let Some(unflushed) = &mut self.unflushed {
            unflushed.watch(event, geometry);
        }
        if let Some(below) = &mut self.below {
            below.watch(event, geometry);
        }
    }
}

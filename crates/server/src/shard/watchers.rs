//! What happens in a shard, told to the features that a plain cache does without. Each feature has
//! its state in a file of its own, and matches all events, so that none can be overlooked.
//!
//! Events are told under the shard's lock, at the moment at which they happen. A watcher decides
//! nothing about operations in progress; it may tell the level what is known of a block.
//!
//! Events have no time. How to add a watcher: docs/developer/add-a-layer.md.
//!
//! The watchers: placement of blocks that clients evict (`eviction_placement.rs`), digests of
//! content that clients may hand over (`digests.rs`), the log of blocks that entered and left
//! (`content_log.rs`), what the store may still lose (`unflushed.rs`), what a server below is told
//! (`below.rs`), and the level on flash (`flash_level.rs`).

use undercroft_frames::Pools;
use undercroft_level::Level;

use crate::geometry::Geometry;
use crate::shard::below::Below;
use crate::shard::content_log::ContentLog;
use crate::shard::digests::Digests;
use crate::shard::event::Event;
use crate::shard::eviction_placement::EvictionPlacement;
use crate::shard::flash_level::FlashLevel;
use crate::shard::unflushed::Unflushed;

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
    /// Present if there is flash below memory.
    pub(crate) flash: Option<Box<FlashLevel>>,
}

impl Watchers {
    /// Tells all watchers; they may tell the level what they know of a block. Inlined with their
    /// matches, so that an event costs a watcher nothing that does nothing about it.
    #[inline(always)]
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
        if let Some(flash) = &mut self.flash {
            flash.watch(event, geometry);
        }
    }
}

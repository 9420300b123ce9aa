//! Which blocks are resident, by either placement: a policy behind an index where blocks come at
//! the access, with or without knowledge of what clients hold; the engine's lower level where they
//! come when the client evicts them; or one level of a scheme of movement (`levels.rs`), whose
//! references have more to say than those here.

use undercroft_cache::content::{Asking, Lower};
use undercroft_cache::movement::LinkedCache;
use undercroft_cache::placement::LowerLevel;
pub(crate) use undercroft_cache::placement::Referred;
use undercroft_cache::{Counts, Evicted, Frame, HashedCache, Served, WriteMode};

use crate::clients::Caller;
use crate::cooperation::Asker;

#[expect(clippy::large_enum_variant, reason = "there is one a shard")]
pub(crate) enum Directory {
    /// Access-based placement.
    Access(HashedCache),
    /// Access-based placement with a content-aware policy.
    Aware(Box<Lower>),
    /// Eviction-based and global placement.
    Below(LowerLevel),
    /// One level of a scheme of movement.
    Linked(LinkedCache),
}

impl Directory {
    /// A counted reference of the whole block or (`!is_whole`) a part of it. `cold`: see
    /// [`HashedCache::reference`].
    pub(crate) fn reference(
        &mut self,
        block: u64,
        (is_write, is_whole): (bool, bool),
        mode: WriteMode,
        asker: Asker,
        cold: impl FnOnce() -> bool,
    ) -> Referred {
        let by_access = asker.by_access;
        match self {
            Self::Access(cache) => referred(cache.reference(block, is_write, mode, cold)),
            Self::Aware(lower) => {
                let Caller { client, tells } = asker.caller;
                let asking = Asking { client, tells, is_whole, now_us: asker.now_us };
                let asking = (asking, asker.connected);
                referred(lower.reference(block, is_write, mode, asking, cold))
            }
            Self::Below(level) => {
                let cold = cold();
                match (by_access, is_write) {
                    (true, _) => level.access(block, is_write, cold),
                    (false, true) => level.write(block),
                    (false, false) => level.read(block, cold),
                }
            }
            Self::Linked(level) => {
                let before = level.frame(block);
                Referred { hit: before.is_some(), before, now: before }
            }
        }
    }

    /// Makes a block resident without a reference: its frame. Nobody but its neighbours brings
    /// blocks to a level of a scheme.
    pub(crate) fn place(&mut self, block: u64) -> Option<Frame> {
        match self {
            Self::Access(cache) => Some(cache.place(block).frame),
            Self::Aware(lower) => Some(lower.place(block).frame),
            Self::Below(level) => Some(level.fetch_ahead(block).frame),
            Self::Linked(_) => None,
        }
    }

    /// Forgets a block entirely.
    pub(crate) fn discard(&mut self, block: u64) {
        match self {
            Self::Access(cache) => cache.discard(block),
            Self::Aware(lower) => lower.discard(block),
            Self::Below(level) => level.discard(block),
            Self::Linked(level) => level.discard(block),
        };
    }

    /// What the last call drove out, in order.
    pub(crate) fn evicted(&self) -> &[Evicted] {
        match self {
            Self::Access(cache) => cache.evicted(),
            Self::Aware(lower) => lower.cache().evicted(),
            Self::Below(level) => level.cache().evicted(),
            Self::Linked(level) => level.evicted(),
        }
    }

    /// The frame of a resident block.
    #[inline]
    pub(crate) fn frame(&self, block: u64) -> Option<Frame> {
        match self {
            Self::Access(cache) => cache.frame(block),
            Self::Aware(lower) => lower.cache().frame(block),
            Self::Below(level) => level.cache().frame(block),
            Self::Linked(level) => level.frame(block),
        }
    }

    /// The blocks and their policy, where there is one.
    pub(crate) fn cache(&self) -> Option<&HashedCache> {
        match self {
            Self::Access(cache) => Some(cache),
            Self::Aware(lower) => Some(lower.cache()),
            Self::Below(level) => Some(level.cache()),
            Self::Linked(_) => None,
        }
    }

    /// Blocks that may be resident.
    pub(crate) fn capacity(&self) -> u32 {
        match self {
            Self::Linked(level) => level.capacity(),
            other => other.cache().map_or(0, |cache| cache.policy().capacity()),
        }
    }

    /// Blocks that are resident.
    pub(crate) fn len(&self) -> u32 {
        match self {
            Self::Linked(level) => level.len(),
            other => other.cache().map_or(0, |cache| cache.policy().len()),
        }
    }

    /// The resident blocks with their frames.
    pub(crate) fn residents(&self) -> Vec<(u64, Frame)> {
        match self {
            Self::Linked(level) => level.residents(),
            other => other.cache().map_or_else(Vec::new, HashedCache::residents),
        }
    }

    /// Those of them whose handles have numbers within a range, all of which are below the second
    /// number.
    pub(crate) fn residents_within(&self, part: std::ops::Range<u32>) -> (Vec<(u64, Frame)>, u32) {
        match self {
            Self::Linked(level) => (level.residents_within(part), level.handles()),
            other => other
                .cache()
                .map_or_else(Default::default, |c| (c.residents_within(part), c.handles())),
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        match self {
            Self::Access(cache) => cache.counts(),
            Self::Aware(lower) => lower.cache().counts(),
            Self::Below(level) => level.counts(),
            Self::Linked(level) => level.counts(),
        }
    }

    /// See [`HashedCache::warm`].
    pub(crate) fn warm(&mut self, blocks: &[u64], frames: &mut Vec<Frame>) {
        match self {
            Self::Access(cache) => cache.warm(blocks, frames),
            Self::Aware(lower) => lower.warm(blocks, frames),
            Self::Below(level) => level.warm(blocks, frames),
            Self::Linked(_) => {}
        }
    }

    /// Goes on with the blocks and the policy of a saved cache.
    pub(crate) fn take_on(&mut self, saved: HashedCache) {
        match self {
            Self::Access(cache) => *cache = saved,
            Self::Aware(lower) => lower.take_on(saved),
            Self::Below(level) => level.take_on(saved),
            // Nothing of a level is saved.
            Self::Linked(_) => {}
        }
    }

    pub(crate) fn below(&mut self) -> Option<&mut LowerLevel> {
        match self {
            Self::Access(_) | Self::Aware(_) | Self::Linked(_) => None,
            Self::Below(level) => Some(level),
        }
    }

    /// What is known of the clients' caches, if the policy wants to know.
    pub(crate) fn aware(&mut self) -> Option<&mut Lower> {
        if let Self::Aware(lower) = self { Some(lower) } else { None }
    }

    pub(crate) fn validate(&self) -> Result<(), String> {
        match self {
            Self::Access(cache) => cache.validate(),
            Self::Aware(lower) => lower.validate(),
            Self::Below(level) => level.validate(),
            Self::Linked(level) => level.validate(),
        }
    }
}

fn referred(served: Served) -> Referred {
    let had = served.frame.filter(|_| served.hit);
    Referred { hit: served.hit, before: had.or(served.left), now: served.frame }
}

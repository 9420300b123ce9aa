//! How much of a shard may be dirty, and for how long: when the flusher begins to write, and when
//! writes must wait for the store because it does not keep up.
//!
//! Not here: which blocks are dirty (`dirty.rs`), and how they are written out (`write_outs.rs`,
//! `volume/flush.rs`).

use std::time::{Duration, Instant};

use crate::clock;
use crate::config::VolumeConfig;
use crate::shard::Shard;

/// The bounds of one shard. They may change while the volume is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirtyBounds {
    /// Changes older than this are written out.
    pub(crate) age: Duration,
    /// Waiting blocks in excess of this number are written out.
    pub(crate) high: usize,
    /// From this number of dirty blocks on, a write is answered when the store has it.
    max: usize,
    /// While a change that the store has not refused is older than this, a write is answered when
    /// the store has it.
    max_age: Option<Duration>,
}

impl DirtyBounds {
    /// The bounds that a volume's options give a shard of `capacity` blocks.
    pub(crate) fn new(config: &VolumeConfig, capacity: usize) -> Self {
        let part = |share: f64| (share.clamp(0.0, 1.0) * capacity as f64) as usize;
        // All of the cache bounds nothing: blocks that lost their slots may be dirty, too.
        let max = if config.dirty_max_share < 1.0 {
            part(config.dirty_max_share).max(1)
        } else {
            usize::MAX
        };
        let (age, high) = (config.dirty_age, part(config.dirty_share));
        Self { age, high, max, max_age: config.dirty_max_age }
    }
}

impl Shard {
    /// Whether a write may be answered now, and reach the store later.
    pub(crate) fn delays_writes(&self) -> bool {
        self.geometry.write_back && self.is_within_bounds()
    }

    /// Whether writes must soon wait for the store, or old changes wait for it much longer than
    /// the operator wants.
    pub(super) fn is_near_bounds(&self, now: Instant) -> bool {
        let DirtyBounds { age, max, max_age, .. } = self.bounds;
        let dirty = self.dirty.count() + self.write_outs as usize;
        let late = max_age.map_or(2 * age, |max| max / 2);
        let is_late = |since: Instant| now.saturating_duration_since(since) >= late;
        dirty > max / 2 || self.dirty.oldest_on_its_way().is_some_and(is_late)
    }

    fn is_within_bounds(&self) -> bool {
        let DirtyBounds { max, max_age, .. } = self.bounds;
        if self.dirty.count() + self.write_outs as usize >= max {
            return false;
        }
        let Some(max_age) = max_age else { return true };
        let is_old = |since: Instant| clock::now().saturating_duration_since(since) >= max_age;
        !self.dirty.oldest_on_its_way().is_some_and(is_old)
    }
}

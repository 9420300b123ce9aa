//! Learns whether to place blocks at their eviction by the client or at their access. Two shadow
//! directories hold the numbers of a sample of the blocks and simulate both ways. The cache does
//! what the better one does. A large cache, which holds most of what the client uses anyway, gains
//! nothing from being exclusive, and loses the blocks whose evictions show late. This is ours.
//!
//! Not here: which evicted blocks could be placed at all (`supply.rs`).

use std::sync::Arc;

use undercroft_random::hash;

use crate::hashed::HashedCache;
use crate::placement::PlacementError;
use undercroft_policy::{Context, Spec};

/// The shadow directories sample one block in this many, unless that leaves them fewer than the
/// minimum.
const SAMPLE: u32 = 16;
const LEAST_SHADOW: u32 = 64;

/// Factor that fades the counts after each period of as many sampled reads as a shadow holds
/// blocks.
const MEMORY: f64 = 0.97;

/// By this share of the reads the other shadow must be better before the cache changes sides.
const LEAD: f64 = 0.01;

/// With [`Pace::Certain`]: the difference must be this many times its standard deviation, and is
/// looked at after this many sampled reads.
const DEVIATIONS: f64 = 4.0;
const LOOK: u32 = 64;

/// When the duel is decided, and how it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// It begins with placement at eviction, and is decided after each period.
    Periodic,
    /// It begins with placement at the access, and is decided as soon as the difference cannot be
    /// chance.
    Certain,
}

/// The two shadow directories, and what they would have cost.
pub(super) struct Duel {
    at_eviction: HashedCache,
    at_access: HashedCache,
    pace: Pace,
    sample: u64,
    /// The real numbers of renumbered blocks; sampling uses them.
    names: Option<Arc<[u64]>>,
    tally: Tally,
    /// Sampled reads since the counts last faded.
    unreviewed: u32,
    is_by_access: bool,
}

/// Sampled events, fading.
#[derive(Clone, Copy, Default)]
struct Tally {
    reads: f64,
    eviction_hits: f64,
    access_hits: f64,
    /// Reads that only one of the two sides hit.
    differing: f64,
    /// Blocks placed at eviction.
    placed: f64,
    /// Blocks read back from the store for that.
    reloads: f64,
    /// What these cost, each as a part of a read that a client waits for.
    delays: f64,
}

impl Tally {
    fn fade(&mut self) {
        let Self { reads, eviction_hits, access_hits, differing, placed, reloads, delays } = self;
        for count in [reads, eviction_hits, access_hits, differing, placed, reloads, delays] {
            *count *= MEMORY;
        }
    }

    /// Reads that clients wait for that placement at the access saves against placement at
    /// eviction, as a share of the reads.
    fn lead_of_access(&self) -> f64 {
        (self.access_hits - self.eviction_hits + self.delays) / self.reads
    }

    /// Reads from the store, whether anybody waits or not, that placement at the access saves
    /// against placement at eviction, as a share of the reads.
    fn store_reads_saved(&self) -> f64 {
        (self.access_hits - self.eviction_hits + self.reloads) / self.reads
    }

    /// Whether the difference is too large for chance.
    fn is_certain(&self) -> bool {
        let difference = self.lead_of_access() * self.reads;
        difference.powi(2) > DEVIATIONS.powi(2) * (self.differing + self.delays)
    }
}

impl Duel {
    /// For a cache of `capacity` blocks with the policy `spec`.
    ///
    /// # Errors
    /// The policy cannot be made.
    pub(super) fn new(
        spec: &Spec,
        capacity: u32,
        pace: Pace,
        seed: u64,
    ) -> Result<Self, PlacementError> {
        let sample = (capacity / LEAST_SHADOW).clamp(1, SAMPLE);
        let shadow = || {
            let policy = spec.build(&Context::new(capacity / sample));
            Ok(HashedCache::new(policy.map_err(|e| PlacementError(e.to_string()))?, seed))
        };
        Ok(Self {
            at_eviction: shadow()?,
            at_access: shadow()?,
            pace,
            sample: sample.into(),
            names: None,
            tally: Tally::default(),
            unreviewed: 0,
            is_by_access: pace == Pace::Certain,
        })
    }

    /// Whether placement at the access is better now.
    pub(super) fn is_by_access(&self) -> bool {
        self.is_by_access
    }

    /// The chance that a block placed at eviction is read again while it is here, from 0 to 1; a
    /// half while nothing is known.
    pub(super) fn worth(&self) -> f64 {
        ((self.tally.eviction_hits + 1.0) / (self.tally.placed + 2.0)).min(1.0)
    }

    /// Whether a block is in the sample.
    pub(super) fn samples(&self, block: u64) -> bool {
        let name = self.names.as_ref().and_then(|names| names.get(block as usize)).copied();
        // The hash is equal on every machine.
        hash(name.unwrap_or(block)) % self.sample == 0
    }

    /// The client reads a block.
    pub(super) fn read(&mut self, block: u64) {
        if !self.samples(block) {
            return;
        }
        let access_hit = self.at_access.access(block).hit;
        let eviction_hit = self.at_eviction.take(block).is_some();
        if !eviction_hit {
            self.at_eviction.note(block);
        }
        let tally = &mut self.tally;
        tally.reads += 1.0;
        tally.access_hits += f64::from(u8::from(access_hit));
        tally.eviction_hits += f64::from(u8::from(eviction_hit));
        tally.differing += f64::from(u8::from(access_hit != eviction_hit));
        self.unreviewed += 1;
        let is_over = self.unreviewed >= self.at_access.policy().capacity();
        let is_time = match self.pace {
            Pace::Periodic => is_over,
            Pace::Certain => (is_over || self.unreviewed % LOOK == 0) && self.tally.is_certain(),
        };
        if is_time {
            self.decide();
        }
        if is_over {
            self.unreviewed = 0;
            self.tally.fade();
        }
    }

    fn decide(&mut self) {
        let ahead = self.tally.lead_of_access();
        // Where clients wait equally long, the store shall read less. Empty directories are equal,
        // too, so this is asked late.
        let is_equal = ahead.abs() <= LEAD / 2.0 && self.is_settled();
        let saves = is_equal && self.tally.store_reads_saved() > LEAD;
        self.is_by_access = if self.is_by_access { ahead > -LEAD } else { ahead > LEAD || saves };
    }

    /// Whether the counts remember at least half as many reads as they ever will.
    fn is_settled(&self) -> bool {
        2.0 * (1.0 - MEMORY) * self.tally.reads > f64::from(self.at_access.policy().capacity())
    }

    /// The client writes a block, which placement at the access places.
    pub(super) fn written(&mut self, block: u64) {
        if self.samples(block) {
            self.at_access.access(block);
        }
    }

    /// The client evicted a block: on the side that places at the access, it becomes the newest.
    pub(super) fn evicted(&mut self, block: u64) {
        if self.samples(block) && self.at_access.frame(block).is_some() {
            self.at_access.place(block);
        }
    }

    /// The side that places at eviction places a block. `reload`: if it is read back from the
    /// store for that, what this costs as a part of a read that a client waits for, from 0 to 1.
    pub(super) fn placed(&mut self, block: u64, reload: Option<f64>) {
        if self.samples(block) {
            let is_new = f64::from(u8::from(!self.at_eviction.place(block).hit));
            self.tally.placed += is_new;
            if let Some(cost) = reload {
                self.tally.reloads += is_new;
                self.tally.delays += cost;
            }
        }
    }

    /// Changes the capacity. The sampled share of the blocks stays.
    pub(super) fn resize(&mut self, capacity: u32) {
        let size = (u64::from(capacity) / self.sample).max(1) as u32;
        self.at_eviction.resize(size);
        self.at_access.resize(size);
    }

    /// See [`Level::number_blocks`](crate::Level::number_blocks).
    pub(super) fn name_blocks(&mut self, names: Arc<[u64]>) {
        self.names = Some(names);
    }

    /// Forgets a discarded block.
    pub(super) fn forget(&mut self, block: u64) {
        self.at_eviction.discard(block);
        self.at_access.discard(block);
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.at_eviction.validate()?;
        self.at_access.validate()
    }
}

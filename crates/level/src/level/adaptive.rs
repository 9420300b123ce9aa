//! Eviction-based placement that learns whether to be exclusive at all ([`Duel`]), and which
//! evictions by the client become known too late ([`Foresight`]). There are two kinds:
//! * `OnHit::Adaptive` begins exclusive. It takes for granted that each evicted block is placed.
//! * `auto` begins as placement at the access, and stays so until there is evidence. Its shadow
//!   directories place only blocks whose data were there, or would have been ([`Supply`]), and are
//!   charged for reloads.
//!
//! All of this is ours.

use std::sync::Arc;

use super::duel::{Duel, Pace};
use super::foresight::Foresight;
use super::supply::Supply;
use crate::placement::PlacementError;
use undercroft_policy::Spec;

/// Foresight and duel, fed by one stream.
pub(super) struct Adaptive {
    foresight: Foresight,
    duel: Duel,
    /// `Some`: `auto`.
    supply: Option<Supply>,
}

/// What comes with the news of an eviction.
#[derive(Clone, Copy)]
pub(super) struct Offer {
    /// The client hands the block's contents over.
    pub(super) has_contents: bool,
    /// The block's data are in the staging area.
    pub(super) is_staged: bool,
}

impl Adaptive {
    /// For a cache of `capacity` blocks with the policy `spec`.
    ///
    /// # Errors
    /// The policy cannot be made.
    pub(super) fn new(
        spec: &Spec,
        capacity: u32,
        is_auto: bool,
        seed: u64,
    ) -> Result<Self, PlacementError> {
        let pace = if is_auto { Pace::Certain } else { Pace::Periodic };
        let duel = Duel::new(spec, capacity, pace, seed)?;
        let supply = is_auto.then(Supply::default);
        Ok(Self { foresight: Foresight::new(capacity, seed), duel, supply })
    }

    /// Whether this is `auto`.
    pub(super) fn is_auto(&self) -> bool {
        self.supply.is_some()
    }

    /// The client reads a block. Returns whether to place it, or keep it, at this access.
    pub(super) fn read(&mut self, block: u64) -> bool {
        self.foresight.read(block);
        self.duel.read(block);
        self.duel.is_by_access()
    }

    /// The client writes a block, and placement at the access would place it. Returns whether to do
    /// so.
    pub(super) fn written(&mut self, block: u64) -> bool {
        if self.is_auto() {
            self.duel.written(block);
        }
        self.is_auto() && self.duel.is_by_access()
    }

    /// Whether blocks are placed at the access now.
    pub(super) fn is_by_access(&self) -> bool {
        self.duel.is_by_access()
    }

    /// Whether contents of evicted blocks are of use: to place the blocks, or to learn how many
    /// come with contents.
    pub(super) fn asks_for_contents(&self) -> bool {
        !self.is_by_access() || self.supply.as_ref().is_some_and(Supply::asks)
    }

    /// The share of evictions that come with contents, from 0 to 1, as far as `auto` has counted.
    pub(super) fn contents_share(&self) -> f64 {
        self.supply.as_ref().map_or(0.0, Supply::share)
    }

    /// An eviction by the client became known. Returns whether to place the block.
    pub(super) fn evicted(&mut self, block: u64, offer: Offer) -> bool {
        let by_access = self.is_by_access();
        self.foresight.evicted(block);
        self.duel.evicted(block);
        match &mut self.supply {
            None => {
                let is_read = !offer.has_contents && !offer.is_staged;
                self.duel.placed(block, is_read.then_some(0.0));
            }
            Some(supply) => {
                supply.evicted(offer.has_contents, !by_access);
                if by_access {
                    self.imagine(block, offer);
                }
            }
        }
        !by_access
    }

    /// Does in the shadow directory what placement at eviction would do about an evicted block.
    fn imagine(&mut self, block: u64, offer: Offer) {
        let wants_reload = self.is_worth_a_reload();
        let Some(supply) = &mut self.supply else { return };
        if offer.is_staged || supply.would_have_contents(offer.has_contents) {
            self.duel.placed(block, None);
        } else if wants_reload && supply.would_be_reloaded() {
            self.duel.placed(block, Some(supply.reload_cost()));
        }
    }

    /// A block that the client evicted was placed. While blocks are placed at the access this says
    /// nothing about the other way.
    pub(super) fn placed(&mut self, block: u64, is_reloaded: bool) {
        let Some(supply) = self.supply.as_ref().filter(|_| !self.duel.is_by_access()) else {
            return;
        };
        self.duel.placed(block, is_reloaded.then(|| supply.reload_cost()));
    }

    /// Whether to read an evicted block from the store. With `auto` only if that is likelier to
    /// save a read that a client waits for than to delay one.
    pub(super) fn is_worth_a_reload(&self) -> bool {
        self.supply.as_ref().is_none_or(|supply| self.duel.worth() > supply.reload_cost())
    }

    /// Sets the share of time, from 0 to 1, in which clients keep the store busy.
    pub(super) fn set_store_busy(&mut self, share: f64) {
        if let Some(supply) = &mut self.supply {
            supply.set_busy(share);
        }
    }

    /// The next block to place as if its eviction were known.
    pub(super) fn foreseen(&mut self) -> Option<u64> {
        loop {
            let block = self.foresight.foreseen()?;
            if !self.is_auto() {
                self.duel.placed(block, Some(0.0));
            }
            if !self.is_by_access() {
                return Some(block);
            }
        }
    }

    /// Changes the capacity. The sampled share of the blocks stays.
    pub(super) fn resize(&mut self, capacity: u32) {
        self.duel.resize(capacity);
    }

    /// See [`Level::number_blocks`](crate::Level::number_blocks).
    pub(super) fn name_blocks(&mut self, names: Arc<[u64]>) {
        self.duel.name_blocks(names);
    }

    /// Forgets a discarded block.
    pub(super) fn forget(&mut self, block: u64) {
        self.foresight.forget(block);
        self.duel.forget(block);
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.foresight.check()?;
        self.duel.check()
    }
}

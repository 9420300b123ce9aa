//! A cell: a miniature cache with one policy, placement and size, and its counts by group.

use undercroft_level::placement::{DataSource, Eviction, Placement, PlacementError, Staging};
use undercroft_level::{Level, PlacementStep};
use undercroft_policy::{Spec, WriteMode};

use crate::below::BelowMemory;
use crate::budget::{flash_bytes, known_blocks, level_bytes};
use crate::window::{EPOCHS, Place, Window};

/// What happens to the cells. Which evictions count has been judged already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) block: u64,
    pub(crate) place: Place,
    pub(crate) deed: Deed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Deed {
    /// A reference. `tells`: the client tells what it evicts.
    Reference {
        is_write: bool,
        tells: bool,
    },
    /// The last client that had the block evicted it.
    Evicted(Offer),
    /// The client is expected to have evicted the block, which will show late.
    Foreseen(Offer),
    Discarded,
}

/// How the data of an evicted block could come down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Offer {
    /// From the client.
    pub(crate) has_contents: bool,
    /// From the disk: what that costs, as a part of a read that a client waits for; `None` if there
    /// is no time for it.
    pub(crate) reload_cost: Option<f64>,
}

/// What a cell simulates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    /// Number of the policy among all that the adviser knows.
    pub(crate) policy: usize,
    pub(crate) placement: Placement,
    /// What writes do.
    pub(crate) mode: WriteMode,
    /// Whether a resident block becomes the newest when a client evicts it, though placement is at
    /// the access: so it is while a placement that adapts places blocks there.
    pub(crate) refreshes: bool,
    /// Number of the size among [`SIZES`](crate::SIZES), and the size of the cache that is
    /// simulated, in blocks.
    pub(crate) size: usize,
    pub(crate) blocks: u32,
    /// Size of the miniature, in blocks.
    pub(crate) miniature: u32,
    /// The share of the blocks that it sees, and the number of that sample.
    pub(crate) rate: f64,
    pub(crate) depth: u8,
    /// The sizes of flash below it, in its own.
    pub(crate) flash: &'static [u32],
}

impl Setting {
    /// Most bytes of the miniature with a policy.
    pub(crate) fn bytes(&self, policy: &Spec) -> u64 {
        let rules = match self.scaled_placement() {
            Placement::Access => None,
            Placement::Eviction(rules) => Some(rules),
            Placement::Global(_) => Some(Eviction::default()),
        };
        let flash = self.flash.iter().map(|times| self.miniature.saturating_mul(*times));
        let flash: u64 = flash.map(|slots| flash_bytes(slots, self.miniature)).sum();
        level_bytes(policy, rules.as_ref(), self.miniature) + flash
    }

    /// The placement of the miniature: its staging area is smaller too.
    fn scaled_placement(&self) -> Placement {
        let mut placement = self.placement;
        if let Placement::Eviction(rules) = &mut placement {
            if let Staging::Blocks(blocks) = &mut rules.staging {
                let rate = f64::from(self.miniature) / f64::from(self.blocks);
                *blocks = (f64::from(*blocks) * rate).round() as u32;
            }
        }
        placement
    }
}

/// A policy that has just replaced another one does not count until so many epochs, which are four
/// turnovers of today's cache, and one turnover of its own have passed; and in any case after so
/// many epochs. After half as many, 2Q and SIEVE are up to nine points below what they come to.
pub(crate) const SETTLING: u32 = 2 * EPOCHS as u32;
const SETTLING_MAX: u32 = 2 * SETTLING;

/// A miniature with room for one block in so many counts as full.
const ROOM: u32 = 12;

/// Factor that fades what is known of placed blocks after each epoch.
const FADE: f64 = 0.8;

/// A miniature cache with its counts.
pub(crate) struct Cell {
    pub(crate) setting: Setting,
    level: Level,
    /// Flash below it, each as if there were no other.
    pub(crate) flash: Vec<BelowMemory>,
    /// Reads that missed.
    pub(crate) misses: Window,
    /// Blocks read from the store because a client evicted them.
    pub(crate) reloads: Window,
    /// Blocks that references brought into the miniature in the present epoch, or would have.
    pub(crate) admitted: u32,
    /// Blocks placed because a client evicted them, and reads that hit, fading.
    placed: f64,
    used: f64,
    /// While nothing counts, since the policy has just begun with blocks that another one chose.
    settling: Option<Settling>,
}

/// What a cell has seen since its policy replaced another one.
#[derive(Clone, Copy, Default)]
struct Settling {
    epochs: u32,
    admitted: u32,
}

impl Settling {
    /// Whether a miniature of so many blocks counts from now on.
    fn is_over(&self, miniature: u32) -> bool {
        self.epochs >= SETTLING && self.admitted >= miniature || self.epochs >= SETTLING_MAX
    }
}

impl Cell {
    /// An empty cell.
    ///
    /// # Errors
    /// Policy and placement do not fit together, or the policy cannot be made.
    pub(crate) fn new(setting: Setting, policy: &Spec, seed: u64) -> Result<Self, PlacementError> {
        let placement = setting.scaled_placement();
        let policy = &policy.of_sample(setting.rate);
        let mut level = Level::new(policy, setting.miniature, &placement, setting.mode, seed)?;
        level.make_room(known_blocks(policy, setting.miniature));
        let (misses, reloads, admitted) = Default::default();
        let (placed, used) = (0.0, 0.0);
        let flash = setting.flash.iter();
        let flash = flash.map(|&times| BelowMemory::new(times, setting.miniature, seed)).collect();
        Ok(Self { setting, level, flash, misses, reloads, admitted, placed, used, settling: None })
    }

    /// Continues with another policy, and with the resident blocks. What was counted is forgotten,
    /// and nothing counts until the policy has settled.
    ///
    /// # Errors
    /// As for [`new`](Self::new); nothing has changed then.
    pub(crate) fn replace(
        &mut self,
        policy: usize,
        spec: &Spec,
        seed: u64,
    ) -> Result<(), PlacementError> {
        let setting = Setting { policy, ..self.setting.clone() };
        let spec = &spec.of_sample(setting.rate);
        self.level.replace(spec, &setting.scaled_placement(), None, seed)?;
        self.level.make_room(known_blocks(spec, setting.miniature));
        self.setting = setting;
        self.misses.clear();
        self.reloads.clear();
        self.settling = Some(Settling::default());
        Ok(())
    }

    /// Continues with another size of the cache and of the miniature, which keeps the blocks that
    /// fit. What was counted is forgotten.
    pub(crate) fn resize(&mut self, setting: &Setting, policy: &Spec) {
        self.level.resize(setting.miniature);
        self.level.make_room(known_blocks(policy, setting.miniature));
        self.setting = setting.clone();
        self.flash.iter_mut().for_each(|flash| flash.resize(setting.miniature));
        self.misses.clear();
        self.reloads.clear();
        self.admitted = 0;
    }

    /// Takes steps in order. They count only if `counts`.
    pub(crate) fn take(&mut self, steps: &[Step], counts: bool) {
        let depth = self.setting.depth;
        let counts = counts && self.settling.is_none();
        for &Step { block, place, deed } in steps.iter().filter(|step| step.place.depth >= depth) {
            match deed {
                Deed::Reference { is_write, tells } => {
                    let referred = if tells {
                        self.level.reference(block, is_write, || false)
                    } else {
                        self.level.reference_by_access(block, is_write, false)
                    };
                    let hit = referred.hit;
                    for flash in &mut self.flash {
                        let place = counts.then_some(place);
                        flash.referred((block, is_write), referred, &self.level, place);
                    }
                    if counts && !hit && !is_write {
                        self.misses.count(place);
                    }
                    self.used += f64::from(u8::from(hit && !is_write));
                    let admits = self.setting.mode.admits(is_write);
                    self.admitted += u32::from(!hit && admits);
                }
                Deed::Evicted(_) if self.setting.placement == Placement::Access => {
                    if self.setting.refreshes && self.level.frame(block).is_some() {
                        self.level.place(block);
                    }
                }
                Deed::Evicted(offer) | Deed::Foreseen(offer) => {
                    self.evicted(block, place, offer, counts);
                }
                Deed::Discarded => {
                    self.level.discard(block);
                    self.flash.iter_mut().for_each(|flash| flash.discard(block));
                }
            }
        }
    }

    /// A client evicted a block. Data that must be fetched are here at once.
    fn evicted(&mut self, block: u64, at: Place, offer: Offer, counts: bool) {
        let step = match offer.has_contents {
            true => self.level.handed_over(block),
            false => self.level.client_evicted(block),
        };
        let down = self.level.placement().map(|placement| placement.rules().down);
        match step {
            PlacementStep::Fetch if offer.has_contents || down == Some(DataSource::Demote) => {
                self.level.arrived(block, DataSource::Demote);
            }
            PlacementStep::Fetch if offer.reload_cost.is_some_and(|cost| self.worth() > cost) => {
                self.level.arrived(block, DataSource::Reload);
                if counts {
                    self.reloads.count(at);
                }
            }
            PlacementStep::Staged(_) => {}
            PlacementStep::Fetch | PlacementStep::Resident | PlacementStep::Skip => return,
        }
        self.placed += 1.0;
        self.flash.iter_mut().for_each(|flash| flash.arrived(block, &self.level, counts));
    }

    /// The chance that a block placed at eviction is read again while it is here, from 0 to 1; a
    /// half while nothing is known.
    fn worth(&self) -> f64 {
        ((self.used + 1.0) / (self.placed + 2.0)).min(1.0)
    }

    /// Number of resident blocks of the miniature.
    pub(crate) fn len(&self) -> u32 {
        self.level.policy().len()
    }

    /// Whether the miniature has hardly any room left. With placement at eviction, each hit makes
    /// room, and a cache that has just grown is about as good as full.
    pub(crate) fn is_full(&self) -> bool {
        let capacity = self.level.policy().capacity();
        self.level.policy().len() >= capacity - capacity / ROOM
    }

    /// Ends the epoch.
    pub(crate) fn end_epoch(&mut self) {
        match &mut self.settling {
            None => {
                self.misses.end_epoch();
                self.reloads.end_epoch();
            }
            Some(settling) => {
                settling.epochs += 1;
                settling.admitted = settling.admitted.saturating_add(self.admitted);
                if settling.is_over(self.setting.miniature) {
                    self.settling = None;
                }
            }
        }
        self.flash.iter_mut().for_each(BelowMemory::end_epoch);
        self.admitted = 0;
        self.placed *= FADE;
        self.used *= FADE;
    }

    /// Drops all epochs but the last `kept`.
    pub(crate) fn keep(&mut self, kept: usize) {
        self.misses.keep(kept);
        self.reloads.keep(kept);
        self.flash.iter_mut().for_each(|flash| flash.keep_epochs(kept));
    }
}

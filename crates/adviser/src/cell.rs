//! A cell: a miniature cache with one policy, placement and size, and its counts by group.

use undercroft_cache::placement::{Placement, PlacementError, Staging, WayDown};
use undercroft_cache::policy::Spec;
use undercroft_cache::{Down, Level, WriteMode};

use crate::budget::{known_blocks, level_bytes};
use crate::window::{Place, Window};

/// What happens to the cells. Which evictions count has been judged already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) block: u64,
    pub(crate) place: Place,
    pub(crate) deed: Deed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// A reference. `tells`: the client tells what it evicts.
    Reference {
        is_write: bool,
        tells: bool,
    },
    /// The last client that had the block evicted it.
    Evicted,
    Discarded,
}

/// What a cell simulates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    /// Number of the policy among all that the adviser knows.
    pub(crate) policy: usize,
    pub(crate) placement: Placement,
    /// Size of the cache that is simulated, in blocks.
    pub(crate) blocks: u32,
    /// Size of the miniature, in blocks.
    pub(crate) miniature: u32,
    /// The share of the blocks that it sees, and the number of that sample.
    pub(crate) rate: f64,
    pub(crate) depth: u8,
}

/// Deliveries that a full-size cache remembers at least (`foresight.rs` of the levels), and for
/// each block of its size.
const DELIVERIES: (f64, u32) = (65536.0, 4);

impl Setting {
    /// Most bytes of the miniature with a policy.
    pub(crate) fn bytes(&self, policy: &Spec) -> u64 {
        let deliveries = (self.placement != Placement::Access).then(|| self.deliveries());
        level_bytes(policy, deliveries, self.miniature)
    }

    /// Deliveries that the miniature remembers.
    fn deliveries(&self) -> u32 {
        let rate = f64::from(self.miniature) / f64::from(self.blocks);
        let least = (DELIVERIES.0 * rate).ceil() as u32;
        self.miniature.saturating_mul(DELIVERIES.1).max(least)
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

/// A miniature cache with its counts.
pub(crate) struct Cell {
    pub(crate) setting: Setting,
    level: Level,
    mode: WriteMode,
    /// Reads that missed.
    pub(crate) misses: Window,
    /// Blocks read from the store because a client evicted them.
    pub(crate) reloads: Window,
    /// Blocks that references brought into the miniature in the present epoch, or would have.
    pub(crate) admitted: u32,
}

impl Cell {
    /// An empty cell.
    ///
    /// # Errors
    /// Policy and placement do not fit together, or the policy cannot be made.
    pub(crate) fn new(
        setting: Setting,
        policy: &Spec,
        mode: WriteMode,
        seed: u64,
    ) -> Result<Self, PlacementError> {
        let placement = setting.scaled_placement();
        let mut level = Level::new(policy, setting.miniature, &placement, mode, seed)?;
        level.remember_deliveries(setting.deliveries(), seed);
        level.make_room(known_blocks(policy, setting.miniature));
        let (misses, reloads) = Default::default();
        Ok(Self { setting, level, mode, misses, reloads, admitted: 0 })
    }

    /// Continues with another policy, and with the resident blocks if placement is at the access.
    /// What was counted is forgotten.
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
        if setting.placement != Placement::Access {
            *self = Self::new(setting, spec, self.mode, seed)?;
            return Ok(());
        }
        self.level.replace(spec, &setting.placement, None, seed)?;
        self.level.make_room(known_blocks(spec, setting.miniature));
        self.setting = setting;
        self.misses.clear();
        self.reloads.clear();
        Ok(())
    }

    /// Takes steps in order. They count only if `counts`.
    pub(crate) fn take(&mut self, steps: &[Step], counts: bool) {
        let depth = self.setting.depth;
        for &Step { block, place, deed } in steps.iter().filter(|step| step.place.depth >= depth) {
            match deed {
                Deed::Reference { is_write, tells } => {
                    let hit = if tells {
                        self.level.reference(block, is_write, || false).hit
                    } else {
                        self.level.reference_by_access(block, is_write, false).hit
                    };
                    if counts && !hit && !is_write {
                        self.misses.count(place);
                    }
                    self.admitted += u32::from(!hit && self.mode.admits(is_write));
                }
                Deed::Evicted => {
                    let down = self.level.client_evicted(block);
                    self.place(block, place, down, counts);
                    while let Some((block, down)) = self.level.next_placement() {
                        self.place(block, place, down, counts);
                    }
                }
                Deed::Discarded => drop(self.level.discard(block)),
            }
        }
    }

    /// Does what the level decided about a block that a client evicted. The data of a block that
    /// must be read back are here at once.
    fn place(&mut self, block: u64, at: Place, down: Down, counts: bool) {
        if down != Down::Fetch {
            return;
        }
        let hands_over = self.level.rules().is_some_and(|rules| rules.down == WayDown::Demote);
        let way = if hands_over { WayDown::Demote } else { WayDown::Reload };
        self.level.arrived(block, way);
        if counts && !hands_over {
            self.reloads.count(at);
        }
    }

    /// Number of resident blocks of the miniature.
    pub(crate) fn len(&self) -> u32 {
        self.level.len()
    }

    /// Whether the miniature has no room left.
    pub(crate) fn is_full(&self) -> bool {
        self.level.len() >= self.level.capacity()
    }

    /// Ends the epoch.
    pub(crate) fn end_epoch(&mut self) {
        self.misses.end_epoch();
        self.reloads.end_epoch();
        self.admitted = 0;
    }

    /// Drops all epochs but the last `kept`.
    pub(crate) fn keep(&mut self, kept: usize) {
        self.misses.keep(kept);
        self.reloads.keep(kept);
    }
}

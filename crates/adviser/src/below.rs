//! Flash below the miniature of a cell: what it learns of the memory above it, and what it counts.
//!
//! Not here: what goes to flash and what leaves (`undercroft_flash`).

use undercroft_flash::{Below, Flash, FlashSpec, Reference, Slots};
use undercroft_level::{Level, Referred};

use crate::window::{IN_TURNOVER, Place, Totals, Window};

/// Sizes of flash that are simulated, in those of memory.
pub(crate) const FLASH_BY_MEMORY: [u32; 3] = [4, 8, 16];

/// Turnovers of the flash, reckoned by what memory takes in, until it shows what it is worth.
const TURNOVERS: u32 = 2;

/// Flash below the miniature of a cell.
pub(crate) struct BelowMemory {
    /// Its size, in those of memory.
    pub(crate) times: u32,
    level: Below<Slots>,
    /// Reads that missed in memory and on flash.
    pub(crate) misses: Window,
    /// Blocks written to flash.
    pub(crate) written: Totals,
    /// Complete epochs since it was empty, or since the workload changed.
    epochs: u32,
    seed: u64,
}

impl BelowMemory {
    /// Nothing on flash, of `times` the size of a memory of `memory` blocks.
    pub(crate) fn new(times: u32, memory: u32, seed: u64) -> Self {
        let slots = Slots::new(memory.saturating_mul(times), seed);
        Self {
            times,
            level: Below::new(Flash::new(slots, &FlashSpec::default(), 1)),
            misses: Window::default(),
            written: Totals::default(),
            epochs: 0,
            seed,
        }
    }

    /// Begins anew below a memory of another size.
    pub(crate) fn resize(&mut self, memory: u32) {
        *self = Self::new(self.times, memory, self.seed);
    }

    /// The memory served a reference. `counts`: where it counts, if it does.
    pub(crate) fn referred(
        &mut self,
        (block, is_write): (u64, bool),
        referred: Referred,
        memory: &Level,
        counts: Option<Place>,
    ) {
        let Referred { hit, before, now } = referred;
        let reference = Reference { block, is_write, is_streamed: false, hit, before };
        let answer = self.level.referred(&reference);
        if let (false, None, Some(place)) = (hit || is_write, answer.slot, counts) {
            self.misses.count(place);
        }
        self.left(memory, counts.is_some());
        self.level.holds(block, now, answer.evidence);
    }

    /// The memory placed a block that nobody requested.
    pub(crate) fn arrived(&mut self, block: u64, memory: &Level, counts: bool) {
        let answer = self.level.arrived(block);
        self.left(memory, counts);
        if let Some(frame) = memory.frame(block) {
            self.level.holds(block, Some(frame), answer.evidence);
        }
    }

    /// The contents of a block are void.
    pub(crate) fn discard(&mut self, block: u64) {
        self.level.flash.discard(block);
    }

    /// Takes what left the memory.
    fn left(&mut self, memory: &Level, counts: bool) {
        for gone in memory.evicted() {
            let slot = self.level.left(gone.block, gone.frame);
            self.written.now += u64::from(counts && slot.is_some());
        }
    }

    /// Ends the epoch.
    pub(crate) fn end_epoch(&mut self) {
        self.misses.end_epoch();
        self.written.end_epoch();
        self.epochs = self.epochs.saturating_add(1);
    }

    /// Drops all epochs but the last `kept`, of a workload that has changed.
    pub(crate) fn keep_epochs(&mut self, kept: usize) {
        self.misses.keep(kept);
        self.written.keep(kept);
        self.epochs = kept as u32;
    }

    /// Whether enough was seen to say what it is worth: so much that it would be full by now if
    /// there were evidence for many blocks.
    pub(crate) fn is_filled(&self) -> bool {
        self.epochs >= TURNOVERS * self.times * IN_TURNOVER
    }
}

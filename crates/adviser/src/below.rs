//! Flash below the miniature of a cell: what it learns of the memory above it, and what it counts.
//! What it is told, and in which order, is what `undercroft_sim` tells a simulated level on flash.
//!
//! Not here: what goes to flash and what leaves (`undercroft_flash`).

use undercroft_flash::{Evidence, Flash, FlashSpec, Slots};
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
    flash: Flash<Slots>,
    /// The evidence for the block in each frame of the memory.
    evidence: Vec<Evidence>,
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
            flash: Flash::new(slots, &FlashSpec::default(), 1),
            evidence: vec![Evidence::None; memory as usize + 1],
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
        let before = referred.before.map(|frame| self.of(frame));
        let evidence = if is_write {
            self.flash.write(block, before, false).evidence
        } else if referred.hit {
            before.unwrap_or_default().hit()
        } else {
            let found = self.flash.read(block, false);
            if let (None, Some(place)) = (found.slot, counts) {
                self.misses.count(place);
            }
            found.evidence
        };
        self.left(memory, counts.is_some());
        match referred.now {
            Some(frame) => self.keep(frame, evidence),
            None => self.flash.lent(block, evidence),
        }
    }

    /// The memory placed a block that nobody requested.
    pub(crate) fn arrived(&mut self, block: u64, memory: &Level, counts: bool) {
        let (_, evidence) = self.flash.arrived(block);
        self.left(memory, counts);
        if let Some(frame) = memory.frame(block) {
            self.keep(frame, evidence);
        }
    }

    /// The contents of a block are void.
    pub(crate) fn discard(&mut self, block: u64) {
        self.flash.discard(block);
    }

    /// Takes what left the memory.
    fn left(&mut self, memory: &Level, counts: bool) {
        for gone in memory.evicted() {
            let slot = self.flash.left(gone.block, self.of(gone.frame));
            self.written.now += u64::from(counts && slot.is_some());
        }
    }

    fn of(&self, frame: u32) -> Evidence {
        self.evidence.get(frame as usize).copied().unwrap_or_default()
    }

    fn keep(&mut self, frame: u32, evidence: Evidence) {
        let frame = frame as usize;
        if frame >= self.evidence.len() {
            self.evidence.resize(frame + 1, Evidence::None);
        }
        self.evidence[frame] = evidence;
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

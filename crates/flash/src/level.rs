//! The level: what it learns of memory, what it answers, and what it counts.

use std::ops::RangeInclusive;

use crate::admission::{Admission, Refused};
use crate::directory::{Directory, Evidence, Slot};
use crate::ghosts::Ghosts;
use crate::spec::{FlashSpec, Rule};
use crate::voids::Voids;

/// Ranges of fewer blocks than this are discarded block by block.
const AT_ONCE: u64 = 1024;

/// What a read found that missed in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where the block lies on flash; `None`: it is read from the store. Read it before the next
    /// block leaves memory, which may get its slot.
    pub slot: Option<Slot>,
    /// To be kept with its frame.
    pub evidence: Evidence,
    /// The slot that the block is to be written to, now that it is in memory.
    pub write_to: Option<Slot>,
}

/// What a write leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The slot whose copy is out of date. It is free from now on.
    pub ended: Option<Slot>,
    /// To be kept with its frame.
    pub evidence: Evidence,
    /// The slot that the new contents are to be written to.
    pub write_to: Option<Slot>,
}

/// What happened at a flash level, in blocks. Memory's hits are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashCounts {
    /// Reads that missed in memory.
    pub reads: u64,
    /// Those that found the block on flash.
    pub hits: u64,
    /// Blocks written to flash.
    pub written: u64,
    /// Those of them that lay on flash until a write ended their copy: no rule can avoid them and
    /// keep the block.
    pub rewritten: u64,
    /// Blocks that left memory and still had a good copy on flash, so that nothing was written.
    pub kept: u64,
    /// Copies that a write or a discard ended.
    pub ended: u64,
    /// Blocks that had to go from flash for others.
    pub evicted: u64,
    /// Blocks that left memory and were not written to flash, for want of evidence.
    pub without_evidence: u64,
    /// Blocks that had come back, but as part of a sequential stream; with the rules that write at
    /// the miss, all blocks of streams.
    pub sequential: u64,
    /// Blocks with evidence that was not worth its price while the budget was short.
    pub too_dear: u64,
    /// Blocks for which nothing was left of the budget.
    pub over_budget: u64,
    /// Blocks that were to be written and were not, since flash was too slow or failed. They count
    /// in none of the others. None in a simulation.
    pub given_up: u64,
}

/// The level.
///
/// ```
/// use undercroft_flash::{Evidence, Flash, FlashSpec, Slots};
///
/// let spec: FlashSpec = "1000blk".parse()?;
/// let mut flash = Flash::new(Slots::new(1000, 0), &spec, 4096);
/// // Block 7 is read, leaves memory without another reference, and comes back.
/// assert_eq!(flash.read(7, false).evidence, Evidence::None);
/// assert_eq!(flash.left(7, Evidence::None), None);
/// assert_eq!(flash.read(7, false).evidence, Evidence::Returned);
/// // When it leaves again it is written to flash, where the next read finds it.
/// let slot = flash.left(7, Evidence::Returned);
/// assert_eq!(flash.read(7, false).slot, slot);
/// # Ok::<(), undercroft_flash::SpecError>(())
/// ```
pub struct Flash<D> {
    directory: D,
    ghosts: Ghosts,
    rule: Rule,
    admission: Option<Admission>,
    /// Number of ghosts that count as remembered; from a fifth of the slots to all of them.
    window: u32,
    voids: Voids,
    /// Whether nothing can be written now.
    is_busy: bool,
    counts: FlashCounts,
}

impl<D: Directory> Flash<D> {
    /// A level with nothing on flash. `block_bytes`: size of a block, for the budget.
    pub fn new(directory: D, spec: &FlashSpec, block_bytes: u32) -> Self {
        let capacity = directory.capacity();
        let budget = spec.budget.bytes().map(|bytes| bytes / u64::from(block_bytes.max(1)));
        Self {
            ghosts: Ghosts::new(capacity),
            rule: spec.rule,
            admission: budget.map(|blocks| Admission::new(blocks, capacity)),
            window: (capacity / 5).max(1),
            voids: Voids::default(),
            is_busy: false,
            counts: FlashCounts::default(),
            directory,
        }
    }

    /// Tells the level the time, in microseconds since any moment. It never goes back. Only a
    /// budget needs it.
    pub fn advance(&mut self, now_us: u64) {
        if let Some(admission) = &mut self.admission {
            admission.advance(now_us);
        }
    }

    /// Says whether nothing can be written for now: blocks that would be are given up, and none
    /// leaves for them. Never so in a simulation.
    pub fn set_busy(&mut self, is_busy: bool) {
        self.is_busy = is_busy;
    }

    /// A block is read that is not in memory. `is_streamed`: it belongs to a sequential stream.
    pub fn read(&mut self, block: u64, is_streamed: bool) -> Found {
        self.counts.reads += 1;
        if let Some(slot) = self.find(block) {
            self.counts.hits += 1;
            let written_for = self.directory.touch(slot);
            self.admission.iter_mut().for_each(|admission| admission.hit(written_for));
            self.adapt(false);
            return Found { slot: Some(slot), evidence: Evidence::WasThere, write_to: None };
        }
        self.adapt(true);
        let (evidence, write_to) = self.missed(block, is_streamed);
        Found { slot: None, evidence, write_to }
    }

    /// As LARC does: misses widen the window, and hits narrow it, each the faster the farther it
    /// has gone the other way.
    fn adapt(&mut self, is_wider: bool) {
        let (capacity, window) = (self.directory.capacity(), self.window);
        let least = (capacity / 5).max(1);
        self.window = if is_wider {
            (window + capacity / window).min(capacity)
        } else {
            let rest = (capacity - window).max(capacity / 10).max(1);
            window.saturating_sub(capacity / rest).max(least)
        };
    }

    /// A block is written. `before`: the evidence that it had, if it was in memory. `is_streamed`:
    /// as for a read.
    pub fn write(&mut self, block: u64, before: Option<Evidence>, is_streamed: bool) -> Changed {
        let ended = self.end_copy(block);
        let evidence = match (ended, before) {
            (Some(_), _) => Evidence::Changed,
            (None, Some(before)) => before.hit(),
            (None, None) => Evidence::None,
        };
        if self.rule == Rule::Evidence && before.is_some() {
            return Changed { ended, evidence, write_to: None };
        }
        if ended.is_some() && self.rule != Rule::Evidence {
            let write_to = self.admit(block, evidence);
            return Changed { ended, evidence, write_to };
        }
        let (found, write_to) = self.missed(block, is_streamed);
        let evidence = if evidence == Evidence::None { found } else { evidence };
        Changed { ended, evidence, write_to }
    }

    /// A block that is neither in memory nor on flash is referenced: what speaks for it, and where
    /// it goes at once.
    fn missed(&mut self, block: u64, is_streamed: bool) -> (Evidence, Option<Slot>) {
        let is_back = self.ghosts.take(block, self.window);
        if is_streamed && self.rule != Rule::Evidence {
            self.counts.sequential += 1;
            return (Evidence::None, None);
        }
        let evidence = match (is_back, is_streamed) {
            (false, _) => Evidence::None,
            (true, false) => Evidence::Returned,
            (true, true) => Evidence::Streamed,
        };
        match self.rule {
            Rule::Evidence => (evidence, None),
            Rule::Access => (evidence, self.admit(block, evidence)),
            Rule::SecondMiss if is_back => (evidence, self.admit(block, evidence)),
            Rule::SecondMiss => {
                self.counts.without_evidence += 1;
                self.ghosts.insert(block);
                (evidence, None)
            }
        }
    }

    /// A block leaves memory, unchanged since the store has it. Returns the slot that it is to be
    /// written to. Its contents are needed until they are there.
    pub fn left(&mut self, block: u64, evidence: Evidence) -> Option<Slot> {
        if let Some(slot) = self.find(block) {
            self.directory.keep(slot);
            self.counts.kept += 1;
            return None;
        }
        if self.rule != Rule::Evidence {
            return None;
        }
        if matches!(evidence, Evidence::None | Evidence::Streamed) {
            let is_streamed = evidence == Evidence::Streamed;
            self.counts.sequential += u64::from(is_streamed);
            self.counts.without_evidence += u64::from(!is_streamed);
            self.ghosts.insert(block);
            return None;
        }
        let slot = self.admit(block, evidence);
        if slot.is_none() {
            self.ghosts.insert(block);
        }
        slot
    }

    /// A block comes to memory that nobody asked for: a client handed it over or reported its
    /// eviction. Returns where it lies on flash, if it does, and the evidence to be kept with its
    /// frame: that it was used before, and lately.
    pub fn arrived(&mut self, block: u64) -> (Option<Slot>, Evidence) {
        if let Some(slot) = self.find(block) {
            return (Some(slot), Evidence::WasThere);
        }
        let is_back = self.ghosts.take(block, self.window);
        (None, if is_back { Evidence::Returned } else { Evidence::None })
    }

    /// A block went to a client, and memory did not keep it: what spoke for it is remembered until
    /// the client hands it over.
    pub fn lent(&mut self, block: u64, evidence: Evidence) {
        if !matches!(evidence, Evidence::None | Evidence::Streamed)
            && self.directory.find(block).is_none()
        {
            self.ghosts.insert(block);
        }
    }

    /// The contents of a block are gone or unknown (TRIM, a failed write): neither its copy nor its
    /// ghost counts. Returns the slot of the copy, which is free from now on.
    pub fn discard(&mut self, block: u64) -> Option<Slot> {
        self.ghosts.take(block, self.window);
        self.end_copy(block)
    }

    /// The contents of all blocks of a range are gone or unknown, as of each by
    /// [`discard`](Self::discard). A long range takes no longer than a short one: its copies count
    /// no more from now on, and their slots become free while other calls are made.
    pub fn discard_all(&mut self, blocks: &RangeInclusive<u64>) {
        if blocks.end() - blocks.start() < AT_ONCE {
            blocks.clone().for_each(|block| _ = self.discard(block));
        } else {
            self.voids.add(blocks.clone());
        }
    }

    /// Empties some of the slots whose copies a long discard has ended, a bounded number. Returns
    /// whether there may be more. With a journal, sweep to the end before the store changes.
    pub fn sweep(&mut self) -> bool {
        if self.directory.has_room() {
            self.counts.ended += self.voids.sweep(&mut self.directory);
        }
        !self.voids.is_empty()
    }

    /// Whether slots of blocks of this range, or of one that it overlaps, are still to be swept.
    pub fn is_void(&self, blocks: &RangeInclusive<u64>) -> bool {
        self.voids.overlaps(blocks)
    }

    /// What was to be written to the slot of a block was not. The copy does not count.
    pub fn give_up(&mut self, block: u64) {
        let Some(slot) = self.directory.find(block) else { return };
        self.directory.empty(slot);
        self.counts.written = self.counts.written.saturating_sub(1);
        self.counts.given_up += 1;
    }

    /// The slot of a block that is on flash.
    pub fn find(&mut self, block: u64) -> Option<Slot> {
        if !self.voids.is_empty() {
            self.sweep();
            if self.voids.contains(block) {
                self.end_copy(block);
            }
        }
        self.directory.find(block)
    }

    fn end_copy(&mut self, block: u64) -> Option<Slot> {
        let slot = self.directory.find(block)?;
        self.directory.empty(slot);
        self.counts.ended += 1;
        Some(slot)
    }

    /// Places a block if the budget allows it.
    fn admit(&mut self, block: u64, evidence: Evidence) -> Option<Slot> {
        if block >= self.directory.limit() {
            return None;
        }
        if self.is_busy {
            self.counts.given_up += 1;
            return None;
        }
        if let Some(admission) = &mut self.admission {
            match admission.admits(evidence) {
                Ok(()) => {}
                Err(Refused::TooDear) => {
                    self.counts.too_dear += 1;
                    return None;
                }
                Err(Refused::OverBudget) => {
                    self.counts.over_budget += 1;
                    return None;
                }
            }
        }
        let (slot, gone) = self.directory.place(block, evidence)?;
        self.counts.written += 1;
        self.counts.rewritten += u64::from(evidence == Evidence::Changed);
        if let Some(gone) = gone {
            self.counts.evicted += 1;
            if self.rule == Rule::Evidence {
                self.ghosts.insert(gone);
            }
        }
        Some(slot)
    }

    /// Whether a block is on flash.
    pub fn has(&self, block: u64) -> bool {
        self.directory.find(block).is_some()
    }

    /// The counts so far.
    pub fn counts(&self) -> &FlashCounts {
        &self.counts
    }

    /// Resets the counts but not the content, at the end of a warm-up.
    pub fn restart_counts(&mut self) {
        self.counts = FlashCounts::default();
    }

    /// The directory.
    pub fn directory(&self) -> &D {
        &self.directory
    }

    /// The directory, for what the level has no part in: entering copies and committing.
    pub fn directory_mut(&mut self) -> &mut D {
        &mut self.directory
    }
}

//! A level on flash below a memory: the evidence for the block in each frame of the memory, and the
//! order in which the level hears of a reference.
//!
//! 1. [`referred`](Below::referred): the memory served a reference, or placed a block unasked
//!    ([`arrived`](Below::arrived)).
//! 2. [`Flash::left`] with what [`evidence_of`](Below::evidence_of) said of the frame before its
//!    next block: the blocks that had to go for it. [`left`](Below::left) is both.
//! 3. [`holds`](Below::holds): the block's frame now.
//!
//! Simulations, advice and the server tell it so, and their counts are equal.

use crate::directory::{Directory, Evidence, Slot};
use crate::level::Flash;

/// A reference that a memory served.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// The block.
    pub block: u64,
    /// Whether it was written.
    pub is_write: bool,
    /// Whether it belongs to a sequential stream.
    pub is_streamed: bool,
    /// Whether memory had it.
    pub hit: bool,
    /// The frame that it had in memory.
    pub before: Option<u32>,
}

/// What a level on flash answers to a reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// To be kept with the block's frame.
    pub evidence: Evidence,
    /// Where a read that missed in memory finds the block.
    pub slot: Option<Slot>,
    /// The slot whose copy a write has ended.
    pub ended: Option<Slot>,
    /// The slot that the block is to be written to at once.
    pub write_to: Option<Slot>,
}

/// A level on flash, and the evidence for what lies in the memory above it.
pub struct Below<D> {
    /// The level.
    pub flash: Flash<D>,
    evidence: Vec<Evidence>,
}

impl<D: Directory> Below<D> {
    /// A level below an empty memory.
    pub fn new(flash: Flash<D>) -> Self {
        Self { flash, evidence: Vec::new() }
    }

    /// The memory served a reference.
    pub fn referred(&mut self, it: &Reference) -> Answer {
        let before = it.before.map(|frame| self.evidence_of(frame));
        if it.is_write {
            let changed = self.flash.write(it.block, before, it.is_streamed);
            let (evidence, ended, write_to) = (changed.evidence, changed.ended, changed.write_to);
            Answer { evidence, slot: None, ended, write_to }
        } else if it.hit {
            Answer { evidence: before.unwrap_or_default().hit(), ..Answer::default() }
        } else {
            let found = self.flash.read(it.block, it.is_streamed);
            let (evidence, slot, write_to) = (found.evidence, found.slot, found.write_to);
            Answer { evidence, slot, ended: None, write_to }
        }
    }

    /// The memory placed a block that nobody asked for: where it lies on flash, and what speaks for
    /// it.
    pub fn arrived(&mut self, block: u64) -> Answer {
        let (slot, evidence) = self.flash.arrived(block);
        Answer { evidence, slot, ..Answer::default() }
    }

    /// A block left this frame to another one. Returns the slot that it is to be written to.
    pub fn left(&mut self, block: u64, frame: u32) -> Option<Slot> {
        self.flash.left(block, self.evidence_of(frame))
    }

    /// The memory holds the block in this frame now, or not at all.
    pub fn holds(&mut self, block: u64, frame: Option<u32>, evidence: Evidence) {
        let Some(frame) = frame else { return self.flash.lent(block, evidence) };
        let frame = frame as usize;
        if frame >= self.evidence.len() {
            self.evidence.resize(frame + 1, Evidence::None);
        }
        self.evidence[frame] = evidence;
    }

    /// What speaks for the block in this frame.
    pub fn evidence_of(&self, frame: u32) -> Evidence {
        self.evidence.get(frame as usize).copied().unwrap_or_default()
    }

    /// Nothing is known of the blocks in memory any more.
    pub fn forget_evidence(&mut self) {
        self.evidence.clear();
    }
}

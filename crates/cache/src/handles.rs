//! From blocks to the handles that a policy or a level knows them by, and to the frames of those
//! that are here. Blocks have any numbers and are found by hashing; or, in a simulation, they are
//! numbered from 0, and a block is its own handle.
//!
//! Invariants (checked by [`Handles::validate`]):
//! 1. a handle has a frame exactly if its block is here, and no two share one; none is lost;
//! 2. frames are below the largest number of them that there ever was.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;

use crate::{Entry, Frame};

/// Instead of a frame: the block is not here.
const NO_FRAME: Frame = u32::MAX;

/// Handles beyond those in use that are kept before all are looked through.
const SPARE_HANDLES: usize = 1 << 10;

/// A block, and where its data lies if it is here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) block: u64,
    pub(crate) frame: Frame,
}

/// The index.
#[derive(Clone)]
pub(crate) struct Handles {
    /// None: a block is its own handle.
    table: Option<HashTable<Entry>>,
    slots: Vec<Slot>,
    free_entries: Vec<Entry>,
    free_frames: Vec<Frame>,
    frames: u32,
    hasher: FixedState,
}

impl Handles {
    /// With so many frames. `seed` makes the index unpredictable, and changes nothing else.
    pub(crate) fn new(frames: u32, seed: u64) -> Self {
        Self {
            table: Some(HashTable::new()),
            slots: Vec::new(),
            free_entries: Vec::new(),
            free_frames: (0..frames).rev().collect(),
            frames,
            hasher: FixedState::with_seed(seed),
        }
    }

    /// For blocks numbered from 0, each its own handle.
    pub(crate) fn dense(frames: u32) -> Self {
        Self { table: None, ..Self::new(frames, 0) }
    }

    /// Whether blocks are numbered from 0, each its own handle.
    pub(crate) fn is_dense(&self) -> bool {
        self.table.is_none()
    }

    /// Handles so far, in use or not.
    pub(crate) fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// So many frames from now on, if that is more than there are.
    pub(crate) fn grow_frames(&mut self, frames: u32) {
        self.free_frames.extend((self.frames..frames).rev());
        self.frames = self.frames.max(frames);
    }

    /// All handles in use, in no particular order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.table.iter().flatten().copied()
    }

    #[inline]
    pub(crate) fn slot(&self, entry: Entry) -> Slot {
        self.slots[entry as usize]
    }

    #[inline]
    pub(crate) fn frame(&self, entry: Entry) -> Option<Frame> {
        Some(self.slot(entry).frame).filter(|&frame| frame != NO_FRAME)
    }

    /// Blocks that have frames, and these, of handles with numbers in a range.
    pub(crate) fn residents_within(&self, part: std::ops::Range<u32>) -> Vec<(u64, Frame)> {
        let end = part.end.min(self.count()) as usize;
        let part = self.slots.get(part.start as usize..end).unwrap_or_default();
        let resident = part.iter().filter(|slot| slot.frame != NO_FRAME);
        resident.map(|slot| (slot.block, slot.frame)).collect()
    }

    /// The frame of a block that was found there before, unless that has changed since.
    #[inline]
    pub(crate) fn frame_of(&self, block: u64, entry: Entry) -> Option<Frame> {
        self.frame(entry).filter(|_| self.slot(entry).block == block)
    }

    #[inline]
    pub(crate) fn find(&self, block: u64) -> Option<Entry> {
        let Some(table) = &self.table else { return self.find_dense(block) };
        let hash = self.hasher.hash_one(block);
        table.find(hash, |&entry| self.slots[entry as usize].block == block).copied()
    }

    fn find_dense(&self, block: u64) -> Option<Entry> {
        (block < self.slots.len() as u64).then_some(block as Entry)
    }

    /// Appends where each of these blocks is known. In two passes, so that the processor waits for
    /// many places of one kind at once: the table's, and then those of the blocks that it names.
    pub(crate) fn find_all(&self, blocks: &[u64], found: &mut Vec<Option<Entry>>) {
        let Some(table) = &self.table else {
            return found.extend(blocks.iter().map(|&block| self.find_dense(block)));
        };
        let start = found.len();
        // What the table names first is mostly the block, and is looked at when it is near.
        let likely = |&block| table.find(self.hasher.hash_one(block), |_| true).copied();
        found.extend(blocks.iter().map(likely));
        for (&block, found) in blocks.iter().zip(&mut found[start..]) {
            if found.is_some_and(|entry| self.slots[entry as usize].block != block) {
                *found = self.find(block);
            }
        }
    }

    /// The handle of a block: the one that it has, or a fresh one, and whether it is that.
    #[inline]
    pub(crate) fn enter(&mut self, block: u64) -> (Entry, bool) {
        let (slots, hasher) = (&mut self.slots, &self.hasher);
        let Some(table) = &mut self.table else {
            let known = slots.len() as u64;
            slots.extend((known..=block).map(|block| Slot { block, frame: NO_FRAME }));
            return (block as Entry, block >= known);
        };
        let hash = hasher.hash_one(block);
        let place = table.entry(
            hash,
            |&entry| slots[entry as usize].block == block,
            |&entry| hasher.hash_one(slots[entry as usize].block),
        );
        match place {
            Place::Occupied(known) => (*known.get(), false),
            Place::Vacant(vacant) => {
                let slot = Slot { block, frame: NO_FRAME };
                let entry = match self.free_entries.pop() {
                    Some(entry) => {
                        slots[entry as usize] = slot;
                        entry
                    }
                    None => {
                        slots.push(slot);
                        slots.len() as u32 - 1
                    }
                };
                vacant.insert(entry);
                (entry, true)
            }
        }
    }

    /// Frees the handles of blocks that are not known any more, when there are many beyond those
    /// `used`: tables drop blocks without saying so.
    pub(crate) fn sweep(&mut self, used: usize, is_known: impl Fn(Entry) -> bool) {
        if !self.free_entries.is_empty() || self.slots.len() < 2 * used + SPARE_HANDLES {
            return;
        }
        let Self { table: Some(table), free_entries, .. } = self else { return };
        table.retain(|&mut entry| {
            let keeps = is_known(entry);
            if !keeps {
                free_entries.push(entry);
            }
            keeps
        });
    }

    /// The frame of a block that is here, given now if it has none yet.
    #[inline]
    pub(crate) fn give_frame(&mut self, entry: Entry) -> Frame {
        let slot = &mut self.slots[entry as usize];
        if slot.frame == NO_FRAME {
            slot.frame = self.free_frames.pop().expect("a frame for every block that is here");
        }
        slot.frame
    }

    /// A block is not here any more: the frame that it had.
    pub(crate) fn release(&mut self, entry: Entry) -> Option<Frame> {
        let frame = std::mem::replace(&mut self.slots[entry as usize].frame, NO_FRAME);
        if frame == NO_FRAME {
            return None;
        }
        self.free_frames.push(frame);
        Some(frame)
    }

    /// A block is not known any more. True if it was.
    pub(crate) fn drop_handle(&mut self, entry: Entry) -> bool {
        let Some(table) = &mut self.table else { return false };
        let hash = self.hasher.hash_one(self.slots[entry as usize].block);
        let Ok(found) = table.find_entry(hash, |&other| other == entry) else { return false };
        found.remove();
        self.free_entries.push(entry);
        true
    }

    /// Checks the invariants; `held` blocks are here, those of which `is_here` says so.
    pub(crate) fn validate(
        &self,
        held: u32,
        is_here: impl Fn(Entry) -> bool,
    ) -> Result<(), String> {
        let mut used = vec![false; self.frames as usize];
        let all = 0..if self.table.is_none() { self.slots.len() as Entry } else { 0 };
        for entry in self.entries().chain(all) {
            let frame = self.slots[entry as usize].frame;
            if is_here(entry) != (frame != NO_FRAME) {
                return Err(format!("handle {entry}: being here and having a frame disagree"));
            }
            if frame != NO_FRAME && std::mem::replace(&mut used[frame as usize], true) {
                return Err(format!("frame {frame} is used twice"));
            }
        }
        let in_use = used.iter().filter(|&&used| used).count();
        if in_use != held as usize
            || in_use + self.free_frames.len() != self.frames as usize
            || self
                .table
                .as_ref()
                .is_some_and(|table| table.len() + self.free_entries.len() != self.slots.len())
        {
            return Err("frames or handles are lost".into());
        }
        Ok(())
    }
}

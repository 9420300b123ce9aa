//! Maps blocks to the handles by which a policy or a level knows them, and to the frames of
//! resident blocks. Blocks are any numbers and are found by hashing; or, in a simulation, they are
//! numbered from 0 and each is its own handle.
//!
//! Invariants (checked by [`Handles::validate`]):
//! 1. a handle has a frame exactly if its block is resident; no two share a frame, and none is
//!    lost;
//! 2. frames are below the largest number of frames there ever was.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;

use crate::{Entry, Frame};

/// Marks a block that is not resident.
const NO_FRAME: Frame = u32::MAX;

/// A block, and its frame if it is resident.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) block: u64,
    pub(crate) frame: Frame,
}

/// The index.
#[derive(Clone)]
pub(crate) struct Handles {
    /// `None`: a block is its own handle.
    table: Option<HashTable<Entry>>,
    slots: Vec<Slot>,
    free_entries: Vec<Entry>,
    free_frames: Vec<Frame>,
    frames: u32,
    hasher: FixedState,
}

impl Handles {
    /// An empty index with `frames` frames. `seed` makes it unpredictable; it changes nothing else.
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

    /// An empty index for blocks numbered from 0, each its own handle.
    pub(crate) fn dense(frames: u32) -> Self {
        Self { table: None, ..Self::new(frames, 0) }
    }

    /// Takes memory for `handles` handles at once.
    pub(crate) fn make_room(&mut self, handles: u32) {
        let more = (handles as usize).saturating_sub(self.slots.len());
        self.slots.reserve_exact(more);
        let (slots, hasher) = (&self.slots, &self.hasher);
        if let Some(table) = &mut self.table {
            table.reserve(more, |&entry| hasher.hash_one(slots[entry as usize].block));
        }
    }

    /// Whether blocks are numbered from 0, each its own handle.
    pub(crate) fn is_dense(&self) -> bool {
        self.table.is_none()
    }

    /// Number of handles ever made, in use or free.
    pub(crate) fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Raises the number of frames to `frames`, if that is more.
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

    /// The resident blocks with their frames, of handles whose numbers are in a range.
    pub(crate) fn residents_within(&self, part: std::ops::Range<u32>) -> Vec<(u64, Frame)> {
        let end = part.end.min(self.count()) as usize;
        let part = self.slots.get(part.start as usize..end).unwrap_or_default();
        let resident = part.iter().filter(|slot| slot.frame != NO_FRAME);
        resident.map(|slot| (slot.block, slot.frame)).collect()
    }

    /// The frame of a block at a handle found before, unless the handle has changed since.
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

    /// Appends the handle of each of these blocks, if it has one. Two passes overlap the
    /// processor's cache misses: first those of the table, then those of the slots.
    pub(crate) fn find_all(&self, blocks: &[u64], found: &mut Vec<Option<Entry>>) {
        let Some(table) = &self.table else {
            return found.extend(blocks.iter().map(|&block| self.find_dense(block)));
        };
        let start = found.len();
        // The first candidate of the table is usually the right one; the second pass checks it.
        let likely = |&block| table.find(self.hasher.hash_one(block), |_| true).copied();
        found.extend(blocks.iter().map(likely));
        for (&block, found) in blocks.iter().zip(&mut found[start..]) {
            if found.is_some_and(|entry| self.slots[entry as usize].block != block) {
                *found = self.find(block);
            }
        }
    }

    /// The handle of a block, and whether it is new.
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

    /// The frame of a resident block; gives it one if it has none yet.
    #[inline]
    pub(crate) fn give_frame(&mut self, entry: Entry) -> Frame {
        let slot = &mut self.slots[entry as usize];
        if slot.frame == NO_FRAME {
            slot.frame = self.free_frames.pop().expect("a frame for every block that is here");
        }
        slot.frame
    }

    /// Makes a block non-resident. Returns the frame that it had.
    pub(crate) fn release(&mut self, entry: Entry) -> Option<Frame> {
        let frame = std::mem::replace(&mut self.slots[entry as usize].frame, NO_FRAME);
        if frame == NO_FRAME {
            return None;
        }
        self.free_frames.push(frame);
        Some(frame)
    }

    /// Frees the handle of a block that is not known any more. True if a handle was freed.
    pub(crate) fn drop_handle(&mut self, entry: Entry) -> bool {
        let Some(table) = &mut self.table else { return false };
        let hash = self.hasher.hash_one(self.slots[entry as usize].block);
        let Ok(found) = table.find_entry(hash, |&other| other == entry) else { return false };
        found.remove();
        self.free_entries.push(entry);
        true
    }

    /// Checks the invariants; `held` blocks are resident, those for which `is_here` is true.
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

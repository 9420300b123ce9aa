//! The blocks that a policy knows. A policy speaks of entries; here each block that it knows,
//! resident or ghost, has a handle, which is its entry, and each resident block has a frame. Blocks
//! are any numbers and are found by hashing; or, in a simulation, they are numbered from 0 and each
//! is its own handle.
//!
//! Invariants (checked by [`KnownBlocks::validate`]):
//! 1. the index holds exactly the handles that the policy knows, resident or ghost;
//! 2. a handle has a frame exactly if its block is resident; no two share a frame, and none is
//!    lost;
//! 3. frames are below the largest number of frames there ever was.
//!
//! Not here: what a reference or an eviction by a client does, and the counts (`hashed.rs`).

mod saved;

use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;

use undercroft_policy::{Entry, EvictionKind, Evictions, Policy};

/// Number of a frame: where the data of a resident block lies.
pub type Frame = u32;

/// Marks a block that is not resident.
const NO_FRAME: Frame = u32::MAX;

/// An evicted block, and the frame that it had. The frame may already belong to another block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// The block.
    pub block: u64,
    /// The frame of the block; the block that evicted it may use the frame already.
    pub frame: Frame,
    /// Whether a content-aware policy believed that the neighbour holds the block too.
    pub held: bool,
}

/// The blocks that a policy knows, resident or remembered, and the policy.
#[derive(Clone)]
pub struct KnownBlocks {
    /// To change it, [tell](Self::tell) it.
    pub(super) policy: Box<dyn Policy>,
    pub(super) handles: Handles,
    pub(super) prefetched: Prefetched,
    pub(super) is_aware: bool,
    /// Whether the policy hashes blocks.
    hashes_blocks: bool,
    /// The real numbers of renumbered blocks, for a policy that hashes them.
    names: Option<Arc<[u64]>>,
    /// What the policy evicts; empty between calls.
    out: Evictions,
    /// What was evicted since it was last cleared.
    pub(super) evicted: Vec<Evicted>,
}

impl KnownBlocks {
    /// No blocks. `seed`: see [`HashedCache::new`](super::HashedCache::new).
    pub(super) fn new(mut policy: Box<dyn Policy>, seed: u64) -> Self {
        Self {
            handles: Handles::new(policy.capacity(), seed),
            prefetched: Prefetched::default(),
            is_aware: policy.is_content_aware(),
            hashes_blocks: policy.names().is_some(),
            names: None,
            out: Evictions::new(),
            evicted: Vec::new(),
            policy,
        }
    }

    /// All known blocks, in no particular order.
    pub fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.handles.entries().map(|entry| self.handles.slot(entry).block)
    }

    /// Number of blocks that were known at once: of all handles ever made, which are numbered from
    /// 0.
    pub fn most(&self) -> u32 {
        self.handles.count()
    }

    /// The resident blocks whose handle numbers are in a range, with their frames, and the end of
    /// all handle numbers. It allows a scan in parts: a block that stays resident keeps its number.
    pub fn residents_within(&self, part: Range<u32>) -> (Vec<(u64, Frame)>, u32) {
        (self.handles.residents_within(part), self.handles.count())
    }

    /// Whether the policy hashes blocks, so that renumbered ones need their real numbers.
    pub(crate) fn are_hashed(&self) -> bool {
        self.hashes_blocks
    }

    /// See [`HashedCache::number_blocks`](super::HashedCache::number_blocks).
    pub(super) fn number(&mut self, names: Option<Arc<[u64]>>) {
        self.handles = Handles::dense(self.policy.capacity());
        self.names = names.filter(|_| self.hashes_blocks);
    }

    /// Takes memory for `known` blocks at once. Arrays that grow double: they take up to twice what
    /// they need, and three times while they grow.
    pub(super) fn make_room(&mut self, known: u32) {
        self.handles.make_room(known);
        self.policy.grow(known);
        if let Some(names) = self.policy.names() {
            names.reserve_exact((known as usize).saturating_sub(names.len()));
        }
    }

    /// The handle of a block; a new one if it has none. What was evicted before is forgotten.
    pub(super) fn enter(&mut self, block: u64) -> Entry {
        self.evicted.clear();
        if let Some(entry) = self.prefetched.take(block) {
            if self.handles.frame_of(block, entry).is_some() {
                return entry;
            }
        }
        let known = self.handles.count();
        let (entry, is_fresh) = self.handles.enter(block);
        if is_fresh {
            self.policy.grow(self.handles.count());
            if let Some(names) = &self.names {
                let of_these = (known..=entry).zip(&names[known as usize..]);
                of_these.for_each(|(entry, &name)| self.policy.bind(entry, name));
            } else if self.hashes_blocks && !self.handles.is_dense() {
                self.policy.bind(entry, block);
            }
        }
        entry
    }

    /// Tells the policy of an event, and settles what it evicts. Afterwards the block of the event
    /// is to be given a frame if it became resident, and [let go](Self::let_go) if it left.
    #[inline]
    pub(super) fn tell<T>(
        &mut self,
        event: impl FnOnce(&mut dyn Policy, &mut Evictions) -> T,
    ) -> T {
        let answer = event(self.policy.as_mut(), &mut self.out);
        if !self.out.is_empty() {
            self.settle();
        }
        answer
    }

    /// Frees the frames and handles of the blocks that the policy evicted.
    fn settle(&mut self) {
        let mut out = std::mem::take(&mut self.out);
        for eviction in out.iter() {
            let slot = self.handles.slot(eviction.entry);
            if eviction.kind != EvictionKind::Forgotten {
                let held = self.is_held(eviction.entry);
                self.evicted.push(Evicted { block: slot.block, frame: slot.frame, held });
                self.handles.release(eviction.entry);
            }
            if eviction.kind != EvictionKind::Remembered {
                self.drop_if_unknown(eviction.entry);
            }
        }
        out.clear();
        self.out = out;
    }

    /// Whether a content-aware policy believes that the neighbour holds an entry.
    fn is_held(&mut self, entry: Entry) -> bool {
        self.is_aware && self.policy.content_aware().is_some_and(|a| a.neighbour_has(entry))
    }

    /// Frees the frame of a block that is not resident any more, and its handle if the policy does
    /// not know it. Returns the frame.
    pub(super) fn let_go(&mut self, entry: Entry) -> Option<Frame> {
        let frame = self.handles.release(entry);
        self.drop_if_unknown(entry);
        frame
    }

    /// Frees a handle that the policy does not know any more.
    #[inline]
    pub(super) fn drop_if_unknown(&mut self, entry: Entry) {
        if self.policy.contains(entry) || self.policy.remembers(entry) {
            return;
        }
        if self.handles.drop_handle(entry) {
            // The handle may soon be reused for another block.
            self.policy.neighbour_holds(entry, false);
        }
    }

    /// Changes the capacity. The frames of blocks beyond it stay in use.
    pub(super) fn resize(&mut self, capacity: u32) {
        self.tell(|policy, out| policy.resize(capacity, out));
        self.handles.grow_frames(capacity);
    }

    /// Replaces the policy by that of `next`, an empty cache. The resident blocks keep their
    /// handles and frames: the new policy is given them in the order in which the old one would
    /// have evicted them.
    pub(super) fn replace_policy(&mut self, next: Self) {
        let residents = self.policy.residents();
        (self.is_aware, self.hashes_blocks) = (next.is_aware, next.hashes_blocks);
        self.policy = next.policy;
        self.policy.grow(self.handles.count());
        let all = self.handles.entries();
        let ghosts: Vec<Entry> = all.filter(|&entry| self.handles.frame(entry).is_none()).collect();
        for ghost in ghosts {
            self.handles.drop_handle(ghost);
        }
        for entry in residents {
            if self.hashes_blocks {
                self.policy.bind(entry, self.handles.slot(entry).block);
            }
            self.tell(|policy, out| policy.place(entry, out));
        }
    }

    /// Checks the invariants in the head of this file, and the policy's own.
    pub(super) fn validate(&self) -> Result<(), String> {
        self.policy.validate()?;
        let is_known = |entry| self.policy.contains(entry) || self.policy.remembers(entry);
        if let Some(entry) = self.handles.entries().find(|&entry| !is_known(entry)) {
            return Err(format!("handle {entry} is kept for nothing"));
        }
        self.handles.validate(self.policy.len(), |entry| self.policy.contains(entry))
    }
}

/// Blocks that were looked up together, in the order of their coming references, so that these skip
/// the look-up.
#[derive(Clone, Default)]
pub(super) struct Prefetched {
    pub(super) blocks: Vec<u64>,
    /// Where each was found.
    pub(super) found: Vec<Option<Entry>>,
    /// Which of them is referenced next.
    pub(super) next: usize,
}

impl Prefetched {
    /// Where a block was found, if it is the next in order. The block may have moved since.
    #[inline]
    pub(super) fn take(&mut self, block: u64) -> Option<Entry> {
        if self.blocks.get(self.next) != Some(&block) {
            return None;
        }
        self.next += 1;
        self.found[self.next - 1]
    }
}

/// A block, and its frame if it is resident.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) block: u64,
    pub(super) frame: Frame,
}

/// The index of blocks, and the frames.
#[derive(Clone)]
pub(super) struct Handles {
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
    pub(super) fn new(frames: u32, seed: u64) -> Self {
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
    pub(super) fn dense(frames: u32) -> Self {
        Self { table: None, ..Self::new(frames, 0) }
    }

    /// Takes memory for `handles` handles at once.
    pub(super) fn make_room(&mut self, handles: u32) {
        let more = (handles as usize).saturating_sub(self.slots.len());
        self.slots.reserve_exact(more);
        let (slots, hasher) = (&self.slots, &self.hasher);
        if let Some(table) = &mut self.table {
            table.reserve(more, |&entry| hasher.hash_one(slots[entry as usize].block));
        }
    }

    /// Whether blocks are numbered from 0, each its own handle.
    pub(super) fn is_dense(&self) -> bool {
        self.table.is_none()
    }

    /// Number of handles ever made, in use or free.
    pub(super) fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Raises the number of frames to `frames`, if that is more.
    pub(super) fn grow_frames(&mut self, frames: u32) {
        self.free_frames.extend((self.frames..frames).rev());
        self.frames = self.frames.max(frames);
    }

    /// All handles in use, in no particular order.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.table.iter().flatten().copied()
    }

    #[inline]
    pub(super) fn slot(&self, entry: Entry) -> Slot {
        self.slots[entry as usize]
    }

    #[inline]
    pub(super) fn frame(&self, entry: Entry) -> Option<Frame> {
        Some(self.slot(entry).frame).filter(|&frame| frame != NO_FRAME)
    }

    /// The resident blocks with their frames, of handles whose numbers are in a range.
    pub(super) fn residents_within(&self, part: std::ops::Range<u32>) -> Vec<(u64, Frame)> {
        let end = part.end.min(self.count()) as usize;
        let part = self.slots.get(part.start as usize..end).unwrap_or_default();
        let resident = part.iter().filter(|slot| slot.frame != NO_FRAME);
        resident.map(|slot| (slot.block, slot.frame)).collect()
    }

    /// The frame of a block at a handle found before, unless the handle has changed since.
    #[inline]
    pub(super) fn frame_of(&self, block: u64, entry: Entry) -> Option<Frame> {
        self.frame(entry).filter(|_| self.slot(entry).block == block)
    }

    #[inline]
    pub(super) fn find(&self, block: u64) -> Option<Entry> {
        let Some(table) = &self.table else { return self.find_dense(block) };
        let hash = self.hasher.hash_one(block);
        table.find(hash, |&entry| self.slots[entry as usize].block == block).copied()
    }

    fn find_dense(&self, block: u64) -> Option<Entry> {
        (block < self.slots.len() as u64).then_some(block as Entry)
    }

    /// Appends the handle of each of these blocks, if it has one. Two passes overlap the
    /// processor's cache misses: first those of the table, then those of the slots.
    pub(super) fn find_all(&self, blocks: &[u64], found: &mut Vec<Option<Entry>>) {
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
    pub(super) fn enter(&mut self, block: u64) -> (Entry, bool) {
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
    pub(super) fn give_frame(&mut self, entry: Entry) -> Frame {
        let slot = &mut self.slots[entry as usize];
        if slot.frame == NO_FRAME {
            slot.frame = self.free_frames.pop().expect("a frame for every block that is here");
        }
        slot.frame
    }

    /// Makes a block non-resident. Returns the frame that it had.
    pub(super) fn release(&mut self, entry: Entry) -> Option<Frame> {
        let frame = std::mem::replace(&mut self.slots[entry as usize].frame, NO_FRAME);
        if frame == NO_FRAME {
            return None;
        }
        self.free_frames.push(frame);
        Some(frame)
    }

    /// Frees the handle of a block that is not known any more. True if a handle was freed.
    pub(super) fn drop_handle(&mut self, entry: Entry) -> bool {
        let Some(table) = &mut self.table else { return false };
        let hash = self.hasher.hash_one(self.slots[entry as usize].block);
        let Ok(found) = table.find_entry(hash, |&other| other == entry) else { return false };
        found.remove();
        self.free_entries.push(entry);
        true
    }

    /// Checks the invariants; `held` blocks are resident, those for which `is_here` is true.
    pub(super) fn validate(
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

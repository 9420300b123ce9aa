//! A policy behind a hashed index: blocks are any 64-bit numbers, and each resident block has a
//! frame. A server keeps its data by frame. One look-up finds both the entry and its frame.
//!
//! Invariants (checked by [`HashedCache::validate`]):
//! 1. the index holds exactly the handles that the policy knows, resident or ghost;
//! 2. a handle has a frame exactly if it is resident; and the invariants of the index
//!    ([`Handles`]).

mod room;
mod saved;

use std::sync::Arc;

use crate::counts::{Counts, Tally};
use crate::handles::Handles;
use crate::marks::Marks;
use crate::policy::refer;
use crate::policy::{Entry, EvictionKind, Evictions, Policy};
use crate::reference::WriteMode;

/// Number of a frame: where the data of a resident block lies.
pub type Frame = u32;

/// The result of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whether the block was resident.
    pub hit: bool,
    /// The frame of the block: it has the data on a hit, and is to be filled on a miss.
    pub frame: Frame,
}

/// The result of a counted reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Referred {
    /// Whether the data was here: in the cache, or without a frame in a level's staging area.
    pub hit: bool,
    /// The frame that the block had. If the block does not have it any more, the frame is free: use
    /// its data before another block gets it.
    pub before: Option<Frame>,
    /// The frame that the block has now; to be filled if it had none before.
    pub now: Option<Frame>,
}

impl Referred {
    /// Whether the block was resident before, and whether it is now.
    pub(crate) fn residence(&self) -> (bool, bool) {
        (self.before.is_some(), self.now.is_some())
    }
}

/// A resident block that was found. Valid until the next call that changes the cache.
#[derive(Clone, Copy)]
pub(crate) struct Resident {
    entry: Entry,
    pub(crate) frame: Frame,
}

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

/// A cache of blocks named by 64-bit numbers, ordered by any policy.
#[derive(Clone)]
pub struct HashedCache {
    policy: Box<dyn Policy>,
    handles: Handles,
    /// What the policy evicts; empty between calls.
    out: Evictions,
    /// What the last call evicted.
    evicted: Vec<Evicted>,
    counts: Counts,
    /// The entry of the last counted reference, if the block is known.
    last: Option<Entry>,
    is_aware: bool,
    /// Whether the policy hashes blocks.
    hashes_blocks: bool,
    /// The [prefetched](Self::warm) blocks, where each was found, and which of them is referenced
    /// next.
    near: (Vec<u64>, Vec<Option<Entry>>),
    next_near: usize,
    /// The entries that [`place_all`](Self::place_all) places; kept to reuse its memory.
    together: Vec<Entry>,
    /// The real numbers of renumbered blocks, for a policy that hashes them.
    names: Option<Arc<[u64]>>,
}

impl HashedCache {
    /// An empty cache. `seed` makes the index unpredictable for clients that choose the block
    /// numbers; it changes nothing else.
    pub fn new(mut policy: Box<dyn Policy>, seed: u64) -> Self {
        let (capacity, is_aware) = (policy.capacity(), policy.is_content_aware());
        let hashes_blocks = policy.names().is_some();
        Self {
            policy,
            handles: Handles::new(capacity, seed),
            out: Evictions::new(),
            evicted: Vec::new(),
            counts: Counts::default(),
            last: None,
            is_aware,
            hashes_blocks,
            near: Default::default(),
            next_near: 0,
            together: Vec::new(),
            names: None,
        }
    }

    /// Declares that blocks are numbered from 0 in the order of their first references, as in a
    /// simulation: each number is its own handle. Call it before anything else. `names` gives the
    /// real numbers, for a policy that hashes blocks.
    pub(crate) fn number_blocks(&mut self, names: Option<Arc<[u64]>>) {
        self.handles = Handles::dense(self.policy.capacity());
        self.names = names.filter(|_| self.hashes_blocks);
    }

    /// Whether renumbered blocks need their real numbers: the policy hashes them.
    pub(crate) fn hashes_blocks(&self) -> bool {
        self.hashes_blocks
    }

    /// The policy.
    pub fn policy(&self) -> &dyn Policy {
        self.policy.as_ref()
    }

    /// The policy alone.
    pub(crate) fn into_policy(self) -> Box<dyn Policy> {
        self.policy
    }

    /// What the last call evicted, in order.
    pub fn evicted(&self) -> &[Evicted] {
        &self.evicted
    }

    /// Begins a call that may not reach the policy: clears the evictions of the last call.
    #[inline]
    pub(crate) fn clear_evicted(&mut self) {
        self.evicted.clear();
    }

    /// The frame of a resident block; the policy does not notice.
    pub fn frame(&self, block: u64) -> Option<Frame> {
        self.handles.frame(self.handles.find(block)?)
    }

    /// Finds blocks, each in its place of `found`, and prefetches what references to them will
    /// need. The processor's cache misses overlap.
    pub fn find_all(&self, blocks: &[u64], found: &mut Vec<Option<Entry>>) {
        found.clear();
        self.handles.find_all(blocks, found);
        std::hint::black_box(self.policy.prefetch_all(found));
    }

    /// Prefetches what references to these blocks will need. If the references come in this order,
    /// they skip the look-up, since the places found are kept. The frames of resident blocks are
    /// appended to `frames`.
    pub fn warm(&mut self, blocks: &[u64], frames: &mut Vec<Frame>) {
        let (mut near, mut found) = std::mem::take(&mut self.near);
        near.clear();
        near.extend_from_slice(blocks);
        self.find_all(blocks, &mut found);
        frames.reserve(found.len());
        let frame = |&entry: &Entry| self.handles.frame(entry);
        found.iter().flatten().filter_map(frame).for_each(|frame| frames.push(frame));
        (self.near, self.next_near) = ((near, found), 0);
    }

    /// Where a prefetched block was found, if that block is the next in order. The block may have
    /// moved since.
    #[inline]
    fn near(&mut self, block: u64) -> Option<Entry> {
        let (near, found) = &self.near;
        if near.get(self.next_near) != Some(&block) {
            return None;
        }
        self.next_near += 1;
        found[self.next_near - 1]
    }

    /// A resident block. `at`: where it was found before, which may save the look-up.
    #[inline]
    pub(crate) fn resident(&mut self, block: u64, at: Option<Entry>) -> Option<Resident> {
        if let Some(entry) = at.or_else(|| self.near(block)) {
            if let Some(frame) = self.handles.frame_of(block, entry) {
                return Some(Resident { entry, frame });
            }
        }
        let entry = self.find(block)?;
        let frame = self.handles.frame(entry)?;
        Some(Resident { entry, frame })
    }

    /// A reference that counts only evictions: touches a resident block, or admits the block.
    pub fn access(&mut self, block: u64) -> Found {
        let entry = self.enter(block);
        let hit = self.policy.access(entry, &mut self.out);
        self.settle();
        self.counts.evictions += self.evicted.len() as u64;
        Found { hit, frame: self.handles.give_frame(entry) }
    }

    /// A reference with the counts of a [`DenseLevel`](crate::DenseLevel). `cold` is called on a
    /// miss: whether the block is known never to have been referenced before.
    pub fn reference(
        &mut self,
        block: u64,
        is_write: bool,
        mode: WriteMode,
        cold: impl FnOnce() -> bool,
    ) -> Referred {
        let before = self.policy.len();
        let entry = if is_write && mode != WriteMode::Allocate {
            // These writes admit nothing, so an unknown block stays unknown.
            self.evicted.clear();
            self.find(block)
        } else {
            Some(self.enter(block))
        };
        let hit =
            entry.is_some_and(|e| refer(self.policy.as_mut(), e, is_write, mode, &mut self.out));
        let mut tally = Tally::default();
        tally.add(is_write, hit, !hit && cold(), mode);
        tally.count(before.into(), self.policy.len().into(), &mut self.counts);
        self.last = entry;
        let Some(entry) = entry else {
            return Referred { hit, before: None, now: None };
        };
        self.settle();
        if self.policy.contains(entry) {
            let frame = self.handles.give_frame(entry);
            return Referred { hit, before: hit.then_some(frame), now: Some(frame) };
        }
        // The block was invalidated, or is a ghost that such a write did not admit.
        let before = self.handles.release(entry);
        self.drop_if_unknown(entry);
        Referred { hit, before, now: None }
    }

    /// A reference of a recognised stream, which the policy does not see. `cold`: see
    /// [`reference`](Self::reference).
    pub(crate) fn pass(
        &mut self,
        block: u64,
        is_write: bool,
        cold: impl FnOnce() -> bool,
    ) -> Referred {
        self.evicted.clear();
        let frame = self.resident(block, None).map(|resident| resident.frame);
        let hit = frame.is_some();
        self.counts.pass(is_write, hit, !hit && cold());
        Referred { hit, before: frame, now: frame }
    }

    /// Counts a read that was not served by [`reference`](Self::reference).
    #[inline]
    pub(crate) fn count_read(&mut self, hit: bool, cold: bool) {
        self.counts.reads += 1;
        self.counts.read_hits += u64::from(hit);
        self.counts.cold_reads += u64::from(cold);
    }

    /// Counts a write that was not served by [`reference`](Self::reference).
    #[inline]
    pub(crate) fn count_write(&mut self, hit: bool) {
        self.counts.writes += 1;
        self.counts.write_hits += u64::from(hit);
    }

    /// The counts: requests, and the evictions of all calls.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Resets the counts but not the content, at the end of a warm-up.
    pub fn restart_counts(&mut self) {
        self.counts.restart();
    }

    /// References a block if it is resident. Returns its frame.
    pub fn touch(&mut self, block: u64) -> Option<Frame> {
        self.evicted.clear();
        let resident = self.resident(block, None)?;
        self.touch_resident(resident);
        Some(resident.frame)
    }

    /// References a resident block.
    #[inline]
    pub(crate) fn touch_resident(&mut self, resident: Resident) {
        self.evicted.clear();
        self.policy.touch(resident.entry, &mut self.out);
        self.settle();
    }

    /// Places a block that the level above evicted. Counts no access.
    pub fn place(&mut self, block: u64) -> Found {
        let entry = self.enter(block);
        let hit = self.policy.contains(entry);
        self.policy.place(entry, &mut self.out);
        self.settle();
        self.counts.evictions += self.evicted.len() as u64;
        Found { hit, frame: self.handles.give_frame(entry) }
    }

    /// Places a resident block that the level above evicted, without a look-up. Counts no access.
    #[inline]
    pub(crate) fn place_resident(&mut self, resident: Resident) {
        self.evicted.clear();
        self.policy.place(resident.entry, &mut self.out);
        self.settle();
        self.counts.evictions += self.evicted.len() as u64;
    }

    /// Does what [`place`](Self::place) does for each block in order. Stops before the first block
    /// that is not resident where it was found, and after the first that evicts another block.
    /// Returns how many blocks were placed.
    pub(crate) fn place_all(&mut self, blocks: &[u64], found: &[Option<Entry>]) -> usize {
        self.evicted.clear();
        let Self { policy, handles, out, together, .. } = self;
        let is_there = |block, entry| handles.frame_of(block, entry).is_some();
        let there = blocks
            .iter()
            .zip(found)
            .map_while(|(&block, found)| found.filter(|&entry| is_there(block, entry)));
        together.clear();
        together.extend(there);
        let placed = policy.place_all(together, out);
        self.settle();
        self.counts.evictions += self.evicted.len() as u64;
        placed
    }

    /// Removes a resident block that moves up, but keeps its history. Returns the frame that it
    /// had.
    pub fn take(&mut self, block: u64) -> Option<Frame> {
        self.evicted.clear();
        let resident = self.resident(block, None)?;
        self.take_resident(resident);
        Some(resident.frame)
    }

    /// Removes a resident block that moves up, without a look-up. Its history is kept.
    pub(crate) fn take_resident(&mut self, Resident { entry, .. }: Resident) {
        self.evicted.clear();
        self.policy.take(entry, &mut self.out);
        self.handles.release(entry);
        self.settle();
        self.drop_if_unknown(entry);
    }

    /// Notes a reference to a non-resident block that was served around this cache.
    pub fn note(&mut self, block: u64) {
        let entry = self.enter(block);
        if !self.policy.contains(entry) {
            self.policy.note(entry, &mut self.out);
        }
        self.settle();
        self.drop_if_unknown(entry);
    }

    /// Forgets a block entirely. Returns the frame that it had, if any.
    pub fn discard(&mut self, block: u64) -> Option<Frame> {
        self.evicted.clear();
        let entry = self.find(block)?;
        self.policy.discard(entry, &mut self.out);
        let frame = self.handles.release(entry);
        self.settle();
        self.drop_if_unknown(entry);
        frame
    }

    /// Notes whether the neighbouring cache holds a block. Ignored for a block that is neither
    /// resident nor a ghost: call it when the block has come.
    pub fn neighbour_holds(&mut self, block: u64, holds: bool) {
        if let Some(entry) = self.find(block) {
            self.policy.neighbour_holds(entry, holds);
        }
    }

    /// Whether the policy wants to know what the neighbouring cache holds.
    pub fn is_aware(&self) -> bool {
        self.is_aware
    }

    /// The block that would be evicted for an unknown one now; `None` while there is room.
    pub fn victim(&self) -> Option<u64> {
        self.policy.victim().map(|entry| self.handles.slot(entry).block)
    }

    /// The resident blocks whose handle numbers are in a range, with their frames. It allows a scan
    /// in parts: a block that stays resident keeps its number. All numbers are below
    /// [`handles`](Self::handles).
    pub fn residents_within(&self, part: std::ops::Range<u32>) -> Vec<(u64, Frame)> {
        self.handles.residents_within(part)
    }

    /// Number of handles ever made.
    pub fn handles(&self) -> u32 {
        self.handles.count()
    }

    /// The resident blocks with their frames, in the policy's order.
    pub fn residents(&self) -> Vec<(u64, Frame)> {
        let slot = |entry: Entry| self.handles.slot(entry);
        self.policy.residents().into_iter().map(slot).map(|s| (s.block, s.frame)).collect()
    }

    /// Changes the capacity. After shrinking, blocks may stay in frames beyond the new capacity.
    pub fn resize(&mut self, capacity: u32) {
        self.evicted.clear();
        self.policy.resize(capacity, &mut self.out);
        self.settle();
        self.counts.evictions += self.evicted.len() as u64;
        self.handles.grow_frames(capacity);
    }

    /// Replaces the policy by an empty one of the same capacity. The resident blocks keep their
    /// handles and frames: the new policy is given them in the order in which the old one would
    /// have evicted them. [`evicted`](Self::evicted) has those that it does not keep.
    ///
    /// The history of other blocks is lost, since no policy understands that of another one.
    pub(crate) fn replace_policy(&mut self, mut policy: Box<dyn Policy>) {
        self.evicted.clear();
        let residents = self.policy.residents();
        (self.is_aware, self.hashes_blocks) = (policy.is_content_aware(), policy.names().is_some());
        self.policy = policy;
        self.policy.grow(self.handles.count());
        self.last = None;
        let all: Vec<Entry> = self.handles.entries().collect();
        let ghosts = all.into_iter().filter(|&entry| self.handles.frame(entry).is_none());
        for ghost in ghosts.collect::<Vec<_>>() {
            self.handles.drop_handle(ghost);
        }
        for entry in residents {
            if self.hashes_blocks {
                self.policy.bind(entry, self.handles.slot(entry).block);
            }
            self.policy.place(entry, &mut self.out);
            self.settle();
        }
        self.counts.evictions += self.evicted.len() as u64;
    }

    #[inline]
    fn find(&self, block: u64) -> Option<Entry> {
        self.handles.find(block)
    }

    /// The handle of a block; a new one if it has none.
    fn enter(&mut self, block: u64) -> Entry {
        self.evicted.clear();
        if let Some(entry) = self.near(block) {
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

    /// Frees the frames and handles of the blocks that the policy evicted.
    #[inline]
    fn settle(&mut self) {
        if !self.out.is_empty() {
            self.let_go();
        }
    }

    fn let_go(&mut self) {
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

    /// Frees a handle that the policy does not know any more.
    fn drop_if_unknown(&mut self, entry: Entry) {
        if self.policy.contains(entry) || self.policy.remembers(entry) {
            return;
        }
        if self.handles.drop_handle(entry) {
            // The handle may soon be reused for another block.
            self.policy.neighbour_holds(entry, false);
        }
    }

    /// Checks the invariants in the head of this file, and the policy's own.
    ///
    /// # Errors
    /// Says which does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.policy.validate()?;
        let is_known = |entry| self.policy.contains(entry) || self.policy.remembers(entry);
        if let Some(entry) = self.handles.entries().find(|&entry| !is_known(entry)) {
            return Err(format!("handle {entry} is kept for nothing"));
        }
        self.handles.validate(self.policy.len(), |entry| self.policy.contains(entry))
    }
}

impl Marks for HashedCache {
    fn mark(&mut self, block: u64, holds: bool) {
        self.neighbour_holds(block, holds);
    }

    /// Sets the mark of the block of the last [`reference`](Self::reference) without a look-up.
    fn mark_last(&mut self, block: u64, holds: bool) {
        let is_it = |entry: &Entry| self.handles.frame_of(block, *entry).is_some();
        match self.last.filter(is_it) {
            Some(entry) => self.policy.neighbour_holds(entry, holds),
            None => self.neighbour_holds(block, holds),
        }
    }

    fn blocks(&self) -> Vec<u64> {
        self.residents().into_iter().map(|(block, _)| block).collect()
    }

    fn handles(&self) -> u32 {
        self.handles.count()
    }

    fn blocks_within(&self, handles: std::ops::Range<u32>) -> Vec<u64> {
        self.residents_within(handles).into_iter().map(|(block, _)| block).collect()
    }
}

//! A policy behind a hashed index: blocks are any 64-bit numbers, and each resident block has a
//! frame. A server keeps its data by frame. One look-up finds both the entry and its frame.
//!
//! Here is what happens to a block: it is referenced, placed, taken or discarded, and counted.
//! `known.rs` keeps the index and the frames in agreement with the policy.

mod known;

use std::sync::Arc;

use crate::marks::Marks;
use undercroft_policy::{Counts, Entry, Policy, SnapshotError, Tally, WriteMode, refer};

use known::Prefetched;

pub use known::{Evicted, Frame, KnownBlocks};

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

/// A cache of blocks named by 64-bit numbers, ordered by any policy.
#[derive(Clone)]
pub struct HashedCache {
    known: KnownBlocks,
    counts: Counts,
    /// The entry of the last counted reference, if the block is known.
    last: Option<Entry>,
    /// The entries that [`place_all`](Self::place_all) places; kept to reuse its memory.
    together: Vec<Entry>,
}

impl HashedCache {
    /// An empty cache. `seed` makes the index unpredictable for clients that choose the block
    /// numbers; it changes nothing else.
    pub fn new(policy: Box<dyn Policy>, seed: u64) -> Self {
        Self::of(KnownBlocks::new(policy, seed))
    }

    /// Loads a cache that continues where the saved one stopped. `policy` is a new one of the same
    /// parameters and capacity. Every resident block has an empty frame. The memory used is bounded
    /// by the length of `bytes`, even if these are untrusted.
    ///
    /// # Errors
    /// The bytes are damaged, or belong to another policy, other parameters or another capacity.
    pub fn load(policy: Box<dyn Policy>, seed: u64, bytes: &[u8]) -> Result<Self, SnapshotError> {
        Ok(Self::of(KnownBlocks::load(policy, seed, bytes)?))
    }

    fn of(known: KnownBlocks) -> Self {
        Self { known, counts: Counts::default(), last: None, together: Vec::new() }
    }

    /// Declares that blocks are numbered from 0 in the order of their first references, as in a
    /// simulation: each number is its own handle. Call it before anything else. `names` gives the
    /// real numbers, for a policy that hashes blocks.
    pub(crate) fn number_blocks(&mut self, names: Option<Arc<[u64]>>) {
        self.known.number(names);
    }

    /// Takes memory for `known` blocks, resident and remembered. More may come; then it grows as
    /// usual.
    pub(crate) fn make_room(&mut self, known: u32) {
        self.known.make_room(known);
    }

    /// The policy.
    pub fn policy(&self) -> &dyn Policy {
        self.known.policy.as_ref()
    }

    /// The blocks that the policy knows, resident or remembered.
    pub fn known(&self) -> &KnownBlocks {
        &self.known
    }

    /// What the last call evicted, in order.
    pub fn evicted(&self) -> &[Evicted] {
        &self.known.evicted
    }

    /// Begins a call that may not reach the policy: clears the evictions of the last call.
    #[inline]
    pub(crate) fn clear_evicted(&mut self) {
        self.known.evicted.clear();
    }

    /// The frame of a resident block; the policy does not notice.
    pub fn frame(&self, block: u64) -> Option<Frame> {
        self.known.handles.frame(self.known.handles.find(block)?)
    }

    /// Finds blocks, each in its place of `found`, and prefetches what references to them will
    /// need. The processor's cache misses overlap.
    pub fn find_all(&self, blocks: &[u64], found: &mut Vec<Option<Entry>>) {
        found.clear();
        self.known.handles.find_all(blocks, found);
        std::hint::black_box(self.known.policy.prefetch_all(found));
    }

    /// Prefetches what references to these blocks will need. If the references come in this order,
    /// they skip the look-up, since the places found are kept. The frames of resident blocks are
    /// appended to `frames`.
    pub fn warm(&mut self, blocks: &[u64], frames: &mut Vec<Frame>) {
        let Prefetched { blocks: mut near, mut found, .. } =
            std::mem::take(&mut self.known.prefetched);
        near.clear();
        near.extend_from_slice(blocks);
        self.find_all(blocks, &mut found);
        frames.reserve(found.len());
        let frame = |&entry: &Entry| self.known.handles.frame(entry);
        found.iter().flatten().filter_map(frame).for_each(|frame| frames.push(frame));
        self.known.prefetched = Prefetched { blocks: near, found, next: 0 };
    }

    /// A resident block. `at`: where it was found before, which may save the look-up.
    #[inline]
    pub(crate) fn resident(&mut self, block: u64, at: Option<Entry>) -> Option<Resident> {
        if let Some(entry) = at.or_else(|| self.known.prefetched.take(block)) {
            if let Some(frame) = self.known.handles.frame_of(block, entry) {
                return Some(Resident { entry, frame });
            }
        }
        let entry = self.known.handles.find(block)?;
        let frame = self.known.handles.frame(entry)?;
        Some(Resident { entry, frame })
    }

    /// A reference that counts only evictions: touches a resident block, or admits the block.
    pub fn access(&mut self, block: u64) -> Found {
        let entry = self.known.enter(block);
        let hit = self.known.tell(|policy, out| policy.access(entry, out));
        self.counts.evictions += self.known.evicted.len() as u64;
        Found { hit, frame: self.known.handles.give_frame(entry) }
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
        let before = self.known.policy.len();
        let entry = if is_write && mode != WriteMode::Allocate {
            // These writes admit nothing, so an unknown block stays unknown.
            self.clear_evicted();
            self.known.handles.find(block)
        } else {
            Some(self.known.enter(block))
        };
        self.last = entry;
        let counts = &mut self.counts;
        let count = |hit: bool, after: u32| {
            let mut tally = Tally::default();
            tally.add(is_write, hit, !hit && cold(), mode);
            tally.count(before.into(), after.into(), counts);
            hit
        };
        let Some(entry) = entry else {
            return Referred { hit: count(false, before), before: None, now: None };
        };
        let hit = self
            .known
            .tell(|policy, out| count(refer(policy, entry, is_write, mode, out), policy.len()));
        if self.known.policy.contains(entry) {
            let frame = self.known.handles.give_frame(entry);
            return Referred { hit, before: hit.then_some(frame), now: Some(frame) };
        }
        // The block was invalidated, or is a ghost that such a write did not admit.
        Referred { hit, before: self.known.let_go(entry), now: None }
    }

    /// A reference of a recognised stream, which the policy does not see. `cold`: see
    /// [`reference`](Self::reference).
    pub(crate) fn pass(
        &mut self,
        block: u64,
        is_write: bool,
        cold: impl FnOnce() -> bool,
    ) -> Referred {
        self.clear_evicted();
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
        self.clear_evicted();
        let resident = self.resident(block, None)?;
        self.touch_resident(resident);
        Some(resident.frame)
    }

    /// References a resident block.
    #[inline]
    pub(crate) fn touch_resident(&mut self, resident: Resident) {
        self.clear_evicted();
        self.known.tell(|policy, out| policy.touch(resident.entry, out));
    }

    /// Places a block that the level above evicted. Counts no access.
    pub fn place(&mut self, block: u64) -> Found {
        let entry = self.known.enter(block);
        let hit = self.known.policy.contains(entry);
        self.known.tell(|policy, out| policy.place(entry, out));
        self.counts.evictions += self.known.evicted.len() as u64;
        Found { hit, frame: self.known.handles.give_frame(entry) }
    }

    /// Places a resident block that the level above evicted, without a look-up. Counts no access.
    #[inline]
    pub(crate) fn place_resident(&mut self, resident: Resident) {
        self.clear_evicted();
        self.known.tell(|policy, out| policy.place(resident.entry, out));
        self.counts.evictions += self.known.evicted.len() as u64;
    }

    /// Does what [`place`](Self::place) does for each block in order. Stops before the first block
    /// that is not resident where it was found, and after the first that evicts another block.
    /// Returns how many blocks were placed.
    pub(crate) fn place_all(&mut self, blocks: &[u64], found: &[Option<Entry>]) -> usize {
        self.clear_evicted();
        let Self { known, together, .. } = self;
        let is_there = |block, entry| known.handles.frame_of(block, entry).is_some();
        let there = blocks
            .iter()
            .zip(found)
            .map_while(|(&block, found)| found.filter(|&entry| is_there(block, entry)));
        together.clear();
        together.extend(there);
        let placed = known.tell(|policy, out| policy.place_all(together, out));
        self.counts.evictions += self.known.evicted.len() as u64;
        placed
    }

    /// Removes a resident block that moves up, but keeps its history. Returns the frame that it
    /// had.
    pub fn take(&mut self, block: u64) -> Option<Frame> {
        self.clear_evicted();
        let resident = self.resident(block, None)?;
        self.take_resident(resident);
        Some(resident.frame)
    }

    /// Removes a resident block that moves up, without a look-up. Its history is kept.
    pub(crate) fn take_resident(&mut self, Resident { entry, .. }: Resident) {
        self.clear_evicted();
        self.known.tell(|policy, out| policy.take(entry, out));
        self.known.handles.release(entry);
        self.known.drop_if_unknown(entry);
    }

    /// Notes a reference to a non-resident block that was served around this cache.
    pub fn note(&mut self, block: u64) {
        let entry = self.known.enter(block);
        if !self.known.policy.contains(entry) {
            self.known.tell(|policy, out| policy.note(entry, out));
        }
        self.known.drop_if_unknown(entry);
    }

    /// Forgets a block entirely. Returns the frame that it had, if any.
    pub fn discard(&mut self, block: u64) -> Option<Frame> {
        self.clear_evicted();
        let entry = self.known.handles.find(block)?;
        self.known.tell(|policy, out| policy.discard(entry, out));
        self.known.let_go(entry)
    }

    /// Notes whether the neighbouring cache holds a block. Ignored for a block that is neither
    /// resident nor a ghost: call it when the block has come.
    pub fn neighbour_holds(&mut self, block: u64, holds: bool) {
        if let Some(entry) = self.known.handles.find(block) {
            self.known.policy.neighbour_holds(entry, holds);
        }
    }

    /// Whether the policy wants to know what the neighbouring cache holds.
    pub fn is_aware(&self) -> bool {
        self.known.is_aware
    }

    /// The block that would be evicted for an unknown one now; `None` while there is room.
    pub fn victim(&self) -> Option<u64> {
        self.known.policy.victim().map(|entry| self.known.handles.slot(entry).block)
    }

    /// The resident blocks with their frames, in the policy's order.
    pub fn residents(&self) -> Vec<(u64, Frame)> {
        let slot = |entry: Entry| self.known.handles.slot(entry);
        self.known.policy.residents().into_iter().map(slot).map(|s| (s.block, s.frame)).collect()
    }

    /// Changes the capacity. After shrinking, blocks may stay in frames beyond the new capacity.
    pub fn resize(&mut self, capacity: u32) {
        self.clear_evicted();
        self.known.resize(capacity);
        self.counts.evictions += self.known.evicted.len() as u64;
    }

    /// Replaces the policy by that of `next`, an empty cache of the same capacity. The resident
    /// blocks keep their handles and frames: the new policy is given them in the order in which the
    /// old one would have evicted them. [`evicted`](Self::evicted) has those that it does not keep.
    ///
    /// The history of other blocks is lost, since no policy understands that of another one.
    pub(crate) fn replace_policy(&mut self, next: Self) {
        self.clear_evicted();
        self.known.replace_policy(next.known);
        self.last = None;
        self.counts.evictions += self.known.evicted.len() as u64;
    }

    /// Saves the known blocks and the state of the policy.
    ///
    /// # Errors
    /// The policy cannot be saved (OPT), or its state is inconsistent.
    pub fn save(&mut self) -> Result<Vec<u8>, SnapshotError> {
        self.known.save()
    }

    /// Checks that index, frames and policy agree, and the policy's own invariants.
    ///
    /// # Errors
    /// Says which does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.known.validate()
    }
}

impl Marks for HashedCache {
    fn mark(&mut self, block: u64, holds: bool) {
        self.neighbour_holds(block, holds);
    }

    /// Sets the mark of the block of the last [`reference`](Self::reference) without a look-up.
    fn mark_last(&mut self, block: u64, holds: bool) {
        let is_it = |entry: &Entry| self.known.handles.frame_of(block, *entry).is_some();
        match self.last.filter(is_it) {
            Some(entry) => self.known.policy.neighbour_holds(entry, holds),
            None => self.neighbour_holds(block, holds),
        }
    }

    fn blocks(&self) -> Vec<u64> {
        self.residents().into_iter().map(|(block, _)| block).collect()
    }

    fn handles(&self) -> u32 {
        self.known.most()
    }

    fn blocks_within(&self, handles: std::ops::Range<u32>) -> Vec<u64> {
        self.known.residents_within(handles).0.into_iter().map(|(block, _)| block).collect()
    }
}

//! The client content table: which block is in which buffer of a client, learned from the buffer
//! address of each read and write. A new block at a known address means that the client evicted the
//! old one (USENIX 2003, section 4; TPDS 2004, section 6). The client's program is not changed.
//!
//! A *slot* is a range of one block's length in a client's memory. Slots never overlap, so at most
//! one slot begins in each aligned stretch of that length. The table is indexed by client and
//! stretch, and a new range can overlap the slots of three stretches only. If all slots have the
//! same offset in their stretches, as in every database examined so far, one look-up is enough.
//!
//! The table cannot see blocks that move inside the client, frames that are freed without reuse
//! (until [`Cct::unmap`]), and clients that copy through bounce buffers. See
//! `docs/user/cooperation.md`.
//!
//! Invariants (checked by [`Cct::check`]): the index holds every slot in use under its client and
//! stretch; no two slots overlap; the chains of `by_block` hold each slot that has a block once,
//! under that block; with `Frames::Read` a block is in one slot of a client at most.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// Which addresses are frames of the client's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Frames {
    /// Those into which a single block has been read. Other buffers (doublewrite areas, page
    /// compression, private buffers) do not change the table.
    #[default]
    Read,
    /// All addresses.
    Any,
}

/// The counts of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CctCounts {
    /// Evictions reported.
    pub reported: u64,
    /// Evictions that showed only when the client read the block again: too late to report. Counted
    /// only with [`Frames::Read`], where a block has one frame.
    pub late: u64,
    /// Requests from or to buffers that are no frames.
    pub no_frame: u64,
    /// Slots forgotten because the table was full.
    pub overflowed: u64,
}

/// Marks a slot that holds no known block.
const NO_BLOCK: u64 = u64::MAX;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    address: u64,
    /// The stretch in which the slot begins; it saves a division in each look-up.
    stretch: u64,
    block: u64,
    client: u32,
    /// Links to other slots with the same block.
    prev: u32,
    next: u32,
    /// Whether the slot was used since the hand last passed it.
    used: bool,
}

/// The table. Block numbers are below 2^64 - 1; the caller numbers the blocks of all disks.
pub struct Cct {
    block_bytes: u64,
    frames: Frames,
    max_slots: u32,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots by client and stretch.
    by_place: HashTable<u32>,
    /// The first slot of each (client, block).
    by_block: HashTable<u32>,
    /// The offset of every slot in its stretch, while all have the same; meaningless without slots.
    phase: Option<u64>,
    /// Where the search for a slot to forget begins.
    hand: u32,
    hasher: FixedState,
    unlinked: Vec<u64>,
    counts: CctCounts,
}

impl Cct {
    /// An empty table for blocks of `block_bytes` (at least 1), with room for `max_slots` (at least
    /// 1) of them. A slot takes about 60 bytes with its share of both indexes.
    pub fn new(block_bytes: u32, frames: Frames, max_slots: u32, seed: u64) -> Self {
        Self {
            block_bytes: u64::from(block_bytes.max(1)),
            frames,
            max_slots: max_slots.max(1),
            slots: Vec::new(),
            free: Vec::new(),
            by_place: HashTable::new(),
            by_block: HashTable::new(),
            phase: None,
            hand: 0,
            hasher: FixedState::with_seed(seed),
            unlinked: Vec::new(),
            counts: CctCounts::default(),
        }
    }

    /// A client reads `blocks`, one after the other, into its memory; `address` is that of the
    /// first byte. Appends the blocks that the client no longer holds to `evicted`.
    pub fn read(
        &mut self,
        client: u32,
        address: u64,
        blocks: impl ExactSizeIterator<Item = u64>,
        evicted: &mut Vec<u64>,
    ) {
        self.io(client, address, blocks, true, evicted);
    }

    /// A client writes `blocks` from its memory at `address`. The buffers that are frames hold
    /// these blocks afterwards. Appends the blocks that the client no longer holds to `evicted`.
    pub fn write(
        &mut self,
        client: u32,
        address: u64,
        blocks: impl ExactSizeIterator<Item = u64>,
        evicted: &mut Vec<u64>,
    ) {
        self.io(client, address, blocks, false, evicted);
    }

    fn io(
        &mut self,
        client: u32,
        address: u64,
        blocks: impl ExactSizeIterator<Item = u64>,
        is_read: bool,
        evicted: &mut Vec<u64>,
    ) {
        let is_single = blocks.len() == 1;
        let mut at = address;
        if is_single && self.frames == Frames::Read {
            // The usual case: a block displaced by a single block has no other slot.
            for block in blocks {
                self.one(client, at, block, is_read, true);
            }
            self.counts.reported += self.unlinked.len() as u64;
            evicted.append(&mut self.unlinked);
            return;
        }
        for block in blocks {
            self.one(client, at, block, is_read, is_single);
            let Some(next) = at.checked_add(self.block_bytes) else { break };
            at = next;
        }
        self.report(client, evicted);
    }

    /// Handles one block at one address. Displaced blocks are collected in `unlinked`.
    fn one(&mut self, client: u32, address: u64, block: u64, is_read: bool, is_single: bool) {
        if block == NO_BLOCK || address > u64::MAX - self.block_bytes {
            return;
        }
        let known = self.find(client, address);
        let is_frame = known.is_some() || self.frames == Frames::Any || (is_read && is_single);
        if !is_frame {
            self.counts.no_frame += 1;
            return;
        }
        if let Some(slot) = known {
            self.slots[slot as usize].used = true;
            if self.slots[slot as usize].block == block {
                // The block is read into its old frame: it had been evicted, which shows only now.
                self.counts.late += u64::from(is_read && self.frames == Frames::Read);
                return;
            }
        }
        if self.frames == Frames::Read {
            if let Some(other) = self.first_slot(client, block) {
                self.counts.late += u64::from(is_read);
                self.unlink(other);
            }
        }
        let slot = known.unwrap_or_else(|| {
            self.clear_overlaps(client, address);
            self.add(client, address)
        });
        let old = self.unlink(slot);
        if old != NO_BLOCK {
            self.unlinked.push(old);
        }
        // With `Frames::Read` the block is in no slot now, so there is no need to look.
        let first = if self.frames == Frames::Any { self.first_slot(client, block) } else { None };
        self.link(slot, block, first);
    }

    /// Reports each displaced block that has no slot left, once, in the order of slots.
    fn report(&mut self, client: u32, evicted: &mut Vec<u64>) {
        if self.unlinked.is_empty() {
            return;
        }
        let from = evicted.len();
        for i in 0..self.unlinked.len() {
            let block = self.unlinked[i];
            // Few blocks are displaced at once, so a scan is the fastest way to find duplicates.
            if self.first_slot(client, block).is_none() && !self.unlinked[..i].contains(&block) {
                evicted.push(block);
            }
        }
        self.unlinked.clear();
        self.counts.reported += (evicted.len() - from) as u64;
    }

    /// The client's memory in `range` was freed or is used for something else. Appends the blocks
    /// that the client held only there to `evicted`, in order of their addresses.
    pub fn unmap(&mut self, client: u32, range: std::ops::Range<u64>, evicted: &mut Vec<u64>) {
        let overlaps = |slot: &Slot| {
            slot.client == client
                && slot.address < range.end
                && range.start < slot.address + self.block_bytes
        };
        let mut gone: Vec<_> =
            self.by_place.iter().copied().filter(|&s| overlaps(&self.slots[s as usize])).collect();
        gone.sort_unstable_by_key(|&s| self.slots[s as usize].address);
        for slot in gone {
            self.remove(slot);
        }
        self.report(client, evicted);
    }

    /// Forgets a client that has gone or restarted, without reporting what it held.
    pub fn forget(&mut self, client: u32) {
        let of_client = |s: &u32| self.slots[*s as usize].client == client;
        let gone: Vec<_> = self.by_place.iter().copied().filter(of_client).collect();
        for slot in gone {
            self.remove(slot);
        }
        self.unlinked.clear();
    }

    /// Whether the client is believed to hold a block.
    pub fn holds(&self, client: u32, block: u64) -> bool {
        self.first_slot(client, block).is_some()
    }

    /// Number of slots that hold a block.
    pub fn len(&self) -> usize {
        self.by_place.iter().filter(|&&s| self.slots[s as usize].block != NO_BLOCK).count()
    }

    /// Whether no slot holds a block.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The addresses of a client's slots and their blocks, in order of the addresses.
    pub fn content(&self, client: u32) -> Vec<(u64, u64)> {
        let slots = self.by_place.iter().map(|&s| self.slots[s as usize]);
        let mut content: Vec<_> = slots
            .filter(|slot| slot.client == client && slot.block != NO_BLOCK)
            .map(|slot| (slot.address, slot.block))
            .collect();
        content.sort_unstable();
        content
    }

    /// The counts of the table.
    pub fn counts(&self) -> &CctCounts {
        &self.counts
    }

    #[inline]
    fn hash_place(&self, client: u32, stretch: u64) -> u64 {
        self.hasher.hash_one((client, stretch))
    }

    #[inline]
    fn hash_block(&self, client: u32, block: u64) -> u64 {
        self.hasher.hash_one((block, client))
    }

    /// The slot that begins in a stretch.
    #[inline]
    fn in_stretch(&self, client: u32, stretch: u64) -> Option<u32> {
        let slots = &self.slots;
        let is_it = |&s: &u32| {
            let slot = &slots[s as usize];
            slot.stretch == stretch && slot.client == client
        };
        self.by_place.find(self.hash_place(client, stretch), is_it).copied()
    }

    #[inline]
    fn find(&self, client: u32, address: u64) -> Option<u32> {
        let slot = self.in_stretch(client, address / self.block_bytes)?;
        (self.slots[slot as usize].address == address).then_some(slot)
    }

    #[inline]
    fn first_slot(&self, client: u32, block: u64) -> Option<u32> {
        let slots = &self.slots;
        let is_it =
            |&s: &u32| slots[s as usize].block == block && slots[s as usize].client == client;
        self.by_block.find(self.hash_block(client, block), is_it).copied()
    }

    /// Removes the slots that a new one at `address` would partly overwrite.
    fn clear_overlaps(&mut self, client: u32, address: u64) {
        let stretch = address / self.block_bytes;
        if self.phase == Some(address % self.block_bytes) || self.by_place.is_empty() {
            self.phase = Some(address % self.block_bytes);
            return;
        }
        self.phase = None;
        for near in [stretch.checked_sub(1), Some(stretch), stretch.checked_add(1)] {
            let Some(slot) = near.and_then(|near| self.in_stretch(client, near)) else { continue };
            if self.slots[slot as usize].address.abs_diff(address) < self.block_bytes {
                self.remove(slot);
            }
        }
    }

    /// Adds a slot without a block at an address that no slot overlaps.
    fn add(&mut self, client: u32, address: u64) -> u32 {
        if self.by_place.len() == self.max_slots as usize {
            self.forget_one();
        }
        let stretch = address / self.block_bytes;
        let fresh =
            Slot { address, stretch, block: NO_BLOCK, client, prev: NONE, next: NONE, used: true };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = fresh;
                slot
            }
            None => {
                self.slots.push(fresh);
                self.slots.len() as u32 - 1
            }
        };
        let hash = self.hash_place(client, stretch);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.by_place.insert_unique(hash, slot, |&s| {
            let slot = &slots[s as usize];
            hasher.hash_one((slot.client, slot.stretch))
        });
        slot
    }

    /// Forgets the next slot, from the hand on, that was not used since the last search.
    fn forget_one(&mut self) {
        loop {
            let at = self.hand % self.slots.len() as u32;
            self.hand = at + 1;
            let slot = &mut self.slots[at as usize];
            // The table is full, so all slots of the arena are in use.
            if !std::mem::take(&mut slot.used) {
                self.counts.overflowed += 1;
                self.unlink(at);
                self.remove(at);
                return;
            }
        }
    }

    /// Removes a slot; its block, if any, is collected in `unlinked`.
    fn remove(&mut self, slot: u32) {
        let old = self.unlink(slot);
        if old != NO_BLOCK {
            self.unlinked.push(old);
        }
        let Slot { client, stretch, .. } = self.slots[slot as usize];
        let hash = self.hash_place(client, stretch);
        if let Ok(found) = self.by_place.find_entry(hash, |&s| s == slot) {
            found.remove();
            self.free.push(slot);
        }
    }

    /// Puts a block into an empty slot. `first`: the first slot that has the block already, if any.
    fn link(&mut self, slot: u32, block: u64, first: Option<u32>) {
        let client = self.slots[slot as usize].client;
        let hash = self.hash_block(client, block);
        self.slots[slot as usize].block = block;
        match first {
            Some(first) => {
                // Insert behind the first slot, which the index refers to.
                let next = self.slots[first as usize].next;
                self.slots[slot as usize].prev = first;
                self.slots[slot as usize].next = next;
                self.slots[first as usize].next = slot;
                if next != NONE {
                    self.slots[next as usize].prev = slot;
                }
            }
            None => {
                let (slots, hasher) = (&self.slots, &self.hasher);
                self.by_block.insert_unique(hash, slot, |&s| {
                    hasher.hash_one((slots[s as usize].block, slots[s as usize].client))
                });
            }
        }
    }

    /// Removes the block from a slot, but keeps the slot. Returns the block, or `NO_BLOCK`.
    fn unlink(&mut self, slot: u32) -> u64 {
        let Slot { block, client, prev, next, .. } = self.slots[slot as usize];
        if block == NO_BLOCK {
            return NO_BLOCK;
        }
        if next != NONE {
            self.slots[next as usize].prev = prev;
        }
        if prev != NONE {
            self.slots[prev as usize].next = next;
        } else {
            let hash = self.hash_block(client, block);
            if let Ok(mut found) = self.by_block.find_entry(hash, |&s| s == slot) {
                if next != NONE {
                    *found.get_mut() = next;
                } else {
                    found.remove();
                }
            }
        }
        let it = &mut self.slots[slot as usize];
        (it.block, it.prev, it.next) = (NO_BLOCK, NONE, NONE);
        block
    }

    /// Checks the invariants in the head of this file.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    pub fn check(&self) -> Result<(), String> {
        let used: Vec<_> = self.by_place.iter().map(|&s| (s, self.slots[s as usize])).collect();
        if used.len() + self.free.len() != self.slots.len() || used.len() > self.max_slots as usize
        {
            return Err(format!("{} slots in use of {}", used.len(), self.slots.len()));
        }
        let mut ranges: Vec<_> = used.iter().map(|(_, slot)| (slot.client, slot.address)).collect();
        ranges.sort_unstable();
        let overlap = |w: &&[(u32, u64)]| w[0].0 == w[1].0 && w[1].1 - w[0].1 < self.block_bytes;
        if let Some(pair) = ranges.windows(2).find(overlap) {
            return Err(format!("slots overlap: {pair:?}"));
        }
        for &(at, slot) in &used {
            if self.find(slot.client, slot.address) != Some(at) {
                return Err(format!("slot at {:x} is not found", slot.address));
            }
        }
        let mut linked = 0;
        for &first in &self.by_block {
            let Slot { client, block, .. } = self.slots[first as usize];
            let (mut at, mut prev) = (first, NONE);
            while at != NONE {
                let slot = self.slots[at as usize];
                if (slot.client, slot.block, slot.prev) != (client, block, prev) {
                    return Err(format!("chain of block {block}: {slot:?}"));
                }
                if self.frames == Frames::Read && prev != NONE {
                    return Err(format!("block {block} has two frames"));
                }
                linked += 1;
                (prev, at) = (at, slot.next);
            }
        }
        match self.len() {
            len if len != linked => {
                Err(format!("{len} slots have a block, {linked} are in chains"))
            }
            _ => Ok(()),
        }
    }
}

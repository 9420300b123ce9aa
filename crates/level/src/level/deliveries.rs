//! What was delivered to whom, and when. A server judges by it what clients report, since hints
//! take another way than data and may come late. If clients hand over block contents, it also keeps
//! the digest of what was delivered while the block is not in the cache. The rule for judging a
//! digest is the server's.
//!
//! Each client of a volume has a bit. The entries lie in sets of four by hash, one line of the
//! processor's cache each, since every read and every hint looks there. A new block replaces one of
//! its set: first one that no client holds, since the blocks that a client uses most are rarely
//! requested; otherwise the one read or written longest ago. So the memory is bounded. A hint about
//! a replaced block is trusted, and its digest is not known.
//!
//! To fit a line, a block has 16 bytes. These name its holder if that is one client or none. The
//! bits of several holders lie elsewhere, and so do digests, which take memory only if they are
//! wanted. Of a time in microseconds the lower 32 bits are kept: a time more than 71 minutes ago
//! seems more recent than it is, never less recent. So a hint may be ignored wrongly, about once in
//! a million times, but is never trusted wrongly.

use std::cmp::Reverse;
use std::hash::BuildHasher;
use std::ops::{Range, RangeInclusive};

use foldhash::fast::FixedState;

/// Most clients that are told apart; deliveries to others are not remembered.
pub const MAX_CLIENTS: u8 = 64;

/// Blocks per set.
const WAYS: usize = 4;

/// Fewest blocks remembered, since clients may be larger than the cache.
const LEAST_REMEMBERED: u32 = 1 << 16;

/// Bits of a label below the block number. A volume of 2^64 bytes in blocks of 512 has 2^55 blocks.
const STATE_BITS: u32 = 9;
const BLOCK_MAX: u64 = (u64::MAX >> STATE_BITS) - 1;

/// Bits of a label: the block was read; the block was written.
const WAS_READ: u64 = 1 << 8;
const WAS_WRITTEN: u64 = 1 << 7;

/// The other state bits of a label: the client that holds the block, if there is one.
const HOLDER: u64 = WAS_WRITTEN - 1;
const NOBODY: u64 = MAX_CLIENTS as u64;
/// Several clients hold the block: see [`Deliveries::sharers`].
const SEVERAL: u64 = NOBODY + 1;

/// A line of the processor's cache. For each block: a label, which is the block's number plus one
/// with the state in the lower bits; and the lower halves of the microseconds of the last read and
/// the last write. Label 0: the place is empty.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Set {
    labels: [u64; WAYS],
    read_us: [u32; WAYS],
    written_us: [u32; WAYS],
}

impl Set {
    /// The block in a place, if any.
    fn block(&self, way: usize) -> Option<u64> {
        (self.labels[way] >> STATE_BITS).checked_sub(1)
    }

    /// The place of a block. It has no branch for each place, since those would be unpredictable.
    #[inline(always)]
    fn find(&self, block: u64) -> Option<usize> {
        if block > BLOCK_MAX {
            return None;
        }
        let least = (block + 1) << STATE_BITS;
        let is_there = |way: usize| u32::from(self.labels[way] ^ least < 1 << STATE_BITS);
        let known = (0..WAYS).rev().fold(0, |known, way| known << 1 | is_there(way));
        (known != 0).then_some(known.trailing_zeros() as usize % WAYS)
    }

    /// Gives a new block a place.
    #[cold]
    fn replace(&mut self, block: u64, now_us: u64) -> usize {
        let is_held = |way| self.block(way).is_some() && self.holder(way) != NOBODY;
        let worth = |&way: &usize| (is_held(way), Reverse(self.age_us(way, now_us)));
        let least = (0..WAYS).min_by_key(worth).unwrap_or(0);
        self.clear(least);
        // A block number that no volume can have is not remembered.
        if block <= BLOCK_MAX {
            self.labels[least] = (block + 1) << STATE_BITS | NOBODY;
        }
        least
    }

    fn clear(&mut self, way: usize) {
        (self.labels[way], self.read_us[way], self.written_us[way]) = (0, 0, 0);
    }

    #[inline(always)]
    fn holder(&self, way: usize) -> u64 {
        self.labels[way] & HOLDER
    }

    #[inline(always)]
    fn set_holder(&mut self, way: usize, holder: u64) {
        self.labels[way] = self.labels[way] & !HOLDER | holder;
    }

    /// Microseconds from the last read to `now_us`; the maximum if the block was never read.
    #[inline(always)]
    fn read_age_us(&self, way: usize, now_us: u64) -> u64 {
        let was_read = self.labels[way] & WAS_READ != 0;
        if was_read { age(now_us, self.read_us[way]) } else { u64::MAX }
    }

    /// Microseconds from the last write to `now_us`; the maximum if the block was never written.
    fn written_age_us(&self, way: usize, now_us: u64) -> u64 {
        let was_written = self.labels[way] & WAS_WRITTEN != 0;
        if was_written { age(now_us, self.written_us[way]) } else { u64::MAX }
    }

    /// Microseconds from the last read or write to `now_us`.
    fn age_us(&self, way: usize, now_us: u64) -> u64 {
        self.read_age_us(way, now_us).min(self.written_age_us(way, now_us))
    }
}

/// Age of a time whose lower half is known: the true age, or less.
#[inline(always)]
fn age(now_us: u64, at: u32) -> u64 {
    u64::from((now_us as u32).wrapping_sub(at))
}

/// The recently delivered blocks. Times are microseconds of one clock.
pub struct Deliveries {
    sets: Vec<Set>,
    /// Of blocks that several clients hold, one bit for each client.
    sharers: Vec<[u64; WAYS]>,
    /// Digests of what was delivered, 0 if unknown; empty if no digests are kept.
    digests: Vec<[u64; WAYS]>,
    /// The latest time of any call.
    now_us: u64,
    hasher: FixedState,
    /// The sets of blocks that are judged together; kept to reuse its memory.
    near: Vec<u32>,
}

/// How far to trust a hint that a client evicted a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// As far as known, the client was the last to hold the block.
    Last,
    /// Another client still holds the block.
    HeldByOthers,
    /// The block was read after the eviction: some client has it again.
    Stale,
}

impl Deliveries {
    /// For a cache of `capacity` blocks. `seed` makes the sets unpredictable for clients that
    /// choose the block numbers; it changes nothing else.
    pub fn new(capacity: u32, seed: u64) -> Self {
        Self::of_sample(1.0, capacity, seed)
    }

    /// For a cache of `capacity` blocks, of which this sees a share `rate`, from 0 to 1. `seed`:
    /// see [`new`](Self::new).
    pub fn of_sample(rate: f64, capacity: u32, seed: u64) -> Self {
        let sets = Self::sets_of(rate, capacity);
        Self {
            sets: vec![Set::default(); sets],
            // All zero, so that memory is committed only when used.
            sharers: vec![[0; WAYS]; sets],
            digests: Vec::new(),
            now_us: 0,
            hasher: FixedState::with_seed(seed),
            near: Vec::new(),
        }
    }

    /// The bytes that [`of_sample`](Self::of_sample) takes.
    pub fn bytes_of_sample(rate: f64, capacity: u32) -> u64 {
        let set = size_of::<Set>() + size_of::<[u64; WAYS]>();
        (Self::sets_of(rate, capacity) * set) as u64
    }

    fn sets_of(rate: f64, capacity: u32) -> usize {
        let blocks = capacity.saturating_mul(2).max(LEAST_REMEMBERED);
        let blocks = (f64::from(blocks) * rate).ceil() as usize;
        blocks.div_ceil(WAYS).next_power_of_two()
    }

    /// Makes it keep digests too: 8 bytes more for each block.
    pub fn with_digests(mut self) -> Self {
        self.digests = vec![[0; WAYS]; self.sets.len()];
        self
    }

    #[inline(always)]
    fn set(&self, block: u64) -> usize {
        self.hasher.hash_one(block) as usize & (self.sets.len() - 1)
    }

    fn find(&self, block: u64) -> Option<(usize, usize)> {
        let set = self.set(block);
        Some((set, self.sets[set].find(block)?))
    }

    /// The place of a block that is used now; a new place if it has none.
    #[inline(always)]
    fn entered(&mut self, block: u64, now_us: u64) -> (usize, usize) {
        self.now_us = self.now_us.max(now_us);
        let set = self.set(block);
        match self.sets[set].find(block) {
            Some(way) => (set, way),
            None => (set, self.replace(set, block)),
        }
    }

    /// Gives a new block the place of another one in its set.
    #[cold]
    fn replace(&mut self, set: usize, block: u64) -> usize {
        let way = self.sets[set].replace(block, self.now_us);
        self.strike(set, way);
        way
    }

    /// Forgets the digest of the block in a place.
    fn strike(&mut self, set: usize, way: usize) {
        if let Some(digests) = self.digests.get_mut(set) {
            digests[way] = 0;
        }
    }

    fn clear(&mut self, set: usize, way: usize) {
        self.sets[set].clear(way);
        self.strike(set, way);
    }

    /// The clients that hold the block in a place, one bit for each.
    fn holders_at(&self, set: usize, way: usize) -> u64 {
        match self.sets[set].holder(way) {
            SEVERAL => self.sharers[set][way],
            holder => bit(holder as u8),
        }
    }

    fn set_holders(&mut self, set: usize, way: usize, holders: u64) {
        let holder = match holders.count_ones() {
            0 => NOBODY,
            1 => holders.trailing_zeros().into(),
            _ => SEVERAL,
        };
        if holder == SEVERAL {
            self.sharers[set][way] = holders;
        }
        self.sets[set].set_holder(way, holder);
    }

    /// Prefetches what is known of blocks, one after the other, so that the processor's cache
    /// misses overlap.
    pub fn warm(&self, blocks: &[u64]) {
        let near = |&block: &u64| {
            let set = self.set(block);
            self.sets[set].labels[0] ^ self.digests.get(set).map_or(0, |digests| digests[0])
        };
        std::hint::black_box(blocks.iter().fold(0, |sum, block| sum ^ near(block)));
    }

    /// A client reads a block. After reading only a part of it, the client does not hold it.
    /// `connected` has a bit for each connected client; the others no longer hold the block.
    pub fn read(&mut self, block: u64, client: u8, is_whole: bool, now_us: u64, connected: u64) {
        let (set, way) = self.entered(block, now_us);
        let its = &mut self.sets[set];
        its.read_us[way] = now_us as u32;
        let (label, own) = (its.labels[way] | WAS_READ, u64::from(client.min(MAX_CLIENTS)));
        let holder = label & HOLDER;
        // Write the label once, as a whole: reading a partly written word is slower.
        let now_holds = if is_whole && holder == NOBODY { own } else { holder };
        its.labels[way] = label & !HOLDER | now_holds;
        if is_whole && now_holds != own {
            self.read_shared((set, way), client, connected);
        }
    }

    /// Notes a read of a block that other clients hold.
    #[cold]
    fn read_shared(&mut self, (set, way): (usize, usize), client: u8, connected: u64) {
        let others = self.holders_at(set, way) & connected;
        self.set_holders(set, way, others | bit(client));
    }

    /// A client writes a block, all of it or a part. No other client holds it afterwards; the
    /// client holds it if it wrote all of it, or held it before. Its digest is forgotten.
    pub fn write(&mut self, block: u64, client: u8, is_whole: bool, now_us: u64) {
        let (set, way) = self.entered(block, now_us);
        let its = &mut self.sets[set];
        its.labels[way] |= WAS_WRITTEN;
        its.written_us[way] = now_us as u32;
        self.strike(set, way);
        let own = bit(client);
        let holders = if is_whole { own } else { self.holders_at(set, way) & own };
        self.set_holders(set, way, holders);
    }

    /// A client evicted a block at the time `at_us`. Returns how far to trust that hint.
    #[inline]
    pub fn evict(&mut self, block: u64, client: u8, at_us: u64, connected: u64) -> Standing {
        self.evict_in(self.set(block), block, client, at_us, connected)
    }

    /// A client evicted several blocks, in this order, each with its time. `each` receives each
    /// block and how far to trust its hint. All are prefetched before the first is judged.
    #[inline]
    pub fn evict_all(
        &mut self,
        gone: impl Iterator<Item = (u64, u64)> + Clone,
        client: u8,
        connected: u64,
        mut each: impl FnMut(u64, Standing),
    ) {
        let mut near = std::mem::take(&mut self.near);
        near.clear();
        let mut sum = 0;
        near.extend(gone.clone().map(|(block, _)| {
            let set = self.set(block);
            sum ^= self.sets[set].labels[0];
            set as u32
        }));
        std::hint::black_box(sum);
        for ((block, at_us), &set) in gone.zip(&near) {
            each(block, self.evict_in(set as usize, block, client, at_us, connected));
        }
        self.near = near;
    }

    #[inline(always)]
    fn evict_in(
        &mut self,
        set: usize,
        block: u64,
        client: u8,
        at_us: u64,
        connected: u64,
    ) -> Standing {
        let its = &mut self.sets[set];
        let Some(way) = its.find(block) else { return Standing::Last };
        let evicted_age = self.now_us.saturating_sub(at_us);
        // Usually the block was not read since.
        if evicted_age > 0 && its.read_age_us(way, self.now_us) < evicted_age {
            return Standing::Stale;
        }
        // The holder is the client or nobody, unpredictably. `min` makes this one test; the
        // compiler would turn `||` into two branches.
        let (holder, own) = (its.holder(way), u64::from(client).min(NOBODY));
        if (holder ^ own).min(holder ^ NOBODY) == 0 {
            its.set_holder(way, NOBODY);
            return Standing::Last;
        }
        self.evict_shared((set, way), client, connected)
    }

    /// Notes an eviction of a block that other clients hold.
    #[cold]
    fn evict_shared(&mut self, (set, way): (usize, usize), client: u8, connected: u64) -> Standing {
        let others = self.holders_at(set, way) & !bit(client);
        self.set_holders(set, way, others);
        if others & connected != 0 { Standing::HeldByOthers } else { Standing::Last }
    }

    /// The clients that are known to hold a block, one bit for each.
    pub fn holders(&self, block: u64) -> u64 {
        self.find(block).map_or(0, |(set, way)| self.holders_at(set, way))
    }

    /// Whether a client is known to hold a block.
    pub fn is_held_by(&self, block: u64, client: u8) -> bool {
        self.holders(block) & bit(client) != 0
    }

    /// The digest of a block as last delivered or written; 0 if it is not known.
    pub fn digest(&self, block: u64) -> u64 {
        let known = || self.find(block).map_or(0, |(set, way)| self.digests[set][way]);
        if self.digests.is_empty() { 0 } else { known() }
    }

    /// Sets the digest of what was delivered or written of a block. Ignored for a block that is no
    /// longer remembered.
    pub fn set_digest(&mut self, block: u64, digest: u64) {
        if self.digests.is_empty() {
            return;
        }
        if let Some((set, way)) = self.find(block) {
            self.digests[set][way] = digest;
        }
    }

    /// Forgets all digests, but not who holds the blocks.
    pub fn forget_digests(&mut self) {
        self.digests.fill([0; WAYS]);
    }

    /// A range changed by other means than writes: forgets who holds its blocks.
    pub fn forget_within(&mut self, blocks: &RangeInclusive<u64>) {
        let count = (blocks.end() - blocks.start()).saturating_add(1);
        if count <= self.sets.len() as u64 {
            for block in blocks.clone() {
                if let Some((set, way)) = self.find(block) {
                    self.clear(set, way);
                }
            }
        } else {
            for set in 0..self.sets.len() {
                for way in 0..WAYS {
                    if self.sets[set].block(way).is_some_and(|block| blocks.contains(&block)) {
                        self.clear(set, way);
                    }
                }
            }
        }
    }

    /// Forgets a client, everywhere at once.
    pub fn forget_client(&mut self, client: u8) {
        self.forget_clients(bit(client), 0..usize::MAX);
    }

    /// Forgets clients, one bit for each, in a part of the sets. Returns the number of all sets.
    pub fn forget_clients(&mut self, clients: u64, part: Range<usize>) -> usize {
        let all = self.sets.len();
        for set in part.start.min(all)..part.end.min(all) {
            for way in 0..WAYS {
                let holders = self.holders_at(set, way);
                if holders & clients != 0 && self.sets[set].block(way).is_some() {
                    self.set_holders(set, way, holders & !clients);
                }
            }
        }
        all
    }

    /// Checks that each block is in its set, and only once, and that several holders are at least
    /// two.
    ///
    /// # Errors
    /// Says which check failed.
    pub fn validate(&self) -> Result<(), String> {
        for (place, set) in self.sets.iter().enumerate() {
            for way in 0..WAYS {
                let Some(block) = set.block(way) else { continue };
                let times = (0..WAYS).filter(|&other| set.block(other) == Some(block)).count();
                if self.set(block) != place || times != 1 {
                    return Err(format!("block {block} is {times} times in set {place}"));
                }
                let several = self.sharers[place][way].count_ones() > 1;
                let holder = set.holder(way);
                if holder > SEVERAL || holder == SEVERAL && !several {
                    return Err(format!("block {block} is held by {holder}"));
                }
            }
        }
        Ok(())
    }
}

fn bit(client: u8) -> u64 {
    if client < MAX_CLIENTS { 1 << client } else { 0 }
}

#[cfg(test)]
mod tests;

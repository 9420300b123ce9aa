//! LRU stack depths: 1 + the number of distinct other blocks since the last reference to a block.
//!
//! Every block has a bit at the time of its last reference; the depth is the number of bits from
//! that time on. A Fenwick tree counts the bits by word of 64, so it is 64 times smaller than the
//! bitmap. When time reaches the end of the bitmap, the times are renumbered. A block costs 4 bytes
//! for its time, and at most 5 bits.

const NEVER: u32 = u32::MAX;

/// Blocks whose times, and the bits at them, are read at once.
const BATCH: usize = 64;

/// The LRU stack of all blocks referenced so far.
pub struct StackDepths {
    /// Time of each block's last reference.
    last: Vec<u32>,
    /// One bit for each of these times.
    bits: Vec<u64>,
    /// Fenwick tree over the population counts of `bits`, 1-based. Times from `now` on count as if
    /// they had bits: they will, before a sum is asked for that contains them.
    tree: Vec<u32>,
    now: u32,
    blocks: u32,
}

impl Default for StackDepths {
    fn default() -> Self {
        let mut depths =
            Self { last: Vec::new(), bits: Vec::new(), tree: Vec::new(), now: 0, blocks: 0 };
        depths.lay_out(1024, 0);
        depths
    }
}

impl StackDepths {
    /// Makes room for blocks below `entries`.
    pub fn grow(&mut self, entries: u32) {
        self.last.resize(self.last.len().max(entries as usize), NEVER);
    }

    /// Moves blocks to the top, one after the other, and appends their former depths. Faster than
    /// one by one: the times of many blocks are read at once, and then the bits at these times.
    pub fn references(
        &mut self,
        mut entries: impl Iterator<Item = u32>,
        depths: &mut Vec<Option<u32>>,
    ) {
        let mut batch = [0; BATCH];
        let mut times = [0; BATCH];
        loop {
            let mut length = 0;
            for ((slot, time), entry) in batch.iter_mut().zip(&mut times).zip(entries.by_ref()) {
                *slot = entry;
                *time = self.last[entry as usize];
                length += 1;
            }
            if length == 0 {
                return;
            }
            let bits = times[..length].iter().filter_map(|&time| self.bits.get(time as usize / 64));
            std::hint::black_box(bits.fold(0, |all, word| all ^ word));
            depths.extend(batch[..length].iter().map(|&entry| self.reference(entry)));
        }
    }

    /// Moves a block to the top. Returns its former depth; `None` for a first reference.
    pub fn reference(&mut self, entry: u32) -> Option<u32> {
        if self.now as usize == self.bits.len() * 64 {
            self.compact();
        }
        let now = self.now;
        self.now += 1;
        let last = std::mem::replace(&mut self.last[entry as usize], now);
        let depth = if last == NEVER {
            self.blocks += 1;
            None
        } else {
            let depth = self.blocks - self.bits_before(last);
            self.bits[last as usize / 64] ^= 1 << (last % 64);
            self.take_from(last / 64);
            Some(depth)
        };
        self.bits[now as usize / 64] |= 1 << (now % 64);
        depth
    }

    /// Number of bits at times before `time`.
    fn bits_before(&self, time: u32) -> u32 {
        let below = (1_u64 << (time % 64)) - 1;
        let mut count = (self.bits[time as usize / 64] & below).count_ones();
        let mut node = time as usize / 64;
        while node > 0 {
            count = count.wrapping_add(self.tree[node]);
            node &= node - 1;
        }
        count
    }

    /// Counts a bit less in a word.
    fn take_from(&mut self, word: u32) {
        let mut node = word as usize + 1;
        while node < self.tree.len() {
            self.tree[node] = self.tree[node].wrapping_sub(1);
            node += node & node.wrapping_neg();
        }
    }

    /// Renumbers the times of last references as 0, 1, ... in order, with at least as many free
    /// times after them.
    fn compact(&mut self) {
        let mut rank_before = vec![0_u32; self.bits.len()];
        let mut count = 0;
        for (rank, word) in rank_before.iter_mut().zip(&self.bits) {
            *rank = count;
            count += word.count_ones();
        }
        for last in self.last.iter_mut().filter(|last| **last != NEVER) {
            let below = (1_u64 << (*last % 64)) - 1;
            let word = *last as usize / 64;
            *last = rank_before[word] + (self.bits[word] & below).count_ones();
        }
        debug_assert_eq!(count, self.blocks);
        let words = (2 * count as usize / 64).next_power_of_two().max(self.bits.len());
        let words = if count as usize > words * 32 { 2 * words } else { words };
        self.lay_out(words, count);
    }

    /// A bitmap of so many words, with bits at the first `count` times.
    fn lay_out(&mut self, words: usize, count: u32) {
        self.bits = vec![0; words];
        for time in 0..count {
            self.bits[time as usize / 64] |= 1 << (time % 64);
        }
        // A node counts as many words as its lowest bit says, all of them full.
        let full = |node: usize| (node & node.wrapping_neg()) as u32 * 64;
        self.tree = (0..=words).map(full).collect();
        self.now = count;
    }
}

//! About which of a cache's own blocks the changes of a filter say something new.
//!
//! Only simulations use this index: they know the block numbers and the filters. What real clients
//! send can make its chains as long as the cache.

use super::bloom::{Filter, Shape};
use super::source::News;

/// Marks the end of a chain.
const END: u32 = u32::MAX;

/// The own blocks by their positions in a filter. Only the blocks at a changed bit can have news.
/// There is a chain for each position; a block is in as many chains as there are hash functions.
pub(super) struct OwnBlocks {
    /// The first node of each position's chain.
    heads: Vec<u32>,
    /// The next node of each node; the nodes of a slot are adjacent.
    next: Vec<u32>,
    /// The block of each slot.
    blocks: Vec<u64>,
    free: Vec<u32>,
    /// Number of nodes of a slot, as the exponent of a power of two.
    shift: u32,
}

impl OwnBlocks {
    pub(super) fn new(shape: Shape) -> Self {
        let shift = shape.hashes.next_power_of_two().trailing_zeros();
        let heads = vec![END; shape.bits as usize];
        Self { heads, next: Vec::new(), blocks: Vec::new(), free: Vec::new(), shift }
    }

    pub(super) fn insert(&mut self, shape: Shape, block: u64) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.blocks.push(0);
            self.next.resize(self.blocks.len() << self.shift, END);
            self.blocks.len() as u32 - 1
        });
        self.blocks[slot as usize] = block;
        for (node, position) in (slot << self.shift..).zip(shape.positions(block)) {
            self.next[node as usize] = std::mem::replace(&mut self.heads[position as usize], node);
        }
    }

    pub(super) fn remove(&mut self, shape: Shape, block: u64) {
        let mut slot = None;
        for (place, position) in (0..).zip(shape.positions(block)) {
            let (mut before, mut at) = (END, self.heads[position as usize]);
            while at != END {
                let is_it = match slot {
                    Some(slot) => at == (slot << self.shift) + place,
                    None => {
                        self.blocks[(at >> self.shift) as usize] == block
                            && at & ((1 << self.shift) - 1) == place
                    }
                };
                let next = self.next[at as usize];
                if is_it {
                    slot = Some(at >> self.shift);
                    match before {
                        END => self.heads[position as usize] = next,
                        node => self.next[node as usize] = next,
                    }
                    break;
                }
                (before, at) = (at, next);
            }
        }
        self.free.extend(slot);
    }

    /// Re-inserts all blocks for a filter of another shape.
    pub(super) fn arrange(&mut self, shape: Shape) {
        let mut blocks: Vec<u64> = Vec::new();
        let (blocks_of, shift) = (&self.blocks, self.shift);
        for &head in &self.heads {
            let mut at = head;
            while at != END {
                if at & ((1 << shift) - 1) == 0 {
                    blocks.push(blocks_of[(at >> shift) as usize]);
                }
                at = self.next[at as usize];
            }
        }
        *self = Self::new(shape);
        blocks.into_iter().for_each(|block| self.insert(shape, block));
    }

    /// Appends to `news` what a filter says of the blocks at these positions.
    pub(super) fn tell(&self, positions: &[u32], filter: &Filter, news: &mut News) {
        for &position in positions {
            let mut at = self.heads[position as usize];
            while at != END {
                let block = self.blocks[(at >> self.shift) as usize];
                news.blocks.push((block, filter.holds(block)));
                at = self.next[at as usize];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// With few bits, which all blocks share: the chains contain what a search over all blocks
    /// finds.
    #[test]
    fn the_own_blocks_of_a_position_are_those_that_have_it() {
        let mut x = 9_u64;
        for hashes in [1, 3, 4] {
            let mut shape = Shape { bits: 23, hashes, seed: 5 };
            let mut own = OwnBlocks::new(shape);
            let mut model = BTreeSet::new();
            for step in 0..2000 {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let block = (x >> 33) % 50;
                if model.insert(block) {
                    own.insert(shape, block);
                } else {
                    model.remove(&block);
                    own.remove(shape, block);
                }
                if step % 500 == 499 {
                    let other = Shape { seed: shape.seed + 1, ..shape };
                    own.arrange(other);
                    shape = other;
                }
                for position in 0..shape.bits {
                    let mut news = News::default();
                    own.tell(&[position], &Filter::new(shape), &mut news);
                    let told: BTreeSet<u64> = news.blocks.iter().map(|&(b, _)| b).collect();
                    let has = |b: &&u64| shape.positions(**b).any(|p| p == position);
                    assert_eq!(told, model.iter().filter(has).copied().collect());
                }
            }
            assert!(own.blocks.len() <= 50);
        }
    }
}

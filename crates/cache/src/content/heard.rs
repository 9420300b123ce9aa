//! The receiving side of summaries: what is known of a neighbour that publishes, and about which of
//! this cache's own blocks a publication says something new.

use super::bloom::{Filter, Shape};
use super::source::News;
use super::summary::{Body, Follower, Publication, Unusable};

/// Marks the end of a chain.
const END: u32 = u32::MAX;

/// What is known from the summaries of a neighbour.
pub(super) struct Heard {
    follower: Follower,
    /// For knowledge that is one exchange old: the filter before the last publication.
    old: Option<Filter>,
    /// Whether the last publication was a whole filter.
    was_whole: bool,
    own: OwnBlocks,
}

impl Heard {
    /// For a neighbour that publishes filters of this shape; nothing is known yet. With `is_old`,
    /// it uses knowledge that is one exchange old.
    pub(super) fn new(shape: Shape, is_old: bool) -> Self {
        let follower = Follower::of_shape(shape);
        let old = is_old.then(|| follower.filter().clone());
        Self { follower, old, was_whole: true, own: OwnBlocks::new(shape) }
    }

    /// The current bits.
    pub(super) fn filter(&self) -> &Filter {
        self.follower.filter()
    }

    /// Notes that this cache took a block in, or gave it up.
    pub(super) fn own(&mut self, block: u64, came: bool) {
        let shape = self.follower.filter().shape();
        if came { self.own.insert(shape, block) } else { self.own.remove(shape, block) }
    }

    /// Takes in a publication. Appends to `news` what it says about own blocks.
    ///
    /// # Errors
    /// The publication is unusable; the knowledge is unchanged.
    pub(super) fn apply(
        &mut self,
        publication: &Publication,
        news: &mut News,
    ) -> Result<(), Unusable> {
        let before = self.old.is_some().then(|| self.follower.changed().to_vec());
        let was = self.follower.filter().shape();
        let filter = self.old.as_ref().map(|_| self.follower.filter().clone());
        self.follower.apply(publication)?;
        let shape = self.follower.filter().shape();
        if shape != was {
            self.own.arrange(shape);
        }
        let is_whole = matches!(publication.body, Body::Whole(_));
        let was_whole = std::mem::replace(&mut self.was_whole, is_whole);
        match (&mut self.old, before, filter) {
            // The changes of the publication before are one exchange old now.
            (Some(old), Some(changed), Some(filter)) => {
                *old = filter;
                if was_whole || shape != was {
                    news.all = true;
                } else {
                    self.own.tell(&changed, old, news);
                }
            }
            _ if is_whole => news.all = true,
            _ => self.own.tell(self.follower.changed(), self.follower.filter(), news),
        }
        Ok(())
    }

    /// Whether the neighbour is believed to hold a block.
    pub(super) fn holds(&self, block: u64) -> bool {
        self.old.as_ref().unwrap_or(self.follower.filter()).holds(block)
    }
}

/// The own blocks by their positions in the filter. Only the blocks at a changed bit can have news.
/// There is a chain for each position; a block is in as many chains as there are hash functions.
struct OwnBlocks {
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
    fn new(shape: Shape) -> Self {
        let shift = shape.hashes.next_power_of_two().trailing_zeros();
        let heads = vec![END; shape.bits as usize];
        Self { heads, next: Vec::new(), blocks: Vec::new(), free: Vec::new(), shift }
    }

    fn insert(&mut self, shape: Shape, block: u64) {
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

    fn remove(&mut self, shape: Shape, block: u64) {
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
    fn arrange(&mut self, shape: Shape) {
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
    fn tell(&self, positions: &[u32], filter: &Filter, news: &mut News) {
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

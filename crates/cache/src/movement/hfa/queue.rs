//! The orders of HFA's queues: by recency and by the activity of Hint-K here, by hotness in
//! `by_heat.rs`. The tail of a queue gives way first. What a queue orders a block by is in the
//! block's record, and stands there unchanged as long as the block is in the queue.

use std::ops::Deref;

use super::super::activity::{ByActivity, Steps};
use super::super::records::{Block, Blocks, BlocksAtHand};
use crate::Entry;

pub(super) trait Queue: Send {
    /// Lists that it needs, where Hint-K tells so many values apart.
    fn lists(steps: &Steps) -> u32;

    /// An empty queue in the lists from `first` on.
    fn new(first: u32, steps: &Steps) -> Self;

    /// Makes entries below `entries` valid.
    fn grow(&mut self, entries: u32) {
        let _ = entries;
    }

    fn len(&self) -> u32;

    /// Puts a block where it belongs; by recency: at the head.
    fn push(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry);

    /// Puts a block where it belongs, in the last place there is for it.
    fn push_last(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry);

    fn remove(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry);

    /// A block is not hot any more: it stands where it would if it had come so.
    fn cool(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) {
        blocks.get_mut(entry).heat = 0.0;
    }

    /// The block that gives way next.
    fn tail(&mut self, blocks: &BlocksAtHand<'_>) -> Option<Entry>;

    /// Value of the tail for Hint-K, where the order is that.
    fn least(&self) -> Option<u32> {
        None
    }

    /// The head and the tail of a queue by recency.
    fn ends(&self, blocks: &Blocks) -> Option<[Entry; 2]> {
        let _ = blocks;
        None
    }

    /// Up to `count` blocks that are warm, from the head on.
    fn warm_from_head<R>(&self, blocks: &Blocks<R>, count: usize) -> Vec<Entry>
    where
        R: Deref<Target = [Block]>;

    /// All blocks from the tail on.
    fn tail_first(&self, blocks: &Blocks) -> Vec<Entry>;

    fn check(&self, blocks: &Blocks) -> Result<(), String>;
}

/// Those of these blocks that are warm.
fn warm<R: Deref<Target = [Block]>>(
    blocks: &Blocks<R>,
    all: impl Iterator<Item = Entry>,
) -> impl Iterator<Item = Entry> {
    all.filter(|&entry| blocks.get(entry).heat > 0.0)
}

/// By recency: a list.
pub(super) struct ByRecency {
    /// Front: the tail.
    list: u32,
    len: u32,
}

impl Queue for ByRecency {
    fn lists(_: &Steps) -> u32 {
        1
    }

    fn new(first: u32, _: &Steps) -> Self {
        Self { list: first, len: 0 }
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.len
    }

    #[inline(always)]
    fn push(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) {
        blocks.push_back(self.list, entry);
        self.len += 1;
    }

    fn push_last(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) {
        blocks.push_front(self.list, entry);
        self.len += 1;
    }

    #[inline(always)]
    fn remove(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) {
        blocks.remove(entry);
        self.len -= 1;
    }

    #[inline(always)]
    fn tail(&mut self, blocks: &BlocksAtHand<'_>) -> Option<Entry> {
        blocks.front(self.list)
    }

    fn ends(&self, blocks: &Blocks) -> Option<[Entry; 2]> {
        Some([blocks.back(self.list)?, blocks.front(self.list)?])
    }

    fn warm_from_head<R>(&self, blocks: &Blocks<R>, count: usize) -> Vec<Entry>
    where
        R: Deref<Target = [Block]>,
    {
        warm(blocks, blocks.iter_back(self.list)).take(count).collect()
    }

    fn tail_first(&self, blocks: &Blocks) -> Vec<Entry> {
        blocks.iter(self.list).collect()
    }

    fn check(&self, blocks: &Blocks) -> Result<(), String> {
        match blocks.iter(self.list).count() as u32 {
            len if len == self.len => Ok(()),
            len => Err(format!("a queue of {len} counts {}", self.len)),
        }
    }
}

/// By activity, and how many blocks of each value are warm: they are found without a walk through
/// the others. Warm is what moved or was hit lately, and so these are near the head of their list,
/// behind which there may be many thousands that are not.
pub(super) struct WarmByActivity {
    order: ByActivity,
    /// By value.
    warm: Vec<u32>,
}

impl WarmByActivity {
    /// The number of warm blocks of its value, and what a block is of that.
    #[inline(always)]
    fn warm_like(&mut self, block: &Block) -> (&mut u32, u32) {
        let value = self.order.value(block) as usize;
        (&mut self.warm[value], u32::from(block.heat > 0.0))
    }
}

impl Queue for WarmByActivity {
    fn lists(steps: &Steps) -> u32 {
        steps.values()
    }

    fn new(first: u32, steps: &Steps) -> Self {
        let warm = vec![0; steps.values() as usize];
        Self { order: ByActivity::new(first, steps), warm }
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.order.len()
    }

    #[inline(always)]
    fn push(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) {
        self.order.push(blocks, entry);
        let (warm, one) = self.warm_like(blocks.get(entry));
        *warm += one;
    }

    fn push_last(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) {
        self.push(blocks, entry);
    }

    #[inline(always)]
    fn remove(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) {
        let (warm, one) = self.warm_like(blocks.get(entry));
        *warm -= one;
        self.order.remove(blocks, entry);
    }

    fn cool(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) {
        let (warm, one) = self.warm_like(blocks.get(entry));
        *warm -= one;
        blocks.get_mut(entry).heat = 0.0;
    }

    #[inline(always)]
    fn tail(&mut self, blocks: &BlocksAtHand<'_>) -> Option<Entry> {
        self.order.victim(blocks)
    }

    fn least(&self) -> Option<u32> {
        self.order.least()
    }

    fn warm_from_head<R>(&self, blocks: &Blocks<R>, count: usize) -> Vec<Entry>
    where
        R: Deref<Target = [Block]>,
    {
        let lists = self.order.lists().zip(&self.warm).rev();
        let warm = |(list, &held)| warm(blocks, blocks.iter_back(list)).take(held as usize);
        lists.flat_map(warm).take(count).collect()
    }

    fn tail_first(&self, blocks: &Blocks) -> Vec<Entry> {
        self.order.iter(blocks).collect()
    }

    fn check(&self, blocks: &Blocks) -> Result<(), String> {
        let held = self.order.lists().map(|list| warm(blocks, blocks.iter(list)).count() as u32);
        if !held.eq(self.warm.iter().copied()) {
            return Err("warm blocks of a value are counted otherwise".into());
        }
        self.order.check(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::{Queue, WarmByActivity};
    use crate::Entry;
    use crate::movement::activity::Steps;
    use crate::movement::records::Blocks;

    #[test]
    fn warm_blocks_are_found_in_the_order_of_activity() {
        let steps = Steps::new(2);
        let mut blocks = Blocks::new(WarmByActivity::lists(&steps));
        let mut ours = WarmByActivity::new(0, &steps);
        blocks.grow(60);
        // From the tail on: value, whether warm, block.
        let mut model: Vec<(u32, bool, Entry)> = Vec::new();
        let clock = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let given = std::env::var("UNDERCROFT_SEED").ok();
        let (mut x, mut most) = (given.map_or_else(clock, |seed| seed.parse().unwrap()), 0);
        println!("UNDERCROFT_SEED={x}");
        for step in 0..20_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (entry, is_warm) = ((x >> 33) as u32 % 60, x >> 62 == 0);
            match model.iter().position(|m| m.2 == entry) {
                Some(at) if model[at].1 && x >> 60 & 1 == 0 => {
                    ours.cool(&mut blocks.at_hand(), entry);
                    model[at].1 = false;
                }
                Some(at) => {
                    ours.remove(&mut blocks.at_hand(), entry);
                    model.remove(at);
                }
                None => {
                    let block = blocks.get_mut(entry);
                    (block.history, block.heat) = ((x >> 50) as u8 & 7, f64::from(is_warm));
                    let value = steps.value(block.history);
                    ours.push(&mut blocks.at_hand(), entry);
                    let at = model.partition_point(|m| m.0 <= value);
                    model.insert(at, (value, is_warm, entry));
                }
            }
            let warm: Vec<Entry> = model.iter().rev().filter(|m| m.1).map(|m| m.2).collect();
            most = most.max(warm.len());
            let count = (x >> 40) as usize % 12;
            let found = ours.warm_from_head(&blocks, count);
            assert_eq!(found, warm[..count.min(warm.len())], "step {step}");
            let all = model.iter().map(|m| m.2);
            assert!(ours.tail_first(&blocks).into_iter().eq(all), "step {step}");
            ours.check(&blocks).unwrap();
        }
        assert!(most > 8, "{most} warm blocks at most");
    }
}

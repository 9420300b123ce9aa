//! The orders of HFA's queues: by recency, by hotness, and by the activity of Hint-K. Blocks leave
//! a queue at its tail.
//!
//! A queue does not store the values that it orders by. Each call passes them in, and they must not
//! change while the block is in the queue, except by [`Queue::cool`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::activity::{ByActivity, Steps};
use super::blocks::{Block, Row};
use undercroft_policy::containers::heap::Heap;
use undercroft_policy::containers::lists::Lists;

pub(super) trait Queue: Send + 'static {
    /// Creates an empty queue; `steps` has the number of moves that Hint-K remembers.
    fn new(steps: &Steps) -> Self;

    /// Makes rows below `rows` valid.
    fn grow(&mut self, rows: u32);

    /// Number of blocks.
    fn len(&self) -> u32;

    /// Inserts a block in order, ahead of its equals; in a queue by recency at the head.
    fn push(&mut self, row: Row, block: &Block);

    /// Inserts a block in order, behind its equals; in a queue by recency at the tail.
    fn push_last(&mut self, row: Row, block: &Block);

    /// Removes a block.
    fn remove(&mut self, row: Row, block: &Block);

    /// Sets the hotness of a block to 0 and moves it to the matching place.
    fn cool(&mut self, row: Row, block: &Block);

    /// The block at the tail: the next to leave.
    fn tail(&self) -> Option<Row>;

    /// Up to `count` hot blocks, starting at the head.
    fn hot_from_head(&self, blocks: &[Block], count: usize) -> Vec<Row>;

    /// All blocks, starting at the tail.
    fn tail_first(&self) -> Vec<Row>;

    /// The newest and the oldest block; only in a queue by recency.
    fn ends(&self) -> Option<[Row; 2]> {
        None
    }

    /// Activity of the block at the tail; only in a queue by activity.
    fn least(&self) -> Option<u32> {
        None
    }

    /// Checks the structure.
    fn check(&self, blocks: &[Block]) -> Result<(), String>;
}

/// A queue ordered by recency.
pub(super) struct ByRecency {
    /// Front: the tail.
    list: Lists,
}

impl ByRecency {
    fn head_first(&self) -> impl Iterator<Item = Row> + '_ {
        std::iter::successors(self.list.back(0), |&row| self.list.prev(row))
    }
}

impl Queue for ByRecency {
    fn new(_: &Steps) -> Self {
        Self { list: Lists::new(1) }
    }

    fn grow(&mut self, rows: u32) {
        self.list.grow(rows);
    }

    fn len(&self) -> u32 {
        self.list.len(0)
    }

    fn push(&mut self, row: Row, _: &Block) {
        self.list.push_back(0, row);
    }

    fn push_last(&mut self, row: Row, _: &Block) {
        self.list.push_front(0, row);
    }

    fn remove(&mut self, row: Row, _: &Block) {
        self.list.remove(0, row);
    }

    fn cool(&mut self, _: Row, _: &Block) {}

    fn tail(&self) -> Option<Row> {
        self.list.front(0)
    }

    fn hot_from_head(&self, blocks: &[Block], count: usize) -> Vec<Row> {
        self.head_first().filter(|&row| blocks[row as usize].is_hot()).take(count).collect()
    }

    fn tail_first(&self) -> Vec<Row> {
        self.list.iter(0).collect()
    }

    fn ends(&self) -> Option<[Row; 2]> {
        Some([self.list.back(0)?, self.list.front(0)?])
    }

    fn check(&self, _: &[Block]) -> Result<(), String> {
        self.list.check()
    }
}

/// A queue ordered by hotness, and by recency among equals. Most blocks have hotness 0; they are in
/// a list that forms the tail.
pub(super) struct ByHotness {
    /// Front: the tail.
    cold: Lists,
    /// Ordered by rising hotness.
    hot: Heap<u128>,
    pushed: u64,
}

/// A heap key: orders by rising hotness, and by `turn` among equals. The bit patterns of
/// non-negative floats have the order of their values.
fn key(hotness: f64, turn: u64) -> u128 {
    u128::from(hotness.to_bits()) << 64 | u128::from(turn)
}

impl ByHotness {
    /// Hot blocks, starting at the tail.
    fn sorted(&self) -> Vec<(u128, Row)> {
        let mut hot: Vec<_> = self.hot.iter().collect();
        hot.sort_unstable();
        hot
    }
}

impl Queue for ByHotness {
    fn new(_: &Steps) -> Self {
        Self { cold: Lists::new(1), hot: Heap::default(), pushed: 0 }
    }

    fn grow(&mut self, rows: u32) {
        self.cold.grow(rows);
        self.hot.grow(rows);
    }

    fn len(&self) -> u32 {
        self.cold.len(0) + self.hot.len()
    }

    fn push(&mut self, row: Row, block: &Block) {
        if block.is_hot() {
            self.pushed += 1;
            self.hot.push(key(block.hotness, self.pushed), row);
        } else {
            self.cold.push_back(0, row);
        }
    }

    fn push_last(&mut self, row: Row, block: &Block) {
        if block.is_hot() { self.push(row, block) } else { self.cold.push_front(0, row) }
    }

    fn remove(&mut self, row: Row, block: &Block) {
        if block.is_hot() { self.hot.remove(row) } else { self.cold.remove(0, row) }
    }

    fn cool(&mut self, row: Row, _: &Block) {
        self.hot.remove(row);
        self.cold.push_back(0, row);
    }

    fn tail(&self) -> Option<Row> {
        self.cold.front(0).or_else(|| self.hot.first().map(|(_, row)| row))
    }

    fn hot_from_head(&self, _: &[Block], count: usize) -> Vec<Row> {
        let mut hottest = BinaryHeap::with_capacity(count + 1);
        for item in self.hot.iter().rev().map(Reverse) {
            if hottest.len() < count || hottest.peek().is_some_and(|least| item < *least) {
                hottest.push(item);
            }
            if hottest.len() > count {
                hottest.pop();
            }
        }
        hottest.into_sorted_vec().into_iter().map(|Reverse((_, row))| row).collect()
    }

    fn tail_first(&self) -> Vec<Row> {
        self.cold.iter(0).chain(self.sorted().into_iter().map(|(_, row)| row)).collect()
    }

    fn check(&self, blocks: &[Block]) -> Result<(), String> {
        self.cold.check()?;
        self.hot.check()?;
        let is_placed = self.cold.iter(0).all(|row| !blocks[row as usize].is_hot())
            && self
                .hot
                .iter()
                .all(|(at, row)| at >> 64 == key(blocks[row as usize].hotness, 0) >> 64);
        if is_placed { Ok(()) } else { Err("a block is not where its hotness says".into()) }
    }
}

/// A queue ordered by the activity of Hint-K, and by recency among equals.
pub(super) struct ByHistory {
    order: ByActivity,
    steps: Steps,
    /// The number of hot blocks of each value. Hot blocks were used recently, so they are near the
    /// newest end of their value's list. Many thousands of cold blocks may follow.
    hot: Vec<u32>,
}

impl Queue for ByHistory {
    fn new(steps: &Steps) -> Self {
        let values = steps.values();
        Self { order: ByActivity::new(values), steps: steps.clone(), hot: vec![0; values as usize] }
    }

    fn grow(&mut self, rows: u32) {
        self.order.grow(rows);
    }

    fn len(&self) -> u32 {
        self.order.len()
    }

    fn push(&mut self, row: Row, block: &Block) {
        let value = self.steps.value(block.history);
        self.order.push(row, value);
        self.hot[value as usize] += u32::from(block.is_hot());
    }

    fn push_last(&mut self, row: Row, block: &Block) {
        self.push(row, block);
    }

    fn remove(&mut self, row: Row, block: &Block) {
        let value = self.steps.value(block.history);
        self.order.remove(row, value);
        self.hot[value as usize] -= u32::from(block.is_hot());
    }

    fn cool(&mut self, _: Row, block: &Block) {
        self.hot[self.steps.value(block.history) as usize] -= 1;
    }

    fn tail(&self) -> Option<Row> {
        self.order.first()
    }

    fn hot_from_head(&self, blocks: &[Block], count: usize) -> Vec<Row> {
        let of_value = |value: u32| {
            let hot = self.order.newest_first(value).filter(|&row| blocks[row as usize].is_hot());
            hot.take(self.hot[value as usize] as usize)
        };
        (0..self.steps.values()).rev().flat_map(of_value).take(count).collect()
    }

    fn tail_first(&self) -> Vec<Row> {
        self.order.iter().collect()
    }

    fn least(&self) -> Option<u32> {
        self.order.least()
    }

    fn check(&self, blocks: &[Block]) -> Result<(), String> {
        self.order.check()?;
        let hot =
            |value| self.order.newest_first(value).filter(|&row| blocks[row as usize].is_hot());
        let counts = (0..self.steps.values()).map(|value| hot(value).count() as u32);
        if counts.eq(self.hot.iter().copied()) {
            return Ok(());
        }
        Err("hot blocks of a value are counted otherwise".into())
    }
}

/// Orders the hot blocks of a queue by recency a second time, by hotness: D-HFA exchanges the
/// hottest block of Q1, and among equals the one nearest the head.
pub(super) struct Hottest {
    /// Hot blocks only, by falling hotness, and from the head on among equals.
    heap: Heap<u128>,
    /// The places given out last at the two ends of the queue.
    head: u64,
    tail: u64,
}

/// The place between both ends, where numbering starts.
const MIDDLE: u64 = 1 << 63;

impl Hottest {
    pub(super) fn new() -> Self {
        Self { heap: Heap::default(), head: MIDDLE, tail: MIDDLE }
    }

    pub(super) fn grow(&mut self, rows: u32) {
        self.heap.grow(rows);
    }

    /// The hottest block; `None` if no block is hot.
    pub(super) fn first(&self) -> Option<Row> {
        self.heap.first().map(|(_, row)| row)
    }

    /// Adds a block that came to the head or the tail of the queue.
    pub(super) fn push(&mut self, row: Row, block: &mut Block, is_at_head: bool) {
        let place = if is_at_head { &mut self.head } else { &mut self.tail };
        *place = if is_at_head { *place - 1 } else { *place + 1 };
        block.place = *place;
        self.insert(row, block);
    }

    /// Removes a block that left the queue, or whose hotness is about to change.
    pub(super) fn remove(&mut self, row: Row, block: &Block) {
        if block.is_hot() {
            self.heap.remove(row);
        }
    }

    /// Adds a block again after its hotness changed; its place stays.
    pub(super) fn insert(&mut self, row: Row, block: &Block) {
        if block.is_hot() {
            self.heap.push(!key(block.hotness, !block.place), row);
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.heap.check()
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, ByHistory, ByHotness, Queue, Row};
    use crate::activity::Steps;

    const BLOCKS: u32 = 60;

    /// What a queue orders by, and the rank among equals: a cold block that was put last ranks
    /// behind all others.
    type Key = (u64, i64);

    /// Drives a queue beside a sorted list; `key` returns what this kind of queue orders by.
    fn agrees_with_a_sorted_list<Q: Queue>(
        key: impl Fn(&Steps, &Block) -> u64,
        cools_in_place: bool,
    ) {
        let steps = Steps::new(2);
        let (mut ours, mut blocks) = (Q::new(&steps), vec![Block::default(); BLOCKS as usize]);
        ours.grow(BLOCKS);
        // Starting at the tail.
        let mut model: Vec<(Key, Row)> = Vec::new();
        let (mut x, mut turn, mut most) = (5_u64, 0, 0);
        for step in 0..20_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            turn += 1;
            let row = (x >> 33) as u32 % BLOCKS;
            let block = &mut blocks[row as usize];
            match model.iter().position(|m| m.1 == row) {
                Some(at) if block.is_hot() && x >> 60 & 1 == 0 => {
                    ours.cool(row, block);
                    block.hotness = 0.0;
                    if !cools_in_place {
                        model[at].0 = (key(&steps, block), turn);
                    }
                }
                Some(at) => {
                    ours.remove(row, block);
                    model.remove(at);
                }
                None => {
                    let hotness = if x >> 62 == 0 { (x >> 43) % 45 } else { 0 };
                    (block.history, block.hotness) = ((x >> 50) as u8 & 7, hotness as f64);
                    let is_last = !cools_in_place && x >> 59 & 3 == 0;
                    if is_last {
                        ours.push_last(row, block)
                    } else {
                        ours.push(row, block)
                    }
                    let is_behind = is_last && !block.is_hot();
                    let rank = if is_behind { -turn } else { turn };
                    model.push(((key(&steps, block), rank), row));
                }
            }
            model.sort_unstable();
            let hot = model.iter().rev().map(|m| m.1).filter(|&e| blocks[e as usize].is_hot());
            let hot: Vec<Row> = hot.collect();
            most = most.max(hot.len());
            let count = (x >> 40) as usize % 12;
            let found = ours.hot_from_head(&blocks, count);
            assert_eq!(found, hot[..count.min(hot.len())], "step {step}");
            assert_eq!(ours.tail(), model.first().map(|m| m.1), "step {step}");
            let all = model.iter().map(|m| m.1);
            assert!(ours.tail_first().into_iter().eq(all), "step {step}");
            assert_eq!(ours.len() as usize, model.len());
            ours.check(&blocks).unwrap();
        }
        assert!(most > 8, "{most} hot blocks at most");
    }

    #[test]
    fn a_queue_by_hotness_agrees_with_a_sorted_list() {
        agrees_with_a_sorted_list::<ByHotness>(|_, block| block.hotness.to_bits(), false);
    }

    #[test]
    fn a_queue_by_activity_agrees_with_a_sorted_list() {
        let value = |steps: &Steps, block: &Block| steps.value(block.history).into();
        agrees_with_a_sorted_list::<ByHistory>(value, true);
    }
}

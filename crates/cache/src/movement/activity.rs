//! How active a block is, by its last K moves between levels: the K-step hint value of Hint-K (Wu
//! et al., 2010 and 2014), and a queue ordered by it.
//!
//! The papers' formula could not be had. Ours: the most recent move counts 1 if it was a demotion
//! and 2 if it was a promotion, and each move before it half as much as the same move after it.
//! Values are kept in whole parts of 2^-(K-1), of which there are less than 2^(K+1).

use std::array;

use crate::lists::Lists;

/// Most moves that can be remembered: the values then fit in the bits of a word.
pub(super) const MAX_STEPS: u64 = 5;

/// The last moves of a block: bits from the most recent up, 1 for a promotion, under a leading 1.
/// 0 stands for no move, as 1 does.
pub(super) type History = u8;

/// Number of histories: those of [`MAX_STEPS`] moves have one bit more.
const HISTORIES: usize = 2 << MAX_STEPS;

/// What the moves of a block come to, looked up: every history has a row in each table.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    k: u32,
    /// Its value.
    values: [u8; HISTORIES],
    /// The history after one more move, a demotion or a promotion.
    after: [[History; HISTORIES]; 2],
    /// What is left of any byte as a history.
    within: [History; 1 << History::BITS],
}

impl Steps {
    pub(super) fn new(k: u64) -> Self {
        debug_assert!((1..=MAX_STEPS).contains(&k));
        let k = k as u32;
        // The newest move is the lowest bit; the oldest falls off above.
        let len_of = |history: u32| 31 - history.leading_zeros();
        let last = |moves: u32, len: u32| (moves & ((1 << len) - 1) | 1 << len) as History;
        let value = |history: usize| {
            let history = history.max(1) as u32;
            let len = len_of(history).min(k);
            let part = |j: u32| (1 + (history >> j & 1)) << (k - 1 - j);
            (0..len).map(part).sum::<u32>() as u8
        };
        let after = |history: usize, is_promotion: u32| {
            let history = history.max(1) as u32;
            last(history << 1 | is_promotion, (len_of(history) + 1).min(k))
        };
        let within = |history: usize| {
            let history = history.max(1) as u32;
            last(history, len_of(history).min(k))
        };
        Self {
            k,
            values: array::from_fn(value),
            after: [0, 1]
                .map(|is_promotion| array::from_fn(|history| after(history, is_promotion))),
            within: array::from_fn(within),
        }
    }

    /// A history from elsewhere, with no more moves than are remembered here.
    #[inline(always)]
    pub(super) fn within(&self, history: History) -> History {
        self.within[usize::from(history)]
    }

    /// The history after one more move.
    #[inline(always)]
    pub(super) fn push(&self, history: History, is_promotion: bool) -> History {
        self.after[usize::from(is_promotion)][usize::from(history) % HISTORIES]
    }

    /// The value in whole parts of 2^-(K-1).
    #[inline(always)]
    pub(super) fn value(&self, history: History) -> u32 {
        self.values[usize::from(history) % HISTORIES].into()
    }

    /// Number of possible values.
    pub(super) fn values(&self) -> u32 {
        2 * ((1 << self.k) - 1) + 1
    }

    /// The value as the specification writes it.
    pub(super) fn real(&self, history: History) -> f64 {
        f64::from(self.value(history)) / f64::from(1 << (self.k - 1))
    }
}

/// Blocks by value, and by recency among equals: a list for each value. With each block goes a
/// `T`. What stands for a block is up to the owner: its entry, or its row in a table.
pub(super) struct ByActivity<T = ()> {
    /// Front of each: used longest ago.
    lists: Lists<T>,
    /// A bit for every list that is not empty.
    filled: u64,
    len: u32,
}

impl<T: Copy + Default> ByActivity<T> {
    /// For values below `values`.
    pub(super) fn new(values: u32) -> Self {
        debug_assert!(values <= u64::BITS);
        Self { lists: Lists::new(values), filled: 0, len: 0 }
    }

    /// Makes blocks below `blocks` valid.
    pub(super) fn grow(&mut self, blocks: u32) {
        self.lists.grow(blocks);
    }

    /// Whether a block is here.
    #[inline]
    pub(super) fn contains(&self, block: u32) -> bool {
        self.lists.linked(block)
    }

    /// What goes with a block.
    #[inline]
    pub(super) fn data(&self, block: u32) -> T {
        self.lists.data(block)
    }

    /// What goes with a block, mutably.
    #[inline]
    pub(super) fn data_mut(&mut self, block: u32) -> &mut T {
        self.lists.data_mut(block)
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Puts a block in as the one used last of its value.
    #[inline]
    pub(super) fn push(&mut self, block: u32, value: u32) {
        self.lists.push_back(value, block);
        self.filled |= 1 << value;
        self.len += 1;
    }

    /// Takes a block out of the list of its value.
    #[inline]
    pub(super) fn remove(&mut self, block: u32, value: u32) {
        self.lists.remove(value, block);
        self.filled &= !(u64::from(self.lists.len(value) == 0) << value);
        self.len -= 1;
    }

    /// Makes a block the one used last of its value.
    #[inline]
    pub(super) fn renew(&mut self, block: u32, value: u32) {
        self.lists.move_to_back(value, block);
    }

    /// The smallest value.
    #[inline]
    pub(super) fn least(&self) -> Option<u32> {
        (self.filled != 0).then(|| self.filled.trailing_zeros())
    }

    /// The block of the smallest value that was used longest ago: the next victim.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        self.lists.front(self.least()?)
    }

    /// The blocks of a value, used last first.
    pub(super) fn newest_first(&self, value: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.lists.back(value), |&block| self.lists.prev(block))
    }

    /// Next victim first.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.lists.count()).flat_map(|value| self.lists.iter(value))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let lens = (0..self.lists.count()).map(|value| self.lists.len(value));
        let filled = lens.clone().rev().fold(0, |bits, len| bits << 1 | u64::from(len > 0));
        if (filled, lens.sum()) != (self.filled, self.len) {
            return Err("activity: marks or length do not agree with the lists".into());
        }
        self.lists.check()
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_STEPS, Steps};

    /// A history written out is a 1 and the moves, the newest last.
    #[test]
    fn histories_are_the_last_moves() {
        for k in 1..=MAX_STEPS as usize {
            let steps = Steps::new(k as u64);
            let last = |moves: &str| {
                let kept = &moves[moves.len().saturating_sub(k)..];
                u8::from_str_radix(&format!("1{kept}"), 2).unwrap()
            };
            for byte in 0..=u8::MAX {
                let within = steps.within(byte);
                assert_eq!(within, last(&format!("{:b}", byte.max(1))[1..]), "{k}, {byte:b}");
                let moves = format!("{within:b}");
                for (is_promotion, digit) in [(false, '0'), (true, '1')] {
                    let after = last(&format!("{}{digit}", &moves[1..]));
                    assert_eq!(steps.push(within, is_promotion), after, "{k}, {byte:b} {digit}");
                }
            }
        }
    }

    #[test]
    fn the_last_moves_count_most() {
        let steps = Steps::new(4);
        let mut history = 0;
        assert_eq!(steps.real(history), 0.0);
        for (is_promotion, value) in
            [(false, 1.0), (true, 2.5), (false, 2.25), (true, 3.125), (true, 3.5), (true, 3.625)]
        {
            history = steps.push(history, is_promotion);
            let real = steps.real(history);
            assert_eq!(real, value, "{history:b}");
        }
        assert!(steps.value(history) < steps.values());
    }
}

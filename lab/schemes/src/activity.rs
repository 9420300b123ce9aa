//! How active a block is, by its last K moves between levels: the K-step hint value of Hint-K (Wu
//! et al., 2010 and 2014), and a queue ordered by it.
//!
//! The papers do not give the formula. Ours: the most recent move counts 1 if it was a demotion and
//! 2 if it was a promotion; each older move counts half as much as the next newer one. Values are
//! stored in units of 2^-(K-1) and are below 2^(K+1).

use std::array;

use undercroft_policy::containers::lists::Lists;

/// Most moves that are remembered per block: the values then fit in the bits of a word.
pub(super) const MAX_STEPS: u64 = 5;

/// The last moves of a block, the most recent in the lowest bit: 1 for a promotion, 0 for a
/// demotion, with a leading 1 above them. 0 and 1 both stand for no move.
pub(super) type History = u8;

/// Number of histories: a history of [`MAX_STEPS`] moves has one bit more than that.
const HISTORIES: usize = 2 << MAX_STEPS;

/// Look-up tables for the value and the successors of every history.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    k: u32,
    /// The value of each history.
    values: [u8; HISTORIES],
    /// The history after one more move, a demotion or a promotion.
    after: [[History; HISTORIES]; 2],
    /// Each byte cut to a valid history.
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

    /// Cuts a history from elsewhere to the moves that are remembered here.
    #[inline(always)]
    pub(super) fn within(&self, history: History) -> History {
        self.within[usize::from(history)]
    }

    /// The history after one more move.
    #[inline(always)]
    pub(super) fn push(&self, history: History, is_promotion: bool) -> History {
        self.after[usize::from(is_promotion)][usize::from(history) % HISTORIES]
    }

    /// The value in units of 2^-(K-1).
    #[inline(always)]
    pub(super) fn value(&self, history: History) -> u32 {
        self.values[usize::from(history) % HISTORIES].into()
    }

    /// Number of possible values, 0 included.
    pub(super) fn values(&self) -> u32 {
        2 * ((1 << self.k) - 1) + 1
    }

    /// The value itself, a multiple of 2^-(K-1).
    pub(super) fn real(&self, history: History) -> f64 {
        f64::from(self.value(history)) / f64::from(1 << (self.k - 1))
    }
}

/// Blocks ordered by value, and by recency among equals: one list for each value. Each block has a
/// `T` attached. The owner chooses the number that stands for a block: its entry, or its row in a
/// table.
pub(super) struct ByActivity<T = ()> {
    /// One list for each value. Front: least recently used.
    lists: Lists<T>,
    /// A bit for every list that is not empty.
    filled: u64,
    len: u32,
}

impl<T: Copy + Default> ByActivity<T> {
    /// Creates empty lists for values below `values`.
    pub(super) fn new(values: u32) -> Self {
        debug_assert!(values <= u64::BITS);
        Self { lists: Lists::new(values), filled: 0, len: 0 }
    }

    /// Makes numbers below `blocks` valid.
    pub(super) fn grow(&mut self, blocks: u32) {
        self.lists.grow(blocks);
    }

    /// Whether a block is in a list.
    #[inline]
    pub(super) fn contains(&self, block: u32) -> bool {
        self.lists.linked(block)
    }

    /// The `T` attached to a block.
    #[inline]
    pub(super) fn data(&self, block: u32) -> T {
        self.lists.data(block)
    }

    /// Mutable access to the `T` attached to a block.
    #[inline]
    pub(super) fn data_mut(&mut self, block: u32) -> &mut T {
        self.lists.data_mut(block)
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Inserts a block as the most recently used one of its value.
    #[inline]
    pub(super) fn push(&mut self, block: u32, value: u32) {
        self.lists.push_back(value, block);
        self.filled |= 1 << value;
        self.len += 1;
    }

    /// Removes a block from the list of its value.
    #[inline]
    pub(super) fn remove(&mut self, block: u32, value: u32) {
        self.lists.remove(value, block);
        self.filled &= !(u64::from(self.lists.len(value) == 0) << value);
        self.len -= 1;
    }

    /// Makes a block the most recently used one of its value.
    #[inline]
    pub(super) fn renew(&mut self, block: u32, value: u32) {
        self.lists.move_to_back(value, block);
    }

    /// The smallest value of any block.
    #[inline]
    pub(super) fn least(&self) -> Option<u32> {
        (self.filled != 0).then(|| self.filled.trailing_zeros())
    }

    /// The next victim: the least recently used block of the smallest value.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        self.lists.front(self.least()?)
    }

    /// The blocks of a value, most recently used first.
    pub(super) fn newest_first(&self, value: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.lists.back(value), |&block| self.lists.prev(block))
    }

    /// All blocks, the next victim first.
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

//! How active a block is, by its last K moves between levels: the K-step hint value of Hint-K (Wu
//! et al., 2010 and 2014), and a queue ordered by it.
//!
//! The papers' formula could not be had. Ours: the most recent move counts 1 if it was a demotion
//! and 2 if it was a promotion, and each move before it half as much as the same move after it.
//! Values are kept in whole parts of 2^-(K-1), of which there are less than 2^(K+1).

use std::array;

use super::records::{Block, Blocks, BlocksAtHand};
use crate::Entry;

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

/// Blocks by value, and by recency among equals: a list a value.
pub(super) struct ByActivity {
    steps: Steps,
    /// The list of value 0; the others follow. Front of each: used longest ago.
    first: u32,
    /// A bit for every list that is not empty.
    filled: u64,
    len: u32,
}

impl ByActivity {
    /// In the lists from `first` on, one a value.
    pub(super) fn new(first: u32, steps: &Steps) -> Self {
        Self { steps: steps.clone(), first, filled: 0, len: 0 }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// What a block stands by.
    #[inline(always)]
    pub(super) fn value(&self, block: &Block) -> u32 {
        self.steps.value(block.history)
    }

    /// Puts a block in as the one used last of its value.
    #[inline(always)]
    pub(super) fn push(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) {
        let value = self.value(blocks.get(entry));
        blocks.push_back(self.first + value, entry);
        self.filled |= 1 << value;
        self.len += 1;
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) {
        let value = self.value(blocks.get(entry));
        blocks.remove(entry);
        let is_empty = blocks.is_empty(self.first + value);
        self.filled &= !(u64::from(is_empty) << value);
        self.len -= 1;
    }

    /// Makes a block the one used last of its value.
    #[inline(always)]
    pub(super) fn renew(&mut self, blocks: &mut BlocksAtHand<'_>, entry: Entry) {
        blocks.remove(entry);
        blocks.push_back(self.first + self.value(blocks.get(entry)), entry);
    }

    /// The smallest value.
    #[inline(always)]
    pub(super) fn least(&self) -> Option<u32> {
        (self.filled != 0).then(|| self.filled.trailing_zeros())
    }

    /// The block of the smallest value that was used longest ago.
    #[inline(always)]
    pub(super) fn victim(&self, blocks: &BlocksAtHand<'_>) -> Option<Entry> {
        blocks.front(self.first + self.least()?)
    }

    /// Its lists, by rising value.
    pub(super) fn lists(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + use<> {
        self.first..self.first + self.steps.values()
    }

    /// Next victim first.
    pub(super) fn iter<'a>(&self, blocks: &'a Blocks) -> impl Iterator<Item = Entry> + use<'a> {
        self.lists().flat_map(|list| blocks.iter(list))
    }

    pub(super) fn check(&self, blocks: &Blocks) -> Result<(), String> {
        let holds = |&list: &u32| !blocks.is_empty(list);
        let filled = self.lists().filter(holds).fold(0, |f, list| f | 1 << (list - self.first));
        let len = self.lists().map(|list| blocks.iter(list).count() as u32).sum::<u32>();
        if (filled, len) != (self.filled, self.len) {
            return Err("activity: marks or length do not agree with the lists".into());
        }
        Ok(())
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

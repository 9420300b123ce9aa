//! How active a block is, by its last K moves between levels: the K-step hint value of Hint-K (Wu
//! et al., 2010 and 2014), and a queue ordered by it.
//!
//! The papers' formula could not be had. Ours: the most recent move counts 1 if it was a demotion
//! and 2 if it was a promotion, and each move before it half as much as the same move after it.
//! Values are kept in whole parts of 2^-(K-1), of which there are less than 2^(K+1).

use crate::Entry;
use crate::lists::Lists;

/// Most moves that can be remembered: the values then fit in the bits of a word.
pub(super) const MAX_STEPS: u64 = 5;

/// The last moves of a block: bits from the most recent up, 1 for a promotion, under a leading 1.
/// 0 stands for no move, as 1 does.
pub(super) type History = u8;

/// What the moves of a block come to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    k: u32,
}

impl Steps {
    pub(super) fn new(k: u64) -> Self {
        debug_assert!((1..=MAX_STEPS).contains(&k));
        Self { k: k as u32 }
    }

    /// A history from elsewhere, with no more moves than are remembered here.
    pub(super) fn within(self, history: History) -> History {
        let history = u32::from(history.max(1));
        let len = (31 - history.leading_zeros()).min(self.k);
        (history & ((1 << len) - 1) | 1 << len) as History
    }

    /// The history after one more move.
    pub(super) fn push(self, history: History, is_promotion: bool) -> History {
        let history = u32::from(history.max(1));
        let len = 31 - history.leading_zeros();
        // The newest move is the lowest bit; the oldest falls off above.
        let bits = (history - (1 << len)) << 1 | u32::from(is_promotion);
        let len = (len + 1).min(self.k);
        (bits & ((1 << len) - 1) | 1 << len) as History
    }

    /// The value in whole parts of 2^-(K-1).
    pub(super) fn value(self, history: History) -> u32 {
        let history = u32::from(history.max(1));
        let len = 31 - history.leading_zeros();
        (0..len).map(|j| (1 + (history >> j & 1)) << (self.k - 1 - j)).sum()
    }

    /// Number of possible values.
    pub(super) fn values(self) -> u32 {
        2 * ((1 << self.k) - 1) + 1
    }

    /// The value as the specification writes it.
    pub(super) fn real(self, history: History) -> f64 {
        f64::from(self.value(history)) / f64::from(1 << (self.k - 1))
    }
}

/// Blocks by value, and by recency among equals: a list a value.
pub(super) struct ByActivity {
    /// Front of each: used longest ago.
    lists: Lists,
    /// A bit for every list that is not empty.
    filled: u64,
    len: u32,
}

impl ByActivity {
    pub(super) fn new(steps: Steps) -> Self {
        Self { lists: Lists::new(steps.values()), filled: 0, len: 0 }
    }

    pub(super) fn grow(&mut self, entries: u32) {
        self.lists.grow(entries);
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn contains(&self, entry: Entry) -> bool {
        self.lists.linked(entry)
    }

    /// Puts a block of a value in as the one used last.
    pub(super) fn push(&mut self, entry: Entry, value: u32) {
        self.lists.push_back(value, entry);
        self.filled |= 1 << value;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, entry: Entry, value: u32) {
        self.lists.remove(value, entry);
        if self.lists.len(value) == 0 {
            self.filled &= !(1 << value);
        }
        self.len -= 1;
    }

    /// Makes a block of a value the one used last.
    pub(super) fn renew(&mut self, entry: Entry, value: u32) {
        self.lists.move_to_back(value, entry);
    }

    /// The smallest value.
    pub(super) fn least(&self) -> Option<u32> {
        (self.filled != 0).then(|| self.filled.trailing_zeros())
    }

    /// The block of the smallest value that was used longest ago.
    pub(super) fn victim(&self) -> Option<Entry> {
        self.lists.front(self.least()?)
    }

    /// Next victim first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.lists.count()).flat_map(|value| self.lists.iter(value))
    }

    /// Next victim last.
    pub(super) fn iter_back(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.lists.count()).rev().flat_map(|value| self.lists.iter_back(value))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let filled =
            (0..self.lists.count()).filter(|&v| self.lists.len(v) > 0).fold(0, |f, v| f | 1 << v);
        let len: u32 = (0..self.lists.count()).map(|v| self.lists.len(v)).sum();
        if (filled, len) != (self.filled, self.len) {
            return Err("activity: marks or length do not agree with the lists".into());
        }
        self.lists.check()
    }
}

#[cfg(test)]
mod tests {
    use super::Steps;

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

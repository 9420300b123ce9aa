//! Counts of the last epochs. An epoch is a part of a turnover of the cache; the oldest one is
//! dropped when a new one begins.

use std::collections::VecDeque;
use std::iter::Sum;
use std::ops::Range;

use crate::GROUPS;
use crate::sample::DEPTHS;

/// Epochs that are kept: two turnovers of the cache, if it misses at all.
pub(crate) const EPOCHS: usize = 8;

/// Epochs in a turnover.
pub(crate) const IN_TURNOVER: u32 = 4;

/// Where a block is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The group of the block.
    pub(crate) group: u8,
    /// The number of the narrowest sample that the block is in.
    pub(crate) depth: u8,
}

/// Counts of an epoch, by depth and group.
type Counts = [[u32; GROUPS]; DEPTHS];

/// Counts of the epochs that are kept.
pub(crate) type Window = Totals<Counts>;

impl Window {
    /// Counts something about a block.
    #[inline]
    pub(crate) fn count(&mut self, Place { group, depth }: Place) {
        self.now[usize::from(depth)][usize::from(group)] += 1;
    }

    /// Forgets everything, the present epoch too.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The sums by group over some epochs, the last complete one being number 0, of the blocks in
    /// the sample number `depth`.
    pub(crate) fn by_group(&self, epochs: Range<usize>, depth: u8) -> [i64; GROUPS] {
        let mut sum = [0; GROUPS];
        let (from, to) = (epochs.start.min(self.epochs()), epochs.end.min(self.epochs()));
        for counts in self.epochs.range(from..to).flat_map(|epoch| &epoch[usize::from(depth)..]) {
            sum.iter_mut().zip(counts).for_each(|(sum, &count)| *sum += i64::from(count));
        }
        sum
    }
}

/// What was counted in each epoch that is kept, the last one first; of all blocks a number, as of
/// their reads.
#[derive(Debug, Default)]
pub(crate) struct Totals<T = u64> {
    epochs: VecDeque<T>,
    pub(crate) now: T,
}

impl<T: Default> Totals<T> {
    /// Ends the epoch.
    pub(crate) fn end_epoch(&mut self) {
        self.epochs.truncate(EPOCHS - 1);
        self.epochs.push_front(std::mem::take(&mut self.now));
    }

    /// Drops all epochs but the last `kept`.
    pub(crate) fn keep(&mut self, kept: usize) {
        self.epochs.truncate(kept);
    }

    /// Number of complete epochs.
    pub(crate) fn epochs(&self) -> usize {
        self.epochs.len()
    }
}

impl<T: Copy + Default + Sum> Totals<T> {
    /// The sum of the epochs `from..to`, the last complete one being number 0.
    pub(crate) fn sum(&self, from: usize, to: usize) -> T {
        self.epochs.range(from.min(self.epochs())..to.min(self.epochs())).copied().sum()
    }
}

impl Totals<f64> {
    /// Makes what was counted in the last complete epoch unknown, and what is counted in the
    /// present one: not a number.
    pub(crate) fn void_last(&mut self) {
        self.epochs.iter_mut().take(1).for_each(|count| *count = f64::NAN);
        self.now = f64::NAN;
    }

    /// Makes what was counted so far unknown: not a number.
    pub(crate) fn void(&mut self) {
        self.epochs.iter_mut().for_each(|count| *count = f64::NAN);
        self.now = f64::NAN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_epochs_count() {
        let mut window = Window::default();
        let place = |depth| Place { group: 3, depth };
        for epoch in 0..10_u8 {
            (0..=epoch).for_each(|_| window.count(place(epoch % 3)));
            window.end_epoch();
        }
        window.count(place(0));
        assert_eq!(window.epochs(), EPOCHS);
        assert_eq!(window.by_group(0..1, 0)[3], 10);
        assert_eq!(window.by_group(0..9, 0)[3], (3..=10).sum::<i64>());
        assert_eq!(window.by_group(6..8, 0)[3], 3 + 4);
        assert_eq!(window.by_group(0..9, 2)[3], 3 + 6 + 9, "of the narrowest sample only");
        window.keep(2);
        assert_eq!(window.by_group(0..8, 0)[3], 19);
        window.clear();
        window.end_epoch();
        assert_eq!(window.by_group(0..8, 0), [0; GROUPS]);
    }
}

//! Counts of the last epochs. An epoch is a part of a turnover of the cache; the oldest one is
//! dropped when a new one begins.

use std::collections::VecDeque;

use crate::GROUPS;

/// Epochs that are kept: two turnovers of the cache, if it misses at all.
pub(crate) const EPOCHS: usize = 8;

/// Epochs in a turnover.
pub(crate) const IN_TURNOVER: u32 = 4;

/// Counts by group of the epochs that are kept, the last one first.
#[derive(Debug, Default)]
pub(crate) struct Window {
    epochs: VecDeque<[u32; GROUPS]>,
    now: [u32; GROUPS],
}

impl Window {
    /// Counts something about a block of a group.
    #[inline]
    pub(crate) fn count(&mut self, group: u8) {
        self.now[usize::from(group)] += 1;
    }

    /// Ends the epoch.
    pub(crate) fn end_epoch(&mut self) {
        self.epochs.truncate(EPOCHS - 1);
        self.epochs.push_front(std::mem::replace(&mut self.now, [0; GROUPS]));
    }

    /// Drops all epochs but the last `kept`.
    pub(crate) fn keep(&mut self, kept: usize) {
        self.epochs.truncate(kept);
    }

    /// Forgets everything, the present epoch too.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Number of complete epochs.
    pub(crate) fn epochs(&self) -> usize {
        self.epochs.len()
    }

    /// The sum of the epochs `from..to`, the last complete one being number 0.
    pub(crate) fn sum(&self, from: usize, to: usize) -> [i64; GROUPS] {
        let mut sum = [0; GROUPS];
        for epoch in self.epochs.range(from.min(self.epochs())..to.min(self.epochs())) {
            sum.iter_mut().zip(epoch).for_each(|(sum, &count)| *sum += i64::from(count));
        }
        sum
    }
}

/// The reads of all blocks in each epoch that is kept, the last one first.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    epochs: VecDeque<u64>,
    pub(crate) now: u64,
}

impl Reads {
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

    /// The reads of the epochs `from..to`, the last complete one being number 0.
    pub(crate) fn sum(&self, from: usize, to: usize) -> u64 {
        self.epochs.range(from.min(self.epochs())..to.min(self.epochs())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_epochs_count() {
        let mut window = Window::default();
        for epoch in 0..10_u8 {
            (0..=epoch).for_each(|_| window.count(3));
            window.end_epoch();
        }
        window.count(3);
        assert_eq!(window.epochs(), EPOCHS);
        assert_eq!(window.sum(0, 1)[3], 10);
        assert_eq!(window.sum(0, 9)[3], (3..=10).sum::<i64>());
        assert_eq!(window.sum(6, 8)[3], 3 + 4);
        window.keep(2);
        assert_eq!(window.sum(0, 8)[3], 19);
        window.clear();
        window.end_epoch();
        assert_eq!(window.sum(0, 8), [0; GROUPS]);
    }
}

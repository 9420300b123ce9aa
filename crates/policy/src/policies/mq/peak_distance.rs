//! The estimate of MQ's lifeTime. The paper gives the aim; the method is ours.

use crate::containers::period::Period;
use crate::snapshot::{CLOCK_MAX, Snapshot, SnapshotError};

/// Estimates lifeTime: the temporal distance, larger than the cache, that most recent references
/// have. Distances are counted in bins up to powers of two; `Q_out` shows the distances for which
/// the cache is too small. From time to time the fullest bin is read, and all bins are halved, so
/// that the past fades.
#[derive(Clone)]
pub(super) struct PeakDistance {
    /// `bins[k]`: distances above `2^(k-1)`, up to `2^k`.
    bins: [u64; 65],
    pub(super) period: Period,
}

impl PeakDistance {
    pub(super) fn new(capacity: u32) -> Self {
        Self { bins: [0; 65], period: Self::period(capacity, 0) }
    }

    /// Time between reviews: long enough to see distances of the size of the cache, with a minimum
    /// for tiny caches.
    fn period(capacity: u32, now: u64) -> Period {
        Period::new(u64::from(capacity.max(16)), now)
    }

    /// Adopts another capacity from `now` on.
    pub(super) fn resize(&mut self, capacity: u32, now: u64) {
        self.period = Self::period(capacity, now);
    }

    /// Notes that a block was referenced again after `distance` references. `counts`: the distance
    /// is larger than the cache; smaller ones are no reason for a longer lifeTime.
    #[inline(always)]
    pub(super) fn observe(&mut self, distance: u64, counts: bool) {
        // Branch-free, since the condition is unpredictable.
        let bin = (u64::BITS - distance.saturating_sub(1).leading_zeros()) as usize;
        self.bins[bin] += u64::from(counts);
    }

    /// The new lifeTime, if it is time for a review and any distance was seen.
    #[inline(always)]
    pub(super) fn review(&mut self, now: u64) -> Option<u64> {
        if self.period.ends(now) { self.peak() } else { None }
    }

    #[cold]
    fn peak(&mut self) -> Option<u64> {
        // Of equal bins the smaller: in reverse order it is the last maximum.
        let (bin, _) = self.filled().rev().max_by_key(|&(_, count)| count)?;
        self.bins.iter_mut().for_each(|count| *count /= 2);
        Some(1 << bin)
    }

    /// Saves or loads the bins; the period follows from capacity and time.
    pub(super) fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        let far = CLOCK_MAX.ilog2() as usize;
        let mut bins = self.bins.iter_mut().enumerate();
        bins.try_for_each(|(bin, count)| {
            snapshot.number(count, 0..=if bin <= far { CLOCK_MAX } else { 0 })
        })
    }

    pub(super) fn filled(&self) -> impl DoubleEndedIterator<Item = (usize, u64)> + '_ {
        self.bins.iter().copied().enumerate().filter(|&(_, count)| count > 0)
    }
}

//! The free ranges of the device for the level on flash, of which volumes have theirs for as long
//! as they are open.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::lock::sleep_lock;

/// The free ranges, ascending; no two of them touch.
pub(super) struct Regions(Mutex<Vec<Range<u64>>>);

/// A range that is somebody's; dropping it gives it back.
pub(super) struct Region {
    of: Arc<Regions>,
    pub(super) range: Range<u64>,
}

impl Regions {
    pub(super) fn new(all: Range<u64>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(vec![all])))
    }

    /// The first `bytes` bytes in a row that are free, from a multiple of `alignment` on; outside
    /// these ranges if that is possible.
    pub(super) fn take(
        self: &Arc<Self>,
        bytes: u64,
        alignment: u64,
        spared: &[Range<u64>],
    ) -> Option<Region> {
        let free = sleep_lock(&self.0).clone();
        let fits = |range: &Range<u64>| {
            let first = range.start.next_multiple_of(alignment);
            first.checked_add(bytes).filter(|&end| end <= range.end).map(|end| first..end)
        };
        let without = |free: Vec<Range<u64>>, spared: &Range<u64>| {
            let parts = |one: Range<u64>| {
                let before = one.start..one.end.min(spared.start).max(one.start);
                let after = one.start.max(spared.end).min(one.end)..one.end;
                [before, after]
            };
            free.into_iter().flat_map(parts).collect()
        };
        let rest = spared.iter().fold(free.clone(), without);
        let range = rest.iter().find_map(fits).or_else(|| free.iter().find_map(fits))?;
        self.take_these(&range)
    }

    /// These bytes, if they are free.
    pub(super) fn take_these(self: &Arc<Self>, range: &Range<u64>) -> Option<Region> {
        let (mut free, range) = (sleep_lock(&self.0), range.clone());
        let has = |whole: &Range<u64>| whole.start <= range.start && range.end <= whole.end;
        let at = free.iter().position(has)?;
        let whole = free[at].clone();
        let rests = [whole.start..range.start, range.end..whole.end];
        free.splice(at..=at, rests.into_iter().filter(|rest| !rest.is_empty()));
        Some(Region { of: Arc::clone(self), range })
    }

    /// Bytes of the largest free range, if this one were free, too.
    pub(super) fn largest_with(&self, one: Range<u64>) -> u64 {
        let mut all = sleep_lock(&self.0).clone();
        all.push(one);
        all.sort_unstable_by_key(|range| range.start);
        let (mut largest, mut now) = (0, 0..0);
        for range in all {
            now = if now.end == range.start { now.start..range.end } else { range };
            largest = largest.max(now.end - now.start);
        }
        largest
    }

    /// Bytes that are free.
    pub(super) fn bytes(&self) -> u64 {
        sleep_lock(&self.0).iter().map(|range| range.end - range.start).sum()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let mut free = sleep_lock(&self.of.0);
        free.push(self.range.clone());
        free.sort_unstable_by_key(|range| range.start);
        free.dedup_by(|next, one| {
            let touches = one.end == next.start;
            if touches {
                one.end = next.end;
            }
            touches
        });
    }
}

#[cfg(test)]
mod tests {
    use undercroft_random::{SplitMix64, testing::seed};

    use super::*;

    #[test]
    fn what_is_given_back_is_given_out_again_and_nothing_twice() {
        let mut random = SplitMix64::new(seed());
        let all = Regions::new(64..1024);
        let mut taken: Vec<Region> = Vec::new();
        for _ in 0..2000 {
            if random.one_in(2) && !taken.is_empty() {
                taken.swap_remove(random.below(taken.len() as u64) as usize);
            } else if let Some(region) = all.take(1 + random.below(200), 1 << random.below(6), &[])
            {
                let Range { start, end } = region.range;
                assert!(start >= 64 && end <= 1024);
                let overlaps = |other: &Region| other.range.start < end && start < other.range.end;
                assert!(!taken.iter().any(overlaps), "{start}..{end}");
                taken.push(region);
            }
            let used: u64 = taken.iter().map(|one| one.range.end - one.range.start).sum();
            assert_eq!(all.bytes() + used, 960);
        }
        taken.clear();
        assert_eq!(all.0.lock().unwrap().as_slice(), std::slice::from_ref(&(64..1024)));
        assert!(all.take(961, 1, &[]).is_none() && all.take(u64::MAX, 1, &[]).is_none());
        let spared = [64..200, 300..400];
        let ranges = [50, 101, 700].map(|bytes| all.take(bytes, 1, &spared).unwrap().range.clone());
        assert_eq!(ranges, [200..250, 400..501, 64..764], "each was given back at once");
        assert!(all.take_these(&(64..1024)).is_some() && all.take_these(&(63..70)).is_none());
        let [low, mid, high] = [64..200, 200..300, 300..1024].map(|one| all.take_these(&one));
        drop((low, high));
        assert_eq!([all.largest_with(0..0), all.largest_with(200..300)], [724, 960]);
        drop(mid);
    }
}

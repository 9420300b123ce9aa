//! Ranges of blocks whose copies on flash count no more, and whose slots are not free yet: a range
//! may have more blocks than there are slots, and there may be too many slots to look at at once.

use std::ops::RangeInclusive;

use crate::directory::{Directory, Slot};

/// Slots that are looked at in a step, or blocks that are looked for.
const SLOTS: u64 = 1024;
const BLOCKS: u64 = 32;

/// Most ranges; beyond it two become one.
const RANGES_MAX: usize = 16;

/// The ranges, in the order in which they are swept.
#[derive(Default)]
pub(crate) struct Voids(Vec<Void>);

/// A range, and how many of its blocks have been looked for, or of the slots looked at.
struct Void {
    blocks: RangeInclusive<u64>,
    done: u64,
}

impl Voids {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a range. A copy that is made while it is here counts no more either.
    pub(crate) fn add(&mut self, blocks: RangeInclusive<u64>) {
        if self.0.len() < RANGES_MAX {
            self.0.push(Void { blocks, done: 0 });
        } else if let Some(last) = self.0.last_mut() {
            let (start, end) = (last.blocks.start(), last.blocks.end());
            let blocks = *start.min(blocks.start())..=*end.max(blocks.end());
            *last = Void { blocks, done: 0 };
        }
    }

    pub(crate) fn contains(&self, block: u64) -> bool {
        self.overlaps(&(block..=block))
    }

    /// Whether a block of this range is in one of them.
    pub(crate) fn overlaps(&self, range: &RangeInclusive<u64>) -> bool {
        let overlaps = |Void { blocks, .. }: &Void| {
            blocks.start() <= range.end() && range.start() <= blocks.end()
        };
        self.0.iter().any(overlaps)
    }

    /// Empties some slots of the first range: its blocks are looked for, or all slots looked at,
    /// whichever is less work. Returns how many.
    pub(crate) fn sweep(&mut self, directory: &mut impl Directory) -> u64 {
        let Some(Void { blocks, done }) = self.0.first_mut() else { return 0 };
        let (start, slots) = (*blocks.start(), u64::from(directory.capacity()));
        // Those that can lie on flash.
        let count = blocks.end().saturating_add(1).min(directory.limit()).saturating_sub(start);
        let is_short = count.saturating_mul(SLOTS / BLOCKS) < slots;
        let (all, step) = if is_short { (count, BLOCKS) } else { (slots, SLOTS) };
        let to = (*done + step).min(all);
        let mut emptied = 0;
        for at in *done..to {
            let slot = if is_short {
                directory.find(start + at)
            } else {
                let block = directory.block_in(at as Slot);
                block.filter(|block| blocks.contains(block)).map(|_| at as Slot)
            };
            if let Some(slot) = slot {
                directory.empty(slot);
                emptied += 1;
            }
        }
        *done = to;
        if to == all {
            self.0.remove(0);
        }
        emptied
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::{BLOCKS, RANGES_MAX, SLOTS, Voids};
    use crate::{Directory, Evidence, Slots};

    /// Slots with blocks 0, 3, 6 and so on, swept to the end: what is left, and the steps.
    fn swept(ranges: &[RangeInclusive<u64>]) -> (Vec<u64>, u64) {
        let mut slots = Slots::new(4096, 1);
        for block in (0..6000).step_by(3) {
            slots.place(block, Evidence::Hit);
        }
        let before = slots.count();
        let mut voids = Voids::default();
        ranges.iter().for_each(|range| voids.add(range.clone()));
        let (mut steps, mut emptied) = (0, 0);
        while !voids.is_empty() {
            emptied += voids.sweep(&mut slots);
            steps += 1;
        }
        assert_eq!(voids.sweep(&mut slots), 0);
        assert_eq!(u64::from(before - slots.count()), emptied);
        let left = (0..6000).filter(|&block| slots.find(block).is_some()).collect();
        (left, steps)
    }

    fn without(ranges: &[RangeInclusive<u64>]) -> Vec<u64> {
        let is_left = |block: &u64| !ranges.iter().any(|range| range.contains(block));
        (0..6000).step_by(3).filter(is_left).collect()
    }

    /// A range is swept by whichever way is shorter, and either leaves the same.
    #[test]
    fn a_range_is_swept_block_by_block_or_slot_by_slot() {
        let all = 4096_u64.div_ceil(SLOTS);
        for (range, steps) in [
            (100..=100, 1),
            (100..=100 + BLOCKS, 2),
            (0..=126, 4),
            (0..=127, all),
            (1000..=4999, all),
            (0..=u64::MAX, all),
            (5000..=u64::MAX, all),
            (u64::MAX - 3..=u64::MAX, 1),
        ] {
            let ranges = [range];
            assert_eq!(swept(&ranges), (without(&ranges), steps), "{ranges:?}");
        }
    }

    /// Beyond so many ranges the last one grows over all that are added.
    #[test]
    fn ranges_are_merged() {
        let mut ranges: Vec<_> = (0..20).map(|n| 200 * n..=200 * n + 50).collect();
        let (left, _) = swept(&ranges);
        let last = RANGES_MAX as u64 - 1;
        ranges.truncate(RANGES_MAX);
        ranges.push(200 * last..=200 * 19 + 50);
        assert_eq!(left, without(&ranges));
        let mut voids = Voids::default();
        ranges.iter().for_each(|range| voids.add(range.clone()));
        assert!(voids.contains(50) && !voids.contains(51) && voids.overlaps(&(51..=200)));
        assert!(!voids.overlaps(&(51..=199)) && voids.overlaps(&(0..=u64::MAX)));
    }
}

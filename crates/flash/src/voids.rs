//! Ranges of blocks whose copies on flash count no more, and whose slots are not free yet: a range
//! may have more blocks than there are slots, and there may be too many slots to look at at once.

use std::ops::RangeInclusive;

use crate::directory::{Directory, Slot};

/// Slots that are looked at in a step.
const STEP: u32 = 256;

/// Most ranges; beyond it two become one.
const RANGES_MAX: usize = 16;

/// The ranges, each with the slot from which on it has not been looked for.
#[derive(Default)]
pub(crate) struct Voids(Vec<(RangeInclusive<u64>, Slot)>);

impl Voids {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a range. A copy that is made while it is here counts no more either.
    pub(crate) fn add(&mut self, blocks: RangeInclusive<u64>) {
        if self.0.len() < RANGES_MAX {
            self.0.push((blocks, 0));
        } else if let Some((last, from)) = self.0.last_mut() {
            *last = *last.start().min(blocks.start())..=*last.end().max(blocks.end());
            *from = 0;
        }
    }

    pub(crate) fn contains(&self, block: u64) -> bool {
        self.0.iter().any(|(blocks, _)| blocks.contains(&block))
    }

    /// Empties some slots of the first range. Returns how many.
    pub(crate) fn sweep(&mut self, directory: &mut impl Directory) -> u64 {
        let Some((blocks, from)) = self.0.first_mut() else { return 0 };
        let (first, to) = (*from, from.saturating_add(STEP).min(directory.capacity()));
        let mut emptied = 0;
        for slot in first..to {
            if directory.block_in(slot).is_some_and(|block| blocks.contains(&block)) {
                directory.empty(slot);
                emptied += 1;
            }
        }
        *from = to;
        if to == directory.capacity() {
            self.0.remove(0);
        }
        emptied
    }
}

//! OPT stack depths (Mattson et al. 1970), without walking the stack.
//!
//! On a reference the block goes on top and the former top sinks: at each place it meets a block,
//! and the one whose next use is farther goes on sinking, as far as the place that the referenced
//! block left. So the sinking block changes only where a block's next use is farther than all
//! before it, and those places are found by a tree of maxima over the stack: a reference costs
//! O(changes * log(stack)) where the walk costs O(stack).

use undercroft_cache::Reference;
use undercroft_cache::policy::{Future, SpecError};

use super::Curve;

/// The curve of OPT (demand caching, no bypass) over a whole trace.
///
/// # Errors
/// The trace has more references than [`Future`] can hold.
pub fn opt_curve(refs: &[Reference]) -> Result<Curve, SpecError> {
    let future = Future::new(refs.iter().map(|r| r.entry()).collect())?;
    let entries = refs.iter().map(|r| r.entry() as usize + 1).max().unwrap_or(0);
    let mut stack = Stack::new(entries);
    let mut curve = Curve::default();
    for (now, reference) in refs.iter().enumerate() {
        // Farther is larger; of blocks never used again, the one used longest ago is farthest.
        let key = future.next_use(now).map_or(u32::MAX - now as u32, |next| next as u32);
        let depth = stack.reference(reference.entry(), key);
        curve.count(depth, reference.is_write());
    }
    Ok(curve)
}

const NOWHERE: u32 = u32::MAX;

/// The stack, top at place 0.
struct Stack {
    /// Block at each place.
    blocks: Vec<u32>,
    /// Place of each block.
    places: Vec<u32>,
    /// `maxima[leaves + place]` is the key of the block there, `maxima[node]` the largest key below
    /// the node; 0 where there is nothing.
    maxima: Vec<u32>,
    leaves: usize,
}

impl Stack {
    fn new(entries: usize) -> Self {
        let leaves = entries.next_power_of_two();
        Self {
            blocks: Vec::with_capacity(entries),
            places: vec![NOWHERE; entries],
            maxima: vec![0; 2 * leaves],
            leaves,
        }
    }

    /// Puts a block with its new key on top; its former depth, 1 for the top.
    fn reference(&mut self, block: u32, key: u32) -> Option<u32> {
        let former = self.places[block as usize];
        let end = if former == NOWHERE { self.blocks.len() as u32 } else { former };
        if former == NOWHERE {
            self.blocks.push(block);
        }
        let (mut sinking, mut sinking_key) = (block, key);
        let mut place = 0;
        // The top always gives way; below it only a farther block does, before the vacated place.
        while place < end {
            let found = self.blocks[place as usize];
            let found_key = self.maxima[self.leaves + place as usize];
            self.put(place, sinking, sinking_key);
            (sinking, sinking_key) = (found, found_key);
            place = self.next_above(place + 1, end, sinking_key);
        }
        self.put(end, sinking, sinking_key);
        (former != NOWHERE).then(|| former + 1)
    }

    fn put(&mut self, place: u32, block: u32, key: u32) {
        self.blocks[place as usize] = block;
        self.places[block as usize] = place;
        let mut node = self.leaves + place as usize;
        self.maxima[node] = key;
        while node > 1 {
            node /= 2;
            let max = self.maxima[2 * node].max(self.maxima[2 * node + 1]);
            if self.maxima[node] == max {
                return;
            }
            self.maxima[node] = max;
        }
    }

    /// The first place in `from..end` whose key is above `key`, or `end`.
    fn next_above(&self, from: u32, end: u32, key: u32) -> u32 {
        if from >= end {
            return end;
        }
        let mut node = self.leaves + from as usize;
        // Up, until a subtree that starts at or after `from` holds a larger key.
        while self.maxima[node] <= key {
            while node % 2 == 1 {
                node /= 2;
                if node <= 1 {
                    return end;
                }
            }
            node += 1;
        }
        while node < self.leaves {
            node *= 2;
            if self.maxima[node] <= key {
                node += 1;
            }
        }
        ((node - self.leaves) as u32).min(end)
    }
}

//! A bounded number of blocks in order of their last use, each with a value: a hashed index over an
//! arena. Memory grows up to the bound.
//!
//! Invariants (checked by [`BoundedLruMap::check`]): the index and the order hold the same slots,
//! at most `max`; every other slot is free.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;

use undercroft_policy::containers::lists::Lists;

const ORDER: u32 = 0;

/// A bounded map from blocks to `T` that drops the least recently used block.
pub(crate) struct BoundedLruMap<T> {
    index: HashTable<u32>,
    slots: Vec<(u64, T)>,
    free: Vec<u32>,
    /// Front: least recently used.
    order: Lists,
    hasher: FixedState,
    max: u32,
}

impl<T: Copy + Default> BoundedLruMap<T> {
    /// An empty map for at most `max` blocks; with 0 it stays empty.
    pub(crate) fn new(max: u32, seed: u64) -> Self {
        Self {
            index: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            order: Lists::new(1),
            hasher: FixedState::with_seed(seed),
            max,
        }
    }

    /// An empty map that has taken memory for `max` blocks, so that no array is larger than it must
    /// be.
    pub(crate) fn with_room(max: u32, seed: u64) -> Self {
        // One comes before another goes.
        let slots = max as usize + 1;
        let mut map = Self::new(max, seed);
        map.index = HashTable::with_capacity(slots);
        map.slots = Vec::with_capacity(slots);
        map.order.reserve(max + 1);
        map
    }

    /// Number of blocks held.
    pub(crate) fn len(&self) -> u32 {
        self.order.len(ORDER)
    }

    /// Most blocks held.
    pub(crate) fn max(&self) -> u32 {
        self.max
    }

    fn find(&self, block: u64) -> Option<u32> {
        let hash = self.hasher.hash_one(block);
        self.index.find(hash, |&slot| self.slots[slot as usize].0 == block).copied()
    }

    /// The value of `block`; this does not count as a use.
    pub(crate) fn get(&self, block: u64) -> Option<T> {
        self.find(block).map(|slot| self.slots[slot as usize].1)
    }

    /// Makes a block the most recently used; a new block gets the default value. Returns mutable
    /// access to the value; `None` if `max` is 0.
    pub(crate) fn touch(&mut self, block: u64) -> Option<&mut T> {
        if self.max == 0 {
            return None;
        }
        let hash = self.hasher.hash_one(block);
        let (slots, hasher) = (&mut self.slots, &self.hasher);
        let place = self.index.entry(
            hash,
            |&slot| slots[slot as usize].0 == block,
            |&slot| hasher.hash_one(slots[slot as usize].0),
        );
        let slot = match place {
            Place::Occupied(known) => {
                let slot = *known.get();
                self.order.move_to_back(ORDER, slot);
                slot
            }
            Place::Vacant(vacant) => {
                let slot = self.free.pop().unwrap_or(slots.len() as u32);
                vacant.insert(slot);
                if slot as usize == slots.len() {
                    slots.push((block, T::default()));
                    self.order.grow(slots.len() as u32);
                } else {
                    slots[slot as usize] = (block, T::default());
                }
                self.order.push_back(ORDER, slot);
                while self.len() > self.max {
                    self.pop_oldest();
                }
                slot
            }
        };
        Some(&mut self.slots[slot as usize].1)
    }

    /// Mutable access to the value of `block`; its rank does not change.
    pub(crate) fn get_mut(&mut self, block: u64) -> Option<&mut T> {
        self.find(block).map(|slot| &mut self.slots[slot as usize].1)
    }

    /// Removes a block. Returns its value.
    pub(crate) fn remove(&mut self, block: u64) -> Option<T> {
        let hash = self.hasher.hash_one(block);
        let slots = &self.slots;
        let found = self.index.find_entry(hash, |&slot| slots[slot as usize].0 == block).ok()?;
        let (slot, _) = found.remove();
        self.order.remove(ORDER, slot);
        self.free.push(slot);
        Some(self.slots[slot as usize].1)
    }

    /// Removes all blocks for which `stays` is false.
    pub(crate) fn retain(&mut self, stays: impl Fn(u64) -> bool) {
        let all = self.order.iter(ORDER).map(|slot| self.slots[slot as usize].0);
        let gone: Vec<u64> = all.filter(|&block| !stays(block)).collect();
        gone.into_iter().for_each(|block| _ = self.remove(block));
    }

    /// The least recently used block and its value.
    pub(crate) fn oldest(&self) -> Option<(u64, T)> {
        self.order.front(ORDER).map(|slot| self.slots[slot as usize])
    }

    /// Removes the least recently used block. Returns it and its value.
    pub(crate) fn pop_oldest(&mut self) -> Option<(u64, T)> {
        let (block, _) = self.oldest()?;
        self.remove(block).map(|known| (block, known))
    }

    /// Checks the invariants in the head of this file.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.order.check()?;
        let (len, indexed) = (self.len() as usize, self.index.len());
        if len != indexed || len > self.max as usize || len + self.free.len() != self.slots.len() {
            return Err(format!("{len} in order, {indexed} in the index, {} allowed", self.max));
        }
        match self.order.iter(ORDER).find(|&s| self.find(self.slots[s as usize].0) != Some(s)) {
            Some(slot) => Err(format!("slot {slot} is not found by its block")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BoundedLruMap;

    #[test]
    fn agrees_with_a_list() {
        let mut x = 7_u64;
        for max in [0, 1, 3, 20] {
            let mut ours = BoundedLruMap::<u32>::new(max, 1);
            let mut model: Vec<(u64, u32)> = Vec::new();
            for step in 0..3000 {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let block = (x >> 33) % 40;
                let at = model.iter().position(|m| m.0 == block);
                assert_eq!(ours.get(block), at.map(|at| model[at].1));
                if x >> 60 < 3 {
                    assert_eq!(ours.remove(block), at.map(|at| model.remove(at).1));
                } else if max > 0 {
                    let known = at.map_or(0, |at| model.remove(at).1);
                    model.push((block, known + step));
                    *ours.touch(block).unwrap() += step;
                    if model.len() > max as usize {
                        model.remove(0);
                    }
                } else {
                    assert!(ours.touch(block).is_none());
                }
                assert_eq!(ours.oldest(), model.first().copied());
                ours.check().unwrap();
            }
        }
    }
}

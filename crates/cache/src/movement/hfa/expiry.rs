//! Blocks with hotness by when it was found: after so many slots it is over.
//!
//! An array that is added to at its end and read from its front. A block's record has its place
//! there, so that one whose hotness was found anew, or that has left, leaves a place behind that
//! says nothing.

use std::collections::VecDeque;

use super::super::shared::{Block, Blocks};
use crate::Entry;

/// Places that may say nothing, for each block of the level; and more of them for a small level.
const IDLE_PER_BLOCK: usize = 2;
const IDLE: usize = 64;

/// Numbers of places are small enough below this to go on for as long as the array may become.
const NUMBERS: u32 = u32::MAX / 2;

pub(super) struct Expiry {
    /// The mark of the level's blocks.
    place: u8,
    /// Most places.
    most: usize,
    queue: VecDeque<Entry>,
    /// Number of the place at the front, from 1: 0 stands for none in a record.
    first: u32,
}

impl Expiry {
    /// For a level of so many blocks with this mark.
    pub(super) fn new(place: u8, capacity: u32) -> Self {
        let most = ((1 + IDLE_PER_BLOCK) * capacity as usize + IDLE).min(NUMBERS as usize);
        Self { place, most, queue: VecDeque::new(), first: 1 }
    }

    /// The hotness of a block was found just now: what its record is to say of its place.
    #[inline(always)]
    pub(super) fn note(&mut self, blocks: &mut Blocks, entry: Entry) -> u32 {
        if self.queue.len() >= self.most || self.first > NUMBERS {
            self.compact(blocks);
        }
        let number = self.first + self.queue.len() as u32;
        self.queue.push_back(entry);
        number
    }

    fn says_something(&self, block: &Block, number: u32) -> bool {
        block.noted == number && block.place == self.place
    }

    /// The block whose hotness was found longest ago.
    pub(super) fn front(&mut self, blocks: &Blocks) -> Option<Entry> {
        while let Some(&entry) = self.queue.front() {
            if self.says_something(&blocks.data(entry), self.first) {
                return Some(entry);
            }
            self.queue.pop_front();
            self.first += 1;
        }
        None
    }

    #[cold]
    fn compact(&mut self, blocks: &mut Blocks) {
        let mut kept = 0;
        for i in 0..self.queue.len() {
            let entry = self.queue[i];
            if self.says_something(&blocks.data(entry), self.first + i as u32) {
                self.queue[kept] = entry;
                kept += 1;
            }
        }
        self.queue.truncate(kept);
        self.first = 1;
        for (number, &entry) in (self.first..).zip(&self.queue) {
            blocks.data_mut(entry).noted = number;
        }
    }

    /// Checks that just the blocks of the level that say so are noted.
    pub(super) fn check(&self, blocks: &Blocks, residents: &[Entry]) -> Result<(), String> {
        let noted = |entry: &Entry| blocks.data(*entry).noted;
        let at = |entry: &Entry| noted(entry).checked_sub(self.first).map(|i| i as usize);
        let warm = residents.iter().filter(|&entry| noted(entry) > 0);
        for entry in warm {
            if at(entry).and_then(|at| self.queue.get(at)) != Some(entry) {
                return Err(format!("entry {entry} is to expire and is not noted"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::shared::Blocks;
    use super::Expiry;
    use crate::Entry;

    /// Blocks that leave, and whose hotness is found anew, many times more than there are places.
    #[test]
    fn agrees_with_a_list() {
        let (capacity, entries) = (5, 20);
        let mut blocks = Blocks::new(1);
        blocks.grow(entries);
        let mut ours = Expiry::new(3, capacity);
        let mut model: Vec<Entry> = Vec::new();
        let mut x = 9_u64;
        for step in 0..20_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let entry = (x >> 33) as u32 % entries;
            let held = model.iter().position(|&e| e == entry);
            if let Some(at) = held {
                model.remove(at);
            }
            if held.is_some() && x >> 62 == 0 || held.is_none() && model.len() == capacity as usize
            {
                blocks.data_mut(entry).place = 0;
            } else {
                blocks.data_mut(entry).place = 3;
                blocks.data_mut(entry).noted = 0;
                let noted = ours.note(&mut blocks, entry);
                blocks.data_mut(entry).noted = noted;
                model.push(entry);
            }
            // Only now and then, so that places that say nothing pile up.
            if step % 300 == 0 {
                assert_eq!(ours.front(&blocks), model.first().copied(), "step {step}");
                ours.check(&blocks, &model).unwrap();
            }
            assert!(ours.queue.len() <= ours.most);
        }
    }
}

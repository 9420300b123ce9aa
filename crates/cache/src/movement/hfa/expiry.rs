//! Blocks with hotness by when it was found: after so many slots it is over.
//!
//! A ring that is added to at its end and read from its front. A block's record has its place
//! there, so that one whose hotness was found anew, or that has left, leaves a place behind that
//! says nothing.

use super::super::records::{Block, Blocks, BlocksAtHand};
use crate::Entry;

/// Places at the start. When they run out, those that say nothing are taken out, and there are
/// twice as many if that leaves more than a quarter.
const PLACES: usize = 64;

/// Numbers of places are below this.
const NUMBERS: u32 = u32::MAX / 2;

pub(super) struct Expiry {
    /// The mark of the level's blocks.
    place: u8,
    expires: bool,
    /// By the number of a place, modulo their count, which is a power of two.
    ring: Vec<Entry>,
    /// Number of the place at the front, from 1: 0 stands for none in a record.
    first: u32,
    /// Number of the next place, and of the first one that there may be no room for.
    end: u32,
    limit: u32,
}

impl Expiry {
    /// For a level whose blocks have this mark, and whether hotness expires at all.
    pub(super) fn new(place: u8, expires: bool) -> Self {
        let (ring, limit) = (vec![0; PLACES], 1 + PLACES as u32);
        Self { place, expires, ring, first: 1, end: 1, limit }
    }

    #[inline(always)]
    fn at(&self, number: u32) -> usize {
        number as usize & (self.ring.len() - 1)
    }

    /// Sees to it that there is a place for one more.
    #[inline(always)]
    pub(super) fn make_ready(&mut self, blocks: &mut BlocksAtHand<'_>) {
        if self.end == self.limit {
            self.make_room(blocks);
        }
    }

    /// The hotness of a block was found just now, if it is hot: what its record is to say of its
    /// place, for which [`make_ready`](Self::make_ready) has been called.
    #[inline(always)]
    pub(super) fn note(&mut self, entry: Entry, is_hot: bool) -> u32 {
        let expires = is_hot & self.expires;
        // Whether there is any cannot be foretold: a place is written, and counts or not.
        let (number, at) = (self.end, self.at(self.end));
        self.ring[at] = entry;
        self.end += u32::from(expires);
        if expires { number } else { 0 }
    }

    fn says_something(&self, block: &Block, number: u32) -> bool {
        block.noted == number && block.place == self.place
    }

    /// The block whose hotness was found longest ago.
    pub(super) fn front(&mut self, blocks: &BlocksAtHand<'_>) -> Option<Entry> {
        while self.first < self.end {
            let entry = self.ring[self.at(self.first)];
            if self.says_something(blocks.get(entry), self.first) {
                return Some(entry);
            }
            self.first += 1;
        }
        None
    }

    #[cold]
    fn make_room(&mut self, blocks: &mut BlocksAtHand<'_>) {
        self.set_limit();
        if self.end < self.limit {
            return;
        }
        let kept: Vec<Entry> = (self.first..self.end)
            .map(|number| (number, self.ring[self.at(number)]))
            .filter(|&(number, entry)| self.says_something(blocks.get(entry), number))
            .map(|(_, entry)| entry)
            .collect();
        if kept.len() > self.ring.len() / 4 {
            self.ring.resize(2 * self.ring.len(), 0);
        }
        (self.first, self.end) = (1, 1);
        for entry in kept {
            let at = self.at(self.end);
            self.ring[at] = entry;
            blocks.get_mut(entry).noted = self.end;
            self.end += 1;
        }
        self.set_limit();
    }

    fn set_limit(&mut self) {
        self.limit = self.first.saturating_add(self.ring.len() as u32).min(NUMBERS);
    }

    /// Checks that just the blocks of the level that say so are noted.
    pub(super) fn check(&self, blocks: &Blocks, residents: &[Entry]) -> Result<(), String> {
        let noted = |entry: &Entry| blocks.get(*entry).noted;
        let places = self.first..self.end;
        let warm = residents.iter().filter(|&entry| noted(entry) > 0);
        for entry in warm {
            let number = noted(entry);
            if !places.contains(&number) || self.ring[self.at(number)] != *entry {
                return Err(format!("entry {entry} is to expire and is not noted"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::records::Blocks;
    use super::{Expiry, PLACES};
    use crate::Entry;

    /// Blocks that leave, and whose hotness is found anew, many times more than there are places.
    #[test]
    fn agrees_with_a_list() {
        let (capacity, entries) = (5, 20);
        let mut blocks = Blocks::new(1);
        blocks.grow(entries);
        let mut ours = Expiry::new(3, true);
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
                blocks.get_mut(entry).place = 0;
            } else {
                blocks.get_mut(entry).place = 3;
                blocks.get_mut(entry).noted = 0;
                ours.make_ready(&mut blocks.at_hand());
                let noted = ours.note(entry, true);
                blocks.get_mut(entry).noted = noted;
                model.push(entry);
            }
            // Only now and then, so that places that say nothing pile up.
            if step % 300 == 0 {
                assert_eq!(ours.front(&blocks.at_hand()), model.first().copied(), "step {step}");
                ours.check(&blocks, &model).unwrap();
            }
            assert_eq!(ours.ring.len(), PLACES, "no more than it needs");
        }
    }
}

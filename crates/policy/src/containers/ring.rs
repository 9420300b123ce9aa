//! A queue of entries in one array, each with a small mark, for policies whose entries enter only
//! at the back.
//!
//! A hand that scans the queue reads adjacent memory, marks and entries alike; in a linked list it
//! would read scattered nodes. While the queue fills the array, it is a circle: an entry that moves
//! from front to back, as under the hand of a clock, keeps its slot. An entry removed from the
//! middle leaves a gap, which is skipped.
//!
//! Invariants (checked by [`Ring::check`]):
//! 1. `slots[at[e]]` is `e` for an entry in the queue; the mark of its slot is not `GAP`;
//! 2. there are `len` marks other than `GAP`, all in the `used` slots from `front` on.

use crate::Entry;

/// Slot of an entry that is not in the queue.
const NOWHERE: u32 = u32::MAX;

/// Mark of a slot that holds no entry.
const GAP: u8 = 0;

/// A queue over entries `0..entries`.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    slots: Vec<Entry>,
    marks: Vec<u8>,
    /// Slot of each entry, or `NOWHERE`.
    at: Vec<u32>,
    /// The first slot of the queue, and the number of slots to its end, gaps included.
    front: usize,
    used: usize,
    len: u32,
    /// How often entries changed slots, other than by moving from front to back.
    renumbered: u32,
}

impl Ring {
    /// An empty queue over no entries.
    pub(crate) fn new() -> Self {
        let (slots, marks, at) = (Vec::new(), Vec::new(), Vec::new());
        Self { slots, marks, at, front: 0, used: 0, len: 0, renumbered: 0 }
    }

    /// Makes the handles below `entries` valid.
    pub(crate) fn grow(&mut self, entries: u32) {
        self.at.resize(self.at.len().max(entries as usize), NOWHERE);
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Whether an entry is in the queue.
    #[inline(always)]
    pub(crate) fn contains(&self, entry: Entry) -> bool {
        self.at[entry as usize] != NOWHERE
    }

    /// A value that depends on the place of `entry`. Reading it early prefetches that place.
    #[inline(always)]
    pub(crate) fn prefetch(&self, entry: Entry) -> u32 {
        self.at[entry as usize]
    }

    /// Slot of an entry of the queue.
    #[inline(always)]
    pub(crate) fn slot_of(&self, entry: Entry) -> usize {
        debug_assert!(self.contains(entry));
        self.at[entry as usize] as usize
    }

    /// The entry in a slot of the queue.
    #[inline(always)]
    pub(crate) fn entry_in(&self, slot: usize) -> Entry {
        self.slots[slot]
    }

    /// Mark of an entry of the queue.
    #[inline(always)]
    pub(crate) fn mark(&self, entry: Entry) -> u8 {
        self.marks[self.slot_of(entry)]
    }

    /// Mutable access to the mark of a slot. It must not become 0.
    #[inline(always)]
    pub(crate) fn mark_in(&mut self, slot: usize) -> &mut u8 {
        &mut self.marks[slot]
    }

    #[inline(always)]
    fn wrapped(&self, slot: usize) -> usize {
        if slot >= self.slots.len() { slot - self.slots.len() } else { slot }
    }

    /// Inserts an entry, which is not in the queue, at its back, with a nonzero mark.
    #[inline(always)]
    pub(crate) fn push_back(&mut self, entry: Entry, mark: u8, most: u32) {
        debug_assert!(!self.contains(entry));
        if self.used == self.slots.len() {
            self.make_room(most);
        }
        let slot = self.wrapped(self.front + self.used);
        self.slots[slot] = entry;
        self.marks[slot] = mark;
        self.at[entry as usize] = slot as u32;
        self.used += 1;
        self.len += 1;
    }

    /// Slot of the entry at the front.
    #[inline(always)]
    pub(crate) fn front(&mut self) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        while self.marks[self.front] == GAP {
            self.front = self.wrapped(self.front + 1);
            self.used -= 1;
        }
        Some(self.front)
    }

    /// Number of slots from the front to a slot.
    pub(crate) fn distance(&self, slot: usize) -> usize {
        if slot >= self.front { slot - self.front } else { slot + self.slots.len() - self.front }
    }

    /// Changes whenever slot numbers that a caller kept become invalid.
    pub(crate) fn numbering(&self) -> u32 {
        self.renumbered
    }

    /// Slot of the first entry behind `slot`, toward the back.
    #[inline(always)]
    pub(crate) fn after(&self, slot: usize) -> Option<usize> {
        let end = self.wrapped(self.front + self.used);
        let mut slot = self.wrapped(slot + 1);
        while slot != end {
            if self.marks[slot] != GAP {
                return Some(slot);
            }
            slot = self.wrapped(slot + 1);
        }
        None
    }

    #[inline(always)]
    pub(crate) fn pop_front(&mut self) -> Option<Entry> {
        let slot = self.front()?;
        let entry = self.slots[slot];
        self.take(entry, slot);
        self.front = self.wrapped(self.front + 1);
        self.used -= 1;
        Some(entry)
    }

    /// Moves the entry at the front to the back.
    #[inline(always)]
    pub(crate) fn turn(&mut self) {
        let Some(slot) = self.front() else { return };
        let to = self.wrapped(self.front + self.used);
        self.front = self.wrapped(self.front + 1);
        if to != slot {
            let entry = self.slots[slot];
            self.marks[to] = std::mem::replace(&mut self.marks[slot], GAP);
            self.slots[to] = entry;
            self.at[entry as usize] = to as u32;
        }
    }

    /// Removes an entry from the queue.
    #[inline(always)]
    pub(crate) fn remove(&mut self, entry: Entry) {
        let slot = self.slot_of(entry);
        self.take(entry, slot);
    }

    #[inline(always)]
    fn take(&mut self, entry: Entry, slot: usize) {
        self.at[entry as usize] = NOWHERE;
        self.marks[slot] = GAP;
        self.len -= 1;
    }

    /// Front to back.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        let slots = (0..self.used).map(|i| self.wrapped(self.front + i));
        slots.filter(|&slot| self.marks[slot] != GAP).map(|slot| self.slots[slot])
    }

    /// Closes the gaps, and makes the array longer: four times the length of the queue if entries
    /// leave from its middle, so that this is rare; otherwise up to the maximum `most`.
    #[cold]
    fn make_room(&mut self, most: u32) {
        self.renumbered = self.renumbered.wrapping_add(1);
        let has_gaps = (self.len as usize) < self.used;
        let wanted = (4 * self.len as usize).max(16);
        let is_short = !has_gaps && self.len < most;
        let wanted = if is_short { wanted.min(most as usize) } else { wanted };
        if wanted > self.slots.len() {
            let queue: Vec<(Entry, u8)> = self.iter().map(|e| (e, self.mark(e))).collect();
            self.slots = vec![0; wanted];
            self.marks = vec![GAP; wanted];
            (self.front, self.used, self.len) = (0, 0, 0);
            for (entry, mark) in queue {
                self.at[entry as usize] = NOWHERE;
                self.push_back(entry, mark, most);
            }
            return;
        }
        let mut kept = 0;
        for i in 0..self.used {
            let from = self.wrapped(self.front + i);
            let mark = std::mem::replace(&mut self.marks[from], GAP);
            if mark != GAP {
                let to = self.wrapped(self.front + kept);
                let entry = self.slots[from];
                self.marks[to] = mark;
                self.slots[to] = entry;
                self.at[entry as usize] = to as u32;
                kept += 1;
            }
        }
        self.used = kept;
    }

    /// Checks the invariants in the head of this file.
    pub(crate) fn check(&self) -> Result<(), String> {
        let entries = self.iter().count() as u32;
        let placed = self.at.iter().filter(|&&slot| slot != NOWHERE).count() as u32;
        let marked = self.marks.iter().filter(|&&mark| mark != GAP).count() as u32;
        let right = [entries, placed, marked].iter().all(|&count| count == self.len)
            && self.used <= self.slots.len();
        let at_home = |e: Entry| self.slots.get(self.at[e as usize] as usize) == Some(&e);
        match self.iter().find(|&e| !at_home(e)) {
            Some(entry) => Err(format!("ring: entry {entry} is not where it is said to be")),
            None if !right => Err(format!("ring: {entries} entries, {} counted", self.len)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ring;

    /// Phases with fewer and with more removals from the middle, so that the queue is sometimes a
    /// circle.
    #[test]
    fn agrees_with_a_list() {
        let mut x = 11_u64;
        for most in [1, 2, 7, 20] {
            let mut ours = Ring::new();
            ours.grow(40);
            let mut model: Vec<(u32, u8)> = Vec::new();
            for step in 0..8000 {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let (entry, mark) = ((x >> 33) as u32 % 40, (x >> 40) as u8 % 100 + 1);
                let held = model.iter().position(|m| m.0 == entry);
                assert_eq!(ours.contains(entry), held.is_some());
                match held {
                    Some(at) if step % 1000 < 500 && x >> 62 == 0 => {
                        ours.remove(entry);
                        model.remove(at);
                    }
                    Some(at) => {
                        *ours.mark_in(ours.slot_of(entry)) = mark;
                        model[at].1 = mark;
                        let next = ours.after(ours.slot_of(entry)).map(|slot| ours.entry_in(slot));
                        assert_eq!(next, model.get(at + 1).map(|m| m.0));
                    }
                    None if x >> 62 == 1 && !model.is_empty() => {
                        ours.turn();
                        model.rotate_left(1);
                    }
                    None => {
                        if model.len() == most as usize {
                            assert_eq!(ours.pop_front(), Some(model.remove(0).0));
                        }
                        ours.push_back(entry, mark, most);
                        model.push((entry, mark));
                    }
                }
                let front = ours.front().map(|slot| ours.entry_in(slot));
                assert_eq!(front, model.first().map(|m| m.0));
                assert!(ours.iter().map(|e| (e, ours.mark(e))).eq(model.iter().copied()));
                ours.check().unwrap();
            }
        }
    }
}

//! A queue of entries in one array. Entries enter at the back and keep their slot until they leave,
//! at the front or anywhere else, which leaves a gap. Gaps at the front are skipped at once.
//!
//! Unlike a linked list, it reads and writes adjacent memory at both ends. The queue does not know
//! the slot of an entry: the caller stores the result of `push`, and is told by `make_room` when
//! slots change.
//!
//! Invariants (checked by [`Trail::check`]):
//! 1. from `front` to `back` there are `len` entries; the other slots there are gaps;
//! 2. the slot at `front` is no gap, or `front` is `back`.

use crate::Entry;

/// Marks a slot that an entry has left.
const GAP: Entry = Entry::MAX;

/// A queue of entries, each with a payload.
#[derive(Clone, Debug)]
pub(crate) struct Trail<T = ()> {
    /// The number of slots is a power of two; position `p` is in slot `p % slots`.
    entries: Vec<Entry>,
    data: Vec<T>,
    front: u64,
    back: u64,
    len: u32,
}

impl<T: Copy + Default> Trail<T> {
    pub(crate) fn new() -> Self {
        let (entries, data) = (vec![GAP; 16], vec![T::default(); 16]);
        Self { entries, data, front: 0, back: 0, len: 0 }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Number of slots, at least 1.
    #[inline(always)]
    pub(crate) fn slots(&self) -> u32 {
        self.entries.len() as u32
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> usize {
        position as usize & (self.entries.len() - 1)
    }

    /// Whether `make_room` must be called before the next `push`.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.back - self.front == self.entries.len() as u64
    }

    /// Adds an entry at the back. Returns its slot.
    #[inline(always)]
    pub(crate) fn push(&mut self, entry: Entry, data: T) -> u32 {
        debug_assert!(!self.is_full());
        let slot = self.slot(self.back);
        self.entries[slot] = entry;
        self.data[slot] = data;
        self.back += 1;
        self.len += 1;
        slot as u32
    }

    /// Removes the entry in a slot.
    #[inline(always)]
    pub(crate) fn remove(&mut self, slot: u32) -> T {
        let slot = slot as usize;
        let entries = &mut self.entries[..];
        debug_assert_ne!(entries[slot], GAP, "removed twice");
        entries[slot] = GAP;
        self.len -= 1;
        let mask = entries.len() - 1;
        while self.front < self.back && entries[self.front as usize & mask] == GAP {
            self.front += 1;
        }
        self.data[slot]
    }

    #[inline(always)]
    pub(crate) fn front(&self) -> Option<(Entry, T)> {
        let slot = self.slot(self.front);
        if self.len > 0 { Some((self.entries[slot], self.data[slot])) } else { None }
    }

    #[inline(always)]
    pub(crate) fn pop_front(&mut self) -> Option<(Entry, T)> {
        let slot = self.slot(self.front) as u32;
        if self.len == 0 {
            return None;
        }
        let entry = self.entries[slot as usize];
        Some((entry, self.remove(slot)))
    }

    /// The first entry, with its position, for which `is_wanted`, at position `from` or behind it.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        from: u64,
        is_wanted: impl Fn(Entry) -> bool,
    ) -> Option<(u64, Entry, T)> {
        let mut position = from.max(self.front);
        while position < self.back {
            let slot = self.slot(position);
            let entry = self.entries[slot];
            if entry != GAP && is_wanted(entry) {
                return Some((position, entry, self.data[slot]));
            }
            position += 1;
        }
        None
    }

    /// The position behind the last entry.
    #[inline(always)]
    pub(crate) fn end(&self) -> u64 {
        self.back
    }

    /// The payload in a slot, or a default. Reading it early prefetches it.
    #[inline(always)]
    pub(crate) fn peek(&self, slot: u32) -> T {
        self.data[slot as usize]
    }

    /// Replaces every payload.
    pub(crate) fn update(&mut self, change: impl Fn(T) -> T) {
        self.data.iter_mut().for_each(|data| *data = change(*data));
    }

    /// Closes the gaps, and doubles the slots unless that frees half of them. Calls `moved` with
    /// the new slot of every entry. Positions in `marks` stay at the same place between the
    /// entries.
    #[cold]
    pub(crate) fn make_room(&mut self, marks: &mut [&mut u64], mut moved: impl FnMut(Entry, u32)) {
        for mark in marks {
            let before = (self.front..(**mark).max(self.front)).map(|p| self.entries[self.slot(p)]);
            **mark = before.filter(|&entry| entry != GAP).count() as u64;
        }
        let queue: Vec<_> = self.iter().collect();
        if queue.len() * 2 > self.entries.len() {
            let slots = self.entries.len() * 2;
            self.entries.resize(slots, GAP);
            self.data.resize(slots, T::default());
        }
        (self.front, self.back, self.len) = (0, 0, 0);
        for (entry, data) in queue {
            let slot = self.push(entry, data);
            moved(entry, slot);
        }
    }

    /// Front to back.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Entry, T)> + '_ {
        let slots = (self.front..self.back).map(|position| self.slot(position));
        slots.map(|slot| (self.entries[slot], self.data[slot])).filter(|&(entry, _)| entry != GAP)
    }

    /// Checks the invariants in the head of this file, and that every entry is in the slot that
    /// `said` gives for it, if any.
    pub(crate) fn check(&self, said: impl Fn(Entry) -> Option<u32>) -> Result<(), String> {
        let mut len = 0;
        for position in self.front..self.back {
            let slot = self.slot(position);
            let entry = self.entries[slot];
            if entry == GAP {
                continue;
            }
            len += 1;
            if said(entry).is_some_and(|said| said != slot as u32) {
                return Err(format!("trail: entry {entry} is not where it is said to be"));
            }
        }
        let leads = self.front == self.back || self.entries[self.slot(self.front)] != GAP;
        if len != self.len || !leads {
            return Err(format!("trail: {len} entries, {} counted; or a gap in front", self.len));
        }
        Ok(())
    }
}

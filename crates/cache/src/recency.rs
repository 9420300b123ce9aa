//! Entries in the order of their last use, kept as a log: each use is written at the end of it, and
//! what was written for the entry before does not count any more.
//!
//! Beside a linked list, whose entries have four scattered places that a use changes, this has one:
//! where in the log the entry stands. What comes to the front is found by reading the log in order,
//! some entries at a time, without a branch for each: which of them still count, nobody can foretell.
//!
//! What does not count any more is closed up now and then, from the end of the log on toward its
//! front, in small steps: nobody waits for the whole of a large log, as a client of a server would.
//!
//! Invariants (checked by [`Recency::check`]):
//! 1. `place[e]` is the slot of an entry that is in the order, which holds `e`; there are `len`;
//! 2. all these slots lie from position `oldest` to `end`, at most the log's length;
//! 3. those before position `scanned` are in `coming`, from `next` on, in order;
//! 4. while gaps are closed, nothing between the positions `left` and `right` counts.

use crate::Entry;

/// Slot of an entry that is not in the order.
const NOWHERE: u32 = u32::MAX;

/// Positions that are looked at together for what comes to the front.
const AHEAD: u32 = 32;

/// Positions that are closed up at each use while that goes on. It begins when three quarters of
/// the log are used, and has to end before the last one is.
const STEPS: u32 = 4;

/// The order of entries `0..entries`. The front is the one used longest ago.
#[derive(Clone, Debug)]
pub(crate) struct Recency {
    /// A power of two of slots, at least `AHEAD`; position `p` is in slot `p % slots`.
    log: Vec<Entry>,
    place: Vec<u32>,
    /// Positions in the log. They wrap around.
    oldest: u32,
    scanned: u32,
    end: u32,
    /// Slots with entries that counted when they were looked at, `next..found` of them.
    coming: [(u32, Entry); AHEAD as usize],
    next: usize,
    found: usize,
    /// Gaps are being closed: those from `right` on are, and `left` is the next to look at.
    closing: bool,
    left: u32,
    right: u32,
    len: u32,
}

impl Recency {
    /// Nothing in order, over no entries yet.
    pub(crate) fn new() -> Self {
        Self {
            log: vec![0; AHEAD as usize],
            place: Vec::new(),
            oldest: 0,
            scanned: 0,
            end: 0,
            coming: [(0, 0); AHEAD as usize],
            next: 0,
            found: 0,
            closing: false,
            left: 0,
            right: 0,
            len: 0,
        }
    }

    /// Makes the handles below `entries` valid.
    pub(crate) fn grow(&mut self, entries: u32) {
        self.place.resize(self.place.len().max(entries as usize), NOWHERE);
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Whether an entry is in the order.
    #[inline(always)]
    pub(crate) fn contains(&self, entry: Entry) -> bool {
        self.place[entry as usize] != NOWHERE
    }

    /// A value that depends on where `entry` is: reading it early brings that near.
    #[inline(always)]
    pub(crate) fn warm(&self, entry: Entry) -> u32 {
        self.place[entry as usize]
    }

    #[inline(always)]
    fn slot(&self, position: u32) -> u32 {
        position & (self.log.len() as u32 - 1)
    }

    /// Writes a use at the end.
    #[inline(always)]
    fn note(&mut self, entry: Entry) {
        let slots = self.log.len() as u32;
        if self.closing || self.end.wrapping_sub(self.oldest) >= slots - slots / 4 {
            self.make_room();
        }
        let slot = self.slot(self.end);
        self.log[slot as usize] = entry;
        self.place[entry as usize] = slot;
        self.end = self.end.wrapping_add(1);
    }

    /// Moves an entry that is in the order to its back.
    #[inline(always)]
    pub(crate) fn renew(&mut self, entry: Entry) {
        debug_assert!(self.contains(entry));
        self.place[entry as usize] = NOWHERE;
        self.note(entry);
    }

    /// Puts an entry that is not in the order at its back.
    #[inline(always)]
    pub(crate) fn push_back(&mut self, entry: Entry) {
        debug_assert!(!self.contains(entry));
        self.note(entry);
        self.len += 1;
    }

    /// Takes an entry out of the order.
    #[inline(always)]
    pub(crate) fn remove(&mut self, entry: Entry) {
        debug_assert!(self.contains(entry));
        self.place[entry as usize] = NOWHERE;
        self.len -= 1;
    }

    /// The front, ready to be taken by [`replace_front`](Self::replace_front).
    #[inline(always)]
    pub(crate) fn front(&mut self) -> Option<Entry> {
        loop {
            while self.next < self.found {
                let (slot, entry) = self.coming[self.next];
                if self.place[entry as usize] == slot {
                    return Some(entry);
                }
                self.next += 1;
            }
            if self.scanned == self.end {
                return None;
            }
            self.look_ahead();
        }
    }

    /// A use of `entry`, if it is in the order; if not, it takes the place of `front`, which was
    /// just asked for. Which of the two cannot be foretold, and is no branch.
    #[inline(always)]
    pub(crate) fn replace_front(&mut self, front: Entry, entry: Entry) {
        let is_in = self.contains(entry);
        let leaves = [front, entry][usize::from(is_in)];
        self.place[leaves as usize] = NOWHERE;
        self.next += usize::from(!is_in);
        self.note(entry);
    }

    /// Looks for what counts in the next positions; all found before is used up.
    #[inline(always)]
    fn look_ahead(&mut self) {
        self.oldest = self.scanned;
        let positions = AHEAD.min(self.end.wrapping_sub(self.scanned));
        let mut found = 0;
        for i in 0..positions {
            let slot = self.slot(self.scanned.wrapping_add(i));
            let entry = self.log[slot as usize];
            self.coming[found] = (slot, entry);
            found += usize::from(self.place[entry as usize] == slot);
        }
        self.scanned = self.scanned.wrapping_add(positions);
        (self.next, self.found) = (0, found);
    }

    /// From the front to the back.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        let slots = (0..self.end.wrapping_sub(self.oldest))
            .map(|i| self.slot(self.oldest.wrapping_add(i)))
            .map(|slot| (slot, self.log[slot as usize]));
        slots.filter(|&(slot, entry)| self.place[entry as usize] == slot).map(|(_, entry)| entry)
    }

    /// Closes some gaps; or writes all into a longer log, where less than three quarters are gaps.
    fn make_room(&mut self) {
        if 4 * self.len as usize > self.log.len() {
            return self.lengthen();
        }
        if !self.closing {
            (self.closing, self.left, self.right) = (true, self.end, self.end);
        }
        for _ in 0..STEPS {
            // Before `scanned` only what is in `coming` counts.
            if self.is_before(self.left, self.scanned) || self.left == self.scanned {
                return self.close_last();
            }
            self.left = self.left.wrapping_sub(1);
            let from = self.slot(self.left);
            let entry = self.log[from as usize];
            if self.place[entry as usize] == from {
                self.right = self.right.wrapping_sub(1);
                self.put(entry, self.right);
            }
        }
    }

    /// Whether a position is further from the end than another.
    fn is_before(&self, position: u32, other: u32) -> bool {
        self.end.wrapping_sub(position) > self.end.wrapping_sub(other)
    }

    /// Moves what is in `coming` up to the rest. Where that was looked at already there is nothing
    /// left to close.
    fn close_last(&mut self) {
        self.closing = false;
        if self.is_before(self.right, self.scanned) {
            return;
        }
        (self.scanned, self.oldest) = (self.right, self.right);
        // Those that do not count any more go: their slots will be used again.
        let mut next = self.found;
        for i in (self.next..self.found).rev() {
            let (slot, entry) = self.coming[i];
            if self.place[entry as usize] == slot {
                self.oldest = self.oldest.wrapping_sub(1);
                next -= 1;
                self.coming[next] = (self.put(entry, self.oldest), entry);
            }
        }
        self.next = next;
    }

    /// Moves an entry to a position: its slot.
    fn put(&mut self, entry: Entry, position: u32) -> u32 {
        let slot = self.slot(position);
        self.log[slot as usize] = entry;
        self.place[entry as usize] = slot;
        slot
    }

    /// Makes the log four times as long as the order.
    #[cold]
    fn lengthen(&mut self) {
        let order: Vec<Entry> = self.iter().collect();
        self.log = vec![0; (4 * order.len()).next_power_of_two()];
        for (&entry, position) in order.iter().zip(0..) {
            self.put(entry, position);
        }
        (self.oldest, self.scanned, self.end) = (0, 0, order.len() as u32);
        (self.next, self.found, self.closing) = (0, 0, false);
    }

    /// Checks the invariants in the head of this file.
    pub(crate) fn check(&self) -> Result<(), String> {
        let used = self.end.wrapping_sub(self.oldest);
        let unscanned = self.end.wrapping_sub(self.scanned);
        if used as usize > self.log.len() || unscanned > used {
            return Err(format!("recency: {used} positions, {unscanned} not looked at"));
        }
        let placed = self.place.iter().filter(|&&slot| slot != NOWHERE).count() as u32;
        let in_order = self.iter().count() as u32;
        if placed != self.len || in_order != self.len {
            return Err(format!(
                "recency: {placed} placed, {in_order} there, {} counted",
                self.len
            ));
        }
        let counts = |&(slot, entry): &(u32, Entry)| self.place[entry as usize] == slot;
        let coming = self.coming[self.next..self.found].iter().filter(|it| counts(it));
        let scanned = (0..used - unscanned)
            .map(|i| self.slot(self.oldest.wrapping_add(i)))
            .map(|slot| (slot, self.log[slot as usize]))
            .filter(counts);
        let gap = if self.closing { self.right.wrapping_sub(self.left) } else { 0 };
        let gap = (0..gap).map(|i| self.slot(self.left.wrapping_add(i)));
        if gap.map(|slot| (slot, self.log[slot as usize])).any(|it| counts(&it)) {
            return Err("recency: what counts lies where gaps were closed".into());
        }
        if !coming.copied().eq(scanned) {
            return Err("recency: what comes to the front is not what was found".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Recency;

    /// All operations at random, with positions that wrap around on the way.
    #[test]
    fn agrees_with_a_list() {
        let mut x = 5_u64;
        let mut closed = 0;
        for (entries, capacity, start) in [
            (40, 1, 0),
            (40, 2, u32::MAX - 100),
            (40, 20, 0),
            (40, 39, u32::MAX - 4000),
            (700, 300, u32::MAX - 20_000),
        ] {
            let mut ours = Recency::new();
            (ours.oldest, ours.scanned, ours.end) = (start, start, start);
            ours.grow(entries);
            let mut model: Vec<u32> = Vec::new();
            for step in 0..24_000 {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                // Few entries in some stretches: hits, and a log that fills with what is stale.
                let range = [entries, capacity as u32, 3][step / 1000 % 3];
                let entry = (x >> 33) as u32 % range.max(3);
                let held = model.iter().position(|&e| e == entry);
                assert_eq!(ours.contains(entry), held.is_some());
                if let Some(at) = held {
                    model.remove(at);
                }
                let was_closing = ours.closing;
                match held {
                    Some(_) if x >> 59 == 0 => ours.remove(entry),
                    _ if held.is_none() && model.len() < capacity => {
                        ours.push_back(entry);
                        model.push(entry);
                    }
                    Some(_) if x >> 62 == 0 => {
                        ours.renew(entry);
                        model.push(entry);
                    }
                    _ => {
                        let front = ours.front().unwrap();
                        ours.replace_front(front, entry);
                        if held.is_none() {
                            assert_eq!(front, model.remove(0));
                        }
                        model.push(entry);
                    }
                }
                closed += u32::from(was_closing && !ours.closing);
                assert_eq!(ours.len() as usize, model.len());
                if entries == 40 || step % 16 == 0 {
                    assert!(ours.iter().eq(model.iter().copied()));
                    assert_eq!(ours.clone().front(), model.first().copied());
                    ours.check().unwrap();
                }
            }
        }
        assert!(closed > 100, "{closed}");
    }
}

//! A log of uses: entries in the order of their last use. Each use is written at the end, and makes
//! the entry's older slot stale.
//!
//! In a linked list, a use changes four scattered places; here it changes one: the entry's place,
//! which says in which slot of which log it is. The place is stored with the other data of the
//! entry ([`Places`]), so several logs can share it: moving an entry from the middle of one order
//! to the back of another is one scattered write. The front is found by reading the log in order,
//! several slots at a time, without a branch for each, since it is unpredictable which slots are
//! stale.
//!
//! Stale slots are compacted from time to time, from the end of the log toward its front, in small
//! steps. So no client of a server waits for the compaction of a whole large log.
//!
//! A log can be searched repeatedly, from the front on, for an entry of some kind. Entries enter at
//! the back only. So an entry that did not match needs no second look until it leaves or starts to
//! match: a cursor stays where the last search ended, and a search window costs one look per new
//! entry. Compaction compares the cursor once with each position that moves.
//! Invariants (checked by [`Log::check`]), where a slot counts if its entry's place is this slot:
//!    others do is for who owns the places to check, by counting them;
//! 2. those before position `scanned` are in `coming`, from `next` on, in order;
//! 3. while gaps are closed, nothing between the positions `left` and `right` counts;
//! 4. `searched` slots count before position `cursor`, which is not before `oldest`.

use crate::Entry;

/// The places of entries.
pub(crate) trait Places {
    /// Most slots of a log, a power of two: more could not be told apart.
    const SLOTS: u32;

    /// Whether an entry is in a slot of the log of `list`.
    fn is_at(&self, entry: Entry, list: u32, slot: u32) -> bool;

    /// Makes a slot the place of an entry.
    fn put(&mut self, entry: Entry, list: u32, slot: u32);

    /// Changes the place of an entry to another slot if it is in the slot `from`. Returns whether
    /// it was. Branch-free.
    fn shift(&mut self, entry: Entry, list: u32, from: u32, to: u32) -> bool;
}

/// Positions that are read together to find the front.
const AHEAD: u32 = 32;

/// Positions that are compacted in one step, and the number of uses between steps. Compaction
/// begins when three quarters of the log are used, and must end before all slots are.
const STEPS: u32 = 32;
const PAUSE: u32 = 8;

/// One order, with a value for each use. The front is the entry used longest ago.
#[derive(Clone, Debug)]
pub(crate) struct Log<D = ()> {
    /// The number by which [`Places`] know this log.
    list: u32,
    /// Least number of slots per entry, at least 2.
    spread: u32,
    /// A power of two of slots, at least `AHEAD`; position `p` is in slot `p % slots`.
    slots: Vec<(Entry, D)>,
    /// Positions in the log. They wrap around.
    oldest: u32,
    scanned: u32,
    end: u32,
    /// The value of `end` at which room is made, or checked for, next.
    limit: u32,
    /// Slots with entries that counted when they were read; `next..found` are still to be used.
    coming: [(u32, Entry); AHEAD as usize],
    next: usize,
    found: usize,
    /// Compaction is running: the slots from `right` on have no gaps, and `left` is read next.
    closing: bool,
    left: u32,
    right: u32,
    /// Where the next search continues, and how many entries are in front of that.
    cursor: u32,
    searched: u32,
    len: u32,
}

impl<D: Copy + Default> Log<D> {
    /// An empty log, which [`Places`] know as `list`. It has from `spread` to twice `spread` slots
    /// per entry: 2 if entries leave mostly at the front, 4 if most leave elsewhere.
    pub(crate) fn new(list: u32, spread: u32) -> Self {
        Self {
            list,
            spread,
            slots: vec![Default::default(); AHEAD as usize],
            oldest: 0,
            scanned: 0,
            end: 0,
            limit: 0,
            coming: [(0, 0); AHEAD as usize],
            next: 0,
            found: 0,
            closing: false,
            left: 0,
            right: 0,
            cursor: 0,
            searched: 0,
            len: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[inline(always)]
    fn slot(&self, position: u32) -> u32 {
        position & (self.slots.len() as u32 - 1)
    }

    /// The entry in a slot, if the slot counts.
    #[inline(always)]
    fn counts(&self, places: &impl Places, slot: u32) -> Option<Entry> {
        let entry = self.slots[slot as usize].0;
        places.is_at(entry, self.list, slot).then_some(entry)
    }

    /// Inserts an entry, which has no place, at the back.
    #[inline(always)]
    pub(crate) fn push(&mut self, places: &mut impl Places, entry: Entry, data: D) {
        self.append(places, entry, data);
        self.len += 1;
    }

    /// Moves an entry of this log from its slot to the back.
    #[inline(always)]
    pub(crate) fn renew(&mut self, places: &mut impl Places, slot: u32, entry: Entry, data: D) {
        self.leave_search(slot);
        self.append(places, entry, data);
    }

    #[inline(always)]
    fn append(&mut self, places: &mut impl Places, entry: Entry, data: D) {
        if self.end == self.limit {
            self.make_room(places);
        }
        let slot = self.slot(self.end);
        self.slots[slot as usize] = (entry, data);
        places.put(entry, self.list, slot);
        self.end = self.end.wrapping_add(1);
    }

    /// Removes the entry in a slot. The caller clears or changes its place.
    #[inline(always)]
    pub(crate) fn remove(&mut self, slot: u32) {
        self.leave_search(slot);
        self.len -= 1;
    }

    /// Removes the front and returns it.
    #[inline(always)]
    pub(crate) fn pop(&mut self, places: &impl Places) -> Option<Entry> {
        let (slot, oldest) = self.front_slot(places)?;
        self.remove(slot);
        Some(oldest)
    }

    /// The front.
    #[inline(always)]
    pub(crate) fn front(&mut self, places: &impl Places) -> Option<Entry> {
        self.front_slot(places).map(|(_, entry)| entry)
    }

    /// The front, with its slot.
    #[inline(always)]
    fn front_slot(&mut self, places: &impl Places) -> Option<(u32, Entry)> {
        loop {
            while self.next < self.found {
                let (slot, entry) = self.coming[self.next];
                if places.is_at(entry, self.list, slot) {
                    return Some((slot, entry));
                }
                self.next += 1;
            }
            if self.scanned == self.end {
                return None;
            }
            self.look_ahead(places);
        }
    }

    /// The back. It reads past stale slots at the end, and gives them up unless compaction is
    /// running: amortised constant time.
    pub(crate) fn back(&mut self, places: &impl Places) -> Option<Entry> {
        let unscanned = self.end.wrapping_sub(self.scanned);
        let behind = |i| self.end.wrapping_sub(i);
        let last =
            (0..unscanned).find(|&i| self.counts(places, self.slot(behind(i + 1))).is_some());
        let newest = last.and_then(|i| self.counts(places, self.slot(behind(i + 1))));
        if !self.closing {
            self.end = behind(last.unwrap_or(unscanned));
            let used = self.used();
            self.cursor = self.oldest.wrapping_add(used.min(self.cursor.wrapping_sub(self.oldest)));
        }
        let coming = self.coming[self.next..self.found].iter().rev();
        let counting = |&&(slot, entry): &&(u32, Entry)| places.is_at(entry, self.list, slot);
        newest.or_else(|| coming.into_iter().find(counting).map(|&(_, entry)| entry))
    }

    /// The front with its value.
    #[inline(always)]
    pub(crate) fn front_with(&mut self, places: &impl Places) -> Option<(Entry, D)> {
        self.front_slot(places).map(|(slot, _)| self.slots[slot as usize])
    }

    /// True if the removed slot may have been the front. The caller must then call
    /// [`front`](Self::front), which skips removed slots.
    #[inline(always)]
    pub(crate) fn may_be_front(&self, slot: u32) -> bool {
        self.next == self.found || self.coming[self.next].0 == slot
    }

    /// Moves an entry of this log to the back, or inserts an entry there in place of the front,
    /// which the caller just asked for. Branch-free, since the case is unpredictable. The caller
    /// has already cleared the place that becomes free. Not for a log that is searched.
    #[inline(always)]
    pub(crate) fn replace_front(
        &mut self,
        places: &mut impl Places,
        entry: Entry,
        is_in: bool,
        data: D,
    ) {
        debug_assert_eq!(self.searched, 0);
        self.next += usize::from(!is_in);
        self.append(places, entry, data);
    }

    /// The first entry that `is_wanted` among the first `window` entries. Continues where the last
    /// search ended: see [`search_again_from`](Self::search_again_from).
    pub(crate) fn search(
        &mut self,
        places: &impl Places,
        window: u32,
        is_wanted: impl Fn(Entry) -> bool,
    ) -> Option<Entry> {
        while self.searched < window && self.cursor != self.end {
            if let Some(entry) = self.counts(places, self.slot(self.cursor)) {
                if is_wanted(entry) {
                    return Some(entry);
                }
                self.searched += 1;
            }
            self.cursor = self.cursor.wrapping_add(1);
        }
        None
    }

    /// The entry in a slot matches from now on: if a search has passed it, the next search begins
    /// there.
    pub(crate) fn search_again_from(&mut self, places: &impl Places, slot: u32) {
        if self.is_searched(slot) {
            let from = self.oldest.wrapping_add(self.distance(slot));
            let passed = (0..self.cursor.wrapping_sub(from)).map(|i| from.wrapping_add(i));
            let counting = passed.filter(|&at| self.counts(places, self.slot(at)).is_some());
            self.searched -= counting.count() as u32;
            self.cursor = from;
        }
    }

    /// Number of positions from the oldest to that of a slot.
    fn distance(&self, slot: u32) -> u32 {
        self.slot(slot.wrapping_sub(self.oldest))
    }

    /// Whether a search has passed the entry in a slot.
    fn is_searched(&self, slot: u32) -> bool {
        self.distance(slot) < self.cursor.wrapping_sub(self.oldest)
    }

    /// Updates the search before the entry in a slot leaves it.
    #[inline(always)]
    fn leave_search(&mut self, slot: u32) {
        if self.searched > 0 {
            self.count_off(slot);
        }
    }

    #[cold]
    fn count_off(&mut self, slot: u32) {
        self.searched -= u32::from(self.is_searched(slot));
    }

    /// Reads the next positions for slots that count; all found before must be used up.
    #[inline(always)]
    fn look_ahead(&mut self, places: &impl Places) {
        if self.cursor.wrapping_sub(self.oldest) < self.scanned.wrapping_sub(self.oldest) {
            self.cursor = self.scanned;
        }
        self.oldest = self.scanned;
        let positions = AHEAD.min(self.end.wrapping_sub(self.scanned));
        let mut found = 0;
        for i in 0..positions {
            let slot = self.slot(self.scanned.wrapping_add(i));
            let entry = self.slots[slot as usize].0;
            self.coming[found] = (slot, entry);
            found += usize::from(places.is_at(entry, self.list, slot));
        }
        self.scanned = self.scanned.wrapping_add(positions);
        (self.next, self.found) = (0, found);
    }

    /// From the front to the back.
    pub(crate) fn iter(&self, places: &impl Places) -> impl Iterator<Item = (Entry, D)> {
        let slots = (0..self.used()).map(|i| self.slot(self.oldest.wrapping_add(i)));
        let counting = slots.filter(|&slot| self.counts(places, slot).is_some());
        counting.map(|slot| self.slots[slot as usize])
    }

    /// Compacts some slots, if it is time; or rewrites the log into a longer one, if too many slots
    /// count.
    fn make_room(&mut self, places: &mut impl Places) {
        if self.closing || self.used() >= self.enough() {
            if self.is_short(places) {
                self.rewrite(places);
            } else {
                self.close_some(places);
            }
        }
        let slots = self.slots.len() as u32;
        let until = if self.closing { slots.min(self.used() + PAUSE) } else { self.enough() };
        self.limit = self.end.wrapping_add(until.saturating_sub(self.used()).max(1));
    }

    /// Number of used positions at which compaction begins.
    fn enough(&self) -> u32 {
        let slots = self.slots.len() as u32;
        slots - slots / 4
    }

    /// Number of used positions.
    fn used(&self) -> u32 {
        self.end.wrapping_sub(self.oldest)
    }

    /// Whether compaction is not enough: too few slots are stale, or no slot is left to write to.
    fn is_short<P: Places>(&self, _: &P) -> bool {
        let slots = self.slots.len() as u32;
        let is_dense = u64::from(self.spread) * u64::from(self.len) > u64::from(slots);
        self.used() == slots || (is_dense && slots < P::SLOTS)
    }

    /// Makes one step of compaction.
    fn close_some(&mut self, places: &mut impl Places) {
        if !self.closing {
            (self.closing, self.left, self.right) = (true, self.end, self.end);
        }
        // Before `scanned` only the slots in `coming` count.
        let unscanned = self.end.wrapping_sub(self.scanned);
        let to_look_at = unscanned.saturating_sub(self.end.wrapping_sub(self.left));
        for _ in 0..to_look_at.min(STEPS) {
            if self.left == self.cursor {
                self.cursor = self.right;
            }
            self.left = self.left.wrapping_sub(1);
            let from = self.slot(self.left);
            // Write to the last gap in any case; this avoids a branch for whether the slot counts.
            let to = self.slot(self.right.wrapping_sub(1));
            let mention = self.slots[from as usize];
            self.slots[to as usize] = mention;
            let counts = places.shift(mention.0, self.list, from, to);
            self.right = self.right.wrapping_sub(u32::from(counts));
        }
        if to_look_at <= STEPS {
            self.close_last(places);
        }
    }

    /// Whether a position is further from the end than another.
    fn is_before(&self, position: u32, other: u32) -> bool {
        self.end.wrapping_sub(position) > self.end.wrapping_sub(other)
    }

    /// Ends compaction: moves the slots in `coming` next to the rest. If the scan for the front has
    /// reached the compacted positions already, there is nothing to do.
    fn close_last(&mut self, places: &mut impl Places) {
        self.closing = false;
        if self.is_before(self.right, self.scanned) {
            return;
        }
        // The searched part stays searched: the rest of it is behind the cursor.
        let (begin, searched) = (self.oldest, self.cursor.wrapping_sub(self.oldest));
        if searched <= self.scanned.wrapping_sub(begin) {
            self.cursor = self.right;
        }
        (self.scanned, self.oldest) = (self.right, self.right);
        // Drop the slots that no longer count, since they will be reused.
        let mut next = self.found;
        for i in (self.next..self.found).rev() {
            let (slot, entry) = self.coming[i];
            if places.is_at(entry, self.list, slot) {
                self.oldest = self.oldest.wrapping_sub(1);
                next -= 1;
                self.coming[next] = (self.put(places, slot, self.oldest), entry);
                if self.slot(slot.wrapping_sub(begin)) >= searched {
                    self.cursor = self.oldest;
                }
            }
        }
        self.next = next;
    }

    /// Moves the content of a slot to a position. Returns the new slot.
    fn put(&mut self, places: &mut impl Places, from: u32, position: u32) -> u32 {
        let slot = self.slot(position);
        let mention = self.slots[from as usize];
        self.slots[slot as usize] = mention;
        places.put(mention.0, self.list, slot);
        slot
    }

    /// Rewrites the log without gaps, at the length that it needs.
    #[cold]
    fn rewrite<P: Places>(&mut self, places: &mut P) {
        let order: Vec<(Entry, D)> = self.iter(places).collect();
        // The entry that is about to leave may be in front of the cursor.
        let passed =
            (0..self.cursor.wrapping_sub(self.oldest)).map(|i| self.oldest.wrapping_add(i));
        self.cursor =
            passed.filter(|&at| self.counts(places, self.slot(at)).is_some()).count() as u32;
        let wanted = (self.spread as usize * order.len()).next_power_of_two();
        let slots = wanted.clamp(self.slots.len(), P::SLOTS as usize);
        assert!(order.len() < slots, "at most {slots} entries in one order");
        self.slots = vec![Default::default(); slots];
        for ((slot, &mention), to) in (0..).zip(&order).zip(&mut self.slots) {
            *to = mention;
            places.put(mention.0, self.list, slot);
        }
        (self.oldest, self.scanned, self.end) = (0, 0, order.len() as u32);
        (self.next, self.found, self.closing) = (0, 0, false);
    }

    /// Checks the invariants in the head of this file.
    pub(crate) fn check(&self, places: &impl Places) -> Result<(), String> {
        let list = self.list;
        let used = self.used();
        let unscanned = self.end.wrapping_sub(self.scanned);
        if used as usize > self.slots.len() || unscanned > used {
            return Err(format!("log {list}: {used} positions, {unscanned} not looked at"));
        }
        let there = self.iter(places).count() as u32;
        if there != self.len {
            return Err(format!("log {list}: {there} there, {} counted", self.len));
        }
        let counting = |from: u32, positions: u32| {
            let slots = (0..positions).map(move |i| self.slot(from.wrapping_add(i)));
            slots.filter_map(|slot| self.counts(places, slot).map(|entry| (slot, entry)))
        };
        let gap = if self.closing { self.right.wrapping_sub(self.left) } else { 0 };
        if counting(self.left, gap).next().is_some() {
            return Err(format!("log {list}: what counts lies where gaps were closed"));
        }
        let passed = self.cursor.wrapping_sub(self.oldest);
        if passed > used || counting(self.oldest, passed).count() as u32 != self.searched {
            return Err(format!("log {list}: not {} entries were searched", self.searched));
        }
        let coming = self.coming[self.next..self.found].iter().copied();
        let coming = coming.filter(|&(slot, entry)| places.is_at(entry, list, slot));
        if !coming.eq(counting(self.oldest, used - unscanned)) {
            return Err(format!("log {list}: what comes to the front is not what was found"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

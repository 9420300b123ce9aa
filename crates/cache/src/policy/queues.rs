//! Lists that know which of them an entry is in: what 2Q, ARC and CAR are made of. Resident lists
//! have the lower numbers, ghost lists the higher; the front of each is its oldest end.
//!
//! There are two kinds that do the same: [`Queues`] are linked, so that a neighbour can be asked
//! about those that follow each other, and mark entries; [`Logs`](super::logs::Logs) are faster.
//!
//! Invariants (checked by [`Queues::check`]): an entry is linked exactly if it says that it is in
//! some list, and in the list that it names; the mark of an entry in no list is not set.

use super::neighbour::{Alone, Neighbour, Stretch, balance};
use super::{Departures, Entry, Fate};
use crate::lists::Lists;
use crate::memo::{Carried, Memo, Refused};

/// Several lists of entries, of which an entry is in one at most.
pub(crate) trait Orders: Clone + Send + 'static {
    /// Whether there is a neighbour to know of.
    const IS_AWARE: bool;

    /// Makes handles below `entries` valid.
    fn grow(&mut self, entries: u32);

    /// Number of entries in `list`.
    fn len(&self, list: u32) -> u32;

    /// Whether `entry` is in `list`.
    fn is_in(&self, list: u32, entry: Entry) -> bool;

    /// Whether `entry` is in a list numbered below `lists`.
    fn is_below(&self, lists: u32, entry: Entry) -> bool;

    /// The list that `entry` is in.
    fn list_of(&self, entry: Entry) -> Option<u32>;

    /// The oldest entry of `list`.
    fn front(&self, list: u32) -> Option<Entry>;

    /// The entries of `list`, oldest first.
    fn iter(&self, list: u32) -> impl Iterator<Item = Entry>;

    /// Puts an entry that is in no list at the newest end of `list`.
    fn push(&mut self, list: u32, entry: Entry);

    /// Takes the oldest entry out of `list`.
    fn pop(&mut self, list: u32) -> Option<Entry>;

    /// Takes an entry out of whichever list it is in.
    fn remove(&mut self, entry: Entry);

    /// Moves an entry of `list` to its newest end.
    fn renew(&mut self, list: u32, entry: Entry);

    /// Moves an entry to the newest end of `list`, wherever it was.
    #[inline(always)]
    fn shift(&mut self, list: u32, entry: Entry) {
        self.remove(entry);
        self.push(list, entry);
    }

    /// See [`Policy::warm`](super::Policy::warm).
    fn warm(&self, entry: Entry) -> u32;

    /// See [`Policy::warm_further`](super::Policy::warm_further).
    fn warm_further(&self, entry: Entry) -> u32;

    /// Checks the invariants.
    fn check(&self) -> Result<(), String>;

    /// Moves the oldest resident entry of `list` to the newest end of the list `ghosts`.
    #[inline(always)]
    fn evict(&mut self, list: u32, ghosts: u32, out: &mut Departures) {
        if let Some(victim) = self.pop(list) {
            self.push(ghosts, victim);
            out.push(victim, Fate::Remembered);
        }
    }

    /// Moves a resident entry, wherever it is, to the newest end of the list `ghosts`.
    fn evict_this(&mut self, entry: Entry, ghosts: u32, out: &mut Departures) {
        self.remove(entry);
        self.push(ghosts, entry);
        out.push(entry, Fate::Remembered);
    }

    /// Drops the oldest entry of the list `ghosts`.
    #[inline(always)]
    fn forget(&mut self, ghosts: u32, out: &mut Departures) {
        if let Some(ghost) = self.pop(ghosts) {
            out.push(ghost, Fate::Forgotten);
        }
    }

    /// Of the order where `first` gives up what it has too much, then `second` all that it has,
    /// then `first` the rest: the entry that the neighbour holds, if one is to be preferred to the
    /// next.
    #[inline(always)]
    fn prefer(&mut self, _first: u32, _too_much: u32, _second: u32) -> Option<Entry> {
        None
    }

    /// What [`prefer`](Self::prefer) would return, found without changing anything.
    fn would_prefer(&self, _first: u32, _too_much: u32, _second: u32) -> Option<Entry> {
        None
    }

    /// See [`Neighbour::adopt`].
    fn adopt(&mut self, _capacity: u32) {}

    /// See [`Neighbour::learn`].
    fn learn(&mut self, _entry: Entry, _holds: bool) {}

    /// See [`Neighbour::has`].
    fn neighbour_has(&self, _entry: Entry) -> bool {
        false
    }

    /// Carries `list`.
    fn carry(&mut self, list: u32, memo: &mut Memo<'_>) -> Carried {
        let saved = self.iter(list).map(|entry| (entry, ()));
        for (entry, ()) in memo.sequence(self.len(list), saved, |_, ()| Ok(()))? {
            if self.list_of(entry).is_some() {
                return Err(Refused::twice(entry));
            }
            self.push(list, entry);
        }
        Ok(())
    }

    /// The entries of `list`, oldest first, as text.
    fn text(&self, list: u32) -> String {
        format!("{:?}", self.iter(list).collect::<Vec<_>>())
    }
}

/// `place` of an entry in no list. In list `l` it is `(l + 1) << 1`, plus the mark.
const NOWHERE: u8 = 0;
const MARK: u8 = 1;

/// Linked lists over entries, with a mark an entry, which goes when the entry is put elsewhere.
#[derive(Clone)]
pub(crate) struct Queues<N = Alone> {
    lists: Lists,
    place: Vec<u8>,
    neighbour: N,
}

#[inline(always)]
fn place_in(list: u32) -> u8 {
    (list as u8 + 1) << 1
}

impl<N: Neighbour> Queues<N> {
    /// `lists` empty lists over no entries yet.
    pub(crate) fn new(lists: u32, neighbour: N) -> Self {
        Self { lists: Lists::new(lists), place: Vec::new(), neighbour }
    }

    /// Marks an entry that is in some list, until it is put elsewhere or unmarked.
    #[inline(always)]
    pub(crate) fn mark(&mut self, entry: Entry) {
        self.place[entry as usize] |= MARK;
    }

    #[inline(always)]
    pub(crate) fn is_marked(&self, entry: Entry) -> bool {
        self.place[entry as usize] & MARK != 0
    }

    #[inline(always)]
    pub(crate) fn back(&self, list: u32) -> Option<Entry> {
        self.lists.back(list)
    }

    /// The order that [`prefer`](Orders::prefer) names.
    fn order(&self, first: u32, too_much: u32, second: u32) -> [Stretch; 3] {
        balance(&self.lists, first, too_much, second)
    }

    /// Carries `list` with the marks in it.
    pub(crate) fn carry_marked(&mut self, list: u32, memo: &mut Memo<'_>) -> Carried {
        let saved = self.iter(list).map(|entry| (entry, self.is_marked(entry)));
        for (entry, mark) in memo.sequence(self.len(list), saved, Memo::flag)? {
            if self.list_of(entry).is_some() {
                return Err(Refused::twice(entry));
            }
            self.push(list, entry);
            self.place[entry as usize] |= u8::from(mark);
        }
        Ok(())
    }
}

impl<N: Neighbour> Orders for Queues<N> {
    const IS_AWARE: bool = N::IS_KNOWN;

    fn grow(&mut self, entries: u32) {
        self.lists.grow(entries);
        self.place.resize(self.lists.entries() as usize, NOWHERE);
        self.neighbour.grow(entries);
    }

    #[inline(always)]
    fn len(&self, list: u32) -> u32 {
        self.lists.len(list)
    }

    #[inline(always)]
    fn is_in(&self, list: u32, entry: Entry) -> bool {
        self.place[entry as usize] & !MARK == place_in(list)
    }

    #[inline(always)]
    fn is_below(&self, lists: u32, entry: Entry) -> bool {
        // NOWHERE wraps around to the largest value.
        self.place[entry as usize].wrapping_sub(place_in(0)) < place_in(lists) - place_in(0)
    }

    #[inline(always)]
    fn list_of(&self, entry: Entry) -> Option<u32> {
        u32::from(self.place[entry as usize] >> 1).checked_sub(1)
    }

    #[inline(always)]
    fn front(&self, list: u32) -> Option<Entry> {
        self.lists.front(list)
    }

    fn iter(&self, list: u32) -> impl Iterator<Item = Entry> {
        self.lists.iter(list)
    }

    /// It is unmarked.
    #[inline(always)]
    fn push(&mut self, list: u32, entry: Entry) {
        self.lists.push_back(list, entry);
        self.place[entry as usize] = place_in(list);
    }

    #[inline(always)]
    fn pop(&mut self, list: u32) -> Option<Entry> {
        let oldest = self.lists.front(list)?;
        self.neighbour.leaves(&self.lists, oldest);
        self.lists.remove(list, oldest);
        self.place[oldest as usize] = NOWHERE;
        Some(oldest)
    }

    #[inline(always)]
    fn remove(&mut self, entry: Entry) {
        if let Some(list) = self.list_of(entry) {
            self.neighbour.leaves(&self.lists, entry);
            self.lists.remove(list, entry);
            self.place[entry as usize] = NOWHERE;
        }
    }

    /// It keeps its mark.
    #[inline(always)]
    fn renew(&mut self, list: u32, entry: Entry) {
        self.neighbour.leaves(&self.lists, entry);
        self.lists.move_to_back(list, entry);
    }

    /// See [`Lists::warm`]. Where a hit needs the place only the node still pays: for the misses.
    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.lists.warm(entry) ^ u32::from(self.place[entry as usize])
    }

    /// See [`Lists::warm_beside`].
    fn warm_further(&self, entry: Entry) -> u32 {
        self.lists.warm_beside(entry)
    }

    #[inline(always)]
    fn prefer(&mut self, first: u32, too_much: u32, second: u32) -> Option<Entry> {
        let order = self.order(first, too_much, second);
        self.neighbour.prefer(&self.lists, order.into_iter())
    }

    fn would_prefer(&self, first: u32, too_much: u32, second: u32) -> Option<Entry> {
        let order = self.order(first, too_much, second);
        self.neighbour.would_prefer(&self.lists, order.into_iter())
    }

    fn adopt(&mut self, capacity: u32) {
        self.neighbour.adopt(capacity);
    }

    fn learn(&mut self, entry: Entry, holds: bool) {
        self.neighbour.learn(&self.lists, entry, holds);
    }

    fn neighbour_has(&self, entry: Entry) -> bool {
        self.neighbour.has(entry)
    }

    fn check(&self) -> Result<(), String> {
        for list in 0..self.lists.count() {
            if let Some(entry) = self.iter(list).find(|&e| !self.is_in(list, e)) {
                return Err(format!("entry {entry} is in list {list} and says it is elsewhere"));
            }
        }
        let wrong = (0..self.lists.entries()).find(|&e| {
            self.lists.linked(e) != self.list_of(e).is_some()
                || (self.is_marked(e) && self.list_of(e).is_none())
        });
        match wrong {
            Some(entry) => Err(format!("entry {entry}: place and lists disagree")),
            None => self.neighbour.check(&self.lists).and_then(|()| self.lists.check()),
        }
    }
}

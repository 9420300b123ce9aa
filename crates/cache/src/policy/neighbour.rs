//! Content awareness: of the next victims of a policy, the first that the neighbouring cache holds
//! goes. Its copy is only a round trip away, while the last copy costs a disk read.
//!
//! A policy that can do this says in which order its entries would leave, as stretches of its
//! lists, and asks its [`Neighbour`] for one to prefer. [`Alone`] never names one and is compiled
//! away; [`Held`] looks at the first entries of that order, as many as its window has.
//!
//! `Held` would look at the same entries again at every miss. But entries enter a list at its back
//! only: so the first entries of a list that were looked at once need no second look until one of
//! them leaves, or becomes held. A list's search goes on where it ended, and costs O(1) a reference
//! amortised, however large the window is.
//!
//! Not here: the parameters of such a policy (`awareness.rs`), and how it becomes known what the
//! neighbour holds (`content/`).
//!
//! Invariants (checked by [`Held::check`]): the entries whose mark names a list are the first
//! `searched` of that list, up to `last`, and none of them is held.

use super::Entry;
use crate::lists::Lists;

/// What a policy asks before it evicts.
pub(crate) trait Neighbour: Clone + Send + 'static {
    /// Whether there is a neighbour to know of.
    const IS_KNOWN: bool;

    /// Makes handles below `entries` valid.
    fn grow(&mut self, entries: u32);

    /// Adopts another capacity.
    fn adopt(&mut self, capacity: u32);

    /// A linked entry is about to leave its place in its list.
    fn leaves<T: Copy + Default>(&mut self, lists: &Lists<T>, entry: Entry);

    /// The neighbour holds an entry from now on, or no longer.
    fn learn<T: Copy + Default>(&mut self, lists: &Lists<T>, entry: Entry, holds: bool);

    /// Notes whether the neighbour holds an entry, for a policy that never calls
    /// [`prefer`](Self::prefer).
    fn mark(&mut self, entry: Entry, holds: bool);

    /// Whether the neighbour holds an entry, as far as was said.
    fn has(&self, entry: Entry) -> bool;

    /// How many of the next victims are looked at.
    fn window(&self) -> u32;

    /// The first entry that the neighbour holds, in this order and within the window.
    fn prefer<T: Copy + Default>(
        &mut self,
        lists: &Lists<T>,
        order: impl Iterator<Item = Stretch>,
    ) -> Option<Entry>;

    /// What [`prefer`](Self::prefer) would return, found by looking at every entry again, without
    /// changing anything.
    fn would_prefer<T: Copy + Default>(
        &self,
        lists: &Lists<T>,
        order: impl Iterator<Item = Stretch>,
    ) -> Option<Entry> {
        let entries = order.flat_map(|part| {
            lists.iter(part.list).skip(part.from as usize).take((part.to - part.from) as usize)
        });
        self.first_held(entries, |_| true)
    }

    /// The first of these, within the window, that may go and that the neighbour holds.
    fn first_held(
        &self,
        entries: impl Iterator<Item = Entry>,
        may_go: impl Fn(Entry) -> bool,
    ) -> Option<Entry>;

    /// Checks the invariants in the head of this file.
    fn check<T: Copy + Default>(&self, lists: &Lists<T>) -> Result<(), String>;
}

/// The entries `from..to` of a list, counted from its front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    list: u32,
    from: u32,
    to: u32,
}

/// All of a list.
pub(super) fn whole<T: Copy + Default>(lists: &Lists<T>, list: u32) -> Stretch {
    Stretch { list, from: 0, to: lists.len(list) }
}

/// The order of two lists of which the first gives up what it has too much, then the second all
/// that it has, then the first the rest.
pub(super) fn balance<T: Copy + Default>(
    lists: &Lists<T>,
    first: u32,
    too_much: u32,
    second: u32,
) -> [Stretch; 3] {
    let all = whole(lists, first);
    let too_much = too_much.min(all.to);
    let excess = Stretch { to: too_much, ..all };
    let rest = Stretch { from: too_much, ..all };
    [excess, whole(lists, second), rest]
}

/// No neighbour: what policies are by themselves.
#[derive(Clone, Copy)]
pub(crate) struct Alone;

impl Neighbour for Alone {
    const IS_KNOWN: bool = false;

    #[inline(always)]
    fn grow(&mut self, _: u32) {}

    #[inline(always)]
    fn adopt(&mut self, _: u32) {}

    #[inline(always)]
    fn leaves<T: Copy + Default>(&mut self, _: &Lists<T>, _: Entry) {}

    fn learn<T: Copy + Default>(&mut self, _: &Lists<T>, _: Entry, _: bool) {}

    fn mark(&mut self, _: Entry, _: bool) {}

    fn has(&self, _: Entry) -> bool {
        false
    }

    fn window(&self) -> u32 {
        0
    }

    #[inline(always)]
    fn prefer<T: Copy + Default>(
        &mut self,
        _: &Lists<T>,
        _: impl Iterator<Item = Stretch>,
    ) -> Option<Entry> {
        None
    }

    #[inline(always)]
    fn first_held(
        &self,
        _: impl Iterator<Item = Entry>,
        _: impl Fn(Entry) -> bool,
    ) -> Option<Entry> {
        None
    }

    fn check<T: Copy + Default>(&self, _: &Lists<T>) -> Result<(), String> {
        Ok(())
    }
}

/// The mark of an entry that the neighbour holds. One that was searched in list `l` has
/// `(l + 1) << 1`; no entry is both.
const HELD: u8 = 1;
const UNSEARCHED: u8 = 0;

fn searched_in(list: u32) -> u8 {
    (list as u8 + 1) << 1
}

/// How far a list was searched in vain.
#[derive(Clone, Copy, Default)]
struct Search {
    searched: u32,
    last: Option<Entry>,
}

/// A neighbour of which it is known, entry by entry, what it holds.
#[derive(Clone)]
pub(super) struct Held {
    alpha: f64,
    window: u32,
    marks: Vec<u8>,
    searches: Vec<Search>,
}

impl Held {
    /// For a cache of `capacity` entries, of whose next victims the share `alpha` is looked at, and
    /// one at least.
    pub(super) fn new(alpha: f64, capacity: u32) -> Self {
        let mut held = Self { alpha, window: 1, marks: Vec::new(), searches: Vec::new() };
        held.adopt(capacity);
        held
    }

    /// Searches the first `to` entries of a list, going on where the last search ended.
    #[inline(always)]
    fn search<T: Copy + Default>(&mut self, lists: &Lists<T>, list: u32, to: u32) -> Option<Entry> {
        if self.searches.len() <= list as usize {
            self.searches.resize(list as usize + 1, Search::default());
        }
        let search = &mut self.searches[list as usize];
        while search.searched < to {
            let next = search.last.map_or_else(|| lists.front(list), |last| lists.next(last));
            let Some(entry) = next else { break };
            let mark = &mut self.marks[entry as usize];
            if *mark == HELD {
                return next;
            }
            *mark = searched_in(list);
            search.searched += 1;
            search.last = next;
        }
        None
    }

    /// Takes back the search of a list from a searched entry on.
    fn take_back<T: Copy + Default>(&mut self, lists: &Lists<T>, list: u32, from: Entry) {
        let search = &mut self.searches[list as usize];
        let mut at = search.last;
        search.last = lists.prev(from);
        while let Some(entry) = at {
            self.marks[entry as usize] = UNSEARCHED;
            search.searched -= 1;
            if entry == from {
                return;
            }
            at = lists.prev(entry);
        }
    }
}

impl Neighbour for Held {
    const IS_KNOWN: bool = true;

    fn grow(&mut self, entries: u32) {
        self.marks.resize(self.marks.len().max(entries as usize), UNSEARCHED);
    }

    fn adopt(&mut self, capacity: u32) {
        self.window = ((self.alpha * f64::from(capacity)).ceil() as u32).max(1);
    }

    #[inline(always)]
    fn leaves<T: Copy + Default>(&mut self, lists: &Lists<T>, entry: Entry) {
        let mark = &mut self.marks[entry as usize];
        if *mark > HELD {
            let search = &mut self.searches[(*mark >> 1) as usize - 1];
            *mark = UNSEARCHED;
            search.searched -= 1;
            if search.last == Some(entry) {
                search.last = lists.prev(entry);
            }
        }
    }

    fn learn<T: Copy + Default>(&mut self, lists: &Lists<T>, entry: Entry, holds: bool) {
        let mark = self.marks[entry as usize];
        if holds && mark > HELD {
            self.take_back(lists, u32::from(mark >> 1) - 1, entry);
        }
        self.mark(entry, holds);
    }

    fn mark(&mut self, entry: Entry, holds: bool) {
        let mark = &mut self.marks[entry as usize];
        if holds {
            *mark = HELD;
        } else if *mark == HELD {
            *mark = UNSEARCHED;
        }
    }

    fn has(&self, entry: Entry) -> bool {
        self.marks[entry as usize] == HELD
    }

    fn window(&self) -> u32 {
        self.window
    }

    #[inline(always)]
    fn prefer<T: Copy + Default>(
        &mut self,
        lists: &Lists<T>,
        order: impl Iterator<Item = Stretch>,
    ) -> Option<Entry> {
        let mut left = self.window;
        for part in order {
            let count = (part.to - part.from).min(left);
            if let Some(entry) = self.search(lists, part.list, part.from + count) {
                return Some(entry);
            }
            left -= count;
            if left == 0 {
                break;
            }
        }
        None
    }

    fn first_held(
        &self,
        entries: impl Iterator<Item = Entry>,
        may_go: impl Fn(Entry) -> bool,
    ) -> Option<Entry> {
        let mut first = entries.take(self.window as usize);
        first.find(|&entry| self.marks[entry as usize] == HELD && may_go(entry))
    }

    fn check<T: Copy + Default>(&self, lists: &Lists<T>) -> Result<(), String> {
        let mut marked = self.marks.iter().filter(|&&mark| mark > HELD).count();
        for (list, search) in (0..).zip(&self.searches) {
            let searched: Vec<_> = lists.iter(list).take(search.searched as usize).collect();
            let right = |&e: &Entry| self.marks[e as usize] == searched_in(list);
            if !searched.iter().all(right) || searched.last() != search.last.as_ref() {
                return Err(format!("list {list}: searched {searched:?}, last {:?}", search.last));
            }
            marked -= searched.len().min(marked);
        }
        if marked == 0 { Ok(()) } else { Err(format!("{marked} marked, but not searched")) }
    }
}

//! CAR: ARC with clocks in place of its two LRU lists, so that a hit only sets a bit.
//!
//! The hand of each clock is the front of its list. A page of T1 that was referenced since it came
//! moves to T2 when the hand meets it. Pages leave T1 and T2 for the ghost lists B1 and B2, whose
//! hits move the target size `p` of T1 as in ARC.
//!
//! Deviation: the directory is kept within its bounds at every miss of an unknown page and not only
//! when the cache is full, since `take` makes ghosts while it makes room.
//!
//! Invariants: those of the directory; a page's reference bit is its mark, and ghosts have none.

use super::directory::{B1, B2, Directory, RESIDENT, T1, T2, ghosts_of};
use super::neighbour::Alone;
use super::queues::{Orders, Queues};
use super::registry::PolicyInfo;
use super::{Departures, Entry, Policy};
use crate::memo::{Carried, Memo};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "car",
    aliases: &[],
    summary: "ARC with clocks: hits only set a bit",
    source: "Bansal & Modha, FAST 2004",
    parameters: &[],
    build: |_, context| {
        let lists = Queues::new(4, Alone);
        Ok(Box::new(Car { directory: Directory::new(context.capacity, lists) }))
    },
};

#[derive(Clone)]
struct Car {
    /// Front of each clock: at the hand.
    directory: Directory,
}

impl Car {
    /// Whether T1, with `t1` pages, has its turn under the hand.
    #[inline(always)]
    fn takes_t1(&self, t1: u32) -> bool {
        f64::from(t1) >= self.directory.p.max(1.0)
    }

    /// "replace" of the paper: frees one frame.
    fn replace(&mut self, out: &mut Departures) {
        loop {
            let lists = &self.directory.lists;
            let t1_turn = self.takes_t1(lists.len(T1));
            let clock = if t1_turn { T1 } else { T2 };
            let Some(at_hand) = lists.front(clock) else { return };
            if !lists.is_marked(at_hand) {
                self.directory.lists.evict(clock, ghosts_of(clock), out);
                return;
            }
            self.directory.lists.shift(T2, at_hand);
        }
    }

    /// Makes `entry` resident; a hit in a ghost list moves `p` if it `counts` as a reference.
    #[inline(always)]
    fn insert(&mut self, entry: Entry, counts: bool, out: &mut Departures) {
        if self.directory.is_full() {
            self.replace(out);
        }
        let Some(ghosts) = self.directory.lists.list_of(entry) else {
            self.directory.make_room_for_unknown(out);
            self.directory.lists.push(T1, entry);
            return;
        };
        if counts {
            self.directory.adapt(ghosts, false);
        }
        self.directory.lists.shift(T2, entry);
    }
}

impl Policy for Car {
    fn capacity(&self) -> u32 {
        self.directory.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.directory.resident()
    }

    fn grow(&mut self, entries: u32) {
        self.directory.lists.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.directory.contains(entry)
    }

    #[inline(always)]
    fn remembers(&self, entry: Entry) -> bool {
        self.directory.remembers(entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Departures) {
        self.directory.lists.mark(entry);
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        self.insert(entry, true, out);
    }

    fn take(&mut self, entry: Entry, _: &mut Departures) {
        self.directory.take(entry);
    }

    fn place(&mut self, entry: Entry, out: &mut Departures) {
        if !self.contains(entry) {
            self.insert(entry, false, out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        self.directory.lists.remove(entry);
    }

    /// Turns the hands without moving anything: T1 gives marked pages to T2 until one is unmarked
    /// or T1 is down to its target; then T2's hand goes around, over those pages last. O(capacity)
    /// at worst.
    fn victim(&self) -> Option<Entry> {
        if !self.directory.is_full() {
            return None;
        }
        let lists = &self.directory.lists;
        let mut t1 = lists.len(T1);
        for at_hand in lists.iter(T1) {
            if !self.takes_t1(t1) {
                break;
            }
            if !lists.is_marked(at_hand) {
                return Some(at_hand);
            }
            t1 -= 1;
        }
        let unmarked = lists.iter(T2).find(|&e| !lists.is_marked(e));
        let moved = lists.front(T1).filter(|_| t1 < lists.len(T1));
        unmarked.or(moved).or(lists.front(T2))
    }

    fn resize(&mut self, capacity: u32, out: &mut Departures) {
        self.directory.resize(capacity, out);
        while self.len() > capacity {
            self.replace(out);
            self.directory.fit(out);
        }
    }

    /// T1, then T2, from the hand on.
    fn residents(&self) -> Vec<Entry> {
        self.directory.residents()
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.directory.lists.warm(entry)
    }

    fn carry(&mut self, memo: &mut Memo<'_>) -> Carried {
        self.directory.carry(memo, |lists, list, memo| match list {
            ..RESIDENT => lists.carry_marked(list, memo),
            _ => lists.carry(list, memo),
        })
    }

    fn validate(&self) -> Result<(), String> {
        let lists = &self.directory.lists;
        if lists.iter(B1).chain(lists.iter(B2)).any(|ghost| lists.is_marked(ghost)) {
            return Err("a ghost is marked".into());
        }
        self.directory.validate()
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let lists = &self.directory.lists;
        let with_bits = |clock| {
            let page = |e| (e, u8::from(lists.is_marked(e)));
            format!("{:?}", lists.iter(clock).map(page).collect::<Vec<_>>())
        };
        vec![
            ("T1", with_bits(T1)),
            ("T2", with_bits(T2)),
            ("B1", lists.text(B1)),
            ("B2", lists.text(B2)),
            ("p", format!("{:?}", self.directory.p)),
        ]
    }
}

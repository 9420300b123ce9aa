//! CAR: ARC with clocks in place of its two LRU lists, so that a hit only sets a bit.
//!
//! The hand of each clock is the front of its list. A page of T1 that was referenced since the hand
//! came by last moves to T2; T1 and T2 leave for the ghost lists B1 and B2, whose hits move the
//! target size `p` of T1 as in ARC.
//!
//! Deviation: the directory is kept within its bounds at every miss of an unknown page and not only
//! when the cache is full, since `take` makes ghosts while it makes room.
//!
//! Invariants: `|T1| + |T2|` and `|T1| + |B1|` are at most the capacity, all four lists together at
//! most twice; 0 <= p <= capacity; only resident pages have their bit (the mark) set.

use super::queues::Queues;
use super::registry::PolicyInfo;
use super::{Departures, Entry, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "car",
    aliases: &[],
    summary: "ARC with clocks: hits only set a bit",
    source: "Bansal & Modha, FAST 2004",
    parameters: &[],
    build: |_, context| {
        Ok(Box::new(Car { capacity: context.capacity, p: 0.0, lists: Queues::new(4) }))
    },
};

const T1: u32 = 0;
const T2: u32 = 1;
const B1: u32 = 2;
const B2: u32 = 3;
const RESIDENT: u32 = 2;

struct Car {
    capacity: u32,
    /// Target size of T1.
    p: f64,
    /// Front: at the hand, or the oldest ghost.
    lists: Queues,
}

impl Car {
    /// Whether T1, with `t1` pages, has its turn under the hand.
    #[inline(always)]
    fn takes_t1(&self, t1: u32) -> bool {
        f64::from(t1) >= self.p.max(1.0)
    }

    /// "replace" of the paper: frees one frame.
    fn replace(&mut self, out: &mut Departures) {
        loop {
            let t1_turn = self.takes_t1(self.lists.len(T1));
            let (clock, ghosts) = if t1_turn { (T1, B1) } else { (T2, B2) };
            let Some(at_hand) = self.lists.front(clock) else { return };
            if !self.lists.is_marked(at_hand) {
                self.lists.evict(clock, ghosts, out);
                return;
            }
            self.lists.remove(at_hand);
            self.lists.push(T2, at_hand);
        }
    }

    /// Makes room in the directory for a page that it does not know.
    #[inline(always)]
    fn make_room_in_directory(&mut self, out: &mut Departures) {
        if self.lists.len(T1) + self.lists.len(B1) == self.capacity {
            self.lists.forget(B1, out);
        } else if u64::from(self.total()) == 2 * u64::from(self.capacity) {
            self.lists.forget(B2, out);
        }
    }

    /// Makes `entry` resident; a hit in a ghost list moves `p` if it `counts` as a reference.
    #[inline(always)]
    fn insert(&mut self, entry: Entry, counts: bool, out: &mut Departures) {
        if self.len() == self.capacity {
            self.replace(out);
        }
        let Some(ghosts) = self.lists.list_of(entry) else {
            self.make_room_in_directory(out);
            self.lists.push(T1, entry);
            return;
        };
        if counts {
            self.adapt(ghosts);
        }
        self.lists.remove(entry);
        self.lists.push(T2, entry);
    }

    /// Moves `p` for a reference to an entry of the list `ghosts`.
    fn adapt(&mut self, ghosts: u32) {
        let (b1, b2) = (f64::from(self.lists.len(B1)), f64::from(self.lists.len(B2)));
        self.p = if ghosts == B1 {
            (self.p + (b2 / b1).max(1.0)).min(f64::from(self.capacity))
        } else {
            (self.p - (b1 / b2).max(1.0)).max(0.0)
        };
    }

    fn total(&self) -> u32 {
        (T1..=B2).map(|list| self.lists.len(list)).sum()
    }

    /// Drops ghosts until the directory is within its bounds, as far as ghosts can help.
    fn fit(&mut self, out: &mut Departures) {
        let c = self.capacity;
        while self.lists.len(B1) > 0 && self.lists.len(T1) + self.lists.len(B1) > c {
            self.lists.forget(B1, out);
        }
        while self.lists.len(B2) > 0 && u64::from(self.total()) > 2 * u64::from(c) {
            self.lists.forget(B2, out);
        }
    }
}

impl Policy for Car {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.lists.len(T1) + self.lists.len(T2)
    }

    fn grow(&mut self, entries: u32) {
        self.lists.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.lists.is_below(RESIDENT, entry)
    }

    #[inline(always)]
    fn remembers(&self, entry: Entry) -> bool {
        self.lists.is_in(B1, entry) || self.lists.is_in(B2, entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry) {
        self.lists.mark(entry);
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        self.insert(entry, true, out);
    }

    fn take(&mut self, entry: Entry, _: &mut Departures) {
        if self.contains(entry) {
            let ghosts = if self.lists.is_in(T1, entry) { B1 } else { B2 };
            self.lists.remove(entry);
            self.lists.push(ghosts, entry);
        }
    }

    fn place(&mut self, entry: Entry, out: &mut Departures) {
        if !self.contains(entry) {
            self.insert(entry, false, out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        self.lists.remove(entry);
    }

    /// Turns the hands without moving anything: T1 gives marked pages to T2 until one is unmarked
    /// or T1 is down to its target; then T2's hand goes around, over those pages last. O(capacity)
    /// at worst.
    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        let mut t1 = self.lists.len(T1);
        for at_hand in self.lists.iter(T1) {
            if !self.takes_t1(t1) {
                break;
            }
            if !self.lists.is_marked(at_hand) {
                return Some(at_hand);
            }
            t1 -= 1;
        }
        let unmarked = self.lists.iter(T2).find(|&e| !self.lists.is_marked(e));
        let moved = self.lists.front(T1).filter(|_| t1 < self.lists.len(T1));
        unmarked.or(moved).or(self.lists.front(T2))
    }

    fn resize(&mut self, capacity: u32, out: &mut Departures) {
        self.capacity = capacity;
        self.p = self.p.min(f64::from(capacity));
        self.fit(out);
        while self.len() > capacity {
            self.replace(out);
            self.fit(out);
        }
    }

    /// T1, then T2, from the hand on.
    fn residents(&self) -> Vec<Entry> {
        self.lists.iter(T1).chain(self.lists.iter(T2)).collect()
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.lists.warm_place(entry)
    }

    fn validate(&self) -> Result<(), String> {
        let (c, t1) = (self.capacity, self.lists.len(T1));
        let total = u64::from(self.total());
        if self.len() > c || t1 + self.lists.len(B1) > c || total > 2 * u64::from(c) {
            return Err("more resident or remembered than allowed".into());
        }
        if !(0.0..=f64::from(c)).contains(&self.p) {
            return Err(format!("target {} for a capacity of {c}", self.p));
        }
        if self.lists.iter(B1).chain(self.lists.iter(B2)).any(|e| self.lists.is_marked(e)) {
            return Err("a ghost has its bit set".into());
        }
        self.lists.check()
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let with_bits = |clock| {
            let page = |e| (e, u8::from(self.lists.is_marked(e)));
            format!("{:?}", self.lists.iter(clock).map(page).collect::<Vec<_>>())
        };
        vec![
            ("T1", with_bits(T1)),
            ("T2", with_bits(T2)),
            ("B1", self.lists.text(B1)),
            ("B2", self.lists.text(B2)),
            ("p", format!("{:?}", self.p)),
        ]
    }
}

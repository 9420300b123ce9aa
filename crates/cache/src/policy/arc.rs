//! ARC: two LRU lists, of blocks referenced once (T1) and more often (T2) lately, with a ghost list
//! behind each (B1, B2). A reference to a ghost says which of the two should have been larger, and
//! moves the target size `p` of T1.
//!
//! The paper's `p` is a real number, and so is ours. Many implementations, among them those that
//! published comparisons use, cut the step |B2|/|B1| to a whole number: `step=whole`.
//!
//! Deviations: nothing is replaced while there is room (`take` and `discard` leave some, the paper
//! knows neither); where T2 has nothing to give, T1 gives.
//!
//! Invariants: `|T1| + |T2|` and `|T1| + |B1|` are at most the capacity, all four lists together at
//! most twice; 0 <= p <= capacity.

use super::queues::Queues;
use super::registry::{Kind, Parameter, PolicyInfo};
use super::{Departures, Entry, Fate, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "arc",
    aliases: &[],
    summary: "recency and frequency lists balanced by hits in their ghosts",
    source: "Megiddo & Modha, FAST 2003",
    parameters: &[Parameter {
        name: "step",
        kind: Kind::Word(&["real", "whole"]),
        default: "real",
        help: "how far a hit in a ghost list moves the target: as published, or cut to a whole \
               number as many implementations do",
    }],
    build: |arguments, context| {
        Ok(Box::new(Arc {
            capacity: context.capacity,
            whole_steps: arguments.word("step") == "whole",
            p: 0.0,
            lists: Queues::new(4),
        }))
    },
};

const T1: u32 = 0;
const T2: u32 = 1;
const B1: u32 = 2;
const B2: u32 = 3;
const RESIDENT: u32 = 2;

struct Arc {
    capacity: u32,
    whole_steps: bool,
    /// Target size of T1.
    p: f64,
    /// Front: least recently used.
    lists: Queues,
}

impl Arc {
    /// Moves `p` for a reference to an entry of the ghost list `hit`, whose opposite is `other`.
    fn adapt(&mut self, hit: u32, other: u32) {
        let ratio = f64::from(self.lists.len(other)) / f64::from(self.lists.len(hit));
        let step = if self.whole_steps { ratio.floor() } else { ratio }.max(1.0);
        self.p = if hit == B1 {
            (self.p + step).min(f64::from(self.capacity))
        } else {
            (self.p - step).max(0.0)
        };
    }

    /// The list that REPLACE takes from.
    #[inline(always)]
    fn victim_list(&self, for_b2: bool) -> u32 {
        let t1 = f64::from(self.lists.len(T1));
        let t1_is_over = t1 > self.p || (for_b2 && t1 == self.p);
        let t1_gives = t1 > 0.0 && (t1_is_over || self.lists.len(T2) == 0);
        if t1_gives { T1 } else { T2 }
    }

    /// REPLACE of the paper.
    #[inline(always)]
    fn replace(&mut self, for_b2: bool, out: &mut Departures) {
        if self.victim_list(for_b2) == T1 {
            self.lists.evict(T1, B1, out);
        } else {
            self.lists.evict(T2, B2, out);
        }
    }

    /// Makes room for an entry that no list holds: cases IV A and B of the paper.
    #[inline(always)]
    fn make_room(&mut self, out: &mut Departures) {
        let (c, t1) = (self.capacity, self.lists.len(T1));
        if t1 == c {
            if let Some(victim) = self.lists.pop(T1) {
                out.push(victim, Fate::Evicted);
            }
            return;
        }
        if t1 + self.lists.len(B1) == c {
            self.lists.forget(B1, out);
        } else if u64::from(self.total()) == 2 * u64::from(c) {
            self.lists.forget(B2, out);
        }
        if self.len() == c {
            self.replace(false, out);
        }
    }

    /// Puts `entry` where a reference that was not foreseen puts it, without moving `p`.
    #[inline(always)]
    fn insert(&mut self, entry: Entry, out: &mut Departures) {
        let Some(ghosts) = self.lists.list_of(entry) else {
            self.make_room(out);
            self.lists.push(T1, entry);
            return;
        };
        self.lists.remove(entry);
        if self.len() == self.capacity {
            self.replace(ghosts == B2, out);
        }
        self.lists.push(T2, entry);
    }

    fn total(&self) -> u32 {
        (T1..=B2).map(|list| self.lists.len(list)).sum()
    }

    /// Drops ghosts until the lists are within their bounds, as far as ghosts can help.
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

impl Policy for Arc {
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
        if self.lists.is_in(T2, entry) {
            self.lists.renew(T2, entry);
        } else {
            self.lists.remove(entry);
            self.lists.push(T2, entry);
        }
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        match self.lists.list_of(entry) {
            Some(B1) => self.adapt(B1, B2),
            Some(B2) => self.adapt(B2, B1),
            _ => {}
        }
        self.insert(entry, out);
    }

    fn take(&mut self, entry: Entry, _: &mut Departures) {
        if self.contains(entry) {
            let ghosts = if self.lists.is_in(T1, entry) { B1 } else { B2 };
            self.lists.remove(entry);
            self.lists.push(ghosts, entry);
        }
    }

    fn place(&mut self, entry: Entry, out: &mut Departures) {
        match self.lists.list_of(entry) {
            Some(list @ (T1 | T2)) => self.lists.renew(list, entry),
            _ => self.insert(entry, out),
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        self.lists.remove(entry);
    }

    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        self.lists.front(self.victim_list(false))
    }

    fn resize(&mut self, capacity: u32, out: &mut Departures) {
        self.capacity = capacity;
        self.p = self.p.min(f64::from(capacity));
        self.fit(out);
        while self.len() > capacity {
            self.replace(false, out);
            self.fit(out);
        }
    }

    /// T1, then T2, least recently used first.
    fn residents(&self) -> Vec<Entry> {
        self.lists.iter(T1).chain(self.lists.iter(T2)).collect()
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.lists.warm(entry)
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
        self.lists.check()
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        vec![
            ("T1", self.lists.text(T1)),
            ("T2", self.lists.text(T2)),
            ("B1", self.lists.text(B1)),
            ("B2", self.lists.text(B2)),
            ("p", format!("{:?}", self.p)),
        ]
    }
}

//! 2Q, full version: a block must be referenced again after it has left a FIFO queue before it
//! may enter the LRU list of the main cache, so that scans and bursts pass by.
//!
//! A new block enters A1in; references while it is there are correlated and mean nothing. When it
//! leaves, its id is kept in A1out; a reference to it there takes it into Am. What leaves Am is not
//! remembered.
//!
//! Content-aware (`ca=yes`): the victims are looked at in the order in which "reclaim" would choose
//! them: what A1in has too much, then Am, then A1in.
//!
//! Deviation: where the paper would take a victim from an empty Am (a small cache of which A1in
//! has all), we take it from A1in.
//!
//! Invariants: `|A1in| + |Am|` is at most the capacity, `|A1out|` at most `kout_bound`.

use super::awareness::{ALPHA, CA, FILTER_BITS, HASHES, KNOWS, PUBLISH, held};
use super::logs::Logs;
use super::neighbour::Alone;
use super::queues::{Orders, Queues};
use super::registry::{Kind, Parameter, PolicyInfo};
use super::{Departures, Entry, Fate, Policy};
use crate::memo::{Carried, Memo};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "2q",
    aliases: &[("two-q", "")],
    summary: "a FIFO filter with a memory before the LRU list: resists scans",
    source: "Johnson & Shasha, VLDB 1994",
    parameters: &[
        Parameter {
            name: "kin",
            kind: Kind::Real(0.0, 1.0),
            default: "0.25",
            help: "size of the FIFO queue A1in, share of the capacity",
        },
        Parameter {
            name: "kout",
            kind: Kind::Real(0.0, 100.0),
            default: "0.5",
            help: "ids remembered in A1out, times the capacity",
        },
        CA,
        ALPHA,
        KNOWS,
        FILTER_BITS,
        HASHES,
        PUBLISH,
    ],
    build: |arguments, context| {
        let (kin, kout) = (arguments.real("kin"), arguments.real("kout"));
        let c = context.capacity;
        Ok(match held(arguments, c) {
            Some(held) => Box::new(TwoQ::new(c, kin, kout, Queues::new(3, held))),
            None if Logs::have_room_for(f64::from(c) * kout.max(1.0)) => {
                Box::new(TwoQ::new(c, kin, kout, Logs::new([2, 4, 2, 2])))
            }
            None => Box::new(TwoQ::new(c, kin, kout, Queues::new(3, Alone))),
        })
    },
};

/// FIFO, resident.
const A1IN: u32 = 0;
/// LRU, resident.
const AM: u32 = 1;
/// FIFO, ids only.
const A1OUT: u32 = 2;
const RESIDENT: u32 = 2;

#[derive(Clone)]
struct TwoQ<L> {
    capacity: u32,
    kin: f64,
    kout: f64,
    kin_target: u32,
    kout_bound: u32,
    queues: L,
}

impl<L: Orders> TwoQ<L> {
    /// A queue A1in of `kin` times the capacity, and `kout` times as many ids.
    fn new(capacity: u32, kin: f64, kout: f64, queues: L) -> Self {
        let mut policy = Self { capacity, kin, kout, kin_target: 0, kout_bound: 0, queues };
        policy.derive_sizes(capacity);
        policy
    }

    fn derive_sizes(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.kin_target = ((self.kin * f64::from(capacity)) as u32).max(1);
        self.kout_bound = ((self.kout * f64::from(capacity)) as u32).max(1);
        self.queues.adopt(capacity);
    }

    /// The queue that gives up its oldest block.
    #[inline(always)]
    fn victim_queue(&self) -> u32 {
        let a1in_is_over = self.queues.len(A1IN) > self.kin_target;
        if a1in_is_over || self.queues.len(AM) == 0 { A1IN } else { AM }
    }

    /// The paper's "reclaim": frees one frame.
    #[inline(always)]
    fn reclaim(&mut self, out: &mut Departures) {
        if L::IS_AWARE {
            if let Some(victim) = self.queues.prefer(A1IN, self.too_much(), AM) {
                self.reclaim_this(victim, out);
                return;
            }
        }
        if self.victim_queue() == A1IN {
            self.queues.evict(A1IN, A1OUT, out);
            self.trim_ghosts(out);
        } else if let Some(victim) = self.queues.pop(AM) {
            out.push(victim, Fate::Evicted);
        }
    }

    /// How many A1in would give, one after another, before Am would.
    fn too_much(&self) -> u32 {
        self.queues.len(A1IN).saturating_sub(self.kin_target)
    }

    fn reclaim_this(&mut self, victim: Entry, out: &mut Departures) {
        if self.queues.is_in(A1IN, victim) {
            self.queues.evict_this(victim, A1OUT, out);
            self.trim_ghosts(out);
        } else {
            self.queues.remove(victim);
            out.push(victim, Fate::Evicted);
        }
    }

    #[inline(always)]
    fn trim_ghosts(&mut self, out: &mut Departures) {
        while self.queues.len(A1OUT) > self.kout_bound {
            self.queues.forget(A1OUT, out);
        }
    }
}

impl<L: Orders> Policy for TwoQ<L> {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.queues.len(A1IN) + self.queues.len(AM)
    }

    fn grow(&mut self, entries: u32) {
        self.queues.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.queues.is_below(RESIDENT, entry)
    }

    #[inline(always)]
    fn remembers(&self, entry: Entry) -> bool {
        self.queues.is_in(A1OUT, entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Departures) {
        if self.queues.is_in(AM, entry) {
            self.queues.renew(AM, entry);
        }
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        let was_ghost = self.remembers(entry);
        if was_ghost {
            self.queues.remove(entry);
        }
        if self.len() == self.capacity {
            self.reclaim(out);
        }
        self.queues.push(if was_ghost { AM } else { A1IN }, entry);
    }

    fn take(&mut self, entry: Entry, out: &mut Departures) {
        if self.contains(entry) {
            self.queues.remove(entry);
            self.queues.push(A1OUT, entry);
            self.trim_ghosts(out);
        }
    }

    fn place(&mut self, entry: Entry, out: &mut Departures) {
        self.access(entry, out);
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        self.queues.remove(entry);
    }

    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        let preferred = self.queues.would_prefer(A1IN, self.too_much(), AM);
        preferred.or_else(|| self.queues.front(self.victim_queue()))
    }

    fn resize(&mut self, capacity: u32, out: &mut Departures) {
        self.derive_sizes(capacity);
        self.trim_ghosts(out);
        while self.len() > capacity {
            self.reclaim(out);
        }
    }

    /// A1in, then Am, oldest first.
    fn residents(&self) -> Vec<Entry> {
        self.queues.iter(A1IN).chain(self.queues.iter(AM)).collect()
    }

    fn asks_neighbour(&self) -> bool {
        L::IS_AWARE
    }

    fn neighbour_holds(&mut self, entry: Entry, holds: bool) {
        self.queues.learn(entry, holds);
    }

    fn neighbour_has(&self, entry: Entry) -> bool {
        self.queues.neighbour_has(entry)
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.queues.warm(entry)
    }

    fn warm_further(&self, entry: Entry) -> u32 {
        self.queues.warm_further(entry)
    }

    fn carry(&mut self, memo: &mut Memo<'_>) -> Carried {
        [A1IN, A1OUT, AM].into_iter().try_for_each(|list| self.queues.carry(list, memo))
    }

    fn validate(&self) -> Result<(), String> {
        if self.len() > self.capacity || self.queues.len(A1OUT) > self.kout_bound {
            return Err("more resident or remembered than allowed".into());
        }
        self.queues.check()
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        vec![
            ("a1in", self.queues.text(A1IN)),
            ("a1out", self.queues.text(A1OUT)),
            ("am_lru_to_mru", self.queues.text(AM)),
        ]
    }
}

//! CLOCK: FIFO in which a referenced block gets another turn.
//!
//! The ring is kept in its list form: the hand is the front, and passing an entry moves it to the
//! back. A new block enters just behind the hand with its counter at 0 (libCacheSim does the
//! same; others start at 1). With `bits` above 1 (generalised CLOCK) a hit counts up to
//! 2^bits - 1 and the hand counts down.
//!
//! Invariants: an entry is in the ring exactly if it is resident; its mark there is 1 + its
//! counter.

use super::neighbour::{Alone, Neighbour};
use super::registry::{Kind, Parameter, PolicyInfo};
use super::ring_search::Search;
use super::{Departures, Entry, Fate, Policy};
use crate::memo::{Carried, Memo, Refused};
use crate::ring::Ring;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "clock",
    aliases: &[],
    summary: "second chance: FIFO that spares what was referenced",
    source: "Corbato, MIT Project MAC 1968",
    parameters: &[Parameter {
        name: "bits",
        kind: Kind::Integer(1, 7),
        default: "1",
        help: "width of the reference counter",
    }],
    build: |arguments, context| {
        let bits = arguments.integer("bits") as u32;
        Ok(Box::new(Clock::new(context.capacity, bits, Alone)))
    },
};

#[derive(Clone)]
pub(super) struct Clock<N> {
    capacity: u32,
    /// Mark of an entry whose counter is full.
    max: u8,
    /// Front: at the hand.
    ring: Ring,
    neighbour: N,
    /// For what the neighbour holds, if there is one to know of.
    search: Search,
}

impl<N: Neighbour> Clock<N> {
    /// With counters of `bits` bits, at most 7.
    pub(super) fn new(capacity: u32, bits: u32, neighbour: N) -> Self {
        let (ring, search) = (Ring::new(), Search::default());
        Self { capacity, max: 1 << bits, ring, neighbour, search }
    }

    /// The first that the hand would not spare, and that the neighbour holds, found by looking at
    /// all again. O(capacity) at worst.
    fn would_prefer(&self) -> Option<Entry> {
        if !N::IS_KNOWN {
            return None;
        }
        self.neighbour.first_held(self.ring.iter(), |entry| self.ring.mark(entry) == 1)
    }

    /// An entry leaves from where it is; the hand stays.
    fn leave(&mut self, entry: Entry) {
        if N::IS_KNOWN {
            self.search.leaves(&self.ring, entry);
        }
        self.ring.remove(entry);
    }

    fn evict(&mut self, out: &mut Departures) {
        if N::IS_KNOWN {
            if let Some(victim) = self.search.prefer(&mut self.ring, &self.neighbour) {
                self.leave(victim);
                out.push(victim, Fate::Evicted);
                return;
            }
        }
        let mut passed = 0;
        while let Some(slot) = self.ring.front() {
            let mark = self.ring.mark_in(slot);
            if *mark == 1 {
                let victim = self.ring.entry_in(slot);
                self.ring.pop_front();
                out.push(victim, Fate::Evicted);
                break;
            }
            *mark -= u8::from(*mark > 1);
            self.ring.turn();
            passed += 1;
        }
        if N::IS_KNOWN {
            self.search.hand_passed(passed + 1);
        }
    }
}

impl<N: Neighbour> Policy for Clock<N> {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.ring.len()
    }

    fn grow(&mut self, entries: u32) {
        self.ring.grow(entries);
        self.neighbour.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.ring.contains(entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Departures) {
        let mark = self.ring.mark_in(self.ring.slot_of(entry));
        *mark += u8::from(*mark < self.max);
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        if self.len() == self.capacity {
            self.evict(out);
        }
        self.ring.push_back(entry, 1, self.capacity);
    }

    fn take(&mut self, entry: Entry, out: &mut Departures) {
        self.discard(entry, out);
    }

    fn place(&mut self, entry: Entry, out: &mut Departures) {
        if !self.contains(entry) {
            self.admit(entry, out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        if self.contains(entry) {
            self.leave(entry);
        }
    }

    /// The first entry from the hand among those with the lowest counter: each turn of the hand
    /// takes one from every counter. O(capacity) at worst.
    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        self.would_prefer().or_else(|| self.ring.iter().min_by_key(|&e| self.ring.mark(e)))
    }

    fn resize(&mut self, capacity: u32, out: &mut Departures) {
        self.capacity = capacity;
        self.neighbour.adopt(capacity);
        while self.len() > capacity {
            self.evict(out);
        }
    }

    fn residents(&self) -> Vec<Entry> {
        self.ring.iter().collect()
    }

    fn asks_neighbour(&self) -> bool {
        N::IS_KNOWN
    }

    fn neighbour_holds(&mut self, entry: Entry, holds: bool) {
        self.neighbour.mark(entry, holds);
        if N::IS_KNOWN && holds && self.contains(entry) {
            self.search.learns(&self.ring, entry);
        }
    }

    fn neighbour_has(&self, entry: Entry) -> bool {
        self.neighbour.has(entry)
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.ring.warm(entry)
    }

    fn carry(&mut self, memo: &mut Memo<'_>) -> Carried {
        let saved = self.ring.iter().map(|entry| (entry, self.ring.mark(entry)));
        let mark = |memo: &mut Memo<'_>, mark: &mut u8| memo.number(mark, 1..=self.max);
        for (entry, mark) in memo.sequence(self.len(), saved, mark)? {
            if self.contains(entry) {
                return Err(Refused::twice(entry));
            }
            self.ring.push_back(entry, mark, self.capacity);
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        if self.len() > self.capacity {
            return Err(format!("{} resident, capacity {}", self.len(), self.capacity));
        }
        if self.ring.iter().any(|e| self.ring.mark(e) > self.max) {
            return Err("a counter is beyond its width".into());
        }
        self.search.check(&self.ring, &self.neighbour)?;
        self.ring.check()
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let ring: Vec<_> = self.residents().iter().map(|&e| (e, self.ring.mark(e) - 1)).collect();
        vec![("ring_from_hand", format!("{ring:?}"))]
    }
}

//! CLOCK: FIFO in which a referenced block gets another turn.
//!
//! The ring is kept in its list form: the hand is the front, and passing an entry moves it to the
//! back. A new block enters just behind the hand with its counter at 0 (libCacheSim does the
//! same; others start at 1). With `bits` above 1 (generalised CLOCK) a hit counts up to
//! 2^bits - 1 and the hand counts down.
//!
//! Invariants: `state` is 0 for an entry that is not resident, else 1 + its counter; an entry is
//! in the ring exactly if it is resident.

use super::neighbour::{Alone, Neighbour};
use super::registry::{Kind, Parameter, PolicyInfo};
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
    /// `state` of an entry whose counter is full.
    max: u8,
    /// Front: at the hand.
    ring: Ring,
    state: Vec<u8>,
    neighbour: N,
}

impl<N: Neighbour> Clock<N> {
    /// With counters of `bits` bits, at most 7.
    pub(super) fn new(capacity: u32, bits: u32, neighbour: N) -> Self {
        Self { capacity, max: 1 << bits, ring: Ring::new(), state: Vec::new(), neighbour }
    }

    /// In the order in which they would be evicted: each turn of the hand takes one from every
    /// counter.
    fn order(&self) -> impl Iterator<Item = Entry> + '_ {
        let turn = move |state| self.ring.iter().filter(move |&e| self.state[e as usize] == state);
        (1..=self.max).flat_map(turn)
    }

    /// The first that the neighbour holds. O(capacity) at worst.
    #[inline(always)]
    fn preferred(&self) -> Option<Entry> {
        if N::IS_KNOWN { self.neighbour.first_held(self.order()) } else { None }
    }

    fn evict(&mut self, out: &mut Departures) {
        let preferred = self.preferred();
        while let Some(at_hand) = self.ring.pop_front() {
            let state = &mut self.state[at_hand as usize];
            let is_passed = preferred.is_some_and(|victim| victim != at_hand);
            *state -= u8::from(*state > 1 || !is_passed);
            if *state == 0 {
                out.push(at_hand, Fate::Evicted);
                return;
            }
            self.ring.push_back(at_hand);
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
        self.state.resize(self.state.len().max(entries as usize), 0);
        self.neighbour.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.state[entry as usize] != 0
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Departures) {
        let state = &mut self.state[entry as usize];
        if *state < self.max {
            *state += 1;
        }
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        if self.len() == self.capacity {
            self.evict(out);
        }
        self.ring.push_back(entry);
        self.state[entry as usize] = 1;
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
            self.ring.remove(entry);
            self.state[entry as usize] = 0;
        }
    }

    /// The first entry from the hand among those with the lowest counter: each turn of the hand
    /// takes one from every counter. O(capacity) at worst.
    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        self.preferred().or_else(|| self.ring.iter().min_by_key(|&e| self.state[e as usize]))
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
    }

    fn neighbour_has(&self, entry: Entry) -> bool {
        self.neighbour.has(entry)
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        u32::from(self.state[entry as usize])
    }

    fn carry(&mut self, memo: &mut Memo<'_>) -> Carried {
        let saved = self.ring.iter().map(|entry| (entry, self.state[entry as usize]));
        let state = |memo: &mut Memo<'_>, state: &mut u8| memo.number(state, 1..=self.max);
        for (entry, state) in memo.sequence(self.len(), saved, state)? {
            if self.contains(entry) {
                return Err(Refused::twice(entry));
            }
            self.ring.push_back(entry);
            self.state[entry as usize] = state;
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        if self.len() > self.capacity {
            return Err(format!("{} resident, capacity {}", self.len(), self.capacity));
        }
        let resident = self.state.iter().filter(|&&state| state != 0).count();
        let in_ring = self.ring.iter().filter(|&e| self.contains(e)).count();
        if resident != in_ring || in_ring != self.len() as usize {
            return Err(format!("{resident} say they are in the ring, {in_ring} are"));
        }
        if self.state.iter().any(|&state| state > self.max) {
            return Err("a counter is beyond its width".into());
        }
        self.ring.check()
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let ring: Vec<_> =
            self.residents().iter().map(|&e| (e, self.state[e as usize] - 1)).collect();
        vec![("ring_from_hand", format!("{ring:?}"))]
    }
}

//! SIEVE: a FIFO queue whose hand sweeps from old to new and evicts, in place, the first block
//! that was not visited since it last passed.
//!
//! Invariants: `state` is 0 for an entry that is not resident, 1 for an unvisited and 2 for a
//! visited one; an entry is linked exactly if it is resident; `hand` is resident.

use super::registry::PolicyInfo;
use super::{Departures, Entry, Fate, Policy};
use crate::lists::Lists;
use crate::memo::{Carried, Memo, Refused};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "sieve",
    aliases: &[],
    summary: "a hand sifts unvisited blocks out of a FIFO queue",
    source: "Zhang, Yang, Yue, Vigfusson & Rashmi, NSDI 2024",
    parameters: &[],
    build: |_, context| {
        Ok(Box::new(Sieve {
            capacity: context.capacity,
            queue: Lists::new(1),
            state: Vec::new(),
            hand: None,
        }))
    },
};

const QUEUE: u32 = 0;
const UNVISITED: u8 = 1;
const VISITED: u8 = 2;

#[derive(Clone)]
struct Sieve {
    capacity: u32,
    /// Front: newest (the paper's head).
    queue: Lists,
    state: Vec<u8>,
    /// Where the next sweep starts; `None`: at the oldest.
    hand: Option<Entry>,
}

impl Sieve {
    #[inline(always)]
    fn remove(&mut self, entry: Entry) {
        if self.hand == Some(entry) {
            self.hand = self.queue.prev(entry);
        }
        self.queue.remove(QUEUE, entry);
        self.state[entry as usize] = 0;
    }

    #[inline(always)]
    fn evict(&mut self, out: &mut Departures) {
        let mut at = self.hand.or(self.queue.back(QUEUE));
        while let Some(entry) = at {
            if self.state[entry as usize] == UNVISITED {
                self.hand = Some(entry);
                self.remove(entry);
                out.push(entry, Fate::Evicted);
                return;
            }
            self.state[entry as usize] = UNVISITED;
            at = self.queue.prev(entry).or(self.queue.back(QUEUE));
        }
    }
}

impl Policy for Sieve {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.queue.len(QUEUE)
    }

    fn grow(&mut self, entries: u32) {
        self.queue.grow(entries);
        self.state.resize(self.queue.entries() as usize, 0);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.state[entry as usize] != 0
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Departures) {
        self.state[entry as usize] = VISITED;
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        if self.len() == self.capacity {
            self.evict(out);
        }
        self.queue.push_front(QUEUE, entry);
        self.state[entry as usize] = UNVISITED;
    }

    fn take(&mut self, entry: Entry, _: &mut Departures) {
        self.remove(entry);
    }

    fn place(&mut self, entry: Entry, out: &mut Departures) {
        if !self.contains(entry) {
            self.admit(entry, out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        if self.contains(entry) {
            self.remove(entry);
        }
    }

    /// Sweeps without clearing: the first unvisited entry, or where the hand stands if all are
    /// visited. O(capacity) at worst.
    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        let start = self.hand.or(self.queue.back(QUEUE))?;
        let step = |&entry: &Entry| self.queue.prev(entry).or(self.queue.back(QUEUE));
        std::iter::successors(Some(start), step)
            .take(self.len() as usize)
            .find(|&entry| self.state[entry as usize] == UNVISITED)
            .or(Some(start))
    }

    fn resize(&mut self, capacity: u32, out: &mut Departures) {
        self.capacity = capacity;
        while self.len() > capacity {
            self.evict(out);
        }
    }

    /// Newest first.
    fn residents(&self) -> Vec<Entry> {
        self.queue.iter(QUEUE).collect()
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        u32::from(self.state[entry as usize])
    }

    fn carry(&mut self, memo: &mut Memo<'_>) -> Carried {
        let saved = self.queue.iter(QUEUE).map(|entry| (entry, self.state[entry as usize]));
        let state = |memo: &mut Memo<'_>, it: &mut u8| memo.number(it, UNVISITED..=VISITED);
        for (entry, state) in memo.sequence(self.len(), saved, state)? {
            if self.contains(entry) {
                return Err(Refused::twice(entry));
            }
            self.queue.push_back(QUEUE, entry);
            self.state[entry as usize] = state;
        }
        memo.entry_if_any(&mut self.hand)
    }

    fn validate(&self) -> Result<(), String> {
        if self.len() > self.capacity {
            return Err(format!("{} resident, capacity {}", self.len(), self.capacity));
        }
        if self.hand.is_some_and(|hand| !self.contains(hand)) {
            return Err("the hand points at what is not resident".into());
        }
        let entries = 0..self.queue.entries();
        match entries.into_iter().find(|&e| self.contains(e) != self.queue.linked(e)) {
            Some(entry) => Err(format!("entry {entry}: state and queue disagree")),
            None => self.queue.check(),
        }
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let visited: Vec<_> =
            self.residents().iter().map(|&e| (e, self.state[e as usize] - UNVISITED)).collect();
        vec![("queue_new_to_old", format!("{visited:?}")), ("hand", format!("{:?}", self.hand))]
    }
}

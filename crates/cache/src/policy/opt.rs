//! OPT (MIN): evict the block whose next reference is farthest. The bound for demand fetching.
//!
//! A demand policy without bypass: the missed block is always cached, even if it is never used
//! again (libCacheSim's Belady is the same; some published OPTs bypass and so hit a little more).
//! Among blocks that are never referenced again, the one last referenced longest ago goes first.
//!
//! Every position of the trace is the next reference of at most one block, so the resident blocks
//! are a set of positions and the victim is its largest: no heap is needed.
//!
//! Invariants: `next[e]` is `ABSENT` unless resident; a resident entry's next position is in `due`,
//! or it is `NEVER` and the entry is in the list `never`, longest unreferenced at the front.

use std::sync::Arc;

use super::registry::{PolicyInfo, SpecError};
use super::{Departures, Entry, Fate, Policy};
use crate::lists::Lists;
use crate::positions::Positions;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "opt",
    aliases: &[("belady", ""), ("min", "")],
    summary: "farthest next use: knows the future, the bound for the others",
    source: "Belady, IBM Systems Journal 1966",
    parameters: &[],
    build: |_, context| {
        let future = context.future.clone().ok_or_else(|| {
            SpecError("opt must know the future: it can be simulated on a trace, not run".into())
        })?;
        Ok(Box::new(Opt {
            capacity: context.capacity,
            len: 0,
            now: 0,
            due: Positions::new(future.refs.len() as u32),
            next: Vec::new(),
            never: Lists::new(1),
            future,
        }))
    },
};

const NEVER: u32 = u32::MAX - 1;
const ABSENT: u32 = u32::MAX;
const LIST: u32 = 0;

/// The references that a cache will see, in order, and when each block is referenced next: 8 bytes
/// a reference.
#[derive(Clone, Debug)]
pub struct Future {
    refs: Vec<Entry>,
    next: Vec<u32>,
}

impl Future {
    /// Looks back over `refs` once.
    ///
    /// # Errors
    /// More references than 32-bit positions can number.
    pub fn new(refs: Vec<Entry>) -> Result<Self, SpecError> {
        if refs.len() >= NEVER as usize {
            return Err(SpecError(format!("opt can look {NEVER} references ahead at most")));
        }
        let entries = refs.iter().max().map_or(0, |&max| max as usize + 1);
        let mut soonest = vec![NEVER; entries];
        let mut next = vec![NEVER; refs.len()];
        for (position, &entry) in refs.iter().enumerate().rev() {
            next[position] = std::mem::replace(&mut soonest[entry as usize], position as u32);
        }
        Ok(Self { refs, next })
    }

    /// The references.
    pub fn references(&self) -> &[Entry] {
        &self.refs
    }

    /// The position of the next reference to the block that is referenced at `position`, if any.
    pub fn next_use(&self, position: usize) -> Option<usize> {
        Some(self.next[position]).filter(|&next| next != NEVER).map(|next| next as usize)
    }
}

struct Opt {
    capacity: u32,
    len: u32,
    /// Position of the next reference.
    now: u32,
    future: Arc<Future>,
    due: Positions,
    next: Vec<u32>,
    never: Lists,
}

impl Opt {
    /// Steps over the present reference, which must be the one foretold, and says when its block
    /// is referenced next.
    #[inline(always)]
    fn step(&mut self, entry: Entry) -> u32 {
        let now = self.now as usize;
        assert_eq!(self.future.refs[now], entry, "opt: reference {now} is not the one foretold");
        self.now += 1;
        self.future.next[now]
    }

    #[inline(always)]
    fn put(&mut self, entry: Entry, next: u32) {
        self.next[entry as usize] = next;
        if next == NEVER {
            self.never.push_back(LIST, entry);
        } else {
            self.due.insert(next);
        }
    }

    #[inline(always)]
    fn pull(&mut self, entry: Entry) {
        match std::mem::replace(&mut self.next[entry as usize], ABSENT) {
            ABSENT => {}
            NEVER => self.never.remove(LIST, entry),
            next => self.due.remove(next),
        }
    }

    #[inline(always)]
    fn farthest(&self) -> Option<Entry> {
        let due = || self.due.last().map(|position| self.future.refs[position as usize]);
        self.never.front(LIST).or_else(due)
    }

    #[inline(always)]
    fn make_room(&mut self, len: u32, out: &mut Departures) {
        while self.len > len {
            let Some(victim) = self.farthest() else { return };
            self.pull(victim);
            self.len -= 1;
            out.push(victim, Fate::Evicted);
        }
    }
}

impl Policy for Opt {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.len
    }

    fn grow(&mut self, entries: u32) {
        self.never.grow(entries);
        self.next.resize(self.never.entries() as usize, ABSENT);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.next[entry as usize] != ABSENT
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Departures) {
        let next = self.step(entry);
        self.pull(entry);
        self.put(entry, next);
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        let next = self.step(entry);
        self.make_room(self.capacity - 1, out);
        self.put(entry, next);
        self.len += 1;
    }

    fn take(&mut self, entry: Entry, out: &mut Departures) {
        self.discard(entry, out);
    }

    fn note(&mut self, entry: Entry, _: &mut Departures) {
        self.step(entry);
    }

    /// Looks for the next reference from here on: O(references).
    fn place(&mut self, entry: Entry, out: &mut Departures) {
        if self.contains(entry) {
            return;
        }
        let ahead = &self.future.refs[self.now as usize..];
        let next = ahead.iter().position(|&other| other == entry);
        let next = next.map_or(NEVER, |distance| self.now + distance as u32);
        self.make_room(self.capacity - 1, out);
        self.put(entry, next);
        self.len += 1;
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        if self.contains(entry) {
            self.pull(entry);
            self.len -= 1;
        }
    }

    fn victim(&self) -> Option<Entry> {
        if self.len == self.capacity { self.farthest() } else { None }
    }

    fn resize(&mut self, capacity: u32, out: &mut Departures) {
        self.capacity = capacity;
        self.make_room(capacity, out);
    }

    /// Next victim first.
    fn residents(&self) -> Vec<Entry> {
        let mut due: Vec<_> = self.due.iter().map(|p| self.future.refs[p as usize]).collect();
        due.reverse();
        self.never.iter(LIST).chain(due).collect()
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.next[entry as usize]
    }

    fn validate(&self) -> Result<(), String> {
        let residents = self.residents();
        if residents.len() != self.len as usize || self.len > self.capacity {
            return Err(format!("{} held, {} counted", residents.len(), self.len));
        }
        if self.next.iter().filter(|&&next| next != ABSENT).count() != residents.len() {
            return Err("a resident entry is in neither set".into());
        }
        let wrong = self.due.iter().find(|&position| {
            position < self.now
                || self.next[self.future.refs[position as usize] as usize] != position
        });
        match wrong {
            Some(position) => Err(format!("position {position} is due to nobody")),
            None => self.never.check(),
        }
    }
}

//! OPT (MIN): evicts the block whose next reference is farthest. The bound for demand fetching.
//!
//! A demand policy without bypass: a missed block is always cached, even if it is never used again,
//! as in libCacheSim's Belady; some published OPTs bypass and so hit slightly more. Among blocks
//! that are never referenced again, the least recently used one is evicted first.
//!
//! Every position of the trace is the next reference of at most one block. So the resident blocks
//! are a set of positions whose largest member is the victim, and no heap is needed. The block of a
//! position is read from the trace, far ahead and so not in the processor's cache. Therefore
//! several victims are looked up at a time, so that their reads overlap.
//!
//! A position that has passed stays in the set: it is smaller than all others, so it does no harm.
//!
//! Invariants:
//! 1. `next[e]` is `ABSENT` unless `e` is resident; else `NEVER` and `e` is in `never`, least
//!    recently used at the front, or a position that is in `due` or in `farthest`;
//! 2. `farthest` is ascending, and all of its positions are larger than those of `due`.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::containers::positions::Positions;
use crate::registry::{Footprint, PolicyInfo, SpecError};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, EvictionKind, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "opt",
    aliases: &[("belady", ""), ("min", "")],
    summary: "farthest next use: knows the future, the bound for the others",
    source: "Belady, IBM Systems Journal 1966",
    parameters: &[],
    memory: Footprint::new(5, 700),
    build: |_, context| {
        let future = context.future.clone().ok_or_else(|| {
            SpecError("opt must know the future: it can be simulated on a trace, not run".into())
        })?;
        Ok(Box::new(Opt {
            capacity: context.capacity,
            len: 0,
            now: 0,
            due: Positions::new(future.refs.len() as u32),
            farthest: Vec::with_capacity(MANY),
            next: Vec::new(),
            never: VecDeque::new(),
            future,
        }))
    },
};

const NEVER: u32 = u32::MAX - 1;
const ABSENT: u32 = u32::MAX;
/// Victims that are looked up at a time. When `farthest` has `MANY`, it is shortened by as many.
const SOME: usize = 16;
const MANY: usize = 2 * SOME;

/// The references that a cache will see, in order, and the next reference of each block: 8 bytes
/// for each reference.
#[derive(Clone, Debug)]
pub struct Future {
    refs: Vec<Entry>,
    next: Vec<u32>,
}

impl Future {
    /// Computes the next references in one backward pass over `refs`.
    ///
    /// # Errors
    /// There are more references than 32-bit positions.
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

    /// The position of the next reference to the block that is referenced at `position`, if any.
    pub fn next_use(&self, position: usize) -> Option<usize> {
        Some(self.next[position]).filter(|&next| next != NEVER).map(|next| next as usize)
    }
}

#[derive(Clone, Debug)]
struct Opt {
    capacity: u32,
    len: u32,
    /// Position of the next reference.
    now: u32,
    future: Arc<Future>,
    /// The next references of residents, except those in `farthest`.
    due: Positions,
    /// The next reference of each of the next victims, with its entry.
    farthest: Vec<(u32, Entry)>,
    next: Vec<u32>,
    never: VecDeque<Entry>,
}

impl Opt {
    /// Advances over the current reference, which must be the expected one. Returns the position of
    /// the next reference to its block.
    #[inline(always)]
    fn step(&mut self, entry: Entry) -> u32 {
        let now = self.now as usize;
        assert_eq!(self.future.refs[now], entry, "opt: reference {now} is not the expected one");
        self.now += 1;
        self.future.next[now]
    }

    #[inline(always)]
    fn put(&mut self, entry: Entry, next: u32) {
        self.next[entry as usize] = next;
        if next == NEVER {
            self.never.push_back(entry);
        } else if self.farthest.first().is_some_and(|&(nearest, _)| next > nearest) {
            self.put_far(entry, next);
        } else {
            self.due.insert(next);
        }
    }

    /// Adds a resident to the next victims.
    fn put_far(&mut self, entry: Entry, next: u32) {
        let at = self.farthest.partition_point(|&(position, _)| position < next);
        self.farthest.insert(at, (next, entry));
        if self.farthest.len() == MANY {
            self.farthest.drain(..SOME).for_each(|(position, _)| self.due.insert(position));
        }
    }

    /// Looks up the next victims.
    fn look_up(&mut self) {
        for _ in 0..SOME {
            let Some(position) = self.due.last() else { break };
            self.due.remove(position);
            self.farthest.push((position, 0));
        }
        for (position, entry) in &mut self.farthest {
            *entry = self.future.refs[*position as usize];
        }
        self.farthest.reverse();
    }

    /// Removes the entry whose next reference is farthest.
    #[inline(always)]
    fn pop_victim(&mut self) -> Option<Entry> {
        if let Some(victim) = self.never.pop_front() {
            return Some(victim);
        }
        if self.farthest.is_empty() {
            self.look_up();
        }
        self.farthest.pop().map(|(_, entry)| entry)
    }

    #[inline(always)]
    fn make_room(&mut self, len: u32, out: &mut Evictions) {
        while self.len > len {
            let Some(victim) = self.pop_victim() else { return };
            self.next[victim as usize] = ABSENT;
            self.len -= 1;
            out.push(victim, EvictionKind::Evicted);
        }
    }

    /// The next references of residents, with the entries; the next victim first.
    fn upcoming(&self) -> Vec<(u32, Entry)> {
        let mut due: Vec<_> = self.due.iter().map(|p| (p, self.future.refs[p as usize])).collect();
        due.extend(&self.farthest);
        due.retain(|&(position, _)| position >= self.now);
        due.reverse();
        due
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
        self.next.resize(self.next.len().max(entries as usize), ABSENT);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.next[entry as usize] != ABSENT
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Evictions) {
        let next = self.step(entry);
        self.put(entry, next);
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        let next = self.step(entry);
        self.make_room(self.capacity - 1, out);
        self.put(entry, next);
        self.len += 1;
    }

    fn note(&mut self, entry: Entry, _: &mut Evictions) {
        self.step(entry);
    }

    /// Searches the next reference from here on: O(references).
    fn place(&mut self, entry: Entry, out: &mut Evictions) {
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

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        match std::mem::replace(&mut self.next[entry as usize], ABSENT) {
            ABSENT => return,
            NEVER => self.never.retain(|&other| other != entry),
            next => match self.farthest.binary_search_by_key(&next, |&(position, _)| position) {
                Ok(at) => drop(self.farthest.remove(at)),
                Err(_) => self.due.remove(next),
            },
        }
        self.len -= 1;
    }

    fn victim(&self) -> Option<Entry> {
        if self.len < self.capacity {
            return None;
        }
        let looked_up = || self.farthest.last().map(|&(_, entry)| entry);
        let due = || self.due.last().map(|position| self.future.refs[position as usize]);
        self.never.front().copied().or_else(looked_up).or_else(due)
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.capacity = capacity;
        self.make_room(capacity, out);
    }

    /// The next victim first.
    fn residents(&self) -> Vec<Entry> {
        self.never.iter().copied().chain(self.upcoming().iter().map(|&(_, entry)| entry)).collect()
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.next[entry as usize]
    }

    fn save_load(&mut self, _: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        Err(SnapshotError::new("opt goes by the future of one trace and cannot be carried over"))
    }

    fn validate(&self) -> Result<(), String> {
        let residents = self.residents();
        if residents.len() != self.len as usize || self.len > self.capacity {
            return Err(format!("{} held, {} counted", residents.len(), self.len));
        }
        if self.next.iter().filter(|&&next| next != ABSENT).count() != residents.len() {
            return Err("a resident entry is in neither set".into());
        }
        let nearest = self.farthest.first().map_or(NEVER, |&(position, _)| position);
        if !self.farthest.is_sorted() || self.due.last().is_some_and(|last| last >= nearest) {
            return Err("the next victims are out of order".into());
        }
        let upcoming = self.upcoming();
        let never = self.never.iter().map(|&entry| (NEVER, entry));
        let mut all = never.chain(upcoming);
        match all.find(|&(position, entry)| self.next[entry as usize] != position) {
            Some((position, _)) => Err(format!("position {position} is due to nobody")),
            None => Ok(()),
        }
    }
}

//! OPT (MIN): evict the block whose next reference is farthest. The bound for demand fetching.
//!
//! A demand policy without bypass: the missed block is always cached, even if it is never used
//! again (libCacheSim's Belady is the same; some published OPTs bypass and so hit a little more).
//! Among blocks that are never referenced again, the one last referenced longest ago goes first.
//!
//! Every position of the trace is the next reference of at most one block, so the resident blocks
//! are a set of positions and the victim is its largest: no heap is needed. The block of a position
//! is read from the trace, somewhere far ahead and so far from the processor; that is why the
//! victims to come are looked up some at a time, when their reads can overlap.
//!
//! A position that has been passed stays in the set: it is smaller than all others, and so never in
//! the way.
//!
//! Invariants:
//! 1. `next[e]` is `ABSENT` unless `e` is resident; else `NEVER` and `e` is in `never`, longest
//!    unreferenced at the front, or a position that is in `due` or in `farthest`;
//! 2. `farthest` is ascending, and all of it is larger than all of `due`.

use std::collections::VecDeque;
use std::sync::Arc;

use super::registry::{PolicyInfo, SpecError};
use super::{Entry, EvictionKind, Evictions, Policy};
use crate::positions::Positions;
use crate::snapshot::{Snapshot, SnapshotError};

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
            farthest: Vec::with_capacity(MANY),
            next: Vec::new(),
            never: VecDeque::new(),
            future,
        }))
    },
};

const NEVER: u32 = u32::MAX - 1;
const ABSENT: u32 = u32::MAX;
/// Victims that are looked up at a time; `farthest` is cut by as many when they are `MANY`.
const SOME: usize = 16;
const MANY: usize = 2 * SOME;

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

#[derive(Clone, Debug)]
struct Opt {
    capacity: u32,
    len: u32,
    /// Position of the next reference.
    now: u32,
    future: Arc<Future>,
    /// When residents are referenced next, but for those of `farthest`.
    due: Positions,
    /// When each of the next victims is referenced next, with its entry.
    farthest: Vec<(u32, Entry)>,
    next: Vec<u32>,
    never: VecDeque<Entry>,
}

impl Opt {
    /// Steps over the present reference, which must be the expected one, and says when its block
    /// is referenced next.
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

    /// Puts a resident among the next victims.
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

    /// Takes out the entry that is referenced last, if ever.
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

    /// The positions to come at which residents are due, with the entries; the next victim first.
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

    /// Looks for the next reference from here on: O(references).
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

    /// Next victim first.
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

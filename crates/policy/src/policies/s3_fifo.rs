//! S3-FIFO: a small FIFO queue filters out one-hit wonders before they reach the main queue, and a
//! ghost queue remembers what was filtered out.
//!
//! Three public versions differ. Ours evicts from S whenever `|S|` has reached its target, moves a
//! block to M on two hits (`threshold`), and bounds the ghost queue by M's target.
//!
//! State of an entry: its queue and a counter of 0 to 3 hits.
//! Invariants: an entry is linked in the queue that its state names; `|S| + |M|` is at most the
//! capacity, `|G|` at most M's target; with no room for M (capacity 1) everything is in S, a FIFO.

use crate::containers::lists::Lists;
use crate::registry::{Footprint, Kind, Parameter, PolicyInfo};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, EvictionKind, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "s3-fifo",
    aliases: &[("s3fifo", "")],
    summary: "small, main and ghost FIFO queues: quick demotion of one-hit wonders",
    source: "Yang, Zhang, Qiu, Yue & Rashmi, SOSP 2023",
    parameters: &[
        Parameter {
            name: "small",
            kind: Kind::Real(0.001, 0.999),
            default: "0.1",
            help: "target of the small queue, share of the capacity",
        },
        Parameter {
            name: "threshold",
            kind: Kind::Integer(1, 3),
            default: "2",
            help: "hits that take a block from the small to the main queue",
        },
    ],
    memory: Footprint::new(2, 124),
    build: |arguments, context| {
        let mut policy = S3Fifo {
            capacity: context.capacity,
            small_share: arguments.real("small"),
            threshold: arguments.integer("threshold") as u8,
            small_target: 0,
            queues: Lists::new(3),
            state: Vec::new(),
        };
        policy.derive_sizes(context.capacity);
        Ok(Box::new(policy))
    },
};

/// The queues, oldest at the front; also their tags in `state`, above the counter.
const SMALL: u32 = 0;
const MAIN: u32 = 1;
const GHOST: u32 = 2;

const ABSENT: u8 = 0;
const IN_SMALL: u8 = 1 << 2;
const IN_MAIN: u8 = 2 << 2;
const IN_GHOST: u8 = 3 << 2;
const COUNT: u8 = 3;

#[derive(Clone, Debug)]
struct S3Fifo {
    capacity: u32,
    small_share: f64,
    threshold: u8,
    small_target: u32,
    queues: Lists,
    state: Vec<u8>,
}

impl S3Fifo {
    fn derive_sizes(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.small_target = ((self.small_share * f64::from(capacity)) as u32).max(1);
    }

    fn main_target(&self) -> u32 {
        self.capacity - self.small_target
    }

    #[inline(always)]
    fn put(&mut self, queue: u32, tag: u8, entry: Entry) {
        self.queues.push_back(queue, entry);
        self.state[entry as usize] = tag;
    }

    fn evict_one(&mut self, out: &mut Evictions) {
        let small_is_due = self.queues.len(SMALL) >= self.small_target;
        if !(small_is_due || self.queues.len(MAIN) == 0) || !self.evict_from_small(out) {
            self.evict_from_main(out);
        }
    }

    /// True if something was evicted; false if all of S moved to M.
    fn evict_from_small(&mut self, out: &mut Evictions) -> bool {
        while let Some(oldest) = self.queues.pop_front(SMALL) {
            let hits = self.state[oldest as usize] & COUNT;
            if hits < self.threshold || self.main_target() == 0 {
                self.remember(oldest, out);
                return true;
            }
            let main_is_full = self.queues.len(MAIN) >= self.main_target();
            if main_is_full {
                self.evict_from_main(out);
            }
            self.put(MAIN, IN_MAIN, oldest);
            if main_is_full {
                return true;
            }
        }
        false
    }

    fn evict_from_main(&mut self, out: &mut Evictions) {
        while let Some(oldest) = self.queues.pop_front(MAIN) {
            let hits = self.state[oldest as usize] & COUNT;
            if hits == 0 {
                self.state[oldest as usize] = ABSENT;
                out.push(oldest, EvictionKind::Evicted);
                return;
            }
            self.put(MAIN, IN_MAIN | (hits - 1), oldest);
        }
    }

    /// Moves an entry, which was resident and is in no queue, into the ghost queue.
    fn remember(&mut self, entry: Entry, out: &mut Evictions) {
        if self.main_target() == 0 {
            self.state[entry as usize] = ABSENT;
            out.push(entry, EvictionKind::Evicted);
            return;
        }
        out.push(entry, EvictionKind::Remembered);
        self.trim_ghosts(self.main_target() - 1, out);
        self.put(GHOST, IN_GHOST, entry);
    }

    fn trim_ghosts(&mut self, bound: u32, out: &mut Evictions) {
        while self.queues.len(GHOST) > bound {
            if let Some(ghost) = self.queues.pop_front(GHOST) {
                self.state[ghost as usize] = ABSENT;
                out.push(ghost, EvictionKind::Forgotten);
            }
        }
    }

    fn queue_of(&self, entry: Entry) -> Option<u32> {
        match self.state[entry as usize] & !COUNT {
            IN_SMALL => Some(SMALL),
            IN_MAIN => Some(MAIN),
            IN_GHOST => Some(GHOST),
            _ => None,
        }
    }
}

impl Policy for S3Fifo {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.queues.len(SMALL) + self.queues.len(MAIN)
    }

    fn grow(&mut self, entries: u32) {
        self.queues.grow(entries);
        self.state.resize(self.queues.entries() as usize, ABSENT);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        let state = self.state[entry as usize];
        state != ABSENT && state < IN_GHOST
    }

    fn remembers(&self, entry: Entry) -> bool {
        self.state[entry as usize] >= IN_GHOST
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Evictions) {
        let state = &mut self.state[entry as usize];
        if *state & COUNT < COUNT {
            *state += 1;
        }
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        let was_ghost = self.remembers(entry);
        if was_ghost {
            self.queues.remove(GHOST, entry);
        }
        while self.len() >= self.capacity {
            self.evict_one(out);
        }
        let (queue, tag) = if was_ghost { (MAIN, IN_MAIN) } else { (SMALL, IN_SMALL) };
        self.put(queue, tag, entry);
    }

    fn take(&mut self, entry: Entry, out: &mut Evictions) {
        if let Some(queue) = self.queue_of(entry) {
            self.queues.remove(queue, entry);
            self.state[entry as usize] = ABSENT;
        }
        if self.main_target() > 0 {
            self.trim_ghosts(self.main_target() - 1, out);
            self.put(GHOST, IN_GHOST, entry);
        }
    }

    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        if !self.contains(entry) {
            self.admit(entry, out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        if let Some(queue) = self.queue_of(entry) {
            self.queues.remove(queue, entry);
            self.state[entry as usize] = ABSENT;
        }
    }

    /// Simulates the eviction on the counters: which blocks of S would move to M, and whether M
    /// would then evict one. O(capacity) at worst.
    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        let mut moved = Vec::new();
        if self.queues.len(SMALL) >= self.small_target || self.queues.len(MAIN) == 0 {
            let room = self.main_target().saturating_sub(self.queues.len(MAIN)) as usize;
            for oldest in self.queues.iter(SMALL) {
                let hits = self.state[oldest as usize] & COUNT;
                if hits < self.threshold || self.main_target() == 0 {
                    return Some(oldest);
                }
                if moved.len() == room {
                    break;
                }
                moved.push(oldest);
            }
        }
        // M after that: its own entries, then those that moved, with no hits. The entry with the
        // fewest hits is evicted, the oldest among equals: each turn of the queue takes one hit
        // from all.
        let main = self.queues.iter(MAIN).map(|e| (e, self.state[e as usize] & COUNT));
        let all = main.chain(moved.into_iter().map(|e| (e, 0)));
        all.min_by_key(|&(_, hits)| hits).map(|(entry, _)| entry)
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.derive_sizes(capacity);
        self.trim_ghosts(self.main_target(), out);
        while self.len() > capacity {
            self.evict_one(out);
        }
    }

    /// S, then M, oldest first.
    fn residents(&self) -> Vec<Entry> {
        self.queues.iter(SMALL).chain(self.queues.iter(MAIN)).collect()
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        u32::from(self.state[entry as usize])
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        for (queue, tag) in [(SMALL, IN_SMALL), (MAIN, IN_MAIN), (GHOST, IN_GHOST)] {
            let most = if queue == GHOST { 0 } else { COUNT };
            let hits = |entry| self.state[entry as usize] & COUNT;
            let saved = self.queues.iter(queue).map(|entry| (entry, hits(entry)));
            let hits = |snapshot: &mut Snapshot<'_>, hits: &mut u8| snapshot.number(hits, 0..=most);
            for (entry, hits) in snapshot.entries_with(self.queues.len(queue), saved, hits)? {
                self.put(queue, tag | hits, entry);
            }
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        if self.len() > self.capacity || self.queues.len(GHOST) > self.main_target() {
            return Err("more resident or remembered than allowed".into());
        }
        let mut linked = 0;
        for (queue, tag) in [(SMALL, IN_SMALL), (MAIN, IN_MAIN), (GHOST, IN_GHOST)] {
            if self.queues.iter(queue).any(|e| self.state[e as usize] & !COUNT != tag) {
                return Err(format!("an entry of queue {queue} says it is elsewhere"));
            }
            linked += self.queues.len(queue);
        }
        if self.state.iter().filter(|&&state| state != ABSENT).count() != linked as usize {
            return Err("an entry says it is in a queue and is in none".into());
        }
        self.queues.check()
    }
}

//! LFU with a memory: evict the least often used, and remember the counts of what was evicted.
//!
//! TPDS 2004 (section 7.1) extends LFU by the frequencies of recently evicted blocks; without them
//! a second-level cache would count every block anew. Ours are as many as MQ's Q_out. Among equally
//! frequent blocks the least recently used one goes. The aged variant (`age`) halves all counts,
//! never below 1, after every `age * capacity` references; the paper only says that it exists.
//!
//! The residents are one list, ordered by count and then by last use, and cut into buckets of equal
//! count. A hit moves a block to the end of the next bucket. A missed block looks for its bucket
//! from the low end: few steps, for a ghost had the smallest count when it left, and every miss
//! since then replaced a smallest one, so that (while the cache stays full) at most one resident
//! has been referenced less.
//!
//! Invariants:
//! 1. the ranking's counts never fall from front to back, and within a count no stamp does;
//! 2. every resident names the bucket of its count, whose `newest` is the last of that count;
//! 3. an entry is linked in the list of its state: ranking, ghosts, or none if unknown.

use std::collections::BTreeMap;

use super::ghosts::{GHOST, Ghosts};
use super::period::Period;
use super::registry::{Kind, Parameter, PolicyInfo};
use super::{Departures, Entry, Policy};
use crate::lists::Lists;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "lfu",
    aliases: &[],
    summary: "least frequently used, with a memory for counts",
    source: "Zhou, Chen & Li, TPDS 2004, section 7.1",
    parameters: &[
        GHOST,
        Parameter {
            name: "age",
            kind: Kind::Real(0.0, 1e6),
            default: "0",
            help: "references after which counts are halved, times the capacity; 0 never halves",
        },
    ],
    build: |arguments, context| {
        Ok(Box::new(Lfu {
            capacity: context.capacity,
            lists: Lists::new(2),
            ghosts: Ghosts::new(GHOSTS, arguments.real("ghost"), context.capacity),
            buckets: Vec::new(),
            free_buckets: Vec::new(),
            references: 0,
            uses: 0,
            age: arguments.real("age"),
            aging: aging(arguments.real("age"), context.capacity, 0),
            epoch: 0,
        }))
    },
};

/// The residents, by count and then by last use: next victim at the front.
const RANKING: u32 = 0;
/// Oldest at the front.
const GHOSTS: u32 = 1;

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Unknown,
    /// `stamp` orders uses: accesses and placements.
    Resident { bucket: u32, stamp: u64 },
    /// The count as it was in `epoch`.
    Ghost { epoch: u32, count: u64 },
}

/// The residents of one count: a stretch of the ranking that ends with `newest`.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    count: u64,
    newest: Entry,
}

/// When counts are halved, if ever.
fn aging(age: f64, capacity: u32, now: u64) -> Option<Period> {
    let length = ((age * f64::from(capacity)) as u64).max(1);
    if age > 0.0 { Some(Period::new(length, now)) } else { None }
}

fn halved(count: u64, times: u32) -> u64 {
    count.checked_shr(times).unwrap_or(0).max(1)
}

struct Lfu {
    capacity: u32,
    lists: Lists<State>,
    ghosts: Ghosts,
    buckets: Vec<Bucket>,
    free_buckets: Vec<u32>,
    references: u64,
    uses: u64,
    age: f64,
    aging: Option<Period>,
    /// How often counts were halved. Residents are brought up to date at once, ghosts when needed.
    epoch: u32,
}

impl Lfu {
    /// The bucket of a resident.
    #[inline(always)]
    fn bucket_of(&self, entry: Entry) -> u32 {
        match self.lists.data(entry) {
            State::Resident { bucket, .. } => bucket,
            other => unreachable!("entry {entry} in the ranking is {other:?}"),
        }
    }

    #[inline(always)]
    fn bucket(&self, bucket: u32) -> Bucket {
        self.buckets[bucket as usize]
    }

    /// Takes a resident out of the ranking. What is left of its bucket, or else the bucket below,
    /// is where a search for a count that is not smaller may start.
    #[inline(always)]
    fn pull(&mut self, entry: Entry) -> Option<u32> {
        let bucket = self.bucket_of(entry);
        let mut below = Some(bucket);
        if self.bucket(bucket).newest == entry {
            let before = self.lists.prev(entry);
            below = before.map(|e| self.bucket_of(e));
            match before {
                Some(newest) if below == Some(bucket) => {
                    self.buckets[bucket as usize].newest = newest;
                }
                _ => self.free_buckets.push(bucket),
            }
        }
        self.lists.remove(RANKING, entry);
        below
    }

    /// Ranks an unlinked entry as the newest of its count. The search starts after bucket `below`,
    /// whose count is not larger, or at the front.
    #[inline(always)]
    fn rank(&mut self, entry: Entry, count: u64, mut below: Option<u32>) {
        let after = |lists: &Lists<_>, below| match below {
            Some(bucket) => lists.next(self.buckets[bucket as usize].newest),
            None => lists.front(RANKING),
        };
        let mut higher = after(&self.lists, below);
        while let Some(bucket) = higher.map(|e| self.bucket_of(e)) {
            if self.bucket(bucket).count > count {
                break;
            }
            below = Some(bucket);
            higher = after(&self.lists, below);
        }
        match higher {
            Some(higher) => self.lists.insert_before(RANKING, higher, entry),
            None => self.lists.push_back(RANKING, entry),
        }
        let bucket = match below {
            Some(bucket) if self.bucket(bucket).count == count => {
                self.buckets[bucket as usize].newest = entry;
                bucket
            }
            _ => self.new_bucket(Bucket { count, newest: entry }),
        };
        self.uses += 1;
        *self.lists.data_mut(entry) = State::Resident { bucket, stamp: self.uses };
    }

    fn new_bucket(&mut self, bucket: Bucket) -> u32 {
        match self.free_buckets.pop() {
            Some(free) => {
                self.buckets[free as usize] = bucket;
                free
            }
            None => {
                self.buckets.push(bucket);
                self.buckets.len() as u32 - 1
            }
        }
    }

    /// Takes an entry out of the ghosts if it is one: its count.
    #[inline(always)]
    fn recall(&mut self, entry: Entry) -> Option<u64> {
        let State::Ghost { epoch, count } = self.lists.data(entry) else { return None };
        self.lists.remove(GHOSTS, entry);
        Some(halved(count, self.epoch.wrapping_sub(epoch)))
    }

    /// Takes a resident out of the ranking and makes it what a ghost is.
    #[inline(always)]
    fn retire(&mut self, entry: Entry) {
        let count = self.bucket(self.bucket_of(entry)).count;
        self.pull(entry);
        *self.lists.data_mut(entry) = State::Ghost { epoch: self.epoch, count };
    }

    #[inline(always)]
    fn evict(&mut self, out: &mut Departures) {
        if let Some(victim) = self.lists.front(RANKING) {
            self.retire(victim);
            self.ghosts.evict(&mut self.lists, victim, out);
        }
    }

    #[inline(always)]
    fn end_reference(&mut self) {
        self.references += 1;
        if let Some(period) = &mut self.aging {
            if period.ends(self.references) {
                self.halve();
            }
        }
    }

    /// Halves all counts. Buckets that become one are merged by last use: O(capacity).
    #[cold]
    fn halve(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        let mut ranking = Vec::with_capacity(self.len() as usize);
        while let Some(entry) = self.lists.pop_front(RANKING) {
            let State::Resident { bucket, stamp } = self.lists.data(entry) else { continue };
            ranking.push((halved(self.bucket(bucket).count, 1), stamp, entry));
        }
        // A stable sort finds the runs that the buckets are.
        ranking.sort();
        self.buckets.clear();
        self.free_buckets.clear();
        for (count, stamp, entry) in ranking {
            let below = self.lists.back(RANKING).map(|e| self.bucket_of(e));
            self.rank(entry, count, below);
            if let State::Resident { stamp: renewed, .. } = self.lists.data_mut(entry) {
                *renewed = stamp;
            }
        }
    }
}

impl Policy for Lfu {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.lists.len(RANKING)
    }

    fn grow(&mut self, entries: u32) {
        self.lists.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        matches!(self.lists.data(entry), State::Resident { .. })
    }

    fn remembers(&self, entry: Entry) -> bool {
        matches!(self.lists.data(entry), State::Ghost { .. })
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Departures) {
        let count = self.bucket(self.bucket_of(entry)).count + 1;
        let below = self.pull(entry);
        self.rank(entry, count, below);
        self.end_reference();
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        let count = self.recall(entry).map_or(1, |count| count + 1);
        if self.len() == self.capacity {
            self.evict(out);
        }
        self.rank(entry, count, None);
        self.end_reference();
    }

    fn take(&mut self, entry: Entry, out: &mut Departures) {
        if self.contains(entry) {
            self.retire(entry);
            self.ghosts.keep(&mut self.lists, entry, out);
        }
    }

    /// The remembered count, or 1; a resident becomes the newest of its count.
    fn place(&mut self, entry: Entry, out: &mut Departures) {
        if self.contains(entry) {
            let count = self.bucket(self.bucket_of(entry)).count;
            let below = self.pull(entry);
            self.rank(entry, count, below);
            return;
        }
        let count = self.recall(entry).unwrap_or(1);
        if self.len() == self.capacity {
            self.evict(out);
        }
        self.rank(entry, count, None);
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        if self.contains(entry) {
            self.pull(entry);
        } else {
            self.recall(entry);
        }
        *self.lists.data_mut(entry) = State::Unknown;
    }

    fn victim(&self) -> Option<Entry> {
        if self.len() == self.capacity { self.lists.front(RANKING) } else { None }
    }

    fn resize(&mut self, capacity: u32, out: &mut Departures) {
        self.capacity = capacity;
        self.aging = aging(self.age, capacity, self.references);
        self.ghosts.resize(&mut self.lists, capacity, out);
        while self.len() > capacity {
            self.evict(out);
        }
    }

    /// Next victim first.
    fn residents(&self) -> Vec<Entry> {
        self.lists.iter(RANKING).collect()
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.lists.warm(entry)
    }

    fn validate(&self) -> Result<(), String> {
        if self.len() > self.capacity {
            return Err(format!("{} resident, capacity {}", self.len(), self.capacity));
        }
        let mut buckets = 0;
        let mut last = (0, 0);
        for entry in self.lists.iter(RANKING) {
            let State::Resident { bucket, stamp } = self.lists.data(entry) else {
                return Err(format!("entry {entry} is ranked and not resident"));
            };
            let Bucket { count, newest } = self.bucket(bucket);
            let next = self.lists.next(entry).map(|e| self.bucket_of(e));
            if (count, stamp) <= last || (newest == entry) != (next != Some(bucket)) {
                return Err(format!("entry {entry}: out of order or in the wrong bucket"));
            }
            buckets += usize::from(newest == entry);
            last = (count, stamp);
        }
        if buckets + self.free_buckets.len() != self.buckets.len() {
            return Err("buckets are lost".into());
        }
        if self.lists.iter(GHOSTS).any(|e| !self.remembers(e)) {
            return Err("a ghost that is none".into());
        }
        let unknown = |e: Entry| matches!(self.lists.data(e), State::Unknown);
        if (0..self.lists.entries()).any(|e| unknown(e) == self.lists.linked(e)) {
            return Err("unknown and linked, or neither".into());
        }
        self.ghosts.check(&self.lists).and_then(|()| self.lists.check())
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let count = |e: Entry| match self.lists.data(e) {
            State::Unknown => (e, 0),
            State::Resident { bucket, .. } => (e, self.bucket(bucket).count),
            State::Ghost { epoch, count } => (e, halved(count, self.epoch.wrapping_sub(epoch))),
        };
        let counts = |list| self.lists.iter(list).map(count).collect::<BTreeMap<_, _>>();
        vec![("freq", format!("{:?}", counts(RANKING))), ("ghost", format!("{:?}", counts(GHOSTS)))]
    }
}

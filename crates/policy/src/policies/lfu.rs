//! LFU with a memory: evicts the least frequently used block, and remembers the counts of evicted
//! blocks.
//!
//! TPDS 2004 (section 7.1) extends LFU by the frequencies of recently evicted blocks; without them
//! a second-level cache would count every block from 1 again. Here their number is that of MQ's
//! Q_out. Among equally frequent blocks the least recently used one is evicted. The variant with
//! ageing (`age`) halves all counts, never below 1, after every `age * capacity` references; the
//! paper only mentions it.
//!
//! `ranking.rs` keeps the residents in order, `memory.rs` the ghosts. A missed block searches its
//! place in the order from the low end. That takes few steps: a ghost had the smallest count when
//! it was evicted, and every later miss replaced a block of the smallest count. So (while the cache
//! stays full) at most one resident has a smaller count.
//!
//! Invariants: an entry is resident exactly if its place is the slot of the ranking that holds it,
//! and a ghost exactly if its place is the slot of the memory that holds it.

use crate::containers::ghosts::GHOST;
use crate::containers::memory::{Memory, Place, Places};
use crate::containers::period::Period;
use crate::containers::ranking::Ranking;
use crate::registry::{Footprint, Kind, Parameter, PolicyInfo};
use crate::snapshot::{CLOCK_MAX, Snapshot, SnapshotError};
use crate::{Entry, Evictions, Policy};

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
    memory: Footprint::new(5, 490),
    build: |arguments, context| {
        Ok(Box::new(Lfu {
            capacity: context.capacity,
            places: Places::default(),
            ranking: Ranking::new(arguments.real("age") > 0.0),
            ghosts: Memory::new(arguments.real("ghost"), context.capacity),
            references: 0,
            age: arguments.real("age"),
            aging: aging(arguments.real("age"), context.capacity, 0),
        }))
    },
};

/// When counts are halved; `None`: never.
fn aging(age: f64, capacity: u32, now: u64) -> Option<Period> {
    let length = ((age * f64::from(capacity)) as u64).max(1);
    if age > 0.0 { Some(Period::new(length, now)) } else { None }
}

fn halved(count: u64) -> u64 {
    (count / 2).max(1)
}

#[derive(Clone, Debug)]
struct Lfu {
    capacity: u32,
    /// Where each entry is; the number of a resident is a slot of `ranking`.
    places: Places,
    ranking: Ranking,
    /// The ghosts with their counts.
    ghosts: Memory<u64>,
    references: u64,
    age: f64,
    aging: Option<Period>,
}

impl Lfu {
    /// Makes a non-resident entry resident.
    #[inline(always)]
    fn enter(&mut self, entry: Entry, count: u64, out: &mut Evictions) {
        let victim = self.ranking.front().filter(|_| self.len() == self.capacity);
        let slot = match victim {
            Some(victim) => {
                self.evict(victim, out);
                victim
            }
            None => self.ranking.free_slot(),
        };
        self.ranking.insert(slot, entry, count);
        self.places.set(entry, Place::Resident(slot));
    }

    /// Makes the resident in a slot a ghost. The caller gets the slot.
    #[inline(always)]
    fn evict(&mut self, slot: u32, out: &mut Evictions) {
        let count = self.ranking.remove(slot);
        self.ghosts.evict(&mut self.places, self.ranking.entry(slot), count, out);
    }

    /// Removes an entry from the ghosts. Returns its count, if it was a ghost.
    #[inline(always)]
    fn recall(&mut self, entry: Entry) -> Option<u64> {
        match self.places.get(entry) {
            Place::Ghost(at) => Some(self.ghosts.recall(at)),
            _ => None,
        }
    }

    #[inline(always)]
    fn end_reference(&mut self) {
        self.references += 1;
        if let Some(period) = &mut self.aging {
            if period.ends(self.references) {
                self.ranking.recount(halved);
                self.ghosts.update(halved);
            }
        }
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.ranking.iter().map(|slot| self.ranking.entry(slot))
    }
}

impl Policy for Lfu {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.ranking.len()
    }

    fn grow(&mut self, entries: u32) {
        self.places.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.places.is_resident(entry)
    }

    fn remembers(&self, entry: Entry) -> bool {
        self.places.is_ghost(entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Evictions) {
        if let Place::Resident(slot) = self.places.get(entry) {
            self.ranking.promote(slot);
        }
        self.end_reference();
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        let count = self.recall(entry).map_or(1, |count| count + 1);
        self.enter(entry, count, out);
        self.end_reference();
    }

    /// A reference; the entry becomes a ghost.
    fn take(&mut self, entry: Entry, out: &mut Evictions) {
        if let Place::Resident(slot) = self.places.get(entry) {
            let count = self.ranking.remove(slot);
            self.ranking.release(slot);
            self.ghosts.keep(&mut self.places, entry, count + 1, out);
            self.end_reference();
        }
    }

    /// A reference; the entry becomes the newest ghost.
    fn note(&mut self, entry: Entry, out: &mut Evictions) {
        if !self.contains(entry) {
            let count = self.recall(entry).map_or(1, |count| count + 1);
            self.ghosts.keep(&mut self.places, entry, count, out);
            self.end_reference();
        }
    }

    /// Uses the remembered count, or 1; a resident becomes the newest of its count.
    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        if let Place::Resident(slot) = self.places.get(entry) {
            return self.ranking.renew(slot);
        }
        let count = self.recall(entry).unwrap_or(1);
        self.enter(entry, count, out);
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        if let Place::Resident(slot) = self.places.get(entry) {
            self.ranking.remove(slot);
            self.ranking.release(slot);
        } else {
            self.recall(entry);
        }
        self.places.set(entry, Place::Unknown);
    }

    fn victim(&self) -> Option<Entry> {
        if self.len() == self.capacity { self.entries().next() } else { None }
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.capacity = capacity;
        self.aging = aging(self.age, capacity, self.references);
        self.ghosts.resize(&mut self.places, capacity, out);
        while let Some(victim) = self.ranking.front().filter(|_| self.len() > capacity) {
            self.evict(victim, out);
            self.ranking.release(victim);
        }
    }

    /// The next victim first.
    fn residents(&self) -> Vec<Entry> {
        self.entries().collect()
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        let (slot, ghost) = self.places.near(entry, self.ranking.slots(), self.ghosts.slots());
        self.ranking.prefetch(slot) ^ self.ghosts.peek(ghost) as u32
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        snapshot.clock(&mut self.references)?;
        self.aging = aging(self.age, self.capacity, self.references);
        let Self { places, ranking, ghosts, .. } = self;
        ranking.save_load(snapshot, |entry, slot| {
            places.set(entry, Place::Resident(slot));
            Ok(())
        })?;
        ghosts.save_load(places, snapshot, |snapshot, count| snapshot.number(count, 1..=CLOCK_MAX))
    }

    fn validate(&self) -> Result<(), String> {
        crate::check_room(self.len(), self.capacity)?;
        let placed =
            |slot: &u32| self.places.get(self.ranking.entry(*slot)) == Place::Resident(*slot);
        if let Some(slot) = self.ranking.iter().find(|slot| !placed(slot)) {
            return Err(format!("slot {slot} is ranked and its entry is elsewhere"));
        }
        let resident = (0..self.places.entries()).filter(|&e| self.contains(e)).count();
        if resident != self.len() as usize {
            return Err(format!("{resident} are resident, {} ranked", self.len()));
        }
        self.ghosts.check(&self.places).and_then(|()| self.ranking.check())
    }
}

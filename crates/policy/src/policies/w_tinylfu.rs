//! W-TinyLFU: a small LRU window in front of a segmented LRU. A block that leaves the window enters
//! the segmented LRU only if it was recently referenced more often than that one's victim.
//!
//! A sketch counts all references to any block, resident or not, and ages by halving: see
//! `sketch.rs`. Its counts do not affect [`Policy::remembers`], and there are no ghosts.
//!
//! Residents have slots of their own, so that their data is close together.
//!
//! Invariants: a slot names its entry and its list, `at` the slot of every resident; slots in no
//! list are in `free`. `|probation| + |protected|` is at most `main`, `|protected|` at most its
//! target, `|window|` at most its target.

use crate::containers::lists::Lists;
use crate::containers::sketch::Sketch;
use crate::registry::{Footprint, Kind, Parameter, PolicyInfo};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, EvictionKind, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "w-tinylfu",
    aliases: &[("wtinylfu", "")],
    summary: "LRU window, then admission by frequency sketch into a segmented LRU",
    source: "Einziger, Friedman & Manes, ACM TOS 2017",
    parameters: &[
        Parameter {
            name: "window",
            kind: Kind::Real(0.0001, 1.0),
            default: "0.01",
            help: "window, share of the capacity",
        },
        Parameter {
            name: "protected",
            kind: Kind::Real(0.0, 1.0),
            default: "0.8",
            help: "protected segment, share of the capacity outside the window",
        },
        Parameter {
            name: "sketch",
            kind: Kind::Word(&["countmin", "exact"]),
            default: "countmin",
            help: "4-bit count-min sketch, or one exact counter a block (slow; for comparisons)",
        },
    ],
    memory: Footprint::new(1, 110),
    build: |arguments, context| {
        // One slot from the start, so that there is always one to prefetch.
        let mut lists = Lists::new(3);
        lists.grow(1);
        let mut policy = WTinyLfu {
            capacity: 0,
            window_share: arguments.real("window"),
            protected_share: arguments.real("protected"),
            main: 0,
            protected_target: 0,
            lists,
            free: vec![0],
            at: Vec::new(),
            sketch: Sketch::new(arguments.word("sketch") == "exact", context.capacity),
            keys: Vec::new(),
        };
        policy.derive_sizes(context.capacity);
        Ok(Box::new(policy))
    },
};

/// The lists, least recently used at the front.
const WINDOW: u32 = 0;
const PROBATION: u32 = 1;
const PROTECTED: u32 = 2;

/// `at` of an entry that is not resident.
const ABSENT: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Resident {
    entry: Entry,
    list: u32,
}

#[derive(Clone, Debug)]
struct WTinyLfu {
    capacity: u32,
    window_share: f64,
    protected_share: f64,
    /// Places outside the window.
    main: u32,
    protected_target: u32,
    /// Lists of slots.
    lists: Lists<Resident>,
    free: Vec<u32>,
    at: Vec<u32>,
    sketch: Sketch,
    /// The block of each handle; empty if the handle is the block.
    keys: Vec<u64>,
}

impl WTinyLfu {
    fn derive_sizes(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.main = ((1.0 - self.window_share) * f64::from(capacity)) as u32;
        self.protected_target = (self.protected_share * f64::from(self.main)) as u32;
    }

    #[inline(always)]
    fn key(&self, entry: Entry) -> u64 {
        self.keys.get(entry as usize).copied().unwrap_or(u64::from(entry))
    }

    #[inline(always)]
    fn count(&mut self, entry: Entry) {
        self.sketch.increment(self.key(entry));
    }

    fn main_len(&self) -> u32 {
        self.lists.len(PROBATION) + self.lists.len(PROTECTED)
    }

    /// Moves a slot to the newest end of a list.
    #[inline(always)]
    fn shift(&mut self, list: u32, slot: u32) {
        self.lists.remove(self.lists.data(slot).list, slot);
        self.lists.push_back(list, slot);
        self.lists.data_mut(slot).list = list;
    }

    /// The slot of the next victim in main.
    #[inline(always)]
    fn main_victim(&self) -> Option<u32> {
        self.lists.front(PROBATION).or(self.lists.front(PROTECTED))
    }

    /// Frees a slot. Returns its entry.
    #[inline(always)]
    fn remove(&mut self, slot: u32) -> Entry {
        let Resident { entry, list } = self.lists.data(slot);
        self.lists.remove(list, slot);
        self.free.push(slot);
        self.at[entry as usize] = ABSENT;
        entry
    }

    #[inline(always)]
    fn evict(&mut self, slot: u32, out: &mut Evictions) {
        out.push(self.remove(slot), EvictionKind::Evicted);
    }

    #[inline(always)]
    fn insert(&mut self, entry: Entry, out: &mut Evictions) {
        self.append(WINDOW, entry);
        self.shrink_window(out);
    }

    /// Inserts a non-resident entry at the newest end of a list.
    #[inline(always)]
    fn append(&mut self, list: u32, entry: Entry) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.lists.grow(self.lists.entries() + 1);
            self.lists.entries() - 1
        });
        *self.lists.data_mut(slot) = Resident { entry, list };
        self.lists.push_back(list, slot);
        self.at[entry as usize] = slot;
    }

    /// Moves the block that leaves the window to main, if there is room, or if it was referenced
    /// more often than main's victim.
    #[inline(always)]
    fn shrink_window(&mut self, out: &mut Evictions) {
        while self.lists.len(WINDOW) > self.capacity - self.main {
            let Some(candidate) = self.lists.front(WINDOW) else { return };
            let victim = self.main_victim().filter(|_| self.main_len() >= self.main);
            let admitted = match victim {
                None => self.main_len() < self.main,
                Some(victim) => self.estimate(candidate) > self.estimate(victim),
            };
            if !admitted {
                self.evict(candidate, out);
                continue;
            }
            if let Some(victim) = victim {
                self.evict(victim, out);
            }
            self.shift(PROBATION, candidate);
        }
    }

    #[inline(always)]
    fn estimate(&self, slot: u32) -> u8 {
        self.sketch.estimate(self.key(self.lists.data(slot).entry))
    }

    fn shrink_protected(&mut self) {
        while self.lists.len(PROTECTED) > self.protected_target {
            if let Some(demoted) = self.lists.front(PROTECTED) {
                self.shift(PROBATION, demoted);
            }
        }
    }
}

impl Policy for WTinyLfu {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.lists.len(WINDOW) + self.main_len()
    }

    fn grow(&mut self, entries: u32) {
        self.at.resize(self.at.len().max(entries as usize), ABSENT);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.at[entry as usize] != ABSENT
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Evictions) {
        self.count(entry);
        let slot = self.at[entry as usize];
        let list = self.lists.data(slot).list;
        if list != PROBATION {
            self.lists.move_to_back(list, slot);
            return;
        }
        self.shift(PROTECTED, slot);
        self.shrink_protected();
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        self.count(entry);
        self.insert(entry, out);
    }

    /// Counts the reference in the sketch.
    fn take(&mut self, entry: Entry, _: &mut Evictions) {
        if self.contains(entry) {
            self.count(entry);
            self.remove(self.at[entry as usize]);
        }
    }

    /// Counts the reference in the sketch.
    fn note(&mut self, entry: Entry, _: &mut Evictions) {
        if !self.contains(entry) {
            self.count(entry);
        }
    }

    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        if self.contains(entry) {
            let slot = self.at[entry as usize];
            self.lists.move_to_back(self.lists.data(slot).list, slot);
        } else {
            self.insert(entry, out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        if self.contains(entry) {
            self.remove(self.at[entry as usize]);
        }
    }

    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        // With a full window the new block pushes out the oldest; a window of one block holds only
        // that.
        let entry = |slot| self.lists.data(slot).entry;
        let candidate = entry(self.lists.front(WINDOW)?);
        let estimate = |entry| self.sketch.estimate_after_stranger(self.key(entry));
        match self.main_victim().map(entry) {
            Some(victim) if estimate(candidate) > estimate(victim) => Some(victim),
            _ => Some(candidate),
        }
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.derive_sizes(capacity);
        self.sketch.resize(capacity);
        self.shrink_protected();
        while self.main_len() > self.main {
            let Some(victim) = self.main_victim() else { break };
            self.evict(victim, out);
        }
        self.shrink_window(out);
    }

    /// Window, probation, protected; least recently used first.
    fn residents(&self) -> Vec<Entry> {
        let slots = [WINDOW, PROBATION, PROTECTED].into_iter().flat_map(|l| self.lists.iter(l));
        slots.map(|slot| self.lists.data(slot).entry).collect()
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        // Branch-free, since the condition is unpredictable.
        let slot = self.at[entry as usize].min(self.lists.entries() - 1);
        self.lists.prefetch(slot) ^ self.sketch.prefetch(self.key(entry))
    }

    fn names(&mut self) -> Option<&mut Vec<u64>> {
        Some(&mut self.keys)
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        for list in [WINDOW, PROBATION, PROTECTED] {
            let saved = self.lists.iter(list).map(|slot| (self.lists.data(slot).entry, ()));
            for (entry, ()) in snapshot.entries_with(self.lists.len(list), saved, |_, ()| Ok(()))? {
                self.append(list, entry);
            }
        }
        self.sketch.save_load(snapshot)
    }

    fn validate(&self) -> Result<(), String> {
        if self.main_len() > self.main
            || self.lists.len(PROTECTED) > self.protected_target
            || self.lists.len(WINDOW) > self.capacity - self.main
        {
            return Err("a segment is over its size".into());
        }
        for list in [WINDOW, PROBATION, PROTECTED] {
            for slot in self.lists.iter(list) {
                let Resident { entry, list: said } = self.lists.data(slot);
                if said != list || self.at[entry as usize] != slot {
                    return Err(format!("entry {entry} is not where it is said to be"));
                }
            }
        }
        let resident = self.at.iter().filter(|&&slot| slot != ABSENT).count() as u32;
        let slots = self.len() + self.free.len() as u32;
        if resident != self.len() || slots != self.lists.entries() {
            return Err(format!("{resident} resident, {} listed, {slots} slots", self.len()));
        }
        self.lists.check()
    }
}

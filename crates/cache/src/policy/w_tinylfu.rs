//! W-TinyLFU: a small LRU window in front of a segmented LRU; what leaves the window enters only
//! if it was referenced more often, lately, than what it would drive out.
//!
//! Frequencies are kept in a sketch of all references, resident or not, which ages by halving:
//! see `sketch.rs`. They are not part of what [`Policy::remembers`] says, and no ghosts exist.
//!
//! Invariants: `state` names the list that an entry is linked in; `|probation| + |protected|` is at
//! most `main`, `|protected|` at most its target, `|window|` at most its target.

use super::registry::{Kind, Parameter, PolicyInfo};
use super::sketch::Sketch;
use super::{Departures, Entry, Fate, Policy};
use crate::lists::Lists;

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
    build: |arguments, context| {
        let mut policy = WTinyLfu {
            capacity: 0,
            window_share: arguments.real("window"),
            protected_share: arguments.real("protected"),
            main: 0,
            protected_target: 0,
            lists: Lists::new(3),
            sketch: Sketch::new(arguments.word("sketch") == "exact", context.capacity),
            keys: Vec::new(),
        };
        policy.derive_sizes(context.capacity);
        Ok(Box::new(policy))
    },
};

/// The lists, least recently used at the front; also the entries' tags.
const WINDOW: u32 = 0;
const PROBATION: u32 = 1;
const PROTECTED: u32 = 2;

struct WTinyLfu {
    capacity: u32,
    window_share: f64,
    protected_share: f64,
    /// Room outside the window.
    main: u32,
    protected_target: u32,
    /// Each entry carries the list that it is or was linked in.
    lists: Lists<u32>,
    sketch: Sketch,
    /// The block that each handle stands for; empty where the handle is the block.
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

    #[inline(always)]
    fn push(&mut self, list: u32, entry: Entry) {
        self.lists.push_back(list, entry);
        *self.lists.data_mut(entry) = list;
    }

    /// What main gives up next.
    fn main_victim(&self) -> Option<Entry> {
        self.lists.front(PROBATION).or(self.lists.front(PROTECTED))
    }

    fn unlink(&mut self, entry: Entry) {
        let list = self.lists.data(entry);
        self.lists.remove(list, entry);
    }

    fn evict(&mut self, entry: Entry, out: &mut Departures) {
        self.unlink(entry);
        out.push(entry, Fate::Evicted);
    }

    fn insert(&mut self, entry: Entry, out: &mut Departures) {
        self.push(WINDOW, entry);
        self.shrink_window(out);
    }

    /// What falls out of the window goes to main if there is room, or if it was referenced more
    /// often than main's victim.
    fn shrink_window(&mut self, out: &mut Departures) {
        while self.lists.len(WINDOW) > self.capacity - self.main {
            let Some(candidate) = self.lists.front(WINDOW) else { return };
            let victim = self.main_victim().filter(|_| self.main_len() >= self.main);
            let admitted = match victim {
                None => self.main_len() < self.main,
                Some(victim) => self.beats(candidate, victim),
            };
            if !admitted {
                self.evict(candidate, out);
                continue;
            }
            if let Some(victim) = victim {
                self.evict(victim, out);
            }
            self.unlink(candidate);
            self.push(PROBATION, candidate);
        }
    }

    fn beats(&self, candidate: Entry, victim: Entry) -> bool {
        self.sketch.estimate(self.key(candidate)) > self.sketch.estimate(self.key(victim))
    }

    fn shrink_protected(&mut self) {
        while self.lists.len(PROTECTED) > self.protected_target {
            if let Some(demoted) = self.lists.pop_front(PROTECTED) {
                self.push(PROBATION, demoted);
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
        self.lists.grow(entries);
    }

    fn bind(&mut self, entry: Entry, key: u64) {
        self.keys.resize(self.lists.entries() as usize, 0);
        self.keys[entry as usize] = key;
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.lists.linked(entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Departures) {
        self.count(entry);
        let list = self.lists.data(entry);
        if list != PROBATION {
            self.lists.move_to_back(list, entry);
            return;
        }
        self.lists.remove(PROBATION, entry);
        self.push(PROTECTED, entry);
        self.shrink_protected();
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Departures) {
        self.count(entry);
        self.insert(entry, out);
    }

    fn take(&mut self, entry: Entry, _: &mut Departures) {
        self.unlink(entry);
    }

    fn place(&mut self, entry: Entry, out: &mut Departures) {
        if self.contains(entry) {
            self.lists.move_to_back(self.lists.data(entry), entry);
        } else {
            self.insert(entry, out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Departures) {
        if self.contains(entry) {
            self.unlink(entry);
        }
    }

    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        // With a full window the newcomer pushes its oldest out; a window of one holds just that.
        let candidate = self.lists.front(WINDOW)?;
        let estimate = |entry| self.sketch.estimate_after_stranger(self.key(entry));
        match self.main_victim() {
            Some(victim) if estimate(candidate) > estimate(victim) => Some(victim),
            _ => Some(candidate),
        }
    }

    fn resize(&mut self, capacity: u32, out: &mut Departures) {
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
        [WINDOW, PROBATION, PROTECTED].into_iter().flat_map(|list| self.lists.iter(list)).collect()
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.lists.warm(entry) ^ self.sketch.warm(self.key(entry))
    }

    fn validate(&self) -> Result<(), String> {
        if self.main_len() > self.main
            || self.lists.len(PROTECTED) > self.protected_target
            || self.lists.len(WINDOW) > self.capacity - self.main
        {
            return Err("a segment is over its size".into());
        }
        for list in [WINDOW, PROBATION, PROTECTED] {
            if self.lists.iter(list).any(|e| self.lists.data(e) != list) {
                return Err(format!("an entry of list {list} says it is elsewhere"));
            }
        }
        self.lists.check()
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let list = |list| format!("{:?}", self.lists.iter(list).collect::<Vec<_>>());
        let freq: Vec<_> = (0..self.lists.entries())
            .map(|e| (e, self.sketch.estimate(self.key(e))))
            .filter(|&(_, count)| count > 0)
            .collect();
        vec![
            ("window", list(WINDOW)),
            ("probation", list(PROBATION)),
            ("protected", list(PROTECTED)),
            ("freq", format!("{freq:?}")),
        ]
    }
}

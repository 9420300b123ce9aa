//! CAR: ARC with clocks in place of its two LRU lists, so that a hit only sets a bit.
//!
//! The hand of each clock is the front of its list. When the hand of T1 meets a page that was
//! referenced since it came, the page moves to T2. Pages leave T1 and T2 for the ghost lists B1 and
//! B2, whose hits change the target size `p` of T1 as in ARC.
//!
//! Deviation: the directory is kept within its bounds at every miss of an unknown page, not only
//! when the cache is full, since `take` makes ghosts and room at once.
//!
//! Invariants: those of the directory; the reference bit of a non-resident page is clear.

use crate::containers::directory::{B1, B2, Directory, T1, T2, ghosts_of};
use crate::registry::{Footprint, PolicyInfo};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "car",
    aliases: &[],
    summary: "ARC with clocks: hits only set a bit",
    source: "Bansal & Modha, FAST 2004",
    parameters: &[],
    memory: Footprint::new(2, 140),
    build: |_, context| {
        let directory = Directory::new(context.capacity);
        Ok(Box::new(Car { directory, referenced: Vec::new() }))
    },
};

#[derive(Clone, Debug)]
struct Car {
    /// Front of each clock: at the hand.
    directory: Directory,
    /// The reference bits.
    referenced: Vec<bool>,
}

impl Car {
    /// Whether the next victim is searched in T1, which has `t1` pages.
    #[inline(always)]
    fn takes_t1(&self, t1: u32) -> bool {
        f64::from(t1) >= self.directory.p.max(1.0)
    }

    /// "replace" of the paper: frees one frame.
    fn replace(&mut self, out: &mut Evictions) {
        loop {
            let t1_turn = self.takes_t1(self.directory.lists.len(T1));
            let clock = if t1_turn { T1 } else { T2 };
            let Some(at_hand) = self.directory.lists.front(clock) else { return };
            if !std::mem::take(&mut self.referenced[at_hand as usize]) {
                self.directory.lists.evict(clock, ghosts_of(clock), out);
                return;
            }
            self.directory.lists.shift(T2, at_hand);
        }
    }

    /// Makes `entry` resident; a hit in a ghost list moves `p` if it `counts` as a reference.
    #[inline(always)]
    fn insert(&mut self, entry: Entry, counts: bool, out: &mut Evictions) {
        if self.directory.is_full() {
            self.replace(out);
        }
        let Some(ghosts) = self.directory.lists.list_of(entry) else {
            self.directory.make_room_for_unknown(out);
            self.directory.lists.push(T1, entry);
            return;
        };
        if counts {
            self.directory.adapt(ghosts, false);
        }
        self.directory.lists.shift(T2, entry);
    }
}

impl Policy for Car {
    fn capacity(&self) -> u32 {
        self.directory.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.directory.resident()
    }

    fn grow(&mut self, entries: u32) {
        self.directory.lists.grow(entries);
        self.referenced.resize(self.referenced.len().max(entries as usize), false);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.directory.contains(entry)
    }

    #[inline(always)]
    fn remembers(&self, entry: Entry) -> bool {
        self.directory.remembers(entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Evictions) {
        self.referenced[entry as usize] = true;
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        self.insert(entry, true, out);
    }

    fn take(&mut self, entry: Entry, _: &mut Evictions) {
        self.directory.take(entry);
        self.referenced[entry as usize] = false;
    }

    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        if !self.contains(entry) {
            self.insert(entry, false, out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        self.directory.lists.remove(entry);
        self.referenced[entry as usize] = false;
    }

    /// Simulates the hands: T1 gives referenced pages to T2 until one is unreferenced or T1 is down
    /// to its target; then T2's hand goes around, over those pages last. O(capacity) at worst.
    fn victim(&self) -> Option<Entry> {
        if !self.directory.is_full() {
            return None;
        }
        let lists = &self.directory.lists;
        let mut t1 = lists.len(T1);
        for at_hand in lists.iter(T1) {
            if !self.takes_t1(t1) {
                break;
            }
            if !self.referenced[at_hand as usize] {
                return Some(at_hand);
            }
            t1 -= 1;
        }
        let unreferenced = lists.iter(T2).find(|&e| !self.referenced[e as usize]);
        let moved = lists.iter(T1).next().filter(|_| t1 < lists.len(T1));
        unreferenced.or(moved).or_else(|| lists.iter(T2).next())
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.directory.resize(capacity, out);
        while self.len() > capacity {
            self.replace(out);
            self.directory.fit(out);
        }
    }

    /// T1, then T2, from the hand on.
    fn residents(&self) -> Vec<Entry> {
        self.directory.residents()
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.directory.lists.prefetch(entry) ^ u32::from(self.referenced[entry as usize])
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        let Self { directory: Directory { capacity, p, lists }, referenced } = self;
        snapshot.real(p, 0.0..=f64::from(*capacity))?;
        for clock in [T1, T2] {
            let saved = lists.iter(clock).map(|page| (page, referenced[page as usize]));
            for (page, bit) in snapshot.entries_with(lists.len(clock), saved, Snapshot::flag)? {
                lists.push(clock, page);
                referenced[page as usize] = bit;
            }
        }
        [B1, B2].into_iter().try_for_each(|ghosts| lists.save_load(ghosts, snapshot))
    }

    fn validate(&self) -> Result<(), String> {
        let referenced = (0..).zip(&self.referenced).filter(|&(_, &bit)| bit);
        let mut pages = referenced.map(|(page, _)| page);
        if let Some(page) = pages.find(|&page| !self.contains(page)) {
            return Err(format!("page {page} is referenced and not resident"));
        }
        self.directory.validate()
    }
}

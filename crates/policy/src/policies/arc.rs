//! ARC: two LRU lists, of blocks recently referenced once (T1) and more often (T2), with a ghost
//! list behind each (B1, B2). A reference to a ghost shows which of the two lists should have been
//! larger, and changes the target size `p` of T1.
//!
//! As in the paper, `p` is a real number. Many implementations, also some used in published
//! comparisons, round the step |B2|/|B1| down to an integer: `step=whole`.
//!
//! Content-aware (`ca=yes`): victims are examined in the order in which REPLACE would choose them
//! with the current `p`. The chosen one becomes a ghost of the list that it was in.
//!
//! Deviations: nothing is replaced while there is room (`take` and `discard` make room; the paper
//! has neither); if T2 is empty, T1 gives the victim.
//!
//! Invariants: those of the directory.

use crate::containers::directory::{B1, B2, Directory, T1, T2, ghosts_of};
use crate::content_aware::{
    ALPHA, CA, ContentAware, FILTER_BITS, HASHES, KNOWS, Neighbour, PUBLISH,
};
use crate::registry::{Footprint, Kind, Parameter, PolicyInfo};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, EvictionKind, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "arc",
    aliases: &[],
    summary: "recency and frequency lists balanced by hits in their ghosts",
    source: "Megiddo & Modha, FAST 2003",
    parameters: &[
        Parameter {
            name: "step",
            kind: Kind::Word(&["real", "whole"]),
            default: "real",
            help: "step of the target at a hit in a ghost list: as published, or cut to a whole \
                   number",
        },
        CA,
        ALPHA,
        KNOWS,
        FILTER_BITS,
        HASHES,
        PUBLISH,
    ],
    memory: Footprint::new(2, 154),
    build: |arguments, context| {
        let neighbour = Neighbour::of(arguments, context.capacity);
        Ok(Box::new(Arc {
            whole_steps: arguments.word("step") == "whole",
            directory: Directory::aware(context.capacity, neighbour),
        }))
    },
};

#[derive(Clone, Debug)]
struct Arc {
    whole_steps: bool,
    /// Front of each list: least recently used.
    directory: Directory,
}

impl Arc {
    /// The list that REPLACE takes from.
    #[inline(always)]
    fn victim_list(&self, for_b2: bool) -> u32 {
        let Directory { p, lists, .. } = &self.directory;
        let t1 = f64::from(lists.len(T1));
        let t1_is_over = t1 > *p || (for_b2 && t1 == *p);
        let t1_gives = t1 > 0.0 && (t1_is_over || lists.len(T2) == 0);
        if t1_gives { T1 } else { T2 }
    }

    /// How many victims in a row T1 would give before T2 gives one.
    fn excess(&self, for_b2: bool) -> u32 {
        let Directory { p, lists, .. } = &self.directory;
        let keeps = p.floor() as u32;
        let meets_p = for_b2 && f64::from(keeps) == *p && keeps > 0;
        (lists.len(T1) + u32::from(meets_p)).saturating_sub(keeps)
    }

    /// REPLACE of the paper.
    #[inline(always)]
    fn replace(&mut self, for_b2: bool, out: &mut Evictions) {
        if self.directory.lists.is_content_aware() && self.replace_held(for_b2, out) {
            return;
        }
        // The choice between the two lists is unpredictable: an index is better than a branch.
        let list = self.victim_list(for_b2);
        self.directory.lists.evict(list, ghosts_of(list), out);
    }

    /// REPLACE of a block that the neighbour holds. False if there is none within the window.
    #[inline(never)]
    fn replace_held(&mut self, for_b2: bool, out: &mut Evictions) -> bool {
        let excess = self.excess(for_b2);
        let lists = &mut self.directory.lists;
        let Some(victim) = lists.prefer(T1, excess, T2) else { return false };
        let ghosts = if lists.is_in(T1, victim) { B1 } else { B2 };
        lists.evict_this(victim, ghosts, out);
        true
    }

    /// Makes `entry` resident as cases II to IV of the paper do, without moving `p`.
    #[inline(always)]
    fn insert(&mut self, entry: Entry, out: &mut Evictions) {
        let ghosts = self.directory.lists.list_of(entry);
        if ghosts.is_some() {
            self.directory.lists.remove(entry);
        } else if self.directory.lists.len(T1) == self.directory.capacity {
            self.drop_from_t1(out);
        } else {
            self.directory.make_room_for_unknown(out);
        }
        if self.directory.is_full() {
            self.replace(ghosts == Some(B2), out);
        }
        self.directory.lists.push(if ghosts.is_some() { T2 } else { T1 }, entry);
    }

    /// T1 fills the whole cache and B1 is empty: evicts from T1 without leaving a ghost.
    #[cold]
    fn drop_from_t1(&mut self, out: &mut Evictions) {
        let lists = &mut self.directory.lists;
        // T2 is empty.
        let preferred = lists.prefer(T1, 0, T2);
        preferred.into_iter().for_each(|victim| lists.remove(victim));
        if let Some(victim) = preferred.or_else(|| lists.pop(T1)) {
            out.push(victim, EvictionKind::Evicted);
        }
    }
}

impl Policy for Arc {
    fn capacity(&self) -> u32 {
        self.directory.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.directory.resident()
    }

    fn grow(&mut self, entries: u32) {
        self.directory.lists.grow(entries);
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
        self.directory.lists.shift(T2, entry);
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        if let Some(ghosts) = self.directory.lists.list_of(entry) {
            self.directory.adapt(ghosts, self.whole_steps);
        }
        self.insert(entry, out);
    }

    fn take(&mut self, entry: Entry, _: &mut Evictions) {
        self.directory.take(entry);
    }

    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        match self.directory.lists.list_of(entry) {
            Some(list @ (T1 | T2)) => self.directory.lists.renew(list, entry),
            _ => self.insert(entry, out),
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        self.directory.lists.remove(entry);
    }

    fn victim(&self) -> Option<Entry> {
        if !self.directory.is_full() {
            return None;
        }
        let lists = &self.directory.lists;
        let preferred = lists.would_prefer(T1, self.excess(false), T2);
        preferred.or_else(|| lists.iter(self.victim_list(false)).next())
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.directory.resize(capacity, out);
        while self.len() > capacity {
            self.replace(false, out);
            self.directory.fit(out);
        }
    }

    /// T1, then T2, least recently used first.
    fn residents(&self) -> Vec<Entry> {
        self.directory.residents()
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.directory.lists.prefetch(entry)
    }

    fn content_aware(&mut self) -> Option<&mut dyn ContentAware> {
        self.directory.lists.content_aware()
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        self.directory.save_load(snapshot)
    }

    fn validate(&self) -> Result<(), String> {
        self.directory.validate()
    }
}

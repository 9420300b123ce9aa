//! 2Q, full version: a block must be referenced again after it has left a FIFO queue before it may
//! enter the LRU list of the main cache. So scans and bursts do not pollute that list.
//!
//! A new block enters A1in; references while it is there are correlated and ignored. When it
//! leaves, its id is kept in A1out; a reference to it there moves it into Am. Blocks that leave Am
//! are not remembered.
//!
//! Content-aware (`ca=yes`): victims are examined in the order in which "reclaim" would choose
//! them: the excess of A1in, then Am, then the rest of A1in.
//!
//! Deviation: if the paper takes a victim from an empty Am (a small cache filled by A1in), we take
//! it from A1in.
//!
//! Invariants: `|A1in| + |Am|` is at most the capacity, `|A1out|` at most `kout_bound`.

use std::fmt::{self, Debug};

use crate::containers::queues::Queues;
use crate::content_aware::{
    ALPHA, CA, ContentAware, FILTER_BITS, HASHES, KNOWS, Neighbour, PUBLISH,
};
use crate::registry::{Footprint, Kind, Parameter, PolicyInfo};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, EvictionKind, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "2q",
    aliases: &[("two-q", "")],
    summary: "a FIFO filter with a memory before the LRU list: resists scans",
    source: "Johnson & Shasha, VLDB 1994",
    parameters: &[
        Parameter {
            name: "kin",
            kind: Kind::Real(0.0, 1.0),
            default: "0.25",
            help: "size of the FIFO queue A1in, share of the capacity",
        },
        Parameter {
            name: "kout",
            kind: Kind::Real(0.0, 100.0),
            default: "0.5",
            help: "ids remembered in A1out, times the capacity",
        },
        CA,
        ALPHA,
        KNOWS,
        FILTER_BITS,
        HASHES,
        PUBLISH,
    ],
    memory: Footprint::new(2, 129),
    build: |arguments, context| {
        let (kin, kout) = (arguments.real("kin"), arguments.real("kout"));
        let queues = Queues::new([2, 4, 2, 2], Neighbour::of(arguments, context.capacity));
        let mut policy = TwoQ { capacity: 0, kin, kout, kin_target: 0, kout_bound: 0, queues };
        policy.derive_sizes(context.capacity);
        Ok(Box::new(policy))
    },
};

/// FIFO, resident.
const A1IN: u32 = 0;
/// LRU, resident.
const AM: u32 = 1;
/// FIFO, ids only.
const A1OUT: u32 = 2;
const RESIDENT: u32 = 2;

#[derive(Clone)]
struct TwoQ {
    capacity: u32,
    kin: f64,
    kout: f64,
    kin_target: u32,
    kout_bound: u32,
    queues: Queues,
}

impl TwoQ {
    fn derive_sizes(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.kin_target = ((self.kin * f64::from(capacity)) as u32).max(1);
        self.kout_bound = ((self.kout * f64::from(capacity)) as u32).max(1);
        self.queues.resize(capacity);
    }

    /// The queue from which the next victim comes.
    #[inline(always)]
    fn victim_queue(&self) -> u32 {
        let a1in_is_over = self.queues.len(A1IN) > self.kin_target;
        if a1in_is_over || self.queues.len(AM) == 0 { A1IN } else { AM }
    }

    /// The paper's "reclaim": frees one frame.
    #[inline(always)]
    fn reclaim(&mut self, out: &mut Evictions) {
        if self.queues.is_content_aware() && self.reclaim_held(out) {
            return;
        }
        if self.victim_queue() == A1IN {
            self.queues.evict(A1IN, A1OUT, out);
            self.trim_ghosts(out);
        } else if let Some(victim) = self.queues.pop(AM) {
            out.push(victim, EvictionKind::Evicted);
        }
    }

    /// How many victims in a row A1in would give before Am gives one.
    fn excess(&self) -> u32 {
        self.queues.len(A1IN).saturating_sub(self.kin_target)
    }

    /// Reclaims the frame of a block that the neighbour holds. False if there is none within the
    /// window.
    #[inline(never)]
    fn reclaim_held(&mut self, out: &mut Evictions) -> bool {
        let Some(victim) = self.queues.prefer(A1IN, self.excess(), AM) else { return false };
        if self.queues.is_in(A1IN, victim) {
            self.queues.evict_this(victim, A1OUT, out);
            self.trim_ghosts(out);
        } else {
            self.queues.remove(victim);
            out.push(victim, EvictionKind::Evicted);
        }
        true
    }

    /// Drops the oldest id of A1out if it has too many.
    #[inline(always)]
    fn trim_ghosts(&mut self, out: &mut Evictions) {
        if self.queues.len(A1OUT) > self.kout_bound {
            self.queues.forget(A1OUT, out);
        }
    }
}

impl Policy for TwoQ {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.queues.len(A1IN) + self.queues.len(AM)
    }

    fn grow(&mut self, entries: u32) {
        self.queues.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.queues.is_below(RESIDENT, entry)
    }

    #[inline(always)]
    fn remembers(&self, entry: Entry) -> bool {
        self.queues.is_in(A1OUT, entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Evictions) {
        if self.queues.is_in(AM, entry) {
            self.queues.renew(AM, entry);
        }
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        let was_ghost = self.remembers(entry);
        if was_ghost {
            self.queues.remove(entry);
        }
        if self.len() == self.capacity {
            self.reclaim(out);
        }
        self.queues.push(if was_ghost { AM } else { A1IN }, entry);
    }

    fn take(&mut self, entry: Entry, out: &mut Evictions) {
        if self.contains(entry) {
            self.queues.remove(entry);
            self.queues.push(A1OUT, entry);
            self.trim_ghosts(out);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        self.queues.remove(entry);
    }

    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity {
            return None;
        }
        let preferred = self.queues.would_prefer(A1IN, self.excess(), AM);
        preferred.or_else(|| self.queues.iter(self.victim_queue()).next())
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.derive_sizes(capacity);
        while self.queues.len(A1OUT) > self.kout_bound {
            self.queues.forget(A1OUT, out);
        }
        while self.len() > capacity {
            self.reclaim(out);
        }
    }

    /// A1in, then Am, oldest first.
    fn residents(&self) -> Vec<Entry> {
        self.queues.iter(A1IN).chain(self.queues.iter(AM)).collect()
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.queues.prefetch(entry)
    }

    fn content_aware(&mut self) -> Option<&mut dyn ContentAware> {
        self.queues.content_aware()
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        [A1IN, A1OUT, AM].into_iter().try_for_each(|list| self.queues.save_load(list, snapshot))
    }

    fn validate(&self) -> Result<(), String> {
        if self.len() > self.capacity || self.queues.len(A1OUT) > self.kout_bound {
            return Err("more resident or remembered than allowed".into());
        }
        self.queues.check()
    }
}

/// The lists, oldest first.
impl Debug for TwoQ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a1in, am, a1out] =
            [A1IN, AM, A1OUT].map(|list| Vec::from_iter(self.queues.iter(list)));
        let mut state = f.debug_struct("TwoQ");
        state.field("a1in", &a1in).field("am", &am).field("a1out", &a1out).finish()
    }
}

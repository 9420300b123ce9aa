//! What a replacement policy is, and what it may say. The policies themselves are one file each
//! beside this one; `registry.rs` lists them with their parameters.
//!
//! A policy orders entries and nothing else: it knows no blocks, data, clock or lock. It works on
//! [`Entry`] handles that its user hands out: in a simulation the densely renumbered block itself,
//! in a server the slot of a hashed index. Everything it remembers about an entry, resident or
//! ghost, it keeps in plain arrays indexed by the handle, so a reference costs one look-up.

mod arc;
mod awareness;
mod car;
mod clock;
mod clock_ca;
mod clock_pro;
pub(crate) mod directory;
mod fbr;
mod fifo;
mod ghosts;
mod lfru;
mod lfu;
mod lirs;
mod logs;
mod lru;
mod lru_ca;
mod lru_k;
mod memory;
mod mq;
mod mru;
pub(crate) mod neighbour;
mod one_list;
mod opt;
mod peak_distance;
mod period;
pub(crate) mod queues;
mod ranking;
mod registry;
mod ring_search;
mod s3_fifo;
mod sieve;
pub(crate) mod sketch;
mod trail;
mod two_q;
mod w_tinylfu;

use dyn_clone::DynClone;

use crate::level::{Counts, Reference, WriteMode};
use crate::memo::{Memo, Refused};

pub use awareness::{Awareness, Knows};
pub use opt::Future;
pub(crate) use registry::Arguments;
pub use registry::{Argument, Context, Kind, Parameter, PolicyInfo, Spec, SpecError, policies};

/// Handle of something a policy may hold: below the number given to [`Policy::grow`].
pub type Entry = u32;

/// How an entry left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Evicted, and the policy knows nothing of it any more.
    Evicted,
    /// Evicted, but the policy remembers it as a ghost: the handle stays in use.
    Remembered,
    /// A ghost that was dropped (or an entry discarded for good): the handle is free.
    Forgotten,
}

/// One entry that left, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The entry.
    pub entry: Entry,
    /// What became of it.
    pub fate: Fate,
}

/// What one or several calls to a policy drove out, in order. Owned by the caller and reused, so
/// that the steady state allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Departures(Vec<Departure>);

impl Departures {
    /// An empty record with room for the usual case.
    pub fn new() -> Self {
        Self(Vec::with_capacity(64))
    }

    /// Forgets what was recorded.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether nothing left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Everything that left, in order.
    pub fn iter(&self) -> impl Iterator<Item = Departure> + '_ {
        self.0.iter().copied()
    }

    /// The evicted entries, in order, remembered or not.
    pub fn evicted(&self) -> impl Iterator<Item = Entry> + '_ {
        self.0.iter().filter(|d| d.fate != Fate::Forgotten).map(|d| d.entry)
    }

    /// Records a departure.
    #[inline(always)]
    pub fn push(&mut self, entry: Entry, fate: Fate) {
        self.0.push(Departure { entry, fate });
    }

    /// Records a departure if there is one, without a branch: where that cannot be foretold.
    #[inline(always)]
    pub(crate) fn push_if(&mut self, is_one: bool, entry: Entry, fate: Fate) {
        self.0.push(Departure { entry, fate });
        self.0.truncate(self.0.len() - usize::from(!is_one));
    }
}

dyn_clone::clone_trait_object!(Policy);

/// A replacement policy over entries. A clone goes on from the same state by itself.
///
/// Contract, checked for every policy of the registry by the tests of this crate:
/// * an entry is resident, a ghost (remembered without data), or unknown; at most
///   [`capacity`](Self::capacity) are resident;
/// * every change of an entry from resident to something else inside `admit`, `place` and `resize`
///   is recorded in `out`, and so is every ghost dropped, whatever the call;
/// * the same calls give the same answers on every machine.
///
/// A logical clock, where a policy has one, counts its references: `touch`, `admit`, and for some
/// policies `take` and `note` (`docs/developer/algorithms.md` says which).
pub trait Policy: DynClone + Send {
    /// Number of resident entries allowed, at least 1.
    fn capacity(&self) -> u32;

    /// Number of resident entries.
    fn len(&self) -> u32;

    /// Whether nothing is resident.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes handles below `entries` valid. Never shrinks.
    fn grow(&mut self, entries: u32);

    /// Whether it makes a difference to the policy which blocks the handles stand for, so that
    /// [`bind`](Self::bind) must say it.
    fn needs_names(&self) -> bool {
        false
    }

    /// Says that the handle `entry`, unknown so far, from now on stands for the block `key`. Only
    /// a policy that hashes blocks (W-TinyLFU's sketch) cares; where this is never called the
    /// handle itself is the block.
    fn bind(&mut self, entry: Entry, key: u64) {
        let _ = (entry, key);
    }

    /// Whether `entry` is resident.
    fn contains(&self, entry: Entry) -> bool;

    /// Whether `entry` is a ghost: not resident, but remembered.
    fn remembers(&self, entry: Entry) -> bool {
        let _ = entry;
        false
    }

    /// A reference to a resident entry. It evicts nothing, but may drop ghosts.
    fn touch(&mut self, entry: Entry, out: &mut Departures);

    /// A reference to an entry that is not resident: makes it resident, evicting where it must.
    /// W-TinyLFU alone may evict what it admitted earlier in place of its victim.
    fn admit(&mut self, entry: Entry, out: &mut Departures);

    /// A reference: [`touch`](Self::touch) or [`admit`](Self::admit). True on a hit.
    #[inline(always)]
    fn access(&mut self, entry: Entry, out: &mut Departures) -> bool {
        let hit = self.contains(entry);
        if hit {
            self.touch(entry, out);
        } else {
            self.admit(entry, out);
        }
        hit
    }

    /// Takes a resident entry away, because it moves to an upper level, and keeps what the policy
    /// remembers about it (TPDS 2004, section 6, op 2).
    fn take(&mut self, entry: Entry, out: &mut Departures);

    /// Notes a reference to a non-resident entry that was served around this cache (TPDS 2004,
    /// section 6). Most policies learn nothing from it.
    fn note(&mut self, entry: Entry, out: &mut Departures) {
        let _ = (entry, out);
    }

    /// Places an entry because the level above evicted it, which is not an access (TPDS 2004,
    /// section 6, op 4). A resident entry is repositioned.
    fn place(&mut self, entry: Entry, out: &mut Departures);

    /// As [`place`](Self::place) for one after the other of these, which are resident, up to the
    /// first that drives something out: how many that are.
    fn place_all(&mut self, entries: &[Entry], out: &mut Departures) -> usize {
        for (done, &entry) in (1..).zip(entries) {
            self.place(entry, out);
            if !out.is_empty() {
                return done;
            }
        }
        entries.len()
    }

    /// Forgets an entry entirely, resident or ghost (TRIM, invalidation). Not an eviction, and the
    /// entry itself is not recorded in `out`; ghosts that go with it are.
    fn discard(&mut self, entry: Entry, out: &mut Departures);

    /// Whether the policy is content-aware: it makes a difference to it what the neighbouring cache
    /// holds, so that [`neighbour_holds`](Self::neighbour_holds) should say it. As long as nobody
    /// says it, such a policy does what it does without a neighbour.
    fn asks_neighbour(&self) -> bool {
        false
    }

    /// Says that the neighbouring cache holds an entry from now on, or no longer. Of an entry that
    /// is unknown here too: it may be about to come.
    fn neighbour_holds(&mut self, entry: Entry, holds: bool) {
        let _ = (entry, holds);
    }

    /// Whether it was last said that the neighbouring cache holds an entry. An entry that has been
    /// evicted keeps that until something else is said.
    fn neighbour_has(&self, entry: Entry) -> bool {
        let _ = entry;
        false
    }

    /// The entry that admitting an unknown one would evict now; `None` while there is room.
    fn victim(&self) -> Option<Entry>;

    /// Changes the capacity (at least 1) while running. Shrinking recomputes derived sizes, trims
    /// ghosts oldest first, then evicts by the normal rule.
    fn resize(&mut self, capacity: u32, out: &mut Departures);

    /// The resident entries, in an order of the policy's own (its lists, next victim first where
    /// that is defined).
    fn residents(&self) -> Vec<Entry>;

    /// Reads what a coming `access` of `entry` will need, so that it is near by then. The value
    /// means nothing; use it so that the compiler keeps the read.
    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        let _ = entry;
        0
    }

    /// As [`warm`](Self::warm), for what can be reached only when that is near: worth it where
    /// much else happens between two references, as in a server.
    fn warm_further(&self, entry: Entry) -> u32 {
        let _ = entry;
        0
    }

    /// [`warm`](Self::warm) and [`warm_further`](Self::warm_further) for those of many that there
    /// are: one after the other, so that the processor overlaps its waits for memory.
    fn warm_all(&self, entries: &[Option<Entry>]) -> u32 {
        let read = |x, &entry: &Entry| x ^ self.warm(entry) ^ self.warm_further(entry);
        entries.iter().flatten().fold(0, read)
    }

    /// Carries what the policy remembers from one life to the next: into `memo`, or out of it into
    /// a policy that is new, of the same parameters and capacity, with enough handles. One that
    /// was loaded and [validates](Self::validate) goes on as the one that was saved.
    ///
    /// # Errors
    /// The policy cannot be saved; or what is loaded is not of such a policy. One that failed to
    /// load must not be used.
    fn carry(&mut self, memo: &mut Memo<'_>) -> Result<(), Refused>;

    /// Recounts everything and checks the invariants in the head of the policy's file.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    fn validate(&self) -> Result<(), String>;

    /// The inner state in the terms of the specification, for the worked examples: lists, counts
    /// and targets as text, one `name = value` an item.
    fn describe(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// References every element of `refs` in order: the simulator's inner loop, compiled once a
    /// policy. Misses and all writes are appended to `below`, the stream of the level under a
    /// write-through level.
    fn replay(
        &mut self,
        refs: &[Reference],
        mode: WriteMode,
        counts: &mut Counts,
        below: Option<&mut Vec<Reference>>,
    ) {
        crate::level::replay(self, refs, mode, counts, below);
    }
}

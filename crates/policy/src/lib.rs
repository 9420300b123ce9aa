//! Replacement policies over plain handles. A policy orders entries and nothing else: it knows no
//! blocks, data, clock or lock. The caller gives it [`Entry`] handles: in a simulation the densely
//! renumbered block itself, in a server the slot of a hashed index. Everything that it remembers of
//! an entry, resident or ghost, is in plain arrays indexed by the handle: a reference costs one
//! look-up.
//!
//! * This file has the interface, [`Policy`]; [`contract`] checks any implementation of it.
//! * [`policies`] lists the published algorithms, one file each in `policies/`; [`Spec`] makes one
//!   from its name and parameters (`registry.rs`).
//! * [`containers`] has parts of policies: lists, heaps, logs, ghosts, sketches. Schemes of
//!   movement (`lab/schemes`) use them too.
//! * [`Batch`] has the inner loop of simulations, [`Counts`] what all caches count, and
//!   [`Snapshot`] saves a policy's state.
//!
//! Not here: the index from blocks to handles, placement, and what is known of other caches
//! (`crates/level`).
#![forbid(unsafe_code)]

mod batch;
pub mod containers;
mod content_aware;
pub mod contract;
mod counts;
mod policies;
mod reference;
mod registry;
mod snapshot;

use std::fmt::Debug;

use dyn_clone::DynClone;

pub use batch::{Batch, refer};
pub use content_aware::{Awareness, ContentAware, Knows};
pub use counts::{Counts, Tally};
pub use policies::{Future, Lirs, policies};
pub use reference::{Entry, Reference, WriteMode};
pub use registry::{
    Argument, Arguments, Context, Footprint, Kind, Maker, Parameter, PolicyInfo, Spec, SpecError,
};
pub use snapshot::{Snapshot, SnapshotError};

/// What happened to an entry that a policy let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionKind {
    /// Evicted, and unknown to the policy from now on.
    Evicted,
    /// Evicted, but the policy remembers it as a ghost: the handle stays in use.
    Remembered,
    /// A ghost that was dropped (or an entry discarded for good): the handle is free.
    Forgotten,
}

/// One entry that a policy let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The entry.
    pub entry: Entry,
    /// What happened to the entry.
    pub kind: EvictionKind,
}

/// What one or several calls to a policy evicted, in order. Owned by the caller and reused, so that
/// the steady state allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Evictions(Vec<Eviction>);

impl Evictions {
    /// An empty record with room for the usual case.
    pub fn new() -> Self {
        Self(Vec::with_capacity(64))
    }

    /// Empties the record.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether nothing was evicted and no ghost was dropped.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All entries that were let go, in order.
    pub fn iter(&self) -> impl Iterator<Item = Eviction> + '_ {
        self.0.iter().copied()
    }

    /// The evicted entries, in order, remembered or not.
    pub fn evicted(&self) -> impl Iterator<Item = Entry> + '_ {
        self.0.iter().filter(|e| e.kind != EvictionKind::Forgotten).map(|e| e.entry)
    }

    /// Appends an entry.
    #[inline(always)]
    pub fn push(&mut self, entry: Entry, kind: EvictionKind) {
        self.0.push(Eviction { entry, kind });
    }

    /// Branch-free push, for unpredictable conditions.
    #[inline(always)]
    pub(crate) fn push_if(&mut self, is_one: bool, entry: Entry, kind: EvictionKind) {
        self.0.push(Eviction { entry, kind });
        self.0.truncate(self.0.len() - usize::from(!is_one));
    }
}

dyn_clone::clone_trait_object!(Policy);

/// A replacement policy over entries. A clone is independent and continues from the same state.
/// `Debug` shows the inner state.
///
/// Nine methods must be written; the others have defaults, which suit a policy that remembers
/// nothing of what it evicted. `examples/own_policy.rs` of this crate writes one.
///
/// Contract, checked for every policy of the registry by the tests of this crate, and for any other
/// by [`contract::check`]:
/// * an entry is resident, a ghost (remembered without data), or unknown; at most
///   [`capacity`](Self::capacity) are resident;
/// * every change of an entry from resident to something else inside `admit`, `place` and `resize`
///   is recorded in `out`, and so is every ghost dropped, whatever the call;
/// * equal calls give equal answers on every machine.
///
/// If a policy has a logical clock, it counts references: `touch`, `admit`, and in some policies
/// `take` and `note` (`docs/developer/algorithms.md` says which).
#[expect(clippy::len_without_is_empty, reason = "nobody asks, and each method is one to know")]
pub trait Policy: Batch + Debug + DynClone + Send {
    /// Number of resident entries allowed, at least 1.
    fn capacity(&self) -> u32;

    /// Number of resident entries.
    fn len(&self) -> u32;

    /// Makes handles below `entries` valid. Never shrinks.
    fn grow(&mut self, entries: u32);

    /// Whether `entry` is resident.
    fn contains(&self, entry: Entry) -> bool;

    /// A reference to a resident entry. It evicts nothing, but may drop ghosts.
    fn touch(&mut self, entry: Entry, out: &mut Evictions);

    /// A reference to a non-resident entry: makes it resident, and evicts if necessary. Only
    /// W-TinyLFU may evict, in place of its victim, a block that it admitted earlier.
    fn admit(&mut self, entry: Entry, out: &mut Evictions);

    /// Forgets an entry entirely, resident or ghost (TRIM, invalidation). This is not an eviction:
    /// the entry is not recorded in `out`; ghosts that are dropped with it are.
    fn discard(&mut self, entry: Entry, out: &mut Evictions);

    /// Changes the capacity (at least 1) while running. Shrinking recomputes derived sizes, trims
    /// ghosts oldest first, then evicts by the normal rule.
    fn resize(&mut self, capacity: u32, out: &mut Evictions);

    /// The resident entries, the next victim first, unless the policy has its own
    /// [`victim`](Self::victim); then in an order that the policy chooses.
    fn residents(&self) -> Vec<Entry>;

    /// The entry that admitting an unknown one would evict now; `None` while there is room. The
    /// default takes the first of all residents: O(capacity).
    fn victim(&self) -> Option<Entry> {
        if self.len() < self.capacity() { None } else { self.residents().first().copied() }
    }

    /// Whether `entry` is a ghost: not resident, but remembered.
    fn remembers(&self, entry: Entry) -> bool {
        let _ = entry;
        false
    }

    /// A reference: [`touch`](Self::touch) or [`admit`](Self::admit). True on a hit.
    #[inline(always)]
    fn access(&mut self, entry: Entry, out: &mut Evictions) -> bool {
        let hit = self.contains(entry);
        if hit {
            self.touch(entry, out);
        } else {
            self.admit(entry, out);
        }
        hit
    }

    /// A reference by a write that may admit the entry. True on a hit. The default makes no
    /// difference between reads and writes.
    #[inline(always)]
    fn write(&mut self, entry: Entry, out: &mut Evictions) -> bool {
        self.access(entry, out)
    }

    /// Removes a resident entry because it moves to an upper level, but keeps what the policy
    /// remembers about it (TPDS 2004, section 6, op 2). The default remembers nothing.
    fn take(&mut self, entry: Entry, out: &mut Evictions) {
        self.discard(entry, out);
    }

    /// Notes a reference to a non-resident entry that was served around this cache (TPDS 2004,
    /// section 6). Most policies learn nothing from it.
    fn note(&mut self, entry: Entry, out: &mut Evictions) {
        let _ = (entry, out);
    }

    /// Places an entry because the level above evicted it, which is not an access (TPDS 2004,
    /// section 6, op 4). A resident entry is repositioned. The default is right for a policy that
    /// counts no references.
    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        self.access(entry, out);
    }

    /// Prefetches what a coming `access` of `entry` will need. The value has no meaning; use it so
    /// that the compiler keeps the read.
    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        let _ = entry;
        0
    }

    /// What decides now which block leaves, if the policy chooses among several ways.
    fn leader(&self) -> Option<&'static str> {
        None
    }

    /// The block of each handle, if the policy needs it: W-TinyLFU's sketch hashes blocks. A handle
    /// beyond the table is itself the block.
    fn names(&mut self) -> Option<&mut Vec<u64>> {
        None
    }

    /// The interface for what the neighbouring cache holds, if the policy is content-aware. Until
    /// it is used, the policy behaves as without a neighbour.
    fn content_aware(&mut self) -> Option<&mut dyn ContentAware> {
        None
    }

    /// Saves the state to `snapshot`, or loads it from there. To load, the policy must be new, of
    /// the same parameters and capacity, with enough handles. A loaded policy that
    /// [validates](Self::validate) continues like the saved one.
    ///
    /// # Errors
    /// The policy cannot be saved, which is the default; or the bytes are not of such a policy. A
    /// policy that failed to load must not be used.
    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        let _ = snapshot;
        Err(SnapshotError::new("this policy cannot be saved"))
    }

    /// Recounts everything and checks the invariants in the head of the policy's file.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Shorthands for the interfaces that only some policies have.
impl dyn Policy {
    /// Tells the policy that the handle `entry`, unknown so far, stands for `block` from now on.
    /// Does nothing if the policy does not need blocks: see [`Policy::names`].
    pub fn bind(&mut self, entry: Entry, block: u64) {
        if let Some(names) = self.names() {
            names.resize(names.len().max(entry as usize + 1), 0);
            names[entry as usize] = block;
        }
    }

    /// Whether the policy uses what the neighbouring cache holds.
    pub fn is_content_aware(&mut self) -> bool {
        self.content_aware().is_some()
    }

    /// See [`ContentAware::neighbour_holds`]. Does nothing in a policy that is not content-aware.
    pub fn neighbour_holds(&mut self, entry: Entry, holds: bool) {
        if let Some(aware) = self.content_aware() {
            aware.neighbour_holds(entry, holds);
        }
    }
}

/// Part of the validation of many policies: no more entries are resident than may be.
fn check_room(resident: u32, capacity: u32) -> Result<(), String> {
    if resident > capacity {
        return Err(format!("{resident} resident, capacity {capacity}"));
    }
    Ok(())
}

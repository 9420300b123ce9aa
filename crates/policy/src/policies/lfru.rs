//! LFRU, also LRFU: a spectrum from LRU to LFU. Every past reference has the weight (1/2)^(lambda *
//! age). The block with the smallest sum of weights, its CRF, is evicted. `lambda` 1 is LRU, 0 is
//! LFU; both papers tune it to the trace. Unless it is given, it is `decay` divided by the
//! capacity, and changes with it: a CRF keeps its value as of LAST, and fades from LAST on at the
//! new rate.
//!
//! Lee et al. forget evicted blocks; TPDS 2004 (section 7.1) extends the policy by a memory of
//! them. All CRFs fade at the same rate, so their order between two references does not change. The
//! constant log2(CRF) + lambda * LAST can therefore replace them.
//!
//! The order is kept in a heap with lazy keys: a key is updated only when it comes to the top. A
//! reference only makes a key larger, so a stale key is too small, and no block is missed. A hit is
//! then O(1) and needs no logarithm.
//!
//! Invariants:
//! 1. an entry is resident exactly if its `stamp` is not 0, and exactly if it is in the heap;
//! 2. an entry is linked exactly if it is a ghost; CRF is 0 exactly if the entry is unknown;
//! 3. no key in the heap is larger than its true value;
//! 4. no two residents have the same stamp.

use std::cmp::Ordering;

use crate::containers::ghosts::{GHOST, Ghosts};
use crate::containers::heap::Heap;
use crate::containers::lists::Lists;
use crate::registry::{Footprint, Kind, Parameter, PolicyInfo};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "lfru",
    aliases: &[("lrfu", "")],
    summary: "least weight of past references, each fading with time",
    source: "Lee et al., SIGMETRICS 1999; Zhou, Chen & Li, TPDS 2004",
    parameters: &[
        Parameter {
            name: "decay",
            kind: Kind::Real(0.0, 1000.0),
            default: "0.05",
            help: "halvings of a reference's weight in as many references as the capacity",
        },
        Parameter {
            name: "lambda",
            kind: Kind::RealOr(0.0, 1.0, "decay"),
            default: "decay",
            help: "instead of decay: halvings a reference; 1 is LRU, 0 is LFU",
        },
        GHOST,
    ],
    memory: Footprint::new(5, 450),
    build: |arguments, context| {
        let lambda = arguments.real_or_word("lambda");
        let mut policy = Lfru {
            capacity: context.capacity,
            lambda: lambda.unwrap_or_default(),
            decay: lambda.is_none().then(|| arguments.real("decay")),
            ghosts: Ghosts::new(GHOSTS, arguments.real("ghost"), context.capacity),
            blocks: Lists::new(1),
            heap: Heap::default(),
            now: 0,
            uses: 0,
        };
        policy.derive_lambda(context.capacity);
        Ok(Box::new(policy))
    },
};

/// Oldest at the front.
const GHOSTS: u32 = 0;

/// Above any possible sum of weights.
const CRF_MAX: f64 = 1e18;

/// What is known of a block. The default is an unknown block.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// Sum of the weights of its references, as of the last one.
    crf: f64,
    /// LAST: the time of the last reference.
    last: u64,
    /// Order of uses (accesses and placements); 0 if the block is not resident.
    stamp: u64,
}

/// The order of eviction: fading CRF, then LAST, then order of use.
type Key = (f64, u64, u64);

#[derive(Clone, Debug)]
struct Lfru {
    capacity: u32,
    /// Halvings of a weight a reference.
    lambda: f64,
    /// What `lambda` is times the capacity; `None` if `lambda` stays as it was given.
    decay: Option<f64>,
    ghosts: Ghosts,
    blocks: Lists<Block>,
    heap: Heap<Key>,
    now: u64,
    uses: u64,
}

impl Lfru {
    fn derive_lambda(&mut self, capacity: u32) {
        self.capacity = capacity;
        if let Some(decay) = self.decay {
            self.lambda = decay / f64::from(capacity);
        }
    }

    /// Brings all keys up to date, since none may be too large: a smaller `lambda` makes them
    /// smaller.
    fn renew_keys(&mut self) {
        for entry in self.residents() {
            self.heap.update(self.key(entry), entry);
        }
    }

    fn key(&self, entry: Entry) -> Key {
        let Block { crf, last, stamp } = self.blocks.data(entry);
        (crf.log2() + self.lambda * last as f64, last, stamp)
    }

    /// Records a use, which may not be a reference.
    #[inline(always)]
    fn stamp(&mut self, entry: Entry) {
        self.uses += 1;
        self.blocks.data_mut(entry).stamp = self.uses;
    }

    /// Counts a reference: adds 1 to the faded CRF.
    #[inline(always)]
    fn reference(&mut self, entry: Entry) {
        self.now += 1;
        let block = self.blocks.data_mut(entry);
        if block.crf == 0.0 {
            block.crf = 1.0;
        } else {
            let fading = (-self.lambda * (self.now - block.last) as f64).exp2();
            block.crf = 1.0 + block.crf * fading;
        }
        block.last = self.now;
    }

    /// Removes an entry from the ghosts, if it is one, and evicts another entry if necessary.
    fn make_room(&mut self, entry: Entry, out: &mut Evictions) {
        if self.remembers(entry) {
            self.blocks.remove(GHOSTS, entry);
        }
        if self.len() == self.capacity {
            self.evict(out);
        }
    }

    /// Inserts a non-resident entry into the order, with what is known of it.
    fn enter(&mut self, entry: Entry) {
        self.stamp(entry);
        self.heap.push(self.key(entry), entry);
    }

    fn evict(&mut self, out: &mut Evictions) {
        while let Some((key, entry)) = self.heap.first() {
            let true_key = self.key(entry);
            if key == true_key {
                self.leave(entry);
                self.ghosts.evict(&mut self.blocks, entry, out);
                return;
            }
            self.heap.update(true_key, entry);
        }
    }

    fn leave(&mut self, entry: Entry) {
        self.heap.remove(entry);
        self.blocks.data_mut(entry).stamp = 0;
    }
}

impl Policy for Lfru {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.heap.len()
    }

    fn grow(&mut self, entries: u32) {
        self.blocks.grow(entries);
        self.heap.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.blocks.data(entry).stamp != 0
    }

    fn remembers(&self, entry: Entry) -> bool {
        self.blocks.linked(entry)
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Evictions) {
        self.reference(entry);
        self.stamp(entry);
    }

    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        self.make_room(entry, out);
        self.reference(entry);
        self.enter(entry);
    }

    /// A reference; the entry becomes a ghost.
    fn take(&mut self, entry: Entry, out: &mut Evictions) {
        if self.contains(entry) {
            self.leave(entry);
            self.reference(entry);
            self.ghosts.keep(&mut self.blocks, entry, out);
        }
    }

    /// A reference; the entry becomes the newest ghost.
    fn note(&mut self, entry: Entry, out: &mut Evictions) {
        if self.contains(entry) {
            return;
        }
        if self.remembers(entry) {
            self.blocks.remove(GHOSTS, entry);
        }
        self.reference(entry);
        self.ghosts.keep(&mut self.blocks, entry, out);
    }

    /// A use, but not a reference. CRF and LAST are the remembered ones, or begin now.
    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        if self.contains(entry) {
            self.stamp(entry);
            return;
        }
        self.make_room(entry, out);
        if self.blocks.data(entry).crf == 0.0 {
            *self.blocks.data_mut(entry) = Block { crf: 1.0, last: self.now, stamp: 0 };
        }
        self.enter(entry);
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        if self.contains(entry) {
            self.leave(entry);
        } else if self.remembers(entry) {
            self.blocks.remove(GHOSTS, entry);
        }
        *self.blocks.data_mut(entry) = Block::default();
    }

    /// O(capacity).
    fn victim(&self) -> Option<Entry> {
        let order = |a: &Entry, b: &Entry| {
            self.key(*a).partial_cmp(&self.key(*b)).unwrap_or(Ordering::Equal)
        };
        let full = self.len() == self.capacity;
        self.residents().into_iter().filter(|_| full).min_by(order)
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        let before = self.lambda;
        self.derive_lambda(capacity);
        if self.lambda < before {
            self.renew_keys();
        }
        self.ghosts.resize(&mut self.blocks, capacity, out);
        while self.len() > capacity {
            self.evict(out);
        }
    }

    /// In no particular order.
    fn residents(&self) -> Vec<Entry> {
        self.heap.iter().map(|(_, entry)| entry).collect()
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.blocks.prefetch(entry)
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        snapshot.clock(&mut self.now)?;
        snapshot.clock(&mut self.uses)?;
        let (now, uses) = (self.now, self.uses);
        let history = |snapshot: &mut Snapshot<'_>, block: &mut Block| {
            snapshot.real(&mut block.crf, 1.0..=CRF_MAX)?;
            snapshot.number(&mut block.last, 0..=now)
        };
        let saved = self.heap.iter().map(|(_, entry)| (entry, self.blocks.data(entry)));
        for (entry, block) in snapshot.entries_with(self.len(), saved, |snapshot, block| {
            history(snapshot, block)?;
            snapshot.number(&mut block.stamp, 1..=uses)
        })? {
            *self.blocks.data_mut(entry) = block;
            self.heap.push(self.key(entry), entry);
        }
        self.blocks.save_load(GHOSTS, snapshot, history)
    }

    fn validate(&self) -> Result<(), String> {
        crate::check_room(self.len(), self.capacity)?;
        for entry in 0..self.blocks.entries() {
            let block = self.blocks.data(entry);
            let (resident, ghost) = (self.heap.contains(entry), self.blocks.linked(entry));
            if (block.stamp != 0) != resident
                || (block.crf > 0.0) != (resident || ghost)
                || (resident && ghost)
                || block.last > self.now
            {
                return Err(format!("entry {entry}: {block:?}, in heap {resident}, ghost {ghost}"));
            }
        }
        if self.heap.iter().any(|(key, e)| key > self.key(e)) {
            return Err("a key is larger than what it stands for".into());
        }
        let stamp = |entry| self.blocks.data(entry).stamp;
        let mut stamps: Vec<_> = self.residents().into_iter().map(stamp).collect();
        stamps.sort_unstable();
        if !stamps.is_sorted_by(|a, b| a < b) || stamps.last().is_some_and(|&s| s > self.uses) {
            return Err("two uses have the same stamp, or one is from the future".into());
        }
        self.ghosts.check(&self.blocks)?;
        self.heap.check().and_then(|()| self.blocks.check())
    }
}

//! FBR: frequency-based replacement with short-term locality factored out.
//!
//! The residents are a recency stack. References to its *new* section, at the top, are not counted,
//! since they are taken for one use. The victim is the block with the smallest count in the *old*
//! section, at the bottom, so that a block has time to earn its count; among equals it is the one
//! nearest the bottom. Counts above `cmax` do not compete: if all old blocks have such counts, the
//! bottom of the stack is evicted. When the mean count exceeds `amax`, all counts are halved.
//!
//! Robinson & Devarakonda forget evicted blocks; TPDS 2004 (section 7.1) extends the policy by a
//! memory of their counts. When halving we round up, so that counts stay at least 1 (the public
//! implementations round down), and do not halve the remembered counts. The paper's own section
//! sizes could not be confirmed, and TPDS 2004 tuned them to the trace. The defaults come from
//! measurements on many traces: a new section far smaller, and an old one far larger, than in
//! public programs.
//!
//! The last block of the new and the first of the old section are known, and the old blocks of each
//! count up to `cmax` are chained in stack order. So every step is O(1), except the choice of the
//! victim, O(cmax), and halving, O(capacity) from time to time.
//!
//! Invariants:
//! 1. the first `n_new` blocks of the stack (all, if there are fewer) are marked new, the last
//!    `n_old` old; `last_new` is the lowest new and `first_old` the highest old block;
//! 2. an old block with a count up to `cmax` is in the chain of its count, whose front is nearest
//!    the bottom of the stack; no other block is in any chain;
//! 3. `sum` is the sum of the residents' counts, each at least 1;
//! 4. an entry is linked in the list of its state: stack, ghosts, or none if unknown.

use crate::containers::ghosts::{GHOST, Ghosts};
use crate::containers::lists::Lists;
use crate::registry::{Footprint, Kind, Parameter, PolicyInfo, SpecError};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "fbr",
    aliases: &[],
    summary: "least counted of the older blocks, not counting repeats at the top",
    source: "Robinson & Devarakonda, SIGMETRICS 1990",
    parameters: &[
        Parameter {
            name: "new",
            kind: Kind::Real(0.0, 1.0),
            default: "0.01",
            help: "section whose references are not counted, share of the capacity",
        },
        Parameter {
            name: "old",
            kind: Kind::Real(0.0, 1.0),
            default: "0.95",
            help: "section that victims come from, share of the capacity",
        },
        Parameter {
            name: "cmax",
            kind: Kind::Integer(1, 255),
            default: "8",
            help: "largest count that is compared",
        },
        Parameter {
            name: "amax",
            kind: Kind::Real(1.0, 1e9),
            default: "100",
            help: "mean count above which all are halved",
        },
        GHOST,
    ],
    memory: Footprint::new(5, 340),
    build: |arguments, context| {
        let (new, old) = (arguments.real("new"), arguments.real("old"));
        if new + old > 1.0 {
            return Err(SpecError(format!("fbr: sections overlap: new {new} + old {old} > 1")));
        }
        let c_max = arguments.integer("cmax") as u32;
        let mut policy = Fbr {
            capacity: context.capacity,
            shares: [new, old],
            n_new: 0,
            n_old: 0,
            a_max: arguments.real("amax"),
            ghosts: Ghosts::new(GHOSTS, arguments.real("ghost"), context.capacity),
            lists: Lists::new(2),
            last_new: None,
            first_old: None,
            chains: Lists::new(c_max),
            sum: 0,
        };
        policy.derive_sizes(context.capacity);
        Ok(Box::new(policy))
    },
};

/// The recency stack. The back is its top, the most recent block: `next` is above, `prev` below.
const STACK: u32 = 0;
/// Oldest at the front.
const GHOSTS: u32 = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Place {
    #[default]
    Unknown,
    Resident,
    Ghost,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    count: u32,
    place: Place,
    new: bool,
    old: bool,
}

#[derive(Clone, Debug)]
struct Fbr {
    capacity: u32,
    /// Sizes of the new and the old section, as shares of the capacity.
    shares: [f64; 2],
    n_new: u32,
    n_old: u32,
    a_max: f64,
    ghosts: Ghosts,
    lists: Lists<Block>,
    last_new: Option<Entry>,
    first_old: Option<Entry>,
    /// Old blocks with count `n` are in list `n - 1`.
    chains: Lists,
    sum: u64,
}

/// The sections.
impl Fbr {
    fn derive_sizes(&mut self, capacity: u32) {
        self.capacity = capacity;
        let [new, old] = self.shares.map(|share| (share * f64::from(capacity)) as u32);
        (self.n_new, self.n_old) = (new, old.max(1));
    }

    /// Counts above `cmax` have no chain.
    #[inline(always)]
    fn chain_of(&self, count: u32) -> Option<u32> {
        Some(count - 1).filter(|&chain| chain < self.chains.count())
    }

    /// Adds a block to the old section, above all others.
    fn enter_old(&mut self, entry: Entry) {
        self.first_old = Some(entry);
        self.lists.data_mut(entry).old = true;
        if let Some(chain) = self.chain_of(self.lists.data(entry).count) {
            self.chains.push_back(chain, entry);
        }
    }

    fn leave_old(&mut self, entry: Entry) {
        self.lists.data_mut(entry).old = false;
        if let Some(chain) = self.chain_of(self.lists.data(entry).count) {
            self.chains.remove(chain, entry);
        }
    }

    /// Removes a block from the stack; other blocks move up into the sections.
    fn pull(&mut self, entry: Entry) {
        let Block { new, old, count, .. } = self.lists.data(entry);
        self.sum -= u64::from(count);
        if let (true, Some(last)) = (new, self.last_new) {
            self.lists.data_mut(entry).new = false;
            if let Some(next) = self.lists.prev(last) {
                self.lists.data_mut(next).new = true;
                self.last_new = Some(next);
            } else if last == entry {
                self.last_new = self.lists.next(entry);
            }
        }
        if let (true, Some(first)) = (old, self.first_old) {
            self.leave_old(entry);
            if let Some(next) = self.lists.next(first) {
                self.enter_old(next);
            } else if first == entry {
                self.first_old = self.lists.prev(entry);
            }
        }
        self.lists.remove(STACK, entry);
    }

    /// Puts a block on top of the stack, which pushes another one out of the new section. The block
    /// is old at once only if the old section is the whole stack.
    fn push(&mut self, entry: Entry, count: u32) {
        self.lists.push_back(STACK, entry);
        self.sum += u64::from(count);
        let new = self.n_new > 0;
        *self.lists.data_mut(entry) = Block { count, place: Place::Resident, new, old: false };
        match self.last_new {
            Some(last) if self.len() > self.n_new => {
                self.lists.data_mut(last).new = false;
                self.last_new = self.lists.next(last);
            }
            None if new => self.last_new = Some(entry),
            _ => {}
        }
        if self.len() <= self.n_old {
            self.enter_old(entry);
        }
    }

    /// Moves a resident to the top. A block within the new section changes nothing else, unless
    /// that reaches into the old section.
    #[inline(always)]
    fn raise(&mut self, entry: Entry, count: u32) {
        let Block { new, old, .. } = self.lists.data(entry);
        if !new || old {
            self.pull(entry);
            self.push(entry, count);
            return;
        }
        if self.last_new == Some(entry) {
            self.last_new = self.lists.next(entry).or(self.last_new);
        }
        self.lists.move_to_back(STACK, entry);
    }

    /// Clears the marks of both sections, until [`mark_sections`](Self::mark_sections).
    fn unmark_sections(&mut self) {
        for entry in self.residents() {
            if self.lists.data(entry).old {
                self.leave_old(entry);
            }
            self.lists.data_mut(entry).new = false;
        }
        (self.last_new, self.first_old) = (None, None);
    }

    /// Recomputes the sections after their sizes or all counts changed.
    fn mark_sections(&mut self) {
        let stack = self.residents();
        for &entry in stack.iter().take(self.n_old as usize) {
            self.enter_old(entry);
        }
        for &entry in stack.iter().rev().take(self.n_new as usize) {
            self.lists.data_mut(entry).new = true;
            self.last_new = Some(entry);
        }
    }
}

/// Counts, victims and ghosts.
impl Fbr {
    /// Halves all counts if their mean is too large: O(capacity), but at least about half as many
    /// references pass until the next time as counts were lost.
    fn age(&mut self) {
        if self.sum as f64 > self.a_max * f64::from(self.len()) {
            self.halve();
        }
    }

    #[cold]
    fn halve(&mut self) {
        self.unmark_sections();
        self.sum = 0;
        for entry in self.residents() {
            let block = self.lists.data_mut(entry);
            block.count = block.count.div_ceil(2);
            self.sum += u64::from(block.count);
        }
        self.mark_sections();
    }

    fn next_victim(&self) -> Option<Entry> {
        let chained = (0..self.chains.count()).find_map(|chain| self.chains.front(chain));
        chained.or_else(|| self.lists.front(STACK))
    }

    fn evict(&mut self, out: &mut Evictions) {
        if let Some(victim) = self.next_victim() {
            self.pull(victim);
            self.lists.data_mut(victim).place = Place::Ghost;
            self.ghosts.evict(&mut self.lists, victim, out);
        }
    }

    /// Makes room for a non-resident entry. Returns its remembered count, or 0.
    #[inline(always)]
    fn make_room(&mut self, entry: Entry, out: &mut Evictions) -> u32 {
        let Block { count, place, .. } = self.lists.data(entry);
        if place == Place::Ghost {
            self.lists.remove(GHOSTS, entry);
        }
        if self.len() == self.capacity {
            self.evict(out);
        }
        count
    }

    /// The part of [`Policy::validate`] for ghosts and unknown entries.
    fn check_places(&self) -> Result<(), String> {
        if self.lists.iter(GHOSTS).any(|e| !self.remembers(e)) {
            return Err("a ghost that is none".into());
        }
        let known = |e| self.lists.data(e).place != Place::Unknown;
        match (0..self.lists.entries()).find(|&e| known(e) != self.lists.linked(e)) {
            Some(entry) => Err(format!("entry {entry}: linked and known disagree")),
            None => self.ghosts.check(&self.lists),
        }
    }
}

impl Policy for Fbr {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.lists.len(STACK)
    }

    fn grow(&mut self, entries: u32) {
        self.lists.grow(entries);
        self.chains.grow(entries);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.lists.data(entry).place == Place::Resident
    }

    fn remembers(&self, entry: Entry) -> bool {
        self.lists.data(entry).place == Place::Ghost
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, _: &mut Evictions) {
        let Block { count, new, .. } = self.lists.data(entry);
        self.raise(entry, count.saturating_add(u32::from(!new)));
        self.age();
    }

    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        let count = self.make_room(entry, out);
        self.push(entry, count.saturating_add(1));
        self.age();
    }

    /// A reference that counts like a hit; the block becomes a ghost.
    fn take(&mut self, entry: Entry, out: &mut Evictions) {
        let Block { count, new, place, .. } = self.lists.data(entry);
        if place != Place::Resident {
            return;
        }
        self.pull(entry);
        let block = self.lists.data_mut(entry);
        block.count = count.saturating_add(u32::from(!new));
        block.place = Place::Ghost;
        self.ghosts.keep(&mut self.lists, entry, out);
    }

    /// A reference; the block becomes the newest ghost.
    fn note(&mut self, entry: Entry, out: &mut Evictions) {
        let Block { count, place, .. } = self.lists.data(entry);
        if place == Place::Resident {
            return;
        }
        if place == Place::Ghost {
            self.lists.remove(GHOSTS, entry);
        }
        let block = self.lists.data_mut(entry);
        block.count = count.saturating_add(1);
        block.place = Place::Ghost;
        self.ghosts.keep(&mut self.lists, entry, out);
    }

    /// Puts the block on top of the stack without counting: with its remembered count, or 1.
    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        if self.contains(entry) {
            self.raise(entry, self.lists.data(entry).count);
        } else {
            let count = self.make_room(entry, out);
            self.push(entry, count.max(1));
        }
        self.age();
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        match self.lists.data(entry).place {
            Place::Resident => self.pull(entry),
            Place::Ghost => self.lists.remove(GHOSTS, entry),
            Place::Unknown => {}
        }
        *self.lists.data_mut(entry) = Block::default();
    }

    fn victim(&self) -> Option<Entry> {
        if self.len() == self.capacity { self.next_victim() } else { None }
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.unmark_sections();
        self.derive_sizes(capacity);
        self.mark_sections();
        self.ghosts.resize(&mut self.lists, capacity, out);
        while self.len() > capacity {
            self.evict(out);
        }
    }

    /// From the bottom of the stack to the top.
    fn residents(&self) -> Vec<Entry> {
        self.lists.iter(STACK).collect()
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.lists.prefetch(entry)
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        for (list, place) in [(STACK, Place::Resident), (GHOSTS, Place::Ghost)] {
            self.lists.save_load(list, snapshot, |snapshot, block| {
                block.place = place;
                snapshot.number(&mut block.count, 1..=u32::MAX)
            })?;
        }
        if snapshot.is_loading() {
            let count = |entry| u64::from(self.lists.data(entry).count);
            self.sum = self.lists.iter(STACK).map(count).sum();
            self.mark_sections();
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        let stack = self.residents();
        let (n_new, n_old) = (self.n_new as usize, self.n_old as usize);
        let mut chains = vec![Vec::new(); self.chains.count() as usize];
        let mut sum = 0;
        for (height, &entry) in stack.iter().enumerate() {
            let block = self.lists.data(entry);
            let (new, old) = (stack.len() - height <= n_new, height < n_old);
            if block.place != Place::Resident
                || block.count == 0
                || (block.new, block.old) != (new, old)
            {
                return Err(format!("entry {entry} at height {height}: {block:?}"));
            }
            if let (true, Some(chain)) = (old, self.chain_of(block.count)) {
                chains[chain as usize].push(entry);
            }
            sum += u64::from(block.count);
        }
        let kept: Vec<Vec<_>> =
            (0..self.chains.count()).map(|c| self.chains.iter(c).collect()).collect();
        let last_new = stack.len().checked_sub(n_new.min(stack.len())).and_then(|at| stack.get(at));
        let first_old = n_old.min(stack.len()).checked_sub(1).map(|at| stack[at]);
        let ends = (last_new.copied(), first_old);
        if kept != chains || (self.last_new, self.first_old) != ends || self.sum != sum {
            return Err("the ends of the sections, the chains or the sum are wrong".into());
        }
        if stack.len() > self.capacity as usize {
            return Err(format!("{} resident, capacity {}", stack.len(), self.capacity));
        }
        self.check_places().and_then(|()| self.lists.check()).and_then(|()| self.chains.check())
    }
}

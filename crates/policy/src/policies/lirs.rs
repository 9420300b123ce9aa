//! LIRS: blocks are classified by the recency of their last reference but one. Blocks that were
//! soon referenced again (LIR) have nearly the whole cache; the others (HIR) share a small part.
//!
//! Stack S orders blocks by last reference and ends at the last LIR block. If an HIR block is still
//! in S when it is referenced, its reuse distance is smaller than the recency of that LIR block,
//! and it takes the place of that one. S also holds non-resident blocks, N, the ghosts. The paper
//! does not bound them; we do, like others: at most `nonres` times the capacity, dropping the one
//! evicted first. Queue Q holds the resident HIR blocks; its front is the victim.
//!
//! `top=keep` follows the program of the author of LIRS: a resident HIR block that is on top of S
//! already stays HIR when it is referenced; ghosts above the bound are dropped only when the stack
//! is pruned; and the size of the LIR part is rounded down, in place of rounding the HIR part to
//! the nearest.
//!
//! Invariants:
//! 1. the bottom of S is LIR, or S is empty; so without LIR blocks nothing is in S;
//! 2. LIR blocks are in S only; resident HIR blocks in Q and maybe in S; ghosts in N and in S;
//! 3. at most `lir_target` blocks are LIR, which is below the capacity: a full cache has a Q;
//! 4. |N| is at most `ghost_bound` (with `top=keep`: after pruning).

use crate::containers::lists::Lists;
use crate::registry::{Footprint, Kind, Parameter, PolicyInfo};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, EvictionKind, Evictions, Policy};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "lirs",
    aliases: &[],
    summary: "keeps blocks whose last two references were close together",
    source: "Jiang & Zhang, SIGMETRICS 2002",
    parameters: &[
        Parameter {
            name: "hirs",
            kind: Kind::Real(0.0, 1.0),
            default: "0.01",
            help: "part of the cache for resident HIR blocks, share of the capacity",
        },
        Parameter {
            name: "nonres",
            kind: Kind::Real(0.0, 1000.0),
            default: "2",
            help: "non-resident blocks remembered, times the capacity",
        },
        Parameter {
            name: "top",
            kind: Kind::Word(&["promote", "keep"]),
            default: "promote",
            help: "HIR block referenced on top of the stack: made LIR (paper) or left HIR (author)",
        },
    ],
    memory: Footprint::new(3, 192),
    build: |arguments, context| {
        let mut policy = Lirs::new(context.capacity, arguments.real("hirs"));
        policy.nonres = arguments.real("nonres");
        policy.keep = arguments.word("top") == "keep";
        policy.derive_sizes(context.capacity);
        Ok(Box::new(policy))
    },
};

/// The only list of `stack`. Front: the bottom.
const S: u32 = 0;
/// The lists of `queues`. Resident HIR blocks, front: the next victim.
const Q: u32 = 0;
/// Ghosts, front: evicted first.
const N: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum State {
    Unknown,
    Ghost,
    Hir,
    Lir,
}

/// The state of LIRS, which the scheme `tandem` uses as the directory of its levels.
#[derive(Clone, Debug)]
pub struct Lirs {
    capacity: u32,
    hirs: f64,
    nonres: f64,
    /// Whether `top=keep` is set.
    keep: bool,
    lir_target: u32,
    ghost_bound: u32,
    /// Number of LIR blocks.
    lirs: u32,
    stack: Lists,
    queues: Lists,
    state: Vec<State>,
}

impl Lirs {
    /// The defaults, with this part for resident HIR blocks.
    pub fn new(capacity: u32, hirs: f64) -> Self {
        let mut policy = Self {
            capacity,
            hirs,
            nonres: 2.0,
            keep: false,
            lir_target: 0,
            ghost_bound: 0,
            lirs: 0,
            stack: Lists::new(1),
            queues: Lists::new(2),
            state: Vec::new(),
        };
        policy.derive_sizes(capacity);
        policy
    }

    /// Changes the part for resident HIR blocks. LIR blocks above what is left become HIR; no block
    /// leaves.
    pub fn set_hirs(&mut self, hirs: f64, out: &mut Evictions) {
        self.hirs = hirs;
        self.derive_sizes(self.capacity);
        while self.lirs > self.lir_target {
            self.demote(out);
        }
        self.prune(out);
    }

    /// Counts a reference of a block that is not kept. It is remembered like one that came and was
    /// evicted at once, so the distance to its next reference is known.
    pub fn pass_by(&mut self, entry: Entry, out: &mut Evictions) {
        self.withdraw(entry);
        self.put_on_top(entry);
        if self.stack.linked(entry) {
            self.set(entry, State::Ghost);
            self.queues.push_back(N, entry);
        }
        self.bound_ghosts(out);
    }

    fn derive_sizes(&mut self, capacity: u32) {
        let c = f64::from(capacity);
        self.capacity = capacity;
        self.ghost_bound = (self.nonres * c) as u32;
        self.lir_target = if self.keep {
            (((1.0 - self.hirs) * c) as u32).min(capacity - 1)
        } else {
            capacity - ((self.hirs * c).round() as u32).clamp(1, capacity)
        };
    }

    #[inline(always)]
    fn state(&self, entry: Entry) -> State {
        self.state[entry as usize]
    }

    #[inline(always)]
    fn set(&mut self, entry: Entry, state: State) {
        self.state[entry as usize] = state;
    }

    /// Removes all blocks but LIR ones from the bottom of S. Ghosts among them are forgotten.
    #[inline(always)]
    fn trim(&mut self, out: &mut Evictions) {
        while let Some(bottom) = self.stack.front(S) {
            match self.state(bottom) {
                State::Lir => return,
                State::Ghost => self.forget(bottom, out),
                _ => self.stack.remove(S, bottom),
            }
        }
    }

    #[inline(always)]
    fn bound_ghosts(&mut self, out: &mut Evictions) {
        while self.queues.len(N) > self.ghost_bound {
            if let Some(oldest) = self.queues.front(N) {
                self.forget(oldest, out);
            }
        }
    }

    #[inline(always)]
    fn prune(&mut self, out: &mut Evictions) {
        self.trim(out);
        if self.keep {
            self.bound_ghosts(out);
        }
    }

    fn forget(&mut self, ghost: Entry, out: &mut Evictions) {
        self.stack.remove(S, ghost);
        self.queues.remove(N, ghost);
        self.set(ghost, State::Unknown);
        out.push(ghost, EvictionKind::Forgotten);
    }

    /// A hit of a LIR block.
    #[inline(always)]
    fn renew_lir(&mut self, entry: Entry, out: &mut Evictions) {
        let was_bottom = self.stack.front(S) == Some(entry);
        self.stack.move_to_back(S, entry);
        if was_bottom {
            self.prune(out);
        }
    }

    /// Puts an HIR block on top of S, unless S has no LIR block.
    #[inline(always)]
    fn put_on_top(&mut self, entry: Entry) {
        if self.stack.linked(entry) {
            self.stack.move_to_back(S, entry);
        } else if self.lirs > 0 {
            self.stack.push_back(S, entry);
        }
    }

    /// Makes a block LIR that is in S and not in Q. If there are now too many LIR blocks, the last
    /// becomes HIR.
    #[inline(always)]
    fn promote(&mut self, entry: Entry, out: &mut Evictions) {
        self.stack.move_to_back(S, entry);
        self.set(entry, State::Lir);
        self.lirs += 1;
        if self.lirs > self.lir_target {
            self.demote(out);
        }
        self.prune(out);
    }

    /// Makes the last LIR block HIR.
    #[inline(always)]
    fn demote(&mut self, out: &mut Evictions) {
        if let Some(bottom) = self.stack.pop_front(S) {
            debug_assert_eq!(self.state(bottom), State::Lir, "the bottom of S is LIR");
            self.set(bottom, State::Hir);
            self.queues.push_back(Q, bottom);
            self.lirs -= 1;
        }
        self.trim(out);
    }

    /// Evicts the front of Q. If it is in S, it stays there as a ghost.
    #[inline(always)]
    fn evict(&mut self, out: &mut Evictions) {
        let Some(victim) = self.queues.pop_front(Q) else { return };
        if self.stack.linked(victim) {
            self.set(victim, State::Ghost);
            self.queues.push_back(N, victim);
            out.push(victim, EvictionKind::Remembered);
        } else {
            self.set(victim, State::Unknown);
            out.push(victim, EvictionKind::Evicted);
        }
        if !self.keep {
            self.bound_ghosts(out);
        }
    }

    /// Removes an entry from everything but S.
    fn withdraw(&mut self, entry: Entry) {
        match self.state(entry) {
            State::Lir => self.lirs -= 1,
            State::Hir => self.queues.remove(Q, entry),
            State::Ghost => self.queues.remove(N, entry),
            State::Unknown => {}
        }
        self.set(entry, State::Unknown);
    }
}

impl Policy for Lirs {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.lirs + self.queues.len(Q)
    }

    fn grow(&mut self, entries: u32) {
        self.stack.grow(entries);
        self.queues.grow(entries);
        self.state.resize(self.stack.entries() as usize, State::Unknown);
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.state(entry) >= State::Hir
    }

    #[inline(always)]
    fn remembers(&self, entry: Entry) -> bool {
        self.state(entry) == State::Ghost
    }

    #[inline(always)]
    fn touch(&mut self, entry: Entry, out: &mut Evictions) {
        if self.state(entry) == State::Lir {
            return self.renew_lir(entry, out);
        }
        let stays = self.keep && self.stack.back(S) == Some(entry);
        if self.stack.linked(entry) && !stays {
            self.queues.remove(Q, entry);
            self.promote(entry, out);
        } else {
            self.put_on_top(entry);
            self.queues.move_to_back(Q, entry);
        }
    }

    /// Until the end the new block counts as HIR and is in no queue; of its state as a ghost it
    /// keeps only the place in S.
    #[inline(always)]
    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        self.withdraw(entry);
        self.set(entry, State::Hir);
        if self.len() == self.capacity {
            self.evict(out);
        }
        if self.stack.linked(entry) {
            self.promote(entry, out);
        } else if self.lirs < self.lir_target {
            self.set(entry, State::Lir);
            self.lirs += 1;
            self.stack.push_back(S, entry);
        } else {
            self.put_on_top(entry);
            self.queues.push_back(Q, entry);
        }
    }

    fn take(&mut self, entry: Entry, out: &mut Evictions) {
        if self.contains(entry) {
            self.withdraw(entry);
            if self.stack.linked(entry) {
                self.set(entry, State::Ghost);
                self.queues.push_back(N, entry);
            }
            self.trim(out);
            self.bound_ghosts(out);
        }
    }

    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        match self.state(entry) {
            State::Lir => self.renew_lir(entry, out),
            State::Hir => {
                self.put_on_top(entry);
                self.queues.move_to_back(Q, entry);
            }
            _ => self.admit(entry, out),
        }
    }

    fn discard(&mut self, entry: Entry, out: &mut Evictions) {
        let known = self.state(entry) >= State::Ghost;
        self.withdraw(entry);
        if self.stack.linked(entry) {
            self.stack.remove(S, entry);
        }
        if known {
            self.prune(out);
        }
    }

    fn victim(&self) -> Option<Entry> {
        if self.len() == self.capacity { self.queues.front(Q) } else { None }
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        let shrinks = capacity < self.capacity;
        self.derive_sizes(capacity);
        if shrinks {
            while self.lirs > self.lir_target {
                self.demote(out);
            }
            self.bound_ghosts(out);
            while self.len() > capacity {
                self.evict(out);
            }
            self.prune(out);
        }
    }

    /// Q, the next victim first; then the LIR blocks, least recently used first.
    fn residents(&self) -> Vec<Entry> {
        let lir = self.stack.iter(S).filter(|&e| self.state(e) == State::Lir);
        self.queues.iter(Q).chain(lir).collect()
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        self.stack.prefetch(entry) ^ self.queues.prefetch(entry) ^ self.state(entry) as u32
    }

    /// Blocks that are only in S are LIR.
    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        let Self { queues, stack, state, lirs, .. } = self;
        for (queue, its_state) in [(Q, State::Hir), (N, State::Ghost)] {
            queues.save_load(queue, snapshot, |_, ()| Ok(()))?;
            queues.iter(queue).for_each(|entry| state[entry as usize] = its_state);
        }
        snapshot.list_again();
        stack.save_load(S, snapshot, |_, ()| Ok(()))?;
        *lirs = 0;
        for entry in stack.iter(S) {
            let state = &mut state[entry as usize];
            if matches!(state, State::Unknown | State::Lir) {
                *state = State::Lir;
                *lirs += 1;
            }
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        if self.len() > self.capacity || self.lirs > self.lir_target {
            return Err("more resident or LIR than allowed".into());
        }
        if !self.keep && self.queues.len(N) > self.ghost_bound {
            return Err(format!("{} ghosts, bound {}", self.queues.len(N), self.ghost_bound));
        }
        if self.stack.front(S).is_some_and(|bottom| self.state(bottom) != State::Lir) {
            return Err("the bottom of the stack is not LIR".into());
        }
        for (queue, state) in [(Q, State::Hir), (N, State::Ghost)] {
            if let Some(entry) = self.queues.iter(queue).find(|&e| self.state(e) != state) {
                return Err(format!("entry {entry} is in queue {queue} by mistake"));
            }
        }
        let wrong = (0..self.stack.entries()).find(|&e| {
            let (in_stack, in_queue) = (self.stack.linked(e), self.queues.linked(e));
            (in_stack, in_queue)
                != match self.state(e) {
                    State::Unknown => (false, false),
                    State::Ghost => (true, true),
                    State::Hir => (in_stack, true),
                    State::Lir => (true, false),
                }
        });
        if let Some(entry) = wrong {
            return Err(format!("entry {entry}: state and lists disagree"));
        }
        if self.stack.iter(S).filter(|&e| self.state(e) == State::Lir).count() as u32 != self.lirs {
            return Err(format!("{} LIR blocks are counted", self.lirs));
        }
        self.stack.check().and_then(|()| self.queues.check())
    }
}

//! A cache level: which blocks are resident, which are evicted next, when blocks are placed, and
//! what is known of the clients above. The simulator and the server run this type; the client's
//! cache is a [`UpperLevel`], which knows the cache below instead.
//!
//! A level is a state machine. It receives events: a request for a block, evictions by clients,
//! data that arrived. It answers what to do: which frame a block had and has now, what was
//! [evicted](Level::evicted), and what to place next ([`Level::next_placement`]). It does no I/O
//! and has no clock.
//!
//! Here is what needs several parts of a level at once. The rest is asked of a part, each in a file
//! of its own:
//! * the index and the policy ([`Level::cache`]);
//! * the placement: at the access, which needs no code beside the policy's, or at the eviction by
//!   the client ([`Level::placement`], `eviction.rs`);
//! * what is known of the clients ([`Level::clients`], `clients.rs`).
//!
//! [`DenseLevel`] is a level with placement at the access whose blocks are numbered from 0: the
//! inner loop of simulations.

mod adaptive;
mod clients;
mod deliveries;
mod dense;
mod duel;
mod estimator;
mod eviction;
mod foresight;
mod staging;
mod supply;
mod upper;

use std::ops::Range;
use std::sync::Arc;

use crate::content::{Digest, Unusable};
use crate::hashed::{Evicted, Found, Frame, HashedCache, Referred};
use crate::placement::{DataSource, Eviction, OnHit, Placement, PlacementError};
use undercroft_policy::{Awareness, Context, Entry, Policy, Spec, WriteMode};

pub use clients::{Asker, ClientCounts, ClientEviction, Clients, Knowledge, Request, Sender};
pub use deliveries::{Deliveries, MAX_CLIENTS, Standing};
pub use dense::DenseLevel;
pub use estimator::{CONFIDENT, Estimator};
pub use eviction::{EvictionPlacement, PlacementCounts, PlacementStep};
pub use foresight::Foresight;
pub use supply::Portion;
pub use upper::{Below, BelowCounts, UpperLevel};

/// One cache level.
///
/// ```
/// use undercroft_level::placement::DataSource;
/// use undercroft_policy::{Spec, WriteMode};
/// use undercroft_level::{Level, PlacementStep};
///
/// let policy = Spec::parse("mq")?;
/// let placement = "eviction,on-hit=move".parse()?;
/// let mut level = Level::new(&policy, 100, &placement, WriteMode::Allocate, 0)?;
/// // A client misses block 7 and has it from now on: it takes no room here.
/// assert!(!level.reference(7, false, || true).hit);
/// assert!(level.cache().residents().is_empty());
/// // The client evicts it. The level asks for its data, and is told that it came.
/// assert_eq!(level.client_evicted(7), PlacementStep::Fetch);
/// level.arrived(7, DataSource::Reload);
/// assert!(level.reference(7, false, || false).hit);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Level {
    /// The resident blocks, and the policy that chooses victims.
    cache: HashedCache,
    /// `None`: blocks are placed at their access.
    placement: Option<EvictionPlacement>,
    mode: WriteMode,
    clients: Box<Clients>,
    /// Blocks that clients evicted, still to be placed.
    pending: Pending,
}

/// Blocks to be placed, where each was found, and how many of them are done.
#[derive(Default)]
struct Pending {
    blocks: Vec<u64>,
    found: Vec<Option<Entry>>,
    done: usize,
}

impl Level {
    /// An empty level of `capacity` blocks with a policy. It knows of its clients only what it is
    /// told: see [`knowing_clients`](Self::knowing_clients). `seed` makes the index unpredictable
    /// for clients that choose the block numbers; it changes nothing else.
    ///
    /// # Errors
    /// The placement and the policy do not fit together, or the policy cannot be made.
    pub fn new(
        spec: &Spec,
        capacity: u32,
        placement: &Placement,
        mode: WriteMode,
        seed: u64,
    ) -> Result<Self, PlacementError> {
        placement.check_policy(spec.info().name)?;
        let rules = match *placement {
            Placement::Access => None,
            Placement::Eviction(eviction) => Some(eviction),
            Placement::Global(order) => {
                let (on_hit, down) = (OnHit::Move, DataSource::Demote);
                Some(Eviction { on_hit, down, order, ..Eviction::default() })
            }
        };
        let policy = spec.build(&Context::new(capacity));
        let policy = policy.map_err(|error| PlacementError(error.to_string()))?;
        let cache = HashedCache::new(policy, seed);
        let placement =
            rules.map(|rules| EvictionPlacement::new(spec, capacity, rules, mode, seed));
        Ok(Self::of(cache, placement.transpose()?, mode))
    }

    /// An empty level with placement at the access and any policy, even one that is not in the
    /// registry. `seed`: see [`new`](Self::new).
    pub fn of_policy(policy: Box<dyn Policy>, mode: WriteMode, seed: u64) -> Self {
        Self::of(HashedCache::new(policy, seed), None, mode)
    }

    fn of(cache: HashedCache, placement: Option<EvictionPlacement>, mode: WriteMode) -> Self {
        let (clients, pending) = (Box::new(Clients::unknown()), Pending::default());
        Self { cache, placement, mode, clients, pending }
    }

    /// Declares that blocks are numbered from 0 in the order of their first references, as in a
    /// simulation. Call it before the first request. `names` gives the real numbers; hashing and
    /// sampling use them, so that a simulation does what a server does.
    pub fn number_blocks(&mut self, names: Option<Arc<[u64]>>) {
        self.cache.number_blocks(names.clone());
        if let (Some(placement), Some(names)) = (&mut self.placement, names) {
            placement.name_blocks(names);
        }
    }

    /// Lets the level judge by itself what clients report, emulate them, and keep what a
    /// content-aware policy needs. `awareness` is that of the policy.
    pub fn knowing_clients(
        mut self,
        awareness: Option<Awareness>,
        knowledge: Knowledge,
        seed: u64,
    ) -> Self {
        *self.clients = Clients::new(self.policy().capacity(), awareness, knowledge, seed);
        self
    }

    /// What the last call evicted, in order.
    #[inline]
    pub fn evicted(&self) -> &[Evicted] {
        self.cache.evicted()
    }

    /// The frame of a resident block.
    #[inline]
    pub fn frame(&self, block: u64) -> Option<Frame> {
        self.cache.frame(block)
    }

    // ---------------------------------------- its parts

    /// The blocks and their policy.
    #[inline]
    pub fn cache(&self) -> &HashedCache {
        &self.cache
    }

    /// Tells a content-aware policy whether the neighbouring cache holds a block. For simulations,
    /// which know it exactly.
    pub fn neighbour_holds(&mut self, block: u64, holds: bool) {
        self.cache.neighbour_holds(block, holds);
    }

    /// The policy: its capacity, how many blocks are resident, and what decides.
    #[inline]
    pub fn policy(&self) -> &dyn Policy {
        self.cache.policy()
    }

    /// The placement at eviction by clients; `None` with placement at the access.
    #[inline]
    pub fn placement(&self) -> Option<&EvictionPlacement> {
        self.placement.as_ref()
    }

    /// See [`placement`](Self::placement).
    #[inline]
    pub fn placement_mut(&mut self) -> Option<&mut EvictionPlacement> {
        self.placement.as_mut()
    }

    /// What is known of the clients.
    #[inline]
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// See [`clients`](Self::clients).
    #[inline]
    pub fn clients_mut(&mut self) -> &mut Clients {
        &mut self.clients
    }

    // ---------------------------------------- requests

    /// A client reads or writes a block. `cold` is called at most once, if the block is not
    /// resident: whether the block is known never to have been referenced before. Call
    /// [`next_placement`](Self::next_placement) afterwards until it returns `None`.
    pub fn request(&mut self, request: &Request, cold: impl FnOnce() -> bool) -> Referred {
        let Request { block, is_write, .. } = *request;
        let Self { cache, placement, clients, .. } = self;
        if !clients.is_known {
            if placement.is_none() && request.is_streamed && self.mode.admits(is_write) {
                return cache.pass(block, is_write, cold);
            }
            return self.reference(block, is_write, cold);
        }
        clients.exchange(cache);
        let (referred, is_placed) = match placement {
            None => (cache.reference(block, is_write, self.mode, cold), false),
            Some(placement) => {
                let (by_access, cold) = (clients.asks_access(request), cold());
                let referred = match (by_access, is_write) {
                    (true, _) => placement.access(cache, block, is_write, cold),
                    (false, true) => placement.write(cache, block),
                    (false, false) => placement.read(cache, block, cold),
                };
                (referred, !by_access)
            }
        };
        clients.served(cache, request, referred);
        self.pending.blocks.clear();
        clients.take_inferred(cache, request, &mut self.pending.blocks);
        self.pending.begin(is_placed.then_some(&*cache));
        referred
    }

    /// A reference by the level's own placement, if it does not matter who makes it. `cold`: see
    /// [`request`](Self::request).
    pub fn reference(
        &mut self,
        block: u64,
        is_write: bool,
        cold: impl FnOnce() -> bool,
    ) -> Referred {
        let Self { cache, placement, .. } = self;
        match placement {
            None => cache.reference(block, is_write, self.mode, cold),
            Some(placement) if is_write => placement.write(cache, block),
            Some(placement) => placement.read(cache, block, cold()),
        }
    }

    /// A reference of a client whose evictions do not become known: the block is placed at its
    /// access, whatever the placement.
    pub fn reference_by_access(&mut self, block: u64, is_write: bool, cold: bool) -> Referred {
        match &mut self.placement {
            Some(placement) => placement.access(&mut self.cache, block, is_write, cold),
            None => self.reference(block, is_write, || cold),
        }
    }

    /// A read of a block that another client has too: a copy here stays. Only simulations call it.
    pub fn read_shared(&mut self, block: u64, cold: bool) -> Referred {
        match &mut self.placement {
            Some(placement) => placement.read_shared(&mut self.cache, block, cold),
            None => self.reference(block, false, || cold),
        }
    }

    // ---------------------------------------- what clients evict and say

    /// A client reports evictions, in this order. Blocks that no other client holds are to be
    /// placed: call [`next_placement`](Self::next_placement) until it returns `None`.
    pub fn told_evicted(&mut self, gone: &[ClientEviction], sender: Sender) {
        let Self { cache, placement, clients, pending, .. } = self;
        pending.blocks.clear();
        clients.evicted(cache, gone, sender, (&mut pending.blocks, &mut pending.found));
        pending.begin(placement.as_ref().map(|_| &*cache));
    }

    /// A client reports one eviction. Returns whether, as far as known, no other client holds the
    /// block. Places nothing.
    pub fn is_last_copy(&mut self, gone: ClientEviction, sender: Sender) -> bool {
        let Self { cache, clients, pending, .. } = self;
        pending.blocks.clear();
        clients.evicted(cache, &[gone], sender, (&mut pending.blocks, &mut pending.found));
        let is_last = !clients.is_known || !pending.blocks.is_empty();
        pending.clear();
        is_last
    }

    /// The client evicted a block that no other client has. Returns what to do.
    pub fn client_evicted(&mut self, block: u64) -> PlacementStep {
        let Some(placement) = &mut self.placement else { return PlacementStep::Skip };
        placement.evicted(&mut self.cache, block, false)
    }

    /// The client evicted a block that no other client has, and its contents are here. Returns what
    /// to do.
    pub fn handed_over(&mut self, block: u64) -> PlacementStep {
        let Some(placement) = &mut self.placement else { return PlacementStep::Skip };
        placement.evicted(&mut self.cache, block, true)
    }

    /// The next block to be placed, and how. [`evicted`](Self::evicted) then has the blocks evicted
    /// for it.
    #[inline]
    pub fn next_placement(&mut self) -> Option<(u64, PlacementStep)> {
        let Self { cache, placement: Some(placement), .. } = self else { return None };
        if let Some(foreseen) = placement.foreseen(cache) {
            return Some(foreseen);
        }
        let Pending { blocks, found, done } = &mut self.pending;
        let next = placement.evicted_all(cache, &blocks[*done..], &found[*done..]);
        // Those that left nothing to do must not be handled again by the next call.
        *done = next.map_or(blocks.len(), |(count, _)| *done + count);
        next.map(|(_, step)| (blocks[*done - 1], step))
    }

    /// Places an evicted block, whose data arrived in the given way. Returns its frame. Do not call
    /// it if a client has read or written the block since [`PlacementStep::Fetch`].
    pub fn arrived(&mut self, block: u64, way: DataSource) -> Frame {
        if let Some(placement) = &mut self.placement {
            placement.arrived(block, way);
        }
        self.place(block)
    }

    /// Places a block that no client requested or evicted. Counts no access. Returns its frame.
    pub fn place(&mut self, block: u64) -> Frame {
        let Found { hit, frame } = self.cache.place(block);
        self.clients.placed(&mut self.cache, block, hit);
        frame
    }

    /// A client reports that it holds a block. If a hit would remove the copy, so does this report.
    /// Returns the frame that the block had, if it was removed. A report of a block that was
    /// neither delivered to the client nor written by it is ignored.
    pub fn told_held(&mut self, block: u64, sender: Sender) -> Option<Frame> {
        let Self { cache, placement, clients, .. } = self;
        let is_known = clients.held(cache, block, sender);
        placement.as_ref().filter(|_| is_known)?.held(cache, block)
    }

    /// Takes in a summary that a client published.
    ///
    /// # Errors
    /// The summary is unusable and nothing has changed. Request a whole one.
    pub fn told_content(&mut self, digest: &Digest) -> Result<(), Unusable> {
        self.clients.published(&mut self.cache, digest)
    }

    /// Sets whether clients choose their victims by what this level holds: `above` is the size of
    /// their caches in blocks, or `None`. While clients do, a content-aware policy here uses
    /// knowledge that is one exchange old: otherwise both sides could evict the last copy.
    pub fn followed_by(&mut self, above: Option<u32>) {
        self.clients.followed_by(&mut self.cache, above);
    }

    /// Forgets clients that have gone, one bit for each, so that their numbers can be given to
    /// others: the part `part` of what is known of them, where the work is bounded by the length of
    /// the part. Returns the number of all parts; call it until all are done.
    pub fn forget_clients(&mut self, gone: u64, part: Range<usize>) -> usize {
        self.clients.forget_clients(&mut self.cache, gone, part)
    }

    // ---------------------------------------- the blocks

    /// Forgets a block entirely (TRIM, invalidation). Returns the frame that it had.
    pub fn discard(&mut self, block: u64) -> Option<Frame> {
        if let Some(placement) = &mut self.placement {
            placement.discard(block);
        }
        let frame = self.cache.discard(block);
        if frame.is_some() {
            self.clients.discarded(block);
        }
        frame
    }

    /// Prefetches what references to these blocks will need, best if they come in this order, so
    /// that the processor's cache misses overlap. The frames of resident blocks are appended to
    /// `frames`.
    pub fn prefetch(&mut self, blocks: &[u64], frames: &mut Vec<Frame>) {
        self.cache.warm(blocks, frames);
        if self.clients.is_known {
            self.clients.prefetch(blocks);
        }
    }

    // ---------------------------------------- the level as a whole

    /// Whether renumbered blocks need their [real numbers](Self::number_blocks): the policy hashes
    /// them, or the placement samples them.
    pub fn needs_names(&self) -> bool {
        let placement = self.placement.as_ref();
        let samples = placement.is_some_and(|it| it.rules().on_hit == OnHit::Adaptive);
        samples || self.cache.known().are_hashed()
    }

    /// Takes memory for `known` blocks at once, resident and remembered by the policy, so that no
    /// array is larger than it must be. It changes nothing else.
    pub fn make_room(&mut self, known: u32) {
        self.cache.make_room(known);
    }

    /// Continues with the blocks and the policy of a saved level of the same kind and capacity.
    pub fn restore(&mut self, saved: HashedCache) {
        self.cache = saved;
        self.clients.restored(&self.cache);
    }

    /// Changes the capacity, at least 1, at run time. [`evicted`](Self::evicted) has the blocks
    /// that had to go.
    pub fn resize(&mut self, capacity: u32) {
        self.cache.resize(capacity);
        if let Some(placement) = &mut self.placement {
            placement.resize(capacity);
        }
    }

    /// Changes policy and placement at run time. The resident blocks stay in their frames, in the
    /// order in which the old policy would have evicted them; [`evicted`](Self::evicted) has those
    /// that the new one does not keep. `knowledge`: what the level is to know of its clients, if
    /// anything; what it knows already stays. The level's counts go on, and those of placement at
    /// eviction if it stays.
    ///
    /// # Errors
    /// A policy is content-aware, or policy and placement do not fit together: nothing has changed
    /// then.
    pub fn replace(
        &mut self,
        spec: &Spec,
        placement: &Placement,
        knowledge: Option<Knowledge>,
        seed: u64,
    ) -> Result<(), PlacementError> {
        let capacity = self.policy().capacity();
        if self.cache.is_aware() || Awareness::of(spec).is_some() {
            let what = "a content-aware policy cannot be replaced at run time";
            return Err(PlacementError(what.to_owned()));
        }
        let next = Self::new(spec, capacity, placement, self.mode, seed)?;
        self.cache.replace_policy(next.cache);
        let before = std::mem::replace(&mut self.placement, next.placement);
        if let (Some(now), Some(before)) = (&mut self.placement, before) {
            now.count_on(&before);
        }
        self.pending.clear();
        match knowledge {
            None => *self.clients = Clients::unknown(),
            Some(knowledge) if !self.clients.is_known => {
                *self.clients = Clients::new(capacity, None, knowledge, seed);
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Resets the counts but not the content, at the end of a warm-up.
    pub fn restart_counts(&mut self) {
        self.cache.restart_counts();
        if let Some(placement) = &mut self.placement {
            placement.restart_counts();
        }
    }

    /// Recounts everything.
    ///
    /// # Errors
    /// Says which invariant does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.cache.validate()?;
        self.placement.as_ref().map_or(Ok(()), EvictionPlacement::validate)?;
        self.clients.validate()
    }
}

impl Pending {
    fn clear(&mut self) {
        self.blocks.clear();
        self.found.clear();
        self.done = 0;
    }

    /// Looks up the blocks that are to be placed in `cache`; without one, drops them.
    fn begin(&mut self, cache: Option<&HashedCache>) {
        self.done = 0;
        match cache {
            Some(cache) => cache.find_all(&self.blocks, &mut self.found),
            None => self.clear(),
        }
    }
}

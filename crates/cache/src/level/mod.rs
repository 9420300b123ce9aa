//! A cache level: which blocks are resident, which are evicted next, when blocks are placed, and
//! what is known of the clients above. The simulator, the server and the client's cache all run
//! this type.
//!
//! A level is a state machine. It receives events: a request for a block, evictions by clients,
//! data that arrived. It answers what to do: which frame a block had and has now, what was
//! [evicted](Level::evicted), and what to place next ([`Level::next_placement`]). It does no I/O
//! and has no clock. It counts; `counts.rs`, the placement and what is known of neighbours keep the
//! numbers.
//!
//! Its parts, each in a file of its own:
//! * the index and the policy ([`HashedCache`]);
//! * the placement: at the access, which needs no code beside the policy's, or at the eviction by
//!   the client (`eviction.rs`);
//! * what is known of the clients (`clients.rs`), and of the cache below (`below.rs`).
//!
//! `queries.rs` has the calls that ask for state. [`DenseLevel`] is a level with placement at the
//! access whose blocks are numbered from 0: the inner loop of simulations.

mod adaptive;
mod below;
mod clients;
mod deliveries;
mod dense;
mod duel;
mod estimator;
mod eviction;
mod foresight;
mod queries;
mod staging;
mod supply;

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use crate::content::{Digest, Prober, Unusable};
use crate::counts::Counts;
use crate::hashed::{Evicted, Found, Frame, HashedCache, Referred};
use crate::placement::{DataSource, Eviction, OnHit, Placement, PlacementError};
use crate::policy::{Awareness, Context, Entry, Policy, Spec, SpecError};
use crate::reference::WriteMode;

use below::CacheBelow;
use clients::Clients;
use eviction::EvictionPlacement;

pub use below::{Below, BelowCounts};
pub use clients::{Asker, ClientCounts, ClientEviction, Knowledge, Request, Sender};
pub use deliveries::{Deliveries, MAX_CLIENTS, Standing};
pub use dense::DenseLevel;
pub use estimator::{CONFIDENT, Estimator};
pub use eviction::{PlacementCounts, PlacementStep};
pub use foresight::Foresight;
pub use supply::Portion;

/// One cache level.
///
/// ```
/// use undercroft_cache::placement::DataSource;
/// use undercroft_cache::policy::Spec;
/// use undercroft_cache::{PlacementStep, Level, WriteMode};
///
/// let policy = Spec::parse("mq")?;
/// let placement = "eviction,on-hit=move".parse()?;
/// let mut level = Level::new(&policy, 100, &placement, WriteMode::Allocate, 0)?;
/// // A client misses block 7 and has it from now on: it takes no room here.
/// assert!(!level.reference(7, false, || true).hit);
/// assert!(level.is_empty());
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
    /// `None`: the caller says which evictions count, or there are none.
    clients: Option<Box<Clients>>,
    /// `None`: nothing is known of the cache below.
    below: Option<Box<CacheBelow>>,
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
        Self { cache, placement, mode, clients: None, below: None, pending: Pending::default() }
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
        let clients = Clients::new(self.capacity(), awareness, knowledge, seed);
        self.clients = Some(Box::new(clients));
        self
    }

    /// Gives the level a source of knowledge of the cache below, for a content-aware policy.
    ///
    /// # Errors
    /// The policy to be emulated cannot be made.
    pub fn knowing_below(mut self, below: &Below) -> Result<Self, SpecError> {
        self.below = Some(Box::new(CacheBelow::new(below, self.mode)?));
        Ok(self)
    }

    /// What the last call evicted, in order.
    #[inline]
    pub fn evicted(&self) -> &[Evicted] {
        self.cache.evicted()
    }

    // ---------------------------------------- requests

    /// A client reads or writes a block. `cold` is called at most once, if the block is not
    /// resident: whether the block is known never to have been referenced before. Call
    /// [`next_placement`](Self::next_placement) afterwards until it returns `None`.
    pub fn request(&mut self, request: &Request, cold: impl FnOnce() -> bool) -> Referred {
        let Request { block, is_write, .. } = *request;
        let Self { cache, placement, clients, .. } = self;
        let Some(clients) = clients.as_deref_mut() else {
            if placement.is_none() && request.is_streamed && self.mode.admits(is_write) {
                return cache.pass(block, is_write, cold);
            }
            return self.reference(block, is_write, cold);
        };
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
            None => {
                let referred = cache.reference(block, is_write, self.mode, cold);
                if let Some(below) = &mut self.below {
                    below.referenced(cache, block, referred);
                }
                referred
            }
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
        let Self { cache, placement, .. } = self;
        let Some(clients) = self.clients.as_deref_mut() else { return };
        let Pending { blocks, found, .. } = &mut self.pending;
        blocks.clear();
        clients.evicted(cache, gone, sender, (blocks, found));
        self.pending.begin(placement.as_ref().map(|_| &*cache));
    }

    /// A client reports one eviction. Returns whether, as far as known, no other client holds the
    /// block. Places nothing.
    pub fn is_last_copy(&mut self, gone: ClientEviction, sender: Sender) -> bool {
        let Some(clients) = self.clients.as_deref_mut() else { return true };
        let Pending { blocks, found, .. } = &mut self.pending;
        blocks.clear();
        clients.evicted(&mut self.cache, &[gone], sender, (blocks, found));
        let is_last = !blocks.is_empty();
        self.pending.begin(None);
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
        if let Some(clients) = &mut self.clients {
            clients.placed(&mut self.cache, block, hit);
        }
        frame
    }

    /// A client reports that it holds a block. If a hit would remove the copy, so does this report.
    /// Returns the frame that the block had, if it was removed. A report of a block that was
    /// neither delivered to the client nor written by it is ignored.
    pub fn told_held(&mut self, block: u64, sender: Sender) -> Option<Frame> {
        let Self { cache, placement, .. } = self;
        let clients = self.clients.as_deref_mut()?;
        let is_known = clients.held(cache, block, sender);
        placement.as_ref().filter(|_| is_known)?.held(cache, block)
    }

    /// Takes in a summary that a client, or the cache below, published.
    ///
    /// # Errors
    /// The summary is unusable and nothing has changed. Request a whole one.
    pub fn told_content(&mut self, digest: &Digest) -> Result<(), Unusable> {
        let cache = &mut self.cache;
        match (&mut self.clients, &mut self.below) {
            (Some(clients), _) => clients.published(cache, digest),
            (None, Some(below)) => below.published(cache, digest),
            (None, None) => Err(Unusable::Malformed),
        }
    }

    /// Sets whether clients choose their victims by what this level holds: `above` is the size of
    /// their caches in blocks, or `None`. While clients do, a content-aware policy here uses
    /// knowledge that is one exchange old: otherwise both sides could evict the last copy.
    pub fn followed_by(&mut self, above: Option<u32>) {
        if let Some(clients) = &mut self.clients {
            clients.followed_by(&mut self.cache, above);
        }
    }

    /// Forgets clients that have gone, one bit for each, so that their numbers can be given to
    /// others: the part `part` of what is known of them, where the work is bounded by the length of
    /// the part. Returns the number of all parts; call it until all are done.
    pub fn forget_clients(&mut self, gone: u64, part: Range<usize>) -> usize {
        let Some(clients) = &mut self.clients else { return 0 };
        clients.forget_clients(&mut self.cache, gone, part)
    }

    /// A range changes by other means than writes: forgets who holds its blocks.
    pub fn range_changes(&mut self, blocks: &RangeInclusive<u64>) {
        if let Some(clients) = &mut self.clients {
            clients.forget_within(blocks);
        }
    }

    // ---------------------------------------- the cache below

    /// Notes that a block is requested or written below; it is referenced when the reply is here.
    pub fn asks_below(&mut self, block: u64) {
        if let Some(below) = &mut self.below {
            below.asks(block);
        }
    }

    /// Notes the answer to a request that went below. `hit`: whether the cache there had the block,
    /// if known.
    pub fn answered_below(&mut self, block: u64, is_write: bool, hit: Option<bool>) {
        if let Some(below) = &mut self.below {
            below.answered(&mut self.cache, block, is_write, hit);
        }
    }

    /// Notes that a block requested below did not come.
    pub fn failed_below(&mut self, block: u64) {
        if let Some(below) = &mut self.below {
            below.failed(block);
        }
    }

    /// Notes that the cache below holds a block now, or no longer.
    pub fn told_below(&mut self, block: u64, holds: bool) {
        if let Some(below) = &mut self.below {
            below.told(&mut self.cache, block, holds);
        }
    }

    /// Forgets what the cache below reported, since some reports were lost.
    pub fn lost_below(&mut self) {
        if let Some(below) = &mut self.below {
            below.lost(&mut self.cache);
        }
    }

    /// What was inferred about the cache below, with [`Below::Probed`].
    pub fn prober(&self) -> Option<&Prober> {
        self.below.as_deref()?.prober()
    }

    // ---------------------------------------- digests of what is delivered

    /// Also keeps digests of delivered blocks, for contents that clients hand over.
    pub fn keep_digests(&mut self) {
        if let Some(clients) = &mut self.clients {
            clients.deliveries = clients.deliveries.take().map(Deliveries::with_digests);
        }
    }

    /// The digest of a block as last delivered or written; 0 if it is not known.
    pub fn digest(&self, block: u64) -> u64 {
        self.deliveries().map_or(0, |deliveries| deliveries.digest(block))
    }

    /// Sets the digest of what was delivered or written of a block; 0: unknown.
    pub fn set_digest(&mut self, block: u64, digest: u64) {
        if let Some(deliveries) = self.deliveries_mut() {
            deliveries.set_digest(block, digest);
        }
    }

    /// Forgets all digests, but not who holds the blocks.
    pub fn forget_digests(&mut self) {
        if let Some(deliveries) = self.deliveries_mut() {
            deliveries.forget_digests();
        }
    }

    fn deliveries(&self) -> Option<&Deliveries> {
        self.clients.as_deref()?.deliveries.as_ref()
    }

    fn deliveries_mut(&mut self) -> Option<&mut Deliveries> {
        self.clients.as_deref_mut()?.deliveries.as_mut()
    }

    // ---------------------------------------- the blocks

    /// Forgets a block entirely (TRIM, invalidation). Returns the frame that it had.
    pub fn discard(&mut self, block: u64) -> Option<Frame> {
        if let Some(placement) = &mut self.placement {
            placement.discard(block);
        }
        let frame = self.cache.discard(block);
        if frame.is_some() {
            self.clients.iter_mut().for_each(|clients| clients.discarded(block));
            self.below.iter_mut().for_each(|below| below.discarded(block));
        }
        frame
    }

    /// Removes the data of a block from the staging area, since it is stale or incomplete.
    pub fn unstage(&mut self, block: u64) {
        if let Some(placement) = &mut self.placement {
            placement.unstage(block);
        }
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

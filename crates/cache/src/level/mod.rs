//! A cache level: which blocks are resident, in which order they leave, when they come, and what is
//! known of the clients above. The simulator, the server and the client's cache run this one type.
//!
//! A level is a state machine. It is told what happened: a request for a block, clients that
//! evicted blocks, data that arrived. It answers what to do: which frame a block had and has now,
//! what was [evicted](Level::evicted), and what is to be placed next
//! ([`Level::next_placement`]). It does no I/O and has no clock; it alone counts.
//!
//! Its parts, each in a file of its own:
//! * the index and the policy ([`HashedCache`]);
//! * the placement: at the access, which needs no code beside the policy's; at the eviction by the
//!   client (`eviction.rs`); or by a scheme of movement ([`RemoteLevel`]);
//! * what is known of the clients (`clients.rs`), and of the cache below (`below.rs`).
//!
//! What can be asked of a level and changes nothing is in `queries.rs`. [`DenseLevel`] is a level
//! with placement at the access whose blocks are numbered from 0: the inner loop of simulations.

mod adaptive;
mod below;
mod clients;
mod deliveries;
mod dense;
mod estimator;
mod eviction;
mod queries;
mod staging;

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::content::{Digest, Prober, Unusable};
use crate::counts::Counts;
use crate::hashed::{Found, Frame, HashedCache};
use crate::movement::RemoteLevel;
use crate::placement::{Eviction, OnHit, Placement, PlacementError, WayDown};
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
pub use eviction::{Down, PlacementCounts, Referred};

/// One cache level.
///
/// ```
/// use undercroft_cache::placement::WayDown;
/// use undercroft_cache::policy::Spec;
/// use undercroft_cache::{Down, Level, WriteMode};
///
/// let policy = Spec::parse("mq")?;
/// let placement = "eviction,on-hit=move".parse()?;
/// let mut level = Level::new(&policy, 100, &placement, WriteMode::Allocate, 0)?;
/// // A client misses block 7 and has it from now on: it takes no room here.
/// assert!(!level.reference(7, false, || true).hit);
/// assert!(level.is_empty());
/// // The client evicts it. The level asks for its data, and is told that it came.
/// assert_eq!(level.client_evicted(7), Down::Fetch);
/// level.arrived(7, WayDown::Reload);
/// assert!(level.reference(7, false, || false).hit);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Level {
    blocks: Blocks,
    mode: WriteMode,
    /// None: the level is told which evictions count, or there are none.
    clients: Option<Box<Clients>>,
    /// None: nothing is known of the cache below.
    below: Option<Box<CacheBelow>>,
    /// Blocks that clients evicted and that have not been placed yet.
    pending: Pending,
}

/// The resident blocks, and what decides when they come.
#[expect(clippy::large_enum_variant, reason = "most levels are of the large kind")]
enum Blocks {
    /// A policy says who leaves. Without a placement at eviction, blocks come at their access.
    Policy(HashedCache, Option<EvictionPlacement>),
    /// A scheme of movement says both.
    Scheme(Box<RemoteLevel>),
}

/// Blocks to be placed, with where each was found, and how many of them have been.
#[derive(Default)]
struct Pending {
    blocks: Vec<u64>,
    found: Vec<Option<Entry>>,
    done: usize,
}

impl Level {
    /// An empty level of `capacity` blocks with a policy. Nothing is known of its clients but what
    /// it is told: see [`knowing_clients`](Self::knowing_clients). `seed` makes the index
    /// unpredictable for clients that choose the block numbers; it changes nothing else.
    ///
    /// # Errors
    /// The placement does not go together with the policy, or the policy cannot be had.
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
                let (on_hit, down) = (OnHit::Move, WayDown::Demote);
                Some(Eviction { on_hit, down, order, ..Eviction::default() })
            }
        };
        let policy = spec.build(&Context::new(capacity));
        let policy = policy.map_err(|error| PlacementError(error.to_string()))?;
        let cache = HashedCache::new(policy, seed);
        let placement =
            rules.map(|rules| EvictionPlacement::new(spec, capacity, rules, mode, seed));
        Ok(Self::of(Blocks::Policy(cache, placement.transpose()?), mode))
    }

    /// An empty level whose blocks come at their access, with any policy: one that is not in the
    /// registry, too. `seed`: see [`new`](Self::new).
    pub fn of_policy(policy: Box<dyn Policy>, mode: WriteMode, seed: u64) -> Self {
        Self::of(Blocks::Policy(HashedCache::new(policy, seed), None), mode)
    }

    /// A level of a scheme of movement.
    pub fn of_scheme(level: RemoteLevel) -> Self {
        Self::of(Blocks::Scheme(Box::new(level)), WriteMode::Allocate)
    }

    fn of(blocks: Blocks, mode: WriteMode) -> Self {
        Self { blocks, mode, clients: None, below: None, pending: Pending::default() }
    }

    /// The blocks are numbered from 0 in the order of their first references, as in a simulation.
    /// To be called before the first request. `names` are what blocks are called elsewhere: where
    /// they are hashed or sampled, it is by these, so that a simulation does what a server does.
    pub fn number_blocks(&mut self, names: Option<Arc<[u64]>>) {
        if let Blocks::Policy(cache, placement) = &mut self.blocks {
            cache.number_blocks(names.clone());
            if let (Some(placement), Some(names)) = (placement, names) {
                placement.name_blocks(names);
            }
        }
    }

    /// The level judges by itself what clients say, emulates them, and keeps what a content-aware
    /// policy wants to know. `awareness` is that of the policy.
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

    /// The level knows of the cache below what `below` says, for a content-aware policy.
    ///
    /// # Errors
    /// The policy to be emulated cannot be had.
    pub fn knowing_below(mut self, below: &Below) -> Result<Self, SpecError> {
        self.below = Some(Box::new(CacheBelow::new(below, self.mode)?));
        Ok(self)
    }

    // ---------------------------------------- requests

    /// A client asks for a block or writes it. `cold` says whether it is known that nobody
    /// referenced the block before; it is asked once, unless the block is resident. Then
    /// [`next_placement`](Self::next_placement) is to be called until there is none.
    pub fn request(&mut self, request: &Request, cold: impl FnOnce() -> bool) -> Referred {
        let Request { block, is_write, .. } = *request;
        let (Blocks::Policy(cache, placement), Some(clients)) =
            (&mut self.blocks, self.clients.as_deref_mut())
        else {
            return self.reference(block, is_write, cold);
        };
        clients.exchange(cache);
        let (referred, is_placed) = match placement {
            None => (cache.reference(block, is_write, self.mode, cold).into(), false),
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

    /// A reference by the level's own placement, where it does not matter who asks. `cold`: see
    /// [`request`](Self::request).
    pub fn reference(
        &mut self,
        block: u64,
        is_write: bool,
        cold: impl FnOnce() -> bool,
    ) -> Referred {
        match &mut self.blocks {
            Blocks::Policy(cache, None) => {
                let referred = cache.reference(block, is_write, self.mode, cold).into();
                if let Some(below) = &mut self.below {
                    below.referenced(cache, block, referred);
                }
                referred
            }
            Blocks::Policy(cache, Some(placement)) if is_write => placement.write(cache, block),
            Blocks::Policy(cache, Some(placement)) => placement.read(cache, block, cold()),
            Blocks::Scheme(_) => Referred::NOTHING,
        }
    }

    /// A reference of a client whose evictions do not become known: the block comes at its access,
    /// whatever the placement.
    pub fn reference_by_access(&mut self, block: u64, is_write: bool, cold: bool) -> Referred {
        match &mut self.blocks {
            Blocks::Policy(cache, Some(placement)) => {
                placement.access(cache, block, is_write, cold)
            }
            _ => self.reference(block, is_write, || cold),
        }
    }

    /// A read while another client has the block, too: what is here stays.
    pub fn read_shared(&mut self, block: u64, cold: bool) -> Referred {
        match &mut self.blocks {
            Blocks::Policy(cache, Some(placement)) => placement.read_shared(cache, block, cold),
            _ => self.reference(block, false, || cold),
        }
    }

    /// Notes that a block is delivered to a client or written by it, where
    /// [`request`](Self::request) was not told: at a level of a scheme.
    pub fn delivered(&mut self, request: &Request) {
        let Some(deliveries) = self.deliveries_mut() else { return };
        let Request { block, is_write, is_whole, asker } = *request;
        let Asker { client, now_us, connected, .. } = asker;
        if is_write {
            deliveries.write(block, client, is_whole, now_us);
        } else {
            deliveries.read(block, client, is_whole, now_us, connected);
        }
    }

    // ---------------------------------------- what clients evict and say

    /// A client says that it evicted blocks, in this order. Those that it held last are placed:
    /// [`next_placement`](Self::next_placement) is to be called until there is none.
    pub fn told_evicted(&mut self, gone: &[ClientEviction], sender: Sender) {
        let (Blocks::Policy(cache, placement), Some(clients)) =
            (&mut self.blocks, self.clients.as_deref_mut())
        else {
            return;
        };
        let Pending { blocks, found, .. } = &mut self.pending;
        blocks.clear();
        clients.evicted(cache, gone, sender, (blocks, found));
        self.pending.begin(placement.as_ref().map(|_| &*cache));
    }

    /// A client says that it evicted one block: whether it held it last, as far as is known.
    /// Nothing is placed.
    pub fn is_last_copy(&mut self, gone: ClientEviction, sender: Sender) -> bool {
        let (Blocks::Policy(cache, _), Some(clients)) =
            (&mut self.blocks, self.clients.as_deref_mut())
        else {
            return true;
        };
        let Pending { blocks, found, .. } = &mut self.pending;
        blocks.clear();
        clients.evicted(cache, &[gone], sender, (blocks, found));
        let is_last = !blocks.is_empty();
        self.pending.begin(None);
        is_last
    }

    /// It is known that the client evicted a block that no other has: what to do.
    pub fn client_evicted(&mut self, block: u64) -> Down {
        match &mut self.blocks {
            Blocks::Policy(cache, Some(placement)) => placement.evicted(cache, block),
            _ => Down::Skip,
        }
    }

    /// The next block that is to be placed, and how. What that drives out says
    /// [`evicted`](Self::evicted).
    #[inline]
    pub fn next_placement(&mut self) -> Option<(u64, Down)> {
        let Blocks::Policy(cache, Some(placement)) = &mut self.blocks else { return None };
        if let Some(foreseen) = placement.foreseen(cache) {
            return Some(foreseen);
        }
        let Pending { blocks, found, done } = &mut self.pending;
        let (count, down) = placement.evicted_all(cache, &blocks[*done..], &found[*done..])?;
        *done += count;
        Some((blocks[*done - 1], down))
    }

    /// The data of an evicted block is here, in which way: places it. Not to be called if a client
    /// has asked for the block again, or written it, since [`Down::Fetch`]. The block's frame.
    pub fn arrived(&mut self, block: u64, way: WayDown) -> Option<Frame> {
        if let Blocks::Policy(_, Some(placement)) = &mut self.blocks {
            placement.count_arrival(way);
        }
        self.place(block)
    }

    /// Makes a block resident that nobody asked for: no access, and no eviction of a client. Its
    /// frame; none at a level of a scheme, where nobody but its neighbours brings blocks.
    pub fn place(&mut self, block: u64) -> Option<Frame> {
        let Blocks::Policy(cache, _) = &mut self.blocks else { return None };
        let Found { hit, frame } = cache.place(block);
        if let Some(clients) = &mut self.clients {
            clients.placed(cache, block, hit);
        }
        Some(frame)
    }

    /// A client says that it keeps a block: where a hit would give the copy up, this does. The
    /// frame that the block had, if it has gone. Of a block that was neither delivered to the
    /// client nor written by it, it cannot know, and nothing happens.
    pub fn told_held(&mut self, block: u64, sender: Sender) -> Option<Frame> {
        let (Blocks::Policy(cache, placement), Some(clients)) =
            (&mut self.blocks, self.clients.as_deref_mut())
        else {
            return None;
        };
        let is_known = clients.held(cache, block, sender);
        placement.as_ref().filter(|_| is_known)?.held(cache, block)
    }

    /// A client published what it holds, or the cache below did.
    ///
    /// # Errors
    /// The summary is of no use; nothing has changed. Ask for all of it anew.
    pub fn told_content(&mut self, digest: &Digest) -> Result<(), Unusable> {
        let Blocks::Policy(cache, _) = &mut self.blocks else { return Err(Unusable::Malformed) };
        match (&mut self.clients, &mut self.below) {
            (Some(clients), _) => clients.published(cache, digest),
            (None, Some(below)) => below.published(cache, digest),
            (None, None) => Err(Unusable::Malformed),
        }
    }

    /// Clients with caches of `above` blocks choose their victims by what this level holds; `None`:
    /// no client does. While clients do, a content-aware policy here uses knowledge that is one
    /// exchange old: else both sides could evict the last copy.
    pub fn followed_by(&mut self, above: Option<u32>) {
        if let (Blocks::Policy(cache, _), Some(clients)) = (&mut self.blocks, &mut self.clients) {
            clients.followed_by(cache, above);
        }
    }

    /// A client's number goes to another, or the client has gone for good.
    pub fn forget_client(&mut self, client: u8) {
        let Some(clients) = &mut self.clients else { return };
        match &mut self.blocks {
            Blocks::Policy(cache, _) => clients.forget_client(cache, client),
            Blocks::Scheme(_) => {
                if let Some(deliveries) = &mut clients.deliveries {
                    deliveries.forget_client(client);
                }
            }
        }
    }

    /// A range of blocks changes other than by writing: nobody is known to have them.
    pub fn range_changes(&mut self, blocks: &RangeInclusive<u64>) {
        if let Some(clients) = &mut self.clients {
            clients.forget_within(blocks);
        }
    }

    // ---------------------------------------- the cache below

    /// A block is asked for below, or written there, and will be referenced when the reply is here.
    pub fn asks_below(&mut self, block: u64) {
        if let Some(below) = &mut self.below {
            below.asks(block);
        }
    }

    /// A request that went below was answered; whether the cache there had the block, if that
    /// shows.
    pub fn answered_below(&mut self, block: u64, is_write: bool, hit: Option<bool>) {
        if let (Blocks::Policy(cache, _), Some(below)) = (&mut self.blocks, &mut self.below) {
            below.answered(cache, block, is_write, hit);
        }
    }

    /// What was asked for below did not come.
    pub fn failed_below(&mut self, block: u64) {
        if let Some(below) = &mut self.below {
            below.failed(block);
        }
    }

    /// The cache below says that it holds a block now, or does not.
    pub fn told_below(&mut self, block: u64, holds: bool) {
        if let (Blocks::Policy(cache, _), Some(below)) = (&mut self.blocks, &mut self.below) {
            below.told(cache, block, holds);
        }
    }

    /// What the cache below said is not all that there was: nothing is known any more.
    pub fn lost_below(&mut self) {
        if let (Blocks::Policy(cache, _), Some(below)) = (&mut self.blocks, &mut self.below) {
            below.lost(cache);
        }
    }

    /// What was found out about the cache below, where that was to be.
    pub fn prober(&self) -> Option<&Prober> {
        self.below.as_deref()?.prober()
    }

    // ---------------------------------------- digests of what is delivered

    /// Keeps digests of delivered blocks, too: for contents that clients hand over.
    pub fn keep_digests(&mut self) {
        if let Some(clients) = &mut self.clients {
            clients.deliveries = clients.deliveries.take().map(Deliveries::with_digests);
        }
    }

    /// The digest of a block as it was last delivered or written; 0 if it is not known.
    pub fn digest(&self, block: u64) -> u64 {
        self.deliveries().map_or(0, |deliveries| deliveries.digest(block))
    }

    /// What was delivered or written of a block has this digest; 0: it is not known.
    pub fn set_digest(&mut self, block: u64, digest: u64) {
        if let Some(deliveries) = self.deliveries_mut() {
            deliveries.set_digest(block, digest);
        }
    }

    /// No digest is known any more; who holds what is.
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

    /// Forgets a block entirely (TRIM, invalidation): the frame that it had.
    pub fn discard(&mut self, block: u64) -> Option<Frame> {
        let frame = match &mut self.blocks {
            Blocks::Policy(cache, placement) => {
                if let Some(placement) = placement {
                    placement.discard(block);
                }
                cache.discard(block)
            }
            Blocks::Scheme(level) => return level.discard(block),
        };
        if frame.is_some() {
            self.clients.iter_mut().for_each(|clients| clients.discarded(block));
            self.below.iter_mut().for_each(|below| below.discarded(block));
        }
        frame
    }

    /// What is staged of a block is no longer good, or was never whole.
    pub fn unstage(&mut self, block: u64) {
        if let Blocks::Policy(_, Some(placement)) = &mut self.blocks {
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

    /// The blocks are to be placed in this cache; without one they are not.
    fn begin(&mut self, cache: Option<&HashedCache>) {
        self.done = 0;
        match cache {
            Some(cache) => cache.find_all(&self.blocks, &mut self.found),
            None => self.clear(),
        }
    }
}

//! What a level knows of the clients above it, and from where:
//! * clients tell it what they evict. Hints may come late, so each is judged by what was delivered
//!   to whom ([`Deliveries`]);
//! * it emulates clients that tell nothing ([`Estimator`]), and acts on that while the emulation is
//!   good;
//! * for a content-aware policy it also marks the blocks that clients hold: from the two sources
//!   above (`knows=exact`), from summaries that clients publish (`knows=bloom`), or from an
//!   emulation of all clients as one cache (`knows=emulation`). A wrong mark only makes the policy
//!   choose another victim.
//!
//! Not here: what the level does with an evicted block (`eviction.rs`).

use std::ops::{Range, RangeInclusive};

use super::{Deliveries, Estimator, MAX_CLIENTS, Standing, WriteMode};
use crate::content::{
    Blocks, Cautious, Digest, Digests, ExchangeOld, Neighbour, Source, Unusable, UpperList,
};
use crate::hashed::{HashedCache, Referred};
use undercroft_policy::{Awareness, Entry, Knows};

/// The largest size of an emulated client whose size is learned is this many blocks, or the level's
/// size if that is more.
const ESTIMATED_MIN: u32 = 1 << 16;

/// Most bits of a client's filter for each block of the level, and the least limit in all.
const FILTER_BITS_MAX: u32 = 64;
const FILTER_BITS_MIN: u32 = 1 << 20;

/// Most blocks of a client's cache that count for each block of the level, and most that all
/// clients are remembered to hold.
const ABOVE_MAX: u32 = 64;
const HELD_MAX: u32 = 16;

/// A client's request for one block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// The block.
    pub block: u64,
    /// Whether the client writes it.
    pub is_write: bool,
    /// Whether the request covers the whole block.
    pub is_whole: bool,
    /// Whether it belongs to a recognised stream ([`Streams`](crate::Streams)). With placement at
    /// the access and no knowledge of the clients, it then passes the level: a resident block is
    /// served and keeps its rank, a missing one is not placed. Other levels ignore it.
    pub is_streamed: bool,
    /// The requesting client, and the time.
    pub asker: Asker,
}

/// The client that requests blocks, and the time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asker {
    /// Number of the client.
    pub client: u8,
    /// Whether the client's evictions become known.
    pub tells: bool,
    /// Time of the request in microseconds, on one clock for all requests.
    pub now_us: u64,
    /// One bit for each connected client.
    pub connected: u64,
}

/// The client that sends a message about its cache, and the time.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// Number of the client.
    pub client: u8,
    /// When the message arrived, on the clock of [`Asker::now_us`].
    pub arrived_us: u64,
    /// One bit for each connected client.
    pub connected: u64,
}

/// A block that a client evicted.
#[derive(Clone, Copy, Debug)]
pub struct ClientEviction {
    /// The block.
    pub block: u64,
    /// The latest possible time of the eviction, on the clock of [`Asker::now_us`].
    pub evicted_us: u64,
}

/// The counts of the knowledge of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Reported evictions of blocks that another client holds.
    pub held_by_others: u64,
    /// Reported evictions of blocks that were read again after the eviction.
    pub stale_hints: u64,
    /// Reports that a client holds a block which was neither delivered to it nor written by it.
    pub ignored_hints: u64,
    /// Requests served with access-based placement because the emulation was not trusted.
    pub estimate_fallbacks: u64,
    /// Evictions of blocks that a client was believed to hold.
    pub held_evictions: u64,
    /// Blocks that a client requested though it was believed to hold them.
    pub mistaken: u64,
    /// Summaries that clients published.
    pub summaries: u64,
    /// Bytes of these summaries.
    pub summary_bytes: u64,
    /// Summaries that were unusable: damaged, too large, or an earlier one was lost.
    pub summaries_unusable: u64,
    /// Requests of clients that tell nothing while their emulation was not trusted.
    pub distrusted: u64,
    /// Blocks that the emulated client is believed to hold; 0 without an emulation.
    pub emulated_blocks: u64,
    /// Current share of false positives of the worst filter, in millionths.
    pub false_positives_ppm: u64,
}

/// Configuration of what a level knows of its clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Knowledge {
    /// Whether clients that do not tell their evictions are emulated.
    pub estimates: bool,
    /// Size in blocks of the clients' caches, if it is known; a content-aware policy emulates them
    /// with it.
    pub client_blocks: Option<u32>,
}

/// What a level knows of its clients. It knows nothing unless the level was made
/// [so](super::Level::knowing_clients).
pub struct Clients {
    /// Whether something is to be known.
    pub(super) is_known: bool,
    /// What was delivered to whom; `None` if nothing is to be known, or summaries or an emulation
    /// of known size replace it.
    deliveries: Option<Deliveries>,
    emulation: Option<Emulation>,
    /// `Some` only for a content-aware policy.
    aware: Option<Aware>,
    capacity: u32,
    seed: u64,
    counts: ClientCounts,
}

/// The emulation of clients that tell nothing, all as one cache whose size is learned.
struct Emulation {
    estimator: Estimator,
    /// Inferred evictions that were not fetched yet.
    inferred: Vec<u64>,
    was_confident: bool,
}

/// The knowledge for a content-aware policy.
struct Aware {
    awareness: Awareness,
    neighbour: Neighbour,
    /// Whether clients choose their victims by what this level holds, so that more care is needed.
    is_cautious: bool,
    /// Size in blocks of the emulated client, if configured.
    client_blocks: Option<u32>,
}

impl Clients {
    /// Nothing is known: the caller says which evictions count, or there are none.
    pub(super) fn unknown() -> Self {
        let (is_known, deliveries, emulation, aware, capacity, seed, counts) = Default::default();
        Self { is_known, deliveries, emulation, aware, capacity, seed, counts }
    }

    /// For a level of `capacity` blocks; `awareness` is that of a content-aware policy. `seed`
    /// makes the indexes unpredictable for clients that choose the block numbers; it changes
    /// nothing else.
    pub(super) fn new(
        capacity: u32,
        awareness: Option<Awareness>,
        knowledge: Knowledge,
        seed: u64,
    ) -> Self {
        let Knowledge { estimates, client_blocks } = knowledge;
        let is_by_delivery = match awareness.map(|awareness| awareness.knows) {
            Some(Knows::Bloom) => false,
            Some(Knows::Emulation) => client_blocks.is_none(),
            Some(Knows::Exact) | None => true,
        };
        let aware = awareness.map(|awareness| {
            let neighbour = Neighbour::new(None);
            Aware { awareness, neighbour, is_cautious: false, client_blocks }
        });
        let mut clients = Self {
            is_known: true,
            deliveries: is_by_delivery.then(|| Deliveries::new(capacity, seed)),
            emulation: (is_by_delivery && estimates).then(|| Emulation::new(capacity, seed)),
            aware,
            capacity,
            seed,
            counts: ClientCounts::default(),
        };
        clients.begin_anew();
        clients
    }

    /// Whether a request is served with access-based placement: the client does not tell its
    /// evictions, and there is no emulation or it is not good enough.
    pub(super) fn asks_access(&mut self, request: &Request) -> bool {
        if request.asker.tells {
            return false;
        }
        let Some(emulation) = &self.emulation else { return true };
        let is_poor = !emulation.estimator.is_confident();
        self.counts.estimate_fallbacks += u64::from(is_poor);
        is_poor
    }

    /// Notes a request, which can carry a publication of the client.
    pub(super) fn exchange(&mut self, cache: &mut HashedCache) {
        if let Some(aware) = &mut self.aware {
            let deliveries = self.deliveries.as_ref();
            aware.neighbour.go_on(cache, |block| is_held(deliveries, block));
            aware.neighbour.exchange(cache, &Vec::new);
        }
    }

    /// Notes that the cache served a request.
    pub(super) fn served(
        &mut self,
        cache: &mut HashedCache,
        request: &Request,
        referred: Referred,
    ) {
        let (was_held, is_held) = self.delivered(cache, request);
        let Some(aware) = &mut self.aware else { return };
        let Request { block, is_write, .. } = *request;
        aware.neighbour.evicted(cache);
        aware.neighbour.referenced(cache, block, referred.residence(), Some(is_held));
        let Some(source) = aware.neighbour.source() else { return };
        if !is_write && self.deliveries.is_none() && source.holds(block) {
            self.counts.mistaken += 1;
        }
        // One block comes to the client, and usually another one leaves it.
        let moved = if !is_write && aware.client_blocks.is_some() { 2 } else { 0 };
        aware.neighbour.served(cache, block, is_write, Some(referred.hit), moved);
        if is_held && !was_held {
            aware.neighbour.set(cache, block, true);
        }
    }

    /// Notes a delivery. Returns whether a client held the block before, and whether one does now.
    pub(super) fn delivered(&mut self, cache: &mut HashedCache, request: &Request) -> (bool, bool) {
        let Some(deliveries) = &mut self.deliveries else { return (false, false) };
        let Request { block, is_write, is_whole, asker, .. } = *request;
        let Asker { client, tells, now_us, connected } = asker;
        let is_aware = self.aware.is_some();
        let before = if is_aware { deliveries.holders(block) } else { 0 };
        let own = 1_u64.checked_shl(client.into()).unwrap_or(0);
        self.counts.mistaken += u64::from(!is_write && before & own != 0);
        let mut is_known = tells;
        let mut is_disappointed = false;
        if let (false, Some(emulation)) = (tells, &mut self.emulation) {
            emulation.estimator.observe(block, is_write, &mut emulation.inferred);
            is_known = emulation.estimator.is_confident();
            let was_known = std::mem::replace(&mut emulation.was_confident, is_known);
            is_disappointed = was_known && !is_known;
        }
        if is_aware && !tells {
            self.counts.distrusted += u64::from(!is_known);
        }
        if is_aware && is_disappointed {
            // The emulation's beliefs about the client are dropped.
            deliveries.forget_client(client);
        }
        if is_write {
            deliveries.write(block, client, is_whole, now_us);
        } else {
            deliveries.read(block, client, is_whole, now_us, connected);
        }
        let Some(aware) = &self.aware else { return (false, false) };
        if !is_known {
            deliveries.evict(block, client, u64::MAX, connected);
        }
        let held = |holders: u64| holders & connected != 0;
        let is_held = held(deliveries.holders(block));
        if is_disappointed && aware.neighbour.source().is_none() {
            for (block, _) in cache.residents() {
                cache.neighbour_holds(block, held(deliveries.holders(block)));
            }
        }
        (held(before), is_held)
    }

    /// Appends the inferred evictions to `out`, and tells a content-aware policy of them.
    pub(super) fn take_inferred(
        &mut self,
        cache: &mut HashedCache,
        request: &Request,
        out: &mut Vec<u64>,
    ) {
        let Some(emulation) = self.emulation.as_mut().filter(|one| !one.inferred.is_empty()) else {
            return;
        };
        let first = out.len();
        out.append(&mut emulation.inferred);
        let (Some(aware), Some(deliveries)) = (&mut self.aware, &mut self.deliveries) else {
            return;
        };
        for &block in &out[first..] {
            let Asker { client, connected, .. } = request.asker;
            if deliveries.evict(block, client, u64::MAX, connected) == Standing::Last {
                aware.neighbour.set(cache, block, false);
            }
        }
    }

    /// A client reports evictions, in this order. Blocks that no other client holds, as far as
    /// known, are appended to `last`. `found` is scratch memory.
    pub(super) fn evicted(
        &mut self,
        cache: &mut HashedCache,
        gone: &[ClientEviction],
        sender: Sender,
        (last, found): (&mut Vec<u64>, &mut Vec<Option<Entry>>),
    ) {
        let Self { deliveries, counts, aware, .. } = self;
        let Some(deliveries) = deliveries else { return };
        last.reserve(gone.len());
        let said = gone.iter().map(|gone| (gone.block, gone.evicted_us));
        deliveries.evict_all(
            said,
            sender.client,
            sender.connected,
            |block, standing| match standing {
                Standing::Last => last.push(block),
                Standing::HeldByOthers => counts.held_by_others += 1,
                Standing::Stale => counts.stale_hints += 1,
            },
        );
        if let Some(aware) = aware {
            // Look up all blocks first, so that the processor's cache misses overlap.
            cache.find_all(last, found);
            last.iter().for_each(|&block| aware.neighbour.set(cache, block, false));
        }
    }

    /// A client reports that it holds a block. Returns whether to believe that: with a
    /// content-aware policy always, otherwise only if the block was delivered to the client or
    /// written by it.
    pub(super) fn held(&mut self, cache: &mut HashedCache, block: u64, sender: Sender) -> bool {
        let Some(deliveries) = &mut self.deliveries else { return false };
        let Some(aware) = &mut self.aware else {
            let is_known = deliveries.is_held_by(block, sender.client);
            self.counts.ignored_hints += u64::from(!is_known);
            return is_known;
        };
        deliveries.read(block, sender.client, true, sender.arrived_us, u64::MAX);
        aware.neighbour.set(cache, block, true);
        true
    }

    /// Takes in what a client published.
    ///
    /// # Errors
    /// The summary is unusable; nothing has changed.
    pub(super) fn published(
        &mut self,
        cache: &mut HashedCache,
        digest: &Digest,
    ) -> Result<(), Unusable> {
        let Some(aware) = &mut self.aware else { return Err(Unusable::Malformed) };
        aware.neighbour.heard(cache, digest)
    }

    /// Forgets clients that have gone, one bit for each: the part `part` of what was delivered to
    /// them. With the last part their summaries go, and all marks are set anew. Returns the number
    /// of all parts.
    pub(super) fn forget_clients(
        &mut self,
        cache: &mut HashedCache,
        clients: u64,
        part: Range<usize>,
    ) -> usize {
        let forget = |deliveries: &mut Deliveries| deliveries.forget_clients(clients, part.clone());
        let all = self.deliveries.as_mut().map_or(0, forget);
        if let Some(aware) = self.aware.as_mut().filter(|_| part.end >= all) {
            for client in (0..MAX_CLIENTS).filter(|client| clients & 1 << client != 0) {
                aware.neighbour.forget(cache, client);
            }
            let deliveries = self.deliveries.as_ref();
            aware.neighbour.learn_all_by(cache, |block| is_held(deliveries, block));
        }
        all
    }

    /// A range changes by other means than writes: forgets who holds its blocks.
    pub fn forget_within(&mut self, blocks: &RangeInclusive<u64>) {
        if let Some(deliveries) = &mut self.deliveries {
            deliveries.forget_within(blocks);
        }
    }

    /// Notes that the cache placed a block without a request.
    pub(super) fn placed(&mut self, cache: &mut HashedCache, block: u64, was_here: bool) {
        let Some(aware) = &mut self.aware else { return };
        aware.neighbour.evicted(cache);
        if !was_here {
            let deliveries = self.deliveries.as_ref();
            let is_held = deliveries.is_some_and(|deliveries| deliveries.holders(block) != 0);
            aware.neighbour.placed(cache, block, is_held);
        }
    }

    /// Notes that the cache gave a resident block up.
    pub(super) fn discarded(&mut self, block: u64) {
        if let Some(aware) = &mut self.aware {
            aware.neighbour.discarded(block);
        }
    }

    /// Sets whether clients choose their victims by what this level holds: `above` is the size of
    /// their caches in blocks, or `None`. If both sides chose by the other's current content, both
    /// could evict the last copy. So while clients do, this level uses knowledge that is one
    /// exchange old. A change of this discards what is known.
    pub(super) fn followed_by(&mut self, cache: &mut HashedCache, above: Option<u32>) {
        let Some(aware) = &mut self.aware else { return };
        if above.is_some() == aware.is_cautious {
            return;
        }
        aware.is_cautious = above.is_some();
        let source = aware.new_source(self.capacity, above);
        aware.neighbour.change_source(source);
        if let Some(deliveries) = &mut self.deliveries {
            *deliveries = Deliveries::new(self.capacity, self.seed);
        }
        let deliveries = self.deliveries.as_ref();
        aware.neighbour.learn_all_by(cache, |block| is_held(deliveries, block));
    }

    /// Continues with the blocks of a saved level. Nothing is known of the clients' content.
    pub(super) fn restored(&mut self, cache: &HashedCache) {
        self.begin_anew();
        if let Some(aware) = &mut self.aware {
            aware.neighbour.restored(cache);
        }
    }

    fn begin_anew(&mut self) {
        if let Some(aware) = &mut self.aware {
            aware.is_cautious = false;
            aware.neighbour = Neighbour::new(aware.new_source(self.capacity, None));
        }
    }

    /// Prefetches what requests for these blocks will need, so that the processor's cache misses
    /// overlap.
    pub(super) fn prefetch(&self, blocks: &[u64]) {
        if let Some(deliveries) = &self.deliveries {
            deliveries.warm(blocks);
        }
    }

    /// Also keeps digests of delivered blocks, for contents that clients hand over.
    pub fn keep_digests(&mut self) {
        self.deliveries = self.deliveries.take().map(Deliveries::with_digests);
    }

    /// The digest of a block as last delivered or written; 0 if it is not known.
    pub fn digest(&self, block: u64) -> u64 {
        self.deliveries.as_ref().map_or(0, |deliveries| deliveries.digest(block))
    }

    /// Sets the digest of what was delivered or written of a block; 0: unknown.
    pub fn set_digest(&mut self, block: u64, digest: u64) {
        if let Some(deliveries) = &mut self.deliveries {
            deliveries.set_digest(block, digest);
        }
    }

    /// Forgets all digests, but not who holds the blocks.
    pub fn forget_digests(&mut self) {
        self.deliveries.iter_mut().for_each(Deliveries::forget_digests);
    }

    /// Blocks that the emulated clients are believed to hold; 0 without an emulation.
    pub fn estimated_blocks(&self) -> u32 {
        self.emulation.as_ref().map_or(0, |emulation| emulation.estimator.size())
    }

    /// The counts of the knowledge; all 0 without any.
    pub fn counts(&self) -> ClientCounts {
        let Some(aware) = &self.aware else { return self.counts };
        let neighbour = aware.neighbour.counts();
        let source = aware.neighbour.source();
        let false_positives = source.and_then(|source| source.false_positives()).unwrap_or(0.0);
        let emulation = self.emulation.as_ref().filter(|emulation| emulation.was_confident);
        let learned = emulation.map_or(0, |emulation| emulation.estimator.size());
        ClientCounts {
            held_evictions: neighbour.held_evictions,
            summaries: neighbour.source.publications,
            summary_bytes: neighbour.source.bytes,
            summaries_unusable: neighbour.summaries_unusable,
            distrusted: self.counts.distrusted + neighbour.source.distrusted,
            emulated_blocks: aware.client_blocks.unwrap_or(learned).into(),
            false_positives_ppm: (false_positives * 1e6) as u64,
            ..self.counts
        }
    }

    /// Checks the invariants of the deliveries.
    pub(super) fn validate(&self) -> Result<(), String> {
        self.deliveries.as_ref().map_or(Ok(()), Deliveries::validate)
    }
}

/// Whether a client is known to hold a block.
fn is_held(deliveries: Option<&Deliveries>, block: u64) -> bool {
    deliveries.is_some_and(|deliveries| deliveries.holders(block) != 0)
}

impl Emulation {
    fn new(capacity: u32, seed: u64) -> Self {
        Self {
            estimator: Estimator::new(capacity.max(ESTIMATED_MIN), seed),
            inferred: Vec::new(),
            was_confident: false,
        }
    }
}

impl Aware {
    /// Makes the source of the knowledge. `above`: the size in blocks of clients that choose their
    /// victims by what this level holds.
    fn new_source(&self, capacity: u32, above: Option<u32>) -> Option<Box<dyn Source>> {
        let cautious = above.is_some();
        // What clients say of their size is not to be trusted.
        let above = above.map(|above| above.min(capacity.saturating_mul(ABOVE_MAX)));
        let period = self.awareness.period(above.unwrap_or(1));
        let source: Box<dyn Source> = match (self.awareness.knows, self.client_blocks) {
            (Knows::Bloom, _) => {
                let bits = capacity.saturating_mul(FILTER_BITS_MAX).max(FILTER_BITS_MIN);
                Box::new(Digests::new(bits, cautious))
            }
            (Knows::Emulation, Some(blocks)) => {
                Box::new(UpperList::new(blocks, WriteMode::Allocate))
            }
            _ if cautious => {
                let held = Blocks::any(capacity.saturating_mul(HELD_MAX));
                Box::new(ExchangeOld::new(held, period as usize))
            }
            _ => return None,
        };
        Some(if cautious { Box::new(Cautious::new(source, period)) } else { source })
    }
}

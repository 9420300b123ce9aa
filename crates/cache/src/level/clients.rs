//! What a level knows of the clients above it, and how it comes to know it:
//! * it is told: clients say what they evict. What they say is judged by what was delivered to whom
//!   ([`Deliveries`]), since hints may come late;
//! * it emulates the clients that say nothing ([`Estimator`]), and acts on that where it is good;
//! * for a content-aware policy it keeps the marks of blocks that a client holds, too: from the two
//!   above (`knows=exact`), from the summaries that clients publish (`knows=bloom`), or from an
//!   emulation of them all as one cache (`knows=emulation`). A wrong belief makes the policy choose
//!   another victim, and nothing else.
//!
//! Not here: what the level does with an evicted block (`eviction.rs`).

use std::ops::RangeInclusive;

use super::{Deliveries, Estimator, Referred, Standing, WriteMode};
use crate::content::{
    Blocks, Cautious, Digest, Digests, ExchangeOld, Neighbour, Source, Unusable, UpperList,
};
use crate::hashed::HashedCache;
use crate::policy::{Awareness, Entry, Knows};

/// An emulated client whose size is learned may have at least so many blocks, and as many as the
/// level.
const ESTIMATED_MIN: u32 = 1 << 16;

/// Bits of a client's filter at most, for each block of the level; and at least so many in all.
const FILTER_BITS_MAX: u32 = 64;
const FILTER_BITS_MIN: u32 = 1 << 20;

/// A client's request for one block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// The block.
    pub block: u64,
    /// Whether the client writes it.
    pub is_write: bool,
    /// Whether the request is for all of the block.
    pub is_whole: bool,
    /// Who asks, and when.
    pub asker: Asker,
}

/// The client that asks for blocks, and when it does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asker {
    /// Number of the client.
    pub client: u8,
    /// Whether it becomes known what the client evicts.
    pub tells: bool,
    /// When, in microseconds of any one clock.
    pub now_us: u64,
    /// A bit for each client that is connected.
    pub connected: u64,
}

/// A client that says something of its cache, and when.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// Who it is.
    pub client: u8,
    /// When the message arrived, on the clock of [`Asker::now_us`].
    pub arrived_us: u64,
    /// A bit for each client that is connected.
    pub connected: u64,
}

/// A block that a client evicted.
#[derive(Clone, Copy, Debug)]
pub struct ClientEviction {
    /// The block.
    pub block: u64,
    /// The latest time at which that was, on the clock of [`Asker::now_us`].
    pub evicted_us: u64,
}

/// What a level counted of its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Evictions told of blocks that another client holds.
    pub held_by_others: u64,
    /// Evictions told of blocks that were read again after that.
    pub stale_hints: u64,
    /// Words of clients that they keep a block of which they cannot know.
    pub ignored_hints: u64,
    /// Requests served as with access-based placement, since the emulation was not trusted.
    pub estimate_fallbacks: u64,
    /// Evictions of blocks that a client was believed to hold.
    pub held_evictions: u64,
    /// Blocks that a client asked for though it was believed to hold them.
    pub mistaken: u64,
    /// Summaries that clients published.
    pub summaries: u64,
    /// Bytes of these.
    pub summary_bytes: u64,
    /// Those that could not be used: damaged, too large, or one before was lost.
    pub summaries_unusable: u64,
    /// Requests of clients that say nothing while their emulation was not trusted.
    pub distrusted: u64,
    /// Blocks that the emulated client is taken to hold; 0 without one.
    pub emulated_blocks: u64,
    /// Share of false positives of the worst filter as it is now, in millionths.
    pub false_positives_ppm: u64,
}

/// What a level knows of its clients, as asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Knowledge {
    /// Whether clients that do not say what they evict are emulated.
    pub estimates: bool,
    /// The size in blocks of the clients' caches, where a content-aware policy emulates them and it
    /// is known.
    pub client_blocks: Option<u32>,
    /// Blocks whose deliveries are remembered at least.
    pub remembered: u32,
}

/// The knowledge of clients at work.
pub(super) struct Clients {
    /// Who was given what; none where summaries or a sized emulation say it.
    pub(super) deliveries: Option<Deliveries>,
    emulation: Option<Emulation>,
    /// Only for a content-aware policy.
    aware: Option<Aware>,
    capacity: u32,
    seed: u64,
    counts: ClientCounts,
}

/// The emulation of clients that say nothing, all as one cache whose size is learned.
struct Emulation {
    estimator: Estimator,
    /// Blocks that it must have evicted, which nobody has been told yet.
    inferred: Vec<u64>,
    was_confident: bool,
}

/// What a content-aware policy is told.
struct Aware {
    awareness: Awareness,
    neighbour: Neighbour,
    /// Whether clients go by what this level holds: then more care is needed.
    is_cautious: bool,
    /// Blocks of the emulated client, if given.
    client_blocks: Option<u32>,
}

impl Clients {
    /// Of a level of `capacity` blocks; `awareness` is that of a content-aware policy. `seed` makes
    /// the indexes unpredictable for clients that choose the block numbers; it changes nothing
    /// else.
    pub(super) fn new(
        capacity: u32,
        awareness: Option<Awareness>,
        knowledge: Knowledge,
        seed: u64,
    ) -> Self {
        let Knowledge { estimates, client_blocks, remembered } = knowledge;
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
            deliveries: is_by_delivery.then(|| Deliveries::new(remembered.max(capacity), seed)),
            emulation: (is_by_delivery && estimates).then(|| Emulation::new(capacity, seed)),
            aware,
            capacity,
            seed,
            counts: ClientCounts::default(),
        };
        clients.begin_anew();
        clients
    }

    /// Whether a request is served as with access-based placement: nothing says what the client
    /// evicts, or where that is emulated, the emulation is not good enough.
    pub(super) fn asks_access(&mut self, request: &Request) -> bool {
        if request.asker.tells {
            return false;
        }
        let Some(emulation) = &self.emulation else { return true };
        let is_poor = !emulation.estimator.is_confident();
        self.counts.estimate_fallbacks += u64::from(is_poor);
        is_poor
    }

    /// A request comes, which can carry something that the client publishes.
    pub(super) fn exchange(&mut self, cache: &mut HashedCache) {
        if let Some(aware) = &mut self.aware {
            aware.neighbour.exchange(cache, &Vec::new);
        }
    }

    /// The cache served a request.
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
        // It comes there, and as a rule another one goes.
        let moved = if !is_write && aware.client_blocks.is_some() { 2 } else { 0 };
        aware.neighbour.served(cache, block, is_write, Some(referred.hit), moved);
        if is_held && !was_held {
            aware.neighbour.set(cache, block, true);
        }
    }

    /// Notes who gets a block: whether a client held it before, and whether one does now.
    pub(super) fn delivered(&mut self, cache: &mut HashedCache, request: &Request) -> (bool, bool) {
        let Some(deliveries) = &mut self.deliveries else { return (false, false) };
        let Request { block, is_write, is_whole, asker } = *request;
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
            // What it was taken to hold is no longer believed.
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

    /// Takes out what the emulated client must have evicted. A content-aware policy hears of it.
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

    /// A client says that it evicted blocks, in this order. Those that it held last, as far as is
    /// known, are appended to `last`. `found` is memory for a while.
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
            // So that the processor overlaps its waits for memory.
            cache.find_all(last, found);
            last.iter().for_each(|&block| aware.neighbour.set(cache, block, false));
        }
    }

    /// A client says that it keeps a block: whether it can know. It cannot of a block that was
    /// neither delivered to it nor written by it, unless it is believed anyway.
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

    /// A client published what it holds.
    ///
    /// # Errors
    /// The summary is of no use; nothing has changed.
    pub(super) fn published(
        &mut self,
        cache: &mut HashedCache,
        digest: &Digest,
    ) -> Result<(), Unusable> {
        let Some(aware) = &mut self.aware else { return Err(Unusable::Malformed) };
        aware.neighbour.heard(cache, digest)
    }

    /// A client's number goes to another, or the client has gone for good.
    pub(super) fn forget_client(&mut self, cache: &mut HashedCache, client: u8) {
        if let Some(deliveries) = &mut self.deliveries {
            deliveries.forget_client(client);
        }
        let Some(aware) = &mut self.aware else { return };
        let is_told = aware.neighbour.forget(cache, client);
        if let (false, Some(deliveries)) = (is_told, &self.deliveries) {
            for (block, _) in cache.residents() {
                cache.neighbour_holds(block, deliveries.holders(block) != 0);
            }
        }
    }

    /// A range changes other than by writing: nobody is known to have its blocks.
    pub(super) fn forget_within(&mut self, blocks: &RangeInclusive<u64>) {
        if let Some(deliveries) = &mut self.deliveries {
            deliveries.forget_within(blocks);
        }
    }

    /// The cache placed a block that was not resident, without a request.
    pub(super) fn placed(&mut self, cache: &mut HashedCache, block: u64, was_here: bool) {
        let Some(aware) = &mut self.aware else { return };
        aware.neighbour.evicted(cache);
        if !was_here {
            let deliveries = self.deliveries.as_ref();
            let is_held = deliveries.is_some_and(|deliveries| deliveries.holders(block) != 0);
            aware.neighbour.placed(cache, block, is_held);
        }
    }

    /// The cache gave a resident block up.
    pub(super) fn discarded(&mut self, block: u64) {
        if let Some(aware) = &mut self.aware {
            aware.neighbour.discarded(block);
        }
    }

    /// Clients with caches of `above` blocks choose their victims by what this level holds; `None`:
    /// no client does. If both sides chose by the other's present content, both could evict the
    /// last copy. So while clients do, this level uses knowledge that is one exchange old. A change
    /// of this discards what is known.
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
        for (block, _) in cache.residents() {
            cache.neighbour_holds(block, false);
        }
    }

    /// The level goes on with the blocks of a saved one. Of what the clients hold nothing is known.
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

    /// Reads what requests for these blocks will need, so that the processor overlaps its waits
    /// for memory.
    pub(super) fn prefetch(&self, blocks: &[u64]) {
        if let Some(deliveries) = &self.deliveries {
            deliveries.warm(blocks);
        }
    }

    /// Blocks that the emulated client is believed to hold; 0 without one.
    pub(super) fn estimated_blocks(&self) -> u32 {
        self.emulation.as_ref().map_or(0, |emulation| emulation.estimator.size())
    }

    /// What was counted.
    pub(super) fn counts(&self) -> ClientCounts {
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

    /// Checks the invariants of what was delivered.
    pub(super) fn validate(&self) -> Result<(), String> {
        self.deliveries.as_ref().map_or(Ok(()), Deliveries::validate)
    }
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
    /// Where the knowledge of the clients comes from. `above`: clients that go by what is here
    /// have so many blocks.
    fn new_source(&self, capacity: u32, above: Option<u32>) -> Option<Box<dyn Source>> {
        let cautious = above.is_some();
        let period = self.awareness.period(above.unwrap_or(1));
        let source: Box<dyn Source> = match (self.awareness.knows, self.client_blocks) {
            (Knows::Bloom, _) => {
                let bits = capacity.saturating_mul(FILTER_BITS_MAX).max(FILTER_BITS_MIN);
                Box::new(Digests::new(bits, cautious))
            }
            (Knows::Emulation, Some(blocks)) => {
                Box::new(UpperList::new(blocks, WriteMode::Allocate))
            }
            _ if cautious => Box::new(ExchangeOld::new(Blocks::any(), period as usize)),
            _ => return None,
        };
        Some(if cautious { Box::new(Cautious::new(source, period)) } else { source })
    }
}

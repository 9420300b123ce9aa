//! A volume: a store with a cache in front. Here: how it is opened, and the path of a request from
//! its arrival through the shards to the store and back; `docs/developer/server.md` follows one.

pub(crate) mod block_status;
pub(crate) mod change;
mod changes_in_order;
pub(crate) mod clients;
pub(crate) mod close;
pub(crate) mod direct;
pub(crate) mod feed;
pub(crate) mod flush;
pub(crate) mod hint_batch;
pub(crate) mod hint_dispatch;
pub(crate) mod losses;
pub(crate) mod pace;
pub(crate) mod range_requests;
pub(crate) mod recorder;
pub(crate) mod reloader;
pub(crate) mod requests;
pub(crate) mod restore;
pub(crate) mod shards;
pub(crate) mod state;
pub(crate) mod store_health;
pub(crate) mod store_state;
pub(crate) mod store_use;
pub(crate) mod timeouts;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use undercroft_cache::Streams;
use undercroft_cache::placement::Placement;
use undercroft_cache::policy::{Awareness, Knows};
use undercroft_frames::Memory;
use undercroft_hints::{ClientId, ClientStat, PolicyName};
use undercroft_nbd::{CommandKind, Extent};
use undercroft_store::Store;

use crate::advice::VolumeAdvice;
use crate::answer::Failed;
use crate::clock;
use crate::config::{VolumeConfig, VolumeError, Write};
use crate::counters::direct::DirectCounters;
use crate::counters::{AwareStats, CooperationStats, Latencies, Source, Stats};
use crate::geometry::Geometry;
use crate::job::{Completion, Completions};
use crate::late_requests::LateRequests;
use crate::lock::lock;
use crate::savings::{Account, Counted, Savings};
use crate::shard::Shard;
use crate::shard::digests::Hasher;
use crate::shard::event::Event;
use crate::shard::ranges::{RANGES_MAX, RangeKind};
use crate::shard::unflushed::Unflushed;
use crate::volume::changes_in_order::ChangesInOrder;
use crate::volume::clients::{ClientCache, Clients, Member, WrongKey};
use crate::volume::feed::Feed;
use crate::volume::flush::{Flushes, flusher};
use crate::volume::losses::Losses;
use crate::volume::pace::Pace;
use crate::volume::recorder::Recorder;
use crate::volume::shards::Shards;
use crate::volume::store_health::StoreHealth;
use crate::volume::store_state::StoreRequest;
use crate::volume::store_use::StoreUse;
use crate::volume::timeouts::watch;

pub(crate) use shards::Work;

/// Parts of what is known of clients that are looked at with a shard's lock held.
const FORGOTTEN_PER_LOCK: usize = 256;

/// Most blocks examined for one residency query.
pub(crate) const RESIDENCY_BLOCKS: usize = 1 << 8;

/// A volume that serves requests. Dropping it loses dirty data: see [`Volume::close`].
pub struct Volume {
    /// The configuration with which it was opened. What may change is in `in_force`.
    pub(crate) config: VolumeConfig,
    pub(crate) in_force: RwLock<Arc<VolumeConfig>>,
    /// Held while the cache changes.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// Blocks that the configuration gives the cache, which may have lent some, or borrowed.
    pub(crate) share_blocks: AtomicU32,
    pub(crate) store: Arc<dyn Store>,
    /// Whether the store takes several writes at once.
    pub(crate) takes_many: bool,
    pub(crate) geometry: Arc<Geometry>,
    pub(crate) shards: Shards,
    pub(crate) runtime: Handle,
    pub(crate) latencies: Latencies,
    /// Counters of a volume without a cache.
    pub(crate) direct: DirectCounters,
    pub(crate) changes_in_order: Arc<ChangesInOrder>,
    /// Notified when something ended that somebody may wait for.
    pub(crate) progress: Notify,
    /// What is at the store; present with write-back.
    pub(crate) pace: Option<Arc<Pace>>,
    /// Notified when too many blocks are dirty.
    pub(crate) flush_wanted: Arc<Notify>,
    /// Number of the last range; held while a range registers.
    pub(crate) range_order: Mutex<u64>,
    /// Permits for ranges in progress.
    pub(crate) range_room: Arc<Semaphore>,
    /// Flushes of the store.
    pub(crate) flushes: Flushes,
    /// Number of blocks being prefetched.
    pub(crate) ahead: Arc<AtomicUsize>,
    /// Number of store requests that clients wait for.
    pub(crate) demand: AtomicUsize,
    /// How busy clients keep the store; measured for the placement `auto`.
    pub(crate) store_use: OnceLock<StoreUse>,
    /// Notified when the store may be idle, or a reload was queued.
    pub(crate) reload_wanted: Arc<Notify>,
    /// Whether the task for reloads runs.
    pub(crate) reloads: AtomicBool,
    /// The connected clients; present unless placement has always been access-based and the policy
    /// is not content-aware.
    pub(crate) clients: OnceLock<Arc<Clients>>,
    /// What clients told of their caches.
    pub(crate) hint_counts: Mutex<CooperationStats>,
    /// What followers of the cache's content are told.
    pub(crate) feed: Mutex<Feed>,
    /// Bytes of filters of which clients have not sent all parts.
    pub(crate) assembling: AtomicUsize,
    /// The origin of times in microseconds.
    pub(crate) opened: Instant,
    /// What the store lost of what it had answered.
    pub(crate) losses: Arc<Losses>,
    /// Present if sequential streams pass the cache. Its lock is taken alone, or within a shard's.
    pub(crate) streams: Option<Mutex<Streams>>,
    /// Whether the store works.
    pub(crate) store_health: StoreHealth,
    /// What the cache saved.
    pub(crate) account: Mutex<Account>,
    /// Number of flushes that failed.
    pub(crate) flush_failures: AtomicU64,
    /// Requests that were answered before they ended.
    pub(crate) late_requests: Arc<LateRequests>,
    /// Present if requests are recorded.
    pub(crate) recorder: Option<Arc<Recorder>>,
    /// What another policy, placement or size would be worth.
    pub(crate) advice: VolumeAdvice,
    /// Number of unanswered requests.
    pub(crate) pending: AtomicU64,
    pub(crate) closing: AtomicBool,
}

impl Volume {
    /// Opens a volume with frames from `memory`; its tasks run on `runtime`.
    ///
    /// # Errors
    /// The configuration is inconsistent, or does not fit the store or the memory.
    pub fn open(
        config: VolumeConfig,
        store: Arc<dyn Store>,
        memory: &Memory,
        runtime: Handle,
    ) -> Result<Arc<Self>, VolumeError> {
        let facts = store.facts();
        config.check(facts.size, facts.alignment)?;
        let count = if config.cache_blocks == 0 { 0 } else { config.shards.max(1) };
        let geometry = Arc::new(Geometry::new(
            config.block_bytes,
            facts.size,
            facts.alignment,
            config.mode(),
            config.write == Write::Back,
            count,
        ));
        let cooperates = count > 0 && config.placement != Placement::Access;
        let is_auto = cooperates && config.placement.is_auto();
        let is_aware = count > 0 && Awareness::of(&config.policy).is_some();
        let has_clients = cooperates || is_aware;
        let is_read_only = config.read_only || facts.read_only;
        // No client hands over data of a volume that nobody may write.
        let takes_contents = cooperates && !is_read_only;
        let hasher = takes_contents.then(|| Hasher::new(config.block_bytes));
        let losses = Losses::of(&store, geometry.write_back && count > 0);
        let shards = (0..count).map(|index| {
            let mut shard = Shard::configured(&config, index, memory, &geometry, &hasher)?;
            if losses.are_possible() {
                shard.watchers.unflushed = Some(Unflushed::new(shard.blocks.slots.len()));
            }
            Ok::<_, VolumeError>(Mutex::new(shard))
        });
        let recorder = config
            .recording(has_clients)
            .map(|recording| Recorder::begin(recording, is_read_only))
            .transpose();
        let recorder = recorder
            .map_err(|error| VolumeError::Recording(config.name.clone(), error))?
            .map(Arc::new);
        let streams = Streams::beyond(config.stream_cutoff_bytes, config.block_bytes);
        let streams = streams.map(Mutex::new);
        let advice = VolumeAdvice::new(config.seed, is_read_only);
        let takes_many = store.takes_many() && !losses.are_possible();
        let late_requests = Arc::<LateRequests>::default();
        let store_health =
            StoreHealth::new(&config, Arc::clone(&store), Arc::clone(&late_requests));
        let volume = Arc::new(Self {
            shards: Shards::new(shards.collect::<Result<_, _>>()?, Arc::clone(&geometry)),
            in_force: RwLock::new(Arc::new(config.clone())),
            changing: tokio::sync::Mutex::default(),
            share_blocks: AtomicU32::new(config.cache_blocks),
            config,
            pace: (geometry.write_back && count > 0).then(|| Arc::new(Pace::new(takes_many))),
            takes_many,
            store,
            geometry,
            runtime,
            latencies: Latencies::default(),
            direct: DirectCounters::default(),
            changes_in_order: Arc::default(),
            progress: Notify::new(),
            flush_wanted: Arc::new(Notify::new()),
            range_order: Mutex::new(0),
            range_room: Arc::new(Semaphore::new(RANGES_MAX)),
            flushes: Flushes::default(),
            ahead: Arc::default(),
            demand: AtomicUsize::new(0),
            store_use: once(is_auto.then(StoreUse::new)),
            reload_wanted: Arc::new(Notify::new()),
            reloads: AtomicBool::new(false),
            clients: once(has_clients.then(Arc::default)),
            hint_counts: Mutex::default(),
            feed: Mutex::default(),
            assembling: AtomicUsize::new(0),
            opened: clock::now(),
            losses,
            streams,
            store_health,
            account: Mutex::new(Account::new(clock::now(), unix_s())),
            flush_failures: AtomicU64::new(0),
            late_requests,
            recorder,
            advice,
            pending: AtomicU64::new(0),
            closing: AtomicBool::new(false),
        });
        if volume.losses.are_possible() {
            let this = Arc::downgrade(&volume);
            let lost = move || {
                if let Some(volume) = this.upgrade() {
                    volume.lost_below();
                }
            };
            volume.store.on_loss(Arc::new(lost));
            // What this server wrote before its restart may not be durable yet.
            let begins = Arc::clone(&volume);
            volume.runtime.spawn(async move { drop(begins.flush_together().await) });
        }
        if volume.geometry.write_back && count > 0 {
            volume.runtime.spawn(flusher(Arc::downgrade(&volume)));
        }
        let limit = volume.config.store_timeout.filter(|_| count > 0);
        volume.runtime.spawn(watch(Arc::downgrade(&volume), limit));
        if cooperates {
            volume.begin_reloads();
        }
        Ok(volume)
    }

    /// The configuration with which the volume was opened; see [`now`](Self::now).
    pub fn config(&self) -> &VolumeConfig {
        &self.config
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.geometry.size()
    }

    /// Whether the volume refuses changes, by its configuration or because of its store.
    pub fn is_read_only(&self) -> bool {
        self.config.read_only || self.store.facts().read_only
    }

    /// Whether [`Volume::close`] has started.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// The kind and place of its store.
    pub fn store_name(&self) -> String {
        self.store.facts().name
    }

    /// For the first 256 blocks of a range: which are in memory (status bit 0), and which are dirty
    /// (bit 1).
    pub fn residency(self: &Arc<Self>, offset: u64, length: u64) -> Vec<Extent> {
        let end = offset.saturating_add(length).min(self.size());
        let (first, block_bytes) = (self.geometry.block_of(offset), self.geometry.block_bytes());
        let mut work = Work::new(self);
        let blocks = (first..).take(RESIDENCY_BLOCKS).map(|block| {
            let start = offset.max(block * block_bytes);
            (start, end.min((block + 1) * block_bytes), block)
        });
        let known = blocks.take_while(|(start, to, _)| start < to).map(|(start, to, block)| {
            if self.shards.is_empty() {
                return (to - start, 0);
            }
            let (shard, _) = work.shard(block);
            (to - start, shard.residency(block))
        });
        joined(known)
    }

    /// Smallest unit in bytes that the store reads and writes: a power of two.
    pub fn alignment(&self) -> u32 {
        self.geometry.alignment as u32
    }

    /// Latencies from arrival to answer.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// The policy that decides now in each shard, if the volume's policy chooses among several.
    pub fn leaders(&self) -> Vec<&'static str> {
        self.shards.each().filter_map(|shard| shard.cache.leader()).collect()
    }

    /// The counters so far.
    pub fn stats(&self) -> Stats {
        let share_blocks = self.share_blocks().into();
        let mut stats = Stats { share_blocks, ..Stats::default() };
        for shard in self.shards.each() {
            stats.add(shard.cache.counts(), &shard.counters);
            stats.resident += u64::from(shard.cache.len());
            stats.capacity_blocks += u64::from(shard.cache.capacity());
            if shard.cache.is_content_aware() {
                let counted = AwareStats::of(&shard.cache.client_counts());
                stats.aware.get_or_insert_default().sum(&counted);
            }
            if let Some(placement) = &shard.watchers.placement {
                stats.cooperation.get_or_insert_default().sum(&placement.stats(&shard.cache));
            }
            stats.unloaded += u64::from(shard.blocks.unloaded());
            stats.in_progress += shard.blocks.active.len() as u64;
            stats.starved += shard.starved.len() as u64;
            stats.dirty += (shard.dirty.count() + shard.dirty.writing_count()) as u64;
            let oldest = shard.dirty.oldest_change();
            let age = oldest.map_or(0, |at| clock::now().saturating_duration_since(at).as_secs());
            stats.dirty_age_s = stats.dirty_age_s.max(age);
        }
        match (&mut stats.cooperation, &mut stats.aware) {
            (Some(cooperation), _) => cooperation.sum(&lock(&self.hint_counts)),
            (None, Some(aware)) => aware.receive_hints(&lock(&self.hint_counts)),
            (None, None) => {}
        }
        if let Some(counted) = self.feed().told() {
            stats.aware.get_or_insert_default().sum(&counted);
        }
        self.direct.add_to(&mut stats);
        stats.tells = self.config.eviction_sink.as_ref().map(|eviction_sink| eviction_sink.told());
        stats.flush_failures = self.flush_failures.load(Ordering::Relaxed);
        stats.store_timeouts = self.late_requests.all();
        stats.store_failures = self.store_health.failures();
        let condition = self.store_health.look();
        stats.store_up = u64::from(!condition.state.is_trouble());
        stats.store_waiting_seconds = condition.waiting_s;
        stats.store_oldest_request_seconds = condition.oldest_s;
        if let Some(recorder) = &self.recorder {
            [stats.recorded, stats.unrecorded] = recorder.counts();
        }
        stats.flush_failures += self.losses.times_told.load(Ordering::Relaxed);
        stats
    }

    /// What the cache has saved by now; `stats`: the counters now.
    pub(crate) fn savings(&self, stats: &Stats) -> Savings {
        let coop = stats.cooperation.unwrap_or_default();
        let of = |source| {
            let times = self.latencies.of(CommandKind::Read, source);
            (times.count(), times.sum_ns())
        };
        let placed = coop.demoted_hits + coop.reloaded_hits + coop.restaged_hits;
        let counted = Counted {
            reads: stats.reads,
            read_hits: stats.read_hits,
            store_reads: stats.store_reads,
            hinted_hits: placed + coop.staged_hits,
            reloads: coop.reloads,
            hits: of(Source::Hit),
            misses: of(Source::Miss),
        };
        lock(&self.account).end_period(clock::now(), unix_s(), counted)
    }

    /// Checks whether the store has grown, and adopts its new size. Returns the size in bytes.
    ///
    /// # Errors
    /// The store cannot tell its size, or does not take the dirty data at the old end.
    pub async fn grow(self: &Arc<Self>) -> Result<u64, Failed> {
        let store = Arc::clone(&self.store);
        let asked = self.store_health.ask(StoreRequest::Size, async move { store.reload().await });
        let size = asked.await?;
        let old = self.geometry.size();
        if size <= old {
            return Ok(old);
        }
        // A partial last block becomes longer, so its cached content is too short.
        if old % self.geometry.block_bytes() != 0 && !self.shards.is_empty() {
            let tail = self.geometry.block_of(old);
            let range = self.register_range(tail..=tail, RangeKind::Forget, false);
            Arc::clone(self).run_range(range, || self.geometry.set_size(size)).await?;
        } else {
            self.geometry.set_size(size);
        }
        Ok(size)
    }

    /// Whether clients are distinguished, and their hints used.
    pub(crate) fn has_clients(&self) -> bool {
        self.clients.get().is_some()
    }

    /// Whether evictions by clients determine which blocks are placed.
    pub(crate) fn places_evicted(&self) -> bool {
        self.has_clients() && self.now().placement != Placement::Access
    }

    /// Whether summaries that clients publish are used.
    pub(crate) fn takes_digests(&self) -> bool {
        let awareness = Awareness::of(&self.now().policy);
        self.has_clients() && awareness.is_some_and(|awareness| awareness.knows == Knows::Bloom)
    }

    /// Adds a connection of a client; all connections without an id count as one client.
    ///
    /// # Errors
    /// The client is connected with another key.
    pub(crate) fn join(
        self: &Arc<Self>,
        id: Option<ClientId>,
    ) -> Result<Option<Arc<Member>>, WrongKey> {
        let Some(clients) = self.clients.get() else { return Ok(None) };
        let member = clients.join(id)?;
        let gone = clients.begin_to_forget();
        if gone != 0 {
            self.runtime.spawn(forget(Arc::downgrade(self), gone));
        }
        Ok(Some(member))
    }

    /// What clients reported about their caches, if clients are distinguished.
    pub(crate) fn told_by_clients(&self) -> Option<Vec<ClientCache>> {
        Some(self.clients.get()?.told())
    }

    /// One bit for each connected client.
    pub(crate) fn connected(&self) -> u64 {
        self.clients.get().map_or(0, |clients| clients.connected())
    }

    /// Microseconds since the volume was opened.
    pub(crate) fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.opened).as_micros() as u64
    }

    /// Checks every invariant of the cache. Slow; for tests.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.shards.each().try_for_each(|shard| shard.validate())
    }

    /// Waits until `holds` is true; it is checked whenever a request ends.
    pub(crate) async fn until(&self, mut holds: impl FnMut() -> bool) {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            if holds() {
                return;
            }
            progress.await;
        }
    }

    /// Answers requests that have ended.
    pub(crate) fn answer(&self, completions: Completions) {
        if completions.is_empty() {
            return;
        }
        let count = completions.answer(&self.latencies);
        self.pending.fetch_sub(count, Ordering::SeqCst);
        if self.closing.load(Ordering::SeqCst) {
            self.progress.notify_waiters();
        }
    }

    /// Answers a single request.
    pub(crate) fn answer_one(&self, finished: Completion) {
        let mut completions = Completions::with_capacity(1);
        completions.push(finished);
        self.answer(completions);
    }

    /// Discards the digests of all blocks. Call it when the store's content may have changed, for
    /// example after reconnecting to another server. Until blocks are fetched or written again,
    /// data that clients hand over are refused.
    pub fn forget_digests(&self) {
        self.shards.tell(&Event::ContentsUnknown);
    }

    /// The counters that this cache reports to a server below.
    pub(crate) fn client_stat(&self) -> ClientStat {
        let stats = self.stats();
        let of = |source| self.latencies.of(CommandKind::Read, source).sum_ns();
        let read_ns: u64 = [Source::Hit, Source::Joined, Source::Miss].map(of).iter().sum();
        ClientStat {
            reads: stats.reads,
            read_hits: stats.read_hits,
            writes: stats.writes,
            write_hits: stats.write_hits,
            evictions: stats.evictions,
            capacity_blocks: stats.capacity_blocks,
            read_us_total: read_ns / 1000,
            tracking: None,
            policy: PolicyName::new(self.now().policy.info().name),
        }
    }
}

/// Forgets clients that have left, one bit for each, without holding anybody up.
async fn forget(volume: Weak<Volume>, gone: u64) {
    let (mut index, mut from) = (0, 0);
    while let Some(volume) = volume.upgrade() {
        if index == volume.shards.len() {
            volume.clients.get().iter().for_each(|clients| clients.forgotten(gone));
            return;
        }
        let to = from + FORGOTTEN_PER_LOCK;
        let all = volume.shards.lock(index).forget_clients(gone, from..to);
        (index, from) = if to < all { (index, to) } else { (index + 1, 0) };
        drop(volume);
        tokio::task::yield_now().await;
    }
}

/// Joins blocks of equal status into extents. `status` of each block: bit 0 resident, bit 1 dirty.
fn joined(blocks: impl Iterator<Item = (u64, u32)>) -> Vec<Extent> {
    let mut extents = Vec::<Extent>::new();
    for (length, status) in blocks {
        match extents.last_mut() {
            Some(last) if last.status == status => last.length += length,
            _ => extents.push(Extent { length, status }),
        }
    }
    extents
}

/// Seconds since 1970.
fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A cell with this in it, if there is something.
fn once<T>(value: Option<T>) -> OnceLock<T> {
    value.map_or_else(OnceLock::new, OnceLock::from)
}

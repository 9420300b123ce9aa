//! A volume: a store with a cache in front. Here: how it is opened, and the path of a request from
//! its arrival through the shards to the store and back; `docs/developer/server.md` follows one.

pub(crate) mod answers;
pub(crate) mod block_status;
pub(crate) mod change;
mod changes_in_order;
pub(crate) mod clients;
pub(crate) mod close;
pub(crate) mod direct;
pub(crate) mod feed;
pub(crate) mod flash;
mod flash_commits;
pub(crate) mod flush;
pub(crate) mod hint_batch;
pub(crate) mod hint_dispatch;
pub(crate) mod losses;
mod ordered_store;
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
mod timeouts;

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use undercroft_frames::Memory;
use undercroft_hints::ClientId;
use undercroft_level::Streams;
use undercroft_nbd::Extent;
use undercroft_policy::Awareness;
use undercroft_store::Store;

use crate::advice::VolumeAdvice;
use crate::clock;
use crate::config::{VolumeConfig, VolumeError, Write};
use crate::counters::{Latencies, LogStats, Stats};
use crate::geometry::Geometry;
use crate::lock::{lock, sleep_lock};
use crate::savings::{Account, Counted, Savings};
use crate::shard::Shard;
use crate::shard::digests::Hasher;
use crate::shard::event::Event;
use crate::shard::ranges::RANGES_MAX;
use crate::shard::unflushed::Unflushed;
use crate::volume::answers::Answers;
use crate::volume::changes_in_order::ChangesInOrder;
use crate::volume::clients::{Clients, Member, WrongKey};
use crate::volume::feed::Feed;
use crate::volume::flash::VolumeFlash;
use crate::volume::flush::{FlashHost, Flushes, flusher};
use crate::volume::losses::Losses;
use crate::volume::ordered_store::ordered;
use crate::volume::pace::Pace;
use crate::volume::recorder::Recorder;
use crate::volume::shards::Shards;
use crate::volume::store_health::StoreHealth;
use crate::volume::store_use::StoreDemand;
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
    /// Held while `in_force` changes, with what the shards know of it.
    puts_in_force: Mutex<()>,
    /// Held while the cache changes.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// Blocks that the configuration gives the cache, which may have lent some, or borrowed.
    share_blocks: AtomicU32,
    pub(crate) store: Arc<dyn Store>,
    /// Whether the store takes several writes at once.
    pub(crate) takes_many: bool,
    pub(crate) geometry: Arc<Geometry>,
    pub(crate) shards: Arc<Shards>,
    pub(crate) runtime: Handle,
    /// The requests of clients, from their arrival to their answers.
    pub(crate) answers: Answers,
    /// Counters of a volume without a cache.
    pub(crate) direct: Mutex<Stats>,
    pub(crate) changes_in_order: Arc<ChangesInOrder>,
    /// Notified when something ended that somebody may wait for.
    pub(crate) progress: Arc<Notify>,
    /// What is at the store; present with write-back.
    pub(crate) pace: Option<Arc<Pace>>,
    /// Notified when too many blocks are dirty.
    pub(crate) flush_wanted: Arc<Notify>,
    /// Number of the last range; held while a range registers.
    pub(crate) range_order: Mutex<u64>,
    /// Permits for ranges in progress.
    pub(crate) range_room: Arc<Semaphore>,
    pub(crate) flushes: Arc<Flushes>,
    /// Its level on flash.
    pub flash: Arc<VolumeFlash>,
    /// Number of blocks being prefetched.
    pub(crate) ahead: Arc<AtomicUsize>,
    /// Who wants the store.
    pub(crate) demand: Arc<StoreDemand>,
    pub(crate) clients: Arc<Clients>,
    /// What followers of the cache's content are told.
    pub(crate) feed: Mutex<Feed>,
    /// What the store lost of what it had answered.
    pub(crate) losses: Arc<Losses>,
    /// Present if sequential streams pass the cache. Its lock is taken alone, or within a shard's.
    pub(crate) streams: Option<Mutex<Streams>>,
    /// Whether the store works.
    pub(crate) store_health: StoreHealth,
    /// What the cache saved.
    pub(crate) account: Mutex<Account>,
    /// Present if requests are recorded.
    pub(crate) recorder: Option<Arc<Recorder>>,
    /// What another policy, placement or size would be worth.
    pub(crate) advice: VolumeAdvice,
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
        let cooperates = count > 0 && config.cooperates();
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
                shard.blocks.watchers.unflushed = Some(Unflushed::new(shard.blocks.slots.len()));
            }
            Ok::<_, VolumeError>(Mutex::new(shard))
        });
        let shards = Shards::new(shards.collect::<Result<_, _>>()?, Arc::clone(&geometry));
        let shards = Arc::new(shards);
        let levels = Arc::clone(&shards) as _;
        let (store, flash) = ordered(store, &config, levels, &geometry, &runtime);
        let recorder = Recorder::begin(&config, has_clients, is_read_only)
            .map_err(|error| VolumeError::Recording(config.name.clone(), error))?
            .map(Arc::new);
        let streams = Streams::beyond(config.stream_cutoff_bytes, config.block_bytes);
        let advice = VolumeAdvice::new(config.seed, is_read_only);
        let takes_many = store.takes_many() && !losses.are_possible();
        let progress = Arc::<Notify>::default();
        let answers = Answers::new(config.store_timeout, Arc::clone(&progress));
        let store_health = StoreHealth::new(&config, &store, &answers.late, &flash.is_awaited);
        let volume = Arc::new(Self {
            shards,
            in_force: RwLock::new(Arc::new(config.clone())),
            puts_in_force: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            share_blocks: AtomicU32::new(config.cache_blocks),
            streams: streams.map(Mutex::new),
            config,
            pace: (geometry.write_back && count > 0).then(|| Arc::new(Pace::new(takes_many))),
            takes_many,
            store,
            geometry,
            runtime,
            answers,
            direct: Mutex::default(),
            changes_in_order: Arc::default(),
            progress,
            flush_wanted: Arc::new(Notify::new()),
            range_order: Mutex::default(),
            range_room: Arc::new(Semaphore::new(RANGES_MAX)),
            flushes: Arc::default(),
            flash,
            ahead: Arc::default(),
            demand: Arc::default(),
            clients: Clients::new(has_clients),
            feed: Mutex::default(),
            losses,
            store_health,
            account: Mutex::new(Account::new(clock::now(), unix_s())),
            recorder,
            advice,
        });
        volume.begin_tasks();
        Ok(volume)
    }

    /// Begins what runs beside the requests, until the volume ends.
    fn begin_tasks(self: &Arc<Self>) {
        self.flash.is_of(Arc::new(FlashHost::of(self)));
        if self.losses.are_possible() {
            let this = Arc::downgrade(self);
            let lost = move || {
                if let Some(volume) = this.upgrade() {
                    volume.lost_below();
                }
            };
            self.store.on_loss(Arc::new(lost));
            // What this server wrote before its restart may not be durable yet.
            let begins = Arc::clone(self);
            self.runtime.spawn(async move { drop(begins.flush_together().await) });
        }
        if self.pace.is_some() {
            self.runtime.spawn(flusher(Arc::downgrade(self)));
        }
        let is_cached = !self.shards.is_empty();
        let limit = self.config.store_timeout.filter(|_| is_cached);
        self.runtime.spawn(watch(Arc::downgrade(self), limit));
        if is_cached && self.config.cooperates() {
            self.begin_to_cooperate(&self.config);
        }
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

    /// For the first 256 blocks of a range: which are in memory or being read (status bit 0), and
    /// which are dirty (bit 1).
    pub fn residency(&self, offset: u64, length: u64) -> Vec<Extent> {
        let end = offset.saturating_add(length).min(self.size());
        let (first, block_bytes) = (self.geometry.block_of(offset), self.geometry.block_bytes());
        let mut extents = Vec::<Extent>::new();
        for block in (first..).take(RESIDENCY_BLOCKS) {
            let (from, to) = (offset.max(block * block_bytes), end.min((block + 1) * block_bytes));
            if from >= to {
                break;
            }
            let status = if self.shards.is_empty() { 0 } else { self.shards.status(block) };
            match extents.last_mut() {
                Some(last) if last.status == status => last.length += to - from,
                _ => extents.push(Extent { length: to - from, status }),
            }
        }
        extents
    }

    /// Latencies from arrival to answer.
    pub fn latencies(&self) -> &Latencies {
        &self.answers.latencies
    }

    /// The counters so far.
    pub fn stats(&self) -> Stats {
        let mut stats = self.shards.stats();
        stats.share_blocks = self.share_blocks().into();
        let told = *lock(&self.clients.counts);
        match (&mut stats.cooperation, &mut stats.aware) {
            (Some(cooperation), _) => cooperation.sum(&told),
            (None, Some(aware)) => aware.receive_hints(&told),
            (None, None) => {}
        }
        if let Some(counted) = sleep_lock(&self.feed).told() {
            stats.aware.get_or_insert_default().sum(&counted);
        }
        if self.now().flash_bytes > 0 {
            // Of a part that it did not get nothing is used.
            stats.flash.get_or_insert_default();
        }
        stats.sum(&lock(&self.direct));
        stats.log = self.store.backlog().map(LogStats::of);
        stats.tells = self.config.eviction_sink.as_ref().map(|eviction_sink| eviction_sink.told());
        stats.store_timeouts = self.answers.late.all();
        stats.store_failures = self.store_health.failures();
        let condition = self.store_health.look();
        stats.store_up = u64::from(!condition.state.is_trouble());
        stats.store_waiting_seconds = condition.waiting_s;
        stats.store_oldest_request_seconds = condition.oldest_s;
        if let Some(recorder) = &self.recorder {
            [stats.recorded, stats.unrecorded] = recorder.counts();
        }
        let failures = [&self.flushes.failures, &self.losses.times_told];
        stats.flush_failures = failures.map(|count| count.load(Ordering::Relaxed)).iter().sum();
        stats
    }

    /// What the cache has saved by now; `stats`: the counters now.
    pub(crate) fn savings(&self, stats: &Stats) -> Savings {
        let counted = Counted::of(stats, self.latencies());
        lock(&self.account).end_period(clock::now(), unix_s(), counted)
    }

    /// Adds a connection of a client; all connections without an id count as one client.
    ///
    /// # Errors
    /// The client is connected with another key.
    pub(crate) fn join(
        self: &Arc<Self>,
        id: Option<ClientId>,
    ) -> Result<Option<Arc<Member>>, WrongKey> {
        if !self.clients.are_distinguished() {
            return Ok(None);
        }
        let member = self.clients.join(id)?;
        let gone = self.clients.begin_to_forget();
        if gone != 0 {
            self.runtime.spawn(forget(Arc::downgrade(self), gone));
        }
        Ok(Some(member))
    }

    /// Checks every invariant of the cache. Slow; for tests.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.shards.each().try_for_each(|shard| shard.validate())
    }

    /// Waits until there is something; it is looked for whenever a request ends.
    pub(crate) async fn until<T>(&self, mut found: impl FnMut() -> Option<T>) -> T {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            if let Some(found) = found() {
                return found;
            }
            progress.await;
        }
    }

    /// Discards the digests of all blocks. Call it when the store's content may have changed, for
    /// example after reconnecting to another server. Until blocks are fetched or written again,
    /// data that clients hand over are refused.
    pub fn forget_digests(&self) {
        self.shards.each().for_each(|mut shard| shard.blocks.tell(&Event::ContentsUnknown));
    }
}

/// Forgets clients that have left, one bit for each, without holding anybody up.
async fn forget(volume: Weak<Volume>, gone: u64) {
    let (mut index, mut from) = (0, 0);
    while let Some(volume) = volume.upgrade() {
        if index == volume.shards.len() {
            return volume.clients.forgotten(gone);
        }
        let to = from + FORGOTTEN_PER_LOCK;
        let all = volume.shards.lock(index).blocks.forget_clients(gone, from..to);
        (index, from) = if to < all { (index, to) } else { (index + 1, 0) };
        drop(volume);
        tokio::task::yield_now().await;
    }
}

/// Seconds since 1970.
fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
pub(crate) mod tests;

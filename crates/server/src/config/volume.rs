//! The options of a volume, further values that it runs with, and what is derived from both.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use undercroft_level::placement::{DataSource, OnHit, Order, Placement, Staging};
use undercroft_policy::{Awareness, Knows, Spec, WriteMode};
use undercroft_store::StoreSpec;

use super::keys::{Changes, Key, keys};
use super::{CacheShare, ClientRule, Reporting, VolumeError, forms};
use crate::eviction_sink::EvictionSink;
use crate::geometry::BLOCK_BYTES_MAX;

/// When a write is answered, and whether it is cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Write {
    /// Cached, and answered when the store has it.
    #[default]
    Through,
    /// Cached, and answered at once; the store gets it later, at a FLUSH at the latest.
    Back,
    /// Not cached, and answered when the store has it; drops a cached copy.
    Around,
}

forms::words!(
    Write,
    " '{}': expected through, back or around",
    Through = "through",
    Back = "back",
    Around = "around"
);

keys! {
/// The configuration of a volume. The fields that serde reads are its options, with the names used
/// in files and flags: [`VolumeConfig::KEYS`]. The program and
/// [`ServerConfig::validate`](super::ServerConfig::validate) set the other fields.
VolumeConfig {
    /// Name of the volume, and of its export.
    "name" "NAME" name: String = String::new(), "forms::plain", Restart;
    /// The store of the volume.
    "store" "STORE" store: StoreSpec = "mem:".parse().expect("a store"), "forms::text", Restart;
    /// A short description for people.
    "description" "TEXT" description: String = String::new(), "forms::plain", Restart;
    /// Bytes of the store; a new file is created with this size.
    "size" "SIZE" size: Option<u64> = None, "forms::some_size", Follows;
    /// Whether a store that does not exist is created.
    "create" "yes|no" create: bool = true, "forms::plain", Follows;
    /// Bytes of the cache, or off; without it, an equal part of what the volumes that say it leave
    /// of the server's cache.
    "cache" "SIZE|off" cache: CacheShare = CacheShare::default(), "forms::cache_share", Cache;
    /// Whether memory goes from one cache to another where it saves more, among those with auto.
    "share" "fixed|auto" is_share_auto: bool = false, "forms::share", Cache inherited;
    /// Bytes that the cache keeps at least; while the volume is idle, it lends the rest. Without
    /// it, all; with share=auto, a quarter.
    "cache-min" "SIZE" cache_min: Option<u64> = None, "forms::some_size", Cache;
    /// Bytes to which the cache may grow with memory of others. Without it, its size; with
    /// share=auto, as far as others give.
    "cache-max" "SIZE" cache_max: Option<u64> = None, "forms::some_size", Cache;
    /// Seconds, 1 to 3600, in which the volume must have had fewer references than a hundredth of
    /// the blocks of its cache, before it lends.
    "cache-idle-s" "N" cache_idle: Duration = Duration::from_secs(60), "forms::seconds", Cache;
    /// Bytes of the server's flash, or off; without it, an equal part of what the volumes that say
    /// it leave.
    "flash" "SIZE|off" flash: CacheShare = CacheShare::default(), "forms::cache_share", Flash;
    /// Bytes of a block: a power of two from 4KiB to 64KiB.
    "block" "SIZE" block_bytes: u32 = 4096, "forms::block", Restart inherited;
    /// The replacement policy, with its parameters.
    "policy" "POLICY" policy: Spec = "auto".parse().expect("a policy"), "forms::text",
        Cache inherited;
    /// When a block comes into the cache: access, eviction[,on-hit=...], gl or auto.
    "placement" "PLACEMENT" placement: Placement = Placement::Access, "forms::placement",
        Cache inherited;
    /// How evictions by clients become known: told by them, or estimated by emulating the caches
    /// of those that tell nothing.
    "evictions" "told|estimate" estimate: bool = false, "forms::evictions", Restart;
    /// Bytes of all caches of clients together, for a content-aware policy that emulates them.
    "client-cache" "SIZE" client_cache: Option<u64> = None, "forms::some_size", Restart;
    /// When evicted blocks are read back.
    "reloads" "idle|at-once" reload_at_once: bool = false, "forms::reloads", Restart;
    /// What a server below, which is the store, is told about blocks that leave the cache.
    "report" "nothing|evictions|demotions" report: Option<Reporting> = None, "forms::report",
        Restart;
    /// When a write is answered: through (the store has it), back (it is cached), around (the
    /// store has it, and it is not cached).
    "write" "through|back|around" write: Write = Write::Through, "forms::text", Restart inherited;
    /// Parts of the cache, each with a policy and a lock of its own.
    "shards" "N" shards: u32 = 1, "forms::plain", Restart inherited;
    /// Bytes to read ahead of a sequential reader; 0: none.
    "read-ahead" "SIZE" read_ahead_bytes: u64 = 0, "forms::size", Restart;
    /// Bytes after which a sequential stream passes the cache; 0: streams are cached.
    "stream-cutoff" "SIZE" stream_cutoff_bytes: u64 = 0, "forms::size", Restart;
    /// Whether a sample of the requests tells what another policy, placement or size would be
    /// worth.
    "adviser" "yes|no" adviser: bool = true, "forms::adviser", Restart inherited;
    /// The folder for traces of the requests, in a folder of their own for each volume.
    "record" "DIR" record: Option<PathBuf> = None, "forms::some_path", Restart;
    /// One block in this many is recorded.
    "record-sample" "N" record_sample: NonZero<u32> = NonZero::<u32>::MIN, "forms::plain", Restart;
    /// Complete files of a recording to keep; older ones are deleted.
    "record-files" "N" record_files: NonZero<u32> = NonZero::new(8).expect("8 is not 0"),
        "forms::plain", Restart;
    /// Requests and evictions after which a file of a recording, then of about 100 MB, is complete.
    "record-requests" "N" record_requests: NonZero<u64> =
        NonZero::new(1 << 26).expect("2^26 is not 0"), "forms::plain", Restart;
    /// Seconds after which a file of a recording is complete; 0: it has no limit.
    "record-every-s" "N" record_every: Option<Duration> = None, "forms::seconds_or_ever", Restart;
    /// Whether all changes are refused.
    "read-only" "yes|no" read_only: bool = false, "forms::plain", Restart;
    /// Whether the volume can be opened over TLS only.
    "tls-required" "yes|no" tls_required: bool = false, "forms::plain", Access;
    /// Who may open the volume, all if nobody is named: NAME of a certificate, address:NETWORK,
    /// user:NAME or group:NAME. In a flag client=RULE, which may be repeated.
    "clients" "RULES" clients: Vec<ClientRule> = Vec::new(), "forms::client_rules", Access;
    /// Who of these may write, all if nobody is named. In a flag writer=RULE, which may be
    /// repeated.
    "writers" "RULES" writers: Vec<ClientRule> = Vec::new(), "forms::client_rules", Access;
    /// Most connections at a time.
    "connections" "N" connections: Option<usize> = None, "forms::plain", Access;
    /// Most requests per second on all connections together.
    "requests-per-second" "N" requests_per_second: Option<u32> = None, "forms::plain", Access;
    /// Most bytes read and written per second on all connections together.
    "bytes-per-second" "SIZE" bytes_per_second: Option<u64> = None, "forms::some_size", Access;
    /// Most requests per second of each client.
    "client-requests-per-second" "N" client_requests_per_second: Option<u32> = None,
        "forms::plain", Access;
    /// Most bytes read and written per second by each client.
    "client-bytes-per-second" "SIZE" client_bytes_per_second: Option<u64> = None,
        "forms::some_size", Access;
    /// With write=back: seconds after which a change is written out.
    "dirty-age-s" "N" dirty_age: Duration = Duration::from_secs(5), "forms::seconds", WriteBack;
    /// With write=back: percent of the cache that may be dirty before more is written out.
    "dirty-percent" "N" dirty_share: f64 = 0.25, "forms::percent", WriteBack;
    /// With write=back: percent of the cache that may be dirty at most; beyond it a write is
    /// answered when the store has it. 100: no bound.
    "dirty-max-percent" "N" dirty_max_share: f64 = 1.0, "forms::percent", WriteBack;
    /// With write=back: while a change waits for the store for more seconds than this, writes are
    /// answered when the store has them; 0: no bound.
    "dirty-max-age-s" "N" dirty_max_age: Option<Duration> = None, "forms::seconds_or_ever",
        WriteBack;
    /// Seconds that a client waits for the store before it gets EIO; 0: no limit.
    "store-timeout-s" "N" store_timeout: Option<Duration> = Some(Duration::from_secs(120)),
        "forms::seconds_or_ever", Restart;
    /// Seconds that requests wait for a store that is away, if it is another NBD server.
    "reconnect-s" "N" reconnect: Duration = Duration::from_secs(30), "forms::seconds", Restart;

    [
    /// Capacity of the cache in blocks, computed from its share; 0: no cache.
    cache_blocks: u32 = 0;
    /// Whether a write brings its block into the cache (with `Through` and `Back`).
    write_allocate: bool = true;
    /// Frames beyond `cache_blocks`, for copies while a frame is being sent or written out.
    spare_frames: u32 = spare_frames(0);
    /// Write-back: most store requests of the flusher and of flushes at a time, each of up to 1
    /// MiB.
    write_back_runs: u32 = 4;
    /// How long closing the volume waits for a store that does not take the dirty blocks.
    close_patience: Duration = Duration::from_secs(30);
    /// Seed of the index, so that clients cannot predict it.
    seed: u64 = 0;
    /// What the settings say of it, before defaults.
    given: toml::Table = toml::Table::new();
    /// Bytes of its part of the server's flash, computed from its share; 0: none.
    flash_bytes: u64 = 0;
    /// Whether something of it may lie on flash from an earlier run: its store is not changed
    /// before it is known what that is ([`VolumeFlash::take`](crate::VolumeFlash::take)).
    awaits_flash: bool = false;
    /// Receives what leaves the cache: the server below, if it is to be told.
    eviction_sink: Option<Arc<dyn EvictionSink>> = None;
    ]
}
}

impl VolumeConfig {
    /// The defaults, with a cache of so many blocks, and a policy.
    pub fn new(name: &str, cache_blocks: u32, policy: Spec) -> Self {
        let spare_frames = spare_frames(cache_blocks);
        Self { name: name.to_string(), cache_blocks, spare_frames, policy, ..Self::default() }
    }

    /// Total capacity of the clients' caches in blocks, if given.
    pub(crate) fn client_blocks(&self) -> Option<u32> {
        let blocks = |bytes: u64| bytes / u64::from(self.block_bytes.max(1));
        self.client_cache.map(|bytes| blocks(bytes).clamp(1, 1 << 30) as u32)
    }

    /// The options that differ from `next`, in the order of their names.
    fn changes(&self, next: &VolumeConfig) -> Vec<&'static Key> {
        let [now, next] = [self, next].map(|it| serde_json::to_value(it).unwrap_or_default());
        let differs = |key: &&Key| now[key.name] != next[key.name];
        let mut changes: Vec<_> = Self::KEYS.iter().filter(differs).collect();
        changes.sort_by_key(|key| key.name);
        changes
    }

    /// Whether `next` has other options of a kind.
    pub(crate) fn has_changed(&self, next: &VolumeConfig, what: Changes) -> bool {
        // The members of a group may have changed, which are not written.
        let rules_change = (&self.clients, &self.writers) != (&next.clients, &next.writers);
        what == Changes::Access && rules_change
            || self.changes(next).iter().any(|key| key.changes == what)
    }

    /// This configuration with a cache of so many blocks.
    pub(crate) fn of_blocks(&self, blocks: u32) -> VolumeConfig {
        VolumeConfig { cache_blocks: blocks, spare_frames: spare_frames(blocks), ..self.clone() }
    }

    /// Takes over the size of the cache, what may change it, the policy and the placement.
    pub(crate) fn take_cache(&mut self, next: &VolumeConfig) {
        (self.cache_blocks, self.spare_frames) = (next.cache_blocks, next.spare_frames);
        self.take_given(next, Changes::Cache);
    }

    /// Takes over the options that change with `what`, and what the settings say of them.
    pub(crate) fn take_given(&mut self, next: &VolumeConfig, what: Changes) {
        self.take(next, what);
        for key in Self::KEYS.iter().filter(|key| key.changes == what) {
            match next.given.get(key.name) {
                Some(value) => self.given.insert(key.name.to_owned(), value.clone()),
                None => self.given.remove(key.name),
            };
        }
    }

    /// Takes over the rules of access. Returns the names of those that were others.
    pub(crate) fn take_access(&mut self, next: &VolumeConfig) -> Vec<&'static str> {
        let changes = self.changes(next).into_iter();
        let changes = changes.filter(|key| key.changes == Changes::Access).map(|key| key.name);
        let changes = changes.collect();
        self.take_given(next, Changes::Access);
        changes
    }

    /// Names of the options that differ and cannot change while the volume is served.
    pub fn fixed_changes(&self, next: &VolumeConfig) -> Vec<String> {
        let changes = self.changes(next).into_iter();
        let fixed = changes.filter(|key| key.changes == Changes::Restart);
        fixed.map(|key| key.name.to_owned()).collect()
    }

    /// Capacity of the cache in bytes of data.
    pub fn cache_bytes(&self) -> u64 {
        u64::from(self.cache_blocks) * u64::from(self.block_bytes)
    }

    /// Bytes of frame memory that the volume takes from the budget.
    pub fn memory_bytes(&self) -> u64 {
        if self.cache_blocks == 0 {
            return 0;
        }
        let shards = self.shards.max(1);
        let frames = |shard| u64::from(self.shard_frames(shard, 0));
        (0..shards).map(frames).sum::<u64>() * u64::from(self.block_bytes)
    }

    /// Capacity of a shard in blocks.
    pub(crate) fn shard_capacity(&self, index: u32) -> u32 {
        let count = self.shards.max(1);
        self.cache_blocks / count + u32::from(index < self.cache_blocks % count)
    }

    /// Frames of a shard: its capacity, spare frames, and frames for staged blocks, at least
    /// `staged` of these.
    pub(crate) fn shard_frames(&self, index: u32, staged: u32) -> u32 {
        let spare = self.spare_frames.div_ceil(self.shards.max(1));
        let staged = self.staged_frames().max(staged);
        self.shard_capacity(index).saturating_add(spare).saturating_add(staged)
    }

    /// Frames of a shard for staged blocks.
    pub(crate) fn staged_frames(&self) -> u32 {
        match self.shard_placement() {
            Placement::Eviction(eviction) => eviction.staging.most(self.shard_capacity(0)),
            Placement::Access | Placement::Global(_) => 0,
        }
    }

    /// The placement of one shard; its staging area is the shard's part of the volume's.
    pub(crate) fn shard_placement(&self) -> Placement {
        let mut placement = self.placement;
        if let Placement::Eviction(rules) = &mut placement {
            if let Staging::Blocks(blocks) = &mut rules.staging {
                *blocks = blocks.div_ceil(self.shards.max(1));
            }
            if rules.is_auto {
                // Contents that a client hands over are told to the level one by one.
                rules.down = DataSource::Reload;
            }
        }
        placement
    }

    pub(crate) fn mode(&self) -> WriteMode {
        match self.write {
            Write::Around => WriteMode::Invalidate,
            _ if self.write_allocate => WriteMode::Allocate,
            _ => WriteMode::NoAllocate,
        }
    }

    /// Whether a block that a client evicts for a request is placed after that request is served.
    pub(crate) fn reads_first(&self) -> bool {
        let order = match self.placement {
            Placement::Access => Order::ReadFirst,
            Placement::Eviction(eviction) => eviction.order,
            Placement::Global(order) => order,
        };
        order == Order::ReadFirst
    }

    /// Checks that the options fit together, and fit the store.
    pub(crate) fn check(&self, size: u64, alignment: u32) -> Result<(), VolumeError> {
        let (name, block) = (|| self.name.clone(), self.block_bytes);
        let awareness = Awareness::of(&self.policy);
        if let Some(awareness) = awareness {
            awareness.check().map_err(|error| VolumeError::Policy(name(), error))?;
            let keeps = match self.placement {
                Placement::Access => true,
                Placement::Eviction(eviction) => {
                    eviction.on_hit == OnHit::Keep && awareness.knows == Knows::Exact
                }
                Placement::Global(_) => false,
            };
            if !keeps {
                return Err(VolumeError::Aware(name(), self.policy.to_string()));
            }
        }
        let emulates = awareness.is_some_and(|awareness| awareness.knows == Knows::Emulation);
        if self.client_cache.is_some() && !emulates {
            return Err(VolumeError::ClientCache(name()));
        }
        if !block.is_power_of_two() || !(4096..=BLOCK_BYTES_MAX as u32).contains(&block) {
            return Err(VolumeError::BlockSize(name(), block));
        }
        if alignment > block {
            return Err(VolumeError::Alignment(name(), alignment));
        }
        if size % u64::from(alignment.max(1)) != 0 {
            return Err(VolumeError::Size(name(), size, alignment));
        }
        if self.cache_blocks > 0 && self.shards > self.cache_blocks {
            return Err(VolumeError::Shards(name(), self.shards));
        }
        Ok(())
    }
}

/// Number of spare frames for a cache of this size.
pub(super) fn spare_frames(cache_blocks: u32) -> u32 {
    (cache_blocks / 16).clamp(64, 16_384)
}

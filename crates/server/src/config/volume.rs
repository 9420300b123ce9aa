//! The options of a volume, further values that it runs with, and what is derived from both.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use undercroft_cache::WriteMode;
use undercroft_cache::placement::{OnHit, Order, Placement, Staging, WayDown};
use undercroft_cache::policy::{Awareness, Knows, Spec};
use undercroft_store::StoreSpec;

use super::{CacheShare, ClientRule, Reporting, VolumeError, VolumePlacement, forms};
use crate::lower::Lower;
use crate::shard::content::BLOCK_BYTES_MAX;
use crate::shard::tell::Listener;
use crate::volume::recorder::Recording;

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

/// The configuration of a volume. The fields that serde reads are its options, with the names used
/// in files and flags. The program and [`ServerConfig::validate`](super::ServerConfig::validate)
/// set the other fields.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct VolumeConfig {
    /// Name of its export.
    pub name: String,
    /// The store. [`Volume::open`](crate::Volume::open) is given an open store instead.
    #[serde(with = "forms::text")]
    pub store: StoreSpec,
    /// A short description for people.
    pub description: String,
    /// Bytes of the store, if given; a new file is created with this size.
    #[serde(with = "forms::some_size")]
    pub size: Option<u64>,
    /// Whether a store that does not exist is created.
    pub create: bool,
    /// Its share of the server's cache.
    #[serde(with = "forms::cache_share")]
    pub cache: CacheShare,
    /// Capacity of the cache in blocks, computed from that share; 0: no cache.
    #[serde(skip)]
    pub cache_blocks: u32,
    /// Whether its share moves to where it saves most, and from there: `auto` or `fixed`
    /// (`serve/lending/pool.rs`).
    #[serde(rename = "share", with = "forms::share")]
    pub is_share_auto: bool,
    /// Bytes of the cache that it keeps while it is idle; it lends the rest to volumes with
    /// `cache_max`. None: it lends nothing. Bytes that its share keeps, if that moves.
    #[serde(with = "forms::some_size")]
    pub cache_min: Option<u64>,
    /// Bytes that the cache may grow to with room that others lend. None: it borrows nothing.
    /// Bytes that its share may grow to, if that moves.
    #[serde(with = "forms::some_size")]
    pub cache_max: Option<u64>,
    /// How long the volume must have had few references before it lends: fewer in this time than
    /// a hundredth of the blocks of its share. 1 to 3600 s.
    #[serde(rename = "cache-idle-s", with = "forms::seconds")]
    pub cache_idle: Duration,
    /// Bytes of a block: a power of two from 4 KiB to 64 KiB.
    #[serde(rename = "block", with = "forms::block")]
    pub block_bytes: u32,
    /// The replacement policy; `lru` with a movement scheme.
    #[serde(with = "forms::text")]
    pub policy: Spec,
    /// The placement: when blocks enter and leave the cache.
    #[serde(with = "forms::text")]
    pub placement: VolumePlacement,
    /// Whether caches of clients that do not report evictions are emulated.
    #[serde(rename = "evictions", with = "forms::evictions")]
    pub estimate: bool,
    /// Total bytes of the clients' caches, for a content-aware policy that emulates them.
    #[serde(with = "forms::some_size")]
    pub client_cache: Option<u64>,
    /// Whether evicted blocks are read back at once instead of in idle times.
    #[serde(rename = "reloads", with = "forms::reloads")]
    pub reload_at_once: bool,
    /// What the server that is the store is told about blocks that leave the cache.
    #[serde(with = "forms::report")]
    pub report: Option<Reporting>,
    /// When writes are answered, and whether they are cached.
    #[serde(with = "forms::text")]
    pub write: Write,
    /// Whether a write brings its block into the cache (with `Through` and `Back`).
    #[serde(skip)]
    pub write_allocate: bool,
    /// Number of independent parts of the cache, each with its own policy and lock; at least 1.
    pub shards: u32,
    /// Frames beyond `cache_blocks`, for copies while a frame is being sent or written out.
    #[serde(skip)]
    pub spare_frames: u32,
    /// Bytes to read ahead of a sequential reader; 0: none.
    #[serde(rename = "read-ahead", with = "forms::size")]
    pub read_ahead_bytes: u64,
    /// Sequential streams pass the cache beyond this many bytes; 0: they are cached.
    #[serde(rename = "stream-cutoff", with = "forms::size")]
    pub stream_cutoff_bytes: u64,
    /// Whether a sample of the requests tells what another policy, placement or size would be
    /// worth.
    #[serde(with = "forms::adviser")]
    pub adviser: bool,
    /// The folder for traces of the requests, in a folder of their own for each volume; none:
    /// nothing is recorded.
    #[serde(with = "forms::some_path")]
    pub record: Option<PathBuf>,
    /// One block in this many is recorded.
    pub record_sample: NonZero<u32>,
    /// Complete files of a recording to keep; older ones are deleted.
    pub record_files: NonZero<u32>,
    /// Requests and evictions after which a file of a recording is complete.
    pub record_requests: NonZero<u64>,
    /// Time after which a file of a recording is complete; none: it has no limit.
    #[serde(rename = "record-every-s", with = "forms::seconds_or_ever")]
    pub record_every: Option<Duration>,
    /// Whether all changes are refused.
    pub read_only: bool,
    /// Whether the volume can be opened over TLS only.
    pub tls_required: bool,
    /// Who may open the volume: those that match any of the rules; empty: all clients.
    #[serde(with = "forms::client_rules")]
    pub clients: Vec<ClientRule>,
    /// Who of these may write: those that match any of the rules; empty: all.
    #[serde(with = "forms::client_rules")]
    pub writers: Vec<ClientRule>,
    /// Most connections at a time.
    pub connections: Option<usize>,
    /// Most requests per second on all connections together.
    pub requests_per_second: Option<u32>,
    /// Most bytes read and written per second on all connections together.
    #[serde(with = "forms::some_size")]
    pub bytes_per_second: Option<u64>,
    /// Most requests per second of each client.
    pub client_requests_per_second: Option<u32>,
    /// Most bytes read and written per second by each client.
    #[serde(with = "forms::some_size")]
    pub client_bytes_per_second: Option<u64>,
    /// Write-back: longest time that a change may wait before it is written out.
    #[serde(rename = "dirty-age-s", with = "forms::seconds")]
    pub dirty_age: Duration,
    /// Write-back: share of the cache that may be dirty; more is written out earlier (0 to 1).
    #[serde(rename = "dirty-percent", with = "forms::percent")]
    pub dirty_share: f64,
    /// Write-back: share of the cache that may be dirty at most (0 to 1). Beyond it a write is
    /// answered when the store has it. 1: no bound.
    #[serde(rename = "dirty-max-percent", with = "forms::percent")]
    pub dirty_max_share: f64,
    /// Write-back: while a change waits longer than this for the store, writes are answered when
    /// the store has them; `None`: no bound.
    #[serde(rename = "dirty-max-age-s", with = "forms::seconds_or_ever")]
    pub dirty_max_age: Option<Duration>,
    /// How long a client waits for the store before it gets EIO; `None`: without limit.
    #[serde(rename = "store-timeout-s", with = "forms::seconds_or_ever")]
    pub store_timeout: Option<Duration>,
    /// If the store is another NBD server: how long requests wait for it when it is away.
    #[serde(rename = "reconnect-s", with = "forms::seconds")]
    pub reconnect: Duration,
    /// Write-back: most store requests of the flusher and of flushes at a time, each of up to 1
    /// MiB.
    #[serde(skip)]
    pub write_back_runs: u32,
    /// How long closing the volume waits for a store that does not take the dirty blocks.
    #[serde(skip)]
    pub close_patience: Duration,
    /// Seed of the index, so that clients cannot predict it.
    #[serde(skip)]
    pub seed: u64,
    /// What the settings say of it, before defaults.
    #[serde(skip)]
    pub given: toml::Table,
    /// Receives what leaves the cache: the server below, if it is to be told.
    #[serde(skip)]
    pub listener: Option<Arc<dyn Listener>>,
    /// The server below, if it runs the next level of the scheme.
    #[serde(skip)]
    pub lower: Option<Arc<dyn Lower>>,
}

/// Options of access and limits, which may change while the volume is served.
const ACCESS: [&str; 8] = [
    "tls-required",
    "clients",
    "writers",
    "connections",
    "requests-per-second",
    "bytes-per-second",
    "client-requests-per-second",
    "client-bytes-per-second",
];

/// Options of write-back, which may change while the volume is served.
const WRITE_BACK: [&str; 4] =
    ["dirty-age-s", "dirty-percent", "dirty-max-percent", "dirty-max-age-s"];

/// Options of the cache that may change while the volume is served (`volume/change.rs`).
const CACHE: [&str; 7] =
    ["cache", "share", "cache-min", "cache-max", "cache-idle-s", "policy", "placement"];

/// Options that need no change: the size follows the store, and the other counts only when the
/// volume is opened.
const FOLLOWING: [&str; 2] = ["size", "create"];

impl Default for VolumeConfig {
    fn default() -> Self {
        let policy = "mq".parse().expect("mq is a policy");
        Self::new("", 0, policy)
    }
}

impl VolumeConfig {
    /// Defaults: blocks of 4 KiB, one shard, write-through, no read-ahead.
    pub fn new(name: &str, cache_blocks: u32, policy: Spec) -> Self {
        Self {
            name: name.to_string(),
            store: "mem:".parse().expect("a store"),
            description: String::new(),
            size: None,
            create: true,
            cache: CacheShare::default(),
            cache_blocks,
            is_share_auto: false,
            cache_min: None,
            cache_max: None,
            cache_idle: Duration::from_secs(60),
            block_bytes: 4096,
            policy,
            placement: VolumePlacement::default(),
            estimate: false,
            client_cache: None,
            reload_at_once: false,
            report: None,
            write: Write::Through,
            write_allocate: true,
            shards: 1,
            spare_frames: spare_frames(cache_blocks),
            read_ahead_bytes: 0,
            stream_cutoff_bytes: 0,
            adviser: true,
            record: None,
            record_sample: NonZero::<u32>::MIN,
            record_files: NonZero::new(8).expect("8 is not 0"),
            // About 100 MB.
            record_requests: NonZero::new(1 << 26).expect("2^26 is not 0"),
            record_every: None,
            read_only: false,
            tls_required: false,
            clients: Vec::new(),
            writers: Vec::new(),
            connections: None,
            requests_per_second: None,
            bytes_per_second: None,
            client_requests_per_second: None,
            client_bytes_per_second: None,
            dirty_age: Duration::from_secs(5),
            dirty_share: 0.25,
            dirty_max_share: 1.0,
            dirty_max_age: None,
            store_timeout: Some(Duration::from_secs(120)),
            reconnect: Duration::from_secs(30),
            write_back_runs: 4,
            close_patience: Duration::from_secs(30),
            seed: 0,
            given: toml::Table::new(),
            listener: None,
            lower: None,
        }
    }

    /// Total capacity of the clients' caches in blocks, if given.
    pub(crate) fn client_blocks(&self) -> Option<u32> {
        let blocks = |bytes: u64| bytes / u64::from(self.block_bytes.max(1));
        self.client_cache.map(|bytes| blocks(bytes).clamp(1, 1 << 30) as u32)
    }

    /// What is recorded, and where. `has_evictions`: clients may tell what they evict.
    pub(crate) fn recording(&self, has_evictions: bool) -> Option<Recording> {
        Some(Recording {
            folder: self.record.as_ref()?.join(&self.name),
            name: self.name.clone(),
            block_bytes: self.block_bytes,
            one_in: self.record_sample,
            records: self.record_requests,
            every: self.record_every,
            files: self.record_files,
            has_evictions,
        })
    }

    /// Whether the store runs the next level of the volume's scheme.
    pub(crate) fn has_level_below(&self) -> bool {
        let says_nothing = self.report.is_some_and(|report| report.is_nothing());
        self.placement.scheme().is_some() && !says_nothing && self.store.is_upstream()
    }

    /// Names of the options that differ from `next`.
    fn changes<'a>(&self, next: &'a serde_json::Value) -> Vec<&'a str> {
        let now = serde_json::to_value(self).unwrap_or_default();
        let next = next.as_object().into_iter().flatten();
        next.filter(|(name, value)| now[*name] != **value).map(|(name, _)| name.as_str()).collect()
    }

    /// Whether `next` has other rules of access.
    pub fn access_changes(&self, next: &VolumeConfig) -> bool {
        // The members of a group may have changed, which are not written.
        let rules_change = (&self.clients, &self.writers) != (&next.clients, &next.writers);
        let next = serde_json::to_value(next).unwrap_or_default();
        rules_change || self.changes(&next).iter().any(|name| ACCESS.contains(name))
    }

    /// Whether `next` has other rules of write-back.
    pub fn write_back_changes(&self, next: &VolumeConfig) -> bool {
        let next = serde_json::to_value(next).unwrap_or_default();
        self.changes(&next).iter().any(|name| WRITE_BACK.contains(name))
    }

    /// Whether `next` has another cache.
    pub(crate) fn cache_changes(&self, next: &VolumeConfig) -> bool {
        let next = serde_json::to_value(next).unwrap_or_default();
        self.changes(&next).iter().any(|name| CACHE.contains(name))
    }

    /// Names of the options that may change while the volume is served.
    pub(crate) fn live_options() -> Vec<&'static str> {
        [&CACHE[..], &WRITE_BACK, &ACCESS].concat()
    }

    /// Takes over what the settings say of some options.
    fn take_given(&mut self, next: &VolumeConfig, options: &[&str]) {
        for &option in options {
            match next.given.get(option) {
                Some(value) => self.given.insert(option.to_owned(), value.clone()),
                None => self.given.remove(option),
            };
        }
    }

    /// This configuration with a cache of so many blocks.
    pub(crate) fn of_blocks(&self, blocks: u32) -> VolumeConfig {
        VolumeConfig { cache_blocks: blocks, spare_frames: spare_frames(blocks), ..self.clone() }
    }

    /// Takes over the size of the cache, what may change it, the policy and the placement.
    pub(crate) fn take_cache(&mut self, next: &VolumeConfig) {
        (self.cache, self.cache_blocks) = (next.cache, next.cache_blocks);
        (self.cache_min, self.cache_max) = (next.cache_min, next.cache_max);
        (self.cache_idle, self.is_share_auto) = (next.cache_idle, next.is_share_auto);
        (self.spare_frames, self.placement) = (next.spare_frames, next.placement.clone());
        self.policy = next.policy.clone();
        self.take_given(next, &CACHE);
    }

    /// Takes over the rules of access.
    pub(crate) fn take_access(&mut self, next: &VolumeConfig) {
        (self.tls_required, self.connections) = (next.tls_required, next.connections);
        (self.clients, self.writers) = (next.clients.clone(), next.writers.clone());
        self.requests_per_second = next.requests_per_second;
        self.bytes_per_second = next.bytes_per_second;
        self.client_requests_per_second = next.client_requests_per_second;
        self.client_bytes_per_second = next.client_bytes_per_second;
        self.take_given(next, &ACCESS);
    }

    /// Takes over the rules of write-back.
    pub(crate) fn take_write_back(&mut self, next: &VolumeConfig) {
        self.take_given(next, &WRITE_BACK);
        (self.dirty_age, self.dirty_share) = (next.dirty_age, next.dirty_share);
        (self.dirty_max_age, self.dirty_max_share) = (next.dirty_max_age, next.dirty_max_share);
    }

    /// Names of the options that differ and cannot change while the volume is served.
    pub fn fixed_changes(&self, next: &VolumeConfig) -> Vec<String> {
        let next = serde_json::to_value(next).unwrap_or_default();
        let may_change =
            |name: &&str| FOLLOWING.contains(name) || Self::live_options().contains(name);
        let changes = self.changes(&next).into_iter().filter(|name| !may_change(name));
        changes.map(str::to_owned).collect()
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
        let mut placement = self.placement.rule();
        if let Placement::Eviction(rules) = &mut placement {
            if let Staging::Blocks(blocks) = &mut rules.staging {
                *blocks = blocks.div_ceil(self.shards.max(1));
            }
            if rules.is_auto {
                // Contents that a client hands over are told to the level one by one.
                rules.down = WayDown::Reload;
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
        let order = match self.placement.rule() {
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
            let keeps = match self.placement.rule() {
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
        if let Some(scheme) = self.placement.scheme() {
            let refused =
                |why| Err(VolumeError::Scheme(name(), scheme.info().name.to_owned(), why));
            if self.write != Write::Through || !self.write_allocate {
                return refused(
                    "writes go through: what is dirty cannot be handed over, and a write is a \
                     reference that takes its block; leave write= out",
                );
            }
            if self.shards > 1 {
                return refused("its queues are of the whole cache; leave shards= out");
            }
            if self.cache_blocks == 0 {
                return refused("a level needs a cache; leave cache=off out");
            }
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

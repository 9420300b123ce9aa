//! What a volume is to be, and why it cannot be had like that.

use std::sync::Arc;
use std::time::Duration;

use undercroft_cache::WriteMode;
use undercroft_cache::movement::SchemeSpec;
use undercroft_cache::placement::{Eviction, Order, Placement, PlacementError, Staging};
use undercroft_cache::policy::{Awareness, Knows, Spec, SpecError};
use undercroft_frames::MemoryError;

use crate::content::BLOCK_BYTES_MAX;
use crate::lower::Lower;
use crate::tell::Listener;

/// When a write is answered, and whether it is cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Write {
    /// Cached, and answered when the store has it.
    #[default]
    Through,
    /// Cached, and answered at once; the store gets it later, at the latest for a FLUSH.
    Back,
    /// Not cached, and answered when the store has it; drops a cached copy.
    Around,
}

impl Write {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Through => "through",
            Self::Back => "back",
            Self::Around => "around",
        }
    }
}

/// What a volume is to be.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Name of its export.
    pub name: String,
    /// A line for people.
    pub description: String,
    /// Bytes of a block: a power of two from 4 KiB to 64 KiB.
    pub block_bytes: u32,
    /// Blocks in the cache; 0: no cache, everything goes straight to the store.
    pub cache_blocks: u32,
    /// The replacement policy.
    pub policy: Spec,
    /// When blocks come and go.
    pub placement: Placement,
    /// The scheme of movement that this cache is one level of, in place of policy and placement.
    pub scheme: Option<SchemeSpec>,
    /// Whether clients that do not tell what they evict are emulated.
    pub estimate: bool,
    /// Blocks of the clients' caches together, which a content-aware policy emulates then.
    pub client_blocks: Option<u32>,
    /// Whether evicted blocks are read back at once, not in idle times only.
    pub reload_at_once: bool,
    /// When writes are answered.
    pub write: Write,
    /// Whether a write brings its block into the cache (`Through` and `Back`).
    pub write_allocate: bool,
    /// Independent parts of the cache, each with a policy and a lock of its own; at least 1.
    pub shards: u32,
    /// Frames beyond `cache_blocks`, for copies while a frame is being sent or written out.
    pub spare_frames: u32,
    /// Refuse all changes.
    pub read_only: bool,
    /// Makes the index unpredictable for clients.
    pub seed: u64,
    /// Write-back: how long a change may wait.
    pub dirty_age: Duration,
    /// Write-back: share of the cache that may be dirty before that (0 to 1).
    pub dirty_share: f64,
    /// Write-back: store requests of the flusher and of flushes at a time, of up to 1 MiB each.
    pub write_back_runs: u32,
    /// How long the end of the volume waits for a store that does not take what is dirty.
    pub close_patience: Duration,
    /// Bytes that are fetched ahead of a sequential reader; 0: none.
    pub read_ahead_bytes: u64,
    /// Who is told what leaves the cache: the server below, if it wants to know.
    pub listener: Option<Arc<dyn Listener>>,
    /// The server below, if it runs the next level of the scheme.
    pub lower: Option<Arc<dyn Lower>>,
}

impl VolumeConfig {
    /// The defaults: blocks of 4 KiB, one shard, write-through, no read-ahead.
    pub fn new(name: &str, cache_blocks: u32, policy: Spec) -> Self {
        Self {
            name: name.to_string(),
            description: String::new(),
            block_bytes: 4096,
            cache_blocks,
            policy,
            placement: Placement::Access,
            estimate: false,
            client_blocks: None,
            reload_at_once: false,
            write: Write::Through,
            write_allocate: true,
            shards: 1,
            spare_frames: (cache_blocks / 16).clamp(64, 16_384),
            read_only: false,
            seed: 0,
            dirty_age: Duration::from_secs(5),
            dirty_share: 0.25,
            write_back_runs: 4,
            close_patience: Duration::from_secs(30),
            read_ahead_bytes: 0,
            listener: None,
            scheme: None,
            lower: None,
        }
    }

    /// Placement as people write it.
    pub fn placement_name(&self) -> String {
        match &self.scheme {
            Some(scheme) => scheme.to_string(),
            None => self.placement.to_string(),
        }
    }

    /// Bytes of frame memory that the volume takes from the budget.
    pub fn memory_bytes(&self) -> u64 {
        if self.cache_blocks == 0 {
            return 0;
        }
        let shards = self.shards.max(1);
        let frames = |shard| u64::from(self.shard_capacity(shard)) + u64::from(self.extra_frames());
        (0..shards).map(frames).sum::<u64>() * u64::from(self.block_bytes)
    }

    /// Blocks resident in a shard at most.
    pub(crate) fn shard_capacity(&self, index: u32) -> u32 {
        let count = self.shards.max(1);
        self.cache_blocks / count + u32::from(index < self.cache_blocks % count)
    }

    /// Frames of a shard beyond its capacity: spares, and those of what is staged.
    pub(crate) fn extra_frames(&self) -> u32 {
        let staged = match self.shard_placement() {
            Placement::Eviction(eviction) => eviction.staging.most(self.shard_capacity(0)),
            Placement::Access | Placement::Global(_) => 0,
        };
        self.spare_frames.div_ceil(self.shards.max(1)).saturating_add(staged)
    }

    /// The placement of one shard, which stages its part.
    pub(crate) fn shard_placement(&self) -> Placement {
        match self.placement {
            Placement::Eviction(Eviction { staging: Staging::Blocks(blocks), .. }) => {
                let mut placement = self.placement;
                if let Placement::Eviction(eviction) = &mut placement {
                    eviction.staging = Staging::Blocks(blocks.div_ceil(self.shards.max(1)));
                }
                placement
            }
            other => other,
        }
    }

    pub(crate) fn mode(&self) -> WriteMode {
        match self.write {
            Write::Around => WriteMode::Invalidate,
            _ if self.write_allocate => WriteMode::Allocate,
            _ => WriteMode::NoAllocate,
        }
    }

    /// Whether a block that a request drives out of the client is placed after it.
    pub(crate) fn reads_first(&self) -> bool {
        let order = match self.placement {
            Placement::Access => Order::ReadFirst,
            Placement::Eviction(eviction) => eviction.order,
            Placement::Global(order) => order,
        };
        order == Order::ReadFirst
    }

    /// Whether all fits together, and with the store.
    pub(crate) fn check(&self, size: u64, alignment: u32) -> Result<(), VolumeError> {
        let (name, block) = (|| self.name.clone(), self.block_bytes);
        let awareness = Awareness::of(&self.policy);
        if let Some(awareness) = awareness {
            awareness.check().map_err(|error| VolumeError::Policy(name(), error))?;
            if self.placement != Placement::Access {
                return Err(VolumeError::Aware(name(), self.policy.to_string()));
            }
        }
        let emulates = awareness.is_some_and(|awareness| awareness.knows == Knows::Emulation);
        if self.client_blocks.is_some() && !emulates {
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
        if let Some(scheme) = &self.scheme {
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

/// Why a volume cannot be had as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// Block size out of range.
    #[error("volume {0}: a block of {1} bytes is not a power of two from 4096 to 65536")]
    BlockSize(String, u32),
    /// The store cannot be asked for single blocks.
    #[error("volume {0}: the store takes units of {1} bytes; choose a block at least as large")]
    Alignment(String, u32),
    /// The size is no multiple of what the store takes.
    #[error("volume {0}: the store's size of {1} bytes is no multiple of its unit of {2} bytes")]
    Size(String, u64, u32),
    /// More shards than blocks.
    #[error("volume {0}: {1} shards need a cache of at least as many blocks")]
    Shards(String, u32),
    /// The policy cannot be built.
    #[error("volume {0}: {1}")]
    Policy(String, SpecError),
    /// The placement cannot be had, or not with the policy.
    #[error("volume {0}: {1}")]
    Placement(String, PlacementError),
    /// A policy that goes by what clients hold, where nothing is held twice.
    #[error(
        "volume {0}: policy {1} evicts first what clients hold too, and with this placement they \
         hold other blocks: choose placement=access, or a policy without that"
    )]
    Aware(String, String),
    /// A size for nobody.
    #[error("volume {0}: client-cache is for a policy with knows=emulation; leave it out")]
    ClientCache(String),
    /// A scheme of movement does not go with the rest.
    #[error("volume {0}: placement={1}: {2}")]
    Scheme(String, String, &'static str),
    /// No memory for the frames.
    #[error("volume {0}: {1}")]
    Memory(String, MemoryError),
}

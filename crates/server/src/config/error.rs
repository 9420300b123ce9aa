//! Why a volume cannot be had as its configuration asks.

use undercroft_cache::placement::PlacementError;
use undercroft_cache::policy::SpecError;
use undercroft_frames::MemoryError;

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
    /// A content-aware policy under a placement that keeps no block at both client and server.
    #[error(
        "volume {0}: policy {1} evicts first what clients hold too, and with this placement they \
         hold other blocks: choose placement=access, or eviction,on-hit=keep with \
         knows=exact, or a policy without that"
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

//! Errors of a volume's configuration.

use std::io;

use undercroft_frames::MemoryError;
use undercroft_level::placement::PlacementError;
use undercroft_policy::SpecError;

/// Why a volume cannot be opened as configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// Block size out of range.
    #[error("volume {0}: a block of {1} bytes is not a power of two from 4096 to 65536")]
    BlockSize(String, u32),
    /// The store's unit is larger than a block.
    #[error("volume {0}: the store takes units of {1} bytes; choose a block at least as large")]
    Alignment(String, u32),
    /// The store's size is not a multiple of its unit.
    #[error("volume {0}: the store's size of {1} bytes is no multiple of its unit of {2} bytes")]
    Size(String, u64, u32),
    /// More shards than blocks.
    #[error("volume {0}: {1} shards need a cache of at least as many blocks")]
    Shards(String, u32),
    /// The policy cannot be built.
    #[error("volume {0}: {1}")]
    Policy(String, SpecError),
    /// The placement is invalid, or does not fit the policy.
    #[error("volume {0}: {1}")]
    Placement(String, PlacementError),
    /// A content-aware policy with a placement that keeps no block at both client and server.
    #[error(
        "volume {0}: policy {1} evicts first what clients hold too, and with this placement they \
         hold other blocks: choose placement=access, or eviction,on-hit=keep with \
         knows=exact, or a policy without that"
    )]
    Aware(String, String),
    /// `client-cache` without a policy that uses it.
    #[error("volume {0}: client-cache is for a policy with knows=emulation; leave it out")]
    ClientCache(String),
    /// Requests cannot be recorded.
    #[error("volume {0}: record: {1}")]
    Recording(String, io::Error),
    /// No memory for the frames.
    #[error("volume {0}: {1}")]
    Memory(String, MemoryError),
}

//! Options of a caching client, and its counters.

use std::time::Duration;

use undercroft_hints::{Abilities, ClientId, Report};
use undercroft_level::Below;
use undercroft_nbd::ClientOptions;
use undercroft_policy::{Awareness, Knows, Spec, WriteMode};

/// How to connect, and what to cache.
///
/// ```
/// use undercroft_client::{CachedOptions, Report, Spec};
///
/// let policy: Spec = "mq,lifetime=1000".parse().unwrap();
/// let options = CachedOptions { report: Report::Nothing, ..CachedOptions::new(500, policy) };
/// assert_eq!((options.blocks, options.batch), (500, 16));
/// ```
#[derive(Clone, Debug)]
pub struct CachedOptions {
    /// Capacity of the cache in blocks, at least 1. The server determines the block size.
    pub blocks: u32,
    /// The replacement policy.
    pub policy: Spec,
    /// What a write does to the cache. It always goes to the server before it is answered.
    pub write_mode: WriteMode,
    /// What the server is told about evicted blocks.
    pub report: Report,
    /// Hints in a message, 1 to 64. With 1, each hint goes with the request that caused it.
    pub batch: usize,
    /// Longest time that a hint waits for further hints.
    pub flush_after: Duration,
    /// Connections with the same id count as one client with one cache; without an id, a random one
    /// with a key is made. Each reconnection uses a new random id.
    pub client_id: Option<ClientId>,
    /// How a content-aware policy learns what the server holds. `None`: as the policy's `knows`
    /// says; with `knows=emulation` the server's policy is then found by probing.
    pub below: Option<Below>,
    /// How to connect.
    pub options: ClientOptions,
}

impl CachedOptions {
    /// The form in which the server tells, and is told, which blocks are cached.
    pub(super) fn awareness(&self) -> Awareness {
        Awareness::of(&self.policy).unwrap_or_default()
    }

    /// The abilities that the server must grant.
    pub(super) fn needs(&self) -> Abilities {
        let follow = matches!(self.below(), Below::Told | Below::Digests);
        Abilities { follow, ..self.report.needs() }
    }

    pub(super) fn below(&self) -> Below {
        let knows = Awareness::of(&self.policy).map(|awareness| awareness.knows);
        let by_policy = match knows {
            None => Below::Nothing,
            Some(Knows::Exact) => Below::Told,
            Some(Knows::Bloom) => Below::Digests,
            Some(Knows::Emulation) => Below::Probed,
        };
        self.below.clone().filter(|_| knows.is_some()).unwrap_or(by_policy)
    }

    /// Defaults: evictions are reported, in messages of 16 or after 10 ms, and writes allocate.
    pub fn new(blocks: u32, policy: Spec) -> CachedOptions {
        CachedOptions {
            blocks,
            policy,
            write_mode: WriteMode::Allocate,
            report: Report::Evictions,
            batch: 16,
            flush_after: Duration::from_millis(10),
            client_id: None,
            below: None,
            options: ClientOptions::default(),
        }
    }
}

/// Counters of a client since it connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedStats {
    /// Capacity of the cache in blocks.
    pub capacity_blocks: u32,
    /// Blocks in the cache now.
    pub resident_blocks: u32,
    /// Blocks read by callers.
    pub reads: u64,
    /// Those of them that were in the cache.
    pub read_hits: u64,
    /// Blocks written by callers.
    pub writes: u64,
    /// Those of them that were in the cache.
    pub write_hits: u64,
    /// Blocks evicted by replacement.
    pub evictions: u64,
    /// Total time of all reads, in microseconds.
    pub read_us_total: u64,
    /// Number of reconnections.
    pub reconnections: u64,
    /// Messages of hints sent.
    pub messages: u64,
    /// Messages that the server refused.
    pub messages_refused: u64,
    /// Blocks sent to the server with their data.
    pub demotions: u64,
    /// Hints dropped because too many waited.
    pub hints_lost: u64,
    /// Evictions of blocks that the server was believed to hold.
    pub held_evictions: u64,
    /// Bytes of what the server told about its cache.
    pub news_bytes: u64,
    /// Summaries received from the server.
    pub summaries: u64,
    /// Replies predicted by an emulation of the server's cache, where the reply time told hit from
    /// miss.
    pub predictions: u64,
    /// Those of them that were predicted correctly.
    pub confirmed: u64,
    /// Summaries sent to the server.
    pub published: u64,
}

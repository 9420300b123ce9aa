//! How a caching client is to be, and what it has counted.

use std::time::Duration;

use undercroft_cache::policy::{Awareness, Knows, Spec};
use undercroft_cache::{Below, WriteMode};
use undercroft_hints::{Abilities, ClientId, Report};
use undercroft_nbd::ClientOptions;

/// How to connect, and what to keep.
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
    /// Blocks in the cache, at least 1. Their size is the server's.
    pub blocks: u32,
    /// Which of them stay.
    pub policy: Spec,
    /// What a write does to the cache. It goes to the server in any case, before it is answered.
    pub write_mode: WriteMode,
    /// What the server is told of blocks that leave the cache.
    pub report: Report,
    /// Hints of a message, 1 to 64. With 1, a hint goes with the request that caused it.
    pub batch: usize,
    /// Longest time that a hint waits for others.
    pub flush_after: Duration,
    /// Connections with the same name share one cache; without it a random one, with a key. When a
    /// lost connection is made again, it has another name in any case.
    pub client_id: Option<ClientId>,
    /// Where a content-aware policy knows from what the server holds; none: as its `knows` says,
    /// and with `knows=emulation` it is found out what is to be emulated.
    pub below: Option<Below>,
    /// How to connect.
    pub options: ClientOptions,
}

impl CachedOptions {
    /// In which form the server tells, and is told, what is held.
    pub(super) fn awareness(&self) -> Awareness {
        Awareness::of(&self.policy).unwrap_or_default()
    }

    /// What the server must grant.
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

    /// Evictions reported, 16 in a message or after 10 ms; writes allocate.
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

/// What a client has counted since it connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedStats {
    /// Blocks in the cache at most.
    pub capacity_blocks: u32,
    /// Blocks in it now.
    pub resident_blocks: u32,
    /// Blocks read by callers.
    pub reads: u64,
    /// Those of them that were in the cache.
    pub read_hits: u64,
    /// Blocks written by callers.
    pub writes: u64,
    /// Those of them that were in the cache.
    pub write_hits: u64,
    /// Blocks that replacement drove out.
    pub evictions: u64,
    /// Time that all reads together took, in microseconds.
    pub read_us_total: u64,
    /// Connections that were made again.
    pub reconnections: u64,
    /// Messages of hints sent.
    pub messages: u64,
    /// Messages that the server refused.
    pub messages_refused: u64,
    /// Blocks handed over.
    pub demotions: u64,
    /// Hints that were never sent since too many waited.
    pub hints_lost: u64,
    /// Evictions of blocks that the server was believed to hold.
    pub held_evictions: u64,
    /// Bytes of what the server told of its cache.
    pub news_bytes: u64,
    /// Summaries that the server published.
    pub summaries: u64,
    /// Replies that an emulation of the server foretold, where their time showed what they were.
    pub predictions: u64,
    /// Of these those that came as foretold.
    pub confirmed: u64,
    /// Summaries published to the server.
    pub published: u64,
}

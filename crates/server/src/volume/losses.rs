//! Losses of a store that is another server: it may go away with changes that it had answered and
//! that no flush had covered ([`Store::losses`]).
//!
//! * Where a client's write is answered when the store has it, each session that was open at a loss
//!   is told once, by its next FLUSH or FUA. If no session was told of a loss, the next new session
//!   is. Blocks written since the store's last flush leave the cache (`unflushed.rs`).
//! * Where writes are answered earlier (`write=back`), nothing is lost, and no session is told. A
//!   write-out is done only when a flush that started after it has succeeded without a loss in
//!   between. Until then the block is treated as being written out.
//!
//! Volumes whose store cannot lose anything have none of this state.
//!
//! Not here: how sessions are told (`layers/losses.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use undercroft_store::Store;

use crate::shard::unflushed::Unflushed;
use crate::volume::Volume;

/// State of a store that can lose answered changes.
pub(crate) struct Losses {
    store: Arc<dyn Store>,
    /// How often the store may have gone back to an older state, whether or not sessions must be
    /// told.
    pub(crate) epoch: AtomicU64,
    /// Whether no request counts as done before the store has it durably, so that no loss must be
    /// told.
    pub(crate) confirms: bool,
    /// Number of changes that succeeded although a loss happened while they ran. They count as
    /// further losses, because a session told of the loss before they were answered did not learn
    /// of them.
    spanned: AtomicU64,
    /// The last loss that any session was told of.
    pub(crate) told: AtomicU64,
    /// How often a session was told.
    pub(crate) times_told: AtomicU64,
}

impl Losses {
    /// Returns `None` for a store that cannot lose anything.
    pub(crate) fn of(store: &Arc<dyn Store>, confirms: bool) -> Option<Arc<Losses>> {
        store.losses()?;
        let losses = Losses {
            store: Arc::clone(store),
            epoch: AtomicU64::new(0),
            confirms,
            spanned: AtomicU64::new(0),
            told: AtomicU64::new(0),
            times_told: AtomicU64::new(0),
        };
        losses.told.store(losses.all(), Ordering::SeqCst);
        Some(Arc::new(losses))
    }

    /// Number of losses of the store so far.
    pub(crate) fn now(&self) -> u64 {
        self.store.losses().unwrap_or(0)
    }

    /// A change succeeded that started after `begun` losses. If there was another loss since, the
    /// change counts as one more loss to be told.
    pub(crate) fn note_change(&self, begun: u64) {
        if self.now() != begun {
            self.spanned.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Number of losses that sessions must be told of.
    pub(crate) fn all(&self) -> u64 {
        self.now() + self.spanned.load(Ordering::SeqCst)
    }
}

impl Volume {
    /// Whether a write that bypasses the dirty set must be durable when answered.
    pub(crate) fn is_durable(&self, asked: bool) -> bool {
        asked || self.confirms()
    }

    /// See [`Losses::epoch`].
    pub(crate) fn epoch(&self) -> u64 {
        self.losses.as_ref().map_or(0, |losses| losses.epoch.load(Ordering::SeqCst))
    }

    /// Whether a write-out is done only when a flush has followed it.
    pub(crate) fn confirms(&self) -> bool {
        self.losses.as_ref().is_some_and(|losses| losses.confirms)
    }

    /// The store may have lost what it had answered and not made durable. Call this without any
    /// lock, before any request reaches the store in its new state.
    pub(crate) fn lost_below(&self) {
        if let Some(losses) = &self.losses {
            // First, so that requests that end from now on notice the loss.
            losses.epoch.fetch_add(1, Ordering::SeqCst);
        }
        for shard in 0..self.shards.len() {
            self.lock(shard).lost_below();
        }
        self.progress.notify_waiters();
    }

    /// For each shard, the bound below which all changes answered by the store have their numbers.
    pub(crate) fn unflushed_so_far(&self) -> Vec<u64> {
        let now = |index| self.lock(index).watchers.unflushed.as_ref().map_or(0, Unflushed::now);
        if self.losses.is_none() {
            return Vec::new();
        }
        (0..self.shards.len()).map(now).collect()
    }

    /// Whether the store may have changes that no flush has covered.
    pub(crate) fn has_unflushed(&self) -> bool {
        let has =
            |index| self.lock(index).watchers.unflushed.as_ref().is_some_and(|u| !u.is_empty());
        self.losses.is_some() && (0..self.shards.len()).any(has)
    }

    /// A flush has succeeded that covers all changes below `bounds`.
    pub(crate) fn flushed_below(&self, bounds: &[u64]) {
        for (index, &bound) in bounds.iter().enumerate() {
            if let Some(unflushed) = &mut self.lock(index).watchers.unflushed {
                unflushed.cover(bound);
            }
        }
    }
}

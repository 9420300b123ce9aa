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
//! A store that cannot lose anything has no losses, and nothing here ever changes.
//!
//! Not here: how sessions are told (`layers/losses.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use undercroft_store::Store;

/// What a store has lost of the changes that it had answered.
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
    /// `delays`: the volume answers writes before the store has them.
    pub(crate) fn of(store: &Arc<dyn Store>, delays: bool) -> Arc<Losses> {
        let (store, confirms) = (Arc::clone(store), delays && store.losses().is_some());
        let (epoch, spanned, told, times_told) = Default::default();
        let losses = Losses { store, epoch, confirms, spanned, told, times_told };
        losses.told.store(losses.all(), Ordering::SeqCst);
        Arc::new(losses)
    }

    /// Whether the store can lose changes that it has answered.
    pub(crate) fn are_possible(&self) -> bool {
        self.store.losses().is_some()
    }

    /// How often the store may have gone back to an older state by now.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Whether a write that bypasses the dirty set must be durable when answered.
    pub(crate) fn must_be_durable(&self, asked: bool) -> bool {
        asked || self.confirms
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

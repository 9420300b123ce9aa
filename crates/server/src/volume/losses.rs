//! What a store may lose that lives on elsewhere: another server, which goes away with changes that
//! it had answered and that no flush had covered ([`Store::losses`]).
//!
//! * Where a client's write is answered when the store has it, each session that was open at a loss
//!   is told of it once, by its next FLUSH or FUA; a loss that nobody was told of is told to the
//!   session that comes next. What was written since the last flush below leaves the cache
//!   (`unflushed.rs`).
//! * Where writes are answered before (`write=back`), nothing is lost, and nobody has to be told: a
//!   write-out is done when a flush of the store that began after it has ended well, without a loss
//!   since. Until then the block stays as it is during any write-out.
//!
//! Volumes whose store cannot lose anything have none of this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use undercroft_nbd::{Answer, Command, Failure, Reply, Request};
use undercroft_store::Store;

use crate::shard::unflushed::Unflushed;
use crate::volume::Volume;

/// What a client is told.
const LOST: &str = "the server below was lost with changes that it had answered and not made \
                    durable: what was written since the last FLUSH that succeeded may be lost";

/// What is known of a store that can lose something.
pub(crate) struct Losses {
    store: Arc<dyn Store>,
    /// How often the store may have gone back in time, whether anybody has to be told of it or not.
    pub(crate) epoch: AtomicU64,
    /// Nothing is done before the store has it durably: there is no loss that anybody must be told.
    pub(crate) confirms: bool,
    /// Changes that were under way across a loss and went well: whoever was told of the loss before
    /// they were answered did not hear of them.
    spanned: AtomicU64,
    /// The last loss that anybody was told of.
    told: AtomicU64,
    /// How often somebody was told.
    pub(crate) times_told: AtomicU64,
}

impl Losses {
    /// None for a store that cannot lose anything.
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

    /// The losses of the store so far.
    pub(crate) fn now(&self) -> u64 {
        self.store.losses().unwrap_or(0)
    }

    /// A change has gone well that began after so many losses. If there was another since, that is
    /// one more of which is to be told.
    pub(crate) fn note_change(&self, begun: u64) {
        if self.now() != begun {
            self.spanned.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The losses that sessions are told of.
    fn all(&self) -> u64 {
        self.now() + self.spanned.load(Ordering::SeqCst)
    }
}

/// Up to which loss a session was told.
pub(crate) struct Informed {
    losses: Arc<Losses>,
    until: AtomicU64,
}

impl Informed {
    /// For a session that begins now; none where nobody is told anything.
    pub(crate) fn new(volume: &Volume) -> Option<Arc<Informed>> {
        let losses = volume.losses.as_ref().filter(|losses| !losses.confirms)?;
        let until = AtomicU64::new(losses.told.load(Ordering::SeqCst));
        Some(Arc::new(Informed { losses: Arc::clone(losses), until }))
    }

    /// Has a request tell what was lost, if it says that something is durable.
    pub(crate) fn attach(self: &Arc<Self>, request: &mut Request) {
        let is_flush = matches!(request.command, Command::Flush);
        if !(is_flush || request.command.changes() && request.durable) {
            return;
        }
        // Those that are under way together tell it together.
        let (this, until) = (Arc::clone(self), self.until.load(Ordering::SeqCst));
        let reply = std::mem::replace(&mut request.reply, Reply::call(|_| ()));
        request.reply = Reply::call(move |answer| this.answer(reply, answer, is_flush, until));
    }

    fn answer(&self, reply: Reply, answer: Answer, is_flush: bool, until: u64) {
        let all = self.losses.all();
        let (answer, tells) = match answer {
            // A FLUSH that fails says as much.
            Answer::Failed(Failure::Io, text) => (Answer::Failed(Failure::Io, text), is_flush),
            failed @ Answer::Failed(..) => (failed, false),
            _ if all > until => (Answer::Failed(Failure::Io, LOST.to_owned()), true),
            other => (other, false),
        };
        // Whoever has gone was told nothing.
        if tells && all > until && reply.is_awaited() {
            self.until.fetch_max(all, Ordering::SeqCst);
            self.losses.told.fetch_max(all, Ordering::SeqCst);
            self.losses.times_told.fetch_add(1, Ordering::Relaxed);
        }
        reply.answer(answer);
    }
}

impl Volume {
    /// Whether what goes to the store past the dirty set is to be durable with its answer.
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

    /// The store may have lost what it had answered and not made durable. Called under no lock,
    /// before any request meets the store as it is now.
    pub(crate) fn lost_below(&self) {
        if let Some(losses) = &self.losses {
            // First: what ends from now on is looked at anew.
            losses.epoch.fetch_add(1, Ordering::SeqCst);
        }
        for shard in 0..self.shards.len() {
            self.lock(shard).lost_below();
        }
        self.progress.notify_waiters();
    }

    /// For each shard the number below which all changes are that the store has answered by now.
    pub(crate) fn unflushed_so_far(&self) -> Vec<u64> {
        let now = |index| self.lock(index).unflushed.as_ref().map_or(0, Unflushed::now);
        if self.losses.is_none() {
            return Vec::new();
        }
        (0..self.shards.len()).map(now).collect()
    }

    /// Whether the store may have something that no flush has covered.
    pub(crate) fn has_unflushed(&self) -> bool {
        let has = |index| self.lock(index).unflushed.as_ref().is_some_and(|u| !u.is_empty());
        self.losses.is_some() && (0..self.shards.len()).any(has)
    }

    /// A flush has succeeded that began then.
    pub(crate) fn flushed_below(&self, bounds: &[u64]) {
        for (index, &bound) in bounds.iter().enumerate() {
            if let Some(unflushed) = &mut self.lock(index).unflushed {
                unflushed.cover(bound);
            }
        }
    }
}

//! Reports of losses: the layer that tells a session once, by its next FLUSH or FUA, that the store
//! has lost changes that it had answered. Sessions of volumes whose store cannot lose anything, or
//! that lose nothing by it, have none.
//!
//! Not here: how losses are noticed, and what they do to the cache (`volume/losses.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use undercroft_nbd::{Answer, Command, Failure, Reply, Request, Session};

use crate::volume::losses::Losses;

/// The error text for clients.
const LOST: &str = "the server below was lost with changes that it had answered and not made \
                    durable: what was written since the last FLUSH that succeeded may be lost";

/// The layer that reports losses.
pub(super) struct LossReports {
    informed: Arc<Informed>,
    next: Box<dyn Session>,
}

impl LossReports {
    pub(super) fn new(losses: &Arc<Losses>, next: Box<dyn Session>) -> Self {
        let until = AtomicU64::new(losses.told.load(Ordering::SeqCst));
        Self { informed: Arc::new(Informed { losses: Arc::clone(losses), until }), next }
    }
}

impl Session for LossReports {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        requests.iter_mut().for_each(|request| self.informed.attach(request));
        self.next.serve(requests)
    }
}

/// The last loss that a session was told of.
struct Informed {
    losses: Arc<Losses>,
    until: AtomicU64,
}

impl Informed {
    /// Makes the answer of a request report losses, if that answer would say that something is
    /// durable.
    fn attach(self: &Arc<Self>, request: &mut Request) {
        let is_flush = matches!(request.command, Command::Flush);
        if !(is_flush || request.command.changes() && request.durable) {
            return;
        }
        // Requests that run at the same time all report the loss.
        let (this, until) = (Arc::clone(self), self.until.load(Ordering::SeqCst));
        let reply = std::mem::replace(&mut request.reply, Reply::call(|_| ()));
        request.reply = Reply::call(move |answer| this.answer(reply, answer, is_flush, until));
    }

    fn answer(&self, reply: Reply, answer: Answer, is_flush: bool, until: u64) {
        let all = self.losses.all();
        let (answer, tells) = match answer {
            // A failed FLUSH already tells the client as much.
            Answer::Failed(Failure::Io, text) => (Answer::Failed(Failure::Io, text), is_flush),
            failed @ Answer::Failed(..) => (failed, false),
            _ if all > until => (Answer::Failed(Failure::Io, LOST.to_owned()), true),
            other => (other, false),
        };
        // A client that has disconnected was told nothing.
        if tells && all > until && reply.is_awaited() {
            self.until.fetch_max(all, Ordering::SeqCst);
            self.losses.told.fetch_max(all, Ordering::SeqCst);
            self.losses.times_told.fetch_add(1, Ordering::Relaxed);
        }
        reply.answer(answer);
    }
}

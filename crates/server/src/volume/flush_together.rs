//! Flushes of the store that are wanted at the same time: one is under way at most, and those who
//! come meanwhile share the next one. It begins after they came, so that it covers all that was
//! answered before.
//!
//! Not here: what has to be written out before (`flush.rs`).

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use crate::answer::Failed;
use crate::volume::Volume;

/// What several wait for.
type Together = Shared<BoxFuture<'static, Result<(), Failed>>>;

/// The flushes of a store.
#[derive(Default)]
pub(crate) struct Flushes {
    /// Held by the one that is under way.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The one that has not begun.
    next: Mutex<Option<Together>>,
}

impl Volume {
    /// Tells the store to make durable what it has by now, together with others who want that.
    pub(crate) async fn flush_together(self: &Arc<Self>) -> Result<(), Failed> {
        let next = {
            let mut next = self.flushes.next.lock().unwrap_or_else(PoisonError::into_inner);
            next.get_or_insert_with(|| Arc::clone(self).next_flush().boxed().shared()).clone()
        };
        next.await
    }

    async fn next_flush(self: Arc<Self>) -> Result<(), Failed> {
        let _turn = Arc::clone(&self.flushes.turn).lock_owned().await;
        // Who comes from now on would come too late.
        *self.flushes.next.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.ask_to_flush().await
    }
}

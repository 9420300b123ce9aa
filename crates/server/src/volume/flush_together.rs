//! Combines flushes of the store that are wanted at the same time. At most one runs; requests that
//! come meanwhile share the next one. It starts after they came, so it covers all that was answered
//! before them.
//!
//! Not here: what must be written out before (`flush.rs`).

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use crate::answer::Failed;
use crate::volume::Volume;

/// A flush that several requests wait for.
type Together = Shared<BoxFuture<'static, Result<(), Failed>>>;

/// The flushes of a store.
#[derive(Default)]
pub(crate) struct Flushes {
    /// Held by the running flush.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The flush that has not started.
    next: Mutex<Option<Together>>,
}

impl Volume {
    /// Tells the store to make durable what it has now, together with others that want the same.
    pub(crate) async fn flush_together(self: &Arc<Self>) -> Result<(), Failed> {
        let next = {
            let mut next = self.flushes.next.lock().unwrap_or_else(PoisonError::into_inner);
            next.get_or_insert_with(|| Arc::clone(self).next_flush().boxed().shared()).clone()
        };
        next.await
    }

    async fn next_flush(self: Arc<Self>) -> Result<(), Failed> {
        let _turn = Arc::clone(&self.flushes.turn).lock_owned().await;
        // Later requests must share the next flush, not this one.
        *self.flushes.next.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.ask_to_flush().await
    }
}

//! The account of requests that were answered with EIO before they were over: how many there are
//! and how many bytes they ask for, which is bounded (`volume/timeouts.rs` says why they go on).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use undercroft_nbd::Failure;

use crate::answer::Failed;

/// Most requests that go on without their clients.
const OVERDUE_MAX: u64 = 1024;

/// Most bytes that these ask for.
const OVERDUE_BYTES_MAX: u64 = 64 << 20;

/// The requests of a volume that were answered before they were over.
#[derive(Debug, Default)]
pub(crate) struct Overdue {
    /// Those that still are not over, and their bytes.
    open: AtomicU64,
    bytes: AtomicU64,
    /// All there ever were.
    all: AtomicU64,
    /// The bytes that late changes concern, without a cache.
    changing: Mutex<Vec<Range<u64>>>,
}

/// One of them; it is over when this is dropped.
#[derive(Debug)]
pub(crate) struct Late {
    of: Arc<Overdue>,
    volume: String,
    bytes: u64,
    changes: Option<Range<u64>>,
}

impl Overdue {
    /// A request of so many bytes at a volume is answered after `limit`, before it is over.
    pub(crate) fn begin(
        self: &Arc<Self>,
        volume: &str,
        bytes: u64,
        changes: Option<Range<u64>>,
        limit: Duration,
    ) -> Late {
        self.changing().extend(changes.clone());
        self.all.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        if self.open.fetch_add(1, Ordering::SeqCst) == 0 {
            let limit_s = limit.as_secs_f64();
            tracing::error!(
                volume,
                limit_s,
                "the store does not answer; clients are told EIO after that time"
            );
        }
        Late { of: Arc::clone(self), volume: volume.to_owned(), bytes, changes }
    }

    /// How many there are that are not over.
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::SeqCst)
    }

    /// How many there were.
    pub(crate) fn all(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    fn changing(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a change of bytes that a late one may still change.
    pub(crate) fn check_change(&self, bytes: &Range<u64>) -> Result<(), Failed> {
        let overlaps = |late: &Range<u64>| late.start < bytes.end && bytes.start < late.end;
        if self.open() > 0 && self.changing().iter().any(overlaps) {
            let text = "the store has not answered an earlier change of these bytes, which may \
                        still take effect";
            return Err(Failed::new(Failure::Io, text));
        }
        Ok(())
    }

    /// Whether there may be no more.
    pub(crate) fn is_full(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= OVERDUE_MAX
            || self.bytes.load(Ordering::Relaxed) >= OVERDUE_BYTES_MAX
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        if let Some(changes) = &self.changes {
            let mut changing = self.of.changing();
            if let Some(at) = changing.iter().position(|one| one == changes) {
                changing.swap_remove(at);
            }
        }
        self.of.bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        if self.of.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            tracing::warn!(volume = self.volume, "the store answers again");
        }
    }
}

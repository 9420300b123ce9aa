//! Accounts for late requests: those answered with EIO before they ended. Their number and bytes
//! are limited (`volume/answers.rs` explains why they continue).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most late requests.
const OVERDUE_MAX: u64 = 1024;

/// Most bytes of late requests.
const OVERDUE_BYTES_MAX: u64 = 64 << 20;

/// The late requests of a volume.
#[derive(Debug, Default)]
pub(crate) struct LateRequests {
    /// Number and bytes of the late requests that have not ended.
    open: AtomicU64,
    bytes: AtomicU64,
    /// Number of all late requests so far.
    all: AtomicU64,
}

/// A late request; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Late {
    of: Arc<LateRequests>,
    bytes: u64,
}

impl LateRequests {
    /// Adds a late request for `bytes` bytes.
    pub(crate) fn begin(self: &Arc<Self>, bytes: u64) -> Late {
        self.all.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        self.open.fetch_add(1, Ordering::SeqCst);
        Late { of: Arc::clone(self), bytes }
    }

    /// Number of late requests that have not ended.
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::SeqCst)
    }

    /// Number of late requests so far.
    pub(crate) fn all(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    /// Whether the limits are reached.
    pub(crate) fn is_full(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= OVERDUE_MAX
            || self.bytes.load(Ordering::Relaxed) >= OVERDUE_BYTES_MAX
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.of.bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        self.of.open.fetch_sub(1, Ordering::SeqCst);
    }
}

//! A volume's part of a device for the flash level: where its slots lie, and whether the device is
//! still used.
//!
//! Not here: how the device is opened and divided (`process/flash_device.rs`), what lies in the
//! slots (`shard/flash_level.rs`), and what an earlier server left there (`flash/journals.rs`).

mod journals;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use tokio::sync::Semaphore;
use undercroft_flash::FlashSpec;
use undercroft_store::Store;

pub(crate) use journals::{APART_NS, FlashJournals, STAMP_MAX_NS, read};
pub use journals::{FlashPlace, check_part};

/// Blocks that are written to a device at a time; more would make its reads wait.
const WRITES_AT_ONCE: usize = 4;

/// Failures in a row, of reads or of writes, after which a device is used no more.
const FAILURES_MAX: u32 = 16;

/// How long a read from flash may take before the store is asked instead.
pub(crate) const READ_PATIENCE: Duration = Duration::from_secs(1);

/// Nanoseconds since 1970, on the clock from which stores have the times of their last changes.
pub type FlashClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A device for flash levels. All parts of it share the state here.
#[derive(Clone)]
pub struct FlashMedium {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: FlashClock,
    /// Permits for writes.
    pub(crate) turns: Arc<Semaphore>,
    /// Failures in a row of each kind of request. Writes may go on where reads do not.
    failures: Arc<[AtomicU32; 2]>,
}

/// A kind of request to a device.
#[derive(Clone, Copy)]
pub(crate) enum FlashRequest {
    Read,
    Write,
}

/// A volume's part of a device.
pub struct FlashPart {
    pub(crate) medium: FlashMedium,
    pub(crate) spec: FlashSpec,
    /// Its first byte in the device.
    pub(crate) first_byte: u64,
    /// Number of slots, each of one block of the volume.
    pub(crate) slots: u32,
    /// Present if the level is to be warm after a restart.
    pub(crate) journals: Option<Arc<FlashJournals>>,
    /// Keeps others out of it.
    pub(crate) _owned: Option<Arc<dyn Any + Send + Sync>>,
}

impl FlashMedium {
    /// A device whose bytes are those of a store, on the system's clock.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let now = || UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
        Self::with_clock(store, Arc::new(now))
    }

    /// As [`new`](Self::new), on another clock.
    pub fn with_clock(store: Arc<dyn Store>, clock: FlashClock) -> Self {
        let turns = Arc::new(Semaphore::new(WRITES_AT_ONCE));
        Self { store, clock, turns, failures: Arc::default() }
    }

    /// Whether the device is used no more, after too many failures.
    pub(crate) fn is_off(&self) -> bool {
        self.failures.iter().any(|failures| failures.load(Ordering::Relaxed) >= FAILURES_MAX)
    }

    /// Notes how a request ended.
    pub(crate) fn note(&self, request: FlashRequest, is_ok: bool) {
        let failures = &self.failures[request as usize];
        if is_ok {
            // At once, so that it does not turn on what another thread has turned off meanwhile.
            let again = |count: u32| (1..FAILURES_MAX).contains(&count).then_some(0);
            let _ = failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, again);
        } else if failures.fetch_add(1, Ordering::Relaxed) + 1 == FAILURES_MAX {
            tracing::error!(
                "flash {}: {FAILURES_MAX} {} in a row failed, took too long, or brought other data \
                 than were written; it is used no more until it is removed and added again \
                 (undercroft flash), or the server is started again, and all is read from the \
                 stores",
                self.store.facts().name,
                match request {
                    FlashRequest::Read => "reads",
                    FlashRequest::Write => "writes",
                }
            );
        }
    }
}

impl FlashPart {
    /// The part of a device from a byte on, with so many slots of one block.
    pub fn new(medium: FlashMedium, spec: FlashSpec, first_byte: u64, slots: u32) -> Self {
        Self { medium, spec, first_byte, slots, journals: None, _owned: None }
    }

    /// The slots of one of `count` shards: the byte of the first, and their number.
    pub(crate) fn of_shard(&self, index: u32, count: u32, block_bytes: u32) -> (u64, u32) {
        let each = self.slots / count.max(1);
        let first = self.first_byte + u64::from(index) * u64::from(each) * u64::from(block_bytes);
        (first, each)
    }
}

impl fmt::Debug for FlashPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlashPart({} slots from byte {})", self.slots, self.first_byte)
    }
}

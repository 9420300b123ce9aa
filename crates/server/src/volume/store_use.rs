//! Who wants the store of a volume: whether clients wait for it now, and how busy they keep it. The
//! placement `auto` weighs reloads by that.
//!
//! Not here: the reloads (`reloader.rs`).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::clock;
use crate::lock::sleep_lock;

/// Weight of the last period in the share.
const NEWEST: f64 = 0.5;

/// Who wants the store of a volume: clients, and, when none does, reloads.
#[derive(Default)]
pub(crate) struct StoreDemand {
    /// Number of store requests that clients wait for.
    waiting: AtomicUsize,
    /// How busy clients keep the store; measured for the placement `auto`.
    pub(crate) store_use: OnceLock<StoreUse>,
    /// Notified when the store may be idle, or a reload was queued.
    pub(crate) reload_wanted: Notify,
    /// Whether the task for reloads runs.
    pub(super) has_reloader: AtomicBool,
}

/// While this exists, a client waits for the store.
pub(crate) struct Demand(Arc<StoreDemand>);

impl StoreDemand {
    /// Counts a store request that a client waits for.
    pub(crate) fn begin(self: &Arc<Self>) -> Demand {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Demand(Arc::clone(self))
    }

    /// Whether a client waits for the store.
    pub(crate) fn is_there(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Demand {
    fn drop(&mut self) {
        let demand = &self.0;
        let was_last = demand.waiting.fetch_sub(1, Ordering::SeqCst) == 1;
        if was_last && demand.has_reloader.load(Ordering::SeqCst) {
            demand.reload_wanted.notify_one();
        }
    }
}

/// Measures in which part of the time at least one store request of clients runs, write-outs among
/// them. A store that serves several requests at a time is less busy than that, so reloads are
/// rather too few than too many.
#[derive(Clone)]
pub(crate) struct StoreUse(Arc<Mutex<Use>>);

struct Use {
    running: usize,
    /// When the first of the running requests began, or the period, if that was later.
    since: Instant,
    busy: Duration,
    period_began: Instant,
    share: f64,
}

/// A running request.
pub(crate) struct InUse(StoreUse);

impl StoreUse {
    pub(crate) fn new() -> Self {
        let now = clock::now();
        let busy = Duration::ZERO;
        Self(Arc::new(Mutex::new(Use {
            running: 0,
            since: now,
            busy,
            period_began: now,
            share: 1.0,
        })))
    }

    /// A request begins.
    pub(crate) fn begin(&self) -> InUse {
        let mut its = sleep_lock(&self.0);
        if its.running == 0 {
            its.since = clock::now();
        }
        its.running += 1;
        InUse(self.clone())
    }

    /// Ends a period and begins the next. Returns the share of time, from 0 to 1, in which the
    /// store was in use; earlier periods count less and less.
    pub(crate) fn end_period(&self) -> f64 {
        let (mut its, now) = (sleep_lock(&self.0), clock::now());
        if its.running > 0 {
            let since = std::mem::replace(&mut its.since, now);
            its.busy += now.saturating_duration_since(since);
        }
        let length = now.saturating_duration_since(its.period_began).as_secs_f64();
        if length > 0.0 {
            let share = (its.busy.as_secs_f64() / length).min(1.0);
            its.share += NEWEST * (share - its.share);
        }
        (its.busy, its.period_began) = (Duration::ZERO, now);
        its.share
    }

    /// The share as of the end of the last period.
    pub(crate) fn share(&self) -> f64 {
        sleep_lock(&self.0).share
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut its = sleep_lock(&self.0.0);
        its.running -= 1;
        if its.running == 0 {
            let since = its.since;
            its.busy += clock::now().saturating_duration_since(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_follows_the_use() {
        let store = StoreUse::new();
        assert_eq!(sleep_lock(&store.0).share, 1.0, "nothing is known yet");
        store.end_period();
        let (one, other) = (store.begin(), store.begin());
        std::thread::sleep(Duration::from_millis(20));
        drop(one);
        let before = sleep_lock(&store.0).share;
        assert!(store.end_period() >= before, "one runs still");
        drop(other);
        let share = || {
            std::thread::sleep(Duration::from_millis(2));
            store.end_period()
        };
        let idle: Vec<f64> = (0..8).map(|_| share()).collect();
        assert!(idle.is_sorted_by(|a, b| a > b) && idle[7] < 0.02, "{idle:?}");
    }
}

//! How busy clients keep the store of a volume. The placement `auto` weighs reloads by it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::clock;
use crate::lock::sleep_lock;

/// Weight of the last period in the share.
const NEWEST: f64 = 0.5;

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

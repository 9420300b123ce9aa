//! How long requests wait for a server that is away. The time counts from the first request that
//! noticed it, so that later requests do not all wait as long: when it is over, requests fail after
//! one attempt to connect, until one succeeds again. A request never waits for longer than that
//! time, even if the server is back and goes away each time that the request reaches it.
//!
//! Repeating a request is safe: it is not answered, so no later request for its bytes has begun.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use undercroft_nbd::ClientError;

use crate::lock::sleep_lock;

/// Pauses between two attempts of a request; they double.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LONGEST: Duration = Duration::from_secs(1);

/// Since when requests find the server away.
pub(super) struct SharedPatience {
    /// How long requests wait.
    waits: Duration,
    is_away: AtomicBool,
    since: Mutex<Option<Instant>>,
}

/// The patience of one request.
pub(super) struct Patience<'a> {
    shared: &'a SharedPatience,
    /// Set at the first failure.
    until: Option<Instant>,
    pause: Duration,
}

impl SharedPatience {
    pub(super) fn new(waits: Duration) -> SharedPatience {
        SharedPatience { waits, is_away: AtomicBool::new(false), since: Mutex::default() }
    }

    pub(super) fn of_request(&self) -> Patience<'_> {
        Patience { shared: self, until: None, pause: PAUSE_FIRST }
    }

    /// A request has noticed that the server is away. Returns when requests fail.
    fn begin(&self) -> Instant {
        let mut since = sleep_lock(&self.since);
        self.is_away.store(true, Ordering::Relaxed);
        *since.get_or_insert_with(Instant::now) + self.waits
    }

    fn end(&self) {
        if self.is_away.load(Ordering::Relaxed) {
            let mut since = sleep_lock(&self.since);
            self.is_away.store(false, Ordering::Relaxed);
            *since = None;
        }
    }
}

impl Patience<'_> {
    /// The result of an attempt, or `None` after a pause if the request must be tried again.
    pub(super) async fn accept<T>(
        &mut self,
        result: Result<T, ClientError>,
    ) -> Option<Result<T, ClientError>> {
        if !result.as_ref().is_err_and(ClientError::is_away) {
            self.shared.end();
            return Some(result);
        }
        let until = self.shared.begin();
        let until = until.min(*self.until.get_or_insert(Instant::now() + self.shared.waits));
        if Instant::now() + self.pause > until {
            return Some(result);
        }
        sleep(self.pause).await;
        self.pause = (2 * self.pause).min(PAUSE_LONGEST);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn attempts(shared: &SharedPatience) -> usize {
        let mut patience = shared.of_request();
        let lost = || Err::<(), _>(ClientError::Lost("away".to_owned()));
        let mut attempts = 1;
        while patience.accept(lost()).await.is_none() {
            attempts += 1;
        }
        attempts
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_together_and_not_one_after_another() {
        let (shared, began) = (SharedPatience::new(Duration::from_secs(30)), Instant::now());
        assert!(attempts(&shared).await > 20);
        assert!((29..=30).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        // The next request has only what the first left: less than its longest pause.
        assert!(attempts(&shared).await < 10);
        assert!(began.elapsed().as_secs() <= 30, "{:?}", began.elapsed());
        // It is back, and goes away once more.
        assert!(shared.of_request().accept(Ok(())).await.is_some());
        assert!(attempts(&shared).await > 20);
        assert_eq!(attempts(&SharedPatience::new(Duration::ZERO)).await, 1);
    }
}

//! Whether a volume's store works: its failed requests by kind, what it said last, and the log of
//! that. A store that fails everything may fail thousands of requests a second, so each kind of
//! failure is logged when it begins, and then at most once a minute with the number since.
//!
//! A kind of request fails from its first failure until a request of that kind succeeds. Kinds that
//! are rarely asked for would stay failed for long: a minute after its last failure, a kind is also
//! in order when any request succeeds.
//!
//! Not here: stores that do not answer at all (`overdue.rs`).

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;
use undercroft_nbd::Failure;

use crate::answer::Failed;
use crate::clock;
use crate::volume::Volume;

/// Shortest time between two log lines about failures of one kind, and the time after which a
/// failed kind is in order when others are.
const PAUSE: Duration = Duration::from_secs(60);

/// Longest wait for an answer about the store's name.
const LOOK: Duration = Duration::from_secs(5);

/// The kinds of requests to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreRequest {
    Read,
    Write,
    Zero,
    Trim,
    Flush,
    Status,
    Size,
}

/// Their names in logs.
const NAMES: [&str; 7] = ["read", "write", "zero", "trim", "flush", "status", "size"];

/// What is known of a store.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth {
    /// One bit for each kind that fails now.
    failing: AtomicU64,
    failures: AtomicU64,
    /// What is wrong with the store's name.
    astray: Mutex<Option<String>>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    kinds: [Kind; NAMES.len()],
    /// The last error.
    error: Option<Arc<str>>,
    /// Whether the log says that the store fails.
    is_logged: bool,
}

#[derive(Debug, Default)]
struct Kind {
    failed: Option<Instant>,
    logged: Option<Instant>,
    /// Failures since the last line.
    unlogged: u64,
}

impl StoreHealth {
    /// Notes how a request ended.
    #[inline]
    pub(crate) fn note<T>(&self, volume: &str, kind: StoreRequest, result: &Result<T, Failed>) {
        match result {
            Ok(_) if self.failing.load(Ordering::Relaxed) == 0 => {}
            Ok(_) => self.succeeded(volume, kind),
            // A store that cannot zero quickly says so in this way.
            Err(failed) if failed.failure == Failure::NotSupported => {}
            Err(failed) => self.failed(volume, kind, failed),
        }
    }

    #[cold]
    fn failed(&self, volume: &str, kind: StoreRequest, failed: &Failed) {
        let now = clock::now();
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut seen = self.seen();
        self.failing.fetch_or(1 << kind as u64, Ordering::Relaxed);
        seen.error = Some(Arc::clone(&failed.message));
        let its = &mut seen.kinds[kind as usize];
        its.failed = Some(now);
        its.unlogged += 1;
        if its.logged.is_some_and(|logged| now.saturating_duration_since(logged) < PAUSE) {
            return;
        }
        its.logged = Some(now);
        let (request, failures) = (NAMES[kind as usize], std::mem::take(&mut its.unlogged));
        seen.is_logged = true;
        tracing::error!(volume, request, failures, "the store fails: {failed}");
    }

    #[cold]
    fn succeeded(&self, volume: &str, kind: StoreRequest) {
        let now = clock::now();
        let mut seen = self.seen();
        for (number, its) in seen.kinds.iter_mut().enumerate() {
            let is_old = |failed: Instant| now.saturating_duration_since(failed) >= PAUSE;
            if number == kind as usize || its.failed.is_some_and(is_old) {
                its.failed = None;
                self.failing.fetch_and(!(1 << number), Ordering::Relaxed);
            }
        }
        if self.failing.load(Ordering::Relaxed) == 0 && std::mem::take(&mut seen.is_logged) {
            let failures = self.failures();
            tracing::warn!(volume, failures, "the store works again");
        }
    }

    /// Notes what is wrong with the store's name, and logs a change of that.
    fn note_astray(&self, volume: &str, astray: Option<String>) {
        let mut known = self.astray.lock().unwrap_or_else(PoisonError::into_inner);
        match &astray {
            _ if *known == astray => return,
            Some(what) => tracing::error!(
                volume,
                "{what}: what clients write is lost when the server ends; put the file back, or \
                 have the new one opened by SIGHUP while no client is connected"
            ),
            None => tracing::warn!(volume, "the file that is open has its name again"),
        }
        *known = astray;
    }

    /// Number of requests that failed so far.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// What fails now, for people; `None` if nothing does.
    pub(crate) fn trouble(&self) -> Option<String> {
        let seen = self.seen();
        let failing = self.failing.load(Ordering::Relaxed);
        let names = NAMES.iter().enumerate().filter(|(number, _)| failing & 1 << number != 0);
        let names: Vec<_> = names.map(|(_, name)| *name).collect();
        if names.is_empty() {
            return self.astray.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
        let error = seen.error.as_deref().unwrap_or("");
        Some(format!("the store fails requests ({}): {error}", names.join(", ")))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Volume {
    /// Why the volume cannot do all that it should, for people; `None` if it can.
    pub(crate) fn trouble(&self) -> Option<String> {
        let late = self.overdue.open();
        let late =
            (late > 0).then(|| format!("the store has not answered {late} requests in time"));
        let stopped = || Some(format!("the store makes no changes: {}", self.store.stopped()?));
        late.or_else(stopped).or_else(|| self.store_health.trouble())
    }

    /// Looks whether the store's name still leads to what is open, and returns what is wrong with
    /// it. Waits at most [`LOOK`] for the store.
    pub(crate) async fn look_at_name(&self) -> Option<String> {
        let astray = timeout(LOOK, self.store.astray()).await.ok()?;
        self.store_health.note_astray(&self.config.name, astray.clone());
        astray
    }

    /// Notes how a request to the store ended.
    #[inline]
    pub(crate) fn note_store<T>(&self, kind: StoreRequest, result: &Result<T, Failed>) {
        self.store_health.note(&self.config.name, kind, result);
    }

    /// Makes a store request, notes how it ended, and survives a store that panics.
    pub(crate) async fn ask_store<T: Send + 'static>(
        &self,
        kind: StoreRequest,
        answer: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> Result<T, Failed> {
        let result = ask_store(answer).await;
        self.note_store(kind, &result);
        result
    }
}

/// Makes a request of a store, and survives a store that panics.
pub(crate) async fn ask_store<T: Send + 'static>(
    answer: impl Future<Output = io::Result<T>> + Send + 'static,
) -> Result<T, Failed> {
    match tokio::spawn(answer).await {
        Ok(result) => result.map_err(Failed::from),
        Err(_) => Err(Failed::new(Failure::Io, "a store request was lost")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_kind_fails_until_it_works_or_others_do_for_long() {
        let health = StoreHealth::default();
        let failed: Result<(), _> = Err(Failed::new(Failure::Io, "no disk"));
        health.note("v", StoreRequest::Flush, &failed);
        health.note("v", StoreRequest::Read, &failed);
        health.note("v", StoreRequest::Read, &Ok(()));
        let text = "the store fails requests (flush): no disk";
        assert_eq!((health.trouble().as_deref(), health.failures()), (Some(text), 2));
        tokio::time::advance(PAUSE).await;
        assert!(health.trouble().is_some(), "nothing has succeeded since");
        health.note("v", StoreRequest::Read, &Ok(()));
        assert_eq!(health.trouble(), None);
        let unsupported: Result<(), _> = Err(Failed::new(Failure::NotSupported, "not fast"));
        health.note("v", StoreRequest::Zero, &unsupported);
        assert_eq!((health.trouble(), health.failures()), (None, 2));
    }
}

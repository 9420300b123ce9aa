//! Whether a volume's store works: its requests are counted here as they begin and end, and what is
//! known of it is looked at twice a second, and whenever somebody asks. The log has a line when the
//! state changes, and, while the store counts as up, at most one a minute about failures.
//!
//! Not here: which state that is (`store_state.rs`), and requests whose clients were answered
//! before they ended (`late_requests.rs`).

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::time::timeout;
use undercroft_nbd::Failure;
use undercroft_store::Store;

use crate::answer::Failed;
use crate::clock;
use crate::config::VolumeConfig;
use crate::late_requests::LateRequests;
use crate::lock::{lock, sleep_lock};
use crate::volume::store_state::{Ended, KINDS, Seen, StoreRequest, StoreState, StoreWatch};

/// Shortest time between two log lines about failures of a store that is up.
const PAUSE: Duration = Duration::from_secs(60);

/// Longest wait for an answer about the store's name.
const NAME: Duration = Duration::from_secs(5);

/// Time between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(500);

/// The store of a volume, and what is known of it.
pub(crate) struct StoreHealth {
    /// Name of the volume.
    volume: String,
    store: Arc<dyn Store>,
    /// Whether requests wait for flash and not for the store.
    waits_for_flash: Arc<AtomicBool>,
    /// Requests that were answered before they ended.
    late: Arc<LateRequests>,
    well: [AtomicU64; KINDS],
    failed: [AtomicU64; KINDS],
    /// What is wrong with the store's name, and held while the store is asked for that.
    astray: Mutex<Option<String>>,
    asks_name: Arc<tokio::sync::Mutex<()>>,
    /// The last error.
    error: Mutex<Option<Arc<str>>>,
    running: Arc<Running>,
    watch: Mutex<Watch>,
}

#[derive(Debug)]
struct Watch {
    state: StoreWatch,
    /// When failures were last logged, and how many there were by then.
    logged: Option<Instant>,
    told: u64,
}

/// The requests that have not ended, by number, with their beginnings. Those that the store answers
/// at once are never among them.
#[derive(Debug, Default)]
pub(crate) struct Running(Mutex<(u64, BTreeMap<u64, Instant>)>);

/// A request that has not ended; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Runs(Arc<Running>, u64);

impl Running {
    fn begin(self: &Arc<Self>) -> Runs {
        let mut running = lock(&self.0);
        let number = running.0;
        running.0 += 1;
        running.1.insert(number, clock::now());
        Runs(Arc::clone(self), number)
    }

    fn oldest(&self) -> Option<Instant> {
        lock(&self.0).1.first_key_value().map(|(_, began)| *began)
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        lock(&self.0.0).1.remove(&self.1);
    }
}

/// How a store is, for people and for programs.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) state: StoreState,
    /// Seconds since it has waited; 0 unless it is waiting or down.
    pub(crate) waiting_s: u64,
    /// Seconds since the oldest request began that the store has not answered; 0 without one.
    pub(crate) oldest_s: u64,
    /// The state in words; `None` if the store is up.
    pub(crate) sentence: Option<String>,
}

impl StoreHealth {
    /// Of the store of a volume, for which requests wait as long as that is configured when it is
    /// lost.
    pub(crate) fn new(
        config: &VolumeConfig,
        store: &Arc<dyn Store>,
        late: &Arc<LateRequests>,
        waits_for_flash: &Arc<AtomicBool>,
    ) -> Self {
        let state = StoreWatch::new(clock::now(), config.reconnect);
        Self {
            volume: config.name.clone(),
            store: Arc::clone(store),
            waits_for_flash: Arc::clone(waits_for_flash),
            late: Arc::clone(late),
            well: Default::default(),
            failed: Default::default(),
            error: Mutex::default(),
            astray: Mutex::default(),
            asks_name: Arc::default(),
            running: Arc::default(),
            watch: Mutex::new(Watch { state, logged: None, told: 0 }),
        }
    }

    /// Notes how a request ended.
    #[inline]
    pub(crate) fn note<T>(&self, kind: StoreRequest, result: &Result<T, Failed>) {
        match result {
            // A store that cannot zero quickly says so in this way.
            Err(failed) if failed.failure != Failure::NotSupported => {
                self.note_failure(kind, failed)
            }
            _ => {
                self.well[kind as usize].fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    #[cold]
    fn note_failure(&self, kind: StoreRequest, failed: &Failed) {
        *lock(&self.error) = Some(Arc::clone(&failed.message));
        self.failed[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A request that begins now.
    pub(crate) fn begin(&self) -> Runs {
        self.running.begin()
    }

    /// Makes a request, which counts as one that waits from the moment when it is not answered at
    /// once. Returns its answer, and whether it waited.
    pub(crate) async fn waited<T>(&self, request: impl Future<Output = T>) -> (T, bool) {
        let (mut request, mut runs) = (pin!(request), None);
        let answer = poll_fn(|context| {
            let polled = request.as_mut().poll(context);
            if matches!(polled, Poll::Pending) && runs.is_none() {
                runs = Some(self.begin());
            }
            polled
        });
        (answer.await, runs.is_some())
    }

    /// Notes what is wrong with the store's name, and logs a change of that.
    fn note_astray(&self, astray: Option<String>) {
        let volume = &self.volume;
        let mut known = sleep_lock(&self.astray);
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
        self.failed.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Looks at the store: its state now. Logs it if that is new.
    pub(crate) fn look(&self) -> Condition {
        let mut watch = sleep_lock(&self.watch);
        // Under the lock, so that what is seen is in the order of the looks.
        let mut ended = [Ended::default(); KINDS];
        for (kind, one) in ended.iter_mut().enumerate() {
            one.well = self.well[kind].load(Ordering::Relaxed);
            one.failed = self.failed[kind].load(Ordering::Relaxed);
        }
        let is_excused = self.waits_for_flash.load(Ordering::Relaxed);
        let absence = self.store.absence();
        let oldest = self.running.oldest().filter(|_| !is_excused);
        let stopped = || Some(format!("it makes no changes: {}", self.store.stopped()?));
        let (late, wrong) = (self.late.open(), lock(&self.astray).clone().or_else(stopped));
        let seen = Seen { absence, oldest, ended, late, wrong, is_excused };
        let now = clock::now();
        let (was_since, changed) = (watch.state.since(), watch.state.look(now, seen));
        let error = lock(&self.error).clone();
        let sentence = watch.state.sentence(now, error.as_deref());
        let (volume, state, failures) = (&self.volume, watch.state.state(), self.failures());
        let age = |at: Instant| now.saturating_duration_since(at).as_secs();
        match (changed, &sentence) {
            (Some(_), Some(text)) if state.is_trouble() => {
                tracing::error!(volume, state = state.name(), failures, "{text}");
            }
            (Some(_), Some(text)) => {
                tracing::warn!(volume, state = state.name(), failures, "{text}");
            }
            (Some(before), None) => {
                let (before, lasted) = (before.name(), age(was_since));
                let state = state.name();
                tracing::warn!(
                    volume,
                    state,
                    failures,
                    "its store is up again; it was {before} for {lasted} s"
                );
            }
            (None, None) if failures > watch.told => {
                if watch.logged.is_some_and(|at| now.saturating_duration_since(at) < PAUSE) {
                    return self.condition(&watch, now, sentence);
                }
                let text = watch.state.failures(error.as_deref());
                tracing::warn!(volume, state = state.name(), failures, "{text}");
                watch.logged = Some(now);
            }
            _ => {}
        }
        watch.told = failures;
        self.condition(&watch, now, sentence)
    }

    fn condition(&self, watch: &Watch, now: Instant, sentence: Option<String>) -> Condition {
        let age = |at: Instant| now.saturating_duration_since(at).as_secs();
        let state = watch.state.state();
        let waits = matches!(state, StoreState::Waiting | StoreState::Down);
        let waiting_s = if waits { age(watch.state.since()) } else { 0 };
        let oldest_s = self.running.oldest().map_or(0, age);
        Condition { state, waiting_s, oldest_s, sentence }
    }

    /// Looks whether the store's name still leads to what is open, and returns what is wrong with
    /// it. Waits at most [`NAME`] for the store, and asks nothing while it owes an earlier answer.
    pub(crate) async fn look_at_name(&self) -> Option<String> {
        let store = Arc::clone(&self.store);
        let astray = async move { store.astray().await };
        let astray = one_at_a_time(&self.asks_name, NAME, astray).await?;
        self.note_astray(astray.clone());
        astray
    }

    /// Makes a store request, notes how it ended, and survives a store that panics.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        kind: StoreRequest,
        answer: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> Result<T, Failed> {
        let result = self.waited(ask_store(answer)).await.0;
        self.note(kind, &result);
        result
    }
}

/// Asks once no earlier question is open, and returns the answer; `None` if both together take
/// longer than `limit`. A question that was asked stays open until it is answered.
async fn one_at_a_time<T: Send + 'static>(
    turn: &Arc<tokio::sync::Mutex<()>>,
    limit: Duration,
    question: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let asked = async {
        let turn = Arc::clone(turn).lock_owned().await;
        let answer = tokio::spawn(async move {
            let answer = question.await;
            drop(turn);
            answer
        });
        answer.await.ok()
    };
    timeout(limit, asked).await.ok()?
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
    async fn a_store_that_owes_an_answer_is_asked_nothing_more() {
        let (turn, asked) = (Arc::default(), Arc::new(AtomicU64::new(0)));
        let ask = |answers_after: Duration| {
            let asked = Arc::clone(&asked);
            one_at_a_time(&turn, NAME, async move {
                asked.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(answers_after).await;
            })
        };
        assert_eq!(ask(Duration::from_secs(60)).await, None);
        for _ in 0..5 {
            assert_eq!(ask(Duration::ZERO).await, None);
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1, "the store hangs");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(ask(Duration::ZERO).await, Some(()));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_run_until_they_end_unless_they_end_at_once() {
        let store: Arc<dyn Store> = Arc::new(undercroft_store::MemoryStore::new(1 << 20).unwrap());
        let health =
            StoreHealth::new(&VolumeConfig::default(), &store, &Arc::default(), &Arc::default());
        health.waited(async { assert_eq!(health.running.oldest(), None) }).await;
        let slow = health.waited(tokio::time::sleep(Duration::from_secs(5)));
        let began = clock::now();
        let later = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let _second = health.begin();
            assert_eq!(health.running.oldest(), Some(began));
        };
        tokio::join!(slow, later);
        assert_eq!(health.running.oldest(), None);
        // A request that is given up has ended, too.
        let never = health.waited(std::future::pending::<()>());
        assert!(tokio::time::timeout(Duration::from_secs(1), never).await.is_err());
        assert_eq!(health.running.oldest(), None);
        let unsupported: Result<(), _> = Err(Failed::new(Failure::NotSupported, "not fast"));
        health.note(StoreRequest::Zero, &unsupported);
        assert_eq!(health.failures(), 0);
        let failed: Result<(), _> = Err(Failed::new(Failure::Io, "no disk"));
        health.note(StoreRequest::Flush, &failed);
        assert_eq!(health.failures(), 1);
    }
}

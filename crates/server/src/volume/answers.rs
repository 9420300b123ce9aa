//! The answers to a volume's requests. A request that waits for a stalled store is answered with
//! EIO after the volume's time limit; nothing else changes.
//!
//! Answering early is safe, but releasing a block is not: a write that the store still has may take
//! effect at any time, and must never overtake a later one. So the request continues without its
//! client. Its blocks stay busy, later operations wait in their queues, and memory lent to the
//! store stays lent. When the store answers, the queues continue in order. Requests that wait in
//! the queues have time limits of their own, and are answered too.
//!
//! The number of late requests is limited: above [`OVERDUE_MAX`] requests or [`OVERDUE_BYTES_MAX`],
//! new requests that need the store are refused at once.
//!
//! Closing a volume has a time limit of its own (`close.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use undercroft_nbd::Failure;

use crate::answer::{Failed, Outcome};
use crate::clock;
use crate::counters::{Latencies, Source};
use crate::job::{Completion, Completions, RequestContext};
use crate::late_requests::LateRequests;

/// The requests that are not answered, and how they are answered.
pub(crate) struct Answers {
    /// How long a request may wait for the store.
    limit: Option<Duration>,
    /// Requests that were answered before they ended.
    pub(crate) late: Arc<LateRequests>,
    /// From arrival to answer.
    pub(crate) latencies: Latencies,
    /// Number of unanswered requests.
    pub(crate) pending: AtomicU64,
    is_closing: AtomicBool,
    /// Notified when a request was answered, once no more are taken.
    progress: Arc<Notify>,
}

impl Answers {
    pub(crate) fn new(limit: Option<Duration>, progress: Arc<Notify>) -> Self {
        let (late, latencies, pending, is_closing) = Default::default();
        Self { limit, late, latencies, pending, is_closing, progress }
    }

    /// From now on no requests are taken.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    /// Answers requests that have ended.
    pub(crate) fn answer(&self, completions: Completions) {
        if completions.is_empty() {
            return;
        }
        let count = completions.answer(&self.latencies);
        self.pending.fetch_sub(count, Ordering::SeqCst);
        if self.is_closing.load(Ordering::SeqCst) {
            self.progress.notify_waiters();
        }
    }

    /// Answers a single request.
    pub(crate) fn answer_one(&self, finished: Completion) {
        let mut completions = Completions::with_capacity(1);
        completions.push(finished);
        self.answer(completions);
    }

    /// Answers a request when its task is done, or when the store has taken too long. The request
    /// keeps `bytes` bytes of memory. If it has several requests to the store, which may have to
    /// wait here for their turns, the store has taken too long if the number of those `left` has
    /// not become smaller for as long as the limit.
    pub(crate) async fn answer_in_time(
        &self,
        asked: RequestContext,
        (source, bytes): (Source, u64),
        task: impl Future<Output = Outcome> + Send,
        left: impl Fn() -> usize + Send,
    ) {
        let started = asked.started;
        let over = |outcome| Completion { source, ..asked.complete(outcome) };
        let Some(limit) = self.limit else { return self.answer_one(over(task.await)) };
        let mut task = std::pin::pin!(task);
        let (mut time, mut before) = (limit.saturating_sub(clock::since(started)), left());
        loop {
            if let Ok(outcome) = tokio::time::timeout(time, &mut task).await {
                return self.answer_one(over(outcome));
            }
            let now = left();
            if now >= before {
                break;
            }
            (time, before) = (limit, now);
        }
        let _late = self.late.begin(bytes);
        self.answer_one(over(Err(too_late(limit))));
        let _ = task.await;
    }

    /// Waits for what must come before a request that arrived then can be sent.
    ///
    /// # Errors
    /// It has taken too long.
    pub(crate) async fn in_time<T>(
        &self,
        started: Instant,
        what: impl Future<Output = T>,
    ) -> Result<T, Failed> {
        let Some(limit) = self.limit else { return Ok(what.await) };
        let waited = tokio::time::timeout(limit.saturating_sub(clock::since(started)), what).await;
        waited.map_err(|_| {
            drop(self.late.begin(0));
            too_late(limit)
        })
    }
}

pub(super) fn too_late(limit: Duration) -> Failed {
    let text = format!(
        "the store has not answered for {} s (store-timeout-s); whether a change took effect is \
         not known",
        limit.as_secs_f64()
    );
    Failed::new(Failure::Io, &text)
}

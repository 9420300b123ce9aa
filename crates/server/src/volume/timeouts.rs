//! Requests that wait for a stalled store. After the volume's time limit the client gets EIO;
//! nothing else changes.
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

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use undercroft_nbd::{Command, Failure, Request};

use crate::answer::{Failed, Outcome};
use crate::clock;
use crate::job::{Completion, Job, RequestContext};
use crate::lock::lock;
use crate::volume::store_health::LOOK;
use crate::volume::{Volume, Work};

impl Volume {
    /// Answers a request when its task is done, or when the store has taken too long. The request
    /// keeps `bytes` bytes of memory.
    pub(crate) async fn answer_in_time(
        self: &Arc<Self>,
        asked: RequestContext,
        bytes: u64,
        task: impl Future<Output = Outcome> + Send,
        finished: impl FnOnce(RequestContext, Outcome) -> Completion,
    ) {
        self.answer_unless_stalled(asked, bytes, task, || 0, finished).await;
    }

    /// Like [`answer_in_time`](Self::answer_in_time), for a request with several requests to the
    /// store, which may have to wait here for their turns: the store has taken too long if the
    /// number of those `left` has not become smaller for as long as the limit.
    pub(crate) async fn answer_unless_stalled(
        self: &Arc<Self>,
        asked: RequestContext,
        bytes: u64,
        task: impl Future<Output = Outcome> + Send,
        left: impl Fn() -> usize + Send,
        finished: impl FnOnce(RequestContext, Outcome) -> Completion,
    ) {
        let Some(limit) = self.config.store_timeout else {
            return self.answer_one(finished(asked, task.await));
        };
        let mut task = std::pin::pin!(task);
        let passed = clock::now().saturating_duration_since(asked.started);
        let (mut time, mut before) = (limit.saturating_sub(passed), left());
        loop {
            if let Ok(outcome) = tokio::time::timeout(time, &mut task).await {
                return self.answer_one(finished(asked, outcome));
            }
            let now = left();
            if now >= before {
                break;
            }
            (time, before) = (limit, now);
        }
        let _late = self.late_requests.begin(bytes);
        self.answer_one(finished(asked, Err(too_late(limit))));
        let _ = task.await;
    }

    /// Answers the requests whose blocks have waited for longer than the limit.
    fn answer_late(self: &Arc<Self>, limit: Duration) {
        let now = clock::now();
        for index in 0..self.shards.len() {
            let mut work = Work::new(self);
            let (shard, fx) = work.nth_shard(index);
            // Those that need a frame wait for whatever is being written out.
            let writing = shard.dirty.at_store_since().unwrap_or(now);
            let is_late = |&(job, is_starved): &(&Arc<Job>, bool)| {
                let since = if is_starved { job.started.max(writing) } else { job.started };
                now.saturating_duration_since(since) >= limit
            };
            let mut jobs: Vec<_> =
                shard.blocks.jobs().filter(is_late).map(|(job, _)| job).collect();
            // The longest waiting first.
            jobs.sort_by_key(|job| (job.started, job.offset, job.length));
            for job in jobs {
                let late = || self.late_requests.begin(job.length);
                fx.finished.extend(job.give_up(too_late(limit), late));
            }
            work.finish();
        }
    }
}

impl Work<'_> {
    /// Refuses a request that needs the store, if too many requests are late already.
    #[inline]
    pub(super) fn check_late(&mut self, request: &Request) -> Result<(), Failed> {
        if self.volume.late_requests.is_full() { self.check_at_hand(request) } else { Ok(()) }
    }

    #[cold]
    fn check_at_hand(&mut self, request: &Request) -> Result<(), Failed> {
        let volume = self.volume;
        let Request { command, offset, length, .. } = request;
        let is_read = matches!(command, Command::Read { .. }) && *length > 0;
        let mut blocks = volume.geometry.blocks(*offset, (*length).max(1));
        let is_at_hand = |block| {
            let (shard, _) = self.shard(block);
            shard.blocks.is_quiet(block) && shard.content_of(block).is_some()
        };
        if is_read && !volume.shards.is_empty() && blocks.all(is_at_hand) {
            return Ok(());
        }
        let open = volume.late_requests.open();
        Err(Failed::new(
            Failure::Io,
            &format!("the store has {open} requests not answered in time, and is asked no more"),
        ))
    }
}

/// Waits for what must come before a request that arrived then can be sent.
///
/// # Errors
/// It has taken too long.
pub(crate) async fn in_time<T>(
    volume: &Volume,
    started: Instant,
    what: impl Future<Output = T>,
) -> Result<T, Failed> {
    let Some(limit) = volume.config.store_timeout else { return Ok(what.await) };
    let passed = clock::now().saturating_duration_since(started);
    let waited = tokio::time::timeout(limit.saturating_sub(passed), what).await;
    waited.map_err(|_| {
        drop(volume.late_requests.begin(0));
        too_late(limit)
    })
}

fn too_late(limit: Duration) -> Failed {
    let text = format!(
        "the store has not answered for {} s (store-timeout-s); whether a change took effect is \
         not known",
        limit.as_secs_f64()
    );
    Failed::new(Failure::Io, &text)
}

/// The background task that looks at the store, keeps the account of what the cache saves, and
/// answers late requests; ends with the volume. It checks often enough that no client waits much
/// longer than the limit.
pub(crate) async fn watch(volume: Weak<Volume>, limit: Option<Duration>) {
    let tick = limit.map_or(LOOK, |limit| (limit / 8).clamp(Duration::from_millis(10), LOOK));
    loop {
        tokio::time::sleep(tick).await;
        let Some(volume) = volume.upgrade() else { return };
        volume.store_health.look();
        if lock(&volume.account).is_due(clock::now()) {
            volume.savings(&volume.stats());
        }
        if let Some(limit) = limit {
            volume.answer_late(limit);
        }
    }
}

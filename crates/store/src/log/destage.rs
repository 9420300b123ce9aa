//! The task that moves what a write log has to its store. Batches between two flushes form an
//! epoch: those that knew of the same batches that they were durable. Of each epoch the store gets
//! the newest bytes of each range, in the order of its bytes, several ranges at a time; the next
//! epoch begins when all of them were answered. After some epochs the store is flushed, and the
//! head of the log says durably that they are there; only then is their place in the ring free.
//!
//! A store that fails is tried again for as long as it takes. No request is given up: it could
//! take effect after a later one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::time::{sleep, sleep_until, timeout};
use undercroft_random::hash;

use super::format::{Head, Point, Writer};
use super::overlay::{Overlay, Place, Run};
use super::ring::{Batch, Ring};
use super::{Mode, PATIENCE, Shared, State};
use crate::store::Zeroing;

/// How long a change stays in the log when nothing presses.
const DELAY: Duration = Duration::from_secs(1);

/// The part of the ring that is filled when changes are moved at once, and when they are moved with
/// more requests at a time, since readers of the store may wait then.
const SOON_PART: u64 = 4;
const HURRY_PART: u64 = 2;

/// Requests at a time.
const CALM: usize = 4;
const HURRY: usize = 32;

/// Most bytes of the log, and most changes, that are moved before their place is freed.
const PASS_BYTES: u64 = 64 << 20;
const PASS_ENTRIES: usize = 1 << 16;

/// Most bytes of one write to the store, and of zeroes.
const WRITE_BYTES: u64 = 1 << 20;
const ZERO_BYTES: u64 = 64 << 20;

/// Pauses after failures; they double. How often it is looked in them whether the store is closed.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_LONGEST: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(500);

/// Moves changes until the store is closed.
pub(super) async fn move_on(shared: Arc<Shared>) {
    let mut pause = Pause(PAUSE_FIRST);
    while let Some(batches) = next(&shared).await {
        let made = match &batches[..] {
            [] => shared.give_up_log().await,
            batches => shared.make(batches).await,
        };
        match made {
            Ok(()) => pause = Pause(PAUSE_FIRST),
            Err(error) => pause.after(&shared, &error).await,
        }
    }
}

/// Waits until changes are to be moved, and returns the oldest; none: the log has failed, and is
/// empty. `None`: the store is closed.
async fn next(shared: &Shared) -> Option<Vec<Batch>> {
    loop {
        let since = {
            let state = shared.state();
            if state.is_over {
                return None;
            }
            let is_pressed =
                state.mode != Mode::Taken || state.used() >= shared.ring.bytes / SOON_PART;
            let is_full = state.entries >= super::ring::entries_max(shared.ring.bytes) / 2;
            let since = state.since();
            let is_old = since.is_some_and(|since| since.elapsed() >= DELAY);
            if since.is_some() && (is_pressed || is_old || is_full) {
                return Some(state.oldest());
            }
            let has_failed = matches!(state.mode, Mode::Failed(_));
            if has_failed && since.is_none() && !state.is_appending && !state.is_given_up {
                return Some(Vec::new());
            }
            since
        };
        let woken = shared.work.notified();
        match since {
            None => woken.await,
            Some(since) => {
                tokio::select! {
                    () = woken => {}
                    () = sleep_until(since + DELAY) => {}
                }
            }
        }
    }
}

impl State {
    /// The batches that are moved next.
    fn oldest(&self) -> Vec<Batch> {
        let (end, mut entries) = (self.tail.position + PASS_BYTES, 0);
        let is_one_more = |batch: &&Batch| {
            let is_first = entries == 0;
            entries += batch.entries.len();
            is_first || (entries <= PASS_ENTRIES && batch.end.position <= end)
        };
        self.batches.iter().take_while(is_one_more).cloned().collect()
    }
}

impl Shared {
    /// Makes the changes of these batches, the oldest of the log, and frees their place.
    async fn make(&self, batches: &[Batch]) -> io::Result<()> {
        let losses = self.inner.losses();
        for epoch in batches.chunk_by(|batch, next| batch.durable == next.durable) {
            let mut pause = Pause(PAUSE_FIRST);
            while let Err(error) = self.make_epoch(epoch).await {
                if self.state().is_over {
                    return Err(error);
                }
                pause.after(self, &error).await;
            }
        }
        self.inner.flush().await?;
        if self.inner.losses() != losses {
            return Err(io::Error::other("it may have lost what it had answered"));
        }
        self.free(batches).await;
        Ok(())
    }

    /// Makes the newest changes of each range.
    async fn make_epoch(&self, epoch: &[Batch]) -> io::Result<()> {
        let is_hurry = {
            let state = self.state();
            state.used() >= self.ring.bytes / HURRY_PART || state.mode != Mode::Taken
        };
        for batch in epoch {
            // A device may have lost or changed what it took.
            let is_whole = timeout(PATIENCE, self.ring.is_whole(self.writer, batch)).await;
            match is_whole.unwrap_or_else(|late| Err(late.into())) {
                Ok(true) => {}
                Ok(false) => return Err(self.damaged().await),
                Err(error) => {
                    self.fail(&error);
                    return Err(error);
                }
            }
        }
        let mut newest = Overlay::default();
        epoch.iter().flat_map(Batch::runs).for_each(|run| newest.insert(run));
        let width = if is_hurry { HURRY } else { CALM };
        let jobs = jobs(newest.runs());
        let made = stream::iter(jobs).map(|job| self.make_job(job)).buffer_unordered(width);
        // All have ended, whatever one says.
        made.collect::<Vec<_>>().await.into_iter().collect()
    }

    /// The log's device has changed what it took. Says on it how much was durable, or the next one
    /// to open the log would believe that it ends at the damage.
    async fn damaged(&self) -> io::Error {
        let (tail, durable) = {
            let state = self.state();
            (state.tail, state.durable)
        };
        let since = durable.max(self.writer.since);
        let _ = self.write_head(tail, Writer { since, ..self.writer }).await;
        let error = io::Error::other(
            "it is damaged, and is refused when it is opened again: copy the volume before",
        );
        self.fail(&error);
        error
    }

    async fn make_job(&self, job: Vec<Run>) -> io::Result<()> {
        let Some(first) = job.first() else { return Ok(()) };
        if self.state().is_over {
            return Err(io::Error::other("the store is closed"));
        }
        let offset = first.offset;
        if let Place::Zero { allocated } = first.place {
            let how = Zeroing { keep_allocated: allocated, only_if_fast: false };
            return self.inner.zero(offset, first.length, how, false).await;
        }
        let mut data = Vec::new();
        for run in job {
            if let Place::Log(position) = run.place {
                let read = self.read_log(position, run.length).await;
                data.push(read.inspect_err(|error| self.fail(error))?.into());
            }
        }
        self.inner.write(offset, data, false).await
    }

    /// The changes of these batches are durable in the store: notes that, and forgets them.
    async fn free(&self, batches: &[Batch]) {
        let Some(last) = batches.last() else { return };
        if let Err(error) = self.write_head(last.end, self.writer).await {
            // Nothing is appended any more, so the next one to open the log does the same again.
            self.fail(&error);
        }
        // Each range once, whatever the batches are.
        let mut ranges = Overlay::default();
        batches.iter().flat_map(Batch::runs).for_each(|run| ranges.insert(run));
        {
            let mut state = self.state();
            for run in ranges.runs() {
                state.overlay.remove(run.offset, run.length, last.start.sequence);
            }
            state.batches.drain(..batches.len());
            state.entries -= batches.iter().map(|batch| batch.entries.len()).sum::<usize>();
            state.tail = last.end;
        }
        self.queued.notify_one();
        self.moved.notify_waiters();
    }

    /// The failed log is empty: it is never read again, and the store is whole without it.
    async fn give_up_log(&self) -> io::Result<()> {
        let late = self.state().late.take();
        if let Some(late) = late {
            // If it ends after that, it follows no head.
            let _ = timeout(PATIENCE, late).await;
        }
        let end = self.state().end;
        // No batch that may be there follows this point.
        let nowhere = Point { before: hash(end.before ^ self.writer.life), ..end };
        let is_noted = self.write_head(nowhere, self.writer).await.is_ok();
        self.take_mark_off().await?;
        self.state().is_given_up = true;
        self.moved.notify_waiters();
        let name = &self.options.name;
        self.warn(&if is_noted {
            format!("all that the failed write log {name} had is in the store")
        } else {
            format!(
                "all that the failed write log {name} had is in the store; remove {name}, which \
                 must not be used again"
            )
        });
        Ok(())
    }

    /// Writes a head that says where the oldest batch begins, and whose batches count.
    pub(super) async fn write_head(&self, tail: Point, writer: Writer) -> io::Result<()> {
        // After a failure in the same place again: the other one has what is durable.
        let number = self.state().head + 1;
        let (ring_bytes, store_bytes) = (self.ring.bytes, self.medium.size());
        let head = Head { number, ring_bytes, store_bytes, tail, writer };
        timeout(PATIENCE, Ring::write_head(&*self.ring.medium, &head)).await??;
        self.state().head = number;
        Ok(())
    }
}

/// Requests to the store: of zeroes, or of data that adjoin.
fn jobs(runs: impl Iterator<Item = Run>) -> Vec<Vec<Run>> {
    let is_data = |run: &Run| matches!(run.place, Place::Log(_));
    let mut jobs: Vec<Vec<Run>> = Vec::new();
    for run in runs {
        if !is_data(&run) {
            let end = run.offset + run.length;
            let parts = (run.offset..end).step_by(ZERO_BYTES as usize);
            jobs.extend(parts.map(|from| vec![run.within(from, from + ZERO_BYTES)]));
            continue;
        }
        let joins = jobs.last().is_some_and(|job| {
            let (first, last) = (&job[0], &job[job.len() - 1]);
            let adjoins = last.offset + last.length == run.offset;
            let fits = run.offset + run.length - first.offset <= WRITE_BYTES;
            is_data(last) && adjoins && fits
        });
        match jobs.last_mut().filter(|_| joins) {
            Some(job) => job.push(run),
            None => jobs.push(vec![run]),
        }
    }
    jobs
}

struct Pause(Duration);

impl Pause {
    async fn after(&mut self, shared: &Shared, error: &io::Error) {
        if self.0 == PAUSE_FIRST {
            let name = &shared.options.name;
            shared.warn(&format!("the store does not have what its write log {name} has: {error}"));
        }
        let mut left = self.0;
        while !left.is_zero() && !shared.state().is_over {
            let now = left.min(LOOK);
            sleep(now).await;
            left -= now;
        }
        self.0 = (2 * self.0).min(PAUSE_LONGEST);
    }
}

//! Store requests: neighbouring blocks of one request become one store request, whose end is
//! reported to the shards. Writes that start together are submitted together if the store supports
//! it. Any other request runs in a task, unless the store answers at once.

use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use undercroft_nbd::Failure;
use undercroft_store::{ManyWrite, Store};

use crate::answer::Failed;
use crate::geometry::Geometry;
use crate::job::Job;
use crate::shard::below::{Piggybacked, piggyback};
use crate::shard::content::{Content, Home, Memory};
use crate::shard::{Action, Start};
use crate::volume::pace::AtStore;
use crate::volume::reloader::Demand;
use crate::volume::store_state::StoreRequest;
use crate::volume::store_use::{InUse, StoreUse};
use crate::volume::{Volume, Work};

/// Most bytes of dirty blocks in one store request.
pub(crate) const WRITE_OUT_BYTES_MAX: u64 = 1 << 20;

/// One store request.
struct Run {
    first: u64,
    /// Number of consecutive blocks.
    count: u64,
    /// First byte.
    offset: u64,
    end: u64,
    work: Doing,
    /// The blocks that the underlying requests evicted.
    piggybacked: Piggybacked,
}

enum Doing {
    Fetch(Arc<Job>, Vec<Memory>),
    /// The job's own data.
    Write(Arc<Job>),
    /// These bytes, for a job.
    WriteBytes(Arc<Job>, Bytes),
    /// Dirty blocks; `joins`: others may join them.
    WriteOut {
        data: Vec<Bytes>,
        joins: bool,
    },
}

impl Doing {
    /// Whether it is a write that need not be durable when answered.
    fn may_join_many(&self) -> bool {
        match self {
            Self::Fetch(..) => false,
            Self::Write(job) | Self::WriteBytes(job, _) => !job.durable,
            Self::WriteOut { .. } => true,
        }
    }
}

impl Run {
    fn new(start: Start, geometry: &Geometry) -> Option<Self> {
        let block = start.block;
        let whole = geometry.start(block);
        let whole_end = whole + geometry.len(block) as u64;
        let (offset, end, work) = match start.action {
            Action::Fetch(job, memory) => (whole, whole_end, Doing::Fetch(job, vec![memory?])),
            Action::Write(job, None, at) => {
                let (_, to) = job.span(block, geometry);
                (at, whole + to as u64, Doing::Write(job))
            }
            Action::Write(job, Some(bytes), at) => {
                (at, at + bytes.len() as u64, Doing::WriteBytes(job, bytes))
            }
            Action::WriteOut { bytes, joins } => {
                (whole, whole_end, Doing::WriteOut { data: vec![bytes], joins })
            }
        };
        Some(Self { first: block, count: 1, offset, end, work, piggybacked: start.piggybacked })
    }

    /// The write in the form that the store takes.
    fn into_write(self) -> ManyWrite {
        let data = match self.work {
            Doing::Write(job) => job.data(self.offset, self.end),
            Doing::WriteBytes(_, bytes) => vec![bytes],
            Doing::WriteOut { data, .. } => data,
            Doing::Fetch(..) => Vec::new(),
        };
        ManyWrite { offset: self.offset, data }
    }

    /// Joins the next run if it follows without a gap and is of the same kind; otherwise returns
    /// it.
    fn join(&mut self, next: Self) -> Option<Self> {
        if self.first + self.count != next.first || self.end != next.offset {
            return Some(next);
        }
        let bounded = next.end - self.offset <= WRITE_OUT_BYTES_MAX;
        match (&mut self.work, next.work) {
            (Doing::Fetch(job, memory), Doing::Fetch(other, more)) if Arc::ptr_eq(job, &other) => {
                memory.extend(more);
            }
            (Doing::Write(job), Doing::Write(other)) if Arc::ptr_eq(job, &other) => {}
            (
                Doing::WriteOut { data, joins: true },
                Doing::WriteOut { data: more, joins: true },
            ) if bounded => data.extend(more),
            (_, work) => return Some(Self { work, ..next }),
        }
        self.count += next.count;
        self.end = next.end;
        self.piggybacked.extend(next.piggybacked);
        None
    }
}

/// Orders store requests by kind and place, and joins neighbours.
fn runs(mut starts: Vec<Start>, geometry: &Geometry) -> Vec<Run> {
    // Demand first. The sort is stable, so a request's blocks stay in order.
    starts.sort_by_key(|start| match &start.action {
        Action::Fetch(..) => (0, 0),
        Action::Write(..) => (1, 0),
        Action::WriteOut { .. } => (2, start.block),
    });
    let mut runs: Vec<Run> = Vec::new();
    for run in starts.into_iter().filter_map(|start| Run::new(start, geometry)) {
        let left = match runs.last_mut() {
            Some(last) => last.join(run),
            None => Some(run),
        };
        runs.extend(left);
    }
    runs
}

impl Volume {
    /// Starts store requests. With `at_once`, requests that the store answers without waiting (from
    /// memory, or the system's page cache) end before this returns, because a task would cost more
    /// than their work. Follow-up requests never run like this, so that calls do not nest.
    pub(crate) fn launch(self: &Arc<Self>, starts: Vec<Start>, at_once: bool) {
        let _runtime = self.runtime.enter();
        let (mut writes, mut flights) = (Vec::new(), Vec::new());
        for mut run in runs(starts, &self.geometry) {
            let piggybacked = std::mem::take(&mut run.piggybacked);
            let mut flight = Flight::new(self, &run);
            if self.takes_many && run.work.may_join_many() {
                writes.push(run.into_write());
                flights.push(flight);
                continue;
            }
            let mut task = Box::pin(async move {
                let store = Arc::clone(&flight.volume.store);
                piggyback(flight.volume.config.eviction_sink.as_ref(), &piggybacked);
                let asked = carry_out(&*store, run, &flight.volume);
                let (result, waited) = flight.volume.store_health.waited(asked).await;
                let result = flight.noted(result, waited);
                flight.confirm_and_end(result).await;
            });
            if !(at_once && is_over(task.as_mut())) {
                self.runtime.spawn(task);
            }
        }
        if !writes.is_empty() {
            let runs = self.store_health.begin();
            let written = |results| {
                drop(runs);
                Flight::end_all(flights, results);
            };
            self.store.write_many(writes, Box::new(written));
        }
    }
}

/// Polls a task once; true if it ended. A task that panicked has ended, too: its blocks were told
/// by their [`Flight`].
fn is_over(task: Pin<&mut impl Future<Output = ()>>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    let poll = AssertUnwindSafe(|| task.poll(&mut context));
    !matches!(std::panic::catch_unwind(poll), Ok(Poll::Pending))
}

/// Makes the store request. Returns the memory that a fetch filled, one piece per block.
async fn carry_out(store: &dyn Store, run: Run, volume: &Volume) -> io::Result<Vec<Memory>> {
    let geometry = &volume.geometry;
    let durable = match &run.work {
        Doing::Write(job) | Doing::WriteBytes(job, _) => volume.is_durable(job.durable),
        Doing::Fetch(..) | Doing::WriteOut { .. } => false,
    };
    match run.work {
        Doing::Fetch(_, memory) => {
            let sized =
                (run.first..).zip(memory).map(|(block, memory)| (memory, geometry.len(block)));
            let (buffers, home) = Home::lend(sized);
            let (buffers, result) = store.read(run.offset, buffers).await;
            drop(buffers);
            result?;
            home.collect().ok_or_else(|| io::Error::other("the store kept the memory of a read"))
        }
        Doing::Write(_) | Doing::WriteBytes(..) | Doing::WriteOut { .. } => {
            let ManyWrite { offset, data } = run.into_write();
            store.write(offset, data, durable).await.map(|()| Vec::new())
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fetch,
    Write,
    WriteOut,
    /// It succeeded, but the store may have lost it since.
    LostWriteOut,
}

impl Kind {
    fn request(self) -> StoreRequest {
        match self {
            Self::Fetch => StoreRequest::Read,
            Self::Write | Self::WriteOut | Self::LostWriteOut => StoreRequest::Write,
        }
    }
}

/// A running store request. Its blocks are told of its end even if its task is lost.
struct Flight {
    volume: Arc<Volume>,
    first: u64,
    count: u64,
    kind: Kind,
    /// Set if a client waits for it.
    demand: Option<Demand>,
    /// Set if the use of the store is measured.
    in_use: Option<InUse>,
    /// Until the store has answered, if its write-outs are paced.
    at_store: Option<AtStore>,
    /// Number of losses of the store when the request started.
    begun: u64,
    /// The volume's epoch of losses when the request started (`Losses::epoch`).
    epoch: u64,
    ended: bool,
}

impl Flight {
    fn new(volume: &Arc<Volume>, run: &Run) -> Self {
        let kind = match &run.work {
            Doing::Fetch(..) => Kind::Fetch,
            Doing::Write(_) | Doing::WriteBytes(..) => Kind::Write,
            Doing::WriteOut { .. } => Kind::WriteOut,
        };
        let demand = (kind != Kind::WriteOut).then(|| volume.demand());
        let in_use = volume.store_use.get().map(StoreUse::begin);
        let (first, count) = (run.first, run.count);
        let at_store = volume.pace.as_ref().and_then(|pace| match kind {
            Kind::WriteOut | Kind::LostWriteOut => Some(pace.begin_write_out(count)),
            Kind::Fetch | Kind::Write => pace.begin_demand(kind == Kind::Fetch),
        });
        let begun = volume.losses.as_ref().map_or(0, |losses| losses.now());
        let epoch = volume.epoch();
        let volume = Arc::clone(volume);
        Self { volume, demand, in_use, at_store, first, count, kind, begun, epoch, ended: false }
    }

    /// Notes how the request ended; `waited`: not at once.
    fn noted<T>(&mut self, result: io::Result<T>, waited: bool) -> Result<T, Failed> {
        if let Some(at_store) = self.at_store.take() {
            at_store.answered(waited);
        }
        let result = result.map_err(Failed::from);
        self.volume.store_health.note(self.kind.request(), &result);
        result
    }

    /// Ends the request. A successful write-out to a store that can lose data ends only after a
    /// flush.
    async fn confirm_and_end(&mut self, mut result: Result<Vec<Memory>, Failed>) {
        let volume = Arc::clone(&self.volume);
        if let (Kind::WriteOut, true, Some(losses)) = (self.kind, result.is_ok(), &volume.losses) {
            // Others need not wait for the flush.
            volume.write_out_next();
            let mut flushed = volume.flush_together().await;
            // A flush may fail in order to report a loss, but only once for each loss.
            if flushed.is_err() {
                flushed = volume.flush_together().await;
            }
            match flushed {
                Err(failed) => result = Err(failed),
                Ok(()) if losses.now() != self.begun => self.kind = Kind::LostWriteOut,
                Ok(()) => {}
            }
        }
        self.end(result);
    }

    fn end(&mut self, result: Result<Vec<Memory>, Failed>) {
        let volume = Arc::clone(&self.volume);
        let mut work = Work::waking_flusher(&volume);
        self.end_within(&mut work, result);
        work.finish();
        volume.write_out_next();
        volume.progress.notify_waiters();
    }

    /// Ends the writes of one volume that were submitted together.
    fn end_all(mut flights: Vec<Flight>, results: Vec<io::Result<()>>) {
        let Some(volume) = flights.first().map(|flight| Arc::clone(&flight.volume)) else { return };
        let mut work = Work::waking_flusher(&volume);
        for (flight, result) in flights.iter_mut().zip(results) {
            let result = flight.noted(result.map(|()| Vec::new()), true);
            flight.end_within(&mut work, result);
        }
        work.finish();
        volume.write_out_next();
        volume.progress.notify_waiters();
    }

    fn end_within(&mut self, work: &mut Work<'_>, result: Result<Vec<Memory>, Failed>) {
        self.ended = true;
        (self.demand, self.in_use) = (None, None);
        let (failed, mut memory) = match result {
            Ok(memory) => (None, memory.into_iter()),
            Err(failed) => (Some(failed), Vec::new().into_iter()),
        };
        let outcome = || failed.clone().map_or(Ok(()), Err);
        let losses = self.volume.losses.clone();
        let mut is_noted = false;
        for block in self.first..self.first + self.count {
            let content = memory.next().map_or(Content::Absent, Memory::into_content);
            let (shard, fx) = work.shard(block);
            // Checked under the lock: a loss that comes later finds what is stored here.
            let spanned = failed.is_none() && self.volume.epoch() != self.epoch;
            match self.kind {
                Kind::Fetch if spanned => {
                    drop(content);
                    shard.fetch_again(block, fx);
                }
                Kind::Fetch => shard.fetched(block, outcome().map(|()| content), fx),
                Kind::Write => {
                    if let (true, false, Some(losses)) = (spanned, is_noted, &losses) {
                        losses.note_change(self.begun);
                        is_noted = true;
                    }
                    shard.write_ended(block, outcome(), spanned, fx);
                }
                Kind::WriteOut => shard.written_out(block, self.count == 1, outcome(), fx),
                Kind::LostWriteOut => shard.write_out_lost(block, fx),
            }
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // Deferred: if the runtime is shutting down, nothing can be started from here.
        let Self { first, count, kind, begun, epoch, .. } = *self;
        let (volume, demand) = (Arc::clone(&self.volume), self.demand.take());
        let (in_use, at_store) = (self.in_use.take(), None);
        let mut lost = Self {
            volume,
            first,
            count,
            kind,
            demand,
            in_use,
            at_store,
            begun,
            epoch,
            ended: true,
        };
        let failed = Failed::new(Failure::Io, "a store request was lost");
        self.volume.runtime.spawn(async move {
            let result = Err(failed);
            lost.volume.store_health.note(kind.request(), &result);
            lost.end(result);
        });
    }
}

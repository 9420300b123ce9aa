//! How the store is asked: the end of each request is reported to the shards. Writes that start
//! together are submitted together if the store supports it. Any other request runs in a task,
//! unless the store answers at once.
//!
//! Not here: which requests there are, and what their ends do (`shard/store_requests.rs`).

use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use undercroft_nbd::Failure;
use undercroft_store::{ManyWrite, Store};

use crate::answer::Failed;
use crate::shard::below::piggyback;
use crate::shard::content::{Content, Home, Memory};
use crate::shard::store_requests::{Action, Run};
use crate::volume::pace::AtStore;
use crate::volume::reloader::Demand;
use crate::volume::store_state::StoreRequest;
use crate::volume::store_use::{InUse, StoreUse};
use crate::volume::{Volume, Work};

impl Volume {
    /// Starts store requests. With `at_once`, requests that the store answers without waiting (from
    /// memory, or the system's page cache) end before this returns, because a task would cost more
    /// than their work. Follow-up requests never run like this, so that calls do not nest.
    pub(crate) fn launch(self: &Arc<Self>, runs: Vec<Run>, at_once: bool) {
        let _runtime = self.runtime.enter();
        let (mut writes, mut flights) = (Vec::new(), Vec::new());
        for mut run in Run::joined(runs) {
            let piggybacked = std::mem::take(&mut run.piggybacked);
            let mut flight = Flight::new(self, &run);
            // Several writes at a time are not durable when they are answered.
            let may_join = match &run.action {
                Action::Fetch(..) => false,
                Action::Write(job, _) => !job.durable,
                Action::WriteOut { .. } => true,
            };
            if self.takes_many && may_join {
                writes.push(ManyWrite { offset: run.offset, data: run.into_data() });
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
    let durable = match &run.action {
        Action::Write(job, _) => volume.losses.must_be_durable(job.durable),
        Action::Fetch(..) | Action::WriteOut { .. } => false,
    };
    match run.action {
        Action::Fetch(_, memory) => {
            let sized =
                (run.first..).zip(memory).map(|(block, memory)| (memory, geometry.len(block)));
            let (buffers, home) = Home::lend(sized);
            let (buffers, result) = store.read(run.offset, buffers).await;
            drop(buffers);
            result?;
            home.collect().ok_or_else(|| io::Error::other("the store kept the memory of a read"))
        }
        Action::Write(..) | Action::WriteOut { .. } => {
            store.write(run.offset, run.into_data(), durable).await.map(|()| Vec::new())
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
        let kind = match &run.action {
            Action::Fetch(..) => Kind::Fetch,
            Action::Write(..) => Kind::Write,
            Action::WriteOut { .. } => Kind::WriteOut,
        };
        let demand = (kind != Kind::WriteOut).then(|| volume.demand());
        let in_use = volume.store_use.get().map(StoreUse::begin);
        let (first, count) = (run.first, run.count);
        let at_store = volume.pace.as_ref().and_then(|pace| match kind {
            Kind::WriteOut | Kind::LostWriteOut => Some(pace.begin_write_out(count)),
            Kind::Fetch | Kind::Write => pace.begin_demand(kind == Kind::Fetch),
        });
        let begun = volume.losses.now();
        let epoch = volume.losses.epoch();
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
        if self.kind == Kind::WriteOut && result.is_ok() && volume.losses.are_possible() {
            // Others need not wait for the flush.
            volume.write_out_next();
            let mut flushed = volume.flush_together().await;
            // A flush may fail in order to report a loss, but only once for each loss.
            if flushed.is_err() {
                flushed = volume.flush_together().await;
            }
            match flushed {
                Err(failed) => result = Err(failed),
                Ok(()) if volume.losses.now() != self.begun => self.kind = Kind::LostWriteOut,
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
        let losses = Arc::clone(&self.volume.losses);
        let mut is_noted = false;
        for block in self.first..self.first + self.count {
            let content = memory.next().map_or(Content::Absent, Memory::into_content);
            let (shard, fx) = work.shard(block);
            // Checked under the lock: a loss that comes later finds what is stored here.
            let spanned = failed.is_none() && losses.epoch() != self.epoch;
            match self.kind {
                Kind::Fetch if spanned => {
                    drop(content);
                    shard.fetch_again(block, fx);
                }
                Kind::Fetch => shard.fetched(block, outcome().map(|()| content), fx),
                Kind::Write => {
                    if spanned && !is_noted {
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

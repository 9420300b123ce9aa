//! What the store does for a volume with a cache: fetches, writes that clients wait for, and
//! write-outs, each in one file from the request to what its end does to the blocks. Here: how they
//! are started, and what they have in common. Writes that start together are submitted together if
//! the store supports it. Any other request runs in a task, unless the store answers at once.
//!
//! Not here: which requests there are (`shard/`), and when dirty blocks are written out
//! (`shard/write_outs.rs`, `volume/flush.rs`).

mod fetch;
mod flash;
mod loss;
mod write;
mod write_out;

use std::io;
use std::mem::take;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use undercroft_nbd::{Alone, Failure};
use undercroft_store::ManyWrite;

use crate::answer::Failed;
use crate::shard::Shard;
use crate::shard::content::{Content, Memory};
use crate::shard::effects::{Effects, Ended, Piggybacked, StoreRequests};
use crate::volume::pace::AtStore;
use crate::volume::store_state::StoreRequest;
use crate::volume::store_use::{Demand, InUse, StoreUse};
use crate::volume::{Volume, Work};

impl Volume {
    /// Starts store requests, those first that clients wait for. With `at_once`, requests that the
    /// store answers without waiting (from memory, or the system's page cache) end before this
    /// returns, because a task would cost more than their work. Follow-up requests never run like
    /// this, so that calls do not nest.
    pub(crate) fn ask_store(self: &Arc<Self>, mut requests: StoreRequests, at_once: bool) {
        let here = at_once.then(Handle::try_current).and_then(Result::ok);
        let _runtime = self.runtime.enter();
        requests.join(self.geometry.write_out_blocks());
        let (mut together, mut tickets) = (Vec::new(), Vec::new());
        for mut fetch in requests.fetches {
            match fetch.from.take() {
                None => start(self, fetch::fetch(self, fetch), at_once),
                Some(from) => start_here(self, flash::read(self, fetch, from), here.as_ref()),
            }
        }
        for write in requests.writes {
            // Several writes at a time are not durable when they are answered.
            if self.takes_many && !write.job.durable {
                tickets.push(write::ticket(self, &write));
                together.push(ManyWrite { offset: write.offset, data: write.data() });
            } else {
                start(self, write::write(self, write), at_once);
            }
        }
        if !requests.flash_writes.is_empty() {
            flash::write(self, requests.flash_writes);
        }
        for write_out in requests.write_outs {
            if self.takes_many {
                tickets.push(write_out::ticket(self, &write_out));
                let offset = self.geometry.start(write_out.first);
                together.push(ManyWrite { offset, data: write_out.data });
            } else {
                start(self, write_out::write_out(self, write_out), at_once);
            }
        }
        if !together.is_empty() {
            let alone = at_once.then(Alone::here).flatten();
            write_many(self, together, tickets, alone.is_some());
        }
    }
}

/// Runs a task, here and now if it ends `at_once`.
fn start(volume: &Volume, task: impl Future<Output = ()> + Send + 'static, at_once: bool) {
    if let Some(task) = begin(task, at_once) {
        volume.runtime.spawn(task);
    }
}

/// As [`start`]; what waits for a read by the ring of a connection's thread goes on `here`, on its
/// runtime, so that no other thread is woken for it.
fn start_here(
    volume: &Volume,
    task: impl Future<Output = ()> + Send + 'static,
    here: Option<&Handle>,
) {
    let before = undercroft_ring::taken();
    if let Some(task) = begin(task, here.is_some()) {
        let is_here = undercroft_ring::taken() > before;
        here.filter(|_| is_here).unwrap_or(&volume.runtime).spawn(task);
    }
}

/// Begins a task if it may end `at_once`; returns it if it has not ended.
fn begin<F: Future<Output = ()> + Send>(task: F, at_once: bool) -> Option<Pin<Box<F>>> {
    let mut task = Box::pin(task);
    let mut context = Context::from_waker(Waker::noop());
    // A task that panicked has ended, too: its blocks were told by their ticket.
    let mut is_over = || {
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut context)));
        !matches!(polled, Ok(Poll::Pending))
    };
    (!(at_once && is_over())).then_some(task)
}

/// Submits writes together; `here`: this thread may wait for them.
fn write_many(volume: &Arc<Volume>, writes: Vec<ManyWrite>, mut tickets: Vec<Ticket>, here: bool) {
    let (runs, ended) = (volume.store_health.begin(), Arc::clone(volume));
    let end = move |results: Vec<io::Result<()>>| {
        drop(runs);
        let mut work = Work::waking_flusher(&ended);
        for (ticket, result) in tickets.iter_mut().zip(results) {
            let result = ticket.answered(result, true).map(|()| Vec::new());
            ticket.end_within(&mut work, result, false);
        }
        finish(work);
    };
    volume.store.write_many(writes, here, Box::new(end));
}

/// Says that the next request at the store evicted these blocks.
fn piggyback(volume: &Volume, piggybacked: &Piggybacked) {
    if let (Some(eviction_sink), false) = (&volume.config.eviction_sink, piggybacked.is_empty()) {
        eviction_sink.piggyback(piggybacked);
    }
}

/// Finishes work on requests that the store has answered.
fn finish(work: Work<'_>) {
    let volume = work.volume;
    work.finish();
    volume.write_out_next();
    volume.progress.notify_waiters();
}

/// What the end of a request does to a block.
type End = fn(&mut Shard, u64, Ended, &mut Effects);

/// Blocks that the store works for. They are told of the end even if the task is lost.
struct Ticket {
    volume: Arc<Volume>,
    blocks: Range<u64>,
    /// `None`: it is at the flash device.
    request: Option<StoreRequest>,
    end: End,
    /// Set if a client waits for it.
    demand: Option<Demand>,
    /// Set if the use of the store is measured.
    in_use: Option<InUse>,
    /// Until the store has answered, if write-outs are paced.
    at_store: Option<AtStore>,
    /// The losses of the store, and their epoch, when the request started.
    losses: u64,
    epoch: u64,
    has_ended: bool,
}

impl Ticket {
    /// For a request that a client waits for.
    fn of_client(
        volume: &Arc<Volume>,
        blocks: Range<u64>,
        request: StoreRequest,
        end: End,
    ) -> Self {
        let pace = volume.pace.as_ref();
        let at_store = pace.and_then(|pace| pace.begin_demand(request == StoreRequest::Read));
        let mut ticket = Self::new(volume, blocks, request, end, at_store);
        ticket.demand = Some(volume.demand.begin());
        ticket
    }

    fn new(
        volume: &Arc<Volume>,
        blocks: Range<u64>,
        request: StoreRequest,
        end: End,
        at_store: Option<AtStore>,
    ) -> Self {
        let in_use = volume.demand.store_use.get().map(StoreUse::begin);
        let mut ticket = Self::elsewhere(volume, blocks, end);
        (ticket.request, ticket.in_use, ticket.at_store) = (Some(request), in_use, at_store);
        ticket
    }

    /// For a request to another device than the store.
    fn elsewhere(volume: &Arc<Volume>, blocks: Range<u64>, end: End) -> Self {
        let (losses, epoch) = (volume.losses.now(), volume.losses.epoch());
        let (volume, demand, has_ended) = (Arc::clone(volume), None, false);
        let (request, in_use, at_store) = (None, None, None);
        Self { volume, blocks, request, end, demand, in_use, at_store, losses, epoch, has_ended }
    }

    /// Asks the store.
    async fn ask<T>(&mut self, request: impl Future<Output = io::Result<T>>) -> Result<T, Failed> {
        let (result, waited) = self.volume.store_health.waited(request).await;
        self.answered(result, waited)
    }

    /// The store has answered; `waited`: not at once.
    fn answered<T>(&mut self, result: io::Result<T>, waited: bool) -> Result<T, Failed> {
        if let Some(at_store) = self.at_store.take() {
            at_store.answered(waited);
        }
        let result = result.map_err(Failed::from);
        self.note(&result);
        result
    }

    fn note<T>(&self, result: &Result<T, Failed>) {
        if let Some(request) = self.request {
            self.volume.store_health.note(request, result);
        }
    }

    /// Ends the request: a fetch with a piece of memory for each block.
    fn end(mut self, result: Result<Vec<Memory>, Failed>, is_lost: bool) {
        let volume = Arc::clone(&self.volume);
        let mut work = Work::waking_flusher(&volume);
        self.end_within(&mut work, result, is_lost);
        finish(work);
    }

    fn end_within(&mut self, work: &mut Work<'_>, result: Result<Vec<Memory>, Failed>, lost: bool) {
        self.has_ended = true;
        let is_write = self.request == Some(StoreRequest::Write);
        let mut is_change = self.demand.is_some() && is_write;
        (self.demand, self.in_use) = (None, None);
        let (failed, mut memory) = match result {
            Ok(memory) => (None, memory.into_iter()),
            Err(failed) => (Some(failed), Vec::new().into_iter()),
        };
        let losses = &self.volume.losses;
        let is_alone = self.blocks.end - self.blocks.start == 1;
        for block in self.blocks.clone() {
            let content = memory.next().map_or(Content::Absent, Memory::into_content);
            let result = failed.clone().map_or(Ok(content), Err);
            let (shard, fx) = work.shard(block);
            // Checked under the lock: a loss that comes later finds what is stored here.
            let is_lost = result.is_ok() && (lost || losses.epoch() != self.epoch);
            if is_lost && take(&mut is_change) {
                losses.note_change(self.losses);
            }
            (self.end)(shard, block, Ended { result, is_alone, is_lost }, fx);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // Deferred: if the runtime is shutting down, nothing can be started from here. Then this
        // task is dropped, too, and must not begin another one.
        let (volume, blocks) = (Arc::clone(&self.volume), self.blocks.clone());
        let (demand, in_use) = (self.demand.take(), self.in_use.take());
        let (at_store, has_ended) = (None, true);
        let lost = Self { volume, blocks, demand, in_use, at_store, has_ended, ..*self };
        self.volume.runtime.spawn(async move {
            let result = Err(Failed::new(Failure::Io, "a store request was lost"));
            lost.note(&result);
            lost.end(result, false);
        });
    }
}

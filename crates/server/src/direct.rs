//! A volume without a cache: every request goes to the store as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use undercroft_nbd::{Command, Request};
use undercroft_store::Zeroing;

use crate::answer::{Answer, Failed};
use crate::content::{Home, Memory};
use crate::counters::{Operation, Source, Stats};
use crate::job::Finished;
use crate::requests::Asked;
use crate::volume::{Volume, ask_store};

/// What a volume without a cache counts, in blocks, as those with one do.
#[derive(Default)]
pub(crate) struct DirectCounters {
    reads: AtomicU64,
    writes: AtomicU64,
    read_failures: AtomicU64,
    write_failures: AtomicU64,
    store_reads: AtomicU64,
    store_writes: AtomicU64,
}

impl DirectCounters {
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        stats.reads += get(&self.reads);
        stats.writes += get(&self.writes);
        stats.read_failures += get(&self.read_failures);
        stats.write_failures += get(&self.write_failures);
        stats.store_reads += get(&self.store_reads);
        stats.store_writes += get(&self.store_writes);
    }

    fn asked(&self, op: Operation, blocks: u64) {
        match op {
            Operation::Read => self.reads.fetch_add(blocks, Ordering::Relaxed),
            Operation::Write => self.writes.fetch_add(blocks, Ordering::Relaxed),
            _ => 0,
        };
    }

    fn ended(&self, op: Operation, blocks: u64, failed: bool) {
        let (all, failures) = match op {
            Operation::Read => (&self.store_reads, &self.read_failures),
            Operation::Write => (&self.store_writes, &self.write_failures),
            _ => return,
        };
        all.fetch_add(blocks, Ordering::Relaxed);
        failures.fetch_add(if failed { blocks } else { 0 }, Ordering::Relaxed);
    }
}

impl Volume {
    /// Begins a request that was checked.
    pub(crate) fn serve_directly(
        self: &Arc<Self>,
        request: Request,
        op: Operation,
        started: Instant,
    ) {
        let Request { command, offset, length, durable, reply } = request;
        let asked = Asked { reply, operation: op, started };
        let blocks = match length {
            0 => 0,
            length => self.geometry.blocks(offset, length).count() as u64,
        };
        self.direct.asked(op, blocks);
        let volume = Arc::clone(self);
        self.runtime.spawn(async move {
            let outcome = volume.ask_directly(command, offset, length, durable).await;
            volume.direct.ended(op, blocks, outcome.is_err());
            let source = match op {
                Operation::Read | Operation::Write => Source::Miss,
                _ => Source::Hit,
            };
            volume.answer_one(Finished { source, ..asked.over(outcome) });
        });
    }

    async fn ask_directly(
        self: &Arc<Self>,
        command: Command,
        offset: u64,
        length: u64,
        durable: bool,
    ) -> Result<Answer, Failed> {
        let (store, done) = (Arc::clone(&self.store), |()| Answer::Done);
        match command {
            Command::Flush => self.flush_store().await.map(done),
            Command::BlockStatus { one_extent } => {
                let status = Arc::clone(self).block_status(offset, length, one_extent);
                status.await.map(Answer::Extents)
            }
            Command::Cache => Ok(Answer::Done),
            _ if length == 0 => Ok(Answer::Done),
            Command::Read { .. } => self.read_directly(offset, length).await,
            Command::Write { data } => {
                let write = async move { store.write(offset, data, durable).await };
                ask_store(write).await.map(done)
            }
            Command::Trim => {
                let trim = async move { store.trim(offset, length, durable).await };
                ask_store(trim).await.map(done)
            }
            Command::WriteZeroes { keep_allocated, fast } => {
                let how = Zeroing { keep_allocated, only_if_fast: fast };
                let zero = async move { store.zero(offset, length, how, durable).await };
                ask_store(zero).await.map(done)
            }
        }
    }

    async fn read_directly(&self, offset: u64, length: u64) -> Result<Answer, Failed> {
        // Bounded by what the protocol lets one client ask for.
        let memory = Memory::Heap(vec![0; length as usize].into());
        let (buffers, home) = Home::lend([(memory, length as usize)].into_iter());
        let store = Arc::clone(&self.store);
        let bytes = ask_store(async move {
            let (buffers, result) = store.read(offset, buffers).await;
            drop(buffers);
            result?;
            let memory = home.collect().and_then(|mut all| all.pop());
            let content = memory.map(|memory| memory.into_content());
            content
                .and_then(|content| content.piece(0, length as usize))
                .ok_or_else(|| std::io::Error::other("the store kept the memory of a read"))
        });
        bytes.await.map(|bytes: Bytes| Answer::Data(bytes.into()))
    }
}

//! The store requests of a shard: what it asks for, and what their ends do to the operations and to
//! what is known of the blocks.
//!
//! Not here: how the store is asked (`volume/launch.rs`), and when dirty blocks are written out
//! (`write_outs.rs`).

use std::sync::Arc;

use bytes::Bytes;

use crate::answer::Failed;
use crate::geometry::Geometry;
use crate::job::{BlockOp, Job, JobKind};
use crate::shard::below::Piggybacked;
use crate::shard::content::{Content, Memory, Running, State};
use crate::shard::event::Event;
use crate::shard::unflushed::Lost;
use crate::shard::{Effects, Shard};

/// Most bytes of dirty blocks in one store request.
pub(crate) const WRITE_OUT_BYTES_MAX: u64 = 1 << 20;

/// A store request for a run of neighbouring blocks.
pub(crate) struct Run {
    pub(crate) first: u64,
    /// Number of blocks.
    pub(crate) count: u64,
    /// First byte of the volume.
    pub(crate) offset: u64,
    end: u64,
    pub(crate) action: Action,
    /// The blocks that the underlying requests evicted.
    pub(crate) piggybacked: Piggybacked,
}

/// What the store does for a run.
pub(crate) enum Action {
    /// It reads the blocks for the job into this memory, a piece for each ([`Shard::assign`]).
    Fetch(Arc<Job>, Vec<Memory>),
    /// It writes for the job: the job's own data, or these bytes.
    Write(Arc<Job>, Option<Bytes>),
    /// It writes dirty blocks; `joins`: in one request with their neighbours.
    WriteOut { data: Vec<Bytes>, joins: bool },
}

impl Run {
    /// A request for one block: for all of it, or for the bytes of the volume from `part` on that a
    /// write concerns.
    pub(crate) fn of(
        block: u64,
        action: Action,
        part: Option<u64>,
        geometry: &Geometry,
        piggybacked: Piggybacked,
    ) -> Self {
        let start = geometry.start(block);
        let end = match (&action, part) {
            (Action::Write(job, None), _) => start + job.span(block, geometry).1 as u64,
            (Action::Write(_, Some(bytes)), Some(at)) => at + bytes.len() as u64,
            _ => start + geometry.len(block) as u64,
        };
        Self { first: block, count: 1, offset: part.unwrap_or(start), end, action, piggybacked }
    }

    /// The data of a write.
    pub(crate) fn into_data(self) -> Vec<Bytes> {
        match self.action {
            Action::Write(job, None) => job.data(self.offset, self.end),
            Action::Write(_, Some(bytes)) => vec![bytes],
            Action::WriteOut { data, .. } => data,
            Action::Fetch(..) => Vec::new(),
        }
    }

    /// Joins the next run if it follows without a gap and is of the same kind; otherwise returns
    /// it.
    fn join(&mut self, next: Self) -> Option<Self> {
        if self.first + self.count != next.first || self.end != next.offset {
            return Some(next);
        }
        let bounded = next.end - self.offset <= WRITE_OUT_BYTES_MAX;
        match (&mut self.action, next.action) {
            (Action::Fetch(job, memory), Action::Fetch(other, more))
                if Arc::ptr_eq(job, &other) =>
            {
                memory.extend(more);
            }
            (Action::Write(job, None), Action::Write(other, None)) if Arc::ptr_eq(job, &other) => {}
            (
                Action::WriteOut { data, joins: true },
                Action::WriteOut { data: more, joins: true },
            ) if bounded => data.extend(more),
            (_, action) => return Some(Self { action, ..next }),
        }
        self.count += next.count;
        self.end = next.end;
        self.piggybacked.extend(next.piggybacked);
        None
    }

    /// Orders store requests by kind and place, and joins neighbours.
    pub(crate) fn joined(mut runs: Vec<Self>) -> Vec<Self> {
        // Demand first. The sort is stable, so a request's blocks stay in order.
        runs.sort_by_key(|run| match run.action {
            Action::Fetch(..) => (0, 0),
            Action::Write(..) => (1, 0),
            Action::WriteOut { .. } => (2, run.first),
        });
        let mut joined: Vec<Self> = Vec::new();
        for run in runs {
            let left = match joined.last_mut() {
                Some(last) => last.join(run),
                None => Some(run),
            };
            joined.extend(left);
        }
        joined
    }
}

impl Shard {
    /// A fetch ended.
    pub(crate) fn fetched(
        &mut self,
        block: u64,
        result: Result<Content, Failed>,
        fx: &mut Effects,
    ) {
        let Some(record) = self.active.get_mut(&block) else { return };
        record.running = Running::Nothing;
        self.counters.store_reads += 1;
        match result {
            Ok(content) => record.state.content = content,
            Err(failed) => {
                self.counters.read_failures += 1;
                // The error belongs to the operation that started the fetch and to the reads that
                // joined it.
                let mut first = true;
                while let Some(op) = record.queue.front() {
                    if !first && !matches!(op.job.kind, JobKind::Read | JobKind::Prefetch) {
                        break;
                    }
                    first = false;
                    let done = op.job.part_done(block, &self.geometry, Err(failed.clone()));
                    fx.finished.extend(done);
                    record.queue.pop_front();
                }
            }
        }
        self.step(block, fx);
    }

    /// A write for the first operation in the queue ended.
    pub(crate) fn written(&mut self, block: u64, result: Result<(), Failed>, fx: &mut Effects) {
        let Self { active, cache, pool, geometry, watchers, .. } = self;
        let Some(record) = active.get_mut(&block) else { return };
        record.running = Running::Nothing;
        self.counters.store_writes += 1;
        let op = record.queue.front();
        match &result {
            // A dirty block was written as a whole.
            Ok(()) => self.dirty.clean(block, &mut record.state),
            Err(_) => {
                self.counters.write_failures += 1;
                // The store's content is unknown now. Dirty content stays: a later write-out
                // replaces it.
                if record.state.dirty.is_none() {
                    record.state.content = Content::Absent;
                }
            }
        }
        let (job, content) = (op.map(|op| &*op.job), &record.state.content);
        let event = Event::Written { block, job, is_ok: result.is_ok(), content };
        watchers.tell(&event, cache, pool, geometry);
        let op = self.active.get_mut(&block).and_then(|record| record.queue.pop_front());
        let Some(BlockOp { job, .. }) = op else { return self.step(block, fx) };
        let ended_well = result.is_ok();
        let result = result.map(|()| None);
        fx.finished.extend(job.part_done(block, &self.geometry, result));
        self.step(block, fx);
        if ended_well {
            self.end_awaited(block, &job, fx);
        }
    }

    /// A write-out ended; the block was written `alone` or in a run of several.
    pub(crate) fn written_out(
        &mut self,
        block: u64,
        alone: bool,
        result: Result<(), Failed>,
        fx: &mut Effects,
    ) {
        self.counters.store_writes += 1;
        self.counters.written_back += 1;
        self.counters.write_failures += u64::from(result.is_err());
        if let Some(record) = self.active.get_mut(&block) {
            if let Running::WriteOut(number) = record.running {
                record.running = Running::Nothing;
                let has_failed = result.is_err();
                self.dirty.end(number, alone, &mut record.state, result);
                if has_failed {
                    self.tell(&Event::Unknown { block });
                }
            }
            self.step(block, fx);
        }
        self.feed(fx);
    }

    /// A write-out succeeded, but the store may have lost it since: it must be repeated.
    pub(crate) fn write_out_lost(&mut self, block: u64, fx: &mut Effects) {
        self.counters.store_writes += 1;
        if let Some(record) = self.active.get_mut(&block) {
            if let Running::WriteOut(number) = record.running {
                record.running = Running::Nothing;
                self.dirty.again(number, &mut record.state);
            }
            self.step(block, fx);
        }
        self.feed(fx);
    }

    /// Drops the blocks that the store may have lost, and everything derived from them.
    pub(crate) fn lost_below(&mut self) {
        // Staged data, running reloads, and knowledge of other caches' contents.
        self.range_begins(&(0..=u64::MAX));
        self.tell(&Event::ContentsUnknown);
        let Some(unflushed) = &self.watchers.unflushed else { return };
        let lost = match unflushed.lost() {
            Lost::Blocks(blocks) => blocks,
            Lost::Any => {
                let residents = self.cache.residents().into_iter().map(|(block, _)| block);
                let mut all: Vec<u64> = residents.chain(self.active.keys().copied()).collect();
                all.sort_unstable();
                all.dedup();
                all
            }
        };
        for block in lost {
            if let Some(record) = self.active.get_mut(&block) {
                // Dirty content is written again. Other operations continue: they get what the
                // store has now, or their copy is dropped when they end.
                let is_writing_out = matches!(record.running, Running::WriteOut(_));
                if record.state.dirty.is_none() && !is_writing_out {
                    record.state.content = Content::Absent;
                }
            } else if let Some(frame) = self.cache.frame(block) {
                let State { content, dirty } = &self.slots[frame as usize].state;
                if !content.is_absent() && dirty.is_none() {
                    self.refill(block, frame, Content::Absent);
                    self.tell(&Event::Gone { block });
                }
            }
        }
    }

    /// A write that a client waits for ended. If `spanned`, a loss happened meanwhile, and the
    /// store may have lost the write.
    pub(crate) fn write_ended(
        &mut self,
        block: u64,
        result: Result<(), Failed>,
        spanned: bool,
        fx: &mut Effects,
    ) {
        if let Some(record) = self.active.get_mut(&block).filter(|_| spanned) {
            record.state.content = Content::Absent;
            self.tell(&Event::Unknown { block });
        }
        self.written(block, result, fx);
        if spanned {
            // The same block must not stay staged or in a reload.
            self.range_begins(&(block..=block));
        }
    }

    /// A fetch returned data from before a loss: it is repeated.
    pub(crate) fn fetch_again(&mut self, block: u64, fx: &mut Effects) {
        if let Some(record) = self.active.get_mut(&block) {
            record.running = Running::Nothing;
            self.counters.store_reads += 1;
            self.step(block, fx);
        }
    }
}

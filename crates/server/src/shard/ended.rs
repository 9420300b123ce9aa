//! The end of store requests in a shard: which operations it completes, and what is then known
//! about the block's content.

use crate::answer::Failed;
use crate::job::{BlockOp, JobKind};
use crate::shard::content::{Content, Running};
use crate::shard::event::Event;
use crate::shard::{Effects, Shard};

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
        self.write_outs -= 1;
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
        self.write_outs -= 1;
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
}

//! A write that a client waits for: through the cache, or around it.

use std::sync::Arc;

use crate::job::BlockOp;
use crate::operations::{Ticket, piggyback};
use crate::shard::Shard;
use crate::shard::blocks::Blocks;
use crate::shard::content::{Content, Running};
use crate::shard::effects::{ClientWrite, Effects, Ended};
use crate::shard::event::Event;
use crate::volume::Volume;
use crate::volume::store_state::StoreRequest;

pub(super) fn ticket(volume: &Arc<Volume>, write: &ClientWrite) -> Ticket {
    let blocks = write.first..write.first + write.count;
    Ticket::of_client(volume, blocks, StoreRequest::Write, Shard::written)
}

/// Writes blocks, which completes their first operations.
pub(super) fn write(volume: &Arc<Volume>, write: ClientWrite) -> impl Future<Output = ()> + use<> {
    let mut ticket = ticket(volume, &write);
    let volume = Arc::clone(volume);
    async move {
        let durable = volume.losses.must_be_durable(write.job.durable);
        piggyback(&volume, &write.piggybacked);
        let result = ticket.ask(volume.store.write(write.offset, write.data(), durable)).await;
        ticket.end(result.map(|()| Vec::new()), false);
    }
}

impl Shard {
    /// A write for the first operation of a block ended.
    fn written(&mut self, block: u64, Ended { result, is_lost, .. }: Ended, fx: &mut Effects) {
        let Blocks { level, active, watchers, pool, geometry, .. } = &mut self.blocks;
        let Some(record) = active.get_mut(&block) else { return };
        record.running = Running::Nothing;
        self.counters.store_writes += 1;
        if is_lost {
            record.state.content = Content::Absent;
            watchers.tell(&Event::Unknown { block }, level, pool, geometry);
        }
        match &result {
            // A dirty block was written as a whole.
            Ok(_) => self.dirty.clean(block, &mut record.state),
            Err(_) => {
                self.counters.write_failures += 1;
                // The store's content is unknown now. Dirty content stays: a later write-out
                // replaces it.
                if record.state.dirty.is_none() {
                    record.state.content = Content::Absent;
                }
            }
        }
        let op = record.queue.pop_front();
        let (job, content) = (op.as_ref().map(|op| &*op.job), &record.state.content);
        let event = Event::Written { block, job, is_ok: result.is_ok(), content };
        watchers.tell(&event, level, pool, geometry);
        let is_ok = result.is_ok();
        if let Some(BlockOp { job, .. }) = &op {
            fx.finished.extend(job.part_done(block, geometry, result.map(|_| None)));
        }
        self.step(block, fx);
        // A later operation may be another WRITE: that one decides.
        let is_last = self.blocks.watchers.placement.is_some() && self.blocks.is_quiet(block);
        if let (Some(BlockOp { job, .. }), true) = (&op, is_ok && is_last) {
            self.end_awaited(block, job, fx);
        }
        if is_lost {
            // The same block must not stay staged or in a reload.
            self.blocks.range_begins(&(block..=block));
        }
    }
}

//! A fetch: blocks are read from the store for the operations that wait for their content.

use std::sync::Arc;

use crate::job::JobKind;
use crate::operations::{Ticket, piggyback};
use crate::shard::Shard;
use crate::shard::content::{Running, read_into};
use crate::shard::effects::{Effects, Ended, Fetch};
use crate::volume::Volume;
use crate::volume::store_state::StoreRequest;

/// Reads blocks, and goes on with the operations that wait for them.
pub(super) fn fetch(volume: &Arc<Volume>, fetch: Fetch) -> impl Future<Output = ()> + use<> {
    let Fetch { first, memory, piggybacked, .. } = fetch;
    let blocks = first..first + memory.len() as u64;
    let mut ticket = Ticket::of_client(volume, blocks.clone(), StoreRequest::Read, Shard::fetched);
    let volume = Arc::clone(volume);
    async move {
        let geometry = &volume.geometry;
        let lengths = blocks.map(|block| geometry.len(block));
        piggyback(&volume, &piggybacked);
        let read =
            read_into(&*volume.store, geometry.start(first), memory.into_iter().zip(lengths));
        let result = ticket.ask(read).await;
        ticket.end(result, false);
    }
}

impl Shard {
    /// A fetch ended. What is from before a loss is fetched again.
    pub(crate) fn fetched(&mut self, block: u64, ended: Ended, fx: &mut Effects) {
        let Some(record) = self.blocks.active.get_mut(&block) else { return };
        record.running = Running::Nothing;
        self.counters.store_reads += 1;
        match ended.result {
            Ok(_) if ended.is_lost => {}
            Ok(content) => {
                record.state.content = content;
                record.is_suspect = false;
            }
            Err(failed) => {
                self.counters.read_failures += 1;
                record.is_suspect = !ended.is_alone;
                // The error belongs to the operation that started the fetch and to the reads that
                // joined it, unless it may be that of another block: then they fetch theirs alone.
                let (mut first, is_alone) = (true, ended.is_alone);
                while let Some(op) = record.queue.front() {
                    let joined = matches!(op.job.kind, JobKind::Read | JobKind::Prefetch);
                    if !(first || is_alone && joined) {
                        break;
                    }
                    first = false;
                    let done = op.job.part_done(block, &self.blocks.geometry, Err(failed.clone()));
                    fx.finished.extend(done);
                    record.queue.pop_front();
                }
            }
        }
        self.step(block, fx);
    }
}

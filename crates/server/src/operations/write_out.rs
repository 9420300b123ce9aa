//! A write-out: dirty blocks are written to the store, beside which reads and changes of the copies
//! go on.

use std::sync::Arc;

use crate::operations::Ticket;
use crate::shard::Shard;
use crate::shard::content::Running;
use crate::shard::effects::{Effects, Ended, WriteOut};
use crate::shard::event::Event;
use crate::volume::Volume;
use crate::volume::store_state::StoreRequest;

pub(super) fn ticket(volume: &Arc<Volume>, write_out: &WriteOut) -> Ticket {
    let count = write_out.data.len() as u64;
    let blocks = write_out.first..write_out.first + count;
    let at_store = volume.pace.as_ref().map(|pace| pace.begin_write_out(count));
    Ticket::new(volume, blocks, StoreRequest::Write, Shard::written_out, at_store)
}

/// Writes dirty blocks out. With a store that can lose what it has answered, they are written out
/// when a flush has followed without a loss.
pub(super) fn write_out(
    volume: &Arc<Volume>,
    write_out: WriteOut,
) -> impl Future<Output = ()> + use<> {
    let mut ticket = ticket(volume, &write_out);
    let volume = Arc::clone(volume);
    async move {
        let offset = volume.geometry.start(write_out.first);
        let mut result = ticket.ask(volume.store.write(offset, write_out.data, false)).await;
        let mut is_lost = false;
        if result.is_ok() && volume.losses.are_possible() {
            // Others need not wait for the flush.
            volume.write_out_next();
            result = volume.flush_together().await;
            // A flush may fail in order to report a loss, but only once for each loss.
            if result.is_err() {
                result = volume.flush_together().await;
            }
            is_lost = volume.losses.now() != ticket.losses;
        }
        ticket.end(result.map(|()| Vec::new()), is_lost);
    }
}

impl Shard {
    /// A write-out ended. What the store may have lost is written out again.
    fn written_out(&mut self, block: u64, ended: Ended, fx: &mut Effects) {
        let Ended { result, is_alone, is_lost } = ended;
        let has_failed = result.is_err();
        self.counters.store_writes += 1;
        self.counters.written_back += u64::from(!is_lost);
        self.counters.write_failures += u64::from(has_failed);
        if let Some(record) = self.blocks.active.get_mut(&block) {
            if let Running::WriteOut(number) = record.running {
                record.running = Running::Nothing;
                match is_lost {
                    true => self.dirty.again(number, &mut record.state),
                    false => {
                        self.dirty.end(number, is_alone, &mut record.state, result.map(|_| ()));
                    }
                }
                if has_failed {
                    self.blocks.tell(&Event::Unknown { block });
                }
            }
            self.step(block, fx);
        }
        self.resume_starved(fx);
    }
}

//! Reads of blocks from the flash level, in place of fetches from the store, and writes of blocks
//! that left memory. No client waits for a write.
//!
//! Not here: which blocks lie there, and what a slot must wait for (`shard/flash_level.rs`).

use std::iter::once;
use std::sync::Arc;

use tokio::time::timeout;
use undercroft_flash::check_of;
use undercroft_nbd::Failure;

use crate::answer::Failed;
use crate::flash::{FlashPart, FlashRequest, READ_PATIENCE};
use crate::operations::{Ticket, finish, piggyback};
use crate::shard::Shard;
use crate::shard::content::{Running, read_into};
use crate::shard::effects::{Effects, Ended, Fetch};
use crate::shard::flash_level::FlashWrite;
use crate::volume::{Volume, Work};

/// Reads a block from this byte of the device on, and goes on with the operations that wait for it.
pub(super) fn read(
    volume: &Arc<Volume>,
    fetch: Fetch,
    (part, byte): (Arc<FlashPart>, u64),
) -> impl Future<Output = ()> + use<> {
    let Fetch { first, memory, piggybacked, .. } = fetch;
    let ticket = Ticket::elsewhere(volume, first..first + 1, read_ended);
    let volume = Arc::clone(volume);
    async move {
        piggyback(&volume, &piggybacked);
        let length = volume.geometry.len(first);
        let wrong = || Failed::new(Failure::Io, "flash does not answer, or fails");
        let read = read_into(&*part.medium.store, byte, memory.into_iter().zip(once(length)));
        let result = timeout(READ_PATIENCE, read).await.ok().and_then(Result::ok);
        ticket.end(result.ok_or_else(wrong), false);
    }
}

/// Writes blocks to the flash device, a few at a time.
pub(super) fn write(volume: &Arc<Volume>, writes: Vec<FlashWrite>) {
    for write in writes {
        let ended = Arc::clone(volume);
        volume.runtime.spawn(async move {
            let medium = &write.part.medium;
            let turn = medium.turns.acquire().await;
            let (check, data) = (check_of(write.block, &write.data), vec![write.data.clone()]);
            let result = medium.store.write(write.offset, data, false).await;
            drop(turn);
            medium.note(FlashRequest::Write, result.is_ok());
            let mut work = Work::waking_flusher(&ended);
            let (shard, _) = work.shard(write.block);
            if let Some(flash) = &mut shard.blocks.watchers.flash {
                flash.write_ended(&write, check, result.is_ok());
            }
            finish(work);
        });
    }
}

/// A read from flash ended. If it did not bring what had been written, the block is fetched from
/// the store.
fn read_ended(shard: &mut Shard, block: u64, ended: Ended, fx: &mut Effects) {
    let content = ended.result.unwrap_or_default();
    let length = shard.blocks.geometry.len(block);
    let flash = shard.blocks.watchers.flash.as_mut();
    let is_good = flash.is_some_and(|flash| flash.read_ended(block, content.piece(0, length)));
    let Some(record) = shard.blocks.active.get_mut(&block) else { return };
    record.running = Running::Nothing;
    if is_good && !ended.is_lost {
        record.state.content = content;
    }
    shard.step(block, fx);
}

//! What the tests in several modules share: a volume over memory, and reads of it.

use std::ops::Range;

use undercroft_nbd::{Command, Reply, Request};
use undercroft_store::MemoryStore;

use super::*;
use crate::volume::clients::Caller;

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 4096;

/// Opens a volume of so many blocks.
pub(crate) fn open(config: VolumeConfig, blocks: u64) -> Arc<Volume> {
    let memory = Memory::new(config.memory_bytes() as usize).unwrap();
    let store = Arc::new(MemoryStore::new(blocks * BLOCK).unwrap());
    Volume::open(config, store, &memory, Handle::current()).unwrap()
}

/// Reads blocks, a thousand with each request.
pub(crate) async fn read(volume: &Arc<Volume>, blocks: Range<u64>) {
    for first in blocks.clone().step_by(1000) {
        let count = 1000.min(blocks.end - first);
        let (reply, awaited) = Reply::detached();
        let (offset, length) = (first * BLOCK, count * BLOCK);
        let command = Command::Read { one_chunk: true };
        let request = Request { command, offset, length, durable: false, reply };
        volume.serve(&mut vec![request], Caller::default());
        awaited.await;
    }
}

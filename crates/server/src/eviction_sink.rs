//! Who is told what leaves the cache of a volume.
//!
//! Not here: what leaves, and when (`shard/below.rs`), and the one who sends it to a server below
//! (`upstream/hint_sender.rs`).

use std::fmt;

use bytes::Bytes;

use crate::counters::TellStats;

/// Receives what leaves the cache of a volume, in the volume's blocks. Called with locks held: an
/// implementation must not wait, and must not call the volume.
pub trait EvictionSink: fmt::Debug + Send + Sync {
    /// Whether blocks should come with their data.
    fn wants_data(&self) -> bool;

    /// A block has left. `data` is the whole block, exactly as the store has it; it may be passed
    /// on until the store is asked to change the block.
    fn on_evicted(&self, block: u64, data: Option<Bytes>);

    /// A block has left after it was written to the store in order to be evicted.
    fn on_evicted_dirty(&self, block: u64);

    /// A block is in the cache again without having been read from the store.
    fn on_readmitted(&self, block: u64);

    /// The next request that the caller makes at the store has evicted these blocks, which have
    /// left.
    fn piggyback(&self, blocks: &[u64]);

    /// The blocks that left so far and ride with no request may be reported by themselves: no
    /// request that evicted them is about to be made.
    fn settled(&self);

    /// The counts so far.
    fn told(&self) -> TellStats;
}

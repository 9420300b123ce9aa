//! How an eviction gets from a client's message to the shards: it is noted in a [`HintBatch`], and
//! all noted evictions are applied together ([`HintBatch::apply`]).
//!
//! A message that consists of one EVICT record, as most do, is noted on arrival. It is applied
//! together with others when the batch of requests ends, before the batch's first request. This
//! takes one lock, and lets the processor overlap its waits for memory over all of them. Evictions
//! in other messages are noted and applied in their order among the other hints
//! (`hint_dispatch.rs`).
//!
//! The effect is that of applying each message on arrival, because the requests of a batch are
//! looked up only when it ends. Code that needs the state of the cache earlier must have the volume
//! apply the batch first. If the connection breaks before a batch ends, the noted evictions are
//! lost with the batch's requests.

use std::ops::Range;
use std::sync::Arc;

use undercroft_hints::{BlockRun, EvictFlags, Evictions};
use undercroft_level::{ClientEviction, Sender};

use crate::clock;
use crate::counters::CooperationStats;
use crate::volume::clients::Caller;
use crate::volume::{Volume, Work};

/// Most blocks that complete messages may note; this bounds the memory of a connection. Longer
/// messages are applied at once.
const NOTED_MAX: usize = 256;

/// Most evictions that a shard is told with its lock held.
pub(crate) const TOGETHER: u64 = 64;

/// Most blocks of one message that count; the rest is ignored. A message has room for billions.
pub(crate) const BLOCKS_MAX: u64 = 1 << 16;

/// Selects the blocks of a message that count.
pub(crate) struct BlockSelection {
    /// The first block behind the volume.
    end: u64,
    /// Number of further blocks that may count.
    left: u64,
    /// Number of blocks that were ignored; ignoring takes no time per block.
    pub(crate) ignored: u64,
}

impl BlockSelection {
    pub(crate) fn new(volume: &Volume) -> BlockSelection {
        BlockSelection { end: volume.geometry.block_count(), left: BLOCKS_MAX, ignored: 0 }
    }

    /// The part of a run that counts.
    #[inline]
    pub(crate) fn of(&mut self, run: BlockRun) -> Range<u64> {
        let run = run.blocks();
        let first = run.start.min(self.end);
        let count = (run.end.min(self.end) - first).min(self.left);
        self.left -= count;
        self.ignored += run.end - run.start - count;
        first..first + count
    }
}

/// Evictions told by one client, to be applied together in this order.
#[derive(Default)]
pub(crate) struct HintBatch {
    gone: Vec<ClientEviction>,
    client: u8,
    /// Arrival of the first message. Evictions of later messages may thus look older than they are.
    arrived_us: u64,
    /// What else the messages told.
    pub(super) counts: CooperationStats,
}

impl HintBatch {
    /// A batch for a message that also has other hints.
    pub(crate) fn of_message(sender: Sender) -> HintBatch {
        let Sender { client, arrived_us, .. } = sender;
        let gone = Vec::with_capacity(2 * TOGETHER as usize);
        HintBatch { client, arrived_us, gone, ..Self::default() }
    }

    /// Whether no message was noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.hint_messages == 0
    }

    /// Number of noted blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.gone.len() as u64
    }

    /// Notes a message of `bytes` bytes. Returns false, with nothing noted, if the message must be
    /// applied in its order among others.
    pub(crate) fn note_message(
        &mut self,
        evictions: &Evictions<'_>,
        bytes: u64,
        caller: Caller,
        volume: &Volume,
    ) -> bool {
        let count: u64 = evictions.runs().map(|run| u64::from(run.count())).sum();
        if evictions.flags.late || self.blocks() + count > NOTED_MAX as u64 {
            return false;
        }
        if self.is_empty() {
            self.gone.reserve(NOTED_MAX);
            (self.client, self.arrived_us) = (caller.client, volume.clients.micros(clock::now()));
        }
        self.counts.hint_messages += 1;
        self.counts.hint_bytes += bytes;
        let mut selection = BlockSelection::new(volume);
        for run in evictions.runs() {
            self.note(evictions.age_us, evictions.flags, selection.of(run));
        }
        self.counts.ignored_hints += selection.ignored;
        true
    }

    /// Applies the noted evictions and their effects, and clears the batch.
    pub(crate) fn apply(&mut self, volume: &Arc<Volume>) {
        let mut work = Work::of_client(volume, 0);
        work.act_on(self);
        work.finish();
    }

    /// Notes the blocks of a record. Late evictions are only counted.
    #[inline]
    pub(crate) fn note(&mut self, age_us: u32, flags: EvictFlags, blocks: Range<u64>) {
        let count = blocks.end - blocks.start;
        self.counts.hints += count;
        if flags.late {
            self.counts.late_hints += count;
            return;
        }
        let evicted_us = self.arrived_us.saturating_sub(age_us.into());
        self.gone.extend(blocks.map(|block| ClientEviction { block, evicted_us }));
    }
}

impl Work<'_> {
    /// Applies the noted evictions, counts them, and clears the batch.
    pub(super) fn act_on(&mut self, batch: &mut HintBatch) {
        self.tell_shards(batch);
        self.volume.clients.count(&batch.counts);
        let gone = std::mem::take(&mut batch.gone);
        *batch = HintBatch { gone, ..HintBatch::default() };
    }

    /// Tells each shard the noted blocks that belong to it, and clears them.
    pub(super) fn tell_shards(&mut self, batch: &mut HintBatch) {
        let volume = self.volume;
        let HintBatch { client, arrived_us, .. } = *batch;
        volume.note_evictions(&batch.gone, client, false);
        let sender = Sender { client, arrived_us, connected: volume.clients.connected() };
        let shard_of = |gone: &ClientEviction| volume.geometry.shard_of(gone.block);
        let mut tell = |index, its: &[ClientEviction]| {
            for part in its.chunks(TOGETHER as usize) {
                let (shard, fx) = self.nth_shard(index);
                shard.blocks.level.told_evicted(part, sender);
                shard.place_next(fx);
                if part.len() as u64 == TOGETHER {
                    self.release();
                }
            }
        };
        if volume.shards.len() == 1 {
            tell(0, &batch.gone);
        } else {
            // A stable sort: the order within each shard stays.
            batch.gone.sort_by_key(shard_of);
            let of_one =
                |one: &ClientEviction, next: &ClientEviction| shard_of(one) == shard_of(next);
            batch.gone.chunk_by(of_one).for_each(|its| tell(shard_of(&its[0]), its));
        }
        batch.gone.clear();
    }
}

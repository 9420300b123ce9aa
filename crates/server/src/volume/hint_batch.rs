//! The one way of an eviction from a client's message to the shards: it is noted in a
//! [`HintBatch`], and all that is noted is acted on together ([`Volume::act_on`]).
//!
//! A message that is one record of evictions, as most are, is noted as it comes, and acted on with
//! others when the batch of requests ends, in front of its first request: with one lock, and with
//! the processor's waits for memory overlapped over all of them. Evictions in other messages are
//! noted and acted on in their turn among the other hints (`hint_dispatch.rs`).
//!
//! The order of events is that in which messages and requests came, as if each message were acted
//! on at once: the requests of a batch are looked up when it ends. Whoever wants to know what is
//! here before that has the volume act first. If a batch breaks off, since the connection does,
//! what is noted is lost, as its requests are.

use std::ops::Range;
use std::sync::Arc;

use undercroft_cache::{ClientEviction, Sender};
use undercroft_hints::{BlockRun, EvictFlags, Evictions};

use crate::clock;
use crate::counters::CooperationStats;
use crate::volume::clients::Caller;
use crate::volume::{Volume, Work};

/// Most blocks that whole messages may note: the memory of a connection. Messages of more are acted
/// on at once.
const NOTED_MAX: usize = 256;

/// Evictions that a shard is told of at once, with its lock held.
pub(crate) const TOGETHER: u64 = 64;

/// Blocks that one message may speak of; what it says of others is ignored. A message has room for
/// billions.
pub(crate) const BLOCKS_MAX: u64 = 1 << 16;

/// Which blocks of a message count.
pub(crate) struct Known {
    /// The first block behind the volume.
    end: u64,
    /// So many more blocks.
    left: u64,
    /// Blocks that did not count. They cost nothing however many they are.
    pub(crate) ignored: u64,
}

impl Known {
    pub(crate) fn new(volume: &Volume) -> Known {
        Known { end: volume.blocks(), left: BLOCKS_MAX, ignored: 0 }
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

/// Evictions that one client told of, to be acted on together, in this order.
#[derive(Default)]
pub(crate) struct HintBatch {
    gone: Vec<ClientEviction>,
    client: u8,
    /// When the first message came: what the others tell may look older than it is.
    arrived_us: u64,
    messages: u64,
    bytes: u64,
    hints: u64,
    late_hints: u64,
    ignored_hints: u64,
}

impl HintBatch {
    /// For the evictions in a message of other hints, too.
    pub(crate) fn of_message(sender: Sender) -> HintBatch {
        let Sender { client, arrived_us, .. } = sender;
        HintBatch {
            client,
            arrived_us,
            gone: Vec::with_capacity(2 * TOGETHER as usize),
            ..Self::default()
        }
    }

    /// Whether no message was noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Blocks that it speaks of.
    pub(crate) fn blocks(&self) -> u64 {
        self.gone.len() as u64
    }

    /// Notes a message of so many bytes; or says that it must be acted on in its turn, and notes
    /// nothing.
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
            (self.client, self.arrived_us) = (caller.client, volume.micros(clock::now()));
        }
        self.messages += 1;
        self.bytes += bytes;
        let mut known = Known::new(volume);
        for run in evictions.runs() {
            self.note(evictions.age_us, evictions.flags, known.of(run));
        }
        self.ignored_hints += known.ignored;
        true
    }

    /// Notes blocks of a record; of those that left late, that they did.
    #[inline]
    pub(crate) fn note(&mut self, age_us: u32, flags: EvictFlags, blocks: Range<u64>) {
        self.hints += blocks.end - blocks.start;
        if flags.late {
            self.late_hints += blocks.end - blocks.start;
            return;
        }
        let evicted_us = self.arrived_us.saturating_sub(age_us.into());
        self.gone.extend(blocks.map(|block| ClientEviction { block, evicted_us }));
    }
}

impl Volume {
    /// Acts on what was noted, counts it, and forgets it.
    pub(crate) fn act_on(self: &Arc<Self>, batch: &mut HintBatch, work: &mut Work<'_>) {
        self.tell_shards(batch, work);
        let count = CooperationStats {
            hints: batch.hints,
            hint_messages: batch.messages,
            hint_bytes: batch.bytes,
            late_hints: batch.late_hints,
            ignored_hints: batch.ignored_hints,
            ..CooperationStats::default()
        };
        work.nth_shard(0).0.count_cooperation(&count);
        let gone = std::mem::take(&mut batch.gone);
        *batch = HintBatch { gone, ..HintBatch::default() };
    }

    /// Tells each shard of the noted blocks that are its own, and forgets these.
    pub(crate) fn tell_shards(&self, batch: &mut HintBatch, work: &mut Work<'_>) {
        let HintBatch { client, arrived_us, .. } = *batch;
        let sender = Sender { client, arrived_us, connected: self.connected() };
        let shard_of = |gone: &ClientEviction| self.geometry.shard_of(gone.block);
        let mut tell = |index, its: &[ClientEviction]| {
            for part in its.chunks(TOGETHER as usize) {
                let (shard, fx) = work.nth_shard(index);
                shard.evicted(part, sender, fx);
                if part.len() as u64 == TOGETHER {
                    work.release();
                }
            }
        };
        if self.shards.len() == 1 {
            tell(0, &batch.gone);
        } else {
            // In their order within each.
            batch.gone.sort_by_key(shard_of);
            let of_one =
                |one: &ClientEviction, next: &ClientEviction| shard_of(one) == shard_of(next);
            batch.gone.chunk_by(of_one).for_each(|its| tell(shard_of(&its[0]), its));
        }
        batch.gone.clear();
    }
}

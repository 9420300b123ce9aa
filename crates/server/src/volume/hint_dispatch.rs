//! Executes what clients tell about their caches: passes the records of mailbox messages to the
//! shards.
//!
//! Not here: evictions, which `hint_batch.rs` handles for all messages.

use std::sync::Arc;
use std::time::Instant;

use undercroft_hints::{EvictFlags, Hint};
use undercroft_level::{ClientEviction, Sender};

use crate::volume::clients::Caller;
use crate::volume::hint_batch::{BLOCKS_MAX, BlockSelection, HintBatch, TOGETHER};
use crate::volume::{Volume, Work};

/// Blocks examined for all PROMOTEs of a message together; slightly more if the last run is long.
const PROMOTED_MAX: u64 = 256;

/// A message of a client.
pub struct ReceivedHints {
    /// The records, in order.
    pub hints: Vec<Hint>,
    /// Length of the message; 0 for the rest of a message that was partly applied before.
    pub bytes: u64,
    /// When the message came.
    pub arrived: Instant,
    /// Whether data handed over with an evicted block may be accepted.
    pub may_demote: bool,
}

impl ReceivedHints {
    /// The cost of the message, in blocks examined.
    pub(crate) fn cost(&self) -> u64 {
        let runs: u64 = self
            .hints
            .iter()
            .map(|hint| match hint {
                Hint::Evict { runs, .. } | Hint::Promote(runs) | Hint::Hold(runs) => {
                    runs.iter().map(|run| u64::from(run.count())).sum()
                }
                other => 1 + other.data_bytes() as u64 / 4096,
            })
            .sum();
        runs.min(BLOCKS_MAX)
    }
}

impl Volume {
    /// Executes a message of a client. Call it after the requests that the message follows were
    /// served.
    pub fn receive_hints(self: &Arc<Self>, caller: Caller, received: ReceivedHints) {
        if !self.clients.are_distinguished() {
            return;
        }
        let ReceivedHints { hints, bytes, arrived, may_demote } = received;
        let sender = Sender {
            client: caller.client,
            arrived_us: self.clients.micros(arrived),
            connected: self.clients.connected(),
        };
        let mut work = Work::of_client(self, 0);
        let mut selection = BlockSelection::new(self);
        let mut batch = HintBatch::of_message(sender);
        (batch.counts.hint_messages, batch.counts.hint_bytes) = (u64::from(bytes > 0), bytes);
        let mut looked = 0;
        for hint in hints {
            match hint {
                Hint::Evict { age_us, flags, runs, .. } => {
                    for run in runs {
                        let mut blocks = selection.of(run);
                        while !blocks.is_empty() {
                            let part = blocks.start..blocks.end.min(blocks.start + TOGETHER);
                            blocks.start = part.end;
                            batch.note(age_us, flags, part);
                            if batch.blocks() >= TOGETHER {
                                work.tell_shards(&mut batch);
                            }
                        }
                    }
                    work.tell_shards(&mut batch);
                }
                Hint::Demote { block, data, .. }
                    if block < self.geometry.block_count() && may_demote =>
                {
                    batch.counts.hints += 1;
                    let gone = ClientEviction { block, evicted_us: sender.arrived_us };
                    self.note_evictions(&[gone], sender.client, true);
                    let (shard, fx) = work.shard(block);
                    shard.demoted(block, &data, sender, fx);
                }
                Hint::Demote { block, .. } if block < self.geometry.block_count() => {
                    batch.counts.demotions_refused += 1;
                    batch.counts.demotions_refused_forbidden += 1;
                    batch.note(0, EvictFlags::default(), block..block + 1);
                    work.tell_shards(&mut batch);
                }
                Hint::Promote(runs) => {
                    for run in runs {
                        let run = selection.of(run);
                        let blocks = run.end - run.start;
                        batch.counts.promoted += blocks;
                        let (offset, length) = (self.geometry.start(run.start), blocks);
                        let length = length << self.geometry.block_bits;
                        if looked < PROMOTED_MAX {
                            looked += work.prefetch(offset, length, false);
                        }
                    }
                }
                Hint::Hold(runs) => {
                    for run in runs {
                        for block in selection.of(run) {
                            batch.counts.held += 1;
                            let (shard, fx) = work.shard(block);
                            shard.held(block, sender, fx);
                        }
                    }
                }
                // The owner of the connection handles these.
                Hint::ClientStat(_) | Hint::Changes { .. } | Hint::Follow(_) => {}
                Hint::Digest { .. } if self.now().takes_digests() => {}
                Hint::Demote { .. } | Hint::Digest { .. } => batch.counts.ignored_hints += 1,
            }
        }
        batch.counts.ignored_hints += selection.ignored;
        work.act_on(&mut batch);
        work.finish();
    }
}

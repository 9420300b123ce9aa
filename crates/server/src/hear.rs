//! What clients say of their caches, carried out: the records of mailbox messages go to the shards.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use undercroft_nbd::hint::{BlockRun, Hint, Moves, Passed, Summary};

use crate::clients::Caller;
use crate::clock;
use crate::cooperation::{Gone, Word};
use crate::counters::CooperationStats;
use crate::feed::received;
use crate::volume::{Volume, Work};

/// Blocks that one message may speak of; what it says of others is ignored. A message has room for
/// billions.
const BLOCKS_MAX: u64 = 1 << 16;

/// Evictions that a shard is told of at once, with its lock held.
const TOGETHER: usize = 64;

/// What a client said in one message.
pub struct Heard {
    /// The records, in order.
    pub hints: Vec<Hint>,
    /// Length of the message; 0 for the rest of one that was heard in part.
    pub bytes: u64,
    /// When the message came.
    pub arrived: Instant,
    /// Whether data that comes with an evicted block may be taken.
    pub may_demote: bool,
}

/// Which blocks of a message count.
struct Known {
    /// The first block behind the volume.
    end: u64,
    /// So many more blocks.
    left: u64,
    /// Blocks that did not count. They cost nothing however many they are.
    ignored: u64,
}

impl Known {
    /// The part of a run that counts.
    fn of(&mut self, run: BlockRun) -> Range<u64> {
        let run = run.blocks();
        let first = run.start.min(self.end);
        let count = (run.end.min(self.end) - first).min(self.left);
        self.left -= count;
        self.ignored += run.end - run.start - count;
        first..first + count
    }
}

impl Volume {
    /// Acts on a message of a client. To be called when what it has to come after was served.
    pub fn hear(self: &Arc<Self>, caller: Caller, heard: Heard) {
        if !self.has_clients() {
            return;
        }
        let Heard { hints, bytes, arrived, may_demote } = heard;
        let word = Word {
            client: caller.client,
            arrived_us: self.micros(arrived),
            connected: self.connected(),
        };
        let mut count = CooperationStats {
            hint_messages: u64::from(bytes > 0),
            hint_bytes: bytes,
            ..CooperationStats::default()
        };
        let mut work = Work::of_client(self, 0);
        if self.config.scheme.is_some() {
            self.hear_level(hints, word, may_demote, &mut work);
        } else {
            self.hear_client(hints, word, may_demote, (&mut count, &mut work));
        }
        let (shard, _) = work.nth_shard(0);
        shard.count_cooperation(&count);
        work.finish();
    }

    /// What a client says of its cache.
    fn hear_client(
        self: &Arc<Self>,
        hints: Vec<Hint>,
        word: Word,
        may_demote: bool,
        (count, work): (&mut CooperationStats, &mut Work<'_>),
    ) {
        let mut known = Known { end: self.blocks(), left: BLOCKS_MAX, ignored: 0 };
        let mut gone = Vec::with_capacity(TOGETHER);
        for hint in hints {
            match hint {
                Hint::Evict { age_us, flags, runs, .. } => {
                    let evicted_us = word.arrived_us.saturating_sub(age_us.into());
                    for run in runs {
                        let blocks = known.of(run);
                        count.hints += blocks.end - blocks.start;
                        if flags.late {
                            count.late_hints += blocks.end - blocks.start;
                            continue;
                        }
                        for block in blocks {
                            gone.push(Gone { block, evicted_us });
                            if gone.len() == TOGETHER {
                                self.evicted(&mut gone, word, work);
                            }
                        }
                    }
                    self.evicted(&mut gone, word, work);
                }
                Hint::Demote { block, data, .. } if block < self.blocks() => {
                    count.hints += 1;
                    let (shard, fx) = work.shard(block);
                    if may_demote {
                        shard.demoted(block, &data, word, fx);
                    } else {
                        count.demotions_refused += 1;
                        let gone = Gone { block, evicted_us: word.arrived_us };
                        shard.evicted(&[gone], word, fx);
                    }
                }
                Hint::Promote(runs) => {
                    for run in runs {
                        let run = known.of(run);
                        let blocks = run.end - run.start;
                        count.promoted += blocks;
                        let (offset, length) = (self.geometry.start(run.start), blocks);
                        let length = length << self.geometry.block_bits;
                        self.prefetch(offset, length, false, work);
                    }
                }
                Hint::Hold(runs) => {
                    for run in runs {
                        for block in known.of(run) {
                            count.held += 1;
                            let (shard, fx) = work.shard(block);
                            shard.held(block, word, fx);
                        }
                    }
                }
                // Whoever keeps the connection keeps these.
                Hint::ClientStat(_) | Hint::Changes { .. } | Hint::Follow(_) => {}
                Hint::Digest { .. } if self.takes_digests() => {}
                Hint::Demote { .. }
                | Hint::Frequency { .. }
                | Hint::Ask(_)
                | Hint::Pass(_)
                | Hint::Digest { .. } => count.ignored_hints += 1,
            }
        }
        count.ignored_hints += known.ignored;
    }

    /// A client published what it holds.
    pub(crate) fn hear_digest(&self, client: u8, summary: &Summary) {
        let digest = received(client, summary);
        for shard in 0..self.shards.len() {
            if let Some(lower) = self.lock(shard).cache.aware() {
                // What is of no use is counted there.
                let _ = lower.heard(&digest);
            }
        }
    }

    /// What a level above says: of requests to come, and of blocks that it sends down. Whatever
    /// else is said is of no use to a level.
    fn hear_level(
        self: &Arc<Self>,
        hints: Vec<Hint>,
        word: Word,
        may_demote: bool,
        work: &mut Work<'_>,
    ) {
        let mut moves = Moves::default();
        for hint in hints {
            match hint {
                Hint::Ask(asked) if asked.block < self.blocks() => {
                    let (shard, _) = work.shard(asked.block);
                    shard.heard_ask(asked, word.client);
                }
                Hint::Frequency { moves: Some(said), .. } => moves = said,
                Hint::Demote { block, data, .. } if block < self.blocks() => {
                    let (shard, fx) = work.shard(block);
                    let moves = std::mem::take(&mut moves);
                    shard.level_demoted(block, &data, (word, moves), may_demote, fx);
                }
                _ => {}
            }
        }
    }

    /// What is said to a client of blocks that it has asked for, as one level to another.
    pub(crate) fn take_answers(
        self: &Arc<Self>,
        caller: Caller,
        blocks: std::ops::RangeInclusive<u64>,
        most: usize,
    ) -> Vec<Passed> {
        let mut work = Work::new(self);
        let answer = |block| work.shard(block).0.take_answer(caller.client, block);
        blocks.take(most).map(answer).collect()
    }

    /// What goes up to a client, with its data, for what it sent down.
    pub(crate) fn exchange(self: &Arc<Self>, caller: Caller) -> Option<(Passed, Bytes)> {
        let now_us = self.micros(clock::now());
        let mut work = Work::new(self);
        let (shard, fx) = work.nth_shard(0);
        let risen = shard.exchange(caller.client, now_us, fx);
        work.finish();
        risen
    }

    /// The blocks of a range.
    pub(crate) fn blocks_of(&self, offset: u64, length: u64) -> std::ops::RangeInclusive<u64> {
        self.geometry.blocks(offset, length)
    }

    /// A client evicted blocks, which the list loses: each shard is told of all that are its own.
    pub(crate) fn evicted(&self, gone: &mut Vec<Gone>, word: Word, work: &mut Work<'_>) {
        let shard_of = |gone: &Gone| self.geometry.shard_of(gone.block);
        let mut tell = |index, its: &[Gone]| {
            for part in its.chunks(TOGETHER) {
                let (shard, fx) = work.nth_shard(index);
                shard.evicted(part, word, fx);
                if part.len() == TOGETHER {
                    work.release();
                }
            }
        };
        if self.shards.len() == 1 {
            tell(0, gone);
        } else {
            // In their order within each.
            gone.sort_by_key(shard_of);
            let of_one = |one: &Gone, next: &Gone| shard_of(one) == shard_of(next);
            gone.chunk_by(of_one).for_each(|its| tell(shard_of(&its[0]), its));
        }
        gone.clear();
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.geometry.size().div_ceil(self.geometry.block_bytes())
    }

    pub(crate) fn count_cooperation(&self, count: &CooperationStats) {
        if !self.shards.is_empty() {
            self.lock(0).count_cooperation(count);
        }
    }
}

//! What clients say of their caches, carried out: the records of mailbox messages go to the shards.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use undercroft_nbd::hint::{BlockRun, Hint, Moves, Passed, Summary};

use crate::clients::Caller;
use crate::cooperation::Word;
use crate::counters::CooperationStats;
use crate::feed::received;
use crate::requests::WARM_BLOCKS_MAX;
use crate::volume::{Volume, Work};

/// Blocks that one message may speak of; what it says of others is ignored. A message has room for
/// billions.
const BLOCKS_MAX: u64 = 1 << 16;

/// What a client said in one message.
pub struct Heard {
    /// The records, in order.
    pub hints: Vec<Hint>,
    /// When the message came.
    pub arrived: Instant,
    /// Whether data that comes with an evicted block may be taken.
    pub may_demote: bool,
}

impl Volume {
    /// Acts on a message of a client. To be called when what it has to come after was served.
    pub fn hear(self: &Arc<Self>, caller: Caller, heard: Heard) {
        if !self.has_clients() {
            return;
        }
        let Heard { hints, arrived, may_demote } = heard;
        let mut left = BLOCKS_MAX;
        let mut word = Word {
            client: caller.client,
            arrived_us: self.micros(arrived),
            evicted_us: self.micros(arrived),
            connected: self.clients.as_ref().map_or(0, |clients| clients.connected()),
        };
        let mut count = CooperationStats::default();
        let mut work = Work::of_client(self, 0);
        if self.config.scheme.is_some() {
            return self.hear_level(hints, word, may_demote, work);
        }
        for hint in hints {
            match hint {
                Hint::Evict { age_us, flags, runs, .. } => {
                    word.evicted_us = word.arrived_us.saturating_sub(age_us.into());
                    let runs = self.known_runs(&runs, &mut left, &mut count.ignored_hints);
                    let told = runs.iter().map(|run| run.end - run.start).sum::<u64>();
                    count.hints += told;
                    if flags.late {
                        count.late_hints += told;
                        continue;
                    }
                    self.warm_runs(&runs, &mut work);
                    for block in runs.into_iter().flatten() {
                        let (shard, fx) = work.shard(block);
                        shard.evicted(block, word, fx);
                    }
                }
                Hint::Demote { block, data, .. } if block < self.blocks() => {
                    count.hints += 1;
                    word.evicted_us = word.arrived_us;
                    let (shard, fx) = work.shard(block);
                    if may_demote {
                        shard.demoted(block, &data, word, fx);
                    } else {
                        count.demotions_refused += 1;
                        shard.evicted(block, word, fx);
                    }
                }
                Hint::Promote(runs) => {
                    for run in self.known_runs(&runs, &mut left, &mut count.ignored_hints) {
                        let blocks = run.end - run.start;
                        count.promoted += blocks;
                        let (offset, length) = (self.geometry.start(run.start), blocks);
                        let length = length << self.geometry.block_bits;
                        self.prefetch(offset, length, false, &mut work);
                    }
                }
                Hint::Hold(runs) => {
                    let runs = self.known_runs(&runs, &mut left, &mut count.ignored_hints);
                    for block in runs.into_iter().flatten() {
                        count.held += 1;
                        let (shard, fx) = work.shard(block);
                        shard.held(block, word, fx);
                    }
                }
                // Whoever keeps the connection keeps these.
                Hint::ClientStat(_) | Hint::Changes { .. } | Hint::Follow(_) => {}
                Hint::Digest { .. } if self.takes_digests() => {}
                Hint::Demote { .. }
                | Hint::Frequency { .. }
                | Hint::Ask(_)
                | Hint::Pass(_)
                | Hint::Content { .. }
                | Hint::Digest { .. } => count.ignored_hints += 1,
            }
        }
        work.finish();
        self.count_cooperation(&count);
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
        mut work: Work<'_>,
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
        work.finish();
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
        let now_us = self.micros(Instant::now());
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

    /// Brings near what the shards will need to know of blocks, all together.
    fn warm_runs(&self, runs: &[Range<u64>], work: &mut Work<'_>) {
        for index in 0..self.shards.len() {
            let (shard, _) = work.nth_shard(index);
            let all = runs.iter().cloned().flatten().take(WARM_BLOCKS_MAX);
            shard.warm_names(all.filter(|&block| self.geometry.shard_of(block) == index));
        }
    }

    /// The parts of runs that lie in the volume, as many blocks as are `left` of a message's. The
    /// others are counted, and cost nothing however many they are.
    fn known_runs(&self, runs: &[BlockRun], left: &mut u64, ignored: &mut u64) -> Vec<Range<u64>> {
        let end = self.blocks();
        let mut known = Vec::with_capacity(runs.len());
        for run in runs.iter().map(|run| run.blocks()) {
            let first = run.start.min(end);
            let count = (run.end.min(end) - first).min(*left);
            *left -= count;
            *ignored += run.end - run.start - count;
            known.extend((count > 0).then_some(first..first + count));
        }
        known
    }

    fn blocks(&self) -> u64 {
        self.geometry.size().div_ceil(self.geometry.block_bytes())
    }

    pub(crate) fn count_cooperation(&self, count: &CooperationStats) {
        if !self.shards.is_empty() {
            self.lock(0).count_cooperation(count);
        }
    }
}

//! What lies in the cache, and what is yet to be said about it: all that is under the lock.
//!
//! Invariants: a frame that no resident block owns is empty. The frame of a resident block is
//! empty while an operation on the block is under way that will fill it or drop the block, and
//! holds what the server has else. Requests are queued under the lock, so the server meets them in
//! the order of the references.

use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use undercroft_cache::policy::Policy;
use undercroft_cache::{HashedCache, WriteMode};
use undercroft_nbd::hint::{ClientStat, Hint};

use super::gate::Gate;
use super::{CachedOptions, CachedStats};
use undercroft_nbd::report::{Answer, Away, HintQueue, Mailbox, Report};

/// How often the server is told the counters, while there is traffic.
const STAT_EVERY: Duration = Duration::from_secs(1);

/// What a reference to a block met.
pub(super) struct Met {
    /// The block's data, if it was here.
    pub(super) data: Option<Bytes>,
    /// Whether the block is resident now.
    pub(super) is_kept: bool,
}

pub(super) struct State {
    pub(super) gate: Gate,
    cache: HashedCache,
    write_mode: WriteMode,
    /// The data of each frame.
    frames: Vec<Bytes>,
    /// Where hints go, if anywhere.
    mailbox: Option<Mailbox>,
    hints: HintQueue,
    hands_over: bool,
    /// Only whole blocks are handed over: those of this length.
    block_bytes: usize,
    stat_due: Option<Instant>,
    pub(super) messages_refused: u64,
    pub(super) read_us_total: u64,
}

impl State {
    pub(super) fn new(
        policy: Box<dyn Policy>,
        options: &CachedOptions,
        mailbox: Option<Mailbox>,
    ) -> State {
        let frames = vec![Bytes::new(); policy.capacity() as usize];
        let block_bytes = mailbox.as_ref().map_or(0, |mailbox| mailbox.grant().block_bytes);
        let takes_stat = mailbox.as_ref().is_some_and(|mailbox| mailbox.grant().grant.stat);
        State {
            gate: Gate::default(),
            cache: HashedCache::new(policy, 0),
            write_mode: options.write_mode,
            frames,
            mailbox,
            hints: HintQueue::new(options.batch),
            hands_over: options.report == Report::Demotions,
            block_bytes: block_bytes as usize,
            stat_due: takes_stat.then(|| Instant::now() + STAT_EVERY),
            messages_refused: 0,
            read_us_total: 0,
        }
    }

    /// The data of a block, without a trace in the policy.
    pub(super) fn peek(&self, block: u64) -> Option<&Bytes> {
        let frame = self.cache.frame(block)?;
        Some(&self.frames[frame as usize]).filter(|data| !data.is_empty())
    }

    /// A read of a block. What it drives out rides, but for blocks that `is_coming` says are yet
    /// to be asked for: those are given back, to be told of later.
    pub(super) fn read(
        &mut self,
        block: u64,
        now: Instant,
        is_coming: impl Fn(u64) -> bool,
        later: &mut Vec<u64>,
    ) -> Met {
        let served = self.cache.reference(block, false, self.write_mode, || false);
        self.let_go(now, is_coming, later);
        self.hints.cancel(block);
        let data = served.frame.map(|frame| self.frames[frame as usize].clone());
        let data = data.filter(|data| !data.is_empty());
        Met { data, is_kept: served.frame.is_some() }
    }

    /// A write of a block, in the same way. Its old data is taken out: nobody will hand it over.
    pub(super) fn write(
        &mut self,
        block: u64,
        now: Instant,
        is_coming: impl Fn(u64) -> bool,
        later: &mut Vec<u64>,
    ) -> Met {
        let data = self.take_data(block);
        let served = self.cache.reference(block, true, self.write_mode, || false);
        self.let_go(now, is_coming, later);
        let is_kept = served.frame.is_some();
        if is_kept {
            self.hints.cancel(block);
        } else {
            self.hints.keep_data(&(block..block + 1));
        }
        Met { data, is_kept }
    }

    /// Queues hints of what the last reference drove out.
    fn let_go(&mut self, now: Instant, is_coming: impl Fn(u64) -> bool, later: &mut Vec<u64>) {
        for gone in self.cache.evicted() {
            let data = std::mem::take(&mut self.frames[gone.frame as usize]);
            if self.mailbox.is_none() {
                continue;
            }
            if is_coming(gone.block) {
                later.push(gone.block);
                continue;
            }
            // Not what its server has not answered yet, nor the volume's short last block.
            let whole = self.hands_over && data.len() == self.block_bytes;
            self.hints.add_rider(gone.block, whole.then_some(data), now);
        }
    }

    /// Takes the data out of a resident block's frame.
    pub(super) fn take_data(&mut self, block: u64) -> Option<Bytes> {
        let frame = self.cache.frame(block)?;
        let data = std::mem::take(&mut self.frames[frame as usize]);
        Some(data).filter(|data| !data.is_empty())
    }

    /// The server has answered: the data of a block, if it is still here.
    pub(super) fn fill(&mut self, block: u64, data: Bytes) {
        if let Some(frame) = self.cache.frame(block) {
            self.frames[frame as usize] = data;
        }
    }

    /// Forgets a block: what the server has there is not known, or of no use.
    pub(super) fn forget(&mut self, block: u64) {
        if let Some(frame) = self.cache.discard(block) {
            self.frames[frame as usize] = Bytes::new();
        }
    }

    /// The resident ones of some blocks.
    pub(super) fn resident(&self, blocks: &Range<u64>) -> Vec<u64> {
        if blocks.end - blocks.start <= u64::from(self.cache.policy().len()) {
            blocks.clone().filter(|&block| self.cache.frame(block).is_some()).collect()
        } else {
            let all = self.cache.residents();
            all.into_iter().map(|(block, _)| block).filter(|b| blocks.contains(b)).collect()
        }
    }

    /// Blocks are about to change: what waits to be said of them is no longer handed over.
    pub(super) fn keep_data(&mut self, blocks: &Range<u64>) {
        self.hints.keep_data(blocks);
    }

    /// The message that goes in front of the next request, if one is due and may be sent.
    pub(super) fn message(&mut self, now: Instant, pressing: bool) -> Option<Answer> {
        let stat = self.stat_due.is_some_and(|due| now >= due);
        let stat = stat.then(|| Hint::ClientStat(Box::new(self.client_stat())));
        let told = stat.is_some();
        let mailbox = self.mailbox.as_mut()?;
        let answer = mailbox.send(&mut self.hints, now, stat, pressing)?;
        if told {
            self.stat_due = Some(now + STAT_EVERY);
        }
        Some(answer)
    }

    /// All requests of an operation are queued: what did not go along waits, and so does what they
    /// drove out of their own.
    pub(super) fn sent(&mut self, now: Instant, later: Vec<u64>) {
        self.hints.depart();
        later.into_iter().for_each(|block| self.hints.add(block, None, now));
    }

    pub(super) fn has_hints(&self) -> bool {
        !self.hints.is_empty()
    }

    /// A message that hands one of these blocks over: what to wait for before they may change.
    pub(super) fn is_handing_over(&self, blocks: &Range<u64>) -> Option<Away> {
        self.mailbox.as_ref()?.is_handing_over(blocks)
    }

    /// What to wait for until a message can be sent.
    pub(super) fn message_away(&self) -> Option<Away> {
        self.mailbox.as_ref().map(Mailbox::away)
    }

    fn client_stat(&self) -> ClientStat {
        let stats = self.stats();
        ClientStat {
            reads: stats.reads,
            read_hits: stats.read_hits,
            writes: stats.writes,
            write_hits: stats.write_hits,
            evictions: stats.evictions,
            capacity_blocks: stats.capacity_blocks.into(),
            read_us_total: stats.read_us_total,
            tracking: None,
        }
    }

    pub(super) fn stats(&self) -> CachedStats {
        let (counts, policy) = (self.cache.counts(), self.cache.policy());
        let hints = self.hints.counts();
        CachedStats {
            capacity_blocks: policy.capacity(),
            resident_blocks: policy.len(),
            reads: counts.reads,
            read_hits: counts.read_hits,
            writes: counts.writes,
            write_hits: counts.write_hits,
            evictions: counts.evictions,
            read_us_total: self.read_us_total,
            messages: self.mailbox.as_ref().map_or(0, Mailbox::messages),
            messages_refused: self.messages_refused,
            demotions: hints.handed_over,
            hints_lost: hints.lost,
        }
    }
}

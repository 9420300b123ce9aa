//! Frames beside those of resident blocks: who may use them, which operations wait for one, and
//! when these go on.

use std::collections::VecDeque;

use crate::job::JobKind;
use crate::shard::Shard;
use crate::shard::content::{Memory, Running};
use crate::shard::effects::{Effects, Fetch};

/// Of so many frames that become free, writes that wait for one get the last.
const TURNS: u32 = 4;

/// Blocks whose first operation waits for a frame. Reads go before writes: a burst of writes may
/// have taken all frames, and is bound by the store anyway.
#[derive(Default)]
pub(crate) struct Starved {
    reads: VecDeque<u64>,
    writes: VecDeque<u64>,
    turn: u32,
}

impl Starved {
    pub(crate) fn push(&mut self, block: u64, is_read: bool) {
        if is_read { self.reads.push_back(block) } else { self.writes.push_back(block) }
    }

    /// The next one.
    fn pop(&mut self) -> Option<u64> {
        self.turn = (self.turn + 1) % TURNS;
        let Self { reads, writes, .. } = self;
        let (first, then) = if self.turn == 0 { (writes, reads) } else { (reads, writes) };
        first.pop_front().or_else(|| then.pop_front())
    }

    pub(crate) fn len(&self) -> usize {
        self.reads.len() + self.writes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shard {
    /// Gives a fetch its memory, unless it must wait for it. Called when the whole request has
    /// passed the policy: a block that the request itself evicted again needs no frame.
    pub(crate) fn assign(&mut self, mut fetch: Fetch, fx: &mut Effects) -> Option<Fetch> {
        if !fetch.memory.is_empty() {
            return Some(fetch);
        }
        let block = fetch.first;
        let resident = self.blocks.active.get(&block).is_some_and(|record| record.slot.is_some());
        let frame = if resident { self.blocks.pool.take() } else { None };
        let is_ahead = matches!(fetch.job.kind, JobKind::Prefetch);
        if frame.is_none() && is_ahead && self.give_up(block, fx) {
            return None;
        }
        if resident && frame.is_none() && self.leaving() > 0 {
            if let Some(record) = self.blocks.active.get_mut(&block) {
                record.running = Running::Starved;
                self.starved.push(block, matches!(fetch.job.kind, JobKind::Read));
            }
            return None;
        }
        self.counters.served_around += u64::from(resident && frame.is_none());
        fetch.memory.push(match frame {
            Some(frame) => Memory::Frame(frame),
            None => Memory::Heap(vec![0; self.blocks.geometry.len(block)].into()),
        });
        Some(fetch)
    }

    /// Gives up a prefetch that has no frame, unless a client's operation waits for it by now.
    fn give_up(&mut self, block: u64, fx: &mut Effects) -> bool {
        let Some(record) = self.blocks.active.get_mut(&block) else { return false };
        if record.queue.len() != 1 {
            return false;
        }
        record.running = Running::Nothing;
        if let Some(op) = record.queue.pop_front() {
            fx.finished.extend(op.job.part_done(block, &self.blocks.geometry, Ok(None)));
        }
        self.settle(block, fx);
        true
    }

    /// Resumes starved blocks as far as frames are free, or all of them if no write-out will free
    /// one.
    pub(crate) fn resume_starved(&mut self, fx: &mut Effects) {
        while self.leaving() == 0 || self.blocks.pool.free_count() > 0 {
            let Some(block) = self.starved.pop() else { return };
            if let Some(record) = self.blocks.active.get_mut(&block) {
                record.running = Running::Nothing;
            }
            let begun = fx.store.fetches.len();
            self.step(block, fx);
            for fetch in fx.store.fetches.split_off(begun) {
                let fetch = self.assign(fetch, fx);
                fx.store.fetches.extend(fetch);
            }
        }
    }
}

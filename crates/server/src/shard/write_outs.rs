//! When the dirty blocks of a shard are written out: those that have no slot, and those that the
//! flusher chooses. Which blocks are dirty, and how many may be, is in `dirty.rs`; whom the flusher
//! chooses in `volume/flush.rs`.
//!
//! A cache that places blocks at eviction gives no slot to most written blocks. The latest of them
//! wait in spare frames. For a client that evicts a block after it has written it says so a moment
//! later, and the block becomes resident, still dirty. Its further changes then join the first one,
//! as long as dirty blocks may wait.

use std::time::Instant;

use crate::shard::Shard;
use crate::shard::blocks::Blocks;
use crate::shard::content::{Active, Running};
use crate::shard::effects::{Effects, WriteOut};
use crate::shard::event::Event;

/// Blocks of a failed run that are tried alone at a time; each is a store request of its own.
const ALONE_AT_A_TIME: usize = 32;

/// Refused blocks that are tried again at a time.
const AGAIN_AT_A_TIME: usize = 256;

/// Most due blocks that are passed over, because operations on them are in progress.
const BUSY_MAX: usize = 64;

/// How much may be written out now.
struct Limit {
    /// Blocks or store requests.
    room: usize,
    by_block: bool,
    blocks: usize,
    /// Most blocks in a request.
    run_max: usize,
}

impl Limit {
    fn has_room(&self) -> bool {
        self.room > 0 && self.blocks > 0
    }

    /// Most blocks of the next request.
    fn run_max(&self) -> usize {
        let most = self.run_max.min(self.blocks);
        if self.by_block { most.min(self.room) } else { most }
    }

    /// So many blocks were started: none, or those of a request, or more of the last request.
    fn take(&mut self, blocks: usize, are_more: bool) {
        self.blocks = self.blocks.saturating_sub(blocks);
        let taken = match (self.by_block, are_more) {
            (true, _) => blocks,
            (false, true) => 0,
            (false, false) => blocks.min(1),
        };
        self.room = self.room.saturating_sub(taken);
    }
}

impl Shard {
    /// Number of blocks that wait to be written out without a slot, and are due since they are too
    /// many.
    pub(super) fn due_without_slot(&self) -> usize {
        self.dirty.count_without_slot().saturating_sub(self.blocks.without_slot_max())
    }

    /// Number of blocks that have left the cache, or are about to be clean, and whose write-outs
    /// have not ended. Each frees a frame: its write-out is running, or starts in its turn.
    pub(crate) fn leaving(&self) -> usize {
        self.dirty.writing_count() + self.due_without_slot()
    }

    /// Whether somebody waits for write-outs: a FLUSH, an operation without a frame, or an operator
    /// who wants no more, or nothing older, at stake.
    pub(crate) fn is_pressing(&self, now: Instant) -> bool {
        self.dirty.is_wanted()
            || !self.starved.is_empty()
            || self.blocks.pool.free_count() <= self.due_without_slot()
            || self.dirty.is_near_bounds(now)
    }

    /// Starts write-outs that are due, at most `room` of them, counted `by_block` or by request:
    /// blocks that take frames without having slots, refused ones whose time has come, and the
    /// oldest ones that somebody waits for, that are old, or that are too many. `blocks`: most
    /// blocks now, and in a request. Returns whether some that are due must wait.
    pub(crate) fn write_out_due(
        &mut self,
        (room, by_block): (usize, bool),
        blocks: (usize, usize),
        now: Instant,
        fx: &mut Effects,
    ) -> bool {
        let mut limit = Limit { room, by_block, blocks: blocks.0, run_max: blocks.1 };
        self.write_out_without_slot(&mut limit, fx);
        let retries = if limit.has_room() { limit.room.min(AGAIN_AT_A_TIME) } else { 0 };
        for block in self.dirty.due(now, retries) {
            let run = self.dirty.neighbours(block, limit.run_max());
            limit.take(self.write_out(&run, fx), false);
        }
        let mut alone = 0;
        // Some may be busy with operations, and are passed over.
        let looked = if limit.has_room() { limit.room.min(limit.blocks) + BUSY_MAX } else { 0 };
        for block in self.dirty.due_waiting(now).take(looked).collect::<Vec<_>>() {
            if !limit.has_room() || alone >= ALONE_AT_A_TIME {
                break;
            }
            if self.dirty.waits(block) {
                alone += usize::from(!self.dirty.joins(block));
                let run = self.dirty.neighbours(block, limit.run_max());
                limit.take(self.write_out(&run, fx), false);
            }
        }
        if !self.starved.is_empty() {
            self.resume_starved(fx);
        }
        self.due_without_slot() > 0 || self.dirty.due_waiting(now).next().is_some()
    }

    /// Writes out blocks that have no slots and are too many. Neighbours that left one after the
    /// other become one request.
    fn write_out_without_slot(&mut self, limit: &mut Limit, fx: &mut Effects) {
        let mut run = 0..0;
        while self.due_without_slot() > 0 {
            let Some(block) = self.dirty.oldest_without_slot() else { return };
            let joins = block == run.end && run.end - run.start < limit.run_max as u64;
            if !(limit.has_room() || joins && !limit.by_block && limit.blocks > 0) {
                return;
            }
            self.dirty.pass_without_slot();
            let begun = self.write_out(&[block], fx);
            run = if joins { run.start..block + 1 } else { block..block + 1 };
            limit.take(begun, joins);
        }
    }

    /// Starts to write dirty blocks out, resident or not, even if the store refused them before.
    /// Returns how many were started.
    fn write_out(&mut self, run: &[u64], fx: &mut Effects) -> usize {
        let before = self.dirty.writing_count();
        for &block in run {
            if self.blocks.ranges.cover(block) {
                continue;
            }
            self.blocks.activate(block);
            let Blocks { active, geometry, .. } = &mut self.blocks;
            let Some(Active { state, running, .. }) = active.get_mut(&block) else { continue };
            if let Some(number) = state.dirty {
                self.dirty.try_again(number);
            }
            let content = (*running == Running::Nothing).then_some(&state.content);
            if let Some(data) = content.and_then(|content| content.piece(0, geometry.len(block))) {
                let joins = self.dirty.joins(block);
                if let Some(number) = self.dirty.start(block, state) {
                    *running = Running::WriteOut(number);
                    fx.store.write_outs.push(WriteOut { first: block, data: vec![data], joins });
                    self.blocks.tell(&Event::WritesOut { block });
                }
            }
            self.step(block, fx);
        }
        self.dirty.writing_count().saturating_sub(before)
    }
}

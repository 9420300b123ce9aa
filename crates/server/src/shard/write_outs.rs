//! When the dirty blocks of a shard are written out: those that have no slot, and those that the
//! flusher chooses. Which blocks are dirty, and how many may be, is in `dirty.rs`; whom the flusher
//! chooses in `volume/flush.rs`.
//!
//! A cache that places blocks at eviction gives no slot to most written blocks. The latest of them
//! wait in spare frames. For a client that evicts a block after it has written it says so a moment
//! later, and the block becomes resident, still dirty. Its further changes then join the first one,
//! as long as dirty blocks may wait.

use std::time::Instant;

use undercroft_cache::Level;
use undercroft_frames::Pools;

use crate::shard::Shard;
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

/// Frames that may hold written blocks that are not resident: half of those that the resident
/// blocks cannot need.
pub(super) fn lent_frames(cache: &Level, pool: &Pools) -> usize {
    let (capacity, all) = (cache.capacity(), pool.count());
    let spared = capacity - cache.len() + all.saturating_sub(capacity) / 2;
    pool.free_count().saturating_sub(spared as usize)
}

impl Shard {
    /// Whether written blocks that are not resident may be in memory until they are written out, so
    /// that a client of a write-back cache does not wait for the store. With placement at eviction
    /// that concerns most writes.
    pub(super) fn absorbs(&self) -> bool {
        self.watchers.placement.is_some() && self.geometry.write_back
    }

    /// Dirty blocks that may wait without a slot: half of the spare frames that may hold them. The
    /// others are for blocks that are being written out.
    fn waiting_without_slot_max(&self) -> usize {
        if !self.absorbs() {
            return 0;
        }
        let held = self.cache.capacity().saturating_add(self.cache.staging_blocks());
        self.pool.count().saturating_sub(held) as usize / 4
    }

    /// A dirty block has no slot and no operation. Its change waits to be written out, and the one
    /// that has waited longest is due if they are too many.
    pub(super) fn write_out_in_time(&mut self, number: u64, fx: &mut Effects) {
        self.dirty.wait_without_slot(number);
        fx.writes_out |= self.without_slot_too_many() > 0;
    }

    /// Number of blocks without a slot that are due.
    fn without_slot_too_many(&self) -> usize {
        self.dirty.count_without_slot().saturating_sub(self.waiting_without_slot_max())
    }

    /// Number of blocks that have left the cache, or are about to be clean, and whose write-outs
    /// have not ended. Each frees a frame: its write-out is running, or starts in its turn.
    pub(crate) fn leaving(&self) -> usize {
        self.dirty.writing_count() + self.without_slot_too_many()
    }

    /// Whether somebody waits for write-outs: a FLUSH, an operation without a frame, or an operator
    /// who wants no more, or nothing older, at stake.
    pub(crate) fn is_pressing(&self, now: Instant) -> bool {
        self.dirty.is_wanted()
            || !self.starved.is_empty()
            || self.pool.free_count() <= self.without_slot_too_many()
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
            self.write_out_run(block, &mut limit, fx);
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
                self.write_out_run(block, &mut limit, fx);
            }
        }
        if !self.starved.is_empty() {
            self.feed(fx);
        }
        self.without_slot_too_many() > 0 || self.dirty.due_waiting(now).next().is_some()
    }

    /// Writes out blocks that have no slots and are too many. Neighbours that left one after the
    /// other become one request.
    fn write_out_without_slot(&mut self, limit: &mut Limit, fx: &mut Effects) {
        let most = self.waiting_without_slot_max();
        let mut run = 0..0;
        while let Some(block) = self.dirty.too_many_without_slot(most) {
            let joins = block == run.end && run.end - run.start < limit.run_max as u64;
            if !(limit.has_room() || joins && !limit.by_block && limit.blocks > 0) {
                return;
            }
            self.dirty.pass_without_slot();
            let before = self.dirty.writing_count();
            self.write_out(block, fx);
            let begun = self.dirty.writing_count().saturating_sub(before);
            run = if joins { run.start..block + 1 } else { block..block + 1 };
            limit.take(begun, joins);
        }
    }

    /// Writes a block out with its dirty neighbours.
    fn write_out_run(&mut self, block: u64, limit: &mut Limit, fx: &mut Effects) {
        let before = self.dirty.writing_count();
        for block in self.dirty.neighbours(block, limit.run_max()) {
            self.write_out(block, fx);
        }
        limit.take(self.dirty.writing_count().saturating_sub(before), false);
    }

    /// Starts to write a dirty block out, resident or not, even if the store refused it before.
    fn write_out(&mut self, block: u64, fx: &mut Effects) {
        if self.blocks.ranges.cover(block) {
            return;
        }
        self.activate(block);
        let Self { blocks, dirty, geometry, .. } = self;
        let Some(Active { state, running, .. }) = blocks.active.get_mut(&block) else { return };
        if let Some(number) = state.dirty {
            dirty.try_again(number);
        }
        let content = (*running == Running::Nothing).then_some(&state.content);
        if let Some(data) = content.and_then(|content| content.piece(0, geometry.len(block))) {
            let joins = dirty.joins(block);
            if let Some(number) = dirty.start(block, state) {
                *running = Running::WriteOut(number);
                fx.store.write_outs.push(WriteOut { first: block, data: vec![data], joins });
                self.tell(&Event::WritesOut { block });
            }
        }
        self.step(block, fx);
    }
}

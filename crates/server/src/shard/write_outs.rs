//! When the dirty blocks of a shard are written out: those that have no slot, and those that the
//! flusher chooses. Which blocks are dirty is in `dirty.rs`; whom the flusher chooses in
//! `volume/flush.rs`.
//!
//! A cache that places blocks at eviction gives no slot to most written blocks. The latest of them
//! wait in spare frames. For a client that evicts a block after it has written it says so a moment
//! later, and the block becomes resident, still dirty. Its further changes then join the first one,
//! as long as dirty blocks may wait.

use crate::shard::content::{Active, Running};
use crate::shard::tell::Riders;
use crate::shard::{Action, Effects, Shard, Start};

impl Shard {
    /// Whether written blocks that are not resident may be in memory until they are written out, so
    /// that a client of a write-back cache does not wait for the store. With placement at eviction
    /// that concerns most writes.
    pub(super) fn absorbs(&self) -> bool {
        self.coop.is_some() && self.levels.is_none() && self.geometry.write_back
    }

    /// Frames that may hold such blocks now: half of those that the resident blocks cannot need.
    pub(super) fn lent_frames(&self) -> usize {
        let (capacity, all) = (self.cache.capacity(), self.pool.count());
        let spared = capacity - self.cache.len() + all.saturating_sub(capacity) / 2;
        self.pool.free_count().saturating_sub(spared as usize)
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

    /// An active dirty block has no slot and no operation. It waits to be written out, and the one
    /// that has waited longest is written out if they are too many.
    pub(crate) fn write_out_in_time(&mut self, block: u64, fx: &mut Effects) {
        let most = self.waiting_without_slot_max();
        if most == 0 {
            return self.try_write_out(block, fx);
        }
        let Some(record) = self.active.get(&block) else { return };
        if let (Running::Nothing, Some(number)) = (record.running, record.state.dirty) {
            self.dirty.wait_without_slot(number);
        }
        while let Some(oldest) = self.dirty.too_many_without_slot(most) {
            self.try_write_out(oldest, fx);
        }
    }

    /// Starts to write an active block's dirty content, unless it must wait or the store refused
    /// it.
    pub(crate) fn try_write_out(&mut self, block: u64, fx: &mut Effects) {
        if self.ranges.cover(block) {
            return;
        }
        let length = self.geometry.len(block);
        let Some(record) = self.active.get_mut(&block) else { return };
        let is_refused = record.state.dirty.is_some_and(|number| self.dirty.is_refused(number));
        if record.running != Running::Nothing || is_refused {
            return;
        }
        let Some(bytes) = record.state.content.piece(0, length) else { return };
        let joins = self.dirty.joins(block);
        if let Some(number) = self.dirty.start(block, &mut record.state) {
            record.running = Running::WriteOut(number);
            record.digest.begin_write_out();
            self.write_outs += 1;
            let (action, riders) = (Action::WriteOut { bytes, joins }, Riders::new());
            fx.starts.push(Start { block, action, riders });
        }
    }

    /// Starts to write a dirty block out, resident or not, even if the store refused it before.
    pub(crate) fn write_out(&mut self, block: u64, fx: &mut Effects) {
        if self.ranges.cover(block) {
            return;
        }
        if let Some(number) = self.activate(block).state.dirty {
            self.dirty.try_again(number);
        }
        self.try_write_out(block, fx);
        self.step(block, fx);
    }

    /// The blocks that are being written out.
    pub(crate) fn being_written_out(&self) -> impl Iterator<Item = u64> + '_ {
        let writing = |record: &Active| matches!(record.running, Running::WriteOut(_));
        self.active.iter().filter(move |(_, record)| writing(record)).map(|(&block, _)| block)
    }
}

//! Contents that clients hand over with the blocks they evict: what is done with them. They are
//! placed if they equal the volume's content (rules 4 and 5 of `digests.rs`); if they may be those
//! of a WRITE that is still to come, the block is placed with that (`awaited.rs`); else only the
//! eviction counts.
//!
//! Not here: evictions without contents, and which blocks are placed (`place_evicted.rs`).

use bytes::Bytes;
use undercroft_level::placement::DataSource;
use undercroft_level::{ClientEviction, PlacementStep, Sender};
use undercroft_policy::WriteMode;

use crate::job::Job;
use crate::shard::Shard;
use crate::shard::awaited::Expected;
use crate::shard::blocks::Blocks;
use crate::shard::content::Content;
use crate::shard::digests::Refusal;
use crate::shard::effects::Effects;
use crate::shard::event::Event;

impl Shard {
    /// A client evicted a block and sent its data. The data are used if they equal the volume's
    /// content (`digests.rs`). Otherwise the block is placed when a write brings these data, if
    /// that can be (`awaited.rs`); if not, only the eviction counts.
    pub(crate) fn demoted(&mut self, block: u64, data: &Bytes, sender: Sender, fx: &mut Effects) {
        let proven = self.blocks.proven(block, data);
        let Some(placement) = self.blocks.watchers.placement.as_deref_mut() else { return };
        let gone = ClientEviction { block, evicted_us: sender.arrived_us };
        match proven {
            Ok(digest) => {
                placement.counters.demotions_accepted += 1;
                placement.awaited.forget(block);
                self.take_in(gone, data, digest, sender, fx);
            }
            Err(refusal) => {
                placement.refuse(refusal);
                if !self.blocks.await_write(gone, data, refusal, sender) {
                    self.blocks.level.told_evicted(&[gone], sender);
                    self.place_next(fx);
                }
            }
        }
    }

    /// A client evicted a block. These data of it equal the volume's content, and have this digest.
    fn take_in(
        &mut self,
        gone: ClientEviction,
        data: &Bytes,
        digest: u64,
        sender: Sender,
        fx: &mut Effects,
    ) {
        let block = gone.block;
        if !self.blocks.level.is_last_copy(gone, sender) {
            return;
        }
        match self.blocks.level.handed_over(block) {
            PlacementStep::Fetch => {
                let slot = self.place(block, Some(DataSource::Demote), fx);
                // It is being written out, so its content is in memory.
                if self.blocks.active.contains_key(&block) {
                    return self.load(block, fx);
                }
                match self.blocks.pool.take() {
                    Some(mut frame) => {
                        frame[..data.len()].copy_from_slice(data);
                        self.blocks.fill(block, slot, Content::Frame(frame.freeze()), digest);
                    }
                    // Clients that do not read their replies hold all frames.
                    None => {
                        self.counters.served_around += 1;
                        self.blocks.discard(block);
                        self.blocks.tell(&Event::Gone { block });
                    }
                }
            }
            step => self.carry_out_placement(block, step, fx),
        }
    }

    /// A WRITE of a block succeeded, or is to be written out, and no later operation on the block
    /// is left. Places the block if the WRITE brought what a client had handed over before.
    pub(crate) fn end_awaited(&mut self, block: u64, job: &Job, fx: &mut Effects) {
        let Some(placement) = self.blocks.watchers.placement.as_deref_mut() else { return };
        let Some(Expected { digest, sender, .. }) = placement.awaited.get(block) else { return };
        let Some(data) = job.whole_block(block, &self.blocks.geometry) else { return };
        // These data decide.
        placement.awaited.forget(block);
        if self.blocks.proven(block, &data) != Ok(digest) {
            return;
        }
        // Nobody has read the block since it was handed over.
        let gone = ClientEviction { block, evicted_us: u64::MAX };
        self.take_in(gone, &data, digest, sender, fx);
        let is_placed = self.blocks.level.frame(block).is_some();
        if let Some(placement) = self.blocks.watchers.placement.as_deref_mut().filter(|_| is_placed)
        {
            placement.counters.demotions_written += 1;
        }
    }
}

impl Blocks {
    /// The digest of data that a client hands over.
    ///
    /// # Errors
    /// Says why the data are not known to equal the volume's content.
    fn proven(&self, block: u64, data: &Bytes) -> Result<u64, Refusal> {
        if data.len() != self.geometry.len(block) {
            return Err(Refusal::Malformed);
        }
        let digests = self.watchers.digests.as_ref().ok_or(Refusal::Unknown)?;
        if let Some(content) = self.dirty_content(block) {
            let is_equal = content.piece(0, data.len()).is_some_and(|own| own == data);
            return if is_equal { Ok(digests.of_data(data)) } else { Err(Refusal::Changed) };
        }
        let placement = self.watchers.placement.as_deref();
        let is_reloading = placement.is_some_and(|placement| placement.is_reloading(block));
        if is_reloading || !self.is_quiet(block) {
            return Err(Refusal::Busy);
        }
        let known = match self.level.frame(block) {
            Some(slot) => digests.of_slot(slot),
            None => self.level.clients().digest(block),
        };
        match known {
            0 => Err(Refusal::Unknown),
            known if digests.of_data(data) == known => Ok(known),
            _ => Err(Refusal::Changed),
        }
    }

    /// A client evicted a block, and its contents were refused. Remembers them if they may be those
    /// of a WRITE that has not ended yet, and the block should be placed with it; if not, returns
    /// false.
    fn await_write(
        &mut self,
        gone: ClientEviction,
        data: &Bytes,
        refusal: Refusal,
        sender: Sender,
    ) -> bool {
        let may_come = match refusal {
            Refusal::Unknown | Refusal::Changed => true,
            Refusal::Busy => self.is_being_written(gone.block),
            Refusal::Malformed => false,
        };
        // A resident block needs no placing, unless the WRITE removes it.
        let is_removed = self.geometry.mode == WriteMode::Invalidate;
        let is_wanted = may_come && (is_removed || self.level.frame(gone.block).is_none());
        let digests = self.watchers.digests.as_ref().filter(|_| is_wanted);
        let Some(digest) = digests.map(|digests| digests.of_data(data)) else { return false };
        let placement = self.watchers.placement.as_deref_mut();
        let Some(placement) = placement.filter(|_| self.level.is_last_copy(gone, sender)) else {
            return true;
        };
        placement.counters.demotions_awaited += 1;
        for old in placement.awaited.remember(gone.block, digest, sender) {
            if self.level.frame(old).is_none() && !self.active.contains_key(&old) {
                self.tell(&Event::Gone { block: old });
            }
        }
        true
    }
}

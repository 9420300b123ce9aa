//! Contents that clients hand over with the blocks they evict: what is done with them. They are
//! placed if they equal the volume's content (rules 4 and 5 of `digests.rs`); if they may be those
//! of a WRITE that is still to come, the block is placed with that (`awaited.rs`); else only the
//! eviction counts.
//!
//! Not here: evictions without contents, and which blocks are placed (`place_evicted.rs`).

use bytes::Bytes;
use undercroft_cache::placement::DataSource;
use undercroft_cache::{ClientEviction, Down, Sender, WriteMode};

use crate::job::Job;
use crate::shard::Shard;
use crate::shard::awaited::Expected;
use crate::shard::content::Content;
use crate::shard::digests::Refusal;
use crate::shard::effects::Effects;
use crate::shard::event::Event;

impl Shard {
    /// A client evicted a block and sent its data. The data are used if they equal the volume's
    /// content (`digests.rs`). Otherwise the block is placed when a write brings these data, if
    /// that can be (`awaited.rs`); if not, only the eviction counts.
    pub(crate) fn demoted(&mut self, block: u64, data: &Bytes, sender: Sender, fx: &mut Effects) {
        let proven = self.proven(block, data);
        let Some(placement) = self.watchers.placement.as_deref_mut() else { return };
        let gone = ClientEviction { block, evicted_us: sender.arrived_us };
        match proven {
            Ok(digest) => {
                placement.counters.demotions_accepted += 1;
                placement.awaited.forget(block);
                self.take_in(gone, data, digest, sender, fx);
            }
            Err(refusal) => {
                placement.refuse(refusal);
                if self.may_await(block, refusal) {
                    self.await_write(gone, data, sender);
                } else {
                    self.evicted(&[gone], sender, fx);
                }
            }
        }
    }

    /// A client evicted a block. These data of it equal the volume's content, and have this digest.
    pub(crate) fn take_in(
        &mut self,
        gone: ClientEviction,
        data: &Bytes,
        digest: u64,
        sender: Sender,
        fx: &mut Effects,
    ) {
        let block = gone.block;
        if self.blocks.active.contains_key(&block) {
            return self.take_in_from_memory(gone, sender, fx);
        }
        if !self.cache.is_last_copy(gone, sender) {
            return;
        }
        match self.cache.handed_over(block) {
            Down::Fetch => {
                let slot = self.arrive_evicted(block, DataSource::Demote, fx);
                match self.pool.take() {
                    Some(mut frame) => {
                        frame[..data.len()].copy_from_slice(data);
                        self.fill(block, slot, Content::Frame(frame.freeze()), digest);
                    }
                    // Clients that do not read their replies hold all frames.
                    None => {
                        self.counters.served_around += 1;
                        self.discard(block);
                        self.tell(&Event::Gone { block });
                    }
                }
            }
            down => self.carry_out_placement(block, down, fx),
        }
    }

    /// A client evicted a block whose content is in memory, since it is being written out.
    pub(crate) fn take_in_from_memory(
        &mut self,
        gone: ClientEviction,
        sender: Sender,
        fx: &mut Effects,
    ) {
        let block = gone.block;
        if !self.cache.is_last_copy(gone, sender) {
            return;
        }
        match self.cache.handed_over(block) {
            Down::Fetch => {
                self.arrive_evicted(block, DataSource::Demote, fx);
                self.load(block, fx);
            }
            down => self.carry_out_placement(block, down, fx),
        }
    }

    /// The digest of data that a client hands over.
    ///
    /// # Errors
    /// Says why the data are not known to equal the volume's content.
    pub(crate) fn proven(&self, block: u64, data: &Bytes) -> Result<u64, Refusal> {
        if data.len() != self.geometry.len(block) {
            return Err(Refusal::Malformed);
        }
        let digests = self.watchers.digests.as_ref().ok_or(Refusal::Unknown)?;
        if let Some(content) = self.blocks.dirty_content(block) {
            let is_equal = content.piece(0, data.len()).is_some_and(|own| own == data);
            return if is_equal { Ok(digests.of_data(data)) } else { Err(Refusal::Changed) };
        }
        if !self.blocks.is_quiet(block) || self.is_reloading(block) {
            return Err(Refusal::Busy);
        }
        let known = match self.cache.frame(block) {
            Some(slot) => digests.of_slot(slot),
            None => self.cache.digest(block),
        };
        match known {
            0 => Err(Refusal::Unknown),
            known if digests.of_data(data) == known => Ok(known),
            _ => Err(Refusal::Changed),
        }
    }

    fn is_reloading(&self, block: u64) -> bool {
        let reloading =
            self.watchers.placement.as_deref().and_then(|placement| placement.reloading.as_ref());
        reloading.is_some_and(|reloading| reloading.block == block)
    }

    /// Whether refused contents of a block may be those of a WRITE that has not ended yet, and the
    /// block should be placed with it. A resident block needs no placing, unless the WRITE removes
    /// it.
    pub(crate) fn may_await(&self, block: u64, refusal: Refusal) -> bool {
        let stays = self.geometry.mode != WriteMode::Invalidate;
        if self.watchers.digests.is_none() || stays && self.cache.frame(block).is_some() {
            return false;
        }
        match refusal {
            Refusal::Unknown | Refusal::Changed => true,
            Refusal::Busy => self.blocks.is_being_written(block),
            Refusal::Malformed => false,
        }
    }

    /// A client evicted a block and handed over contents that the volume does not hold yet.
    pub(crate) fn await_write(&mut self, gone: ClientEviction, data: &Bytes, sender: Sender) {
        let Some(digests) = &self.watchers.digests else { return };
        let digest = digests.of_data(data);
        if !self.cache.is_last_copy(gone, sender) {
            return;
        }
        let Some(placement) = self.watchers.placement.as_deref_mut() else { return };
        placement.counters.demotions_awaited += 1;
        for old in placement.awaited.remember(gone.block, digest, sender) {
            if self.cache.frame(old).is_none() && !self.blocks.active.contains_key(&old) {
                self.tell(&Event::Gone { block: old });
            }
        }
    }

    /// A WRITE of a block succeeded. Places the block if the WRITE was the last operation on it and
    /// brought what a client had handed over before.
    pub(crate) fn end_awaited(&mut self, block: u64, job: &Job, fx: &mut Effects) {
        // A later operation may be another WRITE: that one decides.
        if self.watchers.placement.is_none() || !self.blocks.is_quiet(block) {
            return;
        }
        let Some((digest, sender, data)) = self.expected(block, job) else { return };
        if self.proven(block, &data) == Ok(digest) {
            // Nobody has read the block since it was handed over.
            let gone = ClientEviction { block, evicted_us: u64::MAX };
            self.take_in(gone, &data, digest, sender, fx);
            self.count_written(block);
        }
    }

    /// A WRITE of a block that is not resident took effect in memory and is written out now. Places
    /// the block if the WRITE brought what a client had handed over before.
    pub(crate) fn end_absorbed(&mut self, block: u64, job: &Job, fx: &mut Effects) {
        let Some((digest, sender, data)) = self.expected(block, job) else { return };
        if self.watchers.digests.as_ref().is_some_and(|known| known.of_data(&data) == digest) {
            let gone = ClientEviction { block, evicted_us: u64::MAX };
            self.take_in_from_memory(gone, sender, fx);
            self.count_written(block);
        }
    }

    /// The digest that is expected of a block, who handed it over, and the data of a WRITE of the
    /// whole block, which decide: nothing is expected any more.
    fn expected(&mut self, block: u64, job: &Job) -> Option<(u64, Sender, Bytes)> {
        let awaited = &mut self.watchers.placement.as_mut()?.awaited;
        let Expected { digest, sender, .. } = awaited.get(block)?;
        let data = job.whole_block(block, &self.geometry)?;
        awaited.forget(block);
        Some((digest, sender, data))
    }

    /// Counts a block that was placed with the data of its WRITE, if it was.
    fn count_written(&mut self, block: u64) {
        if let (Some(_), Some(placement)) = (self.cache.frame(block), &mut self.watchers.placement)
        {
            placement.counters.demotions_written += 1;
        }
    }
}

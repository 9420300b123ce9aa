//! What of a shard's level on flash outlives the server: which copies the journal is told of, and
//! what waits for it. Without a journal nothing does.
//!
//! Not here: when commits are made (`volume/flash_commits.rs`), and what they hold
//! (`undercroft_flash`).

use std::ops::RangeInclusive;

use undercroft_flash::{Commit, Directory as _, Journal, Slot, Stamp};

use crate::shard::flash_level::{FlashLevel, Next};

/// A commit is made at once when this part of the writes that may wait waits for one, so that there
/// is room for those that come meanwhile.
const HELD_BACK_PART: usize = 4;

/// Whether a range of the store may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gate {
    Open,
    /// After a commit.
    Shut,
    /// Copies of it are still being ended: a step was made just now.
    Sweeping,
}

/// A page for the device, and its first byte there.
pub(crate) type Page = (u64, Vec<u8>);

impl FlashLevel {
    /// Whether these blocks of the store may be changed, since no copy of them counts any more, not
    /// even after a restart.
    pub(crate) fn before_change(&mut self, blocks: &RangeInclusive<u64>) -> Gate {
        let flash = &mut self.level.flash;
        if flash.is_void(blocks) {
            flash.sweep();
            return if flash.directory().has_room() { Gate::Sweeping } else { Gate::Shut };
        }
        let awaits = flash.directory().journal().is_some_and(|it| it.awaits(blocks).is_some());
        if awaits { Gate::Shut } else { Gate::Open }
    }

    /// Whether the ends of all copies that were void when this was first asked are durable. `ends`:
    /// how many records that takes, when it is known.
    pub(crate) fn have_ended(&mut self, ends: &mut Option<u64>) -> Gate {
        let flash = &mut self.level.flash;
        if ends.is_none() && flash.is_void(&(0..=u64::MAX)) {
            flash.sweep();
            return if flash.directory().has_room() { Gate::Sweeping } else { Gate::Shut };
        }
        let Some(journal) = flash.directory().journal() else { return Gate::Open };
        let ends = *ends.get_or_insert(journal.recorded());
        if journal.durable() < ends { Gate::Shut } else { Gate::Open }
    }

    /// Ends the copies of these blocks, which are changing, or which the store does not have yet.
    pub(crate) fn end_copies(&mut self, blocks: &RangeInclusive<u64>) {
        self.level.flash.discard_all(blocks);
    }

    /// The slots that were written since this was last called, with their blocks.
    pub(crate) fn take_written(&mut self) -> Vec<(Slot, u64)> {
        self.written.drain().collect()
    }

    /// The copy of a block in a slot is durable on flash, and in the store, if it is still the one
    /// that was [taken](Self::take_written).
    pub(crate) fn enter(&mut self, slot: Slot, block: u64) {
        let is_other = self.written.contains_key(&slot)
            || self.slots.get(&slot).is_some_and(|it| it.is_to_be_written());
        if !is_other && self.level.flash.find(block) == Some(slot) {
            self.level.flash.directory_mut().enter(slot, block);
        }
    }

    /// The two pages of the next commit, if there is news, or if it `must` be made.
    pub(crate) fn commit(&mut self, stamp: Stamp, must: bool) -> Option<[Page; 2]> {
        let directory = self.level.flash.directory_mut();
        let has_news = directory.journal().is_some_and(Journal::has_pending);
        let Commit { journal, table } = (has_news || must).then(|| directory.commit(stamp))??;
        Some([journal, table].map(|(byte, page)| (self.metadata + byte, page)))
    }

    /// The commit is durable. Returns whether there is more for the next one.
    pub(crate) fn committed(&mut self) -> bool {
        self.counters.journal_pages += 2;
        let directory = self.level.flash.directory_mut();
        directory.committed();
        let is_more = directory.journal().is_some_and(Journal::has_pending);
        for slot in std::mem::take(&mut self.held_back) {
            self.begin_write(slot);
        }
        is_more
    }

    /// Whether the next write of a slot must wait for a commit, since what was there still counts
    /// after a restart.
    pub(super) fn holds_back(&mut self, slot: Slot) -> bool {
        let journal = self.level.flash.directory().journal();
        let has_data = |it: &super::InSlot| matches!(it.next, Next::Data(..));
        let waits = journal.is_some_and(|journal| journal.slot_awaits(slot))
            && self.slots.get(&slot).is_some_and(has_data);
        if waits {
            self.held_back.push(slot);
            if self.held_back.len() >= self.staged_max.div_ceil(HELD_BACK_PART) {
                self.wanted.notify_one();
            }
        }
        waits
    }

    /// Whether writes wait or are being made.
    pub(crate) fn is_writing(&self) -> bool {
        self.staged > 0
    }

    /// The level is used no more, and its slots stay as they are.
    pub(crate) fn turn_off(&mut self) {
        self.is_off = true;
        self.level.flash.directory_mut().stop_recording();
        self.level.flash.discard_all(&(0..=u64::MAX));
        let waiting: Vec<Slot> = self.slots.keys().copied().collect();
        waiting.into_iter().for_each(|slot| self.drop_next(slot));
    }
}

impl super::InSlot {
    fn is_to_be_written(&self) -> bool {
        self.writing.is_some() || !matches!(self.next, Next::Nothing)
    }
}

//! A loss: a store that is another server may have lost what it had answered and not made durable.
//!
//! Not here: how sessions are told (`layers/losses.rs`), and what is known of losses
//! (`volume/losses.rs`).

use std::sync::atomic::Ordering;

use crate::shard::Shard;
use crate::shard::content::{Content, State};
use crate::shard::event::Event;
use crate::shard::unflushed::Lost;
use crate::volume::Volume;

impl Volume {
    /// The store may have lost what it had answered and not made durable. Call this without any
    /// lock, before any request reaches the store in its new state.
    pub(crate) fn lost_below(&self) {
        // First, so that requests that end from now on notice the loss.
        self.losses.epoch.fetch_add(1, Ordering::SeqCst);
        self.shards.each().for_each(|mut shard| shard.lost_below());
        self.progress.notify_waiters();
    }
}

impl Shard {
    /// Drops the blocks that the store may have lost, and everything derived from them.
    fn lost_below(&mut self) {
        // Staged data, running reloads, and knowledge of other caches' contents.
        self.blocks.range_begins(&(0..=u64::MAX));
        self.blocks.tell(&Event::ContentsUnknown);
        let Some(unflushed) = &self.blocks.watchers.unflushed else { return };
        let lost = match unflushed.lost() {
            Lost::Blocks(blocks) => blocks,
            Lost::Any => {
                let residents = self.blocks.level.cache().residents().into_iter().map(|one| one.0);
                let mut all: Vec<u64> =
                    residents.chain(self.blocks.active.keys().copied()).collect();
                all.sort_unstable();
                all.dedup();
                all
            }
        };
        for block in lost {
            if let Some(record) = self.blocks.active.get_mut(&block) {
                // Dirty content is written again. Other operations continue: they get what the
                // store has now, or their copy is dropped when they end.
                if !record.is_dirty() {
                    record.state.content = Content::Absent;
                }
            } else if let Some(frame) = self.blocks.level.frame(block) {
                let State { content, dirty } = &self.blocks.slots[frame as usize].state;
                if !content.is_absent() && dirty.is_none() {
                    self.refill(block, frame, Content::Absent);
                    self.blocks.tell(&Event::Gone { block });
                }
            }
        }
    }
}

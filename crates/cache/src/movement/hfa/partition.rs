//! What HFA does at the end of a slot: hotness expires, and the partition between Q1 and Q2 follows
//! how much of each was in the wrong queue.

use super::super::shared::AtHand;
use super::queue::Queue;
use super::{Base, Hfa, Variant};
use crate::Entry;

impl<V: Variant> Hfa<V> {
    /// Once a period: Q1 gives up as many places as it had cold blocks, and gets as many as there
    /// were warm ones in Q2.
    pub(super) fn repartition(&mut self, shared: &mut AtHand<'_>) {
        let period = self.settings.period as f64;
        let level = &mut self.level;
        let shrink = (level.cold_sum as f64 / period - level.warm_sum as f64 / period) as i64;
        if !self.settings.is_dynamic || level.target == 0 {
            return;
        }
        let most = i64::from(level.capacity) - 1;
        level.target = (i64::from(level.target) - shrink).clamp(1, most) as u32;
        while level.hot.len() > level.target {
            let tail = level.hot.tail(&shared.blocks).expect("it is not empty");
            level.pull(shared, tail);
            level.push_base(shared, tail);
        }
        if shrink < 0 {
            self.move_warm_up(shared);
        }
    }

    /// Moves warm blocks from the head of Q2 to the tail of Q1 while there is room for them and Q2
    /// has more than its share.
    fn move_warm_up(&mut self, shared: &mut AtHand<'_>) {
        let level = &mut self.level;
        let share = level.capacity - level.target;
        let room = level.target - level.hot.len();
        let over = level.base.len().saturating_sub(share);
        let wanted = room.min(over).min(level.warm_in_base);
        if wanted == 0 {
            return;
        }
        for entry in level.base.warm_from_head(&shared.blocks, wanted as usize) {
            level.pull(shared, entry);
            level.push_hot(shared, entry, false);
        }
    }

    /// A slot begins: hotness that was found k slots ago or earlier is over.
    pub(super) fn expire(&mut self, shared: &mut AtHand<'_>) {
        // The last reference of the last slot that is that long ago, from 1; 0: there is none.
        let last = (shared.slot() + 1).saturating_sub(self.settings.k) * self.settings.period;
        while let Some(entry) = self.level.expiry.front(&shared.blocks) {
            if shared.blocks.get(entry).updated > last {
                break;
            }
            self.cool(shared, entry);
        }
    }

    /// A block is no longer hot: it stands where a cold one would that was used when it was.
    fn cool(&mut self, shared: &mut AtHand<'_>, entry: Entry) {
        let level = &mut self.level;
        let block = shared.blocks.get_mut(entry);
        block.noted = 0;
        let (is_hot, before) = (block.is_hot, block.heat);
        match (V::BASE, is_hot) {
            // Q1 goes by recency: the block keeps its place.
            (Base::Demote, true) => {
                block.heat = 0.0;
                level.reheat_hot(shared, entry, before);
            }
            (_, true) => {
                level.pull(shared, entry);
                shared.blocks.get_mut(entry).heat = 0.0;
                level.push_hot(shared, entry, true);
            }
            (_, false) => level.cool_base(shared, entry),
        }
    }
}

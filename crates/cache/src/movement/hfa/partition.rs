//! What HFA does at the end of a slot: hotness expires, and the partition between Q1 and Q2 follows
//! how much of each was in the wrong queue.

use super::level::Place;
use super::{Base, Hfa};
use crate::Entry;

impl Hfa {
    /// Once a period: Q1 gives up as many places as it had cold blocks, and gets as many as there
    /// were warm ones in Q2.
    pub(super) fn repartition(&mut self) {
        let period = self.settings.period as f64;
        let level = &mut self.level;
        let shrink = (level.cold_sum as f64 / period - level.warm_sum as f64 / period) as i64;
        (level.cold_sum, level.warm_sum) = (0, 0);
        if !self.settings.is_dynamic || level.target == 0 {
            return;
        }
        let most = i64::from(level.capacity) - 1;
        level.target = (i64::from(level.target) - shrink).clamp(1, most) as u32;
        while self.level.hot.len() > self.level.target {
            let tail = self.level.hot.tail().expect("it is not empty");
            self.pull(tail);
            self.push_base(tail);
        }
        if shrink < 0 {
            self.move_warm_up();
        }
    }

    /// Moves warm blocks from the head of Q2 to the tail of Q1 while there is room for them and Q2
    /// has more than its share.
    fn move_warm_up(&mut self) {
        let level = &self.level;
        let share = level.capacity - level.target;
        let room = level.target - level.hot.len();
        let over = level.base.len().saturating_sub(share);
        let wanted = room.min(over).min(level.warm_in_base);
        if wanted == 0 {
            return;
        }
        let is_warm = |entry: Entry| self.blocks[entry as usize].heat > 0.0;
        for entry in level.base.warm_from_head(wanted as usize, is_warm) {
            self.pull(entry);
            self.blocks[entry as usize].place = Place::Hot;
            let block = self.blocks[entry as usize];
            let key = self.key(&block);
            self.level.push_hot(entry, &block, key, false);
        }
    }

    /// A slot begins: hotness that was found k slots ago or earlier is over.
    pub(super) fn expire(&mut self) {
        while let Some(warm) = self.level.warm.as_mut() {
            let Some(front) = warm.front() else { break };
            let entry = warm.entry_in(front);
            let found = (self.blocks[entry as usize].updated - 1) / self.settings.period;
            if found + self.settings.k > self.slot {
                break;
            }
            self.cool(entry);
        }
    }

    /// A block is no longer hot: it stands where a cold one would that was used when it was.
    fn cool(&mut self, entry: Entry) {
        self.level.forget_warm(entry);
        let is_hot = self.blocks[entry as usize].is_hot();
        if is_hot && self.base == Base::Demote {
            // Q1 goes by recency: the block keeps its place.
            self.blocks[entry as usize].heat = 0.0;
            self.level.cold_in_hot += 1;
            if let Some(hottest) = &mut self.level.hottest {
                hottest.change(entry, 0.0);
            }
            return;
        }
        if !is_hot && self.base != Base::Demote {
            self.blocks[entry as usize].heat = 0.0;
            self.level.warm_in_base -= 1;
            return;
        }
        self.pull(entry);
        self.blocks[entry as usize].heat = 0.0;
        if is_hot { self.push_hot(entry) } else { self.push_base(entry) }
    }
}

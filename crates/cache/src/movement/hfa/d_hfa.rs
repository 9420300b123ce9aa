//! D-HFA: HFA over DEMOTE. Q1 goes by recency, Q2 by hotness. A block found below the first level
//! moves there; what a level gives up goes one level down, and a block that comes down into a Q1
//! sends that queue's hottest block one level up, if it is hotter.
//!
//! The oracle is this scheme told the moves to come: a first pass logs them, a second one takes F
//! from the log. No procedure is published; ours is an approximation, not a bound.

use super::super::link::{Passing, Risen};
use super::Hfa;
use super::level::Hottest;
use crate::Entry;

impl Hfa {
    /// Every block that comes up goes to the client's own cache.
    pub(super) fn takes_at_the_top(&self, passing: Passing) -> bool {
        passing.upper.is_none()
    }

    /// The hottest block of Q1 goes up if it is hotter than the one that came down into Q1 was
    /// then: what came up for that one's victim may have driven it out again.
    pub(super) fn hottest_for(
        &mut self,
        entry: Entry,
        came_with: f64,
        rises: &dyn Fn(u16) -> bool,
    ) -> Option<Risen> {
        let hottest = self.level.hottest.as_mut().and_then(Hottest::first)?;
        if self.now - self.blocks[hottest as usize].updated > self.settings.period {
            self.refresh_hot(hottest);
        }
        if hottest == entry || self.blocks[hottest as usize].heat <= came_with {
            return None;
        }
        let owner = self.blocks[hottest as usize].owner;
        if !rises(owner) {
            return None;
        }
        let load = self.give_up(hottest);
        Some(Risen { entry: hottest, owner, load })
    }

    /// Finds the hotness of a block of a Q1 by recency anew, where it stands.
    fn refresh_hot(&mut self, entry: Entry) {
        let before = self.blocks[entry as usize].heat;
        self.find_heat(entry);
        let block = self.blocks[entry as usize];
        let level = &mut self.level;
        level.cold_in_hot -= u32::from(before == 0.0);
        level.cold_in_hot += u32::from(block.heat == 0.0);
        if let Some(hottest) = &mut level.hottest {
            hottest.change(entry, block.heat);
        }
        level.note_warm(entry, &block);
    }
}

//! D-HFA: HFA over DEMOTE. Q1 goes by recency, Q2 by hotness. A block found below the first level
//! moves there; what a level gives up goes one level down, and a block that comes down into a Q1
//! sends that queue's hottest block one level up, if it is hotter.
//!
//! The oracle is this scheme told the moves to come: a first pass logs them, a second one takes F
//! from the log. No procedure is published; ours is an approximation, not a bound.

use super::super::link::{Passing, Risen};
use super::super::records::Block;
use super::super::shared::AtHand;
use super::level::Hottest;
use super::{Hfa, Variant};
use crate::Entry;

impl<V: Variant> Hfa<V> {
    /// Every block that comes up goes to the client's own cache.
    pub(super) fn takes_at_the_top(&self, passing: Passing) -> bool {
        passing.upper.is_none()
    }

    /// The hottest block of Q1 goes up if it is hotter than the one that came down into Q1 was
    /// then: what came up for that one's victim may have driven it out again.
    pub(super) fn hottest_for(
        &mut self,
        shared: &mut AtHand<'_>,
        entry: Entry,
        came_with: f64,
        rises: &dyn Fn(u16) -> bool,
    ) -> Option<Risen> {
        let hottest = self.level.hottest.as_mut().and_then(Hottest::first)?;
        if shared.now() - shared.blocks.get(hottest).updated > self.settings.period {
            self.refresh_hot(shared, hottest);
        }
        let Block { heat, owner, .. } = *shared.blocks.get(hottest);
        if hottest == entry || heat <= came_with || !rises(owner) {
            return None;
        }
        let load = self.give_up(shared, hottest);
        Some(Risen { entry: hottest, owner, load })
    }

    /// Finds the hotness of a block of a Q1 by recency anew, where it stands.
    fn refresh_hot(&mut self, shared: &mut AtHand<'_>, entry: Entry) {
        let before = shared.blocks.get(entry).heat;
        self.find_heat(shared, entry);
        self.level.reheat_hot(shared, entry, before);
    }
}

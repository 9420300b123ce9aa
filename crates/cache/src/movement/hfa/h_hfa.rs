//! H-HFA: HFA over Hint-K. Q1 goes by hotness, Q2 by the activity of Hint-K. A block found below
//! the first level moves one level up if it is more active than the least active block of the Q2
//! there; a block of which moves are remembered comes into Q1. There is no exchange.

use super::super::link::{Load, Pass, Passing, Upper};
use super::super::shared::AtHand;
use super::{Hfa, Variant};
use crate::Entry;

impl<V: Variant> Hfa<V> {
    /// A block that was found here moves one level up, if it is active enough for that.
    pub(super) fn rise(
        &mut self,
        shared: &mut AtHand<'_>,
        entry: Entry,
        upper: Upper,
    ) -> Option<Load> {
        let value = self.steps.value(shared.blocks.get(entry).history);
        if !upper.bid.has_room && upper.bid.least.is_none_or(|least| value <= least) {
            return None;
        }
        let load = self.give_up(shared, entry);
        Some(Load { history: self.steps.push(load.history, true), ..load })
    }

    /// What moves goes one level up; what comes from the disk goes to the client's own cache.
    pub(super) fn takes_one_level_up(&self, passing: Passing, pass: Pass) -> bool {
        passing.upper.is_none() || matches!(pass, Pass::Moved { .. })
    }
}

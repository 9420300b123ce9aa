//! The invariants of the table, for tests.

use std::sync::atomic::Ordering::Acquire;

use super::{EMPTY, GRANULE, Key, Place, Table};

impl Table<'_> {
    /// Checks the invariants of the table, while no call is running.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn check(&self) -> Result<(), String> {
        let addresses = (0..self.frames.len() / 2).map(|slot| (self.address(slot), slot));
        let mut places: Vec<_> = addresses
            .map(|(place, slot)| (place.load(Acquire), slot))
            .filter(|p| p.0 != 0)
            .collect();
        places.sort_unstable();
        for pair in places.windows(2) {
            let (one, two) = (Place(pair[0].0), Place(pair[1].0));
            if one.space() == two.space() && two.address() - one.address() < GRANULE {
                return Err(format!("frames overlap: {one:x?} and {two:x?}"));
            }
        }
        let mut blocks = std::collections::HashMap::new();
        for &(place, slot) in &places {
            if self.find(Place(place)) != Some(slot) {
                return Err(format!("frame {place:x} is not found"));
            }
            let Some(block) = Key::known(self.block(slot).load(Acquire)) else { continue };
            if let Some(other) = blocks.insert(block.clean(), place) {
                return Err(format!("{block:x?} is in two frames, {other:x} and {place:x}"));
            }
            if self.links.holder(block) != Some(slot) {
                return Err(format!("no link leads to {block:x?}"));
            }
        }
        match (0..self.frames.len() / 2).find(|&slot| {
            self.address(slot).load(Acquire) == 0 && self.block(slot).load(Acquire) != EMPTY
        }) {
            Some(slot) => Err(format!("slot {slot} holds a block and has no address")),
            None => Ok(()),
        }
    }
}

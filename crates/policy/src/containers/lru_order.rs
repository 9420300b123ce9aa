//! The order of entries by their last use, as one log; used by LRU.

use crate::Entry;
use crate::containers::log::{Log, Places};

/// Place of an entry that is not in the order.
const NOWHERE: u32 = u32::MAX;

/// The slot of each entry, or `NOWHERE`.
#[derive(Clone, Debug)]
struct Slots(Vec<u32>);

impl Places for Slots {
    const SLOTS: u32 = 1 << 31;

    #[inline(always)]
    fn is_at(&self, entry: Entry, _: u32, slot: u32) -> bool {
        self.0[entry as usize] == slot
    }

    #[inline(always)]
    fn put(&mut self, entry: Entry, _: u32, slot: u32) {
        self.0[entry as usize] = slot;
    }

    #[inline(always)]
    fn shift(&mut self, entry: Entry, _: u32, from: u32, to: u32) -> bool {
        let slot = &mut self.0[entry as usize];
        let counts = *slot == from;
        *slot = if counts { to } else { *slot };
        counts
    }
}

/// The order of entries `0..entries`. Front: least recently used.
#[derive(Clone, Debug)]
pub(crate) struct LruOrder {
    log: Log,
    places: Slots,
}

impl LruOrder {
    /// An empty order over no entries.
    pub(crate) fn new() -> Self {
        Self { log: Log::new(0, 4), places: Slots(Vec::new()) }
    }

    /// Makes the handles below `entries` valid.
    pub(crate) fn grow(&mut self, entries: u32) {
        let Slots(places) = &mut self.places;
        places.resize(places.len().max(entries as usize), NOWHERE);
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.log.len()
    }

    /// Whether an entry is in the order.
    #[inline(always)]
    pub(crate) fn contains(&self, entry: Entry) -> bool {
        self.places.0[entry as usize] != NOWHERE
    }

    /// A value that depends on the place of `entry`. Reading it early prefetches that place.
    #[inline(always)]
    pub(crate) fn prefetch(&self, entry: Entry) -> u32 {
        self.places.0[entry as usize]
    }

    /// Moves an entry that is in the order to its back.
    #[inline(always)]
    pub(crate) fn renew(&mut self, entry: Entry) {
        debug_assert!(self.contains(entry));
        let slot = std::mem::replace(&mut self.places.0[entry as usize], NOWHERE);
        self.log.renew(&mut self.places, slot, entry, ());
    }

    /// Inserts an entry, which is not in the order, at its back.
    #[inline(always)]
    pub(crate) fn push_back(&mut self, entry: Entry) {
        debug_assert!(!self.contains(entry));
        self.log.push(&mut self.places, entry, ());
    }

    /// Removes an entry from the order.
    #[inline(always)]
    pub(crate) fn remove(&mut self, entry: Entry) {
        debug_assert!(self.contains(entry));
        let slot = std::mem::replace(&mut self.places.0[entry as usize], NOWHERE);
        self.log.remove(slot);
    }

    /// See [`Log::search`].
    pub(crate) fn search(
        &mut self,
        window: u32,
        is_wanted: impl Fn(Entry) -> bool,
    ) -> Option<Entry> {
        self.log.search(&self.places, window, is_wanted)
    }

    /// See [`Log::search_again_from`]; does nothing for an entry that is not in the order.
    pub(crate) fn search_again_from(&mut self, entry: Entry) {
        if self.contains(entry) {
            self.log.search_again_from(&self.places, self.places.0[entry as usize]);
        }
    }

    /// The front; it may then be replaced by [`replace_front`](Self::replace_front).
    #[inline(always)]
    pub(crate) fn front(&mut self) -> Option<Entry> {
        self.log.front(&self.places)
    }

    /// Moves `entry` to the back if it is in the order; otherwise inserts it there in place of
    /// `front`, which [`front`](Self::front) just returned: see [`Log::replace_front`].
    #[inline(always)]
    pub(crate) fn replace_front(&mut self, front: Entry, entry: Entry) {
        let is_in = self.contains(entry);
        let leaves = [front, entry][usize::from(is_in)];
        self.places.0[leaves as usize] = NOWHERE;
        self.log.replace_front(&mut self.places, entry, is_in, ());
    }

    /// From the front to the back.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.log.iter(&self.places).map(|(entry, ())| entry)
    }

    /// Checks the log, and that no other entry claims a slot in it.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.log.check(&self.places)?;
        let placed = self.places.0.iter().filter(|&&slot| slot != NOWHERE).count() as u32;
        let len = self.len();
        if placed == len { Ok(()) } else { Err(format!("order: {placed} placed, {len} counted")) }
    }
}

#[cfg(test)]
mod tests {
    use super::LruOrder;

    /// All operations at random, with positions that wrap around.
    #[test]
    fn agrees_with_a_list() {
        let mut x = 5_u64;
        let mut closed = 0;
        for (entries, capacity, start) in [
            (40, 1, 0),
            (40, 2, u32::MAX - 100),
            (40, 20, 0),
            (40, 39, u32::MAX - 4000),
            (700, 300, u32::MAX - 20_000),
        ] {
            let mut ours = LruOrder::new();
            ours.log.start_at(start);
            ours.grow(entries);
            let mut model: Vec<u32> = Vec::new();
            for step in 0..24_000 {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                // Few entries in some phases: many hits, and a log that fills with stale slots.
                let range = [entries, capacity as u32, 3][step / 1000 % 3];
                let entry = (x >> 33) as u32 % range.max(3);
                let held = model.iter().position(|&e| e == entry);
                assert_eq!(ours.contains(entry), held.is_some());
                if let Some(at) = held {
                    model.remove(at);
                }
                let was_closing = ours.log.is_closing();
                match held {
                    Some(_) if x >> 59 == 0 => ours.remove(entry),
                    _ if held.is_none() && model.len() < capacity => {
                        ours.push_back(entry);
                        model.push(entry);
                    }
                    Some(_) if x >> 62 == 0 => {
                        ours.renew(entry);
                        model.push(entry);
                    }
                    _ => {
                        let front = ours.front().unwrap();
                        ours.replace_front(front, entry);
                        if held.is_none() {
                            assert_eq!(front, model.remove(0));
                        }
                        model.push(entry);
                    }
                }
                closed += u32::from(was_closing && !ours.log.is_closing());
                assert_eq!(ours.len() as usize, model.len());
                if entries == 40 || step % 16 == 0 {
                    assert!(ours.iter().eq(model.iter().copied()));
                    assert_eq!(ours.clone().front(), model.first().copied());
                    ours.check().unwrap();
                }
            }
        }
        assert!(closed > 100, "{closed}");
    }
}

//! Residents and ghosts in tables of their own, which are small compared with a trace's many
//! blocks, and 32 bits for every entry that say where it is. A reference then needs one word of the
//! large array of all entries; the rest is close together.
//!
//! Invariants (checked by [`Memory::check`]): an entry is a ghost exactly if it is in the memory,
//! and then its place is the slot that holds it; at most `max` are remembered.

use super::trail::Trail;
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, EvictionKind, Evictions};

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Unknown,
    /// Resident; the policy chooses the number.
    Resident(u32),
    /// A ghost in this slot of [`Memory`].
    Ghost(u32),
}

/// The place of every entry. Numbers of residents and slots are below 2^31, as entries are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Vec<u32>);

const UNKNOWN: u32 = u32::MAX;
const IS_GHOST: u32 = 1 << 31;

impl Places {
    /// Makes the handles below `entries` valid.
    pub(crate) fn grow(&mut self, entries: u32) {
        self.0.resize(self.0.len().max(entries as usize), UNKNOWN);
    }

    /// Number of valid handles.
    pub(crate) fn entries(&self) -> u32 {
        self.0.len() as u32
    }

    #[inline(always)]
    pub(crate) fn get(&self, entry: Entry) -> Place {
        match self.0[entry as usize] {
            UNKNOWN => Place::Unknown,
            at if at & IS_GHOST != 0 => Place::Ghost(at ^ IS_GHOST),
            at => Place::Resident(at),
        }
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, entry: Entry, place: Place) {
        self.0[entry as usize] = match place {
            Place::Unknown => UNKNOWN,
            Place::Resident(at) => at,
            Place::Ghost(at) => at | IS_GHOST,
        };
    }

    #[inline(always)]
    pub(crate) fn is_resident(&self, entry: Entry) -> bool {
        self.0[entry as usize] & IS_GHOST == 0
    }

    pub(crate) fn is_ghost(&self, entry: Entry) -> bool {
        matches!(self.get(entry), Place::Ghost(_))
    }

    /// The numbers to prefetch for an entry, branch-free since its state is unpredictable: a number
    /// of a resident below `residents`, and a ghost's slot below `slots`; the last one if the entry
    /// has none.
    #[inline(always)]
    pub(crate) fn near(&self, entry: Entry, residents: u32, slots: u32) -> (u32, u32) {
        let at = self.0[entry as usize];
        (at.min(residents - 1), (at ^ IS_GHOST).min(slots - 1))
    }
}

/// A bounded FIFO of ghosts, each with a payload.
#[derive(Clone, Debug)]
pub(crate) struct Memory<T> {
    ghosts: Trail<T>,
    times: f64,
    max: u32,
}

impl<T: Copy + Default> Memory<T> {
    /// At most `times` times the capacity.
    pub(crate) fn new(times: f64, capacity: u32) -> Self {
        Self { ghosts: Trail::new(), times, max: bound(times, capacity) }
    }

    /// An entry was evicted. It becomes the newest ghost, unless the bound is 0.
    #[inline(always)]
    pub(crate) fn evict(
        &mut self,
        places: &mut Places,
        entry: Entry,
        data: T,
        out: &mut Evictions,
    ) {
        out.push(
            entry,
            if self.max > 0 { EvictionKind::Remembered } else { EvictionKind::Evicted },
        );
        self.keep(places, entry, data, out);
    }

    /// Makes an entry the newest ghost; forgets it if the bound is 0.
    #[inline(always)]
    pub(crate) fn keep(&mut self, places: &mut Places, entry: Entry, data: T, out: &mut Evictions) {
        if self.max == 0 {
            return places.set(entry, Place::Unknown);
        }
        self.push(places, entry, data);
        self.trim(places, out);
    }

    /// Removes a ghost. Returns its payload. The caller must set the entry's place.
    #[inline(always)]
    pub(crate) fn recall(&mut self, slot: u32) -> T {
        self.ghosts.remove(slot)
    }

    /// Changes the payload of every ghost.
    #[cold]
    pub(crate) fn update(&mut self, change: impl Fn(T) -> T) {
        self.ghosts.update(change);
    }

    /// Adopts another capacity of the cache, and drops the oldest ghosts beyond the new bound.
    pub(crate) fn resize(&mut self, places: &mut Places, capacity: u32, out: &mut Evictions) {
        self.max = bound(self.times, capacity);
        self.trim(places, out);
    }

    /// Saves or loads the ghosts; `data` saves or loads each payload.
    pub(crate) fn save_load(
        &mut self,
        places: &mut Places,
        snapshot: &mut Snapshot<'_>,
        data: impl FnMut(&mut Snapshot<'_>, &mut T) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        for (entry, data) in snapshot.entries_with(self.ghosts.len(), self.ghosts.iter(), data)? {
            self.push(places, entry, data);
        }
        Ok(())
    }

    #[inline(always)]
    fn push(&mut self, places: &mut Places, entry: Entry, data: T) {
        if self.ghosts.is_full() {
            self.ghosts.make_room(&mut [], |entry, slot| places.set(entry, Place::Ghost(slot)));
        }
        let slot = self.ghosts.push(entry, data);
        places.set(entry, Place::Ghost(slot));
    }

    #[inline(always)]
    fn trim(&mut self, places: &mut Places, out: &mut Evictions) {
        while self.ghosts.len() > self.max {
            if let Some((oldest, _)) = self.ghosts.pop_front() {
                places.set(oldest, Place::Unknown);
                out.push(oldest, EvictionKind::Forgotten);
            }
        }
    }

    /// Number of slots, at least 1.
    #[inline(always)]
    pub(crate) fn slots(&self) -> u32 {
        self.ghosts.slots()
    }

    /// The payload in a slot, or a default. Reading it early prefetches it.
    #[inline(always)]
    pub(crate) fn peek(&self, slot: u32) -> T {
        self.ghosts.peek(slot)
    }

    /// Checks the invariants in the head of this file.
    pub(crate) fn check(&self, places: &Places) -> Result<(), String> {
        self.ghosts.check(|entry| match places.get(entry) {
            Place::Ghost(slot) => Some(slot),
            _ => Some(Entry::MAX),
        })?;
        let placed = (0..places.entries()).filter(|&e| places.is_ghost(e)).count() as u32;
        match self.ghosts.len() {
            len if len > self.max => Err(format!("{len} ghosts, {} allowed", self.max)),
            len if len != placed => Err(format!("{len} ghosts, {placed} places of such")),
            _ => Ok(()),
        }
    }
}

fn bound(times: f64, capacity: u32) -> u32 {
    (times * f64::from(capacity)) as u32
}

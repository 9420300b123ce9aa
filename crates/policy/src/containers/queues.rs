//! Up to four orders of entries, each entry in at most one, for 2Q, ARC and CAR. Lists of residents
//! have the lower numbers, lists of ghosts the higher; the front of each is its oldest end.
//!
//! Each list is a log of uses ([`log`](super::log)): moving an entry is one scattered write, and an
//! entry takes 4 bytes. A list holds fewer than 2^29 entries at a time, whatever the capacity.
//!
//! If a neighbour is known, a list can be searched, from its front on, for entries that the
//! neighbour holds.
//!
//! Invariants (checked by [`Queues::check`]): those of the logs; every entry that names a slot is
//! in that slot.

use crate::containers::log::{Log, Places};
use crate::content_aware::{ContentAware, Neighbour};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::{Entry, EvictionKind, Evictions};

/// Lists that a place can name: their number has two bits. With slots below `SLOTS`, the largest
/// value is never used for a list.
const LISTS: u32 = 4;
const NOWHERE: u32 = u32::MAX;

/// List and slot of each entry.
#[derive(Clone, Debug)]
struct Seats(Vec<u32>);

#[inline(always)]
fn seat(list: u32, slot: u32) -> u32 {
    slot * LISTS + list
}

impl Places for Seats {
    const SLOTS: u32 = 1 << 29;

    #[inline(always)]
    fn is_at(&self, entry: Entry, list: u32, slot: u32) -> bool {
        self.0[entry as usize] == seat(list, slot)
    }

    #[inline(always)]
    fn put(&mut self, entry: Entry, list: u32, slot: u32) {
        self.0[entry as usize] = seat(list, slot);
    }

    #[inline(always)]
    fn shift(&mut self, entry: Entry, list: u32, from: u32, to: u32) -> bool {
        let place = &mut self.0[entry as usize];
        let counts = *place == seat(list, from);
        *place = if counts { seat(list, to) } else { *place };
        counts
    }
}

/// Four lists, some of which may be unused. [`is_below`](Self::is_below) is never asked for the
/// last one.
#[derive(Clone, Debug)]
pub struct Queues {
    logs: [Log; LISTS as usize],
    seats: Seats,
    neighbour: Option<Neighbour>,
}

impl Queues {
    /// Creates empty lists over no entries; see [`Log::new`] for `spreads`.
    pub(crate) fn new(spreads: [u32; LISTS as usize], neighbour: Option<Neighbour>) -> Self {
        let log = |list| Log::new(list as u32, spreads[list]);
        Self { logs: std::array::from_fn(log), seats: Seats(Vec::new()), neighbour }
    }

    /// Makes handles below `entries` valid.
    pub fn grow(&mut self, entries: u32) {
        let Seats(seats) = &mut self.seats;
        seats.resize(seats.len().max(entries as usize), NOWHERE);
        self.neighbour.iter_mut().for_each(|n| n.grow(entries));
    }

    /// Number of entries in `list`.
    #[inline(always)]
    pub fn len(&self, list: u32) -> u32 {
        self.logs[list as usize].len()
    }

    /// Whether `entry` is in `list`.
    #[inline(always)]
    pub(crate) fn is_in(&self, list: u32, entry: Entry) -> bool {
        self.list_of(entry) == Some(list)
    }

    /// Whether `entry` is in a list numbered below `lists`.
    #[inline(always)]
    pub(crate) fn is_below(&self, lists: u32, entry: Entry) -> bool {
        debug_assert!(lists < LISTS);
        self.seats.0[entry as usize] % LISTS < lists
    }

    /// The list that `entry` is in.
    #[inline(always)]
    pub fn list_of(&self, entry: Entry) -> Option<u32> {
        self.seat_of(entry).map(|(list, _)| list)
    }

    /// List and slot of an entry.
    #[inline(always)]
    fn seat_of(&self, entry: Entry) -> Option<(u32, u32)> {
        let seat = self.seats.0[entry as usize];
        (seat != NOWHERE).then_some((seat % LISTS, seat / LISTS))
    }

    /// The oldest entry of `list`.
    #[inline(always)]
    pub fn front(&mut self, list: u32) -> Option<Entry> {
        self.logs[list as usize].front(&self.seats)
    }

    /// The newest entry of `list`.
    pub fn back(&mut self, list: u32) -> Option<Entry> {
        self.logs[list as usize].back(&self.seats)
    }

    /// The entries of `list`, oldest first.
    pub fn iter(&self, list: u32) -> impl Iterator<Item = Entry> {
        self.logs[list as usize].iter(&self.seats).map(|(entry, ())| entry)
    }

    /// Inserts an entry, which is in no list, at the newest end of `list`.
    #[inline(always)]
    pub fn push(&mut self, list: u32, entry: Entry) {
        self.logs[list as usize].push(&mut self.seats, entry, ());
    }

    /// Removes the oldest entry of `list`.
    #[inline(always)]
    pub fn pop(&mut self, list: u32) -> Option<Entry> {
        let oldest = self.logs[list as usize].pop(&self.seats)?;
        self.seats.0[oldest as usize] = NOWHERE;
        Some(oldest)
    }

    /// Removes an entry from its list.
    #[inline(always)]
    pub fn remove(&mut self, entry: Entry) {
        if let Some((list, slot)) = self.seat_of(entry) {
            self.seats.0[entry as usize] = NOWHERE;
            self.logs[list as usize].remove(slot);
        }
    }

    /// Moves an entry of `list` to its newest end.
    #[inline(always)]
    pub(crate) fn renew(&mut self, list: u32, entry: Entry) {
        let slot = self.seats.0[entry as usize] / LISTS;
        self.logs[list as usize].renew(&mut self.seats, slot, entry, ());
    }

    /// Moves an entry to the newest end of `list`, wherever it was. While `list` makes room, the
    /// entry still names its old slot, which does no harm.
    #[inline(always)]
    pub fn shift(&mut self, list: u32, entry: Entry) {
        if let Some((from, slot)) = self.seat_of(entry) {
            self.logs[from as usize].remove(slot);
        }
        self.logs[list as usize].push(&mut self.seats, entry, ());
    }

    /// Moves the oldest resident entry of `list` to the newest end of the list `ghosts`.
    #[inline(always)]
    pub fn evict(&mut self, list: u32, ghosts: u32, out: &mut Evictions) {
        if let Some(victim) = self.pop(list) {
            self.push(ghosts, victim);
            out.push(victim, EvictionKind::Remembered);
        }
    }

    /// Moves a resident entry from its list to the newest end of the list `ghosts`.
    #[inline(never)]
    pub(crate) fn evict_this(&mut self, entry: Entry, ghosts: u32, out: &mut Evictions) {
        self.shift(ghosts, entry);
        out.push(entry, EvictionKind::Remembered);
    }

    /// Drops the oldest entry of the list `ghosts`.
    #[inline(always)]
    pub(crate) fn forget(&mut self, ghosts: u32, out: &mut Evictions) {
        if let Some(ghost) = self.pop(ghosts) {
            out.push(ghost, EvictionKind::Forgotten);
        }
    }

    /// Whether the policy is content-aware.
    #[inline(always)]
    pub(crate) fn is_content_aware(&self) -> bool {
        self.neighbour.is_some()
    }

    /// Adopts another capacity of the cache.
    pub(crate) fn resize(&mut self, capacity: u32) {
        self.neighbour.iter_mut().for_each(|n| n.resize(capacity));
    }

    /// The first entry within the window that the neighbour holds. Order of the victims: `excess`
    /// entries of `first`, then all of `second`, then the rest of `first`.
    #[inline(never)]
    pub(crate) fn prefer(&mut self, first: u32, excess: u32, second: u32) -> Option<Entry> {
        let Self { logs, seats, neighbour } = self;
        let neighbour = neighbour.as_ref()?;
        let [excess, others] =
            [excess.min(logs[first as usize].len()), logs[second as usize].len()];
        let excess = excess.min(neighbour.window());
        let rest = (neighbour.window() - excess).saturating_sub(others);
        let parts =
            [(first, excess), (second, neighbour.window() - excess), (first, excess + rest)];
        parts.into_iter().find_map(|(list, window)| {
            logs[list as usize].search(seats, window, |entry| neighbour.has(entry))
        })
    }

    /// The result of [`prefer`](Self::prefer), computed without changing anything. O(capacity).
    pub(crate) fn would_prefer(&self, first: u32, excess: u32, second: u32) -> Option<Entry> {
        let rest = self.iter(first).skip(excess as usize);
        let order = self.iter(first).take(excess as usize).chain(self.iter(second)).chain(rest);
        self.neighbour.as_ref().and_then(|n| n.first_held(order))
    }

    /// See [`Policy::content_aware`](crate::Policy::content_aware).
    pub(crate) fn content_aware(&mut self) -> Option<&mut dyn ContentAware> {
        if self.is_content_aware() { Some(self) } else { None }
    }

    /// See [`Policy::prefetch`](crate::Policy::prefetch).
    #[inline(always)]
    pub(crate) fn prefetch(&self, entry: Entry) -> u32 {
        self.seats.0[entry as usize]
    }

    /// Saves or loads `list`.
    pub(crate) fn save_load(
        &mut self,
        list: u32,
        snapshot: &mut Snapshot<'_>,
    ) -> Result<(), SnapshotError> {
        let entries = snapshot.entries(self.len(list), self.iter(list))?;
        entries.into_iter().for_each(|entry| self.push(list, entry));
        Ok(())
    }

    /// Checks the invariants in the head of this file.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.logs.iter().try_for_each(|log| log.check(&self.seats))?;
        let seated = self.seats.0.iter().filter(|&&seat| seat != NOWHERE).count() as u32;
        let len: u32 = self.logs.iter().map(Log::len).sum();
        if seated == len { Ok(()) } else { Err(format!("{seated} say where, {len} are there")) }
    }
}

impl ContentAware for Queues {
    fn neighbour_holds(&mut self, entry: Entry, holds: bool) {
        if self.neighbour.as_mut().is_some_and(|n| n.set(entry, holds)) {
            if let Some((list, slot)) = self.seat_of(entry) {
                self.logs[list as usize].search_again_from(&self.seats, slot);
            }
        }
    }

    fn neighbour_has(&self, entry: Entry) -> bool {
        self.neighbour.as_ref().is_some_and(|n| n.has(entry))
    }
}

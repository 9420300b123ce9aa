//! The lists of [`queues`](super::queues) as logs of uses: an entry that moves is one scattered
//! write, 4 bytes an entry in all. No marks, and no neighbour to ask.
//!
//! Invariants (checked by [`Logs::check`]): those of the logs; all entries that say where they are
//! are there.

use super::Entry;
use super::queues::Orders;
use crate::log::{Log, Places};

/// Lists that places can tell apart: their number has two bits, and with slots below `SLOTS` the
/// largest value is none of a list's.
const LISTS: u32 = 4;
const NOWHERE: u32 = u32::MAX;

/// Slot and list of each entry.
#[derive(Clone)]
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

/// Four lists, not all of which need be used. The last is never among those that
/// [`is_below`](Orders::is_below) is asked about.
#[derive(Clone)]
pub(super) struct Logs {
    logs: [Log; LISTS as usize],
    seats: Seats,
}

impl Logs {
    /// Whether one list can have so many entries. Linked lists can have more.
    pub(super) fn have_room_for(entries: f64) -> bool {
        entries < f64::from(Seats::SLOTS)
    }

    /// Empty lists; see [`Log::new`] for `spreads`.
    pub(super) fn new(spreads: [u32; LISTS as usize]) -> Self {
        let log = |list| Log::new(list as u32, spreads[list]);
        Self { logs: std::array::from_fn(log), seats: Seats(Vec::new()) }
    }
}

impl Orders for Logs {
    const IS_AWARE: bool = false;

    fn grow(&mut self, entries: u32) {
        let Seats(seats) = &mut self.seats;
        seats.resize(seats.len().max(entries as usize), NOWHERE);
    }

    #[inline(always)]
    fn len(&self, list: u32) -> u32 {
        self.logs[list as usize].len()
    }

    #[inline(always)]
    fn is_in(&self, list: u32, entry: Entry) -> bool {
        self.list_of(entry) == Some(list)
    }

    #[inline(always)]
    fn is_below(&self, lists: u32, entry: Entry) -> bool {
        debug_assert!(lists < LISTS);
        self.seats.0[entry as usize] % LISTS < lists
    }

    #[inline(always)]
    fn list_of(&self, entry: Entry) -> Option<u32> {
        let seat = self.seats.0[entry as usize];
        (seat != NOWHERE).then_some(seat % LISTS)
    }

    fn front(&self, list: u32) -> Option<Entry> {
        self.iter(list).next()
    }

    fn iter(&self, list: u32) -> impl Iterator<Item = Entry> {
        self.logs[list as usize].iter(&self.seats).map(|(entry, ())| entry)
    }

    #[inline(always)]
    fn push(&mut self, list: u32, entry: Entry) {
        self.logs[list as usize].push(&mut self.seats, entry, ());
    }

    #[inline(always)]
    fn pop(&mut self, list: u32) -> Option<Entry> {
        let log = &mut self.logs[list as usize];
        let oldest = log.front(&self.seats)?;
        log.left();
        self.seats.0[oldest as usize] = NOWHERE;
        Some(oldest)
    }

    #[inline(always)]
    fn remove(&mut self, entry: Entry) {
        if let Some(list) = self.list_of(entry) {
            self.seats.0[entry as usize] = NOWHERE;
            self.logs[list as usize].left();
        }
    }

    #[inline(always)]
    fn renew(&mut self, list: u32, entry: Entry) {
        self.logs[list as usize].renew(&mut self.seats, entry, ());
    }

    /// While `list` makes room the entry still says that it is where it was, which does no harm.
    #[inline(always)]
    fn shift(&mut self, list: u32, entry: Entry) {
        if let Some(from) = self.list_of(entry) {
            self.logs[from as usize].left();
        }
        self.logs[list as usize].push(&mut self.seats, entry, ());
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.seats.0[entry as usize]
    }

    fn warm_further(&self, _: Entry) -> u32 {
        0
    }

    fn check(&self) -> Result<(), String> {
        self.logs.iter().try_for_each(|log| log.check(&self.seats))?;
        let seated = self.seats.0.iter().filter(|&&seat| seat != NOWHERE).count() as u32;
        let len: u32 = self.logs.iter().map(Log::len).sum();
        if seated == len { Ok(()) } else { Err(format!("{seated} say where, {len} are there")) }
    }
}

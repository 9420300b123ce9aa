//! What MQ asks of its queues. [`Linked`](super::linked::Linked) and
//! [`Logged`](super::logged::Logged) do the same; the one can ask a neighbour, the other is faster.
//!
//! Invariants (checked by [`Queues::check`]): an entry is in the queue that it names, if any.

use super::super::ghosts::GhostList;
use crate::Entry;

/// The queue of an entry that is in none: above all others.
pub(super) const NOWHERE: u32 = u8::MAX as u32;

/// What is known of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uses {
    /// Number of references; none, if nothing is known.
    pub(super) count: u32,
    /// When it was last referenced.
    pub(super) last: u64,
}

/// `Q_0` to `Q_(m-1)`, and `Q_out` as queue `m`; heads at the front.
pub(super) trait Queues: GhostList + Clone + Send + 'static {
    /// Whether there is a neighbour to know of.
    const IS_AWARE: bool;

    /// Times up to this can be kept.
    const TIME_MAX: u64;

    /// Number of queues of residents.
    fn m(&self) -> u32;

    /// Makes handles below `entries` valid.
    fn grow(&mut self, entries: u32);

    /// Number of valid handles.
    fn entries(&self) -> u32;

    /// The queue that an entry is in, or `NOWHERE`.
    fn queue_of(&self, entry: Entry) -> u32;

    /// What is known of an entry.
    fn uses(&self, entry: Entry) -> Uses;

    /// Changes it.
    fn set_uses(&mut self, entry: Entry, uses: Uses);

    /// Puts an entry that is in no queue at the tail of one, with the time when it would fall from
    /// there. `Q_out` knows no such time.
    fn push(&mut self, queue: u32, entry: Entry, expire_time: u64);

    /// Takes an entry out of its queue. True if it may have been the head.
    fn remove(&mut self, entry: Entry) -> bool;

    /// Moves an entry to the tail of the queue of residents that it is in. True if it may have been
    /// the head.
    fn renew(&mut self, entry: Entry, expire_time: u64) -> bool {
        let queue = self.queue_of(entry);
        let was_head = self.remove(entry);
        self.push(queue, entry, expire_time);
        was_head
    }

    /// The head of a queue of residents, and when it would fall.
    fn front(&mut self, queue: u32) -> Option<(Entry, u64)>;

    /// A queue from its head on, with the times when each would fall.
    fn iter(&self, queue: u32) -> impl Iterator<Item = (Entry, u64)>;

    /// Of the residents from the lowest head on, the one that the neighbour holds, if one is to be
    /// preferred.
    #[inline(always)]
    fn prefer(&mut self) -> Option<Entry> {
        None
    }

    /// What [`prefer`](Self::prefer) would return, found without changing anything.
    fn would_prefer(&self) -> Option<Entry> {
        None
    }

    /// See [`Neighbour::adopt`](super::super::neighbour::Neighbour::adopt).
    fn adopt(&mut self, _capacity: u32) {}

    /// See [`Neighbour::learn`](super::super::neighbour::Neighbour::learn).
    fn learn(&mut self, _entry: Entry, _holds: bool) {}

    /// See [`Neighbour::has`](super::super::neighbour::Neighbour::has).
    fn neighbour_has(&self, _entry: Entry) -> bool {
        false
    }

    /// See [`Policy::warm`](crate::Policy::warm).
    fn warm(&self, entry: Entry) -> u32;

    /// See [`Policy::warm_further`](crate::Policy::warm_further).
    fn warm_further(&self, _entry: Entry) -> u32 {
        0
    }

    /// Checks the invariant in the head of this file.
    fn check(&self) -> Result<(), String>;
}

//! The contents of frames that are about to be overwritten, in shared memory, until the sender has
//! taken them. There are [`SLOTS`] slots of one granule each. If all are in use, the content is not
//! kept, and the eviction is reported without it.
//!
//! A slot is claimed by a number that is used once, its *ticket*. The ticket travels with the
//! record of the eviction. The sender uses the content only if the slot still has that ticket. So a
//! slot whose process was killed can be given to another one without harm.
//!
//! Not here: whether the content is that of the block on the volume. The server decides that.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::segment::Segment;
use crate::segment::layout::{NEXT_TICKET, SLOT, SLOTS};
use crate::table::{GRANULE, Head};

/// Slots that a call looks at to find a free one.
const TRIES: usize = 4;

/// A slot that was claimed this long ago, in microseconds, is free again: its process was killed,
/// or its read takes so long that the content is of no use.
const TOO_OLD_US: u64 = 10_000_000;

/// Words of a granule.
const WORDS: usize = GRANULE as usize / 8;
/// The words of a slot: its ticket or 0, when it was claimed, and the content.
const TICKET: usize = 0;
const CLAIMED: usize = 1;
const CONTENT: usize = SLOT - WORDS;

/// A claimed slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

impl Ticket {
    /// Encodes the ticket; never 0.
    pub fn word(self) -> u64 {
        self.0
    }

    /// Decodes a ticket; `None` from 0.
    pub fn from_word(word: u64) -> Option<Ticket> {
        (word != 0).then_some(Ticket(word))
    }

    fn slot(self) -> usize {
        self.0 as usize % SLOTS
    }
}

/// The contents of a segment.
#[derive(Clone, Copy)]
pub struct Contents<'a> {
    words: &'a [AtomicU64],
    next: &'a AtomicU64,
}

impl<'a> Contents<'a> {
    /// The contents of a segment, which must have been allocated ([`Segment::fill_contents`]).
    pub fn new(segment: &'a Segment) -> Contents<'a> {
        let words = segment.map().words(segment.layout().contents());
        Contents { words, next: segment.word(NEXT_TICKET) }
    }

    fn slot(&self, slot: usize) -> &'a [AtomicU64] {
        &self.words[slot * SLOT..(slot + 1) * SLOT]
    }

    /// Claims a slot, if one of a few is free.
    pub fn claim(&self, now_us: u64) -> Option<Ticket> {
        for _ in 0..TRIES {
            let ticket = Ticket(self.next.fetch_add(1, Relaxed) + 1);
            let slot = self.slot(ticket.slot());
            if slot[TICKET].compare_exchange(0, ticket.0, AcqRel, Relaxed).is_ok() {
                slot[CLAIMED].store(now_us, Release);
                return Some(ticket);
            }
        }
        None
    }

    /// The memory of a claimed slot.
    pub fn content(&self, ticket: Ticket) -> &'a [AtomicU64] {
        &self.slot(ticket.slot())[CONTENT..]
    }

    /// Overwrites the beginning of a content.
    pub(crate) fn set_head(&self, ticket: Ticket, head: &Head) {
        for (word, &value) in self.content(ticket).iter().zip(head) {
            word.store(value, Relaxed);
        }
    }

    /// Makes a slot free, if it still has this ticket.
    pub fn free(&self, ticket: Ticket) {
        let _ = self.slot(ticket.slot())[TICKET].compare_exchange(ticket.0, 0, AcqRel, Relaxed);
    }

    /// Takes a content and frees its slot. Returns false if the slot has another ticket by now;
    /// then `into` is undefined.
    pub fn take(&self, ticket: Ticket, into: &mut [u8; GRANULE as usize]) -> bool {
        let slot = self.slot(ticket.slot());
        if slot[TICKET].load(Acquire) != ticket.0 {
            return false;
        }
        for (bytes, word) in into.chunks_exact_mut(8).zip(&slot[CONTENT..]) {
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
        }
        slot[TICKET].compare_exchange(ticket.0, 0, AcqRel, Relaxed).is_ok()
    }

    /// Frees the slots that were claimed too long ago.
    pub fn free_old(&self, now_us: u64) {
        for slot in self.words.chunks_exact(SLOT) {
            let (ticket, claimed) = (slot[TICKET].load(Acquire), slot[CLAIMED].load(Acquire));
            if ticket != 0 && now_us.saturating_sub(claimed) > TOO_OLD_US {
                let _ = slot[TICKET].compare_exchange(ticket, 0, AcqRel, Relaxed);
            }
        }
    }

    /// Number of slots in use.
    pub fn len(&self) -> usize {
        let in_use = |slot: &&[AtomicU64]| slot[TICKET].load(Relaxed) != 0;
        self.words.chunks_exact(SLOT).filter(in_use).count()
    }

    /// Whether no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

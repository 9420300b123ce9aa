//! Frames that the program has freed and not used again yet. A database that evicts ahead marks
//! such frames. A look at the marks shows the evictions before the next reads into the frames do.
//! Many would otherwise be noticed when the block is read again, which is too late.
//!
//! The looks are at pages of pools ([`crate::pools`]) in the memory of the first process, by the
//! kernel, so that memory which has gone does no harm.

use std::ops::Range;

use bytes::Bytes;

use crate::clock::{cpu_us, now_us};
use crate::own_memory::read_scattered;
use crate::pools::{Pool, Pools};
use crate::record::Record;
use crate::segment::Count;
use crate::table::{GRANULE, Place, Table};
use crate::tracker::Tracker;

/// How a database marks the frames that it frees.
struct Mark {
    /// Bytes of a page, a multiple of a granule.
    page: u64,
    /// These bytes of a page are all 0xff.
    filled: &'static [Range<usize>],
}

/// The marks that are known.
const MARKS: [Mark; 1] = [
    // InnoDB (`buf_LRU_block_remove_hashed`) fills page number and tablespace. Pages of its default
    // size; of larger ones the first 16 KiB are found, of smaller ones those at a multiple of it.
    Mark { page: 16 << 10, filled: &[4..8, 34..38] },
];

/// Bytes of a page that are looked at.
const LOOK: usize = 40;
/// Pages looked at together.
const TOGETHER: usize = 1024;
/// Least interval between looks at all pages, in microseconds.
const INTERVAL_US: u64 = 10_000;
/// All looks take at most one part in this many of a processor's time.
const SHARE: u64 = 60;
/// Most granules whose contents one look takes: 16 MiB. A database that drops a large table frees
/// very many frames at once.
const CONTENTS_MAX: usize = 4096;
/// If nothing was found for this long, looks are `RARELY_US` apart.
const VAIN_US: u64 = 60_000_000;
const RARELY_US: u64 = 2_000_000;

/// A granule that left its frame, with its content if that is to be handed over.
pub(super) type Left = (Record, Option<Bytes>);

/// The looks, and when the next one is due.
#[derive(Default)]
pub(super) struct Freed {
    due_us: u64,
    /// Reads at the last look.
    reads: u64,
    /// When something was found last; at first when the first look was taken.
    found_us: u64,
    seen: Vec<u8>,
    addresses: Vec<u64>,
}

impl Freed {
    /// Takes a look if it is due: what has left frames, in no particular order.
    pub(super) fn take(&mut self, tracker: &Tracker, left: &mut Vec<Left>) {
        let (segment, now) = (tracker.segment(), now_us());
        let reads = segment.counted(Count::Reads) + segment.counted(Count::AsyncReads);
        if now < self.due_us || reads == self.reads || !tracker.memory().is_first_process() {
            return;
        }
        self.reads = reads;
        let (before, began) = (left.len(), cpu_us());
        for pool in Pools::new(segment).list() {
            MARKS.iter().for_each(|mark| self.look(tracker, &pool, mark, now, left));
        }
        if left.len() > before || self.found_us == 0 {
            self.found_us = now;
        }
        let took = cpu_us().saturating_sub(began);
        let pause = INTERVAL_US.max(took.saturating_mul(SHARE));
        let is_vain = now.saturating_sub(self.found_us) > VAIN_US;
        self.due_us = now + if is_vain { pause.max(RARELY_US) } else { pause };
    }

    fn look(
        &mut self,
        tracker: &Tracker,
        pool: &Pool,
        mark: &Mark,
        now: u64,
        left: &mut Vec<Left>,
    ) {
        let pages = (pool.start..pool.end).step_by(mark.page as usize);
        let mut pages = pages.filter(|page| pool.end - page >= mark.page);
        self.seen.resize(TOGETHER * LOOK, 0);
        loop {
            self.addresses.clear();
            self.addresses.extend(pages.by_ref().take(TOGETHER));
            if self.addresses.is_empty() {
                return;
            }
            let mut rest = &self.addresses[..];
            while !rest.is_empty() {
                let count = read_scattered(rest, LOOK, &mut self.seen);
                for (page, seen) in rest.iter().zip(self.seen.chunks_exact(LOOK)).take(count) {
                    let filled =
                        |bytes: &Range<usize>| seen[bytes.clone()].iter().all(|byte| *byte == 0xff);
                    if mark.filled.iter().all(filled) {
                        evict(tracker, *page, mark, now, left);
                    }
                }
                // What follows memory that is not there is looked at by itself.
                rest = &rest[(count + 1).min(rest.len())..];
            }
        }
    }
}

/// Takes a page that was freed out of the table.
fn evict(tracker: &Tracker, page: u64, mark: &Mark, now: u64, left: &mut Vec<Left>) {
    let table = Table::new(tracker.segment());
    let held = |n| table.held(Place::new(0, page + n * GRANULE)?);
    let Some((first, _)) = held(0).filter(|(first, _)| {
        // Otherwise the frame holds a part of another page.
        first.granule() % (mark.page / GRANULE) == 0
    }) else {
        return;
    };
    for n in 0..mark.page / GRANULE {
        let Some((block, head)) = held(n) else { continue };
        if block.clean().word() != first.clean().word() + n {
            continue;
        }
        let Some(place) = Place::new(0, page + n * GRANULE) else { continue };
        let head = head.filter(|_| left.len() < CONTENTS_MAX);
        let content = head.and_then(|head| tracker.content_of(place, block, &head));
        // A read into the frame may have been faster; then it reports the eviction.
        if let Some(old) = table.take(place, block) {
            let record = Record { first: old, count: 1, late: false, time_us: now, content: None };
            left.push((record, content));
            tracker.count(Count::Evictions, 1);
        }
    }
}

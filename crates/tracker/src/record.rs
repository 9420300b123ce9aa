//! What leaves the table at one call, as records for the ring, with the contents that were kept of
//! it.

use std::sync::atomic::Ordering::{AcqRel, Acquire};

use rustix::thread::futex;

use crate::calls::{self, Call, CallKind};
use crate::contents::Ticket;
use crate::filter;
use crate::kept::Kept;
use crate::own_memory::head_at;
use crate::pools::Pools;
use crate::ring::Ring;
use crate::segment::{Count, Segment};
use crate::table::{GRANULE, Head, Key, Place, Sink, Table};
use crate::tracker::Tracker;

/// A range of a file, and the memory that it is read into or written from.
pub(crate) struct Piece {
    pub(crate) file: u32,
    pub(crate) offset: u64,
    pub(crate) space: u16,
    pub(crate) address: u64,
    pub(crate) length: u64,
}

impl Piece {
    /// Bytes before the first whole granule of the file, and the number of whole granules.
    fn whole(&self) -> (u64, u64) {
        let before = self.offset.wrapping_neg() % GRANULE;
        (before.min(self.length), self.length.saturating_sub(before) / GRANULE)
    }

    /// The whole granules, with their addresses in memory.
    fn granules(&self) -> impl Iterator<Item = (Place, Key)> + use<> {
        let (before, count) = self.whole();
        let (file, space) = (self.file, self.space);
        let first = (self.offset + before) / GRANULE;
        let address = self.address.saturating_add(before);
        (0..count).filter_map(move |n| {
            let place = Place::new(space, address.saturating_add(n * GRANULE))?;
            Some((place, Key::new(file, first.checked_add(n)?)?))
        })
    }
}

/// The second word of a record: number of granules, whether they are late, and the time.
const RUN_BITS: u32 = 15;
const RUN_MAX: u64 = (1 << RUN_BITS) - 1;
const LATE: u64 = 1 << RUN_BITS;
const TIME_SHIFT: u32 = 16;

/// Consecutive granules of one file that left at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) first: Key,
    pub(crate) count: u64,
    pub(crate) late: bool,
    pub(crate) time_us: u64,
    /// The content, if it was kept. Such a record is of one granule.
    pub(crate) content: Option<Ticket>,
}

impl Record {
    fn words(&self) -> [u64; 3] {
        let late = if self.late { LATE } else { 0 };
        let content = self.content.map_or(0, Ticket::word);
        [self.first.word(), self.count | late | self.time_us << TIME_SHIFT, content]
    }

    /// Notes it for a recorder, unless it comes too late to say when the granules left.
    pub(crate) fn note(&self, segment: &Segment) {
        if !self.late {
            let (file, offset) = (self.first.file(), self.first.granule() * GRANULE);
            let (length, time_us) = (self.count * GRANULE, self.time_us);
            calls::note(segment, Call { kind: CallKind::Evicted, file, offset, length, time_us });
        }
    }

    fn from_words(words: [u64; 3]) -> Record {
        Record {
            first: Key::from_word(words[0]),
            count: words[1] & RUN_MAX,
            late: words[1] & LATE != 0,
            time_us: words[1] >> TIME_SHIFT,
            content: Ticket::from_word(words[2]),
        }
    }
}

/// A granule that will be read into a frame by an asynchronous call. Its head can be taken when the
/// call has ended, which cannot be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadDue {
    pub(crate) place: Place,
    pub(crate) block: Key,
    pub(crate) time_us: u64,
}

/// What the ring carries.
pub(crate) enum Item {
    Left(Record),
    HeadDue(HeadDue),
}

impl Item {
    pub(crate) fn from_words(words: [u64; 3]) -> Item {
        // A record of no granules is a head that is due.
        if words[1] & RUN_MAX != 0 {
            return Item::Left(Record::from_words(words));
        }
        let (place, block) = (Place::from_word(words[0]), Key::from_word(words[2]));
        Item::HeadDue(HeadDue { place, block, time_us: words[1] >> TIME_SHIFT })
    }
}

/// Collects what leaves the table at one call, and pushes it to the ring as runs.
pub(crate) struct Records<'a> {
    tracker: &'a Tracker,
    table: Table<'a>,
    time_us: u64,
    /// What was kept of the frames that this call overwrites.
    kept: &'a mut Kept,
    run: Option<Record>,
    pushed: bool,
    counts: [(Count, u64); 8],
}

const EVICTIONS: usize = 0;
const LATES: usize = 1;
const NO_FRAMES: usize = 2;
const OVERFLOWS: usize = 3;
const DROPS: usize = 4;
const PARTS: usize = 5;
const MADE: usize = 6;

impl<'a> Records<'a> {
    /// For a call that is counted as `what`.
    #[inline]
    pub(crate) fn new(tracker: &'a Tracker, what: Count, time_us: u64, kept: &'a mut Kept) -> Self {
        let counts = [
            (Count::Evictions, 0),
            (Count::Late, 0),
            (Count::NoFrame, 0),
            (Count::Overflowed, 0),
            (Count::Dropped, 0),
            (Count::Partial, 0),
            (Count::Made, 0),
            (what, 1),
        ];
        let table = Table::new(tracker.segment());
        Records { tracker, table, time_us, kept, run: None, pushed: false, counts }
    }

    /// A piece was read; `is_async`: it will be.
    pub(crate) fn read(&mut self, piece: &Piece, too_long: bool, is_async: bool) {
        let (before, whole) = piece.whole();
        let table = self.table;
        if too_long || whole == 0 {
            self.counts[PARTS].1 += 1;
            return table.clear(piece.space, piece.address, piece.length, self);
        }
        if before > 0 {
            table.clear(piece.space, piece.address, before, self);
        }
        let wants_heads = self.tracker.wants_contents();
        for (place, block) in piece.granules() {
            table.read(place, block, self);
            if wants_heads && is_async {
                table.set_head(place, block, None);
                self.head_is_due(place, block);
            } else if wants_heads {
                table.set_head(place, block, head(place));
            }
        }
        let done = before + whole * GRANULE;
        if done < piece.length {
            let address = piece.address.saturating_add(done);
            table.clear(piece.space, address, piece.length - done, self);
        }
    }

    /// A piece was written; `is_async`: it is about to be.
    pub(crate) fn write(&mut self, piece: &Piece, is_async: bool) {
        let (table, pools) = (self.table, Pools::new(self.tracker.segment()));
        let in_pool = piece.space == 0 && pools.has_page(piece.address, piece.length, piece.offset);
        let wants_heads = self.tracker.wants_contents();
        for (place, block) in piece.granules() {
            table.write(place, block, in_pool, self);
            if wants_heads {
                let permit = if is_async { filter::may_call() } else { None };
                let own = match (is_async, permit) {
                    (false, _) => head(place),
                    (true, Some(_permit)) => self.tracker.head_of(place),
                    (true, None) => None,
                };
                table.set_head(place, block, own);
            }
        }
    }

    fn add(&mut self, block: Key, late: bool, content: Option<Ticket>) {
        if let (Some(run), None) = (&mut self.run, content) {
            let next = run.first.word().wrapping_add(run.count);
            let is_alike = run.late == late && run.content.is_none();
            if is_alike && next == block.word() && run.count < RUN_MAX {
                run.count += 1;
                return;
            }
        }
        let run = Record { first: block, count: 1, late, time_us: self.time_us, content };
        if let Some(done) = self.run.replace(run) {
            self.push(done);
        }
    }

    fn head_is_due(&mut self, place: Place, block: Key) {
        let words = [place.word(), self.time_us << TIME_SHIFT, block.word()];
        // If the ring is full, the page will leave without its content.
        self.pushed |= Ring::new(self.tracker.segment()).push(words);
    }

    fn push(&mut self, run: Record) {
        self.pushed = true;
        run.note(self.tracker.segment());
        if !Ring::new(self.tracker.segment()).push(run.words()) {
            self.counts[DROPS].1 += 1;
            self.tracker.free_content(run.content);
        }
    }

    pub(crate) fn finish(mut self) {
        if let Some(run) = self.run.take() {
            self.push(run);
        }
        self.tracker.free(self.kept);
        let asleep = self.tracker.segment().asleep();
        if self.pushed && asleep.load(Acquire) == 1 {
            // Without a permit the sender wakes up by itself.
            if let Some(_permit) = filter::may_call() {
                if asleep.swap(0, AcqRel) == 1 {
                    let _ = futex::wake(asleep, futex::Flags::empty(), 1);
                }
            }
        }
        let stripe = self.tracker.stripe();
        for (count, by) in self.counts.into_iter().filter(|(_, by)| *by > 0) {
            self.tracker.segment().count(count, stripe, by);
        }
    }
}

/// The head of a granule that the program's call has just moved.
fn head(place: Place) -> Option<Head> {
    // SAFETY: records are made after a synchronous call has succeeded with this memory.
    unsafe { head_at(place.address()) }
}

impl Sink for Records<'_> {
    fn evicted(&mut self, block: Key) {
        self.counts[EVICTIONS].1 += 1;
        let content = self.kept.take(block);
        self.add(block, false, content);
    }

    fn late(&mut self, block: Key) {
        self.counts[LATES].1 += 1;
        self.add(block, true, None);
    }

    fn made(&mut self) {
        self.counts[MADE].1 += 1;
    }

    fn no_frame(&mut self) {
        self.counts[NO_FRAMES].1 += 1;
    }

    fn overflowed(&mut self) {
        self.counts[OVERFLOWS].1 += 1;
    }
}

//! Where a volume's requests pass: notes references to the blocks of a sample. For a block that is
//! not in the sample this takes a hash and a comparison. Notes go to memory that is there already;
//! when it is full, a whole stretch is left out until the notes are taken, and the reads in it are
//! counted.

use std::mem::replace;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use undercroft_adviser::{Event, Kind, Sample};
use undercroft_level::ClientEviction;
use undercroft_nbd::{Command, Request};

use crate::geometry::Geometry;
use crate::lock::sleep_lock;
use crate::volume::clients::Caller;

/// Notes that fit.
pub(crate) const NOTES: usize = 1 << 14;

/// Bytes of notes: those being taken in, and those being made.
pub(crate) const NOTES_BYTES: u64 = (2 * NOTES * size_of::<Event>()) as u64;

/// Most blocks of one TRIM that are noted. Those of a larger one leave the miniature caches by
/// themselves.
const TRIMMED_MAX: u64 = 1024;

/// Notes what happens to the blocks of a sample.
pub(crate) struct Tap {
    is_open: AtomicBool,
    /// Whether there was anything to note, open or not.
    was_used: AtomicBool,
    /// Of the [sample](Sample).
    threshold: AtomicU64,
    seed: u64,
    /// Whether the volume refuses changes.
    is_read_only: bool,
    /// Blocks read so far, in the sample or not.
    reads: AtomicU64,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    events: Vec<Event>,
    /// The reads up to the last event.
    reads: u64,
    /// Whether events have been left out since.
    is_full: bool,
}

/// What was noted.
pub(crate) struct Taken {
    pub(crate) events: Vec<Event>,
    /// Reads behind the last event.
    pub(crate) reads: u64,
    /// Whether events were left out after those, and the reads with them.
    pub(crate) is_skipped: bool,
}

impl Tap {
    /// A closed tap. `seed` makes the sample unpredictable for clients.
    pub(crate) fn new(seed: u64, is_read_only: bool) -> Self {
        let (is_open, was_used, threshold, reads, notes) = Default::default();
        Self { is_open, was_used, threshold, seed, is_read_only, reads, notes }
    }

    /// Whether a client has asked for anything so far. Until then nobody needs advice.
    pub(crate) fn was_used(&self) -> bool {
        self.was_used.load(Ordering::Relaxed)
    }

    /// Notes that the tap is used. Returns whether it is open.
    fn used(&self) -> bool {
        let is_open = self.is_open.load(Ordering::Relaxed);
        if !is_open && !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
        is_open
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Notes what is in this sample from now on. `memory`: for the notes; at least [`NOTES`] fit.
    pub(crate) fn open(&self, sample: Sample, memory: Vec<Event>) {
        let mut notes = sleep_lock(&self.notes);
        let reads = self.reads.load(Ordering::Relaxed);
        *notes = Notes { events: memory, reads, is_full: false };
        self.threshold.store(sample.threshold(), Ordering::Relaxed);
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Notes nothing any more.
    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::Relaxed);
        *sleep_lock(&self.notes) = Notes::default();
    }

    /// Takes what was noted; `memory` is for the next notes.
    pub(crate) fn take(&self, memory: Vec<Event>) -> Taken {
        let mut notes = sleep_lock(&self.notes);
        let reads = self.reads.load(Ordering::Relaxed);
        let before = replace(&mut *notes, Notes { events: memory, reads, is_full: false });
        let Notes { events, reads: upto, is_full } = before;
        Taken { events, reads: reads.saturating_sub(upto), is_skipped: is_full }
    }

    /// Notes requests of a client that arrived together, without those that the volume refuses.
    pub(crate) fn note(
        &self,
        requests: &[Request],
        geometry: &Geometry,
        caller: Caller,
        at_us: impl FnOnce() -> u64,
    ) {
        if !self.used() {
            return;
        }
        let mut batch = self.batch(caller, Some(at_us));
        let before = batch.reads;
        requests.iter().for_each(|request| batch.note(request, geometry));
        let reads = batch.reads - before;
        drop(batch);
        self.reads.fetch_add(reads, Ordering::Relaxed);
    }

    /// Notes evictions that a client told, in their order. `has_contents`: it handed the contents
    /// over too.
    pub(crate) fn note_evictions(&self, gone: &[ClientEviction], client: u8, has_contents: bool) {
        if !self.used() {
            return;
        }
        let mut batch = self.batch(Caller { client, tells: true }, None::<fn() -> u64>);
        let sample = batch.sample;
        for gone in gone.iter().filter(|gone| sample.takes(gone.block)) {
            batch.now_us = gone.evicted_us;
            batch.push(gone.block, Kind::Evicted { has_contents });
        }
    }

    fn batch<F>(&self, caller: Caller, at_us: Option<F>) -> Batch<'_, F> {
        let sample = Sample::with_threshold(self.threshold.load(Ordering::Relaxed), self.seed);
        let reads = self.reads.load(Ordering::Relaxed);
        Batch { tap: self, sample, caller, reads, notes: None, at_us, now_us: 0 }
    }
}

/// Notes of what a client asked or told together. Only if there is one, the lock is taken and the
/// time asked for.
struct Batch<'a, F> {
    tap: &'a Tap,
    sample: Sample,
    caller: Caller,
    /// Blocks read so far, in the sample or not.
    reads: u64,
    notes: Option<MutexGuard<'a, Notes>>,
    /// Tells the time, unless `now_us` is it already.
    at_us: Option<F>,
    now_us: u64,
}

impl<F: FnOnce() -> u64> Batch<'_, F> {
    fn note(&mut self, request: &Request, geometry: &Geometry) {
        let (offset, length) = (request.offset, request.length);
        let (sample, tells) = (self.sample, self.caller.tells);
        let is_read = match request.command {
            Command::Read { .. } => true,
            Command::Write { .. } if !self.tap.is_read_only => false,
            Command::Trim | Command::WriteZeroes { .. } if !self.tap.is_read_only => {
                let blocks = whole_blocks(geometry, offset, length).filter(|&b| sample.takes(b));
                return blocks.for_each(|block| self.push(block, Kind::Discarded));
            }
            _ => return,
        };
        let end = offset.checked_add(length);
        if length == 0 || end.is_none_or(|end| end > geometry.size()) {
            return;
        }
        for block in geometry.blocks(offset, length) {
            self.reads += u64::from(is_read);
            if sample.takes(block) {
                let start = geometry.start(block);
                let end = start + geometry.len(block) as u64;
                let is_whole = offset <= start && end <= offset + length;
                let written = Kind::Write { is_whole, tells };
                self.push(block, if is_read { Kind::Read { is_whole, tells } } else { written });
            }
        }
    }

    /// Notes something about a block of the sample.
    #[cold]
    fn push(&mut self, block: u64, kind: Kind) {
        if let Some(at_us) = self.at_us.take() {
            self.now_us = at_us();
        }
        let notes = self.notes.get_or_insert_with(|| sleep_lock(&self.tap.notes));
        if notes.is_full || notes.events.len() >= NOTES.min(notes.events.capacity()) {
            notes.is_full = true;
            return;
        }
        // Another thread may have noted later reads already.
        let since = self.reads.saturating_sub(notes.reads);
        notes.reads = notes.reads.max(self.reads);
        let reads = u32::try_from(since).unwrap_or(u32::MAX);
        let (at_us, client) = (self.now_us, self.caller.client);
        notes.events.push(Event { block, at_us, reads, kind, client });
    }
}

/// The blocks that lie wholly in a range, if these are not too many.
fn whole_blocks(geometry: &Geometry, offset: u64, length: u64) -> std::ops::Range<u64> {
    let end = offset.saturating_add(length).min(geometry.size());
    let (first, end) = (offset.div_ceil(geometry.block_bytes()), end / geometry.block_bytes());
    if end.saturating_sub(first) <= TRIMMED_MAX { first..end } else { 0..0 }
}

#[cfg(test)]
mod tests {
    use undercroft_nbd::Reply;
    use undercroft_policy::WriteMode;

    use super::*;

    fn read(first: u64, blocks: u64) -> Request {
        let command = Command::Read { one_chunk: false };
        let (offset, length) = (first * 4096, blocks * 4096);
        Request { command, offset, length, durable: false, reply: Reply::call(|_| ()) }
    }

    #[test]
    fn what_does_not_fit_is_left_out_as_one_stretch() {
        let geometry = Geometry::new(4096, 1 << 30, 1, WriteMode::Allocate, false, 1);
        let tap = Tap::new(1, false);
        let note = |requests: &[Request]| {
            tap.note(requests, &geometry, Caller::default(), || 7);
        };
        assert!(!tap.was_used());
        note(&[read(0, 5)]);
        assert!(tap.was_used());
        tap.open(Sample::new(1.0, 1), Vec::with_capacity(NOTES));
        note(&[read(3, 1), read(1 << 40, 1), read(9, 2)]);
        let Taken { events, reads, is_skipped } = tap.take(Vec::with_capacity(NOTES));
        let noted: Vec<_> = events.iter().map(|event| (event.block, event.reads)).collect();
        assert_eq!(noted, [(3, 1), (9, 1), (10, 1)], "nothing while closed, or refused");
        assert_eq!((reads, is_skipped, events[0].at_us), (0, false, 7));
        for _ in 0..3 {
            note(&[read(0, NOTES as u64 / 2 + 1)]);
        }
        let taken = tap.take(events);
        assert_eq!(taken.events.len(), NOTES);
        assert_eq!((taken.reads, taken.is_skipped), (NOTES as u64 / 2 + 3, true));
        tap.open(Sample::new(0.01, 1), Vec::with_capacity(NOTES));
        note(&[read(0, 10_000)]);
        let Taken { events, reads, is_skipped } = tap.take(Vec::new());
        let counted: u64 = events.iter().map(|event| u64::from(event.reads)).sum();
        assert_eq!((counted + reads, is_skipped), (10_000, false), "every read is counted");
        assert!((50..150).contains(&events.len()), "{}", events.len());
        tap.close();
        note(&[read(3, 1)]);
        assert!(tap.take(Vec::new()).events.is_empty());
    }
}

//! The recorder's end of the ring of calls (`calls.rs`): another process takes from it what the
//! program does, with its places on the volumes.

use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::calls::{Call, CallKind};
use crate::clock::now_us;
use crate::ring::{Next, Ring};
use crate::segment::layout::{CALLS_LOST, RECORDER};
use crate::segment::{Segment, State, is_alive};
use crate::sender::{At, Places};
use crate::space;
use crate::table::GRANULE;

/// How long a record may stay incomplete before it is skipped, in microseconds.
const TORN_US: u64 = 1_000_000;

/// A range of a volume that the program read, wrote or evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// What was done.
    pub kind: CallKind,
    /// Where the range begins.
    pub at: At,
    /// Its length in bytes.
    pub length: u64,
    /// When, on the monotonic clock in microseconds.
    pub time_us: u64,
}

/// The other end of the ring: what a program does is taken from it as long as this exists.
pub struct Recording {
    segment: Segment,
    places: Places,
    unfinished_us: Option<u64>,
    unplaced: u64,
    /// Records that earlier recordings lost.
    lost_before: u64,
}

impl Recording {
    /// Begins to record the program of a segment, whose table must be in use.
    ///
    /// # Errors
    /// The error of the system; or another process records this program.
    pub fn begin(segment: &Segment) -> io::Result<Recording> {
        let segment = segment.open_to_record()?;
        let (word, me) = (segment.word(RECORDER), u64::from(std::process::id()));
        let before = word.load(Acquire);
        if before != 0 && is_alive(before) {
            let what = format!("process {before} records this program already");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        if word.compare_exchange(before, me, AcqRel, Relaxed).is_err() {
            let what = "another process has just begun to record this program";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        let lost_before = segment.word(CALLS_LOST).load(Relaxed);
        let places = Places::default();
        let mut recording =
            Recording { segment, places, unfinished_us: None, unplaced: 0, lost_before };
        // An earlier recorder, which may have been killed, left these.
        recording.discard();
        Ok(recording)
    }

    fn discard(&mut self) {
        let ring = Ring::of_calls(&self.segment);
        for _ in 0..ring.capacity() {
            match ring.pop() {
                Next::Record(_) => {}
                Next::Unfinished => ring.skip(),
                Next::Nothing => return,
            }
        }
    }

    /// Passes on what the program has done since the last call: at most as much as the ring holds.
    /// What lies on a volume in several pieces is passed on in pieces.
    pub fn take(&mut self, mut each: impl FnMut(Recorded)) {
        let ring = Ring::of_calls(&self.segment);
        let now = now_us();
        for _ in 0..ring.capacity() {
            match ring.pop() {
                Next::Record(words) => {
                    self.unfinished_us = None;
                    let call = Call::from_words(words);
                    self.unplaced += place(&self.segment, &mut self.places, call, now, &mut each);
                }
                Next::Nothing => {
                    self.unfinished_us = None;
                    return;
                }
                Next::Unfinished => {
                    if now.saturating_sub(*self.unfinished_us.get_or_insert(now)) < TORN_US {
                        return;
                    }
                    ring.skip();
                    self.segment.word(CALLS_LOST).fetch_add(1, Relaxed);
                    self.unfinished_us = None;
                }
            }
        }
    }

    /// Whether the program has ended or given up tracking: nothing will follow what the ring has.
    pub fn has_ended(&self) -> bool {
        self.segment.state() == State::Off || !space::is_in_use(&self.segment)
    }

    /// The program goes on, and nothing of it is noted any more. What it did before can still be
    /// taken.
    pub fn stop(&self) {
        self.segment.word(RECORDER).store(0, Relaxed);
    }

    /// Records that were lost because the ring was full, and granules of 4 KiB without a position
    /// on a volume, such as those of deleted files.
    pub fn lost(&self) -> (u64, u64) {
        let lost = self.segment.word(CALLS_LOST).load(Relaxed);
        (lost.saturating_sub(self.lost_before), self.unplaced)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Passes on where the pieces of a call are. Returns the granules that are nowhere.
fn place(
    segment: &Segment,
    places: &mut Places,
    call: Call,
    now: u64,
    each: &mut impl FnMut(Recorded),
) -> u64 {
    let Call { kind, file, offset, length, time_us } = call;
    let end = offset.saturating_add(length);
    let (mut from, mut unplaced) = (offset, 0);
    let mut piece: Option<Recorded> = None;
    while from < end {
        let to = (from - from % GRANULE).saturating_add(GRANULE).min(end);
        match places.of_bytes(segment, file, from, now) {
            Some(at) => {
                let next = |piece: &&mut Recorded| {
                    let end = At { offset: piece.at.offset + piece.length, ..piece.at };
                    end == at
                };
                match piece.as_mut().filter(next) {
                    Some(piece) => piece.length += to - from,
                    None => {
                        let new = Recorded { kind, at, length: to - from, time_us };
                        piece.replace(new).into_iter().for_each(&mut *each);
                    }
                }
            }
            None => unplaced += 1,
        }
        from = to;
    }
    piece.into_iter().for_each(each);
    unplaced
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::Recording;
    use crate::calls::{Call, CallKind, note};
    use crate::segment::layout::RECORDER;
    use crate::segment::{Segment, State};

    /// No process can have this number.
    const NOBODY: u64 = 1 << 30;

    fn segment(folder: &tempfile::TempDir) -> Segment {
        let segment = Segment::create(folder.path(), 16 << 20).unwrap();
        segment.fill().unwrap();
        segment.set_state(State::Ready);
        segment
    }

    /// A call on a file that there is not.
    fn call(segment: &Segment) {
        let kind = CallKind::Read;
        note(segment, Call { kind, file: 9, offset: 0, length: 4096, time_us: 1 });
    }

    #[test]
    fn what_the_ring_has_no_room_for_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let segment = segment(&folder);
        call(&segment);
        let mut recording = Recording::begin(&segment).unwrap();
        let cells = 1 << segment.layout().ring_bits;
        (0..cells + 5).for_each(|_| call(&segment));
        recording.take(|_| panic!("the file is on no volume"));
        assert_eq!(recording.lost(), (5, cells));
        assert!(!recording.has_ended());
        recording.stop();
        call(&segment);
        recording.take(|_| panic!("the file is on no volume"));
        assert_eq!(recording.lost(), (5, cells));
        // The losses of one recording are not those of the next.
        drop(recording);
        assert_eq!(Recording::begin(&segment).unwrap().lost(), (0, 0));
    }

    #[test]
    fn only_one_process_records_unless_it_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let segment = segment(&folder);
        let first = Recording::begin(&segment).unwrap();
        let error = Recording::begin(&segment).err().unwrap();
        assert!(error.to_string().contains("records this program already"), "{error}");
        call(&segment);
        // A process that is killed runs no destructor.
        std::mem::forget(first);
        segment.word(RECORDER).store(NOBODY, Relaxed);
        let mut second = Recording::begin(&segment).unwrap();
        second.take(|_| panic!("what the first one left"));
        assert_eq!(second.lost(), (0, 0));
    }

    #[test]
    fn a_program_that_gave_up_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let segment = segment(&folder);
        let recording = Recording::begin(&segment).unwrap();
        segment.set_state(State::Off);
        assert!(recording.has_ended());
    }
}

//! What the program asks of its volumes and what it evicts, as records in a ring of their own for a
//! recorder (`recording.rs`), which is another process. While nobody records, a call only looks at
//! one word. The program never waits: if the ring is full, records are lost and counted.

use std::sync::atomic::Ordering::Relaxed;

use crate::ring::Ring;
use crate::segment::Segment;
use crate::segment::layout::{CALLS_LOST, RECORDER};

/// Most bytes of one record; longer calls have several.
const LENGTH_MAX: u64 = (1 << 30) - 1;
const LENGTH_SHIFT: u32 = 32;
const KIND_SHIFT: u32 = 62;

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// The program read the bytes.
    Read,
    /// The program wrote the bytes.
    Write,
    /// The bytes left the program's frames.
    Evicted,
}

/// A range of a file that the program read, wrote or evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) kind: CallKind,
    pub(crate) file: u32,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) time_us: u64,
}

impl Call {
    fn words(self) -> [u64; 3] {
        let kind = match self.kind {
            CallKind::Read => 0,
            CallKind::Write => 1,
            CallKind::Evicted => 2,
        };
        let first = u64::from(self.file) | self.length << LENGTH_SHIFT | kind << KIND_SHIFT;
        [first, self.offset, self.time_us]
    }

    pub(crate) fn from_words([first, offset, time_us]: [u64; 3]) -> Call {
        let kind = match first >> KIND_SHIFT {
            0 => CallKind::Read,
            1 => CallKind::Write,
            _ => CallKind::Evicted,
        };
        let length = first >> LENGTH_SHIFT & LENGTH_MAX;
        Call { kind, file: first as u32, offset, length, time_us }
    }
}

/// Notes a call, if somebody records.
#[inline]
pub(crate) fn note(segment: &Segment, call: Call) {
    if segment.word(RECORDER).load(Relaxed) != 0 {
        push(segment, call);
    }
}

#[cold]
fn push(segment: &Segment, call: Call) {
    let ring = Ring::of_calls(segment);
    let mut rest = call;
    while rest.length > 0 {
        let length = rest.length.min(LENGTH_MAX);
        if !ring.push(Call { length, ..rest }.words()) {
            segment.word(CALLS_LOST).fetch_add(1, Relaxed);
            return;
        }
        (rest.offset, rest.length) = (rest.offset.saturating_add(length), rest.length - length);
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, CallKind, LENGTH_MAX};

    #[test]
    fn a_call_survives_the_ring() {
        for kind in [CallKind::Read, CallKind::Write, CallKind::Evicted] {
            let call = Call { kind, file: u32::MAX, offset: 7, length: LENGTH_MAX, time_us: 9 };
            assert_eq!(Call::from_words(call.words()), call);
        }
    }
}

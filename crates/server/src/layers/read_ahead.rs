//! Read-ahead: the layer that notices sequential reads of a session, and has the volume read what
//! follows. Sessions of volumes without `read-ahead` have none.

use std::sync::Arc;

use undercroft_nbd::{Command, Request, Session};

use crate::lock::lock;
use crate::volume::{Volume, Work};

/// Sequential reads after which read-ahead starts.
const SEQUENTIAL_MIN: u32 = 2;

/// The layer for read-ahead.
pub(super) struct ReadAhead {
    volume: Arc<Volume>,
    sequence: Sequence,
    next: Box<dyn Session>,
}

impl ReadAhead {
    pub(super) fn new(volume: &Arc<Volume>, next: Box<dyn Session>) -> Self {
        Self { volume: Arc::clone(volume), sequence: Sequence::default(), next }
    }
}

impl Session for ReadAhead {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        for request in &*requests {
            if matches!(request.command, Command::Read { .. }) {
                self.sequence.note(request.offset, request.length);
            }
        }
        let work = self.next.serve(requests);
        let bytes = self.volume.config().read_ahead_bytes;
        // What is read ahead takes room in the cache, and a stream that passes it must not.
        let next = self.volume.geometry.block_of(self.sequence.end);
        let streams = self.volume.streams.as_ref();
        let is_streamed = streams.is_some_and(|streams| lock(streams).goes_on(next));
        let bytes = if is_streamed { 0 } else { bytes };
        match self.sequence.wanted(bytes) {
            Some((offset, length)) => {
                let mut ahead = Work::new(&self.volume);
                ahead.prefetch(offset, length, true);
                work + ahead.finish()
            }
            None => work,
        }
    }
}

/// The reads of a session, as far as they are in sequence.
#[derive(Debug, Default)]
struct Sequence {
    /// End of the last read.
    end: u64,
    /// Number of reads that began at the end of the previous one.
    in_sequence: u32,
    /// End of the range that was read ahead.
    fetched: u64,
}

impl Sequence {
    fn note(&mut self, offset: u64, length: u64) {
        if offset == self.end {
            self.in_sequence = self.in_sequence.saturating_add(1);
        } else {
            *self = Self::default();
        }
        self.end = offset.saturating_add(length);
    }

    /// The range to read now, if up to `bytes` bytes may be read ahead; at least half of that at a
    /// time.
    fn wanted(&mut self, bytes: u64) -> Option<(u64, u64)> {
        if bytes == 0 || self.in_sequence < SEQUENTIAL_MIN {
            return None;
        }
        let from = self.fetched.max(self.end);
        let to = self.end.saturating_add(bytes);
        if to.saturating_sub(from) < bytes.div_ceil(2) {
            return None;
        }
        self.fetched = to;
        Some((from, to - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_ahead_follows_a_sequence_only() {
        let mut ahead = Sequence::default();
        ahead.note(4096, 4096);
        assert_eq!(ahead.wanted(16384), None);
        ahead.note(8192, 4096);
        assert_eq!(ahead.wanted(16384), None);
        ahead.note(12288, 4096);
        assert_eq!(ahead.wanted(16384), Some((16384, 16384)));
        ahead.note(16384, 4096);
        assert_eq!(ahead.wanted(16384), None, "less than half is missing");
        ahead.note(20480, 4096);
        assert_eq!(ahead.wanted(16384), Some((32768, 8192)));
        ahead.note(0, 4096);
        assert_eq!(ahead.wanted(16384), None);
    }
}

//! What of a store is newer in its write log: ranges that do not overlap, and where each one's
//! bytes are.

use std::collections::BTreeMap;

/// Where the newest bytes of a range are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the log, from this position on.
    Log(u64),
    /// They are zeroes. Whether they are to keep their space.
    Zero { allocated: bool },
}

/// A range, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) place: Place,
    /// Number of the batch that brought it.
    pub(super) batch: u64,
}

/// A part of a range that was looked up: a run, or a range without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) length: u64,
    /// `None`: it is not in the log.
    pub(super) place: Option<Place>,
}

/// The runs, by their first bytes.
#[derive(Debug, Default)]
pub(super) struct Overlay(BTreeMap<u64, Run>);

impl Run {
    fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// The part of it that lies within a range that it touches.
    pub(super) fn within(&self, from: u64, to: u64) -> Run {
        let (offset, end) = (self.offset.max(from), self.end().min(to));
        let place = match self.place {
            Place::Log(position) => Place::Log(position + (offset - self.offset)),
            zero @ Place::Zero { .. } => zero,
        };
        Run { offset, length: end - offset, place, ..*self }
    }
}

impl Overlay {
    /// Puts a run in place of whatever there is of its range.
    pub(super) fn insert(&mut self, run: Run) {
        if run.length == 0 {
            return;
        }
        let overlapping: Vec<Run> = self.touching(run.offset, run.end()).collect();
        for old in overlapping {
            self.0.remove(&old.offset);
            for (from, to) in [(old.offset, run.offset), (run.end(), old.end())] {
                if from < to {
                    let rest = old.within(from, to);
                    self.0.insert(rest.offset, rest);
                }
            }
        }
        self.0.insert(run.offset, run);
    }

    /// Removes what batches up to this one brought of a range, and no later one replaced.
    pub(super) fn remove(&mut self, offset: u64, length: u64, batch: u64) {
        let end = offset.saturating_add(length);
        let own = self.touching(offset, end).filter(|run| run.batch <= batch);
        let own: Vec<u64> = own.map(|run| run.offset).collect();
        own.iter().for_each(|first| _ = self.0.remove(first));
    }

    /// The runs of a range, and the gaps between them, in order.
    pub(super) fn pieces(&self, offset: u64, length: u64) -> impl Iterator<Item = Piece> {
        let (mut at, end) = (offset, offset + length);
        let mut runs = self.touching(at, end).map(move |run| run.within(offset, end)).peekable();
        std::iter::from_fn(move || {
            let (to, place) = match runs.next_if(|run| run.offset == at) {
                Some(run) => (run.end(), Some(run.place)),
                None => (runs.peek().map_or(end, |run| run.offset), None),
            };
            let piece = Piece { offset: at, length: to - at, place };
            at = to;
            (piece.length > 0).then_some(piece)
        })
    }

    /// All runs, in order.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> {
        self.0.values().copied()
    }

    /// The runs that have bytes of a range. An empty range has none.
    fn touching(&self, offset: u64, end: u64) -> impl Iterator<Item = Run> {
        let end = end.max(offset);
        let before = self.0.range(..offset).next_back().map(|(_, run)| *run);
        let before = before.filter(|run| offset < end && run.end() > offset);
        let within = self.0.range(offset..end).map(|(_, run)| *run);
        before.into_iter().chain(within)
    }
}

#[cfg(test)]
mod tests {
    use undercroft_random::{SplitMix64, testing::seed_or};

    use super::*;

    /// Against an array with the place of each byte.
    #[test]
    fn newer_runs_replace_older_ones() {
        const SIZE: u64 = 200;
        let mut random = SplitMix64::new(seed_or(1));
        let (mut overlay, mut bytes) = (Overlay::default(), vec![None; SIZE as usize]);
        let mut ranges = Vec::new();
        for batch in 0..3000 {
            let offset = random.below(SIZE);
            let length = random.below(SIZE - offset + 1).min(40);
            let place = match random.below(3) {
                0 => Place::Zero { allocated: random.one_in(2) },
                _ => Place::Log(1000 * batch),
            };
            overlay.insert(Run { offset, length, place, batch });
            ranges.push((offset, length, batch));
            for (index, at) in (offset..offset + length).enumerate() {
                let of_byte = match place {
                    Place::Log(position) => Place::Log(position + index as u64),
                    zero => zero,
                };
                bytes[at as usize] = Some((of_byte, batch));
            }
            if random.one_in(2) {
                let (offset, length, batch) = ranges.remove(0);
                overlay.remove(offset, length, batch);
                bytes.iter_mut().for_each(|it| *it = it.filter(|(_, by)| *by > batch));
            }
            let runs: Vec<Run> = overlay.runs().collect();
            assert!(runs.windows(2).all(|two| two[0].end() <= two[1].offset), "{runs:?}");
            let (from, to) = (random.below(SIZE), random.below(SIZE));
            let (from, to) = (from.min(to), from.max(to));
            let mut at = from;
            for piece in overlay.pieces(from, to - from) {
                assert!(piece.offset == at && piece.length > 0);
                for index in 0..piece.length {
                    let place = piece.place.map(|place| match place {
                        Place::Log(position) => Place::Log(position + index),
                        zero => zero,
                    });
                    let wanted = bytes[(at + index) as usize].map(|(place, _)| place);
                    assert_eq!(place, wanted, "byte {}", at + index);
                }
                at += piece.length;
            }
            assert_eq!(at, to);
        }
    }
}

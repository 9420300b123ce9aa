//! Which frame of a database is at an address.

use std::collections::BTreeMap;

use super::Pool;

/// Which frame is at an address, learnt from the pages that are known to both sides: frames with
/// consecutive numbers lie behind one another, in chunks.
pub(super) struct Frames {
    bytes: u64,
    /// Address of a frame: its number.
    known: BTreeMap<u64, u64>,
}

impl Frames {
    pub(super) fn new(pool: &Pool) -> Frames {
        Frames { bytes: pool.frame_bytes.max(1), known: BTreeMap::new() }
    }

    pub(super) fn learn(&mut self, frame: u64, address: u64) {
        self.known.insert(address, frame);
    }

    /// The frame of an address, counted from the known one below it and from the one above it. At
    /// the border of a chunk these differ, and it is one of them.
    pub(super) fn at(&self, address: u64) -> impl Iterator<Item = u64> + Clone + use<> {
        /// Frames of a chunk, at most, as far as one may count.
        const NEAR: u64 = 512;
        let below = self.known.range(..=address).next_back();
        let above = self.known.range(address..).next();
        let from_below = below.and_then(|(&known, &frame)| {
            let steps = (address - known) / self.bytes;
            (steps < NEAR).then_some(frame + steps)
        });
        let from_above = above.and_then(|(&known, &frame)| {
            let steps = (known - address).div_ceil(self.bytes);
            if steps < NEAR { frame.checked_sub(steps) } else { None }
        });
        from_below.into_iter().chain(from_above.filter(|&frame| Some(frame) != from_below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_several_chunks_are_told_apart() {
        let mut frames = Frames { bytes: 10, known: BTreeMap::new() };
        let at = |frames: &Frames, address| frames.at(address).collect::<Vec<_>>();
        assert!(at(&frames, 50).is_empty());
        frames.learn(3, 130);
        assert_eq!([139, 140, 120].map(|address| at(&frames, address)), [[3], [4], [2]]);
        assert!(at(&frames, 90).is_empty(), "before the first of all");
        assert!(at(&frames, 1 << 20).is_empty(), "far behind the last");
        // Five steps above lies the next number but one: another chunk begins between.
        frames.learn(5, 180);
        assert_eq!(at(&frames, 150), [5, 2]);
        assert_eq!([185, 180].map(|address| at(&frames, address)), [[5], [5]]);
    }
}

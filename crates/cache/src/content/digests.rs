//! Knowledge from summaries that real neighbours send, each with a filter shape of its own.
//!
//! Input from outside is bounded: in the bits of a filter, and to [`NEIGHBOURS_MAX`] neighbours.

use super::bloom::Shape;
use super::heard::Heard;
use super::source::{Digest, News, Source, SourceCounts};
use super::summary::{Body, Unusable};

/// Most neighbours at a time.
pub(crate) const NEIGHBOURS_MAX: usize = 16;

/// Most hash functions of a filter.
const HASHES_MAX: u32 = 64;

/// The knowledge of all neighbours that publish.
pub(crate) struct Digests {
    neighbours: Vec<(u8, Heard)>,
    /// Most bits of a filter.
    bits_max: u32,
    is_old: bool,
    counts: SourceCounts,
}

impl Digests {
    /// Creates it without any knowledge. With `is_old`, it uses knowledge that is one exchange old.
    pub(crate) fn new(bits_max: u32, is_old: bool) -> Self {
        Self { neighbours: Vec::new(), bits_max, is_old, counts: SourceCounts::default() }
    }
}

impl Source for Digests {
    fn came(&mut self, _: u64, _: &mut News) {}

    fn went(&mut self, _: u64, _: &mut News) {}

    fn own(&mut self, block: u64, came: bool) {
        self.neighbours.iter_mut().for_each(|(_, heard)| heard.own(block, came));
    }

    fn heard(
        &mut self,
        digest: &Digest,
        own: &dyn Fn() -> Vec<u64>,
        news: &mut News,
    ) -> Result<(), Unusable> {
        let Digest { from, shape, publication } = digest;
        let is_whole = matches!(publication.body, Body::Whole(_));
        if shape.bits == 0
            || shape.bits > self.bits_max
            || !(1..=HASHES_MAX).contains(&shape.hashes)
        {
            return Err(Unusable::Malformed);
        }
        let same = |heard: &Heard| {
            let known = heard.filter().shape();
            (known.bits, known.hashes) == (shape.bits, shape.hashes)
        };
        let at = self.neighbours.iter().position(|(number, _)| number == from);
        let at = match at {
            Some(at) if same(&self.neighbours[at].1) => at,
            _ if !is_whole => return Err(Unusable::Lost),
            known => {
                let mut heard = Heard::new(Shape { seed: 0, ..*shape }, self.is_old);
                own().into_iter().for_each(|block| heard.own(block, true));
                match known {
                    Some(at) => self.neighbours[at].1 = heard,
                    None if self.neighbours.len() == NEIGHBOURS_MAX => {
                        return Err(Unusable::Malformed);
                    }
                    None => self.neighbours.push((*from, heard)),
                }
                known.unwrap_or(self.neighbours.len() - 1)
            }
        };
        let before = news.blocks.len();
        self.neighbours[at].1.apply(publication, news)?;
        self.counts.publications += 1;
        self.counts.whole += u64::from(is_whole);
        self.counts.bytes += publication.bytes();
        // Another neighbour may hold a block that this one gave up.
        if self.neighbours.len() > 1 {
            let Self { neighbours, .. } = self;
            for (block, holds) in &mut news.blocks[before..] {
                *holds |= neighbours.iter().any(|(_, heard)| heard.holds(*block));
            }
        }
        Ok(())
    }

    fn forget(&mut self, from: u8, news: &mut News) {
        self.neighbours.retain(|(number, _)| *number != from);
        news.all = true;
    }

    fn holds(&self, block: u64) -> bool {
        self.neighbours.iter().any(|(_, heard)| heard.holds(block))
    }

    fn was_held(&self, _: u64) -> bool {
        false
    }

    fn false_positives(&self) -> Option<f64> {
        let all = self.neighbours.iter().map(|(_, heard)| heard.filter().false_positives());
        all.reduce(f64::max)
    }

    fn counts(&self) -> SourceCounts {
        self.counts
    }

    fn restart_counts(&mut self) {
        self.counts = SourceCounts::default();
    }
}

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
    /// Whatever it says, all marks are set anew: which blocks it concerns could only be found in an
    /// index of them by the bits of each neighbour's filter.
    fn heard(&mut self, digest: &Digest, news: &mut News) -> Result<(), Unusable> {
        let Digest { from, shape, publication } = digest;
        let is_whole = matches!(publication.body, Body::Whole(_));
        if shape.bits == 0
            || shape.bits > self.bits_max
            || !(1..=HASHES_MAX).contains(&shape.hashes)
        {
            return Err(Unusable::Malformed);
        }
        // Whoever publishes sends the whole filter instead of changes that are longer.
        if matches!(&publication.body, Body::Changes(all) if all.len() as u32 > shape.bits / 8 + 1)
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
            None if self.neighbours.len() == NEIGHBOURS_MAX => return Err(Unusable::Malformed),
            known => {
                let heard = Heard::new(Shape { seed: 0, ..*shape }, self.is_old);
                match known {
                    Some(at) => self.neighbours[at].1 = heard,
                    None => self.neighbours.push((*from, heard)),
                }
                known.unwrap_or(self.neighbours.len() - 1)
            }
        };
        self.neighbours[at].1.apply(publication)?;
        self.counts.publications += 1;
        self.counts.whole += u64::from(is_whole);
        self.counts.bytes += publication.bytes();
        news.all = true;
        Ok(())
    }

    fn forget(&mut self, from: u8, news: &mut News) {
        self.neighbours.retain(|(number, _)| *number != from);
        news.all = true;
    }

    fn holds(&self, block: u64) -> bool {
        self.neighbours.iter().any(|(_, heard)| heard.holds(block))
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::{AT_ONCE, Neighbour, Publication, Publisher};
    use super::*;
    use crate::hashed::HashedCache;
    use crate::marks::Marks;
    use undercroft_policy::{Context, Spec};

    /// A cache that counts the marks that are set.
    struct Counted(HashedCache, u32, HashMap<u64, bool>);

    impl Marks for Counted {
        fn mark(&mut self, block: u64, holds: bool) {
            self.1 += 1;
            self.2.insert(block, holds);
        }

        fn blocks(&self) -> Vec<u64> {
            unreachable!("nothing walks the whole cache")
        }

        fn handles(&self) -> u32 {
            Marks::handles(&self.0)
        }

        fn blocks_within(&self, handles: std::ops::Range<u32>) -> Vec<u64> {
            self.0.blocks_within(handles)
        }
    }

    fn digest(from: u8, publisher: &Publisher, publication: Publication) -> Digest {
        Digest { from, shape: publisher.published().shape(), publication }
    }

    /// Whatever is published, in whatever shape, few marks are set at once; with the requests that
    /// follow, all become right.
    #[test]
    fn publications_cost_little_at_once_and_all_marks_become_right() {
        for is_old in [false, true] {
            let policy = Spec::parse("lru-ca").unwrap().build(&Context::new(50_000)).unwrap();
            let mut cache = Counted(HashedCache::new(policy, 0), 0, HashMap::new());
            (0..50_000).for_each(|block| _ = cache.0.place(block));
            let digests = Box::new(Digests::new(1 << 22, is_old));
            let mut neighbour = Neighbour::new(Some(digests));
            let mut publisher = Publisher::new(16, 4, 50_000, 0.0);
            let mut most = 0;
            for round in 0..300_u64 {
                publisher.came(3 * round);
                publisher.came(200_000 + round);
                let publication = publisher.publish_now();
                let before = cache.1;
                neighbour.heard(&mut cache, &digest(1, &publisher, publication)).unwrap();
                // A second one changes its shape each time.
                let mut other = Publisher::new(1 + round as u32 % 9, 16, 10, 0.0);
                other.came(7);
                let publication = other.publish_now();
                neighbour.heard(&mut cache, &digest(2, &other, publication)).unwrap();
                most = most.max(cache.1 - before);
            }
            assert!(most <= AT_ONCE && cache.1 <= AT_ONCE, "{most} {}", cache.1);
            neighbour.forget(&mut cache, 2);
            while !neighbour.is_settled() {
                let before = cache.1;
                neighbour.go_on(&mut cache, |_| unreachable!("there is a source"));
                assert!(cache.1 - before <= 16);
            }
            let source = neighbour.source().unwrap();
            let rounds = if is_old { 299 } else { 300 };
            assert!((0..rounds).all(|round| source.holds(3 * round)));
            assert_eq!(cache.2.len(), 50_000);
            assert!(cache.2.iter().all(|(&block, &holds)| source.holds(block) == holds));
        }
    }
}

//! The emulation of a neighbour that tells nothing.
//!
//! The lower cache sees the requests of the upper one in the order in which the emulation sees
//! them. With the right policy and size, and no other client, the emulation is exact, and the times
//! of replies show whether it is. The lower cache sees only the misses of the upper one. It takes
//! the last requested blocks for the content of the upper cache; a repeated request proves that
//! wrong. An emulation with too few right predictions is not used: then nothing is known, and a
//! content-aware policy behaves like the plain policy.

use crate::bounded_lru_map::BoundedLruMap;
use crate::hashed::HashedCache;
use undercroft_policy::{Context, Evictions, Policy, Spec, SpecError, WriteMode, refer};

use super::source::{News, Source, SourceCounts};

/// Number of recent predictions by which an emulation is judged.
const JUDGED: usize = 1000;

/// Smallest share of them that must have come true.
pub(crate) const TRUSTED: f64 = 0.8;

/// The share of the last predictions that came true, and counts of all.
struct Confidence {
    last: Vec<bool>,
    next: usize,
    right: usize,
    counts: SourceCounts,
}

impl Confidence {
    fn new() -> Self {
        Self { last: Vec::new(), next: 0, right: 0, counts: SourceCounts::default() }
    }

    fn judge(&mut self, is_right: bool) {
        self.counts.predictions += 1;
        self.counts.confirmed += u64::from(is_right);
        self.right += usize::from(is_right);
        if self.last.len() < JUDGED {
            self.last.push(is_right);
            return;
        }
        self.right -= usize::from(std::mem::replace(&mut self.last[self.next], is_right));
        self.next = (self.next + 1) % JUDGED;
    }

    /// Whether to trust the emulation. It is trusted before its first prediction.
    fn is_trusted(&self) -> bool {
        self.right as f64 >= TRUSTED * self.last.len() as f64
    }

    /// Ends a request, before which the emulation was trusted or not: one that is not trusted now
    /// has no news.
    fn end_request(&mut self, was_trusted: bool, news: &mut News) {
        let is_trusted = self.is_trusted();
        self.counts.distrusted += u64::from(!is_trusted);
        news.all |= was_trusted != is_trusted;
        if !is_trusted {
            news.blocks.clear();
        }
    }
}

/// An emulated lower cache: which blocks it holds after the requests that it was sent.
pub(crate) struct Copy {
    cache: Emulated,
    mode: WriteMode,
}

enum Emulated {
    /// For blocks numbered from 0, as in a simulation.
    Dense(Box<dyn Policy>, Evictions),
    /// For any block numbers.
    Hashed(Box<HashedCache>),
}

impl Copy {
    /// An emulated cache of `capacity` blocks. `dense`: how many block numbers exist, from 0;
    /// `None`: any numbers.
    pub(crate) fn new(
        spec: &Spec,
        capacity: u32,
        mode: WriteMode,
        dense: Option<u32>,
    ) -> Result<Self, SpecError> {
        let mut policy = spec.build(&Context::new(capacity))?;
        let cache = match dense {
            Some(blocks) => {
                policy.grow(blocks);
                Emulated::Dense(policy, Evictions::new())
            }
            None => Emulated::Hashed(Box::new(HashedCache::new(policy, 0))),
        };
        Ok(Self { cache, mode })
    }

    /// Sends it a request. Returns whether it had the block. Appends to `news` what it took in and
    /// gave up.
    pub(crate) fn request(&mut self, block: u64, is_write: bool, news: &mut News) -> bool {
        let (before, after) = match &mut self.cache {
            Emulated::Dense(policy, out) => {
                let entry = block as u32;
                out.clear();
                let before = policy.contains(entry);
                refer(policy.as_mut(), entry, is_write, self.mode, out);
                news.blocks.extend(out.evicted().map(|gone| (gone.into(), false)));
                (before, policy.contains(entry))
            }
            Emulated::Hashed(cache) => {
                let served = cache.reference(block, is_write, self.mode, || false);
                news.blocks.extend(cache.evicted().iter().map(|gone| (gone.block, false)));
                (served.hit, served.now.is_some())
            }
        };
        if before != after {
            news.blocks.push((block, after));
        }
        before
    }

    pub(crate) fn holds(&self, block: u64) -> bool {
        match &self.cache {
            Emulated::Dense(policy, _) => policy.contains(block as u32),
            Emulated::Hashed(cache) => cache.frame(block).is_some(),
        }
    }
}

/// The upper cache's emulation of the lower one.
pub(crate) struct LowerCopy {
    copy: Copy,
    confidence: Confidence,
}

impl LowerCopy {
    /// See [`Copy::new`].
    pub(crate) fn new(
        spec: &Spec,
        capacity: u32,
        mode: WriteMode,
        dense: Option<u32>,
    ) -> Result<Self, SpecError> {
        Ok(Self::of(Copy::new(spec, capacity, mode, dense)?))
    }

    /// Continues with an emulated cache.
    pub(crate) fn of(copy: Copy) -> Self {
        Self { copy, confidence: Confidence::new() }
    }
}

impl Source for LowerCopy {
    fn served(&mut self, block: u64, is_write: bool, hit: Option<bool>, news: &mut News) {
        let before = self.confidence.is_trusted();
        let foretold = self.copy.request(block, is_write, news);
        // The time of a write does not show where the block was.
        if let (false, Some(hit)) = (is_write, hit) {
            self.confidence.judge(foretold == hit);
        }
        self.confidence.end_request(before, news);
    }

    fn is_distrusted(&self) -> bool {
        !self.confidence.is_trusted()
    }

    fn holds(&self, block: u64) -> bool {
        self.confidence.is_trusted() && self.copy.holds(block)
    }

    fn counts(&self) -> SourceCounts {
        self.confidence.counts
    }

    fn restart_counts(&mut self) {
        self.confidence.counts = SourceCounts::default();
    }
}

/// The lower cache's emulation of the upper one: an LRU list of the blocks that it was sent.
pub(crate) struct UpperList {
    sent: BoundedLruMap<()>,
    mode: WriteMode,
    confidence: Confidence,
}

impl UpperList {
    pub(crate) fn new(capacity: u32, mode: WriteMode) -> Self {
        Self { sent: BoundedLruMap::new(capacity + 1, 0), mode, confidence: Confidence::new() }
    }
}

impl Source for UpperList {
    fn served(&mut self, block: u64, is_write: bool, _: Option<bool>, news: &mut News) {
        let before = self.confidence.is_trusted();
        if !is_write {
            // The upper cache does not request what it holds.
            self.confidence.judge(self.sent.get(block).is_none());
        }
        match self.mode {
            WriteMode::NoAllocate if is_write => (),
            WriteMode::Invalidate if is_write => {
                self.sent.remove(block);
                news.blocks.push((block, false));
            }
            _ => {
                self.sent.touch(block);
                news.blocks.push((block, true));
            }
        }
        while self.sent.len() >= self.sent.max() {
            let Some((gone, ())) = self.sent.pop_oldest() else { break };
            news.blocks.push((gone, false));
        }
        self.confidence.end_request(before, news);
    }

    fn holds(&self, block: u64) -> bool {
        self.confidence.is_trusted() && self.sent.get(block).is_some()
    }

    fn counts(&self) -> SourceCounts {
        self.confidence.counts
    }

    fn restart_counts(&mut self) {
        self.confidence.counts = SourceCounts::default();
    }
}

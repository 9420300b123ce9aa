//! A neighbour that says nothing, emulated.
//!
//! The lower cache sees every request that the upper one sends, in the same order as the emulation
//! does: with the right policy and size, and no other client, the emulation is exact, and the time
//! that a reply takes shows whether it is. The upper cache shows the lower one its misses only:
//! what it asked for last is what it holds, unless it asks for that again. An emulation that
//! foretells too little is not used: then nothing is known, and a content-aware policy is what it
//! is without.

use crate::bounded_lru_map::BoundedLruMap;
use crate::hashed::HashedCache;
use crate::policy::refer;
use crate::policy::{Context, Evictions, Policy, Spec, SpecError};
use crate::reference::WriteMode;

use super::source::{News, Source, SourceCounts};

/// Predictions by which an emulation is judged.
const JUDGED: usize = 1000;

/// Least share of them that must have come as foretold.
pub(crate) const TRUSTED: f64 = 0.8;

/// The share of the last predictions that came as foretold.
#[derive(Clone)]
pub(crate) struct Confidence {
    last: Vec<bool>,
    next: usize,
    right: usize,
}

impl Confidence {
    pub(crate) fn new() -> Self {
        Self { last: Vec::new(), next: 0, right: 0 }
    }

    pub(crate) fn judge(&mut self, is_right: bool) {
        self.right += usize::from(is_right);
        if self.last.len() < JUDGED {
            self.last.push(is_right);
            return;
        }
        self.right -= usize::from(std::mem::replace(&mut self.last[self.next], is_right));
        self.next = (self.next + 1) % JUDGED;
    }

    /// Before anything was foretold there is nothing to doubt.
    pub(crate) fn is_trusted(&self) -> bool {
        self.right as f64 >= TRUSTED * self.last.len() as f64
    }
}

/// The lower cache by a policy: which blocks it holds, after the requests that it was sent.
pub(crate) struct Copy {
    cache: Emulated,
    mode: WriteMode,
}

enum Emulated {
    /// Blocks are numbered from 0, as in a simulation.
    Dense(Box<dyn Policy>, Evictions),
    /// Blocks are any numbers.
    Hashed(Box<HashedCache>),
}

impl Copy {
    /// A copy of so many blocks; `dense`: in a world of that many, else of any numbers.
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

    /// Sends it a request: whether it had the block. What came and went is in `news`.
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
                (served.hit, served.frame.is_some())
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

/// The lower cache, emulated by the upper one.
pub(crate) struct LowerCopy {
    copy: Copy,
    confidence: Confidence,
    counts: SourceCounts,
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

    /// Goes on with a copy.
    pub(crate) fn of(copy: Copy) -> Self {
        Self { copy, confidence: Confidence::new(), counts: SourceCounts::default() }
    }
}

impl Source for LowerCopy {
    fn came(&mut self, _: u64, _: &mut News) {}

    fn went(&mut self, _: u64, _: &mut News) {}

    fn served(&mut self, block: u64, is_write: bool, hit: Option<bool>, news: &mut News) {
        let before = self.confidence.is_trusted();
        let foretold = self.copy.request(block, is_write, news);
        // How long a write takes says nothing of where the block was.
        if let (false, Some(hit)) = (is_write, hit) {
            self.confidence.judge(foretold == hit);
            self.counts.predictions += 1;
            self.counts.confirmed += u64::from(foretold == hit);
        }
        let is_trusted = self.confidence.is_trusted();
        self.counts.distrusted += u64::from(!is_trusted);
        news.all |= before != is_trusted;
        if !is_trusted {
            news.blocks.clear();
        }
    }

    fn is_distrusted(&self) -> bool {
        !self.confidence.is_trusted()
    }

    fn holds(&self, block: u64) -> bool {
        self.confidence.is_trusted() && self.copy.holds(block)
    }

    fn was_held(&self, _: u64) -> bool {
        false
    }

    fn counts(&self) -> SourceCounts {
        self.counts
    }

    fn restart_counts(&mut self) {
        self.counts = SourceCounts::default();
    }
}

/// The upper cache, emulated by the lower one: an LRU list of what it was sent.
pub(crate) struct UpperList {
    sent: BoundedLruMap<()>,
    mode: WriteMode,
    confidence: Confidence,
    counts: SourceCounts,
}

impl UpperList {
    pub(crate) fn new(capacity: u32, mode: WriteMode) -> Self {
        Self {
            sent: BoundedLruMap::new(capacity + 1, 0),
            mode,
            confidence: Confidence::new(),
            counts: SourceCounts::default(),
        }
    }
}

impl Source for UpperList {
    fn came(&mut self, _: u64, _: &mut News) {}

    fn went(&mut self, _: u64, _: &mut News) {}

    fn served(&mut self, block: u64, is_write: bool, _: Option<bool>, news: &mut News) {
        let before = self.confidence.is_trusted();
        if !is_write {
            // It would not ask for what it has.
            let is_right = self.sent.get(block).is_none();
            self.confidence.judge(is_right);
            self.counts.predictions += 1;
            self.counts.confirmed += u64::from(is_right);
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
        let is_trusted = self.confidence.is_trusted();
        self.counts.distrusted += u64::from(!is_trusted);
        news.all |= before != is_trusted;
        if !is_trusted {
            news.blocks.clear();
        }
    }

    fn holds(&self, block: u64) -> bool {
        self.confidence.is_trusted() && self.sent.get(block).is_some()
    }

    fn was_held(&self, _: u64) -> bool {
        false
    }

    fn counts(&self) -> SourceCounts {
        self.counts
    }

    fn restart_counts(&mut self) {
        self.counts = SourceCounts::default();
    }
}

//! Which references a cache hits, by their reuse distance: shorter than the cache, or not (TPDS
//! 2004, Table 3). A policy for second-level caches hits many references that are farther apart.

use serde::Serialize;
use undercroft_level::DenseLevel;
use undercroft_policy::Reference;
use undercroft_trace::BlockNames;

use super::report::scaled;
use crate::{Error, LevelConfig};

/// Hits and misses of references at distances below the size of the cache, and from it on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cells {
    /// Hits at distances below the size.
    pub lt_hits: u64,
    /// Misses at distances below the size.
    pub lt_misses: u64,
    /// Hits at distances from the size on.
    pub ge_hits: u64,
    /// Misses at distances from the size on.
    pub ge_misses: u64,
    /// First references.
    pub first: u64,
}

impl Cells {
    fn count(&mut self, is_below: Option<bool>, is_hit: bool) {
        let cell = match (is_below, is_hit) {
            (None, _) => &mut self.first,
            (Some(true), true) => &mut self.lt_hits,
            (Some(true), false) => &mut self.lt_misses,
            (Some(false), true) => &mut self.ge_hits,
            (Some(false), false) => &mut self.ge_misses,
        };
        *cell += 1;
    }

    /// What the cells of a sample mean for the whole.
    pub(super) fn scaled(&self, scale: f64) -> Self {
        Self {
            lt_hits: scaled(self.lt_hits, scale),
            lt_misses: scaled(self.lt_misses, scale),
            ge_hits: scaled(self.ge_hits, scale),
            ge_misses: scaled(self.ge_misses, scale),
            first: scaled(self.first, scale),
        }
    }
}

/// A cache that runs along, and its cells.
pub struct Split {
    level: DenseLevel,
    /// Size of the cache that it stands for, with which distances are compared.
    size: u64,
    /// Block numbers for which the policy has names.
    bound: u32,
    /// By temporal distance.
    pub by_temporal: Cells,
    /// By stack distance.
    pub by_stack: Cells,
}

impl Split {
    /// An empty cache; of a sample of the blocks it is smaller in proportion.
    ///
    /// # Errors
    /// The policy cannot be made, needs the whole trace first, or a neighbouring cache.
    pub fn new(config: &LevelConfig, rate: f64) -> Result<Self, Error> {
        let why = "the split is made in one pass over the trace with one cache; a policy that \
                   looks ahead or at a neighbouring cache cannot be used";
        config.check_alone(why)?;
        Ok(Self {
            level: config.of_sample(rate).level()?,
            size: config.capacity.into(),
            bound: 0,
            by_temporal: Cells::default(),
            by_stack: Cells::default(),
        })
    }

    /// Learns the names of new blocks.
    pub fn grow(&mut self, names: &BlockNames) {
        self.level.bind(self.bound, (self.bound..names.len()).map(|number| names.name(number)));
        self.bound = names.len();
    }

    /// Serves a reference, whose block is below `entries`, with its distances to the one before.
    pub fn reference(
        &mut self,
        entries: u32,
        reference: Reference,
        temporal: Option<u64>,
        stack: Option<u64>,
    ) {
        let is_hit = self.level.reference(entries, reference);
        self.by_temporal.count(temporal.map(|distance| distance < self.size), is_hit);
        self.by_stack.count(stack.map(|distance| distance < self.size), is_hit);
    }
}

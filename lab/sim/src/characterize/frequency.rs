//! How often blocks are referenced: how many blocks have at least n references, which share of all
//! references goes to those, and how few blocks get most of them.

use std::collections::BTreeMap;

use serde::Serialize;

/// The references of each block. A block costs 4 bytes.
#[derive(Default)]
pub struct Frequencies {
    /// By block. What is beyond 32 bits is not counted here; no row needs it.
    counts: Vec<u32>,
    references: u64,
}

/// The blocks with at least so many references.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FrequencyRow {
    /// Fewest references of a block: a power of two.
    pub at_least: u64,
    /// Blocks with so many.
    pub blocks: u64,
    /// Share of all blocks.
    pub block_share: f64,
    /// Share of all references that goes to these blocks.
    pub reference_share: f64,
}

/// The fewest blocks that get a share of the references together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Concentration {
    /// Share of the references, at least.
    pub reference_share: f64,
    /// Number of blocks.
    pub blocks: u64,
}

/// The shares of [`Frequencies::concentration`].
const SHARES: [f64; 4] = [0.5, 0.8, 0.9, 0.99];

impl Frequencies {
    /// Makes room for blocks below `entries`.
    pub fn grow(&mut self, entries: u32) {
        self.counts.resize(self.counts.len().max(entries as usize), 0);
    }

    /// Counts a reference.
    #[inline]
    pub fn reference(&mut self, entry: u32) {
        let count = &mut self.counts[entry as usize];
        *count = count.saturating_add(1);
        self.references += 1;
    }

    /// Number of blocks that have each number of references.
    fn by_count(&self) -> BTreeMap<u32, u64> {
        let mut blocks = BTreeMap::new();
        // Most blocks have few references: those need no look-up each.
        let mut few = [0_u64; 256];
        for &count in self.counts.iter().filter(|&&count| count > 0) {
            match few.get_mut(count as usize) {
                Some(blocks) => *blocks += 1,
                None => *blocks.entry(count).or_default() += 1,
            }
        }
        let few = few.iter().enumerate().filter(|(_, blocks)| **blocks > 0);
        blocks.extend(few.map(|(count, &blocks)| (count as u32, blocks)));
        blocks
    }

    /// A row for 1, 2, 4, ... references, up to the first that no block has.
    pub fn table(&self) -> Vec<FrequencyRow> {
        let by_count = self.by_count();
        let all: u64 = by_count.values().sum();
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let mut rows: Vec<FrequencyRow> = Vec::new();
        for at_least in (0..32).map(|log2| 1_u32 << log2) {
            let fewer = by_count.range(..at_least);
            let (blocks, references) = fewer.fold((all, self.references), |left, (&n, &blocks)| {
                (left.0 - blocks, left.1 - u64::from(n) * blocks)
            });
            rows.push(FrequencyRow {
                at_least: at_least.into(),
                blocks,
                block_share: share(blocks, all),
                reference_share: share(references, self.references),
            });
            if blocks == 0 {
                break;
            }
        }
        rows
    }

    /// The fewest blocks that get 50, 80, 90 and 99 % of the references.
    pub fn concentration(&self) -> Vec<Concentration> {
        let by_count = self.by_count();
        let blocks_for = |reference_share: f64| {
            let wanted = (reference_share * self.references as f64).ceil() as u64;
            let (mut blocks, mut references) = (0, 0);
            for (&count, &with_it) in by_count.iter().rev() {
                let needed = wanted.saturating_sub(references).div_ceil(count.into()).min(with_it);
                blocks += needed;
                references += needed * u64::from(count);
            }
            Concentration { reference_share, blocks }
        };
        SHARES.into_iter().map(blocks_for).collect()
    }
}

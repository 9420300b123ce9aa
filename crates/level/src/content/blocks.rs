//! Sets of blocks: one bit for each block if blocks are numbered from 0, as in a simulation; a
//! hashed set for any numbers, as in a server.

use foldhash::fast::FixedState;
use hashbrown::HashSet;

/// A set of blocks.
pub(crate) enum Blocks {
    /// A bit for each number.
    Dense(Vec<u64>),
    /// Any numbers, at most so many blocks; further ones are not taken in.
    Hashed(HashSet<u64, FixedState>, usize),
}

impl Blocks {
    /// An empty set of numbers below `blocks`.
    pub(crate) fn below(blocks: u32) -> Self {
        Self::Dense(vec![0; blocks.div_ceil(64) as usize])
    }

    /// An empty set of any numbers, for at most `most` blocks.
    pub(crate) fn any(most: u32) -> Self {
        Self::Hashed(HashSet::default(), most as usize)
    }

    pub(crate) fn set(&mut self, block: u64, is_in: bool) {
        match self {
            Self::Dense(words) => {
                let (word, bit) = (&mut words[block as usize / 64], 1 << (block % 64));
                *word = if is_in { *word | bit } else { *word & !bit };
            }
            Self::Hashed(all, most) if is_in => {
                if all.len() < *most {
                    all.insert(block);
                }
            }
            Self::Hashed(all, _) => _ = all.remove(&block),
        }
    }

    pub(crate) fn contains(&self, block: u64) -> bool {
        match self {
            Self::Dense(words) => words[block as usize / 64] >> (block % 64) & 1 != 0,
            Self::Hashed(all, _) => all.contains(&block),
        }
    }
}

//! Which blocks are in the sample, and what is told of them.

use undercroft_random::hash;

use crate::GROUPS;

/// Number of samples of one adviser, each a part of the one before.
pub(crate) const DEPTHS: usize = 3;

/// The share of the blocks in each sample.
pub(crate) type Rates = [f64; DEPTHS];

/// A share of all blocks, chosen by a hash of their numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Hashes up to this one are in the sample.
    threshold: u64,
    /// Makes the sample unpredictable for clients that choose the block numbers.
    seed: u64,
}

impl Sample {
    /// A sample of a share `rate` of the blocks, from 0 to 1.
    pub fn new(rate: f64, seed: u64) -> Self {
        // The conversion saturates: rate 1 takes every block.
        Self { threshold: (rate.clamp(0.0, 1.0) * 2_f64.powi(64)) as u64, seed }
    }

    /// The sample with a [threshold](Self::threshold).
    pub const fn with_threshold(threshold: u64, seed: u64) -> Self {
        Self { threshold, seed }
    }

    /// What stands for the rate: blocks are in the sample whose hash is not above it.
    pub const fn threshold(&self) -> u64 {
        self.threshold
    }

    /// The share of the blocks.
    pub fn rate(&self) -> f64 {
        match self.threshold {
            u64::MAX => 1.0,
            threshold => threshold as f64 / 2_f64.powi(64),
        }
    }

    /// Whether a block is in the sample.
    #[inline]
    pub fn takes(&self, block: u64) -> bool {
        hash(block ^ self.seed) <= self.threshold
    }

    /// The group of a block. It does not depend on the bits that choose the sample.
    #[inline]
    pub(crate) fn group(&self, block: u64) -> u8 {
        (hash(block ^ self.seed) % GROUPS as u64) as u8
    }
}

/// Something that happened to a block of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The block.
    pub block: u64,
    /// The time in microseconds, on one clock for all events; of an eviction, when the client
    /// evicted the block.
    pub at_us: u64,
    /// Reads of any blocks, in the sample or not, since the event before this one. A read counts
    /// itself.
    pub reads: u32,
    /// What happened.
    pub kind: Kind,
    /// Number of the client.
    pub client: u8,
}

/// What happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A client read it, all of it or a part. `tells`: the client tells what it evicts.
    Read {
        /// Whether the request covered the whole block.
        is_whole: bool,
        /// Whether the evictions of the client become known.
        tells: bool,
    },
    /// A client wrote it.
    Write {
        /// Whether the request covered the whole block.
        is_whole: bool,
        /// Whether the evictions of the client become known.
        tells: bool,
    },
    /// A client told that it evicted the block.
    Evicted {
        /// Whether it handed the block's contents over.
        has_contents: bool,
    },
    /// Its content is void (TRIM).
    Discarded,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_its_share_of_the_blocks_in_equal_groups() {
        let sample = Sample::new(0.1, 7);
        assert!((sample.rate() - 0.1).abs() < 1e-12);
        let mut groups = [0_u32; GROUPS];
        (0..320_000).filter(|&block| sample.takes(block)).for_each(|block| {
            groups[usize::from(sample.group(block))] += 1;
        });
        let all: u32 = groups.iter().sum();
        assert!((31_000..33_000).contains(&all), "{all}");
        assert!(groups.iter().all(|count| (850..1150).contains(count)), "{groups:?}");
        assert!((0..1000).all(|block| Sample::new(1.0, 3).takes(block)));
        assert_eq!(Sample::new(1.0, 3).rate(), 1.0);
        assert_eq!((0..1000).filter(|&block| Sample::new(0.0, 3).takes(block)).count(), 0);
    }
}

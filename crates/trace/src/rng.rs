//! SplitMix64: the one source of random numbers, the same on every machine.
//!
//! Nothing here is meant for cryptography. Distributions are in `generate/`.

/// Golden-ratio increment of SplitMix64's counter.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's output function: a bijection on 64-bit numbers that mixes every bit into every
/// other. Also serves as the hash of block numbers.
#[inline]
pub const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Starts the stream that belongs to `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// The next number in [0, 1): the top 53 bits over 2^53, so every value is exact.
    #[inline]
    pub const fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The next number in `0..bound`, from one draw. The high half of a product instead of a
    /// remainder: no division, and a bias below `bound / 2^64`, which no trace can show.
    #[inline]
    pub const fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0);
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// The next number in `low..=high`.
    #[inline]
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high && high - low < u64::MAX);
        low + self.below(high - low + 1)
    }

    /// True with the given probability in [0, 1].
    #[inline]
    pub const fn chance(&mut self, probability: f64) -> bool {
        self.next_f64() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rng_1_of_the_specification() {
        let mut random = SplitMix64::new(42);
        let first: Vec<f64> = (0..4).map(|_| random.next_f64()).collect();
        assert_eq!(
            first,
            [0.7415648787718233, 0.1599103928769201, 0.27860113025513866, 0.34419071652363753]
        );
    }

    #[test]
    fn bounds_hold_and_both_ends_occur() {
        let mut random = SplitMix64::new(1);
        let drawn: Vec<u64> = (0..1000).map(|_| random.between(5, 15)).collect();
        assert_eq!(drawn.iter().min(), Some(&5));
        assert_eq!(drawn.iter().max(), Some(&15));
        assert!(!random.chance(0.0) && random.chance(1.0));
    }
}

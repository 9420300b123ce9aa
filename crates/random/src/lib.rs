//! SplitMix64: the one source of random numbers, and the hash of block numbers, the same on every
//! machine. Traces that are generated, schemes that toss coins, shards, filters on the wire and the
//! tests draw from it.
//!
//! The sequences never change: golden tables, wire formats and state files depend on them.
//! Distributions are in `undercroft-trace`. Nothing here is meant for secrets.
//!
//! ```
//! use undercroft_random::SplitMix64;
//!
//! let mut random = SplitMix64::new(42);
//! assert_eq!(random.next_f64(), 0.7415648787718233);
//! assert!(random.below(10) < 10);
//! ```
#![forbid(unsafe_code)]

pub mod testing;

/// The golden ratio as a fraction of 2^64, made odd: the step of SplitMix64's counter.
pub const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of SplitMix64: a bijection on 64-bit numbers that mixes every bit into
/// every other. Maps 0 to 0.
#[inline]
pub const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The first number of the generator that starts at `x`: a hash that gives neighbouring numbers
/// unrelated values.
#[inline]
pub const fn hash(x: u64) -> u64 {
    mix(x.wrapping_add(GOLDEN_RATIO))
}

/// Fibonacci hashing: one multiplication. Its upper bits are well spread, its lower ones are not.
#[inline]
pub const fn fibonacci(x: u64) -> u64 {
    x.wrapping_mul(GOLDEN_RATIO)
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
        self.state = self.state.wrapping_add(GOLDEN_RATIO);
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

    /// True once in `n` draws.
    #[inline]
    pub const fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// So many random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.next_u64().to_le_bytes());
        words.take(count.div_ceil(8)).flatten().take(count).collect()
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

    #[test]
    fn a_hash_is_the_first_number_of_its_stream() {
        for x in [0, 1, 42, u64::MAX] {
            assert_eq!(hash(x), SplitMix64::new(x).next_u64());
        }
    }

    #[test]
    fn bytes_are_as_many_as_asked_for() {
        for count in [0, 1, 7, 8, 9, 4099] {
            assert_eq!(SplitMix64::new(3).bytes(count).len(), count);
        }
    }
}

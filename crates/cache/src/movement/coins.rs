//! Random numbers for schemes that toss coins: SplitMix64, one stream a cache, so that the draws of
//! a cache do not depend on what others draw.

use std::collections::VecDeque;

use undercroft_random::SplitMix64;

/// A stream of numbers in [0, 1) for each cache.
pub(super) struct Coins {
    streams: Vec<SplitMix64>,
    /// Numbers that are drawn before all others, whoever asks: for worked examples.
    script: VecDeque<f64>,
}

impl Coins {
    /// Cache `i` draws from the stream of `seed + i`.
    pub(super) fn new(seed: u64, nodes: usize, script: &[f64]) -> Self {
        let streams = (0..nodes as u64).map(|i| SplitMix64::new(seed.wrapping_add(i)));
        Self { streams: streams.collect(), script: script.iter().copied().collect() }
    }

    /// The next number of a cache.
    pub(super) fn draw(&mut self, node: usize) -> f64 {
        self.script.pop_front().unwrap_or_else(|| self.streams[node].next_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::Coins;

    #[test]
    fn rng_1_of_the_specification() {
        let mut coins = Coins::new(42, 2, &[0.5]);
        assert_eq!(coins.draw(1), 0.5, "the script comes first");
        let first: Vec<f64> = (0..4).map(|_| coins.draw(0)).collect();
        assert_eq!(
            first,
            [0.7415648787718233, 0.1599103928769201, 0.27860113025513866, 0.34419071652363753]
        );
    }
}

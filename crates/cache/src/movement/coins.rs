//! Random numbers for schemes that toss coins: SplitMix64, one stream a cache, so that the draws of
//! a cache do not depend on what others draw.

use std::collections::VecDeque;

/// A stream of numbers in [0, 1) for each cache.
pub(super) struct Coins {
    states: Vec<u64>,
    /// Numbers that are drawn before all others, whoever asks: for worked examples.
    script: VecDeque<f64>,
}

impl Coins {
    /// Cache `i` draws from the stream of `seed + i`.
    pub(super) fn new(seed: u64, nodes: usize, script: &[f64]) -> Self {
        let states = (0..nodes as u64).map(|i| seed.wrapping_add(i)).collect();
        Self { states, script: script.iter().copied().collect() }
    }

    /// The next number of a cache: the top 53 bits over 2^53.
    pub(super) fn draw(&mut self, node: usize) -> f64 {
        if let Some(number) = self.script.pop_front() {
            return number;
        }
        let state = &mut self.states[node];
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 11) as f64 / (1_u64 << 53) as f64
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

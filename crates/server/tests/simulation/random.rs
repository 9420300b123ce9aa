//! Numbers that follow from a seed, and the ways in which a run draws from them.

use undercroft_random::SplitMix64;

/// Draws of a run. They are remainders: the seeds that `seeds.rs` pins depend on it.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::new(seed))
    }

    /// Another sequence, for a part of the run that draws by itself.
    pub fn fork(&mut self) -> Random {
        Random::new(self.next())
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// From the first to the last, both possible.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True in so many of a hundred draws.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// One of them, by weight.
    pub fn weighted<T: Copy>(&mut self, from: &[(T, u64)]) -> T {
        let mut at = self.below(from.iter().map(|(_, weight)| weight).sum());
        for &(one, weight) in from {
            if at < weight {
                return one;
            }
            at -= weight;
        }
        from[0].0
    }

    /// Weights of a swarm: some are switched off for the whole run, some are raised, so that runs
    /// differ more than the operations within one.
    pub fn swarm<T: Copy>(&mut self, usual: &[(T, u64)]) -> Vec<(T, u64)> {
        let drawn: Vec<_> = usual
            .iter()
            .map(|&(one, weight)| {
                let weight = match self.below(10) {
                    0..3 => 0,
                    3..5 => weight * 5,
                    _ => weight,
                };
                (one, weight)
            })
            .collect();
        if drawn.iter().all(|(_, weight)| *weight == 0) { usual.to_vec() } else { drawn }
    }
}

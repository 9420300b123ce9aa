//! Numbers that follow from a seed, and the ways in which a run draws from them.

/// SplitMix64: small, and every seed is a good one.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Another sequence, for a part of the run that draws by itself.
    pub fn fork(&mut self) -> Random {
        Random(self.next())
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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

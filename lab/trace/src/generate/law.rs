//! Distributions of the generators: the Zipf law, and a permutation that hides its order. No
//! table: memory does not grow with the number of blocks.

use undercroft_random::{SplitMix64, mix};

/// Ranks 0, 1, ... drawn in proportion to (rank + 1)^-alpha, exactly, by rejection-inversion
/// (Hoermann & Derflinger, ACM TOMACS 1996): the continuous law's integral is inverted and the rare
/// point outside the discrete law's bars is drawn again.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    ranks: f64,
    alpha: f64,
    integral_first: f64,
    integral_last: f64,
    accept_within: f64,
}

impl Zipf {
    pub(super) fn new(ranks: u64, alpha: f64) -> Self {
        let mut law = Self {
            ranks: ranks as f64,
            alpha,
            integral_first: 0.0,
            integral_last: 0.0,
            accept_within: 0.0,
        };
        law.integral_first = law.integral(1.5) - 1.0;
        law.integral_last = law.integral(law.ranks + 0.5);
        law.accept_within = 2.0 - law.integral_inverse(law.integral(2.5) - law.density(2.0));
        law
    }

    #[inline]
    pub(super) fn draw(&self, random: &mut SplitMix64) -> u64 {
        loop {
            let u =
                self.integral_last + random.next_f64() * (self.integral_first - self.integral_last);
            let x = self.integral_inverse(u);
            // Truncated through an integer: `floor` is a call on machines without the instruction.
            let k = ((x + 0.5) as u64 as f64).clamp(1.0, self.ranks);
            // The first test is cheap and nearly always decides.
            if k - x <= self.accept_within || u >= self.integral(k + 0.5) - self.density(k) {
                return k as u64 - 1;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.alpha * libm::log(x))
    }

    /// Integral of the density from 1 to x: (x^(1 - alpha) - 1) / (1 - alpha), and log x for 1.
    fn integral(&self, x: f64) -> f64 {
        let log_x = libm::log(x);
        expm1_over((1.0 - self.alpha) * log_x) * log_x
    }

    fn integral_inverse(&self, x: f64) -> f64 {
        // Rounding may lead a hair below the pole of the logarithm.
        let t = (x * (1.0 - self.alpha)).max(-1.0);
        libm::exp(log1p_over(t) * x)
    }
}

/// log(1 + x) / x, which tends to 1: near 0 by its series, where the quotient has no meaning.
fn log1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::log1p(x) / x } else { 1.0 - x * (0.5 - x / 3.0) }
}

/// (e^x - 1) / x, likewise.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { libm::expm1(x) / x } else { 1.0 + x * (0.5 + x / 6.0) }
}

/// A permutation of `0..size`: a bijection of the next power of two, walked until it lands
/// inside (fewer than two steps on average).
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    size: u64,
    mask: u64,
    shift: u32,
    factors: [u64; 3],
}

impl Permutation {
    pub(super) fn new(size: u64, seed: u64) -> Self {
        let bits = (u64::BITS - (size - 1).leading_zeros()).max(1);
        Self {
            size,
            mask: u64::MAX >> (u64::BITS - bits),
            shift: bits / 2 + 1,
            // Odd factors are invertible modulo every power of two.
            factors: [1, 2, 3].map(|i| mix(seed.wrapping_add(i)) | 1),
        }
    }

    #[inline]
    pub(super) fn apply(&self, mut x: u64) -> u64 {
        debug_assert!(x < self.size);
        loop {
            for factor in self.factors {
                x = x.wrapping_add(factor >> 32).wrapping_mul(factor) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.size {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_is_one() {
        for size in [1, 2, 3, 7, 64, 65, 1000] {
            let permutation = Permutation::new(size, 7);
            let mut image: Vec<u64> = (0..size).map(|x| permutation.apply(x)).collect();
            image.sort_unstable();
            assert!(image.into_iter().eq(0..size), "size {size}");
        }
    }

    /// Chi-square against the exact law: with 50 cells the statistic is about 49 +- 10.
    #[test]
    fn ranks_follow_the_exact_law() {
        const DRAWS: u32 = 1_000_000;
        for alpha in [0.0, 0.5, 0.9, 1.0, 1.2, 2.5] {
            let law = Zipf::new(50, alpha);
            let mut random = SplitMix64::new(1);
            let mut found = [0_u32; 50];
            for _ in 0..DRAWS {
                found[law.draw(&mut random) as usize] += 1;
            }
            let weights: Vec<f64> = (1..=50).map(|r| f64::from(r).powf(-alpha)).collect();
            let total: f64 = weights.iter().sum();
            let chi_square: f64 = weights
                .iter()
                .zip(found)
                .map(|(weight, found)| {
                    let expected = f64::from(DRAWS) * weight / total;
                    (f64::from(found) - expected).powi(2) / expected
                })
                .sum();
            assert!((15.0..95.0).contains(&chi_square), "alpha {alpha}: {chi_square}");
        }
    }

    #[test]
    fn the_ends_of_large_and_small_laws_stay_inside() {
        let mut random = SplitMix64::new(3);
        for (ranks, alpha) in [(1, 0.9), (2, 10.0), ((1 << 31) - 1, 0.0), ((1 << 31) - 1, 1.0)] {
            let law = Zipf::new(ranks, alpha);
            assert!((0..10_000).all(|_| law.draw(&mut random) < ranks));
        }
    }
}

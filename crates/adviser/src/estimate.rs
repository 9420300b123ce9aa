//! The estimate of a hit ratio from a sample, and its error.
//!
//! With `m` misses of reads in a sample of a share `r` of the blocks, and `n` reads of all blocks,
//! the miss ratio is `m / (r * n)`. So reads that the sample should have had and has not count as
//! hits (SHARDS-adj): the main error of a plain ratio comes from popular blocks, which nearly
//! always hit, being in the sample or not.
//!
//! The misses of `GROUPS` disjoint groups of the sample's blocks are `GROUPS` numbers of the same
//! distribution, so the variance of their sum is `GROUPS` times their variance. Since the sample is
//! a share of finitely many blocks, the share `1 - r` of that counts. Two cells see the same
//! blocks: their difference is taken group by group, and most of the error cancels out.
//!
//! Groups share the miniature, which the spread between them does not show: if more blocks than
//! expected are in the sample, the miniature is too small for all of them. With `c` blocks it is as
//! if its size were wrong by one part in `sqrt(c)`. What that does to the ratio is read off the
//! curve, whose slope is known from the cells of the next sizes.

use crate::GROUPS;

/// Factor of a standard error for an interval that holds the truth nine times in ten: Student's t
/// of 31 degrees of freedom.
const NINE_IN_TEN: f64 = 1.696;

/// How much wider intervals are than the theory says, since a miniature of few blocks is not quite
/// like a large cache. Measured against full runs: `docs/measurements/advice.md`.
pub const WIDENING: f64 = 1.5;

/// A number and its error: the interval `value - error ..= value + error` holds the truth nine
/// times in ten.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Half the width of the interval.
    pub error: f64,
}

impl Estimate {
    /// The sum of counts by group, as a share of the expected number of reads in a sample of a
    /// share `rate` of the blocks.
    pub(crate) fn of(groups: &[i64; GROUPS], expected: f64, rate: f64) -> Self {
        if expected <= 0.0 {
            return Self::default();
        }
        let sum: f64 = groups.iter().map(|&count| count as f64).sum();
        let mean = sum / GROUPS as f64;
        let squares: f64 = groups.iter().map(|&count| (count as f64 - mean).powi(2)).sum();
        // Of the sum of all groups.
        let variance = squares / (GROUPS - 1) as f64 * GROUPS as f64 * (1.0 - rate).max(0.0);
        Self { value: sum / expected, error: NINE_IN_TEN * WIDENING * variance.sqrt() / expected }
    }

    /// The standard error as theory has it.
    pub(crate) fn standard(&self) -> f64 {
        self.error / (NINE_IN_TEN * WIDENING)
    }

    /// The estimate with a further, independent standard error.
    pub(crate) fn with_standard(&self, further: f64) -> Self {
        let error = NINE_IN_TEN * WIDENING * self.standard().hypot(further);
        Self { error, ..*self }
    }

    /// Whether it is above 0 by more than its error.
    pub fn is_above_zero(&self) -> bool {
        self.value > self.error
    }

    /// The sum with another number, of which nothing is known but its error.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self { value: self.value + other.value, error: self.error + other.error }
    }

    /// The difference from an independent number.
    pub fn minus(&self, other: &Self) -> Self {
        Self { value: self.value - other.value, error: self.error.hypot(other.error) }
    }

    /// The number times a factor.
    pub fn times(&self, factor: f64) -> Self {
        Self { value: self.value * factor, error: self.error * factor.abs() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_case() {
        // 16 groups with 10 misses and 16 with 12: 352 of 704 expected reads. The variance of a
        // group is 32/31, of the sum 1024/31.
        let mut groups = [10; GROUPS];
        groups[16..].fill(12);
        let Estimate { value, error } = Estimate::of(&groups, 704.0, 0.0);
        assert_eq!(value, 0.5);
        let standard = (1024.0_f64 / 31.0).sqrt() / 704.0;
        assert!((error - 1.696 * WIDENING * standard).abs() < 1e-12);
        let quarter = Estimate::of(&groups, 704.0, 0.75);
        assert!((quarter.error - error / 2.0).abs() < 1e-12, "3/4 of all blocks are in the sample");
        assert_eq!(Estimate::of(&groups, 704.0, 1.0).error, 0.0, "all blocks");
        assert_eq!(Estimate::of(&[0; GROUPS], 0.0, 0.5), Estimate::default());
    }
}

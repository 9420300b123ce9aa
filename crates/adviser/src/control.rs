//! Ratios as the sample has them, their errors, and their correction by a ratio that is known
//! exactly.
//!
//! With `m` misses of reads in a sample of a share `r` of the blocks, and `n` reads of all blocks,
//! the miss ratio is `m / (r * n)`. So reads that the sample should have had and has not count as
//! hits (SHARDS-adj): the main error of a plain ratio comes from popular blocks, which nearly
//! always hit, being in the sample or not.
//!
//! The misses of [`GROUPS`] disjoint groups of the sample's blocks are numbers of the same
//! distribution, so the variance of their sum is `GROUPS` times their variance. Since the sample is
//! a share of finitely many blocks, the share `1 - r` of that counts. Two cells see the same
//! blocks: their difference is taken group by group, and most of the error cancels out.
//!
//! The cache itself counts its misses of all blocks. What today's miniature says differs from that
//! by chance: blocks with many or with few misses are in the sample. The other cells see the same
//! blocks, so they are off too, by a multiple that the groups of the sample show. Each figure is
//! corrected by that (a control variate, by linear regression): with `x` of today's miniature, the
//! true `X`, and `y` of a cell, the estimate is `y - b * (x - X)`, where `b` is the covariance of
//! `x` and `y` divided by the variance of `x`.
//!
//! Groups share the miniature, which the spread between them does not show: if more blocks than
//! expected are in the sample, the miniature is too small for all of them. With `c` blocks it is as
//! if its size were wrong by one part in `sqrt(c)`. What that does to the ratio is read off the
//! curve, whose slope is known from the cells of the next sizes. Two cells are wrong together, as
//! far as blocks that the one would hold are among those of the other.

use crate::GROUPS;
use crate::estimate::Estimate;

/// Standard errors by which today's miniature and the cache's own count may differ by chance. If
/// they differ by more, the cache does something that the miniature does not.
const CHANCE: f64 = 6.0;

/// How a ratio depends on the size of a miniature.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OfSize {
    /// By how much the ratio rises if the miniature is too small by one part in one.
    pub(crate) slope: f64,
    /// Blocks of the cache that is simulated.
    pub(crate) blocks: u32,
    /// The share of the blocks that the miniature sees.
    pub(crate) rate: f64,
}

impl OfSize {
    /// The covariance of two ratios by the sizes of their miniatures: of the blocks that both would
    /// hold, those in both samples.
    fn covariance(&self, other: &Self) -> f64 {
        let (rate, blocks) = (self.rate.max(other.rate), self.blocks.max(other.blocks));
        let common = f64::from(blocks) * rate;
        if common > 0.0 { self.slope * other.slope * (1.0 - rate) / common } else { 0.0 }
    }
}

/// A ratio in a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampled {
    /// What the blocks of each group add to it.
    groups: [f64; GROUPS],
    /// The share of all blocks that these are.
    rate: f64,
    /// What it depends on: a difference has two miniatures, and its correction one.
    sizes: [OfSize; 3],
    is_corrected: bool,
}

impl Sampled {
    /// Counts by group, as a share of so many reads of all blocks. The counted blocks are a share
    /// `rate` of all.
    pub(crate) fn new(groups: &[i64; GROUPS], reads: u64, rate: f64, size: OfSize) -> Self {
        let expected = reads as f64 * rate;
        let share = if expected > 0.0 { 1.0 / expected } else { 0.0 };
        let groups = groups.map(|count| count as f64 * share);
        let sizes = [size, OfSize::default(), OfSize::default()];
        Self { groups, rate, sizes, is_corrected: false }
    }

    /// The difference of two ratios of the same sample, each of one miniature.
    pub(crate) fn minus(&self, other: &Self) -> Self {
        self.less(1.0, other, 0.0)
    }

    /// The ratio without `times` another one, whose truth is added instead.
    fn less(&self, times: f64, other: &Self, truth: f64) -> Self {
        let known = truth / GROUPS as f64;
        let groups = std::array::from_fn(|at| self.groups[at] - times * (other.groups[at] - known));
        let [first, second, _] = self.sizes;
        let its = OfSize { slope: -times * other.sizes[0].slope, ..other.sizes[0] };
        let sizes = if second.slope == 0.0 { [first, its, second] } else { [first, second, its] };
        Self { groups, sizes, ..*self }
    }

    /// The ratio.
    fn value(&self) -> f64 {
        self.groups.iter().sum()
    }

    /// The covariance of two ratios of the same sample.
    fn covariance(&self, other: &Self) -> f64 {
        let count = GROUPS as f64;
        let (mean, its) = (self.value() / count, other.value() / count);
        let pairs = self.groups.iter().zip(&other.groups);
        let products: f64 = pairs.map(|(one, two)| (one - mean) * (two - its)).sum();
        // Of finitely many blocks, a share is known.
        let of_groups = products / (count - 1.0) * count * (1.0 - self.rate).max(0.0);
        let pairs = self.sizes.iter().flat_map(|one| other.sizes.iter().map(move |two| (one, two)));
        of_groups + pairs.map(|(one, two)| one.covariance(two)).sum::<f64>()
    }

    /// The ratio with its error.
    pub(crate) fn estimate(&self) -> Estimate {
        let standard = self.covariance(self).max(0.0).sqrt();
        let with = if self.is_corrected { Estimate::corrected } else { Estimate::new };
        with(self.value(), standard)
    }

    /// The ratio, corrected by a known one of the same sample.
    pub(crate) fn corrected(&self, known: &Known) -> Self {
        let Known { sampled, truth } = known;
        let spread = sampled.covariance(sampled);
        let off = sampled.value() - truth;
        if spread <= 0.0 || off.powi(2) > CHANCE.powi(2) * spread {
            return *self;
        }
        let less = self.less(self.covariance(sampled) / spread, sampled, *truth);
        Self { is_corrected: true, ..less }
    }
}

/// A ratio that is known exactly, and what the sample says of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) sampled: Sampled,
    pub(crate) truth: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::{WIDENING, WIDENING_CORRECTED};

    /// 16 groups with `few` misses and 16 with `many`, of 704 expected reads.
    fn sampled(few: i64, many: i64, rate: f64) -> Sampled {
        let mut groups = [few; GROUPS];
        groups[16..].fill(many);
        Sampled::new(&groups, (704.0 / rate) as u64, rate, OfSize::default())
    }

    #[test]
    fn worked_case() {
        // 352 of 704 reads. The variance of a group is 32/31, of the sum 1024/31.
        let standard = (1024.0_f64 / 31.0).sqrt() / 704.0;
        let half = sampled(10, 12, 0.5).estimate();
        assert!((half.value - 0.5).abs() < 1e-12);
        let error = 1.696 * WIDENING * standard * 0.5_f64.sqrt();
        assert!((half.error - error).abs() < 1e-12, "half of all blocks are in the sample");
        assert_eq!(sampled(10, 12, 1.0).estimate().error, 0.0, "all blocks");
        let size = OfSize { slope: 0.2, blocks: 200, rate: 0.5 };
        let equal = Sampled::new(&[11; GROUPS], 1408, 0.5, size).estimate();
        assert!((equal.standard() - 0.2 * (0.5_f64 / 100.0).sqrt()).abs() < 1e-12);
        assert_eq!(Sampled::new(&[0; GROUPS], 0, 0.5, size).estimate().value, 0.0);
    }

    #[test]
    fn a_known_ratio_corrects_those_that_go_with_it() {
        // Where today's misses are 2 more, the other cell's are 1 more.
        let (today, other) = (sampled(10, 12, 0.5), sampled(5, 6, 0.5));
        let known = Known { sampled: today, truth: 0.48 };
        let own = today.corrected(&known).estimate();
        assert!((own.value - 0.48).abs() < 1e-12 && own.error < 1e-9, "it is known");
        let corrected = other.corrected(&known).estimate();
        assert!((corrected.value - (0.25 - 0.01)).abs() < 1e-12, "{corrected:?}");
        assert!(corrected.error < 1e-9);
        let gain = today.minus(&other).corrected(&known).estimate();
        assert!((gain.value - (0.48 - 0.24)).abs() < 1e-12, "{gain:?}");
        // What has nothing to do with today's misses stays as it is.
        let mut groups = [10; GROUPS];
        groups.iter_mut().skip(1).step_by(2).for_each(|count| *count = 12);
        let independent = Sampled::new(&groups, 1408, 0.5, OfSize::default());
        let (before, after) = (independent.estimate(), independent.corrected(&known).estimate());
        assert!((before.value - after.value).abs() < 1e-12);
        let wider = WIDENING_CORRECTED / WIDENING;
        assert!((before.error * wider - after.error).abs() < 1e-12, "{before:?} {after:?}");
        // The cache misses so much less that no sample could say what the miniature says.
        let unlike = Known { sampled: today, truth: 0.1 };
        assert_eq!(other.corrected(&unlike).estimate(), other.estimate());
    }

    #[test]
    fn sizes_are_wrong_together_as_far_as_their_samples_are_the_same() {
        let small = OfSize { slope: 0.3, blocks: 1000, rate: 0.2 };
        let large = OfSize { slope: 0.1, blocks: 4000, rate: 0.05 };
        let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-12, "{one} {other}");
        close(small.covariance(&small), 0.09 * 0.8 / 200.0);
        close(large.covariance(&large), 0.01 * 0.95 / 200.0);
        close(small.covariance(&large), 0.03 * 0.8 / 800.0);
    }
}

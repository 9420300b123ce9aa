//! Approximate miss ratio curves of any policy, from a sample of the blocks.
//!
//! A hash selects a share `rate` of the blocks, with all their references. A cache of `c` blocks is
//! simulated by one of `c * rate` blocks (SHARDS: Waldspurger et al., FAST 2015; miniature
//! simulations: ATC 2017). The main error comes from popular blocks that happen to be in the sample
//! or not. They would nearly always hit, so the difference between the expected and the actual
//! number of reads in the sample is counted as hits (SHARDS-adj).

use undercroft_policy::{Spec, WriteMode};
use undercroft_trace::DenseTrace;

use crate::{Config, Error, LevelConfig, simulate};

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Cache size in blocks.
    pub capacity: u32,
    /// Read hits / reads, estimated.
    pub read_hit_ratio: f64,
}

/// Estimates the read hit ratio of `policy` at each of `capacities`. `sample` is a trace read with
/// the sample rate `rate`.
///
/// # Errors
/// The policy cannot be made, the sample has no blocks, or a spooled trace cannot be read back.
pub fn sampled_curve(
    sample: &DenseTrace,
    rate: f64,
    policy: &Spec,
    capacities: &[u32],
) -> Result<Vec<Point>, Error> {
    if sample.is_empty() && sample.seen().references() > 0 {
        return Err(Error::empty_sample(rate));
    }
    let (kept, all) = (sample.kept().reads, sample.seen().reads);
    let point = |&capacity: &u32| {
        let level = LevelConfig { capacity, policy: policy.clone() }.of_sample(rate);
        let write_mode = WriteMode::Allocate;
        let config = Config { levels: vec![level], write_mode, ..Config::default() };
        let hits = simulate(sample, &config, |_| ())?.read_hits();
        Ok(Point { capacity, read_hit_ratio: adjusted(hits, kept, all, rate) })
    };
    capacities.iter().map(point).collect()
}

/// The read hit ratio of a whole trace with `all` reads, of which a sample of a share `rate` of the
/// blocks has `kept`, and `hits` hits. What is missing to the expected number counts as hits.
pub(crate) fn adjusted(hits: u64, kept: u64, all: u64, rate: f64) -> f64 {
    let expected = all as f64 * rate;
    let surplus = kept as f64 - expected;
    let ratio = if expected > 0.0 { (hits as f64 - surplus) / expected } else { 0.0 };
    ratio.clamp(0.0, 1.0)
}

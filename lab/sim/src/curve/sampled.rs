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
        let why = format!("a sample of {rate} of the blocks holds none: use a larger rate");
        return Err(Error::Request(why));
    }
    let expected = sample.seen().reads as f64 * rate;
    let surplus = sample.kept().reads as f64 - expected;
    let point = |&capacity: &u32| {
        let scaled = (f64::from(capacity) * rate).round().max(1.0) as u32;
        let config = Config {
            levels: vec![LevelConfig { capacity: scaled, policy: policy.clone() }],
            write_mode: WriteMode::Allocate,
            ..Config::default()
        };
        let hits = simulate(sample, &config, |_| ())?.read_hits() as f64;
        let ratio = if expected > 0.0 { (hits - surplus) / expected } else { 0.0 };
        Ok(Point { capacity, read_hit_ratio: ratio.clamp(0.0, 1.0) })
    };
    capacities.iter().map(point).collect()
}

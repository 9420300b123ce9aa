//! The curve of any policy at chosen sizes: exact where one pass suffices, else from a sample.

use undercroft_policy::{Reference, Spec};
use undercroft_trace::DenseTrace;

use super::{Curve, LruStack, Point, opt_curve, sampled_curve};
use crate::{Error, Size};

/// Checks that the curve of a policy can be had from `rate` of the blocks.
///
/// # Errors
/// The rate is not in (0, 1], or only lru and opt have curves of all blocks.
pub fn check_rate(policy: &Spec, rate: f64) -> Result<(), Error> {
    let name = policy.info().name;
    if rate == 1.0 && name != "lru" && name != "opt" {
        return Err(Error::Request(format!(
            "an exact curve of {name} takes a simulation a size: use a sweep, or sample with a \
             rate of 0.01; lru and opt have exact curves"
        )));
    }
    if !(rate > 0.0 && rate <= 1.0) {
        return Err(Error::Request(format!("expected above 0 and at most 1, not {rate}")));
    }
    Ok(())
}

/// The exact curve of `lru` or `opt`.
///
/// # Errors
/// A spooled trace cannot be read back, or it is too long for OPT.
pub fn exact_curve(trace: &DenseTrace, policy: &str) -> Result<Curve, Error> {
    let mut stack = LruStack::new();
    let mut all = Vec::new();
    let mut refs = Vec::new();
    let mut chunks = trace.forward();
    while let Some((_, chunk)) = chunks.next()? {
        refs.clear();
        refs.extend(chunk.iter().map(|r| Reference::new(r.block(), r.is_write())));
        match policy {
            "opt" => all.extend_from_slice(&refs),
            _ => stack.feed(trace.unique(), &refs),
        }
    }
    Ok(if policy == "opt" { opt_curve(&all)? } else { stack.finish() })
}

/// The read hit ratio of a policy at sizes of a trace that was read with the sample rate `rate`.
/// `sizes`: `None` stands for 20 sizes, or with `every` for all sizes of an exact curve.
///
/// # Errors
/// Those of [`check_rate`], [`exact_curve`] and [`sampled_curve`], or a size is too small for the
/// sample.
pub fn curve(
    trace: &DenseTrace,
    block_bytes: u32,
    rate: f64,
    policy: &Spec,
    sizes: Option<&[Size]>,
    every: bool,
) -> Result<Vec<Point>, Error> {
    check_rate(policy, rate)?;
    let exact = rate == 1.0;
    let blocks = (f64::from(trace.unique()) / rate) as u32;
    let capacities = match sizes {
        Some(sizes) => {
            let sizes = sizes.iter().map(|size| size.blocks(block_bytes, blocks));
            sizes.collect::<Result<_, _>>()?
        }
        None if every && exact => (1..=blocks.max(1)).collect(),
        // A cache of less than ten sampled blocks says nothing.
        None => spread((10.0 / rate) as u32 * u32::from(!exact), blocks, 20),
    };
    let least = (1.0 / rate).ceil();
    if let Some(small) = capacities.iter().find(|&&size| f64::from(size) < least) {
        return Err(Error::Request(format!(
            "rate {rate}: a cache of {small} blocks is less than one sampled block; from {least} on"
        )));
    }
    if !exact {
        return sampled_curve(trace, rate, policy, &capacities);
    }
    let curve = exact_curve(trace, policy.info().name)?;
    let hits = curve.read_hits();
    let point = |capacity: u32| {
        let hits = hits[(capacity as usize).min(hits.len() - 1)];
        Point { capacity, read_hit_ratio: hits as f64 / curve.reads.max(1) as f64 }
    };
    Ok(capacities.into_iter().map(point).collect())
}

/// About `points` sizes from `min` (at least 1) to `max`, in equal ratios.
fn spread(min: u32, max: u32, points: u32) -> Vec<u32> {
    let min = f64::from(min.max(1));
    let step = (f64::from(max) / min).max(1.0).ln() / f64::from(points - 1);
    let mut sizes: Vec<_> =
        (0..points).map(|i| (min * (step * f64::from(i)).exp()).round() as u32).collect();
    sizes.dedup();
    sizes
}

//! Bounds for schemes: one that no scheme can beat, and one that knowledge of the future reaches
//! (Gill, FAST 2008).
//!
//! OPT-UB lets the first `i` levels together hit what OPT would in one cache of their total size,
//! without demotions. OPT-LB runs OPT at the first level, OPT at the second on the misses of the
//! first, and so on. The names refer to performance: UB is the best possible.

use undercroft_cache::policy::Spec;
use undercroft_trace::DenseTrace;

use crate::{Config, Costs, Error, LevelConfig, simulate};

/// Read hits of each level, and the mean time of a read.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Read hits, the first level first.
    pub read_hits: Vec<u64>,
    /// Mean time of a read in milliseconds.
    pub response_time_ms: f64,
}

/// Both bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    /// Reads counted.
    pub reads: u64,
    /// The bound that no scheme can beat.
    pub upper: Bound,
    /// The bound that is reached with knowledge of the future.
    pub lower: Bound,
}

/// The bounds for levels of these capacities, one below the other.
///
/// # Errors
/// OPT cannot be made for the trace, or a spooled trace cannot be read back.
pub fn bounds(
    trace: &DenseTrace,
    capacities: &[u32],
    costs: &Costs,
    warmup_records: u64,
) -> Result<Bounds, Error> {
    let level = |capacity| LevelConfig { capacity, policy: Spec::parse("opt").expect("a policy") };
    let run = |levels: Vec<LevelConfig>| {
        simulate(trace, &Config { levels, warmup_records, ..Config::default() }, |_| ())
    };
    let (mut upper, mut below, mut sum, mut reads) = (Vec::new(), 0, 0_u64, 0);
    for &capacity in capacities {
        sum += u64::from(capacity);
        // A cache never needs more than all blocks of the trace.
        let whole = sum.min(u64::from(trace.unique().max(1))) as u32;
        let outcome = run(vec![level(whole)])?;
        reads = outcome.reads();
        upper.push(outcome.read_hits() - below);
        below = outcome.read_hits();
    }
    let chain = run(capacities.iter().map(|&capacity| level(capacity)).collect())?;
    let lower: Vec<u64> = chain.levels.iter().map(|counts| counts.read_hits).collect();
    let bound = |read_hits: Vec<u64>| {
        let disk = reads - read_hits.iter().sum::<u64>();
        Bound { response_time_ms: costs.mean_ms(&read_hits, disk), read_hits }
    };
    Ok(Bounds { reads, upper: bound(upper), lower: bound(lower) })
}

//! Bounds for schemes: one that no scheme can beat, and one that knowledge of the future reaches
//! (Gill, FAST 2008).
//!
//! OPT-UB lets the first `i` levels together hit what OPT would in one cache of their total size,
//! without demotions. OPT-LB runs OPT at the first level, OPT at the second on the misses of the
//! first, and so on. The names refer to performance: UB is the best possible.

use undercroft_policy::Spec;
use undercroft_trace::DenseTrace;

use crate::{BoundReport, Bounds, CacheTree, Config, Costs, Error, LevelConfig, simulate};

/// The bounds for the caches of a scheme, if requested.
///
/// # Errors
/// Those of [`bounds`]; there are several clients, or the caches are no line.
pub(crate) fn limits(trace: &DenseTrace, config: &Config) -> Result<Option<Bounds>, Error> {
    let Some(CacheTree { topology, .. }) = config.tree.as_ref().filter(|_| config.looks.bounds)
    else {
        return Ok(None);
    };
    if !topology.is_line() || topology.clients() > 1 {
        let what = "bounds: OPT is defined for one client and levels one below the other";
        return Err(Error::Request(what.into()));
    }
    let sizes = topology.path(0).iter().map(|&node| topology.capacity(node));
    let sizes: Vec<u32> = sizes.collect();
    bounds(trace, &sizes, &config.costs()?, config.warmup_records).map(Some)
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
        let hits = read_hits.iter().sum::<u64>();
        BoundReport {
            read_hit_ratio: hits as f64 / reads.max(1) as f64,
            response_time_ms: costs.mean_ms(&read_hits, 0, reads - hits),
            read_hits,
        }
    };
    Ok(Bounds { upper: bound(upper), lower: bound(lower) })
}

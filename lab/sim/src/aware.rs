//! Simulates two levels, one or both content-aware, driven by a trace. The levels, and their
//! knowledge of each other, are those of `undercroft_level::content`.

use undercroft_level::content::{AwareCounts, Pair, false_positives};
use undercroft_policy::{Awareness, Reference};
use undercroft_trace::{DenseTrace, Ref};

use crate::drive::{Proceed, Topology, drive};
use crate::{AwareReport, Config, Error, LevelConfig, Outcome};

/// Whether a level of a simulation is content-aware.
pub(crate) fn is_aware(level: &LevelConfig) -> bool {
    Awareness::of(&level.policy).is_some()
}

/// Runs two levels over the whole trace, with a warm-up of so many references.
///
/// # Errors
/// A level cannot be simulated, a spooled trace cannot be read back, or `progress` stops it.
pub(crate) fn simulate_aware<P: Proceed>(
    trace: &DenseTrace,
    config: &Config,
    warmup: u64,
    progress: &mut dyn FnMut(u64) -> P,
) -> Result<Outcome, Error> {
    let mut pair = build(trace, config)?;
    drive(trace, warmup, &mut pair, progress)?;
    let (levels, aware) = (pair.counts().to_vec(), reports(config, &pair));
    Ok(Outcome { levels, aware, ..Outcome::default() })
}

impl Topology for Pair {
    fn serve(&mut self, _: u64, refs: &[Ref]) {
        for r in refs {
            self.reference(Reference::new(r.block(), r.is_write()));
        }
    }

    fn restart_counts(&mut self) {
        Pair::restart_counts(self);
    }
}

fn build(trace: &DenseTrace, config: &Config) -> Result<Pair, Error> {
    let levels = [&config.levels[0], &config.levels[1]];
    let levels = levels.map(|level| (&level.policy, level.capacity));
    let names = (0..trace.unique()).map(|number| trace.names().name(number));
    Ok(Pair::new(levels, config.write_mode, names)?)
}

fn reports(config: &Config, pair: &Pair) -> Vec<AwareReport> {
    let neighbours = config.levels.iter().rev();
    let levels = config.levels.iter().zip(neighbours).zip(pair.aware_counts()).enumerate();
    let report = |(depth, ((level, neighbour), counts)): (usize, (_, Option<AwareCounts>))| {
        let (level, neighbour): (&LevelConfig, &LevelConfig) = (level, neighbour);
        Some(AwareReport::new(depth, &Awareness::of(&level.policy)?, neighbour.capacity, &counts?))
    };
    levels.filter_map(report).collect()
}

impl AwareReport {
    fn new(depth: usize, awareness: &Awareness, neighbour: u32, counts: &AwareCounts) -> Self {
        let source = counts.source;
        let share = |of: u64, all: u64| of as f64 / all.max(1) as f64;
        Self {
            level: format!("l{}", depth + 1),
            held_evictions: counts.held,
            stale_evictions: counts.stale,
            mistaken_evictions: counts.mistaken,
            summary_bytes: source.bytes,
            summaries: source.publications,
            whole_summaries: source.whole,
            false_positive_rate: false_positives(awareness, neighbour),
            confidence: (source.predictions > 0)
                .then(|| share(source.confirmed, source.predictions)),
            distrusted: source.distrusted,
        }
    }
}

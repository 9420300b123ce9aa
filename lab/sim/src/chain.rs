//! One or more cache levels, one below the other, driven by one trace.
//!
//! Placement is access-based here (`docs/developer/algorithms.md`). Not here: other placements
//! (`tree/`), and content-aware levels (`aware.rs`); `run.rs` decides which it is.
//!
//! Each level runs its own policy on the stream of the level above: that level's misses and, since
//! levels are write-through, all its writes. So the levels can run one after the other on each
//! chunk of the trace.

use std::sync::Arc;

use undercroft_level::DenseLevel;
use undercroft_policy::{Context, Future, Reference, WriteMode};
use undercroft_trace::{DenseTrace, Ref};

use crate::drive::{Proceed, Topology, drive};
use crate::lowest::LowestLevel;
use crate::{Config, Error, LevelConfig, Outcome};

/// Runs levels that place at the access over the whole trace, with a warm-up of so many references.
///
/// # Errors
/// A level cannot be simulated, a spooled trace cannot be read back, or `progress` stops it.
pub(crate) fn simulate_chain<P: Proceed>(
    trace: &DenseTrace,
    config: &Config,
    warmup: u64,
    progress: &mut dyn FnMut(u64) -> P,
) -> Result<Outcome, Error> {
    let mut levels = Levels::new(trace, config, config.levels.len(), None)?;
    drive(trace, warmup, &mut levels, progress)?;
    let write_back = levels.lowest.as_ref().and_then(LowestLevel::written);
    let levels = levels.levels;
    let leaders = levels.iter().map(|level| level.policy().leader()).collect();
    let levels = levels.iter().map(|level| *level.counts()).collect();
    Ok(Outcome { levels, write_back, leaders, ..Outcome::default() })
}

/// Finds the references that will reach the level below the first `above` levels, for OPT.
fn references_below(
    trace: &DenseTrace,
    config: &Config,
    above: usize,
) -> Result<Arc<Future>, Error> {
    if config.write_mode == WriteMode::Invalidate {
        let why = "opt with --write-mode invalidate: the best choice is not known when writes \
                   drop blocks; use allocate or no-allocate";
        return Err(Error::Request(why.into()));
    }
    let mut coming = Vec::new();
    let is_lowest = above + 1 == config.levels.len();
    let mut streams = config.lowest.streams(config.block_bytes).filter(|_| is_lowest);
    let mut keep = |refs: &[Reference]| {
        // Neither a write that does not allocate nor a stream is a reference for the policy.
        let mut counted = |r: &&Reference| {
            let name = trace.names().name(r.entry());
            let is_streamed = streams.as_mut().is_some_and(|streams| streams.note(name));
            config.write_mode.admits(r.is_write()) && !is_streamed
        };
        coming.extend(refs.iter().filter(&mut counted).map(|r| r.entry()));
    };
    let mut levels = Levels::new(trace, config, above, Some(&mut keep))?;
    drive(trace, 0, &mut levels, &mut |_| ())?;
    Ok(Arc::new(Future::new(coming)?))
}

/// Receives the stream that reaches the disk, in chunks.
type Sink<'a> = &'a mut dyn FnMut(&[Reference]);

/// Levels, each driven by the references that the level above did not serve.
struct Levels<'a> {
    levels: Vec<DenseLevel>,
    /// Block numbers are below this.
    entries: u32,
    bottom: Option<Sink<'a>>,
    /// What the last level does beside replacement, if it is the lowest one.
    lowest: Option<LowestLevel<'a>>,
    refs: Vec<Reference>,
    below: Vec<Reference>,
}

impl<'a> Levels<'a> {
    /// The first `count` levels. An OPT level needs the references that will reach it: the levels
    /// above run once over the trace to find them. `bottom` receives the references that reach the
    /// disk.
    fn new(
        trace: &'a DenseTrace,
        config: &Config,
        count: usize,
        bottom: Option<Sink<'a>>,
    ) -> Result<Self, Error> {
        let level = |(above, wanted): (usize, &LevelConfig)| {
            let is_opt = wanted.policy.info().name == "opt";
            let future = if is_opt { Some(references_below(trace, config, above)?) } else { None };
            let context = Context { capacity: wanted.capacity, future };
            let mut level = DenseLevel::new(wanted.policy.build(&context)?, config.write_mode);
            level.bind(0, (0..trace.unique()).map(|number| trace.names().name(number)));
            Ok(level)
        };
        let levels = config.levels[..count].iter().enumerate().map(level);
        let levels = levels.collect::<Result<_, Error>>()?;
        let entries = trace.unique();
        let lowest = config.levels.last().filter(|_| count == config.levels.len());
        let lowest =
            lowest.and_then(|level| LowestLevel::new(config, level.capacity, trace.names()));
        Ok(Self { levels, entries, bottom, lowest, refs: Vec::new(), below: Vec::new() })
    }
}

impl Topology for Levels<'_> {
    fn serve(&mut self, _: u64, refs: &[Ref]) {
        let Self { levels, entries, bottom, lowest, refs: coming, below } = self;
        coming.clear();
        coming.extend(refs.iter().map(|r| Reference::new(r.block(), r.is_write())));
        let last = levels.len().saturating_sub(1);
        for (depth, level) in levels.iter_mut().enumerate() {
            let keep = depth < last || bottom.is_some();
            below.clear();
            let kept = keep.then_some(&mut *below);
            match lowest.as_mut().filter(|_| depth == last) {
                Some(lowest) => lowest.replay(level, *entries, coming, kept),
                None => level.replay(*entries, coming, kept),
            }
            if keep {
                std::mem::swap(coming, below);
            }
        }
        if let Some(bottom) = bottom {
            bottom(coming);
        }
    }

    fn restart_counts(&mut self) {
        self.levels.iter_mut().for_each(DenseLevel::restart_counts);
        self.lowest.iter_mut().for_each(LowestLevel::restart_counts);
    }
}

//! The one loop of simulations: the references of a trace, in order, drive caches. What the caches
//! are, and how they are connected, is a [`Topology`].
//!
//! Not here: simulations with a clock, where the next reference depends on when the last one was
//! answered (`timed/`).

use std::time::{Duration, Instant};

use undercroft_cache::Counts;
use undercroft_trace::{DenseTrace, Ref};

use crate::{Error, Outcome};

/// Caches that references drive.
pub(crate) trait Topology {
    /// Serves references in order; the first of them is number `at` of the trace, from 0.
    fn serve(&mut self, at: u64, refs: &[Ref]);

    /// Forgets the counts, not the content: the end of the warm-up.
    fn restart_counts(&mut self);
}

/// Drives caches through a whole trace. After `warmup` references they count anew. `progress` is
/// told the references done so far.
///
/// # Errors
/// A spooled trace cannot be read back.
pub(crate) fn drive(
    trace: &DenseTrace,
    warmup: u64,
    topology: &mut dyn Topology,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Error> {
    let mut chunks = trace.forward();
    while let Some((start, chunk)) = chunks.next()? {
        let end = start + chunk.len() as u64;
        let cut = warmup.clamp(start, end);
        let (before, after) = chunk.split_at((cut - start) as usize);
        topology.serve(start, before);
        if cut == warmup {
            topology.restart_counts();
        }
        topology.serve(cut, after);
        progress(end);
    }
    Ok(())
}

/// Measures how long a simulation takes, without reading the trace.
pub(crate) struct Stopwatch {
    started: Instant,
    started_cpu: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), started_cpu: thread_cpu_time() }
    }

    /// What came out, in so many references, by the counts of each level.
    pub(crate) fn outcome(self, references: u64, levels: Vec<Counts>) -> Outcome {
        Outcome {
            levels,
            references,
            elapsed: self.started.elapsed(),
            cpu: thread_cpu_time().saturating_sub(self.started_cpu),
            ..Outcome::default()
        }
    }
}

/// Processor time that this thread has used: unlike the time of day it does not count what other
/// programs on the machine do.
fn thread_cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

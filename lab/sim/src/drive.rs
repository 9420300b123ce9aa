//! The main loop of simulations: the references of a trace, in order, drive caches. A [`Topology`]
//! is the caches and their connections.
//!
//! Not here: simulations with a clock, where the next reference depends on the time of the last
//! answer (`timed/`).

use std::time::{Duration, Instant};

use undercroft_trace::{DenseTrace, Ref};

use crate::{Error, Outcome};

/// What a callback for progress answers: nothing, or whether the simulation goes on.
pub trait Proceed {
    /// The answer, as an error if the simulation is to stop.
    ///
    /// # Errors
    /// The simulation is to stop, for this reason.
    fn proceed(self) -> Result<(), Error>;
}

impl Proceed for () {
    fn proceed(self) -> Result<(), Error> {
        Ok(())
    }
}

impl Proceed for Result<(), Error> {
    fn proceed(self) -> Result<(), Error> {
        self
    }
}

/// Caches that are driven by references.
pub(crate) trait Topology {
    /// Serves references in order; the first has the number `at` in the trace, counted from 0.
    fn serve(&mut self, at: u64, refs: &[Ref]);

    /// Resets the counts but not the content, at the end of the warm-up.
    fn restart_counts(&mut self);
}

/// Drives caches through a whole trace. The counts are reset after `warmup` references. `progress`
/// is called with the references done so far, after each chunk of the trace.
///
/// # Errors
/// A spooled trace cannot be read back, or `progress` stops the simulation.
pub(crate) fn drive<P: Proceed>(
    trace: &DenseTrace,
    warmup: u64,
    topology: &mut dyn Topology,
    progress: &mut dyn FnMut(u64) -> P,
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
        progress(end).proceed()?;
    }
    Ok(())
}

/// Goes through a trace in `parts` equal parts. `serve` is called with the number of the first of
/// some references, these references, and whether they end a part.
///
/// # Errors
/// A spooled trace cannot be read back.
pub(crate) fn drive_in_parts(
    trace: &DenseTrace,
    parts: usize,
    mut serve: impl FnMut(u64, &[Ref], bool),
) -> Result<(), Error> {
    let mut ended = 0;
    let mut chunks = trace.forward();
    while let Some((start, mut refs)) = chunks.next()? {
        let mut at = start;
        while ended < parts {
            let left = trace.len() * (ended as u64 + 1) / parts as u64 - at;
            let Some((part, rest)) = refs.split_at_checked(left as usize) else { break };
            serve(at, part, true);
            (at, refs) = (at + left, rest);
            ended += 1;
        }
        serve(at, refs, false);
    }
    Ok(())
}

/// Measures the time of a simulation, without the time to read the trace.
pub(crate) struct Stopwatch {
    started: Instant,
    started_cpu: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), started_cpu: thread_cpu_time() }
    }

    /// An outcome after `references` references, with the time that it took.
    pub(crate) fn stop(self, references: u64, outcome: Outcome) -> Outcome {
        let cpu = thread_cpu_time().saturating_sub(self.started_cpu);
        Outcome { references, elapsed: self.started.elapsed(), cpu, ..outcome }
    }
}

/// Processor time of this thread. Unlike elapsed time, it does not include the work of other
/// programs.
fn thread_cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

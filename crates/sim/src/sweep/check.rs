//! Tries every policy and placement of a sweep on a trace of one read, so that a combination that
//! is refused is known before the first run.

use undercroft_trace::{BlockOptions, BlockStream, DenseTrace, GeneratorSpec};

use super::{Plan, Ready, Run};
use crate::report::trace_report;
use crate::{Error, Evictions, Population, Size};

/// Runs each combination of `plan` on one read, with small levels.
pub(super) fn pairs(plan: &Plan) -> Result<(), Error> {
    let one = GeneratorSpec::parse("scan", "blocks=1")
        .map_err(|error| Error::Request(error.to_string()))?;
    let stream = BlockStream::new(one.reader(), &BlockOptions::default())?;
    let trace = DenseTrace::load(stream, |_| ())?;
    let about = trace_report("", &trace);
    let population = Population::one(trace, String::new());
    let (warmup_records, evictions) = (0, Evictions::Exact);
    let ready = Ready { population, about, block_bytes: 4096, warmup_records, evictions };
    // The level above may be small beside the trace: here it is as the others.
    let upper = plan.upper.clone().map(|level| crate::LevelSpec { size: SMALL, ..level });
    let plan = Plan { upper, ..plan.clone() };
    for (policy, rule) in plan.pairs()? {
        let run = Run { size: SMALL, policy, rule, key: String::new() };
        run.carry_out(&plan, &ready, &NoProgress)?;
    }
    Ok(())
}

const SMALL: Size = Size::Blocks(64);

struct NoProgress;

impl super::Progress for NoProgress {
    fn reading(&self, _: &std::path::Path) {}
    fn advanced(&self, _: f64) {}
    fn resumed(&self, _: usize) {}
}

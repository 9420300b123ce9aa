//! Tries every policy and placement of a sweep on a trace of one read, so that a combination that
//! is refused is known before the first run.

use undercroft_trace::{
    BlockOptions, BlockStream, DenseTrace, Error as TraceError, Meta, Op, Reader, Record, Unit,
};

use super::{Plan, Ready, Run};
use crate::report::trace_report;
use crate::{Error, Evictions, Population, Size};

/// Runs each combination of `plan` on one read, with small levels.
pub(super) fn pairs(plan: &Plan) -> Result<(), Error> {
    let one = OneRead { is_over: false, meta: meta(), spaces: vec!["0".into()] };
    let stream = BlockStream::new(Box::new(one), &BlockOptions::default())?;
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

fn meta() -> Meta {
    Meta {
        format: "uct",
        unit: Unit::Blocks,
        block_bytes: None,
        has_ops: true,
        has_time: false,
        has_buffers: false,
        has_evictions: false,
    }
}

struct OneRead {
    is_over: bool,
    meta: Meta,
    spaces: Vec<String>,
}

impl Reader for OneRead {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), TraceError> {
        if !std::mem::replace(&mut self.is_over, true) {
            let op = Op::Read;
            records.push(Record {
                time_ns: 0,
                op,
                space: 0,
                address: 0,
                length: 1,
                buffer: None,
                client: 0,
            });
        }
        Ok(())
    }

    fn spaces(&self) -> &[String] {
        &self.spaces
    }
}

struct NoProgress;

impl super::Progress for NoProgress {
    fn reading(&self, _: &std::path::Path) {}
    fn advanced(&self, _: f64) {}
    fn resumed(&self, _: usize) {}
}

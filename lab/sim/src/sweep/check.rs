//! Tries every policy and placement of a sweep on a trace of one read, so that a combination that
//! is refused is known before the first run.

use undercroft_trace::{BlockOptions, BlockStream, DenseTrace, GeneratorSpec};

use super::{Plan, Run};
use crate::setup::Prepared;
use crate::{Error, FlashLevel, Size, Warmup};

impl Plan {
    /// Runs each combination on one read, with small levels.
    ///
    /// # Errors
    /// A combination cannot be simulated; the message gives the reason.
    pub fn check(&self) -> Result<(), Error> {
        let one = GeneratorSpec::parse("scan", "blocks=1")
            .map_err(|error| Error::Request(error.to_string()))?;
        let stream = BlockStream::new(one.reader(), &BlockOptions::default())?;
        let trace = DenseTrace::load(stream, |_| ())?;
        let trace = Prepared::new(trace, String::new(), 4096, self.config.evictions.clone());
        // The level above may be small beside the trace: here it is as the others.
        let upper = self.upper.clone().map(|level| crate::LevelSpec { size: SMALL, ..level });
        let plan = Self { upper, ..self.clone() };
        for (policy, rule) in plan.pairs()? {
            for flash in plan.flash() {
                let flash = flash.map(|flash| FlashLevel { size: SMALL, ..flash });
                let (policy, rule) = (policy.clone(), rule.clone());
                let run = Run { size: SMALL, policy, rule, flash, key: String::new() };
                plan.carry_out(&run, &trace, Warmup::Records(0), |_| ())?;
            }
        }
        Ok(())
    }
}

const SMALL: Size = Size::Blocks(64);

//! Tries every policy and placement of a sweep on a trace of one read, so that a combination that
//! is refused is known before the first run.

use undercroft_trace::{BlockOptions, BlockStream, DenseTrace, GeneratorSpec};

use super::{Plan, Run};
use crate::setup::Prepared;
use crate::{Error, FlashLevel, Rule, Size, Warmup};

impl Plan {
    /// Runs each combination on one read, with levels of 64 blocks, or a few times that.
    ///
    /// # Errors
    /// Options contradict each other, or a combination cannot be simulated; the message gives the
    /// reason.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |why: &str| Err(Error::Request(why.into()));
        if self.upper.is_some() && self.ratio.is_some() {
            return refuse("a level above and a ratio: under a ratio all levels vary; give one");
        }
        let is_scheme = |rule: &Rule| matches!(rule, Rule::Scheme(_));
        if self.config.times.demotions.is_some() && !self.placements.iter().any(is_scheme) {
            return refuse("--demotions: none of the placements moves blocks by hints");
        }
        let one = GeneratorSpec::parse("scan", "blocks=1")
            .map_err(|error| Error::Request(error.to_string()))?;
        let stream = BlockStream::new(one.reader(), &BlockOptions::default())?;
        let trace = DenseTrace::load(stream, |_| ())?;
        let trace = Prepared::new(trace, String::new(), 4096, self.config.evictions.clone());
        // The level above may be small beside the trace: here it is as the others.
        let upper = self.upper.clone().map(|level| crate::LevelSpec { size: SMALL, ..level });
        let plan = Self { upper, ..self.clone() };
        let size = self.ratio.as_ref().map_or(SMALL, |ratio| ratio.first(64));
        for (policy, rule) in plan.pairs()? {
            for flash in plan.flash() {
                let flash = flash.map(|flash| FlashLevel { size: SMALL, ..flash });
                let (policy, rule) = (policy.clone(), rule.clone());
                let run = Run { size, policy, rule, flash, key: String::new() };
                plan.carry_out(&run, &trace, Warmup::Records(0), |_| ())?;
            }
        }
        Ok(())
    }
}

const SMALL: Size = Size::Blocks(64);

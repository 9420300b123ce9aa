//! The options of simulations in which levels cooperate, and reading a trace as they need it.

use std::path::Path;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use undercroft_level::placement::{Placement, Threshold};
use undercroft_sim::{Evictions, EvictionsFrom, Prepared, Rule};

use crate::error::Error;
use crate::lab::input::{SimulationOptions, TraceOptions, of_option};

/// How the levels below the first learn of evictions, and what they do with them.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Evictions")]
pub(crate) struct CooperationOptions {
    /// Reload only blocks with at least so many accesses, or (1x) so many times those of the block
    /// that would have to go; the same as eviction,threshold=N
    #[arg(long, value_name = "N|Fx")]
    reload_threshold: Option<Threshold>,
    /// How evictions become known: from the simulated level above (exact), from the buffer
    /// addresses in a recorded trace (cct), from what clients told while it was recorded (told), or
    /// from an emulated client (estimate)
    #[arg(long, value_name = "SOURCE", default_value = "exact",
        value_parser = PossibleValuesParser::new(EvictionsFrom::NAMES)
            .try_map(|name| name.parse::<EvictionsFrom>()))]
    evictions: EvictionsFrom,
}

impl CooperationOptions {
    /// Everything that decides a result, as text.
    pub(crate) fn describe(&self) -> String {
        format!("{:?}", self.evictions)
    }

    /// Where evictions are known from, without those of a recorded client.
    pub(crate) fn kind(&self) -> Evictions {
        self.evictions.kind()
    }

    /// The placements and schemes of a list such as `access,eviction,on-hit=keep,gl,d-hfa`; a part
    /// with `=` belongs to the one before it.
    pub(crate) fn rules(&self, simulation: &SimulationOptions) -> Result<Vec<Rule>, Error> {
        let texts = Rule::split_list(&simulation.placement);
        let rule = |text: &String| match text.parse()? {
            Rule::Placement(placement) => self.placement(text, placement).map(Rule::Placement),
            scheme => Ok(scheme),
        };
        let rules = texts.iter().map(rule).collect::<Result<Vec<_>, Error>>()?;
        self.evictions.check(&rules).map_err(of_option)?;
        Ok(rules)
    }

    /// A placement with the threshold that is an option of its own.
    fn placement(&self, text: &str, mut placement: Placement) -> Result<Placement, Error> {
        let usage = |what: String| Error::Usage(format!("--placement {text}: {what}"));
        let Some(threshold) = self.reload_threshold else { return Ok(placement) };
        match &mut placement {
            Placement::Eviction(_) if text.contains("threshold=") => {
                return Err(usage(
                    "the threshold is given twice, here and as --reload-threshold".into(),
                ));
            }
            Placement::Eviction(eviction) => eviction.threshold = threshold,
            // In a list the option is for the placements that reload.
            Placement::Access => (),
            Placement::Global(_) => {
                return Err(usage("--reload-threshold: gl reloads nothing; use eviction".into()));
            }
        }
        Ok(placement)
    }

    /// The only placement or scheme of a command that takes one.
    pub(crate) fn one_rule(&self, simulation: &SimulationOptions) -> Result<Rule, Error> {
        match &self.rules(simulation)?[..] {
            [Rule::Placement(Placement::Access) | Rule::Scheme(_)]
                if self.reload_threshold.is_some() =>
            {
                Err(Error::Usage(format!(
                    "--reload-threshold: with --placement {} nothing is reloaded",
                    simulation.placement
                )))
            }
            [rule] => Ok(rule.clone()),
            _ => Err(Error::Usage(format!(
                "--placement {}: one placement here; sweep takes a list",
                simulation.placement
            ))),
        }
    }

    /// Reads a whole trace, with the evictions of its client.
    pub(crate) fn load(
        &self,
        options: &TraceOptions,
        path: &Path,
        progress: impl FnMut(u64),
    ) -> Result<Prepared, Error> {
        let (stream, block_bytes) = options.stream(path, self.evictions.needs())?;
        let (trace, known) = self.evictions.load(stream, block_bytes, path, progress)?;
        options.remark_on_numbers(path, trace.meta(), trace.seen().records, trace.divisor());
        Ok(Prepared::new(trace, path.display().to_string(), block_bytes, known))
    }
}

//! The commands below the sentences of an advice for a trace: runs that print the figures, and what
//! to serve. What a sentence says is written in `undercroft_adviser`.

use undercroft_adviser::{Choice, Finding};
use undercroft_text::Bytes;

/// What commands refer to: the trace and how it is simulated.
pub(crate) struct Runs {
    pub(crate) block_bytes: u32,
    /// A simulation of the trace up to the client's cache, as a command line.
    pub(crate) simulate: String,
    /// The option of the level below it.
    pub(crate) level: &'static str,
    /// Further options of placements that act on evictions.
    pub(crate) evictions: String,
    /// Whether prices are given, which then decide what to serve.
    pub(crate) has_prices: bool,
}

impl Runs {
    fn bytes(&self, blocks: u32) -> Bytes {
        Bytes(u64::from(blocks) * u64::from(self.block_bytes))
    }

    /// The command that simulates a cache.
    fn run(&self, policy: &str, blocks: u32, placement: &str) -> String {
        let exact = self.bytes(blocks).to_string();
        let is_short = exact.len() < 8 && exact.ends_with("iB");
        let size = if is_short { exact } else { format!("{blocks}blk") };
        let mut run = format!("{} {} {size}:{policy}", self.simulate, self.level);
        if placement != "access" {
            run += &format!(" --placement {placement}{}", self.evictions);
        }
        run
    }

    fn of(&self, choice: &Choice) -> String {
        self.run(&choice.policy, choice.capacity_blocks, &choice.placement)
    }

    /// The commands that print the figures of a finding.
    pub(crate) fn finding(&self, finding: &Finding) -> Vec<String> {
        match finding {
            Finding::Unfiltered { lru: choice }
            | Finding::NothingToGain { best: choice }
            | Finding::Knee { choice, .. }
            | Finding::Bound { opt: choice, .. }
            | Finding::Enough { choice } => vec![self.of(choice)],
            Finding::Cheapest { choice, .. } => choice.iter().map(|it| self.of(it)).collect(),
            Finding::LruWasted { up_to_blocks, best, .. } => {
                let lru = self.run("lru", *up_to_blocks, "access");
                std::iter::once(lru).chain(best.iter().map(|it| self.of(it))).collect()
            }
            Finding::PolicyGains { choice, base, .. }
            | Finding::NoPolicyGains { choice, base, .. }
            | Finding::Placement { choice, base, .. } => vec![self.of(choice), self.of(base)],
            Finding::Flash(gain) => {
                vec![format!("{} --flash {}", self.of(&gain.memory), self.bytes(gain.flash_blocks))]
            }
            // The others are a server's.
            _ => Vec::new(),
        }
    }

    /// The configuration of a server that does what is advised. NAME and STORE are to be filled in.
    pub(crate) fn serve(&self, finding: &Finding) -> Option<String> {
        let choice = match finding {
            Finding::Cheapest { choice, .. } => choice.as_ref()?,
            Finding::Knee { choice, .. } if !self.has_prices => choice,
            _ => return None,
        };
        let (cache, block) = (self.bytes(choice.capacity_blocks), self.bytes(1));
        let placement = match choice.placement.as_str() {
            "access" => String::new(),
            placement => format!(",placement={placement}"),
        };
        Some(format!(
            "undercroft serve --volume NAME=STORE,cache={cache},block={block},policy={}{placement}",
            choice.policy
        ))
    }
}

#[cfg(test)]
mod tests;

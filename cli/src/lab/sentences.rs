//! The sentences of an advice: what a finding or an assumption says, with its figures, and the
//! commands that show them. What is found is decided in `undercroft_sim::advise`.

use serde::Serialize;
use undercroft_sim::advise::{Assumption, Choice, Cost, Difference, Finding, Prices};
use undercroft_text::Bytes;

use crate::table::{bytes, count, percent};

/// A sentence, the commands that print its figures, and the configuration that it advises.
#[derive(Serialize)]
pub(crate) struct Sentence {
    pub(crate) text: String,
    pub(crate) runs: Vec<String>,
    /// A command line of `undercroft serve`, with NAME and STORE to be filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) serve: Option<String>,
}

/// What sentences refer to: the trace and how it is simulated.
pub(crate) struct Words {
    pub(crate) block_bytes: u32,
    /// A simulation of the trace up to the client's cache, as a command line.
    pub(crate) simulate: String,
    /// The option of the level below it.
    pub(crate) level: &'static str,
    /// Further options of placements that act on evictions.
    pub(crate) evictions: String,
    pub(crate) prices: Option<Prices>,
    /// Whether the trace looks as if it had been taken elsewhere than is said.
    pub(crate) is_doubtful: bool,
}

/// A share as points: `12.3 points`.
fn points(share: f64) -> String {
    format!("{:.1} points", 100.0 * share)
}

fn money(amount: f64) -> String {
    if amount >= 100.0 { count(amount.round() as u64) } else { format!("{amount:.2}") }
}

/// The words between two placements or policies that differ so much.
fn compared(difference: &Difference) -> String {
    let Difference { gain, error } = *difference;
    let size = points(gain.abs());
    if difference.is_none() {
        format!("no more and no fewer ({size} within an error of {:.1})", 100.0 * error.max(0.01))
    } else {
        let way = if gain > 0.0 { "more" } else { "fewer" };
        format!("{size} {way} (error {:.1})", 100.0 * error)
    }
}

impl Words {
    fn size(&self, blocks: u32) -> String {
        bytes(u64::from(blocks) * u64::from(self.block_bytes))
    }

    /// The command that simulates a cache.
    fn run(&self, policy: &str, blocks: u32, placement: &str) -> String {
        let exact = Bytes(u64::from(blocks) * u64::from(self.block_bytes)).to_string();
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

    /// `64 MiB with mq`, and the placement if it is none at the access.
    fn name(&self, choice: &Choice) -> String {
        let size = self.size(choice.capacity_blocks);
        match choice.placement.as_str() {
            "access" => format!("{size} with {}", choice.policy),
            placement => format!("{size} with {} and placement {placement}", choice.policy),
        }
    }

    /// What the answer begins with: `Take`, unless the answer rests on what does not look true.
    fn take(&self) -> &'static str {
        if self.is_doubtful { "If it was taken below that cache, take" } else { "Take" }
    }

    /// The configuration of a server that does what is advised.
    fn serve(&self, finding: &Finding) -> Option<String> {
        let choice = match finding {
            Finding::Cheapest { choice, .. } => choice.as_ref()?,
            Finding::Knee { choice, .. } if self.prices.is_none() => choice,
            _ => return None,
        };
        let cache = Bytes(u64::from(choice.capacity_blocks) * u64::from(self.block_bytes));
        let block = Bytes(u64::from(self.block_bytes));
        let placement = match choice.placement.as_str() {
            "access" => String::new(),
            placement => format!(",placement={placement}"),
        };
        Some(format!(
            "undercroft serve --volume NAME=STORE,cache={cache},block={block},policy={}{placement}",
            choice.policy
        ))
    }

    fn cost(&self, cost: &Cost) -> String {
        format!(
            "{} ({} of it memory; {:.2} disks)",
            money(cost.total),
            money(cost.memory),
            cost.disks
        )
    }

    /// A hit ratio per GiB, per the unit of a size.
    fn rate(&self, per_gib: f64, blocks: u32) -> (&'static str, f64) {
        let size = u64::from(blocks) * u64::from(self.block_bytes);
        let units = [("GiB", 1_u64 << 30, 1.0), ("MiB", 1 << 20, 1024.0)];
        let unit = units.iter().find(|unit| size >= unit.1).copied();
        let (name, _, parts) = unit.unwrap_or(("KiB", 1 << 10, 1024.0 * 1024.0));
        (name, 100.0 * per_gib / parts)
    }

    /// What a finding says.
    pub(crate) fn finding(&self, finding: &Finding) -> Sentence {
        let (text, runs) = match finding {
            Finding::Unfiltered { lru } => (
                format!(
                    "First say where the trace was taken. Without --l1 it counts as one from below \
                     the client's cache, and it does not look so: {} serve {} already, and a \
                     client's cache would have served these reads. If it was taken above that \
                     cache, say what that is, as --l1 64MiB:lru: every figure here changes.",
                    self.name(lru),
                    percent(lru.read_hit_ratio)
                ),
                vec![self.of(lru)],
            ),
            Finding::NothingToGain { best } => (
                format!(
                    "Take no cache: no policy serves one read in a hundred at any size. The most \
                     is {}, by {}.",
                    percent(best.read_hit_ratio),
                    self.name(best)
                ),
                vec![self.of(best)],
            ),
            Finding::Cheapest { choice, cost, without, error } => {
                self.cheapest(choice.as_ref(), cost, without, *error)
            }
            Finding::Knee { choice, per_gib_before, per_gib_after, enough_blocks } => {
                let (unit, before) = self.rate(*per_gib_before, choice.capacity_blocks);
                let after = self.rate(*per_gib_after, choice.capacity_blocks).1;
                let further = match choice.capacity_blocks == *enough_blocks {
                    true => "no smaller size earns as much for its memory".to_owned(),
                    false => format!(
                        "up to there each {unit} earns {} points, from there to {} {}",
                        significant(before),
                        self.size(*enough_blocks),
                        significant(after)
                    ),
                };
                let lead = if self.prices.is_some() { "Without prices: take" } else { self.take() };
                let text = format!(
                    "{lead} {}: it serves {} of the reads that arrive. It is the knee of the \
                     curve: {further}.",
                    self.name(choice),
                    percent(choice.read_hit_ratio)
                );
                (text, vec![self.of(choice)])
            }
            Finding::Bound { read_hit_ratio, opt } => (
                format!(
                    "No cache of any size serves more than {}: the other reads are the first of \
                     their blocks. At {} OPT, which knows the future, serves {}; no policy that \
                     keeps every block it misses serves more.",
                    percent(*read_hit_ratio),
                    self.size(opt.capacity_blocks),
                    percent(opt.read_hit_ratio)
                ),
                vec![self.of(opt)],
            ),
            Finding::LruWasted { lru, up_to_blocks, best } => {
                self.lru_wasted(lru, *up_to_blocks, best.as_ref())
            }
            Finding::PolicyGains { choice, lru, difference, equals, lru_blocks, sizes } => {
                let same = match &equals[..] {
                    [] => String::new(),
                    [one] => format!(" {one} does as well."),
                    more => format!(" {} do as well.", more.join(", ")),
                };
                let needs = lru_blocks.map_or(String::new(), |blocks| {
                    format!(" LRU needs {} to serve as much.", self.size(blocks))
                });
                let sizes: Vec<_> = sizes.iter().map(|&size| self.size(size)).collect();
                let text = format!(
                    "Another policy than LRU gains: {} serves {}, LRU of that size {}: \
                     {}.{same}{needs} Of the sizes studied the policy matters at {}.",
                    self.name(choice),
                    percent(choice.read_hit_ratio),
                    percent(lru.read_hit_ratio),
                    compared(difference),
                    sizes.join(", ")
                );
                (text, vec![self.of(choice), self.of(lru)])
            }
            Finding::NoPolicyGains { choice, lru, difference } => (
                format!(
                    "Stay with LRU: no policy studied serves more at any size. The nearest is {} \
                     with {}, LRU serves {}: {}.",
                    self.name(choice),
                    percent(choice.read_hit_ratio),
                    percent(lru.read_hit_ratio),
                    compared(difference)
                ),
                vec![self.of(choice), self.of(lru)],
            ),
            Finding::Placement { choice, access, hits, disk } => {
                self.placement(choice, access, hits, disk)
            }
            Finding::Enough { choice } => (
                format!(
                    "Beyond {} nothing is gained: {} serves {} there, and no larger size a point \
                     more.",
                    self.size(choice.capacity_blocks),
                    choice.policy,
                    percent(choice.read_hit_ratio)
                ),
                vec![self.of(choice)],
            ),
        };
        Sentence { text, runs, serve: self.serve(finding) }
    }

    fn cheapest(
        &self,
        choice: Option<&Choice>,
        cost: &Cost,
        without: &Cost,
        error: f64,
    ) -> (String, Vec<String>) {
        let error = money(error);
        match choice {
            None => (
                format!(
                    "Take no cache at these prices: the reads keep {:.2} disks busy, which cost \
                     {}, and no memory saves more than it costs (error {error}).",
                    without.disks,
                    money(without.total)
                ),
                Vec::new(),
            ),
            Some(choice) => (
                format!(
                    "{} {} at these prices: it costs {}, instead of {} without a cache (error of \
                     the difference {error}).",
                    self.take(),
                    self.name(choice),
                    self.cost(cost),
                    self.cost(without)
                ),
                vec![self.of(choice)],
            ),
        }
    }

    fn lru_wasted(
        &self,
        lru: &Choice,
        up_to_blocks: u32,
        best: Option<&Choice>,
    ) -> (String, Vec<String>) {
        let mut runs = vec![self.run("lru", up_to_blocks, "access")];
        let more = match best {
            Some(best) => {
                runs.push(self.of(best));
                format!(
                    " At {} it serves {}, and {} {}.",
                    self.size(lru.capacity_blocks),
                    percent(lru.read_hit_ratio),
                    best.policy,
                    percent(best.read_hit_ratio)
                )
            }
            None => " Nothing studied is better there.".to_owned(),
        };
        let size = self.size(up_to_blocks);
        let text =
            format!("Up to {size} LRU is wasted here: it serves less than 1 % of the reads.{more}");
        (text, runs)
    }

    fn placement(
        &self,
        choice: &Choice,
        access: &Choice,
        hits: &Difference,
        disk: &Difference,
    ) -> (String, Vec<String>) {
        let what = match choice.placement.as_str() {
            "auto" => "that chooses (auto)",
            _ => "at eviction",
        };
        let times = choice.disk_reads as f64 / access.disk_reads.max(1) as f64;
        let reads = match disk.is_none() {
            true => "reads the disk as often".to_owned(),
            false if disk.gain > 0.0 => format!("reads the disk {times:.2} times as often"),
            false => format!("saves {} of the disk reads", percent(1.0 - times)),
        };
        let verdict = match (hits.is_gain(), disk.is_none(), disk.gain > 0.0) {
            (true, false, true) => " It pays only above disks that are idle.",
            (_, false, false) => "",
            (true, true, _) => " The hits cost nothing.",
            (false, ..) => " It is of no use here.",
        };
        let text = format!(
            "If the client tells its evictions, placement {what} with {} serves {} at {}, {} than \
             {} placed at the access. It {reads} ({} blocks instead of {}).{verdict}",
            choice.policy,
            percent(choice.read_hit_ratio),
            self.size(choice.capacity_blocks),
            compared(hits),
            access.policy,
            count(choice.disk_reads),
            count(access.disk_reads)
        );
        (text, vec![self.of(choice), self.of(access)])
    }

    /// What an assumption says.
    pub(crate) fn assumption(&self, assumption: &Assumption) -> Sentence {
        let text = match assumption {
            Assumption::Client { policy, capacity_blocks } => format!(
                "The client has a cache of {} with {policy}, as --l1 says. Of another cache it \
                 passes on other reads.",
                self.size(*capacity_blocks)
            ),
            Assumption::BelowClient => "The trace was taken below the client's cache. If it was \
                taken above it, say what that cache is: --l1."
                .to_owned(),
            Assumption::EvictionsKnown => {
                "Placements that act on evictions assume that the client \
                can tell them; auto also that it hands over what it evicts. Without that they do \
                not work, and the other figures hold."
                    .to_owned()
            }
            Assumption::EvictionsUnknown => "Nothing here tells what the client evicts, so \
                placement at eviction could not be tried: that takes --l1, or a trace with \
                evictions or buffer addresses."
                .to_owned(),
            Assumption::ColdAndThrough { cold } => format!(
                "The cache is empty at the beginning of the trace, and writes go through it. {} of \
                 the reads that arrive are the first of their blocks; of a longer trace it would be \
                 fewer. Another day may differ.",
                percent(*cold)
            ),
            Assumption::Sampled(sample) => format!(
                "The hit ratios are estimates from {} of the blocks, off by up to about {}: that \
                 far the sampled LRU is from the exact one. --exact takes all.",
                percent(sample.rate),
                points(sample.error)
            ),
        };
        Sentence { text, runs: Vec::new(), serve: None }
    }
}

/// A number with two digits that count.
fn significant(number: f64) -> String {
    let digits = match number.abs() {
        n if n >= 10.0 => 0,
        n if n >= 1.0 => 1,
        n if n >= 0.1 => 2,
        n if n >= 0.01 => 3,
        _ => 4,
    };
    format!("{number:.digits$}")
}

#[cfg(test)]
mod tests;

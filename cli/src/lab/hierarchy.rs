//! The options of hierarchies driven by hints: more levels, a topology from a file, costs; and what
//! is said of them.

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use undercroft_sim::{
    CostSpec, DemotionCost, LevelSpec, Looks, MovementReport, Ratio, Setup, Times,
};

use crate::error::Error;
use crate::table::{Table, bytes, count, percent};

/// Levels beyond the third, and what moves cost.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Hierarchies")]
pub(crate) struct HierarchyOptions {
    /// One more level below the others; may be given several times, from the top
    #[arg(long, value_name = "LEVEL", requires = "l2")]
    lower: Vec<LevelSpec>,
    /// Sizes of all levels as parts of the first one's, as 1:4 or 1:2:4, instead of --l2, --l3
    #[arg(long, value_name = "PARTS", conflicts_with_all = ["l2", "l3", "lower", "topology"])]
    ratio: Option<Ratio>,
    /// Caches in a tree, from a file (docs/user/hierarchies.md), instead of levels
    #[arg(long, value_name = "FILE", conflicts_with_all = ["l1", "l2", "l3", "lower"])]
    topology: Option<PathBuf>,
    /// Times of the levels and of the disk in milliseconds: hfa (0.2, 2, 5, disk 10), fscachesim
    /// (0, 0.2, disk 5.2), or one for each level and one for the disk, as 0.2,2,10
    #[arg(long, value_name = "COSTS")]
    costs: Option<CostSpec>,
    /// What a block sent down costs reads: free, a round trip (rtt), or waiting on a link that
    /// carries so many blocks a second (link=10000) [default: rtt]
    #[arg(long, value_name = "COST")]
    demotions: Option<DemotionCost>,
    /// Start of the random numbers of schemes that toss coins
    #[arg(long, value_name = "N", default_value = "42")]
    seed: u64,
    /// Looks at the caches over the run, for --json
    #[arg(long, value_name = "N", default_value = "0",
        value_parser = clap::value_parser!(u32).range(0..=100_000))]
    samples: u32,
    /// Find hint reuse distances, which takes longer
    #[arg(long)]
    hint_distances: bool,
    /// Add what no scheme can beat, hits of reads and writes together (OPT-UB), and what one that
    /// knows the future attains (OPT-LB)
    #[arg(long)]
    bounds: bool,
}

impl HierarchyOptions {
    /// Adds what is asked for here.
    pub(crate) fn add_to(&self, mut setup: Setup) -> Setup {
        let &Self { demotions, seed, samples, hint_distances, bounds, .. } = self;
        setup.lower.extend(self.lower.iter().cloned());
        setup.config.times = Times { costs: self.costs.clone(), demotions, seed };
        setup.config.looks = Looks { samples, hint_distances, bounds };
        Setup { ratio: self.ratio.clone(), topology: self.topology.clone(), ..setup }
    }
}

/// What moved, for a person.
pub(crate) fn print(out: &mut impl Write, movement: &MovementReport) -> Result<(), Error> {
    let mut parts = String::new();
    for (node, ms) in movement.nodes.iter().zip(&movement.served_ms) {
        write!(parts, "{} {ms:.3}, ", node.name).expect("a string takes all");
    }
    write!(parts, "disk {:.3}", movement.disk_part_ms).expect("a string takes all");
    let extra = movement.charged_ms + movement.waited_ms;
    writeln!(out, "its parts      {parts}, demotions ({}) {extra:.3}", movement.demotion_cost)?;
    writeln!(
        out,
        "hints          {:.1} demotions and {:.1} promotions for 1,000 requests",
        movement.demotions_per_1000, movement.promotions_per_1000
    )?;
    for (name, bound) in [("OPT-UB", &movement.opt_ub), ("OPT-LB", &movement.opt_lb)] {
        if let Some(bound) = bound {
            let (ratio, ms) = (percent(bound.read_hit_ratio), bound.response_time_ms);
            writeln!(out, "{name}         {ratio} of all reads, {ms:.3} ms a read")?;
        }
    }
    let columns =
        ["level", "sent down to it", "known there", "moved up to it", "traffic below", "overhead"];
    let mut table = Table::new(&columns);
    for node in &movement.nodes {
        table.row(vec![
            node.name.clone(),
            count(node.counts.demotions_in),
            count(node.counts.resent_in),
            count(node.counts.promotions_in),
            format!("{:.1} / 1,000", node.traffic_below_per_1000),
            format!("{} ({})", bytes(node.counts.overhead_bytes), percent(node.overhead)),
        ]);
    }
    writeln!(out)?;
    table.print(out, 1)?;
    Ok(())
}

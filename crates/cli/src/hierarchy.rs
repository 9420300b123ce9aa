//! The options of hierarchies driven by hints: more levels, a topology from a file, costs; and
//! running them.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use undercroft_cache::movement::{Node, SchemeSpec, Topology};
use undercroft_sim::{
    CostSpec, Costs, DemotionCost, LevelSpec, MovementConfig, MovementReport, Population, Ratio,
    Report, Size, bounds, simulate_movement, trace_report,
};

use crate::error::Error;
use crate::input::SimulationOptions;
use crate::progress::Simulating;
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
    /// Add what no scheme can beat (OPT-UB) and what one that knows the future attains (OPT-LB)
    #[arg(long)]
    bounds: bool,
}

/// A file of a topology.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    disk_ms: f64,
    /// The cache of each client, by name.
    clients: Vec<String>,
    cache: Vec<CacheTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheTable {
    name: String,
    size: String,
    #[serde(default = "lru")]
    policy: String,
    ms: f64,
    below: Option<String>,
}

fn lru() -> String {
    "lru".into()
}

/// The caches that are asked for.
struct Caches {
    topology: Topology,
    names: Vec<String>,
    policy: String,
    costs: Costs,
}

impl HierarchyOptions {
    /// Whether something is asked for that only a scheme of movement has.
    fn is_used(&self) -> Option<&'static str> {
        [
            ("--topology", self.topology.is_some()),
            ("--samples", self.samples > 0),
            ("--hint-distances", self.hint_distances),
            ("--bounds", self.bounds),
            ("--demotions", self.demotions.is_some()),
        ]
        .into_iter()
        .find_map(|(name, is_used)| is_used.then_some(name))
    }

    /// Refuses what another placement does not know.
    pub(crate) fn check_unused(&self, placement: &str) -> Result<(), Error> {
        match self.is_used() {
            None => Ok(()),
            Some(name) => Err(Error::Usage(format!(
                "{name}: placement {placement} moves no blocks by hints; choose a scheme that does \
                 (docs/user/hierarchies.md)"
            ))),
        }
    }

    pub(crate) fn has_topology(&self) -> bool {
        self.topology.is_some()
    }

    /// Levels below the first, of its policy and of sizes in proportion; or those given.
    pub(crate) fn levels(&self, given: &[Option<&LevelSpec>]) -> Vec<LevelSpec> {
        let mut levels: Vec<LevelSpec> = given.iter().flatten().map(|l| (*l).clone()).collect();
        levels.extend(self.lower.iter().cloned());
        match &self.ratio {
            Some(ratio) => ratio.levels(&levels[0]),
            None => levels,
        }
    }

    /// Counts the times of a placement that moves nothing by hints as asked for.
    pub(crate) fn charge(&self, report: &mut Report) -> Result<(), Error> {
        let levels = report.levels.len();
        if self.costs.is_some() && report.clients.is_some() {
            let what = "--costs: several clients, servers and --timed have times of their own";
            return Err(Error::Usage(what.into()));
        }
        // The usual times are those of three levels at most.
        if self.costs.is_some() || levels > 3 {
            report.charge(&self.costs.clone().unwrap_or_default().costs(levels)?);
        }
        Ok(())
    }

    fn caches(&self, levels: &[LevelSpec], block: u32, unique: u32) -> Result<Caches, Error> {
        if let Some(path) = &self.topology {
            return self.file(path, block, unique);
        }
        let sizes = levels.iter().map(|level| level.size.blocks(block, unique));
        let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
        let policies: Vec<String> = levels.iter().map(|level| level.policy.to_string()).collect();
        let costs = self.costs.clone().unwrap_or_default().costs(sizes.len())?;
        let names = (1..=sizes.len()).map(|i| format!("l{i}")).collect();
        let topology = Topology::line(&sizes).map_err(|e| Error::Usage(e.to_string()))?;
        Ok(Caches { topology, names, policy: one_policy(&policies)?, costs })
    }

    fn file(&self, path: &Path, block: u32, unique: u32) -> Result<Caches, Error> {
        let wrong = |what: String| Error::Usage(format!("--topology {}: {what}", path.display()));
        if self.costs.is_some() {
            return Err(wrong("the file states the costs; leave --costs out".into()));
        }
        let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
        let file: File = toml::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        let names: Vec<String> = file.cache.iter().map(|cache| cache.name.clone()).collect();
        let find = |name: &String| {
            let at = names.iter().position(|known| known == name);
            at.ok_or_else(|| wrong(format!("there is no cache '{name}'")))
        };
        if let Some(twice) = (1..names.len()).find(|&i| names[..i].contains(&names[i])) {
            return Err(wrong(format!("cache '{}' is there twice", names[twice])));
        }
        let mut nodes = Vec::new();
        for cache in &file.cache {
            let capacity = cache.size.parse::<Size>()?.blocks(block, unique)?;
            nodes.push(Node { capacity, below: cache.below.as_ref().map(find).transpose()? });
        }
        let times = file.cache.iter().map(|cache| cache.ms).chain([file.disk_ms]);
        if let Some(ms) = times.into_iter().find(|ms| !(0.0..=1e9).contains(ms)) {
            return Err(wrong(format!("a time of {ms} ms: expected none below 0")));
        }
        let clients = file.clients.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let policies: Vec<String> = file.cache.iter().map(|cache| cache.policy.clone()).collect();
        let levels_ms = file.cache.iter().map(|cache| cache.ms).collect();
        Ok(Caches {
            topology: Topology::new(nodes, &clients).map_err(|e| wrong(e.to_string()))?,
            names,
            policy: one_policy(&policies)?,
            costs: Costs { levels_ms, disk_ms: file.disk_ms },
        })
    }

    /// Runs a scheme over the levels, or over the topology.
    pub(crate) fn run(
        &self,
        scheme: SchemeSpec,
        levels: &[LevelSpec],
        population: &Population,
        block_bytes: u32,
        simulation: &SimulationOptions,
        path: &Path,
    ) -> Result<Report, Error> {
        let trace = population.trace();
        let Caches { topology, names, policy, costs } =
            self.caches(levels, block_bytes, population.unique())?;
        let config = MovementConfig {
            topology,
            names,
            scheme,
            policy,
            block_bytes,
            write_mode: simulation.write_mode,
            warmup_records: simulation.warmup.records(trace.seen().records)?,
            costs,
            demotion_cost: self.demotions.unwrap_or_default(),
            seed: self.seed,
            samples: self.samples,
            hint_distances: self.hint_distances,
        };
        let limits = if self.bounds {
            if !config.topology.is_line() || config.topology.clients() > 1 {
                let what = "--bounds: OPT is defined for one client and levels one below the other";
                return Err(Error::Usage(what.into()));
            }
            let path = config.topology.path(0);
            let sizes: Vec<u32> = path.iter().map(|&n| config.topology.capacity(n)).collect();
            Some(bounds(trace, &sizes, &config.costs, config.warmup_records)?)
        } else {
            None
        };
        let bar = Simulating::start(trace.len());
        let outcome = simulate_movement(population, &config, |requests| bar.at(requests))?;
        bar.done();
        let mut about = trace_report(&path.display().to_string(), trace);
        about.unique_blocks = population.unique().into();
        Ok(Report::of_movement(about, &config, &outcome, limits.as_ref()))
    }
}

/// The policy of all levels, which must be the same.
fn one_policy(policies: &[String]) -> Result<String, Error> {
    let first = policies.first().cloned().unwrap_or_else(lru);
    match policies.iter().find(|policy| **policy != first) {
        None => Ok(first),
        Some(other) => Err(Error::Usage(format!(
            "levels of {first} and of {other}: a scheme that moves blocks by hints decides for all \
             levels together; write the same for each, lru where in doubt"
        ))),
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

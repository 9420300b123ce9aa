//! Schemes as a person configures them: caches one below the other, or a tree of caches from a file
//! (`docs/user/hierarchies.md`); from there to the report.

use std::path::Path;

use serde::Deserialize;
use undercroft_schemes::{Node, SchemeSpec, Topology};

use super::{Prepared, Setup};
use crate::drive::Proceed;
use crate::movement::{bounds, line, simulate_movement};
use crate::{Bounds, CostSpec, Costs, Error, LevelConfig, MovementConfig, Report, Size};

/// Caches under a scheme.
struct Caches {
    topology: Topology,
    names: Vec<String>,
    policy: String,
    costs: Costs,
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

impl Caches {
    /// Levels one below the other, the one nearest to the client first.
    ///
    /// # Errors
    /// The levels have different policies, or the times are for another number of levels.
    fn line(levels: &[LevelConfig], costs: Option<&CostSpec>) -> Result<Self, Error> {
        let capacities: Vec<u32> = levels.iter().map(|level| level.capacity).collect();
        Ok(Self {
            topology: line(&capacities)?,
            names: (1..=levels.len()).map(|i| format!("l{i}")).collect(),
            policy: one_policy(levels.iter().map(|level| level.policy.to_string()))?,
            costs: costs.cloned().unwrap_or_default().costs(levels.len())?,
        })
    }

    /// A tree of caches from a file. `unique`: distinct blocks of the trace, for sizes in percent.
    ///
    /// # Errors
    /// The file cannot be read, or is no topology; the message begins with `--topology` and it.
    fn of_file(path: &Path, block_bytes: u32, unique: u32) -> Result<Self, Error> {
        let of_file = || -> Result<Self, String> {
            let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
            let file = toml::from_str::<File>(&text).map_err(|e| e.to_string())?;
            file.caches(block_bytes, unique)
        };
        of_file().map_err(|why| Error::Request(format!("--topology {}: {why}", path.display())))
    }
}

impl File {
    fn caches(self, block_bytes: u32, unique: u32) -> Result<Caches, String> {
        let names: Vec<String> = self.cache.iter().map(|cache| cache.name.clone()).collect();
        let find = |name: &String| {
            let at = names.iter().position(|known| known == name);
            at.ok_or_else(|| format!("there is no cache '{name}'"))
        };
        if let Some(twice) = (1..names.len()).find(|&i| names[..i].contains(&names[i])) {
            return Err(format!("cache '{}' is there twice", names[twice]));
        }
        let mut nodes = Vec::new();
        for cache in &self.cache {
            let size = cache.size.parse().and_then(|size: Size| size.blocks(block_bytes, unique));
            let capacity = size.map_err(|e| format!("cache '{}': {e}", cache.name))?;
            nodes.push(Node { capacity, below: cache.below.as_ref().map(find).transpose()? });
        }
        let times = self.cache.iter().map(|cache| cache.ms).chain([self.disk_ms]);
        if let Some(ms) = times.into_iter().find(|ms| !(0.0..=1e9).contains(ms)) {
            return Err(format!("a time of {ms} ms: expected none below 0"));
        }
        let clients = self.clients.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let policies = self.cache.iter().map(|cache| cache.policy.clone());
        let policy = one_policy(policies).map_err(|e| e.to_string())?;
        let levels_ms = self.cache.iter().map(|cache| cache.ms).collect();
        let topology = Topology::new(nodes, &clients).map_err(|e| e.to_string())?;
        Ok(Caches { topology, names, policy, costs: Costs { levels_ms, disk_ms: self.disk_ms } })
    }
}

/// The policy of all levels, which must be the same.
fn one_policy(mut policies: impl Iterator<Item = String>) -> Result<String, Error> {
    let first = policies.next().unwrap_or_else(lru);
    match policies.find(|policy| *policy != first) {
        None => Ok(first),
        Some(other) => Err(Error::Request(format!(
            "levels of {first} and of {other}: a scheme that moves blocks by hints decides for all \
             levels together; write the same for each, lru where in doubt"
        ))),
    }
}

impl Setup {
    /// Simulates a scheme.
    pub(super) fn move_by<P: Proceed>(
        &self,
        trace: &Prepared,
        scheme: &SchemeSpec,
        progress: impl FnMut(u64) -> P,
    ) -> Result<Report, Error> {
        let (population, block_bytes) = (&trace.population, trace.block_bytes);
        let caches = match &self.topology {
            Some(file) => Caches::of_file(file, block_bytes, population.unique())?,
            None => Caches::line(&self.levels(trace)?, self.times.costs.as_ref())?,
        };
        let config = MovementConfig {
            topology: caches.topology,
            names: caches.names,
            scheme: scheme.clone(),
            policy: caches.policy,
            block_bytes,
            write_mode: self.write_mode,
            warmup_records: self.warmup_records(trace)?,
            costs: caches.costs,
            demotion_cost: self.times.demotions,
            seed: self.times.seed,
            samples: self.looks.samples,
            hint_distances: self.looks.hint_distances,
        };
        let limits = self.looks.bounds.then(|| limits(trace, &config)).transpose()?;
        let outcome = simulate_movement(population, &config, progress)?;
        Ok(Report::of_movement(trace.about.clone(), &config, &outcome, limits.as_ref()))
    }
}

/// What no scheme can beat, and what knowledge of the future attains.
fn limits(trace: &Prepared, config: &MovementConfig) -> Result<Bounds, Error> {
    let topology = &config.topology;
    if !topology.is_line() || topology.clients() > 1 {
        let what = "bounds: OPT is defined for one client and levels one below the other";
        return Err(Error::Request(what.into()));
    }
    let sizes = topology.path(0).iter().map(|&node| topology.capacity(node));
    let sizes: Vec<u32> = sizes.collect();
    bounds(trace.trace(), &sizes, &config.costs, config.warmup_records)
}

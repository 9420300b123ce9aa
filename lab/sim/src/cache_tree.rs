//! The caches under a scheme: one below the other, or a tree of caches from a file
//! (`docs/user/hierarchies.md`).

use std::path::Path;

use serde::Deserialize;
use undercroft_schemes::{Node, Topology};

use crate::{CostSpec, Error, LevelConfig, Size};

/// Caches under a scheme, which decides for all of them together.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheTree {
    /// Their sizes and connections, and the cache of each client.
    pub topology: Topology,
    /// The name of each cache.
    pub names: Vec<String>,
    /// The replacement policy of all caches.
    pub policy: String,
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

impl CacheTree {
    /// Levels one below the other, the one nearest to the client first.
    ///
    /// # Errors
    /// The levels have different policies, or there are too many or none.
    pub fn line(levels: &[LevelConfig]) -> Result<Self, Error> {
        let capacities: Vec<u32> = levels.iter().map(|level| level.capacity).collect();
        let topology = Topology::line(&capacities).map_err(|e| Error::Request(e.to_string()))?;
        let names = (1..=levels.len()).map(|i| format!("l{i}")).collect();
        let policy = one_policy(levels.iter().map(|level| level.policy.to_string()))?;
        Ok(Self { topology, names, policy })
    }

    /// A tree of caches from a file, with the times of the caches and of the disk. `unique`:
    /// distinct blocks of the trace, for sizes in percent.
    ///
    /// # Errors
    /// The file cannot be read, or is no topology; the message begins with `--topology` and it.
    pub fn of_file(path: &Path, block_bytes: u32, unique: u32) -> Result<(Self, CostSpec), Error> {
        let of_file = || -> Result<(Self, CostSpec), String> {
            let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
            let file = toml::from_str::<File>(&text).map_err(|e| e.to_string())?;
            file.tree(block_bytes, unique)
        };
        of_file().map_err(|why| Error::Request(format!("--topology {}: {why}", path.display())))
    }
}

impl File {
    fn tree(self, block_bytes: u32, unique: u32) -> Result<(CacheTree, CostSpec), String> {
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
        let times: Vec<f64> = times.collect();
        if let Some(ms) = times.iter().find(|ms| !(0.0..=1e9).contains(*ms)) {
            return Err(format!("a time of {ms} ms: expected none below 0"));
        }
        let clients = self.clients.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let policies = self.cache.iter().map(|cache| cache.policy.clone());
        let policy = one_policy(policies).map_err(|e| e.to_string())?;
        let topology = Topology::new(nodes, &clients).map_err(|e| e.to_string())?;
        Ok((CacheTree { topology, names, policy }, CostSpec::Own(times)))
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

//! The results of a hierarchy driven by hints, with the fixed names that scripts rely on.

use serde::{Deserialize, Serialize};

use crate::{
    BoundReport, CacheTree, Config, Costs, MovementOutcome, NodeCounts, Outcome, SampleReport,
};

/// The moves and their costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MovementReport {
    /// The scheme with the options that differ from their defaults.
    pub scheme: String,
    /// The times used for each cache, in milliseconds.
    pub cache_ms: Vec<f64>,
    /// The time used for the disk, in milliseconds.
    pub disk_ms: f64,
    /// How demotions were charged: `free`, `rtt` or `link=N`.
    pub demotion_cost: String,
    /// The part of the mean time of a read that each cache served, in milliseconds.
    pub served_ms: Vec<f64>,
    /// The part of the mean time of a read that the disk served, in milliseconds.
    pub disk_part_ms: f64,
    /// The part of the mean time of a read that was charged for demotions, in milliseconds.
    pub charged_ms: f64,
    /// The part of the mean time of a read spent waiting for demotions on links, in milliseconds.
    pub waited_ms: f64,
    /// Demotions per 1,000 requests, all caches together.
    pub demotions_per_1000: f64,
    /// Promotions per 1,000 requests, all caches together.
    pub promotions_per_1000: f64,
    /// Demotions and promotions per 1,000 requests: the hint frequency.
    pub hints_per_1000: f64,
    /// The report of each cache.
    pub nodes: Vec<NodeReport>,
    /// The samples: the run in equal parts.
    pub samples: Vec<SampleReport>,
    /// The bound that no scheme can beat, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opt_ub: Option<BoundReport>,
    /// The bound that is reached with knowledge of the future, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opt_lb: Option<BoundReport>,
}

/// The moves at one cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// The cache below it.
    pub below: Option<String>,
    /// Reads that it served / all reads.
    pub share: f64,
    /// Counts of moves.
    #[serde(flatten)]
    pub counts: NodeCounts,
    /// Blocks between this cache and the one below per 1,000 requests: its read misses, demotions,
    /// and promotions that no read asked for.
    pub traffic_below_per_1000: f64,
    /// Bytes that the scheme keeps beside the cache / bytes of the cache.
    pub overhead: f64,
}

impl MovementReport {
    /// What moved in a simulation of `config`, whose requests have these costs.
    pub(crate) fn new(
        (config, tree): (&Config, &CacheTree),
        costs: &Costs,
        outcome: &Outcome,
        movement: &MovementOutcome,
    ) -> Self {
        let (topology, nodes) = (&tree.topology, &movement.nodes);
        let MovementOutcome { reads, writes, .. } = movement;
        let hits: Vec<u64> = outcome.levels.iter().map(|counts| counts.read_hits).collect();
        let (all, requests) = ((*reads).max(1) as f64, (reads + writes).max(1) as f64);
        let demotions: u64 = nodes.iter().map(|node| node.demotions_in).sum();
        let promotions: u64 = nodes.iter().map(|node| node.promotions_in).sum();
        let per_1000 = |count: u64| 1000.0 * count as f64 / requests;
        let served = hits.iter().zip(&costs.levels_ms).map(|(&n, ms)| n as f64 * ms / all);
        let node_report = |node: usize| {
            let counts = nodes[node].clone();
            let capacity = f64::from(topology.capacity(node)) * f64::from(config.block_bytes);
            let below = topology.below(node);
            let sent = below.map_or(0, |below| nodes[below].demotions_in);
            let missed = outcome.levels[node].reads - hits[node];
            NodeReport {
                name: tree.names[node].clone(),
                below: below.map(|below| tree.names[below].clone()),
                share: hits[node] as f64 / all,
                traffic_below_per_1000: per_1000(missed + sent + counts.exchanges_in),
                overhead: counts.overhead_bytes as f64 / capacity,
                counts,
            }
        };
        let bounds = movement.bounds.as_ref();
        Self {
            scheme: config.rule.to_string(),
            cache_ms: costs.levels_ms.clone(),
            disk_ms: costs.disk_ms,
            demotion_cost: config.times.demotions.unwrap_or_default().to_string(),
            served_ms: served.collect(),
            disk_part_ms: outcome.disk_reads() as f64 * costs.disk_ms / all,
            charged_ms: movement.charged_ms / all,
            waited_ms: movement.waited_ms / all,
            demotions_per_1000: per_1000(demotions),
            promotions_per_1000: per_1000(promotions),
            hints_per_1000: per_1000(demotions + promotions),
            nodes: (0..topology.nodes()).map(node_report).collect(),
            samples: movement.samples.clone(),
            opt_ub: bounds.map(|bounds| bounds.upper.clone()),
            opt_lb: bounds.map(|bounds| bounds.lower.clone()),
        }
    }
}

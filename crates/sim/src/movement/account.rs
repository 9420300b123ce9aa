//! What is counted while a scheme runs: hits, moves, traffic and time of each cache.

use serde::{Deserialize, Serialize};
use undercroft_cache::movement::{Move, Scheme, Topology};
use undercroft_cache::{Counts, Reference};

use super::hint_distance::HintDistances;
use super::links::Links;
use super::{MovementConfig, MovementOutcome, Sample, zeroed};
use crate::{Costs, DemotionCost, Population};

/// What one cache counted beside hits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// Blocks that came from above, with their data.
    pub demotions_in: u64,
    /// Blocks that were offered from above and were here already.
    pub resent_in: u64,
    /// Blocks that came from a cache below to stay.
    pub promotions_in: u64,
    /// Of those, blocks that nobody had asked for.
    pub exchanges_in: u64,
    /// Blocks that went up to the cache above to stay there or above it.
    pub promotions_out: u64,
    /// Bytes that the scheme keeps beside the cache.
    pub overhead_bytes: u64,
    /// Hint reuse distances, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint_distances: Option<Vec<(u32, f64)>>,
}

pub(super) struct Account<'a> {
    topology: &'a Topology,
    costs: &'a Costs,
    demotion_cost: DemotionCost,
    counts: Vec<Counts>,
    nodes: Vec<NodeCounts>,
    entered: Vec<u64>,
    held_before: Vec<u64>,
    seen: Vec<bool>,
    links: Links,
    charged_ms: f64,
    distances: Option<Vec<HintDistances>>,
    samples: Vec<Sample>,
    since: (u64, Vec<u64>),
}

impl<'a> Account<'a> {
    pub(super) fn new(population: &Population, config: &'a MovementConfig) -> Self {
        let nodes = config.topology.nodes();
        let unique = population.unique();
        let distances = || (0..nodes).map(|_| HintDistances::new(unique)).collect();
        Self {
            topology: &config.topology,
            costs: &config.costs,
            demotion_cost: config.demotion_cost,
            counts: zeroed(nodes),
            nodes: vec![NodeCounts::default(); nodes],
            entered: vec![0; nodes],
            held_before: vec![0; nodes],
            seen: vec![false; unique as usize],
            links: Links::new(nodes, config.demotion_cost),
            charged_ms: 0.0,
            distances: config.hint_distances.then(distances),
            samples: Vec::new(),
            since: (0, vec![0; nodes]),
        }
    }

    /// The warm-up is over: what was counted is forgotten, not what was seen.
    pub(super) fn restart(&mut self, scheme: &dyn Scheme) {
        let nodes = self.nodes.len();
        self.counts = zeroed(nodes);
        self.nodes = vec![NodeCounts::default(); nodes];
        self.entered = vec![0; nodes];
        self.held_before = (0..nodes).map(|node| scheme.len(node).into()).collect();
        self.charged_ms = 0.0;
        self.links.restart();
        self.samples.clear();
        self.since = (0, vec![0; nodes]);
    }

    /// Takes one reference of a client into account, and what it moved.
    pub(super) fn count(
        &mut self,
        client: usize,
        reference: Reference,
        found: Option<usize>,
        moves: &[Move],
    ) {
        let (entry, is_write) = (reference.entry(), reference.is_write());
        let cold = !std::mem::replace(&mut self.seen[entry as usize], true);
        for &node in self.topology.path(client) {
            let (counts, hit) = (&mut self.counts[node], found == Some(node));
            if is_write {
                counts.writes += 1;
                counts.write_hits += u64::from(hit);
            } else {
                counts.reads += 1;
                counts.read_hits += u64::from(hit);
                counts.cold_reads += u64::from(cold);
            }
            if let Some(distances) = &mut self.distances {
                distances[node].reference(entry);
            }
            // Every level is write-through: a write goes on to the disk.
            if hit && !is_write {
                break;
            }
        }
        for &one in moves {
            self.count_move(entry, found, one);
        }
        if !is_write {
            self.since.0 += 1;
            let own_ms = found.map_or(self.costs.disk_ms, |node| {
                self.since.1[node] += 1;
                self.costs.levels_ms[node]
            });
            self.links.read(self.topology.path(client), found, own_ms);
        }
        for &one in moves {
            if let Move::Demoted(_, node) = one {
                self.charge(client, node);
            }
        }
    }

    /// A demotion into a cache costs time.
    fn charge(&mut self, client: usize, node: usize) {
        let path = self.topology.path(client);
        let on_the_way = path.iter().position(|&n| n == node).filter(|&i| i > 0);
        let above = match on_the_way {
            Some(i) => path[i - 1],
            // An exchange drove it out of a cache of another client.
            None => match (0..self.nodes.len()).find(|&n| self.topology.below(n) == Some(node)) {
                Some(above) => above,
                None => return,
            },
        };
        match self.demotion_cost {
            DemotionCost::Free => (),
            DemotionCost::RoundTrip => {
                self.charged_ms += self.costs.levels_ms[node] - self.costs.levels_ms[above];
            }
            DemotionCost::Link(_) => self.links.demote(above),
        }
    }

    fn count_move(&mut self, referenced: u32, found: Option<usize>, one: Move) {
        let distances = self.distances.as_mut();
        match one {
            Move::Filled(_, node) | Move::Copied(_, node) => self.entered[node] += 1,
            Move::Demoted(entry, node) => {
                self.entered[node] += 1;
                self.nodes[node].demotions_in += 1;
                if let Some(distances) = distances {
                    distances[node].demoted(entry);
                }
            }
            Move::Resent(_, node) => self.nodes[node].resent_in += 1,
            Move::Promoted(entry, node) => {
                self.entered[node] += 1;
                self.nodes[node].promotions_in += 1;
                self.nodes[node].exchanges_in += u64::from(entry != referenced);
                let from = if entry == referenced { found } else { self.topology.below(node) };
                if let Some(from) = from {
                    self.nodes[from].promotions_out += 1;
                    if let Some(distances) = distances {
                        distances[from].promoted(entry);
                    }
                }
            }
            Move::Dropped(..) => (),
        }
    }

    /// Looks at the caches.
    pub(super) fn sample(&mut self, references: u64, scheme: &dyn Scheme) {
        let nodes = self.nodes.len();
        let (reads, read_hits) = std::mem::replace(&mut self.since, (0, vec![0; nodes]));
        let gauges = (0..nodes).map(|node| scheme.gauges(node)).collect();
        self.samples.push(Sample { references, reads, read_hits, gauges });
    }

    pub(super) fn finish(mut self, scheme: &dyn Scheme) -> (Vec<Counts>, MovementOutcome) {
        for node in 0..self.nodes.len() {
            let counts = &mut self.nodes[node];
            counts.overhead_bytes = scheme.overhead_bytes(node);
            if let Some(distances) = &self.distances {
                counts.hint_distances = Some(distances[node].by_frequency());
            }
            // What came and is not there any more, and did not go up, was driven out.
            let came = self.held_before[node] + self.entered[node];
            let left = u64::from(scheme.len(node)) + counts.promotions_out;
            self.counts[node].evictions = came - left;
        }
        let outcome = MovementOutcome {
            nodes: self.nodes,
            waited_ms: self.links.waited_ms(),
            charged_ms: self.charged_ms,
            samples: self.samples,
        };
        (self.counts, outcome)
    }
}

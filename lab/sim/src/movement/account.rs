//! The counts of a running scheme: hits, moves, traffic and time of each cache.

use undercroft_policy::{Counts, Reference};
use undercroft_schemes::{Move, Scheme, Topology};

use super::hint_distance::HintDistances;
use super::links::Links;
use crate::{Config, Costs, DemotionCost, MovementOutcome, NodeCounts, Population, SampleReport};

/// The references that one place served.
#[derive(Clone, Copy, Default)]
struct Served {
    reads: u64,
    writes: u64,
    /// The reads that were the first of their blocks.
    cold_reads: u64,
}

/// Kinds of moves.
const FILLED: usize = 0;
const COPIED: usize = 1;
const PROMOTED: usize = 2;
const DEMOTED: usize = 3;
const RESENT: usize = 4;
const DROPPED: usize = 5;
const KINDS: usize = 6;

/// The kind of a move, and the cache.
#[inline(always)]
fn parts(one: Move) -> (usize, usize) {
    match one {
        Move::Filled(_, node) => (FILLED, node),
        Move::Copied(_, node) => (COPIED, node),
        Move::Promoted(_, node) => (PROMOTED, node),
        Move::Demoted(_, node) => (DEMOTED, node),
        Move::Resent(_, node) => (RESENT, node),
        Move::Dropped(_, node) => (DROPPED, node),
    }
}

/// The counts of a simulation. A reference changes few numbers; the counts of each cache are
/// derived from them at the end.
pub(super) struct Account<'a> {
    topology: &'a Topology,
    costs: &'a Costs,
    demotion_cost: DemotionCost,
    /// By client and cache; the last entry of a client's row is the disk.
    served: Vec<Served>,
    /// Moves, by the client that made the reference, the cache, and the kind.
    moved: Vec<u64>,
    /// The counts that are not just numbers of moves.
    nodes: Vec<NodeCounts>,
    held_before: Vec<u64>,
    seen: Vec<bool>,
    links: Links,
    distances: Option<Vec<HintDistances>>,
    samples: Vec<SampleReport>,
    /// The reads, and those that each cache served, at the last sample.
    looked: (u64, Vec<u64>),
}

impl<'a> Account<'a> {
    pub(super) fn new(
        population: &Population,
        config: &Config,
        topology: &'a Topology,
        costs: &'a Costs,
    ) -> Self {
        let (nodes, clients) = (topology.nodes(), topology.clients());
        let demotion_cost = config.times.demotions.unwrap_or_default();
        let unique = population.unique();
        let distances = || (0..nodes).map(|_| HintDistances::new(unique)).collect();
        Self {
            topology,
            costs,
            demotion_cost,
            served: vec![Served::default(); clients * (nodes + 1)],
            moved: vec![0; KINDS * clients * nodes],
            nodes: vec![NodeCounts::default(); nodes],
            held_before: vec![0; nodes],
            seen: vec![false; unique as usize],
            links: Links::new(nodes, demotion_cost),
            distances: config.looks.hint_distances.then(distances),
            samples: Vec::new(),
            looked: (0, vec![0; nodes]),
        }
    }

    /// Ends the warm-up: resets the counts, but not which blocks were seen.
    pub(super) fn restart(&mut self, scheme: &dyn Scheme) {
        let nodes = self.nodes.len();
        self.served.fill(Served::default());
        self.moved.fill(0);
        self.nodes = vec![NodeCounts::default(); nodes];
        self.held_before = (0..nodes).map(|node| scheme.len(node).into()).collect();
        self.links.restart();
        self.samples.clear();
        self.looked = (0, vec![0; nodes]);
    }

    /// Whether a block was never referenced before. Call it in the order of the references; it may
    /// run ahead of [`count`](Self::count).
    #[inline(always)]
    pub(super) fn is_cold(&mut self, block: u32) -> bool {
        !std::mem::replace(&mut self.seen[block as usize], true)
    }

    /// Counts one reference of a client, and its moves.
    #[inline]
    pub(super) fn count(
        &mut self,
        client: usize,
        reference: Reference,
        is_cold: bool,
        found: Option<usize>,
        moves: &[Move],
    ) {
        let (entry, is_write) = (reference.entry(), reference.is_write());
        let nodes = self.nodes.len();
        let served = &mut self.served[client * (nodes + 1) + found.unwrap_or(nodes)];
        served.reads += u64::from(!is_write);
        served.writes += u64::from(is_write);
        served.cold_reads += u64::from(is_cold && !is_write);
        let moved = &mut self.moved[client * nodes * KINDS..];
        for &one in moves {
            let (kind, node) = parts(one);
            moved[node * KINDS + kind] += 1;
        }
        // A separate loop: the one above then has no branch on the kind.
        if moves.iter().any(|one| matches!(one, Move::Promoted(..))) {
            self.count_promotions(entry, found, moves);
        }
        if self.distances.is_some() {
            self.measure_distances(client, reference, found, moves);
        }
        if let DemotionCost::Link(_) = self.demotion_cost {
            self.cross_links(client, is_write, found, moves);
        }
    }

    /// Counts promotions beyond their number.
    fn count_promotions(&mut self, entry: u32, found: Option<usize>, moves: &[Move]) {
        for &one in moves {
            let Move::Promoted(other, node) = one else { continue };
            self.nodes[node].exchanges_in += u64::from(other != entry);
            if let Some(from) = self.came_from(entry, found, (other, node)) {
                self.nodes[from].promotions_out += 1;
            }
        }
    }

    /// The cache from which a block was promoted to another one.
    fn came_from(
        &self,
        referenced: u32,
        found: Option<usize>,
        (entry, node): (u32, usize),
    ) -> Option<usize> {
        if entry == referenced { found } else { self.topology.below(node) }
    }

    fn measure_distances(
        &mut self,
        client: usize,
        reference: Reference,
        found: Option<usize>,
        moves: &[Move],
    ) {
        let Some(mut distances) = self.distances.take() else { return };
        for &node in self.topology.path(client) {
            distances[node].reference(reference.entry());
            // Every level is write-through, so a write continues to the disk.
            if found == Some(node) && !reference.is_write() {
                break;
            }
        }
        for &one in moves {
            match one {
                Move::Demoted(entry, node) => distances[node].demoted(entry),
                Move::Promoted(entry, node) => {
                    if let Some(from) = self.came_from(reference.entry(), found, (entry, node)) {
                        distances[from].promoted(entry);
                    }
                }
                _ => (),
            }
        }
        self.distances = Some(distances);
    }

    fn cross_links(&mut self, client: usize, is_write: bool, found: Option<usize>, moves: &[Move]) {
        if !is_write {
            let own_ms = found.map_or(self.costs.disk_ms, |node| self.costs.levels_ms[node]);
            self.links.read(self.topology.path(client), found, own_ms);
        }
        for &one in moves {
            if let Move::Demoted(_, node) = one {
                if let Some(above) = self.demoted_from(client, node) {
                    self.links.demote(above);
                }
            }
        }
    }

    /// The cache from which a block was demoted to `node`, at a reference of `client`.
    fn demoted_from(&self, client: usize, node: usize) -> Option<usize> {
        let path = self.topology.path(client);
        let on_the_way = path.iter().position(|&n| n == node).filter(|&i| i > 0);
        on_the_way.map(|i| path[i - 1]).or_else(|| {
            // The cache of another client evicted it because of an exchange.
            (0..self.nodes.len()).find(|&n| self.topology.below(n) == Some(node))
        })
    }

    /// The moves of a kind, by client and cache.
    fn moved(&self, kind: usize) -> impl Iterator<Item = (usize, usize, u64)> + '_ {
        let (nodes, rows) = (self.nodes.len(), self.moved.chunks(KINDS).enumerate());
        rows.map(move |(at, row)| (at / nodes, at % nodes, row[kind]))
    }

    /// Number of moves of a kind to a cache.
    fn moved_to(&self, kind: usize, node: usize) -> u64 {
        self.moved(kind).filter(|at| at.1 == node).map(|at| at.2).sum()
    }

    /// Milliseconds that reads were charged for demotions, if these cost a round trip.
    fn charged_ms(&self) -> f64 {
        if self.demotion_cost != DemotionCost::RoundTrip {
            return 0.0;
        }
        let charge = |(client, node, blocks): (usize, usize, u64)| {
            let above = self.demoted_from(client, node).filter(|_| blocks > 0)?;
            Some(blocks as f64 * (self.costs.levels_ms[node] - self.costs.levels_ms[above]))
        };
        // An empty sum of floats is -0.0, which a report would print.
        self.moved(DEMOTED).filter_map(charge).fold(0.0, |sum, ms| sum + ms)
    }

    /// The requests and hits of each cache.
    fn counts(&self) -> Vec<Counts> {
        let nodes = self.nodes.len();
        let mut counts = vec![Counts::default(); nodes];
        for (client, row) in self.served.chunks(nodes + 1).enumerate() {
            for (place, served) in row.iter().enumerate() {
                // Reads that a cache above served do not reach this one. Every level is
                // write-through, so a write continues to the disk.
                let mut reads = *served;
                for &node in self.topology.path(client) {
                    let counts = &mut counts[node];
                    counts.reads += reads.reads;
                    counts.cold_reads += reads.cold_reads;
                    counts.writes += served.writes;
                    if place == node {
                        counts.read_hits += served.reads;
                        counts.write_hits += served.writes;
                        reads = Served::default();
                    }
                }
            }
        }
        counts
    }

    /// Reads of the clients, and those that each cache served.
    fn reads(&self) -> (u64, Vec<u64>) {
        let nodes = self.nodes.len();
        let mut by_node = vec![0; nodes];
        for row in self.served.chunks(nodes + 1) {
            by_node.iter_mut().zip(row).for_each(|(reads, served)| *reads += served.reads);
        }
        (self.served.iter().map(|served| served.reads).sum(), by_node)
    }

    /// Takes a sample of the caches.
    pub(super) fn sample(&mut self, references: u64, scheme: &dyn Scheme) {
        let now = self.reads();
        let all = (now.0 - self.looked.0).max(1) as f64;
        let since = now.1.iter().zip(&self.looked.1).map(|(now, before)| now - before);
        let gauges = || (0..self.nodes.len()).map(|node| scheme.gauges(node).unwrap_or_default());
        self.samples.push(SampleReport {
            requests: references,
            shares: since.map(|hits| hits as f64 / all).collect(),
            hot_blocks: gauges().map(|gauges| gauges.hot_blocks).collect(),
            hot_target: gauges().map(|gauges| gauges.hot_target).collect(),
            probability: gauges().map(|gauges| gauges.probability).collect(),
        });
        self.looked = now;
    }

    pub(super) fn finish(mut self, scheme: &dyn Scheme) -> (Vec<Counts>, MovementOutcome) {
        let mut all = self.counts();
        let charged_ms = self.charged_ms();
        for node in 0..self.nodes.len() {
            let [filled, copied, demoted, promoted, resent] =
                [FILLED, COPIED, DEMOTED, PROMOTED, RESENT].map(|kind| self.moved_to(kind, node));
            let counts = &mut self.nodes[node];
            (counts.demotions_in, counts.promotions_in) = (demoted, promoted);
            counts.resent_in = resent;
            counts.overhead_bytes = scheme.overhead_bytes(node);
            if let Some(distances) = &self.distances {
                counts.hint_distances = Some(distances[node].by_frequency());
            }
            // The blocks that came, are not resident now, and did not go up, were evicted.
            let came = self.held_before[node] + filled + copied + demoted + promoted;
            let left = u64::from(scheme.len(node)) + counts.promotions_out;
            all[node].evictions = came - left;
        }
        let outcome = MovementOutcome {
            reads: self.served.iter().map(|served| served.reads).sum(),
            writes: self.served.iter().map(|served| served.writes).sum(),
            bounds: None,
            nodes: self.nodes,
            waited_ms: self.links.waited_ms(),
            charged_ms,
            samples: self.samples,
        };
        (all, outcome)
    }
}

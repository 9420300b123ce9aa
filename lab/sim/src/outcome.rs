//! What a simulation counts: one type for all of them, made of the counts that levels, clients,
//! schemes and the clock have of their own.

use std::time::Duration;

use crate::FlashOutcome;
use crate::tree::BelowCounts;
use serde::{Deserialize, Serialize};
use undercroft_level::placement::ReloadCounts;
use undercroft_level::{CctCounts, PlacementCounts};
use undercroft_policy::Counts;

/// The outcome of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Counts of each level, in the order of the levels.
    pub levels: Vec<Counts>,
    /// Number of simulated block requests, the warm-up included.
    pub references: u64,
    /// Elapsed time of the simulation, without reading the trace.
    pub elapsed: Duration,
    /// Processor time of the simulation, without reading the trace.
    pub cpu: Duration,
    /// The blocks that write-back writes at the lowest level; `None` if it is write-through.
    pub write_back: Option<WriteBackCounts>,
    /// Further counts of levels that cooperate; `None` with access-based placement.
    pub cooperation: Option<CooperationOutcome>,
    /// Further counts of several clients; `None` with one client.
    pub clients: Option<ClientsOutcome>,
    /// Times; `None` without a clock.
    pub timed: Option<TimedOutcome>,
    /// What decides at the end at each level whose policy chooses among several ways; empty
    /// with several clients, a scheme of movement or content awareness.
    pub leaders: Vec<Option<&'static str>>,
    /// Further counts of each content-aware level.
    pub aware: Vec<AwareReport>,
    /// What a flash level did; `None` without one.
    pub flash: Option<FlashOutcome>,
    /// Moves between levels; `None` without a scheme of movement.
    pub movement: Option<MovementOutcome>,
}

impl Outcome {
    /// Block reads of the applications.
    pub fn reads(&self) -> u64 {
        let first = self.levels.first().map_or(0, |top| top.reads);
        self.movement.as_ref().map_or(first, |movement| movement.reads)
    }

    /// Block reads served by a cache: a level, or another client.
    pub fn read_hits(&self) -> u64 {
        let levels = self.levels.iter().map(|level| level.read_hits).sum::<u64>();
        levels + self.flash_hits() + self.peer_hits()
    }

    /// Block reads served by flash.
    pub fn flash_hits(&self) -> u64 {
        self.flash.as_ref().map_or(0, |flash| flash.counts.hits)
    }

    /// Block reads served by another client.
    pub fn peer_hits(&self) -> u64 {
        self.clients.as_ref().map_or(0, ClientsOutcome::peer_hits)
    }

    /// Reads served by caches / reads of the applications.
    pub fn read_hit_ratio(&self) -> f64 {
        if self.reads() == 0 { 0.0 } else { self.read_hits() as f64 / self.reads() as f64 }
    }

    /// Blocks read from disk, because no cache held them.
    pub fn disk_reads(&self) -> u64 {
        self.reads() - self.read_hits()
    }

    /// Blocks read from disk for placement.
    pub fn reloads(&self) -> u64 {
        let levels = self.cooperation.iter().flat_map(|cooperation| &cooperation.levels);
        let all: u64 = levels.map(|level| level.reloads).sum();
        all - self.flash.as_ref().map_or(0, |flash| flash.reloads)
    }

    /// Blocks written to disk. Every level is write-through, except for the lowest one with
    /// write-back.
    pub fn disk_writes(&self) -> u64 {
        let last = self.levels.last().map_or(0, |bottom| bottom.writes);
        let through = self.movement.as_ref().map_or(last, |movement| movement.writes);
        self.write_back.map_or(through, |counts| counts.written())
    }
}

/// The blocks that write-back writes to the disk, by reason, after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteBackCounts {
    /// Writes that changed a block which was dirty already: these are saved.
    pub saved: u64,
    /// Dirty blocks that were evicted.
    pub evicted: u64,
    /// Dirty blocks that were older than allowed, or more than allowed.
    pub early: u64,
    /// Writes of blocks that are not resident afterwards: they go to the disk at once.
    pub around: u64,
    /// Blocks that were dirty at the end; a final flush writes them.
    pub left: u64,
}

impl WriteBackCounts {
    /// All blocks written, those of a final flush included.
    pub fn written(&self) -> u64 {
        self.evicted + self.early + self.around + self.left
    }
}

/// The counts of a simulation of levels that cooperate, beside the counts of each level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CooperationOutcome {
    /// The placement counts of each level; all 0 for the first level if the client is simulated.
    pub levels: Vec<PlacementCounts>,
    /// Bytes of hints from the client: 8 for each eviction that it reports.
    pub hint_bytes: u64,
    /// Size of the staging area in blocks at the end, beside the capacity.
    pub staging_blocks: u32,
    /// The counts of the client content table, over the whole trace.
    pub table: Option<CctCounts>,
    /// The quality of the emulation of the client.
    pub estimate: Option<EstimateOutcome>,
}

/// How well evictions were inferred. The shares are those visible at the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EstimateOutcome {
    /// Blocks that the client's cache was believed to hold.
    pub client_blocks: u32,
    /// Share of the inferred evictions that were right, as far as the server can see.
    pub precision: f64,
    /// Share of the evictions that were inferred, as far as the server can see.
    pub recall: f64,
    /// Share of the inferred evictions that were right, by the simulated client; `None` without
    /// one.
    pub true_precision: Option<f64>,
    /// Share of the references served with access-based placement because the emulation was not
    /// trusted.
    pub fallback: f64,
}

/// The beliefs of a content-aware level: how often they were wrong, and what the knowledge cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AwareReport {
    /// The level: `l1` or `l2`.
    pub level: String,
    /// Evictions of blocks that the neighbour was believed to hold.
    pub held_evictions: u64,
    /// Held evictions of blocks that the neighbour held at the last exchange, but no longer.
    pub stale_evictions: u64,
    /// Held evictions of blocks that the neighbour did not hold at the last exchange either.
    pub mistaken_evictions: u64,
    /// Bytes that the neighbour sent for this knowledge.
    pub summary_bytes: u64,
    /// Summaries that the neighbour sent.
    pub summaries: u64,
    /// Summaries that were whole filters.
    pub whole_summaries: u64,
    /// Share of false positives of a filter as full as the neighbour makes it, by the formula;
    /// `None` without a filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub false_positive_rate: Option<f64>,
    /// Share of an emulation's predictions that came true; `None` without an emulation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Requests while an emulation was not trusted.
    pub distrusted: u64,
}

/// The counts of a simulation of several clients, beside the counts of the two levels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientsOutcome {
    /// The outcome of each client.
    pub clients: Vec<ClientOutcome>,
    /// The counts of each server.
    pub servers: Vec<Counts>,
    /// Whether a block's volume decides its server; otherwise a hash of the block does.
    pub by_volume: bool,
    /// Blocks moved between parts of caches, over the whole trace.
    pub moved: u64,
}

impl ClientsOutcome {
    /// Reads that one client served to another.
    pub fn peer_hits(&self) -> u64 {
        self.clients.iter().map(|client| client.below.peer_hits).sum()
    }
}

/// Where the references of one client were served.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClientOutcome {
    /// The counts of its own cache.
    pub own: Counts,
    /// The counts below its own cache.
    pub below: BelowCounts,
    /// Its part of the servers' caches in blocks, at the end; `None` if they are not divided.
    pub part_blocks: Option<u64>,
}

/// Counts and times after the warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimedOutcome {
    /// Simulated time in nanoseconds.
    pub elapsed_ns: u64,
    /// Block references answered.
    pub requests: u64,
    /// Block reads answered.
    pub reads: u64,
    /// Nanoseconds of response time of all reads together.
    pub response_ns: u64,
    /// The part of `response_ns` spent at links: waiting and transfer.
    pub link_ns: u64,
    /// The part of `response_ns` spent waiting for a disk.
    pub wait_ns: u64,
    /// The part of `wait_ns` for the end of a reload that the disk was doing when the read came.
    pub behind_reloads_ns: u64,
    /// The part of `response_ns` in which the disk read the block.
    pub service_ns: u64,
    /// The part of `response_ns` in which flash read the block, waiting included.
    pub flash_ns: u64,
    /// Shares of the time in which the channels of flash read and wrote.
    pub flash_busy: [f64; 2],
    /// Shares of the time in which the disks served reads, writes and reloads.
    pub disk_busy: [f64; 3],
    /// Shares of the time in which the links carried requested and written blocks, and evicted
    /// blocks.
    pub link_busy: [f64; 2],
    /// What happened to the reloads before they were issued.
    pub reloads: ReloadCounts,
    /// Unused reloads: the block was requested or written while the disk read it.
    pub unwanted: u64,
    /// Reads that waited for an issued reload of their block. They are misses.
    pub joined: u64,
    /// Hints that came too late: a client had the block again.
    pub stale: u64,
    /// Hints that clients sent.
    pub hints: u64,
    /// Number of changes of the way down, if that is chosen by cost.
    pub way_changes: u64,
}

/// The outcome under a scheme, beside the counts of each level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MovementOutcome {
    /// The counts of each cache.
    pub nodes: Vec<NodeCounts>,
    /// Time that all reads together waited for demotions on links, in milliseconds.
    pub waited_ms: f64,
    /// Time that all reads together were charged for demotions, in milliseconds.
    pub charged_ms: f64,
    /// The samples of the caches, in order.
    pub samples: Vec<SampleReport>,
    /// Reads of all clients.
    pub reads: u64,
    /// Writes of all clients.
    pub writes: u64,
    /// What no scheme can beat, and what knowledge of the future attains, if requested.
    pub bounds: Option<Bounds>,
}

/// What no scheme can beat, and what knowledge of the future attains (`movement/bounds.rs`).
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    /// The bound that no scheme can beat.
    pub upper: BoundReport,
    /// The bound that is reached with knowledge of the future.
    pub lower: BoundReport,
}

/// The counts of one cache beside its hits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// Blocks that came from the cache above, with their data.
    pub demotions_in: u64,
    /// Blocks that were offered from above and were resident already.
    pub resent_in: u64,
    /// Blocks that came from a cache below, to stay.
    pub promotions_in: u64,
    /// The part of `promotions_in` that no request asked for.
    pub exchanges_in: u64,
    /// Blocks that went up, to stay in the cache above or further up.
    pub promotions_out: u64,
    /// Bytes that the scheme keeps beside the cache.
    pub overhead_bytes: u64,
    /// Hint reuse distances, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint_distances: Option<Vec<(u32, f64)>>,
}

/// What the caches under a scheme did in one part of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleReport {
    /// Requests from the start to the end of the part.
    pub requests: u64,
    /// Reads in the part that each cache served / reads in the part.
    pub shares: Vec<f64>,
    /// Blocks in each hot queue, at the end of the part.
    pub hot_blocks: Vec<u32>,
    /// Blocks that each hot queue may hold, at the end of the part.
    pub hot_target: Vec<u32>,
    /// Probability of passing a block up, if the scheme has one.
    pub probability: Vec<f64>,
}

/// A bound, as the read hits of a simulation that attains it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoundReport {
    /// Read hits of each level.
    pub read_hits: Vec<u64>,
    /// All hits / reads.
    pub read_hit_ratio: f64,
    /// Mean time of a read in milliseconds.
    pub response_time_ms: f64,
}
